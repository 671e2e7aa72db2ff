/*
 * A growing list of token ids.
 *
 * Layer 6.  All zero is an empty list; one thread at a time.
 */
#ifndef ZO_SRC_DATA_IDS_H
#define ZO_SRC_DATA_IDS_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

struct zo_ids {
    int32_t *items; /* owned */
    size_t count, capacity;
};

/* Appends count ids; on failure the list is as before. */
enum zo_status zo_ids_append(struct zo_ids *ids, const int32_t *items,
                             size_t count) ZO_MUST_CHECK;
enum zo_status zo_ids_push(struct zo_ids *ids, int32_t id) ZO_MUST_CHECK;

/* Frees the items; the list is empty afterwards.  NULL is allowed. */
void zo_ids_fini(struct zo_ids *ids);

ZO_C_END

#endif
