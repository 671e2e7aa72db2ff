/*
 * A pickle machine for one purpose: the state dict in a file of torch.save().
 *
 * Layer 6.  It calls nothing.  It knows the opcodes that such a pickle is
 * made of, and of Python's objects OrderedDict, the storage types of torch,
 * _rebuild_tensor_v2 and _rebuild_parameter; each makes a plain record here.
 * Whatever else a pickle asks for is refused by name, before anything is
 * done with it.  No recursion; memory grows with what was read, at most some
 * 20 bytes a byte of pickle.
 */
#ifndef ZO_SRC_CHECKPOINT_PICKLE_H
#define ZO_SRC_CHECKPOINT_PICKLE_H

#include "src/checkpoint/tensor_source.h"

ZO_C_BEGIN

#define ZO_PICKLE_BYTES_MAX ((size_t)16 << 20)

/* A typed piece of memory of its own entry in the archive. */
struct zo_pickle_storage {
    const char *key; /* borrowed from the pickle; letters and digits */
    enum zo_element element;
    uint64_t elem_count;
};

/* A view of a storage; checked against the storage's elem_count. */
struct zo_pickle_tensor {
    struct zo_tensor_info info; /* measured; name borrowed from the pickle */
    size_t storage;             /* index into storages */
    uint64_t first_elem;        /* where the view begins */
    uint64_t stride_elems[ZO_TENSOR_RANK_MAX];
};

/* All zero is empty; ended with zo_pickle_fini(). */
struct zo_pickle {
    struct zo_pickle_storage *storages; /* owned */
    size_t storage_count, storage_capacity;
    struct zo_pickle_tensor *tensors; /* owned; in the order of the dict */
    size_t tensor_count, tensor_capacity;
};

/*
 * Reads a flat dict of names and tensors.  text is spoilt: strings in it are
 * moved to make room for their terminators; it must outlive *pickle_out.
 *
 *   ZO_E_CORRUPT     it asks for something else, or is damaged
 *   ZO_E_NOSUPPORT   another protocol than 2
 */
enum zo_status zo_pickle_read(const char *path, char *text, size_t size_bytes,
                              struct zo_pickle *pickle_out) ZO_MUST_CHECK;

void zo_pickle_fini(struct zo_pickle *pickle);

ZO_C_END

#endif
