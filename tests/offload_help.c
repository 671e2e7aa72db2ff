#include "tests/offload_help.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "offload/executor_internal.h"
#include "offload/layout.h"
#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/base/random.h"
#include "src/device/stream_host.h"
#include "tests/tap.h"

#define BUFFERS_MAX 48

zo_buffer_id help_buffer(struct zo_program *program,
                         const struct zo_buffer *buffer)
{
    zo_buffer_id id = ZO_NO_BUFFER;

    if (zo_program_buffer(program, buffer, &id) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    return id;
}

/* ---- numbers ------------------------------------------------------------- */

struct help_random help_random_of(uint64_t seed, const char *name)
{
    return (struct help_random){zo_random_key(seed, name), 0};
}

uint64_t help_below(struct help_random *random, uint64_t bound)
{
    return zo_random_bits(random->key, random->index++) % bound;
}

bool help_once_in(struct help_random *random, uint64_t n)
{
    return help_below(random, n) == 0;
}

/* ---- machines ------------------------------------------------------------ */

enum zo_status help_machine_open(struct zo_machine *machine, int devices,
                                 uint64_t seed, uint32_t delay_us_max)
{
    const struct zo_device_options options = {.delay_seed = seed,
                                              .delay_us_max = delay_us_max};

    *machine = (struct zo_machine){.device_ops = &zo_device_host,
                                   .device_count = devices};
    for (int d = 0; d < devices; d++) {
        ZO_TRY(zo_device_host.open(d, &options, &machine->devices[d]));
    }
    if (devices > 1) {
        machine->comm_ops = &zo_comm_host;
        ZO_TRY(zo_comm_host.open(machine->devices, devices, &machine->comm));
    }
    return ZO_OK;
}

void help_machine_close(struct zo_machine *machine)
{
    zo_comm_host.close(machine->comm);
    for (int d = 0; d < machine->device_count; d++) {
        zo_device_host.close(machine->devices[d]);
    }
}

uint64_t help_machine_bytes(const struct zo_machine *machine)
{
    uint64_t bytes = 0;

    for (int d = 0; d < machine->device_count; d++) {
        for (int kind = 0; kind < ZO_MEM_KINDS; kind++) {
            bytes += zo_device_host.mem_allocated(machine->devices[d],
                                                  (enum zo_mem_kind)kind);
        }
    }
    return bytes;
}

/* ---- operations ---------------------------------------------------------- */

void help_mix_add(struct help_mix_args *args, enum zo_access_mode mode,
                  void *at, uint64_t bytes)
{
    ZO_ASSERT(args->count < HELP_ACCESSES_MAX);
    args->modes[args->count] = (unsigned char)mode;
    args->bytes[args->count] = (uint32_t)bytes;
    args->at[args->count++] = at;
}

/* FNV-1a: parts one after the other have the hash of the whole.  Bytes are
 * loaded eight at a time, since a sanitizer's build looks at each load. */
static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t size_bytes)
{
    unsigned char part[8];

    for (size_t at = 0; at < size_bytes; at += sizeof(part)) {
        const size_t rest = size_bytes - at;
        const size_t count = rest < sizeof(part) ? rest : sizeof(part);

        if (count == sizeof(part)) {
            memcpy(part, bytes + at, sizeof(part));
        } else {
            memcpy(part, bytes + at, count);
        }
        for (size_t i = 0; i < count; i++) {
            hash = (hash ^ part[i]) * 0x100000001b3u;
        }
    }
    return hash;
}

uint64_t help_hash(const struct help_mix_args *args)
{
    uint64_t hash = args->seed ^ 0xcbf29ce484222325u;

    for (uint32_t a = 0; a < args->count; a++) {
        if (args->modes[a] != ZO_WRITE) {
            hash = hash_bytes(hash, args->at[a], args->bytes[a]);
        }
    }
    return hash;
}

/* Fills with what follows from a hash. */
static void mix_bytes(uint64_t hash, char *bytes, size_t size_bytes)
{
    for (size_t at = 0; at < size_bytes; at += sizeof(uint64_t)) {
        const size_t rest = size_bytes - at;
        const uint64_t word = zo_random_bits(hash, at);

        if (rest >= sizeof(word)) {
            memcpy(bytes + at, &word, sizeof(word));
        } else {
            memcpy(bytes + at, &word, rest);
        }
    }
}

void help_mix_bytes(const struct help_mix_args *args)
{
    const uint64_t hash = help_hash(args);

    for (uint32_t a = 0; a < args->count; a++) {
        if (args->modes[a] != ZO_READ) {
            mix_bytes(hash, args->at[a], args->bytes[a]);
        }
    }
}

static const struct zo_access *accesses_of(const struct zo_op *op)
{
    const struct zo_program *program = op->context;

    return program->schedules[op->args[0]].accesses + op->access_first;
}

struct help_mix_args help_mix_args_of(const struct zo_op_call *call)
{
    const struct zo_access *accesses = accesses_of(call->op);
    struct help_mix_args args = {.seed = (uint64_t)call->op->args[1]};

    for (uint32_t a = 0; a < call->op->access_count; a++) {
        help_mix_add(&args, accesses[a].mode, call->at[a], accesses[a].bytes);
    }
    return args;
}

static enum zo_status mix_in_stream(struct zo_pool *pool, const void *bytes)
{
    struct help_mix_args args;

    (void)pool;
    memcpy(&args, bytes, sizeof(args));
    help_mix_bytes(&args);
    return ZO_OK;
}

static void nap(const struct zo_op *op)
{
    const uint64_t longest_us = (uint64_t)op->args[2];
    struct timespec pause = {0};

    if (longest_us > 0) {
        pause.tv_nsec =
            (long)(zo_random_bits((uint64_t)op->args[1], 0) % longest_us) *
            1000;
        (void)nanosleep(&pause, NULL);
    }
}

enum zo_status help_mix(const struct zo_op_call *call)
{
    const struct help_mix_args args = help_mix_args_of(call);

    if (zo_engine_is_stream(call->op->engine)) {
        return zo_stream_host_submit(call->streams[0], mix_in_stream, &args,
                                     sizeof(args));
    }
    nap(call->op);
    help_mix_bytes(&args);
    return ZO_OK;
}

enum zo_status help_copy(const struct zo_op_call *call)
{
    return call->machine->device_ops->copy(call->streams[0], call->at[0],
                                           call->at[1],
                                           accesses_of(call->op)[0].bytes);
}

/* The part of one device, once its staging has come. */
static enum zo_status mix_part(const struct zo_op_call *call, int d)
{
    const uint64_t bytes = accesses_of(call->op)[0].bytes;
    struct help_mix_args args = {.seed = (uint64_t)(call->op->args[1] + d)};

    help_mix_add(&args, ZO_READ, call->at[3 * d], bytes);
    help_mix_add(&args, ZO_READ, call->at[3 * d + 1], bytes);
    help_mix_add(&args, ZO_WRITE, call->at[3 * d + 2], bytes);
    return zo_stream_host_submit(call->streams[d], mix_in_stream, &args,
                                 sizeof(args));
}

enum zo_status help_collective(const struct zo_op_call *call)
{
    const struct zo_machine *machine = call->machine;
    const int ranks = machine->device_count;
    const size_t piece = accesses_of(call->op)[0].bytes / (size_t)ranks;
    const void *sources[ZO_DEVICES_MAX];
    void *targets[ZO_DEVICES_MAX], *outs[ZO_DEVICES_MAX];

    for (int d = 0; d < ranks; d++) {
        sources[d] = call->at[3 * d];
        targets[d] = call->at[3 * d + 1];
        outs[d] = call->at[3 * d + 2];
    }
    if (ranks == 1) {
        ZO_TRY(machine->device_ops->copy(call->streams[0], targets[0],
                                         sources[0], piece));
        return mix_part(call, 0);
    }
    ZO_TRY(machine->comm_ops->exchange(machine->comm,
                                       &(struct zo_comm_exchange_args){
                                           .streams = call->streams,
                                           .targets = targets,
                                           .sources = sources,
                                           .piece_bytes = piece,
                                           .stride_bytes = piece,
                                       }));
    for (int d = 0; d < ranks; d++) {
        ZO_TRY(mix_part(call, d));
    }
    return machine->comm_ops->all_gather(machine->comm,
                                         &(struct zo_comm_all_gather_args){
                                             .streams = call->streams,
                                             .buffers = outs,
                                             .piece_bytes = piece,
                                         });
}

/* ---- random programs ----------------------------------------------------- */

struct maker {
    struct zo_program *program;
    const struct help_shape *shape;
    struct help_random random;
    int schedule; /* the list at hand */
};

static enum zo_status add_buffer(struct maker *maker, enum zo_tier tier,
                                 int device, int schedule)
{
    const uint64_t devices = (uint64_t)maker->shape->devices;
    const struct zo_buffer buffer = {
        .name = "a buffer",
        .purpose = ZO_PURPOSE_ACTIVATION,
        .tier = tier,
        .device = device,
        .unit = -1,
        .schedule = schedule,
        .bytes = devices * (1 + help_below(&maker->random,
                                           (uint64_t)maker->shape->bytes_max)),
        .has_slots = help_once_in(&maker->random, 4),
    };
    zo_buffer_id id;

    return zo_program_buffer(maker->program, &buffer, &id);
}

/* Of every arena at least one, so that operations find what they need. */
static enum zo_status add_buffers(struct maker *maker, int schedule)
{
    const int devices = maker->shape->devices;
    const int each =
        1 + (int)help_below(&maker->random, schedule == -1 ? 3 : 8);

    for (int i = 0; i < each; i++) {
        for (int d = 0; d < devices; d++) {
            ZO_TRY(add_buffer(maker, ZO_TIER_GPU, d, schedule));
        }
        ZO_TRY(add_buffer(maker, ZO_TIER_CPU, 0, schedule));
        if (maker->shape->has_nvme) {
            ZO_TRY(add_buffer(maker, ZO_TIER_NVME, 0, schedule));
        }
    }
    return ZO_OK;
}

/* A random buffer of a tier that the list at hand may use; not the record. */
static zo_buffer_id pick_buffer(struct maker *maker, enum zo_tier tier,
                                int device)
{
    const struct zo_program *program = maker->program;
    zo_buffer_id found[BUFFERS_MAX];
    size_t count = 0;

    for (size_t i = 1; i < program->buffer_count; i++) {
        const struct zo_buffer *buffer = &program->buffers[i];

        if (buffer->tier == tier && buffer->device == device &&
            (buffer->schedule == -1 || buffer->schedule == maker->schedule) &&
            count < BUFFERS_MAX) {
            found[count++] = (zo_buffer_id)i;
        }
    }
    return found[help_below(&maker->random, count)];
}

static struct zo_access pick_range(struct maker *maker, enum zo_tier tier,
                                   int device, uint64_t bytes,
                                   enum zo_access_mode mode)
{
    const zo_buffer_id id = pick_buffer(maker, tier, device);
    const uint64_t size = maker->program->buffers[id].bytes;
    const uint64_t taken = bytes < size ? bytes : size;

    return (struct zo_access){
        id, mode, help_below(&maker->random, size - taken + 1), taken};
}

static enum zo_tier pick_tier(struct maker *maker, enum zo_engine engine)
{
    if (engine == ZO_ENGINE_NVME) {
        return help_once_in(&maker->random, 2) ? ZO_TIER_NVME : ZO_TIER_CPU;
    }
    return zo_engine_is_stream(engine) && !help_once_in(&maker->random, 4)
               ? ZO_TIER_GPU
               : ZO_TIER_CPU;
}

static enum zo_status add_mix(struct maker *maker, struct zo_op *op)
{
    struct zo_access accesses[6];
    const size_t count = 1 + help_below(&maker->random, 5);

    for (size_t i = 0; i < count; i++) {
        const uint64_t bytes =
            help_below(&maker->random, (uint64_t)maker->shape->bytes_max + 1);
        const enum zo_tier tier = pick_tier(maker, op->engine);

        accesses[i] = pick_range(
            maker, tier, tier == ZO_TIER_GPU ? op->device : 0, bytes,
            (enum zo_access_mode)(1 + help_below(&maker->random, 3)));
    }
    accesses[count] = zo_whole(maker->program, 0, ZO_READ); /* the record */
    op->run = help_mix;
    return zo_schedule_add(maker->program, maker->schedule, op, accesses,
                           count + (help_once_in(&maker->random, 3) ? 1 : 0));
}

static enum zo_status add_copy(struct maker *maker, struct zo_op *op)
{
    const bool is_up = op->engine == ZO_ENGINE_H2D;
    struct zo_access gpu =
        pick_range(maker, ZO_TIER_GPU, op->device,
                   (uint64_t)maker->shape->bytes_max, ZO_WRITE);
    struct zo_access host =
        pick_range(maker, ZO_TIER_CPU, 0, gpu.bytes, ZO_WRITE);

    gpu.bytes = host.bytes =
        zo_min_i64((int64_t)gpu.bytes, (int64_t)host.bytes);
    *(is_up ? &host : &gpu) =
        (struct zo_access){is_up ? host.buffer : gpu.buffer, ZO_READ,
                           is_up ? host.offset : gpu.offset, gpu.bytes};
    op->run = help_copy;
    return zo_schedule_add(maker->program, maker->schedule, op,
                           is_up ? (const struct zo_access[]){gpu, host}
                                 : (const struct zo_access[]){host, gpu},
                           2);
}

static enum zo_status add_collective(struct maker *maker, struct zo_op *op)
{
    const int devices = maker->shape->devices;
    struct zo_access accesses[3 * ZO_DEVICES_MAX];
    uint64_t bytes = UINT64_MAX;

    /* Ranges of one size; local, staging and out may not overlap. */
    for (int d = 0; d < devices; d++) {
        for (int i = 0; i < 3; i++) {
            struct zo_access *access = &accesses[3 * d + i];

            *access = pick_range(maker, ZO_TIER_GPU, d, UINT64_MAX,
                                 i == 0 ? ZO_READ : ZO_WRITE);
            bytes = access->bytes < bytes ? access->bytes : bytes;
        }
    }
    bytes = bytes / (3 * (uint64_t)devices) * (uint64_t)devices;
    for (int i = 0; i < 3 * devices; i++) {
        accesses[i].offset = (uint64_t)(i % 3) * bytes;
        accesses[i].bytes = bytes;
    }
    op->run = help_collective;
    op->device = 0;
    return zo_schedule_add(maker->program, maker->schedule, op, accesses,
                           3 * (size_t)devices);
}

static enum zo_status add_op(struct maker *maker)
{
    const uint64_t engines = maker->shape->has_nvme ? 6 : 5;
    const enum zo_engine engine =
        (enum zo_engine)help_below(&maker->random, engines);
    struct zo_op op = {
        .name = zo_engine_text(engine),
        .context = maker->program,
        .args = {maker->schedule,
                 (int64_t)help_below(&maker->random, (uint64_t)1 << 62),
                 maker->shape->nap_us},
        .engine = engine,
        .unit = -1,
        .micro = -1,
        .priority = (int)help_below(&maker->random, 5),
    };

    if (zo_engine_is_stream(engine)) {
        op.device =
            (int)help_below(&maker->random, (uint64_t)maker->shape->devices);
    }
    if (engine == ZO_ENGINE_COLLECTIVE) {
        return add_collective(maker, &op);
    }
    if ((engine == ZO_ENGINE_H2D || engine == ZO_ENGINE_D2H) &&
        help_once_in(&maker->random, 2)) {
        return add_copy(maker, &op);
    }
    return add_mix(maker, &op);
}

static enum zo_status make_program(struct maker *maker)
{
    static const char *const names[] = {"first", "second", "third"};
    const struct help_shape *shape = maker->shape;
    const struct zo_buffer record = {.name = "record",
                                     .purpose = ZO_PURPOSE_CONTROL,
                                     .tier = ZO_TIER_CPU,
                                     .unit = -1,
                                     .schedule = -1,
                                     .bytes = 40,
                                     .has_slots = true};
    zo_buffer_id id;

    ZO_TRY(zo_program_buffer(maker->program, &record, &id));
    ZO_TRY(add_buffers(maker, -1));
    for (int i = 0; i < shape->lists; i++) {
        const int ops =
            1 + (int)help_below(&maker->random, (uint64_t)shape->ops_max);

        maker->schedule = zo_program_schedule(maker->program, names[i % 3]);
        ZO_TRY(add_buffers(maker, maker->schedule));
        for (int k = 0; k < ops; k++) {
            ZO_TRY(add_op(maker));
        }
    }
    return zo_layout(maker->program);
}

enum zo_status help_program(const struct help_shape *shape,
                            struct zo_program *program)
{
    struct maker maker = {program, shape,
                          help_random_of(shape->seed, "program"), -1};
    enum zo_status status;

    zo_program_init(program, shape->devices);
    status = make_program(&maker);
    if (status != ZO_OK) {
        zo_program_fini(program);
    }
    return status;
}

void help_sequence(struct help_random *random, const struct zo_program *program,
                   struct zo_sequence_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        items[i].schedule =
            (int)help_below(random, (uint64_t)program->schedule_count);
        items[i].slot = (int)(i % 2);
    }
}

/* ---- runs ---------------------------------------------------------------- */

static enum zo_status start_all(struct zo_executor *executor,
                                const struct zo_sequence_item *items,
                                size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned char *record;
        int slot = -1;

        ZO_TRY(zo_executor_acquire(executor, &slot));
        ZO_ASSERT(slot == items[i].slot);
        record = zo_executor_address(executor, 0, slot);
        for (uint64_t k = 0; k < executor->program->buffers[0].bytes; k++) {
            record[k] = (unsigned char)zo_random_bits(i, k);
        }
        ZO_TRY(zo_executor_start(executor, items[i].schedule, NULL));
    }
    return zo_executor_drain(executor);
}

enum zo_status help_run(struct zo_executor *executor,
                        const struct zo_sequence_item *items, size_t count)
{
    enum zo_status status;

    zo_memory_freeze(true);
    status = start_all(executor, items, count);
    zo_memory_freeze(false);
    return status;
}

static bool same_arena(struct zo_executor *a, struct zo_executor *b,
                       enum zo_tier tier, int device)
{
    const unsigned char *left = a->arenas[tier][device];
    const unsigned char *right = b->arenas[tier][device];

    for (uint64_t i = 0; i < a->program->arena_bytes[tier][device]; i++) {
        if (left[i] != right[i]) {
            (void)printf("# %s memory %d differs at byte %llu: %d, %d\n",
                         zo_tier_text(tier), device, (unsigned long long)i,
                         left[i], right[i]);
            return false;
        }
    }
    return true;
}

bool help_same_memory(struct zo_executor *a, struct zo_executor *b)
{
    bool is_same = same_arena(a, b, ZO_TIER_CPU, 0) &&
                   same_arena(a, b, ZO_TIER_PAGEABLE, 0);

    for (int d = 0; d < a->program->device_count; d++) {
        is_same = same_arena(a, b, ZO_TIER_GPU, d) && is_same;
    }
    return is_same;
}

uint64_t help_hash_buffer(uint64_t hash, struct zo_executor *executor,
                          zo_buffer_id id, int slot, size_t size_bytes)
{
    struct help_mix_args args = {.seed = hash};
    void *bytes = NULL;

    if (id != ZO_NO_BUFFER && zo_executor_tier(executor, id) != ZO_TIER_NVME) {
        help_mix_add(&args, ZO_READ, zo_executor_address(executor, id, slot),
                     size_bytes);
    } else if (id != ZO_NO_BUFFER) {
        bytes = malloc(size_bytes);
        ZO_ASSERT(bytes != NULL && zo_executor_download(executor, bytes, id, 0,
                                                        size_bytes) == ZO_OK);
        help_mix_add(&args, ZO_READ, bytes, size_bytes);
    }
    hash = help_hash(&args);
    free(bytes);
    return hash;
}

/* ---- gates --------------------------------------------------------------- */

/* Waits until *flag; the lock is held. */
static void wait_for(struct help_gate *gate, const bool *flag)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    while (!*flag && !gate->has_given_up) {
        if (pthread_cond_timedwait(&gate->changed, &gate->lock, &until) ==
            ETIMEDOUT) {
            gate->has_given_up = true;
        }
    }
}

void help_gate_open(struct help_gate *gate)
{
    (void)pthread_mutex_lock(&gate->lock);
    gate->is_open = true;
    (void)pthread_cond_broadcast(&gate->changed);
    (void)pthread_mutex_unlock(&gate->lock);
}

void help_gate_pass(struct help_gate *gate)
{
    (void)pthread_mutex_lock(&gate->lock);
    gate->is_entered = true;
    (void)pthread_cond_broadcast(&gate->changed);
    wait_for(gate, &gate->is_open);
    (void)pthread_mutex_unlock(&gate->lock);
}

void help_gate_wait_entered(struct help_gate *gate)
{
    (void)pthread_mutex_lock(&gate->lock);
    wait_for(gate, &gate->is_entered);
    (void)pthread_mutex_unlock(&gate->lock);
}

bool help_gate_failed(struct help_gate *gate)
{
    bool has_given_up;

    (void)pthread_mutex_lock(&gate->lock);
    has_given_up = gate->has_given_up;
    (void)pthread_mutex_unlock(&gate->lock);
    return has_given_up;
}
