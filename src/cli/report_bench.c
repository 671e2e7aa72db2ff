/* Benchmarks: tables of any suite, and figures of those that are known. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/cli/report_figures.h"
#include "src/cli/report_scale.h"

#define COLUMNS_MAX 24
#define ROWS_MAX    400 /* of a table */

/* ---- tables of any suite ------------------------------------------------- */

static bool is_scalar(const struct zo_json *value)
{
    return zo_json_type(value) != ZO_JSON_ARRAY &&
           zo_json_type(value) != ZO_JSON_OBJECT;
}

/* Keys of the values of the first line that has most of them. */
static size_t find_columns(const struct zo_report_bench *bench,
                           const char **columns)
{
    const struct zo_json *root = zo_json_root(bench->rows[0].doc);
    size_t count = 0;

    for (size_t r = 1; r < bench->row_count; r++) {
        const struct zo_json *other = zo_json_root(bench->rows[r].doc);

        if (zo_json_count(other) > zo_json_count(root)) {
            root = other;
        }
    }
    for (const struct zo_json *value = zo_json_first(root);
         value != NULL && count < COLUMNS_MAX; value = zo_json_next(value)) {
        const char *key = zo_json_key(value);

        if (is_scalar(value) && strcmp(key, "suite") != 0 &&
            strcmp(key, "kind") != 0 && strcmp(key, "format") != 0) {
            columns[count++] = key;
        }
    }
    columns[count] = NULL;
    return count;
}

static bool ends_in(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);

    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static void put_value(struct zo_page *page, const char *key,
                      const struct zo_json *value)
{
    if (value == NULL || zo_json_type(value) == ZO_JSON_NULL) {
        zo_page_put(page, "<td></td>");
        return;
    }
    switch (zo_json_type(value)) {
    case ZO_JSON_NUMBER:
        if (strstr(key, "bytes") != NULL) {
            zo_page_cell_bytes(page, zo_json_number(value));
        } else if (ends_in(key, "seconds") || strstr(key, "seconds_")) {
            zo_page_cell_seconds(page, zo_json_number(value));
        } else {
            zo_page_cell(page, zo_json_number(value), 6);
        }
        return;
    case ZO_JSON_STRING:
        zo_page_put(page, "<td>");
        zo_page_text(page, zo_json_string(value), 120);
        zo_page_put(page, "</td>");
        return;
    case ZO_JSON_BOOL:
        zo_page_put(page, "<td>%s</td>", zo_json_bool(value) ? "yes" : "no");
        return;
    case ZO_JSON_NULL:
    case ZO_JSON_ARRAY:
    case ZO_JSON_OBJECT:
        zo_page_put(page, "<td></td>");
    }
}

static void put_table(struct zo_page *page, const struct zo_report_bench *bench)
{
    const char *columns[COLUMNS_MAX + 1];
    const size_t count = find_columns(bench, columns);

    zo_page_table_begin(page, bench->name, columns);
    for (size_t r = 0; r < bench->row_count && r < ROWS_MAX; r++) {
        const struct zo_json *root = zo_json_root(bench->rows[r].doc);

        zo_page_put(page, "<tr>");
        for (size_t c = 0; c < count; c++) {
            put_value(page, columns[c], zo_json_get(root, columns[c]));
        }
        zo_page_put(page, "</tr>\n");
    }
    zo_page_table_end(page);
    if (bench->row_count > ROWS_MAX) {
        zo_page_put(page, "<p>%zu more lines are in the file.</p>\n",
                    bench->row_count - ROWS_MAX);
    }
}

enum zo_status zo_report_benches(struct zo_page *page,
                                 const struct zo_report_data *data)
{
    for (size_t i = 0; i < data->bench_count; i++) {
        zo_page_put(page, "<h2>bench ");
        zo_page_text(page, data->benches[i]->suite, 40);
        zo_page_put(page, "</h2>\n");
        put_table(page, data->benches[i]);
    }
    return ZO_OK;
}
