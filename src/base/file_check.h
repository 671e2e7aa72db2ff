/*
 * Whether a file that a run is to write may be written: told before anything is
 * made or changed.
 *
 * Layer 0.
 */
#ifndef ZO_SRC_BASE_FILE_CHECK_H
#define ZO_SRC_BASE_FILE_CHECK_H

#include <stdbool.h>

#include "src/base/status.h"

ZO_C_BEGIN

struct zo_file_check {
    const char *what;  /* it is to be, in texts: "metrics file" */
    const char *start; /* what each that is there begins with, unless empty */
    bool is_regular;   /* it must be; else a FIFO or a device will do */
};

/*
 * A file that is there is one of ours and may be written; else the folder that
 * it is to be in may be.  A FIFO is not waited for.
 *
 *   ZO_E_USAGE   neither; the text names the file
 *   ZO_E_NOMEM
 */
enum zo_status zo_file_check(const char *path,
                             const struct zo_file_check *check) ZO_MUST_CHECK;

ZO_C_END

#endif
