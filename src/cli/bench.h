/*
 * The kinds of zero-offload bench that have a file of their own.  Row 8.
 */
#ifndef ZO_SRC_CLI_BENCH_H
#define ZO_SRC_CLI_BENCH_H

#include "src/cli/cli.h"

ZO_C_BEGIN

/* src/cli/bench_nvme.c */
enum zo_status
zo_cli_bench_nvme(struct zo_cli *cli,
                  const struct zo_options *options) ZO_MUST_CHECK;

ZO_C_END

#endif
