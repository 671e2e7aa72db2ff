#include "src/checkpoint/safetensors_writer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/json_text.h"
#include "src/checkpoint/safetensors.h"

#define SUFFIX       ".partial" /* of the name until finish */
#define LENGTH_BYTES 8          /* little-endian, before the header */
#define HEADER_ALIGN 8

struct zo_safetensors_writer {
    char *path, *partial_path; /* owned */
    struct zo_disk_file file;
    uint64_t rest_bytes; /* of data, still to come */
    bool is_created;     /* the partial file is there */
};

static enum zo_status add_entry(struct zo_json_text *json,
                                struct zo_tensor_info *info,
                                uint64_t *end_inout)
{
    const uint64_t begin = *end_inout;
    uint64_t end = 0;

    if (!zo_tensor_info_measure(info) ||
        !zo_add_u64(begin, info->size_bytes, &end) ||
        end >= UINT64_C(1) << 53) {
        char shape[ZO_SHAPE_TEXT_MAX];

        return ZO_FAIL(
            ZO_E_SHAPE, "tensor \"%.200s\": %s %s cannot be written",
            info->name, zo_element_name(info->element),
            zo_shape_text(shape, sizeof(shape), info->shape, info->rank));
    }
    ZO_TRY(zo_json_text_add(json, ","));
    ZO_TRY(zo_json_text_quote(json, info->name));
    ZO_TRY(zo_json_text_add(json, ":{\"dtype\":\"%s\",\"shape\":[",
                            zo_element_name(info->element)));
    for (int i = 0; i < info->rank; i++) {
        ZO_TRY(zo_json_text_add(json, "%s%lld", i > 0 ? "," : "",
                                (long long)info->shape[i]));
    }
    ZO_TRY(zo_json_text_add(json, "],\"data_offsets\":[%llu,%llu]}",
                            (unsigned long long)begin,
                            (unsigned long long)end));
    *end_inout = end;
    return ZO_OK;
}

static int compare_strings(const void *a, const void *b)
{
    const char *const *left = a, *const *right = b;

    return strcmp(*left, *right);
}

/* What readers would refuse is not written: twice the same name, no UTF-8. */
static enum zo_status
check_names(const char *path, const struct zo_tensor_info *infos, size_t count)
{
    enum zo_status status = ZO_OK;
    const char **names = NULL;

    ZO_TRY(zo_alloc(count, sizeof(names[0]), "a table of names", &names));
    for (size_t i = 0; i < count; i++) {
        names[i] = infos[i].name;
    }
    qsort(names, count, sizeof(names[0]), compare_strings);
    for (size_t i = 0; i < count && status == ZO_OK; i++) {
        const bool is_twice = i > 0 && strcmp(names[i - 1], names[i]) == 0;

        if (is_twice || !zo_utf8_valid(names[i], strlen(names[i]), NULL) ||
            strcmp(names[i], "__metadata__") == 0) {
            status = ZO_FAIL(
                ZO_E_ARG, "%s: tensor name \"%.200s\" %s: not written", path,
                names[i], is_twice ? "occurs twice" : "is not allowed");
        }
    }
    zo_free(names);
    return status;
}

static enum zo_status make_header(struct zo_json_text *json, const char *path,
                                  const struct zo_tensor_info *infos,
                                  size_t count, uint64_t *data_bytes_out)
{
    size_t padding;

    ZO_TRY(check_names(path, infos, count));
    *data_bytes_out = 0;
    ZO_TRY(zo_json_text_add(json, "{\"__metadata__\":{\"format\":\"pt\"}"));
    for (size_t i = 0; i < count; i++) {
        struct zo_tensor_info info = infos[i];

        ZO_TRY(add_entry(json, &info, data_bytes_out));
    }
    ZO_TRY(zo_json_text_add(json, "}"));
    padding = zo_round_up(json->size_bytes, HEADER_ALIGN) - json->size_bytes;
    ZO_TRY(zo_json_text_add(json, "%*s", (int)padding, ""));
    if (json->size_bytes > ZO_SAFETENSORS_HEADER_MAX) {
        return ZO_FAIL(ZO_E_ARG,
                       "%s: header of %zu bytes for %zu tensors; readers take "
                       "at most %u: write more shards",
                       path, json->size_bytes, count,
                       ZO_SAFETENSORS_HEADER_MAX);
    }
    return ZO_OK;
}

static enum zo_status start_file(struct zo_safetensors_writer *writer,
                                 const struct zo_json_text *header)
{
    unsigned char length[LENGTH_BYTES];

    for (size_t i = 0; i < LENGTH_BYTES; i++) {
        length[i] = (unsigned char)(header->size_bytes >> (8 * i));
    }
    ZO_TRY(zo_disk_create(writer->partial_path, &writer->file));
    writer->is_created = true;
    ZO_TRY(zo_disk_append(&writer->file, length, sizeof(length)));
    return zo_disk_append(&writer->file, header->text, header->size_bytes);
}

enum zo_status
zo_safetensors_writer_open(const char *path, const struct zo_tensor_info *infos,
                           size_t count,
                           struct zo_safetensors_writer **writer_out)
{
    const size_t length = strlen(path);
    struct zo_safetensors_writer *writer = NULL;
    struct zo_json_text header = {0};
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*writer), "a safetensors writer", &writer));
    writer->file.fd = -1;
    ZO_TRY_GOTO(close_writer,
                make_header(&header, path, infos, count, &writer->rest_bytes));
    ZO_TRY_GOTO(close_writer, zo_strndup(path, length, &writer->path));
    ZO_TRY_GOTO(close_writer, zo_alloc(length + sizeof(SUFFIX), 1, "a path",
                                       &writer->partial_path));
    memcpy(writer->partial_path, path, length);
    memcpy(writer->partial_path + length, SUFFIX, sizeof(SUFFIX));
    ZO_TRY_GOTO(close_writer, start_file(writer, &header));
    *writer_out = writer;
    writer = NULL;

close_writer:
    zo_json_text_fini(&header);
    zo_safetensors_writer_close(writer);
    return status;
}

enum zo_status
zo_safetensors_writer_append(struct zo_safetensors_writer *writer,
                             const void *data, size_t size_bytes)
{
    if (size_bytes > writer->rest_bytes) {
        return ZO_FAIL(ZO_E_ARG, "%s: %zu bytes of data; %llu are left",
                       writer->path, size_bytes,
                       (unsigned long long)writer->rest_bytes);
    }
    ZO_TRY(zo_disk_append(&writer->file, data, size_bytes));
    writer->rest_bytes -= size_bytes;
    return ZO_OK;
}

enum zo_status
zo_safetensors_writer_finish(struct zo_safetensors_writer *writer)
{
    if (writer->rest_bytes > 0) {
        return ZO_FAIL(ZO_E_ARG, "%s: %llu bytes of data are missing",
                       writer->path, (unsigned long long)writer->rest_bytes);
    }
    ZO_TRY(zo_disk_finish(&writer->file));
    ZO_TRY(zo_disk_rename(writer->partial_path, writer->path));
    writer->is_created = false;
    return ZO_OK;
}

void zo_safetensors_writer_close(struct zo_safetensors_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    zo_disk_close(&writer->file);
    if (writer->is_created) {
        (void)unlink(writer->partial_path);
    }
    zo_free(writer->path);
    zo_free(writer->partial_path);
    zo_free(writer);
}
