/*
 * What a report is made of: the runs, traces and benchmarks out of files.
 *
 * Layer 8.  Life cycle: zero, read any number of files, use, fini.  Files are
 * hostile until read: sizes and counts are bounded, and what is refused is
 * named by file and line.
 */
#ifndef ZO_SRC_CLI_REPORT_DATA_H
#define ZO_SRC_CLI_REPORT_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "config/json.h"
#include "offload/schedule.h"
#include "src/base/notes.h"
#include "src/base/status.h"

ZO_C_BEGIN

#define ZO_REPORT_FILES_MAX  64
#define ZO_REPORT_FILE_BYTES ((size_t)1 << 29)
#define ZO_REPORT_LINE_BYTES ((size_t)1 << 20)
#define ZO_REPORT_LANES_MAX  160 /* 8 GPUs of 3 streams, and 128 workers */
#define ZO_REPORT_TIERS_MAX  72  /* 64 GPUs, and the others */
#define ZO_REPORT_NAME_BYTES 64
#define ZO_REPORT_ROWS_MAX   4096 /* of a benchmark */

/* A purpose that is not the plan's. */
#define ZO_REPORT_OTHER    ZO_PURPOSES
#define ZO_REPORT_PURPOSES (ZO_PURPOSES + 1)

/* Busy shares of a step line. */
#define ZO_REPORT_ENGINE_LIST(X)                       \
    X(COMPUTE, "compute_seconds", "computation")       \
    X(H2D, "h2d_seconds", "copies to the device")      \
    X(D2H, "d2h_seconds", "copies to the host")        \
    X(COLLECTIVE, "collective_seconds", "collectives") \
    X(CPU, "cpu_seconds", "CPU (AdamW)")               \
    X(NVME, "nvme_seconds", "NVMe")

enum zo_report_engine {
#define ZO_REPORT_ENGINE_ENUM(name, key, text) ZO_REPORT_##name,
    ZO_REPORT_ENGINE_LIST(ZO_REPORT_ENGINE_ENUM)
#undef ZO_REPORT_ENGINE_ENUM
        ZO_REPORT_ENGINES
};

/* Of a step; NaN: not in the file, or null. */
struct zo_report_step {
    double step, loss, learning_rate, tokens_per_second, step_seconds;
    double gpu_peak_bytes, host_peak_bytes, nvme_bytes;
    double busy_seconds[ZO_REPORT_ENGINES];
};

struct zo_report_eval {
    double step, loss;
};

/* A metrics file.  Repeated steps of a resumed run count once, the later. */
struct zo_report_run {
    char *name; /* owned; the file's */
    char settings[200];
    struct zo_report_step *steps; /* owned */
    size_t step_count, step_capacity;
    struct zo_report_eval *evals; /* owned */
    size_t eval_count, eval_capacity;
};

/* What an operation does, for the eye. */
enum zo_report_kind {
    ZO_REPORT_FORWARD,
    ZO_REPORT_BACKWARD,
    ZO_REPORT_GRADIENT, /* cast, norm, exchange */
    ZO_REPORT_UPDATE,
    ZO_REPORT_COPY,
    ZO_REPORT_OTHER_WORK,
    ZO_REPORT_KINDS
};

/* Times are microseconds. */
struct zo_report_span {
    double begin_us, end_us;
    int lane;
    enum zo_report_kind kind;
};

struct zo_report_window {
    int64_t step;
    double begin_us, end_us;
};

struct zo_report_lane {
    int64_t tid;
    char name[ZO_REPORT_NAME_BYTES];
};

struct zo_report_sample {
    double us;
    double bytes[ZO_REPORT_PURPOSES];
};

struct zo_report_tier {
    char name[ZO_REPORT_NAME_BYTES];  /* "GPU 0" */
    struct zo_report_sample *samples; /* owned; in order of time */
    size_t sample_count, sample_capacity;
};

struct zo_report_trace {
    char *name;                       /* owned */
    struct zo_report_span *spans;     /* owned */
    struct zo_report_window *windows; /* owned; steps */
    size_t span_count, span_capacity, window_count, window_capacity;
    struct zo_report_lane lanes[ZO_REPORT_LANES_MAX];
    struct zo_report_tier tiers[ZO_REPORT_TIERS_MAX];
    int lane_count, tier_count;
};

/* A line of a bench. */
struct zo_report_row {
    struct zo_json_doc *doc; /* owned */
};

/* The lines of one suite of one file. */
struct zo_report_bench {
    char *name; /* owned */
    char suite[ZO_REPORT_NAME_BYTES];
    struct zo_report_row *rows; /* owned */
    size_t row_count, row_capacity;
};

struct zo_report_data {
    struct zo_report_run *runs[ZO_REPORT_FILES_MAX]; /* owned, each */
    struct zo_report_trace *traces[ZO_REPORT_FILES_MAX];
    struct zo_report_bench *benches[ZO_REPORT_FILES_MAX];
    size_t run_count, trace_count, bench_count;
};

/*
 * Reads a file of any kind: its beginning tells which.
 *
 *   ZO_E_USAGE     it cannot be opened, or is none of them; too many files
 *   ZO_E_CORRUPT   a line is damaged; the text says which
 *   ZO_E_IO, ZO_E_NOMEM
 */
enum zo_status zo_report_read(struct zo_report_data *data, const char *path,
                              struct zo_notes *notes) ZO_MUST_CHECK;

/* Reads the text of a trace; for zo_report_read(). */
enum zo_status
zo_report_read_trace(const char *path, const char *text, size_t size_bytes,
                     struct zo_report_trace *trace) ZO_MUST_CHECK;

/* The key's number; NaN when there is none. */
double zo_report_number(const struct zo_json *object, const char *key);
/* The key's string; NULL when there is none. */
const char *zo_report_string(const struct zo_json *object, const char *key);

void zo_report_fini(struct zo_report_data *data);

ZO_C_END

#endif
