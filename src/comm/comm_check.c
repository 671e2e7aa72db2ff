#include "src/base/arith.h"
#include "src/comm/comm.h"

static enum zo_status check_pointers(const char *what,
                                     const void *const *pointers, int ranks)
{
    if (pointers == NULL) {
        return ZO_FAIL(ZO_E_ARG, "%s: NULL", what);
    }
    for (int rank = 0; rank < ranks; rank++) {
        if (pointers[rank] == NULL) {
            return ZO_FAIL(ZO_E_ARG, "%s: NULL for rank %d", what, rank);
        }
    }
    return ZO_OK;
}

static enum zo_status check_size(const char *what, size_t stride_bytes,
                                 int ranks)
{
    uint64_t bytes;

    if (!zo_mul_u64(stride_bytes, (uint64_t)ranks, &bytes) ||
        bytes > SIZE_MAX / 2) {
        return ZO_FAIL(ZO_E_ARG, "%s: %d pieces of %zu bytes are too large",
                       what, ranks, stride_bytes);
    }
    return ZO_OK;
}

enum zo_status zo_comm_exchange_check(const struct zo_comm_exchange_args *args,
                                      int ranks)
{
    ZO_TRY(check_pointers("exchange: streams",
                          (const void *const *)args->streams, ranks));
    if (args->piece_bytes > args->stride_bytes) {
        return ZO_FAIL(ZO_E_ARG,
                       "exchange: pieces of %zu bytes overlap at a stride of "
                       "%zu bytes",
                       args->piece_bytes, args->stride_bytes);
    }
    ZO_TRY(check_size("exchange", args->stride_bytes, ranks));
    if (args->piece_bytes == 0) {
        return ZO_OK;
    }
    ZO_TRY(check_pointers("exchange: sources", args->sources, ranks));
    return check_pointers("exchange: targets",
                          (const void *const *)args->targets, ranks);
}

enum zo_status
zo_comm_all_gather_check(const struct zo_comm_all_gather_args *args, int ranks)
{
    ZO_TRY(check_pointers("all_gather: streams",
                          (const void *const *)args->streams, ranks));
    ZO_TRY(check_size("all_gather", args->piece_bytes, ranks));
    if (args->piece_bytes == 0) {
        return ZO_OK;
    }
    return check_pointers("all_gather: buffers",
                          (const void *const *)args->buffers, ranks);
}
