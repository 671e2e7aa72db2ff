#include "src/checkpoint/zip_archive.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/crc32.h"
#include "src/base/memory.h"

/* APPNOTE.TXT 6.3.10, section 4.3; all numbers are little-endian. */
#define LOCAL_MAGIC   0x04034b50u
#define CENTRAL_MAGIC 0x02014b50u
#define END_MAGIC     0x06054b50u
#define END64_MAGIC   0x06064b50u
#define WHERE64_MAGIC 0x07064b50u
#define LOCAL_BYTES   30
#define CENTRAL_BYTES 46
#define END_BYTES     22
#define END64_BYTES   56
#define WHERE64_BYTES 20
#define COMMENT_MAX   65535
#define ZIP64_EXTRA   1
#define METHOD_STORED 0
#define FLAG_ENCRYPT  1u

/* 200,000 entries of torch.save(); a model has hundreds. */
#define PIECE_BYTES         ((size_t)1 << 20)
#define DIRECTORY_BYTES_MAX ((uint64_t)16 << 20)

static uint64_t get(const char *bytes, size_t count)
{
    uint64_t value = 0;

    for (size_t i = 0; i < count; i++) {
        value |= (uint64_t)(unsigned char)bytes[i] << (8 * i);
    }
    return value;
}

/* The part of the file that the end record claims. */
struct directory {
    uint64_t count, size_bytes, at;
    uint64_t end_at; /* where the end records begin */
};

static enum zo_status find_end(const struct zo_disk_file *file, char *tail,
                               size_t tail_bytes, struct directory *found)
{
    const uint64_t tail_at = file->size_bytes - tail_bytes;

    for (size_t i = tail_bytes - END_BYTES + 1; i-- > 0;) {
        const char *end = tail + i;

        if (get(end, 4) != END_MAGIC ||
            get(end + 20, 2) != tail_bytes - i - END_BYTES) {
            continue;
        }
        found->count = get(end + 10, 2);
        found->size_bytes = get(end + 12, 4);
        found->at = get(end + 16, 4);
        found->end_at = tail_at + i;
        if (get(end + 4, 2) != get(end + 6, 2) ||
            get(end + 8, 2) != get(end + 10, 2)) {
            return ZO_FAIL(ZO_E_NOSUPPORT,
                           "%s is one part of an archive in several",
                           file->path);
        }
        return ZO_OK;
    }
    return ZO_FAIL(ZO_E_CORRUPT,
                   "%s starts as a zip archive but has no end (%llu bytes): a "
                   "download that was cut short; fetch it again",
                   file->path, (unsigned long long)file->size_bytes);
}

/* The 64-bit end record, when there is one, replaces the 32-bit fields. */
static enum zo_status read_end64(const struct zo_disk_file *file,
                                 struct directory *found)
{
    char where[WHERE64_BYTES], end[END64_BYTES];
    uint64_t end_at;

    if (found->end_at < WHERE64_BYTES + END64_BYTES) {
        return ZO_OK;
    }
    ZO_TRY(zo_disk_read(file, found->end_at - sizeof(where), where,
                        sizeof(where)));
    if (get(where, 4) != WHERE64_MAGIC) {
        return ZO_OK;
    }
    end_at = get(where + 8, 8);
    if (end_at > found->end_at - sizeof(where) - sizeof(end)) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: zip64 end record at %llu of %llu bytes", file->path,
                       (unsigned long long)end_at,
                       (unsigned long long)file->size_bytes);
    }
    ZO_TRY(zo_disk_read(file, end_at, end, sizeof(end)));
    if (get(end, 4) != END64_MAGIC) {
        return ZO_FAIL(ZO_E_CORRUPT, "%s: no zip64 end record at byte %llu",
                       file->path, (unsigned long long)end_at);
    }
    found->count = get(end + 32, 8);
    found->size_bytes = get(end + 40, 8);
    found->at = get(end + 48, 8);
    found->end_at = end_at;
    return ZO_OK;
}

static enum zo_status find_directory(const struct zo_disk_file *file,
                                     struct directory *found)
{
    const size_t tail_bytes = file->size_bytes < END_BYTES + COMMENT_MAX
                                  ? (size_t)file->size_bytes
                                  : END_BYTES + COMMENT_MAX;
    enum zo_status status;
    char *tail = NULL;

    ZO_TRY(zo_alloc(tail_bytes, 1, "the end of a zip archive", &tail));
    ZO_TRY_GOTO(free_tail, zo_disk_read(file, file->size_bytes - tail_bytes,
                                        tail, tail_bytes));
    ZO_TRY_GOTO(free_tail, find_end(file, tail, tail_bytes, found));
    ZO_TRY_GOTO(free_tail, read_end64(file, found));
    if (found->at > found->end_at ||
        found->size_bytes > found->end_at - found->at ||
        found->count > found->size_bytes / CENTRAL_BYTES ||
        found->size_bytes > DIRECTORY_BYTES_MAX) {
        status = ZO_FAIL(ZO_E_CORRUPT,
                         "%s: a zip directory of %llu entries, %llu bytes at "
                         "%llu; the file has %llu bytes, 16 MiB are the limit",
                         file->path, (unsigned long long)found->count,
                         (unsigned long long)found->size_bytes,
                         (unsigned long long)found->at,
                         (unsigned long long)file->size_bytes);
    }

free_tail:
    zo_free(tail);
    return status;
}

/* "a/b" is fine; "/a", "a/../b", "..", "a\b" are not. */
static bool is_clean_name(const char *name, size_t length)
{
    size_t start = 0;

    if (length == 0 || name[0] == '/' || memchr(name, '\\', length) != NULL ||
        memchr(name, '\0', length) != NULL) {
        return false;
    }
    for (size_t i = 0; i <= length; i++) {
        if (i == length || name[i] == '/') {
            if (i - start == 2 && memcmp(name + start, "..", 2) == 0) {
                return false;
            }
            start = i + 1;
        }
    }
    return true;
}

/* Takes the 64-bit values of the fields whose 32 bits are all ones. */
static bool apply_zip64(const char *extra, size_t extra_bytes,
                        struct zo_zip_entry *entry)
{
    uint64_t *const fields[] = {&entry->size_bytes, &entry->stored_bytes,
                                &entry->header_at};
    const char *value = NULL;
    size_t rest = 0;

    while (value == NULL && extra_bytes >= 4) {
        const size_t size_bytes = (size_t)get(extra + 2, 2);

        if (size_bytes > extra_bytes - 4) {
            return false;
        }
        if (get(extra, 2) == ZIP64_EXTRA) {
            value = extra + 4;
            rest = size_bytes;
        }
        extra += 4 + size_bytes;
        extra_bytes -= 4 + size_bytes;
    }
    for (size_t i = 0; i < ZO_COUNT(fields); i++) {
        if (*fields[i] != UINT32_MAX) {
            continue;
        }
        if (rest < 8) {
            return false;
        }
        *fields[i] = get(value, 8);
        value += 8;
        rest -= 8;
    }
    return true;
}

/* One record of the directory at `at`; returns its length, 0 if it is bad. */
static size_t read_entry(char *at, size_t rest, struct zo_zip_entry *entry)
{
    size_t name_bytes, extra_bytes, comment_bytes, total;
    char *name = at + CENTRAL_BYTES;

    if (rest < CENTRAL_BYTES || get(at, 4) != CENTRAL_MAGIC) {
        return 0;
    }
    name_bytes = (size_t)get(at + 28, 2);
    extra_bytes = (size_t)get(at + 30, 2);
    comment_bytes = (size_t)get(at + 32, 2);
    total = CENTRAL_BYTES + name_bytes + extra_bytes + comment_bytes;
    if (total > rest) {
        return 0;
    }
    entry->flags = (unsigned)get(at + 8, 2);
    entry->method = (unsigned)get(at + 10, 2);
    entry->crc32 = (uint32_t)get(at + 16, 4);
    entry->stored_bytes = get(at + 20, 4);
    entry->size_bytes = get(at + 24, 4);
    entry->header_at = get(at + 42, 4);
    if (!apply_zip64(name + name_bytes, extra_bytes, entry)) {
        return 0;
    }
    /* Over the last byte of the fields, already read: room for the 0. */
    (void)memmove(name - 1, name, name_bytes);
    name[(ptrdiff_t)name_bytes - 1] = '\0';
    entry->name = name - 1;
    return is_clean_name(entry->name, name_bytes) ? total : SIZE_MAX;
}

static enum zo_status read_entries(const struct zo_disk_file *file,
                                   struct zo_zip_archive *archive,
                                   const struct directory *found)
{
    char *at = archive->directory;
    size_t rest = (size_t)found->size_bytes;

    for (archive->count = 0; archive->count < found->count; archive->count++) {
        struct zo_zip_entry *entry = &archive->entries[archive->count];
        const size_t total = read_entry(at, rest, entry);

        if (total == SIZE_MAX) {
            return ZO_FAIL(ZO_E_CORRUPT,
                           "%s: entry name \"%.200s\" leaves the archive's "
                           "folder: refused",
                           file->path, entry->name);
        }
        if (total == 0) {
            return ZO_FAIL(ZO_E_CORRUPT,
                           "%s: zip directory entry %zu of %llu is damaged",
                           file->path, archive->count + 1,
                           (unsigned long long)found->count);
        }
        at += total;
        rest -= total;
    }
    return ZO_OK;
}

static int compare_places(const void *a, const void *b)
{
    const struct zo_zip_entry *left = a, *right = b;

    return left->header_at < right->header_at
               ? -1
               : left->header_at > right->header_at;
}

static int compare_names(const void *a, const void *b)
{
    const struct zo_zip_entry *left = a, *right = b;

    return strcmp(left->name, right->name);
}

/* Entries end before the next one begins; no name occurs twice. */
static enum zo_status check_entries(const struct zo_disk_file *file,
                                    struct zo_zip_archive *archive,
                                    uint64_t directory_at)
{
    struct zo_zip_entry *entries = archive->entries;
    const size_t count = archive->count;

    qsort(entries, count, sizeof(entries[0]), compare_places);
    for (size_t i = 0; i < count; i++) {
        struct zo_zip_entry *entry = &entries[i];

        entry->limit_at =
            i + 1 < count ? entries[i + 1].header_at : directory_at;
        if (entry->header_at > entry->limit_at ||
            entry->limit_at - entry->header_at < LOCAL_BYTES ||
            entry->stored_bytes >
                entry->limit_at - entry->header_at - LOCAL_BYTES) {
            return ZO_FAIL(ZO_E_CORRUPT,
                           "%s: entry \"%.200s\", %llu bytes at %llu, runs "
                           "into what begins at %llu",
                           file->path, entry->name,
                           (unsigned long long)entry->stored_bytes,
                           (unsigned long long)entry->header_at,
                           (unsigned long long)entry->limit_at);
        }
    }
    qsort(entries, count, sizeof(entries[0]), compare_names);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(entries[i - 1].name, entries[i].name) == 0) {
            return ZO_FAIL(ZO_E_CORRUPT, "%s: entry \"%.200s\" occurs twice",
                           file->path, entries[i].name);
        }
    }
    return ZO_OK;
}

enum zo_status zo_zip_archive_open(const struct zo_disk_file *file,
                                   struct zo_zip_archive *archive_out)
{
    struct zo_zip_archive archive = {0};
    struct directory found = {0};
    enum zo_status status;
    char magic[4] = {0};

    if (file->size_bytes >= sizeof(magic)) {
        ZO_TRY(zo_disk_read(file, 0, magic, sizeof(magic)));
    }
    if (get(magic, 4) != LOCAL_MAGIC || file->size_bytes < END_BYTES) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s (%llu bytes) is no zip archive, as torch.save() "
                       "writes",
                       file->path, (unsigned long long)file->size_bytes);
    }
    ZO_TRY(find_directory(file, &found));
    ZO_TRY_GOTO(close_archive, zo_alloc((size_t)found.size_bytes, 1,
                                        "a zip directory", &archive.directory));
    ZO_TRY_GOTO(close_archive,
                zo_alloc((size_t)found.count, sizeof(archive.entries[0]),
                         "a zip directory", &archive.entries));
    ZO_TRY_GOTO(close_archive, zo_disk_read(file, found.at, archive.directory,
                                            (size_t)found.size_bytes));
    ZO_TRY_GOTO(close_archive, read_entries(file, &archive, &found));
    ZO_TRY_GOTO(close_archive, check_entries(file, &archive, found.at));
    *archive_out = archive;
    return ZO_OK;

close_archive:
    zo_zip_archive_close(&archive);
    return status;
}

void zo_zip_archive_close(struct zo_zip_archive *archive)
{
    zo_free(archive->entries);
    zo_free(archive->directory);
    *archive = (struct zo_zip_archive){0};
}

const struct zo_zip_entry *
zo_zip_archive_find(const struct zo_zip_archive *archive, const char *name)
{
    const struct zo_zip_entry wanted = {.name = name};

    return bsearch(&wanted, archive->entries, archive->count,
                   sizeof(archive->entries[0]), compare_names);
}

enum zo_status zo_zip_archive_locate(const struct zo_disk_file *file,
                                     const struct zo_zip_entry *entry,
                                     uint64_t *data_at_out)
{
    char local[LOCAL_BYTES];
    uint64_t data_at;

    if (entry->method != METHOD_STORED ||
        entry->stored_bytes != entry->size_bytes) {
        return ZO_FAIL(ZO_E_NOSUPPORT,
                       "%s: entry \"%.200s\" is compressed (method %u%s); "
                       "torch.save() stores entries as they are: load and "
                       "save the file again with PyTorch",
                       file->path, entry->name, entry->method,
                       entry->method == 8 ? ", deflate" : "");
    }
    if ((entry->flags & FLAG_ENCRYPT) != 0) {
        return ZO_FAIL(ZO_E_NOSUPPORT, "%s: entry \"%.200s\" is encrypted",
                       file->path, entry->name);
    }
    ZO_TRY(zo_disk_read(file, entry->header_at, local, sizeof(local)));
    data_at = entry->header_at + LOCAL_BYTES + get(local + 26, 2) +
              get(local + 28, 2);
    if (get(local, 4) != LOCAL_MAGIC || get(local + 8, 2) != entry->method ||
        get(local + 26, 2) != strlen(entry->name) ||
        data_at > entry->limit_at ||
        entry->size_bytes > entry->limit_at - data_at) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: entry \"%.200s\": its header at byte %llu "
                       "contradicts the zip directory",
                       file->path, entry->name,
                       (unsigned long long)entry->header_at);
    }
    *data_at_out = data_at;
    return ZO_OK;
}

static enum zo_status check_entry(const struct zo_disk_file *file,
                                  const struct zo_zip_entry *entry, char *piece)
{
    uint64_t data_at = 0;
    uint32_t crc = 0;

    ZO_TRY(zo_zip_archive_locate(file, entry, &data_at));
    for (uint64_t at = 0; at < entry->size_bytes; at += PIECE_BYTES) {
        const uint64_t rest = entry->size_bytes - at;
        const size_t now = rest < PIECE_BYTES ? (size_t)rest : PIECE_BYTES;

        ZO_TRY(zo_disk_read(file, data_at + at, piece, now));
        crc = zo_crc32(crc, piece, now);
    }
    return crc == entry->crc32
               ? ZO_OK
               : ZO_FAIL(ZO_E_CORRUPT,
                         "%s: the CRC-32 of \"%.200s\" is %08x, its archive "
                         "says %08x; fetch it again",
                         file->path, entry->name, (unsigned)crc,
                         (unsigned)entry->crc32);
}

enum zo_status zo_zip_archive_check(const struct zo_disk_file *file,
                                    const struct zo_zip_archive *archive,
                                    size_t *checked_out)
{
    enum zo_status status = ZO_OK;
    size_t checked = 0;
    char *piece = NULL;

    ZO_TRY(zo_alloc(PIECE_BYTES, 1, "a piece of a file", &piece));
    for (size_t i = 0; i < archive->count; i++) {
        if (archive->entries[i].crc32 != 0) {
            ZO_TRY_GOTO(free_piece,
                        check_entry(file, &archive->entries[i], piece));
            checked++;
        }
    }
    *checked_out = checked;

free_piece:
    zo_free(piece);
    return status;
}
