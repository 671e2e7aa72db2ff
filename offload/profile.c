#include "offload/profile.h"

#include <math.h>
#include <string.h>

#include "src/base/memory.h"

#define GB 1e9
#define TF 1e12

/*
 * Data-sheet values: what products' documents promise of a host that fits the
 * GPU, not what anybody measured.
 *
 * Products: dense tensor-core rates with fp32 accumulation, bf16 and fp16
 * alike; fp32 as the cores compute it, without tensor cores.  NVIDIA's data
 * sheets and white papers: GeForce RTX 3090 (GA102 white paper 2.1: 71 TF/s
 * tensor with fp32 accumulation, 35.6 fp32, 936 GB/s), RTX 4090 (Ada white
 * paper 1.1: 165.2, 82.6, 1008), RTX 5090 (RTX Blackwell white paper: 209.5,
 * 104.8, 1792), A100 80 GB SXM (312, 19.5, 2039), H100 SXM (989.4, 66.9,
 * 3350), H200 SXM (989.4, 66.9, 4800).
 *
 * Bus: PCIe x16, 31.5 GB/s a direction at generation 4 and 63 at 5 (16 and 32
 * GT/s, 128b/130b).  Collectives: NVLink a direction where there is one (A100
 * 300, H100 and H200 450), else the bus.
 *
 * Host memory: channels times transfer rate times 8 bytes.  GeForce: two
 * channels of DDR4-3200 (51.2; 3090), of DDR5-5200 (83.2; 4090), of DDR5-6400
 * (102.4; 5090); servers: one socket, eight channels of DDR4-3200 (204.8;
 * A100), of DDR5-4800 (307.2; H100), of DDR5-5600 (358.4; H200).  AdamW is
 * bound by that memory, so it is also the rate of the processor.
 *
 * Memory of the device, in GiB, as drivers count it.
 *
 * NVMe: one drive of the bus's generation, 7 and 5 GB/s (4), 12 and 11 (5).
 * Threads: 16.  What no data sheet tells is 0: launches cost nothing here.
 */
#define SHIPPED(name_, gib, products, fp32, memory, bus, link, host, read,  \
                write)                                                      \
    {                                                                       \
        .name = name_, .source = ZO_PROFILE_DATA_SHEET,                     \
        .device_bytes = (uint64_t)(gib) << 30,                              \
        .matrix_flops = {[ZO_F32] = (fp32)*TF,                              \
                         [ZO_BF16] = (products)*TF,                         \
                         [ZO_F16] = (products)*TF},                         \
        .device_bandwidth = (memory)*GB, .h2d = (bus)*GB, .d2h = (bus)*GB,  \
        .collective = (link)*GB, .dram = {(host)*GB, {1.0, 1.0, 1.0, 1.0}}, \
        .cpu = (host)*GB, .nvme_read = (read)*GB, .nvme_write = (write)*GB, \
        .threads = 16                                                       \
    }

static const struct zo_profile shipped[] = {
    SHIPPED("3090", 24, 71.0, 35.6, 936.0, 31.5, 31.5, 51.2, 7.0, 5.0),
    SHIPPED("4090", 24, 165.2, 82.6, 1008.0, 31.5, 31.5, 83.2, 7.0, 5.0),
    SHIPPED("5090", 32, 209.5, 104.8, 1792.0, 63.0, 63.0, 102.4, 12.0, 11.0),
    SHIPPED("a100", 80, 312.0, 19.5, 2039.0, 31.5, 300.0, 204.8, 7.0, 5.0),
    SHIPPED("h100", 80, 989.4, 66.9, 3350.0, 63.0, 450.0, 307.2, 12.0, 11.0),
    SHIPPED("h200", 140, 989.4, 66.9, 4800.0, 63.0, 450.0, 358.4, 12.0, 11.0),
};

void zo_profile_init(struct zo_profile *profile)
{
    *profile = (struct zo_profile){.source = ZO_PROFILE_MEASURED};
    for (int user = 0; user < ZO_DRAM_USERS; user++) {
        profile->dram.yield[user] = 1.0;
        profile->dram_h2d.yield[user] = 1.0;
        profile->dram_d2h.yield[user] = 1.0;
    }
}

double zo_profile_dram(const struct zo_profile *profile)
{
    return profile->dram.rate <= 0.0
               ? 0.0
               : fmax(profile->dram.rate,
                      fmax(profile->dram_h2d.rate, profile->dram_d2h.rate));
}

const struct zo_profile *zo_profile_shipped(int index)
{
    return index >= 0 && (size_t)index < ZO_COUNT(shipped) ? &shipped[index]
                                                           : NULL;
}

const struct zo_profile *zo_profile_find(const char *name)
{
    for (size_t i = 0; i < ZO_COUNT(shipped); i++) {
        if (strcmp(shipped[i].name, name) == 0) {
            return &shipped[i];
        }
    }
    return NULL;
}

const char *zo_profile_source_text(enum zo_profile_source source)
{
    return source == ZO_PROFILE_MEASURED ? "measured" : "data sheet";
}
