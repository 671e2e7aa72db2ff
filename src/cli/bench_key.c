#include "src/cli/bench_key.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define HASH_BYTES 24 /* " #" and 16 digits, with room */

struct text {
    char *target;
    size_t used, bytes;
    uint64_t hash; /* FNV-1a, of all of it */
};

static void add(struct text *text, const char *format, ...) ZO_PRINTF(2, 3);

static void add(struct text *text, const char *format, ...)
{
    char piece[512];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(piece, sizeof(piece), format, arguments);
    va_end(arguments);
    for (const char *at = piece; *at != '\0'; at++) {
        text->hash = (text->hash ^ (unsigned char)*at) * 1099511628211u;
        if (text->used + 1 < text->bytes) {
            text->target[text->used] = *at;
        }
        text->used++;
    }
}

static void add_model(struct text *text, const struct zo_setup *setup)
{
    const struct zo_model_config *m = &setup->model;

    add(text, " %s %lldx%lldx%lldx%lld", m->name[0] != '\0' ? m->name : "-",
        (long long)m->num_layers, (long long)m->hidden_size,
        (long long)m->ffn_size, (long long)m->vocab_size);
}

static void add_config(struct text *text, const struct zo_run_config *c)
{
    add(text, " %s rows=%lldx%lld clip=%g check=%d comm=%s moments=%s",
        zo_dtype_name(c->dtype), (long long)c->micro_batch_rows,
        (long long)c->gradient_accumulation_steps, c->gradient_clipping,
        (int)c->check_grad_overflow, zo_dtype_name(c->communication_dtype),
        zo_dtype_name(c->optimizer.moment_dtype));
    add(text, " stage=%d optimizer=%d param=%d ratio=%g fill=%d recompute=%d",
        c->zero.stage, (int)c->zero.optimizer.limit, (int)c->zero.param.limit,
        c->zero.optimizer.ratio, (int)c->fill, (int)c->activations.recompute);
    add(text, " steps=%lld seed=%lld", (long long)c->max_steps,
        (long long)c->seed);
}

void zo_bench_key(const char *what, const struct zo_setup *setup,
                  bool plans_only, char *target, size_t target_bytes)
{
    const struct zo_options *options = setup->options;
    const struct zo_machine *machine = &setup->devices.machine;
    struct text text = {target, 0, target_bytes, 14695981039346656037u};

    add(&text, "%s%s", what, plans_only ? " planned" : "");
    add_model(&text, setup);
    add_config(&text, &setup->config);
    add(&text, " tokens=%d gpu=%llu host=%llu", setup->bounds.tokens,
        (unsigned long long)options->gpu_memory_bytes,
        (unsigned long long)options->host_memory_bytes);
    add(&text, " simd=%d copies=%llu threads=%d on %dx%s", options->simd,
        (unsigned long long)options->copy_bytes_per_second,
        setup->devices.threads, machine->device_count,
        machine->device_ops->info(machine->devices[0])->description);
    if (options->config != NULL) {
        add(&text, " config=%s", options->config);
    }
    for (size_t i = 0; i < options->set_count; i++) {
        add(&text, " %s", options->sets[i]);
    }
    if (text.used >= target_bytes) {
        text.used = target_bytes - HASH_BYTES;
        (void)snprintf(target + text.used, HASH_BYTES, " #%016llx",
                       (unsigned long long)text.hash);
    } else {
        target[text.used] = '\0';
    }
}
