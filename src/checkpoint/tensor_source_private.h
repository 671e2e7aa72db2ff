/*
 * What a reader fills to become a tensor source.  For the readers only.
 *
 * Layer 6.  A reader's own struct starts with a struct zo_tensor_source.
 */
#ifndef ZO_SRC_CHECKPOINT_TENSOR_SOURCE_PRIVATE_H
#define ZO_SRC_CHECKPOINT_TENSOR_SOURCE_PRIVATE_H

#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/tensor_source.h"

ZO_C_BEGIN

/* All entries are required. */
struct zo_tensor_source_ops {
    /* The range is within the tensor, not empty, and of whole elements. */
    enum zo_status (*read)(const struct zo_tensor_source *source, size_t index,
                           uint64_t offset_bytes, size_t size_bytes,
                           void *buffer);
    /* Frees what the reader added, and the struct itself. */
    void (*close)(struct zo_tensor_source *source);
};

struct zo_tensor_source {
    const struct zo_tensor_source_ops *ops;
    struct zo_disk_file file;
    struct zo_tensor_info *infos; /* owned; names are the reader's */
    size_t count, capacity;
    const struct zo_tensor_info **by_name; /* owned; into infos */
};

/* Adds a tensor; its size is measured already. */
enum zo_status
zo_tensor_source_add(struct zo_tensor_source *source,
                     const struct zo_tensor_info *info) ZO_MUST_CHECK;

/*
 * After the last tensor: makes them findable.
 *
 *   ZO_E_CORRUPT   a name occurs twice
 */
enum zo_status
zo_tensor_source_freeze(struct zo_tensor_source *source) ZO_MUST_CHECK;

/* Closes the file and frees the tables, but not the struct. */
void zo_tensor_source_fini(struct zo_tensor_source *source);

ZO_C_END

#endif
