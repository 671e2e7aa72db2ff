/* SHA-256: the examples of FIPS 180-4, in every way of cutting them. */
#include "src/base/sha256.h"

#include <string.h>

#include "tests/tap.h"

static const char two_blocks[] =
    "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";

static int is_hash(const void *data, size_t size_bytes, size_t step,
                   const char *want)
{
    char text[ZO_SHA256_TEXT_BYTES];
    struct zo_sha256 hash;

    zo_sha256_init(&hash);
    for (size_t at = 0; at < size_bytes; at += step) {
        const size_t rest = size_bytes - at;

        zo_sha256_add(&hash, (const char *)data + at,
                      rest < step ? rest : step);
    }
    zo_sha256_end(&hash, text);
    return strcmp(text, want) == 0;
}

static void test_examples(void)
{
    TAP_CHECK(is_hash("", 0, 1,
                      "e3b0c44298fc1c149afbf4c8996fb924"
                      "27ae41e4649b934ca495991b7852b855"));
    TAP_CHECK(is_hash("abc", 3, 3,
                      "ba7816bf8f01cfea414140de5dae2223"
                      "b00361a396177a9cb410ff61f20015ad"));
    for (size_t step = 1; step <= sizeof(two_blocks); step++) {
        TAP_CHECK(is_hash(two_blocks, sizeof(two_blocks) - 1, step,
                          "248d6a61d20638b8e5c026930c3e6039"
                          "a33ce45964ff2167f6ecedd419db06c1"));
    }
}

static void test_million(void)
{
    static char letters[1000000];

    memset(letters, 'a', sizeof(letters));
    for (size_t step = 997; step < sizeof(letters) * 2; step *= 31) {
        TAP_CHECK(is_hash(letters, sizeof(letters), step,
                          "cdc76e5c9914fb9281a1c7e284d73e67"
                          "f1809a48a497200e046d39ccc7112cd0"));
    }
}

static const struct tap_case cases[] = {
    {"the examples of the standard, in pieces of any size", test_examples},
    {"a million letters", test_million},
};

int main(void)
{
    return tap_run(cases, TAP_COUNT(cases));
}
