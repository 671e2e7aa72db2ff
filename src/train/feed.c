#include "src/train/feed.h"

#include "src/base/arith.h"

static struct zo_micro_batch batch_in(const struct zo_glm_batch *layout,
                                      char *blob)
{
    return (struct zo_micro_batch){
        .ids = (int32_t *)(blob + layout->ids),
        .positions = (int32_t *)(blob + layout->positions),
        .row_start = (int32_t *)(blob + layout->row_start),
        .label_index = (int32_t *)(blob + layout->label_index),
        .label_id = (int32_t *)(blob + layout->label_id),
        .order = (int32_t *)(blob + layout->order),
        .segment_start = (int32_t *)(blob + layout->segment_start),
        .segment_id = (int32_t *)(blob + layout->segment_id),
    };
}

/* Which of the gathered rows each token has; the pads share the last. */
static void fill_table_rows(const struct zo_micro_batch *batch,
                            int32_t *table_row)
{
    for (int32_t t = 0; t < batch->token_count; t++) {
        table_row[t] = batch->segment_count;
    }
    for (int32_t s = 0; s < batch->segment_count; s++) {
        for (int32_t i = batch->segment_start[s];
             i < batch->segment_start[s + 1]; i++) {
            table_row[batch->order[i]] = s;
        }
    }
}

static int32_t longest_row(const struct zo_micro_batch *batch)
{
    int32_t longest = 0;

    for (int32_t r = 0; r < batch->row_count; r++) {
        const int32_t tokens = batch->row_start[r + 1] - batch->row_start[r];

        longest = tokens > longest ? tokens : longest;
    }
    return longest;
}

/* DeepSpeed's mean of means: each micro batch with a label counts the same. */
static void weigh_micro_batches(struct zo_step_record *record, int count)
{
    int labelled = 0;

    for (int i = 0; i < count; i++) {
        labelled += record->counts[i].labels > 0;
    }
    for (int i = 0; i < count; i++) {
        struct zo_micro_counts *counts = &record->counts[i];

        counts->loss_weight = counts->labels > 0
                                  ? 1.0 / ((double)counts->labels * labelled)
                                  : 0.0;
    }
}

enum zo_status zo_feed_step(const struct zo_feed *feed,
                            struct zo_batches *batches, int64_t step_index,
                            int micros, int slot,
                            struct zo_batches_step *step_out)
{
    const struct zo_build *build = feed->build;
    const int devices = build->options.device_count;
    struct zo_step_record *record =
        zo_executor_address(feed->executor, build->record, slot);
    char *blobs = zo_executor_address(feed->executor, build->batch_host, slot);

    ZO_TRY(zo_batches_step(batches, step_index, step_out));
    for (int i = 0; i < micros * devices; i++) {
        char *blob = blobs + (uint64_t)i * build->options.batch_bytes;
        struct zo_micro_batch batch = batch_in(&feed->layout, blob);

        zo_batches_fill(batches, step_index, i / devices, i % devices, &batch);
        fill_table_rows(&batch, (int32_t *)(blob + feed->layout.table_row));
        record->counts[i] = (struct zo_micro_counts){
            .tokens = batch.token_count,
            .rows = batch.row_count,
            .row_tokens_max = longest_row(&batch),
            .labels = batch.label_count,
            .segments = batch.segment_count,
            .table_rows =
                batch.segment_count + (batch.real_count < batch.token_count),
            .loss_weight =
                step_out->labels > 0 ? 1.0 / (double)step_out->labels : 0.0,
        };
    }
    if (feed->reduction == ZO_LOSS_PER_MICRO_BATCH) {
        weigh_micro_batches(record, micros * devices);
    }
    return ZO_OK;
}
