/*
 * Operations that move rows, and what stands at the ends of a model:
 * embedding, gather, scatter, cross-entropy.
 *
 * Method: that of test_kernels.c; what only moves is compared exactly.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig.h"
#include "tests/tap.h"

/* ---- rows ------------------------------------------------------------ */

static void check_embedding(struct rig *rig, enum zo_dtype type, int64_t tokens,
                            int64_t cols, int64_t vocab)
{
    const enum rig_type rig_type = (enum rig_type)type;
    struct rig_array *table = rig_random(rig, rig_type, vocab * cols, 1.0);
    struct rig_array *ids = rig_array(rig, RIG_I32, tokens);
    struct rig_array *out = rig_array(rig, rig_type, tokens * cols);
    double *rows = rig_values(table), *want = rig_doubles(tokens * cols);
    struct zo_embedding_args args = {out->at, table->at, ids->at, tokens,
                                     cols,    vocab,     type};

    for (int64_t t = 0; t < tokens; t++) {
        const int32_t id = rig_below(rig, (int)vocab);

        memcpy(ids->host + t * 4, &id, 4);
        memcpy(want + t * cols, rows + id * cols, (size_t)cols * sizeof(*want));
    }
    RIG_CHECK(rig_upload(rig, ids));
    RIG_CHECK(rig->ops->embedding(rig->kernels, rig->stream, &args) == ZO_OK);
    RIG_CHECK(rig_fetch(rig, out));
    for (int64_t i = 0; i < tokens * cols; i++) { /* exact */
        RIG_CHECK(rig_get(out, i) == want[i]);
    }
    free(rows), free(want);
    rig_clear(rig);
}

/* Groups the tokens by id, as the trainer does. */
static void check_embedding_backward(struct rig *rig, enum zo_dtype type,
                                     int64_t tokens, int64_t cols,
                                     int64_t vocab)
{
    const enum rig_type rig_type = (enum rig_type)type;
    struct rig_array *d_out = rig_random(rig, rig_type, tokens * cols, 1.0);
    struct rig_array *d_table = rig_random(rig, RIG_F32, vocab * cols, 1.0);
    double *want = rig_values(d_table), *d = rig_values(d_out);
    int32_t *ids = calloc((size_t)tokens + 1, 4);
    int32_t *order = calloc((size_t)tokens + 1, 4);
    int32_t *start = calloc((size_t)tokens + 2, 4);
    int32_t *id = calloc((size_t)tokens + 1, 4);
    int32_t segments = 0, filled = 0;
    struct zo_embedding_backward_args args;

    RIG_CHECK(ids != NULL && order != NULL && start != NULL && id != NULL);
    for (int64_t t = 0; t < tokens; t++) {
        ids[t] = rig_below(rig, (int)vocab);
        for (int64_t c = 0; c < cols; c++) {
            want[ids[t] * cols + c] += d[t * cols + c];
        }
    }
    for (int32_t v = (int32_t)vocab - 1; v >= 0; v--) {
        const int32_t before = filled;

        for (int64_t t = 0; t < tokens; t++) {
            if (ids[t] == v) {
                order[filled++] = (int32_t)t;
            }
        }
        if (filled > before) {
            id[segments] = v;
            start[++segments] = filled;
        }
    }
    args = (struct zo_embedding_backward_args){
        .d_table = d_table->at,
        .d_out = d_out->at,
        .order = rig_ints(rig, order, tokens)->at,
        .segment_start = rig_ints(rig, start, segments + 1)->at,
        .segment_id = rig_ints(rig, id, segments)->at,
        .segments = segments,
        .cols = cols,
        .vocab = vocab,
        .type = type,
    };
    RIG_CHECK(rig->ops->embedding_backward(rig->kernels, rig->stream, &args) ==
              ZO_OK);
    (void)rig_matches(rig, "embedding_backward", d_table, want,
                      rig_product_bound(tokens));
    free(want), free(d), free(ids), free(order), free(start), free(id);
    rig_clear(rig);
}

static void check_rows_moved(struct rig *rig, enum zo_dtype type, int64_t rows,
                             int64_t cols, int one_in)
{
    const enum rig_type rig_type = (enum rig_type)type;
    struct rig_array *in = rig_random(rig, rig_type, rows * cols, 1.0);
    struct rig_array *back = rig_array(rig, rig_type, rows * cols);
    struct rig_array *gathered, *index_array;
    int32_t *index = calloc((size_t)rows + 1, 4);
    int64_t count = 0;

    RIG_CHECK(index != NULL);
    for (int64_t r = 0; r < rows; r++) {
        if (rig_below(rig, one_in) == 0) {
            index[count++] = (int32_t)r;
        }
    }
    index_array = rig_ints(rig, index, count);
    gathered = rig_array(rig, rig_type, count * cols);
    RIG_CHECK(rig->ops->gather(rig->kernels, rig->stream,
                               &(struct zo_gather_args){
                                   gathered->at, in->at, index_array->at, count,
                                   rows, cols, type}) == ZO_OK);
    RIG_CHECK(rig->ops->scatter(rig->kernels, rig->stream,
                                &(struct zo_scatter_args){
                                    back->at, gathered->at, index_array->at,
                                    count, rows, cols, type}) == ZO_OK);
    RIG_CHECK(rig_fetch(rig, gathered) && rig_fetch(rig, back));
    for (int64_t r = 0, next = 0; r < rows; r++) {
        const bool is_moved = next < count && index[next] == r;

        for (int64_t c = 0; c < cols; c++) {
            const double want = is_moved ? rig_get(in, r * cols + c) : 0.0;

            RIG_CHECK(rig_get(back, r * cols + c) == want);
            RIG_CHECK(!is_moved || rig_get(gathered, next * cols + c) == want);
        }
        next += is_moved;
    }
    free(index);
    rig_clear(rig);
}

static void rows_cases(struct rig *rig)
{
    static const int64_t shapes[][3] = {
        {0, 8, 5}, {1, 1, 1}, {37, 3, 4}, {300, 129, 50}, {70, 1030, 9}};

    for (size_t t = 0; t < TAP_COUNT(rig_types); t++) {
        for (size_t i = 0; i < TAP_COUNT(shapes); i++) {
            const int64_t rows = shapes[i][0], cols = shapes[i][1];

            check_embedding(rig, rig_types[t], rows, cols, shapes[i][2]);
            check_embedding_backward(rig, rig_types[t], rows, cols,
                                     shapes[i][2]);
            for (int one_in = 1; one_in <= 100; one_in *= 10) {
                check_rows_moved(rig, rig_types[t], rows, cols, one_in);
            }
        }
    }
}

static void test_rows(void)
{
    rig_everywhere(rows_cases);
}

/* The host looks again at what the reader of the data has checked. */
static void test_ids_out_of_range(void)
{
    static const int32_t ids[2][2] = {{0, 5}, {-1, 0}};
    struct rig rig;
    struct rig_array *table, *out, *wrong;

    TAP_CHECK(rig_open_host(&rig, 0));
    for (int i = 0; i < 2; i++) {
        table = rig_random(&rig, RIG_F32, 5, 1.0);
        out = rig_array(&rig, RIG_F32, 2);
        wrong = rig_ints(&rig, ids[i], 2);
        TAP_CHECK_INT(rig.ops->embedding(
                          rig.kernels, rig.stream,
                          &(struct zo_embedding_args){
                              out->at, table->at, wrong->at, 2, 1, 5, ZO_F32}),
                      ZO_OK);
        TAP_CHECK_INT(rig.device_ops->stream_sync(rig.stream), ZO_E_ARG);
        TAP_CHECK(strstr(zo_err_last()->text, "ids[") != NULL);
        TAP_CHECK_INT(rig.ops->cross_entropy(
                          rig.kernels, rig.stream,
                          &(struct zo_cross_entropy_args){.loss = out->at,
                                                          .logits = table->at,
                                                          .label = wrong->at,
                                                          .count = 2,
                                                          .vocab = 2,
                                                          .scale = 1.0f}),
                      ZO_OK);
        TAP_CHECK_INT(rig.device_ops->stream_sync(rig.stream), ZO_E_ARG);
        TAP_CHECK(strstr(zo_err_last()->text, "label[") != NULL);
    }
    rig_close(&rig);
}

/* ---- cross-entropy --------------------------------------------------- */

struct loss {
    int64_t count, vocab;
    const int32_t *label;
};

static void loss_forward(const void *context, const double *logits, double *out)
{
    const struct loss *self = context;

    for (int64_t l = 0; l < self->count; l++) {
        const double *row = logits + l * self->vocab;
        double sum = 0.0, largest = row[0];

        for (int64_t v = 0; v < self->vocab; v++) {
            largest = fmax(largest, row[v]);
        }
        for (int64_t v = 0; v < self->vocab; v++) {
            sum += exp(row[v] - largest);
        }
        out[l] = log(sum) + largest - row[self->label[l]];
    }
}

static void loss_gradient(const struct loss *self, const double *logits,
                          double scale, double *d_logits)
{
    for (int64_t l = 0; l < self->count; l++) {
        const double *row = logits + l * self->vocab;
        double loss;
        const struct loss one = {1, self->vocab, self->label + l};

        loss_forward(&one, row, &loss);
        loss += row[self->label[l]]; /* log sum exp */
        for (int64_t v = 0; v < self->vocab; v++) {
            d_logits[l * self->vocab + v] =
                (exp(row[v] - loss) - (v == self->label[l] ? 1.0 : 0.0)) *
                scale;
        }
    }
}

static void check_loss(struct rig *rig, enum zo_dtype type, int64_t count,
                       int64_t vocab, double spread, float scale)
{
    struct rig_array *logits = rig_random(rig, RIG_F32, count * vocab, spread);
    struct rig_array *labels = rig_array(rig, RIG_I32, count);
    struct rig_array *loss = rig_array(rig, RIG_F32, count);
    struct rig_array *eval_loss = rig_array(rig, RIG_F32, count);
    struct rig_array *d_logits =
        rig_array(rig, (enum rig_type)type, count * vocab);
    double *x = rig_values(logits);
    double *want = rig_doubles(count), *want_d = rig_doubles(count * vocab);
    struct zo_cross_entropy_args args = {
        .loss = loss->at,
        .d_logits = d_logits->at,
        .logits = logits->at,
        .label = labels->at,
        .count = count,
        .vocab = vocab,
        .scale = scale,
        .type = type,
    };
    struct loss self = {count, vocab, (const int32_t *)(void *)labels->host};

    for (int64_t l = 0; l < count; l++) {
        const int32_t label = rig_below(rig, (int)vocab);

        memcpy(labels->host + l * 4, &label, 4);
    }
    RIG_CHECK(rig_upload(rig, labels));
    loss_forward(&self, x, want);
    loss_gradient(&self, x, (double)scale, want_d);
    RIG_CHECK(rig->ops->cross_entropy(rig->kernels, rig->stream, &args) ==
              ZO_OK);
    args.loss = eval_loss->at;
    args.d_logits = NULL;
    RIG_CHECK(rig->ops->cross_entropy(rig->kernels, rig->stream, &args) ==
              ZO_OK);
    (void)(rig_matches(rig, "loss", loss, want, ZO_F32_BOUND) &&
           rig_matches(rig, "loss alone", eval_loss, want, ZO_F32_BOUND) &&
           rig_matches(rig, "d_logits", d_logits, want_d, ZO_F32_BOUND));
    free(x), free(want), free(want_d);
    rig_clear(rig);
}

static void loss_cases(struct rig *rig)
{
    static const int64_t shapes[][2] = {{0, 8},    {1, 1},    {3, 7},
                                        {2, 1024}, {5, 1025}, {1, 65024}};

    for (size_t t = 0; t < TAP_COUNT(rig_types); t++) {
        for (size_t i = 0; i < TAP_COUNT(shapes); i++) {
            check_loss(rig, rig_types[t], shapes[i][0], shapes[i][1], 1.0,
                       1.0f);
            check_loss(rig, rig_types[t], shapes[i][0], shapes[i][1], 60.0,
                       0.125f);
        }
    }
}

static void test_loss(void)
{
    rig_everywhere(loss_cases);
}

static void test_loss_slopes(void)
{
    static const int32_t labels[2] = {4, 0};
    const struct loss self = {2, 5, labels};
    const double weight[2] = {0.25, 0.25};
    double logits[10], d_logits[10];
    struct rig rig = {.random = 8};

    for (int i = 0; i < 10; i++) {
        logits[i] = 4.0 * rig_uniform(&rig);
    }
    loss_gradient(&self, logits, 0.25, d_logits);
    TAP_CHECK(
        rig_slopes_match(loss_forward, &self, logits, 10, weight, 2, d_logits));
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"embedding, gather and scatter are exact, and gradients add up",
         test_rows},
        {"ids and labels out of range fail on the host", test_ids_out_of_range},
        {"cross-entropy and its gradient match double", test_loss},
        {"the reference gradient of cross-entropy is its slope",
         test_loss_slopes},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
