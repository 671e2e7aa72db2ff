/*
 * The zip directory reader: stored entries of both widths are found; what
 * contradicts itself, leaves its folder, or lies about sizes is refused, and
 * nothing is allocated by it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/checkpoint/zip_archive.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"

static const char path_name[] = "archive";

/* Opens the file, finds an entry, and reads its first bytes. */
static enum zo_status read_entry(const char *name, char *bytes,
                                 size_t size_bytes)
{
    struct zo_zip_archive archive = {0};
    const struct zo_zip_entry *entry;
    struct zo_disk_file file;
    enum zo_status status;
    uint64_t data_at = 0;

    status = zo_disk_open(fx_path(path_name), &file);
    if (status != ZO_OK) {
        return status;
    }
    status = zo_zip_archive_open(&file, &archive);
    entry = status == ZO_OK ? zo_zip_archive_find(&archive, name) : NULL;
    if (entry != NULL) {
        status = zo_zip_archive_locate(&file, entry, &data_at);
    }
    if (entry != NULL && status == ZO_OK && entry->size_bytes >= size_bytes) {
        status = zo_disk_read(&file, data_at, bytes, size_bytes);
    }
    zo_zip_archive_close(&archive);
    zo_disk_close(&file);
    return status;
}

/* Two entries, the second with this name, in an archive of this kind. */
static enum zo_status try_archive(struct fx_zip zip, const char *name)
{
    char bytes[6] = {0};
    enum zo_status status;

    fx_zip_add(&zip, "m/first", "12345678", 8);
    fx_zip_add(&zip, name, "abcdefg", 7);
    fx_zip_write(&zip, fx_path(path_name));
    status = read_entry(name, bytes, 5);
    if (status == ZO_OK && strcmp(bytes, "abcde") != 0) {
        tap_fail(__FILE__, __LINE__, "%s: other bytes", name);
    }
    return status;
}

static void test_stored_entries(void)
{
    const struct fx_zip stored = {0}, zip64 = {.zip64 = true};

    TAP_CHECK_INT(try_archive(stored, "m/second"), ZO_OK);
    TAP_CHECK_INT(try_archive(zip64, "m/second"), ZO_OK);
    TAP_CHECK_INT(try_archive(stored, "a"), ZO_OK);
}

static enum zo_status check(const char *path, size_t *checked)
{
    struct zo_zip_archive archive = {0};
    struct zo_disk_file file;
    enum zo_status status;

    ZO_TRY(zo_disk_open(path, &file));
    status = zo_zip_archive_open(&file, &archive);
    if (status == ZO_OK) {
        status = zo_zip_archive_check(&file, &archive, checked);
    }
    zo_zip_archive_close(&archive);
    zo_disk_close(&file);
    return status;
}

/* A byte of the content that flips is named, where there is a sum. */
static void test_sums(void)
{
    for (int has = 0; has < 2; has++) {
        struct fx_zip zip = {.has_crcs = has == 1};
        const char *path = fx_path(path_name);
        size_t checked = 9;
        FILE *file;

        fx_zip_add(&zip, "m/first", "12345678", 8);
        fx_zip_add(&zip, "m/second", "abcdefg", 7);
        fx_zip_write(&zip, path);
        TAP_CHECK_INT(check(path, &checked), ZO_OK);
        TAP_CHECK_INT(checked, 2 * has);
        file = fopen(path, "r+");
        TAP_CHECK(file != NULL);
        TAP_CHECK(fseek(file, 30 + 7 + 6 + 2, SEEK_SET) == 0);
        TAP_CHECK(fputc('4', file) == '4' && fclose(file) == 0);
        TAP_CHECK_INT(check(path, &checked), has ? ZO_E_CORRUPT : ZO_OK);
        TAP_CHECK(!has || strstr(zo_err_last()->text, "\"m/first\"") != NULL);
    }
}

static void test_other_methods(void)
{
    const struct fx_zip deflated = {.method = 8}, locked = {.flags = 1};
    const struct fx_zip other = {.method = 93};

    TAP_CHECK(fx_refused(try_archive(deflated, "m/x"), ZO_E_NOSUPPORT,
                         "\"m/x\" is compressed (method 8, deflate)",
                         "load and save the file again"));
    TAP_CHECK(fx_refused(try_archive(other, "m/x"), ZO_E_NOSUPPORT,
                         "\"m/x\" is compressed (method 93)", path_name));
    TAP_CHECK(fx_refused(try_archive(locked, "m/x"), ZO_E_NOSUPPORT,
                         "\"m/x\" is encrypted", path_name));
}

static void test_names(void)
{
    static const char *const bad[] = {"../x", "/etc/x", "m/../../x", "m\\..\\x",
                                      "..",   "m/..",   ""};
    static const char *const good[] = {"m/...", "m/..x/y..", "m/.x",
                                       "m/\xe4\xbd\xa0"};
    const struct fx_zip stored = {0};

    for (size_t i = 0; i < TAP_COUNT(bad); i++) {
        TAP_CHECK(fx_refused(try_archive(stored, bad[i]), ZO_E_CORRUPT, bad[i],
                             "leaves the archive's folder: refused"));
    }
    for (size_t i = 0; i < TAP_COUNT(good); i++) {
        TAP_CHECK_INT(try_archive(stored, good[i]), ZO_OK);
    }
    TAP_CHECK(fx_refused(try_archive(stored, "m/first"), ZO_E_CORRUPT,
                         "entry \"m/first\" occurs twice", path_name));
    TAP_CHECK(fx_refused(try_archive(stored, "\x1b[2J/../x"), ZO_E_CORRUPT,
                         "\"\\x1b[2J/../x\"", "refused"));
}

/* An archive of two entries with some bytes replaced, counted from its end. */
static enum zo_status try_patched(size_t from_end, uint64_t value,
                                  size_t size_bytes)
{
    const char *path = fx_path(path_name);
    struct fx_zip zip = {0};
    size_t file_bytes = 0;
    char ignored[1];
    char *text;

    fx_zip_add(&zip, "m/first", "12345678", 8);
    fx_zip_add(&zip, "m/second", "abcdefg", 7);
    fx_zip_write(&zip, path);
    text = fx_read(path, &file_bytes);
    for (size_t i = 0; i < size_bytes; i++) {
        text[file_bytes - from_end + i] = (char)(value >> (8 * i));
    }
    fx_write(path, text, file_bytes);
    free(text);
    return read_entry("m/second", ignored, 1);
}

/* Distances from the end of the file to the fields of the end record ... */
#define END_PART   (22 - 4)
#define END_COUNTS (22 - 8)
#define END_SIZE   (22 - 12)
#define END_AT     (22 - 16)
/* ... of the last directory entry, whose name has 8 bytes ... */
#define LAST_MAGIC  (22 + 8 + 46)
#define LAST_STORED (LAST_MAGIC - 20)
#define LAST_SIZE   (LAST_MAGIC - 24)
#define LAST_NAME   (LAST_MAGIC - 28)
#define LAST_HEADER (LAST_MAGIC - 42)
/* ... and of its local header: directory, data, extra field, name. */
#define LOCAL_MAGIC   (LAST_MAGIC + 7 + 46 + 7 + 6 + 8 + 30)
#define LOCAL_METHOD  (LOCAL_MAGIC - 8)
#define LOCAL_LENGTHS (LOCAL_MAGIC - 26)

static const struct {
    size_t from_end;
    uint64_t value;
    size_t size_bytes;
    enum zo_status status;
    const char *text;
} patches[] = {
    {END_PART, 1, 2, ZO_E_NOSUPPORT, "is one part of an archive in several"},
    {END_COUNTS, 0x00010002, 4, ZO_E_NOSUPPORT, "is one part of an archive"},
    {END_COUNTS, 0xffffffff, 4, ZO_E_CORRUPT, "directory of 65535 entries"},
    {END_COUNTS, 0x00030003, 4, ZO_E_CORRUPT, "directory of 3 entries"},
    {END_SIZE, 0x7fffffff, 4, ZO_E_CORRUPT, "2 entries, 2147483647 bytes"},
    {END_SIZE, 90, 4, ZO_E_CORRUPT, "directory of 2 entries, 90 bytes"},
    {END_SIZE, 106, 4, ZO_E_CORRUPT, "entry 2 of 2 is damaged"},
    {END_AT, 0xfffffff0, 4, ZO_E_CORRUPT, "bytes at 4294967280"},
    {END_AT, 1, 4, ZO_E_CORRUPT, "entry 1 of 2 is damaged"},
    {LAST_MAGIC, 0x12345678, 4, ZO_E_CORRUPT, "entry 2 of 2 is damaged"},
    {LAST_NAME, 0xffff, 2, ZO_E_CORRUPT, "entry 2 of 2 is damaged"},
    {LAST_NAME, 9, 2, ZO_E_CORRUPT, "entry 2 of 2 is damaged"},
    {LAST_STORED, 0x7fffffff, 4, ZO_E_CORRUPT, "\"m/second\", 2147483647"},
    {LAST_STORED, 0xffffffff, 4, ZO_E_CORRUPT, "entry 2 of 2 is damaged"},
    {LAST_STORED, 22, 4, ZO_E_CORRUPT, "\"m/second\", 22 bytes at 51, runs"},
    {LAST_STORED, 6, 4, ZO_E_NOSUPPORT, "\"m/second\" is compressed"},
    {LAST_SIZE, 0x7fffffff, 4, ZO_E_NOSUPPORT, "\"m/second\" is compressed"},
    {LAST_HEADER, 0, 4, ZO_E_CORRUPT, "runs into what begins at 0"},
    {LAST_HEADER, 50, 4, ZO_E_CORRUPT, "contradicts the zip directory"},
    {LAST_HEADER, 20, 4, ZO_E_CORRUPT, "runs into what begins at 20"},
    {LAST_HEADER, 0xfffffff0, 4, ZO_E_CORRUPT, "at 4294967280, runs into"},
    {LOCAL_MAGIC, 0, 4, ZO_E_CORRUPT, "header at byte 51 contradicts"},
    {LOCAL_METHOD, 8, 2, ZO_E_CORRUPT, "header at byte 51 contradicts"},
    {LOCAL_LENGTHS, 0x00060007, 4, ZO_E_CORRUPT, "at byte 51 contradicts"},
    {LOCAL_LENGTHS, 0xffff0008, 4, ZO_E_CORRUPT, "at byte 51 contradicts"},
    {LOCAL_LENGTHS, 0x00070008, 4, ZO_E_CORRUPT, "at byte 51 contradicts"},
};

static bool try_patches(void)
{
    for (size_t i = 0; i < TAP_COUNT(patches); i++) {
        if (!fx_refused(try_patched(patches[i].from_end, patches[i].value,
                                    patches[i].size_bytes),
                        patches[i].status, patches[i].text, path_name)) {
            tap_fail(__FILE__, __LINE__, "row %zu", i);
            return false;
        }
    }
    return true;
}

static bool try_patches_in_little_memory(void)
{
    return fx_limit_memory((size_t)16 << 20) && try_patches();
}

static void test_contradictions(void)
{
    TAP_CHECK_INT(try_patched(END_COUNTS, 0x00020002, 4), ZO_OK);
    TAP_CHECK_INT(try_patched(LOCAL_METHOD, 0, 2), ZO_OK);
    TAP_CHECK(try_patches());
#ifndef ZO_SANITIZED
    TAP_CHECK(fx_in_child(try_patches_in_little_memory));
#else
    (void)try_patches_in_little_memory;
#endif
}

/* The 64-bit end record at a place where it cannot be, or lying. */
static void test_lying_zip64(void)
{
    static const struct {
        size_t from_end;
        uint64_t value;
        const char *text;
    } rows[] = {
        {22 + 12, UINT64_MAX, "zip64 end record at 18446744073709551615"},
        {22 + 12, UINT64_C(1) << 40, "zip64 end record at 1099511627776"},
        {22 + 12, 0, "no zip64 end record at byte 0"},
        {22 + 20 + 8, UINT64_MAX - 3, "bytes at 18446744073709551612"},
        {22 + 20 + 16, UINT64_MAX - 3, "entries, 18446744073709551612 bytes"},
        {22 + 20 + 24, UINT64_C(1) << 62, "of 4611686018427387904 entries"},
    };
    const char *path = fx_path(path_name);
    struct fx_zip zip = {.zip64 = true};
    size_t size_bytes = 0;
    char *text, ignored[1];

    fx_zip_add(&zip, "m/first", "12345678", 8);
    fx_zip_write(&zip, path);
    text = fx_read(path, &size_bytes);
    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        char *field = text + size_bytes - rows[i].from_end;
        char was[8];

        memcpy(was, field, 8);
        memcpy(field, &rows[i].value, 8);
        fx_write(path, text, size_bytes);
        memcpy(field, was, 8);
        TAP_CHECK(fx_refused(read_entry("m/first", ignored, 1), ZO_E_CORRUPT,
                             rows[i].text, path));
    }
    free(text);
}

static void test_survives_damage(void)
{
    const char *path = fx_path(path_name);
    size_t size_bytes = 0;
    unsigned seed = 31;
    char *text, bytes[8];

    for (int wide = 0; wide < 2; wide++) {
        const struct fx_zip zip = {.zip64 = wide == 1};

        TAP_CHECK_INT(try_archive(zip, "m/second"), ZO_OK);
        text = fx_read(path, &size_bytes);
        for (size_t i = 0; i < size_bytes; i++) {
            fx_write(path, text, i);
            TAP_CHECK_INT(read_entry("m/second", bytes, 1), ZO_E_CORRUPT);
        }
        for (int i = 0; i < 4000; i++) {
            enum zo_status status;
            char *byte, was;

            seed = seed * 1664525u + 1013904223u;
            byte = &text[(seed >> 8) % size_bytes];
            was = *byte;
            *byte = (char)(seed >> 24);
            fx_write(path, text, size_bytes);
            *byte = was;
            status = read_entry("m/second", bytes, 1);
            TAP_CHECK(status == ZO_OK || status == ZO_E_CORRUPT ||
                      status == ZO_E_NOSUPPORT);
        }
        free(text);
    }
}

static void test_survives_no_memory(void)
{
    enum zo_status status = ZO_E_NOMEM;
    const struct fx_zip stored = {0};
    int failures = 0;
    char bytes[8];

    TAP_CHECK_INT(try_archive(stored, "m/second"), ZO_OK);
    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        zo_memory_fail_at(nth);
        status = read_entry("m/second", bytes, 1);
        zo_memory_fail_at(0);
        failures += status == ZO_E_NOMEM;
    }
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(failures >= 4);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"stored entries are found and read", test_stored_entries},
        {"contents are compared with their sums", test_sums},
        {"compressed and encrypted entries are named", test_other_methods},
        {"names that leave the folder are refused", test_names},
        {"contradictions are refused, without memory", test_contradictions},
        {"a lying zip64 record is refused", test_lying_zip64},
        {"cut and changed archives get an answer", test_survives_damage},
        {"each failed allocation is clean", test_survives_no_memory},
    };
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
