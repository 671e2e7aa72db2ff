/*
 * The live view: what a terminal shows, kept as rows of characters, and the
 * plain lines that everything else gets.
 */
#include "src/train/watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"

#define ROWS_MAX    40
#define COLUMNS_MAX 120

static char *text;
static size_t text_bytes;

/* ---- a terminal of the few sequences that are used ------------------------
 */

static char rows[ROWS_MAX][COLUMNS_MAX];
static int row, column;

static int number_at(const char **at)
{
    int number = 0;

    for (; **at >= '0' && **at <= '9'; (*at)++) {
        number = number * 10 + (**at - '0');
    }
    return number;
}

/* Behind ESC [; false when it is none of ours. */
static bool obey(const char **at)
{
    const bool is_private = **at == '?';
    int number;

    *at += is_private;
    number = number_at(at);
    switch (*(*at)++) {
    case 'A':
        row -= number;
        return row >= 0;
    case 'K':
        memset(rows[row] + column, 0, sizeof(rows[row]) - (size_t)column);
        return true;
    case 'J':
        for (int r = row + 1; r < ROWS_MAX; r++) {
            memset(rows[r], 0, sizeof(rows[r]));
        }
        memset(rows[row] + column, 0, sizeof(rows[row]) - (size_t)column);
        return true;
    case 'h':
    case 'l':
        return is_private && number == 7;
    default:
        return false;
    }
}

static bool show(void)
{
    memset(rows, 0, sizeof(rows));
    row = column = 0;
    for (const char *at = text; *at != '\0';) {
        const char next = *at++;

        if (next == '\x1b') {
            if (*at++ != '[' || !obey(&at)) {
                return false;
            }
        } else if (next == '\r') {
            column = 0;
        } else if (next == '\n') {
            row++;
            column = 0;
        } else {
            rows[row][column++] = next;
        }
        if (row >= ROWS_MAX || column >= COLUMNS_MAX) {
            return false;
        }
    }
    return true;
}

/* ---- cases --------------------------------------------------------------- */

static const uint64_t gpu_bytes[] = {UINT64_C(6) << 30, UINT64_C(3) << 30};
static const uint64_t gpu_peaks[] = {UINT64_C(7) << 30, UINT64_C(3) << 30};

static struct zo_step_metrics a_step(int64_t step, double loss)
{
    return (struct zo_step_metrics){
        .step = step,
        .epoch = 0.5,
        .loss = loss,
        .learning_rate = 1e-4,
        .tokens = 500,
        .step_seconds = 2.0,
        .device_count = 2,
        .gpu_bytes = gpu_bytes,
        .gpu_bytes_peak = gpu_peaks,
        .host_bytes = UINT64_C(48) << 30,
        .h2d_bytes = 12000000000,
        .compute_seconds = 1.5,
        .h2d_seconds = 1.0,
        .d2h_seconds = (double)NAN,
        .cpu_seconds = 0.5,
    };
}

static struct zo_watch begin(bool is_terminal)
{
    const struct zo_watch_options options = {
        .file = open_memstream(&text, &text_bytes),
        .is_terminal = is_terminal,
        .total_steps = 20,
        .device = "GPU",
        .gpu_bytes = UINT64_C(12) << 30,
        .host_bytes = UINT64_C(64) << 30,
    };
    struct zo_watch watch;

    zo_watch_init(&watch, &options);
    return watch;
}

static void end(struct zo_watch *watch)
{
    (void)fclose(watch->options.file);
}

/* 9 rows: the step, losses, 2 GPUs, the host, 3 engines, the cursor. */
static void test_few_rows(void)
{
    const struct zo_step_metrics step = a_step(3, 2.5);
    struct zo_watch watch = begin(true);

    TAP_CHECK(zo_watch_draws(&watch, 0, &step));
    TAP_CHECK(zo_watch_draws(&watch, 9, &step));
    TAP_CHECK(!zo_watch_draws(&watch, 8, &step));
    zo_watch_step(&watch, &step, (double)NAN, false);
    zo_watch_step(&watch, &step, (double)NAN, true);
    TAP_CHECK(zo_watch_draws(&watch, 9, &step));
    zo_watch_step(&watch, &step, (double)NAN, true);
    end(&watch);
    TAP_CHECK(show());
    TAP_CHECK(strncmp(rows[0], "  GPU 6.00 GiB  host", 20) == 0);
    TAP_CHECK(strncmp(rows[1], "step 3/20", 9) == 0);
    TAP_CHECK(rows[8][0] != '\0' && rows[9][0] == '\0');
    free(text);
}

static void test_view(void)
{
    struct zo_watch watch = begin(true);
    const struct zo_step_metrics step = a_step(3, 2.5);

    zo_watch_step(&watch, &step, 34.0, true);
    end(&watch);
    TAP_CHECK(show());
    TAP_CHECK(strcmp(rows[0], "step 3/20  epoch 0.50  loss 2.5000  lr 0.0001  "
                              "250 tok/s  ETA 0:34") == 0);
    TAP_CHECK(strcmp(rows[2], "  GPU 0       [##############..............]  "
                              "6.00 GiB of 12.00 GiB, peak 7.00 GiB") == 0);
    TAP_CHECK(strstr(rows[3], "  GPU 1       [#######.....") == rows[3]);
    TAP_CHECK(strstr(rows[4], "  host        [#####################.......]") ==
              rows[4]);
    TAP_CHECK(strstr(rows[5], "  computation ") != NULL);
    TAP_CHECK(strstr(rows[5], " 75 % busy") != NULL);
    TAP_CHECK(strstr(rows[6], " 50 % busy  12 GB/s") != NULL);
    TAP_CHECK(strstr(rows[7], "  processor ") ==
              rows[7]); /* d2h was not timed */
    TAP_CHECK(rows[8][0] == '\0');
    free(text);
}

/* Each view stands on the last; what somebody else printed stays above. */
static void test_redraw(void)
{
    struct zo_watch watch = begin(true);

    for (int64_t step = 1; step <= 50; step++) {
        const struct zo_step_metrics metrics =
            a_step(step, 5.0 - (double)step * 0.05);

        zo_watch_step(&watch, &metrics, 10.0, false);
        if (step == 20) {
            (void)fputs("saved\n", watch.options.file);
            zo_watch_break(&watch);
        }
    }
    end(&watch);
    TAP_CHECK(show());
    TAP_CHECK(strncmp(rows[0], "step 20/20", 10) == 0);
    TAP_CHECK(strcmp(rows[8], "saved") == 0);
    TAP_CHECK(strncmp(rows[9], "step 50/20", 10) == 0);
    TAP_CHECK(rows[17][0] == '\0');
    TAP_CHECK(strstr(rows[10], "  losses      #") == rows[10]);
    TAP_CHECK(strstr(rows[10], "_  2.5000 to 4.4500") != NULL);
    free(text);
}

static void test_plain(void)
{
    struct zo_watch watch = begin(false);
    const struct zo_step_metrics step = a_step(3, (double)NAN);

    zo_watch_step(&watch, &step, (double)NAN, false);
    zo_watch_step(&watch, &step, (double)NAN, true);
    end(&watch);
    TAP_CHECK(strcmp(text, "  GPU 6.00 GiB  host 48.00 GiB  computation 75 %  "
                           "to device 50 %  12 GB/s  processor 25 %\n") == 0);
    free(text);
}

static void test_no_loss(void)
{
    struct zo_watch watch = begin(true);
    const struct zo_step_metrics step = a_step(1, (double)NAN);

    zo_watch_step(&watch, &step, (double)NAN, true);
    end(&watch);
    TAP_CHECK(show());
    TAP_CHECK(strstr(rows[0], "loss n/a") != NULL);
    TAP_CHECK(strstr(rows[0], "ETA ?") != NULL);
    TAP_CHECK(strstr(rows[1], "GPU 0") != NULL); /* no graph of nothing */
    free(text);
}

static const struct tap_case cases[] = {
    {"too few rows get plain lines", test_few_rows},
    {"the view has the loss, a bar a tier and a bar an engine", test_view},
    {"each view is drawn over the last, below other lines", test_redraw},
    {"without a terminal a logging step gets one plain line", test_plain},
    {"a loss that is none is not drawn", test_no_loss},
};

int main(void)
{
    return tap_run(cases, TAP_COUNT(cases));
}
