/*
 * zero-offload plan: what a run would take of every tier, and how long.
 *
 * Exit code 0 when it fits, 3 when it does not; the plan is printed in both
 * cases.
 */
#include "src/cli/cli.h"
#include "src/cli/print_hints.h"
#include "src/cli/print_save.h"
#include "src/cli/print_time.h"
#include "src/cli/setup.h"

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
                                    const struct zo_setup *setup,
                                    const struct zo_trainer *trainer, bool fits)
{
    if (fits) {
        ZO_TRY(zo_cli_print_accumulation(cli->out, setup, trainer));
        (void)fprintf(cli->out, "it fits\n");
        return ZO_OK;
    }
    (void)fprintf(cli->out, "it does not fit; what would:\n");
    return zo_cli_print_hints(cli->out, setup);
}

static void print_save(struct zo_cli *cli, const struct zo_setup *setup,
                       const struct zo_trainer *trainer,
                       const struct zo_cli_time *time)
{
    const struct zo_cli_save save = zo_cli_save(setup, trainer, time);

    zo_cli_print_save(cli->out, &save);
}

static enum zo_status print(struct zo_cli *cli, const struct zo_setup *setup,
                            const struct zo_trainer *trainer, bool fits)
{
    struct zo_cli_time time;
    bool found = false;
    enum zo_status status = ZO_OK;

    if (fits) {
        ZO_TRY(predict(cli, setup, trainer, &time, &found));
    }
    zo_cli_print_notes(cli);
    if (setup->options->json) {
        status = zo_cli_print_plan_json(cli->out, setup, trainer,
                                        found ? &time : NULL);
    } else {
        zo_cli_print_plan(cli->out, setup, trainer);
        if (found) {
            zo_cli_print_time(cli->out, &time);
        }
        print_save(cli, setup, trainer, found ? &time : NULL);
        status = print_verdict(cli, setup, trainer, fits);
    }
    if (found) {
        zo_cli_time_fini(&time);
    }
    return status;
}

static enum zo_status plan(struct zo_cli *cli, struct zo_setup *setup)
{
    struct zo_trainer *trainer = NULL;
    enum zo_status status, printed = ZO_OK;

    ZO_TRY(zo_setup_open(setup->options, &cli->notes, setup));
    status = zo_setup_trainer(setup, false, &trainer);
    if (trainer != NULL) {
        const struct zo_err failure = *zo_err_last();

        printed = print(cli, setup, trainer, status == ZO_OK);
        if (status != ZO_OK) {
            status = zo_err_adopt(&failure);
        }
    }
    zo_trainer_close(trainer);
    return status != ZO_OK ? status : printed;
}

enum zo_status zo_cli_plan(struct zo_cli *cli, const struct zo_options *options)
{
    struct zo_setup setup = {.options = options};
    const enum zo_status status = plan(cli, &setup);

    zo_setup_close(&setup);
    return status;
}
