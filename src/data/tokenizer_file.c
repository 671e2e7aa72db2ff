#include "src/data/tokenizer_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"

/* Fields of sentencepiece_model.proto's ModelProto. */
enum { FIELD_PIECES = 1, FIELD_TRAINER = 2, FIELD_NORMALIZER = 3 };

/* Wire types of protocol buffers. */
enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* A message that is being walked. */
struct wire {
    const unsigned char *bytes;
    size_t size_bytes;
    size_t at;
};

/* A field of it; bytes only for WIRE_BYTES. */
struct field {
    uint64_t number;
    unsigned type;
    const unsigned char *bytes;
    size_t size_bytes;
};

static bool next_varint(struct wire *wire, uint64_t *value_out)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        unsigned char byte;

        if (wire->at == wire->size_bytes) {
            return false;
        }
        byte = wire->bytes[wire->at++];
        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *value_out = value;
            return true;
        }
    }
    return false;
}

/* The next field; false when it is malformed or reaches past the message. */
static bool next_field(struct wire *wire, struct field *field)
{
    uint64_t tag = 0, size_bytes = 0;

    if (!next_varint(wire, &tag)) {
        return false;
    }
    *field = (struct field){.number = tag >> 3, .type = tag & 7};
    switch (field->type) {
    case WIRE_VARINT:
        if (!next_varint(wire, &size_bytes)) {
            return false;
        }
        size_bytes = 0;
        break;
    case WIRE_FIXED64:
        size_bytes = 8;
        break;
    case WIRE_BYTES:
        if (!next_varint(wire, &size_bytes)) {
            return false;
        }
        break;
    case WIRE_FIXED32:
        size_bytes = 4;
        break;
    default:
        return false;
    }
    if (field->number == 0 || size_bytes > wire->size_bytes - wire->at) {
        return false;
    }
    field->bytes = wire->bytes + wire->at;
    field->size_bytes = (size_t)size_bytes;
    wire->at += (size_t)size_bytes;
    return true;
}

/* True if a message inside the model is well formed, as far as its fields. */
static bool message_is_whole(const struct field *message)
{
    struct wire wire = {message->bytes, message->size_bytes, 0};
    struct field field;

    while (wire.at < wire.size_bytes) {
        if (!next_field(&wire, &field)) {
            return false;
        }
    }
    return true;
}

static bool begins_with(const unsigned char *bytes, size_t size_bytes,
                        const char *text)
{
    const size_t length = strlen(text);

    return size_bytes >= length && memcmp(bytes, text, length) == 0;
}

/* What people find in place of a model, each with its cure. */
static enum zo_status check_known_mistakes(const char *path,
                                           const unsigned char *bytes,
                                           size_t size_bytes)
{
    size_t at = 0;

    if (size_bytes == 0) {
        return ZO_FAIL(ZO_E_CORRUPT, "%s: the file is empty", path);
    }
    if (size_bytes > ZO_TOKENIZER_FILE_BYTES_MAX) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: %zu bytes; want a tokenizer.model of %d at most",
                       path, size_bytes, ZO_TOKENIZER_FILE_BYTES_MAX);
    }
    if (begins_with(bytes, size_bytes, "version https://git-lfs")) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: a Git LFS pointer, not the file itself; fetch it "
                       "with git lfs pull",
                       path);
    }
    while (at < size_bytes && (bytes[at] == ' ' || bytes[at] == '\n' ||
                               bytes[at] == '\r' || bytes[at] == '\t')) {
        at++;
    }
    if (at < size_bytes && bytes[at] == '<') {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: a web page, not a tokenizer.model; download it "
                       "again",
                       path);
    }
    return ZO_OK;
}

enum zo_status zo_tokenizer_check(const char *path, const unsigned char *bytes,
                                  size_t size_bytes)
{
    struct wire wire = {bytes, size_bytes, 0};
    struct field field = {0};
    bool has_trainer = false, has_normalizer = false;
    size_t piece_count = 0;

    ZO_TRY(check_known_mistakes(path, bytes, size_bytes));
    while (wire.at < size_bytes) {
        const size_t begin = wire.at;

        if (!next_field(&wire, &field) ||
            (field.type == WIRE_BYTES && !message_is_whole(&field))) {
            return ZO_FAIL(ZO_E_CORRUPT,
                           "%s: not a SentencePiece model, or cut off: the "
                           "entry at byte %zu, after %zu pieces, is malformed "
                           "or passes the end of the file at byte %zu",
                           path, begin, piece_count, size_bytes);
        }
        piece_count += field.number == FIELD_PIECES;
        has_trainer = has_trainer || field.number == FIELD_TRAINER;
        has_normalizer = has_normalizer || field.number == FIELD_NORMALIZER;
    }
    if (piece_count == 0 || piece_count > ZO_TOKENIZER_PIECES_MAX) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: not a SentencePiece model: want 1 to %d pieces, "
                       "found %zu",
                       path, ZO_TOKENIZER_PIECES_MAX, piece_count);
    }
    if (!has_trainer || !has_normalizer) {
        return ZO_FAIL(ZO_E_CORRUPT, "%s: cut off: no %s part after %zu pieces",
                       path, has_trainer ? "normaliser" : "training",
                       piece_count);
    }
    return ZO_OK;
}

static enum zo_status read_all(int fd, const char *path, unsigned char *bytes,
                               size_t size_bytes)
{
    for (size_t at = 0; at < size_bytes;) {
        const ssize_t count = read(fd, bytes + at, size_bytes - at);

        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return ZO_FAIL_NATIVE(ZO_E_IO, count < 0 ? errno : 0,
                                  "reading %s: %s after %zu of %zu bytes", path,
                                  count < 0 ? strerror(errno) : "it ends", at,
                                  size_bytes);
        }
        at += (size_t)count;
    }
    return ZO_OK;
}

static enum zo_status read_open(int fd, const char *path,
                                unsigned char **bytes_out,
                                size_t *size_bytes_out)
{
    unsigned char *bytes = NULL;
    struct stat info;
    enum zo_status status;
    size_t size_bytes;

    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return ZO_FAIL(ZO_E_USAGE, "tokenizer %s: not a regular file", path);
    }
    if (info.st_size > ZO_TOKENIZER_FILE_BYTES_MAX) {
        return ZO_FAIL(ZO_E_CORRUPT,
                       "%s: %lld bytes; want a tokenizer.model of %d at most",
                       path, (long long)info.st_size,
                       ZO_TOKENIZER_FILE_BYTES_MAX);
    }
    size_bytes = (size_t)info.st_size;
    ZO_TRY(zo_alloc(size_bytes, 1, "the tokenizer", &bytes));
    ZO_TRY_GOTO(free_bytes, read_all(fd, path, bytes, size_bytes));
    ZO_TRY_GOTO(free_bytes, zo_tokenizer_check(path, bytes, size_bytes));
    *bytes_out = bytes;
    *size_bytes_out = size_bytes;
    return ZO_OK;

free_bytes:
    zo_free(bytes);
    return status;
}

enum zo_status zo_tokenizer_read(const char *path, unsigned char **bytes_out,
                                 size_t *size_bytes_out)
{
    /* A FIFO without a writer must not block here. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum zo_status status;

    if (fd < 0) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "tokenizer %s: %s", path,
                              strerror(errno));
    }
    status = read_open(fd, path, bytes_out, size_bytes_out);
    (void)close(fd);
    return status;
}
