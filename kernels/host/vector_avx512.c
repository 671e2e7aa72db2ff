/* The inner loops for AVX512 and FMA, where the build knows them. */
#include "kernels/host/vector_target.h"

ZO_VECTOR_OPTIMIZE

#if ZO_VECTOR_HAS_X86
ZO_VECTOR_TARGET("avx512f,avx512bw,avx512dq,avx512vl,fma")
#endif

#define ZO_VECTOR_TABLE zo_vector_avx512
#define ZO_VECTOR_NAME  "avx512"
#include "kernels/host/vector_body.h"

#if ZO_VECTOR_HAS_X86
ZO_VECTOR_TARGET_END
#endif
