#include "src/device/targets.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* One word of the list. */
static enum zo_target_match match_word(const char *word, int capability)
{
    const bool is_ptx = strncmp(word, "ptx", 3) == 0;
    char *end = NULL;
    const int target = (int)strtol(is_ptx ? word + 3 : word, &end, 10);

    if (is_ptx) {
        return capability >= target ? ZO_TARGET_PTX : ZO_TARGET_NONE;
    }
    if (*end == 'a') {
        return capability == target ? ZO_TARGET_BINARY : ZO_TARGET_NONE;
    }
    return capability / 10 == target / 10 && capability >= target
               ? ZO_TARGET_BINARY
               : ZO_TARGET_NONE;
}

enum zo_target_match zo_target_match(const char *targets, int capability)
{
    enum zo_target_match best = ZO_TARGET_NONE;

    while (*targets != '\0') {
        const size_t word_bytes = strcspn(targets, " ");

        if (word_bytes > 0) {
            const enum zo_target_match match = match_word(targets, capability);

            best = match > best ? match : best;
        }
        targets += word_bytes + (targets[word_bytes] == ' ');
    }
    return best;
}

const char *zo_target_match_name(enum zo_target_match match)
{
    switch (match) {
    case ZO_TARGET_NONE:
        return "no code";
    case ZO_TARGET_PTX:
        return "PTX";
    case ZO_TARGET_BINARY:
        return "binary";
    }
    return "no code";
}

int zo_driver_needed(int runtime_version)
{
    return runtime_version / 1000 * 1000;
}

/* CUDA's release notes, "CUDA Toolkit and Minimum Required Driver Version for
 * CUDA Minor Version Compatibility". */
const char *zo_driver_release(int runtime_version)
{
    switch (runtime_version / 1000) {
    case 12:
        return "525.60.13";
    case 13:
        return "580.65.06";
    default:
        return NULL;
    }
}
