/*
 * Time.  Known answers come from date -u -d @SECONDS.
 */
#include "src/base/clock.h"

#include <math.h>
#include <string.h>

#include "tests/tap.h"

static void test_monotonic(void)
{
    int64_t last = zo_clock_ns();

    for (int i = 0; i < 1000; i++) {
        const int64_t now = zo_clock_ns();

        TAP_CHECK(now >= last);
        last = now;
    }
    TAP_CHECK(zo_clock_seconds(1000000000, 3500000000) == 2.5);
}

static void test_wall(void)
{
    /* Between 2020 and 2100, in milliseconds. */
    TAP_CHECK(zo_clock_wall_ms() > 1577836800000);
    TAP_CHECK(zo_clock_wall_ms() < 4102444800000);
}

static void test_iso(void)
{
    static const struct {
        int64_t wall_ms;
        const char *want;
    } rows[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {1791036359042, "2026-10-03T14:05:59.042Z"},
        {1709164800000, "2024-02-29T00:00:00.000Z"},
        {951782399999, "2000-02-28T23:59:59.999Z"},
        {-1, "1969-12-31T23:59:59.999Z"},
        {253402300799999, "9999-12-31T23:59:59.999Z"},
    };
    char text[ZO_CLOCK_ISO_BYTES];

    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        if (strcmp(zo_clock_iso(text, rows[i].wall_ms), rows[i].want) != 0) {
            tap_fail(__FILE__, __LINE__, "got %s, want %s", text, rows[i].want);
        }
    }
}

static void test_span(void)
{
    static const struct {
        double seconds;
        const char *want;
    } rows[] = {
        {0.0, "0:00"},
        {0.6, "0:01"},
        {59.4, "0:59"},
        {59.6, "1:00"},
        {3599.4, "59:59"},
        {3600.0, "1:00:00"},
        {3907.0, "1:05:07"},
        {86399.0, "23:59:59"},
        {86400.0, "1d 00:00:00"},
        {184200.0, "2d 03:10:00"},
        {1e12, "999d 00:00:00"},
        {-1.0, "?"},
    };
    char text[ZO_CLOCK_SPAN_BYTES];

    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        if (strcmp(zo_clock_span(text, rows[i].seconds), rows[i].want) != 0) {
            tap_fail(__FILE__, __LINE__, "%g: got %s, want %s", rows[i].seconds,
                     text, rows[i].want);
        }
    }
    TAP_CHECK(strcmp(zo_clock_span(text, NAN), "?") == 0);
    TAP_CHECK(strcmp(zo_clock_span(text, INFINITY), "?") == 0);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"the monotonic clock never goes backwards", test_monotonic},
        {"the wall clock is of this century", test_wall},
        {"ISO times are right at leap days and before 1970", test_iso},
        {"a span is written for people and never wraps", test_span},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
