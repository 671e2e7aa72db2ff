#include "src/cli/report_scale.h"

#include <math.h>

#define X_TICKS   10
#define Y_TICKS   5
#define TICKS_MAX 64 /* whatever the rounding */
#define VALUE_MAX 1e300

struct zo_scale zo_scale_of(double from, double to, double at_from,
                            double at_to, enum zo_scale_unit unit)
{
    struct zo_scale scale = {from, to, at_from, at_to, unit};

    if (!(fabs(from) < VALUE_MAX) || !(fabs(to) < VALUE_MAX) || from > to) {
        scale.from = 0.0;
        scale.to = 1.0;
    } else if (to - from <= fabs(to) * 1e-9) {
        const double margin = to == 0.0 ? 1.0 : fabs(to) * 0.1;

        scale.from = from - margin;
        scale.to = to + margin;
    }
    return scale;
}

double zo_scale_at(const struct zo_scale *scale, double value)
{
    return scale->at_from + (value - scale->from) / (scale->to - scale->from) *
                                (scale->at_to - scale->at_from);
}

double zo_scale_tick(const struct zo_scale *scale, int most)
{
    const double wanted = (scale->to - scale->from) / most;
    double unit = 1.0, power;

    if (scale->unit == ZO_SCALE_BYTES) {
        unit = exp2(10.0 * floor(log2(fmax(scale->to, 1.0)) / 10.0));
    }
    power = pow(10.0, floor(log10(wanted / unit))) * unit;
    if (wanted <= power) {
        return power;
    }
    if (wanted <= 2.0 * power) {
        return 2.0 * power;
    }
    return wanted <= 5.0 * power ? 5.0 * power : 10.0 * power;
}

const char *zo_scale_text(const struct zo_scale *scale, double value,
                          double tick, char *target)
{
    if (fabs(value) < tick * 1e-6) {
        (void)snprintf(target, ZO_PAGE_NUMBER_BYTES, "0");
        return target;
    }
    switch (scale->unit) {
    case ZO_SCALE_BYTES:
        return zo_page_bytes_text(target, value);
    case ZO_SCALE_SECONDS:
        return zo_page_seconds_text(target, value);
    case ZO_SCALE_PLAIN:
        (void)snprintf(target, ZO_PAGE_NUMBER_BYTES, "%.6g", value);
    }
    return target;
}

void zo_scale_x_axis(struct zo_page *page, const struct zo_scale *x,
                     double at_y, const char *name)
{
    const double tick = zo_scale_tick(x, X_TICKS);
    double value = ceil(x->from / tick - 1e-9) * tick;
    char text[ZO_PAGE_NUMBER_BYTES];

    zo_page_put(page,
                "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#333\" fill=\"none\"/>\n",
                x->at_from, at_y, x->at_to);
    for (int i = 0; i < TICKS_MAX && value <= x->to + tick * 1e-9; i++) {
        const double at = zo_scale_at(x, value);

        zo_page_put(page,
                    "<path d=\"M%.1f %.1fv4\" stroke=\"#333\"/>"
                    "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s"
                    "</text>\n",
                    at, at_y, at, at_y + 16.0,
                    zo_scale_text(x, value, tick, text));
        value += tick;
    }
    if (name != NULL) {
        zo_page_put(page, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">",
                    (x->at_from + x->at_to) / 2.0, at_y + 32.0);
        zo_page_text(page, name, 80);
        zo_page_put(page, "</text>\n");
    }
}

void zo_scale_y_axis(struct zo_page *page, const struct zo_scale *x,
                     const struct zo_scale *y, const char *name)
{
    const double tick = zo_scale_tick(y, Y_TICKS);
    double value = ceil(y->from / tick - 1e-9) * tick;
    char text[ZO_PAGE_NUMBER_BYTES];

    for (int i = 0; i < TICKS_MAX && value <= y->to + tick * 1e-9; i++) {
        const double at = zo_scale_at(y, value);

        zo_page_put(page,
                    "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#ddd\"/>"
                    "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s"
                    "</text>\n",
                    x->at_from, at, x->at_to, x->at_from - 6.0, at + 4.0,
                    zo_scale_text(y, value, tick, text));
        value += tick;
    }
    if (name != NULL) {
        zo_page_put(page, "<text x=\"4\" y=\"%.1f\" font-weight=\"600\">",
                    y->at_to - 16.0);
        zo_page_text(page, name, 100);
        zo_page_put(page, "</text>\n");
    }
}
