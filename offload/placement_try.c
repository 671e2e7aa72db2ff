#include "offload/placement_try.h"

#include <math.h>

#include "offload/layout.h"
#include "offload/simulator.h"
#include "src/base/arith.h"
#include "src/base/memory.h"

/* A buffer for each gradient; a ring, and some of the units that forward needs
 * first with one of their own; and for states on NVMe, whose gradients pass
 * through the ring too. */
static const struct zo_host_use uses[] = {
    {0, 0, false, false},
    {3, 5, false, false},
    {2, 1, false, false},
    {2, 1, true, false},
};
#define THRIFTY_RING 3 /* of gradients, where there may be one */

static bool may_spill(const struct zo_place_options *options)
{
    return options->weights_limit == ZO_TIER_NVME ||
           options->optimizer_limit == ZO_TIER_NVME;
}

/* ---- the candidate at hand ------------------------------------------------
 */

static void list_uses(struct zo_search *search)
{
    const struct zo_place_options *options = search->options;
    const struct zo_build_options *build = options->build;
    const bool may_copy = build->type == ZO_F16 && !build->evaluates_only;

    for (int copies = may_copy; copies >= 0; copies--) {
        for (size_t i = 0; i < ZO_COUNT(uses); i++) {
            struct zo_host_use *use = &search->uses[search->use_count];

            /* Gradients that wait for a decision have buffers of their own. */
            if ((build->decides && uses[i].gradient_ring > 0) ||
                (uses[i].nvme_rings_gradients && !may_spill(options))) {
                continue;
            }
            *use = uses[i];
            use->weight_copies = copies == 1;
            if (copies == 0 &&
                (build->decides || use->gradient_ring == THRIFTY_RING)) {
                search->thrifty_use = search->use_count;
            }
            search->use_count++;
        }
    }
}

enum zo_status zo_search_open(const struct zo_place_options *options,
                              struct zo_search *search_out)
{
    struct zo_search search = {
        .options = options,
        .placement =
            {
                .pageable_weights = options->pageable_weights,
                .pageable_optimizer = options->pageable_optimizer,
                .waits_to_fetch = options->waits_to_fetch,
                .reuse_max_elems = options->reuse_max_elems,
            },
        .least_resident = zo_homes_fewest_resident(options),
    };

    const size_t units = (size_t)options->build->unit_count;

    ZO_ASSERT(options->keep_most <= options->keep_least);
    ZO_ASSERT(options->weight_ring_max >= 2 &&
              options->weight_ring_max <= ZO_RING_MAX);
    ZO_TRY(
        zo_alloc(units, sizeof(search.homes[0]), "a placement", &search.homes));
    if (zo_alloc(units + 1, sizeof(search.seen[0]), "a placement",
                 &search.seen) != ZO_OK) {
        zo_free(search.homes);
        return ZO_E_NOMEM;
    }
    zo_search_forget(&search);
    list_uses(&search);
    *search_out = search;
    return ZO_OK;
}

void zo_search_close(struct zo_search *search)
{
    zo_free(search->homes);
    zo_free(search->seen);
}

void zo_search_forget(struct zo_search *search)
{
    for (int r = 0; r <= search->options->build->unit_count; r++) {
        search->seen[r].seconds = NAN;
    }
}

void zo_search_set_homes(struct zo_search *search, int resident, int spilled)
{
    search->choice.resident = resident;
    search->choice.spilled = spilled;
    search->choice.spilled =
        zo_homes_set(search->options, &search->choice, search->homes);
    search->placement.homes = search->homes;
}

void zo_search_take_up(struct zo_search *search,
                       const struct zo_candidate *candidate)
{
    search->placement = candidate->placement;
    search->choice = candidate->choice;
    zo_search_set_homes(search, search->choice.resident,
                        search->choice.spilled);
}

void zo_search_set_use(struct zo_search *search, int use)
{
    const struct zo_host_use *chosen = &search->uses[use];

    search->placement.host_gradient_ring = chosen->gradient_ring;
    search->placement.own_gradients = chosen->own_gradients;
    search->placement.nvme_rings_gradients = chosen->nvme_rings_gradients;
    search->placement.weight_copies = chosen->weight_copies;
}

/* ---- measures -------------------------------------------------------------
 */

double zo_search_least_seconds(const struct zo_search *search, int end)
{
    double least = INFINITY;

    for (int r = 0; r < end; r++) {
        if (search->best[r].is_there) {
            least = fmin(least, search->best[r].measure.seconds);
        }
    }
    return least;
}

double zo_search_to_beat(const struct zo_search *search)
{
    return fmin(zo_search_least_seconds(search, ZO_PLACE_FILLED_NVME),
                zo_search_least_seconds(search, ZO_PLACE_RANKS) /
                    ZO_WORTH_NVME);
}

/* What is to be known of a candidate's time. */
enum wanted {
    AT_LEAST,      /* what no step is shorter than */
    IF_IT_MAY_WIN, /* how long it takes, unless something is faster for sure */
    SECONDS,
};

/* INFINITY where the profile lacks a rate. */
static enum zo_status simulate(const struct zo_search *search,
                               const struct zo_build *build, enum wanted wanted,
                               struct zo_measure *measure)
{
    const struct zo_sim_options sim = {
        .program = &build->program,
        .profile = search->options->profile,
        .type = build->options.type,
        .cpu_workers = search->options->cpu_workers,
        .seconds_alone = true,
    };
    const int schedule = build->options.evaluates_only
                             ? build->evaluation_schedule
                             : build->step_schedule;
    struct zo_sim_result result = {0};
    enum zo_status status = zo_sim_busy(
        &sim, schedule, &measure->compute_seconds, &measure->rest_seconds);

    if (status == ZO_OK && wanted != AT_LEAST) {
        measure->seconds =
            fmax(measure->compute_seconds, measure->rest_seconds);
        if (wanted == SECONDS || measure->seconds < zo_search_to_beat(search)) {
            status = zo_simulate_steps(&sim, schedule, &result);
            measure->seconds = result.step_seconds;
        }
        measure->seconds = status == ZO_OK ? measure->seconds : INFINITY;
        zo_sim_result_fini(&result);
    }
    return status == ZO_E_ARG ? ZO_OK : status;
}

static bool within(uint64_t bytes, uint64_t budget)
{
    return budget == 0 || bytes <= budget;
}

static bool fits(const struct zo_measure *measure)
{
    return measure->fits_gpu && measure->fits_host && measure->fits_nvme;
}

static enum zo_status build_one(struct zo_search *search, enum wanted wanted,
                                struct zo_measure *measure_out)
{
    const struct zo_place_options *options = search->options;
    struct zo_build_options build_options = *options->build;
    struct zo_measure measure = {.seconds = INFINITY};
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
    measure.nvme_bytes = build.program.arena_bytes[ZO_TIER_NVME][0];
    measure.fits_gpu = within(measure.gpu_bytes, options->gpu_bytes);
    measure.fits_host = within(measure.host_bytes, options->host_bytes);
    measure.fits_nvme = within(measure.nvme_bytes, options->nvme_bytes);
    if (measure.fits_gpu) {
        status = simulate(search, &build, fits(&measure) ? wanted : AT_LEAST,
                          &measure);
    }
    zo_build_fini(&build);
    *measure_out = measure;
    return status;
}

/* ---- comparing ------------------------------------------------------------
 */

static struct zo_candidate at_hand(const struct zo_search *search,
                                   const struct zo_measure *measure)
{
    return (struct zo_candidate){true, search->placement, search->choice,
                                 *measure};
}

static void keep_nearest(struct zo_search *search,
                         const struct zo_measure *measure)
{
    struct zo_candidate *nearest = &search->short_of_gpu;
    uint64_t bytes = measure->gpu_bytes, least = nearest->measure.gpu_bytes;

    if (measure->fits_gpu) {
        nearest = measure->fits_host ? &search->short_of_nvme
                                     : &search->short_of_host;
        bytes = measure->fits_host ? measure->nvme_bytes : measure->host_bytes;
        least = measure->fits_host ? nearest->measure.nvme_bytes
                                   : nearest->measure.host_bytes;
    }
    if (!nearest->is_there || bytes < least) {
        *nearest = at_hand(search, measure);
    }
}

enum zo_status zo_search_measure(struct zo_search *search,
                                 struct zo_measure *measure_out)
{
    ZO_TRY(build_one(search, AT_LEAST, measure_out));
    if (!fits(measure_out)) {
        keep_nearest(search, measure_out);
    }
    return ZO_OK;
}

enum zo_status zo_search_simulate(struct zo_search *search,
                                  struct zo_measure *measure_out)
{
    return build_one(search, SECONDS, measure_out);
}

enum zo_status zo_search_try(struct zo_search *search,
                             struct zo_measure *measure_out)
{
    const int rank = search->choice.spilled == 0       ? (int)search->rank
                     : search->rank == ZO_PLACE_FILLED ? ZO_PLACE_FILLED_NVME
                                                       : ZO_PLACE_OTHER_NVME;
    struct zo_candidate *best = &search->best[rank];

    ZO_TRY(build_one(search,
                     search->rank == ZO_PLACE_OTHER ? IF_IT_MAY_WIN : SECONDS,
                     measure_out));
    if (!fits(measure_out)) {
        keep_nearest(search, measure_out);
        return ZO_OK;
    }
    search->fitted++;
    if (!best->is_there || measure_out->seconds < best->measure.seconds) {
        *best = at_hand(search, measure_out);
    }
    return ZO_OK;
}

/* ---- NVMe -----------------------------------------------------------------
 */

/* Host memory that a state gives up when it goes to NVMe; its gradient may
 * then need a place of its own. */
static uint64_t spilled_bytes(const struct zo_search *search, int unit,
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
static int guess_spilled(const struct zo_search *search, uint64_t bytes)
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

enum zo_status zo_search_spill(struct zo_search *search, uint64_t host_bytes)
{
    const struct zo_place_options *options = search->options;
    const int resident = search->choice.resident;
    int at = guess_spilled(search, host_bytes - options->host_bytes);
    int most, fitting, short_of = 0; /* what fits, what does not */
    struct zo_measure measure;

    zo_search_set_homes(search, resident, ZO_SPILL_ALL);
    most = search->choice.spilled;
    fitting = most + 1;

    while (fitting - short_of > 1) {
        at = (int)zo_max_i64(short_of + 1, zo_min_i64(at, fitting - 1));
        zo_search_set_homes(search, resident, at);
        ZO_TRY(zo_search_measure(search, &measure));
        if (measure.fits_host) {
            fitting = at--;
        } else {
            short_of = at++;
        }
    }
    zo_search_set_homes(search, resident, fitting > most ? most : fitting);
    return ZO_OK;
}

/* ---- the host's memory ----------------------------------------------------
 */

static enum zo_status try_uses(struct zo_search *search, int resident,
                               struct zo_measure *measure_out)
{
    const bool fills = search->options->fills;
    struct zo_measure fastest, measure;
    bool has_room = false;

    for (int use = 0; use < search->use_count && !has_room; use++) {
        zo_search_set_use(search, use);
        /* As literally asked, all is on the slowest tier. */
        zo_search_set_homes(search, resident, fills ? 0 : ZO_SPILL_ALL);
        ZO_TRY(zo_search_try(search, &measure));
        /* To spend less would be no faster, and nothing for the devices. */
        has_room = measure.fits_host || !measure.fits_gpu;
        if (!has_room && fills && may_spill(search->options)) {
            ZO_TRY(zo_search_spill(search, measure.host_bytes));
            ZO_TRY(zo_search_try(search, &measure));
        }
        if (use == 0 || measure.seconds < fastest.seconds) {
            fastest = measure;
        }
    }
    *measure_out = fastest;
    return ZO_OK;
}

enum zo_status zo_search_seconds(struct zo_search *search, int resident,
                                 struct zo_measure *measure_out)
{
    struct zo_measure *seen = &search->seen[resident];

    if (isnan(seen->seconds)) {
        ZO_TRY(try_uses(search, resident, seen));
    }
    *measure_out = *seen;
    return ZO_OK;
}
