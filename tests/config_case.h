/* A configuration from text, for the tests of config/. */
#ifndef ZO_TESTS_CONFIG_CASE_H
#define ZO_TESTS_CONFIG_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/run_config.h"

struct run {
    char words[512];
    struct zo_options options;
    struct zo_notes notes;
    struct zo_run_config config;
};

/*
 * Options are separated by spaces; text NULL is a run without a JSON.  Ended
 * with unload(), also after a failure.
 */
enum zo_status load_for(struct run *run, int64_t devices, const char *text,
                        const char *options);
enum zo_status load(struct run *run, const char *text, const char *options);
void unload(struct run *run);

/* True if a note holds `piece`; else prints all of them. */
bool has_note(const struct run *run, const char *piece);

/* Refused with ZO_E_CONFIG and a message that holds `piece`. */
bool refused_with(const char *text, const char *options, const char *piece);
bool refused(const char *text, const char *piece);

/* Accepted, with a note that holds `piece` (NULL: any). */
bool accepted_with(const char *text, const char *options, const char *piece);
bool accepted(const char *text, const char *piece);

#endif
