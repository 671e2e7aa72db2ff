/*
 * zero-offload bench sweep: one key of the configuration over some values.
 */
#include <string.h>

#include "src/cli/bench_run.h"

/* The last --set whose value is a list; -1: none. */
static int find_list(const struct zo_options *options)
{
    for (size_t i = options->set_count; i > 0; i--) {
        const char *value = strchr(options->sets[i - 1], '=') + 1;

        if (value[0] != '[' && value[0] != '{' && strchr(value, ',') != NULL) {
            return (int)i - 1;
        }
    }
    return -1;
}

/* The value that starts at `value`; prints its row. */
static enum zo_status run_value(struct zo_bench *bench, int list,
                                const char *value, size_t value_bytes)
{
    const char *set = bench->options->sets[list];
    const int key_bytes = (int)(strchr(set, '=') - set);
    struct zo_variant variant;
    struct zo_bench_row row;
    struct zo_bench_ask ask = {.note = ""};
    enum zo_status status;

    ZO_TRY(zo_variant_init(bench->options, &variant));
    ZO_TRY_GOTO(close_variant, zo_variant_set(&variant, "%.*s=%.*s", key_bytes,
                                              set, (int)value_bytes, value));
    /* In the place of the list. */
    variant.sets[list] = variant.sets[--variant.options.set_count];
    ask.label = strchr(variant.sets[list], '=') + 1;
    ZO_TRY_GOTO(close_variant,
                zo_bench_row(bench, &variant.options, &ask, &row));
    if (!bench->options->json) {
        zo_bench_print_row(bench, &row);
        (void)fputc('\n', bench->cli->out);
        (void)fflush(bench->cli->out);
    }

close_variant:
    zo_variant_fini(&variant);
    return status;
}

enum zo_status zo_bench_sweep(struct zo_cli *cli,
                              const struct zo_options *options)
{
    const int list = find_list(options);
    struct zo_bench bench;
    enum zo_status status = ZO_OK;

    if (list < 0) {
        return ZO_FAIL(ZO_E_USAGE,
                       "bench sweep: want --set KEY.PATH=A,B,C: the values of "
                       "a key");
    }
    ZO_TRY(zo_bench_open(cli, options, "sweep", "value", &bench));
    if (!options->json) {
        (void)fprintf(cli->out, "%.*s\n",
                      (int)strcspn(options->sets[list], "="),
                      options->sets[list]);
    }
    for (const char *at = strchr(options->sets[list], '=') + 1;
         status == ZO_OK && at != NULL;) {
        const char *comma = strchr(at, ',');
        const size_t bytes = comma != NULL ? (size_t)(comma - at) : strlen(at);

        status = run_value(&bench, list, at, bytes);
        at = comma != NULL ? comma + 1 : NULL;
    }
    status = status == ZO_OK ? zo_bench_verdict(&bench) : status;
    zo_bench_close(&bench);
    return status;
}
