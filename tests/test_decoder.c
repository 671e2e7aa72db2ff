/*
 * Answers with weights on the host: the bits are those of weights that stay
 * on the device, wherever each unit is at home.
 */
#include "src/train/answer.h"

#include <string.h>

#include "src/base/memory.h"
#include "src/base/random.h"
#include "src/checkpoint/model_dir.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

#define PROMPT_MAX 40 /* more than the tiny vocabulary has ids */
#define ANSWER     24
#define VOCAB_MAX  64

/* What is open; all zero is nothing. */
struct machine {
    struct zo_notes notes;
    struct zo_model_config model;
    struct zo_devices devices;
    struct zo_model_dir *dir;
};

/* Logits behind the prompt and behind every token of the answer. */
struct logits {
    float values[ANSWER + 1][VOCAB_MAX];
};

static enum zo_status machine_open(struct machine *machine, uint32_t delay_us)
{
    const struct zo_devices_options devices = {.backend = ZO_BACKEND_HOST,
                                               .count = 1,
                                               .threads = 2,
                                               .delay_seed = 5,
                                               .delay_us_max = delay_us};

    *machine = (struct machine){0};
    ZO_TRY(zo_model_config_read(tiny_model_path(), ZO_FAMILY_AUTO, NULL, 0,
                                &machine->notes, &machine->model));
    ZO_TRY(zo_devices_open(&devices, &machine->devices));
    return zo_model_dir_open(tiny_model_path(), &machine->notes, &machine->dir);
}

static void machine_close(struct machine *machine)
{
    zo_model_dir_close(machine->dir);
    zo_devices_close(&machine->devices);
    zo_notes_fini(&machine->notes);
}

static struct zo_decoder_options decoder_options(const struct machine *machine,
                                                 enum zo_dtype dtype)
{
    return (struct zo_decoder_options){
        .model = &machine->model,
        .devices = &machine->devices,
        .dtype = dtype,
        .prompt_tokens_max = PROMPT_MAX,
        .tokens_max = PROMPT_MAX + ANSWER,
        .labels_max = 1,
    };
}

static enum zo_status read_all(struct machine *machine,
                               struct zo_decoder *decoder, int64_t prompt,
                               struct logits *logits)
{
    const int64_t vocab = machine->model.vocab_size;
    const int32_t last = (int32_t)prompt - 1;
    const float *got = NULL;
    int32_t ids[PROMPT_MAX];

    for (int64_t i = 0; i < prompt; i++) {
        ids[i] = (int32_t)(zo_random_bits(9, (uint64_t)i) % (uint64_t)vocab);
    }
    ZO_TRY(zo_decoder_prompt(decoder, ids, prompt, &last, 1, &got));
    memcpy(logits->values[0], got, (size_t)vocab * sizeof(float));
    for (int64_t i = 0; i < ANSWER; i++) {
        ZO_TRY(zo_decoder_next(decoder, (int32_t)(i * 7 % vocab), &got));
        memcpy(logits->values[i + 1], got, (size_t)vocab * sizeof(float));
    }
    return ZO_OK;
}

/* The logits with so many units on the host. */
static enum zo_status answer(struct machine *machine, enum zo_dtype dtype,
                             int host_units, int64_t prompt,
                             struct logits *logits)
{
    struct zo_decoder_options options = decoder_options(machine, dtype);
    struct zo_decoder *decoder = NULL;
    enum zo_status status;

    memset(logits, 0, sizeof(*logits));
    options.host_units = host_units;
    ZO_TRY(zo_decoder_open(&options, &decoder));
    ZO_TRY_GOTO(close_decoder,
                zo_decoder_load(decoder, machine->dir, &machine->notes));
    /* Twice: the second time rings and rows are used already. */
    ZO_TRY_GOTO(close_decoder, read_all(machine, decoder, prompt, logits));
    status = read_all(machine, decoder, prompt, logits);

close_decoder:
    zo_decoder_close(decoder);
    return status;
}

static void check_bits(uint32_t delay_us, size_t dtype_count)
{
    static const enum zo_dtype dtypes[] = {ZO_BF16, ZO_F32, ZO_F16};
    static struct logits want, got;
    struct machine machine;

    TAP_CHECK_INT(machine_open(&machine, delay_us), ZO_OK);
    TAP_CHECK(machine.model.vocab_size <= VOCAB_MAX);
    for (size_t t = 0; t < dtype_count; t++) {
        for (int64_t prompt = 1; prompt <= PROMPT_MAX; prompt += 39) {
            const int units = (int)machine.model.num_layers + 2;

            TAP_CHECK_INT(answer(&machine, dtypes[t], 0, prompt, &want), ZO_OK);
            TAP_CHECK(want.values[ANSWER][0] != want.values[0][0]);
            for (int host = 1; host <= units; host++) {
                TAP_CHECK_INT(answer(&machine, dtypes[t], host, prompt, &got),
                              ZO_OK);
                TAP_CHECK(memcmp(&got, &want, sizeof(got)) == 0);
            }
        }
    }
    machine_close(&machine);
}

static void test_bits(void)
{
    check_bits(0, 3);
}

static void test_delays(void)
{
    check_bits(20, 1);
}

/* A budget moves as many units to the host as it must, and no more. */
static void test_budget(void)
{
    struct machine machine;
    struct zo_decoder_options options;
    struct zo_decoder *decoder = NULL;
    uint64_t bytes[64] = {0};
    int units;

    TAP_CHECK_INT(machine_open(&machine, 0), ZO_OK);
    units = (int)machine.model.num_layers + 2;
    for (int host = 0; host <= units; host++) {
        options = decoder_options(&machine, ZO_BF16);
        options.host_units = host;
        TAP_CHECK_INT(zo_decoder_open(&options, &decoder), ZO_OK);
        TAP_CHECK_INT(zo_decoder_host_units(decoder), host);
        bytes[host] = zo_decoder_gpu_bytes(decoder);
        zo_decoder_close(decoder);
    }
    TAP_CHECK(bytes[units] < bytes[0]);
    for (int host = 0; host <= units; host++) {
        options = decoder_options(&machine, ZO_BF16);
        options.gpu_memory_bytes = bytes[host];
        TAP_CHECK_INT(zo_decoder_open(&options, &decoder), ZO_OK);
        TAP_CHECK(zo_decoder_host_units(decoder) <= host);
        TAP_CHECK(zo_decoder_gpu_bytes(decoder) <= bytes[host]);
        TAP_CHECK(host > 0 || zo_decoder_host_units(decoder) == 0);
        zo_decoder_close(decoder);
    }
    options.gpu_memory_bytes = 1000;
    TAP_CHECK_INT(zo_decoder_open(&options, &decoder), ZO_E_FIT);
    TAP_CHECK(strstr(zo_err_last()->text, "--gpu-memory") != NULL);
    options = decoder_options(&machine, ZO_BF16);
    options.host_memory_bytes = 1000;
    TAP_CHECK_INT(zo_decoder_open(&options, &decoder), ZO_E_FIT);
    options.host_memory_bytes = (uint64_t)1 << 30;
    TAP_CHECK_INT(zo_decoder_open(&options, &decoder), ZO_OK);
    zo_decoder_close(decoder);
    machine_close(&machine);
}

/* Each allocation fails in turn: none is missed, none leaks. */
static void test_memory(void)
{
    struct machine machine;
    struct zo_decoder_options options;
    enum zo_status status = ZO_E_NOMEM;
    uint64_t nth = 0;

    TAP_CHECK_INT(machine_open(&machine, 0), ZO_OK);
    options = decoder_options(&machine, ZO_F32);
    options.host_units = 2;
    while (status == ZO_E_NOMEM && nth < 5000) {
        struct zo_decoder *decoder = NULL;

        nth += nth < 60 ? 1 : 7;
        zo_memory_fail_at(nth);
        status = zo_decoder_open(&options, &decoder);
        zo_memory_fail_at(0);
        zo_decoder_close(decoder);
    }
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(nth > 60);
    machine_close(&machine);
}

/* ---- answers ------------------------------------------------------------- */

struct told {
    int32_t ids[ANSWER];
    int count;
};

static enum zo_status tell(void *context, int32_t id)
{
    struct told *told = context;

    told->ids[told->count++] = id;
    return ZO_OK;
}

static bool stops_at_five(void *context)
{
    return ((struct told *)context)->count == 5;
}

static enum zo_status make(struct zo_decoder *decoder, int64_t vocab,
                           int32_t stop, bool asks, struct told *told,
                           struct zo_ids *ids, enum zo_answer_end *end)
{
    const int32_t prompt[] = {3, 1, 4, 1, 5};
    const struct zo_sampler_options greedy = {.vocab = vocab};
    struct zo_answer_options options = {
        .decoder = decoder,
        .stops = &stop,
        .stop_count = 1,
        .prompt = prompt,
        .prompt_tokens = 5,
        .tokens_max = ANSWER,
        .on_token = tell,
        .context = told,
        .wants_stop = asks ? stops_at_five : NULL,
    };
    struct zo_sampler *sampler = NULL;
    enum zo_status status;

    *told = (struct told){0};
    zo_ids_fini(ids);
    ZO_TRY(zo_sampler_open(&greedy, &sampler));
    options.sampler = sampler;
    status = zo_answer_make(&options, ids, end);
    zo_sampler_close(sampler);
    return status;
}

static void test_answers(void)
{
    struct machine machine;
    struct zo_decoder_options options;
    struct zo_decoder *decoder = NULL;
    struct zo_ids whole = {0}, ids = {0};
    enum zo_answer_end end = ZO_ANSWER_ASKED;
    struct told told;
    int64_t vocab, first = 0;

    TAP_CHECK_INT(machine_open(&machine, 0), ZO_OK);
    vocab = machine.model.vocab_size;
    options = decoder_options(&machine, ZO_F32);
    TAP_CHECK_INT(zo_decoder_open(&options, &decoder), ZO_OK);
    TAP_CHECK_INT(zo_decoder_load(decoder, machine.dir, &machine.notes), ZO_OK);
    TAP_CHECK_INT(make(decoder, vocab, -1, false, &told, &whole, &end), ZO_OK);
    TAP_CHECK_INT(end, ZO_ANSWER_LENGTH);
    TAP_CHECK_INT(whole.count, ANSWER);
    TAP_CHECK(memcmp(told.ids, whole.items, sizeof(told.ids)) == 0);
    while (whole.items[first] != whole.items[ANSWER - 1]) {
        first++; /* where that token comes first */
    }
    TAP_CHECK_INT(
        make(decoder, vocab, whole.items[first], false, &told, &ids, &end),
        ZO_OK);
    TAP_CHECK_INT(end, ZO_ANSWER_STOPPED);
    TAP_CHECK_INT(ids.count, first);
    TAP_CHECK_INT(told.count, first);
    TAP_CHECK_INT(make(decoder, vocab, -1, true, &told, &ids, &end), ZO_OK);
    TAP_CHECK_INT(end, ZO_ANSWER_ASKED);
    TAP_CHECK_INT(ids.count, 5);
    zo_ids_fini(&whole);
    zo_ids_fini(&ids);
    zo_decoder_close(decoder);
    machine_close(&machine);
}

static const struct tap_case cases[] = {
    {"weights on the host give the same bits", test_bits},
    {"so they do whatever is late", test_delays},
    {"a budget decides how many are there", test_budget},
    {"a failed allocation is told", test_memory},
    {"an answer ends at a stop token, at its length, or when asked to",
     test_answers},
};

int main(void)
{
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
