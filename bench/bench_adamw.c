/*
 * Times AdamW on the host: number types, instruction sets, threads.
 *
 *   bench_adamw [--elems N] [--threads N] [--only] [--simd NAME] [--json FILE]
 *
 * Threads are 1, 2, 4, ... and N, which is every core by default; N alone
 * with --only.  The plain instruction set, slower by far, updates a 16th of
 * the elements.  The exit code is 1 when a result is not finite.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/adam.h"

struct settings {
    int64_t elems;
    int threads;
    bool is_only;
    bool has_simd;
    enum zo_simd simd;
    const char *json_path;
    FILE *json; /* owned; NULL: none */
};

static const struct zo_adam_case cases[] = {
    {.type = ZO_BF16, .moment_type = ZO_F32, .has_weight = true},
    {.type = ZO_BF16, .moment_type = ZO_BF16, .has_weight = true},
    {.type = ZO_F16, .moment_type = ZO_F32, .has_weight = true},
    {.type = ZO_F16, .moment_type = ZO_F32},
    {.type = ZO_F16, .moment_type = ZO_BF16, .has_weight = true},
    {.type = ZO_F16, .moment_type = ZO_BF16},
    {.type = ZO_F32, .moment_type = ZO_F32, .has_weight = true},
    {.type = ZO_F32, .moment_type = ZO_BF16, .has_weight = true},
};

static const char *kind_of(const struct zo_adam_case *which)
{
    switch (which->type) {
    case ZO_BF16:
        return "bf16 pair";
    case ZO_F16:
        return which->has_weight ? "fp16 + copy" : "fp16 master";
    case ZO_F32:
        break;
    }
    return "fp32";
}

static void print_figure(const struct settings *settings,
                         const struct zo_adam_case *which, int threads,
                         const struct zo_adam_roofs *roofs,
                         const struct zo_adam_figure *figure)
{
    const double percent = 100.0 * figure->bytes_per_second / roofs->update;

    (void)printf(
        "%-12s %-8s %-7s %3d  %8.3f s  %7.1f GB/s  %5.1f %%\n", kind_of(which),
        zo_dtype_name(which->moment_type), zo_simd_name(which->simd), threads,
        figure->seconds_per_billion, figure->bytes_per_second / 1e9, percent);
    (void)fflush(stdout);
    if (settings->json != NULL) {
        (void)fprintf(
            settings->json,
            "{\"schema\":1,\"suite\":\"adamw\",\"dtype\":\"%s\","
            "\"moment_dtype\":\"%s\",\"has_weight_copy\":%s,"
            "\"simd\":\"%s\",\"threads\":%d,\"elems\":%lld,"
            "\"seconds_per_billion\":%.5f,\"bytes_per_elem\":%d,"
            "\"gbps\":%.2f,\"roof_copy_gbps\":%.2f,"
            "\"roof_update_gbps\":%.2f}\n",
            zo_dtype_name(which->type), zo_dtype_name(which->moment_type),
            which->type == ZO_F16 && which->has_weight ? "true" : "false",
            zo_simd_name(which->simd), threads, (long long)figure->elems,
            figure->seconds_per_billion, figure->bytes_per_elem,
            figure->bytes_per_second / 1e9, roofs->copy / 1e9,
            roofs->update / 1e9);
    }
}

static enum zo_status time_threads(const struct settings *settings,
                                   struct zo_bench_adam *bench,
                                   struct zo_pool *pool, int threads)
{
    struct zo_adam_roofs roofs;
    struct zo_adam_figure figure;

    zo_bench_adam_roofs(bench, pool, &roofs);
    (void)printf("\n%d threads: memcpy %.1f GB/s, update in place %.1f GB/s, "
                 "read and written\n"
                 "%-12s %-8s %-7s %3s  %10s  %12s  of the update's rate\n",
                 threads, roofs.copy / 1e9, roofs.update / 1e9, "states",
                 "moments", "set", "thr", "per 1e9", "rate");
    for (size_t i = 0; i < ZO_COUNT(cases); i++) {
        for (int s = ZO_SIMD_BASE; s < ZO_SIMD_COUNT; s++) {
            struct zo_adam_case which = cases[i];

            which.simd = (enum zo_simd)s;
            which.elems = s == ZO_SIMD_BASE ? settings->elems / 16 : 0;
            if (!zo_simd_usable(which.simd) ||
                (settings->has_simd && which.simd != settings->simd)) {
                continue;
            }
            ZO_TRY(zo_bench_adam_time(bench, pool, &which, &figure));
            print_figure(settings, &which, threads, &roofs, &figure);
        }
    }
    return ZO_OK;
}

static enum zo_status time_all(const struct settings *settings,
                               struct zo_bench_adam *bench)
{
    int threads = settings->is_only ? settings->threads : 1;
    enum zo_status status = ZO_OK;

    while (status == ZO_OK) {
        struct zo_pool *pool = NULL;

        ZO_TRY(zo_pool_open(threads - 1, &pool));
        status = time_threads(settings, bench, pool, threads);
        zo_pool_close(pool);
        if (threads == settings->threads) {
            break;
        }
        threads =
            2 * threads < settings->threads ? 2 * threads : settings->threads;
    }
    return status;
}

static enum zo_status run(const struct settings *settings)
{
    struct zo_bench_adam *bench = NULL;
    struct zo_pool *pool = NULL;
    enum zo_status status;

    ZO_TRY(zo_pool_open(zo_cpu_count() - 1, &pool));
    status = zo_bench_adam_open(pool, settings->elems, &bench);
    zo_pool_close(pool);
    if (status != ZO_OK) {
        return status;
    }
    (void)printf("AdamW on the host: %lld parameters, %d cores, best set %s\n",
                 (long long)settings->elems, zo_cpu_count(),
                 zo_simd_name(zo_simd_best()));
    status = time_all(settings, bench);
    zo_bench_adam_close(bench);
    return status;
}

/* A whole number from 1 up; 0 when it is none. */
static int64_t number_of(const char *text)
{
    char *end;
    long long value;

    errno = 0;
    value = strtoll(text, &end, 10);
    return errno != 0 || end == text || *end != '\0' || value < 1 ? 0 : value;
}

static bool parse(struct settings *settings, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(argv[i], "--only") == 0) {
            settings->is_only = true;
            continue;
        }
        if (value == NULL) {
            return false;
        }
        if (strcmp(argv[i], "--elems") == 0) {
            settings->elems = number_of(value);
        } else if (strcmp(argv[i], "--threads") == 0) {
            const int64_t threads = number_of(value);

            settings->threads = threads <= 1024 ? (int)threads : 0;
        } else if (strcmp(argv[i], "--json") == 0) {
            settings->json_path = value;
        } else if (strcmp(argv[i], "--simd") == 0) {
            settings->has_simd = true;
            if (zo_simd_parse(value, &settings->simd) != ZO_OK ||
                !zo_simd_usable(settings->simd)) {
                return false;
            }
        } else {
            return false;
        }
        i++;
    }
    if (settings->simd == ZO_SIMD_BEST) {
        settings->simd = zo_simd_best();
    }
    return settings->elems > 0 && settings->threads > 0;
}

int main(int argc, char **argv)
{
    struct settings settings = {.elems = zo_bench_adam_elems(0),
                                .threads = zo_cpu_count()};
    enum zo_status status;

    if (!parse(&settings, argc, argv)) {
        (void)fprintf(stderr, "usage: bench_adamw [--elems N] [--threads N] "
                              "[--only] [--simd best|base|avx2|avx512] "
                              "[--json FILE]\n");
        return EXIT_FAILURE;
    }
    if (settings.json_path != NULL) {
        settings.json = fopen(settings.json_path, "a");
        if (settings.json == NULL) {
            (void)fprintf(stderr, "bench_adamw: cannot write %s\n",
                          settings.json_path);
            return EXIT_FAILURE;
        }
    }
    status = run(&settings);
    if (status != ZO_OK) {
        (void)fprintf(stderr, "bench_adamw: %s\n", zo_err_last()->text);
    }
    if (settings.json != NULL && fclose(settings.json) != 0) {
        (void)fprintf(stderr, "bench_adamw: cannot write %s\n",
                      settings.json_path);
        status = ZO_E_IO;
    }
    return status != ZO_OK ? EXIT_FAILURE : EXIT_SUCCESS;
}
