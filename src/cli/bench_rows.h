/*
 * Rows of the bench tables as JSON lines: what a run of one configuration
 * took, keyed by that configuration.
 *
 * Row 8, private to src/cli.  bench writes them, and reads those of an earlier
 * run so as not to run them again; report reads them.  The format is
 * zero-offload-bench(1)'s.
 *
 * Threads: one.
 */
#ifndef ZO_SRC_CLI_BENCH_ROWS_H
#define ZO_SRC_CLI_BENCH_ROWS_H

#include "offload/schedule.h"
#include "src/base/jsonl.h"

ZO_C_BEGIN

#define ZO_BENCH_FORMAT    1
#define ZO_BENCH_ROWS_MAX  4096 /* of a file */
#define ZO_BENCH_KEY_BYTES 768

/* What came of a configuration. */
enum zo_bench_state {
    ZO_BENCH_RAN,
    ZO_BENCH_PLANNED, /* not run: its memory and a predicted time */
    ZO_BENCH_UNFIT,   /* does not fit: its memory is the least it takes */
};

/* Numbers that are not known are 0, and null or absent in a line. */
struct zo_bench_row {
    char key[ZO_BENCH_KEY_BYTES]; /* all that the figures hang on */
    char what[16];                /* "stages", "frontier", "sweep" */
    char label[96];               /* of the row: "stage 2, optimizer cpu" */
    char note[160];               /* what it is for; or why it is not there */
    char model[64], device[96], dtype[8];
    enum zo_bench_state state;
    int64_t layers, devices, stage, tokens; /* of a step */
    uint64_t gpu_budget_bytes, host_budget_bytes;
    uint64_t gpu_bytes;        /* of the fullest device, all it holds */
    uint64_t gpu_driver_bytes; /* in use on it, as the driver counts */
    /* Of states on a device, by the stage's arithmetic; their sum; all 0
     * where there is none. */
    uint64_t formula_weight_bytes, formula_gradient_bytes;
    uint64_t formula_optimizer_bytes, formula_bytes;
    uint64_t host_bytes;    /* planned: page-locked and pageable */
    uint64_t nvme_bytes;    /* planned */
    uint64_t process_bytes; /* resident in host memory, measured */
    uint64_t gpu_purposes[ZO_PURPOSES], host_purposes[ZO_PURPOSES];
    int64_t steps; /* measured */
    double median_seconds, min_seconds, max_seconds;
    double exposed_seconds;   /* of the median step: no device computed */
    double predicted_seconds; /* by rates measured before */
    double engine_seconds[ZO_ENGINES];
    uint64_t h2d_bytes, d2h_bytes; /* of a step */
    double loss;                   /* of the last step */
};

/* As one line. */
enum zo_status zo_bench_row_write(struct zo_jsonl *json,
                                  const struct zo_bench_row *row) ZO_MUST_CHECK;

/* The rows of a file, in order. */
struct zo_bench_rows {
    struct zo_bench_row *items; /* owned */
    size_t count, capacity;
};

/*
 * Reads a results file.  Lines of other kinds are passed over; a last line
 * that was cut off is no row.
 *
 *   ZO_E_USAGE    it cannot be opened
 *   ZO_E_CORRUPT  NAME:LINE: no JSON, another format, or too many rows
 *   ZO_E_IO       it cannot be read
 */
enum zo_status zo_bench_rows_read(const char *path,
                                  struct zo_bench_rows *rows_out) ZO_MUST_CHECK;
/* The last row of that key, or NULL. */
const struct zo_bench_row *zo_bench_rows_find(const struct zo_bench_rows *rows,
                                              const char *key);
void zo_bench_rows_fini(struct zo_bench_rows *rows); /* NULL is allowed */

/*
 * A results file that grows by a line a row.  A last line that was cut off is
 * removed.
 *
 *   ZO_E_USAGE   it cannot be opened
 */
struct zo_bench_file; /* opaque */
enum zo_status
zo_bench_file_open(const char *path,
                   struct zo_bench_file **file_out) ZO_MUST_CHECK;
enum zo_status zo_bench_file_add(struct zo_bench_file *file,
                                 const struct zo_bench_row *row) ZO_MUST_CHECK;
void zo_bench_file_close(struct zo_bench_file *file); /* NULL is allowed */

/* A step that was measured. */
struct zo_bench_step {
    double seconds, exposed_seconds;
};

/* Sorts row->steps (1 or more) of them, and gives the row their times: what is
 * exposed is of the step whose time is the median, and so never above it. */
void zo_bench_row_time(struct zo_bench_row *row, struct zo_bench_step *steps);

ZO_C_END

#endif
