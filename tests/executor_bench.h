/*
 * Programs of a few operations, for the tests of the executor: each operation
 * is an act, which waits at gates, opens them, counts, or fails.
 */
#ifndef ZO_TESTS_EXECUTOR_BENCH_H
#define ZO_TESTS_EXECUTOR_BENCH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "offload/executor.h"
#include "tests/offload_help.h"

enum { BENCH_BYTES = 64 }; /* of each buffer */

struct bench {
    struct zo_machine machine;
    struct zo_program program;
    struct zo_executor *executor;
    zo_buffer_id gpu[2], host; /* one a device */
    zo_buffer_id other;        /* on the host, for what shares nothing */
};

/* What an operation does, in this order. */
struct act {
    struct help_gate *opens, *passes;
    atomic_int *counts;
    atomic_int *looks_at; /* and keeps what it saw in */
    int *seen;
    int *order, *order_count; /* by one worker */
    int number;
    enum zo_status status;
};

/* What it touches, and where it runs. */
struct what {
    enum zo_engine engine;
    int device, priority;
    zo_buffer_id reads, writes; /* ZO_NO_BUFFER: nothing */
};

/* 1 or 2 devices with random delays, and the buffers above. */
void bench_init(struct bench *bench, int devices);
zo_buffer_id bench_buffer(struct bench *bench, enum zo_tier tier, int device,
                          bool has_slots);

/* Begins a list; they are 0, 1, ... */
void bench_list(struct bench *bench);
/* Adds to the latest list; `act` is borrowed until close. */
void bench_add(struct bench *bench, const struct what *what,
               const struct act *act);
/* For operations of more than one act; context is the act. */
enum zo_status bench_act(const struct zo_op_call *call);
enum zo_status bench_queue_act(struct zo_stream *stream, const struct act *act);

/* Lays the program out and opens an executor. */
enum zo_status bench_open(struct bench *bench,
                          const struct zo_executor_options *options);
/* Acquires and starts. */
enum zo_status bench_start(struct bench *bench, int list, uint64_t *ticket_out);
/* Closes all of it, whatever has been opened; a leak fails the case. */
void bench_close(struct bench *bench);

extern const struct zo_executor_options bench_workers; /* two */

#endif
