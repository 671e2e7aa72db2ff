/* The store behind the NVMe tier, on a disk and in memory, each way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "offload/nvme.h"
#include "src/base/memory.h"
#include "tests/nvme_help.h"
#include "tests/tap.h"

#define MIB ((size_t)1 << 20)

static const enum zo_nvme_how hows[] = {ZO_NVME_URING, ZO_NVME_UNREGISTERED,
                                        ZO_NVME_POOL};

static void test_keeps_bytes(void)
{
    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        const struct zo_nvme_options options = {
            .directory = nvme_help_disk(), .bytes = 24 * MIB, .how = hows[h]};
        const size_t bytes = 5 * MIB + 3 * ZO_NVME_ALIGN;
        struct zo_nvme *nvme = NULL;
        void *memory = NULL;

        TAP_CHECK_INT(zo_nvme_open(&options, &nvme), ZO_OK);
        TAP_CHECK_INT(zo_pages_alloc(bytes, "test", &memory), ZO_OK);
        nvme_help_fill(memory, bytes, 1);
        TAP_CHECK_INT(nvme_help_move(nvme, true, 7 * MIB, memory, bytes),
                      ZO_OK);
        memset(memory, 0, bytes);
        TAP_CHECK_INT(nvme_help_move(nvme, false, 7 * MIB, memory, bytes),
                      ZO_OK);
        TAP_CHECK(nvme_help_filled(memory, bytes, 1));
        zo_nvme_close(nvme);
        zo_pages_free(memory, bytes);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"what is written is read again", test_keeps_bytes},
    };
    const int code = tap_run(cases, TAP_COUNT(cases));

    (void)rmdir(nvme_help_disk());
    return code;
}
