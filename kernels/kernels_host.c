/*
 * The host backend: checks a call, queues it on the stream, and keeps the
 * scratch that operations share.
 */
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "kernels/host/host.h"
#include "src/base/memory.h"
#include "src/device/stream_host.h"

#define SLOTS_MAX  32   /* more threads than that take turns */
#define PAGE_BYTES 4096 /* or a part of a page */

struct zo_kernels {
    struct zo_device *device; /* borrowed until close */
    struct zo_pool *pool;     /* borrowed; NULL: that of the stream */
    const struct zo_vector_ops *vector;

    float *scratch; /* slots * ZO_SCRATCH_FLOATS */
    int slots;
    pthread_mutex_t lock;
    pthread_cond_t has_free;
    int free_count;            /* guarded by lock */
    float *free_at[SLOTS_MAX]; /* guarded by lock */
};

/* ---- scratch --------------------------------------------------------- */

float *zo_scratch_acquire(struct zo_kernels *kernels)
{
    float *scratch;

    (void)pthread_mutex_lock(&kernels->lock);
    while (kernels->free_count == 0) {
        (void)pthread_cond_wait(&kernels->has_free, &kernels->lock);
    }
    scratch = kernels->free_at[--kernels->free_count];
    (void)pthread_mutex_unlock(&kernels->lock);
    return scratch;
}

void zo_scratch_release(struct zo_kernels *kernels, float *scratch)
{
    (void)pthread_mutex_lock(&kernels->lock);
    kernels->free_at[kernels->free_count++] = scratch;
    (void)pthread_cond_signal(&kernels->has_free);
    (void)pthread_mutex_unlock(&kernels->lock);
}

static size_t scratch_bytes(const struct zo_kernels *kernels)
{
    return (size_t)kernels->slots * ZO_SCRATCH_FLOATS * sizeof(float);
}

const struct zo_vector_ops *zo_kernels_vector(const struct zo_kernels *kernels)
{
    return kernels->vector;
}

void zo_kernels_set_vector(struct zo_kernels *kernels,
                           const struct zo_vector_ops *vector)
{
    kernels->vector = vector;
}

/* ---- open and close -------------------------------------------------- */

/* A byte a page: all of it is there before step 1. */
static void touch(void *memory, size_t size_bytes)
{
    volatile char *bytes = memory;

    for (size_t at = 0; at < size_bytes; at += PAGE_BYTES) {
        bytes[at] = 0;
    }
}

static enum zo_status host_open(struct zo_device *device,
                                const struct zo_kernels_options *options,
                                struct zo_kernels **kernels_out)
{
    struct zo_kernels *kernels = NULL;
    enum zo_status status;
    void *scratch = NULL;

    ZO_TRY(zo_alloc(1, sizeof(*kernels), "the host kernels", &kernels));
    kernels->device = device;
    kernels->pool = options != NULL ? options->pool : NULL;
    kernels->vector = zo_vector_best();
    kernels->slots = kernels->pool != NULL ? zo_pool_width(kernels->pool) : 1;
    if (kernels->slots > SLOTS_MAX) {
        kernels->slots = SLOTS_MAX;
    }
    ZO_TRY_GOTO(free_kernels,
                zo_device_host.mem_alloc(device, ZO_MEM_DEVICE,
                                         "scratch of the host kernels",
                                         scratch_bytes(kernels), &scratch));
    touch(scratch, scratch_bytes(kernels));
    kernels->scratch = scratch;
    for (int slot = 0; slot < kernels->slots; slot++) {
        kernels->free_at[slot] =
            kernels->scratch + (ptrdiff_t)slot * ZO_SCRATCH_FLOATS;
    }
    kernels->free_count = kernels->slots;
    (void)pthread_mutex_init(&kernels->lock, NULL);
    (void)pthread_cond_init(&kernels->has_free, NULL);
    zo_blas_open();
    *kernels_out = kernels;
    return ZO_OK;

free_kernels:
    zo_free(kernels);
    return status;
}

static void host_close(struct zo_kernels *kernels)
{
    if (kernels == NULL) {
        return;
    }
    zo_device_host.mem_free(kernels->device, ZO_MEM_DEVICE, kernels->scratch,
                            scratch_bytes(kernels));
    (void)pthread_cond_destroy(&kernels->has_free);
    (void)pthread_mutex_destroy(&kernels->lock);
    zo_free(kernels);
}

static uint64_t host_own_device_bytes(const struct zo_kernels *kernels)
{
    return scratch_bytes(kernels);
}

static uint64_t host_matmul_workspace(void)
{
    return 0; /* panels are in the scratch */
}

static uint64_t host_attention_backward_workspace(int64_t tokens, int64_t heads,
                                                  int64_t groups,
                                                  int64_t head_width)
{
    (void)groups, (void)head_width;
    return zo_host_attention_backward_workspace(tokens, heads);
}

/* ---- queueing -------------------------------------------------------- */

/* Defines host_NAME(), an entry of the table, and what the stream runs. */
#define HOST_KERNEL(op)                                                      \
    struct op##_call {                                                       \
        struct zo_kernels *kernels;                                          \
        struct zo_##op##_args args;                                          \
    };                                                                       \
    _Static_assert(sizeof(struct op##_call) <= ZO_HOST_ARGS_MAX,             \
                   "a command carries it");                                  \
                                                                             \
    static enum zo_status run_##op(struct zo_pool *pool, const void *args)   \
    {                                                                        \
        const struct op##_call *call = args;                                 \
        struct zo_pool *own = call->kernels->pool;                           \
                                                                             \
        return zo_host_##op(call->kernels, own != NULL ? own : pool,         \
                            &call->args);                                    \
    }                                                                        \
                                                                             \
    static enum zo_status host_##op(struct zo_kernels *kernels,              \
                                    struct zo_stream *stream,                \
                                    const struct zo_##op##_args *args)       \
    {                                                                        \
        const struct op##_call call = {kernels, *args};                      \
                                                                             \
        ZO_TRY(zo_##op##_check(args));                                       \
        return zo_stream_host_submit(stream, run_##op, &call, sizeof(call)); \
    }                                                                        \
    _Static_assert(1, "") /* takes the semicolon */

HOST_KERNEL(embedding);
HOST_KERNEL(embedding_backward);
HOST_KERNEL(rmsnorm);
HOST_KERNEL(rmsnorm_backward);
HOST_KERNEL(matmul);
HOST_KERNEL(rope);
HOST_KERNEL(rope_backward);
HOST_KERNEL(attention);
HOST_KERNEL(attention_backward);
HOST_KERNEL(swiglu);
HOST_KERNEL(swiglu_backward);
HOST_KERNEL(gather);
HOST_KERNEL(scatter);
HOST_KERNEL(cross_entropy);
HOST_KERNEL(cast);
HOST_KERNEL(reduce);
HOST_KERNEL(square_norm);
HOST_KERNEL(adamw);

/* ---- calls that need a workspace ------------------------------------- */

static enum zo_status check_workspace(const char *name, const void *workspace,
                                      uint64_t bytes)
{
    if (bytes > 0 && workspace == NULL) {
        return ZO_FAIL(ZO_E_ARG, "%s: workspace is NULL; want %llu bytes", name,
                       (unsigned long long)bytes);
    }
    return ZO_OK;
}

static enum zo_status
rmsnorm_backward(struct zo_kernels *kernels, struct zo_stream *stream,
                 const struct zo_rmsnorm_backward_args *args)
{
    ZO_TRY(zo_rmsnorm_backward_check(args));
    ZO_TRY(check_workspace(
        "rmsnorm_backward", args->workspace,
        zo_host_rmsnorm_backward_workspace(args->rows, args->cols)));
    return host_rmsnorm_backward(kernels, stream, args);
}

static enum zo_status rope_backward(struct zo_kernels *kernels,
                                    struct zo_stream *stream,
                                    const struct zo_rope_backward_args *args)
{
    uint64_t bytes = 0;

    ZO_TRY(zo_rope_backward_check(args));
    if (args->d_bias != NULL) {
        bytes = zo_host_rope_backward_workspace(
            args->tokens, (args->heads + 2 * args->groups) * args->head_width);
    }
    ZO_TRY(check_workspace("rope_backward", args->workspace, bytes));
    return host_rope_backward(kernels, stream, args);
}

static enum zo_status
attention_backward(struct zo_kernels *kernels, struct zo_stream *stream,
                   const struct zo_attention_backward_args *args)
{
    ZO_TRY(zo_attention_backward_check(args));
    ZO_TRY(check_workspace(
        "attention_backward", args->workspace,
        zo_host_attention_backward_workspace(args->tokens, args->heads)));
    return host_attention_backward(kernels, stream, args);
}

static enum zo_status square_norm(struct zo_kernels *kernels,
                                  struct zo_stream *stream,
                                  const struct zo_square_norm_args *args)
{
    ZO_TRY(zo_square_norm_check(args));
    ZO_TRY(check_workspace("square_norm", args->workspace,
                           zo_host_square_norm_workspace(args->count)));
    return host_square_norm(kernels, stream, args);
}

const struct zo_kernel_ops zo_kernels_host = {
    .kind = "host",
    .open = host_open,
    .close = host_close,
    .own_device_bytes = host_own_device_bytes,
    .matmul_workspace = host_matmul_workspace,
    .rmsnorm_backward_workspace = zo_host_rmsnorm_backward_workspace,
    .rope_backward_workspace = zo_host_rope_backward_workspace,
    .attention_backward_workspace = host_attention_backward_workspace,
    .square_norm_workspace = zo_host_square_norm_workspace,
    .embedding = host_embedding,
    .embedding_backward = host_embedding_backward,
    .rmsnorm = host_rmsnorm,
    .rmsnorm_backward = rmsnorm_backward,
    .matmul = host_matmul,
    .rope = host_rope,
    .rope_backward = rope_backward,
    .attention = host_attention,
    .attention_backward = attention_backward,
    .swiglu = host_swiglu,
    .swiglu_backward = host_swiglu_backward,
    .gather = host_gather,
    .scatter = host_scatter,
    .cross_entropy = host_cross_entropy,
    .cast = host_cast,
    .reduce = host_reduce,
    .square_norm = square_norm,
    .adamw = host_adamw,
};
