/*
 * zero-offload bench frontier: the time of a step against the budget of GPU
 * memory, from the least that runs to everything resident.
 */
#include <string.h>

#include "src/base/text.h"
#include "src/cli/bench_run.h"

#define POINTS   15 /* of the predicted curve */
#define MEASURED 2  /* each so many-th of them is run */
#define FINEST   64 /* parts of the range that the least budget is found to */

/* With a budget: bytes of the fullest device; ZO_E_FIT, with those of what
 * takes least, when nothing fits. */
static enum zo_status bytes_with(const struct zo_options *options,
                                 uint64_t budget, uint64_t *bytes_out)
{
    struct zo_options own = *options;
    struct zo_setup setup = {0};
    struct zo_notes notes = {0};
    struct zo_trainer *trainer = NULL;
    enum zo_status status;

    own.gpu_memory_bytes = budget;
    status = zo_setup_open(&own, &notes, &setup);
    if (status == ZO_OK) {
        status = zo_setup_trainer(&setup, false, &trainer);
    }
    if (trainer != NULL) {
        const struct zo_program *program = &zo_trainer_build(trainer)->program;

        *bytes_out = 0;
        for (int d = 0; d < program->device_count; d++) {
            const uint64_t bytes = program->arena_bytes[ZO_TIER_GPU][d] +
                                   zo_trainer_own_bytes(trainer, d);

            *bytes_out = bytes > *bytes_out ? bytes : *bytes_out;
        }
    }
    zo_trainer_close(trainer);
    zo_setup_close(&setup);
    zo_notes_fini(&notes);
    return status;
}

static enum zo_status fits_with(const struct zo_options *options,
                                uint64_t budget, bool *fits_out)
{
    uint64_t bytes = 0;
    const enum zo_status status = bytes_with(options, budget, &bytes);

    *fits_out = status == ZO_OK;
    return status == ZO_E_FIT ? ZO_OK : status;
}

/*
 * The least budget that runs, to 1/FINEST of the range above what takes least
 * of the device: that may take more of the host than there is.  `most` runs.
 */
static enum zo_status find_least(const struct zo_options *options,
                                 uint64_t most, uint64_t *least_inout)
{
    const uint64_t range = most - *least_inout;
    uint64_t short_of = *least_inout, runs = most;
    bool fits = false;

    ZO_TRY(fits_with(options, short_of, &fits));
    if (fits) {
        return ZO_OK;
    }
    while (runs - short_of > range / FINEST + 1) {
        const uint64_t middle = short_of + (runs - short_of) / 2;

        ZO_TRY(fits_with(options, middle, &fits));
        if (fits) {
            runs = middle;
        } else {
            short_of = middle;
        }
    }
    *least_inout = runs;
    return ZO_OK;
}

/* What --gpu-memory allows, or what is free, runs; up to what is resident. */
static enum zo_status find_range(const struct zo_options *options,
                                 uint64_t *least_out, uint64_t *most_out)
{
    uint64_t least = 0, most = 0, here = 0;
    enum zo_status status;

    ZO_TRY(bytes_with(options, options->gpu_memory_bytes, &here));
    status = bytes_with(options, UINT64_MAX / 4, &most);
    if (status != ZO_OK && status != ZO_E_FIT) {
        return status;
    }
    most = status == ZO_E_FIT || here < most ? here : most;
    status = bytes_with(options, 1, &least);
    if (status != ZO_OK && status != ZO_E_FIT) {
        return status;
    }
    least = least < most ? least : most;
    ZO_TRY(find_least(options, most, &least));
    *least_out = least;
    *most_out = most;
    return ZO_OK;
}

static enum zo_status run_points(struct zo_bench *bench, uint64_t least,
                                 uint64_t most)
{
    for (uint64_t i = 0; i < POINTS; i++) {
        struct zo_options options = *bench->options;
        struct zo_bench_row row;
        char label[32];
        const struct zo_bench_ask ask = {
            .label = label,
            .note = i == 0            ? "the least that runs"
                    : i == POINTS - 1 ? "the most that is of use, or allowed"
                                      : "",
            .plans_only = i % MEASURED != 0,
        };

        options.gpu_memory_bytes = least + (most - least) / (POINTS - 1) * i;
        if (i == POINTS - 1) {
            options.gpu_memory_bytes = most;
        }
        (void)zo_text_gib(label, sizeof(label), options.gpu_memory_bytes);
        ZO_TRY(zo_bench_row(bench, &options, &ask, &row));
        if (!bench->options->json) {
            zo_bench_print_row(bench, &row);
            (void)fputc('\n', bench->cli->out);
            (void)fflush(bench->cli->out);
        }
    }
    return ZO_OK;
}

enum zo_status zo_bench_frontier(struct zo_cli *cli,
                                 const struct zo_options *options)
{
    struct zo_bench bench;
    uint64_t least = 0, most = 0;
    enum zo_status status;

    ZO_TRY(find_range(options, &least, &most));
    ZO_TRY(zo_bench_open(cli, options, "frontier", "budget", &bench));
    bench.total = POINTS;
    status = run_points(&bench, least, most);
    status = status == ZO_OK ? zo_bench_verdict(&bench) : status;
    zo_bench_close(&bench);
    return status;
}
