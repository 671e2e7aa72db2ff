#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "src/base/memory.h"
#include "src/base/thread.h"
#include "src/cli/saving.h"

#define NICE 10 /* of threads that pack all while training goes on */

struct zo_saving_thread {
    struct zo_state_write_options write;
    struct zo_saving_settings settings;
    struct zo_state_run run;
    const struct zo_trainer_copy *copy; /* borrowed until the join */
    int threads;
    int64_t step;
    pthread_t thread;
    atomic_bool is_done;
    /* Behind the join. */
    struct zo_state_written written;
    struct zo_err failure;
};

static enum zo_status write_copy(struct zo_saving_thread *self)
{
    enum zo_status status;

    if (!self->write.spares_cpu) { /* of those that it starts too; a wish */
        (void)setpriority(PRIO_PROCESS, 0, NICE);
    }
    ZO_TRY(zo_pool_open(self->threads - 1, &self->write.pool));
    status = zo_trainer_copy_save(self->copy, &self->write, &self->written);
    zo_pool_close(self->write.pool);
    return status;
}

static void *run_thread(void *argument)
{
    struct zo_saving_thread *self = argument;

    if (write_copy(self) != ZO_OK) {
        self->failure = *zo_err_last();
    }
    atomic_store(&self->is_done, true);
    return NULL;
}

enum zo_status
zo_saving_thread_open(const struct zo_saving_thread_options *options,
                      struct zo_saving_thread **thread_out)
{
    struct zo_saving_thread *self = NULL;
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*self), "a thread that saves", &self));
    self->write = options->write;
    self->settings = *options->settings;
    for (size_t i = 0; i < self->settings.count; i++) {
        self->settings.items[i].value = self->settings.texts[i];
    }
    self->run = *options->run;
    self->write.settings = self->settings.items;
    self->write.setting_count = self->settings.count;
    self->write.run = &self->run;
    self->threads = options->threads;
    self->step = options->step;
    self->copy = options->copy;
    status = zo_thread_start("save", run_thread, self, &self->thread);
    if (status != ZO_OK) {
        zo_free(self);
        return status;
    }
    *thread_out = self;
    return ZO_OK;
}

bool zo_saving_thread_is_done(const struct zo_saving_thread *thread)
{
    return atomic_load(&thread->is_done);
}

enum zo_status zo_saving_thread_join(struct zo_saving_thread *thread,
                                     int64_t *step_out,
                                     struct zo_state_written *written_out)
{
    struct zo_err failure;

    (void)pthread_join(thread->thread, NULL);
    failure = thread->failure;
    *step_out = thread->step;
    *written_out = thread->written;
    zo_free(thread);
    return failure.status == ZO_OK ? ZO_OK : zo_err_adopt(&failure);
}
