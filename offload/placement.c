#include "offload/placement.h"

#include <math.h>
#include <string.h>

#include "offload/layout.h"
#include "offload/placement_homes.h"
#include "offload/simulator.h"
#include "src/base/arith.h"
#include "src/base/memory.h"

/*
 * Rings, from deep to shallow: buffers on the device for weights and for
 * gradients; on the host for gradients, and so many of the units that forward
 * needs first with one of their own.  The last is for states on NVMe alone:
 * their gradients too pass through the ring.
 */
static const struct rings {
    int weights, gradients, host_gradients, own_gradients;
    bool nvme_gradients;
} rings[] = {{3, 2, 3, 5, false},
             {3, 2, 2, 1, false},
             {2, 1, 2, 1, false},
             {2, 1, 2, 1, true}};
#define RINGS (int)ZO_COUNT(rings)
#define WORTH 0.99 /* of the time: what more host memory must save */

/* What a candidate takes. */
struct measure {
    bool fits_gpu, fits_host, fits_nvme;
    uint64_t gpu_bytes, host_bytes, nvme_bytes;
    double seconds; /* INFINITY: not known */
};

/* One that has been tried. */
struct candidate {
    bool is_there;
    struct zo_placement placement;
    struct measure measure;
    struct zo_home_choice choice;
};

struct search {
    const struct zo_place_options *options;
    /* The candidate at hand. */
    struct zo_placement placement;
    struct zo_home_choice choice;
    struct zo_unit_homes *homes; /* owned */
    int least_resident;          /* the fewest that are allowed */
    int tried;
    bool skips_time; /* any that fits will do */
    bool spills;     /* what the host has no room for goes to NVMe */
    /* Of those that only the host has no room for, the one that wants least
     * of it. */
    struct candidate nearest;
    struct candidate best; /* the fastest so far that fits */
};

/* ---- homes ----------------------------------------------------------------
 */

static bool may_spill(const struct zo_place_options *options)
{
    return options->weights_limit == ZO_TIER_NVME ||
           options->optimizer_limit == ZO_TIER_NVME;
}

static void set_homes(struct search *search, int resident, int spilled)
{
    search->choice.resident = resident;
    search->choice.spilled = spilled;
    zo_homes_set(search->options, &search->choice, search->homes);
    search->placement.homes = search->homes;
}

/* A candidate is at hand again. */
static void take_up(struct search *search, const struct candidate *candidate)
{
    search->placement = candidate->placement;
    search->choice = candidate->choice;
    zo_homes_set(search->options, &search->choice, search->homes);
    search->placement.homes = search->homes;
}

/* ---- one candidate --------------------------------------------------------
 */

/* INFINITY where the profile lacks a rate. */
static enum zo_status simulate(const struct zo_place_options *options,
                               const struct zo_build *build,
                               double *seconds_out)
{
    const struct zo_sim_options sim = {
        .program = &build->program,
        .profile = options->profile,
        .type = build->options.type,
        .cpu_workers = options->cpu_workers,
    };
    struct zo_sim_result result = {0};
    const enum zo_status status = zo_simulate_steps(
        &sim,
        build->options.evaluates_only ? build->evaluation_schedule
                                      : build->step_schedule,
        &result);

    *seconds_out = status == ZO_OK ? result.step_seconds : INFINITY;
    zo_sim_result_fini(&result);
    return status == ZO_E_ARG ? ZO_OK : status;
}

static bool within(uint64_t bytes, uint64_t budget)
{
    return budget == 0 || bytes <= budget;
}

/* Builds the candidate; its time is simulated when it fits. */
static enum zo_status try_one(struct search *search, bool wants_time,
                              struct measure *measure_out)
{
    const struct zo_place_options *options = search->options;
    struct zo_build_options build_options = *options->build;
    struct measure measure = {.seconds = INFINITY};
    enum zo_status status = ZO_OK;
    struct zo_build build;

    search->tried++;
    build_options.placement = search->placement;
    ZO_TRY(zo_build_train(&build_options, &build));
    for (int d = 0; d < build_options.device_count; d++) {
        const uint64_t bytes = build.program.arena_bytes[ZO_TIER_GPU][d];

        measure.gpu_bytes =
            bytes > measure.gpu_bytes ? bytes : measure.gpu_bytes;
        measure.host_bytes += options->device_is_host ? bytes : 0;
    }
    measure.host_bytes += build.program.arena_bytes[ZO_TIER_CPU][0] +
                          build.program.arena_bytes[ZO_TIER_PAGEABLE][0];
    measure.fits_gpu = within(measure.gpu_bytes, options->gpu_bytes);
    measure.fits_host = within(measure.host_bytes, options->host_bytes);
    measure.nvme_bytes = build.program.arena_bytes[ZO_TIER_NVME][0];
    measure.fits_nvme = within(measure.nvme_bytes, options->nvme_bytes);
    if (wants_time && !search->skips_time && measure.fits_gpu &&
        measure.fits_host) {
        status = simulate(options, &build, &measure.seconds);
    }
    zo_build_fini(&build);
    *measure_out = measure;
    return status;
}

static struct candidate at_hand(const struct search *search,
                                const struct measure *measure)
{
    return (struct candidate){true, search->placement, *measure,
                              search->choice};
}

static void keep_if_nearest(struct search *search,
                            const struct measure *measure)
{
    if (measure->fits_gpu && measure->fits_nvme &&
        (!search->nearest.is_there ||
         measure->host_bytes < search->nearest.measure.host_bytes)) {
        search->nearest = at_hand(search, measure);
    }
}

static void keep_if_best(struct search *search, const struct measure *measure,
                         double worth)
{
    if (!measure->fits_gpu || !measure->fits_host || !measure->fits_nvme) {
        keep_if_nearest(search, measure);
    } else if (!search->best.is_there ||
               measure->seconds < worth * search->best.measure.seconds) {
        search->best = at_hand(search, measure);
    }
}

/* As many more units as the candidate's spare memory holds, by their bytes. */
static int guess_resident(const struct search *search,
                          const struct measure *bare)
{
    const struct zo_build_options *build = search->options->build;
    const int units = build->unit_count;
    const uint64_t budget = search->options->gpu_bytes;
    uint64_t bytes = bare->gpu_bytes;
    int resident = search->least_resident;

    while (resident < units) {
        bytes +=
            zo_homes_resident_bytes(build, zo_homes_unit_at(resident, units),
                                    search->choice.keeps_weights);
        if (!within(bytes, budget)) {
            break;
        }
        resident++;
    }
    return resident;
}

/* Host memory that a state gives up when it goes to NVMe; its gradient may
 * then need a place of its own. */
static uint64_t spilled_bytes(const struct search *search, int unit,
                              bool is_weights)
{
    const struct zo_build_options *build = search->options->build;
    const uint64_t typed = zo_dtype_bytes(build->type);
    const uint64_t rest = (build->type == ZO_BF16  ? 2
                           : build->type == ZO_F16 ? 4
                                                   : 0) +
                          2 * zo_dtype_bytes(build->moment_type);
    const bool gets_gradient = search->placement.host_gradient_ring > 0 &&
                               !search->placement.nvme_rings_gradients;

    return (uint64_t)build->units[unit].elems * (is_weights      ? typed
                                                 : gets_gradient ? rest - typed
                                                                 : rest);
}

/* As many states as give up so much; the candidate has none on NVMe yet. */
static int guess_spilled(const struct search *search, uint64_t bytes)
{
    const struct zo_place_options *options = search->options;
    uint64_t given = 0;
    int spilled = 0;

    for (int weights = 0; weights < 2; weights++) {
        const enum zo_tier limit =
            weights == 1 ? options->weights_limit : options->optimizer_limit;

        for (int u = options->build->unit_count - 1; u >= 0; u--) {
            const struct zo_unit_homes *homes = &search->homes[u];

            if (given >= bytes || limit != ZO_TIER_NVME ||
                (weights == 1 ? homes->weights : homes->optimizer) !=
                    ZO_TIER_CPU) {
                continue;
            }
            given += spilled_bytes(search, u, weights == 1);
            spilled++;
        }
    }
    return spilled;
}

/* As few states on NVMe as leave the host within its budget; all, if none
 * do.  host_bytes: of the candidate at hand, which has none there. */
static enum zo_status spill_least(struct search *search, uint64_t host_bytes)
{
    const struct zo_place_options *options = search->options;
    const int resident = search->choice.resident;
    const int most = zo_homes_spill_max(options, resident);
    int fitting = most + 1, short_of = 0; /* what fits, what does not */
    int at = guess_spilled(search, host_bytes - options->host_bytes);
    struct measure measure;

    while (fitting - short_of > 1) {
        at = (int)zo_max_i64(short_of + 1, zo_min_i64(at, fitting - 1));
        set_homes(search, resident, at);
        ZO_TRY(try_one(search, false, &measure));
        if (measure.fits_host) {
            fitting = at--;
        } else {
            short_of = at++;
        }
    }
    set_homes(search, resident, fitting > most ? most : fitting);
    return ZO_OK;
}

/* Whether anything fits: with all that may be on NVMe there. */
static enum zo_status spill_most(struct search *search,
                                 struct measure *measure_out)
{
    set_homes(search, search->choice.resident,
              zo_homes_spill_max(search->options, search->choice.resident));
    return try_one(search, false, measure_out);
}

/* The candidate at hand, with states on NVMe as far as the host is short. */
static enum zo_status spill_what_is_needed(struct search *search,
                                           struct measure *measure_inout)
{
    const uint64_t host_bytes = measure_inout->host_bytes;

    if (search->skips_time) {
        ZO_TRY(spill_most(search, measure_inout));
        if (!measure_inout->fits_host || measure_inout->fits_nvme) {
            return ZO_OK;
        }
        set_homes(search, search->choice.resident, 0);
    }
    ZO_TRY(spill_least(search, host_bytes));
    return try_one(search, true, measure_inout);
}

static enum zo_status settle(struct search *search)
{
    const struct zo_place_options *options = search->options;
    struct measure measure;

    ZO_TRY(try_one(search, true, &measure));
    if (!measure.fits_host && search->spills) {
        ZO_TRY(spill_what_is_needed(search, &measure));
    }
    /* Units that are resident on a device of the host take its memory too. */
    if (!measure.fits_host && options->device_is_host &&
        search->choice.resident > search->least_resident) {
        set_homes(search, search->least_resident, 0);
        ZO_TRY(try_one(search, true, &measure));
        if (!measure.fits_host && search->spills) {
            ZO_TRY(spill_what_is_needed(search, &measure));
        }
    }
    keep_if_best(search, &measure, 1.0);
    return ZO_OK;
}

/* As many resident units as fit the device; `bare` has the fewest. */
static enum zo_status fill_device(struct search *search,
                                  const struct measure *bare)
{
    const int units = search->options->build->unit_count;
    struct measure measure;

    set_homes(search, guess_resident(search, bare), 0);
    ZO_TRY(try_one(search, false, &measure));
    while (!measure.fits_gpu &&
           search->choice.resident > search->least_resident) {
        set_homes(search, search->choice.resident - 1, 0);
        ZO_TRY(try_one(search, false, &measure));
    }
    while (search->choice.resident < units) {
        set_homes(search, search->choice.resident + 1, 0);
        ZO_TRY(try_one(search, false, &measure));
        if (!measure.fits_gpu) {
            set_homes(search, search->choice.resident - 1, 0);
            break;
        }
    }
    return ZO_OK;
}

/* The candidate with as many resident units as fit, if it fits at all. */
static enum zo_status fill_up(struct search *search)
{
    const struct zo_place_options *options = search->options;
    /* Nothing is filled up, or nobody asks how far. */
    const bool is_bare =
        !options->fills || (search->skips_time && search->spills);
    struct measure measure;

    set_homes(search, search->least_resident,
              is_bare ? zo_homes_spill_max(options, search->least_resident)
                      : 0);
    ZO_TRY(try_one(search, !options->fills, &measure));
    if (is_bare) {
        keep_if_best(search, &measure, 1.0);
    }
    if (!options->fills || !measure.fits_gpu ||
        (search->skips_time && search->best.is_there)) {
        return ZO_OK;
    }
    ZO_TRY(fill_device(search, &measure));
    return settle(search);
}

/* ---- the search -----------------------------------------------------------
 */

/* Everything on the devices: what keeps most is fastest. */
static enum zo_status try_resident(struct search *search)
{
    const struct zo_place_options *options = search->options;
    struct measure measure;

    set_homes(search, options->build->unit_count, 0);
    search->placement.pass_micros = 1;
    search->placement.host_boundaries =
        options->host_boundaries_always ? options->build->unit_count - 2 : 0;
    for (int keep = (int)options->keep_most;
         keep <= (int)options->keep_least && !search->best.is_there; keep++) {
        search->placement.keep = (enum zo_keep)keep;
        ZO_TRY(try_one(search, true, &measure));
        keep_if_best(search, &measure, 1.0);
    }
    return ZO_OK;
}

/* With one choice of rings and passes, all of what is kept, and where. */
static enum zo_status try_keeps(struct search *search)
{
    const struct zo_place_options *options = search->options;
    const int outputs = options->build->unit_count - 2;

    for (int keep = (int)options->keep_most; keep <= (int)options->keep_least;
         keep++) {
        search->placement.keep = (enum zo_keep)keep;
        for (int host = options->host_boundaries_always; host < 2; host++) {
            search->placement.host_boundaries = host == 1 ? outputs : 0;
            ZO_TRY(fill_up(search));
        }
    }
    return ZO_OK;
}

static void set_rings(struct search *search, int ring)
{
    const struct zo_place_options *options = search->options;

    search->placement.weight_ring =
        (int)zo_min_i64(rings[ring].weights, options->weight_ring_max);
    search->placement.gradient_ring = rings[ring].gradients;
    search->placement.host_gradient_ring =
        options->build->decides ? 0 : rings[ring].host_gradients;
    search->placement.own_gradients = rings[ring].own_gradients;
    search->placement.nvme_rings_gradients = rings[ring].nvme_gradients;
}

/* Fewer micro batches a pass, or shallower rings, only where more do not fit:
 * both cost time.  With all_rings the fastest of them decides. */
static enum zo_status try_rings(struct search *search, int ring_count,
                                bool all_rings)
{
    const int micros = search->options->build->micros;

    for (int pass = micros; pass >= 1 && !search->best.is_there;
         pass = pass > 1 ? (pass + 1) / 2 : 0) {
        search->placement.pass_micros = pass;
        for (int ring = 0;
             ring < ring_count && (all_rings || !search->best.is_there);
             ring++) {
            set_rings(search, ring);
            ZO_TRY(try_keeps(search));
        }
    }
    return ZO_OK;
}

/* Whether what takes least of both tiers fits without NVMe; if not, nothing
 * that is faster does. */
static enum zo_status fits_without_nvme(struct search *search, bool *fits_out)
{
    const struct zo_place_options *options = search->options;
    struct search least = *search;
    enum zo_status status = ZO_OK;

    least.skips_time = true;
    least.placement.pass_micros = 1;
    least.placement.keep = options->keep_least;
    set_rings(&least, RINGS - 2);
    for (int host = options->host_boundaries_always;
         status == ZO_OK && host < 2 && !least.best.is_there; host++) {
        least.placement.host_boundaries =
            host == 1 ? options->build->unit_count - 2 : 0;
        status = fill_up(&least);
    }
    search->tried = least.tried;
    *fits_out = least.best.is_there;
    return status;
}

/* NVMe is slower than all else: only what fits in no other way goes there. */
static enum zo_status try_offloaded(struct search *search)
{
    bool fits = true;

    if (may_spill(search->options)) {
        ZO_TRY(fits_without_nvme(search, &fits));
    }
    if (fits) {
        ZO_TRY(try_rings(search, RINGS - 1, false));
    }
    search->spills = may_spill(search->options);
    return search->best.is_there || !search->spills
               ? ZO_OK
               : try_rings(search, RINGS, true);
}

/* No unit resident that need not be, which leaves most for what is kept of
 * units: the most of that which fits, and, with more, outputs on the host. */
static enum zo_status try_bare(struct search *search)
{
    const struct zo_place_options *options = search->options;
    const int outputs = options->build->unit_count - 2;

    for (int host = options->host_boundaries_always; host < 2; host++) {
        struct measure measure = {.fits_gpu = false};

        search->placement.host_boundaries = host == 1 ? outputs : 0;
        for (int keep = (int)options->keep_most;
             keep <= (int)options->keep_least && !measure.fits_gpu; keep++) {
            search->placement.keep = (enum zo_keep)keep;
            set_homes(search, search->least_resident, 0);
            ZO_TRY(try_one(search, true, &measure));
            keep_if_best(search, &measure, WORTH);
        }
    }
    return ZO_OK;
}

/* The best, with as many resident units as fit, and with half of them. */
static enum zo_status try_between(struct search *search)
{
    const int least = search->least_resident;
    struct measure measure;
    int most;

    take_up(search, &search->best);
    set_homes(search, least, 0);
    ZO_TRY(try_one(search, false, &measure));
    ZO_TRY(fill_device(search, &measure));
    most = search->choice.resident;
    for (int half = 1; half <= 2 && most > least; half++) {
        set_homes(search, least + (most - least) * half / 2, 0);
        ZO_TRY(try_one(search, true, &measure));
        keep_if_best(search, &measure, WORTH);
    }
    return ZO_OK;
}

/*
 * More host memory for less time: fewer resident units, or their weights alone
 * on the devices.  AdamW of a resident unit takes time of the device, that of
 * others time of the processor beside it: where computation is what a step
 * waits for, less that is resident is faster.
 */
static enum zo_status try_fewer_resident(struct search *search)
{
    const struct zo_place_options *options = search->options;
    const int may_keep = options->weights_limit != ZO_TIER_GPU &&
                         options->optimizer_limit != ZO_TIER_GPU;

    if (!search->best.is_there || !options->fills || search->spills ||
        options->build->evaluates_only ||
        !isfinite(search->best.measure.seconds)) {
        return ZO_OK;
    }
    search->placement = search->best.placement;
    for (int keeps = 0; keeps <= may_keep; keeps++) {
        search->choice.keeps_weights = keeps == 1;
        ZO_TRY(try_bare(search));
    }
    ZO_TRY(try_between(search));
    search->choice.keeps_weights = false;
    return ZO_OK;
}

/* More host memory for less time: a buffer for each gradient, 16-bit copies
 * of fp16 weights. */
static enum zo_status spend_host_memory(struct search *search)
{
    const struct zo_build_options *build = search->options->build;
    struct measure measure;

    if (!search->best.is_there ||
        search->best.choice.resident == build->unit_count) {
        return ZO_OK;
    }
    take_up(search, &search->best);
    if (search->best.placement.host_gradient_ring > 0) {
        search->placement.host_gradient_ring = 0;
        ZO_TRY(try_one(search, true, &measure));
        keep_if_best(search, &measure, WORTH);
        search->placement = search->best.placement;
    }
    if (build->type == ZO_F16 && !build->evaluates_only) {
        search->placement.weight_copies = true;
        ZO_TRY(try_one(search, true, &measure));
        keep_if_best(search, &measure, WORTH);
    }
    return ZO_OK;
}

/* What is asked for, literally: nothing filled up. */
static enum zo_status measure_literal(struct search *search,
                                      struct zo_place *place)
{
    struct measure measure;

    search->placement = search->best.placement;
    search->choice.keeps_weights = false;
    set_homes(search, search->least_resident,
              zo_homes_spill_max(search->options, search->least_resident));
    ZO_TRY(try_one(search, false, &measure));
    place->literal_gpu_bytes = measure.gpu_bytes;
    return ZO_OK;
}

/* Nothing fits: the candidate that takes least of the devices, or one that
 * fits them and takes less of the host. */
static enum zo_status take_least(struct search *search)
{
    const struct zo_place_options *options = search->options;
    const bool offloads = search->least_resident < options->build->unit_count;
    struct measure measure;

    set_homes(search, search->least_resident,
              zo_homes_spill_max(options, search->least_resident));
    search->placement.keep = options->keep_least;
    search->placement.pass_micros = 1;
    if (offloads) {
        set_rings(search, RINGS - 1);
        search->placement.pass_micros = options->build->micros;
        search->placement.host_boundaries = options->build->unit_count - 2;
    }
    ZO_TRY(try_one(search, false, &measure));
    search->best = at_hand(search, &measure);
    if (search->nearest.is_there &&
        search->nearest.measure.host_bytes < measure.host_bytes) {
        search->best = search->nearest;
    }
    search->best.is_there = false; /* it does not fit */
    return ZO_OK;
}

static enum zo_status choose(struct search *search, struct zo_place *place)
{
    const struct zo_place_options *options = search->options;
    const int units = options->build->unit_count;

    search->least_resident = zo_homes_fewest_resident(options);
    search->placement = (struct zo_placement){
        .weight_ring = rings[0].weights,
        .gradient_ring = rings[0].gradients,
        .pageable_weights = options->pageable_weights,
        .pageable_optimizer = options->pageable_optimizer,
        .waits_to_fetch = options->waits_to_fetch,
        .reuse_max_elems = options->reuse_max_elems,
    };
    if (options->fills || search->least_resident == units) {
        ZO_TRY(try_resident(search));
    }
    if (!search->best.is_there && search->least_resident < units) {
        ZO_TRY(try_offloaded(search));
        ZO_TRY(try_fewer_resident(search));
        ZO_TRY(spend_host_memory(search));
    }
    if (!search->best.is_there) {
        ZO_TRY(take_least(search));
    }
    ZO_TRY(measure_literal(search, place));
    take_up(search, &search->best);
    place->placement = search->placement;
    place->resident_units = search->best.choice.resident;
    place->gpu_bytes = search->best.measure.gpu_bytes;
    place->host_bytes = search->best.measure.host_bytes;
    place->nvme_bytes = search->best.measure.nvme_bytes;
    place->step_seconds = isfinite(search->best.measure.seconds)
                              ? search->best.measure.seconds
                              : 0.0;
    place->tried = search->tried;
    return search->best.is_there
               ? ZO_OK
               : ZO_FAIL(ZO_E_FIT, "no placement of %d fits the budgets",
                         search->tried);
}

enum zo_status zo_place_choose(const struct zo_place_options *options,
                               struct zo_place *place_out)
{
    struct search search = {.options = options};
    struct zo_place place = {0};
    enum zo_status status;

    ZO_ASSERT(options->keep_most <= options->keep_least);
    ZO_ASSERT(options->weight_ring_max >= 2 &&
              options->weight_ring_max <= ZO_RING_MAX);
    ZO_TRY(zo_alloc((size_t)options->build->unit_count, sizeof(search.homes[0]),
                    "a placement", &search.homes));
    status = choose(&search, &place);
    if (status != ZO_OK && status != ZO_E_FIT) {
        zo_free(search.homes);
        return status;
    }
    place.homes = search.homes;
    place.placement.homes = search.homes;
    *place_out = place;
    return status;
}

enum zo_status zo_place_fits(const struct zo_place_options *options,
                             bool *fits_out)
{
    const int units = options->build->unit_count;
    struct search search = {
        .options = options, .skips_time = true, .spills = may_spill(options)};
    enum zo_status status = ZO_OK;
    int hosts;

    ZO_TRY(zo_alloc((size_t)units, sizeof(search.homes[0]), "a placement",
                    &search.homes));
    search.least_resident = zo_homes_fewest_resident(options);
    search.placement = (struct zo_placement){
        .keep = options->keep_least,
        .pass_micros =
            search.least_resident == units ? 1 : options->build->micros,
        .pageable_weights = options->pageable_weights,
        .pageable_optimizer = options->pageable_optimizer,
    };
    set_rings(&search, RINGS - 1);
    /* Where all is resident, boundaries wait on the host if asked to only. */
    hosts = options->host_boundaries_always || search.least_resident < units;
    for (int host = options->host_boundaries_always;
         status == ZO_OK && host <= hosts && !search.best.is_there; host++) {
        search.placement.host_boundaries = host == 1 ? units - 2 : 0;
        status = fill_up(&search);
    }
    *fits_out = search.best.is_there;
    zo_free(search.homes);
    return status;
}

void zo_place_fini(struct zo_place *place)
{
    if (place != NULL) {
        zo_free(place->homes);
        *place = (struct zo_place){0};
    }
}
