/*
 * Attention over packed rows, forward, from a cache, and backward.
 *
 * Method: plain loops in double over (row, head, query, key); the backward
 * loops are first compared with central differences of the forward ones.
 * Row lengths are the edges of the host's blocks of 64 tokens; rows may be
 * empty, and tokens may belong to no row.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/dtype.h"
#include "tests/rig.h"
#include "tests/tap.h"

#define ROWS_MAX 8

struct shape {
    int64_t heads, groups, width;
    int64_t before; /* tokens before the first row */
    int64_t after;  /* tokens after the last */
    int64_t rows;
    int32_t lengths[ROWS_MAX];
};

/* What the references need of a shape. */
struct attention {
    int64_t heads, groups, width, rows, tokens;
    int32_t row_start[ROWS_MAX + 1];
    int64_t row_tokens_max;
    double scale;
};

static struct attention describe(const struct shape *shape)
{
    struct attention self = {
        .heads = shape->heads,
        .groups = shape->groups,
        .width = shape->width,
        .rows = shape->rows,
        .scale = (double)(float)(1.0 / sqrt((double)shape->width)),
    };

    self.row_start[0] = (int32_t)shape->before;
    for (int64_t r = 0; r < shape->rows; r++) {
        self.row_start[r + 1] = self.row_start[r] + shape->lengths[r];
        if (shape->lengths[r] > self.row_tokens_max) {
            self.row_tokens_max = shape->lengths[r];
        }
    }
    self.tokens = self.row_start[shape->rows] + shape->after;
    return self;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* One query over n keys; out (D); returns lse. */
static double attend(const struct attention *self, const double *q,
                     const double *k, const double *v, int64_t kv_stride,
                     int64_t n, double *out)
{
    double *scores = rig_doubles(n);
    double largest = -(double)INFINITY, sum = 0.0;

    for (int64_t j = 0; j < n; j++) {
        scores[j] = self->scale * dot(q, k + j * kv_stride, self->width);
        largest = fmax(largest, scores[j]);
    }
    for (int64_t j = 0; j < n; j++) {
        sum += exp(scores[j] - largest);
    }
    for (int64_t i = 0; i < self->width; i++) {
        out[i] = 0.0;
        for (int64_t j = 0; j < n; j++) {
            out[i] += exp(scores[j] - largest) / sum * v[j * kv_stride + i];
        }
    }
    free(scores);
    return largest + log(sum);
}

/* out (T, H, D) and lse (H, T) of qkv (T, H + 2 G, D) */
static void forward(const struct attention *self, const double *qkv,
                    double *out, double *lse)
{
    const int64_t all = self->heads + 2 * self->groups, d = self->width;

    for (int64_t r = 0; r < self->rows; r++) {
        const int64_t start = self->row_start[r];

        for (int64_t t = start; t < self->row_start[r + 1]; t++) {
            for (int64_t h = 0; h < self->heads; h++) {
                const int64_t g = h / (self->heads / self->groups);
                const double *k = qkv + (start * all + self->heads + g) * d;

                lse[h * self->tokens + t] = attend(
                    self, qkv + (t * all + h) * d, k, k + self->groups * d,
                    all * d, t - start + 1, out + (t * self->heads + h) * d);
            }
        }
    }
}

/* Adds one query's gradients; p and ds of its keys come from lse. */
static void backward_query(const struct attention *self, const double *qkv,
                           const double *out, const double *d_out,
                           const double *lse, double *d_qkv, int64_t start,
                           int64_t t, int64_t h)
{
    const int64_t all = self->heads + 2 * self->groups, d = self->width;
    const int64_t g = h / (self->heads / self->groups);
    const int64_t q_at = (t * all + h) * d;
    const double *d_row = d_out + (t * self->heads + h) * d;
    const double delta = dot(d_row, out + (t * self->heads + h) * d, d);

    for (int64_t s = start; s <= t; s++) {
        const int64_t k_at = (s * all + self->heads + g) * d;
        const int64_t v_at = k_at + self->groups * d;
        const double p = exp(self->scale * dot(qkv + q_at, qkv + k_at, d) -
                             lse[h * self->tokens + t]);
        const double ds = p * (dot(d_row, qkv + v_at, d) - delta) * self->scale;

        for (int64_t i = 0; i < d; i++) {
            d_qkv[q_at + i] += ds * qkv[k_at + i];
            d_qkv[k_at + i] += ds * qkv[q_at + i];
            d_qkv[v_at + i] += p * d_row[i];
        }
    }
}

static void backward(const struct attention *self, const double *qkv,
                     const double *out, const double *d_out, const double *lse,
                     double *d_qkv)
{
    for (int64_t r = 0; r < self->rows; r++) {
        for (int64_t t = self->row_start[r]; t < self->row_start[r + 1]; t++) {
            for (int64_t h = 0; h < self->heads; h++) {
                backward_query(self, qkv, out, d_out, lse, d_qkv,
                               self->row_start[r], t, h);
            }
        }
    }
}

static double bound_of(const struct attention *self)
{
    return rig_product_bound(self->row_tokens_max > self->width
                                 ? self->row_tokens_max
                                 : self->width);
}

/* ---- forward and backward -------------------------------------------- */

static void *element(const struct rig_array *array, enum zo_dtype type,
                     int64_t index)
{
    return (char *)array->at + (size_t)index * zo_dtype_bytes(type);
}

static void check_shape(struct rig *rig, enum zo_dtype type,
                        const struct shape *shape)
{
    const enum rig_type rig_type = (enum rig_type)type;
    const struct attention self = describe(shape);
    const int64_t d = self.width, q_width = self.heads * d;
    const int64_t width = q_width + 2 * self.groups * d;
    struct rig_array *qkv = rig_random(rig, rig_type, self.tokens * width, 2.0);
    struct rig_array *out = rig_array(rig, rig_type, self.tokens * q_width);
    struct rig_array *lse = rig_array(rig, RIG_F32, self.heads * self.tokens);
    struct rig_array *d_out =
        rig_random(rig, rig_type, self.tokens * q_width, 1.0);
    struct rig_array *d_qkv = rig_array(rig, rig_type, self.tokens * width);
    struct rig_array *row_start = rig_ints(rig, self.row_start, self.rows + 1);
    struct rig_array *workspace =
        rig_bytes(rig, rig->ops->attention_backward_workspace(
                           self.tokens, self.heads, self.groups, d));
    double *x = rig_values(qkv), *d_values = rig_values(d_out);
    double *want = rig_doubles(self.tokens * q_width), *got_out, *got_lse;
    double *want_lse = rig_doubles(self.heads * self.tokens);
    double *want_d = rig_doubles(self.tokens * width);
    const struct zo_attention_args args = {
        .out = out->at,
        .lse = lse->at,
        .q = qkv->at,
        .k = element(qkv, type, q_width),
        .v = element(qkv, type, q_width + self.groups * d),
        .row_start = row_start->at,
        .q_stride_elems = width,
        .kv_stride_elems = width,
        .rows = self.rows,
        .tokens = self.tokens,
        .row_tokens_max = self.row_tokens_max,
        .heads = self.heads,
        .groups = self.groups,
        .head_width = d,
        .scale = (float)self.scale,
        .type = type,
    };
    const struct zo_attention_backward_args backward_args = {
        .d_qkv = d_qkv->at,
        .d_out = d_out->at,
        .out = out->at,
        .qkv = qkv->at,
        .lse = lse->at,
        .row_start = row_start->at,
        .workspace = workspace->at,
        .rows = self.rows,
        .tokens = self.tokens,
        .row_tokens_max = self.row_tokens_max,
        .heads = self.heads,
        .groups = self.groups,
        .head_width = d,
        .scale = (float)self.scale,
        .type = type,
    };

    forward(&self, x, want, want_lse);
    RIG_CHECK(rig->ops->attention(rig->kernels, rig->stream, &args) == ZO_OK);
    if (rig_matches(rig, "out", out, want, bound_of(&self)) &&
        rig_matches(rig, "lse", lse, want_lse, bound_of(&self))) {
        got_out = rig_values(out); /* the backward pass reads these */
        got_lse = rig_values(lse);
        backward(&self, x, got_out, d_values, got_lse, want_d);
        RIG_CHECK(rig->ops->attention_backward(rig->kernels, rig->stream,
                                               &backward_args) == ZO_OK);
        (void)rig_matches(rig, "d_qkv", d_qkv, want_d, bound_of(&self));
        free(got_out), free(got_lse);
    }
    free(x), free(d_values), free(want), free(want_lse), free(want_d);
    rig_clear(rig);
}

static void attention_cases(struct rig *rig)
{
    static const struct shape shapes[] = {
        {2, 1, 4, 0, 0, 0, {0}},      /* nothing */
        {2, 1, 4, 0, 3, 0, {0}},      /* tokens, but no row */
        {1, 1, 1, 0, 0, 1, {1}},      /* one token */
        {3, 3, 5, 0, 0, 2, {7, 2}},   /* no sharing, odd width */
        {4, 2, 8, 0, 60, 2, {63, 5}}, /* padded to a multiple of 64 */
        {6, 2, 16, 3, 2, 5, {64, 0, 65, 1, 10}}, /* empty row, both ends */
        {2, 1, 33, 0, 0, 1, {200}},              /* blocks in a row */
        {2, 2, 128, 0, 0, 3, {40, 40, 48}},      /* rows in a block */
    };

    for (size_t t = 0; t < TAP_COUNT(rig_types); t++) {
        for (size_t i = 0; i < TAP_COUNT(shapes); i++) {
            check_shape(rig, rig_types[t], &shapes[i]);
        }
    }
}

static void test_attention(void)
{
    rig_everywhere(attention_cases);
}

static void wide_head_cases(struct rig *rig)
{
    static const struct shape wide = {2, 1, 1024, 1, 1, 2, {65, 70}};

    check_shape(rig, ZO_BF16, &wide);
    check_shape(rig, ZO_F32, &wide);
}

static void test_wide_heads(void)
{
    rig_everywhere(wide_head_cases);
}

static void long_row_cases(struct rig *rig)
{
    static const struct shape row = {1, 1, 8, 0, 0, 1, {1000}};

    check_shape(rig, ZO_F32, &row);
}

static void test_long_row(void)
{
    rig_everywhere(long_row_cases);
}

struct slopes {
    struct attention attention;
    double *lse;
};

static void slopes_forward(const void *context, const double *x, double *out)
{
    const struct slopes *self = context;

    forward(&self->attention, x, out, self->lse);
}

static void test_slopes(void)
{
    static const struct shape shape = {4, 2, 3, 0, 0, 2, {5, 3}};
    struct slopes self = {.attention = describe(&shape)};
    const int64_t x_count = 8 * (4 + 4) * 3, out_count = 8 * 4 * 3;
    double *x = rig_doubles(x_count), *out = rig_doubles(out_count);
    double *d_out = rig_doubles(out_count), *d_x = rig_doubles(x_count);
    struct rig rig = {.random = 9};

    self.lse = rig_doubles(8 * 4);
    for (int64_t i = 0; i < x_count; i++) {
        x[i] = 2.0 * rig_uniform(&rig) - 1.0;
    }
    for (int64_t i = 0; i < out_count; i++) {
        d_out[i] = 2.0 * rig_uniform(&rig) - 1.0;
    }
    forward(&self.attention, x, out, self.lse);
    backward(&self.attention, x, out, d_out, self.lse, d_x);
    (void)rig_slopes_match(slopes_forward, &self, x, x_count, d_out, out_count,
                           d_x);
    free(x), free(out), free(d_out), free(d_x), free(self.lse);
}

/* ---- decoding from a cache ------------------------------------------- */

/* Three rows with 1, 3 and 2 new tokens; the caches lie apart and in another
 * order, one of them longer than a block. */
static void check_cache(struct rig *rig, enum zo_dtype type)
{
    enum { HEADS = 4, GROUPS = 2, D = 6, TOKENS = 6, ENTRIES = 200 };
    static const int32_t row_start[] = {0, 1, 4, 6};
    static const int32_t kv_start[] = {150, 5, 120};
    static const int32_t kv_length[] = {20, 100, 2};
    const enum rig_type rig_type = (enum rig_type)type;
    const int64_t q_stride = HEADS * D + 7, kv_stride = GROUPS * D + 5;
    const struct attention self = {.heads = HEADS,
                                   .groups = GROUPS,
                                   .width = D,
                                   .row_tokens_max = 100,
                                   .scale = 0.25};
    struct rig_array *q = rig_random(rig, rig_type, TOKENS * q_stride, 1.0);
    struct rig_array *k = rig_random(rig, rig_type, ENTRIES * kv_stride, 1.0);
    struct rig_array *v = rig_random(rig, rig_type, ENTRIES * kv_stride, 1.0);
    struct rig_array *out = rig_array(rig, rig_type, TOKENS * HEADS * D);
    struct rig_array *lse = rig_array(rig, RIG_F32, HEADS * TOKENS);
    double *q_values = rig_values(q), *k_values = rig_values(k);
    double *v_values = rig_values(v);
    double want[TOKENS * HEADS * D], want_lse[HEADS * TOKENS];
    const struct zo_attention_args args = {
        .out = out->at,
        .lse = lse->at,
        .q = q->at,
        .k = k->at,
        .v = v->at,
        .row_start = rig_ints(rig, row_start, 4)->at,
        .kv_start = rig_ints(rig, kv_start, 3)->at,
        .kv_length = rig_ints(rig, kv_length, 3)->at,
        .q_stride_elems = q_stride,
        .kv_stride_elems = kv_stride,
        .rows = 3,
        .tokens = TOKENS,
        .row_tokens_max = 3,
        .heads = HEADS,
        .groups = GROUPS,
        .head_width = D,
        .scale = 0.25f,
        .type = type,
    };

    for (int r = 0; r < 3; r++) {
        for (int64_t t = row_start[r]; t < row_start[r + 1]; t++) {
            const int64_t seen = kv_length[r] - (row_start[r + 1] - 1 - t);

            for (int64_t h = 0; h < HEADS; h++) {
                const int64_t at =
                    kv_start[r] * kv_stride + h / (HEADS / GROUPS) * D;

                want_lse[h * TOKENS + t] = attend(
                    &self, q_values + t * q_stride + h * D, k_values + at,
                    v_values + at, kv_stride, seen, want + (t * HEADS + h) * D);
            }
        }
    }
    RIG_CHECK(rig->ops->attention(rig->kernels, rig->stream, &args) == ZO_OK);
    (void)(rig_matches(rig, "out", out, want, bound_of(&self)) &&
           rig_matches(rig, "lse", lse, want_lse, bound_of(&self)));
    free(q_values), free(k_values), free(v_values);
    rig_clear(rig);
}

static void cache_cases(struct rig *rig)
{
    for (size_t t = 0; t < TAP_COUNT(rig_types); t++) {
        check_cache(rig, rig_types[t]);
    }
}

static void test_cache(void)
{
    rig_everywhere(cache_cases);
}

/* A score of 1000 has an exponential beyond any float. */
static void large_score_cases(struct rig *rig)
{
    static const int32_t row_start[] = {0, 3};
    static const double q[3] = {1000.0, -1000.0, 1000.0};
    static const double kv[6] = {1.0, -1.0, 0.5, 10.0, 20.0, 30.0};
    static const double want[3] = {10.0, 20.0, 10.0};
    struct rig_array *queries = rig_array(rig, RIG_F32, 3);
    struct rig_array *entries = rig_array(rig, RIG_F32, 6);
    struct rig_array *out = rig_array(rig, RIG_F32, 3);
    struct rig_array *lse = rig_array(rig, RIG_F32, 3);

    for (int i = 0; i < 6; i++) {
        rig_set(entries, i, kv[i]);
        if (i < 3) {
            rig_set(queries, i, q[i]);
        }
    }
    RIG_CHECK(rig_upload(rig, queries) && rig_upload(rig, entries));
    RIG_CHECK(
        rig->ops->attention(rig->kernels, rig->stream,
                            &(struct zo_attention_args){
                                .out = out->at,
                                .lse = lse->at,
                                .q = queries->at,
                                .k = entries->at,
                                .v = (float *)entries->at + 3,
                                .row_start = rig_ints(rig, row_start, 2)->at,
                                .q_stride_elems = 1,
                                .kv_stride_elems = 1,
                                .rows = 1,
                                .tokens = 3,
                                .row_tokens_max = 3,
                                .heads = 1,
                                .groups = 1,
                                .head_width = 1,
                                .scale = 1.0f}) == ZO_OK);
    (void)rig_matches(rig, "out", out, want, ZO_F32_BOUND);
    rig_clear(rig);
}

static void test_large_scores(void)
{
    rig_everywhere(large_score_cases);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"attention and its gradients match double", test_attention},
        {"the reference gradients are slopes", test_slopes},
        {"heads of the largest width work", test_wide_heads},
        {"a long row works", test_long_row},
        {"queries find their keys in a cache", test_cache},
        {"large scores do not overflow", test_large_scores},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
