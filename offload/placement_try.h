/*
 * One candidate of the search of placement.h: built, measured, compared with
 * those before it.
 *
 * Row 5, private to offload/placement*.c.  A candidate is a placement whose
 * homes follow from a zo_home_choice.  Which of all that were tried is taken
 * does not depend on the order in which they were, but for ties.
 */
#ifndef ZO_OFFLOAD_PLACEMENT_TRY_H
#define ZO_OFFLOAD_PLACEMENT_TRY_H

#include "offload/placement_homes.h"

ZO_C_BEGIN

/* What host memory is spent on, from most to least. */
struct zo_host_use {
    int gradient_ring, own_gradients; /* see struct zo_placement */
    bool nvme_rings_gradients, weight_copies;
};
#define ZO_HOST_USES_MAX 8

/* What a candidate takes. */
struct zo_measure {
    bool fits_gpu, fits_host, fits_nvme;
    uint64_t gpu_bytes, host_bytes, nvme_bytes;
    /* No step is shorter: computation of a device; the busiest of the rest. */
    double compute_seconds, rest_seconds;
    double seconds; /* INFINITY: not known */
};

struct zo_candidate {
    bool is_there;
    struct zo_placement placement;
    struct zo_home_choice choice;
    struct zo_measure measure;
};

/*
 * How a candidate ranks among others that are as fast: first what takes no more
 * of the host than it must, last what wears NVMe.
 */
enum zo_place_rank {
    ZO_PLACE_RESIDENT, /* nothing leaves the devices; a micro batch a pass */
    ZO_PLACE_FILLED,   /* as many resident units as the devices hold */
    ZO_PLACE_OTHER,
    ZO_PLACE_FILLED_NVME, /* likewise, with states on NVMe */
    ZO_PLACE_OTHER_NVME,
    ZO_PLACE_RANKS
};

struct zo_search {
    const struct zo_place_options *options;
    /* The candidate at hand. */
    struct zo_placement placement;
    struct zo_home_choice choice;
    struct zo_unit_homes *homes; /* owned */
    enum zo_place_rank rank;     /* but for states on NVMe */
    struct zo_measure *seen; /* owned; by resident units; seconds NAN: none */
    struct zo_host_use uses[ZO_HOST_USES_MAX];
    int use_count;
    int thrifty_use;                           /* little, and yet fast */
    int least_resident;                        /* the fewest that are allowed */
    double compute_seconds[ZO_KEEP_INPUT + 1]; /* with the fewest resident, by
                                                  what is kept; 0: not known */
    int tried, fitted;
    struct zo_candidate best[ZO_PLACE_RANKS]; /* that fit: the fastest */
    /* Of those that do not: of what fits the devices and the host, the one
     * that takes least of NVMe; of what fits the devices, least of the host;
     * of all, least of the devices. */
    struct zo_candidate short_of_nvme, short_of_host, short_of_gpu;
};

enum zo_status zo_search_open(const struct zo_place_options *options,
                              struct zo_search *search_out) ZO_MUST_CHECK;
void zo_search_close(struct zo_search *search);

/* The candidate at hand: its homes; one that was tried; what it spends. */
void zo_search_set_homes(struct zo_search *search, int resident, int spilled);
void zo_search_take_up(struct zo_search *search,
                       const struct zo_candidate *candidate);
void zo_search_set_use(struct zo_search *search, int use);

/* Builds the candidate at hand.  One that does not fit is kept if it is the
 * nearest of such. */
enum zo_status zo_search_measure(struct zo_search *search,
                                 struct zo_measure *measure_out) ZO_MUST_CHECK;

/*
 * The same; the time of one that fits is simulated, and it is kept if it is the
 * fastest of its rank.  One of ZO_PLACE_OTHER that cannot be the fastest is not
 * simulated: its seconds are then those that it takes at least.
 */
enum zo_status zo_search_try(struct zo_search *search,
                             struct zo_measure *measure_out) ZO_MUST_CHECK;

/* Simulates whatever fits, and keeps nothing. */
enum zo_status zo_search_simulate(struct zo_search *search,
                                  struct zo_measure *measure_out) ZO_MUST_CHECK;

/*
 * The candidate at hand with so many resident units, and with the host's memory
 * spent as it is fastest: on as much as there is room for and, where states may
 * be on NVMe, on less, so that fewer are.  What was asked before is remembered,
 * until all is forgotten: when anything else of the candidate changes.
 */
enum zo_status zo_search_seconds(struct zo_search *search, int resident,
                                 struct zo_measure *measure_out) ZO_MUST_CHECK;
void zo_search_forget(struct zo_search *search);

/* As few states on NVMe as leave the host within its budget; all, if none do.
 * The candidate at hand has none there, and takes host_bytes. */
enum zo_status zo_search_spill(struct zo_search *search,
                               uint64_t host_bytes) ZO_MUST_CHECK;

/* Seconds of the fastest of ranks below `end`; INFINITY: none of them fits, or
 * they are not known. */
double zo_search_least_seconds(const struct zo_search *search, int end);

/*
 * What cannot be faster than this is not taken.  States go to NVMe, which wears
 * it, only where the step is then shorter than this share of one without.
 */
double zo_search_to_beat(const struct zo_search *search);
#define ZO_WORTH_NVME 0.9

ZO_C_END

#endif
