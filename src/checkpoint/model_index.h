/*
 * model.safetensors.index.json and pytorch_model.bin.index.json: which
 * tensor is in which shard.
 *
 * Layer 6.  Names of shards are names in the same folder: one with "/" or
 * ".." is refused, whatever it leads to.
 */
#ifndef ZO_SRC_CHECKPOINT_MODEL_INDEX_H
#define ZO_SRC_CHECKPOINT_MODEL_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

#define ZO_MODEL_INDEX_BYTES_MAX ((size_t)100000000)

/* Each is open while reading; the largest published models have some 200. */
#define ZO_MODEL_SHARDS_MAX 1000

struct zo_model_index_entry {
    const char *name; /* of the tensor; borrowed from the index */
    const char *file; /* likewise; shards[shard] */
    size_t shard;
};

/* All zero is empty; ended with zo_model_index_fini(). */
struct zo_model_index {
    struct zo_model_index_entry *entries; /* owned; sorted by name */
    size_t count, capacity;
    const char **shards; /* owned; names borrowed from the text */
    size_t shard_count, shard_capacity;
    char *text; /* owned */
    uint64_t total_bytes;
    bool has_total; /* it says "total_size", as a plain integer */
};

/*
 *   ZO_E_USAGE     the file cannot be opened
 *   ZO_E_CORRUPT   it is no index, or names what it may not; the text says
 *                  which tensor or byte
 */
enum zo_status
zo_model_index_read(const char *path,
                    struct zo_model_index *index_out) ZO_MUST_CHECK;

void zo_model_index_fini(struct zo_model_index *index);

/* NULL if the index does not name the tensor. */
const struct zo_model_index_entry *
zo_model_index_find(const struct zo_model_index *index, const char *name);

ZO_C_END

#endif
