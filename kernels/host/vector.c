#include "kernels/host/vector.h"

#include "kernels/host/vector_target.h"

int zo_vector_usable(const struct zo_vector_ops **all)
{
    int count = 0;

    all[count++] = &zo_vector_base;
#if ZO_VECTOR_HAS_X86
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        all[count++] = &zo_vector_avx2;
        if (__builtin_cpu_supports("avx512f") &&
            __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl")) {
            all[count++] = &zo_vector_avx512;
        }
    }
#endif
    return count;
}

const struct zo_vector_ops *zo_vector_best(void)
{
    const struct zo_vector_ops *all[3];

    return all[zo_vector_usable(all) - 1];
}
