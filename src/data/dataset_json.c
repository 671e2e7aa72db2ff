/* zo_dataset_row_json(): a row as `inspect` prints it. */
#include "src/data/dataset.h"

#include <stdio.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/base/text.h"

/* A line under construction; all zero is empty. */
struct line {
    char *text; /* owned */
    size_t count, capacity;
};

static enum zo_status put(struct line *line, const char *text, size_t count)
{
    const size_t need = line->count + count + 1;

    if (need > line->capacity) {
        ZO_TRY(zo_realloc(&line->text, 2 * need, 1, "a row as JSON"));
        line->capacity = 2 * need;
    }
    memcpy(line->text + line->count, text, count);
    line->count += count;
    line->text[line->count] = '\0';
    return ZO_OK;
}

static enum zo_status put_number(struct line *line, int32_t number,
                                 bool is_first)
{
    char digits[16];

    (void)snprintf(digits, sizeof(digits), "%s%d", is_first ? "" : ", ",
                   number);
    return put(line, digits, strlen(digits));
}

static enum zo_status
put_labels(struct line *line, const struct zo_dataset *dataset, int64_t index)
{
    const struct zo_row_view row = zo_dataset_row(dataset, index);
    int32_t at = 0;

    for (int32_t s = 0; s <= row.span_count; s++) {
        const struct zo_label_span span =
            s < row.span_count
                ? zo_dataset_span(dataset, index, s)
                : (struct zo_label_span){row.count, row.count, NULL};

        for (; at < span.begin; at++) {
            ZO_TRY(put_number(line, -100, at == 0));
        }
        for (; at < span.end; at++) {
            ZO_TRY(put_number(line, span.labels[at - span.begin], at == 0));
        }
    }
    return ZO_OK;
}

/* A string's content, escaped so that the line stays one and harmless. */
static enum zo_status put_escaped(struct line *line, const char *text,
                                  size_t size_bytes)
{
    for (size_t at = 0; at < size_bytes;) {
        uint32_t code = 0xfffd;
        size_t length = zo_utf8_decode(text + at, size_bytes - at, &code);
        char escape[16];

        length = length > 0 ? length : 1;
        if (code == '"' || code == '\\') {
            (void)snprintf(escape, sizeof(escape), "\\%c", (char)code);
            ZO_TRY(put(line, escape, strlen(escape)));
        } else if (code < 0x20 || (code >= 0x7f && code < 0xa0) ||
                   code == 0xfffd) {
            (void)snprintf(escape, sizeof(escape), "\\u%04x", code);
            ZO_TRY(put(line, escape, strlen(escape)));
        } else {
            ZO_TRY(put(line, text + at, length));
        }
        at += length;
    }
    return ZO_OK;
}

static enum zo_status put_row(struct line *line,
                              const struct zo_dataset *dataset, int64_t index,
                              const char *text, size_t text_bytes)
{
    static const char ids[] = "{\"input_ids\": [",
                      labels[] = "], \"labels\": [";
    static const char decoded[] = "], \"text\": \"";
    const struct zo_row_view row = zo_dataset_row(dataset, index);

    ZO_TRY(put(line, ids, strlen(ids)));
    for (int32_t i = 0; i < row.count; i++) {
        ZO_TRY(put_number(line, row.ids[i], i == 0));
    }
    ZO_TRY(put(line, labels, strlen(labels)));
    ZO_TRY(put_labels(line, dataset, index));
    ZO_TRY(put(line, decoded, strlen(decoded)));
    ZO_TRY(put_escaped(line, text, text_bytes));
    return put(line, "\"}", 2);
}

enum zo_status zo_dataset_row_json(const struct zo_dataset *dataset,
                                   const struct zo_tokenizer *tokenizer,
                                   int64_t index, char **json_out)
{
    const struct zo_row_view row = zo_dataset_row(dataset, index);
    struct line line = {0};
    char *text = NULL;
    size_t text_bytes = 0;
    enum zo_status status;

    if (tokenizer != NULL) {
        ZO_TRY(zo_tokenizer_decode(tokenizer, row.ids, (size_t)row.count, &text,
                                   &text_bytes));
    }
    status = put_row(&line, dataset, index, text, text_bytes);
    zo_free(text);
    if (status != ZO_OK) {
        zo_free(line.text);
        return status;
    }
    *json_out = line.text;
    return ZO_OK;
}
