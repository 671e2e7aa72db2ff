/*
 * One step, seen from its trace: what is in every tier, by purpose, and below
 * it, on the same axis of time, what the engines do.
 *
 * However long the trace, the drawing is bounded: memory is drawn by columns,
 * each with the fullest moment in it, lanes by narrower ones, each as high as
 * the share of its time in which the engine worked.
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "src/cli/report_figures.h"
#include "src/cli/report_scale.h"

#define LEFT          130.0
#define RIGHT         (ZO_PAGE_WIDTH - 56.0)
#define COLUMNS       440 /* of memory */
#define CELLS         780 /* of a lane */
#define LEVELS        6   /* heights of a cell */
#define TIER_HEIGHT   180.0
#define TIER_SPACE    258.0 /* from one to the next */
#define TIER_TOP      34.0
#define LANE_HEIGHT   20.0
#define LANE_SPACE    26.0
#define LEGEND_SPACE  26.0
#define AXIS_SPACE    44.0
#define DEVICES_DRAWN 2
#define CPUS_DRAWN    8
#define TIERS_DRAWN   6
#define LANES_DRAWN   24
#define LABEL_HEIGHT  12.0
#define CHAR_WIDTH    6.9

static const char *const kind_texts[ZO_REPORT_KINDS] = {
    "forward, recompute",
    "backward",
    "gradients: cast, norm, exchange",
    "AdamW",
    "copies",
    "other",
};

/* Bytes of each purpose in each column of the time of the step. */
struct stack {
    double bytes[COLUMNS][ZO_REPORT_PURPOSES];
    double total[COLUMNS], most;
    int fullest;    /* column */
    double peak_us; /* its moment */
};

struct view {
    const struct zo_report_trace *trace;
    const struct zo_report_window *window;
    int tiers[TIERS_DRAWN], lanes[LANES_DRAWN];
    int tier_count, lane_count;
    bool is_all; /* nothing was left out */
    struct zo_scale x;
};

/* ---- what is shown ------------------------------------------------------- */

/* "GPU 3" and "GPU 3 computation" behind "GPU ": 3; -1 for all else. */
static int number_behind(const char *name, const char *what)
{
    const size_t length = strlen(what);
    char *end = NULL;
    long number;

    if (strncmp(name, what, length) != 0) {
        return -1;
    }
    number = strtol(name + length, &end, 10);
    return end == name + length || number < 0 || number > 100000 ? -1
                                                                 : (int)number;
}

static bool is_drawn(const char *name)
{
    return number_behind(name, "GPU ") < DEVICES_DRAWN &&
           number_behind(name, "device ") < DEVICES_DRAWN &&
           number_behind(name, "processor ") < CPUS_DRAWN &&
           number_behind(name, "CPU ") < CPUS_DRAWN; /* of older traces */
}

static bool has_spans(const struct view *view, int lane)
{
    for (size_t i = 0; i < view->trace->span_count; i++) {
        const struct zo_report_span *span = &view->trace->spans[i];

        if (span->lane == lane && span->end_us > view->window->begin_us &&
            span->begin_us < view->window->end_us) {
            return true;
        }
    }
    return false;
}

static void choose(struct view *view, const struct zo_report_trace *trace)
{
    const struct zo_report_window *window =
        &trace->windows[trace->window_count / 2];

    *view = (struct view){.trace = trace, .window = window, .is_all = true};
    view->x = zo_scale_of(0.0, (window->end_us - window->begin_us) * 1e-6, LEFT,
                          RIGHT, ZO_SCALE_SECONDS);
    for (int t = 0; t < trace->tier_count; t++) {
        if (is_drawn(trace->tiers[t].name) && view->tier_count < TIERS_DRAWN) {
            view->tiers[view->tier_count++] = t;
        } else {
            view->is_all = false;
        }
    }
    for (int l = 0; l < trace->lane_count; l++) {
        if (!has_spans(view, l)) {
            continue;
        }
        if (is_drawn(trace->lanes[l].name) && view->lane_count < LANES_DRAWN) {
            view->lanes[view->lane_count++] = l;
        } else {
            view->is_all = false;
        }
    }
}

/* ---- memory -------------------------------------------------------------- */

static double total_of(const struct zo_report_sample *sample)
{
    double total = 0.0;

    for (int p = 0; p < ZO_REPORT_PURPOSES; p++) {
        total += sample->bytes[p];
    }
    return total;
}

static int column_of(const struct zo_report_window *window, double us,
                     int columns)
{
    const double share =
        (us - window->begin_us) / (window->end_us - window->begin_us);

    return (int)fmax(0.0, fmin(share * columns, columns - 1.0));
}

/* A sample holds until the next one: it is in every column from its own to
 * that of the next, if nothing fuller is. */
static void fill_stack(const struct zo_report_tier *tier,
                       const struct zo_report_window *window,
                       struct stack *stack)
{
    memset(stack, 0, sizeof(*stack));
    stack->peak_us = window->begin_us;
    for (size_t i = 0; i < tier->sample_count; i++) {
        const struct zo_report_sample *sample = &tier->samples[i];
        const double until =
            i + 1 < tier->sample_count ? sample[1].us : window->end_us;
        const double total = total_of(sample);
        const int last = column_of(window, until, COLUMNS);

        if (sample->us >= window->end_us ||
            (until <= window->begin_us && i + 1 < tier->sample_count)) {
            continue;
        }
        for (int c = column_of(window, sample->us, COLUMNS); c <= last; c++) {
            if (total >= stack->total[c]) {
                stack->total[c] = total;
                memcpy(stack->bytes[c], sample->bytes, sizeof(sample->bytes));
            }
            if (total > stack->most) {
                stack->most = total;
                stack->fullest = c;
                stack->peak_us = fmax(sample->us, window->begin_us);
            }
        }
    }
}

static double column_at(int column)
{
    return LEFT + (RIGHT - LEFT) * column / COLUMNS;
}

/* Bytes of the purposes below `purpose`, and of it too. */
static double below(const struct stack *stack, int column, int purpose)
{
    double bytes = 0.0;

    for (int p = 0; p < purpose; p++) {
        bytes += stack->bytes[column][p];
    }
    return bytes;
}

static bool has_purpose(const struct stack *stack, int purpose)
{
    for (int c = 0; c < COLUMNS; c++) {
        if (stack->bytes[c][purpose] > 0.0) {
            return true;
        }
    }
    return false;
}

static void put_area(struct zo_page *page, const struct stack *stack,
                     const struct zo_scale *y, int purpose)
{
    double at = zo_scale_at(y, below(stack, 0, purpose + 1));

    zo_page_put(page, "<path d=\"M%.1f %.1fV%.1f", LEFT,
                zo_scale_at(y, below(stack, 0, purpose)), at);
    for (int c = 1; c < COLUMNS; c++) {
        const double next = zo_scale_at(y, below(stack, c, purpose + 1));

        if (fabs(next - at) >= 0.05) {
            zo_page_put(page, "H%.1fV%.1f", column_at(c), next);
            at = next;
        }
    }
    at = zo_scale_at(y, below(stack, COLUMNS - 1, purpose));
    zo_page_put(page, "H%.1fV%.1f", RIGHT, at);
    for (int c = COLUMNS - 1; c > 0; c--) {
        const double next = zo_scale_at(y, below(stack, c - 1, purpose));

        if (fabs(next - at) >= 0.05) {
            zo_page_put(page, "H%.1fV%.1f", column_at(c), next);
            at = next;
        }
    }
    zo_page_put(page, "H%.1fZ\" ", LEFT);
    zo_page_fill(page, purpose);
    zo_page_put(page, "/>\n");
}

const char *zo_report_purpose_text(int purpose)
{
    return purpose == ZO_REPORT_OTHER
               ? "other"
               : zo_purpose_text((enum zo_purpose)purpose);
}

/* Its name in the longest stretch where the area is thick enough for one;
 * false when there is no room. */
static bool put_area_label(struct zo_page *page, const struct stack *stack,
                           const struct zo_scale *y, int purpose)
{
    const char *text = zo_report_purpose_text(purpose);
    int best = 0, best_length = 0, length = 0;
    double from, to;

    for (int c = 0; c < COLUMNS; c++) {
        const double thick =
            zo_scale_at(y, 0.0) - zo_scale_at(y, stack->bytes[c][purpose]);

        length = thick >= LABEL_HEIGHT ? length + 1 : 0;
        if (length > best_length) {
            best_length = length;
            best = c - length / 2;
        }
    }
    if (best_length * (RIGHT - LEFT) / COLUMNS <
        CHAR_WIDTH * (double)strlen(text)) {
        return false;
    }
    from = zo_scale_at(y, below(stack, best, purpose));
    to = zo_scale_at(y, below(stack, best, purpose + 1));
    zo_page_put(page,
                "<text class=\"halo\" x=\"%.1f\" y=\"%.1f\" "
                "text-anchor=\"middle\">%s</text>\n",
                column_at(best), (from + to) / 2.0 + 4.0, text);
    return true;
}

double zo_report_key(struct zo_page *page, double at, double top, int fill,
                     const char *text)
{
    zo_page_put(page, "<rect x=\"%.1f\" y=\"%.1f\" width=\"16\" height=\"12\" ",
                at, top);
    zo_page_fill(page, fill);
    zo_page_put(page, "/><text x=\"%.1f\" y=\"%.1f\">%s</text>\n", at + 21.0,
                top + 10.5, text);
    return at + 21.0 + CHAR_WIDTH * (double)strlen(text) + 20.0;
}

/* Names in the areas, and below the field those of areas too thin for one. */
static void put_area_labels(struct zo_page *page, const struct stack *stack,
                            const struct zo_scale *y)
{
    double at = LEFT;

    for (int p = 0; p < ZO_REPORT_PURPOSES; p++) {
        if (has_purpose(stack, p) && !put_area_label(page, stack, y, p) &&
            at < RIGHT - 120.0) {
            at = zo_report_key(page, at, y->at_from + 24.0, p,
                               zo_report_purpose_text(p));
        }
    }
}

/* A line at the fullest moment, and how much it holds. */
static void put_peak(struct zo_page *page, const struct view *view,
                     const struct stack *stack, double top, double bottom)
{
    const double seconds = (stack->peak_us - view->window->begin_us) * 1e-6;
    const double at = column_at(stack->fullest);
    const bool is_right = at > (LEFT + RIGHT) / 2.0;
    char bytes[ZO_PAGE_NUMBER_BYTES], time[ZO_PAGE_NUMBER_BYTES];

    zo_page_put(page,
                "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#111\" "
                "stroke-dasharray=\"4 3\"/>"
                "<text class=\"halo\" x=\"%.1f\" y=\"%.1f\" "
                "text-anchor=\"%s\">fullest: %s at %s</text>\n",
                at, top - 12.0, bottom, is_right ? at - 4.0 : at + 4.0,
                top - 4.0, is_right ? "end" : "start",
                zo_page_bytes_text(bytes, stack->most),
                zo_page_seconds_text(time, seconds));
}

static void put_tier(struct zo_page *page, const struct view *view, int index,
                     struct stack *stack)
{
    const struct zo_report_tier *tier = &view->trace->tiers[view->tiers[index]];
    const double top = TIER_TOP + TIER_SPACE * index;
    struct zo_scale y;

    fill_stack(tier, view->window, stack);
    y = zo_scale_of(0.0, stack->most, top + TIER_HEIGHT, top, ZO_SCALE_BYTES);
    zo_scale_y_axis(page, &view->x, &y, NULL);
    zo_page_put(page, "<text x=\"4\" y=\"%.1f\" font-weight=\"600\">",
                top - 12.0);
    zo_page_text(page, tier->name, 24);
    zo_page_put(page, " memory</text>\n");
    for (int p = 0; p < ZO_REPORT_PURPOSES; p++) {
        if (has_purpose(stack, p)) {
            put_area(page, stack, &y, p);
        }
    }
    put_area_labels(page, stack, &y);
    put_peak(page, view, stack, top, top + TIER_HEIGHT);
    zo_scale_x_axis(page, &view->x, top + TIER_HEIGHT, NULL);
}

/* ---- lanes --------------------------------------------------------------- */

/* Microseconds of each kind in each cell of a lane. */
struct cells {
    double us[CELLS][ZO_REPORT_KINDS];
    double kind_us[ZO_REPORT_KINDS], busy_us;
};

static void fill_cells(const struct view *view, int lane, struct cells *cells)
{
    const struct zo_report_window *window = view->window;
    const double width = (window->end_us - window->begin_us) / CELLS;

    memset(cells, 0, sizeof(*cells));
    for (size_t i = 0; i < view->trace->span_count; i++) {
        const struct zo_report_span *span = &view->trace->spans[i];
        const double begin = fmax(span->begin_us, window->begin_us);
        const double end = fmin(span->end_us, window->end_us);

        if (span->lane != lane || !(end > begin)) {
            continue;
        }
        cells->kind_us[span->kind] += end - begin;
        cells->busy_us += end - begin;
        for (int c = column_of(window, begin, CELLS);
             c <= column_of(window, end, CELLS); c++) {
            const double from = window->begin_us + width * c;
            const double part = fmin(end, from + width) - fmax(begin, from);

            cells->us[c][span->kind] += fmax(part, 0.0);
        }
    }
}

/* The kind that a cell has most of, and its height in LEVELS; 0: idle. */
static int level_of(const double *us, double width, int *kind_out)
{
    double sum = 0.0;

    *kind_out = 0;
    for (int k = 0; k < ZO_REPORT_KINDS; k++) {
        sum += us[k];
        if (us[k] > us[*kind_out]) {
            *kind_out = k;
        }
    }
    return (int)ceil(fmin(sum / width, 1.0) * LEVELS - 1e-6);
}

static void put_lane(struct zo_page *page, const struct view *view,
                     const struct cells *cells, const char *name, double top)
{
    const double width =
        (view->window->end_us - view->window->begin_us) / CELLS;
    const double step = (RIGHT - LEFT) / CELLS;

    zo_page_put(page, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">",
                LEFT - 6.0, top + 14.0);
    zo_page_text(page, name, 20);
    zo_page_put(page, "</text><path d=\"M%.1f %.1fH%.1f\" stroke=\"#999\"/>\n",
                LEFT, top + LANE_HEIGHT, RIGHT);
    for (int c = 0; c < CELLS;) {
        int kind, other, end = c + 1;
        const int level = level_of(cells->us[c], width, &kind);
        const double height = LANE_HEIGHT * level / LEVELS;

        while (end < CELLS &&
               level_of(cells->us[end], width, &other) == level &&
               (other == kind || level == 0)) {
            end++;
        }
        if (level > 0) {
            zo_page_put(page,
                        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                        "height=\"%.1f\" fill=\"url(#f%d)\"/>",
                        LEFT + step * c, top + LANE_HEIGHT - height,
                        step * (end - c), height, ZO_PAGE_DARK + kind);
        }
        c = end;
    }
    zo_page_put(page, "<text x=\"%.1f\" y=\"%.1f\">%.0f %%</text>\n",
                RIGHT + 6.0, top + 14.0,
                100.0 * cells->busy_us /
                    (view->window->end_us - view->window->begin_us));
}

static void put_legend(struct zo_page *page, double top)
{
    double at = LEFT;

    for (int k = 0; k < ZO_REPORT_KINDS; k++) {
        at = zo_report_key(page, at, top, ZO_PAGE_DARK + k, kind_texts[k]);
    }
}

/* ---- tables -------------------------------------------------------------- */

static void put_memory_table(struct zo_page *page, const struct view *view,
                             int index, struct stack *stack)
{
    static const char *const heads[] = {
        "purpose", "at the fullest moment", "share", "least", "most", NULL};
    const struct zo_report_tier *tier = &view->trace->tiers[view->tiers[index]];
    char caption[2 * ZO_REPORT_NAME_BYTES];

    fill_stack(tier, view->window, stack);
    (void)snprintf(caption, sizeof(caption), "%s memory by purpose",
                   tier->name);
    zo_page_table_begin(page, caption, heads);
    for (int p = 0; p < ZO_REPORT_PURPOSES; p++) {
        const double full = stack->bytes[stack->fullest][p];
        double least = INFINITY, most = 0.0;

        for (int c = 0; c < COLUMNS; c++) {
            least = fmin(least, stack->bytes[c][p]);
            most = fmax(most, stack->bytes[c][p]);
        }
        if (most == 0.0) {
            continue;
        }
        zo_page_put(page, "<tr><th scope=\"row\">");
        zo_page_swatch(page, p);
        zo_page_put(page, "%s</th>", zo_report_purpose_text(p));
        zo_page_cell_bytes(page, full);
        zo_page_put(page, "<td class=\"n\">%.1f %%</td>",
                    100.0 * full / stack->most);
        zo_page_cell_bytes(page, least);
        zo_page_cell_bytes(page, most);
        zo_page_put(page, "</tr>\n");
    }
    zo_page_put(page, "<tr><th scope=\"row\">together</th>");
    zo_page_cell_bytes(page, stack->most);
    zo_page_put(page, "<td class=\"n\">100 %%</td><td></td><td></td></tr>\n");
    zo_page_table_end(page);
}

static void put_lane_table(struct zo_page *page, const struct view *view,
                           struct cells *cells)
{
    static const char *const heads[] = {
        "lane",      "busy",  "of the step", "forward", "backward",
        "gradients", "AdamW", "copies",      "other",   NULL};
    const double step_us = view->window->end_us - view->window->begin_us;

    zo_page_table_begin(page, "What each engine did in the step", heads);
    for (int l = 0; l < view->lane_count; l++) {
        fill_cells(view, view->lanes[l], cells);
        zo_page_put(page, "<tr><th scope=\"row\">");
        zo_page_text(page, view->trace->lanes[view->lanes[l]].name, 40);
        zo_page_put(page, "</th>");
        zo_page_cell_seconds(page, cells->busy_us * 1e-6);
        zo_page_put(page, "<td class=\"n\">%.0f %%</td>",
                    100.0 * cells->busy_us / step_us);
        for (int k = 0; k < ZO_REPORT_KINDS; k++) {
            zo_page_cell_seconds(page, cells->kind_us[k] * 1e-6);
        }
        zo_page_put(page, "</tr>\n");
    }
    zo_page_table_end(page);
}

/* ---- the whole ----------------------------------------------------------- */

static void put_figure(struct zo_page *page, const struct view *view,
                       struct stack *stack, struct cells *cells)
{
    const double lanes_top = TIER_TOP + TIER_SPACE * view->tier_count - 20.0;
    const double bottom = lanes_top + LANE_SPACE * view->lane_count;
    char title[120], time[ZO_PAGE_NUMBER_BYTES];

    (void)snprintf(title, sizeof(title), "Step %lld, of %s",
                   (long long)view->window->step,
                   zo_page_seconds_text(time, view->x.to));
    zo_page_figure_begin(
        page, (int)(bottom + AXIS_SPACE + LEGEND_SPACE), title,
        "Stacked areas: the bytes of each tier by what they are for, over the "
        "time of one step. Below, on the same axis of time, a lane an engine: "
        "what it did, and how busy it was. The tables below have the same in "
        "numbers.");
    for (int t = 0; t < view->tier_count; t++) {
        put_tier(page, view, t, stack);
    }
    for (int l = 0; l < view->lane_count; l++) {
        fill_cells(view, view->lanes[l], cells);
        put_lane(page, view, cells, view->trace->lanes[view->lanes[l]].name,
                 lanes_top + LANE_SPACE * l);
    }
    zo_scale_x_axis(page, &view->x, bottom, "time in the step");
    put_legend(page, bottom + AXIS_SPACE);
    zo_page_figure_end(
        page, view->is_all
                  ? "Bytes of the program's own memory; a device's context and "
                    "libraries come on top. At the right of a lane: the share "
                    "of the step in which it worked."
                  : "Bytes of the program's own memory; a device's context and "
                    "libraries come on top. At the right of a lane: the share "
                    "of the step in which it worked. Further devices and "
                    "lanes of the processor are in the trace, not in the "
                    "figure.");
}

void zo_report_steps(struct zo_page *page, const struct zo_report_data *data)
{
    for (size_t i = 0; i < data->trace_count; i++) {
        struct stack stack;
        struct cells cells;
        struct view view;

        choose(&view, data->traces[i]);
        zo_page_put(page, "<h2>Where memory goes in a step: ");
        zo_page_text(page, data->traces[i]->name, 120);
        zo_page_put(page, "</h2>\n");
        put_figure(page, &view, &stack, &cells);
        for (int t = 0; t < view.tier_count; t++) {
            put_memory_table(page, &view, t, &stack);
        }
        put_lane_table(page, &view, &cells);
    }
}
