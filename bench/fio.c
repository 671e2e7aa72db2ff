#include "bench/fio.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/json.h"
#include "src/base/memory.h"

#define ANSWER_BYTES ((size_t)1 << 20) /* of fio, at most */
#define ARGUMENTS    20
#define WORD_BYTES   64

extern char **environ;

struct zo_bench_fio {
    struct zo_nvme_shape shape;
    int fd;
    char answer[ANSWER_BYTES];
};

/* All of what fio prints; its size. */
static enum zo_status read_answer(struct zo_bench_fio *fio, int fd,
                                  size_t *bytes_out)
{
    size_t at = 0;

    for (;;) {
        const ssize_t got = read(fd, fio->answer + at, ANSWER_BYTES - at);

        if (got > 0) {
            at += (size_t)got;
        } else if (got == 0) {
            *bytes_out = at;
            return ZO_OK;
        } else if (errno != EINTR) {
            return ZO_FAIL_NATIVE(ZO_E_NOSUPPORT, errno,
                                  "cannot read what fio says: %s",
                                  strerror(errno));
        }
        if (at == ANSWER_BYTES) {
            return ZO_FAIL(ZO_E_NOSUPPORT, "fio says more than %zu bytes",
                           ANSWER_BYTES);
        }
    }
}

/* Runs it; *bytes_out of the answer. */
static enum zo_status run(struct zo_bench_fio *fio, char *const *arguments,
                          size_t *bytes_out)
{
    posix_spawn_file_actions_t actions;
    enum zo_status status;
    int ends[2], error, how = 0;
    pid_t child = -1;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return ZO_FAIL_NATIVE(ZO_E_NOSUPPORT, errno, "no pipe for fio: %s",
                              strerror(errno));
    }
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    error = posix_spawnp(&child, "fio", &actions, NULL, arguments, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    if (error != 0) {
        (void)close(ends[0]);
        return ZO_FAIL_NATIVE(ZO_E_NOSUPPORT, error, "%s",
                              error == ENOENT ? "there is no fio on the PATH"
                                              : strerror(error));
    }
    status = read_answer(fio, ends[0], bytes_out);
    (void)close(ends[0]);
    while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
    }
    if (status == ZO_OK && (!WIFEXITED(how) || WEXITSTATUS(how) != 0)) {
        status = ZO_FAIL(ZO_E_NOSUPPORT, "fio fails (%s %d)",
                         WIFEXITED(how) ? "exit code" : "signal",
                         WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
    }
    return status;
}

static double rate_of(const struct zo_json *job, const char *name)
{
    const struct zo_json *side = zo_json_get(job, name);
    const struct zo_json *rate =
        side != NULL ? zo_json_get(side, "bw_bytes") : NULL;

    return rate != NULL && zo_json_type(rate) == ZO_JSON_NUMBER
               ? zo_json_number(rate)
               : 0.0;
}

/* Notes of fio may stand before its JSON. */
static enum zo_status parse(const struct zo_bench_fio *fio, size_t bytes,
                            double *bytes_per_second_out)
{
    const char *begin = memchr(fio->answer, '{', bytes);
    const struct zo_json *jobs;
    struct zo_json_doc *doc = NULL;
    double rate = 0.0;

    if (begin == NULL ||
        zo_json_parse("fio", begin, bytes - (size_t)(begin - fio->answer), NULL,
                      &doc) != ZO_OK) {
        return ZO_FAIL(ZO_E_NOSUPPORT, "what fio says is no JSON");
    }
    jobs = zo_json_get(zo_json_root(doc), "jobs");
    if (jobs != NULL && zo_json_type(jobs) == ZO_JSON_ARRAY &&
        zo_json_first(jobs) != NULL) {
        rate = rate_of(zo_json_first(jobs), "read") +
               rate_of(zo_json_first(jobs), "write");
    }
    zo_json_close(doc);
    if (rate <= 0.0) {
        return ZO_FAIL(ZO_E_NOSUPPORT, "fio tells no rate");
    }
    *bytes_per_second_out = rate;
    return ZO_OK;
}

static const char *kind_text(enum zo_bench_nvme_kind kind)
{
    switch (kind) {
    case ZO_BENCH_NVME_WRITE:
        return "--rw=write";
    case ZO_BENCH_NVME_READ:
        return "--rw=read";
    case ZO_BENCH_NVME_MIXED:
    case ZO_BENCH_NVME_KINDS:
        break;
    }
    return "--rw=rw";
}

enum zo_status zo_bench_fio_run(struct zo_bench_fio *fio,
                                enum zo_bench_nvme_kind kind,
                                double *bytes_per_second_out)
{
    const bool is_ring = fio->shape.how != ZO_NVME_POOL;
    char words[ARGUMENTS][WORD_BYTES] = {{0}};
    char *arguments[ARGUMENTS + 1] = {NULL};
    size_t bytes = 0;
    int count = 0;

#define ADD(...) (void)snprintf(words[count++], sizeof(words[0]), __VA_ARGS__)
    ADD("fio");
    ADD("--name=zero-offload");
    ADD("--filename=/proc/%ld/fd/%d", (long)getpid(), fio->fd);
    ADD("--size=%" PRIu64, fio->shape.bytes);
    ADD("--bs=%zu", fio->shape.block_bytes);
    ADD("--direct=%d", fio->shape.is_direct ? 1 : 0);
    ADD("--fallocate=none");
    ADD("--output-format=json");
    ADD("%s", kind_text(kind));
    ADD("--rwmixread=50");
    /* What the threads of a pool do is a process each in fio. */
    ADD("--ioengine=%s", is_ring ? "io_uring" : "psync");
    if (is_ring) {
        ADD("--iodepth=%d", fio->shape.depth);
        ADD("--registerfiles");
        if (fio->shape.how == ZO_NVME_URING) {
            ADD("--fixedbufs");
        }
    } else {
        ADD("--numjobs=%d", fio->shape.depth);
        ADD("--group_reporting");
        ADD("--thread");
        ADD("--offset_increment=%" PRIu64,
            fio->shape.bytes / (uint64_t)fio->shape.depth /
                fio->shape.block_bytes * fio->shape.block_bytes);
        ADD("--io_size=%" PRIu64,
            fio->shape.bytes / (uint64_t)fio->shape.depth);
    }
#undef ADD
    ZO_ASSERT(count <= ARGUMENTS);
    for (int i = 0; i < count; i++) {
        arguments[i] = words[i];
    }
    (void)syncfs(fio->fd); /* as before ours */
    ZO_TRY(run(fio, arguments, &bytes));
    return parse(fio, bytes, bytes_per_second_out);
}

static enum zo_status make_file(struct zo_bench_fio *fio, const char *directory)
{
    char path[4096];
    const int length =
        snprintf(path, sizeof(path), "%s/zero-offload-XXXXXX", directory);
    int error;

    if (length < 0 || (size_t)length >= sizeof(path)) {
        return ZO_FAIL(ZO_E_IO, "%s: too long a name", directory);
    }
    fio->fd = mkostemp(path, O_CLOEXEC);
    if (fio->fd < 0) {
        return ZO_FAIL_NATIVE(ZO_E_IO, errno, "%s: cannot make a file: %s",
                              directory, strerror(errno));
    }
    (void)unlink(path);
    error = posix_fallocate(fio->fd, 0, (off_t)fio->shape.bytes);
    if (error != 0) {
        return ZO_FAIL_NATIVE(
            ZO_E_IO, error, "%s: cannot reserve %" PRIu64 " bytes for fio: %s",
            directory, fio->shape.bytes, strerror(error));
    }
    return ZO_OK;
}

enum zo_status zo_bench_fio_open(const char *directory,
                                 const struct zo_nvme_shape *shape,
                                 struct zo_bench_fio **fio_out)
{
    char *const arguments[] = {"fio", "--version", NULL};
    struct zo_bench_fio *fio;
    enum zo_status status;
    size_t answer_bytes;

    ZO_TRY(zo_alloc(1, sizeof(*fio), "the run of fio", &fio));
    fio->shape = *shape;
    fio->fd = -1;
    ZO_TRY_GOTO(close_fio, run(fio, arguments, &answer_bytes));
    ZO_TRY_GOTO(close_fio, make_file(fio, directory));
    *fio_out = fio;
    return ZO_OK;

close_fio:
    zo_bench_fio_close(fio);
    return status;
}

void zo_bench_fio_close(struct zo_bench_fio *fio)
{
    if (fio == NULL) {
        return;
    }
    if (fio->fd >= 0) {
        (void)close(fio->fd);
    }
    zo_free(fio);
}
