#include "src/base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME_MAX_BYTES      63
#define BEGINNING_MIN_BYTES 3 /* of a name; fewer begin too many */

size_t zo_utf8_decode(const char *text, size_t size_bytes, uint32_t *code_out)
{
    const unsigned char *byte = (const unsigned char *)text;
    uint32_t code;
    size_t length;
    uint32_t least;

    if (size_bytes == 0) {
        return 0;
    }
    if (byte[0] < 0x80) {
        code = byte[0];
        length = 1;
        least = 0;
    } else if ((byte[0] & 0xe0) == 0xc0) {
        code = byte[0] & 0x1fu;
        length = 2;
        least = 0x80;
    } else if ((byte[0] & 0xf0) == 0xe0) {
        code = byte[0] & 0x0fu;
        length = 3;
        least = 0x800;
    } else if ((byte[0] & 0xf8) == 0xf0) {
        code = byte[0] & 0x07u;
        length = 4;
        least = 0x10000;
    } else {
        return 0;
    }
    if (length > size_bytes) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((byte[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = (code << 6) | (byte[i] & 0x3fu);
    }
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        return 0;
    }
    if (code_out != NULL) {
        *code_out = code;
    }
    return length;
}

size_t zo_utf8_encode(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | (code >> 6));
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | (code >> 12));
        out[1] = (char)(0x80 | ((code >> 6) & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | (code >> 18));
    out[1] = (char)(0x80 | ((code >> 12) & 0x3f));
    out[2] = (char)(0x80 | ((code >> 6) & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

bool zo_utf8_valid(const char *text, size_t size_bytes, size_t *bad_out)
{
    for (size_t at = 0; at < size_bytes;) {
        const size_t length = zo_utf8_decode(text + at, size_bytes - at, NULL);

        if (length == 0) {
            if (bad_out != NULL) {
                *bad_out = at;
            }
            return false;
        }
        at += length;
    }
    return true;
}

/* What orders a line anew, or ends it where it goes on: Unicode's separators
 * of lines and the controls of its bidirectional algorithm (UAX #9). */
static bool is_order(uint32_t code)
{
    return (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

static bool is_plain(uint32_t code)
{
    return code == '\n' || code == '\t' ||
           (code >= 0x20 && code != 0x7f && !(code >= 0x80 && code < 0xa0) &&
            !is_order(code));
}

void zo_text_escape(char *target, size_t target_bytes, const char *source,
                    size_t source_bytes)
{
    static const char hex[] = "0123456789abcdef";
    size_t at = 0, put = 0;

    while (at < source_bytes) {
        uint32_t code = 0;
        const size_t length =
            zo_utf8_decode(source + at, source_bytes - at, &code);
        const bool keep = length > 0 && is_plain(code);
        const size_t taken = length > 0 ? length : 1;
        const size_t need = keep ? taken : 4 * taken;
        const size_t rest = at + taken < source_bytes ? 3 : 0;

        if (put + need + rest + 1 > target_bytes) {
            memcpy(target + put, "...", 3);
            put += 3;
            break;
        }
        if (keep) {
            memcpy(target + put, source + at, taken);
            put += taken;
        } else {
            for (size_t i = 0; i < taken; i++) {
                const unsigned char byte = (unsigned char)source[at + i];

                target[put++] = '\\';
                target[put++] = 'x';
                target[put++] = hex[byte >> 4];
                target[put++] = hex[byte & 15];
            }
        }
        at += taken;
    }
    target[put] = '\0';
}

static int lower(char c)
{
    return tolower((unsigned char)c);
}

int zo_text_distance(const char *a, const char *b)
{
    int row[3][NAME_MAX_BYTES + 1];
    const size_t a_length = strlen(a), b_length = strlen(b);

    if (a_length > NAME_MAX_BYTES || b_length > NAME_MAX_BYTES) {
        return 1000;
    }
    for (size_t j = 0; j <= b_length; j++) {
        row[0][j] = (int)j;
    }
    for (size_t i = 1; i <= a_length; i++) {
        int *now = row[i % 3], *last = row[(i + 2) % 3];
        const int *before = row[(i + 1) % 3];

        now[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            const int replace =
                last[j - 1] + (lower(a[i - 1]) != lower(b[j - 1]));
            int best = replace;

            best = last[j] + 1 < best ? last[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1]) &&
                before[j - 2] + 1 < best) {
                best = before[j - 2] + 1;
            }
            now[j] = best;
        }
    }
    return row[a_length % 3][b_length];
}

/* The shortest of `names` that begins with `name`; NULL: none does. */
static const char *shortest_of(const char *name, const char *const *names,
                               size_t count)
{
    const char *shortest = NULL;

    for (size_t i = 0; i < count; i++) {
        if (strncasecmp(names[i], name, strlen(name)) == 0 &&
            (shortest == NULL || strlen(names[i]) < strlen(shortest))) {
            shortest = names[i];
        }
    }
    return shortest;
}

const char *zo_text_nearest(const char *name, const char *const *names,
                            size_t count)
{
    const size_t length = strlen(name);
    int best = 1 + (int)(length < 30 ? length / 4 : 7);
    const char *nearest = NULL;

    for (size_t i = 0; i < count; i++) {
        const int distance = zo_text_distance(name, names[i]);

        if (distance <= best && (nearest == NULL || distance < best)) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest != NULL || length < BEGINNING_MIN_BYTES
               ? nearest
               : shortest_of(name, names, count);
}

bool zo_text_bytes(const char *text, uint64_t *bytes_out)
{
    static const char letters[] = "KMGT";
    char *end = NULL;
    const char *letter;
    double amount, factor = 1.0;

    if (!isdigit((unsigned char)text[0]) && text[0] != '.') {
        return false; /* no sign, space, "inf" or "nan" */
    }
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        return false;
    }
    amount = strtod(text, &end);
    if (end == text) {
        return false;
    }
    if (*end != '\0' &&
        (letter = strchr(letters, toupper((unsigned char)*end))) != NULL &&
        *letter != '\0') {
        const int power = (int)(letter - letters) + 1;

        end++;
        if (strcmp(end, "B") == 0 || strcmp(end, "b") == 0) {
            factor = pow(1000.0, power);
            end++;
        } else {
            factor = pow(1024.0, power);
            end += strcmp(end, "iB") == 0 || strcmp(end, "ib") == 0 ? 2 : 0;
        }
    } else if (strcmp(end, "B") == 0) {
        end++;
    }
    if (*end != '\0' || !(amount * factor < 9223372036854775808.0)) {
        return false;
    }
    *bytes_out = (uint64_t)(amount * factor);
    return true;
}

const char *zo_text_gib(char *target, size_t target_bytes, uint64_t bytes)
{
    const double gib = (double)bytes / 1073741824.0;

    if (gib >= 0.995) {
        (void)snprintf(target, target_bytes, "%.2f GiB", gib);
    } else if (bytes >= 1024 * 1024) {
        (void)snprintf(target, target_bytes, "%.1f MiB", gib * 1024.0);
    } else if (bytes >= 1024) {
        (void)snprintf(target, target_bytes, "%.1f KiB",
                       (double)bytes / 1024.0);
    } else {
        (void)snprintf(target, target_bytes, "%d byte%s", (int)bytes,
                       zo_text_s(bytes));
    }
    return target;
}

const char *zo_text_seconds(char *target, size_t target_bytes, double seconds)
{
    if (seconds < 0.01) {
        (void)snprintf(target, target_bytes, "%.3g ms", 1e3 * seconds);
    } else {
        (void)snprintf(target, target_bytes,
                       seconds < 99.95 ? "%.3g s" : "%.0f s", seconds);
    }
    return target;
}

void zo_text_gib_pair(char *first, uint64_t first_bytes, char *second,
                      uint64_t second_bytes)
{
    (void)zo_text_gib(first, ZO_TEXT_PAIR_BYTES, first_bytes);
    (void)zo_text_gib(second, ZO_TEXT_PAIR_BYTES, second_bytes);
    if (strcmp(first, second) == 0 && first_bytes != second_bytes) {
        const size_t length = strlen(first), room = ZO_TEXT_PAIR_BYTES - length;

        (void)snprintf(first + length, room, " (%" PRIu64 " bytes)",
                       first_bytes);
        (void)snprintf(second + length, room, " (%" PRIu64 " bytes)",
                       second_bytes);
    }
}

const char *zo_text_si(char *target, size_t target_bytes, double value,
                       const char *unit)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    size_t prefix = 0;

    /* What would be printed as 1000 takes the next one. */
    while (value >= 999.5 && prefix + 1 < ZO_COUNT(prefixes)) {
        value /= 1000.0;
        prefix++;
    }
    (void)snprintf(target, target_bytes, "%.*f %s%s",
                   value >= 99.95   ? 0
                   : value >= 9.995 ? 1
                                    : 2,
                   value, prefixes[prefix], unit);
    return target;
}
