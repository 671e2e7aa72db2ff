/*
 * What the forms of attention share.
 *
 * Layer 3, private to kernels/cuda.  Three forms compute the same:
 *   plain   a warp a query or key; any type, head width and scale
 *   mma     tiles on the tensor cores, sm_80 and later; 16-bit types
 *   hopper  tiles by wgmma and the tensor memory accelerator, sm_90; training
 * The choice depends on shape, type and device alone.
 */
#ifndef ZO_KERNELS_CUDA_ATTENTION_CUH
#define ZO_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/element.cuh"

#define ZO_LOG2E 1.4426950408889634f
#define ZO_LN2   0.6931471805599453f

/* Key tiles' gradients are summed over the heads of a group in this many
 * parts at most, through the workspace: a constant, so that bits are. */
#define ZO_ATTENTION_SPLITS 4

/* The parts of one group; the heads of a part are the next `heads`. */
struct zo_attention_split {
    int parts, heads;
};

__host__ __device__ inline zo_attention_split
zo_attention_split_of(int64_t heads, int64_t groups)
{
    const int per_group = (int)(heads / groups);
    const int per_part =
        (per_group + ZO_ATTENTION_SPLITS - 1) / ZO_ATTENTION_SPLITS;

    return {(per_group + per_part - 1) / per_part, per_part};
}

/* Workspace of the backward pass. */
struct zo_attention_scratch {
    float *delta;    /* (H, T): d_out . out */
    float *partials; /* (2, parts, T, G D): d_k, then d_v; NULL for one part */
};

/* One row of a batch as a tile sees it. */
struct zo_attention_row {
    int64_t q_start, kv_start; /* first token, first entry */
    int q_length, kv_length;
};

__device__ inline zo_attention_row
zo_attention_row_at(const zo_attention_args &args, int64_t row)
{
    zo_attention_row found;

    found.q_start = args.row_start[row];
    found.q_length = args.row_start[row + 1] - (int)found.q_start;
    found.kv_start = found.q_start;
    found.kv_length = found.q_length;
    if (args.kv_start != nullptr) {
        found.kv_start = args.kv_start[row];
        found.kv_length = args.kv_length[row];
    }
    return found;
}

/* The row of a token, or -1.  Rows of no tokens are stepped over. */
__device__ inline int64_t zo_attention_row_of(const int32_t *row_start,
                                              int64_t rows, int64_t token)
{
    int64_t low = 0, high = rows;

    if (rows == 0 || token < row_start[0] || token >= row_start[rows]) {
        return -1;
    }
    while (high - low > 1) { /* row_start[low] <= token < row_start[high] */
        const int64_t middle = low + (high - low) / 2;

        if (row_start[middle] <= token) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/*
 * Sets out and lse of the tokens of no row.  Each block of a grid takes its
 * share; there is seldom one.
 */
template <typename T>
__device__ inline void zo_attention_clear(const zo_attention_args &args)
{
    const int64_t head = args.rows > 0 ? args.row_start[0] : 0;
    const int64_t tail =
        args.rows > 0 ? args.tokens - args.row_start[args.rows] : args.tokens;
    const int64_t width = args.heads * args.head_width;

    for (int64_t i = blockIdx.x; i < head + tail; i += gridDim.x) {
        const int64_t token = i < head ? i : args.tokens - tail + (i - head);

        for (int64_t c = threadIdx.x; c < width; c += blockDim.x) {
            static_cast<T *>(args.out)[token * width + c] = from_float<T>(0.0f);
        }
        for (int64_t h = threadIdx.x; h < args.heads; h += blockDim.x) {
            args.lse[h * args.tokens + token] = 0.0f;
        }
    }
}

enum zo_status zo_attention_plain(struct zo_stream *stream,
                                  const struct zo_attention_args *args);
enum zo_status zo_attention_mma(struct zo_stream *stream,
                                const struct zo_attention_args *args);
enum zo_status zo_attention_hopper(const struct zo_kernels *kernels,
                                   struct zo_stream *stream,
                                   const struct zo_attention_args *args);

enum zo_status
zo_attention_backward_plain(struct zo_stream *stream,
                            const struct zo_attention_backward_args *args,
                            const zo_attention_scratch &scratch);
enum zo_status
zo_attention_backward_mma(struct zo_stream *stream,
                          const struct zo_attention_backward_args *args,
                          const zo_attention_scratch &scratch);
enum zo_status
zo_attention_backward_hopper(const struct zo_kernels *kernels,
                             struct zo_stream *stream,
                             const struct zo_attention_backward_args *args,
                             const zo_attention_scratch &scratch);

/* Lets kernels have their shared memory; when a device is opened. */
enum zo_status zo_attention_mma_open(const struct zo_kernels *kernels);
enum zo_status zo_attention_hopper_open(const struct zo_kernels *kernels);
enum zo_status zo_attention_backward_mma_open(const struct zo_kernels *kernels);
enum zo_status
zo_attention_backward_hopper_open(const struct zo_kernels *kernels);

/* Whether this GPU runs the code of sm_90a, and its driver makes maps. */
static inline bool zo_attention_has_hopper(const struct zo_kernels *kernels)
{
    return kernels->compute == 90 && kernels->encode_tile != NULL;
}

/* Whether the tensor-core forms have this head width, type and scale. */
static inline bool zo_attention_has_tiles(const struct zo_kernels *kernels,
                                          int64_t head_width,
                                          enum zo_dtype type, float scale)
{
    return kernels->compute >= 80 && type != ZO_F32 && scale > 0.0f &&
           (head_width == 16 || head_width == 32 || head_width == 64 ||
            head_width == 128);
}

#endif
