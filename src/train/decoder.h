/*
 * A model that answers: logits of a prompt, then of one token at a time.
 *
 * Row 7.  One device, weights and a key/value cache.  Life cycle: open, load,
 * then any number of prompts, each followed by next calls, close.  One thread.
 */
#ifndef ZO_SRC_TRAIN_DECODER_H
#define ZO_SRC_TRAIN_DECODER_H

#include "src/train/devices.h"
#include "src/train/weights.h"

ZO_C_BEGIN

struct zo_decoder; /* opaque */

struct zo_decoder_options {
    const struct zo_model_config *model; /* borrowed until close */
    const struct zo_devices *devices;    /* borrowed; the first is used */
    enum zo_dtype dtype;
    int64_t prompt_tokens_max;
    int64_t tokens_max; /* of prompt and answer together */
    int64_t labels_max; /* positions of a prompt whose logits are wanted,
                           1..ZO_GLM_LOGIT_ROWS */
    bool half_angles;   /* rope_precision "model" */
    /* Of the device, all that it takes there; what does not fit stays on the
     * host, unit by unit, and crosses the bus for every token.  0: no limit. */
    uint64_t gpu_memory_bytes;
    uint64_t host_memory_bytes; /* likewise, of the host; 0: no limit */
    int host_units;             /* at least so many stay there: for tests */
};

/*
 *   ZO_E_FIT   the device's budget is too small even with all weights on the
 *              host, or the host's is for what stays there
 */
enum zo_status zo_decoder_open(const struct zo_decoder_options *options,
                               struct zo_decoder **decoder_out) ZO_MUST_CHECK;
void zo_decoder_close(struct zo_decoder *decoder); /* NULL is allowed */

/* Units whose weights are at home on the host; what is taken of the device,
 * and of the host (what a host device takes included). */
int zo_decoder_host_units(const struct zo_decoder *decoder);
uint64_t zo_decoder_gpu_bytes(const struct zo_decoder *decoder);
uint64_t zo_decoder_host_bytes(const struct zo_decoder *decoder);

/* As zo_weights_load(). */
enum zo_status zo_decoder_load(struct zo_decoder *decoder,
                               const struct zo_model_dir *dir,
                               struct zo_notes *notes) ZO_MUST_CHECK;

/*
 * Forgets what came before and reads a prompt.  logits[i], of vocab_size
 * each, predict what follows token positions[i] (ascending).  *logits_out is
 * borrowed until the next call.
 *
 *   ZO_E_ARG   more tokens or positions than the options say, or an id
 *              outside the vocabulary
 */
enum zo_status zo_decoder_prompt(struct zo_decoder *decoder, const int32_t *ids,
                                 int64_t count, const int32_t *positions,
                                 int64_t position_count,
                                 const float **logits_out) ZO_MUST_CHECK;

/* Appends one token; the logits predict what follows it. */
enum zo_status zo_decoder_next(struct zo_decoder *decoder, int32_t id,
                               const float **logits_out) ZO_MUST_CHECK;

ZO_C_END

#endif
