/*
 * Configurations side by side: what each takes of the GPU and of the host, by
 * purpose, and how long its step is.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "src/cli/report_figures.h"

#define BARS_MAX   48 /* of a figure */
#define GROUPS_MAX 4  /* figures of one number of layers each */
#define TOP        40.0
#define BAR        22.0
#define SPACE      32.0
#define LABEL      150.0
#define KEYS_WIDTH (ZO_PAGE_WIDTH - 170.0)
#define KEY_SPACE  20.0

/* A column of bars: where, how wide its largest is, what it is of. */
struct panel {
    double left, width;
    const char *title, *purposes, *total, *mark;
    double most;
};

enum { GPU, HOST, PANELS };

#define TIME_LEFT  770.0
#define TIME_WIDTH 100.0

static const struct panel empty_panels[PANELS] = {
    {LABEL + 10.0, 240.0, "fullest device", "gpu_purposes", "gpu_bytes",
     "formula_bytes", 0.0},
    {LABEL + 330.0, 190.0, "host", "host_purposes", "host_bytes", NULL, 0.0},
};

/* Lines of one number of layers. */
struct group {
    const struct zo_json *rows[BARS_MAX];
    size_t count;
    double layers;
};

static double or_zero(double value)
{
    return value >= 0.0 && value <= 1e18 ? value : 0.0;
}

static double time_of(const struct zo_json *row)
{
    const double measured = zo_report_number(row, "step_seconds_median");

    return isfinite(measured) ? measured
                              : zo_report_number(row, "predicted_seconds");
}

/* Bytes of a purpose of a row; of ZO_REPORT_OTHER: what no purpose has. */
static double bytes_of(const struct zo_json *row, const struct panel *panel,
                       int purpose)
{
    const struct zo_json *purposes = zo_json_get(row, panel->purposes);
    double rest = or_zero(zo_report_number(row, panel->total));

    if (purpose != ZO_REPORT_OTHER) {
        return or_zero(zo_report_number(
            purposes, zo_purpose_text((enum zo_purpose)purpose)));
    }
    for (int p = 0; p < ZO_PURPOSES; p++) {
        rest -= or_zero(
            zo_report_number(purposes, zo_purpose_text((enum zo_purpose)p)));
    }
    return fmax(rest, 0.0);
}

static double total_of(const struct zo_json *row, const struct panel *panel)
{
    double total = 0.0;

    for (int p = 0; p < ZO_REPORT_PURPOSES; p++) {
        total += bytes_of(row, panel, p);
    }
    return total;
}

/* ---- bars ---------------------------------------------------------------- */

static void put_mark(struct zo_page *page, const struct zo_json *row,
                     const struct panel *panel, double top)
{
    const double bytes =
        panel->mark == NULL ? 0.0 : or_zero(zo_report_number(row, panel->mark));

    if (bytes > 0.0) {
        zo_page_put(page,
                    "<path d=\"M%.1f %.1fv%.1f\" stroke=\"#000\" "
                    "stroke-width=\"3\"/>",
                    panel->left + panel->width * bytes / panel->most, top - 3.0,
                    BAR + 6.0);
    }
}

static void put_stack(struct zo_page *page, const struct zo_json *row,
                      const struct panel *panel, double top)
{
    char text[ZO_PAGE_NUMBER_BYTES];
    double at = panel->left;

    for (int p = 0; p < ZO_REPORT_PURPOSES && panel->most > 0.0; p++) {
        const double width =
            panel->width * bytes_of(row, panel, p) / panel->most;

        if (width >= 0.05) {
            zo_page_put(page,
                        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                        "height=\"%.1f\" ",
                        at, top, width, BAR);
            zo_page_fill(page, p);
            zo_page_put(page, "/>");
            at += width;
        }
    }
    put_mark(page, row, panel, top);
    zo_page_put(page, "<text class=\"halo\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                at + 6.0, top + 15.0,
                zo_page_bytes_text(text, total_of(row, panel)));
}

/* Measured: grey; predicted: white, and it says so; neither: why not. */
static void put_time(struct zo_page *page, const struct zo_json *row,
                     double most, double top)
{
    const bool is_measured =
        isfinite(zo_report_number(row, "step_seconds_median"));
    const char *state = zo_report_string(row, "state");
    const double seconds = time_of(row);
    char text[ZO_PAGE_NUMBER_BYTES];
    double width;

    if (state != NULL && strcmp(state, "ran") != 0 &&
        strcmp(state, "planned") != 0) {
        zo_page_put(page, "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"600\">",
                    TIME_LEFT, top + 15.0);
        zo_page_text(page, "does not fit", 20);
        zo_page_put(page, "</text>\n");
        return;
    }
    if (!(seconds >= 0.0) || !(most > 0.0)) {
        return;
    }
    width = TIME_WIDTH * fmin(seconds / most, 1.0);
    zo_page_put(
        page,
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
        "fill=\"%s\" stroke=\"#333\"%s/>"
        "<text class=\"halo\" x=\"%.1f\" y=\"%.1f\">%s%s</text>\n",
        TIME_LEFT, top, width, BAR, is_measured ? "#aaa" : "#fff",
        is_measured ? "" : " stroke-dasharray=\"3 2\"", TIME_LEFT + width + 6.0,
        top + 15.0,
        is_measured ? "" : "plan: ", zo_page_seconds_text(text, seconds));
}

static void put_bar(struct zo_page *page, const struct zo_json *row,
                    const struct panel *panels, double most_seconds, double top)
{
    const char *label = zo_report_string(row, "label");
    const char *what = zo_report_string(row, "what");
    const bool is_stage = what != NULL && strcmp(what, "stages") == 0;

    zo_page_put(page, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s",
                LABEL, top + 15.0, is_stage ? "stage " : "");
    zo_page_text(page, label != NULL ? label : "?", 24);
    zo_page_put(page, "</text>\n");
    for (int p = 0; p < PANELS; p++) {
        put_stack(page, row, &panels[p], top);
    }
    put_time(page, row, most_seconds, top);
}

/* ---- the figure ---------------------------------------------------------- */

static bool has_purpose(const struct group *group, const struct panel *panels,
                        int purpose)
{
    for (size_t r = 0; r < group->count; r++) {
        for (int p = 0; p < PANELS; p++) {
            if (bytes_of(group->rows[r], &panels[p], purpose) *
                    panels[p].width >=
                0.5 * panels[p].most) {
                return panels[p].most > 0.0;
            }
        }
    }
    return false;
}

static const char *key_text(int purpose)
{
    return purpose == ZO_REPORT_OTHER ? "context and libraries"
                                      : zo_report_purpose_text(purpose);
}

/* The keys of the purposes that can be seen, in lines; draws if told so, and
 * returns the height. */
static double put_keys(struct zo_page *page, const struct group *group,
                       const struct panel *panels, double top, bool draws)
{
    double at = 10.0, line = 0.0;

    for (int p = 0; p < ZO_REPORT_PURPOSES; p++) {
        if (!has_purpose(group, panels, p)) {
            continue;
        }
        if (at > KEYS_WIDTH) {
            at = 10.0;
            line += KEY_SPACE;
        }
        if (draws) {
            at = zo_report_key(page, at, top + line, p, key_text(p));
        } else {
            at += 41.0 + 6.9 * (double)strlen(key_text(p));
        }
    }
    return line + KEY_SPACE;
}

static void put_heads(struct zo_page *page, const char *suite,
                      const struct panel *panels)
{
    if (strcmp(suite, "frontier") == 0) {
        zo_page_put(page,
                    "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" "
                    "font-weight=\"600\">device budget</text>\n",
                    LABEL, TOP - 14.0);
    }
    for (int p = 0; p < PANELS; p++) {
        zo_page_put(page,
                    "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"600\">%s"
                    "</text>\n",
                    panels[p].left, TOP - 14.0, panels[p].title);
    }
    zo_page_put(page,
                "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"600\">time of a "
                "step</text>\n",
                TIME_LEFT, TOP - 14.0);
}

static bool has_marks(const struct group *group, const struct panel *panels)
{
    for (size_t r = 0; r < group->count; r++) {
        if (or_zero(zo_report_number(group->rows[r], panels[GPU].mark)) > 0.0) {
            return true;
        }
    }
    return false;
}

static void put_group(struct zo_page *page, const char *suite,
                      const struct group *group)
{
    const double bottom = TOP + SPACE * (double)group->count;
    struct panel panels[PANELS];
    double most_seconds = 0.0;
    char title[ZO_REPORT_NAME_BYTES + 160];

    memcpy(panels, empty_panels, sizeof(panels));
    for (size_t r = 0; r < group->count; r++) {
        for (int p = 0; p < PANELS; p++) {
            panels[p].most =
                fmax(panels[p].most, total_of(group->rows[r], &panels[p]));
        }
        most_seconds = fmax(most_seconds, or_zero(time_of(group->rows[r])));
    }
    if (isfinite(group->layers)) {
        (void)snprintf(title, sizeof(title), "%s, %.0f layers", suite,
                       group->layers);
    } else {
        (void)snprintf(title, sizeof(title), "%s", suite);
    }
    zo_page_figure_begin(
        page, (int)(bottom + 8.0 + put_keys(page, group, panels, 0.0, false)),
        title,
        "A line a configuration: a bar of the memory of the fullest device by "
        "purpose, one of host memory, and one of the time of a step. The "
        "table below has the same in numbers.");
    put_heads(page, suite, panels);
    for (size_t r = 0; r < group->count; r++) {
        put_bar(page, group->rows[r], panels, most_seconds,
                TOP + SPACE * (double)r);
    }
    (void)put_keys(page, group, panels, bottom + 4.0, true);
    (void)strncat(
        title,
        has_marks(group, panels)
            ? ". Thick line: the states by the stage's formula. Device, "
              "host and time have a scale each."
            : ". Device, host and time have a scale each.",
        sizeof(title) - strlen(title) - 1);
    zo_page_figure_end(page, title);
}

/* Layers of a row; NaN when it does not say. */
static bool is_of(const struct group *group, double layers)
{
    return group->layers == layers || (isnan(group->layers) && isnan(layers));
}

void zo_report_bars(struct zo_page *page, const struct zo_report_bench *bench)
{
    struct group groups[GROUPS_MAX];
    size_t count = 0;

    for (size_t r = 0; r < bench->row_count; r++) {
        const struct zo_json *row = zo_json_root(bench->rows[r].doc);
        const double layers = zo_report_number(row, "layers");
        size_t g = 0;

        while (g < count && !is_of(&groups[g], layers)) {
            g++;
        }
        if (g == count && count < GROUPS_MAX) {
            groups[count].layers = layers;
            groups[count++].count = 0;
        }
        if (g < count && groups[g].count < BARS_MAX) {
            groups[g].rows[groups[g].count++] = row;
        }
    }
    for (size_t g = 0; g < count; g++) {
        put_group(page, bench->suite, &groups[g]);
    }
}
