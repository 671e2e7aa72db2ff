/*
 * Files as model directories need them: regular, read at an offset, written
 * once from front to back, and on the disk when a finish has returned.
 *
 * Layer 6.  Every message names the path; every failed write also the bytes
 * wanted and the bytes that are free.
 *
 * Threads: reads of one file may run in several threads at once.
 */
#ifndef ZO_SRC_CHECKPOINT_DISK_FILE_H
#define ZO_SRC_CHECKPOINT_DISK_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/status.h"

ZO_C_BEGIN

struct zo_disk_file {
    char *path;          /* owned */
    int fd;              /* -1: none */
    uint64_t size_bytes; /* at open; or written so far */
};

/*
 * Opens a regular file for reading; links are followed, and a FIFO or a
 * device neither blocks nor is read.  Ended with zo_disk_close().
 *
 *   ZO_E_USAGE   it cannot be opened, or is something else
 */
enum zo_status zo_disk_open(const char *path,
                            struct zo_disk_file *file_out) ZO_MUST_CHECK;

/*
 * Reads exactly size_bytes at an offset.
 *
 *   ZO_E_IO      the read failed, or the file ends before
 */
enum zo_status zo_disk_read(const struct zo_disk_file *file,
                            uint64_t offset_bytes, void *buffer,
                            size_t size_bytes) ZO_MUST_CHECK;

/*
 * The whole of a small file, with a 0 byte after it.  The caller owns
 * *text_out and ends it with zo_free().
 *
 *   ZO_E_CORRUPT   it is larger than limit_bytes; nothing was allocated
 *   and those of zo_disk_open() and zo_disk_read()
 */
enum zo_status zo_disk_read_all(const char *path, size_t limit_bytes,
                                char **text_out,
                                size_t *size_out) ZO_MUST_CHECK;

/* Creates a file, in place of any other of that name.  ZO_E_IO. */
enum zo_status zo_disk_create(const char *path,
                              struct zo_disk_file *file_out) ZO_MUST_CHECK;

/*
 * The same, for data that nobody reads soon: where the file system can, it
 * takes them without a copy in the page cache, if they begin at a multiple of
 * ZO_DISK_BLOCK in memory and are as long as one.  What is not so, or is
 * refused, and all that follows, goes through the page cache.
 */
enum zo_status
zo_disk_create_direct(const char *path,
                      struct zo_disk_file *file_out) ZO_MUST_CHECK;
#define ZO_DISK_BLOCK 4096

enum zo_status zo_disk_append(struct zo_disk_file *file, const void *data,
                              size_t size_bytes) ZO_MUST_CHECK;

/* Waits until the data is on the disk, and closes. */
enum zo_status zo_disk_finish(struct zo_disk_file *file) ZO_MUST_CHECK;

/* Closes whatever the state; a second time does nothing. */
void zo_disk_close(struct zo_disk_file *file);

/* Creates a file of size_bytes bytes and finishes it. */
enum zo_status zo_disk_write_all(const char *path, const void *data,
                                 size_t size_bytes) ZO_MUST_CHECK;

/* Moves a file or folder over `to`; its folder is not synced. */
enum zo_status zo_disk_rename(const char *from, const char *to) ZO_MUST_CHECK;

/*
 * Removes a folder that holds files and links only, a file, or a link itself;
 * what is not there is no error.
 *
 *   ZO_E_IO      something could not be removed, such as a folder inside
 */
enum zo_status zo_disk_remove(const char *path) ZO_MUST_CHECK;

/* Waits until the names in a folder are on the disk. */
enum zo_status zo_disk_sync_folder(const char *path) ZO_MUST_CHECK;

/* Bytes that an ordinary user may still write there; UINT64_MAX: unknown. */
uint64_t zo_disk_free_bytes(const char *path);

/* "folder/name"; owned by the caller, ended with zo_free(). */
enum zo_status zo_disk_join(const char *folder, const char *name,
                            char **path_out) ZO_MUST_CHECK;

/*
 * Splits a path into its folder ("." if it names none) and its last part.
 * Both are owned by the caller and ended with zo_free().
 *
 *   ZO_E_USAGE   the last part is empty, "." or ".."
 */
enum zo_status zo_disk_split(const char *path, char **folder_out,
                             char **name_out) ZO_MUST_CHECK;

ZO_C_END

#endif
