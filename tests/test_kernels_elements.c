/*
 * Operations on elements whose bits are fixed: cast, reduce, square norm.
 *
 * Method: exact comparison with plain loops, everywhere that rig.h runs them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/dtype.h"
#include "tests/rig.h"
#include "tests/tap.h"

/* ---- cast, reduce ---------------------------------------------------- */

static void cast_cases(struct rig *rig)
{
    static const int64_t counts[] = {0, 1, 7, 1025, 16384, 40001};

    for (size_t from = 0; from < TAP_COUNT(rig_types); from++) {
        for (size_t to = 0; to < TAP_COUNT(rig_types); to++) {
            for (size_t i = 0; i < TAP_COUNT(counts); i++) {
                struct rig_array *in = rig_random(
                    rig, (enum rig_type)rig_types[from], counts[i], 1e5);
                struct rig_array *out =
                    rig_array(rig, (enum rig_type)rig_types[to], counts[i]);
                const struct zo_cast_args args = {
                    out->at, in->at, counts[i], rig_types[to], rig_types[from]};
                uint32_t got, want = 0;

                RIG_CHECK(rig->ops->cast(rig->kernels, rig->stream, &args) ==
                          ZO_OK);
                RIG_CHECK(rig_fetch(rig, out));
                for (int64_t k = 0; k < counts[i]; k++) { /* exact */
                    got = zo_f32_bits((float)rig_get(out, k));
                    zo_store(&want, rig_types[to], 0,
                             zo_load(in->host, rig_types[from], k));
                    want = zo_f32_bits(zo_load(&want, rig_types[to], 0));
                    RIG_CHECK(got == want);
                }
                rig_clear(rig);
            }
        }
    }
}

static void test_cast(void)
{
    rig_everywhere(cast_cases);
}

static void check_reduce(struct rig *rig, enum zo_dtype type,
                         enum zo_dtype out_type, int64_t count, int64_t parts,
                         int64_t stride)
{
    const bool is_in_place = type == out_type && count % 2 != 0;
    struct rig_array *in =
        rig_random(rig, (enum rig_type)type, parts * stride, 1.0);
    struct rig_array *out =
        is_in_place ? in : rig_array(rig, (enum rig_type)out_type, count);
    float *want = calloc((size_t)count + 1, sizeof(*want));
    const struct zo_reduce_args args = {out->at, in->at, count,   parts,
                                        stride,  type,   out_type};

    RIG_CHECK(want != NULL);
    for (int64_t i = 0; i < count; i++) { /* exact: fp32, in order */
        want[i] = (float)rig_get(in, i);
        for (int64_t part = 1; part < parts; part++) {
            want[i] += (float)rig_get(in, part * stride + i);
        }
        zo_store(&want[i], out_type, 0, want[i]);
        want[i] = zo_load(&want[i], out_type, 0);
    }
    RIG_CHECK(rig->ops->reduce(rig->kernels, rig->stream, &args) == ZO_OK);
    RIG_CHECK(rig_fetch(rig, out));
    for (int64_t i = 0; i < count; i++) {
        RIG_CHECK(rig_get(out, i) == (double)want[i]);
    }
    free(want);
    rig_clear(rig);
}

static void reduce_cases(struct rig *rig)
{
    for (size_t t = 0; t < TAP_COUNT(rig_types); t++) {
        for (size_t o = 0; o < TAP_COUNT(rig_types); o++) {
            const enum zo_dtype in = rig_types[t], out = rig_types[o];

            check_reduce(rig, in, out, 0, 2, 8);
            check_reduce(rig, in, out, 1, 1, 1);
            check_reduce(rig, in, out, 8, 3, 16);
            check_reduce(rig, in, out, 9, 3, 16);
            check_reduce(rig, in, out, 20000, 4, 20001);
            check_reduce(rig, in, out, 20001, 4, 20001);
        }
    }
}

static void test_reduce(void)
{
    rig_everywhere(reduce_cases);
}

/* ---- square norm ----------------------------------------------------- */

/* The tree of kernels.h, by index and not by lane. */
static struct zo_norm_result norm_reference(const struct rig_array *in)
{
    struct zo_norm_result result = {0};

    for (int64_t start = 0; start < in->count; start += ZO_NORM_BLOCK) {
        double lanes[ZO_NORM_LANES] = {0};

        for (int lane = 0; lane < ZO_NORM_LANES; lane++) {
            for (int64_t i = start + lane;
                 i < in->count && i < start + ZO_NORM_BLOCK;
                 i += ZO_NORM_LANES) {
                const double value = rig_get(in, i);

                if (isfinite(value)) {
                    lanes[lane] += value * value;
                } else {
                    result.bad_count++;
                }
            }
        }
        for (int half = ZO_NORM_LANES / 2; half > 0; half /= 2) {
            for (int lane = 0; lane < half; lane++) {
                lanes[lane] += lanes[lane + half];
            }
        }
        result.square_sum += lanes[0];
    }
    return result;
}

static void norm_cases(struct rig *rig)
{
    static const int64_t counts[] = {0, 1, 255, 257, 65536, 65537, 200003};

    for (size_t t = 0; t < TAP_COUNT(rig_types); t++) {
        for (size_t i = 0; i < TAP_COUNT(counts); i++) {
            struct rig_array *in =
                rig_random(rig, (enum rig_type)rig_types[t], counts[i], 100.0);
            struct rig_array *result =
                rig_bytes(rig, sizeof(struct zo_norm_result));
            struct rig_array *workspace =
                rig_bytes(rig, rig->ops->square_norm_workspace(counts[i]));
            const struct zo_square_norm_args args = {
                result->at, in->at, workspace->at, counts[i], rig_types[t]};
            struct zo_norm_result got, want;

            if (counts[i] > 256) {
                rig_set(in, 256, (double)INFINITY);
                rig_set(in, 3, (double)NAN);
                rig_set(in, counts[i] - 1, -(double)INFINITY);
                RIG_CHECK(rig_upload(rig, in));
            }
            want = norm_reference(in);
            RIG_CHECK(want.bad_count == (counts[i] > 257   ? 3u
                                         : counts[i] > 256 ? 2u
                                                           : 0u));
            RIG_CHECK(rig->ops->square_norm(rig->kernels, rig->stream, &args) ==
                      ZO_OK);
            RIG_CHECK(rig_fetch(rig, result));
            memcpy(&got, result->host, sizeof(got));
            RIG_CHECK(got.square_sum == want.square_sum); /* exact */
            RIG_CHECK(got.bad_count == want.bad_count);
            rig_clear(rig);
        }
    }
}

static void test_norm(void)
{
    rig_everywhere(norm_cases);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"casts are those of dtype.h", test_cast},
        {"reduce adds in order and rounds once", test_reduce},
        {"the square norm is the tree of kernels.h, bit for bit", test_norm},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
