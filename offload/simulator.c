/*
 * The run in simulated time.
 *
 * What runs is a few flows: an operation of a stream, or the workers of the
 * CPU engine that took pieces of one operation at the same moment.  A flow
 * has a lead (launching, handing over), then work; between two events every
 * flow's speed is constant, and an event is the end of the next lead or work.
 */
#include "offload/simulator.h"

#include <math.h>

#include "offload/simulator_internal.h"
#include "src/base/memory.h"

/* Ends that differ by rounding alone are one event. */
#define SAME_MOMENT 1e-12
#define STEPS       7 /* behind them a step is like the one before */
#define SAVED       2 /* of those, the one that a save joins */

struct flow {
    size_t instance;
    int workers; /* CPU; else 1 */
    enum zo_dram_user user;
    int device;
    double lead;        /* seconds left */
    double left;        /* then: seconds at full speed; CPU: bytes a worker */
    double dram_a_unit; /* bytes of the host's memory */
    double speed;       /* units a second, now; 0 during the lead */
};

/* Ready operations of an engine without order: a heap, the next in front. */
struct ready {
    size_t *instances; /* owned */
    size_t count;
    int workers, busy;
    size_t freed_by; /* the operation that last gave a worker back */
};

struct lane {
    size_t *instances; /* borrowed of lane_instances; in list order */
    size_t count, next;
    bool is_busy;
};

struct run {
    struct zo_sim *sim;
    double now;
    double saturated_seconds; /* of the host's memory, so far */
    struct flow *flows;       /* owned */
    size_t flow_count;
    struct lane *lanes; /* owned */
    uint32_t lane_count;
    size_t *lane_instances; /* owned */
    struct ready cpu, nvme;
    size_t *successor_first; /* owned, count + 1 */
    size_t *successors;      /* owned */
    size_t *list_pending;    /* owned: operations of a list not done */
    size_t lists_done, done_count;
};

/* ---- ready operations -----------------------------------------------------
 */

/* The executor's rule: lowest priority number first, then the oldest. */
static bool goes_first(const struct zo_sim *sim, size_t a, size_t b)
{
    const int left = sim->instances[a].op->priority;
    const int right = sim->instances[b].op->priority;

    return left != right ? left < right : a < b;
}

static void push_ready(const struct zo_sim *sim, struct ready *ready,
                       size_t instance)
{
    size_t at = ready->count++;

    while (at > 0 &&
           goes_first(sim, instance, ready->instances[(at - 1) / 2])) {
        ready->instances[at] = ready->instances[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    ready->instances[at] = instance;
}

static void pop_ready(const struct zo_sim *sim, struct ready *ready)
{
    const size_t moved = ready->instances[--ready->count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= ready->count) {
            break;
        }
        if (child + 1 < ready->count &&
            goes_first(sim, ready->instances[child + 1],
                       ready->instances[child])) {
            child++;
        }
        if (!goes_first(sim, ready->instances[child], moved)) {
            break;
        }
        ready->instances[at] = ready->instances[child];
        at = child;
    }
    ready->instances[at] = moved;
}

/* ---- starting -------------------------------------------------------------
 */

static enum zo_dram_user user_of(const struct zo_op *op)
{
    switch (op->engine) {
    case ZO_ENGINE_H2D:
        return ZO_DRAM_H2D;
    case ZO_ENGINE_D2H:
        return ZO_DRAM_D2H;
    case ZO_ENGINE_CPU:
        return ZO_DRAM_CPU;
    case ZO_ENGINE_COMPUTE:
    case ZO_ENGINE_COLLECTIVE:
    case ZO_ENGINE_NVME:
    case ZO_ENGINES:
        break;
    }
    return ZO_DRAM_OTHER;
}

/* `by` is what let it start: the operation whose end, or piece, came last. */
static void start(struct run *run, size_t index, size_t by, int workers)
{
    struct zo_sim_instance *instance = &run->sim->instances[index];
    struct zo_sim_op *seen = &run->sim->ops[index];
    const struct zo_sim_cost *cost = instance->cost;
    const bool is_cpu = instance->op->engine == ZO_ENGINE_CPU;
    const double work = is_cpu ? cost->piece_bytes : cost->seconds;
    struct flow flow = {
        .instance = index,
        .workers = workers,
        .user = user_of(instance->op),
        .device = instance->op->device,
        .lead = cost->lead_seconds,
        .left = work,
        .dram_a_unit = is_cpu       ? 1.0
                       : work > 0.0 ? cost->dram_bytes / work
                                    : 0.0,
    };

    if (instance->parts_to_start == cost->parts) {
        seen->start_seconds = run->now;
        seen->last_pred = by;
        instance->saturated_before = run->saturated_seconds;
        if (instance->lane != ZO_NO_LANE && by != ZO_NO_INSTANCE &&
            run->sim->instances[by].lane == ZO_NO_LANE) {
            flow.lead += run->sim->options->profile->handoff_seconds;
        }
        instance->lead_seconds = flow.lead;
    }
    instance->parts_to_start -= workers;
    run->flows[run->flow_count++] = flow;
}

/* Starts what can start in a lane. */
static void start_lane(struct run *run, uint32_t number, size_t by)
{
    struct lane *lane = &run->lanes[number];

    if (!lane->is_busy && lane->next < lane->count &&
        run->sim->instances[lane->instances[lane->next]].pending == 0) {
        lane->is_busy = true;
        start(run, lane->instances[lane->next++], by, 1);
    }
}

static void start_ready(struct run *run, struct ready *ready)
{
    while (ready->busy < ready->workers && ready->count > 0) {
        const size_t index = ready->instances[0];
        const int parts = run->sim->instances[index].parts_to_start;
        const int idle = ready->workers - ready->busy;
        const int workers = parts < idle ? parts : idle;

        ready->busy += workers;
        if (workers == parts) {
            pop_ready(run->sim, ready);
        }
        start(run, index,
              run->sim->ops[index].ready_seconds < run->now
                  ? ready->freed_by
                  : run->sim->ops[index].last_pred,
              workers);
    }
}

/* An operation waits for one thing less. */
static void release(struct run *run, size_t index, size_t by)
{
    struct zo_sim_instance *instance = &run->sim->instances[index];

    if (--instance->pending > 0) {
        return;
    }
    run->sim->ops[index].ready_seconds = run->now;
    run->sim->ops[index].last_pred = by;
    if (instance->lane != ZO_NO_LANE) {
        start_lane(run, instance->lane, by);
    } else {
        push_ready(run->sim,
                   instance->op->engine == ZO_ENGINE_CPU ? &run->cpu
                                                         : &run->nvme,
                   index);
    }
}

/*
 * Two lists are under way at most: one starts when all but the one before it
 * are done.
 */
static void open_lists(struct run *run, size_t by)
{
    const struct zo_sim *sim = run->sim;

    while (run->lists_done < sim->list_count &&
           run->list_pending[run->lists_done] == 0) {
        const size_t list = ++run->lists_done + 1;

        if (list < sim->list_count) {
            for (size_t i = sim->list_first[list];
                 i < sim->list_first[list + 1]; i++) {
                release(run, i, by);
            }
        }
    }
}

/* ---- speeds ---------------------------------------------------------------
 */

static bool works(const struct flow *flow)
{
    return flow->lead <= 0.0;
}

/* Threads that a flow keeps busy on the host. */
static double threads_of(const struct run *run, const struct flow *flow)
{
    const struct zo_profile *profile = run->sim->options->profile;
    const enum zo_engine engine =
        run->sim->instances[flow->instance].op->engine;

    return engine == ZO_ENGINE_CPU       ? flow->workers
           : !profile->is_host           ? 0.0
           : engine == ZO_ENGINE_COMPUTE ? profile->threads
                                         : 1.0;
}

/* Each engine alone; what shares the host's cores gets its share of them. */
static void set_full_speeds(struct run *run)
{
    const struct zo_profile *profile = run->sim->options->profile;
    const double cores = profile->threads > 0 ? profile->threads : 1;
    const int busy = run->cpu.busy > 0 ? run->cpu.busy : 1;
    const double worker =
        fmin(zo_sim_thread_rate(profile), profile->cpu / busy);
    double threads = 0.0, share = 1.0;

    for (size_t i = 0; i < run->flow_count; i++) {
        threads += threads_of(run, &run->flows[i]);
    }
    if (profile->is_host && threads > cores) {
        share = cores / threads;
    }
    for (size_t i = 0; i < run->flow_count; i++) {
        struct flow *flow = &run->flows[i];

        flow->speed = !works(flow)                ? 0.0
                      : flow->user == ZO_DRAM_CPU ? share * worker
                                                  : share;
    }
}

/* Both directions of a device's bus have a common limit. */
static void limit_buses(struct run *run)
{
    const struct zo_profile *profile = run->sim->options->profile;
    const double wanted = profile->h2d + profile->d2h;

    if (profile->duplex <= 0.0 || wanted <= profile->duplex) {
        return;
    }
    for (size_t i = 0; i < run->flow_count; i++) {
        struct flow *up = &run->flows[i];

        for (size_t j = 0; up->user == ZO_DRAM_H2D && j < run->flow_count;
             j++) {
            struct flow *down = &run->flows[j];

            if (down->user == ZO_DRAM_D2H && down->device == up->device &&
                works(up) && works(down)) {
                up->speed *= profile->duplex / wanted;
                down->speed *= profile->duplex / wanted;
            }
        }
    }
}

/* The limit with the copies that run now. */
static const struct zo_dram *memory_now(const struct run *run)
{
    const struct zo_profile *profile = run->sim->options->profile;
    bool is_up = false, is_down = false;

    for (size_t i = 0; i < run->flow_count; i++) {
        const struct flow *flow = &run->flows[i];

        is_up = is_up || (flow->user == ZO_DRAM_H2D && works(flow));
        is_down = is_down || (flow->user == ZO_DRAM_D2H && works(flow));
    }
    return is_up && !is_down && profile->dram_h2d.rate > 0.0
               ? &profile->dram_h2d
           : is_down && !is_up && profile->dram_d2h.rate > 0.0
               ? &profile->dram_d2h
               : &profile->dram;
}

/*
 * Where more of the host's memory is wanted than there is, each gives up of
 * its demand a share in proportion to its yield; nobody more than nine
 * tenths: then all give alike.
 */
static bool limit_memory(struct run *run)
{
    const struct zo_dram *dram = memory_now(run);
    double wanted = 0.0, yielding = 0.0, most = 0.0, give;

    for (size_t i = 0; i < run->flow_count; i++) {
        const struct flow *flow = &run->flows[i];
        const double demand = flow->speed * flow->dram_a_unit * flow->workers;
        const double yield = dram->yield[flow->user];

        wanted += demand;
        yielding += demand * yield;
        most = demand > 0.0 && yield > most ? yield : most;
    }
    if (dram->rate <= 0.0 || wanted <= dram->rate) {
        return false;
    }
    give = yielding > 0.0 ? (wanted - dram->rate) / yielding : 1.0;
    for (size_t i = 0; i < run->flow_count; i++) {
        struct flow *flow = &run->flows[i];

        if (flow->dram_a_unit > 0.0) {
            flow->speed *= yielding > 0.0 && give * most <= 0.9
                               ? 1.0 - give * dram->yield[flow->user]
                               : dram->rate / wanted;
        }
    }
    return true;
}

/* ---- events ---------------------------------------------------------------
 */

static double seconds_left(const struct flow *flow)
{
    return !works(flow)        ? flow->lead
           : flow->left <= 0.0 ? 0.0
                               : flow->left / flow->speed;
}

/* Moves time to the next event. */
static void advance(struct run *run)
{
    bool is_saturated;
    double next = INFINITY;

    set_full_speeds(run);
    limit_buses(run);
    is_saturated = limit_memory(run);
    for (size_t i = 0; i < run->flow_count; i++) {
        const double left = seconds_left(&run->flows[i]);

        next = left < next ? left : next;
    }
    for (size_t i = 0; i < run->flow_count; i++) {
        struct flow *flow = &run->flows[i];
        const bool ends =
            seconds_left(flow) <= next + SAME_MOMENT * (run->now + next);

        if (!works(flow)) {
            flow->lead = ends ? 0.0 : flow->lead - next;
        } else {
            flow->left = ends ? 0.0 : flow->left - next * flow->speed;
        }
    }
    run->now += next;
    run->saturated_seconds += is_saturated ? next : 0.0;
}

static void finish(struct run *run, size_t index)
{
    struct zo_sim *sim = run->sim;
    struct zo_sim_instance *instance = &sim->instances[index];

    sim->ops[index].end_seconds = run->now;
    instance->saturated_seconds =
        run->saturated_seconds - instance->saturated_before;
    run->done_count++;
    for (size_t s = run->successor_first[index];
         s < run->successor_first[index + 1]; s++) {
        release(run, run->successors[s], index);
    }
    run->list_pending[instance->list]--;
    open_lists(run, index);
}

/* Takes away the flows that are done; then starts what may start. */
static void end_flows(struct run *run)
{
    for (size_t i = 0; i < run->flow_count;) {
        const struct flow flow = run->flows[i];
        struct zo_sim_instance *instance = &run->sim->instances[flow.instance];

        if (!works(&flow) || flow.left > 0.0) {
            i++;
            continue;
        }
        run->flows[i] = run->flows[--run->flow_count];
        if (instance->lane != ZO_NO_LANE) {
            run->lanes[instance->lane].is_busy = false;
        } else if (instance->op->engine == ZO_ENGINE_CPU) {
            run->cpu.busy -= flow.workers;
            run->cpu.freed_by = flow.instance;
        } else {
            run->nvme.busy -= flow.workers;
            run->nvme.freed_by = flow.instance;
        }
        instance->parts_to_end -= flow.workers;
        if (instance->parts_to_end == 0) {
            finish(run, flow.instance);
        }
        if (instance->lane != ZO_NO_LANE) {
            start_lane(run, instance->lane, flow.instance);
        }
    }
    start_ready(run, &run->cpu);
    start_ready(run, &run->nvme);
}

/* ---- before and behind ----------------------------------------------------
 */

static void close_run(struct run *run)
{
    zo_free(run->flows);
    zo_free(run->lanes);
    zo_free(run->lane_instances);
    zo_free(run->cpu.instances);
    zo_free(run->nvme.instances);
    zo_free(run->successor_first);
    zo_free(run->successors);
    zo_free(run->list_pending);
}

static enum zo_status alloc_run(struct run *run)
{
    static const char what[] = "the simulator";
    const struct zo_sim *sim = run->sim;
    const size_t edges = sim->edges.first[sim->count];
    const size_t flows = run->lane_count + (size_t)sim->workers + 1;

    ZO_TRY(zo_alloc(flows, sizeof(run->flows[0]), what, &run->flows));
    ZO_TRY(zo_alloc(run->lane_count, sizeof(run->lanes[0]), what, &run->lanes));
    ZO_TRY(zo_alloc(sim->count, sizeof(size_t), what, &run->lane_instances));
    ZO_TRY(zo_alloc(sim->count, sizeof(size_t), what, &run->cpu.instances));
    ZO_TRY(zo_alloc(sim->count, sizeof(size_t), what, &run->nvme.instances));
    ZO_TRY(
        zo_alloc(sim->count + 1, sizeof(size_t), what, &run->successor_first));
    ZO_TRY(zo_alloc(edges, sizeof(size_t), what, &run->successors));
    return zo_alloc(sim->list_count, sizeof(size_t), what, &run->list_pending);
}

/* The edges, turned round. */
static void turn_edges(struct run *run)
{
    const struct zo_edges *edges = &run->sim->edges;
    const size_t count = run->sim->count;
    size_t *first = run->successor_first;

    for (size_t e = 0; e < edges->first[count]; e++) {
        first[edges->preds[e]]++;
    }
    for (size_t i = 1; i <= count; i++) {
        first[i] += first[i - 1];
    }
    for (size_t i = count; i-- > 0;) {
        for (size_t e = edges->first[i]; e < edges->first[i + 1]; e++) {
            run->successors[--first[edges->preds[e]]] = i;
        }
    }
}

static void fill_lanes(struct run *run)
{
    const struct zo_sim *sim = run->sim;
    size_t used = 0;

    for (size_t i = 0; i < sim->count; i++) {
        if (sim->instances[i].lane != ZO_NO_LANE) {
            run->lanes[sim->instances[i].lane].count++;
        }
    }
    for (uint32_t l = 0; l < run->lane_count; l++) {
        run->lanes[l].instances = run->lane_instances + used;
        used += run->lanes[l].count;
        run->lanes[l].count = 0;
    }
    for (size_t i = 0; i < sim->count; i++) {
        if (sim->instances[i].lane != ZO_NO_LANE) {
            struct lane *lane = &run->lanes[sim->instances[i].lane];

            lane->instances[lane->count++] = i;
        }
    }
}

static void fill_pending(struct run *run)
{
    struct zo_sim *sim = run->sim;

    for (size_t i = 0; i < sim->count; i++) {
        struct zo_sim_instance *instance = &sim->instances[i];

        instance->pending = sim->edges.first[i + 1] - sim->edges.first[i] +
                            (instance->list >= 2 ? 1 : 0);
        run->list_pending[instance->list]++;
        sim->ops[i].last_pred = ZO_NO_INSTANCE;
    }
}

static enum zo_status run_all(struct zo_sim *sim)
{
    struct run run = {
        .sim = sim,
        .lane_count = zo_lane_count(sim->options->program),
        .cpu = {.workers = sim->workers, .freed_by = ZO_NO_INSTANCE},
        .nvme = {.workers = 1, .freed_by = ZO_NO_INSTANCE},
    };
    const enum zo_status status = alloc_run(&run);

    if (status != ZO_OK) {
        close_run(&run);
        return status;
    }
    turn_edges(&run);
    fill_lanes(&run);
    fill_pending(&run);
    for (size_t i = 0; i < sim->count; i++) {
        const struct zo_sim_instance *instance = &sim->instances[i];

        if (instance->pending == 0 && instance->lane == ZO_NO_LANE) {
            push_ready(sim,
                       instance->op->engine == ZO_ENGINE_CPU ? &run.cpu
                                                             : &run.nvme,
                       i);
        }
    }
    open_lists(&run, ZO_NO_INSTANCE);
    for (uint32_t l = 0; l < run.lane_count; l++) {
        start_lane(&run, l, ZO_NO_INSTANCE);
    }
    start_ready(&run, &run.cpu);
    start_ready(&run, &run.nvme);
    while (run.flow_count > 0) {
        advance(&run);
        end_flows(&run);
    }
    ZO_ASSERT(run.done_count == sim->count);
    close_run(&run);
    return ZO_OK;
}

/* Instances in the order of the sequence. */
static enum zo_status number_instances(struct zo_sim *sim)
{
    const struct zo_program *program = sim->options->program;
    size_t at = 0;

    ZO_TRY(zo_alloc(sim->edges.count, sizeof(sim->instances[0]),
                    "the simulator", &sim->instances));
    ZO_TRY(zo_alloc(sim->edges.count, sizeof(sim->ops[0]), "the simulator",
                    &sim->ops));
    ZO_TRY(zo_alloc(sim->item_count + 1, sizeof(sim->list_first[0]),
                    "the simulator", &sim->list_first));
    sim->count = sim->edges.count;
    for (size_t item = 0; item < sim->item_count; item++) {
        const int s = sim->items[item].schedule;
        const struct zo_schedule *list = &program->schedules[s];

        if (item == 0 || !list->joins) {
            sim->list_first[sim->list_count++] = at;
        }
        for (size_t i = 0; i < list->op_count; i++, at++) {
            const struct zo_sim_cost *cost = &sim->costs[s][i];

            sim->instances[at] = (struct zo_sim_instance){
                .op = &list->ops[i],
                .cost = cost,
                .lane = zo_lane_of(program, &list->ops[i]),
                .list = (int)sim->list_count - 1,
                .parts_to_start = cost->parts,
                .parts_to_end = cost->parts,
            };
            sim->ops[at] =
                (struct zo_sim_op){.item = (int)item,
                                   .op = i,
                                   .alone_seconds = cost->alone_seconds};
        }
    }
    sim->list_first[sim->list_count] = at;
    ZO_ASSERT(at == sim->count);
    return ZO_OK;
}

static struct zo_sim sim_of(const struct zo_sim_options *options,
                            const struct zo_sequence_item *items,
                            size_t item_count)
{
    const int threads = options->cpu_workers > 0 ? options->cpu_workers
                                                 : options->profile->threads;

    return (struct zo_sim){.options = options,
                           .items = items,
                           .item_count = item_count,
                           .workers = threads > 0 ? threads : 1};
}

enum zo_status zo_sim_busy(const struct zo_sim_options *options, int schedule,
                           double *compute_out, double *rest_out)
{
    const struct zo_sequence_item item = {schedule, 0};
    struct zo_sim sim = sim_of(options, &item, 1);
    enum zo_status status = zo_sim_costs(&sim);

    if (status == ZO_OK) {
        status = zo_sim_read_list(&sim, schedule, compute_out, rest_out);
    }
    zo_free(sim.costs[schedule]);
    return status;
}

enum zo_status zo_simulate(const struct zo_sim_options *options,
                           const struct zo_sequence_item *items,
                           size_t item_count, struct zo_sim_result *result_out)
{
    struct zo_sim sim = sim_of(options, items, item_count);
    struct zo_sim_result result = {.is_rough = options->profile->is_host};
    enum zo_status status;

    ZO_ASSERT(item_count > 0);
    ZO_TRY_GOTO(free_tables, zo_sim_costs(&sim));
    ZO_TRY_GOTO(free_tables, zo_edges_derive(options->program, items,
                                             item_count, &sim.edges));
    ZO_TRY_GOTO(free_tables, number_instances(&sim));
    ZO_TRY_GOTO(free_tables, run_all(&sim));
    ZO_TRY_GOTO(free_tables, zo_sim_read(&sim, &result));
    result.ops = sim.ops;
    result.op_count = sim.count;
    *result_out = result;
    sim.ops = NULL;

free_tables:
    for (int s = 0; s < ZO_SCHEDULES_MAX; s++) {
        zo_free(sim.costs[s]);
    }
    zo_edges_fini(&sim.edges);
    zo_free(sim.instances);
    zo_free(sim.ops);
    zo_free(sim.list_first);
    return status;
}

void zo_sim_result_fini(struct zo_sim_result *result)
{
    if (result != NULL) {
        zo_free(result->ops);
        *result = (struct zo_sim_result){0};
    }
}

enum zo_status zo_simulate_steps(const struct zo_sim_options *options,
                                 int schedule, struct zo_sim_result *result_out)
{
    struct zo_sequence_item items[STEPS];
    struct zo_sim_options changed = *options;

    changed.window_lists = 2;
    changed.lists_behind = 1;
    for (int i = 0; i < STEPS; i++) {
        items[i] = (struct zo_sequence_item){schedule, i % 2};
    }
    return zo_simulate(&changed, items, STEPS, result_out);
}

/* Steps, with a save behind one of them or without; all of them. */
static enum zo_status simulate_save(const struct zo_sim_options *options,
                                    int step_schedule, int save_schedule,
                                    bool saves, double *seconds_out)
{
    struct zo_sequence_item items[STEPS + 1];
    struct zo_sim_options changed = *options;
    struct zo_sim_result result;
    size_t count = 0;

    changed.whole = true;
    for (int i = 0; i < STEPS; i++) {
        items[count++] = (struct zo_sequence_item){step_schedule, i % 2};
        if (saves && i == SAVED) {
            items[count++] = (struct zo_sequence_item){save_schedule, i % 2};
        }
    }
    ZO_TRY(zo_simulate(&changed, items, count, &result));
    *seconds_out = result.step_seconds;
    zo_sim_result_fini(&result);
    return ZO_OK;
}

enum zo_status zo_simulate_save(const struct zo_sim_options *options,
                                int step_schedule, int save_schedule,
                                double *seconds_out)
{
    double with = 0.0, without = 0.0;

    ZO_TRY(simulate_save(options, step_schedule, save_schedule, true, &with));
    ZO_TRY(
        simulate_save(options, step_schedule, save_schedule, false, &without));
    *seconds_out = fmax(0.0, with - without);
    return ZO_OK;
}
