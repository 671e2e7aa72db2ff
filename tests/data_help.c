#include "tests/data_help.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/status.h"
#include "tests/tap.h"

#define PATH_BYTES  512
#define PATHS_MAX   8
#define MODEL_BYTES 8192

static char folder[64];

static void remove_folder(void)
{
    DIR *files = opendir(folder);
    const struct dirent *file;

    while (files != NULL && (file = readdir(files)) != NULL) {
        char path[PATH_BYTES];

        (void)snprintf(path, sizeof(path), "%s/%s", folder, file->d_name);
        (void)remove(path);
    }
    if (files != NULL) {
        (void)closedir(files);
    }
    (void)rmdir(folder);
}

const char *help_path(const char *name)
{
    static char paths[PATHS_MAX][PATH_BYTES];
    static size_t next;
    char *path = paths[next++ % PATHS_MAX];

    if (folder[0] == '\0') {
        (void)snprintf(folder, sizeof(folder), "zo-test-XXXXXX");
        if (mkdtemp(folder) == NULL) {
            (void)printf("Bail out! no folder for files\n");
            exit(EXIT_FAILURE);
        }
        (void)atexit(remove_folder);
    }
    (void)snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return path;
}

const char *help_write(const char *name, const void *bytes, size_t size_bytes)
{
    const char *path = help_path(name);
    FILE *file = fopen(path, "wb");

    if (file == NULL || fwrite(bytes, 1, size_bytes, file) != size_bytes ||
        fclose(file) != 0) {
        (void)printf("Bail out! cannot write %s\n", path);
        exit(EXIT_FAILURE);
    }
    return path;
}

const char *help_write_text(const char *name, const char *text)
{
    return help_write(name, text, strlen(text));
}

const char *help_shared(const char *relative)
{
    static char paths[PATHS_MAX][PATH_BYTES];
    static size_t next;
    char *path = paths[next++ % PATHS_MAX];
    const char *shared = getenv("ZERO_OFFLOAD_SHARED");

    (void)snprintf(path, PATH_BYTES, "%s/%s", shared != NULL ? shared : "",
                   relative);
    if (shared == NULL || shared[0] == '\0' || access(path, R_OK) != 0) {
        tap_skip("a file of ZERO_OFFLOAD_SHARED is not there");
        return NULL;
    }
    return path;
}

char *help_read(const char *path, size_t *size_bytes_out)
{
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    long size_bytes;

    if (file == NULL) {
        return NULL;
    }
    if (fseek(file, 0, SEEK_END) == 0 && (size_bytes = ftell(file)) >= 0 &&
        fseek(file, 0, SEEK_SET) == 0) {
        bytes = calloc(1, (size_t)size_bytes + 1);
        if (bytes != NULL &&
            fread(bytes, 1, (size_t)size_bytes, file) != (size_t)size_bytes) {
            free(bytes);
            bytes = NULL;
        }
        *size_bytes_out = (size_t)size_bytes;
    }
    (void)fclose(file);
    return bytes;
}

/* A protocol buffer under construction. */
struct proto {
    unsigned char bytes[MODEL_BYTES];
    size_t count;
};

static void put_varint(struct proto *proto, uint64_t value)
{
    while (value >= 0x80) {
        proto->bytes[proto->count++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    proto->bytes[proto->count++] = (unsigned char)value;
}

static void put_number(struct proto *proto, unsigned field, uint64_t value)
{
    put_varint(proto, field << 3);
    put_varint(proto, value);
}

static void put_bytes(struct proto *proto, unsigned field, const void *bytes,
                      size_t size_bytes)
{
    put_varint(proto, field << 3 | 2);
    put_varint(proto, size_bytes);
    memcpy(proto->bytes + proto->count, bytes, size_bytes);
    proto->count += size_bytes;
}

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_BYTE = 6 };

static void put_piece(struct proto *model, const char *text, float score,
                      unsigned type)
{
    struct proto piece = {.count = 0};

    put_bytes(&piece, 1, text, strlen(text));
    put_varint(&piece, 2 << 3 | 5);
    memcpy(piece.bytes + piece.count, &score, sizeof(score));
    piece.count += sizeof(score);
    put_number(&piece, 3, type);
    put_bytes(model, 1, piece.bytes, piece.count);
}

const char *help_toy_model(void)
{
    return help_toy_model_with("toy.model", "</s>",
                               "\xe2\x96\x81"
                               "ab",
                               true);
}

const char *help_toy_model_with(const char *name, const char *eos,
                                const char *last, bool byte_fallback)
{
    const char *const pieces[] = {"\xe2\x96\x81", "a",  "b",    "c", "d", "e",
                                  "ab",           "cd", "abcd", last};
    static struct proto model;
    struct proto part = {.count = 0};

    model.count = 0;
    put_piece(&model, "<unk>", 0, TYPE_UNKNOWN);
    put_piece(&model, "<s>", 0, TYPE_CONTROL);
    put_piece(&model, eos, 0, TYPE_CONTROL);
    for (int i = 0; i < 256; i++) {
        char byte[8];

        (void)snprintf(byte, sizeof(byte), "<0x%02X>", i);
        put_piece(&model, byte, 0, byte_fallback ? TYPE_BYTE : TYPE_NORMAL);
    }
    for (size_t i = 0; i < TAP_COUNT(pieces); i++) {
        /* A pair whose piece has a higher score merges first. */
        put_piece(&model, pieces[i], i < 6 ? -100.0f : -1.0f - (float)i,
                  TYPE_NORMAL);
    }
    put_number(&part, 3, 2); /* model_type BPE */
    put_number(&part, 4, HELP_TOY_PIECES);
    put_number(&part, 35, byte_fallback);
    put_bytes(&model, 2, part.bytes, part.count);
    part.count = 0;
    put_bytes(&part, 1, "identity", 8);
    put_number(&part, 3, 1); /* add_dummy_prefix */
    put_number(&part, 4, 0); /* remove_extra_whitespaces */
    put_number(&part, 5, 1); /* escape_whitespaces */
    put_bytes(&model, 3, part.bytes, part.count);
    return help_write(name, model.bytes, model.count);
}

static struct zo_tokenizer *open_tokenizer(const char *path,
                                           enum zo_chat_format chat)
{
    struct zo_tokenizer *tokenizer = NULL;

    if (path != NULL && zo_tokenizer_open(path, chat, &tokenizer) != ZO_OK) {
        tap_fail(__FILE__, __LINE__, "%s", zo_err_last()->text);
    }
    return tokenizer;
}

struct zo_tokenizer *help_toy_tokenizer(enum zo_chat_format chat)
{
    return open_tokenizer(help_toy_model(), chat);
}

struct zo_tokenizer *help_official_tokenizer(enum zo_chat_format chat)
{
    return open_tokenizer(help_shared("chatglm2-6b/tokenizer.model"), chat);
}

bool help_error_has(const char *part)
{
    if (strstr(zo_err_last()->text, part) == NULL) {
        (void)printf("# the error is: %s\n# it lacks: %s\n",
                     zo_err_last()->text, part);
        return false;
    }
    return true;
}

void help_labels(const struct zo_dataset *dataset, int64_t index,
                 int32_t *labels)
{
    const struct zo_row_view row = zo_dataset_row(dataset, index);

    for (int32_t i = 0; i < row.count; i++) {
        labels[i] = -100;
    }
    for (int32_t s = 0; s < row.span_count; s++) {
        const struct zo_label_span span = zo_dataset_span(dataset, index, s);

        memcpy(labels + span.begin, span.labels,
               (size_t)(span.end - span.begin) * sizeof(labels[0]));
    }
}
