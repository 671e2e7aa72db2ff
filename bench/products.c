#include "bench/products.h"

#include "src/base/arith.h"
#include "src/base/clock.h"
#include "src/base/memory.h"
#include "src/base/random.h"
#include "src/model/glm.h"

#define LEAST_NS  100000000 /* of a shape */
#define WARM_UPS  2
#define GROUP     4  /* products that are timed together */
#define RESTS_MAX 64 /* copies behind a group */

/* A linear map of the model: (rows, inputs) to (rows, outputs). */
struct linear {
    int64_t rows, inputs, outputs;
    int64_t count; /* of them in a step */
};

struct bench {
    const struct zo_machine *machine;
    struct zo_stream *stream;
    struct zo_event *before, *after, *rested;
    enum zo_dtype type;
    char *memory; /* owned; operands, result, workspace */
    uint64_t operand_bytes, result_bytes, memory_bytes;
};

static struct zo_matmul_args product(const struct bench *bench, int64_t m,
                                     int64_t n, int64_t k, bool transpose_a,
                                     bool transpose_b, enum zo_dtype c_type,
                                     bool adds)
{
    char *c = bench->memory + 2 * bench->operand_bytes;

    return (struct zo_matmul_args){
        .c = c,
        .a = bench->memory,
        .b = bench->memory + bench->operand_bytes,
        .addend = adds ? c : NULL,
        .workspace = c + bench->result_bytes,
        .m = m,
        .n = n,
        .k = k,
        .transpose_a = transpose_a,
        .transpose_b = transpose_b,
        .type = bench->type,
        .c_type = c_type,
    };
}

static enum zo_status queue_products(const struct bench *bench,
                                     const struct zo_matmul_args *args,
                                     int count)
{
    const struct zo_machine *machine = bench->machine;

    for (int i = 0; i < count; i++) {
        ZO_TRY(machine->kernel_ops->matmul(machine->kernels[0], bench->stream,
                                           args));
    }
    return ZO_OK;
}

/* Copies between operands and result, which nobody reads. */
static enum zo_status queue_rests(const struct bench *bench, int count)
{
    const size_t bytes = (size_t)zo_min_i64(
        (int64_t)bench->result_bytes, (int64_t)(2 * bench->operand_bytes));

    for (int i = 0; i < count; i++) {
        ZO_TRY(bench->machine->device_ops->copy(
            bench->stream, bench->memory + 2 * bench->operand_bytes,
            bench->memory, bytes));
    }
    return ZO_OK;
}

/* As many copies as take a third of the products' time; 1 at least. */
static int rests_for(double products_ns, double rests_ns, int rests)
{
    const double each = rests_ns / rests;
    const double wanted = each > 0.0 ? products_ns / 3.0 / each : 1.0;

    return wanted < 1.0 ? 1 : wanted > RESTS_MAX ? RESTS_MAX : (int)wanted;
}

/*
 * Seconds of one product: the mean of as many as take LEAST_NS.
 *
 * In a step products take turns with work that memory bounds.  Back to back
 * they draw more power than a step does, and a GPU at its limit then lowers
 * its clock for them: so there, copies inside the device follow each group,
 * a third of its time, which is not counted.
 */
static enum zo_status time_product(const struct bench *bench,
                                   const struct zo_matmul_args *args,
                                   double *seconds_out)
{
    const struct zo_device_ops *ops = bench->machine->device_ops;
    const bool is_gpu = ops != &zo_device_host;
    const int64_t started_ns = zo_clock_ns();
    int64_t before_ns, after_ns, rested_ns, busy_ns = 0, runs = 0;
    int rests = is_gpu ? 1 : 0;

    ZO_TRY(queue_products(bench, args, WARM_UPS));
    do {
        ZO_TRY(ops->event_record(bench->stream, bench->before));
        ZO_TRY(queue_products(bench, args, GROUP));
        ZO_TRY(ops->event_record(bench->stream, bench->after));
        ZO_TRY(queue_rests(bench, rests));
        ZO_TRY(ops->event_record(bench->stream, bench->rested));
        ZO_TRY(ops->stream_sync(bench->stream));
        ZO_TRY(ops->event_time_ns(bench->before, &before_ns));
        ZO_TRY(ops->event_time_ns(bench->after, &after_ns));
        ZO_TRY(ops->event_time_ns(bench->rested, &rested_ns));
        busy_ns += after_ns - before_ns;
        runs += GROUP;
        if (is_gpu) {
            rests = rests_for((double)(after_ns - before_ns),
                              (double)(rested_ns - after_ns), rests);
        }
    } while (zo_clock_ns() - started_ns < LEAST_NS);
    *seconds_out = (double)busy_ns * 1e-9 / (double)runs;
    return ZO_OK;
}

static enum zo_status time_linear(const struct bench *bench,
                                  const struct linear *linear,
                                  struct zo_product_rate *rate)
{
    const int64_t m = linear->rows, n = linear->outputs, k = linear->inputs;
    const struct zo_matmul_args products[] = {
        product(bench, m, n, k, false, true, bench->type, false),
        product(bench, m, k, n, false, false, bench->type, false),
        product(bench, n, k, m, true, false, ZO_F32, false),
    };

    for (size_t i = 0; i < ZO_COUNT(products); i++) {
        double seconds = 0.0;

        ZO_TRY(time_product(bench, &products[i], &seconds));
        rate->seconds += seconds * (double)linear->count;
        rate->flops +=
            2.0 * (double)m * (double)n * (double)k * (double)linear->count;
    }
    return ZO_OK;
}

/* Random numbers: zeros would draw less power, and run faster. */
static enum zo_status fill_operands(const struct bench *bench)
{
    const size_t piece = 1 << 20;
    const uint64_t key = zo_random_key(42, "products");
    enum zo_status status = ZO_OK;
    char *numbers = NULL;

    ZO_TRY(zo_alloc(1, piece, "numbers to multiply", &numbers));
    for (size_t i = 0; i < piece / zo_dtype_bytes(bench->type); i++) {
        zo_store(numbers, bench->type, (int64_t)i,
                 (float)zo_random_normal(key, i));
    }
    for (uint64_t at = 0; at < 2 * bench->operand_bytes && status == ZO_OK;
         at += piece) {
        status = bench->machine->device_ops->copy(
            bench->stream, bench->memory + at, numbers,
            (size_t)zo_min_i64((int64_t)piece,
                               (int64_t)(2 * bench->operand_bytes - at)));
    }
    if (status == ZO_OK) {
        status = bench->machine->device_ops->stream_sync(bench->stream);
    }
    zo_free(numbers);
    return status;
}

static void size_memory(struct bench *bench, const struct linear *linears,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct linear *linear = &linears[i];
        const int64_t sides[] = {linear->rows * linear->inputs,
                                 linear->rows * linear->outputs,
                                 linear->inputs * linear->outputs};

        for (int s = 0; s < 3; s++) {
            const uint64_t operand =
                (uint64_t)sides[s] * zo_dtype_bytes(bench->type);
            const uint64_t result = (uint64_t)sides[s] * sizeof(float);

            bench->operand_bytes =
                operand > bench->operand_bytes ? operand : bench->operand_bytes;
            bench->result_bytes =
                result > bench->result_bytes ? result : bench->result_bytes;
        }
    }
    bench->operand_bytes = zo_round_up(bench->operand_bytes, 256);
    bench->result_bytes = zo_round_up(bench->result_bytes, 256);
    bench->memory_bytes = 2 * bench->operand_bytes + bench->result_bytes +
                          bench->machine->kernel_ops->matmul_workspace();
}

/* Closes what open_bench() has opened, also after it has failed. */
static void close_bench(struct bench *bench)
{
    const struct zo_device_ops *ops = bench->machine->device_ops;

    ops->stream_close(bench->stream); /* waits: events are passed then */
    ops->event_close(bench->before);
    ops->event_close(bench->after);
    ops->event_close(bench->rested);
    ops->mem_free(bench->machine->devices[0], ZO_MEM_DEVICE, bench->memory,
                  bench->memory_bytes);
}

static enum zo_status open_bench(struct bench *bench,
                                 const struct linear *linears, size_t count)
{
    const struct zo_device_ops *ops = bench->machine->device_ops;
    struct zo_device *device = bench->machine->devices[0];

    size_memory(bench, linears, count);
    ZO_TRY(ops->stream_open(device, "products", &bench->stream));
    ZO_TRY(ops->event_open_timed(device, &bench->before));
    ZO_TRY(ops->event_open_timed(device, &bench->after));
    ZO_TRY(ops->event_open_timed(device, &bench->rested));
    ZO_TRY(ops->mem_alloc(device, ZO_MEM_DEVICE, "products to time",
                          bench->memory_bytes, (void **)&bench->memory));
    return fill_operands(bench);
}

enum zo_status zo_bench_products(const struct zo_devices *devices,
                                 const struct zo_model_config *model,
                                 enum zo_dtype type, int64_t tokens,
                                 int64_t labels,
                                 struct zo_product_rate *rate_out)
{
    const int64_t heads = model->num_heads * model->head_width;
    const int64_t qkv = heads + 2 * model->num_kv_groups * model->head_width;
    const int64_t chunk = zo_min_i64(labels, ZO_GLM_LOGIT_ROWS);
    const struct linear linears[] = {
        {tokens, model->hidden_size, qkv, model->num_layers},
        {tokens, heads, model->hidden_size, model->num_layers},
        {tokens, model->hidden_size, 2 * model->ffn_size, model->num_layers},
        {tokens, model->ffn_size, model->hidden_size, model->num_layers},
        {chunk, model->hidden_size, model->vocab_size,
         zo_div_ceil(labels, chunk)},
    };
    struct bench bench = {.machine = &devices->machine, .type = type};
    struct zo_product_rate rate = {0};
    enum zo_status status = open_bench(&bench, linears, ZO_COUNT(linears));

    for (size_t i = 0; i < ZO_COUNT(linears) && status == ZO_OK; i++) {
        status = time_linear(&bench, &linears[i], &rate);
    }
    close_bench(&bench);
    if (status == ZO_OK) {
        *rate_out = rate;
    }
    return status;
}

enum zo_status zo_bench_square(const struct zo_machine *machine,
                               enum zo_dtype type, int64_t side,
                               struct zo_product_rate *rate_out)
{
    const struct linear linear = {side, side, side, 1};
    struct bench bench = {.machine = machine, .type = type};
    double seconds = 0.0;
    enum zo_status status = open_bench(&bench, &linear, 1);

    if (status == ZO_OK) {
        const struct zo_matmul_args args =
            product(&bench, side, side, side, false, true, type, false);

        status = time_product(&bench, &args, &seconds);
    }
    close_bench(&bench);
    if (status == ZO_OK) {
        rate_out->flops = 2.0 * (double)side * (double)side * (double)side;
        rate_out->seconds = seconds;
    }
    return status;
}
