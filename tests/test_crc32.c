/* CRC-32: the check value of its catalogue, and bit by bit. */
#include "src/base/crc32.h"

#include "src/base/random.h"
#include "tests/tap.h"

#define BYTES 300

static uint32_t slowly(const uint8_t *data, size_t size_bytes)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < size_bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc & 1) != 0 ? crc >> 1 ^ UINT32_C(0xedb88320) : crc >> 1;
        }
    }
    return ~crc;
}

static void test_check_value(void)
{
    TAP_CHECK_INT(zo_crc32(0, "123456789", 9), 0xcbf43926);
    TAP_CHECK_INT(zo_crc32(0, "", 0), 0);
}

static void test_lengths(void)
{
    uint8_t data[BYTES];

    for (size_t i = 0; i < BYTES; i++) {
        data[i] = (uint8_t)zo_random_bits(3, i);
    }
    for (size_t length = 0; length < BYTES; length++) {
        const size_t cut = length / 3;
        const uint32_t whole = zo_crc32(0, data, length);

        TAP_CHECK_INT(whole, slowly(data, length));
        TAP_CHECK_INT(
            zo_crc32(zo_crc32(0, data, cut), data + cut, length - cut), whole);
    }
}

static const struct tap_case cases[] = {
    {"the check value", test_check_value},
    {"every length, whole and in two parts", test_lengths},
};

int main(void)
{
    return tap_run(cases, TAP_COUNT(cases));
}
