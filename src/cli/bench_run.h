/*
 * One row of a bench table: a configuration, planned and run.
 *
 * Row 8, private to src/cli.  Life cycle: open, rows, close.
 */
#ifndef ZO_SRC_CLI_BENCH_RUN_H
#define ZO_SRC_CLI_BENCH_RUN_H

#include "src/cli/bench_rows.h"
#include "src/cli/print_time.h"
#include "src/cli/variant.h"

ZO_C_BEGIN

#define ZO_BENCH_WARM_UPS 2 /* steps of a row that do not count */
#define ZO_BENCH_STEPS    6 /* of a row, with those */

struct zo_bench {
    struct zo_cli *cli;
    const struct zo_options *options; /* borrowed; command bench */
    const char *what;
    struct zo_bench_rows known; /* of the results file, before */
    struct zo_bench_file *file; /* NULL: none */
    struct zo_profile rates;    /* the latest that were measured */
    bool has_rates;
    int done, total;             /* rows; total 0: not known */
    int fitting;                 /* of those done */
    struct zo_bench_row nearest; /* of those done, to fitting */
    const char *device;          /* "GPU" or "device", of the last row */
    const char *head;            /* of the column of labels */
    bool has_head;               /* it has been printed */
};

/*
 * Reads the results file that the options name, if any, and opens it.
 *
 *   ZO_E_USAGE, ZO_E_CORRUPT   as zo_bench_rows_read()
 */
enum zo_status zo_bench_open(struct zo_cli *cli,
                             const struct zo_options *options, const char *what,
                             const char *head,
                             struct zo_bench *bench_out) ZO_MUST_CHECK;
void zo_bench_close(struct zo_bench *bench);

/* What a row is called, and whether it is run. */
struct zo_bench_ask {
    const char *label, *note;
    bool plans_only;
};

/*
 * Plans a configuration and, unless it does not fit or plans_only, trains
 * ZO_BENCH_STEPS steps (or --max-steps) of random rows.  A row that the results
 * file has is taken from there.  With --json the row is printed; it is added to
 * the results file.  What the first run is warned of is told.
 *
 *   ZO_E_USAGE, ZO_E_CONFIG   the configuration is refused
 *   and what a run fails with
 */
enum zo_status zo_bench_row(struct zo_bench *bench,
                            const struct zo_options *options,
                            const struct zo_bench_ask *ask,
                            struct zo_bench_row *row_out) ZO_MUST_CHECK;

/* Columns that several tables share, without a line end; before the first row
 * their heads. */
void zo_bench_print_row(struct zo_bench *bench, const struct zo_bench_row *row);

/*
 * Behind the last row.
 *
 *   ZO_E_FIT   none of the rows fits; what the nearest needs, and what there is
 */
enum zo_status zo_bench_verdict(const struct zo_bench *bench) ZO_MUST_CHECK;

/* "weights 1.2, masters 1.2, ...": GiB of a tier by purpose, on a line. */
void zo_bench_print_purposes(FILE *file, const char *tier,
                             const uint64_t *purposes);

/* One file each. */
enum zo_status zo_bench_stages(struct zo_cli *cli,
                               const struct zo_options *options) ZO_MUST_CHECK;
enum zo_status
zo_bench_frontier(struct zo_cli *cli,
                  const struct zo_options *options) ZO_MUST_CHECK;
enum zo_status zo_bench_sweep(struct zo_cli *cli,
                              const struct zo_options *options) ZO_MUST_CHECK;
enum zo_status zo_bench_adam(struct zo_cli *cli,
                             const struct zo_options *options) ZO_MUST_CHECK;
enum zo_status
zo_bench_transfer(struct zo_cli *cli,
                  const struct zo_options *options) ZO_MUST_CHECK;
enum zo_status zo_bench_matmul(struct zo_cli *cli,
                               const struct zo_options *options) ZO_MUST_CHECK;

ZO_C_END

#endif
