#include "bench/adam.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/base/system.h"

#define LEAST_ELEMS 100000
#define MOST_ELEMS  200000000
#define CHUNK_ELEMS 65536     /* of an index of a loop */
#define LEAST_NS    300000000 /* of a measurement */
#define LEAST_RUNS  3

/* Four arrays of 4 bytes an element, one after another. */
enum { MASTER, EXP_AVG, EXP_AVG_SQ, GRADIENT, ARRAYS };

struct zo_bench_adam {
    char *memory; /* owned */
    int64_t elems;
};

/* One loop over the elements. */
struct pass {
    struct zo_bench_adam *bench;
    struct zo_adamw_args args;
    enum zo_simd simd;
    int64_t elems;
    atomic_bool is_bad;
};

static void *array_at(const struct zo_bench_adam *bench, int array)
{
    return bench->memory + (size_t)array * (size_t)bench->elems * 4;
}

static int64_t chunk_count(int64_t elems, int64_t index)
{
    return zo_min_i64(CHUNK_ELEMS, elems - index * CHUNK_ELEMS);
}

static void run_pass(struct zo_pool *pool, zo_pool_fn fn, struct pass *pass)
{
    zo_pool_run(pool, fn, pass, zo_div_ceil(pass->elems, CHUNK_ELEMS));
}

/* Seconds of the fastest run. */
static double time_pass(struct zo_pool *pool, zo_pool_fn fn, struct pass *pass)
{
    const int64_t started_ns = zo_clock_ns();
    int64_t fastest_ns = INT64_MAX;

    for (int run = 0; run < LEAST_RUNS || zo_clock_ns() - started_ns < LEAST_NS;
         run++) {
        const int64_t from_ns = zo_clock_ns();

        run_pass(pool, fn, pass);
        pass->args.scalars.step++;
        fastest_ns = zo_min_i64(fastest_ns, zo_clock_ns() - from_ns);
    }
    return (double)zo_max_i64(fastest_ns, 1) * 1e-9;
}

/* States are 0; gradients small numbers of whatever type they are read as. */
static void clear_chunk(void *work, int64_t index)
{
    const struct pass *pass = work;
    const int64_t first = index * CHUNK_ELEMS;
    const int64_t count = chunk_count(pass->elems, index);
    uint16_t *grad = (uint16_t *)array_at(pass->bench, GRADIENT) + 2 * first;

    for (int array = 0; array < GRADIENT; array++) {
        memset((char *)array_at(pass->bench, array) + 4 * first, 0,
               4 * (size_t)count);
    }
    for (int64_t i = 0; i < 2 * count; i++) {
        grad[i] = (uint16_t)(0x3000 + (i * 40503 >> 4) % 512);
    }
}

/* ---- arrays -------------------------------------------------------------- */

int64_t zo_bench_adam_elems(uint64_t most_bytes)
{
    struct zo_system system;
    uint64_t bytes;

    zo_system_read("", &system);
    bytes = system.available_bytes;
    if (system.group_limit_bytes != ZO_SYSTEM_NO_LIMIT &&
        system.group_limit_bytes - system.group_used_bytes < bytes) {
        bytes = system.group_limit_bytes - system.group_used_bytes;
    }
    bytes /= 2;
    if (most_bytes > 0 && most_bytes < bytes) {
        bytes = most_bytes;
    }
    bytes /= (uint64_t)ZO_BENCH_ADAM_BYTES;
    return zo_max_i64(LEAST_ELEMS,
                      bytes < MOST_ELEMS ? (int64_t)bytes : MOST_ELEMS);
}

enum zo_status zo_bench_adam_open(struct zo_pool *pool, int64_t elems,
                                  struct zo_bench_adam **bench_out)
{
    const size_t bytes = (size_t)elems * ZO_BENCH_ADAM_BYTES;
    struct zo_bench_adam *bench;
    struct pass pass = {.elems = elems};
    enum zo_status status;

    if (elems < LEAST_ELEMS || elems > INT64_MAX / ZO_BENCH_ADAM_BYTES) {
        return ZO_FAIL(ZO_E_ARG, "adam: %lld parameters; want at least %d",
                       (long long)elems, LEAST_ELEMS);
    }
    ZO_TRY(zo_alloc(1, sizeof(*bench), "a benchmark of AdamW", &bench));
    bench->elems = elems;
    ZO_TRY_GOTO(free_bench,
                zo_pages_alloc(bytes, "states to update", &bench->memory));
    (void)madvise(bench->memory, bytes, MADV_HUGEPAGE); /* a wish */
    pass.bench = bench;
    run_pass(pool, clear_chunk, &pass);
    *bench_out = bench;
    return ZO_OK;

free_bench:
    zo_free(bench);
    return status;
}

void zo_bench_adam_close(struct zo_bench_adam *bench)
{
    if (bench != NULL) {
        zo_pages_free(bench->memory,
                      (size_t)bench->elems * ZO_BENCH_ADAM_BYTES);
        zo_free(bench);
    }
}

/* ---- plain passes -------------------------------------------------------- */

static void copy_chunk(void *work, int64_t index)
{
    const struct pass *pass = work;
    const int64_t first = index * CHUNK_ELEMS;
    const size_t bytes = 4 * (size_t)chunk_count(pass->elems, index);

    for (int array = 0; array < 2; array++) {
        memcpy((char *)array_at(pass->bench, array) + 4 * first,
               (const char *)array_at(pass->bench, array + 2) + 4 * first,
               bytes);
    }
}

static void update_chunk(void *work, int64_t index)
{
    const struct pass *pass = work;
    const int64_t count = chunk_count(pass->elems, index);

    for (int array = 0; array < ARRAYS; array++) {
        uint64_t *x = (uint64_t *)array_at(pass->bench, array) +
                      index * (CHUNK_ELEMS / 2);

        for (int64_t i = 0; i < count / 2; i++) {
            x[i] += 1;
        }
    }
}

void zo_bench_adam_roofs(struct zo_bench_adam *bench, struct zo_pool *pool,
                         struct zo_adam_roofs *roofs_out)
{
    struct pass pass = {.bench = bench, .elems = bench->elems};
    const double bytes = (double)bench->elems * ZO_BENCH_ADAM_BYTES;

    roofs_out->copy = bytes / time_pass(pool, copy_chunk, &pass);
    roofs_out->update = 2.0 * bytes / time_pass(pool, update_chunk, &pass);
}

/* ---- AdamW --------------------------------------------------------------- */

static void adamw_chunk(void *work, int64_t index)
{
    struct pass *pass = work;

    if (zo_adamw_cpu(&pass->args, index * CHUNK_ELEMS,
                     chunk_count(pass->elems, index), pass->simd)) {
        atomic_store_explicit(&pass->is_bad, true, memory_order_relaxed);
    }
}

/* Bytes of an element, read plus written. */
static int bytes_of(const struct zo_adam_case *which)
{
    const int master = which->type == ZO_F16 && which->has_weight ? 10 : 8;

    return master + 4 * (int)zo_dtype_bytes(which->moment_type) +
           (int)zo_dtype_bytes(which->type);
}

static struct zo_adamw_args args_of(struct zo_bench_adam *bench,
                                    const struct zo_adam_case *which,
                                    int64_t elems)
{
    char *master = array_at(bench, MASTER), *grad = array_at(bench, GRADIENT);
    const size_t half = 2 * (size_t)bench->elems;
    struct zo_adamw_args args = {
        .weight = master,
        .exp_avg = array_at(bench, EXP_AVG),
        .exp_avg_sq = array_at(bench, EXP_AVG_SQ),
        .grad = grad,
        .count = elems,
        .decay_count = elems,
        .scalars = {1.0f, 0.9f, 0.1f, 0.999f, 0.001f, 1.0f, 1e-8f, 1e-6f, 1e-4f,
                    1},
        .type = which->type,
        .moment_type = which->moment_type,
    };

    if (which->type == ZO_BF16) {
        args.remainder = (int16_t *)(void *)(master + half);
    } else if (which->type == ZO_F16) {
        args.master = (float *)(void *)master;
        args.weight = which->has_weight ? grad + half : NULL;
    }
    return args;
}

enum zo_status zo_bench_adam_time(struct zo_bench_adam *bench,
                                  struct zo_pool *pool,
                                  const struct zo_adam_case *which,
                                  struct zo_adam_figure *figure_out)
{
    const int64_t elems = which->elems > 0
                              ? zo_min_i64(which->elems, bench->elems)
                              : bench->elems;
    struct pass pass = {.bench = bench, .simd = which->simd, .elems = elems};
    struct zo_adam_figure figure = {.elems = elems};

    if (!zo_simd_usable(which->simd)) {
        return ZO_FAIL(ZO_E_NOSUPPORT, "adam: this processor has no %s",
                       zo_simd_name(which->simd));
    }
    pass.elems = bench->elems; /* the remainders lie behind the weights */
    run_pass(pool, clear_chunk, &pass);
    pass.elems = elems;
    pass.args = args_of(bench, which, elems);
    figure.seconds = time_pass(pool, adamw_chunk, &pass);
    if (atomic_load(&pass.is_bad)) {
        return ZO_FAIL(ZO_E_NUMERIC, "adam: a result is not finite");
    }
    figure.seconds_per_billion = figure.seconds * 1e9 / (double)elems;
    figure.bytes_per_elem = bytes_of(which);
    figure.bytes_per_second =
        (double)figure.bytes_per_elem * (double)elems / figure.seconds;
    *figure_out = figure;
    return ZO_OK;
}
