#include "src/data/batches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "tests/data_help.h"
#include "tests/tap.h"

#define CHECK_OK(call) TAP_CHECK_INT((call), ZO_OK)
#define VOCAB          5000
#define ROWS_MAX       200

/* ---- data sets made here ------------------------------------------------- */

static uint64_t random_state;

static uint32_t next_random(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % below;
}

/* A file of rows of 1..length_max ids, with labels here and there. */
static struct zo_dataset *make_dataset(int rows, int length_max)
{
    const struct zo_dataset_options options = {.path =
                                                   help_path("batches.jsonl"),
                                               .max_length = 4096,
                                               .vocab_size = VOCAB};
    FILE *file = fopen(options.path, "wb");
    struct zo_dataset *dataset = NULL;

    random_state = 20250711;
    for (int i = 0; file != NULL && i < rows; i++) {
        const int length = 1 + (int)next_random((uint32_t)length_max);

        (void)fprintf(file, "{\"input_ids\": [");
        for (int t = 0; t < length; t++) {
            /* Few ids, so that many are equal; now and then a large one. */
            (void)fprintf(file, "%s%u", t > 0 ? "," : "",
                          next_random(4) == 0 ? next_random(VOCAB)
                                              : next_random(20));
        }
        (void)fprintf(file, "], \"labels\": [");
        for (int t = 0; t < length; t++) {
            (void)fprintf(file, "%s%d", t > 0 ? "," : "",
                          next_random(2) == 0 ? -100 : (int)next_random(VOCAB));
        }
        (void)fprintf(file, "]}\n");
    }
    if (file == NULL || fclose(file) != 0 ||
        zo_dataset_open(&options, NULL, NULL, &dataset) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    return dataset;
}

/* A data set of rows as they are written. */
static struct zo_dataset *read_dataset(const char *text)
{
    const struct zo_dataset_options options = {
        .path = help_write_text("written.jsonl", text),
        .max_length = 4096,
        .vocab_size = VOCAB};
    struct zo_dataset *dataset = NULL;

    if (zo_dataset_open(&options, NULL, NULL, &dataset) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    return dataset;
}

static struct zo_batches *open_batches(const struct zo_dataset *dataset,
                                       struct zo_batches_options options)
{
    struct zo_batches *batches = NULL;

    if (dataset != NULL &&
        zo_batches_open(dataset, &options, &batches) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    return batches;
}

/* The rows of steps [first, first + count), in the order of the step. */
static int list_rows(struct zo_batches *batches,
                     const struct zo_batches_options *options, int64_t first,
                     int64_t count, int64_t *rows)
{
    int found = 0;

    for (int64_t step = first; step < first + count; step++) {
        for (int m = 0; m < options->accumulation_count; m++) {
            for (int slot = 0; slot < options->micro_batch_rows; slot++) {
                for (int d = 0; d < options->device_count; d++) {
                    int64_t line = 0;

                    found += zo_batches_row(batches, step, m, d, slot,
                                            &rows[found], &line);
                }
            }
        }
    }
    return found;
}

/* ---- order --------------------------------------------------------------- */

static bool is_permutation(const int64_t *rows, int count)
{
    bool seen[ROWS_MAX] = {false};

    for (int i = 0; i < count; i++) {
        if (rows[i] < 0 || rows[i] >= count || seen[rows[i]]) {
            return false;
        }
        seen[rows[i]] = true;
    }
    return true;
}

static void check_order(void)
{
    const struct zo_batches_options options = {.seed = 42,
                                               .shuffle = true,
                                               .micro_batch_rows = 7,
                                               .accumulation_count = 1,
                                               .device_count = 1};
    struct zo_batches_options other = options;
    struct zo_dataset *dataset = make_dataset(100, 3);
    struct zo_batches *batches = open_batches(dataset, options);
    const int64_t steps = zo_batches_steps_per_epoch(batches);
    int64_t first[ROWS_MAX], second[ROWS_MAX], again[ROWS_MAX];

    TAP_CHECK_INT(steps, 15); /* 100 rows by 7 */
    TAP_CHECK_INT(list_rows(batches, &options, 0, steps, first), 100);
    TAP_CHECK(is_permutation(first, 100));
    TAP_CHECK_INT(list_rows(batches, &options, steps, steps, second), 100);
    TAP_CHECK(is_permutation(second, 100));
    TAP_CHECK(memcmp(first, second, 100 * sizeof(first[0])) != 0);
    /* An epoch does not depend on those looked at before. */
    TAP_CHECK_INT(list_rows(batches, &options, 0, steps, again), 100);
    TAP_CHECK(memcmp(first, again, 100 * sizeof(first[0])) == 0);
    zo_batches_close(batches);
    batches = open_batches(dataset, options);
    TAP_CHECK_INT(list_rows(batches, &options, steps, steps, again), 100);
    TAP_CHECK(memcmp(second, again, 100 * sizeof(first[0])) == 0);
    zo_batches_close(batches);
    other.seed = 43;
    batches = open_batches(dataset, other);
    TAP_CHECK_INT(list_rows(batches, &options, 0, steps, again), 100);
    TAP_CHECK(memcmp(first, again, 100 * sizeof(first[0])) != 0);
    zo_batches_close(batches);
    zo_dataset_close(dataset);
}

/* The order is part of what a resumed run relies on: it never changes.  The
 * numbers come from a second implementation, in Python. */
static void check_pinned_order(void)
{
    static const int64_t want[2][8] = {{3, 0, 7, 6, 1, 2, 5, 4},
                                       {1, 5, 7, 0, 3, 4, 6, 2}};
    const struct zo_batches_options options = {.seed = 42,
                                               .shuffle = true,
                                               .micro_batch_rows = 1,
                                               .accumulation_count = 1,
                                               .device_count = 1};
    struct zo_dataset *dataset = make_dataset(8, 3);
    struct zo_batches *batches = open_batches(dataset, options);
    int64_t rows[16];

    TAP_CHECK_INT(list_rows(batches, &options, 0, 16, rows), 16);
    for (int i = 0; i < 16; i++) {
        if (rows[i] != want[i / 8][i % 8]) {
            tap_fail(__FILE__, __LINE__, "row %d of epoch %d is %lld", i % 8,
                     i / 8, (long long)rows[i]);
        }
    }
    zo_batches_close(batches);
    zo_dataset_close(dataset);
}

static void check_fairness(void)
{
    const struct zo_batches_options options = {.seed = 1,
                                               .shuffle = true,
                                               .micro_batch_rows = 6,
                                               .accumulation_count = 1,
                                               .device_count = 1};
    struct zo_dataset *dataset = make_dataset(6, 3);
    struct zo_batches *batches = open_batches(dataset, options);
    int counts[6][6] = {{0}};

    for (int64_t epoch = 0; epoch < 6000; epoch++) {
        int64_t rows[6];

        (void)list_rows(batches, &options, epoch, 1, rows);
        for (int place = 0; place < 6; place++) {
            counts[rows[place]][place]++;
        }
    }
    /* 1000 each, standard deviation 29. */
    for (int i = 0; i < 36; i++) {
        TAP_CHECK(counts[i / 6][i % 6] > 850 && counts[i / 6][i % 6] < 1150);
    }
    zo_batches_close(batches);
    zo_dataset_close(dataset);
}

static void check_file_order(void)
{
    const struct zo_batches_options options = {.seed = 42,
                                               .micro_batch_rows = 2,
                                               .accumulation_count = 3,
                                               .device_count = 2};
    struct zo_dataset *dataset = make_dataset(31, 3);
    struct zo_batches *batches = open_batches(dataset, options);
    int64_t rows[ROWS_MAX];

    /* 3 steps an epoch, the last one of 7 rows, then the next epoch. */
    TAP_CHECK_INT(list_rows(batches, &options, 0, 6, rows), 62);
    for (int i = 0; i < 62; i++) {
        TAP_CHECK_INT(rows[i], i % 31);
    }
    zo_batches_close(batches);
    zo_dataset_close(dataset);
}

static int compare_i64(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void check_membership(void)
{
    static const int splits[][3] = {{12, 1, 1}, {1, 12, 1}, {1, 1, 12},
                                    {3, 2, 2},  {2, 3, 2},  {2, 2, 3},
                                    {1, 3, 4},  {4, 1, 3}};
    struct zo_dataset *dataset = make_dataset(100, 3);
    int64_t want[9][12], rows[12];
    int want_count[9];

    for (size_t i = 0; i < TAP_COUNT(splits); i++) {
        const struct zo_batches_options options = {
            .seed = 7,
            .shuffle = true,
            .micro_batch_rows = splits[i][0],
            .accumulation_count = splits[i][1],
            .device_count = splits[i][2]};
        struct zo_batches *batches = open_batches(dataset, options);

        TAP_CHECK_INT(zo_batches_steps_per_epoch(batches), 9);
        for (int step = 0; step < 9; step++) {
            const int count = list_rows(batches, &options, step, 1, rows);

            TAP_CHECK_INT(count, step < 8 ? 12 : 4);
            qsort(rows, (size_t)count, sizeof(rows[0]), compare_i64);
            if (i == 0) {
                memcpy(want[step], rows, sizeof(rows));
                want_count[step] = count;
            }
            TAP_CHECK(
                count == want_count[step] &&
                memcmp(rows, want[step], (size_t)count * sizeof(rows[0])) == 0);
        }
        zo_batches_close(batches);
    }
    zo_dataset_close(dataset);
}

/* 1, 2, 3, 5, 7 rows on 2 and 4 devices: it ends, and uses each row once. */
static void check_few_rows(void)
{
    static const int row_counts[] = {1, 2, 3, 5, 7};

    for (size_t i = 0; i < TAP_COUNT(row_counts); i++) {
        struct zo_dataset *dataset = make_dataset(row_counts[i], 5);

        for (int devices = 2; devices <= 4; devices += 2) {
            const struct zo_batches_options options = {.seed = 3,
                                                       .shuffle = true,
                                                       .micro_batch_rows = 1,
                                                       .accumulation_count = 1,
                                                       .device_count = devices};
            struct zo_batches *batches = open_batches(dataset, options);
            const int64_t steps = zo_batches_steps_per_epoch(batches);
            int64_t rows[ROWS_MAX];

            TAP_CHECK_INT(steps, (row_counts[i] + devices - 1) / devices);
            for (int64_t epoch = 0; epoch < 2; epoch++) {
                TAP_CHECK_INT(
                    list_rows(batches, &options, epoch * steps, steps, rows),
                    row_counts[i]);
                TAP_CHECK(is_permutation(rows, row_counts[i]));
            }
            zo_batches_close(batches);
        }
        zo_dataset_close(dataset);
    }
}

/* ---- packing ------------------------------------------------------------- */

static struct zo_micro_batch alloc_batch(const struct zo_batches_bounds *bounds)
{
    const size_t tokens = (size_t)bounds->tokens;
    const size_t real = (size_t)bounds->real_tokens;
    struct zo_micro_batch batch = {
        .ids = malloc(tokens * 4),
        .positions = malloc(tokens * 4),
        .row_start = malloc(((size_t)bounds->rows + 1) * 4),
        .label_index = malloc((size_t)bounds->labels * 4),
        .label_id = malloc((size_t)bounds->labels * 4),
        .order = malloc(real * 4),
        .segment_start = malloc((real + 1) * 4),
        .segment_id = malloc(real * 4),
    };

    return batch;
}

static void free_batch(struct zo_micro_batch *batch)
{
    free(batch->ids);
    free(batch->positions);
    free(batch->row_start);
    free(batch->label_index);
    free(batch->label_id);
    free(batch->order);
    free(batch->segment_start);
    free(batch->segment_id);
}

/* The label of token t of a row, -100 where there is none. */
static int32_t label_of(const struct zo_dataset *dataset, int64_t index,
                        int32_t t)
{
    const struct zo_row_view row = zo_dataset_row(dataset, index);

    for (int32_t s = 0; s < row.span_count; s++) {
        const struct zo_label_span span = zo_dataset_span(dataset, index, s);

        if (t >= span.begin && t < span.end) {
            return span.labels[t - span.begin];
        }
    }
    return -100;
}

/* Rows, positions, pads and labels against the data set. */
static bool rows_are_right(struct zo_batches *batches,
                           const struct zo_dataset *dataset, int64_t step,
                           int micro, int device,
                           const struct zo_micro_batch *batch)
{
    int64_t index = 0, line = 0;
    int32_t at = 0, label = 0, r = 0;

    while (zo_batches_row(batches, step, micro, device, r, &index, &line)) {
        const struct zo_row_view row = zo_dataset_row(dataset, index);

        if (batch->row_start[r++] != at) {
            return false;
        }
        for (int32_t t = 0; t < row.count; t++, at++) {
            const int32_t next =
                t + 1 < row.count ? label_of(dataset, index, t + 1) : -100;

            if (batch->ids[at] != row.ids[t] || batch->positions[at] != t) {
                return false;
            }
            if (next != -100) {
                if (label >= batch->label_count ||
                    batch->label_index[label] != at ||
                    batch->label_id[label] != next) {
                    return false;
                }
                label++;
            }
        }
    }
    if (label != batch->label_count || at != batch->real_count) {
        return false;
    }
    if (at % 64 != 0) {
        if (batch->row_start[r++] != at) {
            return false;
        }
        for (int32_t t = 0; at % 64 != 0; t++, at++) {
            if (batch->ids[at] != 0 || batch->positions[at] != t) {
                return false;
            }
        }
    }
    return r == batch->row_count && batch->row_start[r] == at &&
           batch->token_count == at;
}

/* Tokens by (id, index), each once, in segments of equal ids. */
static bool segments_are_right(const struct zo_micro_batch *batch)
{
    int32_t u = 0;

    for (int32_t i = 0; i < batch->real_count; i++) {
        const int32_t t = batch->order[i];

        if (t < 0 || t >= batch->real_count) {
            return false;
        }
        if (i > 0) {
            const int32_t before = batch->order[i - 1];
            const int32_t step = batch->ids[t] - batch->ids[before];

            if (step < 0 || (step == 0 && t <= before)) {
                return false;
            }
        }
        if (i == 0 || batch->ids[t] != batch->ids[batch->order[i - 1]]) {
            if (u >= batch->segment_count || batch->segment_start[u] != i ||
                batch->segment_id[u] != batch->ids[t]) {
                return false;
            }
            u++;
        }
    }
    return u == batch->segment_count &&
           batch->segment_start[u] == batch->real_count;
}

static void raise(int32_t *most, int32_t value)
{
    *most = value > *most ? value : *most;
}

/* All micro batches of two epochs by brute force, and the plan's bounds. */
static void check_packing_of(int rows, int length_max, int micro_rows,
                             int accumulation, int devices)
{
    const struct zo_batches_options options = {.seed = 11,
                                               .shuffle = true,
                                               .micro_batch_rows = micro_rows,
                                               .accumulation_count =
                                                   accumulation,
                                               .device_count = devices};
    struct zo_dataset *dataset = make_dataset(rows, length_max);
    struct zo_batches *batches = open_batches(dataset, options);
    const int64_t steps = 2 * zo_batches_steps_per_epoch(batches);
    struct zo_batches_plan plan;
    struct zo_batches_bounds most = {0};
    struct zo_micro_batch batch;

    CHECK_OK(zo_batches_plan(batches, 0, steps, &plan));
    TAP_CHECK(plan.is_exact);
    batch = alloc_batch(&plan.bounds);
    for (int64_t step = 0; step < steps; step++) {
        struct zo_batches_step info;
        int64_t labels = 0, tokens = 0;

        CHECK_OK(zo_batches_step(batches, step, &info));
        for (int m = 0; m < accumulation; m++) {
            for (int d = 0; d < devices; d++) {
                zo_batches_fill(batches, step, m, d, &batch);
                TAP_CHECK(batch.token_count <= plan.bounds.tokens &&
                          batch.row_count <= plan.bounds.rows &&
                          batch.label_count <= plan.bounds.labels);
                TAP_CHECK(rows_are_right(batches, dataset, step, m, d, &batch));
                TAP_CHECK(segments_are_right(&batch));
                raise(&most.tokens, batch.token_count);
                raise(&most.real_tokens, batch.real_count);
                raise(&most.rows, batch.row_count);
                raise(&most.labels, batch.label_count);
                labels += batch.label_count;
                tokens += batch.real_count;
            }
        }
        TAP_CHECK_INT(info.labels, labels);
        TAP_CHECK_INT(info.tokens, tokens);
        TAP_CHECK_INT(info.epoch, step / plan.steps_per_epoch);
        TAP_CHECK_INT(info.is_epoch_end,
                      (step + 1) % plan.steps_per_epoch == 0);
    }
    TAP_CHECK(memcmp(&most, &plan.bounds, sizeof(most)) == 0);
    free_batch(&batch);
    zo_batches_close(batches);
    zo_dataset_close(dataset);
}

static void check_packing(void)
{
    check_packing_of(50, 100, 3, 2, 2);
    check_packing_of(50, 300, 1, 1, 1);
    check_packing_of(50, 200, 60, 1, 1); /* more slots than rows */
    check_packing_of(50, 64, 2, 1, 4);
    check_packing_of(3, 40, 2, 3, 4);
}

static void check_exact_multiple(void)
{
    char text[2048] = "{\"input_ids\": [4";
    struct zo_dataset *dataset;
    struct zo_batches *batches;
    struct zo_batches_plan plan;
    struct zo_micro_batch batch;

    for (int i = 1; i < 128; i++) {
        strncat(text, ",5", sizeof(text) - strlen(text) - 1);
    }
    strncat(text, "]}", sizeof(text) - strlen(text) - 1);
    dataset = read_dataset(text);
    batches = open_batches(dataset, (struct zo_batches_options){0});
    CHECK_OK(zo_batches_plan(batches, 0, 1, &plan));
    TAP_CHECK_INT(plan.bounds.rows, 1);
    TAP_CHECK_INT(plan.bounds.tokens, 128);
    TAP_CHECK_INT(plan.bounds.labels, 127);
    batch = alloc_batch(&plan.bounds);
    zo_batches_fill(batches, 0, 0, 0, &batch);
    TAP_CHECK_INT(batch.row_count, 1);
    TAP_CHECK_INT(batch.row_start[1], 128);
    TAP_CHECK_INT(batch.segment_count, 2);
    free_batch(&batch);
    zo_batches_close(batches);
    zo_dataset_close(dataset);
}

static void check_no_rows(void)
{
    struct zo_dataset *dataset = read_dataset("{\"input_ids\": [4, 5]}");
    struct zo_batches *batches =
        open_batches(dataset, (struct zo_batches_options){
                                  .device_count = 2, .accumulation_count = 2});
    struct zo_batches_plan plan;
    struct zo_micro_batch batch;

    CHECK_OK(zo_batches_plan(batches, 0, 1, &plan));
    batch = alloc_batch(&plan.bounds);
    for (int i = 1; i < 4; i++) {
        memset(batch.row_start, 0x55, 4);
        memset(batch.segment_start, 0x55, 4);
        zo_batches_fill(batches, 0, i / 2, i % 2, &batch);
        TAP_CHECK_INT(batch.token_count, 0);
        TAP_CHECK_INT(batch.real_count, 0);
        TAP_CHECK_INT(batch.row_count, 0);
        TAP_CHECK_INT(batch.label_count, 0);
        TAP_CHECK_INT(batch.segment_count, 0);
        TAP_CHECK_INT(batch.row_start[0], 0);
        TAP_CHECK_INT(batch.segment_start[0], 0);
    }
    free_batch(&batch);
    zo_batches_close(batches);
    zo_dataset_close(dataset);
}

/* ---- plan ---------------------------------------------------------------- */

static void check_long_run(void)
{
    struct zo_dataset *dataset = make_dataset(50, 100);
    struct zo_batches_options options = {.shuffle = true,
                                         .micro_batch_rows = 3};
    struct zo_batches *batches = open_batches(dataset, options);
    struct zo_batches_plan exact, bound;

    CHECK_OK(zo_batches_plan(batches, 0, 1000, &exact));
    CHECK_OK(zo_batches_plan(batches, 0, INT64_MAX, &bound));
    TAP_CHECK(exact.is_exact && !bound.is_exact);
    TAP_CHECK(bound.bounds.tokens >= exact.bounds.tokens &&
              bound.bounds.real_tokens >= exact.bounds.real_tokens &&
              bound.bounds.rows >= exact.bounds.rows &&
              bound.bounds.labels >= exact.bounds.labels);
    TAP_CHECK_INT(bound.bounds.rows, 4);
    TAP_CHECK_INT(bound.longest_tokens, exact.longest_tokens);
    zo_batches_close(batches);
    /* Without shuffle one epoch tells all. */
    options.shuffle = false;
    batches = open_batches(dataset, options);
    CHECK_OK(zo_batches_plan(batches, 5, INT64_MAX, &bound));
    TAP_CHECK(bound.is_exact);
    zo_batches_close(batches);
    zo_dataset_close(dataset);
}

/* Long rows may need no pads where shorter ones do. */
static void check_bound_of_pads(void)
{
    struct zo_dataset *dataset = read_dataset(
        "{\"input_ids\": [1, 2, 3, 4]}\n{\"input_ids\": [1, 2]}\n");
    struct zo_batches *batches =
        open_batches(dataset, (struct zo_batches_options){.shuffle = true,
                                                          .token_multiple = 4});
    struct zo_batches_plan plan;

    CHECK_OK(zo_batches_plan(batches, 0, INT64_MAX, &plan));
    TAP_CHECK(!plan.is_exact);
    TAP_CHECK_INT(plan.bounds.tokens, 4);
    TAP_CHECK_INT(plan.bounds.rows, 2);
    zo_batches_close(batches);
    zo_dataset_close(dataset);
}

/* The bound is the longest rows together, not the longest row many times. */
static void check_longest_rows(void)
{
    struct zo_dataset *dataset =
        read_dataset("{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [1]}\n\n"
                     "{\"input_ids\": [1, 2, 3, 4, 5, 6, 7], \"labels\": "
                     "[-100, -100, -100, -100, -100, -100, 7]}\n"
                     "{\"input_ids\": [1, 2, 3, 4, 5]}\n");
    struct zo_batches *batches =
        open_batches(dataset, (struct zo_batches_options){.shuffle = true,
                                                          .micro_batch_rows = 2,
                                                          .token_multiple = 1});
    struct zo_batches_plan plan;

    CHECK_OK(zo_batches_plan(batches, 0, INT64_MAX, &plan));
    TAP_CHECK_INT(plan.bounds.real_tokens, 12);
    TAP_CHECK_INT(plan.bounds.tokens, 12);
    TAP_CHECK_INT(plan.bounds.labels, 6);
    TAP_CHECK_INT(plan.longest_tokens, 7);
    TAP_CHECK_INT(plan.longest_line, 4);
    zo_batches_close(batches);
    zo_dataset_close(dataset);
}

static void check_no_labels(void)
{
    static const char text[] =
        "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 2]}\n\n"
        "{\"input_ids\": [1, 2], \"labels\": [-100, -100]}\n"
        "{\"input_ids\": [1]}\n{\"input_ids\": [1, 2]}\n";
    struct zo_dataset *dataset = read_dataset(text);
    struct zo_batches_options options = {.micro_batch_rows = 1,
                                         .accumulation_count = 2};
    struct zo_batches *batches = open_batches(dataset, options);
    struct zo_batches_plan plan;
    struct zo_batches_step step;

    TAP_CHECK_INT(zo_batches_plan(batches, 0, 3, &plan), ZO_E_DATA);
    TAP_CHECK(help_error_has("step 2 has no label, so no loss: its 2 rows, "
                             "at line 4, 5, have nothing to learn from"));
    CHECK_OK(zo_batches_plan(batches, 0, 1, &plan));
    CHECK_OK(zo_batches_step(batches, 0, &step));
    TAP_CHECK_INT(zo_batches_step(batches, 1, &step), ZO_E_DATA);
    TAP_CHECK_INT(zo_batches_step(batches, 4, &step), ZO_E_DATA);
    zo_batches_close(batches);
    options.is_evaluation = true;
    batches = open_batches(dataset, options);
    CHECK_OK(zo_batches_plan(batches, 0, 3, &plan));
    CHECK_OK(zo_batches_step(batches, 1, &step));
    TAP_CHECK_INT(step.labels, 0);
    TAP_CHECK_INT(step.rows, 2);
    CHECK_OK(zo_batches_step(batches, 2, &step));
    TAP_CHECK_INT(step.rows, 1);
    TAP_CHECK(step.is_epoch_end);
    zo_batches_close(batches);
    zo_dataset_close(dataset);
}

static void check_no_allocation(void)
{
    struct zo_dataset *dataset = make_dataset(50, 100);
    struct zo_batches *batches = open_batches(
        dataset,
        (struct zo_batches_options){.shuffle = true, .micro_batch_rows = 4});
    struct zo_batches_plan plan;
    struct zo_micro_batch batch;
    uint64_t count;

    count = zo_memory_count();
    CHECK_OK(zo_batches_plan(batches, 0, 100, &plan));
    batch = alloc_batch(&plan.bounds);
    for (int64_t step = 0; step < 100; step++) {
        struct zo_batches_step info;

        CHECK_OK(zo_batches_step(batches, step, &info));
        zo_batches_fill(batches, step, 0, 0, &batch);
    }
    TAP_CHECK_INT(zo_memory_count(), count);
    free_batch(&batch);
    zo_batches_close(batches);
    zo_dataset_close(dataset);
}

static void check_options(void)
{
    static const struct zo_batches_options wrong[] = {
        {.micro_batch_rows = -1},
        {.accumulation_count = -1},
        {.device_count = -1},
        {.token_multiple = -64},
        {.micro_batch_rows = INT32_MAX,
         .accumulation_count = INT32_MAX,
         .device_count = INT32_MAX},
        {.micro_batch_rows = 1 << 13, .accumulation_count = 1 << 12}};
    struct zo_dataset *dataset = make_dataset(2, 3);
    struct zo_batches *batches = NULL;

    for (size_t i = 0; i < TAP_COUNT(wrong); i++) {
        TAP_CHECK_INT(zo_batches_open(dataset, &wrong[i], &batches), ZO_E_ARG);
    }
    TAP_CHECK_INT(zo_batches_open(
                      dataset,
                      &(struct zo_batches_options){.token_multiple = INT32_MAX},
                      &batches),
                  ZO_OK);
    zo_batches_close(batches);
    zo_dataset_close(dataset);
}

static void check_allocation_failures(void)
{
    struct zo_dataset *dataset = make_dataset(5, 3);
    struct zo_batches *batches = NULL;
    enum zo_status status = ZO_E_NOMEM;
    uint64_t nth = 0;

    while (status == ZO_E_NOMEM && nth < 100) {
        zo_memory_fail_at(++nth);
        status =
            zo_batches_open(dataset, &(struct zo_batches_options){0}, &batches);
    }
    zo_memory_fail_at(0);
    CHECK_OK(status);
    TAP_CHECK_INT(nth, 4);
    zo_batches_close(batches);
    zo_dataset_close(dataset);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"an epoch's order is a permutation of (seed, epoch) alone",
         check_order},
        {"the order is the one it has always been", check_pinned_order},
        {"every row is as likely in every place", check_fairness},
        {"without shuffle rows come as in the file", check_file_order},
        {"rows belong to the same step for any split of the batch",
         check_membership},
        {"few rows on many devices are used once an epoch", check_few_rows},
        {"packed micro batches are right, token by token", check_packing},
        {"an exact multiple of 64 tokens has no pads", check_exact_multiple},
        {"a micro batch without rows has only zero counts", check_no_rows},
        {"a run too long to scan gets an upper bound", check_long_run},
        {"that bound is the longest rows together", check_longest_rows},
        {"that bound has room for the pads of shorter rows",
         check_bound_of_pads},
        {"a step without a label is refused, its lines named", check_no_labels},
        {"planning and filling allocate nothing", check_no_allocation},
        {"options out of range are refused", check_options},
        {"a failed allocation anywhere is a clean failure",
         check_allocation_failures},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
