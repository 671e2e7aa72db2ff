/*
 * A data set in the making, and its pools.  Row 6, private to
 * src/data/dataset*.c.
 */
#ifndef ZO_SRC_DATA_DATASET_INTERNAL_H
#define ZO_SRC_DATA_DATASET_INTERNAL_H

#include "src/data/dataset.h"

/* A row: where its ids and spans lie in the pools. */
struct zo_data_record {
    int64_t ids_at, spans_at;
    int64_t line;
    int32_t count, label_count, span_count;
};

/* A stretch of a row with labels, which lie at pool[labels_at]: the ids
 * themselves, unless the file had other labels. */
struct zo_data_labels {
    int64_t labels_at;
    int32_t begin, end;
};

struct zo_dataset {
    char *path;         /* owned, as the three pools */
    struct zo_ids pool; /* the ids of all rows, and foreign labels */
    struct zo_data_record *records; /* one a row */
    size_t record_count, record_capacity;
    struct zo_data_labels *spans;
    size_t span_count, span_capacity;
    struct zo_dataset_counts counts;
    uint64_t fingerprint;
};

/* Gives the row [begin, end) of labels, which lie at pool[labels_at]. */
enum zo_status zo_dataset_add_labels(struct zo_dataset *dataset,
                                     struct zo_data_record *record,
                                     int64_t begin, int64_t end,
                                     int64_t labels_at) ZO_MUST_CHECK;

/* Keeps a row whose ids and labels are in the pools. */
enum zo_status
zo_dataset_add_record(struct zo_dataset *dataset,
                      const struct zo_data_record *record) ZO_MUST_CHECK;

/* The fingerprint of what was kept. */
uint64_t zo_dataset_hash(const struct zo_dataset *dataset);

#endif
