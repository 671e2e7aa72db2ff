/*
 * The host device with copies that are paced: how long they take, and what
 * waits for them.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/device/device.h"
#include "src/device/ranges.h"
#include "src/device/stream_host.h"
#include "tests/tap.h"

static const struct zo_device_ops *const host = &zo_device_host;

#define PACED_BYTES ((size_t)200000)
#define PACED_RATE  5000000 /* 40 ms for PACED_BYTES */
#define PACED_NS    40000000

/* A device whose copies are paced, and what is copied. */
struct paced {
    struct zo_device *device;
    struct zo_stream *streams[2];
    unsigned char *memory[2], *pinned[2]; /* PACED_BYTES each */
};

static bool paced_open(struct paced *paced)
{
    const struct zo_device_options options = {.copy_bytes_per_second =
                                                  PACED_RATE};
    bool is_ok;

    *paced = (struct paced){0};
    is_ok = host->open(0, &options, &paced->device) == ZO_OK;
    for (int i = 0; i < 2 && is_ok; i++) {
        void *memory = NULL, *pinned = NULL;

        is_ok = host->stream_open(paced->device, "test", &paced->streams[i]) ==
                    ZO_OK &&
                host->mem_alloc(paced->device, ZO_MEM_DEVICE, "device",
                                PACED_BYTES, &memory) == ZO_OK &&
                host->mem_alloc(paced->device, ZO_MEM_PINNED, "pinned",
                                PACED_BYTES, &pinned) == ZO_OK;
        paced->memory[i] = memory;
        paced->pinned[i] = pinned;
    }
    return is_ok;
}

static void paced_close(struct paced *paced)
{
    for (int i = 0; i < 2; i++) {
        host->stream_close(paced->streams[i]);
        host->mem_free(paced->device, ZO_MEM_DEVICE, paced->memory[i],
                       PACED_BYTES);
        host->mem_free(paced->device, ZO_MEM_PINNED, paced->pinned[i],
                       PACED_BYTES);
    }
    host->close(paced->device);
}

/* Of a copy on the first stream, waited for. */
static int64_t copy_ns(struct paced *paced, void *target, const void *source,
                       size_t size_bytes)
{
    const int64_t from_ns = zo_clock_ns();

    if (host->copy(paced->streams[0], target, source, size_bytes) != ZO_OK ||
        host->stream_sync(paced->streams[0]) != ZO_OK) {
        return -1;
    }
    return zo_clock_ns() - from_ns;
}

/* The same, of a copy that is not held up: a machine that is busy elsewhere
 * makes one long, not ten. */
static int64_t free_copy_ns(struct paced *paced, void *target,
                            const void *source)
{
    int64_t least_ns = INT64_MAX;

    for (int i = 0; i < 10 && least_ns >= PACED_NS; i++) {
        least_ns =
            zo_min_i64(least_ns, copy_ns(paced, target, source, PACED_BYTES));
    }
    return least_ns;
}

static void test_time(void)
{
    struct paced paced;
    unsigned char *pageable = calloc(1, PACED_BYTES);
    int64_t up, down, part, inside, outside, from_pageable;

    TAP_CHECK(pageable != NULL && paced_open(&paced));
    memset(paced.pinned[0], 7, PACED_BYTES);
    up = copy_ns(&paced, paced.memory[0], paced.pinned[0], PACED_BYTES);
    inside = free_copy_ns(&paced, paced.memory[1], paced.memory[0]);
    down = copy_ns(&paced, paced.pinned[1], paced.memory[1], PACED_BYTES);
    TAP_CHECK(memcmp(paced.pinned[0], paced.pinned[1], PACED_BYTES) == 0);
    outside = free_copy_ns(&paced, pageable, paced.pinned[1]);
    from_pageable = copy_ns(&paced, paced.memory[0], pageable, PACED_BYTES);
    part = copy_ns(&paced, paced.memory[0] + PACED_BYTES / 2,
                   paced.pinned[0] + PACED_BYTES / 2, PACED_BYTES / 2);
    paced_close(&paced);
    free(pageable);
    TAP_CHECK(up >= PACED_NS && down >= PACED_NS && from_pageable >= PACED_NS);
    TAP_CHECK(part >= PACED_NS / 2 && part < 10 * (int64_t)PACED_NS);
    TAP_CHECK(inside >= 0 && inside < PACED_NS);
    TAP_CHECK(outside >= 0 && outside < PACED_NS);
}

static enum zo_status count_up(struct zo_pool *pool, const void *args)
{
    atomic_int *counter;

    (void)pool;
    memcpy(&counter, args, sizeof(counter));
    atomic_fetch_add(counter, 1);
    return ZO_OK;
}

/* Two copies and a count on each stream: nanoseconds until all is done, or -1.
 * *early_out: what was counted before the copies can have been. */
static int64_t run_both(struct paced *paced, atomic_int *counter,
                        int *early_out)
{
    const struct timespec pause = {.tv_nsec = PACED_NS};
    const int64_t from_ns = zo_clock_ns();
    bool is_ok = true;

    for (int i = 0; i < 2; i++) {
        struct zo_stream *stream = paced->streams[i];

        is_ok &= host->copy(stream, paced->memory[i], paced->pinned[i],
                            PACED_BYTES) == ZO_OK &&
                 host->copy(stream, paced->pinned[i], paced->memory[i],
                            PACED_BYTES) == ZO_OK &&
                 zo_stream_host_submit(stream, count_up, &counter,
                                       sizeof(counter)) == ZO_OK;
    }
    (void)nanosleep(&pause, NULL);
    *early_out = atomic_load(counter);
    if (zo_clock_ns() - from_ns >= 2 * (int64_t)PACED_NS) {
        *early_out = 0; /* a machine that was elsewhere tells nothing */
    }
    for (int i = 0; i < 2; i++) {
        is_ok &= host->stream_sync(paced->streams[i]) == ZO_OK;
    }
    return is_ok ? zo_clock_ns() - from_ns : -1;
}

/* What stands behind a copy waits for it; another stream does not.  A busy
 * machine may need some tries to show that. */
static void test_streams(void)
{
    struct paced paced;
    int64_t fastest_ns = INT64_MAX;

    TAP_CHECK(paced_open(&paced));
    for (int i = 0; i < 8 && fastest_ns >= 3 * (int64_t)PACED_NS; i++) {
        atomic_int counter = 0;
        int early = 0;
        const int64_t ns = run_both(&paced, &counter, &early);

        TAP_CHECK(ns >= 2 * (int64_t)PACED_NS);
        TAP_CHECK_INT(early, 0);
        TAP_CHECK_INT(atomic_load(&counter), 2);
        fastest_ns = ns < fastest_ns ? ns : fastest_ns;
    }
    paced_close(&paced);
    TAP_CHECK(fastest_ns < 3 * (int64_t)PACED_NS); /* four, one by one */
}

/* Memory that is given back is the device's no more, and each allocation that
 * fails leaves nothing. */
static void test_memory(void)
{
    struct paced paced;
    void *memory = NULL;
    int64_t ns;

    TAP_CHECK(paced_open(&paced));
    for (uint64_t nth = 1; nth <= 2; nth++) {
        enum zo_status status;

        zo_memory_fail_at(nth);
        status =
            host->mem_alloc(paced.device, ZO_MEM_DEVICE, "more", 4096, &memory);
        zo_memory_fail_at(0);
        TAP_CHECK(status == ZO_E_DEVMEM || status == ZO_E_NOMEM);
        TAP_CHECK(memory == NULL);
    }
    TAP_CHECK_INT((long long)host->mem_allocated(paced.device, ZO_MEM_DEVICE),
                  2 * (long long)PACED_BYTES);
    host->mem_free(paced.device, ZO_MEM_DEVICE, paced.memory[1], PACED_BYTES);
    paced.memory[1] = NULL;
    ns = copy_ns(&paced, paced.memory[0], paced.pinned[0], PACED_BYTES);
    paced_close(&paced);
    TAP_CHECK(ns >= PACED_NS);
}

static void test_ranges(void)
{
    struct zo_ranges ranges = {0};
    const char memory[64] = {0};

    TAP_CHECK(!zo_ranges_has(&ranges, memory));
    TAP_CHECK_INT(zo_ranges_add(&ranges, memory + 8, 8), ZO_OK);
    TAP_CHECK_INT(zo_ranges_add(&ranges, memory + 24, 8), ZO_OK);
    for (int i = 0; i < 64; i++) {
        TAP_CHECK(zo_ranges_has(&ranges, memory + i) ==
                  ((i >= 8 && i < 16) || (i >= 24 && i < 32)));
    }
    zo_ranges_remove(&ranges, memory + 9); /* none begins there */
    TAP_CHECK(zo_ranges_has(&ranges, memory + 9));
    zo_ranges_remove(&ranges, memory + 8);
    TAP_CHECK(!zo_ranges_has(&ranges, memory + 9));
    TAP_CHECK(zo_ranges_has(&ranges, memory + 24));
    zo_ranges_remove(&ranges, memory + 24);
    TAP_CHECK(ranges.first == NULL);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a copy over the bus takes its bytes at the pace", test_time},
        {"streams keep their order, and run side by side", test_streams},
        {"memory of paced copies comes and goes", test_memory},
        {"ranges hold what lies in them", test_ranges},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
