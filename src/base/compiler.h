/* Compiler spellings.  Layer 0. */
#ifndef ZO_SRC_BASE_COMPILER_H
#define ZO_SRC_BASE_COMPILER_H

#ifdef __cplusplus /* .cu files and the SentencePiece shim; edges are C */
#define ZO_C_BEGIN extern "C" {
#define ZO_C_END   }
#else
#define ZO_C_BEGIN
#define ZO_C_END
#endif

#define ZO_MUST_CHECK     __attribute__((warn_unused_result))
#define ZO_COLD           __attribute__((cold))
#define ZO_NORETURN       __attribute__((noreturn))
#define ZO_PRINTF(fmt, n) __attribute__((format(printf, fmt, n)))

#define ZO_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
