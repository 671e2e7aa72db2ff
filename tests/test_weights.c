/*
 * Weights between model directories and devices.
 */
#include "src/train/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/checkpoint/model_dir_writer.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

static const char *const types[] = {NULL, "\"bf16\": {\"enabled\": true}",
                                    "\"fp16\": {\"enabled\": true}"};

static enum zo_status write_weights(const struct tiny_run *run,
                                    const char *path, enum zo_dtype dtype,
                                    bool has_inv_freq)
{
    const struct zo_weights weights = zo_trainer_weights(run->trainer);
    const struct zo_weights_export export_ = {
        .path = path,
        .source_path = tiny_model_path(),
        .dtype = dtype,
        .has_inv_freq = has_inv_freq,
    };
    struct zo_model_written written = {0};
    struct zo_notes notes = {0};
    const enum zo_status status =
        zo_weights_write(&weights, &export_, &notes, &written);

    zo_model_written_fini(&written);
    zo_notes_fini(&notes);
    return status;
}

static bool open_loaded(const char *json, struct tiny_run *run)
{
    const struct tiny_knobs knobs = {.devices = 2, .json = json};

    if (tiny_open(&knobs, run) != ZO_OK || tiny_start(run) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
        return false;
    }
    return true;
}

/* In every type of training the masters are the file's numbers exactly. */
static void test_round_trip(void)
{
    const char *source = tiny_model_path();
    char from[600], to[600], path[512];

    (void)snprintf(from, sizeof(from), "%s/model.safetensors", source);
    for (size_t t = 0; t < TAP_COUNT(types); t++) {
        struct tiny_run run;

        TAP_CHECK(open_loaded(types[t], &run));
        (void)snprintf(path, sizeof(path), "%s", fx_path("copy-%zu", t));
        TAP_CHECK_INT(write_weights(&run, path, ZO_F32, false), ZO_OK);
        (void)snprintf(to, sizeof(to), "%s/model.safetensors", path);
        TAP_CHECK(fx_same_files(from, to));
        tiny_close(&run);
    }
}

static void test_rounded_once(void)
{
    static const enum zo_dtype dtypes[] = {ZO_BF16, ZO_F16};
    static float masters[TINY_PARAMETERS];
    static unsigned char values[4 * TINY_PARAMETERS];
    struct tiny_run run;

    TAP_CHECK(open_loaded(types[1], &run));
    for (size_t i = 0; i < TAP_COUNT(dtypes); i++) {
        const struct zo_weights weights = zo_trainer_weights(run.trainer);
        const struct zo_parameters *list =
            zo_glm_parameters(zo_trainer_glm(run.trainer));
        struct zo_model_dir *dir = NULL;
        struct zo_notes notes = {0};
        char path[512];

        (void)snprintf(path, sizeof(path), "%s", fx_path("rounded-%zu", i));
        TAP_CHECK_INT(write_weights(&run, path, dtypes[i], true), ZO_OK);
        TAP_CHECK_INT(zo_model_dir_open(path, &notes, &dir), ZO_OK);
        TAP_CHECK_INT(zo_model_dir_count(dir), list->count);
        for (size_t p = 0; p < list->trained_count; p++) {
            const int64_t elems = list->items[p].elems;
            size_t index = 0;

            TAP_CHECK(zo_model_dir_find(dir, list->items[p].name, &index));
            TAP_CHECK_INT(
                zo_model_dir_read(dir, index, 0, 2 * (size_t)elems, values),
                ZO_OK);
            TAP_CHECK_INT(zo_weights_read(&weights, p, 0, elems, masters),
                          ZO_OK);
            for (int64_t e = 0; e < elems; e++) {
                unsigned char want[sizeof(float)];

                zo_store(want, dtypes[i], 0, masters[e]);
                TAP_CHECK(memcmp(want, &values[2 * e], 2) == 0);
            }
        }
        zo_model_dir_close(dir);
        zo_notes_fini(&notes);
    }
    tiny_close(&run);
}

/* ---- parts --------------------------------------------------------------- */

/* Masters after filling in parts of a size, from a file or from a seed. */
static bool fill_in_parts(const char *json, bool loads, int64_t part_elems,
                          float *masters)
{
    const struct tiny_knobs knobs = {
        .devices = 2, .threads = 4, .json = json, .delay_us_max = 20};
    struct zo_weights weights;
    struct tiny_run run;
    bool is_done = false;

    if (tiny_open(&knobs, &run) == ZO_OK && tiny_start(&run) == ZO_OK) {
        weights = zo_trainer_weights(run.trainer);
        weights.part_elems = part_elems;
        is_done = (loads ? zo_weights_load(&weights, run.dir, &run.notes)
                         : zo_weights_randomize(&weights, 9)) == ZO_OK &&
                  tiny_weights(&run, masters) == ZO_OK;
    }
    tiny_close(&run);
    return is_done;
}

static void test_parts(void)
{
    static float whole[TINY_PARAMETERS], parts[TINY_PARAMETERS];

    for (size_t t = 0; t < TAP_COUNT(types); t++) {
        for (int loads = 0; loads <= 1; loads++) {
            TAP_CHECK(fill_in_parts(types[t], loads != 0, 0, whole));
            TAP_CHECK(fill_in_parts(types[t], loads != 0, 7, parts));
            TAP_CHECK(memcmp(whole, parts, sizeof(whole)) == 0);
            TAP_CHECK(whole[0] != 0.0f && whole[0] != whole[1]);
        }
    }
}

static void test_without_memory(void)
{
    const struct tiny_knobs knobs = {.threads = 3, .json = types[1]};
    enum zo_status status;
    struct tiny_run run;
    uint64_t nth = 0;

    TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
    TAP_CHECK_INT(tiny_start(&run), ZO_OK);
    do {
        struct zo_weights weights = zo_trainer_weights(run.trainer);
        const uint64_t before = zo_device_host.mem_allocated(
            run.devices.machine.devices[0], ZO_MEM_PINNED);

        weights.part_elems = 100;
        zo_memory_fail_at(++nth);
        status = zo_weights_load(&weights, run.dir, &run.notes);
        zo_memory_fail_at(0);
        TAP_CHECK(status == ZO_OK || status == ZO_E_NOMEM);
        TAP_CHECK(zo_device_host.mem_allocated(run.devices.machine.devices[0],
                                               ZO_MEM_PINNED) == before);
    } while (status != ZO_OK);
    TAP_CHECK(nth > 7);
    tiny_close(&run);
}

/* ---- models that are not right ------------------------------------------- */

/* A model like the tiny one, with one thing wrong. */
struct wrong {
    size_t tensor;
    bool is_missing, is_reshaped;
    float value; /* of one element, unless 0 */
};

struct give {
    struct zo_parameters parameters;
    const struct wrong *wrong;
    size_t index[64]; /* of the tensors that are written */
};

static enum zo_status give_wrong(void *context, size_t index,
                                 uint64_t offset_bytes, size_t size_bytes,
                                 void *buffer)
{
    const struct give *give = context;

    (void)offset_bytes;
    memset(buffer, 0, size_bytes);
    if (give->index[index] == give->wrong->tensor && size_bytes >= 32) {
        ((float *)buffer)[7] = give->wrong->value;
    }
    return ZO_OK;
}

static void write_wrong(const char *path, const struct zo_model_config *config,
                        const struct wrong *wrong)
{
    struct give give = {.wrong = wrong};
    struct zo_tensor_info infos[64] = {{0}};
    struct zo_notes notes = {0};
    size_t count = 0;

    ZO_ASSERT(zo_parameters_init(&give.parameters, config) == ZO_OK);
    for (size_t i = 0; i < give.parameters.trained_count; i++) {
        const struct zo_parameter *item = &give.parameters.items[i];
        const bool is_wrong = i == wrong->tensor;

        if (is_wrong && wrong->is_missing) {
            continue;
        }
        give.index[count] = i;
        infos[count++] = (struct zo_tensor_info){
            .name = item->name,
            .element = zo_element_of_dtype(ZO_F32),
            .rank = item->dims,
            .shape = {item->shape[0] + (is_wrong && wrong->is_reshaped),
                      item->shape[1]},
        };
    }
    ZO_ASSERT(zo_model_dir_write(
                  &(struct zo_model_write_options){
                      .path = path,
                      .config_json = "{}",
                      .tensors = infos,
                      .tensor_count = count,
                      .data = give_wrong,
                      .context = &give,
                  },
                  &notes, NULL) == ZO_OK);
    zo_notes_fini(&notes);
    zo_parameters_fini(&give.parameters);
}

static void test_wrong_models(void)
{
    static const struct {
        struct wrong wrong;
        int type;
        enum zo_status want;
        const char *part;
    } rows[] = {
        {{.tensor = 5, .is_missing = true}, 0, ZO_E_CORRUPT, "missing"},
        {{.tensor = 5, .is_reshaped = true}, 0, ZO_E_CORRUPT, "want [16]"},
        {{.tensor = 5, .value = NAN}, 0, ZO_E_NUMERIC, "finite"},
        {{.tensor = 5, .value = INFINITY}, 1, ZO_E_NUMERIC, "finite"},
        {{.tensor = 5, .value = 7e4f}, 2, ZO_E_NUMERIC, "fp16"},
        {{.tensor = 5, .value = 7e4f}, 1, ZO_OK, ""},
        {{.tensor = 5, .value = 7e4f}, 0, ZO_OK, ""},
    };

    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        const struct tiny_knobs knobs = {.json = types[rows[i].type]};
        const char *name;
        struct tiny_run run;
        struct zo_weights weights;
        enum zo_status status;

        TAP_CHECK_INT(tiny_open(&knobs, &run), ZO_OK);
        name = zo_glm_parameters(zo_trainer_glm(run.trainer))->items[5].name;
        write_wrong(fx_path("wrong-%zu", i), &run.model, &rows[i].wrong);
        TAP_CHECK_INT(zo_trainer_start(run.trainer), ZO_OK);
        TAP_CHECK_INT(
            zo_model_dir_open(fx_path("wrong-%zu", i), &run.notes, &run.dir),
            ZO_OK);
        weights = zo_trainer_weights(run.trainer);
        status = zo_weights_load(&weights, run.dir, &run.notes);
        TAP_CHECK_INT(status, rows[i].want);
        TAP_CHECK(status == ZO_OK ||
                  (strstr(zo_err_last()->text, name) != NULL &&
                   strstr(zo_err_last()->text, rows[i].part) != NULL));
        if (status == ZO_OK) { /* nor is it written as what it is not */
            char path[512];

            (void)snprintf(path, sizeof(path), "%s", fx_path("large-%zu", i));
            TAP_CHECK_INT(write_weights(&run, path, ZO_F16, false),
                          ZO_E_NUMERIC);
            TAP_CHECK(strstr(zo_err_last()->text, name) != NULL &&
                      strstr(zo_err_last()->text, "70000, too large for fp16"));
            TAP_CHECK(!fx_is_there(path));
            TAP_CHECK_INT(write_weights(&run, path, ZO_BF16, false), ZO_OK);
        }
        tiny_close(&run);
    }
}

static const struct tap_case cases[] = {
    {"loaded and written in fp32, a model is the same file, in every type",
     test_round_trip},
    {"written in 16 bits, masters are rounded once", test_rounded_once},
    {"parts of any size, by many threads, give the same weights", test_parts},
    {"without memory loading fails and gives all back", test_without_memory},
    {"a model that lacks a tensor, or has a bad one, is refused by name",
     test_wrong_models},
};

int main(void)
{
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
