/*
 * Progress lines, compared as text.
 */
#include "src/train/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"

/* A progress writer into memory. */
struct screen {
    struct zo_progress progress;
    FILE *file;
    char *text;
    size_t text_bytes;
};

static void screen_open(struct screen *screen,
                        struct zo_progress_options options)
{
    *screen = (struct screen){0};
    screen->file = open_memstream(&screen->text, &screen->text_bytes);
    options.file = screen->file;
    options.logging_steps += options.logging_steps == 0;
    options.first_step += options.first_step == 0;
    zo_progress_init(&screen->progress, &options);
}

static void screen_close(struct screen *screen)
{
    (void)fclose(screen->file);
    free(screen->text);
}

static bool screen_is(struct screen *screen, const char *want)
{
    bool same;

    (void)fflush(screen->file);
    same = strcmp(screen->text, want) == 0;
    if (!same) {
        (void)printf("# got  %s\n# want %s\n", screen->text, want);
    }
    screen_close(screen);
    return same;
}

static const struct zo_step_metrics step = {
    .step = 12,
    .epoch = 0.125,
    .loss = 3.41817,
    .grad_norm = 1.23456,
    .clip_coefficient = 0.81,
    .learning_rate = 9.98e-5,
    .loss_scale = 65536,
    .tokens = 2000,
    .label_tokens = 900,
    .step_seconds = 0.5,
};

static void test_plain(void)
{
    struct screen screen;

    screen_open(&screen, (struct zo_progress_options){.total_steps = 5000});
    zo_progress_step(&screen.progress, &step);
    TAP_CHECK(screen_is(&screen,
                        "step   12/5000  epoch 0.12  loss 3.4182  norm 1.235"
                        "  lr 9.98e-05  tok/s 4000  ETA 41:34\n"));
}

static void test_all_parts(void)
{
    struct zo_step_metrics skipped = step;
    struct screen screen;

    skipped.skipped_steps = 2;
    skipped.overflow = true;
    skipped.grad_norm = (double)INFINITY;
    screen_open(&screen, (struct zo_progress_options){.total_steps = 12,
                                                      .has_clipping = true,
                                                      .has_loss_scale = true});
    zo_progress_step(&screen.progress, &skipped);
    TAP_CHECK(screen_is(&screen,
                        "step 12/12  epoch 0.12  loss 3.4182  norm inf"
                        "  clip 0.81  lr 9.98e-05  scale 65536  skipped 2"
                        "  tok/s 4000  ETA 0:00"
                        "  overflow: this step was skipped\n"));
}

/* A loss that is no number is never printed as one. */
static void test_no_false_zero(void)
{
    struct zo_step_metrics bad = step;
    struct screen screen;

    screen_open(&screen, (struct zo_progress_options){.total_steps = 12});
    bad.loss = (double)NAN;
    zo_progress_step(&screen.progress, &bad);
    bad.loss = 0.0;
    bad.label_tokens = 0;
    zo_progress_step(&screen.progress, &bad);
    (void)fflush(screen.file);
    TAP_CHECK(strstr(screen.text, "loss nan") != NULL);
    TAP_CHECK(strstr(screen.text, "loss n/a") != NULL);
    TAP_CHECK(strstr(screen.text, "loss 0") == NULL);
    screen_close(&screen);
}

static int count_lines(const char *text)
{
    int lines = 0;

    for (; *text != '\0'; text++) {
        lines += *text == '\n';
    }
    return lines;
}

/* Steps 1 (the first), 10, 20 (every ten), 15 (skipped), 25 (the last). */
static void test_logging_steps(void)
{
    struct screen screen;

    screen_open(&screen, (struct zo_progress_options){.logging_steps = 10,
                                                      .total_steps = 25});
    for (int i = 1; i <= 25; i++) {
        struct zo_step_metrics now = step;

        now.step = i;
        now.overflow = i == 15;
        zo_progress_step(&screen.progress, &now);
    }
    (void)fflush(screen.file);
    TAP_CHECK_INT(count_lines(screen.text), 5);
    TAP_CHECK(strstr(screen.text, "step 15/25") != NULL);
    TAP_CHECK(strstr(screen.text, "step 14/25") == NULL);
    TAP_CHECK(strchr(screen.text, '\r') == NULL);
    screen_close(&screen);
}

static void test_terminal(void)
{
    struct zo_step_metrics now = step;
    struct screen screen;

    screen_open(&screen, (struct zo_progress_options){.logging_steps = 2,
                                                      .first_step = 1,
                                                      .total_steps = 9,
                                                      .is_terminal = true});
    for (int i = 2; i <= 5; i++) {
        now.step = i;
        zo_progress_step(&screen.progress, &now);
    }
    zo_progress_break(&screen.progress);
    zo_progress_break(&screen.progress); /* once is enough */
    (void)fflush(screen.file);
    /* 2 and 4 stay, 3 and 5 are rewritten; the break ends 5's line. */
    TAP_CHECK_INT(count_lines(screen.text), 3);
    TAP_CHECK(strstr(screen.text, "\x1b[K\n\rstep 3/9") != NULL);
    TAP_CHECK(strstr(screen.text, "\x1b[K\rstep 4/9") != NULL);
    screen_close(&screen);
}

/* The first step, slow for its first touches, does not last. */
static void test_pace(void)
{
    struct zo_step_metrics now = step;
    struct screen screen;
    double left;

    screen_open(&screen, (struct zo_progress_options){.total_steps = 100});
    TAP_CHECK(isnan(zo_progress_remaining(&screen.progress, 0)));
    now.step_seconds = 60.0;
    zo_progress_step(&screen.progress, &now);
    left = zo_progress_remaining(&screen.progress, 1);
    TAP_CHECK(fabs(left - 99 * 60.0) < 1e-9);
    now.step_seconds = 1.0;
    zo_progress_step(&screen.progress, &now);
    left = zo_progress_remaining(&screen.progress, 2);
    TAP_CHECK(fabs(left - 98.0) < 1e-9);
    now.step_seconds = 2.0; /* a tenth of each new step counts */
    zo_progress_step(&screen.progress, &now);
    left = zo_progress_remaining(&screen.progress, 3);
    TAP_CHECK(fabs(left - 97 * 1.1) < 1e-9);
    screen_close(&screen);
}

static void test_other_lines(void)
{
    const struct zo_eval_metrics eval = {
        .step = 10,
        .loss = 2.0,
        .rows = 64,
        .label_tokens = 5,
        .seconds = 75.0,
        .is_best = true,
    };
    const struct zo_save_metrics save = {
        .step = 10,
        .path = "out/\x1b[2J",
        .bytes = 3221225472u,
        .seconds = 1.25,
    };
    struct screen screen;

    screen_open(&screen, (struct zo_progress_options){.total_steps = 100});
    zo_progress_eval(&screen.progress, &eval);
    TAP_CHECK(screen_is(&screen,
                        "eval after step 10  loss 2.0000  perplexity 7.389"
                        "  rows 64  in 1:15\n"));
    screen_open(&screen, (struct zo_progress_options){.total_steps = 100,
                                                      .keeps_best = true});
    zo_progress_eval(&screen.progress, &eval);
    zo_progress_save(&screen.progress, &save);
    TAP_CHECK(screen_is(&screen,
                        "eval after step 10  loss 2.0000  perplexity 7.389"
                        "  rows 64  in 1:15  the best so far\n"
                        "saved out/\\x1b[2J after step 10  3.00 GiB in"
                        " 1.2 s, training waited 0.0 s\n"));
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a plain line has the parts that always matter", test_plain},
        {"scale, clipping and skips appear when they matter", test_all_parts},
        {"a loss that is not a number is never 0", test_no_false_zero},
        {"lines come every logging step, first, last and on a skip",
         test_logging_steps},
        {"a terminal's line is rewritten between logging steps", test_terminal},
        {"the slow first step does not spoil the time left", test_pace},
        {"eval and save have lines, and names cannot drive a terminal",
         test_other_lines},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
