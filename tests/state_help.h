/*
 * Training states of the tiny model, compared; what their runs are told.  A
 * program that links this syncs nothing: what is on the disk when is the
 * matter of test_state_format.
 */
#ifndef ZO_TESTS_STATE_HELP_H
#define ZO_TESTS_STATE_HELP_H

#include <stdbool.h>

/* Members of a configuration. */
#define BF16 "\"bf16\": {\"enabled\": true}, "
#define FP16                                                     \
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 22," \
    " \"loss_scale_window\": 2, \"hysteresis\": 1}, "
#define FREE  "\"gradient_clipping\": 0"
#define CLIPS "\"gradient_clipping\": 0.5"

/* Two states, by their folders, hold the same numbers, whatever their
 * pieces. */
bool same_states(const char *a, const char *b);

/* They say the same of where the run stood. */
bool same_runs(const char *a, const char *b);

#endif
