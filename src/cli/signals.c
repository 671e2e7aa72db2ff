#include "src/cli/signals.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The flags of the program: a handler can reach nothing else. */
static volatile sig_atomic_t signal_caught, usr1_caught;

/* What it says; two, so that one is whole while the other is written. */
static char announcements[2][256];
static volatile sig_atomic_t announcement;

static const struct {
    int number;
    const char *name;
} signals[] = {{SIGHUP, "SIGHUP"}, {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}};

static void remember(int number)
{
    const int error = errno;

    if (signal_caught == 0) {
        signal_caught = number;
    }
    if (number == SIGINT) {
        const char *text = announcements[announcement];
        const ssize_t put = write(STDERR_FILENO, text, strlen(text));

        (void)put;
    }
    errno = error;
}

static void remember_usr1(int number)
{
    (void)number;
    usr1_caught = 1;
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
    action =
        (struct sigaction){.sa_handler = remember_usr1, .sa_flags = SA_RESTART};
    (void)sigaction(SIGUSR1, &action, NULL);
}

void zo_signals_announce(const char *text)
{
    const int next = 1 - announcement;

    (void)snprintf(announcements[next], sizeof(announcements[next]), "%s",
                   text);
    announcement = next;
}

bool zo_signals_take_usr1(void)
{
    const bool is_caught = usr1_caught != 0;

    usr1_caught = 0;
    return is_caught;
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
