/*
 * Walks the control groups that bind a process, of both versions.
 *
 * Layer 0.  No state, safe in any thread.
 */
#ifndef ZO_SRC_BASE_CGROUP_H
#define ZO_SRC_BASE_CGROUP_H

#include <stdbool.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

/* Called with the folder of a group; it may not be there. */
typedef void (*zo_cgroup_fn)(void *context, const char *folder);

/*
 * Calls visit with every folder that can limit the process: each group of
 * `controller` ("cpu", "memory") listed in `membership` (normally
 * "/proc/self/cgroup"), and its parents up to `mount` (normally
 * "/sys/fs/cgroup"; version 1: mount/controller).
 */
void zo_cgroup_visit(const char *membership, const char *mount,
                     const char *controller, zo_cgroup_fn visit, void *context);

/* The first line of a small file, without its end; false when unreadable. */
bool zo_cgroup_read(const char *folder, const char *name, char *line,
                    int line_bytes);

ZO_C_END

#endif
