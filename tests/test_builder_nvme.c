/*
 * The builder with states on NVMe: how many bytes move, in which pieces, and
 * that none of it changes the numbers, whatever the store does late.
 */
#include <string.h>

#include "offload/builder_internal.h"
#include "src/base/arith.h"
#include "tests/builder_rig.h"
#include "tests/nvme_help.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

enum { UNITS = 5, LARGE = 1, LARGE_ELEMS = 2 * ZO_TILE_ELEMS + 77 };

static const struct zo_unit_homes resident = {ZO_TIER_GPU, ZO_TIER_GPU};
static const struct zo_unit_homes optimizer = {ZO_TIER_CPU, ZO_TIER_NVME};
static const struct zo_unit_homes both = {ZO_TIER_NVME, ZO_TIER_NVME};

static struct fake_shape shape_of(struct zo_unit_homes homes,
                                  enum zo_dtype type)
{
    struct fake_shape shape = {
        .seed = 6,
        .units = UNITS,
        .devices = 1,
        .micros = 2,
        .placement = {.pass_micros = 2,
                      .weight_ring = 2,
                      .gradient_ring = 1,
                      .nvme_ring = 3,
                      .nvme_piece_tiles = 1},
        .type = type,
        .has_evaluation = true,
        .large_elems = LARGE_ELEMS,
        .kernel_ops = &fake_kernels,
    };

    for (int u = 0; u < UNITS; u++) {
        shape.homes[u] = homes;
    }
    return shape;
}

static struct zo_nvme_options options_of(const struct zo_nvme_faults *faults)
{
    const char *memory = nvme_help_memory();

    return (struct zo_nvme_options){
        .directory = memory != NULL ? memory : nvme_help_disk(),
        .how = ZO_NVME_POOL,
        .allows_memory = true,
        .faults = faults,
    };
}

static enum zo_status rig_open(const struct fake_shape *shape,
                               const struct zo_nvme_faults *faults,
                               struct builder_rig *rig)
{
    const struct zo_nvme_options nvme = options_of(faults);
    const struct zo_executor_options options = {.cpu_workers = 2,
                                                .nvme = &nvme};

    return builder_rig_open(shape, &options, rig);
}

/* ---- numbers ------------------------------------------------------------- */

static uint64_t states_of(const struct fake_shape *shape, const char *lists)
{
    const struct zo_nvme_options nvme = options_of(NULL);
    const struct zo_executor_options options = {.cpu_workers = 2,
                                                .nvme = &nvme};

    return builder_rig_states(shape, lists, &options);
}

static void test_numbers(void)
{
    const bool samples = tap_samples("each type a second time");

    for (int i = 0; i < 6; i++) {
        struct fake_shape shape = shape_of(resident, (enum zo_dtype)(i / 2));
        uint64_t want;

        if (samples && i % 2 != i / 2 % 2) {
            continue;
        }
        shape.decides = i % 2 == 1;
        want = states_of(&shape, "sst");
        for (int u = 0; u < UNITS; u++) {
            shape.homes[u] = u % 2 == i / 2 % 2 ? optimizer : both;
        }
        shape.placement.host_gradient_ring = i == 0 ? 1 : 0;
        shape.placement.nvme_rings_gradients = i == 0;
        TAP_CHECK(states_of(&shape, "sst") == want);
    }
}

/* ---- bytes --------------------------------------------------------------- */

/* Whole chunks of a state of units first .. last. */
static int64_t chunks(const struct fake_model *model, int first, int last,
                      int64_t elem_bytes)
{
    int64_t bytes = 0;

    for (int u = first; u <= last; u++) {
        bytes += (int64_t)zo_round_up(
            (uint64_t)(model->units[u].elems * elem_bytes), ZO_NVME_CHUNK);
    }
    return bytes;
}

struct moved {
    int64_t read, written;
};

static struct moved moved_by(struct builder_rig *rig, const char *lists)
{
    struct zo_executor_counters before, after;

    zo_executor_counters(rig->executor, &before);
    if (fake_model_run(&rig->model, rig->executor, lists) != ZO_OK) {
        return (struct moved){-1, -1};
    }
    zo_executor_counters(rig->executor, &after);
    if (after.nvme_read_bytes + after.nvme_write_bytes !=
        after.bytes[ZO_ENGINE_NVME]) {
        tap_fail(__FILE__, __LINE__, "reads and writes are not all");
    }
    return (struct moved){
        (int64_t)(after.nvme_read_bytes - before.nvme_read_bytes),
        (int64_t)(after.nvme_write_bytes - before.nvme_write_bytes)};
}

/*
 * 2 + 4 + 4 bytes a parameter (bf16) are read and written in a step, and 2 more
 * where weights are there too; those are read once more for forward and for
 * backward, but for what the ring still has, and once for an evaluation.
 */
static void test_bytes(void)
{
    static const int64_t master[] = {0, 2, 4}; /* beside the weights */
    const int types = tap_samples("all types but fp32") ? 1 : 3;

    for (int type = 0; type < types; type++) {
        const int64_t typed = type == 0 ? 4 : 2;
        struct fake_shape shape = shape_of(optimizer, (enum zo_dtype)type);
        struct moved moved;
        int64_t update;
        struct builder_rig rig;

        TAP_CHECK_INT(rig_open(&shape, NULL, &rig), ZO_OK);
        update =
            2 * chunks(&rig.model, 0, UNITS - 1, 4) +
            (master[type] > 0 ? chunks(&rig.model, 0, UNITS - 1, master[type])
                              : 0);
        moved = moved_by(&rig, "s");
        TAP_CHECK_INT(moved.read, update);
        TAP_CHECK_INT(moved.written, update);
        moved = moved_by(&rig, "e");
        TAP_CHECK_INT(moved.read, 0);
        TAP_CHECK_INT(moved.written, 0);
        builder_rig_close(&rig);

        shape = shape_of(both, (enum zo_dtype)type);
        TAP_CHECK_INT(rig_open(&shape, NULL, &rig), ZO_OK);
        update += chunks(&rig.model, 0, UNITS - 1, typed);
        moved = moved_by(&rig, "s");
        TAP_CHECK_INT(moved.written, update);
        TAP_CHECK_INT(moved.read, update +
                                      chunks(&rig.model, 0, UNITS - 1, typed) +
                                      chunks(&rig.model, 0, UNITS - 3, typed));
        moved = moved_by(&rig, "e");
        TAP_CHECK_INT(moved.read, chunks(&rig.model, 0, UNITS - 1, typed));
        TAP_CHECK_INT(moved.written, 0);
        builder_rig_close(&rig);
    }
}

/* An update that a decision holds up moves states in the list that has it due:
 * none does before the first step, nor in the second of two evaluations. */
static void test_nothing_due(void)
{
    static const struct {
        const char *lists;
        int updates;
    } cases[] = {{"s", 0},   {"ss", 1},    {"st", 1}, {"se", 1},
                 {"see", 1}, {"seeee", 1}, {"e", 0},  {"seset", 2}};

    for (int type = 0; type < 3; type++) {
        struct fake_shape shape = shape_of(optimizer, (enum zo_dtype)type);
        struct moved one;
        struct builder_rig rig;

        shape.decides = true;
        TAP_CHECK_INT(rig_open(&shape, NULL, &rig), ZO_OK);
        one = moved_by(&rig, "st");
        TAP_CHECK(one.read > chunks(&rig.model, 0, UNITS - 1, 8) / 2);
        TAP_CHECK_INT(one.written, one.read);
        for (size_t i = 0; i < TAP_COUNT(cases); i++) {
            const struct moved moved = moved_by(&rig, cases[i].lists);

            TAP_CHECK_INT(moved.read, cases[i].updates * one.read);
            TAP_CHECK_INT(moved.written, cases[i].updates * one.written);
        }
        builder_rig_close(&rig);
    }
}

/* ---- pieces -------------------------------------------------------------- */

static int count_ops(const struct fake_model *model, const char *name, int unit)
{
    const struct zo_schedule *list =
        &model->build.program.schedules[model->build.step_schedule];
    int count = 0;

    for (size_t i = 0; i < list->op_count; i++) {
        count +=
            strcmp(list->ops[i].name, name) == 0 && list->ops[i].unit == unit
                ? 1
                : 0;
    }
    return count;
}

/* Pieces are of whole tiles, and whole chunks; the ring holds the largest. */
static void test_pieces(void)
{
    struct fake_shape shape = shape_of(both, ZO_BF16);

    for (int tiles = 1; tiles <= 3; tiles++) {
        const int pieces = (int)zo_div_ceil(LARGE_ELEMS, tiles * ZO_TILE_ELEMS);
        struct fake_model model;

        shape.placement.nvme_piece_tiles = tiles;
        TAP_CHECK_INT(fake_model_build(&shape, &model), ZO_OK);
        TAP_CHECK_INT(count_ops(&model, "states from NVMe", LARGE), pieces);
        TAP_CHECK_INT(count_ops(&model, "states to NVMe", LARGE), pieces);
        TAP_CHECK_INT(count_ops(&model, "AdamW on the host", LARGE), pieces);
        TAP_CHECK_INT(count_ops(&model, "AdamW on the host", LARGE + 1), 1);
        TAP_CHECK_INT(
            (int64_t)model.build.program.buffers[model.build.nvme_ring[0]]
                .bytes,
            tiles < 3 ? tiles * (1 + 1 + 2 + 2) * (int64_t)ZO_NVME_CHUNK
                      : 2 * chunks(&model, LARGE, LARGE, 2) +
                            2 * chunks(&model, LARGE, LARGE, 4));
        zo_build_fini(&model.build);
    }
}

/* Gradients of units on NVMe wait for the disk: each has a place of its own,
 * unless the host has no room. */
static void test_gradients(void)
{
    for (int rings = 0; rings < 2; rings++) {
        struct fake_shape shape = shape_of(optimizer, ZO_BF16);
        struct fake_model model;

        shape.placement.host_gradient_ring = 2;
        shape.placement.nvme_rings_gradients = rings == 1;
        shape.homes[0] = (struct zo_unit_homes){ZO_TIER_CPU, ZO_TIER_CPU};
        TAP_CHECK_INT(fake_model_build(&shape, &model), ZO_OK);
        TAP_CHECK(zo_build_unit(&model.build, 0, 0)->grad == ZO_NO_BUFFER);
        for (int u = 1; u < UNITS; u++) {
            TAP_CHECK((zo_build_unit(&model.build, u, 0)->grad ==
                       ZO_NO_BUFFER) == (rings == 1));
        }
        zo_build_fini(&model.build);
    }
}

/* ---- failures ------------------------------------------------------------ */

/* A disk that fails stops the run with what and where; nothing hangs. */
static void test_late_errors(void)
{
    for (int at = 1; at <= 40; at += 13) {
        const struct zo_nvme_faults faults = {.error_from = at,
                                              .error_errno = 5};
        const struct fake_shape shape = shape_of(both, ZO_BF16);
        enum zo_status status;
        struct builder_rig rig;

        status = rig_open(&shape, &faults, &rig);
        if (status == ZO_OK) {
            status = fake_model_run(&rig.model, rig.executor, "sss");
        }
        TAP_CHECK_INT(status, ZO_E_IO);
        TAP_CHECK(strstr(zo_err_last()->text, "unit ") != NULL);
        builder_rig_close(&rig);
    }
}

/* What comes back wrong stops the run before it is used; not every transfer is
 * a read. */
static void test_corruption(void)
{
    enum zo_status status = ZO_OK;

    for (int at = 60; at < 80 && status == ZO_OK; at++) {
        const struct zo_nvme_faults faults = {.flip_at = at};
        const struct fake_shape shape = shape_of(optimizer, ZO_F32);
        struct builder_rig rig;

        TAP_CHECK_INT(rig_open(&shape, &faults, &rig), ZO_OK);
        status = fake_model_run(&rig.model, rig.executor, "ssss");
        builder_rig_close(&rig);
    }
    TAP_CHECK_INT(status, ZO_E_CORRUPT);
    TAP_CHECK(strstr(zo_err_last()->text, "unit ") != NULL);
}

static const struct tap_case cases[] = {
    {"states on NVMe, in one piece or several, change no number", test_numbers},
    {"a step moves each state on NVMe there and back, an evaluation weights",
     test_bytes},
    {"where no update is due, no states move", test_nothing_due},
    {"pieces are whole tiles", test_pieces},
    {"gradients of units on NVMe have places of their own", test_gradients},
    {"a disk that fails stops the run", test_late_errors},
    {"bytes that come back wrong stop the run", test_corruption},
};

int main(void)
{
    const int code = tap_run(cases, TAP_COUNT(cases));

    nvme_help_remove();
    return code;
}
