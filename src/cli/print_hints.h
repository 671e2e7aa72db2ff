/*
 * What stands behind a plan: how far accumulation can go, and, where nothing
 * fits, which changes of the configuration would.  Each has been tried.
 *
 * Row 8, private to src/cli.
 */
#ifndef ZO_SRC_CLI_PRINT_HINTS_H
#define ZO_SRC_CLI_PRINT_HINTS_H

#include "src/cli/setup.h"

ZO_C_BEGIN

/* How many micro batches share a crossing of the weights, where states are
 * offloaded: elsewhere they pass one by one and their number matters little.
 * A part of the plan, and no advice: larger steps train otherwise.
 * ZO_E_NOMEM. */
enum zo_status
zo_cli_print_accumulation(FILE *file, const struct zo_setup *setup,
                          const struct zo_trainer *trainer) ZO_MUST_CHECK;

/* Lines behind a plan that does not fit: what would.  ZO_E_NOMEM. */
enum zo_status zo_cli_print_cure(FILE *file,
                                 const struct zo_setup *setup) ZO_MUST_CHECK;

/*
 * Behind a trainer that was refused: the plan and its cure on cli->err.
 * Returns the failure, which stays the thread's latest.
 *
 *   ZO_E_FIT     as it came
 *   ZO_E_NOMEM
 */
enum zo_status zo_cli_fail_fit(const struct zo_cli *cli,
                               const struct zo_setup *setup,
                               const struct zo_trainer *trainer) ZO_MUST_CHECK;

ZO_C_END

#endif
