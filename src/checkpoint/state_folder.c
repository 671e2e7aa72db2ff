#include "src/checkpoint/state_folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/state_reader.h"

#define PREFIX     "state-"
#define DIGITS_MIN 8
#define DIGITS_MAX 18 /* of an int64_t */
#define NAME_BYTES 64

#define LATEST_PARTIAL ".latest.partial"

static void name_of(char *name, int64_t step)
{
    (void)snprintf(name, NAME_BYTES, PREFIX "%0*" PRId64, DIGITS_MIN, step);
}

enum zo_status zo_state_folder_path(const char *folder, int64_t step,
                                    char **path_out)
{
    char name[NAME_BYTES];

    name_of(name, step);
    return zo_disk_join(folder, name, path_out);
}

enum zo_status zo_state_folder_hidden(const char *folder, int64_t step,
                                      const char *suffix, char **path_out)
{
    char name[NAME_BYTES], hidden[2 * NAME_BYTES];

    name_of(name, step);
    (void)snprintf(hidden, sizeof(hidden), ".%s.%s", name, suffix);
    return zo_disk_join(folder, hidden, path_out);
}

/* "state-00000500" and nothing but `rest`, as name_of() writes it. */
static bool read_name(const char *name, const char *rest, int64_t *step_out)
{
    const char *digits = name + sizeof(PREFIX) - 1;
    char wanted[NAME_BYTES];
    size_t count = 0;
    int64_t step;

    if (strncmp(name, PREFIX, sizeof(PREFIX) - 1) != 0) {
        return false;
    }
    while (isdigit((unsigned char)digits[count]) && count <= DIGITS_MAX) {
        count++;
    }
    if (count < DIGITS_MIN || count > DIGITS_MAX ||
        strcmp(digits + count, rest) != 0) {
        return false;
    }
    step = strtoll(digits, NULL, 10);
    name_of(wanted, step);
    *step_out = step;
    return strncmp(wanted, name, (size_t)(digits + count - name)) == 0;
}

/* A folder, or a link: where that leads to is seen when it is opened. */
static bool may_be_state(int folder, const char *name)
{
    struct stat info;

    return fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           (S_ISDIR(info.st_mode) || S_ISLNK(info.st_mode));
}

static int compare_newest(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

    return left < right ? 1 : left > right ? -1 : 0;
}

/* Folders ".state-N.SUFFIX", or with suffix NULL "state-N". */
static enum zo_status list(const char *folder, const char *suffix,
                           int64_t **steps_out, size_t *count_out)
{
    char rest[NAME_BYTES] = "";
    DIR *stream = opendir(folder);
    const struct dirent *entry;
    size_t count = 0, capacity = 0;
    int64_t *steps = NULL;
    enum zo_status status = ZO_OK;

    *steps_out = NULL;
    *count_out = 0;
    if (stream == NULL && errno == ENOENT) {
        return ZO_OK;
    }
    if (stream == NULL) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "cannot read folder %s: %s",
                              folder, strerror(errno));
    }
    if (suffix != NULL) {
        (void)snprintf(rest, sizeof(rest), ".%s", suffix);
    }
    while ((entry = readdir(stream)) != NULL) {
        const char *name = entry->d_name + (suffix != NULL ? 1 : 0);
        int64_t step = 0;

        if ((suffix != NULL && entry->d_name[0] != '.') ||
            !read_name(name, rest, &step) ||
            !may_be_state(dirfd(stream), entry->d_name)) {
            continue;
        }
        ZO_TRY_GOTO(close_stream, zo_grow(&steps, count, &capacity,
                                          sizeof(*steps), "a list of states"));
        steps[count++] = step;
    }
    if (count > 1) {
        qsort(steps, count, sizeof(*steps), compare_newest);
    }
    *steps_out = steps;
    *count_out = count;
    steps = NULL;

close_stream:
    zo_free(steps);
    (void)closedir(stream);
    return status;
}

enum zo_status zo_state_folder_list(const char *folder, int64_t **steps_out,
                                    size_t *count_out)
{
    return list(folder, NULL, steps_out, count_out);
}

/* A state, or a link that may lead to one; else something of the user's. */
static bool may_go(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0 &&
           (S_ISLNK(info.st_mode) || zo_state_is_one(path));
}

enum zo_status zo_state_folder_remove(const char *folder, int64_t step)
{
    char *path = NULL, *hidden = NULL;
    enum zo_status status;

    ZO_TRY(zo_state_folder_path(folder, step, &path));
    status = ZO_OK;
    if (!may_go(path)) {
        goto free_paths;
    }
    ZO_TRY_GOTO(free_paths,
                zo_state_folder_hidden(folder, step, "removed", &hidden));
    ZO_TRY_GOTO(free_paths, zo_disk_remove(hidden));
    ZO_TRY_GOTO(free_paths, zo_disk_rename(path, hidden));
    ZO_TRY_GOTO(free_paths, zo_disk_remove(hidden));

free_paths:
    zo_free(path);
    zo_free(hidden);
    return status;
}

/* One that was to be replaced when the run was killed gets its name back. */
static enum zo_status put_back(const char *folder, int64_t step)
{
    char *path = NULL, *hidden = NULL;
    enum zo_status status;
    struct stat info;

    ZO_TRY(zo_state_folder_path(folder, step, &path));
    ZO_TRY_GOTO(free_paths,
                zo_state_folder_hidden(folder, step, "replaced", &hidden));
    if (lstat(path, &info) == 0) {
        (void)!zo_disk_remove(hidden); /* in the way of nobody */
    } else {
        status = zo_disk_rename(hidden, path);
    }

free_paths:
    zo_free(path);
    zo_free(hidden);
    return status;
}

static enum zo_status remove_hidden(const char *folder, int64_t step,
                                    const char *suffix)
{
    char *hidden = NULL;
    enum zo_status status;

    ZO_TRY(zo_state_folder_hidden(folder, step, suffix, &hidden));
    status = zo_disk_remove(hidden);
    zo_free(hidden);
    return status;
}

enum zo_status zo_state_folder_clean(const char *folder)
{
    static const char *const suffixes[] = {"replaced", "partial", "removed"};
    enum zo_status status = ZO_OK;
    char *link = NULL;

    ZO_TRY(zo_disk_join(folder, LATEST_PARTIAL, &link));
    (void)unlink(link);
    zo_free(link);

    for (size_t s = 0; s < ZO_COUNT(suffixes); s++) {
        int64_t *steps = NULL;
        size_t count = 0;

        ZO_TRY(list(folder, suffixes[s], &steps, &count));
        for (size_t i = 0; status == ZO_OK && i < count; i++) {
            if (s == 0) {
                status = put_back(folder, steps[i]);
            } else { /* hidden, and in the way of nobody who can say so */
                (void)!remove_hidden(folder, steps[i], suffixes[s]);
            }
        }
        zo_free(steps);
        ZO_TRY(status);
    }
    return ZO_OK;
}

enum zo_status zo_state_folder_point(const char *folder, int64_t step)
{
    char *from = NULL, *to = NULL;
    char name[NAME_BYTES];
    enum zo_status status;

    name_of(name, step);
    ZO_TRY(zo_disk_join(folder, LATEST_PARTIAL, &from));
    ZO_TRY_GOTO(free_paths, zo_disk_join(folder, "latest", &to));
    (void)unlink(from);
    if (symlink(name, from) != 0) { /* a file system without links */
        ZO_TRY_GOTO(free_paths, zo_disk_write_all(from, name, strlen(name)));
    }
    status = zo_disk_rename(from, to);
    if (status != ZO_OK) {
        (void)unlink(from);
    }

free_paths:
    zo_free(from);
    zo_free(to);
    return status;
}
