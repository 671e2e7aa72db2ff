/*
 * Where states live, how deep rings are, how many micro batches make a pass,
 * which instructions update on the host: none of it may change a bit.
 */
#include <stdio.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/train/trainer.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

enum { UNITS_MAX = 16, STEPS = 20 };

static const struct zo_unit_homes resident = {ZO_TIER_GPU, ZO_TIER_GPU};
static const struct zo_unit_homes optimizer = {ZO_TIER_GPU, ZO_TIER_CPU};
static const struct zo_unit_homes both = {ZO_TIER_CPU, ZO_TIER_CPU};

/* The recipes, as members of the JSON. */
static const struct recipe {
    const char *name, *json;
    bool overflows; /* a step is skipped */
} recipes[] = {
    {"bf16", "\"bf16\": {\"enabled\": true}, \"gradient_clipping\": 0", false},
    {"bf16, clipped",
     "\"bf16\": {\"enabled\": true}, \"gradient_clipping\": 0.5", false},
    {"bf16, checked",
     "\"bf16\": {\"enabled\": true, \"check_grad_overflow\": true}, "
     "\"gradient_clipping\": 0",
     false},
    {"fp16",
     "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 24, "
     "\"hysteresis\": 1}, \"gradient_clipping\": 0",
     true},
    {"fp16, clipped",
     "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 24, "
     "\"hysteresis\": 1}, \"gradient_clipping\": 0.5",
     true},
    {"fp32", "\"gradient_clipping\": 0", false},
};

/* A placement with its homes. */
struct variant {
    const char *name;
    struct zo_unit_homes first, second; /* of even and of odd units */
    struct zo_placement placement;
    enum zo_simd simd;
    int micros; /* of a step [1] */
    bool is_serial, poisons;
};

static const struct variant variants[] = {
    {"resident", resident, resident, {.pass_micros = 1}, 0, 1, false, false},
    {"optimizer on the host",
     optimizer,
     optimizer,
     {.pass_micros = 1, .gradient_ring = 1},
     0,
     1,
     false,
     false},
};

static bool ran(const struct recipe *recipe, const struct variant *variant,
                struct tiny_result *result)
{
    struct zo_unit_homes homes[UNITS_MAX];
    struct zo_placement placement = variant->placement;
    struct tiny_knobs knobs = {
        .steps = STEPS,
        .json = recipe->json,
        .accumulation = variant->micros,
        .placement = &placement,
        .simd = variant->simd,
        .is_serial = variant->is_serial,
        .poisons = variant->poisons,
        .cpu_threads = 2,
    };
    enum zo_status status;

    for (int u = 0; u < UNITS_MAX; u++) {
        homes[u] = u % 2 == 0 ? variant->first : variant->second;
    }
    placement.homes = homes;
    status = tiny_whole(&knobs, result);
    if (status != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s, %s: %s", recipe->name, variant->name,
                 zo_err_last()->text);
    }
    return status == ZO_OK;
}

static void check(const struct recipe *recipe, const struct variant *variant)
{
    struct variant plain = variants[0];
    struct tiny_result want, got;

    plain.micros = variant->micros;
    plain.placement.pass_micros = 1;
    if (!ran(recipe, &plain, &want) || !ran(recipe, variant, &got)) {
        return;
    }
    if (!tiny_same_bits(&want, &got)) {
        tap_fail(__FILE__, __LINE__, "%s, %s: other bits", recipe->name,
                 variant->name);
    }
    TAP_CHECK((want.step[STEPS - 1].skipped_steps > 0) == recipe->overflows);
}

static void test_all(void)
{
    static const struct zo_unit_homes mixes[][2] = {{optimizer, optimizer},
                                                    {both, both},
                                                    {resident, both},
                                                    {both, resident},
                                                    {optimizer, both}};
    for (size_t r = 0; r < ZO_COUNT(recipes); r++) {
        for (size_t m = 0; m < ZO_COUNT(mixes); m++) {
            for (int ring = 2; ring <= 5; ring++) {
                struct variant v = {
                    .name = "mix",
                    .first = mixes[m][0],
                    .second = mixes[m][1],
                    .placement =
                        {
                            .pass_micros = ring - 1 > 3 ? 3 : ring - 1,
                            .weight_ring = ring,
                            .gradient_ring = ring / 2,
                            .keep = (enum zo_keep)(ring % 3),
                            .host_gradient_ring = 0,
                            .host_boundaries = ring - 2,
                            .weight_copies = ring % 2,
                            .waits_to_fetch = ring == 5,
                        },
                    .micros = 3,
                    .simd = (enum zo_simd)0,
                    .is_serial = ring == 4,
                    .poisons = ring == 4};
                if (strstr(recipes[r].name, ",") == NULL &&
                    strstr(recipes[r].name, "fp16") == NULL)
                    v.placement.host_gradient_ring = ring - 2;
                check(&recipes[r], &v);
            }
        }
    }
}

static const struct tap_case cases[] = {
    {"no placement changes a bit", test_all},
};

int main(void)
{
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
