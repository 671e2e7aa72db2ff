/*
 * Signals that ask a run to stop.
 *
 * Layer 8.  SIGTERM, SIGHUP and the first SIGINT set a flag that the run
 * looks at between steps; a second SIGINT ends the process at once; SIGUSR1
 * sets another.  A signal
 * that the parent had ignored (nohup, background jobs) stays ignored.  Exit
 * codes are 128 + signal: 129, 130, 143.
 *
 * Signals must reach the main thread alone: threads are started with all of
 * them blocked (src/base/thread.h).
 */
#ifndef ZO_SRC_CLI_SIGNALS_H
#define ZO_SRC_CLI_SIGNALS_H

#include <stdbool.h>

#include "src/base/folders.h"

ZO_C_BEGIN

/*
 * First in main().  A file that reaches the limit on its size (ulimit -f) is
 * a failed write, which is told and cleaned up after, and not the end.
 */
void zo_signals_begin(void);

/*
 * Of a run that is being prepared: a signal to stop ends the process at once,
 * with exit code 1, or 128 + signal when it would have gone on from a state;
 * SIGUSR1 is kept for step 1.  May be called again with what is known by then.
 */
void zo_signals_expect(bool state_is_there);

/*
 * What such an end removes: those of the folders that are empty.  Borrowed,
 * until this is called with NULL; may be called before they are made.
 */
void zo_signals_remove(struct zo_folders *folders);

/*
 * From now on; after zo_signals_expect().  Also ignores SIGPIPE, so that a
 * reader that leaves (of a metrics pipe) is a failed write and not the end of
 * the run.
 */
void zo_signals_catch(void);

/*
 * What the first SIGINT answers on standard error, at once and not at the
 * next step border; up to 255 bytes are kept.
 */
void zo_signals_announce(const char *text);

/* Whether SIGUSR1, which asks for a save, has come since the last call. */
bool zo_signals_take_usr1(void);

/* The first signal that came, or 0. */
int zo_signals_caught(void);

/* "SIGINT", ... of a signal that is caught here. */
const char *zo_signals_name(int signal);

ZO_C_END

#endif
