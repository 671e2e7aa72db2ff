/*
 * The tensors of a model as other programs name and cut them.
 *
 * Row 6.  Two layouts: that of the official ChatGLM2 files, whose names are
 * ours (parameters.h), and that of GlmForCausalLM, which transformers knows
 * without code from the model: there query, key and value are tensors of
 * their own, cut from rows of ours, and the constant inv_freq is not stored.
 * Either way a tensor is whole rows of one of our parameters.
 */
#ifndef ZO_SRC_MODEL_EXPORT_LAYOUT_H
#define ZO_SRC_MODEL_EXPORT_LAYOUT_H

#include "src/model/parameters.h"

ZO_C_BEGIN

enum zo_export_layout { ZO_LAYOUT_CHATGLM, ZO_LAYOUT_GLM };

struct zo_export_tensor {
    char name[ZO_PARAMETER_NAME_BYTES];
    size_t parameter; /* index into the list that it was made from */
    int dims;
    int64_t shape[2];
    int64_t first_elem; /* of the parameter */
};

/* All zero is empty. */
struct zo_export_tensors {
    struct zo_export_tensor *items; /* owned */
    size_t count;
};

/*
 * Lists what is written of the parameters of a model; inv_freq only in the
 * official layout, and if has_inv_freq.  Ended with zo_export_tensors_fini().
 */
enum zo_status
zo_export_tensors_init(struct zo_export_tensors *tensors,
                       enum zo_export_layout layout, bool has_inv_freq,
                       const struct zo_model_config *config,
                       const struct zo_parameters *parameters) ZO_MUST_CHECK;

/* NULL is allowed. */
void zo_export_tensors_fini(struct zo_export_tensors *tensors);

ZO_C_END

#endif
