#include "src/cli/print_save.h"

#include <math.h>

#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/saving.h"

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
    double memory;

    if (time == NULL) {
        return save;
    }
    memory = zo_profile_dram(&time->profile);
    if (time->profile.nvme_write > 0.0) {
        save.write_seconds = (double)save.bytes / time->profile.nvme_write;
    }
    if (!save.copies) {
        save.stall_seconds = save.write_seconds;
    } else if (memory > 0.0) { /* read once, written once */
        save.stall_seconds = 2.0 * (double)copy / memory;
    }
    return save;
}

/* ", 15 s at the disk's rate"; "" where it is not known. */
static const char *seconds_text(char *text, size_t text_bytes, double seconds,
                                const char *after)
{
    text[0] = '\0';
    if (isfinite(seconds)) {
        (void)snprintf(text, text_bytes, ", %.3g s%s", seconds, after);
    }
    return text;
}

void zo_cli_print_save(FILE *file, const struct zo_cli_save *save)
{
    char text[256], size[32], copy[32], write[48], stall[48];

    (void)snprintf(
        text, sizeof(text), "up to %s of disk%s; training waits for %s%s%s%s",
        zo_text_gib(size, sizeof(size), save->bytes),
        seconds_text(write, sizeof(write), save->write_seconds,
                     " at the disk's rate"),
        save->copies
            ? "a copy of "
            : "all of it, since host memory has no room for a copy of ",
        zo_text_gib(copy, sizeof(copy), save->copy_bytes),
        save->copies ? " in host memory" : "",
        seconds_text(stall, sizeof(stall), save->stall_seconds, ""));
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
