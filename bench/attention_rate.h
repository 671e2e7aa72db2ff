/*
 * The rate of attention on a model's own heads.  Row 8.
 */
#ifndef ZO_BENCH_ATTENTION_RATE_H
#define ZO_BENCH_ATTENTION_RATE_H

#include "config/model_config.h"
#include "src/train/devices.h"

ZO_C_BEGIN

/*
 * Times attention, forward and then backward, over `rows` rows of row_tokens
 * tokens on the first device, on random numbers, until that has taken a tenth
 * of a second.  The rate counts the causal half: two products forward, five
 * backward.
 *
 *   ZO_E_DEVMEM, ZO_E_DEVICE, ZO_E_NOMEM
 */
enum zo_status zo_bench_attention(const struct zo_devices *devices,
                                  const struct zo_model_config *model,
                                  enum zo_dtype type, int64_t rows,
                                  int64_t row_tokens,
                                  double *flops_per_second_out) ZO_MUST_CHECK;

ZO_C_END

#endif
