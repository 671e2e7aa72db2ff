/* Which GPUs a list of compiled architectures serves. */
#include <string.h>

#include "src/device/targets.h"
#include "tests/tap.h"

static void test_binary(void)
{
    TAP_CHECK_INT(zo_target_match("75 80 90", 80), ZO_TARGET_BINARY);
    TAP_CHECK_INT(zo_target_match("80", 86), ZO_TARGET_BINARY);
    TAP_CHECK_INT(zo_target_match("86", 80), ZO_TARGET_NONE);
    TAP_CHECK_INT(zo_target_match("80", 90), ZO_TARGET_NONE);
    TAP_CHECK_INT(zo_target_match("100", 120), ZO_TARGET_NONE);
}

static void test_variant(void)
{
    TAP_CHECK_INT(zo_target_match("90a", 90), ZO_TARGET_BINARY);
    TAP_CHECK_INT(zo_target_match("100a", 103), ZO_TARGET_NONE);
    TAP_CHECK_INT(zo_target_match("100f", 103), ZO_TARGET_BINARY);
}

static void test_ptx(void)
{
    TAP_CHECK_INT(zo_target_match("80 ptx80", 90), ZO_TARGET_PTX);
    TAP_CHECK_INT(zo_target_match("ptx80 90", 90), ZO_TARGET_BINARY);
    TAP_CHECK_INT(zo_target_match("80 ptx80", 75), ZO_TARGET_NONE);
    TAP_CHECK_INT(zo_target_match("", 90), ZO_TARGET_NONE);
}

static void test_driver(void)
{
    TAP_CHECK_INT(zo_driver_needed(12080), 12000);
    TAP_CHECK_INT(zo_driver_needed(13010), 13000);
    TAP_CHECK(strcmp(zo_driver_release(12080), "525.60.13") == 0);
    TAP_CHECK(strcmp(zo_driver_release(13000), "580.65.06") == 0);
    TAP_CHECK(zo_driver_release(99000) == NULL);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a binary serves its own and later minor versions", test_binary},
        {"a binary of a variant serves what the variant says", test_variant},
        {"PTX serves what is newer, and a binary comes first", test_ptx},
        {"a driver serves every minor version of its major one", test_driver},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
