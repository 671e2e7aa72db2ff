/*
 * zero-offload plan: what a run would take of every tier.
 *
 * Exit code 0 when it fits, 3 when it does not; the plan is printed in both
 * cases.
 */
#include "src/cli/cli.h"
#include "src/cli/setup.h"

static enum zo_status plan(struct zo_cli *cli, struct zo_setup *setup)
{
    const struct zo_options *options = setup->options;
    struct zo_trainer *trainer = NULL;
    enum zo_status status, printed = ZO_OK;

    ZO_TRY(zo_setup_open(options, &cli->notes, setup));
    status = zo_setup_trainer(setup, false, &trainer);
    if (trainer != NULL) {
        const struct zo_err failure = *zo_err_last();

        zo_cli_print_notes(cli);
        if (options->json) {
            printed = zo_cli_print_plan_json(cli->out, setup, trainer);
        } else {
            zo_cli_print_plan(cli->out, setup, trainer);
            (void)fprintf(cli->out,
                          status == ZO_OK ? "it fits\n" : "it does not fit\n");
        }
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
