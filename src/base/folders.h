/*
 * The folders that a path needs: made with those that they are in, and gone
 * again if nothing was put there.
 *
 * Layer 0.  Life cycle: make or make_parents, once; remove or not; fini,
 * whatever happened.
 */
#ifndef ZO_SRC_BASE_FOLDERS_H
#define ZO_SRC_BASE_FOLDERS_H

#include <stddef.h>

#include "src/base/status.h"

ZO_C_BEGIN

/* All zero is empty. */
struct zo_folders {
    char *path;        /* owned */
    size_t *made;      /* owned: lengths of the parts of it that were made */
    size_t made_count; /* the outermost first */
};

/*
 * Makes a folder, and those that it is in.  One that is there is as good.  With
 * NULL for folders none is remembered.
 *
 *   failure      one cannot be made, or is no folder: the text names it
 *   ZO_E_NOMEM
 */
enum zo_status zo_folders_make(struct zo_folders *folders, const char *path,
                               enum zo_status failure) ZO_MUST_CHECK;

/* Whether they could be made: the first that is there is a folder, and may be
 * written to.  Makes none.  As above. */
enum zo_status zo_folders_check(const char *path,
                                enum zo_status failure) ZO_MUST_CHECK;

/* Only those that `path` is to be in.  As above. */
enum zo_status zo_folders_make_parents(struct zo_folders *folders,
                                       const char *path,
                                       enum zo_status failure) ZO_MUST_CHECK;

/* Removes those that were made and are empty; in the handler of a signal that
 * ends the process too, whatever it has interrupted.  errno and the last
 * failure stay as they are. */
void zo_folders_remove(struct zo_folders *folders);

/* Forgets them. */
void zo_folders_fini(struct zo_folders *folders);

ZO_C_END

#endif
