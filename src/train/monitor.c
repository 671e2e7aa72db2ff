#include "src/train/monitor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/file_check.h"
#include "src/base/folders.h"
#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"

#define RECORD_BYTES 1024 /* of an event of all tags */
#define LINE_BYTES   64

/* Of the whole polynomial, reversed: CRC-32C, as TFRecord asks. */
#define CRC32C_POLYNOMIAL UINT32_C(0x82f63b78)
#define CRC_MASK          UINT32_C(0xa282ead8)

enum tag { TRAIN_LOSS, RATE, LOSS_SCALE, GRAD_NORM, SPEED, EVAL_LOSS, TAGS };

static const char *const tags[TAGS] = {
    "Train/Samples/train_loss",        "Train/Samples/lr",
    "Train/Samples/loss_scale",        "Train/Samples/grad_norm",
    "Train/Samples/tokens_per_second", "Eval/Samples/loss",
};

struct zo_monitor {
    int64_t step_rows;
    bool has_loss_scale;
    int events_fd;    /* -1: none */
    int csv_fd[TAGS]; /* likewise */
    uint32_t crc_table[256];
};

struct value {
    enum tag tag;
    double value;
};

/* ---- events -------------------------------------------------------------- */

static void make_crc_table(uint32_t *table)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;

        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ ((crc & 1) != 0 ? CRC32C_POLYNOMIAL : 0);
        }
        table[byte] = crc;
    }
}

static uint32_t masked_crc(const uint32_t *table, const uint8_t *bytes,
                           size_t size_bytes)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < size_bytes; i++) {
        crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 0xff];
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + CRC_MASK;
}

/* A message of protocol buffers in the making; what is put always fits. */
struct message {
    uint8_t bytes[RECORD_BYTES];
    size_t size_bytes;
};

static void put_bytes(struct message *message, const void *bytes,
                      size_t size_bytes)
{
    ZO_ASSERT(size_bytes <= RECORD_BYTES - message->size_bytes);
    memcpy(message->bytes + message->size_bytes, bytes, size_bytes);
    message->size_bytes += size_bytes;
}

static void put_varint(struct message *message, uint64_t value)
{
    do {
        const uint8_t byte =
            (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));

        put_bytes(message, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

/* Little endian, whatever the machine. */
static void put_fixed(struct message *message, uint64_t bits, int size_bytes)
{
    for (int i = 0; i < size_bytes; i++) {
        const uint8_t byte = (uint8_t)(bits >> (8 * i));

        put_bytes(message, &byte, 1);
    }
}

/* Wire types: 0 varint, 1 eight bytes, 2 bytes with a length, 5 four bytes. */
static void put_key(struct message *message, uint32_t field, uint32_t type)
{
    put_varint(message, field << 3 | type);
}

static void put_text(struct message *message, uint32_t field, const char *text)
{
    put_key(message, field, 2);
    put_varint(message, strlen(text));
    put_bytes(message, text, strlen(text));
}

static void put_message(struct message *message, uint32_t field,
                        const struct message *inner)
{
    put_key(message, field, 2);
    put_varint(message, inner->size_bytes);
    put_bytes(message, inner->bytes, inner->size_bytes);
}

/* Event.wall_time is 1, Event.step is 2. */
static void begin_event(struct message *event, int64_t step)
{
    const double seconds = (double)zo_clock_wall_ms() / 1000.0;
    uint64_t bits;

    event->size_bytes = 0;
    memcpy(&bits, &seconds, sizeof(bits));
    put_key(event, 1, 1);
    put_fixed(event, bits, 8);
    put_key(event, 2, 0);
    put_varint(event, (uint64_t)step);
}

/* Summary.Value.tag is 1, .simple_value is 2; Summary.value is 1. */
static void put_value(struct message *summary, const struct value *value)
{
    const float number = (float)value->value;
    struct message inner = {.size_bytes = 0};
    uint32_t bits;

    memcpy(&bits, &number, sizeof(bits));
    put_text(&inner, 1, tags[value->tag]);
    put_key(&inner, 2, 5);
    put_fixed(&inner, bits, 4);
    put_message(summary, 1, &inner);
}

static enum zo_status write_bytes(int fd, const void *bytes, size_t size_bytes,
                                  const char *what)
{
    const ssize_t wrote = write(fd, bytes, size_bytes);

    return wrote == (ssize_t)size_bytes
               ? ZO_OK
               : ZO_FAIL_NATIVE(ZO_E_IO, wrote < 0 ? errno : ENOSPC,
                                "cannot write %s: %s", what,
                                strerror(wrote < 0 ? errno : ENOSPC));
}

/* Length, its checksum, the event, its checksum. */
static enum zo_status write_event(struct zo_monitor *monitor,
                                  const struct message *event)
{
    struct message record = {.size_bytes = 0};

    put_fixed(&record, event->size_bytes, 8);
    put_fixed(&record, masked_crc(monitor->crc_table, record.bytes, 8), 4);
    put_bytes(&record, event->bytes, event->size_bytes);
    put_fixed(&record,
              masked_crc(monitor->crc_table, event->bytes, event->size_bytes),
              4);
    return write_bytes(monitor->events_fd, record.bytes, record.size_bytes,
                       "the TensorBoard events");
}

/* Event.summary is 5. */
static enum zo_status write_values(struct zo_monitor *monitor, int64_t rows,
                                   const struct value *values, size_t count)
{
    struct message event, summary = {.size_bytes = 0};

    for (size_t i = 0; i < count; i++) {
        put_value(&summary, &values[i]);
    }
    begin_event(&event, rows);
    put_message(&event, 5, &summary);
    return write_event(monitor, &event);
}

/* ---- lines --------------------------------------------------------------- */

/* As Python writes a number: the fewest digits that read back the same. */
static void format_number(char *text, double value)
{
    if (!isfinite(value)) {
        (void)snprintf(text, LINE_BYTES / 2, "%s",
                       isnan(value) ? "nan" : (value > 0.0 ? "inf" : "-inf"));
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, LINE_BYTES / 2, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            return;
        }
    }
}

static enum zo_status write_line(struct zo_monitor *monitor, int64_t rows,
                                 const struct value *value)
{
    char number[LINE_BYTES / 2], line[LINE_BYTES];

    format_number(number, value->value);
    (void)snprintf(line, sizeof(line), "%" PRId64 ",%s\r\n", rows, number);
    return write_bytes(monitor->csv_fd[value->tag], line, strlen(line),
                       "the lines of csv_monitor");
}

static enum zo_status write_all(struct zo_monitor *monitor, int64_t rows,
                                const struct value *values, size_t count)
{
    enum zo_status status = ZO_OK;

    if (monitor->events_fd >= 0) {
        status = write_values(monitor, rows, values, count);
    }
    for (size_t i = 0; i < count; i++) {
        if (monitor->csv_fd[values[i].tag] >= 0) {
            const enum zo_status line = write_line(monitor, rows, &values[i]);

            status = status != ZO_OK ? status : line;
        }
    }
    return status;
}

enum zo_status zo_monitor_step(struct zo_monitor *monitor,
                               const struct zo_step_metrics *step)
{
    const struct value values[] = {
        {TRAIN_LOSS, step->loss},
        {RATE, step->learning_rate},
        {GRAD_NORM, step->grad_norm},
        {SPEED, zo_step_tokens_per_second(step)},
        {LOSS_SCALE, step->loss_scale}, /* last: not always there */
    };

    return write_all(monitor, step->step * monitor->step_rows, values,
                     ZO_COUNT(values) - !monitor->has_loss_scale);
}

enum zo_status zo_monitor_eval(struct zo_monitor *monitor,
                               const struct zo_eval_metrics *eval)
{
    const struct value value = {EVAL_LOSS, eval->loss};

    return write_all(monitor, eval->step * monitor->step_rows, &value, 1);
}

/* ---- files --------------------------------------------------------------- */

/* O_NONBLOCK: a FIFO of that name would wait for its reader. */
static enum zo_status open_file(const char *folder, const char *name,
                                int *fd_out)
{
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK;
    char *path = NULL;
    enum zo_status status = ZO_OK;

    ZO_TRY(zo_disk_join(folder, name, &path));
    *fd_out = open(path, flags, 0666);
    if (*fd_out < 0) {
        status = ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "cannot open %s: %s", path,
                                strerror(errno));
    }
    zo_free(path);
    return status;
}

/* The name that TensorBoard looks for; Event.file_version is 3. */
static enum zo_status open_events(struct zo_monitor *monitor,
                                  const char *folder)
{
    char host[65] = "", name[200];
    struct message event;

    (void)gethostname(host, sizeof(host) - 1);
    for (size_t i = 0; host[i] != '\0'; i++) {
        host[i] = host[i] == '/' ? '_' : host[i];
    }
    (void)snprintf(name, sizeof(name),
                   "events.out.tfevents.%010" PRId64 ".%s.%ld.0",
                   zo_clock_wall_ms() / 1000, host[0] != '\0' ? host : "host",
                   (long)getpid());
    ZO_TRY(open_file(folder, name, &monitor->events_fd));
    begin_event(&event, 0);
    put_text(&event, 3, "brain.Event:2");
    return write_event(monitor, &event);
}

/* "Train/Samples/lr" is Train_Samples_lr.csv, whose columns are step,lr. */
struct sheet {
    char name[LINE_BYTES], head[LINE_BYTES];
};

static struct sheet sheet_of(enum tag tag)
{
    struct sheet sheet;

    (void)snprintf(sheet.name, sizeof(sheet.name), "%s.csv", tags[tag]);
    for (size_t i = 0; sheet.name[i] != '\0'; i++) {
        sheet.name[i] = sheet.name[i] == '/' ? '_' : sheet.name[i];
    }
    (void)snprintf(sheet.head, sizeof(sheet.head), "step,%s\r\n",
                   strrchr(tags[tag], '/') + 1);
    return sheet;
}

static bool has_sheet(const struct zo_monitor_options *options, int tag)
{
    return options->csv != NULL &&
           (tag != LOSS_SCALE || options->has_loss_scale);
}

/* One that is there goes on; with a part of its head it would be none. */
static enum zo_status open_csv(struct zo_monitor *monitor, const char *folder,
                               enum tag tag)
{
    const struct sheet sheet = sheet_of(tag);
    struct stat info;
    int fd;

    ZO_TRY(open_file(folder, sheet.name, &monitor->csv_fd[tag]));
    fd = monitor->csv_fd[tag];
    if (fstat(fd, &info) == 0 && info.st_size >= (off_t)strlen(sheet.head)) {
        return ZO_OK;
    }
    return ftruncate(fd, 0) == 0
               ? write_bytes(fd, sheet.head, strlen(sheet.head), sheet.name)
               : ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot empty %s/%s: %s",
                                folder, sheet.name, strerror(errno));
}

static enum zo_status check_csv(const char *folder, enum tag tag)
{
    const struct sheet sheet = sheet_of(tag);
    const struct zo_file_check check = {
        .what = "file of csv_monitor",
        .start = sheet.head,
        .is_regular = true,
    };
    struct stat info;
    char *path = NULL;
    enum zo_status status;

    ZO_TRY(zo_disk_join(folder, sheet.name, &path));
    status = lstat(path, &info) == 0 ? zo_file_check(path, &check) : ZO_OK;
    zo_free(path);
    return status;
}

enum zo_status zo_monitor_check(const struct zo_monitor_options *options)
{
    if (options->tensorboard != NULL) {
        ZO_TRY(zo_folders_check(options->tensorboard, ZO_E_USAGE));
    }
    if (options->csv != NULL) {
        ZO_TRY(zo_folders_check(options->csv, ZO_E_USAGE));
    }
    for (int t = 0; t < TAGS; t++) {
        if (has_sheet(options, t)) {
            ZO_TRY(check_csv(options->csv, (enum tag)t));
        }
    }
    return ZO_OK;
}

static enum zo_status open_all(struct zo_monitor *monitor,
                               const struct zo_monitor_options *options)
{
    if (options->tensorboard != NULL) {
        ZO_TRY(zo_folders_make(NULL, options->tensorboard, ZO_E_USAGE));
        ZO_TRY(open_events(monitor, options->tensorboard));
    }
    if (options->csv != NULL) {
        ZO_TRY(zo_folders_make(NULL, options->csv, ZO_E_USAGE));
    }
    for (int t = 0; t < TAGS; t++) {
        if (has_sheet(options, t)) {
            ZO_TRY(open_csv(monitor, options->csv, (enum tag)t));
        }
    }
    return ZO_OK;
}

enum zo_status zo_monitor_open(const struct zo_monitor_options *options,
                               struct zo_monitor **monitor_out)
{
    struct zo_monitor *monitor = NULL;
    enum zo_status status;

    ZO_TRY(zo_monitor_check(options));
    ZO_TRY(zo_alloc(1, sizeof(*monitor), "the monitors", &monitor));
    monitor->step_rows = options->step_rows;
    monitor->has_loss_scale = options->has_loss_scale;
    monitor->events_fd = -1;
    for (int t = 0; t < TAGS; t++) {
        monitor->csv_fd[t] = -1;
    }
    make_crc_table(monitor->crc_table);
    status = open_all(monitor, options);
    if (status != ZO_OK) {
        zo_monitor_close(monitor);
        return status;
    }
    *monitor_out = monitor;
    return ZO_OK;
}

void zo_monitor_close(struct zo_monitor *monitor)
{
    if (monitor == NULL) {
        return;
    }
    if (monitor->events_fd >= 0) {
        (void)close(monitor->events_fd);
    }
    for (int t = 0; t < TAGS; t++) {
        if (monitor->csv_fd[t] >= 0) {
            (void)close(monitor->csv_fd[t]);
        }
    }
    zo_free(monitor);
}
