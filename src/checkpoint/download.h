/*
 * Recognises what lies under a weight file's name after a download that went
 * wrong, so that the message says what to do instead of "bad magic".
 *
 * Layer 6.
 */
#ifndef ZO_SRC_CHECKPOINT_DOWNLOAD_H
#define ZO_SRC_CHECKPOINT_DOWNLOAD_H

#include "src/checkpoint/disk_file.h"

ZO_C_BEGIN

/*
 * Looks at the first bytes of a file.
 *
 *   ZO_E_CORRUPT   it is empty, a Git LFS pointer, a web page, or nothing but
 *                  zero bytes at its start and end
 */
enum zo_status zo_download_check(const struct zo_disk_file *file) ZO_MUST_CHECK;

ZO_C_END

#endif
