#include "config/cli_names.h"

#include <string.h>
#include <strings.h>

#include "config/cli_options.h"

int zo_word_index(const char *words, const char *word)
{
    const size_t length = strlen(word);
    int index = 0;

    if (words == NULL || length == 0) {
        return -1;
    }
    for (const char *at = words; *at != '\0'; index++) {
        const size_t step = strcspn(at, " ");

        if (step == length && strncasecmp(at, word, length) == 0) {
            return index;
        }
        at += step;
        at += strspn(at, " ");
    }
    return -1;
}

const char *zo_command_name(enum zo_command command)
{
    switch (command) {
    case ZO_COMMAND_TRAIN:
        return "train";
    case ZO_COMMAND_EVAL:
        return "eval";
    case ZO_COMMAND_PLAN:
        return "plan";
    case ZO_COMMAND_INSPECT:
        return "inspect";
    case ZO_COMMAND_INIT:
        return "init";
    case ZO_COMMAND_GENERATE:
        return "generate";
    case ZO_COMMAND_BENCH:
        return "bench";
    case ZO_COMMAND_DOCTOR:
        return "doctor";
    case ZO_COMMAND_EXPORT:
        return "export";
    case ZO_COMMAND_REPORT:
        return "report";
    }
    return "";
}

const char *zo_hf_schedule_name(enum zo_hf_schedule schedule)
{
    switch (schedule) {
    case ZO_HF_LINEAR:
        return "linear";
    case ZO_HF_COSINE:
        return "cosine";
    case ZO_HF_CONSTANT:
        return "constant";
    case ZO_HF_CONSTANT_WITH_WARMUP:
        return "constant_with_warmup";
    }
    return "";
}
