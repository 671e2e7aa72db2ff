/*
 * What the operations of the builder's own do: copies, casts, reductions,
 * AdamW and the decision between steps.  Row 5.
 */
#include "offload/builder_internal.h"

#include "src/base/arith.h"

enum zo_status zo_build_run_copy(const struct zo_op_call *call)
{
    const size_t bytes = (size_t)call->op->args[0];

    *call->moved_bytes += bytes;
    return call->machine->device_ops->copy(call->streams[0], call->at[0],
                                           call->at[1], bytes);
}

static enum zo_status gather(const struct zo_op_call *call,
                             void *const *buffers)
{
    return call->machine->comm_ops->all_gather(
        call->machine->comm, &(struct zo_comm_all_gather_args){
                                 .streams = call->streams,
                                 .buffers = buffers,
                                 .piece_bytes = (size_t)call->op->args[0],
                             });
}

/* at: per device weights, with its shard in them. */
enum zo_status zo_build_run_gather(const struct zo_op_call *call)
{
    return gather(call, call->at);
}

/* at: per device weights, shard. */
enum zo_status zo_build_run_gather_shards(const struct zo_op_call *call)
{
    const size_t bytes = (size_t)call->op->args[0];
    void *weights[ZO_DEVICES_MAX];

    for (int r = 0; r < call->machine->device_count; r++) {
        weights[r] = call->at[2 * r];
        ZO_TRY(call->machine->device_ops->copy(
            call->streams[r], (char *)weights[r] + (size_t)r * bytes,
            call->at[2 * r + 1], bytes));
    }
    return gather(call, weights);
}

/* at: rows on the device, rows on the host, record. */
enum zo_status zo_build_run_copy_rows(const struct zo_op_call *call)
{
    const struct zo_step_record *record = call->at[2];
    const struct zo_micro_counts *counts =
        &record->counts[call->op->micro * call->machine->device_count +
                        call->op->device];
    const size_t bytes = (size_t)counts->table_rows * (size_t)call->op->args[0];

    *call->moved_bytes += bytes;
    return call->machine->device_ops->copy(call->streams[0], call->at[0],
                                           call->at[1], bytes);
}

/* at: weights for a copy, weights or master. */
enum zo_status zo_build_run_stage(const struct zo_op_call *call)
{
    const struct zo_cast_args args = {
        .out = call->at[0],
        .in = call->at[1],
        .count = call->op->args[0],
        .out_type = (enum zo_dtype)call->op->args[1],
        .in_type = (enum zo_dtype)call->op->args[2],
    };
    const int64_t first = (int64_t)call->part * ZO_TILE_ELEMS;

    zo_cast_cpu(&args, first, zo_min_i64(ZO_TILE_ELEMS, args.count - first),
                ZO_SIMD_BEST);
    return ZO_OK;
}

/* at: one gap of the gradient sums each. */
enum zo_status zo_build_run_clear(const struct zo_op_call *call)
{
    const struct zo_unit *unit = call->op->context;
    struct zo_unit_gap gaps[ZO_GAPS_MAX];
    const int count = zo_unit_gaps(unit, gaps, ZO_GAPS_MAX);

    for (int i = 0; i < count; i++) {
        ZO_TRY(call->machine->device_ops->fill(
            call->streams[0], call->at[i], 0,
            (size_t)(gaps[i].end_elems - gaps[i].begin_elems) * sizeof(float)));
    }
    return ZO_OK;
}

/* at: out, in. */
enum zo_status zo_build_run_cast(const struct zo_op_call *call)
{
    const struct zo_op *op = call->op;
    const struct zo_cast_args args = {
        .out = call->at[0],
        .in = call->at[1],
        .count = op->args[0],
        .out_type = (enum zo_dtype)op->args[1],
        .in_type = (enum zo_dtype)op->args[2],
    };

    return call->machine->kernel_ops->cast(call->machine->kernels[op->device],
                                           call->streams[0], &args);
}

static enum zo_status queue_norm(const struct zo_op_call *call, int device,
                                 struct zo_stream *stream, const void *in,
                                 void *result, void *workspace)
{
    const struct zo_build_options *options = call->op->context;
    const struct zo_unit *unit = &options->units[call->op->unit];
    const struct zo_square_norm_args args = {
        .result = result,
        .in = in,
        .workspace = workspace,
        .count = unit->shard_elems,
        .type = options->type,
    };

    return call->machine->kernel_ops->square_norm(
        call->machine->kernels[device], stream, &args);
}

enum zo_status zo_build_run_nothing(const struct zo_op_call *call)
{
    (void)call;
    return ZO_OK;
}

/* at: result, gradient, workspace. */
enum zo_status zo_build_run_norm(const struct zo_op_call *call)
{
    return queue_norm(call, call->op->device, call->streams[0], call->at[1],
                      call->at[0], call->at[2]);
}

/*
 * A part on every device: pieces of the unit go to their owner, the owner
 * adds them in rank order and rounds once, measures its shard, and, where
 * everybody has whole gradients, everybody gets every shard.  at: per device
 * local, staging, gradient, norm result, workspace.
 */
enum zo_status zo_build_run_reduce(const struct zo_op_call *call)
{
    const struct zo_machine *machine = call->machine;
    const struct zo_build_options *options = call->op->context;
    const int64_t shard = options->units[call->op->unit].shard_elems;
    const int64_t bucket = call->op->args[0];
    const bool is_whole = call->op->args[1] != 0;
    const int ranks = machine->device_count;
    const size_t comm_bytes = zo_dtype_bytes(options->comm_type);
    const size_t type_bytes = zo_dtype_bytes(options->type);
    const void *sources[ZO_DEVICES_MAX];
    void *targets[ZO_DEVICES_MAX], *grads[ZO_DEVICES_MAX];

    for (int64_t at = 0; at < shard; at += bucket) {
        const int64_t piece = zo_min_i64(bucket, shard - at);
        struct zo_comm_exchange_args exchange = {
            .streams = call->streams,
            .targets = targets,
            .sources = sources,
            .piece_bytes = (size_t)piece * comm_bytes,
            .stride_bytes = (size_t)shard * comm_bytes,
        };

        for (int r = 0; r < ranks; r++) {
            sources[r] =
                (const char *)call->at[5 * r] + (size_t)at * comm_bytes;
            targets[r] = call->at[5 * r + 1];
        }
        ZO_TRY(machine->comm_ops->exchange(machine->comm, &exchange));
        for (int r = 0; r < ranks; r++) {
            const int64_t place = is_whole ? r * shard + at : at;
            const struct zo_reduce_args reduce = {
                .out = (char *)call->at[5 * r + 2] + (size_t)place * type_bytes,
                .parts = targets[r],
                .count = piece,
                .part_count = ranks,
                .part_stride_elems = piece,
                .type = options->comm_type,
                .out_type = options->type,
            };

            ZO_TRY(machine->kernel_ops->reduce(machine->kernels[r],
                                               call->streams[r], &reduce));
        }
    }
    for (int r = 0; r < ranks; r++) {
        grads[r] = call->at[5 * r + 2];
        ZO_TRY(queue_norm(call, r, call->streams[r],
                          (char *)grads[r] +
                              (size_t)(is_whole ? r * shard : 0) * type_bytes,
                          call->at[5 * r + 3], call->at[5 * r + 4]));
    }
    if (!is_whole) {
        return ZO_OK;
    }
    return machine->comm_ops->all_gather(
        machine->comm, &(struct zo_comm_all_gather_args){
                           .streams = call->streams,
                           .buffers = grads,
                           .piece_bytes = (size_t)shard * type_bytes,
                       });
}

/* False: there is no update, or it is skipped. */
static bool adamw_args(const struct zo_op_call *call,
                       struct zo_adamw_args *args_out)
{
    const struct zo_build_options *options = call->op->context;
    const struct zo_unit *unit = &options->units[call->op->unit];
    const struct zo_step_record *record = call->at[0];
    const struct zo_control *control = call->at[1];
    const int64_t first = call->op->args[1];
    const bool decides = options->decides;

    *args_out = (struct zo_adamw_args){
        .weight = call->op->args[0] != 0 ? call->at[2] : NULL,
        .remainder = options->type == ZO_BF16 ? call->at[3] : NULL,
        .master = options->type == ZO_F16 ? call->at[3] : NULL,
        .exp_avg = call->at[4],
        .exp_avg_sq = call->at[5],
        .grad = call->at[6],
        .bad = call->at[7],
        .count = call->op->args[2],
        .decay_count = zo_max_i64(
            0, zo_min_i64(unit->decay_elems - first, call->op->args[2])),
        .first_index = first,
        .scalars = decides ? control->update : record->update,
        .type = options->type,
        .moment_type = options->moment_type,
    };

    return record->has_update && !(decides && control->skips);
}

/* at: record, control, weights, second, m, v, gradient, bad. */
enum zo_status zo_build_run_adamw(const struct zo_op_call *call)
{
    struct zo_adamw_args args;

    return adamw_args(call, &args)
               ? call->machine->kernel_ops->adamw(
                     call->machine->kernels[call->op->device], call->streams[0],
                     &args)
               : ZO_OK;
}

/* at: likewise.  One tile of the unit. */
enum zo_status zo_build_run_adamw_cpu(const struct zo_op_call *call)
{
    const struct zo_build_options *options = call->op->context;
    const int64_t first = (int64_t)call->part * ZO_TILE_ELEMS;
    struct zo_adamw_args args;

    if (adamw_args(call, &args) &&
        zo_adamw_cpu(&args, first,
                     zo_min_i64(ZO_TILE_ELEMS, args.count - first),
                     options->simd)) {
        __atomic_store_n(args.bad, 1, __ATOMIC_RELAXED); /* other tiles too */
    }
    return ZO_OK;
}

/* at: record, norms, losses, bad, bad of the host, control, result. */
enum zo_status zo_build_run_decide(const struct zo_op_call *call)
{
    const struct zo_build_options *options = call->op->context;
    const struct zo_measured measured = {
        .record = call->at[0],
        .norms = call->at[1],
        .losses = call->at[2],
        .bad = call->at[3],
        .host_bad = call->at[4],
        .options = options,
    };

    return options->decide(options->decide_context, &measured, call->at[5],
                           call->at[6]);
}
