/*
 * The kernel interface: one table of operations, filled by the host backend
 * (plain C, the oracle) and by CUDA, so that the trainer names an operation
 * and never a device.
 *
 * Layer 3: includes src/base and src/device.
 *
 * Conventions for every operation:
 *  - shapes read outermost first and are row-major and dense; letters are
 *    those of CONTRIBUTING: T tokens of a micro batch (rows of several
 *    sequences, one after another), C width, H heads, G key/value groups,
 *    D head width, F inner width, V vocabulary, L label positions;
 *  - `type` is the model's number type: fp32, bf16 or fp16, for weights,
 *    activations and their gradients alike; arithmetic is fp32 (products
 *    accumulate in fp32), results are rounded once, to nearest even;
 *  - pointers are device pointers of the stream's device, aligned to the
 *    device's align_bytes, borrowed until the stream has passed the call;
 *  - outputs may not overlap inputs unless the comment says "in place";
 *  - a call queues and returns; it never allocates, never synchronises;
 *  - a count of rows, tokens or elements may be 0: the call then writes what
 *    an empty sum writes (zeros where it would set, nothing where it adds);
 *  - the same call gives the same bits every time: no atomics on floats, no
 *    order that depends on timing or on the number of threads;
 *  - ZO_E_SHAPE or ZO_E_ARG means that nothing was queued.
 *
 * Error bounds, against the same formula in double on the same inputs, are
 * relative to the largest |result| of the output: ZO_F32_BOUND for fp32, for
 * a product of K > 64 terms (attention: K keys or D) times sqrt(K / 64); and
 * one rounding of the type more for bf16 (2^-8) and fp16 (2^-11).
 */
#ifndef ZO_KERNELS_KERNELS_H
#define ZO_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/dtype.h"
#include "src/device/device.h"

ZO_C_BEGIN

#define ZO_F32_BOUND 1e-6 /* 16 ulp: an exp or two and a short sum */

struct zo_kernels; /* opaque: what a backend keeps per device */

/* out[t] = table[ids[t]] */
struct zo_embedding_args {
    void *out;          /* (T, C) type */
    const void *table;  /* (V, C) type */
    const int32_t *ids; /* (T), each in 0..V-1: checked when data is read */
    int64_t tokens, cols, vocab;
    enum zo_dtype type;
};

/*
 * d_table[id] += sum of d_out[t] over the tokens t with that id, in order of t.
 * Tokens come grouped by id: segment u, of id segment_id[u], is
 * order[segment_start[u] .. segment_start[u + 1] - 1], ascending.
 */
struct zo_embedding_backward_args {
    float *d_table;               /* (V, C); added to */
    const void *d_out;            /* (T, C) type */
    const int32_t *order;         /* (segment_start[U]) */
    const int32_t *segment_start; /* (U + 1) */
    const int32_t *segment_id;    /* (U), distinct */
    int64_t segments, cols, vocab;
    enum zo_dtype type;
};

/*
 * rstd[r] = 1 / sqrt(mean over c of in[r][c]^2 + epsilon)
 * out[r][c] = in[r][c] * rstd[r] * weight[c]
 */
struct zo_rmsnorm_args {
    void *out;          /* (R, C) type */
    float *rstd;        /* (R); kept for the backward pass */
    const void *in;     /* (R, C) type */
    const void *weight; /* (C) type */
    int64_t rows, cols; /* cols a multiple of 8 */
    float epsilon;      /* > 0 */
    enum zo_dtype type;
};

/*
 * With x = in * rstd and g = d_out * weight, per row:
 *   d_in = rstd * (g - x * mean(g * x)) + d_residual
 *   d_weight[c] += sum over rows of d_out * x       (when add; else =)
 * d_in may be the same memory as d_residual or d_out.
 */
struct zo_rmsnorm_backward_args {
    void *d_in;             /* (R, C) type */
    float *d_weight;        /* (C) */
    const void *d_out;      /* (R, C) type */
    const void *d_residual; /* (R, C) type, or NULL for zero */
    const void *in;         /* (R, C) type */
    const float *rstd;      /* (R) */
    const void *weight;     /* (C) type */
    void *workspace;        /* rmsnorm_backward_workspace() bytes */
    int64_t rows, cols;
    enum zo_dtype type;
    bool add; /* to d_weight */
};

/*
 * c = op(a) op(b) + addend, op(x) being x or its transpose:
 *   a is (M, K), or (K, M) when transpose_a; b is (K, N), or (N, K) when
 *   transpose_b; c and addend are (M, N).
 * addend may be c itself: that is how a weight gradient is summed over the
 * micro batches.  The algorithm depends on shape and types alone.
 */
struct zo_matmul_args {
    void *c;            /* (M, N) c_type */
    const void *a, *b;  /* type */
    const void *addend; /* (M, N) c_type, or NULL for zero */
    void *workspace;    /* matmul_workspace() bytes */
    int64_t m, n, k;
    bool transpose_a, transpose_b;
    enum zo_dtype type;   /* of a and b */
    enum zo_dtype c_type; /* type or ZO_F32 */
};

/*
 * Bias and rotary position embedding on the fused projection, in place:
 * qkv[t] = rotate(qkv[t] + bias): in each of the H query and G key heads the
 * first 2 * P dimensions are pairs (2i, 2i + 1) turned by the angle of
 * position positions[t] and pair i; the other dimensions and the G value
 * heads get the bias alone.  table[p][i] = {cos, sin}.
 */
struct zo_rope_args {
    void *qkv;                /* (T, (H + 2 G) D) type, in place */
    const void *bias;         /* ((H + 2 G) D) type, or NULL */
    const float *table;       /* (positions_max, P, 2) */
    const int32_t *positions; /* (T), each below positions_max */
    int64_t tokens, heads, groups, head_width;
    int64_t pairs; /* P: 2 P <= D */
    enum zo_dtype type;
};

/*
 * The transpose of the rotation, in place, and the gradient of the bias:
 *   d_qkv[t] = rotate_back(d_qkv[t]);
 *   d_bias += sum over t of d_qkv[t] after rounding  (when add; else =)
 */
struct zo_rope_backward_args {
    void *d_qkv;   /* (T, (H + 2 G) D) type, in place */
    float *d_bias; /* ((H + 2 G) D), or NULL */
    const float *table;
    const int32_t *positions;
    void *workspace; /* rope_backward_workspace() bytes */
    int64_t tokens, heads, groups, head_width, pairs;
    enum zo_dtype type;
    bool add; /* to d_bias */
};

/*
 * Causal attention inside each row of a packed batch, grouped queries: query
 * head h reads group h / (H / G).
 *   s = scale * q k^T for keys up to the query's own position, else -inf
 *   out = softmax(s) v;  lse[h][t] = log sum exp s
 * Queries of row r are tokens row_start[r] .. row_start[r + 1] - 1.  With
 * kv_start NULL its keys are the same tokens.  Otherwise (decoding from a
 * cache) they are entries kv_start[r] .. kv_start[r] + kv_length[r] - 1 of k
 * and v, the last of them belonging to the row's last query.
 * Tokens of no row, before row_start[0] or after row_start[R], get out 0 and
 * lse 0, and in the backward pass a gradient of 0.
 */
struct zo_attention_args {
    void *out;                /* (T, H D) type */
    float *lse;               /* (H, T) */
    const void *q;            /* token t at q + t * q_stride elements */
    const void *k, *v;        /* entry e at k + e * kv_stride elements */
    const int32_t *row_start; /* (R + 1) */
    const int32_t *kv_start;  /* (R) or NULL */
    const int32_t *kv_length; /* (R) or NULL */
    int64_t q_stride_elems, kv_stride_elems;
    int64_t rows, tokens;
    int64_t row_tokens_max;            /* of the longest row of this batch */
    int64_t heads, groups, head_width; /* D at most 1024 */
    float scale;
    enum zo_dtype type;
};

/* Training form only: q, k and v are parts of one qkv, and so d_qkv. */
struct zo_attention_backward_args {
    void *d_qkv;              /* (T, (H + 2 G) D) type; all of it is set */
    const void *d_out;        /* (T, H D) type */
    const void *out;          /* (T, H D) type */
    const void *qkv;          /* (T, (H + 2 G) D) type, after rope */
    const float *lse;         /* (H, T) */
    const int32_t *row_start; /* (R + 1) */
    void *workspace;          /* attention_backward_workspace() bytes */
    int64_t rows, tokens, row_tokens_max;
    int64_t heads, groups, head_width;
    float scale;
    enum zo_dtype type;
};

/* out = silu(in[:, :F]) * in[:, F:], silu(a) = a / (1 + exp(-a)) */
struct zo_swiglu_args {
    void *out;           /* (R, F) type */
    const void *in;      /* (R, 2 F) type */
    int64_t rows, inner; /* F a multiple of 8 */
    enum zo_dtype type;
};

struct zo_swiglu_backward_args {
    void *d_in;        /* (R, 2 F) type; may be the same memory as in */
    const void *d_out; /* (R, F) type */
    const void *in;    /* (R, 2 F) type */
    int64_t rows, inner;
    enum zo_dtype type;
};

/* out[l] = in[index[l]]: the positions that have a label. */
struct zo_gather_args {
    void *out;                 /* (L, C) type */
    const void *in;            /* (T, C) type */
    const int32_t *index;      /* (L), ascending, below T */
    int64_t count, rows, cols; /* L, T, C */
    enum zo_dtype type;
};

/* out[index[l]] = in[l]; every other row of out is set to zero. */
struct zo_scatter_args {
    void *out;            /* (T, C) type */
    const void *in;       /* (L, C) type */
    const int32_t *index; /* (L), ascending, below T */
    int64_t count, rows, cols;
    enum zo_dtype type;
};

/*
 * loss[l] = log sum exp logits[l] - logits[l][label[l]]
 * d_logits[l][v] = (softmax(logits[l])[v] - (v == label[l])) * scale, rounded
 * to type; not written when d_logits is NULL (evaluation).
 */
struct zo_cross_entropy_args {
    float *loss;          /* (L) */
    void *d_logits;       /* (L, V) type, or NULL */
    const float *logits;  /* (L, V) */
    const int32_t *label; /* (L), each in 0..V-1 */
    int64_t count, vocab;
    float scale; /* loss scale / label tokens of the step */
    enum zo_dtype type;
};

/* out = in, converted; either type may be any. */
struct zo_cast_args {
    void *out;
    const void *in;
    int64_t count;
    enum zo_dtype out_type, in_type;
};

/* out[i] = round(parts[0][i] + parts[1][i] + ...), in that order, in fp32;
 * one part alone is cast. */
struct zo_reduce_args {
    void *out;         /* (count) out_type; may be parts[0] of that type */
    const void *parts; /* part p at parts + p * part_stride elements, type */
    int64_t count, part_count, part_stride_elems;
    enum zo_dtype type, out_type;
};

/* Result of square_norm, in device memory. */
struct zo_norm_result {
    double square_sum;  /* over the finite elements */
    uint64_t bad_count; /* elements that are not finite */
};

/*
 * Sum of squares, in double, in a fixed tree: blocks of ZO_NORM_BLOCK
 * elements; in a block lane i of ZO_NORM_LANES adds elements i, i + lanes,
 * ... in order, then lanes are folded in halves (lane i += lane i + n / 2);
 * the blocks' sums are added in order.  Same bits on every backend.
 */
#define ZO_NORM_BLOCK 65536
#define ZO_NORM_LANES 256
struct zo_square_norm_args {
    struct zo_norm_result *result;
    const void *in;  /* (count) type */
    void *workspace; /* square_norm_workspace() bytes */
    int64_t count;
    enum zo_dtype type;
};

/* Scalars of one AdamW step: computed in double, rounded once. */
struct zo_adamw_scalars {
    float grad_scale; /* c: 1 / loss scale times the clip coefficient */
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float inverse_root2; /* 1 / sqrt(1 - beta2^t) */
    float epsilon;
    float decay;     /* lr * weight decay */
    float step_size; /* lr / (1 - beta1^t) */
    uint32_t step;   /* t, modulo 2^32: seeds the rounding of bf16 moments */
};

/*
 * AdamW (decoupled weight decay), DESIGN 3, elementwise, in place:
 *   g = float(grad) * c
 *   m = fma(b1, m, (1-b1) * g);  v = fma(b2, v, ((1-b2) * g) * g)
 *   m, v of magnitude below 2^-126 become +0
 *   d = fma(sqrt(v), inverse_root2, eps)
 *   p = fma(-decay, p, p)                  only for elements < decay_count
 *   p = fma(-step_size, m / d, p)
 * IEEE divide and square root, no contraction, no flush: the same bits in
 * scalar C, AVX2, AVX-512 and CUDA.
 *
 * Moments of type bf16 (moment_type; a zero means fp32) are rounded as they
 * are stored; p is made of m and v before that.  Increments of v fall below
 * half a last place as soon as b2 is near 1, so rounding to nearest would
 * freeze it: instead a value goes up with the chance that what falls away is
 * of a last place, which keeps the mean.  The 32 bits of chance are
 *   mix(index ^ mix(step)),  the low half for m and the high half for v,
 *   mix(x): x = (x ^ x >> 16) * 0x21f0aaad; x = (x ^ x >> 15) * 0xd35a2d97;
 *           x ^ x >> 15
 * with index = first_index + i modulo 2^32, and bf16 = (bits + half) >> 16; a
 * NaN becomes 0x7fc0.  So the bits depend on element and step alone, not on
 * tiles, threads or the instruction set.  Against fp32 moments the result
 * changes: m by up to 2^-7 of itself a step; v, in which b2 = 0.999 gathers
 * a thousand such errors, by about 4 % of itself (one standard deviation,
 * normal gradients), hence the size of an element's step by about 2 %.
 *
 * The master p is: type fp32, weight itself; type bf16, the pair of weight
 * (p rounded to nearest, ties away from zero: bits + 0x8000, high half) and
 * remainder (the signed 16-bit difference of the bits); type fp16, master,
 * from which weight is rounded (nearest even) when weight is not NULL.
 */
struct zo_adamw_args {
    void *weight;       /* (count) type */
    int16_t *remainder; /* (count), bf16 only, else NULL */
    float *master;      /* (count), fp16 only, else NULL */
    void *exp_avg;      /* (count) moment_type: m */
    void *exp_avg_sq;   /* (count) moment_type: v */
    const void *grad;   /* (count) type */
    uint32_t *bad;      /* set to 1 if a new master or its weight in the
                           model's type is not finite; else untouched */
    int64_t count;
    int64_t decay_count; /* elements, from the first, that decay */
    int64_t first_index; /* of element 0 in its unit: for rounding alone */
    struct zo_adamw_scalars scalars;
    enum zo_dtype type;
    enum zo_dtype moment_type; /* ZO_F32 or ZO_BF16 */
};

struct zo_kernels_options {
    struct zo_pool *pool; /* borrowed until close; host backend only */
};

struct zo_kernel_ops {
    const char *kind; /* matches zo_device_ops.kind */

    /* What a backend needs per device (handles, scratch); not in a step. */
    enum zo_status (*open)(struct zo_device *device,
                           const struct zo_kernels_options *options,
                           struct zo_kernels **kernels_out);
    void (*close)(struct zo_kernels *kernels); /* NULL is allowed */
    /* Host and device bytes that open() took, for the plan. */
    uint64_t (*own_device_bytes)(const struct zo_kernels *kernels);

    /* Workspace sizes in bytes, for the largest call that will be made. */
    uint64_t (*matmul_workspace)(void);
    uint64_t (*rmsnorm_backward_workspace)(int64_t rows, int64_t cols);
    uint64_t (*rope_backward_workspace)(int64_t tokens, int64_t width);
    uint64_t (*attention_backward_workspace)(int64_t tokens, int64_t heads,
                                             int64_t groups,
                                             int64_t head_width);
    uint64_t (*square_norm_workspace)(int64_t count);

#define ZO_KERNEL(name)                                 \
    enum zo_status (*name)(struct zo_kernels * kernels, \
                           struct zo_stream * stream,   \
                           const struct zo_##name##_args *args)
    ZO_KERNEL(embedding);
    ZO_KERNEL(embedding_backward);
    ZO_KERNEL(rmsnorm);
    ZO_KERNEL(rmsnorm_backward);
    ZO_KERNEL(matmul);
    ZO_KERNEL(rope);
    ZO_KERNEL(rope_backward);
    ZO_KERNEL(attention);
    ZO_KERNEL(attention_backward);
    ZO_KERNEL(swiglu);
    ZO_KERNEL(swiglu_backward);
    ZO_KERNEL(gather);
    ZO_KERNEL(scatter);
    ZO_KERNEL(cross_entropy);
    ZO_KERNEL(cast);
    ZO_KERNEL(reduce);
    ZO_KERNEL(square_norm);
    ZO_KERNEL(adamw);
#undef ZO_KERNEL
};

extern const struct zo_kernel_ops zo_kernels_host;
extern const struct zo_kernel_ops zo_kernels_cuda; /* a stub without CUDA */

/* The argument rules above, in one place for every backend: ZO_E_SHAPE or
 * ZO_E_ARG with a sentence.  kernels/check.c. */
#define ZO_KERNEL_CHECK(name)                                             \
    enum zo_status zo_##name##_check(const struct zo_##name##_args *args) \
        ZO_MUST_CHECK
ZO_KERNEL_CHECK(embedding);
ZO_KERNEL_CHECK(embedding_backward);
ZO_KERNEL_CHECK(rmsnorm);
ZO_KERNEL_CHECK(rmsnorm_backward);
ZO_KERNEL_CHECK(matmul);
ZO_KERNEL_CHECK(rope);
ZO_KERNEL_CHECK(rope_backward);
ZO_KERNEL_CHECK(attention);
ZO_KERNEL_CHECK(attention_backward);
ZO_KERNEL_CHECK(swiglu);
ZO_KERNEL_CHECK(swiglu_backward);
ZO_KERNEL_CHECK(gather);
ZO_KERNEL_CHECK(scatter);
ZO_KERNEL_CHECK(cross_entropy);
ZO_KERNEL_CHECK(cast);
ZO_KERNEL_CHECK(reduce);
ZO_KERNEL_CHECK(square_norm);
ZO_KERNEL_CHECK(adamw);
#undef ZO_KERNEL_CHECK

ZO_C_END

#endif
