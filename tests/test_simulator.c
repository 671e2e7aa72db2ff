/*
 * The simulator: planted programs against closed forms, its rules one by one,
 * and random programs against what must hold of any run.
 *
 * Rates are small whole numbers: seconds are then what they look like.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "offload/layout.h"
#include "offload/simulator.h"
#include "src/base/memory.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

#define CHECK_SECONDS(got, want)                                            \
    do {                                                                    \
        const double got_ = (got), want_ = (want);                          \
        if (!(fabs(got_ - want_) <= 1e-9 * (1.0 + fabs(want_)))) {          \
            tap_fail(__FILE__, __LINE__, "%s: got %.12g, want %.12g", #got, \
                     got_, want_);                                          \
            return;                                                         \
        }                                                                   \
    } while (0)

/* ---- planted programs -----------------------------------------------------
 */

enum { BUFFERS = 4, BYTES = 1000 };

struct bench {
    struct zo_program program;
    struct zo_profile profile;
    struct zo_sim_options options;
    struct zo_sim_result result;
    zo_buffer_id gpu[BUFFERS], host[BUFFERS];
    int list;
};

static zo_buffer_id add_buffer(struct bench *bench, enum zo_tier tier)
{
    const struct zo_buffer buffer = {.name = "buffer",
                                     .tier = tier,
                                     .unit = -1,
                                     .schedule = -1,
                                     .bytes = BYTES};

    return help_buffer(&bench->program, &buffer);
}

static void bench_init(struct bench *bench)
{
    *bench = (struct bench){0};
    zo_program_init(&bench->program, 1);
    for (int i = 0; i < BUFFERS; i++) {
        bench->gpu[i] = add_buffer(bench, ZO_TIER_GPU);
        bench->host[i] = add_buffer(bench, ZO_TIER_CPU);
    }
    bench->list = zo_program_schedule(&bench->program, "list");
    zo_profile_init(&bench->profile);
    bench->profile.matrix_flops[ZO_BF16] = 100.0;
    bench->profile.device_bandwidth = 1000.0;
    bench->profile.h2d = bench->profile.d2h = 10.0;
    bench->profile.cpu = 20.0;
    bench->profile.threads = 2;
    bench->options = (struct zo_sim_options){.program = &bench->program,
                                             .profile = &bench->profile,
                                             .type = ZO_BF16};
}

static void bench_fini(struct bench *bench)
{
    zo_sim_result_fini(&bench->result);
    zo_program_fini(&bench->program);
}

static void add(struct bench *bench, struct zo_op op,
                const struct zo_access *accesses, size_t count)
{
    op.name = zo_engine_text(op.engine);
    if (zo_schedule_add(&bench->program, bench->list, &op, accesses, count) !=
        ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
}

/* A copy of `bytes` between buffers of one number. */
static void copy(struct bench *bench, enum zo_engine engine, int i,
                 uint64_t bytes)
{
    const bool is_h2d = engine == ZO_ENGINE_H2D;
    const struct zo_access accesses[] = {
        {is_h2d ? bench->gpu[i] : bench->host[i], ZO_WRITE, 0, bytes},
        {is_h2d ? bench->host[i] : bench->gpu[i], ZO_READ, 0, bytes},
    };

    add(bench, (struct zo_op){.engine = engine}, accesses, 2);
}

/* Products of so many seconds, that read and write a byte. */
static void compute(struct bench *bench, int i, double seconds)
{
    add(bench,
        (struct zo_op){.engine = ZO_ENGINE_COMPUTE, .flops = 100.0 * seconds},
        &(const struct zo_access){bench->gpu[i], ZO_READ_WRITE, 0, 1}, 1);
}

/* Reads and writes half of `touched` bytes each. */
static void update(struct bench *bench, int i, uint64_t touched, int parts,
                   int priority)
{
    add(bench,
        (struct zo_op){
            .engine = ZO_ENGINE_CPU, .parts = parts, .priority = priority},
        &(const struct zo_access){bench->host[i], ZO_READ_WRITE, 0,
                                  touched / 2},
        1);
}

static enum zo_status simulate(struct bench *bench, int times)
{
    struct zo_sequence_item items[16];

    for (int i = 0; i < times; i++) {
        items[i] = (struct zo_sequence_item){bench->list, i % 2};
    }
    if (!bench->program.is_laid_out) {
        ZO_TRY(zo_layout(&bench->program));
    }
    zo_sim_result_fini(&bench->result);
    return zo_simulate(&bench->options, items, (size_t)times, &bench->result);
}

static double end_of(const struct bench *bench, size_t i)
{
    return bench->result.ops[i].end_seconds;
}

/* ---- closed forms ---------------------------------------------------------
 */

static void test_chain(void)
{
    struct bench bench;

    bench_init(&bench);
    copy(&bench, ZO_ENGINE_H2D, 0, 100);
    compute(&bench, 0, 5.0);
    copy(&bench, ZO_ENGINE_D2H, 0, 50);
    update(&bench, 0, 40, 2, 0);
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(bench.result.step_seconds, 10.0 + 5.0 + 5.0 + 2.0);
    CHECK_SECONDS(bench.result.chain_seconds, 22.0);
    CHECK_SECONDS(bench.result.busiest_seconds, 10.0);
    TAP_CHECK_INT(bench.result.busiest, ZO_BOUND_H2D);
    CHECK_SECONDS(bench.result.path_seconds[ZO_BOUND_H2D], 10.0);
    CHECK_SECONDS(bench.result.path_seconds[ZO_BOUND_COMPUTE], 5.0);
    CHECK_SECONDS(bench.result.path_seconds[ZO_BOUND_D2H], 5.0);
    CHECK_SECONDS(bench.result.path_seconds[ZO_BOUND_CPU], 2.0);
    TAP_CHECK_INT(bench.result.bound, ZO_BOUND_H2D);
    CHECK_SECONDS(bench.result.engines[ZO_ENGINE_H2D].idle_seconds, 12.0);
    CHECK_SECONDS(bench.result.engines[ZO_ENGINE_H2D].bytes_per_second, 10.0);
    CHECK_SECONDS(bench.result.dram_bytes, 100.0 + 50.0 + 40.0);
    bench_fini(&bench);
}

static void test_parallel(void)
{
    struct bench bench;

    bench_init(&bench);
    copy(&bench, ZO_ENGINE_H2D, 0, 100);
    compute(&bench, 1, 30.0);
    compute(&bench, 2, 1.0);
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(end_of(&bench, 0), 10.0);
    CHECK_SECONDS(bench.result.step_seconds, 31.0); /* list order */
    CHECK_SECONDS(bench.result.engines[ZO_ENGINE_COMPUTE].busy_seconds, 31.0);
    TAP_CHECK_INT(bench.result.bound, ZO_BOUND_COMPUTE);
    bench_fini(&bench);
}

/* An operation without products takes what its bytes take. */
static void test_device_memory(void)
{
    struct bench bench;

    bench_init(&bench);
    bench.profile.launch_seconds = 3.0;
    add(&bench, (struct zo_op){.engine = ZO_ENGINE_COMPUTE, .flops = 10.0},
        &(const struct zo_access){bench.gpu[0], ZO_READ_WRITE, 0, 500}, 1);
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(bench.result.step_seconds, 3.0 + 1.0);
    CHECK_SECONDS(bench.result.path_seconds[ZO_BOUND_WAITING], 3.0);
    bench_fini(&bench);
}

static void test_attention(void)
{
    const struct zo_op op = {
        .engine = ZO_ENGINE_COMPUTE, .flops = 100.0, .attention_flops = 300.0};
    struct bench bench;

    bench_init(&bench);
    add(&bench, op, &(const struct zo_access){bench.gpu[0], ZO_WRITE, 0, 1}, 1);
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(bench.result.step_seconds, 1.0 + 3.0); /* as products */
    bench.profile.attention_flops = 50.0;
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(bench.result.step_seconds, 1.0 + 6.0);
    bench_fini(&bench);
}

/* Two copies and AdamW want twice what the host's memory gives. */
static void test_dram(void)
{
    struct bench bench;

    bench_init(&bench);
    bench.profile.dram.rate = 20.0;
    copy(&bench, ZO_ENGINE_H2D, 0, 100);
    copy(&bench, ZO_ENGINE_D2H, 1, 100);
    update(&bench, 2, 400, 40, 0);
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(end_of(&bench, 0), 20.0);
    CHECK_SECONDS(end_of(&bench, 1), 20.0);
    CHECK_SECONDS(end_of(&bench, 2), 30.0);
    CHECK_SECONDS(bench.result.busiest_seconds, 600.0 / 20.0);
    TAP_CHECK_INT(bench.result.busiest, ZO_BOUND_DRAM);
    CHECK_SECONDS(bench.result.dram_busy_seconds, 30.0);
    TAP_CHECK_INT(bench.result.bound, ZO_BOUND_DRAM);
    CHECK_SECONDS(bench.result.path_seconds[ZO_BOUND_DRAM], 20.0);
    bench_fini(&bench);
}

/* Copies that give way to nobody leave the processor the rest. */
static void test_yield(void)
{
    struct bench bench;

    bench_init(&bench);
    bench.profile.dram.rate = 25.0;
    bench.profile.dram.yield[ZO_DRAM_H2D] = 0.0;
    bench.profile.dram.yield[ZO_DRAM_D2H] = 0.0;
    copy(&bench, ZO_ENGINE_H2D, 0, 100);
    copy(&bench, ZO_ENGINE_D2H, 1, 100);
    update(&bench, 2, 400, 40, 0);
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(end_of(&bench, 0), 10.0);
    CHECK_SECONDS(end_of(&bench, 1), 10.0);
    CHECK_SECONDS(end_of(&bench, 2), 10.0 + 350.0 / 20.0); /* 5 a second */
    bench_fini(&bench);
}

/* With copies in one direction alone the memory may be another. */
static void test_mixes(void)
{
    struct bench bench;

    bench_init(&bench);
    bench.profile.dram.rate = 40.0; /* enough for all */
    bench.profile.dram_h2d.rate = 15.0;
    bench.profile.dram_d2h.rate = 25.0;
    bench.profile.dram_d2h.yield[ZO_DRAM_D2H] = 0.0;
    copy(&bench, ZO_ENGINE_H2D, 0, 50);
    update(&bench, 1, 1000, 100, 0);
    copy(&bench, ZO_ENGINE_D2H, 0, 50);
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(end_of(&bench, 0), 10.0);       /* 5 and 10 a second */
    CHECK_SECONDS(end_of(&bench, 2), 10.0 + 5.0); /* 10 and 15 */
    CHECK_SECONDS(end_of(&bench, 1), 15.0 + (1000.0 - 100.0 - 75.0) / 20.0);
    bench_fini(&bench);
}

static void test_duplex(void)
{
    struct bench bench;

    bench_init(&bench);
    bench.profile.duplex = 16.0;
    copy(&bench, ZO_ENGINE_H2D, 0, 160);
    copy(&bench, ZO_ENGINE_D2H, 1, 80);
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(end_of(&bench, 1), 10.0);
    CHECK_SECONDS(end_of(&bench, 0), 10.0 + 8.0);
    bench_fini(&bench);
}

/* Units that stream through a ring: copies of 2 s, products of 3 s. */
static void ring(int depth, double want)
{
    enum { UNITS = 9 };
    struct bench bench;

    bench_init(&bench);
    for (int u = 0; u < UNITS; u++) {
        const struct zo_access fetch[] = {
            {bench.gpu[u % depth], ZO_WRITE, 0, 20},
            {bench.host[0], ZO_READ, (uint64_t)(20 * u), 20},
        };

        add(&bench, (struct zo_op){.engine = ZO_ENGINE_H2D}, fetch, 2);
        add(&bench, (struct zo_op){.engine = ZO_ENGINE_COMPUTE, .flops = 300.0},
            &(const struct zo_access){bench.gpu[u % depth], ZO_READ, 0, 20}, 1);
    }
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(bench.result.step_seconds, want);
    CHECK_SECONDS(bench.result.chain_seconds, want);
    bench_fini(&bench);
}

static void test_rings(void)
{
    ring(1, 9 * (2.0 + 3.0));
    ring(2, 2.0 + 9 * 3.0);
    ring(3, 2.0 + 9 * 3.0);
}

/* ---- rules ----------------------------------------------------------------
 */

/* One worker: what runs stays, then the lowest number, then the oldest. */
static void test_priority(void)
{
    struct bench bench;

    bench_init(&bench);
    bench.profile.threads = 1;
    update(&bench, 0, 20, 1, 9);
    update(&bench, 1, 20, 1, 5);
    update(&bench, 2, 20, 1, 1);
    update(&bench, 3, 20, 1, 1);
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(end_of(&bench, 2), 1.0);
    CHECK_SECONDS(end_of(&bench, 3), 2.0);
    CHECK_SECONDS(end_of(&bench, 1), 3.0);
    CHECK_SECONDS(end_of(&bench, 0), 4.0);
    bench_fini(&bench);
}

/* An operation that becomes ready takes workers at the next piece. */
static void test_pieces(void)
{
    struct bench bench;

    bench_init(&bench);
    update(&bench, 0, 80, 4, 5); /* pieces of 20: two at a time, 2 s */
    copy(&bench, ZO_ENGINE_D2H, 1, 10);
    update(&bench, 1, 20, 1, 1);
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(bench.result.ops[2].ready_seconds, 1.0);
    CHECK_SECONDS(bench.result.ops[2].start_seconds, 2.0);
    CHECK_SECONDS(end_of(&bench, 2), 4.0); /* beside the third piece */
    CHECK_SECONDS(end_of(&bench, 0), 6.0);
    bench_fini(&bench);
}

/* Three pieces, two workers: the last is alone, at one thread's rate. */
static void test_tail(void)
{
    struct bench bench;

    bench_init(&bench);
    update(&bench, 0, 60, 3, 0);
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(bench.result.step_seconds, 4.0);
    bench.profile.cpu_thread = 16.0;
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(bench.result.step_seconds, 2.0 + 20.0 / 16.0);
    bench.profile.cpu_seconds = 0.5; /* a piece */
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(bench.result.step_seconds, 3.0 + 20.0 / 16.0);
    bench.options.cpu_workers = 3;
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(bench.result.step_seconds, 0.5 + 3.0);
    bench_fini(&bench);
}

/* A list starts when all but the one before it are done. */
static void test_two_lists(void)
{
    struct bench bench;

    bench_init(&bench);
    compute(&bench, 0, 1.0);
    update(&bench, 0, 200, 2, 0);
    TAP_CHECK_INT(simulate(&bench, 4), ZO_OK);
    CHECK_SECONDS(end_of(&bench, 2), 2.0);
    CHECK_SECONDS(end_of(&bench, 4), 11.0); /* the first update: 10 s */
    CHECK_SECONDS(end_of(&bench, 6), 21.0);
    CHECK_SECONDS(bench.result.to_seconds, 40.0);
    CHECK_SECONDS(bench.result.step_seconds, 10.0);
    bench_fini(&bench);
}

/* A list that joins steps of a second, and copies at 10 bytes a second. */
static double save_seconds(int i, uint64_t bytes)
{
    struct bench bench;
    double seconds = -1.0;

    bench_init(&bench);
    compute(&bench, 0, 1.0);
    bench.list = zo_program_schedule(&bench.program, "save");
    bench.program.schedules[bench.list].joins = true;
    copy(&bench, ZO_ENGINE_D2H, i, bytes);
    if (zo_layout(&bench.program) == ZO_OK) { /* else it is -1 */
        (void)!zo_simulate_save(&bench.options, 0, bench.list, &seconds);
    }
    bench_fini(&bench);
    return seconds;
}

static void test_joins(void)
{
    CHECK_SECONDS(save_seconds(0, 20), 2.0); /* the next step writes it */
    CHECK_SECONDS(save_seconds(1, 20), 0.0);
    CHECK_SECONDS(save_seconds(1, 200), 17.0); /* from 1 s to 21 s */
}

static void test_handoff(void)
{
    struct bench bench;

    bench_init(&bench);
    bench.profile.handoff_seconds = 4.0;
    update(&bench, 0, 20, 2, 0);
    copy(&bench, ZO_ENGINE_H2D, 0, 10);
    copy(&bench, ZO_ENGINE_H2D, 1, 10);
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    CHECK_SECONDS(end_of(&bench, 1), 1.0 + 4.0 + 1.0);
    CHECK_SECONDS(end_of(&bench, 2), 7.0); /* behind a stream: none */
    bench_fini(&bench);
}

/* Gradient down, update, weights up: what a step waits for, again and again. */
static void test_steady(void)
{
    struct bench bench;
    double busy[2];

    bench_init(&bench);
    compute(&bench, 0, 10.0);
    copy(&bench, ZO_ENGINE_D2H, 0, 40);
    update(&bench, 0, 160, 2, 0);
    copy(&bench, ZO_ENGINE_H2D, 0, 40);
    TAP_CHECK_INT(zo_layout(&bench.program), ZO_OK);
    TAP_CHECK_INT(zo_simulate_steps(&bench.options, bench.list, &bench.result),
                  ZO_OK);
    CHECK_SECONDS(bench.result.step_seconds, 10.0 + 4.0 + 8.0 + 4.0);
    CHECK_SECONDS(bench.result.chain_seconds, 26.0);
    CHECK_SECONDS(bench.result.engines[ZO_ENGINE_CPU].busy_seconds, 8.0);
    CHECK_SECONDS(bench.result.engines[ZO_ENGINE_CPU].bytes, 160.0);
    TAP_CHECK_INT(zo_sim_busy(&bench.options, bench.list, &busy[0], &busy[1]),
                  ZO_OK);
    CHECK_SECONDS(busy[0] + 1000.0 * busy[1], 10.0 + 1000.0 * 8.0);
    bench_fini(&bench);
}

/* On host devices kernels and the CPU engine share the cores. */
static void test_host(void)
{
    struct bench bench;

    bench_init(&bench);
    bench.profile.is_host = true;
    bench.profile.device_bandwidth = 0.0;
    bench.profile.dram.rate = 1000.0;
    compute(&bench, 0, 10.0);
    update(&bench, 0, 200, 20, 0);
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    TAP_CHECK(bench.result.is_rough);
    CHECK_SECONDS(end_of(&bench, 0), 20.0);
    CHECK_SECONDS(end_of(&bench, 1), 20.0);
    bench_fini(&bench);
}

/* A rate that nobody knows is not made up. */
static void test_unknown_rates(void)
{
    static const struct {
        size_t offset;
        const char *says;
    } cases[] = {
        {offsetof(struct zo_profile, matrix_flops[ZO_BF16]), "bf16 products"},
        {offsetof(struct zo_profile, device_bandwidth), "device memory"},
        {offsetof(struct zo_profile, h2d), "copies to the device"},
        {offsetof(struct zo_profile, d2h), "copies from the device"},
        {offsetof(struct zo_profile, cpu), "the processor"},
    };
    struct bench bench;

    bench_init(&bench);
    copy(&bench, ZO_ENGINE_H2D, 0, 100);
    compute(&bench, 0, 5.0);
    copy(&bench, ZO_ENGINE_D2H, 0, 50);
    update(&bench, 0, 40, 2, 0);
    for (size_t i = 0; i < TAP_COUNT(cases); i++) {
        double *rate = (double *)((char *)&bench.profile + cases[i].offset);
        const double was = *rate;

        *rate = 0.0;
        TAP_CHECK_INT(simulate(&bench, 1), ZO_E_ARG);
        TAP_CHECK(strstr(zo_err_last()->text, cases[i].says) != NULL);
        *rate = was;
    }
    TAP_CHECK_INT(simulate(&bench, 1), ZO_OK);
    bench_fini(&bench);
}

/* ---- random programs ------------------------------------------------------
 */

enum { PROGRAMS = 1500, ITEMS = 4 };

struct random_run {
    struct zo_program program;
    struct zo_profile profile;
    struct zo_sim_options options;
    struct zo_sequence_item items[ITEMS];
};

static double random_rate(struct help_random *random)
{
    return 1.0 + (double)help_below(random, 1000);
}

static enum zo_status random_run_init(struct random_run *run, uint64_t seed)
{
    struct help_random random = help_random_of(seed, "simulator");
    const struct help_shape shape = {
        .seed = seed,
        .devices = 1 + (int)help_below(&random, 3),
        .lists = 1 + (int)help_below(&random, 2),
        .ops_max = 20,
        .bytes_max = 400,
        .has_nvme = true,
    };
    struct zo_profile *profile = &run->profile;

    ZO_TRY(help_program(&shape, &run->program));
    help_sequence(&random, &run->program, run->items, ITEMS);
    for (int s = 0; s < run->program.schedule_count; s++) {
        struct zo_schedule *list = &run->program.schedules[s];

        for (size_t i = 0; i < list->op_count; i++) {
            list->ops[i].parts = (int)help_below(&random, 9);
            list->ops[i].flops = (double)help_below(&random, 500);
        }
    }
    zo_profile_init(profile);
    profile->matrix_flops[ZO_F16] = random_rate(&random);
    profile->device_bandwidth = random_rate(&random);
    profile->h2d = random_rate(&random);
    profile->d2h = random_rate(&random);
    profile->duplex =
        help_once_in(&random, 2) ? 0.0 : 0.75 * (profile->h2d + profile->d2h);
    profile->collective = random_rate(&random);
    profile->cpu = random_rate(&random);
    profile->threads = 1 + (int)help_below(&random, 6);
    profile->cpu_thread =
        help_once_in(&random, 2) ? 0.0 : profile->cpu / profile->threads * 1.5;
    profile->nvme_read = random_rate(&random);
    profile->nvme_write = random_rate(&random);
    profile->dram.rate = help_once_in(&random, 3) ? 0.0 : random_rate(&random);
    if (profile->dram.rate > 0.0 && help_once_in(&random, 2)) {
        profile->dram_h2d.rate = profile->dram.rate * 0.75;
        profile->dram_d2h.rate = profile->dram.rate * 1.25;
    }
    profile->launch_seconds = help_once_in(&random, 2) ? 0.0 : 0.1;
    profile->handoff_seconds = help_once_in(&random, 2) ? 0.0 : 0.2;
    profile->cpu_seconds = help_once_in(&random, 2) ? 0.0 : 0.05;
    profile->is_host = help_once_in(&random, 4);
    run->options = (struct zo_sim_options){.program = &run->program,
                                           .profile = profile,
                                           .type = ZO_F16,
                                           .whole = true};
    return ZO_OK;
}

static const struct zo_op *op_of(const struct random_run *run,
                                 const struct zo_sim_op *op)
{
    const int s = run->items[op->item].schedule;

    return &run->program.schedules[s].ops[op->op];
}

/* Behind predecessors, in lanes one after another, two lists at most. */
static bool keeps_order(const struct random_run *run,
                        const struct zo_sim_result *result)
{
    double lanes[4 * ZO_DEVICES_MAX] = {0}, items[ITEMS] = {0};
    struct zo_edges edges;
    bool is_kept = true;

    if (zo_edges_derive(&run->program, run->items, ITEMS, &edges) != ZO_OK) {
        return false;
    }
    is_kept = edges.count == result->op_count;
    for (size_t i = 0; i < edges.count && is_kept; i++) {
        const struct zo_sim_op *op = &result->ops[i];
        const uint32_t lane = zo_lane_of(&run->program, op_of(run, op));

        for (size_t e = edges.first[i]; e < edges.first[i + 1]; e++) {
            is_kept = is_kept && op->start_seconds >=
                                     result->ops[edges.preds[e]].end_seconds;
        }
        if (lane != ZO_NO_LANE) {
            is_kept = is_kept && op->start_seconds >= lanes[lane];
            lanes[lane] = op->end_seconds;
        }
        for (int before = 0; before + 2 <= op->item; before++) {
            is_kept = is_kept && op->start_seconds >= items[before];
        }
        items[op->item] = fmax(items[op->item], op->end_seconds);
        is_kept = is_kept && op->end_seconds >= op->start_seconds &&
                  op->start_seconds >= op->ready_seconds;
    }
    zo_edges_fini(&edges);
    return is_kept;
}

/* What a rate is when nothing else runs: the host's memory may be less. */
static double serial_seconds(const struct random_run *run,
                             const struct zo_sim_result *result)
{
    const struct zo_profile *profile = &run->profile;
    double seconds = 0.0;

    for (size_t i = 0; i < result->op_count; i++) {
        const struct zo_op *op = op_of(run, &result->ops[i]);
        const struct zo_schedule *list =
            &run->program.schedules[run->items[result->ops[i].item].schedule];
        const int parts =
            op->engine == ZO_ENGINE_CPU && op->parts > 1 ? op->parts : 1;
        double bytes = 0.0;

        for (uint32_t a = 0; a < op->access_count; a++) {
            const struct zo_access *access =
                &list->accesses[op->access_first + a];

            bytes += (access->mode == ZO_READ_WRITE ? 2.0 : 1.0) *
                     (double)access->bytes;
        }
        seconds += result->ops[i].alone_seconds + profile->handoff_seconds;
        if (op->engine == ZO_ENGINE_CPU) { /* with one worker */
            const double share = profile->cpu / profile->threads;

            seconds += parts * profile->cpu_seconds +
                       bytes / fmin(profile->cpu, profile->cpu_thread > 0.0
                                                      ? profile->cpu_thread
                                                      : share);
        }
        if (profile->dram.rate > 0.0) { /* a copy on the host: both its ends */
            seconds += 2.0 * bytes / (0.75 * profile->dram.rate);
        }
    }
    return seconds;
}

static bool is_possible(const struct random_run *run,
                        const struct zo_sim_result *result)
{
    const double room = 1.0 + 1e-9;
    double path = 0.0;

    for (int e = 0; e < ZO_ENGINES; e++) {
        if (result->engines[e].busy_seconds > result->step_seconds * room) {
            return false;
        }
    }
    for (int b = 0; b < ZO_BOUNDS; b++) {
        path += result->path_seconds[b];
    }
    return result->chain_seconds <= result->step_seconds * room &&
           result->busiest_seconds <= result->step_seconds * room &&
           result->dram_busy_seconds <= result->step_seconds * room &&
           fabs(path - result->step_seconds) <=
               1e-9 * (1.0 + result->step_seconds) &&
           result->step_seconds <= serial_seconds(run, result) * room;
}

static bool same_result(const struct zo_sim_result *a,
                        const struct zo_sim_result *b)
{
    for (size_t i = 0; i < a->op_count; i++) {
        if (a->ops[i].start_seconds != b->ops[i].start_seconds ||
            a->ops[i].end_seconds != b->ops[i].end_seconds ||
            a->ops[i].last_pred != b->ops[i].last_pred) {
            return false;
        }
    }
    return a->op_count == b->op_count && a->step_seconds == b->step_seconds;
}

static void test_random(void)
{
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
        struct random_run run;
        struct zo_sim_result result = {0}, again = {0};
        bool is_kept, is_possible_, is_same;

        TAP_CHECK_INT(random_run_init(&run, seed), ZO_OK);
        TAP_CHECK_INT(zo_simulate(&run.options, run.items, ITEMS, &result),
                      ZO_OK);
        TAP_CHECK_INT(zo_simulate(&run.options, run.items, ITEMS, &again),
                      ZO_OK);
        is_kept = keeps_order(&run, &result);
        is_possible_ = is_possible(&run, &result);
        is_same = same_result(&result, &again);
        zo_sim_result_fini(&result);
        zo_sim_result_fini(&again);
        zo_program_fini(&run.program);
        if (!is_kept || !is_possible_ || !is_same) {
            tap_fail(__FILE__, __LINE__, "seed %d: order %d, time %d, same %d",
                     (int)seed, is_kept, is_possible_, is_same);
            return;
        }
    }
}

static void test_no_memory(void)
{
    struct random_run run;
    struct zo_sim_result result = {0};
    enum zo_status status = ZO_E_NOMEM;
    int failures = 0;

    TAP_CHECK_INT(random_run_init(&run, 7), ZO_OK);
    while (status != ZO_OK && failures < 1000) {
        zo_memory_fail_at((uint64_t)failures + 1);
        status = zo_simulate(&run.options, run.items, ITEMS, &result);
        zo_memory_fail_at(0);
        TAP_CHECK(status == ZO_OK || status == ZO_E_NOMEM);
        failures += status != ZO_OK;
    }
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(failures > 15);
    zo_sim_result_fini(&result);
    zo_program_fini(&run.program);
}

/* ---- size -----------------------------------------------------------------
 */

/* A hundred thousand operations, five times: some seconds at the most. */
static void test_large(void)
{
    enum { OPS = 100000 };
    struct bench bench;

    bench_init(&bench);
    for (int i = 0; i < OPS; i += 4) {
        const int b = i / 4 % BUFFERS;

        copy(&bench, ZO_ENGINE_H2D, b, 20);
        compute(&bench, b, 1.0);
        copy(&bench, ZO_ENGINE_D2H, b, 20);
        update(&bench, b, 20, 30, i);
    }
    TAP_CHECK_INT(zo_layout(&bench.program), ZO_OK);
    TAP_CHECK_INT(zo_simulate_steps(&bench.options, bench.list, &bench.result),
                  ZO_OK);
    TAP_CHECK_INT((long long)bench.result.op_count, 7 * OPS);
    TAP_CHECK(bench.result.step_seconds >= OPS / 4 * 2.0);
    bench_fini(&bench);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a chain takes the sum of its operations", test_chain},
        {"engines run side by side, each in list order", test_parallel},
        {"device memory bounds what has few products", test_device_memory},
        {"attention has a rate of its own", test_attention},
        {"copies and AdamW share the host's memory", test_dram},
        {"who yields nothing is not slowed", test_yield},
        {"memory by the copies that take part", test_mixes},
        {"both directions of a bus have a common limit", test_duplex},
        {"a ring of two hides the shorter of copy and products", test_rings},
        {"the processor takes the lowest number, then the oldest",
         test_priority},
        {"pieces let an urgent operation in", test_pieces},
        {"the last piece runs at one thread's rate", test_tail},
        {"two lists are under way at most", test_two_lists},
        {"a list that joins another is done with it", test_joins},
        {"handing over to a stream takes its time", test_handoff},
        {"a step in the steady state", test_steady},
        {"host devices share their cores", test_host},
        {"a rate that is not known is an error", test_unknown_rates},
        {"random programs keep order and bounds, twice the same", test_random},
        {"each allocation fails in turn", test_no_memory},
        {"a hundred thousand operations", test_large},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
