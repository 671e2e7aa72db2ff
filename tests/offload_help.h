/*
 * What the tests of offload share: a machine of host devices, operations
 * whose results depend on every byte that they read and on when they read it,
 * random programs of them, and runs whose memory can be compared.
 */
#ifndef ZO_TESTS_OFFLOAD_HELP_H
#define ZO_TESTS_OFFLOAD_HELP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "offload/executor.h"
#include "offload/order.h"
#include "offload/schedule.h"

/* Adds a buffer to a program; a failure fails the case. */
zo_buffer_id help_buffer(struct zo_program *program,
                         const struct zo_buffer *buffer);

/* ---- numbers that depend on a seed alone --------------------------------- */

struct help_random {
    uint64_t key, index;
};
struct help_random help_random_of(uint64_t seed, const char *name);
/* Uniform in 0 .. bound - 1. */
uint64_t help_below(struct help_random *random, uint64_t bound);
/* True once in `n` times. */
bool help_once_in(struct help_random *random, uint64_t n);

/* ---- machines ------------------------------------------------------------ */

/* Host devices, with collectives when there are several. */
enum zo_status help_machine_open(struct zo_machine *machine, int devices,
                                 uint64_t seed, uint32_t delay_us_max);
void help_machine_close(struct zo_machine *machine);
/* Bytes that the devices have handed out: 0 when nothing leaks. */
uint64_t help_machine_bytes(const struct zo_machine *machine);

/* ---- operations ---------------------------------------------------------- */

/*
 * Hashes the bytes that the operation reads, then fills those that it writes
 * from the hash.  context: the program; args: schedule, seed, longest nap in
 * us (CPU engine).  On the collective engine: see help_collective().
 */
enum zo_status help_mix(const struct zo_op_call *call);

/* at: target, source; copies the bytes of the first access. */
enum zo_status help_copy(const struct zo_op_call *call);

/*
 * at: per device local (read), staging (write), out (write), all of one size
 * that the number of devices divides: exchanges local into staging, mixes
 * both into out, and gathers out.
 */
enum zo_status help_collective(const struct zo_op_call *call);

/* The hash alone, for operations of a test's own.  All zero is empty. */
#define HELP_ACCESSES_MAX 12
struct help_mix_args {
    uint64_t seed;
    uint32_t count;
    unsigned char modes[HELP_ACCESSES_MAX]; /* enum zo_access_mode */
    uint32_t bytes[HELP_ACCESSES_MAX];
    void *at[HELP_ACCESSES_MAX];
};
void help_mix_add(struct help_mix_args *args, enum zo_access_mode mode,
                  void *at, uint64_t bytes);
/* Of the bytes that are read, and the seed. */
uint64_t help_hash(const struct help_mix_args *args);
void help_mix_bytes(const struct help_mix_args *args);
/* The accesses of an operation whose context and args are as above. */
struct help_mix_args help_mix_args_of(const struct zo_op_call *call);

/* ---- random programs ----------------------------------------------------- */

struct help_shape {
    uint64_t seed;
    int devices;
    int lists;       /* at least 1 */
    int ops_max;     /* of a list */
    int bytes_max;   /* of a buffer, a device: at least 8 */
    bool has_nvme;   /* also NVMe buffers and operations: only to check */
    uint32_t nap_us; /* of CPU operations, at most */
};

/*
 * A random program of the operations above.  Buffer 0 is a record on the
 * host, with slots, that no operation writes.  Operations point to *program:
 * it may not be moved.  Ended with zo_program_fini().
 */
enum zo_status help_program(const struct help_shape *shape,
                            struct zo_program *program);

/* A random sequence of its lists with alternating slots. */
void help_sequence(struct help_random *random, const struct zo_program *program,
                   struct zo_sequence_item *items, size_t count);

/* ---- runs ---------------------------------------------------------------- */

/*
 * Starts the lists one after another, each with a record of its own, and
 * drains.  Slots are as help_sequence() gives them.  Nothing may be allocated
 * meanwhile.
 */
enum zo_status help_run(struct zo_executor *executor,
                        const struct zo_sequence_item *items, size_t count);

/* Every byte of every arena; false, and where in the notes, if they differ. */
bool help_same_memory(struct zo_executor *a, struct zo_executor *b);

/* Goes on with a hash over the first bytes of a buffer of any tier;
 * ZO_NO_BUFFER has none. */
uint64_t help_hash_buffer(uint64_t hash, struct zo_executor *executor,
                          zo_buffer_id id, int slot, size_t size_bytes);

/* ---- gates --------------------------------------------------------------- */

/* Held until opened; gives up after 20 s, so that a test fails, not hangs. */
struct help_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_open, is_entered, has_given_up;
};
#define HELP_GATE                                                    \
    {                                                                \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0 \
    }
void help_gate_open(struct help_gate *gate);
void help_gate_pass(struct help_gate *gate);         /* waits until open */
void help_gate_wait_entered(struct help_gate *gate); /* somebody waits */
bool help_gate_failed(struct help_gate *gate);

#endif
