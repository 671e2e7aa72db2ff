/*
 * What the model's files share.  Row 6, private to src/model/glm*.c.
 */
#ifndef ZO_SRC_MODEL_GLM_INTERNAL_H
#define ZO_SRC_MODEL_GLM_INTERNAL_H

#include "src/model/glm.h"

#define ZO_GLM_NAME_MAX 32

/* Tensors of a layer, in the order of parameters.h; the bias may be absent. */
enum {
    ZO_GLM_NORM1,
    ZO_GLM_QKV,
    ZO_GLM_QKV_BIAS,
    ZO_GLM_DENSE,
    ZO_GLM_NORM2,
    ZO_GLM_UP,
    ZO_GLM_DOWN,
    ZO_GLM_LAYER_TENSORS
};
enum { ZO_GLM_FINAL_NORM, ZO_GLM_OUTPUT };

/* What forward leaves for backward: one (unit, micro batch, device). */
struct zo_glm_saved {
    zo_buffer_id norm1, rstd1; /* (T, C) type, (T) fp32 */
    zo_buffer_id qkv;          /* (T, W) type */
    zo_buffer_id attention;    /* (T, H D) type */
    zo_buffer_id lse;          /* (H, T) fp32 */
    zo_buffer_id middle;       /* (T, C) type: h */
    zo_buffer_id norm2, rstd2;
    zo_buffer_id up;  /* (T, 2 F) type */
    zo_buffer_id act; /* (T, F) type */
};

struct zo_glm {
    struct zo_glm_options options;
    struct zo_model_config config;
    int64_t qkv_width;  /* W = (H + 2 G) D */
    int64_t head_total; /* H D */
    int64_t pairs;
    struct zo_glm_batch batch;
    struct zo_parameters parameters;
    struct zo_unit *units; /* owned */
    int unit_count;
    struct zo_unit_tensor *tensors;      /* owned; as parameters */
    char (*unit_names)[ZO_GLM_NAME_MAX]; /* owned */
    struct zo_glm_saved *saved;          /* (units, micros, devices); owned */
    zo_buffer_id rope_table[ZO_DEVICES_MAX];
    zo_buffer_id workspace[ZO_DEVICES_MAX]; /* of every kernel */
};

/* The run functions: glm_ops.c.  at[0] is the record; args as noted. */

/* M, N, K in args[0..2]: a number, or one of these; flags in args[3]. */
#define ZO_GLM_TOKENS      (-1)
#define ZO_GLM_LABELS      (-2) /* of the chunk in the flags */
#define ZO_GLM_TRANSPOSE_A 1
#define ZO_GLM_TRANSPOSE_B 2
#define ZO_GLM_ADDEND      4 /* at[5] */
#define ZO_GLM_F32         8 /* c */
#define ZO_GLM_CHUNK_SHIFT 8
enum zo_status zo_glm_run_matmul(const struct zo_op_call *call);

/* args[0]: the table holds the micro batch's rows alone. */
enum zo_status zo_glm_run_embedding(const struct zo_op_call *call);
/* CPU engine: record, rows, table, batch; args[0]: the table's type. */
enum zo_status zo_glm_run_gather_rows(const struct zo_op_call *call);
enum zo_status zo_glm_run_embedding_backward(const struct zo_op_call *call);
/* args[0]: ZO_GLM_TOKENS or ZO_GLM_LABELS (all of the micro batch's). */
enum zo_status zo_glm_run_rmsnorm(const struct zo_op_call *call);
/* args[1]: add; args[2]: has a residual. */
enum zo_status zo_glm_run_rmsnorm_backward(const struct zo_op_call *call);
enum zo_status zo_glm_run_rope(const struct zo_op_call *call);
enum zo_status zo_glm_run_rope_backward(const struct zo_op_call *call);
enum zo_status zo_glm_run_attention(const struct zo_op_call *call);
enum zo_status zo_glm_run_attention_backward(const struct zo_op_call *call);
enum zo_status zo_glm_run_swiglu(const struct zo_op_call *call);
enum zo_status zo_glm_run_swiglu_backward(const struct zo_op_call *call);
enum zo_status zo_glm_run_gather(const struct zo_op_call *call);
enum zo_status zo_glm_run_scatter(const struct zo_op_call *call);
/* args[0]: chunk; args[1]: trains. */
enum zo_status zo_glm_run_cross_entropy(const struct zo_op_call *call);
/* args[0]: bytes. */
enum zo_status zo_glm_run_clear(const struct zo_op_call *call);
/* Decoding: product and rotation into the cache, attention from it. */
enum zo_status zo_glm_run_cache_qkv(const struct zo_op_call *call);
enum zo_status zo_glm_run_cache_rope(const struct zo_op_call *call);
enum zo_status zo_glm_run_cache_attention(const struct zo_op_call *call);

/* The entries of zo_glm_ops: glm_emit.c. */
enum zo_status zo_glm_prepare(void *model, struct zo_program *program,
                              int device);
enum zo_status zo_glm_forward(void *model, const struct zo_emit *emit);
enum zo_status zo_glm_turn(void *model, const struct zo_emit *emit);
enum zo_status zo_glm_backward(void *model, const struct zo_emit *emit);

#endif
