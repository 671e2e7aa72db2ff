/*
 * Writing a training state, as a whole or not at all.
 *
 * Layer 6.  The threads of a pool fetch, compress and write pieces; no piece
 * waits for another, and nothing is held whole.  A failure leaves nothing. Each
 * thread writes a shard of its own, past the page cache where it can: threads
 * that write one file wait for each other (measured: 16 s of processor time for
 * 8 GB by 5 threads, 3 s with a file each, 0.3 s past the cache).
 */
#ifndef ZO_SRC_CHECKPOINT_STATE_WRITER_H
#define ZO_SRC_CHECKPOINT_STATE_WRITER_H

#include "src/base/pool.h"
#include "src/checkpoint/state_format.h"
#include "src/checkpoint/tensor_source.h"

ZO_C_BEGIN

/*
 * Gives elements [first_elem, first_elem + elem_count) of a kind of
 * tensors[index], a master as fp32, a moment in the moments' type.  Called by
 * several threads at once.
 */
typedef enum zo_status (*zo_state_data_fn)(void *context,
                                           enum zo_state_kind kind,
                                           size_t index, int64_t first_elem,
                                           int64_t elem_count, void *buffer);

/* Fields left at 0 take the default in brackets. */
struct zo_state_write_options {
    const char *folder;  /* required: the state is made in it */
    const char *program; /* required: name and version */
    const struct zo_state_run *run;
    const struct zo_state_setting *settings;
    size_t setting_count;
    const struct zo_tensor_info *tensors; /* name, rank, shape */
    size_t tensor_count;
    enum zo_dtype moment_type;
    zo_state_data_fn data; /* required */
    void *context;         /* for data */
    struct zo_pool *pool;  /* required; borrowed */
    bool spares_cpu;       /* see below */
    int64_t piece_elems;   /* [ZO_STATE_PIECE_ELEMS] */
    uint64_t shard_bytes;  /* at least a piece [ZO_STATE_SHARD_BYTES] */
    /* Files of the model that go beside the numbers. */
    const char *source_path;    /* directory to copy them from [none] */
    const char *tokenizer_path; /* and those of the tokenizer [source_path] */
    const char *config_json;    /* text of config.json [the source's] */
    enum zo_dtype source_type;  /* that config.json names */
};

/*
 * spares_cpu: for saves beside work that needs the processor.  Two threads
 * keep the disk busy with pieces as they are; the others pack pieces when the
 * processor has nothing better to do, and while they alone keep the disk busy
 * the two rest.  The pool's threads may have a low priority from then on.
 */

/* A state that stands. */
struct zo_state_written {
    uint64_t bytes;
    size_t shard_count;
    bool is_synced; /* it outlives the machine's stopping now */
    bool is_latest; /* folder/latest leads to it */
    /* What did not work once it stood: the first of the two above, else that
     * the one it replaces is left, hidden; status ZO_OK: nothing. */
    struct zo_err late;
};

/*
 * Writes folder/state-STEP, and points folder/latest at it.  A state that
 * stands is a success, whatever goes wrong behind that: *written_out says.
 *
 *   ZO_E_IO    a write failed: path, bytes wanted, strerror, bytes free
 *   and what data returns
 */
enum zo_status
zo_state_write(const struct zo_state_write_options *options,
               struct zo_state_written *written_out) ZO_MUST_CHECK;

/* The most bytes that a state of so many parameters takes, in so many tensors,
 * with the model's files (zo_model_files_bytes()). */
uint64_t zo_state_bytes_max(uint64_t parameters, uint64_t tensors,
                            enum zo_dtype moment_type, uint64_t files_bytes);

ZO_C_END

#endif
