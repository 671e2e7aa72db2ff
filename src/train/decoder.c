#include "src/train/decoder.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/base/text.h"

struct zo_decoder {
    struct zo_decoder_options options;
    struct zo_machine machine; /* the first device alone */
    struct zo_glm *glm;
    struct zo_decode_build build;
    bool is_built;
    struct zo_executor *executor;
    struct zo_glm_batch layout;
    int64_t position;   /* tokens in the cache */
    int host_units;     /* of the build */
    int32_t *row_of_id; /* owned; (V), with host_units: 1 + the row, or 0 */
};

static enum zo_status open_glm(struct zo_decoder *decoder)
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

    return zo_glm_open(&glm, &decoder->glm);
}

static enum zo_status build_with(struct zo_decoder *decoder)
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
        .host_units = decoder->host_units,
        .kernel_ops = decoder->machine.kernel_ops,
        .model_ops = &zo_glm_ops,
        .model = decoder->glm,
    };

    decode.units = zo_glm_units(decoder->glm, &decode.unit_count);
    ZO_TRY(zo_build_decode(&decode, &decoder->build));
    decoder->is_built = true;
    return ZO_OK;
}

static void close_build(struct zo_decoder *decoder)
{
    if (decoder->is_built) {
        zo_decode_build_fini(&decoder->build);
        decoder->is_built = false;
    }
    zo_glm_close(decoder->glm);
    decoder->glm = NULL;
}

uint64_t zo_decoder_gpu_bytes(const struct zo_decoder *decoder)
{
    const struct zo_machine *machine = &decoder->machine;

    return decoder->build.program.arena_bytes[ZO_TIER_GPU][0] +
           machine->device_ops->info(machine->devices[0])->context_bytes +
           machine->kernel_ops->own_device_bytes(machine->kernels[0]) +
           zo_devices_comm_bytes(&decoder->options.devices->machine, 0);
}

uint64_t zo_decoder_host_bytes(const struct zo_decoder *decoder)
{
    const struct zo_program *program = &decoder->build.program;
    const bool is_host = decoder->machine.device_ops == &zo_device_host;

    return program->arena_bytes[ZO_TIER_CPU][0] +
           (is_host ? program->arena_bytes[ZO_TIER_GPU][0] : 0);
}

int zo_decoder_host_units(const struct zo_decoder *decoder)
{
    return decoder->host_units;
}

/* Moves units to the host until the rest fits the device. */
static enum zo_status open_build(struct zo_decoder *decoder)
{
    const struct zo_decoder_options *options = &decoder->options;
    const int units = (int)options->model->num_layers + 2;
    char want[ZO_TEXT_PAIR_BYTES], have[ZO_TEXT_PAIR_BYTES];

    for (decoder->host_units = options->host_units;; decoder->host_units++) {
        ZO_TRY(open_glm(decoder));
        ZO_TRY(build_with(decoder));
        if (options->gpu_memory_bytes == 0 ||
            zo_decoder_gpu_bytes(decoder) <= options->gpu_memory_bytes) {
            return ZO_OK;
        }
        if (decoder->host_units == units) {
            break;
        }
        close_build(decoder);
    }
    zo_text_gib_pair(want, zo_decoder_gpu_bytes(decoder), have,
                     options->gpu_memory_bytes);
    return ZO_FAIL(
        ZO_E_FIT,
        "answering takes %s of the device even with all weights on the host, "
        "and the budget is %s; want more --gpu-memory, or fewer tokens",
        want, have);
}

static enum zo_status check_host(const struct zo_decoder *decoder)
{
    const uint64_t budget = decoder->options.host_memory_bytes;
    char want[ZO_TEXT_PAIR_BYTES], have[ZO_TEXT_PAIR_BYTES];

    if (budget == 0 || zo_decoder_host_bytes(decoder) <= budget) {
        return ZO_OK;
    }
    zo_text_gib_pair(want, zo_decoder_host_bytes(decoder), have, budget);
    return ZO_FAIL(ZO_E_FIT,
                   "answering takes %s of host memory, and the budget is %s",
                   want, have);
}

static enum zo_status open_all(struct zo_decoder *decoder)
{
    const struct zo_decoder_options *options = &decoder->options;
    const struct zo_executor_options executor = {
        .cpu_workers = 1, .pool = options->devices->pool};

    decoder->machine = options->devices->machine;
    decoder->machine.device_count = 1;
    decoder->machine.comm = NULL;
    decoder->layout =
        zo_glm_batch_layout(options->prompt_tokens_max, 1, options->labels_max);
    ZO_TRY(open_build(decoder));
    ZO_TRY(check_host(decoder));
    if (decoder->host_units > 0) {
        ZO_TRY(zo_alloc((size_t)options->model->vocab_size,
                        sizeof(decoder->row_of_id[0]), "the rows of tokens",
                        &decoder->row_of_id));
    }
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
    close_build(decoder);
    zo_free(decoder->row_of_id);
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

/* Which rows of an embedding on the host are used, each of them once. */
static void fill_rows(struct zo_decoder *decoder, const int32_t *ids,
                      int64_t count, char *blob, struct zo_micro_counts *counts)
{
    int32_t *distinct = (int32_t *)(blob + decoder->layout.segment_id);
    int32_t *row = (int32_t *)(blob + decoder->layout.table_row);
    int32_t rows = 0;

    if (decoder->row_of_id == NULL) {
        return;
    }
    for (int64_t t = 0; t < count; t++) {
        int32_t *known = &decoder->row_of_id[ids[t]];

        if (*known == 0) {
            distinct[rows] = ids[t];
            *known = ++rows;
        }
        row[t] = *known - 1;
    }
    for (int32_t i = 0; i < rows; i++) {
        decoder->row_of_id[distinct[i]] = 0;
    }
    counts->segments = rows;
    counts->table_rows = rows;
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
    fill_rows(decoder, ids, count, blob, &record->counts[0]);
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
