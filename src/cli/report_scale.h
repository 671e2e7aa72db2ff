/*
 * Scales and axes: where a value lies in a figure.  Layer 8.
 */
#ifndef ZO_SRC_CLI_REPORT_SCALE_H
#define ZO_SRC_CLI_REPORT_SCALE_H

#include "src/cli/report_page.h"

ZO_C_BEGIN

/* How ticks are written. */
enum zo_scale_unit { ZO_SCALE_PLAIN, ZO_SCALE_BYTES, ZO_SCALE_SECONDS };

/* Values [from, to] lie at [at_from, at_to]. */
struct zo_scale {
    double from, to;
    double at_from, at_to;
    enum zo_scale_unit unit;
};

/* A scale that holds [from, to], widened where they are equal or not finite. */
struct zo_scale zo_scale_of(double from, double to, double at_from,
                            double at_to, enum zo_scale_unit unit);

double zo_scale_at(const struct zo_scale *scale, double value);

/* Distance between ticks: 1, 2 or 5 times a power of ten (of bytes: of two),
 * so that there are at most `most`. */
double zo_scale_tick(const struct zo_scale *scale, int most);

/* A tick's text into target (ZO_PAGE_NUMBER_BYTES). */
const char *zo_scale_text(const struct zo_scale *scale, double value,
                          double tick, char *target);

/* The axis of x at a height, with its name below; the name may be NULL. */
void zo_scale_x_axis(struct zo_page *page, const struct zo_scale *x, double at,
                     const char *name);

/* The axis of y at the left of a field as wide as x, with a line across the
 * field at every tick, and its name above; the name may be NULL. */
void zo_scale_y_axis(struct zo_page *page, const struct zo_scale *x,
                     const struct zo_scale *y, const char *name);

ZO_C_END

#endif
