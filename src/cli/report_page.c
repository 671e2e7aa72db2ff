#include "src/cli/report_page.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "src/base/text.h"

/* Light on purpose: pages are printed.  Fonts are the reader's own. */
static const char style[] =
    "body{font:15px/1.5 system-ui,sans-serif;color:#111;background:#fff;"
    "max-width:62rem;margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.5rem;margin-bottom:0}"
    "h2{font-size:1.15rem;margin:2.2rem 0 .4rem;border-top:1px solid #bbb;"
    "padding-top:.8rem}"
    "p{margin:.4rem 0;max-width:46rem}"
    "figure{margin:.6rem 0 1rem;break-inside:avoid}"
    "svg{max-width:100%;height:auto;font:12px system-ui,sans-serif}"
    "figcaption,caption{font-size:.87rem;color:#333;text-align:left}"
    "caption{padding:.5rem 0 .2rem;font-weight:600}"
    "table{border-collapse:collapse;margin:.4rem 0 1rem;font-size:.87rem;"
    "break-inside:avoid}"
    "th,td{padding:.15rem .7rem .15rem 0;text-align:left;"
    "border-bottom:1px solid #ddd;vertical-align:top}"
    "thead th{border-bottom-color:#777}tbody th{font-weight:500}"
    ".n{text-align:right}td.n{white-space:nowrap;font-variant-numeric:tabular-"
    "nums}"
    ".wide{overflow-x:auto}"
    ".halo{paint-order:stroke;stroke:#fff;stroke-width:3px;"
    "stroke-linejoin:round}"
    "@media print{body{margin:0;max-width:none}h2{break-after:avoid}}";

enum hatch { PLAIN, SLASH, BACKSLASH, LEVEL, UPRIGHT, DOTS, CROSS };

/* Two that lie on one another differ in hatch, not in colour alone. */
static const struct {
    const char *colour;
    enum hatch hatch;
} fills[ZO_PAGE_FILLS] = {
    {"#9ec5e8", PLAIN},     {"#f3c98b", SLASH},     {"#b7d99a", LEVEL},
    {"#e8a6a1", BACKSLASH}, {"#c9b6e4", DOTS},      {"#f6e58d", PLAIN},
    {"#8fd3c7", UPRIGHT},   {"#f0b6d5", CROSS},     {"#d9d9d9", SLASH},
    {"#a9b8f0", BACKSLASH}, {"#e3d0b4", LEVEL},     {"#b5e2f0", DOTS},
    {"#cfe3b0", CROSS},     {"#eeeeee", UPRIGHT},   {"#f7d7c4", PLAIN},
    {"#c7c7e8", LEVEL},     {"#ffffff", DOTS},      {"#bbbbbb", PLAIN},
    {"#6f9fd8", PLAIN},     {"#d9736b", BACKSLASH}, {"#ecd04a", DOTS},
    {"#ee9b3a", SLASH},     {"#6fb37f", LEVEL},     {"#b0b0b0", UPRIGHT},
};

static const struct {
    const char *colour, *dashes;
} strokes[ZO_PAGE_STROKES] = {
    {"#14508c", "none"},  {"#b3420a", "7 3"},      {"#2a7a2a", "2 3"},
    {"#7a2a8c", "9 3 2"}, {"#8c6d14", "12 4"},     {"#0a7f86", "4 2 1 2"},
    {"#a3154e", "1 2"},   {"#444444", "10 2 2 2"},
};

void zo_page_put(struct zo_page *page, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vfprintf(page->file, format, args);
    va_end(args);
}

static void put_char(FILE *file, const char *text, size_t size_bytes,
                     uint32_t code)
{
    switch (code) {
    case '&':
        (void)fputs("&amp;", file);
        break;
    case '<':
        (void)fputs("&lt;", file);
        break;
    case '>':
        (void)fputs("&gt;", file);
        break;
    case '"':
        (void)fputs("&quot;", file);
        break;
    case '\'':
        (void)fputs("&#39;", file);
        break;
    default:
        (void)fwrite(text, 1, size_bytes, file);
    }
}

/* C0, DEL, C1, what turns the direction of text, and noncharacters. */
static bool is_shown(uint32_t code)
{
    const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    const bool turns = (code >= 0x200e && code <= 0x200f) ||
                       (code >= 0x202a && code <= 0x202e) ||
                       (code >= 0x2066 && code <= 0x2069);

    return !is_control && !turns && (code & 0xfffe) != 0xfffe;
}

void zo_page_text(struct zo_page *page, const char *text, size_t chars_max)
{
    const size_t size_bytes = strlen(text);
    size_t chars = 0;

    for (size_t at = 0; at < size_bytes; chars++) {
        uint32_t code = 0;
        const size_t length = zo_utf8_decode(text + at, size_bytes - at, &code);

        if (chars == chars_max) {
            (void)fputs("\xe2\x80\xa6", page->file);
            return;
        }
        if (length == 0 || !is_shown(code)) {
            (void)fputs("\xef\xbf\xbd", page->file);
        } else {
            put_char(page->file, text + at, length, code);
        }
        at += length > 0 ? length : 1;
    }
}

/* ---- patterns ------------------------------------------------------------ */

static void put_hatch(struct zo_page *page, enum hatch hatch)
{
    const char *path = "";

    switch (hatch) {
    case PLAIN:
        return;
    case SLASH:
        path = "M-2 2L2-2M0 8L8 0M6 10L10 6";
        break;
    case BACKSLASH:
        path = "M-2 6L2 10M0 0L8 8M6-2L10 2";
        break;
    case LEVEL:
        path = "M0 4H8";
        break;
    case UPRIGHT:
        path = "M4 0V8";
        break;
    case DOTS:
        path = "M2 2h1.4v1.4h-1.4zM6 6h1.4v1.4h-1.4z";
        break;
    case CROSS:
        path = "M0 4H8M4 0V8";
        break;
    }
    zo_page_put(page,
                "<path d=\"%s\" fill=\"%s\" stroke=\"#333\" "
                "stroke-width=\".7\"/>",
                path, hatch == DOTS ? "#333" : "none");
}

/* Once a page: every figure may use them. */
static void put_patterns(struct zo_page *page)
{
    zo_page_put(page, "<svg width=\"0\" height=\"0\" aria-hidden=\"true\" "
                      "style=\"position:absolute\"><defs>\n");
    for (int i = 0; i < ZO_PAGE_FILLS; i++) {
        zo_page_put(page,
                    "<pattern id=\"f%d\" width=\"8\" height=\"8\" "
                    "patternUnits=\"userSpaceOnUse\">"
                    "<rect width=\"8\" height=\"8\" fill=\"%s\"/>",
                    i, fills[i].colour);
        put_hatch(page, fills[i].hatch);
        zo_page_put(page, "</pattern>\n");
    }
    zo_page_put(page, "</defs></svg>\n");
}

void zo_page_fill(struct zo_page *page, int fill)
{
    zo_page_put(page, "fill=\"url(#f%d)\" stroke=\"#333\" stroke-width=\".5\"",
                fill);
}

void zo_page_swatch(struct zo_page *page, int fill)
{
    zo_page_put(page, "<svg width=\"16\" height=\"12\" aria-hidden=\"true\">"
                      "<rect width=\"16\" height=\"12\" ");
    zo_page_fill(page, fill);
    zo_page_put(page, "/></svg> ");
}

void zo_page_stroke(struct zo_page *page, int stroke)
{
    const int index = stroke % ZO_PAGE_STROKES;

    zo_page_put(page,
                "fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" "
                "stroke-dasharray=\"%s\"",
                strokes[index].colour, strokes[index].dashes);
}

/* ---- the page ------------------------------------------------------------ */

void zo_page_begin(struct zo_page *page, const char *title)
{
    zo_page_put(page, "<!DOCTYPE html>\n<html lang=\"en\"><head>"
                      "<meta charset=\"utf-8\"/>\n"
                      "<meta name=\"viewport\" "
                      "content=\"width=device-width,initial-scale=1\"/>\n"
                      "<meta http-equiv=\"Content-Security-Policy\" "
                      "content=\"default-src 'none';"
                      "style-src 'unsafe-inline'\"/>\n<title>");
    zo_page_text(page, title, 200);
    zo_page_put(page, "</title>\n<style>%s</style></head>\n<body>\n", style);
    put_patterns(page);
    zo_page_put(page, "<h1>");
    zo_page_text(page, title, 200);
    zo_page_put(page, "</h1>\n");
}

void zo_page_end(struct zo_page *page)
{
    zo_page_put(page, "</body></html>\n");
}

void zo_page_figure_begin(struct zo_page *page, int height, const char *title,
                          const char *description)
{
    const int id = ++page->figure_count;

    zo_page_put(page,
                "<figure><svg role=\"img\" aria-labelledby=\"t%d d%d\" "
                "width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n"
                "<title id=\"t%d\">",
                id, id, ZO_PAGE_WIDTH, height, ZO_PAGE_WIDTH, height, id);
    zo_page_text(page, title, 300);
    zo_page_put(page, "</title><desc id=\"d%d\">", id);
    zo_page_text(page, description, 2000);
    zo_page_put(page, "</desc>\n");
}

void zo_page_figure_end(struct zo_page *page, const char *caption)
{
    zo_page_put(page, "</svg>\n<figcaption>");
    zo_page_text(page, caption, 2000);
    zo_page_put(page, "</figcaption></figure>\n");
}

void zo_page_table_begin(struct zo_page *page, const char *caption,
                         const char *const *heads)
{
    zo_page_put(page, "<div class=\"wide\"><table><caption>");
    zo_page_text(page, caption, 500);
    zo_page_put(page, "</caption><thead><tr>");
    for (size_t i = 0; heads[i] != NULL; i++) {
        zo_page_put(page, "<th scope=\"col\"%s>", i > 0 ? " class=\"n\"" : "");
        zo_page_text(page, heads[i], 100);
        zo_page_put(page, "</th>");
    }
    zo_page_put(page, "</tr></thead><tbody>\n");
}

void zo_page_table_end(struct zo_page *page)
{
    zo_page_put(page, "</tbody></table></div>\n");
}

void zo_page_cell(struct zo_page *page, double value, int digits)
{
    zo_page_put(page, "<td class=\"n\">");
    if (fabs(value) >= 1000.0 && fabs(value) < 1e7) {
        zo_page_put(page, "%.0f", value); /* %g would take an exponent */
    } else if (isfinite(value)) {
        zo_page_put(page, "%.*g", digits, value);
    } else {
        zo_page_put(page, "n/a");
    }
    zo_page_put(page, "</td>");
}

void zo_page_cell_bytes(struct zo_page *page, double bytes)
{
    char text[ZO_PAGE_NUMBER_BYTES];

    zo_page_put(page, "<td class=\"n\">%s</td>",
                zo_page_bytes_text(text, bytes));
}

void zo_page_cell_seconds(struct zo_page *page, double seconds)
{
    char text[ZO_PAGE_NUMBER_BYTES];

    zo_page_put(page, "<td class=\"n\">%s</td>",
                zo_page_seconds_text(text, seconds));
}

const char *zo_page_bytes_text(char *target, double bytes)
{
    if (!(bytes >= 0.0) || bytes > 1e18) {
        (void)snprintf(target, ZO_PAGE_NUMBER_BYTES, "n/a");
    } else if (bytes < 1.0) {
        (void)snprintf(target, ZO_PAGE_NUMBER_BYTES, "0");
    } else {
        (void)zo_text_gib(target, ZO_PAGE_NUMBER_BYTES, (uint64_t)bytes);
    }
    return target;
}

const char *zo_page_seconds_text(char *target, double seconds)
{
    const double size = fabs(seconds);

    if (!isfinite(seconds) || size > 1e12) {
        (void)snprintf(target, ZO_PAGE_NUMBER_BYTES, "n/a");
    } else if (size >= 1.0 || size == 0.0) {
        (void)snprintf(target, ZO_PAGE_NUMBER_BYTES, "%.3g s", seconds);
    } else if (size >= 1e-3) {
        (void)snprintf(target, ZO_PAGE_NUMBER_BYTES, "%.3g ms", seconds * 1e3);
    } else {
        (void)snprintf(target, ZO_PAGE_NUMBER_BYTES, "%.3g us", seconds * 1e6);
    }
    return target;
}
