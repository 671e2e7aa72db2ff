#include "src/base/jsonl.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/text.h"

static void init(struct zo_jsonl *json, const char *name, char *buffer,
                 size_t buffer_bytes)
{
    ZO_ASSERT(buffer_bytes >= ZO_JSONL_BUFFER_MIN);
    *json = (struct zo_jsonl){
        .name = name,
        .fd = -1,
        .buffer = buffer,
        .buffer_bytes = buffer_bytes,
    };
}

void zo_jsonl_init_file(struct zo_jsonl *json, FILE *file, const char *name,
                        char *buffer, size_t buffer_bytes)
{
    init(json, name, buffer, buffer_bytes);
    json->file = file;
}

void zo_jsonl_init_fd(struct zo_jsonl *json, int fd, const char *name,
                      char *buffer, size_t buffer_bytes)
{
    init(json, name, buffer, buffer_bytes);
    json->fd = fd;
}

static int write_file(FILE *file, const char *bytes, size_t count)
{
    errno = 0;
    if (fwrite(bytes, 1, count, file) != count || fflush(file) != 0) {
        return errno != 0 ? errno : EIO;
    }
    return 0;
}

static int write_fd(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t written = write(fd, bytes, count);

        if (written < 0 && errno != EINTR) {
            return errno;
        }
        if (written > 0) {
            bytes += written;
            count -= (size_t)written;
        }
    }
    return 0;
}

/* Hands over what is in the buffer; after a failure, drops it. */
static void drain(struct zo_jsonl *json)
{
    if (json->error == 0) {
        json->error =
            json->file != NULL
                ? write_file(json->file, json->buffer, json->used_bytes)
                : write_fd(json->fd, json->buffer, json->used_bytes);
    }
    json->used_bytes = 0;
}

static void put(struct zo_jsonl *json, const char *bytes, size_t count)
{
    while (count > 0) {
        const size_t room = json->buffer_bytes - json->used_bytes;
        const size_t taken = count < room ? count : room;

        memcpy(json->buffer + json->used_bytes, bytes, taken);
        json->used_bytes += taken;
        bytes += taken;
        count -= taken;
        if (json->used_bytes == json->buffer_bytes) {
            drain(json);
        }
    }
}

static void put_char(struct zo_jsonl *json, char c)
{
    put(json, &c, 1);
}

static bool must_escape(uint32_t code)
{
    return code < 0x20 || code == '"' || code == '\\' ||
           (code >= 0x7f && code < 0xa0);
}

static void put_escape(struct zo_jsonl *json, uint32_t code)
{
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    char text[16];

    for (size_t i = 0; i + 1 < sizeof(shorts); i += 2) {
        if (code == (unsigned char)shorts[i]) {
            put_char(json, '\\');
            put_char(json, shorts[i + 1]);
            return;
        }
    }
    (void)snprintf(text, sizeof(text), "\\u%04x", code & 0xffu);
    put(json, text, 6);
}

static void put_string(struct zo_jsonl *json, const char *text, size_t count)
{
    size_t at = 0;

    put_char(json, '"');
    while (at < count) {
        uint32_t code = 0;
        const size_t length = zo_utf8_decode(text + at, count - at, &code);

        if (length == 0) {
            put(json, "\xef\xbf\xbd", 3); /* U+FFFD, as UTF-8 */
            at++;
        } else if (must_escape(code)) {
            put_escape(json, code);
            at += length;
        } else {
            put(json, text + at, length);
            at += length;
        }
    }
    put_char(json, '"');
}

/* What stands before a value: a comma, and inside an object its key. */
static void put_key(struct zo_jsonl *json, const char *key)
{
    ZO_ASSERT(json->depth > 0); /* a value outside begin and end */
    ZO_ASSERT(((json->object_mask >> (json->depth - 1)) & 1) ==
              (key != NULL ? 1 : 0));
    if (json->has_value) {
        put_char(json, ',');
    }
    if (key != NULL) {
        put_string(json, key, strlen(key));
        put_char(json, ':');
    }
    json->has_value = true;
}

static void enter(struct zo_jsonl *json, bool is_object)
{
    const uint32_t bit = 1u << json->depth;

    ZO_ASSERT(json->depth < ZO_JSONL_DEPTH_MAX);
    json->object_mask =
        is_object ? json->object_mask | bit : json->object_mask & ~bit;
    json->depth++;
    json->has_value = false;
    put_char(json, is_object ? '{' : '[');
}

static void leave(struct zo_jsonl *json, bool is_object)
{
    ZO_ASSERT(json->depth > 0);
    json->depth--;
    ZO_ASSERT(((json->object_mask >> json->depth) & 1) == (is_object ? 1 : 0));
    json->has_value = true;
    put_char(json, is_object ? '}' : ']');
}

void zo_jsonl_begin(struct zo_jsonl *json)
{
    ZO_ASSERT(json->depth == 0);
    enter(json, true);
}

enum zo_status zo_jsonl_end(struct zo_jsonl *json)
{
    int error;

    leave(json, true);
    ZO_ASSERT(json->depth == 0);
    put_char(json, '\n');
    if (json->used_bytes > 0) {
        drain(json);
    }
    error = json->error;
    json->error = 0; /* the next line tries again */
    json->has_value = false;
    if (error != 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, error, "cannot write to %s: %s",
                              json->name, strerror(error));
    }
    return ZO_OK;
}

void zo_jsonl_object_begin(struct zo_jsonl *json, const char *key)
{
    put_key(json, key);
    enter(json, true);
}

void zo_jsonl_object_end(struct zo_jsonl *json)
{
    ZO_ASSERT(json->depth > 1); /* the outermost ends with zo_jsonl_end() */
    leave(json, true);
}

void zo_jsonl_array_begin(struct zo_jsonl *json, const char *key)
{
    put_key(json, key);
    enter(json, false);
}

void zo_jsonl_array_end(struct zo_jsonl *json)
{
    leave(json, false);
}

void zo_jsonl_text(struct zo_jsonl *json, const char *key, const char *text)
{
    zo_jsonl_bytes(json, key, text, strlen(text));
}

void zo_jsonl_bytes(struct zo_jsonl *json, const char *key, const char *text,
                    size_t text_bytes)
{
    put_key(json, key);
    put_string(json, text, text_bytes);
}

void zo_jsonl_int(struct zo_jsonl *json, const char *key, int64_t value)
{
    char text[24];
    const int length = snprintf(text, sizeof(text), "%" PRId64, value);

    put_key(json, key);
    put(json, text, (size_t)length);
}

void zo_jsonl_uint(struct zo_jsonl *json, const char *key, uint64_t value)
{
    char text[24];
    const int length = snprintf(text, sizeof(text), "%" PRIu64, value);

    put_key(json, key);
    put(json, text, (size_t)length);
}

void zo_jsonl_bool(struct zo_jsonl *json, const char *key, bool value)
{
    put_key(json, key);
    put(json, value ? "true" : "false", value ? 4 : 5);
}

void zo_jsonl_null(struct zo_jsonl *json, const char *key)
{
    put_key(json, key);
    put(json, "null", 4);
}

void zo_jsonl_real(struct zo_jsonl *json, const char *key, double value)
{
    char text[32];
    int length = 0;

    if (!isfinite(value)) {
        zo_jsonl_null(json, key);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        length = snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    put_key(json, key);
    put(json, text, (size_t)length);
}

void zo_jsonl_ints(struct zo_jsonl *json, const char *key,
                   const int32_t *values, size_t count)
{
    zo_jsonl_array_begin(json, key);
    for (size_t i = 0; i < count; i++) {
        zo_jsonl_int(json, NULL, values[i]);
    }
    zo_jsonl_array_end(json);
}

void zo_jsonl_uints(struct zo_jsonl *json, const char *key,
                    const uint64_t *values, size_t count)
{
    zo_jsonl_array_begin(json, key);
    for (size_t i = 0; i < count; i++) {
        zo_jsonl_uint(json, NULL, values[i]);
    }
    zo_jsonl_array_end(json);
}
