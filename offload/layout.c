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
 * A buffer that has its place.  Every new one looks at all of them, so they
 * lie together, with no more than what is looked at.
 */
struct placed {
    uint64_t offset, end;
    int64_t first_use, last_use;
};

/* What the layout works with: room for every buffer of the program. */
struct scratch {
    struct zo_buffer **work, **ends;
    struct placed *placed; /* sorted by offset */
};

/*
 * Puts `buffer` at the lowest offset from `base` where no placed buffer of an
 * overlapping lifetime lies.
 */
static void place_one(struct zo_buffer *buffer, uint64_t base,
                      struct placed *placed, size_t placed_count)
{
    const uint64_t bytes = stored_bytes(buffer);
    const int64_t first_use = buffer->first_use, last_use = buffer->last_use;
    uint64_t at = base;
    size_t slot;

    for (size_t i = 0; i < placed_count; i++) {
        const struct placed *other = &placed[i];

        if (other->last_use < first_use || last_use < other->first_use) {
            continue;
        }
        if (other->offset >= at + bytes) {
            break; /* sorted by offset: the gap before it is large enough */
        }
        at = other->end > at ? other->end : at;
    }
    buffer->offset = at;
    for (slot = placed_count; slot > 0 && placed[slot - 1].offset > at;
         slot--) {
        placed[slot] = placed[slot - 1];
    }
    placed[slot] = (struct placed){at, at + bytes, first_use, last_use};
}

static int by_begin(const void *left, const void *right)
{
    const struct zo_buffer *a = *(const struct zo_buffer *const *)left;
    const struct zo_buffer *b = *(const struct zo_buffer *const *)right;

    return a->first_use < b->first_use ? -1 : a->first_use > b->first_use;
}

static int by_end(const void *left, const void *right)
{
    const struct zo_buffer *a = *(const struct zo_buffer *const *)left;
    const struct zo_buffer *b = *(const struct zo_buffer *const *)right;

    return a->last_use < b->last_use ? -1 : a->last_use > b->last_use;
}

/*
 * When most bytes of the buffers are alive: as they begin, one by one, those
 * that have ended leave.  Both arrays hold all of the buffers.
 */
static struct zo_moment find_fullest(int schedule, struct zo_buffer **begins,
                                     struct zo_buffer **ends, size_t count)
{
    struct zo_moment most = {.schedule = schedule};
    uint64_t bytes = 0;
    size_t ended = 0;

    qsort(begins, count, sizeof(begins[0]), by_begin);
    qsort(ends, count, sizeof(ends[0]), by_end);
    for (size_t i = 0; i < count; i++) {
        while (ends[ended]->last_use < begins[i]->first_use) {
            bytes -= stored_bytes(ends[ended++]);
        }
        bytes += stored_bytes(begins[i]);
        if (bytes > most.bytes) {
            most.bytes = bytes;
            most.op = (size_t)begins[i]->first_use;
        }
    }
    return most;
}

static enum zo_status place_transient(struct zo_program *program, int schedule,
                                      enum zo_tier tier, int device,
                                      const struct scratch *scratch)
{
    const uint64_t base = zo_layout_persistent_bytes(program, tier, device);
    struct zo_moment moment;
    size_t count = 0;

    for (size_t i = 0; i < program->buffer_count; i++) {
        struct zo_buffer *buffer = &program->buffers[i];

        if (buffer->schedule == schedule && buffer->tier == tier &&
            buffer->device == device && buffer->last_use >= 0) {
            scratch->work[count] = buffer;
            scratch->ends[count++] = buffer;
        }
    }
    qsort(scratch->work, count, sizeof(scratch->work[0]), by_size);
    for (size_t i = 0; i < count; i++) {
        place_one(scratch->work[i], base, scratch->placed, i);
        ZO_TRY(extend_arena(program, scratch->work[i]));
    }
    moment = find_fullest(schedule, scratch->work, scratch->ends, count);
    if (moment.bytes > program->fullest[tier][device].bytes) {
        program->fullest[tier][device] = moment;
    }
    return ZO_OK;
}

static enum zo_status place_list(struct zo_program *program, int schedule,
                                 const struct scratch *scratch)
{
    for (int d = 0; d < program->device_count; d++) {
        ZO_TRY(place_transient(program, schedule, ZO_TIER_GPU, d, scratch));
    }
    ZO_TRY(place_transient(program, schedule, ZO_TIER_CPU, 0, scratch));
    ZO_TRY(place_transient(program, schedule, ZO_TIER_PAGEABLE, 0, scratch));
    return place_transient(program, schedule, ZO_TIER_NVME, 0, scratch);
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

static enum zo_status open_scratch(struct scratch *scratch, size_t count)
{
    ZO_TRY(zo_alloc(count, sizeof(scratch->work[0]), "the layout",
                    &scratch->work));
    ZO_TRY(zo_alloc(count, sizeof(scratch->ends[0]), "the layout",
                    &scratch->ends));
    return zo_alloc(count, sizeof(scratch->placed[0]), "the layout",
                    &scratch->placed);
}

static enum zo_status place_all(struct zo_program *program,
                                const struct scratch *scratch)
{
    ZO_TRY(place_persistent(program));
    for (int s = 0; s < program->schedule_count; s++) {
        ZO_TRY(place_list(program, s, scratch));
    }
    return ZO_OK;
}

enum zo_status zo_layout(struct zo_program *program)
{
    struct scratch scratch = {0};
    enum zo_status status;

    ZO_ASSERT(!program->is_laid_out);
    ZO_TRY(check_sizes(program));
    set_lifetimes(program);
    status = open_scratch(&scratch, program->buffer_count);
    if (status == ZO_OK) {
        status = place_all(program, &scratch);
    }
    program->is_laid_out = status == ZO_OK;
    zo_free(scratch.work);
    zo_free(scratch.ends);
    zo_free(scratch.placed);
    return status;
}
