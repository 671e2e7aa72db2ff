/*
 * What plan adds to its table: how far accumulation can go, and, where nothing
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

/* Lines for a plan that does not fit.  ZO_E_NOMEM. */
enum zo_status zo_cli_print_hints(FILE *file,
                                  const struct zo_setup *setup) ZO_MUST_CHECK;

ZO_C_END

#endif
