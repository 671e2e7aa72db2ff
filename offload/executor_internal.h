/*
 * What the executor's files share.  Row 5, private to offload/executor*.c.
 */
#ifndef ZO_OFFLOAD_EXECUTOR_INTERNAL_H
#define ZO_OFFLOAD_EXECUTOR_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "offload/executor.h"
#include "offload/order.h"

#define ZO_OP_NAMES_MAX 128 /* kinds of operations that are timed */

enum zo_instance_state {
    ZO_INSTANCE_WAITING,
    ZO_INSTANCE_ISSUED, /* queued on its streams, or given to a worker */
    ZO_INSTANCE_DONE,
};

/* One run of one operation. */
struct zo_instance {
    atomic_int state;
    int schedule;
    uint32_t op;
    int slot;
    uint32_t lane;       /* ZO_NO_LANE: CPU or NVMe */
    uint32_t lane_index; /* which of its lane's events */
    uint32_t pred_count; /* above preds_max: everything before it */
    /* CPU, guarded by the executor's lock: parts taken, and done. */
    int parts_taken, parts_done;
    bool has_begin;   /* its lane's event between waits and work is set */
    int64_t begin_ns; /* when it was issued */
};

/* A stream engine on one device, or the collectives on all. */
struct zo_lane {
    struct zo_stream **streams; /* owned; one, or one a device */
    int stream_count;
    int device;
    struct zo_event **events; /* owned; event_count * stream_count */
    struct zo_event **begins; /* likewise; NULL without records_times */
    uint32_t event_count;
    uint32_t next_event;
    uint64_t *queue; /* owned; instances in list order, a ring */
    uint64_t queue_first, queue_issued, queue_end; /* done, issued, known */
    int64_t end_ns; /* of the latest that is done */
};

/* Of the list that was started last with a slot.  The lock guards it, but for
 * what the issuing thread alone counts. */
struct zo_list_times {
    struct zo_executor_counters counters;
    struct zo_op_span *spans; /* owned; spans_max of the executor */
    size_t span_count;
    int cpu_active;       /* parts at work now */
    int64_t cpu_since_ns; /* with no moment of none */
    int nvme_active;      /* likewise operations of NVMe */
    int64_t nvme_since_ns;
};

/* An operation of NVMe under way: a request for each pair of accesses. */
struct zo_flight {
    struct zo_executor *executor; /* borrowed */
    uint64_t number;              /* of the instance; 0: free */
    int index, requests_left;
    bool has_failed;
    int64_t begin_ns;
};

/* The most that loading and saving move at once: whole chunks, and as much as
 * a piece of fp32 that is loaded. */
#define ZO_BOUNCE_BYTES (4 * ZO_NVME_CHUNK)

struct zo_bounce {
    struct zo_executor *executor; /* borrowed */
    unsigned char *memory;        /* ZO_BOUNCE_BYTES */
    bool is_taken;
    uint64_t begin, end; /* its bytes of the tier, while it is taken */
};

struct zo_executor {
    const struct zo_program *program;
    const struct zo_machine *machine;
    struct zo_executor_options options;
    void *arenas[ZO_TIERS][ZO_DEVICES_MAX];  /* owned */
    void *shadows[ZO_TIERS][ZO_DEVICES_MAX]; /* owned; poison mode */
    bool locks_copy; /* the tier of copies is page-locked */

    struct zo_order *order;
    struct zo_instance *instances; /* ring of instance_count */
    uint64_t *preds;               /* preds_max of each instance */
    size_t instance_count, preds_max;
    uint64_t next_instance; /* number of the next one, from 1 */
    uint64_t retired_below; /* every lower one is done */
    uint64_t slot_ticket[2];
    int next_slot;

    struct zo_lane *lanes; /* owned; lane_count */
    uint32_t lane_count;
    struct zo_stream *copy_streams[ZO_DEVICES_MAX]; /* upload, download */

    /* CPU engine.  The lock guards the rest of this group. */
    pthread_mutex_t lock;
    pthread_cond_t ready_cond;
    pthread_t *workers;
    int worker_count;
    int workers_begun; /* gives each its number */
    uint64_t *waiting; /* known CPU operations that are not ready */
    size_t waiting_count;
    uint64_t *ready; /* ready ones; the least priority is looked for */
    size_t ready_count;
    bool is_closing;
    const struct zo_numa *numa; /* NULL: one node, or as good */
    int numa_refusal;           /* an errno; guarded by the lock */
    int *device_parts;     /* owned; parts taken, of each instance and device */
    struct zo_err failure; /* the first; status ZO_OK: none */
    struct zo_flight flights[ZO_NVME_FLIGHTS];

    /* NVMe; while lists run, the issuing thread's. */
    struct zo_nvme *nvme;    /* owned; NULL: the program has none */
    uint64_t *nvme_ready;    /* owned; operations that are ready */
    size_t nvme_ready_count; /* the least priority is looked for */
    char (*nvme_names)[64];  /* owned; of buffers, for messages */
    bool *nvme_written;      /* owned; of each chunk; else it is zeros */

    /* Loading and saving.  The lock guards who has which buffer. */
    pthread_mutex_t bounce_lock;
    pthread_cond_t bounce_cond;
    struct zo_bounce *bounces;    /* owned */
    unsigned char *bounce_memory; /* owned */
    size_t bounce_count;          /* 0: there is no NVMe */
    struct zo_err bounce_failure; /* the first of a write; sticks */

    bool is_abandoned;       /* the collectives have been aborted */
    int64_t comm_checked_ns; /* when they were last looked at */

    struct zo_list_times times[2]; /* one a slot */
    size_t spans_max;

    uint64_t issued_ops;
    struct zo_op_time op_times[ZO_OP_NAMES_MAX];
    size_t op_time_count;
    struct zo_executor_counters counters;
};

static inline struct zo_instance *zo_instance_at(struct zo_executor *executor,
                                                 uint64_t number)
{
    return &executor->instances[number % executor->instance_count];
}

static inline const struct zo_op *
zo_instance_op(const struct zo_executor *executor,
               const struct zo_instance *instance)
{
    return &executor->program->schedules[instance->schedule].ops[instance->op];
}

/* Resolves the accesses of an instance into at[ZO_OP_ACCESSES_MAX]. */
void zo_executor_resolve(struct zo_executor *executor,
                         const struct zo_instance *instance, void **at);

/* Counts an operation that is about to run, and fails the one that a test
 * has chosen. */
enum zo_status
zo_executor_count(struct zo_executor *executor,
                  const struct zo_instance *instance) ZO_MUST_CHECK;

/* Counts what a copy has moved. */
void zo_executor_moved(struct zo_executor *executor,
                       const struct zo_instance *instance, uint64_t bytes);

/* Records the calling thread's failure as the run's first, if it is. */
void zo_executor_fail(struct zo_executor *executor);

/* The most that a list, with one that joins it, has of what is counted. */
typedef size_t (*zo_list_count_fn)(const struct zo_schedule *list,
                                   const void *context);
size_t zo_executor_most(const struct zo_program *program,
                        zo_list_count_fn count, const void *context);

/* A lane: streams, events and a queue, as many as its operations need, or
 * nothing: executor_lanes.c.  What failed to open may be closed. */
enum zo_status zo_executor_open_lane(struct zo_executor *executor,
                                     uint32_t index) ZO_MUST_CHECK;
void zo_executor_close_lane(struct zo_executor *executor, uint32_t index);

/* The arenas, touched and cleared: executor_arenas.c. */
enum zo_status
zo_executor_open_arenas(struct zo_executor *executor) ZO_MUST_CHECK;
void zo_executor_close_arenas(struct zo_executor *executor);

/* The NVMe engine: executor_nvme.c.  The store is opened first, since that
 * may fail, and told of its memory behind the arenas. */
enum zo_status
zo_executor_open_nvme(struct zo_executor *executor) ZO_MUST_CHECK;
enum zo_status
zo_executor_register_nvme(struct zo_executor *executor) ZO_MUST_CHECK;
/* Waits for what is under way. */
void zo_executor_close_nvme(struct zo_executor *executor);
/* An operation has become ready; submits those that go first. */
void zo_executor_nvme_ready(struct zo_executor *executor, uint64_t number);
enum zo_status zo_executor_issue_nvme(struct zo_executor *executor,
                                      bool *moved) ZO_MUST_CHECK;
/* An operation by itself, to its end. */
enum zo_status
zo_executor_nvme_alone(struct zo_executor *executor,
                       const struct zo_instance *instance) ZO_MUST_CHECK;
/* A request that may read what was never written: zeros.  To its end, or no
 * further than the store. */
enum zo_status
zo_executor_nvme_move(struct zo_executor *executor,
                      const struct zo_nvme_request *request) ZO_MUST_CHECK;
enum zo_status
zo_executor_nvme_submit(struct zo_executor *executor,
                        const struct zo_nvme_request *request) ZO_MUST_CHECK;

/* Any bytes of a buffer, by several threads: executor_bounce.c.  An upload is
 * written behind; sync waits for all, and tells the first that failed. */
enum zo_status
zo_executor_open_bounces(struct zo_executor *executor) ZO_MUST_CHECK;
void zo_executor_close_bounces(struct zo_executor *executor);
enum zo_status
zo_executor_nvme_sync(struct zo_executor *executor) ZO_MUST_CHECK;
enum zo_status zo_executor_nvme_upload(struct zo_executor *executor,
                                       zo_buffer_id target, uint64_t offset,
                                       const void *source,
                                       size_t size_bytes) ZO_MUST_CHECK;
enum zo_status zo_executor_nvme_download(struct zo_executor *executor,
                                         void *target, zo_buffer_id source,
                                         uint64_t offset,
                                         size_t size_bytes) ZO_MUST_CHECK;

/* The workers of the CPU engine: executor_cpu.c. */
enum zo_status
zo_executor_start_workers(struct zo_executor *executor) ZO_MUST_CHECK;
void zo_executor_stop_workers(struct zo_executor *executor);

/* When operations ran: executor_times.c. */
enum zo_status zo_times_open(struct zo_executor *executor) ZO_MUST_CHECK;
void zo_times_close(struct zo_executor *executor);
enum zo_status zo_times_open_event(const struct zo_executor *executor,
                                   int device,
                                   struct zo_event **event_out) ZO_MUST_CHECK;
void zo_times_start(struct zo_executor *executor, int slot);
/* A stream's operation: its waits are queued, its work is not; and when its
 * events have been passed. */
enum zo_status zo_times_issue(struct zo_executor *executor,
                              struct zo_instance *instance,
                              bool has_waits) ZO_MUST_CHECK;
enum zo_status
zo_times_passed(struct zo_executor *executor,
                const struct zo_instance *instance) ZO_MUST_CHECK;
/* One part of a CPU operation; the lock is held. */
void zo_times_cpu_begin(struct zo_executor *executor,
                        const struct zo_instance *instance, int64_t now_ns);
void zo_times_cpu_end(struct zo_executor *executor,
                      const struct zo_instance *instance, int worker,
                      int64_t begin_ns);
/* Likewise of an operation of NVMe. */
void zo_times_nvme_begin(struct zo_executor *executor,
                         const struct zo_instance *instance, int64_t now_ns);
void zo_times_nvme_end(struct zo_executor *executor,
                       const struct zo_instance *instance, int flight,
                       int64_t begin_ns);
/* An operation that ran with no other at work. */
void zo_times_alone(struct zo_executor *executor,
                    const struct zo_instance *instance, int64_t begin_ns,
                    int64_t end_ns);

/* Runs a list in order, each operation alone: executor_serial.c. */
enum zo_status
zo_executor_open_shadows(struct zo_executor *executor) ZO_MUST_CHECK;
void zo_executor_close_shadows(struct zo_executor *executor);
enum zo_status zo_executor_run_serial(struct zo_executor *executor,
                                      int schedule, int slot) ZO_MUST_CHECK;

#endif
