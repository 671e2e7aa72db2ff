/*
 * Subcommands when memory runs out: allocation 1 fails, then 2, then 3, until
 * the command gets through.  Each failure is clean: the right status, nothing
 * half-written, and no leak (the address sanitizer sees that).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/memory.h"
#include "src/cli/cli.h"
#include "tests/tap.h"

#define ALLOCATIONS_MAX 5000

static const char config_json[] =
    "{\"model_type\": \"chatglm\", \"num_layers\": 1, \"hidden_size\": 64,"
    " \"num_attention_heads\": 4, \"kv_channels\": 16,"
    " \"multi_query_attention\": true, \"multi_query_group_num\": 2,"
    " \"ffn_hidden_size\": 96, \"padded_vocab_size\": 256,"
    " \"seq_length\": 512, \"rmsnorm\": true, \"layernorm_epsilon\": 1e-05,"
    " \"add_qkv_bias\": true, \"add_bias_linear\": false,"
    " \"post_layer_norm\": true, \"torch_dtype\": \"float16\"}";

static char folder[] = "test_cli_memory.XXXXXX";
static char source[64], target[64];

static bool make_source(void)
{
    char path[128];
    FILE *file;
    bool done;

    if (mkdtemp(folder) == NULL) {
        return false;
    }
    (void)snprintf(source, sizeof(source), "%s/source", folder);
    (void)snprintf(target, sizeof(target), "%s/target", folder);
    (void)snprintf(path, sizeof(path), "%s/config.json", source);
    if (mkdir(source, 0777) != 0 || (file = fopen(path, "w")) == NULL) {
        return false;
    }
    done = fputs(config_json, file) >= 0;
    return fclose(file) == 0 && done;
}

static void remove_folder(const char *name)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    char path[160];

    for (size_t i = 0; i < TAP_COUNT(files); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", name, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(name);
}

/* Runs a command with the nth allocation failing; 0: none. */
static enum zo_status run(zo_cli_fn command, const struct zo_options *options,
                          uint64_t nth)
{
    FILE *null = fopen("/dev/null", "w");
    struct zo_cli cli = {.out = null, .err = null};
    enum zo_status status;

    zo_memory_fail_at(nth);
    status = command(&cli, options);
    zo_memory_fail_at(0);
    zo_notes_fini(&cli.notes);
    (void)fclose(null);
    return status;
}

static bool is_there(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0;
}

static void test_init(void)
{
    struct zo_options options;
    enum zo_status status = ZO_E_NOMEM;

    zo_options_init(&options, ZO_COMMAND_INIT);
    options.model = source;
    options.output = target;
    options.threads = 2;
    for (uint64_t nth = 1; status != ZO_OK && nth < ALLOCATIONS_MAX; nth++) {
        status = run(zo_cli_init, &options, nth);
        TAP_CHECK(status == ZO_OK || status == ZO_E_NOMEM);
        TAP_CHECK(is_there(target) == (status == ZO_OK));
    }
    TAP_CHECK_INT(status, ZO_OK);
    zo_options_fini(&options);
}

static void test_inspect(void)
{
    struct zo_options options;
    enum zo_status status = ZO_E_NOMEM;

    zo_options_init(&options, ZO_COMMAND_INSPECT);
    options.model = target;
    for (uint64_t nth = 1; status != ZO_OK && nth < ALLOCATIONS_MAX; nth++) {
        status = run(zo_cli_inspect, &options, nth);
        TAP_CHECK(status == ZO_OK || status == ZO_E_NOMEM);
    }
    TAP_CHECK_INT(status, ZO_OK);
    zo_options_fini(&options);
}

/* Every 7th: the tokenizer is read anew each time. */
static void test_inspect_text(void)
{
    const char *shared = getenv("ZERO_OFFLOAD_SHARED");
    struct zo_options options;
    enum zo_status status = ZO_E_NOMEM;
    char model[1024];

    (void)snprintf(model, sizeof(model), "%s/chatglm2-6b",
                   shared != NULL ? shared : "no-such-folder");
    if (!is_there(model)) {
        tap_skip("no chatglm2-6b in ZERO_OFFLOAD_SHARED");
        return;
    }
    zo_options_init(&options, ZO_COMMAND_INSPECT);
    options.model = model;
    options.text = "text";
    options.json = true;
    for (uint64_t nth = 1; status != ZO_OK && nth < ALLOCATIONS_MAX; nth += 7) {
        status = run(zo_cli_inspect, &options, nth);
        TAP_CHECK(status == ZO_OK || status == ZO_E_NOMEM);
    }
    TAP_CHECK_INT(status, ZO_OK);
    zo_options_fini(&options);
}

/* Every 53rd: the table, the plan and the changes that help are long. */
static void test_plan(void)
{
    struct zo_options options;
    enum zo_status status = ZO_E_NOMEM;

    zo_options_init(&options, ZO_COMMAND_PLAN);
    options.model = source;
    options.profile = "4090";
    options.bf16 = true;
    options.threads = 2;
    options.num_devices = 2;
    options.max_length = 64;
    options.backend = ZO_BACKEND_HOST;
    for (uint64_t nth = 1; status != ZO_OK && nth < 1000000; nth += 53) {
        status = run(zo_cli_plan, &options, nth);
        TAP_CHECK(status == ZO_OK || status == ZO_E_NOMEM);
    }
    TAP_CHECK_INT(status, ZO_OK);
    zo_options_fini(&options);
}

int main(void)
{
    static const struct tap_case cases[] = {
        {"init without memory fails and leaves nothing", test_init},
        {"inspect without memory fails", test_inspect},
        {"inspect --text without memory fails", test_inspect_text},
        {"plan without memory fails", test_plan},
    };
    int code;

    if (!make_source()) {
        (void)printf("Bail out! no folder for the test\n");
        return EXIT_FAILURE;
    }
    code = tap_run(cases, TAP_COUNT(cases));
    remove_folder(target);
    remove_folder(source);
    (void)rmdir(folder);
    return code;
}
