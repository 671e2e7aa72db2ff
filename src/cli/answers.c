#include "src/cli/answers.h"

#include <inttypes.h>

#include "config/run_config.h"
#include "src/base/system.h"
#include "src/base/text.h"
#include "src/cli/setup.h"

#define HOST_RESERVE_BYTES ((uint64_t)2 << 30)

/* As asked, or what there is of a GPU.  0: none to keep to. */
static enum zo_status gpu_budget(const struct zo_options *options,
                                 const struct zo_machine *machine,
                                 uint64_t *bytes_out)
{
    *bytes_out = options->gpu_memory_bytes;
    return *bytes_out > 0 || machine->device_ops == &zo_device_host
               ? ZO_OK
               : zo_setup_gpu_room(machine, 0, bytes_out);
}

static uint64_t host_budget(const struct zo_options *options)
{
    struct zo_system system;
    uint64_t room;

    if (options->host_memory_bytes > 0) {
        return options->host_memory_bytes;
    }
    zo_system_read("", &system);
    room = zo_system_room(&system);
    if (room == ZO_SYSTEM_NO_LIMIT) {
        return 0;
    }
    return room > HOST_RESERVE_BYTES ? room - HOST_RESERVE_BYTES : 1;
}

enum zo_status zo_cli_half_angles(const struct zo_options *options,
                                  const struct zo_model_config *model,
                                  enum zo_dtype dtype, struct zo_notes *notes,
                                  bool *half_out)
{
    const bool wants = (enum zo_rope_precision)options->rope_precision ==
                       ZO_ROPE_PRECISION_MODEL;

    *half_out = wants && model->rope_angles == ZO_ROPE_ANGLES_MODEL;
    if (wants && !*half_out) {
        return zo_note_add(notes, ZO_NOTE_INFO,
                           "--rope-precision model: the official code of "
                           "%s has exact angles; nothing is rounded",
                           zo_model_family_name(model->family));
    }
    if (wants && dtype == ZO_F32) {
        return zo_note_add(notes, ZO_NOTE_INFO,
                           "--rope-precision model: the run is in fp32, and so "
                           "are its angles; --fp16 or --bf16 rounds them");
    }
    return ZO_OK;
}

static enum zo_status note_places(const struct zo_cli_answers_options *options,
                                  const struct zo_decoder *decoder)
{
    struct zo_notes *notes = &options->cli->notes;
    const int host_units = zo_decoder_host_units(decoder);
    const int64_t units = options->model->num_layers + 2;
    char gpu[16], host[16];

    if (options->tokens_max > options->model->seq_length) {
        ZO_TRY(zo_note_add(notes, ZO_NOTE_WARN,
                           "prompt and answer may have %" PRId64
                           " tokens; the model was made for %" PRId64,
                           options->tokens_max, options->model->seq_length));
    }
    if (host_units == 0) {
        return ZO_OK;
    }
    return zo_note_add(
        notes, ZO_NOTE_INFO,
        "the weights of %d of %" PRId64
        " units stay on the host and cross the bus for every token: %s of the "
        "device, %s of the host",
        host_units, units,
        zo_text_gib(gpu, sizeof(gpu), zo_decoder_gpu_bytes(decoder)),
        zo_text_gib(host, sizeof(host), zo_decoder_host_bytes(decoder)));
}

static enum zo_status load(const struct zo_cli_answers_options *options,
                           struct zo_decoder *decoder)
{
    struct zo_notes *notes = &options->cli->notes;
    struct zo_model_dir *dir = NULL;
    enum zo_status status;

    ZO_TRY(zo_model_dir_open(options->options->model, notes, &dir));
    status = zo_decoder_load(decoder, dir, notes);
    zo_model_dir_close(dir);
    return status;
}

enum zo_status zo_cli_answers_open(const struct zo_cli_answers_options *options,
                                   struct zo_cli_answers *answers)
{
    const struct zo_options *wishes = options->options;
    struct zo_decoder_options decoder = {
        .model = options->model,
        .devices = options->devices,
        .dtype = options->dtype,
        .prompt_tokens_max = options->prompt_tokens_max,
        .tokens_max = options->tokens_max,
        .labels_max = 1,
        .half_angles = options->half_angles,
        .host_memory_bytes = host_budget(wishes),
    };
    const struct zo_sampler_options sampler = {
        .vocab = options->model->vocab_size,
        .draws = wishes->do_sample ||
                 zo_option_given(wishes, ZO_OPTION_TEMPERATURE) ||
                 zo_option_given(wishes, ZO_OPTION_TOP_P),
        .temperature = wishes->temperature,
        .top_p = wishes->top_p,
        .seed = (uint64_t)wishes->seed,
    };

    ZO_TRY(gpu_budget(wishes, &options->devices->machine,
                      &decoder.gpu_memory_bytes));
    answers->stop_count = zo_answer_stops(options->tokenizer, answers->stops);
    ZO_TRY(zo_sampler_open(&sampler, &answers->sampler));
    ZO_TRY(zo_decoder_open(&decoder, &answers->decoder));
    ZO_TRY(note_places(options, answers->decoder));
    return load(options, answers->decoder);
}

void zo_cli_answers_close(struct zo_cli_answers *answers)
{
    zo_decoder_close(answers->decoder);
    zo_sampler_close(answers->sampler);
    *answers = (struct zo_cli_answers){0};
}
