#include "bench/nvme_rate.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/memory.h"

#define BUFFERS       16
#define REQUEST_BYTES ((size_t)8 << 20) /* at least */
#define REQUESTS_MIN  BUFFERS           /* of a run */

struct buffer {
    struct zo_bench_nvme *bench;
    char *memory;
    bool writes;
    struct buffer *next; /* free */
};

struct zo_bench_nvme {
    struct zo_nvme *store;
    int folder;   /* its descriptor; -1: cannot be had */
    char *memory; /* owned; BUFFERS requests */
    size_t request_bytes;
    uint64_t requests; /* of the file */
    struct buffer buffers[BUFFERS];

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    struct buffer *free_buffers;
    uint64_t done; /* requests */
    int64_t started_ns, eighth_ns, half_ns, ended_ns;
    struct zo_err failure; /* ZO_OK: none */
};

/* Bytes that no disk can pack. */
static void fill(char *memory, size_t bytes)
{
    uint64_t *words = (uint64_t *)(void *)memory;

    for (size_t i = 0; i < bytes / sizeof(words[0]); i++) {
        uint64_t word = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

        word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        words[i] = word ^ (word >> 27);
    }
}

static enum zo_status make_buffers(struct zo_bench_nvme *bench)
{
    const size_t bytes = bench->request_bytes * BUFFERS;

    ZO_TRY(
        zo_huge_alloc(bytes, "the buffers of the measurement", &bench->memory));
    fill(bench->memory, bytes);
    for (int i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = &bench->buffers[i];

        buffer->bench = bench;
        buffer->memory = bench->memory + (size_t)i * bench->request_bytes;
        buffer->next = bench->free_buffers;
        bench->free_buffers = buffer;
    }
    return zo_nvme_register(bench->store, bench->memory, bytes);
}

enum zo_status zo_bench_nvme_open(const struct zo_nvme_options *options,
                                  struct zo_bench_nvme **bench_out)
{
    /* What is under way fills the queue twice. */
    const uint64_t queue =
        2 * (uint64_t)options->depth * options->block_bytes / BUFFERS;
    struct zo_nvme_options of_store = *options;
    struct zo_bench_nvme *bench;
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*bench), "the measurement", &bench));
    (void)pthread_mutex_init(&bench->lock, NULL);
    (void)pthread_cond_init(&bench->changed, NULL);
    bench->request_bytes = zo_round_up(
        queue > REQUEST_BYTES ? queue : REQUEST_BYTES, ZO_NVME_CHUNK);
    bench->requests =
        (options->bytes + bench->request_bytes - 1) / bench->request_bytes;
    if (bench->requests < REQUESTS_MIN) {
        bench->requests = REQUESTS_MIN;
    }
    of_store.bytes = bench->requests * bench->request_bytes;
    bench->folder = -1;
    ZO_TRY_GOTO(close_bench, zo_nvme_open(&of_store, &bench->store));
    bench->folder =
        open(of_store.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ZO_TRY_GOTO(close_bench, make_buffers(bench));
    *bench_out = bench;
    return ZO_OK;

close_bench:
    zo_bench_nvme_close(bench);
    return status;
}

void zo_bench_nvme_close(struct zo_bench_nvme *bench)
{
    if (bench == NULL) {
        return;
    }
    zo_nvme_close(bench->store);
    if (bench->folder >= 0) {
        (void)close(bench->folder);
    }
    if (bench->memory != NULL) {
        zo_pages_free(bench->memory, bench->request_bytes * BUFFERS);
    }
    (void)pthread_cond_destroy(&bench->changed);
    (void)pthread_mutex_destroy(&bench->lock);
    zo_free(bench);
}

const struct zo_nvme *zo_bench_nvme_store(const struct zo_bench_nvme *bench)
{
    return bench->store;
}

static void on_done(void *context, enum zo_status status)
{
    struct buffer *buffer = context;
    struct zo_bench_nvme *bench = buffer->bench;

    (void)pthread_mutex_lock(&bench->lock);
    bench->done++;
    if (bench->done == bench->requests / 8) {
        bench->eighth_ns = zo_clock_ns();
    }
    if (bench->done == bench->requests / 2) {
        bench->half_ns = zo_clock_ns();
    }
    if (bench->done == bench->requests) {
        bench->ended_ns = zo_clock_ns();
    }
    if (status != ZO_OK && bench->failure.status == ZO_OK) {
        bench->failure = *zo_err_last();
    }
    buffer->next = bench->free_buffers;
    bench->free_buffers = buffer;
    (void)pthread_cond_signal(&bench->changed);
    (void)pthread_mutex_unlock(&bench->lock);
}

/* NULL: something failed. */
static struct buffer *take_buffer(struct zo_bench_nvme *bench)
{
    struct buffer *buffer = NULL;

    (void)pthread_mutex_lock(&bench->lock);
    while (bench->free_buffers == NULL) {
        (void)pthread_cond_wait(&bench->changed, &bench->lock);
    }
    if (bench->failure.status == ZO_OK) {
        buffer = bench->free_buffers;
        bench->free_buffers = buffer->next;
    }
    (void)pthread_mutex_unlock(&bench->lock);
    return buffer;
}

static void give_buffer(struct zo_bench_nvme *bench, struct buffer *buffer)
{
    (void)pthread_mutex_lock(&bench->lock);
    buffer->next = bench->free_buffers;
    bench->free_buffers = buffer;
    (void)pthread_mutex_unlock(&bench->lock);
}

static enum zo_status wait_for(struct zo_bench_nvme *bench, uint64_t count)
{
    enum zo_status status;

    (void)pthread_mutex_lock(&bench->lock);
    while (bench->done < count) {
        (void)pthread_cond_wait(&bench->changed, &bench->lock);
    }
    status = bench->failure.status;
    (void)pthread_mutex_unlock(&bench->lock);
    return status == ZO_OK ? ZO_OK : zo_err_adopt(&bench->failure);
}

/* Whether the next request of a run writes. */
static bool is_write(enum zo_bench_nvme_kind kind, uint64_t reads,
                     uint64_t writes)
{
    switch (kind) {
    case ZO_BENCH_NVME_WRITE:
        return true;
    case ZO_BENCH_NVME_MIXED:
        return writes <= reads;
    case ZO_BENCH_NVME_READ:
    case ZO_BENCH_NVME_KINDS:
        break;
    }
    return false;
}

static enum zo_status start(struct zo_bench_nvme *bench, struct buffer *buffer,
                            uint64_t at)
{
    const struct zo_nvme_request request = {
        .writes = buffer->writes,
        .offset = at * bench->request_bytes,
        .memory = buffer->memory,
        .bytes = bench->request_bytes,
        .name = "the measurement",
        .done = on_done,
        .context = buffer,
    };
    const enum zo_status status = zo_nvme_submit(bench->store, &request);

    if (status != ZO_OK) {
        give_buffer(bench, buffer);
    }
    return status;
}

static double rate(const struct zo_bench_nvme *bench, uint64_t requests,
                   int64_t from_ns, int64_t to_ns)
{
    const double seconds = zo_clock_seconds(from_ns, to_ns);

    return (double)(requests * bench->request_bytes) /
           (seconds > 0.0 ? seconds : 1e-9);
}

enum zo_status zo_bench_nvme_run(struct zo_bench_nvme *bench,
                                 enum zo_bench_nvme_kind kind,
                                 struct zo_bench_nvme_rate *rate_out)
{
    const uint64_t count = bench->requests;
    uint64_t started = 0, reads = 0, writes = 0;
    enum zo_status status = ZO_OK;

    /* What the file system owes from before is not of this measurement: the
     * blocks of a file that was just removed, or just reserved. */
    if (bench->folder >= 0) {
        (void)syncfs(bench->folder);
    }
    bench->done = 0;
    bench->started_ns = zo_clock_ns();
    for (; started < count && status == ZO_OK; started++) {
        struct buffer *buffer = take_buffer(bench);

        if (buffer == NULL) {
            break;
        }
        buffer->writes = is_write(kind, reads, writes);
        /* Half a file apart where both go on, so that they never meet. */
        if (!buffer->writes) {
            status = start(bench, buffer, reads++);
        } else if (kind == ZO_BENCH_NVME_WRITE) {
            status = start(bench, buffer, writes++);
        } else {
            status = start(bench, buffer, (count / 2 + writes++) % count);
        }
    }
    if (status != ZO_OK) {
        const struct zo_err failure = *zo_err_last();

        (void)wait_for(bench, started - 1); /* it was not started */
        return zo_err_adopt(&failure);
    }
    ZO_TRY(wait_for(bench, started));
    rate_out->burst =
        rate(bench, count / 8, bench->started_ns, bench->eighth_ns);
    rate_out->sustained =
        rate(bench, count - count / 2, bench->half_ns, bench->ended_ns);
    rate_out->whole = rate(bench, count, bench->started_ns, bench->ended_ns);
    return ZO_OK;
}
