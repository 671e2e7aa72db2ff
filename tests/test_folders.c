/*
 * Folders that are made for a path, and removed again.
 */
#include "src/base/folders.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "tests/disk_faults.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"

static void test_makes_and_removes(void)
{
    struct zo_folders folders = {0};

    fx_folder(fx_path("own"));
    TAP_CHECK_INT(zo_folders_make(&folders, fx_path("own//a/b/"), ZO_E_USAGE),
                  ZO_OK);
    TAP_CHECK_INT((long long)folders.made_count, 2);
    TAP_CHECK(fx_is_there(fx_path("own/a/b")));
    errno = ERANGE;
    zo_folders_remove(&folders);
    TAP_CHECK_INT(errno, ERANGE);
    zo_folders_fini(&folders);
    TAP_CHECK(!fx_is_there(fx_path("own/a")));
    TAP_CHECK(fx_is_there(fx_path("own")));
}

/* What somebody made before, or put something in, stays. */
static void test_keeps_what_is_used(void)
{
    struct zo_folders folders = {0};

    TAP_CHECK_INT(
        zo_folders_make_parents(&folders, fx_path("used/a/b/file"), ZO_E_USAGE),
        ZO_OK);
    TAP_CHECK(!fx_is_there(fx_path("used/a/b/file")));
    fx_write_text(fx_path("used/a/x"), "");
    zo_folders_remove(&folders);
    zo_folders_fini(&folders);
    TAP_CHECK(!fx_is_there(fx_path("used/a/b")));
    TAP_CHECK(fx_is_there(fx_path("used/a/x")));
    TAP_CHECK_INT(zo_folders_make(&folders, fx_path("used/a"), ZO_E_IO), ZO_OK);
    TAP_CHECK_INT((long long)folders.made_count, 0);
    zo_folders_fini(&folders);
    TAP_CHECK_INT(zo_folders_make_parents(NULL, "file", ZO_E_IO), ZO_OK);
    TAP_CHECK_INT(zo_folders_make(NULL, fx_path("used/c/d"), ZO_E_IO), ZO_OK);
    TAP_CHECK(fx_is_there(fx_path("used/c/d")));
}

static void test_tells_what_is_no_folder(void)
{
    struct zo_folders folders = {0};

    fx_write_text(fx_path("file"), "");
    TAP_CHECK(
        fx_refused(zo_folders_make(&folders, fx_path("file/a"), ZO_E_USAGE),
                   ZO_E_USAGE, "cannot make folder", "/file: Not a directory"));
    zo_folders_fini(&folders);
    fx_link("nowhere", fx_path("link"));
    TAP_CHECK(fx_refused(zo_folders_make(&folders, fx_path("link/a"), ZO_E_IO),
                         ZO_E_IO, "cannot make folder", "/link: File exists"));
    zo_folders_fini(&folders);
}

static bool would_make(const char *path)
{
    return zo_folders_check(path, ZO_E_USAGE) == ZO_OK;
}

static void test_check_makes_none(void)
{
    fx_folder(fx_path("checked"));
    fx_write_text(fx_path("checked/file"), "");
    TAP_CHECK_INT(chdir(fx_path("checked")), 0);
    TAP_CHECK(would_make(fx_path("checked/a/b//c/")));
    TAP_CHECK(would_make(fx_path("checked")));
    TAP_CHECK(would_make("a/b") && would_make("a") && would_make("a/"));
    TAP_CHECK(would_make("."));
    TAP_CHECK(!fx_is_there(fx_path("checked/a")));
    TAP_CHECK(
        fx_refused(zo_folders_check(fx_path("checked/file/a"), ZO_E_USAGE),
                   ZO_E_USAGE, "checked/file/a", "Not a directory"));
    TAP_CHECK(fx_refused(zo_folders_check("file", ZO_E_IO), ZO_E_IO, "file",
                         "Not a directory"));
    zo_memory_fail_at(1);
    TAP_CHECK_INT(zo_folders_check("a", ZO_E_USAGE), ZO_E_NOMEM);
    zo_memory_fail_at(0);
}

static void test_each_failure_is_clean(void)
{
    enum zo_status status;
    struct zo_folders folders = {0};
    int failures = 0;

    for (int nth = 1;; nth++) {
        disk_fault_calls = 0;
        disk_fault_at = nth;
        status = zo_folders_make(&folders, fx_path("faults/a/b"), ZO_E_IO);
        disk_fault_at = 0;
        TAP_CHECK(status == ZO_OK || status == ZO_E_IO);
        zo_folders_remove(&folders);
        zo_folders_fini(&folders);
        TAP_CHECK(!fx_is_there(fx_path("faults")));
        failures += status != ZO_OK;
        if (disk_fault_calls < nth) {
            break;
        }
    }
    TAP_CHECK_INT(failures, 3); /* one that is there needs no mkdir */
    status = ZO_E_NOMEM;
    for (uint64_t nth = 1; status == ZO_E_NOMEM; nth++) {
        zo_memory_fail_at(nth);
        status = zo_folders_make(&folders, fx_path("memory/a"), ZO_E_IO);
        zo_memory_fail_at(0);
        zo_folders_remove(&folders);
        zo_folders_fini(&folders);
    }
    TAP_CHECK_INT(status, ZO_OK);
    TAP_CHECK(!fx_is_there(fx_path("memory")));
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"folders are made, and gone again", test_makes_and_removes},
        {"what is used stays", test_keeps_what_is_used},
        {"what is no folder is told", test_tells_what_is_no_folder},
        {"a check makes none", test_check_makes_none},
        {"each failure is clean", test_each_failure_is_clean},
    };

    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
