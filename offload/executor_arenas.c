/*
 * The arenas of an executor: one a tier and device, touched and cleared
 * before the first list.  Row 5.
 */
#include <string.h>

#include "offload/executor_internal.h"
#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/base/system.h"
#include "src/base/text.h"

#define CLEAR_BYTES INT64_C(8388608) /* of one index of the clearing loop */
#define GIB_BYTES   16

/* What the arenas take of host memory; those of host devices lie there too. */
static uint64_t host_bytes(const struct zo_executor *executor)
{
    const struct zo_program *program = executor->program;
    uint64_t bytes = program->arena_bytes[ZO_TIER_CPU][0] +
                     program->arena_bytes[ZO_TIER_PAGEABLE][0];

    for (int d = 0; d < program->device_count; d++) {
        if (executor->machine->device_ops == &zo_device_host) {
            bytes += program->arena_bytes[ZO_TIER_GPU][d];
        }
    }
    return bytes;
}

/* Memory is handed out at its first touch; too late to say no. */
static enum zo_status check_room(const struct zo_executor *executor)
{
    const char *root = executor->options.system_root;
    const uint64_t wanted = host_bytes(executor);
    char wanted_text[GIB_BYTES], room_text[GIB_BYTES];
    struct zo_system system;
    uint64_t room;

    zo_system_read(root != NULL ? root : "", &system);
    room = zo_system_room(&system);
    if (wanted <= room) {
        return ZO_OK;
    }
    return ZO_FAIL(
        ZO_E_FIT,
        "the run takes %s (%llu bytes) of host memory, and this process may "
        "take %s (%llu bytes) now, by %s; free some, or lower --host-memory "
        "so that the plan takes less",
        zo_text_gib(wanted_text, sizeof(wanted_text), wanted),
        (unsigned long long)wanted,
        zo_text_gib(room_text, sizeof(room_text), room),
        (unsigned long long)room,
        room == system.group_free_bytes ? "the limit of its control group"
                                        : "MemAvailable");
}

struct clearing {
    char *memory;
    int64_t size_bytes;
};

static void clear_part(void *work, int64_t index)
{
    const struct clearing *clearing = work;
    const int64_t first = index * CLEAR_BYTES;

    memset(clearing->memory + first, 0,
           (size_t)zo_min_i64(CLEAR_BYTES, clearing->size_bytes - first));
}

static void clear(struct zo_pool *pool, void *memory, uint64_t size_bytes)
{
    struct clearing clearing = {memory, (int64_t)size_bytes};
    const int64_t parts = zo_div_ceil(clearing.size_bytes, CLEAR_BYTES);

    if (pool != NULL) {
        zo_pool_run(pool, clear_part, &clearing, parts);
        return;
    }
    for (int64_t i = 0; i < parts; i++) {
        clear_part(&clearing, i);
    }
}

static enum zo_status open_device_arena(struct zo_executor *executor,
                                        int device)
{
    const struct zo_machine *machine = executor->machine;
    const uint64_t bytes = executor->program->arena_bytes[ZO_TIER_GPU][device];
    void **arena = &executor->arenas[ZO_TIER_GPU][device];

    ZO_TRY(machine->device_ops->mem_alloc(machine->devices[device],
                                          ZO_MEM_DEVICE, "the device arena",
                                          bytes, arena));
    ZO_TRY(machine->device_ops->fill(executor->copy_streams[device], *arena, 0,
                                     bytes));
    return machine->device_ops->stream_sync(executor->copy_streams[device]);
}

/* ---- places -------------------------------------------------------------- */

/* An arena of the host, to be placed. */
struct placing {
    struct zo_executor *executor;
    enum zo_tier tier;
};

static void place_access(const struct placing *placing,
                         const struct zo_access *access, char *memory)
{
    struct zo_executor *executor = placing->executor;
    const struct zo_program *program = executor->program;
    const struct zo_buffer *buffer = &program->buffers[access->buffer];
    const uint64_t devices = (uint64_t)program->device_count;

    for (uint64_t d = 0; buffer->tier == placing->tier && d < devices; d++) {
        const uint64_t begin = access->bytes * d / devices;
        const uint64_t end = access->bytes * (d + 1) / devices;
        const int error = zo_numa_place(
            executor->numa, memory + buffer->offset + access->offset + begin,
            end - begin, (int)d);

        executor->numa_refusal = error != 0 ? error : executor->numa_refusal;
    }
}

/* What devices have a share of is near them; the rest is spread. */
static void place(void *context, void *memory)
{
    const struct placing *placing = context;
    const struct zo_program *program = placing->executor->program;

    for (int s = 0; s < program->schedule_count; s++) {
        const struct zo_schedule *list = &program->schedules[s];

        for (size_t i = 0; i < list->op_count; i++) {
            const struct zo_op *op = &list->ops[i];

            for (uint32_t a = 0; op->is_shared && a < op->access_count; a++) {
                place_access(placing, &list->accesses[op->access_first + a],
                             memory);
            }
        }
    }
}

static enum zo_status open_pinned_arena(struct zo_executor *executor)
{
    static const char name[] = "the host arena";
    const struct zo_machine *machine = executor->machine;
    const struct zo_device_ops *ops = machine->device_ops;
    const uint64_t bytes = executor->program->arena_bytes[ZO_TIER_CPU][0];
    void **arena = &executor->arenas[ZO_TIER_CPU][0];
    struct placing placing = {executor, ZO_TIER_CPU};

    ZO_TRY(executor->numa != NULL
               ? ops->mem_alloc_placed(machine->devices[0], name, bytes, place,
                                       &placing, arena)
               : ops->mem_alloc(machine->devices[0], ZO_MEM_PINNED, name, bytes,
                                arena));
    clear(executor->options.pool, *arena, bytes);
    return ZO_OK;
}

static enum zo_status open_pageable_arena(struct zo_executor *executor)
{
    const uint64_t bytes = executor->program->arena_bytes[ZO_TIER_PAGEABLE][0];
    void **arena = &executor->arenas[ZO_TIER_PAGEABLE][0];
    struct placing placing = {executor, ZO_TIER_PAGEABLE};

    ZO_TRY(zo_huge_alloc(bytes, "the pageable host arena", arena));
    if (executor->numa != NULL) {
        place(&placing, *arena);
    }
    clear(executor->options.pool, *arena, bytes);
    return ZO_OK;
}

enum zo_status zo_executor_open_arenas(struct zo_executor *executor)
{
    const struct zo_machine *machine = executor->machine;

    ZO_TRY(check_room(executor));
    for (int device = 0; device < machine->device_count; device++) {
        ZO_TRY(open_device_arena(executor, device));
    }
    ZO_TRY(open_pinned_arena(executor));
    return open_pageable_arena(executor);
}

/* Whether anything but the CPU engine copies to the tier of copies. */
static bool needs_locked_copy(const struct zo_program *program)
{
    for (int s = 0; s < program->schedule_count; s++) {
        const struct zo_schedule *list = &program->schedules[s];

        for (size_t i = 0; i < list->op_count; i++) {
            const struct zo_op *op = &list->ops[i];

            for (uint32_t a = 0; a < op->access_count; a++) {
                const zo_buffer_id id =
                    list->accesses[op->access_first + a].buffer;

                if (op->engine != ZO_ENGINE_CPU &&
                    program->buffers[id].tier == ZO_TIER_COPY) {
                    return true;
                }
            }
        }
    }
    return false;
}

enum zo_status zo_executor_open_copy(struct zo_executor *executor,
                                     struct zo_pool *pool)
{
    const struct zo_machine *machine = executor->machine;
    const uint64_t bytes = executor->program->arena_bytes[ZO_TIER_COPY][0];
    void **arena = &executor->arenas[ZO_TIER_COPY][0];

    ZO_ASSERT(*arena == NULL);
    executor->locks_copy = needs_locked_copy(executor->program);
    ZO_TRY(executor->locks_copy
               ? machine->device_ops->mem_alloc(
                     machine->devices[0], ZO_MEM_PINNED, "a copy of the states",
                     bytes, arena)
               : zo_huge_alloc(bytes, "a copy of the states", arena));
    clear(pool, *arena, bytes);
    return ZO_OK;
}

static void close_copy(struct zo_executor *executor)
{
    const struct zo_machine *machine = executor->machine;
    const uint64_t bytes = executor->program->arena_bytes[ZO_TIER_COPY][0];
    void *arena = executor->arenas[ZO_TIER_COPY][0];

    if (executor->locks_copy) {
        machine->device_ops->mem_free(machine->devices[0], ZO_MEM_PINNED, arena,
                                      bytes);
    } else {
        zo_pages_free(arena, bytes);
    }
}

void zo_executor_close_arenas(struct zo_executor *executor)
{
    const struct zo_machine *machine = executor->machine;
    const struct zo_program *program = executor->program;

    for (int device = 0; device < machine->device_count; device++) {
        machine->device_ops->mem_free(
            machine->devices[device], ZO_MEM_DEVICE,
            executor->arenas[ZO_TIER_GPU][device],
            program->arena_bytes[ZO_TIER_GPU][device]);
    }
    machine->device_ops->mem_free(machine->devices[0], ZO_MEM_PINNED,
                                  executor->arenas[ZO_TIER_CPU][0],
                                  program->arena_bytes[ZO_TIER_CPU][0]);
    zo_pages_free(executor->arenas[ZO_TIER_PAGEABLE][0],
                  program->arena_bytes[ZO_TIER_PAGEABLE][0]);
    close_copy(executor);
}
