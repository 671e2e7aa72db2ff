/* The file of the NVMe store: where it may be, who may see it, what stays. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "offload/nvme.h"
#include "src/base/memory.h"
#include "tests/nvme_help.h"
#include "tests/tap.h"

#define MIB ((size_t)1 << 20)

static const struct zo_nvme_faults named = {.refuses_nameless = true};

static struct zo_nvme_options options_of(const char *directory,
                                         const struct zo_nvme_faults *faults)
{
    return (struct zo_nvme_options){.directory = directory,
                                    .bytes = 4 * MIB,
                                    .how = ZO_NVME_POOL,
                                    .allows_memory = true,
                                    .faults = faults};
}

static const char *path_in(const char *directory, const char *name)
{
    static char path[4096];

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

static int names_in(const char *directory)
{
    DIR *stream = opendir(directory);
    const struct dirent *item;
    int count = 0;

    while (stream != NULL && (item = readdir(stream)) != NULL) {
        count += item->d_name[0] != '.' ? 1 : 0;
    }
    if (stream != NULL) {
        (void)closedir(stream);
    }
    return count;
}

static bool make_file(const char *directory, const char *name, int *fd_out)
{
    *fd_out =
        open(path_in(directory, name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return *fd_out >= 0;
}

static bool is_there(const char *directory, const char *name)
{
    struct stat info;

    return lstat(path_in(directory, name), &info) == 0;
}

/* ---- what is there ---- */

static void test_nameless(void)
{
    const struct zo_nvme_faults *faults[] = {NULL, &named};

    for (size_t i = 0; i < TAP_COUNT(faults); i++) {
        const struct zo_nvme_options options =
            options_of(nvme_help_disk(), faults[i]);
        struct zo_nvme *nvme = NULL;
        struct stat info;
        int fd;

        TAP_CHECK_INT(zo_nvme_open(&options, &nvme), ZO_OK);
        TAP_CHECK_INT(names_in(options.directory), 0);
        fd = nvme_help_file(options.directory);
        TAP_CHECK(fd >= 0 && fstat(fd, &info) == 0);
        TAP_CHECK_INT(info.st_mode & 07777, 0600);
        TAP_CHECK_INT((long long)info.st_nlink, 0);
        TAP_CHECK_INT((long long)info.st_size, 4 * MIB);
        TAP_CHECK(info.st_blocks * 512 >= (long long)(4 * MIB));
        TAP_CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
        zo_nvme_close(nvme);
        TAP_CHECK_INT(nvme_help_file(options.directory), -1);
    }
}

static void test_two_stores(void)
{
    const struct zo_nvme_options options = options_of(nvme_help_disk(), &named);
    struct zo_nvme *first = NULL, *second = NULL;
    char *memory = NULL;

    TAP_CHECK_INT(zo_nvme_open(&options, &first), ZO_OK);
    TAP_CHECK_INT(zo_nvme_open(&options, &second), ZO_OK);
    TAP_CHECK_INT(zo_pages_alloc(MIB, "test", &memory), ZO_OK);
    nvme_help_fill(memory, MIB, 1);
    TAP_CHECK_INT(nvme_help_move(first, true, 0, memory, MIB), ZO_OK);
    nvme_help_fill(memory, MIB, 2);
    TAP_CHECK_INT(nvme_help_move(second, true, 0, memory, MIB), ZO_OK);
    TAP_CHECK_INT(nvme_help_move(first, false, 0, memory, MIB), ZO_OK);
    TAP_CHECK(nvme_help_filled(memory, MIB, 1));
    zo_nvme_close(first);
    zo_nvme_close(second);
    zo_pages_free(memory, MIB);
}

/* ---- what stands in the way ---- */

static void test_no_directory(void)
{
    const char *disk = nvme_help_disk();
    char path[4096];
    struct zo_nvme_options options = options_of(path, NULL);
    struct zo_nvme *nvme = NULL;
    int fd;

    (void)snprintf(path, sizeof(path), "%s/missing", disk);
    TAP_CHECK_INT(zo_nvme_open(&options, &nvme), ZO_E_IO);
    TAP_CHECK_INT(zo_err_last()->native, ENOENT);
    TAP_CHECK(strstr(zo_err_last()->text, path) != NULL);
    TAP_CHECK(strstr(zo_err_last()->text, "make it first") != NULL);

    (void)snprintf(path, sizeof(path), "%s/file", disk);
    TAP_CHECK(make_file(disk, "file", &fd));
    (void)close(fd);
    TAP_CHECK_INT(zo_nvme_open(&options, &nvme), ZO_E_IO);
    TAP_CHECK_INT(zo_err_last()->native, ENOTDIR);
    TAP_CHECK_INT(unlink(path), 0);
}

/* As another user where this one is root, whom no mode stops. */
static void test_read_only(void)
{
    const char *directory = nvme_help_memory();
    const struct zo_nvme_faults *faults[] = {NULL, &named};
    const bool is_root = geteuid() == 0;

    if (directory == NULL) {
        tap_skip("there is no /dev/shm");
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(faults); i++) {
        const struct zo_nvme_options options = options_of(directory, faults[i]);
        struct zo_nvme *nvme = NULL;
        enum zo_status status;

        TAP_CHECK_INT(chmod(directory, 0555), 0);
        TAP_CHECK(!is_root || seteuid(65534) == 0);
        status = zo_nvme_open(&options, &nvme);
        TAP_CHECK(!is_root || seteuid(0) == 0);
        TAP_CHECK_INT(chmod(directory, 0700), 0);
        TAP_CHECK_INT(status, ZO_E_IO);
        TAP_CHECK_INT(zo_err_last()->native, EACCES);
        TAP_CHECK(strstr(zo_err_last()->text, directory) != NULL);
    }
}

/* Neither it nor what it names is touched. */
static void test_symlink(void)
{
    const char *disk = nvme_help_disk();
    const struct zo_nvme_faults faults = {.refuses_nameless = true,
                                          .name = "in-the-way"};
    const struct zo_nvme_options options = options_of(disk, &faults);
    struct zo_nvme *nvme = NULL;
    char victim[4096], link[4096], text[8] = "";
    int fd;

    (void)snprintf(victim, sizeof(victim), "%s/victim", disk);
    (void)snprintf(link, sizeof(link), "%s/in-the-way", disk);
    TAP_CHECK(make_file(disk, "victim", &fd));
    TAP_CHECK_INT(write(fd, "mine", 4), 4);
    TAP_CHECK_INT(symlink(victim, link), 0);
    TAP_CHECK_INT(zo_nvme_open(&options, &nvme), ZO_E_IO);
    TAP_CHECK(strstr(zo_err_last()->text, "in-the-way") != NULL);
    TAP_CHECK(is_there(disk, "in-the-way"));
    TAP_CHECK_INT(pread(fd, text, sizeof(text), 0), 4);
    TAP_CHECK(strcmp(text, "mine") == 0);
    TAP_CHECK_INT(unlink(victim), 0); /* now it names nothing */
    TAP_CHECK_INT(zo_nvme_open(&options, &nvme), ZO_E_IO);
    TAP_CHECK(!is_there(disk, "victim"));
    TAP_CHECK_INT(unlink(link), 0);
    (void)close(fd);
}

static void test_no_space(void)
{
    struct zo_nvme_options options = options_of(nvme_help_disk(), NULL);
    struct zo_nvme *nvme = NULL;

    options.bytes = (uint64_t)1 << 50;
    TAP_CHECK_INT(zo_nvme_open(&options, &nvme), ZO_E_FIT);
    TAP_CHECK(strstr(zo_err_last()->text, "wants 1048576.00 GiB") != NULL);
    TAP_CHECK(strstr(zo_err_last()->text, "free") != NULL);
}

static void test_no_reservation(void)
{
    static const struct {
        int error;
        enum zo_status status;
    } cases[] = {
        {ENOSPC, ZO_E_FIT}, {EDQUOT, ZO_E_FIT},  {EFBIG, ZO_E_FIT},
        {EIO, ZO_E_IO},     {EOPNOTSUPP, ZO_OK}, {ENOSYS, ZO_OK},
    };

    for (size_t i = 0; i < TAP_COUNT(cases); i++) {
        const struct zo_nvme_faults faults = {.reserve_errno = cases[i].error};
        const struct zo_nvme_options options =
            options_of(nvme_help_disk(), &faults);
        struct zo_nvme *nvme = NULL;

        TAP_CHECK_INT(zo_nvme_open(&options, &nvme), cases[i].status);
        if (cases[i].status == ZO_OK) {
            TAP_CHECK(strstr(zo_nvme_notes(nvme), "reserves no space"));
        } else {
            TAP_CHECK_INT(zo_err_last()->native, cases[i].error);
        }
        zo_nvme_close(nvme);
    }
}

/* ---- a file system that fills -------------------------------------------- */

enum { CHILD_SKIPS = 77, SYSTEM_MIB = 128, STORE_MIB = 96 };

static bool write_file(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool is_written =
        fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0) {
        (void)close(fd);
    }
    return is_written;
}

/* In the child: a small file system of its own in the folder. */
static bool mount_small(const char *directory)
{
    char user[64], group[64], size[32];

    (void)snprintf(user, sizeof(user), "0 %u 1", (unsigned)geteuid());
    (void)snprintf(group, sizeof(group), "0 %u 1", (unsigned)getegid());
    (void)snprintf(size, sizeof(size), "size=%dM", SYSTEM_MIB);
    if (unshare(CLONE_NEWNS) != 0 &&
        (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
         !write_file("/proc/self/setgroups", "deny") ||
         !write_file("/proc/self/uid_map", user) ||
         !write_file("/proc/self/gid_map", group))) {
        return false;
    }
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", directory, "tmpfs", 0, size) == 0;
}

/* What others write until nothing is free; MiB. */
static int fill_up(const char *directory, const char *mib)
{
    int count = 0, fd = -1;

    if (!make_file(directory, "others", &fd)) {
        return -1;
    }
    while (write(fd, mib, MIB) == (ssize_t)MIB) {
        count++;
    }
    (void)close(fd);
    return count;
}

/* In the child: writes all of a store when others have filled the rest. */
static void outlive_others(const char *directory,
                           const struct zo_nvme_faults *faults)
{
    struct zo_nvme_options options = options_of(directory, faults);
    struct zo_nvme *nvme = NULL;
    enum zo_status status = ZO_OK;
    char *memory = NULL;
    const int left = SYSTEM_MIB - STORE_MIB;
    int others;

    options.bytes = STORE_MIB * MIB;
    if (!mount_small(directory)) {
        _exit(CHILD_SKIPS);
    }
    if (zo_nvme_open(&options, &nvme) != ZO_OK ||
        zo_pages_alloc(MIB, "test", &memory) != ZO_OK) {
        _exit(1);
    }
    others = fill_up(directory, memory);
    for (uint64_t at = 0; at < options.bytes && status == ZO_OK; at += MIB) {
        status = nvme_help_move(nvme, true, at, memory, MIB);
    }
    if (faults == NULL) {
        _exit(status == ZO_OK && others > 0 && others <= left ? 0 : 2);
    }
    _exit(status == ZO_E_IO && zo_err_last()->native == ENOSPC && others > left
              ? 0
              : 3);
}

/* With space reserved, and, to see that it matters, without. */
static void test_others_fill(void)
{
    static const struct zo_nvme_faults unreserved = {.reserve_errno =
                                                         EOPNOTSUPP};
    const struct zo_nvme_faults *faults[] = {NULL, &unreserved};

    for (size_t i = 0; i < TAP_COUNT(faults); i++) {
        const pid_t child = fork();
        int how = 0;

        if (child == 0) {
            outlive_others(nvme_help_disk(), faults[i]);
        }
        TAP_CHECK(child > 0 && waitpid(child, &how, 0) == child);
        TAP_CHECK(WIFEXITED(how));
        if (WEXITSTATUS(how) == CHILD_SKIPS) {
            tap_skip("no file system can be mounted here");
            return;
        }
        TAP_CHECK_INT(WEXITSTATUS(how), 0);
    }
}

/* The kernel sends a signal that would end the process. */
static void test_file_limit(void)
{
    const struct zo_nvme_options options = options_of(nvme_help_disk(), NULL);
    struct zo_nvme *nvme = NULL;
    struct rlimit before, limit;
    enum zo_status status;

    TAP_CHECK_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 2 * MIB;
    TAP_CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    status = zo_nvme_open(&options, &nvme);
    TAP_CHECK_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    TAP_CHECK_INT(status, ZO_E_FIT);
    TAP_CHECK(strstr(zo_err_last()->text, "ulimit -f") != NULL);
}

/* ---- what is left ---- */

/* In the child: a store with something under way, and the end. */
static void die_with_store(const struct zo_nvme_options *options)
{
    struct zo_nvme *nvme = NULL;
    struct nvme_wait wait;
    char *memory = NULL;

    nvme_wait_init(&wait);
    if (zo_nvme_open(options, &nvme) == ZO_OK &&
        zo_pages_alloc(4 * MIB, "test", &memory) == ZO_OK) {
        memset(memory, 1, 4 * MIB);
        if (nvme_help_start(nvme, &wait, true, 0, memory, 4 * MIB) == ZO_OK) {
            (void)raise(SIGKILL);
        }
    }
    _exit(1);
}

static void test_killed(void)
{
    const struct zo_nvme_faults *faults[] = {NULL, &named};

    for (size_t i = 0; i < TAP_COUNT(faults); i++) {
        const struct zo_nvme_options options =
            options_of(nvme_help_disk(), faults[i]);
        const pid_t child = fork();
        int how = 0;

        if (child == 0) {
            die_with_store(&options);
        }
        TAP_CHECK(child > 0 && waitpid(child, &how, 0) == child);
        TAP_CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
        TAP_CHECK_INT(names_in(options.directory), 0);
    }
}

static void own_name(char *name, size_t bytes, unsigned user, const char *end)
{
    (void)snprintf(name, bytes, "zero-offload.%u.77.0123%s", user, end);
}

static void test_leftovers(void)
{
    const char *disk = nvme_help_disk();
    const struct zo_nvme_options options = options_of(disk, NULL);
    struct zo_nvme *nvme = NULL;
    char dead[80], live[80], link[80], pipe[80], other[80], tail[80];
    char link_path[4096];
    int dead_fd, live_fd, other_fd, tail_fd;

    own_name(dead, sizeof(dead), geteuid(), ".nvme");
    own_name(live, sizeof(live), geteuid(), "4.nvme");
    own_name(link, sizeof(link), geteuid(), "5.nvme");
    own_name(pipe, sizeof(pipe), geteuid(), "6.nvme");
    own_name(other, sizeof(other), geteuid() + 1, ".nvme");
    own_name(tail, sizeof(tail), geteuid(), ".nvme.txt");
    TAP_CHECK(make_file(disk, dead, &dead_fd));
    TAP_CHECK(make_file(disk, live, &live_fd));
    TAP_CHECK(make_file(disk, other, &other_fd));
    TAP_CHECK(make_file(disk, tail, &tail_fd));
    TAP_CHECK_INT(mkfifo(path_in(disk, pipe), 0600), 0);
    TAP_CHECK_INT(flock(live_fd, LOCK_EX | LOCK_NB), 0);
    (void)snprintf(link_path, sizeof(link_path), "%s/%s", disk, link);
    TAP_CHECK_INT(symlink(other, link_path), 0);
    TAP_CHECK_INT(zo_nvme_open(&options, &nvme), ZO_OK);
    TAP_CHECK(!is_there(disk, dead));
    TAP_CHECK(is_there(disk, live));
    TAP_CHECK(is_there(disk, link));
    TAP_CHECK(is_there(disk, pipe));
    TAP_CHECK(is_there(disk, other));
    TAP_CHECK(is_there(disk, tail));
    TAP_CHECK(strstr(zo_nvme_notes(nvme), dead) != NULL);
    TAP_CHECK(strstr(zo_nvme_notes(nvme), live) == NULL);
    zo_nvme_close(nvme);
    (void)unlink(path_in(disk, live));
    (void)unlink(path_in(disk, link));
    (void)unlink(path_in(disk, pipe));
    (void)unlink(path_in(disk, other));
    (void)unlink(path_in(disk, tail));
    (void)close(dead_fd);
    (void)close(live_fd);
    (void)close(other_fd);
    (void)close(tail_fd);
}

/* A name like ours, by a user who is another. */
static void test_leftover_of_another(void)
{
    const char *disk = nvme_help_disk();
    const struct zo_nvme_options options = options_of(disk, NULL);
    struct zo_nvme *nvme = NULL;
    char name[80];
    bool stays;
    int fd;

    if (geteuid() != 0) {
        tap_skip("only root can give files away");
        return;
    }
    own_name(name, sizeof(name), 0, ".nvme");
    TAP_CHECK(make_file(disk, name, &fd));
    TAP_CHECK_INT(fchown(fd, 65534, 65534), 0);
    TAP_CHECK_INT(zo_nvme_open(&options, &nvme), ZO_OK);
    stays = is_there(disk, name);
    zo_nvme_close(nvme);
    (void)unlink(path_in(disk, name));
    (void)close(fd);
    TAP_CHECK(stays);
}

/* ---- failures of memory ---- */

static void test_no_memory(void)
{
    static const enum zo_nvme_how hows[] = {ZO_NVME_URING, ZO_NVME_POOL};

    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        struct zo_nvme_options options = options_of(nvme_help_disk(), NULL);
        const int before = nvme_help_descriptors();
        enum zo_status status = ZO_E_NOMEM;
        uint64_t nth = 0;

        options.how = hows[h];
        while (status == ZO_E_NOMEM) {
            struct zo_nvme *nvme = NULL;

            zo_memory_fail_at(++nth);
            status = zo_nvme_open(&options, &nvme);
            zo_memory_fail_at(0);
            zo_nvme_close(nvme);
            TAP_CHECK_INT(nvme_help_descriptors(), before);
        }
        TAP_CHECK_INT(status, ZO_OK);
        TAP_CHECK(nth > 4);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"the file has no name, is reserved, and is its user's alone",
         test_nameless},
        {"two stores in a folder do not meet", test_two_stores},
        {"a folder that is missing, or none, is said", test_no_directory},
        {"a folder that may not be written is said", test_read_only},
        {"a link in the way is not followed", test_symlink},
        {"what has no room is refused with what is free", test_no_space},
        {"a reservation may fail, or be unknown", test_no_reservation},
        {"others who fill the file system do not end a run", test_others_fill},
        {"the limit of file size is an error, not a signal", test_file_limit},
        {"a run that is killed leaves nothing", test_killed},
        {"what a killed run left is removed, and nothing else", test_leftovers},
        {"what another user left stays", test_leftover_of_another},
        {"without memory open fails and leaves nothing", test_no_memory},
    };
    const int code = tap_run(cases, TAP_COUNT(cases));

    nvme_help_remove();
    return code;
}
