/*
 * A fake model, a machine, and an executor with the weights loaded: runs of
 * what a builder test has built.
 */
#ifndef ZO_TESTS_BUILDER_RIG_H
#define ZO_TESTS_BUILDER_RIG_H

#include "tests/fake_model.h"

struct builder_rig {
    struct fake_model model;
    struct zo_machine machine;
    struct zo_executor *executor;
};

/* Ended with builder_rig_close(), also when it has failed. */
enum zo_status builder_rig_open(const struct fake_shape *shape,
                                const struct zo_executor_options *options,
                                struct builder_rig *rig);
void builder_rig_close(struct builder_rig *rig);

/* The states behind some lists; 0, and the case fails, if they fail. */
uint64_t builder_rig_states(const struct fake_shape *shape, const char *lists,
                            const struct zo_executor_options *options);

#endif
