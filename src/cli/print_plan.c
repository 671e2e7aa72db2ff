/*
 * The plan, printed: every tier itemised, and its fullest moment.
 */
#include <inttypes.h>

#include "offload/planner.h"
#include "src/base/jsonl.h"
#include "src/base/text.h"
#include "src/cli/print_time.h"
#include "src/cli/setup.h"

static void print_line(FILE *file, const char *what, uint64_t bytes)
{
    char text[32];

    if (bytes > 0) {
        (void)fprintf(file, "    %-34s %12s\n", what,
                      zo_text_gib(text, sizeof(text), bytes));
    }
}

/* What a device holds beside its arena. */
struct own {
    uint64_t context_bytes, library_bytes;
};

static struct own own_of(const struct zo_trainer *trainer, int device)
{
    const uint64_t all = zo_trainer_own_bytes(trainer, device);
    const uint64_t context = zo_trainer_context_bytes(trainer, device);

    return (struct own){context, all - context};
}

static void print_arena(FILE *file, const char *name,
                        const struct zo_plan_arena *arena,
                        const struct own *own, uint64_t budget_bytes)
{
    const uint64_t own_bytes = own->context_bytes + own->library_bytes;
    char text[32];

    (void)fprintf(
        file, "  %s: %s", name,
        zo_text_gib(text, sizeof(text), arena->total_bytes + own_bytes));
    if (budget_bytes > 0) {
        (void)fprintf(file, " of %s",
                      zo_text_gib(text, sizeof(text), budget_bytes));
    }
    (void)fputc('\n', file);
    for (int p = 0; p < ZO_PURPOSES; p++) {
        print_line(file, zo_purpose_text((enum zo_purpose)p),
                   arena->purposes[p]);
    }
    print_line(file, "kernels and libraries", own->library_bytes);
    print_line(file, "context of the device", own->context_bytes);
    print_line(file, "gaps of the layout", arena->unused_bytes);
    if (arena->op != NULL) {
        (void)fprintf(file, "    fullest in the list \"%s\" at \"%s\"",
                      arena->schedule, arena->op);
        if (arena->unit >= 0) {
            (void)fprintf(file, " of unit %d", arena->unit);
        }
        (void)fputc('\n', file);
    }
}

static const char *kept_text(enum zo_keep keep)
{
    switch (keep) {
    case ZO_KEEP_ALL:
        return "everything is kept for backward";
    case ZO_KEEP_COSTLY:
        return "norms and activation functions are recomputed";
    case ZO_KEEP_INPUT:
        return "every layer is recomputed from its input";
    }
    return "";
}

void zo_cli_print_plan(FILE *file, const struct zo_setup *setup,
                       const struct zo_trainer *trainer)
{
    const struct zo_build *build = zo_trainer_build(trainer);
    const struct zo_machine *machine = &setup->devices.machine;
    const struct own none = {0, 0};
    struct zo_plan_arena arena;
    struct own own;

    (void)fprintf(file,
                  "plan: %" PRId64 " parameters in %d units, %s, %d device%s, "
                  "%d micro batch%s of at most %d tokens; %s\n",
                  setup->model.parameter_count, build->options.unit_count,
                  zo_dtype_name(build->options.type), machine->device_count,
                  machine->device_count == 1 ? "" : "s", build->options.micros,
                  build->options.micros == 1 ? "" : "es", setup->bounds.tokens,
                  kept_text(build->options.placement.keep));
    for (int d = 0; d < machine->device_count; d++) {
        zo_plan_arena(&build->program, ZO_TIER_GPU, d, &arena);
        own = own_of(trainer, d);
        print_arena(file, machine->device_ops->info(machine->devices[d])->name,
                    &arena, &own, setup->gpu_memory_bytes);
    }
    zo_plan_arena(&build->program, ZO_TIER_CPU, 0, &arena);
    print_arena(file, "host memory, pinned", &arena, &none,
                setup->host_memory_bytes);
}

static void write_arena(struct zo_jsonl *json, const char *name,
                        const struct zo_plan_arena *arena,
                        const struct own *own, uint64_t budget_bytes)
{
    const uint64_t own_bytes = own->context_bytes + own->library_bytes;

    zo_jsonl_object_begin(json, NULL);
    zo_jsonl_text(json, "name", name);
    zo_jsonl_uint(json, "total_bytes", arena->total_bytes + own_bytes);
    zo_jsonl_uint(json, "budget_bytes", budget_bytes);
    zo_jsonl_uint(json, "persistent_bytes", arena->persistent_bytes);
    zo_jsonl_uint(json, "own_bytes", own->library_bytes);
    zo_jsonl_uint(json, "context_bytes", own->context_bytes);
    zo_jsonl_uint(json, "unused_bytes", arena->unused_bytes);
    zo_jsonl_object_begin(json, "purposes");
    for (int p = 0; p < ZO_PURPOSES; p++) {
        zo_jsonl_uint(json, zo_purpose_text((enum zo_purpose)p),
                      arena->purposes[p]);
    }
    zo_jsonl_object_end(json);
    if (arena->op != NULL) {
        zo_jsonl_text(json, "fullest_list", arena->schedule);
        zo_jsonl_text(json, "fullest_operation", arena->op);
        zo_jsonl_int(json, "fullest_unit", arena->unit);
    }
    zo_jsonl_object_end(json);
}

enum zo_status zo_cli_print_plan_json(FILE *file, const struct zo_setup *setup,
                                      const struct zo_trainer *trainer,
                                      const struct zo_cli_time *time)
{
    const struct zo_build *build = zo_trainer_build(trainer);
    const struct zo_machine *machine = &setup->devices.machine;
    const struct own none = {0, 0};
    struct zo_plan_arena arena;
    struct zo_jsonl json;
    struct own own;
    char buffer[4096];

    zo_jsonl_init_file(&json, file, "standard output", buffer, sizeof(buffer));
    zo_jsonl_begin(&json);
    zo_jsonl_int(&json, "format", 1);
    zo_jsonl_int(&json, "parameters", setup->model.parameter_count);
    zo_jsonl_text(&json, "dtype", zo_dtype_name(build->options.type));
    zo_jsonl_int(&json, "micro_batches", build->options.micros);
    zo_jsonl_int(&json, "micro_batch_tokens", setup->bounds.tokens);
    zo_jsonl_text(&json, "recompute", kept_text(build->options.placement.keep));
    zo_jsonl_array_begin(&json, "devices");
    for (int d = 0; d < machine->device_count; d++) {
        zo_plan_arena(&build->program, ZO_TIER_GPU, d, &arena);
        own = own_of(trainer, d);
        write_arena(&json, machine->device_ops->info(machine->devices[d])->name,
                    &arena, &own, setup->gpu_memory_bytes);
    }
    zo_jsonl_array_end(&json);
    zo_jsonl_array_begin(&json, "host");
    zo_plan_arena(&build->program, ZO_TIER_CPU, 0, &arena);
    write_arena(&json, "pinned", &arena, &none, setup->host_memory_bytes);
    zo_jsonl_array_end(&json);
    if (time != NULL) {
        zo_cli_write_time(&json, "time", time);
    } else {
        zo_jsonl_null(&json, "time");
    }
    return zo_jsonl_end(&json);
}
