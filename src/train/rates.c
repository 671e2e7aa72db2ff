#include "src/train/rates.h"

#include <string.h>

#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/memory.h"

#define PIECE_BYTES ((size_t)2 << 20) /* of one index of a loop */
#define LEAST_NS    100000000         /* of a measurement */
#define LEAST_RUNS  3

/* ---- host memory ------------------------------------------------------ */

struct memory_copy {
    char *target, *source;
    size_t size_bytes;
};

static size_t piece_at(const struct memory_copy *copy, int64_t index,
                       size_t *offset_out)
{
    const size_t offset = (size_t)index * PIECE_BYTES;
    const size_t rest = copy->size_bytes - offset;

    *offset_out = offset;
    return rest < PIECE_BYTES ? rest : PIECE_BYTES;
}

static void touch_piece(void *work, int64_t index)
{
    const struct memory_copy *copy = work;
    size_t offset = 0;
    const size_t bytes = piece_at(copy, index, &offset);

    memset(copy->source + offset, (int)(index & 127) + 1, bytes);
    memset(copy->target + offset, 0, bytes);
}

static void copy_piece(void *work, int64_t index)
{
    const struct memory_copy *copy = work;
    size_t offset = 0;
    const size_t bytes = piece_at(copy, index, &offset);

    memcpy(copy->target + offset, copy->source + offset, bytes);
}

enum zo_status zo_rate_memory(struct zo_pool *pool, size_t size_bytes,
                              double *bytes_per_second_out)
{
    struct memory_copy copy = {.size_bytes = size_bytes};
    const int64_t pieces = zo_div_ceil((int64_t)size_bytes, PIECE_BYTES);
    const int64_t started_ns = zo_clock_ns();
    int64_t fastest_ns = INT64_MAX;
    enum zo_status status;

    ZO_TRY(zo_pages_alloc(size_bytes, "memory to copy from", &copy.source));
    ZO_TRY_GOTO(free_source,
                zo_pages_alloc(size_bytes, "memory to copy to", &copy.target));
    zo_pool_run(pool, touch_piece, &copy, pieces);
    for (int run = 0; run < LEAST_RUNS || zo_clock_ns() - started_ns < LEAST_NS;
         run++) {
        const int64_t from_ns = zo_clock_ns();

        zo_pool_run(pool, copy_piece, &copy, pieces);
        fastest_ns = zo_min_i64(fastest_ns, zo_clock_ns() - from_ns);
    }
    *bytes_per_second_out =
        2.0 * (double)size_bytes / ((double)zo_max_i64(fastest_ns, 1) * 1e-9);
    zo_pages_free(copy.target, size_bytes);
free_source:
    zo_pages_free(copy.source, size_bytes);
    return status;
}

/* ---- the bus ---------------------------------------------------------- */

/* One device's end of the bus. */
struct lane {
    struct zo_device *device;
    struct zo_stream *stream;
    void *pinned, *memory;
};

struct bus {
    const struct zo_device_ops *ops;
    struct lane *lanes; /* owned */
    int count;
    size_t size_bytes;
};

static enum zo_status open_lane(const struct bus *bus, struct lane *lane)
{
    const struct zo_device_ops *ops = bus->ops;

    ZO_TRY(ops->stream_open(lane->device, "rates", &lane->stream));
    ZO_TRY(ops->mem_alloc(lane->device, ZO_MEM_DEVICE, "copies to time",
                          bus->size_bytes, &lane->memory));
    ZO_TRY(ops->mem_alloc(lane->device, ZO_MEM_PINNED, "copies to time",
                          bus->size_bytes, &lane->pinned));
    memset(lane->pinned, 1, bus->size_bytes);
    return ZO_OK;
}

static void close_lane(const struct bus *bus, struct lane *lane)
{
    const struct zo_device_ops *ops = bus->ops;

    ops->stream_close(lane->stream);
    ops->mem_free(lane->device, ZO_MEM_DEVICE, lane->memory, bus->size_bytes);
    ops->mem_free(lane->device, ZO_MEM_PINNED, lane->pinned, bus->size_bytes);
}

/* One copy on every lane, waited for. */
static enum zo_status copy_once(const struct bus *bus, bool is_to_device)
{
    for (int i = 0; i < bus->count; i++) {
        const struct lane *lane = &bus->lanes[i];

        ZO_TRY(bus->ops->copy(
            lane->stream, is_to_device ? lane->memory : lane->pinned,
            is_to_device ? lane->pinned : lane->memory, bus->size_bytes));
    }
    for (int i = 0; i < bus->count; i++) {
        ZO_TRY(bus->ops->stream_sync(bus->lanes[i].stream));
    }
    return ZO_OK;
}

static enum zo_status time_copies(const struct bus *bus, bool is_to_device,
                                  double *bytes_per_second_out)
{
    int64_t started_ns, runs = 0;

    ZO_TRY(copy_once(bus, is_to_device));
    started_ns = zo_clock_ns();
    do {
        ZO_TRY(copy_once(bus, is_to_device));
        runs++;
    } while (runs < LEAST_RUNS || zo_clock_ns() - started_ns < LEAST_NS);
    *bytes_per_second_out = (double)runs * (double)bus->count *
                            (double)bus->size_bytes /
                            zo_clock_seconds(started_ns, zo_clock_ns());
    return ZO_OK;
}

enum zo_status zo_rate_copies(const struct zo_device_ops *ops,
                              struct zo_device *const *devices, int count,
                              size_t size_bytes,
                              struct zo_copy_rates *rates_out)
{
    struct bus bus = {.ops = ops, .count = count, .size_bytes = size_bytes};
    struct zo_copy_rates rates = {0};
    enum zo_status status = ZO_OK;

    ZO_TRY(zo_alloc((size_t)count, sizeof(bus.lanes[0]), "copies to time",
                    &bus.lanes));
    for (int i = 0; i < count; i++) {
        bus.lanes[i].device = devices[i];
    }
    for (int i = 0; i < count; i++) {
        ZO_TRY_GOTO(close_lanes, open_lane(&bus, &bus.lanes[i]));
    }
    ZO_TRY_GOTO(close_lanes, time_copies(&bus, true, &rates.to_devices));
    ZO_TRY_GOTO(close_lanes, time_copies(&bus, false, &rates.from_devices));
    *rates_out = rates;

close_lanes:
    for (int i = 0; i < count; i++) {
        close_lane(&bus, &bus.lanes[i]);
    }
    zo_free(bus.lanes);
    return status;
}
