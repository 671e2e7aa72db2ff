/* The NVMe store when the kernel refuses, and when the disk fails. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "offload/nvme.h"
#include "src/base/memory.h"
#include "tests/nvme_help.h"
#include "tests/tap.h"

#define MIB      ((size_t)1 << 20)
#define REQUESTS 6 /* of a store; each 2 MiB, in blocks of 512 KiB */
#define BYTES    (2 * MIB)
#define BLOCK    ((size_t)512 << 10)
#define BLOCKS   (REQUESTS * 4) /* I/Os of a pass, without faults */

static const enum zo_nvme_how hows[] = {ZO_NVME_URING, ZO_NVME_UNREGISTERED,
                                        ZO_NVME_POOL};

/* A store with its faults, and memory for as many requests as it holds. */
struct bed {
    struct zo_nvme *nvme;
    char *memory;
    struct nvme_wait wait;
};

static struct zo_nvme_options options_of(enum zo_nvme_how how,
                                         const struct zo_nvme_faults *faults)
{
    return (struct zo_nvme_options){.directory = nvme_help_disk(),
                                    .bytes = REQUESTS * BYTES,
                                    .how = how,
                                    .allows_memory = true,
                                    .depth = 4,
                                    .block_bytes = BLOCK,
                                    .threads = 2,
                                    .faults = faults};
}

static bool bed_open(struct bed *bed, const struct zo_nvme_options *options)
{
    memset(bed, 0, sizeof(*bed));
    nvme_wait_init(&bed->wait);
    if (zo_nvme_open(options, &bed->nvme) != ZO_OK ||
        zo_pages_alloc(REQUESTS * BYTES, "test", &bed->memory) != ZO_OK ||
        zo_nvme_register(bed->nvme, bed->memory, REQUESTS * BYTES) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "open: %s", zo_err_last()->text);
        return false;
    }
    return true;
}

static void bed_close(struct bed *bed)
{
    zo_nvme_close(bed->nvme);
    nvme_wait_fini(&bed->wait);
    zo_pages_free(bed->memory, REQUESTS * BYTES);
}

/* All requests at once; how many failed. */
static int bed_pass(struct bed *bed, bool writes)
{
    bed->wait.failed = 0;
    for (int i = 0; i < REQUESTS; i++) {
        char *memory = bed->memory + (size_t)i * BYTES;

        if (writes) {
            nvme_help_fill(memory, BYTES, (uint64_t)i);
        } else {
            memset(memory, 0, BYTES);
        }
        if (nvme_help_start(bed->nvme, &bed->wait, writes, (uint64_t)i * BYTES,
                            memory, BYTES) != ZO_OK) {
            tap_fail(__FILE__, __LINE__, "submit: %s", zo_err_last()->text);
        }
    }
    nvme_wait_for(&bed->wait, 0);
    return bed->wait.failed;
}

static bool bed_holds(const struct bed *bed)
{
    for (int i = 0; i < REQUESTS; i++) {
        if (!nvme_help_filled(bed->memory + (size_t)i * BYTES, BYTES,
                              (uint64_t)i)) {
            return false;
        }
    }
    return true;
}

/* What a store came to be, and what it says of it. */
struct kept {
    struct zo_nvme_shape shape;
    char notes[2048];
};

/* Writes and reads all of it, each way; the bytes come back. */
static bool keeps_all(const struct zo_nvme_options *options, struct kept *kept)
{
    struct bed bed;
    bool holds;

    if (!bed_open(&bed, options)) {
        return false;
    }
    holds = bed_pass(&bed, true) == 0 && bed_pass(&bed, false) == 0 &&
            bed_holds(&bed);
    kept->shape = zo_nvme_shape(bed.nvme);
    (void)snprintf(kept->notes, sizeof(kept->notes), "%s",
                   zo_nvme_notes(bed.nvme));
    bed_close(&bed);
    return holds;
}

static int lines_of(const char *text)
{
    int count = text[0] != '\0' ? 1 : 0;

    for (; *text != '\0'; text++) {
        count += *text == '\n' ? 1 : 0;
    }
    return count;
}

/* ---- what the kernel refuses ---- */

static void test_ring_refused(void)
{
    static const int errors[] = {ENOSYS, EPERM, ENOMEM, EMFILE, EINVAL};

    for (size_t i = 0; i < TAP_COUNT(errors); i++) {
        const struct zo_nvme_faults faults = {.ring_errno = errors[i]};
        const struct zo_nvme_options options =
            options_of(ZO_NVME_URING, &faults);
        struct kept kept;

        TAP_CHECK(keeps_all(&options, &kept));
        TAP_CHECK_INT(kept.shape.how, ZO_NVME_POOL);
        TAP_CHECK(strstr(kept.notes, "2 threads read and write instead") !=
                  NULL);
        if (strstr(kept.notes, "without liburing") == NULL) {
            TAP_CHECK(strstr(kept.notes, strerror(errors[i])) != NULL);
        }
    }
}

static bool has_ring(void)
{
    const struct zo_nvme_options options = options_of(ZO_NVME_URING, NULL);
    struct zo_nvme *nvme = NULL;
    bool has;

    if (zo_nvme_open(&options, &nvme) != ZO_OK) {
        return false;
    }
    has = zo_nvme_shape(nvme).how == ZO_NVME_URING;
    zo_nvme_close(nvme);
    return has;
}

static void test_registration_refused(void)
{
    static const int errors[] = {ENOMEM, EFAULT, EOPNOTSUPP};

    if (!has_ring()) {
        tap_skip("io_uring is refused here");
        return;
    }
    for (size_t i = 0; i < TAP_COUNT(errors); i++) {
        const struct zo_nvme_faults faults = {.register_errno = errors[i]};
        const struct zo_nvme_options options =
            options_of(ZO_NVME_URING, &faults);
        struct kept kept;

        TAP_CHECK(keeps_all(&options, &kept));
        TAP_CHECK_INT(kept.shape.how, ZO_NVME_UNREGISTERED);
        TAP_CHECK(strstr(kept.notes, "registered") != NULL);
        TAP_CHECK(lines_of(kept.notes) == 1 || !kept.shape.is_direct ||
                  strstr(kept.notes, "tmpfs") != NULL);
    }
}

/* In a child, as a user whom the limit of locked memory holds. */
static void meet_limit(const char *directory)
{
    const struct rlimit limit = {MIB, MIB};
    const struct zo_nvme_options options = {.directory = directory,
                                            .bytes = 4 * MIB,
                                            .how = ZO_NVME_URING,
                                            .depth = 4,
                                            .allows_memory = true};
    struct zo_nvme *nvme = NULL;
    char *memory = NULL;
    bool holds;

    holds = setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && setuid(65534) == 0 &&
            zo_nvme_open(&options, &nvme) == ZO_OK &&
            zo_pages_alloc(4 * MIB, "test", &memory) == ZO_OK;
    if (!holds) {
        _exit(1);
    }
    nvme_help_fill(memory, 4 * MIB, 1);
    holds = zo_nvme_register(nvme, memory, 4 * MIB) == ZO_OK &&
            zo_nvme_shape(nvme).how == ZO_NVME_UNREGISTERED &&
            strstr(zo_nvme_notes(nvme), "4.0 MiB") != NULL &&
            strstr(zo_nvme_notes(nvme), "ulimit -l") != NULL &&
            nvme_help_move(nvme, true, 0, memory, 4 * MIB) == ZO_OK &&
            nvme_help_move(nvme, false, 0, memory, 4 * MIB) == ZO_OK;
    zo_nvme_close(nvme);
    _exit(holds ? 0 : 2);
}

static void test_locked_limit(void)
{
    const char *directory = nvme_help_memory();
    int how = 0;
    pid_t child;

    if (geteuid() != 0 || directory == NULL || !has_ring()) {
        tap_skip("wants root, /dev/shm and io_uring");
        return;
    }
    TAP_CHECK_INT(chown(directory, 65534, 65534), 0);
    child = fork();
    if (child == 0) {
        meet_limit(directory);
    }
    TAP_CHECK(child > 0 && waitpid(child, &how, 0) == child);
    TAP_CHECK_INT(chown(directory, 0, 0), 0);
    TAP_CHECK_INT(WIFEXITED(how) ? WEXITSTATUS(how) : -1, 0);
}

static void test_direct_refused(void)
{
    const struct zo_nvme_faults faults[] = {{.refuses_direct = true},
                                            {.fails_direct = true}};

    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        for (size_t i = 0; i < TAP_COUNT(faults); i++) {
            const struct zo_nvme_options options =
                options_of(hows[h], &faults[i]);
            struct kept kept;
            const char *note;

            TAP_CHECK(keeps_all(&options, &kept));
            TAP_CHECK(!kept.shape.is_direct);
            note = strstr(kept.notes, "O_DIRECT");
            TAP_CHECK(note != NULL);
            TAP_CHECK(strstr(note + 1, "O_DIRECT") == NULL);
        }
    }
}

static void test_queue_full(void)
{
    const struct zo_nvme_faults faults = {.full_times = 100};

    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        const struct zo_nvme_options options = options_of(hows[h], &faults);
        struct kept kept;

        TAP_CHECK(keeps_all(&options, &kept));
    }
}

/* ---- what the disk does ---- */

static void test_short(void)
{
    const struct zo_nvme_faults faults[] = {
        {.short_from = 1},
        {.short_from = BLOCKS + 1}, /* reads alone */
        {.error_at = 3, .error_errno = EINTR},
        {.error_at = 3, .error_errno = EAGAIN},
    };

    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        for (size_t i = 0; i < TAP_COUNT(faults); i++) {
            const struct zo_nvme_options options =
                options_of(hows[h], &faults[i]);
            struct kept kept;

            TAP_CHECK(keeps_all(&options, &kept));
        }
    }
}

/* What says that it moved nothing is not asked for ever. */
static void test_stuck(void)
{
    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        const struct zo_nvme_faults faults = {.stuck_from = BLOCKS + 1};
        const struct zo_nvme_options options = options_of(hows[h], &faults);
        struct bed bed;

        TAP_CHECK(bed_open(&bed, &options));
        TAP_CHECK_INT(bed_pass(&bed, true), 0);
        TAP_CHECK_INT(bed_pass(&bed, false), REQUESTS);
        TAP_CHECK_INT(bed.wait.failure.status, ZO_E_IO);
        TAP_CHECK_INT(bed.wait.failure.native, 0);
        TAP_CHECK(strstr(bed.wait.failure.text, "moves nothing") != NULL);
        bed_close(&bed);
    }
}

/* The text tells what, where, how much and why. */
static bool tells_all(const struct zo_err *failure, const char *verb, int error)
{
    return failure->status == ZO_E_IO && failure->native == error &&
           strstr(failure->text, "unit 7's first moments: cannot ") != NULL &&
           strstr(failure->text, verb) != NULL &&
           strstr(failure->text, " bytes at offset ") != NULL &&
           strstr(failure->text, nvme_help_disk()) != NULL &&
           strstr(failure->text, strerror(error)) != NULL;
}

static void test_one_error(void)
{
    static const int errors[] = {EIO, ENOSPC};

    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        for (size_t i = 0; i < TAP_COUNT(errors); i++) {
            const struct zo_nvme_faults faults = {.error_at = 7,
                                                  .error_errno = errors[i]};
            const struct zo_nvme_options options = options_of(hows[h], &faults);
            struct bed bed;
            int refused = 0;

            TAP_CHECK(bed_open(&bed, &options));
            TAP_CHECK_INT(bed_pass(&bed, true), 1);
            TAP_CHECK(tells_all(&bed.wait.failure, "write", errors[i]));
            /* What was not written whole is not there to be read. */
            for (int r = 0; r < REQUESTS; r++) {
                refused += nvme_help_move(bed.nvme, false, (uint64_t)r * BYTES,
                                          bed.memory, BYTES) == ZO_E_ARG;
            }
            TAP_CHECK_INT(refused, 1);
            TAP_CHECK_INT(bed_pass(&bed, true), 0); /* and all is well again */
            TAP_CHECK_INT(bed_pass(&bed, false), 0);
            TAP_CHECK(bed_holds(&bed));
            bed_close(&bed);
        }
    }
}

/* What follows a failure in a request is not tried. */
static void test_rest_let_be(void)
{
    const struct zo_nvme_faults faults = {.error_at = 1, .error_errno = EIO};
    struct zo_nvme_options options = options_of(ZO_NVME_POOL, &faults);
    struct bed bed;
    bool is_let_be;
    int fd;

    options.threads = 1;
    TAP_CHECK(bed_open(&bed, &options));
    nvme_help_fill(bed.memory, 8 * MIB, 1);
    TAP_CHECK_INT(nvme_help_move(bed.nvme, true, 0, bed.memory, 8 * MIB),
                  ZO_E_IO);
    fd = nvme_help_reopen(options.directory);
    is_let_be = fd >= 0 &&
                pread(fd, bed.memory, MIB, 7 * MIB) == (ssize_t)MIB &&
                memcmp(bed.memory, bed.memory + 7 * MIB, MIB) != 0;
    (void)close(fd);
    bed_close(&bed);
    TAP_CHECK(is_let_be);
}

static void test_read_error(void)
{
    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        const struct zo_nvme_faults faults = {.error_at = BLOCKS + 2,
                                              .error_errno = EIO};
        const struct zo_nvme_options options = options_of(hows[h], &faults);
        struct bed bed;

        TAP_CHECK(bed_open(&bed, &options));
        TAP_CHECK_INT(bed_pass(&bed, true), 0);
        TAP_CHECK_INT(bed_pass(&bed, false), 1);
        TAP_CHECK(tells_all(&bed.wait.failure, "read", EIO));
        bed_close(&bed);
    }
}

/* From some request on nothing works any more. */
static void test_disk_vanishes(void)
{
    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        const struct zo_nvme_faults faults = {.error_from = BLOCKS + 1,
                                              .error_errno = ENODEV};
        const struct zo_nvme_options options = options_of(hows[h], &faults);
        struct bed bed;

        TAP_CHECK(bed_open(&bed, &options));
        TAP_CHECK_INT(bed_pass(&bed, true), 0);
        TAP_CHECK_INT(bed_pass(&bed, true), REQUESTS);
        TAP_CHECK(tells_all(&bed.wait.failure, "write", ENODEV));
        TAP_CHECK_INT(bed_pass(&bed, true), REQUESTS);
        bed_close(&bed);
    }
}

/* ---- what is damaged ---- */

static void test_bad_read(void)
{
    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        const struct zo_nvme_faults faults = {.flip_at = BLOCKS + 5};
        const struct zo_nvme_options options = options_of(hows[h], &faults);
        struct bed bed;

        TAP_CHECK(bed_open(&bed, &options));
        TAP_CHECK_INT(bed_pass(&bed, true), 0);
        TAP_CHECK_INT(bed_pass(&bed, false), 1);
        TAP_CHECK_INT(bed.wait.failure.status, ZO_E_CORRUPT);
        bed_close(&bed);
    }
}

/* The file itself: the unit, the offset and the folder are named. */
static void test_bad_file(void)
{
    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        for (int skips = 0; skips < 2; skips++) {
            struct zo_nvme_options options = options_of(hows[h], NULL);
            struct bed bed;

            options.skips_verify = skips == 1;
            TAP_CHECK(bed_open(&bed, &options));
            TAP_CHECK_INT(bed_pass(&bed, true), 0);
            TAP_CHECK(nvme_help_flip(options.directory, 5 * MIB + 12345));
            TAP_CHECK_INT(bed_pass(&bed, false), skips == 1 ? 0 : 1);
            TAP_CHECK(!bed_holds(&bed));
            if (skips == 0) {
                const struct zo_err *failure = &bed.wait.failure;

                TAP_CHECK_INT(failure->status, ZO_E_CORRUPT);
                TAP_CHECK_INT(zo_status_exit_code(failure->status), 4);
                TAP_CHECK(strstr(failure->text, "unit 7's first moments"));
                TAP_CHECK(strstr(failure->text, "at offset 5242880 "));
                TAP_CHECK(strstr(failure->text, options.directory));
            }
            bed_close(&bed);
        }
    }
}

/* Whole bytes, in the wrong place. */
static void test_misplaced(void)
{
    const struct zo_nvme_options options = options_of(ZO_NVME_POOL, NULL);
    struct bed bed;
    bool is_moved;
    int fd;

    TAP_CHECK(bed_open(&bed, &options));
    nvme_help_fill(bed.memory, MIB, 1);
    TAP_CHECK_INT(nvme_help_move(bed.nvme, true, 0, bed.memory, MIB), ZO_OK);
    TAP_CHECK_INT(nvme_help_move(bed.nvme, true, MIB, bed.memory, MIB), ZO_OK);
    nvme_help_fill(bed.memory, MIB, 2);
    TAP_CHECK_INT(nvme_help_move(bed.nvme, true, MIB, bed.memory, MIB), ZO_OK);
    fd = nvme_help_reopen(options.directory);
    is_moved = fd >= 0 && pread(fd, bed.memory, MIB, 0) == (ssize_t)MIB &&
               pwrite(fd, bed.memory, MIB, MIB) == (ssize_t)MIB &&
               fsync(fd) == 0;
    (void)close(fd);
    TAP_CHECK(is_moved);
    TAP_CHECK_INT(nvme_help_move(bed.nvme, false, MIB, bed.memory, MIB),
                  ZO_E_CORRUPT);
    TAP_CHECK_INT(nvme_help_move(bed.nvme, false, 0, bed.memory, MIB), ZO_OK);
    bed_close(&bed);
}

static void test_proof(void)
{
    for (size_t h = 0; h < TAP_COUNT(hows); h++) {
        const struct zo_nvme_faults faults = {.flips_proof = true};
        struct zo_nvme_options options = options_of(hows[h], &faults);
        struct zo_nvme *nvme = NULL;

        TAP_CHECK_INT(zo_nvme_open(&options, &nvme), ZO_E_IO);
        TAP_CHECK(strstr(zo_err_last()->text, "come back") != NULL);
        options.bytes = 96 * MIB; /* more than is tried: pieces of it are */
        TAP_CHECK_INT(zo_nvme_open(&options, &nvme), ZO_E_IO);
        options.faults = NULL;
        TAP_CHECK_INT(zo_nvme_open(&options, &nvme), ZO_OK);
        zo_nvme_close(nvme);
    }
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"a refused ring is a note, and threads do it", test_ring_refused},
        {"refused registration is a note, and the ring goes on",
         test_registration_refused},
        {"the limit of locked memory is a note with its cure",
         test_locked_limit},
        {"refused O_DIRECT is a note, and the page cache does it",
         test_direct_refused},
        {"a full ring makes requests wait", test_queue_full},
        {"short and interrupted transfers go on", test_short},
        {"transfers that move nothing fail", test_stuck},
        {"one failed write is one failed request, and told", test_one_error},
        {"the rest of a failed request is let be", test_rest_let_be},
        {"one failed read is one failed request, and told", test_read_error},
        {"a disk that vanishes fails what is asked of it", test_disk_vanishes},
        {"a bit that is read wrong is found", test_bad_read},
        {"a bit that is wrong on the disk is found, and told", test_bad_file},
        {"a chunk in another's place is found", test_misplaced},
        {"a disk that gives back other bytes is refused at open", test_proof},
    };
    const int code = tap_run(cases, TAP_COUNT(cases));

    nvme_help_remove();
    return code;
}
