/*
 * The trace of some steps: Chrome trace events, for chrome://tracing and
 * https://ui.perfetto.dev.
 *
 * Row 7.  Life cycle: open, before anything is loaded, so that a file that
 * cannot be written is told at once; start, when there is an executor; create,
 * once nothing more refuses the run; list, for each traced step; write; close.
 * One thread.  After start nothing is allocated: spans are kept in memory, and
 * write makes the file in one go, so that no traced step waits for a disk.
 * From create on the file is valid JSON, but for the moment of writing.
 *
 * What it shows, times in microseconds from the beginning of the first span:
 *   "GPU 0 computation", "GPU 0 to device", ...
 *                                       a lane an engine and device; those of
 *                                       the host backend are "device 0"
 *   "processor 0", ...                  a lane a worker of the CPU engine
 *   "steps"                             from the end of one to that of the next
 *   "GPU 0 bytes", "host bytes", ...    a counter a tier: what persists, and
 *                                       what is alive between its first and
 *                                       last use
 *   "GPU 0 by purpose", ...             a counter a tier: the same bytes by
 *                                       what they are for, as in the plan
 * An operation tells its unit, micro batch and step, the bytes that it copies
 * and its rate; its floating-point operations are those of the longest batch.
 */
#ifndef ZO_SRC_TRAIN_TRACE_H
#define ZO_SRC_TRAIN_TRACE_H

#include "offload/builder.h"
#include "offload/executor.h"

ZO_C_BEGIN

struct zo_trace; /* opaque */

struct zo_trace_options {
    const char *path;              /* borrowed until close */
    int64_t first_step, last_step; /* from 1 */
    const char *device; /* in names, in place of "GPU"; NULL: that; borrowed */
};

/*
 * Looks at the file, and neither makes nor changes it.  On success the caller
 * owns *trace_out and ends it with zo_trace_close().
 *
 *   ZO_E_USAGE   the file cannot be written, or is there and is no trace; more
 *                steps than a trace can hold
 *   ZO_E_NOMEM
 */
enum zo_status zo_trace_open(const struct zo_trace_options *options,
                             struct zo_trace **trace_out) ZO_MUST_CHECK;

/* Writes what was kept and is not written; a failure is lost.  NULL is
 * allowed. */
void zo_trace_close(struct zo_trace *trace);

/*
 * Takes the memory for all steps.  The build is borrowed until close, the
 * executor until the last list; it records times.
 */
enum zo_status zo_trace_start(struct zo_trace *trace,
                              const struct zo_build *build,
                              struct zo_executor *executor) ZO_MUST_CHECK;

/*
 * Makes the file, or empties an old trace; waits for the reader of a FIFO.
 *
 *   ZO_E_USAGE   it cannot be opened
 *   ZO_E_IO      it took no more
 */
enum zo_status zo_trace_create(struct zo_trace *trace) ZO_MUST_CHECK;

/* Whether a step is one that is traced, and none has been kept of it. */
bool zo_trace_wants(const struct zo_trace *trace, int64_t step);

/* A step whose list was started with a slot. */
struct zo_trace_step {
    int64_t step;
    int schedule, slot;
    int64_t begin_ns, end_ns; /* in the lane of steps */
};

/* Keeps a step that is done, or one that failed on its way: what ran of it. */
void zo_trace_list(struct zo_trace *trace, const struct zo_trace_step *step);

/*
 * Writes the file, once the last step was kept; before that it does nothing.
 *
 *   ZO_E_IO   the file took no more
 */
enum zo_status zo_trace_write(struct zo_trace *trace) ZO_MUST_CHECK;

ZO_C_END

#endif
