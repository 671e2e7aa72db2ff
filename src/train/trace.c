#include "src/train/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/layout.h"
#include "offload/order.h"
#include "src/base/arith.h"
#include "src/base/file_check.h"
#include "src/base/jsonl.h"
#include "src/base/memory.h"

#define STEPS_MAX    100 /* of this model: 600 kB of memory, 1.5 MB of file */
#define BUFFER_BYTES 65536
#define NAME_BYTES   32
#define PROCESS      1
#define STEPS_LANE   0 /* then the lanes of streams, then the CPU's workers, */
#define WORKERS      256 /* of which there are no more; then those of NVMe */

/* What each file of ours begins with. */
static const char file_start[] = "{\"displayTimeUnit\":";
static const struct zo_file_check file_check = {.what = "trace",
                                                .start = file_start};

struct kept {
    struct zo_trace_step step;
    size_t span_first, span_count;
};

/* Bytes of a tier that come alive, or are given back. */
struct change {
    int64_t ns;
    enum zo_tier tier;
    enum zo_purpose purpose;
    int device;
    int64_t delta_bytes;
};

/* Of an operation, or of a buffer's uses; begin_ns is -1 where none ran. */
struct run_time {
    int64_t begin_ns, end_ns;
};

struct zo_trace {
    struct zo_trace_options options;
    int fd;       /* -1: none yet */
    bool is_file; /* it can be written again, from its start */
    bool has_news;
    const struct zo_build *build; /* borrowed; NULL before start */
    struct zo_executor *executor; /* borrowed */
    struct kept *kept;            /* owned; one a step */
    size_t kept_count, kept_max;
    struct zo_op_span *spans; /* owned; of all kept steps */
    size_t span_count;
    struct change *changes; /* owned; scratch of write */
    size_t change_count;
    struct run_time *times; /* owned; likewise, of all lists' operations */
    size_t times_first[ZO_SCHEDULES_MAX], times_count;
    struct run_time *uses; /* owned; likewise, of a list's buffers */
    int64_t base_ns;
    struct zo_jsonl json;
    char buffer[BUFFER_BYTES];
};

/* ---- the file ------------------------------------------------------------ */

/* Empties the file and starts its only object. */
static enum zo_status begin_file(struct zo_trace *trace)
{
    if (trace->is_file &&
        (ftruncate(trace->fd, 0) != 0 || lseek(trace->fd, 0, SEEK_SET) != 0)) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot empty %s: %s",
                              trace->options.path, strerror(errno));
    }
    zo_jsonl_init_fd(&trace->json, trace->fd, trace->options.path,
                     trace->buffer, sizeof(trace->buffer));
    zo_jsonl_begin(&trace->json);
    zo_jsonl_text(&trace->json, "displayTimeUnit", "ms");
    zo_jsonl_array_begin(&trace->json, "traceEvents");
    return ZO_OK;
}

static enum zo_status end_file(struct zo_trace *trace)
{
    zo_jsonl_array_end(&trace->json);
    return zo_jsonl_end(&trace->json);
}

enum zo_status zo_trace_open(const struct zo_trace_options *options,
                             struct zo_trace **trace_out)
{
    const int64_t steps = options->last_step - options->first_step + 1;
    struct zo_trace *trace = NULL;

    if (steps > STEPS_MAX) {
        return ZO_FAIL(ZO_E_USAGE,
                       "--trace-steps %" PRId64 "-%" PRId64 ": %" PRId64
                       " steps; want at most %d",
                       options->first_step, options->last_step, steps,
                       STEPS_MAX);
    }
    ZO_TRY(zo_file_check(options->path, &file_check));
    ZO_TRY(zo_alloc(1, sizeof(*trace), "the trace", &trace));
    trace->options = *options;
    trace->kept_max = (size_t)steps;
    trace->fd = -1;
    *trace_out = trace;
    return ZO_OK;
}

enum zo_status zo_trace_create(struct zo_trace *trace)
{
    const char *path = trace->options.path;
    struct stat info;

    ZO_TRY(zo_file_check(path, &file_check)); /* it may be another by now */
    trace->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (trace->fd < 0 || fstat(trace->fd, &info) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "cannot write trace %s: %s",
                              path, strerror(errno));
    }
    trace->is_file = S_ISREG(info.st_mode);
    if (!trace->is_file) {
        return ZO_OK;
    }
    ZO_TRY(begin_file(trace));
    return end_file(trace);
}

/* ---- keeping ------------------------------------------------------------- */

enum zo_status zo_trace_start(struct zo_trace *trace,
                              const struct zo_build *build,
                              struct zo_executor *executor)
{
    const struct zo_program *program = &build->program;
    const size_t spans_max = zo_executor_spans_max(executor);
    size_t op_count = 0, transient_count = 0;

    ZO_ASSERT(spans_max > 0 && trace->build == NULL);
    for (int s = 0; s < program->schedule_count; s++) {
        trace->times_first[s] = op_count;
        op_count += program->schedules[s].op_count;
    }
    for (size_t b = 0; b < program->buffer_count; b++) {
        transient_count += program->buffers[b].schedule >= 0;
    }
    ZO_TRY(zo_alloc(trace->kept_max, sizeof(trace->kept[0]), "the trace",
                    &trace->kept));
    ZO_TRY(zo_alloc(trace->kept_max * spans_max, sizeof(trace->spans[0]),
                    "the trace", &trace->spans));
    ZO_TRY(zo_alloc(trace->kept_max * transient_count * 2,
                    sizeof(trace->changes[0]), "the trace", &trace->changes));
    trace->times_count = op_count;
    ZO_TRY(zo_alloc(op_count, sizeof(trace->times[0]), "the trace",
                    &trace->times));
    ZO_TRY(zo_alloc(program->buffer_count, sizeof(trace->uses[0]), "the trace",
                    &trace->uses));
    trace->build = build;
    trace->executor = executor;
    return ZO_OK;
}

bool zo_trace_wants(const struct zo_trace *trace, int64_t step)
{
    const struct zo_trace_options *options = &trace->options;
    const struct kept *last =
        trace->kept_count > 0 ? &trace->kept[trace->kept_count - 1] : NULL;

    return step >= options->first_step && step <= options->last_step &&
           (last == NULL || step > last->step.step);
}

void zo_trace_list(struct zo_trace *trace, const struct zo_trace_step *step)
{
    struct kept *kept = &trace->kept[trace->kept_count++];

    kept->step = *step;
    kept->span_first = trace->span_count;
    kept->span_count = zo_executor_spans(trace->executor, step->slot,
                                         trace->spans + trace->span_count);
    trace->span_count += kept->span_count;
    trace->has_news = true;
}

/* ---- events -------------------------------------------------------------- */

static double microseconds(int64_t ns)
{
    return (double)ns / 1000.0;
}

static void begin_event(struct zo_trace *trace, const char *phase,
                        const char *name, uint32_t lane)
{
    zo_jsonl_object_begin(&trace->json, NULL);
    zo_jsonl_text(&trace->json, "ph", phase);
    zo_jsonl_text(&trace->json, "name", name);
    zo_jsonl_int(&trace->json, "pid", PROCESS);
    zo_jsonl_uint(&trace->json, "tid", lane);
}

static void put_time(struct zo_trace *trace, int64_t ns)
{
    zo_jsonl_real(&trace->json, "ts", microseconds(ns - trace->base_ns));
}

/* An event that only names something. */
static void put_name(struct zo_trace *trace, const char *what, uint32_t lane,
                     const char *name)
{
    begin_event(trace, "M", what, lane);
    zo_jsonl_object_begin(&trace->json, "args");
    zo_jsonl_text(&trace->json, "name", name);
    zo_jsonl_object_end(&trace->json);
    zo_jsonl_object_end(&trace->json);
}

static void put_lane(struct zo_trace *trace, uint32_t lane, const char *name)
{
    put_name(trace, "thread_name", lane, name);
    begin_event(trace, "M", "thread_sort_index", lane);
    zo_jsonl_object_begin(&trace->json, "args");
    zo_jsonl_uint(&trace->json, "sort_index", lane);
    zo_jsonl_object_end(&trace->json);
    zo_jsonl_object_end(&trace->json);
}

static uint32_t worker_lane(const struct zo_trace *trace, int worker)
{
    return STEPS_LANE + 1 + zo_lane_count(&trace->build->program) +
           (uint32_t)worker;
}

static uint32_t lane_of(const struct zo_trace *trace, const struct zo_op *op,
                        int worker)
{
    const uint32_t lane = zo_lane_of(&trace->build->program, op);

    return lane != ZO_NO_LANE             ? STEPS_LANE + 1 + lane
           : op->engine == ZO_ENGINE_NVME ? worker_lane(trace, WORKERS + worker)
                                          : worker_lane(trace, worker);
}

static const struct zo_schedule *list_of(const struct zo_trace *trace,
                                         const struct kept *kept)
{
    return &trace->build->program.schedules[kept->step.schedule];
}

static const struct zo_op *op_of(const struct zo_trace *trace,
                                 const struct zo_op_span *span)
{
    return &trace->build->program.schedules[span->schedule].ops[span->op];
}

/* When an operation of a list ran. */
static struct run_time *time_of(const struct zo_trace *trace, int schedule,
                                size_t op)
{
    return &trace->times[trace->times_first[schedule] + op];
}

/* An operation that ran in a lane; NULL when none did. */
static const struct zo_op *find_in_lane(const struct zo_trace *trace,
                                        uint32_t lane)
{
    for (size_t k = 0; k < trace->kept_count; k++) {
        const struct kept *kept = &trace->kept[k];

        for (size_t s = 0; s < kept->span_count; s++) {
            const struct zo_op_span *span = &trace->spans[kept->span_first + s];
            const struct zo_op *op = op_of(trace, span);

            if (lane_of(trace, op, span->worker) == lane) {
                return op;
            }
        }
    }
    return NULL;
}

static const char *device_word(const struct zo_trace *trace)
{
    return trace->options.device != NULL ? trace->options.device : "GPU";
}

/* The lane's name, if a kept operation ran in it. */
static void put_lane_of_ops(struct zo_trace *trace, uint32_t lane)
{
    const uint32_t workers = worker_lane(trace, 0);
    const struct zo_op *op = find_in_lane(trace, lane);
    char name[NAME_BYTES];

    if (op == NULL) {
        return;
    }
    if (op->engine == ZO_ENGINE_NVME) {
        (void)snprintf(name, sizeof(name), "NVMe %u",
                       lane - worker_lane(trace, WORKERS));
    } else if (lane >= workers) {
        (void)snprintf(name, sizeof(name), "processor %u", lane - workers);
    } else if (op->engine == ZO_ENGINE_COLLECTIVE) {
        (void)snprintf(name, sizeof(name), "collectives");
    } else {
        (void)snprintf(name, sizeof(name), "%s %d %s", device_word(trace),
                       op->device, zo_engine_words(op->engine));
    }
    put_lane(trace, lane, name);
}

/* Names of the lanes in which a kept operation ran. */
static void put_lanes(struct zo_trace *trace)
{
    int last_worker = 0;

    for (size_t s = 0; s < trace->span_count; s++) {
        if (trace->spans[s].worker > last_worker) {
            last_worker = trace->spans[s].worker;
        }
    }
    put_name(trace, "process_name", STEPS_LANE, "zero-offload");
    put_lane(trace, STEPS_LANE, "steps");
    for (uint32_t lane = STEPS_LANE + 1;
         lane <= worker_lane(trace, last_worker); lane++) {
        put_lane_of_ops(trace, lane);
    }
    for (int flight = 0; flight < ZO_NVME_FLIGHTS; flight++) {
        put_lane_of_ops(trace, worker_lane(trace, WORKERS + flight));
    }
}

/* Bytes that a copy copies; that a CPU operation reads and writes; else 0. */
static uint64_t bytes_of(const struct zo_schedule *list, const struct zo_op *op)
{
    const bool is_copy =
        op->engine == ZO_ENGINE_H2D || op->engine == ZO_ENGINE_D2H;
    uint64_t bytes = 0;

    if (!is_copy && op->engine != ZO_ENGINE_CPU) {
        return 0;
    }
    for (uint32_t a = 0; a < op->access_count; a++) {
        const struct zo_access *access = &list->accesses[op->access_first + a];

        bytes += access->mode != ZO_READ ? access->bytes : 0;
        bytes += access->mode != ZO_WRITE && !is_copy ? access->bytes : 0;
    }
    return bytes;
}

static void put_args(struct zo_trace *trace, const struct kept *kept,
                     const struct zo_op_span *span)
{
    const struct zo_op *op = op_of(trace, span);
    const struct run_time *time = time_of(trace, span->schedule, span->op);
    const uint64_t bytes =
        bytes_of(&trace->build->program.schedules[span->schedule], op);
    struct zo_jsonl *json = &trace->json;

    zo_jsonl_object_begin(json, "args");
    zo_jsonl_int(json, "step", kept->step.step);
    if (op->unit >= 0) {
        zo_jsonl_text(json, "unit", trace->build->options.units[op->unit].name);
    }
    if (op->micro >= 0) {
        zo_jsonl_int(json, "micro", op->micro);
    }
    if (bytes > 0) {
        zo_jsonl_uint(json, "bytes", bytes);
    }
    if (bytes > 0 && time->end_ns > time->begin_ns) {
        zo_jsonl_real(json, "GB/s",
                      (double)bytes / (double)(time->end_ns - time->begin_ns));
    }
    if (op->flops > 0.0) {
        zo_jsonl_real(json, "flops", op->flops);
    }
    zo_jsonl_object_end(json);
}

static void widen(struct run_time *time, int64_t begin_ns, int64_t end_ns)
{
    if (time->begin_ns < 0 || begin_ns < time->begin_ns) {
        time->begin_ns = begin_ns;
    }
    time->end_ns = zo_max_i64(time->end_ns, end_ns);
}

/* When each operation ran: its parts together. */
static void find_times(struct zo_trace *trace, const struct kept *kept)
{
    for (size_t i = 0; i < trace->times_count; i++) {
        trace->times[i] = (struct run_time){-1, -1};
    }
    for (size_t s = 0; s < kept->span_count; s++) {
        const struct zo_op_span *span = &trace->spans[kept->span_first + s];

        widen(time_of(trace, span->schedule, span->op), span->begin_ns,
              span->end_ns);
    }
}

/* From when until when each buffer was used by the list. */
static void find_uses(struct zo_trace *trace, const struct kept *kept)
{
    const struct zo_schedule *list = list_of(trace, kept);

    for (size_t b = 0; b < trace->build->program.buffer_count; b++) {
        trace->uses[b] = (struct run_time){-1, -1};
    }
    for (size_t i = 0; i < list->op_count; i++) {
        const struct zo_op *op = &list->ops[i];
        const struct run_time *time = time_of(trace, kept->step.schedule, i);

        for (uint32_t a = 0; a < op->access_count && time->begin_ns >= 0; a++) {
            widen(&trace->uses[list->accesses[op->access_first + a].buffer],
                  time->begin_ns, time->end_ns);
        }
    }
}

static void put_complete(struct zo_trace *trace, int64_t begin_ns,
                         int64_t end_ns)
{
    put_time(trace, begin_ns);
    zo_jsonl_real(&trace->json, "dur", microseconds(end_ns - begin_ns));
}

static void put_list(struct zo_trace *trace, const struct kept *kept)
{
    char name[NAME_BYTES];

    (void)snprintf(name, sizeof(name), "step %" PRId64, kept->step.step);
    begin_event(trace, "X", name, STEPS_LANE);
    put_complete(trace, kept->step.begin_ns, kept->step.end_ns);
    zo_jsonl_object_end(&trace->json);
    for (size_t s = 0; s < kept->span_count; s++) {
        const struct zo_op_span *span = &trace->spans[kept->span_first + s];
        const struct zo_op *op = op_of(trace, span);

        begin_event(trace, "X", op->name, lane_of(trace, op, span->worker));
        zo_jsonl_text(&trace->json, "cat", zo_engine_text(op->engine));
        put_complete(trace, span->begin_ns, span->end_ns);
        put_args(trace, kept, span);
        zo_jsonl_object_end(&trace->json);
    }
}

/* ---- counters ------------------------------------------------------------ */

/* By time; at one time, what is given back goes first. */
static bool is_later(const struct change *a, const struct change *b)
{
    return a->ns != b->ns ? a->ns > b->ns : a->delta_bytes > b->delta_bytes;
}

static void sift(struct change *heap, size_t at, size_t count)
{
    for (;;) {
        size_t child = 2 * at + 1;
        struct change held;

        if (child >= count) {
            return;
        }
        child += child + 1 < count && is_later(&heap[child + 1], &heap[child]);
        if (!is_later(&heap[child], &heap[at])) {
            return;
        }
        held = heap[at];
        heap[at] = heap[child];
        heap[child] = held;
        at = child;
    }
}

/* In place: the C library's sort may allocate. */
static void sort_changes(struct change *changes, size_t count)
{
    for (size_t i = count / 2; i-- > 0;) {
        sift(changes, i, count);
    }
    for (size_t end = count; end > 1; end--) {
        const struct change held = changes[0];

        changes[0] = changes[end - 1];
        changes[end - 1] = held;
        sift(changes, 0, end - 1);
    }
}

static void add_changes(struct zo_trace *trace, const struct kept *kept)
{
    const struct zo_program *program = &trace->build->program;

    find_uses(trace, kept);
    for (size_t b = 0; b < program->buffer_count; b++) {
        const struct zo_buffer *buffer = &program->buffers[b];
        struct change change = {.ns = trace->uses[b].begin_ns,
                                .tier = buffer->tier,
                                .purpose = buffer->purpose,
                                .device = buffer->device,
                                .delta_bytes = (int64_t)buffer->bytes};

        if (buffer->schedule != kept->step.schedule || change.ns < 0) {
            continue;
        }
        trace->changes[trace->change_count++] = change;
        change.ns = trace->uses[b].end_ns;
        change.delta_bytes = -change.delta_bytes;
        trace->changes[trace->change_count++] = change;
    }
}

static void put_counter(struct zo_trace *trace, const char *name, int64_t ns,
                        uint64_t persistent_bytes, int64_t transient_bytes)
{
    begin_event(trace, "C", name, STEPS_LANE);
    put_time(trace, ns);
    zo_jsonl_object_begin(&trace->json, "args");
    zo_jsonl_uint(&trace->json, "persistent", persistent_bytes);
    zo_jsonl_int(&trace->json, "transient", transient_bytes);
    zo_jsonl_object_end(&trace->json);
    zo_jsonl_object_end(&trace->json);
}

static const char *name_tier(const struct zo_trace *trace, char *name,
                             enum zo_tier tier, int device, const char *what)
{
    if (tier == ZO_TIER_GPU) {
        (void)snprintf(name, NAME_BYTES, "%s %d %s", device_word(trace), device,
                       what);
    } else {
        (void)snprintf(name, NAME_BYTES, "%s %s", zo_tier_text(tier), what);
    }
    return name;
}

static void put_counters(struct zo_trace *trace, enum zo_tier tier, int device)
{
    const struct zo_program *program = &trace->build->program;
    const uint64_t persistent =
        zo_layout_persistent_bytes(program, tier, device);
    int64_t bytes = 0;
    char name[NAME_BYTES];

    (void)name_tier(trace, name, tier, device, "bytes");
    put_counter(trace, name, trace->base_ns, persistent, 0);
    for (size_t i = 0; i < trace->change_count; i++) {
        const struct change *change = &trace->changes[i];

        if (change->tier == tier && change->device == device) {
            bytes += change->delta_bytes;
            put_counter(trace, name, change->ns, persistent, bytes);
        }
    }
}

/* Bytes of a tier for each purpose; has is whether there ever are any. */
struct purposes {
    int64_t bytes[ZO_PURPOSES];
    bool has[ZO_PURPOSES];
};

/* What persists, and which purposes there are. */
static void find_purposes(const struct zo_program *program, enum zo_tier tier,
                          int device, struct purposes *purposes)
{
    *purposes = (struct purposes){0};
    for (size_t b = 0; b < program->buffer_count; b++) {
        const struct zo_buffer *buffer = &program->buffers[b];

        if (buffer->tier != tier || buffer->device != device) {
            continue;
        }
        purposes->has[buffer->purpose] = true;
        if (buffer->schedule < 0) {
            purposes->bytes[buffer->purpose] +=
                (int64_t)zo_layout_stored_bytes(buffer);
        }
    }
}

static void put_purposes(struct zo_trace *trace, const char *name, int64_t ns,
                         const struct purposes *purposes)
{
    begin_event(trace, "C", name, STEPS_LANE);
    put_time(trace, ns);
    zo_jsonl_object_begin(&trace->json, "args");
    for (int p = 0; p < ZO_PURPOSES; p++) {
        if (purposes->has[p]) {
            zo_jsonl_int(&trace->json, zo_purpose_text((enum zo_purpose)p),
                         purposes->bytes[p]);
        }
    }
    zo_jsonl_object_end(&trace->json);
    zo_jsonl_object_end(&trace->json);
}

/* Changes of one time are one event. */
static void put_tier_purposes(struct zo_trace *trace, enum zo_tier tier,
                              int device)
{
    struct purposes purposes;
    int64_t ns = trace->base_ns;
    char name[NAME_BYTES];

    (void)name_tier(trace, name, tier, device, "by purpose");
    find_purposes(&trace->build->program, tier, device, &purposes);
    for (size_t i = 0; i < trace->change_count; i++) {
        const struct change *change = &trace->changes[i];

        if (change->tier != tier || change->device != device) {
            continue;
        }
        if (change->ns != ns) {
            put_purposes(trace, name, ns, &purposes);
            ns = change->ns;
        }
        purposes.bytes[change->purpose] += change->delta_bytes;
    }
    put_purposes(trace, name, ns, &purposes);
}

/* ---- the whole ----------------------------------------------------------- */

static void find_base(struct zo_trace *trace)
{
    trace->base_ns = INT64_MAX;
    for (size_t k = 0; k < trace->kept_count; k++) {
        trace->base_ns =
            zo_min_i64(trace->base_ns, trace->kept[k].step.begin_ns);
    }
    for (size_t s = 0; s < trace->span_count; s++) {
        trace->base_ns = zo_min_i64(trace->base_ns, trace->spans[s].begin_ns);
    }
}

static enum zo_status write_all(struct zo_trace *trace)
{
    const struct zo_program *program = &trace->build->program;

    trace->has_news = false; /* a file that takes no more is not asked twice */
    find_base(trace);
    ZO_TRY(begin_file(trace));
    put_lanes(trace);
    trace->change_count = 0;
    for (size_t k = 0; k < trace->kept_count; k++) {
        find_times(trace, &trace->kept[k]);
        put_list(trace, &trace->kept[k]);
        add_changes(trace, &trace->kept[k]);
    }
    sort_changes(trace->changes, trace->change_count);
    for (int tier = 0; tier < ZO_TIER_COPY; tier++) {
        const int devices = tier == ZO_TIER_GPU ? program->device_count : 1;

        for (int device = 0; device < devices; device++) {
            if (program->arena_bytes[tier][device] > 0) {
                put_counters(trace, (enum zo_tier)tier, device);
                put_tier_purposes(trace, (enum zo_tier)tier, device);
            }
        }
    }
    return end_file(trace);
}

enum zo_status zo_trace_write(struct zo_trace *trace)
{
    const bool is_whole =
        trace->kept_count > 0 && trace->kept[trace->kept_count - 1].step.step ==
                                     trace->options.last_step;

    return trace->has_news && is_whole ? write_all(trace) : ZO_OK;
}

void zo_trace_close(struct zo_trace *trace)
{
    if (trace == NULL) {
        return;
    }
    if (trace->has_news) {
        (void)write_all(trace); /* nobody is left to be told */
    }
    if (trace->fd >= 0) {
        (void)close(trace->fd);
    }
    zo_free(trace->kept);
    zo_free(trace->spans);
    zo_free(trace->changes);
    zo_free(trace->times);
    zo_free(trace->uses);
    zo_free(trace);
}
