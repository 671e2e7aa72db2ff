#include "src/cli/print_place.h"

#include "src/base/arith.h"
#include "src/base/text.h"

/* ---- homes --------------------------------------------------------------- */

static struct zo_unit_homes homes_of(const struct zo_build_options *build,
                                     int unit)
{
    static const struct zo_unit_homes resident = {ZO_TIER_GPU, ZO_TIER_GPU};

    return build->placement.homes == NULL ? resident
                                          : build->placement.homes[unit];
}

static bool is_resident(const struct zo_build_options *build, int unit)
{
    const struct zo_unit_homes homes = homes_of(build, unit);

    return homes.weights == ZO_TIER_GPU && homes.optimizer == ZO_TIER_GPU;
}

static bool keeps_weights(const struct zo_build_options *build, int unit)
{
    return homes_of(build, unit).weights == ZO_TIER_GPU &&
           !is_resident(build, unit);
}

static bool has_optimizer_on_nvme(const struct zo_build_options *build,
                                  int unit)
{
    return !build->evaluates_only &&
           homes_of(build, unit).optimizer == ZO_TIER_NVME;
}

static bool has_weights_on_nvme(const struct zo_build_options *build, int unit)
{
    return homes_of(build, unit).weights == ZO_TIER_NVME;
}

static int count_units(const struct zo_build_options *build,
                       bool (*is_such)(const struct zo_build_options *build,
                                       int unit))
{
    int count = 0;

    for (int u = 0; u < build->unit_count; u++) {
        count += is_such(build, u) ? 1 : 0;
    }
    return count;
}

/* ---- what filling up saves ----------------------------------------------- */

/* Bytes of a unit over the bus in a step, with those homes. */
static uint64_t copy_bytes(const struct zo_build_options *build, int unit,
                           const struct zo_unit_homes *homes)
{
    const uint64_t bytes =
        (uint64_t)build->units[unit].elems * zo_dtype_bytes(build->type);
    const bool offloads =
        !build->evaluates_only && homes->optimizer != ZO_TIER_GPU;
    const int passes =
        (int)zo_div_ceil(build->micros, build->placement.pass_micros);
    struct zo_unit_rows rows;
    uint64_t times = offloads ? 1 : 0; /* the gradient */

    if (homes->weights == ZO_TIER_GPU) {
        return bytes * (offloads ? times + 1 : times); /* renewed once */
    }
    if (build->model_ops != NULL && build->model_ops->rows != NULL &&
        build->model_ops->rows(build->model, unit, &rows)) {
        return bytes * times; /* and the rows of the batch */
    }
    times += (uint64_t)passes *
             (build->evaluates_only || unit == build->unit_count - 1 ? 1 : 2);
    return bytes * times;
}

/* Bytes of a unit's states off the device, with those homes: on the host, or
 * on NVMe. */
static uint64_t away_bytes(const struct zo_build_options *build, int unit,
                           const struct zo_unit_homes *homes, bool on_nvme)
{
    const uint64_t elems = (uint64_t)build->units[unit].elems;
    const bool offloads =
        !build->evaluates_only && homes->optimizer != ZO_TIER_GPU;
    const bool spills = offloads && (homes->optimizer == ZO_TIER_NVME ||
                                     homes->weights == ZO_TIER_NVME);
    const bool has_copy = build->type == ZO_F16 && offloads &&
                          (build->placement.weight_copies || spills);
    /* A copy aside, weights are a part of their masters: bf16 half, fp32 all,
     * fp16 none. */
    const uint64_t typed = build->type != ZO_F16 || has_copy || !offloads
                               ? zo_dtype_bytes(build->type)
                               : 0;
    const uint64_t rest = (build->type == ZO_BF16  ? 2
                           : build->type == ZO_F16 ? 4
                                                   : 0) +
                          2 * zo_dtype_bytes(build->moment_type);
    uint64_t bytes = 0;

    if ((offloads || homes->weights != ZO_TIER_GPU) &&
        (homes->weights == ZO_TIER_NVME) == on_nvme) {
        bytes += typed;
    }
    if (offloads && (homes->optimizer == ZO_TIER_NVME) == on_nvme) {
        bytes += rest;
    }
    return elems * bytes;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

struct zo_cli_saved zo_cli_place_saved(const struct zo_cli_place *place)
{
    const struct zo_build_options *build = &place->build->options;
    const struct zo_unit_homes literal = {place->limits.weights,
                                          place->limits.optimizer};
    struct zo_cli_saved saved = {0, 0, 0};

    for (int u = 0; u < build->unit_count; u++) {
        const struct zo_unit_homes homes = homes_of(build, u);

        saved.host_bytes += less(away_bytes(build, u, &literal, false),
                                 away_bytes(build, u, &homes, false));
        saved.nvme_bytes += less(away_bytes(build, u, &literal, true),
                                 away_bytes(build, u, &homes, true));
        saved.copy_bytes +=
            less(copy_bytes(build, u, &literal), copy_bytes(build, u, &homes));
    }
    return saved;
}

/* ---- the line ------------------------------------------------------------ */

/* "7 of 30 units resident (layer 1 to layer 6, head)" */
static void print_units(FILE *file, const struct zo_build_options *build)
{
    const int resident = count_units(build, is_resident);
    const char *before = " (";

    if (resident == build->unit_count) {
        (void)fprintf(file, "all %d units resident", resident);
        return;
    }
    (void)fprintf(file, "%d of %d units resident", resident, build->unit_count);
    for (int u = 0; u < build->unit_count; u++) {
        int last = u;

        if (!is_resident(build, u)) {
            continue;
        }
        while (last + 1 < build->unit_count && is_resident(build, last + 1)) {
            last++;
        }
        (void)fprintf(file, "%s%s", before, build->units[u].name);
        if (last > u) {
            (void)fprintf(file, " to %s", build->units[last].name);
        }
        before = ", ";
        u = last;
    }
    (void)fputs(resident > 0 ? ")" : "", file);
}

static const char *literal_text(const struct zo_cli_place *place)
{
    if (place->limits.weights == ZO_TIER_NVME) {
        return place->limits.optimizer == ZO_TIER_NVME ? "everything on NVMe"
                                                       : "weights on NVMe";
    }
    if (place->limits.optimizer == ZO_TIER_NVME) {
        return "masters and moments on NVMe";
    }
    if (place->limits.weights == ZO_TIER_GPU) {
        return "masters and moments on the host";
    }
    return place->limits.optimizer == ZO_TIER_GPU ? "weights on the host"
                                                  : "everything on the host";
}

static void print_literal(FILE *file, const struct zo_cli_place *place)
{
    char text[32];

    (void)fprintf(file, "\n  %s: %s", place->is_asked ? "asked for" : "allowed",
                  literal_text(place));
    if (place->place == NULL || place->place->literal_gpu_bytes == 0) {
        return;
    }
    (void)fprintf(
        file, ", %s",
        zo_text_gib(text, sizeof(text),
                    place->place->literal_gpu_bytes + place->own_bytes));
    if (place->budget_bytes > 0) {
        (void)fprintf(file, " of the %s",
                      zo_text_gib(text, sizeof(text), place->budget_bytes));
    }
    (void)fprintf(file, " on %s", place->device);
}

static void print_saved(FILE *file, const struct zo_cli_place *place)
{
    const struct zo_cli_saved saved = zo_cli_place_saved(place);
    char text[32];

    if (!place->fills) {
        (void)fputs("; zero_offload.fill is off", file);
    } else if (saved.host_bytes == 0 && saved.copy_bytes == 0 &&
               saved.nvme_bytes == 0) {
        (void)fputs("; no room to fill up", file);
    } else {
        (void)fputs("\n  filling the rest saves ", file);
        if (saved.nvme_bytes > 0) {
            (void)fprintf(file, "%s of NVMe and ",
                          zo_text_gib(text, sizeof(text), saved.nvme_bytes));
        }
        if (saved.host_bytes > 0) {
            (void)fprintf(file, "%s of host memory and ",
                          zo_text_gib(text, sizeof(text), saved.host_bytes));
        }
        (void)fprintf(file, "about %s of copies a step",
                      zo_text_gib(text, sizeof(text), saved.copy_bytes));
    }
}

static void print_spilled(FILE *file, const struct zo_build_options *build)
{
    const int optimizers = count_units(build, has_optimizer_on_nvme);
    const int weights = count_units(build, has_weights_on_nvme);

    if (optimizers > 0) {
        (void)fprintf(file, ", masters and moments of %d on NVMe", optimizers);
    }
    if (weights > 0) {
        (void)fprintf(file, ", weights of %d on NVMe", weights);
    }
}

void zo_cli_print_place(FILE *file, const struct zo_cli_place *place)
{
    const struct zo_build_options *build = &place->build->options;
    const int kept = count_units(build, keeps_weights);

    (void)fputs("placement: ", file);
    print_units(file, build);
    if (kept > 0 && place->limits.weights != ZO_TIER_GPU) {
        (void)fprintf(file, ", weights of %d more on the device", kept);
    }
    print_spilled(file, build);
    if (place->limits.weights != ZO_TIER_GPU ||
        place->limits.optimizer != ZO_TIER_GPU) {
        print_literal(file, place);
        print_saved(file, place);
    }
    (void)fputc('\n', file);
}

/* ---- passes and rings ---------------------------------------------------- */

static bool offloads(const struct zo_build_options *build, int unit)
{
    return !build->evaluates_only &&
           homes_of(build, unit).optimizer != ZO_TIER_GPU;
}

/* The first of them have buffers of their own, others share a ring. */
static void print_host_gradients(FILE *file,
                                 const struct zo_build_options *build)
{
    const struct zo_placement *p = &build->placement;
    const int units = count_units(build, offloads);

    if (units == 0) {
        return;
    }
    if (p->host_gradient_ring == 0 || p->own_gradients >= units ||
        build->decides || build->keeps_gradients) {
        (void)fprintf(file, "; %d gradient%s on the host", units,
                      zo_text_s((uint64_t)units));
    } else {
        (void)fprintf(file, "; %d gradient%s on the host, %d in a ring of %d",
                      units, zo_text_s((uint64_t)units),
                      units - p->own_gradients, p->host_gradient_ring);
    }
}

void zo_cli_print_rings(FILE *file, const struct zo_cli_place *place)
{
    const struct zo_build_options *build = &place->build->options;
    const struct zo_placement *p = &build->placement;

    if (build->micros > 1 || p->host_boundaries > 0) {
        (void)fprintf(file, "  %d micro batch%s in passes of %d", build->micros,
                      build->micros == 1 ? "" : "es", p->pass_micros);
        if (p->host_boundaries > 0) {
            (void)fprintf(file,
                          "; outputs of %d unit%s wait on the host for "
                          "backward",
                          p->host_boundaries,
                          p->host_boundaries == 1 ? "" : "s");
        }
        (void)fputc('\n', file);
    }
    if (count_units(build, is_resident) == build->unit_count) {
        return;
    }
    (void)fprintf(file, "  ring of weights %d%s", p->weight_ring,
                  p->waits_to_fetch ? " (no prefetch)" : "");
    if (!build->evaluates_only) {
        (void)fprintf(file, ", of gradients %d", p->gradient_ring);
    }
    print_host_gradients(file, build);
    (void)fputc('\n', file);
}

void zo_cli_write_place(struct zo_jsonl *json, const char *key,
                        const struct zo_cli_place *place)
{
    const struct zo_build_options *build = &place->build->options;
    const struct zo_placement *p = &build->placement;
    const struct zo_cli_saved saved = zo_cli_place_saved(place);

    zo_jsonl_object_begin(json, key);
    zo_jsonl_int(json, "units", build->unit_count);
    zo_jsonl_int(json, "resident_units", count_units(build, is_resident));
    zo_jsonl_int(json, "weights_on_device_units",
                 count_units(build, keeps_weights));
    zo_jsonl_bool(json, "weights_may_leave",
                  place->limits.weights != ZO_TIER_GPU);
    zo_jsonl_bool(json, "optimizer_may_leave",
                  place->limits.optimizer != ZO_TIER_GPU);
    zo_jsonl_bool(json, "fill", place->fills);
    if (place->place != NULL) {
        zo_jsonl_uint(json, "literal_gpu_bytes",
                      place->place->literal_gpu_bytes + place->own_bytes);
        zo_jsonl_int(json, "tried", place->place->tried);
    }
    zo_jsonl_int(json, "optimizer_on_nvme_units",
                 count_units(build, has_optimizer_on_nvme));
    zo_jsonl_int(json, "weights_on_nvme_units",
                 count_units(build, has_weights_on_nvme));
    zo_jsonl_uint(json, "saved_host_bytes", saved.host_bytes);
    zo_jsonl_uint(json, "saved_nvme_bytes", saved.nvme_bytes);
    zo_jsonl_uint(json, "saved_copy_bytes", saved.copy_bytes);
    zo_jsonl_int(json, "pass_micro_batches", p->pass_micros);
    zo_jsonl_int(json, "host_boundaries", p->host_boundaries);
    zo_jsonl_int(json, "weight_ring", p->weight_ring);
    zo_jsonl_int(json, "gradient_ring", p->gradient_ring);
    zo_jsonl_int(json, "host_gradient_ring", p->host_gradient_ring);
    zo_jsonl_int(json, "own_gradients", p->own_gradients);
    zo_jsonl_bool(json, "prefetch", !p->waits_to_fetch);
    zo_jsonl_object_end(json);
}
