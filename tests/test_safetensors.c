/*
 * Reading safetensors files: a verdict for every fixture, made or shared,
 * with file and tensor in the message; data and casts; no allocation by a
 * lying header; damage at every byte; memory running out at every place.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/checkpoint/safetensors.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"

/* A row of the verdict table: NULL text means that the file is fine. */
struct verdict {
    const char *name;
    const char *text, *second;
};

static const struct verdict shared_files[] = {
    {"st_array", "want '{', found []", "st_array"},
    {"st_bf16", NULL, NULL},
    {"st_dtype", "tensor \"a\", byte 14: dtype \"F7\" is not known", ""},
    {"st_dup_key", "tensor \"a\" occurs twice", "st_dup_key"},
    {"st_float", "tensor \"a\", byte 29: want a plain integer", "found 4.0]"},
    {"st_gap", "bytes [8, 16] belong to no tensor", "\"a\" and \"b\""},
    {"st_len_2e63", "header of 9223372036854775808 bytes in a file of 70", ""},
    {"st_len_wrap", "header of 18446744073709551613 bytes in a file", ""},
    {"st_meta_null", "\"__metadata__\", byte 16: want '{', found null}", ""},
    {"st_meta_only", NULL, NULL},
    {"st_nan", NULL, NULL},
    {"st_neg", "tensor \"a\", byte 29: want a plain integer", "found -4]"},
    {"st_ok", NULL, NULL},
    {"st_one_offset", "\"a\", byte 50: want two data_offsets", ""},
    {"st_reversed", "tensor \"a\": data_offsets [8, 0] run backwards", ""},
    {"st_scalar", NULL, NULL},
    {"st_tail", "bytes [8, 19] after \"a\" belong to no tensor", ""},
    {"st_unordered", NULL, NULL},
};

static void check_verdict(const char *path, const struct verdict *verdict)
{
    struct zo_tensor_source *source = NULL;
    const enum zo_status status = zo_safetensors_open(path, &source);

    if (verdict->text != NULL) {
        if (fx_refused(status, ZO_E_CORRUPT, verdict->text, verdict->second) &&
            strstr(zo_err_last()->text, path) == NULL) {
            tap_fail(__FILE__, __LINE__, "no path in: %s", zo_err_last()->text);
        }
    } else if (status != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    zo_tensor_source_close(source);
}

static void test_shared_files(void)
{
    if (fx_shared("fixtures") == NULL) {
        tap_skip("no shared fixtures");
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(shared_files); i++) {
        const char *path =
            fx_shared("fixtures/%s.safetensors", shared_files[i].name);

        TAP_CHECK(path != NULL);
        check_verdict(path, &shared_files[i]);
    }
}

/* Each row was found, so as many files as rows means that all have one. */
static void test_table_is_complete(void)
{
    const char *path = fx_shared("fixtures");

    if (path == NULL) {
        tap_skip("no shared fixtures");
        return;
    }
    TAP_CHECK_INT((long long)fx_count_files(path, "st_"),
                  TAP_COUNT(shared_files));
}

/* Made here: a header text and how many data bytes follow it. */
static const struct {
    struct verdict verdict;
    const char *header;
    size_t data_bytes;
} made[] = {
    {{"st_overlap", "bytes [4, 8] belong to both \"a\" and \"b\"", ""},
     "{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[4,12]}}",
     12},
    {{"st_same_bytes", "bytes [0, 8] belong to both", ""},
     "{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}}",
     8},
    {{"st_shape_lie", "\"k\": F16 [5] is 10 bytes, data_offsets [0, 8] are 8",
      ""},
     "{\"k\":{\"dtype\":\"F16\",\"shape\":[5],\"data_offsets\":[0,8]}}",
     8},
    {{"st_mul_wrap", "tensor \"w\": F32 [4294967296, 4294967296, 4]", ""},
     "{\"w\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],"
     "\"data_offsets\":[0,0]}}",
     0},
    {{"st_mul_wrap_bits", "tensor \"w\": F64 [4503599627370496, 1024]", ""},
     "{\"w\":{\"dtype\":\"F64\",\"shape\":[4503599627370496,1024],"
     "\"data_offsets\":[0,0]}}",
     0},
    {{"st_notjson", "byte 0: want '{', found not json", ""}, "not json", 0},
    {{"st_deep", "\"a\", byte 14: want a string, found [[[", ""},
     "{\"a\":{\"dtype\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
     0},
    {{"st_zero_dim", NULL, NULL},
     "{\"a\":{\"dtype\":\"F16\",\"shape\":[4503599627370496,8192,0],"
     "\"data_offsets\":[0,0]},"
     "\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]},"
     "\"c\":{\"dtype\":\"F16\",\"shape\":[3,0],\"data_offsets\":[4,4]}}",
     4},
    {{"st_len_zero", "byte 0: want '{', found the end", ""}, "", 64},
    {{"st_cut", "tensor \"a\": bytes [0, 8] of 7 in the file: cut short", ""},
     "{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}}",
     7},
    {{"st_unknown_key", "tensor \"a\": key \"strides\" is not known", ""},
     "{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"strides\":[1],"
     "\"data_offsets\":[0,8]}}",
     8},
    {{"st_key_twice", "tensor \"a\": key \"shape\" occurs twice", ""},
     "{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"shape\":[4],"
     "\"data_offsets\":[0,8]}}",
     8},
    {{"st_no_dtype", "tensor \"a\" has no \"dtype\"", ""},
     "{\"a\":{\"shape\":[4],\"data_offsets\":[0,8]}}",
     8},
    {{"st_3_offsets", "two data_offsets, no more", "\"a\""},
     "{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8,9]}}",
     8},
    {{"st_rank_9", "\"a\", byte 45: want a shape of at most 8", ""},
     "{\"a\":{\"dtype\":\"F16\",\"shape\":[1,1,1,1,1,1,1,1,4],"
     "\"data_offsets\":[0,8]}}",
     8},
    {{"st_meta_number", "\"__metadata__\", byte 21: want a string", ""},
     "{\"__metadata__\":{\"a\":1}}",
     0},
    {{"st_meta_twice", "\"__metadata__\" occurs twice", ""},
     "{\"__metadata__\":{},\"__metadata__\":{}}",
     0},
    {{"st_trailing", "want the end, found x", ""}, "{}  x", 0},
    {{"st_two_objects", "want the end, found {}", ""}, "{}{}", 0},
    {{"st_not_utf8", "want JSON in UTF-8", "byte 2"}, "{\"\xff\":1}", 0},
    {{"st_2_to_53", "want a plain integer from 0 to 2^53 - 1", "\"a\""},
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],"
     "\"data_offsets\":[9007199254740993,9007199254740993]}}",
     0},
    {{"st_escapes", "tensor \"\\x1b[2J\\x07\", byte 39", "want '{'"},
     "{\"\\u001b[2J\\u0007\":                    5}",
     0},
    {{"st_half_byte", "tensor \"a\": F4 [3] is no size in bytes", ""},
     "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}",
     2},
    {{"st_f4", NULL, NULL},
     "{\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}   ",
     2},
    {{"st_html", "is an HTML page", "fetch it again"}, NULL, 0},
};

static const char html[] = "<!DOCTYPE html><html><body>429</body></html>\n";

static void test_made_files(void)
{
    static const char data[64] = {1, 2, 3};

    for (size_t i = 0; i < TAP_COUNT(made); i++) {
        const char *path = fx_path("%s.safetensors", made[i].verdict.name);

        if (made[i].header == NULL) {
            fx_write_text(path, html);
        } else {
            fx_safetensors(path, made[i].header, data, made[i].data_bytes);
        }
        check_verdict(path, &made[i].verdict);
    }
}

static void test_odd_files(void)
{
    struct zo_tensor_source *source = NULL;
    const char *path;

    path = fx_path("empty");
    fx_write(path, "", 0);
    TAP_CHECK(fx_refused(zo_safetensors_open(path, &source), ZO_E_CORRUPT,
                         "is empty", path));
    path = fx_path("seven");
    fx_write(path, "1234567", 7);
    TAP_CHECK(fx_refused(zo_safetensors_open(path, &source), ZO_E_CORRUPT,
                         "has 7 bytes; a safetensors file starts with 8",
                         path));
    path = fx_path("lfs");
    fx_write_text(path, "version https://git-lfs.github.com/spec/v1\noid "
                        "sha256:00\nsize 1815217640\n");
    TAP_CHECK(fx_refused(zo_safetensors_open(path, &source), ZO_E_CORRUPT,
                         "is a Git LFS pointer of 73 bytes",
                         "1815217640 bytes"));
    TAP_CHECK(fx_refused(zo_safetensors_open(fx_path("none"), &source),
                         ZO_E_USAGE, "cannot open", "No such file"));
    path = fx_path("folder");
    fx_folder(path);
    TAP_CHECK(fx_refused(zo_safetensors_open(path, &source), ZO_E_USAGE,
                         "is a folder; want a file", path));
    TAP_CHECK(fx_refused(zo_safetensors_open("/dev/zero", &source), ZO_E_USAGE,
                         "is a device; want a file", ""));
    TAP_CHECK(source == NULL);
}

static bool open_fifo(void)
{
    struct zo_tensor_source *source = NULL;
    const char *path = fx_path("fifo");

    return mkfifo(path, 0600) == 0 &&
           fx_refused(zo_safetensors_open(path, &source), ZO_E_USAGE,
                      "is a FIFO; want a file", path);
}

/* In a child with an alarm, since a blocking open would wait for ever. */
static void test_fifo_does_not_block(void)
{
    TAP_CHECK(fx_in_child(open_fifo));
}

/* A sparse file: the header that it claims is there, and is zeros. */
static void write_sparse(const char *path, uint64_t header_bytes,
                         uint64_t file_bytes)
{
    struct fx_bytes head = {0};

    fx_add_number(&head, header_bytes, 8);
    fx_add(&head, "{", 1);
    fx_write(path, head.data, head.count);
    fx_bytes_fini(&head);
    TAP_CHECK_INT(truncate(path, (off_t)file_bytes), 0);
}

static bool open_liars(void)
{
    static const struct {
        uint64_t header_bytes, file_bytes;
        const char *text;
    } rows[] = {
        {101000000, 102000000, "header of 101000000 bytes; want at most"},
        {101000000, 60000000, "header of 101000000 bytes in a file of"},
        {UINT64_C(1) << 40, UINT64_C(1) << 41, "header of 1099511627776"},
        {UINT64_MAX, UINT64_C(1) << 41, "header of 18446744073709551615"},
        {UINT64_MAX - 7, 100, "header of 18446744073709551608 bytes in a"},
    };
    const char *path = fx_path("st_len_101mb");

    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        struct zo_tensor_source *source = NULL;
        enum zo_status status;
        uint64_t before;

        write_sparse(path, rows[i].header_bytes, rows[i].file_bytes);
        before = zo_memory_count();
        status = zo_safetensors_open(path, &source);
        if (!fx_refused(status, ZO_E_CORRUPT, rows[i].text, path) ||
            zo_memory_count() > before + 2) { /* reader and path */
            return false;
        }
    }
    return true;
}

static bool open_liars_in_little_memory(void)
{
    return fx_limit_memory((size_t)8 << 20) && open_liars();
}

static void test_lying_headers_allocate_nothing(void)
{
    TAP_CHECK(fx_in_child(open_liars));
#ifndef ZO_SANITIZED
    TAP_CHECK(fx_in_child(open_liars_in_little_memory));
#else
    (void)open_liars_in_little_memory;
#endif
}

/* Three tensors in an order of their own, one of them empty. */
static const char mixed_header[] =
    "{\"half\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[8,16]},"
    "\"single\":{\"shape\":[2],\"data_offsets\":[0,8],\"dtype\":\"F32\"},"
    "\"brain\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[16,18]},"
    "\"none\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[16,16]},"
    "\"byte\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[18,21]},"
    "\"__metadata__\":{\"format\":\"pt\",\"x\":\"\\u00e9\"}}  ";
static const unsigned char mixed_data[21] = {
    0,    0,    0x80, 0x3f, 0,    0xc0, 0x88, 0x47, /* 1.0f 70016.0f */
    0,    0x3c, 0,    0xc0, 0xff, 0x7b, 1,    0,    /* 1 -2 65504 2^-24 */
    0x40, 0xc0,                                     /* -3 */
    7,    8,    9,
};

static struct zo_tensor_source *open_mixed(void)
{
    struct zo_tensor_source *source = NULL;
    const char *path = fx_path("mixed");

    fx_safetensors(path, mixed_header, mixed_data, sizeof(mixed_data));
    return zo_safetensors_open(path, &source) == ZO_OK ? source : NULL;
}

static void test_lists_tensors(void)
{
    struct zo_tensor_source *source = open_mixed();
    const struct zo_tensor_info *info;
    size_t index = 99;

    TAP_CHECK(source != NULL);
    TAP_CHECK_INT((long long)zo_tensor_source_count(source), 5);
    info = zo_tensor_source_info(source, 0);
    TAP_CHECK(strcmp(info->name, "half") == 0);
    TAP_CHECK_INT(info->element, ZO_ELEMENT_F16);
    TAP_CHECK_INT(info->rank, 2);
    TAP_CHECK(info->shape[0] == 2 && info->shape[1] == 2);
    TAP_CHECK(info->elem_count == 4 && info->size_bytes == 8);
    TAP_CHECK(zo_tensor_source_find(source, "brain", &index));
    TAP_CHECK_INT((long long)index, 2);
    info = zo_tensor_source_info(source, 2);
    TAP_CHECK(info->rank == 0 && info->elem_count == 1);
    TAP_CHECK(zo_tensor_source_find(source, "none", &index));
    TAP_CHECK(zo_tensor_source_info(source, index)->size_bytes == 0);
    TAP_CHECK(!zo_tensor_source_find(source, "hal", &index));
    TAP_CHECK(!zo_tensor_source_find(source, "__metadata__", &index));
    TAP_CHECK(strstr(zo_tensor_source_path(source), "mixed") != NULL);
    zo_tensor_source_close(source);
}

static void test_reads_ranges(void)
{
    struct zo_tensor_source *source = open_mixed();
    unsigned char bytes[9] = {0};

    TAP_CHECK(source != NULL);
    TAP_CHECK_INT(zo_tensor_source_read(source, 0, 2, 4, bytes), ZO_OK);
    TAP_CHECK(memcmp(bytes, mixed_data + 10, 4) == 0 && bytes[4] == 0);
    TAP_CHECK_INT(zo_tensor_source_read(source, 4, 1, 2, bytes), ZO_OK);
    TAP_CHECK(bytes[0] == 8 && bytes[1] == 9);
    TAP_CHECK_INT(zo_tensor_source_read(source, 3, 0, 0, bytes), ZO_OK);
    TAP_CHECK(fx_refused(zo_tensor_source_read(source, 0, 8, 2, bytes),
                         ZO_E_ARG, "tensor \"half\": bytes 8 + 2 of 8", ""));
    TAP_CHECK_INT(zo_tensor_source_read(source, 0, 10, 0, bytes), ZO_E_ARG);
    TAP_CHECK_INT(zo_tensor_source_read(source, 0, 1, 2, bytes), ZO_E_ARG);
    TAP_CHECK_INT(zo_tensor_source_read(source, 0, 0, 3, bytes), ZO_E_ARG);
    TAP_CHECK_INT(zo_tensor_source_read(source, 0, UINT64_MAX - 1, 4, bytes),
                  ZO_E_ARG);
    TAP_CHECK_INT(zo_tensor_source_read(source, 0, 8, SIZE_MAX - 1, bytes),
                  ZO_E_ARG);
    zo_tensor_source_close(source);
}

static void test_casts(void)
{
    struct zo_tensor_source *source = open_mixed();
    struct zo_value_counts counts = {0};
    uint16_t half[4];
    float single[4];

    TAP_CHECK(source != NULL);
    TAP_CHECK_INT(
        zo_tensor_source_read_as(source, 0, 0, 4, ZO_F32, single, &counts),
        ZO_OK);
    TAP_CHECK(single[0] == 1.0f && single[1] == -2.0f &&
              single[2] == 65504.0f && single[3] == 0x1p-24f);
    TAP_CHECK_INT(
        zo_tensor_source_read_as(source, 0, 1, 2, ZO_BF16, half, &counts),
        ZO_OK);
    TAP_CHECK(half[0] == 0xc000 && half[1] == 0x4780);
    TAP_CHECK(counts.non_finite == 0 && counts.overflowed == 0);
    TAP_CHECK_INT(
        zo_tensor_source_read_as(source, 1, 0, 2, ZO_F16, half, &counts),
        ZO_OK);
    TAP_CHECK(half[0] == 0x3c00 && half[1] == 0x7c00);
    TAP_CHECK(counts.non_finite == 0 && counts.overflowed == 1);
    TAP_CHECK_INT(
        zo_tensor_source_read_as(source, 2, 0, 1, ZO_F32, single, NULL), ZO_OK);
    TAP_CHECK(single[0] == -3.0f);
    TAP_CHECK(fx_refused(
        zo_tensor_source_read_as(source, 4, 0, 1, ZO_F32, single, NULL),
        ZO_E_SHAPE, "\"byte\" is U8; want F32, BF16 or F16", ""));
    TAP_CHECK_INT(
        zo_tensor_source_read_as(source, 0, 4, 1, ZO_F32, single, NULL),
        ZO_E_ARG);
    TAP_CHECK_INT(
        zo_tensor_source_read_as(source, 0, UINT64_MAX, 2, ZO_F16, half, NULL),
        ZO_E_ARG);
    zo_tensor_source_close(source);
}

/* Larger than the pieces that a cast works in, from an odd place on. */
static void test_casts_many_pieces(void)
{
    const uint64_t count = 30001;
    struct zo_tensor_source *source = NULL;
    float *values = calloc(count, sizeof(values[0]));
    float *back = calloc(count, sizeof(back[0]));
    const char *path = fx_path("large");

    for (uint64_t i = 0; i < count; i++) {
        values[i] = (float)i;
    }
    values[29999] = INFINITY;
    values[3] = NAN;
    fx_safetensors(path,
                   "{\"a\":{\"dtype\":\"F32\",\"shape\":[30001],"
                   "\"data_offsets\":[0,120004]}}",
                   values, count * sizeof(values[0]));
    TAP_CHECK_INT(zo_safetensors_open(path, &source), ZO_OK);
    for (int to = 0; to < 2; to++) {
        struct zo_value_counts counts = {0};

        TAP_CHECK_INT(zo_tensor_source_read_as(source, 0, 1, count - 1,
                                               to == 0 ? ZO_F32 : ZO_BF16, back,
                                               &counts),
                      ZO_OK);
        TAP_CHECK(counts.non_finite == 2 && counts.overflowed == 0);
        for (uint64_t i = 1; i < count; i++) {
            const float got =
                zo_load(back, to == 0 ? ZO_F32 : ZO_BF16, (int64_t)i - 1);
            const float want =
                to == 0 ? values[i] : zo_bf16_to_f32(zo_f32_to_bf16(values[i]));

            TAP_CHECK(got == want || (isnan(got) && isnan(want)));
        }
    }
    zo_tensor_source_close(source);
    free(values);
    free(back);
}

/* 16 bits grow to 32 in place; from and to any element. */
static void test_widened(void)
{
    const enum zo_dtype types[] = {ZO_BF16, ZO_F16};
    const int64_t count = 20011;
    uint16_t *bits = calloc((size_t)count, sizeof(bits[0]));
    float *back = calloc((size_t)count + 1, sizeof(back[0]));
    const char *path = fx_path("narrow");

    for (int64_t i = 0; i < count; i++) {
        bits[i] = (uint16_t)(0x3000 + 7 * i % 0x4000);
    }
    bits[8192 + 5] = 0xffff; /* not a number in either */
    for (size_t t = 0; t < TAP_COUNT(types); t++) {
        struct zo_tensor_source *source = NULL;
        char header[128];

        (void)snprintf(header, sizeof(header),
                       "{\"a\":{\"dtype\":\"%s\",\"shape\":[20011],"
                       "\"data_offsets\":[0,40022]}}",
                       t == 0 ? "BF16" : "F16");
        fx_safetensors(path, header, bits, (size_t)count * sizeof(bits[0]));
        TAP_CHECK_INT(zo_safetensors_open(path, &source), ZO_OK);
        for (int64_t first = 0; first < count; first += 8191) {
            struct zo_value_counts counts = {0};
            const int64_t elems = count - first;

            back[elems] = 1234.5f;
            TAP_CHECK_INT(zo_tensor_source_read_as(source, 0, (uint64_t)first,
                                                   (uint64_t)elems, ZO_F32,
                                                   back, &counts),
                          ZO_OK);
            TAP_CHECK(back[elems] == 1234.5f);
            TAP_CHECK(t == 1 || counts.non_finite == (first <= 8192 + 5));
            for (int64_t i = 0; i < elems; i++) {
                const float want = zo_load(bits, types[t], first + i);

                TAP_CHECK(back[i] == want || (isnan(back[i]) && isnan(want)));
            }
        }
        zo_tensor_source_close(source);
    }
    free(bits);
    free(back);
}

static void test_shared_values(void)
{
    struct zo_value_counts counts = {0};
    struct zo_tensor_source *source = NULL;
    float values[2];

    if (fx_shared("fixtures") == NULL) {
        tap_skip("no shared fixtures");
        return;
    }
    TAP_CHECK_INT(
        zo_safetensors_open(fx_shared("fixtures/st_bf16.safetensors"), &source),
        ZO_OK);
    TAP_CHECK_INT(
        zo_tensor_source_read_as(source, 0, 0, 2, ZO_F32, values, &counts),
        ZO_OK);
    TAP_CHECK(values[0] == 1.0f && values[1] == -3.0f);
    TAP_CHECK(counts.non_finite == 0);
    zo_tensor_source_close(source);
    TAP_CHECK_INT(
        zo_safetensors_open(fx_shared("fixtures/st_nan.safetensors"), &source),
        ZO_OK);
    TAP_CHECK_INT(
        zo_tensor_source_read_as(source, 0, 0, 2, ZO_BF16, values, &counts),
        ZO_OK);
    TAP_CHECK(counts.non_finite == 2 && counts.overflowed == 0);
    zo_tensor_source_close(source);
}

static void test_shared_model(void)
{
    const char *path = fx_shared("vectors/tiny_fp32/tiny_model.safetensors");
    struct zo_tensor_source *source = NULL;
    float values[160 * 64];
    double sum = 0.0;
    uint64_t params = 0;
    size_t index = 0;

    if (path == NULL) {
        tap_skip("no shared vectors");
        return;
    }
    TAP_CHECK_INT(zo_safetensors_open(path, &source), ZO_OK);
    for (size_t i = 0; i < zo_tensor_source_count(source); i++) {
        params += zo_tensor_source_info(source, i)->elem_count;
    }
    TAP_CHECK_INT((long long)zo_tensor_source_count(source), 25);
    TAP_CHECK_INT((long long)params, 113472 + 4); /* and inv_freq */
    TAP_CHECK(zo_tensor_source_find(
        source, "transformer.embedding.word_embeddings.weight", &index));
    TAP_CHECK_INT(zo_tensor_source_read_as(source, index, 0, 160 * 64, ZO_F32,
                                           values, NULL),
                  ZO_OK);
    for (size_t i = 0; i < TAP_COUNT(values); i++) {
        sum += fabs((double)values[i]);
    }
    TAP_CHECK(sum > 1.0 && sum < 1e5);
    zo_tensor_source_close(source);
}

/* The file became shorter after it was opened. */
static void test_shrunk_file(void)
{
    struct zo_tensor_source *source = open_mixed();
    unsigned char bytes[8];

    TAP_CHECK(source != NULL);
    TAP_CHECK_INT(
        truncate(fx_path("mixed"), (off_t)(8 + sizeof(mixed_header) - 1 + 10)),
        0);
    TAP_CHECK(fx_refused(zo_tensor_source_read(source, 0, 0, 8, bytes), ZO_E_IO,
                         "mixed ends at byte", "want 8 bytes"));
    zo_tensor_source_close(source);
}

/* Opens bytes; what opens is read whole. */
static enum zo_status open_bytes(const void *bytes, size_t size_bytes)
{
    struct zo_tensor_source *source = NULL;
    const char *path = fx_path("damaged");
    enum zo_status status;
    char buffer[4096];

    fx_write(path, bytes, size_bytes);
    status = zo_safetensors_open(path, &source);
    for (size_t i = 0; status == ZO_OK && i < zo_tensor_source_count(source);
         i++) {
        const uint64_t size = zo_tensor_source_info(source, i)->size_bytes;

        status =
            size > sizeof(buffer)
                ? ZO_E_NOMEM /* more than the file has */
                : zo_tensor_source_read(source, i, 0, (size_t)size, buffer);
    }
    zo_tensor_source_close(source);
    return status;
}

static void test_survives_damage(void)
{
    size_t size_bytes = 0;
    unsigned seed = 4711;
    char *text;

    zo_tensor_source_close(open_mixed());
    text = fx_read(fx_path("mixed"), &size_bytes);
    TAP_CHECK_INT(open_bytes(text, size_bytes), ZO_OK);
    for (size_t i = 0; i < size_bytes; i++) {
        TAP_CHECK_INT(open_bytes(text, i), ZO_E_CORRUPT);
    }
    for (int i = 0; i < 6000; i++) {
        enum zo_status status;
        char *byte;

        seed = seed * 1664525u + 1013904223u;
        byte = &text[(seed >> 8) % (size_bytes - sizeof(mixed_data))];
        *byte ^= (char)(1u << (seed >> 29));
        status = open_bytes(text, size_bytes);
        *byte ^= (char)(1u << (seed >> 29));
        TAP_CHECK(status == ZO_OK || status == ZO_E_CORRUPT);
    }
    free(text);
}

static void test_survives_no_memory(void)
{
    const char *path = fx_path("mixed");
    enum zo_status status = ZO_E_NOMEM;
    int failures = 0;

    zo_tensor_source_close(open_mixed());
    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        struct zo_tensor_source *source = NULL;

        zo_memory_fail_at(nth);
        status = zo_safetensors_open(path, &source);
        zo_memory_fail_at(0);
        failures += status == ZO_E_NOMEM;
        zo_tensor_source_close(source);
    }
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(failures >= 6);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"every shared file gets its verdict", test_shared_files},
        {"no shared file lacks a verdict", test_table_is_complete},
        {"every made file gets its verdict", test_made_files},
        {"what is no safetensors file is named", test_odd_files},
        {"a FIFO does not block", test_fifo_does_not_block},
        {"a lying header allocates nothing",
         test_lying_headers_allocate_nothing},
        {"tensors are listed and found", test_lists_tensors},
        {"byte ranges are read and checked", test_reads_ranges},
        {"casts round, and count overflows", test_casts},
        {"casts work in pieces", test_casts_many_pieces},
        {"16 bits grow to fp32 in place", test_widened},
        {"shared values are read and counted", test_shared_values},
        {"the reference model is read", test_shared_model},
        {"a file that became shorter is an error", test_shrunk_file},
        {"cut and flipped files get an answer", test_survives_damage},
        {"each failed allocation is clean", test_survives_no_memory},
    };
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
