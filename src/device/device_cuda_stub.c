/* What takes the place of CUDA devices in a build without them. */
#include "src/device/device.h"

static enum zo_status refuse(void)
{
    return ZO_FAIL(ZO_E_NOSUPPORT, "this build has no CUDA: it was configured "
                                   "without it, or did not find nvcc");
}

static void stub_platform(struct zo_device_platform *platform_out)
{
    *platform_out = (struct zo_device_platform){.targets = "", .refusal = ""};
}

static enum zo_status stub_count(int *count_out)
{
    *count_out = 0;
    return ZO_OK;
}

static enum zo_status stub_open(int index,
                                const struct zo_device_options *options,
                                struct zo_device **device_out)
{
    (void)index, (void)options, (void)device_out;
    return refuse();
}

static void stub_close(struct zo_device *device)
{
    (void)device;
}

/* Without a device nothing else can be called. */
const struct zo_device_ops zo_device_cuda = {
    .abi = ZO_DEVICE_ABI,
    .kind = "cuda",
    .platform = stub_platform,
    .count = stub_count,
    .open = stub_open,
    .close = stub_close,
};
