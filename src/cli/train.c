/*
 * zero-offload train: from rows and a model to a trained model.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/state_reader.h"
#include "src/cli/cli.h"
#include "src/cli/output_folder.h"
#include "src/cli/print_hints.h"
#include "src/cli/print_time.h"
#include "src/cli/saving.h"
#include "src/cli/setup.h"
#include "src/cli/signals.h"
#include "src/cli/slow_nvme.h"
#include "src/cli/train_monitor.h"
#include "src/train/monitor.h"
#include "src/train/watch.h"

/* What a run needs beside its setup. */
struct run {
    struct zo_cli *cli;
    struct zo_setup setup;
    struct zo_trainer *trainer;
    struct zo_model_dir *dir;
    struct zo_metrics *metrics;
    struct zo_trace *trace;
    struct zo_monitor *monitor; /* NULL: the JSON asks for none */
    struct zo_err file_failure; /* the first; status ZO_OK: none */
    struct zo_slow_nvme slow_nvme;
    struct zo_progress progress;
    struct zo_saving saving;
    struct zo_folders output;
    struct zo_watch watch;                       /* with --watch */
    int64_t skipped_steps;                       /* up to the last */
    char *model_path, *best_path, *metrics_path; /* owned; in --output */
    const char *source_path, *tokenizer_path;    /* borrowed; or NULL */
    char *config_json;                           /* owned; or NULL */
    enum zo_dtype source_dtype;
    bool has_inv_freq;
};

/* ---- before anything is allocated ---------------------------------------- */

static enum zo_status check_earlier(const struct zo_options *options,
                                    const char *path, bool replaces)
{
    struct stat info;

    return lstat(path, &info) != 0 || replaces
               ? ZO_OK
               : ZO_FAIL(ZO_E_USAGE,
                         "--output %s holds the model of an earlier run; name "
                         "another directory, or say --overwrite",
                         options->output);
}

/* A directory that cannot be written is told now, not after the last step. */
static enum zo_status check_target(const struct run *run, const char *path)
{
    const struct zo_options *options = run->setup.options;
    const bool replaces = options->overwrite || run->saving.continues;

    ZO_TRY(check_earlier(options, path, replaces));
    return zo_model_dir_check_target(path, replaces);
}

/* An output of another run is refused before minutes go into its rows. */
static enum zo_status check_output(struct run *run)
{
    const struct zo_options *options = run->setup.options;
    const bool replaces = options->overwrite || zo_saving_may_resume(options);

    ZO_TRY(zo_disk_join(options->output, "model", &run->model_path));
    ZO_TRY(zo_disk_join(options->output, "best", &run->best_path));
    ZO_TRY(zo_disk_join(options->output, "metrics.jsonl", &run->metrics_path));
    ZO_TRY(zo_saving_refuse(options));
    ZO_TRY(check_earlier(options, run->model_path, replaces));
    return options->keep_best ? check_earlier(options, run->best_path, replaces)
                              : ZO_OK;
}

static enum zo_status make_output(struct run *run)
{
    const struct zo_options *options = run->setup.options;

    zo_signals_remove(&run->output);
    ZO_TRY(zo_output_folder_make(&run->output, options->output));
    ZO_TRY(zo_saving_output(&run->saving));
    ZO_TRY(check_target(run, run->model_path));
    return options->keep_best ? check_target(run, run->best_path) : ZO_OK;
}

static enum zo_status open_model(struct run *run)
{
    const struct zo_setup *setup = &run->setup;
    size_t index = 0;

    if (setup->options->random_weights) {
        run->source_dtype = setup->model.dtype;
        run->has_inv_freq = true;
        return ZO_OK;
    }
    ZO_TRY(
        zo_model_dir_open(setup->options->model, &run->cli->notes, &run->dir));
    if (zo_state_is_one(setup->options->model)) { /* it holds masters */
        run->source_dtype = setup->model.dtype;
        run->has_inv_freq = true;
        return ZO_OK;
    }
    if (!zo_model_dir_dtype(run->dir, &run->source_dtype)) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: holds no tensor in fp32, bf16 or fp16",
                       setup->options->model);
    }
    run->has_inv_freq = zo_model_dir_find(
        run->dir, "transformer.rotary_pos_emb.inv_freq", &index);
    return ZO_OK;
}

/*
 * Whose files go beside the weights: the model's own, when it is a folder,
 * with the tokenizer that was trained with; else the tokenizer's folder, and
 * a config.json made of what was read.
 */
static enum zo_status find_files(struct run *run)
{
    const struct zo_options *options = run->setup.options;
    struct zo_model_config config = run->setup.model;
    struct stat info;

    if (stat(options->model, &info) == 0 && S_ISDIR(info.st_mode)) {
        run->source_path = options->model;
        run->tokenizer_path =
            options->tokenizer != NULL ? run->setup.model_folder : NULL;
        return ZO_OK;
    }
    run->source_path = run->setup.model_folder;
    config.dtype = run->source_dtype;
    return zo_model_config_json(&config, &run->config_json);
}

/*
 * The steps that --trace is for.  Those that the user names must be of the
 * run; without a name a run that is too short for them shows its last.
 */
static enum zo_status find_trace_steps(const struct run *run,
                                       struct zo_trace_options *trace)
{
    const struct zo_options *options = run->setup.options;
    const int64_t steps = run->setup.total_steps;

    *trace = (struct zo_trace_options){
        .path = options->trace,
        .first_step = options->trace_first,
        .last_step = options->trace_last,
        .device = zo_setup_device_word(&run->setup),
    };
    if (zo_option_given(options, ZO_OPTION_TRACE_STEPS) &&
        trace->last_step > steps) {
        return ZO_FAIL(ZO_E_USAGE,
                       "--trace-steps %" PRId64 "-%" PRId64
                       ": the run has %" PRId64 " step%s",
                       trace->first_step, trace->last_step, steps,
                       steps == 1 ? "" : "s");
    }
    trace->last_step = zo_min_i64(trace->last_step, steps);
    trace->first_step = zo_min_i64(trace->first_step, steps);
    return ZO_OK;
}

static enum zo_status open_trace(struct run *run)
{
    struct zo_trace_options trace;

    if (run->setup.options->trace == NULL) {
        return ZO_OK;
    }
    ZO_TRY(find_trace_steps(run, &trace));
    if (run->setup.options->dry_run) {
        return ZO_OK;
    }
    ZO_TRY(zo_trace_open(&trace, &run->trace));
    run->setup.trace = run->trace;
    return ZO_OK;
}

/* Two that write one file would spoil it. */
static enum zo_status check_trace(const struct run *run)
{
    const char *trace = run->setup.options->trace;
    const char *metrics = run->setup.options->metrics;

    return trace != NULL && (strcmp(trace, run->metrics_path) == 0 ||
                             (metrics != NULL && strcmp(trace, metrics) == 0))
               ? ZO_FAIL(ZO_E_USAGE,
                         "--trace %s: the metrics go there; name another file",
                         trace)
               : ZO_OK;
}

/* Of what is written beside the model; nothing of it is made yet. */
static enum zo_status check_files(struct run *run)
{
    const struct zo_metrics_options metrics = {
        .path = run->metrics_path,
        .second_path = run->setup.options->metrics,
        .is_append = run->saving.continues,
    };

    ZO_TRY(zo_metrics_check(&metrics));
    ZO_TRY(check_trace(run));
    return zo_cli_check_monitor(&run->setup);
}

/* Everything that can be refused is, before memory is taken. */
static enum zo_status prepare(struct run *run)
{
    struct zo_cli *cli = run->cli;
    const struct zo_options *options = run->setup.options;
    enum zo_status status;

    if (options->output == NULL && !options->dry_run) {
        return ZO_FAIL(ZO_E_USAGE, "train needs --output DIR");
    }
    if (!options->dry_run) {
        zo_signals_expect(zo_saving_may_resume(options));
        ZO_TRY(check_output(run));
    }
    ZO_TRY(zo_setup_open(options, &cli->notes, &run->setup));
    ZO_TRY(open_model(run));
    ZO_TRY(find_files(run));
    run->saving.source_path = run->source_path;
    run->saving.tokenizer_path = run->tokenizer_path;
    run->saving.config_json = run->config_json;
    run->saving.source_type = run->source_dtype;
    if (!options->dry_run) {
        ZO_TRY(make_output(run));
        zo_signals_expect(run->saving.continues);
        ZO_TRY(check_files(run));
    }
    ZO_TRY(open_trace(run));
    ZO_TRY(zo_run_config_describe(&run->setup.config, &cli->notes));
    zo_cli_print_notes(cli);
    status = zo_setup_trainer(&run->setup, false, &run->trainer);
    if (status == ZO_E_FIT && run->trainer != NULL) {
        return zo_cli_fail_fit(cli, &run->setup, run->trainer);
    }
    ZO_TRY(status);
    zo_cli_print_plan(cli->out, &run->setup, run->trainer);
    return zo_cli_tell_time(cli, &run->setup, run->trainer);
}

/* ---- while it runs ------------------------------------------------------- */

static enum zo_status write_model(struct run *run, const char *path)
{
    const struct zo_weights weights = zo_trainer_weights(run->trainer);
    const struct zo_weights_export export_ = {
        .path = path,
        .source_path = run->source_path,
        .tokenizer_path = run->tokenizer_path,
        .config_json = run->config_json,
        .dtype = run->source_dtype,
        .has_inv_freq = run->has_inv_freq,
        .replace = true,
    };
    struct zo_model_written written = {0};

    ZO_TRY(zo_weights_write(&weights, &export_, &run->cli->notes, &written));
    for (size_t i = 0; i < written.py_count; i++) {
        const enum zo_status status = zo_note_add(
            &run->cli->notes, ZO_NOTE_INFO,
            "copied %s from the source, unchecked: it is code that other "
            "tools may run",
            written.py_files[i]);

        if (status != ZO_OK) {
            zo_model_written_fini(&written);
            return status;
        }
    }
    zo_model_written_fini(&written);
    return ZO_OK;
}

/*
 * Metrics or a trace that could not be written are no reason to lose the
 * training: it is told once, the run goes on and writes its model, and then
 * fails.
 */
static enum zo_status keep_going(struct run *run, const char *what,
                                 enum zo_status status)
{
    if (status == ZO_OK || run->file_failure.status != ZO_OK) {
        return ZO_OK;
    }
    run->file_failure = *zo_err_last();
    zo_progress_break(&run->progress);
    zo_watch_break(&run->watch);
    return zo_note_add(
        &run->cli->notes, ZO_NOTE_WARN,
        "%s; the run goes on without %s, and ends with exit code 1",
        run->file_failure.text, what);
}

/* The warning, if there is one, behind the line of its step. */
static enum zo_status tell_slow_nvme(struct run *run,
                                     const struct zo_step_metrics *metrics)
{
    const bool had_told = run->slow_nvme.has_told;

    run->slow_nvme.read_rate = run->setup.nvme_read_rate;
    run->slow_nvme.write_rate = run->setup.nvme_write_rate;
    ZO_TRY(zo_slow_nvme_step(&run->slow_nvme, metrics, &run->cli->notes));
    if (run->slow_nvme.has_told && !had_told) {
        zo_progress_break(&run->progress);
        zo_cli_print_notes(run->cli);
    }
    return ZO_OK;
}

static void show_step(struct run *run, const struct zo_step_metrics *metrics)
{
    const bool draws =
        run->setup.options->watch &&
        zo_watch_draws(&run->watch, zo_cli_rows(run->cli->out), metrics);

    if (draws) {
        zo_progress_break(&run->progress);
        zo_progress_follow(&run->progress, metrics);
    } else {
        zo_progress_step(&run->progress, metrics);
    }
    if (run->setup.options->watch) {
        zo_watch_step(&run->watch, metrics,
                      zo_progress_remaining(&run->progress, metrics->step),
                      zo_progress_logs(&run->progress, metrics));
    }
}

static enum zo_status tell_save(struct run *run,
                                const struct zo_save_metrics *metrics)
{
    if (metrics->path == NULL) {
        return ZO_OK;
    }
    zo_watch_break(&run->watch);
    zo_progress_save(&run->progress, metrics);
    return keep_going(run, "metrics", zo_metrics_save(run->metrics, metrics));
}

/* Once a copy has been written, or at once. */
static enum zo_status poll_save(struct run *run, bool waits)
{
    struct zo_save_metrics metrics;

    ZO_TRY(zo_saving_poll(&run->saving, waits, &metrics));
    return tell_save(run, &metrics);
}

static enum zo_status on_step(void *context,
                              const struct zo_step_metrics *metrics)
{
    struct run *run = context;

    run->skipped_steps = metrics->skipped_steps;
    show_step(run, metrics);
    ZO_TRY(tell_slow_nvme(run, metrics));
    ZO_TRY(keep_going(run, "metrics", zo_metrics_step(run->metrics, metrics)));
    if (run->monitor != NULL) {
        ZO_TRY(keep_going(run, "tensorboard and csv_monitor",
                          zo_monitor_step(run->monitor, metrics)));
    }
    ZO_TRY(poll_save(run, false));
    return run->trace == NULL
               ? ZO_OK
               : keep_going(run, "the trace", zo_trace_write(run->trace));
}

static enum zo_status on_eval(void *context,
                              const struct zo_eval_metrics *metrics)
{
    struct run *run = context;

    zo_watch_break(&run->watch);
    zo_progress_eval(&run->progress, metrics);
    ZO_TRY(keep_going(run, "metrics", zo_metrics_eval(run->metrics, metrics)));
    if (run->monitor != NULL) {
        ZO_TRY(keep_going(run, "tensorboard and csv_monitor",
                          zo_monitor_eval(run->monitor, metrics)));
    }
    if (run->setup.options->keep_best && metrics->is_best) {
        ZO_TRY(write_model(run, run->best_path));
    }
    return ZO_OK;
}

static enum zo_status save_state(struct run *run, int64_t step, bool goes_on)
{
    struct zo_save_metrics metrics;

    ZO_TRY(poll_save(run, true));
    ZO_TRY(zo_saving_save(&run->saving, step, goes_on, &metrics));
    return tell_save(run, &metrics);
}

static enum zo_status on_save(void *context, int64_t step)
{
    struct run *run = context;

    return run->setup.options->save_only_model
               ? write_model(run, run->model_path)
               : save_state(run, step, true);
}

static enum zo_status on_copy(void *context)
{
    struct run *run = context;

    ZO_TRY(poll_save(run, true));
    zo_saving_begin_copy(&run->saving);
    return ZO_OK;
}

static bool wants_save(void *context, int64_t step)
{
    struct run *run = context;

    return zo_saving_wants(&run->saving, step);
}

static bool wants_stop(void *context)
{
    (void)context;
    return zo_signals_caught() != 0;
}

static void write_machine(struct zo_jsonl *json, const void *context)
{
    const struct run *run = context;
    const struct zo_machine *machine = &run->setup.devices.machine;

    zo_jsonl_text(json, "backend", machine->device_ops->kind);
    zo_jsonl_int(json, "threads", run->setup.devices.threads);
    zo_jsonl_array_begin(json, "devices");
    for (int d = 0; d < machine->device_count; d++) {
        zo_jsonl_text(
            json, NULL,
            machine->device_ops->info(machine->devices[d])->description);
    }
    zo_jsonl_array_end(json);
}

static void write_fingerprints(struct zo_jsonl *json, const void *context)
{
    const struct run *run = context;

    zo_jsonl_uint(json, "data", zo_dataset_fingerprint(run->setup.data));
}

static enum zo_status open_metrics(struct run *run)
{
    const struct zo_metrics_options options = {
        .path = run->metrics_path,
        .second_path = run->setup.options->metrics,
        .is_append = run->saving.continues,
        .last_step = run->saving.step,
    };
    const struct zo_run_metrics metrics = {
        .version = PACKAGE_VERSION,
        .config = zo_metrics_run_config,
        .config_context = &run->setup.config,
        .machine = write_machine,
        .machine_context = run,
        .fingerprints = write_fingerprints,
        .fingerprints_context = run,
    };

    ZO_TRY(zo_metrics_open(&options, &run->metrics));
    return zo_metrics_run(run->metrics, &metrics);
}

static void open_progress(struct run *run)
{
    const struct zo_run_config *config = &run->setup.config;
    const struct zo_progress_options options = {
        .file = run->cli->out,
        .is_terminal = isatty(fileno(run->cli->out)) != 0,
        .has_loss_scale = config->dtype == ZO_F16,
        .has_clipping = config->gradient_clipping > 0.0,
        .keeps_best = run->setup.options->keep_best,
        .logging_steps = config->steps_per_print,
        .first_step = run->saving.step + 1,
        .total_steps = run->setup.total_steps,
    };

    const struct zo_watch_options watch = {
        .file = options.file,
        .is_terminal = options.is_terminal,
        .total_steps = options.total_steps,
        .device = zo_setup_device_word(&run->setup),
        .gpu_bytes = run->setup.gpu_memory_bytes,
        .host_bytes = run->setup.host_memory_bytes,
        .nvme_bytes = run->setup.nvme_bytes,
    };

    zo_progress_init(&run->progress, &options);
    zo_watch_init(&run->watch, &watch);
}

/* From the model's files, or at random; says how fast. */
static enum zo_status fill_weights(struct run *run)
{
    const struct zo_weights weights = zo_trainer_weights(run->trainer);
    const int64_t started_ns = zo_clock_ns();
    double seconds, bytes;

    if (run->dir == NULL) {
        ZO_TRY(
            zo_weights_randomize(&weights, (uint64_t)run->setup.config.seed));
        (void)fprintf(run->cli->out, "weights made in %.1f s\n",
                      zo_clock_seconds(started_ns, zo_clock_ns()));
        return ZO_OK;
    }
    ZO_TRY(zo_weights_load(&weights, run->dir, &run->cli->notes));
    seconds = zo_clock_seconds(started_ns, zo_clock_ns());
    bytes = (double)zo_model_dir_total_bytes(run->dir);
    (void)fprintf(run->cli->out, "weights read: %.3f GB in %.1f s, %.2f GB/s\n",
                  bytes * 1e-9, seconds, bytes * 1e-9 / seconds);
    return ZO_OK;
}

/* What did not stop the run, but fails it. */
static enum zo_status fail_late(const struct zo_err *failure)
{
    return failure->status == ZO_OK ? ZO_OK : zo_err_adopt(failure);
}

/* From a state, or from the model; what is written beside is made only when
 * nothing of this has failed, and first what may wait for a reader. */
static enum zo_status fill_states(struct run *run)
{
    run->saving.trainer = run->trainer;
    ZO_TRY(run->saving.continues ? zo_saving_resume(&run->saving)
                                 : fill_weights(run));
    ZO_TRY(run->trace == NULL ? ZO_OK : zo_trace_create(run->trace));
    ZO_TRY(open_metrics(run));
    ZO_TRY(zo_cli_open_monitor(&run->setup, &run->monitor));
    open_progress(run);
    zo_cli_print_notes(run->cli);
    return zo_saving_begin(&run->saving);
}

/* A signal came: what was trained is on the disk, or it is a failure. */
static enum zo_status stop(struct run *run, int64_t steps)
{
    const char *name = zo_signals_name(run->cli->stopped_by);

    if (run->setup.options->save_only_model) {
        (void)fprintf(run->cli->out,
                      "stopped by %s after step %" PRId64
                      "; writing the model\n",
                      name, steps);
        return write_model(run, run->model_path);
    }
    if (run->saving.failure.status != ZO_OK) {
        return ZO_OK; /* told by the caller */
    }
    if (run->saving.saved == 0) {
        return ZO_FAIL(ZO_E_IO,
                       "stopped by %s before the first step: there is nothing "
                       "to save",
                       name);
    }
    (void)fprintf(run->cli->out,
                  "stopped by %s after step %" PRId64
                  "; go on with the same command and --resume\n",
                  name, steps);
    return ZO_OK;
}

/* Every step is done. */
static enum zo_status finish(struct run *run)
{
    const int64_t steps = run->setup.total_steps;

    ZO_TRY(write_model(run, run->model_path));
    (void)fprintf(run->cli->out, "the model is in %s\n", run->model_path);
    if (run->skipped_steps > steps / 2) {
        ZO_TRY(zo_note_add(&run->cli->notes, ZO_NOTE_WARN,
                           "%" PRId64 " of %" PRId64 " step%s were skipped, "
                           "since gradients were not finite: the model is "
                           "hardly trained; try a lower learning rate, "
                           "gradient_clipping, or bf16",
                           run->skipped_steps, steps,
                           zo_text_s((uint64_t)steps)));
        zo_cli_print_notes(run->cli);
    }
    return ZO_OK;
}

/* A disk has failed the run: what is left to go on from. */
static void tell_last_state(const struct run *run)
{
    const struct zo_saving *saving = &run->saving;
    const int64_t step = saving->saved > 0 ? saving->saved : saving->step;

    if (step > 0) {
        (void)fprintf(zo_cli_err(run->cli),
                      "note: the state of step %" PRId64 " is whole in %s; "
                      "--resume goes on from there\n",
                      step, run->setup.options->output);
    } else {
        (void)fprintf(zo_cli_err(run->cli),
                      "note: no state had been saved; the run "
                      "begins anew\n");
    }
}

static enum zo_status run_steps(struct run *run)
{
    const struct zo_trainer_watch watch = {
        .context = run,
        .on_step = on_step,
        .on_eval = on_eval,
        .wants_stop = wants_stop,
        .wants_save = wants_save,
        .on_copy = on_copy,
        .on_save = on_save,
    };
    int64_t steps = 0;
    enum zo_status status;

    ZO_TRY(fill_states(run));
    zo_signals_catch();
    status = zo_trainer_run(run->trainer, &watch, &steps);
    zo_progress_break(&run->progress);
    if (status == ZO_E_IO || status == ZO_E_CORRUPT) {
        tell_last_state(run);
    }
    ZO_TRY(status);
    if (!run->setup.options->save_only_model) {
        ZO_TRY(save_state(run, steps, false));
    }
    if (steps < run->setup.total_steps) {
        run->cli->stopped_by = zo_signals_caught();
        ZO_TRY(stop(run, steps));
    } else {
        ZO_TRY(finish(run));
    }
    ZO_TRY(fail_late(&run->saving.failure));
    ZO_TRY(fail_late(&run->saving.late));
    return fail_late(&run->file_failure);
}

/* Nothing in the JSON insists on page-locked memory. */
static bool may_do_without_locking(const struct run *run)
{
    const struct zo_run_zero *zero = &run->setup.config.zero;

    return !(zero->optimizer.pins_as_asked && zero->optimizer.pin_memory) &&
           !(zero->param.pins_as_asked && zero->param.pin_memory);
}

/* What the store has to tell: a line each. */
static enum zo_status note_nvme(struct run *run)
{
    const char *notes =
        zo_executor_nvme_notes(zo_trainer_executor(run->trainer));

    while (*notes != '\0') {
        const size_t length = strcspn(notes, "\n");

        ZO_TRY(zo_note_add(&run->cli->notes, ZO_NOTE_WARN, "--nvme %s: %.*s",
                           run->setup.nvme_directory, (int)length, notes));
        notes += length + (notes[length] == '\n' ? 1 : 0);
    }
    return ZO_OK;
}

/* Memory and threads that could not be near their devices. */
static enum zo_status note_numa(struct run *run)
{
    const int refusal =
        zo_executor_numa_refusal(zo_trainer_executor(run->trainer));

    return refusal == 0
               ? ZO_OK
               : zo_note_add(&run->cli->notes, ZO_NOTE_WARN,
                             "NUMA: the system does not place memory or "
                             "threads near the devices (%s): they are spread "
                             "over all nodes",
                             strerror(refusal));
}

/*
 * Allocates.  Where the system refuses to lock as much memory, states become
 * pageable and pass through small locked rings, unless the JSON insists.
 */
static enum zo_status start(struct run *run)
{
    const int64_t started_ns = zo_clock_ns();
    enum zo_status status = zo_trainer_start(run->trainer);

    if (status == ZO_E_LOCK && may_do_without_locking(run)) {
        (void)fprintf(zo_cli_err(run->cli),
                      "warning: %s; states are kept in pageable memory "
                      "instead, and pass through small locked buffers, which "
                      "is slower (\"pin_memory\": true makes this an error)\n",
                      zo_err_last()->text);
        zo_trainer_close(run->trainer);
        run->trainer = NULL;
        run->setup.avoids_locking = true;
        ZO_TRY(zo_setup_trainer(&run->setup, false, &run->trainer));
        status = zo_trainer_start(run->trainer);
    }
    ZO_TRY(status);
    (void)fprintf(run->cli->out, "memory made ready in %.1f s\n",
                  zo_clock_seconds(started_ns, zo_clock_ns()));
    ZO_TRY(note_numa(run));
    return note_nvme(run);
}

static enum zo_status train(struct run *run)
{
    ZO_TRY(prepare(run));
    if (run->setup.options->dry_run) {
        (void)fprintf(run->cli->out, "dry run: nothing was trained\n");
        return ZO_OK;
    }
    ZO_TRY(zo_saving_room(&run->saving));
    (void)fflush(run->cli->out);
    ZO_TRY(start(run));
    return run_steps(run);
}

enum zo_status zo_cli_train(struct zo_cli *cli,
                            const struct zo_options *options)
{
    struct run run = {.cli = cli, .setup = {.options = options}};
    enum zo_status status;

    run.saving = (struct zo_saving){
        .cli = cli, .setup = &run.setup, .progress = &run.progress, .lock = -1};
    status = train(&run);
    zo_saving_close(&run.saving);

    zo_metrics_close(run.metrics);
    zo_monitor_close(run.monitor);
    zo_trace_close(run.trace); /* reads the trainer's lists */
    zo_trainer_close(run.trainer);
    zo_model_dir_close(run.dir);
    zo_setup_close(&run.setup);
    zo_signals_remove(NULL);
    zo_output_folder_end(&run.output);
    zo_free(run.model_path);
    zo_free(run.best_path);
    zo_free(run.metrics_path);
    zo_free(run.config_json);
    return status;
}
