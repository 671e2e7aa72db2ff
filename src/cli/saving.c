#include "src/cli/saving.h"

#include <inttypes.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/base/system.h"
#include "src/base/text.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/state_folder.h"
#include "src/cli/signals.h"

/* That a copy leaves free. */
#define ROOM_RESERVE_BYTES ((uint64_t)2 << 30)

/* Until one was measured: what a plain disk takes. */
#define BYTES_PER_SECOND_GUESS 1e9

static const char *output_of(const struct zo_saving *saving)
{
    return saving->setup->options->output;
}

static uint64_t bytes_max(const struct zo_saving *saving)
{
    return zo_saving_bytes_max(saving->setup);
}

static void set_due(struct zo_saving *saving)
{
    saving->due_ns =
        zo_clock_ns() +
        (int64_t)(saving->setup->options->save_minutes * 60.0 * 1e9);
}

/* What SIGINT answers with, at once. */
static void announce(const struct zo_saving *saving)
{
    const double seconds = saving->seconds > 0.0 ? saving->seconds
                                                 : (double)bytes_max(saving) /
                                                       BYTES_PER_SECOND_GUESS;
    char text[256], span[ZO_CLOCK_SPAN_BYTES];

    if (saving->setup->options->save_only_model) {
        return;
    }
    (void)snprintf(
        text, sizeof(text),
        "\nSIGINT: no further step is started; saving then takes about %s; "
        "once more stops at once, without saving\n",
        zo_clock_span(span, seconds));
    zo_signals_announce(text);
}

/* Those of a run that this one is to replace. */
static enum zo_status remove_all(struct zo_saving *saving)
{
    int64_t *steps = NULL;
    size_t count = 0;
    enum zo_status status;

    ZO_TRY(zo_state_folder_list(output_of(saving), &steps, &count));
    status = ZO_OK;
    for (size_t i = 0; status == ZO_OK && i < count; i++) {
        status = zo_state_folder_remove(output_of(saving), steps[i]);
    }
    zo_free(steps);
    return status;
}

/* For saves while training goes on; without memory for it they wait. */
static void open_copy(struct zo_saving *saving)
{
    const struct zo_options *options = saving->setup->options;

    if (!options->save_only_model &&
        (options->save_steps > 0 || options->save_minutes > 0.0) &&
        zo_saving_copies(saving->setup, saving->trainer)) {
        (void)!zo_trainer_copy_open(saving->trainer, &saving->copy);
    }
}

enum zo_status zo_saving_begin(struct zo_saving *saving)
{
    if (saving->setup->options->overwrite && !saving->continues) {
        ZO_TRY(remove_all(saving));
    }
    open_copy(saving);
    set_due(saving);
    announce(saving);
    return ZO_OK;
}

bool zo_saving_wants(struct zo_saving *saving, int64_t step)
{
    const struct zo_options *options = saving->setup->options;

    if (zo_signals_take_usr1()) {
        return true;
    }
    if (step >= saving->setup->total_steps) {
        return false; /* the run ends, and saves */
    }
    if (options->save_steps > 0 && step % options->save_steps == 0) {
        return true;
    }
    return options->save_minutes > 0.0 && saving->thread == NULL &&
           zo_clock_ns() >= saving->due_ns;
}

static enum zo_status note_left(struct zo_saving *saving)
{
    return zo_note_add(&saving->cli->notes, ZO_NOTE_WARN,
                       "an old state is left: %s", zo_err_last()->text);
}

/*
 * The newest --save-total-limit states are kept, this one always; those of
 * later steps, once this one was saved, are what an abandoned run has left, and
 * would be taken for this one's.  That an old one stays is no failure.
 */
static enum zo_status remove_old(struct zo_saving *saving, int64_t step,
                                 bool was_saved)
{
    const int64_t limit = saving->setup->options->save_total_limit;
    int64_t *steps = NULL, kept = 1;
    size_t count = 0;
    enum zo_status status;

    status = zo_state_folder_list(output_of(saving), &steps, &count);
    if (status != ZO_OK) {
        return note_left(saving);
    }
    for (size_t i = 0; status == ZO_OK && i < count; i++) {
        if (steps[i] == step || (steps[i] > step && !was_saved) ||
            (steps[i] < step && (limit == 0 || kept++ < limit))) {
            continue;
        }
        if (zo_state_folder_remove(output_of(saving), steps[i]) != ZO_OK) {
            status = note_left(saving);
        }
    }
    zo_free(steps);
    return status;
}

static struct zo_state_write_options
write_options(const struct zo_saving *saving)
{
    return (struct zo_state_write_options){
        .folder = output_of(saving),
        .program = PACKAGE_NAME " " PACKAGE_VERSION,
        .source_path = saving->source_path,
        .tokenizer_path = saving->tokenizer_path,
        .config_json = saving->config_json,
        .source_type = saving->source_type,
    };
}

static enum zo_status write_state(struct zo_saving *saving,
                                  struct zo_state_written *written_out)
{
    struct zo_state_write_options options = write_options(saving);
    struct zo_saving_settings settings;
    struct zo_state_run run;

    ZO_TRY(zo_saving_run(saving->setup, &run));
    zo_saving_settings(saving->setup, &settings);
    options.run = &run;
    options.settings = settings.items;
    options.setting_count = settings.count;
    return zo_trainer_save(saving->trainer, &options, written_out);
}

/*
 * Has the copy written while training goes on, which needs the processor more
 * than the disk needs what packing saves it: unless there is no room.
 */
static enum zo_status write_copy(struct zo_saving *saving, int64_t step)
{
    struct zo_saving_settings settings;
    struct zo_state_run run;
    struct zo_saving_thread_options options = {
        .write = write_options(saving),
        .settings = &settings,
        .run = &run,
        .threads = 2 + saving->setup->devices.threads / 4,
        .copy = saving->copy,
        .step = step,
    };

    saving->is_spared =
        zo_disk_free_bytes(output_of(saving)) >= bytes_max(saving);
    options.write.spares_cpu = saving->is_spared;
    ZO_TRY(zo_saving_run(saving->setup, &run));
    zo_saving_settings(saving->setup, &settings);
    return zo_saving_thread_open(&options, &saving->thread);
}

bool zo_saving_copies(const struct zo_setup *setup,
                      const struct zo_trainer *trainer)
{
    const uint64_t copy = zo_trainer_copy_bytes(trainer);
    const uint64_t held = zo_trainer_host_bytes(trainer);
    const uint64_t budget = setup->host_memory_bytes;
    struct zo_system system;
    uint64_t room;

    if (budget != 0 && held + copy > budget) {
        return false;
    }
    if (zo_setup_plans_elsewhere(setup)) { /* nothing more binds it there */
        return true;
    }
    zo_system_read("", &system);
    room = zo_system_room(&system);
    if (zo_trainer_executor(trainer) == NULL) { /* that it will take */
        room = room > held ? room - held : 0;
    }
    return copy + ROOM_RESERVE_BYTES <= room;
}

static enum zo_status tell_failure(struct zo_saving *saving)
{
    const struct zo_err *failure = zo_err_last();

    if (saving->failure.status == ZO_OK) {
        saving->failure = *failure;
        saving->failure.status = ZO_E_IO; /* for the exit code */
    }
    zo_progress_break(saving->progress);
    ZO_TRY(zo_note_add(&saving->cli->notes, ZO_NOTE_WARN,
                       "no state was saved: %s; the next save tries again, and "
                       "the run ends with exit code 1",
                       failure->text));
    zo_cli_print_notes(saving->cli);
    return ZO_OK;
}

/* The state stands, but not all was done that belongs to it. */
static enum zo_status tell_late(struct zo_saving *saving,
                                const struct zo_state_written *written)
{
    const bool fails = !written->is_synced || !written->is_latest;

    saving->late = (struct zo_err){.status = ZO_OK};
    if (written->late.status == ZO_OK) {
        return ZO_OK;
    }
    if (fails) {
        saving->late = written->late;
    }
    zo_progress_break(saving->progress);
    ZO_TRY(zo_note_add(&saving->cli->notes, ZO_NOTE_WARN,
                       "%s is saved, but %s: %s%s", saving->path,
                       !written->is_synced ? "lost if the machine stops now"
                       : !written->is_latest
                           ? "latest does not lead to it"
                           : "the state that it replaces is left",
                       written->late.text,
                       fails ? "; unless a later save mends that, the run ends "
                               "with exit code 1"
                             : ""));
    zo_cli_print_notes(saving->cli);
    return ZO_OK;
}

/* A state is on the disk. */
static enum zo_status finish_save(struct zo_saving *saving, int64_t step,
                                  const struct zo_state_written *written,
                                  struct zo_save_metrics *metrics_out)
{
    saving->seconds = zo_clock_seconds(saving->started_ns, zo_clock_ns());
    saving->packed_bytes =
        saving->is_spared ? saving->packed_bytes : written->bytes;
    saving->saved = step;
    announce(saving);
    zo_free(saving->path);
    saving->path = NULL;
    ZO_TRY(zo_state_folder_path(output_of(saving), step, &saving->path));
    ZO_TRY(tell_late(saving, written));
    /* Or older ones may still be needed. */
    if (written->is_synced && written->is_latest) {
        ZO_TRY(remove_old(saving, step, true));
    }
    *metrics_out = (struct zo_save_metrics){
        .step = step,
        .epoch = (double)step / (double)saving->setup->steps_per_epoch,
        .path = saving->path,
        .bytes = written->bytes,
        .seconds = saving->seconds,
        .stall_seconds = saving->stall_seconds,
    };
    return ZO_OK;
}

/* What has no room on the disk is not begun: packed states are much alike in
 * size, and where there is little room all is packed. */
static enum zo_status check_disk(const struct zo_saving *saving)
{
    const uint64_t room = zo_disk_free_bytes(output_of(saving));
    const uint64_t want = saving->packed_bytes - saving->packed_bytes / 32;
    char want_text[32], room_text[32];

    return want <= room
               ? ZO_OK
               : ZO_FAIL(ZO_E_IO,
                         "%s: a state takes about %s of disk, and %s are free",
                         output_of(saving),
                         zo_text_gib(want_text, sizeof(want_text),
                                     saving->packed_bytes),
                         zo_text_gib(room_text, sizeof(room_text), room));
}

void zo_saving_begin_copy(struct zo_saving *saving)
{
    saving->started_ns = zo_clock_ns();
    set_due(saving); /* not due again meanwhile */
}

enum zo_status zo_saving_save(struct zo_saving *saving, int64_t step,
                              bool goes_on, struct zo_save_metrics *metrics_out)
{
    const bool copies = goes_on && saving->copy != NULL;
    const int64_t began_ns = zo_clock_ns();
    struct zo_state_written written = {0};
    enum zo_status status;

    ZO_ASSERT(saving->thread == NULL);
    *metrics_out = (struct zo_save_metrics){.path = NULL};
    if (step < 1) {
        return ZO_OK;
    }
    if (step == saving->saved) { /* a run that was killed may have left more */
        return remove_old(saving, step, false);
    }
    if (!copies) {
        saving->started_ns = began_ns;
    }
    saving->is_spared = false;
    status = check_disk(saving);
    if (status == ZO_OK) {
        status =
            copies ? write_copy(saving, step) : write_state(saving, &written);
    }
    saving->stall_seconds = zo_clock_seconds(began_ns, zo_clock_ns());
    set_due(saving);
    if (status != ZO_OK) {
        return tell_failure(saving);
    }
    return saving->thread != NULL
               ? ZO_OK
               : finish_save(saving, step, &written, metrics_out);
}

enum zo_status zo_saving_poll(struct zo_saving *saving, bool waits,
                              struct zo_save_metrics *metrics_out)
{
    struct zo_saving_thread *thread = saving->thread;
    const int64_t began_ns = zo_clock_ns();
    struct zo_state_written written;
    int64_t step = 0;
    enum zo_status status;

    *metrics_out = (struct zo_save_metrics){.path = NULL};
    if (thread == NULL || (!waits && !zo_saving_thread_is_done(thread))) {
        return ZO_OK;
    }
    saving->thread = NULL;
    status = zo_saving_thread_join(thread, &step, &written);
    saving->stall_seconds += zo_clock_seconds(began_ns, zo_clock_ns());
    set_due(saving);
    return status == ZO_OK ? finish_save(saving, step, &written, metrics_out)
                           : tell_failure(saving);
}

void zo_saving_close(struct zo_saving *saving)
{
    if (saving->thread != NULL) { /* the run has failed; this state is whole */
        struct zo_state_written written;
        int64_t step = 0;

        (void)!zo_saving_thread_join(saving->thread, &step, &written);
        saving->thread = NULL;
    }
    zo_trainer_copy_close(saving->copy);
    saving->copy = NULL;
    if (saving->lock >= 0) {
        (void)close(saving->lock);
    }
    saving->lock = -1;
    zo_free(saving->path);
    saving->path = NULL;
}
