/*
 * The parameters of a model, as its files name them.
 *
 * Row 6.  The list is in the order of the official checkpoints: embedding,
 * layers, final norm, output layer.  Behind it stands the one constant that
 * those checkpoints hold too, transformer.rotary_pos_emb.inv_freq: it is
 * written, so that the official code finds it, and never trained.
 *
 * Units (offload/unit.h) are numbered 0 the embedding, 1..L the layers, L+1
 * the head.
 */
#ifndef ZO_SRC_MODEL_PARAMETERS_H
#define ZO_SRC_MODEL_PARAMETERS_H

#include <stddef.h>
#include <stdint.h>

#include "config/model_config.h"
#include "src/base/dtype.h"
#include "src/base/status.h"

ZO_C_BEGIN

enum zo_parameter_kind {
    ZO_PARAMETER_WEIGHT, /* a matrix; decays */
    ZO_PARAMETER_NORM,   /* starts at 1 */
    ZO_PARAMETER_BIAS,   /* starts at 0 */
    ZO_PARAMETER_ROTARY  /* inv_freq: zo_rotary_frequency() */
};

#define ZO_PARAMETER_NAME_BYTES 96

struct zo_parameter {
    char name[ZO_PARAMETER_NAME_BYTES];
    enum zo_parameter_kind kind;
    int unit;         /* of inv_freq: 0, though it belongs to none */
    int dims;         /* 1 or 2 */
    int64_t shape[2]; /* outermost first: (outputs, inputs) */
    int64_t elems;
};

/* All zero is empty. */
struct zo_parameters {
    struct zo_parameter *items; /* owned */
    size_t count;               /* inv_freq included, last */
    size_t trained_count;
};

/*
 * Lists the parameters of a checked configuration.  Ended with
 * zo_parameters_fini().
 */
enum zo_status
zo_parameters_init(struct zo_parameters *parameters,
                   const struct zo_model_config *config) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_parameters_fini(struct zo_parameters *parameters);

/*
 * base^(-2 pair / width), rounded to dtype after each operation: what the
 * official code computes when the model has that type, and stores.
 */
float zo_rotary_frequency(const struct zo_model_config *config, int64_t pair,
                          enum zo_dtype dtype);

/*
 * Elements [first_elem, first_elem + elem_count) of a parameter of a new
 * model, as dtype: normal numbers of deviation 0.02 for weights, 1 for norms,
 * 0 for biases.  An element depends on seed, name and index alone, and is
 * rounded from double to fp32 and then to dtype.
 */
void zo_parameter_fill(const struct zo_parameter *parameter,
                       const struct zo_model_config *config, uint64_t seed,
                       int64_t first_elem, int64_t elem_count,
                       enum zo_dtype dtype, void *target);

ZO_C_END

#endif
