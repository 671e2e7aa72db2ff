/*
 * A first run of collectives, whose results are looked at byte by byte: some
 * boards answer copies between devices with wrong bytes, or not at all, and
 * say nothing.
 *
 * Layer 4.
 */
#ifndef ZO_SRC_COMM_COMM_SELFTEST_H
#define ZO_SRC_COMM_COMM_SELFTEST_H

#include "src/comm/comm.h"

ZO_C_BEGIN

struct zo_comm_selftest_args {
    const struct zo_comm_ops *comm_ops;
    struct zo_comm *comm;
    const struct zo_device_ops *device_ops;
    struct zo_device *const *devices; /* (ranks), those of open() */
    int ranks;
    size_t piece_bytes_max; /* of the largest collective; at least 8 */
    int64_t timeout_ns;     /* for one collective */
};

/*
 * Exchanges and gathers pieces of several sizes, others between every two
 * devices.  Streams and memory of its own, gone when it returns.  After a
 * failure the comm is aborted.
 *
 *   ZO_E_COMM    other bytes came than were sent: the text names both devices
 *                and the way out; or a collective does not end
 *   and what the tables return
 */
enum zo_status
zo_comm_selftest(const struct zo_comm_selftest_args *args) ZO_MUST_CHECK;

ZO_C_END

#endif
