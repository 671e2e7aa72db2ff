/*
 * The arenas of an executor, and pieces on their way to them.
 *
 * Method: every byte that should arrive is looked at, on devices with random
 * delays and with more threads than pieces; calls of the device are made to
 * fail through a copy of its table.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "offload/layout.h"
#include "offload/staging.h"
#include "src/base/memory.h"
#include "tests/executor_bench.h"
#include "tests/fake_root.h"
#include "tests/tap.h"

/* ---- arenas -------------------------------------------------------------- */

/* The second access is one more than the first, byte by byte. */
static enum zo_status add_one(const struct zo_op_call *call)
{
    const unsigned char *from = call->at[0];
    unsigned char *to = call->at[1];

    for (int i = 0; i < BENCH_BYTES; i++) {
        to[i] = (unsigned char)(from[i] + 1);
    }
    return ZO_OK;
}

/* Host memory to pageable memory and back, each one more. */
static void check_pageable(const struct zo_executor_options *options)
{
    const struct zo_op op = {
        .name = "add one", .run = add_one, .engine = ZO_ENGINE_CPU};
    unsigned char bytes[BENCH_BYTES], back[BENCH_BYTES];
    zo_buffer_id pageable;
    struct bench bench;

    bench_init(&bench, 1);
    pageable = bench_buffer(&bench, ZO_TIER_PAGEABLE, 0, false);
    bench_list(&bench);
    for (int i = 0; i < 2; i++) {
        const struct zo_access accesses[] = {
            {i == 0 ? bench.host : pageable, ZO_READ, 0, BENCH_BYTES},
            {i == 0 ? pageable : bench.other, ZO_WRITE, 0, BENCH_BYTES},
        };

        TAP_CHECK_INT(zo_schedule_add(&bench.program, 0, &op, accesses, 2),
                      ZO_OK);
    }
    for (int i = 0; i < BENCH_BYTES; i++) {
        bytes[i] = (unsigned char)(5 * i);
    }
    TAP_CHECK_INT(bench_open(&bench, options), ZO_OK);
    TAP_CHECK_INT(
        zo_executor_download(bench.executor, back, pageable, 0, BENCH_BYTES),
        ZO_OK);
    TAP_CHECK(back[0] == 0 && back[BENCH_BYTES - 1] == 0);
    TAP_CHECK_INT(
        zo_executor_upload(bench.executor, bench.host, 0, bytes, BENCH_BYTES),
        ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_OK);
    TAP_CHECK_INT(
        zo_executor_download(bench.executor, back, bench.other, 0, BENCH_BYTES),
        ZO_OK);
    for (int i = 0; i < BENCH_BYTES; i++) {
        TAP_CHECK_INT(back[i], (unsigned char)(bytes[i] + 2));
    }
    bench_close(&bench);
}

static void test_pageable(void)
{
    const struct zo_executor_options serial = {
        .cpu_workers = 1, .is_serial = true, .poisons = true};

    check_pageable(&bench_workers);
    check_pageable(&serial);
}

/* Arenas of several of the parts that threads clear. */
static void test_cleared(void)
{
    const struct zo_buffer buffers[] = {
        {.name = "a", .tier = ZO_TIER_CPU, .schedule = -1, .bytes = 20000001},
        {.name = "b",
         .tier = ZO_TIER_PAGEABLE,
         .schedule = -1,
         .bytes = 9000001},
    };
    struct zo_executor_options options = {.cpu_workers = 1};
    struct zo_pool *pool = NULL;
    struct bench bench;
    zo_buffer_id ids[2];

    TAP_CHECK_INT(zo_pool_open(2, &pool), ZO_OK);
    options.pool = pool;
    bench_init(&bench, 1);
    for (int i = 0; i < 2; i++) {
        TAP_CHECK_INT(zo_program_buffer(&bench.program, &buffers[i], &ids[i]),
                      ZO_OK);
    }
    TAP_CHECK_INT(bench_open(&bench, &options), ZO_OK);
    for (int i = 0; i < 2; i++) {
        const unsigned char *bytes =
            zo_executor_address(bench.executor, ids[i], 0);
        uint64_t sum = 0;

        for (uint64_t k = 0; k < buffers[i].bytes; k++) {
            sum += bytes[k];
        }
        TAP_CHECK_INT(sum, 0);
        TAP_CHECK_INT((uintptr_t)bytes % ZO_ALIGN_BYTES, 0);
    }
    bench_close(&bench);
    zo_pool_close(pool);
}

static void test_huge_alloc(void)
{
    static const size_t sizes[] = {0, 1, 4096, 2097151, 2097152, 5000001};

    for (size_t i = 0; i < TAP_COUNT(sizes); i++) {
        unsigned char *memory = NULL;

        TAP_CHECK_INT(zo_huge_alloc(sizes[i], "a test", &memory), ZO_OK);
        TAP_CHECK_INT(
            (uintptr_t)memory % (sizes[i] >= 2097152 ? 2097152u : 4096u), 0);
        for (size_t k = 0; k < sizes[i]; k += 1000) {
            TAP_CHECK_INT(memory[k], 0);
            memory[k] = 1;
        }
        if (sizes[i] > 0) {
            memory[sizes[i] - 1] = 1;
        }
        zo_pages_free(memory, sizes[i]);
    }
}

/* ---- what the system leaves ---------------------------------------------- */

/* A system that leaves 500 kB in all and, in a group, 100 kB. */
static bool make_root(bool has_group)
{
    fake_root_clear();
    return fake_root_put("proc/meminfo",
                         "MemTotal: 9000 kB\nMemAvailable: 500 kB\n") &&
           fake_root_put("proc/self/cgroup", has_group ? "0::/\n" : "") &&
           fake_root_put("sys/fs/cgroup/memory.max", "300000\n") &&
           fake_root_put("sys/fs/cgroup/memory.current", "250000\n") &&
           fake_root_put("sys/fs/cgroup/memory.stat", "inactive_file 50000\n");
}

/* A program of host_bytes page-locked and device_bytes on a host device. */
static enum zo_status open_sized(uint64_t host_bytes, uint64_t pageable_bytes,
                                 uint64_t device_bytes)
{
    const struct zo_buffer buffers[] = {
        {.name = "a", .tier = ZO_TIER_CPU, .bytes = host_bytes},
        {.name = "b", .tier = ZO_TIER_PAGEABLE, .bytes = pageable_bytes},
        {.name = "c", .tier = ZO_TIER_GPU, .bytes = device_bytes},
    };
    const struct zo_executor_options options = {.cpu_workers = 1,
                                                .system_root = fake_root()};
    struct zo_executor *executor = NULL;
    enum zo_status status = ZO_OK;
    struct zo_program program;
    struct zo_machine machine;

    zo_program_init(&program, 1);
    for (size_t i = 0; status == ZO_OK && i < TAP_COUNT(buffers); i++) {
        struct zo_buffer buffer = buffers[i];
        zo_buffer_id id;

        buffer.schedule = -1;
        status = zo_program_buffer(&program, &buffer, &id);
    }
    if (status == ZO_OK && zo_layout(&program) == ZO_OK &&
        help_machine_open(&machine, 1, 1, 0) == ZO_OK) {
        status = zo_executor_open(&program, &machine, &options, &executor);
        if (status != ZO_OK && help_machine_bytes(&machine) != 0) {
            tap_fail(__FILE__, __LINE__, "memory that nobody gave back");
        }
        zo_executor_close(executor);
        help_machine_close(&machine);
    }
    zo_program_fini(&program);
    return status;
}

static void test_room(void)
{
    TAP_CHECK(make_root(false));
    TAP_CHECK_INT(open_sized(200000, 100000, 200000), ZO_OK);
    TAP_CHECK_INT(open_sized(200000, 100000, 300000), ZO_E_FIT);
    TAP_CHECK(strstr(zo_err_last()->text, "MemAvailable") != NULL);
    TAP_CHECK(strstr(zo_err_last()->text, "(512000 bytes)") != NULL);
    TAP_CHECK_INT(zo_status_exit_code(ZO_E_FIT), 3);
    TAP_CHECK(make_root(true));
    TAP_CHECK_INT(open_sized(30000, 30000, 30000), ZO_OK);
    TAP_CHECK_INT(open_sized(30000, 50000, 30000), ZO_E_FIT);
    TAP_CHECK(strstr(zo_err_last()->text, "control group") != NULL);
    TAP_CHECK(strstr(zo_err_last()->text, "(100000 bytes)") != NULL);
    fake_root_remove();
}

/* ---- staging ------------------------------------------------------------- */

enum {
    PIECE_BYTES = 96,
    PART_BYTES = 8,
    PART_COUNT = 4 * BENCH_BYTES / PART_BYTES, /* of four buffers */
};

struct sending {
    struct zo_staging *staging;
    zo_buffer_id targets[4];
    atomic_int failures;
    int round;
};

static unsigned char byte_of(int round, int64_t part, int at)
{
    return (unsigned char)(31 * part + at + 7 * round);
}

static enum zo_status send_one(struct sending *sending, int64_t part)
{
    unsigned char *memory;
    enum zo_status status;
    void *piece_memory;
    int piece;

    ZO_TRY(zo_staging_take(sending->staging, &piece, &piece_memory));
    memory = piece_memory;
    memset(memory, 0xee, PIECE_BYTES);
    for (int i = 0; i < PART_BYTES; i++) {
        memory[16 + i] = byte_of(sending->round, part, i);
    }
    status = zo_staging_upload(sending->staging, sending->targets[part % 4],
                               (uint64_t)(part / 4 * PART_BYTES), memory + 16,
                               PART_BYTES);
    if (status != ZO_OK) {
        const enum zo_status given = zo_staging_give(sending->staging, piece);

        return given != ZO_OK ? given : status;
    }
    return zo_staging_give(sending->staging, piece);
}

static void send_in_pool(void *work, int64_t index)
{
    struct sending *sending = work;

    if (send_one(sending, index) != ZO_OK) {
        atomic_fetch_add(&sending->failures, 1);
    }
}

static void open_bench(struct bench *bench, struct sending *sending)
{
    memset(sending, 0, sizeof(*sending));
    bench_init(bench, 2);
    sending->targets[0] = bench->gpu[0];
    sending->targets[1] = bench->gpu[1];
    sending->targets[2] = bench->host;
    sending->targets[3] = bench_buffer(bench, ZO_TIER_PAGEABLE, 0, false);
    TAP_CHECK_INT(bench_open(bench, &bench_workers), ZO_OK);
}

static bool all_arrived(struct bench *bench, const struct sending *sending)
{
    unsigned char back[BENCH_BYTES];

    for (int64_t part = 0; part < PART_COUNT; part++) {
        if (zo_executor_download(
                bench->executor, back, sending->targets[part % 4],
                (uint64_t)(part / 4 * PART_BYTES), PART_BYTES) != ZO_OK) {
            return false;
        }
        for (int i = 0; i < PART_BYTES; i++) {
            if (back[i] != byte_of(sending->round, part, i)) {
                return false;
            }
        }
    }
    return true;
}

static void test_staging(void)
{
    static const int piece_counts[] = {1, 2, 7, 40};
    struct zo_pool *pool = NULL;

    TAP_CHECK_INT(zo_pool_open(3, &pool), ZO_OK);
    for (size_t i = 0; i < TAP_COUNT(piece_counts); i++) {
        struct sending sending;
        struct bench bench;

        open_bench(&bench, &sending);
        TAP_CHECK_INT(zo_staging_open(bench.executor, PIECE_BYTES,
                                      piece_counts[i], &sending.staging),
                      ZO_OK);
        for (sending.round = 0; sending.round < 3; sending.round++) {
            zo_pool_run(pool, send_in_pool, &sending, PART_COUNT);
            TAP_CHECK_INT(zo_staging_sync(sending.staging), ZO_OK);
            TAP_CHECK(all_arrived(&bench, &sending));
        }
        TAP_CHECK_INT(atomic_load(&sending.failures), 0);
        zo_staging_close(sending.staging);
        bench_close(&bench);
    }
    zo_pool_close(pool);
}

static void test_staging_without_memory(void)
{
    struct zo_staging *untouched = (struct zo_staging *)&untouched;
    struct sending sending;
    struct bench bench;
    enum zo_status status;
    uint64_t nth = 0, before;

    open_bench(&bench, &sending);
    before = help_machine_bytes(&bench.machine);
    do {
        struct zo_staging *staging = untouched;

        zo_memory_fail_at(++nth);
        status = zo_staging_open(bench.executor, PIECE_BYTES, 3, &staging);
        zo_memory_fail_at(0);
        if (status == ZO_OK) {
            zo_staging_close(staging);
        } else {
            TAP_CHECK_INT(status, ZO_E_NOMEM);
            TAP_CHECK(staging == untouched);
        }
        TAP_CHECK_INT(help_machine_bytes(&bench.machine), before);
    } while (status != ZO_OK);
    TAP_CHECK(nth > 9); /* six events among them */
    zo_staging_close(NULL);
    bench_close(&bench);
}

/* ---- devices that refuse ------------------------------------------------- */

static struct {
    struct zo_device_ops ops;
    int calls, fail_at; /* of copy, event_record and event_sync together */
} refusing;

static enum zo_status refuse_lock(struct zo_device *device,
                                  enum zo_mem_kind kind, const char *name,
                                  size_t size_bytes, void **memory_out)
{
    (void)device;
    (void)kind;
    (void)memory_out;
    return ZO_FAIL(ZO_E_LOCK, "no lock for %s, %zu bytes", name, size_bytes);
}

static enum zo_status refuse_nth(void)
{
    return ++refusing.calls == refusing.fail_at
               ? ZO_FAIL(ZO_E_DEVICE, "call %d refused", refusing.calls)
               : ZO_OK;
}

static enum zo_status refuse_copy(struct zo_stream *stream, void *target,
                                  const void *source, size_t size_bytes)
{
    ZO_TRY(refuse_nth());
    return zo_device_host.copy(stream, target, source, size_bytes);
}

static enum zo_status refuse_record(struct zo_stream *stream,
                                    struct zo_event *event)
{
    ZO_TRY(refuse_nth());
    return zo_device_host.event_record(stream, event);
}

static enum zo_status refuse_sync(struct zo_event *event)
{
    ZO_TRY(refuse_nth());
    return zo_device_host.event_sync(event);
}

/* Sends everything through devices that refuse; how many calls failed. */
static int send_refused(bool refuses_lock, int fail_at)
{
    struct sending sending;
    struct bench bench;
    int failures = -1;

    open_bench(&bench, &sending);
    refusing.ops = zo_device_host;
    refusing.ops.copy = refuse_copy;
    refusing.ops.event_record = refuse_record;
    refusing.ops.event_sync = refuse_sync;
    refusing.ops.mem_alloc =
        refuses_lock ? refuse_lock : zo_device_host.mem_alloc;
    refusing.calls = 0;
    refusing.fail_at = fail_at;
    bench.machine.device_ops = &refusing.ops;
    if (zo_staging_open(bench.executor, PIECE_BYTES, 2, &sending.staging) ==
        ZO_OK) {
        for (int64_t part = 0; part < PART_COUNT; part++) {
            send_in_pool(&sending, part);
        }
        failures = zo_staging_sync(sending.staging) == ZO_OK
                       ? atomic_load(&sending.failures)
                       : -1;
        refusing.fail_at = 0;
        if (failures == 0 && !all_arrived(&bench, &sending)) {
            failures = -1;
        }
    }
    zo_staging_close(sending.staging);
    bench.machine.device_ops = &zo_device_host;
    bench_close(&bench);
    return failures;
}

static void test_lock_refused(void)
{
    TAP_CHECK_INT(send_refused(true, 0), 0);
}

/* Each failure is told by the call that made it, and only there. */
static void test_each_call_refused(void)
{
    TAP_CHECK_INT(send_refused(false, 0), 0);
    TAP_CHECK(refusing.calls > 4 * PART_COUNT);
    for (int nth = 1; nth <= 2 * PART_COUNT; nth++) {
        TAP_CHECK_INT(send_refused(false, nth), 1);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"CPU operations read and write pageable memory", test_pageable},
        {"arenas are cleared by many threads", test_cleared},
        {"huge pages begin where they can", test_huge_alloc},
        {"more than the system leaves is refused, untouched", test_room},
        {"pieces arrive, with fewer pieces than threads or more", test_staging},
        {"without memory staging does not open", test_staging_without_memory},
        {"what cannot be locked is sent all the same", test_lock_refused},
        {"each refused call is a failure", test_each_call_refused},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
