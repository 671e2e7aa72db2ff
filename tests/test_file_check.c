/*
 * What may be written is told by looking alone.
 */
#include "src/base/file_check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"

static struct zo_file_check check = {.what = "list", .start = "begin"};

static bool refuses(const char *path, const char *part)
{
    return fx_refused(zo_file_check(path, &check), ZO_E_USAGE, path, part);
}

static void test_nothing_is_made(void)
{
    const char *path = fx_path("new");

    TAP_CHECK_INT(zo_file_check(path, &check), ZO_OK);
    TAP_CHECK(!fx_is_there(path));
    TAP_CHECK(refuses(fx_path("nowhere/new"), "No such file or directory"));
    fx_write_text(fx_path("file"), "");
    TAP_CHECK(refuses(fx_path("file/new"), "Not a directory"));
    TAP_CHECK(refuses(fx_path("."), "Is a directory"));
    TAP_CHECK_INT(chdir(fx_path(".")), 0);
    TAP_CHECK_INT(zo_file_check("new", &check), ZO_OK);
}

static void test_knows_its_own(void)
{
    const char *path = fx_path("own");

    fx_write_text(path, "");
    TAP_CHECK_INT(zo_file_check(path, &check), ZO_OK);
    fx_write_text(path, "beg");
    TAP_CHECK_INT(zo_file_check(path, &check), ZO_OK);
    fx_write_text(path, "begin and more");
    TAP_CHECK_INT(zo_file_check(path, &check), ZO_OK);
    fx_write_text(path, "bacon");
    TAP_CHECK(refuses(path, "is there and is no list"));
}

/* A FIFO without a reader, whose opening would wait for one. */
static void test_fifo(void)
{
    const char *path = fx_path("fifo");

    TAP_CHECK_INT(mkfifo(path, 0600), 0);
    TAP_CHECK_INT(zo_file_check(path, &check), ZO_OK);
    check.is_regular = true;
    TAP_CHECK(refuses(path, "is a FIFO, a socket or a device"));
    TAP_CHECK(refuses("/dev/null", "is a FIFO, a socket or a device"));
    check.is_regular = false;
    TAP_CHECK_INT(zo_file_check("/dev/null", &check), ZO_OK);
}

static void test_access(void)
{
    const char *path = fx_path("closed/list");

    if (geteuid() == 0) {
        tap_skip("root may write everywhere");
        return;
    }
    fx_folder(fx_path("closed"));
    fx_write_text(path, "begin");
    TAP_CHECK_INT(chmod(path, 0400), 0);
    TAP_CHECK(refuses(path, "Permission denied"));
    TAP_CHECK_INT(chmod(path, 0200), 0);
    TAP_CHECK(refuses(path, "cannot read list"));
    TAP_CHECK_INT(chmod(fx_path("closed"), 0500), 0);
    TAP_CHECK(refuses(fx_path("closed/new"), "Permission denied"));
    TAP_CHECK_INT(chmod(fx_path("closed"), 0700), 0);
}

static void test_no_memory(void)
{
    zo_memory_fail_at(1);
    TAP_CHECK_INT(zo_file_check(fx_path("a/new"), &check), ZO_E_NOMEM);
    zo_memory_fail_at(0);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"looking makes nothing", test_nothing_is_made},
        {"a file is ours by its beginning", test_knows_its_own},
        {"a FIFO is not waited for", test_fifo},
        {"what may not be written is told", test_access},
        {"no memory is told", test_no_memory},
    };

    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
