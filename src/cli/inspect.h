/*
 * The parts of zero-offload inspect.  Layer 8, private to inspect*.c.
 */
#ifndef ZO_SRC_CLI_INSPECT_H
#define ZO_SRC_CLI_INSPECT_H

#include "src/checkpoint/tensor_source.h"
#include "src/cli/cli.h"

ZO_C_BEGIN

/* A tensor that is to be shown in a group. */
struct zo_inspect_item {
    const struct zo_tensor_info *info; /* borrowed */
    const char *kind;                  /* of a state: borrowed; "": none */
    size_t index;                      /* groups stand where their first does */
    size_t count;                      /* of its group; set by printing */
};

/* All zero is empty. */
struct zo_inspect_list {
    struct zo_inspect_item *items; /* owned */
    size_t count, capacity;
};
enum zo_status zo_inspect_list_add(struct zo_inspect_list *list,
                                   const struct zo_tensor_info *info,
                                   const char *kind) ZO_MUST_CHECK;
void zo_inspect_list_fini(struct zo_inspect_list *list);

/*
 * Prints a line for all tensors of one kind, type and shape whose names differ
 * by a number alone.  Reorders the items.  ZO_E_NOMEM.
 */
enum zo_status zo_inspect_list_print(struct zo_inspect_list *list,
                                     FILE *file) ZO_MUST_CHECK;

/* The tensors of --model: a directory, or a file of weights. */
enum zo_status zo_inspect_model(struct zo_cli *cli,
                                const struct zo_options *options) ZO_MUST_CHECK;

/* The tokenizer beside a model, in a line; a warning when it is none. */
enum zo_status
zo_inspect_tokenizer(struct zo_cli *cli, const struct zo_options *options,
                     const struct zo_model_config *config) ZO_MUST_CHECK;

/*
 * --checksums: the SHA-256 of a file of weights, compared with the one that
 * Hugging Face's cache names it by.
 *
 *   ZO_E_CORRUPT   they differ
 */
enum zo_status zo_inspect_checksum(struct zo_cli *cli, const char *path,
                                   const char *name,
                                   bool as_json) ZO_MUST_CHECK;

/* Lists a training state, and verifies it. */
enum zo_status zo_inspect_state(struct zo_cli *cli,
                                const struct zo_options *options) ZO_MUST_CHECK;

ZO_C_END

#endif
