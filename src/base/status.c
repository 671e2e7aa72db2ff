#include "src/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/text.h"

static _Thread_local struct zo_err err_last = {
    .status = ZO_OK,
    .file = "",
};

const char *zo_status_text(int status)
{
    switch (status) {
#define ZO_STATUS_CASE(name, value, exit_code, text) \
    case (value):                                    \
        return text;
        ZO_STATUS_LIST(ZO_STATUS_CASE)
#undef ZO_STATUS_CASE
    default:
        return "unknown status";
    }
}

int zo_status_exit_code(int status)
{
    switch (status) {
#define ZO_STATUS_CASE(name, value, exit_code, text) \
    case (value):                                    \
        return exit_code;
        ZO_STATUS_LIST(ZO_STATUS_CASE)
#undef ZO_STATUS_CASE
    default:
        return 1;
    }
}

const struct zo_err *zo_err_last(void)
{
    return &err_last;
}

enum zo_status zo_err_adopt(const struct zo_err *err)
{
    if (err != &err_last) {
        err_last = *err;
    }
    return err_last.status;
}

enum zo_status zo_fail_at(const char *file, int line, enum zo_status status,
                          int native, const char *format, ...)
{
    /* Twice the record, so that a long text is seen to be cut. */
    char raw[2 * ZO_ERR_TEXT_MAX];
    va_list args;

    /* An argument may be the record itself: format it before writing it. */
    va_start(args, format);
    (void)vsnprintf(raw, sizeof(raw), format, args);
    va_end(args);

    err_last.status = status;
    err_last.file = file;
    err_last.line = line;
    err_last.native = native;
    zo_text_escape(err_last.text, sizeof(err_last.text), raw, strlen(raw));
    return status;
}

void zo_assert_failed(const char *file, int line, const char *condition)
{
    (void)fprintf(stderr,
                  "zero-offload: %s:%d: internal error: not so: %s\n"
                  "This is a bug in zero-offload; please report it.\n",
                  file, line, condition);
    abort();
}
