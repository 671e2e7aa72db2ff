#include "src/cli/plan_table.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/base/text.h"

#define GIB     1073741824.0
#define MIB     1048576.0
#define FASTER  0.995 /* of the time: less is no difference */
#define AS_FAST 1.001
/* States of fewer parameters are below 1 GiB, and told in MiB. */
#define SMALL_MODEL_PARAMETERS (INT64_C(1) << 26)

/* How a table is printed. */
struct look {
    const char *unit; /* of its bytes */
    double unit_bytes;
    const char *device; /* "GPU", "device" */
    bool has_nvme;      /* a column for it */
};

/* ---- one row -------------------------------------------------------------
 */

static void measure(const struct zo_trainer *trainer, struct zo_plan_cell *cell)
{
    const struct zo_program *program = &zo_trainer_build(trainer)->program;

    cell->host_bytes = program->arena_bytes[ZO_TIER_CPU][0] +
                       program->arena_bytes[ZO_TIER_PAGEABLE][0];
    cell->nvme_bytes = program->arena_bytes[ZO_TIER_NVME][0];
    for (int d = 0; d < program->device_count; d++) {
        const uint64_t bytes = program->arena_bytes[ZO_TIER_GPU][d] +
                               zo_trainer_own_bytes(trainer, d);

        cell->gpu_bytes = bytes > cell->gpu_bytes ? bytes : cell->gpu_bytes;
    }
}

/* Rates that are not known leave the time out. */
static enum zo_status predict(const struct zo_setup *setup,
                              const struct zo_trainer *trainer,
                              struct zo_plan_cell *cell)
{
    struct zo_cli_time time;
    bool found = false;
    const enum zo_status status =
        zo_cli_time(setup, trainer, true, &time, &found);

    if (status != ZO_OK || !found) {
        return status == ZO_E_NOMEM || status == ZO_E_USAGE ? status : ZO_OK;
    }
    cell->step_seconds = time.result.step_seconds;
    cell->tokens_per_second = time.tokens_per_second;
    cell->bound = time.result.bound;
    zo_cli_time_fini(&time);
    return ZO_OK;
}

static enum zo_status plan_setup(const struct zo_setup *setup,
                                 struct zo_plan_cell *cell)
{
    const struct zo_stage_row *row = cell->row;
    struct zo_trainer *trainer = NULL;
    enum zo_status status = zo_setup_trainer(setup, false, &trainer);

    if (trainer != NULL && (status == ZO_OK || status == ZO_E_FIT)) {
        cell->fits = status == ZO_OK;
        measure(trainer, cell);
        status = cell->fits ? predict(setup, trainer, cell) : ZO_OK;
    }
    zo_trainer_close(trainer);
    cell->has_estimate =
        !row->fills && !zo_stage_row_uses_nvme(row) &&
        zo_estimate(row->stage, strcmp(row->optimizer, "cpu") == 0,
                    strcmp(row->param, "cpu") == 0,
                    (double)setup->model.parameter_count,
                    zo_estimate_largest(&setup->model), cell->devices,
                    &cell->estimate);
    return status;
}

/* *found_out is false where there is no such row here (NVMe). */
static enum zo_status plan_row(const struct zo_setup *setup,
                               const struct zo_stage_row *row,
                               struct zo_plan_cell *cell_out, bool *found_out)
{
    struct zo_plan_cell cell = {.row = row,
                                .devices = setup->devices.machine.device_count};
    struct zo_variant variant;
    struct zo_setup varied;
    struct zo_notes notes = {0};
    enum zo_status status;

    *found_out = false;
    if (zo_stage_row_uses_nvme(row) && setup->options->nvme_path == NULL) {
        return ZO_OK;
    }
    ZO_TRY(zo_variant_init(setup->options, &variant));
    ZO_TRY_GOTO(close_variant, zo_variant_stage(&variant, row));
    ZO_TRY_GOTO(close_variant,
                zo_setup_vary(setup, &variant.options, &notes, &varied));
    status = plan_setup(&varied, &cell);
    zo_setup_vary_end(&varied);
    if (status == ZO_OK) {
        *cell_out = cell;
        *found_out = true;
    }

close_variant:
    zo_notes_fini(&notes);
    zo_variant_fini(&variant);
    return status == ZO_E_NOSUPPORT && zo_stage_row_uses_nvme(row) ? ZO_OK
                                                                   : status;
}

/* ---- all of them ---------------------------------------------------------
 */

/* One unit for all columns, DeepSpeed's too: the head names it. */
static struct look look_of(const struct zo_setup *setup)
{
    const bool is_small = setup->model.parameter_count < SMALL_MODEL_PARAMETERS;

    return (struct look){
        .unit = is_small ? "MiB" : "GiB",
        .unit_bytes = is_small ? MIB : GIB,
        .device = zo_setup_device_word(setup),
        .has_nvme = setup->options->nvme_path != NULL,
    };
}

static void print_title(FILE *out)
{
    (void)fputs(
        "ZeRO stages and offloads, literally as asked for "
        "(zero_offload.fill false);\n"
        "\"planned\" is what the planner chooses.  A row that does not "
        "fit is shown with\n"
        "least of the memory that it lacks.  DeepSpeed's estimators count "
        "states alone,\n"
        "not activations.\n",
        out);
}

static void print_head(FILE *out, const struct zo_setup *setup,
                       const struct look *look)
{
    const int devices = setup->devices.machine.device_count;
    char text[32];
    int column;

    (void)fprintf(out, "\n%d device%s", devices, devices == 1 ? "" : "s");
    if (setup->gpu_memory_bytes > 0) {
        (void)fprintf(out, " of %s%s",
                      zo_text_gib(text, sizeof(text), setup->gpu_memory_bytes),
                      devices == 1 ? "" : " each");
    }
    if (setup->host_memory_bytes > 0) {
        (void)fprintf(
            out, ", host memory of %s",
            zo_text_gib(text, sizeof(text), setup->host_memory_bytes));
    }
    column = fprintf(out, "\n%23stakes, in %s", "", look->unit);
    (void)fprintf(out, "%*sDeepSpeed says\n",
                  (look->has_nvme ? 65 : 57) - column, "");
    (void)fprintf(out, "  %-5s %-14s %7s %7s", "stage", "offload", look->device,
                  "host");
    if (look->has_nvme) {
        (void)fprintf(out, " %7s", "NVMe");
    }
    (void)fprintf(out, " %9s %4s  %7s %7s\n", "step", "fits", look->device,
                  "host");
}

/* A number of the table's unit; one that is not there is a dash. */
static void print_amount(FILE *out, const struct look *look, double bytes,
                         bool is_there)
{
    if (is_there) {
        (void)fprintf(out, " %7.2f", bytes / look->unit_bytes);
    } else {
        (void)fprintf(out, " %7s", "-");
    }
}

static void print_cell(FILE *out, const struct look *look,
                       const struct zo_plan_cell *cell)
{
    char step[32] = "-";

    if (cell->step_seconds > 0.0) {
        (void)snprintf(step, sizeof(step), "%.3f s", cell->step_seconds);
    }
    (void)fprintf(out, "  %-5d %-14s", cell->row->stage, cell->row->offload);
    print_amount(out, look, (double)cell->gpu_bytes, true);
    print_amount(out, look, (double)cell->host_bytes, true);
    if (look->has_nvme) {
        print_amount(out, look, (double)cell->nvme_bytes, cell->nvme_bytes > 0);
    }
    (void)fprintf(out, " %9s %4s ", step, cell->fits ? "yes" : "no");
    print_amount(out, look, cell->estimate.gpu_bytes, cell->has_estimate);
    print_amount(out, look, cell->estimate.host_bytes, cell->has_estimate);
    (void)fputc('\n', out);
    (void)fflush(out);
}

static void print_fastest(FILE *out, const struct zo_plan_cell *cell)
{
    if (cell == NULL) {
        (void)fputs("  nothing fits\n", out);
        return;
    }
    (void)fprintf(out, "  fastest that fits: stage %d, %s\n", cell->row->stage,
                  cell->row->offload);
    if (cell->tokens_per_second > 0.0) {
        (void)fprintf(out, "    %.0f tokens/s, bound by %s\n",
                      cell->tokens_per_second, zo_bound_text(cell->bound));
    }
    (void)fprintf(out, "    %s\n", cell->row->purpose);
}

/* Of the cells from `first` on. */
static void print_smallest(FILE *out, const struct look *look,
                           const struct zo_plan_table *table, int first)
{
    const struct zo_plan_cell *least = NULL;
    char text[32];

    for (int i = first; i < table->count; i++) {
        const struct zo_plan_cell *cell = &table->cells[i];

        if (cell->fits &&
            (least == NULL || cell->gpu_bytes < least->gpu_bytes)) {
            least = cell;
        }
    }
    if (least != NULL) {
        (void)fprintf(out,
                      "  of these rows, least %s memory: stage %d, %s (%s)\n",
                      look->device, least->row->stage, least->row->offload,
                      zo_text_gib(text, sizeof(text), least->gpu_bytes));
    }
}

static bool is_faster(const struct zo_plan_cell *cell,
                      const struct zo_plan_cell *best)
{
    if (!cell->fits || best == NULL) {
        return cell->fits;
    }
    /* Where no time is known, what comes first is on faster memory. */
    return cell->step_seconds > 0.0 &&
           (cell->step_seconds < FASTER * best->step_seconds ||
            (cell->step_seconds <= AS_FAST * best->step_seconds &&
             cell->gpu_bytes < best->gpu_bytes));
}

static enum zo_status plan_rows(const struct zo_cli *cli, FILE *out,
                                const struct zo_setup *setup,
                                struct zo_plan_table *table)
{
    const int devices = setup->devices.machine.device_count;
    const bool is_terminal = isatty(fileno(cli->err)) == 1;
    const struct look look = look_of(setup);
    const int first = table->count;
    size_t count = 0;
    const struct zo_stage_row *rows = zo_stage_rows(&count);
    struct zo_plan_cell *best = NULL;

    if (out != NULL && table->count == 0) {
        print_title(out);
    }
    if (out != NULL) {
        print_head(out, setup, &look);
    }
    for (size_t i = 0; i < count; i++) {
        struct zo_plan_cell *cell = &table->cells[table->count];
        bool found = false;

        if (is_terminal) {
            (void)fprintf(cli->err, "\rplanning %zu of %zu on %d device%s\r",
                          i + 1, count, devices, devices == 1 ? "" : "s");
            (void)fflush(cli->err);
        }
        if (table->count == ZO_PLAN_CELLS_MAX) {
            break;
        }
        ZO_TRY(plan_row(setup, &rows[i], cell, &found));
        if (!found) {
            continue;
        }
        table->count++;
        best = is_faster(cell, best) ? cell : best;
        if (out != NULL) {
            print_cell(out, &look, cell);
        }
    }
    if (best != NULL) {
        best->is_fastest = true;
    }
    if (out != NULL) {
        print_fastest(out, best);
        print_smallest(out, &look, table, first);
    }
    return ZO_OK;
}

/* What a refusal may hang on: of a run that opens, the plan tells its own. */
static void tell_notes(const struct zo_cli *cli, const struct zo_notes *notes)
{
    FILE *err = zo_cli_err(cli);

    for (size_t i = 0; i < notes->count; i++) {
        (void)fprintf(err, "%s: %s\n",
                      notes->items[i].level == ZO_NOTE_WARN ? "warning"
                                                            : "note",
                      notes->items[i].text);
    }
}

/* Devices and rows are opened once for all rows of the table. */
static enum zo_status plan_devices(const struct zo_cli *cli, FILE *out,
                                   const struct zo_options *options,
                                   int devices, struct zo_plan_table *table)
{
    struct zo_variant variant;
    struct zo_setup setup = {0};
    struct zo_notes notes = {0};
    enum zo_status status;

    ZO_TRY(zo_variant_init(options, &variant));
    zo_variant_devices(&variant, devices);
    status = zo_setup_open(&variant.options, &notes, &setup);
    if (status != ZO_OK) {
        tell_notes(cli, &notes);
        goto close_all;
    }
    status = plan_rows(cli, out, &setup, table);

close_all:
    zo_setup_close(&setup);
    zo_notes_fini(&notes);
    zo_variant_fini(&variant);
    return status;
}

enum zo_status zo_plan_table(const struct zo_cli *cli, FILE *out,
                             const struct zo_options *options, int devices,
                             struct zo_plan_table *table_out)
{
    memset(table_out, 0, sizeof(*table_out));
    for (int n = 1; n <= devices;
         n = n == devices ? n + 1 : (int)zo_min_i64(2 * n, devices)) {
        ZO_TRY(plan_devices(cli, out, options, n, table_out));
    }
    return ZO_OK;
}

/* ---- as JSON -------------------------------------------------------------
 */

static void write_cell(struct zo_jsonl *json, const struct zo_plan_cell *cell)
{
    const struct zo_stage_row *row = cell->row;

    zo_jsonl_object_begin(json, NULL);
    zo_jsonl_int(json, "devices", cell->devices);
    zo_jsonl_int(json, "stage", row->stage);
    zo_jsonl_text(json, "offload_optimizer", row->optimizer);
    zo_jsonl_text(json, "offload_param", row->param);
    zo_jsonl_bool(json, "fill", row->fills);
    zo_jsonl_bool(json, "fits", cell->fits);
    zo_jsonl_bool(json, "fastest", cell->is_fastest);
    zo_jsonl_uint(json, "gpu_bytes", cell->gpu_bytes);
    zo_jsonl_uint(json, "host_bytes", cell->host_bytes);
    zo_jsonl_uint(json, "nvme_bytes", cell->nvme_bytes);
    if (cell->step_seconds > 0.0) {
        zo_jsonl_real(json, "predicted_seconds", cell->step_seconds);
        zo_jsonl_real(json, "predicted_tokens_per_second",
                      cell->tokens_per_second);
        zo_jsonl_text(json, "predicted_bound", zo_bound_text(cell->bound));
    } else {
        zo_jsonl_null(json, "predicted_seconds");
    }
    if (cell->has_estimate) {
        zo_jsonl_real(json, "deepspeed_gpu_bytes", cell->estimate.gpu_bytes);
        zo_jsonl_real(json, "deepspeed_host_bytes", cell->estimate.host_bytes);
    }
    zo_jsonl_text(json, "purpose", row->purpose);
    zo_jsonl_object_end(json);
}

void zo_plan_table_json(struct zo_jsonl *json, const char *key,
                        const struct zo_plan_table *table)
{
    zo_jsonl_array_begin(json, key);
    for (int i = 0; i < table->count; i++) {
        write_cell(json, &table->cells[i]);
    }
    zo_jsonl_array_end(json);
}

/* ---- as a configuration --------------------------------------------------
 */

static const struct zo_plan_cell *fastest(const struct zo_plan_table *table,
                                          int devices)
{
    for (int i = 0; i < table->count; i++) {
        if (table->cells[i].is_fastest && table->cells[i].devices == devices) {
            return &table->cells[i];
        }
    }
    return NULL;
}

/* Numbers and words of this program alone: nothing to escape. */
static void print_config(FILE *file, const struct zo_stage_row *row,
                         const struct zo_run_config *config)
{
    (void)fprintf(file,
                  "{\n  \"train_micro_batch_size_per_gpu\": %lld,\n"
                  "  \"gradient_accumulation_steps\": %lld,\n",
                  (long long)config->micro_batch_rows,
                  (long long)config->gradient_accumulation_steps);
    if (config->gradient_clipping > 0.0) {
        (void)fprintf(file, "  \"gradient_clipping\": %.17g,\n",
                      config->gradient_clipping);
    }
    if (config->dtype != ZO_F32) {
        (void)fprintf(file, "  \"%s\": {\"enabled\": true},\n",
                      zo_dtype_name(config->dtype));
    }
    (void)fprintf(file, "  \"zero_optimization\": {\n    \"stage\": %d",
                  row->stage);
    if (row->stage > 0) {
        (void)fprintf(file,
                      ",\n    \"offload_optimizer\": {\"device\": \"%s\"}",
                      row->optimizer);
    }
    if (row->stage == 3) {
        (void)fprintf(file, ",\n    \"offload_param\": {\"device\": \"%s\"}",
                      row->param);
    }
    (void)fprintf(file, "\n  },\n  \"zero_offload\": {\"fill\": %s}\n}\n",
                  row->fills || strcmp(row->optimizer, "none") == 0 ? "true"
                                                                    : "false");
}

enum zo_status zo_plan_table_check(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = NULL;
    struct stat info;
    int native = 0;

    if (stat(path, &info) == 0) {
        native = S_ISDIR(info.st_mode)     ? EISDIR
                 : access(path, W_OK) != 0 ? errno
                                           : 0;
    } else {
        ZO_TRY(slash == NULL
                   ? zo_strndup(".", 1, &folder)
                   : zo_strndup(path, (size_t)(slash - path) + 1, &folder));
        native = access(folder, W_OK | X_OK) != 0 ? errno : 0;
        zo_free(folder);
    }
    return native == 0 ? ZO_OK
                       : ZO_FAIL_NATIVE(ZO_E_USAGE, native, "--write %s: %s",
                                        path, strerror(native));
}

enum zo_status zo_plan_table_write(const struct zo_plan_table *table,
                                   int devices,
                                   const struct zo_run_config *config,
                                   const char *path)
{
    const struct zo_plan_cell *cell = fastest(table, devices);
    FILE *file;
    bool is_bad;

    if (cell == NULL) {
        return ZO_FAIL(ZO_E_FIT,
                       "--write %s: no row of the table fits on %d "
                       "device%s",
                       path, devices, devices == 1 ? "" : "s");
    }
    file = fopen(path, "w");
    if (file == NULL) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno, "--write %s: %s", path,
                              strerror(errno));
    }
    print_config(file, cell->row, config);
    is_bad = ferror(file) != 0;
    if (fclose(file) != 0 || is_bad) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno, "--write %s: it took no more",
                              path);
    }
    return ZO_OK;
}
