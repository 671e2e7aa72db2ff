#include "offload/layout.h"

#include <stdlib.h>

#include "src/base/arith.h"
#include "src/base/memory.h"

#define ARENA_BYTES_MAX ((uint64_t)1 << 62)

static uint64_t stored_bytes(const struct zo_buffer *buffer)
{
    const uint64_t bytes = zo_round_up(buffer->bytes, ZO_ALIGN_BYTES);

    return buffer->has_slots ? 2 * bytes : bytes;
}

static void set_lifetimes(struct zo_program *program)
{
    for (int s = 0; s < program->schedule_count; s++) {
        const struct zo_schedule *list = &program->schedules[s];

        for (size_t i = 0; i < list->op_count; i++) {
            const struct zo_op *op = &list->ops[i];

            for (uint32_t a = 0; a < op->access_count; a++) {
                const zo_buffer_id id =
                    list->accesses[op->access_first + a].buffer;
                struct zo_buffer *buffer = &program->buffers[id];

                buffer->first_use = zo_min_i64(buffer->first_use, (int64_t)i);
                buffer->last_use = zo_max_i64(buffer->last_use, (int64_t)i);
            }
        }
    }
}

static enum zo_status fail_fit(const struct zo_buffer *buffer)
{
    return ZO_FAIL(ZO_E_FIT,
                   "%s: with its %llu bytes an arena of the %s is "
                   "beyond any machine",
                   buffer->name, (unsigned long long)buffer->bytes,
                   zo_tier_text(buffer->tier));
}

/* Sums of two numbers up to ARENA_BYTES_MAX do not overflow. */
static enum zo_status check_sizes(const struct zo_program *program)
{
    for (size_t i = 0; i < program->buffer_count; i++) {
        const struct zo_buffer *buffer = &program->buffers[i];

        if (buffer->bytes > ARENA_BYTES_MAX / (buffer->has_slots ? 2 : 1)) {
            return fail_fit(buffer);
        }
    }
    return ZO_OK;
}

/* The buffer lies at its offset: the arena reaches at least to its end. */
static enum zo_status extend_arena(struct zo_program *program,
                                   const struct zo_buffer *buffer)
{
    uint64_t *bytes = &program->arena_bytes[buffer->tier][buffer->device];
    const uint64_t end = buffer->offset + stored_bytes(buffer);

    if (end > ARENA_BYTES_MAX) {
        return fail_fit(buffer);
    }
    if (end > *bytes) {
        *bytes = end;
    }
    return ZO_OK;
}

static enum zo_status place_persistent(struct zo_program *program)
{
    for (size_t i = 0; i < program->buffer_count; i++) {
        struct zo_buffer *buffer = &program->buffers[i];

        buffer->slot_stride_bytes =
            buffer->has_slots ? zo_round_up(buffer->bytes, ZO_ALIGN_BYTES) : 0;
        if (buffer->schedule == -1) {
            buffer->offset = program->arena_bytes[buffer->tier][buffer->device];
            ZO_TRY(extend_arena(program, buffer));
        }
    }
    return ZO_OK;
}

/* Largest first; ties in the order of creation, so that runs agree. */
static int by_size(const void *left, const void *right)
{
    const struct zo_buffer *a = *(const struct zo_buffer *const *)left;
    const struct zo_buffer *b = *(const struct zo_buffer *const *)right;
    const uint64_t a_bytes = stored_bytes(a), b_bytes = stored_bytes(b);

    if (a_bytes != b_bytes) {
        return a_bytes > b_bytes ? -1 : 1;
    }
    return a < b ? -1 : a > b;
}

/*
 * Puts `buffer` at the lowest offset from `base` where no placed buffer of an
 * overlapping lifetime lies.  `placed` is sorted by offset.
 */
static void place_one(struct zo_buffer *buffer, uint64_t base,
                      struct zo_buffer **placed, size_t placed_count)
{
    const uint64_t bytes = stored_bytes(buffer);
    uint64_t at = base;
    size_t slot;

    for (size_t i = 0; i < placed_count; i++) {
        const struct zo_buffer *other = placed[i];

        if (other->last_use < buffer->first_use ||
            buffer->last_use < other->first_use) {
            continue;
        }
        if (other->offset >= at + bytes) {
            break; /* sorted by offset: the gap before it is large enough */
        }
        if (other->offset + stored_bytes(other) > at) {
            at = other->offset + stored_bytes(other);
        }
    }
    buffer->offset = at;
    for (slot = placed_count; slot > 0 && placed[slot - 1]->offset > at;
         slot--) {
        placed[slot] = placed[slot - 1];
    }
    placed[slot] = buffer;
}

static enum zo_status place_transient(struct zo_program *program, int schedule,
                                      enum zo_tier tier, int device,
                                      struct zo_buffer **work,
                                      struct zo_buffer **placed)
{
    const uint64_t base = zo_layout_persistent_bytes(program, tier, device);
    size_t count = 0;

    for (size_t i = 0; i < program->buffer_count; i++) {
        struct zo_buffer *buffer = &program->buffers[i];

        if (buffer->schedule == schedule && buffer->tier == tier &&
            buffer->device == device && buffer->last_use >= 0) {
            work[count++] = buffer;
        }
    }
    qsort(work, count, sizeof(work[0]), by_size);
    for (size_t i = 0; i < count; i++) {
        place_one(work[i], base, placed, i);
        ZO_TRY(extend_arena(program, work[i]));
    }
    return ZO_OK;
}

static enum zo_status place_list(struct zo_program *program, int schedule,
                                 struct zo_buffer **work,
                                 struct zo_buffer **placed)
{
    for (int d = 0; d < program->device_count; d++) {
        ZO_TRY(
            place_transient(program, schedule, ZO_TIER_GPU, d, work, placed));
    }
    ZO_TRY(place_transient(program, schedule, ZO_TIER_CPU, 0, work, placed));
    return place_transient(program, schedule, ZO_TIER_NVME, 0, work, placed);
}

uint64_t zo_layout_persistent_bytes(const struct zo_program *program,
                                    enum zo_tier tier, int device)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < program->buffer_count; i++) {
        const struct zo_buffer *buffer = &program->buffers[i];

        if (buffer->schedule == -1 && buffer->tier == tier &&
            buffer->device == device) {
            bytes += stored_bytes(buffer);
        }
    }
    return bytes;
}

enum zo_status zo_layout(struct zo_program *program)
{
    enum zo_status status;
    struct zo_buffer **work = NULL, **placed = NULL;

    ZO_ASSERT(!program->is_laid_out);
    ZO_TRY(check_sizes(program));
    ZO_TRY(
        zo_alloc(program->buffer_count, sizeof(work[0]), "the layout", &work));
    ZO_TRY_GOTO(free_work, zo_alloc(program->buffer_count, sizeof(placed[0]),
                                    "the layout", &placed));
    set_lifetimes(program);
    ZO_TRY_GOTO(free_placed, place_persistent(program));
    for (int s = 0; s < program->schedule_count; s++) {
        ZO_TRY_GOTO(free_placed, place_list(program, s, work, placed));
    }
    program->is_laid_out = true;

free_placed:
    zo_free(placed);
free_work:
    zo_free(work);
    return status;
}
