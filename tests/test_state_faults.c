/*
 * A state on a disk that fails: it is there, and whole, if and only if that was
 * said; what goes wrong behind it is told apart.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/checkpoint/state_folder.h"
#include "src/checkpoint/state_reader.h"
#include "src/checkpoint/state_writer.h"
#include "tests/disk_faults.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"

#define ELEMS 1200

static const struct zo_tensor_info tensor = {
    .name = "a", .rank = 1, .shape = {ELEMS}};

static struct zo_pool *pool;            /* no workers: one order of calls */
static struct zo_state_written written; /* of the last save */

static enum zo_status give(void *context, enum zo_state_kind kind, size_t index,
                           int64_t first_elem, int64_t elem_count, void *buffer)
{
    (void)context, (void)index;
    for (int64_t i = 0; i < elem_count; i++) {
        ((uint32_t *)buffer)[i] = (uint32_t)(first_elem + i) * 4 + kind;
    }
    return ZO_OK;
}

static enum zo_status save(const char *folder, int64_t step)
{
    const struct zo_state_run run = {.step = step, .step_rows = 1};
    const struct zo_state_write_options options = {
        .folder = folder,
        .program = "zero-offload test",
        .run = &run,
        .tensors = &tensor,
        .tensor_count = 1,
        .moment_type = ZO_F32,
        .data = give,
        .pool = pool,
        .piece_elems = 64,
        .shard_bytes = 1000,
    };

    written = (struct zo_state_written){0};
    return zo_state_write(&options, &written);
}

/* Every number is as it was given; else a failure, or ZO_E_ARG. */
static enum zo_status read_all(const char *path)
{
    struct zo_state *state = NULL;
    enum zo_status status;

    ZO_TRY(zo_state_open(path, &state));
    status = ZO_OK;
    for (int kind = 0; status == ZO_OK && kind < ZO_STATE_KINDS; kind++) {
        uint32_t got[ELEMS], want[ELEMS];

        status = zo_tensor_source_read(
            zo_state_tensors(state, (enum zo_state_kind)kind), 0, 0,
            sizeof(got), got);
        (void)!give(NULL, (enum zo_state_kind)kind, 0, 0, ELEMS, want);
        if (status == ZO_OK && memcmp(got, want, sizeof(got)) != 0) {
            status = ZO_E_ARG;
        }
    }
    zo_state_close(state);
    return status;
}

static const char *new_folder(const char *name)
{
    const char *path = fx_path("%s", name);

    fx_folder(path);
    return path;
}

/* Saves a step while the nth call of the disk fails; whether there was one. */
static bool save_with_fault(const char *folder, int64_t step, int nth,
                            enum zo_status *status_out)
{
    disk_fault_calls = 0;
    disk_fault_at = nth;
    *status_out = save(folder, step);
    disk_fault_at = 0;
    return disk_fault_calls >= nth;
}

/* The link leads to one of the two, and to the second if that is said. */
static void check_latest(const char *name)
{
    char target[64] = "";
    const ssize_t length = readlink(fx_path("%s/latest", name), target, 63);

    TAP_CHECK(length > 0);
    TAP_CHECK_INT(strcmp(target, "state-00000002") == 0, written.is_latest);
    TAP_CHECK_INT(read_all(fx_path("%s/latest", name)), ZO_OK);
}

/* With state 1 there: state 2 is there, and whole, if that was said. */
static void test_failed_writes_leave_nothing(void)
{
    const char *name = "faults", *folder = new_folder(name);
    const char *second = fx_path("faults/state-00000002");
    int failures = 0, late = 0;
    enum zo_status status;

    TAP_CHECK_INT(save(folder, 1), ZO_OK);
    for (int nth = 1; save_with_fault(folder, 2, nth, &status); nth++) {
        TAP_CHECK(status == ZO_OK || status == ZO_E_IO);
        failures += status != ZO_OK;
        late += written.late.status != ZO_OK;
        TAP_CHECK_INT((long long)fx_count_files(folder, ".state"), 0);
        TAP_CHECK_INT((long long)fx_count_files(folder, ".latest"), 0);
        TAP_CHECK_INT(fx_is_there(second), status == ZO_OK);
        check_latest(name);
        TAP_CHECK_INT(read_all(fx_path("faults/state-00000001")), ZO_OK);
        if (status == ZO_OK) {
            TAP_CHECK(written.late.status == ZO_E_IO);
            TAP_CHECK(!written.is_synced || !written.is_latest);
            TAP_CHECK_INT(read_all(second), ZO_OK);
            TAP_CHECK_INT(zo_state_folder_remove(folder, 2), ZO_OK);
            TAP_CHECK_INT(zo_state_folder_point(folder, 1), ZO_OK);
        }
    }
    TAP_CHECK_INT(written.late.status, ZO_OK);
    TAP_CHECK(failures > 20);
    TAP_CHECK_INT(late, 2); /* its name on the disk; latest */
}

/* In place of one of the same step: the old or the new one is there. */
static void test_failed_replacements_keep_one(void)
{
    const char *folder = new_folder("replaces");
    enum zo_status status;
    int kept = 0;

    TAP_CHECK_INT(save(folder, 1), ZO_OK);
    for (int nth = 1; save_with_fault(folder, 1, nth, &status); nth++) {
        const bool is_kept = fx_count_files(folder, ".state") > 0;

        TAP_CHECK_INT(read_all(fx_path("replaces/state-00000001")), ZO_OK);
        TAP_CHECK_INT(is_kept, status == ZO_OK && !written.is_synced);
        kept += is_kept;
        TAP_CHECK_INT(zo_state_folder_clean(folder), ZO_OK);
        TAP_CHECK_INT((long long)fx_count_files(folder, ".state"), 0);
    }
    TAP_CHECK_INT(kept, 1);
    disk_cannot_remove = true;
    TAP_CHECK_INT(save(folder, 1), ZO_OK);
    TAP_CHECK(written.is_synced && written.is_latest);
    TAP_CHECK(strstr(written.late.text, "state-00000001.replaced") != NULL);
    TAP_CHECK_INT(zo_state_folder_clean(folder), ZO_OK); /* in no one's way */
    disk_cannot_remove = false;
    TAP_CHECK_INT((long long)fx_count_files(folder, ".state"), 1);
    TAP_CHECK_INT(read_all(fx_path("replaces/state-00000001")), ZO_OK);
    TAP_CHECK_INT(zo_state_folder_clean(folder), ZO_OK);
    TAP_CHECK_INT((long long)fx_count_files(folder, ".state"), 0);
}

/* One that is a link, which alone goes, and what is no state, which stays. */
static void test_replaces_no_more_than_a_link(void)
{
    const char *folder = new_folder("near"), *elsewhere = new_folder("far");
    const char *far = fx_path("far/state-00000001");
    char target[8];

    TAP_CHECK_INT(save(elsewhere, 1), ZO_OK);
    fx_link("../far/state-00000001", fx_path("near/state-00000001"));
    fx_link("nowhere", fx_path("near/state-00000002"));
    fx_write_text(fx_path("near/state-00000003"), "a file");
    TAP_CHECK_INT(read_all(fx_path("near/state-00000001")), ZO_OK);
    for (int step = 1; step <= 2; step++) {
        const char *path = fx_path("near/state-0000000%d", step);

        TAP_CHECK_INT(save(folder, step), ZO_OK);
        TAP_CHECK_INT(written.late.status, ZO_OK);
        TAP_CHECK(readlink(path, target, sizeof(target)) < 0);
        TAP_CHECK_INT(read_all(path), ZO_OK);
    }
    TAP_CHECK_INT(read_all(far), ZO_OK);
    TAP_CHECK(fx_refused(save(folder, 3), ZO_E_IO, "near/state-00000003",
                         "in the way"));
    TAP_CHECK(fx_is_there(fx_path("near/state-00000003")));
    TAP_CHECK_INT((long long)fx_count_files(folder, ".state"), 0);
}

/* Whether the folder's file system has writes past the page cache. */
static bool has_direct(const char *folder)
{
    char path[600];
    int file;

    (void)snprintf(path, sizeof(path), "%s/probe", folder);
    file = open(path, O_WRONLY | O_CREAT | O_DIRECT, 0600);
    if (file >= 0) {
        (void)close(file);
    }
    (void)unlink(path);
    return file >= 0;
}

/* Shards go past the page cache, or through it where that is refused. */
static void test_goes_past_the_page_cache(void)
{
    static const int errors[] = {0, EINVAL, EOPNOTSUPP, ENOSYS};
    const char *folder = new_folder("direct");
    enum zo_status status;

    if (!has_direct(folder)) {
        tap_skip("the file system here has no writes past the page cache");
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(errors); i++) {
        disk_direct_error = errors[i];
        disk_direct_calls = 0;
        status = save(folder, 1);
        disk_direct_error = 0;
        TAP_CHECK_INT(status, ZO_OK);
        TAP_CHECK_INT(read_all(fx_path("direct/latest")), ZO_OK);
        TAP_CHECK(disk_direct_calls > 0);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"each failed write leaves nothing half",
         test_failed_writes_leave_nothing},
        {"a failed replacement keeps the old one or has the new one",
         test_failed_replacements_keep_one},
        {"of a link the link alone is replaced",
         test_replaces_no_more_than_a_link},
        {"shards go past the page cache where they can",
         test_goes_past_the_page_cache},
    };
    int result;

    fx_begin();
    if (zo_pool_open(0, &pool) != ZO_OK) {
        return 1;
    }
    result = tap_run(cases, TAP_COUNT(cases));
    zo_pool_close(pool);
    return result;
}
