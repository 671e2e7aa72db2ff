#include "src/base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "src/base/memory.h"
#include "src/base/thread.h"

#define WORKERS_MAX 1023

/*
 * One zo_pool_run(), on its caller's stack.  It is listed while it may have
 * indices that nobody has claimed, and outlives the workers inside: the
 * caller returns when there is none.
 */
struct job {
    zo_pool_fn fn;
    void *work; /* borrowed */
    int64_t count;
    atomic_int_least64_t next; /* the first index that nobody has claimed */
    struct job *later;         /* in the list; guarded by the pool's lock */
    int inside;                /* workers in it; guarded by the lock */
    bool is_listed;            /* guarded by the lock */
    pthread_cond_t all_left;
};

struct zo_pool {
    pthread_mutex_t lock;
    pthread_cond_t has_job;
    struct job *first; /* guarded by lock */
    bool is_closing;   /* guarded by lock */
    int workers;
    pthread_t threads[]; /* workers */
};

static void list_job(struct zo_pool *pool, struct job *job)
{
    struct job **link = &pool->first;

    while (*link != NULL) {
        link = &(*link)->later;
    }
    *link = job;
    job->is_listed = true;
}

static void unlist_job(struct zo_pool *pool, struct job *job)
{
    struct job **link = &pool->first;

    if (!job->is_listed) {
        return;
    }
    while (*link != job) {
        link = &(*link)->later;
    }
    *link = job->later;
    job->is_listed = false;
}

/* Runs indices until all are claimed. */
static void run_indices(struct job *job)
{
    for (;;) {
        const int64_t index = atomic_fetch_add(&job->next, 1);

        if (index >= job->count) {
            return;
        }
        job->fn(job->work, index);
    }
}

static void *worker_run(void *argument)
{
    struct zo_pool *pool = argument;

    (void)pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct job *job = pool->first;

        if (job == NULL) {
            if (pool->is_closing) {
                break;
            }
            (void)pthread_cond_wait(&pool->has_job, &pool->lock);
            continue;
        }
        job->inside++;
        (void)pthread_mutex_unlock(&pool->lock);
        run_indices(job);
        (void)pthread_mutex_lock(&pool->lock);
        unlist_job(pool, job);
        if (--job->inside == 0) {
            (void)pthread_cond_signal(&job->all_left);
        }
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return NULL;
}

enum zo_status zo_pool_open(int workers, struct zo_pool **pool_out)
{
    struct zo_pool *pool = NULL;
    enum zo_status status;

    if (workers < 0 || workers > WORKERS_MAX) {
        return ZO_FAIL(ZO_E_ARG, "thread pool: %d workers; want 0..%d", workers,
                       WORKERS_MAX);
    }
    ZO_TRY(zo_alloc(1,
                    sizeof(*pool) + (size_t)workers * sizeof(pool->threads[0]),
                    "a thread pool", &pool));
    (void)pthread_mutex_init(&pool->lock, NULL);
    (void)pthread_cond_init(&pool->has_job, NULL);
    for (; pool->workers < workers; pool->workers++) {
        char name[24];

        (void)snprintf(name, sizeof(name), "pool %d", pool->workers);
        ZO_TRY_GOTO(close_pool, zo_thread_start(name, worker_run, pool,
                                                &pool->threads[pool->workers]));
    }
    *pool_out = pool;
    return ZO_OK;

close_pool:
    zo_pool_close(pool);
    return status;
}

int zo_pool_width(const struct zo_pool *pool)
{
    return pool->workers + 1;
}

void zo_pool_run(struct zo_pool *pool, zo_pool_fn fn, void *work, int64_t count)
{
    struct job job = {.fn = fn, .work = work, .count = count};

    if (pool->workers == 0 || count <= 1) {
        for (int64_t index = 0; index < count; index++) {
            fn(work, index);
        }
        return;
    }
    (void)pthread_cond_init(&job.all_left, NULL);
    (void)pthread_mutex_lock(&pool->lock);
    list_job(pool, &job);
    (void)pthread_mutex_unlock(&pool->lock);
    if (count == 2) {
        (void)pthread_cond_signal(&pool->has_job);
    } else {
        (void)pthread_cond_broadcast(&pool->has_job);
    }
    run_indices(&job);
    (void)pthread_mutex_lock(&pool->lock);
    unlist_job(pool, &job);
    while (job.inside > 0) {
        (void)pthread_cond_wait(&job.all_left, &pool->lock);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    (void)pthread_cond_destroy(&job.all_left);
}

void zo_pool_close(struct zo_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&pool->lock);
    pool->is_closing = true;
    (void)pthread_mutex_unlock(&pool->lock);
    (void)pthread_cond_broadcast(&pool->has_job);
    for (int i = 0; i < pool->workers; i++) {
        (void)pthread_join(pool->threads[i], NULL);
    }
    (void)pthread_cond_destroy(&pool->has_job);
    (void)pthread_mutex_destroy(&pool->lock);
    zo_free(pool);
}
