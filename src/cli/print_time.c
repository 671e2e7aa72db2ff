#include "src/cli/print_time.h"

#include "src/base/text.h"
#include "src/train/profile_file.h"

static const char *const engine_names[ZO_ENGINES] = {
    [ZO_ENGINE_COMPUTE] = "computation",
    [ZO_ENGINE_H2D] = "copies to the device",
    [ZO_ENGINE_D2H] = "copies from the device",
    [ZO_ENGINE_COLLECTIVE] = "collectives",
    [ZO_ENGINE_CPU] = "the processor's updates",
    [ZO_ENGINE_NVME] = "NVMe",
};

enum zo_status zo_cli_time(const struct zo_setup *setup,
                           const struct zo_trainer *trainer, bool measures,
                           struct zo_cli_time *time_out, bool *found_out)
{
    const struct zo_build *build = zo_trainer_build(trainer);
    struct zo_cli_time time = {0};
    const struct zo_sim_options options = {
        .program = &build->program,
        .profile = &time.profile,
        .type = build->options.type,
        .cpu_workers = zo_trainer_cpu_workers(trainer),
    };
    bool found = false;

    ZO_TRY(zo_cli_profile(setup, measures, &time.profile, &found));
    if (found) {
        ZO_TRY(zo_simulate_steps(&options, build->step_schedule, &time.result));
        time.tokens_per_second =
            (double)setup->bounds.tokens * build->options.micros *
            build->options.device_count / time.result.step_seconds;
        *time_out = time;
    }
    *found_out = found;
    return ZO_OK;
}

void zo_cli_time_fini(struct zo_cli_time *time)
{
    if (time != NULL) {
        zo_sim_result_fini(&time->result);
    }
}

/* "rates measured on this machine"; a rough prediction says so. */
static void print_source(FILE *file, const struct zo_cli_time *time)
{
    if (time->profile.source == ZO_PROFILE_DATA_SHEET) {
        (void)fprintf(file,
                      "at best: by data-sheet rates of \"%s\", %d thread%s",
                      time->profile.name, time->profile.threads,
                      zo_text_s((uint64_t)time->profile.threads));
    } else {
        (void)fprintf(file, "by rates measured on %s", time->profile.name);
    }
    if (time->profile.paced > 0.0) {
        (void)fprintf(file, ", copies held up to %.3g GB/s",
                      time->profile.paced * 1e-9);
    }
    if (time->profile.simd != ZO_SIMD_BEST) {
        (void)fprintf(file, ", AdamW by %s", zo_simd_name(time->profile.simd));
    }
    if (time->result.is_rough) {
        (void)fputs("; rough, since kernels and updates share the cores", file);
    }
}

static void print_line(FILE *file, const struct zo_cli_time *time)
{
    (void)fprintf(file,
                  "predicted: %.3g s a step, %.0f tokens/s, bound by %s, ",
                  time->result.step_seconds, time->tokens_per_second,
                  zo_bound_text(time->result.bound));
    print_source(file, time);
    (void)fputc('\n', file);
}

enum zo_status zo_cli_tell_time(const struct zo_cli *cli,
                                const struct zo_setup *setup,
                                const struct zo_trainer *trainer)
{
    struct zo_cli_time time;
    bool found = false;
    const enum zo_status status =
        zo_cli_time(setup, trainer, false, &time, &found);

    if (status == ZO_OK && found) {
        print_line(cli->out, &time);
        zo_cli_time_fini(&time);
    }
    /* What the machine profile does not tell is no reason not to train. */
    return status == ZO_E_ARG ? ZO_OK : status;
}

/* Busy while others are too, most of the time: only what the step waits for
 * makes it longer. */
static void print_busy(FILE *file, const char *name, double busy_seconds,
                       const char *rate, enum zo_bound bound,
                       const struct zo_sim_result *result)
{
    (void)fprintf(file, "    %-26s %8.0f %% %8.0f %%  %14s\n", name,
                  100.0 * busy_seconds / result->step_seconds,
                  100.0 * result->path_seconds[bound] / result->step_seconds,
                  rate);
}

/* Products of the devices, bytes of all else; while it is busy. */
static void print_engine(FILE *file, enum zo_engine index,
                         const struct zo_sim_result *result)
{
    const struct zo_sim_engine *engine = &result->engines[index];
    char rate[32] = "";

    if (index == ZO_ENGINE_COMPUTE && engine->flops > 0.0) {
        (void)zo_text_si(rate, sizeof(rate), engine->flops_per_second,
                         "FLOP/s");
    } else if (index != ZO_ENGINE_COMPUTE && engine->bytes > 0.0) {
        (void)zo_text_si(rate, sizeof(rate), engine->bytes_per_second, "B/s");
    }
    print_busy(file, engine_names[index], engine->busy_seconds, rate,
               (enum zo_bound)index, result);
}

static void print_engines(FILE *file, const struct zo_cli_time *time)
{
    const struct zo_sim_result *result = &time->result;
    char rate[32];

    (void)fprintf(file, "    %-26s %10s %10s  %14s\n", "share of the step",
                  "busy", "waited for", "rate when busy");
    for (int e = 0; e < ZO_ENGINES; e++) {
        if (result->engines[e].busy_seconds > 0.0) {
            print_engine(file, (enum zo_engine)e, result);
        }
    }
    if (result->dram_bytes > 0.0 && zo_profile_dram(&time->profile) > 0.0) {
        print_busy(file, "host memory", result->dram_busy_seconds,
                   zo_text_si(rate, sizeof(rate),
                              result->dram_bytes / result->dram_busy_seconds,
                              "B/s"),
                   ZO_BOUND_DRAM, result);
    }
}

void zo_cli_print_time(FILE *file, const struct zo_cli_time *time)
{
    const struct zo_sim_result *result = &time->result;
    const double least = result->chain_seconds > result->busiest_seconds
                             ? result->chain_seconds
                             : result->busiest_seconds;

    (void)fprintf(file,
                  "  step of the longest batches: %.3g s, %.0f tokens/s\n",
                  result->step_seconds, time->tokens_per_second);
    (void)fputs("    ", file);
    print_source(file, time);
    (void)fprintf(file,
                  "\n    bound by %s: %.0f %% of the time\n"
                  "    no less than %.3g s at these rates\n",
                  zo_bound_text(result->bound),
                  100.0 * result->path_seconds[result->bound] /
                      result->step_seconds,
                  least);
    print_engines(file, time);
}

void zo_cli_write_time(struct zo_jsonl *json, const char *key,
                       const struct zo_cli_time *time)
{
    const struct zo_sim_result *result = &time->result;

    zo_jsonl_object_begin(json, key);
    zo_jsonl_real(json, "step_seconds", result->step_seconds);
    zo_jsonl_real(json, "tokens_per_second", time->tokens_per_second);
    zo_jsonl_text(json, "bound", zo_bound_text(result->bound));
    zo_jsonl_bool(json, "rough", result->is_rough);
    zo_jsonl_real(json, "chain_seconds", result->chain_seconds);
    zo_jsonl_real(json, "busiest_seconds", result->busiest_seconds);
    zo_jsonl_text(json, "busiest", zo_bound_text(result->busiest));
    zo_jsonl_real(json, "dram_bytes", result->dram_bytes);
    zo_jsonl_real(json, "dram_busy_seconds", result->dram_busy_seconds);
    zo_jsonl_object_begin(json, "path_seconds");
    for (int b = 0; b < ZO_BOUNDS; b++) {
        zo_jsonl_real(json, zo_bound_text((enum zo_bound)b),
                      result->path_seconds[b]);
    }
    zo_jsonl_object_end(json);
    zo_jsonl_object_begin(json, "engines");
    for (int e = 0; e < ZO_ENGINES; e++) {
        const struct zo_sim_engine *engine = &result->engines[e];

        zo_jsonl_object_begin(json, zo_engine_text((enum zo_engine)e));
        zo_jsonl_real(json, "busy_seconds", engine->busy_seconds);
        zo_jsonl_real(json, "idle_seconds", engine->idle_seconds);
        zo_jsonl_real(json, "bytes", engine->bytes);
        zo_jsonl_real(json, "flops", engine->flops);
        zo_jsonl_object_end(json);
    }
    zo_jsonl_object_end(json);
    zo_profile_write(json, "rates", &time->profile);
    zo_jsonl_object_end(json);
}
