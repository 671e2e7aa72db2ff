/*
 * Whether the kernel lets this process use io_uring.
 *
 * Layer 0.  No state, safe in any thread.  Asks by the system call, so it
 * needs no liburing.
 */
#ifndef ZO_SRC_BASE_URING_PROBE_H
#define ZO_SRC_BASE_URING_PROBE_H

#include "src/base/compiler.h"

ZO_C_BEGIN

/* io_uring_setup(2): a file descriptor, or -1 and errno. */
typedef int (*zo_uring_setup_fn)(unsigned entries, void *params);

/*
 * Sets a small ring up and closes it again.  0 when that works, else the
 * errno.  setup is NULL, for the system's, but for tests.
 */
int zo_uring_probe_run(zo_uring_setup_fn setup);

/* Why it is refused and what would change that, in a sentence; static. */
const char *zo_uring_probe_cure(int error);

ZO_C_END

#endif
