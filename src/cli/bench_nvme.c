/*
 * zero-offload bench nvme: how fast a disk is through the NVMe tier's store,
 * beside what fio reaches with the same bytes, blocks, depth and mix.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/statvfs.h>

#include "bench/fio.h"
#include "bench/nvme_rate.h"
#include "src/base/jsonl.h"
#include "src/base/text.h"
#include "src/cli/bench.h"

#define BYTES_DEFAULT   ((uint64_t)4 << 30)
#define BLOCK_BYTES_MAX ((uint64_t)1 << 30)

struct nvme_bench {
    struct zo_cli *cli;
    const char *directory;
    struct zo_bench_nvme *run;
    struct zo_bench_fio *fio; /* NULL: not compared */
    struct zo_nvme_shape shape;
    struct zo_bench_nvme_rate rates[ZO_BENCH_NVME_KINDS];
    double fio_rates[ZO_BENCH_NVME_KINDS]; /* bytes a second; 0: not measured */
};

static const char *const kind_names[ZO_BENCH_NVME_KINDS] = {"write", "read",
                                                            "mixed"};

static const char *how_text(enum zo_nvme_how how)
{
    switch (how) {
    case ZO_NVME_URING:
        return "io_uring";
    case ZO_NVME_UNREGISTERED:
        return "io_uring, memory not registered";
    case ZO_NVME_POOL:
        return "pread and pwrite";
    }
    return "";
}

/* Adds the store's notes to those of the program. */
static enum zo_status add_notes(struct nvme_bench *bench, const char *notes)
{
    while (*notes != '\0') {
        const size_t length = strcspn(notes, "\n");

        ZO_TRY(zo_note_add(&bench->cli->notes, ZO_NOTE_WARN, "%.*s",
                           (int)length, notes));
        notes += length + (notes[length] == '\n');
    }
    return ZO_OK;
}

/* Half of what is free, since fio gets as much; 4 GiB where there is more. */
static uint64_t default_bytes(const char *directory)
{
    struct statvfs info;
    uint64_t room;

    if (statvfs(directory, &info) != 0) {
        return BYTES_DEFAULT; /* open tells what is wrong */
    }
    room = (uint64_t)info.f_bavail * info.f_frsize / 4;
    return room < BYTES_DEFAULT ? room + 1 : BYTES_DEFAULT;
}

/* Without fio there is no comparison, and all else stands. */
static enum zo_status skip_fio(struct nvme_bench *bench, enum zo_status status)
{
    if (status != ZO_E_NOSUPPORT && status != ZO_E_IO) {
        return status;
    }
    zo_bench_fio_close(bench->fio);
    bench->fio = NULL;
    return zo_note_add(&bench->cli->notes, ZO_NOTE_WARN,
                       "the comparison with fio is skipped: %s",
                       zo_err_last()->text);
}

/* One kind after another, each through the store and then through fio, so
 * that a disk which slows down slows both. */
static enum zo_status measure(struct nvme_bench *bench)
{
    const struct zo_nvme *store = zo_bench_nvme_store(bench->run);

    bench->shape = zo_nvme_shape(store);
    ZO_TRY(add_notes(bench, zo_nvme_notes(store)));
    ZO_TRY(skip_fio(bench, zo_bench_fio_open(bench->directory, &bench->shape,
                                             &bench->fio)));
    for (int i = 0; i < ZO_BENCH_NVME_KINDS; i++) {
        const enum zo_bench_nvme_kind kind = (enum zo_bench_nvme_kind)i;

        ZO_TRY(zo_bench_nvme_run(bench->run, kind, &bench->rates[i]));
        if (bench->fio != NULL) {
            ZO_TRY(skip_fio(bench, zo_bench_fio_run(bench->fio, kind,
                                                    &bench->fio_rates[i])));
        }
    }
    return ZO_OK;
}

static void print_table(const struct nvme_bench *bench)
{
    FILE *out = bench->cli->out;
    char size[32], block[32];

    (void)fprintf(
        out, "%s: %s; %s%s, %d of %s at once, hashes made and checked\n",
        bench->directory, zo_text_gib(size, sizeof(size), bench->shape.bytes),
        how_text(bench->shape.how), bench->shape.is_direct ? ", O_DIRECT" : "",
        bench->shape.depth,
        zo_text_gib(block, sizeof(block), bench->shape.block_bytes));
    (void)fprintf(out, "%-8s %8s %10s %8s %8s %8s\n", "GB/s", "burst",
                  "sustained", "whole", "fio", "of fio");
    for (int kind = 0; kind < ZO_BENCH_NVME_KINDS; kind++) {
        const struct zo_bench_nvme_rate *rate = &bench->rates[kind];

        (void)fprintf(out, "%-8s %8.3f %10.3f %8.3f", kind_names[kind],
                      rate->burst * 1e-9, rate->sustained * 1e-9,
                      rate->whole * 1e-9);
        if (bench->fio_rates[kind] > 0.0) {
            (void)fprintf(out, " %8.3f %7.1f%%\n",
                          bench->fio_rates[kind] * 1e-9,
                          100.0 * rate->whole / bench->fio_rates[kind]);
        } else {
            (void)fprintf(out, " %8s %8s\n", "-", "-");
        }
    }
    (void)fputs("burst: the first eighth of the bytes; sustained: the last "
                "half; mixed: as many bytes read as written, as AdamW's\n",
                out);
}

/* A line for each kind. */
static enum zo_status print_json(const struct nvme_bench *bench)
{
    struct zo_jsonl json;
    char buffer[2048];

    zo_jsonl_init_file(&json, bench->cli->out, "standard output", buffer,
                       sizeof(buffer));
    for (int kind = 0; kind < ZO_BENCH_NVME_KINDS; kind++) {
        const struct zo_bench_nvme_rate *rate = &bench->rates[kind];

        zo_jsonl_begin(&json);
        zo_jsonl_int(&json, "format", 1);
        zo_jsonl_text(&json, "suite", "nvme");
        zo_jsonl_text(&json, "transfer", kind_names[kind]);
        zo_jsonl_text(&json, "directory", bench->directory);
        zo_jsonl_uint(&json, "file_bytes", bench->shape.bytes);
        zo_jsonl_text(&json, "how", how_text(bench->shape.how));
        zo_jsonl_bool(&json, "direct", bench->shape.is_direct);
        zo_jsonl_int(&json, "depth", bench->shape.depth);
        zo_jsonl_uint(&json, "block_bytes", bench->shape.block_bytes);
        zo_jsonl_real(&json, "burst_bytes_per_second", rate->burst);
        zo_jsonl_real(&json, "sustained_bytes_per_second", rate->sustained);
        zo_jsonl_real(&json, "bytes_per_second", rate->whole);
        if (bench->fio_rates[kind] > 0.0) {
            zo_jsonl_real(&json, "fio_bytes_per_second",
                          bench->fio_rates[kind]);
        } else {
            zo_jsonl_null(&json, "fio_bytes_per_second");
        }
        ZO_TRY(zo_jsonl_end(&json));
    }
    return ZO_OK;
}

enum zo_status zo_cli_bench_nvme(struct zo_cli *cli,
                                 const struct zo_options *options)
{
    struct nvme_bench bench = {
        .cli = cli,
        .directory = options->nvme_path != NULL ? options->nvme_path : ".",
    };
    const struct zo_nvme_options of_store = {
        .directory = bench.directory,
        .bytes = options->nvme_bytes != 0 ? options->nvme_bytes
                                          : default_bytes(bench.directory),
        .depth = (int)options->nvme_depth,
        .block_bytes = options->nvme_block_bytes,
    };
    enum zo_status status;

    if (options->nvme_block_bytes % ZO_NVME_ALIGN != 0 ||
        options->nvme_block_bytes > BLOCK_BYTES_MAX) {
        return ZO_FAIL(ZO_E_USAGE,
                       "--block-size %" PRIu64
                       ": want a multiple of 4096, at most 1G",
                       options->nvme_block_bytes);
    }
    ZO_TRY(zo_bench_nvme_open(&of_store, &bench.run));
    status = measure(&bench);
    zo_bench_fio_close(bench.fio);
    zo_bench_nvme_close(bench.run);
    ZO_TRY(status);
    zo_cli_print_notes(cli);
    if (options->json) {
        return print_json(&bench);
    }
    print_table(&bench);
    return ZO_OK;
}
