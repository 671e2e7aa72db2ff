/*
 * Machine profiles in files: the member "rates" of the machine profile that
 * doctor writes, an array of one object for each kind of device.
 *
 *   {"format":1,"kind":"machine", ... ,"rates":[{"name":"NVIDIA H200",
 *    "source":"measured","backend":"cuda","products":"...","threads":14,
 *    "simd":"best","copies_paced_bytes_per_second":null,
 *    "products_flops_per_second":{"fp32":null,"bf16":7.1e14,"fp16":null},...}]}
 *
 * A rate that is not known is null or absent.
 *
 * Row 7.
 */
#ifndef ZO_SRC_TRAIN_PROFILE_FILE_H
#define ZO_SRC_TRAIN_PROFILE_FILE_H

#include "config/json.h"
#include "offload/profile.h"
#include "src/base/jsonl.h"

ZO_C_BEGIN

/* One object of "rates"; key as zo_jsonl_object_begin(). */
void zo_profile_write(struct zo_jsonl *json, const char *key,
                      const struct zo_profile *profile);

/*
 * Reads such an object.
 *
 *   ZO_E_USAGE   (or the document's status) no such object; a rate that is
 *                negative or beyond any machine; the text says where
 */
enum zo_status zo_profile_parse(const struct zo_json_doc *doc,
                                const struct zo_json *object,
                                struct zo_profile *profile_out) ZO_MUST_CHECK;

/* Whose rates: each has a place of its own in a file. */
struct zo_profile_key {
    const char *name; /* borrowed; the device's; NULL: any, on any backend */
    bool is_host;
    double paced; /* as in the profile */
    enum zo_simd simd;
};

/*
 * The first rates of a file for that key.  *found_out is false, and no
 * failure, when there are none.
 *
 *   ZO_E_USAGE   cannot be read, or is no machine profile
 */
enum zo_status zo_profile_file_read(const char *path,
                                    const struct zo_profile_key *key,
                                    struct zo_profile *profile_out,
                                    bool *found_out) ZO_MUST_CHECK;

/*
 * Writes the member "rates" of an older profile into the object that is open:
 * for who writes the rest of the file anew.  A file that is not there, or is
 * no profile, has none.
 */
enum zo_status zo_profile_file_keep_rates(const char *path,
                                          struct zo_jsonl *json) ZO_MUST_CHECK;

/*
 * Puts the rates in the place of those with the same key in the file, keeping
 * the rest of it; makes the file and its folders if need be.
 *
 *   ZO_E_IO   it cannot be written
 */
enum zo_status
zo_profile_file_update(const char *path,
                       const struct zo_profile *profile) ZO_MUST_CHECK;

ZO_C_END

#endif
