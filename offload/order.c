#include "offload/order.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/base/memory.h"

#define NO_NODE UINT32_MAX

/* A border of some access. */
struct border {
    uint32_t arena;
    uint64_t at;
};

/* A reader since the last write of an atom. */
struct node {
    uint64_t instance;
    uint32_t lane, next;
};

struct atom {
    uint64_t writer; /* instance; 0: none */
    uint32_t writer_lane;
    uint32_t readers; /* head of a list of nodes */
};

struct span {
    uint32_t first, end; /* atoms */
};

struct zo_order {
    const struct zo_program *program;
    struct border *borders; /* sorted, distinct */
    size_t border_count;
    struct atom *atoms;                   /* atom i: borders i to i + 1 */
    struct span *spans[ZO_SCHEDULES_MAX]; /* [access][slot] */
    struct node *nodes;
    uint32_t free_node;
    uint64_t *lane_best; /* per lane, of the operation at hand */
};

uint32_t zo_lane_of(const struct zo_program *program, const struct zo_op *op)
{
    if (op->engine == ZO_ENGINE_COLLECTIVE) {
        return (uint32_t)program->device_count * ZO_ENGINE_COLLECTIVE;
    }
    if (!zo_engine_is_stream(op->engine)) {
        return ZO_NO_LANE;
    }
    return (uint32_t)(op->device * ZO_ENGINE_COLLECTIVE + (int)op->engine);
}

uint32_t zo_lane_count(const struct zo_program *program)
{
    return (uint32_t)program->device_count * ZO_ENGINE_COLLECTIVE + 1;
}

struct zo_range zo_access_range(const struct zo_program *program,
                                const struct zo_access *access, int slot)
{
    const struct zo_buffer *buffer = &program->buffers[access->buffer];
    const uint64_t begin = buffer->offset + access->offset +
                           (uint64_t)slot * buffer->slot_stride_bytes;

    return (struct zo_range){buffer->tier, buffer->device, begin,
                             begin + access->bytes, access->mode};
}

static uint32_t arena_of(const struct zo_range *range)
{
    return (uint32_t)range->tier * ZO_DEVICES_MAX + (uint32_t)range->device;
}

static int by_place(const void *left, const void *right)
{
    const struct border *a = left, *b = right;

    if (a->arena != b->arena) {
        return a->arena < b->arena ? -1 : 1;
    }
    return a->at < b->at ? -1 : a->at > b->at;
}

static size_t total_accesses(const struct zo_program *program)
{
    size_t count = 0;

    for (int s = 0; s < program->schedule_count; s++) {
        count += program->schedules[s].access_count;
    }
    return count;
}

static void collect_borders(struct zo_order *order)
{
    const struct zo_program *program = order->program;
    size_t count = 0, distinct = 0;

    for (int s = 0; s < program->schedule_count; s++) {
        const struct zo_schedule *list = &program->schedules[s];

        for (size_t a = 0; a < list->access_count; a++) {
            for (int slot = 0; slot < 2; slot++) {
                const struct zo_range range =
                    zo_access_range(program, &list->accesses[a], slot);
                const uint32_t arena = arena_of(&range);

                order->borders[count++] = (struct border){arena, range.begin};
                order->borders[count++] = (struct border){arena, range.end};
            }
        }
    }
    qsort(order->borders, count, sizeof(order->borders[0]), by_place);
    for (size_t i = 0; i < count; i++) {
        if (distinct == 0 ||
            by_place(&order->borders[i], &order->borders[distinct - 1]) != 0) {
            order->borders[distinct++] = order->borders[i];
        }
    }
    order->border_count = distinct;
}

static uint32_t find_border(const struct zo_order *order, uint32_t arena,
                            uint64_t at)
{
    const struct border key = {arena, at};
    const struct border *found =
        bsearch(&key, order->borders, order->border_count,
                sizeof(order->borders[0]), by_place);

    ZO_ASSERT(found != NULL);
    return (uint32_t)(found - order->borders);
}

/* touched_out: atoms that the accesses read, in both slots. */
static enum zo_status make_spans(struct zo_order *order, size_t *touched_out)
{
    const struct zo_program *program = order->program;
    size_t touched = 0;

    for (int s = 0; s < program->schedule_count; s++) {
        const struct zo_schedule *list = &program->schedules[s];

        ZO_TRY(zo_alloc(list->access_count, 2 * sizeof(struct span),
                        "the order of operations", &order->spans[s]));
        for (size_t a = 0; a < 2 * list->access_count; a++) {
            const struct zo_range range =
                zo_access_range(program, &list->accesses[a / 2], (int)(a % 2));
            const uint32_t arena = arena_of(&range);
            struct span *span = &order->spans[s][a];

            span->first = find_border(order, arena, range.begin);
            span->end = find_border(order, arena, range.end);
            if (range.mode == ZO_READ) {
                touched += span->end - span->first;
            }
        }
    }
    *touched_out = touched;
    return ZO_OK;
}

/*
 * Readers of an atom: one a lane, or one a pending operation outside of
 * lanes.  An atom takes another node only when those it has are all pending,
 * so that it never has more than lists_max lists read it.
 */
static enum zo_status make_nodes(struct zo_order *order, size_t count)
{
    ZO_ASSERT(count < NO_NODE);
    ZO_TRY(zo_alloc(count, sizeof(struct node), "the order of operations",
                    &order->nodes));
    for (size_t i = 0; i < count; i++) {
        order->nodes[i].next = i + 1 < count ? (uint32_t)i + 1 : NO_NODE;
    }
    order->free_node = count > 0 ? 0 : NO_NODE;
    return ZO_OK;
}

enum zo_status zo_order_open(const struct zo_program *program, size_t lists_max,
                             struct zo_order **order_out)
{
    enum zo_status status;
    size_t touched = 0;
    struct zo_order *order = NULL;

    ZO_ASSERT(program->is_laid_out);
    ZO_TRY(zo_alloc(1, sizeof(*order), "the order of operations", &order));
    order->program = program;
    ZO_TRY_GOTO(close_order,
                zo_alloc(total_accesses(program) * 4, sizeof(struct border),
                         "the order of operations", &order->borders));
    collect_borders(order);
    ZO_TRY_GOTO(close_order,
                zo_alloc(order->border_count, sizeof(struct atom),
                         "the order of operations", &order->atoms));
    for (size_t i = 0; i < order->border_count; i++) {
        order->atoms[i].readers = NO_NODE;
    }
    ZO_TRY_GOTO(close_order,
                zo_alloc(zo_lane_count(program), sizeof(uint64_t),
                         "the order of operations", &order->lane_best));
    ZO_TRY_GOTO(close_order, make_spans(order, &touched));
    ZO_TRY_GOTO(close_order, make_nodes(order, lists_max * touched));
    *order_out = order;
    return ZO_OK;

close_order:
    zo_order_close(order);
    return status;
}

void zo_order_close(struct zo_order *order)
{
    if (order == NULL) {
        return;
    }
    for (int s = 0; s < ZO_SCHEDULES_MAX; s++) {
        zo_free(order->spans[s]);
    }
    zo_free(order->borders);
    zo_free(order->atoms);
    zo_free(order->nodes);
    zo_free(order->lane_best);
    zo_free(order);
}

/* The predecessors of one operation, gathered. */
struct gather {
    uint64_t *preds;
    size_t count, max;
    uint64_t instance, retired_below;
};

static void add_pred(struct zo_order *order, struct gather *gather,
                     uint64_t instance, uint32_t lane)
{
    if (instance < gather->retired_below || instance == gather->instance ||
        instance == 0) {
        return;
    }
    if (lane != ZO_NO_LANE) {
        if (order->lane_best[lane] < instance) {
            order->lane_best[lane] = instance;
        }
        return;
    }
    for (size_t i = 0; i < gather->count && i < gather->max; i++) {
        if (gather->preds[i] == instance) {
            return;
        }
    }
    if (gather->count < gather->max) {
        gather->preds[gather->count] = instance;
    }
    gather->count++;
}

static void free_readers(struct zo_order *order, struct atom *atom)
{
    while (atom->readers != NO_NODE) {
        const uint32_t at = atom->readers;

        atom->readers = order->nodes[at].next;
        order->nodes[at].next = order->free_node;
        order->free_node = at;
    }
}

/* A reader replaces an older one of its lane, or one that is done. */
static void add_reader(struct zo_order *order, struct atom *atom,
                       const struct gather *gather, uint32_t lane)
{
    uint32_t at;

    for (at = atom->readers; at != NO_NODE; at = order->nodes[at].next) {
        struct node *node = &order->nodes[at];

        if ((lane != ZO_NO_LANE && node->lane == lane) ||
            node->instance < gather->retired_below) {
            node->instance = gather->instance;
            node->lane = lane;
            return;
        }
    }
    at = order->free_node;
    ZO_ASSERT(at != NO_NODE);
    order->free_node = order->nodes[at].next;
    order->nodes[at] = (struct node){gather->instance, lane, atom->readers};
    atom->readers = at;
}

static void touch(struct zo_order *order, struct gather *gather,
                  struct atom *atom, enum zo_access_mode mode, uint32_t lane)
{
    add_pred(order, gather, atom->writer, atom->writer_lane);
    if (mode == ZO_READ) {
        add_reader(order, atom, gather, lane);
        return;
    }
    for (uint32_t at = atom->readers; at != NO_NODE;
         at = order->nodes[at].next) {
        add_pred(order, gather, order->nodes[at].instance,
                 order->nodes[at].lane);
    }
    free_readers(order, atom);
    atom->writer = gather->instance;
    atom->writer_lane = lane;
}

size_t zo_order_next(struct zo_order *order, const struct zo_order_step *step,
                     uint64_t *preds_out, size_t max)
{
    const struct zo_schedule *list = &order->program->schedules[step->schedule];
    const struct zo_op *op = &list->ops[step->op];
    const uint32_t lane = zo_lane_of(order->program, op);
    const uint32_t lanes = zo_lane_count(order->program);
    struct gather gather = {preds_out, 0, max, step->instance,
                            step->retired_below};

    memset(order->lane_best, 0, lanes * sizeof(order->lane_best[0]));
    for (uint32_t a = 0; a < op->access_count; a++) {
        const uint32_t access = op->access_first + a;
        const struct span span =
            order->spans[step->schedule][2 * access + (uint32_t)step->slot];

        for (uint32_t at = span.first; at < span.end; at++) {
            touch(order, &gather, &order->atoms[at],
                  list->accesses[access].mode, lane);
        }
    }
    for (uint32_t other = 0; other < lanes; other++) {
        if (order->lane_best[other] == 0 || other == lane) {
            continue; /* its own lane is in order by itself */
        }
        if (gather.count < max) {
            preds_out[gather.count] = order->lane_best[other];
        }
        gather.count++;
    }
    return gather.count > max ? max + 1 : gather.count;
}
