/*
 * Memory of a run: the plan is what is allocated, budgets hold before
 * anything is, and nothing is allocated behind the first step.
 */
#include "src/train/trainer.h"

#include <stdio.h>
#include <string.h>

#include "src/base/memory.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

static uint64_t allocated(const struct tiny_run *run, int device,
                          enum zo_mem_kind kind)
{
    const struct zo_machine *machine = &run->devices.machine;

    return machine->device_ops->mem_allocated(machine->devices[device], kind);
}

static uint64_t planned(const struct tiny_run *run, int device)
{
    return zo_trainer_build(run->trainer)
               ->program.arena_bytes[ZO_TIER_GPU][device] +
           zo_trainer_own_bytes(run->trainer, device);
}

static const char kept[] = "\"zero_offload\": {\"recompute\": \"none\"}";

/* ---- the plan ------------------------------------------------------------ */

static void test_plan_is_what_is_allocated(void)
{
    static const char *const types[] = {
        NULL, "\"bf16\": {\"enabled\": true}",
        "\"fp16\": {\"enabled\": true}, \"gradient_clipping\": 1"};

    for (int devices = 1; devices <= 3; devices++) {
        const struct tiny_knobs knobs = {.devices = devices,
                                         .accumulation = devices,
                                         .json = types[devices - 1],
                                         .steps = 2,
                                         .eval_rows = 3};
        struct tiny_result result;
        struct tiny_run run;
        uint64_t host;

        TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
        host =
            zo_trainer_build(run.trainer)->program.arena_bytes[ZO_TIER_CPU][0];
        for (int d = 0; d < devices; d++) {
            TAP_CHECK(allocated(&run, d, ZO_MEM_DEVICE) ==
                      zo_trainer_own_bytes(run.trainer, d));
        }
        TAP_CHECK_INT(allocated(&run, 0, ZO_MEM_PINNED), 0);
        TAP_CHECK_INT(tiny_start(&run), ZO_OK);
        TAP_CHECK_INT(tiny_train(&run, &result), ZO_OK);
        for (int d = 0; d < devices; d++) {
            TAP_CHECK(allocated(&run, d, ZO_MEM_DEVICE) == planned(&run, d));
            TAP_CHECK(result.step[1].gpu_bytes[d] == planned(&run, d));
        }
        TAP_CHECK(allocated(&run, 0, ZO_MEM_PINNED) == host);
        TAP_CHECK(result.step[1].pinned_bytes == host);
        tiny_close_trainer(&run);
        for (int d = 0; d < devices; d++) {
            TAP_CHECK(allocated(&run, d, ZO_MEM_PINNED) == 0);
        }
        tiny_close(&run);
    }
}

static void test_plan_adds_up(void)
{
    const struct tiny_knobs knobs = {
        .devices = 2, .accumulation = 2, .eval_rows = 3};
    struct tiny_run run;
    const struct zo_program *program;

    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
    program = &zo_trainer_build(run.trainer)->program;
    for (int arena = 0; arena < 3; arena++) {
        const enum zo_tier tier = arena < 2 ? ZO_TIER_GPU : ZO_TIER_CPU;
        struct zo_plan_arena plan;
        uint64_t sum = 0;

        zo_plan_arena(program, tier, arena % 2, &plan);
        for (int p = 0; p < ZO_PURPOSES; p++) {
            sum += plan.purposes[p];
        }
        TAP_CHECK(sum + plan.unused_bytes == plan.total_bytes);
        TAP_CHECK(plan.total_bytes == program->arena_bytes[tier][arena % 2]);
        TAP_CHECK(plan.persistent_bytes <= sum);
        TAP_CHECK(tier == ZO_TIER_CPU || plan.op != NULL);
    }
    tiny_close(&run);
}

/* ---- budgets ------------------------------------------------------------- */

/* Opens with a budget; the trainer is there either way. */
static bool fits(struct tiny_run *run, uint64_t gpu, uint64_t host,
                 enum zo_status want, const char *part)
{
    enum zo_status status;

    run->knobs.gpu_memory_bytes = gpu;
    run->knobs.host_memory_bytes = host;
    status = tiny_open_trainer(run);
    if (status != want || run->trainer == NULL ||
        (want != ZO_OK && strstr(zo_err_last()->text, part) == NULL)) {
        tap_fail(__FILE__, __LINE__, "status %d: %s", (int)status,
                 zo_err_last()->text);
        return false;
    }
    return true;
}

static void test_budgets(void)
{
    const struct tiny_knobs knobs = {.devices = 2, .json = kept};
    struct tiny_run run;
    uint64_t gpu, host;

    TAP_CHECK_INT(zo_status_exit_code(ZO_E_FIT), 3);
    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
    gpu = planned(&run, 0) > planned(&run, 1) ? planned(&run, 0)
                                              : planned(&run, 1);
    host = planned(&run, 0) + planned(&run, 1) +
           zo_trainer_build(run.trainer)->program.arena_bytes[ZO_TIER_CPU][0];
    tiny_close_trainer(&run);

    TAP_CHECK(fits(&run, gpu, host, ZO_OK, ""));
    tiny_close_trainer(&run);
    TAP_CHECK(fits(&run, gpu - 1, 0, ZO_E_FIT, "--gpu-memory"));
    TAP_CHECK(strstr(zo_err_last()->text, "host:0") != NULL);
    TAP_CHECK(planned(&run, 0) == gpu); /* there is a plan to print */
    TAP_CHECK(allocated(&run, 0, ZO_MEM_DEVICE) ==
              zo_trainer_own_bytes(run.trainer, 0));
    tiny_close_trainer(&run);
    TAP_CHECK(fits(&run, 0, host - 1, ZO_E_FIT, "--host-memory"));
    TAP_CHECK_INT(allocated(&run, 0, ZO_MEM_PINNED), 0);
    tiny_close(&run);
}

static struct zo_device_info info_with_context;

static const struct zo_device_info *tell_context(const struct zo_device *device)
{
    info_with_context = *zo_device_host.info(device);
    info_with_context.context_bytes = 12345;
    return &info_with_context;
}

/* What the device holds for itself is planned and counted. */
static void test_context(void)
{
    const struct tiny_knobs knobs = {.devices = 1, .json = kept};
    struct zo_device_ops ops = zo_device_host;
    struct tiny_run run;
    uint64_t without;

    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
    without = planned(&run, 0);
    TAP_CHECK_INT(zo_trainer_context_bytes(run.trainer, 0), 0);
    tiny_close_trainer(&run);
    ops.info = tell_context;
    run.devices.machine.device_ops = &ops;
    TAP_CHECK(fits(&run, without + 12345, 0, ZO_OK, ""));
    TAP_CHECK_INT(zo_trainer_context_bytes(run.trainer, 0), 12345);
    TAP_CHECK(planned(&run, 0) == without + 12345);
    tiny_close_trainer(&run);
    TAP_CHECK(fits(&run, without + 12344, 0, ZO_E_FIT, "--gpu-memory"));
    run.devices.machine.device_ops = &zo_device_host;
    tiny_close(&run);
}

static uint64_t tell_own_bytes(const struct zo_comm *comm, int rank)
{
    (void)comm;
    return rank == 1 ? 54321 : 12345;
}

/* So is what collectives hold; the device that needs more is named. */
static void test_comm_bytes(void)
{
    const struct tiny_knobs knobs = {.devices = 2, .json = kept};
    struct zo_comm_ops ops = zo_comm_host;
    struct tiny_run run;
    uint64_t without[2];

    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
    without[0] = planned(&run, 0);
    without[1] = planned(&run, 1);
    tiny_close_trainer(&run);
    ops.own_device_bytes = tell_own_bytes;
    run.devices.machine.comm_ops = &ops;
    TAP_CHECK(fits(&run, without[0] + 54321, 0, ZO_OK, ""));
    TAP_CHECK(planned(&run, 0) == without[0] + 12345);
    TAP_CHECK(planned(&run, 1) == without[1] + 54321);
    tiny_close_trainer(&run);
    TAP_CHECK(fits(&run, without[1] + 54320, 0, ZO_E_FIT, "host:1 needs"));
    run.devices.machine.comm_ops = &zo_comm_host;
    tiny_close(&run);
}

/* Less memory: more is computed again, to the same bits; then no more.  (With
 * several micro batches a pass of all of them may take less, and keep more.) */
static void test_recomputes_to_fit(void)
{
    static const char *const names[] = {"none", "cheap", "layer"};
    struct tiny_knobs knobs = {.devices = 2, .steps = 2};
    struct tiny_result want, got;
    uint64_t needs[3] = {0};
    char json[64];
    struct tiny_run run;

    TAP_CHECK_INT(tiny_whole(&knobs, &want), ZO_OK);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(json, sizeof(json),
                       "\"zero_offload\": {\"recompute\": \"%s\"}", names[i]);
        knobs.json = json;
        TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
        needs[i] = planned(&run, 0);
        tiny_close(&run);
        TAP_CHECK(i == 0 || needs[i] < needs[i - 1]);
    }
    knobs.json = NULL;
    for (int i = 0; i < 3; i++) {
        knobs.gpu_memory_bytes = needs[i];
        TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
        TAP_CHECK_INT(zo_trainer_build(run.trainer)->options.placement.keep, i);
        TAP_CHECK(planned(&run, 0) == needs[i]);
        TAP_CHECK_INT(tiny_start(&run), ZO_OK);
        TAP_CHECK_INT(tiny_train(&run, &got), ZO_OK);
        TAP_CHECK(tiny_same_bits(&want, &got));
        tiny_close(&run);
    }
    knobs.gpu_memory_bytes = needs[2] - 1;
    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_E_FIT);
    tiny_close(&run);
}

static void test_endless_accumulation(void)
{
    const struct tiny_knobs knobs = {.micro_rows = 1,
                                     .accumulation = 8193, /* 4 units */
                                     .steps = 1};
    struct tiny_run run;

    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_E_CONFIG);
    TAP_CHECK(strstr(zo_err_last()->text, "want at most 8192") != NULL);
    TAP_CHECK(run.trainer == NULL);
    tiny_close(&run);
}

/* ---- after the first step ------------------------------------------------ */

/* Freezes memory when the first step is told; counts what is behind it. */
struct freezer {
    uint64_t count;
    int steps, evals;
};

static enum zo_status freeze_step(void *context,
                                  const struct zo_step_metrics *metrics)
{
    struct freezer *freezer = context;

    if (metrics->step == 1) {
        freezer->count = zo_memory_count();
        zo_memory_freeze(true);
    }
    freezer->steps++;
    return ZO_OK;
}

static enum zo_status count_eval(void *context,
                                 const struct zo_eval_metrics *metrics)
{
    struct freezer *freezer = context;

    (void)metrics;
    freezer->evals++;
    return ZO_OK;
}

static void test_frozen_after_first_step(void)
{
    for (int devices = 1; devices <= 3; devices++) {
        for (int serial = 0; serial <= 1; serial++) {
            const struct tiny_knobs knobs = {
                .devices = devices,
                .accumulation = 2,
                .steps = 6,
                .shuffles = true,
                .eval_rows = 5,
                .eval_every = 2,
                .is_serial = serial != 0,
                .json = "\"fp16\": {\"enabled\": true}, "
                        "\"gradient_clipping\": 1"};
            struct freezer freezer = {0};
            const struct zo_trainer_watch watch = {.context = &freezer,
                                                   .on_step = freeze_step,
                                                   .on_eval = count_eval};
            struct tiny_run run;
            int64_t steps = 0;
            enum zo_status status;

            TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
            TAP_CHECK_INT(tiny_start(&run), ZO_OK);
            status = zo_trainer_run(run.trainer, &watch, &steps);
            zo_memory_freeze(false);
            TAP_CHECK_INT(status, ZO_OK);
            TAP_CHECK(zo_memory_count() == freezer.count);
            TAP_CHECK_INT(freezer.steps, 6);
            TAP_CHECK_INT(freezer.evals, 3);
            tiny_close(&run);
        }
    }
}

static const struct tap_case cases[] = {
    {"what the plan says is what devices have allocated",
     test_plan_is_what_is_allocated},
    {"the plan's lines add up", test_plan_adds_up},
    {"a budget that is a byte too small is refused before allocation",
     test_budgets},
    {"what a device holds for itself is in the plan and the budget",
     test_context},
    {"so is what its collectives hold", test_comm_bytes},
    {"a smaller budget recomputes more, to the same bits",
     test_recomputes_to_fit},
    {"a step too long to be planned is refused", test_endless_accumulation},
    {"nothing is allocated behind the first step",
     test_frozen_after_first_step},
};

int main(void)
{
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
