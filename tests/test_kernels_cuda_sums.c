/*
 * The cuda operations that reduce or update: products, loss, casts, norms and
 * AdamW, against the host's.
 *
 * Method: tests/kernel_pair.h.  square_norm and adamw promise the host's bits.
 */
#include "tests/kernel_pair.h"

static struct pair pair;
static const enum zo_dtype types[] = {ZO_F32, ZO_BF16, ZO_F16};

#define AT(trial, index) ((trial)->arrays[index].at[which])

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- products --------------------------------------------------------- */

enum addend { NO_ADDEND, OTHER_ADDEND, SAME_ADDEND };

struct product {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
    enum zo_dtype type, c_type;
    enum addend addend;
};

static enum zo_status run_matmul(const struct side *side, int which,
                                 const struct trial *trial, const void *context)
{
    const struct product *shape = context;
    const struct zo_matmul_args args = {
        .c = AT(trial, 0),
        .a = AT(trial, 1),
        .b = AT(trial, 2),
        .addend = shape->addend == NO_ADDEND
                      ? NULL
                      : AT(trial, shape->addend == SAME_ADDEND ? 0 : 3),
        .workspace = AT(trial, 4),
        .m = shape->m,
        .n = shape->n,
        .k = shape->k,
        .transpose_a = shape->transpose_a,
        .transpose_b = shape->transpose_b,
        .type = shape->type,
        .c_type = shape->c_type,
    };

    return side->ops->matmul(side->kernels, side->stream, &args);
}

static bool try_matmul(const struct product *shape, uint64_t *random)
{
    struct trial trial;
    struct array *c;

    trial_begin(&trial, &pair, "%s to %s (%lld, %lld) K %lld%s%s addend %d",
                zo_dtype_name(shape->type), zo_dtype_name(shape->c_type),
                (long long)shape->m, (long long)shape->n, (long long)shape->k,
                shape->transpose_a ? " a^T" : "",
                shape->transpose_b ? " b^T" : "", (int)shape->addend);
    c = trial_add(&trial, "c", shape->c_type, shape->m * shape->n,
                  shape->addend == SAME_ADDEND ? ROLE_INOUT : ROLE_OUT,
                  bound_of(shape->c_type, shape->k));
    if (shape->addend == SAME_ADDEND) {
        fill_random(c, random, 1.0f);
    }
    fill_random(trial_add(&trial, "a", shape->type, shape->m * shape->k,
                          ROLE_IN, EXACT),
                random, 1.0f);
    fill_random(trial_add(&trial, "b", shape->type, shape->k * shape->n,
                          ROLE_IN, EXACT),
                random, 1.0f);
    fill_random(trial_add(&trial, "addend", shape->c_type, shape->m * shape->n,
                          ROLE_IN, EXACT),
                random, 1.0f);
    (void)trial_add(&trial, "workspace", BYTES,
                    (int64_t)larger(zo_kernels_host.matmul_workspace(),
                                    zo_kernels_cuda.matmul_workspace()),
                    ROLE_WORK, EXACT);
    return trial_run(&trial, run_matmul, shape);
}

static void test_matmul(void)
{
    static const int64_t sizes[][3] = {
        {1, 1, 1}, {1, 8, 16}, {5, 3, 7},  {64, 128, 32}, {65, 33, 1},
        {0, 4, 4}, {4, 0, 4},  {6, 10, 0}, {17, 96, 200}, {128, 72, 1024},
    };
    uint64_t random = 11;

    if (!pair_ready(&pair)) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(sizes) * 4 * 5 * 3; i++) {
        const int64_t *size = sizes[i / 60];
        const int kind = (int)(i / 3 % 5); /* fp32, and two c types of each */
        const enum zo_dtype type = types[(kind + 1) / 2];
        const struct product shape = {
            .m = size[0],
            .n = size[1],
            .k = size[2],
            .transpose_a = (i / 15 & 1) != 0,
            .transpose_b = (i / 15 & 2) != 0,
            .type = type,
            .c_type = kind % 2 == 1 ? type : ZO_F32,
            .addend = (enum addend)(i % 3),
        };

        if (!try_matmul(&shape, &random)) {
            return;
        }
    }
}

/* ---- loss ------------------------------------------------------------- */

struct loss_shape {
    int64_t count, vocab;
    enum zo_dtype type;
    bool has_gradient;
};

static enum zo_status run_cross_entropy(const struct side *side, int which,
                                        const struct trial *trial,
                                        const void *context)
{
    const struct loss_shape *shape = context;
    const struct zo_cross_entropy_args args = {
        .loss = AT(trial, 0),
        .d_logits = shape->has_gradient ? AT(trial, 1) : NULL,
        .logits = AT(trial, 2),
        .label = AT(trial, 3),
        .count = shape->count,
        .vocab = shape->vocab,
        .scale = 0.37f,
        .type = shape->type,
    };

    return side->ops->cross_entropy(side->kernels, side->stream, &args);
}

static bool try_cross_entropy(const struct loss_shape *shape, uint64_t *random)
{
    const int64_t elems = shape->count * shape->vocab;
    struct trial trial;
    struct array *logits, *label;

    trial_begin(&trial, &pair, "%s (%lld, %lld)", zo_dtype_name(shape->type),
                (long long)shape->count, (long long)shape->vocab);
    (void)trial_add(&trial, "loss", ZO_F32, shape->count, ROLE_OUT,
                    bound_of(ZO_F32, 1));
    (void)trial_add(&trial, "d_logits", shape->type,
                    shape->has_gradient ? elems : 0, ROLE_OUT,
                    bound_of(shape->type, 1));
    logits = trial_add(&trial, "logits", ZO_F32, elems, ROLE_IN, EXACT);
    fill_random(logits, random, 12.0f);
    label = trial_add(&trial, "label", BYTES, shape->count * 4, ROLE_IN, EXACT);
    for (int64_t i = 0; i < shape->count; i++) {
        const uint64_t v = next_random(random) % (uint64_t)shape->vocab;

        ((int32_t *)label->initial)[i] = (int32_t)v;
    }
    if (shape->count > 0 &&
        shape->vocab > 64) { /* words that cannot be, a whole group of them */
        for (int i = 0; i < 16; i++) {
            ((float *)logits->initial)[i] = -INFINITY;
        }
        ((int32_t *)label->initial)[0] = 20;
    }
    return trial_run(&trial, run_cross_entropy, shape);
}

static void test_cross_entropy(void)
{
    static const struct loss_shape shapes[] = {
        {1, 1, ZO_F32, true},    {3, 8, ZO_F32, true},
        {5, 77, ZO_F32, true},   {2, 4104, ZO_F32, true},
        {3, 4099, ZO_F32, true}, {9, 65024, ZO_F32, true},
        {2, 300, ZO_F32, false}, {0, 300, ZO_F32, true},
    };
    uint64_t random = 12;

    if (!pair_ready(&pair)) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(shapes) * TAP_COUNT(types); i++) {
        struct loss_shape shape = shapes[i / TAP_COUNT(types)];

        shape.type = types[i % TAP_COUNT(types)];
        if (!try_cross_entropy(&shape, &random)) {
            return;
        }
    }
}

/* ---- casts and sums of parts ------------------------------------------- */

struct cast_shape {
    int64_t count, parts, stride;
    enum zo_dtype in_type, out_type;
};

static enum zo_status run_cast(const struct side *side, int which,
                               const struct trial *trial, const void *context)
{
    const struct cast_shape *shape = context;
    const struct zo_cast_args args = {
        .out = AT(trial, 0),
        .in = AT(trial, 1),
        .count = shape->count,
        .out_type = shape->out_type,
        .in_type = shape->in_type,
    };

    return side->ops->cast(side->kernels, side->stream, &args);
}

static enum zo_status run_reduce(const struct side *side, int which,
                                 const struct trial *trial, const void *context)
{
    const struct cast_shape *shape = context;
    const struct zo_reduce_args args = {
        .out = AT(trial, 0),
        .parts = AT(trial, 1),
        .count = shape->count,
        .part_count = shape->parts,
        .part_stride_elems = shape->stride,
        .type = shape->in_type,
        .out_type = shape->out_type,
    };

    return side->ops->reduce(side->kernels, side->stream, &args);
}

/* Values of every magnitude, so that rounding has ties, overflow and
 * subnormal results to deal with. */
static void fill_wide(struct array *array, uint64_t *random)
{
    for (int64_t i = 0; i < array->count; i++) {
        const int exponent = (int)(next_random(random) % 60) - 40;

        zo_store(array->initial, (enum zo_dtype)array->type, i,
                 ldexpf(next_float(random), exponent));
    }
}

static void test_cast(void)
{
    static const struct cast_shape shapes[] = {
        {0, 1, 0, ZO_F32, ZO_F32},       {1, 1, 1, ZO_F32, ZO_F32},
        {7, 3, 7, ZO_F32, ZO_F32},       {8, 2, 16, ZO_F32, ZO_F32},
        {4099, 5, 4104, ZO_F32, ZO_F32}, {100000, 2, 100003, ZO_F32, ZO_F32},
    };
    uint64_t random = 13;

    if (!pair_ready(&pair)) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(shapes) * 9 * 2; i++) {
        struct cast_shape shape = shapes[i / 18];
        const bool is_cast = i % 2 == 0;
        struct trial trial;

        shape.in_type = types[i / 2 % 3];
        shape.out_type = types[i / 6 % 3];
        trial_begin(&trial, &pair, "%s %s to %s, %lld of %lld",
                    is_cast ? "cast" : "reduce", zo_dtype_name(shape.in_type),
                    zo_dtype_name(shape.out_type), (long long)shape.count,
                    (long long)shape.parts);
        (void)trial_add(&trial, "out", shape.out_type, shape.count, ROLE_OUT,
                        EXACT);
        fill_wide(trial_add(&trial, "in", shape.in_type,
                            is_cast ? shape.count : shape.parts * shape.stride,
                            ROLE_IN, EXACT),
                  &random);
        if (!trial_run(&trial, is_cast ? run_cast : run_reduce, &shape)) {
            return;
        }
    }
}

/* ---- square norm ------------------------------------------------------- */

struct norm_shape {
    int64_t count;
    enum zo_dtype type;
};

static enum zo_status run_square_norm(const struct side *side, int which,
                                      const struct trial *trial,
                                      const void *context)
{
    const struct norm_shape *shape = context;
    const struct zo_square_norm_args args = {
        .result = AT(trial, 0),
        .in = AT(trial, 1),
        .workspace = AT(trial, 2),
        .count = shape->count,
        .type = shape->type,
    };

    return side->ops->square_norm(side->kernels, side->stream, &args);
}

static void test_square_norm(void)
{
    static const int64_t counts[] = {0,     1,     255,     256,   65535,
                                     65536, 65537, 1000003, 131072};
    uint64_t random = 14;

    if (!pair_ready(&pair)) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(counts) * TAP_COUNT(types) * 2; i++) {
        const struct norm_shape shape = {counts[i / 6], types[i / 2 % 3]};
        struct trial trial;
        struct array *in;

        trial_begin(&trial, &pair, "%s %lld", zo_dtype_name(shape.type),
                    (long long)shape.count);
        (void)trial_add(&trial, "result", BYTES, sizeof(struct zo_norm_result),
                        ROLE_OUT, EXACT);
        in = trial_add(&trial, "in", shape.type, shape.count, ROLE_IN, EXACT);
        fill_wide(in, &random);
        if (i % 2 == 1) { /* some that are not finite */
            for (int64_t k = 0; k < shape.count; k += 977) {
                zo_store(in->initial, shape.type, k,
                         k % 2 == 0 ? -INFINITY : NAN);
            }
        }
        (void)trial_add(
            &trial, "workspace", BYTES,
            (int64_t)larger(zo_kernels_host.square_norm_workspace(shape.count),
                            zo_kernels_cuda.square_norm_workspace(shape.count)),
            ROLE_WORK, EXACT);
        if (!trial_run(&trial, run_square_norm, &shape)) {
            return;
        }
    }
}

/* ---- adamw ------------------------------------------------------------- */

struct adamw_shape {
    int64_t count, decay_count;
    enum zo_dtype type;
    bool has_no_weight; /* fp16: the master alone */
    int steps;
    enum zo_dtype moment_type;
};

static enum zo_status run_adamw(const struct side *side, int which,
                                const struct trial *trial, const void *context)
{
    const struct adamw_shape *shape = context;
    const bool is_bf16 = shape->type == ZO_BF16;
    const bool is_fp16 = shape->type == ZO_F16;

    for (int step = 1; step <= shape->steps; step++) {
        const size_t grad_bytes =
            (size_t)shape->count * zo_dtype_bytes(shape->type);
        const struct zo_adamw_args args = {
            .weight = shape->has_no_weight ? NULL : AT(trial, 0),
            .remainder = is_bf16 ? AT(trial, 1) : NULL,
            .master = is_fp16 ? AT(trial, 2) : NULL,
            .exp_avg = AT(trial, 3),
            .exp_avg_sq = AT(trial, 4),
            .grad = (const char *)AT(trial, 5) +
                    (size_t)(step - 1) * ((grad_bytes + 255) / 256 * 256),
            .bad = AT(trial, 6),
            .count = shape->count,
            .decay_count = shape->decay_count,
            .first_index = 0xfffff123, /* passes 2^32 */
            .scalars =
                {
                    .grad_scale = 0.83f,
                    .beta1 = 0.9f,
                    .one_minus_beta1 = 0.1f,
                    .beta2 = 0.999f,
                    .one_minus_beta2 = 0.001f,
                    .inverse_root2 =
                        (float)(1.0 / sqrt(1.0 - pow(0.999, step))),
                    .epsilon = 1e-8f,
                    .decay = 1e-4f,
                    .step_size = (float)(1e-3 / (1.0 - pow(0.9, step))),
                    .step = (uint32_t)step,
                },
            .type = shape->type,
            .moment_type = shape->moment_type,
        };

        ZO_TRY(side->ops->adamw(side->kernels, side->stream, &args));
    }
    return ZO_OK;
}

static void fill_bytes(struct array *array, uint64_t *random)
{
    for (int64_t i = 0; i < array->count; i++) {
        ((uint8_t *)array->initial)[i] = (uint8_t)next_random(random);
    }
}

/* Gradients over the whole range of exponents, and some plain zeros. */
static void fill_gradients(struct array *array, uint64_t *random)
{
    for (int64_t i = 0; i < array->count; i++) {
        const int exponent = (int)(next_random(random) % 140) - 130;
        const float value =
            i % 13 == 0 ? 0.0f : ldexpf(next_float(random), exponent);

        zo_store(array->initial, (enum zo_dtype)array->type, i, value);
    }
}

static bool try_adamw(const struct adamw_shape *shape, bool is_bad,
                      uint64_t *random)
{
    const bool is_bf16 = shape->type == ZO_BF16;
    const bool is_fp16 = shape->type == ZO_F16;
    const int64_t grad_stride =
        (int64_t)(((size_t)shape->count * zo_dtype_bytes(shape->type) + 255) /
                  256 * 256 / zo_dtype_bytes(shape->type));
    struct trial trial;
    struct array *grad;

    trial_begin(
        &trial, &pair, "%s, moments %s, %lld elements, %lld decay, %d steps",
        zo_dtype_name(shape->type), zo_dtype_name(shape->moment_type),
        (long long)shape->count, (long long)shape->decay_count, shape->steps);
    fill_random(trial_add(&trial, "weight", shape->type, shape->count,
                          ROLE_INOUT, EXACT),
                random, 0.1f);
    fill_bytes(trial_add(&trial, "remainder", BYTES,
                         is_bf16 ? 2 * shape->count : 0, ROLE_INOUT, EXACT),
               random);
    fill_random(trial_add(&trial, "master", ZO_F32, is_fp16 ? shape->count : 0,
                          ROLE_INOUT, EXACT),
                random, 0.1f);
    (void)trial_add(&trial, "exp_avg", shape->moment_type, shape->count,
                    ROLE_INOUT, EXACT);
    (void)trial_add(&trial, "exp_avg_sq", shape->moment_type, shape->count,
                    ROLE_INOUT, EXACT);
    grad = trial_add(&trial, "grad", shape->type, grad_stride * shape->steps,
                     ROLE_IN, EXACT);
    fill_gradients(grad, random);
    if (is_bad) {
        zo_store(grad->initial, shape->type, shape->count / 2, INFINITY);
    }
    (void)trial_add(&trial, "bad", BYTES, 4, ROLE_INOUT, EXACT);
    return trial_run(&trial, run_adamw, shape);
}

static void test_adamw(void)
{
    static const struct adamw_shape shapes[] = {
        {0, 0, ZO_F32, false, 1, ZO_F32},
        {1, 1, ZO_F32, false, 3, ZO_F32},
        {7, 3, ZO_F32, false, 3, ZO_F32},
        {8, 0, ZO_F32, false, 3, ZO_F32},
        {20011, 10004, ZO_F32, false, 30, ZO_F32},
    };
    uint64_t random = 15;

    if (!pair_ready(&pair)) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(shapes) * TAP_COUNT(types) * 4; i++) {
        struct adamw_shape shape = shapes[i / 12];

        shape.type = types[i / 2 % 3];
        shape.moment_type = i / 6 % 2 == 0 ? ZO_F32 : ZO_BF16;
        shape.has_no_weight = shape.type == ZO_F16 && i % 2 == 1;
        if (!try_adamw(&shape, i % 2 == 1 && shape.count > 0, &random)) {
            return;
        }
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"products agree, transposed, added to, and of no terms", test_matmul},
        {"cross-entropy and its gradient agree", test_cross_entropy},
        {"casts and sums of parts have the host's bits", test_cast},
        {"the square norm has the host's bits", test_square_norm},
        {"adamw has the host's bits over every exponent", test_adamw},
    };
    const int code = tap_run(cases, TAP_COUNT(cases));

    pair_close(&pair);
    return code;
}
