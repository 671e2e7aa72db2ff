/*
 * ZO_VECTOR_TARGET("avx2,fma") compiles what follows for more than the
 * build's own processor, and vectorised at -O2 too.  no-trapping-math
 * changes no result, only the order of floating-point flags, at which nothing
 * here looks.
 *
 * ZO_VECTOR_IN_PLACE stands before a loop whose arrays are apart or the very
 * same: an element is read and written at one index only.
 */
#ifndef ZO_KERNELS_HOST_VECTOR_TARGET_H
#define ZO_KERNELS_HOST_VECTOR_TARGET_H

#define ZO_VECTOR_PRAGMA(text) _Pragma(#text)

#ifdef __clang__
#define ZO_VECTOR_OPTIMIZE
#define ZO_VECTOR_TARGET(list)                                           \
    ZO_VECTOR_PRAGMA(clang attribute push(__attribute__((target(list))), \
                                          apply_to = function))
#define ZO_VECTOR_TARGET_END ZO_VECTOR_PRAGMA(clang attribute pop)

#define ZO_VECTOR_IN_PLACE ZO_VECTOR_PRAGMA(clang loop vectorize(assume_safety))
#else
#define ZO_VECTOR_OPTIMIZE                                                  \
    ZO_VECTOR_PRAGMA(GCC optimize("tree-vectorize,vect-cost-model=dynamic," \
                                  "no-trapping-math"))
#define ZO_VECTOR_TARGET(list) ZO_VECTOR_PRAGMA(GCC target(list))
#define ZO_VECTOR_TARGET_END
#define ZO_VECTOR_IN_PLACE ZO_VECTOR_PRAGMA(GCC ivdep)
#endif

/* Inlined whatever its size, so that its constant arguments are constants. */
#define ZO_VECTOR_INLINE inline __attribute__((always_inline))

#if defined(__x86_64__)
#define ZO_VECTOR_HAS_X86 1
#else
#define ZO_VECTOR_HAS_X86 0
#endif

#endif
