/*
 * Variants of a command line: the same run at another stage, with other homes,
 * on another number of devices, with other keys.
 *
 * Row 8, private to src/cli.  Each variant is opened as the command line that
 * a user would have typed, so that it is checked as that would be.
 */
#ifndef ZO_SRC_CLI_VARIANT_H
#define ZO_SRC_CLI_VARIANT_H

#include "config/cli_options.h"

ZO_C_BEGIN

/* A row of the tables of plan and bench stages. */
struct zo_stage_row {
    int stage;
    const char *optimizer, *param; /* devices as the JSON has them */
    bool fills;          /* the planner places; else literally as asked */
    const char *offload; /* in words, at most 16 columns */
    const char *purpose; /* what it is for, one line */
};

/* The rows, in the order of the tables. */
const struct zo_stage_row *zo_stage_rows(size_t *count_out);
/* Such a row is there where a folder on NVMe is named. */
bool zo_stage_row_uses_nvme(const struct zo_stage_row *row);

#define ZO_VARIANT_SETS_MAX 8
#define ZO_VARIANT_SET_MAX  256 /* bytes of one */

struct zo_variant {
    struct zo_options options; /* a copy; all but sets borrowed of the base */
    const char **sets;         /* owned; what options.sets points to */
    char own[ZO_VARIANT_SETS_MAX][ZO_VARIANT_SET_MAX];
    size_t own_count;
};

/*
 * A copy of the options: those that are there may be changed, and sets added,
 * before it is used.  It may not be moved; ended with zo_variant_fini().
 * ZO_E_NOMEM.
 */
enum zo_status zo_variant_init(const struct zo_options *base,
                               struct zo_variant *variant_out) ZO_MUST_CHECK;
void zo_variant_fini(struct zo_variant *variant); /* NULL is allowed */

/* Adds a --set, at most ZO_VARIANT_SETS_MAX; the text is copied.
 *
 *   ZO_E_USAGE   it is too long */
enum zo_status zo_variant_set(struct zo_variant *variant, const char *format,
                              ...) ZO_PRINTF(2, 3) ZO_MUST_CHECK;

/* The first so many of the devices that the options name. */
void zo_variant_devices(struct zo_variant *variant, int count);

/* The keys of a row. */
enum zo_status zo_variant_stage(struct zo_variant *variant,
                                const struct zo_stage_row *row) ZO_MUST_CHECK;

ZO_C_END

#endif
