/*
 * Named tensors in one file, whatever its format.
 *
 * Layer 6.  A reader (safetensors.h, torch_bin.h) opens a file, checks all it
 * claims before any of it is believed, and hands out a tensor source.  The
 * source owns the file and every name; it never holds tensor data.
 *
 * Threads: a source does not change after open; reads of one source may run
 * in several threads at once.
 */
#ifndef ZO_SRC_CHECKPOINT_TENSOR_SOURCE_H
#define ZO_SRC_CHECKPOINT_TENSOR_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/dtype.h"
#include "src/base/status.h"

ZO_C_BEGIN

/* Number types that files hold: name in safetensors, bits an element. */
/* clang-format off */
#define ZO_ELEMENT_LIST(X)                                                     \
    X(BOOL, 8) X(F4, 4) X(F6_E2M3, 6) X(F6_E3M2, 6)                            \
    X(U8, 8) X(I8, 8) X(F8_E5M2, 8) X(F8_E4M3, 8) X(F8_E8M0, 8)                \
    X(F8_E4M3FNUZ, 8) X(F8_E5M2FNUZ, 8)                                        \
    X(I16, 16) X(U16, 16) X(F16, 16) X(BF16, 16)                               \
    X(I32, 32) X(U32, 32) X(F32, 32)                                           \
    X(C64, 64) X(F64, 64) X(I64, 64) X(U64, 64)
/* clang-format on */

enum zo_element {
#define ZO_ELEMENT_ENUM(name, bits) ZO_ELEMENT_##name,
    ZO_ELEMENT_LIST(ZO_ELEMENT_ENUM)
#undef ZO_ELEMENT_ENUM
};

/* "F32", "BF16", ...; static storage. */
const char *zo_element_name(enum zo_element element);
unsigned zo_element_bits(enum zo_element element);
bool zo_element_from_name(const char *name, enum zo_element *element_out);

/* True for F32, BF16 and F16, the only ones that can be trained. */
bool zo_element_dtype(enum zo_element element, enum zo_dtype *dtype_out);
enum zo_element zo_element_of_dtype(enum zo_dtype dtype);

#define ZO_TENSOR_RANK_MAX 8

/* What is known of a tensor without its data. */
struct zo_tensor_info {
    const char *name; /* borrowed from its source; any UTF-8 but NUL */
    enum zo_element element;
    int rank;                          /* 0 is a scalar */
    int64_t shape[ZO_TENSOR_RANK_MAX]; /* outermost first; 0 is allowed */
    uint64_t elem_count;               /* product of shape */
    uint64_t size_bytes;
};

/*
 * Fills elem_count and size_bytes from element, rank and shape.  False when
 * the rank or a dimension is out of range, a product does not fit, or the
 * bits do not fill whole bytes; then both are untouched.
 */
bool zo_tensor_info_measure(struct zo_tensor_info *info);

/* "[4608, 4096]" into target (cut to fit); returns target. */
const char *zo_shape_text(char *target, size_t target_bytes,
                          const int64_t *shape, int rank);
#define ZO_SHAPE_TEXT_MAX 200

/* Values of a tensor that a cast or a run would stumble over. */
struct zo_value_counts {
    uint64_t non_finite; /* NaN or infinite in the file */
    uint64_t overflowed; /* finite in the file, infinite after the cast */
};

struct zo_tensor_source; /* opaque */

/* Borrowed, as the file was named to open(). */
const char *zo_tensor_source_path(const struct zo_tensor_source *source);

/* Tensors in the order of the file's own list. */
size_t zo_tensor_source_count(const struct zo_tensor_source *source);
const struct zo_tensor_info *
zo_tensor_source_info(const struct zo_tensor_source *source, size_t index);

bool zo_tensor_source_find(const struct zo_tensor_source *source,
                           const char *name, size_t *index_out);

/*
 * Reads bytes [offset_bytes, offset_bytes + size_bytes) of a tensor, in
 * row-major order whatever the file's, into buffer.  Both are multiples of
 * the element's size.  Blocks.
 *
 *   ZO_E_ARG       the range is not within the tensor
 *   ZO_E_IO        the file cannot be read, or became shorter since open
 */
enum zo_status zo_tensor_source_read(const struct zo_tensor_source *source,
                                     size_t index, uint64_t offset_bytes,
                                     size_t size_bytes,
                                     void *buffer) ZO_MUST_CHECK;

/*
 * Reads elements [first_elem, first_elem + elem_count) as dtype, rounded to
 * nearest even.  counts_inout (may be NULL) grows by what was met.
 *
 *   ZO_E_SHAPE     the tensor is not F32, BF16 or F16
 *   and those of zo_tensor_source_read()
 */
enum zo_status
zo_tensor_source_read_as(const struct zo_tensor_source *source, size_t index,
                         uint64_t first_elem, uint64_t elem_count,
                         enum zo_dtype dtype, void *buffer,
                         struct zo_value_counts *counts_inout) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_tensor_source_close(struct zo_tensor_source *source);

ZO_C_END

#endif
