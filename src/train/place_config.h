/*
 * What DeepSpeed's keys mean for the choice of a placement.
 *
 * Row 7.  Each key has an effect here, or a line that says why it has none;
 * keys that never have one are idle in the table of keys, which tells so.
 */
#ifndef ZO_SRC_TRAIN_PLACE_CONFIG_H
#define ZO_SRC_TRAIN_PLACE_CONFIG_H

#include "config/run_config.h"
#include "offload/placement.h"
#include "src/base/notes.h"

ZO_C_BEGIN

#define ZO_PLACE_RING_MAX 8 /* buffers of weights, unless a key says less */

/* The slowest tiers, GPU, CPU or NVMe, that states may use. */
struct zo_place_limits {
    enum zo_tier weights;
    enum zo_tier optimizer; /* masters and moments; without training: GPU */
};

/* At stage 0 several devices hold everything. */
struct zo_place_limits zo_place_limits(const struct zo_run_config *config,
                                       int device_count, bool trains);

/*
 * Sets all that follows from the configuration: `build`, budgets, the profile
 * and the number of workers are the caller's.  Of options->build devices,
 * units and the model's rows count.
 */
void zo_place_from_config(const struct zo_run_config *config,
                          struct zo_place_options *options);

/* Where and how states on NVMe are kept, but for their bytes; borrows the
 * folder.  Without one directory is NULL. */
struct zo_nvme_options zo_place_nvme(const struct zo_run_config *config);

/*
 * What this version does not do.
 *
 *   ZO_E_NOSUPPORT   two folders on NVMe
 */
enum zo_status zo_place_check(const struct zo_run_config *config) ZO_MUST_CHECK;

/* Adds a line for each key that asks for something and has no effect in this
 * run. */
enum zo_status zo_place_notes(const struct zo_run_config *config,
                              int device_count,
                              struct zo_notes *notes) ZO_MUST_CHECK;

ZO_C_END

#endif
