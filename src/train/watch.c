#include "src/train/watch.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "offload/schedule.h"
#include "src/base/clock.h"
#include "src/base/text.h"

#define BAR_CHARS 28
#define DEVICES_MAX                                          \
    8 /* bars of GPUs; the fullest of the others is one more \
       */
/* A line that broke would be two, and the next view stand too low. */
#define NO_WRAP      "\x1b[?7l"
#define WRAP         "\x1b[?7h"
#define GRAPH_LEVELS "_.-=+*#"

struct engine {
    const char *name;
    double seconds;
    uint64_t bytes; /* it moved; 0: it moves none */
};

void zo_watch_init(struct zo_watch *watch,
                   const struct zo_watch_options *options)
{
    *watch = (struct zo_watch){.options = *options};
}

void zo_watch_break(struct zo_watch *watch)
{
    watch->lines_drawn = 0;
}

/* ---- lines --------------------------------------------------------------- */

static void put(struct zo_watch *watch, const char *format, ...)
    ZO_PRINTF(2, 3);
static void put(struct zo_watch *watch, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vfprintf(watch->options.file, format, args);
    va_end(args);
}

/* Nothing is left of the line that stood here. */
static void end_line(struct zo_watch *watch)
{
    put(watch, "\x1b[K\n");
    watch->lines_drawn++;
}

static void put_bar(struct zo_watch *watch, double share)
{
    const double kept = share > 0.0 ? fmin(share, 1.0) : 0.0;
    const int filled = (int)(kept * BAR_CHARS + 0.5);

    put(watch, "[");
    for (int i = 0; i < BAR_CHARS; i++) {
        put(watch, "%c", i < filled ? '#' : '.');
    }
    put(watch, "]");
}

static const char *gib(char text[16], uint64_t bytes)
{
    return zo_text_gib(text, 16, bytes);
}

static void put_tier(struct zo_watch *watch, const char *name, uint64_t bytes,
                     uint64_t peak_bytes, uint64_t limit_bytes)
{
    char now[16], limit[16], peak[16];

    put(watch, "  %-11s ", name);
    put_bar(watch, limit_bytes > 0 ? (double)bytes / (double)limit_bytes : 0.0);
    put(watch, "  %s", gib(now, bytes));
    if (limit_bytes > 0) {
        put(watch, " of %s", gib(limit, limit_bytes));
    }
    if (peak_bytes > 0) {
        put(watch, ", peak %s", gib(peak, peak_bytes));
    }
    end_line(watch);
}

static void put_tiers(struct zo_watch *watch,
                      const struct zo_step_metrics *metrics)
{
    const struct zo_watch_options *options = &watch->options;
    char name[16];

    for (size_t d = 0; d < metrics->device_count && d < DEVICES_MAX; d++) {
        (void)snprintf(name, sizeof(name), "%s %zu", options->device, d);
        put_tier(watch, name, metrics->gpu_bytes[d], metrics->gpu_bytes_peak[d],
                 options->gpu_bytes);
    }
    if (metrics->device_count > DEVICES_MAX) {
        put(watch, "  and %zu more of such",
            metrics->device_count - DEVICES_MAX);
        end_line(watch);
    }
    put_tier(watch, "host", metrics->host_bytes, metrics->host_bytes_peak,
             options->host_bytes);
    if (metrics->nvme_bytes > 0) {
        put_tier(watch, "NVMe", metrics->nvme_bytes, 0, options->nvme_bytes);
    }
}

/* ---- engines ------------------------------------------------------------- */

#define ENGINES ZO_ENGINES

static void list_engines(const struct zo_step_metrics *metrics,
                         struct engine engines[ENGINES])
{
    const struct engine list[ENGINES] = {
        [ZO_ENGINE_COMPUTE] = {NULL, metrics->compute_seconds, 0},
        [ZO_ENGINE_H2D] = {NULL, metrics->h2d_seconds, metrics->h2d_bytes},
        [ZO_ENGINE_D2H] = {NULL, metrics->d2h_seconds, metrics->d2h_bytes},
        [ZO_ENGINE_COLLECTIVE] = {NULL, metrics->collective_seconds, 0},
        [ZO_ENGINE_CPU] = {NULL, metrics->cpu_seconds, 0},
        [ZO_ENGINE_NVME] = {NULL, metrics->nvme_seconds,
                            metrics->nvme_read_bytes +
                                metrics->nvme_write_bytes},
    };

    memcpy(engines, list, sizeof(list));
    for (int e = 0; e < ENGINES; e++) {
        engines[e].name = zo_engine_words((enum zo_engine)e);
    }
}

static bool is_busy(const struct engine *engine)
{
    return engine->seconds > 0.0; /* not so of NaN */
}

static double share_of(const struct engine *engine,
                       const struct zo_step_metrics *metrics)
{
    return metrics->step_seconds > 0.0
               ? fmin(engine->seconds / metrics->step_seconds, 1.0)
               : 0.0;
}

static void put_rate(struct zo_watch *watch, const struct engine *engine)
{
    if (engine->bytes > 0) {
        put(watch, "  %.3g GB/s",
            (double)engine->bytes / engine->seconds * 1e-9);
    }
}

static void put_engines(struct zo_watch *watch,
                        const struct zo_step_metrics *metrics)
{
    struct engine engines[ENGINES];

    list_engines(metrics, engines);
    for (size_t e = 0; e < ENGINES; e++) {
        if (is_busy(&engines[e])) {
            const double share = share_of(&engines[e], metrics);

            put(watch, "  %-11s ", engines[e].name);
            put_bar(watch, share);
            put(watch, "  %3.0f %% busy", share * 100.0);
            put_rate(watch, &engines[e]);
            end_line(watch);
        }
    }
}

/* ---- the loss ------------------------------------------------------------ */

static void keep_loss(struct zo_watch *watch, double loss)
{
    if (!isfinite(loss)) {
        return;
    }
    if (watch->loss_count == ZO_WATCH_LOSSES) {
        memmove(watch->losses, watch->losses + 1,
                (ZO_WATCH_LOSSES - 1) * sizeof(watch->losses[0]));
        watch->loss_count--;
    }
    watch->losses[watch->loss_count++] = loss;
}

/* A character a step, from the lowest kept loss to the highest. */
static void put_losses(struct zo_watch *watch)
{
    const int levels = (int)strlen(GRAPH_LEVELS);
    double least = INFINITY, most = -INFINITY;

    if (watch->loss_count == 0) {
        return;
    }
    for (int i = 0; i < watch->loss_count; i++) {
        least = fmin(least, watch->losses[i]);
        most = fmax(most, watch->losses[i]);
    }
    put(watch, "  losses      ");
    for (int i = 0; i < watch->loss_count; i++) {
        const double share =
            most > least ? (watch->losses[i] - least) / (most - least) : 0.0;

        put(watch, "%c", GRAPH_LEVELS[(int)(share * (levels - 1) + 0.5)]);
    }
    put(watch, "  %.4f to %.4f", least, most);
    end_line(watch);
}

static void put_loss(struct zo_watch *watch, double loss)
{
    if (isnan(loss)) {
        put(watch, "  loss n/a");
    } else {
        put(watch, "  loss %.4f", loss);
    }
}

/* ---- the whole ----------------------------------------------------------- */

static void draw(struct zo_watch *watch, const struct zo_step_metrics *metrics,
                 double remaining_seconds)
{
    char span[ZO_CLOCK_SPAN_BYTES];

    if (watch->lines_drawn > 0) {
        put(watch, "\x1b[%dA\r", watch->lines_drawn);
    }
    put(watch, NO_WRAP);
    watch->lines_drawn = 0;
    put(watch, "step %lld/%lld  epoch %.2f", (long long)metrics->step,
        (long long)watch->options.total_steps, metrics->epoch);
    put_loss(watch, metrics->loss);
    put(watch, "  lr %.3g  %.0f tok/s  ETA %s%s", metrics->learning_rate,
        zo_step_tokens_per_second(metrics),
        zo_clock_span(span, remaining_seconds),
        metrics->overflow ? "  overflow" : "");
    end_line(watch);
    put_losses(watch);
    put_tiers(watch, metrics);
    put_engines(watch, metrics);
    put(watch, WRAP "\x1b[J"); /* a view of more lines may have stood here */
}

static uint64_t fullest(const struct zo_step_metrics *metrics)
{
    uint64_t most = 0;

    for (size_t d = 0; d < metrics->device_count; d++) {
        most = metrics->gpu_bytes[d] > most ? metrics->gpu_bytes[d] : most;
    }
    return most;
}

static void print(struct zo_watch *watch, const struct zo_step_metrics *metrics)
{
    struct engine engines[ENGINES];
    char gpu[16], host[16], nvme[16];

    put(watch, "  %s %s  host %s", watch->options.device,
        gib(gpu, fullest(metrics)), gib(host, metrics->host_bytes));
    if (metrics->nvme_bytes > 0) {
        put(watch, "  NVMe %s", gib(nvme, metrics->nvme_bytes));
    }
    list_engines(metrics, engines);
    for (size_t e = 0; e < ENGINES; e++) {
        if (is_busy(&engines[e])) {
            put(watch, "  %s %.0f %%", engines[e].name,
                share_of(&engines[e], metrics) * 100.0);
            put_rate(watch, &engines[e]);
        }
    }
    put(watch, "\n");
}

/* Of a view, with the line that the cursor is left in. */
static int rows_of(const struct zo_step_metrics *metrics)
{
    const int devices = (int)metrics->device_count;
    struct engine engines[ENGINES];
    int rows = 4; /* the step, losses, the host, the cursor */

    rows += devices > DEVICES_MAX ? DEVICES_MAX + 1 : devices;
    rows += metrics->nvme_bytes > 0 ? 1 : 0;
    list_engines(metrics, engines);
    for (size_t e = 0; e < ENGINES; e++) {
        rows += is_busy(&engines[e]) ? 1 : 0;
    }
    return rows;
}

bool zo_watch_draws(struct zo_watch *watch, int rows,
                    const struct zo_step_metrics *metrics)
{
    watch->options.rows = rows;
    return watch->options.is_terminal &&
           (rows == 0 || rows >= rows_of(metrics));
}

void zo_watch_step(struct zo_watch *watch,
                   const struct zo_step_metrics *metrics,
                   double remaining_seconds, bool is_logged)
{
    keep_loss(watch, metrics->loss);
    if (zo_watch_draws(watch, watch->options.rows, metrics)) {
        draw(watch, metrics, remaining_seconds);
    } else {
        zo_watch_break(watch); /* a view that stood here scrolls away */
        if (is_logged) {
            print(watch, metrics);
        }
    }
    (void)fflush(watch->options.file);
}
