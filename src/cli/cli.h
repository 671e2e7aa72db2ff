/*
 * The subcommands of zero-offload(1), and what they share.
 *
 * Layer 8: the only code that prints.  A subcommand gets its options parsed,
 * writes results to cli->out, adds lines for people to cli->notes, and
 * returns a status; main() prints notes and failure and makes the exit code.
 */
#ifndef ZO_SRC_CLI_CLI_H
#define ZO_SRC_CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "config/cli_options.h"
#include "src/base/notes.h"
#include "src/base/status.h"

ZO_C_BEGIN

struct zo_cli {
    FILE *out, *err;       /* borrowed: standard output and error */
    struct zo_notes notes; /* ended by main() */
    const char *topic;     /* word behind the command: bench step; or NULL */
    int stopped_by;        /* signal that ended a run in good order; or 0 */
};

typedef enum zo_status (*zo_cli_fn)(struct zo_cli *cli,
                                    const struct zo_options *options);

/* A row of the table of subcommands. */
struct zo_cli_command {
    const char *name;
    enum zo_command command; /* which options it takes */
    const char *summary;     /* for the overview, at most 60 columns */
    zo_cli_fn run;
};

/* The table, in the order of the overview. */
const struct zo_cli_command *zo_cli_commands(size_t *count_out);

/* One file each: src/cli/NAME.c; commands.c says which there are. */
enum zo_status zo_cli_train(struct zo_cli *cli,
                            const struct zo_options *options) ZO_MUST_CHECK;
enum zo_status zo_cli_plan(struct zo_cli *cli,
                           const struct zo_options *options) ZO_MUST_CHECK;
enum zo_status zo_cli_eval(struct zo_cli *cli,
                           const struct zo_options *options) ZO_MUST_CHECK;
enum zo_status zo_cli_generate(struct zo_cli *cli,
                               const struct zo_options *options) ZO_MUST_CHECK;
enum zo_status zo_cli_bench(struct zo_cli *cli,
                            const struct zo_options *options) ZO_MUST_CHECK;
enum zo_status zo_cli_report(struct zo_cli *cli,
                             const struct zo_options *options) ZO_MUST_CHECK;
enum zo_status zo_cli_doctor(struct zo_cli *cli,
                             const struct zo_options *options) ZO_MUST_CHECK;
enum zo_status zo_cli_inspect(struct zo_cli *cli,
                              const struct zo_options *options) ZO_MUST_CHECK;
enum zo_status zo_cli_export(struct zo_cli *cli,
                             const struct zo_options *options) ZO_MUST_CHECK;
enum zo_status zo_cli_init(struct zo_cli *cli,
                           const struct zo_options *options) ZO_MUST_CHECK;

/*
 * cli->err, for what is printed beside results: those so far are written out
 * first, so that both stand in their order where they go to one place, as in
 * "2>&1 | less".
 */
FILE *zo_cli_err(const struct zo_cli *cli);

/* Prints the notes so far to cli->err and empties the list. */
void zo_cli_print_notes(struct zo_cli *cli);

/* Columns and rows of the terminal that a stream goes to; 0 where it goes to
 * none, or to one that does not tell. */
int zo_cli_columns(FILE *file);
int zo_cli_rows(FILE *file);

/*
 * Text out of a file on one line of a table: control characters escaped, line
 * breaks and tabs as \n and \t, cut to `columns` columns ("..." where it was;
 * wide characters take two).  False where it was cut.
 */
bool zo_cli_print_text(FILE *file, const char *text, size_t text_bytes,
                       int columns);

/*
 * `first`, then prose, wrapped at 80 columns: lines behind the first begin with
 * `indent` blanks.  A line end follows.
 */
void zo_cli_print_wrapped(FILE *file, const char *first, int indent,
                          const char *text);

/*
 * Flushes a stream that was printed to.
 *
 *   ZO_E_IO   it, or something before, could not be written
 */
enum zo_status zo_cli_flush(FILE *file, const char *name) ZO_MUST_CHECK;

ZO_C_END

#endif
