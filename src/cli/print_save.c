#include "src/cli/print_save.h"

#include <math.h>

#include "src/base/text.h"
#include "src/cli/saving.h"

/* What steps lose by the copy that is taken beside them; NaN: not known. */
static double predict_copy(const struct zo_trainer *trainer,
                           const struct zo_profile *profile)
{
    const struct zo_build *build = zo_trainer_build(trainer);
    const struct zo_sim_options options = {
        .program = &build->program,
        .profile = profile,
        .type = build->options.type,
        .cpu_workers = zo_trainer_cpu_workers(trainer),
    };
    double seconds = 0.0;

    return zo_simulate_save(&options, build->step_schedule,
                            build->save_schedule, &seconds) == ZO_OK
               ? seconds
               : NAN;
}

struct zo_cli_save zo_cli_save(const struct zo_setup *setup,
                               const struct zo_trainer *trainer,
                               const struct zo_cli_time *time)
{
    const uint64_t copy = zo_trainer_copy_bytes(trainer);
    struct zo_cli_save save = {
        .bytes = zo_state_bytes_max((uint64_t)setup->model.parameter_count,
                                    setup->config.optimizer.moment_dtype),
        .copy_bytes = copy,
        .copies = zo_saving_copies(setup, trainer),
        .write_seconds = NAN,
        .stall_seconds = NAN,
    };

    if (time == NULL) {
        return save;
    }
    if (time->profile.nvme_write > 0.0) {
        save.write_seconds = (double)save.bytes / time->profile.nvme_write;
    }
    if (!save.copies) {
        save.stall_seconds = save.write_seconds;
    } else {
        save.stall_seconds = predict_copy(trainer, &time->profile);
    }
    return save;
}

static void print_seconds(FILE *file, const char *before, double seconds,
                          const char *after)
{
    if (isfinite(seconds)) {
        (void)fprintf(file, "%s%.3g s%s", before, seconds, after);
    }
}

void zo_cli_print_save(FILE *file, const struct zo_cli_save *save)
{
    char size[32];

    (void)fprintf(file, "  saving a state: up to %s of disk",
                  zo_text_gib(size, sizeof(size), save->bytes));
    print_seconds(file, ", ", save->write_seconds, " at the disk's rate");
    if (save->copies) {
        (void)fprintf(file,
                      "; training goes on beside a copy of %s in host memory",
                      zo_text_gib(size, sizeof(size), save->copy_bytes));
        print_seconds(file, ", and loses about ", save->stall_seconds, "");
    } else {
        (void)fprintf(file,
                      "; training waits for all of it, since host memory has "
                      "no room for a copy of %s",
                      zo_text_gib(size, sizeof(size), save->copy_bytes));
        print_seconds(file, ", ", save->stall_seconds, "");
    }
    (void)fputc('\n', file);
}

void zo_cli_write_save(struct zo_jsonl *json, const char *key,
                       const struct zo_cli_save *save)
{
    zo_jsonl_object_begin(json, key);
    zo_jsonl_uint(json, "bytes", save->bytes);
    zo_jsonl_uint(json, "copy_bytes", save->copy_bytes);
    zo_jsonl_bool(json, "copies", save->copies);
    zo_jsonl_real(json, "write_seconds", save->write_seconds);
    zo_jsonl_real(json, "stall_seconds", save->stall_seconds);
    zo_jsonl_object_end(json);
}
