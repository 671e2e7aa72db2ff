/*
 * Times how a step's list is made: built, laid out, its order derived.
 *
 *   bench_lists [MICROS]...
 *
 * ChatGLM2-6B with MICROS micro batches of 512 tokens a step (64 256), on one
 * device of the host backend, in every way that the planner looks at: all of
 * them in one pass or a pass each, layers kept or recomputed, states on the
 * device or streamed.  Nothing of what is planned is allocated.  One JSON
 * object a line: seconds of the processor, and hashes of all offsets and of
 * all edges, by which two versions can be compared.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "offload/order.h"
#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/cli/setup.h"

struct way {
    const char *name;
    bool streams, is_one_pass;
    enum zo_keep keep;
};

static const struct way ways[] = {
    {"resident, a pass each, recomputed", false, false, ZO_KEEP_INPUT},
    {"resident, a pass each, kept", false, false, ZO_KEEP_ALL},
    {"resident, one pass, recomputed", false, true, ZO_KEEP_INPUT},
    {"streamed, one pass, recomputed", true, true, ZO_KEEP_INPUT},
    {"streamed, one pass, costly kept", true, true, ZO_KEEP_COSTLY},
    {"streamed, one pass, kept", true, true, ZO_KEEP_ALL},
    {"streamed, a pass each, recomputed", true, false, ZO_KEEP_INPUT},
};

/* This process's: others may want the processor too. */
static double now_seconds(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static uint64_t hash_of(const struct zo_program *program)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < program->buffer_count; i++) {
        hash = (hash ^ program->buffers[i].offset) * 0x100000001b3u;
    }
    return hash;
}

/* Of a set: the order of an operation's predecessors is of no matter. */
static uint64_t hash_of_edges(const struct zo_edges *edges)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < edges->count; i++) {
        for (size_t e = edges->first[i]; e < edges->first[i + 1]; e++) {
            uint64_t edge = i << 32 ^ edges->preds[e];

            edge = (edge ^ edge >> 31) * 0x9e3779b97f4a7c15u;
            hash += edge ^ edge >> 29;
        }
    }
    return hash;
}

static enum zo_status time_order(const struct zo_build *build)
{
    const struct zo_sequence_item items[] = {{build->step_schedule, 0},
                                             {build->step_schedule, 1}};
    struct zo_edges edges;
    double begin = now_seconds(), open_seconds;
    struct zo_order *order;

    ZO_TRY(zo_order_open(&build->program, 2, &order));
    open_seconds = now_seconds() - begin;
    zo_order_close(order);
    begin = now_seconds();
    ZO_TRY(zo_edges_derive(&build->program, items, ZO_COUNT(items), &edges));
    (void)printf(", \"order_open_seconds\": %.3f, \"edges_seconds\": %.3f, "
                 "\"edge_count\": %zu, \"edges\": \"%016" PRIx64 "\"",
                 open_seconds, now_seconds() - begin, edges.first[edges.count],
                 hash_of_edges(&edges));
    zo_edges_fini(&edges);
    return ZO_OK;
}

static enum zo_status time_way(const struct zo_build_options *planned,
                               const struct way *way)
{
    struct zo_build_options options = *planned;
    struct zo_unit_homes *homes;
    struct zo_build build;
    const struct zo_program *program = &build.program;
    const double begin = now_seconds();
    enum zo_status status;

    ZO_TRY(zo_alloc((size_t)options.unit_count, sizeof(homes[0]), "homes",
                    &homes));
    for (int u = 0; u < options.unit_count; u++) {
        homes[u] = (struct zo_unit_homes){ZO_TIER_CPU, ZO_TIER_CPU};
    }
    options.placement = (struct zo_placement){
        .homes = way->streams ? homes : NULL,
        .pass_micros = way->is_one_pass ? options.micros : 1,
        .keep = way->keep,
        .weight_ring = 3,
        .gradient_ring = 2,
        .host_boundaries = way->streams ? 10 : 0,
    };
    status = zo_build_train(&options, &build);
    if (status == ZO_OK) {
        const double build_seconds = now_seconds() - begin;

        (void)printf("{\"micros\": %d, \"way\": \"%s\", \"ops\": %zu, "
                     "\"buffers\": %zu, \"build_seconds\": %.3f",
                     options.micros, way->name,
                     program->schedules[build.step_schedule].op_count,
                     program->buffer_count, build_seconds);
        status = time_order(&build);
        (void)printf(", \"gpu_bytes\": %" PRIu64 ", \"cpu_bytes\": %" PRIu64
                     ", \"offsets\": \"%016" PRIx64 "\"}\n",
                     program->arena_bytes[ZO_TIER_GPU][0],
                     program->arena_bytes[ZO_TIER_CPU][0], hash_of(program));
        (void)fflush(stdout);
        zo_build_fini(&build);
    }
    zo_free(homes);
    return status;
}

static enum zo_status time_micros(const char *micros, struct zo_notes *notes)
{
    const char *argv[] = {
        "--model",       "chatglm2-6b",  "--backend",
        "host",          "--bf16",       "--gradient-accumulation-steps",
        micros,          "--gpu-memory", "1000000G",
        "--host-memory", "1000000G",
    };
    struct zo_options options;
    struct zo_setup setup = {.options = &options};
    struct zo_trainer *trainer = NULL;
    enum zo_status status;

    ZO_TRY(zo_options_parse(ZO_COMMAND_PLAN, (int)ZO_COUNT(argv), argv,
                            &options, notes));
    status = zo_setup_open(&options, notes, &setup);
    if (status == ZO_OK) {
        status = zo_setup_trainer(&setup, false, &trainer);
    }
    for (size_t i = 0; i < ZO_COUNT(ways) && status == ZO_OK; i++) {
        status = time_way(&zo_trainer_build(trainer)->options, &ways[i]);
    }
    zo_trainer_close(trainer);
    zo_setup_close(&setup);
    zo_options_fini(&options);
    return status;
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"64", "256"};
    const int count = argc > 1 ? argc - 1 : (int)ZO_COUNT(usual);
    struct zo_notes notes = {0};
    enum zo_status status = ZO_OK;

    for (int i = 0; i < count && status == ZO_OK; i++) {
        status = time_micros(argc > 1 ? argv[i + 1] : usual[i], &notes);
    }
    if (status != ZO_OK) {
        (void)fprintf(stderr, "bench_lists: %s\n", zo_err_last()->text);
    }
    zo_notes_fini(&notes);
    return status == ZO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
