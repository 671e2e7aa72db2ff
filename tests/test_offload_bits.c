/*
 * Where states live, how deep rings are, how many micro batches make a pass,
 * what is kept and which instructions update on the host: none of it may
 * change a bit of training.
 *
 * Method: a recipe of numbers (type, clipping, overflow) runs once with all of
 * its states on the device.  Then each variant changes one thing about where
 * and when, from a run that streams everything; losses, norms and states must
 * be the same to the bit.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/host/vector.h"
#include "src/base/arith.h"
#include "src/train/trainer.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

/* A sanitizer makes each step slow, and finds nothing more in the last. */
#ifdef ZO_SANITIZED
enum { STEPS = 4 };
#else
enum { STEPS = 20 };
#endif
enum { UNITS = 4, MICROS = 3, LAYER = 1, BAD_STEP = 3 };

/* ---- recipes ------------------------------------------------------------- */

#define BF16 "\"bf16\": {\"enabled\": true}"
#define BF16_CHECKED \
    "\"bf16\": {\"enabled\": true, \"check_grad_overflow\": true}"
#define FP16(power)                                                 \
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": " power \
    ", \"hysteresis\": 1}"
#define CLIPS(limit) ", \"gradient_clipping\": " limit

struct recipe {
    const char *name, *json; /* members of the JSON */
    int bad_step;            /* whose gradient has a NaN; 0: none has */
    bool overflows;          /* on its own, in the first steps */
};

static const struct recipe fp32 = {.name = "fp32",
                                   .json = "\"gradient_clipping\": 0"};
static const struct recipe fp32_clipped = {
    .name = "fp32, clipped", .json = "\"gradient_clipping\": 0.5"};
static const struct recipe bf16 = {.name = "bf16", .json = BF16 CLIPS("0")};
static const struct recipe bf16_clipped = {.name = "bf16, clipped",
                                           .json = BF16 CLIPS("0.5")};
static const struct recipe bf16_checked = {.name = "bf16, checked",
                                           .json = BF16_CHECKED CLIPS("0"),
                                           .bad_step = BAD_STEP};
static const struct recipe fp16 = {
    .name = "fp16", .json = FP16("18") CLIPS("0"), .overflows = true};
static const struct recipe fp16_clipped = {.name = "fp16, clipped",
                                           .json = FP16("18") CLIPS("0.5"),
                                           .overflows = true};
static const struct recipe fp16_late = {.name = "fp16, a late overflow",
                                        .json = FP16("8") CLIPS("0.5"),
                                        .bad_step = BAD_STEP};

/* ---- variants ------------------------------------------------------------ */

/* Homes of a unit: r resident, o its optimizer on the host, b both there. */
static struct zo_unit_homes homes_of(char letter)
{
    return (struct zo_unit_homes){letter == 'b' ? ZO_TIER_CPU : ZO_TIER_GPU,
                                  letter == 'r' ? ZO_TIER_GPU : ZO_TIER_CPU};
}

struct variant {
    const char *name;
    const char *homes; /* UNITS letters */
    struct zo_placement placement;
    enum zo_simd simd;
    bool is_serial, poisons;
    int cpu_threads;
    uint32_t delay_us_max;
};

static const struct variant resident = {
    .name = "resident", .homes = "rrrr", .placement = {.pass_micros = MICROS}};

/* All units stream; one micro batch a pass. */
#define STREAMING .pass_micros = 1, .weight_ring = 2, .gradient_ring = 1

static const struct variant variants[] = {
    {.name = "optimizer on the host",
     .homes = "oooo",
     .placement = {STREAMING}},
    {.name = "both on the host", .homes = "bbbb", .placement = {STREAMING}},
    {.name = "the first half resident",
     .homes = "rrbb",
     .placement = {STREAMING}},
    {.name = "every other unit resident",
     .homes = "rbrb",
     .placement = {.pass_micros = 2, .weight_ring = 2, .gradient_ring = 1}},
    {.name = "a home of each kind", .homes = "borb", .placement = {STREAMING}},
    {.name = "a ring of 3, host gradients in a ring",
     .homes = "bbbb",
     .placement = {.pass_micros = 2,
                   .weight_ring = 3,
                   .gradient_ring = 2,
                   .host_gradient_ring = 1,
                   .weight_copies = true}},
    {.name = "a ring of 5, host gradients in a deeper ring",
     .homes = "bbbb",
     .placement = {.pass_micros = MICROS,
                   .weight_ring = 5,
                   .gradient_ring = 3,
                   .host_gradient_ring = 3}},
    {.name = "no overlap",
     .homes = "bbbb",
     .placement = {STREAMING},
     .is_serial = true},
    {.name = "poison",
     .homes = "borb",
     .placement = {STREAMING, .host_boundaries = 2},
     .poisons = true},
    {.name = "norms recomputed, boundaries on the host",
     .homes = "bbbb",
     .placement = {.pass_micros = 2,
                   .weight_ring = 3,
                   .gradient_ring = 1,
                   .keep = ZO_KEEP_COSTLY,
                   .host_boundaries = 1}},
    {.name = "layers recomputed, boundaries on the host",
     .homes = "oooo",
     .placement = {STREAMING, .keep = ZO_KEEP_INPUT, .host_boundaries = UNITS}},
    {.name = "layers recomputed, all micro batches a pass",
     .homes = "bbbb",
     .placement = {.pass_micros = MICROS,
                   .weight_ring = 2,
                   .gradient_ring = 1,
                   .keep = ZO_KEEP_INPUT,
                   .weight_copies = true}},
    {.name = "fetched late and again",
     .homes = "bbbb",
     .placement = {.pass_micros = MICROS,
                   .weight_ring = 5,
                   .gradient_ring = 1,
                   .waits_to_fetch = true,
                   .reuse_max_elems = 1}},
    {.name = "one worker",
     .homes = "bbbb",
     .placement = {STREAMING, .host_gradient_ring = 1},
     .cpu_threads = 1,
     .delay_us_max = 20},
    {.name = "five workers",
     .homes = "bobo",
     .placement = {STREAMING, .host_gradient_ring = 2},
     .cpu_threads = 5,
     .delay_us_max = 20},
};

/* ---- runs ---------------------------------------------------------------- */

/* One element of layer 0's gradient becomes a NaN in one step. */
static struct {
    zo_op_fn cast; /* what the operation does of its own */
    int step;      /* steps seen */
    int bad_step;
} spoilt;

static enum zo_status cast_and_spoil(const struct zo_op_call *call)
{
    ZO_TRY(spoilt.cast(call));
    return ++spoilt.step != spoilt.bad_step
               ? ZO_OK
               : call->machine->device_ops->fill(call->streams[0], call->at[0],
                                                 0xff, 4);
}

static void plant_nan(struct tiny_run *run, int bad_step)
{
    struct zo_op *op = tiny_find_op(run, 0, "gradient cast", LAYER, 0, 0);

    ZO_ASSERT(op != NULL);
    spoilt.cast = op->run;
    spoilt.step = 0;
    spoilt.bad_step = bad_step;
    op->run = cast_and_spoil;
}

static enum zo_status train(struct tiny_run *run,
                            const struct tiny_knobs *knobs, int bad_step,
                            struct tiny_result *result)
{
    ZO_TRY(tiny_open(knobs, run));
    ZO_ASSERT(zo_trainer_build(run->trainer)->options.unit_count == UNITS);
    if (bad_step > 0) {
        plant_nan(run, bad_step);
    }
    ZO_TRY(tiny_start(run));
    return tiny_train(run, result);
}

static enum zo_status run_variant(const struct recipe *recipe,
                                  const struct variant *variant,
                                  struct tiny_result *result)
{
    struct zo_unit_homes homes[UNITS];
    struct zo_placement placement = variant->placement;
    const struct tiny_knobs knobs = {
        .steps = STEPS,
        .json = recipe->json,
        .accumulation = MICROS,
        .placement = &placement,
        .simd = variant->simd,
        .is_serial = variant->is_serial,
        .poisons = variant->poisons,
        .cpu_threads = variant->cpu_threads > 0 ? variant->cpu_threads : 2,
        .delay_us_max = variant->delay_us_max,
        .delay_seed = 5,
        .on_gpu = tiny_wants_gpu(),
    };
    struct tiny_run run;
    enum zo_status status;

    for (int u = 0; u < UNITS; u++) {
        homes[u] = homes_of(variant->homes[u]);
    }
    placement.homes = homes;
    status = train(&run, &knobs, recipe->bad_step, result);
    tiny_close(&run);
    return status;
}

/* Runs, and marks the case as failed if that fails. */
static bool ran(const struct recipe *recipe, const struct variant *variant,
                struct tiny_result *result)
{
    const enum zo_status status = run_variant(recipe, variant, result);

    if (status != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s, %s: %s", recipe->name, variant->name,
                 zo_err_last()->text);
    }
    return status == ZO_OK;
}

/* The resident run has the overflows that its recipe wants. */
static bool is_as_wanted(const struct recipe *recipe,
                         const struct tiny_result *result)
{
    const bool starts_bad = result->step[0].overflow;
    int bad = 0;

    for (int i = 0; i < result->step_count; i++) {
        bad += result->step[i].overflow;
    }
    return result->step_count == STEPS && starts_bad == recipe->overflows &&
           (recipe->overflows || bad == (recipe->bad_step > 0)) &&
           (recipe->bad_step == 0 ||
            result->step[recipe->bad_step - 1].overflow) &&
           !result->step[STEPS - 1].overflow;
}

/* All that a run says, and leaves. */
static bool same_bits(const struct tiny_result *a, const struct tiny_result *b)
{
    for (int i = 0; i < a->step_count && i < b->step_count; i++) {
        if (a->step[i].overflow != b->step[i].overflow ||
            a->step[i].loss_scale != b->step[i].loss_scale ||
            a->step[i].skipped_steps != b->step[i].skipped_steps) {
            return false;
        }
    }
    return tiny_same_bits(a, b);
}

/* One thread at a time has no races; poison is for host devices. */
static bool is_worth_running(const struct variant *variant)
{
    if (tiny_wants_gpu() && variant->poisons) {
        return false;
    }
#ifdef __SANITIZE_THREAD__
    return !variant->is_serial && !variant->poisons;
#else
    (void)variant;
    return true;
#endif
}

static void check(const struct recipe *recipe, const struct tiny_result *want,
                  const struct variant *variant)
{
    struct tiny_result got;

    if (ran(recipe, variant, &got) && !same_bits(want, &got)) {
        tap_fail(__FILE__, __LINE__, "%s, %s: other bits", recipe->name,
                 variant->name);
    }
}

/* Races depend on where and when, not on numbers: where each run takes long,
 * one recipe of each kind sees all variants. */
static size_t stride_of(const struct recipe *recipe)
{
#ifdef __SANITIZE_THREAD__
    return recipe == &bf16 || recipe == &bf16_clipped ? 1 : 4;
#else
    (void)recipe;
    return 1;
#endif
}

static void check_all(const struct recipe *recipe)
{
    struct tiny_result want;

    TAP_CHECK(ran(recipe, &resident, &want));
    TAP_CHECK(is_as_wanted(recipe, &want));
    for (size_t v = 0; v < ZO_COUNT(variants); v += stride_of(recipe)) {
        if (is_worth_running(&variants[v])) {
            check(recipe, &want, &variants[v]);
        }
    }
}

static void test_fp32(void)
{
    check_all(&fp32);
}

static void test_fp32_clipped(void)
{
    check_all(&fp32_clipped);
}

static void test_bf16(void)
{
    check_all(&bf16);
}

static void test_bf16_clipped(void)
{
    check_all(&bf16_clipped);
}

static void test_bf16_checked(void)
{
    check_all(&bf16_checked);
}

static void test_fp16(void)
{
    check_all(&fp16);
}

static void test_fp16_clipped(void)
{
    check_all(&fp16_clipped);
}

static void test_fp16_late(void)
{
    check_all(&fp16_late);
}

/* ---- instruction sets ---------------------------------------------------- */

static void check_simd(enum zo_simd simd, int sets)
{
    static const struct recipe *const recipes[] = {&fp32, &bf16_clipped,
                                                   &fp16_clipped};
    const struct zo_vector_ops *usable[3];
    const struct variant variant = {.name = "an instruction set",
                                    .homes = "bbob",
                                    .placement = {STREAMING},
                                    .simd = simd};

    if (tap_skips_numbers()) {
        return;
    }
    if (zo_vector_usable(usable) < sets) {
        tap_skip("this processor does not run it");
        return;
    }
    for (size_t r = 0; r < ZO_COUNT(recipes); r++) {
        struct tiny_result want;

        TAP_CHECK(ran(recipes[r], &resident, &want));
        check(recipes[r], &want, &variant);
    }
}

static void test_base(void)
{
    check_simd(ZO_SIMD_BASE, 1);
}

static void test_avx2(void)
{
    check_simd(ZO_SIMD_AVX2, 2);
}

static void test_avx512(void)
{
    check_simd(ZO_SIMD_AVX512, 3);
}

/* ---- runs that stop ------------------------------------------------------ */

/* A gradient that is not finite, and nobody checks: the same sentence. */
static void test_stops(void)
{
    static const struct recipe recipe = {
        .name = "bf16", .json = BF16 CLIPS("0"), .bad_step = BAD_STEP};
    const size_t step = tap_samples("two of three placements") ? 3 : 1;
    char text[sizeof(zo_err_last()->text)];
    struct tiny_result result;

    TAP_CHECK_INT(run_variant(&recipe, &resident, &result), ZO_E_NUMERIC);
    (void)snprintf(text, sizeof(text), "%s", zo_err_last()->text);
    TAP_CHECK(strstr(text, "step 3:") != NULL);
    for (size_t v = 0; v < ZO_COUNT(variants); v += step) {
        if (!is_worth_running(&variants[v])) {
            continue;
        }
        TAP_CHECK_INT(run_variant(&recipe, &variants[v], &result),
                      ZO_E_NUMERIC);
        TAP_CHECK(strcmp(zo_err_last()->text, text) == 0);
        /* A serial run comes to step 3 before anybody is told of step 2. */
        TAP_CHECK_INT(result.step_count,
                      BAD_STEP - 1 -
                          (variants[v].is_serial || variants[v].poisons));
    }
}

/* Numbers that should differ do: the comparison sees a rounding. */
static void test_sees_differences(void)
{
    struct tiny_result a, b;

    TAP_CHECK(ran(&bf16, &variants[1], &a));
    TAP_CHECK(ran(&bf16_clipped, &variants[1], &b));
    TAP_CHECK(!same_bits(&a, &b));
    b = a;
    b.step[STEPS - 1].loss = nextafter(a.step[STEPS - 1].loss, 0.0);
    TAP_CHECK(same_bits(&a, &a) && !same_bits(&a, &b));
}

static const struct tap_case cases[] = {
    {"no placement changes a bit: fp32", test_fp32},
    {"no placement changes a bit: fp32, clipped", test_fp32_clipped},
    {"no placement changes a bit: bf16", test_bf16},
    {"no placement changes a bit: bf16, clipped", test_bf16_clipped},
    {"no placement changes a bit: bf16, a bad step skipped", test_bf16_checked},
    {"no placement changes a bit: fp16, which overflows", test_fp16},
    {"no placement changes a bit: fp16, clipped", test_fp16_clipped},
    {"no placement changes a bit: fp16, a later step skipped", test_fp16_late},
    {"no instruction set changes a bit: base", test_base},
    {"no instruction set changes a bit: AVX2", test_avx2},
    {"no instruction set changes a bit: AVX-512", test_avx512},
    {"a bad gradient stops the run in the same step, wherever states live",
     test_stops},
    {"the comparison sees a difference", test_sees_differences},
};

int main(void)
{
    if (tiny_lacks(1) != NULL) {
        printf("1..0 # SKIP %s\n", tiny_lacks(1));
        return 0;
    }
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
