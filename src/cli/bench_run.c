#include "src/cli/bench_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "offload/planner.h"
#include "src/base/arith.h"
#include "src/base/text.h"
#include "src/cli/bench_key.h"
#include "src/train/place_config.h"

#define STEPS_MAX 1000
#define COLUMNS   79

/* ---- life cycle ----------------------------------------------------------
 */

enum zo_status zo_bench_open(struct zo_cli *cli,
                             const struct zo_options *options, const char *what,
                             const char *head, struct zo_bench *bench_out)
{
    struct zo_bench bench = {
        .cli = cli, .options = options, .what = what, .head = head};
    enum zo_status status = ZO_OK;

    if (options->results != NULL) {
        if (access(options->results, F_OK) == 0) {
            ZO_TRY(zo_bench_rows_read(options->results, &bench.known));
        }
        status = zo_bench_file_open(options->results, &bench.file);
    }
    if (status != ZO_OK) {
        zo_bench_close(&bench);
        return status;
    }
    *bench_out = bench;
    return ZO_OK;
}

void zo_bench_close(struct zo_bench *bench)
{
    zo_bench_file_close(bench->file);
    zo_bench_rows_fini(&bench->known);
}

/* ---- a run ---------------------------------------------------------------
 */

struct run {
    const struct zo_setup *setup;
    struct zo_bench_row *row;
    struct zo_bench_step steps[STEPS_MAX]; /* row->steps of them */
};

static void add_engines(struct zo_bench_row *row,
                        const struct zo_step_metrics *metrics)
{
    const double seconds[ZO_ENGINES] = {
        [ZO_ENGINE_COMPUTE] = metrics->compute_seconds,
        [ZO_ENGINE_H2D] = metrics->h2d_seconds,
        [ZO_ENGINE_D2H] = metrics->d2h_seconds,
        [ZO_ENGINE_COLLECTIVE] = metrics->collective_seconds,
        [ZO_ENGINE_CPU] = metrics->cpu_seconds,
        [ZO_ENGINE_NVME] = metrics->nvme_seconds,
    };

    for (int e = 0; e < ZO_ENGINES; e++) {
        row->engine_seconds[e] += seconds[e] > 0.0 ? seconds[e] : 0.0;
    }
    row->h2d_bytes += metrics->h2d_bytes;
    row->d2h_bytes += metrics->d2h_bytes;
}

/* What the driver counts as taken, of the fullest device. */
static enum zo_status read_driver(const struct run *run)
{
    const struct zo_machine *machine = &run->setup->devices.machine;

    for (int d = 0;
         machine->device_ops != &zo_device_host && d < machine->device_count;
         d++) {
        struct zo_device *device = machine->devices[d];
        const uint64_t all = machine->device_ops->info(device)->memory_bytes;
        uint64_t rest = 0;

        ZO_TRY(machine->device_ops->mem_free_bytes(device, &rest));
        if (all > rest && all - rest > run->row->gpu_driver_bytes) {
            run->row->gpu_driver_bytes = all - rest;
        }
    }
    return ZO_OK;
}

static enum zo_status on_step(void *context,
                              const struct zo_step_metrics *metrics)
{
    struct run *run = context;
    struct zo_bench_row *row = run->row;
    const double idle = metrics->step_seconds - metrics->compute_seconds;

    row->loss = metrics->loss;
    if (metrics->step <= ZO_BENCH_WARM_UPS || metrics->overflow ||
        row->steps == STEPS_MAX) {
        return ZO_OK;
    }
    run->steps[row->steps++] = (struct zo_bench_step){
        .seconds = metrics->step_seconds,
        .exposed_seconds = idle > 0.0 ? idle : 0.0,
    };
    row->tokens = metrics->tokens;
    row->process_bytes = metrics->host_bytes;
    add_engines(row, metrics);
    return read_driver(run);
}

/* From sums to figures of a step. */
static enum zo_status finish(struct run *run)
{
    struct zo_bench_row *row = run->row;
    const double steps = (double)row->steps;

    if (row->steps == 0) {
        return ZO_FAIL(ZO_E_NUMERIC,
                       "%s: every step was skipped for an overflow, or only "
                       "warmed up: nothing to measure; --max-steps N makes "
                       "more than %d",
                       row->label, ZO_BENCH_WARM_UPS);
    }
    zo_bench_row_time(row, run->steps);
    for (int e = 0; e < ZO_ENGINES; e++) {
        row->engine_seconds[e] /= steps;
    }
    row->h2d_bytes /= (uint64_t)row->steps;
    row->d2h_bytes /= (uint64_t)row->steps;
    row->state = ZO_BENCH_RAN;
    return ZO_OK;
}

static enum zo_status train(const struct zo_setup *setup,
                            struct zo_trainer *trainer,
                            struct zo_bench_row *row)
{
    struct run run = {.setup = setup, .row = row};
    const struct zo_trainer_watch watch = {.context = &run, .on_step = on_step};
    struct zo_weights weights;
    int64_t steps = 0;

    ZO_TRY(zo_trainer_start(trainer));
    weights = zo_trainer_weights(trainer);
    ZO_TRY(zo_weights_randomize(&weights, (uint64_t)setup->config.seed));
    ZO_TRY(zo_trainer_run(trainer, &watch, &steps));
    return finish(&run);
}

/* ---- what is planned -----------------------------------------------------
 */

static void read_plan(const struct zo_trainer *trainer,
                      struct zo_bench_row *row)
{
    const struct zo_program *program = &zo_trainer_build(trainer)->program;
    struct zo_plan_arena arena;

    for (int d = 0; d < program->device_count; d++) {
        const uint64_t bytes = program->arena_bytes[ZO_TIER_GPU][d] +
                               zo_trainer_own_bytes(trainer, d);

        if (bytes > row->gpu_bytes) {
            zo_plan_arena(program, ZO_TIER_GPU, d, &arena);
            row->gpu_bytes = bytes;
            memcpy(row->gpu_purposes, arena.purposes, sizeof(arena.purposes));
        }
    }
    row->nvme_bytes = program->arena_bytes[ZO_TIER_NVME][0];
    for (int tier = ZO_TIER_CPU; tier <= ZO_TIER_PAGEABLE; tier++) {
        zo_plan_arena(program, (enum zo_tier)tier, 0, &arena);
        row->host_bytes += arena.total_bytes;
        for (int p = 0; p < ZO_PURPOSES; p++) {
            row->host_purposes[p] += arena.purposes[p];
        }
    }
}

/*
 * States on a device as ZeRO's arithmetic has them: none that are on the host,
 * gradients of an optimizer there included; 1/N of what the stage splits.
 * Filled up there is no such formula.
 */
static void read_formula(const struct zo_setup *setup, struct zo_bench_row *row)
{
    const struct zo_run_config *config = &setup->config;
    const int devices = setup->devices.machine.device_count;
    const struct zo_place_limits limits =
        zo_place_limits(config, devices, true);
    const uint64_t elems = (uint64_t)setup->model.parameter_count;
    const uint64_t typed = zo_dtype_bytes(config->dtype);
    const uint64_t second = config->dtype == ZO_BF16  ? 2
                            : config->dtype == ZO_F16 ? 4
                                                      : 0;
    const uint64_t moments = 2 * zo_dtype_bytes(config->optimizer.moment_dtype);
    const int stage = devices > 1 ? config->zero.stage : 0;
    const uint64_t n = (uint64_t)devices;
    const bool keeps_optimizer = limits.optimizer == ZO_TIER_GPU;

    if (config->fill && !keeps_optimizer) {
        return;
    }
    if (limits.weights == ZO_TIER_GPU) {
        row->formula_weight_bytes = elems * typed / (stage == 3 ? n : 1);
    }
    if (keeps_optimizer) {
        row->formula_gradient_bytes = elems * typed / (stage >= 2 ? n : 1);
        row->formula_optimizer_bytes =
            elems * (second + moments) / (stage >= 1 ? n : 1);
    }
    row->formula_bytes = row->formula_weight_bytes +
                         row->formula_gradient_bytes +
                         row->formula_optimizer_bytes;
}

/* On a GPU measured anew for each row that is run: a machine's rates drift,
 * most of all where others share it.  A processor's row would take less time
 * than measuring does. */
static enum zo_status find_rates(struct zo_bench *bench,
                                 const struct zo_setup *setup, bool runs)
{
    const bool is_gpu = setup->devices.machine.device_ops != &zo_device_host;

    if (runs && is_gpu) {
        ZO_TRY(zo_cli_profile_now(setup, &bench->rates));
        bench->has_rates = true;
        return ZO_OK;
    }
    return bench->has_rates
               ? ZO_OK
               : zo_cli_profile(setup, true, &bench->rates, &bench->has_rates);
}

/* A row of which nothing can be predicted is run all the same. */
static enum zo_status predict(struct zo_bench *bench, struct zo_setup *setup,
                              const struct zo_trainer *trainer, bool runs,
                              struct zo_bench_row *row)
{
    struct zo_cli_time time;
    bool found = false;
    enum zo_status status = find_rates(bench, setup, runs);

    if (status != ZO_OK) {
        return status == ZO_E_NOMEM ? status : ZO_OK;
    }
    setup->rates = bench->has_rates ? &bench->rates : NULL;
    status = zo_cli_time(setup, trainer, false, &time, &found);
    if (status != ZO_OK || !found) {
        return status == ZO_E_NOMEM ? status : ZO_OK;
    }
    row->predicted_seconds = time.result.step_seconds;
    zo_cli_time_fini(&time);
    return ZO_OK;
}

/* ---- a row ---------------------------------------------------------------
 */

static void describe(const struct zo_bench *bench, const struct zo_setup *setup,
                     const struct zo_bench_ask *ask, struct zo_bench_row *row)
{
    const struct zo_machine *machine = &setup->devices.machine;

    memset(row, 0, sizeof(*row));
    zo_bench_key(bench->what, setup, ask->plans_only, row->key,
                 sizeof(row->key));
    (void)snprintf(row->what, sizeof(row->what), "%s", bench->what);
    (void)snprintf(row->label, sizeof(row->label), "%s", ask->label);
    (void)snprintf(row->note, sizeof(row->note), "%s", ask->note);
    (void)snprintf(row->model, sizeof(row->model), "%s", setup->model.name);
    (void)snprintf(row->device, sizeof(row->device), "%s",
                   machine->device_ops->info(machine->devices[0])->description);
    (void)snprintf(row->dtype, sizeof(row->dtype), "%s",
                   zo_dtype_name(setup->config.dtype));
    row->layers = setup->model.num_layers;
    row->devices = machine->device_count;
    row->stage = setup->config.zero.stage;
    row->tokens = (int64_t)setup->bounds.real_tokens *
                  setup->config.gradient_accumulation_steps * row->devices;
    row->gpu_budget_bytes = setup->gpu_memory_bytes;
    row->host_budget_bytes = setup->host_memory_bytes;
    read_formula(setup, row);
}

static enum zo_status plan_and_run(struct zo_bench *bench,
                                   struct zo_setup *setup, bool plans_only,
                                   struct zo_bench_row *row)
{
    struct zo_trainer *trainer = NULL;
    enum zo_status status = zo_setup_trainer(setup, false, &trainer);

    if (trainer != NULL && (status == ZO_OK || status == ZO_E_FIT)) {
        row->state = status == ZO_OK ? ZO_BENCH_PLANNED : ZO_BENCH_UNFIT;
        read_plan(trainer, row);
        status = status == ZO_OK
                     ? predict(bench, setup, trainer, !plans_only, row)
                     : ZO_OK;
    }
    if (status == ZO_OK && row->state == ZO_BENCH_PLANNED && !plans_only) {
        status = train(setup, trainer, row);
    }
    zo_trainer_close(trainer);
    return status;
}

static void tell_progress(const struct zo_bench *bench,
                          const struct zo_bench_ask *ask)
{
    if (isatty(fileno(bench->cli->err)) != 1) {
        return;
    }
    (void)fprintf(bench->cli->err, "\r\033[K%d", bench->done + 1);
    if (bench->total > 0) {
        (void)fprintf(bench->cli->err, " of %d", bench->total);
    }
    (void)fprintf(bench->cli->err, ": %.60s\r", ask->label);
    (void)fflush(bench->cli->err);
}

static enum zo_status put_row(const struct zo_bench *bench, bool is_new,
                              const struct zo_bench_row *row)
{
    struct zo_jsonl json;
    char buffer[4096];

    if (is_new && bench->file != NULL) {
        ZO_TRY(zo_bench_file_add(bench->file, row));
    }
    if (!bench->options->json) {
        return ZO_OK;
    }
    zo_jsonl_init_file(&json, bench->cli->out, "standard output", buffer,
                       sizeof(buffer));
    return zo_bench_row_write(&json, row);
}

static enum zo_status make_row(struct zo_bench *bench, struct zo_setup *setup,
                               const struct zo_bench_ask *ask,
                               struct zo_bench_row *row)
{
    const struct zo_bench_row *known;

    describe(bench, setup, ask, row);
    known = zo_bench_rows_find(&bench->known, row->key);
    if (known != NULL) {
        *row = *known;
        return put_row(bench, false, row);
    }
    tell_progress(bench, ask);
    ZO_TRY(plan_and_run(bench, setup, ask->plans_only, row));
    return put_row(bench, true, row);
}

static bool lacks_device(const struct zo_bench_row *row)
{
    return row->gpu_budget_bytes > 0 && row->gpu_bytes > row->gpu_budget_bytes;
}

/* How far a row's needs are from what there is: 0 where it fits. */
static uint64_t shortage(const struct zo_bench_row *row)
{
    return row->state != ZO_BENCH_UNFIT ? 0
           : lacks_device(row)          ? row->gpu_bytes - row->gpu_budget_bytes
                                        : row->host_bytes;
}

static void note_fit(struct zo_bench *bench, const struct zo_bench_row *row)
{
    bench->fitting += row->state != ZO_BENCH_UNFIT ? 1 : 0;
    if (bench->done == 0 || shortage(row) < shortage(&bench->nearest)) {
        bench->nearest = *row;
    }
}

/* What a run would be warned of, once for all rows. */
static void tell_warnings(const struct zo_bench *bench,
                          const struct zo_notes *notes)
{
    for (size_t i = 0; i < notes->count; i++) {
        if (notes->items[i].level == ZO_NOTE_WARN) {
            (void)fprintf(zo_cli_err(bench->cli), "warning: %s\n",
                          notes->items[i].text);
        }
    }
}

enum zo_status zo_bench_row(struct zo_bench *bench,
                            const struct zo_options *options,
                            const struct zo_bench_ask *ask,
                            struct zo_bench_row *row_out)
{
    struct zo_options own = *options;
    struct zo_setup setup = {0};
    struct zo_notes notes = {0};
    enum zo_status status;

    if (own.max_steps <= 0) {
        own.max_steps = ZO_BENCH_STEPS;
    }
    status = zo_setup_open(&own, &notes, &setup);
    if (bench->done == 0) {
        tell_warnings(bench, &notes);
    }
    if (status == ZO_OK) {
        bench->device = zo_setup_device_word(&setup);
        status = make_row(bench, &setup, ask, row_out);
        if (status == ZO_OK) {
            note_fit(bench, row_out);
        }
        bench->done++;
    }
    zo_setup_close(&setup);
    zo_notes_fini(&notes);
    return status;
}

/* ---- printing ------------------------------------------------------------
 */

static void print_seconds(FILE *file, int columns, double seconds)
{
    char text[16] = "-";

    if (seconds > 0.0) {
        (void)snprintf(text, sizeof(text),
                       seconds < 100.0 ? "%.3f s" : "%.0f s", seconds);
    }
    (void)fprintf(file, " %*s", columns, text);
}

static bool lives_on_host(const struct zo_bench *bench)
{
    return strcmp(bench->device, "GPU") != 0;
}

/* Of the host, where the memory of virtual devices is too. */
static uint64_t host_need(const struct zo_bench *bench,
                          const struct zo_bench_row *row)
{
    return row->host_bytes +
           (lives_on_host(bench) ? (uint64_t)row->devices * row->gpu_bytes : 0);
}

static bool lacks_host(const struct zo_bench *bench,
                       const struct zo_bench_row *row)
{
    return row->host_budget_bytes > 0 &&
           host_need(bench, row) > row->host_budget_bytes;
}

/* Behind what it needs: what there is of what it lacks. */
static void print_lack(const struct zo_bench *bench, FILE *file,
                       const struct zo_bench_row *row)
{
    char text[32];

    (void)fputs("  does not fit: ", file);
    if (lacks_device(row)) {
        (void)fprintf(file, "%s has %s", bench->device,
                      zo_text_gib(text, sizeof(text), row->gpu_budget_bytes));
    } else if (lacks_host(bench, row)) {
        (void)fprintf(file, "host has %s%s",
                      zo_text_gib(text, sizeof(text), row->host_budget_bytes),
                      lives_on_host(bench) ? " for both" : "");
    } else {
        (void)fputs("NVMe has less", file);
    }
}

static void print_head(struct zo_bench *bench, FILE *file)
{
    if (!bench->has_head) {
        (void)fprintf(file, "  %-17s %10s %10s %9s %8s %8s %9s\n", bench->head,
                      bench->device, "host", "step", "tokens/s", "exposed",
                      "predicted");
    }
    bench->has_head = true;
}

void zo_bench_print_row(struct zo_bench *bench, const struct zo_bench_row *row)
{
    FILE *file = bench->cli->out;
    char gpu[32], host[32];

    print_head(bench, file);
    (void)fprintf(file, "  %-17s %10s %10s", row->label,
                  zo_text_gib(gpu, sizeof(gpu), row->gpu_bytes),
                  zo_text_gib(host, sizeof(host), row->host_bytes));
    if (row->state == ZO_BENCH_UNFIT) {
        print_lack(bench, file, row);
        return;
    }
    print_seconds(file, 9, row->median_seconds);
    if (row->median_seconds > 0.0) {
        (void)fprintf(file, " %8.0f",
                      (double)row->tokens / row->median_seconds);
    } else {
        (void)fprintf(file, " %8s", "-");
    }
    print_seconds(file, 8, row->exposed_seconds);
    print_seconds(file, 9, row->predicted_seconds);
}

enum zo_status zo_bench_verdict(const struct zo_bench *bench)
{
    const struct zo_bench_row *row = &bench->nearest;
    char need[ZO_TEXT_PAIR_BYTES], there[ZO_TEXT_PAIR_BYTES];

    if (bench->done == 0 || bench->fitting > 0) {
        return ZO_OK;
    }
    if (lacks_device(row)) {
        zo_text_gib_pair(need, row->gpu_bytes, there, row->gpu_budget_bytes);
        return ZO_FAIL(
            ZO_E_FIT,
            "no row fits: \"%s\" needs %s of each device, and %s are allowed "
            "or free (--gpu-memory)",
            row->label, need, there);
    }
    if (lacks_host(bench, row)) {
        zo_text_gib_pair(need, host_need(bench, row), there,
                         row->host_budget_bytes);
        return ZO_FAIL(
            ZO_E_FIT,
            "no row fits: \"%s\" needs %s of host memory%s, and %s are allowed "
            "or free (--host-memory)%s",
            row->label, need,
            lives_on_host(bench) ? ", where its devices live too" : "", there,
            lives_on_host(bench) && bench->options->backend == ZO_BACKEND_AUTO
                ? "; " ZO_SETUP_NO_GPU
                : "");
    }
    return ZO_FAIL(ZO_E_FIT,
                   "no row fits: \"%s\" needs %s on NVMe, and less is allowed "
                   "or free (--nvme DIR:SIZE)",
                   row->label,
                   zo_text_gib(need, sizeof(need), row->nvme_bytes));
}

void zo_bench_print_purposes(FILE *file, const char *tier,
                             const uint64_t *purposes)
{
    const char *between = "";
    uint64_t all = 0;
    int column;

    for (int p = 0; p < ZO_PURPOSES; p++) {
        all += purposes[p];
    }
    column = fprintf(file, "      %s:", tier);
    for (int p = 0; p < ZO_PURPOSES; p++) {
        char text[32], item[64];
        int length;

        if (purposes[p] * 100 < all || all == 0) {
            continue; /* less than 1 % */
        }
        length = snprintf(item, sizeof(item), "%s %s",
                          zo_purpose_text((enum zo_purpose)p),
                          zo_text_gib(text, sizeof(text), purposes[p]));
        if (column + 2 + length > COLUMNS) {
            (void)fprintf(file, "%s\n       ", between);
            column = 7;
            between = "";
        }
        column += fprintf(file, "%s %s", between, item);
        between = ",";
    }
    (void)fputc('\n', file);
}
