#include "offload/placement.h"

#include <math.h>
#include <string.h>

#include "offload/placement_try.h"
#include "src/base/arith.h"
#include "src/base/memory.h"

/*
 * The search.  A shape is all of a placement but how many units are resident
 * and what the host's memory is spent on.  Every shape is tried, with the
 * resident units that may be fastest; a larger budget adds candidates and takes
 * none away, so none predicts a slower step than a smaller one.  Left out is
 * what is no faster than what is tried:
 *
 * - of a shape that keeps less, or whose boundaries wait on the host, all with
 *   no more resident units than the devices hold of one that differs in that
 *   alone;
 * - fewer resident units than those from which on fewer are slower;
 * - what keeps an engine busy for longer than the fastest step so far.
 *
 * More micro batches a pass, or deeper rings, are mostly faster and not always
 * (bench/ATTEMPTS.md): of those none is left out for another.
 */
#define WORTH 0.99 /* of the time: what a better rank may not cost */

/* Buffers on the device for weights, and for gradients. */
static const struct {
    int weights, gradients;
} rings[] = {{3, 2}, {2, 1}};
#define RINGS (int)ZO_COUNT(rings)
#define KEEPS (ZO_KEEP_INPUT + 1)

/* The shapes with one pass and ring. */
struct family {
    bool is_first; /* of those in which anything fits */
    int keep_most; /* of what the devices hold with the pass at all */
    /* Resident units that they held, with weights [at home there], so much
     * kept, and boundaries [on the host]. */
    int held[2][KEEPS][2];
};

static int outputs_of(const struct zo_search *search)
{
    return search->options->build->unit_count - 2;
}

static void set_ring(struct zo_search *search, int ring)
{
    search->placement.weight_ring =
        (int)zo_min_i64(rings[ring].weights, search->options->weight_ring_max);
    search->placement.gradient_ring = rings[ring].gradients;
}

static void set_kept(struct zo_search *search, int keep, int host)
{
    search->placement.keep = (enum zo_keep)keep;
    search->placement.host_boundaries = host == 1 ? outputs_of(search) : 0;
}

/* Boundaries may wait on the host; where no unit may leave, if asked to only.
 */
static int last_host(const struct zo_search *search)
{
    return search->options->host_boundaries_always ||
           search->least_resident < search->options->build->unit_count;
}

/* ---- resident units -------------------------------------------------------
 */

/* Units that may be resident beside some that are not: from the fewest on. */
static int most_of(const struct zo_search *search)
{
    return search->options->fills ? search->options->build->unit_count - 1
                                  : search->least_resident;
}

/* As many as the devices' spare memory holds, by their bytes: so many take
 * `bytes`. */
static int guess_most(const struct zo_search *search, int resident,
                      uint64_t bytes)
{
    const struct zo_place_options *options = search->options;
    const struct zo_build_options *build = options->build;
    const bool has_weights =
        search->choice.keeps_weights || options->weights_limit == ZO_TIER_GPU;
    const uint64_t budget = options->gpu_bytes;

    for (; resident < most_of(search); resident++) {
        bytes += zo_homes_resident_bytes(
            build, zo_homes_unit_at(resident, build->unit_count), has_weights);
        if (budget != 0 && bytes > budget) {
            break;
        }
    }
    return resident;
}

static enum zo_status measure_with(struct zo_search *search, int resident,
                                   struct zo_measure *measure_out)
{
    zo_search_set_homes(search, resident,
                        search->options->fills ? 0 : ZO_SPILL_ALL);
    return zo_search_measure(search, measure_out);
}

/* A device of the host has no memory of its own. */
static bool is_held(const struct zo_search *search,
                    const struct zo_measure *measure)
{
    return measure->fits_gpu &&
           (measure->fits_host || !search->options->device_is_host);
}

/* The most resident units, from `least` on, that are held; least - 1: not even
 * those.  The budget of the devices is enough for `most`. */
static enum zo_status find_held(struct zo_search *search, int least,
                                int *most_inout)
{
    int held = least - 1, end = *most_inout + 1;
    int at = *most_inout;

    while (end - held > 1) {
        struct zo_measure measure;

        ZO_TRY(zo_search_seconds(search, at, &measure));
        if (is_held(search, &measure)) {
            held = at;
        } else {
            end = at;
        }
        at = held < least ? least : held + (end - held) / 2;
    }
    *most_inout = held;
    return ZO_OK;
}

/*
 * The fastest from `least`, which the devices compute in so long, to `most`,
 * which they hold.  AdamW of a resident unit takes time of the device, that of
 * others time of the processor beside it: time falls with more resident units
 * until computation is what a step waits for, and rises from there on.  With
 * fewer it cannot fall by more than what a device computes less; but a device
 * of the host then leaves more of its memory, and less goes to NVMe.
 */
static enum zo_status try_range(struct zo_search *search, int least, int most,
                                double compute_seconds)
{
    const bool is_host = search->options->device_is_host;
    struct zo_measure here, before;
    int middle = most - 1;

    ZO_TRY(zo_search_seconds(search, most, &here));
    search->rank = ZO_PLACE_OTHER;
    if (!is_host &&
        fmax(here.seconds - (here.compute_seconds - compute_seconds),
             here.rest_seconds) >= zo_search_to_beat(search)) {
        return ZO_OK;
    }
    for (int at = least; is_host && here.nvme_bytes > 0 && at < most; at++) {
        ZO_TRY(zo_search_seconds(search, at, &before));
    }
    while (least < most) {
        ZO_TRY(zo_search_seconds(search, middle, &before));
        ZO_TRY(zo_search_seconds(search, middle + 1, &here));
        if (before.seconds < here.seconds) {
            most = middle;
        } else {
            least = middle + 1;
        }
        middle = least + (most - least) / 2;
    }
    return ZO_OK;
}

/* From `least` on, which the devices' budget allows, as many resident units as
 * are held, or fewer. */
static enum zo_status try_residents(struct zo_search *search, int least,
                                    const struct zo_measure *with_least,
                                    int *most_out)
{
    const int units = search->options->build->unit_count;
    const double compute_seconds = with_least->compute_seconds;
    int most = guess_most(search, least, with_least->gpu_bytes);
    struct zo_measure measure;

    zo_search_forget(search);
    ZO_TRY(zo_search_seconds(search, most, &measure));
    while (!measure.fits_gpu && most > least) {
        ZO_TRY(zo_search_seconds(search, --most, &measure));
    }
    ZO_TRY(find_held(search, least, &most));
    *most_out = most;
    if (most < least) {
        return ZO_OK;
    }
    ZO_TRY(try_range(search, least, most, compute_seconds));
    /* With the head alone on the host a step is shorter at once: what is
     * fastest with fewer is then not between. */
    return most == units - 1 && least < most
               ? try_range(search, least, most - 1, compute_seconds)
               : ZO_OK;
}

/* ---- shapes ---------------------------------------------------------------
 */

/* As many resident units as were held of shapes that are no slower with as
 * many: they keep more, on the devices. */
static int held_before(const struct zo_search *search,
                       const struct family *family, int keep, int host)
{
    const int keeps = search->choice.keeps_weights;
    int64_t held = search->least_resident - 1;

    /* What they take of such a device the host lacks for other things. */
    if (search->options->device_is_host && search->options->host_bytes > 0) {
        return (int)held;
    }
    if (keep > 0) {
        held = zo_max_i64(held, family->held[keeps][keep - 1][host]);
    }
    if (host == 1) {
        held = zo_max_i64(held, family->held[keeps][keep][0]);
    }
    if (keeps == 0 && !family->is_first) {
        held = zo_max_i64(held, family->held[1][keep][host]);
    }
    return (int)held;
}

static enum zo_status try_shape(struct zo_search *search, struct family *family,
                                int keep, int host)
{
    const bool keeps = search->choice.keeps_weights;
    int *held = &family->held[keeps][keep][host];
    struct zo_measure measure;

    *held = held_before(search, family, keep, host);
    search->rank =
        family->is_first && !keeps ? ZO_PLACE_FILLED : ZO_PLACE_OTHER;
    if (*held == most_of(search) ||
        (search->rank == ZO_PLACE_OTHER &&
         search->compute_seconds[keep] >= zo_search_to_beat(search))) {
        return ZO_OK;
    }
    set_kept(search, keep, host);
    ZO_TRY(measure_with(search, *held + 1, &measure));
    if (!measure.fits_gpu ||
        (search->rank == ZO_PLACE_OTHER &&
         measure.compute_seconds >= zo_search_to_beat(search))) {
        return ZO_OK;
    }
    return try_residents(search, *held + 1, &measure, held);
}

static enum zo_status try_shapes(struct zo_search *search,
                                 struct family *family, bool keeps_weights)
{
    const struct zo_place_options *options = search->options;

    search->choice.keeps_weights = keeps_weights;
    for (int keep = family->keep_most; keep <= (int)options->keep_least;
         keep++) {
        for (int host = options->host_boundaries_always;
             host <= last_host(search); host++) {
            ZO_TRY(try_shape(search, family, keep, host));
        }
    }
    return ZO_OK;
}

/* What keeps most first; but in the first family before all else what has the
 * weights of units that are not resident away from the devices. */
static enum zo_status try_family(struct zo_search *search, int keep_most,
                                 bool is_first)
{
    const struct zo_place_options *options = search->options;
    const bool may_keep = options->fills && !options->build->evaluates_only &&
                          options->weights_limit != ZO_TIER_GPU &&
                          options->optimizer_limit != ZO_TIER_GPU;
    struct family family = {.is_first = is_first, .keep_most = keep_most};

    memset(family.held, 0xff, sizeof(family.held)); /* -1 */
    if (family.is_first || !may_keep) {
        ZO_TRY(try_shapes(search, &family, false));
    }
    if (may_keep) {
        ZO_TRY(try_shapes(search, &family, true));
    }
    return family.is_first || !may_keep ? ZO_OK
                                        : try_shapes(search, &family, false);
}

/* ---- passes ---------------------------------------------------------------
 */

/* The most that the devices hold with the pass at hand and so many resident
 * units, and else with what takes least; above keep_least: nothing. */
static enum zo_status find_keep_most(struct zo_search *search, int resident,
                                     int *keep_out)
{
    int keep = (int)search->options->keep_least;
    struct zo_measure measure = {.fits_gpu = true};

    set_ring(search, RINGS - 1);
    search->choice.keeps_weights = false;
    for (; keep >= (int)search->options->keep_most && measure.fits_gpu;
         keep--) {
        set_kept(search, keep, last_host(search));
        ZO_TRY(measure_with(search, resident, &measure));
        if (measure.fits_gpu && resident == search->least_resident) {
            search->compute_seconds[keep] = measure.compute_seconds;
        }
    }
    *keep_out = measure.fits_gpu ? keep + 1 : keep + 2;
    return ZO_OK;
}

/* All units resident: what keeps most of what is held. */
static enum zo_status try_resident_ring(struct zo_search *search, int keep_most)
{
    const struct zo_place_options *options = search->options;
    const int units = options->build->unit_count;
    int end = (int)options->keep_least + 1;
    struct zo_measure measure;

    for (int host = options->host_boundaries_always; host <= last_host(search);
         host++) {
        for (int keep = keep_most; keep < end; keep++) {
            set_kept(search, keep, host);
            search->rank = search->placement.pass_micros == 1
                               ? ZO_PLACE_RESIDENT
                               : ZO_PLACE_OTHER;
            zo_search_forget(search);
            ZO_TRY(zo_search_seconds(search, units, &measure));
            end = is_held(search, &measure) ? keep : end; /* less is slower */
        }
    }
    return ZO_OK;
}

static enum zo_status try_resident(struct zo_search *search)
{
    const struct zo_build_options *build = search->options->build;
    /* Through a ring then pass weights that several devices share alone. */
    const int ring_count = build->device_count > 1 ? RINGS : 1;
    int keep_most = 0;

    search->choice.keeps_weights = false;
    if (guess_most(search, search->least_resident, 0) < most_of(search)) {
        return ZO_OK; /* the states alone are too large */
    }
    ZO_TRY(find_keep_most(search, build->unit_count, &keep_most));
    for (int ring = 0; ring < ring_count; ring++) {
        set_ring(search, ring);
        ZO_TRY(try_resident_ring(search, keep_most));
    }
    return ZO_OK;
}

static enum zo_status try_pass(struct zo_search *search, int pass,
                               bool *has_family)
{
    const int units = search->options->build->unit_count;
    int keep_most = 0;

    search->placement.pass_micros = pass;
    zo_search_set_use(search, 0);
    if (search->options->fills || search->least_resident == units) {
        ZO_TRY(try_resident(search));
    }
    if (search->least_resident == units) {
        return ZO_OK;
    }
    ZO_TRY(find_keep_most(search, search->least_resident, &keep_most));
    for (int ring = 0; ring < RINGS; ring++) {
        const int fitted = search->fitted;

        set_ring(search, ring);
        ZO_TRY(try_family(search, keep_most, !*has_family));
        *has_family = *has_family || search->fitted > fitted;
    }
    return ZO_OK;
}

/* All micro batches in one pass, or in 2, 4, 8, ...: fewer take less for what
 * is kept of each, but sums of gradients stay from one pass to the next.  Those
 * of the fewest come first: often no other can be faster. */
static enum zo_status try_passes(struct zo_search *search)
{
    const int micros = search->options->build->micros;
    bool has_family = false;
    int passes = 1;

    ZO_TRY(try_pass(search, micros, &has_family));
    while (passes < micros) {
        passes *= 2;
    }
    for (; passes > 1; passes /= 2) {
        ZO_TRY(try_pass(search, (int)zo_div_ceil(micros, passes), &has_family));
    }
    return ZO_OK;
}

/* ---- the choice -----------------------------------------------------------
 */

/* With less of the host's memory, if that costs hardly any of `seconds`. */
static enum zo_status spare_host(struct zo_search *search, double seconds,
                                 struct zo_candidate *chosen)
{
    struct zo_measure measure;

    if (chosen->choice.resident == search->options->build->unit_count) {
        return ZO_OK;
    }
    zo_search_take_up(search, chosen);
    zo_search_set_use(search, search->thrifty_use);
    ZO_TRY(zo_search_simulate(search, &measure));
    if (measure.fits_gpu && measure.fits_host && measure.fits_nvme &&
        measure.host_bytes < chosen->measure.host_bytes &&
        !(seconds < WORTH * measure.seconds)) {
        chosen->placement = search->placement;
        chosen->measure = measure;
    }
    return ZO_OK;
}

/* The first rank whose fastest is as good as the fastest of all; of those that
 * leave NVMe alone, unless all are much slower than with it. */
static enum zo_status take_best(struct zo_search *search,
                                struct zo_candidate *chosen_out)
{
    const double plain = zo_search_least_seconds(search, ZO_PLACE_FILLED_NVME);
    const double all = zo_search_least_seconds(search, ZO_PLACE_RANKS);
    const double least = all < ZO_WORTH_NVME * plain ? all : plain;
    int rank = 0;

    while (!search->best[rank].is_there ||
           least < WORTH * search->best[rank].measure.seconds) {
        rank++;
    }
    *chosen_out = search->best[rank];
    return spare_host(search, least, chosen_out);
}

/* Nothing fits: what lacks memory of the slowest tier alone. */
static enum zo_status take_nearest(struct zo_search *search,
                                   struct zo_candidate *chosen_out)
{
    struct zo_measure measure;

    *chosen_out = search->short_of_nvme.is_there   ? search->short_of_nvme
                  : search->short_of_host.is_there ? search->short_of_host
                                                   : search->short_of_gpu;
    if (chosen_out->measure.fits_gpu) {
        return ZO_OK;
    }
    zo_search_take_up(search, chosen_out);
    zo_search_set_use(search, search->use_count - 1);
    ZO_TRY(zo_search_measure(search, &measure));
    if (!measure.fits_host) {
        ZO_TRY(zo_search_spill(search, measure.host_bytes));
        ZO_TRY(zo_search_measure(search, &measure));
    }
    chosen_out->placement = search->placement;
    chosen_out->choice = search->choice;
    chosen_out->measure = measure;
    return ZO_OK;
}

/* What is asked for, literally: nothing filled up. */
static enum zo_status measure_literal(struct zo_search *search,
                                      const struct zo_candidate *chosen,
                                      uint64_t *gpu_bytes_out)
{
    struct zo_measure measure;

    search->placement = chosen->placement;
    search->choice.keeps_weights = false;
    zo_search_set_homes(search, search->least_resident, ZO_SPILL_ALL);
    ZO_TRY(zo_search_measure(search, &measure));
    *gpu_bytes_out = measure.gpu_bytes;
    return ZO_OK;
}

static enum zo_status choose(struct zo_search *search, struct zo_place *place)
{
    struct zo_candidate chosen;
    bool fits;

    ZO_TRY(try_passes(search));
    fits = search->fitted > 0;
    ZO_TRY(fits ? take_best(search, &chosen) : take_nearest(search, &chosen));
    ZO_TRY(measure_literal(search, &chosen, &place->literal_gpu_bytes));
    zo_search_take_up(search, &chosen);
    place->placement = search->placement;
    place->resident_units = chosen.choice.resident;
    place->gpu_bytes = chosen.measure.gpu_bytes;
    place->host_bytes = chosen.measure.host_bytes;
    place->nvme_bytes = chosen.measure.nvme_bytes;
    place->step_seconds =
        isfinite(chosen.measure.seconds) ? chosen.measure.seconds : 0.0;
    place->tried = search->tried;
    return fits ? ZO_OK
                : ZO_FAIL(ZO_E_FIT, "no placement of %d fits the budgets",
                          search->tried);
}

enum zo_status zo_place_choose(const struct zo_place_options *options,
                               struct zo_place *place_out)
{
    struct zo_place place = {0};
    struct zo_search search;
    enum zo_status status;

    ZO_TRY(zo_search_open(options, &search));
    status = choose(&search, &place);
    if (status == ZO_OK || status == ZO_E_FIT) {
        place.homes = search.homes;
        place.placement.homes = search.homes;
        search.homes = NULL;
        *place_out = place;
    }
    zo_search_close(&search);
    return status;
}

/* ---- whether anything fits ------------------------------------------------
 */

/* The candidate at hand, with so many resident units. */
static enum zo_status fits_with(struct zo_search *search, int resident,
                                bool *fits_out)
{
    struct zo_measure measure;

    ZO_TRY(measure_with(search, resident, &measure));
    if (measure.fits_gpu && !measure.fits_host && search->options->fills) {
        ZO_TRY(zo_search_spill(search, measure.host_bytes));
        ZO_TRY(zo_search_measure(search, &measure));
    }
    *fits_out = measure.fits_gpu && measure.fits_host && measure.fits_nvme;
    return ZO_OK;
}

/* What takes least, with boundaries here or on the host: all units resident, as
 * many as the devices hold, or, on devices of the host, as few as may be. */
static enum zo_status fits_filled(struct zo_search *search, bool *fits_out)
{
    const int units = search->options->build->unit_count;
    const int least = search->least_resident;
    struct zo_measure measure;
    bool fits = false;
    int most = least;

    if (search->options->fills || least == units) {
        ZO_TRY(fits_with(search, units, &fits));
    }
    if (!fits && least < units) {
        ZO_TRY(measure_with(search, least, &measure));
        for (most = guess_most(search, least, measure.gpu_bytes); most > least;
             most--) {
            ZO_TRY(measure_with(search, most, &measure));
            if (measure.fits_gpu) {
                break;
            }
        }
        ZO_TRY(fits_with(search, most, &fits));
    }
    if (!fits && most > least && search->options->device_is_host) {
        ZO_TRY(fits_with(search, least, &fits));
    }
    *fits_out = fits;
    return ZO_OK;
}

enum zo_status zo_place_fits(const struct zo_place_options *options,
                             bool *fits_out)
{
    const int units = options->build->unit_count;
    struct zo_search search;
    enum zo_status status = ZO_OK;
    bool fits = false;

    ZO_TRY(zo_search_open(options, &search));
    search.placement.pass_micros =
        search.least_resident == units ? 1 : options->build->micros;
    set_ring(&search, RINGS - 1);
    zo_search_set_use(&search, search.use_count - 1);
    for (int host = options->host_boundaries_always;
         status == ZO_OK && host <= last_host(&search) && !fits; host++) {
        set_kept(&search, (int)options->keep_least, host);
        status = fits_filled(&search, &fits);
    }
    zo_search_close(&search);
    if (status == ZO_OK) {
        *fits_out = fits;
    }
    return status;
}

void zo_place_fini(struct zo_place *place)
{
    if (place != NULL) {
        zo_free(place->homes);
        *place = (struct zo_place){0};
    }
}
