/*
 * zero-offload bench: measurements with their bound beside them.
 *
 * Here is the choice of one, and bench step: steps of training on random
 * weights and rows; the products of the step alone, on the same shapes, are the
 * bound.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench/products.h"
#include "src/base/jsonl.h"
#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/cli/bench.h"
#include "src/cli/bench_run.h"
#include "src/cli/cli.h"
#include "src/cli/inputs.h"
#include "src/cli/print_hints.h"
#include "src/cli/print_time.h"
#include "src/cli/setup.h"

#define WARM_UP_STEPS 3
#define STEPS_MAX     1000
#define TIMES_MAX     128

struct step_bench {
    struct zo_cli *cli;
    struct zo_setup setup;
    struct zo_trainer *trainer;
    struct zo_product_rate products;
    struct zo_op_time times[TIMES_MAX]; /* of the steps measured */
    size_t time_count;
    double seconds[STEPS_MAX];
    int64_t steps;                     /* measured */
    struct zo_step_metrics sums, last; /* of those: sums of what engines did */
    struct zo_cli_time predicted;      /* by rates measured before */
    double tokens;                     /* of a step */
    double loss;                       /* of the last step */
};

static void add_engines(struct zo_step_metrics *sums,
                        const struct zo_step_metrics *metrics)
{
    sums->compute_seconds += metrics->compute_seconds;
    sums->h2d_seconds += metrics->h2d_seconds;
    sums->d2h_seconds += metrics->d2h_seconds;
    sums->cpu_seconds += metrics->cpu_seconds;
    sums->nvme_seconds += metrics->nvme_seconds;
    sums->h2d_bytes += metrics->h2d_bytes;
    sums->d2h_bytes += metrics->d2h_bytes;
    sums->nvme_read_bytes += metrics->nvme_read_bytes;
    sums->nvme_write_bytes += metrics->nvme_write_bytes;
}

static enum zo_status on_step(void *context,
                              const struct zo_step_metrics *metrics)
{
    struct step_bench *bench = context;
    const struct zo_executor *executor = zo_trainer_executor(bench->trainer);

    /* A step is told of when the one behind it has been started: run alone,
     * it has been run too. */
    if (metrics->step == WARM_UP_STEPS - 1) {
        zo_executor_reset_op_times(zo_trainer_executor(bench->trainer));
    }
    if (metrics->step == bench->setup.total_steps) { /* before the tail */
        const struct zo_op_time *times =
            zo_executor_op_times(executor, &bench->time_count);

        bench->time_count =
            bench->time_count < TIMES_MAX ? bench->time_count : TIMES_MAX;
        memcpy(bench->times, times, bench->time_count * sizeof(times[0]));
    }
    if (metrics->step > WARM_UP_STEPS && !metrics->overflow &&
        bench->steps < STEPS_MAX) {
        bench->seconds[bench->steps++] = metrics->step_seconds;
        bench->tokens = (double)metrics->tokens;
        add_engines(&bench->sums, metrics);
        bench->last = *metrics;
    }
    bench->loss = metrics->loss;
    return ZO_OK;
}

static int by_seconds(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return a < b ? -1 : a > b;
}

static enum zo_status run_steps(struct step_bench *bench, bool times_ops)
{
    const struct zo_trainer_watch watch = {.context = bench,
                                           .on_step = on_step};
    struct zo_weights weights;
    int64_t steps = 0;

    bench->steps = 0;
    ZO_TRY(zo_setup_trainer(&bench->setup, times_ops, &bench->trainer));
    ZO_TRY(zo_trainer_start(bench->trainer));
    weights = zo_trainer_weights(bench->trainer);
    ZO_TRY(zo_weights_randomize(&weights, (uint64_t)bench->setup.config.seed));
    return zo_trainer_run(bench->trainer, &watch, &steps);
}

/* Of one device: all do the same at the same time. */
static double op_flops(const struct step_bench *bench)
{
    const struct zo_build *build = zo_trainer_build(bench->trainer);

    return zo_plan_flops(&build->program, build->step_schedule) /
           (double)build->options.device_count;
}

static void print_times(const struct step_bench *bench)
{
    FILE *out = bench->cli->out;
    const size_t count = bench->time_count;
    const struct zo_op_time *times = bench->times;
    const double steps = (double)(bench->setup.total_steps - WARM_UP_STEPS);
    uint64_t total_ns = 0;
    char rate[32];

    for (size_t i = 0; i < count; i++) {
        total_ns += times[i].busy_ns;
    }
    (void)fprintf(out,
                  "each operation alone, a step:\n"
                  "  %-34s %6s %10s %7s %14s\n",
                  "operation", "runs", "ms", "share", "rate");
    for (size_t i = 0; i < count; i++) {
        const double seconds = (double)times[i].busy_ns * 1e-9;

        (void)fprintf(out, "  %-34s %6.0f %10.3f %6.1f%%", times[i].name,
                      (double)times[i].count / steps, seconds * 1e3 / steps,
                      100.0 * (double)times[i].busy_ns / (double)total_ns);
        if (times[i].flops > 0.0) {
            (void)fprintf(out, " %14s",
                          zo_text_si(rate, sizeof(rate),
                                     times[i].flops / seconds, "FLOP/s"));
        }
        (void)fputc('\n', out);
    }
    (void)fprintf(out, "  %-34s %6s %10.3f\n", "together", "",
                  (double)total_ns * 1e-6 / steps);
}

/* Whether states live on the host: then engines are what matters. */
static bool offloads(const struct step_bench *bench)
{
    const struct zo_place *place = zo_trainer_place(bench->trainer);

    return place != NULL &&
           place->resident_units <
               zo_trainer_build(bench->trainer)->options.unit_count;
}

static void print_engine(const struct step_bench *bench, const char *name,
                         double seconds, double bytes)
{
    const double steps = (double)bench->steps;

    (void)fprintf(bench->cli->out, "  %-10s busy %7.4f s", name,
                  seconds / steps);
    if (bytes > 0.0) {
        (void)fprintf(bench->cli->out, ", %8.3f GB, %6.1f GB/s",
                      bytes / steps * 1e-9, bytes / seconds * 1e-9);
    }
    (void)fputc('\n', bench->cli->out);
}

static void print_engines(const struct step_bench *bench)
{
    const struct zo_step_metrics *sums = &bench->sums;
    const struct zo_sim_result *sim = &bench->predicted.result;
    const struct zo_placement *placement =
        &zo_trainer_place(bench->trainer)->placement;
    const double median = bench->seconds[bench->steps / 2];
    FILE *out = bench->cli->out;

    (void)fprintf(out,
                  "placement: %d of %d units resident, %d micro batch%s a "
                  "pass, ring of %d, boundaries of %d unit%s on the host\n",
                  zo_trainer_place(bench->trainer)->resident_units,
                  zo_trainer_build(bench->trainer)->options.unit_count,
                  placement->pass_micros,
                  placement->pass_micros == 1 ? "" : "es",
                  placement->weight_ring, placement->host_boundaries,
                  zo_text_s((uint64_t)placement->host_boundaries));
    print_engine(bench, "compute", sums->compute_seconds, 0.0);
    print_engine(bench, "h2d", sums->h2d_seconds, (double)sums->h2d_bytes);
    print_engine(bench, "d2h", sums->d2h_seconds, (double)sums->d2h_bytes);
    print_engine(bench, "cpu", sums->cpu_seconds, 0.0);
    if (bench->last.nvme_bytes > 0) {
        print_engine(bench, "nvme", sums->nvme_seconds,
                     (double)(sums->nvme_read_bytes + sums->nvme_write_bytes));
    }
    (void)fprintf(out, "host memory %.3f GB, of it page-locked %.3f GB\n",
                  (double)bench->last.host_bytes * 1e-9,
                  (double)bench->last.pinned_bytes * 1e-9);
    if (sim->step_seconds <= 0.0) {
        return;
    }
    (void)fprintf(out,
                  "simulated %.4f s by rates of %s, bound by %s; no run is "
                  "faster than %.4f s\n"
                  "step over simulated %.3f\n",
                  sim->step_seconds, bench->predicted.profile.name,
                  zo_bound_text(sim->bound),
                  sim->busiest_seconds > sim->chain_seconds
                      ? sim->busiest_seconds
                      : sim->chain_seconds,
                  median / sim->step_seconds);
}

static enum zo_status print_result(struct step_bench *bench, double flops)
{
    const struct zo_setup *setup = &bench->setup;
    const double median = bench->seconds[bench->steps / 2];
    const double rate = bench->products.flops / bench->products.seconds;
    struct zo_jsonl json;
    char buffer[2048], work[32], speed[32];

    if (!setup->options->json) {
        (void)fprintf(
            bench->cli->out,
            "step %.4f s (median of %" PRId64 "; %.4f to %.4f), %.0f tokens, "
            "%.0f tokens/s, loss %.4f\n"
            "products %s a step and device; alone %.4f s at %s, which is "
            "%.1f %% of the step\n",
            median, bench->steps, bench->seconds[0],
            bench->seconds[bench->steps - 1], bench->tokens,
            bench->tokens / median, bench->loss,
            zo_text_si(work, sizeof(work), flops, "FLOP"), flops / rate,
            zo_text_si(speed, sizeof(speed), rate, "FLOP/s"),
            100.0 * flops / rate / median);
        return ZO_OK;
    }
    zo_jsonl_init_file(&json, bench->cli->out, "standard output", buffer,
                       sizeof(buffer));
    zo_jsonl_begin(&json);
    zo_jsonl_int(&json, "format", 1);
    zo_jsonl_text(&json, "suite", "step");
    zo_jsonl_text(&json, "device",
                  setup->devices.machine.device_ops
                      ->info(setup->devices.machine.devices[0])
                      ->description);
    zo_jsonl_text(&json, "dtype", zo_dtype_name(setup->config.dtype));
    zo_jsonl_int(&json, "parameters", setup->model.parameter_count);
    zo_jsonl_real(&json, "tokens", bench->tokens);
    zo_jsonl_real(&json, "step_seconds_median", median);
    zo_jsonl_real(&json, "step_seconds_min", bench->seconds[0]);
    zo_jsonl_real(&json, "step_seconds_max", bench->seconds[bench->steps - 1]);
    zo_jsonl_real(&json, "tokens_per_second", bench->tokens / median);
    zo_jsonl_real(&json, "product_flops", flops);
    zo_jsonl_real(&json, "product_flops_per_second", rate);
    zo_jsonl_real(&json, "loss", bench->loss);
    return zo_jsonl_end(&json);
}

/* What does not fit is refused before anything is timed, with the plan. */
static enum zo_status check_fit(struct step_bench *bench)
{
    enum zo_status status;
    bool found;

    ZO_TRY(
        zo_cli_profile(&bench->setup, true, &bench->predicted.profile, &found));
    status = zo_setup_trainer(&bench->setup, false, &bench->trainer);

    if (status == ZO_E_FIT && bench->trainer != NULL) {
        return zo_cli_fail_fit(bench->cli, &bench->setup, bench->trainer);
    }
    zo_trainer_close(bench->trainer);
    bench->trainer = NULL;
    return status;
}

/* Where a rate is not known there is no prediction, and all else stands. */
static enum zo_status predict(struct step_bench *bench)
{
    bool found = false;
    const enum zo_status status = zo_cli_time(&bench->setup, bench->trainer,
                                              true, &bench->predicted, &found);

    return status == ZO_E_NOMEM ? status : ZO_OK;
}

static enum zo_status bench_step(struct step_bench *bench)
{
    struct zo_setup *setup = &bench->setup;
    double flops;

    ZO_TRY(zo_setup_open(setup->options, &bench->cli->notes, setup));
    zo_cli_print_notes(bench->cli);
    if (setup->total_steps <= WARM_UP_STEPS) {
        return ZO_FAIL(ZO_E_USAGE,
                       "--max-steps %" PRId64 ": the first %d only warm up; "
                       "want more",
                       setup->total_steps, WARM_UP_STEPS);
    }
    ZO_TRY(check_fit(bench));
    ZO_TRY(zo_bench_products(&setup->devices, &setup->model,
                             setup->config.dtype, setup->bounds.tokens,
                             setup->bounds.labels, &bench->products));
    ZO_TRY(run_steps(bench, false));
    if (bench->steps == 0) {
        return ZO_FAIL(ZO_E_NUMERIC, "every step was skipped for an overflow: "
                                     "there is nothing to measure");
    }
    flops = op_flops(bench);
    qsort(bench->seconds, (size_t)bench->steps, sizeof(bench->seconds[0]),
          by_seconds);
    ZO_TRY(print_result(bench, flops));
    if (offloads(bench)) {
        ZO_TRY(predict(bench));
        if (!setup->options->json) {
            print_engines(bench);
        }
        return ZO_OK; /* one at a time they would tell nothing */
    }
    zo_trainer_close(bench->trainer);
    bench->trainer = NULL;
    ZO_TRY(run_steps(bench, true));
    if (!setup->options->json) {
        print_times(bench);
    }
    return ZO_OK;
}

static enum zo_status bench_one(struct zo_cli *cli,
                                const struct zo_options *options)
{
    struct step_bench *bench = NULL;
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*bench), "the measurements", &bench));
    bench->cli = cli;
    bench->setup.options = options;
    status = bench_step(bench);
    zo_trainer_close(bench->trainer);
    zo_setup_close(&bench->setup);
    zo_cli_time_fini(&bench->predicted);
    zo_free(bench);
    return status;
}

enum zo_status zo_cli_bench(struct zo_cli *cli,
                            const struct zo_options *options)
{
    static const struct {
        const char *topic;
        zo_cli_fn run;
    } topics[] = {
        {"stages", zo_bench_stages}, {"frontier", zo_bench_frontier},
        {"sweep", zo_bench_sweep},   {"step", bench_one},
        {"adam", zo_bench_adam},     {"transfer", zo_bench_transfer},
        {"matmul", zo_bench_matmul}, {"nvme", zo_cli_bench_nvme},
    };
    const char *topic = cli->topic != NULL ? cli->topic : "";
    const char *names[ZO_COUNT(topics)], *nearest;

    if (options->nvme_path != NULL) {
        ZO_TRY(zo_cli_nvme_folder(options->nvme_path));
    }
    for (size_t i = 0; i < ZO_COUNT(topics); i++) {
        names[i] = topics[i].topic;
        if (strcmp(topic, topics[i].topic) == 0) {
            return topics[i].run(cli, options);
        }
    }
    nearest = zo_text_nearest(topic, names, ZO_COUNT(names));
    if (nearest != NULL) {
        return ZO_FAIL(ZO_E_USAGE, "no bench \"%s\"; did you mean %s?", topic,
                       nearest);
    }
    return ZO_FAIL(ZO_E_USAGE, "bench: want one of: stages, frontier, sweep, "
                               "step, adam, transfer, matmul, nvme");
}
