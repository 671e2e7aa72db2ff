#include "src/checkpoint/tensor_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/checkpoint/tensor_source_private.h"

/* Files are little-endian, and their bytes are used as they are. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "byte order");

#define PIECE_ELEMS 8192 /* converted at a time, on the stack */

static const struct {
    const char *name;
    unsigned bits;
} elements[] = {
#define ELEMENT_ROW(name, bits) {#name, bits},
    ZO_ELEMENT_LIST(ELEMENT_ROW)
#undef ELEMENT_ROW
};

const char *zo_element_name(enum zo_element element)
{
    return elements[element].name;
}

unsigned zo_element_bits(enum zo_element element)
{
    return elements[element].bits;
}

bool zo_element_from_name(const char *name, enum zo_element *element_out)
{
    for (size_t i = 0; i < ZO_COUNT(elements); i++) {
        if (strcmp(name, elements[i].name) == 0) {
            *element_out = (enum zo_element)i;
            return true;
        }
    }
    return false;
}

bool zo_element_dtype(enum zo_element element, enum zo_dtype *dtype_out)
{
    if (element == ZO_ELEMENT_F32) {
        *dtype_out = ZO_F32;
    } else if (element == ZO_ELEMENT_BF16) {
        *dtype_out = ZO_BF16;
    } else if (element == ZO_ELEMENT_F16) {
        *dtype_out = ZO_F16;
    } else {
        return false;
    }
    return true;
}

enum zo_element zo_element_of_dtype(enum zo_dtype dtype)
{
    return dtype == ZO_F32    ? ZO_ELEMENT_F32
           : dtype == ZO_BF16 ? ZO_ELEMENT_BF16
                              : ZO_ELEMENT_F16;
}

bool zo_tensor_info_measure(struct zo_tensor_info *info)
{
    uint64_t elem_count = 1, bits;
    bool is_empty = false;

    if (info->rank < 0 || info->rank > ZO_TENSOR_RANK_MAX) {
        return false;
    }
    for (int i = 0; i < info->rank; i++) {
        if (info->shape[i] < 0) {
            return false;
        }
        is_empty = is_empty || info->shape[i] == 0;
    }
    /* A 0 anywhere makes it empty, however large the others are. */
    for (int i = 0; i < info->rank && !is_empty; i++) {
        if (!zo_mul_u64(elem_count, (uint64_t)info->shape[i], &elem_count)) {
            return false;
        }
    }
    elem_count = is_empty ? 0 : elem_count;
    if (elem_count > INT64_MAX ||
        !zo_mul_u64(elem_count, zo_element_bits(info->element), &bits) ||
        bits % 8 != 0) {
        return false;
    }
    info->elem_count = elem_count;
    info->size_bytes = bits / 8;
    return true;
}

const char *zo_shape_text(char *target, size_t target_bytes,
                          const int64_t *shape, int rank)
{
    size_t at = 0;

    (void)snprintf(target, target_bytes, "[");
    for (int i = 0; i < rank; i++) {
        at = strlen(target);
        (void)snprintf(target + at, target_bytes - at, "%s%lld",
                       i > 0 ? ", " : "", (long long)shape[i]);
    }
    at = strlen(target);
    (void)snprintf(target + at, target_bytes - at, "]");
    return target;
}

enum zo_status zo_tensor_source_add(struct zo_tensor_source *source,
                                    const struct zo_tensor_info *info)
{
    ZO_TRY(zo_grow(&source->infos, source->count, &source->capacity,
                   sizeof(source->infos[0]), "a table of tensors"));
    source->infos[source->count++] = *info;
    return ZO_OK;
}

static int compare_names(const void *a, const void *b)
{
    const struct zo_tensor_info *const *left = a, *const *right = b;

    return strcmp((*left)->name, (*right)->name);
}

enum zo_status zo_tensor_source_freeze(struct zo_tensor_source *source)
{
    ZO_TRY(zo_alloc(source->count, sizeof(source->by_name[0]),
                    "a table of tensor names", &source->by_name));
    for (size_t i = 0; i < source->count; i++) {
        source->by_name[i] = &source->infos[i];
    }
    qsort(source->by_name, source->count, sizeof(source->by_name[0]),
          compare_names);
    for (size_t i = 1; i < source->count; i++) {
        const char *name = source->by_name[i]->name;

        if (strcmp(source->by_name[i - 1]->name, name) == 0) {
            return ZO_FAIL(ZO_E_CORRUPT, "%s: tensor \"%.200s\" occurs twice",
                           source->file.path, name);
        }
    }
    return ZO_OK;
}

void zo_tensor_source_fini(struct zo_tensor_source *source)
{
    zo_disk_close(&source->file);
    zo_free(source->by_name);
    zo_free(source->infos);
}

const char *zo_tensor_source_path(const struct zo_tensor_source *source)
{
    return source->file.path;
}

size_t zo_tensor_source_count(const struct zo_tensor_source *source)
{
    return source->count;
}

const struct zo_tensor_info *
zo_tensor_source_info(const struct zo_tensor_source *source, size_t index)
{
    ZO_ASSERT(index < source->count);
    return &source->infos[index];
}

bool zo_tensor_source_find(const struct zo_tensor_source *source,
                           const char *name, size_t *index_out)
{
    const struct zo_tensor_info wanted = {.name = name}, *key = &wanted;
    const struct zo_tensor_info **found =
        bsearch(&key, source->by_name, source->count,
                sizeof(source->by_name[0]), compare_names);

    if (found == NULL) {
        return false;
    }
    *index_out = (size_t)(*found - source->infos);
    return true;
}

enum zo_status zo_tensor_source_read(const struct zo_tensor_source *source,
                                     size_t index, uint64_t offset_bytes,
                                     size_t size_bytes, void *buffer)
{
    const struct zo_tensor_info *info = zo_tensor_source_info(source, index);
    const unsigned bits = zo_element_bits(info->element);
    const unsigned step_bytes = bits > 8 ? bits / 8 : 1;

    if (offset_bytes > info->size_bytes ||
        size_bytes > info->size_bytes - offset_bytes ||
        offset_bytes % step_bytes != 0 || size_bytes % step_bytes != 0) {
        return ZO_FAIL(ZO_E_ARG,
                       "%s: tensor \"%.200s\": bytes %llu + %zu of %llu, "
                       "elements of %u bits",
                       source->file.path, info->name,
                       (unsigned long long)offset_bytes, size_bytes,
                       (unsigned long long)info->size_bytes, bits);
    }
    if (size_bytes == 0) {
        return ZO_OK;
    }
    return source->ops->read(source, index, offset_bytes, size_bytes, buffer);
}

/* Separate loops for each width, so that the compiler can vectorise. */
static uint64_t count_non_finite(const void *array, enum zo_dtype dtype,
                                 size_t count)
{
    uint64_t found = 0;

    if (dtype == ZO_F32) {
        const uint32_t *bits = array;

        for (size_t i = 0; i < count; i++) {
            found += (bits[i] & 0x7f800000u) == 0x7f800000u;
        }
    } else {
        const uint16_t *bits = array;
        const uint16_t mask = dtype == ZO_BF16 ? 0x7f80 : 0x7c00;

        for (size_t i = 0; i < count; i++) {
            found += (bits[i] & mask) == mask;
        }
    }
    return found;
}

static void convert(const void *source, enum zo_dtype from, void *target,
                    enum zo_dtype to, size_t count)
{
    if (from == ZO_BF16 && to == ZO_F32) {
        const uint16_t *bits = source;
        float *values = target;

        for (size_t i = 0; i < count; i++) {
            values[i] = zo_bf16_to_f32(bits[i]);
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        zo_store(target, to, (int64_t)i, zo_load(source, from, (int64_t)i));
    }
}

static enum zo_status check_elem_range(const struct zo_tensor_source *source,
                                       const struct zo_tensor_info *info,
                                       uint64_t first_elem, uint64_t elem_count)
{
    if (first_elem > info->elem_count ||
        elem_count > info->elem_count - first_elem) {
        return ZO_FAIL(
            ZO_E_ARG, "%s: tensor \"%.200s\": elements %llu + %llu of %llu",
            source->file.path, info->name, (unsigned long long)first_elem,
            (unsigned long long)elem_count,
            (unsigned long long)info->elem_count);
    }
    return ZO_OK;
}

/*
 * Reads elements of a narrower type with one call to the disk: into the end
 * of the buffer, from where they move forward as they grow.  An element's new
 * place never reaches one that has yet to be read.
 */
static enum zo_status read_widened(const struct zo_tensor_source *source,
                                   size_t index, uint64_t first_elem,
                                   size_t elem_count, enum zo_dtype stored,
                                   float *target,
                                   struct zo_value_counts *counts)
{
    const size_t stored_bytes = zo_dtype_bytes(stored);
    char *raw =
        (char *)target + elem_count * (sizeof(target[0]) - stored_bytes);
    uint16_t piece[PIECE_ELEMS];

    ZO_TRY(zo_tensor_source_read(source, index, first_elem * stored_bytes,
                                 elem_count * stored_bytes, raw));
    for (size_t done = 0; done < elem_count;) {
        const size_t rest = elem_count - done;
        const size_t now = rest < PIECE_ELEMS ? rest : PIECE_ELEMS;

        memcpy(piece, raw + done * stored_bytes, now * stored_bytes);
        counts->non_finite += count_non_finite(piece, stored, now);
        convert(piece, stored, target + done, ZO_F32, now);
        done += now;
    }
    return ZO_OK;
}

/* Reads elements of another type a piece at a time. */
static enum zo_status read_converted(const struct zo_tensor_source *source,
                                     size_t index, uint64_t first_elem,
                                     size_t elem_count, enum zo_dtype stored,
                                     enum zo_dtype dtype, char *buffer,
                                     struct zo_value_counts *counts)
{
    const size_t stored_bytes = zo_dtype_bytes(stored);
    float piece[PIECE_ELEMS];

    for (size_t done = 0; done < elem_count;) {
        const size_t rest = elem_count - done;
        const size_t now = rest < PIECE_ELEMS ? rest : PIECE_ELEMS;
        char *target = buffer + done * zo_dtype_bytes(dtype);
        uint64_t before;

        ZO_TRY(zo_tensor_source_read(source, index,
                                     (first_elem + done) * stored_bytes,
                                     now * stored_bytes, piece));
        before = count_non_finite(piece, stored, now);
        convert(piece, stored, target, dtype, now);
        counts->non_finite += before;
        counts->overflowed += count_non_finite(target, dtype, now) - before;
        done += now;
    }
    return ZO_OK;
}

enum zo_status zo_tensor_source_read_as(const struct zo_tensor_source *source,
                                        size_t index, uint64_t first_elem,
                                        uint64_t elem_count,
                                        enum zo_dtype dtype, void *buffer,
                                        struct zo_value_counts *counts_inout)
{
    const struct zo_tensor_info *info = zo_tensor_source_info(source, index);
    struct zo_value_counts counts = {0};
    enum zo_dtype stored = ZO_F32;
    const size_t elems = (size_t)elem_count;
    size_t stored_bytes;

    if (!zo_element_dtype(info->element, &stored)) {
        return ZO_FAIL(
            ZO_E_SHAPE, "%s: tensor \"%.200s\" is %s; want F32, BF16 or F16",
            source->file.path, info->name, zo_element_name(info->element));
    }
    ZO_TRY(check_elem_range(source, info, first_elem, elem_count));
    stored_bytes = zo_dtype_bytes(stored);
    if (stored == dtype) {
        ZO_TRY(zo_tensor_source_read(source, index, first_elem * stored_bytes,
                                     elems * stored_bytes, buffer));
        counts.non_finite = count_non_finite(buffer, dtype, elems);
    } else if (dtype == ZO_F32) {
        ZO_TRY(read_widened(source, index, first_elem, elems, stored, buffer,
                            &counts));
    } else {
        ZO_TRY(read_converted(source, index, first_elem, elems, stored, dtype,
                              buffer, &counts));
    }
    if (counts_inout != NULL) {
        counts_inout->non_finite += counts.non_finite;
        counts_inout->overflowed += counts.overflowed;
    }
    return ZO_OK;
}

void zo_tensor_source_close(struct zo_tensor_source *source)
{
    if (source != NULL) {
        source->ops->close(source);
    }
}
