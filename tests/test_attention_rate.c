/*
 * The rate of attention: measured on host devices, and all memory goes back.
 */
#include "bench/attention_rate.h"

#include <stdbool.h>

#include "src/base/memory.h"
#include "tests/tap.h"

static const struct zo_model_config model = {
    .num_heads = 4, .num_kv_groups = 2, .head_width = 16};
static const struct zo_devices_options options = {
    .backend = ZO_BACKEND_HOST, .count = 1, .threads = 2};

static uint64_t handed_out(const struct zo_devices *devices)
{
    return devices->machine.device_ops->mem_allocated(
        devices->machine.devices[0], ZO_MEM_DEVICE);
}

static void test_rate(void)
{
    struct zo_devices devices = {0};
    enum zo_status status;
    double rate = 0.0;
    uint64_t before, after;

    TAP_CHECK_INT(zo_devices_open(&options, &devices), ZO_OK);
    before = handed_out(&devices);
    status = zo_bench_attention(&devices, &model, ZO_BF16, 2, 64, &rate);
    after = handed_out(&devices);
    zo_devices_close(&devices);
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(rate > 1e5 && rate < 1e15);
    TAP_CHECK_INT((long long)after, (long long)before);
}

static void test_no_memory(void)
{
    struct zo_devices devices = {0};
    enum zo_status status = ZO_E_NOMEM;
    double rate = 0.0;
    uint64_t before;
    int failures = 0;

    TAP_CHECK_INT(zo_devices_open(&options, &devices), ZO_OK);
    before = handed_out(&devices);
    while (status != ZO_OK && failures < 100) {
        zo_memory_fail_at((uint64_t)failures + 1);
        status = zo_bench_attention(&devices, &model, ZO_F32, 1, 32, &rate);
        zo_memory_fail_at(0);
        TAP_CHECK(status == ZO_OK || status == ZO_E_NOMEM ||
                  status == ZO_E_DEVMEM);
        TAP_CHECK_INT((long long)handed_out(&devices), (long long)before);
        failures += status != ZO_OK;
    }
    zo_devices_close(&devices);
    TAP_CHECK(failures >= 3);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"attention has a rate", test_rate},
        {"allocations fail in turn", test_no_memory},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
