/*
 * Lanes: an engine of a device, with its stream, events and queue; how many of
 * anything the lists that run at one time have.
 */
#include "offload/executor_internal.h"
#include "src/base/memory.h"

size_t zo_executor_most(const struct zo_program *program,
                        zo_list_count_fn count, const void *context)
{
    size_t alone = 0, joins = 0;

    for (int s = 0; s < program->schedule_count; s++) {
        const struct zo_schedule *list = &program->schedules[s];
        size_t *most = list->joins ? &joins : &alone;
        const size_t counted = count(list, context);

        *most = counted > *most ? counted : *most;
    }
    return alone + joins;
}

struct lane_of_program {
    const struct zo_program *program;
    uint32_t lane;
};

static size_t count_lane_ops(const struct zo_schedule *list,
                             const void *context)
{
    const struct lane_of_program *of = context;
    size_t count = 0;

    for (size_t i = 0; i < list->op_count; i++) {
        count += zo_lane_of(of->program, &list->ops[i]) == of->lane;
    }
    return count;
}

/* The events of one of a lane's streams. */
static enum zo_status open_events(const struct zo_executor *executor,
                                  struct zo_lane *lane, int stream, int device)
{
    for (uint32_t e = 0; e < lane->event_count; e++) {
        const uint32_t at = e * (uint32_t)lane->stream_count + (uint32_t)stream;

        ZO_TRY(zo_times_open_event(executor, device, &lane->events[at]));
        if (lane->begins != NULL) {
            ZO_TRY(zo_times_open_event(executor, device, &lane->begins[at]));
        }
    }
    return ZO_OK;
}

enum zo_status zo_executor_open_lane(struct zo_executor *executor,
                                     uint32_t index)
{
    const struct zo_machine *machine = executor->machine;
    struct zo_lane *lane = &executor->lanes[index];
    const bool is_collective = index + 1 == executor->lane_count;
    const enum zo_engine engine =
        is_collective ? ZO_ENGINE_COLLECTIVE
                      : (enum zo_engine)(index % ZO_ENGINE_COLLECTIVE);
    const struct lane_of_program of = {executor->program, index};
    const uint32_t ops =
        (uint32_t)zo_executor_most(executor->program, count_lane_ops, &of);

    if (ops == 0) {
        return ZO_OK; /* no stream, no thread */
    }
    lane->device = is_collective ? 0 : (int)index / ZO_ENGINE_COLLECTIVE;
    lane->event_count = 2 * ops;
    ZO_TRY(zo_alloc((size_t)machine->device_count, sizeof(lane->streams[0]),
                    "streams", &lane->streams));
    ZO_TRY(zo_alloc((size_t)lane->event_count *
                        (size_t)(is_collective ? machine->device_count : 1),
                    sizeof(lane->events[0]), "events", &lane->events));
    if (executor->options.records_times) {
        ZO_TRY(zo_alloc((size_t)lane->event_count *
                            (size_t)(is_collective ? machine->device_count : 1),
                        sizeof(lane->begins[0]), "events", &lane->begins));
    }
    ZO_TRY(zo_alloc(lane->event_count, sizeof(lane->queue[0]),
                    "a queue of operations", &lane->queue));
    lane->stream_count = is_collective ? machine->device_count : 1;
    for (int s = 0; s < lane->stream_count; s++) {
        const int device = is_collective ? s : lane->device;

        ZO_TRY(machine->device_ops->stream_open(machine->devices[device],
                                                zo_engine_text(engine),
                                                &lane->streams[s]));
        ZO_TRY(open_events(executor, lane, s, device));
    }
    return ZO_OK;
}

void zo_executor_close_lane(struct zo_executor *executor, uint32_t index)
{
    const struct zo_device_ops *ops = executor->machine->device_ops;
    struct zo_lane *lane = &executor->lanes[index];

    for (int s = 0; s < lane->stream_count; s++) {
        ops->stream_close(lane->streams[s]);
    }
    for (uint32_t e = 0; e < lane->event_count * (uint32_t)lane->stream_count;
         e++) {
        ops->event_close(lane->events[e]);
        if (lane->begins != NULL) {
            ops->event_close(lane->begins[e]);
        }
    }
    zo_free(lane->streams);
    zo_free(lane->events);
    zo_free(lane->begins);
    zo_free(lane->queue);
}
