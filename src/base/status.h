/*
 * Status codes, the per-thread error record, and assertions.
 *
 * Layer 0: includes compiler.h only.
 *
 * Every function that can fail returns enum zo_status and nothing else; its
 * results leave through pointers that stay untouched when it fails.
 */
#ifndef ZO_SRC_BASE_STATUS_H
#define ZO_SRC_BASE_STATUS_H

#include <stddef.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

/*
 * The one list of failures: name, value, exit code of zero-offload(1), text.
 * Values are written into run logs and never reused.
 */
/* clang-format off */
#define ZO_STATUS_LIST(X)                                                      \
    X(OK,          0,  0, "success")                                           \
    X(E_ARG,       10, 1, "argument out of its documented range")              \
    X(E_SHAPE,     11, 1, "tensor shape or dtype not accepted")                \
    X(E_USAGE,     12, 2, "wrong usage")                                       \
    X(E_CONFIG,    13, 2, "configuration rejected")                            \
    X(E_NOMEM,     20, 1, "host memory exhausted")                             \
    X(E_DEVMEM,    21, 1, "device memory exhausted")                           \
    X(E_FIT,       22, 3, "does not fit the memory budget")                    \
    X(E_LOCK,      23, 1, "host memory cannot be page-locked")                 \
    X(E_IO,        30, 1, "file input or output failed")                       \
    X(E_DATA,      31, 4, "training data rejected")                            \
    X(E_CORRUPT,   32, 4, "stored data is damaged")                            \
    X(E_BUSY,      33, 1, "queue full; wait, then try again")                  \
    X(E_DEVICE,    40, 1, "device call failed")                                \
    X(E_COMM,      41, 1, "collective failed or was aborted")                  \
    X(E_NUMERIC,   50, 5, "numerical failure")                                 \
    X(E_NOSUPPORT, 60, 2, "not supported by this build or device")             \
    X(E_INJECTED,  70, 1, "fault injected by a test")
/* clang-format on */

enum zo_status {
#define ZO_STATUS_ENUM(name, value, exit_code, text) ZO_##name = (value),
    ZO_STATUS_LIST(ZO_STATUS_ENUM)
#undef ZO_STATUS_ENUM
};

#define ZO_ERR_TEXT_MAX 1024 /* bytes, terminator included */

/* What went wrong, where.  Filled by ZO_FAIL in the thread that failed. */
struct zo_err {
    enum zo_status status;
    const char *file; /* static storage */
    int line;
    int native; /* errno, cudaError_t or ncclResult_t; 0 when none */
    char text[ZO_ERR_TEXT_MAX];
};

/* Text for a code.  Never NULL; static storage; safe in any thread. */
const char *zo_status_text(int status);

/* Exit code of zero-offload(1) for a status; 1 for an unknown one. */
int zo_status_exit_code(int status);

/*
 * The calling thread's latest failure.  Never NULL.  Borrowed: valid until the
 * next ZO_FAIL in this thread; copy it to hand it to another thread.
 */
const struct zo_err *zo_err_last(void);

/* Makes `err`, copied from another thread, this thread's latest failure. */
enum zo_status zo_err_adopt(const struct zo_err *err);

/*
 * Records a failure and returns `status`.  Use the ZO_FAIL macros instead.
 * Control characters and escape sequences in the finished text are replaced
 * by \xNN, so that names out of hostile files cannot drive a terminal; text
 * that does not fit ends in "...".
 */
enum zo_status zo_fail_at(const char *file, int line, enum zo_status status,
                          int native, const char *format, ...)
    ZO_PRINTF(5, 6) ZO_COLD ZO_MUST_CHECK;

/* The first to notice an error names it, once; callers only pass it on. */
#define ZO_FAIL(status, ...) \
    zo_fail_at(__FILE__, __LINE__, (status), 0, __VA_ARGS__)
#define ZO_FAIL_NATIVE(status, native, ...) \
    zo_fail_at(__FILE__, __LINE__, (status), (native), __VA_ARGS__)

/* Returns early on failure.  Only where nothing needs to be released. */
#define ZO_TRY(call)                                  \
    do {                                              \
        const enum zo_status zo_try_status_ = (call); \
        if (zo_try_status_ != ZO_OK) {                \
            return zo_try_status_;                    \
        }                                             \
    } while (0)

/* Jumps to a clean-up label on failure; needs a local `status`. */
#define ZO_TRY_GOTO(label, call) \
    do {                         \
        status = (call);         \
        if (status != ZO_OK) {   \
            goto label;          \
        }                        \
    } while (0)

/* The program's own mistakes.  Never compiled out, never fed by input. */
#define ZO_ASSERT(condition)                                  \
    do {                                                      \
        if (!(condition)) {                                   \
            zo_assert_failed(__FILE__, __LINE__, #condition); \
        }                                                     \
    } while (0)
void zo_assert_failed(const char *file, int line,
                      const char *condition) ZO_NORETURN ZO_COLD;

ZO_C_END

#endif
