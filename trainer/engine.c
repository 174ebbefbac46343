#include "trainer/engine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/choose.h"
#include "trainer/data/blend.h"
#include "trainer/watch/recorder.h"

/* Each set of the validation data must have enough samples: a second round would count some twice. */
static int check_validation(const struct engine *e, struct error *err)
{
    const uint64_t *needed;

    if (e->job->report.eval_every == 0)
        return 0;
    needed = blend_counts(e->valid, (uint64_t)e->job->report.eval_batches * (uint64_t)e->job->batch.global_batch);
    for (int i = 0; i < blend_sets(e->valid); i++) {
        struct blend_set set = blend_set(e->valid, i);

        if (needed[i] > set.samples)
            return error_set(
                err, CODE_CONFIG,
                "%s has %" PRIu64 " sample%s, and a validation takes %" PRIu64
                " (%d batches of %d): lower report.eval_batches, batch.global_batch or model.seq_length, or give more "
                "validation data",
                set.prefix, set.samples, set.samples == 1 ? "" : "s", needed[i], e->job->report.eval_batches,
                e->job->batch.global_batch);
    }
    return 0;
}

static int create_sums(struct set_sums *sums, const struct blend *data, struct error *err)
{
    sums->sets = data ? blend_sets(data) : 0;
    sums->losses = error_calloc(2 * (size_t)sums->sets + 1, sizeof *sums->losses, err);
    sums->predictions = sums->losses ? sums->losses + sums->sets : NULL;
    return sums->losses ? 0 : -1;
}

int engine_open_sets(struct engine *e, struct error *err)
{
    e->train = blend_create(e->job, true, err);
    if (!e->train || !e->job->data.valid[0])
        return e->train ? 0 : -1;
    e->valid = blend_create(e->job, false, err);
    return e->valid ? check_validation(e, err) : -1;
}

/*
 * Opens the data, and allocates room for this rank's largest share and one empty sample. Only rank 0 reads tokens for
 * the job's text.
 */
static int open_data(struct engine *e, struct error *err)
{
    const struct job *job = e->job;
    bool documents = job->data.reset == RESET_DOCUMENT;
    long most = rank_config_most_samples(job, &e->config.mesh);
    void *text = NULL;
    size_t bytes = 0;
    int result;

    recorder_phase("opening its data");
    result = engine_open_sets(e, err);
    if (result == 0 && comm_rank(e->world) == 0) {
        text = set_record_append(job->text ? job->text : "", e->train, e->valid, err);
        result = text ? 0 : -1;
        bytes = text ? strlen(text) : 0;
    }
    result = engine_share(e, result, &text, &bytes, err);
    e->job_text = text;
    if (result < 0)
        return -1;
    recorder_phase("starting");
    e->batch = batch_create(&job->model, documents, most, err);
    e->feed = feed_create(e->dev, &job->model, documents, most, err);
    e->micro_batches = error_calloc((size_t)e->config.most_micro_batches, sizeof *e->micro_batches, err);
    e->losses.tokens = device_alloc(e->dev, MEMORY_HOST, losses_bytes(&job->model, most), err);
    if (!e->batch || !e->feed || !e->micro_batches || !e->losses.tokens)
        return -1;
    e->losses.orders = e->losses.tokens + most * job->model.seq_length;
    return create_sums(&e->train_sums, e->train, err) < 0 ? -1 : create_sums(&e->valid_sums, e->valid, err);
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
    const struct mesh *mesh = &e->config.mesh;
    const struct mesh_coords *at = &e->config.coords;
    int column = at->dp * mesh->tp + at->tp; /* of the pipeline */
    bool tied = e->config.zero.tied;

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

static int create_model(struct engine *e, struct error *err)
{
    const struct rank_config *config = &e->config;
    struct zero_comms comms = {.dp = e->dp, .tie = config->zero.tied ? e->tie : NULL, .world = e->world};

    /* Now and not in the first step, so that it is allocated before the other buffers and does not fragment memory. */
    if (device_reserve_workspace(e->dev, rank_config_workspace(config), err) < 0 ||
        tp_create(&e->tp_group, e->dev, e->tp, e->job->precision.compute, config->tp_scratch, err) < 0)
        return -1;
    e->context = (struct context){
        .dev = e->dev,
        .k = device_kernels(e->dev),
        .job = e->job,
        .shape = &e->job->model,
        .tp = &e->tp_group,
        .dtype = e->job->precision.compute,
        .sizes = config->sizes,
    };
    e->zero = zero_create(e->dev, &comms, e->units, &config->units, &config->zero, err);
    e->model = e->zero ? model_create(&e->context, e->units, e->zero, &config->model, err) : NULL;
    return e->model ? 0 : -1;
}

/* Checks a GPU's memory; run_start.c has checked the host's. NCCL and other ranks on the same GPU are not counted, so
 * only jobs are refused that cannot fit in any case. */
static int fits_device(const struct engine *e, struct error *err)
{
    struct footprint bytes = rank_config_bytes(&e->config);
    size_t unused = device_bytes_unused(e->dev), needed = footprint_device(&bytes);

    if (needed <= unused)
        return 0;
    return error_set(err, CODE_CONFIG,
                     "rank %d would hold %.2f GiB of its GPU's memory, and %.2f GiB are free: start more ranks; "
                     "muster-train --plan shows what takes the memory",
                     comm_rank(e->world), (double)needed / 0x1p30, (double)unused / 0x1p30);
}

/* All ranks must have the same kind of device; with "auto" they may have found two kinds. */
static int open_device(struct engine *e, const struct mesh *mesh, struct error *err)
{
    struct device_traits traits;
    double kinds[2] = {0};
    int result;

    e->dev = choose_device(e->job->device, err);
    result = e->dev ? device_choose_attention(e->dev, e->job->attention, err) : -1;
    if (result == 0) {
        device_allow_tf32(e->dev, e->job->precision.tf32);
        traits = device_traits(e->dev, e->job->precision.compute);
        result = rank_config_set(&e->config, e->job, mesh, comm_rank(e->world), &traits, err);
    }
    if (result == 0)
        result = fits_device(e, err);
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
    struct engine *e = error_calloc(1, sizeof *e, err);
    struct mesh mesh;

    if (!e)
        return NULL;
    e->job = job;
    e->world = world;
    if (mesh_fit(&mesh, comm_size(world), job->parallel.tp, job->parallel.pp, err) == 0 &&
        open_device(e, &mesh, err) == 0 &&
        (e->units = units_create(&job->model, &mesh, job->parallel.chunks, comm_rank(world), err)) &&
        split_world(e, err) == 0 && open_data(e, err) == 0 && create_model(e, err) == 0 &&
        (e->pipeline = pipeline_create(job, e->up, e->down, e->model, e->zero, e->config.most_micro_batches, err)))
        return e;
    engine_destroy(e);
    return NULL;
}

void engine_destroy(struct engine *e)
{
    if (!e)
        return;
    job_destroy(&e->loaded);
    pipeline_destroy(e->pipeline);
    model_destroy(e->model);
    zero_destroy(e->zero);
    tp_destroy(&e->tp_group);
    feed_destroy(e->feed); /* waits for the device */
    device_free(e->dev, MEMORY_HOST, e->losses.tokens);
    units_destroy(e->units);
    blend_destroy(e->train);
    blend_destroy(e->valid);
    free(e->job_text);
    batch_destroy(e->batch);
    comm_destroy(e->dp);
    comm_destroy(e->tp);
    comm_destroy(e->up);
    comm_destroy(e->down);
    comm_destroy(e->tie);
    comm_fabric_destroy(e->fabric);
    device_destroy(e->dev);
    free(e->micro_batches);
    free(e->train_sums.losses);
    free(e->valid_sums.losses);
    free(e);
}

int engine_initialize(struct engine *e, struct error *err)
{
    e->step = e->consumed_samples = e->skipped_steps = e->skipped_in_a_row = 0;
    e->loss_scale = loss_scale_init(e->job);
    e->spike = (struct spike){0};
    return zero_initialize(e->zero, e->job, err);
}
