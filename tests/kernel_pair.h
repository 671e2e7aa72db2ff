/*
 * One operation on two devices: the host, which is the oracle, and a GPU.
 *
 * A trial holds the arrays of one call.  trial_run() gives both sides the
 * same inputs and outputs full of NaN, runs the operation on both, compares
 * each output within the bound that kernels.h promises, and runs it once more
 * on the GPU, where the bits must be the same.
 */
#ifndef ZO_TESTS_KERNEL_PAIR_H
#define ZO_TESTS_KERNEL_PAIR_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "src/base/pool.h"
#include "src/device/device.h"
#include "tests/tap.h"

enum { HOST, CUDA, SIDES };

struct side {
    const struct zo_device_ops *device_ops;
    const struct zo_kernel_ops *ops;
    struct zo_device *device;
    struct zo_stream *stream;
    struct zo_kernels *kernels;
};

struct pair {
    struct side sides[SIDES];
    struct zo_pool *pool;
};

enum role {
    ROLE_IN,
    ROLE_OUT,   /* starts as NaN */
    ROLE_INOUT, /* starts with data */
    ROLE_WORK,  /* starts as NaN and is not looked at */
};

/* Elements are of a number type, or plain bytes. */
#define BYTES 100

#define EXACT (-1.0) /* a bound: the same bits */

struct array {
    const char *name;
    int type; /* enum zo_dtype, or BYTES */
    int64_t count;
    enum role role;
    double bound; /* on |got - want|, relative to the largest |want| */
    void *initial;
    void *got[SIDES];
    void *at[SIDES]; /* in the memory of each side */
};

#define ARRAYS_MAX 16

struct trial {
    struct pair *pair;
    struct array arrays[ARRAYS_MAX];
    size_t count;
    char label[160];
    bool is_broken;
};

typedef enum zo_status (*trial_fn)(const struct side *side, int which,
                                   const struct trial *trial,
                                   const void *shape);

/* ---- numbers --------------------------------------------------------- */

static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* -1 .. 1 */
static inline float next_float(uint64_t *state)
{
    return (float)((double)(next_random(state) >> 11) * 0x1p-52 - 1.0);
}

static inline size_t type_bytes(int type)
{
    return type == BYTES ? 1 : zo_dtype_bytes((enum zo_dtype)type);
}

/* Half of what the type's rounding may change, relative to the largest. */
static inline double type_bound(int type)
{
    return type == ZO_BF16 ? 0x1p-8 : type == ZO_F16 ? 0x1p-11 : 0.0;
}

/* Both sides may miss the true result by the bound of kernels.h, for sums of
 * `terms` products. */
static inline double bound_of(int type, int64_t terms)
{
    const double grown = terms > 64 ? sqrt((double)terms / 64.0) : 1.0;

    return 2.0 * (ZO_F32_BOUND * grown + type_bound(type));
}

/* ---- the two sides --------------------------------------------------- */

/* False, with the case marked as skipped or failed, when there is no pair. */
static inline bool pair_open(struct pair *pair)
{
    const struct zo_kernels_options options = {.pool = pair->pool};
    const struct zo_device_options device_options = {.pool = pair->pool};

    for (int s = 0; s < SIDES; s++) {
        struct side *side = &pair->sides[s];

        side->device_ops = s == HOST ? &zo_device_host : &zo_device_cuda;
        side->ops = s == HOST ? &zo_kernels_host : &zo_kernels_cuda;
        if (side->device_ops->open(0, &device_options, &side->device) !=
                ZO_OK ||
            side->device_ops->stream_open(side->device, "test",
                                          &side->stream) != ZO_OK ||
            side->ops->open(side->device, &options, &side->kernels) != ZO_OK) {
            return false;
        }
    }
    return true;
}

static inline bool pair_ready(struct pair *pair)
{
    int count = 0;

    if (getenv("ZERO_OFFLOAD_GPU") == NULL) {
        tap_skip("ZERO_OFFLOAD_GPU is not set");
        return false;
    }
    if (zo_device_cuda.count(&count) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
        return false;
    }
    if (count == 0) {
        tap_skip("no CUDA device");
        return false;
    }
    if (pair->sides[CUDA].kernels != NULL) {
        return true;
    }
    if (zo_pool_open(zo_cpu_count() - 1, &pair->pool) != ZO_OK ||
        !pair_open(pair)) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
        return false;
    }
    return true;
}

static inline void pair_close(struct pair *pair)
{
    for (int s = 0; s < SIDES; s++) {
        struct side *side = &pair->sides[s];

        if (side->device_ops != NULL) {
            side->ops->close(side->kernels);
            side->device_ops->stream_close(side->stream);
            side->device_ops->close(side->device);
        }
    }
    zo_pool_close(pair->pool);
}

/* ---- arrays ---------------------------------------------------------- */

static inline void trial_fail(struct trial *trial, const char *format, ...)
{
    char text[400];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    tap_fail(__FILE__, __LINE__, "%s: %s", trial->label, text);
    trial->is_broken = true;
}

static inline void trial_begin(struct trial *trial, struct pair *pair,
                               const char *format, ...)
{
    va_list args;

    memset(trial, 0, sizeof(*trial));
    trial->pair = pair;
    va_start(args, format);
    (void)vsnprintf(trial->label, sizeof(trial->label), format, args);
    va_end(args);
}

/* A new array, the next index; its data are all zero (ROLE_IN and _INOUT). */
static inline struct array *trial_add(struct trial *trial, const char *name,
                                      int type, int64_t count, enum role role,
                                      double bound)
{
    struct array *array = &trial->arrays[trial->count++];
    const size_t bytes = (size_t)count * type_bytes(type);

    *array = (struct array){name, type, count, role, bound, NULL, {0}, {0}};
    array->initial = calloc(1, bytes + 1);
    if (role == ROLE_OUT || role == ROLE_WORK) {
        memset(array->initial, 0xff, bytes);
    }
    for (int s = 0; s < SIDES; s++) {
        const struct side *side = &trial->pair->sides[s];

        array->got[s] = calloc(1, bytes + 1);
        if (side->device_ops->mem_alloc(side->device, ZO_MEM_DEVICE, name,
                                        bytes, &array->at[s]) != ZO_OK) {
            trial_fail(trial, "%s", zo_err_last()->text);
        }
    }
    return array;
}

static inline void fill_random(struct array *array, uint64_t *state,
                               float scale)
{
    for (int64_t i = 0; i < array->count; i++) {
        zo_store(array->initial, (enum zo_dtype)array->type, i,
                 scale * next_float(state));
    }
}

static inline void trial_end(struct trial *trial)
{
    for (size_t i = 0; i < trial->count; i++) {
        struct array *array = &trial->arrays[i];
        const size_t bytes = (size_t)array->count * type_bytes(array->type);

        for (int s = 0; s < SIDES; s++) {
            const struct side *side = &trial->pair->sides[s];

            side->device_ops->mem_free(side->device, ZO_MEM_DEVICE,
                                       array->at[s], bytes);
            free(array->got[s]);
        }
        free(array->initial);
    }
}

/* ---- running --------------------------------------------------------- */

static inline bool run_side(struct trial *trial, int s, trial_fn run,
                            const void *shape)
{
    const struct side *side = &trial->pair->sides[s];
    enum zo_status status = ZO_OK;

    for (size_t i = 0; i < trial->count && status == ZO_OK; i++) {
        const struct array *array = &trial->arrays[i];

        status = side->device_ops->copy(
            side->stream, array->at[s], array->initial,
            (size_t)array->count * type_bytes(array->type));
    }
    status = status == ZO_OK ? run(side, s, trial, shape) : status;
    for (size_t i = 0; i < trial->count && status == ZO_OK; i++) {
        struct array *array = &trial->arrays[i];

        status = side->device_ops->copy(
            side->stream, array->got[s], array->at[s],
            (size_t)array->count * type_bytes(array->type));
    }
    status =
        status == ZO_OK ? side->device_ops->stream_sync(side->stream) : status;
    if (status != ZO_OK) {
        trial_fail(trial, "%s: %s", s == HOST ? "host" : "cuda",
                   zo_err_last()->text);
    }
    return status == ZO_OK;
}

/* Which NaN comes out of an operation is the processor's affair. */
static inline bool both_are_nan(const struct array *array, const void *want,
                                int64_t i)
{
    const enum zo_dtype type = (enum zo_dtype)array->type;

    return array->type != BYTES && isnan(zo_load(array->got[CUDA], type, i)) &&
           isnan(zo_load(want, type, i));
}

static inline void compare_bits(struct trial *trial, const struct array *array,
                                const void *want, const char *with)
{
    const size_t size = type_bytes(array->type);

    for (int64_t i = 0; i < array->count; i++) {
        const size_t at = (size_t)i * size;

        if (memcmp((const char *)array->got[CUDA] + at, (const char *)want + at,
                   size) != 0 &&
            !both_are_nan(array, want, i)) {
            trial_fail(
                trial, "%s: other bits than %s, first in element %lld of %lld",
                array->name, with, (long long)i, (long long)array->count);
            return;
        }
    }
}

static inline void compare_values(struct trial *trial,
                                  const struct array *array)
{
    const enum zo_dtype type = (enum zo_dtype)array->type;
    double largest = 0.0;

    for (int64_t i = 0; i < array->count; i++) {
        largest =
            fmax(largest, fabs((double)zo_load(array->got[HOST], type, i)));
    }
    for (int64_t i = 0; i < array->count; i++) {
        const double want = zo_load(array->got[HOST], type, i);
        const double got = zo_load(array->got[CUDA], type, i);

        /* So that a NaN fails too, but for one that is wanted. */
        if (!(fabs(got - want) <= array->bound * largest) &&
            !(isnan(got) && isnan(want)) && got != want) {
            trial_fail(trial,
                       "%s[%lld]: %.9g, want %.9g; largest %.9g, %.3g "
                       "of the bound",
                       array->name, (long long)i, got, want, largest,
                       fabs(got - want) / (array->bound * largest));
            return;
        }
    }
}

static inline void compare_all(struct trial *trial)
{
    for (size_t i = 0; i < trial->count; i++) {
        const struct array *array = &trial->arrays[i];

        if (array->role == ROLE_OUT || array->role == ROLE_INOUT) {
            if (array->bound == EXACT) {
                compare_bits(trial, array, array->got[HOST], "the host");
            } else {
                compare_values(trial, array);
            }
        }
    }
}

/* The GPU once more: the same bits. */
static inline void repeat(struct trial *trial, trial_fn run, const void *shape)
{
    void *before[ARRAYS_MAX] = {NULL};

    for (size_t i = 0; i < trial->count; i++) {
        const struct array *array = &trial->arrays[i];
        const size_t bytes = (size_t)array->count * type_bytes(array->type);

        before[i] = malloc(bytes + 1);
        memcpy(before[i], array->got[CUDA], bytes);
    }
    if (run_side(trial, CUDA, run, shape)) {
        for (size_t i = 0; i < trial->count; i++) {
            if (trial->arrays[i].role != ROLE_WORK) {
                compare_bits(trial, &trial->arrays[i], before[i], "before");
            }
        }
    }
    for (size_t i = 0; i < trial->count; i++) {
        free(before[i]);
    }
}

/* Runs, compares, ends the trial.  False when it failed. */
static inline bool trial_run(struct trial *trial, trial_fn run,
                             const void *shape)
{
    if (!trial->is_broken && run_side(trial, HOST, run, shape) &&
        run_side(trial, CUDA, run, shape)) {
        compare_all(trial);
        repeat(trial, run, shape);
    }
    trial_end(trial);
    return !trial->is_broken;
}

#endif
