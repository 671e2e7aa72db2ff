#include "src/checkpoint/state_manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/base/hash.h"
#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/json_scan.h"

#define MANIFEST_BYTES_MAX ((size_t)256 << 20)
#define FORMAT_NAME        "zero-offload training state"

/* The last key, of fixed length: what is before it is what it is of. */
#define CHECKSUM_KEY ",\n\"checksum\":\""
#define CHECKSUM_END "\"}\n"
#define HASH_DIGITS  16
#define TAIL_BYTES \
    (sizeof(CHECKSUM_KEY) - 1 + HASH_DIGITS + sizeof(CHECKSUM_END) - 1)

/* ---- the run ------------------------------------------------------------- */

/* Numbers that JSON cannot hold exactly are texts. */
enum field_kind { COUNT, SIGNED, HEX, REAL };

static const struct field {
    const char *name;
    enum field_kind kind;
    size_t offset;
} fields[] = {
#define FIELD(name, kind)                                \
    {                                                    \
#name, kind, offsetof(struct zo_state_run, name) \
    }
    FIELD(step, COUNT),
    FIELD(optimizer_steps, COUNT),
    FIELD(tokens_total, COUNT),
    FIELD(best_loss, REAL),
    FIELD(scales, COUNT),
    FIELD(loss_scale, REAL),
    FIELD(scaler_iteration, COUNT),
    FIELD(last_overflow, SIGNED),
    FIELD(hysteresis_left, COUNT),
    FIELD(futile_skips, COUNT),
    FIELD(skipped_steps, COUNT),
    FIELD(seed, HEX),
    FIELD(shuffles, COUNT),
    FIELD(step_rows, COUNT),
    FIELD(data_fingerprint, HEX),
    FIELD(model_fingerprint, HEX),
#undef FIELD
};

static enum zo_status add_field(struct zo_json_text *json,
                                const struct field *field,
                                const struct zo_state_run *run)
{
    const char *at = (const char *)run + field->offset;
    const char *comma = field == fields ? "" : ",";
    int64_t number;
    double real;

    memcpy(&number, at, sizeof(number));
    memcpy(&real, at, sizeof(real));
    switch (field->kind) {
    case COUNT:
        return zo_json_text_add(json, "%s\"%s\":%" PRId64, comma, field->name,
                                number);
    case SIGNED:
        return zo_json_text_add(json, "%s\"%s\":\"%" PRId64 "\"", comma,
                                field->name, number);
    case HEX:
        return zo_json_text_add(json, "%s\"%s\":\"%016" PRIx64 "\"", comma,
                                field->name, (uint64_t)number);
    case REAL:
        return zo_json_text_add(json, "%s\"%s\":\"%a\"", comma, field->name,
                                real);
    }
    return ZO_OK;
}

static enum zo_status read_hex(const struct zo_json_scan *scan,
                               const char *text, uint64_t *value_out)
{
    if (strlen(text) != HASH_DIGITS ||
        strspn(text, "0123456789abcdef") != HASH_DIGITS) {
        return zo_json_scan_fail(scan, "16 hexadecimal digits before");
    }
    *value_out = strtoull(text, NULL, 16);
    return ZO_OK;
}

static enum zo_status read_text_field(struct zo_json_scan *scan,
                                      enum field_kind kind, char *at)
{
    char *text = NULL, *end = NULL;
    uint64_t bits = 0;
    int64_t number;
    double real;

    ZO_TRY(zo_json_scan_string(scan, &text));
    errno = 0;
    switch (kind) {
    case HEX:
        ZO_TRY(read_hex(scan, text, &bits));
        memcpy(at, &bits, sizeof(bits));
        return ZO_OK;
    case REAL:
        real = strtod(text, &end);
        memcpy(at, &real, sizeof(real));
        break;
    case COUNT:
    case SIGNED:
        number = strtoll(text, &end, 10);
        memcpy(at, &number, sizeof(number));
        break;
    }
    return end != text && *end == '\0' && errno == 0
               ? ZO_OK
               : zo_json_scan_fail(scan, "a number as text before");
}

/* ---- writing ------------------------------------------------------------- */

size_t zo_state_pieces_of(const struct zo_tensor_info *info,
                          int64_t piece_elems)
{
    return (size_t)zo_div_ceil((int64_t)info->elem_count, piece_elems);
}

size_t zo_state_piece_elems(const struct zo_tensor_info *info,
                            int64_t piece_elems, size_t piece)
{
    return (size_t)zo_min_i64(piece_elems, (int64_t)info->elem_count -
                                               (int64_t)piece * piece_elems);
}

static enum zo_status add_kind(struct zo_json_text *json,
                               const struct zo_state_manifest *manifest,
                               const struct zo_state_tensor *tensor, int kind)
{
    const struct zo_tensor_info *info = &tensor->infos[kind];
    const size_t count = zo_state_pieces_of(info, manifest->piece_elems);
    const size_t planes = zo_element_bits(info->element) / 8;

    ZO_TRY(zo_json_text_add(json, ",\n \"%s\":{\"dtype\":\"%s\",\"pieces\":[",
                            zo_state_kind_name((enum zo_state_kind)kind),
                            zo_element_name(info->element)));
    for (size_t i = 0; i < count; i++) {
        const struct zo_state_piece *piece =
            &manifest->pieces[tensor->first[kind] + i];

        ZO_TRY(zo_json_text_add(json, "%s[%u,%" PRIu64 ",\"%016" PRIx64 "\"",
                                i == 0 ? "" : ",", piece->shard,
                                piece->offset_bytes, piece->hash));
        for (size_t p = 0; p < planes && piece->stored_bytes[p] > 0; p++) {
            ZO_TRY(zo_json_text_add(json, ",%u", piece->stored_bytes[p]));
        }
        ZO_TRY(zo_json_text_add(json, "]"));
    }
    return zo_json_text_add(json, "]}");
}

static enum zo_status add_tensor(struct zo_json_text *json,
                                 const struct zo_state_manifest *manifest,
                                 size_t index)
{
    const struct zo_state_tensor *tensor = &manifest->tensors[index];
    const struct zo_tensor_info *info = &tensor->infos[0];

    ZO_TRY(zo_json_text_add(json, "%s\n{\"name\":", index == 0 ? "" : ","));
    ZO_TRY(zo_json_text_quote(json, info->name));
    ZO_TRY(zo_json_text_add(json, ",\"shape\":["));
    for (int d = 0; d < info->rank; d++) {
        ZO_TRY(zo_json_text_add(json, "%s%" PRId64, d == 0 ? "" : ",",
                                info->shape[d]));
    }
    ZO_TRY(zo_json_text_add(json, "]"));
    for (int kind = 0; kind < ZO_STATE_KINDS; kind++) {
        ZO_TRY(add_kind(json, manifest, tensor, kind));
    }
    return zo_json_text_add(json, "}");
}

static enum zo_status add_head(struct zo_json_text *json,
                               const struct zo_state_manifest *manifest)
{
    ZO_TRY(zo_json_text_add(
        json, "{\"format\":\"%s\",\"version\":%d,\n\"program\":", FORMAT_NAME,
        ZO_STATE_VERSION));
    ZO_TRY(zo_json_text_quote(json, manifest->program));
    ZO_TRY(zo_json_text_add(json, ",\n\"run\":{"));
    for (size_t i = 0; i < ZO_COUNT(fields); i++) {
        ZO_TRY(add_field(json, &fields[i], &manifest->run));
    }
    ZO_TRY(zo_json_text_add(json, "},\n\"settings\":{"));
    for (size_t i = 0; i < manifest->setting_count; i++) {
        ZO_TRY(zo_json_text_add(json, "%s", i == 0 ? "\n" : ",\n"));
        ZO_TRY(zo_json_text_quote(json, manifest->settings[i].name));
        ZO_TRY(zo_json_text_add(json, ":"));
        ZO_TRY(zo_json_text_quote(json, manifest->settings[i].value));
    }
    ZO_TRY(zo_json_text_add(json,
                            "},\n\"piece_elems\":%" PRId64 ",\n\"shards\":[",
                            manifest->piece_elems));
    for (size_t i = 0; i < manifest->shard_count; i++) {
        ZO_TRY(zo_json_text_add(json, "%s%" PRIu64, i == 0 ? "" : ",",
                                manifest->shard_bytes[i]));
    }
    return zo_json_text_add(json, "],\n\"tensors\":[");
}

static enum zo_status add_files(struct zo_json_text *json,
                                const struct zo_state_manifest *manifest)
{
    ZO_TRY(zo_json_text_add(json, "],\n\"files\":{"));
    for (size_t i = 0; i < manifest->file_count; i++) {
        ZO_TRY(zo_json_text_add(json, "%s", i == 0 ? "\n" : ",\n"));
        ZO_TRY(zo_json_text_quote(json, manifest->files[i].name));
        ZO_TRY(zo_json_text_add(json, ":\"%016" PRIx64 "\"",
                                manifest->files[i].hash));
    }
    return zo_json_text_add(json, "}");
}

enum zo_status zo_state_manifest_text(const struct zo_state_manifest *manifest,
                                      struct zo_json_text *json)
{
    ZO_TRY(add_head(json, manifest));
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        ZO_TRY(add_tensor(json, manifest, i));
    }
    ZO_TRY(add_files(json, manifest));
    return zo_json_text_add(json, CHECKSUM_KEY "%016" PRIx64 CHECKSUM_END,
                            zo_hash64(json->text, json->size_bytes));
}

/* ---- reading ------------------------------------------------------------- */

static enum zo_status expect_key(struct zo_json_scan *scan, const char *want)
{
    char *key = NULL, text[64];
    bool more = false;

    ZO_TRY(zo_json_scan_more(scan, '}', &more));
    if (more) {
        ZO_TRY(zo_json_scan_key(scan, &key));
    }
    if (!more || strcmp(key, want) != 0) {
        (void)snprintf(text, sizeof(text), "the key \"%s\"", want);
        return zo_json_scan_fail(scan, text);
    }
    return ZO_OK;
}

static enum zo_status expect_end(struct zo_json_scan *scan, char bracket)
{
    bool more = false;

    ZO_TRY(zo_json_scan_more(scan, bracket, &more));
    return more ? zo_json_scan_fail(scan, "nothing more") : ZO_OK;
}

/* The next of an array of numbers, which may not be its end. */
static enum zo_status expect_uint(struct zo_json_scan *scan, uint64_t max,
                                  uint64_t *value_out)
{
    bool more = false;

    ZO_TRY(zo_json_scan_more(scan, ']', &more));
    if (!more) {
        return zo_json_scan_fail(scan, "one more number");
    }
    ZO_TRY(zo_json_scan_uint(scan, value_out));
    return *value_out <= max ? ZO_OK
                             : zo_json_scan_fail(scan, "a smaller number");
}

static enum zo_status read_run(struct zo_json_scan *scan,
                               struct zo_state_run *run)
{
    ZO_TRY(expect_key(scan, "run"));
    ZO_TRY(zo_json_scan_open(scan, '{'));
    for (size_t i = 0; i < ZO_COUNT(fields); i++) {
        char *at = (char *)run + fields[i].offset;
        uint64_t count = 0;

        ZO_TRY(expect_key(scan, fields[i].name));
        if (fields[i].kind != COUNT) {
            ZO_TRY(read_text_field(scan, fields[i].kind, at));
            continue;
        }
        ZO_TRY(zo_json_scan_uint(scan, &count));
        memcpy(at, &count, sizeof(count));
    }
    if (run->step < 1) { /* nobody saves before the first */
        return zo_json_scan_fail(scan, "a step above 0 before");
    }
    return expect_end(scan, '}');
}

static enum zo_status read_settings(struct zo_json_scan *scan,
                                    struct zo_state_manifest *manifest)
{
    ZO_TRY(expect_key(scan, "settings"));
    ZO_TRY(zo_json_scan_open(scan, '{'));
    for (;;) {
        char *name = NULL, *value = NULL;
        bool more = false;

        ZO_TRY(zo_json_scan_more(scan, '}', &more));
        if (!more) {
            return ZO_OK;
        }
        ZO_TRY(zo_json_scan_key(scan, &name));
        ZO_TRY(zo_json_scan_string(scan, &value));
        ZO_TRY(zo_grow(&manifest->settings, manifest->setting_count,
                       &manifest->setting_capacity,
                       sizeof(manifest->settings[0]), "a list of settings"));
        manifest->settings[manifest->setting_count++] =
            (struct zo_state_setting){name, value};
    }
}

static enum zo_status read_shards(struct zo_json_scan *scan,
                                  struct zo_state_manifest *manifest)
{
    uint64_t elems = 0;

    ZO_TRY(expect_key(scan, "piece_elems"));
    ZO_TRY(zo_json_scan_uint(scan, &elems));
    if (elems < 1 || elems > (uint64_t)ZO_STATE_PIECE_ELEMS_MAX) {
        return zo_json_scan_fail(scan, "pieces of 1 to 4194304 elements");
    }
    manifest->piece_elems = (int64_t)elems;
    ZO_TRY(expect_key(scan, "shards"));
    ZO_TRY(zo_json_scan_open(scan, '['));
    for (;;) {
        uint64_t bytes = 0;
        bool more = false;

        ZO_TRY(zo_json_scan_more(scan, ']', &more));
        if (!more) {
            return ZO_OK;
        }
        ZO_TRY(zo_json_scan_uint(scan, &bytes));
        ZO_TRY(zo_grow(&manifest->shard_bytes, manifest->shard_count,
                       &manifest->shard_capacity,
                       sizeof(manifest->shard_bytes[0]), "a list of shards"));
        manifest->shard_bytes[manifest->shard_count++] = bytes;
    }
}

/* Of a piece's parts, one for each byte of an element; or of all as it was. */
static enum zo_status read_sizes(struct zo_json_scan *scan, size_t elems,
                                 size_t planes, struct zo_state_piece *piece)
{
    size_t count = 0;

    for (;;) {
        uint64_t size = 0;
        bool more = false;

        ZO_TRY(zo_json_scan_more(scan, ']', &more));
        if (!more) {
            break;
        }
        ZO_TRY(zo_json_scan_uint(scan, &size));
        if (count == planes || size == 0 || size > elems * planes) {
            return zo_json_scan_fail(scan, "a size of a part before");
        }
        piece->stored_bytes[count++] = (uint32_t)size;
    }
    if (count == 1 && piece->stored_bytes[0] == elems * planes) {
        return ZO_OK;
    }
    for (size_t p = 0; p < planes; p++) {
        if (piece->stored_bytes[p] == 0 || piece->stored_bytes[p] > elems) {
            return zo_json_scan_fail(scan, "sizes of all parts before");
        }
    }
    return ZO_OK;
}

/* One piece, within its shard. */
static enum zo_status read_piece(struct zo_json_scan *scan,
                                 const struct zo_state_manifest *manifest,
                                 size_t elems, size_t planes,
                                 struct zo_state_piece *piece)
{
    uint64_t shard = 0, end;
    char *hash = NULL;
    bool more = false;

    ZO_TRY(zo_json_scan_open(scan, '['));
    ZO_TRY(expect_uint(scan, UINT32_MAX, &shard));
    if (shard >= manifest->shard_count) {
        return zo_json_scan_fail(scan, "a shard that is there before");
    }
    piece->shard = (uint32_t)shard;
    ZO_TRY(expect_uint(scan, UINT64_MAX, &piece->offset_bytes));
    ZO_TRY(zo_json_scan_more(scan, ']', &more));
    ZO_TRY(zo_json_scan_string(scan, &hash));
    ZO_TRY(read_hex(scan, hash, &piece->hash));
    ZO_TRY(read_sizes(scan, elems, planes, piece));
    end = piece->offset_bytes + zo_state_piece_bytes(piece); /* < 2^53 + 2^24 */
    return end <= manifest->shard_bytes[shard]
               ? ZO_OK
               : zo_json_scan_fail(scan, "a piece within its shard before");
}

static enum zo_status read_kind(struct zo_json_scan *scan,
                                struct zo_state_manifest *manifest,
                                struct zo_state_tensor *tensor, int kind)
{
    struct zo_tensor_info *info = &tensor->infos[kind];
    char *element = NULL;
    enum zo_dtype dtype;
    size_t count;

    ZO_TRY(expect_key(scan, zo_state_kind_name((enum zo_state_kind)kind)));
    ZO_TRY(zo_json_scan_open(scan, '{'));
    ZO_TRY(expect_key(scan, "dtype"));
    ZO_TRY(zo_json_scan_string(scan, &element));
    if (!zo_element_from_name(element, &info->element) ||
        !zo_element_dtype(info->element, &dtype) || dtype == ZO_F16 ||
        (kind == ZO_STATE_MASTER && dtype != ZO_F32)) {
        return zo_json_scan_fail(scan, "another dtype before");
    }
    if (!zo_tensor_info_measure(info) || info->elem_count == 0) {
        return zo_json_scan_fail(scan, "a shape that can be before");
    }
    ZO_TRY(expect_key(scan, "pieces"));
    ZO_TRY(zo_json_scan_open(scan, '['));
    tensor->first[kind] = manifest->piece_count;
    count = zo_state_pieces_of(info, manifest->piece_elems);
    for (size_t i = 0; i < count; i++) {
        bool more = false;

        ZO_TRY(zo_json_scan_more(scan, ']', &more));
        ZO_TRY(zo_grow(&manifest->pieces, manifest->piece_count,
                       &manifest->piece_capacity, sizeof(manifest->pieces[0]),
                       "a list of pieces"));
        manifest->pieces[manifest->piece_count] = (struct zo_state_piece){0};
        ZO_TRY(read_piece(scan, manifest,
                          zo_state_piece_elems(info, manifest->piece_elems, i),
                          zo_element_bits(info->element) / 8,
                          &manifest->pieces[manifest->piece_count]));
        manifest->piece_count++;
    }
    ZO_TRY(expect_end(scan, ']'));
    return expect_end(scan, '}');
}

/* Names are shown to people. */
static enum zo_status read_name(struct zo_json_scan *scan,
                                const char **name_out)
{
    char *name = NULL;

    ZO_TRY(expect_key(scan, "name"));
    ZO_TRY(zo_json_scan_string(scan, &name));
    for (const char *at = name; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            return zo_json_scan_fail(scan, "a plain name before");
        }
    }
    *name_out = name;
    return ZO_OK;
}

static enum zo_status read_tensor(struct zo_json_scan *scan,
                                  struct zo_state_manifest *manifest)
{
    struct zo_state_tensor tensor = {0};

    ZO_TRY(zo_json_scan_open(scan, '{'));
    ZO_TRY(read_name(scan, &tensor.infos[0].name));
    ZO_TRY(expect_key(scan, "shape"));
    ZO_TRY(zo_json_scan_open(scan, '['));
    for (;;) {
        struct zo_tensor_info *info = &tensor.infos[0];
        uint64_t size = 0;
        bool more = false;

        ZO_TRY(zo_json_scan_more(scan, ']', &more));
        if (!more) {
            break;
        }
        ZO_TRY(zo_json_scan_uint(scan, &size));
        if (info->rank == ZO_TENSOR_RANK_MAX) {
            return zo_json_scan_fail(scan, "fewer dimensions before");
        }
        info->shape[info->rank++] = (int64_t)size;
    }
    tensor.infos[1] = tensor.infos[2] = tensor.infos[0];
    for (int kind = 0; kind < ZO_STATE_KINDS; kind++) {
        ZO_TRY(read_kind(scan, manifest, &tensor, kind));
    }
    ZO_TRY(zo_grow(&manifest->tensors, manifest->tensor_count,
                   &manifest->tensor_capacity, sizeof(tensor),
                   "a list of tensors"));
    manifest->tensors[manifest->tensor_count++] = tensor;
    return expect_end(scan, '}');
}

static enum zo_status read_tensors(struct zo_json_scan *scan,
                                   struct zo_state_manifest *manifest)
{
    ZO_TRY(expect_key(scan, "tensors"));
    ZO_TRY(zo_json_scan_open(scan, '['));
    for (;;) {
        bool more = false;

        ZO_TRY(zo_json_scan_more(scan, ']', &more));
        if (!more) {
            return ZO_OK;
        }
        ZO_TRY(read_tensor(scan, manifest));
    }
}

/* A name within the folder that can be shown to people. */
static bool is_file_name(const char *name)
{
    for (const char *at = name; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f || *at == '/') {
            return false;
        }
    }
    return name[0] != '\0' && name[0] != '.';
}

static enum zo_status read_files(struct zo_json_scan *scan,
                                 struct zo_state_manifest *manifest)
{
    ZO_TRY(expect_key(scan, "files"));
    ZO_TRY(zo_json_scan_open(scan, '{'));
    for (;;) {
        struct zo_state_file file = {0};
        char *name = NULL, *hash = NULL;
        bool more = false;

        ZO_TRY(zo_json_scan_more(scan, '}', &more));
        if (!more) {
            return ZO_OK;
        }
        ZO_TRY(zo_json_scan_key(scan, &name));
        if (!is_file_name(name)) {
            return zo_json_scan_fail(scan, "the name of a file before");
        }
        ZO_TRY(zo_json_scan_string(scan, &hash));
        ZO_TRY(read_hex(scan, hash, &file.hash));
        file.name = name;
        ZO_TRY(zo_grow(&manifest->files, manifest->file_count,
                       &manifest->file_capacity, sizeof(manifest->files[0]),
                       "a list of files"));
        manifest->files[manifest->file_count++] = file;
    }
}

/* Every byte of a shard is in one piece: sizes add up to the shards'. */
static enum zo_status check_coverage(const char *path,
                                     const struct zo_state_manifest *manifest)
{
    uint64_t *left = NULL;
    enum zo_status status = ZO_OK;

    ZO_TRY(zo_alloc(manifest->shard_count, sizeof(left[0]), "what shards hold",
                    &left));
    for (size_t i = 0; i < manifest->piece_count; i++) {
        left[manifest->pieces[i].shard] +=
            zo_state_piece_bytes(&manifest->pieces[i]);
    }
    for (size_t i = 0; i < manifest->shard_count; i++) {
        if (left[i] != manifest->shard_bytes[i]) {
            status = ZO_FAIL(ZO_E_CORRUPT,
                             "%s: pieces of shard %zu have %" PRIu64
                             " bytes; want %" PRIu64,
                             path, i + 1, left[i], manifest->shard_bytes[i]);
            break;
        }
    }
    zo_free(left);
    return status;
}

static enum zo_status scan_all(struct zo_json_scan *scan,
                               struct zo_state_manifest *manifest)
{
    char *text = NULL;
    uint64_t version = 0;

    ZO_TRY(zo_json_scan_open(scan, '{'));
    ZO_TRY(expect_key(scan, "format"));
    ZO_TRY(zo_json_scan_string(scan, &text));
    ZO_TRY(expect_key(scan, "version"));
    ZO_TRY(zo_json_scan_uint(scan, &version));
    if (strcmp(text, FORMAT_NAME) != 0 || version < 1) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: format \"%.80s\" version %" PRIu64
                       "; want \"%s\" version 1 to %d",
                       scan->path, text, version, FORMAT_NAME,
                       ZO_STATE_VERSION);
    }
    if (version > ZO_STATE_VERSION) { /* no damage */
        return ZO_FAIL(ZO_E_NOSUPPORT,
                       "%s: a state of version %" PRIu64
                       ", of a newer program; this one reads version 1 to %d",
                       scan->path, version, ZO_STATE_VERSION);
    }
    ZO_TRY(expect_key(scan, "program"));
    ZO_TRY(zo_json_scan_string(scan, &text));
    manifest->program = text;
    ZO_TRY(read_run(scan, &manifest->run));
    ZO_TRY(read_settings(scan, manifest));
    ZO_TRY(read_shards(scan, manifest));
    ZO_TRY(read_tensors(scan, manifest));
    if (version > 1) {
        ZO_TRY(read_files(scan, manifest));
    }
    ZO_TRY(expect_key(scan, "checksum"));
    ZO_TRY(zo_json_scan_string(scan, &text));
    ZO_TRY(expect_end(scan, '}'));
    ZO_TRY(zo_json_scan_end(scan));
    return check_coverage(scan->path, manifest);
}

/* The text has the checksum that it ends with. */
static enum zo_status check_text(const char *path, const char *text,
                                 size_t size_bytes)
{
    char tail[TAIL_BYTES + 1];

    if (size_bytes > TAIL_BYTES) {
        (void)snprintf(tail, sizeof(tail),
                       CHECKSUM_KEY "%016" PRIx64 CHECKSUM_END,
                       zo_hash64(text, size_bytes - TAIL_BYTES));
        if (memcmp(tail, text + size_bytes - TAIL_BYTES, TAIL_BYTES) == 0) {
            return ZO_OK;
        }
    }
    return ZO_FAIL(ZO_E_CORRUPT,
                   "%s is damaged: it does not have the checksum at its end",
                   path);
}

enum zo_status zo_state_manifest_read(const char *path,
                                      struct zo_state_manifest *manifest_out)
{
    struct zo_state_manifest manifest = {0};
    struct zo_json_scan scan;
    size_t size_bytes = 0;
    enum zo_status status;

    ZO_TRY(zo_disk_read_all(path, MANIFEST_BYTES_MAX, &manifest.text,
                            &size_bytes));
    ZO_TRY_GOTO(fini, check_text(path, manifest.text, size_bytes));
    ZO_TRY_GOTO(fini,
                zo_json_scan_begin(&scan, path, manifest.text, size_bytes));
    ZO_TRY_GOTO(fini, scan_all(&scan, &manifest));
    *manifest_out = manifest;
    return ZO_OK;

fini:
    zo_state_manifest_fini(&manifest);
    return status;
}

void zo_state_manifest_fini(struct zo_state_manifest *manifest)
{
    zo_free(manifest->settings);
    zo_free(manifest->shard_bytes);
    zo_free(manifest->tensors);
    zo_free(manifest->pieces);
    zo_free(manifest->files);
    zo_free(manifest->text);
    *manifest = (struct zo_state_manifest){0};
}
