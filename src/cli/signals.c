#include "src/cli/signals.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The flags of the program: a handler can reach nothing else. */
static volatile sig_atomic_t signal_caught, usr1_caught, has_state;
static struct zo_folders *volatile removed_folders; /* or NULL */

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

/* Before step 1 there is nothing to save, nor, as yet, a folder to keep. */
static void leave(int number)
{
    static const char before[] = "zero-offload: stopped by ";
    static const char after[] = " before its first step\n";
    const char *name = zo_signals_name(number);
    ssize_t put = write(STDERR_FILENO, before, sizeof(before) - 1);

    put += write(STDERR_FILENO, name, strlen(name));
    put += write(STDERR_FILENO, after, sizeof(after) - 1);
    (void)put;
    if (removed_folders != NULL) {
        zo_folders_remove(removed_folders);
    }
    _exit(has_state != 0 ? 128 + number : 1);
}

/* What the parent had ignored stays so. */
static void handle(int number, void (*handler)(int), int flags)
{
    const struct sigaction action = {.sa_handler = handler,
                                     .sa_flags = SA_RESTART | flags};
    struct sigaction old;

    (void)sigaction(number, NULL, &old);
    if (old.sa_handler != SIG_IGN) {
        (void)sigaction(number, &action, NULL);
    }
}

void zo_signals_begin(void)
{
    const struct sigaction action = {.sa_handler = SIG_IGN};

    (void)sigaction(SIGXFSZ, &action, NULL);
}

static void catch_usr1(void)
{
    const struct sigaction action = {.sa_handler = remember_usr1,
                                     .sa_flags = SA_RESTART};

    (void)sigaction(SIGUSR1, &action, NULL);
}

void zo_signals_expect(bool state_is_there)
{
    has_state = state_is_there;
    for (size_t i = 0; i < ZO_COUNT(signals); i++) {
        handle(signals[i].number, leave, 0);
    }
    catch_usr1();
}

void zo_signals_remove(struct zo_folders *folders)
{
    removed_folders = folders;
}

void zo_signals_catch(void)
{
    const struct sigaction action = {.sa_handler = SIG_IGN};

    for (size_t i = 0; i < ZO_COUNT(signals); i++) {
        /* After the first SIGINT the next one has its default action. */
        handle(signals[i].number, remember,
               signals[i].number == SIGINT ? (int)SA_RESETHAND : 0);
    }
    (void)sigaction(SIGPIPE, &action, NULL);
    catch_usr1();
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
