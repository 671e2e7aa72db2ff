/*
 * The buffers that a run keeps between lists.  Row 5.
 */
#include "offload/builder_internal.h"

#include "src/base/arith.h"

uint64_t zo_build_losses_bytes(const struct zo_build_options *options)
{
    return zo_round_up((uint64_t)options->micros *
                           (uint64_t)options->labels_max * sizeof(float),
                       ZO_ALIGN_BYTES);
}

const float *zo_measured_losses(const struct zo_measured *measured, int micro,
                                int device)
{
    return measured->losses +
           (uint64_t)device * zo_build_losses_bytes(measured->options) /
               sizeof(float) +
           micro * measured->options->labels_max;
}

static enum zo_status add_buffer(struct zo_build *build, const char *name,
                                 enum zo_purpose purpose, enum zo_tier tier,
                                 int device, int unit, uint64_t bytes,
                                 zo_buffer_id *id_out)
{
    const struct zo_buffer buffer = {
        .name = name,
        .purpose = purpose,
        .tier = tier,
        .device = device,
        .unit = unit,
        .schedule = -1,
        .bytes = bytes,
    };

    return zo_program_buffer(&build->program, &buffer, id_out);
}

static enum zo_status add_unit(struct zo_build *build, int u, int d)
{
    const struct zo_build_options *options = &build->options;
    const uint64_t elems = (uint64_t)options->units[u].elems;
    const uint64_t typed = elems * zo_dtype_bytes(options->type);
    const uint64_t moment = elems * zo_dtype_bytes(options->moment_type);
    struct zo_unit_buffers *unit = zo_build_unit(build, u, d);

    *unit = (struct zo_unit_buffers){ZO_NO_BUFFER, ZO_NO_BUFFER, ZO_NO_BUFFER,
                                     ZO_NO_BUFFER, ZO_NO_BUFFER, ZO_NO_BUFFER};
    ZO_TRY(add_buffer(build, "weights", ZO_PURPOSE_WEIGHTS, ZO_TIER_GPU, d, u,
                      typed, &unit->weights));
    if (options->evaluates_only) {
        return ZO_OK;
    }
    if (options->type == ZO_BF16) {
        ZO_TRY(add_buffer(build, "remainders", ZO_PURPOSE_MASTER, ZO_TIER_GPU,
                          d, u, 2 * elems, &unit->remainder));
    }
    if (options->type == ZO_F16) {
        ZO_TRY(add_buffer(build, "master weights", ZO_PURPOSE_MASTER,
                          ZO_TIER_GPU, d, u, 4 * elems, &unit->master));
    }
    ZO_TRY(add_buffer(build, "first moments", ZO_PURPOSE_EXP_AVG, ZO_TIER_GPU,
                      d, u, moment, &unit->exp_avg));
    ZO_TRY(add_buffer(build, "second moments", ZO_PURPOSE_EXP_AVG_SQ,
                      ZO_TIER_GPU, d, u, moment, &unit->exp_avg_sq));
    return add_buffer(build, "gradient", ZO_PURPOSE_GRADIENT, ZO_TIER_GPU, d, u,
                      typed, &unit->grad);
}

enum zo_status zo_build_add_device(struct zo_build *build, int d)
{
    const struct zo_build_options *options = &build->options;
    const uint64_t units = (uint64_t)options->unit_count;
    int64_t shard_max = 0;

    for (int u = 0; u < options->unit_count; u++) {
        shard_max = zo_max_i64(shard_max, options->units[u].shard_elems);
        ZO_TRY(add_unit(build, u, d));
    }
    ZO_TRY(add_buffer(build, "gradient norms", ZO_PURPOSE_CONTROL, ZO_TIER_GPU,
                      d, -1, units * sizeof(struct zo_norm_result),
                      &build->norms[d]));
    ZO_TRY(add_buffer(build, "losses", ZO_PURPOSE_CONTROL, ZO_TIER_GPU, d, -1,
                      zo_build_losses_bytes(options), &build->losses[d]));
    ZO_TRY(add_buffer(build, "bad weights", ZO_PURPOSE_CONTROL, ZO_TIER_GPU, d,
                      -1, units * sizeof(uint32_t), &build->bad[d]));
    ZO_TRY(add_buffer(build, "norm workspace", ZO_PURPOSE_WORKSPACE,
                      ZO_TIER_GPU, d, -1,
                      options->kernel_ops->square_norm_workspace(shard_max),
                      &build->norm_workspace[d]));
    return options->model_ops->prepare(options->model, &build->program, d);
}

static enum zo_status add_host_buffer(struct zo_build *build, const char *name,
                                      enum zo_purpose purpose, bool has_slots,
                                      uint64_t bytes, zo_buffer_id *id_out)
{
    const struct zo_buffer buffer = {
        .name = name,
        .purpose = purpose,
        .tier = ZO_TIER_CPU,
        .unit = -1,
        .schedule = -1,
        .bytes = bytes,
        .has_slots = has_slots,
    };

    return zo_program_buffer(&build->program, &buffer, id_out);
}

enum zo_status zo_build_add_host(struct zo_build *build)
{
    const struct zo_build_options *options = &build->options;
    const uint64_t devices = (uint64_t)options->device_count;
    const uint64_t units = (uint64_t)options->unit_count;
    const uint64_t parts = devices * (uint64_t)options->micros;

    ZO_TRY(add_host_buffer(build, "step record", ZO_PURPOSE_CONTROL, true,
                           sizeof(struct zo_step_record) +
                               parts * sizeof(struct zo_micro_counts),
                           &build->record));
    ZO_TRY(add_host_buffer(build, "control", ZO_PURPOSE_CONTROL, false,
                           sizeof(struct zo_control), &build->control));
    ZO_TRY(add_host_buffer(build, "step result", ZO_PURPOSE_CONTROL, true,
                           sizeof(struct zo_step_result), &build->result));
    ZO_TRY(add_host_buffer(build, "batch", ZO_PURPOSE_BATCH, true,
                           parts * options->batch_bytes, &build->batch_host));
    ZO_TRY(add_host_buffer(build, "gradient norms", ZO_PURPOSE_CONTROL, true,
                           devices * units * sizeof(struct zo_norm_result),
                           &build->norms_host));
    ZO_TRY(add_host_buffer(build, "losses", ZO_PURPOSE_CONTROL, true,
                           devices * zo_build_losses_bytes(options),
                           &build->losses_host));
    return add_host_buffer(build, "bad weights", ZO_PURPOSE_CONTROL, true,
                           devices * units * sizeof(uint32_t),
                           &build->bad_host);
}
