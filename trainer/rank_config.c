#include "trainer/rank_config.h"

#include <limits.h>
#include <stdlib.h>

#include "plan/partition.h"

enum { MOST_ROWS = INT_MAX / 8 }; /* tokens of a micro-batch; kernels count rows in an int */

struct share batch_share(const struct job *job, const struct mesh *mesh, int dp_rank, int size)
{
    long largest = (size + mesh->dp - 1) / mesh->dp, micro = job->batch.micro_batch;
    struct share share;

    share.count = even_split(size, mesh->dp, dp_rank, &share.first);
    share.micro_batches = (int)((largest + micro - 1) / micro);
    return share;
}

long most_samples(const struct job *job, const struct mesh *mesh)
{
    return (job->batch.global_batch + mesh->dp - 1) / mesh->dp + 1;
}

static int check_batch(const struct job *job, const struct mesh *mesh, struct error *err)
{
    int smallest = job->batch.rampup_start ? job->batch.rampup_start : job->batch.global_batch;

    if ((long)job->batch.micro_batch * job->model.seq_length > MOST_ROWS)
        return error_set(err, CODE_CONFIG,
                         "a micro-batch of %d x %d tokens is more than %d: lower batch.micro_batch or model.seq_length",
                         job->batch.micro_batch, job->model.seq_length, MOST_ROWS);
    if (mesh->dp > smallest)
        return error_set(err, CODE_CONFIG,
                         "batch.%s = %d is less than the number of data-parallel ranks (%d): start at most %d ranks or "
                         "increase the batch",
                         job->batch.rampup_start ? "rampup_start" : "global_batch", smallest, mesh->dp,
                         smallest * mesh->tp * mesh->pp);
    return 0;
}

/* The stage's chunks: part c * pp + stage of all, with the work of all parts balanced. */
static int place_chunks(struct rank_config *l, const struct job *job, const struct mesh *mesh, bool *here,
                        struct error *err)
{
    int parts = mesh->pp * job->parallel.chunks, stage = l->place.pp;
    int *first = calloc((size_t)parts + 1, sizeof *first);

    if (!first)
        return error_set(err, CODE_IO, "out of memory for %d stages", parts);
    partition_layers(&job->model, parts, first);
    l->model.chunks = job->parallel.chunks;
    for (int c = 0; c < l->model.chunks; c++) {
        int part = c * mesh->pp + stage;
        struct model_chunk *chunk = &l->model.chunk[c];

        chunk->first_layer = first[part];
        chunk->layers = first[part + 1] - first[part];
        chunk->embeds = part == 0;
        chunk->heads = part == parts - 1;
        chunk->slots = pipeline_slots(stage, mesh->pp, l->model.chunks, c, l->most_micro_batches);
        for (int i = 0; i < chunk->layers; i++)
            here[chunk->first_layer + i] = true;
    }
    free(first);
    return 0;
}

static int create_units(struct rank_config *l, const struct job *job, const struct mesh *mesh, const bool *here,
                        struct error *err)
{
    struct units_place place = {
        .dp = mesh->dp,
        .tp = mesh->tp,
        .tp_rank = l->place.tp,
        .first_stage = l->place.pp == 0,
        .last_stage = l->place.pp == mesh->pp - 1,
        .layers = here,
    };

    l->units = units_create(&job->model, &place, err);
    if (!l->units)
        return -1;
    for (int i = UNIT_POSITION; i < l->units->nunits; i++)
        if (l->units->units[i].replicated > l->tensor_gradients)
            l->tensor_gradients = l->units->units[i].replicated;
    return 0;
}

static void configure_parts(struct rank_config *l, const struct job *job, const struct mesh *mesh)
{
    bool first = l->place.pp == 0, last = l->place.pp == mesh->pp - 1;

    l->context = (struct context){
        .shape = &job->model,
        .tp_size = mesh->tp,
        .dtype = job->precision.compute,
        .dropout = job->dropout.hidden,
        .attention_dropout = job->dropout.attention,
        .seed = job->batch.seed,
        .recompute = job->parallel.recompute,
        .recompute_layers = job->parallel.recompute_layers,
    };
    l->model.max_samples = job->batch.micro_batch;
    l->model.pipelined = mesh->pp > 1;
    l->zero = (struct zero_config){
        .stage = job->parallel.zero,
        .dp = mesh->dp,
        .dp_rank = l->place.dp,
        .compute = job->precision.compute,
        .wire = job->precision.reduce,
        .offload = job->parallel.offload == OFFLOAD_OPTIMIZER,
        .reduce_every = job->parallel.reduce == REDUCE_MICRO_BATCH,
        .many_micro_batches = l->most_micro_batches > 1,
        .tied = mesh->pp > 1 && (first || last),
    };
    l->pipeline = (struct pipeline_config){
        .stage = l->place.pp,
        .stages = mesh->pp,
        .chunks = job->parallel.chunks,
        .most_micro_batches = l->most_micro_batches,
        .bytes_per_sample = (size_t)job->model.seq_length / (size_t)mesh->tp * (size_t)job->model.hidden *
                            dtype_size(job->precision.compute),
        .units = job->model.layers + 3,
    };
}

struct rank_config *rank_config_create(const struct job *job, const struct mesh *mesh, int rank, bool training,
                                       const struct device_traits *device, struct error *err)
{
    struct rank_config *l = calloc(1, sizeof *l);
    bool *here = calloc((size_t)job->model.layers + 1, sizeof *here);

    if (!l || !here) {
        error_set(err, CODE_IO, "out of memory for %d layers", job->model.layers);
        goto fail;
    }
    if (check_batch(job, mesh, err) < 0)
        goto fail;
    l->place = mesh_place(mesh, rank);
    l->most_micro_batches = batch_share(job, mesh, 0, job->batch.global_batch).micro_batches;
    if (place_chunks(l, job, mesh, here, err) < 0 || create_units(l, job, mesh, here, err) < 0)
        goto fail;
    configure_parts(l, job, mesh);
    l->model.training = l->zero.training = training;
    l->context.discrete = l->zero.discrete = !device->is_host;
    l->context.product_rows = device->product_rows ? device->product_rows : PRODUCT_ROWS_CPU;
    l->zero.mirror = !training || job->checkpoint.dir[0] || job->checkpoint.load[0];
    free(here);
    return l;
fail:
    free(here);
    rank_config_destroy(l);
    return NULL;
}

void rank_config_destroy(struct rank_config *l)
{
    if (!l)
        return;
    units_destroy(l->units);
    free(l);
}
