/*
 * When a run saves, what it keeps, and what it continues from.
 *
 * Row 8, of train.  Life cycle: output, before anything is allocated; room,
 * once it is planned; resume or not, once memory is there; begin; then wants
 * and save at each step border; at the end save once more; close.
 */
#ifndef ZO_SRC_CLI_SAVING_H
#define ZO_SRC_CLI_SAVING_H

#include "src/cli/cli.h"
#include "src/cli/setup.h"
#include "src/train/progress.h"

ZO_C_BEGIN

/* saving_settings.c: what a state says of the run that saved it. */
#define ZO_SAVING_SETTINGS_MAX 40
struct zo_saving_settings {
    struct zo_state_setting items[ZO_SAVING_SETTINGS_MAX];
    size_t count;
    char texts[ZO_SAVING_SETTINGS_MAX][64];
};
/* The first fields are the run's, borrowed; set before the calls that need
 * them. */
struct zo_saving {
    struct zo_cli *cli;
    const struct zo_setup *setup;
    struct zo_trainer *trainer;
    struct zo_progress *progress;
    const char *source_path, *tokenizer_path, *config_json; /* or NULL */
    enum zo_dtype source_type;

    char *path;            /* owned; of the last save */
    int lock;              /* on the output folder; -1: none */
    bool continues;        /* there is something to resume from */
    int64_t step;          /* resumed behind it; 0: from the start */
    int64_t saved;         /* step of the newest state of this run; 0: none */
    int64_t due_ns;        /* when the next is due */
    double seconds;        /* that the last save took; 0: none yet */
    uint64_t packed_bytes; /* of the last state that was packed, or 0 */
    bool is_spared;        /* the save at hand: not all is packed */
    int64_t started_ns;    /* of the save that is under way, or was last */
    double stall_seconds;  /* that training has waited for it */
    struct zo_trainer_copy *copy;    /* owned; room for one; or NULL */
    struct zo_saving_thread *thread; /* owned; writes it; or NULL */
    struct zo_err failure; /* the first of a save; status ZO_OK: none */
    struct zo_err late;    /* of the newest state, once it stood; likewise */
};

/* Whether a run with these options would go on from a state, by its name alone:
 * before --output is looked at. */
bool zo_saving_may_resume(const struct zo_options *options);

/*
 * Before anything is read, and again by zo_saving_output().
 *
 *   ZO_E_USAGE   --output holds states, and neither --resume nor --overwrite
 *                says what of them
 */
enum zo_status zo_saving_refuse(const struct zo_options *options) ZO_MUST_CHECK;

/*
 * Looks at --output before a run: locks it, removes what killed runs left,
 * and refuses states that nobody said what to do with.  Sets `continues`.
 *
 *   ZO_E_USAGE     it holds states, and neither --resume nor --overwrite; or
 *                  another run writes to it
 *   ZO_E_CONFIG    the state to resume from is of other data or another model
 *   ZO_E_CORRUPT   the state that --resume names is damaged
 */
enum zo_status zo_saving_output(struct zo_saving *saving) ZO_MUST_CHECK;

/* One whole state fits the disk, and may be written.  ZO_E_IO. */
enum zo_status zo_saving_room(struct zo_saving *saving) ZO_MUST_CHECK;

/* What a state, with the files beside its numbers, takes of disk at most. */
uint64_t zo_saving_bytes_max(const struct zo_setup *setup);

/*
 * Restores the trainer from the newest state that is whole, or from the one
 * that was named.  As zo_trainer_restore().
 */
enum zo_status zo_saving_resume(struct zo_saving *saving) ZO_MUST_CHECK;

/* Step 1 is next: older states go if the user said so, and room for a copy of
 * the state is made where host memory has it. */
enum zo_status zo_saving_begin(struct zo_saving *saving) ZO_MUST_CHECK;

/* Whether a save is due behind this step. */
bool zo_saving_wants(struct zo_saving *saving, int64_t step);

/* The copy is about to be taken, behind a poll that waits. */
void zo_saving_begin_copy(struct zo_saving *saving);

/*
 * Saves, unless this step is saved already; behind a poll that waits.  Of a
 * run that goes on it is the copy, where there is one, which a thread writes:
 * then a later poll tells.  A failure is told, kept in `failure`, and no reason
 * to stop: the next save tries again.  Otherwise *metrics_out says what was
 * saved; its path is NULL when nothing was, and borrowed until the next call.
 * A state that stands is saved: what went wrong behind that is told, and kept
 * in `late` until another save does better.
 */
enum zo_status
zo_saving_save(struct zo_saving *saving, int64_t step, bool goes_on,
               struct zo_save_metrics *metrics_out) ZO_MUST_CHECK;

/* Whether a copy has been written since; waits for it if told to. */
enum zo_status
zo_saving_poll(struct zo_saving *saving, bool waits,
               struct zo_save_metrics *metrics_out) ZO_MUST_CHECK;

/* Waits for a copy that is being written, and frees. */
void zo_saving_close(struct zo_saving *saving);

/* Whether host memory has room for a copy of the state. */
bool zo_saving_copies(const struct zo_setup *setup,
                      const struct zo_trainer *trainer);

/* saving_thread.c: writes a copy, with few threads and at low priority. */
struct zo_saving_thread;
struct zo_saving_thread_options {
    struct zo_state_write_options write; /* but for the pool; copied */
    const struct zo_saving_settings *settings;
    const struct zo_state_run *run;
    const struct zo_trainer_copy *copy; /* borrowed until the join */
    int threads;
    int64_t step;
};
enum zo_status
zo_saving_thread_open(const struct zo_saving_thread_options *options,
                      struct zo_saving_thread **thread_out) ZO_MUST_CHECK;
bool zo_saving_thread_is_done(const struct zo_saving_thread *thread);
/* Waits, frees, and returns what writing did. */
enum zo_status
zo_saving_thread_join(struct zo_saving_thread *thread, int64_t *step_out,
                      struct zo_state_written *written_out) ZO_MUST_CHECK;

void zo_saving_settings(const struct zo_setup *setup,
                        struct zo_saving_settings *settings);

/* Where rows stand, and fingerprints; the rest is the trainer's.  ZO_E_NOMEM */
enum zo_status zo_saving_run(const struct zo_setup *setup,
                             struct zo_state_run *run) ZO_MUST_CHECK;

/*
 * Whether the state is of these data and this model; with notes (may be
 * NULL), what else has changed.
 *
 *   ZO_E_CONFIG   it is not; says what differs
 */
enum zo_status zo_saving_check(const struct zo_setup *setup,
                               const struct zo_state *state,
                               struct zo_notes *notes) ZO_MUST_CHECK;

ZO_C_END

#endif
