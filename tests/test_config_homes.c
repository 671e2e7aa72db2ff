/* Optimizer, schedule, stages and homes of run_config.h. */
#include <stdio.h>
#include <string.h>

#include "tests/config_case.h"
#include "tests/tap.h"

/* ---- old keys ---- */

static void test_legacy(void)
{
    struct run run;

    TAP_CHECK(load(&run, "{\"zero_optimization\": true}", "") == ZO_OK);
    TAP_CHECK_INT(run.config.zero.stage, 1);
    TAP_CHECK(has_note(&run, "true is an old form of {\"stage\": 1}"));
    unload(&run);
    TAP_CHECK(load(&run, "{\"zero_optimization\": false}", "") == ZO_OK);
    TAP_CHECK_INT(run.config.zero.stage, 0);
    unload(&run);
    TAP_CHECK(load(&run,
                   "{\"zero_optimization\": {\"stage\": 3, \"cpu_offload\": "
                   "true, \"cpu_offload_params\": true}}",
                   "") == ZO_OK);
    TAP_CHECK_INT(run.config.zero.optimizer.limit, ZO_HOME_CPU);
    TAP_CHECK_INT(run.config.zero.param.limit, ZO_HOME_CPU);
    TAP_CHECK(has_note(&run, "read as offload_optimizer.device \"cpu\""));
    TAP_CHECK(has_note(&run, "read as offload_param.device \"cpu\""));
    unload(&run);
    TAP_CHECK(refused("{\"zero_optimization\": {\"stage\": 2, "
                      "\"cpu_offload\": true, \"offload_optimizer\": "
                      "{\"device\": \"none\"}}}",
                      "cpu_offload: true contradicts"));
    TAP_CHECK(refused("{\"zero_optimization\": {\"stage\": 2, "
                      "\"cpu_offload\": false, \"offload_optimizer\": "
                      "{\"device\": \"cpu\"}}}",
                      "cpu_offload: false contradicts"));
    TAP_CHECK(refused("{\"zero_optimization\": {\"stage\": 0, "
                      "\"cpu_offload\": true}}",
                      "stages 1 to 3 only"));
    TAP_CHECK(accepted("{\"zero_optimization\": {\"stage\": 3, "
                       "\"stage3_gather_fp16_weights_on_model_save\": true}}",
                       "an old name of stage3_gather_16bit"));
}

/* ---- optimizer ---- */

static void test_optimizer(void)
{
    struct run run;

    TAP_CHECK(load(&run,
                   "{\"optimizer\": {\"type\": \"Adam\", \"params\": "
                   "{\"lr\": 1e-5, \"betas\": [0.8, 0.95], \"eps\": 1e-7, "
                   "\"weight_decay\": 0.1}}, \"zero_offload\": "
                   "{\"decay_all\": true, \"moment_dtype\": \"bf16\"}}",
                   "") == ZO_OK);
    TAP_CHECK(run.config.optimizer.learning_rate == 1e-5);
    TAP_CHECK(run.config.optimizer.beta1 == 0.8);
    TAP_CHECK(run.config.optimizer.beta2 == 0.95);
    TAP_CHECK(run.config.optimizer.epsilon == 1e-7);
    TAP_CHECK(run.config.optimizer.weight_decay == 0.1);
    TAP_CHECK(run.config.optimizer.decay_all);
    TAP_CHECK(run.config.optimizer.moment_dtype == ZO_BF16);
    TAP_CHECK(run.config.schedule.learning_rate == 1e-5);
    unload(&run);
    TAP_CHECK(refused("{\"optimizer\": {\"type\": \"Lion\"}}",
                      "the optimizer is AdamW; found Lion"));
    TAP_CHECK(refused("{\"optimizer\": {\"type\": \"Adam\", \"params\": "
                      "{\"adam_w_mode\": false}}}",
                      "want true"));
    TAP_CHECK(accepted("{\"optimizer\": {\"type\": \"AdamW\", \"params\": "
                       "{\"adam_w_mode\": false}}}",
                       "ignored: it is read for type Adam only"));
    TAP_CHECK(accepted("{\"optimizer\": {\"type\": \"ADAMW\", \"params\": "
                       "{\"torch_adam\": true}}}",
                       "torch_adam: accepted"));
    TAP_CHECK(refused("{\"optimizer\": {\"params\": {\"amsgrad\": true}}}",
                      "AMSGrad"));
    TAP_CHECK(refused("{\"optimizer\": {\"params\": {\"bias_correction\": "
                      "false}}}",
                      "bias_correction: want true"));
    TAP_CHECK(refused("{\"optimizer\": {\"params\": {\"max_grad_norm\": 1}}}",
                      "max_grad_norm"));
    TAP_CHECK(refused("{\"optimizer\": {\"params\": {\"betas\": [0.9]}}}",
                      "want an array of two numbers"));
    TAP_CHECK(refused("{\"optimizer\": {\"params\": {\"betas\": [0.9, 1]}}}",
                      "betas[1]"));
    TAP_CHECK(refused("{\"optimizer\": {\"params\": {\"lr\": -1}}}",
                      "optimizer.params.lr"));
    TAP_CHECK(refused("{\"optimizer\": {\"params\": {\"eps\": 0}}}",
                      "optimizer.params.eps"));
    TAP_CHECK(accepted("{\"optimizer\": {\"params\": {\"eps\": 1e-8}}}",
                       "has no lr: --learning-rate stands in"));
}

/* ---- schedule ---- */

static void test_schedule(void)
{
    struct run run;

    TAP_CHECK(load(&run,
                   "{\"optimizer\": {\"params\": {\"lr\": 5e-7}}, "
                   "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                   "{\"warmup_num_steps\": 5, \"warmup_type\": "
                   "\"linear\"}}}",
                   "") == ZO_OK);
    TAP_CHECK(run.config.schedule.type == ZO_SCHEDULE_WARMUP);
    TAP_CHECK(run.config.schedule.warmup_max_lr == 5e-7); /* not 1e-3 */
    TAP_CHECK(run.config.schedule.warmup_min_lr == 0.0);
    TAP_CHECK(run.config.schedule.warmup_is_linear);
    TAP_CHECK_INT(run.config.schedule.warmup_steps, 5);
    unload(&run);
    TAP_CHECK(load(&run, "{\"scheduler\": {\"type\": \"WarmupLR\"}}", "") ==
              ZO_OK);
    TAP_CHECK_INT(run.config.schedule.warmup_steps, 1000);
    TAP_CHECK(!run.config.schedule.warmup_is_linear);
    unload(&run);
    TAP_CHECK(accepted("{\"optimizer\": {\"params\": {\"lr\": 1e-5}}, "
                       "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                       "{\"warmup_max_lr\": 3e-5}}}",
                       "3e-05 is the learning rate that counts"));
    TAP_CHECK(refused("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                      "{\"warmup_min_lr\": 1}}}",
                      "is above the learning"));
    TAP_CHECK(accepted("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                       "{\"warmup_type\": \"cosine\"}}}",
                       "cosine is neither log nor linear; read as log"));
    TAP_CHECK(refused_with("{\"scheduler\": {\"type\": \"WarmupLR\", "
                           "\"params\": {\"warmup_type\": \"cosine\"}}}",
                           "--strict", "want log or linear"));
    TAP_CHECK(accepted("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                       "{\"cos_min_ratio\": 0.1}}}",
                       "cos_min_ratio: ignored: it is no parameter of "
                       "WarmupLR"));
    TAP_CHECK(refused("{\"scheduler\": {\"type\": \"WarmupCosineSchedule\"}}",
                      "found WarmupCosineSchedule"));
    TAP_CHECK(refused("{\"scheduler\": {\"type\": \"WarmupDecay\"}}",
                      "did you mean WarmupDecayLR?"));
    TAP_CHECK(refused("{\"scheduler\": {\"type\": \"LRRangeTest\"}}",
                      "trains no model"));
    TAP_CHECK(refused("{\"scheduler\": {\"type\": \"WarmupDecayLR\", "
                      "\"params\": {\"total_num_steps\": 3, "
                      "\"warmup_num_steps\": 5}}}",
                      "3 steps are fewer than the warm-up's 5"));
    TAP_CHECK(accepted("{\"scheduler\": {\"type\": \"WarmupDecayLR\", "
                       "\"params\": {\"warmup_num_steps\": 0}}}",
                       "no total_num_steps: the steps of the run stand in"));
    TAP_CHECK(load(&run, "{\"scheduler\": {\"params\": {}}}",
                   "--lr-scheduler-type constant_with_warmup "
                   "--warmup-steps 7") == ZO_OK);
    TAP_CHECK(run.config.schedule.type == ZO_SCHEDULE_CONSTANT_WITH_WARMUP);
    TAP_CHECK_INT(run.config.schedule.warmup_steps, 7);
    unload(&run);
}

static void test_cycle(void)
{
    struct run run;

    TAP_CHECK(load(&run,
                   "{\"scheduler\": {\"type\": \"OneCycle\", \"params\": "
                   "{\"cycle_min_lr\": 1e-5, \"cycle_max_lr\": 1e-4, "
                   "\"cycle_first_step_size\": 50, "
                   "\"cycle_first_stair_count\": 5, \"decay_step_size\": 10, "
                   "\"decay_lr_rate\": 0.5, \"cycle_momentum\": false}}}",
                   "") == ZO_OK);
    TAP_CHECK(run.config.schedule.cycle_max_lr == 1e-4);
    TAP_CHECK_INT(run.config.schedule.cycle_second_steps, 50);
    TAP_CHECK_INT(run.config.schedule.cycle_second_stairs, 5);
    TAP_CHECK_INT(run.config.schedule.decay_step_size, 10);
    TAP_CHECK(run.config.schedule.decay_lr_rate == 0.5);
    TAP_CHECK(!run.config.schedule.cycle_momentum);
    unload(&run);
    TAP_CHECK(refused("{\"scheduler\": {\"type\": \"OneCycle\", \"params\": "
                      "{\"cycle_min_lr\": 1e-5}}}",
                      "needs the parameter "
                      "cycle_max_lr"));
    TAP_CHECK(refused("{\"scheduler\": {\"type\": \"OneCycle\", \"params\": "
                      "{\"cycle_min_lr\": 1, \"cycle_max_lr\": 0.5}}}",
                      "is above cycle_max_lr"));
    TAP_CHECK(refused_with("{\"scheduler\": {\"type\": \"OneCycle\", "
                           "\"params\": {\"cycle_min_lr\": 1e-5, "
                           "\"cycle_max_lr\": 1e-4}}}",
                           "--warmup-steps 5", "OneCycle has no warm-up"));
}

static void test_finish(void)
{
    static const char decay[] =
        "{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
        "{\"total_num_steps\": \"auto\", \"warmup_num_steps\": \"auto\"}}}";
    struct run run;

    TAP_CHECK(load(&run, decay, "--warmup-ratio 0.03") == ZO_OK);
    TAP_CHECK_INT(run.config.schedule.total_steps, ZO_STEPS_UNKNOWN);
    TAP_CHECK_INT(run.config.schedule.warmup_steps, ZO_STEPS_UNKNOWN);
    TAP_CHECK(zo_run_config_finish(&run.config, 101, &run.notes) == ZO_OK);
    TAP_CHECK_INT(run.config.schedule.total_steps, 101);
    TAP_CHECK_INT(run.config.schedule.warmup_steps, 4); /* rounded up */
    unload(&run);
    TAP_CHECK(load(&run, decay, "--warmup-steps 6") == ZO_OK);
    TAP_CHECK(zo_run_config_finish(&run.config, 5, &run.notes) == ZO_E_CONFIG);
    unload(&run);
    TAP_CHECK(load(&run, "{}", "--warmup-steps 6") == ZO_OK);
    TAP_CHECK(zo_run_config_finish(&run.config, 5, &run.notes) == ZO_OK);
    TAP_CHECK(has_note(&run, "the learning rate never reaches"));
    unload(&run);
}

/* ---- homes ---- */

#define AT_STAGE(stage, rest) \
    "{\"zero_optimization\": {\"stage\": " #stage ", " rest "}}"

static void test_homes(void)
{
    struct run run;

    TAP_CHECK(refused("{\"zero_optimization\": {\"stage\": 4}}",
                      "want an integer from 0 to 3, found 4"));
    TAP_CHECK(accepted("{\"zero_optimization\": {\"stage\": \"3\"}}",
                       "taken for a number"));
    TAP_CHECK(accepted("{\"zero_optimization\": {\"stage\": 3.0}}", NULL));
    TAP_CHECK(
        refused("{\"zero_optimization\": {\"stage\": 2.5}}", "found 2.5"));
    TAP_CHECK(refused(AT_STAGE(3, "\"offload_param\": {\"device\": \"gpu\"}"),
                      "want one of: none cpu nvme, found \"gpu\""));
    TAP_CHECK(refused(AT_STAGE(0, "\"offload_optimizer\": {\"device\": "
                                  "\"cpu\"}"),
                      "the stage is 0"));
    TAP_CHECK(accepted(AT_STAGE(0, "\"offload_optimizer\": {\"device\": "
                                   "\"none\"}"),
                       NULL));
    TAP_CHECK(refused(AT_STAGE(2, "\"offload_optimizer\": {\"device\": "
                                  "\"nvme\", \"nvme_path\": \"d\"}"),
                      "NVMe is used at stage 3 only"));
    TAP_CHECK(refused(AT_STAGE(3, "\"offload_optimizer\": {\"device\": "
                                  "\"nvme\"}"),
                      "\"nvme\" needs a folder"));
    TAP_CHECK(load(&run,
                   AT_STAGE(2, "\"offload_param\": {\"device\": "
                               "\"cpu\"}"),
                   "") == ZO_OK);
    TAP_CHECK_INT(run.config.zero.param.limit, ZO_HOME_GPU);
    TAP_CHECK(has_note(&run, "ignored: weights leave the GPU at stage 3"));
    unload(&run);
    TAP_CHECK(load(&run,
                   AT_STAGE(3, "\"offload_optimizer\": {\"device\": "
                               "\"nvme\", \"nvme_path\": \"d\", \"ratio\": "
                               "0.25, \"pin_memory\": false, "
                               "\"buffer_count\": 6}"),
                   "") == ZO_OK);
    TAP_CHECK_INT(run.config.zero.optimizer.limit, ZO_HOME_NVME);
    TAP_CHECK(strcmp(run.config.zero.optimizer.nvme_path, "d") == 0);
    TAP_CHECK(run.config.zero.optimizer.ratio == 0.25);
    TAP_CHECK(!run.config.zero.optimizer.pin_memory);
    TAP_CHECK_INT(run.config.zero.optimizer.buffer_count, 6);
    unload(&run);
    TAP_CHECK(accepted(AT_STAGE(2, "\"offload_optimizer\": {\"device\": "
                                   "\"cpu\", \"ratio\": 0.5}"),
                       "ratio: ignored"));
    TAP_CHECK(accepted_with(AT_STAGE(2, "\"offload_optimizer\": {\"device\": "
                                        "\"cpu\"}"),
                            "--nvme d", "--nvme d is not used"));
    TAP_CHECK(refused(AT_STAGE(3, "\"aio\": {\"block_size\": 262144}"),
                      "aio is a section of the top level"));
    TAP_CHECK(accepted("{\"bf16\": {\"enabled\": true}}",
                       "no zero_optimization.stage: stage 0"));
    TAP_CHECK(accepted(AT_STAGE(1, "\"offload_optimizer\": null"), NULL));
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"old keys are translated, contradictions named", test_legacy},
        {"the optimizer is AdamW", test_optimizer},
        {"schedules of the JSON and of the options", test_schedule},
        {"OneCycle's second half follows its first", test_cycle},
        {"the end of the run fills the schedule", test_finish},
        {"stages and homes that mean nothing together are refused", test_homes},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
