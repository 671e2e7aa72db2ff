/*
 * The passes that a CPU worker makes over host memory.
 *
 * Method: one call over everything, by the plain instruction set, is what the
 * operation's own test has compared with a scalar reference; every other
 * instruction set and division into ranges must leave the same bytes, and
 * touch nothing outside its range.
 */
#include "kernels/host_passes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/pool.h"
#include "tests/rig.h"
#include "tests/tap.h"

/* ---- instruction sets -------------------------------------------------- */

static void test_names(void)
{
    enum zo_simd simd = ZO_SIMD_AVX2;

    for (int i = 0; i < ZO_SIMD_COUNT; i++) {
        TAP_CHECK_INT(zo_simd_parse(zo_simd_name((enum zo_simd)i), &simd),
                      ZO_OK);
        TAP_CHECK_INT(simd, i);
    }
    TAP_CHECK_INT(zo_simd_parse("avx", &simd), ZO_E_ARG);
    TAP_CHECK(strstr(zo_err_last()->text, "\"avx\"") != NULL);
    TAP_CHECK_INT(simd, ZO_SIMD_COUNT - 1); /* untouched */
    TAP_CHECK(zo_simd_usable(ZO_SIMD_BEST) && zo_simd_usable(ZO_SIMD_BASE));
    TAP_CHECK(zo_simd_usable(zo_simd_best()));
    TAP_CHECK(zo_simd_best() != ZO_SIMD_BEST);
    for (int i = (int)zo_simd_best() + 1; i < ZO_SIMD_COUNT; i++) {
        TAP_CHECK(!zo_simd_usable((enum zo_simd)i));
    }
}

/* ---- AdamW --------------------------------------------------------------- */

enum { COUNT = 5003, DECAY_COUNT = 2111 };

struct states {
    uint32_t weight[COUNT], master[COUNT], m[COUNT], v[COUNT], grad[COUNT];
    int16_t remainder[COUNT];
};

/* Numbers around 1 of every type, wherever a type looks. */
static void fill(struct states *states, enum zo_dtype type,
                 enum zo_dtype moment_type)
{
    struct rig rig = {.random = 5};

    memset(states, 0, sizeof(*states));
    for (int i = 0; i < COUNT; i++) {
        const float x = (float)rig_uniform(&rig) - 0.5f;

        zo_store(states->weight, type, i, x);
        zo_store(states->master, ZO_F32, i, x);
        zo_store(states->m, moment_type, i, (float)rig_uniform(&rig) - 0.5f);
        zo_store(states->v, moment_type, i, (float)rig_uniform(&rig));
        zo_store(states->grad, type, i, (float)rig_uniform(&rig) - 0.5f);
        states->remainder[i] = (int16_t)(rig_below(&rig, 65536) - 32768);
    }
}

static struct zo_adamw_args args_of(struct states *states, enum zo_dtype type,
                                    enum zo_dtype moment_type, bool has_weight)
{
    static uint32_t bad;

    return (struct zo_adamw_args){
        .weight = has_weight ? states->weight : NULL,
        .remainder = type == ZO_BF16 ? states->remainder : NULL,
        .master = type == ZO_F16 ? (float *)(void *)states->master : NULL,
        .exp_avg = states->m,
        .exp_avg_sq = states->v,
        .grad = states->grad,
        .bad = &bad,
        .count = COUNT,
        .decay_count = DECAY_COUNT,
        .first_index = 1000,
        .scalars = {0.5f, 0.9f, 0.1f, 0.999f, 0.001f, 2.0f, 1e-8f, 1e-3f, 1e-2f,
                    7},
        .type = type,
        .moment_type = moment_type,
    };
}

struct case_of {
    enum zo_dtype type, moment_type;
    bool has_weight;
};

static const struct case_of kinds[] = {
    {ZO_F32, ZO_F32, true},   {ZO_F32, ZO_BF16, true},  {ZO_BF16, ZO_F32, true},
    {ZO_BF16, ZO_BF16, true}, {ZO_F16, ZO_F32, true},   {ZO_F16, ZO_BF16, true},
    {ZO_F16, ZO_F32, false},  {ZO_F16, ZO_BF16, false},
};

/* Ranges of uneven lengths, one of them across the border of decay. */
static const int64_t borders[] = {0,    1,    32,   33,   97,   1121,
                                  2100, 2143, 4097, 4992, COUNT};

static void update_ranges(const struct zo_adamw_args *args, enum zo_simd simd)
{
    for (size_t i = TAP_COUNT(borders) - 1; i > 0; i--) { /* last first */
        TAP_CHECK(!zo_adamw_cpu(args, borders[i - 1],
                                borders[i] - borders[i - 1], simd));
    }
}

static void test_ranges(void)
{
    static struct states want, got;

    for (size_t k = 0; k < TAP_COUNT(kinds); k++) {
        const struct case_of *kind = &kinds[k];
        const struct zo_adamw_args whole =
            args_of(&want, kind->type, kind->moment_type, kind->has_weight);
        const struct zo_adamw_args parts =
            args_of(&got, kind->type, kind->moment_type, kind->has_weight);

        fill(&want, kind->type, kind->moment_type);
        TAP_CHECK(!zo_adamw_cpu(&whole, 0, COUNT, ZO_SIMD_BASE));
        for (int s = 0; s < ZO_SIMD_COUNT; s++) {
            if (zo_simd_usable((enum zo_simd)s)) {
                fill(&got, kind->type, kind->moment_type);
                update_ranges(&parts, (enum zo_simd)s);
                TAP_CHECK(memcmp(&got, &want, sizeof(got)) == 0);
            }
        }
    }
}

/* A shard is a unit's piece whose first_index says so. */
static void test_shards(void)
{
    static struct states want, got;
    const struct zo_adamw_args whole = args_of(&want, ZO_F32, ZO_BF16, true);
    struct zo_adamw_args shard = args_of(&got, ZO_F32, ZO_BF16, true);
    const int64_t at = 2500;

    fill(&want, ZO_F32, ZO_BF16);
    fill(&got, ZO_F32, ZO_BF16);
    TAP_CHECK(!zo_adamw_cpu(&whole, 0, COUNT, ZO_SIMD_BEST));
    shard.count = at;
    TAP_CHECK(!zo_adamw_cpu(&shard, 0, at, ZO_SIMD_BEST));
    shard = args_of(&got, ZO_F32, ZO_BF16, true);
    shard.weight = got.weight + at;
    shard.exp_avg = (uint16_t *)(void *)got.m + at;
    shard.exp_avg_sq = (uint16_t *)(void *)got.v + at;
    shard.grad = got.grad + at;
    shard.count = COUNT - at;
    shard.decay_count = 0;
    shard.first_index += at;
    TAP_CHECK(!zo_adamw_cpu(&shard, 0, shard.count, ZO_SIMD_BEST));
    TAP_CHECK(memcmp(&got, &want, sizeof(got)) == 0);
}

/* The chances of rounding differ from step to step. */
static void test_steps_differ(void)
{
    static struct states first, other;
    struct zo_adamw_args args = args_of(&first, ZO_F32, ZO_BF16, true);

    fill(&first, ZO_F32, ZO_BF16);
    fill(&other, ZO_F32, ZO_BF16);
    TAP_CHECK(!zo_adamw_cpu(&args, 0, COUNT, ZO_SIMD_BEST));
    args = args_of(&other, ZO_F32, ZO_BF16, true);
    args.scalars.step++;
    TAP_CHECK(!zo_adamw_cpu(&args, 0, COUNT, ZO_SIMD_BEST));
    TAP_CHECK(memcmp(first.weight, other.weight, sizeof(first.weight)) == 0);
    TAP_CHECK(memcmp(first.m, other.m, sizeof(first.m)) != 0);
    TAP_CHECK(memcmp(first.v, other.v, sizeof(first.v)) != 0);
}

static void test_bad(void)
{
    static struct states states;

    for (size_t k = 0; k < TAP_COUNT(kinds); k++) {
        const struct case_of *kind = &kinds[k];
        const struct zo_adamw_args args =
            args_of(&states, kind->type, kind->moment_type, kind->has_weight);

        for (int s = 0; s < ZO_SIMD_COUNT; s++) {
            if (!zo_simd_usable((enum zo_simd)s)) {
                continue;
            }
            fill(&states, kind->type, kind->moment_type);
            zo_store(states.grad, kind->type, 3210, NAN);
            *args.bad = 6;
            TAP_CHECK(!zo_adamw_cpu(&args, 0, 3210, (enum zo_simd)s));
            TAP_CHECK(zo_adamw_cpu(&args, 3210, 1, (enum zo_simd)s));
            TAP_CHECK(
                !zo_adamw_cpu(&args, 3211, COUNT - 3211, (enum zo_simd)s));
            TAP_CHECK(!zo_adamw_cpu(&args, COUNT, 0, (enum zo_simd)s));
            TAP_CHECK_INT(*args.bad, 6); /* threads would share it */
        }
    }
}

/* ---- many threads ----------------------------------------------------------
 */

struct threads {
    struct zo_adamw_args args;
    bool is_bad[TAP_COUNT(borders)];
};

static void run_range(void *work, int64_t index)
{
    struct threads *threads = work;

    threads->is_bad[index] =
        zo_adamw_cpu(&threads->args, borders[index],
                     borders[index + 1] - borders[index], ZO_SIMD_BEST);
}

static void test_threads(void)
{
    static struct states want, got;
    struct zo_pool *pool = NULL;

    TAP_CHECK_INT(zo_pool_open(3, &pool), ZO_OK);
    for (size_t k = 0; k < TAP_COUNT(kinds); k++) {
        const struct case_of *kind = &kinds[k];
        const struct zo_adamw_args whole =
            args_of(&want, kind->type, kind->moment_type, kind->has_weight);
        struct threads threads = {
            .args =
                args_of(&got, kind->type, kind->moment_type, kind->has_weight)};

        fill(&want, kind->type, kind->moment_type);
        fill(&got, kind->type, kind->moment_type);
        (void)zo_adamw_cpu(&whole, 0, COUNT, ZO_SIMD_BASE);
        zo_pool_run(pool, run_range, &threads, (int64_t)TAP_COUNT(borders) - 1);
        TAP_CHECK(memcmp(&got, &want, sizeof(got)) == 0);
    }
    zo_pool_close(pool);
}

/* ---- casts and rows --------------------------------------------------------
 */

static void check_cast(enum zo_dtype out_type, enum zo_dtype in_type,
                       enum zo_simd simd)
{
    static uint32_t in[COUNT], out[COUNT];
    const size_t bytes = zo_dtype_bytes(out_type);
    const struct zo_cast_args args = {out, in, COUNT, out_type, in_type};
    struct rig rig = {.random = 9};

    for (int i = 0; i < COUNT; i++) {
        zo_store(in, in_type, i,
                 zo_f32_from_bits((uint32_t)rig_below(&rig, 0x7f800000)));
    }
    memset(out, 0x7b, sizeof(out));
    zo_cast_cpu(&args, 5, 2100, simd);
    for (int i = 0; i < COUNT; i++) {
        uint32_t want = 0x7b7b7b7b;

        if (i >= 5 && i < 2105) {
            zo_store(&want, out_type, 0, zo_load(in, in_type, i));
        }
        TAP_CHECK(memcmp((const char *)out + (size_t)i * bytes, &want, bytes) ==
                  0);
    }
}

static void test_cast(void)
{
    for (int s = 0; s < ZO_SIMD_COUNT; s++) {
        if (zo_simd_usable((enum zo_simd)s)) {
            check_cast(ZO_F16, ZO_F32, (enum zo_simd)s);
            check_cast(ZO_BF16, ZO_F32, (enum zo_simd)s);
            check_cast(ZO_F32, ZO_BF16, (enum zo_simd)s);
            check_cast(ZO_F32, ZO_F32, (enum zo_simd)s);
        }
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"instruction sets have names, and say what runs here", test_names},
        {"AdamW in ranges has the bits of one call, whatever the set",
         test_ranges},
        {"a shard rounds its bf16 moments as the whole does", test_shards},
        {"each step rounds them by other chances", test_steps_differ},
        {"a range tells of its own bad elements alone", test_bad},
        {"threads on neighbouring ranges leave the same bits", test_threads},
        {"casts write their range, by dtype.h", test_cast},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
