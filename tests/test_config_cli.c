/* The command line's table and reader. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/cli_hints.h"
#include "config/cli_names.h"
#include "config/cli_options.h"
#include "kernels/host_passes.h"
#include "src/base/memory.h"
#include "tests/tap.h"

struct line {
    char words[512];
    struct zo_options options;
    struct zo_notes notes;
};

static enum zo_status parse_for(struct line *line, enum zo_command command,
                                const char *words)
{
    const char *argv[40];
    int argc = 0;

    memset(line, 0, sizeof(*line));
    (void)snprintf(line->words, sizeof(line->words), "%s", words);
    for (char *word = line->words, *end; *word != '\0'; word = end) {
        end = word + strcspn(word, " ");
        argv[argc++] = word;
        if (*end == ' ') {
            *end++ = '\0';
        }
    }
    return zo_options_parse(command, argc, argv, &line->options, &line->notes);
}

static enum zo_status parse(struct line *line, const char *words)
{
    return parse_for(line, ZO_COMMAND_TRAIN, words);
}

static void end(struct line *line)
{
    zo_options_fini(&line->options);
    zo_notes_fini(&line->notes);
}

static bool refused_for(enum zo_command command, const char *words,
                        const char *piece)
{
    struct line line;
    const enum zo_status status = parse_for(&line, command, words);
    const bool is_good =
        status == ZO_E_USAGE && strstr(zo_err_last()->text, piece) != NULL;

    if (!is_good) {
        printf("# %s: status %d: %s\n", words, (int)status,
               zo_err_last()->text);
    }
    end(&line);
    return is_good;
}

static bool refused(const char *words, const char *piece)
{
    return refused_for(ZO_COMMAND_TRAIN, words, piece);
}

static void test_defaults(void)
{
    struct line line;
    const struct zo_options *o = &line.options;

    TAP_CHECK(parse(&line, "") == ZO_OK);
    TAP_CHECK_INT(o->max_steps, 0);
    TAP_CHECK(o->num_train_epochs == 3.0);
    TAP_CHECK_INT(o->seed, 42);
    TAP_CHECK_INT(o->micro_batch_rows, 1);
    TAP_CHECK_INT(o->gradient_accumulation_steps, 1);
    TAP_CHECK(o->learning_rate == 5e-5 && o->weight_decay == 0.0);
    TAP_CHECK(o->adam_beta1 == 0.9 && o->adam_beta2 == 0.999);
    TAP_CHECK(o->adam_epsilon == 1e-8);
    TAP_CHECK(o->max_grad_norm == ZO_GRAD_NORM_NONE);
    TAP_CHECK(o->schedule == ZO_HF_LINEAR);
    TAP_CHECK(!o->bf16 && !o->fp16 && !o->gradient_checkpointing);
    TAP_CHECK_INT(o->logging_steps, 1);
    TAP_CHECK(strcmp(o->prompt_column, "content") == 0);
    TAP_CHECK(strcmp(o->response_column, "summary") == 0);
    TAP_CHECK(strcmp(o->source_prefix, "") == 0);
    TAP_CHECK(o->history_column == NULL && o->shuffle);
    TAP_CHECK(o->on_long == ZO_ON_LONG_CUT && !o->skip_bad_rows);
    TAP_CHECK(o->backend == ZO_BACKEND_AUTO && o->device_count == 0);
    TAP_CHECK(o->simd == ZO_SIMD_BEST && o->copy_bytes_per_second == 0);
    TAP_CHECK(o->save_minutes == 30.0 && o->save_total_limit == 2);
    TAP_CHECK(o->resume == NULL && !o->overwrite && !o->dry_run);
    TAP_CHECK(o->model_family == ZO_FAMILY_AUTO && o->dtype == ZO_BF16);
    for (int id = 0; id < ZO_OPTION_COUNT; id++) {
        TAP_CHECK(!zo_option_given(o, (enum zo_option_id)id));
    }
    end(&line);
}

static void test_names(void)
{
    struct line line;

    TAP_CHECK(parse(&line, "--max_steps 5 --model_name_or_path m "
                           "--train-file=t --output_dir o --deepspeed d "
                           "--validation_file v --lr 1e-3") == ZO_OK);
    TAP_CHECK_INT(line.options.max_steps, 5);
    TAP_CHECK(strcmp(line.options.model, "m") == 0);
    TAP_CHECK(strcmp(line.options.data, "t") == 0);
    TAP_CHECK(strcmp(line.options.output, "o") == 0);
    TAP_CHECK(strcmp(line.options.config, "d") == 0);
    TAP_CHECK(strcmp(line.options.eval_data, "v") == 0);
    TAP_CHECK(line.options.learning_rate == 1e-3);
    TAP_CHECK(zo_option_given(&line.options, ZO_OPTION_MAX_STEPS));
    TAP_CHECK(!zo_option_given(&line.options, ZO_OPTION_SEED));
    end(&line);
    TAP_CHECK(refused("--max-stps 5", "train has no option --max-stps; did "
                                      "you mean --max-steps?"));
    TAP_CHECK(refused("--zzzzzzzz", "see train --help"));
    TAP_CHECK(refused("--text x", "--text is an option of inspect, not of "
                                  "train"));
    TAP_CHECK(refused("model", "unexpected argument model"));
    TAP_CHECK(refused("-x", "unexpected argument -x"));
    TAP_CHECK(refused("--", "unexpected argument --"));
    TAP_CHECK(refused("--=3", "unexpected argument"));
}

/* The option of a command that is called so, or NULL. */
static const struct zo_option *option_of(unsigned command, const char *name,
                                         size_t length)
{
    size_t count = 0;
    const struct zo_option *options = zo_cli_options(&count);
    char word[64];

    (void)snprintf(word, sizeof(word), "%.*s", (int)length, name);
    for (size_t i = 0; i < count; i++) {
        if ((options[i].commands & command) != 0 &&
            (strcmp(options[i].name, word) == 0 ||
             zo_word_index(options[i].aliases, word) >= 0)) {
            return &options[i];
        }
    }
    return NULL;
}

static bool is_sound(const struct zo_option_hint *hint, unsigned command)
{
    bool is_good = strstr(hint->hint, "--") != NULL;

    for (const char *at = hint->names; *at != '\0'; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");

        is_good = is_good && option_of(command, at, length) == NULL;
        at += length;
    }
    for (const char *at = strstr(hint->hint, "--"); at != NULL;
         at = strstr(at, "--")) {
        const size_t length =
            strspn(at + 2, "abcdefghijklmnopqrstuvwxyz0123456789-");
        const bool is_negated = strncmp(at + 2, "no-", 3) == 0;

        at += is_negated ? 5 : 2;
        is_good = is_good &&
                  option_of(command, at, length - (is_negated ? 3 : 0)) != NULL;
    }
    if (!is_good) {
        printf("# %s: %s\n", hint->names, hint->hint);
    }
    return is_good;
}

/* Every command of a row has the options of its hint, and not those names. */
static void test_hints(void)
{
    size_t count = 0;
    const struct zo_option_hint *hints = zo_option_hints(&count);

    TAP_CHECK(count > 0);
    for (size_t i = 0; i < count; i++) {
        for (unsigned bit = 1; bit <= ZO_COMMAND_REPORT; bit <<= 1) {
            TAP_CHECK((hints[i].commands & bit) == 0 ||
                      is_sound(&hints[i], bit));
        }
    }
    TAP_CHECK(refused("--zero_stage=2",
                      "train has no option --zero-stage; "
                      "write --set zero_optimization.stage="));
    TAP_CHECK(
        refused("--offload", "zero_optimization.offload_optimizer.device"));
    TAP_CHECK(refused("--dtype bf16", "train has no option --dtype; write "
                                      "--bf16 or --fp16"));
    TAP_CHECK(refused_for(ZO_COMMAND_INSPECT, "--zero-stage 2",
                          "inspect has no option --zero-stage; see"));
}

/* Beginnings, and names near an alias or to what other programs say. */
static void test_guesses(void)
{
    TAP_CHECK(refused("--bach-size 4", "train has no option --bach-size; write "
                                       "--per-device-train-batch-size N"));
    TAP_CHECK(refused("--gpu-mem 24G", "did you mean --gpu-memory?"));
    TAP_CHECK(refused("--lr-schedule x", "did you mean --lr-scheduler-type?"));
    TAP_CHECK(refused("--epoch 3", "write --num-train-epochs N"));
    TAP_CHECK(refused_for(ZO_COMMAND_PLAN, "--epochs 3",
                          "plan has no option --epochs; write "
                          "--num-train-epochs N"));
    TAP_CHECK(refused("--deepspeeed x", "did you mean --config?"));
    TAP_CHECK(refused("--zz 1", "see train --help"));
}

static void test_flags(void)
{
    struct line line;

    TAP_CHECK(parse(&line, "--bf16 --no-shuffle --skip_bad_rows=true") ==
              ZO_OK);
    TAP_CHECK(line.options.bf16 && !line.options.shuffle);
    TAP_CHECK(line.options.skip_bad_rows);
    end(&line);
    TAP_CHECK(parse(&line, "--bf16 True --fp16 False --shuffle=false "
                           "--gradient_checkpointing true") == ZO_OK);
    TAP_CHECK(line.options.bf16 && !line.options.fp16);
    TAP_CHECK(zo_option_given(&line.options, ZO_OPTION_FP16));
    TAP_CHECK(!line.options.shuffle && line.options.gradient_checkpointing);
    end(&line);
    TAP_CHECK(refused("--bf16=maybe", "want true or false"));
    TAP_CHECK(refused("--no-bf16=true", "takes no value"));
    TAP_CHECK(refused("--no-seed", "no option --no-seed"));
    TAP_CHECK(refused("--bf16 --fp16", "want one of the two"));
}

static void test_values(void)
{
    static const char *const bad[][2] = {
        {"--max-steps", "want N, found nothing"},
        {"--max-steps --bf16", "want N, found --bf16"},
        {"--max-steps=", "want an integer"},
        {"--max-steps 5x", "want an integer"},
        {"--max-steps 1.5", "want an integer"},
        {"--max-steps -2", "want an integer"},
        {"--max-steps 99999999999999999999", "want an integer"},
        {"--per-device-train-batch-size 0", "from 1 to 1000000"},
        {"--learning-rate nan", "want a number"},
        {"--learning-rate 0x1", "want a number"},
        {"--learning-rate 1e400", "want a number"},
        {"--learning-rate -1", "want a number from 0"},
        {"--adam-beta1 1", "want a number from 0 to 0.999999999"},
        {"--threads 1025", "from 1 to 1024"},
        {"--warmup-ratio 1.5", "want a number from 0 to 1"},
        {"--lr-scheduler-type polynomial", "want one of: linear cosine"},
        {"--on-long drop", "want one of: cut skip error"},
        {"--backend tpu", "want one of: auto cuda host"},
        {"--gpu-memory 24X", "want a size such as 24G"},
        {"--gpu-memory 0", "want a size"},
        {"--gpu-memory 24", "--gpu-memory 24: 24 without a unit is bytes; did "
                            "you mean 24G?"},
        {"--host-memory 1.5", "did you mean 1.5G?"},
        {"--host-memory 1048575", "without a unit"},
        {"--nvme d:200", "--nvme d:200: 200 without a unit is bytes; did you "
                         "mean 200G?"},
        {"--copy-rate 22X", "want a size such as 24G"},
        {"--copy-rate 0", "want a size"},
        {"--copy-rate", "want SIZE, found nothing"},
        {"--simd sse9", "want one of: best base avx2 avx512"},
        {"--simd", "want NAME, found nothing"},
        {"--model=", "--model: want DIR, found nothing"},
        {"--set x", "want KEY.PATH=VALUE"},
        {"--set =1", "want KEY.PATH=VALUE"},
        {"--eval-data e --eval-steps 0", "want a number of steps, or epoch"},
        {"--max-length 3", "from 4 to"},
        {"--save-total-limit -1", "want an integer"},
    };
    struct line line;

    for (size_t i = 0; i < TAP_COUNT(bad); i++) {
        TAP_CHECK(refused(bad[i][0], bad[i][1]));
    }
    TAP_CHECK(parse(&line, "--max-steps -1 --gpu-memory 24G --host-memory "
                           "500MB --lr-scheduler-type constant_with_warmup "
                           "--num-train-epochs 0.5 --set a.b=1 --set c=x=y "
                           "--copy-rate 22GB --simd avx2") == ZO_OK);
    TAP_CHECK_INT((long long)line.options.copy_bytes_per_second, 22000000000);
    TAP_CHECK_INT(line.options.simd, ZO_SIMD_AVX2);
    TAP_CHECK_INT(line.options.max_steps, 0);
    TAP_CHECK_INT((long long)line.options.gpu_memory_bytes, 25769803776);
    TAP_CHECK_INT((long long)line.options.host_memory_bytes, 500000000);
    TAP_CHECK(line.options.schedule == ZO_HF_CONSTANT_WITH_WARMUP);
    TAP_CHECK(line.options.num_train_epochs == 0.5);
    TAP_CHECK_INT((long long)line.options.set_count, 2);
    TAP_CHECK(strcmp(line.options.sets[1], "c=x=y") == 0);
    end(&line);
}

/* Bytes are bytes where they are named, or enough, or what a disk takes. */
static void test_plain_bytes(void)
{
    struct line line;

    TAP_CHECK(parse(&line, "--gpu-memory 24B --host-memory 1048576 "
                           "--nvme d:1048576") == ZO_OK);
    TAP_CHECK_INT((long long)line.options.gpu_memory_bytes, 24);
    TAP_CHECK_INT((long long)line.options.host_memory_bytes, 1048576);
    TAP_CHECK_INT((long long)line.options.nvme_bytes, 1048576);
    end(&line);
    TAP_CHECK(parse_for(&line, ZO_COMMAND_BENCH, "--block-size 4096") == ZO_OK);
    TAP_CHECK_INT((long long)line.options.nvme_block_bytes, 4096);
    end(&line);
}

/* Each name is that of kernels/host_passes.h. */
static void test_simd(void)
{
    for (int i = 0; i < ZO_SIMD_COUNT; i++) {
        const char *name = zo_simd_name((enum zo_simd)i);
        char text[32];
        struct line line;

        (void)snprintf(text, sizeof(text), "--simd %s", name);
        TAP_CHECK(parse(&line, text) == ZO_OK);
        TAP_CHECK_INT(line.options.simd, i);
        end(&line);
    }
}

static void test_special(void)
{
    struct line line;

    TAP_CHECK(parse(&line, "--devices 0,2,1 --eval-data e --eval-steps epoch "
                           "--trace t --trace-steps 5-8 --resume "
                           "--nvme a:b:2G") == ZO_OK);
    TAP_CHECK_INT(line.options.device_count, 3);
    TAP_CHECK_INT(line.options.devices[1], 2);
    TAP_CHECK_INT(line.options.eval_steps, ZO_EVAL_EVERY_EPOCH);
    TAP_CHECK_INT(line.options.trace_first, 5);
    TAP_CHECK_INT(line.options.trace_last, 8);
    TAP_CHECK(strcmp(line.options.resume, "auto") == 0);
    TAP_CHECK(strcmp(line.options.nvme_path, "a:b") == 0);
    TAP_CHECK_INT((long long)line.options.nvme_bytes, 2147483648);
    end(&line);
    TAP_CHECK(parse(&line, "--nvme dir --resume=out/state-5 --save-steps 9 "
                           "--devices 1") == ZO_OK);
    TAP_CHECK(strcmp(line.options.nvme_path, "dir") == 0);
    TAP_CHECK_INT((long long)line.options.nvme_bytes, 0);
    TAP_CHECK(strcmp(line.options.resume, "out/state-5") == 0);
    TAP_CHECK(line.options.save_minutes == 0.0); /* by steps instead */
    TAP_CHECK_INT(line.options.device_count, 1);
    TAP_CHECK_INT(line.options.devices[0], 1);
    end(&line);
    TAP_CHECK(parse(&line, "--resume_from_checkpoint True --save-steps 9 "
                           "--save-minutes 5") == ZO_OK);
    TAP_CHECK(strcmp(line.options.resume, "auto") == 0);
    TAP_CHECK(line.options.save_minutes == 5.0);
    end(&line);
    TAP_CHECK(parse(&line, "--trace t") == ZO_OK);
    TAP_CHECK_INT(line.options.trace_first, 5);
    TAP_CHECK_INT(line.options.trace_last, 8);
    end(&line);
    TAP_CHECK(refused("--resume dir", "write --resume=dir"));
    TAP_CHECK(refused("--devices 0,0", "device 0 is there twice"));
    TAP_CHECK(refused("--devices 0,", "want indices"));
    TAP_CHECK(refused("--devices ,1", "want indices"));
    TAP_CHECK(refused("--devices a", "want indices"));
    TAP_CHECK(refused("--devices 0-3", "want indices"));
    TAP_CHECK(refused("--devices 99999999999999999999", "want indices"));
    TAP_CHECK(refused("--nvme :2G", "want DIR"));
    TAP_CHECK(refused("--nvme d:0", "want DIR"));
    TAP_CHECK(refused("--trace t --trace-steps 8-5", "want steps"));
    TAP_CHECK(refused("--trace t --trace-steps 0-5", "want steps"));
    TAP_CHECK(refused("--trace t --trace-steps 5-", "want steps"));
}

static void test_together(void)
{
    TAP_CHECK(refused("--devices 0,1 --num-devices 3",
                      "--devices names 2 devices, --num-devices says 3"));
    TAP_CHECK(refused("--trace-steps 5-8", "needs --trace"));
    TAP_CHECK(refused("--keep-best", "--keep-best needs --eval-data"));
    TAP_CHECK(refused("--eval-steps 5", "--eval-steps needs --eval-data"));
}

static void test_foreign(void)
{
    struct line line;

    TAP_CHECK(parse(&line, "--do_train --test_file x --overwrite_cache "
                           "--use_fast_tokenizer False "
                           "--preprocessing_num_workers 10 "
                           "--logging_first_step --local_rank=0") == ZO_OK);
    TAP_CHECK_INT((long long)line.notes.count, 7);
    TAP_CHECK(strcmp(line.notes.items[0].text,
                     "--do-train is accepted and means nothing here: train "
                     "always trains") == 0);
    TAP_CHECK(line.options.data == NULL && line.options.eval_data == NULL);
    end(&line);
    TAP_CHECK(refused("--pre_seq_len 128", "P-Tuning is not done here"));
    TAP_CHECK(refused("--quantization_bit 4", "cannot be trained"));
    TAP_CHECK(parse(&line, "--optim adamw_torch_fused") == ZO_OK);
    TAP_CHECK_INT((long long)line.notes.count, 1);
    end(&line);
    TAP_CHECK(parse(&line, "--optim=AdamW") == ZO_OK);
    end(&line);
    TAP_CHECK(refused("--optim adafactor",
                      "--optim adafactor: the optimizer is AdamW"));
    TAP_CHECK(refused("--optim adamw_bnb_8bit", "want one of: adamw "));
    TAP_CHECK(refused("--optim", "--optim: want NAME, found nothing"));
    TAP_CHECK(refused("--lora_rank 8", "LoRA is not done here"));
}

static void test_commands(void)
{
    struct line line;

    TAP_CHECK(parse_for(&line, ZO_COMMAND_INSPECT,
                        "--data d --model m --rows 3 --json") == ZO_OK);
    TAP_CHECK(strcmp(line.options.data, "d") == 0 && line.options.json);
    TAP_CHECK_INT(line.options.rows, 3);
    end(&line);
    TAP_CHECK(parse_for(&line, ZO_COMMAND_EVAL,
                        "--model m --validation_file v --bf16") == ZO_OK);
    TAP_CHECK(strcmp(line.options.data, "v") == 0);
    end(&line);
    TAP_CHECK(parse_for(&line, ZO_COMMAND_PLAN,
                        "--model chatglm2-6b --write x.json") == ZO_OK);
    TAP_CHECK(strcmp(line.options.write, "x.json") == 0);
    end(&line);
    TAP_CHECK(parse_for(&line, ZO_COMMAND_INIT,
                        "--model m --output o --seed 1 --dtype fp32 "
                        "--tokenizer t --set num_layers=2") == ZO_OK);
    TAP_CHECK(line.options.dtype == ZO_F32);
    end(&line);
    TAP_CHECK(refused_for(ZO_COMMAND_INIT, "--max-steps 3",
                          "--max-steps is an option of train, plan and bench, "
                          "not of init"));
    TAP_CHECK(refused_for(ZO_COMMAND_BENCH, "--profile h200",
                          "--profile is an option of train and plan, not of "
                          "bench"));
    TAP_CHECK(refused_for(ZO_COMMAND_INIT, "--write x",
                          "--write is an option of plan and doctor, not of "
                          "init"));
    TAP_CHECK(refused_for(ZO_COMMAND_PLAN, "--lora-rank 8",
                          "--lora-rank: LoRA is not done here"));
    TAP_CHECK(parse(&line, "--help --nonsense") == ZO_OK);
    TAP_CHECK(line.options.help);
    end(&line);
    TAP_CHECK(parse(&line, "-h") == ZO_OK && line.options.help);
    end(&line);
}

struct text {
    char bytes[32768];
    size_t length;
};

static void write_text(void *context, const char *text, size_t size_bytes)
{
    struct text *target = context;

    if (target->length + size_bytes < sizeof(target->bytes)) {
        memcpy(target->bytes + target->length, text, size_bytes);
        target->length += size_bytes;
    }
}

static void test_help(void)
{
    static struct text help;
    size_t count = 0;
    const struct zo_option *table = zo_cli_options(&count);

    for (unsigned command = 1; command <= ZO_COMMAND_INIT; command <<= 1) {
        memset(&help, 0, sizeof(help));
        zo_options_help((enum zo_command)command, write_text, &help);
        TAP_CHECK(help.length > 200 && help.length < sizeof(help.bytes) - 1);
        for (const char *line = help.bytes; *line != '\0';) {
            const size_t length = strcspn(line, "\n");

            if (length > 80) {
                tap_fail(__FILE__, __LINE__, "%.*s", (int)length, line);
            }
            line += length + (line[length] == '\n');
        }
        for (size_t i = 0; i < count; i++) {
            const bool is_here =
                (table[i].commands & command) != 0 &&
                (table[i].group != NULL || table[i].kind == ZO_ARG_IDLE);

            if (is_here && strstr(help.bytes, table[i].name) == NULL) {
                tap_fail(__FILE__, __LINE__, "no --%s", table[i].name);
            }
        }
    }
    TAP_CHECK(strstr(help.bytes, "--max-steps") == NULL);
}

static bool says(const char *text, const char *before, const char *name,
                 const char *after)
{
    char word[64];

    (void)snprintf(word, sizeof(word), "%s%s%s", before, name, after);
    return text != NULL && strstr(text, word) != NULL;
}

/* What a row says of one subcommand speaks of no other. */
static void check_words(const struct zo_option *option, enum zo_command command)
{
    const char *texts[] = {zo_option_help(option, command),
                           zo_option_default_note(option, command)};

    for (unsigned bit = 1; bit <= ZO_COMMAND_REPORT; bit <<= 1) {
        const char *name = zo_command_name((enum zo_command)bit);

        for (size_t i = 0; bit != (unsigned)command && i < 2; i++) {
            if (says(texts[i], "", name, ":") ||
                says(texts[i], "(", name, "") ||
                says(texts[i], "", name, "'s") ||
                says(texts[i], "", name, " copies") ||
                says(texts[i], "", name, " nvme")) {
                tap_fail(__FILE__, __LINE__, "--%s of %s speaks of %s: %s",
                         option->name, zo_command_name(command), name,
                         texts[i]);
            }
        }
    }
}

static const char *help_of(enum zo_option_id id, enum zo_command command)
{
    size_t count = 0;

    return zo_option_help(&zo_cli_options(&count)[id], command);
}

static void test_words(void)
{
    size_t count = 0;
    const struct zo_option *table = zo_cli_options(&count);
    const struct zo_option *batch = &table[ZO_OPTION_EVAL_MICRO_BATCH];

    for (size_t i = 0; i < count; i++) {
        for (unsigned command = 1; command <= ZO_COMMAND_REPORT;
             command <<= 1) {
            if ((table[i].commands & command) != 0) {
                check_words(&table[i], (enum zo_command)command);
            }
        }
        for (const struct zo_option_words *words = table[i].words;
             words != NULL && words->commands != 0; words++) {
            TAP_CHECK((words->commands & ~table[i].commands) == 0);
        }
    }
    TAP_CHECK(strcmp(zo_option_default_note(batch, ZO_COMMAND_TRAIN),
                     "as in training") == 0);
    TAP_CHECK(
        strncmp(zo_option_default_note(batch, ZO_COMMAND_EVAL), "1,", 2) == 0);
    TAP_CHECK(strstr(help_of(ZO_OPTION_BF16, ZO_COMMAND_BENCH), "masters"));
    TAP_CHECK(!strstr(help_of(ZO_OPTION_BF16, ZO_COMMAND_EVAL), "masters"));
    TAP_CHECK(!strstr(help_of(ZO_OPTION_FP16, ZO_COMMAND_GENERATE), "loss"));
    TAP_CHECK(!strstr(help_of(ZO_OPTION_DRY_RUN, ZO_COMMAND_INIT), "plan"));
    TAP_CHECK(!strstr(help_of(ZO_OPTION_MAX_STEPS, ZO_COMMAND_BENCH), "epoch"));
}

/* Names and aliases of one subcommand are all different. */
static void test_table(void)
{
    size_t count = 0;
    const struct zo_option *table = zo_cli_options(&count);

    TAP_CHECK_INT((long long)count, ZO_OPTION_COUNT);
    for (size_t i = 0; i < count; i++) {
        TAP_CHECK(table[i].help != NULL && table[i].commands != 0);
        TAP_CHECK(table[i].kind == ZO_ARG_IDLE ||
                  (table[i].kind == ZO_ARG_CHOICE) ==
                      (table[i].choices != NULL));
        for (size_t j = i + 1; j < count; j++) {
            const char *aliases =
                table[j].aliases != NULL ? table[j].aliases : "";
            const char *found = strstr(aliases, table[i].name);
            const size_t length = strlen(table[i].name);

            if ((table[i].commands & table[j].commands) == 0) {
                continue;
            }
            TAP_CHECK(strcmp(table[i].name, table[j].name) != 0);
            TAP_CHECK(found == NULL ||
                      (found[length] != '\0' && found[length] != ' ') ||
                      (found != aliases && found[-1] != ' '));
        }
    }
}

static void test_memory(void)
{
    enum zo_status status = ZO_E_NOMEM;
    int failures = 0;

    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        struct line line;

        zo_memory_fail_at(nth);
        status = parse(&line, "--set a=1 --nvme d:1G --nvme e --set b=2 "
                              "--do_train");
        zo_memory_fail_at(0);
        failures += status == ZO_E_NOMEM;
        end(&line);
    }
    TAP_CHECK(status == ZO_OK);
    TAP_CHECK(failures >= 5);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"defaults are those of the design, and nothing is given",
         test_defaults},
        {"names take - or _, aliases work, others get the nearest", test_names},
        {"what other programs call it is refused, with its name here",
         test_hints},
        {"a beginning and a near name are guessed", test_guesses},
        {"flags are --name, --no-name, or a boolean", test_flags},
        {"values are read whole and within their range", test_values},
        {"a size without a unit is bytes where it can be", test_plain_bytes},
        {"instruction sets have their names", test_simd},
        {"options with a form of their own", test_special},
        {"options that exclude each other are refused", test_together},
        {"flags of other programs get a line, or a reason", test_foreign},
        {"each subcommand has its options", test_commands},
        {"the help lists them within 80 columns", test_help},
        {"what a row says is true of the subcommand", test_words},
        {"no name means two things", test_table},
        {"every failing allocation is clean", test_memory},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
