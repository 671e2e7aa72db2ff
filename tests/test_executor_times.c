/*
 * When operations ran: spans keep the order that the executor keeps, and
 * engines are never busier than there is time.
 *
 * Method: random programs on host devices with random delays, two lists under
 * way; what must have waited for what is derived apart.
 */
#include <stdlib.h>
#include <string.h>

#include "offload/executor.h"
#include "offload/layout.h"
#include "src/base/clock.h"
#include "src/base/memory.h"
#include "tests/executor_bench.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

#define LISTS_MAX 6
#define OPS_MAX   64

/* The spans of a sequence, by instance from 0. */
struct record {
    struct zo_op_span spans[LISTS_MAX * OPS_MAX];
    bool is_there[LISTS_MAX * OPS_MAX];
    size_t count;
    struct zo_executor_counters lists[LISTS_MAX], all;
    int64_t begin_ns, end_ns;
};

/* Of the list that was started with a slot; its first instance is `first`. */
static bool keep_list(struct zo_executor *executor,
                      const struct zo_schedule *list, int slot, size_t first,
                      struct record *record)
{
    struct zo_op_span spans[OPS_MAX];
    const size_t count = zo_executor_spans(executor, slot, spans);
    bool is_whole = count == list->op_count;

    for (size_t s = 0; s < count; s++) {
        is_whole = is_whole && spans[s].op < list->op_count &&
                   !record->is_there[first + spans[s].op];
        if (is_whole) {
            record->spans[first + spans[s].op] = spans[s];
            record->is_there[first + spans[s].op] = true;
        }
    }
    return is_whole;
}

/* One list ahead, as the trainer does. */
static enum zo_status run(struct zo_executor *executor,
                          const struct zo_program *program,
                          const struct zo_sequence_item *items, size_t count,
                          struct record *record)
{
    uint64_t tickets[LISTS_MAX];

    *record = (struct record){.begin_ns = zo_clock_ns()};
    for (size_t i = 0; i <= count; i++) {
        int slot = 0;

        if (i < count) {
            ZO_TRY(zo_executor_acquire(executor, &slot));
            ZO_TRY(zo_executor_start(executor, items[i].schedule, &tickets[i]));
        }
        if (i > 0) {
            const struct zo_schedule *list =
                &program->schedules[items[i - 1].schedule];

            ZO_TRY(zo_executor_wait(executor, tickets[i - 1]));
            if (!keep_list(executor, list, items[i - 1].slot, record->count,
                           record)) {
                return ZO_FAIL(ZO_E_ARG, "list %zu has not all spans", i - 1);
            }
            zo_executor_list_counters(executor, items[i - 1].slot,
                                      &record->lists[i - 1]);
            record->count += list->op_count;
        }
    }
    record->end_ns = zo_clock_ns();
    zo_executor_counters(executor, &record->all);
    return ZO_OK;
}

static const struct zo_op *op_at(const struct zo_program *program,
                                 const struct zo_sequence_item *items,
                                 size_t instance)
{
    while (instance >= program->schedules[items->schedule].op_count) {
        instance -= program->schedules[items->schedule].op_count;
        items++;
    }
    return &program->schedules[items->schedule].ops[instance];
}

/* Nothing begins before all that it waits for has ended. */
static bool keeps_order(const struct zo_program *program,
                        const struct zo_sequence_item *items, size_t count,
                        const struct record *record)
{
    struct zo_edges edges = {0};
    bool is_kept = true;

    if (zo_edges_derive(program, items, count, &edges) != ZO_OK) {
        return false;
    }
    for (size_t i = 0; i < edges.count; i++) {
        is_kept =
            is_kept && record->spans[i].begin_ns <= record->spans[i].end_ns;
        for (size_t e = edges.first[i]; e < edges.first[i + 1]; e++) {
            is_kept = is_kept && record->spans[edges.preds[e]].end_ns <=
                                     record->spans[i].begin_ns;
        }
    }
    zo_edges_fini(&edges);
    return is_kept;
}

/* In a lane one ends before the next begins; of a worker no two overlap. */
static bool lanes_are_free(const struct zo_program *program,
                           const struct zo_sequence_item *items,
                           const struct record *record)
{
    for (size_t i = 0; i < record->count; i++) {
        const struct zo_op *op = op_at(program, items, i);
        const struct zo_op_span *a = &record->spans[i];

        for (size_t j = i + 1; j < record->count; j++) {
            const struct zo_op *other = op_at(program, items, j);
            const struct zo_op_span *b = &record->spans[j];
            const bool is_same =
                zo_lane_of(program, op) == zo_lane_of(program, other) &&
                a->worker == b->worker;

            if (is_same && a->end_ns > b->begin_ns && b->end_ns > a->begin_ns) {
                return false;
            }
        }
    }
    return true;
}

/* Sums of the spans of stream engines; and no engine beyond its time. */
static bool sums_agree(const struct zo_program *program,
                       const struct zo_sequence_item *items, size_t lists,
                       const struct record *record)
{
    uint64_t spans_ns[ZO_ENGINES] = {0};
    bool agree = true;

    for (size_t i = 0; i < record->count; i++) {
        spans_ns[op_at(program, items, i)->engine] +=
            (uint64_t)(record->spans[i].end_ns - record->spans[i].begin_ns);
    }
    for (int e = 0; e < ZO_ENGINES; e++) {
        const uint64_t wall_ns = (uint64_t)(record->end_ns - record->begin_ns);
        const uint64_t lanes =
            e < ZO_ENGINE_COLLECTIVE ? (uint64_t)program->device_count : 1;
        uint64_t lists_ns = 0;

        for (size_t i = 0; i < lists; i++) {
            lists_ns += record->lists[i].busy_ns[e];
            agree = agree && record->lists[i].busy_ns[e] <= wall_ns * lanes;
        }
        agree = agree && record->all.busy_ns[e] == lists_ns;
        if (zo_engine_is_stream((enum zo_engine)e)) {
            agree =
                agree && lists_ns == spans_ns[e] && lists_ns <= wall_ns * lanes;
        } else {
            agree = agree && lists_ns <= spans_ns[e]; /* workers at once */
        }
    }
    return agree;
}

static void check_random(uint64_t seed, bool is_serial)
{
    static struct record record;
    const struct help_shape shape = {.seed = seed,
                                     .devices = 1 + (int)(seed % 3),
                                     .lists = 1 + (int)(seed % 3),
                                     .ops_max = 20,
                                     .bytes_max = 400,
                                     .nap_us = 60};
    const struct zo_executor_options options = {.cpu_workers =
                                                    1 + (int)(seed % 3),
                                                .is_serial = is_serial,
                                                .records_times = true};
    struct help_random random = help_random_of(seed, "sequence");
    struct zo_sequence_item items[LISTS_MAX];
    struct zo_executor *executor = NULL;
    struct zo_program program;
    struct zo_machine machine;
    enum zo_status status;

    TAP_CHECK_INT(help_program(&shape, &program), ZO_OK);
    help_sequence(&random, &program, items, LISTS_MAX);
    TAP_CHECK_INT(help_machine_open(&machine, program.device_count, seed, 40),
                  ZO_OK);
    TAP_CHECK_INT(zo_executor_open(&program, &machine, &options, &executor),
                  ZO_OK);
    zo_memory_freeze(true);
    status = run(executor, &program, items, LISTS_MAX, &record);
    zo_memory_freeze(false);
    if (status != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    } else if (!keeps_order(&program, items, LISTS_MAX, &record)) {
        tap_fail(__FILE__, __LINE__, "seed %d: order", (int)seed);
    } else if (!lanes_are_free(&program, items, &record)) {
        tap_fail(__FILE__, __LINE__, "seed %d: lanes", (int)seed);
    } else if (!sums_agree(&program, items, LISTS_MAX, &record)) {
        tap_fail(__FILE__, __LINE__, "seed %d: sums", (int)seed);
    }
    zo_executor_close(executor);
    help_machine_close(&machine);
    zo_program_fini(&program);
}

static void test_random(void)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        check_random(seed, false);
    }
}

static void test_random_serial(void)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        check_random(seed, true);
    }
}

/* Waiting for another lane is not working: a copy that follows a held product
 * begins behind it. */
static void test_waiting_is_idle(void)
{
    const struct zo_executor_options options = {.cpu_workers = 1,
                                                .records_times = true};
    struct help_gate gate = HELP_GATE;
    const struct act held = {.passes = &gate}, plain = {.number = 1};
    struct zo_op_span spans[2];
    struct bench bench;
    uint64_t ticket = 0;
    int64_t opened_ns;

    bench_init(&bench, 1);
    bench_list(&bench);
    bench_add(
        &bench,
        &(struct what){ZO_ENGINE_COMPUTE, 0, 0, ZO_NO_BUFFER, bench.gpu[0]},
        &held);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_D2H, 0, 0, bench.gpu[0], bench.host},
              &plain);
    TAP_CHECK_INT(bench_open(&bench, &options), ZO_OK);
    TAP_CHECK_INT(zo_executor_spans_max(bench.executor), 2);
    TAP_CHECK_INT(bench_start(&bench, 0, &ticket), ZO_OK);
    help_gate_wait_entered(&gate);
    TAP_CHECK_INT(zo_executor_spans(bench.executor, 0, spans), 0);
    opened_ns = zo_clock_ns();
    help_gate_open(&gate);
    TAP_CHECK_INT(zo_executor_wait(bench.executor, ticket), ZO_OK);
    TAP_CHECK_INT(zo_executor_spans(bench.executor, 0, spans), 2);
    TAP_CHECK_INT(spans[0].op, 0);
    TAP_CHECK_INT(spans[1].op, 1);
    TAP_CHECK(spans[0].begin_ns < opened_ns && spans[0].end_ns >= opened_ns);
    TAP_CHECK(spans[1].begin_ns >= spans[0].end_ns);
    bench_close(&bench);
}

/* Two workers at once are one busy engine. */
static void test_workers_at_once(void)
{
    const struct zo_executor_options options = {.cpu_workers = 2,
                                                .records_times = true};
    struct help_gate there = HELP_GATE, back = HELP_GATE;
    const struct act first = {.opens = &there, .passes = &back},
                     second = {.opens = &back, .passes = &there};
    struct zo_executor_counters counters;
    struct zo_op_span spans[2];
    struct bench bench;
    uint64_t ticket = 0;
    int64_t begin_ns, end_ns;

    bench_init(&bench, 1);
    bench_list(&bench);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_CPU, 0, 0, ZO_NO_BUFFER, bench.host},
              &first);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_CPU, 0, 0, ZO_NO_BUFFER, bench.other},
              &second);
    TAP_CHECK_INT(bench_open(&bench, &options), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, &ticket), ZO_OK);
    TAP_CHECK_INT(zo_executor_wait(bench.executor, ticket), ZO_OK);
    TAP_CHECK_INT(zo_executor_spans(bench.executor, 0, spans), 2);
    TAP_CHECK_INT(spans[0].worker + spans[1].worker, 1);
    begin_ns = spans[0].begin_ns < spans[1].begin_ns ? spans[0].begin_ns
                                                     : spans[1].begin_ns;
    end_ns =
        spans[0].end_ns > spans[1].end_ns ? spans[0].end_ns : spans[1].end_ns;
    zo_executor_list_counters(bench.executor, 0, &counters);
    TAP_CHECK_INT((int64_t)counters.busy_ns[ZO_ENGINE_CPU], end_ns - begin_ns);
    bench_close(&bench);
}

/* Without records_times: no spans, and the CPU engine is timed all the same. */
static void test_without(void)
{
    const struct act plain = {.number = 1};
    struct zo_executor_counters counters;
    struct zo_op_span spans[1];
    struct bench bench;
    uint64_t ticket = 0;

    bench_init(&bench, 1);
    bench_list(&bench);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_H2D, 0, 0, bench.host, bench.gpu[0]},
              &plain);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_CPU, 0, 0, ZO_NO_BUFFER, bench.other},
              &plain);
    TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
    TAP_CHECK_INT(zo_executor_spans_max(bench.executor), 0);
    TAP_CHECK_INT(bench_start(&bench, 0, &ticket), ZO_OK);
    TAP_CHECK_INT(zo_executor_wait(bench.executor, ticket), ZO_OK);
    TAP_CHECK_INT(zo_executor_spans(bench.executor, 0, spans), 0);
    zo_executor_list_counters(bench.executor, 0, &counters);
    TAP_CHECK_INT((int64_t)counters.busy_ns[ZO_ENGINE_H2D], 0);
    TAP_CHECK(counters.busy_ns[ZO_ENGINE_CPU] > 0);
    TAP_CHECK_INT((int64_t)counters.bytes[ZO_ENGINE_H2D], BENCH_BYTES);
    TAP_CHECK_INT((int64_t)counters.ops[ZO_ENGINE_H2D], 1);
    bench_close(&bench);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"spans of random programs keep their order, lanes and sums",
         test_random},
        {"so do those of the serial mode", test_random_serial},
        {"waiting for another lane is not being busy", test_waiting_is_idle},
        {"workers at once are one busy engine", test_workers_at_once},
        {"without times there are no spans", test_without},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
