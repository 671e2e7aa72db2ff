/*
 * How much of the machine's processors this process may use; the count
 * itself is zo_cpu_count() of pool.h.  Layer 0.
 */
#ifndef ZO_SRC_BASE_CPU_H
#define ZO_SRC_BASE_CPU_H

#include "src/base/compiler.h"

ZO_C_BEGIN

/*
 * The processor quota, in whole cores rounded up, of the control groups
 * listed in `membership` (normally "/proc/self/cgroup") and of all their
 * parents below `mount` (normally "/sys/fs/cgroup"); 0 when there is none.
 * Versions 1 and 2.
 */
int zo_cpu_quota(const char *membership, const char *mount);

/* The cores that the affinity mask allows, whatever the quota. */
int zo_cpu_affinity(void);

ZO_C_END

#endif
