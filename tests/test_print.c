/*
 * Printing for people: text out of files, notes, streams that fail.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/setup.h"
#include "tests/tap.h"

/* Closes a file in memory, whose text is *got, and frees that. */
static bool holds(FILE *file, char **got, const char *want)
{
    bool same;

    (void)fclose(file);
    same = strcmp(*got, want) == 0;
    if (!same) {
        (void)printf("# got  %s\n# want %s\n", *got, want);
    }
    free(*got);
    return same;
}

static bool prints(const char *text, size_t text_bytes, int columns,
                   const char *want)
{
    char *got = NULL;
    size_t got_bytes = 0;
    FILE *file = open_memstream(&got, &got_bytes);
    bool whole;

    whole = zo_cli_print_text(file, text, text_bytes, columns);
    if (whole ==
        (strlen(want) >= 3 && strcmp(want + strlen(want) - 3, "...") == 0)) {
        (void)printf("# %s\n", whole ? "cut, and not told" : "told, not cut");
        want = "";
    }
    return holds(file, &got, want);
}

static void test_one_line(void)
{
    TAP_CHECK(prints("plain", 5, 20, "plain"));
    TAP_CHECK(prints("a\nb\tc", 5, 20, "a\\nb\\tc"));
    TAP_CHECK(prints("\x1b[2J\0", 5, 20, "\\x1b[2J\\x00"));
    TAP_CHECK(prints("a\u202eb", 5, 20, "a\\xe2\\x80\\xaeb"));
    TAP_CHECK(prints("\\n", 2, 20, "\\n")); /* as it stands in the file */
    TAP_CHECK(prints("a\xff", 2, 20, "a\\xff"));
    TAP_CHECK(prints("\xc2\x9b", 2, 20, "\\xc2\\x9b"));
    TAP_CHECK(prints("", 0, 20, ""));
}

/* A terminal says its width; a file and a pipe have none. */
static void test_columns(void)
{
    const struct winsize size = {.ws_row = 5, .ws_col = 33};
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    FILE *file = tmpfile(), *slave = NULL;

    TAP_CHECK(file != NULL);
    TAP_CHECK_INT(zo_cli_columns(file), 0);
    if (terminal < 0) {
        (void)fclose(file);
        tap_skip("no terminal can be opened here");
        return;
    }
    TAP_CHECK(grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    slave = fopen(ptsname(terminal), "w");
    TAP_CHECK(slave != NULL);
    TAP_CHECK(ioctl(fileno(slave), TIOCSWINSZ, &size) == 0);
    TAP_CHECK_INT(zo_cli_columns(slave), 33);
    (void)fclose(slave);
    (void)fclose(file);
    (void)close(terminal);
}

static void test_cut(void)
{
    TAP_CHECK(prints("abcdefgh", 8, 8, "abcdefgh"));
    TAP_CHECK(prints("abcdefghi", 9, 8, "abcde..."));
    /* Four wide characters fill eight columns; of five, two and dots fit. */
    TAP_CHECK(prints("\xe9\x97\xae\xe9\x97\xae\xe9\x97\xae\xe9\x97\xae", 12, 8,
                     "\xe9\x97\xae\xe9\x97\xae\xe9\x97\xae\xe9\x97\xae"));
    TAP_CHECK(prints("\xe9\x97\xae\xe9\x97\xae\xe9\x97\xae\xe9\x97\xae"
                     "\xe9\x97\xae",
                     15, 8, "\xe9\x97\xae\xe9\x97\xae..."));
}

static bool wraps(const char *first, int indent, const char *text,
                  const char *want)
{
    char *got = NULL;
    size_t got_bytes = 0;
    FILE *file = open_memstream(&got, &got_bytes);

    zo_cli_print_wrapped(file, first, indent, text);
    return holds(file, &got, want);
}

#define TEN "ten..chars"

static void test_wrapped(void)
{
    TAP_CHECK(wraps("  ", 4, "one line", "  one line\n"));
    TAP_CHECK(wraps("", 0, "", "\n"));
    /* 80 columns are full, the next word has a line of its own. */
    TAP_CHECK(wraps(
        "", 2, TEN " " TEN " " TEN " " TEN " " TEN " " TEN " " TEN " abc more",
        TEN " " TEN " " TEN " " TEN " " TEN " " TEN " " TEN " abc\n  more\n"));
    TAP_CHECK(wraps(
        "", 2, TEN " " TEN " " TEN " " TEN " " TEN " " TEN " " TEN " abcd more",
        TEN " " TEN " " TEN " " TEN " " TEN " " TEN " " TEN "\n  abcd more\n"));
}

static void test_si(void)
{
    static const struct {
        double value;
        const char *want;
    } samples[] = {
        {0.0, "0.00 B"},      {0.5, "0.50 B"},       {9.994, "9.99 B"},
        {9.996, "10.0 B"},    {99.96, "100 B"},      {999.4, "999 B"},
        {999.6, "1.00 kB"},   {1.5e3, "1.50 kB"},    {2.25e7, "22.5 MB"},
        {6.12e13, "61.2 TB"}, {9.999e14, "1.00 PB"}, {5e18, "5000 PB"},
    };
    char text[24];

    for (size_t i = 0; i < ZO_COUNT(samples); i++) {
        TAP_CHECK(strcmp(zo_text_si(text, sizeof(text), samples[i].value, "B"),
                         samples[i].want) == 0);
    }
}

static bool pairs(uint64_t first_bytes, uint64_t second_bytes,
                  const char *want_first, const char *want_second)
{
    char first[ZO_TEXT_PAIR_BYTES], second[ZO_TEXT_PAIR_BYTES];

    zo_text_gib_pair(first, first_bytes, second, second_bytes);
    return strcmp(first, want_first) == 0 && strcmp(second, want_second) == 0;
}

/* Nothing that is there is printed as 0.0 of a unit. */
static void test_small(void)
{
    char text[32];

    TAP_CHECK(strcmp(zo_text_gib(text, 32, 32), "32 bytes") == 0);
    TAP_CHECK(strcmp(zo_text_gib(text, 32, 1), "1 byte") == 0);
    TAP_CHECK(strcmp(zo_text_gib(text, 32, 1024), "1.0 KiB") == 0);
    TAP_CHECK(strcmp(zo_text_seconds(text, 32, 0.000354), "0.354 ms") == 0);
    TAP_CHECK(strcmp(zo_text_seconds(text, 32, 0.25), "0.25 s") == 0);
    TAP_CHECK(strcmp(zo_text_seconds(text, 32, 12.345), "12.3 s") == 0);
    TAP_CHECK(strcmp(zo_text_seconds(text, 32, 1234.5), "1234 s") == 0);
}

/* What does not fit by less than rounding shows is told in bytes. */
static void test_pair(void)
{
    const uint64_t mib = 1048576;

    TAP_CHECK(pairs(9 * mib + 10, 8 * mib, "9.0 MiB", "8.0 MiB"));
    TAP_CHECK(pairs(9 * mib, 9 * mib, "9.0 MiB", "9.0 MiB"));
    TAP_CHECK(pairs(9 * mib + 10, 9 * mib, "9.0 MiB (9437194 bytes)",
                    "9.0 MiB (9437184 bytes)"));
    TAP_CHECK(pairs(UINT64_MAX, UINT64_MAX - 1,
                    "17179869184.00 GiB (18446744073709551615 bytes)",
                    "17179869184.00 GiB (18446744073709551614 bytes)"));
}

static void test_notes(void)
{
    char *got = NULL;
    size_t got_bytes = 0;
    struct zo_cli cli = {.err = open_memstream(&got, &got_bytes)};
    bool same;

    TAP_CHECK_INT(zo_note_add(&cli.notes, ZO_NOTE_INFO, "one"), ZO_OK);
    TAP_CHECK_INT(zo_note_add(&cli.notes, ZO_NOTE_WARN, "two\x1b"), ZO_OK);
    zo_cli_print_notes(&cli);
    zo_cli_print_notes(&cli); /* each only once */
    (void)fclose(cli.err);
    same = strcmp(got, "note: one\nwarning: two\\x1b\n") == 0;
    free(got);
    TAP_CHECK(same);
    TAP_CHECK_INT(cli.notes.count, 0);
}

/* As with "2>&1 | less": one file, behind a buffer and without one. */
static void test_order(void)
{
    FILE *both = tmpfile();
    const int second = both != NULL ? dup(fileno(both)) : -1;
    struct zo_cli cli = {.out = both, .err = fdopen(second, "w")};
    char got[64] = "";

    TAP_CHECK(both != NULL && cli.err != NULL);
    (void)setvbuf(cli.err, NULL, _IONBF, 0);
    (void)fputs("table\n", cli.out);
    TAP_CHECK_INT(zo_note_add(&cli.notes, ZO_NOTE_INFO, "of it"), ZO_OK);
    zo_cli_print_notes(&cli);
    (void)fputs("rest\n", cli.out);
    (void)fputs("progress\n", zo_cli_err(&cli));
    rewind(both);
    got[fread(got, 1, sizeof(got) - 1, both)] = '\0';
    (void)fclose(both);
    (void)fclose(cli.err);
    TAP_CHECK(strcmp(got, "table\nnote: of it\nrest\nprogress\n") == 0);
}

static void test_flush(void)
{
    FILE *full = fopen("/dev/full", "w"), *null = fopen("/dev/null", "w");

    TAP_CHECK(full != NULL && null != NULL);
    (void)fputs("text", full);
    TAP_CHECK_INT(zo_cli_flush(full, "standard output"), ZO_E_IO);
    TAP_CHECK_INT(zo_err_last()->native, ENOSPC);
    TAP_CHECK(strstr(zo_err_last()->text, "standard output") != NULL);
    /* An error of before is not forgotten. */
    TAP_CHECK_INT(zo_cli_flush(full, "standard output"), ZO_E_IO);
    (void)fputs("text", null);
    TAP_CHECK_INT(zo_cli_flush(null, "standard output"), ZO_OK);
    (void)fclose(full);
    (void)fclose(null);
}

/* The device that limits is named, where there is one. */
static void test_budgets(void)
{
    static const char *const names[] = {"cuda:0", "cuda:1", "cuda:2"};
    const uint64_t gib = (uint64_t)1 << 30;
    const uint64_t unequal[] = {23 * gib, 15 * gib, 24 * gib};
    const uint64_t equal[] = {23 * gib, 23 * gib + 1000, 23 * gib};
    struct zo_notes notes = {0};

    TAP_CHECK(zo_setup_note_budgets(names, equal, 3, &notes) == ZO_OK);
    TAP_CHECK(zo_setup_note_budgets(names, unequal, 1, &notes) == ZO_OK);
    TAP_CHECK_INT((long long)notes.count, 0);
    TAP_CHECK(zo_setup_note_budgets(names, unequal, 3, &notes) == ZO_OK);
    TAP_CHECK_INT((long long)notes.count, 1);
    TAP_CHECK(strcmp(notes.items[0].text,
                     "cuda:1 limits: 15.00 GiB of it can be used, and 24.00 "
                     "GiB of cuda:2; every device is given as much as that "
                     "one") == 0);
    zo_notes_fini(&notes);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"prose is wrapped at 80 columns", test_wrapped},
        {"three digits and a power of 1000", test_si},
        {"small amounts and short times have digits", test_small},
        {"two amounts that differ do not look the same", test_pair},
        {"text of a file stays on one line and drives no terminal",
         test_one_line},
        {"a terminal says how many columns it has", test_columns},
        {"text is cut to columns, wide characters counted as two", test_cut},
        {"notes are printed once, with their level", test_notes},
        {"results and notes that go to one place stand in their order",
         test_order},
        {"a stream that fails is an error", test_flush},
        {"of unequal devices the one that limits is named", test_budgets},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
