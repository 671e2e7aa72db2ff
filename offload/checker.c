/*
 * Sequences of lists: their edges, and the proof that these suffice.  Row 5.
 */
#include "offload/order.h"

#include <string.h>

#include "src/base/arith.h"
#include "src/base/memory.h"

#define PREDS_MAX 512

static const struct zo_op *op_at(const struct zo_program *program,
                                 const struct zo_sequence_item *items,
                                 size_t index, int *item_out)
{
    int item = 0;

    while (index >= program->schedules[items[item].schedule].op_count) {
        index -= program->schedules[items[item].schedule].op_count;
        item++;
    }
    *item_out = item;
    return &program->schedules[items[item].schedule].ops[index];
}

static size_t sequence_length(const struct zo_program *program,
                              const struct zo_sequence_item *items,
                              size_t item_count)
{
    size_t count = 0;

    for (size_t i = 0; i < item_count; i++) {
        count += program->schedules[items[i].schedule].op_count;
    }
    return count;
}

static enum zo_status add_edges(struct zo_edges *edges, size_t *total,
                                const uint64_t *preds, size_t count,
                                uint64_t instance)
{
    const bool is_barrier = count > PREDS_MAX;
    const size_t added = is_barrier ? (size_t)instance - 1 : count;

    for (size_t i = 0; i < added; i++) {
        ZO_TRY(zo_grow(&edges->preds, *total, &edges->preds_capacity,
                       sizeof(edges->preds[0]), "the edges of a schedule"));
        edges->preds[(*total)++] = is_barrier ? i : (size_t)preds[i] - 1;
    }
    return ZO_OK;
}

enum zo_status zo_edges_derive(const struct zo_program *program,
                               const struct zo_sequence_item *items,
                               size_t item_count, struct zo_edges *edges_out)
{
    enum zo_status status;
    struct zo_order *order = NULL;
    struct zo_edges edges = {0};
    uint64_t preds[PREDS_MAX], instance = 1;
    size_t total = 0;

    edges.count = sequence_length(program, items, item_count);
    ZO_TRY(zo_order_open(program, item_count, &order));
    ZO_TRY_GOTO(close_order, zo_alloc(edges.count + 1, sizeof(edges.first[0]),
                                      "the edges of a schedule", &edges.first));
    for (size_t i = 0; i < item_count; i++) {
        const size_t ops = program->schedules[items[i].schedule].op_count;

        for (size_t op = 0; op < ops; op++, instance++) {
            const struct zo_order_step step = {items[i].schedule, op,
                                               items[i].slot, instance, 1};

            edges.first[instance - 1] = total;
            ZO_TRY_GOTO(free_edges,
                        add_edges(&edges, &total, preds,
                                  zo_order_next(order, &step, preds, PREDS_MAX),
                                  instance));
        }
    }
    edges.first[edges.count] = total;
    zo_order_close(order);
    *edges_out = edges;
    return ZO_OK;

free_edges:
    zo_edges_fini(&edges);
close_order:
    zo_order_close(order);
    return status;
}

void zo_edges_fini(struct zo_edges *edges)
{
    if (edges == NULL) {
        return;
    }
    zo_free(edges->first);
    zo_free(edges->preds);
    *edges = (struct zo_edges){0};
}

/* reach[i]: bit j is set when instance j comes before i. */
static void close_over(const struct zo_program *program,
                       const struct zo_sequence_item *items,
                       const struct zo_edges *edges, size_t *lane_last,
                       uint64_t *reach, size_t words)
{
    for (uint32_t lane = 0; lane < zo_lane_count(program); lane++) {
        lane_last[lane] = SIZE_MAX;
    }
    for (size_t i = 0; i < edges->count; i++) {
        int item = 0;
        const uint32_t lane =
            zo_lane_of(program, op_at(program, items, i, &item));
        uint64_t *row = reach + i * words;

        for (size_t e = edges->first[i]; e <= edges->first[i + 1]; e++) {
            const bool is_lane = e == edges->first[i + 1];
            const size_t pred = !is_lane             ? edges->preds[e]
                                : lane != ZO_NO_LANE ? lane_last[lane]
                                                     : SIZE_MAX;

            if (pred >= i) { /* none, or an edge that points forward */
                continue;
            }
            row[pred / 64] |= (uint64_t)1 << (pred % 64);
            for (size_t w = 0; w < words; w++) {
                row[w] |= reach[pred * words + w];
            }
        }
        if (lane != ZO_NO_LANE) {
            lane_last[lane] = i;
        }
    }
}

/* A range of no bytes, in the middle of another, has none in common. */
static bool conflicts(const struct zo_range *a, const struct zo_range *b)
{
    return a->begin < a->end && b->begin < b->end && a->tier == b->tier &&
           a->device == b->device && a->begin < b->end && b->begin < a->end &&
           (a->mode != ZO_READ || b->mode != ZO_READ);
}

static enum zo_status check_pair(const struct zo_program *program,
                                 const struct zo_sequence_item *items,
                                 size_t early, size_t late)
{
    int early_item = 0, late_item = 0;
    const struct zo_op *a = op_at(program, items, early, &early_item);
    const struct zo_op *b = op_at(program, items, late, &late_item);
    const struct zo_access *a_list =
        program->schedules[items[early_item].schedule].accesses +
        a->access_first;
    const struct zo_access *b_list =
        program->schedules[items[late_item].schedule].accesses +
        b->access_first;

    for (uint32_t i = 0; i < a->access_count; i++) {
        const struct zo_range left =
            zo_access_range(program, &a_list[i], items[early_item].slot);

        for (uint32_t j = 0; j < b->access_count; j++) {
            const struct zo_range right =
                zo_access_range(program, &b_list[j], items[late_item].slot);

            if (conflicts(&left, &right)) {
                return ZO_FAIL(
                    ZO_E_ARG,
                    "nothing orders operation %zu (%s, unit %d, micro batch "
                    "%d) before %zu (%s, unit %d, micro batch %d); both touch "
                    "%s memory [%llu, %llu) of %s",
                    early, a->name, a->unit, a->micro, late, b->name, b->unit,
                    b->micro, zo_tier_text(left.tier),
                    (unsigned long long)left.begin,
                    (unsigned long long)left.end,
                    program->buffers[a_list[i].buffer].name);
            }
        }
    }
    return ZO_OK;
}

enum zo_status zo_edges_check(const struct zo_program *program,
                              const struct zo_sequence_item *items,
                              size_t item_count, const struct zo_edges *edges)
{
    enum zo_status status = ZO_OK;
    const size_t words = (edges->count + 63) / 64;
    uint64_t *reach = NULL;
    size_t *lane_last = NULL;

    ZO_ASSERT(edges->count == sequence_length(program, items, item_count));
    ZO_TRY(zo_alloc(edges->count, words * sizeof(reach[0]),
                    "the closure of a schedule", &reach));
    ZO_TRY_GOTO(free_reach,
                zo_alloc(zo_lane_count(program), sizeof(lane_last[0]),
                         "the closure of a schedule", &lane_last));
    close_over(program, items, edges, lane_last, reach, words);
    for (size_t late = 0; late < edges->count && status == ZO_OK; late++) {
        for (size_t early = 0; early < late && status == ZO_OK; early++) {
            const uint64_t *row = reach + late * words;

            if ((row[early / 64] >> (early % 64) & 1) == 0) {
                status = check_pair(program, items, early, late);
            }
        }
    }
    zo_free(lane_last);
free_reach:
    zo_free(reach);
    return status;
}
