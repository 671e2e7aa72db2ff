/*
 * The store behind the NVMe tier: one file, read and written asynchronously.
 *
 * Row 5: knows bytes, not units.  The file is as long as the arena of the
 * tier; an offset is one into that arena.  It is divided into chunks, each
 * with a hash of what was written to it last, checked when it is read.
 *
 * Requests run in any order and side by side: who submits two that overlap,
 * one of them a write, waits for the first.  Any thread may submit, `done`
 * too.  `done` is called from the store's threads, once a request, for several
 * requests at once.
 */
#ifndef ZO_OFFLOAD_NVME_H
#define ZO_OFFLOAD_NVME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

struct zo_nvme; /* opaque */

/* Buffers of the tier begin at, and requests go from, a multiple of this. */
#define ZO_NVME_CHUNK ((size_t)1 << 20)
/* Memory of requests, and their bytes: a multiple of this. */
#define ZO_NVME_ALIGN ((size_t)4096)

enum zo_nvme_how {
    ZO_NVME_URING,        /* io_uring; what it refuses, the next way does */
    ZO_NVME_UNREGISTERED, /* io_uring without registered memory */
    ZO_NVME_POOL,         /* threads with pread and pwrite */
};

/* What a test makes go wrong; all zero: nothing.  Inputs and outputs of the
 * kernel are counted from 1, those of zo_nvme_open() not. */
struct zo_nvme_faults {
    int ring_errno;        /* a ring is refused so; 0: it is not */
    int register_errno;    /* likewise registered memory */
    int reserve_errno;     /* likewise the reservation of the file */
    bool refuses_nameless; /* the file system knows no O_TMPFILE */
    bool refuses_direct;   /* nor O_DIRECT */
    bool fails_direct;     /* takes O_DIRECT, and fails all I/O with it */
    const char *name;      /* of the file, in place of one made up */
    int full_times;        /* so often the ring has no place */
    int64_t short_from;    /* I/Os from this on move half of what they should
                              (one page moves whole); 0: none */
    int64_t stuck_from;    /* likewise: move nothing, without an error */
    int64_t error_at;      /* this I/O fails, ... */
    int64_t error_from;    /* ... or all from this on, ... */
    int error_errno;       /* ... with this */
    int64_t flip_at;       /* one bit of what this I/O read is wrong */
    bool flips_proof;      /* likewise of what open reads */
};

struct zo_nvme_options {
    const char *directory; /* borrowed for the call of open */
    uint64_t bytes;        /* of the file, all of them reserved */
    enum zo_nvme_how how;  /* the first that is tried */
    int depth;             /* requests of the kernel under way; 0: a default */
    size_t block_bytes;    /* of one of them, at most; 0: likewise */
    int threads;           /* of the pool; 0: likewise */
    int requests;          /* of ours under way at once; 0: 1024 */
    bool skips_verify;     /* hashes are neither made nor checked */
    bool allows_memory;    /* a file system in memory (tmpfs) will do */
    const struct zo_nvme_faults *faults; /* for tests; NULL: none */
};

/* A piece of the file, and of memory. */
struct zo_nvme_request {
    bool writes;
    uint64_t offset;  /* of the file: a multiple of ZO_NVME_CHUNK */
    void *memory;     /* borrowed until done; ZO_NVME_ALIGN */
    size_t bytes;     /* a multiple of ZO_NVME_ALIGN, > 0; a chunk's rest is
                         never used: writes and reads of a chunk agree in how
                         much of it they mean */
    const char *name; /* static storage or borrowed until done: for messages,
                         "unit 7's first moments" */
    /* Not ZO_OK: zo_err_last() of the calling thread says why. */
    void (*done)(void *context, enum zo_status status);
    void *context;
};

/*
 * Makes the file, reserves its bytes, writes and reads back a piece, all of it
 * checked.
 *
 *   ZO_E_FIT      no space, with what is wanted and what is free
 *   ZO_E_IO       the directory is missing, may not be written, holds what is
 *                 not ours under our name, is in memory; or bytes came back
 *                 wrong
 *   ZO_E_NOMEM    no memory for the records
 */
enum zo_status zo_nvme_open(const struct zo_nvme_options *options,
                            struct zo_nvme **nvme_out) ZO_MUST_CHECK;

/* Waits for what is under way; the file is gone.  NULL is allowed. */
void zo_nvme_close(struct zo_nvme *nvme);

/*
 * Memory that requests will use: registered with the kernel where it can be,
 * else a note says why not.  Waits for what is under way.  May be called any
 * number of times, for memory that overlaps and stays until close; the kernel
 * is asked once, at the next request, zo_nvme_notes() or zo_nvme_shape().
 * Requests may use other memory too.
 *
 *   ZO_E_NOMEM    no memory for the records
 */
enum zo_status zo_nvme_register(struct zo_nvme *nvme, void *memory,
                                size_t bytes) ZO_MUST_CHECK;

/*
 * Starts a request.  Never blocks for long; what does not fit the queue waits
 * in the store.  Reads and writes take turns, each in the order submitted.
 *
 *   ZO_E_ARG      off the file or not aligned, or a read of what was never
 *                 written, or not of that many bytes
 *   ZO_E_BUSY     as many requests as were asked for are under way
 *
 * What done may be told:
 *   ZO_E_IO       the disk failed; native is errno, 0: it moved nothing
 *   ZO_E_CORRUPT  what was read is not what was written; memory holds it
 */
enum zo_status
zo_nvme_submit(struct zo_nvme *nvme,
               const struct zo_nvme_request *request) ZO_MUST_CHECK;

/*
 * What was chosen and what it costs, a line each, the last without \n:
 * "NVMe: io_uring is refused ...; 8 threads read and write instead".  Empty
 * when all is as it should be.  Owned by the store; memory that is registered
 * afterwards may add to it.
 */
const char *zo_nvme_notes(const struct zo_nvme *nvme);

/* What it came to be. */
struct zo_nvme_shape {
    enum zo_nvme_how how;
    uint64_t bytes;     /* of the file */
    int depth;          /* I/Os of the kernel at once; threads of a pool */
    size_t block_bytes; /* of one of them */
    bool is_direct;     /* past the page cache */
};
struct zo_nvme_shape zo_nvme_shape(const struct zo_nvme *nvme);

struct zo_nvme_counters {
    uint64_t read_bytes, written_bytes, reads, writes; /* requests done */
    uint64_t busy_ns; /* with a request under way */
};
void zo_nvme_counters(const struct zo_nvme *nvme,
                      struct zo_nvme_counters *counters_out);

ZO_C_END

#endif
