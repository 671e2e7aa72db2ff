/*
 * The metrics file.
 */
#include "src/train/metrics.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "tests/tap.h"

/* A folder of its own under the build folder; removed by each case. */
static char folder[] = "test_metrics.XXXXXX";
static char first_path[64], second_path[64];

static bool set_up(void)
{
    memcpy(folder + sizeof(folder) - 7, "XXXXXX", 6);
    if (mkdtemp(folder) == NULL) {
        return false;
    }
    (void)snprintf(first_path, sizeof(first_path), "%s/a.jsonl", folder);
    (void)snprintf(second_path, sizeof(second_path), "%s/b.jsonl", folder);
    return true;
}

static void tear_down(void)
{
    (void)unlink(first_path);
    (void)unlink(second_path);
    (void)rmdir(folder);
}

/* The text of a file; empty when it cannot be read. */
static const char *read_text(const char *path)
{
    static char text[65536];
    FILE *file = fopen(path, "r");
    size_t got = 0;

    if (file != NULL) {
        got = fread(text, 1, sizeof(text) - 1, file);
        (void)fclose(file);
    }
    text[got] = '\0';
    return text;
}

static bool write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    const bool done = file != NULL && fputs(text, file) >= 0;

    return file != NULL && fclose(file) == 0 && done;
}

static const uint64_t gpu_bytes[] = {100, 200}, gpu_peaks[] = {300, 400};
static const struct zo_step_metrics step = {
    .step = 7,
    .epoch = 0.25,
    .loss = 3.5,
    .grad_norm = 1.25,
    .clip_coefficient = 0.8,
    .learning_rate = 5e-5,
    .loss_scale = 65536,
    .overflow = false,
    .skipped_steps = 1,
    .rows = 4,
    .tokens = 200,
    .label_tokens = 90,
    .tokens_total = 1400,
    .step_seconds = 0.5,
    .device_count = 2,
    .gpu_bytes = gpu_bytes,
    .gpu_bytes_peak = gpu_peaks,
    .host_bytes = 1,
    .host_bytes_peak = 2,
    .pinned_bytes = 3,
    .nvme_bytes = 4,
    .h2d_bytes = 5,
    .d2h_bytes = 6,
    .nvme_read_bytes = 7,
    .nvme_write_bytes = 8,
    .compute_seconds = 0.0625,
    .h2d_seconds = 0.125,
    .d2h_seconds = 0.25,
    .collective_seconds = 0.5,
    .cpu_seconds = 1.5,
    .nvme_seconds = 2.5,
};

/* The keys and values of a step line behind its time. */
static const char step_tail[] =
    "\"loss\":3.5,\"grad_norm\":1.25,\"clip_coefficient\":0.8,"
    "\"learning_rate\":5e-05,\"loss_scale\":65536,\"overflow\":false,"
    "\"skipped_steps\":1,\"rows\":4,\"tokens\":200,\"label_tokens\":90,"
    "\"tokens_total\":1400,\"step_seconds\":0.5,\"tokens_per_second\":400,"
    "\"gpu_bytes\":[100,200],\"gpu_bytes_peak\":[300,400],\"host_bytes\":1,"
    "\"host_bytes_peak\":2,\"pinned_bytes\":3,\"nvme_bytes\":4,"
    "\"h2d_bytes\":5,\"d2h_bytes\":6,\"nvme_read_bytes\":7,"
    "\"nvme_write_bytes\":8,\"compute_seconds\":0.0625,"
    "\"compute_idle_seconds\":0.4375,\"h2d_seconds\":0.125,"
    "\"h2d_idle_seconds\":0.375,\"h2d_gbps\":4e-08,\"d2h_seconds\":0.25,"
    "\"d2h_idle_seconds\":0.25,\"d2h_gbps\":2.4e-08,"
    "\"collective_seconds\":0.5,\"collective_idle_seconds\":0,"
    "\"cpu_seconds\":1.5,\"cpu_idle_seconds\":0,\"nvme_seconds\":2.5}\n";

static void check_step_line(void)
{
    static const char start[] =
        "{\"kind\":\"step\",\"step\":7,\"epoch\":0.25,\"time\":\"20";
    struct zo_metrics *metrics = NULL;
    const char *text;
    enum zo_status status;

    TAP_CHECK_INT(zo_metrics_open(
                      &(struct zo_metrics_options){.path = first_path,
                                                   .second_path = second_path},
                      &metrics),
                  ZO_OK);
    zo_memory_freeze(true);
    status = zo_metrics_step(metrics, &step);
    zo_memory_freeze(false);
    zo_metrics_close(metrics);
    TAP_CHECK_INT(status, ZO_OK);
    text = read_text(first_path);
    TAP_CHECK(strncmp(text, start, strlen(start)) == 0);
    TAP_CHECK(strstr(text, step_tail) != NULL);
    TAP_CHECK_INT(strlen(text), strlen(start) + 24 + strlen(step_tail));
    text = read_text(second_path);
    TAP_CHECK(strstr(text, step_tail) != NULL);
}

static void members(struct zo_jsonl *json, const void *context)
{
    zo_jsonl_text(json, "name", context);
}

static void check_other_lines(void)
{
    struct zo_metrics *metrics = NULL;
    const struct zo_run_metrics run = {
        .version = "1.2.3",
        .config = members,
        .config_context = "cfg",
        .machine = members,
        .machine_context = "box",
    };
    const struct zo_eval_metrics eval = {
        .step = 3,
        .epoch = 1.0,
        .loss = 0.0,
        .rows = 2,
        .tokens = 9,
        .label_tokens = 4,
        .seconds = 0.5,
        .is_best = true,
    };
    const struct zo_save_metrics save = {
        .step = 3,
        .epoch = 1.0,
        .path = "out/state-00000003",
        .bytes = 12,
        .seconds = 1.5,
        .stall_seconds = 0.5,
    };
    const char *text;

    TAP_CHECK_INT(
        zo_metrics_open(
            &(struct zo_metrics_options){.second_path = second_path}, &metrics),
        ZO_OK);
    TAP_CHECK_INT(zo_metrics_run(metrics, &run), ZO_OK);
    TAP_CHECK_INT(zo_metrics_eval(metrics, &eval), ZO_OK);
    TAP_CHECK_INT(zo_metrics_save(metrics, &save), ZO_OK);
    zo_metrics_close(metrics);
    text = read_text(second_path);
    TAP_CHECK(strncmp(text,
                      "{\"kind\":\"run\",\"format\":1,"
                      "\"version\":\"1.2.3\",\"time\":\"",
                      50) == 0);
    TAP_CHECK(strstr(text, "\"config\":{\"name\":\"cfg\"},"
                           "\"machine\":{\"name\":\"box\"},"
                           "\"fingerprints\":{}}\n") != NULL);
    TAP_CHECK(strstr(text, "\n{\"kind\":\"eval\",\"step\":3,\"epoch\":1,") !=
              NULL);
    TAP_CHECK(strstr(text, "\"loss\":0,\"perplexity\":1,\"rows\":2,"
                           "\"tokens\":9,\"label_tokens\":4,\"seconds\":0.5,"
                           "\"is_best\":true}\n") != NULL);
    TAP_CHECK(strstr(text, "\n{\"kind\":\"save\",\"step\":3,") != NULL);
    TAP_CHECK(strstr(text, "\"path\":\"out/state-00000003\",\"bytes\":12,"
                           "\"seconds\":1.5,\"stall_seconds\":0.5}\n") != NULL);
}

static void check_not_finite(void)
{
    struct zo_metrics *metrics = NULL;
    struct zo_step_metrics bad = step;
    const char *text;

    bad.loss = (double)NAN;
    bad.grad_norm = (double)INFINITY;
    bad.step_seconds = 0.0;
    TAP_CHECK_INT(
        zo_metrics_open(&(struct zo_metrics_options){.path = first_path},
                        &metrics),
        ZO_OK);
    TAP_CHECK_INT(zo_metrics_step(metrics, &bad), ZO_OK);
    zo_metrics_close(metrics);
    text = read_text(first_path);
    TAP_CHECK(strstr(text, "\"loss\":null,\"grad_norm\":null,") != NULL);
    TAP_CHECK(strstr(text, "\"tokens_per_second\":0,") != NULL);
}

static enum zo_status reopen(bool is_append)
{
    struct zo_metrics *metrics = NULL;
    enum zo_status status = zo_metrics_open(
        &(struct zo_metrics_options){
            .path = first_path, .is_append = is_append, .last_step = 1},
        &metrics);

    if (status == ZO_OK) {
        status =
            zo_metrics_run(metrics, &(struct zo_run_metrics){.version = "2"});
    }
    zo_metrics_close(metrics);
    return status;
}

static void check_append(void)
{
    static const char whole[] = "{\"kind\":\"step\",\"step\":1}\n";
    char text[8192], filler[5000];

    /* A whole file is kept, with the new run behind it. */
    TAP_CHECK(write_text(first_path, whole));
    TAP_CHECK_INT(reopen(true), ZO_OK);
    TAP_CHECK(strncmp(read_text(first_path), whole, strlen(whole)) == 0);
    TAP_CHECK(strncmp(read_text(first_path) + strlen(whole),
                      "{\"kind\":\"run\"", 13) == 0);

    /* A line that was cut off goes, however long it is. */
    memset(filler, 'x', sizeof(filler));
    filler[sizeof(filler) - 1] = '\0';
    (void)snprintf(text, sizeof(text), "%s{\"kind\":\"save\",\"path\":\"%s",
                   whole, filler);
    TAP_CHECK(write_text(first_path, text));
    TAP_CHECK_INT(reopen(true), ZO_OK);
    TAP_CHECK(strncmp(read_text(first_path), whole, strlen(whole)) == 0);
    TAP_CHECK(strncmp(read_text(first_path) + strlen(whole),
                      "{\"kind\":\"run\"", 13) == 0);

    /* So does one cut in its first letters, alone in the file. */
    TAP_CHECK(write_text(first_path, "{\"ki"));
    TAP_CHECK_INT(reopen(true), ZO_OK);
    TAP_CHECK(strncmp(read_text(first_path), "{\"kind\":\"run\"", 13) == 0);

    /* Steps that will be done again go, with all that follows them. */
    (void)snprintf(text, sizeof(text),
                   "%s{\"kind\":\"eval\",\"step\":1,\"x\":\"%s\"}\n"
                   "{\"kind\":\"step\",\"step\":2}\n{\"kind\":\"run\"}\n%s",
                   whole, filler, whole);
    TAP_CHECK(write_text(first_path, text));
    TAP_CHECK_INT(reopen(true), ZO_OK);
    TAP_CHECK(strstr(read_text(first_path), "x\"}\n{\"kind\":\"run\",") !=
              NULL);

    /* Nobody else's file is touched. */
    TAP_CHECK(write_text(first_path, "dear diary"));
    TAP_CHECK_INT(reopen(true), ZO_E_USAGE);
    TAP_CHECK(strcmp(read_text(first_path), "dear diary") == 0);
    TAP_CHECK(write_text(first_path, "{\"content\":\"a\"}\n"));
    TAP_CHECK_INT(reopen(true), ZO_E_USAGE);
    TAP_CHECK(strcmp(read_text(first_path), "{\"content\":\"a\"}\n") == 0);
}

/* No room for a line, and then there is: no half of one stays. */
static void check_full_disk(void)
{
    struct zo_metrics *metrics = NULL;
    struct rlimit old, limit;
    const struct zo_run_metrics run = {.version = "2"};
    static char first[65536];

    (void)signal(SIGXFSZ, SIG_IGN);
    TAP_CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    TAP_CHECK_INT(
        zo_metrics_open(&(struct zo_metrics_options){.path = first_path},
                        &metrics),
        ZO_OK);
    TAP_CHECK_INT(zo_metrics_run(metrics, &run), ZO_OK);
    (void)snprintf(first, sizeof(first), "%s", read_text(first_path));
    limit = (struct rlimit){strlen(first) + 20, old.rlim_max};
    TAP_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    TAP_CHECK_INT(zo_metrics_run(metrics, &run), ZO_E_IO);
    TAP_CHECK(strstr(zo_err_last()->text, "cannot write to") != NULL);
    TAP_CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    TAP_CHECK(strcmp(read_text(first_path), first) == 0);
    TAP_CHECK_INT(zo_metrics_run(metrics, &run), ZO_OK);
    zo_metrics_close(metrics);
    TAP_CHECK(strncmp(read_text(first_path) + strlen(first), "{\"kind\":", 8) ==
              0);
}

static void check_fresh(void)
{
    TAP_CHECK(write_text(first_path, "{\"kind\":\"step\",\"step\":1}\n"));
    TAP_CHECK_INT(reopen(false), ZO_OK);
    TAP_CHECK(strncmp(read_text(first_path), "{\"kind\":\"run\"", 13) == 0);

    /* An empty file is anybody's; another one is not emptied. */
    TAP_CHECK(write_text(first_path, ""));
    TAP_CHECK_INT(reopen(false), ZO_OK);
    TAP_CHECK(write_text(first_path, "{\"content\":\"a\"}\n"));
    TAP_CHECK_INT(reopen(false), ZO_E_USAGE);
    TAP_CHECK(strstr(zo_err_last()->text, first_path) != NULL);
    TAP_CHECK(strcmp(read_text(first_path), "{\"content\":\"a\"}\n") == 0);
}

static void check_one_file_twice(void)
{
    struct zo_metrics *metrics = NULL;

    TAP_CHECK_INT(
        zo_metrics_open(&(struct zo_metrics_options){.path = first_path,
                                                     .second_path = first_path},
                        &metrics),
        ZO_OK);
    TAP_CHECK_INT(
        zo_metrics_run(metrics, &(struct zo_run_metrics){.version = "2"}),
        ZO_OK);
    zo_metrics_close(metrics);
    TAP_CHECK(strchr(read_text(first_path), '\n')[1] == '\0');
}

static void check_failures(void)
{
    struct zo_metrics *metrics = NULL;
    struct zo_metrics_options options = {
        .path = first_path,
        .second_path = "/dev/full",
    };
    const struct zo_run_metrics run = {.version = "2"};

    TAP_CHECK_INT(zo_metrics_open(&options, &metrics), ZO_OK);
    TAP_CHECK_INT(zo_metrics_run(metrics, &run), ZO_E_IO);
    zo_metrics_close(metrics);
    TAP_CHECK(strstr(zo_err_last()->text, "/dev/full") != NULL);
    TAP_CHECK(strchr(read_text(first_path), '\n') != NULL); /* still */

    /* What cannot be opened costs nothing of the other. */
    options.second_path = "no-such-folder/metrics.jsonl";
    TAP_CHECK_INT(zo_metrics_open(&options, &metrics), ZO_E_USAGE);
    TAP_CHECK(strchr(read_text(first_path), '\n') != NULL);
    options.second_path = second_path;

    options.path = "no-such-folder/metrics.jsonl";
    TAP_CHECK_INT(zo_metrics_open(&options, &metrics), ZO_E_USAGE);
    TAP_CHECK(strstr(zo_err_last()->text, "no-such-folder/metrics.jsonl") !=
              NULL);
    zo_memory_fail_at(1);
    TAP_CHECK_INT(zo_metrics_open(&options, &metrics), ZO_E_NOMEM);
    zo_memory_fail_at(0);
    zo_metrics_close(NULL);
}

/* Neither by a check, nor by an open that fails when one is open. */
static void check_refusals(void)
{
    struct zo_metrics *metrics = NULL;
    const struct zo_metrics_options options = {
        .path = first_path, .second_path = second_path, .is_append = true};

    TAP_CHECK_INT(zo_metrics_check(&options), ZO_OK);
    TAP_CHECK(access(first_path, F_OK) != 0);
    TAP_CHECK(access(second_path, F_OK) != 0);
    TAP_CHECK(symlink("no-such-folder/a.jsonl", first_path) == 0);
    TAP_CHECK_INT(zo_metrics_check(&options), ZO_E_USAGE);
    TAP_CHECK(strstr(zo_err_last()->text, "leads nowhere") != NULL);
    TAP_CHECK_INT(zo_metrics_open(&options, &metrics), ZO_E_USAGE);
    TAP_CHECK(access(second_path, F_OK) != 0 && unlink(first_path) == 0);
    TAP_CHECK(write_text(first_path, "{\"kind\":\"run\"}\nnot ours"));
    TAP_CHECK_INT(zo_metrics_check(&options), ZO_E_USAGE);
    TAP_CHECK_INT(zo_metrics_open(&options, &metrics), ZO_E_USAGE);
    TAP_CHECK(access(second_path, F_OK) != 0);
    TAP_CHECK(strcmp(read_text(first_path), "{\"kind\":\"run\"}\nnot ours") ==
              0);

    /* Nobody reads it, and nobody waits. */
    TAP_CHECK(unlink(first_path) == 0 && mkfifo(first_path, 0600) == 0);
    TAP_CHECK_INT(zo_metrics_open(&options, &metrics), ZO_E_USAGE);
    TAP_CHECK(strstr(zo_err_last()->text, first_path) != NULL);
    TAP_CHECK(strstr(zo_err_last()->text, "is a FIFO") != NULL);
    TAP_CHECK(access(second_path, F_OK) != 0);
}

/* Each case in a folder of its own. */
#define IN_FOLDER(name)                                          \
    static void test_##name(void)                                \
    {                                                            \
        if (!set_up()) {                                         \
            tap_fail(__FILE__, __LINE__, "no temporary folder"); \
            return;                                              \
        }                                                        \
        check_##name();                                          \
        tear_down();                                             \
    }
IN_FOLDER(step_line)
IN_FOLDER(other_lines)
IN_FOLDER(not_finite)
IN_FOLDER(append)
IN_FOLDER(full_disk)
IN_FOLDER(fresh)
IN_FOLDER(one_file_twice)
IN_FOLDER(failures)
IN_FOLDER(refusals)

int main(void)
{
    static const struct tap_case cases[] = {
        {"a step line has every key, in both files", test_step_line},
        {"run, eval and save lines have theirs", test_other_lines},
        {"what is not finite is null", test_not_finite},
        {"a continued file loses only a line that was cut off", test_append},
        {"a line that found no room leaves nothing", test_full_disk},
        {"a fresh run empties an old file", test_fresh},
        {"two names of one file get one copy", test_one_file_twice},
        {"a failing file is named and does not stop the other", test_failures},
        {"what is refused leaves nothing behind", test_refusals},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
