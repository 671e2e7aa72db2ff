#include "src/cli/estimate.h"

#include <math.h>

#define BUFFERS 1.5 /* additional_buffer_factor */

double zo_estimate_largest(const struct zo_model_config *model)
{
    const double width = (double)model->hidden_size;

    return width *
           fmax((double)model->vocab_size, 2.0 * (double)model->ffn_size);
}

static struct zo_estimate of_stage_2(bool offloads, double parameters,
                                     double devices)
{
    if (offloads) {
        return (struct zo_estimate){
            2.0 * parameters, parameters * fmax(4.0 * devices, 16.0) * BUFFERS};
    }
    return (struct zo_estimate){2.0 * parameters + 18.0 * parameters / devices,
                                parameters * 4.0 * devices * BUFFERS};
}

bool zo_estimate(int stage, bool offloads_optimizer, bool offloads_param,
                 double parameters, double largest, int devices,
                 struct zo_estimate *estimate_out)
{
    const double n = (double)devices;

    if (stage < 2) {
        return false;
    }
    if (stage == 2) {
        *estimate_out = of_stage_2(offloads_optimizer, parameters, n);
    } else if (offloads_optimizer && offloads_param) {
        *estimate_out =
            (struct zo_estimate){4.0 * largest, 18.0 * parameters * BUFFERS};
    } else if (offloads_optimizer) {
        *estimate_out = (struct zo_estimate){
            4.0 * largest + 2.0 * parameters / n, 16.0 * parameters * BUFFERS};
    } else {
        *estimate_out = (struct zo_estimate){
            4.0 * largest + 18.0 * parameters / n, largest * 4.0 * n * BUFFERS};
    }
    return true;
}
