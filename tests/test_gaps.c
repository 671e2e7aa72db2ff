/*
 * Gaps, against a table of every byte at every moment.
 */
#include "offload/gaps.h"

#include <stdbool.h>
#include <string.h>

#include "src/base/memory.h"
#include "tests/offload_help.h"
#include "tests/tap.h"

enum { MOMENTS_MAX = 41, BYTES_MAX = 512 };

/* What is taken. */
struct table {
    bool taken[MOMENTS_MAX][BYTES_MAX];
};

static bool is_free(const struct table *table, struct zo_gaps_span span,
                    uint64_t at, uint64_t bytes)
{
    for (uint32_t moment = span.first; moment <= span.last; moment++) {
        for (uint64_t byte = at; byte < at + bytes && byte < BYTES_MAX;
             byte++) {
            if (table->taken[moment][byte]) {
                return false;
            }
        }
    }
    return true;
}

static uint64_t find(const struct table *table, struct zo_gaps_span span,
                     uint64_t base, uint64_t bytes)
{
    uint64_t at = base;

    while (!is_free(table, span, at, bytes)) {
        at++;
    }
    return at;
}

static void take(struct table *table, struct zo_gaps_span span, uint64_t at,
                 uint64_t bytes)
{
    for (uint32_t moment = span.first; moment <= span.last; moment++) {
        for (uint64_t byte = at; byte < at + bytes && byte < BYTES_MAX;
             byte++) {
            table->taken[moment][byte] = true;
        }
    }
}

static struct zo_gaps_span random_span(struct help_random *random,
                                       size_t moments)
{
    const uint32_t first = (uint32_t)help_below(random, moments);
    const uint64_t rest = moments - first;

    return (struct zo_gaps_span){
        first,
        first + (uint32_t)help_below(
                    random, help_once_in(random, 3) || rest < 4 ? rest : 4)};
}

/* Most are put where they fit; some anywhere, over what is there. */
static void compare(struct zo_gaps *gaps, struct help_random *random,
                    size_t moments)
{
    static struct table table;
    const uint64_t count = 1 + help_below(random, 60);

    memset(&table, 0, sizeof(table));
    zo_gaps_clear(gaps, moments);
    for (uint64_t i = 0; i < count; i++) {
        const struct zo_gaps_span span = random_span(random, moments);
        const uint64_t bytes = help_below(random, 20);
        const uint64_t base = help_below(random, 30);
        const uint64_t wanted = find(&table, span, base, bytes);
        uint64_t at = zo_gaps_find(gaps, span, base, bytes);

        TAP_CHECK_INT(at, wanted);
        at = help_once_in(random, 4) ? help_below(random, 100) : at;
        TAP_CHECK_INT(zo_gaps_take(gaps, span, at, bytes), ZO_OK);
        take(&table, span, at, bytes);
    }
}

static void test_random(void)
{
    struct help_random random = help_random_of(1, "gaps");
    struct zo_gaps *gaps = NULL;

    TAP_CHECK_INT(zo_gaps_open(MOMENTS_MAX, &gaps), ZO_OK);
    for (int i = 0; i < 4000; i++) {
        compare(gaps, &random, 1 + help_below(&random, MOMENTS_MAX));
    }
    zo_gaps_close(gaps);
}

/* One moment, and all of the numbers that a layout may ask for. */
static void test_large_offsets(void)
{
    const struct zo_gaps_span span = {0, 0};
    const uint64_t half = (uint64_t)1 << 62;
    struct zo_gaps *gaps = NULL;

    TAP_CHECK_INT(zo_gaps_open(0, &gaps), ZO_OK);
    zo_gaps_clear(gaps, 0);
    TAP_CHECK_INT(zo_gaps_find(gaps, span, half, half), half);
    TAP_CHECK_INT(zo_gaps_take(gaps, span, half, half), ZO_OK);
    TAP_CHECK_INT(zo_gaps_find(gaps, span, 0, half), 0);
    TAP_CHECK(zo_gaps_find(gaps, span, 1, half) == 2 * half);
    zo_gaps_clear(gaps, 1);
    TAP_CHECK_INT(zo_gaps_find(gaps, span, half, half), half);
    zo_gaps_close(gaps);
}

/* Every second byte, so that nothing unites, and then what joins them all. */
static enum zo_status fill(struct zo_gaps *gaps)
{
    zo_gaps_clear(gaps, 8);
    for (uint64_t i = 0; i < 400; i++) {
        ZO_TRY(zo_gaps_take(gaps, (struct zo_gaps_span){i % 3, 4 + i % 4},
                            2 * i, 1));
    }
    return zo_gaps_take(gaps, (struct zo_gaps_span){0, 7}, 0, 800);
}

static void test_failed_allocations(void)
{
    enum zo_status status = ZO_E_NOMEM;
    uint64_t nth = 0;

    while (status != ZO_OK) {
        struct zo_gaps *gaps = NULL;

        zo_memory_fail_at(++nth);
        status = zo_gaps_open(8, &gaps);
        status = status == ZO_OK ? fill(gaps) : status;
        zo_memory_fail_at(0);
        TAP_CHECK(status == ZO_OK || status == ZO_E_NOMEM);
        TAP_CHECK(nth < 30);
        if (status == ZO_OK) {
            TAP_CHECK_INT(zo_gaps_find(gaps, (struct zo_gaps_span){0, 0}, 0, 1),
                          800);
        }
        zo_gaps_close(gaps);
    }
    TAP_CHECK(nth > 5);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"the lowest gap is found, whatever was taken", test_random},
        {"offsets up to 2^62 do not overflow", test_large_offsets},
        {"each failed allocation is clean", test_failed_allocations},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
