#include "src/train/sampler.h"

#include <inttypes.h>
#include <math.h>

#include "src/base/memory.h"
#include "src/base/random.h"

struct zo_sampler {
    struct zo_sampler_options options;
    double *weights; /* owned; (V), by id: exp((logit - largest) / T) */
    int32_t *heap;   /* owned; (V), ids, the likeliest on top */
};

enum zo_status zo_sampler_open(const struct zo_sampler_options *options,
                               struct zo_sampler **sampler_out)
{
    struct zo_sampler *sampler = NULL;
    enum zo_status status;

    ZO_ASSERT(options->vocab > 0);
    ZO_TRY(zo_alloc(1, sizeof(*sampler), "the sampler", &sampler));
    sampler->options = *options;
    if (options->draws) {
        ZO_ASSERT(options->temperature > 0.0 && options->top_p > 0.0);
        ZO_TRY_GOTO(close_sampler,
                    zo_alloc((size_t)options->vocab, sizeof(double),
                             "the sampler", &sampler->weights));
        ZO_TRY_GOTO(close_sampler,
                    zo_alloc((size_t)options->vocab, sizeof(int32_t),
                             "the sampler", &sampler->heap));
    }
    *sampler_out = sampler;
    return ZO_OK;

close_sampler:
    zo_sampler_close(sampler);
    return status;
}

void zo_sampler_close(struct zo_sampler *sampler)
{
    if (sampler == NULL) {
        return;
    }
    zo_free(sampler->weights);
    zo_free(sampler->heap);
    zo_free(sampler);
}

static enum zo_status find_largest(const float *logits, int64_t count,
                                   int64_t *best_out)
{
    int64_t best = 0;

    for (int64_t v = 0; v < count; v++) {
        if (isnan(logits[v])) {
            return ZO_FAIL(ZO_E_NUMERIC,
                           "the logit of token %" PRId64 " is not a number; "
                           "the weights have diverged, or overflow in this "
                           "number type",
                           v);
        }
        best = logits[v] > logits[best] ? v : best;
    }
    if (!isfinite(logits[best])) {
        return ZO_FAIL(ZO_E_NUMERIC,
                       "the largest logit, of token %" PRId64
                       ", is not finite; the weights have diverged, or "
                       "overflow in this number type",
                       best);
    }
    *best_out = best;
    return ZO_OK;
}

static bool is_before(const double *weights, int32_t a, int32_t b)
{
    return weights[a] > weights[b] || (weights[a] == weights[b] && a < b);
}

/* Lets the entry at `at` fall to its place. */
static void sift(const double *weights, int32_t *heap, int64_t count,
                 int64_t at)
{
    const int32_t moved = heap[at];

    for (;;) {
        int64_t child = 2 * at + 1;

        if (child >= count) {
            break;
        }
        if (child + 1 < count &&
            is_before(weights, heap[child + 1], heap[child])) {
            child++;
        }
        if (!is_before(weights, heap[child], moved)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/*
 * Takes the likeliest tokens off the heap, to its end, until they reach
 * top_p; *sum_out is their weight.  Returns how many were taken.
 */
static int64_t take_likeliest(struct zo_sampler *sampler, double total,
                              double *sum_out)
{
    const int64_t vocab = sampler->options.vocab;
    int32_t *heap = sampler->heap;
    int64_t left = vocab;
    double sum = 0.0;

    for (int64_t at = vocab / 2 - 1; at >= 0; at--) {
        sift(sampler->weights, heap, vocab, at);
    }
    do {
        const int32_t top = heap[0];

        heap[0] = heap[left - 1];
        heap[left - 1] = top;
        left--;
        sum += sampler->weights[top];
        if (left > 0) {
            sift(sampler->weights, heap, left, 0);
        }
    } while (left > 0 && sum < sampler->options.top_p * total);
    *sum_out = sum;
    return vocab - left;
}

static int32_t draw(struct zo_sampler *sampler, const float *logits,
                    float largest, double uniform)
{
    const int64_t vocab = sampler->options.vocab;
    double total = 0.0, sum = 0.0, at = 0.0;
    int64_t taken;

    for (int64_t v = 0; v < vocab; v++) {
        sampler->weights[v] = exp(((double)logits[v] - (double)largest) /
                                  sampler->options.temperature);
        sampler->heap[v] = (int32_t)v;
        total += sampler->weights[v];
    }
    taken = take_likeliest(sampler, total, &sum);
    for (int64_t i = 0; i + 1 < taken; i++) {
        const int32_t id = sampler->heap[vocab - 1 - i];

        at += sampler->weights[id];
        if (uniform * sum < at) {
            return id;
        }
    }
    return sampler->heap[vocab - taken];
}

enum zo_status zo_sampler_pick(struct zo_sampler *sampler, const float *logits,
                               uint64_t answer, uint64_t token, int32_t *id_out)
{
    const struct zo_sampler_options *options = &sampler->options;
    int64_t best = 0;

    ZO_TRY(find_largest(logits, options->vocab, &best));
    if (!options->draws) {
        *id_out = (int32_t)best;
        return ZO_OK;
    }
    *id_out =
        draw(sampler, logits, logits[best],
             zo_random_uniform(
                 zo_random_bits(zo_random_key(options->seed, "answer"), answer),
                 token));
    return ZO_OK;
}
