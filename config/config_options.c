#include "config/config_options.h"

#include <string.h>

#define ZERO "zero_optimization"

static const struct zo_config_option table[] = {
#define ZO_KEY(id, path_, kind_, use_, ...)   \
    [ZO_KEY_##id] = {.path = path_,           \
                     .kind = ZO_KIND_##kind_, \
                     .use = ZO_USE_##use_,    \
                     __VA_ARGS__},
#include "config/config_keys.def"
#include "config/config_keys_zero.def"
#undef ZO_KEY
};

const struct zo_config_option *zo_config_options(size_t *count_out)
{
    *count_out = ZO_COUNT(table);
    return table;
}

/* The sections that DeepSpeed checks with pydantic. */
static bool is_pydantic(const char *section)
{
    static const char *const sections[] = {
        "fp16", "bf16", ZERO, ZERO ".offload_param", ZERO ".offload_optimizer"};

    for (size_t i = 0; i < ZO_COUNT(sections); i++) {
        if (strcmp(section, sections[i]) == 0) {
            return true;
        }
    }
    return false;
}

bool zo_config_section_is_strict(const char *section)
{
    return is_pydantic(section) || strcmp(section, "zero_offload") == 0;
}

const char *zo_config_auto_text(const struct zo_config_option *option)
{
    const char *dot = strrchr(option->path, '.');
    char section[64];
    size_t length;

    if (option->auto_text != NULL || dot == NULL) {
        return option->auto_text;
    }
    length = (size_t)(dot - option->path);
    if (length >= sizeof(section)) {
        return NULL;
    }
    memcpy(section, option->path, length);
    section[length] = '\0';
    return is_pydantic(section) && option->kind != ZO_KIND_OBJECT
               ? "the default"
               : NULL;
}
