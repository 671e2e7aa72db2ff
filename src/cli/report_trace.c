/*
 * The trace of a report.  A trace is one object of many events, so it is cut
 * at the events' own brackets and each is read as a document by itself: what
 * is held of the file is what the figures need.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/cli/report_data.h"

#define US_MAX         1e12 /* 11 days */
#define US_MIN         1e-3 /* of a step: no width is 0 */
#define STEPS_NAME     "steps"
#define STEP_PREFIX    "step "
#define PURPOSE_SUFFIX " by purpose"

struct events {
    const char *path, *text;
    size_t size_bytes, at;
    int64_t number; /* of the event that comes next, from 1 */
};

/* ---- the text ------------------------------------------------------------ */

/* Behind the bracket that opens the list of events. */
static enum zo_status find_events(struct events *events)
{
    static const char mark[] = "\"traceEvents\"";
    const char *found =
        memmem(events->text, events->size_bytes, mark, sizeof(mark) - 1);
    const size_t after = (size_t)(found - events->text) + sizeof(mark) - 1;
    const size_t blanks = strspn(events->text + after, " \t\r\n:");

    events->at = after + blanks;
    events->number = 1;
    if (events->text[events->at] != '[') {
        return ZO_FAIL(ZO_E_CORRUPT, "%s: traceEvents: want an array",
                       events->path);
    }
    events->at++;
    return ZO_OK;
}

/* Bytes from an opening bracket to the one that closes it; 0: none does. */
static size_t object_bytes(const char *text, size_t size_bytes)
{
    bool is_string = false;
    size_t depth = 0;

    for (size_t i = 0; i < size_bytes; i++) {
        if (is_string && text[i] == '\\') {
            i++; /* whatever it is, it ends no string */
        } else if (text[i] == '"') {
            is_string = !is_string;
        } else if (is_string) {
            continue;
        } else if (text[i] == '{') {
            depth++;
        } else if (text[i] == '}' && --depth == 0) {
            return i + 1;
        }
    }
    return 0;
}

/* The next event; *doc_out is NULL at the end of the list. */
static enum zo_status next_event(struct events *events,
                                 struct zo_json_doc **doc_out)
{
    const struct zo_json_options options = {
        .status = ZO_E_CORRUPT, .size_max_bytes = ZO_REPORT_LINE_BYTES};
    char name[300];
    size_t bytes;

    *doc_out = NULL;
    events->at += strspn(events->text + events->at, " \t\r\n,");
    if (events->text[events->at] == ']') {
        return ZO_OK;
    }
    (void)snprintf(name, sizeof(name), "%s: event %" PRId64, events->path,
                   events->number++);
    if (events->text[events->at] != '{') {
        return ZO_FAIL(ZO_E_CORRUPT, "%s: want an object, found %s", name,
                       events->at < events->size_bytes ? "something else"
                                                       : "the end");
    }
    bytes = object_bytes(events->text + events->at,
                         events->size_bytes - events->at);
    if (bytes == 0) {
        return ZO_FAIL(ZO_E_CORRUPT, "%s: is cut off", name);
    }
    ZO_TRY(zo_json_parse(name, events->text + events->at, bytes, &options,
                         doc_out));
    events->at += bytes;
    return ZO_OK;
}

/* ---- events -------------------------------------------------------------- */

static enum zo_status too_many(const struct events *events, const char *what,
                               int most)
{
    return ZO_FAIL(ZO_E_CORRUPT, "%s: event %" PRId64 ": more than %d %s",
                   events->path, events->number - 1, most, what);
}

static enum zo_status add_lane(struct zo_report_trace *trace,
                               const struct events *events,
                               const struct zo_json *event)
{
    const char *name = zo_report_string(zo_json_get(event, "args"), "name");
    const struct zo_json *tid = zo_json_get(event, "tid");
    struct zo_report_lane *lane = &trace->lanes[trace->lane_count];
    int64_t number = 0;

    if (name == NULL || tid == NULL || !zo_json_int(tid, &number)) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: event %" PRId64 ": thread_name: want tid and "
                       "args.name",
                       events->path, events->number - 1);
    }
    if (trace->lane_count == ZO_REPORT_LANES_MAX) {
        return too_many(events, "lanes", ZO_REPORT_LANES_MAX);
    }
    lane->tid = number;
    (void)snprintf(lane->name, sizeof(lane->name), "%s", name);
    trace->lane_count++;
    return ZO_OK;
}

static int find_lane(const struct zo_report_trace *trace,
                     const struct zo_json *event)
{
    const double tid = zo_report_number(event, "tid");

    for (int i = 0; i < trace->lane_count; i++) {
        if ((double)trace->lanes[i].tid == tid) {
            return i;
        }
    }
    return -1;
}

static enum zo_report_kind kind_of(const char *category, const char *name)
{
    if (strcmp(category, "h2d") == 0 || strcmp(category, "d2h") == 0 ||
        strcmp(category, "nvme") == 0 ||
        strncmp(name, "weights ", strlen("weights ")) == 0) {
        return ZO_REPORT_COPY; /* the weights of other devices, too */
    }
    if (strstr(name, "AdamW") != NULL) {
        return ZO_REPORT_UPDATE;
    }
    if (strcmp(category, "collective") == 0 ||
        strncmp(name, "gradient ", strlen("gradient ")) == 0) {
        return ZO_REPORT_GRADIENT;
    }
    if (strcmp(category, "compute") != 0) {
        return ZO_REPORT_OTHER_WORK;
    }
    return strstr(name, "backward") != NULL ||
                   strstr(name, "gradient") != NULL ||
                   strstr(name, "scatter") != NULL
               ? ZO_REPORT_BACKWARD
               : ZO_REPORT_FORWARD;
}

static enum zo_status add_window(struct zo_report_trace *trace,
                                 const char *name,
                                 const struct zo_report_span *span)
{
    struct zo_report_window window = {
        .begin_us = span->begin_us,
        .end_us = fmax(span->end_us, span->begin_us + US_MIN)};

    if (strncmp(name, STEP_PREFIX, strlen(STEP_PREFIX)) == 0) {
        window.step = strtoll(name + strlen(STEP_PREFIX), NULL, 10);
    }
    ZO_TRY(zo_grow(&trace->windows, trace->window_count,
                   &trace->window_capacity, sizeof(window), "a trace"));
    trace->windows[trace->window_count++] = window;
    return ZO_OK;
}

static enum zo_status add_span(struct zo_report_trace *trace,
                               const struct events *events,
                               const struct zo_json *event, const char *name)
{
    const char *category = zo_report_string(event, "cat");
    const double begin = zo_report_number(event, "ts");
    const double length = zo_report_number(event, "dur");
    const struct zo_report_span span = {
        .begin_us = begin,
        .end_us = begin + length,
        .lane = find_lane(trace, event),
        .kind = kind_of(category != NULL ? category : "", name),
    };

    if (!(begin >= 0.0) || !(length >= 0.0) || !(begin + length <= US_MAX)) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: event %" PRId64 ": want ts and dur from 0 to %g",
                       events->path, events->number - 1, US_MAX);
    }
    if (span.lane < 0) {
        return ZO_OK; /* nobody named its lane */
    }
    if (strcmp(trace->lanes[span.lane].name, STEPS_NAME) == 0) {
        return add_window(trace, name, &span);
    }
    ZO_TRY(zo_grow(&trace->spans, trace->span_count, &trace->span_capacity,
                   sizeof(span), "a trace"));
    trace->spans[trace->span_count++] = span;
    return ZO_OK;
}

static enum zo_status find_tier(struct zo_report_trace *trace,
                                const struct events *events, const char *name,
                                size_t length, struct zo_report_tier **tier_out)
{
    char text[ZO_REPORT_NAME_BYTES];

    (void)snprintf(text, sizeof(text), "%.*s", (int)length, name);
    for (int i = 0; i < trace->tier_count; i++) {
        if (strcmp(trace->tiers[i].name, text) == 0) {
            *tier_out = &trace->tiers[i];
            return ZO_OK;
        }
    }
    if (trace->tier_count == ZO_REPORT_TIERS_MAX) {
        return too_many(events, "tiers", ZO_REPORT_TIERS_MAX);
    }
    *tier_out = &trace->tiers[trace->tier_count++];
    memcpy((*tier_out)->name, text, sizeof(text));
    return ZO_OK;
}

static int purpose_of(const char *name)
{
    for (int p = 0; p < ZO_PURPOSES; p++) {
        if (strcmp(zo_purpose_text((enum zo_purpose)p), name) == 0) {
            return p;
        }
    }
    return ZO_REPORT_OTHER;
}

static enum zo_status add_counter(struct zo_report_trace *trace,
                                  const struct events *events,
                                  const struct zo_json *event, const char *name)
{
    const size_t suffix = strlen(PURPOSE_SUFFIX), length = strlen(name);
    struct zo_report_sample sample = {.us = zo_report_number(event, "ts")};
    struct zo_report_tier *tier = NULL;

    if (length < suffix || length > ZO_REPORT_NAME_BYTES ||
        strcmp(name + length - suffix, PURPOSE_SUFFIX) != 0) {
        return ZO_OK; /* another counter */
    }
    ZO_TRY(find_tier(trace, events, name, length - suffix, &tier));
    for (const struct zo_json *value =
             zo_json_first(zo_json_get(event, "args"));
         value != NULL; value = zo_json_next(value)) {
        const double bytes = zo_json_type(value) == ZO_JSON_NUMBER
                                 ? zo_json_number(value)
                                 : -1.0;

        if (!(bytes >= 0.0 && bytes <= 1e18)) {
            return ZO_FAIL(ZO_E_CORRUPT,
                           "%s: event %" PRId64 ": want bytes from 0",
                           events->path, events->number - 1);
        }
        sample.bytes[purpose_of(zo_json_key(value))] += bytes;
    }
    if (!(sample.us >= 0.0 && sample.us <= US_MAX) ||
        (tier->sample_count > 0 &&
         tier->samples[tier->sample_count - 1].us > sample.us)) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: event %" PRId64 ": want counters in order of time",
                       events->path, events->number - 1);
    }
    ZO_TRY(zo_grow(&tier->samples, tier->sample_count, &tier->sample_capacity,
                   sizeof(sample), "a trace"));
    tier->samples[tier->sample_count++] = sample;
    return ZO_OK;
}

static enum zo_status add_event(struct zo_report_trace *trace,
                                const struct events *events,
                                const struct zo_json *event)
{
    const char *phase = zo_report_string(event, "ph");
    const char *name = zo_report_string(event, "name");

    if (phase == NULL || name == NULL) {
        return ZO_FAIL(ZO_E_CORRUPT, "%s: event %" PRId64 ": want ph and name",
                       events->path, events->number - 1);
    }
    if (strcmp(phase, "M") == 0 && strcmp(name, "thread_name") == 0) {
        return add_lane(trace, events, event);
    }
    if (strcmp(phase, "X") == 0) {
        return add_span(trace, events, event, name);
    }
    return strcmp(phase, "C") == 0 ? add_counter(trace, events, event, name)
                                   : ZO_OK;
}

enum zo_status zo_report_read_trace(const char *path, const char *text,
                                    size_t size_bytes,
                                    struct zo_report_trace *trace)
{
    struct events events = {
        .path = path, .text = text, .size_bytes = size_bytes};

    ZO_TRY(find_events(&events));
    for (;;) {
        struct zo_json_doc *doc = NULL;
        enum zo_status status;

        ZO_TRY(next_event(&events, &doc));
        if (doc == NULL) {
            break;
        }
        status = add_event(trace, &events, zo_json_root(doc));
        zo_json_close(doc);
        ZO_TRY(status);
    }
    if (trace->window_count == 0) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: holds no step; want a trace of train that reached "
                       "one of --trace-steps",
                       path);
    }
    return ZO_OK;
}
