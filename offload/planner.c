#include "offload/planner.h"

#include "src/base/arith.h"

static bool lies_in(const struct zo_buffer *buffer,
                    const struct zo_plan_arena *arena)
{
    return buffer->tier == arena->tier && buffer->device == arena->device;
}

static uint64_t stored_bytes(const struct zo_buffer *buffer)
{
    const uint64_t bytes = zo_round_up(buffer->bytes, ZO_ALIGN_BYTES);

    return buffer->has_slots ? 2 * bytes : bytes;
}

static bool lives_at(const struct zo_buffer *buffer, int schedule, size_t op)
{
    return buffer->schedule == schedule && buffer->first_use <= (int64_t)op &&
           (int64_t)op <= buffer->last_use;
}

/* The operation of a list during which most transient bytes are alive: only
 * where a buffer begins can the sum grow. */
static uint64_t fullest(const struct zo_program *program, int schedule,
                        const struct zo_plan_arena *arena, size_t *op_out)
{
    uint64_t most = 0;

    for (size_t i = 0; i < program->buffer_count; i++) {
        const struct zo_buffer *begins = &program->buffers[i];
        const size_t op = (size_t)begins->first_use;
        uint64_t bytes = 0;

        if (begins->schedule != schedule || begins->last_use < 0 ||
            !lies_in(begins, arena)) {
            continue;
        }
        for (size_t j = 0; j < program->buffer_count; j++) {
            const struct zo_buffer *buffer = &program->buffers[j];

            if (lies_in(buffer, arena) && lives_at(buffer, schedule, op)) {
                bytes += stored_bytes(buffer);
            }
        }
        if (bytes > most) {
            most = bytes;
            *op_out = op;
        }
    }
    return most;
}

void zo_plan_arena(const struct zo_program *program, enum zo_tier tier,
                   int device, struct zo_plan_arena *arena_out)
{
    struct zo_plan_arena arena = {.tier = tier, .device = device, .unit = -1};
    uint64_t most = 0, used = 0;
    int schedule = -1;
    size_t op = 0;

    arena.total_bytes = program->arena_bytes[tier][device];
    for (int s = 0; s < program->schedule_count; s++) {
        size_t at = 0;
        const uint64_t bytes = fullest(program, s, &arena, &at);

        if (bytes > most) {
            most = bytes;
            schedule = s;
            op = at;
        }
    }
    for (size_t i = 0; i < program->buffer_count; i++) {
        const struct zo_buffer *buffer = &program->buffers[i];
        const bool persists = buffer->schedule == -1;

        if (lies_in(buffer, &arena) &&
            (persists || (schedule >= 0 && lives_at(buffer, schedule, op)))) {
            arena.purposes[buffer->purpose] += stored_bytes(buffer);
            arena.persistent_bytes += persists ? stored_bytes(buffer) : 0;
            used += stored_bytes(buffer);
        }
    }
    arena.unused_bytes = arena.total_bytes - used;
    if (schedule >= 0) {
        arena.schedule = program->schedules[schedule].name;
        arena.op = program->schedules[schedule].ops[op].name;
        arena.unit = program->schedules[schedule].ops[op].unit;
    }
    *arena_out = arena;
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
