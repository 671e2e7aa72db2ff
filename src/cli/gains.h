/*
 * The changes that would help a plan most: each is planned and simulated.
 *
 * Row 8, private to src/cli.
 */
#ifndef ZO_SRC_CLI_GAINS_H
#define ZO_SRC_CLI_GAINS_H

#include "src/base/jsonl.h"
#include "src/cli/print_time.h"

ZO_C_BEGIN

#define ZO_GAINS_MAX 3

struct zo_gain {
    const char *change; /* static storage */
    double ratio;       /* of tokens a second, over those of the plan */
};

/* The best first; changes that win less than 2 % are none. */
struct zo_gains {
    struct zo_gain items[ZO_GAINS_MAX];
    int count;
};

/*
 * Tries changes of the configuration and of the machine, one at a time, by the
 * rates that `time` was predicted with.  ZO_E_NOMEM.
 */
enum zo_status zo_gains_find(const struct zo_setup *setup,
                             const struct zo_trainer *trainer,
                             const struct zo_cli_time *time,
                             struct zo_gains *gains_out) ZO_MUST_CHECK;

void zo_gains_print(FILE *file, const struct zo_gains *gains);
/* A member of a JSON object: an array. */
void zo_gains_json(struct zo_jsonl *json, const char *key,
                   const struct zo_gains *gains);

ZO_C_END

#endif
