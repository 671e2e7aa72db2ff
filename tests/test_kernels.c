/*
 * Operations on rows of activations: rmsnorm, rope, swiglu.
 *
 * Method: each operation against plain loops in double on the same inputs,
 * with the bounds of kernels.h; backward passes are first compared, in
 * double, with central differences of the forward loops.  rig.h runs each
 * case on every backend, number of threads and instruction set and compares
 * the bits.  Shapes are the edges of blocks (8, 1024, 16384 elements; 64
 * rows), not comfortable powers of two.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig.h"
#include "tests/tap.h"

/* ---- rmsnorm --------------------------------------------------------- */

struct rmsnorm {
    int64_t rows, cols;
    double epsilon;
    const double *weight;
};

static void rmsnorm_reference(const struct rmsnorm *self, const double *in,
                              double *out, double *rstd)
{
    for (int64_t r = 0; r < self->rows; r++) {
        double mean = 0.0, factor;

        for (int64_t c = 0; c < self->cols; c++) {
            mean += in[r * self->cols + c] * in[r * self->cols + c];
        }
        factor = 1.0 / sqrt(mean / (double)self->cols + self->epsilon);
        for (int64_t c = 0; c < self->cols; c++) {
            out[r * self->cols + c] =
                in[r * self->cols + c] * factor * self->weight[c];
        }
        if (rstd != NULL) {
            rstd[r] = factor;
        }
    }
}

static void rmsnorm_forward(const void *self, const double *x, double *out)
{
    rmsnorm_reference(self, x, out, NULL);
}

static void rmsnorm_backward_reference(const struct rmsnorm *self,
                                       const double *in, const double *rstd,
                                       const double *d_out, double *d_in,
                                       double *d_weight)
{
    for (int64_t r = 0; r < self->rows; r++) {
        const double *x_row = in + r * self->cols;
        const double *d_row = d_out + r * self->cols;
        double mean = 0.0;

        for (int64_t c = 0; c < self->cols; c++) {
            mean += d_row[c] * self->weight[c] * x_row[c] * rstd[r];
        }
        mean /= (double)self->cols;
        for (int64_t c = 0; c < self->cols; c++) {
            const double x = x_row[c] * rstd[r];

            d_in[r * self->cols + c] +=
                rstd[r] * (d_row[c] * self->weight[c] - x * mean);
            d_weight[c] += d_row[c] * x;
        }
    }
}

static void check_rmsnorm(struct rig *rig, enum zo_dtype type, int64_t rows,
                          int64_t cols)
{
    struct rig_array *in =
        rig_random(rig, (enum rig_type)type, rows * cols, 3.0);
    struct rig_array *weight = rig_random(rig, (enum rig_type)type, cols, 2.0);
    struct rig_array *out = rig_array(rig, (enum rig_type)type, rows * cols);
    struct rig_array *rstd = rig_array(rig, RIG_F32, rows);
    double *w = rig_values(weight), *x = rig_values(in);
    double *want = rig_doubles(rows * cols), *want_rstd = rig_doubles(rows);
    const struct rmsnorm self = {rows, cols, (double)1e-5f, w};
    const struct zo_rmsnorm_args args = {
        .out = out->at,
        .rstd = rstd->at,
        .in = in->at,
        .weight = weight->at,
        .rows = rows,
        .cols = cols,
        .epsilon = 1e-5f,
        .type = type,
    };

    rmsnorm_reference(&self, x, want, want_rstd);
    RIG_CHECK(rig->ops->rmsnorm(rig->kernels, rig->stream, &args) == ZO_OK);
    (void)(rig_matches(rig, "rmsnorm", out, want, ZO_F32_BOUND) &&
           rig_matches(rig, "rstd", rstd, want_rstd, ZO_F32_BOUND));
    free(w), free(x), free(want), free(want_rstd);
    rig_clear(rig);
}

/* mode 0: no residual, d_weight set; 1: residual, added; 2: d_in is d_out;
 * 3: d_in is the residual. */
static void check_rmsnorm_backward(struct rig *rig, enum zo_dtype type,
                                   int64_t rows, int64_t cols, int mode)
{
    const enum rig_type rig_type = (enum rig_type)type;
    struct rig_array *in = rig_random(rig, rig_type, rows * cols, 3.0);
    struct rig_array *weight = rig_random(rig, rig_type, cols, 2.0);
    struct rig_array *d_out = rig_random(rig, rig_type, rows * cols, 1.0);
    struct rig_array *residual = rig_random(rig, rig_type, rows * cols, 1.0);
    struct rig_array *rstd = rig_random(rig, RIG_F32, rows, 1.0);
    struct rig_array *d_weight = rig_random(rig, RIG_F32, cols, 1.0);
    struct rig_array *d_in = mode == 2 ? d_out
                             : mode == 3
                                 ? residual
                                 : rig_array(rig, rig_type, rows * cols);
    struct rig_array *workspace =
        rig_bytes(rig, rig->ops->rmsnorm_backward_workspace(rows, cols));
    double *w = rig_values(weight), *x = rig_values(in), *d = rig_values(d_out);
    double *want = mode == 0 ? rig_doubles(rows * cols) : rig_values(residual);
    double *want_weight = mode == 0 ? rig_doubles(cols) : rig_values(d_weight);
    double *factors = rig_values(rstd);
    const struct rmsnorm self = {rows, cols, 0.0, w};
    const struct zo_rmsnorm_backward_args args = {
        .d_in = d_in->at,
        .d_weight = d_weight->at,
        .d_out = d_out->at,
        .d_residual = mode == 0 ? NULL : residual->at,
        .in = in->at,
        .rstd = rstd->at,
        .weight = weight->at,
        .workspace = workspace->at,
        .rows = rows,
        .cols = cols,
        .type = type,
        .add = mode != 0,
    };

    rmsnorm_backward_reference(&self, x, factors, d, want, want_weight);
    RIG_CHECK(rig->ops->rmsnorm_backward(rig->kernels, rig->stream, &args) ==
              ZO_OK);
    (void)(rig_matches(rig, "d_in", d_in, want, ZO_F32_BOUND) &&
           rig_matches(rig, "d_weight", d_weight, want_weight,
                       rig_product_bound(rows)));
    free(w), free(x), free(d), free(want), free(want_weight), free(factors);
    rig_clear(rig);
}

static void rmsnorm_cases(struct rig *rig)
{
    static const int64_t shapes[][2] = {
        {0, 8}, {1, 8}, {3, 24}, {7, 136}, {65, 1032}, {130, 64}, {2, 5000}};

    for (size_t t = 0; t < TAP_COUNT(rig_types); t++) {
        for (size_t i = 0; i < TAP_COUNT(shapes); i++) {
            check_rmsnorm(rig, rig_types[t], shapes[i][0], shapes[i][1]);
            for (int mode = 0; mode < 4; mode++) {
                check_rmsnorm_backward(rig, rig_types[t], shapes[i][0],
                                       shapes[i][1], mode);
            }
        }
    }
}

static void test_rmsnorm(void)
{
    rig_everywhere(rmsnorm_cases);
}

static void test_rmsnorm_slopes(void)
{
    enum { ROWS = 2, COLS = 16, COUNT = ROWS * COLS };
    double in[COUNT], weight[COLS], d_out[COUNT], rstd[ROWS], out[COUNT];
    double d_in[COUNT] = {0}, d_weight[COLS] = {0};
    const struct rmsnorm self = {ROWS, COLS, 1e-3, weight};
    struct rig rig = {.random = 5};

    for (int i = 0; i < COUNT; i++) {
        in[i] = rig_uniform(&rig) - 0.5;
        d_out[i] = rig_uniform(&rig) - 0.5;
        weight[i % COLS] = rig_uniform(&rig);
    }
    rmsnorm_reference(&self, in, out, rstd);
    rmsnorm_backward_reference(&self, in, rstd, d_out, d_in, d_weight);
    TAP_CHECK(rig_slopes_match(rmsnorm_forward, &self, in, COUNT, d_out, COUNT,
                               d_in));
}

/* Without epsilon this would be 0/0; with it, rstd is 1/sqrt(1e-5). */
static void test_rmsnorm_zero_row(void)
{
    struct rig rig;
    struct rig_array *in, *out, *rstd, *weight;

    TAP_CHECK(rig_open_host(&rig, 0));
    in = rig_random(&rig, RIG_F32, 8, 0.0);
    weight = rig_random(&rig, RIG_F32, 8, 1.0);
    out = rig_array(&rig, RIG_F32, 8);
    rstd = rig_array(&rig, RIG_F32, 1);
    TAP_CHECK_INT(
        rig.ops->rmsnorm(rig.kernels, rig.stream,
                         &(struct zo_rmsnorm_args){.out = out->at,
                                                   .rstd = rstd->at,
                                                   .in = in->at,
                                                   .weight = weight->at,
                                                   .rows = 1,
                                                   .cols = 8,
                                                   .epsilon = 1e-5f}),
        ZO_OK);
    TAP_CHECK(rig_fetch(&rig, out) && rig_fetch(&rig, rstd));
    TAP_CHECK(rig_get(out, 0) == 0.0 && rig_get(out, 7) == 0.0);
    TAP_CHECK(fabs(rig_get(rstd, 0) - 316.22777) < 1e-3);
    rig_close(&rig);
}

/* ---- rope ------------------------------------------------------------ */

struct rope {
    int64_t tokens, heads, groups, width, pairs;
    const double *bias;  /* or NULL */
    const double *table; /* (positions, pairs, 2) */
    const int32_t *positions;
    double direction;
};

static void rope_reference(const struct rope *self, const double *in,
                           double *out)
{
    const int64_t all = self->heads + 2 * self->groups;

    for (int64_t t = 0; t < self->tokens; t++) {
        for (int64_t h = 0; h < all; h++) {
            const int64_t at = (t * all + h) * self->width;

            for (int64_t i = 0; i < self->width; i++) {
                out[at + i] =
                    in[at + i] + (self->bias != NULL
                                      ? self->bias[h * self->width + i]
                                      : 0.0);
            }
            for (int64_t i = 0; h < all - self->groups && i < self->pairs;
                 i++) {
                const double *turn =
                    self->table + (self->positions[t] * self->pairs + i) * 2;
                const double even = out[at + 2 * i], odd = out[at + 2 * i + 1];
                const double sine = turn[1] * self->direction;

                out[at + 2 * i] = even * turn[0] - odd * sine;
                out[at + 2 * i + 1] = even * sine + odd * turn[0];
            }
        }
    }
}

static void rope_forward(const void *self, const double *x, double *out)
{
    rope_reference(self, x, out);
}

enum { POSITIONS = 300 };

static struct rig_array *rope_table(struct rig *rig, int64_t pairs)
{
    struct rig_array *table = rig_array(rig, RIG_F32, POSITIONS * pairs * 2);

    for (int64_t p = 0; p < POSITIONS; p++) {
        for (int64_t i = 0; i < pairs; i++) {
            const double angle =
                (double)p * pow(10000.0, -(double)i / (double)pairs);

            rig_set(table, (p * pairs + i) * 2, cos(angle));
            rig_set(table, (p * pairs + i) * 2 + 1, sin(angle));
        }
    }
    (void)rig_upload(rig, table);
    return table;
}

static void check_rope(struct rig *rig, enum zo_dtype type, struct rope self,
                       bool has_bias)
{
    const int64_t width = (self.heads + 2 * self.groups) * self.width;
    struct rig_array *qkv =
        rig_random(rig, (enum rig_type)type, self.tokens * width, 2.0);
    struct rig_array *bias = rig_random(rig, (enum rig_type)type, width, 1.0);
    struct rig_array *table = rope_table(rig, self.pairs);
    struct rig_array *positions = rig_array(rig, RIG_I32, self.tokens);
    double *in = rig_values(qkv), *b = rig_values(bias), *t = rig_values(table);
    double *want = rig_doubles(self.tokens * width);
    struct zo_rope_args args = {
        .qkv = qkv->at,
        .bias = has_bias ? bias->at : NULL,
        .table = table->at,
        .tokens = self.tokens,
        .heads = self.heads,
        .groups = self.groups,
        .head_width = self.width,
        .pairs = self.pairs,
        .type = type,
    };

    for (int64_t i = 0; i < self.tokens; i++) {
        const int32_t position = rig_below(rig, POSITIONS);

        memcpy(positions->host + i * 4, &position, 4);
    }
    (void)rig_upload(rig, positions);
    args.positions = positions->at;
    self.positions = (const int32_t *)(void *)positions->host;
    self.bias = has_bias ? b : NULL;
    self.table = t;
    self.direction = 1.0;
    rope_reference(&self, in, want);
    RIG_CHECK(rig->ops->rope(rig->kernels, rig->stream, &args) == ZO_OK);
    (void)rig_matches(rig, "rope", qkv, want, ZO_F32_BOUND);
    free(in), free(b), free(t), free(want);
    rig_clear(rig);
}

/* mode 0: no bias; 1: d_bias set; 2: added */
static void check_rope_backward(struct rig *rig, enum zo_dtype type,
                                struct rope self, int mode)
{
    const int64_t width = (self.heads + 2 * self.groups) * self.width;
    struct rig_array *d_qkv =
        rig_random(rig, (enum rig_type)type, self.tokens * width, 2.0);
    struct rig_array *d_bias = rig_random(rig, RIG_F32, width, 1.0);
    struct rig_array *table = rope_table(rig, self.pairs);
    struct rig_array *positions = rig_array(rig, RIG_I32, self.tokens);
    struct rig_array *workspace =
        rig_bytes(rig, rig->ops->rope_backward_workspace(self.tokens, width));
    double *in = rig_values(d_qkv), *t = rig_values(table);
    double *want = rig_doubles(self.tokens * width);
    double *want_bias = mode == 2 ? rig_values(d_bias) : rig_doubles(width);
    struct zo_rope_backward_args args = {
        .d_qkv = d_qkv->at,
        .d_bias = mode == 0 ? NULL : d_bias->at,
        .table = table->at,
        .positions = positions->at,
        .workspace = workspace->at,
        .tokens = self.tokens,
        .heads = self.heads,
        .groups = self.groups,
        .head_width = self.width,
        .pairs = self.pairs,
        .type = type,
        .add = mode == 2,
    };

    for (int64_t i = 0; i < self.tokens; i++) {
        const int32_t position = rig_below(rig, POSITIONS);

        memcpy(positions->host + i * 4, &position, 4);
    }
    (void)rig_upload(rig, positions);
    self.positions = (const int32_t *)(void *)positions->host;
    self.table = t;
    self.direction = -1.0;
    rope_reference(&self, in, want);
    RIG_CHECK(rig->ops->rope_backward(rig->kernels, rig->stream, &args) ==
              ZO_OK);
    if (rig_matches(rig, "rope_backward", d_qkv, want, ZO_F32_BOUND) &&
        mode != 0) {
        for (int64_t i = 0; i < self.tokens * width; i++) {
            want_bias[i % width] += rig_get(d_qkv, i); /* as rounded */
        }
        (void)rig_matches(rig, "d_bias", d_bias, want_bias,
                          rig_product_bound(self.tokens));
    }
    free(in), free(t), free(want), free(want_bias);
    rig_clear(rig);
}

static void rope_cases(struct rig *rig)
{
    static const struct rope shapes[] = {
        {.tokens = 0, .heads = 2, .groups = 1, .width = 8, .pairs = 2},
        {.tokens = 1, .heads = 1, .groups = 1, .width = 2, .pairs = 1},
        {.tokens = 5, .heads = 4, .groups = 2, .width = 16, .pairs = 4},
        {.tokens = 3, .heads = 3, .groups = 3, .width = 7, .pairs = 3},
        {.tokens = 66, .heads = 2, .groups = 1, .width = 128, .pairs = 32},
        {.tokens = 131, .heads = 1, .groups = 1, .width = 70, .pairs = 35},
        {.tokens = 4, .heads = 2, .groups = 2, .width = 5, .pairs = 0},
    };

    for (size_t t = 0; t < TAP_COUNT(rig_types); t++) {
        for (size_t i = 0; i < TAP_COUNT(shapes); i++) {
            check_rope(rig, rig_types[t], shapes[i], true);
            check_rope(rig, rig_types[t], shapes[i], false);
            for (int mode = 0; mode < 3; mode++) {
                check_rope_backward(rig, rig_types[t], shapes[i], mode);
            }
        }
    }
}

static void test_rope(void)
{
    rig_everywhere(rope_cases);
}

static void test_rope_slopes(void)
{
    enum { WIDTH = 6, ALL = 4, COUNT = 2 * WIDTH * ALL };
    static const int32_t positions[2] = {3, 11};
    double in[COUNT], d_out[COUNT], d_in[COUNT], table[12 * 2 * 2];
    struct rope self = {2, 2, 1, WIDTH, 2, NULL, table, positions, 1.0};
    struct rig rig = {.random = 6};

    for (int i = 0; i < COUNT; i++) {
        in[i] = rig_uniform(&rig) - 0.5;
        d_out[i] = rig_uniform(&rig) - 0.5;
    }
    for (int i = 0; i < 24; i++) {
        table[2 * i] = cos(0.37 * i);
        table[2 * i + 1] = sin(0.37 * i);
    }
    self.direction = -1.0;
    rope_reference(&self, d_out, d_in);
    self.direction = 1.0;
    TAP_CHECK(
        rig_slopes_match(rope_forward, &self, in, COUNT, d_out, COUNT, d_in));
}

/* ---- swiglu ---------------------------------------------------------- */

struct swiglu {
    int64_t rows, inner;
};

static void swiglu_forward(const void *context, const double *in, double *out)
{
    const struct swiglu *self = context;

    for (int64_t r = 0; r < self->rows; r++) {
        for (int64_t i = 0; i < self->inner; i++) {
            const double a = in[r * 2 * self->inner + i];

            out[r * self->inner + i] =
                a / (1.0 + exp(-a)) * in[(r * 2 + 1) * self->inner + i];
        }
    }
}

static void swiglu_backward_reference(const struct swiglu *self,
                                      const double *in, const double *d_out,
                                      double *d_in)
{
    for (int64_t r = 0; r < self->rows; r++) {
        for (int64_t i = 0; i < self->inner; i++) {
            const int64_t a_at = r * 2 * self->inner + i;
            const int64_t b_at = a_at + self->inner;
            const double a = in[a_at], d = d_out[r * self->inner + i];
            const double sigmoid = 1.0 / (1.0 + exp(-a));

            d_in[a_at] = d * in[b_at] * sigmoid * (1.0 + a * (1.0 - sigmoid));
            d_in[b_at] = d * a * sigmoid;
        }
    }
}

static void check_swiglu(struct rig *rig, enum zo_dtype type,
                         struct swiglu self, bool is_in_place)
{
    const enum rig_type rig_type = (enum rig_type)type;
    const int64_t count = self.rows * self.inner;
    struct rig_array *in = rig_random(rig, rig_type, 2 * count, 9.0);
    struct rig_array *d_out = rig_random(rig, rig_type, count, 1.0);
    struct rig_array *out = rig_array(rig, rig_type, count);
    struct rig_array *d_in =
        is_in_place ? in : rig_array(rig, rig_type, 2 * count);
    double *x = rig_values(in), *d = rig_values(d_out);
    double *want = rig_doubles(count), *want_d = rig_doubles(2 * count);
    const struct zo_swiglu_args args = {out->at, in->at, self.rows, self.inner,
                                        type};
    const struct zo_swiglu_backward_args backward_args = {
        d_in->at, d_out->at, in->at, self.rows, self.inner, type};

    swiglu_forward(&self, x, want);
    swiglu_backward_reference(&self, x, d, want_d);
    RIG_CHECK(rig->ops->swiglu(rig->kernels, rig->stream, &args) == ZO_OK);
    RIG_CHECK(rig->ops->swiglu_backward(rig->kernels, rig->stream,
                                        &backward_args) == ZO_OK);
    (void)(rig_matches(rig, "swiglu", out, want, ZO_F32_BOUND) &&
           rig_matches(rig, "swiglu_backward", d_in, want_d, ZO_F32_BOUND));
    free(x), free(d), free(want), free(want_d);
    rig_clear(rig);
}

static void swiglu_cases(struct rig *rig)
{
    static const struct swiglu shapes[] = {{0, 8},     {1, 8},    {3, 40},
                                           {17, 1032}, {40, 512}, {2, 13696}};

    for (size_t t = 0; t < TAP_COUNT(rig_types); t++) {
        for (size_t i = 0; i < TAP_COUNT(shapes); i++) {
            check_swiglu(rig, rig_types[t], shapes[i], false);
            check_swiglu(rig, rig_types[t], shapes[i], true);
        }
    }
}

static void test_swiglu(void)
{
    rig_everywhere(swiglu_cases);
}

static void test_swiglu_slopes(void)
{
    enum { ROWS = 2, INNER = 8, COUNT = ROWS * INNER };
    const struct swiglu self = {ROWS, INNER};
    double in[2 * COUNT], d_out[COUNT], d_in[2 * COUNT];
    struct rig rig = {.random = 7};

    for (int i = 0; i < 2 * COUNT; i++) {
        in[i] = 4.0 * rig_uniform(&rig) - 2.0;
        d_out[i / 2] = rig_uniform(&rig) - 0.5;
    }
    swiglu_backward_reference(&self, in, d_out, d_in);
    TAP_CHECK(rig_slopes_match(swiglu_forward, &self, in, 2 * COUNT, d_out,
                               COUNT, d_in));
}

/* Inputs whose exponential overflows or vanishes stay finite. */
static void extreme_swiglu_cases(struct rig *rig)
{
    static const double inputs[8] = {-1000.0, -104.0, -88.0, -87.0,
                                     0.0,     88.0,   89.0,  1000.0};
    struct rig_array *in = rig_array(rig, RIG_F32, 16);
    struct rig_array *out = rig_array(rig, RIG_F32, 8);
    struct rig_array *d_out = rig_array(rig, RIG_F32, 8);
    struct rig_array *d_in = rig_array(rig, RIG_F32, 16);
    double want[8], want_d[16];
    const struct swiglu self = {1, 8};
    double *x;

    for (int i = 0; i < 8; i++) {
        rig_set(in, i, inputs[i]);
        rig_set(in, 8 + i, 1.0);
        rig_set(d_out, i, 1.0);
    }
    RIG_CHECK(rig_upload(rig, in) && rig_upload(rig, d_out));
    x = rig_values(in);
    swiglu_forward(&self, x, want);
    swiglu_backward_reference(&self, x,
                              (const double[]){1, 1, 1, 1, 1, 1, 1, 1}, want_d);
    free(x);
    RIG_CHECK(rig->ops->swiglu(rig->kernels, rig->stream,
                               &(struct zo_swiglu_args){out->at, in->at, 1, 8,
                                                        ZO_F32}) == ZO_OK);
    RIG_CHECK(rig->ops->swiglu_backward(
                  rig->kernels, rig->stream,
                  &(struct zo_swiglu_backward_args){d_in->at, d_out->at, in->at,
                                                    1, 8, ZO_F32}) == ZO_OK);
    (void)(rig_matches(rig, "swiglu", out, want, ZO_F32_BOUND) &&
           rig_matches(rig, "backward", d_in, want_d, ZO_F32_BOUND));
    rig_clear(rig);
}

static void test_swiglu_extremes(void)
{
    rig_everywhere(extreme_swiglu_cases);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"rmsnorm and its gradients match double", test_rmsnorm},
        {"the reference gradient of rmsnorm is its slope", test_rmsnorm_slopes},
        {"a row of zeros stays finite", test_rmsnorm_zero_row},
        {"rope and its gradients match double", test_rope},
        {"the reference gradient of rope is its slope", test_rope_slopes},
        {"swiglu and its gradients match double", test_swiglu},
        {"the reference gradient of swiglu is its slope", test_swiglu_slopes},
        {"swiglu stays finite where its exponential does not",
         test_swiglu_extremes},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
