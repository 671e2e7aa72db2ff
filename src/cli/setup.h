/*
 * A run, set up from the options: what train, plan and eval share.
 *
 * Row 8.  Opens in an order in which the cheapest mistake is found first:
 * model configuration, devices, DeepSpeed JSON, rows, and then the plan.
 */
#ifndef ZO_SRC_CLI_SETUP_H
#define ZO_SRC_CLI_SETUP_H

#include "config/run_config.h"
#include "src/cli/cli.h"
#include "src/data/batches.h"
#include "src/data/dataset.h"
#include "src/data/tokenizer.h"
#include "src/train/trainer.h"

ZO_C_BEGIN

/* All zero is empty; ended with zo_setup_close() at any point. */
struct zo_setup {
    const struct zo_options *options; /* borrowed */
    struct zo_model_config model;
    char *model_folder; /* owned; NULL: a preset */
    struct zo_devices devices;
    struct zo_run_config config;
    struct zo_tokenizer *tokenizer;
    struct zo_dataset *data, *eval_data;       /* NULL: not named */
    struct zo_batches *batches, *eval_batches; /* likewise */
    struct zo_batches_bounds bounds;           /* of both */
    int64_t positions_max;
    int64_t steps_per_epoch, total_steps;
    uint64_t gpu_memory_bytes, host_memory_bytes; /* budgets */
    const char *nvme_directory; /* borrowed of config; NULL: no NVMe */
    uint64_t nvme_bytes;        /* budget; 0: none to keep to */
    /* Measured there, bytes a second; 0: not, for a plan for elsewhere. */
    double nvme_read_rate, nvme_write_rate;
    uint64_t host_room_bytes; /* free there; ZO_SYSTEM_NO_LIMIT: unknown */
    bool avoids_locking;      /* the system has refused to lock memory */
    /* Rates to predict with, known already; borrowed; NULL: as the options
     * say. */
    const struct zo_profile *rates;
    struct zo_trace *trace; /* borrowed by the trainer; set by train; or NULL */
};

/*
 * Opens everything the options name.  train needs --data; plan does without:
 * its rows are then full ones of --max-length tokens; eval's --data are the
 * rows to evaluate.
 */
enum zo_status zo_setup_open(const struct zo_options *options,
                             struct zo_notes *notes,
                             struct zo_setup *setup) ZO_MUST_CHECK;
void zo_setup_close(struct zo_setup *setup); /* NULL is allowed */

/*
 * The same devices and rows with the configuration of other options, which
 * differ in where states live alone.  It borrows from `setup`; ended with
 * zo_setup_vary_end(), not closed.
 */
enum zo_status zo_setup_vary(const struct zo_setup *setup,
                             const struct zo_options *options,
                             struct zo_notes *notes,
                             struct zo_setup *varied_out) ZO_MUST_CHECK;
void zo_setup_vary_end(struct zo_setup *varied);

/*
 * The trainer that fits; as zo_trainer_open().  plan measures the rates that
 * states are placed by when they are not cached.  times_ops: one that runs each
 * operation alone and takes its time.
 */
enum zo_status zo_setup_trainer(const struct zo_setup *setup, bool times_ops,
                                struct zo_trainer **trainer_out) ZO_MUST_CHECK;

/* setup_nvme.c, for zo_setup_open(): is the folder there?  Then fills the
 * fields of NVMe. */
enum zo_status zo_setup_check_nvme(const struct zo_setup *setup,
                                   struct zo_notes *notes) ZO_MUST_CHECK;
enum zo_status zo_setup_open_nvme(struct zo_setup *setup) ZO_MUST_CHECK;
/* What was measured, in place of the profile's. */
void zo_setup_nvme_rates(const struct zo_setup *setup,
                         struct zo_profile *profile);

/*
 * The budget of a GPU where none is asked for: what was free of it before
 * this process came, less a reserve.
 */
enum zo_status zo_setup_gpu_room(const struct zo_machine *machine, int device,
                                 uint64_t *bytes_out) ZO_MUST_CHECK;

/* plan with --profile of a shipped machine: what is here does not count. */
bool zo_setup_plans_elsewhere(const struct zo_setup *setup);

/* What a device of the run is called: "GPU", or "device" where the host backend
 * is one. */
const char *zo_setup_device_word(const struct zo_setup *setup);

/* What notes and failures say where there is none, and none was refused. */
#define ZO_SETUP_NO_GPU "no GPU that this build can use"

/* The host backend, where --backend host was not said; and a warning of it,
 * but to plan, which computes nothing. */
bool zo_setup_lacks_gpu(const struct zo_options *options,
                        const struct zo_machine *machine);
enum zo_status zo_setup_note_processor(const struct zo_options *options,
                                       const struct zo_machine *machine,
                                       struct zo_notes *notes) ZO_MUST_CHECK;

/* Whether some placement of another configuration would fit; and how many
 * micro batches a step would, as zo_trainer_largest_accumulation(). */
enum zo_status zo_setup_fits(const struct zo_setup *setup,
                             const struct zo_run_config *config,
                             bool *fits_out) ZO_MUST_CHECK;
enum zo_status zo_setup_largest_accumulation(const struct zo_setup *setup,
                                             int64_t most,
                                             int64_t *micros_out) ZO_MUST_CHECK;

/* A line when devices have unequal memory to give: the least is the budget of
 * each, since each gets the same share. */
enum zo_status zo_setup_note_budgets(const char *const *names,
                                     const uint64_t *bytes, int count,
                                     struct zo_notes *notes) ZO_MUST_CHECK;

/* The plan as a table for people, or with `json` as one JSON object. */
void zo_cli_print_plan(FILE *file, const struct zo_setup *setup,
                       const struct zo_trainer *trainer);
/* What stands beside the plan; NULL: not there. */
struct zo_plan_extras {
    const struct zo_cli_time *time;    /* print_time.h */
    const struct zo_gains *gains;      /* gains.h */
    const struct zo_plan_table *table; /* plan_table.h */
};
enum zo_status
zo_cli_print_plan_json(FILE *file, const struct zo_setup *setup,
                       const struct zo_trainer *trainer,
                       const struct zo_plan_extras *extras) ZO_MUST_CHECK;

ZO_C_END

#endif
