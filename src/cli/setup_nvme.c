/*
 * The NVMe tier of a run: where it may be, how much of it, how fast.
 */
#include <sys/statvfs.h>

#include "bench/nvme_rate.h"
#include "src/cli/inputs.h"
#include "src/cli/setup.h"
#include "src/train/place_config.h"

#define MEASURE_BYTES       ((uint64_t)256 << 20)
#define MEASURE_BYTES_SMALL ((uint64_t)32 << 20) /* of a small budget */
#define SMALL_BUDGET        ((uint64_t)4 << 30)

/* What is free, where that is known. */
static void limit_to_free(struct zo_setup *setup)
{
    struct statvfs info;
    uint64_t room;

    if (statvfs(setup->nvme_directory, &info) != 0) {
        return; /* measuring tells what is wrong */
    }
    room = (uint64_t)info.f_bavail * info.f_frsize;
    if (setup->nvme_bytes == 0 || room < setup->nvme_bytes) {
        setup->nvme_bytes = room;
    }
}

/* Some seconds of a disk tell little of its sustained rate; this takes a
 * fraction of one, and is what placement and prediction need. */
static enum zo_status measure(struct zo_setup *setup,
                              const struct zo_nvme_options *options)
{
    struct zo_nvme_options given = *options;
    struct zo_bench_nvme_rate write, read;
    struct zo_bench_nvme *bench = NULL;
    enum zo_status status;

    given.bytes =
        setup->nvme_bytes < SMALL_BUDGET ? MEASURE_BYTES_SMALL : MEASURE_BYTES;
    ZO_TRY(zo_bench_nvme_open(&given, &bench));
    ZO_TRY_GOTO(close_bench,
                zo_bench_nvme_run(bench, ZO_BENCH_NVME_WRITE, &write));
    ZO_TRY_GOTO(close_bench,
                zo_bench_nvme_run(bench, ZO_BENCH_NVME_READ, &read));
    setup->nvme_write_rate = write.whole;
    setup->nvme_read_rate = read.whole;

close_bench:
    zo_bench_nvme_close(bench);
    return status;
}

/* A plan for a machine that is not here needs no folder here; one that is
 * not may all the same be a slip. */
enum zo_status zo_setup_check_nvme(const struct zo_setup *setup,
                                   struct zo_notes *notes)
{
    const char *directory = zo_place_nvme(&setup->config).directory;
    enum zo_status status;

    if (directory == NULL) {
        return ZO_OK;
    }
    status = zo_cli_nvme_folder(directory);
    return status == ZO_E_USAGE && zo_setup_plans_elsewhere(setup)
               ? zo_note_add(notes, ZO_NOTE_WARN,
                             "%s; the plan is for a machine that has it",
                             zo_err_last()->text)
               : status;
}

enum zo_status zo_setup_open_nvme(struct zo_setup *setup)
{
    const struct zo_nvme_options options = zo_place_nvme(&setup->config);

    setup->nvme_directory = options.directory;
    setup->nvme_bytes = setup->options->nvme_bytes;
    if (options.directory == NULL || zo_setup_plans_elsewhere(setup)) {
        return ZO_OK;
    }
    limit_to_free(setup);
    return measure(setup, &options);
}

void zo_setup_nvme_rates(const struct zo_setup *setup,
                         struct zo_profile *profile)
{
    if (setup->nvme_read_rate > 0.0) {
        profile->nvme_read = setup->nvme_read_rate;
        profile->nvme_write = setup->nvme_write_rate;
    }
}
