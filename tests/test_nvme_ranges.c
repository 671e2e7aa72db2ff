/* The union of pieces of memory against a plain map of them. */
#include <stdbool.h>
#include <string.h>

#include "offload/nvme_ranges.h"
#include "src/base/memory.h"
#include "tests/tap.h"

#define CELLS 64 /* of memory; each is a byte */

static char memory[CELLS];

/* Sorted, apart, and of the bytes that the map has. */
static bool is_union(const struct zo_nvme_ranges *ranges, const bool *map)
{
    bool seen[CELLS] = {false};
    const char *end = NULL;
    uint64_t bytes = 0;

    for (size_t i = 0; i < ranges->count; i++) {
        const struct zo_nvme_range *range = &ranges->items[i];

        if (range->bytes == 0 || (end != NULL && range->memory <= end)) {
            return false;
        }
        end = range->memory + range->bytes;
        bytes += range->bytes;
        memset(&seen[range->memory - memory], true, range->bytes);
    }
    return memcmp(seen, map, sizeof(seen)) == 0 &&
           zo_nvme_ranges_bytes(ranges) == bytes;
}

static void test_random(void)
{
    uint64_t random = 1;

    for (int run = 0; run < 500; run++) {
        struct zo_nvme_ranges ranges = {0};
        bool map[CELLS] = {false};
        bool holds = true;

        for (int add = 0; add < 12 && holds; add++) {
            size_t at, bytes;

            random = random * UINT64_C(6364136223846793005) + 1;
            at = (random >> 33) % CELLS;
            random = random * UINT64_C(6364136223846793005) + 1;
            bytes = (random >> 33) % 9;
            bytes = bytes < CELLS - at ? bytes : CELLS - at;
            memset(&map[at], true, bytes);
            holds = zo_nvme_ranges_add(&ranges, memory + at, bytes) == ZO_OK &&
                    is_union(&ranges, map);
        }
        zo_nvme_ranges_fini(&ranges);
        TAP_CHECK(holds);
    }
}

static void test_pieces(void)
{
    struct zo_nvme_ranges ranges = {0};

    TAP_CHECK_INT((long long)zo_nvme_ranges_pieces(&ranges, 4), 0);
    TAP_CHECK_INT(zo_nvme_ranges_add(&ranges, memory, 8), ZO_OK);
    TAP_CHECK_INT((long long)zo_nvme_ranges_pieces(&ranges, 4), 2);
    TAP_CHECK_INT(zo_nvme_ranges_add(&ranges, memory + 20, 9), ZO_OK);
    TAP_CHECK_INT((long long)zo_nvme_ranges_pieces(&ranges, 4), 5);
    zo_nvme_ranges_fini(&ranges);
}

static void test_no_memory(void)
{
    struct zo_nvme_ranges ranges = {0};
    enum zo_status status;

    zo_memory_fail_at(1);
    status = zo_nvme_ranges_add(&ranges, memory, 8);
    zo_memory_fail_at(0);
    TAP_CHECK_INT(status, ZO_E_NOMEM);
    TAP_CHECK_INT((long long)ranges.count, 0);
    zo_nvme_ranges_fini(&ranges);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"pieces in any order make their union", test_random},
        {"a union is cut into pieces", test_pieces},
        {"without memory nothing is added", test_no_memory},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
