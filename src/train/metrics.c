#include "src/train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/file_check.h"
#include "src/base/memory.h"

/* A step line of 64 devices has about 6 kB: one write each. */
#define LINE_BYTES 16384
#define TARGETS    2

/* What each line of ours begins with. */
static const char line_start[] = "{\"kind\":\"";

struct target {
    int fd;       /* -1: none */
    bool is_made; /* by open */
    struct zo_jsonl json;
};

struct zo_metrics {
    struct target targets[TARGETS];
    char line[LINE_BYTES];
};

double zo_step_tokens_per_second(const struct zo_step_metrics *metrics)
{
    return metrics->step_seconds > 0.0
               ? (double)metrics->tokens / metrics->step_seconds
               : 0.0;
}

double zo_perplexity(double loss)
{
    return exp(loss);
}

/* ---- files ---- */

/* The size of the file up to its last \n; *tail has what follows that. */
static enum zo_status find_tail(int fd, const char *path, int64_t size_bytes,
                                char *tail, size_t tail_bytes,
                                int64_t *whole_out)
{
    char block[4096];
    int64_t at = size_bytes;
    ssize_t got;

    while (at > 0) {
        const int64_t from =
            at > (int64_t)sizeof(block) ? at - (int64_t)sizeof(block) : 0;
        const char *end;

        got = pread(fd, block, (size_t)(at - from), (off_t)from);
        if (got != at - from) {
            return ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot read metrics %s",
                                  path);
        }
        end = memrchr(block, '\n', (size_t)got);
        if (end != NULL) {
            at = from + (end - block) + 1;
            break;
        }
        at = from;
    }
    memset(tail, 0, tail_bytes);
    if (pread(fd, tail, tail_bytes - 1, (off_t)at) < 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot read metrics %s", path);
    }
    *whole_out = at;
    return ZO_OK;
}

/* The size without a last line that was cut off, which is to be one of ours. */
static enum zo_status find_whole(const char *path, int64_t size_bytes,
                                 int64_t *whole_out)
{
    char tail[sizeof(line_start)];
    enum zo_status status;
    const int reader = open(path, O_RDONLY | O_CLOEXEC);

    if (reader < 0) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno,
                              "cannot continue metrics file %s: %s", path,
                              strerror(errno));
    }
    status = find_tail(reader, path, size_bytes, tail, sizeof(tail), whole_out);
    (void)close(reader);
    ZO_TRY(status);
    return *whole_out == size_bytes ||
                   strncmp(tail, line_start, strlen(tail)) == 0
               ? ZO_OK
               : ZO_FAIL(ZO_E_USAGE,
                         "%s is no metrics file: its last line neither ends "
                         "nor begins like one",
                         path);
}

static enum zo_status mend(int fd, const char *path, int64_t size_bytes)
{
    int64_t whole = 0;

    ZO_TRY(find_whole(path, size_bytes, &whole));
    if (whole < size_bytes && ftruncate(fd, (off_t)whole) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot shorten %s: %s", path,
                              strerror(errno));
    }
    return ZO_OK;
}

/* Whether a line is of a later step. */
static bool is_later(const char *line, int64_t last_step)
{
    long long step = 0;
    char kind[8];

    return sscanf(line, "{\"kind\":\"%7[a-z]\",\"step\":%lld", kind, &step) ==
               2 &&
           step > last_step;
}

/* Where the first line of a step behind last_step begins; -1: there is none. */
static enum zo_status find_later(const char *path, int64_t last_step,
                                 int64_t *at_out)
{
    FILE *file = fopen(path, "re");
    bool is_start = true, is_found = false;
    char part[256]; /* of a line: its beginning tells */
    int64_t at = 0;

    if (file == NULL) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno,
                              "cannot continue metrics file %s: %s", path,
                              strerror(errno));
    }
    while (!is_found && fgets(part, sizeof(part), file) != NULL) {
        const size_t length = strlen(part);

        is_found = is_start && is_later(part, last_step);
        is_start = length > 0 && part[length - 1] == '\n';
        at += is_found ? 0 : (int64_t)length;
    }
    (void)fclose(file);
    *at_out = is_found ? at : -1;
    return ZO_OK;
}

/* Removes the lines of steps that are to be done again. */
static enum zo_status forget(int fd, const char *path, int64_t last_step)
{
    int64_t at = 0;

    ZO_TRY(find_later(path, last_step, &at));
    if (at >= 0 && ftruncate(fd, (off_t)at) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot shorten %s: %s", path,
                              strerror(errno));
    }
    return ZO_OK;
}

/* Bytes of a file that is there; 0 of a pipe. */
static int64_t bytes_there(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode)
               ? (int64_t)info.st_size
               : 0;
}

/* What an older run has left in one: its lines, or nothing. */
static enum zo_status keep_lines(int fd, const char *path,
                                 const struct zo_metrics_options *options)
{
    const int64_t size_bytes = bytes_there(path);

    if (size_bytes == 0) {
        return ZO_OK;
    }
    if (options->is_append) {
        ZO_TRY(mend(fd, path, size_bytes));
        return forget(fd, path, options->last_step);
    }
    if (ftruncate(fd, 0) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot empty %s: %s", path,
                              strerror(errno));
    }
    return ZO_OK;
}

static bool is_same_file(int a, int b)
{
    struct stat left, right;

    return a >= 0 && b >= 0 && fstat(a, &left) == 0 && fstat(b, &right) == 0 &&
           left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

/* One that was not there is remembered, to go again if all is in vain. */
static enum zo_status open_target(const char *path, struct target *target)
{
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;

    target->fd = open(path, flags | O_EXCL, 0666);
    target->is_made = target->fd >= 0;
    if (target->fd < 0) {
        target->fd = open(path, flags, 0666);
    }
    return target->fd >= 0 ? ZO_OK
                           : ZO_FAIL_NATIVE(ZO_E_USAGE, errno,
                                            "cannot open metrics file %s: %s",
                                            path, strerror(errno));
}

/*
 * Nothing is written, or emptied, before all are open.  The second is opened
 * first: where it is a FIFO that waits for its reader, and the run is ended
 * before one comes.
 */
static enum zo_status open_targets(struct zo_metrics *metrics,
                                   const char *const *paths,
                                   const struct zo_metrics_options *options)
{
    struct target *targets = metrics->targets;

    for (size_t i = TARGETS; i-- > 0;) {
        if (paths[i] != NULL) {
            ZO_TRY(open_target(paths[i], &targets[i]));
        }
    }
    if (is_same_file(targets[0].fd, targets[1].fd)) {
        (void)close(targets[1].fd);
        targets[1].fd = -1;
    }
    for (size_t i = 0; i < TARGETS; i++) {
        if (targets[i].fd >= 0) {
            ZO_TRY(keep_lines(targets[i].fd, paths[i], options));
            zo_jsonl_init_fd(&targets[i].json, targets[i].fd, paths[i],
                             metrics->line, sizeof(metrics->line));
        }
    }
    return ZO_OK;
}

static enum zo_status check_target(const char *path, bool is_regular,
                                   bool is_append)
{
    const struct zo_file_check check = {
        .what = "metrics file", .start = line_start, .is_regular = is_regular};
    int64_t size_bytes, whole;

    if (path == NULL) {
        return ZO_OK;
    }
    ZO_TRY(zo_file_check(path, &check));
    size_bytes = bytes_there(path);
    return is_append && size_bytes > 0 ? find_whole(path, size_bytes, &whole)
                                       : ZO_OK;
}

enum zo_status zo_metrics_check(const struct zo_metrics_options *options)
{
    ZO_TRY(check_target(options->path, true, options->is_append));
    return check_target(options->second_path, false, options->is_append);
}

enum zo_status zo_metrics_open(const struct zo_metrics_options *options,
                               struct zo_metrics **metrics_out)
{
    const char *const paths[TARGETS] = {options->path, options->second_path};
    struct zo_metrics *metrics = NULL;
    enum zo_status status;

    ZO_TRY(zo_metrics_check(options));
    ZO_TRY(zo_alloc(1, sizeof(*metrics), "the metrics writer", &metrics));
    metrics->targets[0].fd = metrics->targets[1].fd = -1;
    status = open_targets(metrics, paths, options);
    if (status != ZO_OK) {
        for (size_t i = 0; i < TARGETS; i++) {
            if (metrics->targets[i].is_made) {
                (void)unlink(paths[i]);
            }
        }
        zo_metrics_close(metrics);
        return status;
    }
    *metrics_out = metrics;
    return ZO_OK;
}

void zo_metrics_close(struct zo_metrics *metrics)
{
    if (metrics == NULL) {
        return;
    }
    for (size_t i = 0; i < ZO_COUNT(metrics->targets); i++) {
        if (metrics->targets[i].fd >= 0) {
            (void)close(metrics->targets[i].fd);
        }
    }
    zo_free(metrics);
}

/* ---- lines ---- */

typedef void (*line_fn)(struct zo_jsonl *json, const void *values,
                        const char *time);

/* Of a line that failed; the next one would continue it. */
static enum zo_status drop_part(const struct target *target)
{
    const struct zo_err failure = *zo_err_last();
    struct stat info;

    if (fstat(target->fd, &info) == 0 && S_ISREG(info.st_mode)) {
        (void)!mend(target->fd, target->json.name, info.st_size);
    }
    return zo_err_adopt(&failure);
}

/* The same line, with the same time, to each file. */
static enum zo_status write_line(struct zo_metrics *metrics, line_fn line,
                                 const void *values)
{
    char time[ZO_CLOCK_ISO_BYTES];
    enum zo_status status = ZO_OK;

    (void)zo_clock_iso(time, zo_clock_wall_ms());
    for (size_t i = 0; i < ZO_COUNT(metrics->targets); i++) {
        struct zo_jsonl *json = &metrics->targets[i].json;

        if (metrics->targets[i].fd >= 0) {
            enum zo_status ended;

            zo_jsonl_begin(json);
            line(json, values, time);
            ended = zo_jsonl_end(json);
            if (ended != ZO_OK) {
                ended = drop_part(&metrics->targets[i]);
            }
            status = status != ZO_OK ? status : ended;
        }
    }
    return status;
}

static void put_members(struct zo_jsonl *json, const char *key,
                        zo_metrics_members_fn members, const void *context)
{
    zo_jsonl_object_begin(json, key);
    if (members != NULL) {
        members(json, context);
    }
    zo_jsonl_object_end(json);
}

static void run_line(struct zo_jsonl *json, const void *values,
                     const char *time)
{
    const struct zo_run_metrics *run = values;

    zo_jsonl_text(json, "kind", "run");
    zo_jsonl_int(json, "format", ZO_METRICS_FORMAT);
    zo_jsonl_text(json, "version", run->version);
    zo_jsonl_text(json, "time", time);
    put_members(json, "config", run->config, run->config_context);
    put_members(json, "machine", run->machine, run->machine_context);
    put_members(json, "fingerprints", run->fingerprints,
                run->fingerprints_context);
}

static void put_place(struct zo_jsonl *json, const char *kind, int64_t step,
                      double epoch, const char *time)
{
    zo_jsonl_text(json, "kind", kind);
    zo_jsonl_int(json, "step", step);
    zo_jsonl_real(json, "epoch", epoch);
    zo_jsonl_text(json, "time", time);
}

static void put_numbers(struct zo_jsonl *json,
                        const struct zo_step_metrics *step)
{
    zo_jsonl_real(json, "loss", step->loss);
    zo_jsonl_real(json, "grad_norm", step->grad_norm);
    zo_jsonl_real(json, "clip_coefficient", step->clip_coefficient);
    zo_jsonl_real(json, "learning_rate", step->learning_rate);
    zo_jsonl_real(json, "loss_scale", step->loss_scale);
    zo_jsonl_bool(json, "overflow", step->overflow);
    zo_jsonl_int(json, "skipped_steps", step->skipped_steps);
    zo_jsonl_int(json, "rows", step->rows);
    zo_jsonl_int(json, "tokens", step->tokens);
    zo_jsonl_int(json, "label_tokens", step->label_tokens);
    zo_jsonl_int(json, "tokens_total", step->tokens_total);
    zo_jsonl_real(json, "step_seconds", step->step_seconds);
    zo_jsonl_real(json, "tokens_per_second", zo_step_tokens_per_second(step));
}

/* How long an engine was busy, and how much of the step it was not.  A list
 * may take longer than the time from the end of one step to the next. */
static void put_engine(struct zo_jsonl *json, const char *busy_key,
                       const char *idle_key, double busy_seconds,
                       double step_seconds)
{
    zo_jsonl_real(json, busy_key, busy_seconds);
    zo_jsonl_real(json, idle_key,
                  busy_seconds > step_seconds ? 0.0
                                              : step_seconds - busy_seconds);
}

/* Null for an engine that was not timed, or did nothing. */
static double rate_gbps(uint64_t bytes, double seconds)
{
    return seconds > 0.0 ? (double)bytes / seconds / 1e9 : NAN;
}

static void put_engines(struct zo_jsonl *json,
                        const struct zo_step_metrics *step)
{
    const double seconds = step->step_seconds;

    put_engine(json, "compute_seconds", "compute_idle_seconds",
               step->compute_seconds, seconds);
    put_engine(json, "h2d_seconds", "h2d_idle_seconds", step->h2d_seconds,
               seconds);
    zo_jsonl_real(json, "h2d_gbps",
                  rate_gbps(step->h2d_bytes, step->h2d_seconds));
    put_engine(json, "d2h_seconds", "d2h_idle_seconds", step->d2h_seconds,
               seconds);
    zo_jsonl_real(json, "d2h_gbps",
                  rate_gbps(step->d2h_bytes, step->d2h_seconds));
    put_engine(json, "collective_seconds", "collective_idle_seconds",
               step->collective_seconds, seconds);
    put_engine(json, "cpu_seconds", "cpu_idle_seconds", step->cpu_seconds,
               seconds);
    zo_jsonl_real(json, "nvme_seconds", step->nvme_seconds);
}

static void put_machine(struct zo_jsonl *json,
                        const struct zo_step_metrics *step)
{
    zo_jsonl_uints(json, "gpu_bytes", step->gpu_bytes, step->device_count);
    zo_jsonl_uints(json, "gpu_bytes_peak", step->gpu_bytes_peak,
                   step->device_count);
    zo_jsonl_uint(json, "host_bytes", step->host_bytes);
    zo_jsonl_uint(json, "host_bytes_peak", step->host_bytes_peak);
    zo_jsonl_uint(json, "pinned_bytes", step->pinned_bytes);
    zo_jsonl_uint(json, "nvme_bytes", step->nvme_bytes);
    zo_jsonl_uint(json, "h2d_bytes", step->h2d_bytes);
    zo_jsonl_uint(json, "d2h_bytes", step->d2h_bytes);
    zo_jsonl_uint(json, "nvme_read_bytes", step->nvme_read_bytes);
    zo_jsonl_uint(json, "nvme_write_bytes", step->nvme_write_bytes);
    put_engines(json, step);
}

static void step_line(struct zo_jsonl *json, const void *values,
                      const char *time)
{
    const struct zo_step_metrics *step = values;

    put_place(json, "step", step->step, step->epoch, time);
    put_numbers(json, step);
    put_machine(json, step);
}

static void eval_line(struct zo_jsonl *json, const void *values,
                      const char *time)
{
    const struct zo_eval_metrics *eval = values;

    put_place(json, "eval", eval->step, eval->epoch, time);
    zo_jsonl_real(json, "loss", eval->loss);
    zo_jsonl_real(json, "perplexity", zo_perplexity(eval->loss));
    zo_jsonl_int(json, "rows", eval->rows);
    zo_jsonl_int(json, "tokens", eval->tokens);
    zo_jsonl_int(json, "label_tokens", eval->label_tokens);
    zo_jsonl_real(json, "seconds", eval->seconds);
    zo_jsonl_bool(json, "is_best", eval->is_best);
}

static void save_line(struct zo_jsonl *json, const void *values,
                      const char *time)
{
    const struct zo_save_metrics *save = values;

    put_place(json, "save", save->step, save->epoch, time);
    zo_jsonl_text(json, "path", save->path);
    zo_jsonl_uint(json, "bytes", save->bytes);
    zo_jsonl_real(json, "seconds", save->seconds);
    zo_jsonl_real(json, "stall_seconds", save->stall_seconds);
}

enum zo_status zo_metrics_run(struct zo_metrics *metrics,
                              const struct zo_run_metrics *run)
{
    return write_line(metrics, run_line, run);
}

enum zo_status zo_metrics_step(struct zo_metrics *metrics,
                               const struct zo_step_metrics *step)
{
    return write_line(metrics, step_line, step);
}

enum zo_status zo_metrics_eval(struct zo_metrics *metrics,
                               const struct zo_eval_metrics *eval)
{
    return write_line(metrics, eval_line, eval);
}

enum zo_status zo_metrics_save(struct zo_metrics *metrics,
                               const struct zo_save_metrics *save)
{
    return write_line(metrics, save_line, save);
}

/* ---- the configuration in the run line ---- */

static void put_optimizer(struct zo_jsonl *json,
                          const struct zo_run_optimizer *optimizer)
{
    zo_jsonl_object_begin(json, "optimizer");
    zo_jsonl_real(json, "learning_rate", optimizer->learning_rate);
    zo_jsonl_real(json, "beta1", optimizer->beta1);
    zo_jsonl_real(json, "beta2", optimizer->beta2);
    zo_jsonl_real(json, "epsilon", optimizer->epsilon);
    zo_jsonl_real(json, "weight_decay", optimizer->weight_decay);
    zo_jsonl_bool(json, "decay_all", optimizer->decay_all);
    zo_jsonl_object_end(json);
}

void zo_metrics_run_config(struct zo_jsonl *json, const void *run_config)
{
    const struct zo_run_config *config = run_config;

    zo_jsonl_int(json, "num_devices", config->num_devices);
    zo_jsonl_int(json, "micro_batch_rows", config->micro_batch_rows);
    zo_jsonl_int(json, "gradient_accumulation_steps",
                 config->gradient_accumulation_steps);
    zo_jsonl_int(json, "train_batch_rows", config->train_batch_rows);
    zo_jsonl_text(json, "dtype", zo_dtype_name(config->dtype));
    zo_jsonl_bool(json, "check_grad_overflow", config->check_grad_overflow);
    zo_jsonl_real(json, "gradient_clipping", config->gradient_clipping);
    zo_jsonl_text(json, "loss_reduction",
                  zo_loss_reduction_name(config->loss_reduction));
    put_optimizer(json, &config->optimizer);
    zo_jsonl_text(json, "schedule",
                  zo_schedule_type_name(config->schedule.type));
    zo_jsonl_int(json, "warmup_steps", config->schedule.warmup_steps);
    zo_jsonl_int(json, "total_steps", config->schedule.total_steps);
    zo_jsonl_int(json, "zero_stage", config->zero.stage);
    zo_jsonl_text(json, "offload_optimizer",
                  zo_home_limit_name(config->zero.optimizer.limit));
    zo_jsonl_text(json, "offload_param",
                  zo_home_limit_name(config->zero.param.limit));
    zo_jsonl_int(json, "seed", config->seed);
}
