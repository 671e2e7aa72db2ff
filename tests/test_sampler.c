/* Which token follows: against the definition, in plain loops. */
#include "src/train/sampler.h"

#include <math.h>

#include "src/base/random.h"
#include "tests/tap.h"

#define VOCAB 50
#define DRAWS 20000

static int32_t pick(const struct zo_sampler_options *options,
                    const float *logits, uint64_t answer, uint64_t token)
{
    struct zo_sampler *sampler = NULL;
    int32_t id = -1;

    if (zo_sampler_open(options, &sampler) != ZO_OK ||
        zo_sampler_pick(sampler, logits, answer, token, &id) != ZO_OK) {
        id = -1;
    }
    zo_sampler_close(sampler);
    return id;
}

static void fill(float *logits)
{
    for (int v = 0; v < VOCAB; v++) {
        logits[v] = (float)zo_random_normal(7, (uint64_t)v) * 2.0f;
    }
}

static void test_greedy(void)
{
    const struct zo_sampler_options greedy = {.vocab = 4};
    const float first[] = {1, 3, 3, 2}, last[] = {-4, -3, -2, -1};

    TAP_CHECK_INT(pick(&greedy, first, 0, 0), 1);
    TAP_CHECK_INT(pick(&greedy, last, 0, 0), 3);
}

/* Probabilities that a token should be drawn with; 0: never. */
static void expect(const float *logits, double temperature, double top_p,
                   double *want)
{
    double total = 0.0, kept = 0.0;

    for (int v = 0; v < VOCAB; v++) {
        want[v] = exp(logits[v] / temperature);
        total += want[v];
    }
    for (int v = 0; v < VOCAB; v++) {
        double before = 0.0; /* of what is likelier */

        for (int w = 0; w < VOCAB; w++) {
            before += logits[w] > logits[v] || (logits[w] == logits[v] && w < v)
                          ? exp(logits[w] / temperature)
                          : 0.0;
        }
        if (before >= top_p * total) {
            want[v] = 0.0;
        }
        kept += want[v];
    }
    for (int v = 0; v < VOCAB; v++) {
        want[v] /= kept;
    }
}

static void check_shares(double temperature, double top_p)
{
    const struct zo_sampler_options options = {.vocab = VOCAB,
                                               .draws = true,
                                               .temperature = temperature,
                                               .top_p = top_p,
                                               .seed = 3};
    struct zo_sampler *sampler = NULL;
    float logits[VOCAB];
    double want[VOCAB];
    int counts[VOCAB] = {0};

    fill(logits);
    logits[9] = logits[8]; /* equal ones */
    expect(logits, temperature, top_p, want);
    TAP_CHECK_INT(zo_sampler_open(&options, &sampler), ZO_OK);
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t id = -1;

        TAP_CHECK_INT(zo_sampler_pick(sampler, logits, i / 100, i % 100, &id),
                      ZO_OK);
        TAP_CHECK(id >= 0 && id < VOCAB);
        counts[id]++;
    }
    zo_sampler_close(sampler);
    for (int v = 0; v < VOCAB; v++) {
        const double deviation = sqrt(want[v] * (1.0 - want[v]) / DRAWS);
        const double gap = fabs((double)counts[v] / DRAWS - want[v]);

        TAP_CHECK(want[v] > 0.0 || counts[v] == 0);
        TAP_CHECK(gap <= 5.0 * deviation);
    }
}

static void test_shares(void)
{
    check_shares(1.0, 1.0);
    check_shares(0.95, 0.7);
    check_shares(2.0, 0.3);
}

static void test_narrow(void)
{
    struct zo_sampler_options options = {
        .vocab = VOCAB, .draws = true, .temperature = 1.0, .top_p = 1e-9};
    const struct zo_sampler_options greedy = {.vocab = VOCAB};
    float logits[VOCAB];

    fill(logits);
    for (uint64_t i = 0; i < 50; i++) {
        TAP_CHECK_INT(pick(&options, logits, 0, i),
                      pick(&greedy, logits, 0, i));
    }
    options.top_p = 1.0;
    options.temperature = 1e-3;
    for (uint64_t i = 0; i < 50; i++) {
        TAP_CHECK_INT(pick(&options, logits, 0, i),
                      pick(&greedy, logits, 0, i));
    }
}

static void test_seeds(void)
{
    struct zo_sampler_options options = {.vocab = VOCAB,
                                         .draws = true,
                                         .temperature = 1.0,
                                         .top_p = 1.0,
                                         .seed = 1};
    float logits[VOCAB];
    int differ[3] = {0};

    fill(logits);
    for (uint64_t i = 0; i < 100; i++) {
        const int32_t id = pick(&options, logits, 5, i);

        TAP_CHECK_INT(pick(&options, logits, 5, i), id);
        differ[0] += pick(&options, logits, 6, i) != id;
        differ[1] += pick(&options, logits, 5, i + 1) != id;
        options.seed = 2;
        differ[2] += pick(&options, logits, 5, i) != id;
        options.seed = 1;
    }
    TAP_CHECK(differ[0] > 10 && differ[1] > 10 && differ[2] > 10);
}

static void test_not_finite(void)
{
    const struct zo_sampler_options greedy = {.vocab = 3};
    const float none[] = {-INFINITY, -INFINITY, -INFINITY};
    const float nan[] = {0, NAN, 1}, above[] = {0, INFINITY, 1};
    const float below[] = {-INFINITY, 0, 1};
    struct zo_sampler *sampler = NULL;
    int32_t id = -1;

    TAP_CHECK_INT(zo_sampler_open(&greedy, &sampler), ZO_OK);
    TAP_CHECK_INT(zo_sampler_pick(sampler, none, 0, 0, &id), ZO_E_NUMERIC);
    TAP_CHECK_INT(zo_sampler_pick(sampler, nan, 0, 0, &id), ZO_E_NUMERIC);
    TAP_CHECK_INT(zo_sampler_pick(sampler, above, 0, 0, &id), ZO_E_NUMERIC);
    TAP_CHECK_INT(zo_sampler_pick(sampler, below, 0, 0, &id), ZO_OK);
    TAP_CHECK_INT(id, 2);
    zo_sampler_close(sampler);
    zo_sampler_close(NULL);
}

static const struct tap_case cases[] = {
    {"the likeliest token, of equal ones the lowest", test_greedy},
    {"tokens are drawn as often as they should be", test_shares},
    {"a narrow draw is the likeliest", test_narrow},
    {"seed, answer and token decide, and nothing else", test_seeds},
    {"logits that are no numbers are an error", test_not_finite},
};

int main(void)
{
    return tap_run(cases, TAP_COUNT(cases));
}
