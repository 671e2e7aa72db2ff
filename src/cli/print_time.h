/*
 * How long a step will take: the simulator on the plan's own list.
 *
 * Row 8, private to src/cli.
 */
#ifndef ZO_SRC_CLI_PRINT_TIME_H
#define ZO_SRC_CLI_PRINT_TIME_H

#include "offload/simulator.h"
#include "src/base/jsonl.h"
#include "src/cli/setup.h"

ZO_C_BEGIN

/*
 * The rates to predict with: --profile's, else those that are cached for this
 * machine, else, where `measures`, measured now (some seconds) and cached.
 * *found_out is false when there are none.
 *
 *   ZO_E_USAGE   --profile names nothing that holds rates
 *   and what measuring fails with
 */
enum zo_status zo_cli_profile(const struct zo_setup *setup, bool measures,
                              struct zo_profile *profile_out,
                              bool *found_out) ZO_MUST_CHECK;

/*
 * Does --profile name something?  Before there are devices; without the option
 * it does.
 *
 *   ZO_E_USAGE   as zo_cli_profile()
 */
enum zo_status
zo_cli_profile_check(const struct zo_options *options) ZO_MUST_CHECK;

/*
 * As that, with the devices that are to run.
 *
 *   ZO_E_USAGE   and its rates are not of a processor in the place of a GPU, or
 *                the other way round
 */
enum zo_status
zo_cli_profile_check_run(const struct zo_setup *setup) ZO_MUST_CHECK;

/* Measured now, whatever is cached, and cached. */
enum zo_status zo_cli_profile_now(const struct zo_setup *setup,
                                  struct zo_profile *profile_out) ZO_MUST_CHECK;

struct zo_cli_time {
    struct zo_profile profile;
    struct zo_sim_result result; /* of the step in its steady state */
    double tokens_per_second;    /* of batches as long as planned */
};

/* As zo_cli_profile(); then simulates.  Ended with zo_cli_time_fini(). */
enum zo_status zo_cli_time(const struct zo_setup *setup,
                           const struct zo_trainer *trainer, bool measures,
                           struct zo_cli_time *time_out,
                           bool *found_out) ZO_MUST_CHECK;
void zo_cli_time_fini(struct zo_cli_time *time); /* NULL is allowed */

/*
 * At the start of a run: one line, where rates are named or cached; nothing
 * is measured.  ZO_E_USAGE, ZO_E_NOMEM.
 */
enum zo_status zo_cli_tell_time(const struct zo_cli *cli,
                                const struct zo_setup *setup,
                                const struct zo_trainer *trainer) ZO_MUST_CHECK;

/* Some lines for people; a member of a JSON object. */
void zo_cli_print_time(FILE *file, const struct zo_cli_time *time);
void zo_cli_write_time(struct zo_jsonl *json, const char *key,
                       const struct zo_cli_time *time);

ZO_C_END

#endif
