/*
 * The live view of a run: a bar a tier, a bar an engine, and the loss.
 *
 * Layer 7.  The stream comes from the caller.  On a terminal the view is drawn
 * over itself after every step; where there is none, or one of too few rows, a
 * logging step gets one plain line with the same numbers, behind that of
 * progress.h.
 *
 * Threads: one.  Nothing is allocated.
 */
#ifndef ZO_SRC_TRAIN_WATCH_H
#define ZO_SRC_TRAIN_WATCH_H

#include "src/train/progress.h"

ZO_C_BEGIN

struct zo_watch_options {
    FILE *file;       /* borrowed */
    bool is_terminal; /* may be drawn over */
    int rows;         /* of the terminal; 0: not known, enough */
    int64_t total_steps;
    const char *device; /* what one is called: "GPU", "device"; borrowed */
    /* What a tier may take; 0: not known. */
    uint64_t gpu_bytes, host_bytes, nvme_bytes;
};

#define ZO_WATCH_LOSSES 40 /* of a view's line of them */

/* The fields belong to the module. */
struct zo_watch {
    struct zo_watch_options options;
    int lines_drawn; /* above the cursor, that the next view replaces */
    double losses[ZO_WATCH_LOSSES]; /* the newest last */
    int loss_count;
};

void zo_watch_init(struct zo_watch *watch,
                   const struct zo_watch_options *options);

/* Whether a step gets a view; `rows`, 0 for not known, may have changed. */
bool zo_watch_draws(struct zo_watch *watch, int rows,
                    const struct zo_step_metrics *metrics);

/* After a step; remaining_seconds may be NaN.  is_logged: a plain line is
 * wanted where there is no terminal. */
void zo_watch_step(struct zo_watch *watch,
                   const struct zo_step_metrics *metrics,
                   double remaining_seconds, bool is_logged);

/* The next view begins below what somebody else printed. */
void zo_watch_break(struct zo_watch *watch);

ZO_C_END

#endif
