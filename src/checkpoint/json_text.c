#include "src/checkpoint/json_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/memory.h"

/* Room for more_bytes and a terminator. */
static enum zo_status make_room(struct zo_json_text *json, size_t more_bytes)
{
    const size_t wanted = json->size_bytes + more_bytes + 1;

    if (wanted > json->capacity) {
        const size_t capacity = wanted + wanted / 2 + 64;

        ZO_TRY(zo_realloc(&json->text, capacity, 1, "a JSON text"));
        json->capacity = capacity;
    }
    return ZO_OK;
}

enum zo_status zo_json_text_add(struct zo_json_text *json, const char *format,
                                ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    ZO_ASSERT(length >= 0);
    ZO_TRY(make_room(json, (size_t)length));
    va_start(args, format);
    (void)vsnprintf(json->text + json->size_bytes, (size_t)length + 1, format,
                    args);
    va_end(args);
    json->size_bytes += (size_t)length;
    return ZO_OK;
}

enum zo_status zo_json_text_quote(struct zo_json_text *json, const char *string)
{
    static const char hex[] = "0123456789abcdef";
    char *put;

    ZO_TRY(make_room(json, 6 * strlen(string) + 2));
    put = json->text + json->size_bytes;
    *put++ = '"';
    for (; *string != '\0'; string++) {
        const unsigned char c = (unsigned char)*string;

        if (c == '"' || c == '\\') {
            *put++ = '\\';
            *put++ = (char)c;
        } else if (c < 0x20) {
            memcpy(put, "\\u00", 4);
            put[4] = hex[c >> 4];
            put[5] = hex[c & 15];
            put += 6;
        } else {
            *put++ = (char)c;
        }
    }
    *put++ = '"';
    *put = '\0';
    json->size_bytes = (size_t)(put - json->text);
    return ZO_OK;
}

void zo_json_text_fini(struct zo_json_text *json)
{
    if (json != NULL) {
        zo_free(json->text);
        *json = (struct zo_json_text){0};
    }
}
