/*
 * The ChatGLM2 architecture as units and operations.
 *
 * Row 6: includes config and what is below.  Block, for a stream x of width C:
 *
 *   n1 = rmsnorm(x);  qkv = rope(n1 Wqkv' + b);  h = x + attention(qkv) Wo'
 *   n2 = rmsnorm(h);  y = h + swiglu(n2 W1') W2'
 *
 * (W' is the transpose: matrices are stored (outputs, inputs)).  The head is
 * rmsnorm, then the output layer, for positions that have a label alone, in
 * chunks of ZO_GLM_LOGIT_ROWS rows, so that full logits never exist.
 *
 * Life cycle: open for the largest micro batch; the builder calls the entries
 * of zo_glm_ops; once an executor is open, upload the tables; close.
 */
#ifndef ZO_SRC_MODEL_GLM_H
#define ZO_SRC_MODEL_GLM_H

#include "config/model_config.h"
#include "offload/builder.h"
#include "offload/executor.h"
#include "src/model/parameters.h"

ZO_C_BEGIN

#define ZO_GLM_LOGIT_ROWS 1024 /* a constant: results depend on it */

struct zo_glm;

struct zo_glm_options {
    const struct zo_model_config *config; /* borrowed until close */
    enum zo_dtype type;
    int device_count;
    int micros;            /* of a step; 1 to decode */
    int64_t tokens_max;    /* of a micro batch, padded */
    int64_t rows_max;      /* of a micro batch, with the row of pads */
    int64_t labels_max;    /* of a micro batch */
    int64_t positions_max; /* of a row */
    bool decay_all;        /* weight decay on norms and biases too */
    bool half_angles;      /* rope_precision "model" */
    const struct zo_kernel_ops *kernel_ops;
};

/*
 *   ZO_E_NOMEM   no memory for the records
 *   ZO_E_SHAPE   sizes do not fit
 */
enum zo_status zo_glm_open(const struct zo_glm_options *options,
                           struct zo_glm **glm_out) ZO_MUST_CHECK;
void zo_glm_close(struct zo_glm *glm); /* NULL is allowed */

/* Embedding, layers, head; laid out; borrowed until close. */
const struct zo_unit *zo_glm_units(const struct zo_glm *glm, int *count_out);

const struct zo_model_config *zo_glm_config(const struct zo_glm *glm);

/*
 * The parameters as files name them, and the same as tensors of units: entry
 * i of both lists is one parameter.  Borrowed until close.
 */
const struct zo_parameters *zo_glm_parameters(const struct zo_glm *glm);
const struct zo_unit_tensor *zo_glm_tensors(const struct zo_glm *glm);

extern const struct zo_model_ops zo_glm_ops; /* their model is a zo_glm */

/* Writes the rotary table to every device of the executor's program. */
enum zo_status zo_glm_upload_tables(struct zo_glm *glm,
                                    struct zo_executor *executor) ZO_MUST_CHECK;

/*
 * The tables of one micro batch, int32 each, in one blob of `bytes`: byte
 * offsets of the arrays that src/data fills, and of the cache's rows.
 */
struct zo_glm_batch {
    uint64_t ids, positions;            /* (T) */
    uint64_t row_start;                 /* (R + 1) */
    uint64_t label_index, label_id;     /* (L) */
    uint64_t order;                     /* (T) */
    uint64_t segment_start, segment_id; /* (T + 1), (T) */
    uint64_t table_row;                 /* (T), of the gathered embedding */
    uint64_t kv_start, kv_length;       /* (R), decoding */
    uint64_t bytes;
};
struct zo_glm_batch zo_glm_batch_layout(int64_t tokens_max, int64_t rows_max,
                                        int64_t labels_max);

/* Bytes of a decoding cache of one layer for `positions` tokens. */
uint64_t zo_glm_cache_bytes(const struct zo_model_config *config,
                            enum zo_dtype type, int64_t positions);

/*
 * cos and sin of every (position, pair), (positions, pairs, 2), as the
 * operations use them: angles in fp32, or with half_angles rounded to `type`
 * after each step, as the official ChatGLM2 code computes them (DESIGN 3).
 */
void zo_glm_rope_table(const struct zo_model_config *config, enum zo_dtype type,
                       bool half_angles, int64_t positions, float *table_out);

ZO_C_END

#endif
