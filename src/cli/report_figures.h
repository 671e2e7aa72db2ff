/*
 * The figures of a report.  Layer 8; each adds its section to the page, and
 * nothing where there is nothing to show.
 */
#ifndef ZO_SRC_CLI_REPORT_FIGURES_H
#define ZO_SRC_CLI_REPORT_FIGURES_H

#include "src/cli/report_data.h"
#include "src/cli/report_scale.h"

ZO_C_BEGIN

/* Points of a line; those that are not finite, or absurd, are left out. */
struct zo_report_line {
    char label[ZO_REPORT_NAME_BYTES];
    const double *x, *y; /* borrowed */
    size_t count;
    int stroke;
    bool has_marks; /* a circle a point, and no line unless dashed */
};

struct zo_report_chart {
    const char *title, *description, *caption;
    const char *x_name, *y_name;
    enum zo_scale_unit x_unit, y_unit;
    bool from_zero;
    const struct zo_report_line *lines;
    size_t line_count;
};

/* A figure of lines, each thinned to some hundred points, with its ends named
 * directly, and a table of its values. */
void zo_report_chart(struct zo_page *page, const struct zo_report_chart *chart);

/* Runs: table, loss and learning rate, throughput, engines.  ZO_E_NOMEM. */
enum zo_status zo_report_runs(struct zo_page *page,
                              const struct zo_report_data *data) ZO_MUST_CHECK;

/* One step of a trace: memory by purpose, and the lanes below. */
void zo_report_steps(struct zo_page *page, const struct zo_report_data *data);

/* Rows of a bench whose lines tell memory by purpose: a bar of the GPU, one of
 * the host, and one of the time, each. */
void zo_report_bars(struct zo_page *page, const struct zo_report_bench *bench);

/* "weights"; "other" for ZO_REPORT_OTHER. */
const char *zo_report_purpose_text(int purpose);

/* A square and a name at a place in a figure; returns where the next one may
 * stand. */
double zo_report_key(struct zo_page *page, double at, double top, int fill,
                     const char *text);

/* Benchmarks: bars, curves, and a table of each.  ZO_E_NOMEM. */
enum zo_status
zo_report_benches(struct zo_page *page,
                  const struct zo_report_data *data) ZO_MUST_CHECK;

ZO_C_END

#endif
