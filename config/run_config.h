/*
 * A run, fully resolved and checked: DeepSpeed's JSON, the command line, the
 * number of devices and what is known of the model, in one struct.
 *
 * Layer 1.  Meanings are DeepSpeed's (0.19.6) unless a key's `differs` says
 * otherwise (config_options.h).  Precedence: --set over the JSON; the JSON
 * over defaults; an option stands in where the JSON says "auto" or nothing;
 * an option that was given and contradicts the JSON is an error.
 *
 * Life cycle: read, then finish once the number of steps is known, then fini.
 */
#ifndef ZO_CONFIG_RUN_CONFIG_H
#define ZO_CONFIG_RUN_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/cli_options.h"
#include "src/base/dtype.h"
#include "src/base/notes.h"
#include "src/base/status.h"

ZO_C_BEGIN

/* The slowest tier that a state may use. */
enum zo_home_limit {
    ZO_HOME_PLANNED, /* the JSON is silent: the planner places */
    ZO_HOME_GPU,     /* "none", or stage 0 */
    ZO_HOME_CPU,
    ZO_HOME_NVME
};

enum zo_loss_reduction {
    ZO_LOSS_PER_TOKEN,      /* mean over the label tokens of the step */
    ZO_LOSS_PER_MICRO_BATCH /* DeepSpeed's mean of means */
};

enum zo_rope_precision {
    ZO_ROPE_PRECISION_FP32, /* angles in fp32 */
    ZO_ROPE_PRECISION_MODEL /* as the model's official code */
};

enum zo_recompute {
    ZO_RECOMPUTE_AUTO,  /* the planner decides */
    ZO_RECOMPUTE_NONE,  /* everything of a layer is kept */
    ZO_RECOMPUTE_CHEAP, /* what costs little is computed again */
    ZO_RECOMPUTE_LAYER  /* only a layer's input is kept */
};

enum zo_schedule_type {
    ZO_SCHEDULE_WARMUP,        /* DeepSpeed's WarmupLR */
    ZO_SCHEDULE_WARMUP_DECAY,  /* WarmupDecayLR */
    ZO_SCHEDULE_WARMUP_COSINE, /* WarmupCosineLR */
    ZO_SCHEDULE_ONE_CYCLE,     /* OneCycle */
    ZO_SCHEDULE_LINEAR,        /* Hugging Face's four */
    ZO_SCHEDULE_COSINE,
    ZO_SCHEDULE_CONSTANT,
    ZO_SCHEDULE_CONSTANT_WITH_WARMUP
};

#define ZO_STEPS_UNKNOWN (-1) /* until zo_run_config_finish() */

/* fp16 only.  DeepSpeed's scaler of stages 1 to 3, at every stage. */
struct zo_run_loss_scale {
    double static_scale;         /* 0: dynamic */
    int64_t initial_scale_power; /* the first scale is 2 to this */
    int64_t window;              /* good steps before it doubles */
    int64_t hysteresis;          /* overflows before it halves */
    bool consecutive_hysteresis; /* each good step refills it */
    double min_scale;            /* > 0 */
};

struct zo_run_optimizer {
    double learning_rate;
    double beta1, beta2;
    double epsilon;
    double weight_decay;        /* decoupled */
    bool decay_all;             /* also norms and biases */
    enum zo_dtype moment_dtype; /* ZO_F32 or ZO_BF16 */
};

/* DeepSpeed's: fewer steps of a warm-up count as so many, so that the
 * logarithm of their number is above 0. */
#define ZO_WARMUP_STEPS_MIN 2

struct zo_run_schedule {
    enum zo_schedule_type type;
    double learning_rate; /* of the optimizer: top of HF's and of cosine */
    int64_t total_steps;  /* ZO_STEPS_UNKNOWN until finish; of the shape */
    int64_t warmup_steps; /* likewise, when it is a ratio of the total */
    double warmup_ratio;  /* what warmup_steps comes from; else 0 */

    /* WarmupLR, WarmupDecayLR */
    double warmup_min_lr, warmup_max_lr;
    bool warmup_is_linear; /* else logarithmic; also WarmupCosineLR */

    /* WarmupCosineLR */
    double warmup_min_ratio, cos_min_ratio;

    /* OneCycle; steps are optimizer steps */
    double cycle_min_lr, cycle_max_lr;
    double decay_lr_rate;
    int64_t cycle_first_steps, cycle_second_steps;
    int64_t cycle_first_stairs, cycle_second_stairs; /* 0: none */
    int64_t decay_step_size;                         /* 0: no decay */
    bool cycle_momentum; /* beta1 cycles, beta2 is 0.99 */
    double cycle_min_momentum, cycle_max_momentum;
    double decay_momentum_rate;
};

struct zo_run_offload {
    enum zo_home_limit limit;
    const char *nvme_path;     /* NULL unless limit is ZO_HOME_NVME or --nvme */
    bool pin_memory;           /* [true]; false: pageable, staged in a ring */
    bool pins_as_asked;        /* the JSON says so: nothing else will do */
    int64_t buffer_count;      /* 5 of parameters, 4 of the optimizer */
    int64_t buffer_size_elems; /* parameters only; a tile, not a limit */
    int64_t max_in_cpu_elems;  /* parameters only */
    double ratio;              /* optimizer only: share that may be offloaded */
};

/* Sizes are elements.  None of them changes a bit of the result. */
struct zo_run_zero {
    int stage; /* 0 to 3 */
    struct zo_run_offload optimizer, param;
    int64_t sub_group_size;
    int64_t reduce_bucket_size;
    int64_t prefetch_bucket_size;
    int64_t param_persistence_threshold;
    int64_t max_live_parameters, max_reuse_distance;
    /* Whether the JSON names a value of its own, neither "auto" nor what is
     * the default anyway. */
    bool asks_prefetch, asks_max_live, asks_reuse;
    bool overlap_comm;
};

/* Of the store on NVMe; 0: it chooses. */
struct zo_run_aio {
    int64_t block_size_bytes, queue_depth, intra_op_parallelism;
};

struct zo_run_activations {
    bool cpu_checkpointing; /* boundary activations live on the host */
    enum zo_recompute recompute;
};

/* A section of a monitor that DeepSpeed writes to; NULL: not named. */
struct zo_run_monitor {
    bool is_enabled;
    const char *output_path;            /* NULL: in --output */
    const char *job_name;               /* never NULL; not of wandb */
    const char *group, *team, *project; /* wandb */
};

struct zo_run_config {
    struct zo_json_doc *document; /* owned; lends the strings below */
    bool has_config;              /* there was a --config */

    /* Batches: train = micro x accumulation x devices. */
    int64_t num_devices;
    int64_t micro_batch_rows; /* rows of a device in a forward */
    int64_t gradient_accumulation_steps;
    int64_t train_batch_rows; /* rows of an optimizer step */
    int64_t eval_micro_batch_rows;

    /* Numbers. */
    enum zo_dtype dtype; /* of compute and of the stored weights */
    bool dtype_is_given; /* by the JSON or an option; else the facts' */
    struct zo_run_loss_scale loss_scale; /* meaningful when dtype is fp16 */
    bool check_grad_overflow; /* true in fp16; bf16: as asked [false] */
    double gradient_clipping; /* largest norm; 0: off */
    enum zo_dtype communication_dtype; /* what devices exchange gradients in */
    enum zo_dtype grad_accum_dtype;    /* [fp32] */
    enum zo_loss_reduction loss_reduction;
    enum zo_rope_precision rope_precision;

    struct zo_run_optimizer optimizer;
    struct zo_run_schedule schedule;
    struct zo_run_zero zero;
    struct zo_run_activations activations;
    struct zo_run_aio aio;

    /* Our own keys. */
    bool fill;              /* use spare memory of faster tiers [true] */
    bool nvme_verify;       /* check a hash of what NVMe returns [true] */
    bool nvme_allow_memory; /* a folder in memory will do [false] */
    int64_t max_skips;      /* bad steps in a row before the run stops */

    int64_t steps_per_print; /* from the JSON, else --logging-steps */
    bool drop_last;          /* leave out an epoch's last, smaller step */
    struct zo_run_monitor tensorboard, csv_monitor, wandb;

    /* Where the run ends: max_steps, or 0 and epochs. */
    int64_t max_steps;
    double num_train_epochs;
    int64_t seed;

    /* The command line, for what it alone decides.  Borrowed. */
    const struct zo_options *options;
};

/* What must be known before the JSON can be resolved. */
struct zo_run_facts {
    int64_t num_devices; /* >= 1 */
    int64_t hidden_size; /* for "auto" bucket sizes; 0: not known */
    enum zo_dtype dtype; /* where neither JSON nor options say one [fp32] */
};

/*
 * Reads options->config (if any), applies --set, resolves and checks.
 * `options` is borrowed until fini.  Notes tell what was translated, ignored,
 * converted or taken from "auto", a line each.
 *
 *   ZO_E_USAGE    the file cannot be opened; --set is malformed
 *   ZO_E_CONFIG   refused: NAME:LINE:COLUMN, the key, wanted and found
 */
enum zo_status
zo_run_config_read(const struct zo_options *options,
                   const struct zo_run_facts *facts, struct zo_notes *notes,
                   struct zo_run_config *config_out) ZO_MUST_CHECK;

/* The same from text instead of options->config. */
enum zo_status
zo_run_config_parse(const char *name, const char *text, size_t size_bytes,
                    const struct zo_options *options,
                    const struct zo_run_facts *facts, struct zo_notes *notes,
                    struct zo_run_config *config_out) ZO_MUST_CHECK;

/*
 * Fills what depends on the number of optimizer steps of the whole run:
 * schedule.total_steps and schedule.warmup_steps.
 *
 *   ZO_E_CONFIG   the schedule's warm-up is longer than the schedule
 */
enum zo_status zo_run_config_finish(struct zo_run_config *config,
                                    int64_t total_steps,
                                    struct zo_notes *notes) ZO_MUST_CHECK;

/*
 * Adds lines that say what the run will do: batch, precision, clipping,
 * overflow check, optimizer, schedule, stage and homes.
 */
enum zo_status zo_run_config_describe(const struct zo_run_config *config,
                                      struct zo_notes *notes) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_run_config_fini(struct zo_run_config *config);

/* "WarmupLR", "linear", ... */
const char *zo_schedule_type_name(enum zo_schedule_type type);
/* As in the JSON, but for "planned": there it is silent. */
const char *zo_home_limit_name(enum zo_home_limit limit);
const char *zo_loss_reduction_name(enum zo_loss_reduction reduction);

ZO_C_END

#endif
