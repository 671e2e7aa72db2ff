/*
 * The machine of a run: which devices are meant, and what is refused.
 */
#include "src/train/devices.h"

#include <string.h>

#include "src/base/memory.h"
#include "tests/tap.h"

/* Refused alike by counting and by opening; the text has `part`. */
static bool refused(const struct zo_devices_options *options,
                    enum zo_status want, const char *part)
{
    struct zo_devices devices = {.threads = 77};
    int count = 77;

    for (int opens = 0; opens <= 1; opens++) {
        const enum zo_status status = opens != 0
                                          ? zo_devices_open(options, &devices)
                                          : zo_devices_count(options, &count);

        if (status != want || strstr(zo_err_last()->text, part) == NULL) {
            tap_fail(__FILE__, __LINE__, "status %d: %s", (int)status,
                     status == ZO_OK ? "" : zo_err_last()->text);
            return false;
        }
    }
    return count == 77 && devices.threads == 77; /* outputs untouched */
}

static int gpu_count(void)
{
    int count = 0;

    return zo_device_cuda.count(&count) == ZO_OK ? count : 0;
}

static void test_host_devices(void)
{
    static const int indices[] = {5, 0, 63};
    const struct zo_devices_options named = {.backend = ZO_BACKEND_HOST,
                                             .indices = indices,
                                             .count = 3,
                                             .threads = 2};
    struct zo_devices devices;
    int count = 0;

    TAP_CHECK_INT(zo_devices_count(&named, &count), ZO_OK);
    TAP_CHECK_INT(count, 3);
    TAP_CHECK_INT(zo_devices_open(&named, &devices), ZO_OK);
    TAP_CHECK_INT(devices.machine.device_count, 3);
    TAP_CHECK_INT(devices.threads, 2);
    TAP_CHECK_INT(zo_pool_width(devices.pool), 2);
    TAP_CHECK(devices.machine.device_ops == &zo_device_host);
    TAP_CHECK(devices.machine.comm != NULL);
    TAP_CHECK(strcmp(zo_device_host.info(devices.machine.devices[0])->name,
                     "host:5") == 0);
    TAP_CHECK(strcmp(zo_device_host.info(devices.machine.devices[2])->name,
                     "host:63") == 0);
    zo_devices_close(&devices);
    TAP_CHECK_INT(devices.machine.device_count, 0);
    zo_devices_close(&devices);
    zo_devices_close(NULL);
}

static void test_defaults(void)
{
    const struct zo_devices_options host = {.backend = ZO_BACKEND_HOST};
    struct zo_devices devices;

    TAP_CHECK_INT(zo_devices_open(&host, &devices), ZO_OK);
    TAP_CHECK_INT(devices.machine.device_count, 1);
    TAP_CHECK_INT(devices.threads, zo_cpu_count());
    TAP_CHECK(devices.machine.comm == NULL); /* nobody to talk to */
    zo_devices_close(&devices);
}

/* One thread issues; the rest update.  A pace goes to every device. */
static void test_workers(void)
{
    static const int threads[][2] = {{1, 1}, {2, 1}, {6, 5}, {300, 256}};
    struct zo_devices_options options = {.backend = ZO_BACKEND_HOST,
                                         .copy_bytes_per_second = 22000};

    for (size_t i = 0; i < TAP_COUNT(threads); i++) {
        struct zo_devices devices;

        options.threads = threads[i][0];
        TAP_CHECK_INT(zo_devices_open(&options, &devices), ZO_OK);
        TAP_CHECK_INT(zo_devices_cpu_workers(&devices), threads[i][1]);
        TAP_CHECK_INT((long long)devices.copy_bytes_per_second, 22000);
        zo_devices_close(&devices);
    }
}

static void test_refused_devices(void)
{
    static const int twice[] = {2, 7, 2}, below[] = {-1}, above[] = {0, 64};
    struct zo_devices_options options = {.backend = ZO_BACKEND_HOST};

    options.indices = twice;
    options.count = 3;
    TAP_CHECK(refused(&options, ZO_E_USAGE, "names 2 twice"));
    options.indices = below;
    options.count = 1;
    TAP_CHECK(refused(&options, ZO_E_USAGE, "no device -1; want 0 to 63"));
    options.indices = above;
    options.count = 2;
    TAP_CHECK(refused(&options, ZO_E_USAGE, "no device 64"));
    options.indices = NULL;
    options.count = 65;
    TAP_CHECK(refused(&options, ZO_E_USAGE, "65 devices asked for"));
    TAP_CHECK_INT(zo_status_exit_code(ZO_E_USAGE), 2);
}

static void test_cuda_without_gpu(void)
{
    const struct zo_devices_options cuda = {.backend = ZO_BACKEND_CUDA};
    const struct zo_devices_options any = {.backend = ZO_BACKEND_AUTO};
    static const int indices[] = {0, 1};
    const struct zo_devices_options named = {
        .backend = ZO_BACKEND_AUTO, .indices = indices, .count = 2};
    struct zo_devices devices;

    if (gpu_count() > 0) {
        tap_skip("there is a GPU");
        return;
    }
    TAP_CHECK(refused(&cuda, ZO_E_NOSUPPORT, "--backend host"));
    TAP_CHECK_INT(zo_status_exit_code(ZO_E_NOSUPPORT), 2);
    TAP_CHECK(refused(&named, ZO_E_USAGE, "--backend host takes the"));
    TAP_CHECK_INT(zo_devices_open(&any, &devices), ZO_OK);
    TAP_CHECK(devices.machine.device_ops == &zo_device_host);
    zo_devices_close(&devices);
}

/* Two devices of 80 GB, of which others have taken a part. */
static struct zo_device_info fake_infos[2];
static uint64_t fake_free[2];

static int fake_index(const struct zo_device *device)
{
    return strcmp(zo_device_host.info(device)->name, "host:1") == 0;
}

static const struct zo_device_info *fake_info(const struct zo_device *device)
{
    return &fake_infos[fake_index(device)];
}

static enum zo_status fake_free_bytes(struct zo_device *device,
                                      uint64_t *bytes_out)
{
    *bytes_out = fake_free[fake_index(device)];
    return ZO_OK;
}

static void test_taken_devices(void)
{
    const uint64_t gib = (uint64_t)1 << 30;
    const struct zo_devices_options options = {.backend = ZO_BACKEND_HOST,
                                               .count = 2};
    struct zo_device_ops fake = zo_device_host;
    struct zo_devices devices;
    struct zo_machine machine;

    TAP_CHECK_INT(zo_devices_open(&options, &devices), ZO_OK);
    TAP_CHECK_INT((long long)zo_devices_comm_bytes(&devices.machine, 1), 0);
    fake.info = fake_info;
    fake.mem_free_bytes = fake_free_bytes;
    machine = devices.machine;
    machine.device_ops = &fake;
    for (int i = 0; i < 2; i++) {
        fake_infos[i] =
            (struct zo_device_info){.name = i == 0 ? "cuda:0" : "cuda:1",
                                    .memory_bytes = 80 * gib,
                                    .context_bytes = gib / 2};
        fake_free[i] = 79 * gib;
    }
    TAP_CHECK_INT(zo_devices_check_idle(&machine), ZO_OK);
    fake_free[1] = 78 * gib + gib / 2;
    TAP_CHECK_INT(zo_devices_check_idle(&machine), ZO_OK);
    fake_free[1] = 50 * gib;
    TAP_CHECK_INT(zo_devices_check_idle(&machine), ZO_E_USAGE);
    TAP_CHECK(strstr(zo_err_last()->text, "29.50 GiB of cuda:1;") != NULL);
    TAP_CHECK(strstr(zo_err_last()->text, "--devices") != NULL);
    TAP_CHECK(strstr(zo_err_last()->text, "cuda:0") == NULL);
    fake_free[0] = 0;
    TAP_CHECK_INT(zo_devices_check_idle(&machine), ZO_E_USAGE);
    TAP_CHECK(strstr(zo_err_last()->text,
                     "79.50 GiB of cuda:0, 29.50 GiB of cuda:1;") != NULL);
    zo_devices_close(&devices);
}

static void test_each_allocation(void)
{
    const struct zo_devices_options options = {
        .backend = ZO_BACKEND_HOST, .count = 3, .threads = 3};
    struct zo_devices devices;
    enum zo_status status;
    uint64_t nth = 0;

    do {
        zo_memory_fail_at(++nth);
        status = zo_devices_open(&options, &devices);
        zo_memory_fail_at(0);
        TAP_CHECK(status == ZO_OK ||
                  strstr(zo_err_last()->text, "no memory for") != NULL);
        TAP_CHECK(status == ZO_OK || status == ZO_E_NOMEM ||
                  status == ZO_E_DEVMEM);
    } while (status != ZO_OK);
    TAP_CHECK(nth > 10);
    zo_devices_close(&devices);
}

static const struct tap_case cases[] = {
    {"host devices are those that were named", test_host_devices},
    {"one host device and a thread a core by default", test_defaults},
    {"threads that update on the host", test_workers},
    {"devices named twice, out of range or too many are refused",
     test_refused_devices},
    {"cuda without a GPU is refused, auto takes the host",
     test_cuda_without_gpu},
    {"devices that others use are named", test_taken_devices},
    {"each allocation that fails is clean", test_each_allocation},
};

int main(void)
{
    return tap_run(cases, TAP_COUNT(cases));
}
