#include "src/base/crc32.h"

#define SLICES 8 /* bytes at a time */

/* tables[s][b]: what byte b does, s bytes further on. */
static void make_tables(uint32_t tables[SLICES][256])
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;

        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ ((crc & 1) != 0 ? UINT32_C(0xedb88320) : 0);
        }
        tables[0][b] = crc;
    }
    for (uint32_t b = 0; b < 256; b++) {
        for (int s = 1; s < SLICES; s++) {
            const uint32_t before = tables[s - 1][b];

            tables[s][b] = before >> 8 ^ tables[0][before & 255];
        }
    }
}

uint32_t zo_crc32(uint32_t crc, const void *data, size_t size_bytes)
{
    uint32_t tables[SLICES][256];
    const uint8_t *at = data;

    make_tables(tables);
    crc = ~crc;
    for (; size_bytes >= SLICES; size_bytes -= SLICES, at += SLICES) {
        uint32_t next = 0;

        for (int i = 0; i < SLICES; i++) {
            const uint32_t byte =
                i < 4 ? at[i] ^ (crc >> (8 * i) & 255) : at[i];

            next ^= tables[SLICES - 1 - i][byte];
        }
        crc = next;
    }
    for (; size_bytes > 0; size_bytes--, at++) {
        crc = crc >> 8 ^ tables[0][(crc ^ *at) & 255];
    }
    return ~crc;
}
