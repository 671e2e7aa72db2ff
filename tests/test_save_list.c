/*
 * Saving while training goes on: the copy that the list of a save takes, with
 * updates and copies slowed down so that either would overtake the other, is
 * the state that a pause finds, to the bit.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "offload/order.h"
#include "src/base/memory.h"
#include "tests/model_fixtures.h"
#include "tests/nvme_help.h"
#include "tests/state_help.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

enum { UNITS = 4, STEPS = 7, EVAL_EVERY = 4 };

#define SLOW_UPDATE_US 2000
#define SLOW_COPY_US   700

/* In a row, behind an evaluation, and by itself. */
static bool is_saved(int64_t step)
{
    return step == 2 || step == 3 || step == EVAL_EVERY || step == STEPS - 1;
}

struct way {
    const char *name;
    int devices, stage;
    const char *homes; /* UNITS letters: see homes_of() */
    const char *json;
    bool is_serial, poisons;
};

/* Resident; optimizer on the host; both; optimizer on NVMe; both. */
static struct zo_unit_homes homes_of(char letter)
{
    static const struct {
        char letter;
        struct zo_unit_homes homes;
    } all[] = {
        {'r', {ZO_TIER_GPU, ZO_TIER_GPU}},  {'o', {ZO_TIER_GPU, ZO_TIER_CPU}},
        {'b', {ZO_TIER_CPU, ZO_TIER_CPU}},  {'p', {ZO_TIER_CPU, ZO_TIER_CPU}},
        {'n', {ZO_TIER_CPU, ZO_TIER_NVME}}, {'N', {ZO_TIER_NVME, ZO_TIER_NVME}},
    };
    size_t i = 0;

    while (all[i].letter != letter) {
        i++;
    }
    return all[i].homes;
}

/* ---- slow operations -------------------------------------------------------
 */

static zo_op_fn real_update, real_copy;
static atomic_int updates_done, copies_done;

static void sleep_us(long us)
{
    const struct timespec pause = {0, us * 1000};

    (void)nanosleep(&pause, NULL);
}

static enum zo_status slow_update(const struct zo_op_call *call)
{
    enum zo_status status;

    sleep_us(SLOW_UPDATE_US);
    status = real_update(call);
    (void)atomic_fetch_add(&updates_done, 1);
    return status;
}

static enum zo_status slow_copy(const struct zo_op_call *call)
{
    enum zo_status status;

    sleep_us(SLOW_COPY_US);
    status = real_copy(call);
    (void)atomic_fetch_add(&copies_done, 1);
    return status;
}

/* Of one list; returns how many. */
static int slow_down(const struct tiny_run *run, int schedule, const char *name,
                     zo_op_fn slow, zo_op_fn *real)
{
    int count = 0;

    for (int u = 0; u < UNITS; u++) {
        struct zo_op *op;

        for (int nth = 0;
             (op = tiny_find_op(run, schedule, name, u, -1, nth)) != NULL;
             nth++) {
            if (op->engine == ZO_ENGINE_CPU) {
                *real = op->run;
                op->run = slow;
                count++;
            }
        }
    }
    return count;
}

/* ---- runs ------------------------------------------------------------------
 */

struct watched {
    const struct way *way;
    const char *folder;
    struct tiny_run *run;
    struct zo_trainer_copy *copy; /* NULL: pauses */
    int64_t started;              /* the last step that was asked for */
    int updates_a_step;           /* on the host */
    int copies_a_save;            /* likewise */
    int early;                    /* saves that were asked for before the
                                     updates they are behind had run */
    int saves;
    bool has_writer;
    pthread_t writer;
    enum zo_status written;
    bool forgets; /* the copy's list says not what it reads */
    bool fails;   /* an operation of it does */
};

static const struct zo_state_run callers = {.seed = 7,
                                            .step_rows = TINY_STEP_ROWS};

static struct zo_state_write_options options_of(const struct watched *watched)
{
    return (struct zo_state_write_options){
        .folder = watched->folder, .program = "test", .run = &callers};
}

static bool wants_stop(void *context)
{
    struct watched *watched = context;

    watched->started++;
    return false;
}

static bool wants_save(void *context, int64_t step)
{
    struct watched *watched = context;

    if (is_saved(step) && watched->copy != NULL &&
        atomic_load(&updates_done) < watched->updates_a_step * (int)step) {
        watched->early++;
    }
    return is_saved(step);
}

/* Long enough for the steps behind it to overwrite what they should not. */
static void *write_copy(void *argument)
{
    struct watched *watched = argument;
    struct zo_state_write_options options = options_of(watched);

    sleep_us(10 * SLOW_UPDATE_US);
    watched->written = zo_pool_open(1, &options.pool);
    if (watched->written == ZO_OK) {
        watched->written = zo_trainer_copy_save(watched->copy, &options, NULL);
    }
    zo_pool_close(options.pool);
    return NULL;
}

static enum zo_status on_copy(void *context)
{
    struct watched *watched = context;

    if (watched->has_writer) {
        (void)pthread_join(watched->writer, NULL);
        watched->has_writer = false;
    }
    return watched->written;
}

static enum zo_status on_save(void *context, int64_t step)
{
    struct watched *watched = context;
    const struct zo_state_write_options options = options_of(watched);

    watched->saves++;
    if (watched->copy == NULL) {
        return zo_trainer_save(watched->run->trainer, &options, NULL);
    }
    /* Every copy is whole, and the step behind is on its way. */
    if (watched->started <= step ||
        atomic_load(&copies_done) < watched->copies_a_save * watched->saves) {
        return ZO_E_ARG;
    }
    watched->has_writer =
        pthread_create(&watched->writer, NULL, write_copy, watched) == 0;
    return ZO_OK;
}

static enum zo_status fail_copy(const struct zo_op_call *call)
{
    return ZO_FAIL(ZO_E_INJECTED, "planted in %s", call->op->name);
}

/* What the list of a save reads and writes is no longer its accesses. */
static void forget_accesses(const struct tiny_run *run)
{
    const struct zo_build *build = zo_trainer_build(run->trainer);
    const struct zo_schedule *list =
        &build->program.schedules[build->save_schedule];

    for (size_t i = 0; i < list->access_count; i++) {
        list->accesses[i].bytes = 0;
    }
}

static enum zo_status train(struct watched *watched, bool copies,
                            struct tiny_result *result)
{
    struct tiny_run *run = watched->run;
    const struct zo_build *build = zo_trainer_build(run->trainer);
    const struct zo_trainer_watch watch = {
        .context = watched,
        .wants_stop = wants_stop,
        .wants_save = wants_save,
        .on_copy = on_copy,
        .on_save = on_save,
    };
    enum zo_status status;

    atomic_store(&updates_done, 0);
    atomic_store(&copies_done, 0);
    if (copies) {
        watched->updates_a_step =
            slow_down(run, build->step_schedule, "AdamW on the host",
                      slow_update, &real_update);
        watched->copies_a_save = slow_down(
            run, build->save_schedule, "state copied", slow_copy, &real_copy);
    }
    if (watched->forgets) {
        forget_accesses(run);
    }
    if (watched->fails) {
        tiny_find_op(run, build->save_schedule, "state copied", 1, -1, 1)->run =
            fail_copy;
    }
    ZO_TRY(tiny_start(run));
    if (copies) {
        ZO_TRY(zo_trainer_copy_open(run->trainer, &watched->copy));
    }
    status = zo_trainer_run(run->trainer, &watch, &result->steps_done);
    if (status == ZO_OK) {
        status = on_copy(watched);
    }
    zo_trainer_copy_close(watched->copy);
    ZO_TRY(status);
    return tiny_state(run, 0, &result->state);
}

static bool ran(struct watched *watched, bool copies,
                struct tiny_result *result)
{
    const struct way *way = watched->way;
    const char *memory = nvme_help_memory();
    const struct zo_nvme_options nvme = {
        .directory = memory != NULL ? memory : nvme_help_disk(),
        .allows_memory = true,
        .depth = 4,
    };
    struct zo_unit_homes homes[UNITS];
    const struct zo_placement placement = {
        .homes = homes,
        .pass_micros = 1,
        .weight_ring = 2,
        .gradient_ring = 1,
        .nvme_ring = 3,
        .pageable_weights = way->homes[0] == 'p',
        .pageable_optimizer = way->homes[0] == 'p',
    };
    const struct tiny_knobs knobs = {
        .devices = way->devices,
        .stage = way->stage,
        .steps = STEPS,
        .json = way->json,
        .eval_rows = 5,
        .eval_every = EVAL_EVERY,
        .placement = &placement,
        .nvme = strpbrk(way->homes, "nN") != NULL ? &nvme : NULL,
        .cpu_threads = 2,
        .delay_us_max = copies ? 300 : 0,
        .delay_seed = 11,
        .is_serial = copies && way->is_serial,
        .poisons = copies && way->poisons,
    };
    struct tiny_run run;
    enum zo_status status;

    for (int u = 0; u < UNITS; u++) {
        homes[u] = homes_of(way->homes[u]);
    }
    *result = (struct tiny_result){.devices_agree = true};
    watched->run = &run;
    status = tiny_open(&knobs, &run);
    if (status == ZO_OK) {
        status = train(watched, copies, result);
    }
    tiny_close(&run);
    if (watched->fails && status == ZO_E_INJECTED) {
        return true;
    }
    if (status != ZO_OK || watched->fails) {
        tap_fail(__FILE__, __LINE__, "%s, %s: status %d, %s", way->name,
                 way->json, (int)status, zo_err_last()->text);
    }
    return status == ZO_OK;
}

static const char *folder_of(const char *name)
{
    static int count;
    const char *path = fx_path("%s-%d", name, count++);

    fx_folder(path);
    return path;
}

/* How many of the states that two runs have saved are the same. */
static int same_saves(const char *paused, const char *copied)
{
    int count = 0;

    for (int step = 1; step <= STEPS; step++) {
        char a[4096], b[4096];

        (void)snprintf(a, sizeof(a), "%s/state-%08d", paused, step);
        (void)snprintf(b, sizeof(b), "%s/state-%08d", copied, step);
        count += is_saved(step) && same_states(a, b) && same_runs(a, b);
    }
    return count;
}

static void check_way(const struct way *way)
{
    struct watched paused = {.way = way, .folder = folder_of("paused")};
    struct watched copied = {.way = way, .folder = folder_of("copied")};
    struct tiny_result want, got;

    TAP_CHECK(ran(&paused, false, &want));
    TAP_CHECK(ran(&copied, true, &got));
    if (paused.saves != 4 || copied.saves != 4 ||
        same_saves(paused.folder, copied.folder) != 4 ||
        want.state != got.state) {
        tap_fail(__FILE__, __LINE__,
                 "%s, %s: %d saves, %d of them as after a pause", way->name,
                 way->json, copied.saves,
                 same_saves(paused.folder, copied.folder));
        return;
    }
    /* Behind an evaluation every step has been told, and updates may be done.
     */
    if (copied.updates_a_step > 0 && !way->is_serial && !way->poisons) {
        TAP_CHECK(copied.early >= 3);
    }
}

/* A sanitizer of threads makes each step slow: a way of each kind. */
#ifdef __SANITIZE_THREAD__
enum { STRIDE = 3 };
#else
enum { STRIDE = 1 };
#endif

static const struct way ways[] = {
    {"resident", 1, 0, "rrrr", BF16 FREE, false, false},
    {"resident", 1, 0, "rrrr", FP16 CLIPS, false, false},
    {"optimizer on the host", 1, 3, "oooo", BF16 FREE, false, false},
    {"optimizer on the host", 1, 3, "oooo", BF16 CLIPS, false, false},
    {"both on the host", 1, 3, "bbbb", BF16 FREE, false, false},
    {"both on the host", 1, 3, "bbbb", FP16 CLIPS, false, false},
    {"both on the host", 1, 3, "bbbb", FREE, false, false},
    {"pageable", 1, 3, "pppp", BF16 CLIPS, false, false},
    {"a home of each kind", 1, 3, "brob", BF16 FREE, false, false},
    {"a home of each kind", 1, 3, "brob", BF16 CLIPS, false, false},
    {"bf16 moments", 1, 3, "brob",
     BF16 FREE ", \"zero_offload\": {\"moment_dtype\": \"bf16\"}", false,
     false},
    {"NVMe", 1, 3, "bnNb", BF16 FREE, false, false},
    {"NVMe", 1, 3, "bnNb", BF16 CLIPS, false, false},
    {"NVMe", 1, 3, "bnNb", FP16 CLIPS, false, false},
    {"2, resident", 2, 0, "rrrr", BF16 CLIPS, false, false},
    {"2, stage 1", 2, 1, "oror", BF16 FREE, false, false},
    {"2, stage 2", 2, 2, "rrrr", FREE, false, false},
    {"2, stage 3", 2, 3, "brbr", BF16 FREE, false, false},
    {"2, stage 3", 2, 3, "brbr", BF16 CLIPS, false, false},
    {"2, stage 3 and NVMe", 2, 3, "bnNr", BF16 CLIPS, false, false},
    {"one operation at a time", 1, 3, "brob", BF16 FREE, true, false},
    {"one at a time, all else poison", 2, 3, "brob", BF16 CLIPS, true, true},
};

static void test_bits(void)
{
    for (size_t w = 0; w < ZO_COUNT(ways); w += STRIDE) {
        check_way(&ways[w]);
    }
}

/* That the test finds what it looks for. */
static void test_finds_copies_out_of_order(void)
{
#ifdef __SANITIZE_THREAD__
    tap_skip("a race, as it should be");
#else
    static const struct way both[] = {
        {"host", 1, 3, "bbbb", BF16 FREE, false, false},
        {"host", 1, 3, "bbbb", BF16 CLIPS, false, false}};

    for (size_t w = 0; w < ZO_COUNT(both); w++) {
        struct watched paused = {.way = &both[w],
                                 .folder = folder_of("paused")};
        struct watched copied = {
            .way = &both[w], .folder = folder_of("copied"), .forgets = true};
        struct tiny_result want, got;

        TAP_CHECK(ran(&paused, false, &want));
        TAP_CHECK(ran(&copied, true, &got));
        TAP_CHECK(same_saves(paused.folder, copied.folder) < 4);
    }
#endif
}

/* A device that does not give its states up will not train on either. */
static void test_fails_with_its_copy(void)
{
    for (size_t w = 0; w < ZO_COUNT(ways); w += 3) {
        struct watched copied = {
            .way = &ways[w], .folder = folder_of("fails"), .fails = true};
        struct tiny_result got;

        if (strpbrk(ways[w].homes, "nN") == NULL) { /* NVMe calls no function */
            TAP_CHECK(ran(&copied, true, &got));
            TAP_CHECK_INT(copied.saves, 0);
        }
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a state that is copied while training goes on is that of a pause",
         test_bits},
        {"without its accesses the copy is another",
         test_finds_copies_out_of_order},
        {"an operation of the copy that fails ends the run",
         test_fails_with_its_copy},
    };
    int result;

    fx_begin();
    result = tap_run(cases, TAP_COUNT(cases));
    nvme_help_remove();
    return result;
}
