/*
 * The cuda device: memory of both kinds, copies, streams and events.
 *
 * Method: data go host -> device -> device -> host over two streams that only
 * events order, so that a missing wait shows as other data.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/pool.h"
#include "src/base/clock.h"
#include "src/device/device.h"
#include "src/device/stream_cuda.h"
#include "src/device/targets.h"
#include "tests/tap.h"

static const struct zo_device_ops *const cuda = &zo_device_cuda;

#define SIZE_BYTES ((size_t)5 << 20)

/* What a case needs; all of it is closed by rig_close(). */
struct rig {
    struct zo_pool *pool;
    struct zo_device *device;
    struct zo_stream *first, *second;
    struct zo_event *event;
    unsigned char *pinned; /* SIZE_BYTES */
    void *a, *b;           /* SIZE_BYTES on the device each */
};

static void rig_close(struct rig *rig)
{
    if (rig->device != NULL) {
        cuda->mem_free(rig->device, ZO_MEM_PINNED, rig->pinned, SIZE_BYTES);
        cuda->mem_free(rig->device, ZO_MEM_DEVICE, rig->a, SIZE_BYTES);
        cuda->mem_free(rig->device, ZO_MEM_DEVICE, rig->b, SIZE_BYTES);
        cuda->event_close(rig->event);
        cuda->stream_close(rig->first);
        cuda->stream_close(rig->second);
    }
    cuda->close(rig->device);
    zo_pool_close(rig->pool);
}

static enum zo_status rig_fill(struct rig *rig)
{
    struct zo_device_options options = {0};
    void *pinned = NULL;

    ZO_TRY(zo_pool_open(zo_cpu_count() - 1, &rig->pool));
    options.pool = rig->pool;
    ZO_TRY(cuda->open(0, &options, &rig->device));
    ZO_TRY(cuda->mem_alloc(rig->device, ZO_MEM_PINNED, "staging", SIZE_BYTES,
                           &pinned));
    rig->pinned = pinned;
    ZO_TRY(
        cuda->mem_alloc(rig->device, ZO_MEM_DEVICE, "a", SIZE_BYTES, &rig->a));
    ZO_TRY(
        cuda->mem_alloc(rig->device, ZO_MEM_DEVICE, "b", SIZE_BYTES, &rig->b));
    ZO_TRY(cuda->stream_open(rig->device, "first", &rig->first));
    ZO_TRY(cuda->stream_open(rig->device, "second", &rig->second));
    return cuda->event_open(rig->device, &rig->event);
}

/* False, with the case skipped or failed, when there is no device. */
static bool rig_open(struct rig *rig)
{
    int count = 0;

    memset(rig, 0, sizeof(*rig));
    if (getenv("ZERO_OFFLOAD_GPU") == NULL) {
        tap_skip("ZERO_OFFLOAD_GPU is not set");
        return false;
    }
    if (cuda->count(&count) != ZO_OK || count == 0) {
        tap_skip("no CUDA device");
        return false;
    }
    if (rig_fill(rig) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
        rig_close(rig);
        return false;
    }
    return true;
}

static void check_round_trip(struct rig *rig)
{
    for (size_t i = 0; i < SIZE_BYTES; i++) {
        rig->pinned[i] = (unsigned char)(i * 7 + i / 251);
    }
    TAP_CHECK_INT(cuda->fill(rig->first, rig->a, 0x55, SIZE_BYTES), ZO_OK);
    TAP_CHECK_INT(cuda->copy(rig->first, rig->a, rig->pinned, SIZE_BYTES - 3),
                  ZO_OK);
    TAP_CHECK_INT(cuda->copy(rig->first, rig->a, rig->pinned, 0), ZO_OK);
    TAP_CHECK_INT(cuda->event_record(rig->first, rig->event), ZO_OK);
    TAP_CHECK_INT(cuda->event_wait(rig->second, rig->event), ZO_OK);
    TAP_CHECK_INT(cuda->copy(rig->second, rig->b, rig->a, SIZE_BYTES), ZO_OK);
    TAP_CHECK_INT(cuda->stream_sync(rig->second), ZO_OK);
    memset(rig->pinned, 0, SIZE_BYTES);
    TAP_CHECK_INT(cuda->copy(rig->second, rig->pinned, rig->b, SIZE_BYTES),
                  ZO_OK);
    TAP_CHECK_INT(cuda->stream_sync(rig->second), ZO_OK);
    for (size_t i = 0; i < SIZE_BYTES; i++) {
        const unsigned char want =
            i < SIZE_BYTES - 3 ? (unsigned char)(i * 7 + i / 251) : 0x55;

        TAP_CHECK(rig->pinned[i] == want);
    }
}

static void test_round_trip(void)
{
    struct rig rig;

    if (rig_open(&rig)) {
        check_round_trip(&rig);
        rig_close(&rig);
    }
}

static void check_events(struct rig *rig)
{
    struct zo_event *never = NULL;
    bool done = false;

    TAP_CHECK_INT(cuda->event_open(rig->device, &never), ZO_OK);
    TAP_CHECK_INT(cuda->event_wait(rig->first, never), ZO_OK);
    TAP_CHECK_INT(cuda->event_query(never, &done), ZO_OK);
    cuda->event_close(never);
    TAP_CHECK(done);
    TAP_CHECK_INT(cuda->fill(rig->first, rig->a, 1, SIZE_BYTES), ZO_OK);
    TAP_CHECK_INT(cuda->event_record(rig->first, rig->event), ZO_OK);
    TAP_CHECK_INT(cuda->event_sync(rig->event), ZO_OK);
    done = false;
    TAP_CHECK_INT(cuda->event_query(rig->event, &done), ZO_OK);
    TAP_CHECK(done);
}

static void test_events(void)
{
    struct rig rig;

    if (rig_open(&rig)) {
        check_events(&rig);
        rig_close(&rig);
    }
}

/*
 * Times are between those of the host's clock, also of an event that was
 * passed long before it is asked for.
 */
static void check_times(struct rig *rig)
{
    const struct timespec second = {1, 200000000};
    const int64_t slack_ns = 200000;
    struct zo_event *early = NULL, *late = NULL;
    int64_t marks[4] = {0}, early_ns = 0, late_ns = 0;

    TAP_CHECK_INT(cuda->event_open_timed(rig->device, &early), ZO_OK);
    TAP_CHECK_INT(cuda->event_open_timed(rig->device, &late), ZO_OK);
    TAP_CHECK_INT(cuda->event_time_ns(early, &early_ns), ZO_E_DEVICE);
    marks[0] = zo_clock_ns();
    TAP_CHECK_INT(cuda->event_record(rig->first, early), ZO_OK);
    TAP_CHECK_INT(cuda->event_sync(early), ZO_OK);
    marks[1] = zo_clock_ns();
    (void)nanosleep(&second, NULL);
    marks[2] = zo_clock_ns();
    TAP_CHECK_INT(cuda->event_record(rig->first, late), ZO_OK);
    TAP_CHECK_INT(cuda->event_sync(late), ZO_OK);
    marks[3] = zo_clock_ns();
    TAP_CHECK_INT(cuda->event_time_ns(late, &late_ns), ZO_OK);
    TAP_CHECK_INT(cuda->event_time_ns(early, &early_ns), ZO_OK);
    TAP_CHECK(early_ns > marks[0] - slack_ns && early_ns < marks[1] + slack_ns);
    TAP_CHECK(late_ns > marks[2] - slack_ns && late_ns < marks[3] + slack_ns);
    cuda->event_close(early);
    cuda->event_close(late);
    TAP_CHECK_INT(cuda->stream_sync(rig->first), ZO_OK); /* no error is kept */
}

static void test_times(void)
{
    struct rig rig;

    if (rig_open(&rig)) {
        check_times(&rig);
        rig_close(&rig);
    }
}

/* Copies over the bus take their bytes at the pace, those inside a device do
 * not, and two streams run side by side. */
static void check_pace(struct rig *rig)
{
    const int64_t paced_ns = 50000000;
    const struct zo_device_options options = {
        .pool = rig->pool, .copy_bytes_per_second = SIZE_BYTES * 20, /* 50 ms */
    };
    struct zo_device *device = NULL;
    struct zo_stream *streams[2] = {NULL, NULL};
    int64_t marks[4];

    memset(rig->pinned, 3, SIZE_BYTES);
    TAP_CHECK_INT(cuda->open(0, &options, &device), ZO_OK);
    for (int i = 0; i < 2; i++) {
        TAP_CHECK_INT(cuda->stream_open(device, "paced", &streams[i]), ZO_OK);
    }
    marks[0] = zo_clock_ns();
    TAP_CHECK_INT(cuda->copy(streams[0], rig->a, rig->pinned, SIZE_BYTES),
                  ZO_OK);
    TAP_CHECK_INT(cuda->copy(streams[0], rig->b, rig->a, SIZE_BYTES), ZO_OK);
    TAP_CHECK_INT(cuda->stream_sync(streams[0]), ZO_OK);
    marks[1] = zo_clock_ns();
    TAP_CHECK_INT(cuda->copy(streams[0], rig->b, rig->a, SIZE_BYTES), ZO_OK);
    TAP_CHECK_INT(cuda->stream_sync(streams[0]), ZO_OK);
    marks[2] = zo_clock_ns();
    TAP_CHECK_INT(cuda->copy(streams[0], rig->pinned, rig->b, SIZE_BYTES),
                  ZO_OK);
    TAP_CHECK_INT(cuda->copy(streams[1], rig->a, rig->pinned, SIZE_BYTES),
                  ZO_OK);
    for (int i = 0; i < 2; i++) {
        TAP_CHECK_INT(cuda->stream_sync(streams[i]), ZO_OK);
    }
    marks[3] = zo_clock_ns();
    for (int i = 0; i < 2; i++) {
        cuda->stream_close(streams[i]);
    }
    cuda->close(device);
    (void)printf("# paced 50 ms: up %.3f, inside %.3f, both ways %.3f ms\n",
                 (double)(marks[1] - marks[0]) * 1e-6,
                 (double)(marks[2] - marks[1]) * 1e-6,
                 (double)(marks[3] - marks[2]) * 1e-6);
    TAP_CHECK(marks[1] - marks[0] >= paced_ns);
    TAP_CHECK(marks[1] - marks[0] < paced_ns + paced_ns / 5);
    TAP_CHECK(marks[2] - marks[1] < paced_ns / 5);
    TAP_CHECK(marks[3] - marks[2] >= paced_ns);
    TAP_CHECK(marks[3] - marks[2] < paced_ns + paced_ns / 5);
}

static void test_pace(void)
{
    struct rig rig;

    if (rig_open(&rig)) {
        check_pace(&rig);
        rig_close(&rig);
    }
}

static void check_facts(struct rig *rig)
{
    const struct zo_device_info *info = cuda->info(rig->device);
    struct zo_device_platform platform = {0};

    cuda->platform(&platform);
    TAP_CHECK(platform.driver_version >= 12000);
    TAP_CHECK(platform.runtime_version >= 12000);
    TAP_CHECK(platform.refusal[0] == '\0');
    TAP_CHECK(info->capability >= 50);
    TAP_CHECK(zo_target_match(platform.targets, info->capability) !=
              ZO_TARGET_NONE);
    TAP_CHECK(strchr(info->bus_id, ':') != NULL);
    TAP_CHECK((info->peer_mask & 1) == 0); /* no peer of itself */
    TAP_CHECK(info->context_bytes < (uint64_t)4 << 30);
}

/*
 * The context, measured: the first open of this process finds it, and who
 * opens the device again is told the same.  Runs first; a machine without NVML
 * knows nothing.
 */
static void test_context(void)
{
    struct rig rig;

    if (rig_open(&rig)) {
        const uint64_t bytes = cuda->info(rig.device)->context_bytes;
        struct zo_device *again = NULL;

        TAP_CHECK(cuda->open(0, NULL, &again) == ZO_OK);
        TAP_CHECK(cuda->info(again)->context_bytes == bytes);
        cuda->close(again);
        (void)printf("# the context takes %llu MiB\n",
                     (unsigned long long)bytes >> 20);
        rig_close(&rig);
        if (bytes == 0) {
            tap_skip("libnvidia-ml.so.1 does not tell");
            return;
        }
        TAP_CHECK(bytes > (uint64_t)16 << 20);
        TAP_CHECK(bytes < (uint64_t)4 << 30);
    }
}

static void test_facts(void)
{
    struct rig rig;

    if (rig_open(&rig)) {
        check_facts(&rig);
        rig_close(&rig);
    }
}

static void check_memory(struct rig *rig)
{
    const struct zo_device_info *info = cuda->info(rig->device);
    uint64_t free_bytes = 0;
    void *memory = &free_bytes;

    TAP_CHECK_INT(cuda->mem_allocated(rig->device, ZO_MEM_DEVICE),
                  2 * SIZE_BYTES);
    TAP_CHECK_INT(cuda->mem_allocated(rig->device, ZO_MEM_PINNED), SIZE_BYTES);
    TAP_CHECK((uintptr_t)rig->a % info->align_bytes == 0);
    TAP_CHECK((uintptr_t)rig->pinned % info->align_bytes == 0);
    TAP_CHECK(info->align_bytes >= 256);
    TAP_CHECK_INT(cuda->mem_free_bytes(rig->device, &free_bytes), ZO_OK);
    TAP_CHECK(free_bytes > 0 && free_bytes < info->memory_bytes);

    /* More than there is: named, and nothing is left behind. */
    TAP_CHECK_INT(cuda->mem_alloc(rig->device, ZO_MEM_DEVICE, "the moon",
                                  (size_t)1 << 50, &memory),
                  ZO_E_DEVMEM);
    TAP_CHECK(memory == &free_bytes);
    TAP_CHECK(strstr(zo_err_last()->text, "the moon") != NULL);
    TAP_CHECK(strstr(zo_err_last()->text, "cuda:0") != NULL);
    TAP_CHECK_INT(cuda->mem_allocated(rig->device, ZO_MEM_DEVICE),
                  2 * SIZE_BYTES);
    TAP_CHECK_INT(cuda->fill(rig->first, rig->a, 0, 16), ZO_OK);
    TAP_CHECK_INT(cuda->stream_sync(rig->first), ZO_OK);
}

static void test_memory(void)
{
    struct rig rig;

    if (rig_open(&rig)) {
        check_memory(&rig);
        rig_close(&rig);
    }
}

/* Needs no GPU. */
static void test_no_such_device(void)
{
    struct zo_device *device = NULL;
    int count = -1;

    if (strcmp(cuda->kind, "cuda") != 0 || cuda->count(&count) != ZO_OK) {
        tap_skip("no CUDA driver");
        return;
    }
    TAP_CHECK(count >= 0);
    TAP_CHECK(cuda->open(count, NULL, &device) != ZO_OK);
    TAP_CHECK(cuda->open(-1, NULL, &device) != ZO_OK);
    TAP_CHECK(device == NULL);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a context's memory is measured", test_context},
        {"a device says what it is, and the platform what it needs",
         test_facts},
        {"data pass through two streams in the order of an event",
         test_round_trip},
        {"an event says when its stream has passed it", test_events},
        {"a timed event has its time on the host's clock", test_times},
        {"copies over the bus keep a pace", test_pace},
        {"memory is counted, aligned, and named when there is none",
         test_memory},
        {"a device that is not there is refused", test_no_such_device},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
