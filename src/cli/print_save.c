#include "src/cli/print_save.h"

#include <math.h>

#include "src/base/text.h"
#include "src/cli/cli.h"
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
        .bytes = zo_saving_bytes_max(setup),
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

/* ", 15 s at the disk's rate"; "" where it is not known. */
static const char *seconds_text(char *text, size_t text_bytes, double seconds,
                                const char *after)
{
    char span[32];

    text[0] = '\0';
    if (isfinite(seconds)) {
        (void)snprintf(text, text_bytes, ", %s%s",
                       zo_text_seconds(span, sizeof(span), seconds), after);
    }
    return text;
}

void zo_cli_print_save(FILE *file, const struct zo_cli_save *save)
{
    char text[320], size[32], copy[32], write[48], stall[128];

    (void)snprintf(
        text, sizeof(text), "up to %s of disk%s; %s%s%s%s",
        zo_text_gib(size, sizeof(size), save->bytes),
        seconds_text(write, sizeof(write), save->write_seconds,
                     " at the disk's rate"),
        save->copies ? "training goes on beside a copy of "
                     : "training waits for all of it, since host memory has "
                       "no room for a copy of ",
        zo_text_gib(copy, sizeof(copy), save->copy_bytes),
        save->copies ? " in host memory" : "",
        seconds_text(stall, sizeof(stall), save->stall_seconds,
                     save->copies ? " of steps lost to making it; writing it "
                                    "takes its share of the memory's rate"
                                  : ""));
    zo_cli_print_wrapped(file, "  saving a state: ", 4, text);
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
