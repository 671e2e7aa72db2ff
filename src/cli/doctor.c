/*
 * zero-offload doctor: what of this machine works, how fast it is, and the
 * cure for what does not work.
 *
 * A fault is a line, not a failure: training goes on without io_uring, or on
 * the processor.  Only where not even the processor could train does the
 * command fail.
 */
#include "src/cli/doctor.h"

#include <stdlib.h>

#include "src/base/memory.h"
#include "src/cli/cli.h"
#include "src/cli/inputs.h"

enum zo_status zo_doctor_note_failure(struct zo_doctor *doctor)
{
    return zo_note_add(&doctor->faults, ZO_NOTE_WARN, "%s",
                       zo_err_last()->text);
}

static enum zo_status examine(struct zo_doctor *doctor,
                              const struct zo_options *options)
{
    const struct zo_devices_options host_options = {
        .backend = ZO_BACKEND_HOST,
        .count = 1,
        .threads = (int)options->threads,
    };
    struct zo_devices host = {0};
    enum zo_status status;

    doctor->folder = options->folder != NULL ? options->folder : ".";
    doctor->is_folder_named = options->folder != NULL;
    if (doctor->is_folder_named) {
        ZO_TRY(zo_cli_nvme_folder(doctor->folder));
    }
    zo_doctor_look(doctor, "");
    ZO_TRY(zo_devices_open(&host_options, &host));
    /* A folder that was named by mistake is told before the long part. */
    ZO_TRY_GOTO(close_host, zo_doctor_time_disk(doctor, &host));
    ZO_TRY_GOTO(close_host, zo_doctor_time_host(doctor, &host));
    ZO_TRY_GOTO(close_host, zo_doctor_gpus(doctor, host.pool));
    ZO_TRY_GOTO(close_host, zo_doctor_find_faults(doctor));

close_host:
    zo_devices_close(&host);
    return status;
}

/* To the file that was named, or to where plan looks for it; *path_out is
 * owned, and NULL if nothing was written. */
static enum zo_status write_profile(struct zo_doctor *doctor,
                                    const struct zo_options *options,
                                    char **path_out)
{
    char *path = NULL;
    enum zo_status status;

    if (options->write != NULL) {
        status = zo_doctor_write_profile(options->write, doctor);
        return status == ZO_E_IO
                   ? ZO_FAIL(ZO_E_USAGE, "--write: %s", zo_err_last()->text)
                   : status;
    }
    status = zo_doctor_profile_path(&path);
    if (status == ZO_OK) {
        status = zo_doctor_write_profile(path, doctor);
    }
    if (status != ZO_OK) {
        zo_free(path);
        return status == ZO_E_NOMEM ? status : zo_doctor_note_failure(doctor);
    }
    *path_out = path;
    return ZO_OK;
}

static enum zo_status report(struct zo_cli *cli, struct zo_doctor *doctor,
                             const struct zo_options *options)
{
    const char *written = options->write;
    char *path = NULL;
    enum zo_status status = ZO_OK;

    ZO_TRY(write_profile(doctor, options, &path));
    written = written != NULL ? written : path;
    if (options->json) {
        for (size_t i = 0; i < doctor->faults.count && status == ZO_OK; i++) {
            status = zo_note_add(&cli->notes, ZO_NOTE_WARN, "%s",
                                 doctor->faults.items[i].text);
        }
        if (status == ZO_OK) {
            status = zo_doctor_print_profile(cli->out, -1, "standard output",
                                             doctor);
        }
    } else {
        zo_doctor_print(cli->out, doctor);
        if (written != NULL) {
            (void)fprintf(cli->out, "%-12s these figures as JSON: %s\n",
                          "profile", written);
        }
    }
    zo_free(path);
    return status;
}

enum zo_status zo_cli_doctor(struct zo_cli *cli,
                             const struct zo_options *options)
{
    struct zo_doctor *doctor = NULL;
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*doctor), "the facts of the machine", &doctor));
    status = examine(doctor, options);
    if (status == ZO_OK) {
        status = report(cli, doctor, options);
    }
    zo_notes_fini(&doctor->faults);
    zo_free(doctor);
    return status;
}
