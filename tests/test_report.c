/*
 * Reports: what a page holds, that it is whole, and what is refused.
 *
 * The page is read as a browser would, in a plain loop: every tag is closed in
 * order, no text of a file is markup, no script is there and nothing is loaded.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/cli/cli.h"
#include "src/cli/report_data.h"
#include "src/cli/report_scale.h"
#include "tests/tap.h"

#define PAGE_BYTES (4u << 20)
#define DEPTH_MAX  40
#define FILES_MAX  8

static char folder[] = "test_report.XXXXXX";
static char paths[FILES_MAX][128];
static char page_path[128];
static char page[PAGE_BYTES];
static int path_count;

static bool set_up(void)
{
    memcpy(folder + sizeof(folder) - 7, "XXXXXX", 6);
    path_count = 0;
    if (mkdtemp(folder) == NULL) {
        return false;
    }
    (void)snprintf(page_path, sizeof(page_path), "%s/page.html", folder);
    return true;
}

static void tear_down(void)
{
    for (int i = 0; i < path_count; i++) {
        (void)unlink(paths[i]);
    }
    (void)unlink(page_path);
    if (rmdir(folder) != 0) {
        tap_fail(__FILE__, __LINE__, "something is left in %s", folder);
    }
}

/* A file of the case; its name. */
static const char *a_file(const char *name, const char *text)
{
    char *path = paths[path_count++];
    FILE *file;

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    file = fopen(path, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) {
        tap_fail(__FILE__, __LINE__, "cannot write %s", path);
    }
    return path;
}

/* zero-offload report of the case's files; the page is in `page`. */
static enum zo_status make_report(void)
{
    const char *argv[FILES_MAX + 2];
    struct zo_cli cli = {.out = fopen("/dev/null", "w"), .err = stderr};
    struct zo_options options;
    enum zo_status status;
    FILE *file;
    size_t got = 0;

    for (int i = 0; i < path_count; i++) {
        argv[i] = paths[i];
    }
    argv[path_count] = "--output";
    argv[path_count + 1] = page_path;
    status = zo_options_parse(ZO_COMMAND_REPORT, path_count + 2, argv, &options,
                              &cli.notes);
    if (status == ZO_OK) {
        status = zo_cli_report(&cli, &options);
        zo_options_fini(&options);
    }
    zo_notes_fini(&cli.notes);
    (void)fclose(cli.out);
    file = fopen(page_path, "r");
    if (file != NULL) {
        got = fread(page, 1, sizeof(page) - 1, file);
        (void)fclose(file);
    }
    page[got] = '\0';
    return status;
}

/* ---- the page as markup ---------------------------------------------------
 */

/* One tag at *at ('<'); moves behind it. */
static bool take_tag(const char **at, char stack[][16], int *depth)
{
    const char *tag = *at + 1, *end;
    const bool closes = *tag == '/';
    char name[16] = "", quote = '\0';
    size_t length = 0;

    tag += closes;
    while (isalnum((unsigned char)tag[length]) && length < sizeof(name) - 1) {
        name[length] = tag[length];
        length++;
    }
    for (end = tag; *end != '\0' && (quote != '\0' || *end != '>'); end++) {
        if (quote == '\0' && *end == '"') {
            quote = '"';
        } else if (*end == quote) {
            quote = '\0';
        } else if (*end == '<') {
            return false;
        }
    }
    if (*end == '\0' || length == 0) {
        return false;
    }
    *at = end + 1;
    if (closes) {
        return *depth > 0 && strcmp(stack[--*depth], name) == 0;
    }
    if (end[-1] != '/') {
        if (*depth == DEPTH_MAX) {
            return false;
        }
        memcpy(stack[(*depth)++], name, sizeof(name));
    }
    return true;
}

static bool is_entity(const char *at)
{
    return strncmp(at, "&amp;", 5) == 0 || strncmp(at, "&lt;", 4) == 0 ||
           strncmp(at, "&gt;", 4) == 0 || strncmp(at, "&quot;", 6) == 0 ||
           strncmp(at, "&#39;", 5) == 0;
}

/* Where the page is no page; NULL: it is one. */
static const char *find_fault(void)
{
    static const char head[] = "<!DOCTYPE html>\n";
    char stack[DEPTH_MAX][16];
    const char *at = page + sizeof(head) - 1;
    int depth = 0;

    if (strncmp(page, head, sizeof(head) - 1) != 0) {
        return page;
    }
    while (*at != '\0') {
        const char *start = at;

        if (*at == '<') {
            if (!take_tag(&at, stack, &depth)) {
                return start;
            }
        } else if ((*at == '&' && !is_entity(at)) ||
                   ((unsigned char)*at < 0x20 && *at != '\n')) {
            return start;
        } else {
            at++;
        }
    }
    return depth == 0 ? NULL : at;
}

static void check_page(void)
{
    static const char *const forbidden[] = {
        "<script", "javascript:", " onload", " onclick", "http:",
        "https:",  "<link",       "<img",    "@import",  "<iframe",
        "nan",     "inf\"",       "<object", " src=",    "url(h",
    };
    const char *fault = find_fault();

    if (fault != NULL) {
        tap_fail(__FILE__, __LINE__, "no page at %.60s", fault);
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(forbidden); i++) {
        if (strstr(page, forbidden[i]) != NULL) {
            tap_fail(__FILE__, __LINE__, "found %.60s",
                     strstr(page, forbidden[i]));
        }
    }
}

static int count_of(const char *text)
{
    int count = 0;

    for (const char *at = page; (at = strstr(at, text)) != NULL; at++) {
        count++;
    }
    return count;
}

static bool has(const char *text)
{
    return strstr(page, text) != NULL;
}

/* ---- files ----------------------------------------------------------------
 */

#define RUN_LINE                                                          \
    "{\"kind\":\"run\",\"format\":1,\"config\":{\"num_devices\":2,"       \
    "\"dtype\":\"bf16\",\"zero_stage\":3,\"offload_optimizer\":\"cpu\"}," \
    "\"machine\":{\"devices\":[\"an <b>H200</b> & more\"]}}\n"
#define STEP_LINE(step, loss)                                        \
    "{\"kind\":\"step\",\"step\":" #step ",\"loss\":" #loss          \
    ",\"learning_rate\":0.001,\"tokens_per_second\":100,"            \
    "\"step_seconds\":2,\"gpu_bytes_peak\":[1073741824,2147483648]," \
    "\"compute_seconds\":1.5}\n"
#define TRACE_HEAD                                                \
    "{\"displayTimeUnit\":\"ms\",\"traceEvents\":["               \
    "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":0," \
    "\"args\":{\"name\":\"steps\"}},"                             \
    "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":1," \
    "\"args\":{\"name\":\"GPU 0 compute\"}},"
#define TRACE_BODY                                                       \
    "{\"ph\":\"X\",\"name\":\"step 7\",\"pid\":1,\"tid\":0,\"ts\":0,"    \
    "\"dur\":1000},"                                                     \
    "{\"ph\":\"X\",\"name\":\"attention\",\"pid\":1,\"tid\":1,"          \
    "\"cat\":\"compute\",\"ts\":0,\"dur\":250},"                         \
    "{\"ph\":\"X\",\"name\":\"attention backward\",\"pid\":1,\"tid\":1," \
    "\"cat\":\"compute\",\"ts\":250,\"dur\":500},"                       \
    "{\"ph\":\"C\",\"name\":\"GPU 0 by purpose\",\"pid\":1,\"tid\":0,"   \
    "\"ts\":0,\"args\":{\"weights\":1048576,\"gradients\":0}},"          \
    "{\"ph\":\"C\",\"name\":\"GPU 0 by purpose\",\"pid\":1,\"tid\":0,"   \
    "\"ts\":500,\"args\":{\"weights\":1048576,\"gradients\":2097152}}"

/* ---- cases ----------------------------------------------------------------
 */

static void test_run(void)
{
    TAP_CHECK(set_up());
    (void)a_file(
        "metrics.jsonl",
        RUN_LINE STEP_LINE(1, 7.5) STEP_LINE(2, 6.25) STEP_LINE(
            3, null) "{\"kind\":\"eval\",\"step\":3,\"loss\":6.125}\n"
                     "{\"kind\":\"save\",\"step\":3,\"path\":\"x\"}\n");
    TAP_CHECK_INT(make_report(), ZO_OK);
    check_page();
    TAP_CHECK(has("Loss over the steps"));
    TAP_CHECK(has("Learning rate over the steps"));
    TAP_CHECK(has("Tokens a second over the steps"));
    TAP_CHECK(has("an &lt;b&gt;H200&lt;/b&gt; &amp; more"));
    TAP_CHECK(has("2.00 GiB")); /* of the fullest GPU */
    TAP_CHECK(has("75 %, 1.5 s a step"));
    TAP_CHECK(has("<circle"));
    TAP_CHECK_INT(count_of("role=\"img\""), count_of("<figure>"));
    TAP_CHECK(count_of("<figure>") == 4);
    TAP_CHECK(count_of("<desc") == 4);
    tear_down();
}

/* Steps that were repeated count once, and the later holds. */
static void test_resumed(void)
{
    struct zo_report_data data = {0};
    struct zo_notes notes = {0};

    TAP_CHECK(set_up());
    (void)a_file("m.jsonl", RUN_LINE STEP_LINE(1, 9) STEP_LINE(2, 8) STEP_LINE(
                                3, 7) RUN_LINE STEP_LINE(2, 5) STEP_LINE(3, 4));
    TAP_CHECK_INT(zo_report_read(&data, paths[0], &notes), ZO_OK);
    TAP_CHECK_INT(data.run_count, 1);
    TAP_CHECK_INT(data.runs[0]->step_count, 3);
    TAP_CHECK(data.runs[0]->steps[0].loss == 9.0);
    TAP_CHECK(data.runs[0]->steps[1].loss == 5.0);
    TAP_CHECK(data.runs[0]->steps[2].loss == 4.0);
    zo_report_fini(&data);
    tear_down();
}

static void test_trace(void)
{
    TAP_CHECK(set_up());
    (void)a_file("trace.json", TRACE_HEAD TRACE_BODY "]}\n");
    TAP_CHECK_INT(make_report(), ZO_OK);
    check_page();
    TAP_CHECK(has("Step 7, of 1 ms"));
    TAP_CHECK(has("fullest: 3.0 MiB at 500 us"));
    TAP_CHECK(has(">gradients</text>"));
    TAP_CHECK(has("GPU 0 compute"));
    TAP_CHECK(has(">75 %</text>")); /* of the step */
    TAP_CHECK(has("<td class=\"n\">250 us</td><td class=\"n\">500 us</td>"));
    TAP_CHECK(has("<td class=\"n\">66.7 %</td>")); /* gradients */
    tear_down();
}

#define STAGE_LINE(key, label, state, seconds)                             \
    "{\"format\":1,\"kind\":\"bench\",\"what\":\"stages\",\"key\":\"" key  \
    "\",\"label\":\"" label "\",\"note\":\"for <all>\",\"state\":\"" state \
    "\",\"layers\":4,\"gpu_bytes\":3145728,\"formula_bytes\":2097152,"     \
    "\"host_bytes\":1048576,\"gpu_purposes\":{\"weights\":1048576,"        \
    "\"first moments\":1048576},\"host_purposes\":{},"                     \
    "\"step_seconds_median\":" seconds ",\"predicted_seconds\":0.25}\n"
#define POINT_LINE(budget, seconds)                                         \
    "{\"kind\":\"bench\",\"what\":\"frontier\",\"key\":\"" #budget          \
    "\",\"gpu_budget_bytes\":" #budget ",\"step_seconds_median\":" #seconds \
    ",\"predicted_seconds\":1.5,\"gpu_bytes\":1}\n"

/* A bar a configuration, of two lines of one key the later; a curve. */
static void test_bench(void)
{
    TAP_CHECK(set_up());
    (void)a_file("stages.jsonl",
                 STAGE_LINE("a", "0, none", "ran", "9")
                     STAGE_LINE("b", "1, none", "planned", "null")
                         STAGE_LINE("c", "3, none", "does not fit", "null")
                             STAGE_LINE("a", "0, none", "ran", "0.5"));
    (void)a_file("frontier.jsonl", POINT_LINE(3000000, 1.25) POINT_LINE(
                                       1000000, 2.5) POINT_LINE(2000000, null));
    TAP_CHECK_INT(make_report(), ZO_OK);
    check_page();
    TAP_CHECK(has("stages, 4 layers"));
    TAP_CHECK_INT(count_of(">stage 0, none</text>"), 1);
    TAP_CHECK(has(">500 ms</text>") && !has("9 s<"));
    TAP_CHECK(has(">plan: 250 ms</text>"));
    TAP_CHECK_INT(count_of(">does not fit</text>"), 1);
    TAP_CHECK_INT(count_of("stroke-width=\"3\"/>"), 3); /* the formula */
    TAP_CHECK(has("context and libraries"));            /* 3 MiB less 2 */
    TAP_CHECK(has("for &lt;all&gt;"));
    /* What no row has is no column; layers stand under the figure. */
    TAP_CHECK(has(">states by formula</th>") && !has(">tokens/s</th>"));
    TAP_CHECK(!has(">by the driver</th>") && !has(">layers</th>"));
    TAP_CHECK(has("Step time against the budget of device memory"));
    TAP_CHECK_INT(count_of("<circle"), 2);
    /* first, last, least, largest of the measured, in order of budget */
    TAP_CHECK(has("<td class=\"n\">2</td><td class=\"n\">2.5 s</td>"
                  "<td class=\"n\">1.25 s</td><td class=\"n\">1.25 s</td>"
                  "<td class=\"n\">2.5 s</td>"));
    tear_down();
}

/* Whatever a file says is text, in names and in values. */
static void test_hostile(void)
{
    TAP_CHECK(set_up());
    (void)a_file("a<script>alert(1)<&>.jsonl",
                 "{\"suite\":\"</h2><script>x</script>\","
                 "\"a\\\"><script>\":\"'\\\"></td><script>y\\u0007\\u202e\","
                 "\"bytes\":1e300,\"seconds\":-1e300,\"b\":[1],\"c\":null}\n");
    (void)a_file("b.json", TRACE_HEAD
                 "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":2,"
                 "\"args\":{\"name\":\"<script>z</script>\\\\\"}},"
                 "{\"ph\":\"X\",\"name\":\"} \\\" \\\\\",\"pid\":1,\"tid\":2,"
                 "\"ts\":1,\"dur\":1},"
                 "{\"ph\":\"C\",\"name\":\"<i>\\\"\\\" by purpose\",\"pid\":1,"
                 "\"tid\":2,\"ts\":1,\"args\":{\"<u>\":1e15}}," TRACE_BODY
                 "]}\n");
    TAP_CHECK_INT(make_report(), ZO_OK);
    check_page();
    TAP_CHECK(has("&lt;script&gt;x&lt;/script&gt;"));
    TAP_CHECK(has("&#39;&quot;&gt;&lt;/td&gt;&lt;script&gt;y\xef\xbf\xbd"));
    TAP_CHECK(has("&lt;i&gt;&quot;&quot; memory"));
    tear_down();
}

/* Numbers that no run has, but that JSON allows. */
static void test_absurd(void)
{
    TAP_CHECK(set_up());
    (void)a_file("m.jsonl",
                 RUN_LINE STEP_LINE(1, 1e308) STEP_LINE(2, -1e308) STEP_LINE(
                     9007199254740991,
                     1e29) "{\"kind\":\"step\",\"step\":9007199254740991,"
                           "\"step_seconds\":1e-308,\"cpu_seconds\":1e308,"
                           "\"gpu_bytes_peak\":[-1,1e300]}\n"
                           "{\"kind\":\"eval\",\"step\":1,\"loss\":1e308}\n");
    (void)a_file("t.json",
                 TRACE_HEAD "{\"ph\":\"X\",\"name\":\"step 1\",\"tid\":0,"
                            "\"ts\":5,\"dur\":0},"
                            "{\"ph\":\"X\",\"name\":\"a\",\"tid\":1,"
                            "\"ts\":0,\"dur\":1e12},"
                            "{\"ph\":\"C\",\"name\":\"host by purpose\","
                            "\"ts\":0,\"args\":{\"weights\":1e18}}]}");
    (void)a_file("f.jsonl", POINT_LINE(1000, 1e308) POINT_LINE(-5, 1e-308));
    TAP_CHECK_INT(make_report(), ZO_OK);
    check_page();
    TAP_CHECK(!has("inf "));
    tear_down();
}

/* As many steps as one likes make no larger a page. */
static void test_bounded(void)
{
    char path[160];
    struct stat info;
    FILE *file;

    TAP_CHECK(set_up());
    (void)snprintf(path, sizeof(path), "%s", a_file("many.jsonl", RUN_LINE));
    file = fopen(path, "a");
    TAP_CHECK(file != NULL);
    for (int i = 1; i <= 40000; i++) {
        (void)fprintf(file,
                      "{\"kind\":\"step\",\"step\":%d,\"loss\":%.3f,"
                      "\"learning_rate\":1e-3,\"tokens_per_second\":%d}\n",
                      i, 5.0 + sin(i * 0.37), 100 + i % 17);
    }
    TAP_CHECK(fclose(file) == 0);
    TAP_CHECK_INT(make_report(), ZO_OK);
    check_page();
    TAP_CHECK(stat(page_path, &info) == 0 && info.st_size < 100000);
    TAP_CHECK(has("<td class=\"n\">40000</td>"));
    tear_down();
}

/* The nth allocation failing, for every n, is told and leaves no file. */
static void test_no_memory(void)
{
    enum zo_status status = ZO_E_NOMEM;
    uint64_t nth;

    TAP_CHECK(set_up());
    (void)a_file("metrics.jsonl",
                 RUN_LINE STEP_LINE(1, 7.5) "{\"kind\":\"eval\",\"step\":1,"
                                            "\"loss\":6.125}\n");
    (void)a_file("trace.json", TRACE_HEAD TRACE_BODY "]}\n");
    (void)a_file("bench.jsonl", "{\"suite\":\"step\",\"a\":1}\n");
    for (nth = 1; status == ZO_E_NOMEM && nth < 500; nth++) {
        zo_memory_fail_at(nth);
        status = make_report();
        TAP_CHECK(status == ZO_OK || page[0] == '\0');
    }
    zo_memory_fail_at(0);
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(nth > 10);
    check_page();
    tear_down();
}

struct refusal {
    const char *text, *message;
    enum zo_status status;
};

static void test_refused(void)
{
    static const struct refusal refusals[] = {
        {"hello\n", "none of them (", ZO_E_USAGE},
        {"[1]\n", "f:1: want an object)", ZO_E_USAGE},
        {"{\"x\":1}\n", "its first line is none of them", ZO_E_USAGE},
        {"\n", "its first line is none of them", ZO_E_USAGE},
        {RUN_LINE "{\"kind\":\"step\",\"step\":-1}\n", "f:2: step",
         ZO_E_CORRUPT},
        {RUN_LINE STEP_LINE(1, 2) "{\"kind\":\"step\",}\n",
         "f:3:", ZO_E_CORRUPT},
        {RUN_LINE "{\"x\":1}\n", "f:2: want a line with a kind", ZO_E_CORRUPT},
        {"{\"suite\":\"a\"}\n{\"x\":1}\n", "f:2: want a line of bench",
         ZO_E_CORRUPT},
        {"{\"traceEvents\":{}}\n", "traceEvents: want an array", ZO_E_CORRUPT},
        {"{\"traceEvents\"", "traceEvents: want an array", ZO_E_CORRUPT},
        {"{\"traceEvents\":[]}\n", "holds no step", ZO_E_CORRUPT},
        {TRACE_HEAD, "event 3: want an object, found the end", ZO_E_CORRUPT},
        {TRACE_HEAD "{\"ph\":\"X\",\"name\":\"\\\\", "event 3: is cut off",
         ZO_E_CORRUPT},
        {TRACE_HEAD "{\"ph\":\"X\"}]}", "event 3: want ph and name",
         ZO_E_CORRUPT},
        {TRACE_HEAD "{\"ph\":\"X\",\"name\":\"a\",\"tid\":1,\"ts\":-1}]}",
         "event 3: want ts and dur from 0 to", ZO_E_CORRUPT},
        {TRACE_HEAD TRACE_BODY
         ",{\"ph\":\"C\",\"name\":\"GPU 0 by purpose\",\"ts\":1,\"args\":{}}]}",
         "event 8: want counters in order of time", ZO_E_CORRUPT},
        {TRACE_HEAD TRACE_BODY
         ",{\"ph\":\"C\",\"name\":\"GPU 0 by purpose\",\"ts\":900,"
         "\"args\":{\"weights\":-1}}]}",
         "event 8: want bytes from 0", ZO_E_CORRUPT},
    };

    for (size_t i = 0; i < TAP_COUNT(refusals); i++) {
        enum zo_status status;

        TAP_CHECK(set_up());
        (void)a_file("f", refusals[i].text);
        status = make_report();
        if (status != refusals[i].status ||
            strstr(zo_err_last()->text, refusals[i].message) == NULL) {
            tap_fail(__FILE__, __LINE__, "%d: status %d, %s", (int)i, status,
                     zo_err_last()->text);
        }
        TAP_CHECK(page[0] == '\0');
        tear_down();
    }
}

/* A run that is still going may be in the middle of a line. */
static void test_growing(void)
{
    TAP_CHECK(set_up());
    (void)a_file("m.jsonl", RUN_LINE STEP_LINE(1, 7.5) "{\"kind\":\"st");
    TAP_CHECK_INT(make_report(), ZO_OK);
    check_page();
    tear_down();
}

static void test_output(void)
{
    FILE *file;

    TAP_CHECK(set_up());
    (void)a_file("m.jsonl", RUN_LINE STEP_LINE(1, 7.5));
    TAP_CHECK_INT(make_report(), ZO_OK);
    TAP_CHECK_INT(make_report(), ZO_OK); /* in place of the older one */
    file = fopen(page_path, "w");
    TAP_CHECK(file != NULL && fputs("my thesis", file) >= 0);
    TAP_CHECK(fclose(file) == 0);
    TAP_CHECK_INT(make_report(), ZO_E_USAGE);
    TAP_CHECK(strcmp(page, "my thesis") == 0);
    (void)snprintf(page_path, sizeof(page_path), "%s/none/page.html", folder);
    TAP_CHECK_INT(make_report(), ZO_E_USAGE);
    (void)snprintf(page_path, sizeof(page_path), "%s/page.html", folder);
    tear_down();
    TAP_CHECK(set_up());
    TAP_CHECK_INT(make_report(), ZO_E_USAGE); /* no files */
    tear_down();
}

/* Ticks are round, few, and within the scale, whatever it is. */
static void test_scale(void)
{
    static const double ends[][2] = {{0, 1}, {-3, 7e9}, {1e-9, 2e-9},  {5, 5},
                                     {0, 0}, {NAN, 1},  {1, INFINITY}, {9, 2}};

    for (size_t i = 0; i < TAP_COUNT(ends); i++) {
        for (int unit = 0; unit <= (int)ZO_SCALE_SECONDS; unit++) {
            const struct zo_scale scale = zo_scale_of(
                ends[i][0], ends[i][1], 100.0, 20.0, (enum zo_scale_unit)unit);
            const double tick = zo_scale_tick(&scale, 5);

            TAP_CHECK(scale.from < scale.to);
            TAP_CHECK((scale.to - scale.from) / tick <= 5.0001);
            TAP_CHECK((scale.to - scale.from) / tick >= 0.9);
            TAP_CHECK(zo_scale_at(&scale, scale.from) == 100.0);
            TAP_CHECK(fabs(zo_scale_at(&scale, scale.to) - 20.0) < 1e-9);
        }
    }
}

static const struct tap_case cases[] = {
    {"a run's page has its figures, tables and settings", test_run},
    {"steps that a resumed run repeats count once", test_resumed},
    {"a trace's page has memory by purpose and lanes", test_trace},
    {"benchmarks are bars, curves and tables", test_bench},
    {"what files say is text, whatever it is", test_hostile},
    {"numbers that are absurd make no broken page", test_absurd},
    {"many steps make no larger page", test_bounded},
    {"every allocation may fail", test_no_memory},
    {"what is damaged is named by file and line", test_refused},
    {"a line that is not finished is left out", test_growing},
    {"only reports are replaced, and only by whole ones", test_output},
    {"scales hold what they are given", test_scale},
};

int main(void)
{
    return tap_run(cases, TAP_COUNT(cases));
}
