/*
 * States on NVMe: a run whose optimizer, or optimizer and weights, or those of
 * some units, are there is the resident run to the bit, whatever the number
 * type, clipping, accumulation, devices and the way of the store.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/arith.h"
#include "src/train/trainer.h"
#include "tests/model_fixtures.h"
#include "tests/nvme_help.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

enum { UNITS = 4, STEPS = 3, MICROS = 3, EVAL_ROWS = 5 };

/* ---- recipes and variants ------------------------------------------------ */

#define BF16 "\"bf16\": {\"enabled\": true}"
#define FP16                                                      \
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 18, " \
    "\"hysteresis\": 1}"
#define CLIPS(limit) ", \"gradient_clipping\": " limit

static const struct recipe {
    const char *name, *json; /* members of the JSON */
} recipes[] = {
    {"fp32", "\"gradient_clipping\": 0"},
    {"fp32, clipped", "\"gradient_clipping\": 0.5"},
    {"bf16", BF16 CLIPS("0")},
    {"bf16, clipped", BF16 CLIPS("0.5")},
    {"bf16, bf16 moments",
     BF16 CLIPS("0") ", \"zero_offload\": {\"moment_dtype\": \"bf16\"}"},
    {"fp16, which overflows", FP16 CLIPS("0")},
    {"fp16, clipped", FP16 CLIPS("0.5")},
};

struct variant {
    const char *name;
    /* UNITS letters: r resident; o, b the optimizer, both on the host; on NVMe
     * O the optimizer alone, its weights on the device, N on the host, W the
     * weights alone, B both. */
    const char *homes;
    struct zo_placement placement;
    enum zo_nvme_how how;
    bool skips_verify, is_serial, poisons;
    uint32_t delay_us_max;
};

#define STREAMING .pass_micros = 1, .weight_ring = 2, .gradient_ring = 1

static const struct variant variants[] = {
    {.name = "optimizer on NVMe, weights on the device",
     .homes = "OOOO",
     .placement = {STREAMING},
     .how = ZO_NVME_POOL},
    {.name = "optimizer on NVMe, weights on the host",
     .homes = "NNNN",
     .placement = {STREAMING, .nvme_ring = 3},
     .how = ZO_NVME_URING},
    {.name = "both on NVMe",
     .homes = "NBBB",
     .placement = {.pass_micros = 2, .weight_ring = 3, .gradient_ring = 2},
     .how = ZO_NVME_UNREGISTERED},
    {.name = "both on NVMe, gradients in a ring",
     .homes = "NBBB",
     .placement = {STREAMING, .host_gradient_ring = 1,
                   .nvme_rings_gradients = true},
     .how = ZO_NVME_POOL,
     .delay_us_max = 20},
    {.name = "weights alone on NVMe",
     .homes = "bWWW",
     .placement = {STREAMING, .weight_copies = true},
     .how = ZO_NVME_POOL},
    {.name = "a budget in the middle of the units",
     .homes = "brNB",
     .placement = {.pass_micros = MICROS,
                   .weight_ring = 2,
                   .gradient_ring = 1,
                   .host_gradient_ring = 1,
                   .host_boundaries = 1},
     .how = ZO_NVME_URING,
     .delay_us_max = 20},
    {.name = "pageable, without hashes",
     .homes = "NobB",
     .placement = {STREAMING, .pageable_weights = true,
                   .pageable_optimizer = true},
     .how = ZO_NVME_POOL,
     .skips_verify = true},
    {.name = "one at a time, poison elsewhere",
     .homes = "NBBO",
     .placement = {STREAMING, .nvme_ring = 3, .nvme_piece_tiles = 1},
     .how = ZO_NVME_POOL,
     .poisons = true},
};

static struct zo_unit_homes homes_of(char letter)
{
    const enum zo_tier optimizer = strchr("ONB", letter) != NULL ? ZO_TIER_NVME
                                   : letter == 'r'               ? ZO_TIER_GPU
                                                                 : ZO_TIER_CPU;
    const enum zo_tier weights = strchr("WB", letter) != NULL   ? ZO_TIER_NVME
                                 : strchr("bN", letter) != NULL ? ZO_TIER_CPU
                                                                : ZO_TIER_GPU;

    return (struct zo_unit_homes){weights, optimizer};
}

/* ---- runs ---------------------------------------------------------------- */

/* A disk for one recipe; memory, which is faster, for others. */
static const char *folder_of(const struct recipe *recipe)
{
    const bool is_on_disk = recipe == &recipes[3];
    const char *memory = is_on_disk ? NULL : nvme_help_memory();

    return memory != NULL ? memory : nvme_help_disk();
}

static enum zo_status run(const struct recipe *recipe,
                          const struct variant *variant, int devices,
                          struct tiny_result *result)
{
    struct zo_unit_homes homes[UNITS];
    const struct zo_nvme_options nvme = {
        .directory = folder_of(recipe),
        .how = variant->how,
        .skips_verify = variant->skips_verify,
        .allows_memory = true,
        .depth = 4,
    };
    struct zo_placement placement = variant->placement;
    const struct tiny_knobs knobs = {
        .devices = devices,
        .stage = devices > 1 ? 3 : 0,
        .steps = STEPS,
        .json = recipe->json,
        .accumulation = MICROS,
        .micro_rows = 2,
        .eval_rows = EVAL_ROWS,
        .eval_every = 2,
        .placement = &placement,
        .nvme = &nvme,
        .is_serial = variant->is_serial,
        .poisons = variant->poisons,
        .cpu_threads = 2,
        .records_times = variant->how == ZO_NVME_POOL,
        .delay_us_max = variant->delay_us_max,
        .delay_seed = 5,
    };

    for (int u = 0; u < UNITS; u++) {
        homes[u] = homes_of(variant->homes[u]);
    }
    placement.homes = homes;
    return tiny_whole(&knobs, result);
}

static const struct variant resident = {
    .name = "resident",
    .homes = "rrrr",
    .placement = {.pass_micros = MICROS, .weight_ring = 2, .gradient_ring = 1}};

static bool ran(const struct recipe *recipe, const struct variant *variant,
                int devices, struct tiny_result *result)
{
    const enum zo_status status = run(recipe, variant, devices, result);

    if (status != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s, %s: %s", recipe->name, variant->name,
                 zo_err_last()->text);
    }
    return status == ZO_OK;
}

/* Serial runs have no races; a variant of each way does where runs are slow. */
static bool is_worth_running(size_t recipe, size_t variant)
{
#ifdef __SANITIZE_THREAD__
    return !variants[variant].poisons && (recipe + variant) % 4 == 0;
#else
    return variants[variant].poisons ? recipe == 3
                                     : (recipe + variant) % 2 == 0;
#endif
}

static bool same_losses(const struct tiny_result *a,
                        const struct tiny_result *b)
{
    bool is_same = a->eval_count == b->eval_count && a->eval_count > 0;

    for (int i = 0; is_same && i < a->eval_count; i++) {
        is_same = a->eval[i].loss == b->eval[i].loss;
    }
    return is_same;
}

static void check(size_t r, int devices)
{
    struct tiny_result want, got;

    if (!ran(&recipes[r], &resident, devices, &want)) {
        return;
    }
    for (size_t v = 0; v < ZO_COUNT(variants); v++) {
        if (!is_worth_running(r, v) ||
            !ran(&recipes[r], &variants[v], devices, &got)) {
            continue;
        }
        if (!tiny_same_bits(&want, &got) || !same_losses(&want, &got)) {
            tap_fail(__FILE__, __LINE__, "%s, %s: other bits", recipes[r].name,
                     variants[v].name);
        }
        TAP_CHECK(got.step[1].nvme_write_bytes > 0 &&
                  got.step[1].nvme_read_bytes > 0);
        TAP_CHECK(got.step[0].nvme_bytes > 0);
    }
}

static void test_one_device(void)
{
    for (size_t r = 0; r < ZO_COUNT(recipes); r++) {
        check(r, 1);
    }
}

static void test_two_devices(void)
{
    check(2, 2);
    check(6, 2);
}

static const struct tap_case cases[] = {
    {"states on NVMe change no bit: one device", test_one_device},
    {"states on NVMe change no bit: two devices", test_two_devices},
};

int main(void)
{
    int code;

    fx_begin();
    code = tap_run(cases, TAP_COUNT(cases));
    nvme_help_remove();
    return code;
}
