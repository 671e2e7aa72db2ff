/*
 * Collectives of the host, with random delays in the streams.
 *
 * Method: every byte names its round, its source and its place, so a piece
 * that came late, early or from the wrong rank shows.  Buffers are written
 * again right behind a collective, on the same stream: only its own promise
 * keeps that from reaching the other ranks.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/memory.h"
#include "src/comm/comm.h"
#include "src/device/stream_host.h"
#include "tests/tap.h"

static const struct zo_device_ops *const host = &zo_device_host;

enum { PIECE = 96, STRIDE = 128, RANKS = 5 };

struct bench {
    int ranks;
    struct zo_device *devices[ZO_RANKS_MAX];
    struct zo_stream *streams[ZO_RANKS_MAX];
    void *sources[ZO_RANKS_MAX];
    void *targets[ZO_RANKS_MAX];
    struct zo_comm *comm;
};

static enum zo_status bench_open(struct bench *bench, int ranks,
                                 uint32_t delay_us_max)
{
    const struct zo_device_options options = {.delay_seed = 3,
                                              .delay_us_max = delay_us_max};
    const size_t bytes = (size_t)ranks * STRIDE;

    *bench = (struct bench){.ranks = ranks};
    for (int r = 0; r < ranks; r++) {
        ZO_TRY(host->open(r, &options, &bench->devices[r]));
        ZO_TRY(
            host->stream_open(bench->devices[r], "comm", &bench->streams[r]));
        ZO_TRY(zo_alloc(bytes, 1, "a source", &bench->sources[r]));
        ZO_TRY(zo_alloc(bytes, 1, "a target", &bench->targets[r]));
    }
    return zo_comm_host.open(bench->devices, ranks, &bench->comm);
}

static enum zo_status bench_sync(struct bench *bench)
{
    for (int r = 0; r < bench->ranks; r++) {
        ZO_TRY(host->stream_sync(bench->streams[r]));
    }
    return ZO_OK;
}

static void bench_close(struct bench *bench)
{
    for (int r = 0; r < bench->ranks; r++) {
        host->stream_close(bench->streams[r]);
    }
    zo_comm_host.close(bench->comm);
    for (int r = 0; r < bench->ranks; r++) {
        host->close(bench->devices[r]);
        zo_free(bench->sources[r]);
        zo_free(bench->targets[r]);
    }
}

static struct zo_comm_exchange_args exchange_args(struct bench *bench)
{
    return (struct zo_comm_exchange_args){
        .streams = bench->streams,
        .targets = bench->targets,
        .sources = (const void *const *)bench->sources,
        .piece_bytes = PIECE,
        .stride_bytes = STRIDE,
    };
}

static struct zo_comm_all_gather_args gather_args(struct bench *bench)
{
    return (struct zo_comm_all_gather_args){
        .streams = bench->streams,
        .buffers = bench->targets,
        .piece_bytes = PIECE,
    };
}

static int mark_of(int round, int from, int to)
{
    return (round * 31 + from * 7 + to * 3 + 1) & 0xff;
}

/* ---- the streams write, and check, with the collective between ------- */

struct check_args {
    const unsigned char *target;
    int round, rank, ranks;
    bool is_gather; /* then a piece is the same for every rank */
};

static enum zo_status check_target(struct zo_pool *pool, const void *args)
{
    struct check_args check;

    (void)pool;
    memcpy(&check, args, sizeof(check));
    for (int s = 0; s < check.ranks; s++) {
        const int want =
            mark_of(check.round, s, check.is_gather ? 0 : check.rank);

        for (int i = 0; i < PIECE; i++) {
            const int got = check.target[s * PIECE + i];

            if (got != want) {
                return ZO_FAIL(ZO_E_CORRUPT,
                               "round %d, rank %d, piece %d: %d, want %d",
                               check.round, check.rank, s, got, want);
            }
        }
    }
    return ZO_OK;
}

static enum zo_status submit_check(struct bench *bench, int round, int rank,
                                   bool is_gather)
{
    const struct check_args check = {bench->targets[rank], round, rank,
                                     bench->ranks, is_gather};

    return zo_stream_host_submit(bench->streams[rank], check_target, &check,
                                 sizeof(check));
}

static enum zo_status exchange_round(struct bench *bench, int round)
{
    const struct zo_comm_exchange_args args = exchange_args(bench);

    for (int s = 0; s < bench->ranks; s++) {
        for (int d = 0; d < bench->ranks; d++) {
            ZO_TRY(host->fill(bench->streams[s],
                              (char *)bench->sources[s] + d * STRIDE,
                              mark_of(round, s, d), PIECE));
        }
    }
    ZO_TRY(zo_comm_host.exchange(bench->comm, &args));
    for (int r = 0; r < bench->ranks; r++) {
        /* Nobody may still read the source. */
        ZO_TRY(host->fill(bench->streams[r], bench->sources[r], 0,
                          (size_t)bench->ranks * STRIDE));
        ZO_TRY(submit_check(bench, round, r, false));
    }
    return ZO_OK;
}

static enum zo_status gather_round(struct bench *bench, int round)
{
    const struct zo_comm_all_gather_args args = gather_args(bench);

    for (int r = 0; r < bench->ranks; r++) {
        ZO_TRY(host->fill(bench->streams[r], bench->targets[r], 0,
                          (size_t)bench->ranks * PIECE));
        ZO_TRY(host->fill(bench->streams[r],
                          (char *)bench->targets[r] + r * PIECE,
                          mark_of(round, r, 0), PIECE));
    }
    ZO_TRY(zo_comm_host.all_gather(bench->comm, &args));
    for (int r = 0; r < bench->ranks; r++) {
        ZO_TRY(submit_check(bench, round, r, true));
    }
    return ZO_OK;
}

static void run_rounds(enum zo_status (*round)(struct bench *, int))
{
    static const int rank_counts[] = {1, 2, 3, RANKS};

    for (size_t i = 0; i < TAP_COUNT(rank_counts); i++) {
        struct bench bench;

        TAP_CHECK_INT(bench_open(&bench, rank_counts[i], 30), ZO_OK);
        zo_memory_freeze(true);
        for (int k = 0; k < 25; k++) {
            TAP_CHECK_INT(round(&bench, k), ZO_OK);
        }
        zo_memory_freeze(false);
        if (bench_sync(&bench) != ZO_OK) {
            tap_fail(__FILE__, __LINE__, "%d ranks: %s", rank_counts[i],
                     zo_err_last()->text);
        }
        bench_close(&bench);
    }
}

static void test_exchange(void)
{
    run_rounds(exchange_round);
}

static void test_all_gather(void)
{
    run_rounds(gather_round);
}

static enum zo_status mixed_round(struct bench *bench, int round)
{
    ZO_TRY(exchange_round(bench, round));
    return gather_round(bench, round);
}

static void test_mixed(void)
{
    run_rounds(mixed_round);
}

static void test_64_ranks(void)
{
    struct bench bench;

    TAP_CHECK_INT(bench_open(&bench, ZO_RANKS_MAX, 0), ZO_OK);
    TAP_CHECK_INT(exchange_round(&bench, 1), ZO_OK);
    TAP_CHECK_INT(gather_round(&bench, 2), ZO_OK);
    TAP_CHECK_INT(bench_sync(&bench), ZO_OK);
    bench_close(&bench);
}

/* ---- a late rank ---------------------------------------------------- */

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool is_open;
};

static enum zo_status pass_gate(struct zo_pool *pool, const void *args)
{
    struct gate *gate;

    (void)pool;
    memcpy(&gate, args, sizeof(gate));
    (void)pthread_mutex_lock(&gate->lock);
    while (!gate->is_open) {
        (void)pthread_cond_wait(&gate->opened, &gate->lock);
    }
    (void)pthread_mutex_unlock(&gate->lock);
    return ZO_OK;
}

static void gate_open(struct gate *gate)
{
    (void)pthread_mutex_lock(&gate->lock);
    gate->is_open = true;
    (void)pthread_cond_broadcast(&gate->opened);
    (void)pthread_mutex_unlock(&gate->lock);
}

/* Also with nothing to move. */
static void test_barrier(void)
{
    const struct timespec pause = {0, 20000000};
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER,
                        false};
    struct gate *at = &gate;
    struct bench bench;
    struct zo_event *passed[3];
    struct zo_comm_exchange_args args;
    bool is_passed = true;

    TAP_CHECK_INT(bench_open(&bench, 3, 0), ZO_OK);
    args = exchange_args(&bench);
    args.piece_bytes = 0;
    args.sources = NULL;
    args.targets = NULL;
    TAP_CHECK_INT(
        zo_stream_host_submit(bench.streams[1], pass_gate, &at, sizeof(at)),
        ZO_OK);
    TAP_CHECK_INT(zo_comm_host.exchange(bench.comm, &args), ZO_OK);
    for (int r = 0; r < 3; r++) {
        TAP_CHECK_INT(host->event_open(bench.devices[r], &passed[r]), ZO_OK);
        TAP_CHECK_INT(host->event_record(bench.streams[r], passed[r]), ZO_OK);
    }
    (void)nanosleep(&pause, NULL);
    for (int r = 0; r < 3; r++) {
        TAP_CHECK_INT(host->event_query(passed[r], &is_passed), ZO_OK);
        TAP_CHECK(!is_passed);
    }
    gate_open(&gate);
    TAP_CHECK_INT(bench_sync(&bench), ZO_OK);
    for (int r = 0; r < 3; r++) {
        host->event_close(passed[r]);
    }
    bench_close(&bench);
}

static enum zo_status fail(struct zo_pool *pool, const void *args)
{
    (void)pool, (void)args;
    return ZO_FAIL(ZO_E_INJECTED, "rank 2 is gone");
}

static void test_failure_reaches_all(void)
{
    struct bench bench;
    struct zo_comm_exchange_args args;

    TAP_CHECK_INT(bench_open(&bench, 3, 20), ZO_OK);
    args = exchange_args(&bench);
    TAP_CHECK_INT(zo_stream_host_submit(bench.streams[2], fail, NULL, 0),
                  ZO_OK);
    TAP_CHECK_INT(zo_comm_host.exchange(bench.comm, &args), ZO_OK);
    for (int r = 0; r < 3; r++) {
        TAP_CHECK_INT(host->stream_sync(bench.streams[r]), ZO_E_INJECTED);
        TAP_CHECK(strcmp(zo_err_last()->text, "rank 2 is gone") == 0);
    }
    /* All have been told: the next one works. */
    TAP_CHECK_INT(exchange_round(&bench, 1), ZO_OK);
    TAP_CHECK_INT(bench_sync(&bench), ZO_OK);
    bench_close(&bench);
}

/* ---- refusals ------------------------------------------------------- */

static void test_refusals(void)
{
    struct zo_comm *untouched = (struct zo_comm *)&untouched;
    struct zo_comm *comm = untouched;
    struct zo_comm_exchange_args exchange;
    struct zo_comm_all_gather_args gather;
    struct bench bench;
    void *holes[2];

    TAP_CHECK_INT(bench_open(&bench, 2, 0), ZO_OK);
    TAP_CHECK_INT(zo_comm_host.open(bench.devices, 0, &comm), ZO_E_ARG);
    TAP_CHECK_INT(zo_comm_host.open(bench.devices, 65, &comm), ZO_E_ARG);
    TAP_CHECK(comm == untouched);

    exchange = exchange_args(&bench);
    exchange.stride_bytes = PIECE - 1;
    TAP_CHECK_INT(zo_comm_host.exchange(bench.comm, &exchange), ZO_E_ARG);
    exchange.stride_bytes = SIZE_MAX / 2;
    TAP_CHECK_INT(zo_comm_host.exchange(bench.comm, &exchange), ZO_E_ARG);
    exchange = exchange_args(&bench);
    exchange.sources = NULL;
    TAP_CHECK_INT(zo_comm_host.exchange(bench.comm, &exchange), ZO_E_ARG);
    exchange = exchange_args(&bench);
    holes[0] = bench.targets[0];
    holes[1] = NULL;
    exchange.targets = holes;
    TAP_CHECK_INT(zo_comm_host.exchange(bench.comm, &exchange), ZO_E_ARG);
    TAP_CHECK(strstr(zo_err_last()->text, "rank 1") != NULL);

    gather = gather_args(&bench);
    gather.streams = NULL;
    TAP_CHECK_INT(zo_comm_host.all_gather(bench.comm, &gather), ZO_E_ARG);
    gather = gather_args(&bench);
    gather.piece_bytes = SIZE_MAX;
    TAP_CHECK_INT(zo_comm_host.all_gather(bench.comm, &gather), ZO_E_ARG);
    gather = gather_args(&bench);
    gather.buffers = holes;
    TAP_CHECK_INT(zo_comm_host.all_gather(bench.comm, &gather), ZO_E_ARG);

    TAP_CHECK_INT(bench_sync(&bench), ZO_OK);
    for (int i = 0; i < 2 * STRIDE; i++) {
        TAP_CHECK_INT(((char *)bench.targets[0])[i], 0);
    }
    bench_close(&bench);
    zo_comm_host.close(NULL);
}

static void test_abort(void)
{
    struct zo_comm_exchange_args exchange;
    struct zo_comm_all_gather_args gather;
    struct bench bench;

    TAP_CHECK_INT(bench_open(&bench, 3, 20), ZO_OK);
    exchange = exchange_args(&bench);
    gather = gather_args(&bench);
    TAP_CHECK_INT(zo_comm_host.check(bench.comm), ZO_OK);
    TAP_CHECK_INT(exchange_round(&bench, 1), ZO_OK);
    zo_comm_host.abort(bench.comm);
    zo_comm_host.abort(bench.comm);
    TAP_CHECK_INT(bench_sync(&bench), ZO_OK);
    TAP_CHECK_INT(zo_comm_host.check(bench.comm), ZO_E_COMM);
    TAP_CHECK_INT(zo_comm_host.exchange(bench.comm, &exchange), ZO_E_COMM);
    TAP_CHECK_INT(zo_comm_host.all_gather(bench.comm, &gather), ZO_E_COMM);
    TAP_CHECK(strstr(zo_err_last()->text, "aborted") != NULL);
    bench_close(&bench);
}

static void test_facts(void)
{
    struct bench bench;

    TAP_CHECK_INT(bench_open(&bench, 2, 0), ZO_OK);
    TAP_CHECK(zo_comm_host.lack == NULL);
    TAP_CHECK_INT((long long)zo_comm_host.own_device_bytes(bench.comm, 1), 0);
    TAP_CHECK(strcmp(zo_comm_host.notes(bench.comm), "") == 0);
    bench_close(&bench);
}

/* A build without one says so, and one with it asks for devices. */
static void test_lack(void)
{
    static const struct zo_comm_ops *const ways[] = {&zo_comm_peer,
                                                     &zo_comm_nccl};

    for (size_t i = 0; i < TAP_COUNT(ways); i++) {
        struct zo_comm *untouched = (struct zo_comm *)&untouched;
        struct zo_comm *comm = untouched;
        const enum zo_status status = ways[i]->open(NULL, 0, &comm);

        TAP_CHECK(strcmp(ways[i]->kind, "cuda") == 0);
        TAP_CHECK_INT(status,
                      ways[i]->lack == NULL ? ZO_E_ARG : ZO_E_NOSUPPORT);
        TAP_CHECK(ways[i]->lack == NULL ||
                  strstr(zo_err_last()->text, ways[i]->lack) != NULL);
        TAP_CHECK(comm == untouched);
        ways[i]->close(NULL);
    }
}

static void test_environment(void)
{
    char text[64], small[16];

    (void)unsetenv("ZOTEST_B");
    TAP_CHECK(strcmp(zo_comm_environment("ZOTEST_", text, sizeof(text)), "") ==
              0);
    TAP_CHECK_INT(setenv("ZOTEST_B", "1", 1), 0);
    TAP_CHECK_INT(setenv("ZOTEST_A", "eth0,eth1", 1), 0);
    TAP_CHECK_INT(setenv("ZOTEST_C", "", 1), 0);
    TAP_CHECK_INT(setenv("AZOTEST_D", "4", 1), 0);
    TAP_CHECK(strcmp(zo_comm_environment("ZOTEST_", text, sizeof(text)),
                     "ZOTEST_A=eth0,eth1 ZOTEST_B=1 ZOTEST_C=") == 0);
    TAP_CHECK(strcmp(zo_comm_environment("ZOTEST_", small, sizeof(small)),
                     "ZOTEST_A=eth...") == 0);
    TAP_CHECK(strcmp(zo_comm_environment("ZOTEST_B", small, sizeof(small)),
                     "ZOTEST_B=1") == 0);
}

static void test_failed_allocations(void)
{
    struct zo_comm *untouched = (struct zo_comm *)&untouched;
    struct bench bench;
    uint64_t nth = 0;

    TAP_CHECK_INT(bench_open(&bench, 3, 0), ZO_OK);
    for (bool is_open = false; !is_open; nth++) {
        struct zo_comm *comm = untouched;

        TAP_CHECK(nth < 32);
        zo_memory_fail_at(nth + 1);
        is_open = zo_comm_host.open(bench.devices, 3, &comm) == ZO_OK;
        zo_memory_fail_at(0);
        TAP_CHECK(is_open || comm == untouched);
        zo_comm_host.close(is_open ? comm : NULL);
    }
    TAP_CHECK_INT(nth, 8); /* the record and two events a rank */
    bench_close(&bench);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"an exchange gives each rank its pieces in rank order", test_exchange},
        {"an all-gather gives each rank all pieces", test_all_gather},
        {"collectives may follow each other at once", test_mixed},
        {"64 ranks work", test_64_ranks},
        {"no stream passes before all have come", test_barrier},
        {"a failure on one stream reaches all", test_failure_reaches_all},
        {"bad arguments are refused and queue nothing", test_refusals},
        {"an abort ends collectives for good", test_abort},
        {"the host's own bytes and notes are none", test_facts},
        {"a build without one of them says so", test_lack},
        {"variables of the environment are listed by name", test_environment},
        {"each failed allocation of open is clean", test_failed_allocations},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
