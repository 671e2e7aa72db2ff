/*
 * What the trainer's files share.  Row 7, private to src/train/trainer*.c.
 */
#ifndef ZO_SRC_TRAIN_TRAINER_INTERNAL_H
#define ZO_SRC_TRAIN_TRAINER_INTERNAL_H

#include "src/train/feed.h"
#include "src/train/trainer.h"

ZO_C_BEGIN

/* A step that was started and whose result has not been read. */
struct started {
    bool is_under_way;
    uint64_t ticket;
    int slot;
    int64_t step;
    struct zo_batches_step batch;
};

/* A list of a step that a trace may want, though it fails on its way. */
struct under_way {
    int64_t step; /* 0: none */
    int64_t begin_ns;
};

/* A copy of the states behind a step, on its way. */
struct copying {
    enum { COPY_NONE, COPY_WANTED, COPY_STARTED } stage;
    int64_t step;
    uint64_t ticket; /* COPY_STARTED */
};

struct zo_trainer {
    struct zo_trainer_options options;
    struct zo_glm *glm;
    struct zo_place place; /* empty when a test has chosen */
    struct zo_build build;
    bool is_built;
    struct zo_executor *executor;
    struct zo_decider decider;
    struct zo_feed feed;
    bool has_update;         /* the last step's update has yet to run */
    int64_t updates_started; /* steps started, when none can be skipped */
    struct started last;
    int64_t last_told; /* step */
    int64_t last_done_ns;
    int64_t tokens_total;
    double best_loss;
    struct under_way under_way[2]; /* one a slot */
    uint64_t gpu_bytes[ZO_DEVICES_MAX];
    struct zo_trainer_copy *copy; /* borrowed; NULL: saves wait for the end of
                                     what is under way */
    struct copying copying;
};

/* trainer_state.c: where the run stood behind the step of the copy, which has
 * just been told. */
void zo_trainer_describe_copy(const struct zo_trainer *trainer);

/* trainer_plan.c: the model's units, and the program that fits. */
struct zo_glm_batch
zo_trainer_batch_layout(const struct zo_trainer_options *options);
enum zo_status
zo_trainer_check_length(const struct zo_trainer_options *options) ZO_MUST_CHECK;
enum zo_status zo_trainer_open_glm(struct zo_trainer *trainer) ZO_MUST_CHECK;
/* Workers of the CPU engine. */
int zo_trainer_workers(const struct zo_trainer_options *options);
/* What does not fit is built all the same, for its plan. */
enum zo_status
zo_trainer_build_what_fits(struct zo_trainer *trainer) ZO_MUST_CHECK;

ZO_C_END

#endif
