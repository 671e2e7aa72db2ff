#include "src/base/sha256.h"

#include <string.h>

#define ROUNDS       64
#define LENGTH_BYTES 8 /* of the size behind the padding */

static uint32_t rotate(uint32_t word, int bits)
{
    return word >> bits | word << (32 - bits);
}

static uint32_t read_word(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 |
           (uint32_t)bytes[2] << 8 | bytes[3];
}

/* The words that the rounds of a block use. */
static void spread(const uint8_t *block, uint32_t w[ROUNDS])
{
    for (int i = 0; i < 16; i++) {
        w[i] = read_word(block + (ptrdiff_t)4 * i);
    }
    for (int i = 16; i < ROUNDS; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];

        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
}

static void mix(uint32_t words[8], const uint8_t *block)
{
    static const uint32_t constants[ROUNDS] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
        0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
        0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
        0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
        0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
        0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
        0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
        0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[ROUNDS], s[8];

    spread(block, w);
    memcpy(s, words, sizeof(s));
    for (int i = 0; i < ROUNDS; i++) {
        const uint32_t one =
            s[7] + constants[i] + w[i] +
            (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) +
            ((s[4] & s[5]) ^ (~s[4] & s[6]));
        const uint32_t two =
            (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) +
            ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

        memmove(s + 1, s, 7 * sizeof(s[0]));
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++) {
        words[i] += s[i];
    }
}

void zo_sha256_init(struct zo_sha256 *hash)
{
    *hash = (struct zo_sha256){.words = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                         0xa54ff53a, 0x510e527f, 0x9b05688c,
                                         0x1f83d9ab, 0x5be0cd19}};
}

void zo_sha256_add(struct zo_sha256 *hash, const void *data, size_t size_bytes)
{
    const uint8_t *bytes = data;

    while (size_bytes > 0) {
        const size_t used = hash->size_bytes % ZO_SHA256_BLOCK_BYTES;
        const size_t room = ZO_SHA256_BLOCK_BYTES - used;
        const size_t now = size_bytes < room ? size_bytes : room;

        memcpy(hash->block + used, bytes, now);
        hash->size_bytes += now;
        bytes += now;
        size_bytes -= now;
        if (now == room) {
            mix(hash->words, hash->block);
        }
    }
}

void zo_sha256_end(struct zo_sha256 *hash, char text[ZO_SHA256_TEXT_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    const uint64_t bits = 8 * hash->size_bytes;
    const uint8_t one = 0x80, zero = 0;
    uint8_t length[LENGTH_BYTES];

    for (int i = 0; i < LENGTH_BYTES; i++) {
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    }
    zo_sha256_add(hash, &one, 1);
    while (hash->size_bytes % ZO_SHA256_BLOCK_BYTES !=
           ZO_SHA256_BLOCK_BYTES - LENGTH_BYTES) {
        zo_sha256_add(hash, &zero, 1);
    }
    zo_sha256_add(hash, length, sizeof(length));
    for (int i = 0; i < 64; i++) {
        text[i] = digits[hash->words[i / 8] >> (28 - 4 * (i % 8)) & 15];
    }
    text[64] = '\0';
}
