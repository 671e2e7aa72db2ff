/*
 * Saving and resuming: a run that is saved, and one that continues from what
 * was saved, are the run that nothing has interrupted, to the bit; and a state
 * goes from any machine to any other unchanged.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/checkpoint/state_reader.h"
#include "tests/model_fixtures.h"
#include "tests/state_help.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

/* A sanitizer makes each step slow, and finds nothing more in the last; nor
 * does that of threads in the tenth way. */
#ifdef ZO_SANITIZED
enum { STEPS = 4 };
#else
enum { STEPS = 10 };
#endif
#ifdef __SANITIZE_THREAD__
enum { IS_SLOW = 1 };
#else
enum { IS_SLOW = 0 };
#endif
enum { UNITS = 4, HALF = STEPS / 2 };

#define BF16_CHECKED \
    "\"bf16\": {\"enabled\": true, \"check_grad_overflow\": true}, "

/* ---- runs ------------------------------------------------------------------
 */

/* How a run is placed, and when it is saved. */
struct way {
    const char *name;
    int devices, accumulation, stage;
    const char *homes; /* UNITS letters: r, o, b, p as in homes_of() */
};

struct part {
    const struct way *way;
    const char *json;
    const char *from; /* a state to continue from, or NULL */
    const char *into; /* a folder to save to, or NULL */
    int save_step;    /* 0: at once, behind the restore */
    bool stops;       /* there */
    bool is_serial;
};

/* Homes of a unit: resident, its optimizer on the host, both there. */
static struct zo_unit_homes homes_of(char letter)
{
    return (struct zo_unit_homes){letter == 'b' ? ZO_TIER_CPU : ZO_TIER_GPU,
                                  letter == 'r' ? ZO_TIER_GPU : ZO_TIER_CPU};
}

struct watched {
    const struct part *part;
    struct tiny_run *run;
    struct tiny_result *result;
    bool has_saved;
};

static const struct zo_state_run callers = {.seed = 7,
                                            .step_rows = TINY_STEP_ROWS};

static enum zo_status save(struct tiny_run *run, const char *folder)
{
    const struct zo_state_write_options options = {
        .folder = folder,
        .program = "test",
        .run = &callers,
        .piece_elems = 300,
        .shard_bytes = 20000,
    };
    struct zo_state_written written = {0};

    ZO_TRY(zo_trainer_save(run->trainer, &options, &written));
    return written.late.status; /* latest is wanted too */
}

static enum zo_status on_step(void *context,
                              const struct zo_step_metrics *metrics)
{
    struct watched *watched = context;

    ZO_ASSERT(watched->result->step_count < TINY_STEPS_MAX);
    watched->result->step[watched->result->step_count++] = *metrics;
    return ZO_OK;
}

static bool wants_save(void *context, int64_t step)
{
    const struct watched *watched = context;

    return watched->part->into != NULL && step == watched->part->save_step;
}

static enum zo_status on_save(void *context, int64_t step)
{
    struct watched *watched = context;

    ZO_ASSERT(step == watched->part->save_step);
    watched->has_saved = true;
    return save(watched->run, watched->part->into);
}

static bool wants_stop(void *context)
{
    const struct watched *watched = context;

    return watched->part->stops && watched->has_saved;
}

static enum zo_status restore(struct tiny_run *run, const char *path)
{
    struct zo_state *state = NULL;
    enum zo_status status;

    ZO_TRY(zo_state_open(path, &state));
    status = zo_trainer_restore(run->trainer, state);
    zo_state_close(state);
    return status;
}

static enum zo_status run_steps(struct tiny_run *run, const struct part *part,
                                struct tiny_result *result)
{
    struct watched watched = {.part = part, .run = run, .result = result};
    const struct zo_trainer_watch watch = {
        .context = &watched,
        .on_step = on_step,
        .wants_stop = wants_stop,
        .wants_save = wants_save,
        .on_save = on_save,
    };

    if (part->from != NULL) {
        ZO_TRY(restore(run, part->from));
    }
    if (part->into != NULL && part->save_step == 0) {
        ZO_TRY(save(run, part->into));
    }
    ZO_TRY(zo_trainer_run(run->trainer, &watch, &result->steps_done));
    return tiny_state(run, 0, &result->state);
}

static enum zo_status run_whole(struct tiny_run *run,
                                const struct tiny_knobs *knobs,
                                const struct part *part,
                                struct tiny_result *result)
{
    ZO_TRY(tiny_open(knobs, run));
    ZO_TRY(tiny_start(run));
    return run_steps(run, part, result);
}

static bool ran(const struct part *part, struct tiny_result *result)
{
    const struct way *way = part->way;
    const int accumulation = way->accumulation > 0 ? way->accumulation : 1;
    struct zo_unit_homes homes[UNITS];
    const bool is_pageable = strchr(way->homes, 'p') != NULL;
    const struct zo_placement placement = {
        .homes = homes,
        .pass_micros = accumulation,
        .weight_ring = 2,
        .gradient_ring = 1,
        .pageable_weights = is_pageable,
        .pageable_optimizer = is_pageable,
    };
    const struct tiny_knobs knobs = {
        .devices = way->devices,
        .accumulation = accumulation,
        .stage = way->stage,
        .steps = STEPS,
        .json = part->json,
        .shuffles = true,
        .placement = &placement,
        .cpu_threads = 2,
        .is_serial = part->is_serial,
    };
    struct tiny_run run;
    enum zo_status status;

    for (int u = 0; u < UNITS; u++) {
        homes[u] = homes_of(way->homes[u] == 'p' ? 'b' : way->homes[u]);
    }
    *result = (struct tiny_result){.devices_agree = true};
    status = run_whole(&run, &knobs, part, result);
    tiny_close(&run);
    if (status != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s, %s: %s", way->name, part->json,
                 zo_err_last()->text);
    }
    return status == ZO_OK;
}

/* ---- bits ------------------------------------------------------------------
 */

/* The steps of `got`, which begin at got->step[0].step, are those of `all`. */
static bool same_steps(const struct tiny_result *all,
                       const struct tiny_result *got)
{
    for (int i = 0; i < got->step_count; i++) {
        const struct zo_step_metrics *b = &got->step[i];
        const struct zo_step_metrics *a = &all->step[b->step - 1];

        if (a->step != b->step || memcmp(&a->loss, &b->loss, 8) != 0 ||
            a->overflow != b->overflow ||
            (!a->overflow && memcmp(&a->grad_norm, &b->grad_norm, 8) != 0) ||
            memcmp(&a->learning_rate, &b->learning_rate, 8) != 0 ||
            a->loss_scale != b->loss_scale ||
            a->skipped_steps != b->skipped_steps ||
            a->tokens_total != b->tokens_total || a->rows != b->rows) {
            return false;
        }
    }
    return true;
}

static const struct way ways[] = {
    {"stage 0, resident", 1, 1, 0, "rrrr"},
    {"stage 3, optimizer on the host", 1, 2, 3, "oooo"},
    {"stage 3, both on the host", 1, 1, 3, "bbbb"},
    {"stage 3, pageable", 1, 1, 3, "pppp"},
    {"stage 3, a home of each kind", 1, 2, 3, "borb"},
    {"stage 0 on 2", 2, 1, 0, "rrrr"},
    {"stage 1 on 2, half of the optimizer", 2, 1, 1, "oror"},
    {"stage 2 on 2", 2, 1, 2, "rrrr"},
    {"stage 3 on 2, both on the host", 2, 1, 3, "bbbb"},
    {"stage 3 on 2, mixed", 2, 2, 3, "brbr"},
    {"stage 3 on 4", 4, 1, 3, "rrrr"},
};

static const char *folder_of(const char *name)
{
    static int count;
    const char *path = fx_path("%s-%d", name, count++);

    fx_folder(path);
    return path;
}

static const char *latest(const char *folder)
{
    static char path[4096];

    (void)snprintf(path, sizeof(path), "%s/latest", folder);
    return path;
}

/* Straight; saved on its way; stopped there and continued. */
static void check_way(const struct way *way, const char *json, int save_step)
{
    const char *folder = folder_of("bits");
    struct part part = {.way = way, .json = json};
    struct tiny_result all, saved, second;

    TAP_CHECK(ran(&part, &all));
    TAP_CHECK_INT(all.step_count, STEPS);
    part.into = folder;
    part.save_step = save_step;
    TAP_CHECK(ran(&part, &saved));
    if (!same_steps(&all, &saved) || all.state != saved.state) {
        tap_fail(__FILE__, __LINE__, "%s, %s: saving at step %d changes bits",
                 way->name, json, save_step);
        return;
    }
    part = (struct part){.way = way, .json = json, .from = latest(folder)};
    TAP_CHECK(ran(&part, &second));
    TAP_CHECK_INT(second.step_count, STEPS - save_step);
    TAP_CHECK_INT(second.steps_done, STEPS);
    if (!same_steps(&all, &second) || all.state != second.state) {
        tap_fail(__FILE__, __LINE__, "%s, %s: not continued from step %d",
                 way->name, json, save_step);
    }
}

/* Where a recipe differs from one that all have seen in little. */
static void check_some(const char *json, int save_step)
{
    if (!IS_SLOW) {
        check_way(&ways[0], json, save_step);
        check_way(&ways[4], json, save_step);
    }
    check_way(&ways[9], json, save_step);
}

static void check_ways(const char *json, int save_step)
{
    for (size_t w = 0; w < ZO_COUNT(ways) && !IS_SLOW; w++) {
        check_way(&ways[w], json, save_step);
    }
    if (IS_SLOW) {
        check_some(json, save_step);
    }
}

/* All, but for a sanitizer, which has seen all in bf16. */
static void check_most(const char *json, int save_step)
{
#ifdef ZO_SANITIZED
    check_some(json, save_step);
#else
    check_ways(json, save_step);
#endif
}

/* What was saved does not depend on whether the run went on. */
static void test_stops(void)
{
    const char *folder = folder_of("stops");
    const struct part all_part = {.way = &ways[4], .json = BF16 CLIPS};
    struct part part = all_part;
    struct tiny_result all, first, second;

    TAP_CHECK(ran(&part, &all));
    part.into = folder;
    part.save_step = HALF;
    part.stops = true;
    TAP_CHECK(ran(&part, &first));
    TAP_CHECK_INT(first.step_count, HALF);
    TAP_CHECK_INT(first.steps_done, HALF);
    part = all_part;
    part.from = latest(folder);
    TAP_CHECK(ran(&part, &second));
    TAP_CHECK(same_steps(&all, &second) && all.state == second.state);
}

static void test_fp32(void)
{
    check_most(FREE, HALF);
}

static void test_bf16(void)
{
    check_some(BF16 FREE, HALF);
    check_ways(BF16 CLIPS, HALF);
    check_some(BF16_CHECKED FREE, HALF);
    check_some(BF16 FREE ", \"zero_offload\": {\"moment_dtype\": \"bf16\"}",
               HALF);
}

static bool has_skipped(int until, const char *json)
{
    const struct part part = {.way = &ways[0], .json = json};
    struct tiny_result all;

    return ran(&part, &all) && all.step[until - 1].skipped_steps > 0;
}

/* The steps at first overflow; then the scale rises again. */
static void test_fp16(void)
{
    TAP_CHECK(has_skipped(2, FP16 CLIPS));
    check_most(FP16 CLIPS, HALF);
    check_some(FP16 FREE, 1); /* behind a step that was skipped */
}

/* ---- from machine to machine -----------------------------------------------
 */

/* Saved one way, loaded another, saved again at once; and then continued. */
static void check_handover(const struct way *from, const char *from_json,
                           const struct way *to, const char *to_json,
                           double tolerance)
{
    const char *folder = folder_of("from"), *again = folder_of("to");
    char path[4096], second_path[4096];
    struct part part = {
        .way = from, .json = from_json, .into = folder, .save_step = HALF};
    struct tiny_result all, rest;

    TAP_CHECK(ran(&part, &all));
    (void)snprintf(path, sizeof(path), "%s/latest", folder);
    (void)snprintf(second_path, sizeof(second_path), "%s/latest", again);
    part =
        (struct part){.way = to, .json = to_json, .from = path, .into = again};
    TAP_CHECK(ran(&part, &rest));
    TAP_CHECK_INT(rest.step_count, STEPS - HALF);
    if (!same_states(path, second_path)) {
        tap_fail(__FILE__, __LINE__, "%s to %s: other bits", from->name,
                 to->name);
        return;
    }
    for (int i = 0; i < rest.step_count; i++) {
        const double distance =
            fabs(rest.step[i].loss - all.step[HALF + i].loss);

        if (!(distance <= tolerance)) {
            tap_fail(__FILE__, __LINE__, "%s to %s: loss is off by %g",
                     from->name, to->name, distance);
            return;
        }
    }
}

static void test_any_devices(void)
{
    static const int pairs[][2] = {{0, 8},  {8, 0},  {4, 10}, {10, 2},
                                   {7, 10}, {10, 6}, {3, 9},  {9, 1}};

    for (size_t i = 0; i < (IS_SLOW ? 2 : ZO_COUNT(pairs)); i++) {
        const struct way *from = &ways[pairs[i][0]], *to = &ways[pairs[i][1]];

        check_handover(from, FREE, to, FREE, 1e-6);
        check_handover(from, BF16 CLIPS, to, BF16 CLIPS, 1e-2);
    }
}

static void test_any_type(void)
{
    check_handover(&ways[0], BF16 FREE, &ways[8], FREE, 0.1);
    check_handover(&ways[8], FREE, &ways[4], FP16 FREE, 0.1);
    check_handover(&ways[4], FP16 FREE, &ways[9], BF16 FREE, 0.1);
}

/* ---- what cannot be continued ----------------------------------------------
 */

static void test_refuses_what_cannot_be(void)
{
    const char *folder = folder_of("other");
    const struct part part = {
        .way = &ways[0], .json = FREE, .into = folder, .save_step = 1};
    struct part damaged = {.way = &ways[2], .json = BF16 FREE};
    const struct tiny_knobs knobs = {.steps = 2, .json = damaged.json};
    struct tiny_result result;
    struct tiny_run run;
    enum zo_status status;
    size_t size_bytes = 0;
    char path[4096], *bytes;

    TAP_CHECK(ran(&part, &result));
    (void)snprintf(path, sizeof(path), "%s/latest/shard-00001.state", folder);
    bytes = fx_read(path, &size_bytes);
    bytes[size_bytes / 2] ^= 0x10;
    fx_write(path, bytes, size_bytes);
    free(bytes);
    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
    TAP_CHECK_INT(tiny_start(&run), ZO_OK);
    status = restore(&run, latest(folder));
    TAP_CHECK(fx_refused(status, ZO_E_CORRUPT, "shard-00001.state", "damaged"));
    tiny_close(&run);
}

/* Memory that gives out is a failed save, or a failed restore. */
static void test_survives_no_memory(void)
{
    const char *folder = folder_of("memory");
    const struct tiny_knobs knobs = {.steps = 2, .json = BF16 FREE};
    struct tiny_result result = {0};
    struct tiny_run run;
    const struct part part = {.way = &ways[0], .json = BF16 FREE};
    enum zo_status status = ZO_E_NOMEM;
    int failures = 0;

    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
    TAP_CHECK_INT(tiny_start(&run), ZO_OK);
    TAP_CHECK_INT(run_steps(&run, &part, &result), ZO_OK);
    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        zo_memory_fail_at(nth);
        status = save(&run, folder);
        zo_memory_fail_at(0);
        failures += status == ZO_E_NOMEM;
    }
    TAP_CHECK_INT(status, ZO_OK);
    status = ZO_E_NOMEM;
    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        zo_memory_fail_at(nth);
        status = restore(&run, latest(folder));
        zo_memory_fail_at(0);
        failures += status == ZO_E_NOMEM;
    }
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(failures > 20);
    tiny_close(&run);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"fp32: saved and continued, every home and stage", test_fp32},
        {"bf16: saved and continued, every home and stage", test_bf16},
        {"stopped behind a save, and continued", test_stops},
        {"fp16: scale and skipped steps are continued", test_fp16},
        {"a state goes to any number of devices and back", test_any_devices},
        {"a state goes to any number type", test_any_type},
        {"damage is named by shard", test_refuses_what_cannot_be},
        {"memory that gives out is a clean failure", test_survives_no_memory},
    };

    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
