/*
 * The plan, printed: every tier itemised, and its fullest moment.
 */
#include <inttypes.h>
#include <string.h>

#include "offload/planner.h"
#include "src/base/jsonl.h"
#include "src/base/system.h"
#include "src/base/text.h"
#include "src/cli/gains.h"
#include "src/cli/plan_table.h"
#include "src/cli/print_place.h"
#include "src/cli/print_save.h"
#include "src/cli/print_time.h"
#include "src/cli/print_units.h"
#include "src/cli/setup.h"

#define FACTORS_COLUMNS 33
#define FACTORS_BYTES   512

static void print_value(FILE *file, const char *what, uint64_t bytes)
{
    char text[32];

    (void)fprintf(file, "    %-26s %12s", what,
                  zo_text_gib(text, sizeof(text), bytes));
}

static void print_line(FILE *file, const char *what, uint64_t bytes)
{
    if (bytes > 0) {
        print_value(file, what, bytes);
        (void)fputc('\n', file);
    }
}

/* What a device holds beside its arena. */
struct own {
    uint64_t context_bytes, comm_bytes, library_bytes;
};

static struct own own_of(const struct zo_setup *setup,
                         const struct zo_trainer *trainer, int device)
{
    const uint64_t all = zo_trainer_own_bytes(trainer, device);
    const uint64_t context = zo_trainer_context_bytes(trainer, device);
    const uint64_t comm =
        zo_devices_comm_bytes(&setup->devices.machine, device);

    return (struct own){context, comm, all - context - comm};
}

static uint64_t own_sum(const struct own *own)
{
    return own->context_bytes + own->comm_bytes + own->library_bytes;
}

/* A purpose, and what it is made of: on a line of its own if that is long. */
static void print_purpose(FILE *file, const struct zo_build *build,
                          const struct zo_plan_arena *arena,
                          enum zo_purpose purpose)
{
    char factors[FACTORS_BYTES] = "";
    FILE *text;

    if (arena->purposes[purpose] == 0) {
        return;
    }
    print_value(file, zo_purpose_text(purpose), arena->purposes[purpose]);
    text = fmemopen(factors, sizeof(factors), "w");
    if (text != NULL) {
        zo_cli_print_factors(text, build, arena, purpose);
        (void)fclose(text);
        (void)fprintf(file, "%s%s",
                      strlen(factors) > FACTORS_COLUMNS ? "\n        = "
                                                        : "  = ",
                      factors);
    }
    (void)fputc('\n', file);
}

static void print_arena(FILE *file, const char *name,
                        const struct zo_build *build,
                        const struct zo_plan_arena *arena,
                        const struct own *own, uint64_t budget_bytes)
{
    const uint64_t bytes = arena->total_bytes + own_sum(own);
    char text[ZO_TEXT_PAIR_BYTES], budget[ZO_TEXT_PAIR_BYTES];

    (void)zo_text_gib(text, sizeof(text), bytes);
    (void)zo_text_gib(budget, sizeof(budget), budget_bytes);
    if (bytes > budget_bytes && budget_bytes > 0) {
        zo_text_gib_pair(text, bytes, budget, budget_bytes);
    }
    (void)fprintf(file, "  %s: %s%s%s\n", name, text,
                  budget_bytes > 0 ? " of " : "",
                  budget_bytes > 0 ? budget : "");
    for (int p = 0; p < ZO_PURPOSES; p++) {
        print_purpose(file, build, arena, (enum zo_purpose)p);
    }
    print_line(file, "kernels and libraries", own->library_bytes);
    print_line(file, "collectives", own->comm_bytes);
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

static bool names_host(const struct zo_run_offload *offload)
{
    return offload->limit == ZO_HOME_CPU || offload->limit == ZO_HOME_NVME;
}

/* A machine that is not here has no names of its own. */
static const char *device_name(const struct zo_setup *setup, int device,
                               char *text, size_t text_bytes)
{
    const struct zo_machine *machine = &setup->devices.machine;

    (void)snprintf(text, text_bytes, "%s",
                   machine->device_ops->info(machine->devices[device])->name);
    if (zo_setup_plans_elsewhere(setup)) {
        (void)snprintf(text, text_bytes, "GPU %d", device);
    }
    return text;
}

/* `name` is the first device's. */
static struct zo_cli_place place_of(const struct zo_setup *setup,
                                    const struct zo_trainer *trainer,
                                    const char *name)
{
    const struct zo_machine *machine = &setup->devices.machine;
    const struct zo_run_config *config = &setup->config;
    const struct zo_build *build = zo_trainer_build(trainer);

    return (struct zo_cli_place){
        .build = build,
        .place = zo_trainer_place(trainer),
        .limits = zo_place_limits(config, machine->device_count,
                                  !build->options.evaluates_only),
        .is_asked = names_host(&config->zero.optimizer) ||
                    names_host(&config->zero.param),
        .fills = config->fill,
        .device = name,
        .own_bytes = zo_trainer_own_bytes(trainer, 0),
        .budget_bytes = setup->gpu_memory_bytes,
    };
}

/* What others can no longer use, and what they can. */
static void print_host_rest(FILE *file, const struct zo_setup *setup,
                            const struct zo_trainer *trainer)
{
    const struct zo_machine *machine = &setup->devices.machine;
    const struct zo_program *program = &zo_trainer_build(trainer)->program;
    const uint64_t locked = program->arena_bytes[ZO_TIER_CPU][0];
    uint64_t taken = locked + program->arena_bytes[ZO_TIER_PAGEABLE][0];
    char text[32];

    for (int d = 0;
         machine->device_ops == &zo_device_host && d < machine->device_count;
         d++) {
        taken += program->arena_bytes[ZO_TIER_GPU][d];
    }
    (void)fprintf(file, "  %s of host memory are page-locked while it runs\n",
                  zo_text_gib(text, sizeof(text), locked));
    if (setup->host_room_bytes == ZO_SYSTEM_NO_LIMIT ||
        zo_setup_plans_elsewhere(setup)) {
        return; /* nothing is known of what is free there */
    }
    if (setup->host_room_bytes < taken) {
        (void)fprintf(file, "    this machine has %s free\n",
                      zo_text_gib(text, sizeof(text), setup->host_room_bytes));
    } else {
        (void)fprintf(
            file, "    of what is free now, %s stay for others\n",
            zo_text_gib(text, sizeof(text), setup->host_room_bytes - taken));
    }
}

/* The memory of virtual devices is the host's. */
static bool holds_devices(const struct zo_setup *setup)
{
    return setup->devices.machine.device_ops == &zo_device_host &&
           !zo_setup_plans_elsewhere(setup);
}

/* What the budget is of, where that is more than one arena. */
static void print_host_sum(FILE *file, const struct zo_setup *setup,
                           const struct zo_trainer *trainer)
{
    char text[ZO_TEXT_PAIR_BYTES], budget[ZO_TEXT_PAIR_BYTES];

    zo_text_gib_pair(text, zo_trainer_host_bytes(trainer), budget,
                     setup->host_memory_bytes);
    (void)fprintf(file, "  host memory in all%s: %s of %s\n",
                  holds_devices(setup) ? ", with the devices that live there"
                                       : "",
                  text, budget);
}

/* Of host memory there are two arenas, and one budget. */
static void print_host(FILE *file, const struct zo_setup *setup,
                       const struct zo_trainer *trainer)
{
    const struct zo_build *build = zo_trainer_build(trainer);
    const struct own none = {0, 0, 0};
    const bool sums = holds_devices(setup) ||
                      build->program.arena_bytes[ZO_TIER_PAGEABLE][0] > 0;
    struct zo_plan_arena arena;

    zo_plan_arena(&build->program, ZO_TIER_CPU, 0, &arena);
    print_arena(file, "host memory, page-locked", build, &arena, &none,
                sums ? 0 : setup->host_memory_bytes);
    zo_plan_arena(&build->program, ZO_TIER_PAGEABLE, 0, &arena);
    if (arena.total_bytes > 0) {
        print_arena(file, "host memory, pageable", build, &arena, &none, 0);
    }
    if (sums && setup->host_memory_bytes > 0) {
        print_host_sum(file, setup, trainer);
    }
    print_host_rest(file, setup, trainer);
}

/* Nothing says how many steps there will be. */
static bool assumes_steps(const struct zo_setup *setup)
{
    return setup->data == NULL && setup->config.max_steps <= 0 &&
           setup->options->command == ZO_COMMAND_PLAN;
}

/* An SSD's endurance is a number of bytes written. */
static void print_written(FILE *file, const struct zo_setup *setup,
                          const struct zo_trainer *trainer, double written)
{
    const struct zo_place *place = zo_trainer_place(trainer);
    const bool halves =
        zo_trainer_build(trainer)->options.moment_type == ZO_BF16;
    char text[384], run[32], day[32], steps[64];

    if (place != NULL && place->step_seconds > 0.0) {
        (void)fprintf(file, "    %s a day at %.3g s a step\n",
                      zo_text_si(day, sizeof(day),
                                 written * 86400.0 / place->step_seconds, "B"),
                      place->step_seconds);
    }
    (void)snprintf(
        steps, sizeof(steps),
        assumes_steps(setup) ? "if the run had %" PRId64 " steps it would write"
        : setup->total_steps == 1 ? "the run of %" PRId64 " step writes"
                                  : "the run of %" PRId64 " steps writes",
        setup->total_steps);
    (void)snprintf(
        text, sizeof(text),
        "%s %s; what wears an SSD is what is written: gradient "
        "accumulation%s less",
        steps,
        zo_text_si(run, sizeof(run), written * (double)setup->total_steps, "B"),
        halves ? " makes fewer steps, which write"
               : " and zero_offload.moment_dtype \"bf16\" write");
    zo_cli_print_wrapped(file, "    ", 4, text);
}

static void print_wear(FILE *file, const struct zo_setup *setup,
                       const struct zo_trainer *trainer)
{
    const struct zo_build *build = zo_trainer_build(trainer);
    const bool evaluates = build->options.evaluates_only;
    const struct zo_plan_nvme moved =
        zo_plan_nvme(&build->program, evaluates ? build->evaluation_schedule
                                                : build->step_schedule);
    char read[32], written[32];

    (void)fprintf(
        file, "  %s reads %s there and writes %s\n",
        evaluates ? "a micro batch" : "a step",
        zo_text_si(read, sizeof(read), (double)moved.read_bytes, "B"),
        zo_text_si(written, sizeof(written), (double)moved.written_bytes, "B"));
    if (moved.written_bytes > 0) {
        print_written(file, setup, trainer, (double)moved.written_bytes);
    }
}

static void print_nvme(FILE *file, const struct zo_setup *setup,
                       const struct zo_trainer *trainer)
{
    const struct zo_build *build = zo_trainer_build(trainer);
    const struct own none = {0, 0, 0};
    struct zo_plan_arena arena;

    zo_plan_arena(&build->program, ZO_TIER_NVME, 0, &arena);
    if (arena.total_bytes > 0) {
        print_arena(file, "NVMe", build, &arena, &none, setup->nvme_bytes);
        print_wear(file, setup, trainer);
    }
}

static bool is_alike(const struct zo_setup *setup,
                     const struct zo_trainer *trainer, int left, int right)
{
    const struct zo_program *program = &zo_trainer_build(trainer)->program;
    struct zo_plan_arena a, b;

    zo_plan_arena(program, ZO_TIER_GPU, left, &a);
    zo_plan_arena(program, ZO_TIER_GPU, right, &b);
    return a.total_bytes == b.total_bytes &&
           memcmp(a.purposes, b.purposes, sizeof(a.purposes)) == 0 &&
           zo_trainer_own_bytes(trainer, left) ==
               zo_trainer_own_bytes(trainer, right) &&
           zo_trainer_context_bytes(trainer, left) ==
               zo_trainer_context_bytes(trainer, right) &&
           zo_devices_comm_bytes(&setup->devices.machine, left) ==
               zo_devices_comm_bytes(&setup->devices.machine, right);
}

/* Devices that hold the same are told once. */
static void print_devices(FILE *file, const struct zo_setup *setup,
                          const struct zo_trainer *trainer)
{
    const struct zo_build *build = zo_trainer_build(trainer);
    const int count = setup->devices.machine.device_count;
    char first[64], last[64], name[160];
    struct zo_plan_arena arena;
    int end;

    for (int d = 0; d < count; d = end) {
        const struct own own = own_of(setup, trainer, d);

        for (end = d + 1; end < count && is_alike(setup, trainer, d, end);) {
            end++;
        }
        (void)device_name(setup, d, first, sizeof(first));
        (void)device_name(setup, end - 1, last, sizeof(last));
        (void)snprintf(name, sizeof(name), "%s%s%s%s", first,
                       end - d > 1 ? " to " : "", end - d > 1 ? last : "",
                       end - d > 1 ? ", each" : "");
        zo_plan_arena(&build->program, ZO_TIER_GPU, d, &arena);
        print_arena(file, name, build, &arena, &own, setup->gpu_memory_bytes);
    }
}

void zo_cli_print_plan(FILE *file, const struct zo_setup *setup,
                       const struct zo_trainer *trainer)
{
    const struct zo_build *build = zo_trainer_build(trainer);
    const struct zo_machine *machine = &setup->devices.machine;
    char first[64];
    const struct zo_cli_place place =
        place_of(setup, trainer, device_name(setup, 0, first, sizeof(first)));

    (void)fprintf(file,
                  "plan: %" PRId64 " parameters in %d units, %s, %d device%s"
                  "\n  %d micro batch%s of at most %d tokens; %s\n",
                  setup->model.parameter_count, build->options.unit_count,
                  zo_dtype_name(build->options.type), machine->device_count,
                  machine->device_count == 1 ? "" : "s", build->options.micros,
                  build->options.micros == 1 ? "" : "es", setup->bounds.tokens,
                  kept_text(build->options.placement.keep));
    zo_cli_print_place(file, &place);
    zo_cli_print_rings(file, &place);
    print_devices(file, setup, trainer);
    print_host(file, setup, trainer);
    print_nvme(file, setup, trainer);
}

static void write_arena(struct zo_jsonl *json, const char *name,
                        const struct zo_build *build,
                        const struct zo_plan_arena *arena,
                        const struct own *own, uint64_t budget_bytes)
{
    const uint64_t own_bytes = own_sum(own);

    zo_jsonl_object_begin(json, NULL);
    zo_jsonl_text(json, "name", name);
    zo_jsonl_uint(json, "total_bytes", arena->total_bytes + own_bytes);
    zo_jsonl_uint(json, "budget_bytes", budget_bytes);
    zo_jsonl_uint(json, "persistent_bytes", arena->persistent_bytes);
    zo_jsonl_uint(json, "own_bytes", own->library_bytes);
    zo_jsonl_uint(json, "collectives_bytes", own->comm_bytes);
    zo_jsonl_uint(json, "context_bytes", own->context_bytes);
    zo_jsonl_uint(json, "unused_bytes", arena->unused_bytes);
    zo_jsonl_object_begin(json, "purposes");
    for (int p = 0; p < ZO_PURPOSES; p++) {
        zo_jsonl_uint(json, zo_purpose_text((enum zo_purpose)p),
                      arena->purposes[p]);
    }
    zo_jsonl_object_end(json);
    zo_cli_write_units(json, "units", build, arena);
    if (arena->op != NULL) {
        zo_jsonl_text(json, "fullest_list", arena->schedule);
        zo_jsonl_text(json, "fullest_operation", arena->op);
        zo_jsonl_int(json, "fullest_unit", arena->unit);
    }
    zo_jsonl_object_end(json);
}

static void write_nvme(struct zo_jsonl *json, const struct zo_setup *setup,
                       const struct zo_trainer *trainer)
{
    const struct zo_build *build = zo_trainer_build(trainer);
    const struct own none = {0, 0, 0};
    struct zo_plan_arena arena;
    struct zo_plan_nvme moved;

    zo_jsonl_array_begin(json, "nvme");
    zo_plan_arena(&build->program, ZO_TIER_NVME, 0, &arena);
    if (arena.total_bytes > 0) {
        write_arena(json, "NVMe", build, &arena, &none, setup->nvme_bytes);
    }
    zo_jsonl_array_end(json);
    if (!build->options.evaluates_only) {
        moved = zo_plan_nvme(&build->program, build->step_schedule);
        zo_jsonl_uint(json, "nvme_read_bytes_per_step", moved.read_bytes);
        zo_jsonl_uint(json, "nvme_write_bytes_per_step", moved.written_bytes);
    }
}

enum zo_status zo_cli_print_plan_json(FILE *file, const struct zo_setup *setup,
                                      const struct zo_trainer *trainer,
                                      const struct zo_plan_extras *extras)
{
    const struct zo_build *build = zo_trainer_build(trainer);
    const struct zo_machine *machine = &setup->devices.machine;
    char first[64], name[64];
    const struct zo_cli_place place =
        place_of(setup, trainer, device_name(setup, 0, first, sizeof(first)));
    const struct zo_cli_save save = zo_cli_save(setup, trainer, extras->time);
    const struct own none = {0, 0, 0};
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
    zo_cli_write_place(&json, "placement", &place);
    zo_jsonl_array_begin(&json, "devices");
    for (int d = 0; d < machine->device_count; d++) {
        zo_plan_arena(&build->program, ZO_TIER_GPU, d, &arena);
        own = own_of(setup, trainer, d);
        write_arena(&json, device_name(setup, d, name, sizeof(name)), build,
                    &arena, &own, setup->gpu_memory_bytes);
    }
    zo_jsonl_array_end(&json);
    zo_jsonl_array_begin(&json, "host");
    zo_plan_arena(&build->program, ZO_TIER_CPU, 0, &arena);
    write_arena(&json, "pinned", build, &arena, &none,
                setup->host_memory_bytes);
    zo_plan_arena(&build->program, ZO_TIER_PAGEABLE, 0, &arena);
    write_arena(&json, "pageable", build, &arena, &none,
                setup->host_memory_bytes);
    zo_jsonl_array_end(&json);
    write_nvme(&json, setup, trainer);
    if (extras->time != NULL) {
        zo_cli_write_time(&json, "time", extras->time);
    } else {
        zo_jsonl_null(&json, "time");
    }
    zo_cli_write_save(&json, "save", &save);
    if (extras->gains != NULL) {
        zo_gains_json(&json, "help", extras->gains);
    }
    if (extras->table != NULL) {
        zo_plan_table_json(&json, "table", extras->table);
    }
    return zo_jsonl_end(&json);
}
