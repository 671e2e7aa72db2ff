/*
 * Collectives between virtual host devices, by copies on their streams.
 *
 * Each rank pulls what it needs: its stream waits until every rank has come,
 * copies, and leaves when every rank has copied.  Two events a rank, opened
 * once: a wait is for the record that stands when it is queued, so the next
 * collective may record them again at once.
 */
#include "src/comm/comm.h"

#include "src/base/memory.h"

struct zo_comm {
    int ranks;
    bool is_aborted;
    struct {
        struct zo_event *ready; /* the rank has come to the collective */
        struct zo_event *done;  /* it has copied all it needs */
    } rank[ZO_RANKS_MAX];
};

static const struct zo_device_ops *const host = &zo_device_host;

static void host_close(struct zo_comm *comm)
{
    if (comm == NULL) {
        return;
    }
    for (int r = 0; r < comm->ranks; r++) {
        host->event_close(comm->rank[r].ready);
        host->event_close(comm->rank[r].done);
    }
    zo_free(comm);
}

static enum zo_status host_open(struct zo_device *const *devices, int count,
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
    for (int r = 0; r < count; r++) {
        ZO_TRY_GOTO(close_comm,
                    host->event_open(devices[r], &comm->rank[r].ready));
        ZO_TRY_GOTO(close_comm,
                    host->event_open(devices[r], &comm->rank[r].done));
    }
    *comm_out = comm;
    return ZO_OK;

close_comm:
    host_close(comm);
    return status;
}

static enum zo_status refuse_aborted(const struct zo_comm *comm)
{
    return comm->is_aborted ? ZO_FAIL(ZO_E_COMM, "host: a collective, but all "
                                                 "of them were aborted")
                            : ZO_OK;
}

/* No stream goes on before every stream has come. */
static enum zo_status meet_ready(struct zo_comm *comm,
                                 struct zo_stream *const *streams)
{
    for (int r = 0; r < comm->ranks; r++) {
        ZO_TRY(host->event_record(streams[r], comm->rank[r].ready));
    }
    for (int r = 0; r < comm->ranks; r++) {
        for (int other = 0; other < comm->ranks; other++) {
            ZO_TRY(host->event_wait(streams[r], comm->rank[other].ready));
        }
    }
    return ZO_OK;
}

/* No stream goes on while another still reads its buffers. */
static enum zo_status meet_done(struct zo_comm *comm,
                                struct zo_stream *const *streams)
{
    for (int r = 0; r < comm->ranks; r++) {
        ZO_TRY(host->event_record(streams[r], comm->rank[r].done));
    }
    for (int r = 0; r < comm->ranks; r++) {
        for (int other = 0; other < comm->ranks; other++) {
            ZO_TRY(host->event_wait(streams[r], comm->rank[other].done));
        }
    }
    return ZO_OK;
}

static enum zo_status host_exchange(struct zo_comm *comm,
                                    const struct zo_comm_exchange_args *args)
{
    const size_t bytes = args->piece_bytes;

    ZO_TRY(zo_comm_exchange_check(args, comm->ranks));
    ZO_TRY(refuse_aborted(comm));
    ZO_TRY(meet_ready(comm, args->streams));
    for (int d = 0; d < comm->ranks && bytes > 0; d++) {
        for (int s = 0; s < comm->ranks; s++) {
            char *target = (char *)args->targets[d] + (size_t)s * bytes;
            const char *source =
                (const char *)args->sources[s] + (size_t)d * args->stride_bytes;

            ZO_TRY(host->copy(args->streams[d], target, source, bytes));
        }
    }
    return meet_done(comm, args->streams);
}

static enum zo_status
host_all_gather(struct zo_comm *comm,
                const struct zo_comm_all_gather_args *args)
{
    const size_t bytes = args->piece_bytes;

    ZO_TRY(zo_comm_all_gather_check(args, comm->ranks));
    ZO_TRY(refuse_aborted(comm));
    ZO_TRY(meet_ready(comm, args->streams));
    for (int d = 0; d < comm->ranks && bytes > 0; d++) {
        for (int s = 0; s < comm->ranks; s++) {
            char *target = (char *)args->buffers[d] + (size_t)s * bytes;
            const char *source =
                (const char *)args->buffers[s] + (size_t)s * bytes;

            if (s != d) {
                ZO_TRY(host->copy(args->streams[d], target, source, bytes));
            }
        }
    }
    return meet_done(comm, args->streams);
}

/* Queues belong to the streams, which are counted elsewhere. */
static uint64_t host_own_device_bytes(const struct zo_comm *comm, int rank)
{
    (void)comm, (void)rank;
    return 0;
}

static const char *host_notes(const struct zo_comm *comm)
{
    (void)comm;
    return "";
}

/* A failure goes from stream to stream with the events: nothing is hidden. */
static enum zo_status host_check(struct zo_comm *comm)
{
    return refuse_aborted(comm);
}

/* For the same reason nothing hangs: what is queued ends by itself. */
static void host_abort(struct zo_comm *comm)
{
    comm->is_aborted = true;
}

const struct zo_comm_ops zo_comm_host = {
    .kind = "host",
    .open = host_open,
    .close = host_close,
    .own_device_bytes = host_own_device_bytes,
    .notes = host_notes,
    .exchange = host_exchange,
    .all_gather = host_all_gather,
    .check = host_check,
    .abort = host_abort,
};
