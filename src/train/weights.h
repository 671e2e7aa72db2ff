/*
 * Between model directories and the states on the devices.
 *
 * Row 7.  Streams: a piece of a tensor at a time, never a tensor whole.  The
 * threads of the pool make pieces in page-locked memory and send them, so that
 * the disk, the processor and the bus are busy together.
 */
#ifndef ZO_SRC_TRAIN_WEIGHTS_H
#define ZO_SRC_TRAIN_WEIGHTS_H

#include "offload/builder.h"
#include "src/base/notes.h"
#include "src/checkpoint/model_dir.h"
#include "src/checkpoint/model_dir_writer.h"
#include "src/checkpoint/state_reader.h"
#include "src/model/glm.h"

ZO_C_BEGIN

/* Where the weights of a unit on a device lie; some may be absent. */
struct zo_weight_home {
    zo_buffer_id weights;   /* ZO_NO_BUFFER: the fp16 master alone */
    zo_buffer_id remainder; /* bf16 master, or ZO_NO_BUFFER */
    zo_buffer_id master;    /* fp16 master, or ZO_NO_BUFFER */
};

/* Where a program keeps its weights: training, or decoding. */
struct zo_weights {
    struct zo_glm *glm;           /* borrowed */
    struct zo_executor *executor; /* borrowed; nothing under way */
    const struct zo_build *train; /* borrowed; or NULL: */
    const struct zo_decode_build *decode;
    enum zo_dtype type;
    int device_count;
    struct zo_pool *pool; /* borrowed; reads and converts */
    int64_t part_elems;   /* for tests: of a tensor at a time; 0: what pays */
};

/*
 * Checks that the directory holds the model, and loads it to every device.
 *
 *   ZO_E_CORRUPT   a tensor is missing or has another shape
 *   ZO_E_NUMERIC   a weight is not finite, or overflows the type
 */
enum zo_status zo_weights_load(const struct zo_weights *weights,
                               const struct zo_model_dir *dir,
                               struct zo_notes *notes) ZO_MUST_CHECK;

/*
 * Likewise from a training state, with its moments, whatever machine saved
 * it.  The state is the model's: zo_weights_check_state().
 *
 *   ZO_E_CORRUPT   a shard is damaged; what was loaded so far is of no use
 */
enum zo_status zo_weights_restore(const struct zo_weights *weights,
                                  const struct zo_state *state) ZO_MUST_CHECK;

/* ZO_E_CONFIG: it is the state of a model with other parameters. */
enum zo_status
zo_weights_check_state(const struct zo_weights *weights,
                       const struct zo_state *state) ZO_MUST_CHECK;

/*
 * Random weights instead, those that `init` writes for the same seed.
 */
enum zo_status zo_weights_randomize(const struct zo_weights *weights,
                                    uint64_t seed) ZO_MUST_CHECK;

/*
 * Writes the weights as a model directory, from the masters, with the other
 * files of source_path.  As zo_model_dir_write(), and
 *
 *   ZO_E_NUMERIC   a weight overflows the type of the files
 */
struct zo_weights_export {
    const char *path;
    const char *source_path;    /* or NULL */
    const char *tokenizer_path; /* or NULL: source_path */
    const char *config_json;    /* or NULL: the source's */
    enum zo_dtype dtype;        /* of the files */
    bool has_inv_freq;          /* the constant that official files hold too */
    bool replace;
};
enum zo_status zo_weights_write(
    const struct zo_weights *weights, const struct zo_weights_export *export_,
    struct zo_notes *notes, struct zo_model_written *written_out) ZO_MUST_CHECK;

/*
 * Elements of a parameter's master as fp32, from the first device: for
 * writing and for tests.
 */
enum zo_status zo_weights_read(const struct zo_weights *weights,
                               size_t parameter, int64_t first_elem,
                               int64_t elem_count, float *target) ZO_MUST_CHECK;

ZO_C_END

#endif
