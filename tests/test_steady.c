/*
 * The steady state allocates nothing: malloc, calloc, realloc, free and mmap
 * are interposed, and every call between the first step and the last is
 * looked at, with the thread that made it and the library that it came from.
 * Our own code makes none.  Those of libraries (BLAS, the C library) are
 * named and counted apart.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/train/metrics.h"
#include "src/train/progress.h"
#include "tests/model_fixtures.h"
#include "tests/tap.h"
#include "tests/tiny_run.h"

#define CALLS_MAX 4096

enum call_kind { CALL_MALLOC, CALL_CALLOC, CALL_REALLOC, CALL_FREE, CALL_MMAP };

static const char *const kind_names[] = {"malloc", "calloc", "realloc", "free",
                                         "mmap"};

struct call {
    enum call_kind kind;
    const void *caller; /* the return address */
    char thread[16];
};

static struct call calls[CALLS_MAX];
static atomic_size_t call_count;
static atomic_bool is_watching;

#ifndef ZO_SANITIZED

void *__libc_malloc(size_t size_bytes);
void *__libc_calloc(size_t count, size_t size_bytes);
void *__libc_realloc(void *memory, size_t size_bytes);
void *__libc_memalign(size_t align_bytes, size_t size_bytes);
void __libc_free(void *memory);

static void note(enum call_kind kind, const void *caller)
{
    size_t index;

    if (!atomic_load_explicit(&is_watching, memory_order_acquire)) {
        return;
    }
    index = atomic_fetch_add(&call_count, 1);
    if (index < CALLS_MAX) {
        calls[index].kind = kind;
        calls[index].caller = caller;
        (void)prctl(PR_GET_NAME, calls[index].thread);
    }
}

void *malloc(size_t size_bytes)
{
    note(CALL_MALLOC, __builtin_return_address(0));
    return __libc_malloc(size_bytes);
}

void *calloc(size_t count, size_t size_bytes)
{
    note(CALL_CALLOC, __builtin_return_address(0));
    return __libc_calloc(count, size_bytes);
}

void *realloc(void *memory, size_t size_bytes)
{
    note(CALL_REALLOC, __builtin_return_address(0));
    return __libc_realloc(memory, size_bytes);
}

void *memalign(size_t align_bytes, size_t size_bytes)
{
    note(CALL_MALLOC, __builtin_return_address(0));
    return __libc_memalign(align_bytes, size_bytes);
}

void *aligned_alloc(size_t align_bytes, size_t size_bytes)
{
    note(CALL_MALLOC, __builtin_return_address(0));
    return __libc_memalign(align_bytes, size_bytes);
}

int posix_memalign(void **memory_out, size_t align_bytes, size_t size_bytes)
{
    note(CALL_MALLOC, __builtin_return_address(0));
    *memory_out = __libc_memalign(align_bytes, size_bytes);
    return *memory_out != NULL ? 0 : 12;
}

void free(void *memory)
{
    if (memory != NULL) {
        note(CALL_FREE, __builtin_return_address(0));
    }
    __libc_free(memory);
}

void *mmap(void *address, size_t size_bytes, int protection, int flags,
           int file, off_t offset)
{
    note(CALL_MMAP, __builtin_return_address(0));
    /* The kernel's result is a pointer; the C library's type for it is not. */
    return (void *)(intptr_t)syscall(SYS_mmap, address, size_bytes, protection,
                                     flags, file, offset);
}

#endif

/* ---- who called ---------------------------------------------------------- */

#define LINES_MAX 64

/* Calls of one kind, from one function's library, by threads of one name. */
struct line {
    const struct call *call; /* the first of them */
    const char *object, *function;
    size_t count;
};

struct tally {
    size_t own; /* by the program itself */
    size_t own_kinds[CALL_MMAP + 1];
    size_t others;
    struct line lines[LINES_MAX]; /* all of them */
    size_t line_count;
};

static void add_line(struct tally *tally, const struct line *line)
{
    for (size_t i = 0; i < tally->line_count; i++) {
        struct line *known = &tally->lines[i];

        if (known->call->kind == line->call->kind &&
            strcmp(known->call->thread, line->call->thread) == 0 &&
            strcmp(known->object, line->object) == 0 &&
            strcmp(known->function, line->function) == 0) {
            known->count++;
            return;
        }
    }
    if (tally->line_count < LINES_MAX) {
        tally->lines[tally->line_count++] = *line;
    }
}

/* The calls that were noted; the next run begins at none. */
static void tally_calls(struct tally *tally)
{
    const size_t noted = atomic_exchange(&call_count, 0);
    Dl_info self = {0};

    *tally = (struct tally){0};
    (void)dladdr((const void *)kind_names, &self);
    for (size_t i = 0; i < noted && i < CALLS_MAX; i++) {
        const struct call *call = &calls[i];
        Dl_info info = {0};
        const bool is_known = dladdr(call->caller, &info) != 0;
        const bool is_own = !is_known || info.dli_fbase == self.dli_fbase;

        tally->own += is_own;
        tally->own_kinds[call->kind] += is_own;
        tally->others += !is_own;
        add_line(tally, &(struct line){
                            .call = call,
                            .object = is_own ? "our own" : info.dli_fname,
                            .function = is_known && info.dli_sname != NULL
                                            ? info.dli_sname
                                            : "a function without a name",
                            .count = 1,
                        });
    }
    if (noted > CALLS_MAX) {
        tally->own += noted - CALLS_MAX; /* nobody knows whose they were */
    }
}

static void print_lines(const struct tally *tally)
{
    for (size_t i = 0; i < tally->line_count; i++) {
        const struct line *line = &tally->lines[i];

        (void)printf("# %s: %zu of %s, in %s, by thread %s\n", line->object,
                     line->count, kind_names[line->call->kind], line->function,
                     line->call->thread);
    }
}

/* ---- a run --------------------------------------------------------------- */

/* What the program does with steps: metrics and progress. */
struct telling {
    struct zo_metrics *metrics;
    struct zo_progress progress;
    bool allocates; /* in step 4: a call that must be seen */
};

static enum zo_status tell_step(void *context,
                                const struct zo_step_metrics *metrics)
{
    struct telling *telling = context;

    zo_progress_step(&telling->progress, metrics);
    ZO_TRY(zo_metrics_step(telling->metrics, metrics));
    if (telling->allocates && metrics->step == 4) {
        void *memory = NULL;

        ZO_TRY(zo_alloc(1, 10, "a planted allocation", &memory));
        zo_free(memory);
        ZO_TRY(zo_pages_alloc(10, "planted pages", &memory));
        zo_pages_free(memory, 10);
    }
    atomic_store_explicit(&is_watching, metrics->step < 12,
                          memory_order_release);
    return ZO_OK;
}

static enum zo_status tell_eval(void *context,
                                const struct zo_eval_metrics *metrics)
{
    struct telling *telling = context;

    zo_progress_eval(&telling->progress, metrics);
    return zo_metrics_eval(telling->metrics, metrics);
}

static enum zo_status train_watched(const struct tiny_knobs *knobs,
                                    struct telling *telling, FILE *file)
{
    const struct zo_metrics_options metrics = {.path =
                                                   fx_path("metrics.jsonl")};
    const struct zo_progress_options progress = {
        .file = file, .logging_steps = 1, .first_step = 1, .total_steps = 12};
    const struct zo_trainer_watch watch = {
        .context = telling, .on_step = tell_step, .on_eval = tell_eval};
    struct tiny_run run;
    int64_t steps = 0;
    enum zo_status status = tiny_open(knobs, &run);

    if (status == ZO_OK) {
        status = tiny_start(&run);
    }
    if (status == ZO_OK) {
        status = zo_metrics_open(&metrics, &telling->metrics);
    }
    if (status == ZO_OK) {
        zo_progress_init(&telling->progress, &progress);
        status = zo_trainer_run(run.trainer, &watch, &steps);
    }
    atomic_store(&is_watching, false);
    zo_metrics_close(telling->metrics);
    tiny_close(&run);
    return status;
}

static bool watch_run(const struct tiny_knobs *knobs, bool allocates,
                      struct tally *tally_out)
{
    struct telling telling = {.allocates = allocates};
    FILE *file = fopen("/dev/null", "w");
    enum zo_status status;

    if (file == NULL) {
        return false;
    }
    status = train_watched(knobs, &telling, file);
    (void)fclose(file);
    if (status != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
        return false;
    }
    tally_calls(tally_out);
    return true;
}

static bool is_sanitized(void)
{
#ifdef ZO_SANITIZED
    tap_skip("a sanitizer's build: malloc is the sanitizer's");
    return true;
#else
    return false;
#endif
}

static const struct tiny_knobs steady = {
    .devices = 2,
    .accumulation = 2,
    .steps = 12,
    .shuffles = true,
    .eval_rows = 7,
    .eval_every = 3,
    .json = "\"gradient_clipping\": 1",
};

static void test_calls_are_seen(void)
{
    struct tally tally;

    if (is_sanitized()) {
        return;
    }
    TAP_CHECK(watch_run(&steady, true, &tally));
    TAP_CHECK_INT(tally.own_kinds[CALL_CALLOC], 1);
    TAP_CHECK_INT(tally.own_kinds[CALL_FREE], 1);
    TAP_CHECK_INT(tally.own_kinds[CALL_MMAP], 1);
    TAP_CHECK_INT(tally.own, 3);
}

static void test_libraries_are_apart(void)
{
    struct tally tally;
    FILE *file;

    if (is_sanitized()) {
        return;
    }
    atomic_store(&is_watching, true);
    file = fopen("/dev/null", "r");
    atomic_store(&is_watching, false);
    TAP_CHECK(file != NULL);
    (void)fclose(file);
    tally_calls(&tally);
    TAP_CHECK_INT(tally.own, 0);
    TAP_CHECK(tally.others >= 1);
}

static void test_steady(void)
{
    static const char *const types[] = {"\"gradient_clipping\": 1",
                                        "\"bf16\": {\"enabled\": true}",
                                        "\"fp16\": {\"enabled\": true}"};

    if (is_sanitized()) {
        return;
    }
    for (size_t t = 0; t < TAP_COUNT(types); t++) {
        for (int devices = 1; devices <= 3; devices += 2) {
            struct tiny_knobs knobs = steady;
            struct tally tally;

            knobs.devices = devices;
            knobs.json = types[t];
            TAP_CHECK(watch_run(&knobs, false, &tally));
            print_lines(&tally);
            TAP_CHECK_INT(tally.own, 0);
        }
    }
}

static const struct tap_case cases[] = {
    {"an allocation of our own, behind the first step, is seen",
     test_calls_are_seen},
    {"one that a library makes for us is counted apart",
     test_libraries_are_apart},
    {"our own code allocates, frees and maps nothing behind the first step",
     test_steady},
};

int main(void)
{
    fx_begin();
    return tap_run(cases, TAP_COUNT(cases));
}
