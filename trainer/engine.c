#include "trainer/engine.h"

#include <stdlib.h>

#include "trainer/parallel/schedule.h"

static int check_batch(const struct engine *e, struct error *err)
{
    if (e->mesh.dp > e->job->batch.global_batch)
        return error_set(err, CODE_CONFIG,
                         "batch.global_batch = %d has fewer samples than there are data-parallel ranks (%d): "
                         "start at most %d ranks or enlarge the batch",
                         e->job->batch.global_batch, e->mesh.dp, e->job->batch.global_batch);
    return 0;
}

static int open_data(struct engine *e, struct error *err)
{
    const struct job *job = e->job;
    size_t tokens = (size_t)job->batch.micro_batch * (size_t)job->model.seq_length;

    e->train = sampler_create(job->data.train, &job->model, job->batch.seed, err);
    if (!e->train)
        return -1;
    if (job->data.valid[0]) {
        e->valid = sampler_create_sequential(job->data.valid, &job->model, err);
        if (!e->valid)
            return -1;
    }
    e->most_micro_batches = job->batch.global_batch / e->mesh.dp / job->batch.micro_batch + 2;
    e->tokens = calloc(tokens, sizeof *e->tokens);
    e->targets = calloc(tokens, sizeof *e->targets);
    e->schedule = calloc((size_t)e->most_micro_batches * 2, sizeof *e->schedule);
    if (!e->tokens || !e->targets || !e->schedule)
        return error_set(err, CODE_IO, "out of memory for a micro-batch of %zu tokens", tokens);
    return 0;
}

struct engine *engine_create(const struct job *job, struct comm *world, struct error *err)
{
    struct engine *e = calloc(1, sizeof *e);

    if (!e) {
        error_set(err, CODE_IO, "out of memory");
        return NULL;
    }
    e->job = job;
    e->world = world;
    if (mesh_fit(&e->mesh, comm_size(world), job->parallel.tp, job->parallel.pp, err) < 0 || check_batch(e, err) < 0)
        goto fail;
    e->place = mesh_place(&e->mesh, comm_rank(world));
    e->dp = comm_split(world, e->place.pp * e->mesh.tp + e->place.tp, e->place.dp, err);
    if (!e->dp || open_data(e, err) < 0)
        goto fail;
    e->dev = device_create("cpu", 0, err);
    e->units = e->dev ? units_create(&job->model, job->init_std, e->mesh.dp, err) : NULL;
    e->zero = e->units ? zero_create(e->dev, e->dp, e->units, job->parallel.zero, true, err) : NULL;
    e->gpt = e->zero ? gpt_create(e->dev, &job->model, e->units, e->zero, job->batch.micro_batch, true, err) : NULL;
    if (e->gpt)
        return e;
fail:
    engine_destroy(e);
    return NULL;
}

void engine_destroy(struct engine *e)
{
    if (!e)
        return;
    gpt_destroy(e->gpt);
    zero_destroy(e->zero);
    units_destroy(e->units);
    device_destroy(e->dev);
    sampler_destroy(e->train);
    sampler_destroy(e->valid);
    comm_destroy(e->dp);
    free(e->tokens);
    free(e->targets);
    free(e->schedule);
    free(e);
}

void engine_initialize(struct engine *e)
{
    zero_initialize(e->zero, e->job->batch.seed);
    e->step = e->consumed_samples = e->skipped_steps = 0;
}
