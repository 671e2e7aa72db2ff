#include "src/checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/checkpoint/download.h"
#include "src/checkpoint/json_scan.h"
#include "src/checkpoint/tensor_source_private.h"

#define LENGTH_BYTES 8 /* little-endian, before the header */

struct safetensors {
    struct zo_tensor_source source; /* first: a source is this struct */
    char *header;                   /* owned; holds the names */
    uint64_t data_at;               /* of the file: where data begins */
    uint64_t data_bytes;
    uint64_t *begins; /* owned; a tensor's place in the data */
    size_t begins_capacity;
};

static enum zo_status read_data(const struct zo_tensor_source *source,
                                size_t index, uint64_t offset_bytes,
                                size_t size_bytes, void *buffer)
{
    const struct safetensors *self = (const struct safetensors *)source;

    return zo_disk_read(&source->file,
                        self->data_at + self->begins[index] + offset_bytes,
                        buffer, size_bytes);
}

static void close_source(struct zo_tensor_source *source)
{
    struct safetensors *self = (struct safetensors *)source;

    zo_tensor_source_fini(source);
    zo_free(self->header);
    zo_free(self->begins);
    zo_free(self);
}

static const struct zo_tensor_source_ops safetensors_ops = {
    .read = read_data,
    .close = close_source,
};

/* Checks the length before any arithmetic with it, then reads the header. */
static enum zo_status read_header(struct safetensors *self,
                                  size_t *header_bytes_out)
{
    const struct zo_disk_file *file = &self->source.file;
    unsigned char raw[LENGTH_BYTES];
    uint64_t length = 0;

    ZO_TRY(zo_download_check(file));
    if (file->size_bytes < LENGTH_BYTES) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s has %llu bytes; a safetensors file starts with 8 "
                       "bytes of header length",
                       file->path, (unsigned long long)file->size_bytes);
    }
    ZO_TRY(zo_disk_read(file, 0, raw, sizeof(raw)));
    for (size_t i = 0; i < LENGTH_BYTES; i++) {
        length |= (uint64_t)raw[i] << (8 * i);
    }
    if (length > file->size_bytes - LENGTH_BYTES) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: header of %llu bytes in a file of %llu: cut "
                       "short, or no safetensors file",
                       file->path, (unsigned long long)length,
                       (unsigned long long)file->size_bytes);
    }
    if (length > ZO_SAFETENSORS_HEADER_MAX) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: header of %llu bytes; want at most %u", file->path,
                       (unsigned long long)length, ZO_SAFETENSORS_HEADER_MAX);
    }
    ZO_TRY(
        zo_alloc((size_t)length + 1, 1, "a safetensors header", &self->header));
    ZO_TRY(zo_disk_read(file, LENGTH_BYTES, self->header, (size_t)length));
    self->data_at = LENGTH_BYTES + length;
    self->data_bytes = file->size_bytes - self->data_at;
    *header_bytes_out = (size_t)length;
    return ZO_OK;
}

static enum zo_status scan_shape(struct zo_json_scan *scan,
                                 struct zo_tensor_info *info)
{
    bool more;

    ZO_TRY(zo_json_scan_open(scan, '['));
    for (info->rank = 0;; info->rank++) {
        uint64_t value;

        ZO_TRY(zo_json_scan_more(scan, ']', &more));
        if (!more) {
            return ZO_OK;
        }
        if (info->rank == ZO_TENSOR_RANK_MAX) {
            return zo_json_scan_fail(scan, "a shape of at most 8 dimensions");
        }
        ZO_TRY(zo_json_scan_uint(scan, &value));
        info->shape[info->rank] = (int64_t)value;
    }
}

static enum zo_status scan_offsets(struct zo_json_scan *scan,
                                   uint64_t offsets[2])
{
    bool more;

    ZO_TRY(zo_json_scan_open(scan, '['));
    for (size_t i = 0; i < 2; i++) {
        ZO_TRY(zo_json_scan_more(scan, ']', &more));
        if (!more) {
            return zo_json_scan_fail(scan, "two data_offsets before it");
        }
        ZO_TRY(zo_json_scan_uint(scan, &offsets[i]));
    }
    ZO_TRY(zo_json_scan_more(scan, ']', &more));
    return more ? zo_json_scan_fail(scan, "two data_offsets, no more") : ZO_OK;
}

static enum zo_status scan_element(struct zo_json_scan *scan,
                                   enum zo_element *element_out)
{
    const size_t at = scan->at;
    char *name;

    ZO_TRY(zo_json_scan_string(scan, &name));
    if (!zo_element_from_name(name, element_out)) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: tensor \"%.200s\", byte %zu: dtype \"%.40s\" is "
                       "not known",
                       scan->path, scan->name, at, name);
    }
    return ZO_OK;
}

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}, any order. */
static enum zo_status scan_entry(struct zo_json_scan *scan,
                                 struct zo_tensor_info *info,
                                 uint64_t offsets[2])
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    bool seen[ZO_COUNT(keys)] = {false};
    bool more;

    ZO_TRY(zo_json_scan_open(scan, '{'));
    for (;;) {
        size_t which = 0;
        char *key;

        ZO_TRY(zo_json_scan_more(scan, '}', &more));
        if (!more) {
            break;
        }
        ZO_TRY(zo_json_scan_key(scan, &key));
        while (which < ZO_COUNT(keys) && strcmp(key, keys[which]) != 0) {
            which++;
        }
        if (which == ZO_COUNT(keys) || seen[which]) {
            return ZO_FAIL(
                ZO_E_CORRUPT, "%s: tensor \"%.200s\": key \"%.40s\" %s",
                scan->path, scan->name, key,
                which == ZO_COUNT(keys) ? "is not known" : "occurs twice");
        }
        seen[which] = true;
        ZO_TRY(which == 0   ? scan_element(scan, &info->element)
               : which == 1 ? scan_shape(scan, info)
                            : scan_offsets(scan, offsets));
    }
    for (size_t i = 0; i < ZO_COUNT(keys); i++) {
        if (!seen[i]) {
            return ZO_FAIL(ZO_E_CORRUPT, "%s: tensor \"%.200s\" has no \"%s\"",
                           scan->path, scan->name, keys[i]);
        }
    }
    return ZO_OK;
}

/* The shape's bytes are the range's bytes, and the range is in the file. */
static enum zo_status check_entry(const struct safetensors *self,
                                  struct zo_tensor_info *info,
                                  const uint64_t offsets[2])
{
    const char *path = self->source.file.path;
    char shape[ZO_SHAPE_TEXT_MAX];

    (void)zo_shape_text(shape, sizeof(shape), info->shape, info->rank);
    if (offsets[0] > offsets[1]) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: tensor \"%.200s\": data_offsets [%llu, %llu] run "
                       "backwards",
                       path, info->name, (unsigned long long)offsets[0],
                       (unsigned long long)offsets[1]);
    }
    if (!zo_tensor_info_measure(info)) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: tensor \"%.200s\": %s %s is no size in bytes", path,
                       info->name, zo_element_name(info->element), shape);
    }
    if (info->size_bytes != offsets[1] - offsets[0]) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: tensor \"%.200s\": %s %s is %llu bytes, "
                       "data_offsets [%llu, %llu] are %llu",
                       path, info->name, zo_element_name(info->element), shape,
                       (unsigned long long)info->size_bytes,
                       (unsigned long long)offsets[0],
                       (unsigned long long)offsets[1],
                       (unsigned long long)(offsets[1] - offsets[0]));
    }
    if (offsets[1] > self->data_bytes) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: tensor \"%.200s\": bytes [%llu, %llu] of %llu in "
                       "the file: cut short",
                       path, info->name, (unsigned long long)offsets[0],
                       (unsigned long long)offsets[1],
                       (unsigned long long)self->data_bytes);
    }
    return ZO_OK;
}

/* {"format": "pt", ...}: strings only, and none is of use here. */
static enum zo_status scan_metadata(struct zo_json_scan *scan)
{
    bool more;

    scan->kind = NULL;
    scan->name = "__metadata__";
    ZO_TRY(zo_json_scan_open(scan, '{'));
    for (;;) {
        char *ignored;

        ZO_TRY(zo_json_scan_more(scan, '}', &more));
        if (!more) {
            return ZO_OK;
        }
        ZO_TRY(zo_json_scan_key(scan, &ignored));
        ZO_TRY(zo_json_scan_string(scan, &ignored));
    }
}

static enum zo_status scan_tensor(struct safetensors *self,
                                  struct zo_json_scan *scan, const char *name)
{
    struct zo_tensor_info info = {.name = name};
    uint64_t offsets[2] = {0, 0};
    const size_t index = self->source.count;

    scan->kind = "tensor ";
    scan->name = name;
    ZO_TRY(scan_entry(scan, &info, offsets));
    ZO_TRY(check_entry(self, &info, offsets));
    ZO_TRY(zo_grow(&self->begins, index, &self->begins_capacity,
                   sizeof(self->begins[0]), "a table of offsets"));
    self->begins[index] = offsets[0];
    return zo_tensor_source_add(&self->source, &info);
}

static enum zo_status scan_header(struct safetensors *self, size_t header_bytes)
{
    struct zo_json_scan scan;
    bool has_metadata = false, more;

    ZO_TRY(zo_json_scan_begin(&scan, self->source.file.path, self->header,
                              header_bytes));
    ZO_TRY(zo_json_scan_open(&scan, '{'));
    for (;;) {
        char *name;

        scan.name = NULL;
        ZO_TRY(zo_json_scan_more(&scan, '}', &more));
        if (!more) {
            return zo_json_scan_end(&scan);
        }
        ZO_TRY(zo_json_scan_key(&scan, &name));
        if (strcmp(name, "__metadata__") != 0) {
            ZO_TRY(scan_tensor(self, &scan, name));
        } else if (!has_metadata) {
            has_metadata = true;
            ZO_TRY(scan_metadata(&scan));
        } else {
            return ZO_FAIL(ZO_E_CORRUPT, "%s: \"__metadata__\" occurs twice",
                           scan.path);
        }
    }
}

struct range {
    uint64_t begin, end;
    size_t index;
};

/* Empty ranges come before the one that starts at the same byte. */
static int compare_ranges(const void *a, const void *b)
{
    const struct range *left = a, *right = b;

    if (left->begin != right->begin) {
        return left->begin < right->begin ? -1 : 1;
    }
    return left->end < right->end ? -1 : left->end > right->end;
}

static enum zo_status check_order(const struct safetensors *self,
                                  const struct range *ranges)
{
    const struct zo_tensor_source *source = &self->source;
    const char *path = source->file.path, *before = "the header";
    uint64_t at = 0;

    for (size_t i = 0; i < source->count; i++) {
        const char *name = source->infos[ranges[i].index].name;

        if (ranges[i].begin != at) {
            const bool overlap = ranges[i].begin < at;

            return ZO_FAIL(
                ZO_E_CORRUPT,
                "%s: bytes [%llu, %llu] %s \"%.200s\" and \"%.200s\"", path,
                (unsigned long long)(overlap ? ranges[i].begin : at),
                (unsigned long long)(overlap ? at : ranges[i].begin),
                overlap ? "belong to both" : "belong to no tensor, between",
                before, name);
        }
        at = ranges[i].end;
        before = name;
    }
    if (at != self->data_bytes) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: bytes [%llu, %llu] after \"%.200s\" belong to no "
                       "tensor",
                       path, (unsigned long long)at,
                       (unsigned long long)self->data_bytes, before);
    }
    return ZO_OK;
}

/* Every byte of the data belongs to exactly one tensor. */
static enum zo_status check_coverage(const struct safetensors *self)
{
    const size_t count = self->source.count;
    struct range *ranges = NULL;
    enum zo_status status;

    ZO_TRY(zo_alloc(count, sizeof(ranges[0]), "a table of ranges", &ranges));
    for (size_t i = 0; i < count; i++) {
        ranges[i] = (struct range){
            self->begins[i],
            self->begins[i] + self->source.infos[i].size_bytes,
            i,
        };
    }
    qsort(ranges, count, sizeof(ranges[0]), compare_ranges);
    status = check_order(self, ranges);
    zo_free(ranges);
    return status;
}

enum zo_status zo_safetensors_open(const char *path,
                                   struct zo_tensor_source **source_out)
{
    struct safetensors *self = NULL;
    size_t header_bytes = 0;
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*self), "a safetensors reader", &self));
    self->source.ops = &safetensors_ops;
    self->source.file.fd = -1;
    ZO_TRY_GOTO(close_self, zo_disk_open(path, &self->source.file));
    ZO_TRY_GOTO(close_self, read_header(self, &header_bytes));
    ZO_TRY_GOTO(close_self, scan_header(self, header_bytes));
    ZO_TRY_GOTO(close_self, zo_tensor_source_freeze(&self->source));
    ZO_TRY_GOTO(close_self, check_coverage(self));
    *source_out = &self->source;
    return ZO_OK;

close_self:
    close_source(&self->source);
    return status;
}
