/*
 * eval --generate: answers to the prompts of rows, written and scored.
 *
 * Layer 8.
 */
#ifndef ZO_SRC_CLI_PREDICT_H
#define ZO_SRC_CLI_PREDICT_H

#include "src/cli/output_folder.h"
#include "src/cli/setup.h"
#include "src/data/scores.h"

ZO_C_BEGIN

struct zo_cli_predicted {
    struct zo_scores scores; /* means over the rows */
    int64_t rows, tokens;    /* of the answers */
    double seconds;
};

/*
 * Answers every row of setup->eval_data from the tokens in front of its last
 * answer, and writes generated_predictions.txt in --output, whole or not at
 * all: a line {"labels": ..., "predict": ...} a row, as the official script
 * does.  No trainer may be open.
 *
 *   ZO_E_DATA    a row has no prompt
 *   ZO_E_USAGE, ZO_E_IO   the file cannot be written
 *   and what answering returns
 */
enum zo_status
zo_cli_predict(struct zo_cli *cli, const struct zo_setup *setup,
               struct zo_cli_predicted *predicted_out) ZO_MUST_CHECK;

/*
 * What of that can be told before the model is loaded.  Makes the folder, which
 * the caller ends whatever is returned.
 */
enum zo_status zo_cli_predict_check(const struct zo_setup *setup,
                                    struct zo_folders *folder) ZO_MUST_CHECK;

ZO_C_END

#endif
