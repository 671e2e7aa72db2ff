/*
 * zero-offload(1): finds the subcommand, runs it, prints what it has to say,
 * and makes the exit code of its status.
 */
#include <string.h>

#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/signals.h"

#define COMMANDS_MAX 32

static void print_overview(FILE *file)
{
    size_t count = 0;
    const struct zo_cli_command *commands = zo_cli_commands(&count);

    (void)fputs("usage: zero-offload COMMAND [OPTION...]\n"
                "\n"
                "Fully fine-tunes ChatGLM2-6B and its siblings, on a GPU or on "
                "the processor.\n"
                "\n"
                "commands:\n",
                file);
    for (size_t i = 0; i < count; i++) {
        (void)fprintf(file, "  %-10s %s\n", commands[i].name,
                      commands[i].summary);
    }
    (void)fputs("\n"
                "zero-offload COMMAND --help lists a command's options,\n"
                "zero-offload --version says which version this is.\n",
                file);
}

static void write_help(void *context, const char *text, size_t size_bytes)
{
    (void)fwrite(text, 1, size_bytes, context);
}

static void print_help(FILE *file, const struct zo_cli_command *command)
{
    (void)fprintf(file, "usage: zero-offload %s%s [OPTION...]\n\n%s\n\n",
                  command->name,
                  command->command == ZO_COMMAND_REPORT ? " FILE..." : "",
                  command->summary);
    zo_options_help(command->command, write_help, file);
}

static enum zo_status find_command(const char *name,
                                   const struct zo_cli_command **command_out)
{
    size_t count = 0;
    const struct zo_cli_command *commands = zo_cli_commands(&count);
    const char *names[COMMANDS_MAX], *nearest;

    ZO_ASSERT(count <= COMMANDS_MAX);
    for (size_t i = 0; i < count; i++) {
        names[i] = commands[i].name;
        if (strcmp(name, names[i]) == 0) {
            *command_out = &commands[i];
            return ZO_OK;
        }
    }
    if (name[0] == '-') {
        return ZO_FAIL(ZO_E_USAGE,
                       "%s stands before the command; want zero-offload "
                       "COMMAND [OPTION...], see zero-offload --help",
                       name);
    }
    nearest = zo_text_nearest(name, names, count);
    if (nearest != NULL) {
        return ZO_FAIL(ZO_E_USAGE, "no command \"%s\"; did you mean %s?", name,
                       nearest);
    }
    return ZO_FAIL(ZO_E_USAGE,
                   "no command \"%s\"; zero-offload --help lists them", name);
}

static enum zo_status run_command(struct zo_cli *cli,
                                  const struct zo_cli_command *command,
                                  int argc, const char *const *argv)
{
    struct zo_options options;
    enum zo_status status;

    ZO_TRY(
        zo_options_parse(command->command, argc, argv, &options, &cli->notes));
    if (options.help) {
        print_help(cli->out, command);
        status = ZO_OK;
    } else {
        zo_cli_print_notes(cli);
        status = command->run(cli, &options);
    }
    zo_options_fini(&options);
    return status;
}

static bool is_one_of(const char *word, const char *first, const char *second)
{
    return strcmp(word, first) == 0 || strcmp(word, second) == 0;
}

/* argv[0..argc) without the program's name; argc >= 1. */
static enum zo_status dispatch(struct zo_cli *cli, int argc,
                               const char *const *argv)
{
    const struct zo_cli_command *command = NULL;

    if (is_one_of(argv[0], "--version", "-V")) {
        (void)fprintf(cli->out, "%s %s\n", PACKAGE_NAME, PACKAGE_VERSION);
        return ZO_OK;
    }
    if (is_one_of(argv[0], "--help", "-h") ||
        (strcmp(argv[0], "help") == 0 && argc == 1)) {
        print_overview(cli->out);
        return ZO_OK;
    }
    if (strcmp(argv[0], "help") == 0) {
        ZO_TRY(find_command(argv[1], &command));
        print_help(cli->out, command);
        return ZO_OK;
    }
    ZO_TRY(find_command(argv[0], &command));
    if (command->command == ZO_COMMAND_BENCH && argc > 1 && argv[1][0] != '-') {
        cli->topic = argv[1];
        argc--;
        argv++;
    }
    return run_command(cli, command, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    struct zo_cli cli = {.out = stdout, .err = stderr};
    enum zo_status status;

    zo_signals_begin();
    if (argc < 2) {
        print_overview(stderr);
        return zo_status_exit_code(ZO_E_USAGE);
    }
    status = dispatch(&cli, argc - 1, (const char *const *)argv + 1);
    zo_cli_print_notes(&cli);
    if (status == ZO_OK) {
        status = zo_cli_flush(stdout, "standard output");
    }
    if (status != ZO_OK) {
        (void)fflush(stdout);
        (void)fprintf(stderr, "zero-offload: %s\n",
                      zo_err_last()->text[0] != '\0' ? zo_err_last()->text
                                                     : zo_status_text(status));
        return zo_status_exit_code(status);
    }
    return cli.stopped_by != 0 ? 128 + cli.stopped_by : 0;
}
