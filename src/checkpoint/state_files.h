/*
 * The files of a state that are the model's own: configuration, tokenizer,
 * .py files.  The manifest names each, with XXH3 of its bytes.
 *
 * Layer 6, private to src/checkpoint/state_*.c.
 */
#ifndef ZO_SRC_CHECKPOINT_STATE_FILES_H
#define ZO_SRC_CHECKPOINT_STATE_FILES_H

#include "src/checkpoint/state_manifest.h"

ZO_C_BEGIN

/*
 * Adds the files of a folder to the manifest, by name.  Their names are owned
 * by it until zo_state_files_fini().
 *
 *   ZO_E_USAGE, ZO_E_IO   the folder, or a file in it, cannot be read
 */
enum zo_status
zo_state_files_list(const char *folder,
                    struct zo_state_manifest *manifest) ZO_MUST_CHECK;
void zo_state_files_fini(struct zo_state_manifest *manifest);

/*
 * Those that the manifest names are in the folder as they were.
 *
 *   ZO_E_CORRUPT   one has changed, or is gone; names it
 *   ZO_E_IO        one cannot be read
 */
enum zo_status
zo_state_files_check(const char *folder,
                     const struct zo_state_manifest *manifest) ZO_MUST_CHECK;

ZO_C_END

#endif
