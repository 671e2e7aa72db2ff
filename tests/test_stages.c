/*
 * ZeRO stages 0 to 3 on several devices, with and without offload: for one
 * number of devices all the same bits, and the losses of one device within
 * rounding.  make check-gpu runs it on GPUs; where there are fewer than five,
 * several devices share one.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/arith.h"
#include "src/base/clock.h"
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
            .bucket_elems = w % 3 == 0   ? 0
                            : w % 3 == 1 ? 100
                                         : 700,
            .waits_for_comm = w % 4 == 3,
            .on_gpu = tiny_wants_gpu(),
            .placement = &placement,
            .cpu_threads = 2,
            .is_serial = w == 6,
            .poisons = w == 6 && !tiny_wants_gpu(),
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
    static const char *const recipes[] = {
        BF16 "\"gradient_clipping\": 0",
        BF16 "\"gradient_clipping\": 0.5",
        FP16 "\"gradient_clipping\": 0.5",
        "\"gradient_clipping\": 0",
    };
    const char *why = tiny_lacks(devices);
    bool samples;

    if (why != NULL) {
        tap_skip(why);
        return;
    }
    samples = tap_samples("three of four recipes");
    for (int r = 0; r < (int)TAP_COUNT(recipes); r++) {
        if (!samples || (devices + r) % 4 == 0) {
            check_stages(devices, 1 + r % 2, recipes[r]);
        }
    }
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

static void test_five(void)
{
    test_devices(5);
}

/* The same rows a step, in fp32: what differs is the order of sums. */
static void test_losses(void)
{
    enum { STEP_ROWS = 60 };
    struct tiny_result one;

    if (tap_skips_numbers()) {
        return;
    }
    if (tiny_lacks(1) != NULL) {
        tap_skip(tiny_lacks(1));
        return;
    }
    for (int devices = 1; devices <= 5 && tiny_lacks(devices) == NULL;
         devices++) {
        for (int stage = 0; stage <= 3; stage += 3) {
            const struct tiny_knobs knobs = {
                .devices = devices,
                .micro_rows = STEP_ROWS / devices,
                .rows = 2 * STEP_ROWS + 7, /* two steps an epoch and a rest */
                .steps = 2 * STEPS,
                .stage = stage,
                .json = "\"gradient_clipping\": 0.5",
                .on_gpu = tiny_wants_gpu(),
            };
            struct tiny_result got;

            TAP_CHECK(ran(&knobs, "losses", &got));
            if (devices == 1 && stage == 0) {
                one = got;
            }
            TAP_CHECK(got.devices_agree && got.step_count == knobs.steps);
            if (!(tiny_loss_distance(&one, &got) <= 1e-6)) {
                tap_fail(__FILE__, __LINE__,
                         "%d devices, stage %d: losses are %g off", devices,
                         stage, tiny_loss_distance(&one, &got));
            }
        }
    }
}

/*
 * What is kept between steps, in bytes a parameter: a bf16 weight is half of
 * its master, moments are fp32, and with clipping the gradient waits.
 */
static void test_memory(void)
{
    static const struct {
        int stage;
        const struct zo_unit_homes *homes;
        double whole, shared, host; /* a device has whole + shared / N */
    } rows[] = {
        {0, &resident, 2 + 2 + 8 + 2, 0, 0},
        {1, &resident, 2 + 2, 2 + 8, 0},
        {2, &resident, 2, 2 + 8 + 2, 0},
        {3, &resident, 0, 2 + 2 + 8 + 2, 0},
        {1, &optimizer, 2, 0, 2 + 2 + 8 + 2},
        {2, &optimizer, 2, 0, 2 + 2 + 8 + 2},
        {3, &optimizer, 0, 2, 2 + 2 + 8 + 2},
        {3, &both, 0, 0, 2 + 2 + 8 + 2},
    };
    static const enum zo_purpose states[] = {
        ZO_PURPOSE_WEIGHTS, ZO_PURPOSE_MASTER, ZO_PURPOSE_EXP_AVG,
        ZO_PURPOSE_EXP_AVG_SQ, ZO_PURPOSE_GRADIENT};

    for (size_t i = 0; i < ZO_COUNT(rows) * 4; i++) {
        const int devices = 2 + (int)(i % 4);
        struct zo_unit_homes homes[UNITS];
        const struct zo_placement placement = {.homes = homes,
                                               .pass_micros = 1,
                                               .weight_ring = 2,
                                               .gradient_ring = 1};
        const struct tiny_knobs knobs = {
            .devices = devices,
            .stage = rows[i / 4].stage,
            .json = BF16 "\"gradient_clipping\": 0.5",
            .placement = &placement,
        };
        double elems = 0, device = 0, host = 0;
        const struct zo_build *build;
        struct tiny_run run;

        for (int u = 0; u < UNITS; u++) {
            homes[u] = *rows[i / 4].homes;
        }
        TAP_CHECK(tiny_open(&knobs, &run) == ZO_OK);
        build = zo_trainer_build(run.trainer);
        for (int u = 0; u < UNITS; u++) {
            elems += (double)build->options.units[u].elems;
        }
        for (size_t b = 0; b < build->program.buffer_count; b++) {
            const struct zo_buffer *buffer = &build->program.buffers[b];

            for (size_t p = 0; p < ZO_COUNT(states); p++) {
                if (buffer->purpose == states[p] && buffer->schedule < 0 &&
                    buffer->tier != ZO_TIER_COPY) { /* of a save */
                    *(buffer->tier != ZO_TIER_GPU ? &host
                      : buffer->device == 0       ? &device
                                                  : &(double){0}) +=
                        (double)buffer->bytes;
                }
            }
        }
        if (device != elems * rows[i / 4].whole +
                          elems / (double)devices * rows[i / 4].shared ||
            host != elems * rows[i / 4].host) {
            tap_fail(__FILE__, __LINE__,
                     "%d devices, way %zu: %.3f bytes an element on a device, "
                     "%.3f on the host",
                     devices, i / 4, device / elems, host / elems);
        }
        tiny_close(&run);
    }
}

/* What devices have free; 0 on the host, whose memory others use. */
static void free_bytes(int devices, uint64_t *bytes)
{
    for (int d = 0; d < devices; d++) {
        struct zo_device *device = NULL;

        bytes[d] = 0;
        if (tiny_wants_gpu()) {
            TAP_CHECK(zo_device_cuda.open(d, NULL, &device) == ZO_OK);
            TAP_CHECK(zo_device_cuda.mem_free_bytes(device, &bytes[d]) ==
                      ZO_OK);
            zo_device_cuda.close(device);
        }
    }
}

/* An operation of one device fails, wherever in the list: the run ends at
 * once, with that failure, and gives back what it took. */
static void test_failures(void)
{
    enum { DEVICES = 2, SECONDS = 10 };
    uint64_t before[DEVICES], after[DEVICES];

    if (tiny_lacks(DEVICES) != NULL) {
        tap_skip(tiny_lacks(DEVICES));
        return;
    }
    for (uint64_t nth = 1; nth < 1000; nth = nth * 3 + 1) {
        const struct tiny_knobs knobs = {
            .devices = DEVICES,
            .stage = (int)(nth % 4),
            .steps = STEPS,
            .fail_at_op = nth,
            .on_gpu = tiny_wants_gpu(),
        };
        const int64_t started_ns = zo_clock_ns();
        struct tiny_result result;

        free_bytes(DEVICES, nth == 1 ? before : after);
        TAP_CHECK(tiny_whole(&knobs, &result) == ZO_E_INJECTED);
        TAP_CHECK(zo_clock_seconds(started_ns, zo_clock_ns()) < SECONDS);
    }
    free_bytes(DEVICES, after);
    for (int d = 0; d < DEVICES; d++) {
        /* The driver keeps what it has loaded, and no more each time. */
        TAP_CHECK(before[d] <= after[d] + ((uint64_t)1 << 30));
    }
}

/* overlap_comm false: what comes next on a device waits for the exchange. */
static void test_overlap(void)
{
    for (int waits = 0; waits <= 1; waits++) {
        const struct tiny_knobs knobs = {
            .devices = 2, .stage = 2, .waits_for_comm = waits != 0};
        struct tiny_run run;

        TAP_CHECK(tiny_open(&knobs, &run) == ZO_OK);
        for (int u = 0; u < UNITS; u++) {
            const struct zo_op *exchange =
                tiny_find_op(&run, 0, "gradient reduction", u, -1, 0);

            TAP_CHECK(exchange != NULL);
            for (int d = 0; d < 2; d++) {
                const struct zo_op *op =
                    tiny_find_op(&run, 0, "behind the reduction", u, d, 0);

                TAP_CHECK((op != NULL) == (waits != 0));
                TAP_CHECK(op == NULL || op == exchange + 1 + d);
            }
        }
        tiny_close(&run);
    }
}

/* ---- NUMA ---------------------------------------------------------------- */

static int place_nowhere(void *memory, size_t size_bytes, int node)
{
    (void)memory;
    (void)size_bytes;
    (void)node;
    return 0;
}

static int pin_to_all(const cpu_set_t *cores)
{
    (void)cores;
    return 0;
}

/* As zo_devices_open() finds it where each device has a node. */
static const struct zo_numa two_nodes = {.node_count = 2,
                                         .nodes = {0, 1},
                                         .device_nodes = {1, 0},
                                         .place = place_nowhere,
                                         .pin = pin_to_all};

static enum zo_status train_on_nodes(const struct tiny_knobs *knobs,
                                     const struct zo_numa *numa,
                                     struct tiny_run *run,
                                     struct tiny_result *result)
{
    ZO_TRY(tiny_open_machine(knobs, run));
    run->devices.numa = *numa;
    ZO_TRY(tiny_open_trainer(run));
    ZO_TRY(tiny_start(run));
    return tiny_train(run, result);
}

/* Updates in host memory, of what several devices share: their parts are the
 * devices', and who does which changes no bit. */
static void test_nodes(void)
{
    static const struct {
        int devices, stage;
        const struct zo_unit_homes *home;
        bool is_shared;
    } ways[] = {
        {2, 1, &optimizer, true},
        {2, 3, &both, true},
        {1, 3, &both, false},
    };

    for (size_t w = 0; w < ZO_COUNT(ways); w++) {
        const struct zo_unit_homes homes[UNITS] = {
            *ways[w].home, *ways[w].home, *ways[w].home, *ways[w].home};
        const struct zo_placement placement = {.homes = homes,
                                               .pass_micros = 1,
                                               .weight_ring = 2,
                                               .gradient_ring = 1};
        const struct tiny_knobs knobs = {.devices = ways[w].devices,
                                         .stage = ways[w].stage,
                                         .steps = STEPS,
                                         .placement = &placement,
                                         .cpu_threads = 3};
        struct tiny_result want, got;
        struct tiny_run run;
        const struct zo_op *op;

        TAP_CHECK(ran(&knobs, "one node", &want));
        TAP_CHECK_INT(train_on_nodes(&knobs, &two_nodes, &run, &got), ZO_OK);
        TAP_CHECK(tiny_same_bits(&want, &got));
        op = tiny_find_op(&run, 0, "AdamW on the host", 1, -1, 0);
        TAP_CHECK(op != NULL && op->is_shared == ways[w].is_shared);
        tiny_close(&run);
    }
}

static const struct tap_case cases[] = {
    {"one device: all stages and homes give the same bits", test_one},
    {"two devices: all stages and homes give the same bits", test_two},
    {"three devices: all stages and homes give the same bits", test_three},
    {"four devices: all stages and homes give the same bits", test_four},
    {"five devices: all stages and homes give the same bits", test_five},
    {"the losses of a step do not depend on the number of devices",
     test_losses},
    {"a stage keeps its share of states between steps", test_memory},
    {"a failure on one device ends the run on all", test_failures},
    {"overlap_comm false: backward waits for each exchange", test_overlap},
    {"updates near their devices give the same bits", test_nodes},
};

int main(void)
{
    fx_begin();
    tiny_share_gpus(5);
    return tap_run(cases, TAP_COUNT(cases));
}
