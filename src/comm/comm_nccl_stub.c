/* What takes the place of NCCL's collectives in a build without them. */
#include "src/comm/comm.h"

#define LACK                                                   \
    "this build has no NCCL: it was configured without it or " \
    "without CUDA, or did not find it"

static enum zo_status stub_open(struct zo_device *const *devices, int count,
                                struct zo_comm **comm_out)
{
    (void)devices, (void)count, (void)comm_out;
    return ZO_FAIL(ZO_E_NOSUPPORT, "%s", LACK);
}

static void stub_close(struct zo_comm *comm)
{
    (void)comm;
}

/* Without a comm nothing else can be called. */
const struct zo_comm_ops zo_comm_nccl = {
    .kind = "cuda",
    .lack = LACK,
    .open = stub_open,
    .close = stub_close,
};
