/*
 * Writing safetensors: exact bytes, what the reader makes of them, and that
 * a failure leaves the path as it was and nothing beside it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/safetensors_writer.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"

static const struct zo_tensor_info two[] = {
    {.name = "b", .element = ZO_ELEMENT_F32, .rank = 2, .shape = {1, 2}},
    {.name = "a\"\n", .element = ZO_ELEMENT_BF16, .rank = 1, .shape = {3}},
};

static enum zo_status write_two(const char *path)
{
    struct zo_safetensors_writer *writer = NULL;
    enum zo_status status = zo_safetensors_writer_open(path, two, 2, &writer);

    if (status == ZO_OK) {
        status = zo_safetensors_writer_append(writer, "12345", 5);
    }
    if (status == ZO_OK) {
        status = zo_safetensors_writer_append(writer, "678abcdef", 9);
    }
    if (status == ZO_OK) {
        status = zo_safetensors_writer_finish(writer);
    }
    zo_safetensors_writer_close(writer);
    return status;
}

static void test_exact_bytes(void)
{
    static const char want[] =
        "\x98\0\0\0\0\0\0\0"
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
        "\"a\\\"\\u000a\":{\"dtype\":\"BF16\",\"shape\":[3],"
        "\"data_offsets\":[8,14]}}  "
        "12345678abcdef";
    size_t size_bytes = 0;
    char *got;

    TAP_CHECK_INT(write_two(fx_path("two")), ZO_OK);
    got = fx_read(fx_path("two"), &size_bytes);
    TAP_CHECK_INT((long long)size_bytes, sizeof(want) - 1);
    TAP_CHECK(memcmp(got, want, size_bytes) == 0);
    TAP_CHECK_INT((unsigned char)got[0] % 8, 0);
    free(got);
    TAP_CHECK(!fx_is_there(fx_path("two.partial")));
}

static void test_reads_back(void)
{
    struct zo_tensor_source *source = NULL;
    char bytes[8];

    TAP_CHECK_INT(write_two(fx_path("back")), ZO_OK);
    TAP_CHECK_INT(zo_safetensors_open(fx_path("back"), &source), ZO_OK);
    TAP_CHECK_INT((long long)zo_tensor_source_count(source), 2);
    TAP_CHECK(strcmp(zo_tensor_source_info(source, 1)->name, "a\"\n") == 0);
    TAP_CHECK_INT(zo_tensor_source_read(source, 1, 2, 4, bytes), ZO_OK);
    TAP_CHECK(memcmp(bytes, "cdef", 4) == 0);
    zo_tensor_source_close(source);
}

/* Every element type, scalars, empty tensors, no tensor at all. */
static void test_reads_back_all_types(void)
{
    struct zo_tensor_info infos[64] = {{0}};
    struct zo_safetensors_writer *writer = NULL;
    struct zo_tensor_source *source = NULL;
    const char *path = fx_path("types");
    char names[64][32], zeros[1024] = {0};
    size_t count = 0, total = 0;

#define ADD_TYPE(type, bits)                           \
    infos[count].element = ZO_ELEMENT_##type;          \
    infos[count].rank = (int)(count % 3);              \
    infos[count].shape[0] = infos[count].shape[1] = 4; \
    count++;
    ZO_ELEMENT_LIST(ADD_TYPE)
#undef ADD_TYPE
    infos[count].rank = 2;
    infos[count++].shape[1] = INT64_C(1) << 40;
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "t%zu", i);
        infos[i].name = names[i];
        if (!zo_tensor_info_measure(&infos[i])) { /* a scalar of 4 bits */
            infos[i].rank = 1;
            TAP_CHECK(zo_tensor_info_measure(&infos[i]));
        }
        total += infos[i].size_bytes;
    }
    TAP_CHECK_INT(zo_safetensors_writer_open(path, infos, count, &writer),
                  ZO_OK);
    while (total > 0) {
        const size_t now = total < 100 ? total : 100;

        TAP_CHECK_INT(zo_safetensors_writer_append(writer, zeros, now), ZO_OK);
        total -= now;
    }
    TAP_CHECK_INT(zo_safetensors_writer_finish(writer), ZO_OK);
    zo_safetensors_writer_close(writer);
    TAP_CHECK_INT(zo_safetensors_open(path, &source), ZO_OK);
    for (size_t i = 0; i < count; i++) {
        const struct zo_tensor_info *info = zo_tensor_source_info(source, i);

        TAP_CHECK_INT(info->element, infos[i].element);
        TAP_CHECK_INT(info->rank, infos[i].rank);
        TAP_CHECK(memcmp(info->shape, infos[i].shape,
                         (size_t)info->rank * sizeof(info->shape[0])) == 0);
    }
    zo_tensor_source_close(source);
    TAP_CHECK_INT(zo_safetensors_writer_open(path, NULL, 0, &writer), ZO_OK);
    TAP_CHECK_INT(zo_safetensors_writer_finish(writer), ZO_OK);
    zo_safetensors_writer_close(writer);
    TAP_CHECK_INT(zo_safetensors_open(path, &source), ZO_OK);
    TAP_CHECK_INT((long long)zo_tensor_source_count(source), 0);
    zo_tensor_source_close(source);
}

/* Until finish the path is as it was; after a close without one, too. */
static void test_is_whole_or_not_at_all(void)
{
    const char *path = fx_path("whole");
    struct zo_safetensors_writer *writer = NULL;
    size_t size_bytes = 0;
    char *text;

    fx_write_text(path, "before");
    TAP_CHECK_INT(zo_safetensors_writer_open(path, two, 2, &writer), ZO_OK);
    TAP_CHECK_INT(zo_safetensors_writer_append(writer, "12345678", 8), ZO_OK);
    TAP_CHECK(fx_is_there(fx_path("whole.partial")));
    TAP_CHECK(fx_refused(zo_safetensors_writer_finish(writer), ZO_E_ARG,
                         "6 bytes of data are missing", path));
    TAP_CHECK(fx_refused(zo_safetensors_writer_append(writer, "1234567", 7),
                         ZO_E_ARG, "7 bytes of data; 6 are left", path));
    zo_safetensors_writer_close(writer);
    TAP_CHECK(!fx_is_there(fx_path("whole.partial")));
    text = fx_read(path, &size_bytes);
    TAP_CHECK(strcmp(text, "before") == 0);
    free(text);
    /* What a killed run has left is no obstacle. */
    fx_write_text(fx_path("whole.partial"), "rest");
    TAP_CHECK_INT(write_two(path), ZO_OK);
    TAP_CHECK(!fx_is_there(fx_path("whole.partial")));
}

static void test_refuses_what_readers_refuse(void)
{
    struct zo_tensor_info infos[2] = {two[0], two[0]};
    struct zo_safetensors_writer *writer = NULL;
    const char *path = fx_path("refused");

    TAP_CHECK(fx_refused(zo_safetensors_writer_open(path, infos, 2, &writer),
                         ZO_E_ARG, "\"b\" occurs twice: not written", path));
    infos[1].name = "__metadata__";
    TAP_CHECK(fx_refused(zo_safetensors_writer_open(path, infos, 2, &writer),
                         ZO_E_ARG, "\"__metadata__\" is not allowed", path));
    infos[1].name = "\xff";
    TAP_CHECK(fx_refused(zo_safetensors_writer_open(path, infos, 2, &writer),
                         ZO_E_ARG, "\"\\xff\" is not allowed", path));
    infos[1].name = "c";
    infos[1].shape[0] = -1;
    TAP_CHECK(fx_refused(zo_safetensors_writer_open(path, infos, 2, &writer),
                         ZO_E_SHAPE, "\"c\": F32 [-1, 2] cannot be written",
                         ""));
    infos[1].shape[0] = INT64_C(1) << 62;
    TAP_CHECK_INT(zo_safetensors_writer_open(path, infos, 2, &writer),
                  ZO_E_SHAPE);
    infos[1].shape[0] = INT64_C(1) << 50;
    TAP_CHECK_INT(zo_safetensors_writer_open(path, infos, 2, &writer),
                  ZO_E_SHAPE);
    infos[1].shape[0] = 1;
    infos[1].rank = 9;
    TAP_CHECK_INT(zo_safetensors_writer_open(path, infos, 2, &writer),
                  ZO_E_SHAPE);
    TAP_CHECK(!fx_is_there(path));
    TAP_CHECK(!fx_is_there(fx_path("refused.partial")));
}

/* Readers take headers of 100 MB: 2 million tensors need more. */
static void test_refuses_a_header_that_no_one_reads(void)
{
    enum { COUNT = 2000000, NAME = 16 };
    struct zo_tensor_info *infos = calloc(COUNT, sizeof(infos[0]));
    char *names = malloc((size_t)COUNT * NAME);
    struct zo_safetensors_writer *writer = NULL;
    const char *path = fx_path("million");

    for (size_t i = 0; i < COUNT; i++) {
        (void)snprintf(names + i * NAME, NAME, "%zu", i);
        infos[i].name = names + i * NAME;
        infos[i].element = ZO_ELEMENT_F32;
        infos[i].rank = 1;
    }
    TAP_CHECK(fx_refused(
        zo_safetensors_writer_open(path, infos, COUNT, &writer), ZO_E_ARG,
        "for 2000000 tensors; readers take at most 100000000", path));
    TAP_CHECK(!fx_is_there(fx_path("million.partial")));
    free(infos);
    free(names);
}

static bool write_over_the_limit(void)
{
    const struct zo_tensor_info info = {.name = "large",
                                        .element = ZO_ELEMENT_U8,
                                        .rank = 1,
                                        .shape = {100000}};
    const struct rlimit limit = {50000, 50000};
    struct zo_safetensors_writer *writer = NULL;
    const char *path = fx_path("limit");
    static char data[100000];
    bool is_refused;

    (void)signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 ||
        zo_safetensors_writer_open(path, &info, 1, &writer) != ZO_OK) {
        return false;
    }
    is_refused = fx_refused(zo_safetensors_writer_append(writer, data, 100000),
                            ZO_E_IO, "cannot write", "File too large") &&
                 strstr(zo_err_last()->text, "at 50000 of") != NULL &&
                 strstr(zo_err_last()->text, "B free") != NULL &&
                 zo_err_last()->native == EFBIG;
    zo_safetensors_writer_close(writer);
    return is_refused && !fx_is_there(fx_path("limit.partial")) &&
           !fx_is_there(path);
}

static void test_failed_writes_say_what(void)
{
    struct zo_disk_file full = {.path = strdup("/dev/full"), .size_bytes = 7};

    TAP_CHECK(fx_in_child(write_over_the_limit));
    full.fd = open("/dev/full", O_WRONLY);
    TAP_CHECK(full.fd >= 0);
    TAP_CHECK(fx_refused(zo_disk_append(&full, "123", 3), ZO_E_IO,
                         "cannot write 3 bytes at 7 of /dev/full",
                         "No space left on device; "));
    zo_disk_close(&full);
    TAP_CHECK(fx_refused(write_two(fx_path("no/such/folder")), ZO_E_IO,
                         "cannot create", "no/such/folder.partial"));
}

static void test_survives_no_memory(void)
{
    enum zo_status status = ZO_E_NOMEM;
    int failures = 0;

    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        zo_memory_fail_at(nth);
        status = write_two(fx_path("memory"));
        zo_memory_fail_at(0);
        failures += status == ZO_E_NOMEM;
        TAP_CHECK(!fx_is_there(fx_path("memory.partial")));
        TAP_CHECK(fx_is_there(fx_path("memory")) == (status == ZO_OK));
    }
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(failures >= 5);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"bytes are exact, and the header padded to 8", test_exact_bytes},
        {"the reader reads it back", test_reads_back},
        {"all types, scalars and nothing read back", test_reads_back_all_types},
        {"a file is whole or not there", test_is_whole_or_not_at_all},
        {"what readers refuse is not written",
         test_refuses_what_readers_refuse},
        {"a header above the readers' limit is not written",
         test_refuses_a_header_that_no_one_reads},
        {"a failed write names path, bytes, cause and room",
         test_failed_writes_say_what},
        {"each failed allocation leaves nothing", test_survives_no_memory},
    };
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
