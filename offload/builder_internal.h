/*
 * What the builder keeps while it emits a list.  Row 5, private to
 * offload/builder*.c.
 */
#ifndef ZO_OFFLOAD_BUILDER_INTERNAL_H
#define ZO_OFFLOAD_BUILDER_INTERNAL_H

#include "offload/builder.h"

#define ZO_EMIT_ACCESSES_MAX 24

struct zo_lister {
    struct zo_build *build;
    int schedule;
    bool trains;
    zo_buffer_id *boundaries;   /* output of (unit, micro batch, device) */
    zo_buffer_id *d_boundaries; /* its gradient */
    zo_buffer_id *grad_sums;    /* (units, devices) */
    zo_buffer_id *batches;      /* (micro batches, devices) */
};

#endif
