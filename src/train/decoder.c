#include "src/train/decoder.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/base/memory.h"

struct zo_decoder {
    struct zo_decoder_options options;
    struct zo_machine machine; /* the first device alone */
    struct zo_glm *glm;
    struct zo_decode_build build;
    bool is_built;
    struct zo_executor *executor;
    struct zo_glm_batch layout;
    int64_t position; /* tokens in the cache */
};

static enum zo_status open_build(struct zo_decoder *decoder)
{
    const struct zo_decoder_options *options = &decoder->options;
    const struct zo_model_config *model = options->model;
    struct zo_decode_options decode = {
        .type = options->dtype,
        .token_bytes =
            (uint64_t)model->hidden_size * zo_dtype_bytes(options->dtype),
        .tokens_max = options->prompt_tokens_max,
        .labels_max = options->labels_max,
        .vocab = model->vocab_size,
        .cache_bytes =
            zo_glm_cache_bytes(model, options->dtype, options->tokens_max),
        .batch_bytes = decoder->layout.bytes,
        .kernel_ops = decoder->machine.kernel_ops,
        .model_ops = &zo_glm_ops,
        .model = decoder->glm,
    };

    decode.units = zo_glm_units(decoder->glm, &decode.unit_count);
    ZO_TRY(zo_build_decode(&decode, &decoder->build));
    decoder->is_built = true;
    return ZO_OK;
}

static enum zo_status open_all(struct zo_decoder *decoder)
{
    const struct zo_decoder_options *options = &decoder->options;
    const struct zo_glm_options glm = {
        .config = options->model,
        .type = options->dtype,
        .device_count = 1,
        .micros = 1,
        .tokens_max = options->prompt_tokens_max,
        .rows_max = 1,
        .labels_max = options->labels_max,
        .positions_max = options->tokens_max,
        .half_angles = options->half_angles,
        .kernel_ops = options->devices->machine.kernel_ops,
    };
    const struct zo_executor_options executor = {
        .cpu_workers = 1, .pool = options->devices->pool};

    decoder->machine = options->devices->machine;
    decoder->machine.device_count = 1;
    decoder->machine.comm = NULL;
    decoder->layout =
        zo_glm_batch_layout(options->prompt_tokens_max, 1, options->labels_max);
    ZO_TRY(zo_glm_open(&glm, &decoder->glm));
    ZO_TRY(open_build(decoder));
    ZO_TRY(zo_executor_open(&decoder->build.program, &decoder->machine,
                            &executor, &decoder->executor));
    return zo_glm_upload_tables(decoder->glm, decoder->executor);
}

enum zo_status zo_decoder_open(const struct zo_decoder_options *options,
                               struct zo_decoder **decoder_out)
{
    enum zo_status status;
    struct zo_decoder *decoder = NULL;

    if (options->prompt_tokens_max < 1 ||
        options->tokens_max < options->prompt_tokens_max ||
        options->labels_max < 1 || options->labels_max > ZO_GLM_LOGIT_ROWS) {
        return ZO_FAIL(ZO_E_ARG,
                       "decoding %" PRId64 " of %" PRId64 " tokens, %" PRId64
                       " positions at once; want 1 <= prompt <= all, and at "
                       "most %d positions",
                       options->prompt_tokens_max, options->tokens_max,
                       options->labels_max, ZO_GLM_LOGIT_ROWS);
    }
    ZO_TRY(zo_alloc(1, sizeof(*decoder), "the decoder", &decoder));
    decoder->options = *options;
    status = open_all(decoder);
    if (status != ZO_OK) {
        zo_decoder_close(decoder);
        return status;
    }
    *decoder_out = decoder;
    return ZO_OK;
}

void zo_decoder_close(struct zo_decoder *decoder)
{
    if (decoder == NULL) {
        return;
    }
    zo_executor_close(decoder->executor);
    if (decoder->is_built) {
        zo_decode_build_fini(&decoder->build);
    }
    zo_glm_close(decoder->glm);
    zo_free(decoder);
}

enum zo_status zo_decoder_load(struct zo_decoder *decoder,
                               const struct zo_model_dir *dir,
                               struct zo_notes *notes)
{
    const struct zo_weights weights = {
        .glm = decoder->glm,
        .executor = decoder->executor,
        .decode = &decoder->build,
        .type = decoder->options.dtype,
        .device_count = 1,
        .pool = decoder->options.devices->pool,
    };

    return zo_weights_load(&weights, dir, notes);
}

/* Runs a list over tokens that follow what the cache holds. */
static enum zo_status run(struct zo_decoder *decoder, int schedule,
                          const int32_t *ids, int64_t count,
                          const int32_t *positions, int64_t position_count,
                          const float **logits_out)
{
    const struct zo_glm_batch *layout = &decoder->layout;
    struct zo_step_record *record;
    uint64_t ticket = 0;
    char *blob;
    int slot = 0;

    ZO_TRY(zo_executor_acquire(decoder->executor, &slot));
    record =
        zo_executor_address(decoder->executor, decoder->build.record, slot);
    blob =
        zo_executor_address(decoder->executor, decoder->build.batch_host, slot);
    record->counts[0] = (struct zo_micro_counts){
        .tokens = (int32_t)count,
        .rows = 1,
        .row_tokens_max = (int32_t)count,
        .labels = (int32_t)position_count,
        .position = (int32_t)decoder->position,
    };
    memcpy(blob + layout->ids, ids, (size_t)count * sizeof(ids[0]));
    memcpy(blob + layout->label_index, positions,
           (size_t)position_count * sizeof(positions[0]));
    for (int64_t t = 0; t < count; t++) {
        ((int32_t *)(blob + layout->positions))[t] =
            (int32_t)(decoder->position + t);
    }
    ((int32_t *)(blob + layout->row_start))[0] = 0;
    ((int32_t *)(blob + layout->row_start))[1] = (int32_t)count;
    ((int32_t *)(blob + layout->kv_start))[0] = 0;
    ((int32_t *)(blob + layout->kv_length))[0] =
        (int32_t)(decoder->position + count);
    ZO_TRY(zo_executor_start(decoder->executor, schedule, &ticket));
    ZO_TRY(zo_executor_wait(decoder->executor, ticket));
    decoder->position += count;
    *logits_out = zo_executor_address(decoder->executor,
                                      decoder->build.logits_host, slot);
    return ZO_OK;
}

static enum zo_status check_ids(const struct zo_decoder *decoder,
                                const int32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= decoder->options.model->vocab_size) {
            return ZO_FAIL(ZO_E_ARG,
                           "token %" PRId64 " is %" PRId32
                           ", outside the vocabulary of %" PRId64,
                           i, ids[i], decoder->options.model->vocab_size);
        }
    }
    return ZO_OK;
}

enum zo_status zo_decoder_prompt(struct zo_decoder *decoder, const int32_t *ids,
                                 int64_t count, const int32_t *positions,
                                 int64_t position_count,
                                 const float **logits_out)
{
    if (count < 1 || count > decoder->options.prompt_tokens_max ||
        position_count < 1 || position_count > decoder->options.labels_max) {
        return ZO_FAIL(ZO_E_ARG,
                       "a prompt of %" PRId64 " tokens, %" PRId64
                       " positions; want 1 to %" PRId64 " and 1 to %" PRId64,
                       count, position_count,
                       decoder->options.prompt_tokens_max,
                       decoder->options.labels_max);
    }
    ZO_TRY(check_ids(decoder, ids, count));
    decoder->position = 0;
    return run(decoder, decoder->build.prompt_schedule, ids, count, positions,
               position_count, logits_out);
}

enum zo_status zo_decoder_next(struct zo_decoder *decoder, int32_t id,
                               const float **logits_out)
{
    const int32_t first = 0;

    if (decoder->position >= decoder->options.tokens_max) {
        return ZO_FAIL(ZO_E_ARG, "the cache is full: %" PRId64 " tokens",
                       decoder->position);
    }
    ZO_TRY(check_ids(decoder, &id, 1));
    return run(decoder, decoder->build.token_schedule, &id, 1, &first, 1,
               logits_out);
}
