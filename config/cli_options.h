/*
 * The options of the command line: one table, cli_options.def, parses them,
 * checks them, gives the help, the completion and the man pages.
 *
 * Layer 1.  Names may be written with - or _; Hugging Face's and the official
 * script's spellings are aliases.  A flag takes --name, --no-name, or
 * --name=true|false.
 *
 * Life cycle: parse, use, fini.  Strings are borrowed from argv.
 */
#ifndef ZO_CONFIG_CLI_OPTIONS_H
#define ZO_CONFIG_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/dtype.h"
#include "src/base/notes.h"
#include "src/base/status.h"
#include "config/model_config.h"

ZO_C_BEGIN

enum zo_command {
    ZO_COMMAND_TRAIN = 1 << 0,
    ZO_COMMAND_EVAL = 1 << 1,
    ZO_COMMAND_PLAN = 1 << 2,
    ZO_COMMAND_INSPECT = 1 << 3,
    ZO_COMMAND_INIT = 1 << 4,
    ZO_COMMAND_GENERATE = 1 << 5,
    ZO_COMMAND_BENCH = 1 << 6,
    ZO_COMMAND_DOCTOR = 1 << 7,
    ZO_COMMAND_EXPORT = 1 << 8,
    ZO_COMMAND_REPORT = 1 << 9
};

enum zo_option_id {
#define ZO_OPTION(id, ...) ZO_OPTION_##id,
#include "config/cli_options.def"
#undef ZO_OPTION
    ZO_OPTION_COUNT
};

enum zo_backend { ZO_BACKEND_AUTO, ZO_BACKEND_CUDA, ZO_BACKEND_HOST };

/* A row longer than --max-length. */
enum zo_on_long { ZO_ON_LONG_CUT, ZO_ON_LONG_SKIP, ZO_ON_LONG_ERROR };

/* Hugging Face's schedules, for runs without one in the JSON. */
enum zo_hf_schedule {
    ZO_HF_LINEAR,
    ZO_HF_COSINE,
    ZO_HF_CONSTANT,
    ZO_HF_CONSTANT_WITH_WARMUP
};

#define ZO_DEVICES_MAX      64
#define ZO_EVAL_EVERY_EPOCH (-1) /* eval_steps */
#define ZO_GRAD_NORM_NONE   0.0  /* max_grad_norm: no clipping */

/*
 * The values, defaults filled in.  Strings are NULL when not given, unless a
 * default is named.  zo_option_given() tells a default from a given value.
 */
struct zo_options {
    enum zo_command command;
    uint64_t given[3]; /* a bit an option; use zo_option_given() */

    /* What to work on. */
    const char *model; /* directory, config.json, or preset name */
    enum zo_model_family model_family; /* AUTO: told from the config */
    const char *tokenizer; /* directory to take tokenizer files from */
    const char *data;      /* training rows; of eval and inspect: rows */
    const char *eval_data;
    const char *output;
    const char *config; /* DeepSpeed JSON */
    const char **sets;  /* owned list of "KEY.PATH=VALUE" */
    size_t set_count;
    bool is_strict;

    /* The run. */
    int64_t max_steps;                   /* 0: num_train_epochs decides */
    double num_train_epochs;             /* > 0 [3] */
    int64_t seed;                        /* [42] */
    int64_t micro_batch_rows;            /* per device [1] */
    int64_t eval_micro_batch_rows;       /* per device; 0: as in training */
    int64_t gradient_accumulation_steps; /* [1] */
    double learning_rate;                /* [5e-5] */
    double weight_decay;                 /* [0] */
    double adam_beta1, adam_beta2, adam_epsilon; /* [.9 .999 1e-8] */
    double max_grad_norm;                        /* [ZO_GRAD_NORM_NONE] */
    enum zo_hf_schedule schedule;                /* [linear] */
    int64_t warmup_steps;        /* [0]; wins over warmup_ratio when > 0 */
    double warmup_ratio;         /* of all steps [0] */
    bool bf16, fp16;             /* at most one */
    bool gradient_checkpointing; /* recompute the inside of each layer */
    int64_t logging_steps;       /* [1] */
    int64_t eval_steps;          /* 0: never; or ZO_EVAL_EVERY_EPOCH */
    int64_t eval_rows;           /* at most so many; 0: all */
    bool keep_best;              /* keep the model with the lowest eval loss */

    /* The rows. */
    const char *prompt_column;   /* "content", or several with commas */
    const char *response_column; /* "summary" */
    const char *history_column;
    const char *source_prefix; /* "" */
    int64_t max_length;        /* tokens; 0: the model's seq_length */
    int64_t max_source_length; /* 0: no cut of its own */
    int64_t max_target_length; /* likewise */
    enum zo_on_long on_long;   /* [cut] */
    bool skip_bad_rows;
    bool shuffle; /* [true] */

    /* The devices. */
    enum zo_backend backend;
    int devices[ZO_DEVICES_MAX]; /* indices; device_count of them */
    int device_count;            /* 0: not given, all */
    int64_t num_devices;         /* 0: not given */
    uint64_t gpu_memory_bytes;   /* budget per device; 0: default */
    uint64_t host_memory_bytes;  /* budget; 0: default */
    char *nvme_path;             /* owned; NULL: no NVMe from here */
    uint64_t nvme_bytes;         /* budget; 0: what is free */
    int64_t nvme_depth;          /* bench nvme [32] */
    uint64_t nvme_block_bytes;   /* bench nvme [1 MiB] */
    int64_t threads;             /* 0: one a core */
    int simd; /* AdamW on the host; as kernels/host_passes.h's zo_simd */
    uint64_t copy_bytes_per_second; /* of the bus, at most; 0: no limit */

    /* Saving. */
    double save_minutes;      /* [30]; 0: not by time */
    int64_t save_steps;       /* 0: not by steps; else not by time */
    int64_t save_total_limit; /* [2]; 0: keep all */
    bool save_only_model;
    const char *resume; /* NULL: no; "auto"; or a directory */
    bool overwrite;     /* start anew over older checkpoints */

    /* Looking. */
    const char *metrics;
    const char *trace;
    int64_t trace_first, trace_last; /* steps, from 1; 0: no --trace */
    bool watch;
    bool dry_run;
    bool random_weights; /* train: --model gives only the architecture */
    bool json;           /* machine-readable output */
    bool help;           /* --help: nothing else was checked */

    /* Of generate, and of eval with --generate. */
    bool generate;        /* eval: also answers */
    const char **prompts; /* owned list: what is asked */
    size_t prompt_count;
    const char *prompt_file; /* lines to ask */
    const char *history;     /* JSON file of earlier rounds */
    bool raw;                /* the prompt as it is, without a chat template */
    int64_t max_new_tokens;  /* of the answer [256] */
    bool do_sample;
    double temperature, top_p; /* [0.95 0.7] */
    int rope_precision;        /* as run_config.h's zo_rope_precision */

    int64_t layers;      /* of bench, plan: of the model's; 0: all, or chosen */
    const char *results; /* of bench: a file of rows; NULL: none */
    const char *profile; /* plan, train: rates of a machine; NULL: this one */

    /* Of inspect, init and plan. */
    const char *text;    /* inspect: text to encode */
    bool tensors;        /* inspect: each tensor, not groups of them */
    bool checksums;      /* inspect: hashes of files */
    int64_t rows;        /* inspect, eval: at most so many; 0: all */
    enum zo_dtype dtype; /* init, export: of the written weights [bf16] */
    const char *write;   /* plan: DeepSpeed JSON; doctor: the profile */

    /* Of export. */
    int layout;               /* as enum zo_export_layout [chatglm] */
    uint64_t max_shard_bytes; /* of a file of weights [10 GB] */

    /* Of report. */
    const char **files; /* owned list of the words that are no options */
    size_t file_count;

    /* Of doctor. */
    const char *folder; /* whose disk is measured; NULL: the current one */
};

enum zo_option_kind {
    ZO_ARG_FLAG,
    ZO_ARG_INT,
    ZO_ARG_NUMBER,
    ZO_ARG_STRING,
    ZO_ARG_CHOICE,
    ZO_ARG_BYTES,
    ZO_ARG_SPECIAL, /* has a reader of its own */
    ZO_ARG_IDLE,    /* accepted without meaning here; help says why */
    ZO_ARG_REFUSED  /* known, and refused; help says why */
};

/* What a row says of some commands, where its own words would not be true. */
struct zo_option_words {
    unsigned commands;        /* bits; 0 ends a list */
    const char *help;         /* NULL: the row's own */
    const char *default_note; /* NULL: the row's own default */
};

/* A row of the table.  Static storage. */
struct zo_option {
    const char *name;    /* "max-steps" */
    const char *aliases; /* others, separated by spaces; or NULL */
    const char *group;   /* heading in the help; NULL: not listed */
    unsigned commands;   /* bits of enum zo_command */
    enum zo_option_kind kind;
    bool value_is_optional;   /* --name, or --name=VALUE */
    const char *argument;     /* "N", "DIR"; NULL for a flag */
    const char *choices;      /* of ZO_ARG_CHOICE, _IDLE; between spaces */
    double min, max;          /* of ZO_ARG_INT and _NUMBER */
    const char *default_text; /* the default, as it would be written */
    const char *default_note; /* the default in words, when it is no value */
    const char *help;         /* what it does, or why it does nothing */
    const struct zo_option_words *words; /* of some commands; or NULL */
    size_t offset;                       /* into struct zo_options */
};

/* The table.  Each group stands once in a command's help, with its options in
 * this order. */
const struct zo_option *zo_cli_options(size_t *count_out);
/*
 * The next option of the same group in a command's help, NULL behind the last;
 * and the first option of the next group, the first of all for NULL.
 */
const struct zo_option *zo_option_next(const struct zo_option *option,
                                       enum zo_command command);
const struct zo_option *zo_option_next_group(const struct zo_option *option,
                                             enum zo_command command);

/* What the row says of one command: help, and the default in words (NULL: its
 * default_text, or none). */
const char *zo_option_help(const struct zo_option *option,
                           enum zo_command command);
const char *zo_option_default_note(const struct zo_option *option,
                                   enum zo_command command);

/*
 * Reads argv[0..argc) of a subcommand (without program and subcommand name).
 * On success *options_out is filled and ended with zo_options_fini(); notes
 * has a line for each option that is accepted without meaning here.
 *
 *   ZO_E_USAGE   unknown option (the text suggests the nearest), a missing
 *                or malformed value, two options that exclude each other
 *   ZO_E_NOMEM
 */
enum zo_status zo_options_parse(enum zo_command command, int argc,
                                const char *const *argv,
                                struct zo_options *options_out,
                                struct zo_notes *notes) ZO_MUST_CHECK;

/* All defaults of a subcommand, nothing given; ended with _fini(). */
void zo_options_init(struct zo_options *options, enum zo_command command);

/* NULL is allowed. */
void zo_options_fini(struct zo_options *options);

bool zo_option_given(const struct zo_options *options, enum zo_option_id id);
/* From now on it counts as given: for what stands in for the user. */
void zo_option_mark(struct zo_options *options, enum zo_option_id id);

/* "train", "eval", ... */
const char *zo_command_name(enum zo_command command);

/* "linear", "cosine", "constant", "constant_with_warmup". */
const char *zo_hf_schedule_name(enum zo_hf_schedule schedule);

/* Called with pieces of text; not terminated. */
typedef void (*zo_help_write_fn)(void *context, const char *text,
                                 size_t size_bytes);

/* The options of a subcommand, grouped, at most 80 columns wide. */
void zo_options_help(enum zo_command command, zo_help_write_fn write,
                     void *context);

ZO_C_END

#endif
