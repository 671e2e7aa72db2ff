#include "config/json.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json_check.h"
#include "src/base/memory.h"
#include "src/base/text.h"

#define KEY_MAX_BYTES   128 /* of a segment of a --set path */
#define PATH_MAX_BYTES  256 /* of a path in a message */
#define WHERE_MAX_BYTES 512

/* A --set may put a value of full depth at the end of a path of full depth. */
#define CHAIN_MAX (2 * ZO_JSON_DEPTH_MAX + 2)

/*
 * A value's number in document order is kept in the node's valueint, which
 * nothing here reads as a number; a value that zo_json_set() put there has
 * -1 - the index of its path in `sets`.
 */
struct zo_json_doc {
    char *name;
    struct zo_json_options options;
    struct zo_json_scan scan; /* owns text and offsets */
    cJSON *root;
    char **sets; /* paths given to zo_json_set() */
    size_t set_count, set_capacity;
    cJSON **scratch; /* for sorting the members of an object */
    size_t scratch_capacity;
};

/* ---- cJSON's memory is ours ---- */

static void *hook_malloc(size_t size_bytes)
{
    void *memory = NULL;

    return zo_alloc(size_bytes, 1, "a JSON value", &memory) == ZO_OK ? memory
                                                                     : NULL;
}

static void set_hooks(void)
{
    cJSON_Hooks hooks = {.malloc_fn = hook_malloc, .free_fn = zo_free};

    cJSON_InitHooks(&hooks);
}

/* The hooks are cJSON's global; all threads set the same ones, once. */
static void set_hooks_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, set_hooks);
}

/* ---- looking ---- */

static const cJSON *node_of(const struct zo_json *value)
{
    return (const cJSON *)value;
}

static const struct zo_json *value_of(const cJSON *node)
{
    return (const struct zo_json *)node;
}

const struct zo_json *zo_json_root(const struct zo_json_doc *doc)
{
    return value_of(doc->root);
}

const char *zo_json_name(const struct zo_json_doc *doc)
{
    return doc->name;
}

enum zo_json_type zo_json_type(const struct zo_json *value)
{
    const cJSON *node = node_of(value);

    if (cJSON_IsObject(node)) {
        return ZO_JSON_OBJECT;
    }
    if (cJSON_IsArray(node)) {
        return ZO_JSON_ARRAY;
    }
    if (cJSON_IsString(node)) {
        return ZO_JSON_STRING;
    }
    if (cJSON_IsNumber(node)) {
        return ZO_JSON_NUMBER;
    }
    return cJSON_IsBool(node) ? ZO_JSON_BOOL : ZO_JSON_NULL;
}

const char *zo_json_type_name(const struct zo_json *value)
{
    switch (zo_json_type(value)) {
    case ZO_JSON_NULL:
        return "null";
    case ZO_JSON_BOOL:
        return "a boolean";
    case ZO_JSON_NUMBER:
        return "a number";
    case ZO_JSON_STRING:
        return "a string";
    case ZO_JSON_ARRAY:
        return "an array";
    case ZO_JSON_OBJECT:
        return "an object";
    }
    return "";
}

const struct zo_json *zo_json_first(const struct zo_json *container)
{
    const cJSON *node = node_of(container);

    return cJSON_IsObject(node) || cJSON_IsArray(node) ? value_of(node->child)
                                                       : NULL;
}

const struct zo_json *zo_json_next(const struct zo_json *value)
{
    return value_of(node_of(value)->next);
}

size_t zo_json_count(const struct zo_json *container)
{
    size_t count = 0;

    for (const struct zo_json *value = zo_json_first(container); value != NULL;
         value = zo_json_next(value)) {
        count++;
    }
    return count;
}

const char *zo_json_key(const struct zo_json *value)
{
    const char *key = node_of(value)->string;

    return key != NULL ? key : "";
}

const struct zo_json *zo_json_get(const struct zo_json *object, const char *key)
{
    if (object == NULL || zo_json_type(object) != ZO_JSON_OBJECT) {
        return NULL;
    }
    return value_of(cJSON_GetObjectItemCaseSensitive(node_of(object), key));
}

bool zo_json_bool(const struct zo_json *value)
{
    return cJSON_IsTrue(node_of(value));
}

double zo_json_number(const struct zo_json *value)
{
    return node_of(value)->valuedouble;
}

const char *zo_json_string(const struct zo_json *value)
{
    return node_of(value)->valuestring;
}

bool zo_json_int(const struct zo_json *value, int64_t *int_out)
{
    double number;

    if (zo_json_type(value) != ZO_JSON_NUMBER) {
        return false;
    }
    number = zo_json_number(value);
    if (number != trunc(number) || fabs(number) > (double)ZO_JSON_INT_MAX) {
        return false;
    }
    *int_out = (int64_t)number;
    return true;
}

/* ---- where a value is ---- */

bool zo_json_is_set(const struct zo_json *value)
{
    return node_of(value)->valueint < 0;
}

static void position_of(const struct zo_json_doc *doc,
                        const struct zo_json *value, int64_t *line_out,
                        int64_t *column_out)
{
    const size_t number =
        zo_json_is_set(value) ? 0 : (size_t)node_of(value)->valueint;

    zo_json_position(&doc->scan, doc->scan.offsets[number], line_out,
                     column_out);
}

int64_t zo_json_line(const struct zo_json_doc *doc, const struct zo_json *value)
{
    int64_t line = 0, column = 0;

    position_of(doc, value, &line, &column);
    return line;
}

int64_t zo_json_column(const struct zo_json_doc *doc,
                       const struct zo_json *value)
{
    int64_t line = 0, column = 0;

    position_of(doc, value, &line, &column);
    return column;
}

/* The chain of nodes from below the root to `target`; its length. */
static int find_chain(const cJSON *root, const cJSON *target,
                      const cJSON **chain)
{
    int depth = 0;

    if (root == target || root->child == NULL) {
        return 0;
    }
    chain[depth++] = root->child;
    for (;;) {
        const cJSON *node = chain[depth - 1];

        if (node == target) {
            return depth;
        }
        if (node->child != NULL) {
            ZO_ASSERT(depth < CHAIN_MAX);
            chain[depth++] = node->child;
            continue;
        }
        while (depth > 0 && chain[depth - 1]->next == NULL) {
            depth--;
        }
        if (depth == 0) {
            return 0;
        }
        chain[depth - 1] = chain[depth - 1]->next;
    }
}

static size_t index_in(const cJSON *parent, const cJSON *node)
{
    size_t index = 0;

    for (const cJSON *at = parent->child; at != node; at = at->next) {
        index++;
    }
    return index;
}

const char *zo_json_path(const struct zo_json_doc *doc,
                         const struct zo_json *value, char *target,
                         size_t target_bytes)
{
    const cJSON *chain[CHAIN_MAX];
    const int depth = find_chain(doc->root, node_of(value), chain);
    size_t length = 0;

    (void)snprintf(target, target_bytes, "%s",
                   depth == 0 ? "the top level" : "");
    for (int i = 0; i < depth && length < target_bytes; i++) {
        const cJSON *parent = i == 0 ? doc->root : chain[i - 1];
        int added;

        if (chain[i]->string != NULL) {
            added = snprintf(target + length, target_bytes - length, "%s%s",
                             i > 0 ? "." : "", chain[i]->string);
        } else {
            added = snprintf(target + length, target_bytes - length, "[%zu]",
                             index_in(parent, chain[i]));
        }
        length += added > 0 ? (size_t)added : 0;
    }
    return target;
}

const char *zo_json_where(const struct zo_json_doc *doc,
                          const struct zo_json *value, char *target,
                          size_t target_bytes)
{
    char path[PATH_MAX_BYTES];

    (void)zo_json_path(doc, value, path, sizeof(path));
    if (zo_json_is_set(value)) {
        const char *set = doc->sets[-1 - node_of(value)->valueint];
        const bool is_in_it = strncmp(path, set, strlen(set)) == 0;

        /* What is in it begins with its key; what it is in was made for it. */
        (void)snprintf(target, target_bytes, "%s%s--set %s",
                       is_in_it ? "" : path, is_in_it ? "" : ", made by ",
                       is_in_it ? path : set);
    } else {
        (void)snprintf(target, target_bytes, "%s:%lld: %s", doc->name,
                       (long long)zo_json_line(doc, value), path);
    }
    return target;
}

enum zo_status zo_json_fail(const struct zo_json_doc *doc,
                            const struct zo_json *value, const char *format,
                            ...)
{
    char message[ZO_ERR_TEXT_MAX], path[PATH_MAX_BYTES], where[WHERE_MAX_BYTES];
    int64_t line = 0, column = 0;
    va_list args;

    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    if (zo_json_is_set(value)) {
        return ZO_FAIL(doc->options.status, "%s: %s",
                       zo_json_where(doc, value, where, sizeof(where)),
                       message);
    }
    (void)zo_json_path(doc, value, path, sizeof(path));
    position_of(doc, value, &line, &column);
    return ZO_FAIL(doc->options.status, "%s:%lld:%lld: %s: %s", doc->name,
                   (long long)line, (long long)column, path, message);
}

/* ---- typed members ---- */

/* The member, or NULL; fails when it is missing and may not be. */
static enum zo_status find_member(const struct zo_json_doc *doc,
                                  const struct zo_json *object, const char *key,
                                  bool is_required,
                                  const struct zo_json **value_out)
{
    const struct zo_json *value = zo_json_get(object, key);

    if (value == NULL && is_required) {
        return zo_json_fail(doc, object, "has no key %s", key);
    }
    *value_out = value;
    return ZO_OK;
}

static enum zo_status fail_type(const struct zo_json_doc *doc,
                                const struct zo_json *value, const char *wanted)
{
    return zo_json_fail(doc, value, "want %s, found %s", wanted,
                        zo_json_type_name(value));
}

enum zo_status zo_json_get_bool(const struct zo_json_doc *doc,
                                const struct zo_json *object, const char *key,
                                bool is_required, bool *out)
{
    const struct zo_json *value = NULL;

    ZO_TRY(find_member(doc, object, key, is_required, &value));
    if (value == NULL) {
        return ZO_OK;
    }
    if (zo_json_type(value) != ZO_JSON_BOOL) {
        return fail_type(doc, value, "true or false");
    }
    *out = zo_json_bool(value);
    return ZO_OK;
}

enum zo_status zo_json_get_int(const struct zo_json_doc *doc,
                               const struct zo_json *object, const char *key,
                               bool is_required, int64_t min, int64_t max,
                               int64_t *out)
{
    const struct zo_json *value = NULL;
    int64_t number = 0;

    ZO_TRY(find_member(doc, object, key, is_required, &value));
    if (value == NULL) {
        return ZO_OK;
    }
    if (zo_json_type(value) != ZO_JSON_NUMBER) {
        return fail_type(doc, value, "an integer");
    }
    if (!zo_json_int(value, &number) || number < min || number > max) {
        return zo_json_fail(
            doc, value, "want an integer from %lld to %lld, found %.17g",
            (long long)min, (long long)max, zo_json_number(value));
    }
    *out = number;
    return ZO_OK;
}

enum zo_status zo_json_get_number(const struct zo_json_doc *doc,
                                  const struct zo_json *object, const char *key,
                                  bool is_required, double min, double max,
                                  double *out)
{
    const struct zo_json *value = NULL;
    double number;

    ZO_TRY(find_member(doc, object, key, is_required, &value));
    if (value == NULL) {
        return ZO_OK;
    }
    if (zo_json_type(value) != ZO_JSON_NUMBER) {
        return fail_type(doc, value, "a number");
    }
    number = zo_json_number(value);
    if (number < min || number > max) {
        return zo_json_fail(doc, value,
                            "want a number from %g to %g, found %.17g", min,
                            max, number);
    }
    *out = number;
    return ZO_OK;
}

enum zo_status zo_json_get_string(const struct zo_json_doc *doc,
                                  const struct zo_json *object, const char *key,
                                  bool is_required, const char **out)
{
    const struct zo_json *value = NULL;

    ZO_TRY(find_member(doc, object, key, is_required, &value));
    if (value == NULL) {
        return ZO_OK;
    }
    if (zo_json_type(value) != ZO_JSON_STRING) {
        return fail_type(doc, value, "a string");
    }
    *out = zo_json_string(value);
    return ZO_OK;
}

/* ---- parsing ---- */

/* Preorder, without recursion: fn for each node; stops at a failure. */
typedef enum zo_status (*visit_fn)(struct zo_json_doc *doc, cJSON *node,
                                   size_t number);

static enum zo_status visit_all(struct zo_json_doc *doc, cJSON *root,
                                visit_fn visit)
{
    cJSON *chain[CHAIN_MAX];
    int depth = 0;
    size_t number = 0;

    chain[depth++] = root;
    while (depth > 0) {
        cJSON *node = chain[depth - 1];

        ZO_TRY(visit(doc, node, number++));
        if (node->child != NULL) {
            ZO_ASSERT(depth < CHAIN_MAX);
            chain[depth++] = node->child;
            continue;
        }
        while (depth > 0 && (depth == 1 || chain[depth - 1]->next == NULL)) {
            depth--;
        }
        if (depth > 0) {
            chain[depth - 1] = chain[depth - 1]->next;
        }
    }
    return ZO_OK;
}

static enum zo_status number_node(struct zo_json_doc *doc, cJSON *node,
                                  size_t number)
{
    ZO_ASSERT(number < doc->scan.count);
    node->valueint = (int)number;
    if (cJSON_IsNumber(node) && !isfinite(node->valuedouble)) {
        return zo_json_fail(doc, value_of(node),
                            "the number is too large for a double");
    }
    return ZO_OK;
}

static int compare_keys(const void *a, const void *b)
{
    const cJSON *const *left = a, *const *right = b;
    const int order = strcmp((*left)->string, (*right)->string);

    if (order != 0) {
        return order;
    }
    return ((*left)->valueint > (*right)->valueint) -
           ((*left)->valueint < (*right)->valueint);
}

static enum zo_status check_keys(struct zo_json_doc *doc, cJSON *node,
                                 size_t number)
{
    size_t count = 0;

    (void)number;
    if (!cJSON_IsObject(node)) {
        return ZO_OK;
    }
    for (cJSON *child = node->child; child != NULL; child = child->next) {
        ZO_TRY(zo_grow(&doc->scratch, count, &doc->scratch_capacity,
                       sizeof(cJSON *), "the keys of an object"));
        doc->scratch[count++] = child;
    }
    if (count > 1) {
        qsort(doc->scratch, count, sizeof(cJSON *), compare_keys);
    }
    for (size_t i = 1; i < count; i++) {
        const cJSON *first = doc->scratch[i - 1];

        if (strcmp(first->string, doc->scratch[i]->string) == 0) {
            return zo_json_fail(
                doc, value_of(doc->scratch[i]),
                "the key is there twice: lines %lld and %lld",
                (long long)zo_json_line(doc, value_of(first)),
                (long long)zo_json_line(doc, value_of(doc->scratch[i])));
        }
    }
    return ZO_OK;
}

static enum zo_status parse_text(struct zo_json_doc *doc)
{
    ZO_TRY(zo_json_scan(&doc->scan));
    if (doc->scan.count > INT_MAX) {
        return ZO_FAIL(doc->options.status, "%s: more than %d values",
                       doc->name, INT_MAX);
    }
    set_hooks_once();
    doc->root = cJSON_ParseWithLength(doc->scan.text, doc->scan.size_bytes);
    if (doc->root == NULL) { /* the scan proved it to be JSON */
        return ZO_FAIL(ZO_E_NOMEM, "%s: no memory for its %zu values",
                       doc->name, doc->scan.count);
    }
    ZO_TRY(visit_all(doc, doc->root, number_node));
    ZO_TRY(visit_all(doc, doc->root, check_keys));
    zo_free(doc->scratch);
    doc->scratch = NULL;
    doc->scratch_capacity = 0;
    return ZO_OK;
}

static enum zo_status make_doc(const char *name,
                               const struct zo_json_options *options,
                               struct zo_json_doc **doc_out)
{
    struct zo_json_doc *doc = NULL;
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*doc), "a JSON document", &doc));
    if (options != NULL) {
        doc->options = *options;
    }
    if (doc->options.status == ZO_OK) {
        doc->options.status = ZO_E_CONFIG;
    }
    if (doc->options.size_max_bytes == 0) {
        doc->options.size_max_bytes = ZO_JSON_SIZE_MAX;
    }
    if (doc->options.first_line == 0) {
        doc->options.first_line = 1;
    }
    ZO_TRY_GOTO(close_doc, zo_strndup(name, strlen(name), &doc->name));
    doc->scan.name = doc->name;
    doc->scan.options = &doc->options;
    *doc_out = doc;
    return ZO_OK;

close_doc:
    zo_json_close(doc);
    return status;
}

enum zo_status zo_json_parse(const char *name, const char *text,
                             size_t size_bytes,
                             const struct zo_json_options *options,
                             struct zo_json_doc **doc_out)
{
    struct zo_json_doc *doc = NULL;
    enum zo_status status;

    ZO_TRY(make_doc(name, options, &doc));
    if (size_bytes > doc->options.size_max_bytes) {
        status = ZO_FAIL(doc->options.status,
                         "%s: %zu bytes of JSON, want at most %zu", name,
                         size_bytes, doc->options.size_max_bytes);
        goto close_doc;
    }
    if (size_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3; /* a byte order mark */
        size_bytes -= 3;
    }
    ZO_TRY_GOTO(close_doc, zo_strndup(text, size_bytes, &doc->scan.text));
    doc->scan.size_bytes = size_bytes;
    ZO_TRY_GOTO(close_doc, parse_text(doc));
    *doc_out = doc;
    return ZO_OK;

close_doc:
    zo_json_close(doc);
    return status;
}

void zo_json_close(struct zo_json_doc *doc)
{
    if (doc == NULL) {
        return;
    }
    cJSON_Delete(doc->root);
    for (size_t i = 0; i < doc->set_count; i++) {
        zo_free(doc->sets[i]);
    }
    zo_free(doc->sets);
    zo_free(doc->scratch);
    zo_free(doc->scan.text);
    zo_free(doc->scan.offsets);
    zo_free(doc->name);
    zo_free(doc);
}

/* ---- --set ---- */

/* The next segment of a dotted path into key; NULL when it is malformed. */
static const char *next_segment(const char *path, char key[KEY_MAX_BYTES])
{
    const size_t length = strcspn(path, ".");

    if (length == 0 || length >= KEY_MAX_BYTES ||
        (path[length] == '.' && path[length + 1] == '\0')) {
        return NULL;
    }
    memcpy(key, path, length);
    key[length] = '\0';
    return path + length + (path[length] == '.');
}

static void mark_set(cJSON *node, int mark)
{
    node->valueint = mark;
}

static enum zo_status mark_node(struct zo_json_doc *doc, cJSON *node,
                                size_t number)
{
    (void)number;
    mark_set(node, -(int)doc->set_count);
    return ZO_OK;
}

/* What follows the = of a --set: JSON, or else a string. */
static enum zo_status parse_set_value(const char *path, const char *text,
                                      cJSON **node_out)
{
    const struct zo_json_options options = {.status = ZO_E_USAGE};
    const char first = text[strspn(text, " \t\r\n")];
    struct zo_json_doc *doc = NULL;
    char name[KEY_MAX_BYTES + 8];
    enum zo_status status;

    (void)snprintf(name, sizeof(name), "--set %s", path);
    status = zo_json_parse(name, text, strlen(text), &options, &doc);
    if (status == ZO_OK) {
        *node_out = doc->root;
        doc->root = NULL;
        zo_json_close(doc);
        return ZO_OK;
    }
    if (status == ZO_E_NOMEM || first == '{' || first == '[' || first == '"' ||
        !zo_utf8_valid(text, strlen(text), NULL)) {
        return status;
    }
    *node_out = cJSON_CreateString(text);
    return *node_out != NULL ? ZO_OK
                             : ZO_FAIL(ZO_E_NOMEM, "--set %s: no memory", path);
}

/* The object that the last segment belongs to; makes what is missing. */
static enum zo_status walk_to_parent(struct zo_json_doc *doc, const char *path,
                                     char key[KEY_MAX_BYTES],
                                     cJSON **parent_out)
{
    cJSON *parent = doc->root;
    int depth = 0;

    for (const char *rest = path;;) {
        cJSON *child;

        rest = next_segment(rest, key);
        if (rest == NULL || ++depth >= ZO_JSON_DEPTH_MAX) {
            return ZO_FAIL(ZO_E_USAGE, "--set %s: want KEY.PATH=VALUE", path);
        }
        if (!cJSON_IsObject(parent)) {
            return ZO_FAIL(ZO_E_USAGE,
                           "--set %s: what %s belongs to is %s, "
                           "not an object",
                           path, key, zo_json_type_name(value_of(parent)));
        }
        if (*rest == '\0') {
            *parent_out = parent;
            return ZO_OK;
        }
        child = cJSON_GetObjectItemCaseSensitive(parent, key);
        if (child == NULL) {
            child = cJSON_AddObjectToObject(parent, key);
            if (child == NULL) {
                return ZO_FAIL(ZO_E_NOMEM, "--set %s: no memory", path);
            }
            mark_set(child, -(int)doc->set_count);
        }
        parent = child;
    }
}

enum zo_status zo_json_set(struct zo_json_doc *doc, const char *path,
                           const char *text)
{
    char key[KEY_MAX_BYTES];
    cJSON *node = NULL, *parent = NULL, *old;
    enum zo_status status;

    ZO_TRY(zo_grow(&doc->sets, doc->set_count, &doc->set_capacity,
                   sizeof(*doc->sets), "the list of overrides"));
    ZO_TRY(zo_strndup(path, strlen(path), &doc->sets[doc->set_count]));
    doc->set_count++;
    ZO_TRY(walk_to_parent(doc, path, key, &parent));
    ZO_TRY(parse_set_value(path, text, &node));
    ZO_TRY_GOTO(delete_node, visit_all(doc, node, mark_node));
    old = cJSON_DetachItemFromObjectCaseSensitive(parent, key);
    if (!cJSON_AddItemToObject(parent, key, node)) {
        status = ZO_FAIL(ZO_E_NOMEM, "--set %s: no memory", path);
        cJSON_Delete(old);
        goto delete_node;
    }
    cJSON_Delete(old);
    return ZO_OK;

delete_node:
    cJSON_Delete(node);
    return status;
}
