/*
 * What is in a training state: where the run stood, its settings, and every
 * tensor of masters and moments, read once, so that each checksum is verified.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "src/base/jsonl.h"
#include "src/base/memory.h"
#include "src/base/text.h"
#include "src/checkpoint/state_reader.h"
#include "src/cli/inspect.h"

#define PIECE_ELEMS ZO_STATE_PIECE_ELEMS

struct listed {
    enum zo_state_kind kind;
    size_t index;
    const struct zo_tensor_info *info;
    char shard[ZO_STATE_NAME_BYTES];
    uint64_t bad; /* numbers that are not finite */
};

static void print_text(FILE *file, const char *text, int columns)
{
    zo_cli_print_text(file, text, strlen(text), columns);
}

static void print_run(FILE *file, const struct zo_state *state)
{
    const struct zo_state_run *run = zo_state_run(state);
    const struct zo_state_setting *settings;
    size_t count = 0;
    char size[16];

    (void)fputs("training state of ", file);
    print_text(file, zo_state_program(state), 80);
    (void)fprintf(
        file,
        ": behind step %" PRId64 ", %" PRId64 " update%s, %" PRId64
        " token%s; %zu shard%s, %s\n",
        run->step, run->optimizer_steps,
        zo_text_s((uint64_t)run->optimizer_steps), run->tokens_total,
        zo_text_s((uint64_t)run->tokens_total), zo_state_shard_count(state),
        zo_text_s(zo_state_shard_count(state)),
        zo_text_gib(size, sizeof(size), zo_state_stored_bytes(state)));
    (void)fprintf(file,
                  "rows: %" PRId64 " a step, seed %" PRIu64
                  "%s, data %016" PRIx64 ", model %016" PRIx64 "\n",
                  run->step_rows, run->seed,
                  run->shuffles != 0 ? "" : ", in the order of the file",
                  run->data_fingerprint, run->model_fingerprint);
    if (run->scales != 0) {
        (void)fprintf(file, "loss scale %g, %" PRId64 " step%s skipped\n",
                      run->loss_scale, run->skipped_steps,
                      zo_text_s((uint64_t)run->skipped_steps));
    }
    settings = zo_state_settings(state, &count);
    for (size_t i = 0; i < count; i++) {
        (void)fputs("  ", file);
        print_text(file, settings[i].name, 40);
        (void)fputs(": ", file);
        print_text(file, settings[i].value, 80);
        (void)fputc('\n', file);
    }
}

static enum zo_status print_run_json(FILE *file, const struct zo_state *state)
{
    const struct zo_state_run *run = zo_state_run(state);
    const struct zo_state_setting *settings;
    char buffer[4096];
    struct zo_jsonl json;
    size_t count = 0;

    settings = zo_state_settings(state, &count);
    zo_jsonl_init_file(&json, file, "standard output", buffer, sizeof(buffer));
    zo_jsonl_begin(&json);
    zo_jsonl_text(&json, "kind", "state");
    zo_jsonl_text(&json, "program", zo_state_program(state));
    zo_jsonl_int(&json, "step", run->step);
    zo_jsonl_int(&json, "optimizer_steps", run->optimizer_steps);
    zo_jsonl_int(&json, "tokens_total", run->tokens_total);
    zo_jsonl_real(&json, "best_loss", run->best_loss);
    zo_jsonl_real(&json, "loss_scale", run->loss_scale);
    zo_jsonl_int(&json, "skipped_steps", run->skipped_steps);
    zo_jsonl_uint(&json, "seed", run->seed);
    zo_jsonl_int(&json, "step_rows", run->step_rows);
    zo_jsonl_uint(&json, "bytes", zo_state_stored_bytes(state));
    zo_jsonl_object_begin(&json, "settings");
    for (size_t i = 0; i < count; i++) {
        zo_jsonl_text(&json, settings[i].name, settings[i].value);
    }
    zo_jsonl_object_end(&json);
    return zo_jsonl_end(&json);
}

/* Reads a tensor whole, a piece at a time. */
static enum zo_status verify(const struct zo_state *state,
                             struct listed *listed, float *piece)
{
    const struct zo_tensor_source *source =
        zo_state_tensors(state, listed->kind);
    struct zo_value_counts counts = {0};

    for (uint64_t at = 0; at < listed->info->elem_count; at += PIECE_ELEMS) {
        const uint64_t rest = listed->info->elem_count - at;

        ZO_TRY(zo_tensor_source_read_as(source, listed->index, at,
                                        rest < PIECE_ELEMS ? rest : PIECE_ELEMS,
                                        ZO_F32, piece, &counts));
    }
    listed->bad = counts.non_finite;
    return ZO_OK;
}

static enum zo_status print_json(FILE *file, const struct listed *listed)
{
    char buffer[4096];
    struct zo_jsonl json;

    zo_jsonl_init_file(&json, file, "standard output", buffer, sizeof(buffer));
    zo_jsonl_begin(&json);
    zo_jsonl_text(&json, "name", listed->info->name);
    zo_jsonl_text(&json, "state", zo_state_kind_name(listed->kind));
    zo_jsonl_text(&json, "dtype", zo_element_name(listed->info->element));
    zo_jsonl_array_begin(&json, "shape");
    for (int i = 0; i < listed->info->rank; i++) {
        zo_jsonl_int(&json, NULL, listed->info->shape[i]);
    }
    zo_jsonl_array_end(&json);
    zo_jsonl_uint(&json, "bytes", listed->info->size_bytes);
    zo_jsonl_text(&json, "file", listed->shard);
    zo_jsonl_uint(&json, "non_finite", listed->bad);
    return zo_jsonl_end(&json);
}

static void print_plain(FILE *file, const struct listed *listed)
{
    const struct zo_tensor_info *info = listed->info;
    char shape[ZO_SHAPE_TEXT_MAX], size[16];

    (void)fprintf(file, "%-10s %-5s %-16s %10s  ",
                  zo_state_kind_name(listed->kind),
                  zo_element_name(info->element),
                  zo_shape_text(shape, sizeof(shape), info->shape, info->rank),
                  zo_text_gib(size, sizeof(size), info->size_bytes));
    print_text(file, info->name, 200);
    (void)fprintf(file, "  %s", listed->shard);
    if (listed->bad > 0) {
        (void)fprintf(file, "  %" PRIu64 " not finite", listed->bad);
    }
    (void)fputc('\n', file);
}

/* Reads a kind; a line a tensor with --tensors, an object with --json. */
static enum zo_status list_kind(struct zo_cli *cli,
                                const struct zo_options *options,
                                const struct zo_state *state,
                                enum zo_state_kind kind, float *piece,
                                struct zo_inspect_list *groups)
{
    const struct zo_tensor_source *source = zo_state_tensors(state, kind);

    for (size_t i = 0; i < zo_tensor_source_count(source); i++) {
        struct listed listed = {
            .kind = kind, .index = i, .info = zo_tensor_source_info(source, i)};

        (void)zo_state_shard_of(state, kind, i, listed.shard,
                                sizeof(listed.shard));
        ZO_TRY(verify(state, &listed, piece));
        if (options->json) {
            ZO_TRY(print_json(cli->out, &listed));
        } else if (options->tensors) {
            print_plain(cli->out, &listed);
        } else {
            ZO_TRY(zo_inspect_list_add(groups, listed.info,
                                       zo_state_kind_name(kind)));
        }
        if (listed.bad > 0) {
            ZO_TRY(zo_note_add(
                &cli->notes, ZO_NOTE_WARN,
                "%s of \"%.200s\" has %" PRIu64 " number%s not finite",
                zo_state_kind_name(kind), listed.info->name, listed.bad,
                listed.bad == 1 ? " that is" : "s that are"));
        }
    }
    return ZO_OK;
}

static enum zo_status list_state(struct zo_cli *cli,
                                 const struct zo_options *options,
                                 const struct zo_state *state)
{
    struct zo_inspect_list groups = {0};
    enum zo_status status = ZO_OK;
    float *piece = NULL;

    if (options->json) {
        ZO_TRY(print_run_json(cli->out, state));
    } else {
        print_run(cli->out, state);
    }
    ZO_TRY(zo_alloc((size_t)PIECE_ELEMS, sizeof(*piece), "a piece of a tensor",
                    &piece));
    for (int kind = 0; status == ZO_OK && kind < ZO_STATE_KINDS; kind++) {
        status = list_kind(cli, options, state, (enum zo_state_kind)kind, piece,
                           &groups);
    }
    if (status == ZO_OK) {
        status = zo_inspect_list_print(&groups, cli->out);
    }
    zo_inspect_list_fini(&groups);
    zo_free(piece);
    if (status == ZO_OK && !options->json) {
        (void)fputs("every checksum is right\n", cli->out);
    }
    return status;
}

enum zo_status zo_inspect_state(struct zo_cli *cli,
                                const struct zo_options *options)
{
    struct zo_state *state = NULL;
    enum zo_status status;

    ZO_TRY(zo_state_open(options->model, &state));
    status = list_state(cli, options, state);
    zo_state_close(state);
    return status;
}
