/* The store behind the NVMe tier, on a disk and in memory, each way. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config_values.h"
#include "offload/nvme.h"
#include "src/base/memory.h"
#include "tests/nvme_help.h"
#include "tests/tap.h"

#define MIB ((size_t)1 << 20)

static const enum zo_nvme_how hows[] = {ZO_NVME_URING, ZO_NVME_UNREGISTERED,
                                        ZO_NVME_POOL};

static struct zo_nvme *open_store(const struct zo_nvme_options *options)
{
    struct zo_nvme *nvme = NULL;

    if (zo_nvme_open(options, &nvme) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "open: %s", zo_err_last()->text);
        return NULL;
    }
    return nvme;
}

/* ---- bytes ---- */

static bool keeps_bytes(const char *directory, enum zo_nvme_how how)
{
    const struct zo_nvme_options options = {.directory = directory,
                                            .bytes = 24 * MIB,
                                            .how = how,
                                            .block_bytes = 256 << 10,
                                            .allows_memory = true};
    const size_t bytes = 5 * MIB + 3 * ZO_NVME_ALIGN;
    struct zo_nvme *nvme = open_store(&options);
    char *memory = NULL;
    bool holds;

    if (nvme == NULL || zo_pages_alloc(bytes, "test", &memory) != ZO_OK) {
        zo_nvme_close(nvme);
        return false;
    }
    nvme_help_fill(memory, bytes, 1);
    holds = zo_nvme_register(nvme, memory, bytes) == ZO_OK &&
            nvme_help_move(nvme, true, 7 * MIB, memory, bytes) == ZO_OK;
    memset(memory, 0, bytes);
    holds = holds &&
            nvme_help_move(nvme, false, 7 * MIB, memory, bytes) == ZO_OK &&
            nvme_help_filled(memory, bytes, 1);
    zo_nvme_close(nvme);
    zo_pages_free(memory, bytes);
    return holds;
}

static void test_disk(void)
{
    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        TAP_CHECK(keeps_bytes(nvme_help_disk(), hows[h]));
    }
}

static void test_memory(void)
{
    if (nvme_help_memory() == NULL) {
        tap_skip("there is no /dev/shm");
        return;
    }
    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        TAP_CHECK(keeps_bytes(nvme_help_memory(), hows[h]));
    }
}

static void test_memory_refused(void)
{
    struct zo_nvme_options options = {.directory = nvme_help_memory(),
                                      .bytes = 4 * MIB};
    struct zo_nvme *nvme = NULL;

    if (options.directory == NULL) {
        tap_skip("there is no /dev/shm");
        return;
    }
    TAP_CHECK_INT(zo_nvme_open(&options, &nvme), ZO_E_IO);
    TAP_CHECK(strstr(zo_err_last()->text, "tmpfs") != NULL);
    options.allows_memory = true;
    nvme = open_store(&options);
    TAP_CHECK(nvme != NULL);
    TAP_CHECK(strstr(zo_nvme_notes(nvme), "tmpfs") != NULL);
    zo_nvme_close(nvme);
}

/* ---- random requests against a plain buffer ---- */

#define SUBMITTERS     3
#define REGIONS        6 /* of each submitter */
#define REGION_BYTES   (2 * MIB)
#define REGION_CHUNKS  2
#define SUBMITTER_RUNS 60

struct region {
    atomic_bool is_busy;
    atomic_int status;
    bool is_written, reads;
    size_t bytes;
    char *memory, *oracle;
};

struct submitter {
    struct zo_nvme *nvme;
    uint64_t index, random;
    char *memory; /* REGIONS * REGION_BYTES, twice: requests, oracle */
    struct region regions[REGIONS];
    bool is_wrong;
};

static uint64_t next_random(struct submitter *submitter)
{
    submitter->random = submitter->random * UINT64_C(6364136223846793005) + 1;
    return submitter->random >> 33;
}

static void region_done(void *context, enum zo_status status)
{
    struct region *region = context;

    atomic_store(&region->status, (int)status);
    atomic_store(&region->is_busy, false);
}

/* What a read brought is what the last write wrote. */
static void check_region(struct submitter *submitter, struct region *region)
{
    if (atomic_load(&region->status) != ZO_OK ||
        (region->reads &&
         memcmp(region->memory, region->oracle, region->bytes) != 0)) {
        submitter->is_wrong = true;
    }
    region->reads = false;
}

static void start_region(struct submitter *submitter, struct region *region,
                         uint64_t at)
{
    const bool writes = !region->is_written || next_random(submitter) % 2 == 0;
    struct zo_nvme_request request = {
        .writes = writes,
        .offset =
            (submitter->index * REGIONS + at) * REGION_CHUNKS * ZO_NVME_CHUNK,
        .memory = region->memory,
        .name = "a region",
        .done = region_done,
        .context = region,
    };

    if (writes) {
        const size_t pages = REGION_BYTES / ZO_NVME_ALIGN;

        region->bytes = (next_random(submitter) % pages + 1) * ZO_NVME_ALIGN;
        nvme_help_fill(region->memory, region->bytes, next_random(submitter));
        memcpy(region->oracle, region->memory, region->bytes);
        region->is_written = true;
    } else {
        memset(region->memory, 0, region->bytes);
    }
    region->reads = !writes;
    request.bytes = region->bytes;
    atomic_store(&region->is_busy, true);
    if (zo_nvme_submit(submitter->nvme, &request) != ZO_OK) {
        submitter->is_wrong = true;
        atomic_store(&region->is_busy, false);
    }
}

static void *submit_many(void *argument)
{
    struct submitter *submitter = argument;

    for (int run = 0; run < SUBMITTER_RUNS; run++) {
        uint64_t at = next_random(submitter) % REGIONS;

        while (atomic_load(&submitter->regions[at].is_busy)) {
            at = (at + 1) % REGIONS;
        }
        check_region(submitter, &submitter->regions[at]);
        start_region(submitter, &submitter->regions[at], at);
    }
    for (int at = 0; at < REGIONS; at++) {
        while (atomic_load(&submitter->regions[at].is_busy)) {
            (void)usleep(100);
        }
        check_region(submitter, &submitter->regions[at]);
    }
    return NULL;
}

static bool open_submitter(struct submitter *submitter, struct zo_nvme *nvme,
                           uint64_t index)
{
    memset(submitter, 0, sizeof(*submitter));
    submitter->nvme = nvme;
    submitter->index = index;
    submitter->random = index + 1;
    if (zo_pages_alloc(2 * REGIONS * REGION_BYTES, "test",
                       &submitter->memory) != ZO_OK) {
        return false;
    }
    for (size_t i = 0; i < REGIONS; i++) {
        submitter->regions[i].memory = submitter->memory + i * REGION_BYTES;
        submitter->regions[i].oracle =
            submitter->memory + (REGIONS + i) * REGION_BYTES;
    }
    return true;
}

/* Random requests of several threads; one's memory is registered, another's
 * in part. */
static bool survives(const struct zo_nvme_options *options)
{
    struct zo_nvme *nvme = open_store(options);
    struct submitter submitters[SUBMITTERS];
    pthread_t threads[SUBMITTERS];
    bool holds = nvme != NULL;

    for (uint64_t i = 0; holds && i < SUBMITTERS; i++) {
        holds = open_submitter(&submitters[i], nvme, i);
    }
    if (!holds) {
        return false;
    }
    /* Pieces that touch, and one that overlaps. */
    for (size_t at = 0; at < REGIONS * REGION_BYTES; at += REGION_BYTES) {
        holds = holds && zo_nvme_register(nvme, submitters[0].memory + at,
                                          REGION_BYTES) == ZO_OK;
    }
    holds = holds &&
            zo_nvme_register(nvme, submitters[0].memory + REGION_BYTES / 2,
                             REGION_BYTES) == ZO_OK &&
            zo_nvme_register(nvme, submitters[1].memory + ZO_NVME_ALIGN,
                             REGION_BYTES / 2) == ZO_OK;
    for (int i = 0; i < SUBMITTERS; i++) {
        (void)pthread_create(&threads[i], NULL, submit_many, &submitters[i]);
    }
    for (int i = 0; i < SUBMITTERS; i++) {
        (void)pthread_join(threads[i], NULL);
        holds = holds && !submitters[i].is_wrong;
    }
    zo_nvme_close(nvme);
    for (int i = 0; i < SUBMITTERS; i++) {
        zo_pages_free(submitters[i].memory, 2 * REGIONS * REGION_BYTES);
    }
    return holds;
}

static void test_random_requests(void)
{
    static const struct {
        enum zo_nvme_how how;
        int depth;
        size_t block_bytes;
    } cases[] = {
        {ZO_NVME_URING, 1, 0},
        {ZO_NVME_URING, 8, 64 << 10},
        {ZO_NVME_UNREGISTERED, 32, 3 << 19}, /* 1.5 MiB: not whole chunks */
        {ZO_NVME_POOL, 0, 4 << 20},
    };

    for (size_t i = 0; i < TAP_COUNT(cases); i++) {
        const struct zo_nvme_options options = {
            .directory = nvme_help_disk(),
            .allows_memory = true,
            .bytes = SUBMITTERS * REGIONS * REGION_BYTES,
            .how = cases[i].how,
            .depth = cases[i].depth,
            .block_bytes = cases[i].block_bytes,
            .threads = 3,
        };

        TAP_CHECK(survives(&options));
    }
}

/* ---- requests ---- */

static void test_bad_requests(void)
{
    const struct zo_nvme_options options = {.directory = nvme_help_disk(),
                                            .allows_memory = true,
                                            .bytes = 4 * MIB,
                                            .how = ZO_NVME_POOL};
    const size_t bytes = 2 * MIB;
    struct zo_nvme *nvme = open_store(&options);
    char *memory = NULL;

    TAP_CHECK(nvme != NULL);
    TAP_CHECK_INT(zo_pages_alloc(bytes, "test", &memory), ZO_OK);
    nvme_help_fill(memory, bytes, 1);
    TAP_CHECK_INT(nvme_help_move(nvme, true, 4096, memory, 4096), ZO_E_ARG);
    TAP_CHECK_INT(nvme_help_move(nvme, true, 0, memory, 0), ZO_E_ARG);
    TAP_CHECK_INT(nvme_help_move(nvme, true, 0, memory, 512), ZO_E_ARG);
    TAP_CHECK_INT(nvme_help_move(nvme, true, 0, memory + 512, 4096), ZO_E_ARG);
    TAP_CHECK_INT(nvme_help_move(nvme, true, 3 * MIB, memory, bytes), ZO_E_ARG);
    TAP_CHECK_INT(nvme_help_move(nvme, true, UINT64_MAX - MIB + 1, memory, MIB),
                  ZO_E_ARG);
    /* Nothing was written, then another length. */
    TAP_CHECK_INT(nvme_help_move(nvme, false, 0, memory, 4096), ZO_E_ARG);
    TAP_CHECK(strstr(zo_err_last()->text, "unit 7's first moments") != NULL);
    TAP_CHECK_INT(nvme_help_move(nvme, true, 0, memory, MIB + 4096), ZO_OK);
    TAP_CHECK_INT(nvme_help_move(nvme, false, 0, memory, MIB + 8192), ZO_E_ARG);
    TAP_CHECK_INT(nvme_help_move(nvme, false, 0, memory, 4096), ZO_E_ARG);
    TAP_CHECK_INT(nvme_help_move(nvme, false, MIB, memory, 4096), ZO_OK);
    TAP_CHECK_INT(nvme_help_move(nvme, false, 0, memory, MIB), ZO_OK);
    zo_nvme_close(nvme);
    zo_pages_free(memory, bytes);
}

static void test_bad_options(void)
{
    const struct zo_nvme_options good = {
        .directory = nvme_help_disk(), .allows_memory = true, .bytes = MIB};
    struct zo_nvme_options bad[9];
    struct zo_nvme *nvme = NULL;

    for (size_t i = 0; i < TAP_COUNT(bad); i++) {
        bad[i] = good;
    }
    bad[0].bytes = 0;
    bad[1].bytes = 4097;
    bad[2].bytes = UINT64_MAX / 4096 * 4096;
    bad[3].depth = -1;
    bad[4].depth = 4097;
    bad[5].block_bytes = 4095;
    bad[6].block_bytes = ((size_t)1 << 30) + 4096;
    bad[7].threads = 1025;
    bad[8].requests = -1;
    for (size_t i = 0; i < TAP_COUNT(bad); i++) {
        TAP_CHECK_INT(zo_nvme_open(&bad[i], &nvme), ZO_E_ARG);
    }
    TAP_CHECK(nvme == NULL);
    zo_nvme_close(nvme);
}

/* A request whose done holds its thread up, so that others must wait. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_inside, is_open;
    int order; /* of those behind it */
};

static void gate_done(void *context, enum zo_status status)
{
    struct gate *gate = context;

    (void)status;
    (void)pthread_mutex_lock(&gate->lock);
    gate->is_inside = true;
    (void)pthread_cond_broadcast(&gate->changed);
    while (!gate->is_open) {
        (void)pthread_cond_wait(&gate->changed, &gate->lock);
    }
    (void)pthread_mutex_unlock(&gate->lock);
}

struct behind {
    struct gate *gate;
    int order;
};

static void behind_done(void *context, enum zo_status status)
{
    struct behind *behind = context;

    (void)pthread_mutex_lock(&behind->gate->lock);
    behind->order = status == ZO_OK ? ++behind->gate->order : -1;
    (void)pthread_mutex_unlock(&behind->gate->lock);
}

static enum zo_status enter_gate(struct zo_nvme *nvme, struct gate *gate,
                                 char *memory)
{
    const struct zo_nvme_request request = {.writes = true,
                                            .memory = memory,
                                            .bytes = MIB,
                                            .name = "the gate",
                                            .done = gate_done,
                                            .context = gate};

    memset(gate, 0, sizeof(*gate));
    (void)pthread_mutex_init(&gate->lock, NULL);
    (void)pthread_cond_init(&gate->changed, NULL);
    ZO_TRY(zo_nvme_submit(nvme, &request));
    (void)pthread_mutex_lock(&gate->lock);
    while (!gate->is_inside) {
        (void)pthread_cond_wait(&gate->changed, &gate->lock);
    }
    (void)pthread_mutex_unlock(&gate->lock);
    return ZO_OK;
}

static void open_gate(struct gate *gate)
{
    (void)pthread_mutex_lock(&gate->lock);
    gate->is_open = true;
    (void)pthread_cond_broadcast(&gate->changed);
    (void)pthread_mutex_unlock(&gate->lock);
}

static void test_turns_and_limit(void)
{
    const struct zo_nvme_options options = {.directory = nvme_help_disk(),
                                            .allows_memory = true,
                                            .bytes = 12 * MIB,
                                            .how = ZO_NVME_POOL,
                                            .threads = 1,
                                            .requests = 2};
    struct zo_nvme *nvme = open_store(&options);
    char *memory = NULL;
    struct gate gate;
    struct behind write = {&gate, 0}, read = {&gate, 0};
    struct zo_nvme_request request = {.writes = true,
                                      .offset = 4 * MIB,
                                      .bytes = 8 * MIB,
                                      .name = "a large write",
                                      .done = behind_done,
                                      .context = &write};
    enum zo_status full;

    TAP_CHECK(nvme != NULL);
    TAP_CHECK_INT(zo_pages_alloc(9 * MIB, "test", &memory), ZO_OK);
    nvme_help_fill(memory, 9 * MIB, 1);
    TAP_CHECK_INT(enter_gate(nvme, &gate, memory + 8 * MIB), ZO_OK);
    request.memory = memory;
    TAP_CHECK_INT(zo_nvme_submit(nvme, &request), ZO_OK);
    request.writes = false;
    request.offset = 0;
    request.bytes = MIB;
    request.memory = memory + 8 * MIB;
    request.context = &read;
    TAP_CHECK_INT(zo_nvme_submit(nvme, &request), ZO_OK);
    full = zo_nvme_submit(nvme, &request);
    open_gate(&gate);
    zo_nvme_close(nvme);
    zo_pages_free(memory, 9 * MIB);
    TAP_CHECK_INT(full, ZO_E_BUSY);
    TAP_CHECK_INT(read.order, 1);
    TAP_CHECK_INT(write.order, 2);
}

static void test_close_waits(void)
{
    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        const struct zo_nvme_options options = {.directory = nvme_help_disk(),
                                                .allows_memory = true,
                                                .bytes = 16 * MIB,
                                                .how = hows[h]};
        struct zo_nvme *nvme = open_store(&options);
        struct nvme_wait wait;
        char *memory = NULL;

        TAP_CHECK(nvme != NULL);
        TAP_CHECK_INT(zo_pages_alloc(8 * MIB, "test", &memory), ZO_OK);
        nvme_help_fill(memory, 8 * MIB, 1);
        nvme_wait_init(&wait);
        TAP_CHECK_INT(nvme_help_start(nvme, &wait, true, 0, memory, 8 * MIB),
                      ZO_OK);
        TAP_CHECK_INT(
            nvme_help_start(nvme, &wait, true, 8 * MIB, memory, 8 * MIB),
            ZO_OK);
        zo_nvme_close(nvme);
        TAP_CHECK_INT(wait.under_way, 0);
        TAP_CHECK_INT(wait.failed, 0);
        nvme_wait_fini(&wait);
        zo_pages_free(memory, 8 * MIB);
    }
}

static void test_counts(void)
{
    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        const struct zo_nvme_options options = {.directory = nvme_help_disk(),
                                                .allows_memory = true,
                                                .bytes = 4 * MIB,
                                                .how = hows[h]};
        struct zo_nvme *nvme = open_store(&options);
        struct zo_nvme_counters counters;
        uint64_t allocations;
        char *memory = NULL;

        TAP_CHECK(nvme != NULL);
        TAP_CHECK_INT(zo_pages_alloc(2 * MIB, "test", &memory), ZO_OK);
        nvme_help_fill(memory, 2 * MIB, 1);
        TAP_CHECK_INT(zo_nvme_register(nvme, memory, 2 * MIB), ZO_OK);
        zo_nvme_counters(nvme, &counters);
        TAP_CHECK_INT((long long)counters.written_bytes, 0);
        TAP_CHECK_INT((long long)counters.reads, 0);
        TAP_CHECK_INT((long long)counters.busy_ns, 0);
        allocations = zo_memory_count();
        TAP_CHECK_INT(nvme_help_move(nvme, true, 0, memory, 2 * MIB), ZO_OK);
        TAP_CHECK_INT(nvme_help_move(nvme, false, MIB, memory, MIB), ZO_OK);
        TAP_CHECK_INT(nvme_help_move(nvme, false, 0, memory, MIB), ZO_OK);
        TAP_CHECK(zo_memory_count() == allocations);
        zo_nvme_close(nvme);
        zo_pages_free(memory, 2 * MIB);
    }
}

static void test_counts_bytes(void)
{
    const struct zo_nvme_options options = {.directory = nvme_help_disk(),
                                            .allows_memory = true,
                                            .bytes = 4 * MIB,
                                            .how = ZO_NVME_POOL};
    struct zo_nvme *nvme = open_store(&options);
    struct zo_nvme_counters counters;
    char *memory = NULL;

    TAP_CHECK(nvme != NULL);
    TAP_CHECK_INT(zo_pages_alloc(2 * MIB, "test", &memory), ZO_OK);
    nvme_help_fill(memory, 2 * MIB, 1);
    TAP_CHECK_INT(nvme_help_move(nvme, true, 0, memory, 2 * MIB), ZO_OK);
    TAP_CHECK_INT(nvme_help_move(nvme, false, MIB, memory, MIB), ZO_OK);
    TAP_CHECK_INT(nvme_help_move(nvme, false, 0, memory, MIB), ZO_OK);
    zo_nvme_counters(nvme, &counters);
    TAP_CHECK_INT((long long)counters.writes, 1);
    TAP_CHECK_INT((long long)counters.written_bytes, 2 * MIB);
    TAP_CHECK_INT((long long)counters.reads, 2);
    TAP_CHECK_INT((long long)counters.read_bytes, 2 * MIB);
    TAP_CHECK(counters.busy_ns > 0);
    zo_nvme_close(nvme);
    zo_pages_free(memory, 2 * MIB);
}

static void test_shape_and_notes(void)
{
    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        const struct zo_nvme_options options = {.directory = nvme_help_disk(),
                                                .allows_memory = true,
                                                .bytes = 4 * MIB,
                                                .how = hows[h],
                                                .depth = 5,
                                                .threads = 3,
                                                .block_bytes = 70000};
        struct zo_nvme *nvme = open_store(&options);
        struct zo_nvme_shape shape;

        TAP_CHECK(nvme != NULL);
        shape = zo_nvme_shape(nvme);
        TAP_CHECK_INT((long long)shape.bytes, 4 * MIB);
        TAP_CHECK_INT((long long)shape.block_bytes, 69632);
        TAP_CHECK_INT(shape.depth, shape.how == ZO_NVME_POOL ? 3 : 5);
        if (shape.how == hows[h] && shape.is_direct &&
            strstr(zo_nvme_notes(nvme), "tmpfs") == NULL) {
            TAP_CHECK(zo_nvme_notes(nvme)[0] == '\0');
        } else {
            TAP_CHECK(strstr(zo_nvme_notes(nvme), "NVMe: ") != NULL);
        }
        zo_nvme_close(nvme);
    }
}

static long long documented(enum zo_config_key key)
{
    return atoll(zo_config_row(key)->default_text);
}

/* zero-offload.json(5) has the defaults of the section aio from a table. */
static void test_documented_defaults(void)
{
    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        const struct zo_nvme_options options = {.directory = nvme_help_disk(),
                                                .allows_memory = true,
                                                .bytes = 4 * MIB,
                                                .how = hows[h]};
        struct zo_nvme *nvme = open_store(&options);
        struct zo_nvme_shape shape;

        TAP_CHECK(nvme != NULL);
        shape = zo_nvme_shape(nvme);
        TAP_CHECK_INT((long long)shape.block_bytes,
                      documented(ZO_KEY_AIO_BLOCK));
        TAP_CHECK_INT(shape.depth,
                      documented(shape.how == ZO_NVME_POOL ? ZO_KEY_AIO_PARALLEL
                                                           : ZO_KEY_AIO_DEPTH));
        zo_nvme_close(nvme);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"what is written on a disk is read again, each way", test_disk},
        {"what is written in memory is read again, each way", test_memory},
        {"a file system in memory is refused unless it is asked for",
         test_memory_refused},
        {"random requests of several threads keep every byte",
         test_random_requests},
        {"requests that cannot be right are refused", test_bad_requests},
        {"options out of range are refused", test_bad_options},
        {"reads and writes take turns, and so many wait at most",
         test_turns_and_limit},
        {"close waits for what is under way", test_close_waits},
        {"requests allocate nothing, and open is not counted", test_counts},
        {"bytes and requests are counted", test_counts_bytes},
        {"a store says what it came to be", test_shape_and_notes},
        {"what is not asked is what the manual says", test_documented_defaults},
    };
    const int code = tap_run(cases, TAP_COUNT(cases));

    nvme_help_remove();
    return code;
}
