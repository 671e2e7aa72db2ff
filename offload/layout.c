#include "offload/layout.h"

#include <stdlib.h>
#include <string.h>

#include "offload/gaps.h"
#include "src/base/arith.h"
#include "src/base/memory.h"

#define ARENA_BYTES_MAX ((uint64_t)1 << 62)

uint64_t zo_layout_stored_bytes(const struct zo_buffer *buffer)
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
    const uint64_t end = buffer->offset + zo_layout_stored_bytes(buffer);

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

/* Arenas of all lists: a transient buffer lies in one of them. */
#define PLACES_MAX (ZO_SCHEDULES_MAX * ZO_TIERS * ZO_DEVICES_MAX)

static size_t place_of(const struct zo_buffer *buffer)
{
    return ((size_t)buffer->schedule * ZO_TIERS + buffer->tier) *
               ZO_DEVICES_MAX +
           (size_t)buffer->device;
}

static bool is_placed(const struct zo_buffer *buffer)
{
    return buffer->schedule >= 0 && buffer->last_use >= 0;
}

/* A buffer that is to be placed. */
struct item {
    uint64_t bytes;
    size_t buffer;
};

/* Of an operation, for the buffers of one arena. */
struct moment {
    uint64_t more_bytes; /* alive than before it; modulo 2^64 */
    /* Moments that matter, up to it: where a buffer begins.  Of two buffers
     * that are alive together the later one begins when both are. */
    uint32_t begins;
};

/* What the layout works with. */
struct scratch {
    struct item *items;       /* by place, then largest first */
    size_t first[PLACES_MAX]; /* of items, [place] */
    size_t behind[PLACES_MAX];
    struct moment *moments; /* as many as the longest list has, and one */
    struct zo_gaps *gaps;
};

static void collect_items(const struct zo_program *program,
                          struct scratch *scratch)
{
    size_t count = 0;

    for (size_t i = 0; i < program->buffer_count; i++) {
        if (is_placed(&program->buffers[i])) {
            scratch->behind[place_of(&program->buffers[i])]++;
        }
    }
    for (size_t place = 0; place < PLACES_MAX; place++) {
        const size_t more = scratch->behind[place];

        scratch->first[place] = scratch->behind[place] = count;
        count += more;
    }
    for (size_t i = 0; i < program->buffer_count; i++) {
        const struct zo_buffer *buffer = &program->buffers[i];

        if (is_placed(buffer)) {
            scratch->items[scratch->behind[place_of(buffer)]++] =
                (struct item){zo_layout_stored_bytes(buffer), i};
        }
    }
}

/* Largest first; ties in the order of creation, so that runs agree. */
static int by_size(const void *left, const void *right)
{
    const struct item *a = left, *b = right;

    if (a->bytes != b->bytes) {
        return a->bytes > b->bytes ? -1 : 1;
    }
    return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

/* Returns how many moments matter. */
static size_t number_moments(const struct zo_program *program,
                             const struct item *items, size_t item_count,
                             struct moment *moments, size_t op_count)
{
    uint32_t begins = 0;

    memset(moments, 0, (op_count + 1) * sizeof(moments[0]));
    for (size_t i = 0; i < item_count; i++) {
        const struct zo_buffer *buffer = &program->buffers[items[i].buffer];

        moments[buffer->first_use].begins = 1;
        moments[buffer->first_use].more_bytes += items[i].bytes;
        moments[buffer->last_use + 1].more_bytes -= items[i].bytes;
    }
    for (size_t op = 0; op < op_count; op++) {
        begins += moments[op].begins;
        moments[op].begins = begins;
    }
    return begins;
}

/* When most bytes are alive. */
static struct zo_moment find_fullest(int schedule, const struct moment *moments,
                                     size_t op_count)
{
    struct zo_moment most = {.schedule = schedule};
    uint64_t bytes = 0;

    for (size_t op = 0; op < op_count; op++) {
        bytes += moments[op].more_bytes;
        if (bytes > most.bytes) {
            most.bytes = bytes;
            most.op = op;
        }
    }
    return most;
}

/* Puts each buffer, largest first, at the lowest offset from `base` where no
 * placed buffer of an overlapping lifetime lies. */
static enum zo_status place_items(struct zo_program *program,
                                  const struct scratch *scratch,
                                  const struct item *items, size_t count,
                                  uint64_t base)
{
    for (size_t i = 0; i < count; i++) {
        struct zo_buffer *buffer = &program->buffers[items[i].buffer];
        const struct zo_gaps_span span = {
            scratch->moments[buffer->first_use].begins - 1,
            scratch->moments[buffer->last_use].begins - 1,
        };

        buffer->offset =
            zo_gaps_find(scratch->gaps, span, base, items[i].bytes);
        ZO_TRY(extend_arena(program, buffer));
        ZO_TRY(
            zo_gaps_take(scratch->gaps, span, buffer->offset, items[i].bytes));
    }
    return ZO_OK;
}

static enum zo_status place_transient(struct zo_program *program, int schedule,
                                      enum zo_tier tier, int device,
                                      const struct scratch *scratch,
                                      uint64_t base)
{
    const size_t place = place_of(&(struct zo_buffer){
        .schedule = schedule, .tier = tier, .device = device});
    struct item *items = &scratch->items[scratch->first[place]];
    const size_t count = scratch->behind[place] - scratch->first[place];
    const size_t ops = program->schedules[schedule].op_count;
    struct zo_moment moment;

    if (count == 0) {
        return ZO_OK;
    }
    qsort(items, count, sizeof(items[0]), by_size);
    zo_gaps_clear(scratch->gaps,
                  number_moments(program, items, count, scratch->moments, ops));
    ZO_TRY(place_items(program, scratch, items, count, base));
    moment = find_fullest(schedule, scratch->moments, ops);
    if (moment.bytes > program->fullest[tier][device].bytes) {
        program->fullest[tier][device] = moment;
    }
    return ZO_OK;
}

uint64_t zo_layout_persistent_bytes(const struct zo_program *program,
                                    enum zo_tier tier, int device)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < program->buffer_count; i++) {
        const struct zo_buffer *buffer = &program->buffers[i];

        if (buffer->schedule == -1 && buffer->tier == tier &&
            buffer->device == device) {
            bytes += zo_layout_stored_bytes(buffer);
        }
    }
    return bytes;
}

static enum zo_status open_scratch(const struct zo_program *program,
                                   struct scratch *scratch)
{
    size_t ops_max = 0;

    for (int s = 0; s < program->schedule_count; s++) {
        const size_t ops = program->schedules[s].op_count;

        ops_max = ops > ops_max ? ops : ops_max;
    }
    ZO_TRY(zo_alloc(program->buffer_count, sizeof(scratch->items[0]),
                    "the layout", &scratch->items));
    ZO_TRY(zo_alloc(ops_max + 1, sizeof(scratch->moments[0]), "the layout",
                    &scratch->moments));
    return zo_gaps_open(zo_min_i64(ops_max, program->buffer_count),
                        &scratch->gaps);
}

static enum zo_status place_all(struct zo_program *program,
                                struct scratch *scratch)
{
    uint64_t bases[ZO_TIERS][ZO_DEVICES_MAX];

    ZO_TRY(place_persistent(program));
    memcpy(bases, program->arena_bytes, sizeof(bases));
    collect_items(program, scratch);
    for (int s = 0; s < program->schedule_count; s++) {
        for (int tier = 0; tier < ZO_TIERS; tier++) {
            for (int d = 0; d < program->device_count; d++) {
                ZO_TRY(place_transient(program, s, (enum zo_tier)tier, d,
                                       scratch, bases[tier][d]));
            }
        }
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
    status = open_scratch(program, &scratch);
    if (status == ZO_OK) {
        status = place_all(program, &scratch);
    }
    program->is_laid_out = status == ZO_OK;
    zo_free(scratch.items);
    zo_free(scratch.moments);
    zo_gaps_close(scratch.gaps);
    return status;
}
