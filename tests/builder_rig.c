#include "tests/builder_rig.h"

#include "tests/offload_help.h"
#include "tests/tap.h"

enum zo_status builder_rig_open(const struct fake_shape *shape,
                                const struct zo_executor_options *options,
                                struct builder_rig *rig)
{
    *rig = (struct builder_rig){.executor = NULL};
    ZO_TRY(fake_model_build(shape, &rig->model));
    ZO_TRY(help_machine_open(&rig->machine, 1, shape->seed, 5));
    rig->machine.kernel_ops = shape->kernel_ops;
    ZO_TRY(zo_executor_open(&rig->model.build.program, &rig->machine, options,
                            &rig->executor));
    return fake_model_load(&rig->model, rig->executor);
}

void builder_rig_close(struct builder_rig *rig)
{
    zo_executor_close(rig->executor);
    help_machine_close(&rig->machine);
    zo_build_fini(&rig->model.build);
}

uint64_t builder_rig_states(const struct fake_shape *shape, const char *lists,
                            const struct zo_executor_options *options)
{
    uint64_t hash = 0;
    struct builder_rig rig;

    if (builder_rig_open(shape, options, &rig) == ZO_OK &&
        fake_model_run(&rig.model, rig.executor, lists) == ZO_OK) {
        hash = fake_model_states(&rig.model, rig.executor);
    } else {
        tap_fail(__FILE__, __LINE__, "%s: %s", lists, zo_err_last()->text);
    }
    builder_rig_close(&rig);
    return hash;
}
