#include "src/train/profile_measure.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/train/rates.h"

#define COPY_BYTES     ((size_t)64 << 20)
#define COPY_BYTES_MIN ((size_t)4096)
#define ALONE_SHARE    50  /* of a second: each copy is waited for */
#define BESIDE_SHARE   200 /* only whole copies are counted */
#define COPIES_AHEAD   8 /* of a direction: more than a piece of AdamW takes */
#define COPIES_LEAST   4 /* of each lane, however long they take */
#define ELEMS_MAX      ((int64_t)512 << 20) /* of AdamW: past every cache */
#define ELEMS_MIN      ((int64_t)64 << 10)
#define TILE_ELEMS     ((int64_t)64 << 10) /* that a worker takes at a time */
#define WORKER_TILES   32        /* of a worker between two looks at copies */
#define ELEM_BYTES     14        /* kept: weight, remainder, m, v, g */
#define ELEM_TOUCHED   26        /* read plus written */
#define LEAST_NS       300000000 /* of a measurement */
#define LAUNCHES       2000
#define SLOWED         0.03 /* below it a rate has not changed */

/* ---- AdamW on the host ----------------------------------------------------
 */

struct adamw {
    struct zo_pool *pool; /* owned; as wide as a run has workers */
    char *memory;         /* owned */
    int64_t elems, at;
    int workers;
    enum zo_simd simd;
};

struct touch {
    char *memory;
    size_t bytes, piece_bytes;
};

static void touch_piece(void *work, int64_t index)
{
    const struct touch *touch = work;
    const size_t offset = (size_t)index * touch->piece_bytes;
    const size_t rest = touch->bytes - offset;

    memset(touch->memory + offset, 0,
           rest < touch->piece_bytes ? rest : touch->piece_bytes);
}

static void adamw_close(struct adamw *adamw)
{
    zo_pool_close(adamw->pool);
    zo_pages_free(adamw->memory, (size_t)adamw->elems * ELEM_BYTES);
}

/* elems, workers and simd are set.  `toucher` hands the memory out. */
static enum zo_status adamw_open(struct adamw *adamw, struct zo_pool *toucher)
{
    struct touch touch = {.bytes = (size_t)adamw->elems * ELEM_BYTES,
                          .piece_bytes = (size_t)2 << 20};

    ZO_TRY(zo_pages_alloc(touch.bytes, "AdamW to time", &adamw->memory));
    touch.memory = adamw->memory;
    zo_pool_run(toucher, touch_piece, &touch,
                zo_div_ceil((int64_t)touch.bytes, (int64_t)touch.piece_bytes));
    return zo_pool_open(adamw->workers - 1, &adamw->pool);
}

struct tiles {
    struct zo_adamw_args args;
    enum zo_simd simd;
};

static void update_tile(void *work, int64_t index)
{
    const struct tiles *tiles = work;
    const int64_t first = index * TILE_ELEMS;

    (void)zo_adamw_cpu(&tiles->args, first,
                       zo_min_i64(TILE_ELEMS, tiles->args.count - first),
                       tiles->simd);
}

/* The next piece; waits for it.  Arrays lie behind one another, widest first
 * so that all are aligned. */
static void adamw_piece(struct adamw *adamw, double *bytes_inout)
{
    const int64_t n = adamw->elems, at = adamw->at;
    const int64_t count =
        zo_min_i64(WORKER_TILES * TILE_ELEMS * adamw->workers, n - at);
    float *m = (float *)(void *)adamw->memory;
    uint16_t *halves = (uint16_t *)(void *)(m + 2 * n);
    struct tiles tiles = {
        .args =
            {
                .weight = halves + at,
                .remainder = (int16_t *)halves + n + at,
                .exp_avg = m + at,
                .exp_avg_sq = m + n + at,
                .grad = halves + 2 * n + at,
                .count = count,
                .decay_count = count,
                .scalars = {1.0F, 0.9F, 0.1F, 0.999F, 0.001F, 1.0F, 1e-8F,
                            1e-6F, 1e-5F},
                .type = ZO_BF16,
            },
        .simd = adamw->simd,
    };

    zo_pool_run(adamw->pool, update_tile, &tiles,
                zo_div_ceil(count, TILE_ELEMS));
    adamw->at = at + count < n ? at + count : 0;
    *bytes_inout += (double)count * ELEM_TOUCHED;
}

static double adamw_rate(struct adamw *adamw)
{
    double bytes = 0.0, warm = 0.0;
    int64_t started_ns;

    adamw_piece(adamw, &warm);
    started_ns = zo_clock_ns();
    do {
        adamw_piece(adamw, &bytes);
    } while (zo_clock_ns() - started_ns < LEAST_NS);
    return bytes / zo_clock_seconds(started_ns, zo_clock_ns());
}

/* ---- copies under way -----------------------------------------------------
 */

/* One direction of one device. */
struct lane {
    struct zo_device *device;
    bool is_h2d;
    struct zo_stream *stream;
    void *pinned, *memory;
    struct zo_event *events[COPIES_AHEAD];
    int64_t queued, done;
};

struct traffic {
    const struct zo_device_ops *ops;
    size_t copy_bytes;
    struct lane *lanes; /* owned */
    int count;
};

static void traffic_close(struct traffic *traffic)
{
    const struct zo_device_ops *ops = traffic->ops;

    for (int i = 0; traffic->lanes != NULL && i < traffic->count; i++) {
        struct lane *lane = &traffic->lanes[i];

        for (int e = 0; e < COPIES_AHEAD; e++) {
            ops->event_close(lane->events[e]);
        }
        ops->stream_close(lane->stream);
        ops->mem_free(lane->device, ZO_MEM_DEVICE, lane->memory,
                      traffic->copy_bytes);
        ops->mem_free(lane->device, ZO_MEM_PINNED, lane->pinned,
                      traffic->copy_bytes);
    }
    zo_free(traffic->lanes);
}

static enum zo_status open_lane(const struct traffic *traffic,
                                struct lane *lane)
{
    const struct zo_device_ops *ops = traffic->ops;

    ZO_TRY(ops->stream_open(lane->device, "rates", &lane->stream));
    ZO_TRY(ops->mem_alloc(lane->device, ZO_MEM_DEVICE, "copies to time",
                          traffic->copy_bytes, &lane->memory));
    ZO_TRY(ops->mem_alloc(lane->device, ZO_MEM_PINNED, "copies to time",
                          traffic->copy_bytes, &lane->pinned));
    memset(lane->pinned, 1, traffic->copy_bytes);
    for (int e = 0; e < COPIES_AHEAD; e++) {
        ZO_TRY(ops->event_open(lane->device, &lane->events[e]));
    }
    return ZO_OK;
}

static enum zo_status traffic_open(struct traffic *traffic,
                                   const struct zo_machine *machine,
                                   size_t copy_bytes)
{
    *traffic = (struct traffic){.ops = machine->device_ops,
                                .copy_bytes = copy_bytes,
                                .count = 2 * machine->device_count};
    ZO_TRY(zo_alloc((size_t)traffic->count, sizeof(traffic->lanes[0]),
                    "copies to time", &traffic->lanes));
    for (int i = 0; i < traffic->count; i++) {
        traffic->lanes[i].device = machine->devices[i / 2];
        traffic->lanes[i].is_h2d = i % 2 == 0;
    }
    for (int i = 0; i < traffic->count; i++) {
        ZO_TRY(open_lane(traffic, &traffic->lanes[i]));
    }
    return ZO_OK;
}

enum { H2D = 1, D2H = 2 };

static unsigned direction_of(const struct lane *lane)
{
    return lane->is_h2d ? H2D : D2H;
}

/* Counts what is done and queues as much again. */
static enum zo_status feed_lane(const struct traffic *traffic,
                                struct lane *lane)
{
    const struct zo_device_ops *ops = traffic->ops;
    bool is_done = true;

    while (lane->done < lane->queued && is_done) {
        ZO_TRY(ops->event_query(lane->events[lane->done % COPIES_AHEAD],
                                &is_done));
        lane->done += is_done;
    }
    while (lane->queued < lane->done + COPIES_AHEAD) {
        ZO_TRY(ops->copy(
            lane->stream, lane->is_h2d ? lane->memory : lane->pinned,
            lane->is_h2d ? lane->pinned : lane->memory, traffic->copy_bytes));
        ZO_TRY(ops->event_record(lane->stream,
                                 lane->events[lane->queued % COPIES_AHEAD]));
        lane->queued++;
    }
    return ZO_OK;
}

/* Of the directions that take part. */
static enum zo_status feed_all(struct traffic *traffic, unsigned directions)
{
    for (int i = 0; i < traffic->count; i++) {
        if ((direction_of(&traffic->lanes[i]) & directions) == 0) {
            continue;
        }
        ZO_TRY(feed_lane(traffic, &traffic->lanes[i]));
    }
    return ZO_OK;
}

static int64_t fewest_done(const struct traffic *traffic, unsigned directions)
{
    int64_t fewest = INT64_MAX;

    for (int i = 0; i < traffic->count; i++) {
        if ((direction_of(&traffic->lanes[i]) & directions) != 0) {
            fewest = zo_min_i64(fewest, traffic->lanes[i].done);
        }
    }
    return fewest;
}

/* What all do at the same time, of all devices together. */
struct together {
    double h2d, d2h, cpu;
};

/* Copies, with `adamw` (or NULL: none) beside them. */
static enum zo_status rate_together(struct traffic *traffic,
                                    unsigned directions, struct adamw *adamw,
                                    struct together *rates_out)
{
    const struct timespec poll = {.tv_nsec = 50000};
    struct together sum = {0};
    int64_t started_ns;
    double seconds;

    started_ns = zo_clock_ns();
    ZO_TRY(feed_all(traffic, directions));
    do {
        if (adamw != NULL) {
            adamw_piece(adamw, &sum.cpu);
        } else {
            (void)nanosleep(&poll, NULL); /* the host's streams need cores */
        }
        ZO_TRY(feed_all(traffic, directions));
    } while (zo_clock_ns() - started_ns < LEAST_NS ||
             fewest_done(traffic, directions) < COPIES_LEAST);
    seconds = zo_clock_seconds(started_ns, zo_clock_ns());
    for (int i = 0; i < traffic->count; i++) {
        struct lane *lane = &traffic->lanes[i];

        *(lane->is_h2d ? &sum.h2d : &sum.d2h) +=
            (double)lane->done * (double)traffic->copy_bytes / seconds;
        ZO_TRY(traffic->ops->stream_sync(lane->stream));
        lane->queued = lane->done = 0;
    }
    sum.cpu /= seconds;
    *rates_out = sum;
    return ZO_OK;
}

/* How much of its rate alone each gave up; what does not run has none. */
static double given_up(double alone, double beside)
{
    return alone > beside && alone > 0.0 ? 1.0 - beside / alone : 0.0;
}

static enum zo_status measure_dram(struct traffic *traffic, struct adamw *adamw,
                                   unsigned directions, struct together alone,
                                   double cpu_alone, struct zo_dram *dram)
{
    struct together beside = {0};
    double h2d, d2h, cpu;

    ZO_TRY(rate_together(traffic, directions, adamw, &beside));
    h2d = given_up(alone.h2d, beside.h2d);
    d2h = given_up(alone.d2h, beside.d2h);
    cpu = given_up(cpu_alone, beside.cpu);
    if (h2d > SLOWED || d2h > SLOWED || cpu > SLOWED) {
        dram->yield[ZO_DRAM_H2D] = h2d;
        dram->yield[ZO_DRAM_D2H] = d2h;
        dram->yield[ZO_DRAM_CPU] = cpu;
    }
    dram->rate = beside.h2d + beside.d2h + beside.cpu;
    return ZO_OK;
}

/* Of a copy that at its pace takes a `share`th of a second, or less. */
static size_t copy_bytes_of(const struct zo_devices *devices, uint64_t share)
{
    const uint64_t paced = devices->copy_bytes_per_second / share;

    return devices->copy_bytes_per_second == 0 || paced > COPY_BYTES
               ? COPY_BYTES
               : (size_t)zo_round_up(paced > 0 ? paced : 1, COPY_BYTES_MIN);
}

/* ---- streams --------------------------------------------------------------
 */

/* Tiny operations one behind another, and one that is waited for. */
static enum zo_status measure_launches(const struct zo_device_ops *ops,
                                       const struct lane *lane,
                                       struct zo_profile *profile)
{
    int64_t started_ns;

    ZO_TRY(ops->stream_sync(lane->stream));
    started_ns = zo_clock_ns();
    for (int i = 0; i < LAUNCHES; i++) {
        ZO_TRY(ops->fill(lane->stream, lane->memory, 0, 256));
    }
    ZO_TRY(ops->stream_sync(lane->stream));
    profile->launch_seconds =
        zo_clock_seconds(started_ns, zo_clock_ns()) / LAUNCHES;
    started_ns = zo_clock_ns();
    for (int i = 0; i < LAUNCHES / 10; i++) {
        ZO_TRY(ops->fill(lane->stream, lane->memory, 0, 256));
        ZO_TRY(ops->stream_sync(lane->stream));
    }
    profile->handoff_seconds =
        zo_clock_seconds(started_ns, zo_clock_ns()) / (LAUNCHES / 10);
    return ZO_OK;
}

/* Bytes copied a second from one device's memory to another's, or its own. */
static enum zo_status rate_inside(const struct traffic *traffic,
                                  const struct lane *from,
                                  const struct lane *to, double *rate_out)
{
    const struct zo_device_ops *ops = traffic->ops;
    const size_t bytes = traffic->copy_bytes;
    int64_t started_ns, copies = 0;

    ZO_TRY(ops->copy(from->stream, to->memory, from->memory, bytes));
    ZO_TRY(ops->stream_sync(from->stream));
    started_ns = zo_clock_ns();
    do {
        for (int i = 0; i < 16; i++, copies++) {
            ZO_TRY(ops->copy(from->stream, to->memory, from->memory, bytes));
        }
        ZO_TRY(ops->stream_sync(from->stream));
    } while (zo_clock_ns() - started_ns < LEAST_NS / 3);
    *rate_out = (double)copies * (double)bytes /
                zo_clock_seconds(started_ns, zo_clock_ns());
    return ZO_OK;
}

static enum zo_status measure_device(const struct traffic *traffic,
                                     struct zo_profile *profile)
{
    const struct lane *lanes = traffic->lanes;

    ZO_TRY(measure_launches(traffic->ops, &lanes[0], profile));
    if (!profile->is_host) {
        ZO_TRY(rate_inside(traffic, &lanes[0], &lanes[1],
                           &profile->device_bandwidth));
        profile->device_bandwidth *= 2.0; /* read and written */
    }
    if (traffic->count > 2) {
        ZO_TRY(
            rate_inside(traffic, &lanes[0], &lanes[2], &profile->collective));
    }
    return ZO_OK;
}

/* ---- all of it ------------------------------------------------------------
 */

static enum zo_status measure_shared(const struct zo_machine *machine,
                                     struct traffic *traffic,
                                     struct adamw *adamw,
                                     struct zo_profile *profile)
{
    struct together up = {0}, down = {0}, both = {0};

    ZO_TRY(rate_together(traffic, H2D | D2H, NULL, &both));
    profile->duplex = (both.h2d + both.d2h) / machine->device_count;
    if (profile->is_host) {
        return ZO_OK;
    }
    ZO_TRY(rate_together(traffic, H2D, NULL, &up));
    ZO_TRY(rate_together(traffic, D2H, NULL, &down));
    ZO_TRY(measure_dram(traffic, adamw, H2D | D2H, both, profile->cpu,
                        &profile->dram));
    ZO_TRY(measure_dram(traffic, adamw, H2D, up, profile->cpu,
                        &profile->dram_h2d));
    return measure_dram(traffic, adamw, D2H, down, profile->cpu,
                        &profile->dram_d2h);
}

static enum zo_status measure_threads(const struct zo_devices *devices,
                                      int64_t elems, struct adamw *adamw,
                                      struct zo_profile *profile)
{
    struct adamw one = {
        .elems = elems / 4 + ELEMS_MIN, .workers = 1, .simd = adamw->simd};
    enum zo_status status;

    profile->cpu = adamw_rate(adamw);
    status = adamw_open(&one, devices->pool);
    if (status == ZO_OK) {
        profile->cpu_thread = adamw_rate(&one);
    }
    adamw_close(&one);
    ZO_TRY(status);
    return profile->is_host
               ? zo_rate_memory(devices->pool, (size_t)elems * ELEM_BYTES / 2,
                                &profile->dram.rate)
               : ZO_OK;
}

enum zo_status zo_profile_measure(const struct zo_devices *devices,
                                  enum zo_simd simd, uint64_t bytes_max,
                                  struct zo_profile *profile_out)
{
    const struct zo_machine *machine = &devices->machine;
    const int64_t elems = zo_max_i64(
        ELEMS_MIN,
        zo_min_i64(ELEMS_MAX, (int64_t)(bytes_max / 4 * 3 / ELEM_BYTES)));
    struct zo_profile profile;
    struct zo_copy_rates copies = {0};
    struct traffic traffic = {0};
    struct adamw adamw = {.elems = elems,
                          .workers = zo_devices_cpu_workers(devices),
                          .simd = simd};
    enum zo_status status;

    zo_profile_init(&profile);
    (void)snprintf(profile.name, sizeof(profile.name), "%s",
                   machine->device_ops->info(machine->devices[0])->description);
    profile.is_host = machine->device_ops == &zo_device_host;
    profile.threads = devices->threads;
    profile.paced = (double)devices->copy_bytes_per_second;
    profile.simd = simd;
    ZO_TRY(zo_rate_copies(machine->device_ops, machine->devices, 1,
                          copy_bytes_of(devices, ALONE_SHARE), &copies));
    profile.h2d = copies.to_devices;
    profile.d2h = copies.from_devices;
    ZO_TRY_GOTO(close_all, adamw_open(&adamw, devices->pool));
    ZO_TRY_GOTO(close_all, measure_threads(devices, elems, &adamw, &profile));
    ZO_TRY_GOTO(close_all, traffic_open(&traffic, machine,
                                        copy_bytes_of(devices, BESIDE_SHARE)));
    ZO_TRY_GOTO(close_all, measure_device(&traffic, &profile));
    ZO_TRY_GOTO(close_all, measure_shared(machine, &traffic, &adamw, &profile));
    *profile_out = profile;

close_all:
    if (traffic.lanes != NULL) {
        traffic_close(&traffic);
    }
    adamw_close(&adamw);
    return status;
}
