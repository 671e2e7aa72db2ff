/*
 * What changes from step to step: the records that operations read.
 *
 * Row 5.  Nothing in a list depends on data; token counts, the learning rate,
 * the clip coefficient, the loss scale and whether a step is skipped are
 * fields here.  Records live in host buffers of the program, so that their
 * order is derived like any other.
 */
#ifndef ZO_OFFLOAD_RECORD_H
#define ZO_OFFLOAD_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

ZO_C_BEGIN

/* One micro batch on one device.  All zero: it has no rows. */
struct zo_micro_counts {
    int32_t tokens;         /* padded to a multiple of 64 */
    int32_t rows;           /* with the row of pads, if there is one */
    int32_t row_tokens_max; /* of the longest row */
    int32_t labels;         /* positions that have one */
    int32_t segments;       /* distinct ids */
    int32_t table_rows;     /* distinct ids, and the pads' when there are any */
    int32_t position;       /* decoding: of the first token */
    double loss_weight;     /* of each label's loss in the step's loss */
};

/*
 * Set by the trainer before a list is started; two of them, one a slot,
 * since two lists may be under way.
 */
struct zo_step_record {
    int64_t step;    /* from 1; of the list at hand */
    bool has_update; /* an update stands in the list, and is due */
    /* Of that update, when nothing has to be decided. */
    struct zo_adamw_scalars update;
    struct zo_micro_counts counts[]; /* (micro batches, devices) */
};

/* Written by decide(k); read by what comes after it.  One, not two. */
struct zo_control {
    double loss_scale; /* of the step to come */
    bool skips;        /* the update of the step decided on runs empty */
    struct zo_adamw_scalars update;
};

/* What is known of a step when its list is done; two of them. */
struct zo_step_result {
    int64_t step;
    double loss;           /* weighted sum of the labels' losses */
    double grad_norm;      /* before clipping, unscaled; NaN: not finite */
    double clip;           /* the coefficient; 1: not clipped */
    double loss_scale;     /* that its backward used */
    double learning_rate;  /* of its update, or of the next when skipped */
    int64_t skipped_steps; /* so far */
    bool overflowed;       /* a gradient was not finite */
    int bad_unit;          /* the first with such a gradient; -1 */
    uint64_t bad_count;    /* such gradient elements */
};

ZO_C_END

#endif
