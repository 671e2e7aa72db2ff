/*
 * The builder with states on the host: what crosses the bus, where updates
 * stand, what rings hold, and that none of it changes the numbers.
 */
#include <stdbool.h>
#include <string.h>

#include "offload/builder_internal.h"
#include "offload/planner.h"
#include "tests/builder_rig.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

enum { UNITS = 8, LAYERS = UNITS - 2 };

static const struct zo_unit_homes optimizer = {ZO_TIER_GPU, ZO_TIER_CPU};
static const struct zo_unit_homes both = {ZO_TIER_CPU, ZO_TIER_CPU};

static const struct zo_executor_options workers = {.cpu_workers = 2};

/* ---- whole runs ---------------------------------------------------------- */

static struct fake_shape plain_shape(struct zo_unit_homes homes)
{
    struct fake_shape shape = {
        .seed = 6,
        .units = UNITS,
        .devices = 1,
        .micros = 3,
        .placement = {.pass_micros = 3, .weight_ring = 2, .gradient_ring = 1},
        .reads_rows = true,
        .fills_rows = true,
        .type = ZO_BF16,
        .kernel_ops = &fake_kernels};

    for (int u = 0; u < UNITS; u++) {
        shape.homes[u] = homes;
    }
    return shape;
}

/* ---- what crosses the bus ------------------------------------------------ */

struct traffic {
    int64_t up, down;
};

/* Of one list, once the pipes are full; -1: the run failed. */
static struct traffic traffic_of(const struct fake_shape *shape, char list)
{
    struct zo_executor_counters before, after;
    char lists[2] = {list, '\0'};
    struct builder_rig rig;
    struct traffic moved = {-1, -1};

    if (builder_rig_open(shape, &workers, &rig) == ZO_OK &&
        fake_model_run(&rig.model, rig.executor, lists) == ZO_OK) {
        zo_executor_counters(rig.executor, &before);
        if (fake_model_run(&rig.model, rig.executor, lists) == ZO_OK) {
            zo_executor_counters(rig.executor, &after);
            moved.up = (int64_t)(after.bytes[ZO_ENGINE_H2D] -
                                 before.bytes[ZO_ENGINE_H2D]);
            moved.down = (int64_t)(after.bytes[ZO_ENGINE_D2H] -
                                   before.bytes[ZO_ENGINE_D2H]);
        }
    }
    builder_rig_close(&rig);
    return moved;
}

/* The 16-bit weights of units first .. last. */
static int64_t typed_bytes(const struct fake_shape *shape, int first, int last)
{
    struct fake_model model;
    int64_t bytes = 0;

    if (fake_model_build(shape, &model) != ZO_OK) {
        return -1;
    }
    for (int u = first; u <= last; u++) {
        bytes += model.units[u].elems * (int64_t)zo_dtype_bytes(shape->type);
    }
    zo_build_fini(&model.build);
    return bytes;
}

/* Batches up; losses, and of a step norms and checks, down. */
static struct traffic small_traffic(const struct fake_shape *shape, int micros,
                                    bool trains)
{
    const struct zo_build_options options = {.micros = shape->micros,
                                             .labels_max = FAKE_LABELS_MAX};
    const int64_t checks =
        shape->units *
        (int64_t)(sizeof(struct zo_norm_result) + sizeof(uint32_t));

    return (struct traffic){(int64_t)micros * FAKE_BATCH_BYTES,
                            (int64_t)zo_build_losses_bytes(&options) +
                                (trains ? checks : 0)};
}

/*
 * One pass, the embedding by rows: layers twice but for the depth - 1 that
 * the ring still has behind the head, the head once; gradients once.
 */
static void check_one_pass(const struct fake_shape *shape)
{
    const int depth = shape->placement.weight_ring;
    const struct traffic small = small_traffic(shape, shape->micros, true);
    const struct traffic moved = traffic_of(shape, 's');
    const int64_t rows = (int64_t)shape->micros * FAKE_ROWS_MAX *
                         FAKE_ROW_ELEMS * (int64_t)zo_dtype_bytes(shape->type);
    const int first_kept = LAYERS - (depth - 1) + 1;

    TAP_CHECK_INT(moved.up, small.up + rows +
                                typed_bytes(shape, 1, LAYERS + 1) +
                                typed_bytes(shape, 1, first_kept - 1));
    TAP_CHECK_INT(moved.down, small.down + typed_bytes(shape, 0, LAYERS + 1));
}

static void test_one_pass(void)
{
    for (int type = 0; type < 3; type++) {
        struct fake_shape shape = plain_shape(both);

        shape.type = (enum zo_dtype)type;
        for (int depth = 2; depth <= 5; depth++) {
            shape.placement.weight_ring = depth;
            shape.decides = depth % 2 == 0;
            shape.placement.weight_copies = depth < 4;
            shape.placement.waits_to_fetch = depth == 3;
            for (shape.micros = 1; shape.micros <= 4; shape.micros++) {
                shape.placement.pass_micros = shape.micros;
                check_one_pass(&shape);
            }
        }
    }
}

/* Each pass fetches, but gradients cross once; between two passes a ring has
 * the units that end one and begin the next. */
static void test_more_passes(void)
{
    struct fake_shape shape = plain_shape(both);

    shape.reads_rows = false; /* so all units, and the first one twice */
    shape.micros = 4;
    for (int depth = 2; depth <= 4; depth++) {
        for (int pass_micros = 1; pass_micros <= 4; pass_micros++) {
            const int passes = (4 + pass_micros - 1) / pass_micros;
            const struct traffic small = small_traffic(&shape, 4, true);
            const int64_t layers = typed_bytes(&shape, 0, LAYERS);
            const int64_t head = typed_bytes(&shape, UNITS - 1, UNITS - 1);
            const int64_t turn =
                typed_bytes(&shape, LAYERS - (depth - 1) + 1, LAYERS);
            const int64_t begin = typed_bytes(&shape, 0, depth - 1);
            struct traffic moved;

            shape.placement.weight_ring = depth;
            shape.placement.pass_micros = pass_micros;
            moved = traffic_of(&shape, 's');
            TAP_CHECK_INT(moved.up, small.up +
                                        passes * (2 * layers + head - turn) -
                                        (passes - 1) * begin);
            TAP_CHECK_INT(moved.down, small.down + layers + head);
        }
    }
}

/* Weights whose uses lie apart are fetched for each of them. */
static void test_no_reuse(void)
{
    struct fake_shape shape = plain_shape(both);
    struct traffic small;

    shape.placement.weight_ring = 5;
    shape.placement.reuse_max_elems = 1;
    small = small_traffic(&shape, shape.micros, true);
    TAP_CHECK_INT(traffic_of(&shape, 's').up,
                  small.up + shape.micros * FAKE_ROWS_MAX * FAKE_ROW_ELEMS * 2 +
                      2 * typed_bytes(&shape, 1, LAYERS) +
                      typed_bytes(&shape, UNITS - 1, UNITS - 1));
}

/* A second copy on the device is renewed once a list, in any list. */
static void test_renewed(void)
{
    for (int pass_micros = 1; pass_micros <= 3; pass_micros++) {
        struct fake_shape shape = plain_shape(optimizer);
        struct traffic small = small_traffic(&shape, 3, true), moved;

        shape.placement.pass_micros = pass_micros;
        shape.has_evaluation = true;
        moved = traffic_of(&shape, 's');
        TAP_CHECK_INT(moved.up, small.up + typed_bytes(&shape, 0, UNITS - 1));
        TAP_CHECK_INT(moved.down,
                      small.down + typed_bytes(&shape, 0, UNITS - 1));
        small = small_traffic(&shape, 1, false);
        moved = traffic_of(&shape, 'e');
        TAP_CHECK_INT(moved.up, small.up + typed_bytes(&shape, 0, UNITS - 1));
        TAP_CHECK_INT(moved.down, small.down);
    }
}

/* Resident units cross no bus, whatever the others do. */
static void test_mixed(void)
{
    struct fake_shape shape = plain_shape(both);
    const struct traffic small = small_traffic(&shape, 3, true);
    struct traffic moved;

    memset(shape.homes, 0, sizeof(shape.homes));
    moved = traffic_of(&shape, 's');
    TAP_CHECK_INT(moved.up, small.up);
    TAP_CHECK_INT(moved.down, small.down);
    shape.homes[2] = both;
    shape.homes[4] = optimizer;
    moved = traffic_of(&shape, 's');
    TAP_CHECK_INT(moved.up, small.up + typed_bytes(&shape, 2, 2) +
                                typed_bytes(&shape, 4, 4));
    TAP_CHECK_INT(moved.down, small.down + typed_bytes(&shape, 2, 2) +
                                  typed_bytes(&shape, 4, 4));
}

/* Boundaries go to the host and come back, but for that of the last layer. */
static void test_boundaries(void)
{
    struct fake_shape shape = plain_shape((struct zo_unit_homes){0});
    const struct traffic small = small_traffic(&shape, 3, true);

    shape.has_evaluation = true;
    for (int host = 0; host <= UNITS; host++) {
        const int64_t waiting = host < LAYERS ? host : LAYERS;
        struct traffic moved;

        shape.placement.host_boundaries = host;
        for (int pass = 1; pass <= 3; pass++) {
            shape.placement.pass_micros = pass;
            moved = traffic_of(&shape, 's');
            TAP_CHECK_INT(moved.up - small.up,
                          waiting * 3 * FAKE_BOUNDARY_BYTES);
            TAP_CHECK_INT(moved.down - small.down,
                          waiting * 3 * FAKE_BOUNDARY_BYTES);
        }
        moved = traffic_of(&shape, 'e'); /* nobody comes back */
        TAP_CHECK_INT(moved.up, FAKE_BATCH_BYTES);
    }
}

/* An evaluation fetches each streaming unit once. */
static void test_evaluation(void)
{
    for (int alone = 0; alone < 2; alone++) {
        struct fake_shape shape = plain_shape(both);
        struct traffic small, moved;

        shape.has_evaluation = true;
        shape.evaluates_only = alone == 1;
        small = small_traffic(&shape, 1, false);
        moved = traffic_of(&shape, 'e');
        TAP_CHECK_INT(moved.up, small.up + FAKE_ROWS_MAX * FAKE_ROW_ELEMS * 2 +
                                    typed_bytes(&shape, 1, UNITS - 1));
        TAP_CHECK_INT(moved.down, small.down);
    }
}

/* ---- what is emitted ----------------------------------------------------- */

static const struct zo_schedule *list_of(const struct fake_model *model,
                                         char list)
{
    return &model->build.program.schedules[fake_model_list(model, list)];
}

/* The index of the nth operation of a name and unit (-1: any); -1: none. */
static int64_t find_op(const struct zo_schedule *list, const char *name,
                       int unit, int nth)
{
    for (size_t i = 0; i < list->op_count; i++) {
        if (strcmp(list->ops[i].name, name) == 0 &&
            (unit < 0 || list->ops[i].unit == unit) && nth-- == 0) {
            return (int64_t)i;
        }
    }
    return -1;
}

static int count_ops(const struct zo_schedule *list, const char *name)
{
    int count = 0;

    while (find_op(list, name, -1, count) >= 0) {
        count++;
    }
    return count;
}

static const char host_update[] = "AdamW on the host";
static const char to_host[] = "gradient to the host";
static const char to_device[] = "weights to the device";

/* An update stands behind its gradient, or, when it waits for a decision, at
 * the beginning of the next list. */
static void check_places(const struct fake_model *model)
{
    const bool decides = model->shape.decides;
    const struct zo_schedule *step = list_of(model, 's');

    TAP_CHECK_INT(count_ops(step, host_update), UNITS);
    TAP_CHECK_INT(count_ops(step, to_host), UNITS);
    TAP_CHECK_INT(count_ops(step, "AdamW"), 0);
    TAP_CHECK_INT(list_of(model, 't')->op_count, decides ? UNITS : 0);
    for (int u = 0; u < UNITS; u++) {
        const int64_t update = find_op(step, host_update, u, 0);
        const int64_t drain = find_op(step, to_host, u, 0);

        TAP_CHECK_INT(step->ops[update].engine, ZO_ENGINE_CPU);
        TAP_CHECK_INT(update, decides ? u : drain + 1);
        TAP_CHECK(!decides || step->ops[update].priority == u);
    }
}

static void test_places(void)
{
    for (int decides = 0; decides < 2; decides++) {
        struct fake_shape shape = plain_shape(both);
        uint64_t before, after;
        struct fake_model model;

        shape.decides = decides == 1;
        shape.has_evaluation = true;
        TAP_CHECK_INT(fake_model_build(&shape, &model), ZO_OK);
        check_places(&model);
        TAP_CHECK_INT(count_ops(list_of(&model, 'e'), host_update),
                      decides * UNITS);
        zo_build_fini(&model.build);
        before = builder_rig_states(&shape, "", &workers);
        TAP_CHECK(builder_rig_states(&shape, "t", &workers) ==
                  before); /* none is due */
        TAP_CHECK((builder_rig_states(&shape, "s", &workers) == before) ==
                  shape.decides);
        after = builder_rig_states(&shape, "st", &workers);
        TAP_CHECK(after != before);
        TAP_CHECK(builder_rig_states(&shape, "se", &workers) == after);
        TAP_CHECK(builder_rig_states(&shape, "sett", &workers) == after);
        /* The model skips step 2, if it is asked. */
        TAP_CHECK((builder_rig_states(&shape, "sst", &workers) == after) ==
                  shape.decides);
    }
}

/* True: an edge from one operation of the first list to another. */
static bool has_edge(const struct zo_edges *edges, int64_t from, int64_t to)
{
    for (size_t e = edges->first[to]; e < edges->first[to + 1]; e++) {
        if (edges->preds[e] == (size_t)from) {
            return true;
        }
    }
    return false;
}

/* A gradient waits for the update that had its place, `ring` units before. */
static void check_gradient_ring(const struct fake_shape *shape)
{
    const struct zo_sequence_item item = {0, 0};
    const int ring = shape->placement.host_gradient_ring;
    struct zo_plan_arena arena;
    struct fake_model model;
    struct zo_edges edges;
    int64_t most = 0;

    TAP_CHECK_INT(fake_model_build(shape, &model), ZO_OK);
    TAP_CHECK_INT(zo_edges_derive(&model.build.program, &item, 1, &edges),
                  ZO_OK);
    for (int i = 0; i < UNITS * UNITS; i++) { /* in the order of backward */
        const int early = UNITS - 1 - i / UNITS, late = UNITS - 1 - i % UNITS;
        const bool shares =
            ring > 0 && early > late && (early - late) % ring == 0;
        const bool waits = has_edge(
            &edges, find_op(list_of(&model, 's'), host_update, early, 0),
            find_op(list_of(&model, 's'), to_host, late, 0));

        TAP_CHECK(shares || !waits);
        TAP_CHECK(waits || early - late != ring || ring == 0);
        if (model.units[early].elems > most) {
            most = model.units[early].elems;
        }
    }
    zo_plan_arena(&model.build.program, ZO_TIER_CPU, 0, &arena);
    TAP_CHECK_INT(arena.purposes[ZO_PURPOSE_GRADIENT_RING], 2 * ring * most);
    TAP_CHECK_INT(arena.purposes[ZO_PURPOSE_GRADIENT],
                  ring == 0 ? typed_bytes(shape, 0, UNITS - 1) : 0);
    zo_edges_fini(&edges);
    zo_build_fini(&model.build);
}

static void test_gradient_ring(void)
{
    struct fake_shape shape = plain_shape(both);

    for (int ring = 0; ring <= 4; ring++) {
        shape.placement.host_gradient_ring = ring;
        check_gradient_ring(&shape);
    }
}

/* A decision holds all gradients up: no ring could. */
static void test_decision_keeps_gradients(void)
{
    struct fake_shape shape = plain_shape(both);
    struct zo_plan_arena arena;
    struct fake_model model;

    shape.decides = true;
    shape.placement.host_gradient_ring = 2;
    TAP_CHECK_INT(fake_model_build(&shape, &model), ZO_OK);
    zo_plan_arena(&model.build.program, ZO_TIER_CPU, 0, &arena);
    TAP_CHECK_INT(arena.purposes[ZO_PURPOSE_GRADIENT],
                  typed_bytes(&shape, 0, UNITS - 1));
    TAP_CHECK_INT(arena.purposes[ZO_PURPOSE_GRADIENT_RING], 0);
    zo_build_fini(&model.build);
}

/* The first operation of the model on a unit. */
static int64_t first_compute(const struct zo_schedule *list, int unit)
{
    for (size_t i = 0; i < list->op_count; i++) {
        if (list->ops[i].engine == ZO_ENGINE_COMPUTE &&
            list->ops[i].unit == unit) {
            return (int64_t)i;
        }
    }
    return -1;
}

/* The first fetches stand before all work, as many as the ring is deep, or,
 * when fetches wait, each behind the work of the unit before. */
static void test_fetched_early(void)
{
    for (int waits = 0; waits < 2; waits++) {
        struct fake_shape shape = plain_shape(both);
        struct fake_model model;

        shape.placement.weight_ring = 3;
        shape.placement.waits_to_fetch = waits == 1;
        TAP_CHECK_INT(fake_model_build(&shape, &model), ZO_OK);
        for (int u = 1; u < UNITS; u++) {
            const struct zo_schedule *step = list_of(&model, 's');
            const int64_t at = find_op(step, to_device, u, 0);
            const int ahead = waits ? u - 1 : u <= 3 ? -1 : u - 3;

            TAP_CHECK(at >= 0 && at < first_compute(step, u));
            TAP_CHECK(ahead < 0 || at > first_compute(step, ahead));
            TAP_CHECK(ahead + 1 >= u || at < first_compute(step, ahead + 1));
        }
        zo_build_fini(&model.build);
    }
}

/* Masters in fp16 are cast on their way, unless the host has a copy. */
static void test_prepared(void)
{
    for (int copies = 0; copies < 2; copies++) {
        struct fake_shape shape = plain_shape(both);
        struct fake_model model;
        int fetches;

        shape.type = ZO_F16;
        shape.placement.weight_copies = copies == 1;
        TAP_CHECK_INT(fake_model_build(&shape, &model), ZO_OK);
        fetches = count_ops(list_of(&model, 's'), to_device);
        TAP_CHECK_INT(fetches, LAYERS + 1 + LAYERS - 1);
        TAP_CHECK_INT(count_ops(list_of(&model, 's'), "weights prepared"),
                      copies ? 0 : fetches);
        for (int u = 0; u < UNITS; u++) {
            const struct zo_unit_buffers *unit =
                zo_build_unit(&model.build, u, 0);

            TAP_CHECK((unit->weights != ZO_NO_BUFFER) == (copies == 1));
            TAP_CHECK(unit->device_weights == ZO_NO_BUFFER);
        }
        zo_build_fini(&model.build);
    }
}

/* ---- what backward gets -------------------------------------------------- */

/* A model that adds nothing, and keeps the weights of unit 0's calls. */
struct seen {
    zo_buffer_id forward, backward;
};

static enum zo_status see_nothing(void *model, struct zo_program *program,
                                  int device)
{
    (void)model, (void)program, (void)device;
    return ZO_OK;
}

static enum zo_status see_forward(void *model, const struct zo_emit *emit)
{
    struct seen *seen = model;

    seen->forward = emit->unit == 0 ? emit->weights : seen->forward;
    return ZO_OK;
}

static enum zo_status see_backward(void *model, const struct zo_emit *emit)
{
    struct seen *seen = model;

    seen->backward = emit->unit == 0 ? emit->weights : seen->backward;
    return ZO_OK;
}

static bool see_rows(void *model, int unit, struct zo_unit_rows *rows_out)
{
    (void)model;
    *rows_out = (struct zo_unit_rows){.row_bytes = 8, .rows_max = 2};
    return unit == 0;
}

/* Rows are gathered for forward alone: there are no weights of the unit on
 * the device in backward, and those of another are not given for them. */
static void test_backward_without_rows(void)
{
    static const struct zo_model_ops ops = {.prepare = see_nothing,
                                            .forward = see_forward,
                                            .rows = see_rows,
                                            .turn = see_backward,
                                            .backward = see_backward};
    const struct fake_shape shape = plain_shape(both);
    struct seen seen = {ZO_NO_BUFFER, 0};
    struct zo_build_options options;
    struct fake_model model;
    struct zo_build build;

    TAP_CHECK_INT(fake_model_build(&shape, &model), ZO_OK);
    options = model.build.options;
    options.model_ops = &ops;
    options.model = &seen;
    TAP_CHECK_INT(zo_build_train(&options, &build), ZO_OK);
    TAP_CHECK(seen.forward != ZO_NO_BUFFER);
    TAP_CHECK_INT(seen.backward, ZO_NO_BUFFER);
    zo_build_fini(&build);
    zo_build_fini(&model.build);
}

/* ---- numbers ------------------------------------------------------------- */

/* A device that only evaluates holds a ring, and sees the same weights. */
static void test_evaluates_only(void)
{
    uint64_t want = 0;

    for (int streams = 0; streams < 2; streams++) {
        struct fake_shape shape =
            plain_shape(streams ? both : (struct zo_unit_homes){0});
        struct zo_plan_arena arena;
        uint64_t measured;
        struct builder_rig rig;

        shape.evaluates_only = true;
        TAP_CHECK_INT(builder_rig_open(&shape, &workers, &rig), ZO_OK);
        TAP_CHECK_INT(fake_model_run(&rig.model, rig.executor, "eee"), ZO_OK);
        measured = fake_model_measured(&rig.model, rig.executor);
        TAP_CHECK(streams == 0 || measured == want);
        want = measured;
        zo_plan_arena(&rig.model.build.program, ZO_TIER_GPU, 0, &arena);
        TAP_CHECK((arena.purposes[ZO_PURPOSE_WEIGHTS] == 0) == (streams == 1));
        TAP_CHECK((arena.purposes[ZO_PURPOSE_WEIGHT_RING] > 0) ==
                  (streams == 1));
        TAP_CHECK_INT(arena.purposes[ZO_PURPOSE_GRADIENT_RING], 0);
        TAP_CHECK_INT(arena.purposes[ZO_PURPOSE_MASTER], 0);
        builder_rig_close(&rig);
    }
}

/* Units of several tiles: the workers share their updates and casts. */
static void test_tiles(void)
{
    const struct zo_executor_options five = {.cpu_workers = 5};

    for (int type = 0; type < 3; type++) {
        struct fake_shape shape = plain_shape((struct zo_unit_homes){0});
        uint64_t want;
        struct fake_model model;

        shape.units = 3;
        shape.type = (enum zo_dtype)type;
        shape.large_elems = 2 * ZO_TILE_ELEMS + 77;
        want = builder_rig_states(&shape, "s", &workers);
        for (int u = 0; u < UNITS; u++) {
            shape.homes[u] = both;
        }
        TAP_CHECK_INT(fake_model_build(&shape, &model), ZO_OK);
        TAP_CHECK_INT(
            list_of(&model, 's')
                ->ops[find_op(list_of(&model, 's'), host_update, 1, 0)]
                .parts,
            3);
        zo_build_fini(&model.build);
        TAP_CHECK(builder_rig_states(&shape, "s", &five) == want);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a pass fetches layers twice but for what the ring still has",
         test_one_pass},
        {"each pass fetches; gradients cross once a step", test_more_passes},
        {"uses that lie too far apart are fetched each", test_no_reuse},
        {"copies on the device are renewed once a list", test_renewed},
        {"resident units cross no bus", test_mixed},
        {"boundaries that wait on the host cross it twice", test_boundaries},
        {"an evaluation fetches each unit once", test_evaluation},
        {"updates stand behind their gradient, or in the next list",
         test_places},
        {"a ring of gradients waits for the update of its oldest",
         test_gradient_ring},
        {"a decision keeps all gradients", test_decision_keeps_gradients},
        {"weights are fetched as early as the ring allows, or when needed",
         test_fetched_early},
        {"fp16 weights are prepared on the host unless it has a copy",
         test_prepared},
        {"backward of a unit that is read by rows has no weights",
         test_backward_without_rows},
        {"an evaluation alone streams weights", test_evaluates_only},
        {"workers share the tiles of a large unit", test_tiles},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
