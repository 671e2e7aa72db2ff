/*
 * The file of the NVMe store.
 *
 * It has no name (O_TMPFILE), so that whatever happens nothing stays behind.
 * Where the file system knows no such files it is made under a name that
 * nobody can guess, never through a link, and its name is taken away before
 * anything is reserved: killed in between, an empty file stays behind, which
 * the next run of the same user removes.  While it has a name its maker holds
 * a lock on it, and who finds it locked lets it be.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "offload/nvme_internal.h"
#include "src/base/text.h"

#define NAME_BYTES 80
#define NAME_HEAD  "zero-offload."
#define NAME_TAIL  ".nvme"
#define NAME_TRIES 16

static enum zo_status open_directory(struct zo_nvme *nvme,
                                     const char *directory, int *fd_out)
{
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno,
                              "%s: want a directory on the disk for the NVMe "
                              "tier, %s",
                              nvme->where,
                              errno == ENOENT ? "there is none; make it first"
                                              : strerror(errno));
    }
    *fd_out = fd;
    return ZO_OK;
}

/* A file system in memory would spill memory into memory. */
static enum zo_status check_disk(struct zo_nvme *nvme, int directory,
                                 bool allows_memory)
{
    struct statfs info;

    if (fstatfs(directory, &info) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno,
                              "%s: cannot tell its file system: %s",
                              nvme->where, strerror(errno));
    }
    switch ((unsigned long)info.f_type) {
    case TMPFS_MAGIC:
    case RAMFS_MAGIC:
    case HUGETLBFS_MAGIC:
        break;
    default:
        return ZO_OK;
    }
    if (!allows_memory) {
        return ZO_FAIL(ZO_E_IO,
                       "%s: its files are kept in memory (tmpfs): the NVMe "
                       "tier would take the memory that it should save; name "
                       "a directory on a disk",
                       nvme->where);
    }
    zo_nvme_note(nvme,
                 "NVMe: the files of %s are kept in memory (tmpfs): nothing "
                 "is saved there",
                 nvme->where);
    return ZO_OK;
}

/* Whether a name is one that this user's runs give. */
static bool is_own_name(const char *name)
{
    char head[NAME_BYTES];
    const size_t tail_bytes = strlen(NAME_TAIL);
    size_t head_bytes, name_bytes = strlen(name);

    (void)snprintf(head, sizeof(head), NAME_HEAD "%u.", (unsigned)geteuid());
    head_bytes = strlen(head);
    return name_bytes > head_bytes + tail_bytes &&
           strncmp(name, head, head_bytes) == 0 &&
           strcmp(name + name_bytes - tail_bytes, NAME_TAIL) == 0;
}

/* Removes a name if its file is ours, and nobody's who lives. */
static void remove_leftover(struct zo_nvme *nvme, int directory,
                            const char *name)
{
    struct stat named, opened;
    int fd;

    if (fstatat(directory, name, &named, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(named.st_mode) || named.st_uid != geteuid()) {
        return;
    }
    fd = openat(directory, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &opened) == 0 &&
        opened.st_dev == named.st_dev && opened.st_ino == named.st_ino &&
        unlinkat(directory, name, 0) == 0) {
        zo_nvme_note(nvme,
                     "NVMe: %s/%s, left behind by a run that was "
                     "killed, is removed",
                     nvme->where, name);
    }
    (void)close(fd);
}

static void remove_leftovers(struct zo_nvme *nvme, int directory)
{
    const int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct dirent *item;
    DIR *stream;

    if (copy < 0) {
        return;
    }
    stream = fdopendir(copy);
    if (stream == NULL) {
        (void)close(copy);
        return;
    }
    while ((item = readdir(stream)) != NULL) {
        if (is_own_name(item->d_name)) {
            remove_leftover(nvme, directory, item->d_name);
        }
    }
    (void)closedir(stream);
}

static enum zo_status fail_create(const struct zo_nvme *nvme, int error)
{
    return ZO_FAIL_NATIVE(ZO_E_IO, error,
                          "%s: cannot make the file of the NVMe tier there: %s",
                          nvme->where, strerror(error));
}

static enum zo_status create_named(struct zo_nvme *nvme, int directory)
{
    char name[NAME_BYTES];
    int error = EEXIST;

    for (int i = 0; i < NAME_TRIES && error == EEXIST; i++) {
        uint64_t random = 0;

        if (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
            return fail_create(nvme, errno);
        }
        (void)snprintf(name, sizeof(name),
                       NAME_HEAD "%u.%ld.%016" PRIx64 NAME_TAIL,
                       (unsigned)geteuid(), (long)getpid(), random);
        if (nvme->faults != NULL && nvme->faults->name != NULL) {
            (void)snprintf(name, sizeof(name), "%s", nvme->faults->name);
        }
        nvme->fd =
            openat(directory, name,
                   O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        error = nvme->fd < 0 ? errno : 0;
    }
    if (error == EEXIST) {
        return ZO_FAIL_NATIVE(ZO_E_IO, error,
                              "%s/%s: want to make the file of the NVMe tier; "
                              "something else has that name",
                              nvme->where, name);
    }
    if (error != 0) {
        return fail_create(nvme, error);
    }
    /* Refused or not: the name goes at once, and nothing hangs on it. */
    (void)flock(nvme->fd, LOCK_EX | LOCK_NB);
    if (unlinkat(directory, name, 0) != 0 && errno != ENOENT) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno, "%s/%s: cannot unlink it: %s",
                              nvme->where, name, strerror(errno));
    }
    return ZO_OK;
}

static enum zo_status create(struct zo_nvme *nvme, int directory)
{
    const bool wants_name =
        nvme->faults != NULL && nvme->faults->refuses_nameless;

    if (!wants_name) {
        nvme->fd = openat(directory, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
        if (nvme->fd >= 0) {
            return ZO_OK;
        }
        if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT &&
            errno != EINVAL) {
            return fail_create(nvme, errno);
        }
    }
    return create_named(nvme, directory);
}

static enum zo_status fail_space(const struct zo_nvme *nvme, int error,
                                 uint64_t free_bytes)
{
    char want[32], is_free[32];

    return ZO_FAIL_NATIVE(
        ZO_E_FIT, error, "%s: the NVMe tier wants %s there, %s free%s%s",
        nvme->where, zo_text_gib(want, sizeof(want), nvme->bytes),
        zo_text_gib(is_free, sizeof(is_free), free_bytes),
        error != 0 && error != ENOSPC ? ": " : "",
        error != 0 && error != ENOSPC ? strerror(error) : "");
}

static int fault_reserve(const struct zo_nvme *nvme)
{
    return nvme->faults != NULL ? nvme->faults->reserve_errno : 0;
}

/* Without a reservation the space is there now, and may be gone later. */
static enum zo_status reserve_nothing(struct zo_nvme *nvme, uint64_t free_bytes)
{
    if (free_bytes < nvme->bytes) {
        return fail_space(nvme, 0, free_bytes);
    }
    if (ftruncate(nvme->fd, (off_t)nvme->bytes) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno,
                              "%s: cannot make a file of %" PRIu64
                              " bytes there: %s",
                              nvme->where, nvme->bytes, strerror(errno));
    }
    zo_nvme_note(nvme,
                 "NVMe: the file system of %s reserves no space: a run may "
                 "end when others fill it",
                 nvme->where);
    return ZO_OK;
}

static enum zo_status reserve(struct zo_nvme *nvme)
{
    struct rlimit limit;
    struct statvfs info;
    uint64_t free_bytes;
    int error = fault_reserve(nvme);

    if (fstatvfs(nvme->fd, &info) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno,
                              "%s: cannot tell what is free: %s", nvme->where,
                              strerror(errno));
    }
    free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    /* Beyond the limit the kernel would end the process. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < nvme->bytes) {
        return ZO_FAIL(ZO_E_FIT,
                       "%s: the NVMe tier wants a file of %" PRIu64
                       " bytes, the limit is %" PRIu64
                       "; raise it with ulimit -f",
                       nvme->where, nvme->bytes, (uint64_t)limit.rlim_cur);
    }
    /* Some file systems would first fill themselves and then refuse. */
    if (error == 0 && free_bytes < nvme->bytes) {
        error = ENOSPC;
    }
    if (error == 0) {
        do {
            error =
                fallocate(nvme->fd, 0, 0, (off_t)nvme->bytes) == 0 ? 0 : errno;
        } while (error == EINTR);
    }
    switch (error) {
    case 0:
        return ZO_OK;
    case EOPNOTSUPP:
    case ENOSYS:
        return reserve_nothing(nvme, free_bytes);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return fail_space(nvme, error, free_bytes);
    default:
        return ZO_FAIL_NATIVE(ZO_E_IO, error,
                              "%s: cannot reserve %" PRIu64 " bytes there: %s",
                              nvme->where, nvme->bytes, strerror(error));
    }
}

static void go_direct(struct zo_nvme *nvme)
{
    const int flags = fcntl(nvme->fd, F_GETFL);
    const bool is_refused =
        nvme->faults != NULL && nvme->faults->refuses_direct;

    nvme->is_direct = !is_refused && flags >= 0 &&
                      fcntl(nvme->fd, F_SETFL, flags | O_DIRECT) == 0;
    if (!nvme->is_direct) {
        zo_nvme_file_buffered(nvme);
    }
}

void zo_nvme_file_buffered(struct zo_nvme *nvme)
{
    const int flags = fcntl(nvme->fd, F_GETFL);

    if (flags >= 0) {
        (void)fcntl(nvme->fd, F_SETFL, flags & ~O_DIRECT);
    }
    nvme->is_direct = false;
    zo_nvme_note(nvme,
                 "NVMe: the file system of %s refuses O_DIRECT: all bytes "
                 "pass through the page cache, which is slower and fills "
                 "memory that is free",
                 nvme->where);
}

enum zo_status zo_nvme_file_open(struct zo_nvme *nvme,
                                 const struct zo_nvme_options *options)
{
    enum zo_status status;
    int directory = -1;

    ZO_TRY(open_directory(nvme, options->directory, &directory));
    ZO_TRY_GOTO(close_directory,
                check_disk(nvme, directory, options->allows_memory));
    remove_leftovers(nvme, directory);
    ZO_TRY_GOTO(close_directory, create(nvme, directory));
    ZO_TRY_GOTO(close_directory, reserve(nvme));
    go_direct(nvme);

close_directory:
    (void)close(directory);
    return status;
}
