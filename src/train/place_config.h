/*
 * From a run's configuration to what its placement may be.  Row 7.
 */
#ifndef ZO_SRC_TRAIN_PLACE_CONFIG_H
#define ZO_SRC_TRAIN_PLACE_CONFIG_H

#include "config/run_config.h"
#include "offload/placement.h"

ZO_C_BEGIN

void zo_place_from_config(const struct zo_run_config *config,
                          struct zo_place_options *options);

ZO_C_END

#endif
