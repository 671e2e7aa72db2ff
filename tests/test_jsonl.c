/*
 * The writer of JSON lines.
 *
 * Method: every line is written to a memory stream or a pipe and compared,
 * byte for byte, with what RFC 8259 asks for.
 */
#include "src/base/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "tests/tap.h"

/* A writer into memory. */
struct sink {
    struct zo_jsonl json;
    char buffer[ZO_JSONL_BUFFER_MIN];
    FILE *file;
    char *text;
    size_t text_bytes;
};

static void sink_open(struct sink *sink)
{
    *sink = (struct sink){0};
    sink->file = open_memstream(&sink->text, &sink->text_bytes);
    zo_jsonl_init_file(&sink->json, sink->file, "memory", sink->buffer,
                       sizeof(sink->buffer));
}

static void sink_close(struct sink *sink)
{
    (void)fclose(sink->file);
    free(sink->text);
}

static bool sink_is(struct sink *sink, const char *want)
{
    (void)fflush(sink->file);
    if (sink->text_bytes == strlen(want) && strcmp(sink->text, want) == 0) {
        return true;
    }
    (void)printf("# got  %s# want %s", sink->text, want);
    return false;
}

static void test_structure(void)
{
    const uint64_t sizes[] = {0, UINT64_MAX};
    const int32_t ids[] = {1, -100, INT32_MAX};
    struct sink sink;
    struct zo_jsonl *json = &sink.json;
    bool same;

    sink_open(&sink);
    zo_jsonl_begin(json);
    TAP_CHECK_INT(zo_jsonl_end(json), ZO_OK);
    zo_jsonl_begin(json);
    zo_jsonl_text(json, "kind", "step");
    zo_jsonl_int(json, "low", INT64_MIN);
    zo_jsonl_object_begin(json, "inner");
    zo_jsonl_array_begin(json, "list");
    zo_jsonl_array_begin(json, NULL);
    zo_jsonl_array_end(json);
    zo_jsonl_object_begin(json, NULL);
    zo_jsonl_object_end(json);
    zo_jsonl_bool(json, NULL, true);
    zo_jsonl_bool(json, NULL, false);
    zo_jsonl_null(json, NULL);
    zo_jsonl_array_end(json);
    zo_jsonl_object_end(json);
    zo_jsonl_ints(json, "ids", ids, 3);
    zo_jsonl_uints(json, "sizes", sizes, 2);
    TAP_CHECK_INT(zo_jsonl_end(json), ZO_OK);
    same = sink_is(&sink, "{}\n{\"kind\":\"step\",\"low\":-9223372036854775808,"
                          "\"inner\":{\"list\":[[],{},true,false,null]},"
                          "\"ids\":[1,-100,2147483647],"
                          "\"sizes\":[0,18446744073709551615]}\n");
    sink_close(&sink);
    TAP_CHECK(same);
}

static bool text_becomes(const char *text, size_t text_bytes, const char *want)
{
    struct sink sink;
    char line[1024];
    bool same;

    sink_open(&sink);
    zo_jsonl_begin(&sink.json);
    zo_jsonl_bytes(&sink.json, "t", text, text_bytes);
    same = zo_jsonl_end(&sink.json) == ZO_OK;
    (void)snprintf(line, sizeof(line), "{\"t\":\"%s\"}\n", want);
    same = same && sink_is(&sink, line);
    sink_close(&sink);
    return same;
}

static void test_escaping(void)
{
    TAP_CHECK(text_becomes("", 0, ""));
    TAP_CHECK(text_becomes("a\"b\\c/d", 7, "a\\\"b\\\\c/d"));
    TAP_CHECK(text_becomes("\b\f\n\r\t", 5, "\\b\\f\\n\\r\\t"));
    TAP_CHECK(text_becomes("\0\x01\x1b[31m\x7f", 8,
                           "\\u0000\\u0001\\u001b[31m\\u007f"));
    TAP_CHECK(text_becomes("\xc2\x9b", 2, "\\u009b")); /* C1: CSI */
    TAP_CHECK(text_becomes("\xe9\x97\xae\xef\xbc\x9a", 6,
                           "\xe9\x97\xae\xef\xbc\x9a"));
    TAP_CHECK(text_becomes("\xf0\x9f\x98\x80", 4, "\xf0\x9f\x98\x80"));
}

static void test_bad_utf8(void)
{
    TAP_CHECK(text_becomes("a\xff", 2, "a\xef\xbf\xbd"));
    TAP_CHECK(text_becomes("\xe9\x97", 2, "\xef\xbf\xbd\xef\xbf\xbd"));
    /* An encoded surrogate is no character. */
    TAP_CHECK(text_becomes("\xed\xa0\x80", 3,
                           "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"));
}

static bool real_becomes(double value, const char *want)
{
    struct sink sink;
    char line[128];
    bool same;

    sink_open(&sink);
    zo_jsonl_begin(&sink.json);
    zo_jsonl_real(&sink.json, "x", value);
    same = zo_jsonl_end(&sink.json) == ZO_OK;
    (void)snprintf(line, sizeof(line), "{\"x\":%s}\n", want);
    same = same && sink_is(&sink, line);
    sink_close(&sink);
    return same;
}

static void test_reals(void)
{
    TAP_CHECK(real_becomes(0.0, "0"));
    TAP_CHECK(real_becomes(65536.0, "65536"));
    TAP_CHECK(real_becomes(0.1, "0.1"));
    TAP_CHECK(real_becomes(-5e-5, "-5e-05"));
    TAP_CHECK(real_becomes(0.1 + 0.2, "0.30000000000000004")); /* 17 */
    TAP_CHECK(real_becomes(1.0 / 3.0, "0.3333333333333333"));  /* 16 */
    TAP_CHECK(real_becomes(1e300, "1e+300"));
    TAP_CHECK(real_becomes(NAN, "null"));
    TAP_CHECK(real_becomes(INFINITY, "null"));
    TAP_CHECK(real_becomes(-INFINITY, "null"));
}

/* Every real reads back as the same bits, whatever they are. */
static void test_reals_round_trip(void)
{
    uint64_t bits = 1;

    for (int i = 0; i < 2000; i++) {
        struct sink sink;
        double value, back;

        bits = bits * 6364136223846793005u + 1442695040888963407u;
        memcpy(&value, &bits, sizeof(value));
        if (!isfinite(value)) {
            continue;
        }
        sink_open(&sink);
        zo_jsonl_begin(&sink.json);
        zo_jsonl_real(&sink.json, "x", value);
        TAP_CHECK_INT(zo_jsonl_end(&sink.json), ZO_OK);
        back = strtod(sink.text + strlen("{\"x\":"), NULL);
        sink_close(&sink);
        TAP_CHECK(memcmp(&back, &value, sizeof(back)) == 0);
    }
}

/* A line fifty times the buffer arrives whole. */
static void test_long_lines(void)
{
    char text[50 * ZO_JSONL_BUFFER_MIN];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (size_t length = 50; length < 80; length++) {
        struct sink sink;
        bool whole;

        sink_open(&sink);
        zo_jsonl_begin(&sink.json);
        zo_jsonl_bytes(&sink.json, "t", text, length);
        zo_jsonl_text(&sink.json, "u", text);
        TAP_CHECK_INT(zo_jsonl_end(&sink.json), ZO_OK);
        whole = sink.text_bytes == length + strlen(text) + 16 &&
                sink.text[sink.text_bytes - 1] == '\n';
        sink_close(&sink);
        TAP_CHECK(whole);
    }
}

static void test_one_write_a_line(void)
{
    struct zo_jsonl json;
    char buffer[256], text[300] = "";
    int ends[2];
    ssize_t got;

    /* A pipe in packet mode keeps writes apart: a read returns one. */
    TAP_CHECK_INT(pipe2(ends, O_DIRECT), 0);
    zo_jsonl_init_fd(&json, ends[1], "pipe", buffer, sizeof(buffer));
    for (int i = 0; i < 2; i++) {
        zo_jsonl_begin(&json);
        zo_jsonl_int(&json, "step", i);
        zo_jsonl_text(&json, "long", "a text that is longer than some");
        TAP_CHECK_INT(zo_jsonl_end(&json), ZO_OK);
    }
    got = read(ends[0], text, sizeof(text) - 1);
    (void)close(ends[0]);
    (void)close(ends[1]);
    TAP_CHECK(got > 0 && text[got - 1] == '\n');
    TAP_CHECK(strstr(text, "\"step\":0") != NULL);
    TAP_CHECK(strstr(text, "\"step\":1") == NULL);
}

static void test_file_errors(void)
{
    struct zo_jsonl json;
    char buffer[ZO_JSONL_BUFFER_MIN], text[500];
    const int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    FILE *file = fopen("/dev/full", "w");

    TAP_CHECK(fd >= 0 && file != NULL);
    memset(text, 'x', sizeof(text));
    zo_jsonl_init_fd(&json, fd, "full.jsonl", buffer, sizeof(buffer));
    for (int i = 0; i < 2; i++) { /* each line tries again */
        zo_jsonl_begin(&json);
        zo_jsonl_bytes(&json, "t", text, sizeof(text));
        TAP_CHECK_INT(zo_jsonl_end(&json), ZO_E_IO);
        TAP_CHECK_INT(zo_err_last()->native, ENOSPC);
        TAP_CHECK(strstr(zo_err_last()->text, "full.jsonl") != NULL);
    }
    zo_jsonl_init_file(&json, file, "full.jsonl", buffer, sizeof(buffer));
    zo_jsonl_begin(&json);
    TAP_CHECK_INT(zo_jsonl_end(&json), ZO_E_IO);
    TAP_CHECK_INT(zo_err_last()->native, ENOSPC);
    (void)close(fd);
    (void)fclose(file);
}

static void test_no_allocation(void)
{
    struct zo_jsonl json;
    char buffer[ZO_JSONL_BUFFER_MIN];
    const int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

    TAP_CHECK(fd >= 0);
    zo_jsonl_init_fd(&json, fd, "null", buffer, sizeof(buffer));
    zo_memory_freeze(true);
    for (int i = 0; i < 100; i++) {
        zo_jsonl_begin(&json);
        zo_jsonl_real(&json, "x", 1.0 / (i + 1));
        TAP_CHECK_INT(zo_jsonl_end(&json), ZO_OK);
    }
    zo_memory_freeze(false);
    (void)close(fd);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"objects and arrays nest, with commas between", test_structure},
        {"quotes, backslashes and control characters are escaped",
         test_escaping},
        {"bytes that are not UTF-8 become U+FFFD", test_bad_utf8},
        {"reals are short, and null when not finite", test_reals},
        {"reals read back as the same bits", test_reals_round_trip},
        {"a line longer than the buffer arrives whole", test_long_lines},
        {"a line that fits leaves in one write", test_one_write_a_line},
        {"a full disk is reported with the file's name", test_file_errors},
        {"a line allocates nothing", test_no_allocation},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
