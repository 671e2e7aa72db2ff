#include "src/base/cgroup.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define PATH_MAX_BYTES 4096

bool zo_cgroup_read(const char *folder, const char *name, char *line,
                    int line_bytes)
{
    char path[PATH_MAX_BYTES + 64];
    FILE *file;
    bool is_read;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "re");
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

/*
 * From mount/group upwards to mount.  A container often sees its own group as
 * the mount while `group` is the path outside of it: those folders are not
 * there.
 */
static void visit_chain(const char *mount, const char *group,
                        zo_cgroup_fn visit, void *context)
{
    char folder[PATH_MAX_BYTES];
    const size_t mount_bytes = strlen(mount);
    const int bytes = snprintf(folder, sizeof(folder), "%s%s", mount, group);
    char *slash;

    if (bytes < 0 || (size_t)bytes >= sizeof(folder)) {
        return;
    }
    for (;;) {
        visit(context, folder);
        slash = strrchr(folder, '/');
        if (slash == NULL || slash < folder + mount_bytes) {
            return;
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

/* The folder of a controller of version 1; false when it is too long. */
static bool name_v1_mount(char target[PATH_MAX_BYTES], const char *mount,
                          const char *controller)
{
    const int bytes =
        snprintf(target, PATH_MAX_BYTES, "%s/%s", mount, controller);

    return bytes >= 0 && bytes < PATH_MAX_BYTES;
}

void zo_cgroup_visit(const char *membership, const char *mount,
                     const char *controller, zo_cgroup_fn visit, void *context)
{
    char line[PATH_MAX_BYTES], v1_mount[PATH_MAX_BYTES];
    FILE *file = fopen(membership, "re");

    if (file == NULL) {
        return;
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
            visit_chain(mount, group, visit, context);
        } else if (lists_name(names, controller) &&
                   name_v1_mount(v1_mount, mount, controller)) {
            visit_chain(v1_mount, group, visit, context);
        }
    }
    (void)fclose(file);
}
