#include "src/cli/bench_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/json.h"
#include "src/base/memory.h"

#define LINE_BYTES_MAX (64 << 10)

static const char *const states[] = {
    [ZO_BENCH_RAN] = "ran",
    [ZO_BENCH_PLANNED] = "planned",
    [ZO_BENCH_UNFIT] = "does not fit",
};

/* ---- writing -------------------------------------------------------------
 */

static void put_bytes(struct zo_jsonl *json, const char *key, uint64_t bytes)
{
    if (bytes > 0) {
        zo_jsonl_uint(json, key, bytes);
    } else {
        zo_jsonl_null(json, key);
    }
}

static void put_seconds(struct zo_jsonl *json, const char *key, double seconds)
{
    if (seconds > 0.0) {
        zo_jsonl_real(json, key, seconds);
    } else {
        zo_jsonl_null(json, key);
    }
}

/* Of a step; what did not run moved nothing that is known. */
static void put_moved(struct zo_jsonl *json, const char *key,
                      const struct zo_bench_row *row, uint64_t bytes)
{
    if (row->state == ZO_BENCH_RAN) {
        zo_jsonl_uint(json, key, bytes);
    } else {
        zo_jsonl_null(json, key);
    }
}

static void put_purposes(struct zo_jsonl *json, const char *key,
                         const uint64_t *purposes)
{
    zo_jsonl_object_begin(json, key);
    for (int p = 0; p < ZO_PURPOSES; p++) {
        if (purposes[p] > 0) {
            zo_jsonl_uint(json, zo_purpose_text((enum zo_purpose)p),
                          purposes[p]);
        }
    }
    zo_jsonl_object_end(json);
}

static void put_memory(struct zo_jsonl *json, const struct zo_bench_row *row)
{
    put_bytes(json, "gpu_budget_bytes", row->gpu_budget_bytes);
    put_bytes(json, "host_budget_bytes", row->host_budget_bytes);
    put_bytes(json, "gpu_bytes", row->gpu_bytes);
    put_bytes(json, "gpu_driver_bytes", row->gpu_driver_bytes);
    put_bytes(json, "formula_bytes", row->formula_bytes);
    put_bytes(json, "formula_weights_bytes", row->formula_weight_bytes);
    put_bytes(json, "formula_gradients_bytes", row->formula_gradient_bytes);
    put_bytes(json, "formula_optimizer_bytes", row->formula_optimizer_bytes);
    put_bytes(json, "host_bytes", row->host_bytes);
    put_bytes(json, "nvme_bytes", row->nvme_bytes);
    put_bytes(json, "process_bytes", row->process_bytes);
    put_purposes(json, "gpu_purposes", row->gpu_purposes);
    put_purposes(json, "host_purposes", row->host_purposes);
}

static void put_times(struct zo_jsonl *json, const struct zo_bench_row *row)
{
    zo_jsonl_int(json, "steps", row->steps);
    put_seconds(json, "step_seconds_median", row->median_seconds);
    put_seconds(json, "step_seconds_min", row->min_seconds);
    put_seconds(json, "step_seconds_max", row->max_seconds);
    put_seconds(json, "tokens_per_second",
                row->median_seconds > 0.0
                    ? (double)row->tokens / row->median_seconds
                    : 0.0);
    put_seconds(json, "exposed_seconds", row->exposed_seconds);
    put_seconds(json, "predicted_seconds", row->predicted_seconds);
    zo_jsonl_object_begin(json, "engine_seconds");
    for (int e = 0; e < ZO_ENGINES; e++) {
        zo_jsonl_real(json, zo_engine_text((enum zo_engine)e),
                      row->engine_seconds[e]);
    }
    zo_jsonl_object_end(json);
    put_moved(json, "h2d_bytes", row, row->h2d_bytes);
    put_moved(json, "d2h_bytes", row, row->d2h_bytes);
    zo_jsonl_real(json, "loss", row->loss);
}

enum zo_status zo_bench_row_write(struct zo_jsonl *json,
                                  const struct zo_bench_row *row)
{
    zo_jsonl_begin(json);
    zo_jsonl_int(json, "format", ZO_BENCH_FORMAT);
    zo_jsonl_text(json, "kind", "bench");
    zo_jsonl_text(json, "what", row->what);
    zo_jsonl_text(json, "key", row->key);
    zo_jsonl_text(json, "label", row->label);
    zo_jsonl_text(json, "note", row->note);
    zo_jsonl_text(json, "state", states[row->state]);
    zo_jsonl_text(json, "model", row->model);
    zo_jsonl_text(json, "device", row->device);
    zo_jsonl_text(json, "dtype", row->dtype);
    zo_jsonl_int(json, "layers", row->layers);
    zo_jsonl_int(json, "devices", row->devices);
    zo_jsonl_int(json, "stage", row->stage);
    zo_jsonl_int(json, "tokens", row->tokens);
    put_memory(json, row);
    put_times(json, row);
    return zo_jsonl_end(json);
}

/* ---- reading -------------------------------------------------------------
 */

static void take_text(const struct zo_json *object, const char *key,
                      char *target, size_t target_bytes)
{
    const struct zo_json *value = zo_json_get(object, key);

    target[0] = '\0';
    if (value != NULL && zo_json_type(value) == ZO_JSON_STRING) {
        (void)snprintf(target, target_bytes, "%s", zo_json_string(value));
    }
}

static double take_real(const struct zo_json *object, const char *key)
{
    const struct zo_json *value = zo_json_get(object, key);

    return value != NULL && zo_json_type(value) == ZO_JSON_NUMBER
               ? zo_json_number(value)
               : 0.0;
}

static int64_t take_int(const struct zo_json *object, const char *key)
{
    const struct zo_json *value = zo_json_get(object, key);
    int64_t number = 0;

    return value != NULL && zo_json_int(value, &number) ? number : 0;
}

static uint64_t take_bytes(const struct zo_json *object, const char *key)
{
    const int64_t bytes = take_int(object, key);

    return bytes > 0 ? (uint64_t)bytes : 0;
}

static void take_memory(const struct zo_json *object, struct zo_bench_row *row)
{
    const struct zo_json *gpu = zo_json_get(object, "gpu_purposes");
    const struct zo_json *host = zo_json_get(object, "host_purposes");

    row->gpu_budget_bytes = take_bytes(object, "gpu_budget_bytes");
    row->host_budget_bytes = take_bytes(object, "host_budget_bytes");
    row->gpu_bytes = take_bytes(object, "gpu_bytes");
    row->gpu_driver_bytes = take_bytes(object, "gpu_driver_bytes");
    row->formula_bytes = take_bytes(object, "formula_bytes");
    row->formula_weight_bytes = take_bytes(object, "formula_weights_bytes");
    row->formula_gradient_bytes = take_bytes(object, "formula_gradients_bytes");
    row->formula_optimizer_bytes =
        take_bytes(object, "formula_optimizer_bytes");
    row->host_bytes = take_bytes(object, "host_bytes");
    row->nvme_bytes = take_bytes(object, "nvme_bytes");
    row->process_bytes = take_bytes(object, "process_bytes");
    for (int p = 0; p < ZO_PURPOSES; p++) {
        const char *text = zo_purpose_text((enum zo_purpose)p);

        row->gpu_purposes[p] = take_bytes(gpu, text);
        row->host_purposes[p] = take_bytes(host, text);
    }
}

static void take_times(const struct zo_json *object, struct zo_bench_row *row)
{
    const struct zo_json *engines = zo_json_get(object, "engine_seconds");

    row->steps = take_int(object, "steps");
    row->median_seconds = take_real(object, "step_seconds_median");
    row->min_seconds = take_real(object, "step_seconds_min");
    row->max_seconds = take_real(object, "step_seconds_max");
    row->exposed_seconds = take_real(object, "exposed_seconds");
    row->predicted_seconds = take_real(object, "predicted_seconds");
    for (int e = 0; e < ZO_ENGINES; e++) {
        row->engine_seconds[e] =
            take_real(engines, zo_engine_text((enum zo_engine)e));
    }
    row->h2d_bytes = take_bytes(object, "h2d_bytes");
    row->d2h_bytes = take_bytes(object, "d2h_bytes");
    row->loss = take_real(object, "loss");
}

/* False when the line is of another kind. */
static bool take_row(const struct zo_json *object, struct zo_bench_row *row)
{
    char kind[16], state[16];

    take_text(object, "kind", kind, sizeof(kind));
    take_text(object, "key", row->key, sizeof(row->key));
    if (strcmp(kind, "bench") != 0 || row->key[0] == '\0') {
        return false;
    }
    take_text(object, "what", row->what, sizeof(row->what));
    take_text(object, "label", row->label, sizeof(row->label));
    take_text(object, "note", row->note, sizeof(row->note));
    take_text(object, "model", row->model, sizeof(row->model));
    take_text(object, "device", row->device, sizeof(row->device));
    take_text(object, "dtype", row->dtype, sizeof(row->dtype));
    take_text(object, "state", state, sizeof(state));
    row->state = ZO_BENCH_RAN;
    for (size_t i = 0; i < ZO_COUNT(states); i++) {
        if (strcmp(state, states[i]) == 0) {
            row->state = (enum zo_bench_state)i;
        }
    }
    row->layers = take_int(object, "layers");
    row->devices = take_int(object, "devices");
    row->stage = take_int(object, "stage");
    row->tokens = take_int(object, "tokens");
    take_memory(object, row);
    take_times(object, row);
    return true;
}

static enum zo_status add_row(struct zo_bench_rows *rows,
                              const struct zo_bench_row *row)
{
    if (rows->count == rows->capacity) {
        const size_t capacity = rows->capacity > 0 ? 2 * rows->capacity : 16;
        struct zo_bench_row *items = rows->items;

        ZO_TRY(zo_realloc(&items, capacity, sizeof(items[0]),
                          "the rows of a results file"));
        rows->items = items;
        rows->capacity = capacity;
    }
    rows->items[rows->count++] = *row;
    return ZO_OK;
}

static enum zo_status read_line(const char *path, int64_t line,
                                const char *text, size_t bytes,
                                struct zo_bench_rows *rows)
{
    const struct zo_json_options how = {.status = ZO_E_CORRUPT,
                                        .first_line = line};
    struct zo_json_doc *doc = NULL;
    struct zo_bench_row row;
    int64_t format;
    enum zo_status status = ZO_OK;

    memset(&row, 0, sizeof(row));
    ZO_TRY(zo_json_parse(path, text, bytes, &how, &doc));
    format = take_int(zo_json_root(doc), "format");
    if (!take_row(zo_json_root(doc), &row)) {
        status = ZO_OK; /* of another kind */
    } else if (format != ZO_BENCH_FORMAT || rows->count == ZO_BENCH_ROWS_MAX) {
        status = ZO_FAIL(ZO_E_CORRUPT,
                         "%s:%lld: rows of format %lld, at most %d; want "
                         "format %d",
                         path, (long long)line, (long long)format,
                         ZO_BENCH_ROWS_MAX, ZO_BENCH_FORMAT);
    } else {
        status = add_row(rows, &row);
    }
    zo_json_close(doc);
    return status;
}

static enum zo_status read_lines(FILE *file, const char *path, char *line,
                                 struct zo_bench_rows *rows)
{
    for (int64_t number = 1; fgets(line, LINE_BYTES_MAX, file) != NULL;
         number++) {
        const size_t bytes = strlen(line);

        if (bytes == LINE_BYTES_MAX - 1 && line[bytes - 1] != '\n') {
            return ZO_FAIL(ZO_E_CORRUPT,
                           "%s:%lld: more than %d bytes in a line", path,
                           (long long)number, LINE_BYTES_MAX - 2);
        }
        if (bytes == 0 || line[bytes - 1] != '\n') {
            return ZO_OK; /* cut off */
        }
        ZO_TRY(read_line(path, number, line, bytes, rows));
    }
    return ferror(file)
               ? ZO_FAIL_NATIVE(ZO_E_IO, errno, "%s: %s", path, strerror(errno))
               : ZO_OK;
}

enum zo_status zo_bench_rows_read(const char *path,
                                  struct zo_bench_rows *rows_out)
{
    struct zo_bench_rows rows = {0};
    enum zo_status status;
    char *line = NULL;
    FILE *file = fopen(path, "r");

    if (file == NULL) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "%s: cannot be opened: %s",
                              path, strerror(errno));
    }
    status = zo_alloc(1, LINE_BYTES_MAX, "a line of a results file", &line);
    if (status == ZO_OK) {
        status = read_lines(file, path, line, &rows);
    }
    zo_free(line);
    (void)fclose(file);
    if (status != ZO_OK) {
        zo_bench_rows_fini(&rows);
        return status;
    }
    *rows_out = rows;
    return ZO_OK;
}

const struct zo_bench_row *zo_bench_rows_find(const struct zo_bench_rows *rows,
                                              const char *key)
{
    for (size_t i = rows->count; i > 0; i--) {
        if (strcmp(rows->items[i - 1].key, key) == 0) {
            return &rows->items[i - 1];
        }
    }
    return NULL;
}

void zo_bench_rows_fini(struct zo_bench_rows *rows)
{
    if (rows != NULL) {
        zo_free(rows->items);
        *rows = (struct zo_bench_rows){0};
    }
}

/* ---- a file that grows ---------------------------------------------------
 */

struct zo_bench_file {
    int fd;
    char *path; /* owned */
    struct zo_jsonl json;
    char buffer[4096];
};

/* Up to the end of the last whole line. */
static enum zo_status cut_off(int fd, const char *path)
{
    static const char first[] = "{\"format\":";
    char found[sizeof(first)] = "", byte = '\n';
    off_t end = lseek(fd, 0, SEEK_END);
    const off_t whole = end;

    if (end > 0 && (pread(fd, found, sizeof(first) - 1, 0) < 0 ||
                    strcmp(found, first) != 0)) {
        return ZO_FAIL(ZO_E_USAGE,
                       "%s: is there, and is no file of results; not touched",
                       path);
    }

    while (end > 0 && pread(fd, &byte, 1, end - 1) == 1 && byte != '\n') {
        end--;
    }
    if (end < 0 || (end < whole && ftruncate(fd, end) != 0)) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "%s: %s", path,
                              strerror(errno));
    }
    return ZO_OK;
}

enum zo_status zo_bench_file_open(const char *path,
                                  struct zo_bench_file **file_out)
{
    struct zo_bench_file *file = NULL;
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*file), "a results file", &file));
    ZO_TRY_GOTO(free_file, zo_strndup(path, strlen(path), &file->path));
    file->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file->fd < 0) {
        status = ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "%s: cannot be opened: %s",
                                path, strerror(errno));
        goto free_file;
    }
    ZO_TRY_GOTO(close_file, cut_off(file->fd, path));
    zo_jsonl_init_fd(&file->json, file->fd, file->path, file->buffer,
                     sizeof(file->buffer));
    *file_out = file;
    return ZO_OK;

close_file:
    (void)close(file->fd);
free_file:
    zo_free(file->path);
    zo_free(file);
    return status;
}

enum zo_status zo_bench_file_add(struct zo_bench_file *file,
                                 const struct zo_bench_row *row)
{
    return zo_bench_row_write(&file->json, row);
}

void zo_bench_file_close(struct zo_bench_file *file)
{
    if (file != NULL) {
        (void)close(file->fd);
        zo_free(file->path);
        zo_free(file);
    }
}

/* ---- times ---------------------------------------------------------------
 */

static int by_seconds(const void *left, const void *right)
{
    const struct zo_bench_step *a = left, *b = right;

    return a->seconds != b->seconds
               ? (a->seconds < b->seconds ? -1 : 1)
               : (a->exposed_seconds > b->exposed_seconds) -
                     (a->exposed_seconds < b->exposed_seconds);
}

void zo_bench_row_time(struct zo_bench_row *row, struct zo_bench_step *steps)
{
    const struct zo_bench_step *median = &steps[row->steps / 2];

    qsort(steps, (size_t)row->steps, sizeof(steps[0]), by_seconds);
    row->median_seconds = median->seconds;
    row->exposed_seconds = median->exposed_seconds;
    row->min_seconds = steps[0].seconds;
    row->max_seconds = steps[row->steps - 1].seconds;
}
