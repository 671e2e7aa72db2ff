/* The thread pool and the count of usable cores. */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/cpu.h"
#include "src/base/memory.h"
#include "src/base/pool.h"
#include "src/base/thread.h"
#include "tests/tap.h"

#define INDICES 1000

struct tally {
    atomic_int runs[INDICES];
};

static void count_run(void *work, int64_t index)
{
    struct tally *tally = work;

    atomic_fetch_add(&tally->runs[index], 1);
}

static bool ran_once(const struct tally *tally, int64_t count)
{
    for (int64_t i = 0; i < INDICES; i++) {
        if (atomic_load(&tally->runs[i]) != (i < count ? 1 : 0)) {
            return false;
        }
    }
    return true;
}

static void test_runs_each_once(void)
{
    static const int widths[] = {0, 1, 3, 8};
    static const int64_t counts[] = {0, 1, 2, 3, 17, INDICES};

    for (size_t w = 0; w < TAP_COUNT(widths); w++) {
        struct zo_pool *pool = NULL;

        TAP_CHECK_INT(zo_pool_open(widths[w], &pool), ZO_OK);
        TAP_CHECK_INT(zo_pool_width(pool), widths[w] + 1);
        for (size_t c = 0; c < TAP_COUNT(counts); c++) {
            for (int again = 0; again < 20; again++) {
                struct tally tally = {0};

                zo_pool_run(pool, count_run, &tally, counts[c]);
                TAP_CHECK(ran_once(&tally, counts[c]));
            }
        }
        zo_pool_close(pool);
    }
}

/* All workers must be inside at once, else this would never end. */
struct meeting {
    pthread_barrier_t barrier;
};

static void meet(void *work, int64_t index)
{
    struct meeting *meeting = work;

    (void)index;
    (void)pthread_barrier_wait(&meeting->barrier);
}

static void test_all_take_part(void)
{
    struct zo_pool *pool = NULL;
    struct meeting meeting;

    TAP_CHECK_INT(zo_pool_open(3, &pool), ZO_OK);
    (void)pthread_barrier_init(&meeting.barrier, NULL, 4);
    for (int again = 0; again < 50; again++) {
        zo_pool_run(pool, meet, &meeting, 4);
    }
    (void)pthread_barrier_destroy(&meeting.barrier);
    zo_pool_close(pool);
}

static void finish_late(void *work, int64_t index)
{
    const struct timespec pause = {0, 5000000};

    (void)nanosleep(&pause, NULL);
    count_run(work, index);
}

static void test_returns_when_done(void)
{
    struct zo_pool *pool = NULL;

    TAP_CHECK_INT(zo_pool_open(3, &pool), ZO_OK);
    for (int again = 0; again < 5; again++) {
        struct tally tally = {0};

        zo_pool_run(pool, finish_late, &tally, 6);
        TAP_CHECK(ran_once(&tally, 6));
    }
    zo_pool_close(pool);
}

static void *is_term_blocked(void *argument)
{
    bool *is_blocked = argument;
    sigset_t set;

    (void)pthread_sigmask(SIG_SETMASK, NULL, &set);
    *is_blocked = sigismember(&set, SIGTERM) == 1;
    return NULL;
}

/* Signals are the main thread's. */
static void test_signals_blocked(void)
{
    bool is_blocked = false;
    pthread_t thread;

    TAP_CHECK_INT(zo_thread_start("a name that is too long for the kernel",
                                  is_term_blocked, &is_blocked, &thread),
                  ZO_OK);
    (void)pthread_join(thread, NULL);
    TAP_CHECK(is_blocked);
    (void)is_term_blocked(&is_blocked);
    TAP_CHECK(!is_blocked);
}

struct caller {
    struct zo_pool *pool;
    bool all_ran_once;
};

static void *call_often(void *argument)
{
    struct caller *caller = argument;

    caller->all_ran_once = true;
    for (int64_t again = 0; again < 200; again++) {
        struct tally tally = {0};

        zo_pool_run(caller->pool, count_run, &tally, again % 7);
        caller->all_ran_once &= ran_once(&tally, again % 7);
    }
    return NULL;
}

static void test_several_callers(void)
{
    struct caller callers[6];
    pthread_t threads[6];
    struct zo_pool *pool = NULL;

    TAP_CHECK_INT(zo_pool_open(2, &pool), ZO_OK);
    for (size_t i = 0; i < TAP_COUNT(callers); i++) {
        callers[i] = (struct caller){pool, false};
        TAP_CHECK_INT(
            pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    }
    for (size_t i = 0; i < TAP_COUNT(callers); i++) {
        (void)pthread_join(threads[i], NULL);
        TAP_CHECK(callers[i].all_ran_once);
    }
    zo_pool_close(pool);
}

static void test_allocates_nothing(void)
{
    struct zo_pool *pool = NULL;
    struct tally tally = {0};

    TAP_CHECK_INT(zo_pool_open(2, &pool), ZO_OK);
    zo_memory_freeze(true);
    zo_pool_run(pool, count_run, &tally, INDICES);
    zo_memory_freeze(false);
    TAP_CHECK(ran_once(&tally, INDICES));
    zo_pool_close(pool);
}

static void test_open_fails(void)
{
    struct zo_pool *untouched = (struct zo_pool *)&untouched, *pool = untouched;

    TAP_CHECK_INT(zo_pool_open(-1, &pool), ZO_E_ARG);
    TAP_CHECK_INT(zo_pool_open(1024, &pool), ZO_E_ARG);
    TAP_CHECK(strstr(zo_err_last()->text, "1024 workers") != NULL);
    zo_memory_fail_at(1);
    TAP_CHECK_INT(zo_pool_open(1, &pool), ZO_E_NOMEM);
    zo_memory_fail_at(0);
    TAP_CHECK(pool == untouched);
    zo_pool_close(NULL);
}

/* The address space is made too small for 1023 stacks of 8 MiB. */
static void test_threads_refused(void)
{
#ifdef ZO_SANITIZED
    tap_skip("a sanitizer needs all of the address space");
#else
    struct zo_pool *untouched = (struct zo_pool *)&untouched, *pool = untouched;
    struct rlimit before, small;
    enum zo_status status;

    TAP_CHECK_INT(getrlimit(RLIMIT_AS, &before), 0);
    small = before;
    small.rlim_cur = (rlim_t)2 << 30;
    TAP_CHECK_INT(setrlimit(RLIMIT_AS, &small), 0);
    status = zo_pool_open(1023, &pool);
    TAP_CHECK_INT(setrlimit(RLIMIT_AS, &before), 0);
    TAP_CHECK_INT(status, ZO_E_NOMEM);
    TAP_CHECK(pool == untouched);
    TAP_CHECK(strstr(zo_err_last()->text, "cannot start thread") != NULL);
    TAP_CHECK(zo_err_last()->native != 0);
#endif
}

/* ---- cores ---------------------------------------------------------- */

/* A folder of made-up control groups; ended by tree_remove(). */
struct tree {
    char root[64];
};

static bool tree_make(struct tree *tree)
{
    (void)snprintf(tree->root, sizeof(tree->root), "test-pool-%ld",
                   (long)getpid());
    return mkdir(tree->root, 0700) == 0;
}

static void tree_write(const struct tree *tree, const char *name,
                       const char *text)
{
    char path[256];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", tree->root, name);
    for (char *slash = strchr(path, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    file = fopen(path, "w");
    if (file != NULL) {
        (void)fputs(text, file);
        (void)fclose(file);
    }
}

static int tree_quota(const struct tree *tree)
{
    char membership[128];

    (void)snprintf(membership, sizeof(membership), "%s/self", tree->root);
    return zo_cpu_quota(membership, tree->root);
}

static void tree_remove(const struct tree *tree, const char *const *names,
                        size_t count)
{
    char path[256];

    for (size_t i = 0; i < count; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", tree->root, names[i]);
        (void)remove(path);
    }
    (void)rmdir(tree->root);
}

static void test_quota_v2(void)
{
    static const char *const names[] = {"self",    "a/b/cpu.max", "a/cpu.max",
                                        "cpu.max", "a/b",         "a"};
    struct tree tree;
    int quota[5];

    TAP_CHECK(tree_make(&tree));
    tree_write(&tree, "self", "0::/a/b\n");
    quota[0] = tree_quota(&tree);
    tree_write(&tree, "a/b/cpu.max", "max 100000\n");
    quota[1] = tree_quota(&tree);
    tree_write(&tree, "a/cpu.max", "350000 100000\n");
    quota[2] = tree_quota(&tree);
    tree_write(&tree, "cpu.max", "100000 100000\n");
    quota[3] = tree_quota(&tree);
    tree_write(&tree, "self", "0::/not/here\n");
    quota[4] = tree_quota(&tree);
    tree_remove(&tree, names, TAP_COUNT(names));
    TAP_CHECK_INT(quota[0], 0);
    TAP_CHECK_INT(quota[1], 0);
    TAP_CHECK_INT(quota[2], 4); /* 3.5, rounded up */
    TAP_CHECK_INT(quota[3], 1); /* a parent's is smaller */
    TAP_CHECK_INT(quota[4], 1);
}

static void test_quota_v1(void)
{
    static const char *const names[] = {"self", "cpu/g/cpu.cfs_quota_us",
                                        "cpu/g/cpu.cfs_period_us", "cpu/g",
                                        "cpu"};
    struct tree tree;
    int quota[3];

    TAP_CHECK(tree_make(&tree));
    tree_write(&tree, "self", "5:memory:/m\n4:cpuset:/x\n3:cpu,cpuacct:/g\n");
    tree_write(&tree, "cpu/g/cpu.cfs_quota_us", "-1\n");
    quota[0] = tree_quota(&tree);
    tree_write(&tree, "cpu/g/cpu.cfs_quota_us", "200000\n");
    quota[1] = tree_quota(&tree);
    tree_write(&tree, "cpu/g/cpu.cfs_period_us", "100000\n");
    quota[2] = tree_quota(&tree);
    tree_remove(&tree, names, TAP_COUNT(names));
    TAP_CHECK_INT(quota[0], 0);
    TAP_CHECK_INT(quota[1], 0); /* no period */
    TAP_CHECK_INT(quota[2], 2);
}

static void test_quota_hostile(void)
{
    static const char *const names[] = {"self", "cpu.max"};
    static const char *const texts[] = {
        "", "x", "1", "-5 7", "5 0", "5 -1", "99999999999999999999 1"};
    struct tree tree;
    int sum = 0;

    TAP_CHECK(tree_make(&tree));
    tree_write(&tree, "self", "no colon\n0:\n:::\n0::/\n");
    for (size_t i = 0; i < TAP_COUNT(texts); i++) {
        tree_write(&tree, "cpu.max", texts[i]);
        sum += tree_quota(&tree);
    }
    tree_remove(&tree, names, TAP_COUNT(names));
    TAP_CHECK_INT(sum, 0);
    TAP_CHECK_INT(zo_cpu_quota("no/such/file", "."), 0);
}

static void test_cpu_count(void)
{
    TAP_CHECK(zo_cpu_count() >= 1);
    TAP_CHECK(zo_cpu_count() <= sysconf(_SC_NPROCESSORS_CONF));
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"each index runs exactly once at any width", test_runs_each_once},
        {"the caller and all workers can be inside at once",
         test_all_take_part},
        {"a loop returns when every index is done", test_returns_when_done},
        {"a started thread has its signals blocked, the starter not",
         test_signals_blocked},
        {"several threads may run loops at the same time",
         test_several_callers},
        {"a loop allocates nothing", test_allocates_nothing},
        {"a failed open leaves nothing behind", test_open_fails},
        {"threads that the system refuses are an error", test_threads_refused},
        {"the quota of version 2 is the smallest up to the root",
         test_quota_v2},
        {"the quota of version 1 needs its period", test_quota_v1},
        {"nonsense in quota files is no quota", test_quota_hostile},
        {"at least one core counts, at most those there are", test_cpu_count},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
