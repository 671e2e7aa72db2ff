/*
 * How close an answer is to a reference, by their characters.
 *
 * Layer 6.  As THUDM/ChatGLM2-6B's ptuning/main.py scores answers, but with
 * characters in place of the words that jieba cuts Chinese into:
 *
 *   ROUGE-1, -2   F1 over the sets of single characters, and of pairs; white
 *                 space left out
 *   ROUGE-L       F1 of the longest common subsequence, likewise
 *   BLEU-4        of all characters; an n-gram order without a match counts
 *                 as 1/2, the next as 1/4, ... of one (NIST's smoothing)
 *
 * In per cent.  An empty answer, or an empty reference, scores 0.
 */
#ifndef ZO_SRC_DATA_SCORES_H
#define ZO_SRC_DATA_SCORES_H

#include <stddef.h>

#include "src/base/status.h"

ZO_C_BEGIN

struct zo_scores {
    double rouge_1, rouge_2, rouge_l, bleu_4;
};

/*
 * Both texts are UTF-8 (a byte that is not counts as U+FFFD); white space at
 * their ends is not theirs.
 *
 *   ZO_E_NOMEM   no memory
 */
enum zo_status zo_scores_of(const char *answer, size_t answer_bytes,
                            const char *reference, size_t reference_bytes,
                            struct zo_scores *scores_out) ZO_MUST_CHECK;

/* A text without the white space at its ends, as scores see it. */
void zo_scores_strip(const char **text, size_t *size_bytes);

ZO_C_END

#endif
