#include "src/cli/cli.h"

static const struct zo_cli_command commands[] = {
    {"train", ZO_COMMAND_TRAIN, "fine-tune a model on rows", zo_cli_train},
    {"plan", ZO_COMMAND_PLAN, "what a run would take of every tier of memory",
     zo_cli_plan},
    {"eval", ZO_COMMAND_EVAL,
     "loss of a model on rows; its answers to them, scored", zo_cli_eval},
    {"generate", ZO_COMMAND_GENERATE, "the answers of a model to prompts",
     zo_cli_generate},
    {"bench", ZO_COMMAND_BENCH,
     "stages, offloads, budgets: measured, with their bound", zo_cli_bench},
    {"report", ZO_COMMAND_REPORT,
     "figures of metrics, traces and benchmarks, as HTML", zo_cli_report},
    {"doctor", ZO_COMMAND_DOCTOR,
     "what of this machine works, how fast, and the cures", zo_cli_doctor},
    {"inspect", ZO_COMMAND_INSPECT,
     "what is in a model or a data file, as training sees it", zo_cli_inspect},
    {"export", ZO_COMMAND_EXPORT,
     "a model directory for other programs to load", zo_cli_export},
    {"init", ZO_COMMAND_INIT, "a model of random weights, from a config.json",
     zo_cli_init},
};

const struct zo_cli_command *zo_cli_commands(size_t *count_out)
{
    *count_out = ZO_COUNT(commands);
    return commands;
}
