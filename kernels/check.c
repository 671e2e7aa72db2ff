#include "kernels/kernels.h"

#include <limits.h>
#include <math.h>

#include "src/base/arith.h"

#define HEADS_MAX      65536
#define HEAD_WIDTH_MAX 1024 /* what backends keep scratch for */

/* ---- the parts that every check is made of --------------------------- */

struct dim {
    const char *name;
    int64_t value, min;
};

enum role {
    ROLE_IN,
    ROLE_OUT,
    ROLE_SAME, /* an input that may also be an output's own memory */
};

/* An array in memory; one of no bytes may be NULL. */
struct span {
    const char *name;
    const void *at;
    int64_t rows, cols; /* elements; rows * cols must not overflow */
    int64_t elem_bytes;
    enum role role;
    bool is_optional; /* NULL is allowed anyway */
};

static enum zo_status check_dims(const char *name, const struct dim *dims,
                                 size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (dims[i].value < dims[i].min) {
            return ZO_FAIL(ZO_E_SHAPE, "%s: %s %lld; want at least %lld", name,
                           dims[i].name, (long long)dims[i].value,
                           (long long)dims[i].min);
        }
        if (dims[i].value > INT_MAX) {
            return ZO_FAIL(ZO_E_SHAPE, "%s: %s %lld; want at most %d", name,
                           dims[i].name, (long long)dims[i].value, INT_MAX);
        }
    }
    return ZO_OK;
}

static enum zo_status check_type(const char *name, enum zo_dtype type)
{
    switch (type) {
    case ZO_F32:
    case ZO_BF16:
    case ZO_F16:
        return ZO_OK;
    }
    return ZO_FAIL(ZO_E_SHAPE, "%s: type %d; want fp32, bf16 or fp16", name,
                   (int)type);
}

static enum zo_status check_multiple(const char *name, const char *dim,
                                     int64_t value, int64_t of)
{
    if (value % of != 0) {
        return ZO_FAIL(ZO_E_SHAPE, "%s: %s %lld; want a multiple of %lld", name,
                       dim, (long long)value, (long long)of);
    }
    return ZO_OK;
}

static enum zo_status span_bytes(const char *name, const struct span *span,
                                 int64_t *bytes_out)
{
    int64_t elems, bytes;

    if (!zo_mul_i64(span->rows, span->cols, &elems) ||
        !zo_mul_i64(elems, span->elem_bytes, &bytes)) {
        return ZO_FAIL(ZO_E_SHAPE, "%s: %s (%lld, %lld) is too large", name,
                       span->name, (long long)span->rows,
                       (long long)span->cols);
    }
    *bytes_out = bytes;
    return ZO_OK;
}

static bool spans_overlap(const struct span *a, int64_t a_bytes,
                          const struct span *b, int64_t b_bytes)
{
    const uintptr_t a_at = (uintptr_t)a->at, b_at = (uintptr_t)b->at;

    return a_bytes > 0 && b_bytes > 0 && a_at < b_at + (uintptr_t)b_bytes &&
           b_at < a_at + (uintptr_t)a_bytes;
}

/* An output may not share memory with anything, but be all of a ROLE_SAME. */
static enum zo_status check_apart(const char *name, const struct span *out,
                                  const struct span *other)
{
    int64_t out_bytes = 0, other_bytes = 0;

    ZO_TRY(span_bytes(name, out, &out_bytes));
    ZO_TRY(span_bytes(name, other, &other_bytes));
    if (out->at == NULL || other->at == NULL ||
        !spans_overlap(out, out_bytes, other, other_bytes) ||
        (other->role == ROLE_SAME && other->at == out->at)) {
        return ZO_OK;
    }
    return ZO_FAIL(ZO_E_ARG, "%s: %s and %s share memory", name, out->name,
                   other->name);
}

static enum zo_status check_spans(const char *name, const struct span *spans,
                                  size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int64_t bytes = 0;

        ZO_TRY(span_bytes(name, &spans[i], &bytes));
        if (bytes > 0 && spans[i].at == NULL && !spans[i].is_optional) {
            return ZO_FAIL(ZO_E_ARG, "%s: %s is NULL", name, spans[i].name);
        }
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            const bool is_pair =
                spans[i].role == ROLE_OUT &&
                (spans[j].role != ROLE_OUT || i < j); /* each pair once */

            if (is_pair) {
                ZO_TRY(check_apart(name, &spans[i], &spans[j]));
            }
        }
    }
    return ZO_OK;
}

static enum zo_status check_finite(const char *name, const char *what,
                                   float value)
{
    if (!isfinite(value)) {
        return ZO_FAIL(ZO_E_ARG, "%s: %s %g; want a finite number", name, what,
                       (double)value);
    }
    return ZO_OK;
}

#define CHECK_DIMS(name, ...)                             \
    check_dims((name), (const struct dim[]){__VA_ARGS__}, \
               ZO_COUNT(((const struct dim[]){__VA_ARGS__})))
#define CHECK_SPANS(name, ...)                              \
    check_spans((name), (const struct span[]){__VA_ARGS__}, \
                ZO_COUNT(((const struct span[]){__VA_ARGS__})))

static int64_t type_bytes(enum zo_dtype type)
{
    return (int64_t)zo_dtype_bytes(type);
}

/* ---- embedding, gather, scatter -------------------------------------- */

enum zo_status zo_embedding_check(const struct zo_embedding_args *args)
{
    const char *name = "embedding";
    const int64_t bytes = type_bytes(args->type);

    ZO_TRY(check_type(name, args->type));
    ZO_TRY(CHECK_DIMS(name, {"tokens", args->tokens, 0},
                      {"cols", args->cols, 1}, {"vocab", args->vocab, 1}));
    return CHECK_SPANS(
        name, {"out", args->out, args->tokens, args->cols, bytes, ROLE_OUT, 0},
        {"table", args->table, args->vocab, args->cols, bytes, ROLE_IN,
         args->tokens == 0},
        {"ids", args->ids, args->tokens, 1, 4, ROLE_IN, 0});
}

enum zo_status
zo_embedding_backward_check(const struct zo_embedding_backward_args *args)
{
    const char *name = "embedding_backward";
    const int64_t any = args->segments > 0; /* lengths are in device memory */

    ZO_TRY(check_type(name, args->type));
    ZO_TRY(CHECK_DIMS(name, {"segments", args->segments, 0},
                      {"cols", args->cols, 1}, {"vocab", args->vocab, 1}));
    if (args->segments > args->vocab) {
        return ZO_FAIL(ZO_E_SHAPE, "%s: %lld segments of %lld distinct ids",
                       name, (long long)args->segments, (long long)args->vocab);
    }
    return CHECK_SPANS(
        name,
        {"d_table", args->d_table, args->vocab, args->cols, 4, ROLE_OUT,
         args->segments == 0},
        {"d_out", args->d_out, any, args->cols, type_bytes(args->type), ROLE_IN,
         0},
        {"order", args->order, any, 1, 4, ROLE_IN, 0},
        {"segment_start", args->segment_start, any ? args->segments + 1 : 0, 1,
         4, ROLE_IN, 0},
        {"segment_id", args->segment_id, args->segments, 1, 4, ROLE_IN, 0});
}

static enum zo_status check_rows_moved(const char *name, int64_t count,
                                       int64_t rows, int64_t cols,
                                       enum zo_dtype type)
{
    ZO_TRY(check_type(name, type));
    ZO_TRY(CHECK_DIMS(name, {"count", count, 0}, {"rows", rows, 0},
                      {"cols", cols, 1}));
    if (count > rows) {
        return ZO_FAIL(ZO_E_SHAPE, "%s: count %lld; want at most %lld rows",
                       name, (long long)count, (long long)rows);
    }
    return ZO_OK;
}

enum zo_status zo_gather_check(const struct zo_gather_args *args)
{
    const char *name = "gather";
    const int64_t bytes = type_bytes(args->type);

    ZO_TRY(check_rows_moved(name, args->count, args->rows, args->cols,
                            args->type));
    return CHECK_SPANS(
        name, {"out", args->out, args->count, args->cols, bytes, ROLE_OUT, 0},
        {"in", args->in, args->rows, args->cols, bytes, ROLE_IN,
         args->count == 0},
        {"index", args->index, args->count, 1, 4, ROLE_IN, 0});
}

enum zo_status zo_scatter_check(const struct zo_scatter_args *args)
{
    const char *name = "scatter";
    const int64_t bytes = type_bytes(args->type);

    ZO_TRY(check_rows_moved(name, args->count, args->rows, args->cols,
                            args->type));
    return CHECK_SPANS(
        name, {"out", args->out, args->rows, args->cols, bytes, ROLE_OUT, 0},
        {"in", args->in, args->count, args->cols, bytes, ROLE_IN, 0},
        {"index", args->index, args->count, 1, 4, ROLE_IN, 0});
}

/* ---- normalisation --------------------------------------------------- */

enum zo_status zo_rmsnorm_check(const struct zo_rmsnorm_args *args)
{
    const char *name = "rmsnorm";
    const int64_t rows = args->rows, cols = args->cols;
    const int64_t bytes = type_bytes(args->type);

    ZO_TRY(check_type(name, args->type));
    ZO_TRY(CHECK_DIMS(name, {"rows", rows, 0}, {"cols", cols, 8}));
    ZO_TRY(check_multiple(name, "cols", cols, 8));
    if (!(args->epsilon > 0.0f) || !isfinite(args->epsilon)) {
        return ZO_FAIL(ZO_E_ARG, "%s: epsilon %g; want above 0", name,
                       (double)args->epsilon);
    }
    return CHECK_SPANS(
        name, {"out", args->out, rows, cols, bytes, ROLE_OUT, 0},
        {"rstd", args->rstd, rows, 1, 4, ROLE_OUT, 0},
        {"in", args->in, rows, cols, bytes, ROLE_IN, 0},
        {"weight", args->weight, rows > 0, cols, bytes, ROLE_IN, 0});
}

enum zo_status
zo_rmsnorm_backward_check(const struct zo_rmsnorm_backward_args *args)
{
    const char *name = "rmsnorm_backward";
    const int64_t rows = args->rows, cols = args->cols;
    const int64_t bytes = type_bytes(args->type);

    ZO_TRY(check_type(name, args->type));
    ZO_TRY(CHECK_DIMS(name, {"rows", rows, 0}, {"cols", cols, 8}));
    ZO_TRY(check_multiple(name, "cols", cols, 8));
    return CHECK_SPANS(
        name, {"d_in", args->d_in, rows, cols, bytes, ROLE_OUT, 0},
        {"d_weight", args->d_weight, 1, cols, 4, ROLE_OUT, 0},
        {"d_out", args->d_out, rows, cols, bytes, ROLE_SAME, 0},
        {"d_residual", args->d_residual, rows, cols, bytes, ROLE_SAME, 1},
        {"in", args->in, rows, cols, bytes, ROLE_IN, 0},
        {"rstd", args->rstd, rows, 1, 4, ROLE_IN, 0},
        {"weight", args->weight, rows > 0, cols, bytes, ROLE_IN, 0});
}

/* ---- products -------------------------------------------------------- */

enum zo_status zo_matmul_check(const struct zo_matmul_args *args)
{
    const char *name = "matmul";
    const int64_t m = args->m, n = args->n, k = args->k;
    const int64_t bytes = type_bytes(args->type);
    const int64_t c_bytes = type_bytes(args->c_type);
    const int64_t any = m > 0 && n > 0; /* else a and b are not read */

    ZO_TRY(check_type(name, args->type));
    ZO_TRY(check_type(name, args->c_type));
    ZO_TRY(CHECK_DIMS(name, {"m", m, 0}, {"n", n, 0}, {"k", k, 0}));
    if (args->c_type != args->type && args->c_type != ZO_F32) {
        return ZO_FAIL(ZO_E_SHAPE, "%s: c of type %s; want %s or fp32", name,
                       zo_dtype_name(args->c_type), zo_dtype_name(args->type));
    }
    return CHECK_SPANS(name, {"c", args->c, m, n, c_bytes, ROLE_OUT, 0},
                       {"a", args->a, any * m, k, bytes, ROLE_IN, 0},
                       {"b", args->b, any * k, n, bytes, ROLE_IN, 0},
                       {"addend", args->addend, m, n, c_bytes, ROLE_SAME, 1});
}

/* ---- rope ------------------------------------------------------------ */

static enum zo_status check_heads(const char *name, int64_t tokens,
                                  int64_t heads, int64_t groups,
                                  int64_t head_width, enum zo_dtype type)
{
    ZO_TRY(check_type(name, type));
    ZO_TRY(CHECK_DIMS(name, {"tokens", tokens, 0}, {"heads", heads, 1},
                      {"groups", groups, 1}, {"head_width", head_width, 1}));
    if (heads > HEADS_MAX || groups > HEADS_MAX ||
        head_width > HEAD_WIDTH_MAX) {
        return ZO_FAIL(ZO_E_SHAPE,
                       "%s: %lld heads, %lld groups of width %lld; want at "
                       "most %d, %d and %d",
                       name, (long long)heads, (long long)groups,
                       (long long)head_width, HEADS_MAX, HEADS_MAX,
                       HEAD_WIDTH_MAX);
    }
    return ZO_OK;
}

static enum zo_status check_pairs(const char *name, int64_t pairs,
                                  int64_t head_width)
{
    ZO_TRY(CHECK_DIMS(name, {"pairs", pairs, 0}));
    if (2 * pairs > head_width) {
        return ZO_FAIL(ZO_E_SHAPE, "%s: %lld pairs in a head of width %lld",
                       name, (long long)pairs, (long long)head_width);
    }
    return ZO_OK;
}

enum zo_status zo_rope_check(const struct zo_rope_args *args)
{
    const char *name = "rope";
    const int64_t tokens = args->tokens, bytes = type_bytes(args->type);
    int64_t width;

    ZO_TRY(check_heads(name, tokens, args->heads, args->groups,
                       args->head_width, args->type));
    ZO_TRY(check_pairs(name, args->pairs, args->head_width));
    width = (args->heads + 2 * args->groups) * args->head_width;
    return CHECK_SPANS(
        name, {"qkv", args->qkv, tokens, width, bytes, ROLE_OUT, 0},
        {"bias", args->bias, tokens > 0, width, bytes, ROLE_IN, 1},
        {"table", args->table, tokens > 0, 2 * args->pairs, 4, ROLE_IN, 0},
        {"positions", args->positions, tokens, args->pairs > 0, 4, ROLE_IN, 0});
}

enum zo_status zo_rope_backward_check(const struct zo_rope_backward_args *args)
{
    const char *name = "rope_backward";
    const int64_t tokens = args->tokens, bytes = type_bytes(args->type);
    int64_t width;

    ZO_TRY(check_heads(name, tokens, args->heads, args->groups,
                       args->head_width, args->type));
    ZO_TRY(check_pairs(name, args->pairs, args->head_width));
    width = (args->heads + 2 * args->groups) * args->head_width;
    return CHECK_SPANS(
        name, {"d_qkv", args->d_qkv, tokens, width, bytes, ROLE_OUT, 0},
        {"d_bias", args->d_bias, 1, width, 4, ROLE_OUT, 1},
        {"table", args->table, tokens > 0, 2 * args->pairs, 4, ROLE_IN, 0},
        {"positions", args->positions, tokens, args->pairs > 0, 4, ROLE_IN, 0});
}

/* ---- attention ------------------------------------------------------- */

static enum zo_status check_rows(const char *name, int64_t rows, int64_t tokens,
                                 int64_t row_tokens_max, int64_t heads,
                                 int64_t groups, float scale)
{
    ZO_TRY(CHECK_DIMS(name, {"rows", rows, 0},
                      {"row_tokens_max", row_tokens_max, 0}));
    ZO_TRY(check_multiple(name, "heads", heads, groups));
    if (row_tokens_max > tokens) {
        return ZO_FAIL(ZO_E_SHAPE,
                       "%s: row_tokens_max %lld; want at most %lld tokens",
                       name, (long long)row_tokens_max, (long long)tokens);
    }
    return check_finite(name, "scale", scale);
}

enum zo_status zo_attention_check(const struct zo_attention_args *args)
{
    const char *name = "attention";
    const int64_t tokens = args->tokens, bytes = type_bytes(args->type);
    const int64_t any = tokens > 0 && args->rows > 0;
    int64_t q_width, kv_width;

    ZO_TRY(check_heads(name, tokens, args->heads, args->groups,
                       args->head_width, args->type));
    ZO_TRY(check_rows(name, args->rows, tokens, args->row_tokens_max,
                      args->heads, args->groups, args->scale));
    q_width = args->heads * args->head_width;
    kv_width = args->groups * args->head_width;
    if (args->q_stride_elems < q_width || args->kv_stride_elems < kv_width) {
        return ZO_FAIL(ZO_E_SHAPE,
                       "%s: strides %lld and %lld; want at least %lld and %lld",
                       name, (long long)args->q_stride_elems,
                       (long long)args->kv_stride_elems, (long long)q_width,
                       (long long)kv_width);
    }
    if ((args->kv_start == NULL) != (args->kv_length == NULL)) {
        return ZO_FAIL(ZO_E_ARG, "%s: kv_start without kv_length, or reversed",
                       name);
    }
    return CHECK_SPANS(
        name, {"out", args->out, tokens, q_width, bytes, ROLE_OUT, 0},
        {"lse", args->lse, args->heads, tokens, 4, ROLE_OUT, 0},
        {"q", args->q, any * tokens, args->q_stride_elems, bytes, ROLE_IN, 0},
        {"k", args->k, any, kv_width, bytes, ROLE_IN, 0},
        {"v", args->v, any, kv_width, bytes, ROLE_IN, 0},
        {"row_start", args->row_start, any * (args->rows + 1), 1, 4, ROLE_IN,
         0});
}

enum zo_status
zo_attention_backward_check(const struct zo_attention_backward_args *args)
{
    const char *name = "attention_backward";
    const int64_t tokens = args->tokens, bytes = type_bytes(args->type);
    const int64_t any = tokens > 0 && args->rows > 0;
    int64_t q_width, qkv_width;

    ZO_TRY(check_heads(name, tokens, args->heads, args->groups,
                       args->head_width, args->type));
    ZO_TRY(check_rows(name, args->rows, tokens, args->row_tokens_max,
                      args->heads, args->groups, args->scale));
    q_width = args->heads * args->head_width;
    qkv_width = q_width + 2 * args->groups * args->head_width;
    return CHECK_SPANS(
        name, {"d_qkv", args->d_qkv, tokens, qkv_width, bytes, ROLE_OUT, 0},
        {"d_out", args->d_out, any * tokens, q_width, bytes, ROLE_IN, 0},
        {"out", args->out, any * tokens, q_width, bytes, ROLE_IN, 0},
        {"qkv", args->qkv, any * tokens, qkv_width, bytes, ROLE_IN, 0},
        {"lse", args->lse, any * args->heads, tokens, 4, ROLE_IN, 0},
        {"row_start", args->row_start, any * (args->rows + 1), 1, 4, ROLE_IN,
         0});
}

/* ---- swiglu ---------------------------------------------------------- */

enum zo_status zo_swiglu_check(const struct zo_swiglu_args *args)
{
    const char *name = "swiglu";
    const int64_t rows = args->rows, inner = args->inner;
    const int64_t bytes = type_bytes(args->type);

    ZO_TRY(check_type(name, args->type));
    ZO_TRY(CHECK_DIMS(name, {"rows", rows, 0}, {"inner", inner, 8}));
    ZO_TRY(check_multiple(name, "inner", inner, 8));
    return CHECK_SPANS(name,
                       {"out", args->out, rows, inner, bytes, ROLE_OUT, 0},
                       {"in", args->in, rows, 2 * inner, bytes, ROLE_IN, 0});
}

enum zo_status
zo_swiglu_backward_check(const struct zo_swiglu_backward_args *args)
{
    const char *name = "swiglu_backward";
    const int64_t rows = args->rows, inner = args->inner;
    const int64_t bytes = type_bytes(args->type);

    ZO_TRY(check_type(name, args->type));
    ZO_TRY(CHECK_DIMS(name, {"rows", rows, 0}, {"inner", inner, 8}));
    ZO_TRY(check_multiple(name, "inner", inner, 8));
    return CHECK_SPANS(
        name, {"d_in", args->d_in, rows, 2 * inner, bytes, ROLE_OUT, 0},
        {"d_out", args->d_out, rows, inner, bytes, ROLE_IN, 0},
        {"in", args->in, rows, 2 * inner, bytes, ROLE_SAME, 0});
}

/* ---- loss ------------------------------------------------------------ */

enum zo_status zo_cross_entropy_check(const struct zo_cross_entropy_args *args)
{
    const char *name = "cross_entropy";
    const int64_t count = args->count, vocab = args->vocab;

    ZO_TRY(check_type(name, args->type));
    ZO_TRY(CHECK_DIMS(name, {"count", count, 0}, {"vocab", vocab, 1}));
    ZO_TRY(check_finite(name, "scale", args->scale));
    return CHECK_SPANS(name, {"loss", args->loss, count, 1, 4, ROLE_OUT, 0},
                       {"d_logits", args->d_logits, count, vocab,
                        type_bytes(args->type), ROLE_OUT, 1},
                       {"logits", args->logits, count, vocab, 4, ROLE_IN, 0},
                       {"label", args->label, count, 1, 4, ROLE_IN, 0});
}

/* ---- elementwise ----------------------------------------------------- */

/* Elements of a whole unit: the one count that may exceed an int. */
static enum zo_status check_count(const char *name, int64_t count)
{
    if (count < 0) {
        return ZO_FAIL(ZO_E_SHAPE, "%s: count %lld; want at least 0", name,
                       (long long)count);
    }
    return ZO_OK;
}

enum zo_status zo_cast_check(const struct zo_cast_args *args)
{
    const char *name = "cast";

    ZO_TRY(check_type(name, args->out_type));
    ZO_TRY(check_type(name, args->in_type));
    ZO_TRY(check_count(name, args->count));
    return CHECK_SPANS(name,
                       {"out", args->out, args->count, 1,
                        type_bytes(args->out_type), ROLE_OUT, 0},
                       {"in", args->in, args->count, 1,
                        type_bytes(args->in_type), ROLE_IN, 0});
}

enum zo_status zo_reduce_check(const struct zo_reduce_args *args)
{
    const char *name = "reduce";
    const int64_t bytes = type_bytes(args->type);
    const int64_t parts_rows = args->count > 0 ? args->part_count : 0;

    ZO_TRY(check_type(name, args->type));
    ZO_TRY(check_type(name, args->out_type));
    ZO_TRY(check_count(name, args->count));
    ZO_TRY(CHECK_DIMS(name, {"part_count", args->part_count, 1}));
    if (args->part_stride_elems < args->count) {
        return ZO_FAIL(ZO_E_SHAPE, "%s: parts of %lld at a stride of %lld",
                       name, (long long)args->count,
                       (long long)args->part_stride_elems);
    }
    return CHECK_SPANS(name,
                       {"out", args->out, args->count, 1,
                        type_bytes(args->out_type), ROLE_OUT, 0},
                       {"parts", args->parts, parts_rows,
                        args->part_stride_elems, bytes,
                        args->type == args->out_type ? ROLE_SAME : ROLE_IN, 0});
}

enum zo_status zo_square_norm_check(const struct zo_square_norm_args *args)
{
    const char *name = "square_norm";

    ZO_TRY(check_type(name, args->type));
    ZO_TRY(check_count(name, args->count));
    return CHECK_SPANS(
        name,
        {"result", args->result, 1, 1, (int64_t)sizeof(*args->result), ROLE_OUT,
         0},
        {"in", args->in, args->count, 1, type_bytes(args->type), ROLE_IN, 0});
}

static enum zo_status check_scalars(const char *name,
                                    const struct zo_adamw_scalars *scalars)
{
    ZO_TRY(check_finite(name, "grad_scale", scalars->grad_scale));
    ZO_TRY(check_finite(name, "beta1", scalars->beta1));
    ZO_TRY(check_finite(name, "one_minus_beta1", scalars->one_minus_beta1));
    ZO_TRY(check_finite(name, "beta2", scalars->beta2));
    ZO_TRY(check_finite(name, "one_minus_beta2", scalars->one_minus_beta2));
    ZO_TRY(check_finite(name, "inverse_root2", scalars->inverse_root2));
    ZO_TRY(check_finite(name, "epsilon", scalars->epsilon));
    ZO_TRY(check_finite(name, "decay", scalars->decay));
    return check_finite(name, "step_size", scalars->step_size);
}

enum zo_status zo_adamw_check(const struct zo_adamw_args *args)
{
    const char *name = "adamw";
    const int64_t count = args->count, bytes = type_bytes(args->type);
    const int64_t moment_bytes = type_bytes(args->moment_type);
    const bool is_bf16 = args->type == ZO_BF16, is_fp16 = args->type == ZO_F16;

    ZO_TRY(check_type(name, args->type));
    if (args->moment_type != ZO_F32 && args->moment_type != ZO_BF16) {
        return ZO_FAIL(ZO_E_SHAPE, "%s: moment type %d; want fp32 or bf16",
                       name, (int)args->moment_type);
    }
    if (args->first_index < 0) {
        return ZO_FAIL(ZO_E_SHAPE, "%s: first_index %lld; want at least 0",
                       name, (long long)args->first_index);
    }
    ZO_TRY(check_count(name, count));
    if (args->decay_count < 0 || args->decay_count > count) {
        return ZO_FAIL(ZO_E_SHAPE, "%s: decay_count %lld of %lld elements",
                       name, (long long)args->decay_count, (long long)count);
    }
    if ((args->remainder != NULL && !is_bf16) ||
        (args->master != NULL && !is_fp16)) {
        return ZO_FAIL(ZO_E_ARG,
                       "%s: remainder is for bf16 and master for fp16; the "
                       "type is %s",
                       name, zo_dtype_name(args->type));
    }
    ZO_TRY(check_scalars(name, &args->scalars));
    return CHECK_SPANS(
        name, {"weight", args->weight, count, 1, bytes, ROLE_OUT, is_fp16},
        {"remainder", args->remainder, is_bf16 ? count : 0, 1, 2, ROLE_OUT, 0},
        {"master", args->master, is_fp16 ? count : 0, 1, 4, ROLE_OUT, 0},
        {"exp_avg", args->exp_avg, count, 1, moment_bytes, ROLE_OUT, 0},
        {"exp_avg_sq", args->exp_avg_sq, count, 1, moment_bytes, ROLE_OUT, 0},
        {"bad", args->bad, count > 0, 1, 4, ROLE_OUT, 0},
        {"grad", args->grad, count, 1, bytes, ROLE_IN, 0});
}
