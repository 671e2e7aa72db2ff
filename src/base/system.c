#include "src/base/system.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cgroup.h"
#include "src/base/cpu.h"
#include "src/base/numa.h"

#define PATH_BYTES 4096
#define LINE_BYTES 1024
#define GROUP_NO_LIMIT                                    \
    (UINT64_C(1) << 60) /* version 1 writes a huge number \
                         */
#define VENDOR_NVIDIA "0x10de"
#define CLASS_DISPLAY "0x03"
#define CAP_IPC_LOCK  14 /* linux/capability.h */

/* The rest of the first line that begins with `key`, or NULL. */
static const char *find_line(const char *root, const char *name,
                             const char *key, char line[LINE_BYTES])
{
    char path[PATH_BYTES];
    const size_t key_bytes = strlen(key);
    bool is_found = false;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    file = fopen(path, "re");
    while (file != NULL && !is_found && fgets(line, LINE_BYTES, file) != NULL) {
        is_found = strncmp(line, key, key_bytes) == 0;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_found ? line + key_bytes : NULL;
}

static uint64_t meminfo_bytes(const char *root, const char *key)
{
    char line[LINE_BYTES];
    const char *text = find_line(root, "proc/meminfo", key, line);

    return text == NULL ? 0 : (uint64_t)strtoull(text, NULL, 10) * 1024;
}

static void read_memory_limits(const char *root, struct zo_system *system)
{
    char line[LINE_BYTES];
    const char *text =
        find_line(root, "proc/self/limits", "Max locked memory", line);
    const char *capabilities;

    system->lock_limit_bytes = ZO_SYSTEM_NO_LIMIT;
    if (text != NULL) {
        text += strspn(text, " ");
        if (isdigit((unsigned char)text[0])) {
            system->lock_limit_bytes = strtoull(text, NULL, 10);
        }
    }
    capabilities = find_line(root, "proc/self/status", "CapEff:", line);
    system->is_lock_privileged =
        capabilities != NULL &&
        (strtoull(capabilities, NULL, 16) >> CAP_IPC_LOCK & 1) != 0;
}

/* ---- control groups --------------------------------------------------- */

static bool read_bytes(const char *folder, const char *v2_name,
                       const char *v1_name, uint64_t *bytes_out)
{
    char line[64];

    if ((!zo_cgroup_read(folder, v2_name, line, sizeof(line)) &&
         !zo_cgroup_read(folder, v1_name, line, sizeof(line))) ||
        !isdigit((unsigned char)line[0])) { /* "max" */
        return false;
    }
    *bytes_out = strtoull(line, NULL, 10);
    return true;
}

/*
 * Pages of files that the kernel drops when the group wants their memory:
 * "inactive_file" and "active_file" of version 2, "total_..." of version 1.
 */
static uint64_t file_bytes(const char *folder)
{
    uint64_t own = 0, total = 0;
    bool has_total = false;
    char line[LINE_BYTES];
    FILE *file;

    (void)snprintf(line, sizeof(line), "%.1000s/memory.stat", folder);
    file = fopen(line, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        unsigned long long bytes = 0;

        if (sscanf(line, "inactive_file %llu", &bytes) == 1 ||
            sscanf(line, "active_file %llu", &bytes) == 1) {
            own += bytes;
        } else if (sscanf(line, "total_inactive_file %llu", &bytes) == 1 ||
                   sscanf(line, "total_active_file %llu", &bytes) == 1) {
            total += bytes;
            has_total = true;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return has_total ? total : own;
}

static void add_group(void *context, const char *folder)
{
    struct zo_system *system = context;
    uint64_t limit = 0, used = 0, kept, droppable;

    if (!read_bytes(folder, "memory.max", "memory.limit_in_bytes", &limit) ||
        limit >= GROUP_NO_LIMIT) {
        return;
    }
    (void)read_bytes(folder, "memory.current", "memory.usage_in_bytes", &used);
    if (limit < system->group_limit_bytes) {
        system->group_limit_bytes = limit;
        system->group_used_bytes = used;
    }
    droppable = file_bytes(folder);
    kept = used > droppable ? used - droppable : 0;
    kept = kept < limit ? kept : limit;
    if (limit - kept < system->group_free_bytes) {
        system->group_free_bytes = limit - kept;
    }
}

static void read_groups(const char *root, struct zo_system *system)
{
    char membership[PATH_BYTES], mount[PATH_BYTES];

    (void)snprintf(membership, sizeof(membership), "%s/proc/self/cgroup", root);
    (void)snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup", root);
    system->group_limit_bytes = ZO_SYSTEM_NO_LIMIT;
    system->group_free_bytes = ZO_SYSTEM_NO_LIMIT;
    zo_cgroup_visit(membership, mount, "memory", add_group, system);
    system->quota_cores = zo_cpu_quota(membership, mount);
}

/* ---- hardware --------------------------------------------------------- */

static enum zo_huge_pages read_huge_pages(const char *root)
{
    char line[LINE_BYTES];
    const char *text =
        find_line(root, "sys/kernel/mm/transparent_hugepage/enabled", "", line);

    return text == NULL                        ? ZO_HUGE_PAGES_UNKNOWN
           : strstr(text, "[never]") != NULL   ? ZO_HUGE_PAGES_NEVER
           : strstr(text, "[madvise]") != NULL ? ZO_HUGE_PAGES_MADVISE
           : strstr(text, "[always]") != NULL  ? ZO_HUGE_PAGES_ALWAYS
                                               : ZO_HUGE_PAGES_UNKNOWN;
}

/* How many numbers "0-1,4" lists; at least 1. */
static int read_numa_nodes(const char *root)
{
    char line[LINE_BYTES];
    const char *text =
        find_line(root, "sys/devices/system/node/online", "", line);
    int nodes = 0, first, last;

    while (text != NULL && zo_numa_next_range(&text, &first, &last)) {
        nodes += last - first + 1;
    }
    return nodes > 0 ? nodes : 1;
}

static int count_gpus(const char *root)
{
    static const char folder[] = "sys/bus/pci/devices";
    char path[PATH_BYTES], line[LINE_BYTES];
    const struct dirent *entry;
    int count = 0;
    DIR *stream;

    (void)snprintf(path, sizeof(path), "%s/%s", root, folder);
    stream = opendir(path);
    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        (void)snprintf(path, sizeof(path), "%s/%s/vendor", folder,
                       entry->d_name);
        if (find_line(root, path, VENDOR_NVIDIA, line) == NULL) {
            continue;
        }
        (void)snprintf(path, sizeof(path), "%s/%s/class", folder,
                       entry->d_name);
        count += find_line(root, path, CLASS_DISPLAY, line) != NULL;
    }
    if (stream != NULL) {
        (void)closedir(stream);
    }
    return count;
}

/* The word of "NVRM version: ..." that is digits and at least one point. */
static void read_gpu_driver(const char *root, char *version,
                            size_t version_bytes)
{
    char line[LINE_BYTES];
    const char *text =
        find_line(root, "proc/driver/nvidia/version", "NVRM version:", line);

    version[0] = '\0';
    while (text != NULL && *text != '\0') {
        const size_t word = strcspn(text, " \t\n");
        const size_t number = strspn(text, "0123456789.");

        if (word > 0 && word == number && memchr(text, '.', word) != NULL &&
            word < version_bytes) {
            memcpy(version, text, word);
            version[word] = '\0';
            return;
        }
        text += word + strspn(text + word, " \t\n");
    }
}

void zo_system_read(const char *root, struct zo_system *system_out)
{
    struct zo_system *system = system_out;

    *system = (struct zo_system){0};
    system->memory_bytes = meminfo_bytes(root, "MemTotal:");
    system->available_bytes = meminfo_bytes(root, "MemAvailable:");
    read_memory_limits(root, system);
    read_groups(root, system);
    system->huge_pages = read_huge_pages(root);
    system->numa_nodes = read_numa_nodes(root);
    system->gpus_on_bus = count_gpus(root);
    read_gpu_driver(root, system->gpu_driver, sizeof(system->gpu_driver));
}

uint64_t zo_system_room(const struct zo_system *system)
{
    const uint64_t available = system->available_bytes > 0
                                   ? system->available_bytes
                                   : ZO_SYSTEM_NO_LIMIT;

    return available < system->group_free_bytes ? available
                                                : system->group_free_bytes;
}

const char *zo_huge_pages_name(enum zo_huge_pages huge_pages)
{
    switch (huge_pages) {
    case ZO_HUGE_PAGES_UNKNOWN:
        return "unknown";
    case ZO_HUGE_PAGES_NEVER:
        return "never";
    case ZO_HUGE_PAGES_MADVISE:
        return "madvise";
    case ZO_HUGE_PAGES_ALWAYS:
        return "always";
    }
    return "unknown";
}
