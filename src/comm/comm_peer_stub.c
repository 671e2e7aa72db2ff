/* What takes the place of copies between GPUs in a build without CUDA. */
#include "src/comm/comm.h"

#define LACK "this build has no CUDA"

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
const struct zo_comm_ops zo_comm_peer = {
    .kind = "cuda",
    .lack = LACK,
    .open = stub_open,
    .close = stub_close,
};
