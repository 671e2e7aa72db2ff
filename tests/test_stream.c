/*
 * Which weights pass through a ring when: closed forms of the step's own
 * order, rules over random orders, and the fewest fetches that any plan needs.
 */
#include "offload/stream.h"

#include <stdbool.h>
#include <string.h>

#include "offload/builder.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

enum { USES_MAX = 256, UNITS_MAX = 6, MASKS = 1 << UNITS_MAX };

/* ---- the step's own order ------------------------------------------------ */

/* Layers 1 .. n forward, the head (n + 1), layers n .. 1 backward. */
static size_t step_order(int layers, struct zo_use *uses)
{
    size_t count = 0;

    for (int u = 1; u <= layers + 1; u++) {
        uses[count++] = (struct zo_use){.unit = u, .streams = true, .elems = 7};
    }
    for (int u = layers; u >= 1; u--) {
        uses[count++] = (struct zo_use){.unit = u, .streams = true, .elems = 7};
    }
    return count;
}

/*
 * Every use of forward is a fetch.  Behind the head are the depth - 1 layers
 * that backward needs first, and slots go around: each fetch waits for the use
 * that is `depth` fetches and reuses back.
 */
static void check_step_order(int layers, int depth)
{
    struct zo_use uses[USES_MAX];
    const size_t count = step_order(layers, uses);
    const int head = layers; /* its place in the order */
    int fetches = 0;

    zo_stream_plan(uses, count, depth, 0);
    for (int i = 0; i < (int)count; i++) {
        const bool is_forward = i <= head;
        const bool is_kept = !is_forward && i - head < depth;
        const int64_t after = is_kept     ? -1
                              : i < depth ? -1
                                          : (int64_t)i - depth;

        TAP_CHECK(uses[i].fetches == !is_kept);
        TAP_CHECK_INT(uses[i].after, after);
        if (is_kept) { /* the mirror image of its forward */
            TAP_CHECK_INT(uses[i].slot, uses[2 * head - i].slot);
        } else if (after >= 0) {
            TAP_CHECK_INT(uses[i].slot, uses[after].slot);
        } else {
            TAP_CHECK(uses[i].slot >= 0 && uses[i].slot < depth);
        }
        fetches += uses[i].fetches;
    }
    TAP_CHECK_INT(fetches, 2 * layers + 1 - (depth - 1));
}

static void test_step_order(void)
{
    static const int depths[] = {2, 3, 5};

    for (size_t i = 0; i < TAP_COUNT(depths); i++) {
        for (int layers = depths[i]; layers <= 28; layers++) {
            check_step_order(layers, depths[i]);
        }
    }
}

/* What fits is fetched once, and waits for nothing. */
static void test_all_fit(void)
{
    struct zo_use uses[USES_MAX];

    for (int layers = 1; layers <= 5; layers++) {
        const size_t count = step_order(layers, uses);

        zo_stream_plan(uses, count, layers + 1, 0);
        for (int i = 0; i < (int)count; i++) {
            TAP_CHECK(uses[i].fetches == (i <= layers));
            TAP_CHECK_INT(uses[i].after, -1);
        }
    }
}

/* One slot is no ring: only the same unit twice in a row stays. */
static void test_one_slot(void)
{
    static const int units[] = {1, 2, 2, 1, 1, 1, 3};
    static const bool fetches[] = {true, true, false, true, false, false, true};
    struct zo_use uses[TAP_COUNT(units)];

    for (size_t i = 0; i < TAP_COUNT(units); i++) {
        uses[i] = (struct zo_use){.unit = units[i], .streams = true};
    }
    zo_stream_plan(uses, TAP_COUNT(units), 1, 0);
    for (size_t i = 0; i < TAP_COUNT(units); i++) {
        TAP_CHECK(uses[i].fetches == fetches[i]);
        TAP_CHECK_INT(uses[i].slot, 0);
        TAP_CHECK_INT(uses[i].after, fetches[i] ? (int64_t)i - 1 : -1);
    }
}

/* Between the first two uses of layer 1 lie 3 + 9 + 30 elements. */
static void test_reuse_limit(void)
{
    static const int64_t limits[] = {0, 1, 41, 42, 43};

    for (size_t l = 0; l < TAP_COUNT(limits); l++) {
        struct zo_use uses[] = {
            {.unit = 1, .streams = true, .elems = 100},
            {.unit = 2, .streams = true, .elems = 3},
            {.unit = 0, .streams = false, .elems = 9}, /* counts as well */
            {.unit = 3, .streams = true, .elems = 30},
            {.unit = 1, .streams = true, .elems = 100},
            {.unit = 1, .streams = true, .elems = 100}, /* nothing between */
        };
        const bool again = limits[l] == 1 || limits[l] == 41;

        zo_stream_plan(uses, TAP_COUNT(uses), 3, limits[l]);
        TAP_CHECK(uses[4].fetches == again);
        TAP_CHECK_INT(uses[4].slot, uses[0].slot);
        TAP_CHECK_INT(uses[4].after, again ? 0 : -1);
        TAP_CHECK(!uses[5].fetches);
    }
}

/* ---- random orders ------------------------------------------------------- */

static size_t random_order(struct help_random *random, size_t longest,
                           int units, struct zo_use *uses)
{
    const size_t count = 1 + help_below(random, longest);
    int64_t elems[UNITS_MAX];
    bool streams[UNITS_MAX];

    for (int u = 0; u < units; u++) {
        elems[u] = 1 + (int64_t)help_below(random, 50);
        streams[u] = !help_once_in(random, 4);
    }
    for (size_t i = 0; i < count; i++) {
        const int u = (int)help_below(random, (uint64_t)units);

        uses[i] = (struct zo_use){
            /* What the plan sets must not depend on what was there. */
            .slot = 77,
            .after = 77,
            .fetches = help_once_in(random, 2),
            .unit = u,
            .streams = streams[u],
            .elems = elems[u]};
    }
    return count;
}

/* The last use of a slot before use i; -1: none. */
static int64_t last_of_slot(const struct zo_use *uses, int64_t i, int slot)
{
    while (--i >= 0 && uses[i].slot != slot) {
    }
    return i;
}

static int64_t elems_between(const struct zo_use *uses, int64_t from,
                             int64_t to)
{
    int64_t sum = 0;

    while (++from < to) {
        sum += uses[from].elems;
    }
    return sum;
}

/* Every use finds its unit in its slot. */
static void check_plan(const struct zo_use *uses, size_t count, int depth,
                       int64_t reuse_max)
{
    int held[ZO_RING_MAX];

    memset(held, 0xff, sizeof(held)); /* nothing */
    for (int64_t i = 0; i < (int64_t)count; i++) {
        const struct zo_use *use = &uses[i];
        const int64_t last = last_of_slot(uses, i, use->slot);
        bool is_held = false;

        if (!use->streams) {
            TAP_CHECK_INT(use->slot, ZO_NO_SLOT);
            TAP_CHECK(!use->fetches);
            TAP_CHECK_INT(use->after, -1);
            continue;
        }
        TAP_CHECK(use->slot >= 0 && use->slot < depth);
        for (int s = 0; s < depth; s++) {
            is_held |= held[s] == use->unit;
        }
        if (!use->fetches) {
            TAP_CHECK_INT(held[use->slot], use->unit);
            TAP_CHECK_INT(use->after, -1);
        } else {
            /* Behind its last use, and ahead of this one, nobody needs what
             * the slot holds; and it was not there, or too far away. */
            TAP_CHECK_INT(use->after, last);
            TAP_CHECK(use->after < i);
            TAP_CHECK(!is_held || (reuse_max > 0 &&
                                   elems_between(uses, last, i) > reuse_max));
        }
        TAP_CHECK(use->fetches || reuse_max == 0 ||
                  elems_between(uses, last, i) <= reuse_max);
        held[use->slot] = use->unit;
    }
}

static void test_rules(void)
{
    for (uint64_t seed = 0; seed < 4000; seed++) {
        struct help_random random = help_random_of(seed, "order");
        struct zo_use uses[USES_MAX];
        const size_t count =
            random_order(&random, seed % 8 == 0 ? USES_MAX : 20,
                         1 + (int)(seed % UNITS_MAX), uses);
        const int depth = 1 + (int)help_below(&random, 5);
        const int64_t reuse_max =
            help_once_in(&random, 2) ? (int64_t)help_below(&random, 200) : 0;

        zo_stream_plan(uses, count, depth, reuse_max);
        check_plan(uses, count, depth, reuse_max);
    }
}

/* The same rules hold for a ring of the most slots. */
static void test_largest_ring(void)
{
    struct zo_use uses[USES_MAX];

    for (int i = 0; i < USES_MAX; i++) {
        uses[i] = (struct zo_use){
            .unit = (i * 37) % (ZO_RING_MAX + 9), .streams = true, .elems = 1};
    }
    zo_stream_plan(uses, USES_MAX, ZO_RING_MAX, 0);
    check_plan(uses, USES_MAX, ZO_RING_MAX, 0);
    zo_stream_plan(uses, 0, ZO_RING_MAX, 0); /* nothing to plan */
}

/* ---- no plan needs fewer ------------------------------------------------- */

static int bits_of(int mask)
{
    int count = 0;

    for (; mask != 0; mask &= mask - 1) {
        count++;
    }
    return count;
}

static void lower(int *least, int value)
{
    *least = value < *least ? value : *least;
}

/* Over all choices of what to give up: the fewest fetches of any plan. */
static int fewest_fetches(const struct zo_use *uses, size_t count, int depth)
{
    int least[MASKS], next[MASKS], best = INT32_MAX;

    for (int mask = 0; mask < MASKS; mask++) {
        least[mask] = mask == 0 ? 0 : INT32_MAX - USES_MAX;
    }
    for (size_t i = 0; i < count; i++) {
        const int own = 1 << uses[i].unit;

        if (!uses[i].streams) {
            continue;
        }
        for (int mask = 0; mask < MASKS; mask++) {
            next[mask] = INT32_MAX - USES_MAX;
        }
        for (int mask = 0; mask < MASKS; mask++) {
            if ((mask & own) != 0) {
                lower(&next[mask], least[mask]);
            } else if (bits_of(mask) < depth) {
                lower(&next[mask | own], least[mask] + 1);
            }
            for (int u = 0; u < UNITS_MAX && (mask & own) == 0; u++) {
                if ((mask >> u & 1) != 0) {
                    lower(&next[(mask & ~(1 << u)) | own], least[mask] + 1);
                }
            }
        }
        memcpy(least, next, sizeof(least));
    }
    for (int mask = 0; mask < MASKS; mask++) {
        lower(&best, least[mask]);
    }
    return best;
}

static void test_fewest(void)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct help_random random = help_random_of(seed, "fewest");
        struct zo_use uses[USES_MAX];
        const size_t count = random_order(&random, 24, UNITS_MAX, uses);
        const int depth = 1 + (int)help_below(&random, 4);
        int fetches = 0;

        zo_stream_plan(uses, count, depth, 0);
        for (size_t i = 0; i < count; i++) {
            fetches += uses[i].fetches;
        }
        TAP_CHECK_INT(fetches, fewest_fetches(uses, count, depth));
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a step fetches all but the layers that end its forward",
         test_step_order},
        {"what fits in the ring is fetched once", test_all_fit},
        {"one slot keeps the unit at hand alone", test_one_slot},
        {"weights whose uses lie too far apart are fetched again",
         test_reuse_limit},
        {"each use finds its unit, in a slot that was free", test_rules},
        {"likewise in the deepest ring", test_largest_ring},
        {"no plan needs fewer fetches", test_fewest},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
