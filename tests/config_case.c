#include "tests/config_case.h"

#include <stdio.h>
#include <string.h>

/* A configuration from text, with options separated by spaces. */
enum zo_status load_for(struct run *run, int64_t devices, const char *text,
                        const char *options)
{
    const struct zo_run_facts facts = {.num_devices = devices,
                                       .hidden_size = 64};
    const char *argv[40];
    int argc = 0;
    enum zo_status status;

    memset(run, 0, sizeof(*run));
    (void)snprintf(run->words, sizeof(run->words), "%s", options);
    for (char *word = run->words, *end; *word != '\0'; word = end) {
        end = word + strcspn(word, " ");
        argv[argc++] = word;
        if (*end == ' ') {
            *end++ = '\0';
        }
    }
    status = zo_options_parse(ZO_COMMAND_TRAIN, argc, argv, &run->options,
                              &run->notes);
    if (status != ZO_OK) {
        return status;
    }
    if (text == NULL) {
        return zo_run_config_read(&run->options, &facts, &run->notes,
                                  &run->config);
    }
    return zo_run_config_parse("ds.json", text, strlen(text), &run->options,
                               &facts, &run->notes, &run->config);
}

enum zo_status load(struct run *run, const char *text, const char *options)
{
    return load_for(run, 1, text, options);
}

void unload(struct run *run)
{
    zo_run_config_fini(&run->config);
    zo_options_fini(&run->options);
    zo_notes_fini(&run->notes);
}

bool has_note(const struct run *run, const char *piece)
{
    for (size_t i = 0; i < run->notes.count; i++) {
        if (strstr(run->notes.items[i].text, piece) != NULL) {
            return true;
        }
    }
    for (size_t i = 0; i < run->notes.count; i++) {
        printf("# note: %s\n", run->notes.items[i].text);
    }
    return false;
}

bool refused_with(const char *text, const char *options, const char *piece)
{
    struct run run;
    const enum zo_status status = load(&run, text, options);
    const bool is_good =
        status == ZO_E_CONFIG && strstr(zo_err_last()->text, piece) != NULL;

    if (!is_good) {
        printf("# %s %s: status %d: %s\n", text != NULL ? text : "", options,
               (int)status, status != ZO_OK ? zo_err_last()->text : "");
    }
    unload(&run);
    return is_good;
}

bool refused(const char *text, const char *piece)
{
    return refused_with(text, "", piece);
}

/* Accepted, with a note that holds `piece` (NULL: any). */
bool accepted_with(const char *text, const char *options, const char *piece)
{
    struct run run;
    const enum zo_status status = load(&run, text, options);
    const bool is_good =
        status == ZO_OK && (piece == NULL || has_note(&run, piece));

    if (status != ZO_OK) {
        printf("# %s %s: %s\n", text != NULL ? text : "", options,
               zo_err_last()->text);
    }
    unload(&run);
    return is_good;
}

bool accepted(const char *text, const char *piece)
{
    return accepted_with(text, "", piece);
}
