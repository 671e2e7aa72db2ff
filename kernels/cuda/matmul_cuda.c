/*
 * Matrix products through cuBLASLt.
 *
 *   maths     kernels.h, zo_matmul_args
 *   layout    the library is column-major: our row-major c = op(a) op(b) is
 *             its c^T = op(b)^T op(a)^T, so b goes in as its A and a as its
 *             B, and nothing is moved
 *   bound by  arithmetic for the shapes of training
 *   limits    k = 0 is a copy or a fill; fp32 means fp32, never TF32
 *   same bits every run: yes.  The algorithm is the first that the library's
 *             heuristic names for shape, types, a constant workspace and the
 *             alignment that kernels.h declares, never by timing; split sums
 *             only in fp32 and through the workspace, never by atomics
 *   tested by tests/test_kernels_cuda.c; timed by bench/bench_kernels.c
 *
 * Layer 3.  Plans (descriptors and algorithm) are kept in a fixed table, so
 * that a shape's first call asks the heuristic and later ones allocate
 * nothing.
 */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <string.h>

#include "kernels/cuda/wrappers.h"
#include "src/base/memory.h"
#include "src/device/stream_cuda.h"

#define PLAN_COUNT 256 /* a training run has about 40 shapes; a power of 2 */
#define PLAN_PROBE 8   /* places to look before one is given up */

/* NVIDIA's advice: 32 MiB on Hopper and later, 4 MiB before.  A constant,
 * since the heuristic's choice depends on it. */
#define WORKSPACE_BYTES (32u << 20)

#define ALIGN_BYTES 256u /* of every pointer of kernels.h */

struct plan_key {
    int64_t m, n, k;
    int32_t transpose_a, transpose_b;
    int32_t type, c_type;
    int32_t has_addend, is_used;
};

struct plan {
    struct plan_key key;
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
};

struct zo_matmul_plans {
    cublasLtHandle_t library;
    struct plan plans[PLAN_COUNT];
};

#define LT_TRY(operation, call)                                       \
    do {                                                              \
        const cublasStatus_t error_ = (call);                         \
        if (error_ != CUBLAS_STATUS_SUCCESS) {                        \
            (void)cudaGetLastError();                                 \
            return ZO_FAIL_NATIVE(ZO_E_DEVICE, (int)error_, "%s: %s", \
                                  (operation),                        \
                                  cublasLtGetStatusString(error_));   \
        }                                                             \
    } while (0)

static cudaDataType_t native_type(enum zo_dtype type)
{
    switch (type) {
    case ZO_F32:
        return CUDA_R_32F;
    case ZO_BF16:
        return CUDA_R_16BF;
    case ZO_F16:
        return CUDA_R_16F;
    }
    return CUDA_R_32F;
}

enum zo_status zo_cuda_matmul_open(struct zo_matmul_plans **plans_out)
{
    struct zo_matmul_plans *plans = NULL;
    cublasStatus_t error;

    ZO_TRY(zo_alloc(1, sizeof(*plans), "the plans of matrix products", &plans));
    error = cublasLtCreate(&plans->library);
    if (error != CUBLAS_STATUS_SUCCESS) {
        zo_free(plans);
        LT_TRY("opening cuBLASLt", error);
    }
    *plans_out = plans;
    return ZO_OK;
}

void zo_cuda_matmul_close(struct zo_matmul_plans *plans)
{
    if (plans != NULL) {
        (void)cublasLtDestroy(plans->library);
        zo_free(plans);
    }
}

uint64_t zo_cuda_matmul_workspace(void)
{
    return WORKSPACE_BYTES;
}

static enum zo_status describe(struct plan *plan)
{
    const struct plan_key *key = &plan->key;
    const cudaDataType_t type = native_type((enum zo_dtype)key->type);
    const cudaDataType_t c_type = native_type((enum zo_dtype)key->c_type);
    const cublasOperation_t op_a = key->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_b = key->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint64_t a_rows = (uint64_t)(key->transpose_b ? key->k : key->n);
    const uint64_t a_cols = (uint64_t)(key->transpose_b ? key->n : key->k);
    const uint64_t b_rows = (uint64_t)(key->transpose_a ? key->m : key->k);
    const uint64_t b_cols = (uint64_t)(key->transpose_a ? key->k : key->m);

    LT_TRY("matmul", cublasLtMatmulDescInit(&plan->product, CUBLAS_COMPUTE_32F,
                                            CUDA_R_32F));
    LT_TRY("matmul", cublasLtMatmulDescSetAttribute(&plan->product,
                                                    CUBLASLT_MATMUL_DESC_TRANSA,
                                                    &op_a, sizeof(op_a)));
    LT_TRY("matmul", cublasLtMatmulDescSetAttribute(&plan->product,
                                                    CUBLASLT_MATMUL_DESC_TRANSB,
                                                    &op_b, sizeof(op_b)));
    LT_TRY("matmul", cublasLtMatrixLayoutInit(&plan->a, type, a_rows, a_cols,
                                              (int64_t)a_rows));
    LT_TRY("matmul", cublasLtMatrixLayoutInit(&plan->b, type, b_rows, b_cols,
                                              (int64_t)b_rows));
    LT_TRY("matmul",
           cublasLtMatrixLayoutInit(&plan->c, c_type, (uint64_t)key->n,
                                    (uint64_t)key->m, key->n));
    return ZO_OK;
}

static enum zo_status prefer(cublasLtMatmulPreferenceOpaque_t *preference)
{
    const uint64_t workspace_bytes = WORKSPACE_BYTES;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t align = ALIGN_BYTES;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t size_bytes;
    } settings[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
         sizeof(workspace_bytes)},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof(align)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof(align)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align, sizeof(align)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align, sizeof(align)},
    };

    LT_TRY("matmul", cublasLtMatmulPreferenceInit(preference));
    for (size_t i = 0; i < ZO_COUNT(settings); i++) {
        LT_TRY("matmul", cublasLtMatmulPreferenceSetAttribute(
                             preference, settings[i].name, settings[i].value,
                             settings[i].size_bytes));
    }
    return ZO_OK;
}

static enum zo_status make_plan(struct zo_matmul_plans *plans,
                                const struct plan_key *key,
                                struct plan *plan_out)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t result;
    struct plan plan = {.key = *key};
    int found = 0;

    ZO_TRY(describe(&plan));
    ZO_TRY(prefer(&preference));
    LT_TRY("matmul: choosing an algorithm",
           cublasLtMatmulAlgoGetHeuristic(plans->library, &plan.product,
                                          &plan.a, &plan.b, &plan.c, &plan.c,
                                          &preference, 1, &result, &found));
    if (found == 0) {
        return ZO_FAIL(ZO_E_NOSUPPORT,
                       "matmul: cuBLASLt has no algorithm for (%lld, %lld) = "
                       "K %lld, %s to %s",
                       (long long)key->m, (long long)key->n, (long long)key->k,
                       zo_dtype_name((enum zo_dtype)key->type),
                       zo_dtype_name((enum zo_dtype)key->c_type));
    }
    plan.algorithm = result.algo;
    *plan_out = plan;
    return ZO_OK;
}

static uint64_t hash(const struct plan_key *key)
{
    const uint64_t words[] = {
        (uint64_t)key->m,
        (uint64_t)key->n,
        (uint64_t)key->k,
        (uint64_t)(key->transpose_a | key->transpose_b << 1 |
                   key->has_addend << 2 | key->type << 3 | key->c_type << 6),
    };
    uint64_t value = 0;

    for (size_t i = 0; i < ZO_COUNT(words); i++) {
        value = (value ^ words[i]) * 0x9e3779b97f4a7c15u;
        value ^= value >> 32;
    }
    return value;
}

/* The plan of a shape, made on its first use.  A full neighbourhood gives up
 * its first place: a plan made anew is the same plan. */
static enum zo_status find_plan(struct zo_matmul_plans *plans,
                                const struct zo_matmul_args *args,
                                const struct plan **plan_out)
{
    const struct plan_key key = {
        .m = args->m,
        .n = args->n,
        .k = args->k,
        .transpose_a = args->transpose_a,
        .transpose_b = args->transpose_b,
        .type = (int32_t)args->type,
        .c_type = (int32_t)args->c_type,
        .has_addend = args->addend != NULL,
        .is_used = 1,
    };
    const uint64_t home = hash(&key);
    struct plan *place = &plans->plans[home % PLAN_COUNT];

    for (uint64_t i = 0; i < PLAN_PROBE; i++) {
        struct plan *plan = &plans->plans[(home + i) % PLAN_COUNT];

        if (memcmp(&plan->key, &key, sizeof(key)) == 0) {
            *plan_out = plan;
            return ZO_OK;
        }
        if (!plan->key.is_used) {
            place = plan;
            break;
        }
    }
    ZO_TRY(make_plan(plans, &key, place));
    *plan_out = place;
    return ZO_OK;
}

/* A sum of no products: the addend, or zero. */
static enum zo_status empty_product(cudaStream_t stream,
                                    const struct zo_matmul_args *args)
{
    const size_t bytes =
        (size_t)(args->m * args->n) * zo_dtype_bytes(args->c_type);
    cudaError_t error = cudaSuccess;

    if (args->addend == NULL) {
        error = cudaMemsetAsync(args->c, 0, bytes, stream);
    } else if (args->addend != args->c) {
        error = cudaMemcpyAsync(args->c, args->addend, bytes,
                                cudaMemcpyDeviceToDevice, stream);
    }
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return ZO_FAIL_NATIVE(ZO_E_DEVICE, (int)error, "matmul: %s",
                              cudaGetErrorString(error));
    }
    return ZO_OK;
}

enum zo_status zo_cuda_matmul(struct zo_kernels *kernels,
                              struct zo_stream *stream,
                              const struct zo_matmul_args *args)
{
    const cudaStream_t native = zo_stream_cuda_native(stream);
    const float one = 1.0f, beta = args->addend != NULL ? 1.0f : 0.0f;
    const void *addend = args->addend != NULL ? args->addend : args->c;
    const struct plan *plan = NULL;

    if (args->m == 0 || args->n == 0) {
        return ZO_OK;
    }
    if (args->k == 0) {
        return empty_product(native, args);
    }
    ZO_TRY(find_plan(kernels->plans, args, &plan));
    /* The library's interface is without const; it writes none of these. */
    LT_TRY("matmul",
           cublasLtMatmul(kernels->plans->library,
                          (cublasLtMatmulDesc_t)&plan->product, &one, args->b,
                          (cublasLtMatrixLayout_t)&plan->a, args->a,
                          (cublasLtMatrixLayout_t)&plan->b, &beta, addend,
                          (cublasLtMatrixLayout_t)&plan->c, args->c,
                          (cublasLtMatrixLayout_t)&plan->c, &plan->algorithm,
                          args->workspace, WORKSPACE_BYTES, native));
    return ZO_OK;
}
