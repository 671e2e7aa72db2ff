/* Lists of words separated by spaces, as the option tables hold them. */
#ifndef ZO_CONFIG_CLI_NAMES_H
#define ZO_CONFIG_CLI_NAMES_H

#include "src/base/compiler.h"

ZO_C_BEGIN

/*
 * Index of `word` among the words of `words` (may be NULL), without regard to
 * case; -1 when it is none of them.
 */
int zo_word_index(const char *words, const char *word);

ZO_C_END

#endif
