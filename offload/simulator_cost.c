/*
 * What an operation takes, from its accesses and the machine's rates.
 */
#include "offload/simulator_internal.h"
#include "src/base/memory.h"

/* Bytes of an operation's accesses. */
struct touched {
    double device, host; /* read plus written */
    double moved;        /* written, as the executor counts copies */
    double nvme_read, nvme_written;
    double received; /* written on the device that most is written on */
};

static struct touched touched_by(const struct zo_program *program,
                                 const struct zo_schedule *list,
                                 const struct zo_op *op)
{
    double written[ZO_DEVICES_MAX] = {0};
    struct touched sum = {0};

    for (uint32_t a = 0; a < op->access_count; a++) {
        const struct zo_access *access = &list->accesses[op->access_first + a];
        const struct zo_buffer *buffer = &program->buffers[access->buffer];
        const double bytes = (double)access->bytes;
        const double read = (access->mode & ZO_READ) != 0 ? bytes : 0.0;
        const double write = (access->mode & ZO_WRITE) != 0 ? bytes : 0.0;

        sum.moved += write;
        switch (buffer->tier) {
        case ZO_TIER_GPU:
            sum.device += read + write;
            written[buffer->device] += write;
            if (written[buffer->device] > sum.received) {
                sum.received = written[buffer->device];
            }
            break;
        case ZO_TIER_CPU:
        case ZO_TIER_PAGEABLE:
        case ZO_TIER_COPY:
            sum.host += read + write;
            break;
        case ZO_TIER_NVME:
            sum.nvme_read += read;
            sum.nvme_written += write;
            break;
        case ZO_TIERS:
            break;
        }
    }
    return sum;
}

/* amount / rate; a rate that is needed and unknown is told. */
static enum zo_status divide(const struct zo_sim_options *options,
                             const struct zo_op *op, double amount, double rate,
                             const char *what, double *seconds_inout)
{
    if (amount > 0.0 && !(rate > 0.0)) {
        return ZO_FAIL(ZO_E_ARG,
                       "the machine profile \"%s\" has no rate of %s, which "
                       "\"%s\" needs",
                       options->profile->name, what, op->name);
    }
    if (amount > 0.0) {
        *seconds_inout += amount / rate;
    }
    return ZO_OK;
}

static const char *product_text(enum zo_dtype type)
{
    switch (type) {
    case ZO_F32:
        return "fp32 products";
    case ZO_BF16:
        return "bf16 products";
    case ZO_F16:
        return "fp16 products";
    }
    return "products";
}

static enum zo_status compute_cost(const struct zo_sim_options *options,
                                   const struct zo_op *op,
                                   const struct touched *touched,
                                   struct zo_sim_cost *cost)
{
    const struct zo_profile *profile = options->profile;
    const double matrix = profile->matrix_flops[options->type];
    const double bandwidth =
        profile->device_bandwidth > 0.0 || !profile->is_host
            ? profile->device_bandwidth
            : zo_profile_dram(profile);
    const double attention =
        profile->attention_flops > 0.0 ? profile->attention_flops : matrix;
    double memory_seconds = 0.0;

    ZO_TRY(divide(options, op, op->flops, matrix, product_text(options->type),
                  &cost->seconds));
    ZO_TRY(divide(options, op, op->attention_flops, attention,
                  profile->attention_flops > 0.0 ? "attention"
                                                 : product_text(options->type),
                  &cost->seconds));
    ZO_TRY(divide(options, op, touched->device, bandwidth, "device memory",
                  &memory_seconds));
    if (memory_seconds > cost->seconds) {
        cost->seconds = memory_seconds;
    }
    cost->bytes = touched->device;
    cost->lead_seconds = profile->launch_seconds;
    cost->dram_bytes = profile->is_host ? touched->device : 0.0;
    return ZO_OK;
}

static enum zo_status copy_cost(const struct zo_sim_options *options,
                                const struct zo_op *op,
                                const struct touched *touched,
                                struct zo_sim_cost *cost)
{
    const struct zo_profile *profile = options->profile;
    const bool is_h2d = op->engine == ZO_ENGINE_H2D;

    cost->bytes = touched->moved;
    cost->lead_seconds = profile->launch_seconds;
    cost->dram_bytes = profile->is_host ? 2.0 * cost->bytes : cost->bytes;
    return divide(options, op, cost->bytes,
                  is_h2d ? profile->h2d : profile->d2h,
                  is_h2d ? "copies to the device" : "copies from the device",
                  &cost->seconds);
}

double zo_sim_thread_rate(const struct zo_profile *profile)
{
    const double share =
        profile->cpu / (profile->threads > 0 ? profile->threads : 1);

    return profile->cpu_thread > 0.0 && profile->cpu_thread < profile->cpu
               ? profile->cpu_thread
           : profile->cpu_thread > 0.0 ? profile->cpu
                                       : share;
}

static enum zo_status cpu_cost(const struct zo_sim_options *options,
                               const struct zo_op *op,
                               const struct touched *touched, int workers,
                               struct zo_sim_cost *cost)
{
    const struct zo_profile *profile = options->profile;
    const int wide = cost->parts < workers ? cost->parts : workers;
    const double thread = zo_sim_thread_rate(profile);
    const double together =
        wide * thread < profile->cpu ? wide * thread : profile->cpu;
    double piece_seconds = profile->cpu_seconds;

    cost->bytes = cost->dram_bytes = touched->host;
    cost->piece_bytes = cost->bytes / cost->parts;
    cost->lead_seconds = profile->cpu_seconds;
    ZO_TRY(divide(options, op, cost->bytes, together, "work on the processor",
                  &cost->alone_seconds));
    ZO_TRY(divide(options, op, cost->piece_bytes, thread, "one thread",
                  &piece_seconds));
    if (piece_seconds > cost->alone_seconds) {
        cost->alone_seconds = piece_seconds;
    }
    return ZO_OK;
}

static enum zo_status nvme_cost(const struct zo_sim_options *options,
                                const struct zo_op *op,
                                const struct touched *touched,
                                struct zo_sim_cost *cost)
{
    cost->bytes = touched->nvme_read + touched->nvme_written;
    cost->dram_bytes = cost->bytes;
    ZO_TRY(divide(options, op, touched->nvme_read, options->profile->nvme_read,
                  "reads from NVMe", &cost->seconds));
    return divide(options, op, touched->nvme_written,
                  options->profile->nvme_write, "writes to NVMe",
                  &cost->seconds);
}

static enum zo_status cost_of(const struct zo_sim_options *options,
                              const struct zo_schedule *list,
                              const struct zo_op *op, int workers,
                              struct zo_sim_cost *cost)
{
    const struct touched touched = touched_by(options->program, list, op);

    cost->parts = op->engine == ZO_ENGINE_CPU && op->parts > 1 ? op->parts : 1;
    switch (op->engine) {
    case ZO_ENGINE_COMPUTE:
        ZO_TRY(compute_cost(options, op, &touched, cost));
        break;
    case ZO_ENGINE_H2D:
    case ZO_ENGINE_D2H:
        ZO_TRY(copy_cost(options, op, &touched, cost));
        break;
    case ZO_ENGINE_COLLECTIVE:
        cost->bytes = touched.received;
        cost->lead_seconds = options->profile->launch_seconds;
        cost->dram_bytes = options->profile->is_host ? touched.device : 0.0;
        ZO_TRY(divide(options, op, cost->bytes, options->profile->collective,
                      "collectives", &cost->seconds));
        break;
    case ZO_ENGINE_CPU:
        return cpu_cost(options, op, &touched, workers, cost);
    case ZO_ENGINE_NVME:
        ZO_TRY(nvme_cost(options, op, &touched, cost));
        break;
    case ZO_ENGINES:
        break;
    }
    cost->alone_seconds = cost->lead_seconds + cost->seconds;
    return ZO_OK;
}

enum zo_status zo_sim_costs(struct zo_sim *sim)
{
    const struct zo_program *program = sim->options->program;

    for (size_t i = 0; i < sim->item_count; i++) {
        const int s = sim->items[i].schedule;
        const struct zo_schedule *list = &program->schedules[s];

        if (sim->costs[s] != NULL) {
            continue;
        }
        ZO_TRY(zo_alloc(list->op_count, sizeof(sim->costs[s][0]),
                        "the simulator", &sim->costs[s]));
        for (size_t i_op = 0; i_op < list->op_count; i_op++) {
            ZO_TRY(cost_of(sim->options, list, &list->ops[i_op], sim->workers,
                           &sim->costs[s][i_op]));
        }
    }
    return ZO_OK;
}
