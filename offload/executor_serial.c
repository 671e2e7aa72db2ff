/*
 * The meaning of a schedule: each operation alone, in list order.  Row 5.
 *
 * With poison, an operation finds only the ranges that it declared: all other
 * bytes of every arena are 0xff (a NaN of every number type, -1 of every
 * count), also those that it declared to write without reading.  Behind it
 * they must be 0xff still, and what it declared only to read must be as it
 * was.  So neither an undeclared write nor an undeclared read goes unseen:
 * the first fails here, the second changes results.  NVMe is reached by
 * declared ranges alone, so its arena needs no poison; nor does the tier of
 * copies, which nothing here reads.
 */
#include <string.h>

#include "offload/executor_internal.h"
#include "src/base/clock.h"
#include "src/base/memory.h"

#define POISON 0xff

struct arena {
    enum zo_tier tier;
    int device;
    unsigned char *bytes, *shadow;
    uint64_t size_bytes;
};

/* One a device, and the two of the host. */
static int arena_count(const struct zo_executor *executor)
{
    return executor->machine->device_count + 2;
}

static struct arena arena_at(struct zo_executor *executor, int index)
{
    const int devices = executor->machine->device_count;
    const enum zo_tier tier = index < devices    ? ZO_TIER_GPU
                              : index == devices ? ZO_TIER_CPU
                                                 : ZO_TIER_PAGEABLE;
    const int device = index < devices ? index : 0;

    return (struct arena){tier, device, executor->arenas[tier][device],
                          executor->shadows[tier][device],
                          executor->program->arena_bytes[tier][device]};
}

enum zo_status zo_executor_open_shadows(struct zo_executor *executor)
{
    for (int i = 0; i < arena_count(executor); i++) {
        const struct arena arena = arena_at(executor, i);

        ZO_TRY(zo_pages_alloc(arena.size_bytes, "the poison mode's copy",
                              &executor->shadows[arena.tier][arena.device]));
    }
    return ZO_OK;
}

void zo_executor_close_shadows(struct zo_executor *executor)
{
    for (int i = 0; i < arena_count(executor); i++) {
        const struct arena arena = arena_at(executor, i);

        zo_pages_free(arena.shadow, arena.size_bytes);
    }
}

/* The nth access of an operation, if it lies in the arena and has bytes. */
static bool range_in(const struct zo_executor *executor,
                     const struct zo_instance *instance, uint32_t n,
                     const struct arena *arena, struct zo_range *range_out)
{
    const struct zo_op *op = zo_instance_op(executor, instance);
    const struct zo_access *access =
        &executor->program->schedules[instance->schedule]
             .accesses[op->access_first + n];

    *range_out = zo_access_range(executor->program, access, instance->slot);
    return range_out->tier == arena->tier &&
           range_out->device == arena->device &&
           range_out->end > range_out->begin;
}

static void poison_arena(struct zo_executor *executor,
                         const struct zo_instance *instance,
                         const struct arena *arena)
{
    const struct zo_op *op = zo_instance_op(executor, instance);
    struct zo_range range;

    memcpy(arena->shadow, arena->bytes, arena->size_bytes);
    memset(arena->bytes, POISON, arena->size_bytes);
    for (uint32_t a = 0; a < op->access_count; a++) {
        if (range_in(executor, instance, a, arena, &range) &&
            range.mode != ZO_WRITE) {
            memcpy(arena->bytes + range.begin, arena->shadow + range.begin,
                   range.end - range.begin);
        }
    }
}

/* Bytes of poison at the arena's start: all of them, or 0 to be looked at. */
static uint64_t poison_bytes(const struct arena *arena)
{
    const unsigned char *bytes = arena->bytes;
    const uint64_t size_bytes = arena->size_bytes;

    /* Every byte as the one before it: as fast as memory. */
    return size_bytes > 0 && bytes[0] == POISON &&
                   memcmp(bytes, bytes + 1, size_bytes - 1) == 0
               ? size_bytes
               : 0;
}

/* Takes what was declared out of the arena; all that is left is poison. */
static enum zo_status collect_arena(struct zo_executor *executor,
                                    const struct zo_instance *instance,
                                    const struct arena *arena)
{
    const struct zo_op *op = zo_instance_op(executor, instance);
    struct zo_range range;

    for (uint32_t a = 0; a < op->access_count; a++) {
        if (range_in(executor, instance, a, arena, &range) &&
            range.mode != ZO_READ) {
            memcpy(arena->shadow + range.begin, arena->bytes + range.begin,
                   range.end - range.begin);
        }
    }
    for (uint32_t a = 0; a < op->access_count; a++) {
        if (!range_in(executor, instance, a, arena, &range)) {
            continue;
        }
        /* What was written is equal by now; what was only read must be. */
        if (memcmp(arena->bytes + range.begin, arena->shadow + range.begin,
                   range.end - range.begin) != 0) {
            return ZO_FAIL(ZO_E_ARG,
                           "%s (unit %d) wrote bytes that it declared only "
                           "to read: access %u",
                           op->name, op->unit, a);
        }
    }
    for (uint32_t a = 0; a < op->access_count; a++) {
        if (range_in(executor, instance, a, arena, &range)) {
            memset(arena->bytes + range.begin, POISON, range.end - range.begin);
        }
    }
    for (uint64_t i = poison_bytes(arena); i < arena->size_bytes; i++) {
        if (arena->bytes[i] != POISON) {
            return ZO_FAIL(ZO_E_ARG,
                           "%s (unit %d) wrote byte %llu of %s memory %d, "
                           "which it did not declare",
                           op->name, op->unit, (unsigned long long)i,
                           zo_tier_text(arena->tier), arena->device);
        }
    }
    memcpy(arena->bytes, arena->shadow, arena->size_bytes);
    return ZO_OK;
}

static void add_time(struct zo_executor *executor, const struct zo_op *op,
                     int64_t busy_ns)
{
    struct zo_op_time *time = executor->op_times;
    struct zo_op_time *end = time + executor->op_time_count;

    while (time < end && time->name != op->name) {
        time++;
    }
    if (time == end) {
        ZO_ASSERT(executor->op_time_count < ZO_OP_NAMES_MAX);
        executor->op_time_count++;
        *time = (struct zo_op_time){.name = op->name, .engine = op->engine};
    }
    time->count++;
    time->busy_ns += (uint64_t)busy_ns;
    time->flops += op->flops;
}

const struct zo_op_time *
zo_executor_op_times(const struct zo_executor *executor, size_t *count_out)
{
    *count_out = executor->op_time_count;
    return executor->op_times;
}

void zo_executor_reset_op_times(struct zo_executor *executor)
{
    executor->op_time_count = 0;
}

static enum zo_status run_alone(struct zo_executor *executor,
                                const struct zo_instance *instance)
{
    const struct zo_op *op = zo_instance_op(executor, instance);
    const struct zo_lane *lane =
        instance->lane == ZO_NO_LANE ? NULL : &executor->lanes[instance->lane];
    void *at[ZO_OP_ACCESSES_MAX];
    uint64_t moved_bytes = 0;
    struct zo_op_call call = {.op = op,
                              .machine = executor->machine,
                              .at = at,
                              .streams = lane == NULL ? NULL : lane->streams,
                              .moved_bytes = &moved_bytes};
    int64_t started_ns, ended_ns;

    ZO_TRY(zo_executor_count(executor, instance));
    zo_executor_resolve(executor, instance, at);
    started_ns = zo_clock_ns();
    if (op->engine == ZO_ENGINE_NVME) {
        ZO_TRY(zo_executor_nvme_alone(executor, instance));
    } else {
        for (call.part = 0; call.part < op->parts; call.part++) {
            ZO_TRY(op->run(&call));
        }
    }
    zo_executor_moved(executor, instance, moved_bytes);
    for (int s = 0; lane != NULL && s < lane->stream_count; s++) {
        ZO_TRY(executor->machine->device_ops->stream_sync(lane->streams[s]));
    }
    ended_ns = zo_clock_ns();
    zo_times_alone(executor, instance, started_ns, ended_ns);
    if (executor->options.times_ops) {
        add_time(executor, op, ended_ns - started_ns);
    }
    return ZO_OK;
}

enum zo_status zo_executor_run_serial(struct zo_executor *executor,
                                      int schedule, int slot)
{
    const struct zo_schedule *list = &executor->program->schedules[schedule];
    const int arenas = executor->options.poisons ? arena_count(executor) : 0;

    for (size_t i = 0; i < list->op_count; i++) {
        const struct zo_instance instance = {
            .schedule = schedule,
            .op = (uint32_t)i,
            .slot = slot,
            .lane = zo_lane_of(executor->program, &list->ops[i]),
        };

        for (int a = 0; a < arenas; a++) {
            const struct arena arena = arena_at(executor, a);

            poison_arena(executor, &instance, &arena);
        }
        ZO_TRY(run_alone(executor, &instance));
        for (int a = 0; a < arenas; a++) {
            const struct arena arena = arena_at(executor, a);

            ZO_TRY(collect_arena(executor, &instance, &arena));
        }
    }
    return ZO_OK;
}
