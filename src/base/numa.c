#include "src/base/numa.h"

#include <ctype.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES  4096
#define LINE_BYTES  4096 /* /sys gives a page at most */
#define NUMBERS_MAX 1024 /* of nodes, as far as masks reach */

/* ---- the system's calls -------------------------------------------------- */

/* Preferred: when the node is full the pages are elsewhere. */
static int place(void *memory, size_t size_bytes, int node)
{
#if defined SYS_mbind
    unsigned long nodes[NUMBERS_MAX / (8 * sizeof(unsigned long))] = {0};
    const size_t bits = 8 * sizeof(nodes[0]);

    nodes[(size_t)node / bits] = 1UL << ((size_t)node % bits);
    return syscall(SYS_mbind, memory, size_bytes, MPOL_PREFERRED, nodes,
                   (long)NUMBERS_MAX, 0) == 0
               ? 0
               : errno;
#else
    (void)memory;
    (void)size_bytes;
    (void)node;
    return ENOSYS;
#endif
}

static int pin(const cpu_set_t *cores)
{
    return sched_setaffinity(0, sizeof(*cores), cores) == 0 ? 0 : errno;
}

/* ---- topology ------------------------------------------------------------ */

bool zo_numa_next_range(const char **text, int *first_out, int *last_out)
{
    char *end = NULL;
    long first, last;

    if (!isdigit((unsigned char)(*text)[0])) {
        return false;
    }
    first = strtol(*text, &end, 10);
    last = *end == '-' ? strtol(end + 1, &end, 10) : first;
    *text = *end == ',' ? end + 1 : end;
    if (first >= NUMBERS_MAX || last >= NUMBERS_MAX || last < first) {
        return false;
    }
    *first_out = (int)first;
    *last_out = (int)last;
    return true;
}

/* The first line of a file of the system; "" when there is none. */
static void read_line(const char *path, char line[LINE_BYTES])
{
    FILE *file = fopen(path, "re");

    line[0] = '\0';
    if (file != NULL) {
        if (fgets(line, LINE_BYTES, file) == NULL) {
            line[0] = '\0';
        }
        (void)fclose(file);
    }
}

/* The cores of a node that this process may use; how many. */
static int read_cores(const char *root, int node, const cpu_set_t *allowed,
                      cpu_set_t *cores_out)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    const char *text = line;
    int first, last;

    CPU_ZERO(cores_out);
    (void)snprintf(path, sizeof(path),
                   "%s/sys/devices/system/node/node%d/cpulist", root, node);
    read_line(path, line);
    while (zo_numa_next_range(&text, &first, &last)) {
        for (int core = first; core <= last && core < CPU_SETSIZE; core++) {
            if (CPU_ISSET(core, allowed)) {
                CPU_SET(core, cores_out);
            }
        }
    }
    return CPU_COUNT(cores_out);
}

static void read_nodes(const char *root, struct zo_numa *numa)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    const char *text = line;
    cpu_set_t allowed;
    int first, last;

    (void)snprintf(path, sizeof(path), "%s/sys/devices/system/node/online",
                   root);
    read_line(path, line);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return;
    }
    while (zo_numa_next_range(&text, &first, &last)) {
        for (int node = first;
             node <= last && numa->node_count < ZO_NUMA_NODES_MAX; node++) {
            const int index = numa->node_count;

            if (read_cores(root, node, &allowed, &numa->cores[index]) > 0) {
                numa->nodes[numa->node_count++] = node;
            }
        }
    }
}

/* The index of the node that a device of the PCI bus hangs on; -1: of none. */
static int node_of(const char *root, const struct zo_numa *numa,
                   const char *bus_id)
{
    char path[PATH_BYTES], line[LINE_BYTES], name[32], *end = NULL;
    size_t at = 0;
    long node;

    for (; bus_id[at] != '\0' && at + 1 < sizeof(name); at++) {
        name[at] = (char)tolower((unsigned char)bus_id[at]);
    }
    name[at] = '\0';
    (void)snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/numa_node",
                   root, name);
    read_line(path, line);
    node = strtol(line, &end, 10);
    for (int i = 0; at > 0 && end != line && i < numa->node_count; i++) {
        if (numa->nodes[i] == node) {
            return i;
        }
    }
    return -1;
}

void zo_numa_read(const char *root, const char *const *bus_ids,
                  int device_count, struct zo_numa *numa_out)
{
    struct zo_numa numa = {.place = place, .pin = pin};
    int counts[ZO_NUMA_NODES_MAX] = {0};
    bool is_even = device_count >= 1 && device_count <= ZO_NUMA_DEVICES_MAX;

    read_nodes(root, &numa);
    for (int d = 0; is_even && d < device_count; d++) {
        numa.device_nodes[d] = node_of(root, &numa, bus_ids[d]);
        is_even = numa.device_nodes[d] >= 0;
        counts[is_even ? numa.device_nodes[d] : 0]++;
    }
    for (int i = 0; i < numa.node_count; i++) {
        is_even = is_even && counts[i] * numa.node_count == device_count;
    }
    if (!is_even || numa.node_count < 2) {
        numa.node_count = 0;
    }
    *numa_out = numa;
}

/* ---- what is near -------------------------------------------------------- */

int zo_numa_place(const struct zo_numa *numa, void *memory, size_t size_bytes,
                  int device)
{
    const uintptr_t begin = (uintptr_t)memory;
    const uintptr_t first =
        (begin + ZO_NUMA_ALIGN - 1) / ZO_NUMA_ALIGN * ZO_NUMA_ALIGN;
    const uintptr_t end = (begin + size_bytes) / ZO_NUMA_ALIGN * ZO_NUMA_ALIGN;

    return first < end
               ? numa->place((char *)memory + (first - begin), end - first,
                             numa->nodes[numa->device_nodes[device]])
               : 0;
}

int zo_numa_pin(const struct zo_numa *numa, int node_index)
{
    return numa->pin(&numa->cores[node_index]);
}
