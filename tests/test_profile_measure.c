/*
 * Measuring on host devices: every rate that is asked of them comes out, and
 * all memory goes back.
 */
#include "src/train/profile_measure.h"

#include <stdbool.h>

#include "src/base/memory.h"
#include "tests/tap.h"

enum { BYTES = 8 << 20 };

static bool open_paced(struct zo_devices *devices, int count, uint64_t paced)
{
    const struct zo_devices_options options = {.backend = ZO_BACKEND_HOST,
                                               .count = count,
                                               .threads = 2,
                                               .copy_bytes_per_second = paced};

    return zo_devices_open(&options, devices) == ZO_OK;
}

static bool open_devices(struct zo_devices *devices, int count)
{
    return open_paced(devices, count, 0);
}

/* Bytes that devices hand out, of either kind. */
static uint64_t handed_out(const struct zo_devices *devices)
{
    const struct zo_machine *machine = &devices->machine;
    uint64_t bytes = 0;

    for (int d = 0; d < machine->device_count; d++) {
        bytes += machine->device_ops->mem_allocated(machine->devices[d],
                                                    ZO_MEM_DEVICE) +
                 machine->device_ops->mem_allocated(machine->devices[d],
                                                    ZO_MEM_PINNED);
    }
    return bytes;
}

static void test_one(void)
{
    struct zo_devices devices = {0};
    struct zo_profile profile;
    uint64_t before, after;
    enum zo_status status;

    if (tap_skips_numbers()) {
        return;
    }
    TAP_CHECK(open_devices(&devices, 1));
    before = handed_out(&devices);
    status = zo_profile_measure(&devices, ZO_SIMD_BEST, BYTES, &profile);
    after = handed_out(&devices);
    zo_devices_close(&devices);
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK_INT((long long)after, (long long)before);
    TAP_CHECK(profile.is_host && profile.source == ZO_PROFILE_MEASURED);
    TAP_CHECK_INT(profile.threads, 2);
    TAP_CHECK(profile.paced == 0.0 && profile.simd == ZO_SIMD_BEST);
    TAP_CHECK(profile.name[0] != '\0');
    TAP_CHECK(profile.h2d > 1e6 && profile.d2h > 1e6);
    TAP_CHECK(profile.duplex > 1e6);
    TAP_CHECK(profile.cpu > 1e6 && profile.cpu_thread > 1e6);
    TAP_CHECK(profile.dram.rate > 1e6);
    TAP_CHECK(profile.launch_seconds > 0.0 && profile.launch_seconds < 0.1);
    TAP_CHECK(profile.handoff_seconds > 0.0 && profile.handoff_seconds < 0.1);
    /* What was not measured is not made up. */
    TAP_CHECK(profile.collective == 0.0);
    TAP_CHECK(profile.matrix_flops[ZO_F32] == 0.0);
}

static void test_two(void)
{
    struct zo_devices devices = {0};
    struct zo_profile profile;
    enum zo_status status;

    TAP_CHECK(open_devices(&devices, 2));
    status = zo_profile_measure(&devices, ZO_SIMD_BEST, BYTES, &profile);
    zo_devices_close(&devices);
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(profile.collective > 1e6);
}

/* At a pace every rate of copies is that pace, at most, and says so; others
 * are not held up. */
static void test_paced(void)
{
    const double pace = 2e6;
    struct zo_devices devices = {0};
    struct zo_profile profile;
    enum zo_status status;

    if (tap_skips_numbers()) {
        return;
    }
    TAP_CHECK(open_paced(&devices, 1, (uint64_t)pace));
    status = zo_profile_measure(&devices, ZO_SIMD_BASE, BYTES, &profile);
    zo_devices_close(&devices);
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(profile.paced == pace && profile.simd == ZO_SIMD_BASE);
    TAP_CHECK(profile.h2d <= pace && profile.h2d > pace / 4);
    TAP_CHECK(profile.d2h <= pace && profile.d2h > pace / 4);
    TAP_CHECK(profile.duplex <= 2.0 * pace && profile.duplex > pace / 4);
    TAP_CHECK(profile.cpu > 20 * pace && profile.cpu_thread > 20 * pace);
}

static void test_no_memory(void)
{
    struct zo_devices devices = {0};
    struct zo_profile profile;
    uint64_t before, after;

    if (tap_skips_numbers()) {
        return;
    }
    TAP_CHECK(open_devices(&devices, 1));
    before = handed_out(&devices);
    for (uint64_t nth = 1; nth <= 12; nth++) {
        enum zo_status status;

        zo_memory_fail_at(nth);
        status = zo_profile_measure(&devices, ZO_SIMD_BEST, BYTES, &profile);
        zo_memory_fail_at(0);
        after = handed_out(&devices);
        TAP_CHECK(status == ZO_E_NOMEM || status == ZO_E_DEVMEM);
        TAP_CHECK_INT((long long)after, (long long)before);
    }
    zo_devices_close(&devices);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"one host device", test_one},
        {"two of them, and what lies between", test_two},
        {"a bus at a pace", test_paced},
        {"allocations fail in turn", test_no_memory},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
