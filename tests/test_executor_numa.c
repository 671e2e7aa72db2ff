/*
 * Memory and threads near their devices: which bytes are placed on which
 * node, which worker takes which part, and that a system that refuses changes
 * nothing.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "src/base/arith.h"
#include "tests/executor_bench.h"
#include "tests/tap.h"

enum { DEVICES = 2, PARTS = 8, PLACES_MAX = 64 };

#define BYTES (10 * (int64_t)ZO_NUMA_ALIGN) /* of each large buffer */

/* ---- a system that takes note -------------------------------------------- */

static struct {
    struct {
        char *memory;
        size_t size_bytes;
        int node;
    } places[PLACES_MAX];
    int place_count, pin_count, error;
    pthread_mutex_t lock;
} noted = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local int node_of_thread = -1;

static int note_place(void *memory, size_t size_bytes, int node)
{
    if (noted.place_count < PLACES_MAX) {
        noted.places[noted.place_count].memory = memory;
        noted.places[noted.place_count].size_bytes = size_bytes;
        noted.places[noted.place_count].node = node;
    }
    noted.place_count++;
    return noted.error;
}

static int note_pin(const cpu_set_t *cores)
{
    node_of_thread = CPU_ISSET(0, cores) ? 0 : 1;
    (void)pthread_mutex_lock(&noted.lock);
    noted.pin_count++;
    (void)pthread_mutex_unlock(&noted.lock);
    return noted.error;
}

/* Nodes 5 and 6 with a core each. */
static struct zo_numa two_nodes(int first_device, int second_device)
{
    struct zo_numa numa = {.node_count = 2,
                           .nodes = {5, 6},
                           .device_nodes = {first_device, second_device},
                           .place = note_place,
                           .pin = note_pin};

    CPU_SET(0, &numa.cores[0]);
    CPU_SET(1, &numa.cores[1]);
    noted.place_count = noted.pin_count = noted.error = 0;
    return numa;
}

/* ---- an update ----------------------------------------------------------- */

static struct {
    pthread_barrier_t *meet; /* of the workers, each part; NULL: none */
    int runs[PARTS], nodes[PARTS], order[PARTS];
    int count;
} ran;

static enum zo_status run_part(const struct zo_op_call *call)
{
    if (ran.meet != NULL) {
        (void)pthread_barrier_wait(ran.meet);
    }
    (void)pthread_mutex_lock(&noted.lock);
    ran.order[ran.count++ % PARTS] = call->part;
    ran.nodes[call->part] = node_of_thread;
    ran.runs[call->part]++;
    (void)pthread_mutex_unlock(&noted.lock);
    return ZO_OK;
}

struct update {
    struct bench bench;
    zo_buffer_id pinned, pageable, other;
};

static zo_buffer_id add_large(struct bench *bench, enum zo_tier tier)
{
    const struct zo_buffer buffer = {.name = "large",
                                     .tier = tier,
                                     .unit = -1,
                                     .schedule = -1,
                                     .bytes = BYTES};

    return help_buffer(&bench->program, &buffer);
}

/* An operation on all of the first two buffers, and one on the third. */
static void add_ops(struct update *update, bool is_shared)
{
    static const struct act nothing = {.status = ZO_OK};
    struct zo_program *program = &update->bench.program;
    const struct zo_op op = {.name = "an update",
                             .run = run_part,
                             .engine = ZO_ENGINE_CPU,
                             .unit = -1,
                             .micro = -1,
                             .parts = PARTS,
                             .is_shared = is_shared};
    const struct zo_op other = {.name = "an act",
                                .run = bench_act,
                                .context = &nothing,
                                .engine = ZO_ENGINE_CPU,
                                .unit = -1,
                                .micro = -1};
    const struct zo_access accesses[] = {
        zo_whole(program, update->pinned, ZO_READ_WRITE),
        zo_whole(program, update->pageable, ZO_READ_WRITE),
        zo_whole(program, update->bench.host, ZO_READ),
    };
    const struct zo_access of_all =
        zo_whole(program, update->other, ZO_READ_WRITE);

    bench_list(&update->bench);
    if (zo_schedule_add(program, 0, &op, accesses, 3) != ZO_OK ||
        zo_schedule_add(program, 0, &other, &of_all, 1) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
}

static void open_update(struct update *update, const struct zo_numa *numa,
                        int workers, bool is_shared)
{
    struct zo_executor_options options = bench_workers;

    memset(&ran, 0, sizeof(ran));
    options.cpu_workers = workers;
    options.numa = numa;
    bench_init(&update->bench, DEVICES);
    update->pinned = add_large(&update->bench, ZO_TIER_CPU);
    update->pageable = add_large(&update->bench, ZO_TIER_PAGEABLE);
    update->other = add_large(&update->bench, ZO_TIER_CPU);
    add_ops(update, is_shared);
    TAP_CHECK_INT(bench_open(&update->bench, &options), ZO_OK);
}

static void run_lists(struct update *update, int lists)
{
    for (int i = 0; i < lists; i++) {
        TAP_CHECK_INT(bench_start(&update->bench, 0, NULL), ZO_OK);
    }
    TAP_CHECK_INT(zo_executor_drain(update->bench.executor), ZO_OK);
    for (int p = 0; p < PARTS; p++) {
        TAP_CHECK_INT(ran.runs[p], lists);
    }
}

/* ---- memory -------------------------------------------------------------- */

/* Bytes of a device's half of a buffer that are placed on a node; -1: some of
 * a place lie in the half and some do not. */
static int64_t placed_on(const struct update *update, zo_buffer_id id,
                         int device, int node)
{
    const char *begin =
        (char *)zo_executor_address(update->bench.executor, id, 0) +
        device * (BYTES / DEVICES);
    const char *end = begin + BYTES / DEVICES;
    int64_t bytes = 0;

    for (int i = 0; i < noted.place_count && i < PLACES_MAX; i++) {
        const char *first = noted.places[i].memory;
        const char *last = first + noted.places[i].size_bytes;

        if (last <= begin || first >= end) {
            continue;
        }
        if (first < begin || last > end) {
            return -1;
        }
        bytes += noted.places[i].node == node ? last - first : 0;
    }
    return bytes;
}

/* All of a half but what is no whole huge page is on its device's node, and
 * none of it elsewhere; what all share is not placed. */
static void test_memory(void)
{
    for (int swapped = 0; swapped < 2; swapped++) {
        const struct zo_numa numa = two_nodes(swapped, 1 - swapped);
        const int64_t least = BYTES / DEVICES - 2 * (int64_t)ZO_NUMA_ALIGN;
        struct update update;

        open_update(&update, &numa, 2, true);
        for (int d = 0; d < DEVICES; d++) {
            const zo_buffer_id ids[] = {update.pinned, update.pageable};
            const int node = numa.nodes[numa.device_nodes[d]];

            for (size_t i = 0; i < TAP_COUNT(ids); i++) {
                TAP_CHECK(placed_on(&update, ids[i], d, node) > least);
                TAP_CHECK_INT(placed_on(&update, ids[i], d, 11 - node), 0);
            }
            TAP_CHECK_INT(placed_on(&update, update.other, d, node), 0);
        }
        TAP_CHECK_INT(noted.place_count, 4);
        bench_close(&update.bench);
    }
}

/* ---- threads ------------------------------------------------------------- */

/* Two workers, on a node each, that go part by part together. */
static void test_near(void)
{
    for (int swapped = 0; swapped < 2; swapped++) {
        const struct zo_numa numa = two_nodes(swapped, 1 - swapped);
        pthread_barrier_t meet;
        struct update update;

        (void)pthread_barrier_init(&meet, NULL, 2);
        open_update(&update, &numa, 2, true);
        ran.meet = &meet;
        run_lists(&update, 3);
        for (int p = 0; p < PARTS; p++) {
            TAP_CHECK_INT(ran.nodes[p], numa.device_nodes[p * DEVICES / PARTS]);
        }
        TAP_CHECK_INT(noted.pin_count, 2);
        bench_close(&update.bench);
        (void)pthread_barrier_destroy(&meet);
    }
}

/* One worker does what is near first, and then all the rest. */
static void test_alone(void)
{
    static const int orders[2][PARTS] = {{0, 1, 2, 3, 4, 5, 6, 7},
                                         {4, 5, 6, 7, 0, 1, 2, 3}};

    for (int swapped = 0; swapped < 2; swapped++) {
        const struct zo_numa numa = two_nodes(swapped, 1 - swapped);
        struct update update;

        open_update(&update, &numa, 1, true);
        run_lists(&update, 5);
        TAP_CHECK(memcmp(ran.order, orders[swapped], sizeof(ran.order)) == 0);
        bench_close(&update.bench);
    }
}

/* ---- nothing to do ------------------------------------------------------- */

/* One node, and an operation that no device has a share of. */
static void test_nothing(void)
{
    struct zo_numa numa = two_nodes(0, 1);
    struct update update;

    open_update(&update, &numa, 2, false);
    run_lists(&update, 2);
    TAP_CHECK_INT(noted.place_count, 0);
    bench_close(&update.bench);
    numa = two_nodes(0, 1);
    numa.node_count = 0;
    open_update(&update, &numa, 2, true);
    run_lists(&update, 2);
    TAP_CHECK_INT(noted.place_count + noted.pin_count, 0);
    TAP_CHECK_INT(zo_executor_numa_refusal(update.bench.executor), 0);
    bench_close(&update.bench);
}

static void test_refusal(void)
{
    const struct zo_numa numa = two_nodes(0, 1);
    struct update update;

    noted.error = EPERM;
    open_update(&update, &numa, 2, true);
    run_lists(&update, 2);
    TAP_CHECK_INT(zo_executor_numa_refusal(update.bench.executor), EPERM);
    bench_close(&update.bench);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"shares of devices are placed on their nodes", test_memory},
        {"workers take the parts of devices near them", test_near},
        {"a worker alone does those first, then the others", test_alone},
        {"without nodes, or shares, nothing is asked of the system",
         test_nothing},
        {"a system that refuses is no failure", test_refusal},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
