/*
 * The trainer: a run from its first step to its last.
 *
 * Row 7.  Everything runs through schedules.  Life cycle: open builds the
 * program and plans, without allocating what it plans; start allocates; load;
 * run; write; close.  One thread.
 */
#ifndef ZO_SRC_TRAIN_TRAINER_H
#define ZO_SRC_TRAIN_TRAINER_H

#include "config/run_config.h"
#include "offload/placement.h"
#include "offload/planner.h"
#include "src/checkpoint/state_writer.h"
#include "src/data/batches.h"
#include "src/train/decide.h"
#include "src/train/devices.h"
#include "src/train/metrics.h"
#include "src/train/trace.h"
#include "src/train/weights.h"

ZO_C_BEGIN

struct zo_trainer; /* opaque */

struct zo_trainer_options {
    const struct zo_run_config *config;  /* borrowed; finished */
    const struct zo_model_config *model; /* borrowed */
    const struct zo_devices *devices;    /* borrowed */
    struct zo_batches *batches;          /* borrowed; NULL: plan alone */
    struct zo_batches *eval_batches;     /* borrowed; NULL: no evaluation */
    struct zo_batches_bounds bounds;     /* of both */
    int64_t positions_max;               /* of the longest row */
    int64_t first_step, last_step;       /* from 1 */
    int64_t eval_every;                  /* steps; 0: after the last alone */
    bool evaluates_only; /* weights and eval_batches; run() may not be called */
    uint64_t gpu_memory_bytes;  /* budget a device; 0: none to keep to */
    uint64_t host_memory_bytes; /* likewise */
    uint64_t nvme_bytes;        /* likewise, on NVMe */
    bool avoids_locking;        /* states on the host are pageable, whatever the
                                   configuration says */
    /* Only planned, for the machine of `profile`, whose devices have memory of
     * their own even if virtual ones stand in for them here. */
    bool plans_elsewhere;
    /* With it: that a device's context and libraries would take there, for
     * ones that stand in for it. */
    uint64_t absent_context_bytes;
    int cpu_threads; /* workers of the CPU engine; 0: as devices->pool */
    /* Rates to choose a placement by; borrowed by open; NULL: a shipped
     * machine's. */
    const struct zo_profile *profile;
    bool records_times;     /* without: seconds of stream engines are null */
    struct zo_trace *trace; /* borrowed, opened; or NULL; records_times */
    enum zo_simd simd;      /* of updates on the host; usable here */
    /* For tests. */
    const struct zo_placement *placement; /* borrowed; NULL: planned */
    const struct zo_nvme_options *nvme;   /* borrowed; NULL: as configured */
    bool keeps_gradients;
    bool is_serial, poisons, times_ops;
    uint64_t fail_at_op;
};

/*
 * Builds and plans: the placement is the fastest that fits the budgets, as far
 * as the configuration leaves a choice (offload/placement.h).
 *
 *   ZO_E_FIT     nothing fits; *trainer_out is set all the same, so that the
 *                plan can be printed: close it
 *   ZO_E_CONFIG  a step has more micro batches than can be planned
 *   ZO_E_NOMEM   no memory for the schedule
 */
enum zo_status zo_trainer_open(const struct zo_trainer_options *options,
                               struct zo_trainer **trainer_out) ZO_MUST_CHECK;
void zo_trainer_close(struct zo_trainer *trainer); /* NULL is allowed */

/* Whether some placement fits, all micro batches in one pass.  ZO_E_NOMEM. */
enum zo_status zo_trainer_fits(const struct zo_trainer_options *options,
                               bool *fits_out) ZO_MUST_CHECK;
/*
 * The most micro batches a step that fit in one pass, and so cross the bus no
 * more than one does; at most `most`, and what can be planned.  0: not even
 * one fits.  ZO_E_NOMEM.
 */
enum zo_status
zo_trainer_largest_accumulation(const struct zo_trainer_options *options,
                                int64_t most,
                                int64_t *micros_out) ZO_MUST_CHECK;

/* How its placement was chosen; NULL when a test named it. */
const struct zo_place *zo_trainer_place(const struct zo_trainer *trainer);
/* Threads that update on the host. */
int zo_trainer_cpu_workers(const struct zo_trainer *trainer);
const struct zo_build *zo_trainer_build(const struct zo_trainer *trainer);
struct zo_glm *zo_trainer_glm(const struct zo_trainer *trainer);
/* NULL before start. */
struct zo_executor *zo_trainer_executor(const struct zo_trainer *trainer);

/*
 * Bytes of a device beside the arena: all of them, or of those what the
 * device's context holds; the rest is the collectives', the kernels' and the
 * libraries'.
 */
uint64_t zo_trainer_own_bytes(const struct zo_trainer *trainer, int device);
uint64_t zo_trainer_context_bytes(const struct zo_trainer *trainer, int device);

/* Of host memory, that of devices which live there too included. */
uint64_t zo_trainer_host_bytes(const struct zo_trainer *trainer);

/* Allocates, touches and clears everything.  As zo_executor_open(). */
enum zo_status zo_trainer_start(struct zo_trainer *trainer) ZO_MUST_CHECK;

/* The weights, for loading, writing and tests; nothing may be under way. */
struct zo_weights zo_trainer_weights(const struct zo_trainer *trainer);

/* What a run tells while it goes; entries may be NULL. */
struct zo_trainer_watch {
    void *context;
    enum zo_status (*on_step)(void *context,
                              const struct zo_step_metrics *metrics);
    /* Nothing is under way: weights may be written. */
    enum zo_status (*on_eval)(void *context,
                              const struct zo_eval_metrics *metrics);
    bool (*wants_stop)(void *context); /* asked before each step */
    /*
     * Asked once a step is on its way; true: on_save follows, unless the run
     * ends before.  Without a copy that is behind the step, with nothing under
     * way and every update done.  With one, it is when the copy holds the
     * state of that step, and training goes on meanwhile.
     */
    bool (*wants_save)(void *context, int64_t step);
    /* Before the copy is taken: whoever reads the one before is to end. */
    enum zo_status (*on_copy)(void *context);
    enum zo_status (*on_save)(void *context, int64_t step);
};

/*
 * Runs first_step to last_step, evaluating (given eval_batches) every
 * eval_every steps and after the last; stops early, in good order, when asked
 * to.  Behind it every update has run.  *steps_out is the last step that was
 * done.
 *
 *   ZO_E_NUMERIC   as zo_decide()
 *   ZO_E_DATA      a step has no label
 *   and what operations and the watch return
 */
enum zo_status zo_trainer_run(struct zo_trainer *trainer,
                              const struct zo_trainer_watch *watch,
                              int64_t *steps_out) ZO_MUST_CHECK;

/*
 * Writes the state behind the last step.  Within on_save of a run without a
 * copy, or behind run().
 * The trainer adds to *options the tensors, and to the run that it names
 * where training stands: from step to skipped_steps.  As zo_state_write().
 */
enum zo_status
zo_trainer_save(struct zo_trainer *trainer,
                const struct zo_state_write_options *options,
                struct zo_state_written *written_out) ZO_MUST_CHECK;

/*
 * Room for a copy of the state in host memory, so that training goes on while
 * it is taken and written.  Opened once, behind start: its pages are made
 * there, and its memory is the trainer's.  run() takes the copy when a save is
 * wanted, in place of the one before.  zo_trainer_copy_save() writes it, from
 * on_save until the next on_copy, in any thread, with a pool of its own in
 * `options`.  Closed before the trainer.
 *
 *   ZO_E_LOCK, ZO_E_NOMEM   no memory for it
 */
struct zo_trainer_copy;
uint64_t zo_trainer_copy_bytes(const struct zo_trainer *trainer);
enum zo_status
zo_trainer_copy_open(struct zo_trainer *trainer,
                     struct zo_trainer_copy **copy_out) ZO_MUST_CHECK;
enum zo_status
zo_trainer_copy_save(const struct zo_trainer_copy *copy,
                     const struct zo_state_write_options *options,
                     struct zo_state_written *written_out) ZO_MUST_CHECK;
void zo_trainer_copy_close(struct zo_trainer_copy *copy); /* NULL is allowed */

/*
 * Behind start, instead of loading weights: continues where a state stands.
 * The next step to run is the one behind it, whatever first_step was.
 *
 *   ZO_E_CONFIG    it is the state of another model
 *   ZO_E_CORRUPT   it is damaged; another one may be tried
 */
enum zo_status zo_trainer_restore(struct zo_trainer *trainer,
                                  const struct zo_state *state) ZO_MUST_CHECK;

/* Loss over all of eval_batches.  step and is_best are left to the caller. */
enum zo_status
zo_trainer_evaluate(struct zo_trainer *trainer,
                    struct zo_eval_metrics *metrics_out) ZO_MUST_CHECK;

/* The same, telling after each batch what rows, tokens and seconds it took so
 * far. */
typedef void (*zo_evaluated_fn)(void *context,
                                const struct zo_eval_metrics *so_far);
enum zo_status
zo_trainer_evaluate_told(struct zo_trainer *trainer, zo_evaluated_fn tell,
                         void *context,
                         struct zo_eval_metrics *metrics_out) ZO_MUST_CHECK;

/*
 * For tests: the gradient of a parameter in the last step, fp32, from the
 * first device.
 */
enum zo_status zo_trainer_gradient(const struct zo_trainer *trainer,
                                   size_t parameter,
                                   float *target) ZO_MUST_CHECK;

ZO_C_END

#endif
