/*
 * Collectives between GPUs by NCCL: one communicator a device, all of them in
 * this process, each collective one group that the issuing thread makes.
 *
 * Communicators are blocking ones: a group of those that do not block starts
 * a thread, and what follows it on a stream may be queued before it.  A
 * blocking group returns when its kernels are queued.  What can hang, the
 * first of all copies, is looked at with a time limit when opening; what
 * hangs later since a device has failed is ended by abort.
 *
 * A rank's own piece is a copy on its stream, not a send: it need not wait.
 */
#include "src/comm/comm.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>

#include "src/base/memory.h"
#include "src/comm/comm_selftest.h"
#include "src/device/stream_cuda.h"

#define NOTES_BYTES        512
#define CHECK_PIECE_BYTES  ((size_t)4 << 20)
#define CHECK_SOURCE_BYTES ((size_t)32 << 20) /* of all pieces of a device */
#define CHECK_TIMEOUT_NS   INT64_C(30000000000)

struct rank {
    struct zo_device *device; /* borrowed */
    struct zo_event *ready;   /* it has come to a collective of no bytes */
    ncclComm_t native;        /* NULL: not open, or aborted */
    uint64_t own_device_bytes;
};

struct zo_comm {
    int ranks;
    bool is_aborted;
    struct rank rank[ZO_RANKS_MAX];
    char notes[NOTES_BYTES];
};

static const struct zo_device_ops *const cuda = &zo_device_cuda;

static enum zo_status fail(const char *what, ncclResult_t result)
{
    const char *more = ncclGetLastError(NULL);

    (void)cudaGetLastError(); /* or the next call of CUDA would see it */
    return ZO_FAIL_NATIVE(ZO_E_COMM, (int)result, "NCCL: %s: %s%s%s", what,
                          ncclGetErrorString(result),
                          more != NULL && more[0] != '\0' ? ": " : "",
                          more != NULL ? more : "");
}

#define NCCL_TRY(what, call)                 \
    do {                                     \
        const ncclResult_t result_ = (call); \
        if (result_ != ncclSuccess) {        \
            return fail((what), result_);    \
        }                                    \
    } while (0)

/* ---- opening and closing ------------------------------------------------- */

/* Begun and not ended groups would swallow all later calls. */
static ncclResult_t end_group(ncclResult_t result)
{
    const ncclResult_t ended = ncclGroupEnd();

    return result != ncclSuccess ? result : ended;
}

static ncclResult_t init_rank(struct zo_comm *comm, int r, ncclUniqueId id)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const int index = zo_device_cuda_index(comm->rank[r].device);

    config.blocking = 1;
    if (cudaSetDevice(index) != cudaSuccess) {
        return ncclUnhandledCudaError;
    }
    return ncclCommInitRankConfig(&comm->rank[r].native, comm->ranks, id, r,
                                  &config);
}

static enum zo_status init_all(struct zo_comm *comm)
{
    ncclResult_t result = ncclSuccess;
    ncclUniqueId id;

    NCCL_TRY("a name for the communicators", ncclGetUniqueId(&id));
    NCCL_TRY("opening the communicators", ncclGroupStart());
    for (int r = 0; r < comm->ranks && result == ncclSuccess; r++) {
        result = init_rank(comm, r, id);
    }
    result = end_group(result);
    if (result != ncclSuccess) {
        for (int r = 0; r < comm->ranks; r++) {
            comm->rank[r].native = NULL; /* in what state, nobody knows */
        }
        return fail("opening the communicators", result);
    }
    return ZO_OK;
}

static void nccl_abort(struct zo_comm *comm)
{
    ncclResult_t result = ncclGroupStart();

    comm->is_aborted = true;
    for (int r = 0; r < comm->ranks; r++) {
        if (result == ncclSuccess) {
            (void)ncclCommAbort(comm->rank[r].native);
        }
        comm->rank[r].native = NULL;
    }
    if (result == ncclSuccess) {
        (void)ncclGroupEnd();
    }
    (void)cudaGetLastError();
}

static void nccl_close(struct zo_comm *comm)
{
    if (comm == NULL) {
        return;
    }
    for (int r = 0; r < comm->ranks; r++) {
        if (comm->rank[r].native != NULL) {
            (void)ncclCommDestroy(comm->rank[r].native);
        }
        cuda->event_close(comm->rank[r].ready);
    }
    (void)cudaGetLastError();
    zo_free(comm);
}

static enum zo_status note(struct zo_comm *comm)
{
    char variables[NOTES_BYTES - 64];
    int version = 0;

    NCCL_TRY("its version", ncclGetVersion(&version));
    (void)zo_comm_environment("NCCL_", variables, sizeof(variables));
    (void)snprintf(comm->notes, sizeof(comm->notes), "NCCL %d.%d.%d%s%s",
                   version / 10000, version / 100 % 100, version % 100,
                   variables[0] != '\0' ? " with " : "", variables);
    return ZO_OK;
}

/* The first collectives, checked: NCCL connects devices when it must. */
static enum zo_status check_first(struct zo_comm *comm,
                                  struct zo_device *const *devices)
{
    const size_t share = CHECK_SOURCE_BYTES / (size_t)comm->ranks;
    const struct zo_comm_selftest_args args = {
        .comm_ops = &zo_comm_nccl,
        .comm = comm,
        .device_ops = cuda,
        .devices = devices,
        .ranks = comm->ranks,
        .piece_bytes_max =
            share < CHECK_PIECE_BYTES ? share : CHECK_PIECE_BYTES,
        .timeout_ns = CHECK_TIMEOUT_NS,
    };

    return zo_comm_selftest(&args);
}

/* Opens, and takes what the devices have less of behind it. */
static enum zo_status open_measured(struct zo_comm *comm,
                                    struct zo_device *const *devices)
{
    uint64_t before[ZO_RANKS_MAX], after;

    for (int r = 0; r < comm->ranks; r++) {
        comm->rank[r].device = devices[r];
        ZO_TRY(cuda->event_open(devices[r], &comm->rank[r].ready));
        ZO_TRY(cuda->mem_free_bytes(devices[r], &before[r]));
    }
    ZO_TRY(note(comm));
    ZO_TRY(init_all(comm));
    ZO_TRY(check_first(comm, devices));
    for (int r = 0; r < comm->ranks; r++) {
        ZO_TRY(cuda->mem_free_bytes(devices[r], &after));
        comm->rank[r].own_device_bytes =
            before[r] > after ? before[r] - after : 0;
    }
    return ZO_OK;
}

static enum zo_status nccl_open(struct zo_device *const *devices, int count,
                                struct zo_comm **comm_out)
{
    struct zo_comm *comm = NULL;
    enum zo_status status;

    if (count < 1 || count > ZO_RANKS_MAX) {
        return ZO_FAIL(ZO_E_ARG, "collectives between %d devices; want 1..%d",
                       count, ZO_RANKS_MAX);
    }
    ZO_TRY(zo_alloc(1, sizeof(*comm), "the collectives", &comm));
    comm->ranks = count;
    status = open_measured(comm, devices);
    if (status != ZO_OK) {
        const struct zo_err failure = *zo_err_last();

        nccl_close(comm);
        return zo_err_adopt(&failure);
    }
    *comm_out = comm;
    return ZO_OK;
}

static uint64_t nccl_own_device_bytes(const struct zo_comm *comm, int rank)
{
    return comm->rank[rank].own_device_bytes;
}

static const char *nccl_notes(const struct zo_comm *comm)
{
    return comm->notes;
}

/* ---- failure ------------------------------------------------------------- */

static enum zo_status refuse_aborted(const struct zo_comm *comm)
{
    return comm->is_aborted
               ? ZO_FAIL(ZO_E_COMM, "NCCL: a collective, but all of them were "
                                    "aborted")
               : ZO_OK;
}

static enum zo_status nccl_check(struct zo_comm *comm)
{
    ZO_TRY(refuse_aborted(comm));
    for (int r = 0; r < comm->ranks; r++) {
        ncclResult_t failure = ncclSuccess;
        ncclResult_t result =
            ncclCommGetAsyncError(comm->rank[r].native, &failure);

        result = result != ncclSuccess ? result : failure;
        if (result != ncclSuccess && result != ncclInProgress) {
            return fail(cuda->info(comm->rank[r].device)->name, result);
        }
    }
    return ZO_OK;
}

/* ---- collectives --------------------------------------------------------- */

/* NCCL drops what has no bytes; the barrier is still wanted. */
static enum zo_status meet(struct zo_comm *comm,
                           struct zo_stream *const *streams)
{
    for (int r = 0; r < comm->ranks; r++) {
        ZO_TRY(cuda->event_record(streams[r], comm->rank[r].ready));
    }
    for (int r = 0; r < comm->ranks; r++) {
        for (int other = 0; other < comm->ranks; other++) {
            if (other != r) {
                ZO_TRY(cuda->event_wait(streams[r], comm->rank[other].ready));
            }
        }
    }
    return ZO_OK;
}

/* All that one rank sends and receives, inside a group. */
static ncclResult_t exchange_rank(struct zo_comm *comm, int r,
                                  const struct zo_comm_exchange_args *args)
{
    const struct rank *rank = &comm->rank[r];
    struct CUstream_st *stream = zo_stream_cuda_native(args->streams[r]);
    const char *source = args->sources[r];
    char *target = args->targets[r];
    const size_t bytes = args->piece_bytes;
    ncclResult_t result = ncclSuccess;

    for (int peer = 0; peer < comm->ranks && result == ncclSuccess; peer++) {
        if (peer == r) {
            continue;
        }
        result = ncclSend(source + (size_t)peer * args->stride_bytes, bytes,
                          ncclUint8, peer, rank->native, stream);
        if (result == ncclSuccess) {
            result = ncclRecv(target + (size_t)peer * bytes, bytes, ncclUint8,
                              peer, rank->native, stream);
        }
    }
    return result;
}

static enum zo_status nccl_exchange(struct zo_comm *comm,
                                    const struct zo_comm_exchange_args *args)
{
    ncclResult_t result = ncclSuccess;

    ZO_TRY(zo_comm_exchange_check(args, comm->ranks));
    ZO_TRY(refuse_aborted(comm));
    if (args->piece_bytes == 0) {
        return meet(comm, args->streams);
    }
    for (int r = 0; r < comm->ranks; r++) {
        ZO_TRY(cuda->copy(
            args->streams[r],
            (char *)args->targets[r] + (size_t)r * args->piece_bytes,
            (const char *)args->sources[r] + (size_t)r * args->stride_bytes,
            args->piece_bytes));
    }
    if (comm->ranks == 1) {
        return ZO_OK;
    }
    NCCL_TRY("exchange", ncclGroupStart());
    for (int r = 0; r < comm->ranks && result == ncclSuccess; r++) {
        result = exchange_rank(comm, r, args);
    }
    NCCL_TRY("exchange", end_group(result));
    return ZO_OK;
}

static enum zo_status
nccl_all_gather(struct zo_comm *comm,
                const struct zo_comm_all_gather_args *args)
{
    ncclResult_t result = ncclSuccess;

    ZO_TRY(zo_comm_all_gather_check(args, comm->ranks));
    ZO_TRY(refuse_aborted(comm));
    if (args->piece_bytes == 0) {
        return meet(comm, args->streams);
    }
    if (comm->ranks == 1) {
        return ZO_OK;
    }
    NCCL_TRY("all-gather", ncclGroupStart());
    for (int r = 0; r < comm->ranks && result == ncclSuccess; r++) {
        char *buffer = args->buffers[r];

        result =
            ncclAllGather(buffer + (size_t)r * args->piece_bytes, buffer,
                          args->piece_bytes, ncclUint8, comm->rank[r].native,
                          zo_stream_cuda_native(args->streams[r]));
    }
    NCCL_TRY("all-gather", end_group(result));
    return ZO_OK;
}

const struct zo_comm_ops zo_comm_nccl = {
    .kind = "cuda",
    .open = nccl_open,
    .close = nccl_close,
    .own_device_bytes = nccl_own_device_bytes,
    .notes = nccl_notes,
    .exchange = nccl_exchange,
    .all_gather = nccl_all_gather,
    .check = nccl_check,
    .abort = nccl_abort,
};
