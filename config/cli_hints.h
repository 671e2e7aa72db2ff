/*
 * Options that people type who know other programs, and what says the same
 * here.  They are refused all the same: a name that is near but not equal may
 * mean something else (a batch size of all devices, a stage with its homes).
 *
 * Layer 1.
 */
#ifndef ZO_CONFIG_CLI_HINTS_H
#define ZO_CONFIG_CLI_HINTS_H

#include <stddef.h>

#include "config/cli_options.h"

ZO_C_BEGIN

/* A row of the table.  Static storage. */
struct zo_option_hint {
    unsigned commands; /* bits: of whose options it speaks */
    const char *names; /* separated by spaces; none is an option there */
    const char *hint;  /* what to write */
};

const struct zo_option_hint *zo_option_hints(size_t *count_out);

/* What to write instead of --name; NULL: nothing is known. */
const char *zo_option_hint(const char *name, enum zo_command command);

/* What a name that is none may have been meant for; both NULL: nothing. */
struct zo_option_guess {
    const struct zo_option *option; /* by its name, or an alias */
    const char *hint;               /* where it is nearest to a hint's name */
};

struct zo_option_guess zo_option_guess(const char *name,
                                       enum zo_command command);

ZO_C_END

#endif
