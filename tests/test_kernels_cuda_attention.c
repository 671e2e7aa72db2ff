/*
 * Attention on cuda, in each of its forms, against the host's.
 *
 * Method: tests/kernel_pair.h.  Which form runs follows from the type, the
 * head width and the GPU: fp32 and odd widths have the plain one, widths of
 * 16 to 128 in 16 bits the tensor cores.  Rows lie around the tiles' borders
 * (1, 15, 16, 17, 63, 64, 65, 127, 128, 129 tokens), some tokens are of no
 * row, and a batch mixes lengths.
 *
 * The oracle sums probabilities in fp32; tensor cores take them in the
 * model's type, which is the one rounding more of kernels.h.
 */
#include "tests/kernel_pair.h"

static struct pair pair;
static const enum zo_dtype types[] = {ZO_F32, ZO_BF16, ZO_F16};

#define AT(trial, index) ((trial)->arrays[index].at[which])

#define ROWS_MAX 12

struct attention_shape {
    int64_t heads, groups, width;
    int64_t before, after; /* tokens of no row */
    int64_t rows;
    int32_t lengths[ROWS_MAX]; /* queries of a row */
    int32_t cached[ROWS_MAX];  /* keys before them; decoding only */
    bool is_decoding;
    float scale;
    enum zo_dtype type;
};

static int64_t tokens_of(const struct attention_shape *shape)
{
    int64_t tokens = shape->before + shape->after;

    for (int64_t r = 0; r < shape->rows; r++) {
        tokens += shape->lengths[r];
    }
    return tokens;
}

static int64_t longest_of(const struct attention_shape *shape)
{
    int64_t longest = 0;

    for (int64_t r = 0; r < shape->rows; r++) {
        longest = shape->lengths[r] > longest ? shape->lengths[r] : longest;
    }
    return longest;
}

static const char *label_of(const struct attention_shape *shape, char *text,
                            size_t text_bytes)
{
    (void)snprintf(text, text_bytes,
                   "%s %lld heads, %lld groups of %lld, %lld rows of at most "
                   "%lld",
                   zo_dtype_name(shape->type), (long long)shape->heads,
                   (long long)shape->groups, (long long)shape->width,
                   (long long)shape->rows, (long long)longest_of(shape));
    return text;
}

static void fill_row_start(struct array *array,
                           const struct attention_shape *shape)
{
    int32_t *start = array->initial;

    start[0] = (int32_t)shape->before;
    for (int64_t r = 0; r < shape->rows; r++) {
        start[r + 1] = start[r] + shape->lengths[r];
    }
}

/* ---- training: forward and backward over one qkv ----------------------- */

enum { OUT, LSE, D_QKV, D_OUT, QKV, ROW_START, WORKSPACE };

static enum zo_status run_training(const struct side *side, int which,
                                   const struct trial *trial,
                                   const void *context)
{
    const struct attention_shape *shape = context;
    const int64_t q_width = shape->heads * shape->width;
    const int64_t kv_width = shape->groups * shape->width;
    const size_t bytes = zo_dtype_bytes(shape->type);
    const char *qkv = AT(trial, QKV);
    const struct zo_attention_args forward = {
        .out = AT(trial, OUT),
        .lse = AT(trial, LSE),
        .q = qkv,
        .k = qkv + (size_t)q_width * bytes,
        .v = qkv + (size_t)(q_width + kv_width) * bytes,
        .row_start = AT(trial, ROW_START),
        .q_stride_elems = q_width + 2 * kv_width,
        .kv_stride_elems = q_width + 2 * kv_width,
        .rows = shape->rows,
        .tokens = tokens_of(shape),
        .row_tokens_max = longest_of(shape),
        .heads = shape->heads,
        .groups = shape->groups,
        .head_width = shape->width,
        .scale = shape->scale,
        .type = shape->type,
    };
    const struct zo_attention_backward_args backward = {
        .d_qkv = AT(trial, D_QKV),
        .d_out = AT(trial, D_OUT),
        .out = AT(trial, OUT),
        .qkv = AT(trial, QKV),
        .lse = AT(trial, LSE),
        .row_start = AT(trial, ROW_START),
        .workspace = AT(trial, WORKSPACE),
        .rows = shape->rows,
        .tokens = tokens_of(shape),
        .row_tokens_max = longest_of(shape),
        .heads = shape->heads,
        .groups = shape->groups,
        .head_width = shape->width,
        .scale = shape->scale,
        .type = shape->type,
    };

    ZO_TRY(side->ops->attention(side->kernels, side->stream, &forward));
    return side->ops->attention_backward(side->kernels, side->stream,
                                         &backward);
}

static int64_t workspace_of(const struct attention_shape *shape)
{
    const int64_t tokens = tokens_of(shape);
    const uint64_t host = zo_kernels_host.attention_backward_workspace(
        tokens, shape->heads, shape->groups, shape->width);
    const uint64_t cuda = zo_kernels_cuda.attention_backward_workspace(
        tokens, shape->heads, shape->groups, shape->width);

    return (int64_t)(host > cuda ? host : cuda);
}

static bool try_training(const struct attention_shape *shape, uint64_t *random)
{
    const int64_t tokens = tokens_of(shape);
    const int64_t q_elems = tokens * shape->heads * shape->width;
    const int64_t qkv_elems =
        tokens * (shape->heads + 2 * shape->groups) * shape->width;
    const int64_t terms = longest_of(shape) * shape->heads / shape->groups;
    struct trial trial;
    char label[120];

    trial_begin(&trial, &pair, "%s", label_of(shape, label, sizeof(label)));
    (void)trial_add(&trial, "out", shape->type, q_elems, ROLE_OUT,
                    bound_of(shape->type, longest_of(shape)));
    (void)trial_add(&trial, "lse", ZO_F32, shape->heads * tokens, ROLE_OUT,
                    /* a product of `width` terms, a sum over the keys */
                    bound_of(ZO_F32, longest_of(shape) > shape->width
                                         ? longest_of(shape)
                                         : shape->width));
    (void)trial_add(&trial, "d_qkv", shape->type, qkv_elems, ROLE_OUT,
                    bound_of(shape->type, terms));
    fill_random(
        trial_add(&trial, "d_out", shape->type, q_elems, ROLE_IN, EXACT),
        random, 1.0f);
    fill_random(
        trial_add(&trial, "qkv", shape->type, qkv_elems, ROLE_IN, EXACT),
        random, 2.0f);
    fill_row_start(trial_add(&trial, "row_start", BYTES, (shape->rows + 1) * 4,
                             ROLE_IN, EXACT),
                   shape);
    (void)trial_add(&trial, "workspace", BYTES, workspace_of(shape), ROLE_WORK,
                    EXACT);
    return trial_run(&trial, run_training, shape);
}

static void test_training(void)
{
    static const struct attention_shape shapes[] = {
        {1, 1, 16, 0, 0, 1, {1}, {0}, false, 0.25f, ZO_F32},
        {2, 1, 16, 0, 0, 3, {5, 1, 17}, {0}, false, 0.25f, ZO_F32},
        {4, 2, 32, 3, 2, 4, {64, 0, 65, 63}, {0}, false, 0.2f, ZO_F32},
        {6, 2, 64, 0, 7, 3, {127, 128, 129}, {0}, false, 0.125f, ZO_F32},
        {4, 1, 128, 1, 0, 3, {15, 200, 16}, {0}, false, 0.088f, ZO_F32},
        {32, 2, 128, 0, 0, 2, {70, 130}, {0}, false, 0.088f, ZO_F32},
        {10, 2, 128, 0, 0, 1, {40}, {0}, false, 0.088f, ZO_F32},
        {2, 2, 24, 0, 1, 2, {33, 40}, {0}, false, 0.2f, ZO_F32},
        {2, 1, 7, 0, 0, 2, {9, 20}, {0}, false, 0.3f, ZO_F32},
        {2, 1, 300, 0, 0, 1, {21}, {0}, false, 0.06f, ZO_F32},
        {2, 1, 16, 0, 0, 1, {30}, {0}, false, -0.25f, ZO_F32},
        {2, 1, 64, 2, 3, 0, {0}, {0}, false, 0.125f, ZO_F32},
        {2, 1, 64, 0, 3, 2, {0, 0}, {0}, false, 0.125f, ZO_F32},
    };
    uint64_t random = 21;

    if (!pair_ready(&pair)) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(shapes) * TAP_COUNT(types); i++) {
        struct attention_shape shape = shapes[i / TAP_COUNT(types)];

        shape.type = types[i % TAP_COUNT(types)];
        if (!try_training(&shape, &random)) {
            return;
        }
    }
}

/* Tiles of every kind, on and off the diagonal, in one batch. */
static void test_mixed_rows(void)
{
    const struct attention_shape shape = {
        4,   2,     128,    0,       6, 6, {700, 31, 256, 1, 129, 384},
        {0}, false, 0.088f, ZO_BF16,
    };
    uint64_t random = 22;

    if (pair_ready(&pair)) {
        (void)try_training(&shape, &random);
    }
}

static void test_long_row(void)
{
    const struct attention_shape shape = {
        2, 1, 128, 0, 0, 1, {32768}, {0}, false, 0.088f, ZO_BF16,
    };
    uint64_t random = 23;

    if (pair_ready(&pair)) {
        (void)try_training(&shape, &random);
    }
}

/* ---- decoding ----------------------------------------------------------- */

enum { DEC_OUT, DEC_LSE, DEC_Q, DEC_KV, DEC_ROW_START, DEC_START, DEC_LENGTH };

#define SLACK 5 /* entries of the cache between two rows */

static int64_t entries_of(const struct attention_shape *shape)
{
    int64_t entries = SLACK;

    for (int64_t r = 0; r < shape->rows; r++) {
        entries += shape->cached[r] + shape->lengths[r] + SLACK;
    }
    return entries;
}

static enum zo_status run_decoding(const struct side *side, int which,
                                   const struct trial *trial,
                                   const void *context)
{
    const struct attention_shape *shape = context;
    const int64_t kv_width = shape->groups * shape->width;
    const char *kv = AT(trial, DEC_KV);
    const struct zo_attention_args args = {
        .out = AT(trial, DEC_OUT),
        .lse = AT(trial, DEC_LSE),
        .q = AT(trial, DEC_Q),
        .k = kv,
        .v = kv + (size_t)kv_width * zo_dtype_bytes(shape->type),
        .row_start = AT(trial, DEC_ROW_START),
        .kv_start = AT(trial, DEC_START),
        .kv_length = AT(trial, DEC_LENGTH),
        .q_stride_elems = shape->heads * shape->width + 8,
        .kv_stride_elems = 2 * kv_width,
        .rows = shape->rows,
        .tokens = tokens_of(shape),
        .row_tokens_max = longest_of(shape),
        .heads = shape->heads,
        .groups = shape->groups,
        .head_width = shape->width,
        .scale = shape->scale,
        .type = shape->type,
    };

    return side->ops->attention(side->kernels, side->stream, &args);
}

static void fill_cache(const struct attention_shape *shape, struct array *start,
                       struct array *length)
{
    int32_t at = (int32_t)entries_of(shape);

    /* The last row first: rows of a cache lie in any order. */
    for (int64_t r = 0; r < shape->rows; r++) {
        const int32_t keys = shape->cached[r] + shape->lengths[r];

        at -= keys + SLACK;
        ((int32_t *)start->initial)[r] = at;
        ((int32_t *)length->initial)[r] = keys;
    }
}

static bool try_decoding(const struct attention_shape *shape, uint64_t *random)
{
    const int64_t tokens = tokens_of(shape);
    const int64_t q_width = shape->heads * shape->width;
    struct array *start, *length;
    struct trial trial;
    char label[120];

    trial_begin(&trial, &pair, "decoding: %s",
                label_of(shape, label, sizeof(label)));
    (void)trial_add(&trial, "out", shape->type, tokens * q_width, ROLE_OUT,
                    bound_of(shape->type, 1000));
    (void)trial_add(&trial, "lse", ZO_F32, shape->heads * tokens, ROLE_OUT,
                    bound_of(ZO_F32, shape->width));
    fill_random(trial_add(&trial, "q", shape->type, tokens * (q_width + 8),
                          ROLE_IN, EXACT),
                random, 2.0f);
    fill_random(trial_add(&trial, "kv", shape->type,
                          entries_of(shape) * 2 * shape->groups * shape->width,
                          ROLE_IN, EXACT),
                random, 2.0f);
    fill_row_start(trial_add(&trial, "row_start", BYTES, (shape->rows + 1) * 4,
                             ROLE_IN, EXACT),
                   shape);
    start =
        trial_add(&trial, "kv_start", BYTES, shape->rows * 4, ROLE_IN, EXACT);
    length =
        trial_add(&trial, "kv_length", BYTES, shape->rows * 4, ROLE_IN, EXACT);
    fill_cache(shape, start, length);
    return trial_run(&trial, run_decoding, shape);
}

static void test_decoding(void)
{
    static const struct attention_shape shapes[] = {
        {2, 1, 16, 0, 0, 1, {1}, {0}, true, 0.25f, ZO_F32},
        {4, 2, 64, 0, 0, 3, {1, 1, 1}, {100, 63, 900}, true, 0.125f, ZO_F32},
        {32, 2, 128, 0, 2, 2, {1, 1}, {70, 300}, true, 0.088f, ZO_F32},
        {4, 1, 128, 0, 0, 3, {140, 3, 65}, {10, 0, 64}, true, 0.088f, ZO_F32},
        {2, 2, 24, 0, 0, 2, {2, 1}, {5, 40}, true, 0.2f, ZO_F32},
    };
    uint64_t random = 24;

    if (!pair_ready(&pair)) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(shapes) * TAP_COUNT(types); i++) {
        struct attention_shape shape = shapes[i / TAP_COUNT(types)];

        shape.type = types[i % TAP_COUNT(types)];
        if (!try_decoding(&shape, &random)) {
            return;
        }
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"attention and its gradient agree with the host", test_training},
        {"rows of many lengths do not touch each other", test_mixed_rows},
        {"decoding reads a row's keys from its cache", test_decoding},
        {"a row of 32768 tokens works", test_long_row},
    };
    const int code = tap_run(cases, TAP_COUNT(cases));

    pair_close(&pair);
    return code;
}
