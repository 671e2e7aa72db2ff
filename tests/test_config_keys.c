/* The table of keys: complete, consistent, and what the reader obeys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_options.h"
#include "config/json.h"
#include "config/run_config.h"
#include "tests/tap.h"

static bool has_parent(const struct zo_config_option *table, size_t index)
{
    const char *dot = strrchr(table[index].path, '.');

    if (dot == NULL) {
        return true;
    }
    for (size_t i = 0; i < index; i++) {
        const size_t length = (size_t)(dot - table[index].path);

        if (table[i].kind == ZO_KIND_OBJECT &&
            strlen(table[i].path) == length &&
            strncmp(table[i].path, table[index].path, length) == 0) {
            return true;
        }
    }
    return false;
}

static void test_rows(void)
{
    size_t count = 0;
    const struct zo_config_option *table = zo_config_options(&count);

    TAP_CHECK_INT((long long)count, ZO_KEY_COUNT);
    for (size_t i = 0; i < count; i++) {
        const struct zo_config_option *row = &table[i];

        if (row->path == NULL || row->meaning == NULL) {
            tap_fail(__FILE__, __LINE__, "row %zu is not filled in", i);
            return;
        }
        if (!has_parent(table, i)) {
            tap_fail(__FILE__, __LINE__, "%s stands before its section",
                     row->path);
        }
        if ((row->kind == ZO_KIND_CHOICE) != (row->choices != NULL)) {
            tap_fail(__FILE__, __LINE__, "%s: choices", row->path);
        }
        if (strlen(row->meaning) > 140) {
            tap_fail(__FILE__, __LINE__, "%s: meaning of %zu bytes", row->path,
                     strlen(row->meaning));
        }
        for (size_t j = 0; j < i; j++) {
            TAP_CHECK(strcmp(row->path, table[j].path) != 0);
        }
    }
}

/* {"a": {"b": VALUE}} of the path a.b */
static void nest(char *text, size_t text_bytes, const char *path,
                 const char *value)
{
    size_t length = 0;
    int depth = 0;

    for (const char *at = path; *at != '\0';) {
        const size_t step = strcspn(at, ".");

        length += (size_t)snprintf(text + length, text_bytes - length,
                                   "{\"%.*s\": ", (int)step, at);
        at += step + (at[step] == '.');
        depth++;
    }
    length += (size_t)snprintf(text + length, text_bytes - length, "%s", value);
    while (depth-- > 0) {
        length += (size_t)snprintf(text + length, text_bytes - length, "}");
    }
}

static enum zo_status try_value(const char *path, const char *value)
{
    const struct zo_run_facts facts = {.num_devices = 1, .hidden_size = 64};
    struct zo_options options;
    struct zo_notes notes = {.count = 0};
    struct zo_run_config config;
    enum zo_status status;
    char text[512];

    nest(text, sizeof(text), path, value);
    zo_options_init(&options, ZO_COMMAND_TRAIN);
    status = zo_run_config_parse("t", text, strlen(text), &options, &facts,
                                 &notes, &config);
    if (status == ZO_OK) {
        zo_run_config_fini(&config);
    }
    zo_notes_fini(&notes);
    zo_options_fini(&options);
    return status;
}

/* "auto" in turn for every key: resolved as documented, or refused. */
static void test_auto(void)
{
    size_t count = 0;
    const struct zo_config_option *table = zo_config_options(&count);

    for (size_t i = 0; i < count; i++) {
        const struct zo_config_option *row = &table[i];
        const bool is_own_word =
            row->choices != NULL && strstr(row->choices, "auto") != NULL;
        const bool is_known = zo_config_auto_text(row) != NULL || is_own_word ||
                              row->kind == ZO_KIND_ANY;
        const bool is_wanted = is_known && row->use != ZO_USE_REFUSED;
        const enum zo_status status = try_value(row->path, "\"auto\"");

        if (status != (is_wanted ? ZO_OK : ZO_E_CONFIG)) {
            tap_fail(__FILE__, __LINE__, "%s: status %d: %s", row->path,
                     (int)status, zo_err_last()->text);
        }
    }
}

/* Every default that is a value can be written out. */
static void test_defaults(void)
{
    size_t count = 0;
    const struct zo_config_option *table = zo_config_options(&count);

    for (size_t i = 0; i < count; i++) {
        const char *text = table[i].default_text;
        bool is_number;
        char *end = NULL;

        if (text == NULL || table[i].kind == ZO_KIND_STRING ||
            table[i].kind == ZO_KIND_CHOICE) {
            continue;
        }
        (void)strtod(text, &end);
        is_number = end != text && *end == '\0';
        if (!is_number && strcmp(text, "true") != 0 &&
            strcmp(text, "false") != 0) {
            continue; /* words */
        }
        if (try_value(table[i].path, text) != ZO_OK) {
            tap_fail(__FILE__, __LINE__, "%s: %s: %s", table[i].path, text,
                     zo_err_last()->text);
        }
    }
}

/* A wrong type for every key: refused, or a key that is not looked at. */
static void test_types(void)
{
    size_t count = 0;
    const struct zo_config_option *table = zo_config_options(&count);

    for (size_t i = 0; i < count; i++) {
        const bool is_any =
            table[i].kind == ZO_KIND_ANY && table[i].use != ZO_USE_REFUSED;
        const char *const values[] = {"[[1]]", "\"\\u4e2d\"", "-1e300"};

        for (size_t j = 0; j < TAP_COUNT(values); j++) {
            const enum zo_status status = try_value(table[i].path, values[j]);
            const bool is_string = j == 1 && table[i].kind == ZO_KIND_STRING;

            if (is_string) {
                continue; /* any word is a string */
            }
            if (status != (is_any ? ZO_OK : ZO_E_CONFIG)) {
                tap_fail(__FILE__, __LINE__, "%s: %s: status %d", table[i].path,
                         values[j], (int)status);
            }
        }
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"each row is filled in and stands behind its section", test_rows},
        {"\"auto\" is taken where the table says so, only there", test_auto},
        {"defaults are values that their keys accept", test_defaults},
        {"values of a wrong type are refused at every key", test_types},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
