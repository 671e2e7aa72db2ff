/*
 * Collectives: bytes between the devices of one run.
 *
 * Layer 4: includes src/base and src/device.  Not offload, which calls it.
 *
 * A collective here only moves bytes.  What adds them up is a kernel of the
 * owner, in rank order, so that the sum does not depend on who carried the
 * pieces.
 *
 * Life cycle: open with all devices, any number of collectives, close; or,
 * once something has failed, abort and close.
 *
 * Threads: one thread issues every part of a collective, for all devices at
 * once, and all collectives of a zo_comm.
 */
#ifndef ZO_SRC_COMM_COMM_H
#define ZO_SRC_COMM_COMM_H

#include <stddef.h>

#include "src/base/status.h"
#include "src/device/device.h"

ZO_C_BEGIN

#define ZO_RANKS_MAX 64

struct zo_comm; /* opaque; rank r is the r-th device of open() */

/*
 * Rank d collects the d-th piece of every rank, in rank order:
 *   targets[d] + s * piece_bytes = sources[s] + d * stride_bytes
 * for all d and s, d == s among them.  Sources and targets do not overlap.
 */
struct zo_comm_exchange_args {
    struct zo_stream *const *streams; /* (R), rank r's of its device */
    void *const *targets;             /* (R), each R * piece_bytes */
    const void *const
        *sources;        /* (R), each (R-1) * stride_bytes + piece_bytes */
    size_t piece_bytes;  /* may be 0 */
    size_t stride_bytes; /* >= piece_bytes */
};

/*
 * Every rank gets every rank's piece, in place:
 *   buffers[d] + s * piece_bytes = buffers[s] + s * piece_bytes
 * for all d and s.
 */
struct zo_comm_all_gather_args {
    struct zo_stream *const *streams; /* (R), rank r's of its device */
    void *const *buffers;             /* (R), each R * piece_bytes */
    size_t piece_bytes;               /* may be 0 */
};

/*
 * One table per way of carrying.  Rules for who writes one:
 *  - a collective queues on streams[0 .. R-1] and returns: it neither blocks
 *    the host nor allocates;
 *  - rank r's buffers are ready when streams[r] gets to the collective, and
 *    when streams[r] has passed it, its targets are complete AND nobody still
 *    reads its sources: work queued behind it may write either;
 *  - it passes on no stream before every stream has come to it (a barrier of
 *    the streams), also with pieces of 0 bytes and at R = 1;
 *  - a failure before it on any stream reaches all of them, at the latest
 *    with abort: on cuda a device that failed never comes, and the others
 *    wait for it until then;
 *  - ZO_E_ARG means that nothing was queued.
 * NCCL fits: a group of R * R sends and receives of bytes is an exchange, an
 * ncclAllGather in place is the other; both are barriers in their effect.
 */
struct zo_comm_ops {
    const char *kind; /* matches zo_device_ops.kind of its devices */
    const char *lack; /* why open() can only fail in this build; or NULL */

    /*
     * The devices are borrowed until close.  The caller owns *comm_out.
     *
     *   ZO_E_ARG     count is not in 1..ZO_RANKS_MAX
     *   ZO_E_NOMEM   no memory
     *   ZO_E_COMM    the devices cannot reach each other, or reach each other
     *                with wrong bytes
     *   ZO_E_NOSUPPORT   as `lack` says
     */
    enum zo_status (*open)(struct zo_device *const *devices, int count,
                           struct zo_comm **comm_out);
    /* NULL is allowed.  Every collective has been passed, or aborted. */
    void (*close)(struct zo_comm *comm);
    /* Device memory that open() took on a rank's device, for the plan: what
     * collectives need, later ones too. */
    uint64_t (*own_device_bytes)(const struct zo_comm *comm, int rank);
    /* What carries, its version and the environment that it obeys, in a line
     * for the log; "" when there is nothing to say.  Borrowed. */
    const char *(*notes)(const struct zo_comm *comm);

    enum zo_status (*exchange)(struct zo_comm *comm,
                               const struct zo_comm_exchange_args *args);
    enum zo_status (*all_gather)(struct zo_comm *comm,
                                 const struct zo_comm_all_gather_args *args);

    /*
     * Whether what was queued has failed in a way that streams do not tell.
     * Some us; neither blocks nor allocates.
     *
     *   ZO_E_COMM    it has; the text names the device
     */
    enum zo_status (*check)(struct zo_comm *comm);
    /*
     * Ends what is queued and under way, on all devices, whether or not every
     * rank has come to it: streams pass it, with whatever bytes.  From then
     * on collectives are ZO_E_COMM.  May be called again.
     */
    void (*abort)(struct zo_comm *comm);
};

extern const struct zo_comm_ops zo_comm_host;
extern const struct zo_comm_ops zo_comm_peer; /* a stub without CUDA */
extern const struct zo_comm_ops zo_comm_nccl; /* a stub without NCCL */

/*
 * The variables of the environment whose names begin with `prefix`, as
 * "A=1 B=2" in order of name, into target (target_bytes >= 8); what does not
 * fit ends in "...".  Returns target; "" when there are none.
 */
const char *zo_comm_environment(const char *prefix, char *target,
                                size_t target_bytes);

/* The argument rules above, in one place for every way: ZO_E_ARG. */
enum zo_status zo_comm_exchange_check(const struct zo_comm_exchange_args *args,
                                      int ranks) ZO_MUST_CHECK;
enum zo_status
zo_comm_all_gather_check(const struct zo_comm_all_gather_args *args,
                         int ranks) ZO_MUST_CHECK;

ZO_C_END

#endif
