#include "src/data/ids.h"

#include <string.h>

#include "src/base/memory.h"

enum zo_status zo_ids_append(struct zo_ids *ids, const int32_t *items,
                             size_t count)
{
    if (count > ids->capacity - ids->count) {
        size_t capacity = ids->capacity > 0 ? ids->capacity : 64;

        while (capacity - ids->count < count) {
            if (capacity > SIZE_MAX / 2) {
                return ZO_FAIL(ZO_E_NOMEM, "no memory for %zu token ids",
                               count);
            }
            capacity *= 2;
        }
        ZO_TRY(zo_realloc(&ids->items, capacity, sizeof(ids->items[0]),
                          "token ids"));
        ids->capacity = capacity;
    }
    if (count > 0) {
        memcpy(ids->items + ids->count, items, count * sizeof(items[0]));
        ids->count += count;
    }
    return ZO_OK;
}

enum zo_status zo_ids_push(struct zo_ids *ids, int32_t id)
{
    return zo_ids_append(ids, &id, 1);
}

void zo_ids_fini(struct zo_ids *ids)
{
    if (ids == NULL) {
        return;
    }
    zo_free(ids->items);
    *ids = (struct zo_ids){0};
}
