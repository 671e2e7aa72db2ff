/*
 * The host device: CUDA's rules for streams and events.
 *
 * Method: a gate holds a stream in the middle of a command until the test
 * opens it, so that what must wait can be seen waiting.  "Does not wait" is
 * shown by a sync that returns while the gate is shut; "waits" by a short
 * pause in which nothing may happen.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/device/device.h"
#include "src/device/stream_host.h"
#include "tests/tap.h"

static const struct zo_device_ops *const host = &zo_device_host;

/* ---- commands of the tests ------------------------------------------ */

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool is_open;
};

#define GATE                                                       \
    {                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false \
    }

static void gate_open(struct gate *gate)
{
    (void)pthread_mutex_lock(&gate->lock);
    gate->is_open = true;
    (void)pthread_cond_broadcast(&gate->opened);
    (void)pthread_mutex_unlock(&gate->lock);
}

static enum zo_status pass_gate(struct zo_pool *pool, const void *args)
{
    struct gate *gate;

    (void)pool;
    memcpy(&gate, args, sizeof(gate));
    (void)pthread_mutex_lock(&gate->lock);
    while (!gate->is_open) {
        (void)pthread_cond_wait(&gate->opened, &gate->lock);
    }
    (void)pthread_mutex_unlock(&gate->lock);
    return ZO_OK;
}

static enum zo_status submit_gate(struct zo_stream *stream, struct gate *gate)
{
    return zo_stream_host_submit(stream, pass_gate, &gate, sizeof(gate));
}

static enum zo_status count_up(struct zo_pool *pool, const void *args)
{
    atomic_int *counter;

    (void)pool;
    memcpy(&counter, args, sizeof(counter));
    atomic_fetch_add(counter, 1);
    return ZO_OK;
}

static enum zo_status submit_count(struct zo_stream *stream,
                                   atomic_int *counter)
{
    return zo_stream_host_submit(stream, count_up, &counter, sizeof(counter));
}

static enum zo_status fail(struct zo_pool *pool, const void *args)
{
    int number;

    (void)pool;
    memcpy(&number, args, sizeof(number));
    return ZO_FAIL_NATIVE(ZO_E_NUMERIC, number, "failure %d", number);
}

static enum zo_status submit_fail(struct zo_stream *stream, int number)
{
    return zo_stream_host_submit(stream, fail, &number, sizeof(number));
}

static void pause_us(long us)
{
    const struct timespec pause = {0, us * 1000};

    (void)nanosleep(&pause, NULL);
}

/* ---- a device with streams and events ------------------------------- */

struct bench {
    struct zo_device *devices[2];
    struct zo_stream *streams[3]; /* 0 and 1 of device 0, 2 of device 1 */
    struct zo_event *events[3];   /* likewise */
};

static bool bench_open(struct bench *bench, uint32_t delay_us_max)
{
    const struct zo_device_options options = {.delay_seed = 7,
                                              .delay_us_max = delay_us_max};
    bool is_ok = true;

    *bench = (struct bench){0};
    for (int i = 0; i < 2; i++) {
        is_ok &= host->open(i, &options, &bench->devices[i]) == ZO_OK;
    }
    for (int i = 0; i < 3 && is_ok; i++) {
        struct zo_device *device = bench->devices[i / 2];

        is_ok &= host->stream_open(device, "test", &bench->streams[i]) == ZO_OK;
        is_ok &= host->event_open(device, &bench->events[i]) == ZO_OK;
    }
    return is_ok;
}

static void bench_close(struct bench *bench)
{
    for (int i = 0; i < 3; i++) {
        host->event_close(bench->events[i]);
        host->stream_close(bench->streams[i]);
    }
    for (int i = 0; i < 2; i++) {
        host->close(bench->devices[i]);
    }
}

/* ---- devices and memory --------------------------------------------- */

static void test_open_range(void)
{
    struct zo_device *untouched = (struct zo_device *)&untouched;
    struct zo_device *device = untouched;
    int count = 0;

    TAP_CHECK_INT(host->count(&count), ZO_OK);
    TAP_CHECK_INT(count, 64);
    TAP_CHECK_INT(host->open(-1, NULL, &device), ZO_E_ARG);
    TAP_CHECK_INT(host->open(64, NULL, &device), ZO_E_ARG);
    TAP_CHECK(strstr(zo_err_last()->text, "host:64") != NULL);
    TAP_CHECK(device == untouched);
    TAP_CHECK_INT(host->open(63, NULL, &device), ZO_OK);
    TAP_CHECK(strcmp(host->info(device)->name, "host:63") == 0);
    TAP_CHECK(strstr(host->info(device)->description, "core") != NULL);
    TAP_CHECK(host->info(device)->align_bytes >= 256);
    TAP_CHECK(host->info(device)->memory_bytes > 0);
    TAP_CHECK(host->info(device)->peer_mask == UINT64_MAX >> 1);
    host->close(device);
    host->close(NULL);
}

static void test_memory_counted(void)
{
    struct zo_device *device = NULL;
    void *a = NULL, *b = NULL, *untouched = &untouched;
    uint64_t free_bytes = 0;

    TAP_CHECK_INT(host->open(0, NULL, &device), ZO_OK);
    TAP_CHECK_INT(host->mem_free_bytes(device, &free_bytes), ZO_OK);
    TAP_CHECK(free_bytes > 0);
    TAP_CHECK_INT(host->mem_alloc(device, ZO_MEM_DEVICE, "a", 1000, &a), ZO_OK);
    TAP_CHECK_INT(host->mem_alloc(device, ZO_MEM_PINNED, "b", 77, &b), ZO_OK);
    TAP_CHECK_INT((uintptr_t)a % host->info(device)->align_bytes, 0);
    TAP_CHECK_INT((uintptr_t)b % host->info(device)->align_bytes, 0);
    TAP_CHECK_INT(host->mem_allocated(device, ZO_MEM_DEVICE), 1000);
    TAP_CHECK_INT(host->mem_allocated(device, ZO_MEM_PINNED), 77);
    zo_memory_fail_at(1);
    TAP_CHECK_INT(
        host->mem_alloc(device, ZO_MEM_DEVICE, "weights", 8, &untouched),
        ZO_E_DEVMEM);
    zo_memory_fail_at(1);
    TAP_CHECK_INT(
        host->mem_alloc(device, ZO_MEM_PINNED, "weights", 8, &untouched),
        ZO_E_NOMEM);
    zo_memory_fail_at(0);
    TAP_CHECK(strstr(zo_err_last()->text, "host:0") != NULL);
    TAP_CHECK(strstr(zo_err_last()->text, "weights") != NULL);
    TAP_CHECK(untouched == (void *)&untouched);
    host->mem_free(device, ZO_MEM_DEVICE, a, 1000);
    host->mem_free(device, ZO_MEM_PINNED, b, 77);
    host->mem_free(device, ZO_MEM_PINNED, NULL, 0);
    TAP_CHECK_INT(host->mem_allocated(device, ZO_MEM_DEVICE), 0);
    TAP_CHECK_INT(host->mem_allocated(device, ZO_MEM_PINNED), 0);
    host->close(device);
}

static void test_failed_allocations(void)
{
    struct bench bench = {0};
    uint64_t nth = 0;

    for (bool is_open = false; !is_open; nth++) {
        TAP_CHECK(nth < 64);
        zo_memory_fail_at(nth + 1);
        is_open = bench_open(&bench, 0);
        zo_memory_fail_at(0);
        bench_close(&bench);
    }
    TAP_CHECK(nth > 8);
}

/* ---- streams -------------------------------------------------------- */

static void test_in_order(void)
{
    struct bench bench;
    unsigned char from[64], to[64];

    TAP_CHECK(bench_open(&bench, 0));
    memset(from, 1, sizeof(from));
    TAP_CHECK_INT(host->fill(bench.streams[0], from, 0x5a, 64), ZO_OK);
    TAP_CHECK_INT(host->copy(bench.streams[0], to, from, 63), ZO_OK);
    TAP_CHECK_INT(host->fill(bench.streams[0], to + 63, 0xa5, 1), ZO_OK);
    TAP_CHECK_INT(host->copy(bench.streams[0], NULL, NULL, 0), ZO_OK);
    TAP_CHECK_INT(host->fill(bench.streams[0], NULL, 0, 0), ZO_OK);
    TAP_CHECK_INT(host->stream_sync(bench.streams[0]), ZO_OK);
    for (int i = 0; i < 63; i++) {
        TAP_CHECK_INT(to[i], 0x5a);
    }
    TAP_CHECK_INT(to[63], 0xa5);
    bench_close(&bench);
}

static void test_queue_full(void)
{
    struct gate gate = GATE;
    atomic_int counter = 0;
    struct bench bench;

    TAP_CHECK(bench_open(&bench, 0));
    for (int i = 0; i < 5000; i++) {
        TAP_CHECK_INT(submit_count(bench.streams[0], &counter), ZO_OK);
    }
    TAP_CHECK_INT(host->stream_sync(bench.streams[0]), ZO_OK);
    TAP_CHECK_INT(atomic_load(&counter), 5000);

    /* Closing waits for what is queued. */
    TAP_CHECK_INT(submit_gate(bench.streams[0], &gate), ZO_OK);
    for (int i = 0; i < 100; i++) {
        TAP_CHECK_INT(submit_count(bench.streams[0], &counter), ZO_OK);
    }
    gate_open(&gate);
    bench_close(&bench);
    TAP_CHECK_INT(atomic_load(&counter), 5100);
}

static enum zo_status get_width(struct zo_pool *pool, const void *args)
{
    int *width;

    memcpy(&width, args, sizeof(width));
    *width = zo_pool_width(pool);
    return ZO_OK;
}

static void test_commands_get_pool(void)
{
    struct zo_device_options options = {0};
    struct zo_device *device = NULL;
    struct zo_stream *stream = NULL;
    struct zo_pool *pool = NULL;
    int width = 0, *width_at = &width;

    TAP_CHECK_INT(zo_pool_open(2, &pool), ZO_OK);
    for (int has_pool = 0; has_pool < 2; has_pool++) {
        options.pool = has_pool ? pool : NULL;
        TAP_CHECK_INT(host->open(0, &options, &device), ZO_OK);
        TAP_CHECK_INT(host->stream_open(device, "s", &stream), ZO_OK);
        TAP_CHECK_INT(zo_stream_host_submit(stream, get_width, &width_at,
                                            sizeof(width_at)),
                      ZO_OK);
        TAP_CHECK_INT(host->stream_sync(stream), ZO_OK);
        TAP_CHECK_INT(width, has_pool ? 3 : 1);
        host->stream_close(stream);
        host->close(device);
    }
    zo_pool_close(pool);
}

static void test_large_arguments(void)
{
    const char args[ZO_HOST_ARGS_MAX + 1] = {0};
    struct bench bench;

    TAP_CHECK(bench_open(&bench, 0));
    TAP_CHECK_INT(
        zo_stream_host_submit(bench.streams[0], fail, args, sizeof(args)),
        ZO_E_ARG);
    TAP_CHECK_INT(host->stream_sync(bench.streams[0]), ZO_OK);
    host->stream_close(NULL);
    bench_close(&bench);
}

static void test_allocates_nothing(void)
{
    struct bench bench;
    char a[8] = {0}, b[8];
    bool is_done = false;

    TAP_CHECK(bench_open(&bench, 0));
    zo_memory_freeze(true);
    for (int i = 0; i < 300; i++) {
        TAP_CHECK_INT(host->copy(bench.streams[0], b, a, 8), ZO_OK);
        TAP_CHECK_INT(host->event_record(bench.streams[0], bench.events[0]),
                      ZO_OK);
        TAP_CHECK_INT(host->event_wait(bench.streams[2], bench.events[0]),
                      ZO_OK);
        TAP_CHECK_INT(host->event_query(bench.events[0], &is_done), ZO_OK);
    }
    TAP_CHECK_INT(host->event_sync(bench.events[0]), ZO_OK);
    TAP_CHECK_INT(host->stream_sync(bench.streams[2]), ZO_OK);
    zo_memory_freeze(false);
    bench_close(&bench);
}

/* ---- events --------------------------------------------------------- */

static void test_never_recorded(void)
{
    struct gate gate = GATE;
    struct bench bench;
    bool is_done = false;

    TAP_CHECK(bench_open(&bench, 0));
    TAP_CHECK_INT(submit_gate(bench.streams[0], &gate), ZO_OK);
    TAP_CHECK_INT(host->event_wait(bench.streams[1], bench.events[0]), ZO_OK);
    TAP_CHECK_INT(host->stream_sync(bench.streams[1]), ZO_OK);
    TAP_CHECK_INT(host->event_query(bench.events[0], &is_done), ZO_OK);
    TAP_CHECK(is_done);
    TAP_CHECK_INT(host->event_sync(bench.events[0]), ZO_OK);
    gate_open(&gate);
    bench_close(&bench);
    host->event_close(NULL);
}

/* A stream of its own device and one of a sibling. */
static void test_waits_for_record(void)
{
    struct gate gate = GATE;
    struct bench bench;
    atomic_int counter = 0;
    bool is_done = true;

    TAP_CHECK(bench_open(&bench, 0));
    TAP_CHECK_INT(submit_gate(bench.streams[0], &gate), ZO_OK);
    TAP_CHECK_INT(host->event_record(bench.streams[0], bench.events[0]), ZO_OK);
    for (int i = 1; i < 3; i++) {
        TAP_CHECK_INT(host->event_wait(bench.streams[i], bench.events[0]),
                      ZO_OK);
        TAP_CHECK_INT(submit_count(bench.streams[i], &counter), ZO_OK);
    }
    pause_us(20000);
    TAP_CHECK_INT(host->event_query(bench.events[0], &is_done), ZO_OK);
    TAP_CHECK(!is_done);
    TAP_CHECK_INT(atomic_load(&counter), 0);
    gate_open(&gate);
    TAP_CHECK_INT(host->event_sync(bench.events[0]), ZO_OK);
    TAP_CHECK_INT(host->event_query(bench.events[0], &is_done), ZO_OK);
    TAP_CHECK(is_done);
    for (int i = 1; i < 3; i++) {
        TAP_CHECK_INT(host->stream_sync(bench.streams[i]), ZO_OK);
    }
    TAP_CHECK_INT(atomic_load(&counter), 2);
    bench_close(&bench);
}

static void test_wait_captures_latest(void)
{
    struct gate gate = GATE;
    struct bench bench;
    bool is_done = true;

    TAP_CHECK(bench_open(&bench, 0));
    TAP_CHECK_INT(host->event_record(bench.streams[0], bench.events[0]), ZO_OK);
    TAP_CHECK_INT(host->event_wait(bench.streams[1], bench.events[0]), ZO_OK);
    TAP_CHECK_INT(submit_gate(bench.streams[0], &gate), ZO_OK);
    TAP_CHECK_INT(host->event_record(bench.streams[0], bench.events[0]), ZO_OK);
    /* The wait came before the second record. */
    TAP_CHECK_INT(host->stream_sync(bench.streams[1]), ZO_OK);
    TAP_CHECK_INT(host->event_query(bench.events[0], &is_done), ZO_OK);
    TAP_CHECK(!is_done);
    gate_open(&gate);
    bench_close(&bench);
}

static void test_record_on_another_stream(void)
{
    struct gate gate = GATE;
    struct bench bench;
    atomic_int counter = 0;
    bool is_done = false;

    TAP_CHECK(bench_open(&bench, 0));
    TAP_CHECK_INT(submit_gate(bench.streams[0], &gate), ZO_OK);
    TAP_CHECK_INT(host->event_record(bench.streams[0], bench.events[0]), ZO_OK);
    TAP_CHECK_INT(host->event_wait(bench.streams[2], bench.events[0]), ZO_OK);
    TAP_CHECK_INT(submit_count(bench.streams[2], &counter), ZO_OK);
    TAP_CHECK_INT(host->event_record(bench.streams[1], bench.events[0]), ZO_OK);
    TAP_CHECK_INT(host->event_sync(bench.events[0]), ZO_OK);
    TAP_CHECK_INT(host->event_query(bench.events[0], &is_done), ZO_OK);
    TAP_CHECK(is_done);
    pause_us(20000);
    TAP_CHECK_INT(atomic_load(&counter), 0); /* still behind the first */
    gate_open(&gate);
    TAP_CHECK_INT(host->stream_sync(bench.streams[2]), ZO_OK);
    TAP_CHECK_INT(atomic_load(&counter), 1);

    TAP_CHECK_INT(host->event_record(bench.streams[2], bench.events[0]),
                  ZO_E_ARG);
    TAP_CHECK(strstr(zo_err_last()->text, "host:1") != NULL);
    bench_close(&bench);
}

static void test_event_outlives_stream(void)
{
    struct zo_stream *stream = NULL;
    struct bench bench;
    bool is_done = false;

    TAP_CHECK(bench_open(&bench, 0));
    for (int again = 0; again < 3; again++) { /* records are used again */
        TAP_CHECK_INT(host->stream_open(bench.devices[0], "brief", &stream),
                      ZO_OK);
        TAP_CHECK_INT(host->event_wait(stream, bench.events[0]), ZO_OK);
        TAP_CHECK_INT(host->event_record(stream, bench.events[0]), ZO_OK);
        host->stream_close(stream);
        TAP_CHECK_INT(host->event_query(bench.events[0], &is_done), ZO_OK);
        TAP_CHECK(is_done);
        TAP_CHECK_INT(host->event_wait(bench.streams[1], bench.events[0]),
                      ZO_OK);
        TAP_CHECK_INT(host->stream_sync(bench.streams[1]), ZO_OK);
    }
    bench_close(&bench);
}

/* ---- failures ------------------------------------------------------- */

static void test_failure_reported_once(void)
{
    struct bench bench;
    atomic_int counter = 0;

    TAP_CHECK(bench_open(&bench, 0));
    TAP_CHECK_INT(submit_count(bench.streams[0], &counter), ZO_OK);
    TAP_CHECK_INT(submit_fail(bench.streams[0], 3), ZO_OK);
    TAP_CHECK_INT(submit_count(bench.streams[0], &counter), ZO_OK);
    TAP_CHECK_INT(submit_fail(bench.streams[0], 4), ZO_OK);
    TAP_CHECK_INT(host->stream_sync(bench.streams[1]), ZO_OK);
    TAP_CHECK_INT(host->stream_sync(bench.streams[0]), ZO_E_NUMERIC);
    TAP_CHECK(strcmp(zo_err_last()->text, "failure 3") == 0);
    TAP_CHECK_INT(zo_err_last()->native, 3);
    TAP_CHECK_INT(host->stream_sync(bench.streams[0]), ZO_OK);
    TAP_CHECK_INT(atomic_load(&counter), 1); /* what was behind is dropped */

    TAP_CHECK_INT(submit_count(bench.streams[0], &counter), ZO_OK);
    TAP_CHECK_INT(host->stream_sync(bench.streams[0]), ZO_OK);
    TAP_CHECK_INT(atomic_load(&counter), 2);
    TAP_CHECK_INT(submit_fail(bench.streams[0], 5), ZO_OK);
    TAP_CHECK_INT(host->stream_sync(bench.streams[0]), ZO_E_NUMERIC);
    TAP_CHECK(strcmp(zo_err_last()->text, "failure 5") == 0);
    TAP_CHECK_INT(submit_fail(bench.streams[0], 6), ZO_OK);
    bench_close(&bench); /* nobody asks */
}

static void test_failure_by_event(void)
{
    struct bench bench;
    struct zo_event *before = NULL;
    atomic_int counter = 0;
    bool is_done = false;

    TAP_CHECK(bench_open(&bench, 0));
    TAP_CHECK_INT(host->event_open(bench.devices[0], &before), ZO_OK);
    TAP_CHECK_INT(host->event_record(bench.streams[0], before), ZO_OK);
    TAP_CHECK_INT(submit_fail(bench.streams[0], 1), ZO_OK);
    TAP_CHECK_INT(host->event_record(bench.streams[0], bench.events[0]), ZO_OK);
    TAP_CHECK_INT(submit_count(bench.streams[0], &counter), ZO_OK);
    TAP_CHECK_INT(host->event_sync(before), ZO_OK);
    TAP_CHECK_INT(host->event_sync(bench.events[0]), ZO_E_NUMERIC);
    TAP_CHECK_INT(host->event_query(bench.events[0], &is_done), ZO_OK);
    TAP_CHECK(is_done);
    TAP_CHECK_INT(host->stream_sync(bench.streams[0]), ZO_OK);
    TAP_CHECK_INT(atomic_load(&counter), 0);

    host->event_close(before);
    bench_close(&bench);
}

/* ---- times ---------------------------------------------------------- */

/* A timed event takes the time when it is passed, not when it is recorded. */
static void test_times(void)
{
    struct gate gate = GATE, again = GATE;
    struct bench bench;
    struct zo_event *timed[2] = {NULL, NULL};
    int64_t first_ns = 0, second_ns = 0, opened_ns;

    TAP_CHECK(bench_open(&bench, 0));
    for (int i = 0; i < 2; i++) {
        TAP_CHECK_INT(host->event_open_timed(bench.devices[0], &timed[i]),
                      ZO_OK);
        TAP_CHECK_INT(host->event_time_ns(timed[i], &first_ns), ZO_E_ARG);
    }
    TAP_CHECK_INT(host->event_record(bench.streams[0], timed[0]), ZO_OK);
    TAP_CHECK_INT(host->event_sync(timed[0]), ZO_OK);
    TAP_CHECK_INT(host->event_time_ns(timed[0], &first_ns), ZO_OK);
    TAP_CHECK_INT(submit_gate(bench.streams[0], &gate), ZO_OK);
    TAP_CHECK_INT(host->event_record(bench.streams[0], timed[1]), ZO_OK);
    TAP_CHECK_INT(host->event_time_ns(timed[1], &second_ns), ZO_E_ARG);
    pause_us(3000);
    opened_ns = zo_clock_ns();
    gate_open(&gate);
    TAP_CHECK_INT(host->event_sync(timed[1]), ZO_OK);
    TAP_CHECK_INT(host->event_time_ns(timed[1], &second_ns), ZO_OK);
    TAP_CHECK(first_ns < opened_ns && second_ns >= opened_ns);
    TAP_CHECK(second_ns <= zo_clock_ns());
    /* Recorded anew, it has no time until it is passed again. */
    TAP_CHECK_INT(submit_gate(bench.streams[0], &again), ZO_OK);
    TAP_CHECK_INT(host->event_record(bench.streams[0], timed[0]), ZO_OK);
    TAP_CHECK_INT(host->event_time_ns(timed[0], &first_ns), ZO_E_ARG);
    gate_open(&again);
    TAP_CHECK_INT(host->event_sync(timed[0]), ZO_OK);
    TAP_CHECK_INT(host->event_time_ns(timed[0], &first_ns), ZO_OK);
    TAP_CHECK(first_ns >= second_ns);
    /* Others take none. */
    TAP_CHECK_INT(host->event_record(bench.streams[0], bench.events[0]), ZO_OK);
    TAP_CHECK_INT(host->event_sync(bench.events[0]), ZO_OK);
    TAP_CHECK_INT(host->event_time_ns(bench.events[0], &first_ns), ZO_E_ARG);
    host->event_close(timed[0]);
    host->event_close(timed[1]);
    bench_close(&bench);
}

/* What is behind a failure never happened. */
static void test_no_time_behind_failure(void)
{
    struct bench bench;
    struct zo_event *timed = NULL;
    int64_t ns = 0;

    TAP_CHECK(bench_open(&bench, 0));
    TAP_CHECK_INT(host->event_open_timed(bench.devices[0], &timed), ZO_OK);
    TAP_CHECK_INT(submit_fail(bench.streams[0], 1), ZO_OK);
    TAP_CHECK_INT(host->event_record(bench.streams[0], timed), ZO_OK);
    TAP_CHECK_INT(host->event_sync(timed), ZO_E_NUMERIC);
    TAP_CHECK_INT(host->event_time_ns(timed, &ns), ZO_E_ARG);
    TAP_CHECK_INT(ns, 0);
    host->event_close(timed);
    bench_close(&bench);
}

/* A failure may be reported while commands behind it still wait for the
 * stream to wake up: they are dropped too.  Many rounds, since it is a matter
 * of luck whether it sleeps long enough. */
static void test_failure_by_query(void)
{
    struct bench bench;
    atomic_int counter = 0;

    TAP_CHECK(bench_open(&bench, 0));
    for (int round = 0; round < 50; round++) {
        bool is_done = false;

        TAP_CHECK_INT(submit_fail(bench.streams[0], 2), ZO_OK);
        TAP_CHECK_INT(host->event_record(bench.streams[0], bench.events[0]),
                      ZO_OK);
        pause_us(500);
        for (int i = 0; i < 20; i++) {
            TAP_CHECK_INT(submit_count(bench.streams[0], &counter), ZO_OK);
        }
        while (host->event_query(bench.events[0], &is_done) == ZO_OK) {
            TAP_CHECK(!is_done);
        }
        TAP_CHECK_INT(zo_err_last()->native, 2);
        TAP_CHECK_INT(host->stream_sync(bench.streams[0]), ZO_OK);
        TAP_CHECK_INT(atomic_load(&counter), 0);
    }
    bench_close(&bench);
}

static void test_failure_spreads(void)
{
    struct bench bench;
    atomic_int counter = 0;

    TAP_CHECK(bench_open(&bench, 0));
    TAP_CHECK_INT(submit_fail(bench.streams[0], 9), ZO_OK);
    TAP_CHECK_INT(host->event_record(bench.streams[0], bench.events[0]), ZO_OK);
    TAP_CHECK_INT(host->event_wait(bench.streams[2], bench.events[0]), ZO_OK);
    TAP_CHECK_INT(submit_count(bench.streams[2], &counter), ZO_OK);
    TAP_CHECK_INT(host->stream_sync(bench.streams[2]), ZO_E_NUMERIC);
    TAP_CHECK(strcmp(zo_err_last()->text, "failure 9") == 0);
    TAP_CHECK_INT(atomic_load(&counter), 0);
    TAP_CHECK_INT(host->stream_sync(bench.streams[2]), ZO_OK);
    TAP_CHECK_INT(host->stream_sync(bench.streams[0]), ZO_E_NUMERIC);

    /* The event still stands for work that was lost. */
    TAP_CHECK_INT(host->event_wait(bench.streams[1], bench.events[0]), ZO_OK);
    TAP_CHECK_INT(host->stream_sync(bench.streams[1]), ZO_E_NUMERIC);
    TAP_CHECK_INT(host->event_record(bench.streams[0], bench.events[0]), ZO_OK);
    TAP_CHECK_INT(host->event_wait(bench.streams[1], bench.events[0]), ZO_OK);
    TAP_CHECK_INT(host->stream_sync(bench.streams[1]), ZO_OK);
    bench_close(&bench);
}

/* ---- all of it, with random delays ---------------------------------- */

enum { BALL_INTS = 512, ROUNDS = 200 };

static enum zo_status add_one(struct zo_pool *pool, const void *args)
{
    int *ball;

    (void)pool;
    memcpy(&ball, args, sizeof(ball));
    for (int i = 0; i < BALL_INTS; i++) {
        ball[i]++;
    }
    return ZO_OK;
}

/* A buffer goes round three streams, each adding one; without the events
 * the sums come out wrong and a thread sanitizer sees the race. */
static void test_relay(void)
{
    static int balls[3][BALL_INTS];
    struct bench bench;

    memset(balls, 0, sizeof(balls));
    TAP_CHECK(bench_open(&bench, 200));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 3; i++) {
            const int from = (i + 2) % 3;
            int *ball = balls[i];

            TAP_CHECK_INT(
                host->event_wait(bench.streams[i], bench.events[from]), ZO_OK);
            TAP_CHECK_INT(host->copy(bench.streams[i], ball, balls[from],
                                     sizeof(balls[0])),
                          ZO_OK);
            TAP_CHECK_INT(zo_stream_host_submit(bench.streams[i], add_one,
                                                &ball, sizeof(ball)),
                          ZO_OK);
            TAP_CHECK_INT(host->event_record(bench.streams[i], bench.events[i]),
                          ZO_OK);
        }
    }
    TAP_CHECK_INT(host->event_sync(bench.events[2]), ZO_OK);
    for (int i = 0; i < BALL_INTS; i++) {
        TAP_CHECK_INT(balls[2][i], 3 * ROUNDS);
    }
    bench_close(&bench);
}

/* Two streams without events: a delay lets them drift apart. */
static void test_delays_happen(void)
{
    struct bench bench;
    struct timespec from, to;
    double seconds;
    atomic_int counter = 0;

    TAP_CHECK(bench_open(&bench, 2000));
    (void)clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < 50; i++) {
        TAP_CHECK_INT(submit_count(bench.streams[0], &counter), ZO_OK);
    }
    TAP_CHECK_INT(host->stream_sync(bench.streams[0]), ZO_OK);
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    seconds = (double)(to.tv_sec - from.tv_sec) +
              1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    TAP_CHECK(seconds > 0.02); /* 50 ms on average */
    bench_close(&bench);
}

static void test_cuda_stub(void)
{
    struct zo_device *device = NULL;
    int count = -1;

    TAP_CHECK_INT(zo_device_cuda.count(&count), ZO_OK);
    if (count > 0) {
        tap_skip("this build has CUDA devices");
        return;
    }
    TAP_CHECK_INT(count, 0);
    TAP_CHECK(zo_device_cuda.open(0, NULL, &device) != ZO_OK);
    TAP_CHECK(device == NULL);
    zo_device_cuda.close(NULL);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"64 virtual devices can be opened, no other", test_open_range},
        {"memory is aligned and counted by kind", test_memory_counted},
        {"each failed allocation leaves nothing behind",
         test_failed_allocations},
        {"a stream works in order", test_in_order},
        {"a full queue blocks, closing waits", test_queue_full},
        {"commands get the device's pool, or one of no workers",
         test_commands_get_pool},
        {"arguments that do not fit are refused", test_large_arguments},
        {"queueing allocates nothing", test_allocates_nothing},
        {"an event never recorded is no wait", test_never_recorded},
        {"a stream waits for a record, also of another device",
         test_waits_for_record},
        {"a wait is for the latest record when it was queued",
         test_wait_captures_latest},
        {"a record on another stream does not pass the first",
         test_record_on_another_stream},
        {"an event may outlive its stream", test_event_outlives_stream},
        {"a failure is reported once and drops what is behind",
         test_failure_reported_once},
        {"an event behind a failure reports it", test_failure_by_event},
        {"what was queued before a failure was reported is dropped",
         test_failure_by_query},
        {"who waits for lost work fails too", test_failure_spreads},
        {"events order a relay over three streams with delays", test_relay},
        {"a timed event has the time when it was passed", test_times},
        {"an event behind a failure has no time", test_no_time_behind_failure},
        {"delays happen where asked for", test_delays_happen},
        {"without CUDA no device is found and none opens", test_cuda_stub},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
