#include "src/checkpoint/model_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"
#include "src/checkpoint/json_scan.h"
#include "src/checkpoint/state_reader.h"

#define PIECE_BYTES 65536
#define BLOCK_BYTES 4096 /* that disks give files room in */

/* Weights and states of other programs, by the end of their names. */
static const char *const weight_suffixes[] = {
    ".safetensors", ".safetensors.index.json",
    ".bin",         ".bin.index.json",
    ".pt",          ".pth",
    ".ckpt",        ".h5",
    ".msgpack",     ".gguf",
    ".onnx",        ".npz",
    ".partial",     ".state",
};

static bool ends_with(const char *name, const char *suffix)
{
    const size_t name_bytes = strlen(name), suffix_bytes = strlen(suffix);

    return name_bytes >= suffix_bytes &&
           strcmp(name + name_bytes - suffix_bytes, suffix) == 0;
}

/* Of a training state alone. */
static const char *const state_names[] = {ZO_STATE_MANIFEST, "README"};

static bool is_wanted(const char *name, bool is_state)
{
    for (size_t i = 0; is_state && i < ZO_COUNT(state_names); i++) {
        if (strcmp(name, state_names[i]) == 0) {
            return false;
        }
    }
    for (size_t i = 0; i < ZO_COUNT(weight_suffixes); i++) {
        if (ends_with(name, weight_suffixes[i])) {
            return false;
        }
    }
    return name[0] != '.';
}

/* Where a string stands in a text, quotes included. */
struct span {
    size_t begin, end;
};

/*
 * Finds the value of the outermost "torch_dtype", or of "dtype", its name
 * since transformers 4.56.  Empty if there is none, or if it is dtype
 * already.  The text is spoilt.
 */
static enum zo_status find_dtype(const char *path, char *text,
                                 size_t size_bytes, enum zo_dtype dtype,
                                 struct span *span_out)
{
    static const char *const names[] = {
        [ZO_F32] = "float32", [ZO_BF16] = "bfloat16", [ZO_F16] = "float16"};
    struct zo_json_scan scan;
    bool more = false;

    *span_out = (struct span){0, 0};
    ZO_TRY(zo_json_scan_begin(&scan, path, text, size_bytes));
    ZO_TRY(zo_json_scan_open(&scan, '{'));
    for (;;) {
        char *key = NULL, *value = NULL;
        size_t begin;

        ZO_TRY(zo_json_scan_more(&scan, '}', &more));
        if (!more) {
            return zo_json_scan_end(&scan);
        }
        ZO_TRY(zo_json_scan_key(&scan, &key));
        if ((strcmp(key, "torch_dtype") != 0 && strcmp(key, "dtype") != 0) ||
            zo_json_scan_peek(&scan) != '"') {
            ZO_TRY(zo_json_scan_skip(&scan));
            continue;
        }
        begin = scan.at;
        ZO_TRY(zo_json_scan_string(&scan, &value));
        if (strcmp(value, names[dtype]) != 0) {
            *span_out = (struct span){begin, scan.at};
        }
    }
}

static enum zo_status write_config(const char *path, const char *text,
                                   size_t size_bytes, struct span span,
                                   enum zo_dtype dtype)
{
    static const char *const values[] = {[ZO_F32] = "\"float32\"",
                                         [ZO_BF16] = "\"bfloat16\"",
                                         [ZO_F16] = "\"float16\""};
    const char *value = span.end > 0 ? values[dtype] : "";
    struct zo_disk_file file;
    enum zo_status status;

    ZO_TRY(zo_disk_create(path, &file));
    ZO_TRY_GOTO(close_file, zo_disk_append(&file, text, span.begin));
    ZO_TRY_GOTO(close_file, zo_disk_append(&file, value, strlen(value)));
    ZO_TRY_GOTO(close_file,
                zo_disk_append(&file, text + span.end, size_bytes - span.end));
    ZO_TRY_GOTO(close_file, zo_disk_finish(&file));

close_file:
    zo_disk_close(&file);
    return status;
}

/* Byte for byte, but for the value of torch_dtype when it has changed. */
static enum zo_status copy_config(const char *from, const char *to,
                                  enum zo_dtype dtype, struct zo_notes *notes)
{
    char *text = NULL, *scanned = NULL;
    size_t size_bytes = 0;
    struct span span = {0, 0};
    enum zo_status status;

    ZO_TRY(zo_disk_read_all(from, ZO_MODEL_FILE_BYTES_MAX, &text, &size_bytes));
    ZO_TRY_GOTO(free_text, zo_strndup(text, size_bytes, &scanned));
    status = find_dtype(from, scanned, size_bytes, dtype, &span);
    if (status == ZO_E_CORRUPT) { /* Python also takes NaN and Infinity */
        span = (struct span){0, 0};
        status = zo_note_add(notes, ZO_NOTE_WARN,
                             "copied as it is; its torch_dtype was not "
                             "compared: %s",
                             zo_err_last()->text);
    }
    if (status == ZO_OK) {
        status = write_config(to, text, size_bytes, span, dtype);
    }

free_text:
    zo_free(scanned);
    zo_free(text);
    return status;
}

static enum zo_status copy_plain(const char *from, const char *to)
{
    struct zo_disk_file source, target = {.fd = -1};
    char piece[PIECE_BYTES];
    enum zo_status status;

    ZO_TRY(zo_disk_open(from, &source));
    ZO_TRY_GOTO(close_files, zo_disk_create(to, &target));
    for (uint64_t at = 0; at < source.size_bytes; at += sizeof(piece)) {
        const uint64_t rest = source.size_bytes - at;
        const size_t now = rest < sizeof(piece) ? (size_t)rest : sizeof(piece);

        ZO_TRY_GOTO(close_files, zo_disk_read(&source, at, piece, now));
        ZO_TRY_GOTO(close_files, zo_disk_append(&target, piece, now));
    }
    ZO_TRY_GOTO(close_files, zo_disk_finish(&target));

close_files:
    zo_disk_close(&source);
    zo_disk_close(&target);
    return status;
}

/* Regular and of sane size, links followed; a note says what is left out. */
static enum zo_status is_copied(const char *path, struct zo_notes *notes,
                                bool *copied_out)
{
    const char *why = NULL;
    struct stat info;

    if (stat(path, &info) != 0) {
        why = strerror(errno);
    } else if (S_ISDIR(info.st_mode)) {
        why = "a folder";
    } else if (!S_ISREG(info.st_mode)) {
        why = "no regular file";
    } else if ((uint64_t)info.st_size > ZO_MODEL_FILE_BYTES_MAX) {
        why = "more than 256 MiB";
    }
    *copied_out = why == NULL;
    return why == NULL ? ZO_OK
                       : zo_note_add(notes, ZO_NOTE_INFO, "not copied: %s: %s",
                                     path, why);
}

static enum zo_status copy_file(const char *source, const char *target,
                                const char *name, enum zo_dtype dtype,
                                struct zo_notes *notes, bool *copied_out)
{
    char *from = NULL, *to = NULL;
    enum zo_status status;

    ZO_TRY(zo_disk_join(source, name, &from));
    ZO_TRY_GOTO(free_paths, zo_disk_join(target, name, &to));
    ZO_TRY_GOTO(free_paths, is_copied(from, notes, copied_out));
    if (*copied_out) {
        status = strcmp(name, "config.json") == 0
                     ? copy_config(from, to, dtype, notes)
                     : copy_plain(from, to);
    }

free_paths:
    zo_free(from);
    zo_free(to);
    return status;
}

/* A name, and the folder that has it. */
struct named {
    char *name;         /* owned */
    const char *folder; /* borrowed */
};

static int compare_named(const void *a, const void *b)
{
    const struct named *left = a, *right = b;

    return strcmp(left->name, right->name);
}

/* The files to copy, sorted, so that two copies come out alike. */
struct names {
    struct named *items;
    size_t count, capacity;
};

static void names_fini(struct names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        zo_free(names->items[i].name);
    }
    zo_free(names->items);
}

static bool is_of_tokenizer(const char *name)
{
    static const char *const prefixes[] = {
        "tokeniz", "special_tokens", "added_tokens", "chat_template", "vocab"};

    for (size_t i = 0; i < ZO_COUNT(prefixes); i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* Which files of a folder are taken. */
enum part { ALL, OF_TOKENIZER, ALL_BUT_TOKENIZER };

static enum zo_status list_names(const char *folder, enum part part,
                                 struct names *names)
{
    enum zo_status status = ZO_OK;
    const struct dirent *entry;
    const bool is_state = zo_state_is_one(folder);
    DIR *stream = opendir(folder);

    if (stream == NULL) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "cannot read folder %s: %s",
                              folder, strerror(errno));
    }
    while ((errno = 0, entry = readdir(stream)) != NULL) {
        if (!is_wanted(entry->d_name, is_state) ||
            (part != ALL &&
             is_of_tokenizer(entry->d_name) != (part == OF_TOKENIZER))) {
            continue;
        }
        ZO_TRY_GOTO(close_stream,
                    zo_grow(&names->items, names->count, &names->capacity,
                            sizeof(names->items[0]), "a list of files"));
        names->items[names->count] = (struct named){.folder = folder};
        ZO_TRY_GOTO(close_stream,
                    zo_strndup(entry->d_name, strlen(entry->d_name),
                               &names->items[names->count].name));
        names->count++;
    }
    if (errno != 0) {
        status = ZO_FAIL_NATIVE(ZO_E_IO, errno, "cannot read folder %s: %s",
                                folder, strerror(errno));
    }

close_stream:
    (void)closedir(stream);
    return status;
}

uint64_t zo_model_files_bytes(const char *folder)
{
    struct names names = {0};
    uint64_t bytes = 0;

    if (list_names(folder, ALL, &names) != ZO_OK) {
        names_fini(&names);
        return 0;
    }
    for (size_t i = 0; i < names.count; i++) {
        char *path = NULL;
        struct stat info;

        if (zo_disk_join(folder, names.items[i].name, &path) == ZO_OK &&
            stat(path, &info) == 0 && S_ISREG(info.st_mode) &&
            (uint64_t)info.st_size <= ZO_MODEL_FILE_BYTES_MAX) {
            bytes += ((uint64_t)info.st_size + BLOCK_BYTES - 1) / BLOCK_BYTES *
                     BLOCK_BYTES;
        }
        zo_free(path);
    }
    names_fini(&names);
    return bytes;
}

static enum zo_status copy_names(const struct names *names, const char *target,
                                 enum zo_dtype dtype, struct zo_notes *notes,
                                 struct zo_model_written *written)
{
    ZO_TRY(zo_alloc(names->count, sizeof(written->py_files[0]),
                    "a list of files", &written->py_files));
    for (size_t i = 0; i < names->count; i++) {
        const char *name = names->items[i].name;
        bool is_done = false;

        ZO_TRY(copy_file(names->items[i].folder, target, name, dtype, notes,
                         &is_done));
        written->file_count += is_done ? 1 : 0;
        if (is_done && ends_with(name, ".py")) {
            ZO_TRY(zo_strndup(name, strlen(name),
                              &written->py_files[written->py_count]));
            written->py_count++;
        }
    }
    return ZO_OK;
}

enum zo_status zo_model_files_copy(const char *source, const char *tokenizer,
                                   const char *target, enum zo_dtype dtype,
                                   struct zo_notes *notes,
                                   struct zo_model_written *written)
{
    struct names names = {0};
    enum zo_status status;

    status =
        list_names(source, tokenizer != NULL ? ALL_BUT_TOKENIZER : ALL, &names);
    if (status == ZO_OK && tokenizer != NULL) {
        status = list_names(tokenizer, OF_TOKENIZER, &names);
    }
    if (status == ZO_OK) {
        if (names.count > 1) {
            qsort(names.items, names.count, sizeof(names.items[0]),
                  compare_named);
        }
        status = copy_names(&names, target, dtype, notes, written);
    }
    names_fini(&names);
    return status;
}
