/* Files of a report: metrics and benchmarks; which kind a file is. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"
#include "src/cli/report_data.h"

#define HEAD_BYTES 4096 /* in which a trace says what it is */

struct lines {
    const char *path, *text;
    size_t size_bytes, at;
    int64_t line; /* of `at`, from 1 */
};

double zo_report_number(const struct zo_json *object, const char *key)
{
    const struct zo_json *value = zo_json_get(object, key);

    return value != NULL && zo_json_type(value) == ZO_JSON_NUMBER
               ? zo_json_number(value)
               : (double)NAN;
}

const char *zo_report_string(const struct zo_json *object, const char *key)
{
    const struct zo_json *value = zo_json_get(object, key);

    return value != NULL && zo_json_type(value) == ZO_JSON_STRING
               ? zo_json_string(value)
               : NULL;
}

/*
 * The next line that is not blank; *doc_out is NULL at the end, and for a last
 * line that is cut off: its writer may still be at work.
 */
static enum zo_status next_line(struct lines *lines,
                                struct zo_json_doc **doc_out)
{
    *doc_out = NULL;
    while (lines->at < lines->size_bytes) {
        const char *start = lines->text + lines->at;
        const size_t rest = lines->size_bytes - lines->at;
        const char *end = memchr(start, '\n', rest);
        const size_t length = end != NULL ? (size_t)(end - start) : rest;
        const struct zo_json_options options = {
            .status = ZO_E_CORRUPT,
            .size_max_bytes = ZO_REPORT_LINE_BYTES,
            .first_line = lines->line,
        };

        lines->at += length + (end != NULL);
        lines->line++;
        if (strspn(start, " \t\r") >= length) {
            continue;
        }
        if (end == NULL && lines->line > 2 && start[length - 1] != '}') {
            return ZO_OK;
        }
        ZO_TRY(zo_json_parse(lines->path, start, length, &options, doc_out));
        if (zo_json_type(zo_json_root(*doc_out)) != ZO_JSON_OBJECT) {
            zo_json_close(*doc_out);
            *doc_out = NULL;
            return ZO_FAIL(ZO_E_CORRUPT, "%s:%" PRId64 ": want an object",
                           lines->path, lines->line - 1);
        }
        return ZO_OK;
    }
    return ZO_OK;
}

/* ---- metrics ------------------------------------------------------------- */

/* The largest number of an array, or the number. */
static double largest(const struct zo_json *object, const char *key)
{
    const struct zo_json *value = zo_json_get(object, key);
    double most = (double)NAN;

    if (value == NULL || zo_json_type(value) != ZO_JSON_ARRAY) {
        return zo_report_number(object, key);
    }
    for (const struct zo_json *item = zo_json_first(value); item != NULL;
         item = zo_json_next(item)) {
        if (zo_json_type(item) == ZO_JSON_NUMBER) {
            most = fmax(most, zo_json_number(item));
        }
    }
    return most;
}

static enum zo_status add_step(struct zo_report_run *run,
                               const struct zo_json *line)
{
    static const char *const keys[] = {
#define ENGINE_KEY(name, key, text) key,
        ZO_REPORT_ENGINE_LIST(ENGINE_KEY)
#undef ENGINE_KEY
    };
    struct zo_report_step step = {
        .step = zo_report_number(line, "step"),
        .loss = zo_report_number(line, "loss"),
        .learning_rate = zo_report_number(line, "learning_rate"),
        .tokens_per_second = zo_report_number(line, "tokens_per_second"),
        .step_seconds = zo_report_number(line, "step_seconds"),
        .gpu_peak_bytes = largest(line, "gpu_bytes_peak"),
        .host_peak_bytes = zo_report_number(line, "host_bytes_peak"),
        .nvme_bytes = zo_report_number(line, "nvme_bytes"),
    };

    for (int e = 0; e < ZO_REPORT_ENGINES; e++) {
        step.busy_seconds[e] = zo_report_number(line, keys[e]);
    }
    while (run->step_count > 0 &&
           run->steps[run->step_count - 1].step >= step.step) {
        run->step_count--;
    }
    ZO_TRY(zo_grow(&run->steps, run->step_count, &run->step_capacity,
                   sizeof(step), "the steps of a report"));
    run->steps[run->step_count++] = step;
    return ZO_OK;
}

static enum zo_status add_eval(struct zo_report_run *run,
                               const struct zo_json *line)
{
    const struct zo_report_eval eval = {
        .step = zo_report_number(line, "step"),
        .loss = zo_report_number(line, "loss"),
    };

    while (run->eval_count > 0 &&
           run->evals[run->eval_count - 1].step >= eval.step) {
        run->eval_count--;
    }
    ZO_TRY(zo_grow(&run->evals, run->eval_count, &run->eval_capacity,
                   sizeof(eval), "the evaluations of a report"));
    run->evals[run->eval_count++] = eval;
    return ZO_OK;
}

static void add_setting(struct zo_report_run *run, const char *name,
                        const struct zo_json *value)
{
    const size_t used = strlen(run->settings);
    char *to = run->settings + used;
    const size_t room = sizeof(run->settings) - used;
    const char *comma = used > 0 ? ", " : "";

    if (value == NULL) {
        return;
    }
    if (zo_json_type(value) == ZO_JSON_STRING) {
        (void)snprintf(to, room, "%s%s%.60s", comma, name,
                       zo_json_string(value));
    } else if (zo_json_type(value) == ZO_JSON_NUMBER) {
        (void)snprintf(to, room, "%s%s%.6g", comma, name,
                       zo_json_number(value));
    }
}

/* The settings that tell runs apart, in a line. */
static void describe(struct zo_report_run *run, const struct zo_json *line)
{
    static const struct {
        const char *key, *name;
    } settings[] = {
        {"num_devices", "devices "},
        {"dtype", ""},
        {"zero_stage", "stage "},
        {"offload_optimizer", "optimizer offload "},
        {"offload_param", "parameter offload "},
        {"train_batch_rows", "rows a step "},
        {"gradient_accumulation_steps", "accumulation "},
    };
    const struct zo_json *config = zo_json_get(line, "config");
    const struct zo_json *devices =
        zo_json_get(zo_json_get(line, "machine"), "devices");

    run->settings[0] = '\0';
    if (devices != NULL && zo_json_type(devices) == ZO_JSON_ARRAY) {
        add_setting(run, "", zo_json_first(devices));
    }
    for (size_t i = 0; i < ZO_COUNT(settings); i++) {
        add_setting(run, settings[i].name,
                    zo_json_get(config, settings[i].key));
    }
}

static enum zo_status add_metrics(struct zo_report_run *run,
                                  const struct lines *lines,
                                  const struct zo_json *line)
{
    const char *kind = zo_report_string(line, "kind");
    const double step = zo_report_number(line, "step");

    if (kind == NULL) {
        return ZO_FAIL(ZO_E_CORRUPT, "%s:%" PRId64 ": want a line with a kind",
                       lines->path, lines->line - 1);
    }
    if (strcmp(kind, "run") == 0) {
        describe(run, line);
        return ZO_OK;
    }
    if (strcmp(kind, "step") != 0 && strcmp(kind, "eval") != 0) {
        return ZO_OK; /* saves, and what later versions add */
    }
    if (!(step >= 0.0 && step <= (double)ZO_JSON_INT_MAX)) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s:%" PRId64 ": step: want a number from 0",
                       lines->path, lines->line - 1);
    }
    return kind[0] == 's' ? add_step(run, line) : add_eval(run, line);
}

static enum zo_status read_metrics(struct lines *lines,
                                   struct zo_report_run *run)
{
    for (;;) {
        struct zo_json_doc *doc = NULL;
        enum zo_status status;

        ZO_TRY(next_line(lines, &doc));
        if (doc == NULL) {
            return ZO_OK;
        }
        status = add_metrics(run, lines, zo_json_root(doc));
        zo_json_close(doc);
        ZO_TRY(status);
    }
}

/* ---- benchmarks ---------------------------------------------------------- */

/* The lines of a suite, of this file; made when it is the first. */
static enum zo_status find_bench(struct zo_report_data *data, size_t first,
                                 const char *path, const char *suite,
                                 struct zo_report_bench **bench_out)
{
    struct zo_report_bench *bench = NULL;

    for (size_t i = first; i < data->bench_count; i++) {
        if (strncmp(data->benches[i]->suite, suite, ZO_REPORT_NAME_BYTES - 1) ==
            0) {
            *bench_out = data->benches[i];
            return ZO_OK;
        }
    }
    if (data->bench_count == ZO_REPORT_FILES_MAX) {
        return ZO_FAIL(ZO_E_USAGE, "%s: want at most %d suites in all", path,
                       ZO_REPORT_FILES_MAX);
    }
    ZO_TRY(zo_alloc(1, sizeof(*bench), "a benchmark", &bench));
    data->benches[data->bench_count++] = bench;
    (void)snprintf(bench->suite, sizeof(bench->suite), "%s", suite);
    ZO_TRY(zo_strndup(path, strlen(path), &bench->name));
    *bench_out = bench;
    return ZO_OK;
}

/* In place of an earlier line of its key, or behind all others. */
static enum zo_status add_row(struct zo_report_bench *bench,
                              const struct lines *lines,
                              struct zo_json_doc *doc)
{
    const char *key = zo_report_string(zo_json_root(doc), "key");

    for (size_t i = 0; i < bench->row_count && key != NULL; i++) {
        struct zo_json_doc **old = &bench->rows[i].doc;
        const char *other = zo_report_string(zo_json_root(*old), "key");

        if (other != NULL && strcmp(other, key) == 0) {
            zo_json_close(*old);
            *old = doc;
            return ZO_OK;
        }
    }
    if (bench->row_count == ZO_REPORT_ROWS_MAX) {
        return ZO_FAIL(ZO_E_CORRUPT, "%s:%" PRId64 ": more than %d lines of %s",
                       lines->path, lines->line - 1, ZO_REPORT_ROWS_MAX,
                       bench->suite);
    }
    ZO_TRY(zo_grow(&bench->rows, bench->row_count, &bench->row_capacity,
                   sizeof(bench->rows[0]), "a benchmark"));
    bench->rows[bench->row_count++].doc = doc;
    return ZO_OK;
}

/* What a line of bench is of; NULL: it is none. */
static const char *suite_of(const struct zo_json_doc *doc)
{
    const struct zo_json *root = zo_json_root(doc);
    const char *kind = zo_report_string(root, "kind");

    return kind != NULL && strcmp(kind, "bench") == 0
               ? zo_report_string(root, "what")
               : zo_report_string(root, "suite");
}

static enum zo_status read_bench(struct lines *lines,
                                 struct zo_report_data *data)
{
    const size_t first = data->bench_count;

    for (;;) {
        struct zo_report_bench *bench = NULL;
        struct zo_json_doc *doc = NULL;
        enum zo_status status = ZO_OK;

        ZO_TRY(next_line(lines, &doc));
        if (doc == NULL) {
            return ZO_OK;
        }
        if (suite_of(doc) == NULL) {
            status =
                ZO_FAIL(ZO_E_CORRUPT, "%s:%" PRId64 ": want a line of bench",
                        lines->path, lines->line - 1);
        }
        if (status == ZO_OK) {
            status =
                find_bench(data, first, lines->path, suite_of(doc), &bench);
        }
        if (status == ZO_OK) {
            status = add_row(bench, lines, doc);
        }
        if (status != ZO_OK) {
            zo_json_close(doc);
            return status;
        }
    }
}

/* ---- which ----------------------------------------------------------------
 */

static bool is_trace(const char *text, size_t size_bytes)
{
    static const char mark[] = "\"traceEvents\"";

    return memmem(text, size_bytes < HEAD_BYTES ? size_bytes : HEAD_BYTES, mark,
                  sizeof(mark) - 1) != NULL;
}

static enum zo_status take_run(struct zo_report_data *data, struct lines *lines)
{
    struct zo_report_run *run = NULL;

    ZO_TRY(zo_alloc(1, sizeof(*run), "a run", &run));
    data->runs[data->run_count++] = run;
    ZO_TRY(zo_strndup(lines->path, strlen(lines->path), &run->name));
    return read_metrics(lines, run);
}

static enum zo_status take_trace(struct zo_report_data *data, const char *path,
                                 const char *text, size_t size_bytes)
{
    struct zo_report_trace *trace = NULL;

    ZO_TRY(zo_alloc(1, sizeof(*trace), "a trace", &trace));
    data->traces[data->trace_count++] = trace;
    ZO_TRY(zo_strndup(path, strlen(path), &trace->name));
    return zo_report_read_trace(path, text, size_bytes, trace);
}

/* What the first line says that the file is. */
static enum zo_status take_lines(struct zo_report_data *data,
                                 struct lines *lines)
{
    struct lines first = *lines;
    struct zo_json_doc *doc = NULL;
    enum zo_status status = next_line(&first, &doc);
    bool is_metrics, is_bench;

    if (status == ZO_E_NOMEM) {
        return status;
    }
    is_bench = doc != NULL && suite_of(doc) != NULL;
    is_metrics = doc != NULL && !is_bench &&
                 zo_report_string(zo_json_root(doc), "kind") != NULL;
    zo_json_close(doc);
    if (is_metrics) {
        return take_run(data, lines);
    }
    if (is_bench) {
        return read_bench(lines, data);
    }
    return ZO_FAIL(ZO_E_USAGE,
                   "%s: want metrics of train, a trace, or JSON lines of "
                   "bench; its first line is none of them%s%.120s%s",
                   lines->path, status == ZO_OK ? "" : " (",
                   status == ZO_OK ? "" : zo_err_last()->text,
                   status == ZO_OK ? "" : ")");
}

enum zo_status zo_report_read(struct zo_report_data *data, const char *path,
                              struct zo_notes *notes)
{
    struct lines lines = {.path = path, .line = 1};
    char *text = NULL;
    size_t size_bytes = 0;
    enum zo_status status;

    ZO_TRY(zo_disk_read_all(path, ZO_REPORT_FILE_BYTES, &text, &size_bytes));
    lines.text = text;
    lines.size_bytes = size_bytes;
    status = is_trace(text, size_bytes)
                 ? take_trace(data, path, text, size_bytes)
                 : take_lines(data, &lines);
    if (status == ZO_OK && size_bytes > 0 && text[size_bytes - 1] != '\n') {
        status = zo_note_add(notes, ZO_NOTE_WARN,
                             "%s: its last line does not end: it may be cut "
                             "off, or still be written",
                             path);
    }
    zo_free(text);
    return status;
}

void zo_report_fini(struct zo_report_data *data)
{
    for (size_t i = 0; i < data->run_count; i++) {
        zo_free(data->runs[i]->name);
        zo_free(data->runs[i]->steps);
        zo_free(data->runs[i]->evals);
        zo_free(data->runs[i]);
    }
    for (size_t i = 0; i < data->trace_count; i++) {
        struct zo_report_trace *trace = data->traces[i];

        for (int t = 0; t < trace->tier_count; t++) {
            zo_free(trace->tiers[t].samples);
        }
        zo_free(trace->name);
        zo_free(trace->spans);
        zo_free(trace->windows);
        zo_free(trace);
    }
    for (size_t i = 0; i < data->bench_count; i++) {
        struct zo_report_bench *bench = data->benches[i];

        for (size_t r = 0; r < bench->row_count; r++) {
            zo_json_close(bench->rows[r].doc);
        }
        zo_free(bench->name);
        zo_free(bench->rows);
        zo_free(bench);
    }
}
