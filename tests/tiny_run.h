/*
 * Runs over a tiny random model, put together as the program does it: options
 * and JSON parsed, rows of token ids in a file, virtual host devices, the
 * trainer.  Everything lies in the folder of model_fixtures.h.
 */
#ifndef ZO_TESTS_TINY_RUN_H
#define ZO_TESTS_TINY_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/checkpoint/model_dir.h"
#include "src/data/dataset.h"
#include "src/train/trainer.h"

#define TINY_STEPS_MAX  40
#define TINY_STEP_ROWS  12 /* of all devices and micro batches together */
#define TINY_PARAMETERS 6032

/* Fields left at 0 take the default in brackets. */
struct tiny_knobs {
    int devices;      /* [1] */
    int accumulation; /* [1] */
    int micro_rows;   /* [what makes a step of TINY_STEP_ROWS rows] */
    int threads;      /* [2] */
    int first_row;    /* of the endless list of rows, that the file begins
                         with [0] */
    int rows;         /* of the file [29]: steps of 12, 12 and 5 rows */
    int eval_rows;    /* of the evaluation file, from its own first_row */
    int eval_first_row;
    int steps; /* [8] */
    int64_t eval_every;
    bool evaluates_only;
    bool shuffles;
    const char *json;          /* members of the DeepSpeed JSON, "\"a\": 1" */
    const char *learning_rate; /* [1e-3] */
    uint32_t delay_us_max;     /* random delays in the streams */
    uint64_t delay_seed;
    bool is_serial;
    bool poisons; /* and is serial: all that tiny_lacks_poison() leaves */
    bool on_gpu;
    int stage;            /* ZeRO's; with it, of the same section: */
    int64_t bucket_elems; /* reduce_bucket_size [DeepSpeed's] */
    bool waits_for_comm;  /* overlap_comm false */
    uint64_t fail_at_op;
    bool records_times;
    struct zo_trace *trace; /* borrowed; opened, with records_times */
    uint64_t gpu_memory_bytes, host_memory_bytes, nvme_bytes;
    const struct zo_nvme_options *nvme;   /* borrowed [as configured] */
    const struct zo_placement *placement; /* borrowed [planned] */
    enum zo_simd simd;
    int cpu_threads;
    bool keeps_gradients; /* tiny_whole_numbers() sets it */
};

/* Ended with tiny_close() at any point; all zero is empty. */
struct tiny_run {
    struct tiny_knobs knobs;
    struct zo_notes notes;
    struct zo_options options;
    bool has_options;
    struct zo_model_config model;
    struct zo_devices devices;
    struct zo_run_config config;
    struct zo_dataset *data, *eval_data;
    struct zo_batches *batches, *eval_batches;
    struct zo_batches_bounds bounds;
    int64_t positions_max;
    struct zo_model_dir *dir;
    struct zo_trainer *trainer;
    char texts[6][32]; /* that options borrow */
};

/* What a run said and left. */
struct tiny_result {
    int64_t steps_done; /* as zo_trainer_run() says */
    int step_count, eval_count;
    struct zo_step_metrics step[TINY_STEPS_MAX];
    struct zo_eval_metrics eval[TINY_STEPS_MAX];
    uint64_t state;     /* a hash of every state */
    bool devices_agree; /* the other devices have the same states */
};

/* make check-gpu sets ZERO_OFFLOAD_GPU: tests then run on GPUs. */
bool tiny_wants_gpu(void);
/* Why so many devices cannot be had then; NULL: they can. */
const char *tiny_lacks(int devices);
/* Before the first device is opened: where there are fewer GPUs than that,
 * several devices share one. */
void tiny_share_gpus(int devices);
/* Why runs that should poison are only serial; NULL: they poison. */
const char *tiny_lacks_poison(void);

/* Devices, configuration and rows; then the trainer, planned. */
enum zo_status tiny_open_machine(const struct tiny_knobs *knobs,
                                 struct tiny_run *run) ZO_MUST_CHECK;
enum zo_status tiny_open_trainer(struct tiny_run *run) ZO_MUST_CHECK;
/* Both. */
enum zo_status tiny_open(const struct tiny_knobs *knobs,
                         struct tiny_run *run) ZO_MUST_CHECK;
/* Allocates, and loads the weights. */
enum zo_status tiny_start(struct tiny_run *run) ZO_MUST_CHECK;
/* Runs the steps; *result is filled as far as the run comes. */
enum zo_status tiny_train(struct tiny_run *run,
                          struct tiny_result *result) ZO_MUST_CHECK;
/* The trainer alone, or everything. */
void tiny_close_trainer(struct tiny_run *run);
void tiny_close(struct tiny_run *run);

/* From open to close. */
enum zo_status tiny_whole(const struct tiny_knobs *knobs,
                          struct tiny_result *result) ZO_MUST_CHECK;

/* Masters, and gradients of the last step, in the order of parameters. */
struct tiny_numbers {
    float weights[TINY_PARAMETERS], gradients[TINY_PARAMETERS];
};

enum zo_status tiny_weights(const struct tiny_run *run,
                            float *target) ZO_MUST_CHECK;
enum zo_status tiny_gradients(const struct tiny_run *run,
                              float *target) ZO_MUST_CHECK;

/* As tiny_whole(), and all numbers. */
enum zo_status tiny_whole_numbers(const struct tiny_knobs *knobs,
                                  struct tiny_result *result,
                                  struct tiny_numbers *numbers) ZO_MUST_CHECK;

/* The largest difference between TINY_PARAMETERS numbers. */
double tiny_distance(const float *a, const float *b);

/* A hash of every state (weights, masters, moments) on a device. */
enum zo_status tiny_state(const struct tiny_run *run, int device,
                          uint64_t *hash_out) ZO_MUST_CHECK;

/* Losses, norms and states are the same, to the bit. */
bool tiny_same_bits(const struct tiny_result *a, const struct tiny_result *b);

/* The largest difference between the losses of steps. */
double tiny_loss_distance(const struct tiny_result *a,
                          const struct tiny_result *b);

/* The path of the model's folder, made at the first call. */
const char *tiny_model_path(void);

/* The nth operation of a list with that name, unit (-1: any) and device (-1:
 * any); NULL when there is none.  Its `run` may be replaced before start. */
struct zo_op *tiny_find_op(const struct tiny_run *run, int schedule,
                           const char *name, int unit, int device, int nth);

#endif
