/*
 * The folders of states: which there are, and what killed runs leave.
 */
#include <unistd.h>

#include "src/base/memory.h"
#include "src/checkpoint/state_folder.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"

static const char *new_folder(const char *name)
{
    const char *path = fx_path("%s", name);

    fx_folder(path);
    return path;
}

static void test_lists_newest_first(void)
{
    static const char *const others[] = {
        "state-1",         "state-0000000x",  "state-00000007.tmp",
        "xstate-00000007", "state-000000007", "state-99999999999999999999"};
    const char *folder = new_folder("list");
    int64_t *steps = NULL;
    size_t count = 0;

    for (size_t i = 0; i < TAP_COUNT(others); i++) {
        fx_folder(fx_path("list/%s", others[i]));
    }
    fx_write_text(fx_path("list/state-00000009"), "a file");
    fx_folder(fx_path("list/state-00000010"));
    fx_folder(fx_path("list/state-123456789"));
    fx_folder(fx_path("list/state-00000002"));
    TAP_CHECK_INT(zo_state_folder_list(folder, &steps, &count), ZO_OK);
    TAP_CHECK_INT((long long)count, 3);
    TAP_CHECK_INT(steps[0], 123456789);
    TAP_CHECK_INT(steps[1], 10);
    TAP_CHECK_INT(steps[2], 2);
    zo_free(steps);
    TAP_CHECK_INT(zo_state_folder_list(fx_path("none"), &steps, &count), ZO_OK);
    TAP_CHECK_INT((long long)count, 0);
}

static void test_cleans_what_killed_runs_leave(void)
{
    const char *folder = new_folder("left");

    fx_folder(fx_path("left/.state-00000001.partial"));
    fx_write_text(fx_path("left/.state-00000001.partial/x"), "");
    fx_folder(fx_path("left/.state-00000002.removed"));
    fx_folder(fx_path("left/.state-00000003.replaced"));
    fx_folder(fx_path("left/.state-00000004.replaced"));
    fx_folder(fx_path("left/state-00000004"));
    fx_write_text(fx_path("left/.latest.partial"), "");
    fx_folder(fx_path("left/.state-mine.partial"));
    fx_folder(fx_path("left/.other.partial"));
    TAP_CHECK_INT(zo_state_folder_clean(folder), ZO_OK);
    TAP_CHECK(fx_is_there(fx_path("left/state-00000003")));
    TAP_CHECK(fx_is_there(fx_path("left/state-00000004")));
    TAP_CHECK(fx_is_there(fx_path("left/.state-mine.partial")));
    TAP_CHECK(fx_is_there(fx_path("left/.other.partial")));
    TAP_CHECK_INT((long long)fx_count_files(folder, ".state-0"), 0);
    TAP_CHECK_INT((long long)fx_count_files(folder, ".latest"), 0);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"states are listed newest first", test_lists_newest_first},
        {"what killed runs leave is removed",
         test_cleans_what_killed_runs_leave},
    };

    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
