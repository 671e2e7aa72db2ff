#include "src/data/row_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/data/row_json.h"
#include "src/data/rows.h"

#define CHUNK_BYTES (64 * 1024)
#define NO_BYTE     (-1)

enum source_kind { KIND_UNKNOWN, KIND_LINES, KIND_ARRAY, KIND_ENDED };

struct zo_row_source {
    int fd;
    char *path; /* owned */
    enum source_kind kind;
    bool is_broken;
    bool looks_json;  /* it begins with { or [ */
    bool has_element; /* an array's element was returned: a comma or ] next */
    bool is_file_end;
    int64_t line; /* of the next byte */
    uint32_t column;
    char *row; /* owned: the bytes of the row that was found */
    size_t row_bytes, row_capacity;
    size_t chunk_at, chunk_bytes;
    char chunk[CHUNK_BYTES];
};

enum zo_status zo_row_source_open(const char *path,
                                  struct zo_row_source **source_out)
{
    struct zo_row_source *source = NULL;
    struct stat info;
    enum zo_status status;
    /* A FIFO without a writer must not block here. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        return ZO_FAIL_NATIVE(ZO_E_USAGE, errno, "data file %s: %s", path,
                              strerror(errno));
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        status = ZO_FAIL(ZO_E_USAGE, "data file %s: not a regular file", path);
        goto close_file;
    }
    ZO_TRY_GOTO(close_file,
                zo_alloc(1, sizeof(*source), "the data file", &source));
    ZO_TRY_GOTO(free_source, zo_strndup(path, strlen(path), &source->path));
    source->fd = fd;
    source->line = 1;
    source->column = 1;
    *source_out = source;
    return ZO_OK;

free_source:
    zo_free(source);
close_file:
    (void)close(fd);
    return status;
}

void zo_row_source_close(struct zo_row_source *source)
{
    if (source == NULL) {
        return;
    }
    (void)close(source->fd);
    zo_free(source->path);
    zo_free(source->row);
    zo_free(source);
}

bool zo_row_source_is_broken(const struct zo_row_source *source)
{
    return source->is_broken;
}

bool zo_row_source_looks_json(const struct zo_row_source *source)
{
    return source->looks_json;
}

const char *zo_row_source_path(const struct zo_row_source *source)
{
    return source->path;
}

/* Fills the empty chunk; at the end of the file it stays empty. */
static enum zo_status refill(struct zo_row_source *source)
{
    source->chunk_at = 0;
    source->chunk_bytes = 0;
    while (!source->is_file_end && source->chunk_bytes < CHUNK_BYTES) {
        const ssize_t count =
            read(source->fd, source->chunk + source->chunk_bytes,
                 CHUNK_BYTES - source->chunk_bytes);

        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            source->is_broken = true;
            return ZO_FAIL_NATIVE(ZO_E_IO, errno, "reading %s: %s",
                                  source->path, strerror(errno));
        }
        source->chunk_bytes += (size_t)count;
        source->is_file_end = count == 0;
    }
    return ZO_OK;
}

/* The next byte, or NO_BYTE at the end of the file. */
static enum zo_status peek(struct zo_row_source *source, int *byte_out)
{
    if (source->chunk_at == source->chunk_bytes) {
        ZO_TRY(refill(source));
    }
    *byte_out = source->chunk_at == source->chunk_bytes
                    ? NO_BYTE
                    : (unsigned char)source->chunk[source->chunk_at];
    return ZO_OK;
}

/* Steps over the byte that peek() has shown. */
static void advance(struct zo_row_source *source)
{
    const unsigned char byte = (unsigned char)source->chunk[source->chunk_at];

    source->chunk_at++;
    if (byte == '\n') {
        source->line++;
        source->column = 1;
    } else if ((byte & 0xc0) != 0x80) {
        source->column++;
    }
}

static bool is_blank(int byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

static enum zo_status skip_blanks(struct zo_row_source *source, int *byte_out)
{
    for (;;) {
        ZO_TRY(peek(source, byte_out));
        if (!is_blank(*byte_out)) {
            return ZO_OK;
        }
        advance(source);
    }
}

/* Appends to the row; it is at most ZO_ROW_BYTES_MAX, as the caller saw to. */
static enum zo_status append(struct zo_row_source *source, const char *bytes,
                             size_t count)
{
    if (source->row_bytes + count > source->row_capacity) {
        size_t capacity =
            source->row_capacity > 0 ? source->row_capacity : 4096;

        while (capacity < source->row_bytes + count) {
            capacity *= 2;
        }
        ZO_TRY(zo_realloc(&source->row, capacity, 1, "a row of the data file"));
        source->row_capacity = capacity;
    }
    memcpy(source->row + source->row_bytes, bytes, count);
    source->row_bytes += count;
    return ZO_OK;
}

/* The first byte that is not blank tells an array from lines. */
static enum zo_status find_kind(struct zo_row_source *source)
{
    static const char mark[3] = {'\xef', '\xbb', '\xbf'};
    int byte = NO_BYTE;

    ZO_TRY(refill(source));
    if (source->chunk_bytes >= sizeof(mark) &&
        memcmp(source->chunk, mark, sizeof(mark)) == 0) {
        source->chunk_at = sizeof(mark);
    }
    ZO_TRY(skip_blanks(source, &byte));
    source->looks_json = byte == '[' || byte == '{';
    source->kind = byte == '[' ? KIND_ARRAY : KIND_LINES;
    if (byte == '[') {
        advance(source);
    }
    return ZO_OK;
}

/* Reads to the end of the line; *is_end_out when there was no byte left. */
static enum zo_status read_line(struct zo_row_source *source, bool *is_end_out)
{
    const int64_t line = source->line;
    bool is_too_long = false, has_newline = false;
    int byte = NO_BYTE;

    source->row_bytes = 0;
    ZO_TRY(peek(source, &byte));
    *is_end_out = byte == NO_BYTE;
    while (byte != NO_BYTE && !has_newline) {
        const char *begin = source->chunk + source->chunk_at;
        const size_t left = source->chunk_bytes - source->chunk_at;
        const char *newline = memchr(begin, '\n', left);
        const size_t count = newline != NULL ? (size_t)(newline - begin) : left;

        is_too_long =
            is_too_long || source->row_bytes + count > ZO_ROW_BYTES_MAX;
        if (!is_too_long) {
            ZO_TRY(append(source, begin, count));
        }
        has_newline = newline != NULL;
        source->chunk_at += count + has_newline;
        ZO_TRY(peek(source, &byte));
    }
    source->line += has_newline;
    source->column = 1;
    if (is_too_long) {
        return ZO_FAIL(ZO_E_DATA, "%s:%lld: a line of more than %d bytes",
                       source->path, (long long)line, ZO_ROW_BYTES_MAX);
    }
    return ZO_OK;
}

static bool row_is_blank(const struct zo_row_source *source)
{
    for (size_t i = 0; i < source->row_bytes; i++) {
        if (!is_blank((unsigned char)source->row[i])) {
            return false;
        }
    }
    return true;
}

static enum zo_status next_line(struct zo_row_source *source,
                                struct zo_row_bytes *row_out, bool *is_end_out)
{
    bool is_end = false;

    for (;;) {
        const int64_t line = source->line;
        const uint32_t column = source->column;

        ZO_TRY(read_line(source, &is_end));
        if (is_end || !row_is_blank(source)) {
            *row_out = (struct zo_row_bytes){source->row, source->row_bytes,
                                             line, column};
            *is_end_out = is_end;
            return ZO_OK;
        }
    }
}

/* Fails at the next byte, after which the array cannot be followed. */
static enum zo_status fail_array(struct zo_row_source *source, const char *what,
                                 int found)
{
    const char byte[2] = {(char)found, '\0'};

    source->is_broken = true;
    return ZO_FAIL(ZO_E_DATA, "%s:%lld:%u: want %s of the array, found %s%s%s",
                   source->path, (long long)source->line, source->column, what,
                   found == NO_BYTE ? "the end of the file" : "`",
                   found == NO_BYTE ? "" : byte, found == NO_BYTE ? "" : "`");
}

/* After ]: nothing but blanks. */
static enum zo_status end_array(struct zo_row_source *source)
{
    int byte = NO_BYTE;

    advance(source);
    ZO_TRY(skip_blanks(source, &byte));
    if (byte != NO_BYTE) {
        return fail_array(source, "nothing after the end", byte);
    }
    source->kind = KIND_ENDED;
    return ZO_OK;
}

/* What stands around the byte that scan_element() looks at. */
struct element_scan {
    size_t depth;
    bool in_string, is_escaped;
    bool is_done;    /* the byte is not of the element, or was its last */
    bool is_outside; /* the byte is not of the element */
};

static void scan_byte(struct element_scan *scan, int byte)
{
    if (scan->in_string) {
        const bool closes = byte == '"' && !scan->is_escaped;

        scan->is_escaped = byte == '\\' && !scan->is_escaped;
        scan->in_string = !closes;
        scan->is_done = closes && scan->depth == 0;
        return;
    }
    switch (byte) {
    case '"':
        scan->in_string = true;
        return;
    case '{':
    case '[':
        scan->depth++;
        return;
    case '}':
    case ']':
        scan->is_outside = scan->depth == 0;
        scan->depth -= scan->depth > 0;
        scan->is_done = scan->depth == 0;
        return;
    default:
        scan->is_outside = scan->depth == 0 && (byte == ',' || is_blank(byte));
        scan->is_done = scan->is_outside;
        return;
    }
}

/* Collects the bytes of one element, by its quotes and brackets alone. */
static enum zo_status scan_element(struct zo_row_source *source)
{
    const int64_t line = source->line;
    struct element_scan scan = {0};

    source->row_bytes = 0;
    while (!scan.is_done) {
        int byte = NO_BYTE;

        ZO_TRY(peek(source, &byte));
        if (byte == NO_BYTE) {
            source->is_broken = true;
            return ZO_FAIL(ZO_E_DATA,
                           "%s:%lld: the row that begins here is not closed "
                           "before the file ends",
                           source->path, (long long)line);
        }
        scan_byte(&scan, byte);
        if (scan.depth > ZO_ROW_DEPTH_MAX ||
            source->row_bytes == ZO_ROW_BYTES_MAX) {
            source->is_broken = true;
            return ZO_FAIL(ZO_E_DATA,
                           "%s:%lld: the row that begins here is too %s: want "
                           "at most %d levels and %d bytes",
                           source->path, (long long)line,
                           scan.depth > ZO_ROW_DEPTH_MAX ? "deep" : "long",
                           ZO_ROW_DEPTH_MAX, ZO_ROW_BYTES_MAX);
        }
        if (!scan.is_outside) {
            const char copy = (char)byte;

            ZO_TRY(append(source, &copy, 1));
            advance(source);
        }
    }
    return ZO_OK;
}

static enum zo_status next_element(struct zo_row_source *source,
                                   struct zo_row_bytes *row_out,
                                   bool *is_end_out)
{
    int byte = NO_BYTE;
    int64_t line;
    uint32_t column;

    ZO_TRY(skip_blanks(source, &byte));
    if (byte == ']') {
        ZO_TRY(end_array(source));
        *is_end_out = true;
        return ZO_OK;
    }
    if (source->has_element) {
        if (byte != ',') {
            return fail_array(source, "\",\" or \"]\"", byte);
        }
        advance(source);
        ZO_TRY(skip_blanks(source, &byte));
    }
    if (byte == NO_BYTE || byte == ',' || byte == ']' || byte == '}') {
        return fail_array(source, "a row", byte);
    }
    line = source->line;
    column = source->column;
    ZO_TRY(scan_element(source));
    source->has_element = true;
    *row_out =
        (struct zo_row_bytes){source->row, source->row_bytes, line, column};
    *is_end_out = false;
    return ZO_OK;
}

enum zo_status zo_row_source_next(struct zo_row_source *source,
                                  struct zo_row_bytes *row_out,
                                  bool *is_end_out)
{
    ZO_ASSERT(!source->is_broken);
    if (source->kind == KIND_UNKNOWN) {
        ZO_TRY(find_kind(source));
    }
    switch (source->kind) {
    case KIND_LINES:
        return next_line(source, row_out, is_end_out);
    case KIND_ARRAY:
        return next_element(source, row_out, is_end_out);
    case KIND_UNKNOWN:
    case KIND_ENDED:
        break;
    }
    *is_end_out = true;
    return ZO_OK;
}
