/*
 * What the builder keeps while it emits a list.  Row 5, private to
 * offload/builder*.c.
 */
#ifndef ZO_OFFLOAD_BUILDER_INTERNAL_H
#define ZO_OFFLOAD_BUILDER_INTERNAL_H

#include "offload/builder.h"

#define ZO_EMIT_ACCESSES_MAX 24
#define ZO_GAPS_MAX          16 /* of a unit */

struct zo_lister {
    struct zo_build *build;
    int schedule;
    bool trains;
    zo_buffer_id *boundaries;   /* output of (unit, micro batch, device) */
    zo_buffer_id *d_boundaries; /* its gradient */
    zo_buffer_id *grad_sums;    /* (units, devices) */
    zo_buffer_id *batches;      /* (micro batches, devices) */
};

/* builder_buffers.c: what a run keeps on a device, and on the host. */
enum zo_status zo_build_add_device(struct zo_build *build, int d) ZO_MUST_CHECK;
enum zo_status zo_build_add_host(struct zo_build *build) ZO_MUST_CHECK;
uint64_t zo_build_losses_bytes(const struct zo_build_options *options);

/*
 * builder_run.c: the operations' zo_op_fn; addresses in `at`, in this order.
 */
/* target, source; args[0]: bytes. */
enum zo_status zo_build_run_copy(const struct zo_op_call *call);
/* One gap of the gradient sums each; context: the unit. */
enum zo_status zo_build_run_clear(const struct zo_op_call *call);
/* out, in; args: count, type of out, type of in. */
enum zo_status zo_build_run_cast(const struct zo_op_call *call);
/* The context of the others is the build's options. */
/* result, gradient, workspace. */
enum zo_status zo_build_run_norm(const struct zo_op_call *call);
/* Per device local, staging, gradient, norm, workspace; args[0]: piece. */
enum zo_status zo_build_run_reduce(const struct zo_op_call *call);
/* record, control, weights, second, m, v, gradient, bad: second is the
 * remainder (bf16) or the master (fp16). */
enum zo_status zo_build_run_adamw(const struct zo_op_call *call);
/* record, norms, losses, bad, control, result. */
enum zo_status zo_build_run_decide(const struct zo_op_call *call);

#endif
