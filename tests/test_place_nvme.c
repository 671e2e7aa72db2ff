/*
 * Which states go to NVMe: as few as leave the host within its budget,
 * optimizers before weights, of each the units that forward needs last.
 * Nothing is allocated: all of it is planning.
 */
#include "offload/placement.h"
#include "src/base/arith.h"
#include "tests/fake_model.h"
#include "tests/tap.h"

enum { UNITS = 7, FIRST_LARGE = 1, LAST_LARGE = 5 };

/* A model whose large units take 1.25 GiB each, and what may be asked for. */
struct sample {
    struct fake_model model;
    struct zo_place_options options;
};

static bool begin(struct sample *sample, enum zo_tier weights,
                  enum zo_tier optimizer)
{
    const struct fake_shape shape = {
        .seed = 6,
        .units = UNITS,
        .devices = 1,
        .micros = 1,
        .placement = {.pass_micros = 1},
        .reads_rows = true,
        .type = ZO_BF16,
        .large_elems = INT64_C(64) * ZO_TILE_ELEMS,
        .large_units = LAST_LARGE - FIRST_LARGE,
        .kernel_ops = &fake_kernels,
    };
    const enum zo_status status = fake_model_build(&shape, &sample->model);

    sample->options = (struct zo_place_options){
        .build = &sample->model.build.options,
        .weights_limit = weights,
        .optimizer_limit = optimizer,
        .fills = true,
        .optimizer_share = 1.0,
        .keep_least = ZO_KEEP_ALL,
        .weight_ring_max = 2,
        .profile = zo_profile_shipped(0),
        .cpu_workers = 4,
    };
    return status == ZO_OK;
}

/* Chooses; the homes are copied out.  -1: nothing fits. */
static int64_t host_bytes_of(const struct zo_place_options *options,
                             struct zo_unit_homes *homes)
{
    struct zo_place place;
    const enum zo_status status = zo_place_choose(options, &place);
    int64_t bytes = -1;

    if (status == ZO_OK) {
        bytes = (int64_t)place.host_bytes;
    } else if (status != ZO_E_FIT) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
        return -1;
    }
    for (int u = 0; u < UNITS; u++) {
        homes[u] = place.homes[u];
    }
    zo_place_fini(&place);
    return bytes;
}

/* As large a device as keeps no large unit resident. */
static void shrink_device(struct sample *sample)
{
    struct zo_place place;

    sample->options.fills = false;
    TAP_CHECK(zo_place_choose(&sample->options, &place) == ZO_OK);
    sample->options.gpu_bytes = place.literal_gpu_bytes + 65536;
    sample->options.fills = true;
    zo_place_fini(&place);
}

static int count(const struct zo_unit_homes *homes, bool of_weights)
{
    int found = 0;

    for (int u = 0; u < UNITS; u++) {
        found +=
            (of_weights ? homes[u].weights : homes[u].optimizer) == ZO_TIER_NVME
                ? 1
                : 0;
    }
    return found;
}

/* Those on NVMe are the last of what has left the device. */
static bool are_last(const struct zo_unit_homes *homes, bool of_weights)
{
    bool is_there = false;

    for (int u = 0; u < UNITS; u++) {
        const enum zo_tier home =
            of_weights ? homes[u].weights : homes[u].optimizer;

        if (is_there && home == ZO_TIER_CPU) {
            return false;
        }
        is_there = is_there || home == ZO_TIER_NVME;
    }
    return true;
}

static void test_as_few_as_will_do(void)
{
    struct zo_unit_homes homes[UNITS];
    struct sample sample;
    int64_t bytes;
    int before = 0, weights_before = 0;

    TAP_CHECK(begin(&sample, ZO_TIER_NVME, ZO_TIER_NVME));
    shrink_device(&sample);
    bytes = host_bytes_of(&sample.options, homes);
    TAP_CHECK_INT(count(homes, false) + count(homes, true), 0);
    sample.options.host_bytes = (uint64_t)bytes;
    TAP_CHECK_INT(host_bytes_of(&sample.options, homes), bytes);
    TAP_CHECK_INT(count(homes, false), 0);
    for (int64_t budget = bytes - 1; bytes >= 0; budget -= INT64_C(128) << 20) {
        sample.options.host_bytes = (uint64_t)budget;
        bytes = host_bytes_of(&sample.options, homes);
        if (bytes < 0) {
            break;
        }
        TAP_CHECK(bytes <= budget);
        TAP_CHECK(count(homes, false) >= before &&
                  count(homes, true) >= weights_before);
        TAP_CHECK(are_last(homes, false) && are_last(homes, true));
        TAP_CHECK(homes[0].weights != ZO_TIER_NVME); /* read by rows */
        if (count(homes, true) > 0) { /* optimizers went before */
            TAP_CHECK_INT(homes[FIRST_LARGE].optimizer, ZO_TIER_NVME);
        }
        before = count(homes, false);
        weights_before = count(homes, true);
    }
    TAP_CHECK(before >= LAST_LARGE && weights_before >= 1);
    zo_build_fini(&sample.model.build);
}

static void test_limits(void)
{
    struct zo_unit_homes homes[UNITS];
    struct sample sample;
    int64_t bytes;

    TAP_CHECK(begin(&sample, ZO_TIER_CPU, ZO_TIER_NVME));
    shrink_device(&sample);
    bytes = host_bytes_of(&sample.options, homes);
    sample.options.host_bytes = (uint64_t)bytes - ((uint64_t)600 << 20);
    TAP_CHECK(host_bytes_of(&sample.options, homes) >= 0);
    TAP_CHECK(count(homes, false) > 0);
    TAP_CHECK_INT(count(homes, true), 0);
    sample.options.nvme_bytes = 4096;
    TAP_CHECK_INT(host_bytes_of(&sample.options, homes), -1);
    sample.options.nvme_bytes = 0;
    sample.options.optimizer_limit = ZO_TIER_CPU;
    TAP_CHECK_INT(host_bytes_of(&sample.options, homes), -1);
    zo_build_fini(&sample.model.build);
}

/* Without filling up all is where the configuration says. */
static void test_literal(void)
{
    struct zo_unit_homes homes[UNITS];
    struct sample sample;

    TAP_CHECK(begin(&sample, ZO_TIER_NVME, ZO_TIER_NVME));
    sample.options.fills = false;
    TAP_CHECK(host_bytes_of(&sample.options, homes) >= 0);
    TAP_CHECK_INT(count(homes, false), UNITS);
    TAP_CHECK_INT(count(homes, true), UNITS - 1);
    TAP_CHECK_INT(homes[0].weights, ZO_TIER_CPU);
    zo_build_fini(&sample.model.build);
}

/* That something fits is found without a choice. */
static void test_fits(void)
{
    struct zo_unit_homes homes[UNITS];
    struct sample sample;
    bool fits = false;
    int64_t bytes;

    TAP_CHECK(begin(&sample, ZO_TIER_NVME, ZO_TIER_NVME));
    shrink_device(&sample);
    bytes = host_bytes_of(&sample.options, homes);
    sample.options.host_bytes = (uint64_t)bytes - ((uint64_t)600 << 20);
    TAP_CHECK(zo_place_fits(&sample.options, &fits) == ZO_OK && fits);
    sample.options.host_bytes = 4096;
    TAP_CHECK(zo_place_fits(&sample.options, &fits) == ZO_OK && !fits);
    zo_build_fini(&sample.model.build);
}

/* What a run that does not fit needs of NVMe is enough, and no less is. */
static void test_need(void)
{
    struct zo_unit_homes homes[UNITS];
    struct zo_place place;
    struct sample sample;
    int64_t bytes;

    TAP_CHECK(begin(&sample, ZO_TIER_NVME, ZO_TIER_NVME));
    shrink_device(&sample);
    bytes = host_bytes_of(&sample.options, homes);
    sample.options.host_bytes = (uint64_t)bytes - ((uint64_t)600 << 20);
    sample.options.nvme_bytes = 4096;
    TAP_CHECK(zo_place_choose(&sample.options, &place) == ZO_E_FIT);
    TAP_CHECK(place.gpu_bytes <= sample.options.gpu_bytes &&
              place.host_bytes <= sample.options.host_bytes);
    sample.options.nvme_bytes = place.nvme_bytes;
    zo_place_fini(&place);
    TAP_CHECK(host_bytes_of(&sample.options, homes) >= 0);
    TAP_CHECK(count(homes, false) < LAST_LARGE);
    sample.options.nvme_bytes--;
    TAP_CHECK_INT(host_bytes_of(&sample.options, homes), -1);
    zo_build_fini(&sample.model.build);
}

static const struct tap_case cases[] = {
    {"as few states go to NVMe as the host has no room for, in order",
     test_as_few_as_will_do},
    {"limits and budgets hold", test_limits},
    {"without filling up all is on NVMe but rows", test_literal},
    {"what fits with NVMe fits", test_fits},
    {"what is needed of NVMe is enough, and no less is", test_need},
};

int main(void)
{
    return tap_run(cases, TAP_COUNT(cases));
}
