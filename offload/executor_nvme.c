/*
 * The executor's NVMe engine.  Row 5.
 *
 * An operation is a request a pair of accesses; a few operations are under way
 * at a time, lowest priority number first, then the oldest, so that an urgent
 * one does not stand behind all that is ready.  The store's threads end them:
 * what they touch of the executor, the lock guards.
 */
#include <stdio.h>
#include <string.h>

#include "offload/executor_internal.h"
#include "offload/record.h"
#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/memory.h"

/* ---- opening and closing ------------------------------------------------- */

static enum zo_status name_buffers(struct zo_executor *executor)
{
    const struct zo_program *program = executor->program;

    ZO_TRY(zo_alloc(program->buffer_count, sizeof(executor->nvme_names[0]),
                    "names of what is on NVMe", &executor->nvme_names));
    for (size_t i = 0; i < program->buffer_count; i++) {
        const struct zo_buffer *buffer = &program->buffers[i];

        if (buffer->tier == ZO_TIER_NVME) {
            (void)snprintf(executor->nvme_names[i],
                           sizeof(executor->nvme_names[i]), "unit %d's %s",
                           buffer->unit, buffer->name);
        }
    }
    return ZO_OK;
}

static size_t count_nvme_ops(const struct zo_schedule *list,
                             const void *context)
{
    size_t count = 0;

    (void)context;
    for (size_t i = 0; i < list->op_count; i++) {
        count += list->ops[i].engine == ZO_ENGINE_NVME ? 1 : 0;
    }
    return count;
}

enum zo_status zo_executor_open_nvme(struct zo_executor *executor)
{
    const struct zo_program *program = executor->program;
    struct zo_nvme_options options;

    if (program->arena_bytes[ZO_TIER_NVME][0] == 0) {
        return ZO_OK;
    }
    options = *executor->options.nvme;
    options.bytes = program->arena_bytes[ZO_TIER_NVME][0];
    ZO_TRY(zo_nvme_open(&options, &executor->nvme));
    for (int i = 0; i < ZO_NVME_FLIGHTS; i++) {
        executor->flights[i] =
            (struct zo_flight){.executor = executor, .index = i};
    }
    ZO_TRY(name_buffers(executor));
    ZO_TRY(zo_alloc(2 * zo_executor_most(program, count_nvme_ops, NULL) + 1,
                    sizeof(executor->nvme_ready[0]), "the NVMe engine",
                    &executor->nvme_ready));
    ZO_TRY(zo_alloc(zo_round_up(options.bytes, ZO_NVME_CHUNK) / ZO_NVME_CHUNK,
                    sizeof(executor->nvme_written[0]), "the NVMe engine",
                    &executor->nvme_written));
    return zo_executor_open_bounces(executor);
}

static uint32_t pairs_of(const struct zo_op *op)
{
    return op->access_count / 2;
}

/* Marks the buffers of the host that operations of NVMe touch. */
static void mark_touched(const struct zo_program *program, bool *touched)
{
    for (int s = 0; s < program->schedule_count; s++) {
        const struct zo_schedule *list = &program->schedules[s];

        for (size_t i = 0; i < list->op_count; i++) {
            const struct zo_op *op = &list->ops[i];

            for (uint32_t a = 0;
                 op->engine == ZO_ENGINE_NVME && a < 2 * pairs_of(op); a++) {
                const zo_buffer_id id =
                    list->accesses[op->access_first + a].buffer;

                touched[id] |= program->buffers[id].tier == ZO_TIER_CPU;
            }
        }
    }
}

static enum zo_status register_touched(struct zo_executor *executor,
                                       const bool *touched)
{
    const struct zo_program *program = executor->program;

    for (size_t i = 0; i < program->buffer_count; i++) {
        void *memory;

        if (!touched[i]) {
            continue;
        }
        memory = zo_executor_address(executor, (zo_buffer_id)i, 0);
        ZO_ASSERT((uintptr_t)memory % ZO_NVME_ALIGN == 0);
        ZO_TRY(zo_nvme_register(executor->nvme, memory,
                                program->buffers[i].bytes));
    }
    return zo_nvme_register(executor->nvme, executor->bounce_memory,
                            executor->bounce_count * ZO_BOUNCE_BYTES);
}

enum zo_status zo_executor_register_nvme(struct zo_executor *executor)
{
    bool *touched = NULL;
    enum zo_status status;

    if (executor->nvme == NULL) {
        return ZO_OK;
    }
    ZO_TRY(zo_alloc(executor->program->buffer_count, sizeof(touched[0]),
                    "what NVMe touches", &touched));
    mark_touched(executor->program, touched);
    status = register_touched(executor, touched);
    zo_free(touched);
    return status;
}

void zo_executor_close_nvme(struct zo_executor *executor)
{
    zo_nvme_close(executor->nvme);
    executor->nvme = NULL;
    zo_executor_close_bounces(executor);
    zo_free(executor->nvme_ready);
    zo_free(executor->nvme_names);
    zo_free(executor->nvme_written);
}

const char *zo_executor_nvme_notes(const struct zo_executor *executor)
{
    return executor->nvme == NULL ? "" : zo_nvme_notes(executor->nvme);
}

/* ---- requests ------------------------------------------------------------ */

static const struct zo_access *access_of(const struct zo_executor *executor,
                                         const struct zo_instance *instance,
                                         uint32_t n)
{
    const struct zo_op *op = zo_instance_op(executor, instance);

    return &executor->program->schedules[instance->schedule]
                .accesses[op->access_first + n];
}

/* Not if it belongs to an update, and the record says that none is due: before
 * the first step, and in the second of two lists that only evaluate. */
static bool moves(const struct zo_executor *executor,
                  const struct zo_instance *instance)
{
    const struct zo_op *op = zo_instance_op(executor, instance);
    const struct zo_access *last =
        access_of(executor, instance, op->access_count - 1);
    const struct zo_step_record *record;

    if (op->access_count == 2 * pairs_of(op)) {
        return true;
    }
    record = zo_executor_address(executor, last->buffer, instance->slot);
    return record->has_update;
}

/* The nth pair of accesses, but for who is told. */
static struct zo_nvme_request request_of(const struct zo_executor *executor,
                                         const struct zo_instance *instance,
                                         uint32_t pair)
{
    const struct zo_access *target = access_of(executor, instance, 2 * pair);
    const struct zo_access *source =
        access_of(executor, instance, 2 * pair + 1);
    const bool writes =
        zo_executor_tier(executor, target->buffer) == ZO_TIER_NVME;
    const struct zo_access *nvme = writes ? target : source;
    const struct zo_access *host = writes ? source : target;

    ZO_ASSERT(nvme->bytes == host->bytes && nvme->bytes % ZO_NVME_CHUNK == 0 &&
              zo_executor_tier(executor, nvme->buffer) == ZO_TIER_NVME);
    return (struct zo_nvme_request){
        .writes = writes,
        .offset =
            executor->program->buffers[nvme->buffer].offset + nvme->offset,
        .memory = (char *)zo_executor_address(executor, host->buffer,
                                              instance->slot) +
                  host->offset,
        .bytes = nvme->bytes,
        .name = executor->nvme_names[nvme->buffer],
    };
}

/* Told apart: reads and writes wear a disk differently. */
static void count_moved(struct zo_executor *executor,
                        const struct zo_instance *instance,
                        const struct zo_nvme_request *request)
{
    struct zo_executor_counters *const both[] = {
        &executor->counters, &executor->times[instance->slot].counters};

    zo_executor_moved(executor, instance, request->bytes);
    for (size_t i = 0; i < ZO_COUNT(both); i++) {
        *(request->writes ? &both[i]->nvme_write_bytes
                          : &both[i]->nvme_read_bytes) += request->bytes;
    }
}

/* ---- one at a time ------------------------------------------------------- */

/* A request that somebody waits for. */
struct waiting {
    pthread_mutex_t lock;
    pthread_cond_t is_done_cond;
    bool is_done;
    struct zo_err failure; /* status ZO_OK: none */
};

static void on_alone_done(void *context, enum zo_status status)
{
    struct waiting *waiting = context;

    (void)pthread_mutex_lock(&waiting->lock);
    waiting->failure.status = ZO_OK;
    if (status != ZO_OK) {
        waiting->failure = *zo_err_last();
    }
    waiting->is_done = true;
    (void)pthread_cond_signal(&waiting->is_done_cond);
    (void)pthread_mutex_unlock(&waiting->lock);
}

/* Submits and waits. */
static enum zo_status submit_and_wait(struct zo_executor *executor,
                                      struct zo_nvme_request request)
{
    struct waiting waiting = {.is_done = false};
    enum zo_status status;

    (void)pthread_mutex_init(&waiting.lock, NULL);
    (void)pthread_cond_init(&waiting.is_done_cond, NULL);
    request.done = on_alone_done;
    request.context = &waiting;
    status = zo_nvme_submit(executor->nvme, &request);
    if (status == ZO_OK) {
        (void)pthread_mutex_lock(&waiting.lock);
        while (!waiting.is_done) {
            (void)pthread_cond_wait(&waiting.is_done_cond, &waiting.lock);
        }
        (void)pthread_mutex_unlock(&waiting.lock);
        status = waiting.failure.status == ZO_OK
                     ? ZO_OK
                     : zo_err_adopt(&waiting.failure);
    }
    (void)pthread_cond_destroy(&waiting.is_done_cond);
    (void)pthread_mutex_destroy(&waiting.lock);
    return status;
}

/*
 * The tier begins as zeros, which are not on the disk: a read of what was
 * never written is done here.  Where those are some chunks of several, zeros
 * are written to them first.
 */
static enum zo_status read_zeros(struct zo_executor *executor,
                                 const struct zo_nvme_request *request,
                                 bool *is_done_out)
{
    const uint64_t first = request->offset / ZO_NVME_CHUNK;
    const uint64_t count = request->bytes / ZO_NVME_CHUNK;
    uint64_t written = 0;

    for (uint64_t i = 0; i < count; i++) {
        written += executor->nvme_written[first + i] ? 1 : 0;
    }
    *is_done_out = written == 0;
    for (uint64_t i = 0; i < count; i++) {
        struct zo_nvme_request zeros = *request;

        if (executor->nvme_written[first + i]) {
            continue;
        }
        zeros.writes = true;
        zeros.offset = (first + i) * ZO_NVME_CHUNK;
        zeros.memory = (char *)request->memory + i * ZO_NVME_CHUNK;
        zeros.bytes = ZO_NVME_CHUNK;
        memset(zeros.memory, 0, ZO_NVME_CHUNK);
        if (written > 0) {
            ZO_TRY(submit_and_wait(executor, zeros));
            executor->nvme_written[first + i] = true;
        }
    }
    return ZO_OK;
}

/* What goes before a request; true: it is done already.  Who may ask for a
 * chunk may look at its mark. */
static enum zo_status prepare(struct zo_executor *executor,
                              const struct zo_nvme_request *request,
                              bool *is_done_out)
{
    const uint64_t first = request->offset / ZO_NVME_CHUNK;

    *is_done_out = false;
    if (!request->writes) {
        return read_zeros(executor, request, is_done_out);
    }
    for (uint64_t i = 0; i * ZO_NVME_CHUNK < request->bytes; i++) {
        executor->nvme_written[first + i] = true;
    }
    return ZO_OK;
}

enum zo_status zo_executor_nvme_move(struct zo_executor *executor,
                                     const struct zo_nvme_request *request)
{
    bool is_done;

    ZO_TRY(prepare(executor, request, &is_done));
    return is_done ? ZO_OK : submit_and_wait(executor, *request);
}

/* ---- the engine ---------------------------------------------------------- */

void zo_executor_nvme_ready(struct zo_executor *executor, uint64_t number)
{
    executor->nvme_ready[executor->nvme_ready_count++] = number;
}

/* Requests of a flight are done, or will never be; the last ends it. */
static void land(struct zo_flight *flight, int requests)
{
    struct zo_executor *executor = flight->executor;
    struct zo_instance *instance;

    (void)pthread_mutex_lock(&executor->lock);
    flight->requests_left -= requests;
    if (flight->requests_left == 0) {
        instance = zo_instance_at(executor, flight->number);
        zo_times_nvme_end(executor, instance, flight->index, flight->begin_ns);
        flight->number = 0;
        if (!flight->has_failed) {
            atomic_store_explicit(&instance->state, ZO_INSTANCE_DONE,
                                  memory_order_release);
        }
    }
    (void)pthread_mutex_unlock(&executor->lock);
}

static void fail_flight(struct zo_flight *flight)
{
    zo_executor_fail(flight->executor);
    (void)pthread_mutex_lock(&flight->executor->lock);
    flight->has_failed = true;
    (void)pthread_mutex_unlock(&flight->executor->lock);
}

static void on_done(void *context, enum zo_status status)
{
    if (status != ZO_OK) {
        fail_flight(context);
    }
    land(context, 1);
}

/* A flight that is free; NULL: none is. */
static struct zo_flight *take_flight(struct zo_executor *executor,
                                     uint64_t number)
{
    const struct zo_instance *instance = zo_instance_at(executor, number);
    struct zo_flight *flight = NULL;

    (void)pthread_mutex_lock(&executor->lock);
    for (int i = 0; flight == NULL && i < ZO_NVME_FLIGHTS; i++) {
        if (executor->flights[i].number == 0) {
            flight = &executor->flights[i];
        }
    }
    if (flight != NULL) {
        flight->number = number;
        flight->has_failed = false;
        flight->requests_left =
            (int)pairs_of(zo_instance_op(executor, instance));
        flight->begin_ns = zo_clock_ns();
        zo_times_nvme_begin(executor, instance, flight->begin_ns);
    }
    (void)pthread_mutex_unlock(&executor->lock);
    return flight;
}

enum zo_status zo_executor_nvme_submit(struct zo_executor *executor,
                                       const struct zo_nvme_request *request)
{
    bool is_done = false;

    ZO_TRY(prepare(executor, request, &is_done));
    if (is_done) {
        request->done(request->context, ZO_OK);
        return ZO_OK;
    }
    return zo_nvme_submit(executor->nvme, request);
}

static enum zo_status start_request(struct zo_executor *executor,
                                    struct zo_flight *flight,
                                    const struct zo_instance *instance,
                                    int pair)
{
    struct zo_nvme_request request =
        request_of(executor, instance, (uint32_t)pair);

    request.done = on_done;
    request.context = flight;
    count_moved(executor, instance, &request);
    return zo_executor_nvme_submit(executor, &request);
}

static enum zo_status start_flight(struct zo_executor *executor,
                                   struct zo_flight *flight)
{
    const struct zo_instance *instance =
        zo_instance_at(executor, flight->number);
    const int pairs = flight->requests_left;
    enum zo_status status = zo_executor_count(executor, instance);
    int started = 0;

    if (status == ZO_OK && !moves(executor, instance)) {
        land(flight, pairs);
        return ZO_OK;
    }
    while (status == ZO_OK && started < pairs) {
        status = start_request(executor, flight, instance, started);
        started += status == ZO_OK ? 1 : 0;
    }
    if (status != ZO_OK) {
        const struct zo_err failure = *zo_err_last();

        fail_flight(flight);
        land(flight, pairs - started);
        return zo_err_adopt(&failure);
    }
    return ZO_OK;
}

/* The ready operation that goes first. */
static size_t find_first(struct zo_executor *executor)
{
    size_t best = 0;

    for (size_t i = 1; i < executor->nvme_ready_count; i++) {
        const uint64_t a = executor->nvme_ready[i];
        const uint64_t b = executor->nvme_ready[best];
        const int a_priority =
            zo_instance_op(executor, zo_instance_at(executor, a))->priority;
        const int b_priority =
            zo_instance_op(executor, zo_instance_at(executor, b))->priority;

        if (a_priority < b_priority || (a_priority == b_priority && a < b)) {
            best = i;
        }
    }
    return best;
}

enum zo_status zo_executor_issue_nvme(struct zo_executor *executor, bool *moved)
{
    while (executor->nvme_ready_count > 0) {
        const size_t first = find_first(executor);
        const uint64_t number = executor->nvme_ready[first];
        struct zo_flight *flight = take_flight(executor, number);

        if (flight == NULL) {
            break;
        }
        executor->nvme_ready[first] =
            executor->nvme_ready[--executor->nvme_ready_count];
        ZO_TRY(start_flight(executor, flight));
        *moved = true;
    }
    return ZO_OK;
}

enum zo_status zo_executor_nvme_alone(struct zo_executor *executor,
                                      const struct zo_instance *instance)
{
    const uint32_t pairs = moves(executor, instance)
                               ? pairs_of(zo_instance_op(executor, instance))
                               : 0;
    enum zo_status status = ZO_OK;

    for (uint32_t p = 0; status == ZO_OK && p < pairs; p++) {
        const struct zo_nvme_request request =
            request_of(executor, instance, p);

        count_moved(executor, instance, &request);
        status = zo_executor_nvme_move(executor, &request);
    }
    return status;
}
