/*
 * The executor: runs schedules on a machine.
 *
 * Row 5.  One thread, the caller's, issues for all devices: one queue a lane,
 * an operation is issued when those of its predecessors that are on streams
 * have been issued (then a stream wait on their events) and those on the CPU
 * are done.  No host function and no kernel waits for the host.  CPU
 * operations run in workers of the executor, any ready one, lowest priority
 * number first; so do those of NVMe, a few at a time, in the store.
 *
 * Life cycle: open allocates, touches and clears every arena of the program;
 * then acquire a slot, fill its records, start a list, any number of times,
 * with at most two lists under way, and one more that has joined each; drain;
 * close.  Nothing is allocated after open, but for the tier of copies.
 */
#ifndef ZO_OFFLOAD_EXECUTOR_H
#define ZO_OFFLOAD_EXECUTOR_H

#include "offload/nvme.h"
#include "offload/schedule.h"
#include "src/base/numa.h"

ZO_C_BEGIN

struct zo_executor;

struct zo_executor_options {
    int cpu_workers; /* threads for the CPU engine, 1..256 */
    bool is_serial;  /* each operation alone, in list order: the meaning */
    /* Serial, host devices only: everything but the declared ranges of the
     * operation at hand is poison, and poison must be intact behind it. */
    bool poisons;
    bool times_ops;     /* serial: takes the time of each kind of operation */
    bool records_times; /* spans and busy_ns of stream engines */
    /* For tests: the nth operation issued fails (0: none does). */
    uint64_t fail_at_op;
    struct zo_pool *pool; /* borrowed for the call of open; NULL: one thread
                           * touches and clears the host's arenas */
    /* For tests: where /proc and /sys are looked for; NULL: in "". */
    const char *system_root;
    /* Borrowed until close: what is_shared operations touch and who runs them
     * is near their devices; NULL, or no nodes: they are anywhere. */
    const struct zo_numa *numa;
    /* Where and how the NVMe tier is kept, but for its bytes; borrowed for the
     * call of open; NULL: the program has nothing there. */
    const struct zo_nvme_options *nvme;
};

/*
 * For a program that is laid out; both are borrowed until close.
 *
 *   ZO_E_FIT                  this process may not take that much host
 *                             memory now; nothing has been touched
 *   ZO_E_LOCK                 the host arena cannot be page-locked
 *   ZO_E_DEVMEM, ZO_E_NOMEM   an arena; the text names it and its bytes
 *   and what zo_nvme_open() returns, which comes first
 */
enum zo_status
zo_executor_open(const struct zo_program *program,
                 const struct zo_machine *machine,
                 const struct zo_executor_options *options,
                 struct zo_executor **executor_out) ZO_MUST_CHECK;

/* Waits for what is under way, then frees the arenas.  NULL is allowed. */
void zo_executor_close(struct zo_executor *executor);

/* Where a buffer lies, for filling records, loading and saving.  Of NVMe there
 * is no address. */
void *zo_executor_address(const struct zo_executor *executor, zo_buffer_id id,
                          int slot);

/* The tier that a buffer lies in. */
enum zo_tier zo_executor_tier(const struct zo_executor *executor,
                              zo_buffer_id id);

/*
 * The slot of the next list: 0, 1, 0, ...  Waits until the list that used it
 * last is done, so that its records may be written.
 */
enum zo_status zo_executor_acquire(struct zo_executor *executor,
                                   int *slot_out) ZO_MUST_CHECK;

/*
 * Starts a list with the acquired slot and issues what is ready.
 * *ticket_out (may be NULL) is for zo_executor_wait().
 */
enum zo_status zo_executor_start(struct zo_executor *executor, int schedule,
                                 uint64_t *ticket_out) ZO_MUST_CHECK;

/*
 * Starts a list that joins (struct zo_schedule) the one started last, behind
 * it: with its slot, which is acquired again when both are done.  At most one
 * joins each.
 */
enum zo_status zo_executor_join(struct zo_executor *executor, int schedule,
                                uint64_t *ticket_out) ZO_MUST_CHECK;

/* Whether every operation up to a ticket was done when that was last looked
 * at: by start, acquire and wait. */
bool zo_executor_is_done(const struct zo_executor *executor, uint64_t ticket);

/*
 * Allocates and touches the tier of copies; once, with nothing under way.  A
 * list that touches it may be started from then on.
 *
 *   ZO_E_LOCK, ZO_E_NOMEM   there is no such memory; the executor goes on
 *                           without
 */
enum zo_status zo_executor_open_copy(struct zo_executor *executor,
                                     struct zo_pool *pool) ZO_MUST_CHECK;

/*
 * Issues until every operation of the list is done.
 *
 *   any status an operation failed with, or ZO_E_COMM when collectives have;
 *   the executor can then only be drained and closed, and the machine's
 *   collectives have been aborted
 */
enum zo_status zo_executor_wait(struct zo_executor *executor,
                                uint64_t ticket) ZO_MUST_CHECK;

/* Waits for everything started so far. */
enum zo_status zo_executor_drain(struct zo_executor *executor) ZO_MUST_CHECK;

/*
 * Copies between host memory and a buffer of any tier, and waits: for loading
 * and saving, with nothing under way.  Many pieces go faster through
 * staging.h.  Several threads may, but on a GPU.
 */
enum zo_status zo_executor_upload(struct zo_executor *executor,
                                  zo_buffer_id target, uint64_t offset,
                                  const void *source,
                                  size_t size_bytes) ZO_MUST_CHECK;
enum zo_status zo_executor_download(struct zo_executor *executor, void *target,
                                    zo_buffer_id source, uint64_t offset,
                                    size_t size_bytes) ZO_MUST_CHECK;

/*
 * Work done so far, for the metrics.  busy_ns is the time in which an engine
 * had an operation at work: of a stream engine the sum over its devices, and
 * 0 without records_times; of the CPU engine that of any worker, and of NVMe
 * of any operation.
 */
struct zo_executor_counters {
    uint64_t ops[ZO_ENGINES];
    uint64_t bytes[ZO_ENGINES]; /* h2d, d2h, NVMe: moved; others 0 */
    uint64_t nvme_read_bytes, nvme_write_bytes; /* of those of NVMe */
    uint64_t busy_ns[ZO_ENGINES];
};
void zo_executor_counters(struct zo_executor *executor,
                          struct zo_executor_counters *counters_out);

/* Likewise of the list that was started last with a slot, and of one that has
 * joined it. */
void zo_executor_list_counters(struct zo_executor *executor, int slot,
                               struct zo_executor_counters *counters_out);

/* What the store behind the NVMe tier chose, a line each; "" without one.
 * Owned by the executor. */
const char *zo_executor_nvme_notes(const struct zo_executor *executor);

/* The errno with which the system refused to place memory or threads by
 * options.numa; 0: it did not. */
int zo_executor_numa_refusal(const struct zo_executor *executor);

/* The most operations of NVMe that run side by side. */
#define ZO_NVME_FLIGHTS 4

/*
 * With records_times: when the operations of a list ran, on the clock of
 * zo_clock_ns().  The spans of a lane, or of a worker, never overlap.
 */
struct zo_op_span {
    int schedule; /* the list, or one that has joined it */
    uint32_t op;  /* of that */
    int worker;   /* CPU engine: which; NVMe: which of those that run side by
                     side; else 0 */
    int64_t begin_ns, end_ns;
};

/* The most spans that a list has: one an operation, or one each of its parts.
 * 0 without records_times. */
size_t zo_executor_spans_max(const struct zo_executor *executor);

/*
 * Copies the spans of the list that was started last with the slot, in the
 * order in which they ended; of a list that is not done, those that have.
 * Returns how many.
 */
size_t zo_executor_spans(struct zo_executor *executor, int slot,
                         struct zo_op_span *spans);

/* With times_ops: what operations of one name took so far. */
struct zo_op_time {
    const char *name;
    enum zo_engine engine;
    uint64_t count;
    uint64_t busy_ns; /* from issuing to done, each alone */
    double flops;     /* of the longest batch */
};
const struct zo_op_time *
zo_executor_op_times(const struct zo_executor *executor, size_t *count_out);

/* Forgets them: behind the warm-up. */
void zo_executor_reset_op_times(struct zo_executor *executor);

ZO_C_END

#endif
