#include "offload/planner.h"

#include "src/base/arith.h"

static bool lies_in(const struct zo_buffer *buffer,
                    const struct zo_plan_arena *arena)
{
    return buffer->tier == arena->tier && buffer->device == arena->device;
}

uint64_t zo_plan_stored_bytes(const struct zo_buffer *buffer)
{
    const uint64_t bytes = zo_round_up(buffer->bytes, ZO_ALIGN_BYTES);

    return buffer->has_slots ? 2 * bytes : bytes;
}

static bool lives_at(const struct zo_buffer *buffer, int schedule, size_t op)
{
    return buffer->schedule == schedule && buffer->first_use <= (int64_t)op &&
           (int64_t)op <= buffer->last_use;
}

bool zo_plan_holds(const struct zo_program *program,
                   const struct zo_plan_arena *arena, size_t index)
{
    const struct zo_buffer *buffer = &program->buffers[index];
    const struct zo_moment *moment =
        &program->fullest[arena->tier][arena->device];

    return lies_in(buffer, arena) &&
           (buffer->schedule == -1 ||
            (moment->bytes > 0 &&
             lives_at(buffer, moment->schedule, moment->op)));
}

void zo_plan_arena(const struct zo_program *program, enum zo_tier tier,
                   int device, struct zo_plan_arena *arena_out)
{
    struct zo_plan_arena arena = {.tier = tier, .device = device, .unit = -1};
    const struct zo_moment *moment = &program->fullest[tier][device];
    const int schedule = moment->bytes > 0 ? moment->schedule : -1;
    uint64_t used = 0;

    arena.total_bytes = program->arena_bytes[tier][device];
    for (size_t i = 0; i < program->buffer_count; i++) {
        const struct zo_buffer *buffer = &program->buffers[i];
        const uint64_t bytes = zo_plan_stored_bytes(buffer);

        if (zo_plan_holds(program, &arena, i)) {
            arena.purposes[buffer->purpose] += bytes;
            arena.persistent_bytes += buffer->schedule == -1 ? bytes : 0;
            used += bytes;
        }
    }
    arena.unused_bytes = arena.total_bytes - used;
    if (schedule >= 0) {
        arena.schedule = program->schedules[schedule].name;
        arena.op = program->schedules[schedule].ops[moment->op].name;
        arena.unit = program->schedules[schedule].ops[moment->op].unit;
    }
    *arena_out = arena;
}

struct zo_plan_nvme zo_plan_nvme(const struct zo_program *program, int schedule)
{
    const struct zo_schedule *list = &program->schedules[schedule];
    struct zo_plan_nvme sum = {0, 0};

    for (size_t a = 0; a < list->access_count; a++) {
        const struct zo_access *access = &list->accesses[a];

        if (program->buffers[access->buffer].tier == ZO_TIER_NVME) {
            sum.read_bytes += access->mode != ZO_WRITE ? access->bytes : 0;
            sum.written_bytes += access->mode != ZO_READ ? access->bytes : 0;
        }
    }
    return sum;
}

double zo_plan_flops(const struct zo_program *program, int schedule)
{
    const struct zo_schedule *list = &program->schedules[schedule];
    double flops = 0.0;

    for (size_t i = 0; i < list->op_count; i++) {
        flops += list->ops[i].flops;
    }
    return flops;
}
