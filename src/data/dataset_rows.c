/*
 * What a data set is made of, and one made of random rows.  Row 6.
 */
#include "src/data/dataset_internal.h"

#include "src/base/memory.h"
#include "src/base/random.h"

enum zo_status zo_dataset_add_labels(struct zo_dataset *dataset,
                                     struct zo_data_record *record,
                                     int64_t begin, int64_t end,
                                     int64_t labels_at)
{
    ZO_TRY(zo_grow(&dataset->spans, dataset->span_count,
                   &dataset->span_capacity, sizeof(dataset->spans[0]),
                   "the labels of the data set"));
    dataset->spans[dataset->span_count++] =
        (struct zo_data_labels){labels_at, (int32_t)begin, (int32_t)end};
    record->span_count++;
    /* A row's first token is never predicted. */
    record->label_count += (int32_t)(end - begin - (begin == 0));
    return ZO_OK;
}

enum zo_status zo_dataset_add_record(struct zo_dataset *dataset,
                                     const struct zo_data_record *record)
{
    ZO_TRY(zo_grow(&dataset->records, dataset->record_count,
                   &dataset->record_capacity, sizeof(dataset->records[0]),
                   "the rows of the data set"));
    dataset->records[dataset->record_count++] = *record;
    dataset->counts.kept++;
    dataset->counts.tokens += record->count;
    dataset->counts.labels += record->label_count;
    return ZO_OK;
}

/* FNV-1a over 32-bit words, two multiplications a word. */
static uint64_t hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ (word & 0xffffffffu)) * 0x100000001b3u;
    return (hash ^ (word >> 32)) * 0x100000001b3u;
}

uint64_t zo_dataset_hash(const struct zo_dataset *dataset)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < dataset->record_count; i++) {
        const struct zo_data_record *record = &dataset->records[i];

        hash = hash_word(hash, (uint64_t)record->count);
        for (int32_t t = 0; t < record->count; t++) {
            hash = hash_word(hash,
                             (uint32_t)dataset->pool.items[record->ids_at + t]);
        }
        for (int32_t s = 0; s < record->span_count; s++) {
            const struct zo_data_labels *span =
                &dataset->spans[record->spans_at + s];

            hash = hash_word(hash,
                             (uint64_t)span->begin << 32 | (uint32_t)span->end);
            for (int32_t t = 0; t < span->end - span->begin; t++) {
                hash = hash_word(
                    hash, (uint32_t)dataset->pool.items[span->labels_at + t]);
            }
        }
    }
    return hash;
}

static enum zo_status add_random_row(struct zo_dataset *dataset, int64_t row,
                                     int32_t tokens, int32_t vocab_size,
                                     uint64_t key)
{
    struct zo_data_record record = {
        .ids_at = (int64_t)dataset->pool.count,
        .spans_at = (int64_t)dataset->span_count,
        .line = row + 1,
        .count = tokens,
    };

    for (int32_t t = 0; t < tokens; t++) {
        const uint64_t bits =
            zo_random_bits(key, (uint64_t)row * (uint64_t)tokens + (uint64_t)t);

        ZO_TRY(zo_ids_push(&dataset->pool,
                           (int32_t)(bits % (uint64_t)vocab_size)));
    }
    ZO_TRY(zo_dataset_add_labels(dataset, &record, 0, tokens, record.ids_at));
    dataset->counts.read++;
    return zo_dataset_add_record(dataset, &record);
}

enum zo_status zo_dataset_synthetic(int64_t rows, int32_t tokens,
                                    int32_t vocab_size, uint64_t seed,
                                    struct zo_dataset **dataset_out)
{
    const uint64_t key = zo_random_key(seed, "synthetic rows");
    struct zo_dataset *dataset = NULL;
    enum zo_status status;

    if (rows < 1 || tokens < 1 || tokens > 1 << 24 || vocab_size < 1) {
        return ZO_FAIL(ZO_E_ARG,
                       "%lld synthetic rows of %d tokens below %d; want 1 or "
                       "more of each",
                       (long long)rows, tokens, vocab_size);
    }
    ZO_TRY(zo_alloc(1, sizeof(*dataset), "the data set", &dataset));
    ZO_TRY_GOTO(close_dataset,
                zo_strndup("synthetic rows", 14, &dataset->path));
    for (int64_t row = 0; row < rows; row++) {
        ZO_TRY_GOTO(close_dataset,
                    add_random_row(dataset, row, tokens, vocab_size, key));
    }
    dataset->counts.longest_tokens = tokens;
    dataset->counts.longest_line = 1;
    dataset->fingerprint = zo_dataset_hash(dataset);
    *dataset_out = dataset;
    return ZO_OK;

close_dataset:
    zo_dataset_close(dataset);
    return status;
}
