/*
 * Whether NVMe keeps up with what it did at the start.  Row 8.
 *
 * A disk that is full, hot or shared falls behind, and so does the step behind
 * its prediction.
 */
#ifndef ZO_SRC_CLI_SLOW_NVME_H
#define ZO_SRC_CLI_SLOW_NVME_H

#include "src/base/notes.h"
#include "src/train/metrics.h"

ZO_C_BEGIN

struct zo_slow_nvme {
    double read_rate, write_rate; /* measured, bytes a second; 0: not */
    bool has_told;
};

/*
 * Adds a warning when a step took half as long again as its bytes should have;
 * once, and not of a step with too few bytes to tell.  ZO_E_NOMEM.
 */
enum zo_status zo_slow_nvme_step(struct zo_slow_nvme *slow,
                                 const struct zo_step_metrics *metrics,
                                 struct zo_notes *notes) ZO_MUST_CHECK;

ZO_C_END

#endif
