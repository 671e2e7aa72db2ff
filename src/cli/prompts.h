/*
 * The prompts of generate, as ids: --prompt, --prompt-file, standard input.
 *
 * Layer 8.
 */
#ifndef ZO_SRC_CLI_PROMPTS_H
#define ZO_SRC_CLI_PROMPTS_H

#include "config/cli_options.h"
#include "src/data/tokenizer.h"

ZO_C_BEGIN

struct zo_cli_prompt {
    char *text; /* owned */
    size_t text_bytes;
    struct zo_ids ids; /* with [gMASK] sop, history and template */
};

/* All zero is empty. */
struct zo_cli_prompts {
    struct zo_cli_prompt *items; /* owned */
    size_t count, capacity;
};

/*
 * Reads and encodes all prompts: those of --prompt, then the lines of
 * --prompt-file; without either the lines of standard input, to its end.
 * Lines without a character are no prompts.
 *
 *   ZO_E_USAGE   no prompt; a file cannot be opened
 *   ZO_E_DATA    a prompt or the history is not UTF-8, or too long; the
 *                history is not an array of [question, answer]
 */
enum zo_status
zo_cli_prompts_read(const struct zo_options *options,
                    const struct zo_tokenizer *tokenizer,
                    struct zo_cli_prompts *prompts) ZO_MUST_CHECK;
void zo_cli_prompts_fini(struct zo_cli_prompts *prompts);

/* Tokens of the longest. */
int64_t zo_cli_prompts_longest(const struct zo_cli_prompts *prompts);

ZO_C_END

#endif
