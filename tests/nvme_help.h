/*
 * For tests of the NVMe store: a directory on a disk, page-aligned memory,
 * and requests that can be waited for.
 */
#ifndef ZO_TESTS_NVME_HELP_H
#define ZO_TESTS_NVME_HELP_H

#include <pthread.h>
#include <stdbool.h>

#include "offload/nvme.h"

/* A folder of the build, made when it is not there: on a real disk. */
const char *nvme_help_disk(void);
/* A folder of /dev/shm; NULL: there is none. */
const char *nvme_help_memory(void);
/* Removes both. */
void nvme_help_remove(void);

struct nvme_wait {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int under_way, failed; /* failed: the times done was told so */
    struct zo_err failure; /* of the first */
};
void nvme_wait_init(struct nvme_wait *wait);
void nvme_wait_fini(struct nvme_wait *wait);
/* Until at most `count` are under way. */
void nvme_wait_for(struct nvme_wait *wait, int count);

/* A request of the wait; its done counts. */
struct zo_nvme_request nvme_help_request(struct nvme_wait *wait, bool writes,
                                         uint64_t offset, void *memory,
                                         size_t bytes);
/* Submits it. */
enum zo_status nvme_help_start(struct zo_nvme *nvme, struct nvme_wait *wait,
                               bool writes, uint64_t offset, void *memory,
                               size_t bytes);
/* Submits it and waits; the status that done was told, with its record. */
enum zo_status nvme_help_move(struct zo_nvme *nvme, bool writes,
                              uint64_t offset, void *memory, size_t bytes);

/* The descriptor of a store's file in the folder; -1: there is none. */
int nvme_help_file(const char *directory);
/* It opened once more, without O_DIRECT; the caller closes it; -1: it cannot.
 */
int nvme_help_reopen(const char *directory);
/* Descriptors of this process. */
int nvme_help_descriptors(void);
/* Turns one bit in the file of the store. */
bool nvme_help_flip(const char *directory, uint64_t offset);

/* Bytes that are their own: other for each seed. */
void nvme_help_fill(void *memory, size_t bytes, uint64_t seed);
bool nvme_help_filled(const void *memory, size_t bytes, uint64_t seed);

#endif
