/*
 * Writing model directories: what is in them, what replaces what, and that
 * whatever fails, at whichever call, or whenever the process is killed, the
 * target is the old model or the new one, whole.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/checkpoint/model_dir.h"
#include "src/checkpoint/model_dir_writer.h"
#include "tests/disk_faults.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"

#define INDEX "model.safetensors.index.json"

/* ---- a model --------------------------------------------------------- */

/* 40 + 24 + 6 + 48 + 8 bytes of data, in five tensors. */
static const struct zo_tensor_info tensors[] = {
    {.name = "e", .element = ZO_ELEMENT_F16, .rank = 2, .shape = {4, 5}},
    {.name = "d", .element = ZO_ELEMENT_F16, .rank = 2, .shape = {3, 4}},
    {.name = "c", .element = ZO_ELEMENT_F16, .rank = 1, .shape = {3}},
    {.name = "b", .element = ZO_ELEMENT_F16, .rank = 2, .shape = {4, 6}},
    {.name = "a", .element = ZO_ELEMENT_F32, .rank = 1, .shape = {2}},
};
#define TOTAL_BYTES 126

/* Byte `at` of tensor `index` in a model of this seed. */
static unsigned char byte_of(int seed, size_t index, uint64_t at)
{
    return (unsigned char)((unsigned)seed * 31 + index * 7 + at) & 0x3b;
}

struct feed {
    int seed;
    size_t piece_bytes;  /* largest piece seen */
    size_t index;        /* latest */
    uint64_t end;        /* of the latest piece */
    int calls, fails_at; /* the call that fails; 0: none */
    bool is_ordered;
};

static enum zo_status feed_data(void *context, size_t index,
                                uint64_t offset_bytes, size_t size_bytes,
                                void *buffer)
{
    struct feed *feed = context;
    unsigned char *bytes = buffer;

    if (++feed->calls == feed->fails_at) {
        return ZO_FAIL(ZO_E_INJECTED, "the data of tensor %zu", index);
    }
    if (offset_bytes != (index == feed->index ? feed->end : 0)) {
        feed->is_ordered = false;
    }
    feed->index = index;
    feed->end = offset_bytes + size_bytes;
    if (size_bytes > feed->piece_bytes) {
        feed->piece_bytes = size_bytes;
    }
    for (size_t i = 0; i < size_bytes; i++) {
        bytes[i] = byte_of(feed->seed, index, offset_bytes + i);
    }
    return ZO_OK;
}

static struct zo_model_write_options options_of(const char *path,
                                                struct feed *feed)
{
    *feed = (struct feed){.seed = 1, .index = SIZE_MAX, .is_ordered = true};
    return (struct zo_model_write_options){
        .path = path,
        .tensors = tensors,
        .tensor_count = TAP_COUNT(tensors),
        .data = feed_data,
        .context = feed,
    };
}

/* The seed of a whole model at path; -1 if it is not whole. */
static int seed_of(const char *path)
{
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};
    int seed = -1;

    if (zo_model_dir_open(path, &notes, &dir) != ZO_OK) {
        return -1;
    }
    for (int s = 0; s < 8 && seed < 0; s++) {
        seed = s;
        for (size_t i = 0; i < TAP_COUNT(tensors); i++) {
            unsigned char bytes[64];
            size_t index = 0, size_bytes;

            if (!zo_model_dir_find(dir, tensors[i].name, &index)) {
                zo_model_dir_close(dir);
                return -1;
            }
            size_bytes = (size_t)zo_model_dir_info(dir, index)->size_bytes;
            if (zo_model_dir_read(dir, index, 0, size_bytes, bytes) != ZO_OK) {
                zo_model_dir_close(dir);
                return -1;
            }
            for (size_t j = 0; j < size_bytes; j++) {
                seed = bytes[j] == byte_of(s, i, j) ? seed : -1;
            }
        }
    }
    zo_model_dir_close(dir);
    zo_notes_fini(&notes);
    return seed;
}

static enum zo_status write_model(const char *path, int seed, bool replace)
{
    struct feed feed;
    struct zo_model_write_options options = options_of(path, &feed);
    struct zo_notes notes = {0};
    enum zo_status status;

    feed.seed = seed;
    options.replace = replace;
    options.shard_bytes = 64;
    status = zo_model_dir_write(&options, &notes, NULL);
    zo_notes_fini(&notes);
    return status;
}

/* ---- contents -------------------------------------------------------- */

static void test_one_file(void)
{
    const char *path = fx_path("one");
    struct feed feed;
    struct zo_model_write_options options = options_of(path, &feed);
    struct zo_model_written written = {0};
    struct zo_notes notes = {0};
    struct zo_model_dir *dir = NULL;
    size_t index = 9;

    options.piece_bytes = 21;
    TAP_CHECK_INT(zo_model_dir_write(&options, &notes, &written), ZO_OK);
    TAP_CHECK_INT(seed_of(path), 1);
    TAP_CHECK_INT((long long)fx_count_files(path, ""), 1);
    TAP_CHECK(fx_is_there(fx_path("one/model.safetensors")));
    TAP_CHECK_INT((long long)written.shard_count, 1);
    TAP_CHECK_INT((long long)written.total_bytes, TOTAL_BYTES);
    TAP_CHECK_INT((long long)written.file_count, 0);
    TAP_CHECK(feed.is_ordered);
    TAP_CHECK_INT((long long)feed.piece_bytes, 16); /* whole elements */
    TAP_CHECK_INT((long long)notes.count, 0);
    TAP_CHECK_INT(zo_model_dir_open(path, &notes, &dir), ZO_OK);
    TAP_CHECK(zo_model_dir_find(dir, "d", &index));
    TAP_CHECK_INT((long long)index, 3);
    TAP_CHECK_INT(zo_model_dir_info(dir, 3)->rank, 2);
    TAP_CHECK(zo_model_dir_info(dir, 3)->shape[1] == 4);
    zo_model_dir_close(dir);
    zo_model_written_fini(&written);
}

static void test_shards(void)
{
    static const char want[] =
        "{\n  \"metadata\": {\n    \"total_size\": 126\n  },\n"
        "  \"weight_map\": {\n"
        "    \"a\": \"model-00003-of-00003.safetensors\",\n"
        "    \"b\": \"model-00003-of-00003.safetensors\",\n"
        "    \"c\": \"model-00002-of-00003.safetensors\",\n"
        "    \"d\": \"model-00002-of-00003.safetensors\",\n"
        "    \"e\": \"model-00001-of-00003.safetensors\"\n  }\n}\n";
    const char *path = fx_path("shards");
    struct feed feed;
    struct zo_model_write_options options = options_of(path, &feed);
    struct zo_model_written written = {0};
    struct zo_notes notes = {0};
    char *index;

    options.shard_bytes = 63; /* 40 | 24 + 6 | 48 + 8 */
    TAP_CHECK_INT(zo_model_dir_write(&options, &notes, &written), ZO_OK);
    TAP_CHECK_INT((long long)written.shard_count, 3);
    TAP_CHECK_INT((long long)fx_count_files(path, ""), 4);
    TAP_CHECK_INT(seed_of(path), 1);
    index = fx_read(fx_path("shards/" INDEX), NULL);
    TAP_CHECK(strcmp(index, want) == 0);
    free(index);
    /* A tensor above the limit has a shard of its own. */
    options.path = fx_path("tight");
    options.shard_bytes = 10;
    TAP_CHECK_INT(zo_model_dir_write(&options, &notes, &written), ZO_OK);
    TAP_CHECK_INT((long long)written.shard_count, 5);
    TAP_CHECK_INT(seed_of(options.path), 1);
    options.path = fx_path("exact");
    options.shard_bytes = 64;
    TAP_CHECK_INT(zo_model_dir_write(&options, &notes, &written), ZO_OK);
    TAP_CHECK_INT((long long)written.shard_count, 2); /* 64 | 62 */
}

/* Sorted by width, so that every tensor is aligned to its elements. */
static void test_wide_elements_come_first(void)
{
    static const struct zo_tensor_info mixed[] = {
        {.name = "x", .element = ZO_ELEMENT_U8, .rank = 1, .shape = {3}},
        {.name = "y", .element = ZO_ELEMENT_F16, .rank = 1, .shape = {1}},
        {.name = "z", .element = ZO_ELEMENT_I64, .rank = 1, .shape = {1}},
    };
    static const char want[] =
        "\"z\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
        "\"y\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[8,10]},"
        "\"x\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[10,13]}}";
    struct feed feed;
    struct zo_model_write_options options = options_of(fx_path("wide"), &feed);
    struct zo_notes notes = {0};
    size_t size_bytes = 0;
    char *text;

    options.tensors = mixed;
    options.tensor_count = TAP_COUNT(mixed);
    TAP_CHECK_INT(zo_model_dir_write(&options, &notes, NULL), ZO_OK);
    text = fx_read(fx_path("wide/model.safetensors"), &size_bytes);
    TAP_CHECK(strstr(text + 8, want) != NULL);
    TAP_CHECK((unsigned char)text[size_bytes - 13] == byte_of(1, 2, 0));
    TAP_CHECK((unsigned char)text[size_bytes - 3] == byte_of(1, 0, 0));
    free(text);
}

/* ---- other files ----------------------------------------------------- */

static const char config_text[] =
    "{\n \"a\": {\"torch_dtype\": \"float32\"},\n"
    " \"torch_dtype\"  :  \"float16\",\n \"x\": [1.5e3, \"\\u00e9\"]\n}";

/* A source directory: some files, and what must not be copied. */
static const char *make_source(const char *name)
{
    const char *path = fx_path("%s", name);
    static const char *const left_out[] = {"model.safetensors",
                                           "pytorch_model.bin",
                                           "training_args.bin",
                                           "pytorch_model.bin.index.json",
                                           INDEX,
                                           "optimizer.pt",
                                           ".hidden",
                                           "x.gguf"};

    fx_folder(path);
    fx_folder(fx_path("%s/folder", name));
    fx_write_text(fx_path("%s/folder/inside.txt", name), "x");
    fx_write_text(fx_path("%s/config.json", name), config_text);
    fx_write(fx_path("%s/tokenizer.model", name), "a\0b\xff", 4);
    fx_write_text(fx_path("%s/modeling_x.py", name), "import os\n");
    fx_write_text(fx_path("%s/configuration_x.py", name), "");
    fx_write_text(fx_path("%s/MODEL_LICENSE", name), "free\n");
    for (size_t i = 0; i < TAP_COUNT(left_out); i++) {
        fx_write_text(fx_path("%s/%s", name, left_out[i]), "weights");
    }
    (void)chmod(fx_path("%s/modeling_x.py", name), 0755);
    return path;
}

static const char *const copied[] = {"config.json", "tokenizer.model",
                                     "modeling_x.py", "configuration_x.py",
                                     "MODEL_LICENSE"};

static void check_copies(const char *source, const char *target)
{
    for (size_t i = 0; i < TAP_COUNT(copied); i++) {
        const char *copy = fx_path("%s/%s", target, copied[i]);
        struct stat info;

        TAP_CHECK(fx_same_files(fx_path("%s/%s", source, copied[i]), copy));
        TAP_CHECK_INT(lstat(copy, &info), 0);
        TAP_CHECK(S_ISREG(info.st_mode));
        TAP_CHECK_INT(info.st_mode & 0111, 0);
    }
}

static void test_other_files(void)
{
    struct feed feed;
    struct zo_model_write_options options =
        options_of(fx_path("copied"), &feed);
    struct zo_model_written written = {0};
    struct zo_notes notes = {0};

    options.source_path = make_source("source");
    (void)mkfifo(fx_path("source/pipe"), 0600);
    fx_link("nowhere", fx_path("source/broken.json"));
    fx_write_text(fx_path("source/large.json"), "");
    TAP_CHECK_INT(truncate(fx_path("source/large.json"), 300 << 20), 0);
    TAP_CHECK_INT(zo_model_dir_write(&options, &notes, &written), ZO_OK);
    check_copies("source", "copied");
    TAP_CHECK_INT((long long)fx_count_files(options.path, ""), 6);
    TAP_CHECK_INT((long long)written.file_count, 5);
    TAP_CHECK_INT((long long)written.py_count, 2);
    TAP_CHECK(strcmp(written.py_files[0], "configuration_x.py") == 0);
    TAP_CHECK(strcmp(written.py_files[1], "modeling_x.py") == 0);
    TAP_CHECK_INT((long long)notes.count, 4);
    TAP_CHECK(strstr(notes.items[0].text, "broken.json: No such file"));
    TAP_CHECK(strstr(notes.items[1].text, "source/folder: a folder"));
    TAP_CHECK(strstr(notes.items[2].text, "large.json: more than 256 MiB"));
    TAP_CHECK(strstr(notes.items[3].text, "source/pipe: no regular file"));
    TAP_CHECK_INT(seed_of(options.path), 1);
    zo_model_written_fini(&written);
    zo_notes_fini(&notes);
}

/* From Hugging Face's cache, where every name is a link. */
static void test_links_become_files(void)
{
    struct feed feed;
    struct zo_model_write_options options =
        options_of(fx_path("from_cache"), &feed);
    struct zo_notes notes = {0};

    (void)make_source("blobs");
    fx_folder(fx_path("snapshot"));
    for (size_t i = 0; i < TAP_COUNT(copied); i++) {
        char target[64];

        (void)snprintf(target, sizeof(target), "../blobs/%s", copied[i]);
        fx_link(target, fx_path("snapshot/%s", copied[i]));
    }
    fx_link("../blobs/folder", fx_path("snapshot/folder"));
    options.source_path = fx_path("snapshot");
    TAP_CHECK_INT(zo_model_dir_write(&options, &notes, NULL), ZO_OK);
    check_copies("blobs", "from_cache");
    TAP_CHECK_INT((long long)fx_count_files(options.path, ""), 6);
    TAP_CHECK_INT((long long)notes.count, 1); /* the folder */
    zo_notes_fini(&notes);
}

static const struct {
    const char *name, *before, *after; /* NULL: as before */
    bool has_note;
} configs[] = {
    {"same", "{\"torch_dtype\":\"bfloat16\",\"x\":1}", NULL, false},
    {"other", "{ \"torch_dtype\" : \"float16\" , \"x\":1}\n",
     "{ \"torch_dtype\" : \"bfloat16\" , \"x\":1}\n", false},
    {"escaped", "{\"x\":\"\\u00e9\",\"torch\\u005fdtype\":\"float\\u00316\"}",
     "{\"x\":\"\\u00e9\",\"torch\\u005fdtype\":\"bfloat16\"}", false},
    {"spelled", "{\"torch_dtype\":\"bfloat\\u00316\"}", NULL, false},
    {"new_name", "{\"dtype\":\"float32\"}", "{\"dtype\":\"bfloat16\"}", false},
    {"nested", "{\"y\":{\"torch_dtype\":\"float16\"}}", NULL, false},
    {"absent", "{\"x\":[]}", NULL, false},
    {"null", "{\"torch_dtype\":null}", NULL, false},
    {"python", "{\"x\":NaN,\"torch_dtype\":\"float16\"}", NULL, true},
    {"not_json", "\xff\xfe", NULL, true},
    {"empty", "", NULL, true},
};

static void test_dtype_in_config(void)
{
    static const struct zo_tensor_info brain[] = {
        {.name = "w", .element = ZO_ELEMENT_BF16, .rank = 1, .shape = {8}},
        {.name = "v", .element = ZO_ELEMENT_F32, .rank = 1, .shape = {3}},
    };

    for (size_t i = 0; i < TAP_COUNT(configs); i++) {
        const char *name = configs[i].name;
        const char *after =
            configs[i].after != NULL ? configs[i].after : configs[i].before;
        struct feed feed;
        struct zo_model_write_options options =
            options_of(fx_path("out_%s", name), &feed);
        struct zo_notes notes = {0};
        char *text;

        options.tensors = brain;
        options.tensor_count = TAP_COUNT(brain);
        options.source_path = fx_path("in_%s", name);
        fx_folder(options.source_path);
        fx_write_text(fx_path("in_%s/config.json", name), configs[i].before);
        TAP_CHECK_INT(zo_model_dir_write(&options, &notes, NULL), ZO_OK);
        text = fx_read(fx_path("out_%s/config.json", name), NULL);
        if (strcmp(text, after) != 0) {
            tap_fail(__FILE__, __LINE__, "%s: %s", name, text);
        }
        free(text);
        TAP_CHECK_INT((long long)notes.count, configs[i].has_note ? 1 : 0);
        zo_notes_fini(&notes);
    }
}

static enum zo_status feed_dir(void *context, size_t index,
                               uint64_t offset_bytes, size_t size_bytes,
                               void *buffer)
{
    return zo_model_dir_read(context, index, offset_bytes, size_bytes, buffer);
}

/* From torch .bin shards to safetensors, tensor by tensor. */
static void test_converts_the_reference(void)
{
    const char *source = fx_shared("vectors/tiny_fp16_bin");
    struct zo_model_dir *from = NULL, *to = NULL;
    struct zo_tensor_info infos[25];
    struct zo_notes notes = {0};
    struct zo_model_write_options options = {
        .path = fx_path("converted"),
        .source_path = source,
        .tensors = infos,
        .tensor_count = TAP_COUNT(infos),
        .data = feed_dir,
        .shard_bytes = 100000,
        .piece_bytes = 1000,
    };
    char a[65536], b[65536];

    if (source == NULL) {
        tap_skip("no shared vectors");
        return;
    }
    TAP_CHECK_INT(zo_model_dir_open(source, &notes, &from), ZO_OK);
    TAP_CHECK_INT((long long)zo_model_dir_count(from), TAP_COUNT(infos));
    for (size_t i = 0; i < TAP_COUNT(infos); i++) {
        infos[i] = *zo_model_dir_info(from, i);
    }
    options.context = from;
    TAP_CHECK_INT(zo_model_dir_write(&options, &notes, NULL), ZO_OK);
    TAP_CHECK(fx_same_files(fx_shared("vectors/tiny_fp16_bin/config.json"),
                            fx_path("converted/config.json")));
    TAP_CHECK_INT(zo_model_dir_open(options.path, &notes, &to), ZO_OK);
    TAP_CHECK_INT((long long)zo_model_dir_shard_count(to), 3);
    for (size_t i = 0; i < TAP_COUNT(infos); i++) {
        const size_t size_bytes = (size_t)infos[i].size_bytes;

        TAP_CHECK(strcmp(zo_model_dir_info(to, i)->name, infos[i].name) == 0);
        TAP_CHECK_INT(zo_model_dir_read(from, i, 0, size_bytes, a), ZO_OK);
        TAP_CHECK_INT(zo_model_dir_read(to, i, 0, size_bytes, b), ZO_OK);
        TAP_CHECK(memcmp(a, b, size_bytes) == 0);
    }
    zo_model_dir_close(from);
    zo_model_dir_close(to);
    zo_notes_fini(&notes);
}

/* ---- targets --------------------------------------------------------- */

static void test_replaces_only_when_asked(void)
{
    const char *path = fx_path("replace");

    TAP_CHECK_INT(write_model(path, 1, false), ZO_OK);
    TAP_CHECK(fx_refused(write_model(path, 2, false), ZO_E_USAGE,
                         "replace is there already", "--overwrite"));
    TAP_CHECK_INT(seed_of(path), 1);
    TAP_CHECK_INT(write_model(path, 2, true), ZO_OK);
    TAP_CHECK_INT(seed_of(path), 2);
    TAP_CHECK(!fx_is_there(fx_path(".replace.partial")));
    /* Where two names cannot be exchanged, by two renames. */
    disk_cannot_exchange = true;
    TAP_CHECK_INT(write_model(path, 3, true), ZO_OK);
    disk_cannot_exchange = false;
    TAP_CHECK_INT(seed_of(path), 3);
    TAP_CHECK(!fx_is_there(fx_path(".replace.partial")));
    TAP_CHECK(!fx_is_there(fx_path(".replace.replaced")));
}

static void test_replaces_models_only(void)
{
    const char *path = fx_path("precious");

    fx_folder(path);
    TAP_CHECK_INT(write_model(path, 1, true), ZO_OK); /* it was empty */
    fx_folder(fx_path("precious/photos"));
    TAP_CHECK(fx_refused(write_model(path, 2, true), ZO_E_USAGE,
                         "precious holds other folders: not replaced", ""));
    TAP_CHECK(fx_refused(write_model(path, 2, false), ZO_E_USAGE,
                         "precious holds other folders: not replaced", ""));
    TAP_CHECK_INT(seed_of(path), 1);
    path = fx_path("letters");
    fx_folder(path);
    fx_write_text(fx_path("letters/to_mother.txt"), "x");
    TAP_CHECK(fx_refused(write_model(path, 2, true), ZO_E_USAGE,
                         "letters is not a model directory: not replaced", ""));
    TAP_CHECK(fx_is_there(fx_path("letters/to_mother.txt")));
    path = fx_path("saved");
    TAP_CHECK_INT(write_model(path, 1, false), ZO_OK);
    fx_write_text(fx_path("saved/manifest.json"), "{}");
    TAP_CHECK(fx_refused(write_model(path, 2, true), ZO_E_USAGE,
                         "saved is a training state: not replaced", ""));
    path = fx_path("file_there");
    fx_write_text(path, "x");
    TAP_CHECK(fx_refused(write_model(path, 2, true), ZO_E_USAGE,
                         "file_there is there and is no folder", ""));
    path = fx_path("link_there");
    fx_link("precious", path);
    TAP_CHECK(fx_refused(write_model(path, 2, true), ZO_E_USAGE,
                         "link_there is there and is a link", ""));
}

static void test_names_of_targets(void)
{
    char here[1024];

    TAP_CHECK(fx_refused(write_model(fx_path("no/such"), 1, false), ZO_E_USAGE,
                         "cannot make folder", "no/.such.partial"));
    TAP_CHECK(fx_refused(write_model("..", 1, true), ZO_E_USAGE,
                         ".. does not name a new folder", ""));
    TAP_CHECK(fx_refused(write_model("/", 1, true), ZO_E_USAGE,
                         "does not name a new folder", ""));
    TAP_CHECK_INT(write_model(fx_path("slashes///"), 1, false), ZO_OK);
    TAP_CHECK_INT(seed_of(fx_path("slashes")), 1);
    TAP_CHECK_INT(write_model(fx_path("slashes/"), 2, true), ZO_OK);
    TAP_CHECK_INT(seed_of(fx_path("slashes")), 2);
    TAP_CHECK(getcwd(here, sizeof(here)) != NULL);
    TAP_CHECK_INT(chdir(fx_path(".")), 0);
    TAP_CHECK_INT(write_model("relative", 1, false), ZO_OK);
    TAP_CHECK_INT(seed_of("relative"), 1);
    TAP_CHECK_INT(chdir(here), 0);
}

static void test_removes_leftovers(void)
{
    const char *path = fx_path("killed");

    fx_folder(fx_path(".killed.partial"));
    fx_write_text(fx_path(".killed.partial/config.json"), "{}");
    fx_write_text(fx_path(".killed.partial/model.safetensors.partial"), "x");
    fx_folder(fx_path(".killed.replaced"));
    fx_write_text(fx_path(".killed.replaced/config.json"), "{}");
    TAP_CHECK_INT(write_model(path, 1, false), ZO_OK);
    TAP_CHECK_INT(seed_of(path), 1);
    TAP_CHECK_INT((long long)fx_count_files(path, ""), 3);
    TAP_CHECK(!fx_is_there(fx_path(".killed.partial")));
    TAP_CHECK(!fx_is_there(fx_path(".killed.replaced")));
}

/* The source is what is replaced. */
static void test_in_place(void)
{
    const char *path = fx_path("in_place");
    struct feed feed;
    struct zo_model_write_options options = options_of(path, &feed);
    struct zo_notes notes = {0};

    TAP_CHECK_INT(write_model(path, 1, false), ZO_OK);
    fx_write_text(fx_path("in_place/config.json"), config_text);
    options.source_path = path;
    options.replace = true;
    feed.seed = 2;
    TAP_CHECK_INT(zo_model_dir_write(&options, &notes, NULL), ZO_OK);
    TAP_CHECK_INT(seed_of(path), 2);
    TAP_CHECK_INT((long long)fx_count_files(path, ""), 2);
    TAP_CHECK(fx_is_there(fx_path("in_place/config.json")));
}

static void test_refuses_what_cannot_be(void)
{
    static const struct zo_tensor_info huge[] = {{.name = "w",
                                                  .element = ZO_ELEMENT_F32,
                                                  .rank = 1,
                                                  .shape = {INT64_C(1) << 50}}};
    static const struct zo_tensor_info wrap[] = {{.name = "w",
                                                  .element = ZO_ELEMENT_F32,
                                                  .rank = 1,
                                                  .shape = {INT64_MAX}}};
    static struct zo_tensor_info many[1001];
    struct feed feed;
    struct zo_model_write_options options = options_of(fx_path("bad"), &feed);
    struct zo_notes notes = {0};

    options.tensors = wrap;
    options.tensor_count = 1;
    TAP_CHECK(fx_refused(zo_model_dir_write(&options, &notes, NULL), ZO_E_SHAPE,
                         "\"w\": its size does not fit", ""));
    options.tensors = huge;
    TAP_CHECK(fx_refused(zo_model_dir_write(&options, &notes, NULL), ZO_E_IO,
                         "bad needs 4194304.00 GiB of disk; ", "are free"));
    for (size_t i = 0; i < TAP_COUNT(many); i++) {
        many[i] = tensors[0];
    }
    options.tensors = many;
    options.tensor_count = TAP_COUNT(many);
    options.shard_bytes = 1;
    TAP_CHECK(fx_refused(zo_model_dir_write(&options, &notes, NULL), ZO_E_ARG,
                         "would have 1001 shards; want at most 1000", ""));
    options.shard_bytes = 0;
    TAP_CHECK(fx_refused(zo_model_dir_write(&options, &notes, NULL), ZO_E_ARG,
                         "\"e\" occurs twice", ""));
    options = options_of(fx_path("bad"), &feed);
    options.source_path = fx_path("no_source");
    TAP_CHECK(fx_refused(zo_model_dir_write(&options, &notes, NULL), ZO_E_USAGE,
                         "cannot read folder", "no_source"));
    TAP_CHECK(!fx_is_there(fx_path("bad")));
    TAP_CHECK(!fx_is_there(fx_path(".bad.partial")));
}

/* ---- failures -------------------------------------------------------- */

static void test_data_that_fails(void)
{
    const char *path = fx_path("no_data");

    TAP_CHECK_INT(write_model(path, 1, false), ZO_OK);
    for (int call = 1; call <= 5; call++) {
        struct feed feed;
        struct zo_model_write_options options = options_of(path, &feed);
        struct zo_notes notes = {0};

        options.replace = true;
        feed.fails_at = call;
        TAP_CHECK(fx_refused(zo_model_dir_write(&options, &notes, NULL),
                             ZO_E_INJECTED, "the data of tensor", ""));
        TAP_CHECK_INT(seed_of(path), 1);
        TAP_CHECK(!fx_is_there(fx_path(".no_data.partial")));
    }
}

/*
 * Each call that changes the disk fails in turn.  The target is the old
 * model until the new one has its name; only a failure after that, when the
 * folder is synced, leaves the new one.
 */
static void sweep_faults(const char *name, bool in_two)
{
    const char *path = fx_path("%s", name);
    struct feed feed;
    struct zo_model_write_options options = options_of(path, &feed);
    enum zo_status status = ZO_E_IO;
    int failures = 0, late = 0;

    options.source_path = make_source(in_two ? "source_b" : "source_a");
    options.shard_bytes = 64;
    options.replace = true;
    TAP_CHECK_INT(write_model(path, 1, false), ZO_OK);
    disk_cannot_exchange = in_two;
    for (int nth = 1; status != ZO_OK; nth++) {
        struct zo_notes notes = {0};
        int seed;

        options.context = &feed;
        feed = (struct feed){.seed = 2, .index = SIZE_MAX};
        disk_fault_at = nth;
        disk_fault_calls = 0;
        status = zo_model_dir_write(&options, &notes, NULL);
        disk_fault_at = 0;
        zo_notes_fini(&notes);
        failures += status != ZO_OK;
        seed = seed_of(path);
        late += status != ZO_OK && seed == 2;
        TAP_CHECK(status == ZO_OK || status == ZO_E_IO);
        TAP_CHECK(status == ZO_OK ? seed == 2 : seed == 1 || seed == 2);
        TAP_CHECK(seed == 2 || !fx_is_there(fx_path(".%s.partial", name)));
        TAP_CHECK(status == ZO_OK || seed == 1 ||
                  fx_is_there(fx_path(".%s.%s", name,
                                      in_two ? "replaced" : "partial")));
    }
    disk_cannot_exchange = false;
    TAP_CHECK(failures > 20);
    TAP_CHECK_INT(late, 1);
    TAP_CHECK(!fx_is_there(fx_path(".%s.partial", name)));
    TAP_CHECK(!fx_is_there(fx_path(".%s.replaced", name)));
}

static void test_each_disk_call_fails(void)
{
    sweep_faults("faults", false);
}

static void test_each_disk_call_fails_in_two_renames(void)
{
    sweep_faults("faults2", true);
}

/* Shards, index, their folder; then the name, and the folder above. */
static void test_syncs_before_it_renames(void)
{
    memset(disk_events, 0, sizeof(disk_events));
    TAP_CHECK_INT(write_model(fx_path("synced"), 1, false), ZO_OK);
    TAP_CHECK(strcmp(disk_events, "frfrfdrd") == 0);
}

/* A disk that says "done" and did nothing: seen when it is read back. */
static void test_reads_back_what_it_wrote(void)
{
    const char *path = fx_path("lost");
    enum zo_status status = ZO_E_CORRUPT;
    int losses = 0;

    TAP_CHECK_INT(write_model(path, 1, false), ZO_OK);
    for (disk_lost_at = 1; status != ZO_OK; disk_lost_at++) {
        disk_lost_calls = 0;
        status = write_model(path, 2, true);
        TAP_CHECK(status == ZO_OK || status == ZO_E_CORRUPT);
        TAP_CHECK_INT(seed_of(path), status == ZO_OK ? 2 : 1);
        losses += status != ZO_OK;
    }
    disk_lost_at = 0;
    TAP_CHECK_INT(losses, 10); /* 2 lengths, 2 headers, 5 tensors, index */
}

static void test_survives_no_memory(void)
{
    const char *path = fx_path("memory");
    struct feed feed;
    struct zo_model_write_options options = options_of(path, &feed);
    enum zo_status status = ZO_E_NOMEM;
    int failures = 0;

    options.source_path = make_source("memory_source");
    options.shard_bytes = 64;
    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        struct zo_model_written written = {0};
        struct zo_notes notes = {0};

        zo_memory_fail_at(nth);
        status = zo_model_dir_write(&options, &notes, &written);
        zo_memory_fail_at(0);
        failures += status == ZO_E_NOMEM;
        TAP_CHECK(status == ZO_OK || written.py_files == NULL);
        TAP_CHECK(fx_is_there(path) == (status == ZO_OK));
        TAP_CHECK(!fx_is_there(fx_path(".memory.partial")));
        zo_model_written_fini(&written);
        zo_notes_fini(&notes);
    }
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(failures > 50);
    TAP_CHECK_INT(seed_of(path), 1);
}

/* Killed at 20 moments, a model is there each time, the old or the new. */
static void test_survives_kills(void)
{
    const char *path = fx_path("kill");
    unsigned seed = 2024;

    TAP_CHECK_INT(write_model(path, 0, false), ZO_OK);
    for (int i = 0; i < 20; i++) {
        const pid_t child = fork();
        int status;

        TAP_CHECK(child >= 0);
        if (child == 0) {
            for (int s = 0;; s++) {
                (void)write_model(path, s % 8, true);
            }
        }
        seed = seed * 1664525u + 1013904223u;
        (void)usleep(500 + (seed >> 8) % 20000);
        (void)kill(child, SIGKILL);
        TAP_CHECK(waitpid(child, &status, 0) == child);
        TAP_CHECK(WIFSIGNALED(status));
        TAP_CHECK(seed_of(path) >= 0);
    }
    TAP_CHECK_INT(write_model(path, 5, true), ZO_OK);
    TAP_CHECK_INT(seed_of(path), 5);
    TAP_CHECK(!fx_is_there(fx_path(".kill.partial")));
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a model that fits is one file", test_one_file},
        {"shards keep their limit, and the index is exact", test_shards},
        {"wide elements come first", test_wide_elements_come_first},
        {"other files are copied byte for byte", test_other_files},
        {"links become real files", test_links_become_files},
        {"torch_dtype is edited only when it differs", test_dtype_in_config},
        {"the reference .bin model is converted", test_converts_the_reference},
        {"a target is replaced only when asked", test_replaces_only_when_asked},
        {"only models are replaced", test_replaces_models_only},
        {"targets are named in every way", test_names_of_targets},
        {"what a killed run has left is removed", test_removes_leftovers},
        {"a model is rewritten in place", test_in_place},
        {"what cannot be written is refused before anything is",
         test_refuses_what_cannot_be},
        {"data that fails leaves the old model", test_data_that_fails},
        {"each failed call leaves a whole model", test_each_disk_call_fails},
        {"also where names cannot be exchanged",
         test_each_disk_call_fails_in_two_renames},
        {"all is synced before it is renamed", test_syncs_before_it_renames},
        {"a write that was lost is noticed", test_reads_back_what_it_wrote},
        {"each failed allocation leaves nothing", test_survives_no_memory},
        {"a kill at any time leaves a whole model", test_survives_kills},
    };
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
