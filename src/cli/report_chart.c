/* Lines over steps or budgets: any number of points, a bounded drawing. */
#include <math.h>
#include <stdbool.h>

#include "src/cli/report_figures.h"

#define HEIGHT      256
#define LEFT        84.0
#define RIGHT       (ZO_PAGE_WIDTH - 180.0)
#define SAMPLE      24.0 /* of a line, in front of its name */
#define TOP         34.0
#define BOTTOM      (HEIGHT - 40.0)
#define COLUMNS     360 /* of a line: two points each at most */
#define MARKS_MAX   400
#define LABEL_SPACE 15.0
#define LABELS_MAX  128
#define VALUE_MAX   1e30 /* of a point; NaN is no less */

struct range {
    double from, to;
};

static bool is_point(const struct zo_report_line *line, size_t i)
{
    return fabs(line->x[i]) < VALUE_MAX && fabs(line->y[i]) < VALUE_MAX;
}

static void find_ranges(const struct zo_report_chart *chart, struct range *x,
                        struct range *y)
{
    *x = *y = (struct range){INFINITY, -INFINITY};
    for (size_t l = 0; l < chart->line_count; l++) {
        const struct zo_report_line *line = &chart->lines[l];

        for (size_t i = 0; i < line->count; i++) {
            if (is_point(line, i)) {
                x->from = fmin(x->from, line->x[i]);
                x->to = fmax(x->to, line->x[i]);
                y->from = fmin(y->from, line->y[i]);
                y->to = fmax(y->to, line->y[i]);
            }
        }
    }
    if (chart->from_zero) {
        y->from = fmin(y->from, 0.0);
    }
}

/* Points of one column of the field, drawn from its least to its largest. */
struct column {
    int index;
    double first, last, least, most;
};

static void put_column(struct zo_page *page, const struct zo_scale *y,
                       const struct column *column, bool is_first)
{
    const double at =
        LEFT + ((double)column->index + 0.5) * (RIGHT - LEFT) / COLUMNS;

    zo_page_put(page, "%c%.1f %.1f", is_first ? 'M' : 'L', at,
                zo_scale_at(y, column->first));
    if (column->most > column->least) {
        zo_page_put(page, "V%.1fV%.1fV%.1f", zo_scale_at(y, column->most),
                    zo_scale_at(y, column->least),
                    zo_scale_at(y, column->last));
    }
}

/* More points than columns: what is between a column's ends is its height. */
static void put_thinned(struct zo_page *page, const struct zo_report_line *line,
                        const struct zo_scale *x, const struct zo_scale *y)
{
    struct column column = {.index = -1};
    bool is_first = true;

    for (size_t i = 0; i < line->count; i++) {
        const double share = (line->x[i] - x->from) / (x->to - x->from);
        const double value = line->y[i];
        int index;

        if (!is_point(line, i)) {
            continue;
        }
        index = (int)fmin(share * COLUMNS, COLUMNS - 1.0);
        if (index != column.index) {
            if (column.index >= 0) {
                put_column(page, y, &column, is_first);
                is_first = false;
            }
            column = (struct column){index, value, value, value, value};
        }
        column.last = value;
        column.least = fmin(column.least, value);
        column.most = fmax(column.most, value);
    }
    if (column.index >= 0) {
        put_column(page, y, &column, is_first);
    }
}

static void put_line(struct zo_page *page, const struct zo_report_line *line,
                     const struct zo_scale *x, const struct zo_scale *y)
{
    bool is_first = true;

    zo_page_put(page, "<path d=\"");
    if (line->count > COLUMNS) {
        put_thinned(page, line, x, y);
    } else {
        for (size_t i = 0; i < line->count; i++) {
            if (is_point(line, i)) {
                zo_page_put(page, "%c%.1f %.1f", is_first ? 'M' : 'L',
                            zo_scale_at(x, line->x[i]),
                            zo_scale_at(y, line->y[i]));
                is_first = false;
            }
        }
    }
    zo_page_put(page, "\" ");
    zo_page_stroke(page, line->stroke);
    zo_page_put(page, "/>\n");
}

static void put_marks(struct zo_page *page, const struct zo_report_line *line,
                      const struct zo_scale *x, const struct zo_scale *y)
{
    const size_t stride = line->count / MARKS_MAX + 1;

    for (size_t i = 0; i < line->count; i += stride) {
        if (is_point(line, i)) {
            zo_page_put(page,
                        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" "
                        "fill=\"#fff\" stroke=\"#111\" "
                        "stroke-width=\"1.4\"/>\n",
                        zo_scale_at(x, line->x[i]), zo_scale_at(y, line->y[i]));
        }
    }
}

/* The last point of a line; false when it has none. */
static bool find_end(const struct zo_report_line *line, size_t *end_out)
{
    for (size_t i = line->count; i-- > 0;) {
        if (is_point(line, i)) {
            *end_out = i;
            return true;
        }
    }
    return false;
}

static void put_label(struct zo_page *page, const struct zo_report_line *line,
                      double x, double y)
{
    zo_page_put(page, "<path d=\"M%.1f %.1fh%.1f\" ", x + 8.0, y, SAMPLE);
    zo_page_stroke(page, line->stroke);
    zo_page_put(page, "/><text class=\"halo\" x=\"%.1f\" y=\"%.1f\">",
                x + SAMPLE + 14.0, y + 4.0);
    zo_page_text(page, line->label, 22);
    zo_page_put(page, "</text>\n");
}

/* Names at the ends of the lines; those at the right border are moved apart
 * where they would touch. */
static void put_labels(struct zo_page *page,
                       const struct zo_report_chart *chart,
                       const struct zo_scale *x, const struct zo_scale *y)
{
    double at[LABELS_MAX];
    size_t order[LABELS_MAX], count = 0;

    for (size_t l = 0; l < chart->line_count && l < LABELS_MAX; l++) {
        const struct zo_report_line *line = &chart->lines[l];
        size_t end = 0, to;

        if (!find_end(line, &end)) {
            continue;
        }
        at[l] = zo_scale_at(y, line->y[end]);
        if (zo_scale_at(x, line->x[end]) < RIGHT - LABEL_SPACE) {
            put_label(page, line, zo_scale_at(x, line->x[end]), at[l]);
            continue;
        }
        for (to = count++; to > 0 && at[order[to - 1]] > at[l]; to--) {
            order[to] = order[to - 1];
        }
        order[to] = l;
    }
    for (size_t i = 0; i < count; i++) {
        const size_t l = order[i];

        if (i > 0) {
            at[l] = fmax(at[l], at[order[i - 1]] + LABEL_SPACE);
        }
        if (at[l] > HEIGHT - 8.0) {
            return; /* the table has the others */
        }
        put_label(page, &chart->lines[l], RIGHT, at[l]);
    }
}

static void put_value(struct zo_page *page, enum zo_scale_unit unit,
                      double value)
{
    switch (unit) {
    case ZO_SCALE_PLAIN:
        zo_page_cell(page, value, 5);
        return;
    case ZO_SCALE_BYTES:
        zo_page_cell_bytes(page, value);
        return;
    case ZO_SCALE_SECONDS:
        zo_page_cell_seconds(page, value);
    }
}

/* A row: its ends, and what it is between. */
static void put_row(struct zo_page *page, const struct zo_report_line *line,
                    enum zo_scale_unit unit)
{
    double least = INFINITY, most = -INFINITY, first = NAN, last = NAN;
    size_t points = 0;

    for (size_t i = 0; i < line->count; i++) {
        if (is_point(line, i)) {
            first = points == 0 ? line->y[i] : first;
            last = line->y[i];
            least = fmin(least, last);
            most = fmax(most, last);
            points++;
        }
    }
    zo_page_put(page, "<tr><th scope=\"row\">");
    zo_page_text(page, line->label, ZO_REPORT_NAME_BYTES);
    zo_page_put(page, "</th>");
    zo_page_cell(page, (double)points, 12);
    put_value(page, unit, first);
    put_value(page, unit, last);
    put_value(page, unit, least);
    put_value(page, unit, most);
    zo_page_put(page, "</tr>\n");
}

void zo_report_chart(struct zo_page *page, const struct zo_report_chart *chart)
{
    static const char *const heads[] = {"",      "points",  "first", "last",
                                        "least", "largest", NULL};
    struct range x_range, y_range;
    struct zo_scale x, y;

    find_ranges(chart, &x_range, &y_range);
    if (x_range.from > x_range.to) {
        return; /* nothing was a number */
    }
    x = zo_scale_of(x_range.from, x_range.to, LEFT, RIGHT, chart->x_unit);
    y = zo_scale_of(y_range.from, y_range.to, BOTTOM, TOP, chart->y_unit);
    zo_page_figure_begin(page, HEIGHT, chart->title, chart->description);
    zo_scale_y_axis(page, &x, &y, chart->y_name);
    zo_scale_x_axis(page, &x, BOTTOM, chart->x_name);
    for (size_t l = 0; l < chart->line_count; l++) {
        put_line(page, &chart->lines[l], &x, &y);
        if (chart->lines[l].has_marks) {
            put_marks(page, &chart->lines[l], &x, &y);
        }
    }
    put_labels(page, chart, &x, &y);
    zo_page_figure_end(page, chart->caption);
    zo_page_table_begin(page, chart->title, heads);
    for (size_t l = 0; l < chart->line_count; l++) {
        put_row(page, &chart->lines[l], chart->y_unit);
    }
    zo_page_table_end(page);
}
