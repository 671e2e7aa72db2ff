/*
 * The operations of a unit, forward and backward, as the builder asks for
 * them.  Row 6.
 */
#include "src/base/arith.h"
#include "src/model/glm_internal.h"

/* ---- helpers ------------------------------------------------------------- */

/* An emit with what its operations need at hand. */
struct scope {
    struct zo_glm *glm;
    const struct zo_emit *emit;
    const struct zo_unit *unit;
    uint64_t type_bytes;
    int64_t tokens, labels; /* largest */
};

static struct scope scope_of(void *model, const struct zo_emit *emit)
{
    struct zo_glm *glm = model;

    return (struct scope){
        .glm = glm,
        .emit = emit,
        .unit = &glm->units[emit->unit],
        .type_bytes = zo_dtype_bytes(glm->options.type),
        .tokens = emit->tokens_max,
        .labels = emit->labels_max,
    };
}

static struct zo_glm_saved *saved_of(const struct scope *scope)
{
    const struct zo_glm *glm = scope->glm;

    return &glm->saved[(scope->emit->unit * glm->options.micros +
                        scope->emit->micro) *
                           glm->options.device_count +
                       scope->emit->device];
}

static struct zo_access whole(const struct scope *scope, zo_buffer_id id,
                              enum zo_access_mode mode)
{
    return zo_whole(scope->emit->program, id, mode);
}

/* A tensor of the unit; behind an absent bias the others move up. */
static const struct zo_unit_tensor *tensor_of(const struct scope *scope,
                                              int tensor)
{
    const bool is_layer =
        scope->emit->unit > 0 && scope->emit->unit + 1 < scope->glm->unit_count;
    const bool moves = is_layer && tensor > ZO_GLM_QKV_BIAS &&
                       !scope->glm->config.has_qkv_bias;

    return &scope->unit->tensors[moves ? tensor - 1 : tensor];
}

/* Its place in the unit's weights. */
static struct zo_access weight(const struct scope *scope, int tensor)
{
    const struct zo_unit_tensor *t = tensor_of(scope, tensor);

    return (struct zo_access){scope->emit->weights, ZO_READ,
                              (uint64_t)t->offset_elems * scope->type_bytes,
                              (uint64_t)t->elems * scope->type_bytes};
}

/* A tensor's sum; `first` writes it, later ones add. */
static struct zo_access sum(const struct scope *scope, int tensor, bool first)
{
    const struct zo_unit_tensor *t = tensor_of(scope, tensor);

    return (struct zo_access){scope->emit->grad_sum,
                              first ? ZO_WRITE : ZO_READ_WRITE,
                              (uint64_t)t->offset_elems * sizeof(float),
                              (uint64_t)t->elems * sizeof(float)};
}

static struct zo_access workspace(const struct scope *scope)
{
    return whole(scope, scope->glm->workspace[scope->emit->device], ZO_WRITE);
}

static struct zo_access batch(const struct scope *scope)
{
    return whole(scope, scope->emit->batch, ZO_READ);
}

static struct zo_access table(const struct scope *scope)
{
    return whole(scope, scope->glm->rope_table[scope->emit->device], ZO_READ);
}

/* A transient (rows, cols) buffer of the model's type. */
static enum zo_status typed(const struct scope *scope, const char *name,
                            int64_t rows, int64_t cols, zo_buffer_id *id_out)
{
    return zo_emit_buffer(scope->emit, ZO_PURPOSE_ACTIVATION, name,
                          (uint64_t)(rows * cols) * scope->type_bytes, id_out);
}

static enum zo_status floats(const struct scope *scope, const char *name,
                             int64_t count, zo_buffer_id *id_out)
{
    return zo_emit_buffer(scope->emit, ZO_PURPOSE_ACTIVATION, name,
                          (uint64_t)count * sizeof(float), id_out);
}

/*
 * Of attention, with rows as long as any may be: of the scores the half up to
 * the query's own position; two products forward, five backward.
 */
static double attention_flops(const struct scope *scope, zo_op_fn run)
{
    const double products = run == zo_glm_run_attention            ? 2.0
                            : run == zo_glm_run_attention_backward ? 5.0
                                                                   : 0.0;
    const int64_t keys =
        zo_min_i64(scope->tokens, scope->glm->options.positions_max);

    return products * 2.0 * (double)scope->tokens * ((double)keys + 1.0) / 2.0 *
           (double)scope->glm->head_total;
}

static enum zo_status emit_op(const struct scope *scope, const char *name,
                              zo_op_fn run, const int64_t args[4],
                              const struct zo_access *accesses, size_t count)
{
    struct zo_op op = {.name = name,
                       .run = run,
                       .context = scope->glm,
                       .attention_flops = attention_flops(scope, run)};

    for (int i = 0; args != NULL && i < 4; i++) {
        op.args[i] = args[i];
    }
    return zo_emit_op(scope->emit, &op, accesses, count);
}

#define EMIT(scope, name, run, args, ...)                     \
    emit_op((scope), (name), (run), (args),                   \
            (const struct zo_access[]){__VA_ARGS__},          \
            sizeof((const struct zo_access[]){__VA_ARGS__}) / \
                sizeof(struct zo_access))

/* One product; flops are those of the longest micro batch. */
struct product {
    const char *name;
    int64_t m, n, k;
    int64_t flags;
    struct zo_access c, a, b;
    struct zo_access addend; /* with ZO_GLM_ADDEND */
};

static enum zo_status emit_product(const struct scope *scope,
                                   const struct product *p)
{
    const int64_t chunk = zo_min_i64(scope->labels, ZO_GLM_LOGIT_ROWS);
    const int64_t sizes[3] = {p->m, p->n, p->k};
    struct zo_op op = {
        .name = p->name,
        .run = zo_glm_run_matmul,
        .context = scope->glm,
        .args = {p->m, p->n, p->k, p->flags},
        .flops = 2.0,
    };
    const struct zo_access accesses[] = {p->c, p->a, p->b, workspace(scope),
                                         p->addend};

    for (int i = 0; i < 3; i++) {
        op.flops *= (double)(sizes[i] == ZO_GLM_TOKENS   ? scope->tokens
                             : sizes[i] == ZO_GLM_LABELS ? chunk
                                                         : sizes[i]);
    }
    return zo_emit_op(scope->emit, &op, accesses,
                      (p->flags & ZO_GLM_ADDEND) != 0 ? 5 : 4);
}

/* out = in weight', (T, inputs) by (outputs, inputs). */
static enum zo_status emit_linear(const struct scope *scope, const char *name,
                                  zo_buffer_id out, zo_buffer_id in, int tensor)
{
    const struct zo_unit_tensor *t = tensor_of(scope, tensor);

    return emit_product(scope, &(struct product){
                                   .name = name,
                                   .m = ZO_GLM_TOKENS,
                                   .n = t->shape[0],
                                   .k = t->shape[1],
                                   .flags = ZO_GLM_TRANSPOSE_B,
                                   .c = whole(scope, out, ZO_WRITE),
                                   .a = whole(scope, in, ZO_READ),
                                   .b = weight(scope, tensor),
                               });
}

/* The same plus a residual stream, which saves a pass over memory. */
static enum zo_status emit_linear_residual(const struct scope *scope,
                                           const char *name, zo_buffer_id out,
                                           zo_buffer_id in, int tensor,
                                           zo_buffer_id residual)
{
    const struct zo_unit_tensor *t = tensor_of(scope, tensor);

    return emit_product(scope, &(struct product){
                                   .name = name,
                                   .m = ZO_GLM_TOKENS,
                                   .n = t->shape[0],
                                   .k = t->shape[1],
                                   .flags = ZO_GLM_TRANSPOSE_B | ZO_GLM_ADDEND,
                                   .c = whole(scope, out, ZO_WRITE),
                                   .a = whole(scope, in, ZO_READ),
                                   .b = weight(scope, tensor),
                                   .addend = whole(scope, residual, ZO_READ),
                               });
}

/* d_in = d_out weight. */
static enum zo_status emit_linear_input(const struct scope *scope,
                                        const char *name, zo_buffer_id d_in,
                                        zo_buffer_id d_out, int tensor)
{
    const struct zo_unit_tensor *t = tensor_of(scope, tensor);

    return emit_product(scope, &(struct product){
                                   .name = name,
                                   .m = ZO_GLM_TOKENS,
                                   .n = t->shape[1],
                                   .k = t->shape[0],
                                   .c = whole(scope, d_in, ZO_WRITE),
                                   .a = whole(scope, d_out, ZO_READ),
                                   .b = weight(scope, tensor),
                               });
}

/* sum += d_out' in, (outputs, T) by (T, inputs), in fp32. */
static enum zo_status emit_linear_weight(const struct scope *scope,
                                         const char *name, int tensor,
                                         zo_buffer_id d_out, zo_buffer_id in)
{
    const struct zo_unit_tensor *t = tensor_of(scope, tensor);
    const bool first = scope->emit->is_first;
    const struct zo_access target = sum(scope, tensor, first);

    return emit_product(scope, &(struct product){
                                   .name = name,
                                   .m = t->shape[0],
                                   .n = t->shape[1],
                                   .k = ZO_GLM_TOKENS,
                                   .flags = ZO_GLM_TRANSPOSE_A | ZO_GLM_F32 |
                                            (first ? 0 : ZO_GLM_ADDEND),
                                   .c = target,
                                   .a = whole(scope, d_out, ZO_READ),
                                   .b = whole(scope, in, ZO_READ),
                                   .addend = target,
                               });
}

static enum zo_status emit_norm(const struct scope *scope, zo_buffer_id out,
                                zo_buffer_id rstd, zo_buffer_id in, int tensor,
                                int64_t rows)
{
    return EMIT(scope, "rmsnorm", zo_glm_run_rmsnorm,
                ((const int64_t[4]){rows}), whole(scope, out, ZO_WRITE),
                whole(scope, rstd, ZO_WRITE), whole(scope, in, ZO_READ),
                weight(scope, tensor));
}

/* ---- preparation
 * -------------------------------------------------------------- */

static uint64_t workspace_bytes(const struct zo_glm *glm)
{
    const struct zo_kernel_ops *ops = glm->options.kernel_ops;
    const struct zo_model_config *c = &glm->config;
    const int64_t tokens =
        zo_max_i64(glm->options.tokens_max, glm->options.labels_max);
    const uint64_t needs[] = {
        ops->matmul_workspace(),
        ops->rmsnorm_backward_workspace(tokens, c->hidden_size),
        ops->rope_backward_workspace(tokens, glm->qkv_width),
        ops->attention_backward_workspace(tokens, c->num_heads,
                                          c->num_kv_groups, c->head_width),
    };
    uint64_t most = ZO_ALIGN_BYTES;

    for (size_t i = 0; i < ZO_COUNT(needs); i++) {
        most = needs[i] > most ? needs[i] : most;
    }
    return most;
}

enum zo_status zo_glm_prepare(void *model, struct zo_program *program,
                              int device)
{
    struct zo_glm *glm = model;
    struct zo_buffer buffer = {
        .name = "rotary table",
        .purpose = ZO_PURPOSE_BATCH,
        .tier = ZO_TIER_GPU,
        .device = device,
        .unit = -1,
        .schedule = -1,
        .bytes = (uint64_t)(glm->options.positions_max * glm->pairs * 2) *
                 sizeof(float),
    };

    ZO_TRY(zo_program_buffer(program, &buffer, &glm->rope_table[device]));
    buffer.name = "kernel workspace";
    buffer.purpose = ZO_PURPOSE_WORKSPACE;
    buffer.bytes = workspace_bytes(glm);
    return zo_program_buffer(program, &buffer, &glm->workspace[device]);
}

/* ---- forward
 * --------------------------------------------------------------------- */

static enum zo_status forward_embedding(const struct scope *scope)
{
    const struct zo_emit *emit = scope->emit;

    return EMIT(scope, "embedding", zo_glm_run_embedding,
                ((const int64_t[4]){emit->has_rows}),
                whole(scope, emit->output, ZO_WRITE),
                emit->has_rows ? whole(scope, emit->weights, ZO_READ)
                               : weight(scope, 0),
                batch(scope));
}

static enum zo_status emit_rope(const struct scope *scope, const char *name,
                                zo_op_fn run, zo_buffer_id qkv)
{
    if (!scope->glm->config.has_qkv_bias) {
        return EMIT(scope, name, run, NULL, whole(scope, qkv, ZO_READ_WRITE),
                    table(scope), batch(scope));
    }
    return EMIT(scope, name, run, NULL, whole(scope, qkv, ZO_READ_WRITE),
                table(scope), batch(scope), weight(scope, ZO_GLM_QKV_BIAS));
}

/* Queries, keys and values, and attention over them. */
static enum zo_status forward_attention(const struct scope *scope,
                                        struct zo_glm_saved *saved)
{
    const struct zo_emit *emit = scope->emit;

    if (emit->cache == ZO_NO_BUFFER) {
        ZO_TRY(typed(scope, "qkv", scope->tokens, scope->glm->qkv_width,
                     &saved->qkv));
        ZO_TRY(emit_linear(scope, "qkv product", saved->qkv, saved->norm1,
                           ZO_GLM_QKV));
        ZO_TRY(emit_rope(scope, "rope", zo_glm_run_rope, saved->qkv));
        return EMIT(scope, "attention", zo_glm_run_attention, NULL,
                    whole(scope, saved->attention, ZO_WRITE),
                    whole(scope, saved->lse, ZO_WRITE),
                    whole(scope, saved->qkv, ZO_READ), batch(scope));
    }
    ZO_TRY(EMIT(scope, "qkv product", zo_glm_run_cache_qkv, NULL,
                whole(scope, emit->cache, ZO_READ_WRITE),
                whole(scope, saved->norm1, ZO_READ), weight(scope, ZO_GLM_QKV),
                workspace(scope)));
    ZO_TRY(emit_rope(scope, "rope", zo_glm_run_cache_rope, emit->cache));
    return EMIT(scope, "attention", zo_glm_run_cache_attention, NULL,
                whole(scope, saved->attention, ZO_WRITE),
                whole(scope, saved->lse, ZO_WRITE),
                whole(scope, emit->cache, ZO_READ), batch(scope));
}

/* The inside of a layer, up to the last product. */
static enum zo_status forward_inside(const struct scope *scope,
                                     struct zo_glm_saved *saved)
{
    const struct zo_model_config *c = &scope->glm->config;
    const struct zo_emit *emit = scope->emit;
    const int64_t t = scope->tokens;

    ZO_TRY(typed(scope, "norm 1", t, c->hidden_size, &saved->norm1));
    ZO_TRY(floats(scope, "norm 1 statistics", t, &saved->rstd1));
    ZO_TRY(typed(scope, "attention", t, scope->glm->head_total,
                 &saved->attention));
    ZO_TRY(
        floats(scope, "attention statistics", t * c->num_heads, &saved->lse));
    ZO_TRY(typed(scope, "middle", t, c->hidden_size, &saved->middle));
    ZO_TRY(typed(scope, "norm 2", t, c->hidden_size, &saved->norm2));
    ZO_TRY(floats(scope, "norm 2 statistics", t, &saved->rstd2));
    ZO_TRY(typed(scope, "up", t, 2 * c->ffn_size, &saved->up));
    ZO_TRY(typed(scope, "activation", t, c->ffn_size, &saved->act));

    ZO_TRY(emit_norm(scope, saved->norm1, saved->rstd1, emit->input,
                     ZO_GLM_NORM1, ZO_GLM_TOKENS));
    ZO_TRY(forward_attention(scope, saved));
    ZO_TRY(emit_linear_residual(scope, "attention output", saved->middle,
                                saved->attention, ZO_GLM_DENSE, emit->input));
    ZO_TRY(emit_norm(scope, saved->norm2, saved->rstd2, saved->middle,
                     ZO_GLM_NORM2, ZO_GLM_TOKENS));
    ZO_TRY(
        emit_linear(scope, "up product", saved->up, saved->norm2, ZO_GLM_UP));
    return EMIT(scope, "swiglu", zo_glm_run_swiglu, NULL,
                whole(scope, saved->act, ZO_WRITE),
                whole(scope, saved->up, ZO_READ));
}

static enum zo_status forward_layer(const struct scope *scope)
{
    struct zo_glm_saved *saved = saved_of(scope);

    ZO_TRY(forward_inside(scope, saved));
    return emit_linear_residual(scope, "down product", scope->emit->output,
                                saved->act, ZO_GLM_DOWN, saved->middle);
}

/* ---- the head
 * -------------------------------------------------------------------- */

/* What the head works on: rows with a label. */
struct head {
    zo_buffer_id rows, norm, rstd; /* (L, C), (L, C), (L) */
    zo_buffer_id d_norm, d_rows;   /* training */
};

static struct zo_access slice(const struct scope *scope, zo_buffer_id id,
                              enum zo_access_mode mode, int64_t chunk,
                              uint64_t row_bytes)
{
    const int64_t begin = chunk * ZO_GLM_LOGIT_ROWS;
    const int64_t end = zo_min_i64(begin + ZO_GLM_LOGIT_ROWS, scope->labels);

    (void)scope;
    return (struct zo_access){id, mode, (uint64_t)begin * row_bytes,
                              (uint64_t)(end - begin) * row_bytes};
}

static enum zo_status open_head(const struct scope *scope, struct head *head)
{
    const int64_t cols = scope->glm->config.hidden_size;

    ZO_TRY(typed(scope, "label rows", scope->labels, cols, &head->rows));
    ZO_TRY(typed(scope, "final norm", scope->labels, cols, &head->norm));
    ZO_TRY(floats(scope, "final norm statistics", scope->labels, &head->rstd));
    ZO_TRY(EMIT(scope, "label gather", zo_glm_run_gather, NULL,
                whole(scope, head->rows, ZO_WRITE),
                whole(scope, scope->emit->input, ZO_READ), batch(scope)));
    return emit_norm(scope, head->norm, head->rstd, head->rows,
                     ZO_GLM_FINAL_NORM, ZO_GLM_LABELS);
}

static enum zo_status emit_logits(const struct scope *scope,
                                  const struct head *head, int64_t chunk,
                                  struct zo_access logits)
{
    const struct zo_model_config *c = &scope->glm->config;
    const uint64_t row_bytes = (uint64_t)c->hidden_size * scope->type_bytes;

    return emit_product(
        scope, &(struct product){
                   .name = "logits product",
                   .m = ZO_GLM_LABELS,
                   .n = c->vocab_size,
                   .k = c->hidden_size,
                   .flags = ZO_GLM_TRANSPOSE_B | ZO_GLM_F32 |
                            chunk << ZO_GLM_CHUNK_SHIFT,
                   .c = logits,
                   .a = slice(scope, head->norm, ZO_READ, chunk, row_bytes),
                   .b = weight(scope, ZO_GLM_OUTPUT),
               });
}

/* The gradients of one chunk, from those of its logits. */
static enum zo_status backward_chunk(const struct scope *scope,
                                     const struct head *head, int64_t chunk,
                                     zo_buffer_id d_logits)
{
    const struct zo_model_config *c = &scope->glm->config;
    const uint64_t row_bytes = (uint64_t)c->hidden_size * scope->type_bytes;
    const bool first = scope->emit->is_first && chunk == 0;
    const struct zo_access target = sum(scope, ZO_GLM_OUTPUT, first);
    const int64_t flags = chunk << ZO_GLM_CHUNK_SHIFT;

    ZO_TRY(emit_product(
        scope, &(struct product){
                   .name = "logits input gradient",
                   .m = ZO_GLM_LABELS,
                   .n = c->hidden_size,
                   .k = c->vocab_size,
                   .flags = flags,
                   .c = slice(scope, head->d_norm, ZO_WRITE, chunk, row_bytes),
                   .a = whole(scope, d_logits, ZO_READ),
                   .b = weight(scope, ZO_GLM_OUTPUT),
               }));
    return emit_product(
        scope, &(struct product){
                   .name = "logits weight gradient",
                   .m = c->vocab_size,
                   .n = c->hidden_size,
                   .k = ZO_GLM_LABELS,
                   .flags = flags | ZO_GLM_TRANSPOSE_A | ZO_GLM_F32 |
                            (first ? 0 : ZO_GLM_ADDEND),
                   .c = target,
                   .a = whole(scope, d_logits, ZO_READ),
                   .b = slice(scope, head->norm, ZO_READ, chunk, row_bytes),
                   .addend = target,
               });
}

static enum zo_status emit_loss(const struct scope *scope,
                                const struct head *head, int64_t chunk)
{
    const struct zo_emit *emit = scope->emit;
    const int64_t rows = zo_min_i64(scope->labels, ZO_GLM_LOGIT_ROWS);
    const uint64_t cells =
        (uint64_t)rows * (uint64_t)scope->glm->config.vocab_size;
    struct zo_access loss =
        slice(scope, emit->losses, ZO_WRITE, chunk, sizeof(float));
    const int64_t args[4] = {chunk, emit->trains};
    zo_buffer_id logits, d_logits;

    loss.offset += (uint64_t)(emit->micro * scope->labels) * sizeof(float);
    ZO_TRY(zo_emit_buffer(emit, ZO_PURPOSE_LOGITS, "logits",
                          cells * sizeof(float), &logits));
    ZO_TRY(emit_logits(scope, head, chunk, whole(scope, logits, ZO_WRITE)));
    if (!emit->trains) {
        return EMIT(scope, "cross entropy", zo_glm_run_cross_entropy, args,
                    whole(scope, emit->control, ZO_READ), loss,
                    whole(scope, logits, ZO_READ), batch(scope));
    }
    ZO_TRY(zo_emit_buffer(emit, ZO_PURPOSE_LOGITS, "logit gradients",
                          cells * scope->type_bytes, &d_logits));
    ZO_TRY(EMIT(scope, "cross entropy", zo_glm_run_cross_entropy, args,
                whole(scope, emit->control, ZO_READ), loss,
                whole(scope, logits, ZO_READ), batch(scope),
                whole(scope, d_logits, ZO_WRITE)));
    return backward_chunk(scope, head, chunk, d_logits);
}

static int64_t chunk_count(const struct scope *scope)
{
    return zo_div_ceil(scope->labels, ZO_GLM_LOGIT_ROWS);
}

static enum zo_status forward_head(const struct scope *scope)
{
    struct head head = {0};

    ZO_TRY(open_head(scope, &head));
    if (scope->emit->logits != ZO_NO_BUFFER) {
        ZO_ASSERT(scope->labels <= ZO_GLM_LOGIT_ROWS);
        return emit_logits(scope, &head, 0,
                           whole(scope, scope->emit->logits, ZO_WRITE));
    }
    for (int64_t chunk = 0; chunk < chunk_count(scope); chunk++) {
        ZO_TRY(emit_loss(scope, &head, chunk));
    }
    return ZO_OK;
}

enum zo_status zo_glm_turn(void *model, const struct zo_emit *emit)
{
    const struct scope scope = scope_of(model, emit);
    const int64_t cols = scope.glm->config.hidden_size;
    struct head head = {0};

    ZO_TRY(open_head(&scope, &head));
    ZO_TRY(
        typed(&scope, "final norm gradient", scope.labels, cols, &head.d_norm));
    ZO_TRY(
        typed(&scope, "label row gradient", scope.labels, cols, &head.d_rows));
    for (int64_t chunk = 0; chunk < chunk_count(&scope); chunk++) {
        ZO_TRY(emit_loss(&scope, &head, chunk));
    }
    ZO_TRY(EMIT(&scope, "rmsnorm backward", zo_glm_run_rmsnorm_backward,
                ((const int64_t[4]){ZO_GLM_LABELS, !emit->is_first, 0}),
                whole(&scope, head.d_rows, ZO_WRITE),
                sum(&scope, ZO_GLM_FINAL_NORM, emit->is_first),
                whole(&scope, head.d_norm, ZO_READ),
                whole(&scope, head.rows, ZO_READ),
                whole(&scope, head.rstd, ZO_READ),
                weight(&scope, ZO_GLM_FINAL_NORM), workspace(&scope)));
    return EMIT(&scope, "label scatter", zo_glm_run_scatter, NULL,
                whole(&scope, emit->d_input, ZO_WRITE),
                whole(&scope, head.d_rows, ZO_READ), batch(&scope));
}

enum zo_status zo_glm_forward(void *model, const struct zo_emit *emit)
{
    const struct scope scope = scope_of(model, emit);

    if (emit->unit == 0) {
        return forward_embedding(&scope);
    }
    return emit->unit + 1 == scope.glm->unit_count ? forward_head(&scope)
                                                   : forward_layer(&scope);
}

/* ---- backward
 * ---------------------------------------------------------------------- */

static enum zo_status backward_embedding(const struct scope *scope)
{
    const struct zo_emit *emit = scope->emit;
    const struct zo_access target = sum(scope, 0, false);

    if (emit->is_first) { /* rows that no token uses have no gradient */
        ZO_TRY(EMIT(scope, "clear gradient", zo_glm_run_clear,
                    ((const int64_t[4]){(int64_t)target.bytes}),
                    sum(scope, 0, true)));
    }
    return EMIT(scope, "embedding backward", zo_glm_run_embedding_backward,
                NULL, target, whole(scope, emit->d_output, ZO_READ),
                batch(scope));
}

static enum zo_status emit_norm_backward(const struct scope *scope,
                                         zo_buffer_id d_in, int tensor,
                                         zo_buffer_id d_out, zo_buffer_id in,
                                         zo_buffer_id rstd,
                                         zo_buffer_id residual)
{
    const bool first = scope->emit->is_first;

    return EMIT(scope, "rmsnorm backward", zo_glm_run_rmsnorm_backward,
                ((const int64_t[4]){ZO_GLM_TOKENS, !first, 1}),
                whole(scope, d_in, ZO_WRITE), sum(scope, tensor, first),
                whole(scope, d_out, ZO_READ), whole(scope, in, ZO_READ),
                whole(scope, rstd, ZO_READ), weight(scope, tensor),
                workspace(scope), whole(scope, residual, ZO_READ));
}

/* What forward did not leave. */
static enum zo_status recompute(const struct scope *scope,
                                struct zo_glm_saved *saved)
{
    const struct zo_model_config *c = &scope->glm->config;
    const int64_t t = scope->tokens;

    switch (scope->emit->keep) {
    case ZO_KEEP_ALL:
        return ZO_OK;
    case ZO_KEEP_INPUT:
        return forward_inside(scope, saved);
    case ZO_KEEP_COSTLY:
        break;
    }
    ZO_TRY(typed(scope, "norm 1", t, c->hidden_size, &saved->norm1));
    ZO_TRY(floats(scope, "norm 1 statistics", t, &saved->rstd1));
    ZO_TRY(typed(scope, "norm 2", t, c->hidden_size, &saved->norm2));
    ZO_TRY(floats(scope, "norm 2 statistics", t, &saved->rstd2));
    ZO_TRY(typed(scope, "activation", t, c->ffn_size, &saved->act));
    ZO_TRY(emit_norm(scope, saved->norm1, saved->rstd1, scope->emit->input,
                     ZO_GLM_NORM1, ZO_GLM_TOKENS));
    ZO_TRY(emit_norm(scope, saved->norm2, saved->rstd2, saved->middle,
                     ZO_GLM_NORM2, ZO_GLM_TOKENS));
    return EMIT(scope, "swiglu", zo_glm_run_swiglu, NULL,
                whole(scope, saved->act, ZO_WRITE),
                whole(scope, saved->up, ZO_READ));
}

/* From the gradient of the output to that of the middle. */
static enum zo_status backward_mlp(const struct scope *scope,
                                   const struct zo_glm_saved *saved,
                                   zo_buffer_id d_middle)
{
    const struct zo_model_config *c = &scope->glm->config;
    const zo_buffer_id d_out = scope->emit->d_output;
    zo_buffer_id d_act, d_norm2;

    ZO_TRY(typed(scope, "activation gradient", scope->tokens, c->ffn_size,
                 &d_act));
    ZO_TRY(typed(scope, "norm 2 gradient", scope->tokens, c->hidden_size,
                 &d_norm2));
    ZO_TRY(emit_linear_weight(scope, "down weight gradient", ZO_GLM_DOWN, d_out,
                              saved->act));
    ZO_TRY(emit_linear_input(scope, "down input gradient", d_act, d_out,
                             ZO_GLM_DOWN));
    ZO_TRY(EMIT(scope, "swiglu backward", zo_glm_run_swiglu_backward, NULL,
                whole(scope, saved->up, ZO_READ_WRITE),
                whole(scope, d_act, ZO_READ)));
    ZO_TRY(emit_linear_weight(scope, "up weight gradient", ZO_GLM_UP, saved->up,
                              saved->norm2));
    ZO_TRY(emit_linear_input(scope, "up input gradient", d_norm2, saved->up,
                             ZO_GLM_UP));
    return emit_norm_backward(scope, d_middle, ZO_GLM_NORM2, d_norm2,
                              saved->middle, saved->rstd2, d_out);
}

static enum zo_status emit_rope_backward(const struct scope *scope,
                                         zo_buffer_id d_qkv)
{
    const bool first = scope->emit->is_first;
    const int64_t args[4] = {0, !first};

    if (!scope->glm->config.has_qkv_bias) {
        return EMIT(scope, "rope backward", zo_glm_run_rope_backward, args,
                    whole(scope, d_qkv, ZO_READ_WRITE), table(scope),
                    batch(scope), workspace(scope));
    }
    return EMIT(scope, "rope backward", zo_glm_run_rope_backward, args,
                whole(scope, d_qkv, ZO_READ_WRITE), table(scope), batch(scope),
                workspace(scope), sum(scope, ZO_GLM_QKV_BIAS, first));
}

/* From the gradient of the middle to that of the input. */
static enum zo_status backward_attention(const struct scope *scope,
                                         const struct zo_glm_saved *saved,
                                         zo_buffer_id d_middle)
{
    const struct zo_model_config *c = &scope->glm->config;
    const struct zo_emit *emit = scope->emit;
    zo_buffer_id d_attention, d_qkv, d_norm1;

    ZO_TRY(typed(scope, "attention gradient", scope->tokens,
                 scope->glm->head_total, &d_attention));
    ZO_TRY(typed(scope, "qkv gradient", scope->tokens, scope->glm->qkv_width,
                 &d_qkv));
    ZO_TRY(typed(scope, "norm 1 gradient", scope->tokens, c->hidden_size,
                 &d_norm1));
    ZO_TRY(emit_linear_weight(scope, "attention output weight gradient",
                              ZO_GLM_DENSE, d_middle, saved->attention));
    ZO_TRY(emit_linear_input(scope, "attention output input gradient",
                             d_attention, d_middle, ZO_GLM_DENSE));
    ZO_TRY(EMIT(
        scope, "attention backward", zo_glm_run_attention_backward, NULL,
        whole(scope, d_qkv, ZO_WRITE), whole(scope, d_attention, ZO_READ),
        whole(scope, saved->attention, ZO_READ),
        whole(scope, saved->qkv, ZO_READ), whole(scope, saved->lse, ZO_READ),
        batch(scope), workspace(scope)));
    ZO_TRY(emit_rope_backward(scope, d_qkv));
    ZO_TRY(emit_linear_weight(scope, "qkv weight gradient", ZO_GLM_QKV, d_qkv,
                              saved->norm1));
    ZO_TRY(emit_linear_input(scope, "qkv input gradient", d_norm1, d_qkv,
                             ZO_GLM_QKV));
    return emit_norm_backward(scope, emit->d_input, ZO_GLM_NORM1, d_norm1,
                              emit->input, saved->rstd1, d_middle);
}

static enum zo_status backward_layer(const struct scope *scope)
{
    struct zo_glm_saved *saved = saved_of(scope);
    zo_buffer_id d_middle;

    ZO_TRY(recompute(scope, saved));
    ZO_TRY(typed(scope, "middle gradient", scope->tokens,
                 scope->glm->config.hidden_size, &d_middle));
    ZO_TRY(backward_mlp(scope, saved, d_middle));
    return backward_attention(scope, saved, d_middle);
}

enum zo_status zo_glm_backward(void *model, const struct zo_emit *emit)
{
    const struct scope scope = scope_of(model, emit);

    return emit->unit == 0 ? backward_embedding(&scope)
                           : backward_layer(&scope);
}
