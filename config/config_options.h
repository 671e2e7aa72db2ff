/*
 * The keys of the DeepSpeed JSON and of its "zero_offload" section: one table
 * that drives parsing, checks, suggestions and zero-offload.json(5).
 *
 * Layer 1.  The table is config_keys.def and config_keys_zero.def.
 */
#ifndef ZO_CONFIG_CONFIG_OPTIONS_H
#define ZO_CONFIG_CONFIG_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

enum zo_config_key {
#define ZO_KEY(id, ...) ZO_KEY_##id,
#include "config/config_keys.def"
#include "config/config_keys_zero.def"
#undef ZO_KEY
    ZO_KEY_COUNT
};

enum zo_config_kind {
    ZO_KIND_BOOL,
    ZO_KIND_COUNT, /* an integer; a fraction is refused */
    ZO_KIND_SIZE,  /* elements or bytes; a fraction is rounded down */
    ZO_KIND_NUMBER,
    ZO_KIND_STRING,
    ZO_KIND_CHOICE, /* one of `choices`; case does not count */
    ZO_KIND_PAIR,   /* an array of two numbers */
    ZO_KIND_OBJECT, /* a section; its keys have rows of their own */
    ZO_KIND_ANY     /* whatever it is, it is not looked at */
};

enum zo_config_use {
    ZO_USE_READ,    /* has a meaning here */
    ZO_USE_IDLE,    /* accepted; `meaning` says why it has none */
    ZO_USE_LEGACY,  /* an old spelling, translated */
    ZO_USE_REFUSED, /* known, and refused; `meaning` says why */
    ZO_USE_OFF_ONLY /* accepted when it asks for nothing, else refused */
};

/* A row of the table.  Static storage. */
struct zo_config_option {
    const char *path;    /* "zero_optimization.stage" */
    const char *aliases; /* other last names, separated by spaces; or NULL */
    enum zo_config_kind kind;
    enum zo_config_use use;
    const char *choices;      /* of ZO_KIND_CHOICE, separated by spaces */
    double min, max;          /* of numbers; both 0: any that is >= 0 */
    bool is_nullable;         /* null means: not given */
    const char *default_text; /* "5e8"; NULL: none */
    const char *default_note; /* what an absent key means, where that is not
                                 default_text; or NULL */
    const char *auto_text;    /* what "auto" stands for; NULL: it is refused */
    const char *meaning;      /* one line: what it does here, or why nothing */
    const char *differs;      /* from DeepSpeed; NULL: it does not */
};

/* The whole table, in the order of the keys' enumerators. */
const struct zo_config_option *zo_config_options(size_t *count_out);

/*
 * What "auto" stands for at a key; NULL when it is refused there.  In the
 * sections that DeepSpeed checks with pydantic it means the default.
 */
const char *zo_config_auto_text(const struct zo_config_option *option);

/*
 * Whether an unknown key in the section of that path is an error: in
 * zero_optimization and below, fp16, bf16 and zero_offload.
 */
bool zo_config_section_is_strict(const char *section);

ZO_C_END

#endif
