/*
 * ZeRO stages 0 to 3 on several devices, with and without offload: for one
 * number of devices all the same bits, and the losses of one device within
 * rounding.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/arith.h"
#include "src/train/trainer.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

enum { UNITS = 4, STEPS = 4 };

static const struct zo_unit_homes resident = {ZO_TIER_GPU, ZO_TIER_GPU};
static const struct zo_unit_homes optimizer = {ZO_TIER_GPU, ZO_TIER_CPU};
static const struct zo_unit_homes both = {ZO_TIER_CPU, ZO_TIER_CPU};

static bool ran(const struct tiny_knobs *knobs, const char *what,
                struct tiny_result *result)
{
    const enum zo_status status = tiny_whole(knobs, result);

    if (status != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s: %s", what, zo_err_last()->text);
    }
    return status == ZO_OK;
}

/* Every stage, with every home that it allows. */
static void check_stages(int devices, int accumulation, const char *json)
{
    static const struct {
        int stage;
        const char *name;
        const struct zo_unit_homes *first, *second;
    } ways[] = {
        {0, "stage 0", &resident, &resident},
        {1, "stage 1", &resident, &resident},
        {1, "stage 1, optimizer", &optimizer, &optimizer},
        {2, "stage 2", &resident, &resident},
        {2, "stage 2, half of the optimizer", &optimizer, &resident},
        {3, "stage 3", &resident, &resident},
        {3, "stage 3, both", &both, &both},
        {3, "stage 3, mixed", &both, &resident},
        {3, "stage 3, optimizer", &optimizer, &both},
    };
    struct tiny_result want;

    for (size_t w = 0; w < ZO_COUNT(ways); w++) {
        struct zo_unit_homes homes[UNITS];
        const struct zo_placement placement = {
            .homes = homes,
            .pass_micros = 1 + (int)(w % 2) * (accumulation - 1),
            .keep = (enum zo_keep)(w % 3),
            .weight_ring = 2 + (int)(w % 3),
            .gradient_ring = 1 + (int)(w % 2),
            .weight_copies = w % 2 == 0,
            .host_boundaries = (int)(w % 3),
        };
        const struct tiny_knobs knobs = {
            .devices = devices,
            .accumulation = accumulation,
            .steps = STEPS,
            .json = json,
            .stage = ways[w].stage,
            .placement = &placement,
            .cpu_threads = 2,
            .is_serial = w == 6,
            .poisons = w == 6,
        };
        struct tiny_result got;

        for (int u = 0; u < UNITS; u++) {
            homes[u] = u % 2 == 0 ? *ways[w].first : *ways[w].second;
        }
        TAP_CHECK(ran(&knobs, ways[w].name, &got));
        if (w == 0) {
            want = got;
        } else if (!tiny_same_bits(&want, &got)) {
            tap_fail(__FILE__, __LINE__, "%d devices, %s, %s: other bits",
                     devices, json, ways[w].name);
        }
    }
}

#define BF16 "\"bf16\": {\"enabled\": true}, "
#define FP16 "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 8}, "

static void test_devices(int devices)
{
    check_stages(devices, 1, BF16 "\"gradient_clipping\": 0");
    check_stages(devices, 2, BF16 "\"gradient_clipping\": 0.5");
    check_stages(devices, 1, FP16 "\"gradient_clipping\": 0.5");
    check_stages(devices, 2, "\"gradient_clipping\": 0");
}

static void test_one(void)
{
    test_devices(1);
}

static void test_two(void)
{
    test_devices(2);
}

static void test_three(void)
{
    test_devices(3);
}

static void test_four(void)
{
    test_devices(4);
}

static const struct tap_case cases[] = {
    {"one device: all stages and homes give the same bits", test_one},
    {"two devices: all stages and homes give the same bits", test_two},
    {"three devices: all stages and homes give the same bits", test_three},
    {"four devices: all stages and homes give the same bits", test_four},
};

int main(void)
{
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
