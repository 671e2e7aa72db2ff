/*
 * The trace of a run: what is in the file, read back as JSON.
 */
#include "src/train/trace.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/json.h"
#include "src/base/memory.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

#define EVENTS_MAX 20000
#define LANES_MAX  64
#define SLACK_US   0.002 /* times are decimal numbers of nanoseconds */

struct event {
    char phase;
    const char *name; /* borrowed from the document */
    int64_t lane;
    double ts, dur;
    const struct zo_json *args;
};

struct file {
    struct zo_json_doc *doc;
    struct event events[EVENTS_MAX];
    size_t count;
};

static struct file file;

/* ---- reading ------------------------------------------------------------- */

static double number_of(const struct zo_json *object, const char *key)
{
    const struct zo_json *value = zo_json_get(object, key);

    return value == NULL ? -1.0 : zo_json_number(value);
}

static bool read_event(const struct zo_json *json, struct event *event)
{
    const struct zo_json *phase = zo_json_get(json, "ph");
    const struct zo_json *name = zo_json_get(json, "name");
    const struct zo_json *lane = zo_json_get(json, "tid");

    if (phase == NULL || name == NULL || lane == NULL ||
        number_of(json, "pid") != 1.0 || !zo_json_int(lane, &event->lane)) {
        return false;
    }
    event->phase = zo_json_string(phase)[0];
    event->name = zo_json_string(name);
    event->ts = number_of(json, "ts");
    event->dur = number_of(json, "dur");
    event->args = zo_json_get(json, "args");
    return strchr("XMC", event->phase) != NULL &&
           (event->phase == 'M' || event->ts >= 0.0) &&
           (event->phase != 'X' || event->dur >= 0.0);
}

/* Into `file`; ended with close_file(). */
static bool read_file(const char *path)
{
    const struct zo_json *events;

    file.doc = NULL;
    file.count = 0;
    if (zo_json_read(path, NULL, &file.doc) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
        return false;
    }
    events = zo_json_get(zo_json_root(file.doc), "traceEvents");
    for (const struct zo_json *json = zo_json_first(events); json != NULL;
         json = zo_json_next(json)) {
        if (file.count == EVENTS_MAX ||
            !read_event(json, &file.events[file.count++])) {
            tap_fail(__FILE__, __LINE__, "event %d", (int)file.count);
            return false;
        }
    }
    return true;
}

static void close_file(void)
{
    zo_json_close(file.doc);
    file.doc = NULL;
}

/* Bytes of a file of no events. */
static size_t empty_bytes(void)
{
    return strlen("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[]}\n");
}

static size_t bytes_in(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 ? (size_t)info.st_size : 0;
}

/* The lane of that name, or -1. */
static int64_t find_lane(const char *name)
{
    for (size_t i = 0; i < file.count; i++) {
        const struct event *event = &file.events[i];

        if (event->phase == 'M' && strcmp(event->name, "thread_name") == 0 &&
            strcmp(zo_json_string(zo_json_get(event->args, "name")), name) ==
                0) {
            return event->lane;
        }
    }
    return -1;
}

/* Events of a lane; lane -1: all. */
static int count_events(char phase, int64_t lane)
{
    int count = 0;

    for (size_t i = 0; i < file.count; i++) {
        count += file.events[i].phase == phase &&
                 (lane < 0 || file.events[i].lane == lane);
    }
    return count;
}

/* ---- runs ---------------------------------------------------------------- */

static struct zo_trace_options options_of(const char *path, int64_t first,
                                          int64_t last)
{
    return (struct zo_trace_options){
        .path = path, .first_step = first, .last_step = last};
}

/* Trains with a trace; what was kept is written when it is closed. */
static enum zo_status run_traced(struct tiny_knobs knobs,
                                 const struct zo_trace_options *options,
                                 struct tiny_result *result)
{
    struct zo_trace *trace = NULL;
    struct tiny_run run = {0};
    enum zo_status status;

    ZO_TRY(zo_trace_open(options, &trace));
    knobs.records_times = true;
    knobs.trace = trace;
    status = tiny_open(&knobs, &run);
    if (status == ZO_OK) {
        status = tiny_start(&run);
    }
    if (status == ZO_OK) {
        status = zo_trace_create(trace);
    }
    if (status == ZO_OK) {
        status = tiny_train(&run, result);
    }
    zo_trace_close(trace);
    tiny_close(&run);
    return status;
}

static const struct tiny_knobs two_devices = {
    .devices = 2,
    .accumulation = 2,
    .json = "\"gradient_clipping\": 1",
};

/* Complete events of a lane, one after another. */
static bool lanes_are_free(void)
{
    for (size_t i = 0; i < file.count; i++) {
        const struct event *a = &file.events[i];

        for (size_t j = i + 1; j < file.count && a->phase == 'X'; j++) {
            const struct event *b = &file.events[j];

            if (b->phase == 'X' && a->lane == b->lane &&
                a->ts + a->dur > b->ts + SLACK_US &&
                b->ts + b->dur > a->ts + SLACK_US) {
                tap_fail(__FILE__, __LINE__, "%s at %.3f for %.3f, %s at %.3f",
                         a->name, a->ts, a->dur, b->name, b->ts);
                return false;
            }
        }
    }
    return true;
}

static void check_lanes(void)
{
    static const char *const names[] = {
        "steps",
        "GPU 0 computation",
        "GPU 1 computation",
        "GPU 0 to device",
        "GPU 1 to device",
        "GPU 0 from device",
        "GPU 1 from device",
        "collectives",
        "processor 0",
    };
    int events = 0;

    for (size_t i = 0; i < TAP_COUNT(names); i++) {
        const int64_t lane = find_lane(names[i]);

        if (lane < 0 || count_events('X', lane) == 0) {
            tap_fail(__FILE__, __LINE__, "no lane %s", names[i]);
            return;
        }
        events += count_events('X', lane);
    }
    TAP_CHECK_INT(events, count_events('X', -1)); /* and no other lane */
    TAP_CHECK_INT(count_events('X', find_lane("steps")), 3);
    TAP_CHECK(lanes_are_free());
}

/* Copies tell their bytes and rate, layers their name, all their step. */
static void check_args(void)
{
    const int64_t copies = find_lane("GPU 0 to device");
    const int64_t steps = find_lane("steps");
    bool has_unit = false, has_micro = false;

    for (size_t i = 0; i < file.count; i++) {
        const struct event *event = &file.events[i];
        const struct zo_json *unit = zo_json_get(event->args, "unit");

        if (event->phase != 'X' || event->lane == steps) {
            continue;
        }
        TAP_CHECK(number_of(event->args, "step") >= 2.0);
        TAP_CHECK(number_of(event->args, "step") <= 4.0);
        if (event->lane == copies) {
            const double bytes = number_of(event->args, "bytes");
            const double rate = number_of(event->args, "GB/s");

            TAP_CHECK(bytes > 0.0);
            TAP_CHECK(event->dur == 0.0 ||
                      (rate * event->dur * 1e3 > bytes * 0.999 &&
                       rate * event->dur * 1e3 < bytes * 1.001));
        }
        has_unit = has_unit || (unit != NULL &&
                                strcmp(zo_json_string(unit), "layer 1") == 0);
        has_micro = has_micro || number_of(event->args, "micro") == 1.0;
    }
    TAP_CHECK(has_unit);
    TAP_CHECK(has_micro);
}

static void test_whole(void)
{
    const char *path = fx_path("whole.json");
    const struct zo_trace_options options = options_of(path, 2, 4);
    static struct tiny_result result;

    TAP_CHECK_INT(run_traced(two_devices, &options, &result), ZO_OK);
    TAP_CHECK(read_file(path));
    check_lanes();
    check_args();
    close_file();
}

/* The counter of a tier never passes its arena, and comes near to it. */
static void check_counter(const char *name, uint64_t arena_bytes)
{
    double most = 0.0, last = -1.0;

    for (size_t i = 0; i < file.count; i++) {
        const struct event *event = &file.events[i];
        double transient;

        if (event->phase != 'C' || strcmp(event->name, name) != 0) {
            continue;
        }
        transient = number_of(event->args, "transient");
        TAP_CHECK(transient >= 0.0);
        TAP_CHECK(event->ts >= last); /* in order of time */
        last = event->ts;
        most = most > number_of(event->args, "persistent") + transient
                   ? most
                   : number_of(event->args, "persistent") + transient;
    }
    TAP_CHECK(most <= (double)arena_bytes);
    TAP_CHECK(most >= 0.5 * (double)arena_bytes);
}

/* Bytes of all purposes of a counter's event. */
static double sum_of(const struct event *event)
{
    double sum = 0.0;

    for (const struct zo_json *value = zo_json_first(event->args);
         value != NULL; value = zo_json_next(value)) {
        sum += zo_json_number(value);
    }
    return sum;
}

/*
 * The purposes of a tier add up to its counter: the most of both is the same,
 * and so is what they end with.
 */
static void check_purposes(const char *name, const char *total, int count_min)
{
    double most = 0.0, most_total = 0.0, end = 0.0, end_total = 0.0;
    int purposes = 0;

    for (size_t i = 0; i < file.count; i++) {
        const struct event *event = &file.events[i];

        if (event->phase == 'C' && strcmp(event->name, name) == 0) {
            end = sum_of(event);
            most = most > end ? most : end;
            purposes = (int)zo_json_count(event->args);
        } else if (event->phase == 'C' && strcmp(event->name, total) == 0) {
            end_total = sum_of(event);
            most_total = most_total > end_total ? most_total : end_total;
        }
    }
    TAP_CHECK(purposes >= count_min);
    TAP_CHECK(most > 0.0);
    TAP_CHECK(most == most_total);
    TAP_CHECK(end == end_total);
}

static void test_counters(void)
{
    const char *path = fx_path("counters.json");
    const struct zo_trace_options options = options_of(path, 1, 3);
    static struct tiny_result result;
    struct tiny_run run = {0};
    uint64_t gpu, host;

    TAP_CHECK_INT(tiny_open(&two_devices, &run), ZO_OK);
    gpu = zo_trainer_build(run.trainer)->program.arena_bytes[ZO_TIER_GPU][1];
    host = zo_trainer_build(run.trainer)->program.arena_bytes[ZO_TIER_CPU][0];
    tiny_close(&run);
    TAP_CHECK_INT(run_traced(two_devices, &options, &result), ZO_OK);
    TAP_CHECK(read_file(path));
    check_counter("GPU 0 bytes", gpu);
    check_counter("GPU 1 bytes", gpu);
    check_counter("host bytes", host);
    check_purposes("GPU 0 by purpose", "GPU 0 bytes", 4);
    check_purposes("GPU 1 by purpose", "GPU 1 bytes", 4);
    check_purposes("host by purpose", "host bytes", 2);
    close_file();
}

/* A trace changes no bit, and every step has the seconds of its engines. */
static void test_bits_and_seconds(void)
{
    const struct zo_trace_options options =
        options_of(fx_path("bits.json"), 2, 3);
    static struct tiny_result plain, traced;

    TAP_CHECK_INT(tiny_whole(&two_devices, &plain), ZO_OK);
    TAP_CHECK_INT(run_traced(two_devices, &options, &traced), ZO_OK);
    TAP_CHECK(tiny_same_bits(&plain, &traced));
    TAP_CHECK_INT(traced.step_count, 8);
    for (int i = 0; i < traced.step_count; i++) {
        const struct zo_step_metrics *step = &traced.step[i];

        TAP_CHECK(step->compute_seconds > 0.0 && step->h2d_seconds > 0.0);
        TAP_CHECK(step->d2h_seconds > 0.0 && step->collective_seconds > 0.0);
        TAP_CHECK(step->cpu_seconds > 0.0);
        TAP_CHECK(!(plain.step[i].compute_seconds >= 0.0)); /* NaN */
        TAP_CHECK(plain.step[i].h2d_bytes == step->h2d_bytes);
        TAP_CHECK(step->h2d_bytes == traced.step[0].h2d_bytes);
    }
}

/* In the serial mode operations are one behind another, and still all there. */
static void test_serial(void)
{
    const char *path = fx_path("serial.json");
    const struct zo_trace_options options = options_of(path, 2, 4);
    struct tiny_knobs knobs = two_devices;
    static struct tiny_result result;

    knobs.is_serial = true;
    TAP_CHECK_INT(run_traced(knobs, &options, &result), ZO_OK);
    TAP_CHECK(read_file(path));
    check_lanes();
    close_file();
}

/* ---- runs that end early ------------------------------------------------- */

static void test_stopped(void)
{
    const char *path = fx_path("stopped.json");
    const struct zo_trace_options options = options_of(path, 7, 30);
    static struct tiny_result result;

    TAP_CHECK_INT(run_traced(two_devices, &options, &result), ZO_OK);
    TAP_CHECK(read_file(path)); /* 8 steps: those that there were */
    TAP_CHECK_INT(count_events('X', find_lane("steps")), 2);
    close_file();
}

/* Operations of a run of one step that is traced; -1 when there is none. */
static int events_when_failing(uint64_t nth, enum zo_status *status_out)
{
    const char *path = fx_path("failing.json");
    const struct zo_trace_options options = options_of(path, 1, 2);
    struct tiny_knobs knobs = two_devices;
    static struct tiny_result result;
    int events;

    knobs.fail_at_op = nth;
    *status_out = run_traced(knobs, &options, &result);
    if (!read_file(path)) {
        return -1;
    }
    events = count_events('X', -1) - count_events('X', find_lane("steps"));
    if (!lanes_are_free()) {
        events = -1;
    }
    close_file();
    return events;
}

/* What ran before an operation failed is in the file, which is whole. */
static void test_failing(void)
{
    enum zo_status status = ZO_OK;
    int all, some;

    all = events_when_failing(0, &status);
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(all > 0);
    some = events_when_failing((uint64_t)all * 3 / 4, &status);
    TAP_CHECK_INT(status, ZO_E_INJECTED);
    TAP_CHECK(some > 0);
    TAP_CHECK(some < all);
    TAP_CHECK(events_when_failing(1, &status) == 0);
    TAP_CHECK_INT(status, ZO_E_INJECTED);
}

/* ---- the file ------------------------------------------------------------ */

static bool refuses(const char *path, int64_t first, int64_t last,
                    const char *part)
{
    const struct zo_trace_options options = options_of(path, first, last);
    struct zo_trace *trace = NULL;

    return zo_trace_open(&options, &trace) == ZO_E_USAGE && trace == NULL &&
           strstr(zo_err_last()->text, part) != NULL;
}

static void test_refused_files(void)
{
    const char *notes = fx_path("notes.txt");
    size_t bytes = 0;
    char *text;

    fx_write_text(notes, "{\"not\": \"a trace\"}");
    TAP_CHECK(refuses(notes, 1, 2, "is no trace"));
    text = fx_read(notes, &bytes);
    TAP_CHECK(strcmp(text, "{\"not\": \"a trace\"}") == 0);
    free(text);
    TAP_CHECK(refuses(fx_path("nowhere/t.json"), 1, 2, "nowhere/t.json"));
    TAP_CHECK(refuses("/", 1, 2, "cannot write trace /"));
    TAP_CHECK(refuses(fx_path("long.json"), 5, 105, "at most 100"));
    TAP_CHECK(!fx_is_there(fx_path("long.json")));
}

/* It is a whole trace from the start, also where there was an older one, which
 * stands until then. */
static void test_empty(void)
{
    const char *path = fx_path("empty.json");
    const struct zo_trace_options options = options_of(path, 1, 2);
    struct zo_trace *trace = NULL;
    static struct tiny_result result;
    size_t before = 0;

    for (int i = 0; i < 2; i++) {
        TAP_CHECK_INT(zo_trace_open(&options, &trace), ZO_OK);
        TAP_CHECK_INT(fx_is_there(path), i > 0);
        TAP_CHECK_INT((long long)bytes_in(path), (long long)before);
        TAP_CHECK_INT(zo_trace_create(trace), ZO_OK);
        TAP_CHECK_INT((long long)bytes_in(path), (long long)empty_bytes());
        TAP_CHECK(read_file(path));
        close_file();
        zo_trace_close(trace);
        TAP_CHECK_INT((long long)bytes_in(path), (long long)empty_bytes());
        TAP_CHECK_INT(run_traced(two_devices, &options, &result), ZO_OK);
        before = bytes_in(path);
        TAP_CHECK(before > empty_bytes());
    }
}

static void test_no_memory(void)
{
    const struct zo_trace_options options =
        options_of(fx_path("memory.json"), 1, 2);
    struct zo_trace *trace = NULL;

    zo_memory_fail_at(1);
    TAP_CHECK_INT(zo_trace_open(&options, &trace), ZO_E_NOMEM);
    zo_memory_fail_at(0);
    TAP_CHECK(trace == NULL);
}

/* Keeping steps and writing the file allocate nothing. */
static enum zo_status train_frozen(struct tiny_run *run, struct zo_trace *trace)
{
    const struct zo_trainer_watch watch = {0};
    int64_t steps = 0;
    enum zo_status status;

    zo_memory_freeze(true);
    status = zo_trainer_run(run->trainer, &watch, &steps);
    if (status == ZO_OK) {
        status = zo_trace_write(trace);
    }
    zo_memory_freeze(false);
    return status;
}

static void test_steady(void)
{
    const char *path = fx_path("steady.json");
    const struct zo_trace_options options = options_of(path, 3, 8);
    struct tiny_knobs knobs = two_devices;
    struct zo_trace *trace = NULL;
    struct tiny_run run = {0};
    size_t bytes;

    TAP_CHECK_INT(zo_trace_open(&options, &trace), ZO_OK);
    knobs.records_times = true;
    knobs.trace = trace;
    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
    TAP_CHECK_INT(tiny_start(&run), ZO_OK);
    TAP_CHECK_INT(zo_trace_create(trace), ZO_OK);
    TAP_CHECK_INT(train_frozen(&run, trace), ZO_OK);
    bytes = bytes_in(path);
    zo_trace_close(trace); /* there is no more to write */
    TAP_CHECK_INT((long long)bytes_in(path), (long long)bytes);
    TAP_CHECK(read_file(path));
    TAP_CHECK_INT(count_events('X', find_lane("steps")), 6);
    close_file();
    tiny_close(&run);
}

/* A disk that takes no more is told, once. */
static void test_full(void)
{
    const struct zo_trace_options options = options_of("/dev/full", 1, 8);
    struct tiny_knobs knobs = two_devices;
    struct zo_trace *trace = NULL;
    struct tiny_run run = {0};

    if (access("/dev/full", W_OK) != 0) {
        tap_skip("no /dev/full");
        return;
    }
    TAP_CHECK_INT(zo_trace_open(&options, &trace), ZO_OK);
    knobs.records_times = true;
    knobs.trace = trace;
    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
    TAP_CHECK_INT(tiny_start(&run), ZO_OK);
    TAP_CHECK_INT(zo_trace_create(trace), ZO_OK);
    TAP_CHECK_INT(train_frozen(&run, trace), ZO_E_IO);
    TAP_CHECK(strstr(zo_err_last()->text, "/dev/full") != NULL);
    TAP_CHECK_INT(zo_trace_write(trace), ZO_OK);
    zo_trace_close(trace);
    tiny_close(&run);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a trace has a lane an engine, and no two events at once in one",
         test_whole},
        {"counters are in order and within the arenas", test_counters},
        {"tracing changes no bit; every step has its engines' seconds",
         test_bits_and_seconds},
        {"the serial mode is traced too", test_serial},
        {"a run that ends early leaves the steps that it did", test_stopped},
        {"a failing operation leaves what ran before it", test_failing},
        {"what is no trace is not overwritten; bad names are told",
         test_refused_files},
        {"the file is a whole trace from the start", test_empty},
        {"no memory is told", test_no_memory},
        {"tracing allocates nothing after start", test_steady},
        {"a disk that takes no more is told once", test_full},
    };

    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
