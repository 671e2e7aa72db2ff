/*
 * The builder over a model of the tests' own: what an update waits for, when
 * it happens, how devices add up, and what must not change the numbers.
 */
#include <stdbool.h>
#include <string.h>

#include "offload/builder_internal.h"
#include "offload/planner.h"
#include "src/base/memory.h"
#include "src/base/random.h"
#include "tests/fake_model.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

static const struct zo_executor_options workers = {.cpu_workers = 2};

static enum zo_status open_kernels(struct zo_machine *machine)
{
    machine->kernel_ops = &zo_kernels_host;
    for (int d = 0; d < machine->device_count; d++) {
        ZO_TRY(zo_kernels_host.open(machine->devices[d], NULL,
                                    &machine->kernels[d]));
    }
    return ZO_OK;
}

static void close_machine(struct zo_machine *machine)
{
    for (int d = 0; d < machine->device_count; d++) {
        zo_kernels_host.close(machine->kernels[d]);
    }
    help_machine_close(machine);
}

/* ---- whole runs ---------------------------------------------------------- */

static struct fake_shape plain_shape(int devices)
{
    return (struct fake_shape){
        .seed = 4,
        .units = 3,
        .devices = devices,
        .micros = 4,
        .placement = {.pass_micros = 4, .weight_ring = 2, .gradient_ring = 1},
        .type = ZO_BF16,
        .comm_type = ZO_BF16,
        .kernel_ops = &zo_kernels_host};
}

/* A hash of the states behind some lists. */
static uint64_t result_of(const struct fake_shape *shape, const char *lists)
{
    struct fake_model model;
    struct zo_machine machine;
    struct zo_executor *executor = NULL;
    uint64_t hash = 0;

    if (fake_model_build(shape, &model) == ZO_OK &&
        help_machine_open(&machine, shape->devices, 1, 0) == ZO_OK &&
        open_kernels(&machine) == ZO_OK &&
        zo_executor_open(&model.build.program, &machine, &workers, &executor) ==
            ZO_OK &&
        fake_model_load(&model, executor) == ZO_OK &&
        fake_model_run(&model, executor, lists) == ZO_OK) {
        hash = fake_model_states(&model, executor);
    } else {
        tap_fail(__FILE__, __LINE__, "%s: %s", lists, zo_err_last()->text);
    }
    zo_executor_close(executor);
    close_machine(&machine);
    zo_build_fini(&model.build);
    return hash;
}

static void test_same_numbers(void)
{
    for (int devices = 1; devices <= 3; devices++) {
        struct fake_shape shape = plain_shape(devices);
        const uint64_t want = result_of(&shape, "ssst");

        for (shape.placement.pass_micros = 1; shape.placement.pass_micros < 4;
             shape.placement.pass_micros++) {
            TAP_CHECK(result_of(&shape, "ssst") == want);
        }
        shape.placement.keep = ZO_KEEP_INPUT;
        TAP_CHECK(result_of(&shape, "ssst") == want);
        shape.has_evaluation = true;
        TAP_CHECK(result_of(&shape, "ssst") == want);
        shape.bucket_elems = 1; /* rounded up to 128 */
        TAP_CHECK(result_of(&shape, "ssst") == want);
        shape.comm_type = ZO_F32; /* and what must, does */
        TAP_CHECK((result_of(&shape, "ssst") == want) == (devices == 1));
    }
}

/* The update of a step runs once, in whatever list comes next. */
static void test_updates(void)
{
    uint64_t results[2];

    for (int decides = 0; decides < 2; decides++) {
        struct fake_shape shape = plain_shape(2);
        uint64_t before, after;

        shape.decides = decides == 1;
        shape.has_evaluation = true;
        before = result_of(&shape, "");
        TAP_CHECK(result_of(&shape, "t") == before); /* none is due */
        TAP_CHECK(result_of(&shape, "e") == before);
        /* At once, or in the next list when it waits for a decision. */
        TAP_CHECK((result_of(&shape, "s") == before) == shape.decides);
        after = results[decides] = result_of(&shape, "st");
        TAP_CHECK(after != before);
        TAP_CHECK(result_of(&shape, "se") == after);
        TAP_CHECK(result_of(&shape, "set") == after);
        TAP_CHECK(result_of(&shape, "sett") == after);
        TAP_CHECK((result_of(&shape, "ss") == after) == shape.decides);
        /* The model skips step 2, if it is asked. */
        TAP_CHECK((result_of(&shape, "sst") == after) == shape.decides);
    }
    TAP_CHECK(results[0] != results[1]); /* of the record, of decide */
}

static void test_evaluates_only(void)
{
    struct fake_shape shape = plain_shape(2);
    struct zo_plan_arena arena;
    struct fake_model model;
    uint64_t weights = 0;

    shape.evaluates_only = true;
    TAP_CHECK(result_of(&shape, "eee") != 0);
    TAP_CHECK_INT(fake_model_build(&shape, &model), ZO_OK);
    zo_plan_arena(&model.build.program, ZO_TIER_GPU, 1, &arena);
    for (int u = 0; u < shape.units; u++) {
        const struct zo_unit_buffers *unit = zo_build_unit(&model.build, u, 1);

        TAP_CHECK(unit->exp_avg == ZO_NO_BUFFER);
        TAP_CHECK(unit->grad == ZO_NO_BUFFER);
        weights += 2 * (uint64_t)model.units[u].elems;
    }
    TAP_CHECK_INT(arena.purposes[ZO_PURPOSE_WEIGHTS], weights);
    TAP_CHECK_INT(arena.purposes[ZO_PURPOSE_MASTER], 0);
    TAP_CHECK_INT(arena.purposes[ZO_PURPOSE_EXP_AVG], 0);
    TAP_CHECK_INT(arena.purposes[ZO_PURPOSE_GRADIENT], 0);
    TAP_CHECK_INT(arena.purposes[ZO_PURPOSE_GRADIENT_SUM], 0);
    zo_build_fini(&model.build);
}

/* ---- what is emitted ----------------------------------------------------- */

enum { CALLS_MAX = 512 };

/* A model that adds nothing, and keeps what it was asked for. */
struct recorder {
    struct call {
        char kind; /* 'f'orward, 't'urn, 'b'ackward */
        struct zo_emit emit;
    } calls[CALLS_MAX];
    int count;
};

static enum zo_status record_nothing(void *model, struct zo_program *program,
                                     int device)
{
    (void)model, (void)program, (void)device;
    return ZO_OK;
}

static enum zo_status keep(void *model, char kind, const struct zo_emit *emit)
{
    struct recorder *recorder = model;

    ZO_ASSERT(recorder->count < CALLS_MAX);
    recorder->calls[recorder->count++] = (struct call){kind, *emit};
    return ZO_OK;
}

static enum zo_status keep_forward(void *model, const struct zo_emit *emit)
{
    return keep(model, 'f', emit);
}

static enum zo_status keep_turn(void *model, const struct zo_emit *emit)
{
    return keep(model, 't', emit);
}

static enum zo_status keep_backward(void *model, const struct zo_emit *emit)
{
    return keep(model, 'b', emit);
}

static const struct zo_model_ops recorder_ops = {
    .prepare = record_nothing,
    .forward = keep_forward,
    .turn = keep_turn,
    .backward = keep_backward,
};

enum { UNITS = 3, DEVICES = 2, MICROS = 5, PASS = 2 };

/* The calls of one pass, in their order, from *next on. */
static void check_pass(const struct recorder *recorder, int begin, int end,
                       int *next)
{
    for (int row = 0; row < 2 * UNITS - 1; row++) {
        const bool is_forward = row < UNITS - 1;
        const int u = is_forward ? row : 2 * UNITS - 2 - row;

        for (int i = begin * DEVICES; i < end * DEVICES; i++, ++*next) {
            const struct call *call = &recorder->calls[*next];

            TAP_CHECK_INT(call->kind, is_forward       ? 'f'
                                      : u == UNITS - 1 ? 't'
                                                       : 'b');
            TAP_CHECK_INT(call->emit.unit, u);
            TAP_CHECK_INT(call->emit.micro, i / DEVICES);
            TAP_CHECK_INT(call->emit.device, i % DEVICES);
            TAP_CHECK(call->emit.trains);
            TAP_CHECK(call->emit.is_first == (i < DEVICES));
        }
    }
}

/* The call of a kind for a place in the step. */
static const struct zo_emit *find(const struct recorder *recorder, char kind,
                                  int u, int micro, int d)
{
    for (int i = 0; i < recorder->count; i++) {
        const struct zo_emit *emit = &recorder->calls[i].emit;

        if (recorder->calls[i].kind == kind && emit->unit == u &&
            emit->micro == micro && emit->device == d && emit->trains) {
            return emit;
        }
    }
    return NULL;
}

/* What one unit writes is what the next one reads; sums are one a unit. */
static void check_buffers(const struct recorder *recorder)
{
    for (int i = 0; i < MICROS * DEVICES; i++) {
        const int m = i / DEVICES, d = i % DEVICES;
        const struct zo_emit *turn = find(recorder, 't', UNITS - 1, m, d);

        TAP_CHECK(turn->output == ZO_NO_BUFFER);
        TAP_CHECK(find(recorder, 'f', 0, m, d)->input == ZO_NO_BUFFER);
        TAP_CHECK(find(recorder, 'b', 0, m, d)->d_input == ZO_NO_BUFFER);
        for (int u = 0; u + 1 < UNITS; u++) {
            const struct zo_emit *forward = find(recorder, 'f', u, m, d);
            const struct zo_emit *backward = find(recorder, 'b', u, m, d);
            const struct zo_emit *next =
                u + 2 < UNITS ? find(recorder, 'b', u + 1, m, d) : turn;

            TAP_CHECK(forward->output != ZO_NO_BUFFER);
            TAP_CHECK_INT(next->input, forward->output);
            TAP_CHECK(backward->output == ZO_NO_BUFFER);
            TAP_CHECK_INT(backward->input, forward->input);
            TAP_CHECK_INT(backward->d_output, next->d_input);
            TAP_CHECK_INT(backward->batch, forward->batch);
            TAP_CHECK_INT(backward->grad_sum,
                          find(recorder, 'b', u, 0, d)->grad_sum);
            TAP_CHECK(backward->grad_sum != next->grad_sum);
        }
    }
}

static size_t count_ops(const struct zo_program *program, int schedule,
                        const char *name)
{
    size_t count = 0;

    for (size_t i = 0; i < program->schedules[schedule].op_count; i++) {
        count += strcmp(program->schedules[schedule].ops[i].name, name) == 0;
    }
    return count;
}

static void test_emitted(void)
{
    static struct recorder recorder; /* large */
    struct fake_shape shape = plain_shape(DEVICES);
    struct fake_model model;
    struct zo_build_options options;
    struct zo_build build;
    int next = 0;

    /* A fake model's options, but for who is asked. */
    shape.micros = MICROS;
    shape.placement.pass_micros = PASS;
    shape.has_evaluation = true;
    TAP_CHECK_INT(fake_model_build(&shape, &model), ZO_OK);
    options = model.build.options;
    options.model_ops = &recorder_ops;
    options.model = &recorder;
    TAP_CHECK_INT(zo_build_train(&options, &build), ZO_OK);
    for (int begin = 0; begin < MICROS; begin += PASS) {
        check_pass(&recorder, begin,
                   begin + PASS < MICROS ? begin + PASS : MICROS, &next);
    }
    check_buffers(&recorder);
    for (int i = 0; i < UNITS * DEVICES; i++, next++) { /* the evaluation */
        TAP_CHECK_INT(recorder.calls[next].kind, 'f');
        TAP_CHECK_INT(recorder.calls[next].emit.unit, i / DEVICES);
        TAP_CHECK_INT(recorder.calls[next].emit.device, i % DEVICES);
        TAP_CHECK(!recorder.calls[next].emit.trains);
    }
    TAP_CHECK_INT(next, recorder.count);
    /* Once a step, however many passes. */
    TAP_CHECK_INT(count_ops(&build.program, build.step_schedule, "AdamW"),
                  UNITS * DEVICES);
    TAP_CHECK_INT(
        count_ops(&build.program, build.step_schedule, "gradient reduction"),
        UNITS);
    TAP_CHECK_INT(
        count_ops(&build.program, build.step_schedule, "batch upload"),
        MICROS * DEVICES);
    TAP_CHECK_INT(count_ops(&build.program, build.step_schedule, "decide"), 1);
    TAP_CHECK_INT(build.program.schedules[build.tail_schedule].op_count, 0);
    zo_build_fini(&build);
    recorder.count = 0;
    options.decides = true;
    TAP_CHECK_INT(zo_build_train(&options, &build), ZO_OK);
    TAP_CHECK_INT(count_ops(&build.program, build.step_schedule, "AdamW"),
                  UNITS * DEVICES);
    TAP_CHECK_INT(build.program.schedules[build.tail_schedule].op_count,
                  UNITS * DEVICES);
    zo_build_fini(&build);
    zo_build_fini(&model.build);
}

/* ---- what the host gets to know ------------------------------------------ */

static void check_measured(const struct fake_model *model,
                           const struct zo_executor *executor)
{
    const struct zo_build *build = &model->build;
    const size_t units = (size_t)model->shape.units;
    const struct zo_norm_result *norms =
        zo_executor_address(executor, build->norms_host, 0);
    const uint32_t *bad = zo_executor_address(executor, build->bad_host, 0);
    const struct zo_measured measured = {
        .losses = zo_executor_address(executor, build->losses_host, 0),
        .options = &build->options};

    for (int d = 0; d < model->shape.devices; d++) {
        const size_t row = (size_t)d * units;
        const float *losses =
            zo_executor_address(executor, build->losses[d], 0);

        TAP_CHECK(memcmp(&norms[row],
                         zo_executor_address(executor, build->norms[d], 0),
                         units * sizeof(norms[0])) == 0);
        for (size_t u = 0; u < units; u++) {
            /* Of its own shard, which may be all padding. */
            TAP_CHECK(norms[u].square_sum > 0.0);
            TAP_CHECK(d == 0 ||
                      norms[row + u].square_sum != norms[u].square_sum);
            TAP_CHECK_INT(bad[row + u], 2); /* the fake AdamW was here */
        }
        for (int m = 0; m < model->shape.micros; m++) {
            TAP_CHECK(memcmp(zo_measured_losses(&measured, m, d),
                             losses + m * FAKE_LABELS_MAX,
                             FAKE_LABELS_MAX * sizeof(float)) == 0);
        }
    }
}

static void test_measured(void)
{
    for (int devices = 1; devices <= 3; devices++) {
        struct fake_shape shape = plain_shape(devices);
        struct zo_executor *executor = NULL;
        struct zo_machine machine;
        struct fake_model model;

        shape.kernel_ops = &fake_kernels;
        TAP_CHECK_INT(fake_model_build(&shape, &model), ZO_OK);
        TAP_CHECK_INT(help_machine_open(&machine, devices, 1, 0), ZO_OK);
        machine.kernel_ops = &fake_kernels;
        TAP_CHECK_INT(zo_executor_open(&model.build.program, &machine, &workers,
                                       &executor),
                      ZO_OK);
        TAP_CHECK_INT(fake_model_load(&model, executor), ZO_OK);
        TAP_CHECK_INT(fake_model_run(&model, executor, "sss"), ZO_OK);
        check_measured(&model, executor); /* the third, in slot 0 */
        zo_executor_close(executor);
        help_machine_close(&machine);
        zo_build_fini(&model.build);
    }
}

/* Layers have caches, the first unit and the last have none. */
static void test_caches(void)
{
    for (int has_cache = 0; has_cache < 2; has_cache++) {
        struct fake_shape shape = plain_shape(1);
        struct fake_model model;

        shape.units = 4;
        TAP_CHECK_INT(fake_model_build_decode(&shape, has_cache == 1, &model),
                      ZO_OK);
        for (int u = 0; u < shape.units; u++) {
            const zo_buffer_id id = model.decode.caches[u];

            TAP_CHECK((id != ZO_NO_BUFFER) ==
                      (has_cache == 1 && u > 0 && u < 3));
            TAP_CHECK(id == ZO_NO_BUFFER ||
                      model.decode.program.buffers[id].schedule == -1);
        }
        zo_decode_build_fini(&model.decode);
    }
}

/* ---- order --------------------------------------------------------------- */

/* Updates wait for the decision, but are not held up when there is none. */
static void test_decides(void)
{
    for (int decides = 0; decides < 2; decides++) {
        const struct zo_sequence_item items[] = {{0, 0}, {0, 1}};
        struct fake_shape shape = plain_shape(2);
        struct fake_model model;
        struct zo_edges edges;
        size_t decide, found = 0, updates = 0;

        shape.decides = decides == 1;
        TAP_CHECK_INT(fake_model_build(&shape, &model), ZO_OK);
        TAP_CHECK_INT(zo_edges_derive(&model.build.program, items, 2, &edges),
                      ZO_OK);
        decide = edges.count / 2 - 1;
        TAP_CHECK(strcmp(model.build.program.schedules[0].ops[decide].name,
                         "decide") == 0);
        for (size_t i = decide + 1; i < edges.count; i++) {
            const struct zo_op *op =
                &model.build.program.schedules[0].ops[i - decide - 1];

            for (size_t e = edges.first[i]; e < edges.first[i + 1]; e++) {
                found +=
                    edges.preds[e] == decide && strcmp(op->name, "AdamW") == 0;
            }
            updates += strcmp(op->name, "AdamW") == 0;
        }
        TAP_CHECK_INT(updates, 6);
        TAP_CHECK_INT(found, decides == 1 ? updates : 0);
        zo_edges_fini(&edges);
        zo_build_fini(&model.build);
    }
}

static void test_most_devices(void)
{
    const struct zo_sequence_item items[] = {
        {0, 0}, {0, 1}, {1, 0}, {0, 1}, {2, 0}};
    struct fake_shape shape = plain_shape(ZO_DEVICES_MAX);
    struct fake_model model;
    struct zo_edges edges;

    shape.units = 2;
    shape.micros = shape.placement.pass_micros = 1;
    shape.has_evaluation = true;
    TAP_CHECK_INT(fake_model_build(&shape, &model), ZO_OK);
    TAP_CHECK_INT(zo_edges_derive(&model.build.program, items, 5, &edges),
                  ZO_OK);
    TAP_CHECK_INT(zo_edges_check(&model.build.program, items, 5, &edges),
                  ZO_OK);
    zo_edges_fini(&edges);
    zo_build_fini(&model.build);
}

/* ---- the reduction ------------------------------------------------------- */

enum { SHARD = 3 * ZO_TENSOR_ALIGN_ELEMS, RANKS = 4 };

struct reduction {
    struct zo_machine machine;
    struct zo_stream *streams[RANKS];
    float local[RANKS][RANKS * SHARD], staging[RANKS][RANKS * SHARD];
    uint16_t grad[RANKS][RANKS * SHARD];
    struct zo_norm_result norm[RANKS];
    double workspace[RANKS][8];
};

/* What finish_together() declares, by hand. */
static enum zo_status reduce(struct reduction *r, int64_t bucket)
{
    const int ranks = r->machine.device_count;
    const struct zo_unit unit = {.shard_elems = SHARD,
                                 .elems = (int64_t)SHARD * ranks};
    const struct zo_build_options options = {
        .units = &unit, .type = ZO_BF16, .comm_type = ZO_F32};
    const struct zo_op op = {.context = &options, .args = {bucket, true}};
    void *at[5 * RANKS];
    const struct zo_op_call call = {
        .op = &op, .machine = &r->machine, .at = at, .streams = r->streams};

    for (int d = 0; d < ranks; d++) {
        void *const own[] = {r->local[d], r->staging[d], r->grad[d],
                             &r->norm[d], r->workspace[d]};

        memcpy(&at[5 * d], own, sizeof(own));
    }
    ZO_TRY(zo_build_run_reduce(&call));
    for (int d = 0; d < ranks; d++) {
        ZO_TRY(zo_device_host.stream_sync(r->streams[d]));
    }
    return ZO_OK;
}

static void check_reduction(struct reduction *r, int64_t bucket)
{
    const int ranks = r->machine.device_count;
    double squares[RANKS] = {0.0};

    for (int i = 0; i < ranks * SHARD; i++) {
        for (int d = 0; d < ranks; d++) { /* sums depend on their order */
            r->local[d][i] =
                (float)zo_random_normal(5, (uint64_t)(RANKS * i + d)) *
                (d == 1 ? 1e6f : 1.0f);
        }
    }
    TAP_CHECK_INT(reduce(r, bucket), ZO_OK);
    for (int i = 0; i < ranks * SHARD; i++) {
        float sum = r->local[0][i];
        double value;

        for (int d = 1; d < ranks; d++) {
            sum += r->local[d][i];
        }
        for (int d = 0; d < ranks; d++) {
            TAP_CHECK_INT(r->grad[d][i], zo_f32_to_bf16(sum));
        }
        value = (double)zo_bf16_to_f32(r->grad[0][i]);
        squares[i / SHARD] += value * value;
    }
    for (int d = 0; d < ranks; d++) { /* each its own shard's */
        const double error = r->norm[d].square_sum / squares[d] - 1.0;

        TAP_CHECK(error < 1e-12 && error > -1e-12);
        TAP_CHECK_INT((long long)r->norm[d].bad_count, 0);
    }
}

static void test_reduction(void)
{
    for (int ranks = 2; ranks <= RANKS; ranks++) {
        struct reduction *r = NULL;

        TAP_CHECK_INT(zo_alloc(1, sizeof(*r), "a reduction", &r), ZO_OK);
        TAP_CHECK_INT(help_machine_open(&r->machine, ranks, 1, 5), ZO_OK);
        TAP_CHECK_INT(open_kernels(&r->machine), ZO_OK);
        for (int d = 0; d < ranks; d++) {
            TAP_CHECK_INT(zo_device_host.stream_open(r->machine.devices[d],
                                                     "reduce", &r->streams[d]),
                          ZO_OK);
        }
        for (int64_t bucket = ZO_TENSOR_ALIGN_ELEMS; bucket <= SHARD;
             bucket += ZO_TENSOR_ALIGN_ELEMS) {
            check_reduction(r, bucket);
        }
        for (int d = 0; d < ranks; d++) {
            zo_device_host.stream_close(r->streams[d]);
        }
        close_machine(&r->machine);
        zo_free(r);
    }
}

/* ---- failures ------------------------------------------------------------ */

static void test_failed_allocations(void)
{
    struct fake_shape shape = plain_shape(2);
    bool is_built = false;
    uint64_t nth = 0;

    shape.has_evaluation = true;
    while (!is_built) {
        struct fake_model model;
        enum zo_status status;

        zo_memory_fail_at(++nth);
        status = fake_model_build(&shape, &model);
        zo_memory_fail_at(0);
        is_built = status == ZO_OK;
        TAP_CHECK(is_built || status == ZO_E_NOMEM);
        TAP_CHECK(nth < 200);
        zo_build_fini(&model.build);
    }
    TAP_CHECK(nth > 20);
    zo_build_fini(NULL);
}

static void test_failed_decode_allocations(void)
{
    struct fake_shape shape = plain_shape(1);
    bool is_built = false;
    uint64_t nth = 0;

    while (!is_built) {
        struct fake_model model;
        enum zo_status status;

        zo_memory_fail_at(++nth);
        status = fake_model_build_decode(&shape, true, &model);
        zo_memory_fail_at(0);
        is_built = status == ZO_OK;
        TAP_CHECK(is_built || status == ZO_E_NOMEM);
        TAP_CHECK(nth < 200);
        zo_decode_build_fini(&model.decode);
    }
    TAP_CHECK(nth > 10);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"micro batches pass through a unit before the next is touched",
         test_emitted},
        {"what devices measure arrives in its place", test_measured},
        {"passes, recomputation and pieces do not change the numbers",
         test_same_numbers},
        {"an update runs once, in the next list, unless it is skipped",
         test_updates},
        {"an evaluation alone keeps weights alone", test_evaluates_only},
        {"decoding keeps a cache a layer, if it has any", test_caches},
        {"updates wait for the decision if there is one", test_decides},
        {"64 devices are possible", test_most_devices},
        {"devices add up in rank order, measure their shard and share it",
         test_reduction},
        {"each failed allocation of a training run is clean",
         test_failed_allocations},
        {"each failed allocation of decoding is clean",
         test_failed_decode_allocations},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
