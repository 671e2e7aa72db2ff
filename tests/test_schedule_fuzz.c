/*
 * Random programs, and the lists of the builder for random configurations:
 * the derived order passes the checker, and the executor gives the bits of
 * the serial meaning, with and without poison.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/layout.h"
#include "src/base/arith.h"
#include "src/base/memory.h"
#include "tests/fake_model.h"
#include "tests/nvme_help.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

static const struct zo_executor_options serial = {.cpu_workers = 1,
                                                  .is_serial = true};
static const struct zo_executor_options poison = {
    .cpu_workers = 1, .is_serial = true, .poisons = true};
static const struct zo_executor_options workers = {.cpu_workers = 2};
static const struct zo_executor_options one_worker = {.cpu_workers = 1};
static const struct zo_executor_options five_workers = {.cpu_workers = 5};

/* ---- random programs ----------------------------------------------------- */

#ifdef __SANITIZE_THREAD__ /* twenty times slower */
enum { PROGRAMS = 100, RUNS = 40, ORDERS = 20, TRAININGS = 12, POISONED = 6 };
#else
enum {
    PROGRAMS = 3000,
    RUNS = 200,
    ORDERS = 2000,
    TRAININGS = 80,
    POISONED = 24
};
#endif
enum { ITEMS = 5, LARGE_EVERY = 50 };

/* Of the cases that take long: so many times as many. */
static uint64_t times(uint64_t count)
{
    return getenv("ZERO_OFFLOAD_LONG") != NULL ? 20 * count : count;
}

static enum zo_status check_order(const struct zo_program *program,
                                  const struct zo_sequence_item *items,
                                  size_t count)
{
    struct zo_edges edges;
    enum zo_status status;

    ZO_TRY(zo_edges_derive(program, items, count, &edges));
    status = zo_edges_check(program, items, count, &edges);
    zo_edges_fini(&edges);
    return status;
}

static void test_orders(void)
{
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
        const struct help_shape shape = {.seed = seed,
                                         .devices = 1 + (int)(seed % 4),
                                         .lists = 1 + (int)(seed % 3),
                                         .ops_max = 10 + (int)(seed % 30),
                                         .bytes_max = 700,
                                         .has_nvme = seed % 2 == 0};
        struct help_random random = help_random_of(seed, "sequence");
        struct zo_sequence_item items[ITEMS];
        struct zo_program program;
        enum zo_status status;

        TAP_CHECK_INT(help_program(&shape, &program), ZO_OK);
        help_sequence(&random, &program, items, ITEMS);
        status = check_order(&program, items, ITEMS);
        zo_program_fini(&program);
        if (status != ZO_OK) {
            tap_fail(__FILE__, __LINE__, "seed %d: %s", (int)seed,
                     zo_err_last()->text);
            return;
        }
    }
}

/* ---- two executors, one after the other ---------------------------------- */

struct pair {
    struct zo_machine calm, hasty;
    struct zo_executor *meant, *run;
};

static enum zo_status open_executor(const struct zo_program *program,
                                    const struct zo_machine *machine,
                                    const struct zo_executor_options *options,
                                    struct zo_executor **executor_out)
{
    const char *memory = nvme_help_memory();
    const struct zo_nvme_options nvme = {
        .directory = memory != NULL ? memory : nvme_help_disk(),
        .how = ZO_NVME_POOL,
        .depth = 2,
        .threads = 2,
        .allows_memory = true,
    };
    struct zo_executor_options given = *options;

    given.nvme = &nvme;
    return zo_executor_open(program, machine, &given, executor_out);
}

static enum zo_status pair_open(struct pair *pair,
                                const struct zo_program *program,
                                const struct zo_executor_options *options,
                                uint64_t seed, uint32_t delay_us_max)
{
    *pair = (struct pair){.meant = NULL};
    ZO_TRY(help_machine_open(&pair->calm, program->device_count, 1, 0));
    ZO_TRY(help_machine_open(&pair->hasty, program->device_count, seed,
                             delay_us_max));
    ZO_TRY(open_executor(program, &pair->calm, &serial, &pair->meant));
    return open_executor(program, &pair->hasty, options, &pair->run);
}

/* For programs that the builder makes. */
static enum zo_status open_kernels(struct zo_machine *machine,
                                   const struct zo_kernel_ops *ops)
{
    machine->kernel_ops = ops;
    for (int d = 0; ops->open != NULL && d < machine->device_count; d++) {
        ZO_TRY(ops->open(machine->devices[d], NULL, &machine->kernels[d]));
    }
    return ZO_OK;
}

static void machine_close(struct zo_machine *machine)
{
    for (int d = 0; d < machine->device_count; d++) {
        if (machine->kernels[d] != NULL) {
            machine->kernel_ops->close(machine->kernels[d]);
        }
    }
    help_machine_close(machine);
}

static void pair_close(struct pair *pair)
{
    zo_executor_close(pair->meant);
    zo_executor_close(pair->run);
    machine_close(&pair->calm);
    machine_close(&pair->hasty);
}

static bool runs_as_meant(const struct zo_program *program, uint64_t seed)
{
    struct help_random random = help_random_of(seed, "sequence");
    struct zo_sequence_item items[ITEMS];
    struct pair pair;
    bool is_same;

    help_sequence(&random, program, items, ITEMS);
    is_same = pair_open(&pair, program, &workers, seed,
                        seed % 2 == 0 ? 10 : 0) == ZO_OK &&
              help_run(pair.meant, items, ITEMS) == ZO_OK &&
              help_run(pair.run, items, ITEMS) == ZO_OK &&
              help_same_memory(pair.meant, pair.run);
    pair_close(&pair);
    return is_same;
}

static void test_runs(void)
{
    for (uint64_t seed = 0; seed < RUNS; seed++) {
        const struct help_shape shape = {.seed = seed,
                                         .devices = 1 + (int)(seed % 3),
                                         .lists = 1 + (int)(seed % 3),
                                         .ops_max = 16,
                                         .bytes_max = 160,
                                         .nap_us = 30};
        struct zo_program program;
        bool is_same;

        TAP_CHECK_INT(help_program(&shape, &program), ZO_OK);
        is_same = runs_as_meant(&program, seed);
        zo_program_fini(&program);
        if (!is_same) {
            tap_fail(__FILE__, __LINE__, "seed %d: %s", (int)seed,
                     zo_err_last()->text);
            return;
        }
    }
}

/* ---- the builder's lists ------------------------------------------------- */

static const struct zo_unit_homes kinds[] = {
    {ZO_TIER_GPU, ZO_TIER_GPU},  {ZO_TIER_GPU, ZO_TIER_CPU},
    {ZO_TIER_CPU, ZO_TIER_CPU},  {ZO_TIER_GPU, ZO_TIER_NVME},
    {ZO_TIER_CPU, ZO_TIER_NVME}, {ZO_TIER_NVME, ZO_TIER_CPU},
    {ZO_TIER_NVME, ZO_TIER_NVME}};
enum { KINDS = (int)ZO_COUNT(kinds), HOST_KINDS = 3 };

/* Where the units of one device live. */
static void random_homes(struct help_random *random, struct fake_shape *shape)
{
    /* One kind for all, or a kind for each; NVMe, which takes long, now and
     * then. */
    const uint64_t count = help_once_in(random, 3) ? KINDS : HOST_KINDS;
    const uint64_t all = help_below(random, count + 2);

    for (int u = 0; u < shape->units; u++) {
        struct zo_unit_homes *homes = &shape->homes[u];

        *homes = kinds[all < count ? all : help_below(random, count)];
        if (u == 0 && shape->reads_rows && homes->weights == ZO_TIER_NVME) {
            homes->weights = ZO_TIER_CPU;
        }
    }
}

static struct zo_placement random_placement(struct help_random *random,
                                            const struct fake_shape *shape)
{
    const bool is_alone = shape->devices == 1;

    return (struct zo_placement){
        .pass_micros = 1 + (int)help_below(random, (uint64_t)shape->micros),
        .keep = (enum zo_keep)help_below(random, 3),
        .weight_ring = 2 + (int)help_below(random, 4),
        .gradient_ring = 1 + (int)help_below(random, 3),
        .host_gradient_ring = (int)help_below(random, 5),
        .host_boundaries =
            is_alone ? (int)help_below(random, (uint64_t)shape->units + 1) : 0,
        .weight_copies = help_once_in(random, 2),
        .pageable_weights = help_once_in(random, 3),
        .pageable_optimizer = help_once_in(random, 3),
        .nvme_ring = 3 + (int)help_below(random, 2),
        .nvme_rings_gradients = help_once_in(random, 2),
        .waits_to_fetch = help_once_in(random, 4),
        .reuse_max_elems =
            help_once_in(random, 3) ? 1 + (int64_t)help_below(random, 1500) : 0,
    };
}

static struct fake_shape random_shape(uint64_t seed, int units_max,
                                      int micros_max)
{
    struct help_random random = help_random_of(seed, "shape");
    struct fake_shape shape = {
        .seed = seed,
        .units = 2 + (int)help_below(&random, (uint64_t)units_max - 1),
        .devices =
            help_once_in(&random, 3) ? 2 + (int)help_below(&random, 4) : 1,
        .micros = 1 + (int)help_below(&random, (uint64_t)micros_max),
        .type = (enum zo_dtype)help_below(&random, 3),
        .comm_type = (enum zo_dtype)help_below(&random, 3),
        .reads_rows = help_once_in(&random, 2),
        .decides = help_once_in(&random, 2),
        .has_evaluation = help_once_in(&random, 2),
        .evaluates_only = help_once_in(&random, 6),
        .bucket_elems = (int64_t)help_below(&random, 3) * 100,
        .kernel_ops =
            help_once_in(&random, 2) ? &zo_kernels_host : &fake_kernels,
    };

    shape.placement = random_placement(&random, &shape);
    if (shape.devices == 1) {
        random_homes(&random, &shape);
    }
    return shape;
}

/* Large ones now and then. */
static struct fake_shape shape_of(uint64_t seed)
{
    return seed % LARGE_EVERY == LARGE_EVERY - 1
               ? random_shape(seed, FAKE_UNITS_MAX, FAKE_MICROS_MAX)
               : random_shape(seed, 5, 3);
}

static void describe(const struct fake_shape *shape)
{
    const struct zo_placement *p = &shape->placement;
    char homes[FAKE_UNITS_MAX + 1] = "";

    for (int u = 0; u < shape->units; u++) {
        for (int k = 0; k < KINDS; k++) {
            if (memcmp(&shape->homes[u], &kinds[k], sizeof(kinds[k])) == 0) {
                homes[u] = "robONWB"[k];
            }
        }
    }
    (void)printf(
        "# seed %d: %d units (%s, rows %d), %d devices, %d of %d micro batches "
        "a pass, %s, decides %d, evaluates %d %d, keep %d, bucket %d, rings "
        "%d %d %d, boundaries %d, copies %d, waits %d, reuse %d: %s\n",
        (int)shape->seed, shape->units, homes, shape->reads_rows,
        shape->devices, p->pass_micros, shape->micros,
        zo_dtype_name(shape->type), shape->decides, shape->has_evaluation,
        shape->evaluates_only, p->keep, (int)shape->bucket_elems,
        p->weight_ring, p->gradient_ring, p->host_gradient_ring,
        p->host_boundaries, p->weight_copies, p->waits_to_fetch,
        (int)p->reuse_max_elems, zo_err_last()->text);
}

static const char *lists_of(const struct fake_shape *shape)
{
    return shape->evaluates_only   ? "eee"
           : shape->has_evaluation ? "ssest"
                                   : "ssst";
}

static size_t sequence_of(const struct fake_model *model,
                          struct zo_sequence_item *items)
{
    const char *lists = lists_of(&model->shape);
    const size_t count = strlen(lists);

    for (size_t i = 0; i < count; i++) {
        items[i] = (struct zo_sequence_item){fake_model_list(model, lists[i]),
                                             (int)(i % 2)};
    }
    return count;
}

static void test_builder_orders(void)
{
    for (uint64_t seed = 0; seed < times(ORDERS); seed++) {
        const struct fake_shape shape = shape_of(seed);
        struct zo_sequence_item items[ITEMS];
        struct fake_model model;
        enum zo_status status;

        TAP_CHECK_INT(fake_model_build(&shape, &model), ZO_OK);
        status = check_order(&model.build.program, items,
                             sequence_of(&model, items));
        zo_build_fini(&model.build);
        if (status != ZO_OK) {
            describe(&shape);
        }
        TAP_CHECK_INT(status, ZO_OK);
    }
}

/* What lies between and behind the tensors is zero at the end. */
static bool gaps_are_zero(const struct fake_model *model,
                          struct zo_executor *executor, zo_buffer_id id, int u,
                          size_t elem_bytes)
{
    struct zo_unit_gap gaps[3];
    const int count = zo_unit_gaps(&model->units[u], gaps, 3);
    const char *bytes =
        id == ZO_NO_BUFFER || zo_executor_tier(executor, id) == ZO_TIER_NVME
            ? NULL
            : zo_executor_address(executor, id, 0);

    for (int i = 0; i < count && bytes != NULL; i++) {
        for (size_t k = (size_t)gaps[i].begin_elems * elem_bytes;
             k < (size_t)gaps[i].end_elems * elem_bytes; k++) {
            if (bytes[k] != 0) {
                return false;
            }
        }
    }
    return true;
}

static bool same_bytes(const struct zo_program *program,
                       struct zo_executor *executor, zo_buffer_id a,
                       zo_buffer_id b)
{
    return a == b || (a != ZO_NO_BUFFER && b != ZO_NO_BUFFER &&
                      memcmp(zo_executor_address(executor, a, 0),
                             zo_executor_address(executor, b, 0),
                             program->buffers[a].bytes) == 0);
}

/* Devices agree on what they all hold; nothing leaks into the gaps. */
static void check_units(const struct fake_model *model,
                        struct zo_executor *executor)
{
    const struct zo_program *program = &model->build.program;
    const size_t bytes = zo_dtype_bytes(model->shape.type);

    for (int i = 0; i < model->shape.units * model->shape.devices; i++) {
        const int u = i / model->shape.devices, d = i % model->shape.devices;
        const struct zo_unit_buffers *first =
            zo_build_unit(&model->build, u, 0);
        const struct zo_unit_buffers *unit = zo_build_unit(&model->build, u, d);

        TAP_CHECK(same_bytes(program, executor, unit->weights, first->weights));
        TAP_CHECK(same_bytes(program, executor, unit->exp_avg, first->exp_avg));
        TAP_CHECK(same_bytes(program, executor, unit->grad, first->grad));
        TAP_CHECK(gaps_are_zero(model, executor, unit->weights, u, bytes));
        TAP_CHECK(gaps_are_zero(model, executor, unit->exp_avg_sq, u, 4));
        TAP_CHECK(gaps_are_zero(model, executor, unit->grad, u, bytes));
    }
}

static enum zo_status run_both(const struct fake_model *model,
                               struct pair *pair)
{
    const char *lists = lists_of(&model->shape);

    ZO_TRY(open_kernels(&pair->calm, model->shape.kernel_ops));
    ZO_TRY(open_kernels(&pair->hasty, model->shape.kernel_ops));
    ZO_TRY(fake_model_load(model, pair->meant));
    ZO_TRY(fake_model_load(model, pair->run));
    ZO_TRY(fake_model_run(model, pair->meant, lists));
    return fake_model_run(model, pair->run, lists);
}

/* All on the device and in one pass: nobody has to wait for a ring. */
static bool is_as_resident(const struct fake_shape *shape, uint64_t states,
                           uint64_t measured)
{
    struct fake_shape resident = *shape;
    struct zo_executor *executor = NULL;
    struct zo_machine machine;
    struct fake_model model;
    bool is_same;

    memset(resident.homes, 0, sizeof(resident.homes)); /* ZO_TIER_GPU */
    resident.placement = (struct zo_placement){.pass_micros = shape->micros};
    is_same = fake_model_build(&resident, &model) == ZO_OK &&
              help_machine_open(&machine, shape->devices, 1, 0) == ZO_OK &&
              open_kernels(&machine, shape->kernel_ops) == ZO_OK &&
              zo_executor_open(&model.build.program, &machine, &serial,
                               &executor) == ZO_OK &&
              fake_model_load(&model, executor) == ZO_OK &&
              fake_model_run(&model, executor, lists_of(shape)) == ZO_OK &&
              fake_model_states(&model, executor) == states &&
              fake_model_measured(&model, executor) == measured;
    zo_executor_close(executor);
    machine_close(&machine);
    zo_build_fini(&model.build);
    return is_same;
}

static void check_shape(const struct fake_shape *shape,
                        const struct zo_executor_options *options,
                        uint32_t delay_us_max)
{
    struct fake_model model;
    enum zo_status status;
    struct pair pair;

    TAP_CHECK_INT(fake_model_build(shape, &model), ZO_OK);
    status = pair_open(&pair, &model.build.program, options, shape->seed,
                       delay_us_max);
    if (status == ZO_OK) {
        status = run_both(&model, &pair);
    }
    if (status != ZO_OK || !help_same_memory(pair.meant, pair.run)) {
        describe(shape);
        tap_fail(__FILE__, __LINE__, "status %d", (int)status);
    } else if (!is_as_resident(shape, fake_model_states(&model, pair.run),
                               fake_model_measured(&model, pair.run))) {
        describe(shape);
        tap_fail(__FILE__, __LINE__, "other numbers than when resident");
    } else {
        check_units(&model, pair.run);
    }
    pair_close(&pair);
    zo_build_fini(&model.build);
}

static void test_builder_runs(void)
{
    for (uint64_t seed = 0; seed < times(TRAININGS); seed++) {
        const struct fake_shape shape = shape_of(seed);

        check_shape(&shape, seed % 3 == 0 ? &one_worker : &workers,
                    (uint32_t)(seed % 2));
    }
}

static void test_builder_poison(void)
{
    if (tap_skips_numbers()) {
        return;
    }
    for (uint64_t seed = 100; seed < 100 + times(POISONED); seed++) {
        struct fake_shape shape = shape_of(seed);

        shape.fills_rows = true; /* what no row fills is poison */
        check_shape(&shape, &poison, 0);
    }
}

/* The shallowest rings that there may be, and the fewest workers, or many. */
static void test_builder_narrow(void)
{
    for (uint64_t seed = 0; seed < times(TRAININGS / 4); seed++) {
        struct fake_shape shape = random_shape(seed, 6, 3);

        shape.devices = 1;
        shape.placement.weight_ring = 2;
        shape.placement.gradient_ring = 1;
        shape.placement.host_gradient_ring = 1;
        shape.placement.host_boundaries = shape.units;
        for (int u = 0; u < shape.units; u++) {
            shape.homes[u] = (struct zo_unit_homes){ZO_TIER_CPU, ZO_TIER_CPU};
        }
        for (int i = 0; i < 4; i++) {
            shape.decides = i % 2 == 0;
            check_shape(&shape, i < 2 ? &one_worker : &five_workers,
                        seed % 2 == 0 ? 20 : 0);
        }
    }
}

/* ---- decoding ------------------------------------------------------------ */

static void check_decoding(const struct fake_shape *shape, bool has_cache,
                           const struct zo_executor_options *options)
{
    const struct zo_sequence_item items[] = {{0, 0}, {1, 1}, {1, 0}, {0, 1}};
    struct fake_model model;
    struct pair pair;

    TAP_CHECK_INT(fake_model_build_decode(shape, has_cache, &model), ZO_OK);
    TAP_CHECK_INT(check_order(&model.decode.program, items, 4), ZO_OK);
    TAP_CHECK_INT(pair_open(&pair, &model.decode.program, options, 3, 3),
                  ZO_OK);
    TAP_CHECK_INT(fake_model_run_decode(&model, pair.meant, "pttpttt"), ZO_OK);
    TAP_CHECK_INT(fake_model_run_decode(&model, pair.run, "pttpttt"), ZO_OK);
    TAP_CHECK(help_same_memory(pair.meant, pair.run));
    pair_close(&pair);
    zo_decode_build_fini(&model.decode);
}

static void test_decoding(void)
{
    for (int i = 0; i < 8; i++) {
        const struct fake_shape shape = {.seed = (uint64_t)i,
                                         .units = 2 + i % 3,
                                         .devices = 1,
                                         .micros = 1,
                                         .type = ZO_BF16,
                                         .kernel_ops = &fake_kernels};

        check_decoding(&shape, i % 2 == 0, i < 4 ? &workers : &poison);
    }
    zo_decode_build_fini(NULL);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"the order of random programs passes the checker", test_orders},
        {"random programs give the bits of their serial meaning", test_runs},
        {"the order of a training run passes the checker", test_builder_orders},
        {"a training run gives the bits of its serial meaning",
         test_builder_runs},
        {"so does one that streams all through the shallowest rings",
         test_builder_narrow},
        {"so does decoding", test_decoding},
        {"a training run touches what it declares, no more",
         test_builder_poison},
    };
    const int code = tap_run(cases, TAP_COUNT(cases));

    nvme_help_remove();
    return code;
}
