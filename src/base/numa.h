/*
 * NUMA nodes: which of them each device hangs on, memory near it, threads
 * near that.
 *
 * Layer 0.  Allocates nothing.  All of it is advice: what the system refuses
 * is slower, no failure.
 */
#ifndef ZO_SRC_BASE_NUMA_H
#define ZO_SRC_BASE_NUMA_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

#define ZO_NUMA_NODES_MAX   16
#define ZO_NUMA_DEVICES_MAX 64
/* Of what is placed: huge pages. */
#define ZO_NUMA_ALIGN ((size_t)2 << 20)

struct zo_numa {
    int node_count; /* 0: there is nothing to gain, so nothing is done */
    int nodes[ZO_NUMA_NODES_MAX];          /* as the system counts them */
    cpu_set_t cores[ZO_NUMA_NODES_MAX];    /* that this process may use */
    int device_nodes[ZO_NUMA_DEVICES_MAX]; /* indices of nodes */
    /* The system's calls, which a test replaces; an errno, or 0. */
    int (*place)(void *memory, size_t size_bytes, int node);
    int (*pin)(const cpu_set_t *cores);
};

/*
 * Reads root/sys; root is "" but for tests.  bus_ids are those of the devices
 * of a run ("0000:1B:00.0").  node_count is 0 unless there are several nodes
 * with cores for this process, each with as many of the devices: memory near
 * the devices is then spread over all nodes, as is what works on it.
 */
void zo_numa_read(const char *root, const char *const *bus_ids,
                  int device_count, struct zo_numa *numa_out);

/*
 * Asks that memory that no one has touched be near a device; what is no whole
 * ZO_NUMA_ALIGN stays as it is, and a node that is full is none.  An errno, or
 * 0.
 */
int zo_numa_place(const struct zo_numa *numa, void *memory, size_t size_bytes,
                  int device);

/* Keeps the calling thread on a node's cores.  An errno, or 0. */
int zo_numa_pin(const struct zo_numa *numa, int node_index);

/* The next of "0-3,8", of which *text is moved behind it; false: none. */
bool zo_numa_next_range(const char **text, int *first_out, int *last_out);

ZO_C_END

#endif
