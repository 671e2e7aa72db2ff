/* The warning of a disk that falls behind: of which step, once, in figures. */
#include <string.h>

#include "src/base/arith.h"
#include "src/cli/slow_nvme.h"
#include "tests/tap.h"

#define GB UINT64_C(1000000000)

static const struct zo_slow_nvme measured = {.read_rate = 2e9,
                                             .write_rate = 1e9};

/* 2 GB read and 3 written: they should take 4 seconds. */
static struct zo_step_metrics step_of(int64_t step, double seconds)
{
    return (struct zo_step_metrics){.step = step,
                                    .nvme_read_bytes = 2 * GB,
                                    .nvme_write_bytes = 3 * GB,
                                    .nvme_seconds = seconds};
}

static void test_warning(void)
{
    struct zo_slow_nvme slow = measured;
    struct zo_notes notes = {0};
    struct zo_step_metrics metrics = step_of(7, 5.9);

    TAP_CHECK_INT(zo_slow_nvme_step(&slow, &metrics, &notes), ZO_OK);
    TAP_CHECK_INT((long long)notes.count, 0);
    metrics = step_of(8, 6.25);
    TAP_CHECK_INT(zo_slow_nvme_step(&slow, &metrics, &notes), ZO_OK);
    TAP_CHECK_INT((long long)notes.count, 1);
    TAP_CHECK(notes.items[0].level == ZO_NOTE_WARN);
    TAP_CHECK(strcmp(notes.items[0].text,
                     "step 8: NVMe moved 0.80 GB/s; at the start it was "
                     "measured at 1.25: reads of 2.00 and writes of 1.00 "
                     "GB/s") == 0);
    metrics = step_of(9, 60.0);
    TAP_CHECK_INT(zo_slow_nvme_step(&slow, &metrics, &notes), ZO_OK);
    TAP_CHECK_INT((long long)notes.count, 1); /* once */
    zo_notes_fini(&notes);
}

/* A rate of few bytes, or one that was not measured, tells nothing. */
static void test_silence(void)
{
    const struct {
        struct zo_slow_nvme slow;
        uint64_t read_bytes, write_bytes;
        size_t notes;
    } cases[] = {
        {measured, GB / 2, GB / 2 - 1, 0},
        {measured, GB / 2, GB / 2, 1},
        {measured, 0, 0, 0},
        {{.has_told = false}, GB, GB, 0},
    };

    for (size_t i = 0; i < ZO_COUNT(cases); i++) {
        struct zo_slow_nvme slow = cases[i].slow;
        struct zo_notes notes = {0};
        const struct zo_step_metrics metrics = {
            .step = 1,
            .nvme_read_bytes = cases[i].read_bytes,
            .nvme_write_bytes = cases[i].write_bytes,
            .nvme_seconds = 1000.0};

        TAP_CHECK_INT(zo_slow_nvme_step(&slow, &metrics, &notes), ZO_OK);
        TAP_CHECK_INT((long long)notes.count, (long long)cases[i].notes);
        zo_notes_fini(&notes);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a step that NVMe held up is told once, in figures", test_warning},
        {"what tells nothing is not told", test_silence},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
