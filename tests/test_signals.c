/*
 * Signals, each tried in a child process of its own.
 */
#include "src/cli/signals.h"

#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/tap.h"

typedef int (*child_fn)(void);

/* What a child process that runs fn ends with, as waitpid() tells it. */
static int run_child(child_fn fn)
{
    int status = -1;
    const pid_t child = fork();

    if (child == 0) {
        _exit(fn());
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return -1;
    }
    return status;
}

static int child_catches(int number)
{
    zo_signals_catch();
    if (zo_signals_caught() != 0) {
        return 1;
    }
    (void)raise(number);
    return zo_signals_caught() == number ? 0 : 2;
}

static int child_int(void)
{
    return child_catches(SIGINT);
}

static int child_term(void)
{
    return child_catches(SIGTERM);
}

static int child_hup(void)
{
    return child_catches(SIGHUP);
}

static void test_each_is_caught(void)
{
    TAP_CHECK_INT(run_child(child_int), 0);
    TAP_CHECK_INT(run_child(child_term), 0);
    TAP_CHECK_INT(run_child(child_hup), 0);
}

static int child_second_int(void)
{
    zo_signals_catch();
    (void)raise(SIGINT);
    (void)raise(SIGINT);
    return 0; /* not reached */
}

static void test_second_int_ends(void)
{
    const int status = run_child(child_second_int);

    TAP_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

static int child_second_term(void)
{
    zo_signals_catch();
    (void)raise(SIGTERM);
    (void)raise(SIGTERM);
    (void)raise(SIGHUP);
    return zo_signals_caught() == SIGTERM ? 0 : 1;
}

static void test_others_do_not(void)
{
    TAP_CHECK_INT(run_child(child_second_term), 0);
}

/* As nohup starts its program. */
static int child_nohup(void)
{
    (void)signal(SIGHUP, SIG_IGN);
    zo_signals_catch();
    (void)raise(SIGHUP);
    return zo_signals_caught();
}

static void test_ignored_stays_ignored(void)
{
    TAP_CHECK_INT(run_child(child_nohup), 0);
}

static int child_pipe(void)
{
    int ends[2];

    zo_signals_catch();
    if (pipe(ends) != 0 || close(ends[0]) != 0) {
        return 1;
    }
    return write(ends[1], "x", 1) == -1 ? 0 : 2;
}

static void test_pipe(void)
{
    TAP_CHECK_INT(run_child(child_pipe), 0);
}

static void test_names(void)
{
    TAP_CHECK(strcmp(zo_signals_name(SIGTERM), "SIGTERM") == 0);
    TAP_CHECK(strcmp(zo_signals_name(SIGKILL), "a signal") == 0);
}

static int child_usr1(void)
{
    zo_signals_catch();
    if (zo_signals_take_usr1()) {
        return 1;
    }
    (void)raise(SIGUSR1);
    if (zo_signals_caught() != 0 || !zo_signals_take_usr1()) {
        return 2;
    }
    return zo_signals_take_usr1() ? 3 : 0;
}

static void test_usr1(void)
{
    TAP_CHECK_INT(run_child(child_usr1), 0);
}

/* The answer to SIGINT, and to no other, is there when it returns. */
static int child_answers(void)
{
    static const char text[] = "wait 3 s";
    char got[64];
    int ends[2];

    if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) {
        return 1;
    }
    zo_signals_announce("wait 9 s");
    zo_signals_announce(text);
    zo_signals_catch();
    (void)raise(SIGTERM);
    (void)raise(SIGINT);
    return read(ends[0], got, sizeof(got)) == sizeof(text) - 1 &&
                   memcmp(got, text, sizeof(text) - 1) == 0
               ? 0
               : 2;
}

static void test_answers(void)
{
    TAP_CHECK_INT(run_child(child_answers), 0);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"SIGINT, SIGTERM and SIGHUP set the flag", test_each_is_caught},
        {"a second SIGINT ends the process", test_second_int_ends},
        {"the first signal is the one that counts", test_others_do_not},
        {"a signal that nohup ignored stays ignored",
         test_ignored_stays_ignored},
        {"a reader that leaves is a failed write", test_pipe},
        {"SIGUSR1 asks for a save, once", test_usr1},
        {"SIGINT is answered at once", test_answers},
        {"signals have names", test_names},
    };
    return tap_run(cases, TAP_COUNT(cases));
}
