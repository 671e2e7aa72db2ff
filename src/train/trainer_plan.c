/*
 * The trainer's program: what it is made of, where it may live, whether it
 * fits.  Row 7.
 */
#include <inttypes.h>

#include "src/base/arith.h"
#include "src/base/text.h"
#include "src/train/place_config.h"
#include "src/train/trainer_internal.h"

#define PASSES_MAX INT64_C(32768) /* of micro batches through units */

static int micros_of(const struct zo_trainer_options *options)
{
    return options->evaluates_only
               ? 1
               : (int)options->config->gradient_accumulation_steps;
}

/* All but a placement. */
static struct zo_build_options build_options(struct zo_trainer *trainer)
{
    const struct zo_trainer_options *options = &trainer->options;
    const struct zo_run_config *config = options->config;
    struct zo_build_options build = {
        .device_count = options->devices->machine.device_count,
        .type = config->dtype,
        .comm_type = config->communication_dtype,
        .micros = micros_of(options),
        .stage = config->zero.stage,
        .decides = zo_run_decides(config),
        .moment_type = config->optimizer.moment_dtype,
        .simd = options->simd,
        .keeps_gradients = options->keeps_gradients,
        .has_evaluation = options->eval_batches != NULL,
        .evaluates_only = options->evaluates_only,
        .bucket_elems = config->zero.reduce_bucket_size,
        .waits_for_comm = !config->zero.overlap_comm,
        .tokens_max = options->bounds.tokens,
        .labels_max = zo_max_i64(options->bounds.labels, 1),
        .boundary_bytes = (uint64_t)options->bounds.tokens *
                          (uint64_t)options->model->hidden_size *
                          zo_dtype_bytes(config->dtype),
        .batch_bytes = trainer->feed.layout.bytes,
        .kernel_ops = options->devices->machine.kernel_ops,
        .model_ops = &zo_glm_ops,
        .model = trainer->glm,
        .decide = zo_decide,
        .decide_context = &trainer->decider,
    };

    build.units = zo_glm_units(trainer->glm, &build.unit_count);
    return build;
}

uint64_t zo_trainer_own_bytes(const struct zo_trainer *trainer, int device)
{
    const struct zo_machine *machine = &trainer->options.devices->machine;

    return machine->kernel_ops->own_device_bytes(machine->kernels[device]) +
           zo_devices_comm_bytes(machine, device) +
           zo_trainer_context_bytes(trainer, device);
}

uint64_t zo_trainer_context_bytes(const struct zo_trainer *trainer, int device)
{
    const struct zo_machine *machine = &trainer->options.devices->machine;

    return machine->device_ops->info(machine->devices[device])->context_bytes +
           trainer->options.absent_context_bytes;
}

/* Virtual devices live in host memory. */
static bool is_host_memory(const struct zo_trainer_options *options)
{
    return options->devices->machine.device_ops == &zo_device_host &&
           !options->plans_elsewhere;
}

static enum zo_status check_nvme(const struct zo_trainer *trainer)
{
    const uint64_t need = trainer->build.program.arena_bytes[ZO_TIER_NVME][0];
    const uint64_t budget = trainer->options.nvme_bytes;
    char need_text[ZO_TEXT_PAIR_BYTES], budget_text[ZO_TEXT_PAIR_BYTES];

    if (budget == 0 || need <= budget) {
        return ZO_OK;
    }
    zo_text_gib_pair(need_text, need, budget_text, budget);
    return ZO_FAIL(ZO_E_FIT,
                   "the run needs %s on NVMe, and %s are allowed or free "
                   "(--nvme DIR:SIZE); see the plan for what it is made of",
                   need_text, budget_text);
}

/* What stands in for a device that is not here has no name of its own. */
static const char *device_name(const struct zo_trainer_options *options,
                               int device, char *text, size_t text_bytes)
{
    const struct zo_machine *machine = &options->devices->machine;

    if (options->plans_elsewhere) {
        (void)snprintf(text, text_bytes, "GPU %d", device);
    } else {
        (void)snprintf(
            text, text_bytes, "%s",
            machine->device_ops->info(machine->devices[device])->name);
    }
    return text;
}

static uint64_t device_bytes(const struct zo_trainer *trainer, int device)
{
    return trainer->build.program.arena_bytes[ZO_TIER_GPU][device] +
           zo_trainer_own_bytes(trainer, device);
}

uint64_t zo_trainer_host_bytes(const struct zo_trainer *trainer)
{
    const struct zo_program *program = &trainer->build.program;
    uint64_t bytes = program->arena_bytes[ZO_TIER_CPU][0] +
                     program->arena_bytes[ZO_TIER_PAGEABLE][0];

    for (int d = 0;
         is_host_memory(&trainer->options) && d < program->device_count; d++) {
        bytes += device_bytes(trainer, d);
    }
    return bytes;
}

/* The first budget that the plan passes. */
static enum zo_status check_budgets(const struct zo_trainer *trainer)
{
    const struct zo_trainer_options *options = &trainer->options;
    const uint64_t host = zo_trainer_host_bytes(trainer);
    char need_text[ZO_TEXT_PAIR_BYTES], budget_text[ZO_TEXT_PAIR_BYTES];
    char name[64];

    for (int d = 0; d < trainer->build.program.device_count; d++) {
        const uint64_t need = device_bytes(trainer, d);

        if (options->gpu_memory_bytes != 0 &&
            need > options->gpu_memory_bytes) {
            zo_text_gib_pair(need_text, need, budget_text,
                             options->gpu_memory_bytes);
            return ZO_FAIL(
                ZO_E_FIT,
                "%s needs %s, and %s are allowed (--gpu-memory); see the plan "
                "for what it is made of",
                device_name(options, d, name, sizeof(name)), need_text,
                budget_text);
        }
    }
    ZO_TRY(check_nvme(trainer));
    if (options->host_memory_bytes != 0 && host > options->host_memory_bytes) {
        zo_text_gib_pair(need_text, host, budget_text,
                         options->host_memory_bytes);
        return ZO_FAIL(ZO_E_FIT,
                       "the run needs %s of host memory%s, and %s are allowed "
                       "or free (--host-memory); see the plan for what it is "
                       "made of",
                       need_text,
                       is_host_memory(options)
                           ? ", with that of the devices, which lives there too"
                           : "",
                       budget_text);
    }
    return ZO_OK;
}

/* A budget less what it must hold beside an arena; 0 is no budget. */
static uint64_t left_of(uint64_t budget, uint64_t taken)
{
    return budget == 0 ? 0 : (budget > taken ? budget - taken : 1);
}

/* Threads for updates on the host. */
int zo_trainer_workers(const struct zo_trainer_options *options)
{
    return options->cpu_threads > 0 ? (int)zo_min_i64(options->cpu_threads, 256)
                                    : zo_devices_cpu_workers(options->devices);
}

/* What a placement may be; `build` is borrowed by it. */
static struct zo_place_options
place_options(const struct zo_trainer *trainer,
              const struct zo_build_options *build)
{
    const struct zo_trainer_options *options = &trainer->options;
    const struct zo_machine *machine = &options->devices->machine;
    struct zo_place_options place = {
        .build = build,
        .device_is_host = is_host_memory(options),
        .profile =
            options->profile != NULL ? options->profile : zo_profile_shipped(0),
        .cpu_workers = zo_trainer_workers(options),
    };
    uint64_t own = 0;

    zo_place_from_config(options->config, &place);
    place.pageable_weights |= options->avoids_locking;
    place.pageable_optimizer |= options->avoids_locking;
    for (int d = 0; d < machine->device_count; d++) {
        const uint64_t bytes = zo_trainer_own_bytes(trainer, d);

        own = bytes > own ? bytes : own;
    }
    place.gpu_bytes = left_of(options->gpu_memory_bytes, own);
    /* What check_budgets() counts, and no arena has. */
    place.host_bytes = left_of(
        options->host_memory_bytes,
        is_host_memory(options) ? own * (uint64_t)machine->device_count : 0);
    place.nvme_bytes = options->nvme_bytes;
    return place;
}

static enum zo_status choose_placement(struct zo_trainer *trainer,
                                       const struct zo_build_options *build)
{
    const struct zo_place_options options = place_options(trainer, build);

    return zo_place_choose(&options, &trainer->place);
}

enum zo_status zo_trainer_build_what_fits(struct zo_trainer *trainer)
{
    struct zo_build_options build = build_options(trainer);
    enum zo_status status = ZO_OK;

    if (trainer->options.placement != NULL) {
        build.placement = *trainer->options.placement;
    } else {
        status = choose_placement(trainer, &build);
        if (status != ZO_OK && status != ZO_E_FIT) {
            return status;
        }
        build.placement = trainer->place.placement;
    }
    ZO_TRY(zo_build_train(&build, &trainer->build));
    trainer->is_built = true;
    return check_budgets(trainer);
}

/*
 * A step is a list of all its micro batches.  At this length one is built in
 * 1 to 6 s of a core, of which a planner tries dozens; the edges of an update
 * that more than 512 gathers precede then grow with the square of it.
 */
enum zo_status zo_trainer_check_length(const struct zo_trainer_options *options)
{
    const int64_t units = options->model->num_layers + 2;
    const int64_t micros = options->evaluates_only
                               ? 1
                               : options->config->gradient_accumulation_steps;

    if (micros > PASSES_MAX / units) {
        return ZO_FAIL(ZO_E_CONFIG,
                       "gradient_accumulation_steps: %" PRId64
                       " micro batches through %" PRId64
                       " units make a step too long to plan; want at most "
                       "%" PRId64 ", with more rows in each",
                       micros, units, PASSES_MAX / units);
    }
    return ZO_OK;
}

struct zo_glm_batch
zo_trainer_batch_layout(const struct zo_trainer_options *options)
{
    return zo_glm_batch_layout(options->bounds.tokens, options->bounds.rows,
                               zo_max_i64(options->bounds.labels, 1));
}

enum zo_status zo_trainer_open_glm(struct zo_trainer *trainer)
{
    const struct zo_trainer_options *options = &trainer->options;
    const struct zo_run_config *config = options->config;
    const struct zo_glm_options glm = {
        .config = options->model,
        .type = config->dtype,
        .device_count = options->devices->machine.device_count,
        .micros = micros_of(options),
        .tokens_max = options->bounds.tokens,
        .rows_max = options->bounds.rows,
        .labels_max = zo_max_i64(options->bounds.labels, 1),
        .positions_max = options->positions_max,
        .decay_all = config->optimizer.decay_all,
        .half_angles = config->rope_precision == ZO_ROPE_PRECISION_MODEL,
        .kernel_ops = options->devices->machine.kernel_ops,
    };

    return zo_glm_open(&glm, &trainer->glm);
}

enum zo_status zo_trainer_fits(const struct zo_trainer_options *options,
                               bool *fits_out)
{
    struct zo_trainer trainer = {.options = *options};
    struct zo_build_options build;
    struct zo_place_options place;
    enum zo_status status;

    trainer.feed.layout = zo_trainer_batch_layout(options);
    ZO_TRY(zo_trainer_open_glm(&trainer));
    build = build_options(&trainer);
    place = place_options(&trainer, &build);
    status = zo_place_fits(&place, fits_out);
    zo_glm_close(trainer.glm);
    return status;
}

/* Whether so many micro batches a step fit in one pass. */
static enum zo_status micros_fit(const struct zo_trainer_options *options,
                                 int64_t micros, bool *fits_out)
{
    struct zo_run_config config = *options->config;
    struct zo_trainer_options changed = *options;

    config.gradient_accumulation_steps = micros;
    changed.config = &config;
    return zo_trainer_fits(&changed, fits_out);
}

enum zo_status
zo_trainer_largest_accumulation(const struct zo_trainer_options *options,
                                int64_t most, int64_t *micros_out)
{
    int64_t low = 0, high = 1; /* what fits; what may not */
    bool is_in = true;

    most = zo_min_i64(most, PASSES_MAX / (options->model->num_layers + 2));
    for (high = 1; is_in && high <= most; high *= 2) {
        ZO_TRY(micros_fit(options, high, &is_in));
        low = is_in ? high : low;
    }
    high = is_in ? most + 1 : high / 2;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;

        ZO_TRY(micros_fit(options, middle, &is_in));
        if (is_in) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *micros_out = low;
    return ZO_OK;
}
