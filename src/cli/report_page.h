/*
 * A page of figures: HTML and SVG on one stream, with nothing outside of it.
 *
 * Layer 8.  Markup is ours and goes through zo_page_put(); whatever came out
 * of a file or from the command line goes through zo_page_text(), which
 * escapes it, and through nothing else.  Nothing is allocated.  A failure of
 * the stream stays with it, for who closes it to see.
 */
#ifndef ZO_SRC_CLI_REPORT_PAGE_H
#define ZO_SRC_CLI_REPORT_PAGE_H

#include <stdio.h>

#include "src/base/status.h"

ZO_C_BEGIN

#define ZO_PAGE_WIDTH   960 /* of a figure, in its own units */
#define ZO_PAGE_FILLS   24  /* patterns that differ without colour */
#define ZO_PAGE_DARK    18  /* from here on they are darker */
#define ZO_PAGE_STROKES 8   /* lines that do */

struct zo_page {
    FILE *file;       /* borrowed */
    int figure_count; /* so far; makes ids */
};

/* From <!DOCTYPE to the heading; to </html>. */
void zo_page_begin(struct zo_page *page, const char *title);
void zo_page_end(struct zo_page *page);

/* Markup and numbers. */
void zo_page_put(struct zo_page *page, const char *format, ...) ZO_PRINTF(2, 3);

/*
 * Text, escaped for content and for attributes in quotes alike.  What is no
 * UTF-8, and a control character, becomes U+FFFD; after chars_max characters
 * it is cut, with an ellipsis.
 */
void zo_page_text(struct zo_page *page, const char *text, size_t chars_max);

/*
 * A figure of ZO_PAGE_WIDTH x height, with a title, and a description for who
 * does not see it; then its shapes; then its caption.
 */
void zo_page_figure_begin(struct zo_page *page, int height, const char *title,
                          const char *description);
void zo_page_figure_end(struct zo_page *page, const char *caption);

/* A table: <table>, its caption and the row of its heads, ended by NULL. */
void zo_page_table_begin(struct zo_page *page, const char *caption,
                         const char *const *heads);
void zo_page_table_end(struct zo_page *page);

/* A cell of a number of so many digits, aligned to the right; "n/a" when it is
 * not finite. */
void zo_page_cell(struct zo_page *page, double value, int digits);
/* A cell of bytes or of seconds with their unit. */
void zo_page_cell_bytes(struct zo_page *page, double bytes);
void zo_page_cell_seconds(struct zo_page *page, double seconds);

/* "url(#f3)": the fill of an index below ZO_PAGE_FILLS, as an attribute. */
void zo_page_fill(struct zo_page *page, int fill);
/* A square of that fill, for a line of text. */
void zo_page_swatch(struct zo_page *page, int fill);
/* stroke, stroke-width and stroke-dasharray; repeats from ZO_PAGE_STROKES. */
void zo_page_stroke(struct zo_page *page, int stroke);

#define ZO_PAGE_NUMBER_BYTES 32

/* "13.4 GiB", "1.25 s", "830 ms" into target (ZO_PAGE_NUMBER_BYTES). */
const char *zo_page_bytes_text(char *target, double bytes);
const char *zo_page_seconds_text(char *target, double seconds);

ZO_C_END

#endif
