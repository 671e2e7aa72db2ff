#include "offload/nvme.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "offload/nvme_internal.h"
#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/hash.h"
#include "src/base/memory.h"
#include "src/base/text.h"

#define DEPTH_DEFAULT    32
#define DEPTH_MAX        4096
#define BLOCK_MAX        ((size_t)1 << 30)
#define THREADS_DEFAULT  8
#define THREADS_MAX      1024
#define REQUESTS_DEFAULT 1024
#define REQUESTS_MAX     (1 << 20)
/* What is written and read back at open, spread over the file. */
#define PROOF_BYTES  ((uint64_t)64 << 20)
#define PROOF_PIECES 8

/* ---- notes ---- */

void zo_nvme_note(struct zo_nvme *nvme, const char *format, ...)
{
    const size_t used = strlen(nvme->notes);
    char raw[1024], text[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(raw, sizeof(raw), format, args);
    va_end(args);
    zo_text_escape(text, sizeof(text), raw, strlen(raw));
    (void)snprintf(nvme->notes + used, sizeof(nvme->notes) - used, "%s%s",
                   used > 0 ? "\n" : "", text);
}

const char *zo_nvme_notes(const struct zo_nvme *nvme)
{
    nvme->ops->settle(nvme->backend);
    return nvme->notes;
}

/* ---- pieces ---- */

static void push(struct zo_nvme_queue *queue, struct zo_nvme_entry *entry)
{
    entry->next = NULL;
    *queue->last = entry;
    queue->last = &entry->next;
}

static void unlink_entry(struct zo_nvme_queue *queue,
                         struct zo_nvme_entry *entry)
{
    struct zo_nvme_entry **link = &queue->first;

    while (*link != entry) {
        link = &(*link)->next;
    }
    *link = entry->next;
    if (entry->next == NULL) {
        queue->last = link;
    }
}

/* With the lock held. */
static bool take(struct zo_nvme *nvme, struct zo_nvme_piece *piece_out)
{
    struct zo_nvme_queue *queue = &nvme->waiting[nvme->turn];
    struct zo_nvme_entry *entry;
    size_t rest;

    if (queue->first == NULL) {
        queue = &nvme->waiting[1 - nvme->turn];
    }
    if (queue->first == NULL) {
        return false;
    }
    nvme->turn = queue == &nvme->waiting[0] ? 1 : 0;
    entry = queue->first;
    rest = entry->request.bytes - entry->cut_bytes;
    piece_out->entry = entry;
    piece_out->offset = entry->request.offset + entry->cut_bytes;
    piece_out->memory = (char *)entry->request.memory + entry->cut_bytes;
    piece_out->bytes = rest < nvme->piece_bytes ? rest : nvme->piece_bytes;
    piece_out->writes = entry->request.writes;
    piece_out->cut_bytes = 0;
    piece_out->blocks = 0;
    piece_out->status = ZO_OK;
    entry->cut_bytes += piece_out->bytes;
    entry->pieces++;
    if (entry->cut_bytes == entry->request.bytes) {
        unlink_entry(queue, entry);
    }
    return true;
}

bool zo_nvme_take(struct zo_nvme *nvme, struct zo_nvme_piece *piece_out)
{
    bool taken;

    (void)pthread_mutex_lock(&nvme->lock);
    taken = take(nvme, piece_out);
    (void)pthread_mutex_unlock(&nvme->lock);
    return taken;
}

bool zo_nvme_take_wait(struct zo_nvme *nvme, struct zo_nvme_piece *piece_out)
{
    bool taken;

    (void)pthread_mutex_lock(&nvme->lock);
    while (!(taken = take(nvme, piece_out)) && !nvme->is_closing) {
        (void)pthread_cond_wait(&nvme->has_work, &nvme->lock);
    }
    (void)pthread_mutex_unlock(&nvme->lock);
    return taken;
}

/* The thread's latest failure is the piece's; the request's first one tells. */
static void fail_piece(struct zo_nvme *nvme, struct zo_nvme_piece *piece)
{
    struct zo_nvme_entry *entry = piece->entry;

    piece->status = zo_err_last()->status;
    (void)pthread_mutex_lock(&nvme->lock);
    if (entry->failure.status == ZO_OK) {
        entry->failure = *zo_err_last();
    }
    (void)pthread_mutex_unlock(&nvme->lock);
}

void zo_nvme_fail_piece(struct zo_nvme *nvme, struct zo_nvme_piece *piece,
                        size_t at, size_t bytes, int error)
{
    const enum zo_status status = ZO_FAIL_NATIVE(
        ZO_E_IO, error,
        "%s: cannot %s %zu bytes at offset %" PRIu64
        " of the NVMe tier's file in %s: %s",
        piece->entry->request.name, piece->writes ? "write" : "read", bytes,
        piece->offset + at, nvme->where,
        error != 0 ? strerror(error) : "the disk moves nothing");

    (void)status;
    fail_piece(nvme, piece);
}

/* Pages that a chunk of the piece has. */
static uint16_t chunk_pages(uint64_t at, size_t bytes)
{
    const uint64_t rest = bytes - at;

    return (uint16_t)((rest < ZO_NVME_CHUNK ? rest : ZO_NVME_CHUNK) /
                      ZO_NVME_ALIGN);
}

static void verify_piece(struct zo_nvme *nvme, struct zo_nvme_piece *piece)
{
    for (size_t at = 0; at < piece->bytes; at += ZO_NVME_CHUNK) {
        const size_t chunk = (piece->offset + at) / ZO_NVME_CHUNK;
        const size_t bytes = chunk_pages(at, piece->bytes) * ZO_NVME_ALIGN;
        const uint64_t hash = zo_hash64(piece->memory + at, bytes);

        if (hash != nvme->hashes[chunk]) {
            const enum zo_status status = ZO_FAIL(
                ZO_E_CORRUPT,
                "%s: %zu bytes at offset %" PRIu64
                " of the NVMe tier's file in %s are not what was written "
                "there (hash %016" PRIx64 ", want %016" PRIx64
                "): the disk, its cable or memory is faulty",
                piece->entry->request.name, bytes, piece->offset + at,
                nvme->where, hash, nvme->hashes[chunk]);

            (void)status;
            fail_piece(nvme, piece);
            return;
        }
    }
}

/* What a chunk holds from now on; nothing after a write that failed. */
static void record_piece(struct zo_nvme *nvme,
                         const struct zo_nvme_piece *piece)
{
    for (size_t at = 0; at < piece->bytes; at += ZO_NVME_CHUNK) {
        const size_t chunk = (piece->offset + at) / ZO_NVME_CHUNK;
        const uint16_t pages = chunk_pages(at, piece->bytes);

        nvme->pages[chunk] = piece->status == ZO_OK ? pages : 0;
        if (piece->status == ZO_OK && !nvme->skips_verify) {
            nvme->hashes[chunk] =
                zo_hash64(piece->memory + at, pages * ZO_NVME_ALIGN);
        }
    }
}

/* With the lock held: a request of which nothing is left to do. */
static void free_entry(struct zo_nvme *nvme, struct zo_nvme_entry *entry)
{
    struct zo_nvme_counters *counters = &nvme->counters;

    if (entry->failure.status == ZO_OK && entry->request.writes) {
        counters->writes++;
        counters->written_bytes += entry->request.bytes;
    } else if (entry->failure.status == ZO_OK) {
        counters->reads++;
        counters->read_bytes += entry->request.bytes;
    }
    entry->next = nvme->free_entries;
    nvme->free_entries = entry;
}

static void tell(struct zo_nvme *nvme, const struct zo_nvme_request *request,
                 enum zo_status status)
{
    request->done(request->context, status);
    (void)pthread_mutex_lock(&nvme->lock);
    nvme->under_way--;
    if (nvme->under_way == 0) {
        nvme->counters.busy_ns +=
            (uint64_t)(zo_clock_ns() - nvme->busy_since_ns);
        (void)pthread_cond_broadcast(&nvme->is_idle);
    }
    (void)pthread_mutex_unlock(&nvme->lock);
}

void zo_nvme_finish(struct zo_nvme *nvme, struct zo_nvme_piece *piece)
{
    struct zo_nvme_entry *entry = piece->entry;
    struct zo_nvme_request request;
    struct zo_err failure;
    bool is_last;

    if (piece->writes) {
        record_piece(nvme, piece);
    } else if (piece->status == ZO_OK && !nvme->skips_verify) {
        verify_piece(nvme, piece);
    }
    (void)pthread_mutex_lock(&nvme->lock);
    entry->pieces--;
    if (entry->failure.status != ZO_OK &&
        entry->cut_bytes < entry->request.bytes) {
        entry->cut_bytes = entry->request.bytes; /* the rest is let be */
        unlink_entry(&nvme->waiting[entry->request.writes ? 1 : 0], entry);
    }
    is_last = entry->pieces == 0 && entry->cut_bytes == entry->request.bytes;
    if (is_last) {
        request = entry->request;
        failure = entry->failure;
        free_entry(nvme, entry);
    }
    (void)pthread_mutex_unlock(&nvme->lock);
    if (is_last) {
        tell(nvme, &request,
             failure.status == ZO_OK ? ZO_OK : zo_err_adopt(&failure));
    }
}

/* ---- faults ---- */

struct zo_nvme_io zo_nvme_io_begin(struct zo_nvme *nvme, bool writes,
                                   char *memory, size_t bytes)
{
    const struct zo_nvme_faults *faults = nvme->faults;
    struct zo_nvme_io io = {.writes = writes, .memory = memory, .bytes = bytes};

    if (faults == NULL || !nvme->is_proved) {
        return io;
    }
    io.index = atomic_fetch_add(&nvme->io_count, 1) + 1;
    if (faults->short_from > 0 && io.index >= faults->short_from &&
        bytes > ZO_NVME_ALIGN) {
        io.bytes = bytes / 2 / ZO_NVME_ALIGN * ZO_NVME_ALIGN;
    }
    return io;
}

int zo_nvme_io_end(struct zo_nvme *nvme, const struct zo_nvme_io *io,
                   int result)
{
    const struct zo_nvme_faults *faults = nvme->faults;

    if (faults == NULL) {
        return result;
    }
    if (!nvme->is_proved) {
        return faults->fails_direct && nvme->is_direct ? -EINVAL : result;
    }
    if ((faults->error_at > 0 && io->index == faults->error_at) ||
        (faults->error_from > 0 && io->index >= faults->error_from)) {
        return -faults->error_errno;
    }
    if (faults->stuck_from > 0 && io->index >= faults->stuck_from) {
        return 0;
    }
    if (io->index == faults->flip_at && !io->writes && result > 0) {
        io->memory[result / 2] ^= 4;
    }
    return result;
}

/* ---- requests ---- */

static enum zo_status check_request(const struct zo_nvme *nvme,
                                    const struct zo_nvme_request *request)
{
    if (request->bytes == 0 || request->bytes % ZO_NVME_ALIGN != 0 ||
        request->offset % ZO_NVME_CHUNK != 0 ||
        (uintptr_t)request->memory % ZO_NVME_ALIGN != 0 ||
        request->offset > nvme->bytes ||
        request->bytes > nvme->bytes - request->offset) {
        return ZO_FAIL(ZO_E_ARG,
                       "%s: %zu bytes at offset %" PRIu64
                       " of the NVMe tier's file; want whole pages on a whole "
                       "chunk, within its %" PRIu64 " bytes",
                       request->name, request->bytes, request->offset,
                       nvme->bytes);
    }
    if (request->writes) {
        return ZO_OK;
    }
    for (size_t at = 0; at < request->bytes; at += ZO_NVME_CHUNK) {
        const size_t chunk = (request->offset + at) / ZO_NVME_CHUNK;
        const uint16_t pages = chunk_pages(at, request->bytes);

        if (nvme->pages[chunk] != pages) {
            return ZO_FAIL(ZO_E_ARG,
                           "%s: wants %zu bytes at offset %" PRIu64
                           " of the NVMe tier's file, where %zu were written",
                           request->name, pages * ZO_NVME_ALIGN,
                           request->offset + at,
                           nvme->pages[chunk] * ZO_NVME_ALIGN);
        }
    }
    return ZO_OK;
}

enum zo_status zo_nvme_submit(struct zo_nvme *nvme,
                              const struct zo_nvme_request *request)
{
    struct zo_nvme_entry *entry;

    ZO_TRY(check_request(nvme, request));
    (void)pthread_mutex_lock(&nvme->lock);
    entry = nvme->free_entries;
    if (entry == NULL) {
        (void)pthread_mutex_unlock(&nvme->lock);
        return ZO_FAIL(ZO_E_BUSY,
                       "%s: as many requests as the NVMe store keeps are "
                       "under way",
                       request->name);
    }
    nvme->free_entries = entry->next;
    entry->request = *request;
    entry->cut_bytes = 0;
    entry->pieces = 0;
    entry->failure.status = ZO_OK;
    push(&nvme->waiting[request->writes ? 1 : 0], entry);
    if (nvme->under_way++ == 0) {
        nvme->busy_since_ns = zo_clock_ns();
    }
    (void)pthread_cond_broadcast(&nvme->has_work);
    (void)pthread_mutex_unlock(&nvme->lock);
    nvme->ops->wake(nvme->backend);
    return ZO_OK;
}

static void wait_idle(struct zo_nvme *nvme)
{
    (void)pthread_mutex_lock(&nvme->lock);
    while (nvme->under_way > 0) {
        (void)pthread_cond_wait(&nvme->is_idle, &nvme->lock);
    }
    (void)pthread_mutex_unlock(&nvme->lock);
}

enum zo_status zo_nvme_register(struct zo_nvme *nvme, void *memory,
                                size_t bytes)
{
    wait_idle(nvme);
    return nvme->ops->register_memory(nvme->backend, memory, bytes);
}

void zo_nvme_counters(const struct zo_nvme *nvme,
                      struct zo_nvme_counters *counters_out)
{
    pthread_mutex_t *lock = &((struct zo_nvme *)nvme)->lock;

    (void)pthread_mutex_lock(lock);
    *counters_out = nvme->counters;
    if (nvme->under_way > 0) {
        counters_out->busy_ns +=
            (uint64_t)(zo_clock_ns() - nvme->busy_since_ns);
    }
    (void)pthread_mutex_unlock(lock);
}

struct zo_nvme_shape zo_nvme_shape(const struct zo_nvme *nvme)
{
    nvme->ops->settle(nvme->backend);
    return (struct zo_nvme_shape){
        .how = nvme->how,
        .bytes = nvme->bytes,
        .depth = nvme->how == ZO_NVME_POOL ? nvme->threads : nvme->depth,
        .block_bytes = nvme->block_bytes,
        .is_direct = nvme->is_direct,
    };
}

/* ---- the proof ---- */

struct proof {
    struct zo_nvme *nvme;
    uint64_t *words; /* one piece of memory */
    size_t bytes;
    int count; /* pieces */
    enum zo_status status;
    struct zo_err failure;
};

static void proof_done(void *context, enum zo_status status)
{
    struct proof *proof = context;

    if (status != ZO_OK) {
        proof->status = status;
        proof->failure = *zo_err_last();
    }
}

static uint64_t proof_word(int piece, size_t index)
{
    uint64_t word = ((uint64_t)piece << 40) + index + 1;

    word *= UINT64_C(0x9e3779b97f4a7c15);
    return word ^ (word >> 29);
}

static enum zo_status proof_move(struct proof *proof, int piece, bool writes)
{
    struct zo_nvme *nvme = proof->nvme;
    const uint64_t last =
        (nvme->bytes - proof->bytes) / ZO_NVME_CHUNK * ZO_NVME_CHUNK;
    const uint64_t offset =
        proof->count == 1 ? 0
                          : last / (uint64_t)(proof->count - 1) /
                                ZO_NVME_CHUNK * ZO_NVME_CHUNK * (uint64_t)piece;
    const struct zo_nvme_request request = {
        .writes = writes,
        .offset = offset,
        .memory = proof->words,
        .bytes = proof->bytes,
        .name = "the check of the disk",
        .done = proof_done,
        .context = proof,
    };

    ZO_TRY(zo_nvme_submit(nvme, &request));
    wait_idle(nvme);
    return proof->status == ZO_OK ? ZO_OK : zo_err_adopt(&proof->failure);
}

static enum zo_status proof_run(struct proof *proof)
{
    struct zo_nvme *nvme = proof->nvme;
    const size_t words = proof->bytes / sizeof(proof->words[0]);

    for (int piece = 0; piece < proof->count; piece++) {
        for (size_t i = 0; i < words; i++) {
            proof->words[i] = proof_word(piece, i);
        }
        ZO_TRY(proof_move(proof, piece, true));
    }
    for (int piece = 0; piece < proof->count; piece++) {
        memset(proof->words, 0, proof->bytes);
        ZO_TRY(proof_move(proof, piece, false));
        if (nvme->faults != NULL && nvme->faults->flips_proof) {
            proof->words[words / 2] ^= 1;
        }
        for (size_t i = 0; i < words; i++) {
            if (proof->words[i] != proof_word(piece, i)) {
                return ZO_FAIL(ZO_E_IO,
                               "%s: bytes come back from the NVMe tier's file "
                               "other than they were written: the disk or its "
                               "file system is faulty",
                               nvme->where);
            }
        }
    }
    return ZO_OK;
}

/* Writes, reads and compares; what the file system takes is known after. */
static enum zo_status prove(struct zo_nvme *nvme)
{
    struct proof proof = {.nvme = nvme, .count = PROOF_PIECES};
    enum zo_status status;

    proof.bytes = PROOF_BYTES / PROOF_PIECES;
    if (nvme->bytes < PROOF_BYTES) { /* all of it, in one piece */
        proof.count = 1;
        proof.bytes = (size_t)nvme->bytes;
    }
    ZO_TRY(zo_pages_alloc(proof.bytes, "the check of the disk", &proof.words));
    status = proof_run(&proof);
    if (status == ZO_E_IO && zo_err_last()->native == EINVAL &&
        nvme->is_direct) {
        zo_nvme_file_buffered(nvme);
        proof.status = ZO_OK;
        status = proof_run(&proof);
    }
    zo_pages_free(proof.words, proof.bytes);
    memset(nvme->pages, 0, nvme->chunk_count * sizeof(nvme->pages[0]));
    memset(&nvme->counters, 0, sizeof(nvme->counters));
    nvme->is_proved = true;
    return status;
}

/* ---- open and close ---- */

static enum zo_status settle(struct zo_nvme *nvme,
                             const struct zo_nvme_options *options)
{
    const int requests =
        options->requests != 0 ? options->requests : REQUESTS_DEFAULT;

    nvme->bytes = options->bytes;
    nvme->how = options->how;
    nvme->depth = options->depth != 0 ? options->depth : DEPTH_DEFAULT;
    nvme->threads = options->threads != 0 ? options->threads : THREADS_DEFAULT;
    nvme->block_bytes =
        options->block_bytes != 0
            ? options->block_bytes / ZO_NVME_ALIGN * ZO_NVME_ALIGN
            : ZO_NVME_CHUNK;
    nvme->skips_verify = options->skips_verify;
    nvme->faults = options->faults;
    zo_text_escape(nvme->where, sizeof(nvme->where), options->directory,
                   strlen(options->directory));
    if (nvme->bytes == 0 || nvme->bytes % ZO_NVME_ALIGN != 0 ||
        nvme->bytes > INT64_MAX / 2 || nvme->depth < 1 ||
        nvme->depth > DEPTH_MAX || nvme->threads < 1 ||
        nvme->threads > THREADS_MAX || nvme->block_bytes < ZO_NVME_ALIGN ||
        nvme->block_bytes > BLOCK_MAX || requests < 1 ||
        requests > REQUESTS_MAX) {
        return ZO_FAIL(ZO_E_ARG,
                       "NVMe store: %" PRIu64
                       " bytes, depth %d, blocks of %zu bytes, %d threads, %d "
                       "requests; want bytes in whole pages, blocks of 4096 "
                       "bytes to 1 GiB, depth 1 to %d, threads 1 to "
                       "%d, requests 1 to %d",
                       nvme->bytes, nvme->depth, nvme->block_bytes,
                       nvme->threads, requests, DEPTH_MAX, THREADS_MAX,
                       REQUESTS_MAX);
    }
    nvme->piece_bytes = zo_round_up(nvme->block_bytes, ZO_NVME_CHUNK);
    nvme->chunk_count =
        (size_t)(zo_round_up(nvme->bytes, ZO_NVME_CHUNK) / ZO_NVME_CHUNK);
    ZO_TRY(zo_alloc((size_t)requests, sizeof(nvme->entries[0]),
                    "the requests of the NVMe store", &nvme->entries));
    for (int i = 0; i < requests; i++) {
        nvme->entries[i].next = nvme->free_entries;
        nvme->free_entries = &nvme->entries[i];
    }
    for (int i = 0; i < 2; i++) {
        nvme->waiting[i].last = &nvme->waiting[i].first;
    }
    ZO_TRY(zo_alloc(nvme->chunk_count, sizeof(nvme->pages[0]),
                    "the pages of the NVMe store", &nvme->pages));
    return zo_alloc(nvme->chunk_count, sizeof(nvme->hashes[0]),
                    "the hashes of the NVMe store", &nvme->hashes);
}

static enum zo_status open_backend(struct zo_nvme *nvme)
{
    if (nvme->how != ZO_NVME_POOL) {
        const enum zo_status status =
            zo_nvme_uring_ops.open(nvme, &nvme->backend);

        if (status == ZO_OK) {
            nvme->ops = &zo_nvme_uring_ops;
        }
        if (status != ZO_E_NOSUPPORT) {
            return status;
        }
        zo_nvme_note(nvme, "NVMe: %s; %d thread%s instead", zo_err_last()->text,
                     nvme->threads,
                     nvme->threads == 1 ? " reads and writes"
                                        : "s read and write");
        nvme->how = ZO_NVME_POOL;
    }
    ZO_TRY(zo_nvme_pool_ops.open(nvme, &nvme->backend));
    nvme->ops = &zo_nvme_pool_ops;
    return ZO_OK;
}

enum zo_status zo_nvme_open(const struct zo_nvme_options *options,
                            struct zo_nvme **nvme_out)
{
    struct zo_nvme *nvme;
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*nvme), "the NVMe store", &nvme));
    nvme->fd = -1;
    (void)pthread_mutex_init(&nvme->lock, NULL);
    (void)pthread_cond_init(&nvme->has_work, NULL);
    (void)pthread_cond_init(&nvme->is_idle, NULL);
    ZO_TRY_GOTO(close_store, settle(nvme, options));
    ZO_TRY_GOTO(close_store, zo_nvme_file_open(nvme, options));
    ZO_TRY_GOTO(close_store, open_backend(nvme));
    ZO_TRY_GOTO(close_store, prove(nvme));
    *nvme_out = nvme;
    return ZO_OK;

close_store:
    zo_nvme_close(nvme);
    return status;
}

void zo_nvme_close(struct zo_nvme *nvme)
{
    if (nvme == NULL) {
        return;
    }
    if (nvme->ops != NULL) {
        (void)pthread_mutex_lock(&nvme->lock);
        while (nvme->under_way > 0) {
            (void)pthread_cond_wait(&nvme->is_idle, &nvme->lock);
        }
        nvme->is_closing = true;
        (void)pthread_cond_broadcast(&nvme->has_work);
        (void)pthread_mutex_unlock(&nvme->lock);
        nvme->ops->wake(nvme->backend);
        nvme->ops->close(nvme->backend);
    }
    if (nvme->fd >= 0) {
        (void)close(nvme->fd);
    }
    (void)pthread_cond_destroy(&nvme->is_idle);
    (void)pthread_cond_destroy(&nvme->has_work);
    (void)pthread_mutex_destroy(&nvme->lock);
    zo_free(nvme->hashes);
    zo_free(nvme->pages);
    zo_free(nvme->entries);
    zo_free(nvme);
}
