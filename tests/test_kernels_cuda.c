/*
 * The cuda operations, but attention, against the host's.
 *
 * Method: tests/kernel_pair.h.  Shapes are the edges of the kernels' own
 * tiling (one element, one group of eight, a tail, odd rows) and the shapes
 * of the model, in each number type.
 */
#include "src/base/arith.h"
#include "tests/kernel_pair.h"

static struct pair pair;
static const enum zo_dtype types[] = {ZO_F32, ZO_BF16, ZO_F16};

#define AT(trial, index) ((trial)->arrays[index].at[which])

struct shape {
    int64_t rows, cols;
    enum zo_dtype type;
    int variant;
};

/* ---- rows: embedding, gather, scatter --------------------------------- */

enum { VOCAB = 37 };

static enum zo_status run_embedding(const struct side *side, int which,
                                    const struct trial *trial,
                                    const void *context)
{
    const struct shape *shape = context;
    const struct zo_embedding_args args = {
        .out = AT(trial, 0),
        .table = AT(trial, 1),
        .ids = AT(trial, 2),
        .tokens = shape->rows,
        .cols = shape->cols,
        .vocab = VOCAB,
        .type = shape->type,
    };

    return side->ops->embedding(side->kernels, side->stream, &args);
}

static void fill_ids(struct array *array, uint64_t *random, int64_t below)
{
    int32_t *ids = array->initial;
    const int64_t count = array->count / (int64_t)sizeof(*ids);

    for (int64_t i = 0; i < count; i++) {
        ids[i] = (int32_t)(next_random(random) % (uint64_t)below);
    }
}

static const struct shape row_shapes[] = {
    {1, 1, ZO_F32, 0},     {1, 8, ZO_F32, 0},     {3, 7, ZO_F32, 0},
    {130, 520, ZO_F32, 0}, {65, 4096, ZO_F32, 0}, {0, 8, ZO_F32, 0},
};

static void test_embedding(void)
{
    uint64_t random = 1;

    if (!pair_ready(&pair)) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(row_shapes) * TAP_COUNT(types); i++) {
        struct shape shape = row_shapes[i / TAP_COUNT(types)];
        struct trial trial;

        shape.type = types[i % TAP_COUNT(types)];
        trial_begin(&trial, &pair, "%s (%lld, %lld)", zo_dtype_name(shape.type),
                    (long long)shape.rows, (long long)shape.cols);
        (void)trial_add(&trial, "out", shape.type, shape.rows * shape.cols,
                        ROLE_OUT, EXACT);
        fill_random(trial_add(&trial, "table", shape.type, VOCAB * shape.cols,
                              ROLE_IN, EXACT),
                    &random, 2.0f);
        fill_ids(
            trial_add(&trial, "ids", BYTES, shape.rows * 4, ROLE_IN, EXACT),
            &random, VOCAB);
        if (!trial_run(&trial, run_embedding, &shape)) {
            return;
        }
    }
}

static enum zo_status run_embedding_backward(const struct side *side, int which,
                                             const struct trial *trial,
                                             const void *context)
{
    const struct shape *shape = context;
    const struct zo_embedding_backward_args args = {
        .d_table = AT(trial, 0),
        .d_out = AT(trial, 1),
        .order = AT(trial, 2),
        .segment_start = AT(trial, 3),
        .segment_id = AT(trial, 4),
        .segments = shape->variant,
        .cols = shape->cols,
        .vocab = VOCAB,
        .type = shape->type,
    };

    return side->ops->embedding_backward(side->kernels, side->stream, &args);
}

/* Groups tokens by id; returns the number of ids that occur. */
static int group_by_id(const int32_t *ids, int64_t tokens, int32_t *order,
                       int32_t *start, int32_t *id)
{
    int segments = 0;
    int32_t at = 0;

    for (int32_t v = VOCAB - 1; v >= 0; v--) { /* ids in no special order */
        const int32_t first = at;

        for (int64_t t = 0; t < tokens; t++) {
            if (ids[t] == v) {
                order[at++] = (int32_t)t;
            }
        }
        if (at > first) {
            start[segments] = first;
            id[segments++] = v;
        }
    }
    start[segments] = at;
    return segments;
}

static bool try_embedding_backward(struct shape shape, uint64_t *random)
{
    struct trial trial;
    struct array *order, *start, *id;
    int32_t ids[2048];

    trial_begin(&trial, &pair, "%s (%lld, %lld)", zo_dtype_name(shape.type),
                (long long)shape.rows, (long long)shape.cols);
    fill_random(trial_add(&trial, "d_table", ZO_F32, VOCAB * shape.cols,
                          ROLE_INOUT, bound_of(ZO_F32, shape.rows)),
                random, 1.0f);
    fill_random(trial_add(&trial, "d_out", shape.type, shape.rows * shape.cols,
                          ROLE_IN, EXACT),
                random, 1.0f);
    order = trial_add(&trial, "order", BYTES, shape.rows * 4, ROLE_IN, EXACT);
    start = trial_add(&trial, "start", BYTES, (VOCAB + 1) * 4, ROLE_IN, EXACT);
    id = trial_add(&trial, "id", BYTES, VOCAB * 4, ROLE_IN, EXACT);
    for (int64_t t = 0; t < shape.rows; t++) {
        /* Half of them are one id: a long segment. */
        const uint64_t number = next_random(random) % (2 * VOCAB);

        ids[t] = number < VOCAB ? (int32_t)number : 5;
    }
    shape.variant = group_by_id(ids, shape.rows, order->initial, start->initial,
                                id->initial);
    return trial_run(&trial, run_embedding_backward, &shape);
}

static void test_embedding_backward(void)
{
    uint64_t random = 2;

    if (!pair_ready(&pair)) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(row_shapes) * TAP_COUNT(types); i++) {
        struct shape shape = row_shapes[i / TAP_COUNT(types)];

        shape.type = types[i % TAP_COUNT(types)];
        if (!try_embedding_backward(shape, &random)) {
            return;
        }
    }
    (void)try_embedding_backward((struct shape){2048, 1032, ZO_BF16, 0},
                                 &random);
}

static enum zo_status run_gather(const struct side *side, int which,
                                 const struct trial *trial, const void *context)
{
    const struct shape *shape = context;
    const struct zo_gather_args gather = {
        .out = AT(trial, 0),
        .in = AT(trial, 1),
        .index = AT(trial, 2),
        .count = shape->variant,
        .rows = shape->rows,
        .cols = shape->cols,
        .type = shape->type,
    };
    const struct zo_scatter_args scatter = {
        .out = AT(trial, 3),
        .in = AT(trial, 0), /* what was gathered goes back */
        .index = AT(trial, 2),
        .count = shape->variant,
        .rows = shape->rows,
        .cols = shape->cols,
        .type = shape->type,
    };

    ZO_TRY(side->ops->gather(side->kernels, side->stream, &gather));
    return side->ops->scatter(side->kernels, side->stream, &scatter);
}

static void test_gather_scatter(void)
{
    uint64_t random = 3;

    if (!pair_ready(&pair)) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(row_shapes) * 9; i++) {
        struct shape shape = row_shapes[i / 9];
        struct trial trial;
        struct array *index;

        /* None, some, and all of the rows. */
        shape.type = types[i % 3];
        shape.variant = (int)(shape.rows * (int64_t)(i / 3 % 3) / 2);
        trial_begin(&trial, &pair, "%s %d of (%lld, %lld)",
                    zo_dtype_name(shape.type), shape.variant,
                    (long long)shape.rows, (long long)shape.cols);
        (void)trial_add(&trial, "gathered", shape.type,
                        shape.variant * shape.cols, ROLE_OUT, EXACT);
        fill_random(trial_add(&trial, "in", shape.type, shape.rows * shape.cols,
                              ROLE_IN, EXACT),
                    &random, 2.0f);
        index = trial_add(&trial, "index", BYTES, shape.variant * 4, ROLE_IN,
                          EXACT);
        for (int k = 0; k < shape.variant; k++) {
            ((int32_t *)index->initial)[k] =
                (int32_t)(shape.rows - shape.variant) / 2 + k;
        }
        (void)trial_add(&trial, "scattered", shape.type,
                        shape.rows * shape.cols, ROLE_OUT, EXACT);
        if (!trial_run(&trial, run_gather, &shape)) {
            return;
        }
    }
}

/* ---- rmsnorm ---------------------------------------------------------- */

static enum zo_status run_rmsnorm(const struct side *side, int which,
                                  const struct trial *trial,
                                  const void *context)
{
    const struct shape *shape = context;
    const struct zo_rmsnorm_args args = {
        .out = AT(trial, 0),
        .rstd = AT(trial, 1),
        .in = AT(trial, 2),
        .weight = AT(trial, 3),
        .rows = shape->rows,
        .cols = shape->cols,
        .epsilon = 1e-5f,
        .type = shape->type,
    };

    return side->ops->rmsnorm(side->kernels, side->stream, &args);
}

static const struct shape norm_shapes[] = {
    {1, 8, ZO_F32, 0},    {3, 136, ZO_F32, 0},    {0, 64, ZO_F32, 0},
    {257, 64, ZO_F32, 0}, {1000, 520, ZO_F32, 0}, {70, 4096, ZO_F32, 0},
    {5, 4104, ZO_F32, 0}, {3, 8192, ZO_F32, 0},   {2, 16384, ZO_F32, 0},
    {1, 2048, ZO_F32, 0},
};

static void test_rmsnorm(void)
{
    uint64_t random = 4;

    if (!pair_ready(&pair)) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(norm_shapes) * TAP_COUNT(types); i++) {
        struct shape shape = norm_shapes[i / TAP_COUNT(types)];
        struct trial trial;
        int64_t elems;

        shape.type = types[i % TAP_COUNT(types)];
        elems = shape.rows * shape.cols;
        trial_begin(&trial, &pair, "%s (%lld, %lld)", zo_dtype_name(shape.type),
                    (long long)shape.rows, (long long)shape.cols);
        (void)trial_add(&trial, "out", shape.type, elems, ROLE_OUT,
                        bound_of(shape.type, 1));
        (void)trial_add(&trial, "rstd", ZO_F32, shape.rows, ROLE_OUT,
                        bound_of(ZO_F32, 1));
        fill_random(trial_add(&trial, "in", shape.type, elems, ROLE_IN, EXACT),
                    &random, 3.0f);
        fill_random(
            trial_add(&trial, "weight", shape.type, shape.cols, ROLE_IN, EXACT),
            &random, 1.0f);
        if (!trial_run(&trial, run_rmsnorm, &shape)) {
            return;
        }
    }
}

/* Variants: bit 0 a residual, bit 1 add, bits 2 and 3 where d_in lies. */
enum { IN_OWN = 0, IN_RESIDUAL = 1, IN_D_OUT = 2 };

static enum zo_status run_rmsnorm_backward(const struct side *side, int which,
                                           const struct trial *trial,
                                           const void *context)
{
    const struct shape *shape = context;
    const int place = shape->variant >> 2;
    const bool has_residual = (shape->variant & 1) != 0;
    const struct zo_rmsnorm_backward_args args = {
        .d_in = AT(trial, place == IN_OWN        ? 0
                          : place == IN_RESIDUAL ? 3
                                                 : 2),
        .d_weight = AT(trial, 1),
        .d_out = AT(trial, 2),
        .d_residual = has_residual ? AT(trial, 3) : NULL,
        .in = AT(trial, 4),
        .rstd = AT(trial, 5),
        .weight = AT(trial, 6),
        .workspace = AT(trial, 7),
        .rows = shape->rows,
        .cols = shape->cols,
        .type = shape->type,
        .add = (shape->variant & 2) != 0,
    };

    return side->ops->rmsnorm_backward(side->kernels, side->stream, &args);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool try_rmsnorm_backward(struct shape shape, uint64_t *random)
{
    const int place = shape.variant >> 2;
    const int64_t elems = shape.rows * shape.cols;
    const double bound = bound_of(shape.type, 1);
    const uint64_t workspace = larger(
        zo_kernels_host.rmsnorm_backward_workspace(shape.rows, shape.cols),
        zo_kernels_cuda.rmsnorm_backward_workspace(shape.rows, shape.cols));
    struct trial trial;
    struct array *rstd;

    trial_begin(&trial, &pair, "%s (%lld, %lld) variant %d",
                zo_dtype_name(shape.type), (long long)shape.rows,
                (long long)shape.cols, shape.variant);
    (void)trial_add(&trial, "d_in", shape.type, place == IN_OWN ? elems : 0,
                    ROLE_OUT, bound);
    fill_random(trial_add(&trial, "d_weight", ZO_F32, shape.cols, ROLE_INOUT,
                          bound_of(ZO_F32, shape.rows)),
                random, 1.0f);
    fill_random(trial_add(&trial, "d_out", shape.type, elems, ROLE_INOUT,
                          place == IN_D_OUT ? bound : EXACT),
                random, 1.0f);
    fill_random(trial_add(&trial, "d_residual", shape.type, elems, ROLE_INOUT,
                          place == IN_RESIDUAL ? bound : EXACT),
                random, 1.0f);
    fill_random(trial_add(&trial, "in", shape.type, elems, ROLE_IN, EXACT),
                random, 3.0f);
    rstd = trial_add(&trial, "rstd", ZO_F32, shape.rows, ROLE_IN, EXACT);
    for (int64_t i = 0; i < shape.rows; i++) {
        ((float *)rstd->initial)[i] = 0.6f + 0.1f * next_float(random);
    }
    fill_random(
        trial_add(&trial, "weight", shape.type, shape.cols, ROLE_IN, EXACT),
        random, 1.0f);
    (void)trial_add(&trial, "workspace", BYTES, (int64_t)workspace, ROLE_WORK,
                    EXACT);
    return trial_run(&trial, run_rmsnorm_backward, &shape);
}

static void test_rmsnorm_backward(void)
{
    /* Without and with a residual, adding or not, and each place of d_in. */
    static const int variants[] = {
        0, 2, 1, 3, IN_RESIDUAL << 2 | 3, IN_D_OUT << 2 | 1, IN_D_OUT << 2};
    uint64_t random = 5;

    if (!pair_ready(&pair)) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(norm_shapes) * TAP_COUNT(types); i++) {
        for (size_t v = 0; v < TAP_COUNT(variants); v++) {
            struct shape shape = norm_shapes[i / TAP_COUNT(types)];

            shape.type = types[i % TAP_COUNT(types)];
            shape.variant = variants[v];
            if (!try_rmsnorm_backward(shape, &random)) {
                return;
            }
        }
    }
}

/* ---- swiglu ----------------------------------------------------------- */

static enum zo_status run_swiglu(const struct side *side, int which,
                                 const struct trial *trial, const void *context)
{
    const struct shape *shape = context;
    const struct zo_swiglu_args forward = {
        .out = AT(trial, 0),
        .in = AT(trial, 1),
        .rows = shape->rows,
        .inner = shape->cols,
        .type = shape->type,
    };
    const struct zo_swiglu_backward_args backward = {
        .d_in = AT(trial, shape->variant ? 1 : 3), /* 1: in place of in */
        .d_out = AT(trial, 2),
        .in = AT(trial, 1),
        .rows = shape->rows,
        .inner = shape->cols,
        .type = shape->type,
    };

    ZO_TRY(side->ops->swiglu(side->kernels, side->stream, &forward));
    return side->ops->swiglu_backward(side->kernels, side->stream, &backward);
}

static void test_swiglu(void)
{
    static const struct shape shapes[] = {
        {1, 8, ZO_F32, 0},     {3, 136, ZO_F32, 0},   {0, 16, ZO_F32, 0},
        {33, 2056, ZO_F32, 0}, {9, 13696, ZO_F32, 0},
    };
    uint64_t random = 6;

    if (!pair_ready(&pair)) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(shapes) * 6; i++) {
        struct shape shape = shapes[i / 6];
        struct trial trial;
        struct array *in;

        shape.type = types[i % 3];
        shape.variant = (int)(i / 3 % 2);
        trial_begin(&trial, &pair, "%s (%lld, %lld) %s",
                    zo_dtype_name(shape.type), (long long)shape.rows,
                    (long long)shape.cols, shape.variant ? "in place" : "");
        (void)trial_add(&trial, "out", shape.type, shape.rows * shape.cols,
                        ROLE_OUT, bound_of(shape.type, 1));
        in = trial_add(&trial, "in", shape.type, 2 * shape.rows * shape.cols,
                       ROLE_INOUT, bound_of(shape.type, 1));
        fill_random(in, &random, 6.0f);
        if (in->count > 0) { /* where exp() leaves the range of fp32 */
            zo_store(in->initial, shape.type, 0, -95.0f);
            zo_store(in->initial, shape.type, 1, 95.0f);
        }
        fill_random(trial_add(&trial, "d_out", shape.type,
                              shape.rows * shape.cols, ROLE_IN, EXACT),
                    &random, 1.0f);
        (void)trial_add(&trial, "d_in", shape.type,
                        shape.variant ? 0 : 2 * shape.rows * shape.cols,
                        ROLE_OUT, bound_of(shape.type, 1));
        if (!trial_run(&trial, run_swiglu, &shape)) {
            return;
        }
    }
}

/* ---- rope ------------------------------------------------------------- */

struct rope_shape {
    int64_t tokens, heads, groups, width, pairs;
    enum zo_dtype type;
    bool has_bias, add;
};

enum { POSITIONS = 300 };

static enum zo_status run_rope(const struct side *side, int which,
                               const struct trial *trial, const void *context)
{
    const struct rope_shape *shape = context;
    const struct zo_rope_args forward = {
        .qkv = AT(trial, 0),
        .bias = shape->has_bias ? AT(trial, 2) : NULL,
        .table = AT(trial, 3),
        .positions = AT(trial, 4),
        .tokens = shape->tokens,
        .heads = shape->heads,
        .groups = shape->groups,
        .head_width = shape->width,
        .pairs = shape->pairs,
        .type = shape->type,
    };
    const struct zo_rope_backward_args backward = {
        .d_qkv = AT(trial, 1),
        .d_bias = shape->has_bias ? AT(trial, 5) : NULL,
        .table = AT(trial, 3),
        .positions = AT(trial, 4),
        .workspace = AT(trial, 6),
        .tokens = shape->tokens,
        .heads = shape->heads,
        .groups = shape->groups,
        .head_width = shape->width,
        .pairs = shape->pairs,
        .type = shape->type,
        .add = shape->add,
    };

    ZO_TRY(side->ops->rope(side->kernels, side->stream, &forward));
    return side->ops->rope_backward(side->kernels, side->stream, &backward);
}

static bool try_rope(struct rope_shape shape, uint64_t *random)
{
    const int64_t width = (shape.heads + 2 * shape.groups) * shape.width;
    const double bound = bound_of(shape.type, 1);
    struct trial trial;
    struct array *table;

    trial_begin(&trial, &pair, "%s %lld tokens, %lld + 2 x %lld heads of %lld",
                zo_dtype_name(shape.type), (long long)shape.tokens,
                (long long)shape.heads, (long long)shape.groups,
                (long long)shape.width);
    fill_random(trial_add(&trial, "qkv", shape.type, shape.tokens * width,
                          ROLE_INOUT, bound),
                random, 2.0f);
    fill_random(trial_add(&trial, "d_qkv", shape.type, shape.tokens * width,
                          ROLE_INOUT, bound),
                random, 2.0f);
    fill_random(trial_add(&trial, "bias", shape.type, width, ROLE_IN, EXACT),
                random, 1.0f);
    table = trial_add(&trial, "table", ZO_F32, POSITIONS * shape.pairs * 2,
                      ROLE_IN, EXACT);
    for (int64_t i = 0; i < POSITIONS * shape.pairs; i++) {
        const double angle = 10.0 * (double)next_float(random);

        ((float *)table->initial)[2 * i] = (float)cos(angle);
        ((float *)table->initial)[2 * i + 1] = (float)sin(angle);
    }
    fill_ids(
        trial_add(&trial, "positions", BYTES, shape.tokens * 4, ROLE_IN, EXACT),
        random, POSITIONS);
    /* Sums of rounded values: where one rounds the other way, so do they. */
    fill_random(trial_add(&trial, "d_bias", ZO_F32, width, ROLE_INOUT,
                          bound_of(ZO_F32, shape.tokens) +
                              2.0 * type_bound(shape.type)),
                random, 1.0f);
    (void)trial_add(
        &trial, "workspace", BYTES,
        (int64_t)larger(
            zo_kernels_host.rope_backward_workspace(shape.tokens, width),
            zo_kernels_cuda.rope_backward_workspace(shape.tokens, width)),
        ROLE_WORK, EXACT);
    return trial_run(&trial, run_rope, &shape);
}

static void test_rope(void)
{
    static const struct rope_shape shapes[] = {
        {1, 1, 1, 8, 2, ZO_F32, true, false},
        {5, 2, 1, 16, 4, ZO_F32, false, false},
        {300, 4, 2, 32, 8, ZO_F32, true, true},
        {70, 32, 2, 128, 32, ZO_F32, true, false},
        {9, 3, 1, 24, 11, ZO_F32, true, true},
        {7, 2, 1, 10, 5, ZO_F32, true, false}, /* not a multiple of 8 */
        {7, 2, 2, 7, 3, ZO_F32, true, true},   /* odd */
        {4, 2, 1, 16, 0, ZO_F32, true, false},
        {0, 2, 1, 16, 4, ZO_F32, true, false},
    };
    uint64_t random = 7;

    if (!pair_ready(&pair)) {
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(shapes) * TAP_COUNT(types); i++) {
        struct rope_shape shape = shapes[i / TAP_COUNT(types)];

        shape.type = types[i % TAP_COUNT(types)];
        if (!try_rope(shape, &random)) {
            return;
        }
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"embedding takes the rows of its table", test_embedding},
        {"embedding's gradient adds each id's tokens", test_embedding_backward},
        {"gather and scatter move the rows that are named",
         test_gather_scatter},
        {"rmsnorm agrees with the host", test_rmsnorm},
        {"rmsnorm's gradients agree, in place too", test_rmsnorm_backward},
        {"swiglu and its gradient agree, in place too", test_swiglu},
        {"bias, rotation and their gradients agree", test_rope},
    };
    const int code = tap_run(cases, TAP_COUNT(cases));

    pair_close(&pair);
    return code;
}
