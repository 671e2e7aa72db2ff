/*
 * What may not change a bit of training: delays and threads, how a list is
 * run, what is computed again, the size of exchanged pieces.
 */
#include "src/train/trainer.h"

#include <stdio.h>

#include "kernels/host/host.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

static const char bf16[] = "\"bf16\": {\"enabled\": true}";
static const char fp16[] =
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 8}";

/* Runs, and marks the case as failed if that fails. */
static bool ran(const struct tiny_knobs *knobs, struct tiny_result *result)
{
    const enum zo_status status = tiny_whole(knobs, result);

    if (status != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    return status == ZO_OK;
}

/* "type, clipping": members of the JSON; static, one at a time. */
static const char *json_of(const char *type, bool clips, const char *more)
{
    static char json[512];

    (void)snprintf(json, sizeof(json), "%s%s\"gradient_clipping\": %s%s%s",
                   type, type[0] != '\0' ? ", " : "", clips ? "0.5" : "0",
                   more[0] != '\0' ? ", " : "", more);
    return json;
}

static void test_delays_change_no_bit(void)
{
    for (int devices = 1; devices <= 4; devices++) {
        struct tiny_knobs knobs = {.devices = devices, .steps = 3};
        struct tiny_result first, again;

        knobs.json = json_of("", devices % 2 == 0, "");
        TAP_CHECK(ran(&knobs, &first));
        TAP_CHECK(ran(&knobs, &again));
        TAP_CHECK(tiny_same_bits(&first, &again));
        for (int round = 0; round < 2; round++) {
            knobs.threads = 1 + 2 * round;
            knobs.delay_us_max = 30;
            knobs.delay_seed = (uint64_t)(100 * devices + round);
            TAP_CHECK(ran(&knobs, &again));
            TAP_CHECK(tiny_same_bits(&first, &again));
        }
    }
}

/* ---- what may not change a bit ------------------------------------------- */

/* Runs of the same numbers, whatever is different between them. */
static bool same_as(const struct tiny_knobs *knobs,
                    const struct tiny_result *want, const char *what)
{
    struct tiny_result got;

    if (!ran(knobs, &got)) {
        return false;
    }
    if (!tiny_same_bits(want, &got)) {
        tap_fail(__FILE__, __LINE__, "%s gives other bits (%d devices, %s)",
                 what, knobs->devices, knobs->json);
        return false;
    }
    return true;
}

/* Poisoned too, where that is more than serial. */
static bool poisoned_agrees(struct tiny_knobs knobs,
                            const struct tiny_result *want, const char *what)
{
    knobs.poisons = true;
    return tiny_lacks_poison() != NULL || same_as(&knobs, want, what);
}

static bool modes_agree(struct tiny_knobs knobs, const char *type, bool clips)
{
    static const char *const keeps[] = {"cheap", "layer"};
    struct tiny_result want;
    char more[64];

    knobs.json =
        json_of(type, clips, "\"zero_offload\": {\"recompute\": \"none\"}");
    if (!ran(&knobs, &want)) {
        return false;
    }
    knobs.is_serial = true;
    if (!same_as(&knobs, &want, "serial mode") ||
        !poisoned_agrees(knobs, &want, "poison mode")) {
        return false;
    }
    knobs.is_serial = false;
    for (size_t i = 0; i < TAP_COUNT(keeps); i++) {
        (void)snprintf(more, sizeof(more),
                       "\"zero_offload\": {\"recompute\": \"%s\"}", keeps[i]);
        knobs.json = json_of(type, clips, more);
        if (!same_as(&knobs, &want, keeps[i]) ||
            !poisoned_agrees(knobs, &want, "poison mode, recomputing")) {
            return false;
        }
    }
    return true;
}

/* A sanitizer makes all of it slow, and finds nothing more in the last. */
#ifdef ZO_SANITIZED
#define MODE_DEVICES 2
#define MODE_STEPS   2
#else
#define MODE_DEVICES 3
#define MODE_STEPS   3
#endif

static void modes_of(const char *type)
{
    const int first = tap_samples("one device") ? MODE_DEVICES : 1;

    for (int devices = first; devices <= MODE_DEVICES; devices++) {
        for (int clips = 0; clips <= 1; clips++) {
            const struct tiny_knobs knobs = {
                .devices = devices, .accumulation = 2, .steps = MODE_STEPS};

            if (!modes_agree(knobs, type, clips != 0)) {
                return;
            }
        }
    }
}

static void test_modes_fp32(void)
{
    modes_of("");
}

static void test_modes_bf16(void)
{
    modes_of(bf16);
}

static void test_modes_fp16(void)
{
    modes_of(fp16);
}

static void test_bucket_sizes(void)
{
    static const char *const sizes[] = {"0", "1", "200", "1000", "15099494.4"};
    const char *const types[] = {"", bf16, fp16};
    struct tiny_knobs knobs = {.devices = 3, .steps = 3};
    const size_t count = tap_samples("bf16 and fp16") ? 1 : TAP_COUNT(types);
    struct tiny_result want;
    char more[96];

    for (size_t t = 0; t < count; t++) {
        knobs.json = json_of(types[t], true, "");
        TAP_CHECK(ran(&knobs, &want));
        for (size_t i = 0; i < TAP_COUNT(sizes); i++) {
            (void)snprintf(more, sizeof(more),
                           "\"zero_optimization\": {\"stage\": %d, "
                           "\"reduce_bucket_size\": %s}",
                           (int)i % 4, sizes[i]);
            knobs.json = json_of(types[t], true, more);
            TAP_CHECK(same_as(&knobs, &want, sizes[i]));
        }
    }
}

/* ---- bf16 moments -------------------------------------------------------- */

/* A run by the given instruction set; NULL: the best. */
static enum zo_status run_with(const struct tiny_knobs *knobs,
                               const struct zo_vector_ops *vector,
                               struct tiny_run *run, struct tiny_result *result)
{
    ZO_TRY(tiny_open_machine(knobs, run));
    for (int d = 0; vector != NULL && d < knobs->devices; d++) {
        zo_kernels_set_vector(run->devices.machine.kernels[d], vector);
    }
    ZO_TRY(tiny_open_trainer(run));
    ZO_TRY(tiny_start(run));
    return tiny_train(run, result);
}

static bool sets_agree(const struct tiny_knobs *knobs,
                       const struct tiny_result *want)
{
    const struct zo_vector_ops *all[3];
    const int count = zo_vector_usable(all);
    bool agree = true;

    for (int i = 0; i < count; i++) {
        struct tiny_run run;
        struct tiny_result got;

        if (run_with(knobs, all[i], &run, &got) != ZO_OK) {
            tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
            agree = false;
        } else if (!tiny_same_bits(want, &got)) {
            tap_fail(__FILE__, __LINE__, "%s gives other bits", all[i]->name);
            agree = false;
        }
        tiny_close(&run);
    }
    return agree;
}

/* Both moments of every unit take two bytes an element. */
static bool moments_are_half(const struct tiny_knobs *knobs)
{
    struct tiny_run run;
    bool are_half = tiny_open(knobs, &run) == ZO_OK;

    if (are_half) {
        const struct zo_build *build = zo_trainer_build(run.trainer);

        for (int u = 0; u < build->options.unit_count; u++) {
            const struct zo_unit_buffers *unit = zo_build_unit(build, u, 0);
            const uint64_t want = 2 * (uint64_t)build->options.units[u].elems;

            are_half = are_half &&
                       build->program.buffers[unit->exp_avg].bytes == want &&
                       build->program.buffers[unit->exp_avg_sq].bytes == want;
        }
    }
    tiny_close(&run);
    return are_half;
}

/* Steps 1 to 3 see all rows, and so do steps 22 to 24. */
static bool loss_falls(const struct tiny_result *result)
{
    double first = 0.0, last = 0.0;

    for (int i = 0; i < 3; i++) {
        first += result->step[i].loss;
        last += result->step[21 + i].loss;
    }
    return result->step_count == 24 && last < 0.9 * first;
}

static void half_moments_of(const char *type)
{
    struct tiny_knobs knobs = {
        .devices = 1, .steps = 24, .threads = 1, .learning_rate = "1e-2"};
    struct tiny_result exact, half, again;
    char json[512];

    knobs.json = type;
    TAP_CHECK(ran(&knobs, &exact));
    (void)snprintf(json, sizeof(json),
                   "%s%s\"zero_offload\": {\"moment_dtype\": \"bf16\"}", type,
                   type[0] != '\0' ? ", " : "");
    knobs.json = json;
    TAP_CHECK(moments_are_half(&knobs));
    TAP_CHECK(ran(&knobs, &half));
    TAP_CHECK(loss_falls(&exact) && loss_falls(&half));
    TAP_CHECK(exact.step[0].loss == half.step[0].loss); /* before updates */
    TAP_CHECK(exact.state != half.state);
    TAP_CHECK(tiny_loss_distance(&exact, &half) < 0.02);
    knobs.steps = 4;
    TAP_CHECK(ran(&knobs, &half));
    for (knobs.threads = 2; knobs.threads <= 3; knobs.threads++) {
        TAP_CHECK(ran(&knobs, &again));
        TAP_CHECK(tiny_same_bits(&half, &again));
    }
    TAP_CHECK(sets_agree(&knobs, &half));
    knobs.devices = 3;
    knobs.steps = 3;
    TAP_CHECK(ran(&knobs, &again));
    TAP_CHECK(again.devices_agree);
}

static void test_half_moments(void)
{
    half_moments_of(bf16);
    if (!tap_samples("fp32 and fp16")) {
        half_moments_of("");
        half_moments_of(fp16);
    }
}

static const struct tap_case cases[] = {
    {"random delays and threads change no bit, for 1 to 4 devices",
     test_delays_change_no_bit},
    {"serial, poison, overlapped and recomputing runs agree to the bit: fp32",
     test_modes_fp32},
    {"serial, poison, overlapped and recomputing runs agree to the bit: bf16",
     test_modes_bf16},
    {"serial, poison, overlapped and recomputing runs agree to the bit: fp16",
     test_modes_fp16},
    {"the size of exchanged pieces changes no bit", test_bucket_sizes},
    {"bf16 moments train, with the same bits by any threads and set",
     test_half_moments},
};

int main(void)
{
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
