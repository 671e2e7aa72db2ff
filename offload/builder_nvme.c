/*
 * States on their way from and to NVMe.  Row 5.
 *
 * An update of a unit goes piece by piece: a piece of every state that is on
 * NVMe is read into a buffer of the ring, AdamW runs on it there, and it is
 * written back.  Reading ahead and writing behind follow from the ring's depth
 * alone, since what waits for what is derived.
 *
 * A piece is a number of whole tiles, so it begins with a chunk of the store,
 * and whole chunks move.
 */
#include "offload/builder_internal.h"
#include "src/base/arith.h"

#define STATES    4                /* weights, second, m, v */
#define MOVES_MAX (2 * STATES + 1) /* the record */

/* A state of a unit as its update sees it. */
struct nvme_state {
    zo_buffer_id home; /* whole; ZO_NO_BUFFER: the unit has no such state */
    uint64_t elem_bytes;
    bool is_on_nvme;
    uint64_t slot_offset; /* of its piece in a buffer of the ring */
};

static int64_t piece_elems(const struct zo_build_options *options)
{
    const int tiles = options->placement.nvme_piece_tiles;

    return (int64_t)(tiles > 0 ? tiles : ZO_NVME_PIECE_TILES) * ZO_TILE_ELEMS;
}

static uint64_t chunk_bytes(int64_t elems, uint64_t elem_bytes)
{
    return zo_round_up((uint64_t)elems * elem_bytes, ZO_NVME_CHUNK);
}

/* Sets all but the homes; returns the bytes of a buffer of the ring. */
static uint64_t describe(const struct zo_build_options *options, int u,
                         struct nvme_state *states)
{
    const struct zo_unit_homes *homes = zo_build_homes(options, u);
    const int64_t elems =
        zo_min_i64(piece_elems(options), options->units[u].elems);
    const uint64_t moment = options->moment_type == ZO_BF16 ? 2 : 4;
    const uint64_t second = options->type == ZO_BF16  ? 2
                            : options->type == ZO_F16 ? 4
                                                      : 0;
    const uint64_t elem_bytes[STATES] = {zo_dtype_bytes(options->type), second,
                                         moment, moment};
    uint64_t bytes = 0;

    for (int i = 0; i < STATES; i++) {
        const enum zo_tier home = i == 0 ? homes->weights : homes->optimizer;

        states[i] = (struct nvme_state){
            .home = ZO_NO_BUFFER,
            .elem_bytes = elem_bytes[i],
            .is_on_nvme = elem_bytes[i] > 0 && home == ZO_TIER_NVME,
            .slot_offset = bytes,
        };
        bytes += states[i].is_on_nvme ? chunk_bytes(elems, elem_bytes[i]) : 0;
    }
    return bytes;
}

uint64_t zo_build_nvme_slot_bytes(const struct zo_build_options *options, int u)
{
    struct nvme_state states[STATES];

    return zo_build_spills(options, u) ? describe(options, u, states) : 0;
}

/* Moves pieces of all states on NVMe into a buffer of the ring, or back. */
static enum zo_status move(const struct zo_lister *lister, int u,
                           const struct nvme_state *states,
                           struct zo_held piece, zo_buffer_id slot, bool writes)
{
    struct zo_build *build = lister->build;
    struct zo_access accesses[MOVES_MAX];
    const struct zo_op op = {
        .name = writes ? "states to NVMe" : "states from NVMe",
        .engine = ZO_ENGINE_NVME,
        .unit = u,
        .micro = -1,
    };
    size_t count = 0;

    for (int i = 0; i < STATES; i++) {
        const uint64_t bytes = chunk_bytes(piece.count, states[i].elem_bytes);
        const uint64_t first = (uint64_t)piece.first * states[i].elem_bytes;

        if (!states[i].is_on_nvme) {
            continue;
        }
        accesses[count + (writes ? 1 : 0)] = (struct zo_access){
            slot, writes ? ZO_READ : ZO_WRITE, states[i].slot_offset, bytes};
        accesses[count + (writes ? 0 : 1)] = (struct zo_access){
            states[i].home, writes ? ZO_WRITE : ZO_READ, first, bytes};
        count += 2;
    }
    if (build->options.decides) { /* else the list is that of its step */
        accesses[count++] = (struct zo_access){build->record, ZO_READ, 0,
                                               sizeof(struct zo_step_record)};
    }
    return zo_schedule_add(&build->program, lister->schedule, &op, accesses,
                           count);
}

static enum zo_status update_piece(const struct zo_lister *lister, int u,
                                   const struct nvme_state *states,
                                   struct zo_held piece, zo_buffer_id slot,
                                   zo_buffer_id grad)
{
    struct zo_access touched[STATES];

    for (int i = 0; i < STATES; i++) {
        const uint64_t bytes = (uint64_t)piece.count * states[i].elem_bytes;

        touched[i] = states[i].is_on_nvme
                         ? (struct zo_access){slot, ZO_READ_WRITE,
                                              states[i].slot_offset, bytes}
                         : (struct zo_access){states[i].home, ZO_READ_WRITE,
                                              (uint64_t)piece.first *
                                                  states[i].elem_bytes,
                                              bytes};
    }
    if (states[1].elem_bytes == 0) {
        touched[1] = touched[2]; /* fp32 has no second; any will do */
    }
    return zo_lister_update_host(lister, u, piece, touched, grad);
}

enum zo_status zo_lister_update_nvme(struct zo_lister *lister, int u,
                                     zo_buffer_id grad)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const struct zo_unit_buffers *unit = zo_build_unit(build, u, 0);
    const int64_t elems = options->units[u].elems;
    const int64_t step = piece_elems(options);
    const int ring = options->placement.nvme_ring;
    const int depth = ring > 0 ? ring : ZO_NVME_RING;
    struct nvme_state states[STATES];

    (void)describe(options, u, states);
    states[0].home = unit->weights;
    states[1].home = zo_build_second(build, unit);
    states[2].home = unit->exp_avg;
    states[3].home = unit->exp_avg_sq;
    for (int64_t at = 0; at < elems; at += step) {
        const struct zo_held piece = {at, zo_min_i64(step, elems - at)};
        const zo_buffer_id slot =
            build->nvme_ring[lister->nvme_pieces++ % depth];

        ZO_TRY(move(lister, u, states, piece, slot, false));
        ZO_TRY(update_piece(lister, u, states, piece, slot, grad));
        ZO_TRY(move(lister, u, states, piece, slot, true));
    }
    return ZO_OK;
}

enum zo_status zo_lister_load(const struct zo_lister *lister,
                              const struct zo_load *load)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const int64_t elems = options->units[load->unit].elems;
    const int64_t step = piece_elems(options);
    const struct zo_op op = {
        .name = load->name,
        .engine = ZO_ENGINE_NVME,
        .unit = load->unit,
        .micro = -1,
        .priority = load->priority,
    };

    for (int64_t at = 0; at < elems; at += step) {
        const uint64_t first = (uint64_t)at * load->elem_bytes;
        const uint64_t bytes =
            chunk_bytes(zo_min_i64(step, elems - at), load->elem_bytes);

        ZO_TRY(zo_schedule_add(
            &build->program, lister->schedule, &op,
            (const struct zo_access[]){{load->target, ZO_WRITE, first, bytes},
                                       {load->source, ZO_READ, first, bytes}},
            2));
    }
    return ZO_OK;
}

enum zo_status zo_lister_load_weights(const struct zo_lister *lister, int u,
                                      zo_buffer_id target)
{
    struct zo_build *build = lister->build;

    return zo_lister_load(
        lister, &(struct zo_load){
                    .name = "weights from NVMe",
                    .unit = u,
                    .priority = -1, /* a device waits: before all updates */
                    .elem_bytes = zo_dtype_bytes(build->options.type),
                    .target = target,
                    .source = zo_build_unit(build, u, 0)->weights,
                });
}
