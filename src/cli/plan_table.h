/*
 * The table of stages and offloads: what each would take, and how long a step
 * would be, for one model on one machine.
 *
 * Row 8, private to src/cli.  Each row is planned as a run of its own would
 * be; nothing is allocated.
 */
#ifndef ZO_SRC_CLI_PLAN_TABLE_H
#define ZO_SRC_CLI_PLAN_TABLE_H

#include "src/base/jsonl.h"
#include "src/cli/estimate.h"
#include "src/cli/print_time.h"
#include "src/cli/variant.h"

ZO_C_BEGIN

/* One row on some number of devices. */
struct zo_plan_cell {
    const struct zo_stage_row *row;
    int devices;
    bool fits;
    uint64_t gpu_bytes; /* of the fullest device, all that it holds */
    uint64_t host_bytes, nvme_bytes;
    double step_seconds, tokens_per_second; /* 0: not predicted */
    enum zo_bound bound;
    bool has_estimate; /* DeepSpeed's */
    struct zo_estimate estimate;
    bool is_fastest; /* of those that fit on so many devices */
};

#define ZO_PLAN_CELLS_MAX 128

struct zo_plan_table {
    struct zo_plan_cell cells[ZO_PLAN_CELLS_MAX];
    int count;
};

/*
 * All rows on 1, 2, 4, ... and `devices` devices; those that use NVMe where
 * the options name a folder there.  What does not fit is told with the least
 * that it takes.  Printed to `out`, unless it is NULL, as they come; on a
 * terminal `err` says how far it is.
 *
 *   ZO_E_NOMEM, and whatever opening the run fails with
 */
enum zo_status zo_plan_table(const struct zo_cli *cli, FILE *out,
                             const struct zo_options *options, int devices,
                             struct zo_plan_table *table_out) ZO_MUST_CHECK;

/* A member of a JSON object: an array of an object a row. */
void zo_plan_table_json(struct zo_jsonl *json, const char *key,
                        const struct zo_plan_table *table);

/*
 * Whether --write could: before there is anything to write.
 *
 *   ZO_E_USAGE   the folder is not there, or not to be written to; the path is
 *                that of a folder
 */
enum zo_status zo_plan_table_check(const char *path) ZO_MUST_CHECK;

/*
 * Writes a DeepSpeed JSON for the fastest row on so many devices.
 *
 *   ZO_E_FIT   no row fits
 *   ZO_E_IO    the file cannot be written
 */
enum zo_status zo_plan_table_write(const struct zo_plan_table *table,
                                   int devices,
                                   const struct zo_run_config *config,
                                   const char *path) ZO_MUST_CHECK;

ZO_C_END

#endif
