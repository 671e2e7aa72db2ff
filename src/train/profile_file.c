#include "src/train/profile_file.h"

#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/folders.h"
#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"

#define FORMAT       1
#define BUFFER_BYTES 4096
#define RATE_MAX     1e21 /* beyond any machine */
#define SECONDS_MAX  1.0
#define YIELD_MAX    1e6
#define THREADS_MAX  1024
#define COPY_DEPTH   8 /* of a profile's members; deeper ones are left out */

/* ---- one profile --------------------------------------------------------- */

static const struct rate {
    const char *key;
    size_t offset;
    double max;
} rates[] = {
    {"copies_paced_bytes_per_second", offsetof(struct zo_profile, paced),
     RATE_MAX},
    {"attention_flops_per_second", offsetof(struct zo_profile, attention_flops),
     RATE_MAX},
    {"device_bytes_per_second", offsetof(struct zo_profile, device_bandwidth),
     RATE_MAX},
    {"h2d_bytes_per_second", offsetof(struct zo_profile, h2d), RATE_MAX},
    {"d2h_bytes_per_second", offsetof(struct zo_profile, d2h), RATE_MAX},
    {"duplex_bytes_per_second", offsetof(struct zo_profile, duplex), RATE_MAX},
    {"collective_bytes_per_second", offsetof(struct zo_profile, collective),
     RATE_MAX},
    {"cpu_bytes_per_second", offsetof(struct zo_profile, cpu), RATE_MAX},
    {"cpu_thread_bytes_per_second", offsetof(struct zo_profile, cpu_thread),
     RATE_MAX},
    {"nvme_read_bytes_per_second", offsetof(struct zo_profile, nvme_read),
     RATE_MAX},
    {"nvme_write_bytes_per_second", offsetof(struct zo_profile, nvme_write),
     RATE_MAX},
    {"launch_seconds", offsetof(struct zo_profile, launch_seconds),
     SECONDS_MAX},
    {"handoff_seconds", offsetof(struct zo_profile, handoff_seconds),
     SECONDS_MAX},
    {"cpu_piece_seconds", offsetof(struct zo_profile, cpu_seconds),
     SECONDS_MAX},
};

static const char *const yields[ZO_DRAM_USERS] = {
    [ZO_DRAM_H2D] = "h2d",
    [ZO_DRAM_D2H] = "d2h",
    [ZO_DRAM_CPU] = "cpu",
    [ZO_DRAM_OTHER] = "other",
};

static const struct dram {
    const char *key;
    size_t offset;
} drams[] = {
    {"dram", offsetof(struct zo_profile, dram)},
    {"dram_h2d_alone", offsetof(struct zo_profile, dram_h2d)},
    {"dram_d2h_alone", offsetof(struct zo_profile, dram_d2h)},
};

static void put_rate(struct zo_jsonl *json, const char *key, double rate)
{
    if (rate > 0.0) {
        zo_jsonl_real(json, key, rate);
    } else {
        zo_jsonl_null(json, key);
    }
}

static void put_dram(struct zo_jsonl *json, const char *key,
                     const struct zo_dram *dram)
{
    zo_jsonl_object_begin(json, key);
    put_rate(json, "bytes_per_second", dram->rate);
    zo_jsonl_object_begin(json, "yield");
    for (int user = 0; user < ZO_DRAM_USERS; user++) {
        zo_jsonl_real(json, yields[user], dram->yield[user]);
    }
    zo_jsonl_object_end(json);
    zo_jsonl_object_end(json);
}

void zo_profile_write(struct zo_jsonl *json, const char *key,
                      const struct zo_profile *profile)
{
    zo_jsonl_object_begin(json, key);
    zo_jsonl_text(json, "name", profile->name);
    zo_jsonl_text(json, "source", zo_profile_source_text(profile->source));
    zo_jsonl_text(json, "backend", profile->is_host ? "host" : "cuda");
    zo_jsonl_text(json, "products", profile->products);
    zo_jsonl_int(json, "threads", profile->threads);
    zo_jsonl_text(json, "simd", zo_simd_name(profile->simd));
    zo_jsonl_object_begin(json, "products_flops_per_second");
    for (int t = 0; t < ZO_PROFILE_TYPES; t++) {
        put_rate(json, zo_dtype_name((enum zo_dtype)t),
                 profile->matrix_flops[t]);
    }
    zo_jsonl_object_end(json);
    for (size_t i = 0; i < ZO_COUNT(rates); i++) {
        put_rate(json, rates[i].key,
                 *(const double *)((const char *)profile + rates[i].offset));
    }
    for (size_t i = 0; i < ZO_COUNT(drams); i++) {
        put_dram(
            json, drams[i].key,
            (const struct zo_dram *)((const char *)profile + drams[i].offset));
    }
    zo_jsonl_object_end(json);
}

/* A member that may be null. */
static enum zo_status get_rate(const struct zo_json_doc *doc,
                               const struct zo_json *object, const char *key,
                               double max, double *rate_out)
{
    const struct zo_json *value = zo_json_get(object, key);

    if (value == NULL || zo_json_type(value) == ZO_JSON_NULL) {
        return ZO_OK;
    }
    return zo_json_get_number(doc, object, key, true, 0.0, max, rate_out);
}

/* A member that is an object, or absent: then *object_out is NULL. */
static enum zo_status get_object(const struct zo_json_doc *doc,
                                 const struct zo_json *object, const char *key,
                                 const struct zo_json **object_out)
{
    const struct zo_json *value = zo_json_get(object, key);

    *object_out = value;
    return value == NULL || zo_json_type(value) == ZO_JSON_OBJECT
               ? ZO_OK
               : zo_json_fail(doc, value, "want an object, found %s",
                              zo_json_type_name(value));
}

static enum zo_status get_text(const struct zo_json_doc *doc,
                               const struct zo_json *object, const char *key,
                               char *target, size_t target_bytes)
{
    const char *text = "";

    ZO_TRY(zo_json_get_string(doc, object, key, false, &text));
    if (strlen(text) >= target_bytes) {
        return zo_json_fail(doc, zo_json_get(object, key),
                            "want at most %zu bytes, found %zu",
                            target_bytes - 1, strlen(text));
    }
    (void)snprintf(target, target_bytes, "%s", text);
    return ZO_OK;
}

/* Which of two words a member says. */
static enum zo_status get_choice(const struct zo_json_doc *doc,
                                 const struct zo_json *object, const char *key,
                                 const char *no, const char *yes,
                                 bool *is_yes_out)
{
    const char *text = NULL;

    ZO_TRY(zo_json_get_string(doc, object, key, true, &text));
    *is_yes_out = strcmp(text, yes) == 0;
    return *is_yes_out || strcmp(text, no) == 0
               ? ZO_OK
               : zo_json_fail(doc, zo_json_get(object, key),
                              "want \"%s\" or \"%s\", found \"%s\"", no, yes,
                              text);
}

/* Absent: the best. */
static enum zo_status get_simd(const struct zo_json_doc *doc,
                               const struct zo_json *object,
                               enum zo_simd *simd_out)
{
    const char *text = zo_simd_name(ZO_SIMD_BEST);

    ZO_TRY(zo_json_get_string(doc, object, "simd", false, &text));
    return zo_simd_parse(text, simd_out) == ZO_OK
               ? ZO_OK
               : zo_json_fail(doc, zo_json_get(object, "simd"),
                              "want best, base, avx2 or avx512, found \"%s\"",
                              text);
}

static enum zo_status parse_dram(const struct zo_json_doc *doc,
                                 const struct zo_json *object, const char *key,
                                 struct zo_dram *dram)
{
    const struct zo_json *inner, *yield;

    ZO_TRY(get_object(doc, object, key, &inner));
    if (inner == NULL) {
        return ZO_OK;
    }
    ZO_TRY(get_rate(doc, inner, "bytes_per_second", RATE_MAX, &dram->rate));
    ZO_TRY(get_object(doc, inner, "yield", &yield));
    for (int user = 0; user < ZO_DRAM_USERS && yield != NULL; user++) {
        ZO_TRY(
            get_rate(doc, yield, yields[user], YIELD_MAX, &dram->yield[user]));
    }
    return ZO_OK;
}

static enum zo_status parse_rates(const struct zo_json_doc *doc,
                                  const struct zo_json *object,
                                  struct zo_profile *profile)
{
    const struct zo_json *products;

    ZO_TRY(get_object(doc, object, "products_flops_per_second", &products));
    for (int t = 0; t < ZO_PROFILE_TYPES && products != NULL; t++) {
        ZO_TRY(get_rate(doc, products, zo_dtype_name((enum zo_dtype)t),
                        RATE_MAX, &profile->matrix_flops[t]));
    }
    for (size_t i = 0; i < ZO_COUNT(rates); i++) {
        ZO_TRY(get_rate(doc, object, rates[i].key, rates[i].max,
                        (double *)((char *)profile + rates[i].offset)));
    }
    for (size_t i = 0; i < ZO_COUNT(drams); i++) {
        ZO_TRY(
            parse_dram(doc, object, drams[i].key,
                       (struct zo_dram *)((char *)profile + drams[i].offset)));
    }
    return ZO_OK;
}

enum zo_status zo_profile_parse(const struct zo_json_doc *doc,
                                const struct zo_json *object,
                                struct zo_profile *profile_out)
{
    struct zo_profile profile;
    int64_t threads = 0;
    bool is_measured = false;

    if (zo_json_type(object) != ZO_JSON_OBJECT) {
        return zo_json_fail(doc, object,
                            "want an object with a machine's rates, found %s",
                            zo_json_type_name(object));
    }
    zo_profile_init(&profile);
    ZO_TRY(get_text(doc, object, "name", profile.name, sizeof(profile.name)));
    ZO_TRY(get_text(doc, object, "products", profile.products,
                    sizeof(profile.products)));
    ZO_TRY(get_choice(doc, object, "source", "data sheet", "measured",
                      &is_measured));
    profile.source = is_measured ? ZO_PROFILE_MEASURED : ZO_PROFILE_DATA_SHEET;
    ZO_TRY(
        get_choice(doc, object, "backend", "cuda", "host", &profile.is_host));
    ZO_TRY(zo_json_get_int(doc, object, "threads", true, 1, THREADS_MAX,
                           &threads));
    profile.threads = (int)threads;
    ZO_TRY(get_simd(doc, object, &profile.simd));
    ZO_TRY(parse_rates(doc, object, &profile));
    *profile_out = profile;
    return ZO_OK;
}

/* ---- files --------------------------------------------------------------- */

static enum zo_status open_profile(const char *path,
                                   struct zo_json_doc **doc_out)
{
    const struct zo_json_options options = {.status = ZO_E_USAGE};
    struct zo_json_doc *doc = NULL;
    const struct zo_json *root;
    const char *kind = "";
    int64_t format = 0;
    enum zo_status status;

    ZO_TRY(zo_json_read(path, &options, &doc));
    root = zo_json_root(doc);
    if (zo_json_type(root) != ZO_JSON_OBJECT) {
        status = zo_json_fail(doc, root, "want a machine profile, found %s",
                              zo_json_type_name(root));
        goto close_doc;
    }
    ZO_TRY_GOTO(close_doc, zo_json_get_string(doc, root, "kind", true, &kind));
    if (strcmp(kind, "machine") != 0) {
        status = zo_json_fail(doc, zo_json_get(root, "kind"),
                              "want \"machine\", found \"%s\"", kind);
        goto close_doc;
    }
    ZO_TRY_GOTO(close_doc, zo_json_get_int(doc, root, "format", true, FORMAT,
                                           FORMAT, &format));
    *doc_out = doc;
    return ZO_OK;

close_doc:
    zo_json_close(doc);
    return status;
}

/* NULL at the end; rates that are no array are told. */
static enum zo_status first_rates(const struct zo_json_doc *doc,
                                  const struct zo_json **rates_out)
{
    const struct zo_json *array = zo_json_get(zo_json_root(doc), "rates");

    *rates_out = NULL;
    if (array == NULL) {
        return ZO_OK;
    }
    if (zo_json_type(array) != ZO_JSON_ARRAY) {
        return zo_json_fail(doc, array, "want an array, found %s",
                            zo_json_type_name(array));
    }
    *rates_out = zo_json_first(array);
    return ZO_OK;
}

static bool has_key(const struct zo_profile *profile,
                    const struct zo_profile_key *key)
{
    return profile->paced == key->paced && profile->simd == key->simd &&
           (key->name == NULL || (strcmp(profile->name, key->name) == 0 &&
                                  profile->is_host == key->is_host));
}

enum zo_status zo_profile_file_read(const char *path,
                                    const struct zo_profile_key *key,
                                    struct zo_profile *profile_out,
                                    bool *found_out)
{
    struct zo_json_doc *doc = NULL;
    const struct zo_json *at = NULL;
    struct zo_profile profile;
    bool found = false;
    enum zo_status status;

    ZO_TRY(open_profile(path, &doc));
    ZO_TRY_GOTO(close_doc, first_rates(doc, &at));
    for (; at != NULL && !found; at = zo_json_next(at)) {
        ZO_TRY_GOTO(close_doc, zo_profile_parse(doc, at, &profile));
        found = has_key(&profile, key);
    }
    if (found) {
        *profile_out = profile;
    }
    *found_out = found;

close_doc:
    zo_json_close(doc);
    return status;
}

/* ---- copying ------------------------------------------------------------- */

static void copy_leaf(struct zo_jsonl *json, const char *key,
                      const struct zo_json *value)
{
    int64_t whole = 0;

    switch (zo_json_type(value)) {
    case ZO_JSON_NULL:
        zo_jsonl_null(json, key);
        break;
    case ZO_JSON_BOOL:
        zo_jsonl_bool(json, key, zo_json_bool(value));
        break;
    case ZO_JSON_NUMBER:
        if (zo_json_int(value, &whole)) {
            zo_jsonl_int(json, key, whole);
        } else {
            zo_jsonl_real(json, key, zo_json_number(value));
        }
        break;
    case ZO_JSON_STRING:
        zo_jsonl_text(json, key, zo_json_string(value));
        break;
    case ZO_JSON_ARRAY:
    case ZO_JSON_OBJECT:
        break;
    }
}

static bool is_container(const struct zo_json *value)
{
    return zo_json_type(value) == ZO_JSON_ARRAY ||
           zo_json_type(value) == ZO_JSON_OBJECT;
}

static void end_container(struct zo_jsonl *json, const struct zo_json *value)
{
    if (zo_json_type(value) == ZO_JSON_ARRAY) {
        zo_jsonl_array_end(json);
    } else {
        zo_jsonl_object_end(json);
    }
}

/* A value and all below it; what is nested too deep is left empty. */
static void copy_value(struct zo_jsonl *json, const char *key,
                       const struct zo_json *value)
{
    const struct zo_json *parents[COPY_DEPTH], *next[COPY_DEPTH];
    const struct zo_json *at = value;
    int depth = 0;

    for (;;) {
        if (at != NULL && is_container(at) && depth < COPY_DEPTH) {
            if (zo_json_type(at) == ZO_JSON_ARRAY) {
                zo_jsonl_array_begin(json, key);
            } else {
                zo_jsonl_object_begin(json, key);
            }
            parents[depth] = at;
            next[depth++] = zo_json_first(at);
        } else if (at != NULL && !is_container(at)) {
            copy_leaf(json, key, at);
        }
        while (depth > 0 && next[depth - 1] == NULL) {
            end_container(json, parents[--depth]);
        }
        if (depth == 0) {
            return;
        }
        at = next[depth - 1];
        next[depth - 1] = zo_json_next(at);
        key = zo_json_type(parents[depth - 1]) == ZO_JSON_OBJECT
                  ? zo_json_key(at)
                  : NULL;
    }
}

static bool is_one_of(const char *key, const char *const *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(key, keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The old file, or NULL where there is none that could be read. */
static enum zo_status open_older(const char *path, struct zo_json_doc **doc_out)
{
    const enum zo_status status = open_profile(path, doc_out);

    return status == ZO_E_NOMEM ? status : ZO_OK;
}

static void copy_members(const struct zo_json_doc *doc, const char *const *skip,
                         size_t skip_count, struct zo_jsonl *json)
{
    for (const struct zo_json *at = zo_json_first(zo_json_root(doc));
         at != NULL; at = zo_json_next(at)) {
        if (!is_one_of(zo_json_key(at), skip, skip_count)) {
            copy_value(json, zo_json_key(at), at);
        }
    }
}

enum zo_status zo_profile_file_keep_rates(const char *path,
                                          struct zo_jsonl *json)
{
    struct zo_json_doc *doc = NULL;
    const struct zo_json *rates_there;

    ZO_TRY(open_older(path, &doc));
    rates_there = doc == NULL ? NULL : zo_json_get(zo_json_root(doc), "rates");
    if (rates_there != NULL) {
        copy_value(json, "rates", rates_there);
    }
    zo_json_close(doc);
    return ZO_OK;
}

/* ---- writing ------------------------------------------------------------- */

/* Rates of other devices stay; damaged ones go. */
static void copy_other_rates(const struct zo_json_doc *doc,
                             const struct zo_profile *profile,
                             struct zo_jsonl *json)
{
    const struct zo_profile_key key = {profile->name, profile->is_host,
                                       profile->paced, profile->simd};
    const struct zo_json *at = NULL;
    struct zo_profile other;

    if (first_rates(doc, &at) != ZO_OK) {
        return;
    }
    for (; at != NULL; at = zo_json_next(at)) {
        if (zo_profile_parse(doc, at, &other) == ZO_OK &&
            !has_key(&other, &key)) {
            copy_value(json, NULL, at);
        }
    }
}

static enum zo_status write_file(int fd, const char *path,
                                 const struct zo_json_doc *older,
                                 const struct zo_profile *profile)
{
    static const char *const own[] = {"format", "kind", "rates"};
    char buffer[BUFFER_BYTES];
    struct zo_jsonl json;

    zo_jsonl_init_fd(&json, fd, path, buffer, sizeof(buffer));
    zo_jsonl_begin(&json);
    zo_jsonl_int(&json, "format", FORMAT);
    zo_jsonl_text(&json, "kind", "machine");
    if (older != NULL) {
        copy_members(older, own, ZO_COUNT(own), &json);
    }
    zo_jsonl_array_begin(&json, "rates");
    if (older != NULL) {
        copy_other_rates(older, profile, &json);
    }
    zo_profile_write(&json, NULL, profile);
    zo_jsonl_array_end(&json);
    return zo_jsonl_end(&json);
}

enum zo_status zo_profile_file_update(const char *path,
                                      const struct zo_profile *profile)
{
    static const char ending[] = ".new";
    const size_t bytes = strlen(path) + sizeof(ending);
    struct zo_disk_file file = {.fd = -1};
    struct zo_json_doc *older = NULL;
    enum zo_status status;
    char *fresh = NULL;

    ZO_TRY(zo_folders_make_parents(NULL, path, ZO_E_IO));
    ZO_TRY(open_older(path, &older));
    ZO_TRY_GOTO(close_older, zo_alloc(bytes, 1, "a path", &fresh));
    (void)snprintf(fresh, bytes, "%s%s", path, ending);
    ZO_TRY_GOTO(free_fresh, zo_disk_create(fresh, &file));
    ZO_TRY_GOTO(close_file, write_file(file.fd, path, older, profile));
    ZO_TRY_GOTO(close_file, zo_disk_finish(&file));
    ZO_TRY_GOTO(close_file, zo_disk_rename(fresh, path));

close_file:
    zo_disk_close(&file);
    if (status != ZO_OK) {
        (void)remove(fresh);
    }
free_fresh:
    zo_free(fresh);
close_older:
    zo_json_close(older);
    return status;
}
