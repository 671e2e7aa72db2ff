/*
 * The layout, against brute force: no two buffers that are alive at the same
 * time share a byte, whatever the program.
 */
#include <stdbool.h>
#include <string.h>

#include "offload/layout.h"
#include "offload/planner.h"
#include "src/base/arith.h"
#include "src/base/memory.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

/* ---- small programs by hand ---------------------------------------------- */

static zo_buffer_id add_buffer(struct zo_program *program, const char *name,
                               int schedule, uint64_t bytes, bool has_slots)
{
    const struct zo_buffer buffer = {.name = name,
                                     .tier = ZO_TIER_GPU,
                                     .unit = -1,
                                     .schedule = schedule,
                                     .bytes = bytes,
                                     .has_slots = has_slots};

    return help_buffer(program, &buffer);
}

/* An operation that touches the first bytes of two buffers. */
static void add_op(struct zo_program *program, int schedule, zo_buffer_id a,
                   zo_buffer_id b)
{
    const struct zo_op op = {.name = "op", .engine = ZO_ENGINE_COMPUTE};
    const struct zo_access accesses[] = {{a, ZO_READ, 0, 1},
                                         {b, ZO_WRITE, 0, 1}};

    if (zo_schedule_add(program, schedule, &op, accesses, 2) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
}

/* A chain a -> b -> c -> d: a and c, b and d may share, neighbours not. */
static void test_reuse(void)
{
    struct zo_program program;
    zo_buffer_id ids[4];
    int list;

    zo_program_init(&program, 1);
    list = zo_program_schedule(&program, "list");
    for (int i = 0; i < 4; i++) {
        ids[i] = add_buffer(&program, "buffer", list, 1024, false);
    }
    for (int i = 0; i < 3; i++) {
        add_op(&program, list, ids[i], ids[i + 1]);
    }
    TAP_CHECK_INT(zo_layout(&program), ZO_OK);
    TAP_CHECK_INT(program.arena_bytes[ZO_TIER_GPU][0], 2048);
    TAP_CHECK_INT(program.buffers[ids[0]].offset,
                  program.buffers[ids[2]].offset);
    TAP_CHECK_INT(program.buffers[ids[1]].offset,
                  program.buffers[ids[3]].offset);
    TAP_CHECK_INT(program.buffers[ids[1]].first_use, 0);
    TAP_CHECK_INT(program.buffers[ids[1]].last_use, 1);
    zo_program_fini(&program);
}

/* Lists come one after another: their transient buffers share. */
static void test_lists_share(void)
{
    struct zo_program program;
    zo_buffer_id kept, ids[2];

    zo_program_init(&program, 1);
    kept = add_buffer(&program, "kept", -1, 300, false);
    for (int i = 0; i < 2; i++) {
        const int list = zo_program_schedule(&program, "list");

        ids[i] = add_buffer(&program, "buffer", list, 1024, false);
        add_op(&program, list, kept, ids[i]);
    }
    TAP_CHECK_INT(zo_layout(&program), ZO_OK);
    TAP_CHECK_INT(program.buffers[kept].offset, 0);
    TAP_CHECK_INT(program.buffers[ids[0]].offset, 512);
    TAP_CHECK_INT(program.buffers[ids[1]].offset, 512);
    TAP_CHECK_INT(program.arena_bytes[ZO_TIER_GPU][0], 512 + 1024);
    TAP_CHECK_INT(zo_layout_persistent_bytes(&program, ZO_TIER_GPU, 0), 512);
    zo_program_fini(&program);
}

static void test_slots(void)
{
    struct zo_program program;
    zo_buffer_id a, b, c;
    int list;

    zo_program_init(&program, 1);
    a = add_buffer(&program, "a", -1, 100, true);
    b = add_buffer(&program, "b", -1, 100, false);
    list = zo_program_schedule(&program, "list");
    c = add_buffer(&program, "c", list, 257, true);
    add_op(&program, list, a, c);
    TAP_CHECK_INT(zo_layout(&program), ZO_OK);
    TAP_CHECK_INT(program.buffers[a].offset, 0);
    TAP_CHECK_INT(program.buffers[a].slot_stride_bytes, 256);
    TAP_CHECK_INT(program.buffers[b].offset, 512);
    TAP_CHECK_INT(program.buffers[b].slot_stride_bytes, 0);
    TAP_CHECK_INT(program.buffers[c].offset, 768);
    TAP_CHECK_INT(program.buffers[c].slot_stride_bytes, 512);
    TAP_CHECK_INT(program.arena_bytes[ZO_TIER_GPU][0], 768 + 1024);
    zo_program_fini(&program);
}

static void test_unused(void)
{
    struct zo_program program;
    int list;

    zo_program_init(&program, 1);
    list = zo_program_schedule(&program, "list");
    (void)add_buffer(&program, "never used", list, 1 << 20, false);
    TAP_CHECK_INT(zo_layout(&program), ZO_OK);
    TAP_CHECK_INT(program.arena_bytes[ZO_TIER_GPU][0], 0);
    zo_program_fini(&program);
}

/* ---- sizes beyond any machine -------------------------------------------- */

static enum zo_status layout_of(int schedule, uint64_t bytes, int count)
{
    struct zo_program program;
    enum zo_status status;
    zo_buffer_id first = 0;
    int list;

    zo_program_init(&program, 1);
    list = zo_program_schedule(&program, "list");
    for (int i = 0; i < count; i++) {
        const zo_buffer_id id =
            add_buffer(&program, "giant", schedule, bytes, true);

        first = i == 0 ? id : first;
        add_op(&program, list, first, id); /* all are alive at the end */
    }
    add_op(&program, list, first, first);
    for (int i = 0; i < count; i++) {
        add_op(&program, list, first, (zo_buffer_id)i);
    }
    status = zo_layout(&program);
    if (status == ZO_OK && program.arena_bytes[ZO_TIER_GPU][0] > (uint64_t)1
                                                                     << 62) {
        tap_fail(__FILE__, __LINE__, "an arena of 2^62 bytes and more");
    }
    zo_program_fini(&program);
    return status;
}

static void test_too_large(void)
{
    for (int schedule = -1; schedule < 1; schedule++) {
        TAP_CHECK_INT(layout_of(schedule, UINT64_MAX, 1), ZO_E_FIT);
        TAP_CHECK(strstr(zo_err_last()->text, "giant") != NULL);
        TAP_CHECK_INT(layout_of(schedule, UINT64_MAX - 255, 1), ZO_E_FIT);
        TAP_CHECK_INT(layout_of(schedule, (uint64_t)1 << 62, 1), ZO_E_FIT);
        /* Two copies each: the arena is full to the last byte. */
        TAP_CHECK_INT(layout_of(schedule, (uint64_t)1 << 59, 4), ZO_OK);
        TAP_CHECK_INT(layout_of(schedule, (uint64_t)1 << 59, 5), ZO_E_FIT);
        /* Sums that come out small again after 2^64. */
        TAP_CHECK_INT(layout_of(schedule, (uint64_t)1 << 60, 8), ZO_E_FIT);
        TAP_CHECK_INT(layout_of(schedule, (uint64_t)1 << 60, 9), ZO_E_FIT);
        TAP_CHECK(strstr(zo_err_last()->text, "giant") != NULL);
    }
}

/* ---- random programs ----------------------------------------------------- */

static uint64_t stored_bytes(const struct zo_buffer *buffer)
{
    return (buffer->has_slots ? 2 : 1) *
           zo_round_up(buffer->bytes, ZO_ALIGN_BYTES);
}

static bool same_arena(const struct zo_buffer *a, const struct zo_buffer *b)
{
    return a->tier == b->tier && a->device == b->device;
}

static bool touches(const struct zo_schedule *list, size_t op, zo_buffer_id id)
{
    for (uint32_t a = 0; a < list->ops[op].access_count; a++) {
        if (list->accesses[list->ops[op].access_first + a].buffer == id) {
            return true;
        }
    }
    return false;
}

/* From its first operation to its last, found anew: begin > end if unused. */
static void lifetime_of(const struct zo_program *program, zo_buffer_id id,
                        int64_t *begin_out, int64_t *end_out)
{
    const struct zo_schedule *list =
        &program->schedules[program->buffers[id].schedule];

    *begin_out = INT64_MAX;
    *end_out = -1;
    for (size_t i = 0; i < list->op_count; i++) {
        if (touches(list, i, id)) {
            *begin_out = zo_min_i64(*begin_out, (int64_t)i);
            *end_out = (int64_t)i;
        }
    }
}

static bool alive_together(const struct zo_program *program, zo_buffer_id a,
                           zo_buffer_id b)
{
    const int a_list = program->buffers[a].schedule;
    const int b_list = program->buffers[b].schedule;
    int64_t a_begin, a_end, b_begin, b_end;

    if (a_list == -1 || b_list == -1) {
        return true; /* always, however little the other one lives */
    }
    if (a_list != b_list) {
        return false;
    }
    lifetime_of(program, a, &a_begin, &a_end);
    lifetime_of(program, b, &b_begin, &b_end);
    return a_begin <= b_end && b_begin <= a_end;
}

static bool is_used(const struct zo_program *program, zo_buffer_id id)
{
    int64_t begin, end;

    if (program->buffers[id].schedule == -1) {
        return true;
    }
    lifetime_of(program, id, &begin, &end);
    return end >= 0;
}

static void check_buffer(const struct zo_program *program, zo_buffer_id id)
{
    const struct zo_buffer *buffer = &program->buffers[id];
    const uint64_t end = buffer->offset + stored_bytes(buffer);
    const uint64_t kept =
        zo_layout_persistent_bytes(program, buffer->tier, buffer->device);

    TAP_CHECK_INT(buffer->offset % ZO_ALIGN_BYTES, 0);
    TAP_CHECK_INT(buffer->slot_stride_bytes,
                  buffer->has_slots ? stored_bytes(buffer) / 2 : 0);
    TAP_CHECK(end <= program->arena_bytes[buffer->tier][buffer->device]);
    TAP_CHECK(buffer->schedule == -1 ? end <= kept : buffer->offset >= kept);
}

static void check_program(const struct zo_program *program)
{
    for (zo_buffer_id a = 0; a < program->buffer_count; a++) {
        const struct zo_buffer *left = &program->buffers[a];

        if (!is_used(program, a)) {
            continue;
        }
        check_buffer(program, a);
        for (zo_buffer_id b = 0; b < a; b++) {
            const struct zo_buffer *right = &program->buffers[b];

            if (!is_used(program, b) || !same_arena(left, right) ||
                !alive_together(program, a, b)) {
                continue;
            }
            TAP_CHECK(left->offset + stored_bytes(left) <= right->offset ||
                      right->offset + stored_bytes(right) <= left->offset);
        }
    }
}

static uint64_t arenas_of(const struct zo_program *program)
{
    uint64_t bytes = 0;

    for (int tier = 0; tier < ZO_TIERS; tier++) {
        for (int d = 0; d < ZO_DEVICES_MAX; d++) {
            bytes += program->arena_bytes[tier][d];
        }
    }
    return bytes;
}

static struct help_shape shape_of(uint64_t seed)
{
    return (struct help_shape){.seed = seed,
                               .devices = 1 + (int)(seed % 3),
                               .lists = 1 + (int)(seed % 2),
                               .ops_max = 16,
                               .bytes_max = seed % 4 < 2 ? 900 : 9000,
                               .has_nvme = true};
}

static void test_random(void)
{
    uint64_t arenas = 0, sum = 0;

    for (uint64_t seed = 0; seed < 400; seed++) {
        const struct help_shape shape = shape_of(seed);
        struct zo_program program;

        TAP_CHECK_INT(help_program(&shape, &program), ZO_OK);
        check_program(&program);
        arenas += arenas_of(&program);
        for (zo_buffer_id id = 0; id < program.buffer_count; id++) {
            sum +=
                is_used(&program, id) ? stored_bytes(&program.buffers[id]) : 0;
        }
        zo_program_fini(&program);
    }
    TAP_CHECK(arenas < sum);
}

/* ---- the same offsets as by plain loops ---------------------------------- */

/* Larger, or as large and older: it gets its place first. */
static bool goes_before(const struct zo_program *program, zo_buffer_id a,
                        zo_buffer_id b)
{
    const uint64_t left = stored_bytes(&program->buffers[a]);
    const uint64_t right = stored_bytes(&program->buffers[b]);

    return left != right ? left > right : a < b;
}

/* Where the two may not both be at `at` and `offset`. */
static bool collide(const struct zo_buffer *buffer, uint64_t at,
                    const struct zo_buffer *other, uint64_t offset)
{
    return buffer->schedule == other->schedule && same_arena(buffer, other) &&
           buffer->first_use <= other->last_use &&
           other->first_use <= buffer->last_use &&
           at < offset + stored_bytes(other) &&
           offset < at + stored_bytes(buffer);
}

/* The lowest place for a buffer, given those that went before: behind
 * whatever is in the way, until nothing is. */
static uint64_t lowest(const struct zo_program *program, zo_buffer_id id,
                       const zo_buffer_id *placed, size_t placed_count,
                       const uint64_t *offsets)
{
    const struct zo_buffer *buffer = &program->buffers[id];
    uint64_t at =
        zo_layout_persistent_bytes(program, buffer->tier, buffer->device);
    bool has_moved = true;

    while (has_moved) {
        has_moved = false;
        for (size_t i = 0; i < placed_count; i++) {
            const struct zo_buffer *other = &program->buffers[placed[i]];

            if (collide(buffer, at, other, offsets[placed[i]])) {
                at = offsets[placed[i]] + stored_bytes(other);
                has_moved = true;
            }
        }
    }
    return at;
}

enum { PLAIN_MAX = 700 };

/* Offsets of the transient buffers in use, found anew. */
static void check_offsets(const struct zo_program *program)
{
    static zo_buffer_id order[PLAIN_MAX];
    static uint64_t offsets[PLAIN_MAX];
    size_t count = 0;

    TAP_CHECK(program->buffer_count <= PLAIN_MAX);
    for (zo_buffer_id id = 0; id < program->buffer_count; id++) {
        size_t at = count;

        if (program->buffers[id].schedule == -1 ||
            program->buffers[id].last_use < 0) {
            continue;
        }
        for (; at > 0 && goes_before(program, id, order[at - 1]); at--) {
            order[at] = order[at - 1];
        }
        order[at] = id;
        count++;
    }
    for (size_t i = 0; i < count; i++) {
        offsets[order[i]] = lowest(program, order[i], order, i, offsets);
        TAP_CHECK_INT(program->buffers[order[i]].offset, offsets[order[i]]);
    }
}

/* A buffer of one of a few lifetimes: short, long, or nested in pairs as
 * forward and backward have them. */
static void add_lived(struct zo_program *program, struct help_random *random,
                      int list, int ops, zo_buffer_id *begins,
                      zo_buffer_id *ends)
{
    static const uint64_t sizes[] = {0, 1, 256, 300, 1024, 1024, 5000, 40000};
    const uint64_t kind = help_below(random, 3);
    const uint64_t bytes = sizes[help_below(random, ZO_COUNT(sizes))];
    const zo_buffer_id id =
        add_buffer(program, "buffer", list,
                   bytes == 40000 ? help_below(random, bytes) : bytes,
                   help_once_in(random, 5));
    int begin = (int)help_below(random, (uint64_t)ops), end;

    if (kind == 0) {
        end = begin + (int)help_below(random, 4);
    } else if (kind == 1) {
        end = begin + (int)help_below(random, (uint64_t)ops);
    } else {
        begin = begin < ops / 2 ? begin : ops - 1 - begin;
        end = ops - 1 - begin;
    }
    begins[id] = (zo_buffer_id)begin;
    ends[id] = (zo_buffer_id)(end < ops ? end : ops - 1);
}

/* A list of so many operations that touch buffers as they begin and end. */
static void add_lived_list(struct zo_program *program,
                           struct help_random *random, int buffers)
{
    static zo_buffer_id begins[PLAIN_MAX], ends[PLAIN_MAX];
    const int list = zo_program_schedule(program, "list");
    const int ops = 1 + (int)help_below(random, 300);
    const zo_buffer_id first = (zo_buffer_id)program->buffer_count;

    for (int i = 0; i < buffers; i++) {
        add_lived(program, random, list, ops, begins, ends);
    }
    for (int op = 0; op < ops; op++) {
        struct zo_access accesses[ZO_OP_ACCESSES_MAX];
        size_t count = 0;

        for (zo_buffer_id id = first; id < program->buffer_count; id++) {
            if ((begins[id] == (zo_buffer_id)op ||
                 ends[id] == (zo_buffer_id)op) &&
                count < ZO_OP_ACCESSES_MAX) {
                accesses[count++] = zo_whole(program, id, ZO_WRITE);
            }
        }
        if (zo_schedule_add(
                program, list,
                &(struct zo_op){.name = "op", .engine = ZO_ENGINE_COMPUTE},
                accesses, count) != ZO_OK) {
            tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
        }
    }
}

/* When most of the first device is alive, at the first such operation. */
static void check_fullest(const struct zo_program *program)
{
    const struct zo_moment *fullest = &program->fullest[ZO_TIER_GPU][0];
    struct zo_moment most = {0};

    for (int list = 0; list < program->schedule_count; list++) {
        for (size_t op = 0; op < program->schedules[list].op_count; op++) {
            uint64_t bytes = 0;

            for (size_t id = 0; id < program->buffer_count; id++) {
                const struct zo_buffer *buffer = &program->buffers[id];

                if (buffer->schedule == list && buffer->device == 0 &&
                    buffer->tier == ZO_TIER_GPU &&
                    buffer->first_use <= (int64_t)op &&
                    (int64_t)op <= buffer->last_use) {
                    bytes += stored_bytes(buffer);
                }
            }
            if (bytes > most.bytes) {
                most = (struct zo_moment){bytes, list, op};
            }
        }
    }
    TAP_CHECK_INT(fullest->bytes, most.bytes);
    TAP_CHECK_INT(fullest->schedule, most.schedule);
    TAP_CHECK_INT(fullest->op, most.op);
}

static void test_offsets(void)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        const struct help_shape shape = shape_of(seed);
        struct zo_program program;

        TAP_CHECK_INT(help_program(&shape, &program), ZO_OK);
        check_offsets(&program);
        check_fullest(&program);
        zo_program_fini(&program);
    }
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct help_random random = help_random_of(seed, "lifetimes");
        struct zo_program program;

        zo_program_init(&program, 1);
        (void)add_buffer(&program, "kept", -1, help_below(&random, 3000),
                         false);
        for (int i = 0; i < 2; i++) {
            add_lived_list(&program, &random,
                           1 + (int)help_below(&random, 300));
        }
        TAP_CHECK_INT(zo_layout(&program), ZO_OK);
        check_offsets(&program);
        check_fullest(&program);
        zo_program_fini(&program);
    }
}

/* ---- the plan, read off the layout --------------------------------------- */

/* Bytes of an arena that are alive during an operation; persistent at -1. */
static uint64_t alive_bytes(const struct zo_program *program,
                            const struct zo_plan_arena *arena, int list,
                            int64_t op)
{
    uint64_t bytes = 0;

    for (zo_buffer_id id = 0; id < program->buffer_count; id++) {
        const struct zo_buffer *buffer = &program->buffers[id];
        int64_t begin = INT64_MAX, end = -1;

        if (buffer->schedule >= 0) {
            lifetime_of(program, id, &begin, &end);
        }
        if (buffer->tier == arena->tier && buffer->device == arena->device &&
            buffer->schedule == list &&
            (list == -1 || (begin <= op && op <= end))) {
            bytes += stored_bytes(buffer);
        }
    }
    return bytes;
}

/* The most that is alive during an operation; *named_out, during one of the
 * name that the plan gives. */
static uint64_t most_alive(const struct zo_program *program,
                           const struct zo_plan_arena *arena,
                           uint64_t *named_out)
{
    uint64_t most = 0;

    *named_out = 0;
    for (int list = 0; list < program->schedule_count; list++) {
        const struct zo_schedule *schedule = &program->schedules[list];

        for (size_t op = 0; op < schedule->op_count; op++) {
            const uint64_t bytes =
                alive_bytes(program, arena, list, (int64_t)op);

            most = bytes > most ? bytes : most;
            if (arena->op != NULL && bytes > *named_out &&
                strcmp(schedule->ops[op].name, arena->op) == 0 &&
                strcmp(schedule->name, arena->schedule) == 0) {
                *named_out = bytes;
            }
        }
    }
    return most;
}

static void check_plan(const struct zo_program *program, enum zo_tier tier,
                       int device)
{
    struct zo_plan_arena arena;
    uint64_t used = 0, most, named;

    zo_plan_arena(program, tier, device, &arena);
    TAP_CHECK_INT(arena.total_bytes, program->arena_bytes[tier][device]);
    TAP_CHECK_INT(arena.persistent_bytes, alive_bytes(program, &arena, -1, 0));
    for (int purpose = 0; purpose < ZO_PURPOSES; purpose++) {
        used += arena.purposes[purpose];
    }
    TAP_CHECK_INT(used + arena.unused_bytes, arena.total_bytes);
    most = most_alive(program, &arena, &named);
    TAP_CHECK_INT(used, arena.persistent_bytes + most);
    TAP_CHECK_INT(named, most);
}

static void test_plan(void)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        const struct help_shape shape = shape_of(seed);
        struct zo_program program;

        TAP_CHECK_INT(help_program(&shape, &program), ZO_OK);
        for (int d = 0; d < shape.devices; d++) {
            check_plan(&program, ZO_TIER_GPU, d);
        }
        check_plan(&program, ZO_TIER_CPU, 0);
        check_plan(&program, ZO_TIER_NVME, 0);
        zo_program_fini(&program);
    }
}

static void test_deterministic(void)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        const struct help_shape shape = shape_of(seed);
        struct zo_program first, second;

        TAP_CHECK_INT(help_program(&shape, &first), ZO_OK);
        TAP_CHECK_INT(help_program(&shape, &second), ZO_OK);
        TAP_CHECK_INT(first.buffer_count, second.buffer_count);
        for (size_t i = 0; i < first.buffer_count; i++) {
            TAP_CHECK_INT(first.buffers[i].offset, second.buffers[i].offset);
        }
        TAP_CHECK_INT(arenas_of(&first), arenas_of(&second));
        zo_program_fini(&first);
        zo_program_fini(&second);
    }
}

static void test_failed_allocations(void)
{
    const struct help_shape shape = shape_of(5);
    bool is_done = false;
    uint64_t nth = 0;

    while (!is_done) {
        struct zo_program program;
        enum zo_status status;

        zo_memory_fail_at(++nth);
        status = help_program(&shape, &program);
        zo_memory_fail_at(0);
        is_done = status == ZO_OK;
        TAP_CHECK(is_done || status == ZO_E_NOMEM);
        TAP_CHECK(nth < 100);
        if (is_done) {
            zo_program_fini(&program);
        }
    }
    TAP_CHECK(nth > 6);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"buffers that follow each other share bytes", test_reuse},
        {"transient buffers lie behind persistent ones; lists share",
         test_lists_share},
        {"a buffer with slots has two copies", test_slots},
        {"what no operation uses takes nothing", test_unused},
        {"an arena beyond 2^62 bytes does not fit, by name", test_too_large},
        {"no two buffers that are alive together overlap", test_random},
        {"offsets and fullest moments are those of plain loops", test_offsets},
        {"a plan adds up to the arena, at its fullest moment", test_plan},
        {"the same program gets the same layout", test_deterministic},
        {"each failed allocation is clean", test_failed_allocations},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
