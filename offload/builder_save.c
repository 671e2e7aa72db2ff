/*
 * The list that copies the states of a step, for a save.  Row 5.
 *
 * It joins the list whose updates write them, behind it, and every later list
 * comes behind it in turn: so that it waits for AdamW of a unit, and the next
 * AdamW of that unit waits for it, is derived like all order.  Between the
 * two training goes on, and copies go when nothing more urgent does.
 */
#include <string.h>

#include "offload/builder_internal.h"
#include "src/base/arith.h"

#define STATES_MAX 4
#define PART_BYTES ((int64_t)2 << 20) /* of a copy, for a worker at a time */

struct state {
    zo_buffer_id *id; /* in a unit's buffers */
    size_t elem_bytes;
};

/* What a save takes of a unit: its masters, or the halves they are made of,
 * and its moments.  Returns how many. */
static int list_states(const struct zo_build_options *options,
                       struct zo_unit_buffers *unit, struct state *states)
{
    const size_t moment_bytes = zo_dtype_bytes(options->moment_type);
    int count = 0;

    switch (options->type) {
    case ZO_F32:
        states[count++] = (struct state){&unit->weights, 4};
        break;
    case ZO_BF16:
        states[count++] = (struct state){&unit->weights, 2};
        states[count++] = (struct state){&unit->remainder, 2};
        break;
    case ZO_F16:
        states[count++] = (struct state){&unit->master, 4};
        break;
    }
    states[count++] = (struct state){&unit->exp_avg, moment_bytes};
    states[count++] = (struct state){&unit->exp_avg_sq, moment_bytes};
    return count;
}

/* Whole units, of whole pages: NVMe is read into them. */
enum zo_status zo_build_add_copies(struct zo_build *build)
{
    const struct zo_build_options *options = &build->options;
    struct state homes[STATES_MAX], copies[STATES_MAX];

    for (int u = 0; u < options->unit_count; u++) {
        const int count =
            list_states(options, zo_build_unit(build, u, 0), homes);

        (void)list_states(options, &build->copies[u], copies);
        for (int i = 0; i < count; i++) {
            const struct zo_buffer *home =
                &build->program.buffers[*homes[i].id];
            const struct zo_buffer copy = {
                .name = home->name,
                .purpose = home->purpose,
                .tier = ZO_TIER_COPY,
                .unit = u,
                .schedule = -1,
                .bytes = zo_round_up(
                    (uint64_t)options->units[u].elems * homes[i].elem_bytes,
                    home->tier == ZO_TIER_NVME ? ZO_NVME_CHUNK : ZO_NVME_ALIGN),
            };

            ZO_TRY(zo_program_buffer(&build->program, &copy, copies[i].id));
        }
    }
    return ZO_OK;
}

/* Each device's own part; where all have everything, the first one's. */
static enum zo_status copy_from_devices(const struct zo_lister *lister, int u,
                                        int state, zo_buffer_id copy)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const int devices =
        zo_build_stage(options) == 0 ? 1 : options->device_count;
    struct state homes[STATES_MAX];

    for (int d = 0; d < devices; d++) {
        const struct zo_held own = zo_build_own(options, u, d);

        (void)list_states(options, zo_build_unit(build, u, d), homes);
        ZO_TRY(zo_lister_copy(
            lister,
            &(struct zo_copy){
                .engine = ZO_ENGINE_D2H,
                .name = "state copied",
                .device = d,
                .unit = u,
                .micro = -1,
                .target = {copy, ZO_WRITE,
                           (uint64_t)own.first * homes[state].elem_bytes,
                           (uint64_t)own.count * homes[state].elem_bytes},
                .source = zo_build_own_access(build, u, d, *homes[state].id,
                                              homes[state].elem_bytes, ZO_READ),
            }));
    }
    return ZO_OK;
}

/* at: target, source.  One part of args[0] bytes. */
static enum zo_status run_copy(const struct zo_op_call *call)
{
    const int64_t first = call->part * PART_BYTES;

    memcpy((char *)call->at[0] + first, (const char *)call->at[1] + first,
           (size_t)zo_min_i64(PART_BYTES, call->op->args[0] - first));
    return ZO_OK;
}

static enum zo_status copy_on_host(const struct zo_lister *lister, int u,
                                   uint64_t bytes, zo_buffer_id home,
                                   zo_buffer_id copy)
{
    const struct zo_op op = {
        .name = "state copied",
        .run = run_copy,
        .args = {(int64_t)bytes},
        .unit = u,
        .micro = -1,
        .priority = ZO_PRIORITY_COPY,
        .parts = (int)zo_div_ceil((int64_t)bytes, PART_BYTES),
    };

    return zo_lister_cpu(lister, &op,
                         (const struct zo_access[]){{copy, ZO_WRITE, 0, bytes},
                                                    {home, ZO_READ, 0, bytes}},
                         2);
}

static enum zo_status copy_unit(const struct zo_lister *lister, int u)
{
    struct zo_build *build = lister->build;
    const struct zo_build_options *options = &build->options;
    const int64_t elems = options->units[u].elems;
    struct state homes[STATES_MAX], copies[STATES_MAX];
    const int count = list_states(options, zo_build_unit(build, u, 0), homes);

    (void)list_states(options, &build->copies[u], copies);
    for (int i = 0; i < count; i++) {
        const zo_buffer_id home = *homes[i].id, copy = *copies[i].id;

        switch (build->program.buffers[home].tier) {
        case ZO_TIER_GPU:
            ZO_TRY(copy_from_devices(lister, u, i, copy));
            break;
        case ZO_TIER_NVME:
            ZO_TRY(zo_lister_load(lister, &(struct zo_load){
                                              .name = "state copied",
                                              .unit = u,
                                              .priority = ZO_PRIORITY_COPY,
                                              .elem_bytes = homes[i].elem_bytes,
                                              .target = copy,
                                              .source = home,
                                          }));
            break;
        case ZO_TIER_CPU:
        case ZO_TIER_PAGEABLE:
            ZO_TRY(copy_on_host(
                lister, u, (uint64_t)elems * homes[i].elem_bytes, home, copy));
            break;
        case ZO_TIER_COPY:
        case ZO_TIERS:
            break;
        }
    }
    return ZO_OK;
}

/* In the order in which the next updates overwrite what is copied: those that
 * wait for a decision come as forward needs them, others as backward ends. */
enum zo_status zo_lister_save(struct zo_lister *lister)
{
    struct zo_build *build = lister->build;
    const int units = build->options.unit_count;

    build->save_schedule = lister->schedule =
        zo_program_schedule(&build->program, "save");
    build->program.schedules[lister->schedule].joins = true;
    for (int i = 0; i < units; i++) {
        ZO_TRY(copy_unit(lister, build->options.decides ? i : units - 1 - i));
    }
    return ZO_OK;
}
