/*
 * What the lines of a plan are made of: count x bytes, by unit.
 *
 * Row 8, private to src/cli.
 */
#ifndef ZO_SRC_CLI_PRINT_UNITS_H
#define ZO_SRC_CLI_PRINT_UNITS_H

#include <stdio.h>

#include "offload/builder.h"
#include "offload/planner.h"
#include "src/base/jsonl.h"

ZO_C_BEGIN

/*
 * The buffers of one purpose at the arena's fullest moment, as factors:
 * "22 layers x 389.0 MiB + head 508.0 MiB"; what belongs to no unit is
 * "3 x 508.0 MiB".  At most 4 kinds, the largest; "..." for more.
 */
void zo_cli_print_factors(FILE *file, const struct zo_build *build,
                          const struct zo_plan_arena *arena,
                          enum zo_purpose purpose);

/* A member of a JSON object: an array of {"unit","purpose","bytes"}. */
void zo_cli_write_units(struct zo_jsonl *json, const char *key,
                        const struct zo_build *build,
                        const struct zo_plan_arena *arena);

ZO_C_END

#endif
