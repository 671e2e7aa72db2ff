/*
 * The speed of a disk through the NVMe tier's store, and through fio.  Row 8.
 */
#ifndef ZO_BENCH_NVME_RATE_H
#define ZO_BENCH_NVME_RATE_H

#include "offload/nvme.h"

ZO_C_BEGIN

enum zo_bench_nvme_kind {
    ZO_BENCH_NVME_WRITE,
    ZO_BENCH_NVME_READ,
    ZO_BENCH_NVME_MIXED, /* as AdamW's: what is read is written again */
    ZO_BENCH_NVME_KINDS
};

struct zo_bench_nvme_rate { /* bytes a second */
    double burst;           /* of the first eighth of the bytes */
    double sustained;       /* of the last half */
    double whole;
};

struct zo_bench_nvme; /* opaque: a store, and memory for requests */

/*
 * Opens a store, options->bytes rounded up to whole requests, and memory for
 * what is under way.  The caller ends *bench_out with zo_bench_nvme_close().
 * Statuses: those of zo_nvme_open().
 */
enum zo_status
zo_bench_nvme_open(const struct zo_nvme_options *options,
                   struct zo_bench_nvme **bench_out) ZO_MUST_CHECK;
/* NULL is allowed. */
void zo_bench_nvme_close(struct zo_bench_nvme *bench);

/* Borrowed until close. */
const struct zo_nvme *zo_bench_nvme_store(const struct zo_bench_nvme *bench);

/*
 * Moves as many bytes as the file has: first writes, then the others.
 *
 *   ZO_E_IO, ZO_E_CORRUPT   as of the store
 */
enum zo_status
zo_bench_nvme_run(struct zo_bench_nvme *bench, enum zo_bench_nvme_kind kind,
                  struct zo_bench_nvme_rate *rate_out) ZO_MUST_CHECK;

ZO_C_END

#endif
