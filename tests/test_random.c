/*
 * Random numbers by seed, name and index.
 *
 * Method: known answers of splitmix64 (seed 1234567, the reference
 * implementation), quantiles against erfc and against Python's
 * statistics.NormalDist, moments of a million numbers.
 */
#include "src/base/random.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "src/base/normals.h"

#include "tests/tap.h"

static void test_splitmix64(void)
{
    static const uint64_t want[] = {
        6457827717110365317u, 3203168211198807973u,  9817491932198370423u,
        4593380528125082431u, 16408922859458223821u,
    };

    for (size_t i = 0; i < TAP_COUNT(want); i++) {
        TAP_CHECK(zo_random_bits(1234567, i) == want[i]);
    }
}

static void test_quantile_known(void)
{
    static const struct {
        double p, want;
    } rows[] = {
        {0.5, 0.0},
        {0.3, -0.5244005127080407},
        {0.975, 1.9599639845400536},
        {0.075, -1.4395314709384557},
        {0.0750001, -1.4395307645017297},
        {1e-3, -3.090232306167813},
        {1e-10, -6.361340902404056},
        {1e-15, -7.941345326170995},
        {0x1p-53, -8.209536151601386},
        {1.0 - 1e-6, 4.753424308817089},
    };

    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        const double got = zo_normal_quantile(rows[i].p);

        if (!(fabs(got - rows[i].want) <= 4e-15 * fabs(rows[i].want))) {
            tap_fail(__FILE__, __LINE__, "p %g: got %.17g, want %.17g",
                     rows[i].p, got, rows[i].want);
        }
    }
}

/* P(normal < x) = erfc(-x / sqrt 2) / 2, from every part of the range. */
static void test_quantile_inverts(void)
{
    for (double p = 0x1p-53; p < 0.5; p *= 1.01) {
        const double x = zo_normal_quantile(p);
        const double back = 0.5 * erfc(-x / sqrt(2.0));

        if (!(fabs(back - p) <= 1e-13 * p)) {
            tap_fail(__FILE__, __LINE__, "p %.17g came back as %.17g", p, back);
            return;
        }
    }
}

static void test_known_stream(void)
{
    /* The definitions in the header, computed once more in Python. */
    const uint64_t key = zo_random_key(42, "transformer.output_layer.weight");

    TAP_CHECK(key == 0x74d524bd28aa7cf9u);
    TAP_CHECK(fabs(zo_random_normal(key, 0) - -1.7911188869967403) < 1e-14);
    TAP_CHECK(fabs(zo_random_normal(key, 2) - -0.5652444936072695) < 1e-14);
    TAP_CHECK(fabs(zo_random_normal(key, 1000000000000u) - 1.6349444809510778) <
              1e-14);
}

static void test_streams_differ(void)
{
    const uint64_t key = zo_random_key(1, "a.weight");

    TAP_CHECK(key != zo_random_key(2, "a.weight"));
    TAP_CHECK(key != zo_random_key(1, "b.weight"));
    TAP_CHECK(zo_random_key(0, "") != zo_random_key(1, ""));
    TAP_CHECK(zo_random_key(1, "ab") != zo_random_key(1, "ba"));
}

/* Bounds are five standard errors of each moment. */
static void test_moments(void)
{
    const int count = 1000000;
    const uint64_t key = zo_random_key(7, "moments");
    double sum = 0.0, squares = 0.0, cubes = 0.0, fourths = 0.0;

    for (int i = 0; i < count; i++) {
        const double x = zo_random_normal(key, (uint64_t)i);

        sum += x;
        squares += x * x;
        cubes += x * x * x;
        fourths += x * x * x * x;
    }
    TAP_CHECK(fabs(sum / count) < 5.0 * sqrt(1.0 / count));
    TAP_CHECK(fabs(squares / count - 1.0) < 5.0 * sqrt(2.0 / count));
    TAP_CHECK(fabs(cubes / count) < 5.0 * sqrt(15.0 / count));
    TAP_CHECK(fabs(fourths / count - 3.0) < 5.0 * sqrt(96.0 / count));
}

static void test_uniform_bounds(void)
{
    const uint64_t key = zo_random_key(7, "uniform");
    double sum = 0.0;

    for (int i = 0; i < 100000; i++) {
        const double u = zo_random_uniform(key, (uint64_t)i);

        TAP_CHECK(u > 0.0 && u < 1.0);
        sum += u;
    }
    TAP_CHECK(fabs(sum / 100000 - 0.5) < 5.0 * sqrt(1.0 / 12.0 / 100000));
    /* The largest one: 52 set bits and a half. */
    TAP_CHECK((0x1p52 - 1.0 + 0.5) * 0x1p-52 < 1.0);
}

static bool same_bits(const double *got, uint64_t key, uint64_t first,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double want = zo_random_normal(key, first + i);

        if (memcmp(&got[i], &want, sizeof(want)) != 0) {
            tap_fail(__FILE__, __LINE__, "number %llu: got %a, want %a",
                     (unsigned long long)(first + i), got[i], want);
            return false;
        }
    }
    return true;
}

static void test_blocks(void)
{
    const uint64_t key = zo_random_key(7, "blocks");
    double out[ZO_NORMALS_BLOCK];
    zo_normals_fn all[3];
    const int count = zo_normals_usable(all);
    bool is_same = true;

    for (int f = 0; f < count; f++) {
        for (uint64_t first = 3; is_same && first < 2000000;
             first += ZO_NORMALS_BLOCK) {
            all[f](key, first, out);
            is_same = same_bits(out, key, first, ZO_NORMALS_BLOCK);
        }
    }
    TAP_CHECK(is_same);
}

/* The far tail is 1 in 10^11: the indices are made by undoing the mixing. */
static uint64_t unmix(uint64_t bits)
{
    bits ^= bits >> 31 ^ bits >> 62;
    bits *= 0x319642b2d24d8ec3u; /* inverse of 0x94d049bb133111eb */
    bits ^= bits >> 27 ^ bits >> 54;
    bits *= 0x96de1b173f119089u; /* inverse of 0xbf58476d1ce4e5b9 */
    return bits ^ bits >> 30 ^ bits >> 60;
}

static void test_blocks_far(void)
{
    static const uint64_t high[] = {
        0, 1, 7, 62000, 63000, 300000, 0xfffffffffffff, 0xffffffffffffe};
    double out[ZO_NORMALS_BLOCK];
    zo_normals_fn all[3];
    const int count = zo_normals_usable(all);

    for (size_t i = 0; i < TAP_COUNT(high); i++) {
        const uint64_t key = unmix(high[i] << 12) - 6 * ZO_RANDOM_GOLDEN;

        TAP_CHECK(zo_random_bits(key, 5) >> 12 == high[i]);
        for (int f = 0; f < count; f++) {
            all[f](key, 0, out);
            TAP_CHECK(same_bits(out, key, 0, ZO_NORMALS_BLOCK));
        }
    }
}

static void test_many(void)
{
    static const size_t counts[] = {0, 1, 255, 256, 257, 1000};
    const uint64_t key = zo_random_key(8, "many");
    double out[1001];

    for (size_t i = 0; i < TAP_COUNT(counts); i++) {
        out[counts[i]] = 1234.5;
        zo_random_normals(key, 77, counts[i], out);
        TAP_CHECK(same_bits(out, key, 77, counts[i]));
        TAP_CHECK(out[counts[i]] == 1234.5);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"numbers are those of splitmix64", test_splitmix64},
        {"quantiles have known values", test_quantile_known},
        {"quantiles invert the distribution", test_quantile_inverts},
        {"a stream has the documented numbers", test_known_stream},
        {"seed and name choose the stream", test_streams_differ},
        {"normals have the moments of a normal", test_moments},
        {"every instruction set makes the same normals", test_blocks},
        {"and the same far tails", test_blocks_far},
        {"any number of normals at a time", test_many},
        {"uniforms are never 0 and never 1", test_uniform_bounds},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
