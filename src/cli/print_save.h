/*
 * What saving a training state takes.
 *
 * Row 8, private to src/cli.
 */
#ifndef ZO_SRC_CLI_PRINT_SAVE_H
#define ZO_SRC_CLI_PRINT_SAVE_H

#include "src/base/jsonl.h"
#include "src/cli/print_time.h"
#include "src/cli/setup.h"

ZO_C_BEGIN

struct zo_cli_save {
    uint64_t bytes;       /* of disk, at most */
    uint64_t copy_bytes;  /* of host memory, to go on while it is written */
    bool copies;          /* there is room for them */
    double write_seconds; /* at the disk's rate; NaN: not known */
    double stall_seconds; /* that training waits for it, or that steps lose
                             beside it; NaN likewise */
};

/* time may be NULL: rates are not known. */
struct zo_cli_save zo_cli_save(const struct zo_setup *setup,
                               const struct zo_trainer *trainer,
                               const struct zo_cli_time *time);

/* A line for people; a member of a JSON object. */
void zo_cli_print_save(FILE *file, const struct zo_cli_save *save);
void zo_cli_write_save(struct zo_jsonl *json, const char *key,
                       const struct zo_cli_save *save);

ZO_C_END

#endif
