#include "src/base/cpu.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/pool.h"

#define PATH_MAX_BYTES 4096

/* The first line of a small file, without its end; false when unreadable. */
static bool read_line(const char *path, char *line, int line_bytes)
{
    FILE *file = fopen(path, "re");
    bool is_read;

    if (file == NULL) {
        return false;
    }
    is_read = fgets(line, line_bytes, file) != NULL;
    (void)fclose(file);
    if (is_read) {
        line[strcspn(line, "\n")] = '\0';
    }
    return is_read;
}

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
    char path[PATH_MAX_BYTES + 32], quota[64], period[64];
    char *space;

    (void)snprintf(path, sizeof(path), "%s/cpu.max", folder);
    if (read_line(path, quota, sizeof(quota))) {
        space = strchr(quota, ' ');
        return space == NULL ? 0 : quota_cores(quota, space + 1);
    }
    (void)snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
    if (!read_line(path, quota, sizeof(quota))) {
        return 0;
    }
    (void)snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
    if (!read_line(path, period, sizeof(period))) {
        return 0;
    }
    return quota_cores(quota, period);
}

static int smaller_quota(int a, int b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/*
 * The smallest quota from mount/group upwards to mount.  A container often
 * sees its own group as the mount while `group` is the path outside of it:
 * folders that are not there have no quota.
 */
static int chain_quota(const char *mount, const char *group)
{
    char folder[PATH_MAX_BYTES];
    const size_t mount_bytes = strlen(mount);
    const int bytes = snprintf(folder, sizeof(folder), "%s%s", mount, group);
    char *slash;
    int quota = 0;

    if (bytes < 0 || (size_t)bytes >= sizeof(folder)) {
        return 0;
    }
    for (;;) {
        quota = smaller_quota(quota, folder_quota(folder));
        slash = strrchr(folder, '/');
        if (slash == NULL || slash < folder + mount_bytes) {
            return quota;
        }
        *slash = '\0';
    }
}

/* True if `name` is one of the comma-separated names. */
static bool lists_name(const char *names, const char *name)
{
    const size_t name_bytes = strlen(name);

    for (;;) {
        const size_t bytes = strcspn(names, ",");

        if (bytes == name_bytes && memcmp(names, name, bytes) == 0) {
            return true;
        }
        if (names[bytes] == '\0') {
            return false;
        }
        names += bytes + 1;
    }
}

int zo_cpu_quota(const char *membership, const char *mount)
{
    char line[PATH_MAX_BYTES], v1_mount[PATH_MAX_BYTES];
    FILE *file = fopen(membership, "re");
    int quota = 0;

    if (file == NULL) {
        return 0;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        /* "0::/group" is version 2, "4:cpu,cpuacct:/group" version 1. */
        char *names = strchr(line, ':');
        char *group = names == NULL ? NULL : strchr(names + 1, ':');

        if (group == NULL) {
            continue;
        }
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        names++;
        if (names[0] == '\0') {
            quota = smaller_quota(quota, chain_quota(mount, group));
        } else if (lists_name(names, "cpu") &&
                   strlen(mount) + sizeof("/cpu") <= sizeof(v1_mount)) {
            (void)snprintf(v1_mount, sizeof(v1_mount), "%s/cpu", mount);
            quota = smaller_quota(quota, chain_quota(v1_mount, group));
        }
    }
    (void)fclose(file);
    return quota;
}

int zo_cpu_count(void)
{
    cpu_set_t set;
    int count;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        count = CPU_COUNT(&set);
    } else { /* more processors than the set holds */
        count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    count = smaller_quota(count,
                          zo_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup"));
    return count > 0 ? count : 1;
}
