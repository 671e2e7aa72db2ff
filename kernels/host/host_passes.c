#include "kernels/host_passes.h"

#include <string.h>

#include "kernels/host/host.h"

static const struct {
    const char *name;
    const struct zo_vector_ops *vector; /* NULL: whichever is best */
} sets[ZO_SIMD_COUNT] = {
    [ZO_SIMD_BEST] = {"best", NULL},
    [ZO_SIMD_BASE] = {"base", &zo_vector_base},
    [ZO_SIMD_AVX2] = {"avx2", &zo_vector_avx2},
    [ZO_SIMD_AVX512] = {"avx512", &zo_vector_avx512},
};

/* ---- instruction sets ------------------------------------------------- */

const char *zo_simd_name(enum zo_simd simd)
{
    return sets[simd].name;
}

enum zo_status zo_simd_parse(const char *text, enum zo_simd *simd_out)
{
    for (int i = 0; i < ZO_SIMD_COUNT; i++) {
        if (strcmp(text, sets[i].name) == 0) {
            *simd_out = (enum zo_simd)i;
            return ZO_OK;
        }
    }
    return ZO_FAIL(ZO_E_ARG,
                   "instruction set \"%s\"; want best, base, avx2 or avx512",
                   text);
}

bool zo_simd_usable(enum zo_simd simd)
{
    const struct zo_vector_ops *all[3];
    const int count = zo_vector_usable(all);
    bool is_usable = simd == ZO_SIMD_BEST;

    for (int i = 0; i < count; i++) {
        is_usable |= all[i] == sets[simd].vector;
    }
    return is_usable;
}

enum zo_simd zo_simd_best(void)
{
    enum zo_simd best = ZO_SIMD_AVX512;

    while (!zo_simd_usable(best)) {
        best--;
    }
    return best;
}

static const struct zo_vector_ops *vector_of(enum zo_simd simd)
{
    ZO_ASSERT(zo_simd_usable(simd));
    return simd == ZO_SIMD_BEST ? zo_vector_best() : sets[simd].vector;
}

/* ---- passes ------------------------------------------------------------ */

bool zo_adamw_cpu(const struct zo_adamw_args *args, int64_t first,
                  int64_t count, enum zo_simd simd)
{
    ZO_ASSERT(first >= 0 && count >= 0 && count <= args->count - first);
    return zo_adamw_range(vector_of(simd), args, first, count);
}

void zo_cast_cpu(const struct zo_cast_args *args, int64_t first, int64_t count,
                 enum zo_simd simd)
{
    ZO_ASSERT(first >= 0 && count >= 0 && count <= args->count - first);
    zo_cast_range(vector_of(simd), args, first, count);
}
