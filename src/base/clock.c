#include "src/base/clock.h"

#include <stdio.h>
#include <time.h>

int64_t zo_clock_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t zo_clock_wall_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

const char *zo_clock_iso(char *target, int64_t wall_ms)
{
    int64_t seconds = wall_ms / 1000, rest_ms = wall_ms % 1000;
    struct tm utc = {0};
    time_t when;

    if (rest_ms < 0) { /* before 1970: division rounds towards zero */
        rest_ms += 1000;
        seconds--;
    }
    when = (time_t)seconds;
    (void)gmtime_r(&when, &utc);
    (void)snprintf(
        target, ZO_CLOCK_ISO_BYTES, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ",
        (utc.tm_year + 1900) % 10000, (utc.tm_mon + 1) % 100, utc.tm_mday % 100,
        utc.tm_hour % 100, utc.tm_min % 100, utc.tm_sec % 100, (int)rest_ms);
    return target;
}

const char *zo_clock_span(char *target, double seconds)
{
    const double longest = 999.0 * 86400.0;
    int64_t whole;
    int days, hours, minutes;

    if (!(seconds >= 0.0 && seconds < 1e300)) {
        (void)snprintf(target, ZO_CLOCK_SPAN_BYTES, "?");
        return target;
    }
    whole = (int64_t)((seconds < longest ? seconds : longest) + 0.5);
    days = (int)(whole / 86400);
    hours = (int)(whole / 3600 % 24);
    minutes = (int)(whole / 60 % 60);
    if (days > 0) {
        (void)snprintf(target, ZO_CLOCK_SPAN_BYTES, "%dd %02d:%02d:%02d", days,
                       hours, minutes, (int)(whole % 60));
    } else if (hours > 0) {
        (void)snprintf(target, ZO_CLOCK_SPAN_BYTES, "%d:%02d:%02d", hours,
                       minutes, (int)(whole % 60));
    } else {
        (void)snprintf(target, ZO_CLOCK_SPAN_BYTES, "%d:%02d", minutes,
                       (int)(whole % 60));
    }
    return target;
}
