/*
 * Saving: what is looked at before a run, and what it goes on from.  Row 8.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/model_files.h"
#include "src/checkpoint/state_folder.h"
#include "src/cli/saving.h"

/* Of a shape that has no folder; a tokenizer.json has some 20 MB. */
#define FILES_BYTES_UNKNOWN ((uint64_t)64 << 20)

/* Of a layer, or of what stands before and behind all of them. */
#define LAYER_TENSORS_MAX 8

static const char *output_of(const struct zo_saving *saving)
{
    return saving->setup->options->output;
}

/* ---- before the run --------------------------------------------------------
 */

/* Held until the process ends; a file system without locks goes without. */
static enum zo_status lock_output(struct zo_saving *saving)
{
    const char *output = output_of(saving);

    saving->lock = open(output, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (saving->lock >= 0 && flock(saving->lock, LOCK_EX | LOCK_NB) != 0 &&
        errno == EWOULDBLOCK) {
        return ZO_FAIL(ZO_E_USAGE, "--output %s: another run is writing to it",
                       output);
    }
    return ZO_OK;
}

/* Same folder, whatever it is called. */
static bool is_same_folder(const char *a, const char *b)
{
    struct stat left, right;

    return stat(a, &left) == 0 && stat(b, &right) == 0 &&
           left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

/* The state that --resume=DIR names: one of the output's, or the first here. */
static enum zo_status check_named(struct zo_saving *saving, size_t states)
{
    const char *path = saving->setup->options->resume;
    struct zo_state *state = NULL;
    char *folder = NULL, *name = NULL;
    bool is_inside;
    enum zo_status status;

    if (is_same_folder(path, output_of(saving))) {
        return ZO_FAIL(ZO_E_USAGE,
                       "--resume=%s is the --output, not a state in it; "
                       "--resume alone takes the newest",
                       path);
    }
    ZO_TRY(zo_disk_split(path, &folder, &name));
    is_inside = is_same_folder(folder, output_of(saving));
    zo_free(folder);
    zo_free(name);
    ZO_TRY(zo_state_open(path, &state)); /* first: it may not be there */
    status = states > 0 && !is_inside && !saving->setup->options->overwrite
                 ? ZO_FAIL(ZO_E_USAGE,
                           "--output %s holds states of another run than %s; "
                           "name another directory, or say --overwrite",
                           output_of(saving), path)
                 : zo_saving_check(saving->setup, state, NULL);
    zo_state_close(state);
    return status;
}

/* The newest that opens is of these data and this model. */
static enum zo_status check_newest(struct zo_saving *saving,
                                   const int64_t *steps, size_t count)
{
    enum zo_status status = ZO_E_CORRUPT;

    for (size_t i = 0; status == ZO_E_CORRUPT && i < count; i++) {
        struct zo_state *state = NULL;
        char *path = NULL;

        ZO_TRY(zo_state_folder_path(output_of(saving), steps[i], &path));
        status = zo_state_open(path, &state);
        zo_free(path);
        if (status == ZO_OK) {
            status = zo_saving_check(saving->setup, state, NULL);
        } else if (status != ZO_E_NOMEM && status != ZO_E_NOSUPPORT) {
            status = ZO_E_CORRUPT; /* told when it is its turn */
        }
        zo_state_close(state);
    }
    return status == ZO_E_CORRUPT ? ZO_OK : status;
}

/* States that no option says what to do with. */
static enum zo_status check_asked(const struct zo_options *options,
                                  const int64_t *steps, size_t count)
{
    return count == 0 || options->resume != NULL || options->overwrite
               ? ZO_OK
               : ZO_FAIL(ZO_E_USAGE,
                         "--output %s holds states of an earlier run, the "
                         "newest behind step %" PRId64
                         "; go on from it with --resume, or start anew "
                         "with --overwrite",
                         options->output, steps[0]);
}

enum zo_status zo_saving_refuse(const struct zo_options *options)
{
    int64_t *steps = NULL;
    size_t count = 0;
    enum zo_status status;

    status = zo_state_folder_list(options->output, &steps, &count);
    if (status != ZO_OK) {
        return status == ZO_E_NOMEM ? status : ZO_OK; /* told once it is made */
    }
    status = check_asked(options, steps, count);
    zo_free(steps);
    return status;
}

static enum zo_status check_states(struct zo_saving *saving,
                                   const int64_t *steps, size_t count)
{
    const struct zo_options *options = saving->setup->options;

    ZO_TRY(check_asked(options, steps, count));
    if (options->resume == NULL) {
        return ZO_OK;
    }
    if (strcmp(options->resume, "auto") != 0) {
        saving->continues = true;
        return check_named(saving, count);
    }
    saving->continues = count > 0;
    return count > 0 ? check_newest(saving, steps, count)
                     : zo_note_add(&saving->cli->notes, ZO_NOTE_INFO,
                                   "no state in %s: starting at step 1",
                                   options->output);
}

/* Is it OUTPUT/latest, which leads to a state that is kept? */
static enum zo_status is_latest(const struct zo_saving *saving,
                                const char *path, bool *is_latest_out)
{
    char *folder = NULL, *name = NULL, *bare = NULL;
    size_t length = strlen(path);
    enum zo_status status;

    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    ZO_TRY(zo_strndup(path, length, &bare));
    status = zo_disk_split(bare, &folder, &name);
    zo_free(bare);
    *is_latest_out = status == ZO_OK && strcmp(name, "latest") == 0 &&
                     is_same_folder(folder, output_of(saving));
    if (status == ZO_OK) {
        zo_free(folder);
        zo_free(name);
    }
    return status == ZO_E_USAGE ? ZO_OK : status; /* "." is none */
}

/*
 * Files beside the weights are copied into every state and model, so a state
 * of this output that is to be removed cannot be where they come from.
 */
static enum zo_status check_source(const struct zo_saving *saving,
                                   const char *source, const int64_t *steps,
                                   size_t count)
{
    const struct zo_options *options = saving->setup->options;
    const bool removes_all = options->overwrite && !saving->continues;
    bool is_kept = false;

    if (source == NULL || count == 0) {
        return ZO_OK;
    }
    if (!removes_all) {
        ZO_TRY(is_latest(saving, source, &is_kept));
        is_kept = is_kept || options->save_total_limit == 0 ||
                  options->save_only_model;
    }
    for (size_t i = 0; !is_kept && i < count; i++) {
        char *path = NULL;
        bool is_own;

        ZO_TRY(zo_state_folder_path(output_of(saving), steps[i], &path));
        is_own = is_same_folder(path, source);
        zo_free(path);
        if (is_own) {
            return ZO_FAIL(ZO_E_USAGE,
                           "%s is a state of --output %s that this run "
                           "removes; name another output%s",
                           source, output_of(saving),
                           removes_all ? "" : ", or its latest");
        }
    }
    return ZO_OK;
}

bool zo_saving_may_resume(const struct zo_options *options)
{
    int64_t *steps = NULL;
    size_t count = 0;

    if (options->resume == NULL || strcmp(options->resume, "auto") != 0) {
        return options->resume != NULL;
    }
    if (zo_state_folder_list(options->output, &steps, &count) != ZO_OK) {
        return false;
    }
    zo_free(steps);
    return count > 0;
}

enum zo_status zo_saving_output(struct zo_saving *saving)
{
    int64_t *steps = NULL;
    size_t count = 0;
    enum zo_status status;

    ZO_TRY(lock_output(saving));
    ZO_TRY(zo_state_folder_clean(output_of(saving)));
    ZO_TRY(zo_state_folder_list(output_of(saving), &steps, &count));
    status = check_states(saving, steps, count);
    if (status == ZO_OK) {
        status = check_source(saving, saving->source_path, steps, count);
    }
    if (status == ZO_OK) {
        status = check_source(saving, saving->tokenizer_path, steps, count);
    }
    zo_free(steps);
    return status;
}

uint64_t zo_saving_bytes_max(const struct zo_setup *setup)
{
    const char *model = setup->options->model, *other = setup->model_folder;
    uint64_t files = other == NULL ? FILES_BYTES_UNKNOWN : 0;
    struct stat info;

    if (stat(model, &info) == 0 && S_ISDIR(info.st_mode)) {
        files += zo_model_files_bytes(model);
    }
    if (other != NULL && strcmp(other, model) != 0) { /* the tokenizer's */
        files += zo_model_files_bytes(other);
    }
    return zo_state_bytes_max((uint64_t)setup->model.parameter_count,
                              LAYER_TENSORS_MAX *
                                  ((uint64_t)setup->model.num_layers + 1),
                              setup->config.optimizer.moment_dtype, files);
}

enum zo_status zo_saving_room(struct zo_saving *saving)
{
    const uint64_t want = zo_saving_bytes_max(saving->setup);
    const uint64_t have = zo_disk_free_bytes(output_of(saving));
    char *path = NULL, want_text[32], have_text[32];
    enum zo_status status = ZO_OK;

    if (saving->setup->options->save_only_model) {
        return ZO_OK;
    }
    if (have < want) {
        return ZO_FAIL(ZO_E_IO,
                       "--output %s: a training state takes up to %s of disk, "
                       "and %s are free (--save-only-model does without)",
                       output_of(saving),
                       zo_text_gib(want_text, sizeof(want_text), want),
                       zo_text_gib(have_text, sizeof(have_text), have));
    }
    ZO_TRY(zo_state_folder_hidden(output_of(saving), 0, "partial", &path));
    if (mkdir(path, 0777) != 0 || rmdir(path) != 0) {
        status = ZO_FAIL_NATIVE(ZO_E_IO, errno,
                                "cannot make folder %s, so no state could be "
                                "saved: %s",
                                path, strerror(errno));
    }
    zo_free(path);
    return status;
}

/* ---- resume ----------------------------------------------------------------
 */

static enum zo_status restore(struct zo_saving *saving, const char *path)
{
    const int64_t started_ns = zo_clock_ns();
    struct zo_state *state = NULL;
    char *own_path = NULL, size[32];
    enum zo_status status;

    ZO_TRY(zo_state_open(path, &state));
    ZO_TRY_GOTO(close_state, zo_saving_check(saving->setup, state, NULL));
    ZO_TRY_GOTO(close_state, zo_trainer_restore(saving->trainer, state));
    saving->step = zo_state_run(state)->step;
    ZO_TRY_GOTO(close_state, zo_state_folder_path(output_of(saving),
                                                  saving->step, &own_path));
    saving->saved = is_same_folder(own_path, path) ? saving->step : 0;
    (void)fprintf(saving->cli->out,
                  "resumed behind step %" PRId64 " of %" PRId64
                  " from %s: %s in %.1f s\n",
                  saving->step, saving->setup->total_steps, path,
                  zo_text_gib(size, sizeof(size), zo_state_stored_bytes(state)),
                  zo_clock_seconds(started_ns, zo_clock_ns()));
    if (saving->step >= saving->setup->total_steps) {
        (void)fputs("no step is left to train; the model is written as it is\n",
                    saving->cli->out);
    }
    status = zo_saving_check(saving->setup, state, &saving->cli->notes);

close_state:
    zo_free(own_path);
    zo_state_close(state);
    return status;
}

/* What another state may cure. */
static bool is_damage(enum zo_status status)
{
    return status == ZO_E_CORRUPT || status == ZO_E_IO || status == ZO_E_USAGE;
}

static enum zo_status resume_newest(struct zo_saving *saving,
                                    const int64_t *steps, size_t count)
{
    enum zo_status status = ZO_OK;

    for (size_t i = 0; i < count; i++) {
        char *path = NULL;

        ZO_TRY(zo_state_folder_path(output_of(saving), steps[i], &path));
        status = restore(saving, path);
        zo_free(path);
        if (!is_damage(status)) {
            return status;
        }
        if (i + 1 < count) {
            ZO_TRY(zo_note_add(&saving->cli->notes, ZO_NOTE_WARN,
                               "%s; going on from the state before it, behind "
                               "step %" PRId64,
                               zo_err_last()->text, steps[i + 1]));
        }
    }
    return ZO_FAIL(ZO_E_CORRUPT, "%s%s", zo_err_last()->text,
                   count > 1 ? "; no state is whole"
                             : "; it is the only state");
}

/* A damaged state that was named: which one would do instead. */
static enum zo_status offer_another(struct zo_saving *saving,
                                    const int64_t *steps, size_t count)
{
    const struct zo_err failure = *zo_err_last();
    const char *named = saving->setup->options->resume;

    for (size_t i = 0; i < count; i++) {
        char *path = NULL;
        bool is_named;

        ZO_TRY(zo_state_folder_path(output_of(saving), steps[i], &path));
        is_named = is_same_folder(path, named);
        zo_free(path);
        if (is_named && i + 1 < count) {
            ZO_TRY(
                zo_state_folder_path(output_of(saving), steps[i + 1], &path));
            (void)!ZO_FAIL(failure.status,
                           "%s; the state before it is --resume=%s",
                           failure.text, path);
            zo_free(path);
            return failure.status;
        }
    }
    return zo_err_adopt(&failure);
}

enum zo_status zo_saving_resume(struct zo_saving *saving)
{
    const char *resume = saving->setup->options->resume;
    int64_t *steps = NULL;
    size_t count = 0;
    enum zo_status status;

    ZO_TRY(zo_state_folder_list(output_of(saving), &steps, &count));
    if (strcmp(resume, "auto") == 0) {
        status = resume_newest(saving, steps, count);
    } else {
        status = restore(saving, resume);
        if (is_damage(status)) {
            status = offer_another(saving, steps, count);
        }
    }
    zo_free(steps);
    return status;
}
