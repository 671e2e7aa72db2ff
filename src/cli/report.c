/*
 * zero-offload report: figures of metrics, traces and benchmarks, in one HTML
 * file that needs nothing else.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"
#include "src/cli/cli.h"
#include "src/cli/report_figures.h"

#define TITLE      "zero-offload report"
#define FILE_START "<!DOCTYPE html>\n<html lang=\"en\">"

/* A slip of the pen must not cost a file that is something else. */
static enum zo_status check_old(const char *path)
{
    char start[sizeof(FILE_START)] = "";
    struct stat info;
    FILE *file;
    size_t got;

    if (lstat(path, &info) != 0) {
        return ZO_OK; /* what is wrong with its folder is told later */
    }
    file = S_ISREG(info.st_mode) ? fopen(path, "re") : NULL;
    got = file != NULL ? fread(start, 1, sizeof(start) - 1, file) : 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    if (file == NULL || strncmp(start, FILE_START, got) != 0) {
        return ZO_FAIL(ZO_E_USAGE,
                       "--output %s: it is there and is no report; name "
                       "another file",
                       path);
    }
    return ZO_OK;
}

static void put_count(struct zo_page *page, size_t count, const char *what)
{
    if (count > 0) {
        zo_page_put(page, "%zu %s%s; ", count, what, count == 1 ? "" : "s");
    }
}

static enum zo_status write_page(FILE *file, const struct zo_report_data *data)
{
    struct zo_page page = {.file = file};

    zo_page_begin(&page, TITLE);
    zo_page_put(&page, "<p>Made of ");
    put_count(&page, data->run_count, "run");
    put_count(&page, data->trace_count, "trace");
    put_count(&page, data->bench_count, "benchmark");
    zo_page_put(&page,
                "every figure has its numbers in a table below it.</p>\n");
    zo_report_steps(&page, data);
    ZO_TRY(zo_report_runs(&page, data));
    ZO_TRY(zo_report_benches(&page, data));
    zo_page_end(&page);
    return ZO_OK;
}

/* Under another name until it is whole. */
static enum zo_status write_report(const char *path,
                                   const struct zo_report_data *data)
{
    static const char suffix[] = ".tmp-XXXXXX";
    const size_t length = strlen(path);
    char *name = NULL;
    FILE *file = NULL;
    mode_t mask;
    int fd;
    enum zo_status status;

    ZO_TRY(zo_alloc(length + sizeof(suffix), 1, "a file name", &name));
    (void)snprintf(name, length + sizeof(suffix), "%s%s", path, suffix);
    fd = mkstemp(name);
    file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL) {
        status = ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "--output %s: %s", path,
                                strerror(errno));
        goto free_name;
    }
    mask = umask(0);
    (void)umask(mask);
    (void)fchmod(fd, 0666 & ~mask);
    status = write_page(file, data);
    if (status == ZO_OK && (fflush(file) != 0 || ferror(file) != 0)) {
        status = ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot write %s: %s", name,
                                strerror(errno));
    }
    if (fclose(file) != 0 && status == ZO_OK) {
        status = ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot write %s: %s", name,
                                strerror(errno));
    }
    if (status == ZO_OK) {
        status = zo_disk_rename(name, path);
    }
    if (status != ZO_OK) {
        (void)unlink(name);
    }

free_name:
    zo_free(name);
    return status;
}

static enum zo_status read_files(struct zo_cli *cli,
                                 const struct zo_options *options,
                                 struct zo_report_data *data)
{
    for (size_t i = 0; i < options->file_count; i++) {
        ZO_TRY(zo_report_read(data, options->files[i], &cli->notes));
    }
    return ZO_OK;
}

enum zo_status zo_cli_report(struct zo_cli *cli,
                             const struct zo_options *options)
{
    struct zo_report_data *data = NULL;
    const char *output =
        options->output != NULL ? options->output : "report.html";
    enum zo_status status;

    if (options->file_count == 0 || options->file_count > ZO_REPORT_FILES_MAX) {
        return ZO_FAIL(ZO_E_USAGE,
                       "report: %zu files; want from 1 to %d: metrics.jsonl, "
                       "a trace, JSON lines of bench",
                       options->file_count, ZO_REPORT_FILES_MAX);
    }
    ZO_TRY(check_old(output));
    ZO_TRY(zo_alloc(1, sizeof(*data), "the report", &data));
    status = read_files(cli, options, data);
    if (status == ZO_OK) {
        status = write_report(output, data);
    }
    if (status == ZO_OK) {
        (void)fprintf(cli->out, "the report is in %s\n", output);
    }
    zo_report_fini(data);
    zo_free(data);
    return status;
}
