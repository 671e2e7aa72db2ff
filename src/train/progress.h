/*
 * The lines that a person reads while a run is going.
 *
 * Layer 7.  The stream comes from the caller: this is the one place below the
 * command line that formats for people, and it opens nothing itself.
 *
 * One line a logging step.  On a terminal the steps between are shown on one
 * line that is rewritten in place.  A loss that is not a number is printed as
 * what it is, never as 0; one without any label is "n/a".
 *
 * Threads: one.  Nothing is allocated.
 */
#ifndef ZO_SRC_TRAIN_PROGRESS_H
#define ZO_SRC_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "src/train/metrics.h"

ZO_C_BEGIN

struct zo_progress_options {
    FILE *file;            /* borrowed */
    bool is_terminal;      /* may rewrite a line */
    bool has_loss_scale;   /* fp16: print the scale */
    bool has_clipping;     /* print the clip coefficient */
    bool keeps_best;       /* say which evaluation was the best so far */
    int64_t logging_steps; /* every so many; >= 1 */
    int64_t first_step;    /* of this run; after a resume above 1 */
    int64_t total_steps;   /* the run's last step */
};

/* The fields belong to the module. */
struct zo_progress {
    struct zo_progress_options options;
    double pace_seconds; /* moving mean of a step's time */
    int64_t steps_seen;
    bool is_line_open; /* the terminal shows an unfinished line */
};

void zo_progress_init(struct zo_progress *progress,
                      const struct zo_progress_options *options);

/* Whether a step gets a line of its own: every logging step, the first, the
 * last, and one that was skipped. */
bool zo_progress_logs(const struct zo_progress *progress,
                      const struct zo_step_metrics *metrics);

/* After each step; _follow() only learns the pace, and prints nothing. */
void zo_progress_step(struct zo_progress *progress,
                      const struct zo_step_metrics *metrics);
void zo_progress_follow(struct zo_progress *progress,
                        const struct zo_step_metrics *metrics);

/* After an evaluation, and after a save. */
void zo_progress_eval(struct zo_progress *progress,
                      const struct zo_eval_metrics *metrics);
void zo_progress_save(struct zo_progress *progress,
                      const struct zo_save_metrics *metrics);

/*
 * Makes room for a line of somebody else's: ends the line that a terminal
 * shows.  Also the last call of a run.
 */
void zo_progress_break(struct zo_progress *progress);

/* Seconds until the last step, from the recent pace; NaN when not known. */
double zo_progress_remaining(const struct zo_progress *progress, int64_t step);

ZO_C_END

#endif
