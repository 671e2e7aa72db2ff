#include "src/data/text_stream.h"

#include <string.h>

#include "src/base/memory.h"

#define HELD_MAX 3 /* bytes of a character that lacks its last */

void zo_text_stream_init(struct zo_text_stream *stream,
                         const struct zo_tokenizer *tokenizer)
{
    *stream = (struct zo_text_stream){.tokenizer = tokenizer};
}

void zo_text_stream_fini(struct zo_text_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    zo_ids_fini(&stream->ids);
    zo_free(stream->text);
    *stream = (struct zo_text_stream){0};
}

/* Bytes of a character that has not all of them decode to U+FFFD each. */
static size_t held_bytes(const char *text, size_t size_bytes)
{
    static const char mark[] = "\xef\xbf\xbd";
    const size_t mark_bytes = sizeof(mark) - 1;
    size_t held = 0;

    for (int i = 0; i < HELD_MAX; i++) {
        const size_t end = size_bytes - held;

        if (end < mark_bytes ||
            memcmp(text + end - mark_bytes, mark, mark_bytes) != 0) {
            break;
        }
        held += mark_bytes;
    }
    return held;
}

static void give(struct zo_text_stream *stream, size_t end_bytes,
                 const char **text_out, size_t *size_bytes_out)
{
    const size_t from = stream->given_bytes;

    *text_out = stream->text != NULL ? stream->text + from : "";
    *size_bytes_out = end_bytes > from ? end_bytes - from : 0;
    stream->given_bytes = end_bytes > from ? end_bytes : from;
}

enum zo_status zo_text_stream_add(struct zo_text_stream *stream, int32_t id,
                                  const char **text_out, size_t *size_bytes_out)
{
    ZO_TRY(zo_ids_push(&stream->ids, id));
    zo_free(stream->text);
    stream->text = NULL;
    stream->text_bytes = 0;
    ZO_TRY(zo_tokenizer_decode(stream->tokenizer, stream->ids.items,
                               stream->ids.count, &stream->text,
                               &stream->text_bytes));
    give(stream,
         stream->text_bytes - held_bytes(stream->text, stream->text_bytes),
         text_out, size_bytes_out);
    return ZO_OK;
}

void zo_text_stream_end(struct zo_text_stream *stream, const char **text_out,
                        size_t *size_bytes_out)
{
    give(stream, stream->text_bytes, text_out, size_bytes_out);
}
