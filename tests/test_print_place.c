/*
 * The placement in words: what is resident, what was asked for, what filling
 * up saves; the numbers against those counted by hand.
 */
#include <stdlib.h>
#include <string.h>

#include "src/base/arith.h"
#include "src/cli/print_place.h"
#include "tests/tap.h"

enum { UNITS = 5 };

#define GIB   ((uint64_t)1 << 30)
#define ELEMS ((int64_t)1 << 30) /* of each unit: a GiB of bytes an element */

static const struct zo_unit units[UNITS] = {
    {.name = "embedding", .elems = ELEMS}, {.name = "layer 1", .elems = ELEMS},
    {.name = "layer 2", .elems = ELEMS},   {.name = "layer 3", .elems = ELEMS},
    {.name = "head", .elems = ELEMS},
};

static bool has_rows(void *model, int unit, struct zo_unit_rows *rows_out)
{
    (void)model;
    *rows_out = (struct zo_unit_rows){0};
    return unit == 0;
}

static const struct zo_model_ops model_ops = {.rows = has_rows};

static const struct zo_unit_homes resident = {ZO_TIER_GPU, ZO_TIER_GPU};
static const struct zo_unit_homes optimizer = {ZO_TIER_GPU, ZO_TIER_CPU};
static const struct zo_unit_homes both = {ZO_TIER_CPU, ZO_TIER_CPU};

/* All of it at once; the fields point at one another. */
struct sample {
    struct zo_unit_homes homes[UNITS];
    struct zo_build build;
    struct zo_place place;
    struct zo_cli_place cli;
};

static void set_homes(struct sample *sample, const char *letters)
{
    for (int u = 0; u < UNITS; u++) {
        sample->homes[u] = letters[u] == 'r'   ? resident
                           : letters[u] == 'o' ? optimizer
                                               : both;
    }
}

/* bf16, four micro batches in passes of two; all may be on the host. */
static void begin(struct sample *sample, const char *letters)
{
    memset(sample, 0, sizeof(*sample));
    set_homes(sample, letters);
    sample->build.options = (struct zo_build_options){
        .units = units,
        .unit_count = UNITS,
        .device_count = 1,
        .type = ZO_BF16,
        .moment_type = ZO_F32,
        .micros = 4,
        .model_ops = &model_ops,
        .placement = {.homes = sample->homes,
                      .pass_micros = 2,
                      .weight_ring = 3,
                      .gradient_ring = 2},
    };
    sample->place.literal_gpu_bytes = 7 * GIB;
    sample->cli = (struct zo_cli_place){
        .build = &sample->build,
        .place = &sample->place,
        .limits = {ZO_TIER_CPU, ZO_TIER_CPU},
        .is_asked = true,
        .fills = true,
        .device = "cuda:0",
        .own_bytes = GIB,
        .budget_bytes = 24 * GIB,
    };
}

static bool prints(const struct sample *sample,
                   void (*print)(FILE *file, const struct zo_cli_place *place),
                   const char *want)
{
    char *got = NULL;
    size_t got_bytes = 0;
    FILE *file = open_memstream(&got, &got_bytes);
    bool same;

    print(file, &sample->cli);
    (void)fclose(file);
    same = strcmp(got, want) == 0;
    if (!same) {
        (void)printf("# got  %s# want %s", got, want);
    }
    free(got);
    return same;
}

static void test_line(void)
{
    struct sample sample;

    begin(&sample, "hrrhh");
    /* Two layers: 12 bytes of states; 2 bytes each of the gradient and, in
     * two passes, four times of weights. */
    TAP_CHECK(
        prints(&sample, zo_cli_print_place,
               "placement: 2 of 5 units resident (layer 1 to layer 2)\n"
               "  asked for: everything on the host, 8.00 GiB of the 24.00 "
               "GiB on cuda:0\n  filling the rest saves 24.00 GiB of host "
               "memory and about 20.00 GiB of copies a step\n"));
    set_homes(&sample, "rhrhr");
    sample.cli.is_asked = false;
    sample.cli.budget_bytes = 0;
    /* Embedding 2, layer 10, head 6: its forward and backward are one. */
    TAP_CHECK(
        prints(&sample, zo_cli_print_place,
               "placement: 3 of 5 units resident (embedding, layer 2, "
               "head)\n  allowed: everything on the host, 8.00 GiB on "
               "cuda:0\n  filling the rest saves 36.00 GiB of host memory "
               "and about 18.00 GiB of copies a step\n"));
}

static void test_nothing_to_fill(void)
{
    struct sample sample;

    begin(&sample, "hhhhh");
    TAP_CHECK(
        prints(&sample, zo_cli_print_place,
               "placement: 0 of 5 units resident\n  asked for: everything "
               "on the host, 8.00 GiB of the 24.00 GiB on cuda:0; no room "
               "to fill up\n"));
    sample.cli.fills = false;
    TAP_CHECK(
        prints(&sample, zo_cli_print_place,
               "placement: 0 of 5 units resident\n  asked for: everything "
               "on the host, 8.00 GiB of the 24.00 GiB on cuda:0; "
               "zero_offload.fill is off\n"));
}

static void test_all_resident(void)
{
    struct sample sample;

    begin(&sample, "rrrrr");
    sample.cli.limits = (struct zo_place_limits){ZO_TIER_GPU, ZO_TIER_GPU};
    sample.cli.place = NULL;
    TAP_CHECK(prints(&sample, zo_cli_print_place,
                     "placement: all 5 units resident\n"));
    sample.build.options.placement.homes = NULL;
    TAP_CHECK(prints(&sample, zo_cli_print_place,
                     "placement: all 5 units resident\n"));
    TAP_CHECK(prints(&sample, zo_cli_print_rings,
                     "  4 micro batches in passes of 2\n"));
    sample.build.options.micros = sample.build.options.placement.pass_micros =
        1;
    TAP_CHECK(prints(&sample, zo_cli_print_rings, ""));
}

static void test_weights_stay(void)
{
    struct sample sample;

    /* Weights of three units moved up: 4 bytes are left of the layer's 10
     * and of the head's 6; the embedding's are renewed, where rows would do. */
    begin(&sample, "ohhoo");
    TAP_CHECK(
        prints(&sample, zo_cli_print_place,
               "placement: 0 of 5 units resident, weights of 3 more on "
               "the device\n  asked for: everything on the host, 8.00 GiB "
               "of the 24.00 GiB on cuda:0\n  filling the rest saves "
               "about 8.00 GiB of copies a step\n"));
    set_homes(&sample, "roooo");
    sample.cli.limits.weights = ZO_TIER_GPU;
    TAP_CHECK(
        prints(&sample, zo_cli_print_place,
               "placement: 1 of 5 units resident (embedding)\n  asked "
               "for: masters and moments on the host, 8.00 GiB of the "
               "24.00 GiB on cuda:0\n  filling the rest saves 12.00 GiB of "
               "host memory and about 4.00 GiB of copies a step\n"));
}

static void test_types(void)
{
    struct sample sample;

    begin(&sample, "rhhhh");
    sample.build.options.moment_type = ZO_BF16;
    TAP_CHECK(zo_cli_place_saved(&sample.cli).host_bytes == 8 * GIB);
    sample.build.options.moment_type = ZO_F32;
    sample.build.options.type = ZO_F16;
    TAP_CHECK(zo_cli_place_saved(&sample.cli).host_bytes == 12 * GIB);
    sample.build.options.placement.weight_copies = true;
    TAP_CHECK(zo_cli_place_saved(&sample.cli).host_bytes == 14 * GIB);
    /* No masters, no gradients: weights cross once. */
    begin(&sample, "hrhhh");
    sample.homes[1] = resident;
    sample.build.options.evaluates_only = true;
    sample.build.options.micros = sample.build.options.placement.pass_micros =
        1;
    sample.cli.limits.optimizer = ZO_TIER_GPU;
    TAP_CHECK(zo_cli_place_saved(&sample.cli).host_bytes == 2 * GIB);
    TAP_CHECK(zo_cli_place_saved(&sample.cli).copy_bytes == 2 * GIB);
}

static void test_rings(void)
{
    struct sample sample;
    struct zo_placement *placement = &sample.build.options.placement;

    begin(&sample, "hrrhh");
    TAP_CHECK(prints(&sample, zo_cli_print_rings,
                     "  4 micro batches in passes of 2\n"
                     "  ring of weights 3, of gradients 2; 3 gradients on the "
                     "host\n"));
    placement->host_boundaries = 1;
    placement->host_gradient_ring = 4;
    placement->own_gradients = 1;
    placement->waits_to_fetch = true;
    TAP_CHECK(prints(&sample, zo_cli_print_rings,
                     "  4 micro batches in passes of 2; outputs of 1 unit wait "
                     "on the host for backward\n"
                     "  ring of weights 3 (no prefetch), of gradients 2; 3 "
                     "gradients on the host, 2 in a ring of 4\n"));
    /* Gradients that wait for a decision share nothing. */
    placement->host_boundaries = 0;
    sample.build.options.decides = true;
    TAP_CHECK(prints(&sample, zo_cli_print_rings,
                     "  4 micro batches in passes of 2\n"
                     "  ring of weights 3 (no prefetch), of gradients 2; 3 "
                     "gradients on the host\n"));
    sample.build.options.decides = false;
    placement->own_gradients = 5;
    sample.build.options.micros = placement->pass_micros = 1;
    TAP_CHECK(prints(&sample, zo_cli_print_rings,
                     "  ring of weights 3 (no prefetch), of gradients 2; 3 "
                     "gradients on the host\n"));
    sample.build.options.evaluates_only = true;
    TAP_CHECK(prints(&sample, zo_cli_print_rings,
                     "  ring of weights 3 (no prefetch)\n"));
}

static void test_json(void)
{
    struct sample sample;
    struct zo_jsonl json;
    char buffer[1024], *got = NULL;
    size_t got_bytes = 0;
    FILE *file = open_memstream(&got, &got_bytes);

    begin(&sample, "hrrhh");
    zo_jsonl_init_file(&json, file, "memory", buffer, sizeof(buffer));
    zo_jsonl_begin(&json);
    zo_cli_write_place(&json, "placement", &sample.cli);
    TAP_CHECK(zo_jsonl_end(&json) == ZO_OK);
    (void)fclose(file);
    TAP_CHECK(strstr(got, "\"units\":5,\"resident_units\":2,") != NULL);
    TAP_CHECK(strstr(got, "\"literal_gpu_bytes\":8589934592,") != NULL);
    TAP_CHECK(strstr(got, "\"saved_copy_bytes\":21474836480,") != NULL);
    TAP_CHECK(strstr(got, "\"pass_micro_batches\":2,") != NULL);
    TAP_CHECK(strstr(got, "\"weight_ring\":3,\"gradient_ring\":2,") != NULL);
    free(got);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"what is resident, what it saves", test_line},
        {"no room, or no wish, to fill up", test_nothing_to_fill},
        {"everything resident", test_all_resident},
        {"weights on the device, the rest on the host", test_weights_stay},
        {"number types and evaluation", test_types},
        {"passes and rings", test_rings},
        {"as JSON", test_json},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
