#include "src/data/scores.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/base/text.h"

#define ORDERS  4    /* of BLEU */
#define EPSILON 1e-8 /* in the F1 of rouge_chinese */

/* Characters of a text, all of them or without white space. */
struct characters {
    uint32_t *codes; /* owned */
    size_t count;
};

struct gram {
    uint32_t codes[ORDERS]; /* 0 behind its end */
};

/* What two lists of n-grams have in common. */
struct overlap {
    size_t answer, reference;                   /* n-grams */
    size_t answer_distinct, reference_distinct; /* different ones */
    size_t distinct; /* different ones that are in both */
    size_t clipped;  /* of the answer, each as often as in the reference */
};

/* What Python's str.isspace() and str.strip() take for white space. */
static bool is_space(uint32_t code)
{
    static const uint32_t others[] = {0x85,   0xa0,   0x1680, 0x2028,
                                      0x2029, 0x202f, 0x205f, 0x3000};

    if ((code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) ||
        (code >= 0x2000 && code <= 0x200a)) {
        return true;
    }
    for (size_t i = 0; i < ZO_COUNT(others); i++) {
        if (others[i] == code) {
            return true;
        }
    }
    return false;
}

static size_t next_code(const char *text, size_t size_bytes, uint32_t *code_out)
{
    const size_t length = zo_utf8_decode(text, size_bytes, code_out);

    if (length == 0) {
        *code_out = 0xfffd;
    }
    return length > 0 ? length : 1;
}

void zo_scores_strip(const char **text, size_t *size_bytes)
{
    size_t begin = 0, end = 0;
    uint32_t code = 0;
    bool has_begun = false;

    for (size_t at = 0; at < *size_bytes;) {
        const size_t length = next_code(*text + at, *size_bytes - at, &code);

        if (!is_space(code)) {
            begin = has_begun ? begin : at;
            has_begun = true;
            end = at + length;
        }
        at += length;
    }
    *text += begin;
    *size_bytes = end - begin;
}

static enum zo_status read_characters(const char *text, size_t size_bytes,
                                      bool with_space,
                                      struct characters *characters)
{
    *characters = (struct characters){0};
    ZO_TRY(zo_alloc(size_bytes + 1, sizeof(characters->codes[0]),
                    "the characters of a text", &characters->codes));
    for (size_t at = 0; at < size_bytes;) {
        uint32_t code = 0;

        at += next_code(text + at, size_bytes - at, &code);
        if (with_space || !is_space(code)) {
            characters->codes[characters->count++] = code;
        }
    }
    return ZO_OK;
}

static int compare_grams(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct gram));
}

/* The n-grams of a text, sorted; owned. */
static enum zo_status list_grams(const struct characters *text, size_t order,
                                 struct gram **grams_out, size_t *count_out)
{
    const size_t count = text->count >= order ? text->count - order + 1 : 0;
    struct gram *grams = NULL;

    ZO_TRY(
        zo_alloc(count + 1, sizeof(grams[0]), "the n-grams of a text", &grams));
    for (size_t i = 0; i < count; i++) {
        memcpy(grams[i].codes, text->codes + i, order * sizeof(uint32_t));
    }
    qsort(grams, count, sizeof(grams[0]), compare_grams);
    *grams_out = grams;
    *count_out = count;
    return ZO_OK;
}

/* How many equal ones begin at `at`; 0 at the end. */
static size_t run_length(const struct gram *grams, size_t count, size_t at)
{
    size_t end = at;

    while (end < count && compare_grams(&grams[at], &grams[end]) == 0) {
        end++;
    }
    return end - at;
}

static void merge(const struct gram *answer, const struct gram *reference,
                  struct overlap *overlap)
{
    size_t a = 0, r = 0;

    while (a < overlap->answer || r < overlap->reference) {
        const size_t in_answer = run_length(answer, overlap->answer, a);
        const size_t in_reference =
            run_length(reference, overlap->reference, r);
        const int order = in_answer == 0 ? 1
                          : in_reference == 0
                              ? -1
                              : compare_grams(&answer[a], &reference[r]);

        if (order == 0) {
            overlap->distinct++;
            overlap->clipped +=
                in_answer < in_reference ? in_answer : in_reference;
        }
        if (order <= 0) {
            overlap->answer_distinct++;
            a += in_answer;
        }
        if (order >= 0) {
            overlap->reference_distinct++;
            r += in_reference;
        }
    }
}

static enum zo_status compare_orders(const struct characters *answer,
                                     const struct characters *reference,
                                     size_t order, struct overlap *overlap_out)
{
    struct gram *answer_grams = NULL, *reference_grams = NULL;
    struct overlap overlap = {0};
    enum zo_status status;

    ZO_TRY_GOTO(free_grams,
                list_grams(answer, order, &answer_grams, &overlap.answer));
    ZO_TRY_GOTO(free_grams, list_grams(reference, order, &reference_grams,
                                       &overlap.reference));
    merge(answer_grams, reference_grams, &overlap);
    *overlap_out = overlap;

free_grams:
    zo_free(answer_grams);
    zo_free(reference_grams);
    return status;
}

static double share(size_t part, size_t whole)
{
    return whole == 0 ? 0.0 : (double)part / (double)whole;
}

static double f1(size_t common, size_t answer, size_t reference)
{
    const double precision = share(common, answer);
    const double recall = share(common, reference);

    return 100.0 * 2.0 * (precision * recall / (precision + recall + EPSILON));
}

static enum zo_status rouge_n(const struct characters *answer,
                              const struct characters *reference, size_t order,
                              double *score_out)
{
    struct overlap overlap;

    ZO_TRY(compare_orders(answer, reference, order, &overlap));
    *score_out = f1(overlap.distinct, overlap.answer_distinct,
                    overlap.reference_distinct);
    return ZO_OK;
}

static enum zo_status rouge_l(const struct characters *answer,
                              const struct characters *reference,
                              double *score_out)
{
    size_t *row = NULL; /* of the table: of all answer so far */

    ZO_TRY(zo_alloc(reference->count + 1, sizeof(row[0]),
                    "a common subsequence", &row));
    for (size_t a = 0; a < answer->count; a++) {
        size_t before = 0; /* row[r - 1] as it was */

        for (size_t r = 1; r <= reference->count; r++) {
            const size_t old = row[r];

            if (answer->codes[a] == reference->codes[r - 1]) {
                row[r] = before + 1;
            } else if (row[r - 1] > row[r]) {
                row[r] = row[r - 1];
            }
            before = old;
        }
    }
    *score_out = f1(row[reference->count], answer->count, reference->count);
    zo_free(row);
    return ZO_OK;
}

static enum zo_status bleu(const struct characters *answer,
                           const struct characters *reference,
                           double *score_out)
{
    double log_sum = 0.0, smoothed = 1.0;
    const double penalty =
        answer->count > reference->count
            ? 1.0
            : exp(1.0 - (double)reference->count / (double)answer->count);

    *score_out = 0.0;
    for (size_t order = 1; order <= ORDERS; order++) {
        struct overlap overlap;
        double matches;

        ZO_TRY(compare_orders(answer, reference, order, &overlap));
        if (order == 1 && overlap.clipped == 0) {
            return ZO_OK;
        }
        matches = (double)overlap.clipped;
        if (overlap.clipped == 0) {
            smoothed /= 2.0;
            matches = smoothed;
        }
        log_sum +=
            log(matches / (double)(overlap.answer > 0 ? overlap.answer : 1));
    }
    *score_out = 100.0 * penalty * exp(log_sum / ORDERS);
    return ZO_OK;
}

static enum zo_status score_all(const struct characters *answer,
                                const struct characters *reference,
                                struct zo_scores *scores)
{
    ZO_TRY(rouge_n(answer, reference, 1, &scores->rouge_1));
    ZO_TRY(rouge_n(answer, reference, 2, &scores->rouge_2));
    return rouge_l(answer, reference, &scores->rouge_l);
}

enum zo_status zo_scores_of(const char *answer, size_t answer_bytes,
                            const char *reference, size_t reference_bytes,
                            struct zo_scores *scores_out)
{
    struct characters answers[2] = {{0}}, references[2] = {{0}};
    struct zo_scores scores = {0};
    enum zo_status status = ZO_OK;

    zo_scores_strip(&answer, &answer_bytes);
    zo_scores_strip(&reference, &reference_bytes);
    *scores_out = scores;
    if (answer_bytes == 0 || reference_bytes == 0) {
        return ZO_OK;
    }
    for (int space = 0; space < 2; space++) {
        ZO_TRY_GOTO(
            free_characters,
            read_characters(answer, answer_bytes, space == 1, &answers[space]));
        ZO_TRY_GOTO(free_characters,
                    read_characters(reference, reference_bytes, space == 1,
                                    &references[space]));
    }
    ZO_TRY_GOTO(free_characters,
                score_all(&answers[0], &references[0], &scores));
    ZO_TRY_GOTO(free_characters,
                bleu(&answers[1], &references[1], &scores.bleu_4));
    *scores_out = scores;

free_characters:
    for (int space = 0; space < 2; space++) {
        zo_free(answers[space].codes);
        zo_free(references[space].codes);
    }
    return status;
}
