#include "bench/attention_rate.h"

#include <math.h>

#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/base/random.h"

#define LEAST_NS 100000000
#define WARM_UPS 2

/* Buffers of one device allocation. */
enum part { QKV, D_QKV, OUT, D_OUT, LSE, ROWS, WORKSPACE, PARTS };

struct bench {
    const struct zo_machine *machine;
    const struct zo_model_config *model;
    enum zo_dtype type;
    int64_t rows, row_tokens, tokens, qkv_width, head_total;
    struct zo_stream *stream;
    char *memory; /* owned */
    uint64_t offsets[PARTS + 1];
};

static void size_parts(struct bench *bench)
{
    const struct zo_model_config *c = bench->model;
    const uint64_t type_bytes = zo_dtype_bytes(bench->type);
    const uint64_t qkv =
        (uint64_t)(bench->tokens * bench->qkv_width) * type_bytes;
    const uint64_t out =
        (uint64_t)(bench->tokens * bench->head_total) * type_bytes;
    const uint64_t bytes[PARTS] = {
        [QKV] = qkv,
        [D_QKV] = qkv,
        [OUT] = out,
        [D_OUT] = out,
        [LSE] = (uint64_t)(bench->tokens * c->num_heads) * sizeof(float),
        [ROWS] = (uint64_t)(bench->rows + 1) * sizeof(int32_t),
        [WORKSPACE] = bench->machine->kernel_ops->attention_backward_workspace(
            bench->tokens, c->num_heads, c->num_kv_groups, c->head_width),
    };

    for (int p = 0; p < PARTS; p++) {
        bench->offsets[p + 1] =
            bench->offsets[p] + zo_round_up(bytes[p], ZO_ALIGN_BYTES);
    }
}

static void *at(const struct bench *bench, enum part part)
{
    return bench->memory + bench->offsets[part];
}

/* Random inputs: zeros would draw less power, and run faster. */
static enum zo_status fill(const struct bench *bench)
{
    const struct zo_device_ops *ops = bench->machine->device_ops;
    const uint64_t key = zo_random_key(42, "attention");
    const int64_t elems =
        (int64_t)(bench->offsets[LSE] / zo_dtype_bytes(bench->type));
    const int64_t piece = zo_min_i64(elems, 1 << 20);
    enum zo_status status;
    int32_t *rows = NULL;
    char *numbers = NULL;

    ZO_TRY(zo_alloc((size_t)piece, zo_dtype_bytes(bench->type),
                    "numbers to attend to", &numbers));
    ZO_TRY_GOTO(free_numbers, zo_alloc((size_t)bench->rows + 1, sizeof(rows[0]),
                                       "rows to attend to", &rows));
    for (int64_t i = 0; i < piece; i++) {
        zo_store(numbers, bench->type, i,
                 (float)zo_random_normal(key, (uint64_t)i));
    }
    for (int64_t i = 0; i <= bench->rows; i++) {
        rows[i] = (int32_t)(i * bench->row_tokens);
    }
    for (int64_t i = 0; i < elems; i += piece) {
        const size_t bytes =
            (size_t)zo_min_i64(piece, elems - i) * zo_dtype_bytes(bench->type);

        ZO_TRY_GOTO(
            free_rows,
            ops->copy(bench->stream,
                      bench->memory + (size_t)i * zo_dtype_bytes(bench->type),
                      numbers, bytes));
    }
    ZO_TRY_GOTO(free_rows,
                ops->copy(bench->stream, at(bench, ROWS), rows,
                          (size_t)(bench->rows + 1) * sizeof(rows[0])));

free_rows:
    if (ops->stream_sync(bench->stream) != ZO_OK && status == ZO_OK) {
        status = ZO_E_DEVICE;
    }
    zo_free(rows);
free_numbers:
    zo_free(numbers);
    return status;
}

static enum zo_status run_once(const struct bench *bench)
{
    const struct zo_machine *machine = bench->machine;
    const struct zo_model_config *c = bench->model;
    const size_t type_bytes = zo_dtype_bytes(bench->type);
    char *qkv = at(bench, QKV);
    const float scale = 1.0F / sqrtf((float)c->head_width);
    const struct zo_attention_args forward = {
        .out = at(bench, OUT),
        .lse = at(bench, LSE),
        .q = qkv,
        .k = qkv + (size_t)bench->head_total * type_bytes,
        .v = qkv +
             (size_t)(bench->head_total + c->num_kv_groups * c->head_width) *
                 type_bytes,
        .row_start = at(bench, ROWS),
        .q_stride_elems = bench->qkv_width,
        .kv_stride_elems = bench->qkv_width,
        .rows = bench->rows,
        .tokens = bench->tokens,
        .row_tokens_max = bench->row_tokens,
        .heads = c->num_heads,
        .groups = c->num_kv_groups,
        .head_width = c->head_width,
        .scale = scale,
        .type = bench->type,
    };
    const struct zo_attention_backward_args backward = {
        .d_qkv = at(bench, D_QKV),
        .d_out = at(bench, D_OUT),
        .out = at(bench, OUT),
        .qkv = qkv,
        .lse = at(bench, LSE),
        .row_start = at(bench, ROWS),
        .workspace = at(bench, WORKSPACE),
        .rows = bench->rows,
        .tokens = bench->tokens,
        .row_tokens_max = bench->row_tokens,
        .heads = c->num_heads,
        .groups = c->num_kv_groups,
        .head_width = c->head_width,
        .scale = scale,
        .type = bench->type,
    };

    ZO_TRY(machine->kernel_ops->attention(machine->kernels[0], bench->stream,
                                          &forward));
    return machine->kernel_ops->attention_backward(machine->kernels[0],
                                                   bench->stream, &backward);
}

static enum zo_status time_runs(const struct bench *bench, double *seconds_out)
{
    const struct zo_device_ops *ops = bench->machine->device_ops;
    int64_t runs = 0, started_ns, now_ns;

    for (int i = 0; i < WARM_UPS; i++) {
        ZO_TRY(run_once(bench));
    }
    ZO_TRY(ops->stream_sync(bench->stream));
    started_ns = zo_clock_ns();
    do {
        for (int i = 0; i < 4; i++, runs++) {
            ZO_TRY(run_once(bench));
        }
        ZO_TRY(ops->stream_sync(bench->stream));
        now_ns = zo_clock_ns();
    } while (now_ns - started_ns < LEAST_NS);
    *seconds_out = zo_clock_seconds(started_ns, now_ns) / (double)runs;
    return ZO_OK;
}

enum zo_status zo_bench_attention(const struct zo_devices *devices,
                                  const struct zo_model_config *model,
                                  enum zo_dtype type, int64_t rows,
                                  int64_t row_tokens,
                                  double *flops_per_second_out)
{
    struct bench bench = {
        .machine = &devices->machine,
        .model = model,
        .type = type,
        .rows = rows,
        .row_tokens = row_tokens,
        .tokens = rows * row_tokens,
        .head_total = model->num_heads * model->head_width,
    };
    const struct zo_device_ops *ops = bench.machine->device_ops;
    struct zo_device *device = bench.machine->devices[0];
    double seconds = 0.0;
    enum zo_status status;

    bench.qkv_width =
        bench.head_total + 2 * model->num_kv_groups * model->head_width;
    size_parts(&bench);
    ZO_TRY(ops->stream_open(device, "attention", &bench.stream));
    ZO_TRY_GOTO(close_stream,
                ops->mem_alloc(device, ZO_MEM_DEVICE, "attention to time",
                               bench.offsets[PARTS], (void **)&bench.memory));
    ZO_TRY_GOTO(free_memory, fill(&bench));
    ZO_TRY_GOTO(free_memory, time_runs(&bench, &seconds));
    *flops_per_second_out = 7.0 * 2.0 * (double)bench.tokens *
                            ((double)row_tokens + 1.0) / 2.0 *
                            (double)bench.head_total / seconds;

free_memory:
    ops->mem_free(device, ZO_MEM_DEVICE, bench.memory, bench.offsets[PARTS]);
close_stream:
    ops->stream_close(bench.stream);
    return status;
}
