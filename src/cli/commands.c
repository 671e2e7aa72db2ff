#include "src/cli/cli.h"

static const struct zo_cli_command commands[] = {
    {"inspect", ZO_COMMAND_INSPECT,
     "what is in a model or a data file, as training sees it", zo_cli_inspect},
    {"init", ZO_COMMAND_INIT, "a model of random weights, from a config.json",
     zo_cli_init},
};

const struct zo_cli_command *zo_cli_commands(size_t *count_out)
{
    *count_out = ZO_COUNT(commands);
    return commands;
}
