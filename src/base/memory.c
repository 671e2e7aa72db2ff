#include "src/base/memory.h"

#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/arith.h"

#define NUMA_NODES_MAX  1024    /* as far as masks reach */
#define HUGE_PAGE_BYTES 2097152 /* of x86-64, and of arm64 with 4 KiB pages */

/* The program's only counters that are global: they belong to the process. */
static atomic_bool memory_is_frozen;
static atomic_uint_least64_t memory_count;
static atomic_uint_least64_t memory_fail_at; /* 0: never */

static enum zo_status count_one(size_t size_bytes, const char *what)
{
    const uint64_t number = atomic_fetch_add(&memory_count, 1) + 1;

    ZO_ASSERT(!atomic_load(&memory_is_frozen));
    if (number == atomic_load(&memory_fail_at)) {
        return ZO_FAIL(ZO_E_NOMEM, "no memory for %s, %zu bytes (injected)",
                       what, size_bytes);
    }
    return ZO_OK;
}

static enum zo_status total_bytes(size_t count, size_t size_bytes,
                                  const char *what, uint64_t *bytes_out)
{
    if (!zo_mul_u64(count, size_bytes, bytes_out) ||
        *bytes_out > SIZE_MAX / 2) {
        return ZO_FAIL(ZO_E_NOMEM, "no memory for %s: %zu x %zu bytes", what,
                       count, size_bytes);
    }
    return count_one((size_t)*bytes_out, what);
}

enum zo_status zo_alloc(size_t count, size_t size_bytes, const char *what,
                        void *memory_out)
{
    uint64_t bytes = 0;
    void *memory;

    ZO_TRY(total_bytes(count, size_bytes, what, &bytes));
    memory = calloc(1, bytes > 0 ? (size_t)bytes : 1);
    if (memory == NULL) {
        return ZO_FAIL(ZO_E_NOMEM, "no memory for %s, %llu bytes", what,
                       (unsigned long long)bytes);
    }
    memcpy(memory_out, &memory, sizeof(memory)); /* any type of pointer */
    return ZO_OK;
}

enum zo_status zo_realloc(void *memory_inout, size_t count, size_t size_bytes,
                          const char *what)
{
    uint64_t bytes = 0;
    void *memory, *grown;

    ZO_TRY(total_bytes(count, size_bytes, what, &bytes));
    memcpy(&memory, memory_inout, sizeof(memory));
    grown = realloc(memory, bytes > 0 ? (size_t)bytes : 1);
    if (grown == NULL) {
        return ZO_FAIL(ZO_E_NOMEM, "no memory for %s, %llu bytes", what,
                       (unsigned long long)bytes);
    }
    memcpy(memory_inout, &grown, sizeof(grown));
    return ZO_OK;
}

enum zo_status zo_grow(void *memory_inout, size_t count, size_t *capacity_inout,
                       size_t size_bytes, const char *what)
{
    const size_t wanted = *capacity_inout < 8 ? 8 : 2 * *capacity_inout;

    if (count < *capacity_inout) {
        return ZO_OK;
    }
    ZO_TRY(zo_realloc(memory_inout, wanted, size_bytes, what));
    *capacity_inout = wanted;
    return ZO_OK;
}

enum zo_status zo_strndup(const char *text, size_t size_bytes, char **copy_out)
{
    char *copy = NULL;

    ZO_TRY(zo_alloc(size_bytes + 1, 1, "a string", &copy));
    memcpy(copy, text, size_bytes);
    *copy_out = copy;
    return ZO_OK;
}

void zo_free(void *memory)
{
    free(memory);
}

enum zo_status zo_pages_alloc(size_t size_bytes, const char *what,
                              void *memory_out)
{
    void *memory;

    ZO_TRY(count_one(size_bytes, what));
    memory = mmap(NULL, size_bytes > 0 ? size_bytes : 1, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return ZO_FAIL(ZO_E_NOMEM, "no memory for %s, %zu bytes", what,
                       size_bytes);
    }
    memcpy(memory_out, &memory, sizeof(memory));
    return ZO_OK;
}

/*
 * Spreads pages that have not been touched over the NUMA nodes that the process
 * may use: what all threads work on then has the bandwidth of all nodes,
 * whichever thread touches it first.  Advice: where it is refused, or there is
 * one node, the pages lie where they are touched.
 */
static void interleave(void *memory, size_t size_bytes)
{
#if defined SYS_get_mempolicy && defined SYS_mbind
    unsigned long nodes[NUMA_NODES_MAX / (8 * sizeof(unsigned long))] = {0};
    int count = 0;

    if (syscall(SYS_get_mempolicy, NULL, nodes, (long)NUMA_NODES_MAX, NULL,
                MPOL_F_MEMS_ALLOWED) != 0) {
        return;
    }
    for (size_t i = 0; i < ZO_COUNT(nodes); i++) {
        count += __builtin_popcountl(nodes[i]);
    }
    if (count > 1) {
        (void)syscall(SYS_mbind, memory, size_bytes, MPOL_INTERLEAVE, nodes,
                      (long)NUMA_NODES_MAX, 0);
    }
#else
    (void)memory;
    (void)size_bytes;
#endif
}

enum zo_status zo_huge_alloc(size_t size_bytes, const char *what,
                             void *memory_out)
{
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    const size_t mapped_bytes =
        zo_round_up(size_bytes > 0 ? size_bytes : 1, page_bytes);
    const size_t slack =
        mapped_bytes >= HUGE_PAGE_BYTES ? (size_t)HUGE_PAGE_BYTES : 0;
    char *memory = NULL;
    size_t head = 0;

    if (size_bytes > SIZE_MAX / 2) {
        return ZO_FAIL(ZO_E_NOMEM, "no memory for %s, %zu bytes", what,
                       size_bytes);
    }
    ZO_TRY(zo_pages_alloc(mapped_bytes + slack, what, &memory));
    if (slack > 0) {
        head = zo_round_up((uintptr_t)memory, slack) - (uintptr_t)memory;
        if (head > 0) {
            zo_pages_free(memory, head);
        }
        if (slack > head) {
            zo_pages_free(memory + head + mapped_bytes, slack - head);
        }
        memory += head;
        /* Advice: without huge pages it works, only slower. */
        (void)madvise(memory, mapped_bytes, MADV_HUGEPAGE);
        interleave(memory, mapped_bytes);
    }
    memcpy(memory_out, &memory, sizeof(memory));
    return ZO_OK;
}

void zo_pages_free(void *memory, size_t size_bytes)
{
    if (memory != NULL) {
        (void)munmap(memory, size_bytes > 0 ? size_bytes : 1);
    }
}

void zo_memory_freeze(bool is_frozen)
{
    atomic_store(&memory_is_frozen, is_frozen);
}

uint64_t zo_memory_count(void)
{
    return atomic_load(&memory_count);
}

void zo_memory_fail_at(uint64_t nth)
{
    atomic_store(&memory_fail_at,
                 nth == 0 ? 0 : atomic_load(&memory_count) + nth);
}
