/* What every subcommand prints with. */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "src/base/text.h"
#include "src/cli/cli.h"

#define TERMINAL_COLUMNS 80

FILE *zo_cli_err(const struct zo_cli *cli)
{
    (void)fflush(cli->out); /* a failure stays with it, for zo_cli_flush() */
    return cli->err;
}

void zo_cli_print_notes(struct zo_cli *cli)
{
    FILE *err = cli->notes.count > 0 ? zo_cli_err(cli) : cli->err;

    for (size_t i = 0; i < cli->notes.count; i++) {
        const struct zo_note *note = &cli->notes.items[i];

        (void)fprintf(err, "%s: %s\n",
                      note->level == ZO_NOTE_WARN ? "warning" : "note",
                      note->text);
    }
    (void)fflush(err);
    zo_notes_fini(&cli->notes);
}

enum zo_status zo_cli_flush(FILE *file, const char *name)
{
    errno = 0;
    if (fflush(file) != 0 || ferror(file)) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot write to %s: %s", name,
                              errno != 0 ? strerror(errno) : "it has failed");
    }
    return ZO_OK;
}

static struct winsize size_of(FILE *file)
{
    const struct winsize none = {0};
    struct winsize size = {0};

    return isatty(fileno(file)) == 1 &&
                   ioctl(fileno(file), TIOCGWINSZ, &size) == 0
               ? size
               : none;
}

int zo_cli_columns(FILE *file)
{
    return size_of(file).ws_col;
}

int zo_cli_rows(FILE *file)
{
    return size_of(file).ws_row;
}

/* Columns of a terminal that a character takes. */
static int columns_of(uint32_t code)
{
    /* The wide blocks of East Asian scripts and of pictographs. */
    static const uint32_t wide[][2] = {
        {0x1100, 0x115f}, {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},
        {0xf900, 0xfaff}, {0xfe30, 0xfe6f},   {0xff00, 0xff60},
        {0xffe0, 0xffe6}, {0x1f300, 0x1faff}, {0x20000, 0x3fffd},
    };

    for (size_t i = 0; i < ZO_COUNT(wide); i++) {
        if (code >= wide[i][0] && code <= wide[i][1]) {
            return 2;
        }
    }
    return 1;
}

/* A character as it is printed, terminated; returns its columns. */
static int spell(char spelling[16], const char *text, size_t length,
                 uint32_t code)
{
    if (length > 0 && (code == '\n' || code == '\t')) {
        memcpy(spelling, code == '\n' ? "\\n" : "\\t", 3);
        return 2;
    }
    zo_text_escape(spelling, 16, text, length > 0 ? length : 1);
    return spelling[0] == '\\' && strlen(spelling) > 1 ? (int)strlen(spelling)
                                                       : columns_of(code);
}

/*
 * Spells characters until `columns` would be passed, to file unless it is
 * NULL; true when all of the text fits.
 */
static bool spell_all(FILE *file, const char *text, size_t text_bytes,
                      int columns)
{
    int used = 0;

    for (size_t at = 0; at < text_bytes;) {
        char spelling[16];
        uint32_t code = 0;
        const size_t length = zo_utf8_decode(text + at, text_bytes - at, &code);

        used += spell(spelling, text + at, length, code);
        if (used > columns) {
            return false;
        }
        if (file != NULL) {
            (void)fputs(spelling, file);
        }
        at += length > 0 ? length : 1;
    }
    return true;
}

bool zo_cli_print_text(FILE *file, const char *text, size_t text_bytes,
                       int columns)
{
    if (spell_all(NULL, text, text_bytes, columns)) {
        (void)spell_all(file, text, text_bytes, columns);
        return true;
    }
    (void)spell_all(file, text, text_bytes, columns - 3);
    (void)fputs("...", file);
    return false;
}

void zo_cli_print_wrapped(FILE *file, const char *first, int indent,
                          const char *text)
{
    int column = fprintf(file, "%s", first);

    for (bool begins = true; *text != '\0'; begins = false) {
        const int length = (int)strcspn(text, " ");

        if (!begins && column + 1 + length > TERMINAL_COLUMNS) {
            column = fprintf(file, "\n%*s", indent, "") - 1;
        } else if (!begins) {
            column += fprintf(file, " ");
        }
        column += fprintf(file, "%.*s", length, text);
        text += length + (text[length] == ' ' ? 1 : 0);
    }
    (void)fputc('\n', file);
}
