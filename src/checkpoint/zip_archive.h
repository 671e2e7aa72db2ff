/*
 * The directory of a zip archive whose entries are stored, not compressed.
 *
 * Layer 6.  Only what torch.save() writes, zip64 included.  Nothing is ever
 * unpacked to a path; names that would leave a folder are refused all the
 * same, since only an attack has them.  Entries may not overlap.
 */
#ifndef ZO_SRC_CHECKPOINT_ZIP_ARCHIVE_H
#define ZO_SRC_CHECKPOINT_ZIP_ARCHIVE_H

#include "src/checkpoint/disk_file.h"

ZO_C_BEGIN

struct zo_zip_entry {
    const char *name;    /* borrowed from the archive */
    uint64_t size_bytes; /* of the content */
    uint64_t stored_bytes;
    uint64_t header_at; /* of the file: its local header */
    uint64_t limit_at;  /* of the file: the next header or the directory */
    uint32_t crc32;     /* 0: torch.save() was told to compute none */
    unsigned method, flags;
};

/* All zero is closed. */
struct zo_zip_archive {
    struct zo_zip_entry *entries; /* owned; sorted by name */
    size_t count;
    char *directory; /* owned; holds the names */
};

/*
 * Reads the directory of an open file.  Ended with zo_zip_archive_close().
 *
 *   ZO_E_CORRUPT     it does not start as a zip archive, was cut short, or
 *                    contradicts itself; nothing is allocated that the file
 *                    is too short to fill
 *   ZO_E_NOSUPPORT   an archive in several parts
 */
enum zo_status
zo_zip_archive_open(const struct zo_disk_file *file,
                    struct zo_zip_archive *archive_out) ZO_MUST_CHECK;

void zo_zip_archive_close(struct zo_zip_archive *archive);

/* NULL if there is none. */
const struct zo_zip_entry *
zo_zip_archive_find(const struct zo_zip_archive *archive, const char *name);

/*
 * Where the bytes of an entry begin in the file.
 *
 *   ZO_E_NOSUPPORT   it is compressed or encrypted
 *   ZO_E_CORRUPT     its local header contradicts the directory
 */
enum zo_status zo_zip_archive_locate(const struct zo_disk_file *file,
                                     const struct zo_zip_entry *entry,
                                     uint64_t *data_at_out) ZO_MUST_CHECK;

/*
 * Reads every stored entry and compares its CRC-32; *checked_out is how many
 * had one.
 *
 *   ZO_E_CORRUPT   one differs; the text names it
 *   and those of zo_zip_archive_locate(), ZO_E_IO
 */
enum zo_status zo_zip_archive_check(const struct zo_disk_file *file,
                                    const struct zo_zip_archive *archive,
                                    size_t *checked_out) ZO_MUST_CHECK;

ZO_C_END

#endif
