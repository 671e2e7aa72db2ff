/*
 * Which token follows: the likeliest, or one drawn from the likeliest.
 *
 * Row 7.  Drawing divides the logits by a temperature and keeps the fewest
 * likeliest tokens whose probabilities reach top_p together (of equal ones
 * the lower ids), as transformers does.  What is drawn depends on the seed,
 * the number of the answer and of the token in it, and on nothing else.
 *
 * Life cycle: open, any number of picks, close.  One thread.
 */
#ifndef ZO_SRC_TRAIN_SAMPLER_H
#define ZO_SRC_TRAIN_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

struct zo_sampler_options {
    int64_t vocab;
    bool draws;         /* false: the likeliest; the rest is not read */
    double temperature; /* > 0 */
    double top_p;       /* in (0, 1]; 1: all tokens */
    uint64_t seed;
};

struct zo_sampler; /* opaque */

enum zo_status zo_sampler_open(const struct zo_sampler_options *options,
                               struct zo_sampler **sampler_out) ZO_MUST_CHECK;
void zo_sampler_close(struct zo_sampler *sampler); /* NULL is allowed */

/*
 * The token for logits (V); of equal ones the lowest id.
 *
 *   ZO_E_NUMERIC   a logit is not a number, or the largest is not finite
 */
enum zo_status zo_sampler_pick(struct zo_sampler *sampler, const float *logits,
                               uint64_t answer, uint64_t token,
                               int32_t *id_out) ZO_MUST_CHECK;

ZO_C_END

#endif
