/*
 * Files for the tests of src/checkpoint, made in a temporary folder: whole,
 * broken and hostile safetensors, zip archives and pickles.
 *
 * A helper that cannot do its work ends the test program: no check after it
 * would mean anything.
 */
#ifndef ZO_TESTS_MODEL_FIXTURES_H
#define ZO_TESTS_MODEL_FIXTURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

/* Makes the temporary folder; it is removed when the program ends. */
void fx_begin(void);

/* A path in the temporary folder.  Borrowed, until the program ends. */
const char *fx_path(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* A path below $ZERO_OFFLOAD_SHARED; NULL when that is not there. */
const char *fx_shared(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

void fx_folder(const char *path);
void fx_write(const char *path, const void *data, size_t size_bytes);
void fx_write_text(const char *path, const char *text);
void fx_link(const char *target, const char *path);

/* A whole file, with a 0 byte after it; freed with free(). */
char *fx_read(const char *path, size_t *size_out);
bool fx_is_there(const char *path);
bool fx_same_files(const char *a, const char *b);

/* Names in a folder that start so; "" counts all. */
size_t fx_count_files(const char *folder, const char *prefix);

/* A safetensors file of a header text and its data. */
void fx_safetensors(const char *path, const char *header, const void *data,
                    size_t data_bytes);

/* Bytes that grow. */
struct fx_bytes {
    unsigned char *data;
    size_t count, capacity;
};
void fx_add(struct fx_bytes *bytes, const void *data, size_t size_bytes);
void fx_add_number(struct fx_bytes *bytes, uint64_t number, size_t size_bytes);
void fx_bytes_fini(struct fx_bytes *bytes);

/* A zip archive under way; all zero is empty. */
struct fx_zip {
    struct fx_bytes file, directory;
    size_t entry_count;
    bool zip64;      /* 64-bit fields everywhere */
    bool has_crcs;   /* or none */
    unsigned method; /* what entries claim: 0 stored, 8 deflate */
    unsigned flags;  /* likewise: 1 encrypted */
};
void fx_zip_add(struct fx_zip *zip, const char *name, const void *data,
                size_t size_bytes);
void fx_zip_write(struct fx_zip *zip, const char *path); /* ends it */

/*
 * Opcodes of a state dict as torch.save() writes it.  One tensor: a view of
 * storage `key`, which has storage_elems elements of a type such as "Half".
 */
struct fx_view {
    const char *name, *type, *key;
    uint64_t storage_elems, first_elem;
    int rank;
    int64_t shape[9], strides[9];
};
void fx_pickle_begin(struct fx_bytes *pickle, bool ordered);
void fx_pickle_text(struct fx_bytes *pickle, const char *text);
void fx_pickle_number(struct fx_bytes *pickle, int64_t number);
void fx_pickle_view(struct fx_bytes *pickle, const struct fx_view *view);
void fx_pickle_end(struct fx_bytes *pickle);

/* A torch .bin of views; storages are raw bytes by key "0", "1", ... */
struct fx_storage {
    const void *data;
    size_t size_bytes;
};
void fx_torch_bin(const char *path, const struct fx_view *views,
                  size_t view_count, const struct fx_storage *storages,
                  size_t storage_count);

/* The latest failure has this status, and its text all of these parts. */
bool fx_refused(enum zo_status got, enum zo_status want, const char *part,
                const char *second);

/* An address space no larger than now plus more_bytes; false in sanitizer
   builds, where there is no such thing. */
bool fx_limit_memory(size_t more_bytes);

/* Runs `body` in a child; true if it returned true and did not crash, or
   take more than 20 seconds. */
bool fx_in_child(bool (*body)(void));

#endif
