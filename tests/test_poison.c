/*
 * The poison mode: whoever touches bytes that he did not declare is found.
 */
#include <stdbool.h>
#include <string.h>

#include "offload/executor.h"
#include "offload/layout.h"
#include "src/base/memory.h"
#include "src/device/stream_host.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

/* ---- a program with one fault -------------------------------------------- */

enum { BYTES = 1024, DECLARED = 100 };

/*
 * The operation declares to read [200, 300) of `source` and to write [200,
 * 300) of `target`; it does so, and then something else with one byte, which
 * lies `offset` from the start of what it declared.
 */
struct fault {
    enum { NONE, READS, WRITES } what;
    bool of_target; /* or of source */
    int64_t offset;
};

struct bench {
    struct zo_machine machine;
    struct zo_program program;
    struct zo_executor *executor;
    struct fault fault;
    zo_buffer_id source, target, far_gpu, host, pageable;
    unsigned char *far; /* outside of any access: writes here, not offset */
};

static void do_fault(const struct bench *bench, unsigned char *target,
                     unsigned char *source)
{
    unsigned char *victim = bench->far != NULL ? bench->far
                            : bench->fault.of_target
                                ? target + bench->fault.offset
                                : source + bench->fault.offset;

    if (bench->fault.what == READS) {
        target[0] = *victim;
    } else if (bench->fault.what == WRITES) {
        *victim = 99;
    }
}

struct args {
    const struct bench *bench;
    unsigned char *target, *source;
};

static enum zo_status faulty_in_stream(struct zo_pool *pool, const void *bytes)
{
    struct args args;
    unsigned char early;

    (void)pool;
    memcpy(&args, bytes, sizeof(args));
    early = args.target[3]; /* before it is written */
    for (int i = 0; i < DECLARED; i++) {
        args.target[i] = (unsigned char)(args.source[i] + i);
    }
    if (args.bench->fault.what == READS && args.bench->fault.of_target &&
        args.bench->fault.offset == 3) {
        args.target[0] = early;
        return ZO_OK;
    }
    do_fault(args.bench, args.target, args.source);
    return ZO_OK;
}

static enum zo_status run_faulty(const struct zo_op_call *call)
{
    const struct args args = {call->op->context, call->at[1], call->at[0]};

    return zo_engine_is_stream(call->op->engine)
               ? zo_stream_host_submit(call->streams[0], faulty_in_stream,
                                       &args, sizeof(args))
               : faulty_in_stream(NULL, &args);
}

static zo_buffer_id add_buffer(struct bench *bench, enum zo_tier tier,
                               int device, bool has_slots)
{
    const struct zo_buffer buffer = {.name = "a buffer",
                                     .tier = tier,
                                     .device = device,
                                     .unit = -1,
                                     .schedule = -1,
                                     .bytes = BYTES,
                                     .has_slots = has_slots};

    return help_buffer(&bench->program, &buffer);
}

static enum zo_status add_faulty(struct bench *bench, enum zo_engine engine)
{
    const struct zo_op op = {.name = "suspicious sum",
                             .run = run_faulty,
                             .context = bench,
                             .engine = engine,
                             .unit = 7};
    const struct zo_access accesses[] = {
        {bench->source, ZO_READ, 200, DECLARED},
        {bench->target, ZO_WRITE, 200, DECLARED},
        {bench->target, ZO_READ_WRITE, 600, 10},
    };

    return zo_schedule_add(&bench->program, 0, &op, accesses, 3);
}

static enum zo_status bench_open(struct bench *bench, const struct fault *fault,
                                 enum zo_engine engine, bool poisons)
{
    const struct zo_executor_options options = {
        .cpu_workers = 1, .is_serial = true, .poisons = poisons};
    const bool is_stream = zo_engine_is_stream(engine);
    const enum zo_tier tier = is_stream ? ZO_TIER_GPU : ZO_TIER_CPU;
    unsigned char bytes[BYTES];

    *bench = (struct bench){.fault = *fault};
    zo_program_init(&bench->program, 2);
    (void)zo_program_schedule(&bench->program, "list");
    bench->source = add_buffer(bench, tier, 0, !is_stream);
    bench->target = add_buffer(bench, tier, 0, false);
    bench->far_gpu = add_buffer(bench, ZO_TIER_GPU, 1, false);
    bench->host = add_buffer(bench, ZO_TIER_CPU, 0, true);
    bench->pageable = add_buffer(bench, ZO_TIER_PAGEABLE, 0, false);
    ZO_TRY(add_faulty(bench, engine));
    ZO_TRY(zo_layout(&bench->program));
    ZO_TRY(help_machine_open(&bench->machine, 2, 1, 0));
    ZO_TRY(zo_executor_open(&bench->program, &bench->machine, &options,
                            &bench->executor));
    for (int i = 0; i < BYTES; i++) {
        bytes[i] = (unsigned char)(3 * i + 1);
    }
    ZO_TRY(zo_executor_upload(bench->executor, bench->source, 0, bytes, BYTES));
    return zo_executor_upload(bench->executor, bench->target, 0, bytes, BYTES);
}

static enum zo_status bench_run(struct bench *bench)
{
    int slot;

    ZO_TRY(zo_executor_acquire(bench->executor, &slot));
    ZO_TRY(zo_executor_start(bench->executor, 0, NULL));
    return zo_executor_drain(bench->executor);
}

static void bench_close(struct bench *bench)
{
    zo_executor_close(bench->executor);
    help_machine_close(&bench->machine);
    zo_program_fini(&bench->program);
}

static const enum zo_engine engines[] = {ZO_ENGINE_COMPUTE, ZO_ENGINE_D2H,
                                         ZO_ENGINE_CPU};

/* ---- writes -------------------------------------------------------------- */

/* The fault goes unseen in the plain mode and is named in this one. */
static void check_reported(const struct fault *fault, enum zo_engine engine,
                           const char *text)
{
    struct bench bench;

    TAP_CHECK_INT(bench_open(&bench, fault, engine, false), ZO_OK);
    TAP_CHECK_INT(bench_run(&bench), ZO_OK);
    bench_close(&bench);
    TAP_CHECK_INT(bench_open(&bench, fault, engine, true), ZO_OK);
    TAP_CHECK_INT(bench_run(&bench), ZO_E_ARG);
    TAP_CHECK(strstr(zo_err_last()->text, "suspicious sum (unit 7)") != NULL);
    TAP_CHECK(strstr(zo_err_last()->text, text) != NULL);
    TAP_CHECK_INT(bench_run(&bench), ZO_E_ARG);
    bench_close(&bench);
}

static void test_undeclared_writes(void)
{
    static const struct fault faults[] = {
        {WRITES, true, -1},  {WRITES, true, DECLARED},  {WRITES, true, -200},
        {WRITES, false, -1}, {WRITES, false, DECLARED}, {WRITES, true, 823},
        {WRITES, true, 410},
    };

    for (size_t e = 0; e < TAP_COUNT(engines); e++) {
        for (size_t i = 0; i < TAP_COUNT(faults); i++) {
            check_reported(&faults[i], engines[e], "did not declare");
        }
    }
}

static void test_writes_to_read_only(void)
{
    static const struct fault first = {WRITES, false, 0};
    static const struct fault last = {WRITES, false, DECLARED - 1};

    for (size_t e = 0; e < TAP_COUNT(engines); e++) {
        check_reported(&first, engines[e], "declared only to read: access 0");
        check_reported(&last, engines[e], "declared only to read: access 0");
    }
}

/* On another device, on the host (both kinds), in the other slot. */
static void test_far_writes(void)
{
    static const char *const texts[] = {"of GPU memory 1", "of host memory 0",
                                        "of host memory 0",
                                        "of host (pageable) memory 0"};
    const struct fault fault = {.what = WRITES};

    for (int i = 0; i < 4; i++) {
        struct bench bench;
        zo_buffer_id far;

        TAP_CHECK_INT(bench_open(&bench, &fault, ZO_ENGINE_COMPUTE, true),
                      ZO_OK);
        far = i == 0 ? bench.far_gpu : i == 3 ? bench.pageable : bench.host;
        bench.far = zo_executor_address(bench.executor, far, i == 2);
        TAP_CHECK_INT(bench_run(&bench), ZO_E_ARG);
        TAP_CHECK(strstr(zo_err_last()->text, texts[i]) != NULL);
        bench_close(&bench);
    }
    for (int slot = 0; slot < 2; slot++) {
        struct bench bench;

        TAP_CHECK_INT(bench_open(&bench, &fault, ZO_ENGINE_CPU, true), ZO_OK);
        bench.far = (unsigned char *)zo_executor_address(bench.executor,
                                                         bench.source, slot) +
                    250;
        TAP_CHECK_INT(bench_run(&bench), ZO_E_ARG); /* in slot 0 */
        TAP_CHECK(strstr(zo_err_last()->text,
                         slot == 0 ? "only to read" : "not declare") != NULL);
        bench_close(&bench);
    }
}

/* ---- reads --------------------------------------------------------------- */

static enum zo_status result_of(const struct fault *fault,
                                enum zo_engine engine, bool poisons,
                                unsigned char *result_out)
{
    struct bench bench;
    enum zo_status status;

    status = bench_open(&bench, fault, engine, poisons);
    if (status == ZO_OK) {
        status = bench_run(&bench);
    }
    if (status == ZO_OK) {
        status = zo_executor_download(bench.executor, result_out, bench.target,
                                      0, BYTES);
    }
    bench_close(&bench);
    return status;
}

static void check_results(const struct fault *fault, bool is_same)
{
    for (size_t e = 0; e < TAP_COUNT(engines); e++) {
        unsigned char plain[BYTES], poisoned[BYTES];

        TAP_CHECK_INT(result_of(fault, engines[e], false, plain), ZO_OK);
        TAP_CHECK_INT(result_of(fault, engines[e], true, poisoned), ZO_OK);
        TAP_CHECK((memcmp(plain, poisoned, BYTES) == 0) == is_same);
    }
}

static void test_undeclared_reads(void)
{
    static const struct fault faults[] = {
        {READS, false, -1},   {READS, false, DECLARED}, {READS, true, -1},
        {READS, true, 100},   {READS, true, 3}, /* to be written, not read */
        {READS, false, -200},
    };

    for (size_t i = 0; i < TAP_COUNT(faults); i++) {
        check_results(&faults[i], false);
    }
}

static void test_declared_reads(void)
{
    static const struct fault faults[] = {
        {.what = NONE},
        {READS, false, 5},
        {READS, true, 405},
        {WRITES, true, 9},
    };

    for (size_t i = 0; i < TAP_COUNT(faults); i++) {
        check_results(&faults[i], true);
    }
}

/* ---- correct programs ---------------------------------------------------- */

static void check_program(const struct zo_program *program, uint64_t seed)
{
    const struct zo_executor_options plain = {.cpu_workers = 1,
                                              .is_serial = true};
    const struct zo_executor_options poison = {
        .cpu_workers = 1, .is_serial = true, .poisons = true};
    struct help_random random = help_random_of(seed, "sequence");
    struct zo_executor *meant = NULL, *run = NULL;
    struct zo_sequence_item items[5];
    struct zo_machine machine;

    help_sequence(&random, program, items, TAP_COUNT(items));
    TAP_CHECK_INT(help_machine_open(&machine, program->device_count, 1, 0),
                  ZO_OK);
    TAP_CHECK_INT(zo_executor_open(program, &machine, &plain, &meant), ZO_OK);
    TAP_CHECK_INT(zo_executor_open(program, &machine, &poison, &run), ZO_OK);
    TAP_CHECK_INT(help_run(meant, items, TAP_COUNT(items)), ZO_OK);
    TAP_CHECK_INT(help_run(run, items, TAP_COUNT(items)), ZO_OK);
    TAP_CHECK(help_same_memory(meant, run));
    zo_executor_close(meant);
    zo_executor_close(run);
    help_machine_close(&machine);
}

static void test_random(void)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        const struct help_shape shape = {.seed = seed,
                                         .devices = 1 + (int)(seed % 3),
                                         .lists = 2,
                                         .ops_max = 12,
                                         .bytes_max = 200};
        struct zo_program program;

        TAP_CHECK_INT(help_program(&shape, &program), ZO_OK);
        check_program(&program, seed);
        zo_program_fini(&program);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a write that was not declared is reported by name",
         test_undeclared_writes},
        {"a write to what was declared for reading is reported",
         test_writes_to_read_only},
        {"a write to other memory or the other slot is reported",
         test_far_writes},
        {"a read that was not declared changes the result",
         test_undeclared_reads},
        {"what was declared changes nothing", test_declared_reads},
        {"correct programs give the same bits with poison", test_random},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
