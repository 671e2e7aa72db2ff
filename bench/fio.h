/*
 * fio(1), for comparison: the same bytes, blocks, depth and mix.  Row 8.
 */
#ifndef ZO_BENCH_FIO_H
#define ZO_BENCH_FIO_H

#include "bench/nvme_rate.h"

ZO_C_BEGIN

struct zo_bench_fio; /* opaque: a file without a name */

/*
 * A file as long as the store's in the directory, reserved.  The caller ends
 * *fio_out with zo_bench_fio_close().
 *
 *   ZO_E_NOSUPPORT   there is no fio on the PATH, or it does not run
 *   ZO_E_IO          no such file can be made, or there is no room for it
 */
enum zo_status zo_bench_fio_open(const char *directory,
                                 const struct zo_nvme_shape *shape,
                                 struct zo_bench_fio **fio_out) ZO_MUST_CHECK;
/* NULL is allowed. */
void zo_bench_fio_close(struct zo_bench_fio *fio);

/*
 * Bytes a second of a run: first that of writes, then the others.
 *
 *   ZO_E_NOSUPPORT   fio fails, or what it says is not understood
 */
enum zo_status zo_bench_fio_run(struct zo_bench_fio *fio,
                                enum zo_bench_nvme_kind kind,
                                double *bytes_per_second_out) ZO_MUST_CHECK;

ZO_C_END

#endif
