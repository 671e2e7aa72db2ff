/*
 * Starting a thread.  Layer 0.
 */
#ifndef ZO_SRC_BASE_THREAD_H
#define ZO_SRC_BASE_THREAD_H

#include <pthread.h>

#include "src/base/status.h"

ZO_C_BEGIN

/*
 * Starts a thread in which every signal is blocked, so that signals reach
 * the main thread alone.  `name` is what top -H shows, cut to 15 bytes.  The
 * caller ends it with pthread_join().
 *
 *   ZO_E_NOMEM   the system refuses a thread; native is errno
 */
enum zo_status zo_thread_start(const char *name, void *(*run)(void *),
                               void *argument,
                               pthread_t *thread_out) ZO_MUST_CHECK;

ZO_C_END

#endif
