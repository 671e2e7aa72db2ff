/*
 * The executor on host devices with random delays: the results of any program
 * are those of its serial meaning, bit for bit.
 *
 * Method: operations hash all that they read into all that they write, so
 * whoever reads too early, or writes too early, changes what comes out.  What
 * must not be held up by something else waits at a gate that the other opens.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "offload/executor.h"
#include "offload/layout.h"
#include "src/base/memory.h"
#include "tests/executor_bench.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

/* ---- random programs ----------------------------------------------------- */

/* Runs the sequence in both ways; true if every byte agrees. */
static bool runs_as_meant(const struct zo_program *program,
                          const struct zo_sequence_item *items, size_t count,
                          uint64_t seed, uint32_t delay_us_max)
{
    const struct zo_executor_options serial = {.cpu_workers = 1,
                                               .is_serial = true};
    const struct zo_executor_options options = {.cpu_workers =
                                                    1 + (int)(seed % 3)};
    struct zo_executor *meant = NULL, *run = NULL;
    struct zo_machine calm, hasty;
    bool is_same = false;

    if (help_machine_open(&calm, program->device_count, 1, 0) == ZO_OK &&
        help_machine_open(&hasty, program->device_count, seed, delay_us_max) ==
            ZO_OK &&
        zo_executor_open(program, &calm, &serial, &meant) == ZO_OK &&
        zo_executor_open(program, &hasty, &options, &run) == ZO_OK &&
        help_run(meant, items, count) == ZO_OK &&
        help_run(run, items, count) == ZO_OK) {
        is_same = help_same_memory(meant, run);
    } else {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    zo_executor_close(meant);
    zo_executor_close(run);
    help_machine_close(&calm);
    help_machine_close(&hasty);
    return is_same;
}

static void test_random(void)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        const struct help_shape shape = {.seed = seed,
                                         .devices = 1 + (int)(seed % 4),
                                         .lists = 1 + (int)(seed % 3),
                                         .ops_max = 14,
                                         .bytes_max = 400,
                                         .nap_us = 60};
        struct help_random random = help_random_of(seed, "sequence");
        struct zo_sequence_item items[8];
        struct zo_program program;
        bool is_same;

        TAP_CHECK_INT(help_program(&shape, &program), ZO_OK);
        help_sequence(&random, &program, items, TAP_COUNT(items));
        is_same =
            runs_as_meant(&program, items, TAP_COUNT(items), seed, seed % 40);
        zo_program_fini(&program);
        if (!is_same) {
            tap_fail(__FILE__, __LINE__, "seed %d", (int)seed);
            return;
        }
    }
}

static void test_many_lists(void)
{
    const struct help_shape shape = {.seed = 12,
                                     .devices = 2,
                                     .lists = 3,
                                     .ops_max = 12,
                                     .bytes_max = 200,
                                     .nap_us = 20};
    struct help_random random = help_random_of(12, "sequence");
    struct zo_sequence_item items[150];
    struct zo_program program;

    TAP_CHECK_INT(help_program(&shape, &program), ZO_OK);
    help_sequence(&random, &program, items, TAP_COUNT(items));
    TAP_CHECK(runs_as_meant(&program, items, TAP_COUNT(items), 12, 10));
    zo_program_fini(&program);
}

/* ---- who waits for what -------------------------------------------------- */

/* A stream waits for a stream, not the issuing thread; the CPU waits. */
static void test_issuing(void)
{
    struct help_gate gate = HELP_GATE;
    const struct act gated = {.passes = &gate}, plain = {0};
    struct zo_executor_counters counters;
    struct bench bench;

    bench_init(&bench, 2);
    bench_list(&bench);
    bench_add(
        &bench,
        &(struct what){ZO_ENGINE_COMPUTE, 0, 0, ZO_NO_BUFFER, bench.gpu[0]},
        &gated);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_D2H, 0, 0, bench.gpu[0], bench.host},
              &plain);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_H2D, 1, 0, bench.host, bench.gpu[1]},
              &plain);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_CPU, 0, 0, bench.host, bench.other},
              &plain);
    TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    zo_executor_counters(bench.executor, &counters);
    TAP_CHECK_INT(counters.ops[ZO_ENGINE_COMPUTE], 1);
    TAP_CHECK_INT(counters.ops[ZO_ENGINE_D2H], 1);
    TAP_CHECK_INT(counters.ops[ZO_ENGINE_H2D], 1);
    TAP_CHECK_INT(counters.ops[ZO_ENGINE_CPU], 0);
    help_gate_open(&gate);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_OK);
    zo_executor_counters(bench.executor, &counters);
    TAP_CHECK_INT(counters.ops[ZO_ENGINE_CPU], 1);
    TAP_CHECK_INT(counters.bytes[ZO_ENGINE_D2H], BENCH_BYTES);
    TAP_CHECK_INT(counters.bytes[ZO_ENGINE_H2D], BENCH_BYTES);
    TAP_CHECK(!help_gate_failed(&gate));
    bench_close(&bench);
}

/* What shares nothing overtakes: each opens the gate of the one before. */
static void test_overtaking(void)
{
    struct help_gate gates[3] = {HELP_GATE, HELP_GATE, HELP_GATE};
    const struct act acts[] = {
        {.passes = &gates[0]},
        {.passes = &gates[1], .opens = &gates[0]},
        {.passes = &gates[2], .opens = &gates[1]},
        {.opens = &gates[2]},
    };
    struct bench bench;

    bench_init(&bench, 1);
    bench_list(&bench);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_CPU, 0, 0, ZO_NO_BUFFER, bench.host},
              &acts[0]);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_CPU, 0, 0, ZO_NO_BUFFER, bench.other},
              &acts[1]);
    bench_add(
        &bench,
        &(struct what){ZO_ENGINE_COMPUTE, 0, 0, ZO_NO_BUFFER, ZO_NO_BUFFER},
        &acts[2]);
    bench_list(&bench); /* the next list, while this one is stuck */
    bench_add(&bench,
              &(struct what){ZO_ENGINE_D2H, 0, 0, ZO_NO_BUFFER, bench.gpu[0]},
              &acts[3]);
    TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 1, NULL), ZO_OK);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_OK);
    for (int i = 0; i < 3; i++) {
        TAP_CHECK(!help_gate_failed(&gates[i]));
    }
    bench_close(&bench);
}

static void test_wait_for_one(void)
{
    struct help_gate gates[2] = {HELP_GATE, HELP_GATE};
    atomic_int done = 0;
    const struct act first = {.counts = &done};
    const struct act second = {.passes = &gates[0]};
    uint64_t tickets[2];
    struct bench bench;

    bench_init(&bench, 1);
    bench_list(&bench);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_D2H, 0, 0, ZO_NO_BUFFER, bench.host},
              &first);
    bench_list(&bench);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_COMPUTE, 0, 0, bench.host, bench.gpu[0]},
              &second);
    TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, &tickets[0]), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 1, &tickets[1]), ZO_OK);
    TAP_CHECK_INT(zo_executor_wait(bench.executor, tickets[0]), ZO_OK);
    TAP_CHECK_INT(atomic_load(&done), 1);
    TAP_CHECK(!help_gate_failed(&gates[0])); /* it had not to be waited for */
    help_gate_open(&gates[0]);
    TAP_CHECK_INT(zo_executor_wait(bench.executor, tickets[1]), ZO_OK);
    TAP_CHECK(tickets[0] < tickets[1]);
    bench_close(&bench);
}

static void *open_later(void *argument)
{
    const struct timespec pause = {0, 30000000};

    (void)nanosleep(&pause, NULL);
    help_gate_open(argument);
    return NULL;
}

/* A slot is free when the list that had it is done, not earlier. */
static void test_acquire(void)
{
    struct help_gate gates[2] = {HELP_GATE, HELP_GATE};
    atomic_int done[2] = {0, 0};
    const struct act acts[2] = {{.passes = &gates[0], .counts = &done[0]},
                                {.passes = &gates[1], .counts = &done[1]}};
    pthread_t opener;
    struct bench bench;
    int slot = -1;

    bench_init(&bench, 1);
    for (int i = 0; i < 2; i++) {
        bench_list(&bench);
        bench_add(&bench,
                  &(struct what){ZO_ENGINE_CPU, 0, 0, ZO_NO_BUFFER,
                                 i == 0 ? bench.host : bench.other},
                  &acts[i]);
    }
    TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
    for (int i = 0; i < 2; i++) {
        TAP_CHECK_INT(zo_executor_acquire(bench.executor, &slot), ZO_OK);
        TAP_CHECK_INT(slot, i);
        TAP_CHECK_INT(zo_executor_acquire(bench.executor, &slot), ZO_OK);
        TAP_CHECK_INT(slot, i); /* the same until it is used */
        TAP_CHECK_INT(zo_executor_start(bench.executor, i, NULL), ZO_OK);
    }
    TAP_CHECK_INT(pthread_create(&opener, NULL, open_later, &gates[0]), 0);
    TAP_CHECK_INT(zo_executor_acquire(bench.executor, &slot), ZO_OK);
    TAP_CHECK_INT(slot, 0);
    TAP_CHECK_INT(atomic_load(&done[0]), 1); /* the first is done, */
    TAP_CHECK_INT(atomic_load(&done[1]), 0); /* the second need not be */
    help_gate_open(&gates[1]);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_OK);
    TAP_CHECK_INT(pthread_join(opener, NULL), 0);
    TAP_CHECK(!help_gate_failed(&gates[0]) && !help_gate_failed(&gates[1]));
    bench_close(&bench);
}

/* One worker, held while the others become ready. */
static void test_priorities(void)
{
    enum { OPS = 8 };
    static const int priorities[OPS] = {5, 2, 7, 2, -1, 5, 0, 2};
    static const int want[OPS] = {4, 6, 1, 3, 7, 0, 5, 2};
    struct help_gate gate = HELP_GATE;
    const struct act first = {.passes = &gate};
    const struct zo_executor_options options = {.cpu_workers = 1};
    struct act acts[OPS];
    int order[OPS], count = 0;
    struct bench bench;

    bench_init(&bench, 1);
    bench_list(&bench);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_CPU, 0, 9, ZO_NO_BUFFER, bench.host},
              &first);
    bench_list(&bench);
    for (int i = 0; i < OPS; i++) {
        acts[i] =
            (struct act){.order = order, .order_count = &count, .number = i};
        bench_add(&bench,
                  &(struct what){ZO_ENGINE_CPU, 0, priorities[i], bench.other,
                                 ZO_NO_BUFFER},
                  &acts[i]);
    }
    TAP_CHECK_INT(bench_open(&bench, &options), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    help_gate_wait_entered(&gate);
    TAP_CHECK_INT(bench_start(&bench, 1, NULL), ZO_OK);
    help_gate_open(&gate);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_OK);
    TAP_CHECK_INT(count, OPS);
    for (int i = 0; i < OPS; i++) {
        TAP_CHECK_INT(order[i], want[i]);
    }
    TAP_CHECK(!help_gate_failed(&gate));
    bench_close(&bench);
}

/* Two acts, one a device. */
static enum zo_status run_apart(const struct zo_op_call *call)
{
    const struct act *acts = call->op->context;

    ZO_TRY(bench_queue_act(call->streams[0], &acts[0]));
    return bench_queue_act(call->streams[1], &acts[1]);
}

static void add_apart(struct bench *bench, const struct act *acts)
{
    const struct zo_op op = {.name = "apart",
                             .run = run_apart,
                             .context = acts,
                             .engine = ZO_ENGINE_COLLECTIVE};
    const struct zo_access access = {bench->host, ZO_READ_WRITE, 0, 1};

    TAP_CHECK_INT(zo_schedule_add(&bench->program, 0, &op, &access, 1), ZO_OK);
}

/* Runs the list, whose gate opens after a while. */
static void run_gated(struct bench *bench, struct help_gate *gate)
{
    pthread_t opener;

    TAP_CHECK_INT(bench_open(bench, &bench_workers), ZO_OK);
    TAP_CHECK_INT(bench_start(bench, 0, NULL), ZO_OK);
    TAP_CHECK_INT(pthread_create(&opener, NULL, open_later, gate), 0);
    TAP_CHECK_INT(zo_executor_drain(bench->executor), ZO_OK);
    TAP_CHECK_INT(pthread_join(opener, NULL), 0);
    TAP_CHECK(!help_gate_failed(gate));
}

/* The part of device 1 is late; that of device 0 does not stand for it. */
static void test_waiting_for_parts(void)
{
    struct help_gate gate = HELP_GATE;
    atomic_int done = 0;
    int seen[2] = {-1, -1};
    const struct act parts[2] = {{0}, {.passes = &gate, .counts = &done}};
    const struct act looks[2] = {{.looks_at = &done, .seen = &seen[0]},
                                 {.looks_at = &done, .seen = &seen[1]}};
    struct bench bench;

    bench_init(&bench, 2);
    bench_list(&bench);
    add_apart(&bench, parts);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_COMPUTE, 0, 0, bench.host, ZO_NO_BUFFER},
              &looks[0]);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_CPU, 0, 0, bench.host, ZO_NO_BUFFER},
              &looks[1]);
    run_gated(&bench, &gate);
    TAP_CHECK_INT(seen[0], 1);
    TAP_CHECK_INT(seen[1], 1);
    bench_close(&bench);
}

static void test_parts_waiting(void)
{
    struct help_gate gate = HELP_GATE;
    atomic_int done = 0;
    int seen[2] = {-1, -1};
    const struct act first = {.passes = &gate, .counts = &done};
    const struct act parts[2] = {{.looks_at = &done, .seen = &seen[0]},
                                 {.looks_at = &done, .seen = &seen[1]}};
    struct bench bench;

    bench_init(&bench, 2);
    bench_list(&bench);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_D2H, 0, 0, ZO_NO_BUFFER, bench.host},
              &first);
    add_apart(&bench, parts);
    run_gated(&bench, &gate);
    TAP_CHECK_INT(seen[0], 1);
    TAP_CHECK_INT(seen[1], 1);
    bench_close(&bench);
}

/* More predecessors than are kept: the write waits for all before it. */
static void test_barrier(void)
{
    enum { READERS = 100 };
    struct zo_program program;
    const struct zo_sequence_item items[] = {{0, 0}, {0, 1}, {0, 0}, {0, 1}};
    struct zo_buffer buffer = {.name = "a buffer",
                               .tier = ZO_TIER_CPU,
                               .unit = -1,
                               .schedule = -1,
                               .bytes = 8 * READERS,
                               .has_slots = true};
    zo_buffer_id ids[2];

    zo_program_init(&program, 1);
    TAP_CHECK_INT(zo_program_buffer(&program, &buffer, &ids[0]), ZO_OK);
    buffer.has_slots = false;
    TAP_CHECK_INT(zo_program_buffer(&program, &buffer, &ids[0]), ZO_OK);
    TAP_CHECK_INT(zo_program_buffer(&program, &buffer, &ids[1]), ZO_OK);
    TAP_CHECK_INT(zo_program_schedule(&program, "list"), 0);
    for (int i = 0; i <= READERS; i++) {
        const bool writes = i == READERS;
        const struct zo_op op = {.name = "mix",
                                 .run = help_mix,
                                 .context = &program,
                                 .args = {0, i, 50},
                                 .engine =
                                     writes ? ZO_ENGINE_H2D : ZO_ENGINE_CPU};
        const struct zo_access accesses[] = {
            {ids[0], writes ? ZO_READ_WRITE : ZO_READ, 0, 8 * READERS},
            {ids[1], ZO_WRITE, writes ? 0 : 8 * (uint64_t)i, 8}};

        TAP_CHECK_INT(
            zo_schedule_add(&program, 0, &op, accesses, writes ? 1 : 2), ZO_OK);
    }
    TAP_CHECK_INT(zo_layout(&program), ZO_OK);
    TAP_CHECK(runs_as_meant(&program, items, TAP_COUNT(items), 2, 0));
    zo_program_fini(&program);
}

/* ---- memory -------------------------------------------------------------- */

static void test_memory(void)
{
    unsigned char bytes[BENCH_BYTES], back[BENCH_BYTES];
    struct bench bench;
    zo_buffer_id slots;
    const struct act nothing = {0};

    bench_init(&bench, 2);
    slots = bench_buffer(&bench, ZO_TIER_CPU, 0, true);
    bench_list(&bench);
    bench_add(&bench, &(struct what){ZO_ENGINE_CPU, 0, 0, slots, ZO_NO_BUFFER},
              &nothing);
    TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
    for (int i = 0; i < 3; i++) {
        const zo_buffer_id id = i < 2 ? bench.gpu[i] : bench.host;

        memset(back, 1, sizeof(back));
        TAP_CHECK_INT(
            zo_executor_download(bench.executor, back, id, 0, BENCH_BYTES),
            ZO_OK);
        for (int k = 0; k < BENCH_BYTES; k++) {
            TAP_CHECK_INT(back[k], 0); /* arenas start as zeros */
            bytes[k] = (unsigned char)(7 * k + i);
        }
        TAP_CHECK_INT(
            zo_executor_upload(bench.executor, id, 0, bytes, BENCH_BYTES),
            ZO_OK);
        TAP_CHECK_INT(zo_executor_upload(bench.executor, id, 5, bytes, 2),
                      ZO_OK);
        TAP_CHECK_INT(zo_executor_download(bench.executor, back, id, 4, 8),
                      ZO_OK);
        TAP_CHECK_INT(back[0], bytes[4]);
        TAP_CHECK_INT(back[1], bytes[0]);
        TAP_CHECK_INT(back[2], bytes[1]);
        TAP_CHECK_INT(back[3], bytes[7]);
    }
    TAP_CHECK_INT((char *)zo_executor_address(bench.executor, slots, 1) -
                      (char *)zo_executor_address(bench.executor, slots, 0),
                  ZO_ALIGN_BYTES);
    bench_close(&bench);
}

/* ---- counters ------------------------------------------------------------ */

/* The serial mode counts as the other does, and takes times. */
static void test_times(void)
{
    const struct zo_executor_options options = {
        .cpu_workers = 1, .is_serial = true, .times_ops = true};
    atomic_int count = 0;
    const struct act counts = {.counts = &count};
    const struct zo_op_time *times;
    struct zo_executor_counters counters;
    struct bench bench;
    size_t names = 9;

    bench_init(&bench, 1);
    bench_list(&bench);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_D2H, 0, 0, bench.gpu[0], bench.host},
              &counts);
    bench_add(&bench,
              &(struct what){ZO_ENGINE_CPU, 0, 0, bench.host, ZO_NO_BUFFER},
              &counts);
    TAP_CHECK_INT(bench_open(&bench, &options), ZO_OK);
    (void)zo_executor_op_times(bench.executor, &names);
    TAP_CHECK_INT(names, 0);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    TAP_CHECK_INT(atomic_load(&count), 4); /* done when start returns */
    times = zo_executor_op_times(bench.executor, &names);
    TAP_CHECK_INT(names, 1); /* all have one name */
    TAP_CHECK_INT(times[0].count, 4);
    TAP_CHECK(times[0].busy_ns > 0);
    zo_executor_counters(bench.executor, &counters);
    TAP_CHECK_INT(counters.ops[ZO_ENGINE_D2H], 2);
    TAP_CHECK_INT(counters.ops[ZO_ENGINE_CPU], 2);
    TAP_CHECK_INT(counters.bytes[ZO_ENGINE_D2H], 2 * BENCH_BYTES);
    zo_executor_reset_op_times(bench.executor);
    (void)zo_executor_op_times(bench.executor, &names);
    TAP_CHECK_INT(names, 0);
    bench_close(&bench);
}

static enum zo_status add_up(const struct zo_op_call *call)
{
    unsigned char *sum = call->at[0];

    for (uint32_t a = 1; a < call->op->access_count; a++) {
        sum[0] = (unsigned char)(sum[0] + *(unsigned char *)call->at[a]);
    }
    return ZO_OK;
}

/* As many accesses as the reduction over the most devices has. */
static void test_most_accesses(void)
{
    const struct zo_op op = {
        .name = "sum", .run = add_up, .engine = ZO_ENGINE_CPU};
    struct zo_access accesses[ZO_OP_ACCESSES_MAX];
    unsigned char one = 1, sum = 0;
    struct bench bench;

    bench_init(&bench, 1);
    bench_list(&bench);
    accesses[0] = (struct zo_access){bench.host, ZO_WRITE, 0, 1};
    for (int a = 1; a < ZO_OP_ACCESSES_MAX; a++) {
        accesses[a] = (struct zo_access){bench.other, ZO_READ, 3, 1};
    }
    TAP_CHECK_INT(
        zo_schedule_add(&bench.program, 0, &op, accesses, ZO_OP_ACCESSES_MAX),
        ZO_OK);
    TAP_CHECK_INT(bench_open(&bench, &bench_workers), ZO_OK);
    TAP_CHECK_INT(zo_executor_upload(bench.executor, bench.other, 3, &one, 1),
                  ZO_OK);
    TAP_CHECK_INT(bench_start(&bench, 0, NULL), ZO_OK);
    TAP_CHECK_INT(zo_executor_drain(bench.executor), ZO_OK);
    TAP_CHECK_INT(zo_executor_download(bench.executor, &sum, bench.host, 0, 1),
                  ZO_OK);
    TAP_CHECK_INT(sum, (5 * ZO_DEVICES_MAX - 1) & 0xff);
    bench_close(&bench);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"random programs give the bits of their serial meaning", test_random},
        {"so do many lists in a row", test_many_lists},
        {"streams wait for streams; only the CPU waits for what is done",
         test_issuing},
        {"what shares no bytes overtakes, also across lists", test_overtaking},
        {"waiting for a list does not wait for the next", test_wait_for_one},
        {"a slot comes back when its list is done", test_acquire},
        {"CPU operations run by priority, then by age", test_priorities},
        {"a collective is done when all of its parts are",
         test_waiting_for_parts},
        {"all parts of a collective wait", test_parts_waiting},
        {"too many predecessors are still all waited for", test_barrier},
        {"buffers start as zeros and can be read and written", test_memory},
        {"the serial mode counts, and takes times", test_times},
        {"an operation may have as many accesses as devices need",
         test_most_accesses},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
