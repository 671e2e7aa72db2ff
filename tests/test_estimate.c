/* DeepSpeed's estimators, against the figures of its own documentation. */
#include <math.h>

#include "src/cli/estimate.h"
#include "tests/tap.h"

#define GIB 1073741824.0

static bool is_near(double bytes, double gib)
{
    return fabs(bytes / GIB - gib) < 0.006;
}

/* docs/code-docs/source/memory.rst: t5-3b ("2851M total params, 32M largest
 * layer params"), one node with 8 GPUs. */
static void test_documented(void)
{
    const double parameters = 2851598336.0, largest = 32899072.0;
    struct zo_estimate estimate = {0};

    TAP_CHECK(zo_estimate(2, true, false, parameters, largest, 8, &estimate));
    TAP_CHECK(is_near(estimate.host_bytes, 127.48));
    TAP_CHECK(is_near(estimate.gpu_bytes, 5.31));
    TAP_CHECK(zo_estimate(3, true, true, parameters, largest, 8, &estimate));
    TAP_CHECK(is_near(estimate.host_bytes, 71.71));
    TAP_CHECK(is_near(estimate.gpu_bytes, 0.12));
}

/* ChatGLM2-6B by the same formulas. */
static void test_chatglm(void)
{
    struct zo_model_config model;
    struct zo_estimate estimate = {0};
    double parameters, largest;

    TAP_CHECK(zo_model_preset("chatglm2-6b", &model));
    parameters = (double)model.parameter_count;
    largest = zo_estimate_largest(&model);
    TAP_CHECK_INT((long long)largest, 266338304);
    TAP_CHECK(zo_estimate(2, false, false, parameters, largest, 4, &estimate));
    TAP_CHECK(is_near(estimate.gpu_bytes, 37.80));
    TAP_CHECK(is_near(estimate.host_bytes, 139.55));
    TAP_CHECK(zo_estimate(2, true, false, parameters, largest, 1, &estimate));
    TAP_CHECK(is_near(estimate.gpu_bytes, 11.63));
    TAP_CHECK(is_near(estimate.host_bytes, 139.55));
    TAP_CHECK(zo_estimate(3, false, false, parameters, largest, 8, &estimate));
    TAP_CHECK(is_near(estimate.gpu_bytes, 14.08));
    TAP_CHECK(is_near(estimate.host_bytes, 11.91));
    TAP_CHECK(zo_estimate(3, true, false, parameters, largest, 2, &estimate));
    TAP_CHECK(is_near(estimate.gpu_bytes, 6.81));
    TAP_CHECK(zo_estimate(3, true, true, parameters, largest, 1, &estimate));
    TAP_CHECK(is_near(estimate.gpu_bytes, 0.99));
    TAP_CHECK(is_near(estimate.host_bytes, 157.0));
}

static void test_none(void)
{
    struct zo_estimate estimate = {0};

    TAP_CHECK(!zo_estimate(0, false, false, 1e9, 1e6, 1, &estimate));
    TAP_CHECK(!zo_estimate(1, true, false, 1e9, 1e6, 1, &estimate));
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"the figures of DeepSpeed's documentation come out", test_documented},
        {"so do those of ChatGLM2-6B", test_chatglm},
        {"stages 0 and 1 have no estimator", test_none},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
