/*
 * What fails, fails cleanly: operations, streams, memory, callbacks, disks.
 *
 * A leak, or a stream that still works on freed memory, is the sanitizers' to
 * find; a hang is a test that does not end.
 */
#include "src/train/trainer.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/device/stream_host.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

static enum zo_status start_and_train(struct tiny_run *run)
{
    static struct tiny_result result;
    enum zo_status status = tiny_start(run);

    if (status == ZO_OK) {
        status = tiny_train(run, &result);
    }
    return status;
}

/* The failure is this one, and its text has `part`. */
static bool failed_with(enum zo_status got, enum zo_status want,
                        const char *part)
{
    const char *text = got == ZO_OK ? "" : zo_err_last()->text;

    if (got != want || zo_err_last()->status != want ||
        strstr(text, part) == NULL) {
        tap_fail(__FILE__, __LINE__, "status %d, want %d: \"%s\", want \"%s\"",
                 (int)got, (int)want, text, part);
        return false;
    }
    return true;
}

/* Ends the trainer; a failure has aborted the collectives for good. */
static enum zo_status close_failed(struct tiny_run *run)
{
    struct zo_machine *machine = &run->devices.machine;
    struct zo_comm *comm = machine->comm;

    tiny_close_trainer(run);
    if (comm == NULL) {
        return ZO_OK;
    }
    machine->comm = NULL;
    machine->comm_ops->close(comm);
    return machine->comm_ops->open(machine->devices, machine->device_count,
                                   &machine->comm);
}

/* ---- operations ---------------------------------------------------------- */

/* Of what fails in turn each is run, or every fifth: on both devices, and of
 * all kinds of operations. */
static int stride(void)
{
    return tap_samples("all but every fifth operation") ? 5 : 1;
}

/* Each operation that a run issues fails in turn. */
static void fail_each_op(struct tiny_knobs knobs)
{
    struct tiny_run run;
    const uint64_t step = (uint64_t)stride();
    uint64_t nth = 1;
    enum zo_status status;

    TAP_CHECK_INT(tiny_open_machine(&knobs, &run), ZO_OK);
    do {
        run.knobs.fail_at_op = nth;
        TAP_CHECK_INT(tiny_open_trainer(&run), ZO_OK);
        status = start_and_train(&run);
        TAP_CHECK(status == ZO_OK ||
                  failed_with(status, ZO_E_INJECTED, "failed by a test"));
        TAP_CHECK_INT(close_failed(&run), ZO_OK);
        nth += step;
    } while (status != ZO_OK);
    TAP_CHECK(nth > 100);
    tiny_close(&run);
}

static void test_each_op(void)
{
    fail_each_op((struct tiny_knobs){
        .devices = 2, .steps = 1, .threads = 1, .eval_rows = 2});
}

static void test_each_op_serial(void)
{
    fail_each_op((struct tiny_knobs){
        .steps = 1, .threads = 1, .eval_rows = 2, .is_serial = true});
}

static enum zo_status fail_in_stream(struct zo_pool *pool, const void *args)
{
    const struct zo_op *op;

    (void)pool;
    memcpy(&op, args, sizeof(op));
    return ZO_FAIL(ZO_E_INJECTED, "planted in %s", op->name);
}

/* In place of an operation's own: queues what fails, later, in the stream. */
static enum zo_status run_failing(const struct zo_op_call *call)
{
    const struct zo_op *op = call->op;

    if (call->streams == NULL) {
        return ZO_FAIL(ZO_E_INJECTED, "planted in %s", op->name);
    }
    return zo_stream_host_submit(
        call->streams[op->engine == ZO_ENGINE_COLLECTIVE ? 1 : 0],
        fail_in_stream, &op, sizeof(op));
}

/* Each operation of a list fails in its stream in turn. */
static void fail_each_stream(int schedule, struct tiny_knobs knobs)
{
    struct tiny_run run;
    const size_t step = (size_t)stride();
    size_t ops = 1;

    TAP_CHECK_INT(tiny_open_machine(&knobs, &run), ZO_OK);
    for (size_t i = 0; i < ops; i += step) {
        const struct zo_schedule *list;
        char part[80];
        enum zo_status status;

        TAP_CHECK_INT(tiny_open_trainer(&run), ZO_OK);
        list = &zo_trainer_build(run.trainer)->program.schedules[schedule];
        ops = list->op_count;
        (void)snprintf(part, sizeof(part), "planted in %s", list->ops[i].name);
        list->ops[i].run = run_failing;
        status = start_and_train(&run);
        TAP_CHECK(failed_with(status, ZO_E_INJECTED, part));
        TAP_CHECK_INT(close_failed(&run), ZO_OK);
    }
    tiny_close(&run);
}

static void test_each_stream(void)
{
    fail_each_stream(0, (struct tiny_knobs){.devices = 2, .steps = 1});
}

static void test_each_stream_of_others(void)
{
    /* The last update; and the evaluation, which runs the update itself. */
    static const char json[] = "\"gradient_clipping\": 1"; /* holds it up */

    fail_each_stream(
        1, (struct tiny_knobs){.devices = 2, .steps = 1, .json = json});
    fail_each_stream(2, (struct tiny_knobs){.devices = 2,
                                            .steps = 1,
                                            .json = json,
                                            .delay_us_max = 20,
                                            .eval_rows = 2});
}

/* ---- the watch ----------------------------------------------------------- */

/* Counts calls; the one numbered fail_at fails, or stops. */
struct watcher {
    int steps, evals, fail_at;
};

static enum zo_status fail_step(void *context,
                                const struct zo_step_metrics *metrics)
{
    struct watcher *watcher = context;

    (void)metrics;
    return ++watcher->steps == watcher->fail_at
               ? ZO_FAIL(ZO_E_IO, "step %d not told", watcher->steps)
               : ZO_OK;
}

static enum zo_status fail_eval(void *context,
                                const struct zo_eval_metrics *metrics)
{
    struct watcher *watcher = context;

    (void)metrics;
    return ++watcher->evals == watcher->fail_at
               ? ZO_FAIL(ZO_E_IO, "evaluation %d not told", watcher->evals)
               : ZO_OK;
}

static void test_watch_fails(void)
{
    const struct tiny_knobs knobs = {
        .devices = 2, .steps = 4, .eval_rows = 2, .eval_every = 1};
    struct watcher watcher = {.fail_at = 3};
    struct zo_trainer_watch watch = {.context = &watcher, .on_step = fail_step};
    struct tiny_run run;
    int64_t steps = 77;

    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
    TAP_CHECK_INT(tiny_start(&run), ZO_OK);
    TAP_CHECK(failed_with(zo_trainer_run(run.trainer, &watch, &steps), ZO_E_IO,
                          "step 3 not told"));
    TAP_CHECK_INT(steps, 77); /* outputs are for success */
    tiny_close_trainer(&run);

    TAP_CHECK_INT(tiny_open_trainer(&run), ZO_OK);
    TAP_CHECK_INT(tiny_start(&run), ZO_OK);
    watch =
        (struct zo_trainer_watch){.context = &watcher, .on_eval = fail_eval};
    TAP_CHECK(failed_with(zo_trainer_run(run.trainer, &watch, &steps), ZO_E_IO,
                          "evaluation 3 not told"));
    tiny_close(&run);
}

/* ---- memory -------------------------------------------------------------- */

/* Opens, loads and runs a trainer with the nth allocation failing. */
static enum zo_status run_without(struct tiny_run *run, uint64_t nth)
{
    enum zo_status status;

    zo_memory_fail_at(nth);
    status = tiny_open_trainer(run);
    if (status == ZO_OK) {
        status = start_and_train(run);
    }
    zo_memory_fail_at(0);
    tiny_close_trainer(run);
    return status;
}

static void fail_each_allocation(struct tiny_knobs knobs, uint64_t stride)
{
    struct tiny_run run;
    uint64_t nth = 1;
    enum zo_status status;

    TAP_CHECK_INT(tiny_open_machine(&knobs, &run), ZO_OK);
    for (status = ZO_E_NOMEM; status != ZO_OK; nth += stride) {
        status = run_without(&run, nth);
        TAP_CHECK(status == ZO_OK || status == ZO_E_DEVMEM ||
                  failed_with(status, ZO_E_NOMEM, "no memory for"));
        TAP_CHECK(status != ZO_E_DEVMEM ||
                  failed_with(status, ZO_E_DEVMEM, "the device arena"));
    }
    TAP_CHECK(nth > 100);
    tiny_close(&run);
}

static void test_each_allocation(void)
{
    fail_each_allocation(
        (struct tiny_knobs){
            .steps = 1, .eval_rows = 2, .rows = 2, .micro_rows = 2},
        1);
    fail_each_allocation(
        (struct tiny_knobs){
            .devices = 3, .steps = 1, .accumulation = 2, .poisons = true},
        29);
}

/* ---- copies -------------------------------------------------------------- */

static struct {
    struct zo_device_ops ops; /* the host's, with a copy that fails */
    int copies, fail_at;
} faulty;

static enum zo_status copy_or_fail(struct zo_stream *stream, void *target,
                                   const void *source, size_t size_bytes)
{
    if (++faulty.copies == faulty.fail_at) {
        return ZO_FAIL(ZO_E_DEVICE, "copy %d broke", faulty.copies);
    }
    return zo_device_host.copy(stream, target, source, size_bytes);
}

/* Each copy of starting, loading, running and looking fails in turn. */
static void test_each_copy(void)
{
    struct tiny_run run;
    enum zo_status status;

    TAP_CHECK_INT(tiny_open_machine(&(struct tiny_knobs){.steps = 1}, &run),
                  ZO_OK);
    faulty.ops = zo_device_host;
    faulty.ops.copy = copy_or_fail;
    run.devices.machine.device_ops = &faulty.ops;
    faulty.fail_at = 0;
    do {
        faulty.copies = 0;
        faulty.fail_at++;
        TAP_CHECK_INT(tiny_open_trainer(&run), ZO_OK);
        status = start_and_train(&run);
        tiny_close_trainer(&run);
        TAP_CHECK(status == ZO_OK || failed_with(status, ZO_E_DEVICE, "broke"));
    } while (status != ZO_OK);
    TAP_CHECK(faulty.fail_at > 20);
    run.devices.machine.device_ops = &zo_device_host;
    tiny_close(&run);
}

/* ---- writing the model --------------------------------------------------- */

static enum zo_status write_to(const struct tiny_run *run, const char *path,
                               bool replace)
{
    const struct zo_weights weights = zo_trainer_weights(run->trainer);
    const struct zo_weights_export export_ = {
        .path = path,
        .source_path = tiny_model_path(),
        .dtype = ZO_F32,
        .has_inv_freq = true,
        .replace = replace,
    };
    struct zo_model_written written = {0};
    struct zo_notes notes = {0};
    const enum zo_status status =
        zo_weights_write(&weights, &export_, &notes, &written);

    zo_model_written_fini(&written);
    zo_notes_fini(&notes);
    return status;
}

/* A folder with an empty one in it, and a trainer that is loaded. */
static bool open_writer(struct tiny_run *run, const char *folder)
{
    const struct tiny_knobs knobs = {.devices = 2, .steps = 1};

    fx_folder(folder);
    return tiny_open(&knobs, run) == ZO_OK && tiny_start(run) == ZO_OK;
}

static void test_write_without_memory(void)
{
    const char *folder = fx_path("memory");
    char path[512];
    struct tiny_run run;
    enum zo_status status;
    uint64_t nth = 0;

    TAP_CHECK(open_writer(&run, folder));
    (void)snprintf(path, sizeof(path), "%s/model", folder);
    do {
        zo_memory_fail_at(++nth);
        status = write_to(&run, path, false);
        zo_memory_fail_at(0);
        TAP_CHECK(status == ZO_OK ||
                  failed_with(status, ZO_E_NOMEM, "no memory for"));
        TAP_CHECK_INT(fx_count_files(folder, ""), status == ZO_OK ? 1 : 0);
    } while (status != ZO_OK);
    TAP_CHECK(nth > 20);
    tiny_close(&run);
}

static void test_write_of_lost_weights(void)
{
    const char *folder = fx_path("lost");
    char path[512], file[600];
    struct tiny_run run;
    size_t size_bytes = 0;
    char *before, *after;

    TAP_CHECK(open_writer(&run, folder));
    (void)snprintf(path, sizeof(path), "%s/model", folder);
    (void)snprintf(file, sizeof(file), "%s/model.safetensors", path);
    TAP_CHECK_INT(write_to(&run, path, false), ZO_OK);
    before = fx_read(file, &size_bytes);
    faulty.ops = zo_device_host;
    faulty.ops.copy = copy_or_fail;
    faulty.copies = 0;
    run.devices.machine.device_ops = &faulty.ops;
    for (faulty.fail_at = 1; faulty.fail_at <= 5; faulty.fail_at++) {
        faulty.copies = 0;
        TAP_CHECK(
            failed_with(write_to(&run, path, true), ZO_E_DEVICE, "broke"));
        TAP_CHECK_INT(fx_count_files(folder, ""), 1);
    }
    run.devices.machine.device_ops = &zo_device_host;
    after = fx_read(file, &size_bytes); /* the old model stands */
    TAP_CHECK(memcmp(before, after, size_bytes) == 0);
    free(before);
    free(after);
    tiny_close(&run);
}

static void test_write_to_a_full_disk(void)
{
    const char *folder = fx_path("full");
    struct rlimit limit, small;
    char path[512];
    struct tiny_run run;
    enum zo_status status;

    TAP_CHECK(open_writer(&run, folder));
    (void)snprintf(path, sizeof(path), "%s/model", folder);
    TAP_CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    small = limit;
    small.rlim_cur = 8192;
    TAP_CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    status = write_to(&run, path, false);
    TAP_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    TAP_CHECK(failed_with(status, ZO_E_IO, "model"));
    TAP_CHECK_INT(fx_count_files(folder, ""), 0);
    TAP_CHECK_INT(write_to(&run, path, false), ZO_OK);
    tiny_close(&run);
}

static void test_write_without_permission(void)
{
    const char *folder = fx_path("locked");
    const bool is_root = geteuid() == 0;
    char path[512];
    struct tiny_run run;
    enum zo_status status;

    TAP_CHECK(open_writer(&run, folder));
    (void)snprintf(path, sizeof(path), "%s/model", folder);
    TAP_CHECK(chmod(folder, 0555) == 0);
    TAP_CHECK(chmod(fx_path("."), 0755) == 0); /* for others to come by */
    /* Permissions do not hold for root: be nobody for a while. */
    TAP_CHECK(!is_root || seteuid(65534) == 0);
    status = write_to(&run, path, false);
    TAP_CHECK(!is_root || seteuid(0) == 0);
    TAP_CHECK(chmod(folder, 0777) == 0);
    TAP_CHECK(failed_with(status, ZO_E_IO, "Permission denied"));
    TAP_CHECK_INT(fx_count_files(folder, ""), 0);
    tiny_close(&run);
}

static const struct tap_case cases[] = {
    {"each operation that cannot be queued ends the run", test_each_op},
    {"each operation that cannot be queued ends a serial run",
     test_each_op_serial},
    {"each operation of a step that fails in its stream ends the run",
     test_each_stream},
    {"each one of the evaluation and of the last update does",
     test_each_stream_of_others},
    {"a watch that fails ends the run", test_watch_fails},
    {"each allocation that fails ends the run", test_each_allocation},
    {"each copy that fails ends the run", test_each_copy},
    {"a model is written whole or not at all: memory",
     test_write_without_memory},
    {"a model is written whole or not at all: weights that are lost",
     test_write_of_lost_weights},
    {"a model is written whole or not at all: a full disk",
     test_write_to_a_full_disk},
    {"a model is written whole or not at all: no permission",
     test_write_without_permission},
};

int main(void)
{
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
