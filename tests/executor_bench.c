#include "tests/executor_bench.h"

#include <string.h>

#include "offload/layout.h"
#include "src/device/stream_host.h"
#include "tests/tap.h"

const struct zo_executor_options bench_workers = {.cpu_workers = 2};

static enum zo_status act(const struct act *act)
{
    if (act->opens != NULL) {
        help_gate_open(act->opens);
    }
    if (act->passes != NULL) {
        help_gate_pass(act->passes);
    }
    if (act->counts != NULL) {
        atomic_fetch_add(act->counts, 1);
    }
    if (act->looks_at != NULL) {
        *act->seen = atomic_load(act->looks_at);
    }
    if (act->order != NULL) {
        act->order[(*act->order_count)++] = act->number;
    }
    return act->status == ZO_OK
               ? ZO_OK
               : ZO_FAIL(act->status, "act %d failed", act->number);
}

static enum zo_status act_in_stream(struct zo_pool *pool, const void *args)
{
    const struct act *what;

    (void)pool;
    memcpy(&what, args, sizeof(what));
    return act(what);
}

enum zo_status bench_queue_act(struct zo_stream *stream, const struct act *what)
{
    return zo_stream_host_submit(stream, act_in_stream, &what, sizeof(what));
}

enum zo_status bench_act(const struct zo_op_call *call)
{
    const struct act *what = call->op->context;

    if (call->op->engine == ZO_ENGINE_D2H ||
        call->op->engine == ZO_ENGINE_H2D) {
        *call->moved_bytes += BENCH_BYTES; /* as copies say */
    }
    return zo_engine_is_stream(call->op->engine)
               ? bench_queue_act(call->streams[0], what)
               : act(what);
}

zo_buffer_id bench_buffer(struct bench *bench, enum zo_tier tier, int device,
                          bool has_slots)
{
    const struct zo_buffer buffer = {.name = "a buffer",
                                     .tier = tier,
                                     .device = device,
                                     .unit = -1,
                                     .schedule = -1,
                                     .bytes = BENCH_BYTES,
                                     .has_slots = has_slots};

    return help_buffer(&bench->program, &buffer);
}

void bench_init(struct bench *bench, int devices)
{
    *bench = (struct bench){0};
    zo_program_init(&bench->program, devices);
    for (int d = 0; d < devices; d++) {
        bench->gpu[d] = bench_buffer(bench, ZO_TIER_GPU, d, false);
    }
    bench->host = bench_buffer(bench, ZO_TIER_CPU, 0, false);
    bench->other = bench_buffer(bench, ZO_TIER_CPU, 0, false);
    if (help_machine_open(&bench->machine, devices, 1, 10) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
}

void bench_list(struct bench *bench)
{
    (void)zo_program_schedule(&bench->program, "list");
}

void bench_add(struct bench *bench, const struct what *what,
               const struct act *act_of_op)
{
    const int list = bench->program.schedule_count - 1;
    const struct zo_op op = {.name = "an act",
                             .run = bench_act,
                             .context = act_of_op,
                             .engine = what->engine,
                             .device = what->device,
                             .unit = -1,
                             .micro = -1,
                             .priority = what->priority};
    struct zo_access accesses[2];
    size_t count = 0;

    if (what->reads != ZO_NO_BUFFER) {
        accesses[count++] =
            (struct zo_access){what->reads, ZO_READ, 0, BENCH_BYTES};
    }
    if (what->writes != ZO_NO_BUFFER) {
        accesses[count++] =
            (struct zo_access){what->writes, ZO_WRITE, 0, BENCH_BYTES};
    }
    if (zo_schedule_add(&bench->program, list, &op, accesses, count) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
}

enum zo_status bench_open(struct bench *bench,
                          const struct zo_executor_options *options)
{
    ZO_TRY(zo_layout(&bench->program));
    return zo_executor_open(&bench->program, &bench->machine, options,
                            &bench->executor);
}

enum zo_status bench_start(struct bench *bench, int list, uint64_t *ticket_out)
{
    int slot;

    ZO_TRY(zo_executor_acquire(bench->executor, &slot));
    return zo_executor_start(bench->executor, list, ticket_out);
}

void bench_close(struct bench *bench)
{
    zo_executor_close(bench->executor);
    if (help_machine_bytes(&bench->machine) != 0) {
        tap_fail(__FILE__, __LINE__, "memory that nobody gave back");
    }
    help_machine_close(&bench->machine);
    zo_program_fini(&bench->program);
}
