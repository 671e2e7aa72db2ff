#include "src/train/progress.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/text.h"

#define LINE_BYTES 256
#define PACE_SHARE 0.1 /* of the newest step in the moving mean */

void zo_progress_init(struct zo_progress *progress,
                      const struct zo_progress_options *options)
{
    ZO_ASSERT(options->logging_steps >= 1);
    *progress = (struct zo_progress){.options = *options};
}

/* Appends to a line of LINE_BYTES; what does not fit is cut. */
static void append(char *line, const char *format, ...) ZO_PRINTF(2, 3);
static void append(char *line, const char *format, ...)
{
    const size_t used = strlen(line);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(line + used, LINE_BYTES - used, format, args);
    va_end(args);
}

static void append_number(char *line, const char *name, const char *format,
                          double value)
{
    char text[48];

    if (isnan(value)) {
        (void)snprintf(text, sizeof(text), "nan");
    } else if (isinf(value)) {
        (void)snprintf(text, sizeof(text), value > 0.0 ? "inf" : "-inf");
    } else {
        (void)snprintf(text, sizeof(text), format, value);
    }
    append(line, "  %s %s", name, text);
}

static int digits_of(int64_t value)
{
    int digits = 1;

    for (; value >= 10; value /= 10) {
        digits++;
    }
    return digits;
}

/*
 * The first step of a run also pays for first touches, so it only counts
 * until there is a second.
 */
static void follow_pace(struct zo_progress *progress, double seconds)
{
    if (progress->steps_seen < 2) {
        progress->pace_seconds = seconds;
    } else {
        progress->pace_seconds +=
            PACE_SHARE * (seconds - progress->pace_seconds);
    }
    progress->steps_seen++;
}

double zo_progress_remaining(const struct zo_progress *progress, int64_t step)
{
    if (progress->steps_seen == 0) {
        return (double)NAN;
    }
    return (double)(progress->options.total_steps - step) *
           progress->pace_seconds;
}

static void format_step(const struct zo_progress *progress,
                        const struct zo_step_metrics *metrics, char *line)
{
    const struct zo_progress_options *options = &progress->options;
    char span[ZO_CLOCK_SPAN_BYTES];

    line[0] = '\0';
    append(line, "step %*lld/%lld", digits_of(options->total_steps),
           (long long)metrics->step, (long long)options->total_steps);
    append_number(line, "epoch", "%.2f", metrics->epoch);
    if (metrics->label_tokens == 0) {
        append(line, "  loss n/a");
    } else {
        append_number(line, "loss", "%.4f", metrics->loss);
    }
    append_number(line, "norm", "%.4g", metrics->grad_norm);
    if (options->has_clipping) {
        append_number(line, "clip", "%.3g", metrics->clip_coefficient);
    }
    append_number(line, "lr", "%.3g", metrics->learning_rate);
    if (options->has_loss_scale) {
        append_number(line, "scale", "%.6g", metrics->loss_scale);
    }
    if (metrics->skipped_steps > 0) {
        append(line, "  skipped %lld", (long long)metrics->skipped_steps);
    }
    append_number(line, "tok/s", "%.0f", zo_step_tokens_per_second(metrics));
    append(line, "  ETA %s",
           zo_clock_span(span, zo_progress_remaining(progress, metrics->step)));
    append(line, "%s",
           metrics->overflow ? "  overflow: this step was skipped" : "");
}

static void put_line(struct zo_progress *progress, const char *line,
                     bool is_final)
{
    const struct zo_progress_options *options = &progress->options;

    if (options->is_terminal) {
        /* Back to the start of the line, and nothing left of the last. */
        (void)fprintf(options->file, "\r%s\x1b[K%s", line,
                      is_final ? "\n" : "");
        progress->is_line_open = !is_final;
    } else if (is_final) {
        (void)fprintf(options->file, "%s\n", line);
    }
    (void)fflush(options->file);
}

bool zo_progress_logs(const struct zo_progress *progress,
                      const struct zo_step_metrics *metrics)
{
    const struct zo_progress_options *options = &progress->options;

    return metrics->step % options->logging_steps == 0 ||
           metrics->step == options->first_step ||
           metrics->step == options->total_steps || metrics->overflow;
}

void zo_progress_step(struct zo_progress *progress,
                      const struct zo_step_metrics *metrics)
{
    char line[LINE_BYTES];

    follow_pace(progress, metrics->step_seconds);
    format_step(progress, metrics, line);
    put_line(progress, line, zo_progress_logs(progress, metrics));
}

void zo_progress_follow(struct zo_progress *progress,
                        const struct zo_step_metrics *metrics)
{
    follow_pace(progress, metrics->step_seconds);
}

void zo_progress_eval(struct zo_progress *progress,
                      const struct zo_eval_metrics *metrics)
{
    char line[LINE_BYTES] = "", span[ZO_CLOCK_SPAN_BYTES];

    append(line, "eval after step %lld", (long long)metrics->step);
    if (metrics->label_tokens == 0) {
        append(line, "  loss n/a");
    } else {
        append_number(line, "loss", "%.4f", metrics->loss);
        append_number(line, "perplexity", "%.4g", zo_perplexity(metrics->loss));
    }
    append(line, "  rows %lld  in %s%s", (long long)metrics->rows,
           zo_clock_span(span, metrics->seconds),
           metrics->is_best && progress->options.keeps_best
               ? "  the best so far"
               : "");
    put_line(progress, line, true);
}

void zo_progress_save(struct zo_progress *progress,
                      const struct zo_save_metrics *metrics)
{
    char line[LINE_BYTES] = "", size[16], path[LINE_BYTES / 2];

    zo_text_escape(path, sizeof(path), metrics->path, strlen(metrics->path));
    append(line, "saved %s after step %lld  %s in %.1f s", path,
           (long long)metrics->step,
           zo_text_gib(size, sizeof(size), metrics->bytes), metrics->seconds);
    append(line, ", training waited %.1f s", metrics->stall_seconds);
    put_line(progress, line, true);
}

void zo_progress_break(struct zo_progress *progress)
{
    if (progress->is_line_open) {
        (void)fputc('\n', progress->options.file);
        (void)fflush(progress->options.file);
        progress->is_line_open = false;
    }
}
