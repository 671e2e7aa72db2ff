/*
 * Whether kernels compiled for a list of GPU architectures run on a GPU.
 *
 * Layer 2, without CUDA.  A list is words: "80" is a binary for 8.0, which
 * also runs on 8.6 but not on 9.0; "90a" one for 9.0 alone; "100f" one for
 * 10.0 and its family; "ptx90" code that the driver compiles for 9.0 and all
 * that is newer.
 */
#ifndef ZO_SRC_DEVICE_TARGETS_H
#define ZO_SRC_DEVICE_TARGETS_H

#include "src/base/compiler.h"

ZO_C_BEGIN

enum zo_target_match { ZO_TARGET_NONE, ZO_TARGET_PTX, ZO_TARGET_BINARY };

/* capability: 90 is 9.0. */
enum zo_target_match zo_target_match(const char *targets, int capability);

/* "no code", "PTX", "binary". */
const char *zo_target_match_name(enum zo_target_match match);

/*
 * The least driver, as the newest runtime that it serves, for a program built
 * with this runtime: drivers serve every minor version of their major one.
 */
int zo_driver_needed(int runtime_version);

/* The least Linux driver of a major version of CUDA: "525.60.13"; NULL where
 * it is not known. */
const char *zo_driver_release(int runtime_version);

ZO_C_END

#endif
