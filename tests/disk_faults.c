#include "tests/disk_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/checkpoint/disk_file.h"

int disk_fault_at;
int disk_fault_calls;
int disk_lost_at;
int disk_lost_calls;
bool disk_cannot_exchange;
bool disk_cannot_remove;
int disk_direct_calls;
int disk_direct_error;
char disk_events[64];

static bool fails_now(int error)
{
    if (disk_fault_at == 0 || ++disk_fault_calls != disk_fault_at) {
        return false;
    }
    errno = error;
    return true;
}

/* Files are synced by several threads at once. */
static void log_event(char event)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    size_t count;

    (void)pthread_mutex_lock(&lock);
    count = strlen(disk_events);
    if (count + 1 < sizeof(disk_events)) {
        disk_events[count] = event;
    }
    (void)pthread_mutex_unlock(&lock);
}

/* Why a write past the page cache is refused, by us or by its size; 0: not. */
static int refusal_of(int fd, size_t size_bytes)
{
    const int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || (flags & O_DIRECT) == 0) {
        return 0;
    }
    (void)__atomic_add_fetch(&disk_direct_calls, 1, __ATOMIC_RELAXED);
    return disk_direct_error != 0            ? disk_direct_error
           : size_bytes % ZO_DISK_BLOCK != 0 ? EINVAL
                                             : 0;
}

ssize_t write(int fd, const void *data, size_t size_bytes)
{
    const int refusal = refusal_of(fd, size_bytes);

    if (refusal != 0) {
        errno = refusal;
        return -1;
    }
    if (disk_lost_at > 0 && ++disk_lost_calls == disk_lost_at) {
        return (ssize_t)size_bytes;
    }
    return fails_now(ENOSPC) ? -1 : syscall(SYS_write, fd, data, size_bytes);
}

int fsync(int fd)
{
    struct stat info;

    log_event(fstat(fd, &info) == 0 && S_ISDIR(info.st_mode) ? 'd' : 'f');
    return fails_now(EIO) ? -1 : (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    log_event('r');
    return fails_now(EIO)
               ? -1
               : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to,
              unsigned flags)
{
    if (disk_cannot_exchange) {
        errno = EINVAL;
        return -1;
    }
    return fails_now(EIO)
               ? -1
               : (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    return fails_now(EDQUOT) ? -1
                             : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int unlinkat(int folder_fd, const char *name, int flags)
{
    if (disk_cannot_remove) {
        errno = EPERM;
        return -1;
    }
    return (int)syscall(SYS_unlinkat, folder_fd, name, flags);
}
