/*
 * The rate of the matrix unit on a model's own products.  Row 8.
 */
#ifndef ZO_BENCH_PRODUCTS_H
#define ZO_BENCH_PRODUCTS_H

#include "config/model_config.h"
#include "src/train/devices.h"

ZO_C_BEGIN

struct zo_product_rate {
    double flops;   /* of one forward and backward: every product once */
    double seconds; /* that these take, each shape alone and at its best */
};

/*
 * Times the products of a step of `tokens` tokens, `labels` of them labelled,
 * on the first device: forward, input gradient and weight gradient of every
 * matrix of the model, on random numbers.  Each shape runs until it has taken
 * a tenth of a second; layers are counted, not repeated.
 *
 *   ZO_E_DEVMEM, ZO_E_DEVICE, ZO_E_NOMEM
 */
enum zo_status
zo_bench_products(const struct zo_devices *devices,
                  const struct zo_model_config *model, enum zo_dtype type,
                  int64_t tokens, int64_t labels,
                  struct zo_product_rate *rate_out) ZO_MUST_CHECK;

/*
 * Times one product of square matrices, (side, side) each, on the machine's
 * first device, on random numbers, until it has taken a tenth of a second.
 *
 *   ZO_E_DEVMEM, ZO_E_DEVICE, ZO_E_NOMEM
 */
enum zo_status zo_bench_square(const struct zo_machine *machine,
                               enum zo_dtype type, int64_t side,
                               struct zo_product_rate *rate_out) ZO_MUST_CHECK;

ZO_C_END

#endif
