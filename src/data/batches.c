#include "src/data/batches.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/base/memory.h"

#define SCAN_ROWS_MAX ((int64_t)1 << 26) /* rows that plan looks at */
#define LINES_NAMED   8                  /* lines in a message */
#define DIGIT_BITS    11                 /* of the radix sort */
#define DIGIT_COUNT   (1 << DIGIT_BITS)
#define ROWS_STEP_MAX (1 << 24) /* rows of one step */

struct zo_batches {
    const struct zo_dataset *dataset; /* borrowed */
    struct zo_batches_options options;
    int64_t row_count, rows_per_step, steps_per_epoch;
    int64_t epoch;    /* the one that order is of; -1: none yet */
    int32_t *order;   /* owned: the rows of an epoch */
    int32_t *scratch; /* owned: token indices of one micro batch */
    int32_t scratch_tokens;
    struct zo_batches_bounds longest; /* of any micro batch of the data set */
};

/* ---- order --------------------------------------------------------------- */

/* SplitMix64's finaliser: a bijection that spreads every bit. */
static uint64_t mix(uint64_t bits)
{
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    return bits ^ (bits >> 31);
}

/*
 * Random number `index` of (seed, epoch): SplitMix64's sequence, whose start
 * depends on both.  A function of its arguments alone: no state to save.
 */
static uint64_t random_at(uint64_t seed, uint64_t epoch, uint64_t index)
{
    const uint64_t golden = 0x9e3779b97f4a7c15u;
    const uint64_t start = mix(mix(seed + golden) ^ (epoch + 1) * golden);

    return mix(start + (index + 1) * golden);
}

static void order_epoch(struct zo_batches *batches, int64_t epoch)
{
    const int64_t count = batches->row_count;

    if (batches->epoch == epoch ||
        (batches->epoch >= 0 && !batches->options.shuffle)) {
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        batches->order[i] = (int32_t)i;
    }
    batches->epoch = epoch;
    if (!batches->options.shuffle) {
        return;
    }
    for (int64_t i = count - 1; i > 0; i--) {
        const uint64_t count_left = (uint64_t)i + 1, low_mask = 0xffffffffu;
        const uint64_t bits =
            random_at(batches->options.seed, (uint64_t)epoch, (uint64_t)i);
        /* bits * count_left / 2^64: 0..i, and so even that it cannot be
         * told from a fair choice (count_left is below 2^31). */
        const int64_t j = (int64_t)(((bits >> 32) * count_left +
                                     ((bits & low_mask) * count_left >> 32)) >>
                                    32);
        const int32_t row = batches->order[i];

        batches->order[i] = batches->order[j];
        batches->order[j] = row;
    }
}

/* Where a step's rows are in its epoch's order. */
struct window {
    int64_t epoch, epoch_step;
    int64_t begin, count;
};

static struct window find_window(struct zo_batches *batches, int64_t step_index)
{
    const int64_t epoch = step_index / batches->steps_per_epoch;
    const int64_t epoch_step = step_index % batches->steps_per_epoch;
    const int64_t begin = epoch_step * batches->rows_per_step;

    ZO_ASSERT(step_index >= 0);
    order_epoch(batches, epoch);
    return (struct window){
        epoch, epoch_step, begin,
        zo_min_i64(batches->rows_per_step, batches->row_count - begin)};
}

/* The data set's index of row `slot`, or -1 past the rows of the step. */
static int64_t row_at(const struct zo_batches *batches,
                      const struct window *window, int32_t micro,
                      int32_t device, int32_t slot)
{
    const struct zo_batches_options *options = &batches->options;
    const int64_t k = (int64_t)micro * options->micro_batch_rows + slot;
    const int64_t i = k * options->device_count + device;

    return slot < options->micro_batch_rows && i < window->count
               ? batches->order[window->begin + i]
               : -1;
}

/* ---- sizes --------------------------------------------------------------- */

/* Sizes of one micro batch, summed in 64 bits. */
struct sizes {
    int64_t tokens, labels, rows;
};

static struct sizes measure(const struct zo_batches *batches,
                            const struct window *window, int32_t micro,
                            int32_t device)
{
    struct sizes sizes = {0};

    for (int32_t slot = 0; slot < batches->options.micro_batch_rows; slot++) {
        const int64_t index = row_at(batches, window, micro, device, slot);
        struct zo_row_view row;

        if (index < 0) {
            break;
        }
        row = zo_dataset_row(batches->dataset, index);
        sizes.tokens += row.count;
        sizes.labels += row.label_count;
        sizes.rows++;
    }
    return sizes;
}

/* Raises bounds to hold a micro batch; false when they pass 2^31 - 1. */
static bool raise_bounds(const struct zo_batches *batches,
                         const struct sizes *sizes,
                         struct zo_batches_bounds *bounds)
{
    const int64_t padded = (int64_t)zo_round_up(
        (uint64_t)sizes->tokens, (uint64_t)batches->options.token_multiple);
    const int64_t rows = sizes->rows + (padded > sizes->tokens);

    if (padded > INT32_MAX) {
        return false;
    }
    bounds->tokens = (int32_t)zo_max_i64(bounds->tokens, padded);
    bounds->real_tokens =
        (int32_t)zo_max_i64(bounds->real_tokens, sizes->tokens);
    bounds->rows = (int32_t)zo_max_i64(bounds->rows, rows);
    bounds->labels = (int32_t)zo_max_i64(bounds->labels, sizes->labels);
    return true;
}

/* Moves a larger value towards the root's place in a min-heap. */
static void sift_down(int32_t *heap, int64_t count)
{
    for (int64_t at = 0; 2 * at + 1 < count;) {
        int64_t child = 2 * at + 1;
        int32_t value;

        child += child + 1 < count && heap[child + 1] < heap[child];
        if (heap[at] <= heap[child]) {
            return;
        }
        value = heap[at];
        heap[at] = heap[child];
        heap[child] = value;
        at = child;
    }
}

/* Sum of the `most` largest values of the data set; `heap` holds that many. */
static int64_t sum_largest(const struct zo_dataset *dataset, int32_t *heap,
                           int64_t most, bool of_labels)
{
    int64_t sum = 0;

    memset(heap, 0, (size_t)most * sizeof(heap[0]));
    for (int64_t i = 0; i < zo_dataset_count(dataset); i++) {
        const struct zo_row_view row = zo_dataset_row(dataset, i);
        const int32_t value = of_labels ? row.label_count : row.count;

        if (value > heap[0]) {
            heap[0] = value;
            sift_down(heap, most);
        }
    }
    for (int64_t i = 0; i < most; i++) {
        sum += heap[i];
    }
    return sum;
}

/* The micro batch of the longest rows: an upper bound of every other. */
static enum zo_status measure_longest(struct zo_batches *batches)
{
    const int64_t most =
        zo_min_i64(batches->options.micro_batch_rows, batches->row_count);
    int32_t *heap = batches->order; /* not in use yet; has row_count places */
    const struct sizes sizes = {
        .tokens = sum_largest(batches->dataset, heap, most, false),
        .labels = sum_largest(batches->dataset, heap, most, true),
        .rows = most,
    };

    if (!raise_bounds(batches, &sizes, &batches->longest)) {
        return ZO_FAIL(ZO_E_FIT,
                       "a micro batch of %d rows of %s may have %lld tokens; "
                       "want fewer than 2^31",
                       batches->options.micro_batch_rows,
                       zo_dataset_path(batches->dataset),
                       (long long)sizes.tokens);
    }
    /* Fewer rows than `most` may need a pad row where all need none. */
    batches->longest.rows = (int32_t)most + 1;
    return ZO_OK;
}

/* ---- life cycle ---------------------------------------------------------- */

static int32_t or_default(int32_t value, int32_t fallback)
{
    return value != 0 ? value : fallback;
}

static enum zo_status check_options(const struct zo_batches_options *options,
                                    int64_t row_count)
{
    int64_t rows = options->micro_batch_rows;

    if (options->micro_batch_rows < 1 || options->accumulation_count < 1 ||
        options->device_count < 1 || options->token_multiple < 1) {
        return ZO_FAIL(ZO_E_ARG,
                       "batches: %d rows x %d micro batches x %d devices in "
                       "multiples of %d tokens; want each 1 or more",
                       options->micro_batch_rows, options->accumulation_count,
                       options->device_count, options->token_multiple);
    }
    if (!zo_mul_i64(rows, options->accumulation_count, &rows) ||
        !zo_mul_i64(rows, options->device_count, &rows) ||
        rows > ROWS_STEP_MAX) {
        return ZO_FAIL(ZO_E_ARG,
                       "batches: %d rows x %d micro batches x %d devices; "
                       "want at most %d rows a step",
                       options->micro_batch_rows, options->accumulation_count,
                       options->device_count, ROWS_STEP_MAX);
    }
    if (row_count > INT32_MAX) {
        return ZO_FAIL(ZO_E_ARG, "batches: %lld rows; want fewer than 2^31",
                       (long long)row_count);
    }
    return ZO_OK;
}

enum zo_status zo_batches_open(const struct zo_dataset *dataset,
                               const struct zo_batches_options *options,
                               struct zo_batches **batches_out)
{
    struct zo_batches *batches = NULL;
    struct zo_batches_options resolved = *options;
    const int64_t row_count = zo_dataset_count(dataset);
    enum zo_status status;

    resolved.micro_batch_rows = or_default(options->micro_batch_rows, 1);
    resolved.accumulation_count = or_default(options->accumulation_count, 1);
    resolved.device_count = or_default(options->device_count, 1);
    resolved.token_multiple = or_default(options->token_multiple, 64);
    ZO_TRY(check_options(&resolved, row_count));
    ZO_TRY(zo_alloc(1, sizeof(*batches), "the batches", &batches));
    batches->dataset = dataset;
    batches->options = resolved;
    batches->row_count = row_count;
    batches->rows_per_step = (int64_t)resolved.micro_batch_rows *
                             resolved.accumulation_count *
                             resolved.device_count;
    batches->steps_per_epoch = zo_div_ceil(row_count, batches->rows_per_step);
    batches->epoch = -1;
    ZO_TRY_GOTO(close_batches,
                zo_alloc((size_t)row_count, sizeof(batches->order[0]),
                         "the order of the rows", &batches->order));
    ZO_TRY_GOTO(close_batches, measure_longest(batches));
    batches->scratch_tokens = batches->longest.real_tokens;
    ZO_TRY_GOTO(close_batches,
                zo_alloc((size_t)batches->scratch_tokens,
                         sizeof(batches->scratch[0]),
                         "the tokens of a micro batch", &batches->scratch));
    *batches_out = batches;
    return ZO_OK;

close_batches:
    zo_batches_close(batches);
    return status;
}

void zo_batches_close(struct zo_batches *batches)
{
    if (batches == NULL) {
        return;
    }
    zo_free(batches->order);
    zo_free(batches->scratch);
    zo_free(batches);
}

int64_t zo_batches_steps_per_epoch(const struct zo_batches *batches)
{
    return batches->steps_per_epoch;
}

/* ---- steps --------------------------------------------------------------- */

/* Names the rows of a step in which nothing is counted. */
static enum zo_status fail_without_labels(const struct zo_batches *batches,
                                          const struct window *window,
                                          int64_t step_index)
{
    char lines[LINES_NAMED * 24] = "";
    size_t put = 0;

    for (int64_t i = 0; i < window->count && i < LINES_NAMED; i++) {
        const struct zo_row_view row =
            zo_dataset_row(batches->dataset, batches->order[window->begin + i]);

        put += (size_t)snprintf(lines + put, sizeof(lines) - put, "%s%lld",
                                i > 0 ? ", " : "", (long long)row.line);
    }
    return ZO_FAIL(ZO_E_DATA,
                   "%s: step %lld has no label, so no loss: its %lld rows, at "
                   "line %s%s, have nothing to learn from",
                   zo_dataset_path(batches->dataset), (long long)step_index + 1,
                   (long long)window->count, lines,
                   window->count > LINES_NAMED ? ", ..." : "");
}

/* Counts a step and, unless bounds is NULL, raises them to its sizes. */
static enum zo_status scan_step(struct zo_batches *batches, int64_t step_index,
                                struct zo_batches_bounds *bounds,
                                struct zo_batches_step *step)
{
    const struct window window = find_window(batches, step_index);

    *step = (struct zo_batches_step){
        .epoch = window.epoch,
        .epoch_step = window.epoch_step,
        .is_epoch_end = window.epoch_step + 1 == batches->steps_per_epoch,
    };
    for (int32_t micro = 0; micro < batches->options.accumulation_count;
         micro++) {
        for (int32_t device = 0; device < batches->options.device_count;
             device++) {
            const struct sizes sizes = measure(batches, &window, micro, device);

            step->rows += sizes.rows;
            step->tokens += sizes.tokens;
            step->labels += sizes.labels;
            if (bounds != NULL) {
                const bool fits = raise_bounds(batches, &sizes, bounds);

                ZO_ASSERT(fits); /* as open has checked for the longest rows */
            }
        }
    }
    if (step->labels == 0 && !batches->options.is_evaluation) {
        return fail_without_labels(batches, &window, step_index);
    }
    return ZO_OK;
}

enum zo_status zo_batches_step(struct zo_batches *batches, int64_t step_index,
                               struct zo_batches_step *step_out)
{
    struct zo_batches_step step;

    ZO_TRY(scan_step(batches, step_index, NULL, &step));
    *step_out = step;
    return ZO_OK;
}

/* The longest row as it is trained, after cutting. */
static void find_longest(const struct zo_batches *batches,
                         struct zo_batches_plan *plan)
{
    for (int64_t i = 0; i < batches->row_count; i++) {
        const struct zo_row_view row = zo_dataset_row(batches->dataset, i);

        if (row.count > plan->longest_tokens) {
            plan->longest_tokens = row.count;
            plan->longest_line = row.line;
        }
    }
}

enum zo_status zo_batches_plan(struct zo_batches *batches, int64_t first_step,
                               int64_t step_count,
                               struct zo_batches_plan *plan_out)
{
    struct zo_batches_plan plan = {
        .steps_per_epoch = batches->steps_per_epoch,
        .rows_per_step = batches->rows_per_step,
        .is_exact = true,
    };
    int64_t scan_count = step_count;

    ZO_ASSERT(first_step >= 0 && step_count >= 0);
    find_longest(batches, &plan);
    if (!batches->options.shuffle) { /* every epoch is the same */
        scan_count = zo_min_i64(scan_count, batches->steps_per_epoch);
    }
    if (scan_count > SCAN_ROWS_MAX / zo_min_i64(batches->rows_per_step,
                                                batches->row_count)) {
        plan.is_exact = false;
        plan.bounds = batches->longest;
        *plan_out = plan;
        return ZO_OK;
    }
    for (int64_t i = 0; i < scan_count; i++) {
        struct zo_batches_step step;

        ZO_TRY(scan_step(batches, first_step + i, &plan.bounds, &step));
    }
    *plan_out = plan;
    return ZO_OK;
}

bool zo_batches_row(struct zo_batches *batches, int64_t step_index,
                    int32_t micro, int32_t device, int32_t slot,
                    int64_t *index_out, int64_t *line_out)
{
    const struct window window = find_window(batches, step_index);
    const int64_t index = row_at(batches, &window, micro, device, slot);

    if (index < 0) {
        return false;
    }
    *index_out = index;
    *line_out = zo_dataset_row(batches->dataset, index).line;
    return true;
}

/* ---- filling ------------------------------------------------------------- */

/* The labels of a row that begins at token `begin`, shifted by one. */
static void add_labels(const struct zo_batches *batches, int64_t index,
                       int32_t begin, struct zo_micro_batch *batch)
{
    const struct zo_row_view row = zo_dataset_row(batches->dataset, index);

    for (int32_t s = 0; s < row.span_count; s++) {
        const struct zo_label_span span =
            zo_dataset_span(batches->dataset, index, s);

        for (int32_t t = span.begin > 0 ? span.begin : 1; t < span.end; t++) {
            batch->label_index[batch->label_count] = begin + t - 1;
            batch->label_id[batch->label_count] = span.labels[t - span.begin];
            batch->label_count++;
        }
    }
}

/* Fills up to the multiple with one row of pads. */
static void add_pads(const struct zo_batches *batches,
                     struct zo_micro_batch *batch)
{
    const int32_t multiple = batches->options.token_multiple;
    int32_t position = 0;

    while (batch->token_count % multiple != 0) {
        batch->ids[batch->token_count] = batches->options.pad_id;
        batch->positions[batch->token_count++] = position++;
    }
    batch->row_count += position > 0;
    batch->row_start[batch->row_count] = batch->token_count;
}

/*
 * Sorts the real tokens by (id, index): a radix sort, digit by digit from the
 * lowest, each pass stable, so that equal ids keep the order of the tokens.
 */
static void sort_tokens(struct zo_batches *batches,
                        struct zo_micro_batch *batch)
{
    const int32_t count = batch->real_count;
    int32_t *from = batch->order, *to = batches->scratch;
    int32_t max_id = 0;

    ZO_ASSERT(count <= batches->scratch_tokens);
    for (int32_t i = 0; i < count; i++) {
        from[i] = i;
        max_id = batch->ids[i] > max_id ? batch->ids[i] : max_id;
    }
    for (int shift = 0; shift < 31 && max_id >> shift > 0;
         shift += DIGIT_BITS) {
        int32_t starts[DIGIT_COUNT] = {0};
        int32_t sum = 0, *swap;

        for (int32_t i = 0; i < count; i++) {
            starts[batch->ids[i] >> shift & (DIGIT_COUNT - 1)]++;
        }
        for (int digit = 0; digit < DIGIT_COUNT; digit++) {
            const int32_t digit_count = starts[digit];

            starts[digit] = sum;
            sum += digit_count;
        }
        for (int32_t i = 0; i < count; i++) {
            const int digit = batch->ids[from[i]] >> shift & (DIGIT_COUNT - 1);

            to[starts[digit]++] = from[i];
        }
        swap = from;
        from = to;
        to = swap;
    }
    if (from != batch->order) {
        memcpy(batch->order, from, (size_t)count * sizeof(from[0]));
    }
}

static void find_segments(struct zo_micro_batch *batch)
{
    batch->segment_count = 0;
    for (int32_t i = 0; i < batch->real_count; i++) {
        const int32_t id = batch->ids[batch->order[i]];

        if (batch->segment_count == 0 ||
            batch->segment_id[batch->segment_count - 1] != id) {
            batch->segment_start[batch->segment_count] = i;
            batch->segment_id[batch->segment_count++] = id;
        }
    }
    batch->segment_start[batch->segment_count] = batch->real_count;
}

void zo_batches_fill(struct zo_batches *batches, int64_t step_index,
                     int32_t micro, int32_t device,
                     struct zo_micro_batch *batch)
{
    const struct window window = find_window(batches, step_index);

    ZO_ASSERT(micro >= 0 && micro < batches->options.accumulation_count);
    ZO_ASSERT(device >= 0 && device < batches->options.device_count);
    batch->token_count = 0;
    batch->row_count = 0;
    batch->label_count = 0;
    batch->row_start[0] = 0;
    for (int32_t slot = 0; slot < batches->options.micro_batch_rows; slot++) {
        const int64_t index = row_at(batches, &window, micro, device, slot);
        struct zo_row_view row;

        if (index < 0) {
            break;
        }
        row = zo_dataset_row(batches->dataset, index);
        memcpy(batch->ids + batch->token_count, row.ids,
               (size_t)row.count * sizeof(row.ids[0]));
        for (int32_t t = 0; t < row.count; t++) {
            batch->positions[batch->token_count + t] = t;
        }
        add_labels(batches, index, batch->token_count, batch);
        batch->token_count += row.count;
        batch->row_start[++batch->row_count] = batch->token_count;
    }
    batch->real_count = batch->token_count;
    add_pads(batches, batch);
    sort_tokens(batches, batch);
    find_segments(batch);
}
