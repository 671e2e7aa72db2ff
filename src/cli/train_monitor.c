#include "src/cli/train_monitor.h"

#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"

/* FOLDER/JOB of a section; the caller owns *path_out, NULL when not wanted. */
static enum zo_status find_monitor(const struct zo_setup *setup,
                                   const struct zo_run_monitor *monitor,
                                   const char *name, char **path_out)
{
    char *folder = NULL;
    enum zo_status status;

    if (!monitor->is_enabled) {
        return ZO_OK;
    }
    if (monitor->output_path != NULL) {
        return zo_disk_join(monitor->output_path, monitor->job_name, path_out);
    }
    ZO_TRY(zo_disk_join(setup->options->output, name, &folder));
    status = zo_disk_join(folder, monitor->job_name, path_out);
    zo_free(folder);
    return status;
}

/* Whether it can be had; or, with monitor_out, the files. */
static enum zo_status open_monitor(const struct zo_setup *setup,
                                   struct zo_monitor **monitor_out)
{
    const struct zo_run_config *config = &setup->config;
    char *tensorboard = NULL, *csv = NULL;
    enum zo_status status;

    if (!config->tensorboard.is_enabled && !config->csv_monitor.is_enabled) {
        return ZO_OK;
    }
    status =
        find_monitor(setup, &config->tensorboard, "tensorboard", &tensorboard);
    if (status == ZO_OK) {
        status = find_monitor(setup, &config->csv_monitor, "csv_monitor", &csv);
    }
    if (status == ZO_OK) {
        const struct zo_monitor_options monitor = {
            .tensorboard = tensorboard,
            .csv = csv,
            .step_rows = config->train_batch_rows,
            .has_loss_scale = config->dtype == ZO_F16,
        };

        status = monitor_out != NULL ? zo_monitor_open(&monitor, monitor_out)
                                     : zo_monitor_check(&monitor);
    }
    zo_free(tensorboard);
    zo_free(csv);
    return status;
}

enum zo_status zo_cli_check_monitor(const struct zo_setup *setup)
{
    return open_monitor(setup, NULL);
}

enum zo_status zo_cli_open_monitor(const struct zo_setup *setup,
                                   struct zo_monitor **monitor_out)
{
    return open_monitor(setup, monitor_out);
}
