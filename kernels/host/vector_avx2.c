/* The inner loops for AVX2 and FMA, where the build knows them. */
#include "kernels/host/vector_target.h"

ZO_VECTOR_OPTIMIZE

#if ZO_VECTOR_HAS_X86
ZO_VECTOR_TARGET("avx2,fma")
#endif

#define ZO_VECTOR_TABLE zo_vector_avx2
#define ZO_VECTOR_NAME  "avx2"
#include "kernels/host/vector_body.h"

#if ZO_VECTOR_HAS_X86
ZO_VECTOR_TARGET_END
#endif
