/*
 * The states in a run's folder: which there are, removal, leftovers.
 *
 * Layer 6.  A state may be a link: it is listed whatever it leads to, and where
 * a state is removed, the link alone goes.
 */
#ifndef ZO_SRC_CHECKPOINT_STATE_FOLDER_H
#define ZO_SRC_CHECKPOINT_STATE_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

/* "folder/state-00000500"; owned, ended with zo_free(). */
enum zo_status zo_state_folder_path(const char *folder, int64_t step,
                                    char **path_out) ZO_MUST_CHECK;

/* Likewise ".state-00000500.SUFFIX": on its way in or out. */
enum zo_status zo_state_folder_hidden(const char *folder, int64_t step,
                                      const char *suffix,
                                      char **path_out) ZO_MUST_CHECK;

/*
 * The steps of the states, newest first; *steps_out is owned and ended with
 * zo_free(), NULL when there are none.  A folder that is not there holds none.
 */
enum zo_status zo_state_folder_list(const char *folder, int64_t **steps_out,
                                    size_t *count_out) ZO_MUST_CHECK;

/* Removes a state, or a link to one, and leaves what is neither; killed half
 * way, it has lost its name already. */
enum zo_status zo_state_folder_remove(const char *folder,
                                      int64_t step) ZO_MUST_CHECK;

/*
 * Removes what killed runs have left: states half written, half removed, or
 * half replaced (which get their name back).
 */
enum zo_status zo_state_folder_clean(const char *folder) ZO_MUST_CHECK;

/* Makes folder/latest lead to a state. */
enum zo_status zo_state_folder_point(const char *folder,
                                     int64_t step) ZO_MUST_CHECK;

ZO_C_END

#endif
