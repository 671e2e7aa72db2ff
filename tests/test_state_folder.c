/*
 * The folders of states: which there are, and what killed runs leave.
 */
#include <unistd.h>

#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"
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

/* A link is a state wherever it leads to, and goes alone. */
static void test_links(void)
{
    const char *folder = new_folder("links");
    int64_t *steps = NULL;
    size_t count = 0;

    fx_folder(fx_path("target"));
    fx_write_text(fx_path("target/x"), "somebody's");
    fx_link("../target", fx_path("links/state-00000007"));
    fx_link("nowhere", fx_path("links/state-00000008"));
    fx_link("../target", fx_path("links/.state-00000001.partial"));
    fx_link("../target", fx_path("links/.state-00000002.removed"));
    fx_link("../target", fx_path("links/.state-00000003.replaced"));
    fx_link("../target", fx_path("links/.state-00000008.replaced"));
    TAP_CHECK_INT(zo_state_folder_clean(folder), ZO_OK);
    TAP_CHECK_INT((long long)fx_count_files(folder, ".state"), 0);
    TAP_CHECK_INT(zo_state_folder_list(folder, &steps, &count), ZO_OK);
    TAP_CHECK_INT((long long)count, 3);
    TAP_CHECK_INT(steps[0], 8);
    TAP_CHECK_INT(steps[1], 7);
    TAP_CHECK_INT(steps[2], 3); /* has its name back */
    for (size_t i = 0; i < count; i++) {
        TAP_CHECK_INT(zo_state_folder_remove(folder, steps[i]), ZO_OK);
    }
    zo_free(steps);
    TAP_CHECK_INT((long long)fx_count_files(folder, "state"), 0);
    TAP_CHECK_INT((long long)fx_count_files(folder, ".state"), 0);
    TAP_CHECK(fx_is_there(fx_path("target/x")));
}

/* Something of the user's in one that was replaced holds up no run. */
static void test_leaves_what_it_cannot_remove(void)
{
    const char *folder = new_folder("mine");

    fx_folder(fx_path("mine/state-00000004"));
    fx_folder(fx_path("mine/.state-00000004.replaced"));
    fx_folder(fx_path("mine/.state-00000004.replaced/own"));
    TAP_CHECK_INT(zo_state_folder_clean(folder), ZO_OK);
    TAP_CHECK(fx_is_there(fx_path("mine/.state-00000004.replaced/own")));
}

/* Of that name, but no state. */
static void test_leaves_what_is_no_state(void)
{
    const char *folder = new_folder("others");

    fx_folder(fx_path("others/state-00000004"));
    fx_write_text(fx_path("others/state-00000004/x"), "somebody's");
    TAP_CHECK_INT(zo_state_folder_remove(folder, 4), ZO_OK);
    TAP_CHECK(fx_is_there(fx_path("others/state-00000004/x")));
    TAP_CHECK_INT(zo_state_folder_remove(folder, 5), ZO_OK);
    fx_write_text(fx_path("others/state-00000004/manifest.json"), "{}");
    TAP_CHECK_INT(zo_state_folder_remove(folder, 4), ZO_OK);
    TAP_CHECK(!fx_is_there(fx_path("others/state-00000004")));
}

/* A link goes alone, a file too. */
static void test_removes_no_more(void)
{
    fx_folder(fx_path("kept"));
    fx_write_text(fx_path("kept/x"), "somebody's");
    fx_link("kept", fx_path("link"));
    fx_write_text(fx_path("file"), "");
    TAP_CHECK_INT(zo_disk_remove(fx_path("link")), ZO_OK);
    TAP_CHECK_INT(zo_disk_remove(fx_path("file")), ZO_OK);
    TAP_CHECK_INT(zo_disk_remove(fx_path("not there")), ZO_OK);
    TAP_CHECK(!fx_is_there(fx_path("link")) && !fx_is_there(fx_path("file")));
    TAP_CHECK(fx_is_there(fx_path("kept/x")));
    TAP_CHECK_INT(zo_disk_remove(fx_path("kept")), ZO_OK);
    TAP_CHECK(!fx_is_there(fx_path("kept")));
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"states are listed newest first", test_lists_newest_first},
        {"what killed runs leave is removed",
         test_cleans_what_killed_runs_leave},
        {"a link is a state, and where it leads to stays", test_links},
        {"what cannot be removed is left", test_leaves_what_it_cannot_remove},
        {"what is no state is left", test_leaves_what_is_no_state},
        {"of a link the link alone is removed", test_removes_no_more},
    };

    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
