/*
 * Loading and saving what is on NVMe.  Row 5.
 *
 * Bytes pass through bounce buffers, whole chunks at a time, several of them
 * under way: an upload is on its way when its bytes are in a buffer, and on
 * the disk behind zo_executor_nvme_sync(); a download is done on return.  A
 * chunk of which a part changes is read first, so that who cuts uploads at
 * chunks moves each byte once.  While a buffer has a chunk, nobody else does.
 */
#include <string.h>

#include "offload/executor_internal.h"
#include "src/base/arith.h"
#include "src/base/memory.h"

#define BOUNCES_MIN 4 /* one is filled while others are written */
#define BOUNCES_MAX 16

/* ---- buffers ------------------------------------------------------------- */

/* As many as keep the depth of the disk busy. */
static size_t count_for(const struct zo_nvme_shape *shape)
{
    const uint64_t wanted =
        zo_round_up((uint64_t)shape->depth * shape->block_bytes,
                    ZO_BOUNCE_BYTES) /
        ZO_BOUNCE_BYTES;

    return wanted < BOUNCES_MIN   ? BOUNCES_MIN
           : wanted > BOUNCES_MAX ? BOUNCES_MAX
                                  : (size_t)wanted;
}

enum zo_status zo_executor_open_bounces(struct zo_executor *executor)
{
    const struct zo_nvme_shape shape = zo_nvme_shape(executor->nvme);

    executor->bounce_count = count_for(&shape);
    ZO_TRY(zo_alloc(executor->bounce_count, sizeof(executor->bounces[0]),
                    "pieces for NVMe", &executor->bounces));
    ZO_TRY(zo_pages_alloc(executor->bounce_count * ZO_BOUNCE_BYTES,
                          "pieces for NVMe", &executor->bounce_memory));
    for (size_t i = 0; i < executor->bounce_count; i++) {
        executor->bounces[i] = (struct zo_bounce){
            .executor = executor,
            .memory = executor->bounce_memory + i * ZO_BOUNCE_BYTES};
    }
    return ZO_OK;
}

void zo_executor_close_bounces(struct zo_executor *executor)
{
    zo_pages_free(executor->bounce_memory,
                  executor->bounce_count * ZO_BOUNCE_BYTES);
    zo_free(executor->bounces);
}

/* One that is free, unless another has a chunk of these; NULL: there is none.
 * The lock is held. */
static struct zo_bounce *find(struct zo_executor *executor, uint64_t begin,
                              uint64_t end)
{
    struct zo_bounce *found = NULL;

    for (size_t i = 0; i < executor->bounce_count; i++) {
        struct zo_bounce *bounce = &executor->bounces[i];

        if (!bounce->is_taken) {
            found = bounce;
        } else if (bounce->begin < end && begin < bounce->end) {
            return NULL;
        }
    }
    return found;
}

static enum zo_status adopt_failure(const struct zo_err *failure)
{
    return failure->status == ZO_OK ? ZO_OK : zo_err_adopt(failure);
}

/* Waits for a buffer for whole chunks of the tier.  Fails once a write has:
 * what its chunks hold is not known. */
static enum zo_status take(struct zo_executor *executor, uint64_t begin,
                           uint64_t end, struct zo_bounce **bounce_out)
{
    struct zo_bounce *bounce;
    struct zo_err failure;

    (void)pthread_mutex_lock(&executor->bounce_lock);
    while ((bounce = find(executor, begin, end)) == NULL) {
        (void)pthread_cond_wait(&executor->bounce_cond, &executor->bounce_lock);
    }
    failure = executor->bounce_failure;
    if (failure.status == ZO_OK) {
        bounce->is_taken = true;
        bounce->begin = begin;
        bounce->end = end;
    }
    (void)pthread_mutex_unlock(&executor->bounce_lock);
    ZO_TRY(adopt_failure(&failure));
    *bounce_out = bounce;
    return ZO_OK;
}

/* With the thread's latest failure, if its write has failed. */
static void give(struct zo_bounce *bounce, bool has_failed)
{
    struct zo_executor *executor = bounce->executor;

    (void)pthread_mutex_lock(&executor->bounce_lock);
    if (has_failed && executor->bounce_failure.status == ZO_OK) {
        executor->bounce_failure = *zo_err_last();
    }
    bounce->is_taken = false;
    (void)pthread_cond_broadcast(&executor->bounce_cond);
    (void)pthread_mutex_unlock(&executor->bounce_lock);
}

static void on_written(void *context, enum zo_status status)
{
    give(context, status != ZO_OK);
}

enum zo_status zo_executor_nvme_sync(struct zo_executor *executor)
{
    struct zo_err failure;

    (void)pthread_mutex_lock(&executor->bounce_lock);
    for (size_t i = 0; i < executor->bounce_count; i++) {
        while (executor->bounces[i].is_taken) {
            (void)pthread_cond_wait(&executor->bounce_cond,
                                    &executor->bounce_lock);
        }
    }
    failure = executor->bounce_failure;
    (void)pthread_mutex_unlock(&executor->bounce_lock);
    return adopt_failure(&failure);
}

/* ---- windows ------------------------------------------------------------- */

/* Whole chunks of the tier that pass through a buffer at once. */
struct window {
    uint64_t begin, end;
};

static struct window window_at(uint64_t at, uint64_t end)
{
    const uint64_t begin = at - at % ZO_NVME_CHUNK;
    const uint64_t most = begin + ZO_BOUNCE_BYTES;
    const uint64_t whole = zo_round_up(end, ZO_NVME_CHUNK);

    return (struct window){begin, whole < most ? whole : most};
}

/* Some of a buffer's chunks. */
static struct zo_nvme_request request_of(const struct zo_bounce *bounce,
                                         zo_buffer_id id,
                                         const struct window *chunks)
{
    return (struct zo_nvme_request){
        .offset = chunks->begin,
        .memory = bounce->memory + (chunks->begin - bounce->begin),
        .bytes = chunks->end - chunks->begin,
        .name = bounce->executor->nvme_names[id],
    };
}

static enum zo_status read_chunks(const struct zo_bounce *bounce,
                                  zo_buffer_id id, const struct window *chunks)
{
    const struct zo_nvme_request request = request_of(bounce, id, chunks);

    return zo_executor_nvme_move(bounce->executor, &request);
}

/* Chunks at the window's ends that keep some of what they hold. */
static enum zo_status read_ends(const struct zo_bounce *bounce, zo_buffer_id id,
                                uint64_t at, uint64_t to)
{
    const struct window first = {bounce->begin, bounce->begin + ZO_NVME_CHUNK};
    const struct window last = {bounce->end - ZO_NVME_CHUNK, bounce->end};
    const bool is_one = first.begin == last.begin;

    if (at > first.begin || (is_one && to < last.end)) {
        ZO_TRY(read_chunks(bounce, id, &first));
    }
    return !is_one && to < last.end ? read_chunks(bounce, id, &last) : ZO_OK;
}

/* Starts to write bytes [at, to) of the tier; the buffer is given back when
 * that is done, or has failed. */
static enum zo_status write_behind(struct zo_bounce *bounce, zo_buffer_id id,
                                   uint64_t at, uint64_t to, const char *source)
{
    const struct window all = {bounce->begin, bounce->end};
    struct zo_nvme_request request = request_of(bounce, id, &all);
    enum zo_status status = read_ends(bounce, id, at, to);

    request.writes = true;
    request.done = on_written;
    request.context = bounce;
    if (status == ZO_OK) {
        memcpy(bounce->memory + (at - bounce->begin), source, to - at);
        status = zo_executor_nvme_submit(bounce->executor, &request);
    }
    if (status != ZO_OK) {
        give(bounce, true);
    }
    return status;
}

enum zo_status zo_executor_nvme_upload(struct zo_executor *executor,
                                       zo_buffer_id target, uint64_t offset,
                                       const void *source, size_t size_bytes)
{
    const uint64_t first = executor->program->buffers[target].offset + offset;
    const uint64_t end = first + size_bytes;

    for (uint64_t at = first; at < end;) {
        const struct window window = window_at(at, end);
        const uint64_t to = end < window.end ? end : window.end;
        struct zo_bounce *bounce = NULL;

        ZO_TRY(take(executor, window.begin, window.end, &bounce));
        ZO_TRY(write_behind(bounce, target, at, to,
                            (const char *)source + (at - first)));
        at = to;
    }
    return ZO_OK;
}

enum zo_status zo_executor_nvme_download(struct zo_executor *executor,
                                         void *target, zo_buffer_id source,
                                         uint64_t offset, size_t size_bytes)
{
    const uint64_t first = executor->program->buffers[source].offset + offset;
    const uint64_t end = first + size_bytes;

    for (uint64_t at = first; at < end;) {
        const struct window window = window_at(at, end);
        const uint64_t to = end < window.end ? end : window.end;
        struct zo_bounce *bounce = NULL;
        enum zo_status status;

        ZO_TRY(take(executor, window.begin, window.end, &bounce));
        status = read_chunks(bounce, source, &window);
        if (status == ZO_OK) {
            memcpy((char *)target + (at - first),
                   bounce->memory + (at - window.begin), to - at);
        }
        give(bounce, false);
        ZO_TRY(status);
        at = to;
    }
    return ZO_OK;
}
