#include "bench/kernel_cases.h"

#include <string.h>

#include "src/base/arith.h"

enum { C = 4096, H = 32, G = 2, D = 128, F = 13696, V = 65024, PAIRS = 32 };
enum { QKV = (H + 2 * G) * D };
#define LAYER_ELEMS 203960832

/* ---- arrays ------------------------------------------------------------ */

/* The next bytes of a slab for this call's set. */
static void *take(struct bench *bench, enum slab slab, int64_t bytes)
{
    const size_t at = bench->used[slab];
    const size_t set_bytes = SLAB_BYTES / SETS;

    bench->used[slab] += zo_round_up((uint64_t)bytes, 4096);
    ZO_ASSERT(bench->used[slab] <= (bench->set < 0 ? SLAB_BYTES : set_bytes));
    return bench->slabs[slab] + at +
           (bench->set > 0 ? (size_t)bench->set * set_bytes : 0);
}

static void *small(struct bench *bench, int64_t elems)
{
    return take(bench, SMALL, 2 * elems);
}

static float *wide(struct bench *bench, int64_t elems)
{
    return take(bench, WIDE, 4 * elems);
}

static void *result(struct bench *bench, int64_t bytes)
{
    bench->checked = take(bench, RESULT, bytes);
    bench->checked_bytes = (size_t)bytes;
    return bench->checked;
}

static void *work(struct bench *bench, uint64_t bytes)
{
    return take(bench, RESULT, (int64_t)bytes);
}

/* Rising numbers: 0, 1, 2, ... modulo 2^15 (see fill_slabs). */
static int32_t *numbers(struct bench *bench)
{
    return (int32_t *)(void *)bench->slabs[INDEX];
}

/* row_start of rows of `length` tokens, behind the rising numbers. */
static int32_t *row_start(struct bench *bench)
{
    return (int32_t *)(void *)(bench->slabs[INDEX] + PATTERN_BYTES);
}

static enum zo_status put_row_start(struct bench *bench, int64_t rows,
                                    int64_t length)
{
    int32_t start[65];

    ZO_ASSERT(rows < (int64_t)ZO_COUNT(start));
    for (int64_t r = 0; r <= rows; r++) {
        start[r] = (int32_t)(r * length);
    }
    ZO_TRY(bench->device_ops->copy(bench->stream, row_start(bench), start,
                                   (size_t)(rows + 1) * 4));
    return bench->device_ops->stream_sync(bench->stream);
}

/* ---- cases --------------------------------------------------------------- */

#define CALL(name) bench->ops->name(bench->kernels, bench->stream, &args)

static enum zo_status run_copy(struct bench *bench, const int64_t *shape)
{
    return bench->device_ops->copy(bench->stream, result(bench, shape[0]),
                                   take(bench, SMALL, shape[0]),
                                   (size_t)shape[0]);
}

static enum zo_status run_embedding(struct bench *bench, const int64_t *shape)
{
    const struct zo_embedding_args args = {
        .out = result(bench, shape[0] * C * 2),
        .table = small(bench, (int64_t)V * C),
        .ids = numbers(bench),
        .tokens = shape[0],
        .cols = C,
        .vocab = V,
        .type = ZO_BF16,
    };

    return CALL(embedding);
}

static enum zo_status run_rmsnorm(struct bench *bench, const int64_t *shape)
{
    const struct zo_rmsnorm_args args = {
        .rstd = work(bench, (uint64_t)shape[0] * 4),
        .out = result(bench, shape[0] * C * 2),
        .in = small(bench, shape[0] * C),
        .weight = small(bench, C),
        .rows = shape[0],
        .cols = C,
        .epsilon = 1e-5f,
        .type = ZO_BF16,
    };

    return CALL(rmsnorm);
}

static enum zo_status run_rmsnorm_backward(struct bench *bench,
                                           const int64_t *shape)
{
    const struct zo_rmsnorm_backward_args args = {
        .workspace =
            work(bench, bench->ops->rmsnorm_backward_workspace(shape[0], C)),
        .d_weight = work(bench, C * 4),
        .d_in = result(bench, shape[0] * C * 2),
        .d_out = small(bench, shape[0] * C),
        .d_residual = small(bench, shape[0] * C),
        .in = small(bench, shape[0] * C),
        .rstd = wide(bench, shape[0]),
        .weight = small(bench, C),
        .rows = shape[0],
        .cols = C,
        .type = ZO_BF16,
    };

    return CALL(rmsnorm_backward);
}

static enum zo_status run_rope(struct bench *bench, const int64_t *shape)
{
    const struct zo_rope_args args = {
        .qkv = small(bench, shape[0] * QKV),
        .table = wide(bench, 32768 * PAIRS * 2),
        .positions = numbers(bench),
        .tokens = shape[0],
        .heads = H,
        .groups = G,
        .head_width = D,
        .pairs = PAIRS,
        .type = ZO_BF16,
    };

    return CALL(rope);
}

static enum zo_status run_rope_backward(struct bench *bench,
                                        const int64_t *shape)
{
    const struct zo_rope_backward_args args = {
        .d_qkv = small(bench, shape[0] * QKV),
        .d_bias = work(bench, QKV * 4),
        .table = wide(bench, 32768 * PAIRS * 2),
        .positions = numbers(bench),
        .workspace =
            work(bench, bench->ops->rope_backward_workspace(shape[0], QKV)),
        .tokens = shape[0],
        .heads = H,
        .groups = G,
        .head_width = D,
        .pairs = PAIRS,
        .type = ZO_BF16,
    };

    return CALL(rope_backward);
}

static enum zo_status run_swiglu(struct bench *bench, const int64_t *shape)
{
    const struct zo_swiglu_args args = {
        .out = result(bench, shape[0] * F * 2),
        .in = small(bench, shape[0] * 2 * F),
        .rows = shape[0],
        .inner = F,
        .type = ZO_BF16,
    };

    return CALL(swiglu);
}

static enum zo_status run_swiglu_backward(struct bench *bench,
                                          const int64_t *shape)
{
    const struct zo_swiglu_backward_args args = {
        .d_in = result(bench, shape[0] * 2 * F * 2),
        .d_out = small(bench, shape[0] * F),
        .in = small(bench, shape[0] * 2 * F),
        .rows = shape[0],
        .inner = F,
        .type = ZO_BF16,
    };

    return CALL(swiglu_backward);
}

static enum zo_status run_scatter(struct bench *bench, const int64_t *shape)
{
    const struct zo_scatter_args args = {
        .out = result(bench, shape[0] * C * 2),
        .in = small(bench, shape[1] * C),
        .index = numbers(bench),
        .count = shape[1],
        .rows = shape[0],
        .cols = C,
        .type = ZO_BF16,
    };

    return CALL(scatter);
}

static enum zo_status run_cross_entropy(struct bench *bench,
                                        const int64_t *shape)
{
    const struct zo_cross_entropy_args args = {
        .loss = work(bench, (uint64_t)shape[0] * 4),
        .d_logits = result(bench, shape[0] * V * 2),
        .logits = wide(bench, shape[0] * V),
        .label = numbers(bench),
        .count = shape[0],
        .vocab = V,
        .scale = 1.0f / 4096.0f,
        .type = ZO_BF16,
    };

    return CALL(cross_entropy);
}

static enum zo_status run_cast(struct bench *bench, const int64_t *shape)
{
    const struct zo_cast_args args = {
        .out = result(bench, shape[0] * 2),
        .in = wide(bench, shape[0]),
        .count = shape[0],
        .out_type = ZO_BF16,
        .in_type = ZO_F32,
    };

    return CALL(cast);
}

static enum zo_status run_reduce(struct bench *bench, const int64_t *shape)
{
    const struct zo_reduce_args args = {
        .out = result(bench, shape[0] * 2),
        .parts = small(bench, shape[0] * shape[1]),
        .count = shape[0],
        .part_count = shape[1],
        .part_stride_elems = shape[0],
        .type = ZO_BF16,
        .out_type = ZO_BF16,
    };

    return CALL(reduce);
}

static enum zo_status run_square_norm(struct bench *bench, const int64_t *shape)
{
    const struct zo_square_norm_args args = {
        .result = work(bench, sizeof(struct zo_norm_result)),
        .workspace = work(bench, bench->ops->square_norm_workspace(shape[0])),
        .in = small(bench, shape[0]),
        .count = shape[0],
        .type = ZO_BF16,
    };

    return CALL(square_norm);
}

static enum zo_status run_adamw(struct bench *bench, const int64_t *shape)
{
    const struct zo_adamw_args args = {
        .weight = small(bench, shape[0]),
        .remainder = work(bench, (uint64_t)shape[0] * 2), /* any bits */
        .exp_avg = wide(bench, shape[0]),
        .exp_avg_sq = wide(bench, shape[0]),
        .grad = small(bench, shape[0]),
        .bad = work(bench, 4),
        .count = shape[0],
        .decay_count = shape[0],
        .scalars = {1.0f, 0.9f, 0.1f, 0.999f, 0.001f, 30.0f, 1e-8f, 0.0f, 1e-5f,
                    1},
        .type = ZO_BF16,
    };

    return CALL(adamw);
}

/* shape: m, n, k; bit 0 transpose_a, 1 transpose_b, 2 fp32 sums. */
static enum zo_status run_matmul(struct bench *bench, const int64_t *shape)
{
    const bool is_sum = (shape[3] & 4) != 0;
    void *c = is_sum ? (void *)wide(bench, shape[0] * shape[1])
                     : result(bench, shape[0] * shape[1] * 2);
    const struct zo_matmul_args args = {
        .c = c,
        .a = small(bench, shape[0] * shape[2]),
        .b = small(bench, shape[2] * shape[1]),
        .addend = is_sum ? c : NULL,
        .workspace = work(bench, bench->ops->matmul_workspace()),
        .m = shape[0],
        .n = shape[1],
        .k = shape[2],
        .transpose_a = (shape[3] & 1) != 0,
        .transpose_b = (shape[3] & 2) != 0,
        .type = ZO_BF16,
        .c_type = is_sum ? ZO_F32 : ZO_BF16,
    };

    return CALL(matmul);
}

/* shape: rows, tokens of each. */
static enum zo_status run_attention(struct bench *bench, const int64_t *shape)
{
    const int64_t tokens = shape[0] * shape[1];
    char *qkv = small(bench, tokens * QKV);
    float *lse = work(bench, (uint64_t)(H * tokens) * 4);
    const struct zo_attention_args args = {
        .out = result(bench, tokens * H * D * 2),
        .lse = lse,
        .q = qkv,
        .k = qkv + (size_t)2 * H * D,
        .v = qkv + (size_t)2 * (H + G) * D,
        .row_start = row_start(bench),
        .q_stride_elems = QKV,
        .kv_stride_elems = QKV,
        .rows = shape[0],
        .tokens = tokens,
        .row_tokens_max = shape[1],
        .heads = H,
        .groups = G,
        .head_width = D,
        .scale = 0.0883883f,
        .type = ZO_BF16,
    };

    return CALL(attention);
}

/* After run_attention() of the same set: the same arrays come first. */
static enum zo_status run_attention_backward(struct bench *bench,
                                             const int64_t *shape)
{
    const int64_t tokens = shape[0] * shape[1];
    const void *qkv = small(bench, tokens * QKV);
    const float *lse = work(bench, (uint64_t)(H * tokens) * 4);
    const void *out = work(bench, (uint64_t)(tokens * H * D) * 2);
    const struct zo_attention_backward_args args = {
        .workspace = work(
            bench, bench->ops->attention_backward_workspace(tokens, H, G, D)),
        .d_qkv = result(bench, tokens * QKV * 2),
        .d_out = small(bench, tokens * H * D),
        .out = out,
        .qkv = qkv,
        .lse = lse,
        .row_start = row_start(bench),
        .rows = shape[0],
        .tokens = tokens,
        .row_tokens_max = shape[1],
        .heads = H,
        .groups = G,
        .head_width = D,
        .scale = 0.0883883f,
        .type = ZO_BF16,
    };

    return CALL(attention_backward);
}

/* ---- the list ------------------------------------------------------------ */

static struct bench_case product(int64_t m, int64_t n, int64_t k, int64_t flags)
{
    return (struct bench_case){"matmul",
                               run_matmul,
                               {m, n, k, flags},
                               0.0,
                               2.0 * (double)m * (double)n * (double)k};
}

/* Forward, gradient of the input, gradient of the weight (n, k). */
static size_t add_products(struct bench_case *cases, int64_t tokens, int64_t n,
                           int64_t k)
{
    cases[0] = product(tokens, n, k, 2);
    cases[1] = product(tokens, k, n, 0);
    cases[2] = product(n, k, tokens, 1 | 4);
    return 3;
}

/* Causal: half of the square; 4 D flops a pair forward, 10 D backward. */
static size_t add_attention(struct bench_case *cases, int64_t rows,
                            int64_t length)
{
    const double pairs = 0.5 * (double)rows * (double)length * (double)length;

    cases[0] = (struct bench_case){
        "attention", run_attention, {rows, length}, 0.0, 4.0 * D * H * pairs};
    cases[1] = (struct bench_case){"attention_backward",
                                   run_attention_backward,
                                   {rows, length},
                                   0.0,
                                   10.0 * D * H * pairs};
    return 2;
}

size_t zo_kernel_cases(struct bench_case *cases, int64_t t)
{
    const double row = 2.0 * (double)t; /* bytes of a bf16 column */
    const double layer = LAYER_ELEMS;
    const struct bench_case memory[] = {
        {"copy", run_copy, {(int64_t)2 << 30}, 2.0 * 2147483648.0, 0.0},
        {"embedding", run_embedding, {t}, 2.0 * C * row, 0.0},
        {"rmsnorm", run_rmsnorm, {t}, 2.0 * C * row, 0.0},
        {"rmsnorm_backward", run_rmsnorm_backward, {t}, 4.0 * C * row, 0.0},
        {"rope", run_rope, {t}, 2.0 * QKV * row, 0.0},
        {"rope_backward", run_rope_backward, {t}, 2.0 * QKV * row, 0.0},
        {"swiglu", run_swiglu, {t}, 3.0 * F * row, 0.0},
        {"swiglu_backward", run_swiglu_backward, {t}, 5.0 * F * row, 0.0},
        {"scatter", run_scatter, {t, t / 2}, 1.5 * C * row, 0.0},
        {"cross_entropy", run_cross_entropy, {512}, 6.0 * 512.0 * V, 0.0},
        {"cast", run_cast, {LAYER_ELEMS}, 6.0 * layer, 0.0},
        {"reduce", run_reduce, {LAYER_ELEMS / 2, 2}, 3.0 * layer, 0.0},
        {"square_norm", run_square_norm, {LAYER_ELEMS}, 2.0 * layer, 0.0},
    };
    size_t count = ZO_COUNT(memory);

    memcpy(cases, memory, sizeof(memory));
    count += add_products(cases + count, t, QKV, C);
    count += add_products(cases + count, t, C, C);
    count += add_products(cases + count, t, 2 * F, C);
    count += add_products(cases + count, t, C, F);
    count += add_products(cases + count, 512, V, C);
    count += add_attention(cases + count, 8, 512);
    count += add_attention(cases + count, 8, 2048);
    count += add_attention(cases + count, 1, 8192);
    count += add_attention(cases + count, 1, 32768);
    /* Last: it overwrites the numbers that the others work on, until some
     * are not finite. */
    cases[count++] = (struct bench_case){
        "adamw", run_adamw, {LAYER_ELEMS}, 26.0 * layer, 0.0};
    return count;
}

bool zo_kernel_case_is_copy(const struct bench_case *bench_case)
{
    return bench_case->run == run_copy;
}

bool zo_kernel_case_is_product(const struct bench_case *bench_case)
{
    return bench_case->run == run_matmul;
}

/* Attention reads its rows, and its gradient a forward pass. */
enum zo_status zo_kernel_case_prepare(struct bench *bench,
                                      const struct bench_case *bench_case,
                                      int sets)
{
    if (bench_case->run != run_attention &&
        bench_case->run != run_attention_backward) {
        return ZO_OK;
    }
    ZO_TRY(put_row_start(bench, bench_case->shape[0], bench_case->shape[1]));
    for (int set = -1; set < (sets > 1 ? sets : 0); set++) {
        memset(bench->used, 0, sizeof(bench->used));
        bench->set = set;
        ZO_TRY(run_attention(bench, bench_case->shape));
    }
    return ZO_OK;
}
