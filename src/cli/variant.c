#include "src/cli/variant.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/memory.h"

static const struct zo_stage_row rows[] = {
    {0, "none", "none", false, "none",
     "everything on every device: plain data parallelism"},
    {1, "none", "none", false, "none",
     "masters and moments split over the devices"},
    {1, "cpu", "none", false, "optimizer cpu",
     "masters and moments on the host, AdamW there"},
    {2, "none", "none", false, "none", "gradients split too"},
    {2, "cpu", "none", false, "optimizer cpu",
     "gradients split, masters and moments on the host"},
    {3, "none", "none", false, "none",
     "weights split too: each device holds its share of all"},
    {3, "cpu", "none", false, "optimizer cpu",
     "weights split on the devices, masters and moments on the host"},
    {3, "cpu", "cpu", false, "both cpu",
     "weights on the host too: they pass through, unit by unit"},
    {3, "nvme", "none", false, "optimizer nvme", "masters and moments on NVMe"},
    {3, "nvme", "nvme", false, "both nvme",
     "all states on NVMe: they pass through host memory"},
    {3, "cpu", "cpu", true, "planned",
     "the planner's choice: what fits a device may stay there"},
    {3, "nvme", "nvme", true, "planned, nvme",
     "the planner's choice: on NVMe is what the host lacks room for"},
};

const struct zo_stage_row *zo_stage_rows(size_t *count_out)
{
    *count_out = ZO_COUNT(rows);
    return rows;
}

bool zo_stage_row_uses_nvme(const struct zo_stage_row *row)
{
    return strcmp(row->optimizer, "nvme") == 0 ||
           strcmp(row->param, "nvme") == 0;
}

enum zo_status zo_variant_init(const struct zo_options *base,
                               struct zo_variant *variant_out)
{
    const char **sets = NULL;

    ZO_TRY(zo_alloc(base->set_count + ZO_VARIANT_SETS_MAX, sizeof(sets[0]),
                    "the keys of a variant", &sets));
    for (size_t i = 0; i < base->set_count; i++) {
        sets[i] = base->sets[i];
    }
    variant_out->options = *base;
    variant_out->sets = sets;
    variant_out->options.sets = sets;
    variant_out->own_count = 0;
    return ZO_OK;
}

void zo_variant_fini(struct zo_variant *variant)
{
    if (variant != NULL) {
        zo_free(variant->sets);
        variant->sets = NULL;
    }
}

enum zo_status zo_variant_set(struct zo_variant *variant, const char *format,
                              ...)
{
    char *own = variant->own[variant->own_count];
    va_list arguments;
    int length;

    ZO_ASSERT(variant->own_count < ZO_VARIANT_SETS_MAX);
    va_start(arguments, format);
    length = vsnprintf(own, ZO_VARIANT_SET_MAX, format, arguments);
    va_end(arguments);
    if (length < 0 || length >= ZO_VARIANT_SET_MAX) {
        return ZO_FAIL(ZO_E_USAGE, "--set %.40s...: want at most %d bytes", own,
                       ZO_VARIANT_SET_MAX - 1);
    }
    variant->own_count++;
    variant->sets[variant->options.set_count++] = own;
    return ZO_OK;
}

void zo_variant_devices(struct zo_variant *variant, int count)
{
    struct zo_options *options = &variant->options;

    if (options->device_count > 0) {
        options->device_count =
            count < options->device_count ? count : options->device_count;
    } else {
        options->num_devices = count;
    }
}

enum zo_status zo_variant_stage(struct zo_variant *variant,
                                const struct zo_stage_row *row)
{
    if (!zo_stage_row_uses_nvme(row)) {
        variant->options.nvme_path = NULL; /* of the base's memory */
        variant->options.nvme_bytes = 0;
        variant->options.given[ZO_OPTION_NVME / 64] &=
            ~(UINT64_C(1) << (ZO_OPTION_NVME % 64));
    }
    ZO_TRY(zo_variant_set(variant, "zero_optimization.stage=%d", row->stage));
    ZO_TRY(zo_variant_set(variant,
                          "zero_optimization.offload_optimizer.device=%s",
                          row->optimizer));
    ZO_TRY(zo_variant_set(variant, "zero_optimization.offload_param.device=%s",
                          row->param));
    return zo_variant_set(variant, "zero_offload.fill=%s",
                          row->fills ? "true" : "false");
}
