/*
 * Which rows belong to which step, and micro batches packed from them.
 *
 * Layer 6.  Life cycle: open, plan, then any number of step and fill calls in
 * any order, close.  Nothing is allocated after open.  One thread at a time.
 *
 * Order.  The rows of epoch e are in the order of a Fisher-Yates shuffle
 * whose random numbers depend on (seed, e) alone; without shuffle they are in
 * the order of the file.  A step takes the next micro_batch_rows x
 * accumulation_count x device_count rows; a step never mixes epochs, and the
 * last one of an epoch has the rows that are left.  So at the same product a
 * row belongs to the same step for any number of devices.
 *
 * Row i of a step goes to device i mod device_count; there, row k = i /
 * device_count goes to micro batch k / micro_batch_rows, slot k mod
 * micro_batch_rows.  Devices and micro batches without rows get zero tokens.
 *
 * Packing.  The rows of a micro batch follow one another without padding.
 * The token count is then rounded up to a multiple of token_multiple with
 * pad_id; these pads are one more row of their own, without labels, last.
 */
#ifndef ZO_SRC_DATA_BATCHES_H
#define ZO_SRC_DATA_BATCHES_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/status.h"
#include "src/data/dataset.h"

ZO_C_BEGIN

struct zo_batches; /* opaque */

/* Fields left at 0 take the default in brackets. */
struct zo_batches_options {
    uint64_t seed;
    bool shuffle;               /* false: the order of the file */
    bool is_evaluation;         /* a step without labels is no error */
    int32_t micro_batch_rows;   /* rows of a device's micro batch [1] */
    int32_t accumulation_count; /* micro batches of a step [1] */
    int32_t device_count;       /* [1] */
    int32_t token_multiple;     /* [64] */
    int32_t pad_id;             /* [0] */
};

/* The largest any micro batch of the run gets: sizes of the arrays. */
struct zo_batches_bounds {
    int32_t tokens;      /* padded: ids, positions */
    int32_t real_tokens; /* without pads: order, and most of segment_id */
    int32_t rows;        /* row_start has one more; the pad row included */
    int32_t labels;      /* label_index, label_id */
};

/* The run, scanned before it starts. */
struct zo_batches_plan {
    struct zo_batches_bounds bounds;
    int64_t steps_per_epoch;
    int64_t rows_per_step;  /* of a full step */
    int64_t longest_tokens; /* of any row of the data set, as trained */
    int64_t longest_line;   /* its line in the file */
    bool is_exact;          /* false: bounds are those of the longest rows */
};

/* A step as a whole. */
struct zo_batches_step {
    int64_t epoch;      /* from 0 */
    int64_t epoch_step; /* from 0, within the epoch */
    int64_t rows;       /* of all micro batches and devices */
    int64_t tokens;     /* without pads */
    int64_t labels;     /* what the loss is the mean of */
    bool is_epoch_end;
};

/*
 * One micro batch of one device.  The arrays are the caller's, as large as
 * zo_batches_bounds says; zo_batches_fill() writes them and the counts.
 * T = token_count, R = row_count, L = label_count, U = segment_count.
 */
struct zo_micro_batch {
    int32_t *ids;           /* [T] */
    int32_t *positions;     /* [T] from 0 in each row */
    int32_t *row_start;     /* [R+1]; row_start[R] = T */
    int32_t *label_index;   /* [L] t, ascending: t+1 is in t's row, labelled */
    int32_t *label_id;      /* [L] the label of t+1: what t should predict */
    int32_t *order;         /* [real_count] token indices by (id, index) */
    int32_t *segment_start; /* [U+1] into order; the last is real_count */
    int32_t *segment_id;    /* [U] the distinct ids, ascending */

    int32_t token_count; /* padded; 0 when the micro batch has no row */
    int32_t real_count;  /* tokens that are no pads */
    int32_t row_count;   /* the pad row included, if there are pads */
    int32_t label_count;
    int32_t segment_count;
};

/*
 * Prepares batches over a data set, which is borrowed until close.
 *
 *   ZO_E_ARG     an option is out of its range
 *   ZO_E_FIT     a micro batch may have 2^31 tokens or more
 *   ZO_E_NOMEM   no memory
 */
enum zo_status zo_batches_open(const struct zo_dataset *dataset,
                               const struct zo_batches_options *options,
                               struct zo_batches **batches_out) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_batches_close(struct zo_batches *batches);

/* Steps of an epoch, 1 or more. */
int64_t zo_batches_steps_per_epoch(const struct zo_batches *batches);

/*
 * Scans steps [first_step, first_step + step_count).  A scan of more than
 * 2^26 rows is not made: then bounds are those of the longest rows together,
 * and a step without labels is found when zo_batches_step() comes to it.
 *
 *   ZO_E_DATA   a step without any label (unless is_evaluation); names the
 *               lines of its rows
 */
enum zo_status zo_batches_plan(struct zo_batches *batches, int64_t first_step,
                               int64_t step_count,
                               struct zo_batches_plan *plan_out) ZO_MUST_CHECK;

/*
 * The counts of step step_index, from 0.
 *
 *   ZO_E_DATA   as zo_batches_plan()
 */
enum zo_status zo_batches_step(struct zo_batches *batches, int64_t step_index,
                               struct zo_batches_step *step_out) ZO_MUST_CHECK;

/*
 * Fills one micro batch: 0 <= micro < accumulation_count, 0 <= device <
 * device_count.  Never fails: `batch` must be as large as the plan of a run
 * that holds step_index says.
 */
void zo_batches_fill(struct zo_batches *batches, int64_t step_index,
                     int32_t micro, int32_t device,
                     struct zo_micro_batch *batch);

/*
 * Index in the data set and line in the file of row `slot` of a micro batch,
 * for messages; false when the micro batch has fewer rows.
 */
bool zo_batches_row(struct zo_batches *batches, int64_t step_index,
                    int32_t micro, int32_t device, int32_t slot,
                    int64_t *index_out, int64_t *line_out);

ZO_C_END

#endif
