/*
 * Collectives between GPUs, by copies from GPU to GPU and by NCCL, against
 * those of the host.
 *
 * Method: two sides, one of GPUs and one of virtual host devices, run the same
 * random collectives over the same bytes: each reads what the one before it
 * wrote, after new random bytes came into it.  Large copies hold up one stream
 * or another, products run beside, and every so often all bytes must agree.
 * ZERO_OFFLOAD_STRESS_SECONDS is how long (5), half of it each.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/base/random.h"
#include "src/comm/comm.h"
#include "tests/tap.h"

enum {
    RANKS_MAX = 8,
    PIECE_MAX = 1 << 20,
    GAP_MAX = 64, /* between pieces */
    BATCH = 64,   /* collectives between two looks */
    SIDE = 1024,  /* of the products beside */
};
#define POOL_BYTES    ((size_t)8 << 20)   /* of random bytes */
#define DELAY_BYTES   ((size_t)128 << 20) /* of a copy that holds up */
#define PRODUCT_BYTES ((size_t)SIDE * SIDE * 2)
#define SLACK_BYTES   ((uint64_t)8 << 20) /* somebody else may run too */

struct rank {
    struct zo_device *device;
    struct zo_stream *stream, *beside;
    struct zo_event *event;
    void *buffers[2]; /* collectives go from one to the other */
    void *delay[2];
    /* Products: two factors, what comes out, what came out first. */
    struct zo_kernels *kernels;
    void *factors[2], *product, *workspace;
    void *first_product; /* on the host */
};

struct side {
    const struct zo_device_ops *ops;
    const struct zo_comm_ops *comm_ops;
    const struct zo_kernel_ops *kernel_ops; /* NULL: no products, no delays */
    int ranks;
    size_t buffer_bytes, look_bytes;
    struct rank rank[RANKS_MAX];
    struct zo_device *devices[RANKS_MAX];
    struct zo_stream *streams[RANKS_MAX];
    struct zo_comm *comm;
    void *look; /* pinned; look_bytes */
    void *pool; /* pinned; POOL_BYTES */
};

static uint64_t random_key, random_index;

static size_t below(size_t bound)
{
    return (size_t)(zo_random_bits(random_key, random_index++) % bound);
}

/* ---- sides --------------------------------------------------------------- */

static enum zo_status open_products(struct side *side, struct rank *rank)
{
    const struct zo_device_ops *ops = side->ops;
    const struct zo_kernels_options options = {0};
    uint16_t *numbers = side->pool; /* no collective uses it yet */

    ZO_TRY(side->kernel_ops->open(rank->device, &options, &rank->kernels));
    ZO_TRY(zo_alloc(PRODUCT_BYTES, 1, "a product", &rank->first_product));
    for (int i = 0; i < SIDE * SIDE; i++) {
        numbers[i] = (uint16_t)(0x3c00 + i * 37 % 251); /* bf16, about 0.01 */
    }
    for (int i = 0; i < 2; i++) {
        ZO_TRY(ops->mem_alloc(rank->device, ZO_MEM_DEVICE, "a factor",
                              PRODUCT_BYTES, &rank->factors[i]));
        ZO_TRY(ops->mem_alloc(rank->device, ZO_MEM_DEVICE, "a delay",
                              DELAY_BYTES, &rank->delay[i]));
        ZO_TRY(
            ops->copy(rank->beside, rank->factors[i], numbers, PRODUCT_BYTES));
    }
    ZO_TRY(ops->mem_alloc(rank->device, ZO_MEM_DEVICE, "a product",
                          PRODUCT_BYTES, &rank->product));
    ZO_TRY(ops->mem_alloc(rank->device, ZO_MEM_DEVICE, "a workspace",
                          side->kernel_ops->matmul_workspace(),
                          &rank->workspace));
    return ops->stream_sync(rank->beside);
}

static enum zo_status open_rank(struct side *side, int r)
{
    const struct zo_device_ops *ops = side->ops;
    struct rank *rank = &side->rank[r];

    rank->device = side->devices[r];
    ZO_TRY(ops->stream_open(rank->device, "collective", &rank->stream));
    ZO_TRY(ops->stream_open(rank->device, "beside", &rank->beside));
    ZO_TRY(ops->event_open(rank->device, &rank->event));
    side->streams[r] = rank->stream;
    for (int i = 0; i < 2; i++) {
        ZO_TRY(ops->mem_alloc(rank->device, ZO_MEM_DEVICE, "a buffer",
                              side->buffer_bytes, &rank->buffers[i]));
        ZO_TRY(
            ops->fill(rank->stream, rank->buffers[i], 0, side->buffer_bytes));
    }
    return side->kernel_ops == NULL ? ZO_OK : open_products(side, rank);
}

static enum zo_status side_sync(struct side *side)
{
    for (int r = 0; r < side->ranks; r++) {
        ZO_TRY(side->ops->stream_sync(side->rank[r].stream));
        ZO_TRY(side->ops->stream_sync(side->rank[r].beside));
    }
    return ZO_OK;
}

static enum zo_status side_open(struct side *side)
{
    const struct zo_device_options options = {.delay_seed = 5,
                                              .delay_us_max = 20};

    side->buffer_bytes = (size_t)side->ranks * (PIECE_MAX + GAP_MAX);
    side->look_bytes =
        side->buffer_bytes > PRODUCT_BYTES ? side->buffer_bytes : PRODUCT_BYTES;
    for (int r = 0; r < side->ranks; r++) {
        ZO_TRY(side->ops->open(r, &options, &side->devices[r]));
    }
    ZO_TRY(side->ops->mem_alloc(side->devices[0], ZO_MEM_PINNED, "a look",
                                side->look_bytes, &side->look));
    ZO_TRY(side->ops->mem_alloc(side->devices[0], ZO_MEM_PINNED, "a pool",
                                POOL_BYTES, &side->pool));
    ZO_TRY(side->comm_ops->open(side->devices, side->ranks, &side->comm));
    for (int r = 0; r < side->ranks; r++) {
        ZO_TRY(open_rank(side, r));
    }
    for (size_t i = 0; i < POOL_BYTES / 8; i++) {
        ((uint64_t *)side->pool)[i] = zo_random_bits(1, i);
    }
    return side_sync(side);
}

static void close_rank(struct side *side, struct rank *rank)
{
    const struct zo_device_ops *ops = side->ops;

    ops->stream_close(rank->stream);
    ops->stream_close(rank->beside);
    ops->event_close(rank->event);
    for (int i = 0; i < 2; i++) {
        ops->mem_free(rank->device, ZO_MEM_DEVICE, rank->buffers[i],
                      side->buffer_bytes);
        ops->mem_free(rank->device, ZO_MEM_DEVICE, rank->delay[i], DELAY_BYTES);
        ops->mem_free(rank->device, ZO_MEM_DEVICE, rank->factors[i],
                      PRODUCT_BYTES);
    }
    ops->mem_free(rank->device, ZO_MEM_DEVICE, rank->product, PRODUCT_BYTES);
    if (side->kernel_ops != NULL) {
        ops->mem_free(rank->device, ZO_MEM_DEVICE, rank->workspace,
                      side->kernel_ops->matmul_workspace());
        side->kernel_ops->close(rank->kernels);
    }
    zo_free(rank->first_product);
}

static void side_close(struct side *side)
{
    for (int r = 0; r < side->ranks; r++) {
        if (side->rank[r].device != NULL) {
            close_rank(side, &side->rank[r]);
        }
    }
    if (side->comm != NULL) {
        side->comm_ops->close(side->comm);
    }
    if (side->devices[0] != NULL) {
        side->ops->mem_free(side->devices[0], ZO_MEM_PINNED, side->look,
                            side->look_bytes);
        side->ops->mem_free(side->devices[0], ZO_MEM_PINNED, side->pool,
                            POOL_BYTES);
    }
    for (int r = 0; r < side->ranks; r++) {
        side->ops->close(side->devices[r]);
    }
}

/* ---- collectives --------------------------------------------------------- */

struct step {
    bool is_gather;
    int from; /* which of the buffers */
    size_t piece_bytes, stride_bytes;
    struct {
        size_t offset, bytes, pool_offset; /* what comes into it first */
    } fresh[RANKS_MAX];
    int late_rank, delays; /* copies that hold it up */
    bool has_product;
};

static enum zo_status run_collective(struct side *side, bool is_gather,
                                     int from, size_t piece, size_t stride)
{
    const void *sources[RANKS_MAX];
    void *from_buffers[RANKS_MAX], *to_buffers[RANKS_MAX];

    for (int r = 0; r < side->ranks; r++) {
        sources[r] = from_buffers[r] = side->rank[r].buffers[from];
        to_buffers[r] = side->rank[r].buffers[1 - from];
    }
    return is_gather
               ? side->comm_ops->all_gather(side->comm,
                                            &(struct zo_comm_all_gather_args){
                                                .streams = side->streams,
                                                .buffers = from_buffers,
                                                .piece_bytes = piece,
                                            })
               : side->comm_ops->exchange(side->comm,
                                          &(struct zo_comm_exchange_args){
                                              .streams = side->streams,
                                              .targets = to_buffers,
                                              .sources = sources,
                                              .piece_bytes = piece,
                                              .stride_bytes = stride,
                                          });
}

static enum zo_status hold_up(struct side *side, int r, int copies)
{
    struct rank *rank = &side->rank[r];

    for (int i = 0; i < copies; i++) {
        ZO_TRY(side->ops->copy(rank->stream, rank->delay[i % 2],
                               rank->delay[1 - i % 2], DELAY_BYTES));
    }
    return ZO_OK;
}

static enum zo_status multiply(struct side *side, struct rank *rank)
{
    const struct zo_matmul_args args = {
        .c = rank->product,
        .a = rank->factors[0],
        .b = rank->factors[1],
        .workspace = rank->workspace,
        .m = SIDE,
        .n = SIDE,
        .k = SIDE,
        .type = ZO_BF16,
        .c_type = ZO_BF16,
    };

    return side->kernel_ops->matmul(rank->kernels, rank->beside, &args);
}

static enum zo_status run_step(struct side *side, const struct step *step)
{
    for (int r = 0; r < side->ranks; r++) {
        ZO_TRY(side->ops->copy(
            side->rank[r].stream,
            (char *)side->rank[r].buffers[step->from] + step->fresh[r].offset,
            (const char *)side->pool + step->fresh[r].pool_offset,
            step->fresh[r].bytes));
        if (side->kernel_ops != NULL && step->has_product) {
            ZO_TRY(multiply(side, &side->rank[r]));
        }
    }
    if (side->kernel_ops != NULL) {
        ZO_TRY(hold_up(side, step->late_rank, step->delays));
    }
    return run_collective(side, step->is_gather, step->from, step->piece_bytes,
                          step->stride_bytes);
}

/* Bytes of all orders of size, most of them odd; nothing, too. */
static size_t random_bytes(size_t most)
{
    const size_t bytes = below((size_t)1 << below(22));

    return below(4) == 0 ? (bytes < most ? bytes : most) / 16 * 16
                         : (bytes < most ? bytes : most);
}

static struct step make_step(int ranks, int *from)
{
    const size_t buffer_bytes = (size_t)ranks * (PIECE_MAX + GAP_MAX);
    struct step step = {
        .is_gather = below(2) == 0,
        .from = *from,
        .piece_bytes = random_bytes(PIECE_MAX),
        .late_rank = (int)below((size_t)ranks),
        .delays = below(8) == 0 ? (int)below(16) : 0,
        .has_product = below(3) == 0,
    };

    step.stride_bytes = step.piece_bytes + below(GAP_MAX + 1);
    for (int r = 0; r < ranks; r++) {
        step.fresh[r].bytes = random_bytes(PIECE_MAX);
        step.fresh[r].offset = below(buffer_bytes - step.fresh[r].bytes);
        step.fresh[r].pool_offset = below(POOL_BYTES - step.fresh[r].bytes);
    }
    *from = step.is_gather ? *from : 1 - *from;
    return step;
}

/* ---- looking ------------------------------------------------------------- */

static enum zo_status look_at(struct side *side, int r, int buffer)
{
    ZO_TRY(side->ops->copy(side->rank[r].stream, side->look,
                           side->rank[r].buffers[buffer], side->buffer_bytes));
    return side->ops->stream_sync(side->rank[r].stream);
}

/* All bytes of both sides, with nothing under way. */
static bool agree(struct side *a, struct side *b, uint64_t collectives)
{
    for (int r = 0; r < a->ranks; r++) {
        for (int i = 0; i < 2; i++) {
            const char *want = b->look, *got = a->look;
            size_t at = 0;

            if (look_at(a, r, i) != ZO_OK || look_at(b, r, i) != ZO_OK) {
                tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
                return false;
            }
            while (at < a->buffer_bytes && got[at] == want[at]) {
                at += memcmp(got + at, want + at,
                             a->buffer_bytes - at < 4096 ? a->buffer_bytes - at
                                                         : 4096) == 0
                          ? 4096
                          : 1;
            }
            if (at < a->buffer_bytes) {
                tap_fail(__FILE__, __LINE__,
                         "within %d collectives before the %llu-th: rank %d, "
                         "buffer %d, byte %zu",
                         BATCH, (unsigned long long)collectives, r, i, at);
                return false;
            }
        }
    }
    return true;
}

/* Products beside collectives are those of a GPU that does nothing else. */
static bool products_agree(struct side *side, bool is_first)
{
    for (int r = 0; r < side->ranks && side->kernel_ops != NULL; r++) {
        struct rank *rank = &side->rank[r];

        if (multiply(side, rank) != ZO_OK ||
            side->ops->copy(rank->beside, side->look, rank->product,
                            PRODUCT_BYTES) != ZO_OK ||
            side->ops->stream_sync(rank->beside) != ZO_OK) {
            tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
            return false;
        }
        if (is_first) {
            memcpy(rank->first_product, side->look, PRODUCT_BYTES);
        } else if (memcmp(rank->first_product, side->look, PRODUCT_BYTES) !=
                   0) {
            tap_fail(__FILE__, __LINE__, "rank %d: another product", r);
            return false;
        }
    }
    return true;
}

/* ---- the stress ---------------------------------------------------------- */

static enum zo_status run_batch(struct side *a, struct side *b, int *from)
{
    enum zo_status status = ZO_OK;

    zo_memory_freeze(true);
    for (int i = 0; i < BATCH && status == ZO_OK; i++) {
        const struct step step = make_step(a->ranks, from);

        status = run_step(a, &step);
        if (status == ZO_OK) {
            status = run_step(b, &step);
        }
    }
    zo_memory_freeze(false);
    ZO_TRY(status);
    ZO_TRY(side_sync(a));
    ZO_TRY(side_sync(b));
    return a->comm_ops->check(a->comm);
}

static double stress_seconds(void)
{
    const char *text = getenv("ZERO_OFFLOAD_STRESS_SECONDS");

    return text == NULL ? 5.0 : strtod(text, NULL);
}

static void free_bytes(struct side *side, uint64_t *bytes)
{
    for (int r = 0; r < side->ranks; r++) {
        bytes[r] = 0;
        (void)side->ops->mem_free_bytes(side->devices[r], &bytes[r]);
    }
}

/* Nothing is allocated behind the first of all batches. */
static void check_memory(struct side *side, const uint64_t *before)
{
    uint64_t after[RANKS_MAX];

    free_bytes(side, after);
    for (int r = 0; r < side->ranks; r++) {
        printf("# %s: collectives own %llu MiB; %lld KiB less are free than "
               "after the first batch\n",
               side->ops->info(side->devices[r])->name,
               (unsigned long long)(side->comm_ops->own_device_bytes(side->comm,
                                                                     r) >>
                                    20),
               (long long)(before[r] - after[r]) / 1024);
        TAP_CHECK(before[r] < after[r] + SLACK_BYTES);
    }
}

static void run_stress(struct side *a, struct side *b, double seconds)
{
    const int64_t started_ns = zo_clock_ns();
    uint64_t collectives = 0, before[RANKS_MAX];
    int from = 0;

    random_key = zo_random_key(42, "collectives");
    random_index = 0;
    TAP_CHECK(products_agree(a, true));
    while (collectives == 0 ||
           zo_clock_seconds(started_ns, zo_clock_ns()) < seconds) {
        if (run_batch(a, b, &from) != ZO_OK) {
            tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
            return;
        }
        if (collectives == 0) {
            free_bytes(a, before);
        }
        collectives += BATCH;
        TAP_CHECK(agree(a, b, collectives));
        TAP_CHECK(products_agree(a, false));
    }
    printf("# %d devices: %llu collectives in %.1f s\n", a->ranks,
           (unsigned long long)collectives,
           zo_clock_seconds(started_ns, zo_clock_ns()));
    if (a->kernel_ops != NULL) {
        check_memory(a, before);
    }
}

static void run_sides(struct side *a, double seconds)
{
    struct side b = {
        .ops = &zo_device_host, .comm_ops = &zo_comm_host, .ranks = a->ranks};

    if (side_open(a) == ZO_OK && side_open(&b) == ZO_OK) {
        run_stress(a, &b, seconds);
    } else {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    side_close(a);
    side_close(&b);
}

/* The test itself, where there is no GPU. */
static void test_hosts(void)
{
    struct side side = {
        .ops = &zo_device_host, .comm_ops = &zo_comm_host, .ranks = 3};

    run_sides(&side, 0.2);
}

/* ---- GPUs ---------------------------------------------------------------- */

static int gpus(void)
{
    int count = 0;

    if (getenv("ZERO_OFFLOAD_GPU") == NULL) {
        tap_skip("ZERO_OFFLOAD_GPU is not set");
        return 0;
    }
    if (zo_device_cuda.count(&count) != ZO_OK || count < 2) {
        tap_skip("fewer than two CUDA devices");
        return 0;
    }
    return count < RANKS_MAX ? count : RANKS_MAX;
}

/* What carries between GPUs. */
static const struct zo_comm_ops *const ways[] = {&zo_comm_peer, &zo_comm_nccl};

/* NULL: not in this build. */
static const struct zo_comm_ops *way_at(size_t i)
{
    if (ways[i]->lack != NULL) {
        printf("# %s\n", ways[i]->lack);
        return NULL;
    }
    return ways[i];
}

static struct side gpu_side(const struct zo_comm_ops *way, int ranks)
{
    return (struct side){.ops = &zo_device_cuda,
                         .comm_ops = way,
                         .kernel_ops = &zo_kernels_cuda,
                         .ranks = ranks};
}

static void test_gpus(void)
{
    const int count = gpus();

    for (size_t i = 0; count > 0 && i < TAP_COUNT(ways); i++) {
        struct side side = gpu_side(way_at(i), count);

        if (side.comm_ops != NULL) {
            run_sides(&side, stress_seconds() / TAP_COUNT(ways));
        }
    }
}

/* When a stream has passed, what was late on another has been passed too. */
static void check_barrier(struct side *side, int late, bool is_gather,
                          size_t piece)
{
    const int other = (late + 1) % side->ranks;
    struct zo_event *passed = side->rank[other].event;
    struct zo_event *held_up = side->rank[late].event;
    bool is_passed = false;

    TAP_CHECK_INT(hold_up(side, late, 60), ZO_OK);
    TAP_CHECK_INT(side->ops->event_record(side->streams[late], held_up), ZO_OK);
    TAP_CHECK_INT(run_collective(side, is_gather, 0, piece, piece), ZO_OK);
    TAP_CHECK_INT(side->ops->event_record(side->streams[other], passed), ZO_OK);
    TAP_CHECK_INT(side->ops->event_sync(passed), ZO_OK);
    TAP_CHECK_INT(side->ops->event_query(held_up, &is_passed), ZO_OK);
    TAP_CHECK(is_passed);
    TAP_CHECK_INT(side_sync(side), ZO_OK);
}

static void barrier_by(const struct zo_comm_ops *way, int count)
{
    static const size_t pieces[] = {0, 8, PIECE_MAX};
    struct side side = gpu_side(way, count);

    if (side_open(&side) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    for (size_t i = 0; i < TAP_COUNT(pieces) && side.streams[0] != NULL; i++) {
        for (int late = 0; late < count; late++) {
            check_barrier(&side, late, false, pieces[i]);
            check_barrier(&side, late, true, pieces[i]);
        }
    }
    side_close(&side);
}

static void test_barrier(void)
{
    const int count = gpus();

    for (size_t i = 0; count > 0 && i < TAP_COUNT(ways); i++) {
        if (way_at(i) != NULL) {
            barrier_by(ways[i], count);
        }
    }
}

/* A stream that a copy holds up for two seconds before the last rank's part. */
static void check_abort(struct side *side, struct zo_stream *slow)
{
    const int last = side->ranks - 1;
    const int64_t started_ns = zo_clock_ns();

    TAP_CHECK_INT(side->comm_ops->check(side->comm), ZO_OK);
    TAP_CHECK_INT(side->ops->copy(slow, side->rank[last].buffers[1], side->pool,
                                  PIECE_MAX),
                  ZO_OK);
    side->streams[last] = slow;
    TAP_CHECK_INT(run_collective(side, false, 0, PIECE_MAX, PIECE_MAX), ZO_OK);
    TAP_CHECK_INT(run_collective(side, true, 0, PIECE_MAX, PIECE_MAX), ZO_OK);
    side->comm_ops->abort(side->comm);
    TAP_CHECK_INT(side_sync(side), ZO_OK);
    TAP_CHECK_INT(side->ops->stream_sync(slow), ZO_OK);
    printf("# an abort took %.3f s, 2 s of them for a copy\n",
           zo_clock_seconds(started_ns, zo_clock_ns()));
    TAP_CHECK(zo_clock_seconds(started_ns, zo_clock_ns()) < 10.0);
    side->comm_ops->abort(side->comm);
    TAP_CHECK_INT(side->comm_ops->check(side->comm), ZO_E_COMM);
    TAP_CHECK_INT(run_collective(side, true, 0, 8, 8), ZO_E_COMM);
    TAP_CHECK_INT(run_collective(side, false, 0, 0, 0), ZO_E_COMM);
    side->comm_ops->close(side->comm);
    side->comm = NULL;
    TAP_CHECK_INT(side->comm_ops->open(side->devices, side->ranks, &side->comm),
                  ZO_OK);
    TAP_CHECK_INT(run_collective(side, true, 0, 8, 8), ZO_OK);
    TAP_CHECK_INT(side_sync(side), ZO_OK);
    TAP_CHECK_INT(side->ops->stream_sync(slow), ZO_OK);
}

static void abort_by(const struct zo_comm_ops *way, int count)
{
    const struct zo_device_options paced = {.copy_bytes_per_second =
                                                PIECE_MAX / 2};
    struct zo_device *device = NULL;
    struct zo_stream *slow = NULL;
    struct side side = gpu_side(way, count);

    side.kernel_ops = NULL;
    if (side_open(&side) == ZO_OK &&
        side.ops->open(count - 1, &paced, &device) == ZO_OK &&
        side.ops->stream_open(device, "slow", &slow) == ZO_OK) {
        check_abort(&side, slow);
    } else {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    side.ops->stream_close(slow);
    side.ops->close(device);
    side_close(&side);
}

static void test_abort(void)
{
    const int count = gpus();

    for (size_t i = 0; count > 0 && i < TAP_COUNT(ways); i++) {
        if (way_at(i) != NULL) {
            abort_by(ways[i], count);
        }
    }
}

static void check_facts(struct side *side)
{
    TAP_CHECK(strncmp(side->comm_ops->notes(side->comm), "NCCL 2.", 7) == 0);
    TAP_CHECK(strstr(side->comm_ops->notes(side->comm),
                     " NCCL_ZERO_OFFLOAD_TEST=1") != NULL);
    for (int r = 0; r < side->ranks; r++) {
        const uint64_t own = side->comm_ops->own_device_bytes(side->comm, r);

        TAP_CHECK(own < (uint64_t)4 << 30);
        TAP_CHECK(side->ranks == 1 || own > 0);
    }
}

static void test_facts(void)
{
    const int count = zo_comm_nccl.lack == NULL ? gpus() : 0;

    if (zo_comm_nccl.lack != NULL) {
        tap_skip("this build has no NCCL");
    }
    for (int ranks = 1; ranks <= count; ranks++) {
        struct side side = gpu_side(&zo_comm_nccl, ranks);

        side.kernel_ops = NULL;
        TAP_CHECK_INT(setenv("NCCL_ZERO_OFFLOAD_TEST", "1", 1), 0);
        if (side_open(&side) == ZO_OK) {
            check_facts(&side);
        } else {
            tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
        }
        side_close(&side);
    }
}

/* Where nothing may go from GPU to GPU, copies do not offer themselves. */
static void test_switched_off(void)
{
    const int count = gpus();
    struct zo_device *devices[RANKS_MAX] = {NULL};
    struct zo_comm *comm = NULL;

    for (int r = 0; r < count; r++) {
        TAP_CHECK_INT(zo_device_cuda.open(r, NULL, &devices[r]), ZO_OK);
    }
    if (count > 0) {
        TAP_CHECK_INT(setenv("NCCL_P2P_DISABLE", "1", 1), 0);
        TAP_CHECK_INT(zo_comm_peer.open(devices, count, &comm), ZO_E_COMM);
        TAP_CHECK_INT(unsetenv("NCCL_P2P_DISABLE"), 0);
    }
    for (int r = 0; r < count; r++) {
        zo_device_cuda.close(devices[r]);
    }
}

/* One rank alone: the piece that stays is copied. */
static void test_one_gpu(void)
{
    const int count = gpus();

    for (size_t i = 0; count > 0 && i < TAP_COUNT(ways); i++) {
        struct side side = gpu_side(way_at(i), 1);

        if (side.comm_ops != NULL) {
            run_sides(&side, 0.2);
        }
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"host devices agree with host devices", test_hosts},
        {"what NCCL owns, and obeys", test_facts},
        {"one GPU agrees with a host device", test_one_gpu},
        {"no stream passes before all have come", test_barrier},
        {"an abort ends what is under way, and a new comm works", test_abort},
        {"copies can be switched off", test_switched_off},
        {"GPUs agree with host devices", test_gpus},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
