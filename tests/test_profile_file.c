/*
 * Machine profiles in files, and the shipped ones.
 */
#include "src/train/profile_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "tests/tap.h"

static char folder[] = "test_profile.XXXXXX";
static char path[64];

static bool set_up(void)
{
    memcpy(folder + sizeof(folder) - 7, "XXXXXX", 6);
    if (mkdtemp(folder) == NULL) {
        return false;
    }
    (void)snprintf(path, sizeof(path), "%s/machine.json", folder);
    return true;
}

static void tear_down(void)
{
    (void)unlink(path);
    (void)rmdir(folder);
}

static const char *read_text(void)
{
    static char text[65536];
    FILE *file = fopen(path, "r");
    size_t got = 0;

    if (file != NULL) {
        got = fread(text, 1, sizeof(text) - 1, file);
        (void)fclose(file);
    }
    text[got] = '\0';
    return text;
}

static bool write_text(const char *text)
{
    FILE *file = fopen(path, "w");
    const bool done = file != NULL && fputs(text, file) >= 0;

    return file != NULL && fclose(file) == 0 && done;
}

/* Every field another number. */
static struct zo_profile some_profile(const char *name)
{
    struct zo_profile profile;

    zo_profile_init(&profile);
    (void)snprintf(profile.name, sizeof(profile.name), "%s", name);
    (void)snprintf(profile.products, sizeof(profile.products), "4096 tokens");
    for (int t = 0; t < ZO_PROFILE_TYPES; t++) {
        profile.matrix_flops[t] = 1e14 / 3.0 + t;
    }
    profile.paced = 2.2e10;
    profile.simd = ZO_SIMD_AVX2;
    profile.attention_flops = 3e14;
    profile.device_bandwidth = 4.1e12;
    profile.h2d = 5.54e10;
    profile.d2h = 5.53e10;
    profile.duplex = 9.9e10;
    profile.collective = 2.55e11;
    profile.launch_seconds = 2.5e-6;
    profile.handoff_seconds = 1.5e-5;
    profile.dram.rate = 1.61e11;
    profile.dram_h2d.rate = 1.43e11;
    profile.dram_d2h.rate = 1.36e11;
    profile.cpu = 1.21e11;
    profile.cpu_thread = 1.3e10;
    profile.cpu_seconds = 1e-6;
    profile.nvme_read = 1.9e9;
    profile.nvme_write = 1.7e9;
    profile.threads = 14;
    profile.dram.yield[ZO_DRAM_D2H] = 0.125;
    profile.dram_d2h.yield[ZO_DRAM_CPU] = 0.75;
    return profile;
}

static bool same(const struct zo_profile *a, const struct zo_profile *b)
{
    for (int t = 0; t < ZO_PROFILE_TYPES; t++) {
        if (a->matrix_flops[t] != b->matrix_flops[t]) {
            return false;
        }
    }
    for (int user = 0; user < ZO_DRAM_USERS; user++) {
        if (a->dram.yield[user] != b->dram.yield[user] ||
            a->dram_h2d.yield[user] != b->dram_h2d.yield[user] ||
            a->dram_d2h.yield[user] != b->dram_d2h.yield[user]) {
            return false;
        }
    }
    return strcmp(a->name, b->name) == 0 &&
           strcmp(a->products, b->products) == 0 && a->source == b->source &&
           a->paced == b->paced && a->simd == b->simd &&
           a->attention_flops == b->attention_flops &&
           a->device_bandwidth == b->device_bandwidth && a->h2d == b->h2d &&
           a->d2h == b->d2h && a->duplex == b->duplex &&
           a->collective == b->collective &&
           a->launch_seconds == b->launch_seconds &&
           a->handoff_seconds == b->handoff_seconds &&
           a->dram.rate == b->dram.rate &&
           a->dram_h2d.rate == b->dram_h2d.rate &&
           a->dram_d2h.rate == b->dram_d2h.rate && a->cpu == b->cpu &&
           a->cpu_thread == b->cpu_thread && a->cpu_seconds == b->cpu_seconds &&
           a->nvme_read == b->nvme_read && a->nvme_write == b->nvme_write &&
           a->threads == b->threads && a->is_host == b->is_host;
}

/* ---- round trips ----------------------------------------------------------
 */

static struct zo_profile_key key_of(const struct zo_profile *profile)
{
    return (struct zo_profile_key){profile->name, profile->is_host,
                                   profile->paced, profile->simd};
}

static bool reads_back(const struct zo_profile *profile)
{
    const struct zo_profile_key key = key_of(profile);
    struct zo_profile read;
    bool found = false;

    return zo_profile_file_update(path, profile) == ZO_OK &&
           zo_profile_file_read(path, &key, &read, &found) == ZO_OK && found &&
           same(profile, &read);
}

static void test_round_trip(void)
{
    struct zo_profile profile = some_profile("NVIDIA H200 \"x\"\n"), unknown;

    TAP_CHECK(set_up());
    TAP_CHECK(reads_back(&profile));
    zo_profile_init(&unknown);
    unknown.threads = 1;
    unknown.is_host = true;
    TAP_CHECK(reads_back(&unknown)); /* nulls */
    for (int i = 0; zo_profile_shipped(i) != NULL; i++) {
        TAP_CHECK(reads_back(zo_profile_shipped(i)));
    }
    TAP_CHECK(reads_back(&profile)); /* replaced, not added */
    tear_down();
}

static void test_several(void)
{
    struct zo_profile one = some_profile("one"), two = some_profile("two");
    struct zo_profile_key key;
    struct zo_profile read;
    bool found = false;

    TAP_CHECK(set_up());
    two.h2d = 7.0;
    TAP_CHECK(reads_back(&one));
    TAP_CHECK(reads_back(&two));
    TAP_CHECK(reads_back(&one)); /* and two stays */
    key = key_of(&two);
    TAP_CHECK_INT(zo_profile_file_read(path, &key, &read, &found), ZO_OK);
    TAP_CHECK(found && same(&read, &two));
    key.is_host = true;
    TAP_CHECK_INT(zo_profile_file_read(path, &key, &read, &found), ZO_OK);
    TAP_CHECK(!found); /* another backend */
    key.name = NULL;
    TAP_CHECK_INT(zo_profile_file_read(path, &key, &read, &found), ZO_OK);
    TAP_CHECK(found);
    tear_down();
}

static int count_of(const char *text, const char *word)
{
    int count = 0;

    while ((text = strstr(text, word)) != NULL) {
        text += strlen(word);
        count++;
    }
    return count;
}

/* What stands in for another machine is not this one, nor the other way. */
static void test_stand_ins(void)
{
    struct zo_profile plain = some_profile("one"), paced, lesser, read;
    struct zo_profile_key key;
    bool found = true;

    TAP_CHECK(set_up());
    plain.paced = 0.0;
    plain.simd = ZO_SIMD_BEST;
    paced = lesser = plain;
    paced.paced = paced.h2d = 2.2e10;
    lesser.simd = ZO_SIMD_BASE;
    lesser.cpu = 7e9;
    TAP_CHECK(reads_back(&paced));
    key = key_of(&plain);
    TAP_CHECK_INT(zo_profile_file_read(path, &key, &read, &found), ZO_OK);
    TAP_CHECK(!found);
    key.name = NULL;
    TAP_CHECK_INT(zo_profile_file_read(path, &key, &read, &found), ZO_OK);
    TAP_CHECK(!found); /* nor of any device */
    TAP_CHECK(reads_back(&lesser));
    TAP_CHECK(reads_back(&plain));
    TAP_CHECK(reads_back(&lesser));
    for (int i = 0; i < 3; i++) { /* each is there, once */
        const struct zo_profile *want = i == 0   ? &plain
                                        : i == 1 ? &paced
                                                 : &lesser;

        key = key_of(want);
        TAP_CHECK_INT(zo_profile_file_read(path, &key, &read, &found), ZO_OK);
        TAP_CHECK(found && same(&read, want));
    }
    TAP_CHECK_INT(count_of(read_text(), "\"simd\":"), 3);
    tear_down();
}

/* Files of before say nothing of either: they are plain. */
static void test_older(void)
{
    static const struct zo_profile_key key = {.name = NULL};
    struct zo_profile read;
    bool found = false;

    TAP_CHECK(set_up());
    TAP_CHECK(write_text("{\"format\":1,\"kind\":\"machine\",\"rates\":[{"
                         "\"name\":\"one\",\"source\":\"measured\","
                         "\"backend\":\"cuda\",\"threads\":2}]}"));
    TAP_CHECK_INT(zo_profile_file_read(path, &key, &read, &found), ZO_OK);
    TAP_CHECK(found && read.paced == 0.0 && read.simd == ZO_SIMD_BEST);
    tear_down();
}

/* What doctor wrote stays, down to nested members. */
static void test_keeps(void)
{
    static const char facts[] =
        "\"version\":\"0.1.0\",\"host\":{\"cores\":16,\"lock_limit_bytes\":"
        "null,\"a\":[1,[2,{\"b\":0.5}],[]]},\"gpus\":[{\"index\":0,\"opens\":"
        "true,\"peers\":[]}]";
    const struct zo_profile profile = some_profile("one");
    char text[512];

    TAP_CHECK(set_up());
    (void)snprintf(text, sizeof(text),
                   "{\"format\":1,\"kind\":\"machine\",%s}\n", facts);
    TAP_CHECK(write_text(text));
    TAP_CHECK(reads_back(&profile));
    TAP_CHECK(strstr(read_text(), facts) != NULL);
    TAP_CHECK(reads_back(&profile));
    TAP_CHECK(strstr(read_text(), facts) != NULL);
    tear_down();
}

/* ---- hostile files --------------------------------------------------------
 */

static const struct {
    const char *text, *says;
} hostile[] = {
    {"", "empty"},
    {"[]", "want a machine profile"},
    {"{\"format\":1}", "kind"},
    {"{\"format\":1,\"kind\":\"run\"}", "machine"},
    {"{\"format\":2,\"kind\":\"machine\"}", "format"},
    {"{\"kind\":\"machine\"}", "format"},
    {"{\"format\":1,\"kind\":\"machine\",\"rates\":{}}", "an array"},
    {"{\"format\":1,\"kind\":\"machine\",\"rates\":[7]}", "an object"},
    {"{\"format\":1,\"kind\":\"machine\",\"rates\":[{}]}", "source"},
    {"{\"format\":1,\"kind\":\"machine\",\"rates\":[{\"source\":\"guess\","
     "\"backend\":\"host\",\"threads\":1}]}",
     "data sheet"},
    {"{\"format\":1,\"kind\":\"machine\",\"rates\":[{\"source\":\"measured\","
     "\"backend\":\"tpu\",\"threads\":1}]}",
     "backend"},
    {"{\"format\":1,\"kind\":\"machine\",\"rates\":[{\"source\":\"measured\","
     "\"backend\":\"host\",\"threads\":0}]}",
     "threads"},
    {"{\"format\":1,\"kind\":\"machine\",\"rates\":[{\"source\":\"measured\","
     "\"backend\":\"host\",\"threads\":2,\"h2d_bytes_per_second\":-1}]}",
     "h2d_bytes_per_second"},
    {"{\"format\":1,\"kind\":\"machine\",\"rates\":[{\"source\":\"measured\","
     "\"backend\":\"host\",\"threads\":2,\"launch_seconds\":1e30}]}",
     "launch_seconds"},
    {"{\"format\":1,\"kind\":\"machine\",\"rates\":[{\"source\":\"measured\","
     "\"backend\":\"host\",\"threads\":2,\"cpu_bytes_per_second\":\"x\"}]}",
     "cpu_bytes_per_second"},
    {"{\"format\":1,\"kind\":\"machine\",\"rates\":[{\"source\":\"measured\","
     "\"backend\":\"host\",\"threads\":2,\"products_flops_per_second\":3}]}",
     "products_flops_per_second"},
    {"{\"format\":1,\"kind\":\"machine\",\"rates\":[{\"source\":\"measured\","
     "\"backend\":\"host\",\"threads\":2,\"products\":\"aaaaaaaaaaaaaaaaaaaaaa"
     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}]}",
     "at most 63 bytes"},
    {"{\"format\":1,\"kind\":\"machine\",\"rates\":[{\"source\":\"measured\","
     "\"backend\":\"host\",\"threads\":2,\"simd\":\"sse9\"}]}",
     "want best, base, avx2 or avx512, found \"sse9\""},
    {"{\"format\":1,\"kind\":\"machine\",\"rates\":[{\"source\":\"measured\","
     "\"backend\":\"host\",\"threads\":2,"
     "\"copies_paced_bytes_per_second\":-1}]}",
     "copies_paced_bytes_per_second"},
};

static void test_hostile(void)
{
    const struct zo_profile profile = some_profile("one");
    const struct zo_profile_key key = key_of(&profile);

    TAP_CHECK(set_up());
    for (size_t i = 0; i < TAP_COUNT(hostile); i++) {
        struct zo_profile read = profile;
        bool found = false;
        enum zo_status status;

        TAP_CHECK(write_text(hostile[i].text));
        status = zo_profile_file_read(path, &key, &read, &found);
        if (status != ZO_E_USAGE ||
            strstr(zo_err_last()->text, hostile[i].says) == NULL) {
            tap_fail(__FILE__, __LINE__, "%s: status %d, \"%s\"",
                     hostile[i].text, (int)status, zo_err_last()->text);
            return;
        }
        TAP_CHECK(same(&read, &profile)); /* untouched */
        /* A cache that is damaged is made anew. */
        TAP_CHECK(reads_back(&profile));
    }
    tear_down();
}

static void test_not_there(void)
{
    static const struct zo_profile_key key = {.name = NULL};
    struct zo_profile read;
    bool found = false;

    TAP_CHECK(set_up());
    TAP_CHECK_INT(zo_profile_file_read(path, &key, &read, &found), ZO_E_USAGE);
    TAP_CHECK(write_text("{\"format\":1,\"kind\":\"machine\"}"));
    TAP_CHECK_INT(zo_profile_file_read(path, &key, &read, &found), ZO_OK);
    TAP_CHECK(!found);
    tear_down();
}

static void test_no_memory(void)
{
    const struct zo_profile profile = some_profile("one");
    enum zo_status status = ZO_E_NOMEM;
    int failures = 0;

    TAP_CHECK(set_up());
    TAP_CHECK(reads_back(&profile));
    while (status != ZO_OK && failures < 1000) {
        zo_memory_fail_at((uint64_t)failures + 1);
        status = zo_profile_file_update(path, &profile);
        zo_memory_fail_at(0);
        TAP_CHECK(status == ZO_OK || status == ZO_E_NOMEM);
        failures += status != ZO_OK;
    }
    TAP_CHECK(failures > 3);
    TAP_CHECK(reads_back(&profile));
    tear_down();
}

/* ---- shipped --------------------------------------------------------------
 */

static void test_shipped(void)
{
    static const char *const names[] = {"3090", "4090", "5090",
                                        "a100", "h100", "h200"};

    for (size_t i = 0; i < TAP_COUNT(names); i++) {
        const struct zo_profile *profile = zo_profile_find(names[i]);

        TAP_CHECK(profile != NULL && strcmp(profile->name, names[i]) == 0);
        TAP_CHECK(profile->source == ZO_PROFILE_DATA_SHEET);
        TAP_CHECK(profile->matrix_flops[ZO_BF16] > 5e13);
        TAP_CHECK(profile->h2d > 3e10 && profile->cpu > 5e10);
    }
    TAP_CHECK(zo_profile_find("none") == NULL);
    TAP_CHECK(zo_profile_shipped(TAP_COUNT(names)) == NULL);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"every field comes back", test_round_trip},
        {"several devices have a place", test_several},
        {"a stand-in for another machine has its own", test_stand_ins},
        {"files of before are of plain machines", test_older},
        {"the rest of the file stays", test_keeps},
        {"hostile files are told, and not believed", test_hostile},
        {"no file, and no rates", test_not_there},
        {"each allocation fails in turn", test_no_memory},
        {"the shipped profiles", test_shipped},
    };

    return tap_run(cases, TAP_COUNT(cases));
}
