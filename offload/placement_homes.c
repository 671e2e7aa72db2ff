#include "offload/placement_homes.h"

int zo_homes_unit_at(int i, int units)
{
    const int layers = units - 2;

    return i < layers ? i + 1 : (i == layers ? 0 : units - 1);
}

static enum zo_tier on_host(enum zo_tier limit)
{
    return limit == ZO_TIER_NVME ? ZO_TIER_CPU : limit;
}

static bool is_read_by_rows(const struct zo_build_options *build, int unit)
{
    struct zo_unit_rows rows;

    return build->model_ops->rows != NULL &&
           build->model_ops->rows(build->model, unit, &rows);
}

/* States go to NVMe: optimizers first, then weights, but for those of which
 * forward gathers rows; of each the units that forward needs last.  Returns how
 * many went. */
static int spill(const struct zo_place_options *options, int most,
                 struct zo_unit_homes *all)
{
    int spilled = 0;

    for (int weights = 0; weights < 2; weights++) {
        const enum zo_tier limit =
            weights == 1 ? options->weights_limit : options->optimizer_limit;

        for (int u = options->build->unit_count - 1; u >= 0; u--) {
            struct zo_unit_homes *homes = &all[u];
            enum zo_tier *home =
                weights == 1 ? &homes->weights : &homes->optimizer;

            if (limit == ZO_TIER_NVME && *home == ZO_TIER_CPU &&
                spilled < most &&
                (weights == 0 || !is_read_by_rows(options->build, u))) {
                *home = ZO_TIER_NVME;
                spilled++;
            }
        }
    }
    return spilled;
}

int zo_homes_set(const struct zo_place_options *options,
                 const struct zo_home_choice *choice,
                 struct zo_unit_homes *homes)
{
    const int units = options->build->unit_count;
    const struct zo_unit_homes away = {
        choice->keeps_weights ? ZO_TIER_GPU : on_host(options->weights_limit),
        on_host(options->optimizer_limit)};

    for (int i = 0; i < units; i++) {
        homes[zo_homes_unit_at(i, units)] =
            i < choice->resident
                ? (struct zo_unit_homes){ZO_TIER_GPU, ZO_TIER_GPU}
                : away;
    }
    return spill(options, choice->spilled, homes);
}

int zo_homes_fewest_resident(const struct zo_place_options *options)
{
    const struct zo_build_options *build = options->build;
    const int units = build->unit_count;
    double total = 0.0, left;
    int resident = 0;

    if (options->weights_limit == ZO_TIER_GPU &&
        options->optimizer_limit == ZO_TIER_GPU) {
        return units;
    }
    for (int u = 0; u < units; u++) {
        total += (double)build->units[u].elems;
    }
    left = total;
    while (resident < units && left > options->optimizer_share * total) {
        left -= (double)build->units[zo_homes_unit_at(resident++, units)].elems;
    }
    return resident;
}

uint64_t zo_homes_resident_bytes(const struct zo_build_options *build, int unit,
                                 bool has_weights)
{
    const uint64_t typed = zo_dtype_bytes(build->type);
    const uint64_t second = build->type == ZO_BF16  ? 2
                            : build->type == ZO_F16 ? 4
                                                    : 0;
    const uint64_t moments = build->moment_type == ZO_BF16 ? 4 : 8;
    const uint64_t gradient =
        build->decides || build->keeps_gradients ? typed : 0;
    const int stage = build->device_count > 1 ? build->stage : 0;
    const uint64_t elems = (uint64_t)build->units[unit].elems;
    const uint64_t shard = (uint64_t)build->units[unit].shard_elems;

    const uint64_t weights =
        has_weights ? 0 : typed * (stage == 3 ? shard : elems);

    if (build->evaluates_only) {
        return weights;
    }
    return weights + (second + moments) * (stage >= 1 ? shard : elems) +
           gradient * (stage >= 2 ? shard : elems);
}
