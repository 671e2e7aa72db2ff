/*
 * Units: where their tensors lie, and the pair that makes a bf16 master.
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "offload/unit.h"
#include "src/base/arith.h"
#include "src/base/random.h"
#include "tests/tap.h"

/* ---- layout -------------------------------------------------------------- */

enum { TENSORS = 5, GAPS_MAX = TENSORS + 1, DEVICES = 5 };

/* Sizes around the alignment; what decays is mixed with what does not. */
static struct zo_unit unit_of(struct zo_unit_tensor *tensors)
{
    static const struct zo_unit_tensor model[TENSORS] = {
        {.name = "norm", .dims = 1, .shape = {127}},
        {.name = "matrix", .dims = 2, .shape = {7, 55}, .decays = true},
        {.name = "bias", .dims = 1, .shape = {128}},
        {.name = "one", .dims = 2, .shape = {1, 1}, .decays = true},
        {.name = "square", .dims = 2, .shape = {16, 16}, .decays = true},
    };

    memcpy(tensors, model, sizeof(model));
    return (struct zo_unit){
        .name = "unit", .tensors = tensors, .tensor_count = TENSORS};
}

static void test_places(void)
{
    struct zo_unit_tensor tensors[TENSORS];
    struct zo_unit unit = unit_of(tensors);

    TAP_CHECK_INT(zo_unit_layout(&unit, 1), ZO_OK);
    TAP_CHECK_INT(tensors[1].offset_elems, 0);    /* 385 of 512 */
    TAP_CHECK_INT(tensors[3].offset_elems, 512);  /* 1 of 128 */
    TAP_CHECK_INT(tensors[4].offset_elems, 640);  /* 256 of 256 */
    TAP_CHECK_INT(tensors[0].offset_elems, 896);  /* 127 of 128 */
    TAP_CHECK_INT(tensors[2].offset_elems, 1024); /* 128 of 128 */
    TAP_CHECK_INT(unit.decay_elems, 896);
    TAP_CHECK_INT(unit.elems, 1152);
    TAP_CHECK_INT(tensors[1].elems, 385);
    TAP_CHECK_INT(unit.used_elems, 385 + 1 + 256 + 127 + 128);
    TAP_CHECK(unit.has_gaps);
}

static void test_shards(void)
{
    static const int64_t shards[DEVICES] = {1152, 640, 384, 384, 256};

    for (int n = 1; n <= DEVICES; n++) {
        struct zo_unit_tensor tensors[TENSORS];
        struct zo_unit unit = unit_of(tensors);

        TAP_CHECK_INT(zo_unit_layout(&unit, n), ZO_OK);
        TAP_CHECK_INT(unit.shard_elems, shards[n - 1]);
        TAP_CHECK_INT(unit.elems, n * shards[n - 1]);
        TAP_CHECK_INT(unit.decay_elems, 896);
        TAP_CHECK_INT(tensors[2].offset_elems, 1024);
    }
}

/* Marks [begin, end), which nobody has marked yet. */
static bool mark(unsigned char *marks, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        if (marks[i]++ != 0) {
            return false;
        }
    }
    return true;
}

static void test_gaps(void)
{
    for (int n = 1; n <= DEVICES; n++) {
        struct zo_unit_tensor tensors[TENSORS];
        struct zo_unit unit = unit_of(tensors);
        struct zo_unit_gap gaps[GAPS_MAX];
        unsigned char marks[2048] = {0};
        int count;

        TAP_CHECK_INT(zo_unit_layout(&unit, n), ZO_OK);
        TAP_CHECK(unit.elems <= (int64_t)sizeof(marks));
        for (int i = 0; i < TENSORS; i++) {
            const int64_t offset = tensors[i].offset_elems;

            TAP_CHECK_INT(offset % ZO_TENSOR_ALIGN_ELEMS, 0);
            TAP_CHECK(tensors[i].decays == (offset < unit.decay_elems));
            TAP_CHECK(mark(marks, offset, offset + tensors[i].elems));
        }
        count = zo_unit_gaps(&unit, gaps, GAPS_MAX);
        for (int i = 0; i < count; i++) {
            TAP_CHECK(gaps[i].begin_elems < gaps[i].end_elems);
            TAP_CHECK(mark(marks, gaps[i].begin_elems, gaps[i].end_elems));
        }
        for (int64_t i = 0; i < unit.elems; i++) {
            TAP_CHECK_INT(marks[i], 1);
        }
    }
}

/* All of each tensor, in parts that end on the unit's grid. */
static void test_parts(void)
{
    static const int64_t steps[] = {1, 100, 128, 256, 5000};
    struct zo_unit_tensor tensors[TENSORS];
    struct zo_unit unit = unit_of(tensors);

    TAP_CHECK_INT(zo_unit_layout(&unit, 1), ZO_OK);
    for (size_t s = 0; s < TAP_COUNT(steps); s++) {
        for (int i = 0; i < TENSORS; i++) {
            int64_t at = 0, count;

            for (; at < tensors[i].elems; at += count) {
                count = zo_unit_part_elems(&tensors[i], at, steps[s]);
                TAP_CHECK(count >= 1 && count <= steps[s]);
                TAP_CHECK(at + count == tensors[i].elems ||
                          (tensors[i].offset_elems + at + count) % steps[s] ==
                              0);
            }
            TAP_CHECK_INT(at, tensors[i].elems);
        }
    }
}

static void test_no_gaps(void)
{
    struct zo_unit_tensor tensor = {
        .name = "matrix", .dims = 2, .shape = {6, 128}};
    struct zo_unit unit = {
        .name = "unit", .tensors = &tensor, .tensor_count = 1};
    struct zo_unit_gap gap;

    TAP_CHECK_INT(zo_unit_layout(&unit, 3), ZO_OK);
    TAP_CHECK_INT(unit.elems, 768);
    TAP_CHECK_INT(unit.decay_elems, 0);
    TAP_CHECK(!unit.has_gaps);
    TAP_CHECK_INT(zo_unit_gaps(&unit, &gap, 0), 0);
    /* Four devices leave a quarter of the last two shards empty. */
    TAP_CHECK_INT(zo_unit_layout(&unit, 4), ZO_OK);
    TAP_CHECK_INT(unit.elems, 1024);
    TAP_CHECK(unit.has_gaps);
    TAP_CHECK_INT(zo_unit_gaps(&unit, &gap, 1), 1);
    TAP_CHECK_INT(gap.begin_elems, 768);
    TAP_CHECK_INT(gap.end_elems, 1024);
}

static void test_refusals(void)
{
    static const int64_t shapes[][2] = {
        {0, 5},
        {5, 0},
        {-1, 5},
        {INT64_MAX, 2},
        {(int64_t)1 << 20, ((int64_t)1 << 20) + 1},
    };

    for (size_t i = 0; i < TAP_COUNT(shapes); i++) {
        struct zo_unit_tensor tensor = {
            .name = "wrong", .dims = 2, .shape = {shapes[i][0], shapes[i][1]}};
        struct zo_unit unit = {
            .name = "unit", .tensors = &tensor, .tensor_count = 1};

        TAP_CHECK_INT(zo_unit_layout(&unit, 1), ZO_E_SHAPE);
        TAP_CHECK(strstr(zo_err_last()->text, "wrong") != NULL);
    }
}

/* ---- the pair ------------------------------------------------------------ */

static const uint32_t low_halves[] = {
    0x0000, 0x0001, 0x0002, 0x1234, 0x7ffe, 0x7fff,
    0x8000, 0x8001, 0x8002, 0xabcd, 0xfffe, 0xffff,
};

/* Every high half (every sign, exponent and leading fraction, subnormals,
 * infinities and NaN) with borders and random numbers below it. */
static void test_round_trip(void)
{
    const uint64_t key = zo_random_key(1, "pair");

    for (uint32_t high = 0; high < 65536; high++) {
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t low =
                i < TAP_COUNT(low_halves)
                    ? low_halves[i]
                    : (uint32_t)zo_random_bits(key, 16 * high + i) & 0xffff;
            const uint32_t bits = high << 16 | low;
            const float master = zo_f32_from_bits(bits);
            const uint16_t weight = zo_pair_weight(master);
            const int16_t remainder = zo_pair_remainder(master);
            const float back = zo_pair_master(weight, remainder);

            TAP_CHECK_INT(zo_f32_bits(back), bits);
        }
    }
}

/* And from pairs: no two give the same master. */
static void test_all_pairs(void)
{
    for (uint32_t weight = 0; weight < 65536; weight++) {
        for (size_t i = 0; i < TAP_COUNT(low_halves); i++) {
            const int16_t remainder = (int16_t)(uint16_t)low_halves[i];
            const float master = zo_pair_master((uint16_t)weight, remainder);

            TAP_CHECK_INT(zo_pair_weight(master), weight);
            TAP_CHECK_INT(zo_pair_remainder(master), remainder);
        }
    }
}

/* The value of a weight; the infinities as the next number would be. */
static double value_of(uint16_t weight)
{
    const double value = (double)zo_bf16_to_f32(weight);

    return isinf(value) ? copysign(0x1p128, value) : value;
}

static void test_rounding(void)
{
    for (uint32_t high = 0; high < 65536; high++) {
        for (size_t i = 0; i < TAP_COUNT(low_halves); i++) {
            const float master = zo_f32_from_bits(high << 16 | low_halves[i]);
            const uint16_t weight = zo_pair_weight(master);
            double distance, above, below;

            if (!isfinite(master)) {
                continue;
            }
            distance = fabs((double)master - value_of(weight));
            TAP_CHECK((weight >> 15) == (high >> 15)); /* the sign stays */
            below =
                (weight & 0x7fff) == 0
                    ? INFINITY /* zero has no neighbour below */
                    : fabs((double)master - value_of((uint16_t)(weight - 1)));
            above =
                isinf(zo_bf16_to_f32(weight))
                    ? INFINITY
                    : fabs((double)master - value_of((uint16_t)(weight + 1)));
            TAP_CHECK(distance <= below);
            TAP_CHECK(distance < above); /* a tie goes away from zero */
        }
    }
}

static void test_known_pairs(void)
{
    static const struct {
        uint32_t master;
        uint16_t weight;
        int16_t remainder;
    } known[] = {
        {0x3f800000, 0x3f80, 0},       /* 1 */
        {0x3f808000, 0x3f81, -0x8000}, /* a tie, up */
        {0xbf808000, 0xbf81, -0x8000}, /* a tie, down */
        {0x3f807fff, 0x3f80, 0x7fff},  {0x00000001, 0x0000, 1},
        {0x80008000, 0x8001, -0x8000}, {0x80000000, 0x8000, 0}, /* -0 */
        {0x007fffff, 0x0080, -1}, /* the largest subnormal */
        {0x7f7fffff, 0x7f80, -1}, /* the largest: weight infinite */
    };

    for (size_t i = 0; i < TAP_COUNT(known); i++) {
        const float master = zo_f32_from_bits(known[i].master);

        TAP_CHECK_INT(zo_pair_weight(master), known[i].weight);
        TAP_CHECK_INT(zo_pair_remainder(master), known[i].remainder);
        TAP_CHECK_INT(
            zo_f32_bits(zo_pair_master(known[i].weight, known[i].remainder)),
            known[i].master);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"what decays comes first, each tensor aligned, in listed order",
         test_places},
        {"shards of 1 to 5 devices are equal, aligned and as small as can be",
         test_shards},
        {"tensors and gaps together cover every element once", test_gaps},
        {"parts cover a tensor, and end on its unit's grid", test_parts},
        {"a unit without gaps has none", test_no_gaps},
        {"impossible shapes are refused by name", test_refusals},
        {"a master comes back from its pair, bit for bit", test_round_trip},
        {"a pair comes back from its master", test_all_pairs},
        {"the weight is the nearest number, ties away from zero",
         test_rounding},
        {"known pairs", test_known_pairs},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
