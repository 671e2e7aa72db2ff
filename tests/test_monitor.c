/*
 * What TensorBoard and a spreadsheet would read: the event file record by
 * record, with its checksums, and the CSV files line by line.
 */
#include "src/train/monitor.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/folders.h"
#include "src/base/memory.h"
#include "tests/tap.h"

#define VALUES_MAX 64

static char folder[] = "test_monitor.XXXXXX";
static char board[128], csv[128];

static bool set_up(void)
{
    memcpy(folder + sizeof(folder) - 7, "XXXXXX", 6);
    if (mkdtemp(folder) == NULL) {
        return false;
    }
    (void)snprintf(board, sizeof(board), "%s/runs/job", folder);
    (void)snprintf(csv, sizeof(csv), "%s/csv/job", folder);
    return true;
}

/* The files of a folder, then itself. */
static void remove_all(const char *path)
{
    DIR *dir = opendir(path);
    char name[600];

    for (struct dirent *entry = dir == NULL ? NULL : readdir(dir);
         entry != NULL; entry = readdir(dir)) {
        if (entry->d_name[0] != '.') {
            (void)snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
            (void)unlink(name);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    (void)rmdir(path);
}

static void tear_down(void)
{
    char name[128];

    remove_all(board);
    remove_all(csv);
    (void)snprintf(name, sizeof(name), "%s/runs", folder);
    (void)rmdir(name);
    (void)snprintf(name, sizeof(name), "%s/csv", folder);
    (void)rmdir(name);
    (void)rmdir(folder);
}

static struct zo_monitor_options both(void)
{
    return (struct zo_monitor_options){
        .tensorboard = board, .csv = csv, .step_rows = 8};
}

static size_t read_all(const char *path, uint8_t *bytes, size_t most)
{
    FILE *file = fopen(path, "rb");
    size_t got = 0;

    if (file != NULL) {
        got = fread(bytes, 1, most, file);
        (void)fclose(file);
    }
    return got;
}

static const char *read_csv(const char *name)
{
    static uint8_t text[4096];
    char path[300];

    (void)snprintf(path, sizeof(path), "%s/%s", csv, name);
    text[read_all(path, text, sizeof(text) - 1)] = '\0';
    return (const char *)text;
}

/* ---- a reader of event files --------------------------------------------- */

struct scalar {
    char tag[64];
    float value;
    uint64_t step;
};

static struct scalar scalars[VALUES_MAX];
static int scalar_count, event_count;
static char version[32];

static uint64_t little(const uint8_t *bytes, int count)
{
    uint64_t value = 0;

    for (int i = count - 1; i >= 0; i--) {
        value = value << 8 | bytes[i];
    }
    return value;
}

/* CRC-32C bit by bit, masked as in TensorFlow's lib/hash/crc32c.h. */
static uint32_t crc_of(const uint8_t *bytes, size_t count)
{
    uint32_t crc = 0xffffffff;

    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
        }
    }
    crc ^= 0xffffffff;
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static uint64_t varint(const uint8_t *bytes, size_t *at)
{
    uint64_t value = 0;

    for (int shift = 0;; shift += 7) {
        value |= (uint64_t)(bytes[*at] & 0x7f) << shift;
        if ((bytes[(*at)++] & 0x80) == 0) {
            return value;
        }
    }
}

static void read_value(const uint8_t *bytes, size_t size, uint64_t step)
{
    struct scalar *scalar = &scalars[scalar_count++];
    size_t at = 0;

    scalar->step = step;
    while (at < size) {
        const uint64_t key = varint(bytes, &at);

        if (key == (1 << 3 | 2)) {
            const size_t length = varint(bytes, &at);

            (void)snprintf(scalar->tag, sizeof(scalar->tag), "%.*s",
                           (int)length, (const char *)bytes + at);
            at += length;
        } else if (key == (2 << 3 | 5)) {
            const uint32_t bits = (uint32_t)little(bytes + at, 4);

            memcpy(&scalar->value, &bits, sizeof(bits));
            at += 4;
        } else {
            tap_fail(__FILE__, __LINE__, "key %llu", (unsigned long long)key);
            return;
        }
    }
}

static void read_summary(const uint8_t *bytes, size_t size, uint64_t step)
{
    size_t at = 0;

    while (at < size && scalar_count < VALUES_MAX) {
        size_t length;

        TAP_CHECK(varint(bytes, &at) == (1 << 3 | 2));
        length = varint(bytes, &at);
        read_value(bytes + at, length, step);
        at += length;
    }
    TAP_CHECK(at == size);
}

static void read_event(const uint8_t *bytes, size_t size)
{
    uint64_t step = 0, bits;
    double seconds = 0.0;
    size_t at = 0;

    while (at < size) {
        const uint64_t key = varint(bytes, &at);
        size_t length;

        if (key == (1 << 3 | 1)) {
            bits = little(bytes + at, 8);
            memcpy(&seconds, &bits, sizeof(bits));
            at += 8;
        } else if (key == (2 << 3 | 0)) {
            step = varint(bytes, &at);
        } else if (key == (3 << 3 | 2)) {
            length = varint(bytes, &at);
            (void)snprintf(version, sizeof(version), "%.*s", (int)length,
                           (const char *)bytes + at);
            at += length;
        } else {
            TAP_CHECK(key == (5 << 3 | 2));
            length = varint(bytes, &at);
            read_summary(bytes + at, length, step);
            at += length;
        }
    }
    TAP_CHECK(at == size);
    TAP_CHECK(seconds > 1.5e9); /* a wall clock */
    event_count++;
}

/* The only file of the folder, into `scalars`. */
static void read_events(void)
{
    static uint8_t bytes[65536];
    DIR *dir = opendir(board);
    char path[600] = "";
    size_t size, at = 0;

    scalar_count = event_count = 0;
    for (struct dirent *entry = dir == NULL ? NULL : readdir(dir);
         entry != NULL; entry = readdir(dir)) {
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) == 0) {
            (void)snprintf(path, sizeof(path), "%s/%s", board, entry->d_name);
        }
    }
    TAP_CHECK(dir != NULL && closedir(dir) == 0 && path[0] != '\0');
    size = read_all(path, bytes, sizeof(bytes));
    while (at < size) {
        const size_t length = little(bytes + at, 8);

        TAP_CHECK(at + 16 + length <= size);
        TAP_CHECK(little(bytes + at + 8, 4) == crc_of(bytes + at, 8));
        TAP_CHECK(little(bytes + at + 12 + length, 4) ==
                  crc_of(bytes + at + 12, length));
        read_event(bytes + at + 12, length);
        at += 16 + length;
    }
    TAP_CHECK(at == size && size > 0);
}

static const struct scalar *find_scalar(const char *tag, uint64_t step)
{
    for (int i = 0; i < scalar_count; i++) {
        if (strcmp(scalars[i].tag, tag) == 0 && scalars[i].step == step) {
            return &scalars[i];
        }
    }
    return NULL;
}

static bool has_scalar(const char *tag, uint64_t step, double value)
{
    const struct scalar *scalar = find_scalar(tag, step);

    return scalar != NULL && scalar->value == (float)value;
}

/* ---- cases --------------------------------------------------------------- */

static enum zo_status write_some(const struct zo_monitor_options *options)
{
    const struct zo_step_metrics steps[] = {
        {.step = 1,
         .loss = 7.25,
         .learning_rate = 1e-3,
         .grad_norm = 2.5,
         .tokens = 100,
         .step_seconds = 0.5,
         .loss_scale = 65536},
        {.step = 1000000,
         .loss = (double)NAN,
         .learning_rate = 0.1,
         .grad_norm = (double)INFINITY,
         .loss_scale = 1},
    };
    const struct zo_eval_metrics eval = {.step = 1, .loss = 6.5};
    struct zo_monitor *monitor = NULL;
    enum zo_status status;

    ZO_TRY(zo_monitor_open(options, &monitor));
    status = zo_monitor_step(monitor, &steps[0]);
    status = status != ZO_OK ? status : zo_monitor_eval(monitor, &eval);
    status = status != ZO_OK ? status : zo_monitor_step(monitor, &steps[1]);
    zo_monitor_close(monitor);
    return status;
}

static void test_checksum(void)
{
    /* RFC 3720, B.4: 32 bytes of zeros are 0x8a9136aa. */
    const uint8_t zeros[32] = {0};
    const uint32_t crc = 0x8a9136aa;

    TAP_CHECK(crc_of(zeros, sizeof(zeros)) ==
              (crc >> 15 | crc << 17) + 0xa282ead8);
}

static void test_events(void)
{
    const struct zo_monitor_options options = both();

    TAP_CHECK(set_up());
    TAP_CHECK_INT(write_some(&options), ZO_OK);
    read_events();
    TAP_CHECK_INT(event_count, 4);
    TAP_CHECK(strcmp(version, "brain.Event:2") == 0);
    TAP_CHECK_INT(scalar_count, 4 + 1 + 4);
    TAP_CHECK(has_scalar("Train/Samples/train_loss", 8, 7.25));
    TAP_CHECK(has_scalar("Train/Samples/lr", 8, 1e-3));
    TAP_CHECK(has_scalar("Train/Samples/grad_norm", 8, 2.5));
    TAP_CHECK(has_scalar("Train/Samples/tokens_per_second", 8, 200.0));
    TAP_CHECK(has_scalar("Eval/Samples/loss", 8, 6.5));
    TAP_CHECK(has_scalar("Train/Samples/lr", 8000000, 0.1));
    TAP_CHECK(find_scalar("Train/Samples/train_loss", 8000000) != NULL);
    TAP_CHECK(isnan(find_scalar("Train/Samples/train_loss", 8000000)->value));
    tear_down();
}

static void test_csv(void)
{
    const struct zo_monitor_options options = both();

    TAP_CHECK(set_up());
    TAP_CHECK_INT(write_some(&options), ZO_OK);
    TAP_CHECK(strcmp(read_csv("Train_Samples_train_loss.csv"),
                     "step,train_loss\r\n8,7.25\r\n8000000,nan\r\n") == 0);
    TAP_CHECK(strcmp(read_csv("Train_Samples_lr.csv"),
                     "step,lr\r\n8,0.001\r\n8000000,0.1\r\n") == 0);
    TAP_CHECK(strcmp(read_csv("Train_Samples_grad_norm.csv"),
                     "step,grad_norm\r\n8,2.5\r\n8000000,inf\r\n") == 0);
    TAP_CHECK(strcmp(read_csv("Eval_Samples_loss.csv"),
                     "step,loss\r\n8,6.5\r\n") == 0);
    TAP_CHECK(read_csv("Train_Samples_loss_scale.csv")[0] == '\0');
    TAP_CHECK_INT(write_some(&options), ZO_OK); /* goes on behind it */
    TAP_CHECK(strcmp(read_csv("Eval_Samples_loss.csv"),
                     "step,loss\r\n8,6.5\r\n8,6.5\r\n") == 0);
    tear_down();
}

static void test_loss_scale(void)
{
    struct zo_monitor_options options = both();

    TAP_CHECK(set_up());
    options.has_loss_scale = true;
    TAP_CHECK_INT(write_some(&options), ZO_OK);
    read_events();
    TAP_CHECK(has_scalar("Train/Samples/loss_scale", 8, 65536.0));
    TAP_CHECK(strcmp(read_csv("Train_Samples_loss_scale.csv"),
                     "step,loss_scale\r\n8,65536\r\n8000000,1\r\n") == 0);
    tear_down();
}

static void test_refusals(void)
{
    struct zo_monitor_options options = both();
    char path[300];
    FILE *file;

    TAP_CHECK(set_up());
    TAP_CHECK_INT(write_some(&options), ZO_OK);
    (void)snprintf(path, sizeof(path), "%s/Train_Samples_lr.csv", csv);
    file = fopen(path, "w");
    TAP_CHECK(file != NULL && fputs("somebody else's\n", file) >= 0);
    TAP_CHECK(fclose(file) == 0);
    TAP_CHECK_INT(write_some(&options), ZO_E_USAGE);
    TAP_CHECK(strstr(zo_err_last()->text, "Train_Samples_lr.csv") != NULL);
    options.csv = path; /* a file, not a folder */
    TAP_CHECK_INT(write_some(&options), ZO_E_USAGE);
    tear_down();
}

/* A FIFO that nobody reads is not waited for, and nothing else made. */
static void test_fifo(void)
{
    const struct zo_monitor_options options = both();
    char path[300];

    TAP_CHECK(set_up());
    TAP_CHECK_INT(zo_monitor_check(&options), ZO_OK);
    TAP_CHECK(access(board, F_OK) != 0 && access(csv, F_OK) != 0);
    TAP_CHECK_INT(zo_folders_make(NULL, csv, ZO_E_IO), ZO_OK);
    (void)snprintf(path, sizeof(path), "%s/Eval_Samples_loss.csv", csv);
    TAP_CHECK_INT(mkfifo(path, 0600), 0);
    TAP_CHECK_INT(write_some(&options), ZO_E_USAGE);
    TAP_CHECK(strstr(zo_err_last()->text, path) != NULL);
    TAP_CHECK(access(board, F_OK) != 0);
    (void)snprintf(path, sizeof(path), "%s/Train_Samples_lr.csv", csv);
    TAP_CHECK(access(path, F_OK) != 0);
    tear_down();
}

/* Nor one of the name that the event file is to have, in this second or the
 * next ones. */
static void test_fifo_for_events(void)
{
    const struct zo_monitor_options options = both();
    char host[65] = "", path[400];

    TAP_CHECK(set_up());
    TAP_CHECK_INT(zo_folders_make(NULL, board, ZO_E_IO), ZO_OK);
    TAP_CHECK(gethostname(host, sizeof(host) - 1) == 0);
    for (int i = 0; i < 5; i++) {
        (void)snprintf(path, sizeof(path),
                       "%s/events.out.tfevents.%010lld.%s.%ld.0", board,
                       (long long)time(NULL) + i, host, (long)getpid());
        TAP_CHECK_INT(mkfifo(path, 0600), 0);
    }
    TAP_CHECK_INT(write_some(&options), ZO_E_USAGE);
    TAP_CHECK(strstr(zo_err_last()->text, "events.out.tfevents.") != NULL);
    tear_down();
}

/* A head that was cut off is written anew. */
static void test_half_a_head(void)
{
    const struct zo_monitor_options options = both();
    char path[300];
    FILE *file;

    TAP_CHECK(set_up());
    TAP_CHECK_INT(zo_folders_make(NULL, csv, ZO_E_IO), ZO_OK);
    (void)snprintf(path, sizeof(path), "%s/Eval_Samples_loss.csv", csv);
    file = fopen(path, "w");
    TAP_CHECK(file != NULL && fputs("step,l", file) >= 0);
    TAP_CHECK(fclose(file) == 0);
    TAP_CHECK_INT(write_some(&options), ZO_OK);
    TAP_CHECK(strcmp(read_csv("Eval_Samples_loss.csv"),
                     "step,loss\r\n8,6.5\r\n") == 0);
    tear_down();
}

static void test_no_memory(void)
{
    const struct zo_monitor_options options = both();
    struct zo_monitor *monitor = NULL;
    enum zo_status status = ZO_E_NOMEM;
    uint64_t nth = 1;

    TAP_CHECK(set_up());
    for (; status == ZO_E_NOMEM; nth++) {
        zo_memory_fail_at(nth);
        status = zo_monitor_open(&options, &monitor);
        zo_memory_fail_at(0);
    }
    zo_monitor_close(monitor);
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(nth > 10);
    tear_down();
}

static const struct tap_case cases[] = {
    {"the test's own checksum is CRC-32C", test_checksum},
    {"event files hold every value, with right checksums", test_events},
    {"CSV files are those of csv_monitor", test_csv},
    {"fp16 adds the loss scale", test_loss_scale},
    {"what is another file is refused", test_refusals},
    {"a FIFO is refused, and nothing made", test_fifo},
    {"so is one that bears the event file's name", test_fifo_for_events},
    {"half a head is none", test_half_a_head},
    {"no memory is told", test_no_memory},
};

int main(void)
{
    return tap_run(cases, TAP_COUNT(cases));
}
