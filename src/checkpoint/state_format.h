/*
 * Training states on disk: what is in them, and what their files are called.
 *
 * Layer 6.  A state is a folder:
 *
 *   manifest.json      everything but the numbers; written last
 *   shard-00001.state  the numbers, in pieces; shard-00002.state, ...
 *   README             two lines for whoever finds the folder
 *   config.json, tokenizer.model, ...   as in a model directory
 *
 * It holds, of every parameter under its name, the exact fp32 master and the
 * two moments: nothing of devices, stages, homes or paddings, so that a run
 * may continue on any machine.  A piece is up to piece_elems elements of one
 * of them.  Its bytes are parted by place (all lowest bytes, then the next,
 * ...), since the upper ones repeat and the lower ones do not; each part is a
 * zstd frame, or as it is where that is not shorter.  Where packing is not
 * worth the time, a piece is stored as it was.  The manifest has a piece's
 * shard, offset, sizes of the parts, or of all of it, and XXH3 of its bytes as
 * they were; that of each of the model's files; and of itself, at its end.
 *
 * A state is written as ".state-00000500.partial" and renamed when all of it
 * is on the disk: a folder that has its name is whole.
 */
#ifndef ZO_SRC_CHECKPOINT_STATE_FORMAT_H
#define ZO_SRC_CHECKPOINT_STATE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

#define ZO_STATE_VERSION         3 /* 1: no files; 2: no pieces as they were */
#define ZO_STATE_MANIFEST        "manifest.json"
#define ZO_STATE_PIECE_ELEMS     ((int64_t)1 << 20)
#define ZO_STATE_PIECE_ELEMS_MAX ((int64_t)1 << 22) /* that a reader takes */
#define ZO_STATE_SHARD_BYTES     ((uint64_t)1 << 30)
#define ZO_STATE_PLANES_MAX      4 /* bytes of an element */

/* What is kept of a parameter. */
enum zo_state_kind { ZO_STATE_MASTER, ZO_STATE_EXP_AVG, ZO_STATE_EXP_AVG_SQ };
#define ZO_STATE_KINDS 3

/* "master", ...; static storage. */
const char *zo_state_kind_name(enum zo_state_kind kind);

/* Where a run stands.  Every field is in the manifest, exactly. */
struct zo_state_run {
    int64_t step;            /* that the state is after; from 1 */
    int64_t optimizer_steps; /* of those, not skipped */
    int64_t tokens_total;
    double best_loss; /* of evaluations; infinite: none */
    /* The loss scaler; of a run in fp16, or one that only counts skips. */
    int64_t scales; /* 0 or 1 */
    double loss_scale;
    int64_t scaler_iteration, last_overflow, hysteresis_left;
    int64_t futile_skips, skipped_steps;
    /* Rows: which come next follows from these and the step. */
    uint64_t seed;
    int64_t shuffles; /* 0 or 1 */
    int64_t step_rows;
    uint64_t data_fingerprint, model_fingerprint;
};

/* A setting of the run that saved: a change of it is told on resume. */
struct zo_state_setting {
    const char *name, *value;
};

/* A file beside the numbers. */
struct zo_state_file {
    const char *name; /* within the folder */
    uint64_t hash;    /* XXH3 of its bytes */
};

/* Where a piece lies. */
struct zo_state_piece {
    uint32_t shard; /* index */
    /* Of its parts, one for each byte of an element; or the first is of all of
     * it, as it was, and the others are 0. */
    uint32_t stored_bytes[ZO_STATE_PLANES_MAX];
    uint64_t offset_bytes;
    uint64_t hash;
};

/* Of all parts. */
size_t zo_state_piece_bytes(const struct zo_state_piece *piece);

/* "shard-00001.state" of shard 0. */
#define ZO_STATE_NAME_BYTES 40
void zo_state_shard_name(char *name, size_t name_bytes, size_t shard);

ZO_C_END

#endif
