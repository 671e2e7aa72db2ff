#include "config/run_config.h"

#include <string.h>

#include "config/config_resolve.h"
#include "config/json.h"
#include "src/base/memory.h"

static enum zo_status apply_set(struct zo_json_doc *doc, const char *set)
{
    const char *equals = strchr(set, '=');
    char *path = NULL;
    enum zo_status status;

    ZO_ASSERT(equals != NULL); /* the options' reader checked it */
    ZO_TRY(zo_strndup(set, (size_t)(equals - set), &path));
    status = zo_json_set(doc, path, equals + 1);
    zo_free(path);
    return status;
}

/* In DeepSpeed's checked sections "auto" is the default. */
static enum zo_status collect_defaults(struct zo_resolver *r)
{
    size_t count = 0;
    const struct zo_config_option *table = zo_config_options(&count);

    for (size_t i = 0; i < count; i++) {
        if (zo_value_is_auto(r->values, (enum zo_config_key)i) &&
            table[i].auto_text == NULL && table[i].default_text != NULL) {
            ZO_TRY(zo_words_add(&r->from_auto, "%s %s",
                                strrchr(table[i].path, '.') + 1,
                                table[i].default_text));
        }
    }
    return ZO_OK;
}

static enum zo_status tell_auto(struct zo_resolver *r)
{
    ZO_TRY(collect_defaults(r));
    if (r->from_auto.length_bytes == 0) {
        return ZO_OK;
    }
    return zo_note_add(r->notes, ZO_NOTE_INFO, "from \"auto\": %s",
                       r->from_auto.text);
}

static enum zo_status resolve_all(struct zo_resolver *r)
{
    ZO_TRY(zo_resolve_precision(r));
    ZO_TRY(zo_resolve_optimizer(r));
    ZO_TRY(zo_resolve_schedule(r));
    ZO_TRY(zo_resolve_zero(r));
    ZO_TRY(zo_resolve_batch(r)); /* late: it hangs on the devices there are */
    ZO_TRY(zo_resolve_rest(r));
    return tell_auto(r);
}

/* Takes the document over in every case. */
static enum zo_status resolve_doc(struct zo_json_doc *doc, bool has_config,
                                  const struct zo_options *options,
                                  const struct zo_run_facts *facts,
                                  struct zo_notes *notes,
                                  struct zo_run_config *config_out)
{
    struct zo_run_config config = {.document = doc, .has_config = has_config};
    struct zo_config_values *values = NULL;
    struct zo_resolver r = {
        .options = options, .facts = facts, .notes = notes, .config = &config};
    enum zo_status status = ZO_OK;

    for (size_t i = 0; i < options->set_count; i++) {
        ZO_TRY_GOTO(close_doc, apply_set(doc, options->sets[i]));
    }
    ZO_TRY_GOTO(close_doc,
                zo_alloc(1, sizeof(*values), "the values of keys", &values));
    ZO_TRY_GOTO(free_values,
                zo_config_values_read(doc, options->is_strict, notes, values));
    r.values = values;
    ZO_TRY_GOTO(free_words, resolve_all(&r));
    zo_words_fini(&r.from_auto);
    zo_free(values);
    *config_out = config;
    return ZO_OK;

free_words:
    zo_words_fini(&r.from_auto);
free_values:
    zo_free(values);
close_doc:
    zo_json_close(doc);
    return status;
}

enum zo_status zo_run_config_parse(const char *name, const char *text,
                                   size_t size_bytes,
                                   const struct zo_options *options,
                                   const struct zo_run_facts *facts,
                                   struct zo_notes *notes,
                                   struct zo_run_config *config_out)
{
    const struct zo_json_options how = {.allow_comments = true};
    struct zo_json_doc *doc = NULL;

    ZO_TRY(zo_json_parse(name, text, size_bytes, &how, &doc));
    return resolve_doc(doc, true, options, facts, notes, config_out);
}

enum zo_status zo_run_config_read(const struct zo_options *options,
                                  const struct zo_run_facts *facts,
                                  struct zo_notes *notes,
                                  struct zo_run_config *config_out)
{
    const struct zo_json_options how = {.allow_comments = true};
    struct zo_json_doc *doc = NULL;

    if (options->config != NULL) {
        ZO_TRY(zo_json_read(options->config, &how, &doc));
    } else {
        ZO_TRY(zo_json_parse("(no --config)", "{}", 2, &how, &doc));
    }
    return resolve_doc(doc, options->config != NULL, options, facts, notes,
                       config_out);
}

void zo_run_config_fini(struct zo_run_config *config)
{
    if (config == NULL) {
        return;
    }
    zo_json_close(config->document);
    memset(config, 0, sizeof(*config));
}
