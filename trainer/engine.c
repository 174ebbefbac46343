#include "trainer/engine.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/crc32c.h"
#include "trainer/parallel/schedule.h"

enum { MOST_ROWS = INT_MAX / 8 }; /* tokens of a micro-batch; kernels count rows in an int */

static int check_batch(const struct engine *e, struct error *err)
{
    const struct job *job = e->job;

    if ((long)job->batch.micro_batch * job->model.seq_length > MOST_ROWS)
        return error_set(err, CODE_CONFIG,
                         "a micro-batch of %d x %d tokens is more than %d: lower batch.micro_batch or model.seq_length",
                         job->batch.micro_batch, job->model.seq_length, MOST_ROWS);
    if (e->mesh.dp > e->job->batch.global_batch)
        return error_set(err, CODE_CONFIG,
                         "batch.global_batch = %d has fewer samples than there are data-parallel ranks (%d): "
                         "start at most %d ranks or enlarge the batch",
                         e->job->batch.global_batch, e->mesh.dp, e->job->batch.global_batch);
    return 0;
}

/* A validation that went round would count samples twice. */
static int check_validation(const struct engine *e, struct error *err)
{
    uint64_t wanted = (uint64_t)e->job->report.eval_batches * (uint64_t)e->job->batch.global_batch;
    uint64_t there = samples_per_epoch(e->valid);

    if (e->job->report.eval_every == 0 || wanted <= there)
        return 0;
    return error_set(err, CODE_CONFIG,
                     "%s has %" PRIu64 " samples, and a validation takes %" PRIu64 " (report.eval_batches = %d of %d): "
                     "lower report.eval_batches or give more validation data",
                     e->job->data.valid, there, wanted, e->job->report.eval_batches, e->job->batch.global_batch);
}

static int open_data(struct engine *e, struct error *err)
{
    const struct job *job = e->job;
    int most_micro_batches = job->batch.global_batch / e->mesh.dp / job->batch.micro_batch + 2;
    size_t tokens = (size_t)job->batch.micro_batch * (size_t)job->model.seq_length;

    e->train = sampler_create(job->data.train, &job->model, job->batch.seed, err);
    if (!e->train)
        return -1;
    if (job->data.valid[0]) {
        e->valid = sampler_create_sequential(job->data.valid, &job->model, err);
        if (!e->valid || check_validation(e, err) < 0)
            return -1;
    }
    e->tokens = calloc(tokens, sizeof *e->tokens);
    e->targets = calloc(tokens, sizeof *e->targets);
    e->schedule = calloc((size_t)most_micro_batches * 2, sizeof *e->schedule);
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
    samples_destroy(e->train);
    samples_destroy(e->valid);
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

int engine_compare_ranks(struct engine *e, struct error *err)
{
    struct {
        uint32_t job;
        uint64_t train, valid;
    } ours = {0}, leaders;
    int rank = comm_rank(e->world), result = 0;

    ours.job = crc32c(0, e->job->text, strlen(e->job->text));
    ours.train = samples_per_epoch(e->train);
    ours.valid = e->valid ? samples_per_epoch(e->valid) : 0;
    leaders = ours;
    if (comm_broadcast(e->world, &leaders, sizeof leaders, 0, err) < 0)
        return -1;
    if (ours.job != leaders.job)
        result =
            error_set(err, CODE_CONFIG, "rank %d reads another job file than rank 0: is the directory shared?", rank);
    else if (ours.train != leaders.train || ours.valid != leaders.valid)
        result =
            error_set(err, CODE_DATA, "rank %d reads other data than rank 0: is %s shared?", rank, e->job->data.train);
    return comm_agree(e->world, result, err);
}
