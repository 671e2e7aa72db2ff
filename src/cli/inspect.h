/*
 * The parts of zero-offload inspect.  Layer 8, private to inspect*.c.
 */
#ifndef ZO_SRC_CLI_INSPECT_H
#define ZO_SRC_CLI_INSPECT_H

#include "src/cli/cli.h"

ZO_C_BEGIN

/* Lists the tensors of --model: a directory, or a file of weights. */
enum zo_status zo_inspect_model(struct zo_cli *cli,
                                const struct zo_options *options) ZO_MUST_CHECK;

/* Lists a training state, and verifies it. */
enum zo_status zo_inspect_state(struct zo_cli *cli,
                                const struct zo_options *options) ZO_MUST_CHECK;

ZO_C_END

#endif
