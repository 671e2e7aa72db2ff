/*
 * Text out of hostile files: escaping, UTF-8 checks, nearest names.
 *
 * Layer 0.  No state, safe in any thread.
 */
#ifndef ZO_SRC_BASE_TEXT_H
#define ZO_SRC_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/compiler.h"

ZO_C_BEGIN

/*
 * Copies text for a message: control characters (C0 but \n and \t, DEL, C1,
 * those that order a line anew) and bytes that are not UTF-8 become \xNN.
 * Text that does not fit ends in "...".  Always terminated; target_bytes >= 8.
 */
void zo_text_escape(char *target, size_t target_bytes, const char *source,
                    size_t source_bytes);

/*
 * Length in bytes, 1..4, of the well-formed UTF-8 sequence at `text`; 0 when
 * it is malformed, overlong, a surrogate, above U+10FFFF, or cut off.
 * *code_out (may be NULL) is the code point.
 */
size_t zo_utf8_decode(const char *text, size_t size_bytes, uint32_t *code_out);

/* Writes code as UTF-8 into out[4]; returns its length, 1..4. */
size_t zo_utf8_encode(uint32_t code, char *out);

/* True if all of text is well-formed; else *bad_out is the first bad byte. */
bool zo_utf8_valid(const char *text, size_t size_bytes, size_t *bad_out);

/*
 * Edit distance (insert, delete, replace, swap of neighbours), without
 * regard to case; names longer than 63 bytes are infinitely far.
 */
int zo_text_distance(const char *a, const char *b);

/* The closest of `names`, else the shortest that begins with `name`; NULL when
 * none is near enough to suggest. */
const char *zo_text_nearest(const char *name, const char *const *names,
                            size_t count);

/*
 * "512M", "24G", "1.5T" (powers of 1024, a trailing iB is fine), "500MB"
 * (decimal), "123" (bytes).  False unless all of text is one non-negative
 * amount below 2^63.
 */
bool zo_text_bytes(const char *text, uint64_t *bytes_out);

/* What follows a word of which there are `count`: "row", "rows". */
static inline const char *zo_text_s(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* "13.4 GiB" of a byte count, "32 bytes" of a small one, into target (>= 16
 * bytes); returns target. */
const char *zo_text_gib(char *target, size_t target_bytes, uint64_t bytes);

/* "1.25 s" of a time, "0.354 ms" of a short one, to three digits; as above. */
const char *zo_text_seconds(char *target, size_t target_bytes, double seconds);

/*
 * Of two amounts that are compared: as zo_text_gib(), and where that is the
 * same text for both although they differ, with the bytes behind it.  Into
 * targets of ZO_TEXT_PAIR_BYTES.
 */
#define ZO_TEXT_PAIR_BYTES 48
void zo_text_gib_pair(char *first, uint64_t first_bytes, char *second,
                      uint64_t second_bytes);

/*
 * "61.2 TFLOP/s" of 6.12e13 and "FLOP/s": three digits and a power of 1000,
 * from none to P, into target (>= 24 bytes for a unit of 8); returns target.
 * value >= 0.
 */
const char *zo_text_si(char *target, size_t target_bytes, double value,
                       const char *unit);

ZO_C_END

#endif
