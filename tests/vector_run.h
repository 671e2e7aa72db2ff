/*
 * A run of a tiny model, set up as train sets one up: options, DeepSpeed's
 * JSON, rows of ids from a file, a trainer; and the official vectors that
 * its numbers are held against.
 *
 * A helper that cannot do its work ends the test program: no check after it
 * would mean anything.
 */
#ifndef ZO_TESTS_VECTOR_RUN_H
#define ZO_TESTS_VECTOR_RUN_H

#include "src/train/trainer.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"

#define TINY_STEPS_MAX 64

struct tiny_settings {
    const char *model;       /* a directory */
    const char *rows;        /* JSON lines of input_ids and labels */
    const char *json;        /* DeepSpeed's; NULL: none */
    const char *const *args; /* further options; ends with NULL; or NULL */
    int64_t steps;
    bool on_gpu; /* or on the host */
    bool is_serial, poisons;
};

/* What was told of a step. */
struct tiny_step {
    double loss, grad_norm, clip, learning_rate, loss_scale;
    bool overflow;
};

/* All zero is empty; may not be moved while open. */
struct vector_run {
    struct zo_notes notes;
    struct zo_options options;
    struct zo_model_config model;
    struct zo_devices devices;
    struct zo_run_config config;
    struct zo_dataset *data;
    struct zo_batches *batches, *eval_batches; /* of the same rows */
    struct zo_trainer *trainer;
    struct tiny_step steps[TINY_STEPS_MAX];
    int64_t step_count;
};

/* False, and the test case skipped, unless ZERO_OFFLOAD_GPU asks for a GPU
 * and there is one. */
bool tiny_has_gpu(void);

/* Opens, starts and loads. */
void tiny_open(struct vector_run *run, const struct tiny_settings *settings);
/* The same in two parts: loading may fail. */
void tiny_start(struct vector_run *run, const struct tiny_settings *settings);
enum zo_status tiny_load(struct vector_run *run,
                         const char *model) ZO_MUST_CHECK;
enum zo_status tiny_train(struct vector_run *run) ZO_MUST_CHECK;
void tiny_close(struct vector_run *run);

/* A model directory of links, "NAME" in the temporary folder; its path. */
const char *tiny_model(const char *name, const char *config,
                       const char *weights);

/* One of the two official models, with rows and what they should give. */
#define TINY_NO_VECTORS "the shared folder's vectors are not there"
struct tiny_case {
    const char *model, *rows;
    struct zo_tensor_source *train;
};

/* False, and the test case skipped, when there are no vectors. */
bool tiny_open_fp32(struct tiny_case *vectors);
bool tiny_open_fp16_bin(struct tiny_case *vectors);
void tiny_close_case(struct tiny_case *vectors);

/* A file of vectors; ended with zo_tensor_source_close(). */
struct zo_tensor_source *tiny_vectors(const char *path);

/* A tensor's shape and values, in one allocation; ended with free(). */
struct tiny_floats {
    int64_t shape[3];
    size_t count;
    float values[];
};
struct tiny_ints {
    int64_t shape[3];
    size_t count;
    int64_t values[];
};
struct tiny_floats *tiny_floats(const struct zo_tensor_source *source,
                                const char *name);
struct tiny_ints *tiny_ints(const struct zo_tensor_source *source,
                            const char *name);

/*
 * Writes input_ids and labels of `source` without their padding as "NAME" in
 * the temporary folder; its path.
 */
const char *tiny_rows(const char *name, const struct zo_tensor_source *source);

double tiny_largest_gap(const float *got, const float *want, size_t count);

/*
 * A bias of keys in a dimension that is not rotated: it adds the same to all
 * scores of a query, so its gradient is zero but for rounding, which AdamW
 * blows up to full steps.
 */
bool tiny_is_idle(const struct zo_model_config *model, const char *name,
                  int64_t elem);

/* How far the parameters of a run are from tensors "PREFIX<their name>". */
struct tiny_gap {
    double relative; /* L2, of the worst tensor, without idle elements */
    double idle;     /* the largest magnitude read of an idle element */
    char name[ZO_PARAMETER_NAME_BYTES]; /* the worst tensor */
};
typedef enum zo_status (*tiny_read_fn)(const struct vector_run *run,
                                       size_t parameter, float *target);
enum zo_status tiny_read_weight(const struct vector_run *run, size_t parameter,
                                float *target);
enum zo_status tiny_read_gradient(const struct vector_run *run,
                                  size_t parameter, float *target);
struct tiny_gap tiny_gap(const struct vector_run *run, tiny_read_fn read,
                         const struct zo_tensor_source *source,
                         const char *prefix);

/* All weights of two runs have the same bits. */
bool tiny_same_weights(const struct vector_run *a, const struct vector_run *b);

#define TINY_CHECK_WITHIN(gap, bound)                                     \
    do {                                                                  \
        const double tiny_gap_ = (gap), tiny_bound_ = (bound);            \
        if (!(tiny_gap_ <= tiny_bound_)) { /* a NaN is not within */      \
            tap_fail(__FILE__, __LINE__, "%s: %g, want at most %g", #gap, \
                     tiny_gap_, tiny_bound_);                             \
            return;                                                       \
        }                                                                 \
    } while (0)

#endif
