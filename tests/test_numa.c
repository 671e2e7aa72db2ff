/* NUMA: which nodes and devices there are, by a /sys that the test makes. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/base/numa.h"
#include "tests/fake_root.h"
#include "tests/tap.h"

/* Bytes of an address that is only looked at. */
static void *at(uintptr_t address)
{
    return (void *)address;
}

/* The cores of this process, as the kernel lists them: "0,1,5". */
static void list_cores(char *text, size_t bytes)
{
    cpu_set_t allowed;
    size_t used = 0;

    text[0] = '\0';
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return;
    }
    for (int core = 0; core < CPU_SETSIZE && used + 8 < bytes; core++) {
        if (CPU_ISSET(core, &allowed)) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%d",
                                     used > 0 ? "," : "", core);
        }
    }
}

static const char *const bus_ids[] = {"0000:1B:00.0", "0000:3d:00.0",
                                      "0000:9A:00.0", "0000:dc:00.0"};
static const char *const folders[] = {"0000:1b:00.0", "0000:3d:00.0",
                                      "0000:9a:00.0", "0000:dc:00.0"};

/* Nodes 0 and 3; -2: of that device /sys knows nothing. */
static bool make_sys(const char *online, const char *second_cores,
                     const int *device_nodes, int devices)
{
    char cores[4096];
    bool is_made;

    list_cores(cores, sizeof(cores));
    is_made = fake_root_put("sys/devices/system/node/online", online) &&
              fake_root_put("sys/devices/system/node/node0/cpulist", cores) &&
              fake_root_put("sys/devices/system/node/node3/cpulist",
                            second_cores != NULL ? second_cores : cores);
    for (int d = 0; is_made && d < devices; d++) {
        char name[128], number[16];

        (void)snprintf(name, sizeof(name), "sys/bus/pci/devices/%s/numa_node",
                       folders[d]);
        (void)snprintf(number, sizeof(number), "%d\n", device_nodes[d]);
        is_made = device_nodes[d] == -2 || fake_root_put(name, number);
    }
    return is_made;
}

static int nodes_with(const char *online, const char *second_cores,
                      const int *device_nodes, int devices,
                      struct zo_numa *numa)
{
    if (!make_sys(online, second_cores, device_nodes, devices)) {
        tap_fail(__FILE__, __LINE__, "cannot make a /sys");
    }
    zo_numa_read(fake_root(), bus_ids, devices, numa);
    fake_root_clear();
    return numa->node_count;
}

/* Two nodes, 0 and 3, each with half of the devices, in whatever order. */
static void test_two_nodes(void)
{
    static const int orders[][4] = {{0, 0, 3, 3}, {3, 0, 0, 3}};
    struct zo_numa numa;

    for (size_t i = 0; i < TAP_COUNT(orders); i++) {
        TAP_CHECK_INT(nodes_with("0,3", NULL, orders[i], 4, &numa), 2);
        TAP_CHECK_INT(numa.nodes[0], 0);
        TAP_CHECK_INT(numa.nodes[1], 3);
        for (int d = 0; d < 4; d++) {
            TAP_CHECK_INT(numa.nodes[numa.device_nodes[d]], orders[i][d]);
        }
        TAP_CHECK(CPU_COUNT(&numa.cores[0]) > 0);
    }
}

/* One node, or devices that are not on all nodes alike, or unknown: nothing is
 * done, since all memory of all nodes is to be used. */
static void test_nothing_to_gain(void)
{
    static const struct {
        const char *online, *second_cores;
        int device_nodes[4], devices;
    } cases[] = {
        {"0", NULL, {0, 0}, 2},          {"0,3", NULL, {0, 0}, 2},
        {"0,3", NULL, {3}, 1},           {"0,3", NULL, {0, 0, 3}, 3},
        {"0,3", NULL, {0, -1}, 2},       {"0,3", NULL, {0, -2}, 2},
        {"0,3", "1000-1003", {0, 3}, 2}, {"0,3", "", {0, 3}, 2},
        {"", NULL, {0, 3}, 2},           {"0,3", NULL, {0, 7}, 2},
        {"0,1024", NULL, {0, 1024}, 2},
    };
    struct zo_numa numa;

    for (size_t i = 0; i < TAP_COUNT(cases); i++) {
        TAP_CHECK_INT(nodes_with(cases[i].online, cases[i].second_cores,
                                 cases[i].device_nodes, cases[i].devices,
                                 &numa),
                      0);
    }
    /* A host device is on no bus; and there is no /sys at all. */
    TAP_CHECK_INT(nodes_with("0,3", NULL, cases[0].device_nodes, 0, &numa), 0);
    zo_numa_read("/nowhere", bus_ids, 2, &numa);
    TAP_CHECK_INT(numa.node_count, 0);
}

/* ---- places -------------------------------------------------------------- */

static struct {
    void *memory;
    size_t size_bytes;
    int node, calls, error;
} placed;

static int record(void *memory, size_t size_bytes, int node)
{
    placed.memory = memory;
    placed.size_bytes = size_bytes;
    placed.node = node;
    placed.calls++;
    return placed.error;
}

static void test_place(void)
{
    const struct zo_numa numa = {.node_count = 2,
                                 .nodes = {0, 3},
                                 .device_nodes = {0, 1},
                                 .place = record};
    const uintptr_t page = ZO_NUMA_ALIGN;

    memset(&placed, 0, sizeof(placed));
    TAP_CHECK_INT(zo_numa_place(&numa, at(5 * page + 1), 3 * page, 1), 0);
    TAP_CHECK(placed.memory == at(6 * page));
    TAP_CHECK_INT((long long)placed.size_bytes, (long long)(2 * page));
    TAP_CHECK_INT(placed.node, 3);
    TAP_CHECK_INT(zo_numa_place(&numa, at(5 * page), 3 * page, 0), 0);
    TAP_CHECK(placed.memory == at(5 * page));
    TAP_CHECK_INT((long long)placed.size_bytes, (long long)(3 * page));
    TAP_CHECK_INT(placed.node, 0);
    TAP_CHECK_INT(zo_numa_place(&numa, at(5 * page + 1), 2 * page - 2, 0), 0);
    TAP_CHECK_INT(zo_numa_place(&numa, at(5 * page), 0, 0), 0);
    TAP_CHECK_INT(placed.calls, 2); /* not a whole one */
    placed.error = ENOSYS;
    TAP_CHECK_INT(zo_numa_place(&numa, at(page), page, 0), ENOSYS);
}

/* The system's own calls, on a node that every machine has. */
static void test_calls(void)
{
    static const int nodes[] = {0, 3};
    struct zo_numa numa;
    char *memory = NULL;
    int error;

    TAP_CHECK_INT(nodes_with("0,3", NULL, nodes, 2, &numa), 2);
    TAP_CHECK_INT(zo_huge_alloc(ZO_NUMA_ALIGN, "test", &memory), ZO_OK);
    error = zo_numa_place(&numa, memory, ZO_NUMA_ALIGN, 0);
    if (error == EPERM || error == ENOSYS) {
        tap_skip("the system places no memory");
    } else {
        TAP_CHECK_INT(error, 0);
        TAP_CHECK_INT(zo_numa_pin(&numa, 0), 0);
    }
    memset(memory, 1, ZO_NUMA_ALIGN);
    zo_pages_free(memory, ZO_NUMA_ALIGN);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"nodes, their cores and their devices are found", test_two_nodes},
        {"where nothing is to be gained, nothing is done",
         test_nothing_to_gain},
        {"whole pages are placed, near their device", test_place},
        {"the system does it", test_calls},
    };
    const int code = tap_run(cases, TAP_COUNT(cases));

    fake_root_remove();
    return code;
}
