/*
 * Collectives between GPUs that reach each other's memory: each copies from
 * the others, on its own stream, ordered by events.
 *
 * One process has all devices, so an address of one is an address for all, and
 * a collective is nothing but copies between two barriers of the streams.
 * Copy engines make them: no multiprocessor is taken from what computes beside
 * (NCCL's kernels take some, and a matrix product that counts on all of them
 * then goes round once more), and no memory.  Where devices do not reach each
 * other, or with wrong bytes, NCCL carries (comm_nccl.c).
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/comm/comm.h"
#include "src/comm/comm_selftest.h"
#include "src/device/stream_cuda.h"

#define CHECK_PIECE_BYTES  ((size_t)4 << 20)
#define CHECK_SOURCE_BYTES ((size_t)32 << 20) /* of all pieces of a device */
#define CHECK_TIMEOUT_NS   INT64_C(30000000000)

struct rank {
    struct zo_device *device;   /* borrowed */
    struct zo_event *here;      /* its stream has come to a barrier */
    bool reaches[ZO_RANKS_MAX]; /* our doing: taken back at close */
    uint64_t own_device_bytes;
};

struct zo_comm {
    int ranks;
    bool is_aborted;
    struct rank rank[ZO_RANKS_MAX];
};

static const struct zo_device_ops *const cuda = &zo_device_cuda;

/* ---- opening and closing ------------------------------------------------- */

static const char *name_of(const struct zo_comm *comm, int r)
{
    return cuda->info(comm->rank[r].device)->name;
}

static enum zo_status fail(const struct zo_comm *comm, int r, int peer,
                           cudaError_t error)
{
    (void)cudaGetLastError(); /* or the next call of CUDA would see it */
    return ZO_FAIL_NATIVE(
        ZO_E_COMM, (int)error, "%s does not reach the memory of %s: %s",
        name_of(comm, r), name_of(comm, peer), cudaGetErrorString(error));
}

/* Device r reaches the memory of another. */
static enum zo_status reach(struct zo_comm *comm, int r, int peer)
{
    const int index = zo_device_cuda_index(comm->rank[r].device);
    const int other = zo_device_cuda_index(comm->rank[peer].device);
    cudaError_t error;
    int can = 0;

    if (index == other) {
        return ZO_OK; /* devices that share a GPU */
    }
    error = cudaDeviceCanAccessPeer(&can, index, other);
    if (error != cudaSuccess) {
        return fail(comm, r, peer, error);
    }
    if (!can) {
        return ZO_FAIL(ZO_E_COMM, "%s cannot reach the memory of %s",
                       name_of(comm, r), name_of(comm, peer));
    }
    error = cudaSetDevice(index);
    if (error == cudaSuccess) {
        error = cudaDeviceEnablePeerAccess(other, 0);
    }
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
        return ZO_OK;
    }
    if (error != cudaSuccess) {
        return fail(comm, r, peer, error);
    }
    comm->rank[r].reaches[peer] = true;
    return ZO_OK;
}

/* NCCL's variable: nothing goes from GPU to GPU. */
static bool is_switched_off(void)
{
    const char *value = getenv("NCCL_P2P_DISABLE");

    return value != NULL && strcmp(value, "0") != 0 && value[0] != '\0';
}

static enum zo_status reach_all(struct zo_comm *comm)
{
    if (is_switched_off()) {
        return ZO_FAIL(ZO_E_COMM, "NCCL_P2P_DISABLE is set");
    }
    for (int r = 0; r < comm->ranks; r++) {
        for (int peer = 0; peer < comm->ranks; peer++) {
            if (peer != r) {
                ZO_TRY(reach(comm, r, peer));
            }
        }
    }
    return ZO_OK;
}

static void peer_close(struct zo_comm *comm)
{
    if (comm == NULL) {
        return;
    }
    for (int r = 0; r < comm->ranks; r++) {
        cuda->event_close(comm->rank[r].here);
        for (int peer = 0; peer < comm->ranks; peer++) {
            if (comm->rank[r].reaches[peer] &&
                cudaSetDevice(zo_device_cuda_index(comm->rank[r].device)) ==
                    cudaSuccess) {
                (void)cudaDeviceDisablePeerAccess(
                    zo_device_cuda_index(comm->rank[peer].device));
            }
        }
    }
    (void)cudaGetLastError();
    zo_free(comm);
}

static enum zo_status check_first(struct zo_comm *comm,
                                  struct zo_device *const *devices)
{
    const size_t share = CHECK_SOURCE_BYTES / (size_t)comm->ranks;
    const struct zo_comm_selftest_args args = {
        .comm_ops = &zo_comm_peer,
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
        ZO_TRY(cuda->event_open(devices[r], &comm->rank[r].here));
        ZO_TRY(cuda->mem_free_bytes(devices[r], &before[r]));
    }
    ZO_TRY(reach_all(comm));
    ZO_TRY(check_first(comm, devices));
    for (int r = 0; r < comm->ranks; r++) {
        ZO_TRY(cuda->mem_free_bytes(devices[r], &after));
        comm->rank[r].own_device_bytes =
            before[r] > after ? before[r] - after : 0;
    }
    return ZO_OK;
}

static enum zo_status peer_open(struct zo_device *const *devices, int count,
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

        peer_close(comm);
        return zo_err_adopt(&failure);
    }
    *comm_out = comm;
    return ZO_OK;
}

static uint64_t peer_own_device_bytes(const struct zo_comm *comm, int rank)
{
    return comm->rank[rank].own_device_bytes;
}

static const char *peer_notes(const struct zo_comm *comm)
{
    return comm->ranks > 1 ? "copies from GPU to GPU" : "";
}

/* ---- failure ------------------------------------------------------------- */

/* Copies end by themselves, and one thread queues all parts of a collective:
 * nothing is to be ended, and streams tell of what failed. */
static void peer_abort(struct zo_comm *comm)
{
    comm->is_aborted = true;
}

static enum zo_status peer_check(struct zo_comm *comm)
{
    return comm->is_aborted
               ? ZO_FAIL(ZO_E_COMM, "a collective, but all of them were "
                                    "aborted")
               : ZO_OK;
}

/* ---- collectives --------------------------------------------------------- */

/* No stream passes before all have come. */
static enum zo_status meet(struct zo_comm *comm,
                           struct zo_stream *const *streams)
{
    for (int r = 0; r < comm->ranks; r++) {
        ZO_TRY(cuda->event_record(streams[r], comm->rank[r].here));
    }
    for (int r = 0; r < comm->ranks; r++) {
        for (int other = 0; other < comm->ranks; other++) {
            if (other != r) {
                ZO_TRY(cuda->event_wait(streams[r], comm->rank[other].here));
            }
        }
    }
    return ZO_OK;
}

/* Each begins with another peer, so that no link has all of them at once. */
static int peer_at(const struct zo_comm *comm, int r, int i)
{
    return (r + i) % comm->ranks;
}

static enum zo_status peer_exchange(struct zo_comm *comm,
                                    const struct zo_comm_exchange_args *args)
{
    const size_t bytes = args->piece_bytes;

    ZO_TRY(zo_comm_exchange_check(args, comm->ranks));
    ZO_TRY(peer_check(comm));
    ZO_TRY(meet(comm, args->streams));
    if (bytes == 0) {
        return ZO_OK;
    }
    for (int i = 0; i < comm->ranks; i++) {
        for (int r = 0; r < comm->ranks; r++) {
            const int peer = peer_at(comm, r, i);

            ZO_TRY(cuda->copy(args->streams[r],
                              (char *)args->targets[r] + (size_t)peer * bytes,
                              (const char *)args->sources[peer] +
                                  (size_t)r * args->stride_bytes,
                              bytes));
        }
    }
    return meet(comm, args->streams); /* who still reads my sources? */
}

static enum zo_status
peer_all_gather(struct zo_comm *comm,
                const struct zo_comm_all_gather_args *args)
{
    const size_t bytes = args->piece_bytes;

    ZO_TRY(zo_comm_all_gather_check(args, comm->ranks));
    ZO_TRY(peer_check(comm));
    ZO_TRY(meet(comm, args->streams));
    if (bytes == 0 || comm->ranks == 1) {
        return ZO_OK;
    }
    for (int i = 1; i < comm->ranks; i++) {
        for (int r = 0; r < comm->ranks; r++) {
            const int peer = peer_at(comm, r, i);
            const size_t at = (size_t)peer * bytes;

            ZO_TRY(cuda->copy(args->streams[r], (char *)args->buffers[r] + at,
                              (const char *)args->buffers[peer] + at, bytes));
        }
    }
    return meet(comm, args->streams);
}

const struct zo_comm_ops zo_comm_peer = {
    .kind = "cuda",
    .open = peer_open,
    .close = peer_close,
    .own_device_bytes = peer_own_device_bytes,
    .notes = peer_notes,
    .exchange = peer_exchange,
    .all_gather = peer_all_gather,
    .check = peer_check,
    .abort = peer_abort,
};
