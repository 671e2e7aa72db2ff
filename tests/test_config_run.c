/* The rules of run_config.h, a case each. */
#include <stdio.h>
#include <string.h>

#include "tests/config_case.h"
#include "tests/tap.h"

/* ---- without a JSON ---- */

static void test_no_config(void)
{
    struct run run;

    TAP_CHECK(load(&run, NULL, "--bf16 --max-grad-norm 0.5") == ZO_OK);
    TAP_CHECK(!run.config.has_config);
    TAP_CHECK_INT(run.config.zero.stage, 3);
    TAP_CHECK_INT(run.config.zero.optimizer.limit, ZO_HOME_PLANNED);
    TAP_CHECK_INT(run.config.zero.param.limit, ZO_HOME_PLANNED);
    TAP_CHECK(run.config.zero.optimizer.nvme_path == NULL);
    TAP_CHECK(run.config.dtype == ZO_BF16 && !run.config.check_grad_overflow);
    TAP_CHECK(run.config.gradient_clipping == 0.5);
    TAP_CHECK_INT(run.config.train_batch_rows, 1);
    TAP_CHECK(run.config.schedule.type == ZO_SCHEDULE_LINEAR);
    TAP_CHECK(run.config.communication_dtype == ZO_BF16);
    TAP_CHECK(run.config.grad_accum_dtype == ZO_F32);
    TAP_CHECK(run.config.fill && run.config.nvme_verify);
    unload(&run);
    TAP_CHECK(load(&run, NULL, "--nvme disk:2G") == ZO_OK);
    TAP_CHECK(strcmp(run.config.zero.optimizer.nvme_path, "disk") == 0);
    TAP_CHECK(strcmp(run.config.zero.param.nvme_path, "disk") == 0);
    unload(&run);
    TAP_CHECK(load(&run, NULL,
                   "--set zero_optimization.stage=1 "
                   "--set zero_offload.fill=false") == ZO_OK);
    TAP_CHECK_INT(run.config.zero.stage, 1);
    TAP_CHECK(!run.config.fill);
    unload(&run);
}

static void test_defaults(void)
{
    struct run run;

    TAP_CHECK(load(&run, "{\"zero_optimization\": {\"stage\": 3}}", "") ==
              ZO_OK);
    TAP_CHECK_INT(run.config.zero.reduce_bucket_size, 500000000);
    TAP_CHECK_INT(run.config.zero.prefetch_bucket_size, 50000000);
    TAP_CHECK_INT(run.config.zero.param_persistence_threshold, 100000);
    TAP_CHECK_INT(run.config.zero.max_live_parameters, 1000000000);
    TAP_CHECK_INT(run.config.zero.max_reuse_distance, 1000000000);
    TAP_CHECK_INT(run.config.zero.sub_group_size, 1000000000);
    TAP_CHECK_INT(run.config.zero.optimizer.buffer_count, 4);
    TAP_CHECK_INT(run.config.zero.param.buffer_count, 5);
    TAP_CHECK_INT(run.config.zero.param.buffer_size_elems, 100000000);
    TAP_CHECK(run.config.zero.optimizer.pin_memory);
    TAP_CHECK(run.config.zero.optimizer.ratio == 1.0);
    TAP_CHECK_INT(run.config.loss_scale.initial_scale_power, 16);
    TAP_CHECK_INT(run.config.loss_scale.window, 1000);
    TAP_CHECK_INT(run.config.loss_scale.hysteresis, 2);
    TAP_CHECK(run.config.loss_scale.min_scale == 1.0);
    TAP_CHECK_INT(run.config.aio.block_size_bytes, 0); /* the store chooses */
    TAP_CHECK_INT(run.config.aio.queue_depth, 0);
    TAP_CHECK_INT(run.config.aio.intra_op_parallelism, 0);
    TAP_CHECK(run.config.gradient_clipping == 0.0);
    TAP_CHECK(run.config.optimizer.learning_rate == 5e-5);
    TAP_CHECK(run.config.optimizer.moment_dtype == ZO_F32);
    TAP_CHECK(!run.config.optimizer.decay_all);
    TAP_CHECK_INT(run.config.steps_per_print, 1);
    TAP_CHECK(zo_run_config_describe(&run.config, &run.notes) == ZO_OK);
    TAP_CHECK(has_note(&run, "gradient_clipping off"));
    TAP_CHECK(has_note(&run, "check_grad_overflow off"));
    unload(&run);
}

/* A line says the steps that hold, not those that were written. */
static void test_warmup_told(void)
{
    static const struct {
        const char *json, *options, *told;
    } rows[] = {
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
         "{\"warmup_num_steps\": 0}}}",
         "", "WarmupLR, warm-up 2 steps"},
        {"{\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": "
         "{\"warmup_num_steps\": 1, \"total_num_steps\": 9}}}",
         "", "WarmupCosineLR, warm-up 2 steps"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
         "{\"warmup_num_steps\": 3}}}",
         "", "WarmupLR, warm-up 3 steps"},
        {"{}", "--warmup-steps 1", "linear, warm-up 1 step"},
    };

    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        struct run run;

        TAP_CHECK(load(&run, rows[i].json, rows[i].options) == ZO_OK);
        TAP_CHECK(zo_run_config_describe(&run.config, &run.notes) == ZO_OK);
        TAP_CHECK(has_note(&run, rows[i].told));
        unload(&run);
    }
}

/* ---- batch ---- */

/* train, micro, accumulation of a JSON on some devices; 0 rows: refused. */
static bool batch_is(int64_t devices, const char *text, const char *options,
                     int64_t train, int64_t micro, int64_t accumulation)
{
    struct run run;
    const enum zo_status status = load_for(&run, devices, text, options);
    const struct zo_run_config *c = &run.config;
    const bool is_good =
        train == 0 ? status == ZO_E_CONFIG
                   : status == ZO_OK && c->train_batch_rows == train &&
                         c->micro_batch_rows == micro &&
                         c->gradient_accumulation_steps == accumulation;

    if (!is_good) {
        printf("# %s: %lld %lld %lld, %s\n", text,
               (long long)c->train_batch_rows, (long long)c->micro_batch_rows,
               (long long)c->gradient_accumulation_steps, zo_err_last()->text);
    }
    unload(&run);
    return is_good;
}

static void test_batch(void)
{
    static const char all[] = "{\"train_batch_size\": 24, "
                              "\"train_micro_batch_size_per_gpu\": 4, "
                              "\"gradient_accumulation_steps\": 3}";

    TAP_CHECK(batch_is(2, all, "", 24, 4, 3));
    TAP_CHECK(batch_is(3, all, "", 0, 0, 0));
    TAP_CHECK(strstr(zo_err_last()->text, "with 2 devices it is") != NULL);
    TAP_CHECK(batch_is(2,
                       "{\"train_batch_size\": 24, "
                       "\"train_micro_batch_size_per_gpu\": 4}",
                       "", 24, 4, 3));
    TAP_CHECK(batch_is(2,
                       "{\"train_batch_size\": 24, "
                       "\"gradient_accumulation_steps\": 3}",
                       "", 24, 4, 3));
    TAP_CHECK(batch_is(2, "{\"train_batch_size\": 24}", "", 24, 12, 1));
    TAP_CHECK(batch_is(5, "{\"train_batch_size\": 24}", "", 0, 0, 0));
    TAP_CHECK(strstr(zo_err_last()->text,
                     "train_batch_size: 24 is no multiple of 5 devices") !=
              NULL);
    TAP_CHECK(batch_is(1,
                       "{\"train_batch_size\": 10, "
                       "\"train_micro_batch_size_per_gpu\": 4}",
                       "", 0, 0, 0));
    TAP_CHECK(strstr(zo_err_last()->text,
                     "10 is no multiple of micro batch 4 x 1 device") != NULL);
    TAP_CHECK(batch_is(2,
                       "{\"train_batch_size\": 24, "
                       "\"gradient_accumulation_steps\": 5}",
                       "", 0, 0, 0));
    TAP_CHECK(strstr(zo_err_last()->text,
                     "24 is no multiple of accumulation 5 x 2 devices") !=
              NULL);
    TAP_CHECK(batch_is(32, "{\"train_batch_size\": 24}", "", 0, 0, 0));
    TAP_CHECK(
        batch_is(2, "{\"train_micro_batch_size_per_gpu\": 4}", "", 8, 4, 1));
    TAP_CHECK(batch_is(2, "{\"gradient_accumulation_steps\": 3}", "", 6, 1, 3));
    TAP_CHECK(batch_is(2, "{}", "", 2, 1, 1));
    TAP_CHECK(batch_is(2, "{}", "--per-device-train-batch-size 3", 6, 3, 1));
    TAP_CHECK(batch_is(2,
                       "{\"train_batch_size\": \"auto\", "
                       "\"train_micro_batch_size_per_gpu\": \"auto\", "
                       "\"gradient_accumulation_steps\": \"auto\"}",
                       "--gradient-accumulation-steps 5", 10, 1, 5));
    TAP_CHECK(batch_is(2, "{\"train_batch_size\": 24}",
                       "--per-device-train-batch-size 4", 24, 4, 3));
    TAP_CHECK(batch_is(2, "{\"train_batch_size\": 24}",
                       "--per-device-train-batch-size 5", 0, 0, 0));
    TAP_CHECK(refused("{\"train_batch_size\": 0}", "want an integer from 1"));
    TAP_CHECK(refused("{\"train_micro_batch_size_per_gpu\": -1}",
                      "want an integer from 1"));
    TAP_CHECK(refused("{\"gradient_accumulation_steps\": 1.5}", "found 1.5"));
}

/* ---- the command line against the JSON ---- */

static void test_disagreement(void)
{
    static const char *const cases[][3] = {
        {"{\"train_micro_batch_size_per_gpu\": 2}",
         "--per-device-train-batch-size 3", "train_micro_batch_size_per_gpu"},
        {"{\"gradient_accumulation_steps\": 2}",
         "--gradient-accumulation-steps 3", "gradient_accumulation_steps"},
        {"{\"optimizer\": {\"params\": {\"lr\": 2e-5}}}",
         "--learning-rate 3e-5",
         "optimizer.params.lr: 2e-05, but "
         "--learning-rate says 3e-05"},
        {"{\"optimizer\": {\"params\": {\"eps\": 1e-8}}}",
         "--adam-epsilon 1e-7", "optimizer.params.eps"},
        {"{\"optimizer\": {\"params\": {\"weight_decay\": 0}}}",
         "--weight-decay 0.1", "optimizer.params.weight_decay"},
        {"{\"optimizer\": {\"params\": {\"betas\": [0.9, 0.99]}}}",
         "--adam-beta2 0.95", "--adam-beta2 says 0.95"},
        {"{\"gradient_clipping\": 1}", "--max-grad-norm 2",
         "gradient_clipping"},
        {"{\"fp16\": {\"enabled\": false}}", "--fp16",
         "fp16.enabled: false, but --fp16 is given"},
        {"{\"bf16\": {\"enabled\": true}}", "--no-bf16",
         "bf16.enabled: true, but --no-bf16 is given"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\"}}",
         "--lr-scheduler-type cosine", "scheduler.type"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
         "{\"warmup_num_steps\": 5}}}",
         "--warmup-steps 6", "warmup_num_steps"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
         "{\"warmup_num_steps\": 5}}}",
         "--warmup-ratio 0.1", "warmup_num_steps"},
        {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
         "{\"warmup_max_lr\": 1e-4}}}",
         "--learning-rate 2e-4", "warmup_max_lr"},
        {"{\"zero_offload\": {\"recompute\": \"none\"}}",
         "--gradient-checkpointing", "zero_offload.recompute"},
        {"{\"zero_optimization\": {\"stage\": 3, \"offload_param\": "
         "{\"device\": \"nvme\", \"nvme_path\": \"a\"}}}",
         "--nvme b", "nvme_path: a, but --nvme says b"},
    };

    for (size_t i = 0; i < TAP_COUNT(cases); i++) {
        TAP_CHECK(refused_with(cases[i][0], cases[i][1], cases[i][2]));
    }
    /* The same values on both sides are no disagreement. */
    TAP_CHECK(accepted_with("{\"gradient_clipping\": 1.0, \"optimizer\": "
                            "{\"params\": {\"lr\": 5e-5}}}",
                            "--max-grad-norm 1 --learning-rate 0.00005", NULL));
    /* A default that was not given is none either. */
    TAP_CHECK(accepted("{\"optimizer\": {\"params\": {\"lr\": 1e-3}}}", NULL));
}

static void test_set(void)
{
    struct run run;

    TAP_CHECK(load(&run, "{\"zero_optimization\": {\"stage\": 2}}",
                   "--set zero_optimization.stage=3 "
                   "--set optimizer.type=adamw "
                   "--set optimizer.params.lr=3e-4 "
                   "--set zero_optimization.offload_param.device=cpu") ==
              ZO_OK);
    TAP_CHECK_INT(run.config.zero.stage, 3);
    TAP_CHECK_INT(run.config.zero.param.limit, ZO_HOME_CPU);
    TAP_CHECK(run.config.optimizer.learning_rate == 3e-4);
    unload(&run);
    TAP_CHECK(refused_with("{}", "--set zero_optimization.stage=4",
                           "--set zero_optimization.stage: "));
    TAP_CHECK(refused_with("{}", "--set gradient_cliping=1",
                           "did you mean gradient_clipping?"));
    TAP_CHECK(load(&run, "{\"a\": 1}", "--set a.b=1") == ZO_E_USAGE);
    unload(&run);
}

/* ---- kinds of values ---- */

static void test_sizes(void)
{
    static const char *const good[][2] = {
        {"5e8", NULL},
        {"5E+8", NULL},
        {"500000000.0", NULL},
        {"15099494.4", "is rounded down to 15099494"},
        {"\"5e8\"", "the string \"5e8\" is taken for a number"},
        {"0", NULL},
        {"\"auto\"", "reduce_bucket_size 4096"}};
    static const char *const bad[][2] = {{"5e8.5", "is not a JSON number"},
                                         {"-5e8", "found -500000000"},
                                         {"1e400", "too large"},
                                         {"1e19", "found 1"},
                                         {"null", "found null"},
                                         {"true", "found a boolean"},
                                         {"\"big\"", "found \"big\""},
                                         {"[1]", "found an array"},
                                         {"\" 5\"", "found \" 5\""},
                                         {"\"0x5\"", "found \"0x5\""}};
    char text[128];

    for (size_t i = 0; i < TAP_COUNT(good); i++) {
        (void)snprintf(text, sizeof(text),
                       "{\"zero_optimization\": {\"reduce_bucket_size\": "
                       "%s}}",
                       good[i][0]);
        TAP_CHECK(accepted(text, good[i][1]));
    }
    for (size_t i = 0; i < TAP_COUNT(bad); i++) {
        (void)snprintf(text, sizeof(text),
                       "{\"zero_optimization\": {\"reduce_bucket_size\": "
                       "%s}}",
                       bad[i][0]);
        TAP_CHECK(refused(text, bad[i][1]));
    }
}

static void test_booleans(void)
{
    TAP_CHECK(accepted("{\"bf16\": {\"enabled\": \"false\"}}",
                       "the string \"false\" is taken for a boolean"));
    TAP_CHECK(refused_with("{\"bf16\": {\"enabled\": \"false\"}}", "--strict",
                           "found the string \"false\""));
    TAP_CHECK(refused_with("{\"train_batch_size\": \"8\"}", "--strict",
                           "found the string \"8\""));
    TAP_CHECK(refused("{\"bf16\": {\"enabled\": 1}}",
                      "want true or false, found a number"));
    TAP_CHECK(refused("{\"zero_optimization\": {\"overlap_comm\": 1}}",
                      "want true or false"));
    TAP_CHECK(refused("{\"zero_optimization\": {\"offload_param\": "
                      "{\"pin_memory\": \"yes\"}}}",
                      "want true or false, found \"yes\""));
    TAP_CHECK(refused("{\"bf16\": true}", "want an object"));
    TAP_CHECK(refused("{\"wall_clock_breakdown\": 2}", "want true or false"));
}

/* "auto" resolves, stands for the default, or is refused: never arithmetic. */
static void test_auto(void)
{
    TAP_CHECK(accepted("{\"gradient_clipping\": \"auto\"}",
                       "\"auto\" without --max-grad-norm is off"));
    TAP_CHECK(accepted_with("{\"gradient_clipping\": \"auto\"}",
                            "--max-grad-norm 0.3", "gradient_clipping 0.3"));
    TAP_CHECK(accepted("{\"fp16\": {\"loss_scale_window\": \"auto\"}}",
                       "loss_scale_window 1000"));
    TAP_CHECK(
        accepted("{\"zero_optimization\": {\"stage\": \"auto\"}}", "stage 0"));
    TAP_CHECK(accepted("{\"zero_optimization\": {\"stage\": 3, "
                       "\"stage3_prefetch_bucket_size\": \"auto\"}}",
                       "stage3_prefetch_bucket_size 3686"));
    TAP_CHECK(accepted("{\"zero_optimization\": {\"stage\": 3, "
                       "\"param_persistence_threshold\": \"auto\"}}",
                       "stage3_param_persistence_threshold 640"));
    TAP_CHECK(refused("{\"steps_per_print\": \"auto\"}",
                      "\"auto\" stands for nothing here"));
    TAP_CHECK(refused("{\"communication_data_type\": \"auto\"}",
                      "\"auto\" stands for nothing here"));
    TAP_CHECK(refused("{\"optimizer\": {\"type\": \"auto\"}}",
                      "\"auto\" stands for nothing here"));
    TAP_CHECK(refused("{\"aio\": {\"block_size\": \"auto\"}}",
                      "\"auto\" stands for nothing here"));
    TAP_CHECK(refused("{\"zero_offload\": {\"fill\": \"auto\"}}",
                      "\"auto\" stands for nothing here"));
    /* Its own word, not Hugging Face's. */
    TAP_CHECK(accepted("{\"zero_offload\": {\"recompute\": \"auto\"}}", NULL));
}

/* ---- keys ---- */

static void test_unknown_keys(void)
{
    TAP_CHECK(refused("{\"zero_optimization\": {\"Stage\": 3}}",
                      "unknown key; did you mean stage?"));
    TAP_CHECK(refused("{\"zero_optimization\": {\"offload_optimiser\": {}}}",
                      "did you mean offload_optimizer?"));
    TAP_CHECK(refused("{\"zero_optimization\": {\"offload_param\": "
                      "{\"devise\": \"cpu\"}}}",
                      "did you mean device?"));
    TAP_CHECK(refused("{\"zero_optimization\": {\"gradient_clipping\": 1}}",
                      "did you mean gradient_clipping?"));
    TAP_CHECK(refused("{\"fp16\": {\"windw\": 3}}", "fp16.windw: unknown"));
    TAP_CHECK(
        refused("{\"bf16\": {\"enable\": true}}", "did you mean enabled?"));
    TAP_CHECK(
        refused("{\"zero_offload\": {\"fil\": true}}", "did you mean fill?"));
    TAP_CHECK(accepted("{\"gradient_cliping\": 1}",
                       "ds.json:1: gradient_cliping: unknown key, ignored; "
                       "did you mean gradient_clipping?"));
    TAP_CHECK(accepted("{\"zero_optimisation\": {}}",
                       "did you mean zero_optimization?"));
    TAP_CHECK(accepted("{\"aio\": {\"depth\": 3}}",
                       "aio.depth: unknown key, ignored"));
    TAP_CHECK(
        refused_with("{\"gradient_cliping\": 1}", "--strict", "unknown key"));
    TAP_CHECK(refused("{\"gradient_clipping\": 1, \"gradient_clipping\": 1}",
                      "twice"));
    {
        struct run run;

        TAP_CHECK(load(&run,
                       "{\"_comment\": 1, \"zero_optimization\": {\"stage\": "
                       "1, \"_x\": [1]}, \"fp16\": {\"_y\": {}}}",
                       "--strict") == ZO_OK);
        TAP_CHECK_INT((long long)run.notes.count, 0);
        unload(&run);
    }
}

static void test_many_unknown_keys(void)
{
    char text[4096] = "{\"a\": 1";
    size_t length = strlen(text);

    for (int i = 0; i < 100; i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length,
                                   ", \"k%d\": 1", i);
    }
    (void)snprintf(text + length, sizeof(text) - length, "}");
    TAP_CHECK(refused(text, "k99: more than 100 unknown keys"));
}

static void test_aliases(void)
{
    struct run run;

    TAP_CHECK(load(&run,
                   "{\"bfloat16\": {\"enabled\": true}, "
                   "\"zero_optimization\": {\"stage\": 3, "
                   "\"prefetch_bucket_size\": 7, "
                   "\"max_live_parameters\": 8, \"max_reuse_distance\": 9}}",
                   "") == ZO_OK);
    TAP_CHECK(run.config.dtype == ZO_BF16);
    TAP_CHECK_INT(run.config.zero.prefetch_bucket_size, 7);
    TAP_CHECK_INT(run.config.zero.max_live_parameters, 8);
    TAP_CHECK_INT(run.config.zero.max_reuse_distance, 9);
    unload(&run);
    TAP_CHECK(refused("{\"bf16\": {}, \"bfloat16\": {}}",
                      "is another name of a key that is there: bf16"));
    TAP_CHECK(refused("{\"zero_optimization\": {\"max_live_parameters\": 1, "
                      "\"stage3_max_live_parameters\": 1}}",
                      "another name"));
}

static void test_idle_keys(void)
{
    TAP_CHECK(accepted("{\"wall_clock_breakdown\": true}",
                       "ds.json:1: wall_clock_breakdown: accepted, no meaning "
                       "here: bench step shows what each operation takes"));
    TAP_CHECK(accepted("{\"wall_clock_breakdown\": false, \"dump_state\": "
                       "false}",
                       "without meaning here: "
                       "wall_clock_breakdown, dump_state"));
    TAP_CHECK(accepted("{\"flops_profiler\": {\"enabled\": false}}",
                       "without meaning here: flops_profiler"));
    TAP_CHECK(accepted("{\"aio\": {\"thread_count\": 4}}",
                       "aio.thread_count: accepted, no meaning here"));
    TAP_CHECK(accepted("{\"tensor_parallel\": {\"autotp_size\": 1}}", NULL));
    TAP_CHECK(
        accepted("{\"elasticity\": {\"enabled\": false, \"x\": 1}}", NULL));
    TAP_CHECK(refused("{\"elasticity\": {\"enabled\": true}}",
                      "elasticity.enabled: it would choose other batch"));
    TAP_CHECK(refused("{\"zero_optimization\": {\"zero_quantized_weights\": "
                      "true}}",
                      "weights are never quantized"));
    TAP_CHECK(refused("{\"zero_optimization\": {\"zenflow\": {}}}", "ZenFlow"));
    TAP_CHECK(refused("{\"gradient_allreduce_op\": \"sum\"}", "want mean"));
}

/* Nothing is called accepted of a section that is refused. */
static void test_refused_sections(void)
{
    static const char *const texts[] = {
        "{\"amp\": {\"enabled\": true}}",
        "{\"elasticity\": {\"enabled\": true, \"x\": 1}}",
        "{\"tensor_parallel\": {\"autotp_size\": 2}}",
        "{\"curriculum_learning\": {\"enabled\": true}}",
        "{\"data_efficiency\": {\"enabled\": true}}",
        "{\"progressive_layer_drop\": {\"enabled\": true}}",
    };
    struct run run;

    for (size_t i = 0; i < TAP_COUNT(texts); i++) {
        TAP_CHECK(load(&run, texts[i], "") != ZO_OK);
        TAP_CHECK_INT((long long)run.notes.count, 0);
        unload(&run);
    }
    TAP_CHECK(accepted("{\"amp\": {\"opt_level\": \"O1\"}}",
                       "amp: accepted, no meaning here"));
}

/* ---- precision ---- */

static void test_precision(void)
{
    struct run run;

    TAP_CHECK(refused("{\"fp16\": {\"enabled\": true}, "
                      "\"bf16\": {\"enabled\": true}}",
                      "fp16 (fp16.enabled) and bf16 (bf16.enabled) are both"));
    TAP_CHECK(refused_with("{\"fp16\": {\"enabled\": true}}", "--bf16",
                           "bf16 (--bf16) are both"));
    TAP_CHECK(load(&run,
                   "{\"fp16\": {\"enabled\": \"auto\"}, "
                   "\"bf16\": {\"enabled\": \"auto\"}}",
                   "") == ZO_OK);
    TAP_CHECK(run.config.dtype == ZO_F32);
    unload(&run);
    TAP_CHECK(load(&run,
                   "{\"bf16\": {\"enabled\": true, "
                   "\"check_grad_overflow\": true}, "
                   "\"communication_data_type\": \"fp32\", "
                   "\"data_types\": {\"grad_accum_dtype\": \"bf16\"}}",
                   "") == ZO_OK);
    TAP_CHECK(run.config.check_grad_overflow);
    TAP_CHECK(run.config.communication_dtype == ZO_F32);
    TAP_CHECK(run.config.grad_accum_dtype == ZO_BF16);
    unload(&run);
    TAP_CHECK(load(&run,
                   "{\"fp16\": {\"enabled\": true, \"loss_scale\": 128, "
                   "\"consecutive_hysteresis\": true, \"hysteresis\": 3}}",
                   "") == ZO_OK);
    TAP_CHECK(run.config.check_grad_overflow);
    TAP_CHECK(run.config.loss_scale.static_scale == 128.0);
    TAP_CHECK(run.config.loss_scale.consecutive_hysteresis);
    TAP_CHECK_INT(run.config.loss_scale.hysteresis, 3);
    unload(&run);
    TAP_CHECK(
        refused("{\"fp16\": {\"min_loss_scale\": 0}}", "fp16.min_loss_scale"));
    TAP_CHECK(refused("{\"fp16\": {\"enabled\": true, \"min_loss_scale\": "
                      "16, \"initial_scale_power\": 3}}",
                      "16 is above the first scale"));
    TAP_CHECK(
        refused("{\"fp16\": {\"loss_scale_window\": 0}}", "loss_scale_window"));
    TAP_CHECK(refused("{\"gradient_clipping\": -1}", "gradient_clipping"));
    TAP_CHECK(refused("{\"communication_data_type\": \"int8\"}",
                      "want one of: fp32 bf16 fp16, found \"int8\""));
}

/* ---- the rest ---- */

static void test_rest(void)
{
    struct run run;

    TAP_CHECK(load(&run,
                   "{\"activation_checkpointing\": {\"cpu_checkpointing\": "
                   "true}, \"aio\": {\"block_size\": 262144, "
                   "\"queue_depth\": 32, \"intra_op_parallelism\": 3}, "
                   "\"steps_per_print\": 50, \"dataloader_drop_last\": true, "
                   "\"wandb\": {\"enabled\": false, \"project\": \"p\"}, "
                   "\"csv_monitor\": {\"enabled\": true, \"output_path\": "
                   "\"o\"}, \"zero_offload\": {\"loss_reduction\": "
                   "\"micro_batch\", \"rope_precision\": \"model\", "
                   "\"recompute\": \"cheap\", \"nvme_verify\": false, "
                   "\"nvme_allow_memory\": true, \"max_skips\": 7}}",
                   "--seed 7 --max-steps 9") == ZO_OK);
    TAP_CHECK(run.config.activations.cpu_checkpointing);
    TAP_CHECK(run.config.activations.recompute == ZO_RECOMPUTE_CHEAP);
    TAP_CHECK_INT(run.config.aio.block_size_bytes, 262144);
    TAP_CHECK_INT(run.config.aio.queue_depth, 32);
    TAP_CHECK_INT(run.config.aio.intra_op_parallelism, 3);
    TAP_CHECK_INT(run.config.steps_per_print, 50);
    TAP_CHECK(run.config.drop_last);
    TAP_CHECK(strcmp(run.config.wandb.project, "p") == 0);
    TAP_CHECK(strcmp(run.config.csv_monitor.output_path, "o") == 0);
    TAP_CHECK(!has_note(&run, "csv_monitor"));
    TAP_CHECK(run.config.csv_monitor.is_enabled);
    TAP_CHECK(strcmp(run.config.csv_monitor.job_name, "DeepSpeedJobName") == 0);
    TAP_CHECK(run.config.tensorboard.output_path == NULL);
    TAP_CHECK(run.config.loss_reduction == ZO_LOSS_PER_MICRO_BATCH);
    TAP_CHECK(run.config.rope_precision == ZO_ROPE_PRECISION_MODEL);
    TAP_CHECK(!run.config.nvme_verify);
    TAP_CHECK(run.config.nvme_allow_memory);
    TAP_CHECK_INT(run.config.max_skips, 7);
    TAP_CHECK_INT(run.config.seed, 7);
    TAP_CHECK_INT(run.config.max_steps, 9);
    unload(&run);
    TAP_CHECK(load(&run, "{\"steps_per_print\": 50}", "--logging-steps 3") ==
              ZO_OK);
    TAP_CHECK_INT(run.config.steps_per_print, 3);
    unload(&run);
    TAP_CHECK(load(&run, "{}", "--gradient-checkpointing") == ZO_OK);
    TAP_CHECK(run.config.activations.recompute == ZO_RECOMPUTE_LAYER);
    unload(&run);
}

static void test_files(void)
{
    struct run run;

    TAP_CHECK(load(&run, NULL, "--config no-such-file.json") == ZO_E_USAGE);
    TAP_CHECK(strstr(zo_err_last()->text, "no-such-file.json: No such") !=
              NULL);
    unload(&run);
    TAP_CHECK(load(&run, NULL, "--config .") == ZO_E_USAGE);
    unload(&run);
    TAP_CHECK(refused("[]", "want an object in braces, found an array"));
    TAP_CHECK(refused("{\"a\": 1} x", "ds.json:1:10:"));
    TAP_CHECK(
        accepted("# by hand\n{\"gradient_clipping\": 1, // one\n}", NULL));
}

/* Any byte changed in a JSON: a status, never a crash. */
static void test_mutations(void)
{
    static const char seed_text[] =
        "{\"train_batch_size\": 8, \"fp16\": {\"enabled\": \"auto\"}, "
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-4, "
        "\"betas\": [0.9, 0.999]}}, \"zero_optimization\": {\"stage\": 3, "
        "\"offload_param\": {\"device\": \"cpu\"}, \"sub_group_size\": 1e9}}";
    static const char bytes[] = "{}[],:\"09-.eatfn_ x";
    unsigned state = 99;

    for (int round = 0; round < 5000; round++) {
        char text[sizeof(seed_text)];
        struct run run;
        enum zo_status status;

        memcpy(text, seed_text, sizeof(text));
        for (int i = 0; i < 2; i++) {
            state = state * 1664525u + 1013904223u;
            text[(state >> 8) % (sizeof(text) - 1)] =
                bytes[(state >> 24) % (sizeof(bytes) - 1)];
        }
        status = load(&run, text, "");
        TAP_CHECK(status == ZO_OK || status == ZO_E_CONFIG);
        unload(&run);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"without a JSON it is stage 3, and the planner places",
         test_no_config},
        {"defaults are DeepSpeed's, clipping and overflow check off",
         test_defaults},
        {"the warm-up that holds is told", test_warmup_told},
        {"the batch triangle is DeepSpeed's", test_batch},
        {"an option that contradicts the JSON is refused", test_disagreement},
        {"--set overrides the JSON and is checked like it", test_set},
        {"sizes are any integral number, fractions rounded down", test_sizes},
        {"booleans are true and false; their strings are converted",
         test_booleans},
        {"\"auto\" resolves, is the default, or is refused", test_auto},
        {"unknown keys are errors or told, with the nearest name",
         test_unknown_keys},
        {"a file of a hundred unknown keys is no configuration",
         test_many_unknown_keys},
        {"a key has one value under all its names", test_aliases},
        {"nothing of a refused section is called accepted",
         test_refused_sections},
        {"keys without meaning are accepted with the reason", test_idle_keys},
        {"precision keys mean what DeepSpeed's mean", test_precision},
        {"all other keys arrive", test_rest},
        {"files that are none, and JSON that is none", test_files},
        {"mutated configurations never crash", test_mutations},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
