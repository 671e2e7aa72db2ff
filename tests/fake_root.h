/*
 * A made-up /proc and /sys, for tests of what reads them: a folder of the
 * working directory, with the files that a test puts there.
 */
#ifndef ZO_TESTS_FAKE_ROOT_H
#define ZO_TESTS_FAKE_ROOT_H

#include <stdbool.h>

/* The folder, made at the first call; NULL: it cannot be. */
const char *fake_root(void);

/* Writes fake_root()/name, with its folders. */
bool fake_root_put(const char *name, const char *text);

/* Takes all files away again, with their folders. */
void fake_root_clear(void);

/* And the folder itself. */
void fake_root_remove(void);

#endif
