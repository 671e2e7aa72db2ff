/*
 * The real lists of training: their order is proven, and each operation
 * touches what it declares and nothing else.
 *
 * Faults are planted in lists that the trainer has built: an operation gets
 * another `run`, or an access is taken away from it.
 */
#include "src/train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/order.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

/* ---- order --------------------------------------------------------------- */

/* Steps, two of them with a save, an evaluation, and the end of a run. */
enum { ITEMS = 7 };

static size_t make_sequence(const struct zo_build *build,
                            struct zo_sequence_item items[ITEMS])
{
    items[0] = (struct zo_sequence_item){build->step_schedule, 0};
    items[1] = (struct zo_sequence_item){build->save_schedule, 0};
    items[2] = (struct zo_sequence_item){build->step_schedule, 1};
    items[3] = (struct zo_sequence_item){build->evaluation_schedule, 0};
    items[4] = (struct zo_sequence_item){build->step_schedule, 1};
    items[5] = (struct zo_sequence_item){build->save_schedule, 1};
    items[6] = (struct zo_sequence_item){build->tail_schedule, 0};
    return ITEMS;
}

static bool open_lists(int devices, bool clips, struct tiny_run *run)
{
    const struct tiny_knobs knobs = {
        .devices = devices,
        .accumulation = 2,
        .eval_rows = 5,
        .json = clips ? "\"gradient_clipping\": 1" : NULL,
    };

    if (tiny_open(&knobs, run) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
        return false;
    }
    return true;
}

static void test_lists_are_ordered(void)
{
    for (int devices = 1; devices <= 3; devices++) {
        for (int clips = 0; clips <= 1; clips++) {
            struct zo_sequence_item items[ITEMS];
            struct zo_edges edges = {0};
            struct tiny_run run;
            const struct zo_program *program;
            size_t count;

            TAP_CHECK(open_lists(devices, clips != 0, &run));
            program = &zo_trainer_build(run.trainer)->program;
            count = make_sequence(zo_trainer_build(run.trainer), items);
            TAP_CHECK_INT(zo_edges_derive(program, items, count, &edges),
                          ZO_OK);
            TAP_CHECK_INT(zo_edges_check(program, items, count, &edges), ZO_OK);
            zo_edges_fini(&edges);
            tiny_close(&run);
        }
    }
}

/* The lane of an instance of a sequence. */
static uint32_t lane_at(const struct zo_program *program,
                        const struct zo_sequence_item *items, size_t index)
{
    while (index >= program->schedules[items->schedule].op_count) {
        index -= program->schedules[items->schedule].op_count;
        items++;
    }
    return zo_lane_of(program, &program->schedules[items->schedule].ops[index]);
}

/*
 * Is `early` before `late` by some other way than edge number `gone`?  Goes
 * down from `late`: what is behind edges and lanes is marked.
 */
static bool is_implied(const struct zo_program *program,
                       const struct zo_sequence_item *items,
                       const struct zo_edges *edges, size_t gone, size_t early,
                       size_t late)
{
    unsigned char *marked = calloc(edges->count, 1);
    bool is_found;

    ZO_ASSERT(marked != NULL);
    marked[late] = 1;
    for (size_t at = late; at > early; at--) {
        const uint32_t lane = lane_at(program, items, at);
        bool has_lane = lane != ZO_NO_LANE;

        if (marked[at] == 0) {
            continue;
        }
        for (size_t e = edges->first[at]; e < edges->first[at + 1]; e++) {
            marked[edges->preds[e]] |= e != gone;
        }
        for (size_t i = at; has_lane && i-- > 0;) {
            if (lane_at(program, items, i) == lane) {
                marked[i] = 1;
                has_lane = false;
            }
        }
    }
    is_found = marked[early] != 0;
    free(marked);
    return is_found;
}

/* The instance that an edge leads to. */
static size_t edge_end(const struct zo_edges *edges, size_t edge)
{
    size_t at = 0;

    while (edges->first[at + 1] <= edge) {
        at++;
    }
    return at;
}

/* Checks without edge `gone`, which is put back. */
static enum zo_status check_without(const struct zo_program *program,
                                    const struct zo_sequence_item *items,
                                    size_t count, struct zo_edges *edges,
                                    size_t gone)
{
    const size_t end = edge_end(edges, gone);
    const size_t last = edges->first[edges->count] - 1;
    const size_t pred = edges->preds[gone];
    enum zo_status status;

    memmove(&edges->preds[gone], &edges->preds[gone + 1],
            (last - gone) * sizeof(edges->preds[0]));
    for (size_t i = end + 1; i <= edges->count; i++) {
        edges->first[i]--;
    }
    status = zo_edges_check(program, items, count, edges);
    for (size_t i = end + 1; i <= edges->count; i++) {
        edges->first[i]++;
    }
    memmove(&edges->preds[gone + 1], &edges->preds[gone],
            (last - gone) * sizeof(edges->preds[0]));
    edges->preds[gone] = pred;
    return status;
}

static void test_missing_edge(void)
{
    struct zo_sequence_item items[ITEMS];
    struct zo_edges edges = {0};
    struct tiny_run run;
    const struct zo_program *program;
    size_t count, needed = 0, total;

    TAP_CHECK(open_lists(2, true, &run));
    program = &zo_trainer_build(run.trainer)->program;
    count = make_sequence(zo_trainer_build(run.trainer), items);
    TAP_CHECK_INT(zo_edges_derive(program, items, count, &edges), ZO_OK);
    total = edges.first[edges.count];
    for (size_t gone = 0; gone < total; gone += 1 + total / 60) {
        const size_t end = edge_end(&edges, gone);
        const bool implied =
            is_implied(program, items, &edges, gone, edges.preds[gone], end);
        const enum zo_status status =
            check_without(program, items, count, &edges, gone);

        TAP_CHECK_INT(status, implied ? ZO_OK : ZO_E_ARG);
        TAP_CHECK(implied || strstr(zo_err_last()->text, "nothing orders"));
        needed += !implied;
    }
    TAP_CHECK(needed >= 5);
    TAP_CHECK_INT(zo_edges_check(program, items, count, &edges), ZO_OK);
    zo_edges_fini(&edges);
    tiny_close(&run);
}

/* ---- planted accesses ---------------------------------------------------- */

/* What the planted operation does, beside its own work. */
static struct {
    zo_op_fn run;    /* its own */
    uint32_t access; /* relative to this access of its */
    int64_t offset;  /* from its beginning */
} planted;

static enum zo_status run_writing(const struct zo_op_call *call)
{
    ZO_TRY(planted.run(call));
    return call->machine->device_ops->fill(
        call->streams[0], (char *)call->at[planted.access] + planted.offset,
        0x11, sizeof(float));
}

static struct zo_access *access_of(const struct tiny_run *run, int schedule,
                                   const struct zo_op *op, uint32_t access)
{
    return &zo_trainer_build(run->trainer)
                ->program.schedules[schedule]
                .accesses[op->access_first + access];
}

/* Two steps; what the second one came to. */
static enum zo_status start_and_train(struct tiny_run *run,
                                      struct tiny_result *result)
{
    enum zo_status status = tiny_start(run);

    if (status == ZO_OK) {
        status = tiny_train(run, result);
    }
    tiny_close_trainer(run);
    return status;
}

static bool is_refused(enum zo_status got, const char *op, const char *part)
{
    if (got != ZO_E_ARG || strstr(zo_err_last()->text, op) == NULL ||
        strstr(zo_err_last()->text, part) == NULL) {
        tap_fail(__FILE__, __LINE__, "%s: status %d, %s", op, (int)got,
                 got == ZO_OK ? "" : zo_err_last()->text);
        return false;
    }
    return true;
}

static const struct tiny_knobs poisoned = {
    .devices = 2, .poisons = true, .steps = 2};

/* The access of a model's operation that is its result; not the builder's
 * own operations, which have none or several. */
static bool has_result(const struct zo_op *op)
{
    return op->engine == ZO_ENGINE_COMPUTE && op->micro >= 0 &&
           strcmp(op->name, "clear gaps") != 0;
}

/* An element at `at` of the arena would fall into what the operation may
 * write, or out of the arena: nothing to be found. */
static bool is_allowed(const struct zo_program *program, const struct zo_op *op,
                       int64_t at)
{
    const uint64_t end = (uint64_t)at + sizeof(float);

    for (uint32_t a = 0; a < op->access_count; a++) {
        const struct zo_range range = zo_access_range(
            program, &program->schedules[0].accesses[op->access_first + a], 0);

        if (range.mode != ZO_READ && range.tier == ZO_TIER_GPU &&
            range.begin < end && (uint64_t)at < range.end) {
            return true;
        }
    }
    return at < 0 || end > program->arena_bytes[ZO_TIER_GPU][op->device];
}

/* Plants a write beside the result of an operation; false: not possible. */
static bool plant_write(const struct tiny_run *run, size_t index,
                        bool is_behind)
{
    const struct zo_program *program = &zo_trainer_build(run->trainer)->program;
    struct zo_op *op = &program->schedules[0].ops[index];
    const struct zo_access *access = access_of(run, 0, op, 1);
    const uint64_t begin =
        program->buffers[access->buffer].offset + access->offset;

    planted.offset =
        is_behind ? (int64_t)access->bytes : -(int64_t)sizeof(float);
    if (!has_result(op) ||
        is_allowed(program, op, (int64_t)begin + planted.offset)) {
        return false;
    }
    planted.access = 1;
    planted.run = op->run;
    op->run = run_writing;
    return true;
}

static void test_write_outside(void)
{
    struct tiny_run run;
    struct tiny_result result;
    size_t ops, planted_count = 0;

    if (tiny_lacks_poison() != NULL) {
        tap_skip(tiny_lacks_poison());
        return;
    }
    TAP_CHECK_INT(tiny_open(&poisoned, &run), ZO_OK);
    ops = zo_trainer_build(run.trainer)->program.schedules[0].op_count;
    for (size_t i = 0; i < ops; i += 3) {
        const char *name;

        tiny_close(&run); /* collectives end with the run that failed */
        TAP_CHECK_INT(tiny_open(&poisoned, &run), ZO_OK);
        name = zo_trainer_build(run.trainer)->program.schedules[0].ops[i].name;
        if (plant_write(&run, i, i % 2 == 0)) {
            planted_count++;
            TAP_CHECK(
                is_refused(start_and_train(&run, &result), name, "declare"));
        }
    }
    TAP_CHECK(planted_count > ops / 6);
    tiny_close(&run);
}

/* ---- accesses taken away ------------------------------------------------- */

/* Numbers of the model: to read others' (counts, ids) as poison would only
 * make the operation fail. */
static bool is_numbers(enum zo_purpose purpose)
{
    return purpose != ZO_PURPOSE_BATCH && purpose != ZO_PURPOSE_CONTROL &&
           purpose != ZO_PURPOSE_WORKSPACE;
}

/* Does another access of the operation declare the same bytes? */
static bool is_twice(const struct zo_schedule *list, const struct zo_op *op,
                     uint32_t access)
{
    const struct zo_access *own = &list->accesses[op->access_first + access];

    for (uint32_t a = 0; a < op->access_count; a++) {
        const struct zo_access *other = &list->accesses[op->access_first + a];

        if (a != access && other->buffer == own->buffer &&
            (other->mode != ZO_WRITE || own->mode == ZO_READ_WRITE)) {
            return true;
        }
    }
    return false;
}

/*
 * Takes the nth reading of numbers away: a read has no bytes any more, what
 * is read and written is only written.  False: there is none.
 */
static bool take_read_away(const struct tiny_run *run, size_t nth,
                           const char **name_out)
{
    const struct zo_program *program = &zo_trainer_build(run->trainer)->program;
    const struct zo_schedule *list = &program->schedules[0];

    for (size_t i = 0; i < list->op_count; i++) {
        const struct zo_op *op = &list->ops[i];

        for (uint32_t a = 0; a < op->access_count; a++) {
            struct zo_access *access = &list->accesses[op->access_first + a];

            if (access->mode == ZO_WRITE || access->bytes == 0 ||
                !is_numbers(program->buffers[access->buffer].purpose) ||
                is_twice(list, op, a) || nth-- > 0) {
                continue;
            }
            *name_out = op->name;
            if (access->mode == ZO_READ) {
                access->bytes = 0;
            } else {
                access->mode = ZO_WRITE;
            }
            return true;
        }
    }
    return false;
}

static void test_undeclared_read(void)
{
    struct tiny_knobs knobs = {.accumulation = 2, .poisons = true, .steps = 2};
    struct tiny_result want, got;
    const char *name = NULL;
    struct tiny_run run;

    if (tiny_lacks_poison() != NULL) {
        tap_skip(tiny_lacks_poison());
        return;
    }
    TAP_CHECK_INT(tiny_whole(&knobs, &want), ZO_OK);
    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
    for (size_t nth = 0; take_read_away(&run, nth, &name); nth += 3) {
        const enum zo_status status = start_and_train(&run, &got);

        if (status == ZO_OK && tiny_same_bits(&want, &got)) {
            tap_fail(__FILE__, __LINE__, "reading %zu, of %s, is not missed",
                     nth, name);
            tiny_close(&run);
            return;
        }
        TAP_CHECK_INT(tiny_open_trainer(&run), ZO_OK);
    }
    tiny_close(&run);
    /* Without poison nobody would notice. */
    knobs.poisons = false;
    knobs.is_serial = true;
    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
    TAP_CHECK(take_read_away(&run, 5, &name));
    TAP_CHECK_INT(start_and_train(&run, &got), ZO_OK);
    TAP_CHECK(tiny_same_bits(&want, &got));
    tiny_close(&run);
}

static const struct tap_case cases[] = {
    {"steps, evaluation and last update are ordered, for 1 to 3 devices",
     test_lists_are_ordered},
    {"an edge that is missing is found, unless others imply it",
     test_missing_edge},
    {"a write outside of what an operation declares is found",
     test_write_outside},
    {"a read that an operation does not declare changes the result",
     test_undeclared_read},
};

int main(void)
{
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
