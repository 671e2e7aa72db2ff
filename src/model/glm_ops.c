/*
 * From an operation of the schedule to a call of the kernel table: token
 * counts come from the record, shapes from the model.  Row 6.
 */
#include "src/base/arith.h"
#include "src/model/glm_internal.h"

static const struct zo_kernel_ops *kernels_of(const struct zo_op_call *call)
{
    return call->machine->kernel_ops;
}

static struct zo_kernels *state_of(const struct zo_op_call *call)
{
    return call->machine->kernels[call->op->device];
}

static int64_t chunk_rows(const struct zo_micro_counts *counts, int64_t chunk)
{
    const int64_t left = counts->labels - chunk * ZO_GLM_LOGIT_ROWS;

    return zo_max_i64(0, zo_min_i64(left, ZO_GLM_LOGIT_ROWS));
}

static int64_t extent(const struct zo_op_call *call, int64_t arg)
{
    const struct zo_micro_counts *counts = zo_call_counts(call);

    return arg == ZO_GLM_TOKENS ? counts->tokens
           : arg == ZO_GLM_LABELS
               ? chunk_rows(counts, call->op->args[3] >> ZO_GLM_CHUNK_SHIFT)
               : arg;
}

/* at: record, c, a, b, workspace, addend. */
enum zo_status zo_glm_run_matmul(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const int64_t *op_args = call->op->args;
    const struct zo_matmul_args args = {
        .c = call->at[1],
        .a = call->at[2],
        .b = call->at[3],
        .workspace = call->at[4],
        .addend = (op_args[3] & ZO_GLM_ADDEND) != 0 ? call->at[5] : NULL,
        .m = extent(call, op_args[0]),
        .n = extent(call, op_args[1]),
        .k = extent(call, op_args[2]),
        .transpose_a = (op_args[3] & ZO_GLM_TRANSPOSE_A) != 0,
        .transpose_b = (op_args[3] & ZO_GLM_TRANSPOSE_B) != 0,
        .type = glm->options.type,
        .c_type = (op_args[3] & ZO_GLM_F32) != 0 ? ZO_F32 : glm->options.type,
    };

    if (args.m == 0 || args.n == 0) {
        return ZO_OK;
    }
    return kernels_of(call)->matmul(state_of(call), call->streams[0], &args);
}

/*
 * at: record, rows, table, batch.  The rows of the distinct ids, in their
 * order; behind them that of the pads, when there are any.
 */
enum zo_status zo_glm_run_gather_rows(const struct zo_op_call *call)
{
    const struct zo_step_record *record = call->at[0];
    const struct zo_glm *glm = call->op->context;
    const struct zo_micro_counts *counts =
        &record->counts[call->op->micro * call->machine->device_count +
                        call->op->args[1]];
    const char *batch = call->at[3];
    const int32_t *ids = (const int32_t *)(batch + glm->batch.ids);
    const int32_t *distinct = (const int32_t *)(batch + glm->batch.segment_id);
    const int64_t cols = glm->config.hidden_size;
    const enum zo_dtype from = (enum zo_dtype)call->op->args[0];
    const size_t row_bytes = (size_t)cols * zo_dtype_bytes(glm->options.type);

    for (int32_t i = 0; i < counts->table_rows; i++) {
        const int32_t id =
            i < counts->segments ? distinct[i] : ids[counts->tokens - 1];
        const struct zo_cast_args args = {
            .out = (char *)call->at[1] + (size_t)i * row_bytes,
            .in = (const char *)call->at[2] +
                  (size_t)(id * cols) * zo_dtype_bytes(from),
            .count = cols,
            .out_type = glm->options.type,
            .in_type = from,
        };

        zo_cast_cpu(&args, 0, cols, ZO_SIMD_BEST);
    }
    return ZO_OK;
}

/* at: record, out, table, batch. */
enum zo_status zo_glm_run_embedding(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const bool has_rows = call->op->args[0] != 0;
    const char *batch = call->at[3];
    const struct zo_embedding_args args = {
        .out = call->at[1],
        .table = call->at[2],
        .ids = (const int32_t *)(batch + (has_rows ? glm->batch.table_row
                                                   : glm->batch.ids)),
        .tokens = zo_call_counts(call)->tokens,
        .cols = glm->config.hidden_size,
        .vocab = has_rows ? zo_max_i64(1, zo_call_counts(call)->table_rows)
                          : glm->config.vocab_size,
        .type = glm->options.type,
    };

    return kernels_of(call)->embedding(state_of(call), call->streams[0], &args);
}

/* at: record, d_table, d_out, batch. */
enum zo_status zo_glm_run_embedding_backward(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const char *batch = call->at[3];
    const struct zo_embedding_backward_args args = {
        .d_table = call->at[1],
        .d_out = call->at[2],
        .order = (const int32_t *)(batch + glm->batch.order),
        .segment_start = (const int32_t *)(batch + glm->batch.segment_start),
        .segment_id = (const int32_t *)(batch + glm->batch.segment_id),
        .segments = zo_call_counts(call)->segments,
        .cols = glm->config.hidden_size,
        .vocab = glm->config.vocab_size,
        .type = glm->options.type,
    };

    return kernels_of(call)->embedding_backward(state_of(call),
                                                call->streams[0], &args);
}

static int64_t norm_rows(const struct zo_op_call *call)
{
    const struct zo_micro_counts *counts = zo_call_counts(call);

    return call->op->args[0] == ZO_GLM_LABELS ? counts->labels : counts->tokens;
}

/* at: record, out, rstd, in, weight. */
enum zo_status zo_glm_run_rmsnorm(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const struct zo_rmsnorm_args args = {
        .out = call->at[1],
        .rstd = call->at[2],
        .in = call->at[3],
        .weight = call->at[4],
        .rows = norm_rows(call),
        .cols = glm->config.hidden_size,
        .epsilon = (float)glm->config.norm_epsilon,
        .type = glm->options.type,
    };

    return kernels_of(call)->rmsnorm(state_of(call), call->streams[0], &args);
}

/* at: record, d_in, d_weight, d_out, in, rstd, weight, workspace, residual. */
enum zo_status zo_glm_run_rmsnorm_backward(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const struct zo_rmsnorm_backward_args args = {
        .d_in = call->at[1],
        .d_weight = call->at[2],
        .d_out = call->at[3],
        .in = call->at[4],
        .rstd = call->at[5],
        .weight = call->at[6],
        .workspace = call->at[7],
        .d_residual = call->op->args[2] != 0 ? call->at[8] : NULL,
        .rows = norm_rows(call),
        .cols = glm->config.hidden_size,
        .type = glm->options.type,
        .add = call->op->args[1] != 0,
    };

    return kernels_of(call)->rmsnorm_backward(state_of(call), call->streams[0],
                                              &args);
}

static struct zo_rope_args rope_args(const struct zo_op_call *call, void *qkv,
                                     const void *table, const char *batch,
                                     const void *bias)
{
    const struct zo_glm *glm = call->op->context;

    return (struct zo_rope_args){
        .qkv = qkv,
        .bias = bias,
        .table = table,
        .positions = (const int32_t *)(batch + glm->batch.positions),
        .tokens = zo_call_counts(call)->tokens,
        .heads = glm->config.num_heads,
        .groups = glm->config.num_kv_groups,
        .head_width = glm->config.head_width,
        .pairs = glm->pairs,
        .type = glm->options.type,
    };
}

/* at: record, qkv, table, batch, bias (with one). */
enum zo_status zo_glm_run_rope(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const struct zo_rope_args args =
        rope_args(call, call->at[1], call->at[2], call->at[3],
                  glm->config.has_qkv_bias ? call->at[4] : NULL);

    return kernels_of(call)->rope(state_of(call), call->streams[0], &args);
}

/* at: record, d_qkv, table, batch, workspace, d_bias (with one); args[1]. */
enum zo_status zo_glm_run_rope_backward(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const char *batch = call->at[3];
    const struct zo_rope_backward_args args = {
        .d_qkv = call->at[1],
        .d_bias = glm->config.has_qkv_bias ? call->at[5] : NULL,
        .table = call->at[2],
        .positions = (const int32_t *)(batch + glm->batch.positions),
        .workspace = call->at[4],
        .tokens = zo_call_counts(call)->tokens,
        .heads = glm->config.num_heads,
        .groups = glm->config.num_kv_groups,
        .head_width = glm->config.head_width,
        .pairs = glm->pairs,
        .type = glm->options.type,
        .add = call->op->args[1] != 0,
    };

    return kernels_of(call)->rope_backward(state_of(call), call->streams[0],
                                           &args);
}

static float attention_scale(const struct zo_glm *glm)
{
    return (float)(1.0 / __builtin_sqrt((double)glm->config.head_width));
}

static struct zo_attention_args attention_args(const struct zo_op_call *call,
                                               void *out, void *lse,
                                               const char *qkv,
                                               const char *batch)
{
    const struct zo_glm *glm = call->op->context;
    const struct zo_micro_counts *counts = zo_call_counts(call);
    const size_t type_bytes = zo_dtype_bytes(glm->options.type);
    const int64_t group_width =
        glm->config.num_kv_groups * glm->config.head_width;
    const char *k = qkv + (size_t)glm->head_total * type_bytes;

    return (struct zo_attention_args){
        .out = out,
        .lse = lse,
        .q = qkv,
        .k = k,
        .v = k + (size_t)group_width * type_bytes,
        .row_start = (const int32_t *)(batch + glm->batch.row_start),
        .q_stride_elems = glm->qkv_width,
        .kv_stride_elems = glm->qkv_width,
        .rows = counts->rows,
        .tokens = counts->tokens,
        .row_tokens_max = counts->row_tokens_max,
        .heads = glm->config.num_heads,
        .groups = glm->config.num_kv_groups,
        .head_width = glm->config.head_width,
        .scale = attention_scale(glm),
        .type = glm->options.type,
    };
}

/* at: record, out, lse, qkv, batch. */
enum zo_status zo_glm_run_attention(const struct zo_op_call *call)
{
    const struct zo_attention_args args = attention_args(
        call, call->at[1], call->at[2], call->at[3], call->at[4]);

    return kernels_of(call)->attention(state_of(call), call->streams[0], &args);
}

/* at: record, d_qkv, d_out, out, qkv, lse, batch, workspace. */
enum zo_status zo_glm_run_attention_backward(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const struct zo_micro_counts *counts = zo_call_counts(call);
    const char *batch = call->at[6];
    const struct zo_attention_backward_args args = {
        .d_qkv = call->at[1],
        .d_out = call->at[2],
        .out = call->at[3],
        .qkv = call->at[4],
        .lse = call->at[5],
        .row_start = (const int32_t *)(batch + glm->batch.row_start),
        .workspace = call->at[7],
        .rows = counts->rows,
        .tokens = counts->tokens,
        .row_tokens_max = counts->row_tokens_max,
        .heads = glm->config.num_heads,
        .groups = glm->config.num_kv_groups,
        .head_width = glm->config.head_width,
        .scale = attention_scale(glm),
        .type = glm->options.type,
    };

    return kernels_of(call)->attention_backward(state_of(call),
                                                call->streams[0], &args);
}

/* at: record, out, in. */
enum zo_status zo_glm_run_swiglu(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const struct zo_swiglu_args args = {
        .out = call->at[1],
        .in = call->at[2],
        .rows = zo_call_counts(call)->tokens,
        .inner = glm->config.ffn_size,
        .type = glm->options.type,
    };

    return kernels_of(call)->swiglu(state_of(call), call->streams[0], &args);
}

/* at: record, in and d_in, d_out. */
enum zo_status zo_glm_run_swiglu_backward(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const struct zo_swiglu_backward_args args = {
        .d_in = call->at[1],
        .d_out = call->at[2],
        .in = call->at[1],
        .rows = zo_call_counts(call)->tokens,
        .inner = glm->config.ffn_size,
        .type = glm->options.type,
    };

    return kernels_of(call)->swiglu_backward(state_of(call), call->streams[0],
                                             &args);
}

/* at: record, out, in, batch. */
enum zo_status zo_glm_run_gather(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const struct zo_micro_counts *counts = zo_call_counts(call);
    const char *batch = call->at[3];
    const struct zo_gather_args args = {
        .out = call->at[1],
        .in = call->at[2],
        .index = (const int32_t *)(batch + glm->batch.label_index),
        .count = counts->labels,
        .rows = counts->tokens,
        .cols = glm->config.hidden_size,
        .type = glm->options.type,
    };

    return kernels_of(call)->gather(state_of(call), call->streams[0], &args);
}

/* at: record, out, in, batch. */
enum zo_status zo_glm_run_scatter(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const struct zo_micro_counts *counts = zo_call_counts(call);
    const char *batch = call->at[3];
    const struct zo_scatter_args args = {
        .out = call->at[1],
        .in = call->at[2],
        .index = (const int32_t *)(batch + glm->batch.label_index),
        .count = counts->labels,
        .rows = counts->tokens,
        .cols = glm->config.hidden_size,
        .type = glm->options.type,
    };

    return kernels_of(call)->scatter(state_of(call), call->streams[0], &args);
}

/* at: record, control, loss, logits, batch, d_logits (training). */
enum zo_status zo_glm_run_cross_entropy(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const struct zo_control *control = call->at[1];
    const struct zo_micro_counts *counts = zo_call_counts(call);
    const int64_t chunk = call->op->args[0];
    const bool trains = call->op->args[1] != 0;
    const char *batch = call->at[4];
    const struct zo_cross_entropy_args args = {
        .loss = call->at[2],
        .d_logits = trains ? call->at[5] : NULL,
        .logits = call->at[3],
        .label = (const int32_t *)(batch + glm->batch.label_id) +
                 chunk * ZO_GLM_LOGIT_ROWS,
        .count = chunk_rows(counts, chunk),
        .vocab = glm->config.vocab_size,
        .scale =
            trains ? (float)(counts->loss_weight * control->loss_scale) : 0.0f,
        .type = glm->options.type,
    };

    return args.count == 0 ? ZO_OK
                           : kernels_of(call)->cross_entropy(
                                 state_of(call), call->streams[0], &args);
}

/* at: record, target. */
enum zo_status zo_glm_run_clear(const struct zo_op_call *call)
{
    return call->machine->device_ops->fill(call->streams[0], call->at[1], 0,
                                           (size_t)call->op->args[0]);
}

/* ---- decoding ------------------------------------------------------------ */

/* Where the tokens of this call go in the cache. */
static char *cache_rows(const struct zo_op_call *call, void *cache)
{
    const struct zo_glm *glm = call->op->context;

    return (char *)cache + (size_t)zo_call_counts(call)->position *
                               (size_t)glm->qkv_width *
                               zo_dtype_bytes(glm->options.type);
}

/* at: record, cache, in, weight, workspace. */
enum zo_status zo_glm_run_cache_qkv(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const struct zo_matmul_args args = {
        .c = cache_rows(call, call->at[1]),
        .a = call->at[2],
        .b = call->at[3],
        .workspace = call->at[4],
        .m = zo_call_counts(call)->tokens,
        .n = glm->qkv_width,
        .k = glm->config.hidden_size,
        .transpose_b = true,
        .type = glm->options.type,
        .c_type = glm->options.type,
    };

    return kernels_of(call)->matmul(state_of(call), call->streams[0], &args);
}

/* at: record, cache, table, batch, bias (with one). */
enum zo_status zo_glm_run_cache_rope(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const struct zo_rope_args args =
        rope_args(call, cache_rows(call, call->at[1]), call->at[2], call->at[3],
                  glm->config.has_qkv_bias ? call->at[4] : NULL);

    return kernels_of(call)->rope(state_of(call), call->streams[0], &args);
}

/* at: record, out, lse, cache, batch. */
enum zo_status zo_glm_run_cache_attention(const struct zo_op_call *call)
{
    const struct zo_glm *glm = call->op->context;
    const char *batch = call->at[4];
    struct zo_attention_args args = attention_args(
        call, call->at[1], call->at[2], call->at[3], call->at[4]);

    args.q = cache_rows(call, call->at[3]);
    args.kv_start = (const int32_t *)(batch + glm->batch.kv_start);
    args.kv_length = (const int32_t *)(batch + glm->batch.kv_length);
    return kernels_of(call)->attention(state_of(call), call->streams[0], &args);
}
