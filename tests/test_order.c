/*
 * Order: what waits for what, and the proof of it.
 *
 * The deriver is read off small programs by hand; the checker must accept
 * what the deriver says of many random ones, and must name the two operations
 * whose order is taken away.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "offload/layout.h"
#include "offload/order.h"
#include "src/base/memory.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

/* ---- small programs by hand ---------------------------------------------- */

enum { BYTES = 1000 };

struct bench {
    struct zo_program program;
    struct zo_edges edges;
    zo_buffer_id x, y, slots; /* on the host, so that every engine may */
    int list;
};

static zo_buffer_id add_buffer(struct bench *bench, const char *name,
                               bool has_slots)
{
    const struct zo_buffer buffer = {.name = name,
                                     .tier = ZO_TIER_CPU,
                                     .unit = -1,
                                     .schedule = -1,
                                     .bytes = BYTES,
                                     .has_slots = has_slots};

    return help_buffer(&bench->program, &buffer);
}

static void bench_init(struct bench *bench, int devices)
{
    *bench = (struct bench){0};
    zo_program_init(&bench->program, devices);
    bench->x = add_buffer(bench, "x", false);
    bench->y = add_buffer(bench, "y", false);
    bench->slots = add_buffer(bench, "slots", true);
    bench->list = zo_program_schedule(&bench->program, "list");
}

static void bench_fini(struct bench *bench)
{
    zo_edges_fini(&bench->edges);
    zo_program_fini(&bench->program);
}

static void add(struct bench *bench, const char *name, enum zo_engine engine,
                int device, const struct zo_access *accesses, size_t count)
{
    const struct zo_op op = {.name = name,
                             .engine = engine,
                             .device = device,
                             .unit = 3,
                             .micro = -1};

    if (zo_schedule_add(&bench->program, bench->list, &op, accesses, count) !=
        ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
}

/* CPU operations are in no lane: every edge of theirs is seen. */
static void cpu(struct bench *bench, const char *name, zo_buffer_id id,
                enum zo_access_mode mode, uint64_t offset, uint64_t bytes)
{
    add(bench, name, ZO_ENGINE_CPU, 0,
        &(const struct zo_access){id, mode, offset, bytes}, 1);
}

static void stream(struct bench *bench, const char *name, enum zo_engine engine,
                   int device, zo_buffer_id id, enum zo_access_mode mode)
{
    add(bench, name, engine, device,
        &(const struct zo_access){id, mode, 0, BYTES}, 1);
}

static const struct zo_sequence_item once[] = {{0, 0}};

static enum zo_status derive(struct bench *bench,
                             const struct zo_sequence_item *items, size_t count)
{
    ZO_TRY(zo_layout(&bench->program));
    return zo_edges_derive(&bench->program, items, count, &bench->edges);
}

/* The predecessors of operation i as "0 2 ", ascending. */
static const char *preds_of(const struct bench *bench, size_t i, char *text_out,
                            size_t size_bytes)
{
    size_t length = 0;

    text_out[0] = '\0';
    for (size_t p = 0; p < i; p++) {
        for (size_t e = bench->edges.first[i]; e < bench->edges.first[i + 1];
             e++) {
            if (bench->edges.preds[e] == p && length + 8 < size_bytes) {
                length += (size_t)snprintf(text_out + length,
                                           size_bytes - length, "%zu ", p);
            }
        }
    }
    return text_out;
}

#define CHECK_PREDS(bench, i, want)                                            \
    do {                                                                       \
        char text_[64];                                                        \
        if (strcmp(preds_of((bench), (i), text_, sizeof(text_)), want) != 0) { \
            tap_fail(__FILE__, __LINE__,                                       \
                     "operation %d waits for \"%s\", want \"%s\"", (i), text_, \
                     (want));                                                  \
            return;                                                            \
        }                                                                      \
    } while (0)

static void test_kinds(void)
{
    struct bench bench;

    bench_init(&bench, 1);
    cpu(&bench, "read", bench.x, ZO_READ, 0, BYTES);
    cpu(&bench, "read", bench.x, ZO_READ, 0, BYTES);
    cpu(&bench, "write", bench.x, ZO_WRITE, 0, BYTES);
    cpu(&bench, "write", bench.x, ZO_WRITE, 0, BYTES);
    cpu(&bench, "read", bench.x, ZO_READ, 0, BYTES);
    cpu(&bench, "both", bench.x, ZO_READ_WRITE, 0, BYTES);
    cpu(&bench, "both", bench.x, ZO_READ_WRITE, 0, BYTES);
    cpu(&bench, "other", bench.y, ZO_READ_WRITE, 0, BYTES);
    TAP_CHECK_INT(derive(&bench, once, 1), ZO_OK);
    CHECK_PREDS(&bench, 0, "");
    CHECK_PREDS(&bench, 1, "");     /* both only read */
    CHECK_PREDS(&bench, 2, "0 1 "); /* a write behind reads */
    CHECK_PREDS(&bench, 3, "2 ");   /* a write behind a write */
    CHECK_PREDS(&bench, 4, "3 ");   /* a read behind a write */
    CHECK_PREDS(&bench, 5, "3 4 ");
    CHECK_PREDS(&bench, 6, "5 ");
    CHECK_PREDS(&bench, 7, "");
    TAP_CHECK_INT(zo_edges_check(&bench.program, once, 1, &bench.edges), ZO_OK);
    bench_fini(&bench);
}

static void test_ranges(void)
{
    struct bench bench;

    bench_init(&bench, 1);
    cpu(&bench, "left", bench.x, ZO_WRITE, 0, 100);
    cpu(&bench, "right", bench.x, ZO_WRITE, 100, 100);
    cpu(&bench, "last of left", bench.x, ZO_READ, 99, 1);
    cpu(&bench, "first of right", bench.x, ZO_READ, 100, 1);
    cpu(&bench, "across", bench.x, ZO_WRITE, 99, 2);
    cpu(&bench, "rest of left", bench.x, ZO_READ, 0, 99);
    cpu(&bench, "all", bench.x, ZO_READ, 0, BYTES);
    TAP_CHECK_INT(derive(&bench, once, 1), ZO_OK);
    CHECK_PREDS(&bench, 1, ""); /* they only meet */
    CHECK_PREDS(&bench, 2, "0 ");
    CHECK_PREDS(&bench, 3, "1 ");
    CHECK_PREDS(&bench, 4, "0 1 2 3 ");
    CHECK_PREDS(&bench, 5, "0 ");
    CHECK_PREDS(&bench, 6, "0 1 4 ");
    TAP_CHECK_INT(zo_edges_check(&bench.program, once, 1, &bench.edges), ZO_OK);
    bench_fini(&bench);
}

static void test_empty_ranges(void)
{
    struct bench bench;

    bench_init(&bench, 1);
    cpu(&bench, "write", bench.x, ZO_WRITE, 0, BYTES);
    cpu(&bench, "nothing in the middle", bench.x, ZO_WRITE, 500, 0);
    cpu(&bench, "nothing at the end", bench.x, ZO_READ_WRITE, BYTES, 0);
    cpu(&bench, "read", bench.x, ZO_READ, 400, 200);
    TAP_CHECK_INT(derive(&bench, once, 1), ZO_OK);
    CHECK_PREDS(&bench, 1, "");
    CHECK_PREDS(&bench, 2, "");
    CHECK_PREDS(&bench, 3, "0 ");
    TAP_CHECK_INT(zo_edges_check(&bench.program, once, 1, &bench.edges), ZO_OK);
    bench_fini(&bench);
}

/* One access may cover what another of the same operation writes. */
static void test_own_accesses(void)
{
    struct bench bench;

    bench_init(&bench, 1);
    for (int i = 0; i < 2; i++) {
        const struct zo_access accesses[] = {
            {bench.x, ZO_READ, 0, 200},
            {bench.x, ZO_WRITE, 100, 200},
            {bench.x, ZO_READ_WRITE, 150, 10},
            {bench.x, ZO_READ, 0, 300},
        };

        add(&bench, "own", ZO_ENGINE_CPU, 0, accesses, 4);
    }
    TAP_CHECK_INT(derive(&bench, once, 1), ZO_OK);
    CHECK_PREDS(&bench, 0, "");
    CHECK_PREDS(&bench, 1, "0 ");
    TAP_CHECK_INT(zo_edges_check(&bench.program, once, 1, &bench.edges), ZO_OK);
    bench_fini(&bench);
}

static void test_lanes(void)
{
    struct bench bench;

    bench_init(&bench, 2);
    stream(&bench, "write", ZO_ENGINE_COMPUTE, 0, bench.x, ZO_WRITE);
    stream(&bench, "read", ZO_ENGINE_COMPUTE, 0, bench.x, ZO_READ);
    stream(&bench, "write y", ZO_ENGINE_COMPUTE, 0, bench.y, ZO_WRITE);
    stream(&bench, "read", ZO_ENGINE_H2D, 0, bench.x, ZO_READ);
    stream(&bench, "read", ZO_ENGINE_COMPUTE, 1, bench.x, ZO_READ);
    stream(&bench, "write", ZO_ENGINE_COLLECTIVE, 0, bench.x, ZO_WRITE);
    stream(&bench, "write", ZO_ENGINE_COLLECTIVE, 0, bench.x, ZO_WRITE);
    cpu(&bench, "read", bench.x, ZO_READ, 0, BYTES);
    add(&bench, "both", ZO_ENGINE_D2H, 1,
        (const struct zo_access[]){{bench.x, ZO_WRITE, 0, BYTES},
                                   {bench.y, ZO_WRITE, 0, BYTES}},
        2);
    TAP_CHECK_INT(derive(&bench, once, 1), ZO_OK);
    CHECK_PREDS(&bench, 1, ""); /* its own lane runs in order */
    CHECK_PREDS(&bench, 2, "");
    CHECK_PREDS(&bench, 3, "0 ");
    CHECK_PREDS(&bench, 4, "0 ");
    CHECK_PREDS(&bench, 5, "1 3 4 "); /* 1 stands for 0, the same lane */
    CHECK_PREDS(&bench, 6, "");
    CHECK_PREDS(&bench, 7, "6 ");
    CHECK_PREDS(&bench, 8, "2 6 7 "); /* of lane 0 only the last */
    TAP_CHECK_INT(zo_edges_check(&bench.program, once, 1, &bench.edges), ZO_OK);
    bench_fini(&bench);
}

static void test_lane_numbers(void)
{
    struct zo_program program;
    bool seen[3 * ZO_ENGINE_COLLECTIVE + 1] = {0};

    zo_program_init(&program, 3);
    TAP_CHECK_INT(zo_lane_count(&program), TAP_COUNT(seen));
    for (int engine = 0; engine < ZO_ENGINES; engine++) {
        for (int d = 0; d < 3; d++) {
            const struct zo_op op = {.engine = (enum zo_engine)engine,
                                     .device = d};
            const uint32_t lane = zo_lane_of(&program, &op);

            if (engine >= ZO_ENGINE_CPU) {
                TAP_CHECK(lane == ZO_NO_LANE);
                continue;
            }
            TAP_CHECK(lane < TAP_COUNT(seen));
            /* One lane each, and one for all collectives. */
            TAP_CHECK(!seen[lane] || engine == ZO_ENGINE_COLLECTIVE);
            seen[lane] = true;
        }
    }
    for (size_t i = 0; i < TAP_COUNT(seen); i++) {
        TAP_CHECK(seen[i]);
    }
    zo_program_fini(&program);
}

static void test_slots(void)
{
    const struct zo_sequence_item items[] = {{0, 0}, {0, 1}, {0, 0}, {0, 1}};
    struct bench bench;

    bench_init(&bench, 1);
    cpu(&bench, "record", bench.slots, ZO_READ_WRITE, 0, BYTES);
    TAP_CHECK_INT(derive(&bench, items, 4), ZO_OK);
    CHECK_PREDS(&bench, 1, ""); /* the other slot */
    CHECK_PREDS(&bench, 2, "0 ");
    CHECK_PREDS(&bench, 3, "1 ");
    TAP_CHECK_INT(zo_edges_check(&bench.program, items, 4, &bench.edges),
                  ZO_OK);
    bench_fini(&bench);
}

static void test_across_lists(void)
{
    const struct zo_sequence_item items[] = {{0, 0}, {1, 1}, {0, 0}};
    struct bench bench;

    bench_init(&bench, 1);
    cpu(&bench, "write x", bench.x, ZO_WRITE, 0, BYTES); /* 0, 3 */
    bench.list = zo_program_schedule(&bench.program, "second");
    cpu(&bench, "read x", bench.x, ZO_READ, 0, BYTES);   /* 1 */
    cpu(&bench, "write y", bench.y, ZO_WRITE, 0, BYTES); /* 2 */
    TAP_CHECK_INT(derive(&bench, items, 3), ZO_OK);
    TAP_CHECK_INT(bench.edges.count, 4);
    CHECK_PREDS(&bench, 1, "0 ");
    CHECK_PREDS(&bench, 2, "");
    CHECK_PREDS(&bench, 3, "0 1 ");
    TAP_CHECK_INT(zo_edges_check(&bench.program, items, 3, &bench.edges),
                  ZO_OK);
    bench_fini(&bench);
}

/* Buffers of different lifetimes that got the same bytes. */
static void test_shared_bytes(void)
{
    struct bench bench;
    zo_buffer_id ids[3];

    bench_init(&bench, 1);
    for (int i = 0; i < 3; i++) {
        const struct zo_buffer buffer = {.name = "transient",
                                         .tier = ZO_TIER_CPU,
                                         .unit = -1,
                                         .schedule = bench.list,
                                         .bytes = BYTES};

        TAP_CHECK_INT(zo_program_buffer(&bench.program, &buffer, &ids[i]),
                      ZO_OK);
        cpu(&bench, "write", ids[i], ZO_WRITE, 0, BYTES);
    }
    TAP_CHECK_INT(derive(&bench, once, 1), ZO_OK);
    TAP_CHECK_INT(bench.program.buffers[ids[0]].offset,
                  bench.program.buffers[ids[2]].offset);
    CHECK_PREDS(&bench, 1, "0 ");
    CHECK_PREDS(&bench, 2, "1 ");
    bench_fini(&bench);
}

/* ---- the deriver, as the executor uses it -------------------------------- */

/* For ever: what is done is waited for no more, and takes no room. */
static void run_for_ever(struct zo_order *order)
{
    uint64_t preds[4];

    for (uint64_t i = 1; i < 100000; i += 3) {
        const bool is_written = i % 2 == 0; /* before the read comes */
        const uint64_t done = i < 4 ? 1 : i - 3;
        const struct zo_order_step write = {0, 0, 0, i, done};
        const struct zo_order_step read = {0, 1, 0, i + 1,
                                           is_written ? i + 1 : done};
        const struct zo_order_step other = {0, 2, 0, i + 2, done};

        TAP_CHECK_INT(zo_order_next(order, &write, preds, 4), i > 1 ? 2 : 0);
        TAP_CHECK(i == 1 || preds[0] + preds[1] == 2 * i - 5);
        TAP_CHECK_INT(zo_order_next(order, &read, preds, 4), !is_written);
        TAP_CHECK(is_written || preds[0] == i);
        TAP_CHECK_INT(zo_order_next(order, &other, preds, 4), 0);
    }
}

static void test_retired(void)
{
    struct bench bench;
    struct zo_order *order = NULL;

    bench_init(&bench, 1);
    cpu(&bench, "write", bench.x, ZO_WRITE, 0, BYTES);
    cpu(&bench, "read", bench.x, ZO_READ, 0, BYTES);
    cpu(&bench, "read what nobody writes", bench.y, ZO_READ, 0, BYTES);
    TAP_CHECK_INT(zo_layout(&bench.program), ZO_OK);
    TAP_CHECK_INT(zo_order_open(&bench.program, 2, &order), ZO_OK);
    zo_memory_freeze(true);
    run_for_ever(order);
    zo_memory_freeze(false);
    zo_order_close(order);
    bench_fini(&bench);
}

static void test_too_many(void)
{
    struct bench bench;
    struct zo_order *order = NULL;

    bench_init(&bench, 1);
    for (int i = 0; i < 4; i++) {
        cpu(&bench, "read", bench.x, ZO_READ, 0, BYTES);
    }
    cpu(&bench, "write", bench.x, ZO_WRITE, 0, BYTES);
    TAP_CHECK_INT(zo_layout(&bench.program), ZO_OK);
    for (size_t max = 0; max <= 4; max++) {
        uint64_t found[4];

        TAP_CHECK_INT(zo_order_open(&bench.program, 2, &order), ZO_OK);
        for (size_t op = 0; op < 5; op++) {
            const struct zo_order_step step = {0, op, 0, op + 1, 1};
            const size_t count = zo_order_next(order, &step, found, max);

            TAP_CHECK_INT(count, op < 4 ? 0 : max < 4 ? max + 1 : 4);
        }
        zo_order_close(order);
    }
    bench_fini(&bench);
}

/* More readers than edges are kept for: the write waits for everything. */
static void test_barrier(void)
{
    const int readers = 600;
    struct bench bench;

    bench_init(&bench, 1);
    for (int i = 0; i < readers; i++) {
        cpu(&bench, "read", bench.x, ZO_READ, 0, BYTES);
    }
    cpu(&bench, "other", bench.y, ZO_WRITE, 0, BYTES);
    cpu(&bench, "write", bench.x, ZO_WRITE, 0, BYTES);
    TAP_CHECK_INT(derive(&bench, once, 1), ZO_OK);
    TAP_CHECK_INT(bench.edges.first[readers + 2] -
                      bench.edges.first[readers + 1],
                  readers + 1);
    TAP_CHECK_INT(zo_edges_check(&bench.program, once, 1, &bench.edges), ZO_OK);
    bench_fini(&bench);
}

/* Readers that nothing ever retires, over many lists. */
static void test_long_sequence(void)
{
    enum { LISTS = 100, READERS = 5 };
    struct zo_sequence_item items[LISTS];
    struct bench bench;

    bench_init(&bench, 1);
    for (int i = 0; i < READERS; i++) {
        cpu(&bench, "read", bench.x, ZO_READ, 0, BYTES);
    }
    bench.list = zo_program_schedule(&bench.program, "last");
    cpu(&bench, "write", bench.x, ZO_WRITE, 0, BYTES);
    for (int i = 0; i < LISTS; i++) {
        items[i] = (struct zo_sequence_item){i == LISTS - 1, i % 2};
    }
    TAP_CHECK_INT(derive(&bench, items, LISTS), ZO_OK);
    TAP_CHECK_INT(bench.edges.first[bench.edges.count], (LISTS - 1) * READERS);
    TAP_CHECK_INT(zo_edges_check(&bench.program, items, LISTS, &bench.edges),
                  ZO_OK);
    bench_fini(&bench);
}

/* ---- the checker --------------------------------------------------------- */

/* The edges without number `gone`; ended with zo_edges_fini(). */
static struct zo_edges without(const struct zo_edges *edges, size_t gone)
{
    struct zo_edges copy = {.count = edges->count};
    const size_t total = edges->first[edges->count];
    size_t kept = 0;

    if (zo_alloc(edges->count + 1, sizeof(size_t), "a copy", &copy.first) !=
            ZO_OK ||
        zo_alloc(total + 1, sizeof(size_t), "a copy", &copy.preds) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
        return copy;
    }
    for (size_t i = 0; i < edges->count; i++) {
        copy.first[i] = kept;
        for (size_t e = edges->first[i]; e < edges->first[i + 1]; e++) {
            if (e != gone) {
                copy.preds[kept++] = edges->preds[e];
            }
        }
    }
    copy.first[edges->count] = kept;
    return copy;
}

/* Each edge is the only order between two operations. */
static void make_needed(struct bench *bench)
{
    bench_init(bench, 1);
    cpu(bench, "apple", bench->x, ZO_WRITE, 0, BYTES);
    cpu(bench, "berry", bench->y, ZO_WRITE, 0, BYTES);
    add(bench, "cherry", ZO_ENGINE_COMPUTE, 0, /* RAW on x */
        (const struct zo_access[]){{bench->x, ZO_READ, 10, 1},
                                   {bench->slots, ZO_WRITE, 0, BYTES}},
        2);
    add(bench, "damson", ZO_ENGINE_CPU, 0, /* WAR on x, RAW on y */
        (const struct zo_access[]){{bench->x, ZO_WRITE, 10, 1},
                                   {bench->y, ZO_READ, 999, 1}},
        2);
    cpu(bench, "elder", bench->y, ZO_WRITE, 0, 1); /* WAW on y */
}

static void test_needed_edges(void)
{
    static const char *const names[] = {"apple", "berry", "cherry", "damson",
                                        "elder"};
    const struct zo_sequence_item twice[] = {{0, 0}, {0, 1}};
    struct bench bench;
    size_t reported = 0;

    make_needed(&bench);
    TAP_CHECK_INT(derive(&bench, once, 1), ZO_OK);
    for (size_t i = 0; i < bench.edges.count; i++) {
        for (size_t e = bench.edges.first[i]; e < bench.edges.first[i + 1];
             e++) {
            const size_t pred = bench.edges.preds[e];
            struct zo_edges edges = without(&bench.edges, e);
            const enum zo_status status =
                zo_edges_check(&bench.program, once, 1, &edges);

            zo_edges_fini(&edges);
            if (i == 3 && pred == 0) {
                TAP_CHECK_INT(status, ZO_OK); /* by way of 2 */
                continue;
            }
            TAP_CHECK_INT(status, ZO_E_ARG);
            TAP_CHECK(strstr(zo_err_last()->text, names[i]) != NULL);
            TAP_CHECK(strstr(zo_err_last()->text, names[pred]) != NULL);
            reported++;
        }
    }
    TAP_CHECK_INT(reported, 4);
    zo_edges_fini(&bench.edges);
    /* No edges at all: the first pair is named, with its bytes. */
    TAP_CHECK_INT(zo_edges_derive(&bench.program, twice, 2, &bench.edges),
                  ZO_OK);
    memset(bench.edges.first, 0, 11 * sizeof(size_t));
    TAP_CHECK_INT(zo_edges_check(&bench.program, twice, 2, &bench.edges),
                  ZO_E_ARG);
    TAP_CHECK(strcmp(zo_err_last()->text,
                     "nothing orders operation 0 (apple, unit 3, micro batch "
                     "-1) before 2 (cherry, unit 3, micro batch -1); both "
                     "touch host memory [0, 1000) of x") == 0);
    bench_fini(&bench);
}

/* 0 claims to come behind 1, which would put 1 before 2. */
static void test_forward_edge(void)
{
    struct bench bench;
    size_t first[] = {0, 1, 1, 2}, preds[] = {1, 0};
    struct zo_edges edges = {.count = 3, .first = first, .preds = preds};

    bench_init(&bench, 1);
    cpu(&bench, "other", bench.y, ZO_WRITE, 0, BYTES);
    cpu(&bench, "early", bench.x, ZO_WRITE, 0, BYTES);
    cpu(&bench, "late", bench.x, ZO_WRITE, 0, BYTES);
    TAP_CHECK_INT(zo_layout(&bench.program), ZO_OK);
    TAP_CHECK_INT(zo_edges_check(&bench.program, once, 1, &edges), ZO_E_ARG);
    preds[1] = 1;
    TAP_CHECK_INT(zo_edges_check(&bench.program, once, 1, &edges), ZO_OK);
    bench_fini(&bench);
}

/* ---- random programs, against an oracle of the test's own ---------------- */

enum { OPS_MAX = 64, ITEMS = 4 };

struct flat {
    const struct zo_op *ops[OPS_MAX];
    const struct zo_access *accesses[OPS_MAX];
    int slots[OPS_MAX];
    size_t count;
};

static struct flat flatten(const struct zo_program *program,
                           const struct zo_sequence_item *items, size_t count)
{
    struct flat flat = {.count = 0};

    for (size_t i = 0; i < count; i++) {
        const struct zo_schedule *list = &program->schedules[items[i].schedule];

        for (size_t op = 0; op < list->op_count; op++, flat.count++) {
            flat.ops[flat.count] = &list->ops[op];
            flat.accesses[flat.count] =
                list->accesses + list->ops[op].access_first;
            flat.slots[flat.count] = items[i].slot;
        }
    }
    return flat;
}

static bool clash(const struct zo_program *program, const struct flat *flat,
                  size_t a, size_t b)
{
    for (uint32_t i = 0; i < flat->ops[a]->access_count; i++) {
        for (uint32_t j = 0; j < flat->ops[b]->access_count; j++) {
            const struct zo_access *left = &flat->accesses[a][i];
            const struct zo_access *right = &flat->accesses[b][j];
            const struct zo_buffer *x = &program->buffers[left->buffer];
            const struct zo_buffer *y = &program->buffers[right->buffer];
            const uint64_t at_x =
                x->offset + left->offset +
                (flat->slots[a] == 1 ? x->slot_stride_bytes : 0);
            const uint64_t at_y =
                y->offset + right->offset +
                (flat->slots[b] == 1 ? y->slot_stride_bytes : 0);
            const uint64_t begin = at_x > at_y ? at_x : at_y;
            const uint64_t x_end = at_x + left->bytes;
            const uint64_t y_end = at_y + right->bytes;

            if (x->tier == y->tier && x->device == y->device &&
                begin < (x_end < y_end ? x_end : y_end) &&
                (left->mode != ZO_READ || right->mode != ZO_READ)) {
                return true;
            }
        }
    }
    return false;
}

/* Whether edges and lanes order every clash. */
static bool orders_all(const struct zo_program *program,
                       const struct flat *flat, const struct zo_edges *edges)
{
    bool before[OPS_MAX][OPS_MAX] = {{0}};

    for (size_t i = 0; i < flat->count; i++) {
        const uint32_t lane = zo_lane_of(program, flat->ops[i]);

        for (size_t e = edges->first[i]; e < edges->first[i + 1]; e++) {
            before[edges->preds[e]][i] = true;
        }
        for (size_t j = 0; j < i; j++) {
            if (lane != ZO_NO_LANE &&
                zo_lane_of(program, flat->ops[j]) == lane) {
                before[j][i] = true;
            }
        }
        for (size_t j = i; j-- > 0;) { /* through j, which is complete */
            for (size_t k = 0; before[j][i] && k < j; k++) {
                before[k][i] = before[k][i] || before[k][j];
            }
        }
        for (size_t j = 0; j < i; j++) {
            if (!before[j][i] && clash(program, flat, j, i)) {
                return false;
            }
        }
    }
    return true;
}

static void check_removals(const struct zo_program *program,
                           const struct zo_sequence_item *items,
                           const struct zo_edges *edges, size_t *reported)
{
    const struct flat flat = flatten(program, items, ITEMS);
    const size_t total = edges->first[edges->count];

    TAP_CHECK(orders_all(program, &flat, edges));
    TAP_CHECK_INT(zo_edges_check(program, items, ITEMS, edges), ZO_OK);
    for (size_t e = 0; e < total; e++) {
        struct zo_edges fewer = without(edges, e);
        const bool is_sound = orders_all(program, &flat, &fewer);
        const enum zo_status status =
            zo_edges_check(program, items, ITEMS, &fewer);

        zo_edges_fini(&fewer);
        TAP_CHECK_INT(status, is_sound ? ZO_OK : ZO_E_ARG);
        *reported += is_sound ? 0 : 1;
    }
}

static struct help_shape shape_of(uint64_t seed)
{
    return (struct help_shape){.seed = seed,
                               .devices = 1 + (int)(seed % 3),
                               .lists = 1 + (int)(seed % 3),
                               .ops_max = OPS_MAX / ITEMS,
                               .bytes_max = 300,
                               .has_nvme = true};
}

static void test_random_removals(void)
{
    size_t reported = 0;

    for (uint64_t seed = 0; seed < 60; seed++) {
        struct help_random random = help_random_of(seed, "sequence");
        const struct help_shape shape = shape_of(seed);
        struct zo_sequence_item items[ITEMS];
        struct zo_program program;
        struct zo_edges edges;

        TAP_CHECK_INT(help_program(&shape, &program), ZO_OK);
        help_sequence(&random, &program, items, ITEMS);
        TAP_CHECK_INT(zo_edges_derive(&program, items, ITEMS, &edges), ZO_OK);
        check_removals(&program, items, &edges, &reported);
        zo_edges_fini(&edges);
        zo_program_fini(&program);
    }
    TAP_CHECK(reported > 500);
}

static void test_failed_allocations(void)
{
    const struct zo_sequence_item items[] = {{0, 0}, {0, 1}};
    const struct help_shape shape = shape_of(7);
    struct zo_program program;
    bool is_done = false;
    uint64_t nth = 0;

    TAP_CHECK_INT(help_program(&shape, &program), ZO_OK);
    while (!is_done) {
        struct zo_edges edges = {0};
        enum zo_status status;

        zo_memory_fail_at(++nth);
        status = zo_edges_derive(&program, items, 2, &edges);
        if (status == ZO_OK) {
            status = zo_edges_check(&program, items, 2, &edges);
        }
        zo_memory_fail_at(0);
        is_done = status == ZO_OK;
        TAP_CHECK(is_done || status == ZO_E_NOMEM);
        TAP_CHECK(nth < 100);
        zo_edges_fini(&edges);
    }
    TAP_CHECK(nth > 9);
    zo_program_fini(&program);
    zo_edges_fini(NULL);
    zo_order_close(NULL);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a write waits for what read or wrote, a read for what wrote",
         test_kinds},
        {"only common bytes order", test_ranges},
        {"empty ranges order nothing", test_empty_ranges},
        {"an operation does not wait for itself", test_own_accesses},
        {"of a lane the last stands for all; its own is in order", test_lanes},
        {"a lane a stream engine and device, one for collectives",
         test_lane_numbers},
        {"the slots of a record are apart", test_slots},
        {"order reaches across lists", test_across_lists},
        {"buffers that share bytes are one", test_shared_bytes},
        {"what is done is waited for no more, and takes no room", test_retired},
        {"too many predecessors are said to be too many", test_too_many},
        {"too many predecessors become all of them", test_barrier},
        {"a sequence may be long", test_long_sequence},
        {"each needed edge is missed, and both operations named",
         test_needed_edges},
        {"an edge that points forward orders nothing", test_forward_edge},
        {"of random programs exactly the needed edges are missed",
         test_random_removals},
        {"each failed allocation is clean", test_failed_allocations},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
