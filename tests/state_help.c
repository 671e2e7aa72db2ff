#include "tests/state_help.h"

#include <string.h>
#include <unistd.h>

#include "src/checkpoint/state_reader.h"
#include "tests/tiny_run.h"

/* In the place of the C library's. */
int fsync(int fd)
{
    (void)fd;
    return 0;
}

int fdatasync(int fd)
{
    (void)fd;
    return 0;
}

/* Two states hold the same numbers, whatever their pieces. */
static bool same_kind(const struct zo_state *a, const struct zo_state *b,
                      enum zo_state_kind kind)
{
    const struct zo_tensor_source *left = zo_state_tensors(a, kind);
    const struct zo_tensor_source *right = zo_state_tensors(b, kind);

    for (size_t i = 0; i < zo_tensor_source_count(left); i++) {
        const struct zo_tensor_info *info = zo_tensor_source_info(left, i);
        static char bytes[2][4 * TINY_PARAMETERS];
        size_t other = 0;

        if (!zo_tensor_source_find(right, info->name, &other) ||
            zo_tensor_source_read(left, i, 0, (size_t)info->size_bytes,
                                  bytes[0]) != ZO_OK ||
            zo_tensor_source_read(right, other, 0, (size_t)info->size_bytes,
                                  bytes[1]) != ZO_OK ||
            memcmp(bytes[0], bytes[1], (size_t)info->size_bytes) != 0) {
            return false;
        }
    }
    return zo_tensor_source_count(left) == zo_tensor_source_count(right);
}

bool same_states(const char *a, const char *b)
{
    struct zo_state *left = NULL, *right = NULL;
    bool is_same =
        zo_state_open(a, &left) == ZO_OK && zo_state_open(b, &right) == ZO_OK;

    for (int kind = 0; is_same && kind < ZO_STATE_KINDS; kind++) {
        is_same = same_kind(left, right, (enum zo_state_kind)kind);
    }
    zo_state_close(left);
    zo_state_close(right);
    return is_same;
}

bool same_runs(const char *a, const char *b)
{
    struct zo_state *left = NULL, *right = NULL;
    const bool is_same = zo_state_open(a, &left) == ZO_OK &&
                         zo_state_open(b, &right) == ZO_OK &&
                         memcmp(zo_state_run(left), zo_state_run(right),
                                sizeof(struct zo_state_run)) == 0;

    zo_state_close(left);
    zo_state_close(right);
    return is_same;
}
