#include "config/cli_options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/cli_hints.h"
#include "config/cli_names.h"
#include "src/base/memory.h"
#include "src/base/text.h"

#define NAME_BYTES 64

/* Of bytes without a unit: less was meant in another. */
#define PLAIN_BYTES_MIN ((uint64_t)1 << 20)

#define TRAIN     ZO_COMMAND_TRAIN
#define EVAL      ZO_COMMAND_EVAL
#define PLAN      ZO_COMMAND_PLAN
#define INSPECT   ZO_COMMAND_INSPECT
#define INIT      ZO_COMMAND_INIT
#define GENERATE  ZO_COMMAND_GENERATE
#define BENCH     ZO_COMMAND_BENCH
#define DOCTOR    ZO_COMMAND_DOCTOR
#define EXPORT    ZO_COMMAND_EXPORT
#define REPORT    ZO_COMMAND_REPORT
#define COMPUTE   (TRAIN | EVAL | PLAN | GENERATE | BENCH)
#define BUDGET    (TRAIN | EVAL | PLAN | BENCH)
#define ROWS      (TRAIN | EVAL | PLAN | INSPECT)
#define ANSWER    (EVAL | GENERATE)
#define ALL       (COMPUTE | INSPECT | INIT | EXPORT)
#define EVERYONE  (ALL | DOCTOR | REPORT)
#define AT(field) .offset = offsetof(struct zo_options, field)
#define WORDS(...)                            \
    .words = (const struct zo_option_words[]) \
    {                                         \
        __VA_ARGS__,                          \
        {                                     \
            0, NULL, NULL                     \
        }                                     \
    }

static const struct zo_option table[] = {
#define ZO_OPTION(id, name_, kind_, commands_, ...) \
    [ZO_OPTION_##id] = {.name = name_,              \
                        .kind = ZO_ARG_##kind_,     \
                        .commands = (commands_),    \
                        __VA_ARGS__},
#include "config/cli_options.def"
#undef ZO_OPTION
};

_Static_assert(ZO_OPTION_COUNT <= 192, "zo_options.given has 192 bits");

/* A reading under way. */
struct reader {
    enum zo_command command;
    int argc;
    const char *const *argv;
    int at; /* of the next argument */
    struct zo_options *options;
    struct zo_notes *notes;
};

const struct zo_option *zo_cli_options(size_t *count_out)
{
    *count_out = ZO_COUNT(table);
    return table;
}

/* The entry of a command; NULL: the row has none. */
static const struct zo_option_words *find_words(const struct zo_option *option,
                                                enum zo_command command)
{
    const struct zo_option_words *words = option->words;

    while (words != NULL && words->commands != 0) {
        if ((words->commands & command) != 0) {
            return words;
        }
        words++;
    }
    return NULL;
}

const char *zo_option_help(const struct zo_option *option,
                           enum zo_command command)
{
    const struct zo_option_words *words = find_words(option, command);

    return words != NULL && words->help != NULL ? words->help : option->help;
}

const char *zo_option_default_note(const struct zo_option *option,
                                   enum zo_command command)
{
    const struct zo_option_words *words = find_words(option, command);

    return words != NULL && words->default_note != NULL ? words->default_note
                                                        : option->default_note;
}

bool zo_option_given(const struct zo_options *options, enum zo_option_id id)
{
    return (options->given[id / 64] >> (id % 64) & 1) != 0;
}

void zo_option_mark(struct zo_options *options, enum zo_option_id id)
{
    options->given[id / 64] |= UINT64_C(1) << (id % 64);
}

/* ---- finding a row ---- */

static bool is_named(const struct zo_option *option, const char *name)
{
    return strcmp(option->name, name) == 0 ||
           zo_word_index(option->aliases, name) >= 0;
}

/* The row, or NULL; *is_negated for --no-NAME of a flag. */
static const struct zo_option *find(unsigned commands, const char *name,
                                    bool *is_negated)
{
    for (size_t i = 0; i < ZO_COUNT(table); i++) {
        const bool is_flag = table[i].kind == ZO_ARG_FLAG;

        if ((table[i].commands & commands) == 0) {
            continue;
        }
        *is_negated = false;
        if (is_named(&table[i], name)) {
            return &table[i];
        }
        if (is_flag && strncmp(name, "no-", 3) == 0 &&
            is_named(&table[i], name + 3)) {
            *is_negated = true;
            return &table[i];
        }
    }
    return NULL;
}

/* Every subcommand with an option of that name, as "train, plan and bench". */
static void name_commands(const char *name, char *text, size_t text_bytes)
{
    unsigned commands = 0;
    size_t length = 0;
    bool is_negated = false;

    for (unsigned bit = 1; bit <= EVERYONE; bit <<= 1) {
        commands |= find(bit & EVERYONE, name, &is_negated) != NULL ? bit : 0;
    }
    text[0] = '\0';
    for (unsigned bit = 1; commands != 0 && length < text_bytes; bit <<= 1) {
        const bool is_first = length == 0;

        if ((commands & bit) == 0) {
            continue;
        }
        commands &= ~bit;
        length += (size_t)snprintf(text + length, text_bytes - length, "%s%s",
                                   is_first        ? ""
                                   : commands == 0 ? " and "
                                                   : ", ",
                                   zo_command_name((enum zo_command)bit));
    }
}

static enum zo_status fail_unknown(const struct reader *r, const char *name)
{
    bool is_negated = false;
    const struct zo_option *elsewhere = find(EVERYONE, name, &is_negated);
    const char *command = zo_command_name(r->command);
    const struct zo_option_guess near = zo_option_guess(name, r->command);
    const char *hint = zo_option_hint(name, r->command);
    char commands[128];

    if (hint != NULL) {
        return ZO_FAIL(ZO_E_USAGE, "%s has no option --%s; %s", command, name,
                       hint);
    }
    if (elsewhere != NULL && elsewhere->kind == ZO_ARG_REFUSED) {
        return ZO_FAIL(ZO_E_USAGE, "--%s: %s", name, elsewhere->help);
    }
    if (elsewhere != NULL) {
        name_commands(name, commands, sizeof(commands));
        return ZO_FAIL(ZO_E_USAGE, "--%s is an option of %s, not of %s", name,
                       commands, command);
    }
    if (near.option != NULL) {
        return ZO_FAIL(ZO_E_USAGE, "%s has no option --%s; did you mean --%s?",
                       command, name, near.option->name);
    }
    if (near.hint != NULL) {
        return ZO_FAIL(ZO_E_USAGE, "%s has no option --%s; %s", command, name,
                       near.hint);
    }
    return ZO_FAIL(ZO_E_USAGE, "%s has no option --%s; see %s --help", command,
                   name, command);
}

/* ---- reading a value ---- */

static bool parse_bool(const char *text, bool *out)
{
    const int index = zo_word_index("false true", text);

    if (index < 0) {
        return false;
    }
    *out = index == 1;
    return true;
}

static bool parse_int(const char *text, int64_t *out)
{
    char *end = NULL;
    long long value;

    if (!isdigit((unsigned char)text[0]) && text[0] != '-') {
        return false; /* strtoll would skip spaces */
    }
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0') {
        return false;
    }
    *out = value;
    return true;
}

static bool parse_number(const char *text, double *out)
{
    char *end = NULL;
    double value;

    if (text[0] == '\0' || text[strspn(text, "0123456789.eE+-")] != '\0') {
        return false; /* no spaces, hexadecimals, inf or nan */
    }
    value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value)) {
        return false;
    }
    *out = value;
    return true;
}

static enum zo_status fail_value(const struct zo_option *option,
                                 const char *text, const char *wanted)
{
    return ZO_FAIL(ZO_E_USAGE, "--%s %s: want %s", option->name, text, wanted);
}

static enum zo_status read_int(const struct zo_option *option, const char *text,
                               int64_t *target)
{
    int64_t value = 0;

    if (!parse_int(text, &value) || (double)value < option->min ||
        (double)value > option->max) {
        return ZO_FAIL(ZO_E_USAGE, "--%s %s: want an integer from %.0f to %.0f",
                       option->name, text, option->min, option->max);
    }
    *target = value;
    return ZO_OK;
}

static enum zo_status read_number(const struct zo_option *option,
                                  const char *text, double *target)
{
    double value = 0.0;

    if (!parse_number(text, &value) || value < option->min ||
        value > option->max) {
        return ZO_FAIL(ZO_E_USAGE, "--%s %s: want a number from %.10g to %.10g",
                       option->name, text, option->min, option->max);
    }
    *target = value;
    return ZO_OK;
}

/* "24" is 24 bytes, which nobody means; "24B" is asked for. */
static enum zo_status check_unit(const struct zo_option *option,
                                 const char *text, const char *amount,
                                 uint64_t bytes)
{
    if (bytes >= PLAIN_BYTES_MIN ||
        amount[strspn(amount, "0123456789.")] != '\0') {
        return ZO_OK;
    }
    return ZO_FAIL(ZO_E_USAGE,
                   "--%s %s: %s without a unit is bytes; did you mean %sG?",
                   option->name, text, amount, amount);
}

static enum zo_status read_bytes(const struct zo_option *option,
                                 const char *text, uint64_t *target)
{
    uint64_t bytes = 0;

    if (!zo_text_bytes(text, &bytes) || bytes == 0) {
        return fail_value(option, text, "a size such as 24G or 512M");
    }
    if (option->max == 0.0) { /* with bounds, bytes may be meant */
        ZO_TRY(check_unit(option, text, text, bytes));
    }
    *target = bytes;
    return ZO_OK;
}

/* Stores a value of one of the plain kinds. */
static enum zo_status store_plain(const struct zo_option *option,
                                  const char *text, struct zo_options *options)
{
    void *target = (char *)options + option->offset;
    int choice;

    switch (option->kind) {
    case ZO_ARG_FLAG:
        return parse_bool(text, target)
                   ? ZO_OK
                   : fail_value(option, text, "true or false");
    case ZO_ARG_INT:
        return read_int(option, text, target);
    case ZO_ARG_NUMBER:
        return read_number(option, text, target);
    case ZO_ARG_STRING:
        if (text[0] == '\0' && option->default_text == NULL) {
            return ZO_FAIL(ZO_E_USAGE, "--%s: want %s, found nothing",
                           option->name, option->argument);
        }
        memcpy(target, &text, sizeof(text));
        return ZO_OK;
    case ZO_ARG_CHOICE:
        choice = zo_word_index(option->choices, text);
        if (choice < 0) {
            return ZO_FAIL(ZO_E_USAGE, "--%s %s: want one of: %s", option->name,
                           text, option->choices);
        }
        memcpy(target, &choice, sizeof(choice));
        return ZO_OK;
    case ZO_ARG_BYTES:
        return read_bytes(option, text, target);
    case ZO_ARG_SPECIAL:
    case ZO_ARG_IDLE:
    case ZO_ARG_REFUSED:
        break;
    }
    return ZO_OK;
}

/* ---- options with readers of their own ---- */

static enum zo_status read_devices(const struct zo_option *option,
                                   const char *text, struct zo_options *options)
{
    int count = 0;

    for (const char *at = text;; at++) {
        char *end = NULL;
        long index;

        if (!isdigit((unsigned char)*at) || count == ZO_DEVICES_MAX) {
            return fail_value(option, text, "indices such as 0,2");
        }
        index = strtol(at, &end, 10);
        if (index > 1023 || (*end != ',' && *end != '\0')) {
            return fail_value(option, text, "indices such as 0,2");
        }
        for (int i = 0; i < count; i++) {
            if (options->devices[i] == (int)index) {
                return ZO_FAIL(ZO_E_USAGE,
                               "--%s %s: device %ld is there "
                               "twice",
                               option->name, text, index);
            }
        }
        options->devices[count++] = (int)index;
        at = end;
        if (*at == '\0') {
            options->device_count = count;
            return ZO_OK;
        }
    }
}

/* DIR or DIR:SIZE; a colon that no size follows belongs to the name. */
static enum zo_status read_nvme(const struct zo_option *option,
                                const char *text, struct zo_options *options)
{
    const char *colon = strrchr(text, ':');
    size_t length = strlen(text);
    uint64_t bytes = 0;
    char *path = NULL;

    if (colon != NULL && zo_text_bytes(colon + 1, &bytes)) {
        length = (size_t)(colon - text);
    }
    if (length == 0 || (length < strlen(text) && bytes == 0)) {
        return fail_value(option, text, "DIR or DIR:SIZE");
    }
    if (length < strlen(text)) {
        ZO_TRY(check_unit(option, text, colon + 1, bytes));
    }
    ZO_TRY(zo_strndup(text, length, &path));
    zo_free(options->nvme_path);
    options->nvme_path = path;
    options->nvme_bytes = bytes;
    return ZO_OK;
}

static enum zo_status read_eval_steps(const struct zo_option *option,
                                      const char *text,
                                      struct zo_options *options)
{
    int64_t steps = 0;

    if (strcmp(text, "epoch") == 0) {
        options->eval_steps = ZO_EVAL_EVERY_EPOCH;
        return ZO_OK;
    }
    if (!parse_int(text, &steps) || steps < 1) {
        return fail_value(option, text, "a number of steps, or epoch");
    }
    options->eval_steps = steps;
    return ZO_OK;
}

static enum zo_status read_trace_steps(const struct zo_option *option,
                                       const char *text,
                                       struct zo_options *options)
{
    char *end = NULL;
    long long first = 0, last = 0;

    if (isdigit((unsigned char)text[0])) {
        first = strtoll(text, &end, 10);
        last = first;
        if (*end == '-' && isdigit((unsigned char)end[1])) {
            last = strtoll(end + 1, &end, 10);
        }
    }
    if (end == NULL || *end != '\0' || first < 1 || last < first) {
        return fail_value(option, text, "steps such as 5-8");
    }
    options->trace_first = first;
    options->trace_last = last;
    return ZO_OK;
}

static enum zo_status read_resume(const char *text, struct zo_options *options)
{
    bool flag = true;

    if (text[0] == '\0') {
        return ZO_FAIL(ZO_E_USAGE, "--resume: want auto or DIR");
    }
    if (!parse_bool(text, &flag)) {
        options->resume = text;
    } else {
        options->resume = flag ? "auto" : NULL;
    }
    return ZO_OK;
}

static enum zo_status add_text(const char ***list, size_t *count,
                               const char *text)
{
    const char **texts = *list;

    ZO_TRY(zo_realloc(&texts, *count + 1, sizeof(*texts),
                      "the list of an option"));
    texts[(*count)++] = text;
    *list = texts;
    return ZO_OK;
}

static enum zo_status read_set(const struct zo_option *option, const char *text,
                               struct zo_options *options)
{
    const char *equals = strchr(text, '=');

    if (equals == NULL || equals == text) {
        return fail_value(option, text, "KEY.PATH=VALUE");
    }
    return add_text(&options->sets, &options->set_count, text);
}

/* Words of report are the files that it reads. */
static enum zo_status add_file(const char *text, struct zo_options *options)
{
    const char **files = options->files;

    if (text[0] == '\0') {
        return ZO_FAIL(ZO_E_USAGE, "report: want files, found an empty name");
    }
    ZO_TRY(zo_realloc(&files, options->file_count + 1, sizeof(*files),
                      "the list of files"));
    options->files = files;
    options->files[options->file_count++] = text;
    return ZO_OK;
}

static enum zo_status store(const struct zo_option *option, const char *text,
                            struct zo_options *options)
{
    switch ((enum zo_option_id)(option - table)) {
    case ZO_OPTION_DEVICES:
        return read_devices(option, text, options);
    case ZO_OPTION_NVME:
        return read_nvme(option, text, options);
    case ZO_OPTION_EVAL_STEPS:
        return read_eval_steps(option, text, options);
    case ZO_OPTION_TRACE_STEPS:
        return read_trace_steps(option, text, options);
    case ZO_OPTION_RESUME:
    case ZO_OPTION_RESUME_FROM:
        return read_resume(text, options);
    case ZO_OPTION_SET:
        return read_set(option, text, options);
    case ZO_OPTION_PROMPT:
        return add_text(&options->prompts, &options->prompt_count, text);
    default:
        return store_plain(option, text, options);
    }
}

/* ---- the command line ---- */

/* Hugging Face's flags may be followed by their value. */
static const char *next_bool(struct reader *r)
{
    bool ignored;

    if (r->at < r->argc && parse_bool(r->argv[r->at], &ignored)) {
        return r->argv[r->at++];
    }
    return NULL;
}

/* The text of an option's value; NULL when it has none and needs none. */
static enum zo_status take_value(struct reader *r,
                                 const struct zo_option *option,
                                 const char *equals, const char **value_out)
{
    if (equals != NULL) {
        *value_out = equals + 1;
        return ZO_OK;
    }
    if (option->kind == ZO_ARG_FLAG || option->argument == NULL ||
        (option->value_is_optional && option->kind == ZO_ARG_IDLE)) {
        *value_out = next_bool(r);
        return ZO_OK;
    }
    if (option->value_is_optional) {
        *value_out = NULL;
        return ZO_OK;
    }
    if (r->at >= r->argc || strncmp(r->argv[r->at], "--", 2) == 0) {
        return ZO_FAIL(ZO_E_USAGE, "--%s: want %s, found %s", option->name,
                       option->argument,
                       r->at < r->argc ? r->argv[r->at] : "nothing");
    }
    *value_out = r->argv[r->at++];
    return ZO_OK;
}

static enum zo_status read_flag(const struct zo_option *option,
                                const char *value, bool is_negated,
                                struct zo_options *options)
{
    bool *target = (bool *)((char *)options + option->offset);

    if (value == NULL) {
        *target = !is_negated;
        return ZO_OK;
    }
    if (is_negated) {
        return ZO_FAIL(ZO_E_USAGE, "--no-%s takes no value, found %s",
                       option->name, value);
    }
    return store(option, value, options);
}

/* What means nothing here because it is so anyway, must not say otherwise. */
static enum zo_status check_choice(const struct zo_option *option,
                                   const char *value)
{
    return zo_word_index(option->choices, value) >= 0
               ? ZO_OK
               : ZO_FAIL(ZO_E_USAGE, "--%s %s: %s; want one of: %s",
                         option->name, value, option->help, option->choices);
}

static enum zo_status read_option(struct reader *r, const char *name,
                                  const char *equals)
{
    bool is_negated = false;
    const struct zo_option *option = find(r->command, name, &is_negated);
    const char *value = NULL;

    if (option == NULL) {
        return fail_unknown(r, name);
    }
    if (option->kind == ZO_ARG_REFUSED) {
        return ZO_FAIL(ZO_E_USAGE, "--%s: %s", name, option->help);
    }
    ZO_TRY(take_value(r, option, equals, &value));
    zo_option_mark(r->options, (enum zo_option_id)(option - table));
    if (option->kind == ZO_ARG_IDLE) {
        if (option->choices != NULL) {
            ZO_TRY(check_choice(option, value));
        }
        return zo_note_add(r->notes, ZO_NOTE_INFO,
                           "--%s is accepted and means nothing here: %s", name,
                           zo_option_help(option, r->command));
    }
    if (option->kind == ZO_ARG_FLAG) {
        return read_flag(option, value, is_negated, r->options);
    }
    return store(option, value != NULL ? value : "auto", r->options);
}

/* Splits "--Some_name=value"; false when it is no option. */
static bool split_name(const char *argument, char name[NAME_BYTES],
                       const char **equals_out)
{
    const char *start = argument + 2;
    const size_t length = strcspn(start, "=");

    if (length == 0 || length >= NAME_BYTES) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        name[i] = start[i] == '_' ? '-' : start[i];
    }
    name[length] = '\0';
    *equals_out = start[length] == '=' ? start + length : NULL;
    return true;
}

static enum zo_status read_argument(struct reader *r)
{
    const char *argument = r->argv[r->at++];
    const char *before = r->at >= 2 ? r->argv[r->at - 2] : "";
    const char *equals = NULL;
    char name[NAME_BYTES];

    if (strcmp(argument, "-h") == 0) {
        argument = "--help";
    }
    if (strncmp(argument, "--", 2) == 0 &&
        split_name(argument, name, &equals)) {
        return read_option(r, name, equals);
    }
    if (r->command == ZO_COMMAND_REPORT && argument[0] != '-') {
        return add_file(argument, r->options);
    }
    if (strcmp(before, "--resume") == 0) {
        return ZO_FAIL(ZO_E_USAGE, "unexpected argument %s; write --resume=%s",
                       argument, argument);
    }
    return ZO_FAIL(ZO_E_USAGE, "unexpected argument %s; options start with --",
                   argument);
}

static enum zo_status check_together(const struct zo_options *options)
{
    if (options->bf16 && options->fp16) {
        return ZO_FAIL(ZO_E_USAGE, "--bf16 and --fp16: want one of the two");
    }
    if (options->device_count > 0 && options->num_devices > 0 &&
        options->device_count != options->num_devices) {
        return ZO_FAIL(ZO_E_USAGE,
                       "--devices names %d devices, --num-devices says %lld",
                       options->device_count, (long long)options->num_devices);
    }
    if (options->trace_first > 0 && options->trace == NULL) {
        return ZO_FAIL(ZO_E_USAGE, "--trace-steps needs --trace FILE");
    }
    if (options->command == ZO_COMMAND_GENERATE && options->raw &&
        options->history != NULL) {
        return ZO_FAIL(ZO_E_USAGE, "--raw and --history: want one of the two");
    }
    if (options->command == ZO_COMMAND_EVAL && options->output != NULL &&
        !options->generate) {
        return ZO_FAIL(ZO_E_USAGE, "--output needs --generate: there is "
                                   "nothing else that is written");
    }
    if (options->command == ZO_COMMAND_TRAIN && options->eval_data == NULL &&
        (options->keep_best || options->eval_steps != 0)) {
        return ZO_FAIL(ZO_E_USAGE, "--%s needs --eval-data FILE",
                       options->keep_best ? "keep-best" : "eval-steps");
    }
    return ZO_OK;
}

void zo_options_init(struct zo_options *options, enum zo_command command)
{
    memset(options, 0, sizeof(*options));
    for (size_t i = 0; i < ZO_COUNT(table); i++) {
        const struct zo_option *option = &table[i];

        if (option->default_text != NULL) {
            const enum zo_status status =
                store_plain(option, option->default_text, options);

            ZO_ASSERT(status == ZO_OK);
        }
    }
    options->command = command;
}

enum zo_status zo_options_parse(enum zo_command command, int argc,
                                const char *const *argv,
                                struct zo_options *options_out,
                                struct zo_notes *notes)
{
    struct zo_options options;
    struct reader r = {.command = command,
                       .argc = argc,
                       .argv = argv,
                       .options = &options,
                       .notes = notes};
    enum zo_status status;

    zo_options_init(&options, command);
    while (r.at < argc && !options.help) {
        ZO_TRY_GOTO(free_options, read_argument(&r));
    }
    if (options.max_steps < 0) {
        options.max_steps = 0; /* Hugging Face's -1 */
    }
    if (options.trace != NULL && options.trace_first == 0) {
        options.trace_first = 5; /* past what warms up */
        options.trace_last = 8;
    }
    if (options.save_steps > 0 &&
        !zo_option_given(&options, ZO_OPTION_SAVE_MINUTES)) {
        options.save_minutes = 0.0;
    }
    if (!options.help) {
        ZO_TRY_GOTO(free_options, check_together(&options));
    }
    *options_out = options;
    return ZO_OK;

free_options:
    zo_options_fini(&options);
    return status;
}

void zo_options_fini(struct zo_options *options)
{
    if (options == NULL) {
        return;
    }
    zo_free(options->sets);
    zo_free(options->prompts);
    zo_free(options->files);
    zo_free(options->nvme_path);
    options->sets = NULL;
    options->set_count = 0;
    options->prompts = NULL;
    options->prompt_count = 0;
    options->files = NULL;
    options->file_count = 0;
    options->nvme_path = NULL;
}
