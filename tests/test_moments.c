/*
 * Moments in bf16: a run learns with them, and neither the placement nor the
 * number of threads changes a bit.
 */
#include "src/base/arith.h"
#include "src/train/trainer.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

/* A sanitizer makes each step slow: bits then of fewer steps, and races, which
 * depend on where and when, in one recipe of each kind. */
#ifdef ZO_SANITIZED
enum { BITS_STEPS = 4 };
#else
enum { BITS_STEPS = 30 };
#endif
#ifdef __SANITIZE_THREAD__
enum { RECIPES = 2 };
#else
enum { RECIPES = 4 };
#endif
enum { UNITS_MAX = 8, STEPS = 30, EPOCH = 3 };

#define MOMENTS "\"zero_offload\": {\"moment_dtype\": \"bf16\"}"

static const char *const recipes[4] = {
    "\"bf16\": {\"enabled\": true}, " MOMENTS,
    "\"bf16\": {\"enabled\": true}, \"gradient_clipping\": 0.5, " MOMENTS,
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 12}, " MOMENTS,
    MOMENTS,
};

static struct tiny_knobs knobs_of(const char *json)
{
    return (struct tiny_knobs){
        .steps = STEPS,
        .json = json,
        .accumulation = 2,
        .learning_rate = "1e-2",
        .cpu_threads = 1,
    };
}

static bool ran(const struct tiny_knobs *knobs, struct tiny_result *result)
{
    if (tiny_whole(knobs, result) == ZO_OK) {
        return true;
    }
    tap_fail(__FILE__, __LINE__, "%s: %s", knobs->json, zo_err_last()->text);
    return false;
}

/* Of an epoch that begins with that step. */
static double mean_loss(const struct tiny_result *result, int first)
{
    double sum = 0.0;

    for (int i = 0; i < EPOCH; i++) {
        sum += result->step[first + i].loss;
    }
    return sum / EPOCH;
}

static void test_learns(void)
{
    for (size_t r = 0; r < RECIPES; r++) {
        const struct tiny_knobs knobs = knobs_of(recipes[r]);
        struct tiny_result result;
        double first, last;

        if (!ran(&knobs, &result)) {
            return;
        }
        first = mean_loss(&result, 0);
        last = mean_loss(&result, STEPS - EPOCH);
        if (!(last < 0.7 * first)) { /* nor NaN */
            tap_fail(__FILE__, __LINE__, "%s: loss %g, then %g", recipes[r],
                     first, last);
        }
    }
}

static const struct variant {
    const char *name;
    struct zo_unit_homes first, second; /* of even and of odd units */
    struct zo_placement placement;
    int cpu_threads, threads;
} variants[] = {
    {"optimizer on the host",
     {ZO_TIER_GPU, ZO_TIER_CPU},
     {ZO_TIER_GPU, ZO_TIER_CPU},
     {.pass_micros = 1, .gradient_ring = 1},
     1,
     1},
    {"everything on the host, three threads",
     {ZO_TIER_CPU, ZO_TIER_CPU},
     {ZO_TIER_CPU, ZO_TIER_CPU},
     {.pass_micros = 2, .weight_ring = 2, .gradient_ring = 2},
     3,
     3},
    {"every other unit, pageable",
     {ZO_TIER_CPU, ZO_TIER_CPU},
     {ZO_TIER_GPU, ZO_TIER_GPU},
     {.pass_micros = 1,
      .weight_ring = 3,
      .gradient_ring = 1,
      .pageable_weights = true,
      .pageable_optimizer = true},
     2,
     2},
    {"resident, four threads",
     {ZO_TIER_GPU, ZO_TIER_GPU},
     {ZO_TIER_GPU, ZO_TIER_GPU},
     {.pass_micros = 1},
     4,
     4},
};

static void check_variant(const struct variant *variant, const char *json,
                          const struct tiny_result *want)
{
    struct zo_unit_homes homes[UNITS_MAX];
    struct zo_placement placement = variant->placement;
    struct tiny_knobs knobs = knobs_of(json);
    struct tiny_result got;

    for (int u = 0; u < UNITS_MAX; u++) {
        homes[u] = u % 2 == 0 ? variant->first : variant->second;
    }
    placement.homes = homes;
    knobs.placement = &placement;
    knobs.steps = BITS_STEPS;
    knobs.cpu_threads = variant->cpu_threads;
    knobs.threads = variant->threads;
    if (ran(&knobs, &got) && !tiny_same_bits(want, &got)) {
        tap_fail(__FILE__, __LINE__, "%s, %s: other bits", json, variant->name);
    }
}

static void test_same_bits(void)
{
    for (size_t r = 0; r < RECIPES; r++) {
        const struct zo_placement placement = {.pass_micros = 1};
        struct tiny_knobs knobs = knobs_of(recipes[r]);
        struct tiny_result want;

        knobs.placement = &placement;
        knobs.steps = BITS_STEPS;
        if (!ran(&knobs, &want)) {
            return;
        }
        for (size_t v = 0; v < ZO_COUNT(variants); v++) {
            check_variant(&variants[v], recipes[r], &want);
        }
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"the loss falls with moments in bf16", test_learns},
        {"no placement and no thread changes a bit", test_same_bits},
    };

    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
