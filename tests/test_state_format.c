/*
 * Training states on disk: what was saved is read back to the bit, whatever
 * is damaged is found, and a state is whole or not there.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/hash.h"
#include "src/base/memory.h"
#include "src/base/random.h"
#include "src/checkpoint/model_dir.h"
#include "src/checkpoint/state_folder.h"
#include "src/checkpoint/state_reader.h"
#include "src/checkpoint/state_writer.h"
#include "tests/disk_faults.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"

#define ELEMS_MAX 1000

static const struct zo_tensor_info tensors[] = {
    {.name = "a", .rank = 2, .shape = {7, 5}},
    {.name = "b\" \xc3\xa9", .rank = 1, .shape = {ELEMS_MAX}},
    {.name = "c", .rank = 1, .shape = {1}},
};

static const struct zo_state_setting settings[] = {
    {"learning_rate", "1e-05"},
    {"a \"name\"", "a\nvalue"},
};

static const struct zo_state_run run_500 = {
    .step = 500,
    .optimizer_steps = 498,
    .tokens_total = 123456789,
    .best_loss = 0.1,
    .scales = 1,
    .loss_scale = 0x1p-3,
    .scaler_iteration = 500,
    .last_overflow = -1,
    .hysteresis_left = 2,
    .futile_skips = 1,
    .skipped_steps = 2,
    .seed = UINT64_MAX - 1,
    .shuffles = 1,
    .step_rows = 12,
    .data_fingerprint = 0xfedcba9876543210u,
    .model_fingerprint = 1,
};

static struct zo_pool *pool;    /* of 2 workers */
static struct zo_pool *no_pool; /* the caller alone */

/* Weights like weights: upper bytes alike, lower ones at random. */
static uint32_t bits_of(enum zo_state_kind kind, size_t index, int64_t elem)
{
    const uint64_t key = (uint64_t)kind * 7 + index;

    return 0x3c000000u |
           ((uint32_t)zo_random_bits(key, (uint64_t)elem) & 0x80ffffffu);
}

static enum zo_status give(void *context, enum zo_state_kind kind, size_t index,
                           int64_t first_elem, int64_t elem_count, void *buffer)
{
    const enum zo_dtype moment_type = *(const enum zo_dtype *)context;

    for (int64_t i = 0; i < elem_count; i++) {
        const uint32_t bits = bits_of(kind, index, first_elem + i);

        if (kind == ZO_STATE_MASTER || moment_type == ZO_F32) {
            ((uint32_t *)buffer)[i] = bits;
        } else {
            ((uint16_t *)buffer)[i] = (uint16_t)(bits >> 16);
        }
    }
    return ZO_OK;
}

static struct zo_state_written written; /* of the last save */

static enum zo_status save_type(const char *folder, int64_t step,
                                enum zo_dtype moment_type,
                                struct zo_pool *with_pool)
{
    struct zo_state_run run = run_500;
    const struct zo_state_write_options options = {
        .folder = folder,
        .program = "zero-offload test",
        .run = &run,
        .settings = settings,
        .setting_count = TAP_COUNT(settings),
        .tensors = tensors,
        .tensor_count = TAP_COUNT(tensors),
        .moment_type = moment_type,
        .data = give,
        .context = &moment_type,
        .pool = with_pool,
        .piece_elems = 64,
        .shard_bytes = 3000,
        .source_path = fx_path("model"),
        .source_type = ZO_F32,
    };

    run.step = step;
    written = (struct zo_state_written){0};
    return zo_state_write(&options, &written);
}

static enum zo_status save(const char *folder, int64_t step)
{
    return save_type(folder, step, ZO_F32, no_pool);
}

/* Everything is as it was given; else a failure, or ZO_E_ARG. */
static enum zo_status read_all(const char *path, enum zo_dtype moment_type)
{
    struct zo_state *state = NULL;
    enum zo_status status;

    ZO_TRY(zo_state_open(path, &state));
    status = ZO_OK;
    for (int kind = 0; status == ZO_OK && kind < ZO_STATE_KINDS; kind++) {
        const struct zo_tensor_source *source =
            zo_state_tensors(state, (enum zo_state_kind)kind);

        for (size_t i = 0;
             status == ZO_OK && i < zo_tensor_source_count(source); i++) {
            const struct zo_tensor_info *info =
                zo_tensor_source_info(source, i);
            uint32_t got[ELEMS_MAX], want[ELEMS_MAX];

            status = zo_tensor_source_read(source, i, 0,
                                           (size_t)info->size_bytes, got);
            (void)!give(&moment_type, (enum zo_state_kind)kind, i, 0,
                        (int64_t)info->elem_count, want);
            if (status == ZO_OK &&
                memcmp(got, want, (size_t)info->size_bytes) != 0) {
                status = ZO_E_ARG;
            }
        }
    }
    zo_state_close(state);
    return status;
}

static const char *new_folder(const char *name)
{
    const char *path = fx_path("%s", name);

    fx_folder(path);
    return path;
}

/* ---- round trips -----------------------------------------------------------
 */

static void test_reads_back(void)
{
    const char *folder = new_folder("back");
    struct zo_state *state = NULL;
    const struct zo_state_setting *read;
    size_t count = 0;

    TAP_CHECK_INT(save_type(folder, 500, ZO_F32, pool), ZO_OK);
    TAP_CHECK_INT(read_all(fx_path("back/state-00000500"), ZO_F32), ZO_OK);
    TAP_CHECK_INT(save_type(folder, 501, ZO_BF16, pool), ZO_OK);
    TAP_CHECK_INT(read_all(fx_path("back/state-00000501"), ZO_BF16), ZO_OK);
    TAP_CHECK_INT(read_all(fx_path("back/latest"), ZO_BF16), ZO_OK);
    TAP_CHECK_INT(zo_state_open(fx_path("back/state-00000500"), &state), ZO_OK);
    TAP_CHECK(memcmp(zo_state_run(state), &run_500, sizeof(run_500)) == 0);
    TAP_CHECK(strcmp(zo_state_program(state), "zero-offload test") == 0);
    read = zo_state_settings(state, &count);
    TAP_CHECK_INT((long long)count, TAP_COUNT(settings));
    for (size_t i = 0; i < count; i++) {
        TAP_CHECK(strcmp(read[i].name, settings[i].name) == 0);
        TAP_CHECK(strcmp(read[i].value, settings[i].value) == 0);
    }
    TAP_CHECK(zo_state_shard_count(state) > 2);
    TAP_CHECK(zo_state_stored_bytes(state) < 12 * (35 + 1000 + 1));
    zo_state_close(state);
    TAP_CHECK(fx_is_there(fx_path("back/state-00000500/README")));
    TAP_CHECK_INT((long long)fx_count_files(folder, "."), 0);
}

/* A stretch that begins and ends within pieces. */
static void test_reads_any_stretch(void)
{
    const char *folder = new_folder("stretch");
    struct zo_state *state = NULL;
    const struct zo_tensor_source *source;
    char bytes[4 * ELEMS_MAX + 1];

    TAP_CHECK_INT(save(folder, 1), ZO_OK);
    TAP_CHECK_INT(zo_state_open(fx_path("stretch/latest"), &state), ZO_OK);
    source = zo_state_tensors(state, ZO_STATE_EXP_AVG);
    for (int64_t first = 0; first < ELEMS_MAX; first += 37) {
        const int64_t count = first % 211 + 1 < ELEMS_MAX - first
                                  ? first % 211 + 1
                                  : ELEMS_MAX - first;
        const enum zo_dtype type = ZO_F32;
        uint32_t want[ELEMS_MAX];

        (void)!give((void *)(uintptr_t)&type, ZO_STATE_EXP_AVG, 1, first, count,
                    want);
        /* One byte off, so that no alignment helps. */
        TAP_CHECK_INT(zo_tensor_source_read(source, 1, (uint64_t)first * 4,
                                            (size_t)count * 4, bytes + 1),
                      ZO_OK);
        TAP_CHECK(memcmp(bytes + 1, want, (size_t)count * 4) == 0);
    }
    zo_state_close(state);
}

static void test_infinite_best_loss(void)
{
    const char *folder = new_folder("infinite");
    const enum zo_dtype type = ZO_F32;
    struct zo_state_run run = run_500;
    const struct zo_state_write_options options = {
        .folder = folder,
        .program = "x",
        .run = &run,
        .tensors = tensors,
        .tensor_count = 1,
        .moment_type = ZO_F32,
        .data = give,
        .context = (void *)(uintptr_t)&type,
        .pool = pool,
    };
    struct zo_state *state = NULL;

    run.best_loss = INFINITY;
    TAP_CHECK_INT(zo_state_write(&options, &written), ZO_OK);
    TAP_CHECK_INT((long long)written.shard_count, 1);
    TAP_CHECK_INT(zo_state_open(fx_path("infinite/latest"), &state), ZO_OK);
    TAP_CHECK(isinf(zo_state_run(state)->best_loss));
    zo_state_close(state);
}

static void flip(const char *path, size_t at, unsigned char mask)
{
    size_t size_bytes = 0;
    char *bytes = fx_read(path, &size_bytes);

    bytes[at] = (char)(bytes[at] ^ mask);
    fx_write(path, bytes, size_bytes);
    free(bytes);
}

enum { LONG = 300000 };

/* Random but for a stretch of zeros, which begins at a random place. */
static enum zo_status give_long(void *context, enum zo_state_kind kind,
                                size_t index, int64_t first_elem,
                                int64_t elem_count, void *buffer)
{
    const int64_t zeros = *(const int64_t *)context;
    uint32_t *target = buffer;

    for (int64_t i = 0; i < elem_count; i++) {
        const int64_t at = first_elem + i;

        target[i] = at >= zeros && at < zeros + LONG / 4
                        ? 0
                        : (uint32_t)zo_random_bits((uint64_t)kind + index,
                                                   (uint64_t)at);
    }
    return ZO_OK;
}

static bool reads_long(const char *path, int64_t zeros)
{
    static uint32_t got[LONG], want[LONG];
    struct zo_state *state = NULL;
    bool is_same = zo_state_open(path, &state) == ZO_OK;

    for (int kind = 0; is_same && kind < ZO_STATE_KINDS; kind++) {
        (void)!give_long(&zeros, (enum zo_state_kind)kind, 0, 0, LONG, want);
        is_same = zo_tensor_source_read(
                      zo_state_tensors(state, (enum zo_state_kind)kind), 0, 0,
                      sizeof(got), got) == ZO_OK &&
                  memcmp(got, want, sizeof(got)) == 0;
    }
    zo_state_close(state);
    return is_same;
}

/* Of one long tensor; *zeros is borrowed. */
static struct zo_state_write_options long_options(const char *name,
                                                  int64_t *zeros)
{
    static const struct zo_tensor_info one = {
        .name = "long", .rank = 1, .shape = {LONG}};

    return (struct zo_state_write_options){
        .folder = new_folder(name),
        .program = "x",
        .run = &run_500,
        .tensors = &one,
        .tensor_count = 1,
        .moment_type = ZO_F32,
        .data = give_long,
        .context = zeros,
        .pool = pool,
    };
}

/* What is worth packing is packed, wherever it is; the rest as it was. */
static void test_long_pieces(void)
{
    int64_t zeros = 0;
    const struct zo_state_write_options options = long_options("long", &zeros);

    for (zeros = 0; zeros <= LONG; zeros += LONG / 8) {
        const bool has_none = zeros == LONG;

        TAP_CHECK_INT(zo_state_write(&options, &written), ZO_OK);
        TAP_CHECK(reads_long(fx_path("long/latest"), zeros));
        TAP_CHECK((written.bytes > 12 * LONG) == has_none);
    }
}

/* Those who feed the disk store pieces as they are. */
static void test_spares_the_processor(void)
{
    int64_t zeros = 0;
    struct zo_state_write_options options = long_options("spared", &zeros);
    struct zo_pool *one_worker = NULL;

    options.piece_elems = 1000;
    options.spares_cpu = true;
    TAP_CHECK_INT(zo_pool_open(1, &one_worker), ZO_OK);
    /* Two feed, then one packs beside them. */
    for (int workers = 1; workers < 3; workers++) {
        options.pool = workers == 1 ? one_worker : pool;
        TAP_CHECK_INT(zo_state_write(&options, &written), ZO_OK);
        TAP_CHECK(reads_long(fx_path("spared/latest"), zeros));
        TAP_CHECK(workers > 1 || written.bytes > 12 * LONG);
    }
    options.pool = one_worker;
    TAP_CHECK_INT(zo_state_write(&options, NULL), ZO_OK);
    flip(fx_path("spared/latest/shard-00001.state"), LONG, 1);
    TAP_CHECK(!reads_long(fx_path("spared/latest"), zeros));
    options.spares_cpu = false;
    TAP_CHECK_INT(zo_state_write(&options, &written), ZO_OK);
    TAP_CHECK(written.bytes < 11 * LONG);
    zo_pool_close(one_worker);
}

/* As eval, export and generate see it. */
static void test_is_a_model_directory(void)
{
    const char *folder = new_folder("as_model");
    struct zo_model_dir *dir = NULL;
    struct zo_notes notes = {0};
    uint32_t got[35];
    size_t index = 0;

    TAP_CHECK_INT(save(folder, 3), ZO_OK);
    TAP_CHECK(fx_same_files(fx_path("as_model/latest/config.json"),
                            fx_path("model/config.json")));
    TAP_CHECK_INT(zo_model_dir_open(fx_path("as_model/latest"), &notes, &dir),
                  ZO_OK);
    TAP_CHECK_INT((long long)zo_model_dir_count(dir), 3);
    TAP_CHECK(zo_model_dir_find(dir, "a", &index));
    TAP_CHECK_INT(zo_model_dir_read_as(dir, index, 0, 35, ZO_F32, got, NULL),
                  ZO_OK);
    for (int i = 0; i < 35; i++) {
        TAP_CHECK(got[i] == bits_of(ZO_STATE_MASTER, 0, i));
    }
    zo_model_dir_close(dir);
    zo_notes_fini(&notes);
}

/* ---- damage ----------------------------------------------------------------
 */

static void check_each_flip(const char *file)
{
    const char *path = fx_path("flips/state-00000001");
    const char *victim = fx_path("flips/state-00000001/%s", file);
    size_t size_bytes = 0, harmless = 0;
    char *bytes = fx_read(victim, &size_bytes);

    free(bytes);
    TAP_CHECK(size_bytes > 100);
    for (size_t at = 0; at < size_bytes; at++) {
        const unsigned char mask = (unsigned char)(1u << at % 8);
        enum zo_status status;

        flip(victim, at, mask);
        status = read_all(path, ZO_F32);
        /* A frame has bits that mean nothing: then all numbers are right. */
        if (status == ZO_OK) {
            harmless++;
        } else if (status != ZO_E_CORRUPT ||
                   strstr(zo_err_last()->text, file) == NULL) {
            tap_fail(__FILE__, __LINE__, "byte %zu of %s: status %d", at, file,
                     (int)status);
            return;
        }
        flip(victim, at, mask);
    }
    TAP_CHECK(harmless < size_bytes / 100);
    TAP_CHECK_INT(read_all(path, ZO_F32), ZO_OK);
}

static void test_finds_a_flipped_bit_beside_the_numbers(void)
{
    static const char *const files[] = {"config.json", "tokenizer.model"};
    const char *folder = new_folder("beside");
    const char *path = fx_path("beside/state-00000001");

    TAP_CHECK_INT(save(folder, 1), ZO_OK);
    for (size_t f = 0; f < TAP_COUNT(files); f++) {
        const char *file = fx_path("beside/state-00000001/%s", files[f]);
        size_t size_bytes = 0;
        char *bytes = fx_read(file, &size_bytes);

        for (size_t at = 0; at < size_bytes; at += 1 + at / 4) {
            flip(file, at, (unsigned char)(1u << at % 8));
            TAP_CHECK(fx_refused(read_all(path, ZO_F32), ZO_E_CORRUPT, files[f],
                                 "damaged"));
            flip(file, at, (unsigned char)(1u << at % 8));
        }
        TAP_CHECK_INT(read_all(path, ZO_F32), ZO_OK);
        TAP_CHECK_INT(unlink(file), 0);
        TAP_CHECK(fx_refused(read_all(path, ZO_F32), ZO_E_CORRUPT, files[f],
                             "damaged"));
        fx_write(file, bytes, size_bytes);
        free(bytes);
    }
    fx_write(fx_path("beside/state-00000001/notes"), "the user's", 10);
    TAP_CHECK_INT(read_all(path, ZO_F32), ZO_OK);
}

static void test_finds_each_flipped_bit(void)
{
    const char *folder = new_folder("flips");

    TAP_CHECK_INT(save(folder, 1), ZO_OK);
    check_each_flip("manifest.json");
    check_each_flip("shard-00001.state");
    check_each_flip("shard-00002.state");
}

static void test_finds_what_is_cut_off(void)
{
    static const char *const files[] = {"manifest.json", "shard-00001.state"};
    const char *folder = new_folder("cut");
    const char *path = fx_path("cut/state-00000001");

    TAP_CHECK_INT(save(folder, 1), ZO_OK);
    for (size_t f = 0; f < TAP_COUNT(files); f++) {
        const char *file = fx_path("cut/state-00000001/%s", files[f]);
        size_t size_bytes = 0;
        char *bytes = fx_read(file, &size_bytes);

        for (size_t cut = 0; cut < size_bytes; cut += 1 + cut / 8) {
            fx_write(file, bytes, cut);
            TAP_CHECK_INT(read_all(path, ZO_F32), ZO_E_CORRUPT);
        }
        fx_write(file, bytes, size_bytes + 1); /* its 0 byte */
        TAP_CHECK_INT(read_all(path, ZO_F32), ZO_E_CORRUPT);
        fx_write(file, bytes, size_bytes);
        free(bytes);
    }
    TAP_CHECK_INT(unlink(fx_path("cut/state-00000001/shard-00002.state")), 0);
    TAP_CHECK(fx_refused(read_all(path, ZO_F32), ZO_E_CORRUPT, "damaged",
                         "shard-00002.state"));
}

/* ---- hostile manifests -----------------------------------------------------
 */

/* The manifest with `from` replaced by `to` once, and a checksum that fits. */
static void forge(const char *path, const char *from, const char *to)
{
    static const char key[] = ",\n\"checksum\":\"";
    size_t size_bytes = 0;
    char *text = fx_read(path, &size_bytes);
    const char *at = strstr(text, from), *end = strstr(text, key);
    struct fx_bytes forged = {0};
    char tail[64];

    if (at == NULL || end == NULL) {
        fprintf(stderr, "no %s in %s\n", from, path);
        abort();
    }
    fx_add(&forged, text, (size_t)(at - text));
    fx_add(&forged, to, strlen(to));
    fx_add(&forged, at + strlen(from), (size_t)(end - at) - strlen(from));
    (void)snprintf(tail, sizeof(tail), "%s%016" PRIx64 "\"}\n", key,
                   zo_hash64(forged.data, forged.count));
    fx_add(&forged, tail, strlen(tail));
    fx_write(path, forged.data, forged.count);
    fx_bytes_fini(&forged);
    free(text);
}

/* One that says nothing of files: nobody checks them. */
static void test_reads_the_first_version(void)
{
    const char *folder = new_folder("first");
    const char *path = fx_path("first/state-00000001");
    const char *file = fx_path("first/state-00000001/manifest.json");
    char *text, *files;

    TAP_CHECK_INT(save(folder, 1), ZO_OK);
    text = fx_read(file, &(size_t){0});
    files = strstr(text, ",\n\"files\":{");
    TAP_CHECK(files != NULL);
    strchr(files, '}')[1] = '\0';
    forge(file, files, "");
    free(text);
    TAP_CHECK_INT(read_all(path, ZO_F32), ZO_E_CORRUPT);
    forge(file, "\"version\":3", "\"version\":1");
    TAP_CHECK_INT(read_all(path, ZO_F32), ZO_OK);
    flip(fx_path("first/state-00000001/config.json"), 0, 1);
    TAP_CHECK_INT(read_all(path, ZO_F32), ZO_OK);
}

static const struct {
    const char *from, *to;
} forgeries[] = {
    {"\"version\":3", "\"version\":1"},
    {"\"config.json\":\"", "\"../config.json\":\""},
    {"\"config.json\":\"", "\"\":\""},
    {"\"config.json\":\"", "\"\\u001b[2J\":\""},
    {"\"config.json\":\"", "\"config.jsom\":\""},
    {"\"config.json\":\"", "\"config.json\":\"0"},
    {"\"config.json\":", "\"config.json\":7,\"a\":"},
    {"zero-offload training state", "something else"},
    {"\"step\":1,", "\"step\":-1,"},
    {"\"step\":1,", "\"step\":0,"},
    {"\"step\":1,", "\"step\":1e3,"},
    {"\"step\":1,", ""},
    {"\"seed\":\"ffff", "\"seed\":\"FFFF"},
    {"\"seed\":\"ffff", "\"seed\":\"ffffff"},
    {"\"last_overflow\":\"-1\"", "\"last_overflow\":\"one\""},
    {"\"last_overflow\":\"-1\"", "\"last_overflow\":\"99999999999999999999\""},
    {"\"best_loss\":\"", "\"best_loss\":\"z"},
    {"\"piece_elems\":64", "\"piece_elems\":0"},
    {"\"piece_elems\":64", "\"piece_elems\":4194305"},
    {"\"piece_elems\":64", "\"piece_elems\":65"},
    {"\"piece_elems\":64", "\"piece_elems\":9007199254740991"},
    {"\"shards\":[", "\"shards\":[9007199254740991,"},
    {"\"shards\":[", "\"shards\":[0,"},
    {"\"shape\":[7,5]", "\"shape\":[]"},
    {"\"shape\":[7,5]", "\"shape\":[0]"},
    {"\"shape\":[7,5]", "\"shape\":[9007199254740991,9007199254740991]"},
    {"\"shape\":[7,5]", "\"shape\":[9007199254740991]"},
    {"\"shape\":[7,5]", "\"shape\":[1,1,1,1,1,1,1,1,35]"},
    {"\"shape\":[7,5]", "\"shape\":[70,5]"},
    {"\"name\":\"c\"", "\"name\":\"a\""},
    {"\"name\":\"c\"", "\"name\":\"c\\n\""},
    {"\"name\":\"c\"", "\"name\":\"\\u001b[2J\""},
    {"\"dtype\":\"F32\"", "\"dtype\":\"F16\""},
    {"\"dtype\":\"F32\"", "\"dtype\":\"BF16\""},
    {"\"dtype\":\"F32\"", "\"dtype\":\"F64\""},
    {"\"dtype\":\"F32\"", "\"dtype\":\"../../etc/passwd\""},
    {"[[0,0,", "[[4294967295,0,"},
    {"[[0,0,", "[[99,0,"},
    {"[[0,0,", "[[0,9007199254740990,"},
    {"[[0,0,", "[[0,1,"},
    {"[[0,0,\"", "[[0,0,\"0"},
    {",35,35,", ",0,35,"},
    {",35,35,", ",36,34,"},
    {",35,35,", ",9007199254740991,35,"},
    {",35,35,", ",35,"},
    {",35,35,", ",35,35,35,35,"},
    {",35,35,", ",[[[[[[[[[[[35,"},
    {",35,35,35,35]", ",140]"},
    {",35,35,35,35]", ",139]"},
    {",35,35,35,35]", ",141]"},
    {",35,35,35,35]", ",70,70]"},
    {",35,35,35,35]", "]"},
    {"\n{\"name\":\"c\"", "\n{\"path\":\"/etc/passwd\",\"name\":\"c\""},
};

static bool refuses_forgeries(void)
{
    const char *path = fx_path("forged/state-00000001");
    const char *file = fx_path("forged/state-00000001/manifest.json");
    size_t size_bytes = 0;
    char *bytes = fx_read(file, &size_bytes);

    if (!fx_limit_memory((size_t)64 << 20)) {
        printf("# memory is not limited here\n");
    }
    for (size_t i = 0; i < TAP_COUNT(forgeries); i++) {
        enum zo_status status;

        fx_write(file, bytes, size_bytes);
        forge(file, forgeries[i].from, forgeries[i].to);
        status = read_all(path, ZO_F32);
        if (status != ZO_E_CORRUPT) {
            printf("# %s instead of %s: status %d\n", forgeries[i].to,
                   forgeries[i].from, (int)status);
            return false;
        }
    }
    free(bytes);
    return true;
}

static void test_refuses_hostile_manifests(void)
{
    const char *folder = new_folder("forged");

    TAP_CHECK_INT(save(folder, 1), ZO_OK);
    TAP_CHECK(fx_in_child(refuses_forgeries));
}

/* Of a program that is newer: no damage. */
static void test_tells_a_newer_version(void)
{
    const char *folder = new_folder("newer");
    const char *path = fx_path("newer/state-00000001");

    TAP_CHECK_INT(save(folder, 1), ZO_OK);
    forge(fx_path("newer/state-00000001/manifest.json"), "\"version\":3",
          "\"version\":4");
    TAP_CHECK_INT(read_all(path, ZO_F32), ZO_E_NOSUPPORT);
    TAP_CHECK(strstr(zo_err_last()->text, "version 4, of a newer program"));
}

/* Frames that say or hold more than their part has room for. */
static void test_bounds_what_frames_claim(void)
{
    /* zstd: magic, single segment with 8 bytes of size, 2^60, an RLE block. */
    static const unsigned char bomb[] = {
        0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x03, 0, 0x10};
    const char *folder = new_folder("bomb");
    const char *shard = fx_path("bomb/state-00000001/shard-00001.state");
    size_t size_bytes = 0;
    char *bytes;

    TAP_CHECK_INT(save(folder, 1), ZO_OK);
    bytes = fx_read(shard, &size_bytes);
    for (size_t at = 0; at + sizeof(bomb) < size_bytes; at++) {
        if (memcmp(bytes + at, bomb, 4) == 0) {
            memcpy(bytes + at, bomb, sizeof(bomb));
        }
    }
    fx_write(shard, bytes, size_bytes);
    free(bytes);
    TAP_CHECK(fx_refused(read_all(fx_path("bomb/state-00000001"), ZO_F32),
                         ZO_E_CORRUPT, "zstd", "shard-00001"));
}

static void test_refuses_other_folders(void)
{
    struct zo_state *state = NULL;

    TAP_CHECK(fx_refused(zo_state_open(fx_path("model"), &state), ZO_E_USAGE,
                         "no training state", "manifest.json"));
    TAP_CHECK(fx_refused(zo_state_open(fx_path("nowhere"), &state), ZO_E_USAGE,
                         "cannot open", "nowhere"));
}

/* ---- whole or not there ----------------------------------------------------
 */

static void test_each_failed_allocation_is_clean(void)
{
    const char *folder = new_folder("memory");
    enum zo_status status = ZO_E_NOMEM;
    int failures = 0;

    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        zo_memory_fail_at(nth);
        status = save(folder, 1);
        zo_memory_fail_at(0);
        status = status == ZO_OK ? written.late.status : status;
        failures += status == ZO_E_NOMEM;
        TAP_CHECK_INT((long long)fx_count_files(folder, ".state"), 0);
    }
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(failures > 10);
    status = ZO_E_NOMEM;
    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        zo_memory_fail_at(nth);
        status = read_all(fx_path("memory/state-00000001"), ZO_F32);
        zo_memory_fail_at(0);
    }
    TAP_CHECK_INT(status, ZO_OK);
}

static void test_syncs_before_it_renames(void)
{
    const char *folder = new_folder("order");
    const char *first_rename;

    memset(disk_events, 0, sizeof(disk_events));
    TAP_CHECK_INT(save(folder, 1), ZO_OK);
    first_rename = strchr(disk_events, 'r');
    TAP_CHECK(first_rename != NULL);
    /* The folder's names, the new name; then latest. */
    TAP_CHECK(strcmp(first_rename - 1, "drdr") == 0);
    for (const char *at = disk_events; at < first_rename - 1; at++) {
        TAP_CHECK(*at == 'f');
    }
}

static void test_replaces_the_same_step(void)
{
    const char *folder = new_folder("again");

    TAP_CHECK_INT(save(folder, 1), ZO_OK);
    flip(fx_path("again/state-00000001/shard-00001.state"), 3, 1);
    TAP_CHECK_INT(save(folder, 1), ZO_OK);
    TAP_CHECK_INT(read_all(fx_path("again/state-00000001"), ZO_F32), ZO_OK);
    TAP_CHECK_INT((long long)fx_count_files(folder, ".state"), 0);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"what was saved is read back", test_reads_back},
        {"any stretch is read", test_reads_any_stretch},
        {"no evaluation yet is no loss", test_infinite_best_loss},
        {"long pieces are packed where that is worth it", test_long_pieces},
        {"what feeds the disk is stored as it is", test_spares_the_processor},
        {"a state is a model directory too", test_is_a_model_directory},
        {"each flipped bit is found and its file named",
         test_finds_each_flipped_bit},
        {"a flipped bit beside the numbers too",
         test_finds_a_flipped_bit_beside_the_numbers},
        {"the first version of the format is read",
         test_reads_the_first_version},
        {"what is cut off or missing is found", test_finds_what_is_cut_off},
        {"hostile manifests are refused", test_refuses_hostile_manifests},
        {"a newer version is no damage", test_tells_a_newer_version},
        {"frames cannot claim more than their room",
         test_bounds_what_frames_claim},
        {"other folders are refused", test_refuses_other_folders},
        {"each failed allocation is clean",
         test_each_failed_allocation_is_clean},
        {"all is on the disk before it has its name",
         test_syncs_before_it_renames},
        {"a state of the same step is replaced", test_replaces_the_same_step},
    };
    int result;

    fx_begin();
    fx_folder(fx_path("model"));
    fx_write_text(fx_path("model/config.json"),
                  "{\"torch_dtype\": \"float32\"}\n");
    fx_write(fx_path("model/tokenizer.model"), forgeries, sizeof(forgeries));
    if (zo_pool_open(2, &pool) != ZO_OK || zo_pool_open(0, &no_pool) != ZO_OK) {
        return 1;
    }
    result = tap_run(cases, TAP_COUNT(cases));
    zo_pool_close(pool);
    zo_pool_close(no_pool);
    return result;
}
