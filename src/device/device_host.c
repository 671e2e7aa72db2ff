/*
 * The host device: CUDA's model of streams and events, with a thread a
 * stream, on any number of virtual devices.
 *
 * A point in a stream is the number of a command in it.  Numbers go on when
 * a stream is closed and its record is used again, and records live as long
 * as their device, so that an event may outlive the stream it was recorded
 * on.  An event is no more than such a point; waiting for it is waiting
 * until the stream has passed that number.
 *
 * Failures: the commands behind a failed one are dropped until the failure
 * was reported, and with them every command that was queued by then.  A
 * stream that waits for a point behind a failure fails in the same way,
 * since what it waits for was never computed.
 *
 * Threads: one lock a device guards everything that changes; commands run
 * without it.  Devices lock each other's lock one at a time.
 */
#include "src/device/device.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/base/thread.h"
#include "src/device/ranges.h"
#include "src/device/stream_host.h"

#define DEVICES_MAX    64
#define ALIGN_BYTES    4096 /* a page: zo_pages_alloc() promises it */
#define COMMANDS_MAX   256  /* waiting in a stream before submit blocks */
#define NAME_MAX_BYTES 32

enum command_kind {
    COMMAND_COPY,
    COMMAND_FILL,
    COMMAND_MARK, /* nothing, but its passing is announced */
    COMMAND_WAIT,
    COMMAND_CALL,
};

/* A stream that has passed `number` has passed the point. */
struct point {
    struct zo_stream *stream; /* NULL: always passed */
    uint64_t number;
};

struct command {
    enum command_kind kind;
    void *target;
    const void *source;
    size_t size_bytes;
    int byte;
    int64_t least_ns; /* of a copy: what it takes at least */
    struct point point;
    struct zo_event *timed; /* of a mark: takes the time; or NULL */
    zo_host_fn fn;
    alignas(16) unsigned char args[ZO_HOST_ARGS_MAX];
};

struct zo_stream {
    struct zo_device *device;
    struct zo_stream *next; /* of the device's records */
    char name[NAME_MAX_BYTES];
    pthread_t thread;
    pthread_cond_t not_empty, not_full; /* for the thread; for submit */
    pthread_cond_t passed;              /* a mark, or the last command */
    struct command *commands;           /* COMMANDS_MAX; NULL when closed */
    uint64_t random;                    /* of the thread alone */

    /* Guarded by the device's lock.  Command n is in slot n % COMMANDS_MAX;
     * numbers start at 1. */
    uint64_t queued_number; /* the latest command */
    uint64_t passed_number; /* the latest that is done or dropped */
    bool is_closing;

    /* The latest failure: commands in (lost_after, lost_until] are lost. */
    uint64_t lost_after, lost_until;
    bool is_reported;
    struct zo_err err;
};

struct zo_event {
    struct zo_device *device;
    bool is_timed;
    /* Guarded by the device's lock. */
    struct point point;
    bool has_time; /* of the point */
    int64_t time_ns;
};

struct zo_device {
    struct zo_device_info info;
    struct zo_device_options options;
    struct zo_pool *own_pool; /* when the options have none */
    char name[16], description[128];
    pthread_mutex_t lock;
    struct zo_stream *streams; /* all records, also closed */
    uint64_t streams_opened;   /* seeds their delays */
    struct zo_ranges ranges;   /* device memory, where copies are paced */
    atomic_uint_least64_t allocated_bytes[ZO_MEM_KINDS];
};

static void device_lock(struct zo_device *device)
{
    (void)pthread_mutex_lock(&device->lock);
}

static void device_unlock(struct zo_device *device)
{
    (void)pthread_mutex_unlock(&device->lock);
}

/* ---- the thread of a stream ----------------------------------------- */

static bool is_lost(const struct zo_stream *stream, uint64_t number)
{
    return number > stream->lost_after && number <= stream->lost_until;
}

/* The stream's next failure, at command `number`; the lock is held. */
static void set_failed(struct zo_stream *stream, uint64_t number,
                       const struct zo_err *err)
{
    stream->err = *err;
    stream->lost_after = number - 1; /* the command itself did not happen */
    stream->lost_until = UINT64_MAX;
    stream->is_reported = false;
}

/* Hands the failure to the caller's thread, once; the lock is held. */
static enum zo_status report(struct zo_stream *stream)
{
    if (stream->is_reported) {
        return ZO_OK;
    }
    stream->is_reported = true;
    stream->lost_until = stream->queued_number;
    return zo_err_adopt(&stream->err);
}

/* splitmix64 */
static uint64_t random_next(uint64_t *state)
{
    uint64_t value = *state += 0x9e3779b97f4a7c15u;

    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

static void sleep_ns(int64_t ns)
{
    const struct timespec pause = {.tv_sec = (time_t)(ns / 1000000000),
                                   .tv_nsec = (long)(ns % 1000000000)};

    (void)nanosleep(&pause, NULL);
}

static void delay(struct zo_stream *stream)
{
    const uint32_t delay_us_max = stream->device->options.delay_us_max;
    uint64_t delay_us;

    if (delay_us_max == 0) {
        return;
    }
    delay_us = random_next(&stream->random) % ((uint64_t)delay_us_max + 1);
    sleep_ns((int64_t)delay_us * 1000);
}

/* Copies, and sleeps for what is left of the least time. */
static void copy_paced(const struct command *command)
{
    const int64_t end_ns =
        command->least_ns > 0 ? zo_clock_ns() + command->least_ns : 0;
    int64_t left_ns;

    memcpy(command->target, command->source, command->size_bytes);
    while (end_ns > 0 && (left_ns = end_ns - zo_clock_ns()) > 0) {
        sleep_ns(left_ns); /* a signal may end it early */
    }
}

/* Blocks until the point is passed.  False, and the failure in *err_out,
 * when what leads to the point was lost. */
static bool wait_for_point(struct point point, struct zo_err *err_out)
{
    struct zo_stream *stream = point.stream;
    bool is_sound;

    device_lock(stream->device);
    while (stream->passed_number < point.number) {
        (void)pthread_cond_wait(&stream->passed, &stream->device->lock);
    }
    is_sound = !is_lost(stream, point.number);
    if (!is_sound) {
        *err_out = stream->err;
    }
    device_unlock(stream->device);
    return is_sound;
}

/* False, and the failure in *err_out, if the command fails. */
static bool run_command(struct zo_stream *stream, const struct command *command,
                        struct zo_err *err_out)
{
    enum zo_status status;

    delay(stream);
    switch (command->kind) {
    case COMMAND_COPY:
        copy_paced(command);
        return true;
    case COMMAND_FILL:
        memset(command->target, command->byte, command->size_bytes);
        return true;
    case COMMAND_MARK:
        return true;
    case COMMAND_WAIT:
        return wait_for_point(command->point, err_out);
    case COMMAND_CALL:
        status = command->fn(stream->device->options.pool, command->args);
        if (status == ZO_OK) {
            return true;
        }
        *err_out = *zo_err_last();
        err_out->status = status;
        return false;
    }
    return true;
}

/* The point was passed; the lock is held. */
static void take_time(struct zo_event *event, struct point point)
{
    if (event->point.stream == point.stream &&
        event->point.number == point.number) {
        event->time_ns = zo_clock_ns();
        event->has_time = true;
    }
}

static void *stream_run(void *argument)
{
    struct zo_stream *stream = argument;
    struct zo_device *device = stream->device;
    struct zo_err err;

    device_lock(device);
    for (;;) {
        const uint64_t number = stream->passed_number + 1;
        const struct command *command;
        bool is_done = true;

        if (stream->queued_number < number) {
            if (stream->is_closing) {
                break;
            }
            (void)pthread_cond_wait(&stream->not_empty, &device->lock);
            continue;
        }
        command = &stream->commands[number % COMMANDS_MAX];
        if (!is_lost(stream, number)) {
            device_unlock(device);
            is_done = run_command(stream, command, &err);
            device_lock(device);
        }
        if (!is_done) {
            set_failed(stream, number, &err);
        }
        stream->passed_number = number;
        if (command->timed != NULL && !is_lost(stream, number)) {
            take_time(command->timed, (struct point){stream, number});
        }
        (void)pthread_cond_signal(&stream->not_full);
        if (command->kind == COMMAND_MARK) {
            (void)pthread_cond_broadcast(&stream->passed);
        }
    }
    device_unlock(device);
    return NULL;
}

/* Queues a copy of *command; blocks while the queue is full.  Returns its
 * number.  The lock is held. */
static uint64_t submit_locked(struct zo_stream *stream,
                              const struct command *command)
{
    ZO_ASSERT(stream->commands != NULL && !stream->is_closing);
    while (stream->queued_number - stream->passed_number == COMMANDS_MAX) {
        (void)pthread_cond_wait(&stream->not_full, &stream->device->lock);
    }
    stream->queued_number++;
    stream->commands[stream->queued_number % COMMANDS_MAX] = *command;
    (void)pthread_cond_signal(&stream->not_empty);
    return stream->queued_number;
}

static void submit(struct zo_stream *stream, const struct command *command)
{
    device_lock(stream->device);
    (void)submit_locked(stream, command);
    device_unlock(stream->device);
}

enum zo_status zo_stream_host_submit(struct zo_stream *stream, zo_host_fn fn,
                                     const void *args, size_t args_bytes)
{
    struct command command = {.kind = COMMAND_CALL, .fn = fn};

    if (args_bytes > sizeof(command.args)) {
        return ZO_FAIL(ZO_E_ARG, "%s: %zu bytes of arguments; want at most %zu",
                       stream->name, args_bytes, sizeof(command.args));
    }
    if (args_bytes > 0) {
        memcpy(command.args, args, args_bytes);
    }
    submit(stream, &command);
    return ZO_OK;
}

/* ---- streams -------------------------------------------------------- */

/* A closed record, or a new one; the lock is held. */
static enum zo_status find_record(struct zo_device *device,
                                  struct zo_stream **stream_out)
{
    struct zo_stream *stream = device->streams;

    while (stream != NULL && stream->commands != NULL) {
        stream = stream->next;
    }
    if (stream == NULL) {
        ZO_TRY(zo_alloc(1, sizeof(*stream), "a stream", &stream));
        stream->device = device;
        stream->is_reported = true;
        (void)pthread_cond_init(&stream->not_empty, NULL);
        (void)pthread_cond_init(&stream->not_full, NULL);
        (void)pthread_cond_init(&stream->passed, NULL);
        stream->next = device->streams;
        device->streams = stream;
    }
    *stream_out = stream;
    return ZO_OK;
}

static enum zo_status open_locked(struct zo_device *device, const char *name,
                                  struct zo_stream **stream_out)
{
    enum zo_status status;
    struct zo_stream *stream = NULL;

    ZO_TRY(find_record(device, &stream));
    ZO_TRY(zo_alloc(COMMANDS_MAX, sizeof(stream->commands[0]),
                    "a stream's queue", &stream->commands));
    stream->is_closing = false;
    stream->random =
        device->options.delay_seed + (device->streams_opened++ << 32);
    (void)snprintf(stream->name, sizeof(stream->name), "%s %s", device->name,
                   name);
    ZO_TRY_GOTO(free_commands,
                zo_thread_start(name, stream_run, stream, &stream->thread));
    *stream_out = stream;
    return ZO_OK;

free_commands:
    zo_free(stream->commands);
    stream->commands = NULL;
    return status;
}

static enum zo_status host_stream_open(struct zo_device *device,
                                       const char *name,
                                       struct zo_stream **stream_out)
{
    enum zo_status status;

    device_lock(device);
    status = open_locked(device, name, stream_out);
    device_unlock(device);
    return status;
}

static void host_stream_close(struct zo_stream *stream)
{
    struct zo_device *device;

    if (stream == NULL) {
        return;
    }
    device = stream->device;
    device_lock(device);
    stream->is_closing = true;
    (void)pthread_cond_signal(&stream->not_empty);
    device_unlock(device);
    (void)pthread_join(stream->thread, NULL);
    device_lock(device);
    zo_free(stream->commands);
    stream->commands = NULL;
    if (!stream->is_reported) { /* nobody asked: too late now */
        stream->is_reported = true;
        stream->lost_until = stream->queued_number;
    }
    device_unlock(device);
}

/* Blocks until the point is passed, then reports a failure of its stream
 * before it, if nobody has yet.  The lock is held. */
static enum zo_status sync_locked(struct point point)
{
    struct zo_stream *stream = point.stream;

    while (stream->passed_number < point.number) {
        (void)pthread_cond_wait(&stream->passed, &stream->device->lock);
    }
    return is_lost(stream, point.number) ? report(stream) : ZO_OK;
}

static enum zo_status host_stream_sync(struct zo_stream *stream)
{
    const struct command mark = {.kind = COMMAND_MARK};
    enum zo_status status;

    device_lock(stream->device);
    status = sync_locked((struct point){stream, submit_locked(stream, &mark)});
    device_unlock(stream->device);
    return status;
}

/* What a copy takes at least: paced are those with one end on the device.  A
 * sibling's memory counts as the host's.  The lock is held. */
static int64_t least_ns_of(const struct zo_device *device,
                           const struct command *copy)
{
    const uint64_t rate = device->options.copy_bytes_per_second;

    return rate > 0 && zo_ranges_has(&device->ranges, copy->target) !=
                           zo_ranges_has(&device->ranges, copy->source)
               ? (int64_t)(1e9 * (double)copy->size_bytes / (double)rate)
               : 0;
}

static enum zo_status host_copy(struct zo_stream *stream, void *target,
                                const void *source, size_t size_bytes)
{
    struct command command = {.kind = COMMAND_COPY,
                              .target = target,
                              .source = source,
                              .size_bytes = size_bytes};

    if (size_bytes > 0) {
        device_lock(stream->device);
        command.least_ns = least_ns_of(stream->device, &command);
        (void)submit_locked(stream, &command);
        device_unlock(stream->device);
    }
    return ZO_OK;
}

static enum zo_status host_fill(struct zo_stream *stream, void *target,
                                int byte, size_t size_bytes)
{
    const struct command command = {.kind = COMMAND_FILL,
                                    .target = target,
                                    .byte = byte,
                                    .size_bytes = size_bytes};

    if (size_bytes > 0) {
        submit(stream, &command);
    }
    return ZO_OK;
}

/* ---- events --------------------------------------------------------- */

static enum zo_status host_event_open(struct zo_device *device,
                                      struct zo_event **event_out)
{
    struct zo_event *event = NULL;

    ZO_TRY(zo_alloc(1, sizeof(*event), "an event", &event));
    event->device = device;
    *event_out = event;
    return ZO_OK;
}

static void host_event_close(struct zo_event *event)
{
    zo_free(event);
}

static enum zo_status host_event_record(struct zo_stream *stream,
                                        struct zo_event *event)
{
    const struct command mark = {
        .kind = COMMAND_MARK,
        .timed = event->is_timed ? event : NULL,
    };

    if (event->device != stream->device) { /* as CUDA does */
        return ZO_FAIL(ZO_E_ARG, "an event of %s recorded on a stream of %s",
                       event->device->name, stream->device->name);
    }
    device_lock(stream->device);
    event->point = (struct point){stream, submit_locked(stream, &mark)};
    event->has_time = false;
    device_unlock(stream->device);
    return ZO_OK;
}

static enum zo_status host_event_wait(struct zo_stream *stream,
                                      struct zo_event *event)
{
    struct command command = {.kind = COMMAND_WAIT};

    device_lock(event->device);
    command.point = event->point;
    device_unlock(event->device);
    if (command.point.stream != NULL && command.point.stream != stream) {
        submit(stream, &command);
    }
    return ZO_OK;
}

static enum zo_status host_event_query(struct zo_event *event, bool *done_out)
{
    enum zo_status status = ZO_OK;
    bool is_done = true;

    device_lock(event->device);
    if (event->point.stream != NULL) {
        is_done = event->point.stream->passed_number >= event->point.number;
        if (is_done) {
            status = sync_locked(event->point);
        }
    }
    device_unlock(event->device);
    if (status == ZO_OK) {
        *done_out = is_done;
    }
    return status;
}

static enum zo_status host_event_sync(struct zo_event *event)
{
    enum zo_status status = ZO_OK;

    device_lock(event->device);
    if (event->point.stream != NULL) {
        status = sync_locked(event->point);
    }
    device_unlock(event->device);
    return status;
}

static enum zo_status host_event_open_timed(struct zo_device *device,
                                            struct zo_event **event_out)
{
    ZO_TRY(host_event_open(device, event_out));
    (*event_out)->is_timed = true;
    return ZO_OK;
}

static enum zo_status host_event_time_ns(struct zo_event *event,
                                         int64_t *time_ns_out)
{
    bool has_time;

    device_lock(event->device);
    has_time = event->has_time;
    if (has_time) {
        *time_ns_out = event->time_ns;
    }
    device_unlock(event->device);
    return has_time
               ? ZO_OK
               : ZO_FAIL(ZO_E_ARG, "%s: an event has no time: it %s",
                         event->device->name,
                         event->is_timed ? "was not passed" : "takes none");
}

/* ---- memory --------------------------------------------------------- */

static enum zo_status host_mem_free_bytes(struct zo_device *device,
                                          uint64_t *bytes_out)
{
    FILE *file = fopen("/proc/meminfo", "re");
    unsigned long long available_kib = 0;
    bool is_found = false;
    char line[128];

    while (file != NULL && !is_found &&
           fgets(line, sizeof(line), file) != NULL) {
        is_found = sscanf(line, "MemAvailable: %llu kB", &available_kib) == 1;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    if (!is_found) {
        return ZO_FAIL(ZO_E_DEVICE, "%s: /proc/meminfo has no MemAvailable",
                       device->name);
    }
    *bytes_out = (uint64_t)available_kib * 1024;
    return ZO_OK;
}

/* Only copies that are paced ask what is the device's. */
static enum zo_status track(struct zo_device *device, enum zo_mem_kind kind,
                            const void *memory, size_t size_bytes)
{
    enum zo_status status;

    if (kind != ZO_MEM_DEVICE || device->options.copy_bytes_per_second == 0) {
        return ZO_OK;
    }
    device_lock(device);
    status = zo_ranges_add(&device->ranges, memory, size_bytes);
    device_unlock(device);
    return status;
}

static enum zo_status host_mem_alloc(struct zo_device *device,
                                     enum zo_mem_kind kind, const char *name,
                                     size_t size_bytes, void **memory_out)
{
    void *memory = NULL;

    if (zo_pages_alloc(size_bytes, name, &memory) != ZO_OK) {
        return ZO_FAIL(kind == ZO_MEM_DEVICE ? ZO_E_DEVMEM : ZO_E_NOMEM,
                       "%s: %s", device->name, zo_err_last()->text);
    }
    if (track(device, kind, memory, size_bytes) != ZO_OK) {
        zo_pages_free(memory, size_bytes);
        return ZO_E_NOMEM;
    }
    atomic_fetch_add(&device->allocated_bytes[kind], size_bytes);
    *memory_out = memory;
    return ZO_OK;
}

static enum zo_status host_mem_alloc_placed(struct zo_device *device,
                                            const char *name, size_t size_bytes,
                                            zo_place_fn place, void *context,
                                            void **memory_out)
{
    ZO_TRY(host_mem_alloc(device, ZO_MEM_PINNED, name, size_bytes, memory_out));
    place(context, *memory_out);
    return ZO_OK;
}

static void host_mem_free(struct zo_device *device, enum zo_mem_kind kind,
                          void *memory, size_t size_bytes)
{
    uint64_t before;

    if (memory == NULL) {
        return;
    }
    device_lock(device);
    zo_ranges_remove(&device->ranges, memory);
    device_unlock(device);
    zo_pages_free(memory, size_bytes);
    before = atomic_fetch_sub(&device->allocated_bytes[kind], size_bytes);
    ZO_ASSERT(before >= size_bytes);
}

static uint64_t host_mem_allocated(const struct zo_device *device,
                                   enum zo_mem_kind kind)
{
    return atomic_load(&device->allocated_bytes[kind]);
}

/* ---- devices -------------------------------------------------------- */

static void host_platform(struct zo_device_platform *platform_out)
{
    *platform_out = (struct zo_device_platform){.targets = "", .refusal = ""};
}

static enum zo_status host_count(int *count_out)
{
    *count_out = DEVICES_MAX;
    return ZO_OK;
}

static void describe(struct zo_device *device, int index)
{
    struct utsname system;
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGESIZE);
    const int cores = zo_cpu_count();

    (void)snprintf(device->name, sizeof(device->name), "host:%d", index);
    (void)snprintf(device->description, sizeof(device->description),
                   "%.64s, %d core%s",
                   uname(&system) == 0 ? system.machine : "?", cores,
                   cores == 1 ? "" : "s");
    device->info = (struct zo_device_info){
        .name = device->name,
        .description = device->description,
        .memory_bytes = (uint64_t)pages * (uint64_t)page_bytes,
        .align_bytes = ALIGN_BYTES,
        .peer_mask = ~(UINT64_C(1) << index),
        .bus_id = "",
    };
}

static enum zo_status host_open(int index,
                                const struct zo_device_options *options,
                                struct zo_device **device_out)
{
    struct zo_device *device = NULL;
    enum zo_status status;

    if (index < 0 || index >= DEVICES_MAX) {
        return ZO_FAIL(ZO_E_ARG, "host:%d: want an index in 0..%d", index,
                       DEVICES_MAX - 1);
    }
    ZO_TRY(zo_alloc(1, sizeof(*device), "a device", &device));
    if (options != NULL) {
        device->options = *options;
    }
    if (device->options.pool == NULL) {
        ZO_TRY_GOTO(free_device, zo_pool_open(0, &device->own_pool));
        device->options.pool = device->own_pool;
    }
    /* Devices of one seed do not wait in step. */
    device->options.delay_seed += (uint64_t)index << 48;
    (void)pthread_mutex_init(&device->lock, NULL);
    describe(device, index);
    *device_out = device;
    return ZO_OK;

free_device:
    zo_free(device);
    return status;
}

static void host_close(struct zo_device *device)
{
    if (device == NULL) {
        return;
    }
    for (struct zo_stream *stream = device->streams, *next; stream != NULL;
         stream = next) {
        next = stream->next;
        ZO_ASSERT(stream->commands == NULL); /* streams are closed first */
        (void)pthread_cond_destroy(&stream->not_empty);
        (void)pthread_cond_destroy(&stream->not_full);
        (void)pthread_cond_destroy(&stream->passed);
        zo_free(stream);
    }
    (void)pthread_mutex_destroy(&device->lock);
    zo_pool_close(device->own_pool);
    zo_free(device);
}

static const struct zo_device_info *host_info(const struct zo_device *device)
{
    return &device->info;
}

const struct zo_device_ops zo_device_host = {
    .abi = ZO_DEVICE_ABI,
    .kind = "host",
    .platform = host_platform,
    .count = host_count,
    .open = host_open,
    .close = host_close,
    .info = host_info,
    .mem_free_bytes = host_mem_free_bytes,
    .mem_alloc = host_mem_alloc,
    .mem_alloc_placed = host_mem_alloc_placed,
    .mem_free = host_mem_free,
    .mem_allocated = host_mem_allocated,
    .stream_open = host_stream_open,
    .stream_close = host_stream_close,
    .stream_sync = host_stream_sync,
    .copy = host_copy,
    .fill = host_fill,
    .event_open = host_event_open,
    .event_close = host_event_close,
    .event_record = host_event_record,
    .event_wait = host_event_wait,
    .event_query = host_event_query,
    .event_sync = host_event_sync,
    .event_open_timed = host_event_open_timed,
    .event_time_ns = host_event_time_ns,
};
