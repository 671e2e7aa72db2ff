#include "src/data/rows.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/data/row_json.h"
#include "src/data/row_source.h"

#define COLUMNS_MAX    8   /* prompt columns */
#define KEYS_SHOWN     200 /* bytes of a list of keys in a message */
#define DESCRIBE_BYTES 256

struct zo_rows {
    struct zo_row_source *source; /* owned */
    char *prompt_columns;         /* owned: the names, each terminated */
    const char *prompts[COLUMNS_MAX];
    size_t prompt_count;
    char *response_column; /* owned */
    char *history_column;  /* owned; NULL: none */
    bool columns_given, allow_empty, kind_is_known;
    int32_t vocab_size;
    enum zo_row_kind kind;
    const char *messages_key; /* "messages" or "conversations" */
    struct zo_row_json json;  /* the row; its nodes are reused */
    struct zo_turn *turns;    /* owned, as the lists below */
    size_t turn_count, turn_capacity;
    char *joined; /* the prompt of several columns */
    size_t joined_capacity;
    struct zo_ids ids, labels;
    char describe[DESCRIBE_BYTES];
};

/* Fails at a node of the row: "FILE:LINE:COLUMN: " and what follows. */
#define FAIL_AS(status, rows, node, format, ...)                \
    ZO_FAIL((status), "%s:%lld:%u: " format, (rows)->json.path, \
            (long long)zo_row_json_line(&(rows)->json, (node)), \
            (node)->column, __VA_ARGS__)
#define FAIL_AT(rows, node, ...) FAIL_AS(ZO_E_DATA, rows, node, __VA_ARGS__)

static enum zo_status split_columns(struct zo_rows *rows, const char *list)
{
    char *name;

    ZO_TRY(zo_strndup(list, strlen(list), &rows->prompt_columns));
    name = rows->prompt_columns;
    for (;;) {
        char *comma = strchr(name, ',');

        if (comma != NULL) {
            *comma = '\0';
        }
        if (*name == '\0' || rows->prompt_count == COLUMNS_MAX) {
            return ZO_FAIL(ZO_E_USAGE,
                           "prompt column \"%s\": want 1 to %d names with "
                           "commas between them",
                           list, COLUMNS_MAX);
        }
        rows->prompts[rows->prompt_count++] = name;
        if (comma == NULL) {
            return ZO_OK;
        }
        name = comma + 1;
    }
}

static enum zo_status copy_options(const struct zo_rows_options *options,
                                   struct zo_rows *rows)
{
    const char *prompt = options->prompt_column, *history, *response;

    response = options->response_column;
    history = options->history_column;
    rows->columns_given = prompt != NULL || response != NULL;
    rows->allow_empty = options->allow_empty;
    rows->vocab_size = options->vocab_size;
    ZO_TRY(split_columns(rows, prompt != NULL ? prompt : "content"));
    response = response != NULL ? response : "summary";
    ZO_TRY(zo_strndup(response, strlen(response), &rows->response_column));
    if (history != NULL) {
        ZO_TRY(zo_strndup(history, strlen(history), &rows->history_column));
    }
    if (*response == '\0' || (history != NULL && *history == '\0')) {
        return ZO_FAIL(ZO_E_USAGE, "%s column: want a name, found none",
                       *response == '\0' ? "response" : "history");
    }
    return ZO_OK;
}

enum zo_status zo_rows_open(const struct zo_rows_options *options,
                            struct zo_rows **rows_out)
{
    struct zo_rows *rows = NULL;
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*rows), "the data file", &rows));
    ZO_TRY_GOTO(close_rows, copy_options(options, rows));
    ZO_TRY_GOTO(close_rows, zo_row_source_open(options->path, &rows->source));
    *rows_out = rows;
    return ZO_OK;

close_rows:
    zo_rows_close(rows);
    return status;
}

void zo_rows_close(struct zo_rows *rows)
{
    if (rows == NULL) {
        return;
    }
    zo_row_source_close(rows->source);
    zo_row_json_fini(&rows->json);
    zo_ids_fini(&rows->ids);
    zo_ids_fini(&rows->labels);
    zo_free(rows->prompt_columns);
    zo_free(rows->response_column);
    zo_free(rows->history_column);
    zo_free(rows->turns);
    zo_free(rows->joined);
    zo_free(rows);
}

bool zo_rows_is_broken(const struct zo_rows *rows)
{
    return zo_row_source_is_broken(rows->source);
}

bool zo_rows_looks_json(const struct zo_rows *rows)
{
    return zo_row_source_looks_json(rows->source);
}

const char *zo_rows_describe(const struct zo_rows *rows)
{
    return rows->describe;
}

/* "\"content\", \"summary\"" of an object, cut to KEYS_SHOWN bytes. */
static const char *list_keys(const struct zo_rows *rows,
                             const struct zo_row_node *object,
                             char list[KEYS_SHOWN])
{
    const struct zo_row_node *key = zo_row_json_first(object);
    size_t put = 0;

    (void)snprintf(list, KEYS_SHOWN, "no key");
    for (uint32_t i = 0; i < object->child_count; i++) {
        if (put + key->size_bytes + 8 > KEYS_SHOWN) {
            (void)snprintf(list + put, KEYS_SHOWN - put, "%s...",
                           i > 0 ? ", " : "");
            return list;
        }
        put += (size_t)snprintf(list + put, KEYS_SHOWN - put, "%s\"%.*s\"",
                                i > 0 ? ", " : "", (int)key->size_bytes,
                                zo_row_json_string(&rows->json, key));
        key = zo_row_json_after(&rows->json, key + 1);
    }
    return list;
}

/*
 * The value of a column, which every row must have.  When no row had it, the
 * wrong one was asked for; when one has lost it, the data is bad.
 */
static enum zo_status get_column(const struct zo_rows *rows,
                                 const struct zo_row_node *object,
                                 const char *name,
                                 const struct zo_row_node **value_out)
{
    char keys[KEYS_SHOWN];
    const struct zo_row_node *value =
        zo_row_json_find(&rows->json, object, name);

    if (value == NULL) {
        return FAIL_AS(rows->kind_is_known ? ZO_E_DATA : ZO_E_USAGE, rows,
                       object, "no \"%s\" in this row, which has %s%s", name,
                       list_keys(rows, object, keys),
                       rows->kind_is_known ? ""
                                           : "; --prompt-column, "
                                             "--response-column and "
                                             "--history-column name keys");
    }
    *value_out = value;
    return ZO_OK;
}

static enum zo_status add_turn(struct zo_rows *rows, enum zo_role role,
                               const char *text, size_t size_bytes)
{
    ZO_TRY(zo_grow(&rows->turns, rows->turn_count, &rows->turn_capacity,
                   sizeof(rows->turns[0]), "the turns of a row"));
    rows->turns[rows->turn_count++] = (struct zo_turn){role, text, size_bytes};
    return ZO_OK;
}

/* Adds a turn whose text is a string node. */
static enum zo_status add_string(struct zo_rows *rows, enum zo_role role,
                                 const struct zo_row_node *node)
{
    return add_turn(rows, role, zo_row_json_string(&rows->json, node),
                    node->size_bytes);
}

static enum zo_status want_type(const struct zo_rows *rows,
                                const struct zo_row_node *node,
                                enum zo_row_type type, const char *what)
{
    if (node->type != type) {
        return FAIL_AT(rows, node, "%s: want %s, found %s", what,
                       zo_row_type_name(type), zo_row_type_name(node->type));
    }
    return ZO_OK;
}

/* One past round of the history column: [question, answer]. */
static enum zo_status add_round(struct zo_rows *rows,
                                const struct zo_row_node *pair)
{
    const struct zo_row_node *text = zo_row_json_first(pair);

    ZO_TRY(want_type(rows, pair, ZO_ROW_ARRAY, "a round of the history"));
    if (pair->child_count != 2) {
        return FAIL_AT(rows, pair,
                       "a round of the history: want [question, answer], "
                       "found %u elements",
                       pair->child_count);
    }
    for (int i = 0; i < 2; i++) {
        ZO_TRY(want_type(rows, text, ZO_ROW_STRING,
                         i == 0 ? "a question of the history"
                                : "an answer of the history"));
        ZO_TRY(
            add_string(rows, i == 0 ? ZO_ROLE_USER : ZO_ROLE_ASSISTANT, text));
        text = zo_row_json_after(&rows->json, text);
    }
    return ZO_OK;
}

static enum zo_status add_history(struct zo_rows *rows,
                                  const struct zo_row_node *object)
{
    const struct zo_row_node *history = NULL, *round;

    ZO_TRY(get_column(rows, object, rows->history_column, &history));
    if (history->type == ZO_ROW_NULL) {
        return ZO_OK;
    }
    ZO_TRY(want_type(rows, history, ZO_ROW_ARRAY, rows->history_column));
    round = zo_row_json_first(history);
    for (uint32_t i = 0; i < history->child_count; i++) {
        ZO_TRY(add_round(rows, round));
        round = zo_row_json_after(&rows->json, round);
    }
    return ZO_OK;
}

static enum zo_status append_joined(struct zo_rows *rows, size_t *count,
                                    const struct zo_row_node *part)
{
    const size_t need = *count + part->size_bytes + 1;

    if (need > rows->joined_capacity) {
        ZO_TRY(zo_realloc(&rows->joined, 2 * need, 1, "a prompt"));
        rows->joined_capacity = 2 * need;
    }
    if (*count > 0) {
        rows->joined[(*count)++] = '\n';
    }
    memcpy(rows->joined + *count, zo_row_json_string(&rows->json, part),
           part->size_bytes);
    *count += part->size_bytes;
    return ZO_OK;
}

static bool is_nothing(const struct zo_row_node *node)
{
    return node->type == ZO_ROW_NULL ||
           (node->type == ZO_ROW_STRING && node->size_bytes == 0);
}

/* The prompt: one column, or several joined by \n. */
static enum zo_status add_prompt(struct zo_rows *rows,
                                 const struct zo_row_node *object,
                                 const struct zo_row_node **first_out)
{
    size_t joined_bytes = 0;

    for (size_t i = 0; i < rows->prompt_count; i++) {
        const struct zo_row_node *value = NULL;

        ZO_TRY(get_column(rows, object, rows->prompts[i], &value));
        if (i == 0) {
            *first_out = value;
        }
        if (is_nothing(value)) {
            continue;
        }
        ZO_TRY(want_type(rows, value, ZO_ROW_STRING, rows->prompts[i]));
        if (rows->prompt_count == 1) {
            return add_string(rows, ZO_ROLE_USER, value);
        }
        ZO_TRY(append_joined(rows, &joined_bytes, value));
    }
    return add_turn(rows, ZO_ROLE_USER, rows->joined, joined_bytes);
}

static enum zo_status read_columns(struct zo_rows *rows,
                                   const struct zo_row_node *object,
                                   struct zo_row *row)
{
    const struct zo_row_node *prompt = NULL, *response = NULL, *empty;

    if (rows->history_column != NULL) {
        ZO_TRY(add_history(rows, object));
    }
    ZO_TRY(add_prompt(rows, object, &prompt));
    ZO_TRY(get_column(rows, object, rows->response_column, &response));
    if (!is_nothing(response)) {
        ZO_TRY(want_type(rows, response, ZO_ROW_STRING, rows->response_column));
    }
    row->is_empty = rows->turns[rows->turn_count - 1].size_bytes == 0 ||
                    is_nothing(response);
    if (row->is_empty && !rows->allow_empty) {
        empty = is_nothing(response) ? response : prompt;
        return FAIL_AT(rows, empty, "%s: want text, found %s",
                       is_nothing(response) ? rows->response_column
                                            : rows->prompts[0],
                       empty->type == ZO_ROW_NULL ? "null" : "an empty string");
    }
    if (row->is_empty) {
        return ZO_OK;
    }
    return add_string(rows, ZO_ROLE_ASSISTANT, response);
}

static enum zo_status find_role(const struct zo_rows *rows,
                                const struct zo_row_node *node,
                                enum zo_role *role_out)
{
    static const struct {
        const char *name;
        enum zo_role role;
    } roles[] = {
        {"user", ZO_ROLE_USER},           {"human", ZO_ROLE_USER},
        {"assistant", ZO_ROLE_ASSISTANT}, {"gpt", ZO_ROLE_ASSISTANT},
        {"system", ZO_ROLE_SYSTEM},       {"observation", ZO_ROLE_OBSERVATION},
        {"tool", ZO_ROLE_OBSERVATION},
    };
    const char *name = zo_row_json_string(&rows->json, node);

    for (size_t i = 0; i < ZO_COUNT(roles); i++) {
        if (strlen(roles[i].name) == node->size_bytes &&
            memcmp(roles[i].name, name, node->size_bytes) == 0) {
            *role_out = roles[i].role;
            return ZO_OK;
        }
    }
    return FAIL_AT(rows, node,
                   "role \"%.*s\": want user (human), assistant (gpt), system "
                   "or observation (tool)",
                   (int)(node->size_bytes < 40 ? node->size_bytes : 40), name);
}

/* {"role": ..., "content": ...} or {"from": ..., "value": ...}. */
static enum zo_status add_message(struct zo_rows *rows,
                                  const struct zo_row_node *message)
{
    const struct zo_row_node *role, *content;
    enum zo_role found = ZO_ROLE_USER;
    char keys[KEYS_SHOWN];

    ZO_TRY(want_type(rows, message, ZO_ROW_OBJECT, "a message"));
    ZO_TRY(zo_row_json_check_keys(&rows->json, message));
    role = zo_row_json_find(&rows->json, message, "role");
    content = zo_row_json_find(&rows->json, message, "content");
    if (role == NULL) {
        role = zo_row_json_find(&rows->json, message, "from");
    }
    if (content == NULL) {
        content = zo_row_json_find(&rows->json, message, "value");
    }
    if (role == NULL || content == NULL) {
        return FAIL_AT(rows, message,
                       "a message: want \"role\" and \"content\" (or \"from\" "
                       "and \"value\"), it has %s",
                       list_keys(rows, message, keys));
    }
    ZO_TRY(want_type(rows, role, ZO_ROW_STRING, "the role of a message"));
    ZO_TRY(find_role(rows, role, &found));
    ZO_TRY(want_type(rows, content, ZO_ROW_STRING, "the content of a message"));
    return add_string(rows, found, content);
}

static enum zo_status read_messages(struct zo_rows *rows,
                                    const struct zo_row_node *object)
{
    const struct zo_row_node *list = NULL, *message;

    ZO_TRY(get_column(rows, object, rows->messages_key, &list));
    ZO_TRY(want_type(rows, list, ZO_ROW_ARRAY, rows->messages_key));
    message = zo_row_json_first(list);
    for (uint32_t i = 0; i < list->child_count; i++) {
        ZO_TRY(add_message(rows, message));
        message = zo_row_json_after(&rows->json, message);
    }
    if (rows->turn_count == 0 ||
        rows->turns[rows->turn_count - 1].role != ZO_ROLE_ASSISTANT) {
        return FAIL_AT(
            rows, list, "%s: want the last one from the assistant, %s",
            rows->messages_key,
            rows->turn_count == 0 ? "found none" : "found another role");
    }
    return ZO_OK;
}

static enum zo_status read_text(struct zo_rows *rows,
                                const struct zo_row_node *object)
{
    const struct zo_row_node *text = NULL;

    ZO_TRY(get_column(rows, object, "text", &text));
    ZO_TRY(want_type(rows, text, ZO_ROW_STRING, "text"));
    if (text->size_bytes == 0) {
        return FAIL_AT(rows, text, "%s: want text, found an empty string",
                       "text");
    }
    return add_string(rows, ZO_ROLE_USER, text);
}

/* A list of ids below the vocabulary's size; `ignored` is one more value. */
static enum zo_status read_id_list(struct zo_rows *rows,
                                   const struct zo_row_node *list,
                                   const char *name, int32_t ignored,
                                   struct zo_ids *ids)
{
    const struct zo_row_node *node = zo_row_json_first(list);

    ids->count = 0;
    ZO_TRY(want_type(rows, list, ZO_ROW_ARRAY, name));
    for (uint32_t i = 0; i < list->child_count; i++) {
        int64_t id = -1;

        if (!zo_row_json_integer(&rows->json, node, &id)) {
            return FAIL_AT(rows, node, "%s[%u]: want a token id, found %s",
                           name, i,
                           node->type == ZO_ROW_NUMBER
                               ? "a number that is no small integer"
                               : zo_row_type_name(node->type));
        }
        if ((id < 0 || id >= rows->vocab_size) && id != ignored) {
            return FAIL_AT(rows, node,
                           "%s[%u] is %lld: outside the vocabulary, want 0 "
                           "to %d",
                           name, i, (long long)id, rows->vocab_size - 1);
        }
        ZO_TRY(zo_ids_push(ids, (int32_t)id));
        node = zo_row_json_after(&rows->json, node);
    }
    return ZO_OK;
}

static enum zo_status read_ids(struct zo_rows *rows,
                               const struct zo_row_node *object,
                               struct zo_row *row)
{
    const struct zo_row_node *list = NULL, *labels;

    ZO_TRY(get_column(rows, object, "input_ids", &list));
    ZO_TRY(read_id_list(rows, list, "input_ids", 0, &rows->ids));
    if (rows->ids.count == 0) {
        return FAIL_AT(rows, list, "%s: want token ids, found none",
                       "input_ids");
    }
    row->ids = rows->ids.items;
    row->id_count = rows->ids.count;
    labels = zo_row_json_find(&rows->json, object, "labels");
    if (labels == NULL) {
        return ZO_OK;
    }
    ZO_TRY(read_id_list(rows, labels, "labels", -100, &rows->labels));
    if (rows->labels.count != rows->ids.count) {
        return FAIL_AT(rows, labels,
                       "labels: want as many as input_ids, %zu, found %zu",
                       rows->ids.count, rows->labels.count);
    }
    row->labels = rows->labels.items;
    return ZO_OK;
}

/* The rules of rows.h, on the first good row. */
static enum zo_status find_kind(struct zo_rows *rows,
                                const struct zo_row_node *object)
{
    const struct zo_row_json *json = &rows->json;
    const bool has_prompt =
        zo_row_json_find(json, object, rows->prompts[0]) != NULL;
    const bool has_response =
        zo_row_json_find(json, object, rows->response_column) != NULL;
    const bool has_text = zo_row_json_find(json, object, "text") != NULL;
    char keys[KEYS_SHOWN];

    rows->messages_key = zo_row_json_find(json, object, "messages") != NULL
                             ? "messages"
                             : "conversations";
    if (rows->columns_given) {
        rows->kind = ZO_ROWS_COLUMNS;
    } else if (zo_row_json_find(json, object, "input_ids") != NULL) {
        rows->kind = ZO_ROWS_IDS;
    } else if (zo_row_json_find(json, object, rows->messages_key) != NULL) {
        rows->kind = ZO_ROWS_MESSAGES;
    } else if (has_prompt && has_response) {
        rows->kind = ZO_ROWS_COLUMNS;
    } else if (has_text) {
        rows->kind = ZO_ROWS_TEXT;
    } else if (has_prompt || has_response) {
        rows->kind = ZO_ROWS_COLUMNS;
    } else {
        return FAIL_AS(ZO_E_USAGE, rows, object,
                       "this row has %s; want \"%s\" and \"%s\" "
                       "(--prompt-column and --response-column name others), "
                       "\"messages\", \"text\" or \"input_ids\"",
                       list_keys(rows, object, keys), rows->prompts[0],
                       rows->response_column);
    }
    return ZO_OK;
}

static void describe_kind(struct zo_rows *rows)
{
    char *target = rows->describe;

    switch (rows->kind) {
    case ZO_ROWS_COLUMNS:
        (void)snprintf(
            target, DESCRIBE_BYTES,
            "prompt column %.60s%s, response column %.60s%s%.60s",
            rows->prompts[0], rows->prompt_count > 1 ? " and others" : "",
            rows->response_column,
            rows->history_column != NULL ? ", history column " : "",
            rows->history_column != NULL ? rows->history_column : "");
        break;
    case ZO_ROWS_MESSAGES:
        (void)snprintf(target, DESCRIBE_BYTES,
                       "conversations (%s), every answer counted",
                       rows->messages_key);
        break;
    case ZO_ROWS_TEXT:
        (void)snprintf(target, DESCRIBE_BYTES, "text, every token counted");
        break;
    case ZO_ROWS_IDS:
        (void)snprintf(target, DESCRIBE_BYTES, "input_ids");
        break;
    }
    rows->kind_is_known = true;
}

static enum zo_status read_row(struct zo_rows *rows, struct zo_row *row)
{
    const struct zo_row_node *object = &rows->json.nodes[0];

    if (object->type != ZO_ROW_OBJECT) {
        return FAIL_AT(rows, object, "a row: want an object, found %s",
                       zo_row_type_name(object->type));
    }
    ZO_TRY(zo_row_json_check_keys(&rows->json, object));
    if (!rows->kind_is_known) {
        ZO_TRY(find_kind(rows, object));
    }
    row->kind = rows->kind;
    switch (rows->kind) {
    case ZO_ROWS_COLUMNS:
        return read_columns(rows, object, row);
    case ZO_ROWS_MESSAGES:
        return read_messages(rows, object);
    case ZO_ROWS_TEXT:
        return read_text(rows, object);
    case ZO_ROWS_IDS:
        return read_ids(rows, object, row);
    }
    return ZO_OK;
}

enum zo_status zo_rows_next(struct zo_rows *rows, struct zo_row *row_out,
                            bool *is_end_out)
{
    struct zo_row_bytes bytes = {0};
    struct zo_row row = {0};
    bool is_end = false;

    ZO_TRY(zo_row_source_next(rows->source, &bytes, &is_end));
    if (is_end) {
        *is_end_out = true;
        return ZO_OK;
    }
    ZO_TRY(zo_row_json_parse(&rows->json, bytes.text, bytes.size_bytes,
                             zo_row_source_path(rows->source), bytes.line,
                             bytes.column));
    rows->turn_count = 0;
    ZO_TRY(read_row(rows, &row));
    if (!rows->kind_is_known) {
        describe_kind(rows);
    }
    row.line = bytes.line;
    row.turns = rows->turns;
    row.turn_count = rows->turn_count;
    *row_out = row;
    *is_end_out = false;
    return ZO_OK;
}
