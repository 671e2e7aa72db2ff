/*
 * Rows of the bench tables: what is written is what is read; files that are
 * cut off, hostile or something else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/cli/bench_rows.h"
#include "tests/tap.h"

static char path[64] = "test_bench_rows.XXXXXX";

static struct zo_bench_row sample(int i)
{
    struct zo_bench_row row;

    memset(&row, 0, sizeof(row)); /* also what lies between the fields */
    (void)snprintf(row.key, sizeof(row.key), "a key \"%d\" \\ \n", i);
    (void)snprintf(row.what, sizeof(row.what), "stages");
    (void)snprintf(row.label, sizeof(row.label), "2, optimizer cpu");
    (void)snprintf(row.note, sizeof(row.note), "what it is for");
    (void)snprintf(row.model, sizeof(row.model), "chatglm2-6b");
    (void)snprintf(row.device, sizeof(row.device), "NVIDIA H200");
    (void)snprintf(row.dtype, sizeof(row.dtype), "bf16");
    row.state = (enum zo_bench_state)(i % 3);
    row.layers = 28;
    row.devices = 2;
    row.stage = 2;
    row.tokens = 4096 + i;
    row.gpu_budget_bytes = (uint64_t)24 << 30;
    row.gpu_bytes = (uint64_t)141 << 30;
    row.formula_weight_bytes = 5;
    row.formula_gradient_bytes = 6;
    row.formula_optimizer_bytes = 30;
    row.formula_bytes = 41;
    row.host_bytes = 12345;
    row.nvme_bytes = (uint64_t)1 << 40;
    row.gpu_purposes[ZO_PURPOSE_WEIGHTS] = 7;
    row.gpu_purposes[ZO_PURPOSE_CONTROL] = 9;
    row.host_purposes[ZO_PURPOSE_MASTER] = 11;
    row.steps = 4;
    row.median_seconds = 0.1;
    row.min_seconds = 1.0 / 3.0;
    row.engine_seconds[ZO_ENGINE_NVME] = 2.5;
    row.h2d_bytes = row.state == ZO_BENCH_RAN ? 99 : 0; /* else not known */
    row.loss = 11.25;
    return row;
}

static bool put(const char *text)
{
    FILE *file = fopen(path, "w");

    return file != NULL && fputs(text, file) >= 0 && fclose(file) == 0;
}

static void test_round_trip(void)
{
    struct zo_bench_rows rows = {0};
    struct zo_bench_file *file = NULL;

    (void)unlink(path);
    for (int i = 0; i < 20; i++) { /* opened anew each time */
        const struct zo_bench_row row = sample(i);

        TAP_CHECK(zo_bench_file_open(path, &file) == ZO_OK);
        TAP_CHECK(zo_bench_file_add(file, &row) == ZO_OK);
        zo_bench_file_close(file);
    }
    TAP_CHECK(zo_bench_rows_read(path, &rows) == ZO_OK);
    TAP_CHECK_INT((long long)rows.count, 20);
    for (int i = 0; i < 20; i++) {
        const struct zo_bench_row row = sample(i);

        TAP_CHECK(memcmp(&rows.items[i], &row, sizeof(row)) == 0);
        TAP_CHECK(zo_bench_rows_find(&rows, row.key) == &rows.items[i]);
    }
    TAP_CHECK(zo_bench_rows_find(&rows, "another") == NULL);
    zo_bench_rows_fini(&rows);
}

static void test_cut_off(void)
{
    const struct zo_bench_row row = sample(20);
    struct zo_bench_rows rows = {0};
    struct zo_bench_file *file = NULL;
    FILE *raw = fopen(path, "a");

    TAP_CHECK(raw != NULL && fputs("{\"format\":1,\"ki", raw) >= 0);
    TAP_CHECK(fclose(raw) == 0);
    TAP_CHECK(zo_bench_rows_read(path, &rows) == ZO_OK);
    TAP_CHECK_INT((long long)rows.count, 20);
    zo_bench_rows_fini(&rows);
    TAP_CHECK(zo_bench_file_open(path, &file) == ZO_OK);
    TAP_CHECK(zo_bench_file_add(file, &row) == ZO_OK);
    zo_bench_file_close(file);
    TAP_CHECK(zo_bench_rows_read(path, &rows) == ZO_OK);
    TAP_CHECK_INT((long long)rows.count, 21);
    zo_bench_rows_fini(&rows);
}

static void test_hostile(void)
{
    static const char *const corrupt[] = {
        "no JSON\n",
        "{\"format\":2,\"kind\":\"bench\",\"key\":\"k\"}\n",
        "{\"format\":1,\"kind\":\"bench\",\"key\":\"k\"}\n[\n",
    };
    static const char *const harmless[] = {
        "",
        "[]\n3\n\"bench\"\n",
        "{\"format\":1,\"kind\":\"run\"}\n",
        "{\"format\":1,\"kind\":7,\"key\":[]}\n",
        "{\"format\":1,\"kind\":\"bench\",\"key\":\"\"}\n",
    };
    struct zo_bench_rows rows = {0};

    for (size_t i = 0; i < TAP_COUNT(corrupt); i++) {
        TAP_CHECK(put(corrupt[i]));
        TAP_CHECK(zo_bench_rows_read(path, &rows) == ZO_E_CORRUPT);
    }
    for (size_t i = 0; i < TAP_COUNT(harmless); i++) {
        TAP_CHECK(put(harmless[i]));
        TAP_CHECK(zo_bench_rows_read(path, &rows) == ZO_OK);
        TAP_CHECK_INT((long long)rows.count, 0);
        zo_bench_rows_fini(&rows);
    }
    /* Values of another type, or beyond it, are as if they were not there. */
    TAP_CHECK(put("{\"format\":1,\"kind\":\"bench\",\"key\":\"k\","
                  "\"gpu_bytes\":-1,\"layers\":1e300,\"label\":3,"
                  "\"gpu_purposes\":[1],\"steps\":\"x\"}\n"));
    TAP_CHECK(zo_bench_rows_read(path, &rows) == ZO_OK);
    TAP_CHECK_INT((long long)rows.count, 1);
    TAP_CHECK(rows.items[0].gpu_bytes == 0 && rows.items[0].layers == 0);
    zo_bench_rows_fini(&rows);
}

static void test_others(void)
{
    struct zo_bench_file *file = NULL;
    struct zo_bench_rows rows = {0};
    char back[16] = "";
    FILE *raw;

    TAP_CHECK(put("my notes"));
    TAP_CHECK(zo_bench_file_open(path, &file) == ZO_E_USAGE);
    raw = fopen(path, "r");
    TAP_CHECK(raw != NULL && fgets(back, sizeof(back), raw) != NULL);
    TAP_CHECK(fclose(raw) == 0 && strcmp(back, "my notes") == 0);
    TAP_CHECK(zo_bench_file_open("no/such/file", &file) == ZO_E_USAGE);
    TAP_CHECK(zo_bench_rows_read("no/such/file", &rows) == ZO_E_USAGE);
}

static void test_no_memory(void)
{
    const struct zo_bench_row row = sample(0);
    struct zo_bench_rows rows = {0};
    struct zo_bench_file *file = NULL;
    enum zo_status status = ZO_E_NOMEM;

    TAP_CHECK(put(""));
    TAP_CHECK(zo_bench_file_open(path, &file) == ZO_OK);
    TAP_CHECK(zo_bench_file_add(file, &row) == ZO_OK);
    zo_bench_file_close(file);
    for (uint64_t nth = 1; status != ZO_OK && nth < 1000; nth++) {
        zo_memory_fail_at(nth);
        status = zo_bench_rows_read(path, &rows);
        zo_memory_fail_at(0);
        TAP_CHECK(status == ZO_OK || status == ZO_E_NOMEM);
    }
    TAP_CHECK_INT((long long)rows.count, 1);
    zo_bench_rows_fini(&rows);
}

/* A slow step, all of it waiting, does not make the median's wait longer. */
static void test_time(void)
{
    struct zo_bench_step steps[] = {
        {10.0, 9.5}, {1.25, 0.5}, {1.0, 0.25}, {1.5, 0.75}, {1.125, 0.375}};
    struct zo_bench_row row = {.steps = 5};

    zo_bench_row_time(&row, steps);
    TAP_CHECK(row.median_seconds == 1.25 && row.exposed_seconds == 0.5);
    TAP_CHECK(row.min_seconds == 1.0 && row.max_seconds == 10.0);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"rows come back as they were written", test_round_trip},
        {"a last line that was cut off is no row", test_cut_off},
        {"hostile files are refused, or hold no rows", test_hostile},
        {"files of something else are not touched", test_others},
        {"without memory nothing is read", test_no_memory},
        {"what is exposed is of the median step", test_time},
    };
    const int fd = mkstemp(path);
    int code;

    if (fd < 0 || close(fd) != 0) {
        (void)printf("Bail out! no file for the test\n");
        return EXIT_FAILURE;
    }
    code = tap_run(cases, TAP_COUNT(cases));
    (void)unlink(path);
    return code;
}
