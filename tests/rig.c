#include "tests/rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/host/host.h"
#include "src/base/dtype.h"
#include "src/base/memory.h"
#include "tests/tap.h"

/* ---- random numbers -------------------------------------------------- */

static uint64_t random_next(struct rig *rig)
{
    uint64_t value = rig->random += 0x9e3779b97f4a7c15u; /* splitmix64 */

    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

double rig_uniform(struct rig *rig)
{
    return (double)(random_next(rig) >> 11) * 0x1p-53;
}

int rig_below(struct rig *rig, int limit)
{
    return (int)(random_next(rig) % (uint64_t)limit);
}

/* ---- open and close -------------------------------------------------- */

static bool rig_open(struct rig *rig, const struct zo_device_ops *device_ops,
                     const struct zo_kernel_ops *ops, int workers)
{
    struct zo_kernels_options options;
    struct zo_device_options device_options;

    memset(rig, 0, sizeof(*rig));
    rig->device_ops = device_ops;
    rig->ops = ops;
    rig->random = 1;
    rig->digest = 14695981039346656037u; /* FNV-1a */
    if (zo_pool_open(workers, &rig->pool) != ZO_OK) {
        return false;
    }
    device_options = (struct zo_device_options){.pool = rig->pool};
    options = (struct zo_kernels_options){.pool = rig->pool};
    return device_ops->open(0, &device_options, &rig->device) == ZO_OK &&
           device_ops->stream_open(rig->device, "compute", &rig->stream) ==
               ZO_OK &&
           ops->open(rig->device, &options, &rig->kernels) == ZO_OK;
}

bool rig_open_host(struct rig *rig, int workers)
{
    return rig_open(rig, &zo_device_host, &zo_kernels_host, workers);
}

void rig_close(struct rig *rig)
{
    rig_clear(rig);
    rig->device_ops->stream_close(rig->stream);
    rig->ops->close(rig->kernels);
    rig->device_ops->close(rig->device);
    zo_pool_close(rig->pool);
}

/* ---- arrays ---------------------------------------------------------- */

static size_t type_bytes(enum rig_type type)
{
    switch (type) {
    case RIG_F32:
    case RIG_I32:
        return 4;
    case RIG_BF16:
    case RIG_F16:
        return 2;
    case RIG_BYTES:
        return 1;
    }
    return 1;
}

/* A test that cannot get memory cannot go on. */
static void give_up(const char *what)
{
    (void)fprintf(stderr, "# test: no memory for %s\n", what);
    abort();
}

struct rig_array *rig_array(struct rig *rig, enum rig_type type, int64_t count)
{
    struct rig_array *array;

    if (rig->array_count == RIG_ARRAYS_MAX) {
        give_up("one more array");
    }
    array = &rig->arrays[rig->array_count++];
    *array = (struct rig_array){.count = count, .type = type};
    array->bytes = (size_t)count * type_bytes(type);
    array->host = malloc(array->bytes + 1);
    if (array->host == NULL ||
        rig->device_ops->mem_alloc(rig->device, ZO_MEM_DEVICE, "a test",
                                   array->bytes + 1, &array->at) != ZO_OK) {
        give_up("an array");
    }
    memset(array->host, 0x7b, array->bytes);
    (void)rig_upload(rig, array);
    return array;
}

struct rig_array *rig_bytes(struct rig *rig, uint64_t bytes)
{
    return rig_array(rig, RIG_BYTES, (int64_t)bytes);
}

struct rig_array *rig_random(struct rig *rig, enum rig_type type, int64_t count,
                             double scale)
{
    struct rig_array *array = rig_array(rig, type, count);

    for (int64_t i = 0; i < count; i++) {
        rig_set(array, i, scale * (2.0 * rig_uniform(rig) - 1.0));
    }
    (void)rig_upload(rig, array);
    return array;
}

struct rig_array *rig_ints(struct rig *rig, const int32_t *values,
                           int64_t count)
{
    struct rig_array *array = rig_array(rig, RIG_I32, count);

    if (count > 0) {
        memcpy(array->host, values, array->bytes);
    }
    (void)rig_upload(rig, array);
    return array;
}

void rig_clear(struct rig *rig)
{
    (void)rig->device_ops->stream_sync(rig->stream);
    for (int i = 0; i < rig->array_count; i++) {
        rig->device_ops->mem_free(rig->device, ZO_MEM_DEVICE, rig->arrays[i].at,
                                  rig->arrays[i].bytes + 1);
        free(rig->arrays[i].host);
    }
    rig->array_count = 0;
}

static bool sync(struct rig *rig)
{
    if (rig->device_ops->stream_sync(rig->stream) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
        return false;
    }
    return true;
}

bool rig_upload(struct rig *rig, struct rig_array *array)
{
    return rig->device_ops->copy(rig->stream, array->at, array->host,
                                 array->bytes) == ZO_OK &&
           sync(rig);
}

bool rig_download(struct rig *rig, struct rig_array *array)
{
    return rig->device_ops->copy(rig->stream, array->host, array->at,
                                 array->bytes) == ZO_OK &&
           sync(rig);
}

double rig_get(const struct rig_array *array, int64_t index)
{
    int32_t integer;

    switch (array->type) {
    case RIG_F32:
    case RIG_BF16:
    case RIG_F16:
        return (double)zo_load(array->host, (enum zo_dtype)array->type, index);
    case RIG_I32:
        memcpy(&integer, array->host + index * 4, sizeof(integer));
        return integer;
    case RIG_BYTES:
        return array->host[index];
    }
    return 0.0;
}

void rig_set(struct rig_array *array, int64_t index, double value)
{
    zo_store(array->host, (enum zo_dtype)array->type, index, (float)value);
}

/* ---- comparison ------------------------------------------------------ */

bool rig_fetch(struct rig *rig, struct rig_array *array)
{
    if (!rig_download(rig, array)) {
        return false;
    }
    for (size_t i = 0; i < array->bytes; i++) {
        rig->digest ^= (unsigned char)array->host[i];
        rig->digest *= 1099511628211u;
    }
    return true;
}

double rig_product_bound(int64_t terms)
{
    return terms <= 64 ? ZO_F32_BOUND
                       : ZO_F32_BOUND * sqrt((double)terms / 64.0);
}

static double type_rounding(enum rig_type type)
{
    return type == RIG_BF16 ? 0x1p-8 : type == RIG_F16 ? 0x1p-11 : 0.0;
}

bool rig_matches(struct rig *rig, const char *what, struct rig_array *array,
                 const double *want, double f32_bound)
{
    const double bound = f32_bound + type_rounding(array->type);
    double largest = 0.0;

    if (!rig_fetch(rig, array)) {
        return false;
    }
    for (int64_t i = 0; i < array->count; i++) {
        largest = fmax(largest, fabs(want[i]));
    }
    for (int64_t i = 0; i < array->count; i++) {
        const double got = rig_get(array, i);

        /* This way round, so that a NaN fails too. */
        if (!(fabs(got - want[i]) <= bound * largest)) {
            tap_fail(__FILE__, __LINE__,
                     "%s[%lld] of %lld: %.9g, want %.9g; off by %.3g of the "
                     "largest, allowed %.3g",
                     what, (long long)i, (long long)array->count, got, want[i],
                     fabs(got - want[i]) / largest, bound);
            return false;
        }
    }
    return true;
}

double *rig_doubles(int64_t count)
{
    double *values = calloc((size_t)count + 1, sizeof(*values));

    if (values == NULL) {
        abort();
    }
    return values;
}

double *rig_values(const struct rig_array *array)
{
    double *values = rig_doubles(array->count);

    for (int64_t i = 0; i < array->count; i++) {
        values[i] = rig_get(array, i);
    }
    return values;
}

bool rig_slopes_match(rig_forward_fn forward, const void *self, double *x,
                      int64_t x_count, const double *weight, int64_t out_count,
                      const double *gradient)
{
    const double step = 1e-4;
    double *out = rig_doubles(out_count);
    double largest = 0.0;
    bool is_match = true;

    for (int64_t i = 0; i < x_count; i++) {
        largest = fmax(largest, fabs(gradient[i]));
    }
    for (int64_t i = 0; i < x_count && is_match; i++) {
        const double at = x[i];
        double sums[2] = {0.0, 0.0};

        for (int side = 0; side < 2; side++) {
            x[i] = side == 0 ? at + step : at - step;
            forward(self, x, out);
            for (int64_t j = 0; j < out_count; j++) {
                sums[side] += weight[j] * out[j];
            }
        }
        x[i] = at;
        is_match = fabs((sums[0] - sums[1]) / (2.0 * step) - gradient[i]) <=
                   1e-6 * largest;
        if (!is_match) {
            tap_fail(__FILE__, __LINE__, "slope[%lld]: %.9g, want %.9g",
                     (long long)i, gradient[i],
                     (sums[0] - sums[1]) / (2.0 * step));
        }
    }
    free(out);
    return is_match;
}

/* ---- everywhere ------------------------------------------------------ */

static bool run(void (*cases)(struct rig *rig),
                const struct zo_device_ops *device_ops,
                const struct zo_kernel_ops *ops, int workers,
                const struct zo_vector_ops *vector, uint64_t *digest_out)
{
    struct rig rig;

    if (!rig_open(&rig, device_ops, ops, workers)) {
        tap_fail(__FILE__, __LINE__, "open: %s", zo_err_last()->text);
        return false;
    }
    if (vector != NULL) {
        zo_kernels_set_vector(rig.kernels, vector);
    }
    cases(&rig);
    *digest_out = rig.digest;
    rig_close(&rig);
    return true;
}

static void expect_same(const char *what, uint64_t got, uint64_t want)
{
    if (got != want) {
        tap_fail(__FILE__, __LINE__, "%s: not the same bits", what);
    }
}

/* By one thread, by several, and by each set of instructions. */
static void host_everywhere(void (*cases)(struct rig *rig))
{
    enum { WORKERS = 3 };
    const struct zo_vector_ops *vectors[3];
    const int vector_count = zo_vector_usable(vectors);
    uint64_t first = 0, other = 0;

    if (!run(cases, &zo_device_host, &zo_kernels_host, WORKERS, NULL, &first) ||
        tap_samples("one thread, each set of instructions")) {
        return;
    }
    if (run(cases, &zo_device_host, &zo_kernels_host, 0, NULL, &other)) {
        expect_same("fewer threads", other, first);
    }
    for (int i = 0; i < vector_count; i++) {
        if (run(cases, &zo_device_host, &zo_kernels_host, 1, vectors[i],
                &other)) {
            expect_same(vectors[i]->name, other, first);
        }
    }
}

void rig_everywhere(void (*cases)(struct rig *rig))
{
    uint64_t first = 0, other = 0;
    int gpus = 0;

    host_everywhere(cases);
    if (zo_device_cuda.count(&gpus) == ZO_OK && gpus > 0 &&
        run(cases, &zo_device_cuda, &zo_kernels_cuda, 1, NULL, &first) &&
        run(cases, &zo_device_cuda, &zo_kernels_cuda, 1, NULL, &other)) {
        expect_same("cuda, again", other, first);
    }
}
