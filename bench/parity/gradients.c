/*
 * The loss and every gradient of one step, for comparing with another
 * trainer's.
 *
 *   gradients cuda|host fp32|bf16|fp16 MODEL ROWS COUNT OUT.safetensors
 *
 * MODEL is a directory, ROWS a file of JSON lines (input_ids, labels), whose
 * first COUNT rows are the step.  The learning rate is 0.  OUT holds "loss"
 * and "grad.NAME" of each parameter, in fp32.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"
#include "src/checkpoint/safetensors_writer.h"
#include "tests/vector_run.h"

#define NAME_BYTES (ZO_PARAMETER_NAME_BYTES + 8)

/* "loss" and a tensor for each parameter; names[i] holds the name of i. */
static void declare(const struct zo_parameters *parameters,
                    struct zo_tensor_info *infos, char (*names)[NAME_BYTES])
{
    infos[0] = (struct zo_tensor_info){
        .name = "loss",
        .element = zo_element_of_dtype(ZO_F32),
        .rank = 1,
        .shape = {1},
    };
    for (size_t p = 0; p < parameters->trained_count; p++) {
        const struct zo_parameter *parameter = &parameters->items[p];

        (void)snprintf(names[p], NAME_BYTES, "grad.%s", parameter->name);
        infos[p + 1] = (struct zo_tensor_info){
            .name = names[p],
            .element = zo_element_of_dtype(ZO_F32),
            .rank = parameter->dims,
            .shape = {parameter->shape[0], parameter->shape[1]},
        };
    }
}

static enum zo_status append_gradients(const struct vector_run *run,
                                       struct zo_safetensors_writer *writer)
{
    const struct zo_parameters *parameters =
        zo_glm_parameters(zo_trainer_glm(run->trainer));
    const float loss = (float)run->steps[0].loss;
    enum zo_status status = ZO_OK;

    ZO_TRY(zo_safetensors_writer_append(writer, &loss, sizeof(loss)));
    for (size_t p = 0; p < parameters->trained_count && status == ZO_OK; p++) {
        const size_t count = (size_t)parameters->items[p].elems;
        float *gradient = NULL;

        ZO_TRY(zo_alloc(count, sizeof(*gradient), "a gradient", &gradient));
        status = zo_trainer_gradient(run->trainer, p, gradient);
        if (status == ZO_OK) {
            status = zo_safetensors_writer_append(writer, gradient,
                                                  count * sizeof(*gradient));
        }
        zo_free(gradient);
    }
    return status;
}

static enum zo_status write_gradients(const struct vector_run *run,
                                      const char *path)
{
    const struct zo_parameters *parameters =
        zo_glm_parameters(zo_trainer_glm(run->trainer));
    const size_t count = parameters->trained_count;
    struct zo_safetensors_writer *writer = NULL;
    struct zo_tensor_info *infos = NULL;
    char(*names)[NAME_BYTES] = NULL;
    enum zo_status status;

    ZO_TRY(zo_alloc(count + 1, sizeof(*infos), "the tensors", &infos));
    ZO_TRY_GOTO(done, zo_alloc(count, sizeof(*names), "the names", &names));
    declare(parameters, infos, names);
    ZO_TRY_GOTO(done,
                zo_safetensors_writer_open(path, infos, count + 1, &writer));
    ZO_TRY_GOTO(done, append_gradients(run, writer));
    status = zo_safetensors_writer_finish(writer);
done:
    zo_safetensors_writer_close(writer);
    zo_free(names);
    zo_free(infos);
    return status;
}

int main(int argc, char **argv)
{
    static struct vector_run run;
    const char *args[] = {"--per-device-train-batch-size",
                          argc == 7 ? argv[5] : NULL,
                          "--learning-rate",
                          "0",
                          NULL,
                          NULL};
    struct tiny_settings settings = {.args = args, .steps = 1};
    enum zo_status status;

    if (argc != 7) {
        (void)fprintf(stderr, "usage: gradients cuda|host fp32|bf16|fp16 "
                              "MODEL ROWS COUNT OUT.safetensors\n");
        return 2;
    }
    settings.on_gpu = strcmp(argv[1], "cuda") == 0;
    settings.model = argv[3];
    settings.rows = argv[4];
    if (strcmp(argv[2], "fp32") != 0) {
        args[4] = strcmp(argv[2], "bf16") == 0 ? "--bf16" : "--fp16";
    }
    tiny_open(&run, &settings);
    status = tiny_train(&run);
    if (status == ZO_OK) {
        (void)printf("%s %s: loss %.9g of %" PRId64 " step\n", argv[1], argv[2],
                     run.steps[0].loss, run.step_count);
        status = write_gradients(&run, argv[6]);
    }
    if (status != ZO_OK) {
        (void)fprintf(stderr, "gradients: %s\n", zo_err_last()->text);
    }
    tiny_close(&run);
    return status == ZO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
