/*
 * What the front of the NVMe store (nvme.c) and its two back ends share.
 *
 * Row 5, private to offload/nvme*.c.  The front keeps the requests, cuts them
 * into pieces, makes and checks hashes and tells who asked.  A back end takes
 * pieces, moves their bytes, and hands each back once.
 */
#ifndef ZO_OFFLOAD_NVME_INTERNAL_H
#define ZO_OFFLOAD_NVME_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "offload/nvme.h"

#define ZO_NVME_NOTES_BYTES 4096
#define ZO_NVME_WHERE_BYTES 256
/* A result that moves nothing, again and again, is given up. */
#define ZO_NVME_STALLS_MAX 16

/* A request under way. */
struct zo_nvme_entry {
    struct zo_nvme_request request;
    struct zo_nvme_entry *next; /* waiting, or free */
    size_t cut_bytes;           /* of it, handed out in pieces */
    int pieces;                 /* handed out and not yet back */
    struct zo_err failure;      /* the first; its status ZO_OK: none */
};

/* One or more whole chunks of a request (the last may be cut short). */
struct zo_nvme_piece {
    struct zo_nvme_entry *entry;
    uint64_t offset; /* of the file */
    char *memory;
    size_t bytes;
    bool writes;
    size_t cut_bytes;      /* for the back end: begun */
    int blocks;            /* for the back end: under way */
    enum zo_status status; /* ZO_OK, or of its first failure */
};

struct zo_nvme_queue {
    struct zo_nvme_entry *first, **last; /* last: the link to set */
};

/* One table a back end; no entry is optional. */
struct zo_nvme_backend_ops {
    enum zo_status (*open)(struct zo_nvme *nvme, void **backend_out);
    /* There is something to take, or the store closes. */
    void (*wake)(void *backend);
    /* With nothing under way.  May do it later; refused: a note, not a
     * failure. */
    enum zo_status (*register_memory)(void *backend, char *memory,
                                      size_t bytes);
    /* All memory is registered, or a note says why not. */
    void (*settle)(void *backend);
    /* After the last piece is back: ends the threads. */
    void (*close)(void *backend);
};

extern const struct zo_nvme_backend_ops zo_nvme_pool_ops;
/* Where there is no io_uring its open fails with ZO_E_NOSUPPORT and errno. */
extern const struct zo_nvme_backend_ops zo_nvme_uring_ops;

struct zo_nvme {
    int fd;
    char where[ZO_NVME_WHERE_BYTES]; /* the directory, for messages */
    uint64_t bytes;
    enum zo_nvme_how how;
    int depth, threads;
    size_t block_bytes; /* of one system call */
    size_t piece_bytes; /* of one piece: blocks, and whole chunks */
    bool skips_verify, is_direct;
    bool is_proved; /* open is over: faults count from here */
    const struct zo_nvme_faults *faults; /* borrowed; NULL: none */
    atomic_int_least64_t io_count;       /* for the faults */

    /* Of the chunk: the hash of its first `pages` pages; 0: not written. */
    uint64_t *hashes;
    uint16_t *pages;
    size_t chunk_count;

    const struct zo_nvme_backend_ops *ops;
    void *backend;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t has_work, is_idle;
    struct zo_nvme_entry *entries, *free_entries;
    struct zo_nvme_queue waiting[2]; /* reads, writes */
    int turn;                        /* of the two, the next */
    int under_way;                   /* requests */
    bool is_closing;
    int64_t busy_since_ns;
    struct zo_nvme_counters counters;
    char notes[ZO_NVME_NOTES_BYTES];
};

/* A piece to move; false: nothing waits.  Reads and writes take turns. */
bool zo_nvme_take(struct zo_nvme *nvme, struct zo_nvme_piece *piece_out);
/* Blocks until there is one; false: the store closes. */
bool zo_nvme_take_wait(struct zo_nvme *nvme, struct zo_nvme_piece *piece_out);
/* The piece has been moved, or piece->status says why not. */
void zo_nvme_finish(struct zo_nvme *nvme, struct zo_nvme_piece *piece);

/* Marks a piece as failed: `error` while moving `bytes` at its `at`. */
void zo_nvme_fail_piece(struct zo_nvme *nvme, struct zo_nvme_piece *piece,
                        size_t at, size_t bytes, int error);

/* Adds a line to the notes. */
void zo_nvme_note(struct zo_nvme *nvme, const char *format, ...)
    ZO_PRINTF(2, 3);

/* An I/O of the kernel, as the faults have it: fewer bytes to ask for, and
 * another result (bytes moved, or -errno).  Without faults: as it is. */
struct zo_nvme_io {
    int64_t index; /* from 1 */
    bool writes;
    char *memory;
    size_t bytes; /* to ask the kernel for */
};
struct zo_nvme_io zo_nvme_io_begin(struct zo_nvme *nvme, bool writes,
                                   char *memory, size_t bytes);
int zo_nvme_io_end(struct zo_nvme *nvme, const struct zo_nvme_io *io,
                   int result);

/* Of offload/nvme_file.c: the file without a name, reserved. */
enum zo_status
zo_nvme_file_open(struct zo_nvme *nvme,
                  const struct zo_nvme_options *options) ZO_MUST_CHECK;
/* O_DIRECT is refused: goes on without, with a note. */
void zo_nvme_file_buffered(struct zo_nvme *nvme);

#endif
