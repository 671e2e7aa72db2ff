/*
 * The key of a row of results: all that its figures hang on, as text.
 *
 * Row 8, private to src/cli.
 */
#ifndef ZO_SRC_CLI_BENCH_KEY_H
#define ZO_SRC_CLI_BENCH_KEY_H

#include "src/cli/setup.h"

ZO_C_BEGIN

/* Into target, terminated; a longer one keeps its beginning and a hash. */
void zo_bench_key(const char *what, const struct zo_setup *setup,
                  bool plans_only, char *target, size_t target_bytes);

ZO_C_END

#endif
