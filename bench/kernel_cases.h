/*
 * The calls that bench_kernels times: one operation at one shape each.
 * Row 8, private to bench_kernels.
 */
#ifndef ZO_BENCH_KERNEL_CASES_H
#define ZO_BENCH_KERNEL_CASES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/kernels.h"
#include "src/device/device.h"

#define SLAB_BYTES    ((size_t)10 << 30) /* of each kind of data */
#define PATTERN_BYTES ((size_t)64 << 20) /* random, then repeated */
#define SETS          4

enum slab { SMALL, WIDE, INDEX, RESULT, SLABS }; /* bf16, fp32, int32, out */

struct bench {
    const struct zo_device_ops *device_ops;
    const struct zo_kernel_ops *ops;
    struct zo_device *device;
    struct zo_stream *stream;
    struct zo_kernels *kernels;
    char *slabs[SLABS];
    size_t used[SLABS]; /* of the set that is being laid out */
    int64_t tokens;
    int samples, set;
    double copy_gbps, product_tflops;
    void *checked; /* an output of the case */
    size_t checked_bytes;
    FILE *json;
    bool is_wrong;
};

/* What a case calls; `set` says which arrays. */
typedef enum zo_status (*case_fn)(struct bench *bench, const int64_t *shape);

struct bench_case {
    const char *name;
    case_fn run;
    int64_t shape[4];
    double bytes, flops; /* of a call; 0: not the bound */
};

#define CASES_MAX 64

/* Fills cases[CASES_MAX] for a batch of `tokens`; returns their number. */
size_t zo_kernel_cases(struct bench_case *cases, int64_t tokens);

/* The copy within device memory, and products: what roofs are made of. */
bool zo_kernel_case_is_copy(const struct bench_case *bench_case);
bool zo_kernel_case_is_product(const struct bench_case *bench_case);

/* Puts in place what a case reads beside random data, for every set. */
enum zo_status zo_kernel_case_prepare(struct bench *bench,
                                      const struct bench_case *bench_case,
                                      int sets) ZO_MUST_CHECK;

#endif
