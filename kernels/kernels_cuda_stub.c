/* What takes the place of CUDA kernels in a build without them. */
#include "kernels/kernels.h"

static enum zo_status stub_open(struct zo_device *device,
                                const struct zo_kernels_options *options,
                                struct zo_kernels **kernels_out)
{
    (void)device, (void)options, (void)kernels_out;
    return ZO_FAIL(ZO_E_NOSUPPORT, "this build has no CUDA: it was configured "
                                   "without it, or did not find nvcc");
}

static void stub_close(struct zo_kernels *kernels)
{
    (void)kernels;
}

/* Without a device nothing else can be called. */
const struct zo_kernel_ops zo_kernels_cuda = {
    .kind = "cuda",
    .open = stub_open,
    .close = stub_close,
};
