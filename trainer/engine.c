#include "trainer/engine.h"

#include <inttypes.h>
#include <stdlib.h>

#include "trainer/choose_device.h"
#include "trainer/prediction.h"
#include "trainer/watch/recorder.h"

/* The validation data must have enough samples: a second round would count some twice. */
static int check_validation(const struct engine *e, struct error *err)
{
    uint64_t needed = (uint64_t)e->job->report.eval_batches * (uint64_t)e->job->batch.global_batch;
    uint64_t present = samples_per_epoch(e->valid);

    if (e->job->report.eval_every == 0 || needed <= present)
        return 0;
    return error_set(err, CODE_CONFIG,
                     "%s has %" PRIu64 " samples, and a validation takes %" PRIu64 " (report.eval_batches = %d of %d): "
                     "lower report.eval_batches or give more validation data",
                     e->job->data.valid, present, needed, e->job->report.eval_batches, e->job->batch.global_batch);
}

/* Opens the data, and allocates room for this rank's largest share and one empty sample. */
static int open_data(struct engine *e, struct error *err)
{
    const struct job *job = e->job;
    long most = most_samples(job, &e->mesh);

    recorder_phase("opening its data");
    e->train = samples_create_train(job, err);
    if (!e->train)
        return -1;
    if (job->data.valid[0]) {
        e->valid = samples_create_valid(job, err);
        if (!e->valid || check_validation(e, err) < 0)
            return -1;
    }
    recorder_phase("starting");
    e->batch = batch_create(&job->model, most, err);
    e->feed = feed_create(e->dev, &job->model, most, err);
    e->micro_batches = calloc((size_t)e->config->most_micro_batches, sizeof *e->micro_batches);
    if (!e->batch || !e->feed)
        return -1;
    return e->micro_batches ? 0 : error_set(err, CODE_IO, "out of memory for %ld samples", most);
}

static struct comm *split_group(struct engine *e, const char *label, enum comm_use use, int color, int key,
                                struct error *err)
{
    struct comm *comm = comm_split(e->world, color, key, err);

    if (!comm)
        return NULL;
    comm_label(comm, label);
    return comm_on_device(e->fabric, comm, use, color, key, err);
}

/* A group for every axis of the mesh; the pipeline has one for each direction, and one for the tied embedding. */
static int split_world(struct engine *e, struct error *err)
{
    const struct mesh *mesh = &e->mesh;
    const struct mesh_place *at = &e->place;
    int column = at->dp * mesh->tp + at->tp; /* of the pipeline */
    bool tied = e->config->zero.tied;

    comm_label(e->world, "world");
    e->fabric = comm_fabric_create(e->world, e->dev, err);
    if (!e->fabric)
        return -1;
    e->tp = split_group(e, "tp", COMM_COLLECTIVES, at->pp * mesh->dp + at->dp, at->tp, err);
    e->dp = e->tp ? split_group(e, "dp", COMM_COLLECTIVES, at->pp * mesh->tp + at->tp, at->dp, err) : NULL;
    e->up = e->dp ? split_group(e, "pp up", COMM_MESSAGES, column, at->pp, err) : NULL;
    e->down = e->up ? split_group(e, "pp down", COMM_MESSAGES, column, at->pp, err) : NULL;
    /* Ranks without a tied embedding each have a group of their own: NCCL would allocate memory for a common one. */
    e->tie = e->down ? split_group(e, "tied embedding", COMM_COLLECTIVES,
                                   tied ? column : mesh->dp * mesh->tp + comm_rank(e->world), at->pp, err)
                     : NULL;
    return e->tie ? 0 : -1;
}

/* Now and not in the first step, so that it is allocated before the other buffers and does not fragment memory. */
static int reserve_workspace(struct engine *e, struct error *err)
{
    struct device_traits device = device_traits(e->dev, e->job->precision.compute);

    return device_reserve_workspace(e->dev, predict_workspace(e->job, e->config, &device), err);
}

static int create_model(struct engine *e, struct error *err)
{
    struct rank_config *l = e->config;
    struct zero_comms comms = {.dp = e->dp, .tie = l->zero.tied ? e->tie : NULL, .world = e->world};
    int rows = l->model.max_samples * e->job->model.seq_length;

    if (reserve_workspace(e, err) < 0)
        return -1;
    if (tensor_create(&e->tensor, e->dev, e->tp, l->context.dtype, rows, e->job->model.hidden, l->tensor_gradients,
                      err) < 0)
        return -1;
    e->context = l->context;
    e->context.dev = e->dev;
    e->context.k = device_kernels(e->dev);
    e->context.tp = &e->tensor;
    e->zero = zero_create(e->dev, &comms, l->units, &l->zero, err);
    e->model = e->zero ? model_create(&e->context, l->units, e->zero, &l->model, err) : NULL;
    e->pipeline = e->model ? pipeline_create(e->dev, e->up, e->down, e->model, e->zero, &l->pipeline, err) : NULL;
    return e->pipeline ? 0 : -1;
}

/* Checks a GPU's memory; run_hosts.c has checked the host's. NCCL and other ranks on the same GPU are not counted, so
 * only jobs are refused that cannot fit in any case. */
static int fits_device(const struct engine *e, struct error *err)
{
    size_t unused = device_bytes_unused(e->dev), needed;
    struct footprint bytes;

    if (engine_predict_memory(e, comm_rank(e->world), &bytes, err) < 0)
        return -1;
    needed = footprint_device(&bytes);
    if (needed <= unused)
        return 0;
    return error_set(err, CODE_CONFIG,
                     "rank %d would hold %.2f GiB of its GPU's memory, and %.2f GiB are free: start more ranks; "
                     "muster-train --plan shows what takes the memory",
                     comm_rank(e->world), (double)needed / 0x1p30, (double)unused / 0x1p30);
}

/* All ranks must have the same kind of device; with "auto" they may have found two kinds. */
static int open_device(struct engine *e, struct error *err)
{
    double kinds[2] = {0};
    int result;

    e->dev = choose_device(e->job->device, err);
    if (e->dev)
        device_allow_tf32(e->dev, e->job->precision.tf32);
    result = e->dev ? fits_device(e, err) : -1;
    kinds[result == 0 && device_is_host(e->dev)] = 1;
    if (comm_agree(e->world, result, err) < 0 || comm_max_f64(e->world, kinds, 2, err) < 0)
        return -1;
    if (kinds[0] > 0 && kinds[1] > 0)
        return error_set(err, CODE_CONFIG,
                         "some ranks found a GPU and others did not: start on nodes of one kind, or set device = "
                         "\"cpu\"");
    return 0;
}

struct engine *engine_create(const struct job *job, struct comm *world, struct error *err)
{
    struct engine *e = calloc(1, sizeof *e);
    struct device_traits device;

    if (!e) {
        error_set(err, CODE_IO, "out of memory");
        return NULL;
    }
    e->job = job;
    e->world = world;
    if (mesh_fit(&e->mesh, comm_size(world), job->parallel.tp, job->parallel.pp, err) < 0)
        goto fail;
    e->place = mesh_place(&e->mesh, comm_rank(world));
    if (open_device(e, err) < 0)
        goto fail;
    device = device_traits(e->dev, job->precision.compute);
    e->config = rank_config_create(job, &e->mesh, comm_rank(world), true, &device, err);
    if (!e->config || split_world(e, err) < 0 || open_data(e, err) < 0 || create_model(e, err) < 0)
        goto fail;
    return e;
fail:
    engine_destroy(e);
    return NULL;
}

void engine_destroy(struct engine *e)
{
    if (!e)
        return;
    engine_forget_loaded(e);
    pipeline_destroy(e->pipeline);
    model_destroy(e->model);
    zero_destroy(e->zero);
    tensor_destroy(&e->tensor);
    feed_destroy(e->feed);
    rank_config_destroy(e->config);
    samples_destroy(e->train);
    samples_destroy(e->valid);
    batch_destroy(e->batch);
    comm_destroy(e->dp);
    comm_destroy(e->tp);
    comm_destroy(e->up);
    comm_destroy(e->down);
    comm_destroy(e->tie);
    comm_fabric_destroy(e->fabric);
    device_destroy(e->dev);
    free(e->micro_batches);
    free(e);
}

int engine_predict_memory(const struct engine *e, int rank, struct footprint *bytes, struct error *err)
{
    struct device_traits device = device_traits(e->dev, e->job->precision.compute);

    return predict_footprint(e->job, &e->mesh, rank, &device, bytes, err);
}

int engine_initialize(struct engine *e, struct error *err)
{
    const struct initial_weights initial = {e->job->batch.seed, e->job->init_std};

    e->step = e->consumed_samples = e->skipped_steps = e->skipped_in_a_row = 0;
    e->loss_scale = loss_scale_init(e->job);
    e->spike = (struct spike){0};
    return zero_initialize(e->zero, &initial, err);
}

int engine_compare_ranks(struct engine *e, struct error *err)
{
    struct {
        uint64_t train, valid;
    } ours = {0}, leaders;
    int rank = comm_rank(e->world), result = 0;

    ours.train = samples_per_epoch(e->train);
    ours.valid = e->valid ? samples_per_epoch(e->valid) : 0;
    leaders = ours;
    if (comm_broadcast(e->world, &leaders, sizeof leaders, 0, err) < 0)
        return -1;
    if (ours.train != leaders.train || ours.valid != leaders.valid)
        result = error_set(err, CODE_DATA, "rank %d reads different data than rank 0: is %s shared?", rank,
                           e->job->data.train);
    return comm_agree(e->world, result, err);
}
