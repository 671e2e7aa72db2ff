/*
 * Faults of the disk: a test program that links disk_faults.c calls the
 * functions there in place of the C library's write, fsync, rename, renameat2
 * and mkdir, and can make the nth call fail; and of unlinkat, which empties
 * folders, and can fail as long as it is told to.
 */
#ifndef ZO_TESTS_DISK_FAULTS_H
#define ZO_TESTS_DISK_FAULTS_H

#include <stdbool.h>

extern int disk_fault_at;         /* the call that fails; 0: none */
extern int disk_fault_calls;      /* so far; for the test to clear */
extern int disk_lost_at;          /* the write that does nothing; likewise */
extern int disk_lost_calls;       /* so far; likewise */
extern bool disk_cannot_exchange; /* no RENAME_EXCHANGE, as on NFS */
extern bool disk_cannot_remove;   /* files stay in their folders */

/* Writes past the page cache: so many were asked for; why all are refused, or
 * 0. */
extern int disk_direct_calls;
extern int disk_direct_error;

/* f, d: a file, a folder was synced; r: a name changed. */
extern char disk_events[64];

#endif
