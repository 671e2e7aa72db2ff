/* The store's io_uring where the build has no liburing. */

#include "offload/nvme_internal.h"

static enum zo_status uring_open(struct zo_nvme *nvme, void **backend_out)
{
    (void)nvme;
    (void)backend_out;
    return ZO_FAIL_NATIVE(ZO_E_NOSUPPORT, 0,
                          "this program was built without liburing");
}

static void uring_wake(void *backend)
{
    (void)backend;
}

static void uring_settle(void *backend)
{
    (void)backend;
}

static enum zo_status uring_register(void *backend, char *memory, size_t bytes)
{
    (void)backend;
    (void)memory;
    (void)bytes;
    return ZO_OK;
}

static void uring_close(void *backend)
{
    (void)backend;
}

const struct zo_nvme_backend_ops zo_nvme_uring_ops = {
    .open = uring_open,
    .wake = uring_wake,
    .register_memory = uring_register,
    .settle = uring_settle,
    .close = uring_close,
};
