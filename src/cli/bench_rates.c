/*
 * zero-offload bench adam, transfer, matmul: what a step is made of, alone,
 * beside its bound.
 */
#include <string.h>

#include "bench/adam.h"
#include "bench/attention_rate.h"
#include "bench/products.h"
#include "src/base/arith.h"
#include "src/base/cpu.h"
#include "src/base/text.h"
#include "src/cli/bench_run.h"
#include "src/train/profile_measure.h"
#include "src/train/rates.h"

#define COPIED_BYTES ((size_t)256 << 20) /* of host memory, twice */
#define SQUARE_SIDE  2048
#define SQUARE_HOST  1024

/* One figure: a rate, and what bounds it. */
struct figure {
    const char *label, *unit; /* unit: "GB/s", "TFLOP/s" */
    double rate, scale;       /* scale: of the unit */
    double bound;             /* 0: not known */
    const char *bound_text;
};

static enum zo_status tell(const struct zo_cli *cli,
                           const struct zo_options *options, const char *what,
                           const struct figure *figure)
{
    const double percent =
        figure->bound > 0.0 ? 100.0 * figure->rate / figure->bound : 0.0;
    struct zo_jsonl json;
    char buffer[1024];

    if (!options->json) {
        (void)fprintf(cli->out, "  %-38s %9.4g %s", figure->label,
                      figure->rate / figure->scale, figure->unit);
        if (figure->bound > 0.0) {
            (void)fprintf(cli->out, "  %5.1f %% of %s", percent,
                          figure->bound_text);
        }
        (void)fputc('\n', cli->out);
        (void)fflush(cli->out);
        return ZO_OK;
    }
    zo_jsonl_init_file(&json, cli->out, "standard output", buffer,
                       sizeof(buffer));
    zo_jsonl_begin(&json);
    zo_jsonl_int(&json, "format", ZO_BENCH_FORMAT);
    zo_jsonl_text(&json, "kind", "bench");
    zo_jsonl_text(&json, "what", what);
    zo_jsonl_text(&json, "label", figure->label);
    zo_jsonl_text(&json, "unit", figure->unit);
    zo_jsonl_real(&json, "rate", figure->rate);
    if (figure->bound > 0.0) {
        zo_jsonl_real(&json, "bound", figure->bound);
        zo_jsonl_text(&json, "bound_name", figure->bound_text);
        zo_jsonl_real(&json, "percent", percent);
    } else {
        zo_jsonl_null(&json, "bound");
    }
    return zo_jsonl_end(&json);
}

/* ---- adam ----------------------------------------------------------------
 */

static enum zo_status tell_adam(const struct zo_cli *cli,
                                const struct zo_options *options,
                                struct zo_bench_adam *arrays,
                                struct zo_pool *pool)
{
    static const struct {
        struct zo_adam_case which;
        const char *label;
    } cases[] = {
        {{.type = ZO_BF16, .moment_type = ZO_F32, .has_weight = true},
         "bf16 pair, fp32 moments"},
        {{.type = ZO_BF16, .moment_type = ZO_BF16, .has_weight = true},
         "bf16 pair, bf16 moments"},
        {{.type = ZO_F16, .moment_type = ZO_F32, .has_weight = true},
         "fp32 master and fp16 copy"},
        {{.type = ZO_F32, .moment_type = ZO_F32, .has_weight = true}, "fp32"},
    };
    struct zo_adam_roofs roofs;

    zo_bench_adam_roofs(arrays, pool, &roofs);
    for (size_t i = 0; i < ZO_COUNT(cases); i++) {
        struct zo_adam_case which = cases[i].which;
        struct zo_adam_figure measured;
        struct figure figure = {.label = cases[i].label,
                                .unit = "GB/s",
                                .scale = 1e9,
                                .bound = roofs.update,
                                .bound_text = "an update in place"};

        which.simd = (enum zo_simd)options->simd;
        ZO_TRY(zo_bench_adam_time(arrays, pool, &which, &measured));
        figure.rate = measured.bytes_per_second;
        ZO_TRY(tell(cli, options, "adam", &figure));
    }
    return ZO_OK;
}

enum zo_status zo_bench_adam(struct zo_cli *cli,
                             const struct zo_options *options)
{
    const int threads =
        options->threads > 0 ? (int)options->threads : zo_cpu_count();
    const int64_t elems = zo_bench_adam_elems(options->host_memory_bytes);
    struct zo_bench_adam *arrays = NULL;
    struct zo_pool *pool = NULL;
    enum zo_status status;

    ZO_TRY(zo_pool_open(threads - 1, &pool));
    ZO_TRY_GOTO(close_pool, zo_bench_adam_open(pool, elems, &arrays));
    if (!options->json) {
        (void)fprintf(cli->out,
                      "AdamW on the host: %.3g parameters, %d thread%s; bytes "
                      "read and written\n",
                      (double)elems, threads, zo_text_s((uint64_t)threads));
    }
    status = tell_adam(cli, options, arrays, pool);
    zo_bench_adam_close(arrays);

close_pool:
    zo_pool_close(pool);
    return status;
}

/* ---- transfer ------------------------------------------------------------
 */

/* The shipped machine that bears the device's name; NULL: none. */
static const struct zo_profile *data_sheet(const char *device)
{
    for (int i = 0; zo_profile_shipped(i) != NULL; i++) {
        if (strcasestr(device, zo_profile_shipped(i)->name) != NULL) {
            return zo_profile_shipped(i);
        }
    }
    return NULL;
}

static enum zo_status tell_transfer(const struct zo_cli *cli,
                                    const struct zo_options *options,
                                    const struct zo_devices *devices)
{
    const struct zo_profile *sheet;
    struct zo_profile rates;
    double memory = 0.0, bus;
    const char *bus_text = "half of a copy in host memory";

    ZO_TRY(zo_rate_memory(devices->pool, COPIED_BYTES, &memory));
    ZO_TRY(zo_profile_measure(devices, (enum zo_simd)options->simd,
                              (uint64_t)2 << 30, &rates));
    sheet = data_sheet(rates.name);
    bus = memory / 2.0; /* each byte is read and written */
    if (!rates.is_host && sheet != NULL) {
        bus = sheet->h2d;
        bus_text = "the bus by its data sheet";
    }
    {
        const struct figure figures[] = {
            {"host to device", "GB/s", rates.h2d, 1e9, bus, bus_text},
            {"device to host", "GB/s", rates.d2h, 1e9, bus, bus_text},
            {"both at once, a device", "GB/s", rates.duplex, 1e9,
             rates.h2d + rates.d2h, "both alone"},
            {"host memory, read and written", "GB/s", memory, 1e9, 0.0, ""},
            {"host memory beside copies and AdamW", "GB/s", rates.dram.rate,
             1e9, memory, "a copy alone"},
            {"from device to device", "GB/s", rates.collective, 1e9,
             !rates.is_host && sheet != NULL ? sheet->collective : 0.0,
             "its data sheet"},
            {"a launch", "us", rates.launch_seconds, 1e-6, 0.0, ""},
        };

        for (size_t i = 0; i < ZO_COUNT(figures); i++) {
            if (figures[i].rate > 0.0) {
                ZO_TRY(tell(cli, options, "transfer", &figures[i]));
            }
        }
    }
    return ZO_OK;
}

enum zo_status zo_bench_transfer(struct zo_cli *cli,
                                 const struct zo_options *options)
{
    const struct zo_devices_options how = {
        .backend = options->backend,
        .indices = options->device_count > 0 ? options->devices : NULL,
        .count = options->device_count > 0 ? options->device_count
                                           : (int)options->num_devices,
        .threads = (int)options->threads,
        .copy_bytes_per_second = options->copy_bytes_per_second,
    };
    struct zo_devices devices;
    enum zo_status status;

    ZO_TRY(zo_devices_open(&how, &devices));
    status = zo_setup_note_processor(options, &devices.machine, &cli->notes);
    zo_cli_print_notes(cli);
    if (!options->json) {
        (void)fprintf(
            cli->out, "copies: %d device%s, %s\n", devices.machine.device_count,
            devices.machine.device_count == 1 ? "" : "s",
            devices.machine.device_ops->info(devices.machine.devices[0])
                ->description);
    }
    status = status == ZO_OK ? tell_transfer(cli, options, &devices) : status;
    zo_devices_close(&devices);
    return status;
}

/* ---- matmul --------------------------------------------------------------
 */

static enum zo_status tell_products(const struct zo_cli *cli,
                                    const struct zo_setup *setup)
{
    const struct zo_machine *machine = &setup->devices.machine;
    const enum zo_dtype type = setup->config.dtype;
    const bool is_host = machine->device_ops == &zo_device_host;
    const struct zo_profile *sheet =
        is_host
            ? NULL
            : data_sheet(
                  machine->device_ops->info(machine->devices[0])->description);
    struct zo_product_rate square = {0}, products = {0};
    struct figure figure = {.unit = "TFLOP/s", .scale = 1e12};

    ZO_TRY(zo_bench_square(machine, type, is_host ? SQUARE_HOST : SQUARE_SIDE,
                           &square));
    figure.label = "square matrices";
    figure.rate = square.flops / square.seconds;
    figure.bound = sheet != NULL ? sheet->matrix_flops[type] : 0.0;
    figure.bound_text = "the data sheet";
    ZO_TRY(tell(cli, setup->options, "matmul", &figure));
    if (figure.bound <= 0.0) {
        figure.bound = figure.rate;
        figure.bound_text = "square matrices";
    }
    ZO_TRY(zo_bench_products(&setup->devices, &setup->model, type,
                             setup->bounds.tokens, setup->bounds.labels,
                             &products));
    figure.label = "products of a step, each shape alone";
    figure.rate = products.flops / products.seconds;
    ZO_TRY(tell(cli, setup->options, "matmul", &figure));
    figure.label = "attention, forward and backward";
    ZO_TRY(zo_bench_attention(
        &setup->devices, &setup->model, type,
        zo_max_i64(1, setup->bounds.tokens / setup->positions_max),
        setup->positions_max, &figure.rate));
    return tell(cli, setup->options, "matmul", &figure);
}

enum zo_status zo_bench_matmul(struct zo_cli *cli,
                               const struct zo_options *options)
{
    struct zo_setup setup = {0};
    enum zo_status status = zo_setup_open(options, &cli->notes, &setup);

    zo_cli_print_notes(cli);
    if (status == ZO_OK) {
        if (!options->json) {
            (void)fprintf(cli->out, "products in %s of %d token%s, %s\n",
                          zo_dtype_name(setup.config.dtype),
                          setup.bounds.tokens,
                          zo_text_s((uint64_t)setup.bounds.tokens),
                          setup.devices.machine.device_ops
                              ->info(setup.devices.machine.devices[0])
                              ->description);
        }
        status = tell_products(cli, &setup);
    }
    zo_setup_close(&setup);
    return status;
}
