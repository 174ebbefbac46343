#include "tests/unit/whole_model.h"

#include <stdlib.h>

static int create_parts(struct whole_model *w, struct error *err)
{
    struct zero_comms comms = {.dp = w->alone, .world = w->alone};
    struct rank_config *config = w->config;

    if (tp_create(&w->tp, w->dev, w->alone, config->context.dtype, config->tp_scratch, err) < 0)
        return -1;
    config->context.dev = w->dev;
    config->context.k = device_kernels(w->dev);
    config->context.tp = &w->tp;
    w->zero = zero_create(w->dev, &comms, config->units, &config->zero, err);
    w->model = w->zero ? model_create(&config->context, config->units, w->zero, &config->model, err) : NULL;
    w->params = w->model ? error_calloc((size_t)config->units->nunits, sizeof *w->params, err) : NULL;
    for (int i = 0; w->params && i < config->units->nunits; i++)
        w->params[i] = (void *)zero_param(w->zero, i);
    return w->params ? zero_initialize(w->zero, &w->job, err) : -1;
}

int whole_model_create(struct whole_model *w, const char *job, const char *device, struct error *err)
{
    const struct mesh mesh = {.dp = 1, .tp = 1, .pp = 1};

    if (job_parse(&w->job, job, "job", NULL, 0, err) < 0)
        return -1;
    w->dev = device_create(device, 0, err);
    if (!w->dev)
        return -1;
    w->traits = device_traits(w->dev, w->job.precision.compute);
    w->config = rank_config_create(&w->job, &mesh, 0, &w->traits, err);
    w->alone = w->config ? comm_alone_create(err) : NULL;
    return w->alone ? create_parts(w, err) : -1;
}

void whole_model_destroy(struct whole_model *w)
{
    free(w->params);
    model_destroy(w->model);
    zero_destroy(w->zero);
    tp_destroy(&w->tp);
    comm_destroy(w->alone);
    rank_config_destroy(w->config);
    device_destroy(w->dev);
    job_destroy(&w->job);
}

void whole_model_forward(struct whole_model *w, const int32_t *tokens)
{
    const struct micro_batch mb = {.samples = 1, .tokens = tokens, .targets = tokens};

    model_forward(w->model, 0, 0, &mb);
}
