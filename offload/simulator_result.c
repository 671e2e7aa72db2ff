/*
 * What is read off a run in simulated time: a window, what was busy in it,
 * what no run can be faster than, and where the time went.
 */
#include <math.h>
#include <stdlib.h>

#include "offload/simulator_internal.h"
#include "src/base/memory.h"

const char *zo_bound_text(enum zo_bound bound)
{
    switch (bound) {
    case ZO_BOUND_COMPUTE:
        return "computation";
    case ZO_BOUND_H2D:
        return "copies to the device";
    case ZO_BOUND_D2H:
        return "copies from the device";
    case ZO_BOUND_COLLECTIVE:
        return "collectives";
    case ZO_BOUND_CPU:
        return "AdamW on the processor";
    case ZO_BOUND_NVME:
        return "NVMe";
    case ZO_BOUND_DRAM:
        return "host memory, which AdamW and copies share";
    case ZO_BOUND_WAITING:
        return "launches";
    case ZO_BOUNDS:
        break;
    }
    return "";
}

/* ---- the window -----------------------------------------------------------
 */

/* Lists of the window: what is told is of each of them, on average. */
static int window_lists(const struct zo_sim *sim)
{
    const int lists =
        sim->options->window_lists > 0 ? sim->options->window_lists : 1;

    return sim->options->whole ? 1 : lists;
}

/* The first list of the window; the first behind it. */
static size_t window_end(const struct zo_sim *sim)
{
    return sim->options->whole
               ? sim->list_count
               : sim->list_count - (size_t)sim->options->lists_behind;
}

static size_t window_begin(const struct zo_sim *sim)
{
    return sim->options->whole ? 0
                               : window_end(sim) - (size_t)window_lists(sim);
}

/* The first instance of a list, or the number of all. */
static size_t first_of(const struct zo_sim *sim, size_t list)
{
    return list < sim->list_count ? sim->list_first[list] : sim->count;
}

static void find_window(const struct zo_sim *sim, struct zo_sim_result *result)
{
    const size_t before = first_of(sim, window_begin(sim));
    const size_t behind = first_of(sim, window_end(sim));

    result->from_seconds = result->to_seconds = 0.0;
    for (size_t i = 0; i < behind; i++) {
        const double end = sim->ops[i].end_seconds;

        result->to_seconds = fmax(result->to_seconds, end);
        if (i < before) {
            result->from_seconds = fmax(result->from_seconds, end);
        }
    }
    result->step_seconds =
        (result->to_seconds - result->from_seconds) / window_lists(sim);
}

/* ---- what was busy --------------------------------------------------------
 */

/* Seconds of an operation that lie in the window. */
static double seconds_inside(const struct zo_sim_result *result,
                             const struct zo_sim_op *op)
{
    const double from = fmax(op->start_seconds, result->from_seconds);
    const double to = fmin(op->end_seconds, result->to_seconds);

    return fmax(0.0, to - from);
}

static double share_inside(const struct zo_sim_result *result,
                           const struct zo_sim_op *op)
{
    const double seconds = op->end_seconds - op->start_seconds;

    return seconds > 0.0 ? seconds_inside(result, op) / seconds
                         : (op->end_seconds > result->from_seconds &&
                                    op->end_seconds <= result->to_seconds
                                ? 1.0
                                : 0.0);
}

static int by_start(const void *left, const void *right)
{
    const struct zo_sim_op *a = left, *b = right;

    return a->start_seconds < b->start_seconds
               ? -1
               : a->start_seconds > b->start_seconds;
}

/* Seconds in which at least one operation of an engine without order runs. */
static enum zo_status union_seconds(const struct zo_sim *sim,
                                    const struct zo_sim_result *result,
                                    enum zo_engine engine, double *seconds_out)
{
    struct zo_sim_op *ops = NULL;
    double seconds = 0.0, until = result->from_seconds;
    size_t count = 0;

    ZO_TRY(zo_alloc(sim->count, sizeof(ops[0]), "the simulator", &ops));
    for (size_t i = 0; i < sim->count; i++) {
        if (sim->instances[i].op->engine == engine) {
            ops[count++] = sim->ops[i];
        }
    }
    qsort(ops, count, sizeof(ops[0]), by_start);
    for (size_t i = 0; i < count; i++) {
        const double end = fmin(ops[i].end_seconds, result->to_seconds);

        if (end > until && end > ops[i].start_seconds) {
            seconds += end - fmax(ops[i].start_seconds, until);
            until = end;
        }
    }
    zo_free(ops);
    *seconds_out = seconds;
    return ZO_OK;
}

static enum zo_status read_engines(const struct zo_sim *sim,
                                   struct zo_sim_result *result)
{
    const struct zo_profile *profile = sim->options->profile;
    const int devices = sim->options->program->device_count;

    for (size_t i = 0; i < sim->count; i++) {
        const struct zo_sim_instance *instance = &sim->instances[i];
        const enum zo_engine engine = instance->op->engine;
        struct zo_sim_engine *seen = &result->engines[engine];
        const double share = share_inside(result, &sim->ops[i]);

        seen->bytes += share * instance->cost->bytes;
        seen->flops += share * instance->op->flops;
        result->dram_bytes += share * instance->cost->dram_bytes;
        seen->busy_seconds += seconds_inside(result, &sim->ops[i]) /
                              (engine == ZO_ENGINE_COLLECTIVE ? 1 : devices);
    }
    ZO_TRY(union_seconds(sim, result, ZO_ENGINE_CPU,
                         &result->engines[ZO_ENGINE_CPU].busy_seconds));
    ZO_TRY(union_seconds(sim, result, ZO_ENGINE_NVME,
                         &result->engines[ZO_ENGINE_NVME].busy_seconds));
    result->dram_bytes /= window_lists(sim);
    for (int e = 0; e < ZO_ENGINES; e++) {
        struct zo_sim_engine *seen = &result->engines[e];

        seen->busy_seconds /= window_lists(sim);
        seen->bytes /= window_lists(sim);
        seen->flops /= window_lists(sim);
        seen->idle_seconds =
            fmax(0.0, result->step_seconds - seen->busy_seconds);
        seen->bytes_per_second =
            seen->busy_seconds > 0.0 ? seen->bytes / seen->busy_seconds : 0.0;
        seen->flops_per_second =
            seen->busy_seconds > 0.0 ? seen->flops / seen->busy_seconds : 0.0;
    }
    result->dram_busy_seconds =
        zo_profile_dram(profile) > 0.0
            ? result->dram_bytes / zo_profile_dram(profile)
            : 0.0;
    return ZO_OK;
}

/* ---- what no run can be faster than ---------------------------------------
 */

/*
 * The end of each operation if nothing had to share: behind its predecessors,
 * the one before it in its lane, and all lists but the last before its own.
 */
static enum zo_status read_chain(const struct zo_sim *sim,
                                 struct zo_sim_result *result)
{
    const struct zo_program *program = sim->options->program;
    const size_t lanes = zo_lane_count(program);
    double *ends = NULL, *lane_ends;
    double gate = 0.0, last = 0.0, longest = 0.0, before = 0.0;
    size_t list = 0;

    ZO_TRY(
        zo_alloc(sim->count + lanes, sizeof(ends[0]), "the simulator", &ends));
    lane_ends = ends + sim->count;
    for (size_t i = 0; i < sim->count; i++) {
        const struct zo_sim_instance *instance = &sim->instances[i];
        double start;

        for (; list < (size_t)instance->list; list++) {
            gate = last;
            last = longest;
        }
        if (i == first_of(sim, window_end(sim))) {
            break;
        }
        if (i == first_of(sim, window_begin(sim))) {
            before = longest;
        }
        start = gate;
        for (size_t e = sim->edges.first[i]; e < sim->edges.first[i + 1]; e++) {
            start = fmax(start, ends[sim->edges.preds[e]]);
        }
        if (instance->lane != ZO_NO_LANE) {
            start = fmax(start, lane_ends[instance->lane]);
        }
        ends[i] = start + sim->ops[i].alone_seconds;
        if (instance->lane != ZO_NO_LANE) {
            lane_ends[instance->lane] = ends[i];
        }
        longest = fmax(longest, ends[i]);
    }
    result->chain_seconds = (longest - before) / window_lists(sim);
    zo_free(ends);
    return ZO_OK;
}

/* What operations give the engines to do. */
struct load {
    double *lanes; /* owned: seconds */
    double cpu_bytes, dram_bytes, nvme_seconds;
};

static void add_load(const struct zo_program *program, const struct zo_op *op,
                     const struct zo_sim_cost *cost, double share,
                     struct load *load)
{
    const uint32_t lane = zo_lane_of(program, op);

    load->dram_bytes += share * cost->dram_bytes;
    if (lane != ZO_NO_LANE) {
        load->lanes[lane] += share * cost->alone_seconds;
    } else if (op->engine == ZO_ENGINE_CPU) {
        load->cpu_bytes += share * cost->bytes;
    } else {
        load->nvme_seconds += share * cost->alone_seconds;
    }
}

/* The busiest lane of an engine. */
static double lane_seconds(const struct zo_program *program,
                           const struct load *load, enum zo_engine engine)
{
    double seconds = 0.0;

    for (int d = 0; d < program->device_count; d++) {
        const struct zo_op op = {.engine = engine, .device = d};

        seconds = fmax(seconds, load->lanes[zo_lane_of(program, &op)]);
    }
    return seconds;
}

static void note_busiest(double busiest[ZO_BOUNDS], enum zo_bound bound,
                         double amount, double rate)
{
    busiest[bound] = rate > 0.0 ? amount / rate : 0.0;
}

/* Seconds, by what is kept busy. */
static void read_load(const struct zo_sim *sim, const struct load *load,
                      double busiest[ZO_BOUNDS])
{
    const struct zo_program *program = sim->options->program;
    const struct zo_profile *profile = sim->options->profile;

    for (int b = 0; b < ZO_BOUNDS; b++) {
        busiest[b] = b <= ZO_BOUND_COLLECTIVE
                         ? lane_seconds(program, load, (enum zo_engine)b)
                         : 0.0;
    }
    note_busiest(busiest, ZO_BOUND_NVME, load->nvme_seconds, 1.0);
    note_busiest(
        busiest, ZO_BOUND_CPU, load->cpu_bytes,
        fmin(profile->cpu, sim->workers * zo_sim_thread_rate(profile)));
    note_busiest(busiest, ZO_BOUND_DRAM, load->dram_bytes,
                 zo_profile_dram(profile));
}

static enum zo_status read_busiest(const struct zo_sim *sim,
                                   struct zo_sim_result *result)
{
    const struct zo_program *program = sim->options->program;
    double busiest[ZO_BOUNDS];
    struct load load = {NULL, 0.0, 0.0, 0.0};

    ZO_TRY(zo_alloc(zo_lane_count(program), sizeof(load.lanes[0]),
                    "the simulator", &load.lanes));
    for (size_t i = first_of(sim, window_begin(sim));
         i < first_of(sim, window_end(sim)); i++) {
        add_load(program, sim->instances[i].op, sim->instances[i].cost,
                 1.0 / window_lists(sim), &load);
    }
    read_load(sim, &load, busiest);
    for (int b = 0; b < ZO_BOUNDS; b++) {
        if (busiest[b] > result->busiest_seconds) {
            result->busiest_seconds = busiest[b];
            result->busiest = (enum zo_bound)b;
        }
    }
    zo_free(load.lanes);
    return ZO_OK;
}

enum zo_status zo_sim_read_list(const struct zo_sim *sim, int schedule,
                                double *compute_out, double *rest_out)
{
    const struct zo_program *program = sim->options->program;
    const struct zo_schedule *list = &program->schedules[schedule];
    double busiest[ZO_BOUNDS], rest = 0.0;
    struct load load = {NULL, 0.0, 0.0, 0.0};

    ZO_TRY(zo_alloc(zo_lane_count(program), sizeof(load.lanes[0]),
                    "the simulator", &load.lanes));
    for (size_t i = 0; i < list->op_count; i++) {
        add_load(program, &list->ops[i], &sim->costs[schedule][i], 1.0, &load);
    }
    read_load(sim, &load, busiest);
    zo_free(load.lanes);
    for (int b = ZO_BOUND_COMPUTE + 1; b < ZO_BOUNDS; b++) {
        rest = fmax(rest, busiest[b]);
    }
    *compute_out = busiest[ZO_BOUND_COMPUTE];
    *rest_out = rest;
    return ZO_OK;
}

/* ---- where the time went --------------------------------------------------
 */

/* From `from` to `to` of an operation: launching, sharing, and its engine. */
static void add_segment(const struct zo_sim *sim, size_t index, double from,
                        double to, double *path)
{
    const struct zo_sim_instance *instance = &sim->instances[index];
    const struct zo_sim_op *op = &sim->ops[index];
    const bool is_stream = instance->lane != ZO_NO_LANE;
    const double lead = is_stream ? instance->lead_seconds : 0.0;
    const double work = op->end_seconds - op->start_seconds - lead;
    const double led = fmax(0.0, fmin(to, op->start_seconds + lead) - from);
    const double share = instance->cost->dram_bytes > 0.0 && work > 0.0
                             ? fmin(1.0, instance->saturated_seconds / work)
                             : 0.0;

    path[ZO_BOUND_WAITING] += led;
    path[ZO_BOUND_DRAM] += share * (to - from - led);
    path[instance->op->engine] += (1.0 - share) * (to - from - led);
}

static void read_path(const struct zo_sim *sim, struct zo_sim_result *result)
{
    double to = result->to_seconds;
    uint64_t at = ZO_NO_INSTANCE;

    for (size_t i = 0; i < first_of(sim, window_end(sim)); i++) {
        if (sim->ops[i].end_seconds >= to) {
            at = i;
            break;
        }
    }
    while (at != ZO_NO_INSTANCE && to > result->from_seconds) {
        const double start = sim->ops[at].start_seconds;
        const double from = fmax(start, result->from_seconds);

        if (to > from) {
            add_segment(sim, (size_t)at, from, to, result->path_seconds);
            to = from;
        }
        at = sim->ops[at].last_pred;
    }
    result->bound = ZO_BOUND_COMPUTE;
    for (int b = 0; b < ZO_BOUNDS; b++) {
        result->path_seconds[b] /= window_lists(sim);
    }
    for (int b = 0; b < ZO_BOUNDS; b++) {
        if (result->path_seconds[b] > result->path_seconds[result->bound]) {
            result->bound = (enum zo_bound)b;
        }
    }
}

enum zo_status zo_sim_read(const struct zo_sim *sim,
                           struct zo_sim_result *result)
{
    find_window(sim, result);
    if (sim->options->seconds_alone) {
        return ZO_OK;
    }
    ZO_TRY(read_engines(sim, result));
    ZO_TRY(read_chain(sim, result));
    ZO_TRY(read_busiest(sim, result));
    read_path(sim, result);
    return ZO_OK;
}
