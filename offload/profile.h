/*
 * The machine profile: the rates that the simulator predicts with.
 *
 * Row 5.  Numbers alone: src/train/profile_file.h reads and writes them as
 * JSON, src/train/profile_measure.h measures them.  Rates are per second; a
 * rate that is not known is 0, and what needs it is then not predicted.
 */
#ifndef ZO_OFFLOAD_PROFILE_H
#define ZO_OFFLOAD_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/host_passes.h"
#include "src/base/dtype.h"
#include "src/base/status.h"

ZO_C_BEGIN

#define ZO_PROFILE_TYPES (ZO_F16 + 1)

/* Where the numbers come from: printed beside what is predicted with them. */
enum zo_profile_source {
    ZO_PROFILE_DATA_SHEET, /* products' data sheets: an upper end */
    ZO_PROFILE_MEASURED,   /* on this machine */
};

/* What draws on the host's memory. */
enum zo_dram_user {
    ZO_DRAM_H2D,
    ZO_DRAM_D2H,
    ZO_DRAM_CPU,
    ZO_DRAM_OTHER, /* NVMe; computation of host devices */
    ZO_DRAM_USERS
};

struct zo_dram {
    double rate; /* bytes read plus written; 0: no limit */
    /*
     * How much each user gives way when demand exceeds the rate: a share of
     * what is missing, in proportion to demand times this.  All equal:
     * everybody is slowed in proportion.
     */
    double yield[ZO_DRAM_USERS];
};

struct zo_profile {
    char name[96]; /* "h200"; of a measured one the device's name */
    enum zo_profile_source source;
    char products[64]; /* what products were measured on; "": unknown */

    /* What it stands in for: a machine with a slower bus or a lesser
     * processor.  Its rates are then never those of a plain run. */
    double paced;      /* rate that copies were held up to; 0: none */
    enum zo_simd simd; /* instructions of AdamW */

    /* One device. */
    double matrix_flops[ZO_PROFILE_TYPES]; /* products, by type */
    double attention_flops;                /* 0: as products of the type */
    double device_bandwidth;               /* its memory, read plus written */
    uint64_t device_bytes;                 /* of it; 0: not known */
    double h2d, d2h;                       /* pinned, one direction alone */
    double duplex;          /* both at once, together; 0: no limit */
    double collective;      /* bytes a device receives */
    double launch_seconds;  /* of each operation on a stream */
    double handoff_seconds; /* a stream operation behind one of the CPU */

    /* The host, which all devices share. */
    double cpu;         /* bytes of AdamW, read plus written, all workers */
    double cpu_thread;  /* of one thread alone; 0: cpu / threads */
    double cpu_seconds; /* of each piece of CPU work, to hand it out */
    double nvme_read, nvme_write;
    int threads; /* of the process; a measured one's CPU engine has one less */

    /*
     * The host's memory: copies and CPU work together.  Its rate depends on
     * which directions of copies take part: both, or one of them alone (rate
     * 0: as with both).
     */
    struct zo_dram dram, dram_h2d, dram_d2h;

    /*
     * Devices of the host backend: their memory is DRAM and their kernels run
     * on the cores that the CPU engine uses.  A prediction is then rough.
     */
    bool is_host;
};

/* All rates unknown, every yield 1. */
void zo_profile_init(struct zo_profile *profile);

/* The highest rate of the host's memory, whatever runs; 0: no limit. */
double zo_profile_dram(const struct zo_profile *profile);

/*
 * The shipped profiles: NULL behind the last.  Data-sheet values of a host
 * with that GPU; the sources stand in profile.c.
 */
const struct zo_profile *zo_profile_shipped(int index);
/* By name, or NULL. */
const struct zo_profile *zo_profile_find(const char *name);

const char *zo_profile_source_text(enum zo_profile_source source);

ZO_C_END

#endif
