/*
 * The rates of this machine: named, cached, or measured.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/attention_rate.h"
#include "bench/products.h"
#include "src/base/arith.h"
#include "src/base/memory.h"
#include "src/cli/doctor.h"
#include "src/cli/print_time.h"
#include "src/train/profile_file.h"
#include "src/train/profile_measure.h"

#define MEASURE_BYTES_MAX ((uint64_t)8 << 30) /* beyond any cache */
#define TOKENS_MAX        8192                /* of products to time */
#define SIDE_MIN          256                 /* of square ones */
#define SIDE_MAX          4096
#define PRODUCT_SECONDS   0.02 /* long enough to be no question of start-up */

/* ---- products -------------------------------------------------------------
 */

static int64_t product_tokens(const struct zo_setup *setup)
{
    return zo_min_i64(setup->bounds.tokens, TOKENS_MAX);
}

static int64_t row_tokens(const struct zo_setup *setup)
{
    return zo_max_i64(1,
                      zo_min_i64(setup->positions_max, product_tokens(setup)));
}

/* What products are timed on: rates of others are not taken from the cache. */
static void name_products(const struct zo_setup *setup, bool is_host,
                          char *target, size_t target_bytes)
{
    if (is_host) {
        (void)snprintf(target, target_bytes, "square matrices");
    } else {
        (void)snprintf(
            target, target_bytes, "%lld x %lld, %lld tokens in rows of %lld",
            (long long)setup->model.hidden_size,
            (long long)setup->model.ffn_size, (long long)product_tokens(setup),
            (long long)row_tokens(setup));
    }
}

/* Larger and larger products, until one takes long enough: a processor would
 * spend minutes on the model's own. */
static enum zo_status time_squares(const struct zo_setup *setup,
                                   enum zo_dtype type, double *flops_out)
{
    double best = 0.0;

    for (int64_t side = SIDE_MIN; side <= SIDE_MAX; side *= 2) {
        struct zo_product_rate rate = {0};

        ZO_TRY(zo_bench_square(&setup->devices.machine, type, side, &rate));
        if (rate.flops / rate.seconds > best) {
            best = rate.flops / rate.seconds;
        }
        if (rate.seconds > PRODUCT_SECONDS) {
            break;
        }
    }
    *flops_out = best;
    return ZO_OK;
}

static enum zo_status measure_products(const struct zo_setup *setup,
                                       struct zo_profile *profile)
{
    const enum zo_dtype type = setup->config.dtype;
    struct zo_product_rate rate = {0};

    name_products(setup, profile->is_host, profile->products,
                  sizeof(profile->products));
    if (profile->is_host) {
        return time_squares(setup, type, &profile->matrix_flops[type]);
    }
    ZO_TRY(zo_bench_products(&setup->devices, &setup->model, type,
                             product_tokens(setup), product_tokens(setup),
                             &rate));
    profile->matrix_flops[type] = rate.flops / rate.seconds;
    return zo_bench_attention(
        &setup->devices, &setup->model, type,
        zo_max_i64(1, product_tokens(setup) / row_tokens(setup)),
        row_tokens(setup), &profile->attention_flops);
}

/* ---- where rates come from ------------------------------------------------
 */

/* The rates of this run: what stands in for another machine has its own. */
static struct zo_profile_key key_of(const struct zo_setup *setup)
{
    const struct zo_machine *machine = &setup->devices.machine;

    return (struct zo_profile_key){
        .name = machine->device_ops->info(machine->devices[0])->description,
        .is_host = machine->device_ops == &zo_device_host,
        .paced = (double)setup->devices.copy_bytes_per_second,
        .simd = (enum zo_simd)setup->options->simd,
    };
}

static enum zo_status fail_unknown(const char *named)
{
    char names[128] = "";
    size_t used = 0;

    for (int i = 0; zo_profile_shipped(i) != NULL; i++) {
        used +=
            (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                             i > 0 ? ", " : "", zo_profile_shipped(i)->name);
        ZO_ASSERT(used < sizeof(names));
    }
    return ZO_FAIL(ZO_E_USAGE,
                   "--profile %s: neither a file nor one of %s; plan without "
                   "--profile measures the machine that it runs on, and keeps "
                   "such a file as " ZO_DOCTOR_PROFILE
                   " in the user's cache folder",
                   named, names);
}

/* A file's rates of one key, or of any device where that has none. */
static enum zo_status read_file(const char *named, struct zo_profile_key key,
                                struct zo_profile *profile)
{
    bool found = false;

    if (access(named, F_OK) != 0) {
        return fail_unknown(named);
    }
    if (key.name != NULL) {
        ZO_TRY(zo_profile_file_read(named, &key, profile, &found));
    }
    if (!found) { /* that of another machine, then */
        key.name = NULL;
        ZO_TRY(zo_profile_file_read(named, &key, profile, &found));
    }
    return found ? ZO_OK
                 : ZO_FAIL(ZO_E_USAGE,
                           "--profile %s: holds no rates to predict with, of "
                           "this --simd and --copy-rate; plan measures them "
                           "on its machine",
                           named);
}

static enum zo_status read_named(const struct zo_setup *setup,
                                 struct zo_profile *profile)
{
    const char *named = setup->options->profile;
    const struct zo_profile *shipped = zo_profile_find(named);

    if (shipped != NULL) {
        *profile = *shipped;
        return ZO_OK;
    }
    return read_file(named, key_of(setup), profile);
}

enum zo_status zo_cli_profile_check(const struct zo_options *options)
{
    const struct zo_profile_key key = {
        .paced = (double)options->copy_bytes_per_second,
        .simd = (enum zo_simd)options->simd,
    };
    struct zo_profile profile;

    return options->profile == NULL || zo_profile_find(options->profile) != NULL
               ? ZO_OK
               : read_file(options->profile, key, &profile);
}

enum zo_status zo_cli_profile_check_run(const struct zo_setup *setup)
{
    const bool is_host = setup->devices.machine.device_ops == &zo_device_host;
    const char *named = setup->options->profile;
    struct zo_profile profile;

    if (named == NULL) {
        return ZO_OK;
    }
    ZO_TRY(read_named(setup, &profile));
    return profile.is_host == is_host
               ? ZO_OK
               : ZO_FAIL(ZO_E_USAGE,
                         "--profile %s: rates of a %s tell nothing of this "
                         "run, which is on %s; plan --profile %s predicts "
                         "that machine",
                         named, profile.is_host ? "processor" : "GPU",
                         is_host ? "the processor" : "a GPU", named);
}

/* What of the cached rates holds for this run; the rest is 0. */
static void check_cached(const struct zo_setup *setup,
                         struct zo_profile *profile, bool *found_inout)
{
    char products[sizeof(profile->products)];

    if (profile->threads != setup->devices.threads ||
        (profile->is_host ? zo_profile_dram(profile)
                          : profile->device_bandwidth) <= 0.0 ||
        profile->h2d <= 0.0 || profile->d2h <= 0.0 || profile->cpu <= 0.0 ||
        (setup->devices.machine.device_count > 1 &&
         profile->collective <= 0.0)) {
        *found_inout = false; /* of another number of threads, or an older
                                 version: measured anew */
    }
    name_products(setup, profile->is_host, products, sizeof(products));
    if (strcmp(products, profile->products) != 0) {
        memset(profile->matrix_flops, 0, sizeof(profile->matrix_flops));
    }
}

/* A cache that cannot be written, or read, costs seconds, not the plan. */
static enum zo_status keep(const char *path, const struct zo_profile *profile)
{
    const enum zo_status status =
        path == NULL ? ZO_OK : zo_profile_file_update(path, profile);

    return status == ZO_E_NOMEM ? status : ZO_OK;
}

/* A quarter of the budget at most, and less for a prediction that is rough. */
static uint64_t memory_to_use(const struct zo_setup *setup)
{
    const bool is_host = setup->devices.machine.device_ops == &zo_device_host;
    const uint64_t most = is_host ? MEASURE_BYTES_MAX / 8 : MEASURE_BYTES_MAX;
    const uint64_t quarter = setup->host_memory_bytes / 4; /* 0: unknown */

    return quarter > 0 && quarter < most ? quarter : most;
}

/* All rates, or those of products alone; cached. */
static enum zo_status measure(const struct zo_setup *setup, const char *path,
                              bool all, struct zo_profile *profile)
{
    if (all) {
        ZO_TRY(zo_profile_measure(&setup->devices,
                                  (enum zo_simd)setup->options->simd,
                                  memory_to_use(setup), profile));
    }
    ZO_TRY(measure_products(setup, profile));
    return keep(path, profile);
}

static enum zo_status find_or_measure(const struct zo_setup *setup,
                                      const char *path, bool measures,
                                      struct zo_profile *profile,
                                      bool *found_out)
{
    const struct zo_profile_key key = key_of(setup);
    bool found = false;

    if (path != NULL && access(path, F_OK) == 0 &&
        zo_profile_file_read(path, &key, profile, &found) == ZO_E_NOMEM) {
        return ZO_E_NOMEM;
    }
    if (found) {
        check_cached(setup, profile, &found);
    }
    if (found && profile->matrix_flops[setup->config.dtype] > 0.0) {
        *found_out = true;
        return ZO_OK;
    }
    *found_out = measures;
    return measures ? measure(setup, path, !found, profile) : ZO_OK;
}

enum zo_status zo_cli_profile(const struct zo_setup *setup, bool measures,
                              struct zo_profile *profile_out, bool *found_out)
{
    struct zo_profile profile;
    char *path = NULL;
    enum zo_status status;

    if (setup->rates != NULL) {
        *profile_out = *setup->rates;
        *found_out = true;
        return ZO_OK;
    }
    zo_profile_init(&profile);
    if (setup->options->profile != NULL) {
        ZO_TRY(read_named(setup, &profile));
        zo_setup_nvme_rates(setup, &profile);
        *profile_out = profile;
        *found_out = true;
        return ZO_OK;
    }
    if (zo_doctor_profile_path(&path) == ZO_E_NOMEM) {
        return ZO_E_NOMEM;
    }
    status = find_or_measure(setup, path, measures, &profile, found_out);
    if (status == ZO_OK && *found_out) {
        zo_setup_nvme_rates(setup, &profile);
        *profile_out = profile;
    }
    zo_free(path);
    return status;
}

enum zo_status zo_cli_profile_now(const struct zo_setup *setup,
                                  struct zo_profile *profile_out)
{
    struct zo_profile profile;
    char *path = NULL;
    enum zo_status status;

    zo_profile_init(&profile);
    if (zo_doctor_profile_path(&path) == ZO_E_NOMEM) {
        return ZO_E_NOMEM;
    }
    status = measure(setup, path, true, &profile);
    zo_free(path);
    ZO_TRY(status);
    zo_setup_nvme_rates(setup, &profile);
    *profile_out = profile;
    return ZO_OK;
}
