#include "src/checkpoint/state_codec.h"

#include <string.h>
#include <zstd.h>

#include "src/base/hash.h"
#include "src/base/memory.h"
#include "src/checkpoint/disk_file.h"

#define LEVEL 1
#define BLOCK 256 /* elements */

/* Of a plane, from all over it, and tried before all of it: mantissas are
 * noise, and zstd takes its time to find that. */
#define SAMPLES      64
#define SAMPLE_BYTES ((size_t)256)

/* A part that shrinks by less is stored as it is: it is read faster so. */
#define GAIN_MIN 32

struct zo_state_codec {
    ZSTD_CCtx *packer;
    ZSTD_DCtx *unpacker;
    size_t raw_bytes;
    char *raw, *planes, *stored;
    char samples[SAMPLES * SAMPLE_BYTES];
};

enum zo_status zo_state_codec_open(size_t raw_bytes,
                                   struct zo_state_codec **codec_out)
{
    struct zo_state_codec *codec = NULL;
    enum zo_status status;

    ZO_TRY(zo_alloc(1, sizeof(*codec), "a codec of states", &codec));
    codec->raw_bytes = raw_bytes;
    codec->packer = ZSTD_createCCtx();
    codec->unpacker = ZSTD_createDCtx();
    if (codec->packer == NULL || codec->unpacker == NULL) {
        status = ZO_FAIL(ZO_E_NOMEM, "no memory for a codec of zstd");
        goto close_codec;
    }
    ZO_TRY_GOTO(close_codec,
                zo_alloc(raw_bytes, 1, "a piece of a state", &codec->raw));
    ZO_TRY_GOTO(close_codec,
                zo_alloc(raw_bytes, 1, "a piece of a state", &codec->planes));
    ZO_TRY_GOTO(close_codec,
                zo_pages_alloc(raw_bytes + ZO_DISK_BLOCK, "a piece of a state",
                               &codec->stored));
    *codec_out = codec;
    return ZO_OK;

close_codec:
    zo_state_codec_close(codec);
    return status;
}

void zo_state_codec_close(struct zo_state_codec *codec)
{
    if (codec == NULL) {
        return;
    }
    (void)ZSTD_freeCCtx(codec->packer);
    (void)ZSTD_freeDCtx(codec->unpacker);
    zo_free(codec->raw);
    zo_free(codec->planes);
    if (codec->stored != NULL) {
        zo_pages_free(codec->stored, codec->raw_bytes + ZO_DISK_BLOCK);
    }
    zo_free(codec);
}

void *zo_state_codec_raw(struct zo_state_codec *codec)
{
    return codec->raw;
}

char *zo_state_codec_stored(struct zo_state_codec *codec)
{
    return codec->stored;
}

/*
 * Byte p of every element goes to plane p.  A block at a time: compilers make
 * vectors of loops of a fixed length.
 */
static void part_block2(const uint16_t *restrict source, uint8_t *restrict low,
                        uint8_t *restrict high)
{
    for (size_t i = 0; i < BLOCK; i++) {
        low[i] = (uint8_t)source[i];
        high[i] = (uint8_t)(source[i] >> 8);
    }
}

static void part_block4(const uint32_t *restrict source,
                        uint8_t *restrict plane, int shift)
{
    for (size_t i = 0; i < BLOCK; i++) {
        plane[i] = (uint8_t)(source[i] >> shift);
    }
}

static void part_planes(const void *raw, size_t count, size_t elem_bytes,
                        char *planes)
{
    uint8_t *target = (uint8_t *)planes;
    size_t at = 0;

    for (; at + BLOCK <= count; at += BLOCK) {
        if (elem_bytes == 2) {
            part_block2((const uint16_t *)raw + at, target + at,
                        target + count + at);
            continue;
        }
        for (size_t p = 0; p < 4; p++) { /* from the first cache */
            part_block4((const uint32_t *)raw + at, target + p * count + at,
                        (int)(8 * p));
        }
    }
    for (; at < count; at++) {
        const uint32_t elem = elem_bytes == 2 ? ((const uint16_t *)raw)[at]
                                              : ((const uint32_t *)raw)[at];

        for (size_t p = 0; p < elem_bytes; p++) {
            target[p * count + at] = (uint8_t)(elem >> (8 * p));
        }
    }
}

static void join_planes(const char *planes, size_t count, size_t elem_bytes,
                        void *raw)
{
    const uint8_t *restrict bytes = (const uint8_t *)planes;

    if (elem_bytes == 2) {
        uint16_t *restrict target = raw;

        for (size_t i = 0; i < count; i++) {
            target[i] = (uint16_t)(bytes[i] | bytes[count + i] << 8);
        }
    } else {
        uint32_t *restrict target = raw;

        for (size_t i = 0; i < count; i++) {
            target[i] = (uint32_t)bytes[i] | (uint32_t)bytes[count + i] << 8 |
                        (uint32_t)bytes[2 * count + i] << 16 |
                        (uint32_t)bytes[3 * count + i] << 24;
        }
    }
}

/* zstd's frame of so many bytes; 0: it shrinks by less than it should. */
static size_t pack_bytes(struct zo_state_codec *codec, const char *from,
                         size_t bytes, char *to)
{
    const size_t room = bytes - bytes / GAIN_MIN;
    const size_t size =
        ZSTD_compressCCtx(codec->packer, to, room, from, bytes, LEVEL);

    return ZSTD_isError(size) || size >= bytes ? 0 : size;
}

/* Whether samples shrink; a plane that is short is tried as a whole. */
static bool may_shrink(struct zo_state_codec *codec, const char *plane,
                       size_t bytes, char *to)
{
    const size_t stride = bytes / SAMPLES;

    if (bytes < 4 * sizeof(codec->samples)) {
        return true;
    }
    for (size_t i = 0; i < SAMPLES; i++) {
        memcpy(codec->samples + i * SAMPLE_BYTES, plane + i * stride,
               SAMPLE_BYTES);
    }
    return pack_bytes(codec, codec->samples, sizeof(codec->samples), to) > 0;
}

static size_t pack_plane(struct zo_state_codec *codec, const char *plane,
                         size_t bytes, char *to)
{
    const size_t size = may_shrink(codec, plane, bytes, to)
                            ? pack_bytes(codec, plane, bytes, to)
                            : 0;

    if (size == 0) {
        memcpy(to, plane, bytes);
    }
    return size == 0 ? bytes : size;
}

void zo_state_codec_pack(struct zo_state_codec *codec, const void *raw,
                         size_t elem_count, size_t elem_bytes, char *stored,
                         struct zo_state_piece *piece)
{
    ZO_ASSERT(elem_count * elem_bytes <= codec->raw_bytes && elem_count > 0);
    piece->hash = zo_hash64(raw, elem_count * elem_bytes);
    part_planes(raw, elem_count, elem_bytes, codec->planes);
    for (size_t p = 0; p < elem_bytes; p++) {
        const size_t size = pack_plane(codec, codec->planes + p * elem_count,
                                       elem_count, stored);

        piece->stored_bytes[p] = (uint32_t)size;
        stored += size;
    }
}

void zo_state_codec_keep(const void *raw, size_t elem_count, size_t elem_bytes,
                         char *stored, struct zo_state_piece *piece)
{
    const size_t bytes = elem_count * elem_bytes;

    piece->hash = zo_hash64(raw, bytes);
    piece->stored_bytes[0] = (uint32_t)bytes;
    if (raw != stored) {
        memcpy(stored, raw, bytes);
    }
}

/* Into a room of known size, whatever the frame says of itself. */
static bool unpack_plane(struct zo_state_codec *codec, const char *stored,
                         size_t stored_bytes, char *plane, size_t elem_count)
{
    if (stored_bytes == elem_count) {
        memcpy(plane, stored, elem_count);
        return true;
    }
    return ZSTD_decompressDCtx(codec->unpacker, plane, elem_count, stored,
                               stored_bytes) == elem_count;
}

static bool unpack_planes(struct zo_state_codec *codec,
                          const struct zo_state_piece *piece, size_t elem_count,
                          size_t elem_bytes, void *target)
{
    const char *stored = codec->stored;

    for (size_t p = 0; p < elem_bytes; p++) {
        ZO_ASSERT(piece->stored_bytes[p] <= elem_count);
        if (!unpack_plane(codec, stored, piece->stored_bytes[p],
                          codec->planes + p * elem_count, elem_count)) {
            return false;
        }
        stored += piece->stored_bytes[p];
    }
    join_planes(codec->planes, elem_count, elem_bytes, target);
    return true;
}

enum zo_status zo_state_codec_unpack(struct zo_state_codec *codec,
                                     const struct zo_state_piece *piece,
                                     size_t elem_count, size_t elem_bytes,
                                     void *target)
{
    const size_t bytes = elem_count * elem_bytes;

    ZO_ASSERT(bytes <= codec->raw_bytes);
    if (piece->stored_bytes[1] == 0) {
        ZO_ASSERT(piece->stored_bytes[0] == bytes);
        memcpy(target, codec->stored, bytes);
    } else if (!unpack_planes(codec, piece, elem_count, elem_bytes, target)) {
        return ZO_FAIL(ZO_E_CORRUPT, "a zstd frame is damaged");
    }
    if (zo_hash64(target, bytes) != piece->hash) {
        return ZO_FAIL(ZO_E_CORRUPT, "a checksum differs");
    }
    return ZO_OK;
}
