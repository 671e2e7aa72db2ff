/* Benchmarks: tables of any suite, and figures of those that are known. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/cli/report_figures.h"

#define COLUMNS_MAX 24
#define ROWS_MAX    400 /* of a table */

/* ---- tables of any suite ------------------------------------------------- */

static bool is_scalar(const struct zo_json *value)
{
    return zo_json_type(value) != ZO_JSON_ARRAY &&
           zo_json_type(value) != ZO_JSON_OBJECT;
}

/* What says no more than the heading, or is for machines. */
static bool is_hidden(const char *key)
{
    static const char *const hidden[] = {"suite", "kind", "what", "format",
                                         "key"};

    for (size_t i = 0; i < ZO_COUNT(hidden); i++) {
        if (strcmp(key, hidden[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Keys of the values of the first line that has most of them. */
static void find_columns(const struct zo_report_bench *bench,
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

        if (is_scalar(value) && !is_hidden(key)) {
            columns[count++] = key;
        }
    }
    columns[count] = NULL;
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
            zo_page_cell(page, zo_json_number(value),
                         ends_in(key, "per_second") ? 4 : 6);
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

static void put_cells(struct zo_page *page, const struct zo_json *row,
                      const char *const *columns)
{
    for (size_t c = 0; columns[c] != NULL; c++) {
        put_value(page, columns[c], zo_json_get(row, columns[c]));
    }
    zo_page_put(page, "</tr>\n");
}

static void end_table(struct zo_page *page, const struct zo_report_bench *bench)
{
    zo_page_table_end(page);
    if (bench->row_count > ROWS_MAX) {
        const size_t more = bench->row_count - ROWS_MAX;

        zo_page_put(page, "<p>%zu more line%s in the file.</p>\n", more,
                    more == 1 ? " is" : "s are");
    }
}

static void put_table(struct zo_page *page, const struct zo_report_bench *bench)
{
    const char *columns[COLUMNS_MAX + 1];

    find_columns(bench, columns);
    zo_page_table_begin(page, bench->name, columns);
    for (size_t r = 0; r < bench->row_count && r < ROWS_MAX; r++) {
        zo_page_put(page, "<tr>");
        put_cells(page, zo_json_root(bench->rows[r].doc), columns);
    }
    end_table(page, bench);
}

/* What a configuration is, and what it is for. */
static void put_name(struct zo_page *page, const struct zo_json *row)
{
    const char *label = zo_report_string(row, "label");
    const char *note = zo_report_string(row, "note");

    zo_page_put(page, "<tr><th scope=\"row\">");
    zo_page_text(page, label != NULL ? label : "?", 100);
    if (note != NULL && note[0] != '\0') {
        zo_page_put(page, "<br/><small>");
        zo_page_text(page, note, 200);
        zo_page_put(page, "</small>");
    }
    zo_page_put(page, "</th>");
}

/* Whether a row has a number, or a text, of that key. */
static bool has_value(const struct zo_report_bench *bench, const char *key)
{
    for (size_t r = 0; r < bench->row_count && r < ROWS_MAX; r++) {
        const struct zo_json *value =
            zo_json_get(zo_json_root(bench->rows[r].doc), key);

        if (value != NULL && zo_json_type(value) != ZO_JSON_NULL) {
            return true;
        }
    }
    return false;
}

/* Whether rows differ in their number of layers: else the figure says it. */
static bool differs_in_layers(const struct zo_report_bench *bench)
{
    for (size_t r = 1; r < bench->row_count; r++) {
        if (zo_report_number(zo_json_root(bench->rows[r].doc), "layers") !=
            zo_report_number(zo_json_root(bench->rows[0].doc), "layers")) {
            return true;
        }
    }
    return false;
}

/* Rows of stages, frontier and sweep; a column that tells nothing is left
 * out. */
static void put_known_table(struct zo_page *page,
                            const struct zo_report_bench *bench)
{
    static const struct {
        const char *key, *head;
    } all[] = {
        {"state", ""},
        {"layers", "layers"},
        {"gpu_bytes", "device"},
        {"gpu_driver_bytes", "by the driver"},
        {"formula_bytes", "states by formula"},
        {"host_bytes", "host"},
        {"step_seconds_median", "step time"},
        {"predicted_seconds", "predicted"},
        {"tokens_per_second", "tokens/s"},
        {"exposed_seconds", "no device computes"},
        {"h2d_bytes", "to the devices"},
        {"d2h_bytes", "to the host"},
    };
    const char *keys[ZO_COUNT(all) + 1], *heads[ZO_COUNT(all) + 2];
    size_t count = 0;

    for (size_t c = 0; c < ZO_COUNT(all); c++) {
        if (has_value(bench, all[c].key) &&
            (strcmp(all[c].key, "layers") != 0 || differs_in_layers(bench))) {
            keys[count] = all[c].key;
            heads[++count] = all[c].head;
        }
    }
    heads[0] = "configuration";
    keys[count] = heads[count + 1] = NULL;
    zo_page_table_begin(page, bench->name, heads);
    for (size_t r = 0; r < bench->row_count && r < ROWS_MAX; r++) {
        const struct zo_json *row = zo_json_root(bench->rows[r].doc);

        put_name(page, row);
        put_cells(page, row, keys);
    }
    end_table(page, bench);
}

/* ---- the frontier -------------------------------------------------------- */

struct frontier {
    double *budget, *measured, *predicted; /* owned, a row each */
};

static enum zo_status alloc_frontier(size_t count, struct frontier *frontier)
{
    const size_t size = sizeof(double);

    ZO_TRY(zo_alloc(count, size, "a curve", &frontier->budget));
    ZO_TRY(zo_alloc(count, size, "a curve", &frontier->measured));
    return zo_alloc(count, size, "a curve", &frontier->predicted);
}

/* Rows by their budget; a file that was added to may be in no order. */
static void fill_frontier(const struct zo_report_bench *bench,
                          struct frontier *frontier)
{
    for (size_t r = 0; r < bench->row_count; r++) {
        const struct zo_json *root = zo_json_root(bench->rows[r].doc);
        const double budget = zo_report_number(root, "gpu_budget_bytes");
        size_t to = r;

        while (to > 0 && frontier->budget[to - 1] > budget) {
            frontier->budget[to] = frontier->budget[to - 1];
            frontier->measured[to] = frontier->measured[to - 1];
            frontier->predicted[to] = frontier->predicted[to - 1];
            to--;
        }
        frontier->budget[to] = budget;
        frontier->measured[to] = zo_report_number(root, "step_seconds_median");
        frontier->predicted[to] = zo_report_number(root, "predicted_seconds");
    }
}

static void draw_frontier(struct zo_page *page, const struct frontier *frontier,
                          size_t count)
{
    const struct zo_report_line lines[] = {
        {"measured", frontier->budget, frontier->measured, count, 0, true},
        {"predicted", frontier->budget, frontier->predicted, count, 1, false},
    };
    const struct zo_report_chart chart = {
        .title = "Step time against the budget of device memory",
        .description = "Two lines over the budget: measured, with circles, and "
                       "predicted.",
        .caption = "From the least that runs to the most that is of use: "
                   "what a GiB of device memory buys.",
        .x_name = "device memory budget",
        .y_name = "time of a step",
        .x_unit = ZO_SCALE_BYTES,
        .y_unit = ZO_SCALE_SECONDS,
        .from_zero = true,
        .lines = lines,
        .line_count = ZO_COUNT(lines),
    };

    zo_report_chart(page, &chart);
}

static enum zo_status put_frontier(struct zo_page *page,
                                   const struct zo_report_bench *bench)
{
    struct frontier frontier = {NULL, NULL, NULL};
    const enum zo_status status = alloc_frontier(bench->row_count, &frontier);

    if (status == ZO_OK) {
        fill_frontier(bench, &frontier);
        draw_frontier(page, &frontier, bench->row_count);
    }
    zo_free(frontier.budget);
    zo_free(frontier.measured);
    zo_free(frontier.predicted);
    return status;
}

/* ---- the whole ----------------------------------------------------------- */

static bool tells_purposes(const struct zo_report_bench *bench)
{
    for (size_t r = 0; r < bench->row_count; r++) {
        if (zo_json_get(zo_json_root(bench->rows[r].doc), "gpu_purposes") !=
            NULL) {
            return true;
        }
    }
    return false;
}

static enum zo_status put_bench(struct zo_page *page,
                                const struct zo_report_bench *bench)
{
    zo_page_put(page, "<h2>bench ");
    zo_page_text(page, bench->suite, 40);
    zo_page_put(page, "</h2>\n");
    if (strcmp(bench->suite, "frontier") == 0) {
        ZO_TRY(put_frontier(page, bench));
    }
    if (tells_purposes(bench)) {
        zo_report_bars(page, bench);
        put_known_table(page, bench);
    } else {
        put_table(page, bench);
    }
    return ZO_OK;
}

enum zo_status zo_report_benches(struct zo_page *page,
                                 const struct zo_report_data *data)
{
    for (size_t i = 0; i < data->bench_count; i++) {
        ZO_TRY(put_bench(page, data->benches[i]));
    }
    return ZO_OK;
}
