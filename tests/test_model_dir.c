/*
 * Reading Hugging Face model directories: a verdict for every fixture with
 * file and tensor in the message, precedence, both directions of the index,
 * the cache's layout of links, names of a model, and values that overflow.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/checkpoint/model_dir.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"

#define INDEX     "model.safetensors.index.json"
#define BIN_INDEX "pytorch_model.bin.index.json"
#define OUTPUT    "transformer.output_layer.weight"
#define FIRST     "model-00001-of-00002.safetensors"
#define SECOND    "model-00002-of-00002.safetensors"

/* A safetensors file of F32 tensors of two elements, named by letters. */
static void write_letters(const char *path, const char *letters)
{
    struct fx_bytes header = {0};
    float data[2 * 26];
    char entry[128];
    const size_t count = strlen(letters);

    for (size_t i = 0; i < count; i++) {
        (void)snprintf(entry, sizeof(entry),
                       "%s\"%c\":{\"dtype\":\"F32\",\"shape\":[2],"
                       "\"data_offsets\":[%zu,%zu]}",
                       i == 0 ? "{" : ",", letters[i], 8 * i, 8 * i + 8);
        fx_add(&header, entry, strlen(entry));
        data[2 * i] = (float)letters[i];
        data[2 * i + 1] = (float)i;
    }
    fx_add(&header, count > 0 ? "}" : "{}", count > 0 ? 2 : 3);
    fx_safetensors(path, (const char *)header.data, data, 8 * count);
    fx_bytes_fini(&header);
}

/* A new folder with an index text and two shards, of "ab" and "cd". */
static const char *make_dir(const char *name, const char *index)
{
    const char *path = fx_path("%s", name);

    fx_folder(path);
    if (index != NULL) {
        fx_write_text(fx_path("%s/" INDEX, name), index);
    }
    write_letters(fx_path("%s/one.safetensors", name), "ab");
    write_letters(fx_path("%s/two.safetensors", name), "cd");
    return path;
}

static bool has_note(const struct zo_notes *notes, const char *part)
{
    for (size_t i = 0; i < notes->count; i++) {
        if (strstr(notes->items[i].text, part) != NULL) {
            return true;
        }
    }
    return false;
}

/* ---- shared fixtures ------------------------------------------------ */

static const struct {
    const char *name;
    const char *text, *second; /* NULL: it opens */
    const char *note;          /* NULL: without a note */
} shared_dirs[] = {
    {"tiny", NULL, NULL, NULL},
    {"stray", NULL, NULL, "model.safetensors is not used"},
    {"idx_total_size", NULL, NULL, "total_size 1, its tensors have"},
    {"idx_subset", "\"" OUTPUT "\" is in " FIRST, "does not name it", NULL},
    {"idx_escape", "\"" OUTPUT "\" is said to be in",
     "\"../../../etc/hostname\"; want the name of a file", NULL},
};

static void test_shared_dirs(void)
{
    if (fx_shared("fixtures") == NULL) {
        tap_skip("no shared fixtures");
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(shared_dirs); i++) {
        const char *path = fx_shared("fixtures/%s", shared_dirs[i].name);
        struct zo_model_dir *dir = NULL;
        struct zo_notes notes = {0};
        const enum zo_status status = zo_model_dir_open(path, &notes, &dir);
        size_t index = 0;

        if (shared_dirs[i].text != NULL) {
            TAP_CHECK(fx_refused(status, ZO_E_CORRUPT, shared_dirs[i].text,
                                 shared_dirs[i].second));
        } else {
            TAP_CHECK_INT(status, ZO_OK);
            TAP_CHECK_INT((long long)zo_model_dir_count(dir), 18);
            TAP_CHECK_INT((long long)zo_model_dir_shard_count(dir), 2);
            TAP_CHECK_INT((long long)zo_model_dir_total_bytes(dir), 189576);
            TAP_CHECK(zo_model_dir_find(dir, OUTPUT, &index));
            TAP_CHECK(zo_model_dir_info(dir, index)->shape[0] == 256);
            TAP_CHECK(strcmp(zo_model_dir_shard_name(
                                 dir, zo_model_dir_shard_of(dir, index)),
                             FIRST) == 0);
            TAP_CHECK_INT((long long)notes.count,
                          shared_dirs[i].note == NULL ? 0 : 1);
            TAP_CHECK(shared_dirs[i].note == NULL ||
                      has_note(&notes, shared_dirs[i].note));
        }
        zo_model_dir_close(dir);
        zo_notes_fini(&notes);
    }
}

/* tiny, stray, and three whose names start with idx_. */
static void test_table_is_complete(void)
{
    const char *path = fx_shared("fixtures");

    if (path == NULL) {
        tap_skip("no shared fixtures");
        return;
    }
    TAP_CHECK_INT((long long)fx_count_files(path, "idx_") + 2,
                  TAP_COUNT(shared_dirs));
}

static void test_shared_bin_dir(void)
{
    const char *path = fx_shared("vectors/tiny_fp16_bin");
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};
    enum zo_dtype dtype = ZO_F32;
    uint64_t params = 0;

    if (path == NULL) {
        tap_skip("no shared vectors");
        return;
    }
    TAP_CHECK_INT(zo_model_dir_open(path, &notes, &dir), ZO_OK);
    TAP_CHECK_INT((long long)notes.count, 0);
    TAP_CHECK(zo_model_dir_dtype(dir, &dtype) && dtype == ZO_F16);
    for (size_t i = 0; i < zo_model_dir_count(dir); i++) {
        params += zo_model_dir_info(dir, i)->elem_count;
    }
    TAP_CHECK_INT((long long)params, 113472 + 4);
    zo_model_dir_close(dir);
    zo_notes_fini(&notes);
}

/* ---- made directories ----------------------------------------------- */

#define MAP(body) "{\"metadata\":{\"total_size\":32},\"weight_map\":{" body "}}"
#define GOOD                                                   \
    MAP("\"a\":\"one.safetensors\",\"b\":\"one.safetensors\"," \
        "\"c\":\"two.safetensors\",\"d\":\"two.safetensors\"")

static const struct {
    const char *name, *index;
    const char *text, *second; /* NULL: it opens */
} made_dirs[] = {
    {"idx_good", GOOD, NULL, NULL},
    {"idx_ghost_shard",
     MAP("\"a\":\"one.safetensors\",\"b\":\"one.safetensors\","
         "\"c\":\"ghost.safetensors\",\"d\":\"spook.safetensors\""),
     "2 of 3 shards that " INDEX " names are not there", "ghost.safetensors"},
    {"idx_wrong_shard",
     MAP("\"a\":\"one.safetensors\",\"b\":\"two.safetensors\","
         "\"c\":\"two.safetensors\",\"d\":\"two.safetensors\""),
     "tensor \"b\" is in one.safetensors, but " INDEX, "two.safetensors"},
    {"idx_missing_tensor",
     MAP("\"a\":\"one.safetensors\",\"b\":\"one.safetensors\","
         "\"c\":\"two.safetensors\",\"d\":\"two.safetensors\","
         "\"e\":\"two.safetensors\""),
     "tensor \"e\" is in no shard, but " INDEX, "two.safetensors"},
    {"idx_unlisted",
     MAP("\"a\":\"one.safetensors\",\"c\":\"two.safetensors\","
         "\"d\":\"two.safetensors\""),
     "tensor \"b\" is in one.safetensors, but", "does not name it"},
    {"idx_list", "[]", INDEX ": byte 0: want '{'", "found []"},
    {"idx_nothing", "{}", INDEX " has no \"weight_map\"", ""},
    {"idx_empty_map", MAP(""), INDEX " has an empty \"weight_map\"", ""},
    {"idx_no_text", "", INDEX " is empty: a download that failed", ""},
    {"idx_pointer", "version https://git-lfs.github.com/spec/v1\nsize 20438\n",
     INDEX " is a Git LFS pointer", "20438 bytes"},
    {"idx_map_list", "{\"weight_map\":[]}", "\"weight_map\", byte 14: want",
     ""},
    {"idx_number", "{\"weight_map\":{\"a\":1}}",
     "tensor \"a\", byte 19: want a string", "found 1}}"},
    {"idx_twice", MAP("\"a\":\"one.safetensors\",\"a\":\"two.safetensors\""),
     "tensor \"a\" occurs twice", INDEX},
    {"idx_map_twice", "{\"weight_map\":{},\"weight_map\":{}}",
     "key \"weight_map\" occurs twice", ""},
    {"idx_dots", MAP("\"a\":\"..\""), "\"a\" is said to be in \"..\"", ""},
    {"idx_down", MAP("\"a\":\"x/one.safetensors\""), "\"x/one.safetensors\"",
     "want the name of a file in the same folder"},
    {"idx_absolute", MAP("\"a\":\"/etc/hostname\""), "\"/etc/hostname\"",
     "refused"},
    {"idx_no_name", MAP("\"a\":\"\""), "\"a\" is said to be in \"\"", ""},
    {"idx_escapes", MAP("\"\\u001b]0;x\\u0007\":\"a/\\u001b[31m\""),
     "tensor \"\\x1b]0;x\\x07\" is said to be in", "\"a/\\x1b[31m\""},
    {"idx_no_shard", MAP("\"a\":\"" INDEX "\""), INDEX ": header of",
     "cut short, or no safetensors file"},
    {"idx_bin", MAP("\"a\":\"sub\""), "sub is a folder; want a file", ""},
    {"idx_float_total",
     "{\"metadata\":{\"total_size\":32.0,\"x\":[{}]},\"y\":null,"
     "\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\","
     "\"c\":\"two.safetensors\",\"d\":\"two.safetensors\"}}",
     NULL, NULL},
    {"idx_no_metadata",
     "{\"weight_map\":{\"a\":\"one.safetensors\","
     "\"b\":\"one.safetensors\"}}",
     NULL, NULL},
};

static void test_made_dirs(void)
{
    for (size_t i = 0; i < TAP_COUNT(made_dirs); i++) {
        const char *name = made_dirs[i].name;
        const char *path = make_dir(name, made_dirs[i].index);
        struct zo_model_dir *dir = NULL;
        struct zo_notes notes = {0};
        enum zo_status status;

        fx_folder(fx_path("%s/sub", name));
        status = zo_model_dir_open(path, &notes, &dir);
        if (made_dirs[i].text == NULL) {
            TAP_CHECK_INT(status, ZO_OK);
            TAP_CHECK_INT((long long)notes.count, 0);
        } else if (status == ZO_E_USAGE) { /* the folder for a shard */
            TAP_CHECK(fx_refused(status, ZO_E_USAGE, made_dirs[i].text, name));
        } else {
            TAP_CHECK(fx_refused(status, ZO_E_CORRUPT, made_dirs[i].text,
                                 made_dirs[i].second));
        }
        zo_model_dir_close(dir);
        zo_notes_fini(&notes);
    }
}

/* Each is open while reading, and a process has some 1,000 files. */
static void test_too_many_shards(void)
{
    struct fx_bytes index = {0};
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};

    fx_add(&index, "{\"weight_map\":{", 15);
    for (int i = 0; i < 1001; i++) {
        char entry[64];

        (void)snprintf(entry, sizeof(entry), "%s\"%d\":\"%d\"",
                       i > 0 ? "," : "", i, i);
        fx_add(&index, entry, strlen(entry));
    }
    fx_add(&index, "}}", 3);
    TAP_CHECK(fx_refused(
        zo_model_dir_open(make_dir("idx_many", (const char *)index.data),
                          &notes, &dir),
        ZO_E_CORRUPT, INDEX " names more than 1000 shards", "idx_many"));
    fx_bytes_fini(&index);
}

static bool open_huge_index(void)
{
    const char *path = make_dir("idx_huge", "{\"weight_map\":{");
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};

    return truncate(fx_path("idx_huge/" INDEX), INT64_C(2) << 30) == 0 &&
           fx_refused(zo_model_dir_open(path, &notes, &dir), ZO_E_CORRUPT,
                      INDEX " has 2147483648 bytes; want at most", "idx_huge");
}

static bool open_huge_index_in_little_memory(void)
{
    return fx_limit_memory((size_t)8 << 20) && open_huge_index();
}

static void test_huge_index(void)
{
#ifndef ZO_SANITIZED
    TAP_CHECK(fx_in_child(open_huge_index_in_little_memory));
#else
    (void)open_huge_index_in_little_memory;
    TAP_CHECK(fx_in_child(open_huge_index));
#endif
}

static void test_same_tensor_in_two_shards(void)
{
    const char *path = make_dir("idx_both", GOOD);
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};

    write_letters(fx_path("idx_both/two.safetensors"), "bcd");
    TAP_CHECK(fx_refused(zo_model_dir_open(path, &notes, &dir), ZO_E_CORRUPT,
                         "tensor \"b\" is in ", " and in "));
}

static void test_no_model(void)
{
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};
    const char *path;

    TAP_CHECK(fx_refused(zo_model_dir_open(fx_path("none"), &notes, &dir),
                         ZO_E_USAGE, "cannot open model", "No such file"));
    path = fx_path("a_file");
    fx_write_text(path, "x");
    TAP_CHECK(fx_refused(zo_model_dir_open(path, &notes, &dir), ZO_E_USAGE,
                         "is no folder; want the one with config.json", path));
    path = fx_path("a_folder");
    fx_folder(path);
    TAP_CHECK(fx_refused(zo_model_dir_open(path, &notes, &dir), ZO_E_USAGE,
                         "no weights in", "pytorch_model.bin"));
    fx_link("nowhere", fx_path("a_folder/model.safetensors"));
    TAP_CHECK(fx_refused(zo_model_dir_open(path, &notes, &dir), ZO_E_USAGE,
                         "model.safetensors: No such file", path));
    TAP_CHECK(dir == NULL && notes.count == 0);
}

static bool open_fifos(void)
{
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};

    fx_folder(fx_path("pipes"));
    fx_folder(fx_path("pipe_index"));
    return mkfifo(fx_path("pipes/model.safetensors"), 0600) == 0 &&
           mkfifo(fx_path("pipe_index/" INDEX), 0600) == 0 &&
           fx_refused(zo_model_dir_open(fx_path("pipes"), &notes, &dir),
                      ZO_E_USAGE, "model.safetensors is a FIFO", "pipes") &&
           fx_refused(zo_model_dir_open(fx_path("pipe_index"), &notes, &dir),
                      ZO_E_USAGE, INDEX " is a FIFO", "pipe_index");
}

static void test_fifos_do_not_block(void)
{
    TAP_CHECK(fx_in_child(open_fifos));
}

/* ---- precedence ------------------------------------------------------ */

static void write_bin(const char *path, uint16_t value)
{
    const struct fx_view view = {"a", "Half", "0", 1, 0, 1, {1}, {1}};
    const struct fx_storage storage = {&value, sizeof(value)};

    fx_torch_bin(path, &view, 1, &storage, 1);
}

/* Which of the four places is read, told by the value of "a". */
static float value_of_a(const char *path, struct zo_notes *notes)
{
    struct zo_model_dir *dir = NULL;
    float values[2] = {-1.0f, -1.0f};
    size_t index = 0;

    if (zo_model_dir_open(path, notes, &dir) == ZO_OK &&
        zo_model_dir_find(dir, "a", &index)) {
        const uint64_t count = zo_model_dir_info(dir, index)->elem_count;

        if (zo_model_dir_read_as(dir, index, 0, count, ZO_F32, values, NULL) !=
            ZO_OK) {
            values[0] = -2.0f;
        }
    }
    zo_model_dir_close(dir);
    return values[0];
}

static void test_precedence(void)
{
    const char *path = fx_path("order");
    struct zo_notes notes = {0};

    fx_folder(path);
    write_bin(fx_path("order/pytorch_model.bin"), 0x3c00); /* 1 */
    TAP_CHECK(value_of_a(path, &notes) == 1.0f);
    TAP_CHECK_INT((long long)notes.count, 0);
    write_bin(fx_path("order/part.bin"), 0x4000); /* 2 */
    fx_write_text(fx_path("order/" BIN_INDEX),
                  "{\"weight_map\":{\"a\":\"part.bin\"}}");
    TAP_CHECK(value_of_a(path, &notes) == 2.0f);
    TAP_CHECK(has_note(&notes, "read by " BIN_INDEX "; pytorch_model.bin is "
                               "not used"));
    zo_notes_fini(&notes);
    write_letters(fx_path("order/model.safetensors"), "a");
    TAP_CHECK(value_of_a(path, &notes) == (float)'a');
    TAP_CHECK_INT((long long)notes.count, 2);
    TAP_CHECK(has_note(&notes, "read by model.safetensors; " BIN_INDEX));
    zo_notes_fini(&notes);
    write_letters(fx_path("order/part.safetensors"), "ba");
    fx_write_text(fx_path("order/" INDEX),
                  "{\"weight_map\":{\"b\":\"part.safetensors\","
                  "\"a\":\"part.safetensors\"}}");
    TAP_CHECK(value_of_a(path, &notes) == (float)'a');
    TAP_CHECK_INT((long long)notes.count, 3);
    TAP_CHECK(has_note(&notes, "read by " INDEX "; model.safetensors is not"));
    zo_notes_fini(&notes);
}

/* blobs/HASH, and snapshots/REVISION/NAME as links to them. */
static void test_hugging_face_cache(void)
{
    struct zo_notes notes = {0};
    const char *snapshot;

    fx_folder(fx_path("hub"));
    fx_folder(fx_path("hub/blobs"));
    fx_folder(fx_path("hub/snapshots"));
    fx_folder(fx_path("hub/snapshots/8fd7fba"));
    snapshot = fx_path("hub/snapshots/8fd7fba");
    write_letters(fx_path("hub/blobs/1111"), "ab");
    write_letters(fx_path("hub/blobs/2222"), "cd");
    fx_write_text(fx_path("hub/blobs/3333"), GOOD);
    fx_link("../../blobs/1111", fx_path("hub/snapshots/8fd7fba/"
                                        "one.safetensors"));
    fx_link("../../blobs/3333", fx_path("hub/snapshots/8fd7fba/" INDEX));
    {
        struct zo_model_dir *dir = NULL;

        fx_link("../../blobs/gone", fx_path("hub/snapshots/8fd7fba/"
                                            "two.safetensors"));
        TAP_CHECK(fx_refused(zo_model_dir_open(snapshot, &notes, &dir),
                             ZO_E_CORRUPT, "1 of 2 shards that " INDEX,
                             "two.safetensors first: fetch them"));
    }
    (void)unlink(fx_path("hub/snapshots/8fd7fba/two.safetensors"));
    fx_link("../../blobs/2222", fx_path("hub/snapshots/8fd7fba/"
                                        "two.safetensors"));
    TAP_CHECK(value_of_a(snapshot, &notes) == (float)'a');
    TAP_CHECK_INT((long long)notes.count, 0);
    fx_link("hub/snapshots/8fd7fba", fx_path("link_to_model"));
    TAP_CHECK(value_of_a(fx_path("link_to_model"), &notes) == (float)'a');
}

/* ---- names ----------------------------------------------------------- */

static void test_expected_names(void)
{
    const struct zo_expected_tensor all[] = {
        {"a", 1, {2}}, {"b", 1, {2}}, {"c", 1, {2}}, {"d", 1, {2}}};
    const struct zo_expected_tensor more[] = {
        {"a", 1, {2}}, {"x", 1, {2}}, {"y", 1, {2}}};
    const struct zo_expected_tensor other[] = {{"b", 2, {2, 1}}};
    const struct zo_expected_tensor longer[] = {{"c", 1, {3}}};
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};
    const char *path = make_dir("names", GOOD);

    TAP_CHECK_INT(zo_model_dir_open(path, &notes, &dir), ZO_OK);
    TAP_CHECK_INT(zo_model_dir_check_names(dir, all, 4, &notes), ZO_OK);
    TAP_CHECK_INT((long long)notes.count, 0);
    TAP_CHECK_INT(zo_model_dir_check_names(dir, all + 1, 2, &notes), ZO_OK);
    TAP_CHECK_INT((long long)notes.count, 1);
    TAP_CHECK(has_note(&notes, "2 tensors are not part of the model and are "
                               "not read: a, d"));
    TAP_CHECK(
        fx_refused(zo_model_dir_check_names(dir, more, 3, &notes), ZO_E_CORRUPT,
                   "2 of the model's 3 tensors are missing: x, y", "names"));
    TAP_CHECK(fx_refused(
        zo_model_dir_check_names(dir, other, 1, &notes), ZO_E_CORRUPT,
        "tensor \"b\" in one.safetensors is [2]; want [2, 1]", "names"));
    TAP_CHECK(fx_refused(
        zo_model_dir_check_names(dir, longer, 1, &notes), ZO_E_CORRUPT,
        "tensor \"c\" in two.safetensors is [2]; want [3]", "names"));
    zo_model_dir_close(dir);
    zo_notes_fini(&notes);
}

static void test_unexpected_names(void)
{
    static const char header[] =
        "{\"transformer.rotary_pos_emb.inv_freq\":"
        "{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]},"
        "\"q\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[2,4]},"
        "\"n0\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[4,4]},"
        "\"n1\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[4,4]},"
        "\"n2\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[4,4]},"
        "\"n3\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[4,4]},"
        "\"n\\u001b4\":{\"dtype\":\"I8\",\"shape\":[0],"
        "\"data_offsets\":[4,4]}}";
    const struct zo_expected_tensor quantised[] = {{"q", 1, {2}}};
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};
    enum zo_dtype dtype = ZO_F32;

    fx_folder(fx_path("rotary"));
    fx_safetensors(fx_path("rotary/model.safetensors"), header, "abcd", 4);
    TAP_CHECK_INT(zo_model_dir_open(fx_path("rotary"), &notes, &dir), ZO_OK);
    TAP_CHECK(zo_model_dir_dtype(dir, &dtype) && dtype == ZO_F16);
    TAP_CHECK(fx_refused(zo_model_dir_check_names(dir, quantised, 1, &notes),
                         ZO_E_CORRUPT,
                         "\"q\" in model.safetensors is of type I8; want F32, "
                         "BF16 or F16",
                         "rotary"));
    TAP_CHECK_INT((long long)notes.count, 0);
    TAP_CHECK_INT(zo_model_dir_check_names(dir, NULL, 0, &notes), ZO_OK);
    TAP_CHECK_INT((long long)notes.count, 1);
    TAP_CHECK(has_note(&notes, "6 tensors are not part of the model"));
    TAP_CHECK(has_note(&notes, "n\\x1b4, n0, n1, n2, n3, ..."));
    zo_model_dir_close(dir);
    zo_notes_fini(&notes);
}

/* ---- values ---------------------------------------------------------- */

static void test_values(void)
{
    static const char header[] =
        "{\"hot\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
        "\"nan\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[16,24]},"
        "\"ok\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[24,28]}}";
    const uint32_t data[7] = {0x4788b800, 0xc788b800, 0x3f800000, 0x477fe000,
                              0x7fc00000, 0xff800000, 0x3f800000};
    static const struct {
        const char *name, *text;
        enum zo_status refused;
    } rows[] = {
        {"hot",
         "\"hot\" in model.safetensors: 2 of 4 values are too large for fp16: "
         "use bf16",
         ZO_E_NUMERIC},
        {"nan",
         "\"nan\" in model.safetensors: 2 of 2 values are NaN or infinite",
         ZO_E_NUMERIC},
        {"ok", NULL, ZO_OK},
    };
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};
    uint16_t values[4];

    fx_folder(fx_path("values"));
    fx_safetensors(fx_path("values/model.safetensors"), header, data,
                   sizeof(data));
    TAP_CHECK_INT(zo_model_dir_open(fx_path("values"), &notes, &dir), ZO_OK);
    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        struct zo_value_counts counts = {0};
        size_t index = 0;

        TAP_CHECK(zo_model_dir_find(dir, rows[i].name, &index));
        TAP_CHECK_INT(
            zo_model_dir_read_as(dir, index, 0,
                                 zo_model_dir_info(dir, index)->elem_count,
                                 ZO_F16, values, &counts),
            ZO_OK);
        TAP_CHECK_INT(zo_model_dir_check_values(dir, index, ZO_F16, &counts,
                                                ZO_VALUES_WARN, &notes),
                      ZO_OK);
        TAP_CHECK_INT(zo_model_dir_check_values(dir, index, ZO_F16, &counts,
                                                ZO_VALUES_REFUSE, &notes),
                      rows[i].refused);
        TAP_CHECK(rows[i].text == NULL ||
                  (has_note(&notes, rows[i].text) &&
                   strstr(zo_err_last()->text, rows[i].text) != NULL));
    }
    TAP_CHECK_INT((long long)notes.count, 2);
    TAP_CHECK(notes.items[0].level == ZO_NOTE_WARN);
    zo_model_dir_close(dir);
    zo_notes_fini(&notes);
}

static void test_mixed_types_across_shards(void)
{
    static const char half[] =
        "{\"h\":{\"dtype\":\"BF16\",\"shape\":[8],\"data_offsets\":[0,16]}}";
    static const char single[] =
        "{\"s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    const uint16_t brain[8] = {0x3f80, 0xc040};
    const float one = 1.5f;
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};
    enum zo_dtype dtype = ZO_F16;
    float values[8];
    uint16_t bits = 0;

    fx_folder(fx_path("mixed"));
    fx_safetensors(fx_path("mixed/x"), half, brain, sizeof(brain));
    fx_safetensors(fx_path("mixed/y"), single, &one, sizeof(one));
    fx_write_text(fx_path("mixed/" INDEX),
                  "{\"weight_map\":{\"h\":\"x\",\"s\":\"y\"}}");
    TAP_CHECK_INT(zo_model_dir_open(fx_path("mixed"), &notes, &dir), ZO_OK);
    TAP_CHECK(zo_model_dir_dtype(dir, &dtype) && dtype == ZO_BF16);
    TAP_CHECK_INT(zo_model_dir_read_as(dir, 0, 0, 8, ZO_F32, values, NULL),
                  ZO_OK);
    TAP_CHECK(values[0] == 1.0f && values[1] == -3.0f);
    TAP_CHECK_INT(zo_model_dir_read_as(dir, 1, 0, 1, ZO_BF16, &bits, NULL),
                  ZO_OK);
    TAP_CHECK_INT(bits, 0x3fc0);
    TAP_CHECK_INT(zo_model_dir_read(dir, 1, 0, 4, values), ZO_OK);
    TAP_CHECK(values[0] == 1.5f);
    zo_model_dir_close(dir);
}

static void test_survives_no_memory(void)
{
    const struct zo_expected_tensor some[] = {{"b", 1, {2}}};
    const char *path = make_dir("memory", GOOD);
    enum zo_status status = ZO_E_NOMEM;
    int failures = 0;

    write_letters(fx_path("memory/model.safetensors"), "z");
    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        struct zo_model_dir *dir = NULL;
        struct zo_notes notes = {0};

        zo_memory_fail_at(nth);
        status = zo_model_dir_open(path, &notes, &dir);
        if (status == ZO_OK) {
            status = zo_model_dir_check_names(dir, some, 1, &notes);
        }
        zo_memory_fail_at(0);
        failures += status == ZO_E_NOMEM;
        zo_model_dir_close(dir);
        zo_notes_fini(&notes);
    }
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(failures >= 20);
}

/* The official index names the tensors of ChatGLM2-6B, in seven shards. */
static void test_official_index(void)
{
    const char *index = fx_shared("chatglm2-6b/" BIN_INDEX);
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};

    if (index == NULL) {
        tap_skip("no shared model");
        return;
    }
    fx_folder(fx_path("official"));
    fx_link(index, fx_path("official/" BIN_INDEX));
    TAP_CHECK(fx_refused(zo_model_dir_open(fx_path("official"), &notes, &dir),
                         ZO_E_CORRUPT, "7 of 7 shards that " BIN_INDEX,
                         "pytorch_model-00001-of-00007.bin first"));
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"every shared directory gets its verdict", test_shared_dirs},
        {"no shared directory lacks a verdict", test_table_is_complete},
        {"the reference .bin shards are read", test_shared_bin_dir},
        {"every made directory gets its verdict", test_made_dirs},
        {"an index of 2 GB is refused unread", test_huge_index},
        {"more shards than can be open are refused", test_too_many_shards},
        {"a tensor in two shards is refused", test_same_tensor_in_two_shards},
        {"what is no model is named", test_no_model},
        {"FIFOs do not block", test_fifos_do_not_block},
        {"precedence is as documented, with a note", test_precedence},
        {"Hugging Face's cache of links is followed", test_hugging_face_cache},
        {"expected tensors are checked by name and shape", test_expected_names},
        {"unexpected tensors get one note", test_unexpected_names},
        {"overflows and NaN are counted by name", test_values},
        {"number types may differ across shards",
         test_mixed_types_across_shards},
        {"each failed allocation is clean", test_survives_no_memory},
        {"the official index is understood", test_official_index},
    };
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
