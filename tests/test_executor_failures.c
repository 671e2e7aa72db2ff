/*
 * Failures of the executor: of any operation, wherever it runs, and of any
 * allocation.  What depends on the failed one does not run, everybody is told
 * the first failure, and closing works.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "offload/executor.h"
#include "offload/layout.h"
#include "src/base/memory.h"
#include "tests/executor_bench.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

/* From here on everything says what failed, and closing works. */
static void check_failed(struct bench *bench, enum zo_status status,
                         const char *text)
{
    struct zo_executor *executor = bench->executor;
    int slot = -1;

    TAP_CHECK_INT(zo_executor_drain(executor), status);
    TAP_CHECK(strstr(zo_err_last()->text, text) != NULL);
    TAP_CHECK_INT(zo_executor_wait(executor, 1), status);
    TAP_CHECK_INT(zo_executor_acquire(executor, &slot), status);
    TAP_CHECK_INT(slot, -1);
    TAP_CHECK_INT(zo_executor_start(executor, 0, NULL), status);
    TAP_CHECK(strstr(zo_err_last()->text, text) != NULL);
}

static enum zo_status fail_at(const struct zo_program *program,
                              const struct zo_sequence_item *items,
                              size_t count, bool is_serial, uint64_t nth)
{
    const struct zo_executor_options options = {
        .cpu_workers = 2, .is_serial = is_serial, .fail_at_op = nth};
    struct bench bench = {.executor = NULL};
    enum zo_status status;

    ZO_TRY(help_machine_open(&bench.machine, program->device_count, nth, 5));
    ZO_TRY(
        zo_executor_open(program, &bench.machine, &options, &bench.executor));
    status = help_run(bench.executor, items, count);
    if (status != ZO_OK) {
        check_failed(&bench, ZO_E_INJECTED, "failed by a test");
    }
    bench_close(&bench);
    return status;
}

static void test_failing_each(void)
{
    const struct zo_sequence_item items[] = {{0, 0}, {1, 1}, {0, 0}};
    const struct help_shape shape = {.seed = 77,
                                     .devices = 2,
                                     .lists = 2,
                                     .ops_max = 20,
                                     .bytes_max = 100,
                                     .nap_us = 20};
    struct zo_program program;

    TAP_CHECK_INT(help_program(&shape, &program), ZO_OK);
    for (int is_serial = 0; is_serial < 2; is_serial++) {
        const uint64_t ops =
            2 * program.schedules[0].op_count + program.schedules[1].op_count;

        TAP_CHECK(ops > 20);
        for (uint64_t nth = 1; nth <= ops; nth++) {
            TAP_CHECK_INT(fail_at(&program, items, 3, is_serial == 1, nth),
                          ZO_E_INJECTED);
        }
        TAP_CHECK_INT(fail_at(&program, items, 3, is_serial == 1, ops + 1),
                      ZO_OK);
    }
    zo_program_fini(&program);
}

/* What depends on the failed one never runs, on whatever engine. */
static void check_failing_op(enum zo_engine engine)
{
    const struct act fails = {.status = ZO_E_NUMERIC, .number = 42};
    atomic_int ran = 0;
    const struct act counts = {.counts = &ran};
    struct bench bench;

    bench_init(&bench, 2);
    bench_list(&bench);
    bench_add(&bench, &(struct what){engine, 0, 0, ZO_NO_BUFFER, bench.host},
              &fails);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_H2D, 0, 0, bench.host, bench.gpu[0]},
              &counts);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_COMPUTE, 1, 0, bench.host, bench.gpu[1]},
              &counts);
    bench_add(
        &bench,
        &(struct what){ZO_ENGINE_COMPUTE, 0, 0, bench.gpu[0], ZO_NO_BUFFER},
        &counts);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_CPU, 0, 0, bench.host, ZO_NO_BUFFER},
              &counts);
    TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_E_NUMERIC);
    check_failed(&bench, ZO_E_NUMERIC, "act 42 failed");
    bench_close(&bench);
    TAP_CHECK_INT(atomic_load(&ran), 0);
}

static void test_failing_in_a_stream(void)
{
    check_failing_op(ZO_ENGINE_COMPUTE);
    check_failing_op(ZO_ENGINE_D2H);
}

static void test_failing_on_the_cpu(void)
{
    check_failing_op(ZO_ENGINE_CPU);
}

/* A second failure, later, on the other worker. */
static void test_first_failure(void)
{
    const struct timespec pause = {0, 1000000};
    struct help_gate gate = HELP_GATE;
    atomic_int failed = 0;
    const struct act first = {.status = ZO_E_NUMERIC, .number = 1};
    const struct act second = {
        .passes = &gate, .counts = &failed, .status = ZO_E_DATA, .number = 2};
    struct bench bench;

    bench_init(&bench, 1);
    bench_list(&bench);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_CPU, 0, 0, ZO_NO_BUFFER, bench.other},
              &second);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_CPU, 0, 0, ZO_NO_BUFFER, bench.host},
              &first);
    TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_E_NUMERIC);
    help_gate_open(&gate);
    for (int i = 0; i < 20 || atomic_load(&failed) == 0; i++) {
        (void)nanosleep(&pause, NULL);
    }
    check_failed(&bench, ZO_E_NUMERIC, "act 1 failed");
    bench_close(&bench);
}

/* ---- collectives ----------------------------------------------------------
 */

/* Collectives that fail where no stream tells, and hang until aborted. */
static struct {
    struct help_gate gate;
    bool fails;
    int checks, aborts;
} broken;

static enum zo_status broken_check(struct zo_comm *comm)
{
    (void)comm;
    broken.checks++;
    return broken.fails ? ZO_FAIL(ZO_E_COMM, "host:1: its part is gone")
                        : ZO_OK;
}

static void broken_abort(struct zo_comm *comm)
{
    broken.aborts++;
    help_gate_open(&broken.gate);
    zo_comm_host.abort(comm);
}

/* An operation of the second device waits until something is aborted. */
static void break_comm(struct bench *bench, struct zo_comm_ops *ops,
                       const struct act *hangs)
{
    const struct help_gate gate = HELP_GATE;

    memset(&broken, 0, sizeof(broken));
    broken.gate = gate;
    bench_init(bench, 2);
    *ops = zo_comm_host;
    ops->check = broken_check;
    ops->abort = broken_abort;
    bench->machine.comm_ops = ops;
    bench_list(bench);
    bench_add(
        bench,
        &(struct what){ZO_ENGINE_COMPUTE, 1, 0, ZO_NO_BUFFER, bench->gpu[1]},
        hangs);
}

static void test_failed_collectives(void)
{
    const struct act hangs = {.passes = &broken.gate};
    struct zo_comm_ops ops;
    struct bench bench;

    break_comm(&bench, &ops, &hangs);
    broken.fails = true;
    TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_E_COMM);
    TAP_CHECK_INT(broken.aborts, 1);
    TAP_CHECK_INT(broken.checks, 1);
    check_failed(&bench, ZO_E_COMM, "host:1: its part is gone");
    bench_close(&bench);
    TAP_CHECK_INT(broken.aborts, 1);
    TAP_CHECK(!help_gate_failed(&broken.gate));
}

/* A failure elsewhere, where the other device would wait for ever. */
static void test_failure_aborts(void)
{
    const struct act hangs = {.passes = &broken.gate};
    const struct act fails = {.status = ZO_E_NUMERIC, .number = 7};
    const enum zo_engine engines[] = {ZO_ENGINE_COMPUTE, ZO_ENGINE_CPU};

    for (size_t i = 0; i < TAP_COUNT(engines); i++) {
        struct zo_comm_ops ops;
        struct bench bench;

        break_comm(&bench, &ops, &hangs);
        bench_add(&bench,
                  &(struct what){engines[i], 0, 0, ZO_NO_BUFFER, bench.host},
                  &fails);
        TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
        TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
        TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_E_NUMERIC);
        TAP_CHECK(strstr(zo_err_last()->text, "act 7 failed") != NULL);
        bench_close(&bench);
        TAP_CHECK_INT(broken.aborts, 1);
        TAP_CHECK(!help_gate_failed(&broken.gate));
    }
}

/* Nobody waited for the failed operation: closing finds it. */
static void test_close_aborts(void)
{
    const struct timespec pause = {0, 1000000};
    const struct act hangs = {.passes = &broken.gate};
    atomic_int failed = 0;
    const struct act fails = {
        .counts = &failed, .status = ZO_E_NUMERIC, .number = 7};
    struct zo_comm_ops ops;
    struct bench bench;

    break_comm(&bench, &ops, &hangs);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_CPU, 0, 0, ZO_NO_BUFFER, bench.host},
              &fails);
    TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    while (atomic_load(&failed) == 0) {
        (void)nanosleep(&pause, NULL);
    }
    bench_close(&bench);
    TAP_CHECK_INT(broken.aborts, 1);
    TAP_CHECK(!help_gate_failed(&broken.gate));
}

static void *open_later(void *gate)
{
    const struct timespec pause = {0, 350000000};

    (void)nanosleep(&pause, NULL);
    help_gate_open(gate);
    return NULL;
}

/* Looked at while nothing moves, some ten times a second. */
static void test_sound_collectives(void)
{
    const struct act hangs = {.passes = &broken.gate};
    struct zo_comm_ops ops;
    struct bench bench;
    pthread_t thread;

    break_comm(&bench, &ops, &hangs);
    TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    TAP_CHECK_INT(pthread_create(&thread, NULL, open_later, &broken.gate), 0);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_OK);
    TAP_CHECK_INT(pthread_join(thread, NULL), 0);
    bench_close(&bench);
    TAP_CHECK_INT(broken.aborts, 0);
    TAP_CHECK(broken.checks >= 1 && broken.checks <= 100);
}

/* Closing in the middle of a run: what is under way ends, then it is over. */
static void test_close_early(void)
{
    const struct help_shape shape = {.seed = 5,
                                     .devices = 3,
                                     .lists = 1,
                                     .ops_max = 40,
                                     .bytes_max = 100,
                                     .nap_us = 100};
    struct bench bench = {.executor = NULL};

    TAP_CHECK_INT(help_program(&shape, &bench.program), ZO_OK);
    for (uint64_t seed = 0; seed < 10; seed++) {
        TAP_CHECK_INT(help_machine_open(&bench.machine, 3, seed, 50), ZO_OK);
        TAP_CHECK_INT(zo_executor_open(&bench.program, &bench.machine,
                                       &bench_workers, &bench.executor),
                      ZO_OK);
        TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
        TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
        zo_executor_close(bench.executor);
        TAP_CHECK_INT(help_machine_bytes(&bench.machine), 0);
        help_machine_close(&bench.machine);
    }
    zo_program_fini(&bench.program);
}

static void test_failed_allocations(void)
{
    const struct zo_executor_options options = {
        .cpu_workers = 2, .is_serial = true, .poisons = true};
    struct zo_executor *untouched = (struct zo_executor *)&untouched;
    const struct help_shape shape = {
        .seed = 3, .devices = 2, .lists = 2, .ops_max = 12, .bytes_max = 90};
    struct zo_program program;
    struct zo_machine machine;
    bool is_open = false;
    uint64_t nth = 0;

    TAP_CHECK_INT(help_program(&shape, &program), ZO_OK);
    TAP_CHECK_INT(help_machine_open(&machine, 2, 1, 0), ZO_OK);
    while (!is_open) {
        struct zo_executor *executor = untouched;
        enum zo_status status;

        zo_memory_fail_at(++nth);
        status = zo_executor_open(&program, &machine, &options, &executor);
        zo_memory_fail_at(0);
        is_open = status == ZO_OK;
        if (!is_open) {
            TAP_CHECK(status == ZO_E_NOMEM || status == ZO_E_DEVMEM);
            TAP_CHECK(executor == untouched);
            TAP_CHECK(strstr(zo_err_last()->text, "injected") != NULL);
            TAP_CHECK_INT(help_machine_bytes(&machine), 0);
        } else {
            zo_executor_close(executor);
        }
        TAP_CHECK(nth < 400);
    }
    TAP_CHECK(nth > 40);
    zo_executor_close(NULL);
    help_machine_close(&machine);
    zo_program_fini(&program);
}

/* Address space in use, in MiB. */
static long mapped_mib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;

    if (file != NULL) {
        if (fscanf(file, "%ld", &pages) != 1) {
            pages = 0;
        }
        (void)fclose(file);
    }
    return pages / 1024 * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Pages of the arenas and their copies, which no sanitizer counts. */
static void test_pages(void)
{
    const struct zo_executor_options options = {
        .cpu_workers = 1, .is_serial = true, .poisons = true};
    const struct zo_buffer buffer = {.name = "4 MiB",
                                     .tier = ZO_TIER_GPU,
                                     .unit = -1,
                                     .schedule = -1,
                                     .bytes = 4 << 20};
    struct zo_program program;
    struct zo_machine machine;
    zo_buffer_id id;
    long before = 0;

    zo_program_init(&program, 1);
    TAP_CHECK_INT(zo_program_buffer(&program, &buffer, &id), ZO_OK);
    TAP_CHECK_INT(zo_layout(&program), ZO_OK);
    TAP_CHECK_INT(help_machine_open(&machine, 1, 1, 0), ZO_OK);
    for (int i = 0; i < 40; i++) {
        struct zo_executor *executor = NULL;

        TAP_CHECK_INT(zo_executor_open(&program, &machine, &options, &executor),
                      ZO_OK);
        zo_executor_close(executor);
        before = i == 4 ? mapped_mib() : before; /* warmed up */
    }
    TAP_CHECK(before > 0);
    TAP_CHECK(mapped_mib() - before < 64);
    help_machine_close(&machine);
    zo_program_fini(&program);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a failure of any operation is clean", test_failing_each},
        {"a failure inside a stream stops what depends on it",
         test_failing_in_a_stream},
        {"a failure on the CPU stops what depends on it",
         test_failing_on_the_cpu},
        {"the first failure is the one that is told", test_first_failure},
        {"a failure of collectives that no stream tells is found",
         test_failed_collectives},
        {"a failure anywhere ends collectives that would hang",
         test_failure_aborts},
        {"closing ends them too", test_close_aborts},
        {"sound collectives are looked at, now and then",
         test_sound_collectives},
        {"closing ends a run", test_close_early},
        {"closing gives all pages back", test_pages},
        {"each failed allocation of open is clean", test_failed_allocations},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
