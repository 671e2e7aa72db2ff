/*
 * The executor's CPU engine: workers that run a part of any ready operation,
 * lowest priority number first, then the oldest.  An operation stays ready
 * until its last part has been taken, so that several workers share it and
 * turn to a more urgent one as soon as there is one.  Row 5.
 */
#include <string.h>

#include "offload/executor_internal.h"
#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/base/thread.h"

/* The next part of a device's share, of which so many are taken; -1: none. */
static int take_of_device(const struct zo_executor *executor, int64_t parts,
                          int64_t device, int *taken)
{
    const int64_t devices = executor->machine->device_count;
    const int first = (int)(parts * device / devices);
    const int end = (int)(parts * (device + 1) / devices);

    return *taken < end - first ? first + (*taken)++ : -1;
}

/* A part of an operation: of a device near the worker, while there is one. */
static int take_part(struct zo_executor *executor, uint64_t number, int node)
{
    struct zo_instance *instance = zo_instance_at(executor, number);
    const struct zo_op *op = zo_instance_op(executor, instance);
    const size_t devices = (size_t)executor->machine->device_count;
    int *taken, part = -1;

    if (executor->numa == NULL || !op->is_shared) {
        return instance->parts_taken++;
    }
    taken =
        &executor->device_parts[number % executor->instance_count * devices];
    if (instance->parts_taken++ == 0) { /* those of another before it */
        memset(taken, 0, devices * sizeof(taken[0]));
    }
    for (size_t i = 0; part < 0 && i < 2 * devices; i++) {
        const size_t d = i % devices; /* those near, then all */

        if (i >= devices || executor->numa->device_nodes[d] == node) {
            part = take_of_device(executor, op->parts, (int64_t)d, &taken[d]);
        }
    }
    ZO_ASSERT(part >= 0);
    return part;
}

/* Takes a part of the ready operation that goes first; the lock is held. */
static uint64_t take_ready(struct zo_executor *executor, int node,
                           int *part_out)
{
    struct zo_instance *instance;
    size_t best = 0;
    uint64_t number;

    for (size_t i = 1; i < executor->ready_count; i++) {
        const uint64_t a = executor->ready[i], b = executor->ready[best];
        const int a_priority =
            zo_instance_op(executor, zo_instance_at(executor, a))->priority;
        const int b_priority =
            zo_instance_op(executor, zo_instance_at(executor, b))->priority;

        if (a_priority < b_priority || (a_priority == b_priority && a < b)) {
            best = i;
        }
    }
    number = executor->ready[best];
    instance = zo_instance_at(executor, number);
    *part_out = take_part(executor, number, node);
    if (instance->parts_taken == zo_instance_op(executor, instance)->parts) {
        executor->ready[best] = executor->ready[--executor->ready_count];
    }
    return number;
}

static enum zo_status run_one(struct zo_executor *executor, uint64_t number,
                              int part)
{
    const struct zo_instance *instance = zo_instance_at(executor, number);
    const struct zo_op *op = zo_instance_op(executor, instance);
    void *at[ZO_OP_ACCESSES_MAX];
    const struct zo_op_call call = {
        .op = op, .machine = executor->machine, .at = at, .part = part};

    zo_executor_resolve(executor, instance, at);
    return op->run(&call);
}

/* One part more is done; the lock is held. */
static void finish_part(struct zo_executor *executor, uint64_t number)
{
    struct zo_instance *instance = zo_instance_at(executor, number);

    if (++instance->parts_done == zo_instance_op(executor, instance)->parts) {
        atomic_store_explicit(&instance->state, ZO_INSTANCE_DONE,
                              memory_order_release);
    }
}

/* Workers are on the nodes in turn; returns the index of this one's. */
static int settle_on_node(struct zo_executor *executor, int worker)
{
    int node, error;

    if (executor->numa == NULL) {
        return 0;
    }
    node = worker % executor->numa->node_count;
    error = zo_numa_pin(executor->numa, node);
    executor->numa_refusal = error != 0 ? error : executor->numa_refusal;
    return node;
}

static void *work(void *argument)
{
    struct zo_executor *executor = argument;
    int worker, node;

    (void)pthread_mutex_lock(&executor->lock);
    worker = executor->workers_begun++;
    node = settle_on_node(executor, worker);
    for (;;) {
        uint64_t number;
        int64_t started;
        enum zo_status status;
        int part = 0;

        while (executor->ready_count == 0 && !executor->is_closing) {
            (void)pthread_cond_wait(&executor->ready_cond, &executor->lock);
        }
        if (executor->is_closing) {
            break;
        }
        number = take_ready(executor, node, &part);
        started = zo_clock_ns();
        zo_times_cpu_begin(executor, zo_instance_at(executor, number), started);
        (void)pthread_mutex_unlock(&executor->lock);
        status = run_one(executor, number, part);
        if (status != ZO_OK) {
            zo_executor_fail(executor);
        }
        (void)pthread_mutex_lock(&executor->lock);
        zo_times_cpu_end(executor, zo_instance_at(executor, number), worker,
                         started);
        if (status == ZO_OK) {
            finish_part(executor, number);
        }
    }
    (void)pthread_mutex_unlock(&executor->lock);
    return NULL;
}

enum zo_status zo_executor_start_workers(struct zo_executor *executor)
{
    const int count = executor->options.cpu_workers;

    ZO_TRY(zo_alloc((size_t)count, sizeof(executor->workers[0]),
                    "the CPU engine", &executor->workers));
    for (int i = 0; i < count; i++) {
        ZO_TRY(
            zo_thread_start("zo-cpu", work, executor, &executor->workers[i]));
        executor->worker_count++;
    }
    return ZO_OK;
}

void zo_executor_stop_workers(struct zo_executor *executor)
{
    (void)pthread_mutex_lock(&executor->lock);
    executor->is_closing = true;
    (void)pthread_cond_broadcast(&executor->ready_cond);
    (void)pthread_mutex_unlock(&executor->lock);
    for (int i = 0; i < executor->worker_count; i++) {
        (void)pthread_join(executor->workers[i], NULL);
    }
    zo_free(executor->workers);
}
