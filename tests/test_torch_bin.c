/*
 * Reading torch .bin files: a verdict for every fixture, shared or made;
 * views of every kind against values worked out by hand; the reference
 * shards against the checksums in their own archives; damage at every byte;
 * memory running out at every place.  Nothing that a pickle asks for is done.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/checkpoint/torch_bin.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"

static const struct fx_view plain = {
    .name = "w",
    .type = "Half",
    .key = "0",
    .storage_elems = 6,
    .rank = 2,
    .shape = {2, 3},
    .strides = {3, 1},
};
static const uint16_t plain_data[6] = {10, 11, 12, 13, 14, 15};

static struct zo_tensor_source *open_views(const char *path,
                                           const struct fx_view *views,
                                           size_t view_count, const void *data,
                                           size_t size_bytes)
{
    const struct fx_storage storage = {data, size_bytes};
    struct zo_tensor_source *source = NULL;

    fx_torch_bin(path, views, view_count, &storage, 1);
    if (zo_torch_bin_open(path, &source) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    return source;
}

/* ---- shared files --------------------------------------------------- */

static const struct {
    const char *name;
    enum zo_status status;
    const char *text;
} shared_files[] = {
    {"bin_deep", ZO_E_CORRUPT, "is a bare pickle, not a file of torch.save()"},
    {"bin_evil", ZO_E_CORRUPT, "asks for posix.mkdir, which no weights need"},
    {"bin_html", ZO_E_CORRUPT, "is an HTML page"},
    {"bin_lfs", ZO_E_CORRUPT, "is a Git LFS pointer of 135 bytes"},
    {"bin_slip", ZO_E_CORRUPT, "\"../../data.pkl\" leaves the archive's"},
    {"bin_trunc", ZO_E_CORRUPT, "a download that was cut short"},
};

/* The folder that the evil pickle would make: its one path. */
static void check_nothing_ran(const char *path)
{
    size_t size_bytes = 0;
    char *bytes = fx_read(path, &size_bytes), *made = bytes;

    while (made < bytes + size_bytes && memcmp(made, "X\x0f\0\0\0/", 6) != 0) {
        made++;
    }
    TAP_CHECK(made < bytes + size_bytes);
    made[5 + 15] = '\0';
    TAP_CHECK(!fx_is_there(made + 5));
    free(bytes);
}

static void test_shared_files(void)
{
    struct zo_tensor_source *source = NULL;

    if (fx_shared("fixtures") == NULL) {
        tap_skip("no shared fixtures");
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(shared_files); i++) {
        const char *path = fx_shared("fixtures/%s.bin", shared_files[i].name);

        TAP_CHECK(path != NULL);
        TAP_CHECK(fx_refused(zo_torch_bin_open(path, &source),
                             shared_files[i].status, shared_files[i].text,
                             path));
    }
    TAP_CHECK(source == NULL);
    check_nothing_ran(fx_shared("fixtures/bin_evil.bin"));
}

static void test_table_is_complete(void)
{
    const char *path = fx_shared("fixtures");

    if (path == NULL) {
        tap_skip("no shared fixtures");
        return;
    }
    TAP_CHECK_INT((long long)fx_count_files(path, "bin_"),
                  TAP_COUNT(shared_files));
}

static uint32_t crc32_of(const unsigned char *bytes, size_t size_bytes)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < size_bytes; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (0xedb88320u & -(crc & 1u));
        }
    }
    return ~crc;
}

/* Checksums as the archives of the reference shards list them. */
static const struct {
    int shard;
    const char *name;
    uint32_t crc;
} reference[] = {
    {1, "transformer.embedding.word_embeddings.weight", 0xf478ec90},
    {1, "transformer.encoder.layers.0.input_layernorm.weight", 0xdbfa84df},
    {1, "transformer.encoder.layers.0.self_attention.query_key_value.weight",
     0x97f0e1ef},
    {1, "transformer.encoder.layers.0.self_attention.query_key_value.bias",
     0xdc9fce0f},
    {1, "transformer.encoder.layers.0.self_attention.dense.weight", 0x39950be7},
    {2, "transformer.rotary_pos_emb.inv_freq", 0x1a927b16},
};

static void test_shared_shards(void)
{
    struct zo_tensor_source *shards[3] = {NULL};
    unsigned char bytes[65536];

    if (fx_shared("vectors/tiny_fp16_bin") == NULL) {
        tap_skip("no shared vectors");
        return;
    }
    for (int i = 1; i <= 2; i++) {
        const char *path = fx_shared(
            "vectors/tiny_fp16_bin/pytorch_model-0000%d-of-00002.bin", i);

        TAP_CHECK_INT(zo_torch_bin_open(path, &shards[i]), ZO_OK);
    }
    TAP_CHECK_INT((long long)zo_tensor_source_count(shards[1]), 13);
    TAP_CHECK_INT((long long)zo_tensor_source_count(shards[2]), 12);
    for (size_t i = 0; i < TAP_COUNT(reference); i++) {
        const struct zo_tensor_source *source = shards[reference[i].shard];
        const struct zo_tensor_info *info;
        size_t index = 0;

        TAP_CHECK(zo_tensor_source_find(source, reference[i].name, &index));
        info = zo_tensor_source_info(source, index);
        TAP_CHECK_INT(info->element, ZO_ELEMENT_F16);
        TAP_CHECK(info->size_bytes <= sizeof(bytes));
        TAP_CHECK_INT(zo_tensor_source_read(source, index, 0,
                                            (size_t)info->size_bytes, bytes),
                      ZO_OK);
        TAP_CHECK_INT(crc32_of(bytes, (size_t)info->size_bytes),
                      reference[i].crc);
    }
    zo_tensor_source_close(shards[1]);
    zo_tensor_source_close(shards[2]);
}

/* ---- views ---------------------------------------------------------- */

/*
 * Reads every range of a tensor of 16-bit numbers and compares it with the
 * definition: element (i, j, k) is storage[first + i*s0 + j*s1 + k*s2].
 */
static void check_view(const struct fx_view *view, const uint16_t *storage,
                       size_t storage_bytes)
{
    struct zo_tensor_source *source =
        open_views(fx_path("view"), view, 1, storage, storage_bytes);
    const struct zo_tensor_info *info;
    uint16_t want[512], got[512];
    size_t count = 0;

    TAP_CHECK(source != NULL);
    info = zo_tensor_source_info(source, 0);
    for (uint64_t i = 0; i < info->elem_count; i++) {
        uint64_t rest = i, at = view->first_elem;

        for (int d = view->rank; d-- > 0;) {
            at += rest % (uint64_t)view->shape[d] * (uint64_t)view->strides[d];
            rest /= (uint64_t)view->shape[d];
        }
        want[count++] = storage[at];
    }
    for (size_t first = 0; first < count; first++) {
        for (size_t end = first + 1; end <= count; end++) {
            memset(got, 0xee, sizeof(got));
            TAP_CHECK_INT(zo_tensor_source_read(source, 0, 2 * first,
                                                2 * (end - first), got),
                          ZO_OK);
            if (memcmp(got, want + first, 2 * (end - first)) != 0 ||
                got[end - first] != 0xeeee) {
                tap_fail(__FILE__, __LINE__, "%s [%zu, %zu)", view->name, first,
                         end);
                return;
            }
        }
    }
    zo_tensor_source_close(source);
}

static void test_views(void)
{
    static const struct fx_view views[] = {
        {"plain", "Half", "0", 60, 0, 2, {5, 12}, {12, 1}},
        {"offset", "Half", "0", 60, 7, 2, {4, 12}, {12, 1}},
        {"transposed", "Half", "0", 60, 0, 2, {12, 5}, {1, 12}},
        {"columns", "Half", "0", 60, 3, 2, {5, 4}, {12, 1}},
        {"every third", "Half", "0", 60, 2, 1, {19}, {3}},
        {"columns apart", "Half", "0", 60, 1, 2, {5, 6}, {12, 2}},
        {"transposed columns", "Half", "0", 60, 1, 2, {6, 5}, {2, 12}},
        {"permuted", "Half", "0", 60, 0, 3, {4, 5, 3}, {3, 12, 1}},
        {"reversed order", "Half", "0", 60, 0, 3, {3, 4, 5}, {1, 3, 12}},
        {"inner ones", "Half", "0", 60, 4, 3, {6, 1, 8}, {8, 99, 1}},
        {"ones to transpose", "Half", "0", 60, 0, 3, {8, 1, 6}, {1, 5, 8}},
        {"scalar", "Half", "0", 60, 59, 0, {0}, {0}},
        {"last", "Half", "0", 60, 59, 1, {1}, {1000}},
        {"rank 8",
         "Half",
         "0",
         60,
         0,
         8,
         {2, 1, 3, 1, 2, 1, 1, 5},
         {5, 1, 20, 1, 10, 1, 1, 1}},
    };
    uint16_t storage[60];

    for (size_t i = 0; i < TAP_COUNT(storage); i++) {
        storage[i] = (uint16_t)(1000 + i);
    }
    for (size_t i = 0; i < TAP_COUNT(views); i++) {
        check_view(&views[i], storage, sizeof(storage));
    }
}

/* Larger than the window through which views are read, and cast on the way. */
static void test_large_view(void)
{
    enum { ROWS = 300, COLUMNS = 257 };
    static float storage[ROWS * COLUMNS], got[ROWS * COLUMNS];
    const struct fx_view view = {
        "w", "Float", "0", ROWS * COLUMNS, 0, 2, {COLUMNS, ROWS}, {1, COLUMNS}};
    struct zo_tensor_source *source;

    for (size_t i = 0; i < TAP_COUNT(storage); i++) {
        storage[i] = (float)i;
    }
    source = open_views(fx_path("large"), &view, 1, storage, sizeof(storage));
    TAP_CHECK(source != NULL);
    TAP_CHECK_INT(zo_tensor_source_read_as(source, 0, 0, ROWS * COLUMNS, ZO_F32,
                                           got, NULL),
                  ZO_OK);
    for (int i = 0; i < COLUMNS; i++) {
        for (int j = 0; j < ROWS; j++) {
            TAP_CHECK(got[i * ROWS + j] == storage[j * COLUMNS + i]);
        }
    }
    TAP_CHECK_INT(zo_tensor_source_read_as(source, 0, 5, ROWS * COLUMNS - 5,
                                           ZO_BF16, got, NULL),
                  ZO_OK);
    TAP_CHECK(zo_load(got, ZO_BF16, 0) ==
              zo_bf16_to_f32(zo_f32_to_bf16(storage[5 * COLUMNS])));
    zo_tensor_source_close(source);
}

static void test_shared_storage(void)
{
    static const struct fx_view views[] = {
        {"a", "Half", "0", 6, 0, 2, {2, 3}, {3, 1}},
        {"b", "Half", "0", 6, 0, 2, {3, 2}, {1, 3}},
        {"c", "Half", "0", 6, 3, 1, {3}, {1}},
        {"empty", "Half", "0", 6, 0, 2, {0, 4}, {4, 1}},
    };
    struct zo_tensor_source *source =
        open_views(fx_path("shared"), views, TAP_COUNT(views), plain_data,
                   sizeof(plain_data));
    uint16_t got[6];
    size_t index = 0;

    TAP_CHECK(source != NULL);
    TAP_CHECK_INT(zo_tensor_source_read(source, 1, 0, 12, got), ZO_OK);
    TAP_CHECK(got[0] == 10 && got[1] == 13 && got[2] == 11 && got[5] == 15);
    TAP_CHECK(zo_tensor_source_find(source, "c", &index) && index == 2);
    TAP_CHECK_INT(zo_tensor_source_read(source, 2, 2, 4, got), ZO_OK);
    TAP_CHECK(got[0] == 14 && got[1] == 15);
    TAP_CHECK_INT(zo_tensor_source_read(source, 3, 0, 0, got), ZO_OK);
    zo_tensor_source_close(source);
}

static void test_number_types(void)
{
    static const struct {
        const char *type;
        enum zo_element element;
        unsigned elem_bytes;
    } rows[] = {
        {"Float", ZO_ELEMENT_F32, 4},        {"Half", ZO_ELEMENT_F16, 2},
        {"BFloat16", ZO_ELEMENT_BF16, 2},    {"Double", ZO_ELEMENT_F64, 8},
        {"Long", ZO_ELEMENT_I64, 8},         {"Int", ZO_ELEMENT_I32, 4},
        {"Short", ZO_ELEMENT_I16, 2},        {"Char", ZO_ELEMENT_I8, 1},
        {"Byte", ZO_ELEMENT_U8, 1},          {"Bool", ZO_ELEMENT_BOOL, 1},
        {"ComplexFloat", ZO_ELEMENT_C64, 8},
    };
    struct fx_view view = {"w", "", "0", 2, 0, 1, {2}, {1}};
    char data[16] = {0};

    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        struct zo_tensor_source *source;

        view.type = rows[i].type;
        source = open_views(fx_path("types"), &view, 1, data,
                            2 * rows[i].elem_bytes);
        TAP_CHECK(source != NULL);
        TAP_CHECK_INT(zo_tensor_source_info(source, 0)->element,
                      rows[i].element);
        zo_tensor_source_close(source);
    }
}

static void test_bf16_values(void)
{
    static const struct fx_view view = {"w", "BFloat16", "0", 2,
                                        0,   1,          {2}, {1}};
    static const uint16_t data[2] = {0x3f80, 0xc040};
    struct zo_tensor_source *source =
        open_views(fx_path("bf16"), &view, 1, data, sizeof(data));
    float got[2];

    TAP_CHECK(source != NULL);
    TAP_CHECK_INT(zo_tensor_source_read_as(source, 0, 0, 2, ZO_F32, got, NULL),
                  ZO_OK);
    TAP_CHECK(got[0] == 1.0f && got[1] == -3.0f);
    zo_tensor_source_close(source);
}

static void test_views_outside_their_storage(void)
{
    static const struct fx_view views[] = {
        {"long", "Half", "0", 6, 0, 1, {7}, {1}},
        {"late", "Half", "0", 6, 1, 2, {2, 3}, {3, 1}},
        {"far", "Half", "0", 6, 0, 2, {2, 3}, {4, 1}},
        {"wrap", "Half", "0", 6, 0, 2, {3, 2}, {INT64_MAX, INT64_MAX}},
        {"many", "Half", "0", 6, 0, 2, {INT64_MAX, INT64_MAX}, {0, 0}},
        {"expanded", "Half", "0", 6, 0, 1, {INT64_C(1) << 40}, {0}},
        {"overlapping", "Half", "0", 6, 0, 2, {4, 3}, {1, 1}},
        {"start", "Half", "0", 6, INT64_MAX, 1, {1}, {1}},
    };
    const struct fx_storage storage = {plain_data, sizeof(plain_data)};

    for (size_t i = 0; i < TAP_COUNT(views); i++) {
        struct zo_tensor_source *source = NULL;

        fx_torch_bin(fx_path("outside"), &views[i], 1, &storage, 1);
        if (!fx_refused(zo_torch_bin_open(fx_path("outside"), &source),
                        ZO_E_CORRUPT, "is not within storage \"0\" of 6",
                        "outside: data.pkl, byte")) {
            tap_fail(__FILE__, __LINE__, "%s", views[i].name);
        }
    }
}

static enum zo_status open_one(const struct fx_view *view)
{
    const struct fx_storage storage = {plain_data, sizeof(plain_data)};
    struct zo_tensor_source *source = NULL;
    enum zo_status status;

    fx_torch_bin(fx_path("broken"), view, 1, &storage, 1);
    status = zo_torch_bin_open(fx_path("broken"), &source);
    zo_tensor_source_close(source);
    return status;
}

static void test_broken_tensors(void)
{
    static const struct fx_view views[] = {
        {"negative", "Half", "0", 6, 0, 1, {-1}, {1}},
        {"backwards", "Half", "0", 6, 5, 1, {2}, {-1}},
        {"rank 9",
         "Half",
         "0",
         6,
         0,
         9,
         {1, 1, 1, 1, 1, 1, 1, 1, 1},
         {1, 1, 1, 1, 1, 1, 1, 1, 1}},
    };
    const struct fx_storage storage = {plain_data, sizeof(plain_data)};
    const struct fx_view twice[] = {plain, plain};
    struct zo_tensor_source *source = NULL;

    for (size_t i = 0; i < TAP_COUNT(views); i++) {
        TAP_CHECK(fx_refused(open_one(&views[i]), ZO_E_CORRUPT,
                             "arguments that make no tensor", "broken"));
    }
    fx_torch_bin(fx_path("broken"), twice, 2, &storage, 1);
    TAP_CHECK(fx_refused(zo_torch_bin_open(fx_path("broken"), &source),
                         ZO_E_CORRUPT, "tensor \"w\" occurs twice", "broken"));
}

static void test_broken_storages(void)
{
    static const struct {
        const char *type, *key;
        uint64_t elems;
        const char *text;
    } rows[] = {
        {"Half", "0", 7, "\"archive/data/0\" has 12 bytes in the archive, 7 "},
        {"Float", "0", 6, "has 12 bytes in the archive, 6 elements of 4"},
        {"Half", "0", INT64_MAX, "9223372036854775807 elements of 2"},
        {"Half", "5", 6, "\"archive/data/5\" is not in the archive"},
        {"Half", "../data.pkl", 6, "a persistent id that is no storage"},
        {"Half", "", 6, "a persistent id that is no storage"},
        {"Evil", "0", 6, "asks for torch.EvilStorage"},
    };

    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        struct fx_view view = plain;

        view.type = rows[i].type;
        view.key = rows[i].key;
        view.storage_elems = rows[i].elems;
        TAP_CHECK(
            fx_refused(open_one(&view), ZO_E_CORRUPT, rows[i].text, "broken"));
    }
}

/* ---- files ---------------------------------------------------------- */

/* The plain tensor in an archive of this kind, with an entry more. */
static enum zo_status try_archive(struct fx_zip zip, const char *more,
                                  const char *content)
{
    const char *path = fx_path("archive");
    struct zo_tensor_source *source = NULL;
    struct fx_bytes pickle = {0};
    uint16_t got[6] = {0};
    enum zo_status status;

    fx_pickle_begin(&pickle, false);
    fx_pickle_view(&pickle, &plain);
    fx_pickle_end(&pickle);
    fx_zip_add(&zip, "m/data.pkl", pickle.data, pickle.count);
    fx_zip_add(&zip, "m/data/0", plain_data, sizeof(plain_data));
    if (more != NULL) {
        fx_zip_add(&zip, more, content, strlen(content));
    }
    fx_zip_write(&zip, path);
    fx_bytes_fini(&pickle);
    status = zo_torch_bin_open(path, &source);
    if (status == ZO_OK) {
        status = zo_tensor_source_read(source, 0, 0, 12, got);
        if (memcmp(got, plain_data, 12) != 0) {
            tap_fail(__FILE__, __LINE__, "other data");
        }
    }
    zo_tensor_source_close(source);
    return status;
}

static void test_archives(void)
{
    const struct fx_zip stored = {0}, zip64 = {.zip64 = true};
    const struct fx_zip deflated = {.method = 8};

    TAP_CHECK_INT(try_archive(stored, NULL, NULL), ZO_OK);
    TAP_CHECK_INT(try_archive(stored, "m/byteorder", "little"), ZO_OK);
    TAP_CHECK_INT(try_archive(zip64, "m/version", "3\n"), ZO_OK);
    TAP_CHECK(fx_refused(try_archive(stored, "m/byteorder", "big"),
                         ZO_E_NOSUPPORT, "byte order \"big\"", "archive"));
    TAP_CHECK(fx_refused(try_archive(deflated, NULL, NULL), ZO_E_NOSUPPORT,
                         "\"m/data.pkl\" is compressed (method 8, deflate)",
                         "load and save the file again"));
    TAP_CHECK(fx_refused(try_archive(stored, "n/data.pkl", "x"), ZO_E_CORRUPT,
                         "holds both m/data.pkl and n/data.pkl", "archive"));
    /* Deeper down it is another file. */
    TAP_CHECK_INT(try_archive(stored, "m/x/data.pkl", "x"), ZO_OK);
}

static void test_other_formats(void)
{
    static const char legacy[] =
        "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M";
    static const char zeros[5000];
    struct zo_tensor_source *source = NULL;
    struct fx_zip zip = {0};
    const char *path = fx_path("other");

    fx_write(path, legacy, sizeof(legacy) - 1);
    TAP_CHECK(fx_refused(zo_torch_bin_open(path, &source), ZO_E_NOSUPPORT,
                         "format of before 1.6", "torch.save(torch.load("));
    fx_write(path, zeros, sizeof(zeros)); /* bin_zero */
    TAP_CHECK(fx_refused(zo_torch_bin_open(path, &source), ZO_E_CORRUPT,
                         "is zero bytes only at its start and end (5000",
                         path));
    fx_write(path, "", 0);
    TAP_CHECK(fx_refused(zo_torch_bin_open(path, &source), ZO_E_CORRUPT,
                         "is empty", path));
    fx_write_text(path, "PK");
    TAP_CHECK(fx_refused(zo_torch_bin_open(path, &source), ZO_E_CORRUPT,
                         "(2 bytes) is no zip archive", path));
    fx_write_text(path, "\x1f\x8b gzip or what else, but long enough");
    TAP_CHECK(fx_refused(zo_torch_bin_open(path, &source), ZO_E_CORRUPT,
                         "is no zip archive", path));
    fx_zip_add(&zip, "readme", "hello", 5);
    fx_zip_write(&zip, path);
    TAP_CHECK(fx_refused(zo_torch_bin_open(path, &source), ZO_E_CORRUPT,
                         "is a zip archive without a data.pkl", path));
    TAP_CHECK(fx_refused(zo_torch_bin_open(fx_path("none"), &source),
                         ZO_E_USAGE, "cannot open", "No such file"));
    TAP_CHECK(source == NULL);
}

static bool open_fifo(void)
{
    struct zo_tensor_source *source = NULL;
    const char *path = fx_path("fifo");

    return mkfifo(path, 0600) == 0 &&
           fx_refused(zo_torch_bin_open(path, &source), ZO_E_USAGE,
                      "is a FIFO; want a file", path);
}

/* A pickle of 20 MB, all of it a hole in the file. */
static bool open_large_pickle(void)
{
    const char *path = fx_path("huge");
    struct zo_tensor_source *source = NULL;
    char *zeros = calloc(20000000, 1);
    struct fx_zip zip = {0};
    uint64_t before;

    fx_zip_add(&zip, "m/data.pkl", zeros, 20000000);
    fx_zip_write(&zip, path);
    free(zeros);
    before = zo_memory_count();
    /* reader, path, end of the archive, directory (2): not the pickle */
    return fx_refused(zo_torch_bin_open(path, &source), ZO_E_CORRUPT,
                      "data.pkl has 20000000 bytes; want at most", path) &&
           zo_memory_count() == before + 5;
}

static void test_odd_files(void)
{
    TAP_CHECK(fx_in_child(open_fifo));
    TAP_CHECK(fx_in_child(open_large_pickle));
}

/* Opens bytes; what opens is read whole. */
static enum zo_status open_bytes(const void *bytes, size_t size_bytes)
{
    struct zo_tensor_source *source = NULL;
    const char *path = fx_path("damaged");
    enum zo_status status;
    char buffer[4096];

    fx_write(path, bytes, size_bytes);
    status = zo_torch_bin_open(path, &source);
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

static const struct fx_view two_views[] = {
    {"a", "Half", "0", 6, 0, 2, {2, 3}, {3, 1}},
    {"b", "Half", "0", 6, 0, 2, {3, 2}, {1, 3}},
};

static void test_survives_damage(void)
{
    const struct fx_storage storage = {plain_data, sizeof(plain_data)};
    size_t size_bytes = 0;
    unsigned seed = 815;
    char *text;

    fx_torch_bin(fx_path("whole"), two_views, 2, &storage, 1);
    text = fx_read(fx_path("whole"), &size_bytes);
    TAP_CHECK_INT(open_bytes(text, size_bytes), ZO_OK);
    for (size_t i = 0; i < size_bytes; i++) {
        TAP_CHECK_INT(open_bytes(text, i), ZO_E_CORRUPT);
    }
    for (int i = 0; i < 10000; i++) {
        enum zo_status status;
        char *byte, was;

        seed = seed * 1664525u + 1013904223u;
        byte = &text[(seed >> 8) % size_bytes];
        was = *byte;
        *byte = (char)(seed >> 24);
        status = open_bytes(text, size_bytes);
        *byte = was;
        TAP_CHECK(status == ZO_OK || status == ZO_E_CORRUPT ||
                  status == ZO_E_NOSUPPORT);
    }
    free(text);
}

static void test_survives_no_memory(void)
{
    const struct fx_storage storage = {plain_data, sizeof(plain_data)};
    enum zo_status status = ZO_E_NOMEM;
    int failures = 0;

    fx_torch_bin(fx_path("whole"), two_views, 2, &storage, 1);
    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        struct zo_tensor_source *source = NULL;

        zo_memory_fail_at(nth);
        status = zo_torch_bin_open(fx_path("whole"), &source);
        zo_memory_fail_at(0);
        failures += status == ZO_E_NOMEM;
        zo_tensor_source_close(source);
    }
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(failures >= 12);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"every shared file gets its verdict", test_shared_files},
        {"no shared file lacks a verdict", test_table_is_complete},
        {"the reference shards are read", test_shared_shards},
        {"views read as their definition says", test_views},
        {"a large transposed view is read and cast", test_large_view},
        {"storages are shared", test_shared_storage},
        {"number types are known", test_number_types},
        {"bf16 values are read", test_bf16_values},
        {"a view outside its storage is refused",
         test_views_outside_their_storage},
        {"tensors that cannot be are refused", test_broken_tensors},
        {"storages that are not there are refused", test_broken_storages},
        {"archives: stored, zip64, deflated, big-endian", test_archives},
        {"other formats are recognised", test_other_formats},
        {"a FIFO and a huge pickle do no harm", test_odd_files},
        {"cut and changed files get an answer", test_survives_damage},
        {"each failed allocation is clean", test_survives_no_memory},
    };
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
