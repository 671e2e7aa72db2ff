/*
 * More memory never hurts: a larger budget of a device, of the host or of NVMe
 * is predicted no slower a step than a smaller one, but for the 1 % that the
 * choice gives away to spare the host, and refuses nothing that a smaller one
 * accepts.  ChatGLM2-6B and its first four layers by data-sheet rates: nothing
 * is allocated, all of it is planning.
 */
#include <math.h>
#include <stdlib.h>

#include "config/model_config.h"
#include "kernels/kernels.h"
#include "offload/placement.h"
#include "src/base/arith.h"
#include "src/model/glm.h"
#include "tests/tap.h"

#define GIB    1073741824.0
#define GIVEN  1.0102 /* 1 / 0.99, and what simulations differ by */
#define SPARED 1.1112 /* 1 / 0.9, where that leaves NVMe alone */
#define ROWS   8
#define TOKENS 512
#define LONGER 8 /* times as many budgets with ZERO_OFFLOAD_LONG */

/* What is planned, and with which budgets; those that change go from the first
 * of the two to the second. */
struct sweep {
    int layers, micros;
    enum zo_dtype type;
    bool clips, may_spill;
    const char *machine;
    int budgets; /* how many */
    double gpu[2], host[2], nvme[2];
};

/* A model, and what a placement of it may be. */
struct plan {
    struct zo_model_config config;
    struct zo_glm *glm;
    struct zo_build_options build;
    struct zo_place_options options;
};

static bool open_plan(const struct sweep *sweep, struct plan *plan)
{
    const struct zo_glm_options options = {
        .config = &plan->config,
        .type = sweep->type,
        .device_count = 1,
        .micros = sweep->micros,
        .tokens_max = ROWS * TOKENS,
        .rows_max = ROWS,
        .labels_max = ROWS * (TOKENS - 1),
        .positions_max = TOKENS,
        .kernel_ops = &zo_kernels_host,
    };
    const enum zo_tier limit = sweep->may_spill ? ZO_TIER_NVME : ZO_TIER_CPU;

    *plan = (struct plan){.glm = NULL};
    if (!zo_model_preset("chatglm2-6b", &plan->config)) {
        return false;
    }
    zo_model_config_cut(&plan->config, sweep->layers);
    if (zo_glm_open(&options, &plan->glm) != ZO_OK) {
        return false;
    }
    plan->build = (struct zo_build_options){
        .device_count = 1,
        .type = sweep->type,
        .comm_type = sweep->type,
        .micros = sweep->micros,
        .stage = 3,
        .decides = sweep->clips || sweep->type == ZO_F16,
        .tokens_max = options.tokens_max,
        .labels_max = options.labels_max,
        .boundary_bytes = (uint64_t)options.tokens_max *
                          (uint64_t)plan->config.hidden_size *
                          zo_dtype_bytes(sweep->type),
        .batch_bytes =
            zo_glm_batch_layout(options.tokens_max, ROWS, options.labels_max)
                .bytes,
        .kernel_ops = &zo_kernels_host,
        .model_ops = &zo_glm_ops,
        .model = plan->glm,
    };
    plan->build.units = zo_glm_units(plan->glm, &plan->build.unit_count);
    plan->options = (struct zo_place_options){
        .build = &plan->build,
        .weights_limit = limit,
        .optimizer_limit = limit,
        .fills = true,
        .optimizer_share = 1.0,
        .keep_most = ZO_KEEP_ALL,
        .keep_least = ZO_KEEP_INPUT,
        .weight_ring_max = ZO_RING_MAX,
        .profile = zo_profile_find(sweep->machine),
        .cpu_workers = 16,
    };
    return plan->options.profile != NULL;
}

static uint64_t between(const double gib[2], int i, int count)
{
    const double last = count > 1 ? count - 1 : 1;

    return (uint64_t)((gib[0] + (gib[1] - gib[0]) * i / last) * GIB);
}

/* Seconds of a step; INFINITY: nothing fits. */
static double seconds_of(const struct zo_place_options *options)
{
    struct zo_place place = {0};
    const enum zo_status status = zo_place_choose(options, &place);
    const double seconds = place.step_seconds;

    zo_place_fini(&place);
    if (status != ZO_OK && status != ZO_E_FIT) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    return status == ZO_OK ? seconds : INFINITY;
}

static void check_sweep(const struct sweep *sweep)
{
    const int more = getenv("ZERO_OFFLOAD_LONG") != NULL ? LONGER : 1;
    const int count = sweep->budgets * more;
    double fastest = INFINITY;
    int fitted = 0;
    struct plan plan;

    if (!open_plan(sweep, &plan)) {
        tap_fail(__FILE__, __LINE__, "no plan: %s", zo_err_last()->text);
        return;
    }
    for (int i = 0; i < count; i++) {
        double seconds;

        plan.options.gpu_bytes = between(sweep->gpu, i, count);
        plan.options.host_bytes = between(sweep->host, i, count);
        plan.options.nvme_bytes = between(sweep->nvme, i, count);
        seconds = seconds_of(&plan.options);
        if (seconds > (sweep->may_spill ? SPARED : GIVEN) * fastest) {
            tap_fail(__FILE__, __LINE__,
                     "%d layers, %d micro batches, %s%s, %s: %.2f GiB of a "
                     "device, %.2f of the host, %.2f of NVMe: %f s, and less "
                     "of it %f s",
                     sweep->layers, sweep->micros, zo_dtype_name(sweep->type),
                     sweep->clips ? ", clipping" : "", sweep->machine,
                     (double)plan.options.gpu_bytes / GIB,
                     (double)plan.options.host_bytes / GIB,
                     (double)plan.options.nvme_bytes / GIB, seconds, fastest);
        }
        fastest = fmin(fastest, seconds);
        fitted += isfinite(seconds) ? 1 : 0;
    }
    zo_glm_close(plan.glm);
    TAP_CHECK(fitted >= 2); /* else nothing was compared */
}

static void check_sweeps(const struct sweep *sweeps, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        check_sweep(&sweeps[i]);
    }
}

/* Budgets of a device; of the host beside one; of NVMe beside both. */
#define GPU(least, most)   \
    {least, most}, {0, 0}, \
    {                      \
        0, 0               \
    }
#define HOST(gpu, least, most) \
    {gpu, gpu}, {least, most}, \
    {                          \
        0, 0                   \
    }
#define NVME(gpu, host, least, most) \
    {gpu, gpu}, {host, host},        \
    {                                \
        least, most                  \
    }

static void test_devices(void)
{
    static const struct sweep sweeps[] = {
        {4, 1, ZO_BF16, false, false, "h200", 20, GPU(2, 26)},
        {4, 1, ZO_BF16, true, false, "4090", 20, GPU(2, 26)},
        {4, 4, ZO_BF16, false, false, "h200", 12, GPU(2, 26)},
        {4, 4, ZO_BF16, false, false, "4090", 12, GPU(2, 26)},
        {4, 4, ZO_BF16, true, false, "h200", 12, GPU(2, 26)},
        {4, 1, ZO_F16, false, false, "h200", 20, GPU(2, 30)},
        {4, 4, ZO_F16, false, false, "4090", 8, GPU(2, 30)},
        {4, 3, ZO_BF16, false, false, "4090", 12, {2, 26}, {12, 12}, {0, 0}},
        {4, 2, ZO_BF16, false, true, "h200", 12, {2, 26}, {8, 8}, {8, 8}},
    };

    check_sweeps(sweeps, ZO_COUNT(sweeps));
}

static void test_host(void)
{
    static const struct sweep sweeps[] = {
        {4, 1, ZO_BF16, false, false, "h200", 30, HOST(6, 2, 20)},
        {4, 4, ZO_BF16, false, false, "4090", 10, HOST(4, 2, 20)},
        {4, 1, ZO_BF16, true, false, "4090", 30, HOST(6, 2, 24)},
        {4, 4, ZO_F16, false, false, "h200", 10, HOST(6, 2, 24)},
        {4, 1, ZO_BF16, false, true, "h200", 30, HOST(4, 1, 20)},
        {4, 4, ZO_F16, false, true, "4090", 12, HOST(4, 1, 20)},
    };

    check_sweeps(sweeps, ZO_COUNT(sweeps));
}

static void test_nvme(void)
{
    static const struct sweep sweeps[] = {
        {4, 1, ZO_BF16, false, true, "h200", 20, NVME(4, 6, 0.5, 16)},
        {4, 4, ZO_BF16, true, true, "4090", 10, NVME(4, 8, 0.5, 16)},
    };

    check_sweeps(sweeps, ZO_COUNT(sweeps));
}

static void test_whole_model(void)
{
    static const struct sweep sweeps[] = {
        {28, 1, ZO_BF16, false, false, "h200", 6, GPU(4, 90)},
        {28, 1, ZO_BF16, false, false, "4090", 10, GPU(50, 90)},
        {28, 1, ZO_F16, false, false, "4090", 5, GPU(50, 100)},
        {28, 1, ZO_BF16, false, false, "h200", 6, HOST(24, 44, 90)},
        {28, 1, ZO_BF16, false, true, "h200", 4, HOST(24, 30, 80)},
        {28, 4, ZO_BF16, false, false, "h200", 2, GPU(90, 96)},
        {28, 4, ZO_BF16, true, false, "4090", 2, GPU(24, 80)},
    };

    check_sweeps(sweeps, ZO_COUNT(sweeps));
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a larger device is never slower", test_devices},
        {"more of the host's memory is never slower", test_host},
        {"more of NVMe is never slower", test_nvme},
        {"nor is any of it for the whole model", test_whole_model},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
