/*
 * What DeepSpeed's own estimators say a run needs, for comparison.
 *
 * Row 8, private to src/cli.
 */
#ifndef ZO_SRC_CLI_ESTIMATE_H
#define ZO_SRC_CLI_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/model_config.h"

ZO_C_BEGIN

/* Model states alone, as its estimators count them: no activations. */
struct zo_estimate {
    double gpu_bytes, host_bytes; /* of a device; of the host */
};

/*
 * DeepSpeed's estimate_zero2_model_states_mem_needs() and
 * estimate_zero3_model_states_mem_needs() (0.19) of one node, with its default
 * additional_buffer_factor of 1.5 and, at stage 3, zero.Init.  False where it
 * has none (stages 0 and 1, NVMe).  `largest` is the number of parameters that
 * the largest module owns directly.
 */
bool zo_estimate(int stage, bool offloads_optimizer, bool offloads_param,
                 double parameters, double largest, int devices,
                 struct zo_estimate *estimate_out);

/* The parameters of that module of a model. */
double zo_estimate_largest(const struct zo_model_config *model);

ZO_C_END

#endif
