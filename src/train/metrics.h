/*
 * The metrics file of a run: a JSON object a line, by key and not by column.
 *
 * Layer 7.  Life cycle: open, run line, then any of the other lines, close.
 * Threads: one.  After open nothing is allocated.
 *
 * Each line leaves in one write to a file opened for appending, so a reader
 * of a growing file sees whole lines.  A run that continues another (append)
 * adds its own run line; lines of steps that were lost with an unsaved state
 * are removed.  A last line that was cut off when the
 * machine stopped is removed.
 *
 * Keys of every line but the first: kind, step, epoch, time (UTC, ISO 8601).
 * Bytes and seconds of a step line belong to that step alone; *_total,
 * *_peak and skipped_steps count from the start.  Numbers that are not finite
 * are null.
 */
#ifndef ZO_SRC_TRAIN_METRICS_H
#define ZO_SRC_TRAIN_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/run_config.h"
#include "src/base/jsonl.h"
#include "src/base/status.h"

ZO_C_BEGIN

#define ZO_METRICS_FORMAT 1 /* raised when a key changes its meaning */

/* Adds members to an object that is open; may not end it. */
typedef void (*zo_metrics_members_fn)(struct zo_jsonl *json,
                                      const void *context);

/* {"kind":"run"}: format, version, time, config, machine, fingerprints. */
struct zo_run_metrics {
    const char *version;
    zo_metrics_members_fn config, machine, fingerprints; /* NULL: empty */
    const void *config_context, *machine_context, *fingerprints_context;
};

/* {"kind":"step"}.  A member is a key of the line. */
struct zo_step_metrics {
    int64_t step;     /* from 1; skipped ones count, so optimizer steps are
                         step - skipped_steps */
    double epoch;     /* passes over the rows, with a fraction */
    double loss;      /* before the update; NaN when no label was counted */
    double grad_norm; /* before clipping, of unscaled gradients */
    double clip_coefficient; /* what gradients were multiplied by; 1: none */
    double learning_rate;
    double loss_scale; /* of this step's backward; 1 without one */
    bool overflow;     /* gradients were not finite: the step was skipped */
    int64_t skipped_steps;
    int64_t rows, tokens; /* of all devices, without padding */
    int64_t label_tokens; /* those that the loss counts */
    int64_t tokens_total;
    double step_seconds;

    /* Memory: arrays of one number a device, borrowed for the call. */
    size_t device_count;
    const uint64_t *gpu_bytes, *gpu_bytes_peak;
    uint64_t host_bytes, host_bytes_peak;
    uint64_t pinned_bytes, nvme_bytes;

    /* Traffic. */
    uint64_t h2d_bytes, d2h_bytes;
    uint64_t nvme_read_bytes, nvme_write_bytes;

    /* How long each engine was busy with the step's list; on several devices
     * their average.  Derived: *_idle_seconds, what is left of the step, and
     * h2d_gbps and d2h_gbps, GB/s of all devices while they copied. */
    double compute_seconds, h2d_seconds, d2h_seconds;
    double collective_seconds, cpu_seconds, nvme_seconds;
};

/* {"kind":"eval"}; perplexity is derived. */
struct zo_eval_metrics {
    int64_t step; /* after which it ran */
    double epoch;
    double loss; /* mean over the label tokens */
    int64_t rows, tokens, label_tokens;
    double seconds;
    bool is_best; /* the lowest loss so far */
};

/* {"kind":"save"}. */
struct zo_save_metrics {
    int64_t step; /* that the saved state is after */
    double epoch;
    const char *path;
    uint64_t bytes;
    double seconds;       /* until it was on the disk */
    double stall_seconds; /* of those, with no step under way for it */
};

/* tokens / step_seconds; 0 for a step of no time. */
double zo_step_tokens_per_second(const struct zo_step_metrics *metrics);

/* exp(loss), infinite past a double. */
double zo_perplexity(double loss);

struct zo_metrics_options {
    const char *path;        /* borrowed until close; NULL: none */
    const char *second_path; /* another copy of every line; or NULL */
    bool is_append;          /* continue; else an old file is emptied */
    int64_t last_step;       /* to continue behind: lines of later ones go */
};

struct zo_metrics; /* opaque */

/*
 * Whether the files could be opened, as far as that can be told without making
 * or changing one.
 *
 *   ZO_E_USAGE   a file cannot be written, or is there and is no metrics file;
 *                or `path` is no regular file (the second may be a FIFO)
 *   ZO_E_NOMEM
 */
enum zo_status
zo_metrics_check(const struct zo_metrics_options *options) ZO_MUST_CHECK;

/*
 * Checks, and opens the files; waits for the reader of a FIFO.  On success the
 * caller owns *metrics_out and ends it with zo_metrics_close().  Two names of
 * one file get one copy.  A failure leaves no file that was not there.
 */
enum zo_status zo_metrics_open(const struct zo_metrics_options *options,
                               struct zo_metrics **metrics_out) ZO_MUST_CHECK;

/*
 * A line each.
 *
 *   ZO_E_IO   a file took no more; both files were tried
 */
enum zo_status zo_metrics_run(struct zo_metrics *metrics,
                              const struct zo_run_metrics *run) ZO_MUST_CHECK;
enum zo_status
zo_metrics_step(struct zo_metrics *metrics,
                const struct zo_step_metrics *step) ZO_MUST_CHECK;
enum zo_status
zo_metrics_eval(struct zo_metrics *metrics,
                const struct zo_eval_metrics *eval) ZO_MUST_CHECK;
enum zo_status
zo_metrics_save(struct zo_metrics *metrics,
                const struct zo_save_metrics *save) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_metrics_close(struct zo_metrics *metrics);

/* A zo_metrics_members_fn: the resolved values of a struct zo_run_config. */
void zo_metrics_run_config(struct zo_jsonl *json, const void *run_config);

ZO_C_END

#endif
