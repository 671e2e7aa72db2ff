#include "src/base/thread.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum zo_status zo_thread_start(const char *name, void *(*run)(void *),
                               void *argument, pthread_t *thread_out)
{
    char short_name[16]; /* the kernel's limit */
    sigset_t all, before;
    pthread_t thread;
    int error;

    /* A thread inherits the mask: none can slip in before it is set. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, NULL, run, argument);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return ZO_FAIL_NATIVE(ZO_E_NOMEM, error, "cannot start thread %s: %s",
                              name, strerror(error));
    }
    (void)snprintf(short_name, sizeof(short_name), "%s", name);
    (void)pthread_setname_np(thread, short_name);
    *thread_out = thread;
    return ZO_OK;
}
