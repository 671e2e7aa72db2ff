#include "config/cli_hints.h"

#include <stddef.h>
#include <string.h>

#include "config/cli_names.h"
#include "src/base/status.h"
#include "src/base/text.h"

#define WORDS_MAX  512 /* of all options' names and all hints' */
#define WORD_BYTES 48

#define TRAIN    ZO_COMMAND_TRAIN
#define EVAL     ZO_COMMAND_EVAL
#define PLAN     ZO_COMMAND_PLAN
#define GENERATE ZO_COMMAND_GENERATE
#define BENCH    ZO_COMMAND_BENCH
#define STEP     (TRAIN | PLAN | BENCH)
#define COMPUTE  (STEP | EVAL | GENERATE)

static const struct zo_option_hint table[] = {
    {STEP,
     "zero-stage stage zero zero-optimization zero-optimization-stage "
     "deepspeed-stage zero-level",
     "write --set zero_optimization.stage=N, or that key into the --config"},
    {STEP, "zero1 zero-1", "write --set zero_optimization.stage=1"},
    {STEP, "zero2 zero-2", "write --set zero_optimization.stage=2"},
    {STEP, "zero3 zero-3", "write --set zero_optimization.stage=3"},
    {STEP,
     "offload cpu-offload offload-optimizer offload-optimizer-device "
     "optimizer-offload offload-to-cpu zero-offload use-cpu-adam "
     "adam-offload",
     "what does not fit the GPU is offloaded unasked; to ask, write --set "
     "zero_optimization.offload_optimizer.device=cpu"},
    {STEP,
     "offload-param offload-params offload-param-device param-offload "
     "offload-parameters offload-model",
     "what does not fit the GPU is offloaded unasked; to ask, write --set "
     "zero_optimization.offload_param.device=cpu"},
    {STEP,
     "nvme-path offload-nvme offload-nvme-path nvme-offload-dir offload-dir "
     "offload-folder swap-dir",
     "write --nvme DIR:SIZE"},
    {STEP, "mixed-precision precision dtype torch-dtype half compute-dtype",
     "write --bf16 or --fp16"},
    {EVAL | GENERATE, "mixed-precision precision dtype torch-dtype half",
     "write --bf16, --fp16 or --no-bf16"},
    {COMPUTE, "gpu gpu-id gpu-ids device device-ids cuda-devices include",
     "write --devices LIST"},
    {STEP | EVAL,
     "nproc nproc-per-node nproc-per-gpu num-processes world-size n-gpus "
     "gpus-per-node data-parallel-size dp-size",
     "one process drives all GPUs; write --num-devices N"},
    {TRAIN | PLAN, "epochs num-epochs n-epochs epoch max-epochs",
     "write --num-train-epochs N"},
    {STEP, "steps num-steps iterations train-iters train-steps",
     "write --max-steps N"},
    {STEP,
     "batch-size train-batch-size batch micro-batch-size "
     "train-micro-batch-size-per-gpu bs",
     "write --per-device-train-batch-size N, the rows of a device in one "
     "forward"},
    {STEP,
     "accumulation-steps grad-accum grad-accum-steps accumulate-grad-batches "
     "gradient-accumulation accumulation",
     "write --gradient-accumulation-steps N"},
    {STEP,
     "activation-checkpointing checkpoint-activations recompute "
     "recompute-activations grad-checkpointing",
     "write --gradient-checkpointing; without it the planner decides"},
    {STEP,
     "clip clipping clip-grad grad-clip gradient-clipping max-norm clip-norm",
     "write --max-grad-norm X"},
    {STEP | EVAL,
     "seq-len seq-length max-seq-len sequence-length cutoff-len "
     "context-length model-max-length",
     "write --max-length N, the tokens of a row"},
    {TRAIN | PLAN | EVAL, "block-size",
     "write --max-length N, the tokens of a row"},
    {TRAIN | PLAN | EVAL,
     "dataset train-data data-path dataset-path dataset-name",
     "write --data FILE"},
    {COMPUTE, "model-path model-name model-dir base-model checkpoint-path",
     "write --model DIR"},
    {TRAIN, "output-path out save-dir save-path", "write --output DIR"},
    {STEP, "cpu-memory max-cpu-memory ram cpu-ram", "write --host-memory SIZE"},
    {STEP, "max-memory vram max-gpu-memory cuda-memory",
     "write --gpu-memory SIZE"},
    {GENERATE | EVAL, "max-tokens max-gen-len num-tokens max-output-tokens",
     "write --max-new-tokens N"},
};

const struct zo_option_hint *zo_option_hints(size_t *count_out)
{
    *count_out = sizeof(table) / sizeof(table[0]);
    return table;
}

const char *zo_option_hint(const char *name, enum zo_command command)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if ((table[i].commands & command) != 0 &&
            zo_word_index(table[i].names, name) >= 0) {
            return table[i].hint;
        }
    }
    return NULL;
}

/* ---- what is near -------------------------------------------------------- */

/* Every name that can be written after --, and what it stands for. */
struct words {
    size_t count;
    char texts[WORDS_MAX][WORD_BYTES];
    struct zo_option_guess guesses[WORDS_MAX];
};

static void add_words(struct words *words, const char *names,
                      struct zo_option_guess guess)
{
    while (names != NULL && *names != '\0') {
        const size_t length = strcspn(names, " ");

        ZO_ASSERT(words->count < WORDS_MAX && length < WORD_BYTES);
        memcpy(words->texts[words->count], names, length);
        words->texts[words->count][length] = '\0';
        words->guesses[words->count++] = guess;
        names += length + strspn(names + length, " ");
    }
}

/* Options in front, since of names that are as near the first is taken. */
static void collect(struct words *words, enum zo_command command)
{
    size_t count = 0;
    const struct zo_option *options = zo_cli_options(&count);

    words->count = 0;
    for (size_t i = 0; i < count; i++) {
        if ((options[i].commands & command) != 0) {
            const struct zo_option_guess guess = {.option = &options[i]};

            add_words(words, options[i].name, guess);
            add_words(words, options[i].aliases, guess);
        }
    }
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if ((table[i].commands & command) != 0) {
            const struct zo_option_guess guess = {.hint = table[i].hint};

            add_words(words, table[i].names, guess);
        }
    }
}

struct zo_option_guess zo_option_guess(const char *name,
                                       enum zo_command command)
{
    const struct zo_option_guess none = {NULL, NULL};
    const char *names[WORDS_MAX], *nearest;
    struct words words;
    size_t at = 0;

    collect(&words, command);
    for (size_t i = 0; i < words.count; i++) {
        names[i] = words.texts[i];
    }
    nearest = zo_text_nearest(name, names, words.count);
    while (at < words.count && names[at] != nearest) {
        at++;
    }
    return at < words.count ? words.guesses[at] : none;
}
