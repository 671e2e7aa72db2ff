/*
 * The store's back end of io_uring: the only file that knows liburing (2.0).
 *
 * One thread owns the ring: it cuts pieces into blocks, submits and reaps
 * them.  An eventfd wakes it.  What others want of the ring (to register
 * memory) it does between two rounds, with nothing under way, since older
 * kernels wait for that.  Pieces are finished by threads of their own, since
 * one core makes hashes no faster than a disk reads.
 */
#include <errno.h>
#include <inttypes.h>
#include <liburing.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "offload/nvme_internal.h"
#include "offload/nvme_ranges.h"
#include "src/base/memory.h"
#include "src/base/pool.h"
#include "src/base/text.h"
#include "src/base/thread.h"
#include "src/base/uring_probe.h"

/* What the kernel registers in one piece. */
#define REGISTER_BYTES ((size_t)1 << 30)
#define FINISHERS_MAX  4
#define FINISHER_CORES 8 /* of the machine, for each of them */

/* A block: an I/O of the kernel, or one that waits for a place in the ring. */
struct slot {
    struct zo_nvme_piece *piece;
    size_t at, bytes; /* of the piece, still to be moved */
    int stalls;
    struct zo_nvme_io io;
    struct iovec vector; /* read by the kernel until it is done */
    struct slot *next;   /* free, or waiting */
};

struct record {
    struct zo_nvme_piece piece;
    struct record *next; /* free, or finished */
};

struct uring {
    struct zo_nvme *nvme;
    struct io_uring ring;
    int event; /* the eventfd */
    bool has_file, is_polling;
    int full_times; /* to be played yet */
    struct slot *slots, *free_slots, *todo;
    struct record *records, *free_records;
    struct record *moved;          /* to be given to the finishers */
    struct zo_nvme_piece *cutting; /* NULL: none */
    int in_kernel;                 /* blocks */

    struct iovec *registered; /* of the ring's thread */
    size_t registered_count;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t has_registered;
    struct zo_nvme_ranges ranges; /* to be registered, all of them */
    struct iovec *pieces;         /* room for them */
    bool is_stale;                /* what is registered is not they */

    pthread_mutex_t finish_lock; /* of what follows */
    pthread_cond_t has_moved;
    struct record *to_finish, *finished;
    bool starves; /* the ring waits for a record */
    bool ends;

    int finisher_count;
    pthread_t finishers[FINISHERS_MAX], thread;
};

/* ---- registered memory ---- */

static int registered_index(const struct uring *uring, const char *memory,
                            size_t bytes)
{
    for (size_t i = 0; i < uring->registered_count; i++) {
        const struct iovec *piece = &uring->registered[i];
        const uintptr_t first = (uintptr_t)piece->iov_base;
        const uintptr_t at = (uintptr_t)memory;

        if (at >= first && bytes <= piece->iov_len &&
            at - first <= piece->iov_len - bytes) {
            return (int)i;
        }
    }
    return -1;
}

static void note_refusal(struct zo_nvme *nvme, int error, uint64_t bytes)
{
    struct rlimit limit;
    char want[32], have[32];

    if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY) {
        zo_nvme_note(nvme,
                     "NVMe: io_uring may not keep %s of memory registered "
                     "(ENOMEM): the limit of locked memory is %s; each "
                     "transfer pins its own, which is slower; raise it with "
                     "ulimit -l",
                     zo_text_gib(want, sizeof(want), bytes),
                     zo_text_gib(have, sizeof(have), limit.rlim_cur));
        return;
    }
    zo_nvme_note(nvme,
                 "NVMe: io_uring may not keep memory registered (%s): each "
                 "transfer pins its own, which is slower",
                 strerror(error));
}

static int register_pieces(struct uring *uring)
{
    const struct zo_nvme_faults *faults = uring->nvme->faults;
    size_t count = 0;

    for (size_t i = 0; i < uring->ranges.count; i++) {
        const struct zo_nvme_range *range = &uring->ranges.items[i];

        for (size_t at = 0; at < range->bytes; at += REGISTER_BYTES) {
            const size_t rest = range->bytes - at;

            uring->pieces[count++] = (struct iovec){
                .iov_base = range->memory + at,
                .iov_len = rest < REGISTER_BYTES ? rest : REGISTER_BYTES,
            };
        }
    }
    (void)io_uring_unregister_buffers(&uring->ring);
    if (faults != NULL && faults->register_errno != 0) {
        return -faults->register_errno;
    }
    uring->registered = uring->pieces;
    uring->registered_count = count;
    return io_uring_register_buffers(&uring->ring, uring->pieces,
                                     (unsigned)count);
}

/* In the ring's thread, with nothing under way.  The whole list anew: the
 * kernel adds to none. */
static void renew_registration(struct uring *uring)
{
    int error;

    (void)pthread_mutex_lock(&uring->lock);
    error = register_pieces(uring);
    if (error < 0) {
        uring->registered_count = 0;
        uring->nvme->how = ZO_NVME_UNREGISTERED;
        note_refusal(uring->nvme, -error, zo_nvme_ranges_bytes(&uring->ranges));
    }
    uring->is_stale = false;
    (void)pthread_cond_broadcast(&uring->has_registered);
    (void)pthread_mutex_unlock(&uring->lock);
}

static bool is_stale(struct uring *uring)
{
    bool stale;

    (void)pthread_mutex_lock(&uring->lock);
    stale = uring->is_stale;
    (void)pthread_mutex_unlock(&uring->lock);
    return stale;
}

/* Only kept in mind: many calls are one registration, at the next request or
 * when somebody wants to know how it went. */
static enum zo_status keep_in_mind(struct uring *uring, char *memory,
                                   size_t bytes)
{
    const size_t pieces =
        zo_nvme_ranges_pieces(&uring->ranges, REGISTER_BYTES) +
        (bytes + REGISTER_BYTES - 1) / REGISTER_BYTES;

    /* The room first: what is in mind always has it. */
    ZO_TRY(zo_realloc(&uring->pieces, pieces, sizeof(uring->pieces[0]),
                      "the registered memory of the NVMe store"));
    ZO_TRY(zo_nvme_ranges_add(&uring->ranges, memory, bytes));
    uring->registered = uring->pieces; /* it may have moved */
    uring->is_stale = true;
    return ZO_OK;
}

static enum zo_status uring_register(void *backend, char *memory, size_t bytes)
{
    struct uring *uring = backend;
    enum zo_status status = ZO_OK;

    (void)pthread_mutex_lock(&uring->lock);
    if (uring->nvme->how == ZO_NVME_URING) {
        status = keep_in_mind(uring, memory, bytes);
    }
    (void)pthread_mutex_unlock(&uring->lock);
    return status;
}

static void uring_wake(void *backend)
{
    struct uring *uring = backend;
    const uint64_t one = 1;
    ssize_t written;

    do {
        written = write(uring->event, &one, sizeof(one));
    } while (written < 0 && errno == EINTR);
}

static void uring_settle(void *backend)
{
    struct uring *uring = backend;

    (void)pthread_mutex_lock(&uring->lock);
    if (uring->is_stale) {
        uring_wake(uring);
    }
    while (uring->is_stale) {
        (void)pthread_cond_wait(&uring->has_registered, &uring->lock);
    }
    (void)pthread_mutex_unlock(&uring->lock);
}

/* ---- blocks ---- */

static struct io_uring_sqe *place(struct uring *uring)
{
    if (uring->full_times > 0) {
        uring->full_times--;
        return NULL;
    }
    return io_uring_get_sqe(&uring->ring);
}

static void prepare(struct uring *uring, struct slot *slot,
                    struct io_uring_sqe *sqe)
{
    const struct zo_nvme_piece *piece = slot->piece;
    char *memory = piece->memory + slot->at;
    const uint64_t offset = piece->offset + slot->at;
    const int fd = uring->has_file ? 0 : uring->nvme->fd;
    int index;

    slot->io =
        zo_nvme_io_begin(uring->nvme, piece->writes, memory, slot->bytes);
    index = registered_index(uring, memory, slot->io.bytes);
    slot->vector.iov_base = memory;
    slot->vector.iov_len = slot->io.bytes;
    if (index >= 0 && piece->writes) {
        io_uring_prep_write_fixed(sqe, fd, memory, (unsigned)slot->io.bytes,
                                  offset, index);
    } else if (index >= 0) {
        io_uring_prep_read_fixed(sqe, fd, memory, (unsigned)slot->io.bytes,
                                 offset, index);
    } else if (piece->writes) {
        io_uring_prep_writev(sqe, fd, &slot->vector, 1, offset);
    } else {
        io_uring_prep_readv(sqe, fd, &slot->vector, 1, offset);
    }
    if (uring->has_file) {
        sqe->flags |= IOSQE_FIXED_FILE;
    }
    io_uring_sqe_set_data(sqe, slot);
    uring->in_kernel++;
}

/* The next block of the piece that is being cut, or of a new one. */
static struct slot *cut(struct uring *uring)
{
    struct zo_nvme_piece *piece = uring->cutting;
    struct slot *slot = uring->free_slots;
    size_t rest;

    if (slot == NULL) {
        return NULL;
    }
    if (piece == NULL) {
        struct record *record = uring->free_records;

        if (record == NULL || !zo_nvme_take(uring->nvme, &record->piece)) {
            return NULL;
        }
        uring->free_records = record->next;
        piece = &record->piece;
    }
    uring->free_slots = slot->next;
    rest = piece->bytes - piece->cut_bytes;
    slot->piece = piece;
    slot->at = piece->cut_bytes;
    slot->bytes =
        rest < uring->nvme->block_bytes ? rest : uring->nvme->block_bytes;
    slot->stalls = 0;
    piece->cut_bytes += slot->bytes;
    piece->blocks++;
    uring->cutting = piece->cut_bytes < piece->bytes ? piece : NULL;
    return slot;
}

/* As many blocks into the ring as there are places for. */
static void fill(struct uring *uring)
{
    for (;;) {
        struct io_uring_sqe *sqe;

        if (uring->todo == NULL) {
            uring->todo = cut(uring);
            if (uring->todo == NULL) {
                return;
            }
            uring->todo->next = NULL;
        }
        sqe = place(uring);
        if (sqe == NULL) {
            return;
        }
        prepare(uring, uring->todo, sqe);
        uring->todo = uring->todo->next;
    }
}

static void end_block(struct uring *uring, struct slot *slot)
{
    struct zo_nvme_piece *piece = slot->piece;

    slot->next = uring->free_slots;
    uring->free_slots = slot;
    piece->blocks--;
    if (piece->status != ZO_OK && uring->cutting == piece) {
        uring->cutting = NULL; /* its rest is let be */
        piece->cut_bytes = piece->bytes;
    }
    if (piece->blocks == 0 && piece->cut_bytes == piece->bytes) {
        struct record *record = (struct record *)piece;

        record->next = uring->moved;
        uring->moved = record;
    }
}

/* What is moved short goes on from the last whole page, as O_DIRECT wants. */
static void reap_block(struct uring *uring, struct slot *slot, int result)
{
    const int moved = zo_nvme_io_end(uring->nvme, &slot->io, result);
    const size_t whole =
        moved > 0 ? (size_t)moved / ZO_NVME_ALIGN * ZO_NVME_ALIGN : 0;
    const bool goes_on = moved >= 0 || moved == -EINTR || moved == -EAGAIN;

    uring->in_kernel--;
    slot->at += whole;
    slot->bytes -= whole;
    slot->stalls = whole > 0 ? 0 : slot->stalls + 1;
    if (slot->bytes == 0) {
        end_block(uring, slot);
    } else if (!goes_on || slot->stalls > ZO_NVME_STALLS_MAX) {
        zo_nvme_fail_piece(uring->nvme, slot->piece, slot->at, slot->bytes,
                           moved < 0 ? -moved : 0);
        end_block(uring, slot);
    } else {
        slot->next = uring->todo;
        uring->todo = slot;
    }
}

static void reap(struct uring *uring)
{
    struct io_uring_cqe *cqe;

    while (io_uring_peek_cqe(&uring->ring, &cqe) == 0) {
        struct slot *slot = io_uring_cqe_get_data(cqe);
        const int result = cqe->res;

        io_uring_cqe_seen(&uring->ring, cqe);
        if (slot == NULL) {
            uint64_t count;
            const ssize_t got = read(uring->event, &count, sizeof(count));

            (void)got; /* not there yet, or there: looked after all the same */
            uring->is_polling = false;
        } else {
            reap_block(uring, slot, result);
        }
    }
}

/* ---- pieces that have been moved ---- */

static void append(struct record **list, struct record *records)
{
    while (*list != NULL) {
        list = &(*list)->next;
    }
    *list = records;
}

/* Gives the finishers what has been moved, and takes records back. */
static void exchange(struct uring *uring)
{
    (void)pthread_mutex_lock(&uring->finish_lock);
    if (uring->moved != NULL) {
        append(&uring->to_finish, uring->moved);
        uring->moved = NULL;
        (void)pthread_cond_broadcast(&uring->has_moved);
    }
    append(&uring->finished, uring->free_records);
    uring->free_records = uring->finished;
    uring->finished = NULL;
    uring->starves = uring->free_records == NULL;
    (void)pthread_mutex_unlock(&uring->finish_lock);
}

static void *finish(void *argument)
{
    struct uring *uring = argument;

    (void)pthread_mutex_lock(&uring->finish_lock);
    for (;;) {
        struct record *record = uring->to_finish;
        bool wakes;

        if (record == NULL && uring->ends) {
            break;
        }
        if (record == NULL) {
            (void)pthread_cond_wait(&uring->has_moved, &uring->finish_lock);
            continue;
        }
        uring->to_finish = record->next;
        (void)pthread_mutex_unlock(&uring->finish_lock);
        zo_nvme_finish(uring->nvme, &record->piece);
        (void)pthread_mutex_lock(&uring->finish_lock);
        record->next = uring->finished;
        uring->finished = record;
        wakes = uring->starves;
        uring->starves = false;
        if (wakes) {
            uring_wake(uring);
        }
    }
    (void)pthread_mutex_unlock(&uring->finish_lock);
    return NULL;
}

static void end_finishers(struct uring *uring)
{
    (void)pthread_mutex_lock(&uring->finish_lock);
    uring->ends = true;
    (void)pthread_cond_broadcast(&uring->has_moved);
    (void)pthread_mutex_unlock(&uring->finish_lock);
    for (int i = 0; i < uring->finisher_count; i++) {
        (void)pthread_join(uring->finishers[i], NULL);
    }
}

/* One at least; the system may refuse the others. */
static enum zo_status start_finishers(struct uring *uring)
{
    const int wanted = zo_cpu_count() / FINISHER_CORES;

    for (int i = 0; i < FINISHERS_MAX && i <= wanted; i++) {
        const enum zo_status status =
            zo_thread_start("nvme-hash", finish, uring, &uring->finishers[i]);

        if (status != ZO_OK) {
            return i == 0 ? status : ZO_OK;
        }
        uring->finisher_count = i + 1;
    }
    return ZO_OK;
}

/* ---- the ring's thread ---- */

static void poll_event(struct uring *uring)
{
    struct io_uring_sqe *sqe;

    if (uring->is_polling) {
        return;
    }
    sqe = io_uring_get_sqe(&uring->ring);
    if (sqe != NULL) {
        io_uring_prep_poll_add(sqe, uring->event, POLLIN);
        io_uring_sqe_set_data(sqe, NULL);
        uring->is_polling = true;
    }
}

static void enter(struct uring *uring)
{
    const struct timespec pause = {0, 1000000};
    /* A block that found no place is tried again at once when nothing else
     * would wake us. */
    const bool waits =
        uring->is_polling && (uring->todo == NULL || uring->in_kernel > 0);
    const int result = waits ? io_uring_submit_and_wait(&uring->ring, 1)
                             : io_uring_submit(&uring->ring);

    if (result == -EAGAIN || result == -EBUSY || result == -ENOMEM) {
        (void)nanosleep(&pause, NULL); /* what is under way makes room */
    } else {
        ZO_ASSERT(result >= 0 || result == -EINTR);
    }
}

static bool is_over(struct uring *uring)
{
    bool closes;

    (void)pthread_mutex_lock(&uring->nvme->lock);
    closes = uring->nvme->is_closing;
    (void)pthread_mutex_unlock(&uring->nvme->lock);
    return closes;
}

static void *work(void *argument)
{
    struct uring *uring = argument;

    while (!is_over(uring)) {
        exchange(uring);
        if (!is_stale(uring)) {
            fill(uring);
        } else if (uring->in_kernel == 0) {
            renew_registration(uring);
            fill(uring);
        }
        poll_event(uring);
        enter(uring);
        reap(uring);
    }
    return NULL;
}

/* ---- open and close ---- */

static enum zo_status make_records(struct uring *uring)
{
    const size_t slots = (size_t)uring->nvme->depth;
    const size_t records = 3 * slots + 1; /* twice as many to be finished */

    ZO_TRY(zo_alloc(slots, sizeof(uring->slots[0]),
                    "the blocks of the NVMe store", &uring->slots));
    ZO_TRY(zo_alloc(records, sizeof(uring->records[0]),
                    "the pieces of the NVMe store", &uring->records));
    for (size_t i = 0; i < slots; i++) {
        uring->slots[i].next = uring->free_slots;
        uring->free_slots = &uring->slots[i];
    }
    for (size_t i = 0; i < records; i++) {
        uring->records[i].next = uring->free_records;
        uring->free_records = &uring->records[i];
    }
    return ZO_OK;
}

static void free_uring(struct uring *uring)
{
    if (uring->event >= 0) {
        (void)close(uring->event);
    }
    (void)pthread_cond_destroy(&uring->has_moved);
    (void)pthread_mutex_destroy(&uring->finish_lock);
    (void)pthread_cond_destroy(&uring->has_registered);
    (void)pthread_mutex_destroy(&uring->lock);
    zo_nvme_ranges_fini(&uring->ranges);
    zo_free(uring->pieces);
    zo_free(uring->records);
    zo_free(uring->slots);
    zo_free(uring);
}

/* Setting one up may be allowed, and using it not. */
static int try_ring(struct io_uring *ring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    struct io_uring_cqe *cqe;
    int error;

    io_uring_prep_nop(sqe);
    error = io_uring_submit(ring);
    if (error >= 0) {
        error = io_uring_wait_cqe(ring, &cqe);
    }
    if (error >= 0) {
        error = cqe->res;
        io_uring_cqe_seen(ring, cqe);
    }
    return error;
}

static enum zo_status make_ring(struct uring *uring)
{
    struct zo_nvme *nvme = uring->nvme;
    const struct zo_nvme_faults *faults = nvme->faults;
    int error = faults != NULL ? -faults->ring_errno : 0;

    if (error == 0) { /* a place for the eventfd too */
        error = io_uring_queue_init((unsigned)nvme->depth + 1, &uring->ring, 0);
        if (error == 0) {
            error = try_ring(&uring->ring);
            if (error < 0) {
                io_uring_queue_exit(&uring->ring);
            }
        }
    }
    if (error < 0) {
        return ZO_FAIL_NATIVE(ZO_E_NOSUPPORT, -error,
                              "io_uring is refused (%s): %s", strerror(-error),
                              zo_uring_probe_cure(-error));
    }
    uring->has_file = io_uring_register_files(&uring->ring, &nvme->fd, 1) == 0;
    return ZO_OK;
}

static enum zo_status uring_open(struct zo_nvme *nvme, void **backend_out)
{
    struct uring *uring;
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*uring), "the ring of the NVMe store", &uring));
    uring->nvme = nvme;
    uring->full_times = nvme->faults != NULL ? nvme->faults->full_times : 0;
    (void)pthread_mutex_init(&uring->lock, NULL);
    (void)pthread_cond_init(&uring->has_registered, NULL);
    (void)pthread_mutex_init(&uring->finish_lock, NULL);
    (void)pthread_cond_init(&uring->has_moved, NULL);
    uring->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (uring->event < 0) {
        status = ZO_FAIL_NATIVE(ZO_E_NOSUPPORT, errno,
                                "io_uring has no event to wait for (%s)",
                                strerror(errno));
        goto free_record;
    }
    ZO_TRY_GOTO(free_record, make_records(uring));
    ZO_TRY_GOTO(free_record, make_ring(uring));
    ZO_TRY_GOTO(exit_ring, start_finishers(uring));
    ZO_TRY_GOTO(end_finishers,
                zo_thread_start("nvme-ring", work, uring, &uring->thread));
    *backend_out = uring;
    return ZO_OK;

end_finishers:
    end_finishers(uring);
exit_ring:
    io_uring_queue_exit(&uring->ring);
free_record:
    free_uring(uring);
    return status;
}

static void uring_close(void *backend)
{
    struct uring *uring = backend;

    (void)pthread_join(uring->thread, NULL);
    end_finishers(uring);
    io_uring_queue_exit(&uring->ring);
    free_uring(uring);
}

const struct zo_nvme_backend_ops zo_nvme_uring_ops = {
    .open = uring_open,
    .wake = uring_wake,
    .register_memory = uring_register,
    .settle = uring_settle,
    .close = uring_close,
};
