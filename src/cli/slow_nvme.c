#include "src/cli/slow_nvme.h"

#include <inttypes.h>

#define BYTES_LEAST 1e9 /* of a step, whose rate tells something */
#define SLOW        1.5 /* times the time that it should take */

enum zo_status zo_slow_nvme_step(struct zo_slow_nvme *slow,
                                 const struct zo_step_metrics *metrics,
                                 struct zo_notes *notes)
{
    const double bytes =
        (double)metrics->nvme_read_bytes + (double)metrics->nvme_write_bytes;
    double wanted;

    if (slow->has_told || slow->read_rate <= 0.0 || bytes < BYTES_LEAST) {
        return ZO_OK;
    }
    wanted = (double)metrics->nvme_read_bytes / slow->read_rate +
             (double)metrics->nvme_write_bytes / slow->write_rate;
    if (metrics->nvme_seconds < SLOW * wanted) {
        return ZO_OK;
    }
    slow->has_told = true;
    return zo_note_add(
        notes, ZO_NOTE_WARN,
        "step %" PRId64 ": NVMe moved %.2f GB/s; at the start it was measured "
        "at %.2f: reads of %.2f and writes of %.2f GB/s",
        metrics->step, bytes * 1e-9 / metrics->nvme_seconds,
        bytes * 1e-9 / wanted, slow->read_rate * 1e-9, slow->write_rate * 1e-9);
}
