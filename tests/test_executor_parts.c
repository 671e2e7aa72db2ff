/*
 * Operations in parts on the CPU engine, the limit of what is issued ahead,
 * and what counts as moved.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "offload/layout.h"
#include "tests/executor_bench.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

static const struct zo_executor_options one_worker = {.cpu_workers = 1};
static const struct zo_executor_options four_workers = {.cpu_workers = 4};
static const struct zo_executor_options serial = {.cpu_workers = 1,
                                                  .is_serial = true};

/* ---- operations in parts ------------------------------------------------- */

enum { PARTS_MAX = 20 };

/* What the parts of an operation do. */
struct parts {
    int parts, priority;
    atomic_int ran[PARTS_MAX];      /* how often each */
    struct help_gate *gates;        /* one a part: opened at its beginning */
    bool meets;                     /* each passes the gates of all */
    struct help_gate *enters;       /* passed by part 0 */
    int *order, *order_count, base; /* one worker: base + part is noted */
    int failing_part;               /* from 1; 0: none */
};

static enum zo_status run_part(const struct zo_op_call *call)
{
    struct parts *parts = (struct parts *)call->op->context;
    const int part = call->part;

    ZO_ASSERT(part >= 0 && part < parts->parts);
    if (parts->gates != NULL) {
        help_gate_open(&parts->gates[part]);
    }
    for (int i = 0; parts->meets && i < parts->parts; i++) {
        help_gate_pass(&parts->gates[i]);
    }
    if (parts->enters != NULL && part == 0) {
        help_gate_pass(parts->enters);
    }
    if (parts->order != NULL) {
        parts->order[(*parts->order_count)++] = parts->base + part;
    }
    atomic_fetch_add(&parts->ran[part], 1);
    return part + 1 != parts->failing_part
               ? ZO_OK
               : ZO_FAIL(ZO_E_NUMERIC, "part %d failed", part);
}

/* Adds to the latest list; writes one buffer on the host. */
static void add_parts(struct bench *bench, const struct parts *parts,
                      zo_buffer_id writes)
{
    const struct zo_op op = {.name = "parts",
                             .run = run_part,
                             .context = parts,
                             .engine = ZO_ENGINE_CPU,
                             .unit = -1,
                             .micro = -1,
                             .priority = parts->priority,
                             .parts = parts->parts};
    const struct zo_access access =
        zo_whole(&bench->program, writes, ZO_READ_WRITE);

    TAP_CHECK_INT(zo_schedule_add(&bench->program,
                                  bench->program.schedule_count - 1, &op,
                                  &access, 1),
                  ZO_OK);
}

static int ran_in_all(const struct parts *parts)
{
    int sum = 0;

    for (int i = 0; i < parts->parts; i++) {
        sum += atomic_load(&parts->ran[i]);
    }
    return sum;
}

/* Also when the records of operations are used again, list after list. */
static void check_once(const struct zo_executor_options *options)
{
    enum { OPS = 3, LISTS = 25 };
    static const int counts[OPS] = {1, 7, PARTS_MAX};
    struct parts parts[OPS] = {{0}};
    struct zo_executor_counters counters;
    struct bench bench;

    bench_init(&bench, 1);
    bench_list(&bench);
    for (int i = 0; i < OPS; i++) {
        parts[i].parts = counts[i];
        parts[i].priority = i % 2;
        add_parts(&bench, &parts[i], i == 1 ? bench.other : bench.host);
    }
    TAP_CHECK_INT(bench_open(&bench, options), ZO_OK);
    for (int list = 0; list < LISTS; list++) {
        TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    }
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_OK);
    for (int i = 0; i < OPS; i++) {
        for (int k = 0; k < counts[i]; k++) {
            TAP_CHECK_INT(atomic_load(&parts[i].ran[k]), LISTS);
        }
    }
    zo_executor_counters(bench.executor, &counters);
    TAP_CHECK_INT(counters.ops[ZO_ENGINE_CPU], OPS * LISTS); /* not parts */
    TAP_CHECK_INT(counters.bytes[ZO_ENGINE_CPU], 0);
    bench_close(&bench);
}

static void test_each_once(void)
{
    check_once(&one_worker);
    check_once(&four_workers);
    check_once(&serial);
}

/* Each part waits until all have begun. */
static void test_at_once(void)
{
    struct help_gate gates[4] = {HELP_GATE, HELP_GATE, HELP_GATE, HELP_GATE};
    struct parts parts = {.parts = 4, .gates = gates, .meets = true};
    struct bench bench;

    bench_init(&bench, 1);
    bench_list(&bench);
    add_parts(&bench, &parts, bench.host);
    TAP_CHECK_INT(bench_open(&bench, &four_workers), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_OK);
    for (int i = 0; i < 4; i++) {
        TAP_CHECK(!help_gate_failed(&gates[i]));
        TAP_CHECK_INT(atomic_load(&parts.ran[i]), 1);
    }
    bench_close(&bench);
}

static void *open_later(void *argument)
{
    const struct timespec pause = {0, 30000000};

    (void)nanosleep(&pause, NULL);
    help_gate_open(argument);
    return NULL;
}

/* One part is late: what follows, on any engine, waits for it. */
static void test_done_with_the_last(void)
{
    struct help_gate gate = HELP_GATE;
    struct parts parts = {.parts = 5, .enters = &gate};
    int seen[2] = {-1, -1};
    const struct act looks[2] = {{.looks_at = &parts.ran[0], .seen = &seen[0]},
                                 {.looks_at = &parts.ran[0], .seen = &seen[1]}};
    pthread_t opener;
    struct bench bench;

    bench_init(&bench, 1);
    bench_list(&bench);
    add_parts(&bench, &parts, bench.host);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_CPU, 0, -5, bench.host, ZO_NO_BUFFER},
              &looks[0]);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_H2D, 0, 0, bench.host, bench.gpu[0]},
              &looks[1]);
    TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    TAP_CHECK_INT(pthread_create(&opener, NULL, open_later, &gate), 0);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_OK);
    TAP_CHECK_INT(pthread_join(opener, NULL), 0);
    TAP_CHECK(!help_gate_failed(&gate));
    TAP_CHECK_INT(seen[0], 1);
    TAP_CHECK_INT(seen[1], 1);
    TAP_CHECK_INT(ran_in_all(&parts), 5);
    bench_close(&bench);
}

/* One worker is at the first part when others become ready. */
static void test_urgent_between_parts(void)
{
    static const int want[] = {0, 100, 101, 1, 2, 200, 300};
    struct help_gate gate = HELP_GATE;
    int order[TAP_COUNT(want)], count = 0;
    struct parts parts[] = {
        {.parts = 3, .priority = 5, .enters = &gate},
        {.parts = 2, .priority = 4, .base = 100}, /* more urgent */
        {.parts = 1, .priority = 5, .base = 200}, /* as urgent, but younger */
        {.parts = 1, .priority = 6, .base = 300},
    };
    struct bench bench;

    bench_init(&bench, 1);
    for (size_t i = 0; i < TAP_COUNT(parts); i++) {
        parts[i].order = order;
        parts[i].order_count = &count;
        if (i < 2) { /* the second list becomes ready as a whole */
            bench_list(&bench);
        }
        add_parts(&bench, &parts[i],
                  bench_buffer(&bench, ZO_TIER_CPU, 0, false));
    }
    TAP_CHECK_INT(bench_open(&bench, &one_worker), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    help_gate_wait_entered(&gate);
    TAP_CHECK_INT(bench_start(&bench, 1, NULL), ZO_OK);
    help_gate_open(&gate);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_OK);
    TAP_CHECK_INT(count, TAP_COUNT(want));
    for (size_t i = 0; i < TAP_COUNT(want); i++) {
        TAP_CHECK_INT(order[i], want[i]);
    }
    TAP_CHECK(!help_gate_failed(&gate));
    bench_close(&bench);
}

static void test_serial_order(void)
{
    int order[2 * PARTS_MAX], count = 0;
    struct parts first = {.parts = PARTS_MAX,
                          .priority = 9,
                          .order = order,
                          .order_count = &count};
    struct parts second = {.parts = 4,
                           .priority = 1,
                           .order = order,
                           .order_count = &count,
                           .base = PARTS_MAX};
    struct bench bench;

    bench_init(&bench, 1);
    bench_list(&bench);
    add_parts(&bench, &first, bench.host);
    add_parts(&bench, &second, bench.other);
    TAP_CHECK_INT(bench_open(&bench, &serial), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    TAP_CHECK_INT(count, PARTS_MAX + 4); /* done when start returns */
    for (int i = 0; i < count; i++) {
        TAP_CHECK_INT(order[i], i);
    }
    bench_close(&bench);
}

/* ---- failures ------------------------------------------------------------ */

static void check_failing(const struct zo_executor_options *options,
                          int failing)
{
    struct parts parts = {.parts = 6, .failing_part = failing};
    struct parts after = {.parts = 3};
    atomic_int ran = 0;
    const struct act counts = {.counts = &ran};
    enum zo_status status;
    struct bench bench;

    bench_init(&bench, 1);
    bench_list(&bench);
    add_parts(&bench, &parts, bench.host);
    add_parts(&bench, &after, bench.host);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_H2D, 0, 0, bench.host, bench.gpu[0]},
              &counts);
    TAP_CHECK_INT(bench_open(&bench, options), ZO_OK);
    status = bench_start(&bench, 0, NULL);
    TAP_CHECK(status == ZO_E_NUMERIC || !options->is_serial);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_E_NUMERIC);
    TAP_CHECK(strstr(zo_err_last()->text, "part") != NULL);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_E_NUMERIC);
    TAP_CHECK_INT(atomic_load(&ran), 0);
    TAP_CHECK_INT(ran_in_all(&after), 0);
    TAP_CHECK_INT(atomic_load(&parts.ran[failing - 1]), 1);
    for (int i = 0; i < parts.parts; i++) {
        TAP_CHECK(atomic_load(&parts.ran[i]) <= 1);
        if (options->is_serial) {
            TAP_CHECK_INT(atomic_load(&parts.ran[i]), i < failing);
        }
    }
    bench_close(&bench);
}

static void test_failing_part(void)
{
    for (int failing = 1; failing <= 6; failing++) {
        check_failing(&one_worker, failing);
        check_failing(&four_workers, failing);
        check_failing(&serial, failing);
    }
}

/* ---- issued ahead -------------------------------------------------------- */

enum { LONG = 3000, AHEAD = 64 }; /* AHEAD_MAX of executor.c */

static void check_long(const struct zo_executor_options *options)
{
    atomic_int ran = 0;
    const struct act counts = {.counts = &ran};
    struct bench bench;

    bench_init(&bench, 1);
    bench_list(&bench);
    for (int i = 0; i < LONG; i++) {
        /* One lane, and now and then something else before or behind it. */
        bench_add(&bench,
                  &(struct what){i % 100 == 50   ? ZO_ENGINE_D2H
                                 : i % 100 == 51 ? ZO_ENGINE_CPU
                                 : i % 100 == 52 ? ZO_ENGINE_H2D
                                                 : ZO_ENGINE_COMPUTE,
                                 0, 0, bench.host,
                                 i % 10 == 0 ? bench.host : ZO_NO_BUFFER},
                  &counts);
    }
    TAP_CHECK_INT(bench_open(&bench, options), ZO_OK);
    for (int list = 0; list < 3; list++) {
        TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    }
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_OK);
    TAP_CHECK_INT(atomic_load(&ran), 3 * LONG);
    bench_close(&bench);
}

static void test_long_lists(void)
{
    check_long(&one_worker);
    check_long(&four_workers);
}

/* Events that nobody sees passed until an operation elsewhere has run. */
static atomic_int ran_elsewhere;

static enum zo_status query_late(struct zo_event *event, bool *done_out)
{
    if (atomic_load(&ran_elsewhere) == 0) {
        *done_out = false;
        return ZO_OK;
    }
    return zo_device_host.event_query(event, done_out);
}

/* A lane takes so many at once; the other lanes are not held up. */
static void test_issued_ahead(void)
{
    struct zo_device_ops late = zo_device_host;
    atomic_int ran = 0;
    const struct act counts = {.counts = &ran};
    const struct act elsewhere = {.counts = &ran_elsewhere};
    struct zo_executor_counters counters;
    struct bench bench;

    late.event_query = query_late;
    bench_init(&bench, 1);
    bench.machine.device_ops = &late;
    bench_list(&bench);
    for (int i = 0; i < LONG; i++) {
        bench_add(
            &bench,
            &(struct what){ZO_ENGINE_COMPUTE, 0, 0, ZO_NO_BUFFER, ZO_NO_BUFFER},
            &counts);
    }
    bench_list(&bench);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_D2H, 0, 0, ZO_NO_BUFFER, bench.host},
              &elsewhere);
    TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    zo_executor_counters(bench.executor, &counters);
    TAP_CHECK_INT(counters.ops[ZO_ENGINE_COMPUTE], AHEAD);
    TAP_CHECK_INT(bench_start(&bench, 1, NULL), ZO_OK);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_OK);
    TAP_CHECK_INT(atomic_load(&ran), LONG);
    TAP_CHECK_INT(atomic_load(&ran_elsewhere), 1);
    zo_executor_counters(bench.executor, &counters);
    TAP_CHECK_INT(counters.ops[ZO_ENGINE_COMPUTE], LONG);
    bench_close(&bench);
}

/* ---- what is moved ------------------------------------------------------- */

/* Says how many bytes it moves, in two parts. */
static enum zo_status run_moving(const struct zo_op_call *call)
{
    static const struct act nothing = {0};

    *call->moved_bytes += (uint64_t)call->op->args[0];
    *call->moved_bytes += (uint64_t)call->op->args[1];
    return bench_queue_act(call->streams[0], &nothing);
}

static void check_moved(const struct zo_executor_options *options)
{
    static const enum zo_engine engines[] = {ZO_ENGINE_H2D, ZO_ENGINE_D2H,
                                             ZO_ENGINE_COMPUTE, ZO_ENGINE_H2D,
                                             ZO_ENGINE_H2D};
    static const int64_t moved[][2] = {
        {100, 20}, {3, 4000}, {0, 0}, {(int64_t)1 << 40, 5}, {0, 0}};
    struct zo_executor_counters counters;
    struct bench bench;

    bench_init(&bench, 1);
    bench_list(&bench);
    for (size_t i = 0; i < TAP_COUNT(engines); i++) {
        const struct zo_op op = {.name = "moves",
                                 .run = run_moving,
                                 .args = {moved[i][0], moved[i][1]},
                                 .engine = engines[i]};
        const struct zo_access access =
            zo_whole(&bench.program, bench.gpu[0], ZO_READ_WRITE);

        TAP_CHECK_INT(zo_schedule_add(&bench.program, 0, &op, &access, 1),
                      ZO_OK);
    }
    TAP_CHECK_INT(bench_open(&bench, options), ZO_OK);
    for (int list = 1; list <= 3; list++) {
        TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
        TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_OK);
        zo_executor_counters(bench.executor, &counters);
        TAP_CHECK_INT(counters.bytes[ZO_ENGINE_H2D],
                      list * (((int64_t)1 << 40) + 125));
        TAP_CHECK_INT(counters.bytes[ZO_ENGINE_D2H], list * 4003);
        TAP_CHECK_INT(counters.bytes[ZO_ENGINE_COMPUTE], 0);
        TAP_CHECK_INT(counters.ops[ZO_ENGINE_H2D], 3 * list);
    }
    bench_close(&bench);
}

static void test_moved(void)
{
    check_moved(&bench_workers);
    check_moved(&serial);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"each part of an operation runs once", test_each_once},
        {"parts run at once, on several workers", test_at_once},
        {"an operation is done when its last part is", test_done_with_the_last},
        {"what is more urgent runs between two parts",
         test_urgent_between_parts},
        {"the serial mode runs parts in their order", test_serial_order},
        {"a part that fails fails the run; what follows does not run",
         test_failing_part},
        {"lists longer than what is issued ahead end", test_long_lists},
        {"a lane that is held up holds up no other", test_issued_ahead},
        {"bytes that copies move are counted", test_moved},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
