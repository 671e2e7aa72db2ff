/*
 * For tests/parity.sh: what the decoder makes of rows of ids, in fp32 on the
 * host.  Usage: print_logits MODEL TOKENS <ROWS; a row is a line of ids.
 * Prints a JSON object a row: the logits of every position, and the ids of a
 * greedy answer of TOKENS tokens that no token ends.
 */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/jsonl.h"
#include "src/base/memory.h"
#include "src/train/answer.h"

#define IDS_MAX 256

struct run {
    const char *model;
    int64_t tokens; /* of an answer */
    struct zo_notes notes;
    struct zo_model_config config;
    struct zo_devices devices;
    struct zo_decoder *decoder;
    struct zo_sampler *sampler;
};

static enum zo_status run_open(struct run *run)
{
    const struct zo_devices_options devices = {
        .backend = ZO_BACKEND_HOST, .count = 1, .threads = 2};
    const struct zo_decoder_options decoder = {
        .model = &run->config,
        .devices = &run->devices,
        .dtype = ZO_F32,
        .prompt_tokens_max = IDS_MAX,
        .tokens_max = IDS_MAX + run->tokens,
        .labels_max = IDS_MAX,
    };
    struct zo_model_dir *dir = NULL;
    enum zo_status status;

    ZO_TRY(zo_model_config_read(run->model, ZO_FAMILY_AUTO, NULL, 0,
                                &run->notes, &run->config));
    ZO_TRY(zo_devices_open(&devices, &run->devices));
    ZO_TRY(zo_sampler_open(
        &(struct zo_sampler_options){.vocab = run->config.vocab_size},
        &run->sampler));
    ZO_TRY(zo_decoder_open(&decoder, &run->decoder));
    ZO_TRY(zo_model_dir_open(run->model, &run->notes, &dir));
    status = zo_decoder_load(run->decoder, dir, &run->notes);
    zo_model_dir_close(dir);
    return status;
}

static void run_close(struct run *run)
{
    zo_decoder_close(run->decoder);
    zo_sampler_close(run->sampler);
    zo_devices_close(&run->devices);
    zo_notes_fini(&run->notes);
}

static enum zo_status add_logits(const struct run *run, const int32_t *ids,
                                 int64_t count, struct zo_jsonl *json)
{
    const int64_t vocab = run->config.vocab_size;
    int32_t positions[IDS_MAX];
    const float *logits = NULL;

    for (int32_t t = 0; t < count; t++) {
        positions[t] = t;
    }
    ZO_TRY(
        zo_decoder_prompt(run->decoder, ids, count, positions, count, &logits));
    zo_jsonl_array_begin(json, "logits");
    for (int64_t t = 0; t < count; t++) {
        zo_jsonl_array_begin(json, NULL);
        for (int64_t v = 0; v < vocab; v++) {
            zo_jsonl_real(json, NULL, (double)logits[t * vocab + v]);
        }
        zo_jsonl_array_end(json);
    }
    zo_jsonl_array_end(json);
    return ZO_OK;
}

static enum zo_status print_row(const struct run *run, const int32_t *ids,
                                int64_t count)
{
    struct zo_ids answer = {0};
    enum zo_answer_end end;
    enum zo_status status;
    struct zo_jsonl json;
    char buffer[4096];

    zo_jsonl_init_file(&json, stdout, "standard output", buffer,
                       sizeof(buffer));
    zo_jsonl_begin(&json);
    ZO_TRY(add_logits(run, ids, count, &json));
    ZO_TRY_GOTO(
        free_answer,
        zo_answer_make(&(struct zo_answer_options){.decoder = run->decoder,
                                                   .sampler = run->sampler,
                                                   .prompt = ids,
                                                   .prompt_tokens = count,
                                                   .tokens_max = run->tokens},
                       &answer, &end));
    zo_jsonl_ints(&json, "answer", answer.items, answer.count);
    status = zo_jsonl_end(&json);

free_answer:
    zo_ids_fini(&answer);
    return status;
}

static enum zo_status print_rows(const struct run *run)
{
    char line[16 * IDS_MAX];

    while (fgets(line, sizeof(line), stdin) != NULL) {
        int32_t ids[IDS_MAX];
        int64_t count = 0;
        char *at = line, *end = NULL;

        for (;;) {
            const long id = strtol(at, &end, 10);

            if (end == at || count == IDS_MAX) {
                break;
            }
            ids[count++] = (int32_t)id;
            at = end;
        }
        ZO_TRY(print_row(run, ids, count));
    }
    return ZO_OK;
}

int main(int argc, char **argv)
{
    struct run run = {0};
    enum zo_status status;

    if (argc != 3) {
        (void)fputs("usage: print_logits MODEL TOKENS <ROWS\n", stderr);
        return 2;
    }
    run.model = argv[1];
    run.tokens = strtol(argv[2], NULL, 10);
    status = run_open(&run);
    if (status == ZO_OK) {
        status = print_rows(&run);
    }
    if (status != ZO_OK) {
        (void)fprintf(stderr, "print_logits: %s\n", zo_err_last()->text);
    }
    run_close(&run);
    return status == ZO_OK ? 0 : 1;
}
