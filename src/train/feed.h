/*
 * Micro batches into the records and tables of a list.
 *
 * Row 7.
 */
#ifndef ZO_SRC_TRAIN_FEED_H
#define ZO_SRC_TRAIN_FEED_H

#include "config/run_config.h"
#include "offload/builder.h"
#include "offload/executor.h"
#include "src/data/batches.h"
#include "src/model/glm.h"

ZO_C_BEGIN

/* Where a micro batch of `batches` goes. */
struct zo_feed {
    struct zo_executor *executor; /* borrowed */
    const struct zo_build *build; /* borrowed */
    struct zo_glm_batch layout;
    enum zo_loss_reduction reduction;
};

/*
 * Fills tables and counts of `micros` micro batches on every device for step
 * step_index (from 0) of `batches`, in the acquired slot.
 *
 *   ZO_E_DATA   the step has no label
 */
enum zo_status zo_feed_step(const struct zo_feed *feed,
                            struct zo_batches *batches, int64_t step_index,
                            int micros, int slot,
                            struct zo_batches_step *step_out) ZO_MUST_CHECK;

ZO_C_END

#endif
