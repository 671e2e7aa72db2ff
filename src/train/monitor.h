/*
 * What DeepSpeed's monitors write: TensorBoard event files, and CSV files
 * named as its csv_monitor names them.
 *
 * Layer 7.  Life cycle: open, any number of steps and evaluations, close.
 * Threads: one.  After open nothing is allocated; a record is one write to a
 * file that is opened for appending.
 *
 * The tags are DeepSpeed's: Train/Samples/train_loss, /lr and, in fp16,
 * /loss_scale; ours are Train/Samples/grad_norm and /tokens_per_second, and
 * Eval/Samples/loss.  As there, they stand over the rows seen so far.
 */
#ifndef ZO_SRC_TRAIN_MONITOR_H
#define ZO_SRC_TRAIN_MONITOR_H

#include "src/train/metrics.h"

ZO_C_BEGIN

struct zo_monitor_options {
    const char *tensorboard; /* folder, borrowed for the call; NULL: none */
    const char *csv;         /* likewise */
    int64_t step_rows;       /* of a step: train_batch_size */
    bool has_loss_scale;
};

struct zo_monitor; /* opaque */

/*
 * Whether the files could be opened, as far as that can be told without making
 * or changing one.
 *
 *   ZO_E_USAGE   a folder cannot be made; what bears the name of a CSV file is
 *                no regular file, may not be written, or does not begin as ours
 *   ZO_E_NOMEM
 */
enum zo_status
zo_monitor_check(const struct zo_monitor_options *options) ZO_MUST_CHECK;

/*
 * Checks, makes the folders and those they are in, and opens the files.  On
 * success the caller owns *monitor_out and ends it with zo_monitor_close().
 *
 *   ZO_E_USAGE   as above
 *   ZO_E_IO      a file took no more
 *   ZO_E_NOMEM
 */
enum zo_status zo_monitor_open(const struct zo_monitor_options *options,
                               struct zo_monitor **monitor_out) ZO_MUST_CHECK;

/* ZO_E_IO: a file took no more; the others were tried. */
enum zo_status
zo_monitor_step(struct zo_monitor *monitor,
                const struct zo_step_metrics *step) ZO_MUST_CHECK;
enum zo_status
zo_monitor_eval(struct zo_monitor *monitor,
                const struct zo_eval_metrics *eval) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_monitor_close(struct zo_monitor *monitor);

ZO_C_END

#endif
