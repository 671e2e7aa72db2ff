#include "offload/schedule.h"

#include "src/base/arith.h"
#include "src/base/memory.h"

const char *zo_purpose_text(enum zo_purpose purpose)
{
    static const char *const texts[] = {
#define ZO_PURPOSE_TEXT(name, text) text,
        ZO_PURPOSE_LIST(ZO_PURPOSE_TEXT)
#undef ZO_PURPOSE_TEXT
    };

    return texts[purpose];
}

const char *zo_engine_text(enum zo_engine engine)
{
    static const char *const texts[ZO_ENGINES] = {
        "compute", "h2d", "d2h", "collective", "cpu", "nvme",
    };

    return texts[engine];
}

const char *zo_engine_words(enum zo_engine engine)
{
    static const char *const texts[ZO_ENGINES] = {
        "computation", "to device", "from device",
        "collectives", "processor", "NVMe",
    };

    return texts[engine];
}

const char *zo_tier_text(enum zo_tier tier)
{
    static const char *const texts[ZO_TIERS] = {
        "GPU", "host", "host (pageable)", "NVMe", "host (copy)"};

    return texts[tier];
}

void zo_program_init(struct zo_program *program, int device_count)
{
    ZO_ASSERT(device_count >= 1 && device_count <= ZO_DEVICES_MAX);
    *program = (struct zo_program){.device_count = device_count};
}

void zo_program_fini(struct zo_program *program)
{
    if (program == NULL) {
        return;
    }
    for (int i = 0; i < program->schedule_count; i++) {
        zo_free(program->schedules[i].ops);
        zo_free(program->schedules[i].accesses);
    }
    zo_free(program->buffers);
    *program = (struct zo_program){0};
}

enum zo_status zo_program_buffer(struct zo_program *program,
                                 const struct zo_buffer *buffer,
                                 zo_buffer_id *id_out)
{
    struct zo_buffer *added;

    ZO_ASSERT(!program->is_laid_out);
    ZO_ASSERT(buffer->device >= 0 && buffer->device < program->device_count);
    ZO_ASSERT(buffer->tier == ZO_TIER_GPU || buffer->device == 0);
    ZO_ASSERT(buffer->schedule < program->schedule_count);
    ZO_TRY(zo_grow(&program->buffers, program->buffer_count,
                   &program->buffer_capacity, sizeof(program->buffers[0]),
                   "the schedule's buffers"));
    added = &program->buffers[program->buffer_count];
    *added = *buffer;
    added->first_use = INT64_MAX;
    added->last_use = -1;
    *id_out = (zo_buffer_id)program->buffer_count++;
    return ZO_OK;
}

int zo_program_schedule(struct zo_program *program, const char *name)
{
    ZO_ASSERT(program->schedule_count < ZO_SCHEDULES_MAX);
    program->schedules[program->schedule_count] =
        (struct zo_schedule){.name = name};
    return program->schedule_count++;
}

static void check_access(const struct zo_program *program, int schedule,
                         const struct zo_op *op, const struct zo_access *access)
{
    const struct zo_buffer *buffer = &program->buffers[access->buffer];

    ZO_ASSERT(access->buffer < program->buffer_count);
    ZO_ASSERT(buffer->schedule == -1 || buffer->schedule == schedule);
    ZO_ASSERT(access->offset <= buffer->bytes &&
              access->bytes <= buffer->bytes - access->offset);
    ZO_ASSERT(buffer->tier != ZO_TIER_PAGEABLE || op->engine == ZO_ENGINE_CPU);
    ZO_ASSERT(buffer->tier != ZO_TIER_NVME || op->engine == ZO_ENGINE_NVME);
    /* A stream's operation touches its own device or the host. */
    ZO_ASSERT(
        buffer->tier != ZO_TIER_GPU || op->engine == ZO_ENGINE_COLLECTIVE ||
        (zo_engine_is_stream(op->engine) && buffer->device == op->device));
}

enum zo_status zo_schedule_add(struct zo_program *program, int schedule,
                               const struct zo_op *op,
                               const struct zo_access *accesses,
                               size_t access_count)
{
    struct zo_schedule *list = &program->schedules[schedule];
    struct zo_op *added;

    ZO_ASSERT(!program->is_laid_out);
    ZO_ASSERT(access_count <= ZO_OP_ACCESSES_MAX);
    ZO_ASSERT(op->parts <= 1 || op->engine == ZO_ENGINE_CPU);
    ZO_TRY(zo_grow(&list->ops, list->op_count, &list->op_capacity,
                   sizeof(list->ops[0]), "a schedule's operations"));
    for (size_t i = 0; i < access_count; i++) {
        ZO_TRY(zo_grow(&list->accesses, list->access_count + i,
                       &list->access_capacity, sizeof(list->accesses[0]),
                       "a schedule's accesses"));
        check_access(program, schedule, op, &accesses[i]);
        list->accesses[list->access_count + i] = accesses[i];
    }
    added = &list->ops[list->op_count++];
    *added = *op;
    added->parts = op->parts > 0 ? op->parts : 1;
    added->access_first = (uint32_t)list->access_count;
    added->access_count = (uint32_t)access_count;
    list->access_count += access_count;
    return ZO_OK;
}
