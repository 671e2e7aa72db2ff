#include "offload/executor_internal.h"

#include <string.h>
#include <time.h>

#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/memory.h"

#define POLL_NS            50000 /* the longest sleep while nothing is ready */
#define COMM_CHECK_NS      100000000 /* collectives are looked at, when idle */
#define SPINS_BEFORE_SLEEP 64
#define LISTS_MAX          2 /* under way */
/* Operations issued to a lane and not done: a device takes about a thousand
 * launches, a host device a quarter of that, and the thread that makes one
 * more waits, with all other lanes. */
#define AHEAD_MAX       64
#define CPU_WORKERS_MAX 256

/* ---- failure ------------------------------------------------------------ */

void zo_executor_fail(struct zo_executor *executor)
{
    (void)pthread_mutex_lock(&executor->lock);
    if (executor->failure.status == ZO_OK) {
        executor->failure = *zo_err_last();
    }
    (void)pthread_mutex_unlock(&executor->lock);
}

static enum zo_status failure_of(struct zo_executor *executor)
{
    enum zo_status status;

    (void)pthread_mutex_lock(&executor->lock);
    status = executor->failure.status;
    (void)pthread_mutex_unlock(&executor->lock);
    /* The first stands: once there, nobody writes it again. */
    return status == ZO_OK ? ZO_OK : zo_err_adopt(&executor->failure);
}

/*
 * A device that has failed never comes to a collective, and the others would
 * wait for it: nobody could drain or close.  By the issuing thread alone.
 */
static void abandon(struct zo_executor *executor)
{
    const struct zo_machine *machine = executor->machine;

    if (machine->comm != NULL && !executor->is_abandoned) {
        executor->is_abandoned = true;
        machine->comm_ops->abort(machine->comm);
    }
}

/* The issuing thread's latest failure is the run's, unless there was one. */
static enum zo_status fail_run(struct zo_executor *executor)
{
    zo_executor_fail(executor);
    abandon(executor);
    return failure_of(executor);
}

/* Not each time: it asks every device. */
static enum zo_status check_comm(struct zo_executor *executor)
{
    const struct zo_machine *machine = executor->machine;
    const int64_t now_ns = zo_clock_ns();

    if (machine->comm == NULL ||
        now_ns - executor->comm_checked_ns < COMM_CHECK_NS) {
        return ZO_OK;
    }
    executor->comm_checked_ns = now_ns;
    return machine->comm_ops->check(machine->comm);
}

/* ---- opening and closing ------------------------------------------------ */

/* Operations of NVMe of the unit that has most of them: what touches the unit
 * behind them waits for each. */
static size_t count_unit_pieces(const struct zo_schedule *list,
                                const void *context)
{
    size_t most = 0, count = 0;
    int unit = -1;

    (void)context;
    for (size_t i = 0; i < list->op_count; i++) {
        const struct zo_op *op = &list->ops[i];

        if (op->engine == ZO_ENGINE_NVME) {
            count = op->unit == unit ? count + 1 : 1;
            unit = op->unit;
        }
        most = count > most ? count : most;
    }
    return most;
}

static size_t count_ops(const struct zo_schedule *list, const void *context)
{
    (void)context;
    return list->op_count;
}

static enum zo_status open_instances(struct zo_executor *executor)
{
    const struct zo_program *program = executor->program;

    executor->instance_count =
        2 * zo_executor_most(program, count_ops, NULL) + 1;
    executor->preds_max = executor->lane_count + 32 +
                          zo_executor_most(program, count_unit_pieces, NULL);
    ZO_TRY(zo_alloc(executor->instance_count, sizeof(executor->instances[0]),
                    "the window of operations", &executor->instances));
    ZO_TRY(zo_alloc(executor->instance_count * executor->preds_max,
                    sizeof(executor->preds[0]), "the window of operations",
                    &executor->preds));
    if (executor->numa != NULL) {
        ZO_TRY(zo_alloc(executor->instance_count *
                            (size_t)executor->machine->device_count,
                        sizeof(executor->device_parts[0]),
                        "the window of operations", &executor->device_parts));
    }
    ZO_TRY(zo_alloc(executor->instance_count, sizeof(executor->waiting[0]),
                    "the window of operations", &executor->waiting));
    return zo_alloc(executor->instance_count, sizeof(executor->ready[0]),
                    "the window of operations", &executor->ready);
}

static enum zo_status open_all(struct zo_executor *executor)
{
    const struct zo_machine *machine = executor->machine;

    executor->lane_count = zo_lane_count(executor->program);
    ZO_TRY(zo_alloc(executor->lane_count, sizeof(executor->lanes[0]),
                    "the lanes", &executor->lanes));
    for (int device = 0; device < machine->device_count; device++) {
        ZO_TRY(machine->device_ops->stream_open(
            machine->devices[device], "load", &executor->copy_streams[device]));
    }
    ZO_TRY(zo_executor_open_nvme(executor));
    ZO_TRY(zo_executor_open_arenas(executor));
    ZO_TRY(zo_executor_register_nvme(executor));
    if (executor->options.poisons) {
        ZO_TRY(zo_executor_open_shadows(executor));
    }
    ZO_TRY(open_instances(executor));
    ZO_TRY(zo_times_open(executor));
    ZO_TRY(zo_order_open(executor->program, LISTS_MAX, &executor->order));
    for (uint32_t i = 0; i < executor->lane_count; i++) {
        ZO_TRY(zo_executor_open_lane(executor, i));
    }
    return zo_executor_start_workers(executor);
}

enum zo_status zo_executor_open(const struct zo_program *program,
                                const struct zo_machine *machine,
                                const struct zo_executor_options *options,
                                struct zo_executor **executor_out)
{
    enum zo_status status;
    struct zo_executor *executor = NULL;

    ZO_ASSERT(program->is_laid_out);
    ZO_ASSERT(program->device_count == machine->device_count);
    ZO_ASSERT(program->arena_bytes[ZO_TIER_NVME][0] == 0 ||
              options->nvme != NULL);
    ZO_ASSERT(options->cpu_workers >= 1 &&
              options->cpu_workers <= CPU_WORKERS_MAX);
    ZO_ASSERT(options->is_serial || !options->poisons);
    ZO_TRY(zo_alloc(1, sizeof(*executor), "the executor", &executor));
    executor->program = program;
    executor->machine = machine;
    executor->options = *options;
    executor->numa = options->numa != NULL && options->numa->node_count > 0
                         ? options->numa
                         : NULL;
    executor->next_instance = 1;
    executor->retired_below = 1;
    (void)pthread_mutex_init(&executor->lock, NULL);
    (void)pthread_mutex_init(&executor->bounce_lock, NULL);
    (void)pthread_cond_init(&executor->bounce_cond, NULL);
    (void)pthread_cond_init(&executor->ready_cond, NULL);
    status = open_all(executor);
    if (status != ZO_OK) {
        const struct zo_err failure = *zo_err_last();

        zo_executor_close(executor);
        return zo_err_adopt(&failure);
    }
    *executor_out = executor;
    return ZO_OK;
}

void zo_executor_close(struct zo_executor *executor)
{
    if (executor == NULL) {
        return;
    }
    zo_executor_stop_workers(executor);
    zo_executor_close_nvme(executor);
    if (executor->failure.status != ZO_OK) {
        abandon(executor);
    }
    for (uint32_t i = 0; executor->lanes != NULL && i < executor->lane_count;
         i++) {
        zo_executor_close_lane(executor, i);
    }
    for (int d = 0; d < executor->machine->device_count; d++) {
        executor->machine->device_ops->stream_close(executor->copy_streams[d]);
    }
    zo_executor_close_shadows(executor);
    zo_executor_close_arenas(executor);
    zo_order_close(executor->order);
    zo_times_close(executor);
    zo_free(executor->lanes);
    zo_free(executor->instances);
    zo_free(executor->preds);
    zo_free(executor->device_parts);
    zo_free(executor->waiting);
    zo_free(executor->ready);
    (void)pthread_cond_destroy(&executor->ready_cond);
    (void)pthread_cond_destroy(&executor->bounce_cond);
    (void)pthread_mutex_destroy(&executor->bounce_lock);
    (void)pthread_mutex_destroy(&executor->lock);
    zo_free(executor);
}

int zo_executor_numa_refusal(const struct zo_executor *executor)
{
    pthread_mutex_t *lock = &((struct zo_executor *)executor)->lock;
    int refusal;

    (void)pthread_mutex_lock(lock);
    refusal = executor->numa_refusal;
    (void)pthread_mutex_unlock(lock);
    return refusal;
}

/* ---- addresses ---------------------------------------------------------- */

void *zo_executor_address(const struct zo_executor *executor, zo_buffer_id id,
                          int slot)
{
    const struct zo_buffer *buffer = &executor->program->buffers[id];

    ZO_ASSERT(buffer->tier != ZO_TIER_NVME);
    return (char *)executor->arenas[buffer->tier][buffer->device] +
           buffer->offset + (uint64_t)slot * buffer->slot_stride_bytes;
}

enum zo_tier zo_executor_tier(const struct zo_executor *executor,
                              zo_buffer_id id)
{
    return executor->program->buffers[id].tier;
}

void zo_executor_resolve(struct zo_executor *executor,
                         const struct zo_instance *instance, void **at)
{
    const struct zo_schedule *list =
        &executor->program->schedules[instance->schedule];
    const struct zo_op *op = &list->ops[instance->op];

    for (uint32_t a = 0; a < op->access_count; a++) {
        const struct zo_access *access = &list->accesses[op->access_first + a];

        at[a] = zo_executor_tier(executor, access->buffer) == ZO_TIER_NVME
                    ? NULL
                    : (char *)zo_executor_address(executor, access->buffer,
                                                  instance->slot) +
                          access->offset;
    }
}

enum zo_status zo_executor_upload(struct zo_executor *executor,
                                  zo_buffer_id target, uint64_t offset,
                                  const void *source, size_t size_bytes)
{
    const struct zo_device_ops *ops = executor->machine->device_ops;
    const struct zo_buffer *buffer = &executor->program->buffers[target];
    char *address;

    if (buffer->tier == ZO_TIER_NVME) {
        ZO_TRY(zo_executor_nvme_upload(executor, target, offset, source,
                                       size_bytes));
        return zo_executor_nvme_sync(executor);
    }
    address = (char *)zo_executor_address(executor, target, 0) + offset;
    if (buffer->tier != ZO_TIER_GPU) {
        memcpy(address, source, size_bytes);
        return ZO_OK;
    }
    ZO_TRY(ops->copy(executor->copy_streams[buffer->device], address, source,
                     size_bytes));
    return ops->stream_sync(executor->copy_streams[buffer->device]);
}

enum zo_status zo_executor_download(struct zo_executor *executor, void *target,
                                    zo_buffer_id source, uint64_t offset,
                                    size_t size_bytes)
{
    const struct zo_device_ops *ops = executor->machine->device_ops;
    const struct zo_buffer *buffer = &executor->program->buffers[source];
    const char *address;

    if (buffer->tier == ZO_TIER_NVME) {
        return zo_executor_nvme_download(executor, target, source, offset,
                                         size_bytes);
    }
    address = (char *)zo_executor_address(executor, source, 0) + offset;
    if (buffer->tier != ZO_TIER_GPU) {
        memcpy(target, address, size_bytes);
        return ZO_OK;
    }
    ZO_TRY(ops->copy(executor->copy_streams[buffer->device], target, address,
                     size_bytes));
    return ops->stream_sync(executor->copy_streams[buffer->device]);
}

/* ---- issuing ------------------------------------------------------------ */

static bool is_barrier(const struct zo_executor *executor,
                       const struct zo_instance *instance)
{
    return instance->pred_count > executor->preds_max;
}

static bool is_done(struct zo_executor *executor, uint64_t number)
{
    return number < executor->retired_below ||
           atomic_load_explicit(&zo_instance_at(executor, number)->state,
                                memory_order_acquire) == ZO_INSTANCE_DONE;
}

/*
 * A predecessor lets a stream's operation go when it is done or, being on a
 * stream itself, when it has been issued; a CPU operation needs it done.
 */
static bool lets_go(struct zo_executor *executor, uint64_t pred, bool is_stream)
{
    const struct zo_instance *instance;

    if (is_done(executor, pred)) {
        return true;
    }
    instance = zo_instance_at(executor, pred);
    return is_stream && instance->lane != ZO_NO_LANE &&
           atomic_load_explicit(&instance->state, memory_order_relaxed) ==
               ZO_INSTANCE_ISSUED;
}

static bool is_ready(struct zo_executor *executor, uint64_t number)
{
    const struct zo_instance *instance = zo_instance_at(executor, number);
    const uint64_t *preds =
        executor->preds +
        (number % executor->instance_count) * executor->preds_max;
    const bool is_stream = instance->lane != ZO_NO_LANE;

    if (is_barrier(executor, instance)) {
        return executor->retired_below == number;
    }
    for (uint32_t i = 0; i < instance->pred_count; i++) {
        if (!lets_go(executor, preds[i], is_stream)) {
            return false;
        }
    }
    return true;
}

/* Makes the operation's streams wait for its predecessors on other lanes. */
static enum zo_status wait_for_preds(struct zo_executor *executor,
                                     uint64_t number, bool *has_waits_out)
{
    bool has_waits = false;
    const struct zo_device_ops *ops = executor->machine->device_ops;
    const struct zo_instance *instance = zo_instance_at(executor, number);
    const struct zo_lane *lane = &executor->lanes[instance->lane];
    const uint64_t *preds =
        executor->preds +
        (number % executor->instance_count) * executor->preds_max;
    const uint32_t count =
        is_barrier(executor, instance) ? 0 : instance->pred_count;

    for (uint32_t i = 0; i < count; i++) {
        const struct zo_instance *pred = zo_instance_at(executor, preds[i]);
        const struct zo_lane *other;

        if (is_done(executor, preds[i])) {
            continue;
        }
        other = &executor->lanes[pred->lane];
        has_waits = true;
        for (int s = 0; s < lane->stream_count; s++) {
            for (int e = 0; e < other->stream_count; e++) {
                ZO_TRY(ops->event_wait(
                    lane->streams[s],
                    other->events[pred->lane_index *
                                      (uint32_t)other->stream_count +
                                  (uint32_t)e]));
            }
        }
    }
    *has_waits_out = has_waits;
    return ZO_OK;
}

enum zo_status zo_executor_count(struct zo_executor *executor,
                                 const struct zo_instance *instance)
{
    const struct zo_op *op = zo_instance_op(executor, instance);
    struct zo_executor_counters *own =
        &executor->times[instance->slot].counters;

    if (++executor->issued_ops == executor->options.fail_at_op) {
        return ZO_FAIL(ZO_E_INJECTED, "%s: failed by a test", op->name);
    }
    executor->counters.ops[op->engine]++;
    own->ops[op->engine]++;
    return ZO_OK;
}

void zo_executor_moved(struct zo_executor *executor,
                       const struct zo_instance *instance, uint64_t bytes)
{
    const enum zo_engine engine = zo_instance_op(executor, instance)->engine;

    executor->counters.bytes[engine] += bytes;
    executor->times[instance->slot].counters.bytes[engine] += bytes;
}

/* Queues one operation on its streams and an event behind it. */
static enum zo_status issue(struct zo_executor *executor, uint64_t number)
{
    const struct zo_device_ops *ops = executor->machine->device_ops;
    struct zo_instance *instance = zo_instance_at(executor, number);
    struct zo_lane *lane = &executor->lanes[instance->lane];
    const struct zo_op *op = zo_instance_op(executor, instance);
    void *at[ZO_OP_ACCESSES_MAX];
    uint64_t moved_bytes = 0;
    const struct zo_op_call call = {.op = op,
                                    .machine = executor->machine,
                                    .at = at,
                                    .streams = lane->streams,
                                    .moved_bytes = &moved_bytes};
    bool has_waits = false;

    ZO_TRY(zo_executor_count(executor, instance));
    ZO_TRY(wait_for_preds(executor, number, &has_waits));
    zo_executor_resolve(executor, instance, at);
    instance->lane_index = lane->next_event;
    lane->next_event = (lane->next_event + 1) % lane->event_count;
    ZO_TRY(zo_times_issue(executor, instance, has_waits));
    ZO_TRY(op->run(&call));
    zo_executor_moved(executor, instance, moved_bytes);
    for (int s = 0; s < lane->stream_count; s++) {
        ZO_TRY(ops->event_record(
            lane->streams[s],
            lane->events[instance->lane_index * (uint32_t)lane->stream_count +
                         (uint32_t)s]));
    }
    atomic_store_explicit(&instance->state, ZO_INSTANCE_ISSUED,
                          memory_order_relaxed);
    return ZO_OK;
}

/* Issues what is ready at the head of each lane; sets *moved. */
static enum zo_status issue_streams(struct zo_executor *executor, bool *moved)
{
    for (uint32_t i = 0; i < executor->lane_count; i++) {
        struct zo_lane *lane = &executor->lanes[i];

        while (lane->queue_issued < lane->queue_end &&
               lane->queue_issued - lane->queue_first < AHEAD_MAX) {
            const uint64_t number =
                lane->queue[lane->queue_issued % lane->event_count];

            if (!is_ready(executor, number)) {
                break;
            }
            ZO_TRY(issue(executor, number));
            lane->queue_issued++;
            *moved = true;
        }
    }
    return ZO_OK;
}

/* Hands CPU operations that have become ready to the workers, and those of
 * NVMe to the store. */
static enum zo_status issue_host(struct zo_executor *executor, bool *moved)
{
    size_t kept = 0, given = 0;

    for (size_t i = 0; i < executor->waiting_count; i++) {
        const uint64_t number = executor->waiting[i];

        if (!is_ready(executor, number)) {
            executor->waiting[kept++] = number;
            continue;
        }
        if (zo_instance_op(executor, zo_instance_at(executor, number))
                ->engine == ZO_ENGINE_NVME) {
            zo_executor_nvme_ready(executor, number);
            continue;
        }
        ZO_TRY(zo_executor_count(executor, zo_instance_at(executor, number)));
        (void)pthread_mutex_lock(&executor->lock);
        executor->ready[executor->ready_count++] = number;
        (void)pthread_mutex_unlock(&executor->lock);
        given++;
    }
    executor->waiting_count = kept;
    if (given > 0) {
        *moved = true;
        (void)pthread_cond_broadcast(&executor->ready_cond);
    }
    return zo_executor_issue_nvme(executor, moved);
}

static enum zo_status lane_head_done(struct zo_executor *executor,
                                     const struct zo_lane *lane,
                                     uint64_t number, bool *done)
{
    const struct zo_instance *instance = zo_instance_at(executor, number);

    *done = true;
    for (int s = 0; s < lane->stream_count && *done; s++) {
        ZO_TRY(executor->machine->device_ops->event_query(
            lane->events[instance->lane_index * (uint32_t)lane->stream_count +
                         (uint32_t)s],
            done));
    }
    return ZO_OK;
}

/* Marks what streams have passed; moves retired_below on. */
static enum zo_status poll_done(struct zo_executor *executor, bool *moved)
{
    for (uint32_t i = 0; i < executor->lane_count; i++) {
        struct zo_lane *lane = &executor->lanes[i];

        while (lane->queue_first < lane->queue_issued) {
            const uint64_t number =
                lane->queue[lane->queue_first % lane->event_count];
            bool done = false;

            ZO_TRY(lane_head_done(executor, lane, number, &done));
            if (!done) {
                break;
            }
            ZO_TRY(zo_times_passed(executor, zo_instance_at(executor, number)));
            atomic_store_explicit(&zo_instance_at(executor, number)->state,
                                  ZO_INSTANCE_DONE, memory_order_release);
            lane->queue_first++;
            *moved = true;
        }
    }
    while (executor->retired_below < executor->next_instance &&
           is_done(executor, executor->retired_below)) {
        executor->retired_below++;
        *moved = true;
    }
    return ZO_OK;
}

/* One round; sleeps a moment when the last `idle` rounds moved nothing. */
static enum zo_status pump(struct zo_executor *executor, int *idle)
{
    bool moved = false;

    ZO_TRY(failure_of(executor));
    ZO_TRY(poll_done(executor, &moved));
    ZO_TRY(issue_streams(executor, &moved));
    ZO_TRY(issue_host(executor, &moved));
    if (moved) {
        *idle = 0;
        return ZO_OK;
    }
    if (++*idle > SPINS_BEFORE_SLEEP) {
        const struct timespec pause = {0, POLL_NS};

        ZO_TRY(check_comm(executor));
        (void)nanosleep(&pause, NULL);
    }
    return ZO_OK;
}

static enum zo_status wait_until(struct zo_executor *executor, uint64_t ticket)
{
    enum zo_status status = ZO_OK;
    int idle = 0;

    while (executor->retired_below < ticket) {
        status = pump(executor, &idle);
        if (status != ZO_OK) {
            return fail_run(executor);
        }
    }
    return failure_of(executor);
}

enum zo_status zo_executor_wait(struct zo_executor *executor, uint64_t ticket)
{
    return wait_until(executor, ticket);
}

enum zo_status zo_executor_drain(struct zo_executor *executor)
{
    return wait_until(executor, executor->next_instance);
}

enum zo_status zo_executor_acquire(struct zo_executor *executor, int *slot_out)
{
    ZO_TRY(wait_until(executor, executor->slot_ticket[executor->next_slot]));
    *slot_out = executor->next_slot;
    return ZO_OK;
}

/* Makes the operations of a list known, with their predecessors. */
static void admit(struct zo_executor *executor, int schedule, int slot)
{
    const struct zo_schedule *list = &executor->program->schedules[schedule];

    for (size_t i = 0; i < list->op_count; i++) {
        const uint64_t number = executor->next_instance++;
        struct zo_instance *instance = zo_instance_at(executor, number);
        const struct zo_order_step step = {schedule, i, slot, number,
                                           executor->retired_below};

        instance->schedule = schedule;
        instance->op = (uint32_t)i;
        instance->slot = slot;
        instance->parts_taken = instance->parts_done = 0;
        instance->lane = zo_lane_of(executor->program, &list->ops[i]);
        instance->pred_count = (uint32_t)zo_order_next(
            executor->order, &step,
            executor->preds +
                (number % executor->instance_count) * executor->preds_max,
            executor->preds_max);
        atomic_store_explicit(&instance->state, ZO_INSTANCE_WAITING,
                              memory_order_relaxed);
        if (instance->lane == ZO_NO_LANE) {
            executor->waiting[executor->waiting_count++] = number;
        } else {
            struct zo_lane *lane = &executor->lanes[instance->lane];

            lane->queue[lane->queue_end++ % lane->event_count] = number;
        }
    }
}

/* With a slot, which is taken until then. */
static enum zo_status begin(struct zo_executor *executor, int schedule,
                            int slot, uint64_t *ticket_out)
{
    bool moved = false;

    if (executor->options.is_serial) {
        if (zo_executor_run_serial(executor, schedule, slot) != ZO_OK) {
            return fail_run(executor);
        }
    } else {
        admit(executor, schedule, slot);
    }
    executor->slot_ticket[slot] = executor->next_instance;
    if (ticket_out != NULL) {
        *ticket_out = executor->next_instance;
    }
    if (issue_streams(executor, &moved) != ZO_OK ||
        issue_host(executor, &moved) != ZO_OK) {
        return fail_run(executor);
    }
    return ZO_OK;
}

enum zo_status zo_executor_start(struct zo_executor *executor, int schedule,
                                 uint64_t *ticket_out)
{
    const int slot = executor->next_slot;

    ZO_TRY(failure_of(executor));
    ZO_ASSERT(executor->retired_below >= executor->slot_ticket[slot]);
    ZO_ASSERT(!executor->program->schedules[schedule].joins);
    zo_times_start(executor, slot);
    executor->next_slot = 1 - slot;
    return begin(executor, schedule, slot, ticket_out);
}

enum zo_status zo_executor_join(struct zo_executor *executor, int schedule,
                                uint64_t *ticket_out)
{
    ZO_TRY(failure_of(executor));
    ZO_ASSERT(executor->program->schedules[schedule].joins);
    return begin(executor, schedule, 1 - executor->next_slot, ticket_out);
}

bool zo_executor_is_done(const struct zo_executor *executor, uint64_t ticket)
{
    return executor->retired_below >= ticket;
}

void zo_executor_counters(struct zo_executor *executor,
                          struct zo_executor_counters *counters_out)
{
    (void)pthread_mutex_lock(&executor->lock);
    *counters_out = executor->counters;
    (void)pthread_mutex_unlock(&executor->lock);
}
