#include "src/base/uring_probe.h"

#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENTRIES     8
#define PARAM_WORDS 15 /* struct io_uring_params: 120 bytes, since 5.1 */

/* Since 5.1 the number is the same on every architecture but alpha. */
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#endif

static int system_setup(unsigned entries, void *params)
{
    return (int)syscall(SYS_io_uring_setup, entries, params);
}

int zo_uring_probe_run(zo_uring_setup_fn setup)
{
    uint64_t params[PARAM_WORDS] = {0};
    int fd;

    errno = 0;
    fd = (setup != NULL ? setup : system_setup)(ENTRIES, params);
    if (fd < 0) {
        return errno != 0 ? errno : EIO;
    }
    (void)close(fd);
    return 0;
}

const char *zo_uring_probe_cure(int error)
{
    switch (error) {
    case 0:
        return "";
    case ENOSYS:
        return "the kernel has none, or the container hides it (ENOSYS): want "
               "Linux 5.1 or later, and a seccomp profile that allows "
               "io_uring_setup";
    case EPERM:
    case EACCES:
        return "it is forbidden (EPERM): want the sysctl "
               "kernel.io_uring_disabled at 0, and in a container a seccomp "
               "profile that allows io_uring_setup";
    case ENOMEM:
        return "the limit of locked memory is too small for its rings "
               "(ENOMEM): raise it with ulimit -l";
    case EMFILE:
    case ENFILE:
        return "there are too many open files: raise the limit with ulimit -n";
    default:
        return "the kernel refuses it for a reason of its own";
    }
}
