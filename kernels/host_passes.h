/*
 * Passes over host memory that run in the calling thread: what a CPU worker
 * does for states that live on the host.
 *
 * Layer 3: includes src/base.  Nothing is queued, allocated or locked; a call
 * returns when it is done.  Any number of threads may work on different
 * ranges of the same arrays at once.  Every instruction set gives the same
 * bits, and so does every division into ranges.
 */
#ifndef ZO_KERNELS_HOST_PASSES_H
#define ZO_KERNELS_HOST_PASSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/status.h"

ZO_C_BEGIN

/* Instruction sets; ZO_SIMD_BEST is the widest that this processor runs. */
enum zo_simd { ZO_SIMD_BEST, ZO_SIMD_BASE, ZO_SIMD_AVX2, ZO_SIMD_AVX512 };
#define ZO_SIMD_COUNT 4

/* "best", "base", "avx2", "avx512". */
const char *zo_simd_name(enum zo_simd simd);

/*
 * From a name to its value.
 *
 *   ZO_E_ARG   no such name; the text lists them
 */
enum zo_status zo_simd_parse(const char *text,
                             enum zo_simd *simd_out) ZO_MUST_CHECK;

/* Whether this processor runs it; best and base always do. */
bool zo_simd_usable(enum zo_simd simd);

/* What ZO_SIMD_BEST stands for here. */
enum zo_simd zo_simd_best(void);

/*
 * AdamW, as zo_adamw_args says, of elements first .. first + count - 1 of its
 * arrays, which lie within args->count.  args has passed zo_adamw_check() and
 * simd is usable.  Returns true when a new master or its weight is not
 * finite; args->bad is not looked at, since other threads share it.
 *
 * Neighbouring ranges should meet at multiples of 32 elements from the
 * arrays' start, or two threads write to one line of the cache.
 */
bool zo_adamw_cpu(const struct zo_adamw_args *args, int64_t first,
                  int64_t count, enum zo_simd simd);

/* zo_cast_args for elements first .. first + count - 1, within args->count. */
void zo_cast_cpu(const struct zo_cast_args *args, int64_t first, int64_t count,
                 enum zo_simd simd);

ZO_C_END

#endif
