/*
 * zero-offload bench frontier: the time of a step against the budget of GPU
 * memory, from the least that runs to everything resident.
 */
#include <string.h>

#include "src/base/text.h"
#include "src/cli/bench_run.h"

#define POINTS   15 /* of the predicted curve */
#define MEASURED 2  /* each so many-th of them is run */

/* Bytes of the fullest device with a budget, whether that fits or not. */
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

        status = status == ZO_E_FIT ? ZO_OK : status;
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
                    : i == POINTS - 1 ? "everything that may be is resident"
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
            zo_bench_print_row(bench->cli->out, &row);
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
    uint64_t least = 0, most = 0, here = 0;
    enum zo_status status;

    ZO_TRY(bytes_with(options, 1, &least));
    ZO_TRY(bytes_with(options, UINT64_MAX / 4, &most));
    /* What --gpu-memory allows, or what is free: more is not measured. */
    ZO_TRY(bytes_with(options, options->gpu_memory_bytes, &here));
    if (here < most && here > least) {
        most = here;
    }
    ZO_TRY(zo_bench_open(cli, options, "frontier", &bench));
    bench.total = POINTS;
    if (!options->json) {
        zo_bench_print_head(cli->out, "GPU budget");
    }
    status = run_points(&bench, least, most);
    zo_bench_close(&bench);
    return status;
}
