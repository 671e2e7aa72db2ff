/*
 * What the options name, opened: the model's configuration, its tokenizer,
 * rows.
 *
 * Layer 8.  Shared by the subcommands, so that inspect shows what train sees.
 */
#ifndef ZO_SRC_CLI_INPUTS_H
#define ZO_SRC_CLI_INPUTS_H

#include "config/cli_options.h"
#include "config/model_config.h"
#include "src/base/notes.h"
#include "src/data/dataset.h"
#include "src/data/tokenizer.h"

ZO_C_BEGIN

/*
 * Reads the configuration that --model names, with --set on top where the
 * command says so (init).
 *
 *   ZO_E_USAGE    no --model, or it names nothing
 *   ZO_E_CONFIG   as zo_model_config_read()
 */
enum zo_status
zo_cli_model_config(const struct zo_options *options, bool takes_sets,
                    struct zo_notes *notes,
                    struct zo_model_config *config_out) ZO_MUST_CHECK;

/*
 * The folder that other files of the model are taken from: --tokenizer, else
 * --model when it is a folder, else the folder of the config.json that it
 * is, else NULL (a preset).  *folder_out is owned: zo_free().
 */
enum zo_status zo_cli_model_folder(const struct zo_options *options,
                                   char **folder_out) ZO_MUST_CHECK;

/*
 * Opens tokenizer.model of that folder.
 *
 *   ZO_E_USAGE     there is no such folder or file
 *   ZO_E_CORRUPT   as zo_tokenizer_open(); or more ids than the model's
 *                  vocabulary has rows
 */
enum zo_status
zo_cli_tokenizer(const struct zo_options *options,
                 const struct zo_model_config *config,
                 struct zo_tokenizer **tokenizer_out) ZO_MUST_CHECK;

/*
 * The number type that eval and generate compute in when they are told none:
 * the one that a state was trained in, or torch_dtype of a model's config.json,
 * or fp32 where that names none.  *why_out says which, in words.
 *
 *   and as zo_state_open()
 */
enum zo_status zo_cli_saved_dtype(const char *model,
                                  const struct zo_model_config *config,
                                  enum zo_dtype *dtype_out,
                                  const char **why_out) ZO_MUST_CHECK;

/* The line that says so. */
enum zo_status zo_cli_note_dtype(enum zo_dtype dtype, const char *why,
                                 struct zo_notes *notes) ZO_MUST_CHECK;

/*
 * The folder of the NVMe tier, or of a disk to measure, looked at before
 * anything long: every command says the same of one that cannot be it.
 *
 *   ZO_E_USAGE    it is not there, is no folder, or may not be written to
 */
enum zo_status zo_cli_nvme_folder(const char *folder) ZO_MUST_CHECK;

/*
 * Opens rows as the options of "The rows" say.  rows_max of 0 is all;
 * max_length of 0 is the model's.  As zo_dataset_open().
 */
enum zo_status zo_cli_dataset(const struct zo_options *options,
                              const char *path, int64_t rows_max,
                              const struct zo_model_config *config,
                              const struct zo_tokenizer *tokenizer,
                              struct zo_notes *notes,
                              struct zo_dataset **dataset_out) ZO_MUST_CHECK;

ZO_C_END

#endif
