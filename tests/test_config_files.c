/*
 * Real DeepSpeed configurations, a line each: accepted, with the values that
 * matter, or refused, with a piece of the message.  The files are not part
 * of the project; without them the cases are skipped.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/run_config.h"
#include "src/base/memory.h"
#include "src/train/place_config.h"
#include "tests/tap.h"

#define FILES_COUNT 107

enum {
    P = ZO_HOME_PLANNED,
    G = ZO_HOME_GPU,
    C = ZO_HOME_CPU,
    N = ZO_HOME_NVME
};

/* clang-format off */
#define WARM   ZO_SCHEDULE_WARMUP
#define DECAY  ZO_SCHEDULE_WARMUP_DECAY
#define COSINE ZO_SCHEDULE_WARMUP_COSINE
#define CYCLE  ZO_SCHEDULE_ONE_CYCLE
#define LINEAR ZO_SCHEDULE_LINEAR

/* What Hugging Face's trainer would be called with, where all is "auto". */
#define HF "--learning-rate 2e-5 --max-grad-norm 1 --warmup-steps 10 " \
           "--per-device-train-batch-size 2 --gradient-accumulation-steps 4"
#define B  "--bf16 " HF
#define F  "--fp16 " HF
/* The same without the batch. */
#define K  "--learning-rate 1e-4 --max-grad-norm 1 --warmup-steps 10"

struct expectation {
    const char *file; /* without .json */
    int devices;
    const char *options; /* separated by spaces */
    const char *refusal; /* piece of the message; NULL when accepted */
    int stage;
    int optimizer, param; /* home limits */
    enum zo_dtype dtype;
    int64_t train, micro, accumulation;
    double learning_rate;
    enum zo_schedule_type schedule;
    double clipping;
    const char *note; /* piece of a note that must be there; or NULL */
};

#define NO(text) .refusal = text

static const struct expectation table[] = {
    {"001-stage2", 4,
     "--fp16 --learning-rate 1e-4 --per-device-train-batch-size 4 "
     "--gradient-accumulation-steps 1", NULL, 2, P, G, ZO_F16, 16, 4, 1, 1e-4,
     LINEAR, 0, "from \"auto\""},
    {"002-stage2", 2, B, NULL, 2, P, G, ZO_BF16, 16, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"003-stage3", 1, B, NULL, 3, P, P, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     "reduce_bucket_size 16777216"},
    {"004-stage2-auto-auto", 1, "", NULL, 2, P, G, ZO_F16, 32, 4, 8, 5e-5,
     DECAY, 1, "cosine is neither log nor linear"},
    {"005-stage3-auto-auto", 2, "", NULL, 3, P, P, ZO_F16, 32, 4, 4, 5e-5,
     DECAY, 1, "cosine is neither log nor linear"},
    {"006-stage3-cpu-cpu", 4, "", NULL, 3, C, C, ZO_F16, 32, 4, 2, 5e-5, DECAY,
     1, NULL},
    {"007-stage0", 1, B, NULL, 0, G, G, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"008-stage2", 2, B,
     NO("tensor_parallel.autotp_size: tensor parallelism is not done here")},
    {"009-stage2", 1, F, NULL, 2, P, G, ZO_F16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"010-stage2-cpu", 1, B, NULL, 2, C, G, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"011-stage3", 1, B, NULL, 3, P, P, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     "stage3_prefetch_bucket_size 15099494"},
    {"013-stage3-cpu-cpu", 1, B, NULL, 3, C, C, ZO_BF16, 8, 2, 4, 2e-5, LINEAR,
     1, "stage3_param_persistence_threshold 40960"},
    {"014-stage1", 1, F, NULL, 1, P, G, ZO_F16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"016-stage2-cpu", 1, B, NULL, 2, C, G, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"017-stage2-cpu", 1, B,
     NO("compile.disable: DeepSpeed 0.19.6 refuses this key")},
    {"018-stage3", 1, B, NULL, 3, P, P, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"019-stage3", 1, B, NULL, 3, P, P, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"020-stage3-cpu-cpu", 1, B, NULL, 3, C, C, ZO_BF16, 8, 2, 4, 2e-5, LINEAR,
     1, "zero_force_ds_cpu_optimizer: accepted, no meaning here"},
    {"021-stage3-cpu", 1, B, NULL, 3, P, C, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"022-stage2-cpu", 1, F, NULL, 2, C, G, ZO_F16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"023-stage3-cpu-cpu", 1, F, NULL, 3, C, C, ZO_F16, 8, 2, 4, 2e-5, LINEAR,
     1, NULL},
    {"024-stage3-cpu-cpu", 1, B, NULL, 3, C, C, ZO_BF16, 8, 2, 4, 2e-5, DECAY,
     1, "warmup_num_steps 10"},
    {"025-stage3", 1, "", NULL, 3, P, P, ZO_BF16, 1, 1, 1, 5e-5, WARM, 0,
     "gradient_clipping: \"auto\" without --max-grad-norm is off"},
    {"026-stage3-cpu", 1, B, NULL, 3, C, P, ZO_BF16, 8, 2, 4, 2e-5, WARM, 1,
     NULL},
    {"027-stage3-cpu", 1, F, NULL, 3, C, P, ZO_F16, 8, 2, 4, 2e-5, WARM, 1,
     NULL},
    {"028-stage3", 1, "", NULL, 3, P, P, ZO_F16, 2, 2, 1, 5e-5, LINEAR, 0,
     NULL},
    {"029-stage3", 1, "", NULL, 3, P, P, ZO_BF16, 2, 2, 1, 5e-5, LINEAR, 0,
     NULL},
    {"030-stage2", 8, "", NULL, 2, P, G, ZO_BF16, 8, 1, 1, 1e-8, LINEAR, 1,
     NULL},
    {"031-stage3", 1, B, NULL, 3, P, P, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"032-stage2-none", 1, B, NULL, 2, G, G, ZO_BF16, 8, 2, 4, 2e-5, WARM, 1,
     NULL},
    {"033-stage3-none-none", 1, B, NULL, 3, G, G, ZO_BF16, 8, 2, 4, 2e-5, WARM,
     1, NULL},
    {"034-stage1", 1, B, NULL, 1, P, G, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"035-stage2", 1, B, NULL, 2, P, G, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"036-stage2-cpu", 1, B, NULL, 2, C, G, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"037-stage3", 1, B, NULL, 3, P, P, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"038-stage3-cpu-cpu", 1, B, NULL, 3, C, C, ZO_BF16, 8, 2, 4, 2e-5, LINEAR,
     1, NULL},
    {"039-stage0", 1, B, NULL, 0, G, G, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"040-stage1-none", 1, B, NULL, 1, G, G, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"041-stage2-none", 1, B, NULL, 2, G, G, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"042-stage2-cpu", 1, B, NULL, 2, C, G, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"043-stage3-none-none", 1, B, NULL, 3, G, G, ZO_BF16, 8, 2, 4, 2e-5,
     LINEAR, 1, NULL},
    {"044-stage3-cpu-cpu", 1, B, NULL, 3, C, C, ZO_BF16, 8, 2, 4, 2e-5, LINEAR,
     1, NULL},
    {"045-stage3-cpu-cpu", 1, F, NULL, 3, C, C, ZO_F16, 8, 2, 4, 2e-5, WARM, 1,
     NULL},
    {"046-stage2", 1, B, NULL, 2, P, G, ZO_BF16, 8, 2, 4, 2e-5, DECAY, 1,
     "torch_adam: accepted, no meaning here"},
    {"047-stage2", 1, B, NULL, 2, P, G, ZO_BF16, 8, 2, 4, 2e-5, DECAY, 1,
     "flops_profiler: accepted, no meaning here"},
    {"048-stage3", 1, B, NULL, 3, P, P, ZO_BF16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"049-stage2", 1, F, NULL, 2, P, G, ZO_F16, 8, 2, 4, 2e-5, DECAY, 1, NULL},
    {"050-stage3-cpu-cpu", 1, B, NULL, 3, C, C, ZO_BF16, 8, 2, 4, 2e-5, DECAY,
     1, NULL},
    {"051-stage3", 1, B, NULL, 3, P, P, ZO_BF16, 8, 2, 4, 2e-5, DECAY, 1,
     NULL},
    {"052-stage3-cpu-cpu", 1, B, NULL, 3, C, C, ZO_BF16, 8, 2, 4, 2e-5, DECAY,
     1, NULL},
    {"053-stage3", 1, F, NULL, 3, P, P, ZO_F16, 8, 2, 4, 2e-5, LINEAR, 1,
     NULL},
    {"054-stage3", 1, "--per-device-train-batch-size 2", NULL, 3, P, P,
     ZO_BF16, 2, 2, 1, 5e-5, LINEAR, 0,
     "seq_parallel_communication_data_type: accepted"},
    {"055-stage1", 1, K, NULL, 1, P, G, ZO_F16, 1, 1, 1, 1e-4, DECAY, 1, NULL},
    {"056-stage2", 1, K, NULL, 2, P, G, ZO_F16, 1, 1, 1, 1e-4, DECAY, 1, NULL},
    {"057-stage2-cpu", 1, K, NULL, 2, C, G, ZO_F16, 1, 1, 1, 1e-4, DECAY, 1,
     NULL},
    {"058-stage3", 1, K, NULL, 3, P, P, ZO_F16, 1, 1, 1, 1e-4, DECAY, 1,
     "stage3_gather_16bit_weights_on_model_save false"},
    {"059-stage3-cpu-cpu", 1, K, NULL, 3, C, C, ZO_F16, 1, 1, 1, 1e-4, DECAY,
     1, NULL},
    {"060-stage2-cpu", 1, K " --bf16", NULL, 2, C, G, ZO_BF16, 1, 1, 1, 1e-4,
     WARM, 1, NULL},
    {"061-stage2-cpu", 1, K " --bf16", NULL, 2, C, G, ZO_BF16, 1, 1, 1, 1e-4,
     LINEAR, 1, NULL},
    {"062-stage3-cpu-cpu", 1, K " --bf16", NULL, 3, C, C, ZO_BF16, 1, 1, 1,
     1e-4, WARM, 1, NULL},
    {"063-stage3-cpu", 1, "--bf16", NULL, 3, P, C, ZO_BF16, 1, 1, 1, 5e-5,
     LINEAR, 0, NULL},
    {"064-stage2-cpu", 1, B, NULL, 2, C, G, ZO_BF16, 8, 2, 4, 2e-5, WARM, 1,
     NULL},
    {"065-stage3-cpu-cpu", 1, F, NULL, 3, C, C, ZO_F16, 8, 2, 4, 2e-5, WARM, 1,
     "an old name of stage3_gather_16bit"},
    {"066-stage3-cpu-cpu", 1, "", NULL, 3, C, C, ZO_F16, 1, 1, 1, 3e-5, WARM,
     0, NULL},
    {"090-stage3", 1, "",
     NO("fp16.dynamic_loss_scale: DeepSpeed has no such key")},
    {"106-stage3-nvme-nvme", 2, "",
     NO("offload_optimizer.buffer_size: DeepSpeed refuses it")},
    {"110-stage1-none-none", 2, K, NULL, 1, G, G, ZO_F16, 2, 1, 1, 1e-4, WARM,
     1, "partition_activations: accepted, no meaning here"},
    {"132-stage1", 1, B,
     NO("steps_per_print: \"auto\" stands for nothing here")},
    {"142-stage3", 1, "--learning-rate 1e-5", NULL, 3, P, P, ZO_BF16, 1, 1, 1,
     1e-5, LINEAR, 0, "zero3_init_flag: unknown key, ignored"},
    {"149-stage0", 1, "", NULL, 0, G, G, ZO_F16, 128, 64, 2, 5e-5, LINEAR, 5,
     "msamp: unknown key, ignored"},
    {"159-stageabsent", 8, "", NULL, 0, G, G, ZO_F16, 1520, 190, 1, 5e-5,
     LINEAR, 0, "no zero_optimization.stage: stage 0"},
    {"161-stage2-cpu-cpu", 2, "", NULL, 2, C, G, ZO_BF16, 32, 2, 8, 6e-4,
     LINEAR, 1, "offload_param.device: ignored"},
    {"175-stage3-cpu-cpu", 1, F, NULL, 3, C, C, ZO_F16, 8, 2, 4, 2e-5, WARM, 1,
     "stage3_prefetch_bucket_size: the string \"10\" is taken for a number"},
    {"178-stage2", 1, "", NULL, 2, P, G, ZO_F16, 5, 5, 1, 5e-5, LINEAR, 0,
     "cpu_offload: an old key"},
    {"181-stage3-cpu-legacy-cpu-legacy", 1, "",
     NO("stage3_param_persitance_threshold: unknown key; did you mean "
     "stage3_param_persistence_threshold?")},
    {"188-stage1", 1, B, NO("bf16.loss_scale: bf16 has the range of fp32")},
    {"222-stage3-cpu-cpu", 1, "--learning-rate 2e-5", NULL, 3, C, C, ZO_F32, 1,
     1, 1, 2e-5, WARM, 0, "flash_attention: unknown key, ignored"},
    {"228-stage2-cpu-cpu", 1, F, NULL, 2, C, G, ZO_F16, 8, 2, 4, 2e-5, DECAY,
     1, "min_lr: unknown key, ignored"},
    {"313-stage2-cpu", 1, "", NULL, 2, C, G, ZO_F16, 1, 1, 1, 2e-5, LINEAR, 0,
     "elastic_checkpoint: accepted, no meaning here"},
    {"333-stage1-cpu", 1, "", NULL, 1, C, G, ZO_BF16, 1, 1, 1, 2e-5, WARM, 1,
     "pipeline: accepted, no meaning here"},
    {"349-stage3-none-none", 1, B, NULL, 3, G, G, ZO_BF16, 8, 2, 4, 2e-5,
     COSINE, 1, NULL},
    {"351-stage0", 1, "",
     NO("optimizer.params.max_grad_norm: clipping is the top-level key")},
    {"385-stage0", 1, "", NULL, 0, G, G, ZO_F16, 32, 32, 1, 1e-3, LINEAR, 1,
     "compression_training: accepted, no meaning here"},
    {"400-stage3", 1, "", NULL, 3, P, P, ZO_BF16, 4, 4, 1, 1e-4, LINEAR, 0,
     "bf16_master_weights_and_grads: accepted, no meaning here"},
    {"403-stageabsent", 1, "",
     NO("optimizer.type: the optimizer is AdamW; found OneBitLamb")},
    {"411-stage0", 1, "",
     NO("data_efficiency.enabled: other rows or fewer tokens")},
    {"413-stage0", 1, "", NULL, 0, G, G, ZO_F32, 256, 256, 1, 1e-3, LINEAR, 0,
     "cuda_visible_devices: unknown key, ignored"},
    {"437-stage3-cpu-cpu", 1, "--bf16", NULL, 3, C, C, ZO_BF16, 1, 1, 1, 5e-5,
     CYCLE, 0, NULL},
    {"439-stage2-cpu-cpu", 1, "--bf16", NULL, 2, C, G, ZO_BF16, 1, 1, 1, 5e-5,
     CYCLE, 0, "round_robin_gradients: unknown key, ignored; did you mean "
     "zero_optimization.round_robin_gradients?"},
    {"441-stage3-cpu-cpu", 1, "", NULL, 3, C, C, ZO_F32, 1, 1, 1, 5e-5, LINEAR,
     0, "sub_group_size 1e9"},
    {"445-stage3-cpu-nvme", 1, "--nvme disk --fp16", NULL, 3, C, N, ZO_F16, 1,
     1, 1, 5e-5, LINEAR, 0, "nvme_path disk"},
    {"451-stage3", 2, "", NO("infinity_offload_params: DeepSpeed refuses it")},
    {"455-stage0", 8, "", NULL, 0, G, G, ZO_F32, 64, 8, 1, 1e-4, DECAY, 1,
     "overlap_comm: unknown key, ignored; did you mean "
     "zero_optimization.overlap_comm?"},
    {"459-stage3-cpu-cpu", 2, "", NULL, 3, C, C, ZO_BF16, 4, 2, 1, 6e-4,
     LINEAR, 1, "fp16.enabled: the string \"false\" is taken for a boolean"},
    {"463-stage2", 1, "",
     NO("fp16.enabled: fp16 (fp16.enabled) and bf16 (bf16.enabled) are "
     "both enabled")},
    {"470-stage1-cpu-cpu", 4, "",
     NO("fp16.initail_scale_power: unknown key; did you mean "
     "initial_scale_power?")},
    {"472-stage3-nvme-nvme", 1, "",
     NO("zero_optimization.aio: DeepSpeed refuses it: aio is a section "
     "of the top level")},
    {"479-stagebool-true", 8, "",
     NO("optimizer.params.bias_correction: want true")},
    {"511-stage3", 1, "", NULL, 3, P, P, ZO_F32, 1, 1, 1, 5e-5, LINEAR, 0,
     "leaf_module: accepted, no meaning here"},
    {"522-stage-zero-stage", 1, "",
     NO(":2:39: $MICRO_BATCH_SIZE_PER_GPU is a placeholder")},
    {"seed-fp16-dynamic", 1, "", NULL, 0, G, G, ZO_F16, 1, 1, 1, 5e-5, LINEAR,
     0, "stage 0, as in DeepSpeed"},
    {"seed-stage0-fp16", 1, "", NULL, 0, G, G, ZO_F16, 1, 1, 1, 5e-5, LINEAR,
     0, NULL},
    {"seed-stage1", 2, "", NULL, 1, P, G, ZO_F16, 2, 1, 1, 5e-5, LINEAR, 0,
     NULL},
    {"seed-stage2-adamw-offload", 2, "", NULL, 2, C, G, ZO_F16, 32, 4, 4, 2e-5,
     LINEAR, 1, NULL},
    {"seed-stage2", 1, "", NULL, 2, G, G, ZO_F16, 1, 1, 1, 5e-5, LINEAR, 0,
     NULL},
    {"seed-stage3-offload", 1, "", NULL, 3, C, C, ZO_F16, 1, 1, 1, 5e-5,
     LINEAR, 0, NULL},
    {"seed-stage3", 1, "", NULL, 3, G, G, ZO_F16, 1, 1, 1, 5e-5, LINEAR, 0,
     NULL},
};
/* clang-format on */

/* A run of one file; all zero is none. */
struct run {
    char path[512];
    char words[1024];
    struct zo_options options;
    struct zo_notes notes;
    struct zo_run_config config;
};

/* NULL when the files are not there. */
static const char *folder(void)
{
    static char path[400];
    const char *shared = getenv("ZERO_OFFLOAD_SHARED");

    if (shared == NULL || shared[0] == '\0') {
        return NULL;
    }
    (void)snprintf(path, sizeof(path), "%s/ds-configs", shared);
    return access(path, R_OK) == 0 ? path : NULL;
}

/* A file, named by an option, with more options separated by spaces. */
static enum zo_status load_as(struct run *run, const char *option,
                              const char *file, const char *options,
                              int devices)
{
    const struct zo_run_facts facts = {.num_devices = devices,
                                       .hidden_size = 4096};
    const char *argv[64] = {option, run->path};
    int argc = 2;
    enum zo_status status;

    memset(run, 0, sizeof(*run));
    (void)snprintf(run->path, sizeof(run->path), "%s/%s.json", folder(), file);
    (void)snprintf(run->words, sizeof(run->words), "%s", options);
    for (char *word = run->words, *end; *word != '\0'; word = end) {
        end = word + strcspn(word, " ");
        argv[argc++] = word;
        if (*end == ' ') {
            *end++ = '\0';
        }
    }
    status = zo_options_parse(ZO_COMMAND_TRAIN, argc, argv, &run->options,
                              &run->notes);
    if (status != ZO_OK) {
        return status;
    }
    return zo_run_config_read(&run->options, &facts, &run->notes, &run->config);
}

static enum zo_status load(struct run *run, const char *file,
                           const char *options, int devices)
{
    return load_as(run, "--config", file, options, devices);
}

static void unload(struct run *run)
{
    zo_run_config_fini(&run->config);
    zo_options_fini(&run->options);
    zo_notes_fini(&run->notes);
}

static bool has_note(const struct zo_notes *notes, const char *piece)
{
    for (size_t i = 0; i < notes->count; i++) {
        if (strstr(notes->items[i].text, piece) != NULL) {
            return true;
        }
    }
    return false;
}

static bool is_as_expected(const struct expectation *want,
                           const struct run *run)
{
    const struct zo_run_config *got = &run->config;

    return got->zero.stage == want->stage &&
           (int)got->zero.optimizer.limit == want->optimizer &&
           (int)got->zero.param.limit == want->param &&
           got->dtype == want->dtype && got->train_batch_rows == want->train &&
           got->micro_batch_rows == want->micro &&
           got->gradient_accumulation_steps == want->accumulation &&
           got->optimizer.learning_rate == want->learning_rate &&
           got->schedule.type == want->schedule &&
           got->gradient_clipping == want->clipping;
}

static void print_run(const struct run *run)
{
    const struct zo_run_config *c = &run->config;

    printf("# got: stage %d, homes %d %d, %s, batch %lld %lld %lld, lr %g, "
           "%s, clipping %g\n",
           c->zero.stage, (int)c->zero.optimizer.limit,
           (int)c->zero.param.limit, zo_dtype_name(c->dtype),
           (long long)c->train_batch_rows, (long long)c->micro_batch_rows,
           (long long)c->gradient_accumulation_steps,
           c->optimizer.learning_rate, zo_schedule_type_name(c->schedule.type),
           c->gradient_clipping);
    for (size_t i = 0; i < run->notes.count; i++) {
        printf("# %s\n", run->notes.items[i].text);
    }
}

/* What is accepted runs, or is refused for what this version does not do. */
static bool runs_or_says_why(const struct run *run)
{
    const struct zo_run_zero *zero = &run->config.zero;
    const char *optimizer = zero->optimizer.nvme_path;
    const char *param = zero->param.nvme_path;
    const bool is_one =
        optimizer == NULL || param == NULL || strcmp(optimizer, param) == 0;
    const enum zo_status status = zo_place_check(&run->config);

    return is_one ? status == ZO_OK
                  : status == ZO_E_NOSUPPORT &&
                        strstr(zo_err_last()->text, "in one folder") != NULL;
}

static bool check_file(const struct expectation *want)
{
    struct run run;
    const enum zo_status status =
        load(&run, want->file, want->options, want->devices);
    bool is_good;

    if (want->refusal != NULL) {
        is_good = status == ZO_E_CONFIG &&
                  strstr(zo_err_last()->text, want->refusal) != NULL;
    } else {
        is_good = status == ZO_OK && is_as_expected(want, &run) &&
                  runs_or_says_why(&run) &&
                  (want->note == NULL || has_note(&run.notes, want->note));
    }
    if (!is_good) {
        printf("# %s: status %d: %s\n", want->file, (int)status,
               status != ZO_OK ? zo_err_last()->text : "");
        print_run(&run);
    }
    unload(&run);
    return is_good;
}

static void test_each_file(void)
{
    int failures = 0;

    if (folder() == NULL) {
        tap_skip("no ds-configs in ZERO_OFFLOAD_SHARED");
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(table); i++) {
        failures += !check_file(&table[i]);
    }
    TAP_CHECK_INT(failures, 0);
}

static void test_all_files(void)
{
    DIR *directory;
    const struct dirent *entry;
    int count = 0;

    if (folder() == NULL) {
        tap_skip("no ds-configs in ZERO_OFFLOAD_SHARED");
        return;
    }
    directory = opendir(folder());
    TAP_CHECK(directory != NULL);
    while ((entry = readdir(directory)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        bool has_row = false;

        if (dot == NULL || strcmp(dot, ".json") != 0) {
            continue;
        }
        count++;
        for (size_t i = 0; i < TAP_COUNT(table); i++) {
            const size_t length = strlen(table[i].file);

            has_row =
                has_row || ((size_t)(dot - entry->d_name) == length &&
                            strncmp(table[i].file, entry->d_name, length) == 0);
        }
        if (!has_row) {
            tap_fail(__FILE__, __LINE__, "no row for %s", entry->d_name);
        }
    }
    (void)closedir(directory);
    TAP_CHECK_INT(count, FILES_COUNT);
    TAP_CHECK_INT((long long)TAP_COUNT(table), FILES_COUNT);
}

/* Values of single files that the table has no column for. */
static void test_details(void)
{
    struct run run;

    if (folder() == NULL) {
        tap_skip("no ds-configs in ZERO_OFFLOAD_SHARED");
        return;
    }
    TAP_CHECK(load(&run, "018-stage3", B, 1) == ZO_OK);
    TAP_CHECK_INT(run.config.zero.max_live_parameters, 0); /* an alias */
    TAP_CHECK_INT(run.config.zero.max_reuse_distance, 0);
    TAP_CHECK_INT(run.config.zero.sub_group_size, 0);
    unload(&run);
    TAP_CHECK(load(&run, "142-stage3", "", 1) == ZO_OK);
    TAP_CHECK_INT(run.config.zero.prefetch_bucket_size, 104857600);
    TAP_CHECK(has_note(&run.notes, "has no lr: --learning-rate stands in"));
    unload(&run);
    TAP_CHECK(load(&run, "161-stage2-cpu-cpu", "", 2) == ZO_OK);
    TAP_CHECK(run.config.activations.cpu_checkpointing);
    TAP_CHECK_INT(run.config.zero.optimizer.buffer_count, 1);
    TAP_CHECK(run.config.optimizer.beta2 == 0.95);
    TAP_CHECK_INT(run.config.steps_per_print, 10000);
    unload(&run);
    TAP_CHECK(load(&run, "349-stage3-none-none", F, 1) == ZO_OK);
    TAP_CHECK_INT(run.config.loss_scale.initial_scale_power, 64);
    TAP_CHECK(run.config.schedule.warmup_min_ratio == 0.03);
    TAP_CHECK(run.config.schedule.cos_min_ratio == 0.1);
    TAP_CHECK_INT(run.config.zero.prefetch_bucket_size, 2123366);
    unload(&run);
    TAP_CHECK(load(&run, "437-stage3-cpu-cpu", "", 1) == ZO_OK);
    TAP_CHECK(run.config.schedule.cycle_min_lr == 1e-5);
    TAP_CHECK(run.config.schedule.cycle_max_lr == 3e-5);
    TAP_CHECK_INT(run.config.schedule.cycle_first_steps, 120);
    TAP_CHECK_INT(run.config.schedule.cycle_second_steps, 120);
    unload(&run);
    TAP_CHECK(load(&run, "455-stage0", "--max-steps 7", 8) == ZO_OK);
    TAP_CHECK_INT(run.config.schedule.total_steps, 100000);
    TAP_CHECK_INT(run.config.max_steps, 7);
    TAP_CHECK(run.config.communication_dtype == ZO_F32);
    TAP_CHECK(has_note(&run.notes, "laid out for 100000 steps"));
    unload(&run);
    TAP_CHECK(load(&run, "seed-stage2-adamw-offload", "", 1) == ZO_OK);
    TAP_CHECK_INT(run.config.loss_scale.window, 100);
    TAP_CHECK_INT(run.config.micro_batch_rows, 8);
    unload(&run);
    TAP_CHECK(load(&run, "445-stage3-cpu-nvme", "", 1) == ZO_E_CONFIG);
    unload(&run);
}

/* The flags of the official ds_train_finetune.sh, as it writes them. */
static const char official[] =
    "--do_train --train_file train.json --test_file dev.json "
    "--prompt_column content --response_column summary --overwrite_cache "
    "--model_name_or_path chatglm2-6b --output_dir out "
    "--overwrite_output_dir --max_source_length 64 --max_target_length 64 "
    "--per_device_train_batch_size 4 --per_device_eval_batch_size 1 "
    "--gradient_accumulation_steps 1 --predict_with_generate "
    "--max_steps 5000 --logging_steps 10 --save_steps 1000 "
    "--learning_rate 1e-4 --fp16";

static void test_official_script(void)
{
    struct run run;
    const struct zo_options *o = &run.options;

    if (folder() == NULL) {
        tap_skip("no ds-configs in ZERO_OFFLOAD_SHARED");
        return;
    }
    TAP_CHECK(load_as(&run, "--deepspeed", "001-stage2", official, 4) == ZO_OK);
    TAP_CHECK(has_note(&run.notes, "--do-train is accepted"));
    TAP_CHECK(has_note(&run.notes, "--test-file is accepted"));
    TAP_CHECK(has_note(&run.notes, "--overwrite-cache is accepted"));
    TAP_CHECK(has_note(&run.notes, "--predict-with-generate is accepted"));
    TAP_CHECK(strcmp(o->data, "train.json") == 0 && o->eval_data == NULL);
    TAP_CHECK(strcmp(o->model, "chatglm2-6b") == 0);
    TAP_CHECK(strcmp(o->output, "out") == 0 && o->overwrite);
    TAP_CHECK_INT(o->max_source_length, 64);
    TAP_CHECK_INT(o->max_target_length, 64);
    TAP_CHECK_INT(o->save_steps, 1000);
    TAP_CHECK(o->save_minutes == 0.0);
    TAP_CHECK_INT(run.config.train_batch_rows, 16);
    TAP_CHECK_INT(run.config.max_steps, 5000);
    TAP_CHECK_INT(run.config.steps_per_print, 10);
    TAP_CHECK_INT(run.config.eval_micro_batch_rows, 1);
    TAP_CHECK(run.config.dtype == ZO_F16);
    TAP_CHECK(run.config.gradient_clipping == 0.0);
    TAP_CHECK(run.config.loss_scale.static_scale == 0.0);
    TAP_CHECK(run.config.optimizer.learning_rate == 1e-4);
    TAP_CHECK(zo_run_config_finish(&run.config, 5000, &run.notes) == ZO_OK);
    TAP_CHECK_INT(run.config.schedule.total_steps, 5000);
    TAP_CHECK_INT(run.config.schedule.warmup_steps, 0);
    unload(&run);
}

static void test_memory(void)
{
    enum zo_status status = ZO_E_NOMEM;
    int failures = 0;

    if (folder() == NULL) {
        tap_skip("no ds-configs in ZERO_OFFLOAD_SHARED");
        return;
    }
    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        struct run run;

        zo_memory_fail_at(nth);
        status = load(&run, "459-stage3-cpu-cpu",
                      "--set zero_optimization.stage=2 --nvme disk:1G", 2);
        if (status == ZO_OK) {
            status = zo_run_config_describe(&run.config, &run.notes);
        }
        zo_memory_fail_at(0);
        failures += status == ZO_E_NOMEM;
        unload(&run);
    }
    TAP_CHECK(status == ZO_OK);
    TAP_CHECK(failures > 100);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"each real configuration is accepted or refused as its row says",
         test_each_file},
        {"every file has its row", test_all_files},
        {"values beyond the table are those of the files", test_details},
        {"the official script's flags resolve", test_official_script},
        {"every failing allocation of a whole load is clean", test_memory},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
