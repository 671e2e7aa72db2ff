/*
 * From DeepSpeed's JSON to where states may live: each key changes an option
 * of the placement, or a line says why it does not.
 */
#include <stdio.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/train/place_config.h"
#include "tests/config_case.h"
#include "tests/tap.h"

/* Elements of an embedding that is read by rows, two layers and a head: the
 * largest that passes through the ring has 300. */
static const struct zo_unit units[] = {
    {.elems = 9000}, {.elems = 200}, {.elems = 200}, {.elems = 300}};

/* Units of which the default of stage3_max_live_parameters has two. */
static const struct zo_unit large_units[] = {
    {.elems = 9}, {.elems = 400000000}, {.elems = 400000000}, {.elems = 1}};

static bool has_rows(void *model, int unit, struct zo_unit_rows *rows_out)
{
    (void)model;
    *rows_out = (struct zo_unit_rows){0};
    return unit == 0;
}

static const struct zo_model_ops model_ops = {.rows = has_rows};

/* A configuration, for one device unless `devices` says more. */
struct asked {
    const char *json;
    const char *options; /* NULL: none */
    int devices;
    bool evaluates_only, has_large_units;
};

/* The options of the placement; the run is open, for its notes. */
static bool opens(const struct asked *asked, struct run *run,
                  struct zo_place_options *options)
{
    const int devices = asked->devices > 0 ? asked->devices : 1;
    static struct zo_build_options build;
    const char *words = asked->options != NULL ? asked->options : "";

    build = (struct zo_build_options){
        .units = asked->has_large_units ? large_units : units,
        .unit_count = ZO_COUNT(units),
        .device_count = devices,
        .evaluates_only = asked->evaluates_only,
        .model_ops = &model_ops,
    };
    if (load_for(run, devices, asked->json, words) != ZO_OK ||
        zo_place_notes(&run->config, devices, &run->notes) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s: %s", asked->json,
                 zo_err_last()->text);
        return false;
    }
    memset(options, 0xff, sizeof(*options));
    options->build = &build;
    zo_place_from_config(&run->config, options);
    return true;
}

static struct zo_place_options options_of(const char *json)
{
    const struct asked asked = {.json = json};
    struct zo_place_options options = {0};
    struct run run;

    (void)opens(&asked, &run, &options);
    unload(&run);
    return options;
}

#define ZERO(members)      "{\"zero_optimization\": {" members "}}"
#define STAGE3(members)    ZERO("\"stage\": 3, " members)
#define STAGE2(members)    ZERO("\"stage\": 2, " members)
#define OPTIMIZER(members) "\"offload_optimizer\": {" members "}"
#define PARAM(members)     "\"offload_param\": {" members "}"
#define ON(device)         "\"device\": \"" device "\""

/* ---- homes --------------------------------------------------------------- */

static const struct {
    const char *json;
    enum zo_tier weights, optimizer;
} homes[] = {
    {NULL, ZO_TIER_CPU, ZO_TIER_CPU}, /* no --config is stage 3 */
    {"{}", ZO_TIER_GPU, ZO_TIER_GPU}, /* stage 0 */
    {ZERO("\"stage\": 0"), ZO_TIER_GPU, ZO_TIER_GPU},
    {ZERO("\"stage\": 1"), ZO_TIER_GPU, ZO_TIER_CPU},
    {ZERO("\"stage\": 2"), ZO_TIER_GPU, ZO_TIER_CPU},
    {ZERO("\"stage\": 3"), ZO_TIER_CPU, ZO_TIER_CPU},
    {ZERO("\"stage\": 1, " OPTIMIZER(ON("cpu"))), ZO_TIER_GPU, ZO_TIER_CPU},
    {STAGE2(OPTIMIZER(ON("cpu"))), ZO_TIER_GPU, ZO_TIER_CPU},
    {STAGE2(OPTIMIZER(ON("none"))), ZO_TIER_GPU, ZO_TIER_GPU},
    {STAGE2(PARAM(ON("cpu"))), ZO_TIER_GPU, ZO_TIER_CPU},
    {STAGE3(OPTIMIZER(ON("cpu"))), ZO_TIER_CPU, ZO_TIER_CPU},
    {STAGE3(OPTIMIZER(ON("cpu")) ", " PARAM(ON("cpu"))), ZO_TIER_CPU,
     ZO_TIER_CPU},
    {STAGE3(OPTIMIZER(ON("cpu")) ", " PARAM(ON("none"))), ZO_TIER_GPU,
     ZO_TIER_CPU},
    {STAGE3(PARAM(ON("none"))), ZO_TIER_GPU, ZO_TIER_CPU},
    {STAGE3(PARAM(ON("cpu"))), ZO_TIER_CPU, ZO_TIER_CPU},
    {STAGE3(OPTIMIZER(ON("none"))), ZO_TIER_GPU, ZO_TIER_GPU},
    {STAGE3(OPTIMIZER(ON("none")) ", " PARAM(ON("cpu"))), ZO_TIER_GPU,
     ZO_TIER_GPU},
};

static void test_homes(void)
{
    for (size_t i = 0; i < ZO_COUNT(homes); i++) {
        const struct zo_place_options options = options_of(homes[i].json);

        if (options.weights_limit != homes[i].weights ||
            options.optimizer_limit != homes[i].optimizer) {
            tap_fail(__FILE__, __LINE__, "%s: weights %s, optimizer %s",
                     homes[i].json != NULL ? homes[i].json : "no JSON",
                     zo_tier_text(options.weights_limit),
                     zo_tier_text(options.optimizer_limit));
        }
    }
}

/* Without training there are no masters, and none that could keep the
 * weights. */
static void test_evaluation(void)
{
    static const char *const jsons[] = {
        STAGE3(OPTIMIZER(ON("none")) ", " PARAM(ON("cpu"))),
        STAGE3(OPTIMIZER(ON("cpu"))),
    };

    for (size_t i = 0; i < ZO_COUNT(jsons); i++) {
        const struct asked asked = {.json = jsons[i], .evaluates_only = true};
        struct zo_place_options options = {0};
        struct run run;

        (void)opens(&asked, &run, &options);
        unload(&run);
        TAP_CHECK_INT(options.weights_limit, ZO_TIER_CPU);
        TAP_CHECK_INT(options.optimizer_limit, ZO_TIER_GPU);
    }
}

static void test_several_devices(void)
{
    static const struct {
        const char *json;
        enum zo_tier weights, optimizer;
    } cases[] = {
        {ZERO("\"stage\": 0"), ZO_TIER_GPU, ZO_TIER_GPU},
        {STAGE2("\"overlap_comm\": true"), ZO_TIER_GPU, ZO_TIER_CPU},
        {STAGE2(OPTIMIZER(ON("cpu"))), ZO_TIER_GPU, ZO_TIER_CPU},
        {STAGE3("\"overlap_comm\": true"), ZO_TIER_CPU, ZO_TIER_CPU},
        {STAGE3(OPTIMIZER(ON("none"))), ZO_TIER_GPU, ZO_TIER_GPU},
    };

    for (size_t i = 0; i < ZO_COUNT(cases); i++) {
        const struct asked asked = {.json = cases[i].json, .devices = 2};
        struct zo_place_options options;
        struct run run;

        if (opens(&asked, &run, &options)) {
            TAP_CHECK_INT(options.weights_limit, cases[i].weights);
            TAP_CHECK_INT(options.optimizer_limit, cases[i].optimizer);
            TAP_CHECK(zo_place_check(&run.config) == ZO_OK);
        }
        unload(&run);
    }
}

/* The folder, by key or option, lets the planner go as far as NVMe; one key
 * with it does not take the other along. */
static void test_nvme(void)
{
    static const struct {
        const char *json, *options;
        enum zo_tier weights, optimizer;
    } cases[] = {
        {STAGE3(PARAM(ON("nvme") ", \"nvme_path\": \"d\"")), "", ZO_TIER_NVME,
         ZO_TIER_CPU},
        {STAGE3(OPTIMIZER(ON("nvme") ", \"nvme_path\": \"d\"")), "",
         ZO_TIER_CPU, ZO_TIER_NVME},
        {STAGE3("\"overlap_comm\": true"), "--nvme d", ZO_TIER_NVME,
         ZO_TIER_NVME},
        {STAGE3(OPTIMIZER(ON("cpu"))), "--nvme d", ZO_TIER_NVME, ZO_TIER_CPU},
        {STAGE2("\"overlap_comm\": true"), "--nvme d", ZO_TIER_GPU,
         ZO_TIER_CPU},
    };

    for (size_t i = 0; i < ZO_COUNT(cases); i++) {
        const struct asked asked = {.json = cases[i].json,
                                    .options = cases[i].options};
        struct zo_place_options options = {0};
        struct run run;

        if (opens(&asked, &run, &options)) {
            TAP_CHECK_INT(options.weights_limit, cases[i].weights);
            TAP_CHECK_INT(options.optimizer_limit, cases[i].optimizer);
            TAP_CHECK(zo_place_check(&run.config) == ZO_OK);
        }
        unload(&run);
    }
}

/* The store's options; two folders are one too many. */
static void test_store(void)
{
    struct zo_nvme_options options;
    struct run run;

    TAP_CHECK(load(&run,
                   "{\"aio\": {\"block_size\": 8192, \"queue_depth\": 5, "
                   "\"intra_op_parallelism\": 3}, \"zero_offload\": "
                   "{\"nvme_verify\": false, \"nvme_allow_memory\": true}, "
                   "\"zero_optimization\": {\"stage\": 3}}",
                   "--nvme d:1G") == ZO_OK);
    options = zo_place_nvme(&run.config);
    TAP_CHECK(strcmp(options.directory, "d") == 0);
    TAP_CHECK_INT((long long)options.block_bytes, 8192);
    TAP_CHECK_INT(options.depth, 5);
    TAP_CHECK_INT(options.threads, 3);
    TAP_CHECK(options.skips_verify && options.allows_memory);
    unload(&run);
    TAP_CHECK(load(&run, STAGE3("\"overlap_comm\": true"), "") == ZO_OK);
    options = zo_place_nvme(&run.config);
    TAP_CHECK(options.directory == NULL && !options.skips_verify &&
              !options.allows_memory && options.depth == 0);
    unload(&run);
    TAP_CHECK(
        load(&run,
             STAGE3(OPTIMIZER(ON("nvme") ", \"nvme_path\": \"d\"") ", " PARAM(
                 ON("nvme") ", \"nvme_path\": \"e\"")),
             "") == ZO_OK);
    TAP_CHECK(zo_place_check(&run.config) == ZO_E_NOSUPPORT);
    TAP_CHECK(strstr(zo_err_last()->text, "nvme_path: e, but") != NULL);
    unload(&run);
}

/* ---- what the options are ------------------------------------------------ */

static void test_defaults(void)
{
    const struct zo_place_options options =
        options_of(STAGE3("\"overlap_comm\": true"));

    TAP_CHECK(options.fills);
    TAP_CHECK(options.optimizer_share == 1.0);
    TAP_CHECK_INT(options.keep_most, ZO_KEEP_ALL);
    TAP_CHECK_INT(options.keep_least, ZO_KEEP_INPUT);
    TAP_CHECK(!options.host_boundaries_always);
    TAP_CHECK_INT(options.weight_ring_max, ZO_PLACE_RING_MAX);
    TAP_CHECK(!options.waits_to_fetch);
    TAP_CHECK_INT(options.reuse_max_elems, 0);
    TAP_CHECK(!options.pageable_weights && !options.pageable_optimizer);
    TAP_CHECK(options.gpu_bytes == UINT64_MAX); /* the caller's */
}

static void test_flags(void)
{
    TAP_CHECK(!options_of("{\"zero_optimization\": {\"stage\": 3}, "
                          "\"zero_offload\": {\"fill\": false}}")
                   .fills);
    TAP_CHECK(options_of(STAGE3(OPTIMIZER(ON("cpu") ", \"ratio\": 0.25")))
                  .optimizer_share == 0.25);
    /* Read at stage 3 only, as in DeepSpeed. */
    TAP_CHECK(options_of(STAGE2(OPTIMIZER(ON("cpu") ", \"ratio\": 0.25")))
                  .optimizer_share == 1.0);
    TAP_CHECK(options_of(STAGE3(OPTIMIZER(ON("cpu") ", \"pin_memory\": false")))
                  .pageable_optimizer);
    TAP_CHECK(
        !options_of(STAGE3(OPTIMIZER(ON("cpu") ", \"pin_memory\": false")))
             .pageable_weights);
    TAP_CHECK(options_of(STAGE3(PARAM(ON("cpu") ", \"pin_memory\": false")))
                  .pageable_weights);
    TAP_CHECK(options_of("{\"activation_checkpointing\": "
                         "{\"cpu_checkpointing\": true}}")
                  .host_boundaries_always);
}

static void test_recompute(void)
{
    static const struct {
        const char *word;
        enum zo_keep most, least;
    } rows[] = {
        {"auto", ZO_KEEP_ALL, ZO_KEEP_INPUT},
        {"none", ZO_KEEP_ALL, ZO_KEEP_ALL},
        {"cheap", ZO_KEEP_COSTLY, ZO_KEEP_COSTLY},
        {"layer", ZO_KEEP_INPUT, ZO_KEEP_INPUT},
    };

    for (size_t i = 0; i < ZO_COUNT(rows); i++) {
        char json[80];
        struct zo_place_options options;

        (void)snprintf(json, sizeof(json),
                       "{\"zero_offload\": {\"recompute\": \"%s\"}}",
                       rows[i].word);
        options = options_of(json);
        TAP_CHECK_INT(options.keep_most, rows[i].most);
        TAP_CHECK_INT(options.keep_least, rows[i].least);
    }
}

static int ring_of(const char *json)
{
    return options_of(json).weight_ring_max;
}

#define LIVE     "\"stage3_max_live_parameters\": "
#define PREFETCH "\"stage3_prefetch_bucket_size\": "
#define REUSE    "\"stage3_max_reuse_distance\": "

static void test_rings(void)
{
    TAP_CHECK_INT(ring_of(STAGE3(LIVE "0")), 2);
    TAP_CHECK_INT(ring_of(STAGE3(LIVE "899")), 2);
    TAP_CHECK_INT(ring_of(STAGE3(LIVE "900")), 3);
    TAP_CHECK_INT(ring_of(STAGE3("\"max_live_parameters\": 1200")), 4);
    TAP_CHECK_INT(ring_of(STAGE3(LIVE "1e12")), ZO_PLACE_RING_MAX);
    TAP_CHECK_INT(ring_of(STAGE3(LIVE "1e9")), ZO_PLACE_RING_MAX);
    TAP_CHECK_INT(ring_of(STAGE3(PREFETCH "1")), 2);
    TAP_CHECK_INT(ring_of(STAGE3(PREFETCH "600")), 3);
    TAP_CHECK_INT(ring_of(STAGE3(PREFETCH "600, " LIVE "1500")), 3);
    TAP_CHECK_INT(ring_of(STAGE3(PREFETCH "1500, " LIVE "900")), 3);
    /* "auto" asks for nothing: it would be 3686 elements, or 13 buffers. */
    TAP_CHECK_INT(ring_of(STAGE3(PREFETCH "\"auto\"")), ZO_PLACE_RING_MAX);
    TAP_CHECK(options_of(STAGE3(PREFETCH "0")).waits_to_fetch);
    TAP_CHECK(!options_of(STAGE3(PREFETCH "1")).waits_to_fetch);
    TAP_CHECK_INT(options_of(STAGE3(REUSE "400")).reuse_max_elems, 400);
    TAP_CHECK_INT(options_of(STAGE3(REUSE "0")).reuse_max_elems, 1);
    TAP_CHECK_INT(options_of(STAGE3(REUSE "1e9")).reuse_max_elems, 0);
}

/* What is not asked for bounds nothing, though the value would. */
static void test_silent_rings(void)
{
    static const struct {
        const char *json;
        int ring;
    } rows[] = {
        {STAGE3(LIVE "1e9"), ZO_PLACE_RING_MAX},
        {STAGE3(PREFETCH "5e7"), ZO_PLACE_RING_MAX},
        {STAGE3("\"overlap_comm\": true"), ZO_PLACE_RING_MAX},
        {STAGE3(LIVE "1.3e9"), 3},
        {STAGE3(PREFETCH "5e8"), 2},
    };

    for (size_t i = 0; i < ZO_COUNT(rows); i++) {
        const struct asked asked = {.json = rows[i].json,
                                    .has_large_units = true};
        struct zo_place_options options = {0};
        struct run run;

        (void)opens(&asked, &run, &options);
        unload(&run);
        TAP_CHECK_INT(options.weight_ring_max, rows[i].ring);
    }
}

/* ---- lines --------------------------------------------------------------- */

/* The notes hold `piece`; with NULL, none of a key without effect. */
static void check_note(const char *json, const char *piece)
{
    const struct asked asked = {.json = json};
    struct zo_place_options options;
    struct run run;

    if (!opens(&asked, &run, &options)) {
        unload(&run);
        return;
    }
    if (piece != NULL) {
        TAP_CHECK(has_note(&run, piece));
    }
    for (size_t i = 0; piece == NULL && i < run.notes.count; i++) {
        if (strstr(run.notes.items[i].text, "no effect") != NULL ||
            strstr(run.notes.items[i].text, "no meaning") != NULL) {
            tap_fail(__FILE__, __LINE__, "%s: %s", json,
                     run.notes.items[i].text);
        }
    }
    unload(&run);
}

static void test_lines(void)
{
    check_note(STAGE2(PARAM(ON("cpu"))), "ignored: weights leave the GPU at");
    check_note(
        "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": "
        "{\"stage\": 3, " OPTIMIZER(ON("none")) ", " PARAM(ON("cpu")) "}}",
        "keeps their masters: a bf16 weight is half of its master");
    check_note(
        "{\"fp16\": {\"enabled\": true}, \"zero_optimization\": "
        "{\"stage\": 3, " OPTIMIZER(ON("none")) ", " PARAM(ON("cpu")) "}}",
        "keeps their masters: the update writes both");
    /* Without effect in this run. */
    check_note(STAGE2(PREFETCH "7"), "prefetch_bucket_size: no effect");
    check_note(STAGE2(LIVE "7"), "max_live_parameters: no effect");
    check_note(STAGE2(REUSE "7"), "max_reuse_distance: no effect");
    check_note(STAGE2(PARAM("\"pin_memory\": false")),
               "offload_param.pin_memory: no effect");
    check_note(STAGE3(OPTIMIZER(ON("none") ", \"pin_memory\": false")),
               "offload_optimizer.pin_memory: no effect");
    check_note(STAGE3(OPTIMIZER(ON("none") ", \"ratio\": 0.5")),
               "offload_optimizer.ratio: no effect");
    check_note("{\"zero_offload\": {\"fill\": false}}", "fill: no effect");
    /* Never with one. */
    check_note(STAGE3("\"sub_group_size\": 1e8"), "tiles of 524288 elements");
    check_note(STAGE3("\"stage3_param_persistence_threshold\": 5"),
               "small tensors move with their unit");
    check_note(STAGE3(OPTIMIZER("\"buffer_count\": 9")), "in place");
    check_note(STAGE3(PARAM("\"buffer_count\": 9")), "two buffers");
    check_note(STAGE3(PARAM("\"buffer_size\": 9")), "holds a whole unit");
    check_note(STAGE3(PARAM("\"max_in_cpu\": 9")), "--host-memory is the");
}

/* With an effect, or asking for what is anyway: no line. */
static void test_no_lines(void)
{
    check_note(
        STAGE3(LIVE "7, " PREFETCH "7, " REUSE "7, " OPTIMIZER(
            ON("cpu") ", \"ratio\": 0.5, \"pin_memory\": "
                      "false") ", " PARAM(ON("cpu") ", \"pin_memory\": false")),
        NULL);
    check_note(
        STAGE3("\"sub_group_size\": 1e9, " LIVE "1e9, " PREFETCH "\"auto\", "
               "\"stage3_param_persistence_threshold\": \"auto\", " PARAM(
                   "\"buffer_count\": 5, \"buffer_size\": 1e8, "
                   "\"max_in_cpu\": 1e9, \"pin_memory\": true")),
        NULL);
    check_note(STAGE2(LIVE "1e9, " PREFETCH "5e7, " REUSE "1e9"), NULL);
}

static void test_checkpointing_on_several(void)
{
    static const char json[] =
        "{\"activation_checkpointing\": {\"cpu_checkpointing\": true}}";
    const struct asked asked = {.json = json, .devices = 2};
    struct zo_place_options options;
    struct run run;

    if (opens(&asked, &run, &options)) {
        TAP_CHECK(options.host_boundaries_always);
        TAP_CHECK(!has_note(&run, "keeps activations on the devices"));
    }
    unload(&run);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"stage and device say which tiers states may use", test_homes},
        {"evaluation has no masters", test_evaluation},
        {"several devices offload what their stage shares",
         test_several_devices},
        {"a folder lets states go as far as NVMe", test_nvme},
        {"how the store works is configured; it has one folder", test_store},
        {"a silent JSON leaves the planner free", test_defaults},
        {"fill, ratio, pin_memory, cpu_checkpointing", test_flags},
        {"what is recomputed is what is named", test_recompute},
        {"sizes in elements become a ring", test_rings},
        {"sizes at their defaults bound nothing", test_silent_rings},
        {"a key without effect has a line", test_lines},
        {"others have none", test_no_lines},
        {"boundaries wait on the host with several devices too",
         test_checkpointing_on_several},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
