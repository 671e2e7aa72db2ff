/*
 * Where states were placed, in words: at the start of a run, and in a plan.
 *
 * Row 8, private to src/cli.
 */
#ifndef ZO_SRC_CLI_PRINT_PLACE_H
#define ZO_SRC_CLI_PRINT_PLACE_H

#include <stdio.h>

#include "offload/placement.h"
#include "src/base/jsonl.h"
#include "src/train/place_config.h"

ZO_C_BEGIN

/* What the lines are made of; all borrowed. */
struct zo_cli_place {
    const struct zo_build *build;
    const struct zo_place *place;  /* NULL: it was not a choice */
    struct zo_place_limits limits; /* what the configuration allows */
    bool is_asked;                 /* it names these tiers itself */
    bool fills;
    const char *device;    /* the first one's name */
    uint64_t own_bytes;    /* that it holds beside its arena */
    uint64_t budget_bytes; /* of it; 0: none */
};

/* What is kept off the host and NVMe by filling up faster tiers, about. */
struct zo_cli_saved {
    uint64_t host_bytes; /* of states */
    uint64_t nvme_bytes; /* likewise; those that move to the host are then not
                            off it */
    uint64_t copy_bytes; /* over the bus, a step */
};
struct zo_cli_saved zo_cli_place_saved(const struct zo_cli_place *place);

/*
 * One line: what is resident, what the configuration literally needs, what
 * filling up saves.  Then, for a plan, passes and rings where there are any.
 */
void zo_cli_print_place(FILE *file, const struct zo_cli_place *place);
void zo_cli_print_rings(FILE *file, const struct zo_cli_place *place);

/* A member of a JSON object. */
void zo_cli_write_place(struct zo_jsonl *json, const char *key,
                        const struct zo_cli_place *place);

ZO_C_END

#endif
