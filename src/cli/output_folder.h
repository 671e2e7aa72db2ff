/*
 * The folders that an --output needs: made with those that they are in, and
 * gone again when a command ends before it wrote anything there.
 *
 * Row 8.  Life cycle: make or make_parents, then end, whatever happened.
 */
#ifndef ZO_SRC_CLI_OUTPUT_FOLDER_H
#define ZO_SRC_CLI_OUTPUT_FOLDER_H

#include "src/base/folders.h"

ZO_C_BEGIN

/*
 * Makes the folder that --output names, and those that it is in.  One that is
 * there is as good.
 *
 *   ZO_E_USAGE   it cannot be made, is no folder, or may not be written to
 *   ZO_E_NOMEM
 */
enum zo_status zo_output_folder_make(struct zo_folders *folders,
                                     const char *path) ZO_MUST_CHECK;

/* Only those that `path` is to be in.  As above. */
enum zo_status zo_output_folder_make_parents(struct zo_folders *folders,
                                             const char *path) ZO_MUST_CHECK;

/* Removes those that were made and are empty.  errno and the last failure
 * stay as they are. */
void zo_output_folder_end(struct zo_folders *folders);

ZO_C_END

#endif
