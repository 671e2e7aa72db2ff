/*
 * Training states of the tiny model, compared.
 */
#ifndef ZO_TESTS_STATE_HELP_H
#define ZO_TESTS_STATE_HELP_H

#include <stdbool.h>

/* Two states, by their folders, hold the same numbers, whatever their
 * pieces. */
bool same_states(const char *a, const char *b);

/* They say the same of where the run stood. */
bool same_runs(const char *a, const char *b);

#endif
