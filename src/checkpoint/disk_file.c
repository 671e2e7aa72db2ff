#include "src/checkpoint/disk_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/base/text.h"

/*
 * Of this size and more, the kernel is told before a read, and after a write.
 * Its own guess of what is read next fails when many threads read one file:
 * 16 threads with 2 MiB each got 0.2 GB/s of a disk that gives 1.2 GB/s this
 * way (measured).
 */
#define WANT_BYTES ((size_t)262144)

/* Linux moves at most 0x7ffff000 bytes a call; ask for less. */
#define MOVE_BYTES_MAX ((size_t)1 << 30)

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

enum zo_status zo_disk_open(const char *path, struct zo_disk_file *file_out)
{
    struct zo_disk_file file = {.fd = -1};
    struct stat info;
    enum zo_status status;

    /* O_NONBLOCK: opening a FIFO would otherwise wait for a writer. */
    ZO_TRY(zo_strndup(path, strlen(path), &file.path));
    file.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file.fd < 0) {
        status = ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "cannot open %s: %s", path,
                                strerror(errno));
        goto close_file;
    }
    if (fstat(file.fd, &info) != 0) {
        status = ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot look at %s: %s", path,
                                strerror(errno));
        goto close_file;
    }
    if (!S_ISREG(info.st_mode)) {
        status = ZO_FAIL(ZO_E_USAGE, "%s is %s; want a file", path,
                         kind_of(info.st_mode));
        goto close_file;
    }
    file.size_bytes = (uint64_t)info.st_size;
    *file_out = file;
    return ZO_OK;

close_file:
    zo_disk_close(&file);
    return status;
}

enum zo_status zo_disk_read(const struct zo_disk_file *file,
                            uint64_t offset_bytes, void *buffer,
                            size_t size_bytes)
{
    size_t done = 0;

    if (size_bytes >= WANT_BYTES) { /* advice: a failure changes nothing */
        (void)posix_fadvise(file->fd, (off_t)offset_bytes, (off_t)size_bytes,
                            POSIX_FADV_WILLNEED);
    }
    while (done < size_bytes) {
        const size_t rest = size_bytes - done;
        const ssize_t got = pread(file->fd, (char *)buffer + done,
                                  rest < MOVE_BYTES_MAX ? rest : MOVE_BYTES_MAX,
                                  (off_t)(offset_bytes + done));

        if (got > 0) {
            done += (size_t)got;
        } else if (got == 0) {
            return ZO_FAIL(ZO_E_IO,
                           "%s ends at byte %llu; want %zu bytes at %llu",
                           file->path, (unsigned long long)offset_bytes + done,
                           size_bytes, (unsigned long long)offset_bytes);
        } else if (errno != EINTR) {
            return ZO_FAIL_NATIVE(ZO_E_IO, errno,
                                  "cannot read %zu bytes at %llu of %s: %s",
                                  size_bytes, (unsigned long long)offset_bytes,
                                  file->path, strerror(errno));
        }
    }
    return ZO_OK;
}

enum zo_status zo_disk_read_all(const char *path, size_t limit_bytes,
                                char **text_out, size_t *size_out)
{
    struct zo_disk_file file;
    enum zo_status status;
    char *text = NULL;

    ZO_TRY(zo_disk_open(path, &file));
    if (file.size_bytes > limit_bytes) {
        status =
            ZO_FAIL(ZO_E_CORRUPT, "%s has %llu bytes; want at most %zu", path,
                    (unsigned long long)file.size_bytes, limit_bytes);
        goto close_file;
    }
    ZO_TRY_GOTO(close_file,
                zo_alloc((size_t)file.size_bytes + 1, 1, path, &text));
    ZO_TRY_GOTO(close_file,
                zo_disk_read(&file, 0, text, (size_t)file.size_bytes));
    *text_out = text;
    *size_out = (size_t)file.size_bytes;
    text = NULL;

close_file:
    zo_free(text);
    zo_disk_close(&file);
    return status;
}

enum zo_status zo_disk_create(const char *path, struct zo_disk_file *file_out)
{
    struct zo_disk_file file = {.fd = -1};

    ZO_TRY(zo_strndup(path, strlen(path), &file.path));
    /* Never through a link, never into a file that someone else reads. */
    if (unlink(path) == 0 || errno == ENOENT) {
        file.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (file.fd < 0) {
        const int error = errno;

        zo_disk_close(&file);
        return ZO_FAIL_NATIVE(ZO_E_IO, error, "cannot create %s: %s", path,
                              strerror(error));
    }
    *file_out = file;
    return ZO_OK;
}

enum zo_status zo_disk_create_direct(const char *path,
                                     struct zo_disk_file *file_out)
{
    int flags;

    ZO_TRY(zo_disk_create(path, file_out));
    flags = fcntl(file_out->fd, F_GETFL);
    if (flags >= 0) { /* else, or if refused, through the page cache */
        (void)fcntl(file_out->fd, F_SETFL, flags | O_DIRECT);
    }
    return ZO_OK;
}

/* Whether a write that was refused may be tried again, in the other way. */
static bool goes_through_cache(const struct zo_disk_file *file, int error)
{
    const bool is_refusal = error == EINVAL || error == EOPNOTSUPP ||
                            error == ENOTSUP || error == ENOSYS;
    const int flags = is_refusal ? fcntl(file->fd, F_GETFL) : -1;

    return flags >= 0 && (flags & O_DIRECT) != 0 &&
           fcntl(file->fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

/* size_bytes 0: what is there could not be synced. */
static enum zo_status fail_write(const struct zo_disk_file *file, int error,
                                 size_t size_bytes)
{
    const uint64_t free_bytes = zo_disk_free_bytes(file->path);
    char text[32];

    if (size_bytes == 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, error, "cannot bring %s to the disk: %s",
                              file->path, strerror(error));
    }
    return ZO_FAIL_NATIVE(
        ZO_E_IO, error, "cannot write %zu bytes at %llu of %s: %s; %s free",
        size_bytes, (unsigned long long)file->size_bytes, file->path,
        strerror(error),
        free_bytes == UINT64_MAX ? "unknown"
                                 : zo_text_gib(text, sizeof(text), free_bytes));
}

enum zo_status zo_disk_append(struct zo_disk_file *file, const void *data,
                              size_t size_bytes)
{
    size_t done = 0;

    while (done < size_bytes) {
        const size_t rest = size_bytes - done;
        const ssize_t put =
            write(file->fd, (const char *)data + done,
                  rest < MOVE_BYTES_MAX ? rest : MOVE_BYTES_MAX);

        if (put >= 0) {
            done += (size_t)put;
            file->size_bytes += (uint64_t)put;
        } else if (errno != EINTR && !goes_through_cache(file, errno)) {
            return fail_write(file, errno, rest);
        }
    }
    /* The disk begins now, and not when memory is full of what it has to
     * write, or when all is to be synced; where it cannot, it does then. */
    if (size_bytes >= WANT_BYTES) {
        (void)sync_file_range(file->fd, (off_t)(file->size_bytes - size_bytes),
                              (off_t)size_bytes, SYNC_FILE_RANGE_WRITE);
    }
    return ZO_OK;
}

enum zo_status zo_disk_finish(struct zo_disk_file *file)
{
    const int fd = file->fd;

    if (fsync(fd) != 0) {
        return fail_write(file, errno, 0);
    }
    file->fd = -1;
    if (close(fd) != 0) { /* where NFS tells that the quota is used up */
        return fail_write(file, errno, 0);
    }
    zo_disk_close(file);
    return ZO_OK;
}

void zo_disk_close(struct zo_disk_file *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    zo_free(file->path);
    *file = (struct zo_disk_file){.fd = -1};
}

enum zo_status zo_disk_write_all(const char *path, const void *data,
                                 size_t size_bytes)
{
    struct zo_disk_file file;
    enum zo_status status;

    ZO_TRY(zo_disk_create(path, &file));
    ZO_TRY_GOTO(close_file, zo_disk_append(&file, data, size_bytes));
    ZO_TRY_GOTO(close_file, zo_disk_finish(&file));

close_file:
    zo_disk_close(&file);
    return status;
}

enum zo_status zo_disk_rename(const char *from, const char *to)
{
    if (rename(from, to) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot rename %s to %s: %s",
                              from, to, strerror(errno));
    }
    return ZO_OK;
}

/* Takes over the descriptor, and closes it. */
static int empty_folder(int fd)
{
    const struct dirent *entry;
    DIR *stream = fdopendir(fd);
    int error = 0;

    if (stream == NULL) {
        error = errno;
        (void)close(fd);
        return error;
    }
    while ((entry = readdir(stream)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0 &&
            unlinkat(dirfd(stream), entry->d_name, 0) != 0) {
            error = errno;
        }
    }
    (void)closedir(stream);
    return error;
}

enum zo_status zo_disk_remove(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = 0;

    if (fd >= 0) {
        error = empty_folder(fd);
        error = rmdir(path) == 0 ? 0 : error != 0 ? error : errno;
    } else if (errno == ENOTDIR || errno == ELOOP) { /* a file, a link */
        error = unlink(path) == 0 ? 0 : errno;
    } else {
        error = errno == ENOENT ? 0 : errno;
    }
    return error == 0 ? ZO_OK
                      : ZO_FAIL_NATIVE(ZO_E_IO, error, "cannot remove %s: %s",
                                       path, strerror(error));
}

enum zo_status zo_disk_sync_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = 0;

    if (fd < 0 || fsync(fd) != 0) {
        error = errno;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    /* EINVAL: a file system that cannot sync folders; nothing to be done. */
    if (error != 0 && error != EINVAL) {
        return ZO_FAIL_NATIVE(ZO_E_IO, error, "cannot sync folder %s: %s", path,
                              strerror(error));
    }
    return ZO_OK;
}

uint64_t zo_disk_free_bytes(const char *path)
{
    struct statvfs info;

    if (statvfs(path, &info) != 0) {
        return UINT64_MAX;
    }
    return (uint64_t)info.f_bavail * info.f_frsize;
}

enum zo_status zo_disk_join(const char *folder, const char *name,
                            char **path_out)
{
    const size_t size_bytes = strlen(folder) + strlen(name) + 2;
    const size_t length = strlen(folder);
    const bool has_slash = length > 0 && folder[length - 1] == '/';
    char *path = NULL;

    ZO_TRY(zo_alloc(size_bytes, 1, "a path", &path));
    (void)snprintf(path, size_bytes, "%s%s%s", folder, has_slash ? "" : "/",
                   name);
    *path_out = path;
    return ZO_OK;
}

enum zo_status zo_disk_split(const char *path, char **folder_out,
                             char **name_out)
{
    size_t end = strlen(path), start;
    char *folder = NULL, *name = NULL;
    enum zo_status status;

    while (end > 0 && path[end - 1] == '/') {
        end--;
    }
    start = end;
    while (start > 0 && path[start - 1] != '/') {
        start--;
    }
    if (start == end || (end - start == 1 && path[start] == '.') ||
        (end - start == 2 && path[start] == '.' && path[start + 1] == '.')) {
        return ZO_FAIL(ZO_E_USAGE,
                       "%s does not name a new folder; want one more part, "
                       "such as %s/model",
                       path, path);
    }
    ZO_TRY(zo_strndup(path + start, end - start, &name));
    while (start > 1 && path[start - 1] == '/') {
        start--;
    }
    status = start == 0 ? zo_strndup(".", 1, &folder)
                        : zo_strndup(path, start, &folder);
    if (status != ZO_OK) {
        zo_free(name);
        return status;
    }
    *folder_out = folder;
    *name_out = name;
    return ZO_OK;
}
