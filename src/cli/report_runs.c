/* Runs: what they were, how the loss went, and where the time did. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/cli/report_figures.h"
#include "src/cli/report_scale.h"

#define RUNS_MAX   ZO_REPORT_FILES_MAX
#define WARM_STEPS 2   /* the first steps also pay for first touches */
#define SHARE_MAX  1e4 /* of a bar that is drawn */
#define BAR_HEIGHT 18.0
#define BARS_LEFT  190.0
#define BARS_WIDTH 620.0

static const char *const engine_texts[] = {
#define ENGINE_TEXT(name, key, text) text,
    ZO_REPORT_ENGINE_LIST(ENGINE_TEXT)
#undef ENGINE_TEXT
};

/* "A", "B", ...: how figures call a run; from the 27th on "A1". */
static void name_run(char *label, size_t index, const char *what)
{
    const size_t round = index / 26;

    if (round == 0) {
        (void)snprintf(label, ZO_REPORT_NAME_BYTES, "%c%s", (char)('A' + index),
                       what);
    } else {
        (void)snprintf(label, ZO_REPORT_NAME_BYTES, "%c%zu%s",
                       (char)('A' + index % 26), round, what);
    }
}

/* ---- numbers of steps ---------------------------------------------------- */

/* A member of struct zo_report_step of every step, into values. */
static void take_values(const struct zo_report_run *run, size_t offset,
                        double *values)
{
    for (size_t i = 0; i < run->step_count; i++) {
        memcpy(&values[i], (const char *)&run->steps[i] + offset,
               sizeof(values[i]));
    }
}

static double step_value(const struct zo_report_run *run, size_t step,
                         size_t offset)
{
    double value = (double)NAN;

    if (step < run->step_count) {
        memcpy(&value, (const char *)&run->steps[step] + offset, sizeof(value));
    }
    return value;
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

/* Of the finite values once warm, or of all when there are no others; sorts
 * what is in values. */
static double median_of(const struct zo_report_run *run, size_t offset,
                        double *values)
{
    const size_t first = run->step_count > WARM_STEPS ? WARM_STEPS : 0;
    size_t count = 0;

    for (size_t i = first; i < run->step_count; i++) {
        const double value = step_value(run, i, offset);

        if (isfinite(value)) {
            values[count++] = value;
        }
    }
    if (count == 0) {
        return (double)NAN;
    }
    qsort(values, count, sizeof(values[0]), by_value);
    return values[count / 2];
}

static double most_of(const struct zo_report_run *run, size_t offset)
{
    double most = (double)NAN;

    for (size_t i = 0; i < run->step_count; i++) {
        most = fmax(most, step_value(run, i, offset));
    }
    return most;
}

static double least_eval(const struct zo_report_run *run)
{
    double least = (double)NAN;

    for (size_t i = 0; i < run->eval_count; i++) {
        least = fmin(least, run->evals[i].loss);
    }
    return least;
}

/* ---- the table ----------------------------------------------------------- */

static void put_run(struct zo_page *page, const struct zo_report_run *run,
                    size_t index, double *scratch)
{
    const size_t last = run->step_count > 0 ? run->step_count - 1 : 0;
    char label[ZO_REPORT_NAME_BYTES];

    name_run(label, index, "");
    zo_page_put(page, "<tr><th scope=\"row\">%s: ", label);
    zo_page_text(page, run->name, 120);
    zo_page_put(page, "<br/><small>");
    zo_page_text(page, run->settings, sizeof(run->settings));
    zo_page_put(page, "</small></th>");
    zo_page_cell(page, (double)run->step_count, 12);
    zo_page_cell(page,
                 step_value(run, 0, offsetof(struct zo_report_step, loss)), 5);
    zo_page_cell(
        page, step_value(run, last, offsetof(struct zo_report_step, loss)), 5);
    zo_page_cell(page, least_eval(run), 5);
    zo_page_cell_seconds(
        page,
        median_of(run, offsetof(struct zo_report_step, step_seconds), scratch));
    zo_page_cell(page,
                 median_of(run,
                           offsetof(struct zo_report_step, tokens_per_second),
                           scratch),
                 4);
    zo_page_cell_bytes(
        page, most_of(run, offsetof(struct zo_report_step, gpu_peak_bytes)));
    zo_page_cell_bytes(
        page, most_of(run, offsetof(struct zo_report_step, host_peak_bytes)));
    zo_page_cell_bytes(
        page, most_of(run, offsetof(struct zo_report_step, nvme_bytes)));
    zo_page_put(page, "</tr>\n");
}

static void put_runs(struct zo_page *page, const struct zo_report_data *data,
                     double *scratch)
{
    static const char *const heads[] = {
        "run",       "steps",     "first loss", "last loss",
        "best eval", "step time", "tokens/s",   "device peak",
        "host peak", "NVMe",      NULL};

    zo_page_put(page, "<h2>Runs</h2>\n");
    zo_page_table_begin(page,
                        "Step time and tokens/s are medians once warm; the "
                        "device peak is that of the fullest device.",
                        heads);
    for (size_t i = 0; i < data->run_count; i++) {
        put_run(page, data->runs[i], i, scratch);
    }
    zo_page_table_end(page);
}

/* ---- charts -------------------------------------------------------------- */

/* What the lines of a chart point to. */
struct values {
    double *x[RUNS_MAX], *y[RUNS_MAX]; /* owned; of steps */
    double *eval_x[RUNS_MAX], *eval_y[RUNS_MAX];
    struct zo_report_line lines[2 * RUNS_MAX];
    size_t line_count;
};

static void free_values(struct values *values)
{
    for (size_t i = 0; i < RUNS_MAX; i++) {
        zo_free(values->x[i]);
        zo_free(values->y[i]);
        zo_free(values->eval_x[i]);
        zo_free(values->eval_y[i]);
    }
    zo_free(values);
}

static enum zo_status alloc_values(const struct zo_report_data *data,
                                   struct values **values_out)
{
    struct values *values = NULL;
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*values), "a chart", &values));
    for (size_t i = 0; i < data->run_count; i++) {
        const struct zo_report_run *run = data->runs[i];
        const size_t size = sizeof(double);

        ZO_TRY_GOTO(fail,
                    zo_alloc(run->step_count, size, "a chart", &values->x[i]));
        ZO_TRY_GOTO(fail,
                    zo_alloc(run->step_count, size, "a chart", &values->y[i]));
        ZO_TRY_GOTO(fail, zo_alloc(run->eval_count, size, "a chart",
                                   &values->eval_x[i]));
        ZO_TRY_GOTO(fail, zo_alloc(run->eval_count, size, "a chart",
                                   &values->eval_y[i]));
        take_values(run, offsetof(struct zo_report_step, step), values->x[i]);
        for (size_t e = 0; e < run->eval_count; e++) {
            values->eval_x[i][e] = run->evals[e].step;
            values->eval_y[i][e] = run->evals[e].loss;
        }
    }
    *values_out = values;
    return ZO_OK;

fail:
    free_values(values);
    return status;
}

static void set_lines(const struct zo_report_data *data, size_t offset,
                      struct values *values)
{
    values->line_count = 0;
    for (size_t i = 0; i < data->run_count; i++) {
        struct zo_report_line *line = &values->lines[values->line_count++];

        take_values(data->runs[i], offset, values->y[i]);
        *line = (struct zo_report_line){.x = values->x[i],
                                        .y = values->y[i],
                                        .count = data->runs[i]->step_count,
                                        .stroke = (int)i};
        name_run(line->label, i, "");
    }
}

static void add_evals(const struct zo_report_data *data, struct values *values)
{
    for (size_t i = 0; i < data->run_count; i++) {
        struct zo_report_line *line = &values->lines[values->line_count];

        if (data->runs[i]->eval_count > 0) {
            *line = (struct zo_report_line){.x = values->eval_x[i],
                                            .y = values->eval_y[i],
                                            .count = data->runs[i]->eval_count,
                                            .stroke = (int)i,
                                            .has_marks = true};
            name_run(line->label, i, " evaluation");
            values->line_count++;
        }
    }
}

static void put_chart(struct zo_page *page, const struct values *values,
                      struct zo_report_chart chart)
{
    chart.x_name = "step";
    chart.lines = values->lines;
    chart.line_count = values->line_count;
    zo_report_chart(page, &chart);
}

static void put_charts(struct zo_page *page, const struct zo_report_data *data,
                       struct values *values)
{
    zo_page_put(page, "<h2>Loss and learning rate</h2>\n");
    set_lines(data, offsetof(struct zo_report_step, loss), values);
    add_evals(data, values);
    put_chart(page, values,
              (struct zo_report_chart){
                  .title = "Loss over the steps",
                  .description = "A line a run; circles are evaluations. The "
                                 "table below has the ends.",
                  .caption = "Mean loss of a step's label tokens, before its "
                             "update. Circles: evaluations.",
                  .y_name = "loss"});
    set_lines(data, offsetof(struct zo_report_step, learning_rate), values);
    put_chart(page, values,
              (struct zo_report_chart){
                  .title = "Learning rate over the steps",
                  .description = "A line a run, of the rate that the update "
                                 "of a step used.",
                  .caption = "Learning rate of each step.",
                  .y_name = "learning rate",
                  .from_zero = true});
    zo_page_put(page, "<h2>Throughput</h2>\n");
    set_lines(data, offsetof(struct zo_report_step, tokens_per_second), values);
    put_chart(page, values,
              (struct zo_report_chart){
                  .title = "Tokens a second over the steps",
                  .description = "A line a run, of all devices together.",
                  .caption = "Tokens a second of all devices, without padding. "
                             "Steps differ in length, and so in speed.",
                  .y_name = "tokens/s",
                  .from_zero = true});
}

/* ---- engines ------------------------------------------------------------- */

/* Seconds that an engine was busy, over seconds of the steps. */
static double busy_share(const struct zo_report_run *run, int engine,
                         double *seconds_out)
{
    const size_t first = run->step_count > WARM_STEPS ? WARM_STEPS : 0;
    double busy = 0.0, whole = 0.0;
    size_t count = 0;

    for (size_t i = first; i < run->step_count; i++) {
        const double seconds = run->steps[i].busy_seconds[engine];

        if (isfinite(seconds) && isfinite(run->steps[i].step_seconds)) {
            busy += seconds;
            whole += run->steps[i].step_seconds;
            count++;
        }
    }
    *seconds_out = count > 0 ? busy / (double)count : (double)NAN;
    return whole > 0.0 ? busy / whole : (double)NAN;
}

static void put_bar(struct zo_page *page, int engine, double top, double share,
                    double seconds)
{
    char text[ZO_PAGE_NUMBER_BYTES];

    zo_page_put(page,
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>"
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" ",
                BARS_LEFT - 8.0, top + 13.0, engine_texts[engine], BARS_LEFT,
                top, BARS_WIDTH * fmin(share, 1.0), BAR_HEIGHT - 3.0);
    zo_page_fill(page, engine);
    zo_page_put(page,
                "/><text x=\"%.1f\" y=\"%.1f\">%.0f %%, %s a step</text>\n",
                BARS_LEFT + BARS_WIDTH * fmin(share, 1.0) + 8.0, top + 13.0,
                share * 100.0, zo_page_seconds_text(text, seconds));
}

/* Which engine bounds a run: the one whose bar nearly reaches the line. */
static void put_engines(struct zo_page *page, const struct zo_report_run *run,
                        size_t index)
{
    const double height = BAR_HEIGHT * ZO_REPORT_ENGINES + 8.0;
    char title[ZO_REPORT_NAME_BYTES];
    bool is_any = false;

    for (int e = 0; e < ZO_REPORT_ENGINES; e++) {
        double seconds;

        is_any = is_any || busy_share(run, e, &seconds) > 0.0;
    }
    if (!is_any) {
        return; /* the run recorded no times */
    }
    name_run(title, index, ": how busy each engine was");
    zo_page_figure_begin(page, (int)height, title,
                         "A bar an engine: the share of the steps' time in "
                         "which it worked, written behind it.");
    for (int e = 0; e < ZO_REPORT_ENGINES; e++) {
        double seconds;
        const double share = busy_share(run, e, &seconds);

        if (share >= 0.0 && share < SHARE_MAX) {
            put_bar(page, e, 4.0 + BAR_HEIGHT * e, share, seconds);
        }
    }
    zo_page_put(page,
                "<path d=\"M%.1f 0V%.1f\" stroke=\"#111\"/>"
                "<path d=\"M%.1f 0V%.1f\" stroke=\"#111\" "
                "stroke-dasharray=\"3 3\"/>\n",
                BARS_LEFT, height, BARS_LEFT + BARS_WIDTH, height);
    name_run(title, index, "");
    zo_page_figure_end(page, title);
}

enum zo_status zo_report_runs(struct zo_page *page,
                              const struct zo_report_data *data)
{
    struct values *values = NULL;
    size_t most = 0;
    double *scratch = NULL;

    if (data->run_count == 0) {
        return ZO_OK;
    }
    for (size_t i = 0; i < data->run_count; i++) {
        most =
            data->runs[i]->step_count > most ? data->runs[i]->step_count : most;
    }
    ZO_TRY(zo_alloc(most, sizeof(scratch[0]), "a table", &scratch));
    put_runs(page, data, scratch);
    zo_free(scratch);
    ZO_TRY(alloc_values(data, &values));
    put_charts(page, data, values);
    free_values(values);
    zo_page_put(page,
                "<h2>Where the time of a step goes</h2>\n"
                "<p>Engines work side by side: the one whose bar comes "
                "nearest to the dashed line (the whole step) is what bounds "
                "the run. On several devices it is their average.</p>\n");
    for (size_t i = 0; i < data->run_count; i++) {
        put_engines(page, data->runs[i], i);
    }
    return ZO_OK;
}
