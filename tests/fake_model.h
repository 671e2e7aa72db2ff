/*
 * A model that computes nothing of use, for the builder: units of two small
 * tensors, and operations that hash what they read into what they write.  All
 * numbers that reach AdamW are finite, so that results are bits, not NaNs.
 */
#ifndef ZO_TESTS_FAKE_MODEL_H
#define ZO_TESTS_FAKE_MODEL_H

#include <stdint.h>

#include "offload/builder.h"
#include "offload/executor.h"

enum {
    FAKE_UNITS_MAX = 8,
    FAKE_MICROS_MAX = 6,
    FAKE_LABELS_MAX = 3,
    FAKE_BOUNDARY_BYTES = 72,
    FAKE_BATCH_BYTES = 40,
    FAKE_ROWS_MAX = 5, /* of unit 0, that a micro batch uses */
    FAKE_ROW_ELEMS = 4,
};

struct fake_shape {
    uint64_t seed; /* of the tensors' sizes */
    int units;     /* 2 .. FAKE_UNITS_MAX */
    int devices, micros;
    struct zo_placement placement; /* but for homes: */
    struct zo_unit_homes homes[FAKE_UNITS_MAX];
    bool reads_rows; /* forward of unit 0 does */
    bool fills_rows; /* every micro batch uses FAKE_ROWS_MAX of them */
    enum zo_dtype type, comm_type;
    bool decides, has_evaluation, evaluates_only;
    int64_t bucket_elems;
    int64_t large_elems; /* of unit 1; 0: small as the others */
    int large_units;     /* likewise of so many more */
    const struct zo_kernel_ops *kernel_ops; /* fake_kernels or the host's */
};

struct fake_model {
    struct fake_shape shape;
    struct zo_unit units[FAKE_UNITS_MAX];
    struct zo_unit_tensor tensors[FAKE_UNITS_MAX][2];
    zo_buffer_id table[ZO_DEVICES_MAX], workspace[ZO_DEVICES_MAX];
    zo_buffer_id kept[FAKE_UNITS_MAX][FAKE_MICROS_MAX][ZO_DEVICES_MAX];
    struct zo_build build; /* may not be moved */
    struct zo_decode_build decode;
};

/* Builds its program; ended with zo_build_fini(&model->build). */
enum zo_status fake_model_build(const struct fake_shape *shape,
                                struct fake_model *model);

/* The program of decoding on one device, with a cache or without; ended with
 * zo_decode_build_fini(&model->decode). */
enum zo_status fake_model_build_decode(const struct fake_shape *shape,
                                       bool has_cache,
                                       struct fake_model *model);

/* The operations that the builder uses, in few words. */
extern const struct zo_kernel_ops fake_kernels;

/* The same small weights on every device. */
enum zo_status fake_model_load(const struct fake_model *model,
                               struct zo_executor *executor);

/*
 * Starts the lists of the model's program, each with records and batches of
 * its own, and drains: 's' a step, 'e' an evaluation, 't' the tail.
 */
enum zo_status fake_model_run(const struct fake_model *model,
                              struct zo_executor *executor, const char *lists);

/* The same for decoding: 'p' a prompt, 't' a token. */
enum zo_status fake_model_run_decode(const struct fake_model *model,
                                     struct zo_executor *executor,
                                     const char *lists);

/* Hashes of what no placement may change: weights, masters and moments of the
 * first device; losses and norms of the latest two lists. */
uint64_t fake_model_states(const struct fake_model *model,
                           struct zo_executor *executor);
uint64_t fake_model_measured(const struct fake_model *model,
                             struct zo_executor *executor);

/* The schedule of 's', 'e' or 't'. */
int fake_model_list(const struct fake_model *model, char list);

#endif
