/* The help of a subcommand, out of the table.  Layer 1. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "config/cli_options.h"

#define WIDTH_MAX  79
#define TEXT_START 32

static bool is_shown(const struct zo_option *option, enum zo_command command)
{
    return option->group != NULL && (option->commands & command) != 0;
}

static bool is_of_group(const struct zo_option *option, enum zo_command command,
                        const char *group)
{
    return is_shown(option, command) && strcmp(option->group, group) == 0;
}

const struct zo_option *zo_option_next(const struct zo_option *option,
                                       enum zo_command command)
{
    size_t count = 0;
    const struct zo_option *table = zo_cli_options(&count);

    for (const struct zo_option *at = option + 1; at < table + count; at++) {
        if (is_of_group(at, command, option->group)) {
            return at;
        }
    }
    return NULL;
}

const struct zo_option *zo_option_next_group(const struct zo_option *option,
                                             enum zo_command command)
{
    size_t count = 0;
    const struct zo_option *table = zo_cli_options(&count);

    for (const struct zo_option *at = option == NULL ? table : option + 1;
         at < table + count; at++) {
        const struct zo_option *before = table;

        while (before < at && (!is_shown(at, command) ||
                               !is_of_group(before, command, at->group))) {
            before++;
        }
        if (before == at && is_shown(at, command)) {
            return at;
        }
    }
    return NULL;
}

struct writer {
    zo_help_write_fn write;
    void *context;
    size_t column;
};

static void put(struct writer *w, const char *text, size_t size_bytes)
{
    w->write(w->context, text, size_bytes);
    w->column += size_bytes;
}

static void end_line(struct writer *w)
{
    w->write(w->context, "\n", 1);
    w->column = 0;
}

static void indent(struct writer *w, size_t column)
{
    while (w->column < column) {
        put(w, " ", 1);
    }
}

/* Words of text from column `start` on, wrapped. */
static void put_words(struct writer *w, const char *text, size_t start)
{
    while (*text != '\0') {
        const size_t length = strcspn(text, " ");

        if (w->column > start && w->column + 1 + length > WIDTH_MAX) {
            end_line(w);
        }
        if (w->column < start) {
            indent(w, start);
        } else if (w->column > start) {
            put(w, " ", 1);
        }
        put(w, text, length);
        text += length;
        text += strspn(text, " ");
    }
}

static void put_name(struct writer *w, const struct zo_option *option)
{
    const bool is_on = option->kind == ZO_ARG_FLAG &&
                       option->default_text != NULL &&
                       strcmp(option->default_text, "true") == 0;
    char name[96];
    int length;

    if (option->argument == NULL) {
        length = snprintf(name, sizeof(name), "  --%s%s", is_on ? "no-" : "",
                          option->name);
    } else if (option->value_is_optional) {
        length = snprintf(name, sizeof(name), "  --%s[=%s]", option->name,
                          option->argument);
    } else {
        length = snprintf(name, sizeof(name), "  --%s %s", option->name,
                          option->argument);
    }
    put(w, name, (size_t)length);
    if (w->column >= TEXT_START) {
        end_line(w);
    }
    indent(w, TEXT_START);
}

static void put_option(struct writer *w, const struct zo_option *option,
                       enum zo_command command)
{
    const char *note = zo_option_default_note(option, command);
    const char *value = note != NULL ? note : option->default_text;
    char extra[160];

    put_name(w, option);
    put_words(w, zo_option_help(option, command), TEXT_START);
    if (option->choices != NULL) {
        (void)snprintf(extra, sizeof(extra), "(%s)", option->choices);
        put_words(w, extra, TEXT_START);
    }
    if (value != NULL && value[0] != '\0' && option->kind != ZO_ARG_FLAG) {
        (void)snprintf(extra, sizeof(extra), "[%s]", value);
        put_words(w, extra, TEXT_START);
    }
    end_line(w);
}

static void put_paragraph(struct writer *w, const char *text)
{
    put_words(w, text, 0);
    end_line(w);
}

static void put_idle(struct writer *w, enum zo_command command)
{
    size_t count = 0;
    const struct zo_option *table = zo_cli_options(&count);
    bool is_first = true;

    for (size_t i = 0; i < count; i++) {
        char name[96];

        if (table[i].kind != ZO_ARG_IDLE ||
            (table[i].commands & command) == 0) {
            continue;
        }
        if (is_first) {
            end_line(w);
            put_paragraph(w, "Accepted without meaning here, with a line that "
                             "says why:");
            is_first = false;
        }
        (void)snprintf(name, sizeof(name), "--%s", table[i].name);
        put_words(w, name, 2);
    }
    if (!is_first) {
        end_line(w);
    }
}

void zo_options_help(enum zo_command command, zo_help_write_fn write,
                     void *context)
{
    struct writer w = {.write = write, .context = context};

    for (const struct zo_option *first = zo_option_next_group(NULL, command);
         first != NULL; first = zo_option_next_group(first, command)) {
        put(&w, first->group, strlen(first->group));
        put(&w, ":", 1);
        end_line(&w);
        for (const struct zo_option *option = first; option != NULL;
             option = zo_option_next(option, command)) {
            put_option(&w, option, command);
        }
        end_line(&w);
    }
    put_paragraph(&w, "Names may be written with - or _.  A flag takes "
                      "--name, --no-name or --name=true|false.  The names of "
                      "Hugging Face's and ChatGLM2's scripts are accepted, "
                      "such as --model_name_or_path and --output_dir.");
    put_idle(&w, command);
}
