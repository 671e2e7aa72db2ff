/*
 * When operations ran, and for how long engines were busy.  Row 5.
 *
 * A stream's operation ends when the event behind it is passed.  It begins at
 * the latest of: the end of the one before it on its lane, the moment when it
 * was issued, and, if its stream had to wait for other lanes, an event between
 * that wait and its work.  So an operation that waits for nobody costs no
 * event but the one that orders it anyway.
 *
 * Threads: the lock guards spans and busy_ns; a worker and the issuing thread
 * add to them.
 */
#include "offload/executor_internal.h"
#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/memory.h"

/* Spans of one list: one an operation, one a part on the CPU engine. */
static size_t count_spans(const struct zo_schedule *list, const void *context)
{
    size_t count = 0;

    (void)context;
    for (size_t i = 0; i < list->op_count; i++) {
        count += list->ops[i].parts > 1 ? (size_t)list->ops[i].parts : 1;
    }
    return count;
}

enum zo_status zo_times_open(struct zo_executor *executor)
{
    if (!executor->options.records_times) {
        return ZO_OK;
    }
    executor->spans_max =
        zo_executor_most(executor->program, count_spans, NULL);
    for (int slot = 0; slot < 2; slot++) {
        ZO_TRY(zo_alloc(
            executor->spans_max, sizeof(executor->times[slot].spans[0]),
            "the times of operations", &executor->times[slot].spans));
    }
    return ZO_OK;
}

void zo_times_close(struct zo_executor *executor)
{
    zo_free(executor->times[0].spans);
    zo_free(executor->times[1].spans);
}

enum zo_status zo_times_open_event(const struct zo_executor *executor,
                                   int device, struct zo_event **event_out)
{
    const struct zo_machine *machine = executor->machine;

    return executor->options.records_times
               ? machine->device_ops->event_open_timed(machine->devices[device],
                                                       event_out)
               : machine->device_ops->event_open(machine->devices[device],
                                                 event_out);
}

void zo_times_start(struct zo_executor *executor, int slot)
{
    struct zo_list_times *times = &executor->times[slot];

    (void)pthread_mutex_lock(&executor->lock);
    times->counters = (struct zo_executor_counters){0};
    times->span_count = 0;
    (void)pthread_mutex_unlock(&executor->lock);
}

/* The lock is held. */
static void add_span(struct zo_executor *executor,
                     const struct zo_instance *instance, int worker,
                     int64_t begin_ns, int64_t end_ns)
{
    struct zo_list_times *times = &executor->times[instance->slot];

    if (executor->options.records_times) {
        ZO_ASSERT(times->span_count < executor->spans_max);
        times->spans[times->span_count++] = (struct zo_op_span){
            instance->schedule, instance->op, worker, begin_ns, end_ns};
    }
}

/* The lock is held. */
static void add_busy(struct zo_executor *executor,
                     const struct zo_instance *instance, int64_t busy_ns)
{
    const enum zo_engine engine = zo_instance_op(executor, instance)->engine;

    executor->counters.busy_ns[engine] += (uint64_t)busy_ns;
    executor->times[instance->slot].counters.busy_ns[engine] +=
        (uint64_t)busy_ns;
}

/* ---- streams ------------------------------------------------------------- */

enum zo_status zo_times_issue(struct zo_executor *executor,
                              struct zo_instance *instance, bool has_waits)
{
    struct zo_lane *lane = &executor->lanes[instance->lane];

    if (!executor->options.records_times) {
        return ZO_OK;
    }
    instance->begin_ns = zo_clock_ns();
    instance->has_begin = has_waits;
    for (int s = 0; s < lane->stream_count && has_waits; s++) {
        ZO_TRY(executor->machine->device_ops->event_record(
            lane->streams[s],
            lane->begins[instance->lane_index * (uint32_t)lane->stream_count +
                         (uint32_t)s]));
    }
    return ZO_OK;
}

enum zo_status zo_times_passed(struct zo_executor *executor,
                               const struct zo_instance *instance)
{
    const struct zo_device_ops *ops = executor->machine->device_ops;
    struct zo_lane *lane = &executor->lanes[instance->lane];
    int64_t begin_ns = instance->has_begin ? INT64_MAX : instance->begin_ns;
    int64_t end_ns = 0;

    if (!executor->options.records_times) {
        return ZO_OK;
    }
    for (int s = 0; s < lane->stream_count; s++) {
        const uint32_t event =
            instance->lane_index * (uint32_t)lane->stream_count + (uint32_t)s;
        int64_t ns = 0;

        ZO_TRY(ops->event_time_ns(lane->events[event], &ns));
        end_ns = zo_max_i64(end_ns, ns);
        if (instance->has_begin) {
            ZO_TRY(ops->event_time_ns(lane->begins[event], &ns));
            begin_ns = ns < begin_ns ? ns : begin_ns;
        }
    }
    /* Two clocks agree to some microseconds; a lane does one thing a time. */
    begin_ns = zo_max_i64(begin_ns, lane->end_ns);
    end_ns = zo_max_i64(begin_ns, end_ns);
    lane->end_ns = end_ns;
    (void)pthread_mutex_lock(&executor->lock);
    add_span(executor, instance, 0, begin_ns, end_ns);
    add_busy(executor, instance, end_ns - begin_ns);
    (void)pthread_mutex_unlock(&executor->lock);
    return ZO_OK;
}

void zo_times_alone(struct zo_executor *executor,
                    const struct zo_instance *instance, int64_t begin_ns,
                    int64_t end_ns)
{
    (void)pthread_mutex_lock(&executor->lock);
    add_span(executor, instance, 0, begin_ns, end_ns);
    add_busy(executor, instance, end_ns - begin_ns);
    (void)pthread_mutex_unlock(&executor->lock);
}

/* ---- the CPU engine, NVMe
 * ------------------------------------------------------ */

void zo_times_cpu_begin(struct zo_executor *executor,
                        const struct zo_instance *instance, int64_t now_ns)
{
    struct zo_list_times *times = &executor->times[instance->slot];

    if (times->cpu_active++ == 0) {
        times->cpu_since_ns = now_ns;
    }
}

void zo_times_cpu_end(struct zo_executor *executor,
                      const struct zo_instance *instance, int worker,
                      int64_t begin_ns)
{
    struct zo_list_times *times = &executor->times[instance->slot];
    const int64_t now_ns = zo_clock_ns();

    add_span(executor, instance, worker, begin_ns, now_ns);
    if (--times->cpu_active == 0) {
        add_busy(executor, instance, now_ns - times->cpu_since_ns);
    }
}

void zo_times_nvme_begin(struct zo_executor *executor,
                         const struct zo_instance *instance, int64_t now_ns)
{
    struct zo_list_times *times = &executor->times[instance->slot];

    if (times->nvme_active++ == 0) {
        times->nvme_since_ns = now_ns;
    }
}

void zo_times_nvme_end(struct zo_executor *executor,
                       const struct zo_instance *instance, int flight,
                       int64_t begin_ns)
{
    struct zo_list_times *times = &executor->times[instance->slot];
    const int64_t now_ns = zo_clock_ns();

    add_span(executor, instance, flight, begin_ns, now_ns);
    if (--times->nvme_active == 0) {
        add_busy(executor, instance, now_ns - times->nvme_since_ns);
    }
}

/* ---- readers ------------------------------------------------------------- */

void zo_executor_list_counters(struct zo_executor *executor, int slot,
                               struct zo_executor_counters *counters_out)
{
    (void)pthread_mutex_lock(&executor->lock);
    *counters_out = executor->times[slot].counters;
    (void)pthread_mutex_unlock(&executor->lock);
}

size_t zo_executor_spans_max(const struct zo_executor *executor)
{
    return executor->spans_max;
}

size_t zo_executor_spans(struct zo_executor *executor, int slot,
                         struct zo_op_span *spans)
{
    const struct zo_list_times *times = &executor->times[slot];
    size_t count;

    (void)pthread_mutex_lock(&executor->lock);
    count = times->span_count;
    for (size_t i = 0; i < count; i++) {
        spans[i] = times->spans[i];
    }
    (void)pthread_mutex_unlock(&executor->lock);
    return count;
}
