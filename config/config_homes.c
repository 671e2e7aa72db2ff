/* zero_optimization: the stage, and where states may live.  Layer 1. */
#include <math.h>
#include <string.h>

#include "config/config_resolve.h"

/* Choices of a device key, in order. */
static enum zo_home_limit limit_of_choice(int choice)
{
    static const enum zo_home_limit limits[] = {ZO_HOME_GPU, ZO_HOME_CPU,
                                                ZO_HOME_NVME};

    return limits[choice];
}

static enum zo_status resolve_stage(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    const struct zo_config_value *section = &values->items[ZO_KEY_ZERO];
    struct zo_run_zero *zero = &r->config->zero;

    if (section->state == ZO_VALUE_GIVEN &&
        zo_json_type(section->node) == ZO_JSON_BOOL) {
        zero->stage = section->flag ? 1 : 0;
        return zo_value_note(values, ZO_KEY_ZERO, ZO_NOTE_WARN,
                             "%s is an old form of {\"stage\": %d}",
                             section->flag ? "true" : "false", zero->stage);
    }
    if (zo_value_is_given(values, ZO_KEY_ZERO_STAGE)) {
        zero->stage = (int)values->items[ZO_KEY_ZERO_STAGE].integer;
        return ZO_OK;
    }
    if (!r->config->has_config) {
        zero->stage = 3; /* and the planner places */
        return ZO_OK;
    }
    zero->stage = (int)zo_value_integer(values, ZO_KEY_ZERO_STAGE);
    return zo_note_add(r->notes, ZO_NOTE_WARN,
                       "%s: no zero_optimization.stage: stage %d, as in "
                       "DeepSpeed (all states on each GPU)",
                       zo_json_name(values->doc), zero->stage);
}

/*
 * An old boolean and the device that it became: the limit they say together.
 */
static enum zo_status resolve_device(struct zo_resolver *r,
                                     enum zo_config_key device,
                                     enum zo_config_key legacy,
                                     const char *section,
                                     enum zo_home_limit *limit_out)
{
    const struct zo_config_values *values = r->values;
    const bool has_device = zo_value_is_given(values, device);
    const bool is_old = values->items[legacy].flag;
    enum zo_home_limit limit = ZO_HOME_PLANNED;

    if (has_device) {
        limit = limit_of_choice(values->items[device].choice);
    }
    if (zo_value_is_given(values, legacy)) {
        const enum zo_home_limit old = is_old ? ZO_HOME_CPU : ZO_HOME_GPU;

        if (has_device && old != limit) {
            return zo_value_fail(values, legacy,
                                 "%s contradicts %s.device; remove this old "
                                 "key",
                                 is_old ? "true" : "false", section);
        }
        if (is_old) {
            limit = old;
        }
        ZO_TRY(zo_value_note(values, legacy, ZO_NOTE_WARN,
                             is_old ? "an old key, read as %s.device \"cpu\""
                                    : "an old key; false asks for nothing in "
                                      "%s",
                             section));
    }
    *limit_out = limit;
    return ZO_OK;
}

/* The folder of states on NVMe: the key, or --nvme; both must agree. */
static enum zo_status resolve_nvme_path(struct zo_resolver *r,
                                        enum zo_config_key key,
                                        enum zo_config_key device,
                                        struct zo_run_offload *offload)
{
    const struct zo_config_values *values = r->values;
    const char *path = zo_value_text(values, key);
    const char *option = r->options->nvme_path;

    if (r->config->zero.stage < 3 || offload->limit == ZO_HOME_GPU ||
        offload->limit == ZO_HOME_CPU) {
        return ZO_OK; /* no NVMe there */
    }
    if (path != NULL && path[0] == '\0') {
        return zo_value_fail(values, key, "want a folder, found nothing");
    }
    if (path != NULL && option != NULL && strcmp(path, option) != 0) {
        return zo_value_fail(values, key,
                             "%s, but --nvme says %s; want one "
                             "of them",
                             path, option);
    }
    if (offload->limit == ZO_HOME_NVME && path == NULL && option == NULL) {
        return zo_value_fail(values, device,
                             "\"nvme\" needs a folder: "
                             "nvme_path beside it, or --nvme DIR");
    }
    offload->nvme_path =
        path != NULL && offload->limit == ZO_HOME_NVME ? path : option;
    if (zo_value_is_auto(values, key) && option != NULL) {
        return zo_words_add(&r->from_auto, "nvme_path %s", option);
    }
    return ZO_OK;
}

static enum zo_status resolve_optimizer_home(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    struct zo_run_zero *zero = &r->config->zero;
    struct zo_run_offload *offload = &zero->optimizer;
    const enum zo_config_key cause =
        zo_value_is_given(values, ZO_KEY_OPT_DEVICE) ? ZO_KEY_OPT_DEVICE
                                                     : ZO_KEY_CPU_OFFLOAD;

    ZO_TRY(resolve_device(r, ZO_KEY_OPT_DEVICE, ZO_KEY_CPU_OFFLOAD,
                          "offload_optimizer", &offload->limit));
    if (zero->stage == 0 &&
        (offload->limit == ZO_HOME_CPU || offload->limit == ZO_HOME_NVME)) {
        return zo_value_fail(values, cause,
                             "the optimizer is offloaded at "
                             "stages 1 to 3 only; the stage is 0");
    }
    if (zero->stage < 3 && offload->limit == ZO_HOME_NVME) {
        return zo_value_fail(values, cause,
                             "NVMe is used at stage 3 only; "
                             "the stage is %d",
                             zero->stage);
    }
    if (zero->stage == 0) {
        offload->limit = ZO_HOME_GPU;
    }
    ZO_TRY(
        resolve_nvme_path(r, ZO_KEY_OPT_NVME_PATH, ZO_KEY_OPT_DEVICE, offload));
    offload->pin_memory = zo_value_flag(values, ZO_KEY_OPT_PIN);
    offload->pins_as_asked = zo_value_is_given(values, ZO_KEY_OPT_PIN);
    offload->buffer_count = zo_value_integer(values, ZO_KEY_OPT_BUFFERS);
    offload->ratio = zo_value_number(values, ZO_KEY_OPT_RATIO);
    if (zero->stage < 3 && offload->ratio < 1.0) {
        offload->ratio = 1.0;
        return zo_value_note(values, ZO_KEY_OPT_RATIO, ZO_NOTE_WARN,
                             "ignored: it is read at stage 3 only, as in "
                             "DeepSpeed; the stage is %d",
                             zero->stage);
    }
    return ZO_OK;
}

static enum zo_status resolve_param_home(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    struct zo_run_zero *zero = &r->config->zero;
    struct zo_run_offload *offload = &zero->param;

    ZO_TRY(resolve_device(r, ZO_KEY_PARAM_DEVICE, ZO_KEY_CPU_OFFLOAD_PARAM,
                          "offload_param", &offload->limit));
    if (zero->stage < 3) {
        const bool asks = offload->limit == ZO_HOME_CPU ||
                          offload->limit == ZO_HOME_NVME ||
                          zo_value_is_auto(values, ZO_KEY_PARAM_DEVICE);

        offload->limit = ZO_HOME_GPU;
        if (asks) {
            ZO_TRY(zo_value_note(values,
                                 values->items[ZO_KEY_PARAM_DEVICE].node != NULL
                                     ? ZO_KEY_PARAM_DEVICE
                                     : ZO_KEY_CPU_OFFLOAD_PARAM,
                                 ZO_NOTE_WARN,
                                 "ignored: weights leave the GPU at stage 3 "
                                 "only, as in DeepSpeed; the stage is %d",
                                 zero->stage));
        }
    }
    ZO_TRY(resolve_nvme_path(r, ZO_KEY_PARAM_NVME_PATH, ZO_KEY_PARAM_DEVICE,
                             offload));
    offload->pin_memory = zo_value_flag(values, ZO_KEY_PARAM_PIN);
    offload->pins_as_asked = zo_value_is_given(values, ZO_KEY_PARAM_PIN);
    offload->buffer_count = zo_value_integer(values, ZO_KEY_PARAM_BUFFERS);
    offload->buffer_size_elems =
        zo_value_integer(values, ZO_KEY_PARAM_BUFFER_SIZE);
    offload->max_in_cpu_elems =
        zo_value_integer(values, ZO_KEY_PARAM_MAX_IN_CPU);
    offload->ratio = 1.0;
    return ZO_OK;
}

/* Hugging Face's sizes for "auto", from the model's width. */
static enum zo_status resolve_auto_size(struct zo_resolver *r,
                                        enum zo_config_key key, double value,
                                        int64_t *out)
{
    const char *dot = strrchr(zo_config_row(key)->path, '.');

    *out = zo_value_integer(r->values, key);
    if (!zo_value_is_auto(r->values, key) || r->facts->hidden_size == 0) {
        return ZO_OK;
    }
    *out = (int64_t)floor(value);
    return zo_words_add(&r->from_auto, "%s %lld", dot + 1, (long long)*out);
}

static enum zo_status resolve_sizes(struct zo_resolver *r)
{
    const struct zo_config_values *values = r->values;
    const double width = (double)r->facts->hidden_size;
    struct zo_run_zero *zero = &r->config->zero;

    ZO_TRY(resolve_auto_size(r, ZO_KEY_REDUCE_BUCKET, width * width,
                             &zero->reduce_bucket_size));
    ZO_TRY(resolve_auto_size(r, ZO_KEY_PREFETCH_BUCKET, 0.9 * width * width,
                             &zero->prefetch_bucket_size));
    ZO_TRY(resolve_auto_size(r, ZO_KEY_PERSISTENCE, 10.0 * width,
                             &zero->param_persistence_threshold));
    zero->sub_group_size = zo_value_integer(values, ZO_KEY_SUB_GROUP);
    zero->max_live_parameters = zo_value_integer(values, ZO_KEY_MAX_LIVE);
    zero->max_reuse_distance = zo_value_integer(values, ZO_KEY_MAX_REUSE);
    zero->asks_prefetch = zo_value_asks(values, ZO_KEY_PREFETCH_BUCKET);
    zero->asks_max_live = zo_value_asks(values, ZO_KEY_MAX_LIVE);
    zero->asks_reuse = zo_value_asks(values, ZO_KEY_MAX_REUSE);
    zero->overlap_comm = zo_value_flag(values, ZO_KEY_OVERLAP_COMM);
    return ZO_OK;
}

enum zo_status zo_resolve_zero(struct zo_resolver *r)
{
    const struct zo_run_zero *zero = &r->config->zero;

    ZO_TRY(resolve_stage(r));
    ZO_TRY(resolve_optimizer_home(r));
    ZO_TRY(resolve_param_home(r));
    ZO_TRY(resolve_sizes(r));
    if (zo_value_is_given(r->values, ZO_KEY_GATHER_FP16)) {
        ZO_TRY(zo_value_note(r->values, ZO_KEY_GATHER_FP16, ZO_NOTE_WARN,
                             "an old name of stage3_gather_16bit_weights_on_"
                             "model_save; saved models are always whole"));
    }
    if (r->options->nvme_path != NULL && zero->optimizer.nvme_path == NULL &&
        zero->param.nvme_path == NULL) {
        return zo_note_add(r->notes, ZO_NOTE_WARN,
                           "--nvme %s is not used: the configuration keeps "
                           "all states in faster tiers",
                           r->options->nvme_path);
    }
    return ZO_OK;
}
