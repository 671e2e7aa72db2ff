/*
 * From checked keys and options to struct zo_run_config, group by group.
 *
 * Layer 1; used within config alone.
 */
#ifndef ZO_CONFIG_CONFIG_RESOLVE_H
#define ZO_CONFIG_CONFIG_RESOLVE_H

#include "config/config_values.h"
#include "config/run_config.h"

ZO_C_BEGIN

/* All borrowed but from_auto. */
struct zo_resolver {
    const struct zo_config_values *values;
    const struct zo_options *options;
    const struct zo_run_facts *facts;
    struct zo_notes *notes;
    struct zo_run_config *config;
    struct zo_words from_auto; /* "lr 5e-05": what "auto" became */
};

/* Each fails with ZO_E_CONFIG at a contradiction, or ZO_E_NOMEM. */
enum zo_status zo_resolve_batch(struct zo_resolver *r) ZO_MUST_CHECK;
enum zo_status zo_resolve_precision(struct zo_resolver *r) ZO_MUST_CHECK;
enum zo_status zo_resolve_optimizer(struct zo_resolver *r) ZO_MUST_CHECK;
enum zo_status zo_resolve_schedule(struct zo_resolver *r) ZO_MUST_CHECK;
enum zo_status zo_resolve_zero(struct zo_resolver *r) ZO_MUST_CHECK;
enum zo_status zo_resolve_rest(struct zo_resolver *r) ZO_MUST_CHECK;

/*
 * A number that both a key and an option can say: the key's when given, else
 * the option's (its default too).  Differing given ones fail.
 */
enum zo_status zo_resolve_number(struct zo_resolver *r, enum zo_config_key key,
                                 enum zo_option_id option, double option_value,
                                 double *out) ZO_MUST_CHECK;
enum zo_status zo_resolve_flag(struct zo_resolver *r, enum zo_config_key key,
                               enum zo_option_id option, bool option_value,
                               bool *out) ZO_MUST_CHECK;

/* "--max-steps" */
const char *zo_resolve_option_name(enum zo_option_id option);

ZO_C_END

#endif
