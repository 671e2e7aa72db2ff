/*
 * The store's back end of threads with pread and pwrite: for where io_uring
 * is refused.  Each thread takes a piece, moves its blocks one by one, and
 * hands it back.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "offload/nvme_internal.h"
#include "src/base/memory.h"
#include "src/base/thread.h"

struct pool {
    struct zo_nvme *nvme;
    int count;
    pthread_t threads[]; /* count */
};

static int move_block(struct zo_nvme *nvme, const struct zo_nvme_piece *piece,
                      size_t at, size_t bytes)
{
    const struct zo_nvme_io io =
        zo_nvme_io_begin(nvme, piece->writes, piece->memory + at, bytes);
    const off_t offset = (off_t)(piece->offset + at);
    const ssize_t moved =
        piece->writes ? pwrite(nvme->fd, piece->memory + at, io.bytes, offset)
                      : pread(nvme->fd, piece->memory + at, io.bytes, offset);

    return zo_nvme_io_end(nvme, &io, moved < 0 ? -errno : (int)moved);
}

/* What is moved short goes on from the last whole page, as O_DIRECT wants. */
static void move_piece(struct zo_nvme *nvme, struct zo_nvme_piece *piece)
{
    size_t at = 0;
    int stalls = 0;

    while (at < piece->bytes) {
        const size_t rest = piece->bytes - at;
        const size_t bytes =
            rest < nvme->block_bytes ? rest : nvme->block_bytes;
        const int moved = move_block(nvme, piece, at, bytes);
        const size_t whole =
            moved > 0 ? (size_t)moved / ZO_NVME_ALIGN * ZO_NVME_ALIGN : 0;
        const bool stalls_on = moved > 0 || moved == -EINTR || moved == -EAGAIN;

        if (whole > 0) {
            at += whole;
            stalls = 0;
        } else if (!stalls_on || ++stalls > ZO_NVME_STALLS_MAX) {
            zo_nvme_fail_piece(nvme, piece, at, bytes, moved < 0 ? -moved : 0);
            return;
        }
    }
}

static void *work(void *argument)
{
    struct zo_nvme *nvme = ((struct pool *)argument)->nvme;
    struct zo_nvme_piece piece;

    while (zo_nvme_take_wait(nvme, &piece)) {
        move_piece(nvme, &piece);
        zo_nvme_finish(nvme, &piece);
    }
    return NULL;
}

static void pool_close(void *backend)
{
    struct pool *pool = backend;

    for (int i = 0; i < pool->count; i++) {
        (void)pthread_join(pool->threads[i], NULL);
    }
    zo_free(pool);
}

static enum zo_status pool_open(struct zo_nvme *nvme, void **backend_out)
{
    const size_t bytes =
        sizeof(struct pool) + (size_t)nvme->threads * sizeof(pthread_t);
    struct pool *pool;

    ZO_TRY(zo_alloc(1, bytes, "the threads of the NVMe store", &pool));
    pool->nvme = nvme;
    for (int i = 0; i < nvme->threads; i++) {
        char name[16];
        enum zo_status status;

        (void)snprintf(name, sizeof(name), "nvme-%d", i);
        status = zo_thread_start(name, work, pool, &pool->threads[i]);
        if (status != ZO_OK && i == 0) {
            zo_free(pool);
            return status;
        }
        if (status != ZO_OK) {
            zo_nvme_note(nvme,
                         "NVMe: the system lets the store start only %d "
                         "of %d threads",
                         i, nvme->threads);
            break;
        }
        pool->count = i + 1;
    }
    *backend_out = pool;
    return ZO_OK;
}

static void pool_wake(void *backend)
{
    (void)backend; /* the threads wait where the requests are */
}

static void pool_settle(void *backend)
{
    (void)backend;
}

static enum zo_status pool_register(void *backend, char *memory, size_t bytes)
{
    (void)backend;
    (void)memory;
    (void)bytes;
    return ZO_OK;
}

const struct zo_nvme_backend_ops zo_nvme_pool_ops = {
    .open = pool_open,
    .wake = pool_wake,
    .register_memory = pool_register,
    .settle = pool_settle,
    .close = pool_close,
};
