#include "src/base/cpu.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/cgroup.h"
#include "src/base/pool.h"

/* Cores for quota microseconds in each period, rounded up; 0: no limit. */
static int quota_cores(const char *quota_text, const char *period_text)
{
    const long quota = strtol(quota_text, NULL, 10); /* "max" and -1: none */
    const long period = strtol(period_text, NULL, 10);

    if (quota <= 0 || period <= 0) {
        return 0;
    }
    if (quota / period >= INT_MAX) {
        return 0;
    }
    return (int)(quota / period) + (quota % period != 0);
}

/* The quota written in one folder, of either version; 0: none. */
static int folder_quota(const char *folder)
{
    char quota[64], period[64];
    char *space;

    if (zo_cgroup_read(folder, "cpu.max", quota, sizeof(quota))) {
        space = strchr(quota, ' ');
        return space == NULL ? 0 : quota_cores(quota, space + 1);
    }
    if (!zo_cgroup_read(folder, "cpu.cfs_quota_us", quota, sizeof(quota)) ||
        !zo_cgroup_read(folder, "cpu.cfs_period_us", period, sizeof(period))) {
        return 0;
    }
    return quota_cores(quota, period);
}

static int smaller_quota(int a, int b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

static void add_quota(void *context, const char *folder)
{
    int *quota = context;

    *quota = smaller_quota(*quota, folder_quota(folder));
}

int zo_cpu_quota(const char *membership, const char *mount)
{
    int quota = 0;

    zo_cgroup_visit(membership, mount, "cpu", add_quota, &quota);
    return quota;
}

int zo_cpu_affinity(void)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        return CPU_COUNT(&set);
    }
    /* more processors than the set holds */
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int zo_cpu_count(void)
{
    const int count = smaller_quota(
        zo_cpu_affinity(), zo_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup"));

    return count > 0 ? count : 1;
}
