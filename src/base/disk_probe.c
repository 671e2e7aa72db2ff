#include "src/base/disk_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/base/text.h"

#define PIECE_BYTES ((size_t)4 << 20) /* of one read or write */
#define NAME_ENDING "/zero-offload-XXXXXX"

struct probe {
    const char *folder;
    struct zo_pool *pool;
    int fd;
    char *data; /* size_bytes */
    size_t size_bytes;
    bool is_reading;
    atomic_int error; /* the first errno */
};

static void fail_piece(struct probe *probe, int error)
{
    int none = 0;

    (void)atomic_compare_exchange_strong(&probe->error, &none, error);
}

static void move_piece(void *work, int64_t index)
{
    struct probe *probe = work;
    size_t done = 0;

    while (done < PIECE_BYTES) {
        const size_t at = (size_t)index * PIECE_BYTES + done;
        const size_t rest = PIECE_BYTES - done;
        const ssize_t moved =
            probe->is_reading
                ? pread(probe->fd, probe->data + at, rest, (off_t)at)
                : pwrite(probe->fd, probe->data + at, rest, (off_t)at);

        if (moved > 0) {
            done += (size_t)moved;
        } else if (moved == 0) {
            fail_piece(probe, EIO);
            return;
        } else if (errno != EINTR) {
            fail_piece(probe, errno);
            return;
        }
    }
}

/* Numbers that no disk can pack. */
static void fill_piece(void *work, int64_t index)
{
    struct probe *probe = work;
    uint64_t *words = (uint64_t *)(void *)probe->data;
    const size_t first = (size_t)index * (PIECE_BYTES / sizeof(words[0]));

    for (size_t i = 0; i < PIECE_BYTES / sizeof(words[0]); i++) {
        uint64_t word = (first + i + 1) * UINT64_C(0x9e3779b97f4a7c15);

        word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        words[first + i] = word ^ (word >> 27);
    }
}

/* All pieces in one direction; a write ends when the disk has it. */
static enum zo_status time_moves(struct probe *probe, bool is_reading,
                                 double *bytes_per_second_out)
{
    const int64_t started_ns = zo_clock_ns();
    double seconds;
    int error;

    probe->is_reading = is_reading;
    zo_pool_run(probe->pool, move_piece, probe,
                (int64_t)(probe->size_bytes / PIECE_BYTES));
    error = atomic_load(&probe->error);
    if (error == 0 && !is_reading && fdatasync(probe->fd) != 0) {
        error = errno;
    }
    if (error != 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, error, "%s: cannot %s a file there: %s",
                              probe->folder, is_reading ? "read" : "write",
                              strerror(error));
    }
    seconds = zo_clock_seconds(started_ns, zo_clock_ns());
    *bytes_per_second_out =
        (double)probe->size_bytes / (seconds > 0.0 ? seconds : 1e-9);
    return ZO_OK;
}

/* A file without a name in the folder. */
static enum zo_status make_file(const char *folder, int *fd_out)
{
    const size_t path_bytes = strlen(folder) + sizeof(NAME_ENDING);
    enum zo_status status = ZO_OK;
    char *path = NULL;
    int fd;

    ZO_TRY(zo_alloc(path_bytes, 1, "a path", &path));
    (void)snprintf(path, path_bytes, "%s%s", folder, NAME_ENDING);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        status = ZO_FAIL_NATIVE(ZO_E_USAGE, errno,
                                "%s: cannot make a file there: %s", folder,
                                strerror(errno));
    } else {
        (void)unlink(path);
        *fd_out = fd;
    }
    zo_free(path);
    return status;
}

static enum zo_status check_room(const struct probe *probe,
                                 struct zo_disk_rates *rates)
{
    struct statvfs info;
    char free_text[32], want_text[32];

    if (fstatvfs(probe->fd, &info) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno,
                              "%s: cannot tell what is free: %s", probe->folder,
                              strerror(errno));
    }
    rates->free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    if (rates->free_bytes < 2 * (uint64_t)probe->size_bytes) {
        return ZO_FAIL(
            ZO_E_IO, "%s: %s free; the measurement wants %s", probe->folder,
            zo_text_gib(free_text, sizeof(free_text), rates->free_bytes),
            zo_text_gib(want_text, sizeof(want_text),
                        2 * (uint64_t)probe->size_bytes));
    }
    return ZO_OK;
}

/* Not at open: a refused O_DIRECT would leave the file behind. */
static bool go_direct(int fd)
{
    const int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
}

enum zo_status zo_disk_probe_run(const char *folder, struct zo_pool *pool,
                                 size_t size_bytes,
                                 struct zo_disk_rates *rates_out)
{
    struct probe probe = {
        .folder = folder, .pool = pool, .fd = -1, .size_bytes = size_bytes};
    struct zo_disk_rates rates = {0};
    enum zo_status status;

    ZO_ASSERT(size_bytes > 0 && size_bytes % PIECE_BYTES == 0);
    ZO_TRY(make_file(folder, &probe.fd));
    ZO_TRY_GOTO(close_file, check_room(&probe, &rates));
    ZO_TRY_GOTO(close_file,
                zo_pages_alloc(size_bytes, "data for the disk", &probe.data));
    zo_pool_run(pool, fill_piece, &probe, (int64_t)(size_bytes / PIECE_BYTES));
    /* As a store does: the blocks exist before the first write. */
    (void)posix_fallocate(probe.fd, 0, (off_t)size_bytes);
    rates.is_direct = go_direct(probe.fd);
    ZO_TRY_GOTO(free_data,
                time_moves(&probe, false, &rates.write_bytes_per_second));
    (void)posix_fadvise(probe.fd, 0, 0, POSIX_FADV_DONTNEED);
    ZO_TRY_GOTO(free_data,
                time_moves(&probe, true, &rates.read_bytes_per_second));
    *rates_out = rates;

free_data:
    zo_pages_free(probe.data, size_bytes);
close_file:
    (void)close(probe.fd);
    return status;
}
