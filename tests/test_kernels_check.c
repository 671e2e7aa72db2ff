/*
 * Arguments that operations refuse.
 *
 * Method: from arguments that pass, one field at a time is made wrong; the
 * call must give its status, and afterwards not a byte of memory may have
 * changed.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tests/rig.h"
#include "tests/tap.h"

#define REGION_BYTES 4096
#define REGIONS      12

static unsigned char memory[REGIONS * REGION_BYTES];

/* Memory that no other region shares. */
static void *region(int index)
{
    return memory + index * REGION_BYTES;
}

static struct rig rig; /* of the running case */

static void expect(const char *what, enum zo_status got, enum zo_status want)
{
    if (got != want) {
        tap_fail(__FILE__, __LINE__, "%s: %s, want %s", what,
                 zo_status_text((int)got), zo_status_text((int)want));
    }
}

static bool begin(void)
{
    memset(memory, 0x5c, sizeof(memory));
    return rig_open_host(&rig, 0);
}

static void end(void)
{
    expect("sync", rig.device_ops->stream_sync(rig.stream), ZO_OK);
    rig_close(&rig);
    for (size_t i = 0; i < sizeof(memory); i++) {
        if (memory[i] != 0x5c) {
            tap_fail(__FILE__, __LINE__, "byte %zu was written", i);
            return;
        }
    }
}

/* The good arguments with one field changed. */
#define BAD(op, field, value, status)                                       \
    do {                                                                    \
        struct zo_##op##_args bad_ = good;                                  \
        bad_.field = (value);                                               \
        expect(#op ": " #field " = " #value,                                \
               zo_kernels_host.op(rig.kernels, rig.stream, &bad_), status); \
    } while (0)

#define BAD_TYPE(op) BAD(op, type, (enum zo_dtype)3, ZO_E_SHAPE)

static void test_rows(void)
{
    TAP_CHECK(begin());
    {
        const struct zo_embedding_args good = {
            region(0), region(1), region(2), 3, 8, 5, ZO_F32};
        expect("embedding", zo_embedding_check(&good), ZO_OK);
        BAD_TYPE(embedding);
        BAD(embedding, tokens, -1, ZO_E_SHAPE);
        BAD(embedding, tokens, (int64_t)1 << 40, ZO_E_SHAPE);
        BAD(embedding, cols, 0, ZO_E_SHAPE);
        BAD(embedding, vocab, 0, ZO_E_SHAPE);
        BAD(embedding, out, NULL, ZO_E_ARG);
        BAD(embedding, table, NULL, ZO_E_ARG);
        BAD(embedding, ids, NULL, ZO_E_ARG);
        BAD(embedding, out, region(1), ZO_E_ARG);
    }
    {
        const struct zo_embedding_backward_args good = {
            region(0), region(1), region(2), region(3), region(4),
            3,         8,         5,         ZO_BF16};
        expect("embedding_backward", zo_embedding_backward_check(&good), ZO_OK);
        BAD_TYPE(embedding_backward);
        BAD(embedding_backward, segments, -1, ZO_E_SHAPE);
        BAD(embedding_backward, segments, 6, ZO_E_SHAPE);
        BAD(embedding_backward, cols, -8, ZO_E_SHAPE);
        BAD(embedding_backward, d_table, NULL, ZO_E_ARG);
        BAD(embedding_backward, d_out, NULL, ZO_E_ARG);
        BAD(embedding_backward, order, NULL, ZO_E_ARG);
        BAD(embedding_backward, segment_start, NULL, ZO_E_ARG);
        BAD(embedding_backward, segment_id, NULL, ZO_E_ARG);
        BAD(embedding_backward, d_out, region(0), ZO_E_ARG);
    }
    {
        const struct zo_gather_args good = {region(0), region(1), region(2), 3,
                                            6,         8,         ZO_F16};
        expect("gather", zo_gather_check(&good), ZO_OK);
        BAD_TYPE(gather);
        BAD(gather, count, 7, ZO_E_SHAPE);
        BAD(gather, count, -1, ZO_E_SHAPE);
        BAD(gather, rows, -1, ZO_E_SHAPE);
        BAD(gather, cols, 0, ZO_E_SHAPE);
        BAD(gather, out, NULL, ZO_E_ARG);
        BAD(gather, in, NULL, ZO_E_ARG);
        BAD(gather, index, NULL, ZO_E_ARG);
        BAD(gather, in, region(0), ZO_E_ARG);
    }
    {
        const struct zo_scatter_args good = {region(0), region(1), region(2), 3,
                                             6,         8,         ZO_F16};
        expect("scatter", zo_scatter_check(&good), ZO_OK);
        BAD_TYPE(scatter);
        BAD(scatter, count, 7, ZO_E_SHAPE);
        BAD(scatter, out, NULL, ZO_E_ARG);
        BAD(scatter, in, NULL, ZO_E_ARG);
        BAD(scatter, index, NULL, ZO_E_ARG);
        BAD(scatter, in, region(0), ZO_E_ARG);
    }
    end();
}

static void test_rmsnorm(void)
{
    TAP_CHECK(begin());
    {
        const struct zo_rmsnorm_args good = {
            region(0), region(1), region(2), region(3), 3, 16, 1e-5f, ZO_F32};
        expect("rmsnorm", zo_rmsnorm_check(&good), ZO_OK);
        BAD_TYPE(rmsnorm);
        BAD(rmsnorm, rows, -1, ZO_E_SHAPE);
        BAD(rmsnorm, cols, 0, ZO_E_SHAPE);
        BAD(rmsnorm, cols, 12, ZO_E_SHAPE);
        TAP_CHECK(strstr(zo_err_last()->text, "multiple of 8") != NULL);
        BAD(rmsnorm, epsilon, 0.0f, ZO_E_ARG);
        BAD(rmsnorm, epsilon, -1.0f, ZO_E_ARG);
        BAD(rmsnorm, epsilon, NAN, ZO_E_ARG);
        BAD(rmsnorm, epsilon, INFINITY, ZO_E_ARG);
        BAD(rmsnorm, out, NULL, ZO_E_ARG);
        BAD(rmsnorm, rstd, NULL, ZO_E_ARG);
        BAD(rmsnorm, in, NULL, ZO_E_ARG);
        BAD(rmsnorm, weight, NULL, ZO_E_ARG);
        BAD(rmsnorm, out, region(2), ZO_E_ARG);
        BAD(rmsnorm, rstd, region(0), ZO_E_ARG);
        TAP_CHECK(strstr(zo_err_last()->text, "share memory") != NULL);
    }
    {
        struct zo_rmsnorm_backward_args good = {
            region(0), region(1), region(2), region(3), region(4), region(5),
            region(6), region(7), 3,         16,        ZO_BF16,   false};
        expect("rmsnorm_backward", zo_rmsnorm_backward_check(&good), ZO_OK);
        BAD_TYPE(rmsnorm_backward);
        BAD(rmsnorm_backward, rows, -1, ZO_E_SHAPE);
        BAD(rmsnorm_backward, cols, 9, ZO_E_SHAPE);
        BAD(rmsnorm_backward, d_in, NULL, ZO_E_ARG);
        BAD(rmsnorm_backward, d_weight, NULL, ZO_E_ARG);
        BAD(rmsnorm_backward, d_out, NULL, ZO_E_ARG);
        BAD(rmsnorm_backward, in, NULL, ZO_E_ARG);
        BAD(rmsnorm_backward, rstd, NULL, ZO_E_ARG);
        BAD(rmsnorm_backward, weight, NULL, ZO_E_ARG);
        BAD(rmsnorm_backward, workspace, NULL, ZO_E_ARG);
        BAD(rmsnorm_backward, d_in, region(4), ZO_E_ARG);
        BAD(rmsnorm_backward, d_in, (char *)region(2) + 16, ZO_E_ARG);
        good.d_residual = NULL;
        expect("no residual", zo_rmsnorm_backward_check(&good), ZO_OK);
        good.d_in = region(2); /* d_out itself */
        expect("in place", zo_rmsnorm_backward_check(&good), ZO_OK);
    }
    end();
}

static void test_matmul(void)
{
    TAP_CHECK(begin());
    {
        struct zo_matmul_args good = {
            .c = region(0),
            .a = region(1),
            .b = region(2),
            .addend = region(3),
            .m = 3,
            .n = 4,
            .k = 5,
            .type = ZO_BF16,
            .c_type = ZO_F32,
        };
        expect("matmul", zo_matmul_check(&good), ZO_OK);
        BAD_TYPE(matmul);
        BAD(matmul, c_type, (enum zo_dtype)7, ZO_E_SHAPE);
        BAD(matmul, c_type, ZO_F16, ZO_E_SHAPE);
        BAD(matmul, m, -1, ZO_E_SHAPE);
        BAD(matmul, n, -1, ZO_E_SHAPE);
        BAD(matmul, k, -1, ZO_E_SHAPE);
        BAD(matmul, k, (int64_t)1 << 31, ZO_E_SHAPE);
        BAD(matmul, c, NULL, ZO_E_ARG);
        BAD(matmul, a, NULL, ZO_E_ARG);
        BAD(matmul, b, NULL, ZO_E_ARG);
        BAD(matmul, a, region(0), ZO_E_ARG);
        BAD(matmul, addend, (char *)region(0) + 4, ZO_E_ARG);
        good.addend = good.c;
        expect("added to c", zo_matmul_check(&good), ZO_OK);
        good.addend = NULL;
        good.k = 0;
        good.a = good.b = NULL;
        expect("an empty sum", zo_matmul_check(&good), ZO_OK);
    }
    end();
}

static void test_rope(void)
{
    TAP_CHECK(begin());
    {
        struct zo_rope_args good = {
            region(0), region(1), region(2), region(3), 3, 4, 2, 8, 2, ZO_F16};
        expect("rope", zo_rope_check(&good), ZO_OK);
        BAD_TYPE(rope);
        BAD(rope, tokens, -1, ZO_E_SHAPE);
        BAD(rope, heads, 0, ZO_E_SHAPE);
        BAD(rope, groups, 0, ZO_E_SHAPE);
        BAD(rope, head_width, 0, ZO_E_SHAPE);
        BAD(rope, head_width, 1025, ZO_E_SHAPE);
        BAD(rope, heads, 1 << 20, ZO_E_SHAPE);
        BAD(rope, pairs, 5, ZO_E_SHAPE);
        BAD(rope, pairs, -1, ZO_E_SHAPE);
        BAD(rope, qkv, NULL, ZO_E_ARG);
        BAD(rope, table, NULL, ZO_E_ARG);
        BAD(rope, positions, NULL, ZO_E_ARG);
        BAD(rope, bias, region(0), ZO_E_ARG);
        good.bias = NULL;
        expect("no bias", zo_rope_check(&good), ZO_OK);
    }
    {
        struct zo_rope_backward_args good = {
            region(0), region(1), region(2), region(3), region(4), 3,
            4,         2,         8,         2,         ZO_F16,    true};
        expect("rope_backward", zo_rope_backward_check(&good), ZO_OK);
        BAD_TYPE(rope_backward);
        BAD(rope_backward, tokens, -1, ZO_E_SHAPE);
        BAD(rope_backward, pairs, 5, ZO_E_SHAPE);
        BAD(rope_backward, d_qkv, NULL, ZO_E_ARG);
        BAD(rope_backward, table, NULL, ZO_E_ARG);
        BAD(rope_backward, positions, NULL, ZO_E_ARG);
        BAD(rope_backward, workspace, NULL, ZO_E_ARG);
        BAD(rope_backward, d_bias, region(0), ZO_E_ARG);
        good.d_bias = NULL;
        expect("no d_bias", zo_rope_backward_check(&good), ZO_OK);
    }
    end();
}

static void test_attention(void)
{
    TAP_CHECK(begin());
    {
        struct zo_attention_args good = {
            .out = region(0),
            .lse = region(1),
            .q = region(2),
            .k = region(3),
            .v = region(4),
            .row_start = region(5),
            .q_stride_elems = 16,
            .kv_stride_elems = 8,
            .rows = 2,
            .tokens = 6,
            .row_tokens_max = 4,
            .heads = 4,
            .groups = 2,
            .head_width = 4,
            .scale = 0.5f,
            .type = ZO_BF16,
        };
        expect("attention", zo_attention_check(&good), ZO_OK);
        BAD_TYPE(attention);
        BAD(attention, heads, 3, ZO_E_SHAPE);
        BAD(attention, groups, 0, ZO_E_SHAPE);
        BAD(attention, head_width, 5, ZO_E_SHAPE); /* beyond the strides */
        BAD(attention, head_width, 1025, ZO_E_SHAPE);
        BAD(attention, q_stride_elems, 15, ZO_E_SHAPE);
        BAD(attention, kv_stride_elems, 7, ZO_E_SHAPE);
        BAD(attention, rows, -1, ZO_E_SHAPE);
        BAD(attention, tokens, -1, ZO_E_SHAPE);
        BAD(attention, row_tokens_max, 7, ZO_E_SHAPE);
        BAD(attention, scale, NAN, ZO_E_ARG);
        BAD(attention, out, NULL, ZO_E_ARG);
        BAD(attention, lse, NULL, ZO_E_ARG);
        BAD(attention, q, NULL, ZO_E_ARG);
        BAD(attention, k, NULL, ZO_E_ARG);
        BAD(attention, v, NULL, ZO_E_ARG);
        BAD(attention, row_start, NULL, ZO_E_ARG);
        BAD(attention, kv_start, region(6), ZO_E_ARG);
        BAD(attention, kv_length, region(6), ZO_E_ARG);
        BAD(attention, out, region(2), ZO_E_ARG);
        good.kv_start = region(6);
        good.kv_length = region(7);
        expect("a cache", zo_attention_check(&good), ZO_OK);
    }
    end();
}

static void test_attention_backward(void)
{
    TAP_CHECK(begin());
    {
        const struct zo_attention_backward_args good = {
            .d_qkv = region(0),
            .d_out = region(1),
            .out = region(2),
            .qkv = region(3),
            .lse = region(4),
            .row_start = region(5),
            .workspace = region(6),
            .rows = 2,
            .tokens = 6,
            .row_tokens_max = 4,
            .heads = 4,
            .groups = 2,
            .head_width = 4,
            .scale = 0.5f,
            .type = ZO_BF16,
        };
        expect("attention_backward", zo_attention_backward_check(&good), ZO_OK);
        BAD_TYPE(attention_backward);
        BAD(attention_backward, heads, 3, ZO_E_SHAPE);
        BAD(attention_backward, rows, -1, ZO_E_SHAPE);
        BAD(attention_backward, row_tokens_max, 7, ZO_E_SHAPE);
        BAD(attention_backward, scale, INFINITY, ZO_E_ARG);
        BAD(attention_backward, d_qkv, NULL, ZO_E_ARG);
        BAD(attention_backward, d_out, NULL, ZO_E_ARG);
        BAD(attention_backward, out, NULL, ZO_E_ARG);
        BAD(attention_backward, qkv, NULL, ZO_E_ARG);
        BAD(attention_backward, lse, NULL, ZO_E_ARG);
        BAD(attention_backward, row_start, NULL, ZO_E_ARG);
        BAD(attention_backward, workspace, NULL, ZO_E_ARG);
        BAD(attention_backward, d_qkv, region(3), ZO_E_ARG);
    }
    end();
}

static void test_swiglu(void)
{
    TAP_CHECK(begin());
    {
        const struct zo_swiglu_args good = {region(0), region(1), 3, 16,
                                            ZO_F32};
        expect("swiglu", zo_swiglu_check(&good), ZO_OK);
        BAD_TYPE(swiglu);
        BAD(swiglu, rows, -1, ZO_E_SHAPE);
        BAD(swiglu, inner, 0, ZO_E_SHAPE);
        BAD(swiglu, inner, 20, ZO_E_SHAPE);
        BAD(swiglu, out, NULL, ZO_E_ARG);
        BAD(swiglu, in, NULL, ZO_E_ARG);
        BAD(swiglu, in, region(0), ZO_E_ARG);
    }
    {
        struct zo_swiglu_backward_args good = {region(0), region(1), region(2),
                                               3,         16,        ZO_F32};
        expect("swiglu_backward", zo_swiglu_backward_check(&good), ZO_OK);
        BAD_TYPE(swiglu_backward);
        BAD(swiglu_backward, rows, -1, ZO_E_SHAPE);
        BAD(swiglu_backward, inner, 20, ZO_E_SHAPE);
        BAD(swiglu_backward, d_in, NULL, ZO_E_ARG);
        BAD(swiglu_backward, d_out, NULL, ZO_E_ARG);
        BAD(swiglu_backward, in, NULL, ZO_E_ARG);
        BAD(swiglu_backward, d_out, region(0), ZO_E_ARG);
        BAD(swiglu_backward, in, (char *)region(0) + 4, ZO_E_ARG);
        good.d_in = region(2);
        expect("in place", zo_swiglu_backward_check(&good), ZO_OK);
    }
    end();
}

static void test_loss(void)
{
    TAP_CHECK(begin());
    {
        struct zo_cross_entropy_args good = {
            region(0), region(1), region(2), region(3), 3, 7, 0.5f, ZO_F16};
        expect("cross_entropy", zo_cross_entropy_check(&good), ZO_OK);
        BAD_TYPE(cross_entropy);
        BAD(cross_entropy, count, -1, ZO_E_SHAPE);
        BAD(cross_entropy, vocab, 0, ZO_E_SHAPE);
        BAD(cross_entropy, scale, NAN, ZO_E_ARG);
        BAD(cross_entropy, loss, NULL, ZO_E_ARG);
        BAD(cross_entropy, logits, NULL, ZO_E_ARG);
        BAD(cross_entropy, label, NULL, ZO_E_ARG);
        BAD(cross_entropy, d_logits, region(2), ZO_E_ARG);
        good.d_logits = NULL;
        expect("loss alone", zo_cross_entropy_check(&good), ZO_OK);
    }
    end();
}

static void test_elements(void)
{
    TAP_CHECK(begin());
    {
        const struct zo_cast_args good = {region(0), region(1), 9, ZO_F16,
                                          ZO_F32};
        expect("cast", zo_cast_check(&good), ZO_OK);
        BAD(cast, out_type, (enum zo_dtype)3, ZO_E_SHAPE);
        BAD(cast, in_type, (enum zo_dtype)3, ZO_E_SHAPE);
        BAD(cast, count, -1, ZO_E_SHAPE);
        BAD(cast, count, INT64_MAX, ZO_E_SHAPE);
        BAD(cast, out, NULL, ZO_E_ARG);
        BAD(cast, in, NULL, ZO_E_ARG);
        BAD(cast, in, region(0), ZO_E_ARG);
    }
    {
        struct zo_reduce_args good = {region(0), region(1), 9,     3,
                                      16,        ZO_F16,    ZO_F16};
        expect("reduce", zo_reduce_check(&good), ZO_OK);
        BAD_TYPE(reduce);
        BAD(reduce, out_type, (enum zo_dtype)3, ZO_E_SHAPE);
        BAD(reduce, count, -1, ZO_E_SHAPE);
        BAD(reduce, part_count, 0, ZO_E_SHAPE);
        BAD(reduce, part_stride_elems, 8, ZO_E_SHAPE);
        BAD(reduce, part_stride_elems, INT64_MAX / 2, ZO_E_SHAPE);
        BAD(reduce, out, NULL, ZO_E_ARG);
        BAD(reduce, parts, NULL, ZO_E_ARG);
        BAD(reduce, out, (char *)region(1) + 32, ZO_E_ARG);
        good.out = region(1);
        expect("in place", zo_reduce_check(&good), ZO_OK);
        BAD(reduce, out_type, ZO_F32, ZO_E_ARG); /* wider than the parts */
    }
    {
        const struct zo_square_norm_args good = {region(0), region(1),
                                                 region(2), 9, ZO_F16};
        expect("square_norm", zo_square_norm_check(&good), ZO_OK);
        BAD_TYPE(square_norm);
        BAD(square_norm, count, -1, ZO_E_SHAPE);
        BAD(square_norm, result, NULL, ZO_E_ARG);
        BAD(square_norm, in, NULL, ZO_E_ARG);
        BAD(square_norm, workspace, NULL, ZO_E_ARG);
        BAD(square_norm, in, region(0), ZO_E_ARG);
    }
    end();
}

static void test_adamw(void)
{
    TAP_CHECK(begin());
    {
        struct zo_adamw_args good = {
            .weight = region(0),
            .remainder = region(1),
            .exp_avg = region(2),
            .exp_avg_sq = region(3),
            .grad = region(4),
            .bad = region(5),
            .count = 9,
            .decay_count = 4,
            .type = ZO_BF16,
        };
        expect("adamw", zo_adamw_check(&good), ZO_OK);
        BAD_TYPE(adamw);
        BAD(adamw, type, ZO_F32, ZO_E_ARG); /* has a remainder */
        BAD(adamw, type, ZO_F16, ZO_E_ARG);
        BAD(adamw, count, -1, ZO_E_SHAPE);
        BAD(adamw, decay_count, -1, ZO_E_SHAPE);
        BAD(adamw, decay_count, 10, ZO_E_SHAPE);
        BAD(adamw, first_index, -1, ZO_E_SHAPE);
        BAD(adamw, moment_type, ZO_F16, ZO_E_SHAPE);
        BAD(adamw, weight, NULL, ZO_E_ARG);
        BAD(adamw, remainder, NULL, ZO_E_ARG);
        BAD(adamw, master, region(6), ZO_E_ARG);
        BAD(adamw, exp_avg, NULL, ZO_E_ARG);
        BAD(adamw, exp_avg_sq, NULL, ZO_E_ARG);
        BAD(adamw, grad, NULL, ZO_E_ARG);
        BAD(adamw, bad, NULL, ZO_E_ARG);
        BAD(adamw, exp_avg, region(3), ZO_E_ARG);
        BAD(adamw, grad, region(0), ZO_E_ARG);
        BAD(adamw, scalars.grad_scale, INFINITY, ZO_E_ARG);
        BAD(adamw, scalars.beta1, NAN, ZO_E_ARG);
        BAD(adamw, scalars.one_minus_beta1, NAN, ZO_E_ARG);
        BAD(adamw, scalars.beta2, NAN, ZO_E_ARG);
        BAD(adamw, scalars.one_minus_beta2, NAN, ZO_E_ARG);
        BAD(adamw, scalars.inverse_root2, INFINITY, ZO_E_ARG);
        BAD(adamw, scalars.epsilon, NAN, ZO_E_ARG);
        BAD(adamw, scalars.decay, NAN, ZO_E_ARG);
        BAD(adamw, scalars.step_size, INFINITY, ZO_E_ARG);
        good.type = ZO_F16;
        good.remainder = NULL;
        BAD(adamw, master, NULL, ZO_E_ARG);
        good.master = region(6);
        good.weight = NULL;
        expect("no fp16 weight", zo_adamw_check(&good), ZO_OK);
    }
    end();
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"embedding, gather and scatter refuse bad arguments", test_rows},
        {"rmsnorm refuses bad arguments", test_rmsnorm},
        {"matmul refuses bad arguments", test_matmul},
        {"rope refuses bad arguments", test_rope},
        {"attention refuses bad arguments", test_attention},
        {"attention backward refuses bad arguments", test_attention_backward},
        {"swiglu refuses bad arguments", test_swiglu},
        {"cross-entropy refuses bad arguments", test_loss},
        {"cast, reduce and square norm refuse bad arguments", test_elements},
        {"adamw refuses bad arguments", test_adamw},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
