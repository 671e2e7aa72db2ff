#include "src/cli/print_units.h"

#include <string.h>

#include "src/base/text.h"

#define KINDS_MAX 4

/* Buffers that are told as one factor. */
struct kind {
    int unit; /* of the first; -1: none */
    uint64_t bytes;
    int count;
};

static bool is_layer(const struct zo_build *build, int unit)
{
    return unit >= 0 && unit < build->options.unit_count &&
           strncmp(build->options.units[unit].name, "layer", 5) == 0;
}

static bool is_same_kind(const struct zo_build *build, const struct kind *kind,
                         int unit, uint64_t bytes)
{
    return kind->bytes == bytes &&
           (kind->unit == unit ||
            (is_layer(build, kind->unit) && is_layer(build, unit)));
}

/* Returns false when there are more kinds than are told. */
static bool add(const struct zo_build *build, struct kind *kinds, int *count,
                int unit, uint64_t bytes)
{
    for (int i = 0; i < *count; i++) {
        if (is_same_kind(build, &kinds[i], unit, bytes)) {
            kinds[i].count++;
            return true;
        }
    }
    if (*count == KINDS_MAX) {
        return false;
    }
    kinds[(*count)++] = (struct kind){unit, bytes, 1};
    return true;
}

static void print_kind(FILE *file, const struct zo_build *build,
                       const struct kind *kind)
{
    char text[32];

    if (is_layer(build, kind->unit)) {
        (void)fprintf(file, "%d layer%s x ", kind->count,
                      kind->count == 1 ? "" : "s");
    } else if (kind->unit >= 0 && kind->unit < build->options.unit_count) {
        (void)fprintf(file, "%s ", build->options.units[kind->unit].name);
        if (kind->count > 1) {
            (void)fprintf(file, "%d x ", kind->count);
        }
    } else {
        (void)fprintf(file, "%d x ", kind->count);
    }
    (void)fputs(zo_text_gib(text, sizeof(text), kind->bytes), file);
}

void zo_cli_print_factors(FILE *file, const struct zo_build *build,
                          const struct zo_plan_arena *arena,
                          enum zo_purpose purpose)
{
    const struct zo_program *program = &build->program;
    struct kind kinds[KINDS_MAX];
    int count = 0;
    bool is_all = true;

    for (size_t i = 0; i < program->buffer_count; i++) {
        const struct zo_buffer *buffer = &program->buffers[i];

        if (buffer->purpose == purpose && zo_plan_holds(program, arena, i)) {
            is_all &= add(build, kinds, &count, buffer->unit,
                          zo_plan_stored_bytes(buffer));
        }
    }
    for (int i = 0; i < count; i++) {
        (void)fputs(i > 0 ? " + " : "", file);
        print_kind(file, build, &kinds[i]);
    }
    (void)fputs(is_all ? "" : " + ...", file);
}

void zo_cli_write_units(struct zo_jsonl *json, const char *key,
                        const struct zo_build *build,
                        const struct zo_plan_arena *arena)
{
    const struct zo_program *program = &build->program;

    zo_jsonl_array_begin(json, key);
    for (int unit = 0; unit < build->options.unit_count; unit++) {
        uint64_t bytes[ZO_PURPOSES] = {0};

        for (size_t i = 0; i < program->buffer_count; i++) {
            const struct zo_buffer *buffer = &program->buffers[i];

            if (buffer->unit == unit && zo_plan_holds(program, arena, i)) {
                bytes[buffer->purpose] += zo_plan_stored_bytes(buffer);
            }
        }
        for (int p = 0; p < ZO_PURPOSES; p++) {
            if (bytes[p] > 0) {
                zo_jsonl_object_begin(json, NULL);
                zo_jsonl_text(json, "unit", build->options.units[unit].name);
                zo_jsonl_text(json, "purpose",
                              zo_purpose_text((enum zo_purpose)p));
                zo_jsonl_uint(json, "bytes", bytes[p]);
                zo_jsonl_object_end(json);
            }
        }
    }
    zo_jsonl_array_end(json);
}
