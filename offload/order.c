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

/* Bytes of a buffer that operations access: many do the same ones. */
struct piece {
    uint64_t offset, bytes;
    zo_buffer_id buffer;
    struct span spans[2]; /* [slot] */
};

struct zo_order {
    const struct zo_program *program;
    struct piece *pieces;
    size_t piece_count, piece_capacity;
    uint32_t *piece_of[ZO_SCHEDULES_MAX]; /* [access] */
    struct border *borders;               /* sorted, distinct */
    size_t border_count;
    struct atom *atoms; /* atom i: borders i to i + 1 */
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

static uint64_t hash_of(const struct zo_access *access)
{
    uint64_t hash = access->buffer;

    hash = (hash ^ access->offset) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 32 ^ access->bytes) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

/* Numbers of pieces plus one, 0 where there is none; at most half are taken. */
struct table {
    uint32_t *numbers;
    size_t mask;
};

static enum zo_status find_piece(struct zo_order *order,
                                 const struct table *table,
                                 const struct zo_access *access,
                                 uint32_t *piece_out)
{
    size_t at = hash_of(access) & table->mask;

    for (; table->numbers[at] != 0; at = (at + 1) & table->mask) {
        const struct piece *piece = &order->pieces[table->numbers[at] - 1];

        if (piece->buffer == access->buffer &&
            piece->offset == access->offset && piece->bytes == access->bytes) {
            *piece_out = table->numbers[at] - 1;
            return ZO_OK;
        }
    }
    ZO_TRY(zo_grow(&order->pieces, order->piece_count, &order->piece_capacity,
                   sizeof(order->pieces[0]), "the order of operations"));
    order->pieces[order->piece_count] = (struct piece){
        access->offset, access->bytes, access->buffer, {{0, 0}, {0, 0}}};
    *piece_out = (uint32_t)order->piece_count++;
    table->numbers[at] = *piece_out + 1;
    return ZO_OK;
}

static enum zo_status find_pieces(struct zo_order *order,
                                  const struct table *table)
{
    const struct zo_program *program = order->program;

    for (int s = 0; s < program->schedule_count; s++) {
        const struct zo_schedule *list = &program->schedules[s];

        ZO_TRY(zo_alloc(list->access_count, sizeof(uint32_t),
                        "the order of operations", &order->piece_of[s]));
        for (size_t a = 0; a < list->access_count; a++) {
            ZO_TRY(find_piece(order, table, &list->accesses[a],
                              &order->piece_of[s][a]));
        }
    }
    return ZO_OK;
}

/* Names the pieces of all accesses. */
static enum zo_status make_pieces(struct zo_order *order)
{
    const size_t accesses = total_accesses(order->program);
    struct table table = {.mask = 1};
    enum zo_status status;

    ZO_ASSERT(accesses < UINT32_MAX);
    while (table.mask < 2 * accesses) {
        table.mask = 2 * table.mask + 1;
    }
    ZO_TRY(zo_alloc(table.mask + 1, sizeof(table.numbers[0]),
                    "the order of operations", &table.numbers));
    status = find_pieces(order, &table);
    zo_free(table.numbers);
    return status;
}

static struct zo_range range_of(const struct zo_order *order,
                                const struct piece *piece, int slot)
{
    const struct zo_access access = {piece->buffer, ZO_READ, piece->offset,
                                     piece->bytes};

    return zo_access_range(order->program, &access, slot);
}

/* Without slots both are the same bytes. */
static int slots_of(const struct zo_order *order, const struct piece *piece)
{
    return order->program->buffers[piece->buffer].slot_stride_bytes > 0 ? 2 : 1;
}

static void collect_borders(struct zo_order *order)
{
    size_t count = 0, distinct = 0;

    for (size_t i = 0; i < order->piece_count; i++) {
        const struct piece *piece = &order->pieces[i];

        for (int slot = 0; slot < slots_of(order, piece); slot++) {
            const struct zo_range range = range_of(order, piece, slot);
            const uint32_t arena = arena_of(&range);

            order->borders[count++] = (struct border){arena, range.begin};
            order->borders[count++] = (struct border){arena, range.end};
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

static void make_spans(struct zo_order *order)
{
    for (size_t i = 0; i < order->piece_count; i++) {
        struct piece *piece = &order->pieces[i];

        for (int slot = 0; slot < slots_of(order, piece); slot++) {
            const struct zo_range range = range_of(order, piece, slot);
            const uint32_t arena = arena_of(&range);

            piece->spans[slot].first = find_border(order, arena, range.begin);
            piece->spans[slot].end = find_border(order, arena, range.end);
        }
        if (slots_of(order, piece) == 1) {
            piece->spans[1] = piece->spans[0];
        }
    }
}

/* Atoms that the accesses read, in both slots. */
static size_t count_touched(const struct zo_order *order)
{
    const struct zo_program *program = order->program;
    size_t touched = 0;

    for (int s = 0; s < program->schedule_count; s++) {
        const struct zo_schedule *list = &program->schedules[s];

        for (size_t a = 0; a < list->access_count; a++) {
            const struct piece *piece = &order->pieces[order->piece_of[s][a]];

            for (int slot = 0; slot < 2 && list->accesses[a].mode == ZO_READ;
                 slot++) {
                touched += piece->spans[slot].end - piece->spans[slot].first;
            }
        }
    }
    return touched;
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
    struct zo_order *order = NULL;

    ZO_ASSERT(program->is_laid_out);
    ZO_TRY(zo_alloc(1, sizeof(*order), "the order of operations", &order));
    order->program = program;
    ZO_TRY_GOTO(close_order, make_pieces(order));
    ZO_TRY_GOTO(close_order,
                zo_alloc(order->piece_count * 4, sizeof(struct border),
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
    make_spans(order);
    ZO_TRY_GOTO(close_order,
                make_nodes(order, lists_max * count_touched(order)));
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
        zo_free(order->piece_of[s]);
    }
    zo_free(order->pieces);
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
            order->pieces[order->piece_of[step->schedule][access]]
                .spans[step->slot];

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
