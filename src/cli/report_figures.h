/*
 * The figures of a report.  Layer 8; each adds its section to the page, and
 * nothing where there is nothing to show.
 */
#ifndef ZO_SRC_CLI_REPORT_FIGURES_H
#define ZO_SRC_CLI_REPORT_FIGURES_H

#include "src/cli/report_data.h"
#include "src/cli/report_page.h"

ZO_C_BEGIN

/* Points of a line; those that are not finite are left out. */
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
    int y_unit; /* enum zo_scale_unit */
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

/* Benchmarks: the stage table, the frontier, and all others as tables. */
enum zo_status
zo_report_benches(struct zo_page *page,
                  const struct zo_report_data *data) ZO_MUST_CHECK;

ZO_C_END

#endif
