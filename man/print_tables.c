/*
 * Prints, in mdoc, what the tables of options and keys say, for the pages in
 * man/: update.sh puts it between the marks of a page, and tests/docs.sh
 * checks that it is what stands there.
 *
 * Layer 8.  Usage: print_tables options SUBCOMMAND | print_tables keys
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "config/cli_options.h"
#include "config/config_options.h"

#define TEXT_COLUMNS      78  /* of a line of text in a page's source */
#define LIMIT_OF_INTEREST 1e6 /* a larger maximum only guards arithmetic */

/* A name that is typed: --max-steps, a path.  No line ends in its dashes. */
static bool is_typed(const char *word, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (word[i] == '/' ||
            (word[i] == '-' && i + 1 < size && word[i + 1] == '-')) {
            return true;
        }
    }
    return false;
}

/* A word of text; *column counts what the line holds, 0 at its start. */
static void put_word(size_t *column, const char *word, size_t size)
{
    if (*column > 0 && *column + 1 + size > TEXT_COLUMNS) {
        (void)putchar('\n');
        *column = 0;
    }
    if (*column > 0) {
        (void)putchar(' ');
        *column += 1;
    } else if (word[0] == '.' || word[0] == '\'') {
        (void)fputs("\\&", stdout); /* else it would be a request */
    }
    for (size_t i = 0; i < size; i++) {
        if (word[i] == '\\') {
            (void)fputs("\\e", stdout);
        } else if (word[i] == '-' && (i == 0 || is_typed(word, size))) {
            (void)fputs("\\-", stdout); /* a dash that is typed */
        } else {
            (void)putchar(word[i]);
        }
    }
    *column += size;
}

static void put_text(size_t *column, const char *text)
{
    while (*text != '\0') {
        const size_t size = strcspn(text, " ");

        if (size > 0) {
            put_word(column, text, size);
        }
        text += size + (text[size] == ' ');
    }
}

/* Ends a sentence and its line. */
static void put_stop(const char *text)
{
    const size_t size = strlen(text);

    (void)puts(size > 0 && text[size - 1] == '.' ? "" : ".");
}

/* `text` as a sentence: a capital, unless a name begins it, and a stop. */
static void put_sentence(const char *text)
{
    size_t column = 0;
    const size_t word_size = strcspn(text, " ");
    const bool is_name = strcspn(text, "_=:.0123456789") < word_size;

    if (text[0] >= 'a' && text[0] <= 'z' && !is_name) {
        (void)putchar(text[0] - 'a' + 'A');
        if (word_size > 1) {
            (void)printf("%.*s", (int)word_size - 1, text + 1);
        }
        column = word_size;
        put_text(&column, text + word_size);
    } else {
        put_text(&column, text);
    }
    put_stop(text);
}

/* "a, b or c.", each under the macro, out of names separated by spaces. */
static void put_names(const char *macro, const char *names)
{
    while (*names != '\0') {
        const size_t size = strcspn(names, " ");
        const bool is_last = names[size] == '\0';
        const bool or_follows =
            !is_last && strchr(names + size + 1, ' ') == NULL;

        (void)printf(".%s%.*s%s\n", macro, (int)size, names,
                     is_last      ? " ."
                     : or_follows ? "\nor"
                                  : " ,");
        names += size + !is_last;
    }
}

static void put_default(const struct zo_option *option, enum zo_command command)
{
    const char *note = zo_option_default_note(option, command);
    /* The name of a flag says it: --name is off, --no-name on. */
    const char *text =
        option->kind == ZO_ARG_FLAG ? NULL : option->default_text;

    if (note != NULL) {
        size_t column = 0;

        put_text(&column, "Default:");
        put_text(&column, note);
        put_stop(note);
    } else if (text != NULL && text[0] != '\0') {
        (void)printf("Default:\n.Cm %s .\n", text);
    }
}

static void put_option(const struct zo_option *option, enum zo_command command)
{
    /* As in --help: of what is on by default, the name that turns it off. */
    (void)printf(".It Fl -%s%s",
                 option->kind == ZO_ARG_FLAG && option->default_text != NULL
                     ? "no-"
                     : "",
                 option->name);
    if (option->argument != NULL && option->value_is_optional) {
        (void)printf(" Ns Op = Ns Ar %s", option->argument);
    } else if (option->argument != NULL) {
        (void)printf(" Ar %s", option->argument);
    }
    (void)putchar('\n');
    put_sentence(zo_option_help(option, command));
    if (option->choices != NULL) {
        (void)puts("One of");
        put_names("Cm ", option->choices);
    }
    put_default(option, command);
    if (option->aliases != NULL) {
        (void)puts("Also spelled");
        put_names("Fl -", option->aliases);
    }
}

/* The options of a kind that stand in no group, if there are any. */
static void put_options_of(enum zo_command command, enum zo_option_kind kind,
                           const char *title, const char *text)
{
    size_t count;
    const struct zo_option *options = zo_cli_options(&count);
    bool is_first = true;

    for (size_t i = 0; i < count; i++) {
        if ((options[i].commands & command) == 0 || options[i].kind != kind) {
            continue;
        }
        if (is_first) {
            (void)printf(".Ss %s\n%s\n.Bl -tag -width Ds\n", title, text);
            is_first = false;
        }
        put_option(&options[i], command);
    }
    if (!is_first) {
        (void)puts(".El");
    }
}

static void put_options(enum zo_command command)
{
    for (const struct zo_option *first = zo_option_next_group(NULL, command);
         first != NULL; first = zo_option_next_group(first, command)) {
        (void)printf(".Ss %s\n.Bl -tag -width Ds\n", first->group);
        for (const struct zo_option *option = first; option != NULL;
             option = zo_option_next(option, command)) {
            put_option(option, command);
        }
        (void)puts(".El");
    }
    put_options_of(command, ZO_ARG_IDLE, "Accepted, without meaning here",
                   "Other programs have these.\n"
                   "Each is taken, with a line that says why it does nothing.");
    put_options_of(command, ZO_ARG_REFUSED, "Known, and refused",
                   "With one of these the run would not be what was asked "
                   "for.");
}

static const char *kind_text(enum zo_config_kind kind)
{
    switch (kind) {
    case ZO_KIND_BOOL:
        return "true or false";
    case ZO_KIND_COUNT:
        return "an integer";
    case ZO_KIND_SIZE:
        return "a size";
    case ZO_KIND_NUMBER:
        return "a number";
    case ZO_KIND_STRING:
        return "a string";
    case ZO_KIND_CHOICE:
        return "one of";
    case ZO_KIND_PAIR:
        return "an array of two numbers";
    case ZO_KIND_OBJECT:
        return "a section";
    case ZO_KIND_ANY:
        return "anything";
    }
    return "";
}

/* "A number from 0 to 1; default 0.9.  "auto" stands for ..." */
static void put_type(const struct zo_config_option *key)
{
    const char *auto_text = zo_config_auto_text(key);
    const char *absent =
        key->default_note != NULL ? key->default_note : key->default_text;
    size_t column = 0;
    char range[64];

    put_text(&column, "Type:");
    put_text(&column, kind_text(key->kind));
    for (const char *at = key->choices; at != NULL && *at != '\0';) {
        const size_t size = strcspn(at, " ");

        (void)snprintf(range, sizeof(range), "%.*s%s", (int)size, at,
                       at[size] == '\0' ? "" : ",");
        put_text(&column, range);
        at += size + (at[size] == ' ');
    }
    range[0] = '\0';
    if (key->max > 0 && key->max < LIMIT_OF_INTEREST) {
        (void)snprintf(range, sizeof(range), "from %g to %g", key->min,
                       key->max);
    } else if (key->min > 0) {
        (void)snprintf(range, sizeof(range), "of at least %g", key->min);
    }
    put_text(&column, range);
    if (key->is_nullable) {
        put_text(&column, "or null");
    }
    (void)puts(".");
    if (absent != NULL && absent[0] != '\0') {
        column = 0;
        put_text(&column, "Default:");
        put_text(&column, absent);
        (void)puts(".");
    }
    if (auto_text != NULL) {
        column = 0;
        put_text(&column, "\"auto\" stands for");
        put_text(&column, auto_text);
        put_stop(auto_text);
    }
}

static void put_key(const struct zo_config_option *key)
{
    (void)printf(".It Ic %s\n", key->path);
    if (key->meaning != NULL && key->meaning[0] != '\0') {
        put_sentence(key->meaning);
    }
    if (key->use == ZO_USE_READ) {
        put_type(key);
    }
    if (key->differs != NULL) {
        size_t column = 0;

        put_text(&column, "Differs from DeepSpeed:");
        put_text(&column, key->differs);
        put_stop(key->differs);
    }
    if (key->aliases != NULL) {
        (void)puts("Also spelled");
        put_names("Ic ", key->aliases);
    }
}

/* Whether a key stands in the section; NULL: in none, and is none. */
static bool is_in_section(const struct zo_config_option *key,
                          const char *section)
{
    const size_t size = section == NULL ? 0 : strlen(section);

    if (section == NULL) {
        return strchr(key->path, '.') == NULL && key->kind != ZO_KIND_OBJECT;
    }
    return strncmp(key->path, section, size) == 0 &&
           (key->path[size] == '.' || key->path[size] == '\0');
}

/* The keys that are read, of one section. */
static void put_section(const char *section, const char *title)
{
    size_t count;
    const struct zo_config_option *keys = zo_config_options(&count);

    (void)printf(".Ss %s%s\n.Bl -tag -width Ds\n", title,
                 section == NULL ? "" : section);
    for (size_t i = 0; i < count; i++) {
        if (keys[i].use == ZO_USE_READ && is_in_section(&keys[i], section)) {
            put_key(&keys[i]);
        }
    }
    (void)puts(".El");
}

/* The keys of another use, wherever they stand. */
static void put_keys_of(enum zo_config_use use, const char *title)
{
    size_t count;
    const struct zo_config_option *keys = zo_config_options(&count);
    bool is_first = true;

    for (size_t i = 0; i < count; i++) {
        if (keys[i].use != use) {
            continue;
        }
        if (is_first) {
            (void)printf(".Ss %s\n.Bl -tag -width Ds\n", title);
            is_first = false;
        }
        put_key(&keys[i]);
    }
    if (!is_first) {
        (void)puts(".El");
    }
}

static void put_keys(void)
{
    size_t count;
    const struct zo_config_option *keys = zo_config_options(&count);

    put_section(NULL, "Outside of the sections");
    for (size_t i = 0; i < count; i++) {
        if (keys[i].use == ZO_USE_READ && keys[i].kind == ZO_KIND_OBJECT &&
            strchr(keys[i].path, '.') == NULL) {
            put_section(keys[i].path, "The section ");
        }
    }
    put_keys_of(ZO_USE_LEGACY, "Old spellings, translated");
    put_keys_of(ZO_USE_IDLE, "Accepted, without meaning here");
    put_keys_of(ZO_USE_OFF_ONLY, "Accepted only when off");
    put_keys_of(ZO_USE_REFUSED, "Known, and refused");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "keys") == 0) {
        put_keys();
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "options") == 0) {
        for (unsigned bit = 0; bit < 16; bit++) {
            const enum zo_command command = (enum zo_command)(1u << bit);

            if (strcmp(zo_command_name(command), argv[2]) == 0) {
                put_options(command);
                return 0;
            }
        }
    }
    (void)fprintf(stderr, "usage: print_tables options SUBCOMMAND | keys\n");
    return 2;
}
