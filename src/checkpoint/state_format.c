#include "src/checkpoint/state_format.h"

#include <stdio.h>

const char *zo_state_kind_name(enum zo_state_kind kind)
{
    switch (kind) {
    case ZO_STATE_MASTER:
        return "master";
    case ZO_STATE_EXP_AVG:
        return "exp_avg";
    case ZO_STATE_EXP_AVG_SQ:
        return "exp_avg_sq";
    }
    return "?";
}

void zo_state_shard_name(char *name, size_t name_bytes, size_t shard)
{
    (void)snprintf(name, name_bytes, "shard-%05zu.state", shard + 1);
}

size_t zo_state_piece_bytes(const struct zo_state_piece *piece)
{
    size_t bytes = 0;

    for (size_t p = 0; p < ZO_STATE_PLANES_MAX; p++) {
        bytes += piece->stored_bytes[p];
    }
    return bytes;
}
