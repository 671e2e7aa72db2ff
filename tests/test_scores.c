/*
 * Scores of answers: closed forms, and what rouge_chinese 1.0.3 and nltk's
 * sentence_bleu (smoothing method3) say of the same characters.
 */
#include "src/data/scores.h"

#include <math.h>
#include <string.h>

#include "src/base/memory.h"
#include "tests/tap.h"

static struct zo_scores score(const char *answer, const char *reference)
{
    struct zo_scores scores = {NAN, NAN, NAN, NAN};

    if (zo_scores_of(answer, strlen(answer), reference, strlen(reference),
                     &scores) != ZO_OK) {
        return (struct zo_scores){NAN, NAN, NAN, NAN};
    }
    return scores;
}

static int is_near(struct zo_scores got, struct zo_scores want)
{
    return fabs(got.rouge_1 - want.rouge_1) < 1e-8 &&
           fabs(got.rouge_2 - want.rouge_2) < 1e-8 &&
           fabs(got.rouge_l - want.rouge_l) < 1e-8 &&
           fabs(got.bleu_4 - want.bleu_4) < 1e-8;
}

static void test_official(void)
{
    static const struct {
        const char *answer, *reference;
        struct zo_scores want;
    } rows[] = {
        {"宽松的裙子很显瘦",
         "这条裙子宽松，显瘦又百搭。",
         {57.1428566712, 31.5789469030, 38.0952376236, 10.2396298546}},
        {"abcabcabc",
         "abcabd",
         {85.7142852245, 85.7142852245, 66.6666661867, 44.6323613785}},
        {"ab", "ba", {99.9999995, 0.0, 49.9999995, 35.3553390593}},
        {"a b  c d",
         "abcd",
         {99.9999995, 99.9999995, 99.9999995, 7.8098498423}},
        {"你", "你", {99.9999995, 0.0, 99.9999995, 35.3553390593}},
        {"红色红色红色红",
         "红色的裙",
         {66.6666662222, 39.9999995200, 36.3636359008, 13.1345494721}},
        {"a", "ab", {66.6666662222, 0.0, 66.6666662222, 13.0065023756}},
        {"the cat sat",
         "the cat sat on the mat",
         {79.9999995200, 73.6842100609, 69.2307687781, 36.7879441171}},
        {"好看的上衣，好看的裤子",
         "好看的裤子，好看的上衣",
         {99.9999995, 87.4999995, 63.6363631364, 81.3288280849}},
    };

    for (size_t i = 0; i < TAP_COUNT(rows); i++) {
        if (!is_near(score(rows[i].answer, rows[i].reference), rows[i].want)) {
            tap_fail(__FILE__, __LINE__, "row %zu: other scores", i);
        }
    }
}

/* Eight equal characters of which the reference has four. */
static void test_closed_forms(void)
{
    const struct zo_scores equal = score("abcdefgh", "abcdefgh");
    const struct zo_scores half = score("aaaaaaaa", "aaaa");
    const double bleu =
        100.0 * pow(4.0 / 8 * 3.0 / 7 * 2.0 / 6 * 1.0 / 5, 0.25);

    TAP_CHECK(equal.bleu_4 == 100.0);
    TAP_CHECK(fabs(equal.rouge_1 - 100.0) < 1e-6);
    TAP_CHECK(fabs(equal.rouge_2 - 100.0) < 1e-6);
    TAP_CHECK(fabs(equal.rouge_l - 100.0) < 1e-6);
    TAP_CHECK(fabs(half.bleu_4 - bleu) < 1e-9);
    TAP_CHECK(fabs(half.rouge_l - 200.0 / 3) < 1e-6);
    TAP_CHECK(fabs(half.rouge_1 - 100.0) < 1e-6);
}

static void test_nothing(void)
{
    const struct zo_scores none = {0};

    TAP_CHECK(is_near(score("", "abc"), none));
    TAP_CHECK(is_near(score("abc", ""), none));
    TAP_CHECK(is_near(score(" \n\xe3\x80\x80", "abc"), none));
    TAP_CHECK(is_near(score("", ""), none));
    TAP_CHECK(is_near(score("xyz", "abc"), none));
}

static void test_strip(void)
{
    const char *text = "\xe3\x80\x80 a b\xc2\xa0\n";
    size_t size_bytes = strlen(text);

    zo_scores_strip(&text, &size_bytes);
    TAP_CHECK_INT(size_bytes, 3);
    TAP_CHECK(memcmp(text, "a b", 3) == 0);
    TAP_CHECK(is_near(score("  abcd\t", "abcd\n"), score("abcd", "abcd")));
}

/* Bytes that are no UTF-8 are characters like any other. */
static void test_bad_bytes(void)
{
    TAP_CHECK(
        is_near(score("\xff\xfe", "\xef\xbf\xbd\xc0"), score("aa", "aa")));
}

static void test_memory(void)
{
    enum zo_status status = ZO_E_NOMEM;
    uint64_t nth = 0;

    while (status == ZO_E_NOMEM && nth < 100) {
        struct zo_scores scores = {0};

        zo_memory_fail_at(++nth);
        status = zo_scores_of("abcab", 5, "abd", 3, &scores);
        TAP_CHECK(status == ZO_OK || scores.rouge_1 == 0.0);
    }
    zo_memory_fail_at(0);
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(nth > 10);
}

static const struct tap_case cases[] = {
    {"the official scorer's figures, of characters", test_official},
    {"closed forms", test_closed_forms},
    {"an empty text scores nothing", test_nothing},
    {"white space at the ends is left out", test_strip},
    {"broken UTF-8 is scored, not refused", test_bad_bytes},
    {"a failed allocation is told", test_memory},
};

int main(void)
{
    return tap_run(cases, TAP_COUNT(cases));
}
