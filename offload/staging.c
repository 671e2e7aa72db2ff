#include "offload/staging.h"

#include <string.h>

#include "offload/executor_internal.h"
#include "src/base/arith.h"
#include "src/base/memory.h"

struct zo_staging {
    struct zo_executor *executor; /* borrowed */
    size_t piece_bytes;           /* of a piece, its padding included */
    int piece_count, device_count;
    unsigned char *memory; /* owned; the pieces */
    size_t memory_bytes;
    bool is_locked;
    struct zo_event **events; /* owned; device_count a piece */

    /* Guards what follows, and the queueing on the copy streams. */
    pthread_mutex_t lock;
    pthread_cond_t has_piece;
    int *given; /* owned; a ring of pieces, the longest given first */
    int given_first, given_count;
};

static const struct zo_device_ops *ops_of(const struct zo_staging *staging)
{
    return staging->executor->machine->device_ops;
}

static struct zo_event **events_of(const struct zo_staging *staging, int piece)
{
    return &staging->events[piece * staging->device_count];
}

static enum zo_status open_memory(struct zo_staging *staging)
{
    static const char what[] = "pieces of weights on their way";
    const struct zo_machine *machine = staging->executor->machine;
    enum zo_status status = machine->device_ops->mem_alloc(
        machine->devices[0], ZO_MEM_PINNED, what, staging->memory_bytes,
        (void **)&staging->memory);

    staging->is_locked = status == ZO_OK;
    if (status == ZO_E_LOCK) {
        status = zo_huge_alloc(staging->memory_bytes, what, &staging->memory);
    }
    return status;
}

static enum zo_status open_parts(struct zo_staging *staging)
{
    const struct zo_machine *machine = staging->executor->machine;
    const size_t pieces = (size_t)staging->piece_count;

    ZO_TRY(zo_alloc(pieces, sizeof(staging->given[0]), "a ring of pieces",
                    &staging->given));
    ZO_TRY(zo_alloc(pieces * (size_t)staging->device_count,
                    sizeof(staging->events[0]), "events of pieces",
                    &staging->events));
    for (int piece = 0; piece < staging->piece_count; piece++) {
        staging->given[staging->given_count++] = piece;
        for (int d = 0; d < staging->device_count; d++) {
            ZO_TRY(machine->device_ops->event_open(
                machine->devices[d], &events_of(staging, piece)[d]));
        }
    }
    return open_memory(staging);
}

enum zo_status zo_staging_open(struct zo_executor *executor, size_t piece_bytes,
                               int piece_count, struct zo_staging **staging_out)
{
    struct zo_staging *staging = NULL;
    enum zo_status status;

    ZO_ASSERT(piece_count >= 1);
    ZO_TRY(zo_alloc(1, sizeof(*staging), "the staging", &staging));
    staging->executor = executor;
    staging->piece_bytes = zo_round_up(piece_bytes, ZO_ALIGN_BYTES);
    staging->piece_count = piece_count;
    staging->device_count = executor->machine->device_count;
    staging->memory_bytes = staging->piece_bytes * (size_t)piece_count;
    (void)pthread_mutex_init(&staging->lock, NULL);
    (void)pthread_cond_init(&staging->has_piece, NULL);
    status = open_parts(staging);
    if (status != ZO_OK) {
        const struct zo_err failure = *zo_err_last();

        zo_staging_close(staging);
        return zo_err_adopt(&failure);
    }
    *staging_out = staging;
    return ZO_OK;
}

/* Waits, and leaves a failure to zo_staging_sync(), or to who told it. */
static void wait_for_copies(const struct zo_staging *staging)
{
    const struct zo_err kept = *zo_err_last();

    for (int d = 0; d < staging->device_count; d++) {
        if (ops_of(staging)->stream_sync(staging->executor->copy_streams[d]) !=
            ZO_OK) {
            const enum zo_status ignored = zo_err_adopt(&kept);

            (void)ignored;
        }
    }
    if (zo_executor_nvme_sync(staging->executor) != ZO_OK) {
        const enum zo_status ignored = zo_err_adopt(&kept);

        (void)ignored;
    }
}

void zo_staging_close(struct zo_staging *staging)
{
    const struct zo_machine *machine;

    if (staging == NULL) {
        return;
    }
    machine = staging->executor->machine;
    wait_for_copies(staging);
    for (int i = 0; staging->events != NULL &&
                    i < staging->piece_count * staging->device_count;
         i++) {
        machine->device_ops->event_close(staging->events[i]);
    }
    if (staging->is_locked) {
        machine->device_ops->mem_free(machine->devices[0], ZO_MEM_PINNED,
                                      staging->memory, staging->memory_bytes);
    } else {
        zo_pages_free(staging->memory, staging->memory_bytes);
    }
    zo_free(staging->events);
    zo_free(staging->given);
    (void)pthread_cond_destroy(&staging->has_piece);
    (void)pthread_mutex_destroy(&staging->lock);
    zo_free(staging);
}

static void put_back(struct zo_staging *staging, int piece)
{
    const int end = staging->given_first + staging->given_count++;

    staging->given[end % staging->piece_count] = piece;
    (void)pthread_cond_signal(&staging->has_piece);
}

enum zo_status zo_staging_take(struct zo_staging *staging, int *piece_out,
                               void **memory_out)
{
    int piece;

    (void)pthread_mutex_lock(&staging->lock);
    while (staging->given_count == 0) {
        (void)pthread_cond_wait(&staging->has_piece, &staging->lock);
    }
    piece = staging->given[staging->given_first];
    staging->given_first = (staging->given_first + 1) % staging->piece_count;
    staging->given_count--;
    (void)pthread_mutex_unlock(&staging->lock);
    for (int d = 0; d < staging->device_count; d++) {
        const enum zo_status status =
            ops_of(staging)->event_sync(events_of(staging, piece)[d]);

        if (status != ZO_OK) {
            (void)pthread_mutex_lock(&staging->lock);
            put_back(staging, piece);
            (void)pthread_mutex_unlock(&staging->lock);
            return status;
        }
    }
    *piece_out = piece;
    *memory_out = staging->memory + (size_t)piece * staging->piece_bytes;
    return ZO_OK;
}

enum zo_status zo_staging_upload(struct zo_staging *staging,
                                 zo_buffer_id target, uint64_t offset,
                                 const void *source, size_t size_bytes)
{
    struct zo_executor *executor = staging->executor;
    const struct zo_buffer *buffer = &executor->program->buffers[target];
    enum zo_status status;
    char *address;

    if (buffer->tier == ZO_TIER_NVME) {
        return zo_executor_nvme_upload(executor, target, offset, source,
                                       size_bytes);
    }
    address = (char *)zo_executor_address(executor, target, 0) + offset;
    if (buffer->tier != ZO_TIER_GPU) {
        memcpy(address, source, size_bytes);
        return ZO_OK;
    }
    (void)pthread_mutex_lock(&staging->lock);
    status = ops_of(staging)->copy(executor->copy_streams[buffer->device],
                                   address, source, size_bytes);
    (void)pthread_mutex_unlock(&staging->lock);
    return status;
}

enum zo_status zo_staging_give(struct zo_staging *staging, int piece)
{
    enum zo_status status = ZO_OK;

    (void)pthread_mutex_lock(&staging->lock);
    for (int d = 0; status == ZO_OK && d < staging->device_count; d++) {
        status = ops_of(staging)->event_record(
            staging->executor->copy_streams[d], events_of(staging, piece)[d]);
    }
    if (status != ZO_OK) { /* no event tells when the copies are done */
        wait_for_copies(staging);
    }
    put_back(staging, piece);
    (void)pthread_mutex_unlock(&staging->lock);
    return status;
}

enum zo_status zo_staging_sync(struct zo_staging *staging)
{
    ZO_ASSERT(staging->given_count == staging->piece_count);
    for (int d = 0; d < staging->device_count; d++) {
        ZO_TRY(
            ops_of(staging)->stream_sync(staging->executor->copy_streams[d]));
    }
    return zo_executor_nvme_sync(staging->executor);
}
