#include "src/comm/comm_selftest.h"

#include <string.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/memory.h"

#define WORD_BYTES 8
#define GAP_BYTES  64 /* between the pieces of a source */
#define POLL_NS    50000
#define NOT_SENT   0xa5 /* what targets hold before; no piece is made of it */

/* The cure of all that is found here. */
#define WAY_OUT                                                           \
    "copies from device to device do not work on this machine (an IOMMU " \
    "or access control services of the PCIe switches may be why); with "  \
    "NCCL_P2P_DISABLE=1 in the environment they go through the host"

struct bench {
    const struct zo_comm_selftest_args *args;
    struct zo_stream *streams[ZO_RANKS_MAX];
    struct zo_event *passed[ZO_RANKS_MAX];
    void *sources[ZO_RANKS_MAX];
    void *targets[ZO_RANKS_MAX];
    unsigned char *host; /* owned; of either size below */
    size_t source_bytes, target_bytes;
};

static enum zo_status bench_open(struct bench *bench)
{
    const struct zo_comm_selftest_args *args = bench->args;
    const struct zo_device_ops *ops = args->device_ops;

    ZO_TRY(zo_alloc(bench->source_bytes, 1, "a check of collectives",
                    &bench->host));
    for (int r = 0; r < args->ranks; r++) {
        struct zo_device *device = args->devices[r];

        ZO_TRY(ops->stream_open(device, "check", &bench->streams[r]));
        ZO_TRY(ops->event_open(device, &bench->passed[r]));
        ZO_TRY(ops->mem_alloc(device, ZO_MEM_DEVICE, "a check of collectives",
                              bench->source_bytes, &bench->sources[r]));
        ZO_TRY(ops->mem_alloc(device, ZO_MEM_DEVICE, "a check of collectives",
                              bench->target_bytes, &bench->targets[r]));
    }
    return ZO_OK;
}

static void bench_close(struct bench *bench)
{
    const struct zo_device_ops *ops = bench->args->device_ops;

    for (int r = 0; r < bench->args->ranks; r++) {
        struct zo_device *device = bench->args->devices[r];

        ops->stream_close(bench->streams[r]);
        ops->event_close(bench->passed[r]);
        ops->mem_free(device, ZO_MEM_DEVICE, bench->sources[r],
                      bench->source_bytes);
        ops->mem_free(device, ZO_MEM_DEVICE, bench->targets[r],
                      bench->target_bytes);
    }
    zo_free(bench->host);
}

static const char *name_of(const struct bench *bench, int rank)
{
    return bench->args->device_ops->info(bench->args->devices[rank])->name;
}

/* ---- bytes that name their way ------------------------------------------- */

/* Word i of the piece of `bytes` that goes from s to d. */
static uint64_t word_of(size_t bytes, int s, int d, size_t i)
{
    const uint64_t way = (uint64_t)bytes << 16 | (uint64_t)s << 8 | (uint64_t)d;

    return (i + 1) * UINT64_C(0x9e3779b97f4a7c15) ^
           way * UINT64_C(0xbf58476d1ce4e5b9);
}

static void write_piece(unsigned char *target, size_t bytes, int s, int d)
{
    for (size_t i = 0; i < bytes / WORD_BYTES; i++) {
        const uint64_t word = word_of(bytes, s, d, i);

        memcpy(target + i * WORD_BYTES, &word, WORD_BYTES);
    }
}

static enum zo_status check_piece(const struct bench *bench, const char *what,
                                  size_t bytes, int s, int d, int tag)
{
    const unsigned char *piece = bench->host + (size_t)s * bytes;

    for (size_t i = 0; i < bytes / WORD_BYTES; i++) {
        const uint64_t want = word_of(bytes, s, tag, i);
        uint64_t got;

        memcpy(&got, piece + i * WORD_BYTES, WORD_BYTES);
        if (got != want) {
            return ZO_FAIL(ZO_E_COMM,
                           "%s: of %zu bytes that %s sent to %s, those from "
                           "%zu on came as %016llx, not %016llx: " WAY_OUT,
                           what, bytes, name_of(bench, s), name_of(bench, d),
                           i * WORD_BYTES, (unsigned long long)got,
                           (unsigned long long)want);
        }
    }
    return ZO_OK;
}

/* From or to bench->host, with nothing else under way. */
static enum zo_status copy_now(const struct bench *bench, int rank,
                               void *target, const void *source, size_t bytes)
{
    const struct zo_device_ops *ops = bench->args->device_ops;

    ZO_TRY(ops->copy(bench->streams[rank], target, source, bytes));
    return ops->stream_sync(bench->streams[rank]);
}

/* ---- one collective ------------------------------------------------------ */

static enum zo_status wait_all(const struct bench *bench, const char *what,
                               size_t bytes)
{
    const struct zo_comm_selftest_args *args = bench->args;
    const struct zo_device_ops *ops = args->device_ops;
    const int64_t end_ns = zo_clock_ns() + args->timeout_ns;
    const struct timespec pause = {0, POLL_NS};
    int passed = 0;

    for (int r = 0; r < args->ranks; r++) {
        ZO_TRY(ops->event_record(bench->streams[r], bench->passed[r]));
    }
    while (passed < args->ranks) {
        bool done = false;

        ZO_TRY(ops->event_query(bench->passed[passed], &done));
        if (done) {
            passed++;
            continue;
        }
        ZO_TRY(args->comm_ops->check(args->comm));
        if (zo_clock_ns() > end_ns) {
            return ZO_FAIL(ZO_E_COMM,
                           "%s: %zu bytes from each of %d devices, %s to %s, "
                           "have not come within %.1f s: " WAY_OUT,
                           what, bytes, args->ranks, name_of(bench, 0),
                           name_of(bench, args->ranks - 1),
                           (double)args->timeout_ns * 1e-9);
        }
        (void)nanosleep(&pause, NULL);
    }
    return ZO_OK;
}

static enum zo_status clear_targets(const struct bench *bench)
{
    for (int r = 0; r < bench->args->ranks; r++) {
        ZO_TRY(bench->args->device_ops->fill(bench->streams[r],
                                             bench->targets[r], NOT_SENT,
                                             bench->target_bytes));
    }
    return ZO_OK;
}

/* tag_of_d: the piece is another for each target, as in an exchange. */
static enum zo_status check_targets(const struct bench *bench, const char *what,
                                    size_t bytes, bool tag_of_d)
{
    const int ranks = bench->args->ranks;

    for (int d = 0; d < ranks; d++) {
        ZO_TRY(copy_now(bench, d, bench->host, bench->targets[d],
                        (size_t)ranks * bytes));
        for (int s = 0; s < ranks; s++) {
            ZO_TRY(check_piece(bench, what, bytes, s, d, tag_of_d ? d : s));
        }
    }
    return ZO_OK;
}

static enum zo_status check_exchange(const struct bench *bench, size_t bytes)
{
    const struct zo_comm_selftest_args *args = bench->args;
    const size_t stride = bytes + GAP_BYTES;

    for (int s = 0; s < args->ranks; s++) {
        for (int d = 0; d < args->ranks; d++) {
            write_piece(bench->host + (size_t)d * stride, bytes, s, d);
        }
        ZO_TRY(copy_now(bench, s, bench->sources[s], bench->host,
                        (size_t)args->ranks * stride));
    }
    ZO_TRY(clear_targets(bench));
    ZO_TRY(args->comm_ops->exchange(
        args->comm, &(struct zo_comm_exchange_args){
                        .streams = bench->streams,
                        .targets = bench->targets,
                        .sources = (const void *const *)bench->sources,
                        .piece_bytes = bytes,
                        .stride_bytes = stride,
                    }));
    ZO_TRY(wait_all(bench, "exchange", bytes));
    return check_targets(bench, "exchange", bytes, true);
}

static enum zo_status check_all_gather(const struct bench *bench, size_t bytes)
{
    const struct zo_comm_selftest_args *args = bench->args;

    ZO_TRY(clear_targets(bench));
    for (int s = 0; s < args->ranks; s++) {
        write_piece(bench->host, bytes, s, s);
        ZO_TRY(copy_now(bench, s, (char *)bench->targets[s] + (size_t)s * bytes,
                        bench->host, bytes));
    }
    ZO_TRY(args->comm_ops->all_gather(args->comm,
                                      &(struct zo_comm_all_gather_args){
                                          .streams = bench->streams,
                                          .buffers = bench->targets,
                                          .piece_bytes = bytes,
                                      }));
    ZO_TRY(wait_all(bench, "all-gather", bytes));
    return check_targets(bench, "all-gather", bytes, false);
}

/* Sizes for which a library may choose another way each. */
static enum zo_status check_sizes(const struct bench *bench)
{
    const size_t most = bench->args->piece_bytes_max / WORD_BYTES * WORD_BYTES;
    const size_t sizes[] = {WORD_BYTES, 4096, 65536, 1048576, most};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (sizes[i] <= most) {
            ZO_TRY(check_exchange(bench, sizes[i]));
            ZO_TRY(check_all_gather(bench, sizes[i]));
        }
    }
    return ZO_OK;
}

enum zo_status zo_comm_selftest(const struct zo_comm_selftest_args *args)
{
    const size_t ranks = (size_t)args->ranks;
    struct bench bench = {
        .args = args,
        .source_bytes = ranks * (args->piece_bytes_max + GAP_BYTES),
        .target_bytes = ranks * args->piece_bytes_max,
    };
    enum zo_status status;
    struct zo_err failure;

    status = bench_open(&bench);
    if (status == ZO_OK) {
        status = check_sizes(&bench);
    }
    failure = *zo_err_last();
    if (status != ZO_OK) {
        args->comm_ops->abort(args->comm); /* or streams may never end */
    }
    bench_close(&bench);
    return status == ZO_OK ? ZO_OK : zo_err_adopt(&failure);
}
