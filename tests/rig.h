/*
 * A device with its kernels, and arrays on it, for tests of operations.
 *
 * A test writes its cases once, against a rig; rig_everywhere() runs them on
 * every backend of this build, and on the host with several numbers of
 * threads and every instruction set, and fails when the bits differ; under
 * ThreadSanitizer on the host with several threads alone.
 */
#ifndef ZO_TESTS_RIG_H
#define ZO_TESTS_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/device/device.h"

enum rig_type {
    RIG_F32 = ZO_F32,
    RIG_BF16 = ZO_BF16,
    RIG_F16 = ZO_F16,
    RIG_I32,
    RIG_BYTES
};

/* An array in device memory and a copy of it on the host. */
struct rig_array {
    void *at; /* device */
    char *host;
    int64_t count;
    enum rig_type type;
    size_t bytes;
};

#define RIG_ARRAYS_MAX 64

struct rig {
    const struct zo_device_ops *device_ops;
    const struct zo_kernel_ops *ops;
    struct zo_pool *pool;
    struct zo_device *device;
    struct zo_kernels *kernels;
    struct zo_stream *stream;
    struct rig_array arrays[RIG_ARRAYS_MAX];
    int array_count;
    uint64_t random;
    uint64_t digest; /* of all outputs since open */
};

/* Runs the cases everywhere; they return early on a failure. */
void rig_everywhere(void (*cases)(struct rig *rig));

/* One host rig for other tests; false on a failure. */
bool rig_open_host(struct rig *rig, int workers);
void rig_close(struct rig *rig);

/* Arrays last until rig_clear().  Filled with 0x7b: numbers that are wrong
 * but finite, so that a place never written shows. */
struct rig_array *rig_array(struct rig *rig, enum rig_type type, int64_t count);
struct rig_array *rig_bytes(struct rig *rig, uint64_t bytes);
/* Uniform in -scale .. scale, rounded to the type. */
struct rig_array *rig_random(struct rig *rig, enum rig_type type, int64_t count,
                             double scale);
struct rig_array *rig_ints(struct rig *rig, const int32_t *values,
                           int64_t count);
void rig_clear(struct rig *rig);

/* Host copy to device, and back (waits). */
bool rig_upload(struct rig *rig, struct rig_array *array);
bool rig_download(struct rig *rig, struct rig_array *array);

double rig_get(const struct rig_array *array, int64_t index);
void rig_set(struct rig_array *array, int64_t index, double value);
double rig_uniform(struct rig *rig); /* 0 .. 1 */
int rig_below(struct rig *rig, int limit);

/*
 * Waits, fetches the array and compares it with want[count], relative to the
 * largest |want|: within f32_bound, and a rounding of the array's type more.
 */
bool rig_matches(struct rig *rig, const char *what, struct rig_array *array,
                 const double *want, double f32_bound);
/* Waits, fetches the array and adds it to the digest. */
bool rig_fetch(struct rig *rig, struct rig_array *array);

/* Zeros, or an array's host copy; ended with free(). */
double *rig_doubles(int64_t count);
double *rig_values(const struct rig_array *array);

/*
 * Central differences of sum(weight[j] * forward(x)[j]) in x: gradient must
 * be within 1e-6 of the largest.  x is put back.
 */
typedef void (*rig_forward_fn)(const void *self, const double *x, double *out);
bool rig_slopes_match(rig_forward_fn forward, const void *self, double *x,
                      int64_t x_count, const double *weight, int64_t out_count,
                      const double *gradient);

/* kernels.h: the bound of a product of `terms`. */
double rig_product_bound(int64_t terms);

#define RIG_CHECK(condition)                                        \
    do {                                                            \
        if (!(condition)) {                                         \
            tap_fail(__FILE__, __LINE__, "not so: %s", #condition); \
            return;                                                 \
        }                                                           \
    } while (0)

static const enum zo_dtype rig_types[] = {ZO_F32, ZO_BF16, ZO_F16};

#endif
