/*
 * zero-offload plan: what a run would take of every tier, and how long.
 *
 * Without a configuration the table of stages and offloads comes first, then
 * the plan of what train does without one.  Exit code 0 when that fits, 3 when
 * it does not; the plan is printed in both cases.
 */
#include <string.h>
#include <unistd.h>

#include "config/json.h"
#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/gains.h"
#include "src/cli/inputs.h"
#include "src/cli/plan_table.h"
#include "src/cli/print_hints.h"
#include "src/cli/print_save.h"
#include "src/cli/print_time.h"
#include "src/cli/setup.h"

#define DEFAULT_PROFILE "4090"
#define DEVICES_MOST    4 /* of the table, for a machine that is not here */

struct plan {
    struct zo_cli *cli;
    struct zo_options options; /* the user's, and what stands in for them */
    struct zo_setup setup;
    struct zo_plan_table table;
    bool has_table;
};

/* A prediction that cannot be made is told; the plan stands without it. */
static enum zo_status predict(struct zo_cli *cli, const struct zo_setup *setup,
                              const struct zo_trainer *trainer,
                              struct zo_cli_time *time, bool *found_out)
{
    const enum zo_status status =
        zo_cli_time(setup, trainer, true, time, found_out);

    return status == ZO_OK || status == ZO_E_USAGE || status == ZO_E_NOMEM
               ? status
               : zo_note_add(&cli->notes, ZO_NOTE_WARN,
                             "the time of a step is not predicted: %s",
                             zo_err_last()->text);
}

static enum zo_status print_verdict(struct zo_cli *cli,
                                    const struct zo_setup *setup, bool fits)
{
    if (fits) {
        (void)fprintf(cli->out, "it fits\n");
        return ZO_OK;
    }
    return zo_cli_print_cure(cli->out, setup);
}

static void print_save(struct zo_cli *cli, const struct zo_setup *setup,
                       const struct zo_trainer *trainer,
                       const struct zo_cli_time *time)
{
    const struct zo_cli_save save = zo_cli_save(setup, trainer, time);

    zo_cli_print_save(cli->out, &save);
}

static enum zo_status print(struct plan *plan, const struct zo_trainer *trainer,
                            bool fits)
{
    struct zo_cli *cli = plan->cli;
    const struct zo_setup *setup = &plan->setup;
    struct zo_cli_time time;
    struct zo_gains gains = {.count = 0};
    bool found = false;
    enum zo_status status = ZO_OK;

    if (fits) {
        ZO_TRY(predict(cli, setup, trainer, &time, &found));
    }
    if (found) {
        status = zo_gains_find(setup, trainer, &time, &gains);
    }
    zo_cli_print_notes(cli);
    if (status == ZO_OK && setup->options->json) {
        const struct zo_plan_extras extras = {
            .time = found ? &time : NULL,
            .gains = found ? &gains : NULL,
            .table = plan->has_table ? &plan->table : NULL,
        };

        status = zo_cli_print_plan_json(cli->out, setup, trainer, &extras);
    } else if (status == ZO_OK) {
        zo_cli_print_plan(cli->out, setup, trainer);
        if (found) {
            zo_cli_print_time(cli->out, &time);
        }
        if (fits) {
            status = zo_cli_print_accumulation(cli->out, setup, trainer);
        }
        print_save(cli, setup, trainer, found ? &time : NULL);
        zo_gains_print(cli->out, &gains);
        status = status == ZO_OK ? print_verdict(cli, setup, fits) : status;
    }
    if (found) {
        zo_cli_time_fini(&time);
    }
    return status;
}

/* ---- what stands in for options that were not given -----------------------
 */

/* A name of a model that is nowhere on disk: nothing that could be trained. */
static bool is_shape(const struct zo_options *options)
{
    struct zo_model_config config;

    return options->model != NULL && access(options->model, F_OK) != 0 &&
           zo_model_preset(options->model, &config);
}

/* With no GPU, who asks of a shape wants to know what to buy, or rents. */
static enum zo_status assume_machine(struct plan *plan)
{
    struct zo_options *options = &plan->options;
    int gpus = 0;

    if (options->profile != NULL || options->backend != ZO_BACKEND_AUTO ||
        !is_shape(options)) {
        return ZO_OK;
    }
    if (zo_device_cuda.count(&gpus) == ZO_OK && gpus > 0) {
        return ZO_OK;
    }
    options->profile = DEFAULT_PROFILE;
    return zo_note_add(&plan->cli->notes, ZO_NOTE_INFO,
                       "no GPU here: planned for a host with a %s; --profile "
                       "names another, --backend host is this processor",
                       options->profile);
}

/* Whether something says a number type; a configuration does, by silence. */
static bool names_type(const struct zo_options *options)
{
    for (size_t i = 0; i < options->set_count; i++) {
        if (strncmp(options->sets[i], "bf16", 4) == 0 ||
            strncmp(options->sets[i], "fp16", 4) == 0) {
            return true;
        }
    }
    return options->config != NULL || options->bf16 || options->fp16 ||
           zo_option_given(options, ZO_OPTION_BF16);
}

/* Whatever machine with GPUs a shape is planned for. */
static enum zo_status assume_type(struct plan *plan)
{
    struct zo_options *options = &plan->options;

    if (!is_shape(options) || options->backend == ZO_BACKEND_HOST ||
        names_type(options)) {
        return ZO_OK;
    }
    options->bf16 = true;
    zo_option_mark(options, ZO_OPTION_BF16);
    return zo_note_add(&plan->cli->notes, ZO_NOTE_INFO,
                       "planned in bf16, since nothing says a number type; "
                       "give train --bf16 too, or it computes in fp32");
}

/* A machine that is not here has as many devices as are asked for; its plan is
 * the same wherever it is made. */
static void assume_devices(struct plan *plan)
{
    struct zo_options *options = &plan->options;
    const struct zo_setup probe = {.options = options};

    if (options->backend == ZO_BACKEND_AUTO &&
        zo_setup_plans_elsewhere(&probe)) {
        options->backend = ZO_BACKEND_HOST;
    }
}

/* Before the table, of which only some rows would notice. */
static enum zo_status check_nvme(const struct plan *plan)
{
    const struct zo_setup probe = {.options = &plan->options};

    return plan->options.nvme_path == NULL || zo_setup_plans_elsewhere(&probe)
               ? ZO_OK
               : zo_cli_nvme_folder(plan->options.nvme_path);
}

/* ---- the table -----------------------------------------------------------
 */

/* How many devices the plan is for, and the table at the most. */
static enum zo_status count_devices(const struct plan *plan, int *planned_out,
                                    int *most_out)
{
    const struct zo_options *options = &plan->options;
    const struct zo_setup probe = {.options = options};
    const struct zo_devices_options devices = {
        .backend = options->backend,
        .indices = options->device_count > 0 ? options->devices : NULL,
        .count = options->device_count > 0 ? options->device_count
                                           : (int)options->num_devices,
    };
    const bool is_open =
        zo_setup_plans_elsewhere(&probe) && options->device_count == 0 &&
        options->num_devices == 0 && options->backend != ZO_BACKEND_CUDA;

    ZO_TRY(zo_devices_count(&devices, planned_out));
    *most_out =
        *planned_out < DEVICES_MOST && is_open ? DEVICES_MOST : *planned_out;
    return ZO_OK;
}

static enum zo_status make_table(struct plan *plan)
{
    const struct zo_options *options = &plan->options;
    FILE *out = options->json ? NULL : plan->cli->out;
    int planned = 0, most = 0;

    plan->has_table = options->config == NULL && options->set_count == 0;
    if (!plan->has_table) {
        return options->write == NULL
                   ? ZO_OK
                   : ZO_FAIL(ZO_E_USAGE,
                             "--write: with --config or --set there is no "
                             "table, of whose rows it writes the fastest");
    }
    if (options->write != NULL) {
        ZO_TRY(zo_plan_table_check(options->write));
    }
    ZO_TRY(count_devices(plan, &planned, &most));
    zo_cli_print_notes(plan->cli);
    ZO_TRY(zo_plan_table(plan->cli, out, options, most, &plan->table));
    if (out != NULL) {
        (void)fputs("\nwhat train does with these options:\n", out);
    }
    return ZO_OK;
}

static enum zo_status write_config(struct plan *plan)
{
    const struct zo_setup *setup = &plan->setup;
    const char *path = plan->options.write;

    if (path == NULL) {
        return ZO_OK;
    }
    ZO_TRY(zo_plan_table_write(&plan->table,
                               setup->devices.machine.device_count,
                               &setup->config, path));
    return zo_note_add(&plan->cli->notes, ZO_NOTE_INFO,
                       "%s has the fastest row for %d device%s", path,
                       setup->devices.machine.device_count,
                       setup->devices.machine.device_count == 1 ? "" : "s");
}

/* ---- a preset ------------------------------------------------------------
 */

/* ", with 23.50 GiB a device and 118.00 GiB of host memory" */
static void name_budgets(const struct zo_setup *setup, char *text,
                         size_t text_bytes)
{
    const uint64_t gpu = setup->gpu_memory_bytes;
    const uint64_t host = setup->host_memory_bytes;
    char gpu_text[32], host_text[32];

    text[0] = '\0';
    if (gpu > 0 && host > 0) {
        (void)snprintf(text, text_bytes,
                       ", with %s a device and %s of host memory",
                       zo_text_gib(gpu_text, sizeof(gpu_text), gpu),
                       zo_text_gib(host_text, sizeof(host_text), host));
    } else if (gpu > 0) {
        (void)snprintf(text, text_bytes,
                       ", with %s a device and host memory without a limit",
                       zo_text_gib(gpu_text, sizeof(gpu_text), gpu));
    } else if (host > 0) {
        (void)snprintf(text, text_bytes, ", with %s of host memory",
                       zo_text_gib(host_text, sizeof(host_text), host));
    }
}

/* A preset is for a machine, which this one need not be. */
static enum zo_status note_preset(const struct plan *plan)
{
    const struct zo_options *options = &plan->options;
    const struct zo_setup *setup = &plan->setup;
    const struct zo_json *member =
        zo_json_get(zo_json_root(setup->config.document), "_plan");
    const char *meant = member != NULL ? zo_json_string(member) : NULL;
    char escaped[256], budgets[96];

    if (meant == NULL || options->config == NULL ||
        (zo_option_given(options, ZO_OPTION_GPU_MEMORY) &&
         zo_option_given(options, ZO_OPTION_HOST_MEMORY))) {
        return ZO_OK;
    }
    zo_text_escape(escaped, sizeof(escaped), meant, strlen(meant));
    name_budgets(setup, budgets, sizeof(budgets));
    return zo_note_add(
        &plan->cli->notes, ZO_NOTE_INFO,
        "%s was made for the machine of \"plan %s\"; this plan is for %s%s%s",
        options->config, escaped,
        zo_setup_plans_elsewhere(setup) ? "a host with a " : "this machine",
        zo_setup_plans_elsewhere(setup) ? options->profile : "", budgets);
}

/* ---- the plan ------------------------------------------------------------
 */

static enum zo_status run(struct plan *plan)
{
    struct zo_setup *setup = &plan->setup;
    struct zo_trainer *trainer = NULL;
    enum zo_status status, printed = ZO_OK;

    ZO_TRY(assume_machine(plan));
    ZO_TRY(assume_type(plan));
    assume_devices(plan);
    ZO_TRY(check_nvme(plan));
    ZO_TRY(zo_cli_profile_check(&plan->options));
    ZO_TRY(make_table(plan));
    ZO_TRY(zo_setup_open(&plan->options, &plan->cli->notes, setup));
    ZO_TRY(note_preset(plan));
    ZO_TRY(write_config(plan));
    status = zo_setup_trainer(setup, false, &trainer);
    if (trainer != NULL) {
        const struct zo_err failure = *zo_err_last();

        printed = print(plan, trainer, status == ZO_OK);
        if (status != ZO_OK) {
            status = zo_err_adopt(&failure);
        }
    }
    zo_trainer_close(trainer);
    return status != ZO_OK ? status : printed;
}

enum zo_status zo_cli_plan(struct zo_cli *cli, const struct zo_options *options)
{
    struct plan plan = {.cli = cli, .options = *options};
    const enum zo_status status = run(&plan);

    zo_setup_close(&plan.setup);
    return status;
}
