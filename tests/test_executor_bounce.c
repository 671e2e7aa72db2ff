/*
 * Loading and saving on NVMe: by several threads, in pieces that share chunks,
 * each byte once where they do not; failures are told, and by whom.
 */
#include <errno.h>
#include <string.h>

#include "offload/executor_internal.h"
#include "offload/layout.h"
#include "src/base/arith.h"
#include "src/base/memory.h"
#include "tests/executor_bench.h"
#include "tests/nvme_help.h"
#include "tests/tap.h"

#define TIER_BYTES (12 * (int64_t)ZO_NVME_CHUNK)

/* Threads that move pieces of the tier, each with bytes of its own. */
struct mover {
    struct bench bench;
    struct zo_pool *pool;
    zo_buffer_id states;
    unsigned char *memory; /* owned; TIER_BYTES */
    int64_t piece_bytes, piece_count;
    bool downloads;
    atomic_int failures;
};

static void open_mover(struct mover *mover, const struct zo_nvme_options *nvme)
{
    const struct zo_buffer states = {.name = "first moments",
                                     .tier = ZO_TIER_NVME,
                                     .unit = 7,
                                     .schedule = -1,
                                     .bytes = TIER_BYTES};
    struct zo_executor_options options = bench_workers;

    *mover = (struct mover){.states = ZO_NO_BUFFER};
    options.nvme = nvme;
    bench_init(&mover->bench, 1);
    TAP_CHECK_INT(
        zo_program_buffer(&mover->bench.program, &states, &mover->states),
        ZO_OK);
    TAP_CHECK_INT(bench_open(&mover->bench, &options), ZO_OK);
    TAP_CHECK_INT(zo_pool_open(3, &mover->pool), ZO_OK);
    TAP_CHECK_INT(zo_pages_alloc(TIER_BYTES, "test", &mover->memory), ZO_OK);
}

static void close_mover(struct mover *mover)
{
    zo_pages_free(mover->memory, TIER_BYTES);
    zo_pool_close(mover->pool);
    bench_close(&mover->bench);
}

static struct zo_nvme_options options_of(const struct zo_nvme_faults *faults)
{
    return (struct zo_nvme_options){.directory = nvme_help_disk(),
                                    .how = ZO_NVME_POOL,
                                    .threads = 3,
                                    .allows_memory = true,
                                    .faults = faults};
}

/* Pieces far apart follow each other, and then their neighbours. */
static void move_piece(void *work, int64_t index)
{
    struct mover *mover = work;
    const int64_t half = zo_div_ceil(mover->piece_count, 2);
    const int64_t piece = index < half ? 2 * index : 2 * (index - half) + 1;
    const int64_t at = piece * mover->piece_bytes;
    const size_t bytes =
        (size_t)zo_min_i64(mover->piece_bytes, TIER_BYTES - at);
    struct zo_executor *executor = mover->bench.executor;
    const enum zo_status status =
        mover->downloads
            ? zo_executor_nvme_download(executor, mover->memory + at,
                                        mover->states, (uint64_t)at, bytes)
            : zo_executor_nvme_upload(executor, mover->states, (uint64_t)at,
                                      mover->memory + at, bytes);

    if (status != ZO_OK) {
        atomic_fetch_add(&mover->failures, 1);
    }
}

static enum zo_status move_all(struct mover *mover, bool downloads,
                               int64_t piece_bytes)
{
    mover->downloads = downloads;
    mover->piece_bytes = piece_bytes;
    mover->piece_count = zo_div_ceil(TIER_BYTES, piece_bytes);
    zo_pool_run(mover->pool, move_piece, mover, mover->piece_count);
    return zo_executor_nvme_sync(mover->bench.executor);
}

/* ---- what arrives -------------------------------------------------------- */

static void test_all_arrive(void)
{
    static const int64_t pieces[] = {65537, 700001, 3 << 20, 5000000,
                                     TIER_BYTES};
    const struct zo_nvme_options options = options_of(NULL);
    struct mover mover;

    open_mover(&mover, &options);
    for (size_t i = 0; i < TAP_COUNT(pieces); i++) {
        nvme_help_fill(mover.memory, TIER_BYTES, i);
        TAP_CHECK_INT(move_all(&mover, false, pieces[i]), ZO_OK);
        memset(mover.memory, 0, TIER_BYTES);
        TAP_CHECK_INT(move_all(&mover, true, pieces[TAP_COUNT(pieces) - 1 - i]),
                      ZO_OK);
        TAP_CHECK(nvme_help_filled(mover.memory, TIER_BYTES, i));
    }
    TAP_CHECK_INT(atomic_load(&mover.failures), 0);
    close_mover(&mover);
}

/* What nobody wrote is zeros, also in a chunk of which a part is written. */
static void test_zeros(void)
{
    const struct zo_nvme_options options = options_of(NULL);
    const size_t mib = ZO_NVME_CHUNK;
    struct mover mover;
    size_t others = 0;

    open_mover(&mover, &options);
    memset(mover.memory, 1, TIER_BYTES);
    TAP_CHECK_INT(zo_executor_upload(mover.bench.executor, mover.states,
                                     5 * mib - 3, mover.memory, 10),
                  ZO_OK);
    TAP_CHECK_INT(move_all(&mover, true, 3000000), ZO_OK);
    for (size_t i = 0; i < TIER_BYTES; i++) {
        const bool is_one = i >= 5 * mib - 3 && i < 5 * mib + 7;

        others += mover.memory[i] != (is_one ? 1 : 0) ? 1 : 0;
    }
    TAP_CHECK_INT(others, 0);
    close_mover(&mover);
}

/* ---- bytes --------------------------------------------------------------- */

struct moved {
    int64_t read, written;
};

static struct moved moved_by(struct mover *mover, int64_t piece_bytes)
{
    struct zo_nvme_counters before, after;

    zo_nvme_counters(mover->bench.executor->nvme, &before);
    if (move_all(mover, false, piece_bytes) != ZO_OK) {
        return (struct moved){-1, -1};
    }
    zo_nvme_counters(mover->bench.executor->nvme, &after);
    return (struct moved){
        (int64_t)(after.read_bytes - before.read_bytes),
        (int64_t)(after.written_bytes - before.written_bytes)};
}

static void test_each_once(void)
{
    const int64_t chunk = ZO_NVME_CHUNK;
    const struct zo_nvme_options options = options_of(NULL);
    struct moved moved;
    struct mover mover;

    open_mover(&mover, &options);
    for (int64_t chunks = 1; chunks <= 12; chunks++) {
        moved = moved_by(&mover, chunks * chunk);
        TAP_CHECK_INT(moved.written, TIER_BYTES);
        TAP_CHECK_INT(moved.read, 0);
    }
    /* Two pieces a chunk and a half long: they share one. */
    moved = moved_by(&mover, chunk + chunk / 2);
    TAP_CHECK_INT(moved.written, TIER_BYTES / 3 * 4);
    TAP_CHECK_INT(moved.read, TIER_BYTES / 3 * 2);
    close_mover(&mover);
}

/* ---- failures ------------------------------------------------------------ */

/* A write that fails later is told by sync, and by who comes behind it. */
static void test_failed_write(void)
{
    for (int at = 1; at <= 24; at += 5) {
        const struct zo_nvme_faults faults = {.error_at = at,
                                              .error_errno = EIO};
        const struct zo_nvme_options options = options_of(&faults);
        unsigned char byte = 0;
        struct mover mover;

        open_mover(&mover, &options);
        for (int times = 0; times < 2; times++) {
            TAP_CHECK_INT(move_all(&mover, false, 700001), ZO_E_IO);
            TAP_CHECK_INT(zo_err_last()->native, EIO);
            TAP_CHECK(strstr(zo_err_last()->text, "unit 7's first moments"));
        }
        TAP_CHECK_INT(atomic_load(&mover.failures) > 0, true);
        TAP_CHECK_INT(zo_executor_download(mover.bench.executor, &byte,
                                           mover.states, 0, 1),
                      ZO_E_IO);
        close_mover(&mover);
    }
}

/* ---- how many ------------------------------------------------------------ */

/* What the disk is to have at once, within bounds. */
static void test_depth(void)
{
    static const struct {
        int depth;
        size_t block_bytes, bounces;
    } cases[] = {{0, 0, 8},          {1, 0, 4},         {48, 0, 12},
                 {32, 512 << 10, 4}, {32, 2 << 20, 16}, {4096, 0, 16}};

    for (size_t i = 0; i < TAP_COUNT(cases); i++) {
        struct zo_nvme_options options = options_of(NULL);
        struct mover mover;

        options.how = ZO_NVME_UNREGISTERED;
        options.depth = cases[i].depth;
        options.block_bytes = cases[i].block_bytes;
        open_mover(&mover, &options);
        if (zo_nvme_shape(mover.bench.executor->nvme).how != ZO_NVME_POOL) {
            TAP_CHECK_INT((long long)mover.bench.executor->bounce_count,
                          (long long)cases[i].bounces);
        }
        close_mover(&mover);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"what threads write, in whatever pieces, is there", test_all_arrive},
        {"what nobody wrote is zeros", test_zeros},
        {"pieces of whole chunks move each byte once", test_each_once},
        {"a write that fails is told, and sticks", test_failed_write},
        {"buffers are as many as the depth asks for", test_depth},
    };
    const int code = tap_run(cases, TAP_COUNT(cases));

    nvme_help_remove();
    return code;
}
