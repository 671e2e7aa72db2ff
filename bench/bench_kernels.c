/*
 * Times each cuda operation at the shapes of ChatGLM2-6B.
 *
 *   bench_kernels [--tokens N] [--samples N] [--json FILE] [NAME...]
 *
 * A sample is a burst of calls on one stream between two waits, long enough
 * that a launch's cost drowns; small arrays rotate through sets that together
 * exceed the caches.  Roofs are measured in the same run: a copy within
 * device memory (bytes read and written), and the best of the model's
 * products.  Data are random.  A case is wrong, and the exit code 1, when a
 * result is not finite or changes from one call to the next.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/kernel_cases.h"
#include "src/base/arith.h"

#define SET_BYTES_MAX ((size_t)256 << 20) /* above: one set is enough */
#define BURST_SECONDS 0.02
#define SAMPLES_MAX   200

/* ---- timing -------------------------------------------------------------- */

static double now_seconds(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static enum zo_status call_set(struct bench *bench, const struct bench_case *c,
                               int set)
{
    memset(bench->used, 0, sizeof(bench->used));
    bench->set = set;
    return c->run(bench, c->shape);
}

/* Sets that a case rotates through: one where a set exceeds the caches. */
static enum zo_status count_sets(struct bench *bench,
                                 const struct bench_case *c, int *sets_out)
{
    size_t bytes = 0;
    bool fits = true;

    ZO_TRY(call_set(bench, c, -1));
    for (int s = 0; s < SLABS; s++) {
        bytes += bench->used[s];
        fits = fits && bench->used[s] <= SLAB_BYTES / SETS;
    }
    *sets_out = fits && bytes < SET_BYTES_MAX ? SETS : 1;
    return ZO_OK;
}

static enum zo_status time_burst(struct bench *bench,
                                 const struct bench_case *c, int sets,
                                 int64_t calls, double *seconds_out)
{
    const double start = now_seconds();

    for (int64_t i = 0; i < calls; i++) {
        ZO_TRY(call_set(bench, c, sets > 1 ? (int)(i % sets) : -1));
    }
    ZO_TRY(bench->device_ops->stream_sync(bench->stream));
    *seconds_out = (now_seconds() - start) / (double)calls;
    return ZO_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Looks at the first MiB of bf16 results of two calls. */
static enum zo_status check_result(struct bench *bench,
                                   const struct bench_case *c, bool *ok_out)
{
    static uint16_t once[1 << 19], twice[1 << 19];
    const size_t bytes = bench->checked_bytes < sizeof(once)
                             ? bench->checked_bytes
                             : sizeof(once);
    bool ok = true;

    if (bench->checked == NULL) { /* works in place */
        *ok_out = true;
        return ZO_OK;
    }
    for (int i = 0; i < 2; i++) {
        ZO_TRY(call_set(bench, c, -1));
        ZO_TRY(bench->device_ops->copy(bench->stream, i == 0 ? once : twice,
                                       bench->checked, bytes));
        ZO_TRY(bench->device_ops->stream_sync(bench->stream));
    }
    for (size_t i = 0; i < bytes / 2; i++) {
        ok = ok && isfinite(zo_bf16_to_f32(once[i]));
    }
    *ok_out = ok && memcmp(once, twice, bytes) == 0;
    return ZO_OK;
}

static void report(struct bench *bench, const struct bench_case *c,
                   const double *seconds, bool ok)
{
    const double median = seconds[bench->samples / 2];
    const double gbps = c->bytes / median / 1e9;
    const double tflops = c->flops / median / 1e12;
    const bool is_memory = c->flops == 0.0;
    const double roof = is_memory ? bench->copy_gbps : bench->product_tflops;
    const double percent =
        roof > 0.0 ? 100.0 * (is_memory ? gbps : tflops) / roof : 0.0;

    (void)printf("%-20s %7lld %6lld %6lld %3lld  %9.1f us  %8.1f %s  %5.1f %%"
                 "%s\n",
                 c->name, (long long)c->shape[0], (long long)c->shape[1],
                 (long long)c->shape[2], (long long)c->shape[3], 1e6 * median,
                 is_memory ? gbps : tflops, is_memory ? "GB/s " : "TF/s ",
                 percent, ok ? "" : "  WRONG");
    (void)fflush(stdout);
    if (bench->json != NULL) {
        (void)fprintf(
            bench->json,
            "{\"schema\":1,\"suite\":\"kernels\",\"case\":\"%s\","
            "\"device_name\":\"%s\",\"shape\":[%lld,%lld,%lld,%lld],"
            "\"dtype\":\"bf16\",\"samples\":%d,\"time_us_min\":%.2f,"
            "\"time_us_p50\":%.2f,\"time_us_p95\":%.2f,\"moved_bytes\":%.0f,"
            "\"flops\":%.0f,\"roof_%s\":%.1f,\"roof_percent_p50\":%.1f,"
            "\"ok\":%s}\n",
            c->name, bench->device_ops->info(bench->device)->description,
            (long long)c->shape[0], (long long)c->shape[1],
            (long long)c->shape[2], (long long)c->shape[3], bench->samples,
            1e6 * seconds[0], 1e6 * median,
            1e6 * seconds[bench->samples * 95 / 100], c->bytes, c->flops,
            is_memory ? "gbps" : "tflops", roof, percent,
            ok ? "true" : "false");
    }
}

static enum zo_status run_case(struct bench *bench, const struct bench_case *c)
{
    double seconds[SAMPLES_MAX], once = 0.0;
    int sets = 1;
    int64_t calls;
    bool ok = false;

    bench->checked = NULL;
    ZO_TRY(zo_kernel_case_prepare(bench, c,
                                  1)); /* a first call needs its input too */
    ZO_TRY(count_sets(bench, c, &sets));
    ZO_TRY(zo_kernel_case_prepare(bench, c, sets));
    for (int s = 0; s < SETS && sets > 1; s++) { /* also touches each set */
        ZO_TRY(call_set(bench, c, s));
    }
    ZO_TRY(time_burst(bench, c, sets, 3, &once));
    calls = zo_max_i64(2, (int64_t)(BURST_SECONDS / once));
    for (int i = 0; i < bench->samples; i++) {
        ZO_TRY(time_burst(bench, c, sets, calls, &seconds[i]));
    }
    qsort(seconds, (size_t)bench->samples, sizeof(*seconds), compare_doubles);
    ZO_TRY(check_result(bench, c, &ok));
    if (zo_kernel_case_is_copy(c)) {
        bench->copy_gbps = c->bytes / seconds[bench->samples / 2] / 1e9;
    } else if (zo_kernel_case_is_product(c)) {
        bench->product_tflops =
            fmax(bench->product_tflops,
                 c->flops / seconds[bench->samples / 2] / 1e12);
    }
    bench->is_wrong = bench->is_wrong || !ok;
    report(bench, c, seconds, ok);
    return ZO_OK;
}

/* ---- the rig
 * ----------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* SMALL: bf16 in -1..1.  WIDE: fp32 in 0.3..0.7.  INDEX: 0, 1, 2, ... */
static void make_pattern(enum slab slab, char *pattern)
{
    uint64_t state = 88172645463325252u;

    for (size_t i = 0; i < PATTERN_BYTES / 4; i++) {
        const double unit = (double)(next_random(&state) >> 11) * 0x1p-53;

        if (slab == SMALL) {
            zo_store(pattern, ZO_BF16, (int64_t)(2 * i),
                     (float)(2.0 * unit - 1.0));
            zo_store(pattern, ZO_BF16, (int64_t)(2 * i + 1),
                     (float)(1.0 - 2.0 * unit * unit));
        } else if (slab == WIDE) {
            ((float *)(void *)pattern)[i] = (float)(0.3 + 0.4 * unit);
        } else {
            ((int32_t *)(void *)pattern)[i] = (int32_t)(i % 32768);
        }
    }
}

static enum zo_status fill_slabs(struct bench *bench)
{
    char *pattern = malloc(PATTERN_BYTES);

    if (pattern == NULL) {
        return ZO_FAIL(ZO_E_NOMEM, "no memory for a pattern");
    }
    for (int s = 0; s < SLABS; s++) {
        const size_t bytes = s == INDEX ? 2 * PATTERN_BYTES : SLAB_BYTES;
        enum zo_status status;
        void *memory = NULL;

        make_pattern((enum slab)s, pattern);
        status = bench->device_ops->mem_alloc(bench->device, ZO_MEM_DEVICE,
                                              "a slab", bytes, &memory);
        bench->slabs[s] = memory;
        for (size_t at = 0; at < bytes && status == ZO_OK;
             at += PATTERN_BYTES) {
            status = bench->device_ops->copy(
                bench->stream, bench->slabs[s] + at,
                at == 0 ? pattern : bench->slabs[s], PATTERN_BYTES);
        }
        status = status == ZO_OK ? bench->device_ops->stream_sync(bench->stream)
                                 : status;
        if (status != ZO_OK) {
            free(pattern);
            return status;
        }
    }
    free(pattern);
    return ZO_OK;
}

static enum zo_status open_bench(struct bench *bench)
{
    const struct zo_device_options options = {0};
    const struct zo_kernels_options kernel_options = {0};

    bench->device_ops = &zo_device_cuda;
    bench->ops = &zo_kernels_cuda;
    ZO_TRY(bench->device_ops->open(0, &options, &bench->device));
    ZO_TRY(
        bench->device_ops->stream_open(bench->device, "bench", &bench->stream));
    ZO_TRY(bench->ops->open(bench->device, &kernel_options, &bench->kernels));
    return fill_slabs(bench);
}

static void close_bench(struct bench *bench)
{
    for (int s = 0; s < SLABS; s++) {
        bench->device_ops->mem_free(
            bench->device, ZO_MEM_DEVICE, bench->slabs[s],
            s == INDEX ? 2 * PATTERN_BYTES : SLAB_BYTES);
    }
    bench->ops->close(bench->kernels);
    bench->device_ops->stream_close(bench->stream);
    bench->device_ops->close(bench->device);
}

static bool is_wanted(const char *name, char **names, int count)
{
    bool is_named = count == 0 || strcmp(name, "copy") == 0;

    for (int i = 0; i < count; i++) {
        is_named = is_named || strstr(name, names[i]) != NULL;
    }
    return is_named;
}

static enum zo_status run_all(struct bench *bench, char **names, int count)
{
    struct bench_case cases[CASES_MAX];
    const size_t case_count = zo_kernel_cases(cases, bench->tokens);

    for (size_t i = 0; i < case_count; i++) {
        if (is_wanted(cases[i].name, names, count)) {
            ZO_TRY(run_case(bench, &cases[i]));
        }
    }
    return ZO_OK;
}

int main(int argc, char **argv)
{
    struct bench bench = {.tokens = 4096, .samples = 15};
    enum zo_status status;
    int first = 1;

    for (; first + 1 < argc && strncmp(argv[first], "--", 2) == 0; first += 2) {
        const char *value = argv[first + 1];

        if (strcmp(argv[first], "--tokens") == 0) {
            bench.tokens = strtol(value, NULL, 10);
        } else if (strcmp(argv[first], "--samples") == 0) {
            bench.samples = (int)strtol(value, NULL, 10);
        } else if (strcmp(argv[first], "--json") == 0) {
            bench.json = fopen(value, "a");
        } else {
            break;
        }
    }
    if ((first < argc && strncmp(argv[first], "--", 2) == 0) ||
        bench.tokens < 64 || bench.tokens > 32768 || bench.samples < 1 ||
        bench.samples > SAMPLES_MAX) {
        (void)fprintf(stderr, "usage: bench_kernels [--tokens 64..32768] "
                              "[--samples 1..200] [--json FILE] [NAME...]\n");
        return 2;
    }
    status = open_bench(&bench);
    status =
        status == ZO_OK ? run_all(&bench, argv + first, argc - first) : status;
    if (status != ZO_OK) {
        (void)fprintf(stderr, "bench_kernels: %s\n", zo_err_last()->text);
    }
    if (bench.json != NULL) {
        (void)fclose(bench.json);
    }
    if (bench.device != NULL) {
        close_bench(&bench);
    }
    return status != ZO_OK || bench.is_wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
