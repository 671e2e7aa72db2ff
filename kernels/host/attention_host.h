/*
 * What the two directions of attention share: blocks of ATTENTION_BLOCK
 * tokens, counted through the whole micro batch, and the rows in them.
 *
 * Layer 3, host backend only.
 */
#ifndef ZO_KERNELS_HOST_ATTENTION_HOST_H
#define ZO_KERNELS_HOST_ATTENTION_HOST_H

#include <stdint.h>

#include "kernels/host/host.h"

ZO_C_BEGIN

enum {
    ATTENTION_BLOCK = 64,
    ATTENTION_HEAD_MAX = 1024, /* of the head width: check.c refuses more */
    /* floats of a (block, head width) and of a (block, block) array */
    ATTENTION_ROWS = ATTENTION_BLOCK * ATTENTION_HEAD_MAX,
    ATTENTION_SQUARE = ATTENTION_BLOCK * ATTENTION_BLOCK,
};

/* Tokens start .. end - 1, of one row or (row < 0) of none. */
struct zo_segment {
    int64_t row, start, end;
};

/*
 * The next segment of the tokens from `start` on, not beyond `end`; where
 * start < end it is not empty.
 */
struct zo_segment zo_next_segment(const int32_t *row_start, int64_t rows,
                                  int64_t start, int64_t end);

/* A (count, width) array of floats with rows ld apart. */
struct zo_rows {
    const float *at;
    int64_t ld;
};

/* Rows start .. start + count - 1 of a typed array with rows `stride` apart,
 * from column 0 of `array` on: where they are, or in `scratch`. */
struct zo_rows zo_load_rows(const struct zo_vector_ops *vector, float *scratch,
                            const void *array, enum zo_dtype type,
                            int64_t stride, int64_t start, int64_t count,
                            int64_t width);

/* The reverse, out of a dense `rows` (count, width). */
void zo_store_rows(const struct zo_vector_ops *vector, void *array,
                   enum zo_dtype type, int64_t stride, int64_t start,
                   const float *rows, int64_t count, int64_t width);

/* The same with zeros. */
void zo_clear_rows(void *array, enum zo_dtype type, int64_t stride,
                   int64_t start, int64_t count, int64_t width);

ZO_C_END

#endif
