#include "src/cli/signals.h"

#include <signal.h>
#include <stddef.h>

/* The one flag of the program: a handler can reach nothing else. */
static volatile sig_atomic_t signal_caught;

static const struct {
    int number;
    const char *name;
} signals[] = {{SIGHUP, "SIGHUP"}, {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}};

static void remember(int number)
{
    if (signal_caught == 0) {
        signal_caught = number;
    }
}

void zo_signals_begin(void)
{
    const struct sigaction action = {.sa_handler = SIG_IGN};

    (void)sigaction(SIGXFSZ, &action, NULL);
}

void zo_signals_catch(void)
{
    struct sigaction action = {.sa_handler = remember}, old;

    for (size_t i = 0; i < ZO_COUNT(signals); i++) {
        /* After the first SIGINT the next one has its default action. */
        action.sa_flags =
            SA_RESTART | (signals[i].number == SIGINT ? (int)SA_RESETHAND : 0);
        (void)sigaction(signals[i].number, NULL, &old);
        if (old.sa_handler != SIG_IGN) {
            (void)sigaction(signals[i].number, &action, NULL);
        }
    }
    action = (struct sigaction){.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &action, NULL);
}

int zo_signals_caught(void)
{
    return signal_caught;
}

const char *zo_signals_name(int signal)
{
    for (size_t i = 0; i < ZO_COUNT(signals); i++) {
        if (signals[i].number == signal) {
            return signals[i].name;
        }
    }
    return "a signal";
}
