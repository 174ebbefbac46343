#include "trainer/rank_config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/schedule.h"
#include "trainer/data/batch.h"
#include "trainer/pipeline.h"

enum { MOST_ROWS = INT_MAX / 8 }; /* tokens of a micro-batch; kernels count rows in an int */

struct share rank_config_share(const struct job *job, const struct mesh *mesh, int dp_rank, int size)
{
    long largest = (size + mesh->dp - 1) / mesh->dp, micro = job->batch.micro_batch;
    struct share share;

    share.count = mesh_even_split(size, mesh->dp, dp_rank, &share.first);
    share.micro_batches = (int)((largest + micro - 1) / micro);
    return share;
}

long rank_config_most_samples(const struct job *job, const struct mesh *mesh)
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

/* The layers are cut into pp * chunks parts of equal work; chunk c of this pipeline stage is part c * pp + pp_rank, as
 * in units_create. */
static int place_chunks(struct rank_config *config, const struct job *job, const struct mesh *mesh, struct error *err)
{
    int parts = mesh->pp * job->parallel.chunks, pp_rank = config->coords.pp;
    int *first = error_calloc((size_t)parts + 1, sizeof *first, err);

    if (!first)
        return -1;
    partition_layers(&job->model, parts, first);
    config->model.chunks = job->parallel.chunks;
    for (int c = 0; c < config->model.chunks; c++) {
        int part = c * mesh->pp + pp_rank;
        struct model_chunk *chunk = &config->model.chunk[c];

        chunk->first_layer = first[part];
        chunk->layers = first[part + 1] - first[part];
        chunk->has_embedding = part == 0;
        chunk->has_head = part == parts - 1;
        chunk->slots = pipeline_slots(pp_rank, mesh->pp, config->model.chunks, c, config->most_micro_batches);
    }
    free(first);
    return 0;
}

static int create_units(struct rank_config *config, const struct job *job, const struct mesh *mesh, int rank,
                        struct error *err)
{
    size_t gradients = 0; /* the most that are summed over tp */

    config->units = units_create(&job->model, mesh, job->parallel.chunks, rank, err);
    if (!config->units)
        return -1;
    for (int i = UNIT_POSITION; i < config->units->nunits; i++)
        if (config->units->units[i].replicated > gradients)
            gradients = config->units->units[i].replicated;
    config->tp_scratch = tp_scratch_bytes(mesh->tp, job->precision.compute,
                                          job->batch.micro_batch * job->model.seq_length, job->model.hidden, gradients);
    return 0;
}

static void configure_parts(struct rank_config *config, const struct job *job, const struct mesh *mesh)
{
    bool first = config->coords.pp == 0, last = config->coords.pp == mesh->pp - 1;

    config->context = (struct context){
        .job = job,
        .shape = &job->model,
        .tp_size = mesh->tp,
        .dtype = job->precision.compute,
    };
    config->model.max_samples = job->batch.micro_batch;
    config->model.pipelined = mesh->pp > 1;
    config->zero = (struct zero_config){
        .zero_stage = job->parallel.zero,
        .dp = mesh->dp,
        .dp_rank = config->coords.dp,
        .compute_dtype = job->precision.compute,
        .reduce_dtype = job->precision.reduce,
        .grad_dtype = job->precision.gradients,
        .offload = job->parallel.offload == OFFLOAD_OPTIMIZER,
        .reduce_every_micro_batch = job->parallel.reduce == REDUCE_MICRO_BATCH,
        .many_micro_batches = config->most_micro_batches > 1,
        .tied = mesh->pp > 1 && (first || last),
    };
}

struct rank_config *rank_config_create(const struct job *job, const struct mesh *mesh, int rank,
                                       const struct device_traits *device, struct error *err)
{
    struct rank_config *config = error_calloc(1, sizeof *config, err);

    if (!config)
        return NULL;
    if (check_batch(job, mesh, err) < 0)
        goto fail;
    config->coords = mesh_coords(mesh, rank);
    config->most_micro_batches = rank_config_share(job, mesh, 0, job->batch.global_batch).micro_batches;
    if (place_chunks(config, job, mesh, err) < 0 || create_units(config, job, mesh, rank, err) < 0)
        goto fail;
    configure_parts(config, job, mesh);
    config->context.discrete = config->zero.discrete = !device->is_host;
    config->context.logits_rows = device->logits_rows ? device->logits_rows : LOGITS_ROWS_CPU;
    config->zero.mirror = job->checkpoint.dir[0] || job->checkpoint.load[0];
    return config;
fail:
    rank_config_destroy(config);
    return NULL;
}

void rank_config_destroy(struct rank_config *config)
{
    if (!config)
        return;
    units_destroy(config->units);
    free(config);
}

/* ---- the bytes ---- */

/* What attention's kernels depend on. */
static struct workspace attention_sizes(const struct job *job, const struct device_traits *device)
{
    return (struct workspace){
        .gpu = device->gpu,
        .dtype = job->precision.compute,
        .seq = job->model.seq_length,
        .head_size = job->model.hidden / job->model.heads,
        .masked = job->model.kind == MODEL_BERT || job->dropout.attention > 0 || job->data.reset == RESET_DOCUMENT,
        .attention = device->attention,
    };
}

bool rank_config_uses_cudnn(const struct job *job, const struct device_traits *device)
{
    struct workspace sizes = attention_sizes(job, device);

    return kernels_use_cudnn(&sizes);
}

size_t rank_config_workspace(const struct job *job, const struct rank_config *config,
                             const struct device_traits *device)
{
    const struct model_shape *m = &job->model;
    int tp = config->context.tp_size, wide = 4 * m->hidden / tp;
    int rows = config->model.max_samples * m->seq_length;
    bool layers = units_largest_block(config->units) > 0, embedding = config->units->units[UNIT_POSITION].here;
    bool head = config->units->units[units_head(config->units)].here, bert_head = m->kind == MODEL_BERT && head;
    struct workspace sizes = attention_sizes(job, device);

    sizes.threads = device->threads;
    sizes.widens = device->widens;
    sizes.backward = true;
    sizes.products = layers || head;
    sizes.rows = rows;
    sizes.norm_cols = layers || head || (embedding && device->gpu) ? m->hidden : 0;
    sizes.bias_cols = layers || bert_head ? m->hidden : 0;
    sizes.gelu_cols = layers ? wide : bert_head && device->gpu ? m->hidden : 0;
    sizes.heads = layers ? m->heads / tp : 0;
    if (!layers)
        sizes.head_size = 0;
    if (layers && wide > sizes.bias_cols)
        sizes.bias_cols = wide;
    if (bert_head && config->units->vocab_padded > sizes.bias_cols)
        sizes.bias_cols = config->units->vocab_padded;
    for (int i = 0; i < config->units->nunits; i++)
        sizes.squares += (config->units->units[i].count + SQUARES_BLOCK - 1) / SQUARES_BLOCK;
    return kernels_workspace_bytes(&sizes);
}

int rank_config_footprint(const struct job *job, const struct mesh *mesh, int rank, const struct device_traits *device,
                          struct footprint *bytes, struct error *err)
{
    struct rank_config *config = rank_config_create(job, mesh, rank, device, err);

    *bytes = (struct footprint){0};
    if (!config)
        return -1;
    zero_footprint(config->units, &config->zero, bytes);
    model_footprint(&config->context, config->units, &config->model, bytes);
    bytes->communication += config->tp_scratch;
    bytes->workspace += rank_config_workspace(job, config, device);
    if (!device->is_host)
        feed_footprint(&job->model, job->data.reset == RESET_DOCUMENT, rank_config_most_samples(job, mesh), bytes);
    rank_config_destroy(config);
    return 0;
}

/* ---- the table ---- */

enum { COLUMNS = 6 }; /* stages shown: the first ones, the largest and the last */

static const char *const rows[] = {"parameters",        "gradients",          "optimizer",
                                   "activations",       "workspace",          "communication",
                                   "in all, on device", "optimizer, on host", "staging, on host"};

static size_t footprint_field(const struct footprint *b, int row)
{
    const size_t fields[] = {b->parameters,    b->gradients,        b->optimizer,      b->activations, b->workspace,
                             b->communication, footprint_device(b), b->host_optimizer, b->host_staging};

    return fields[row];
}

/* The first stages, the largest and the last, in order. Returns their number. */
static int choose_columns(const struct footprint *bytes, int stages, bool is_host, int column[COLUMNS], int *largest)
{
    int columns = stages < COLUMNS ? stages : COLUMNS;
    size_t most = 0;

    *largest = 0;
    for (int stage = 0; stage < stages; stage++) {
        size_t total = footprint_device(&bytes[stage]) + (is_host ? footprint_host(&bytes[stage]) : 0);

        if (total > most) {
            most = total;
            *largest = stage;
        }
    }
    for (int i = 0; i < columns; i++)
        column[i] = i;
    column[columns - 1] = stages - 1;
    if (columns > 1 && *largest > column[columns - 2] && *largest < stages - 1)
        column[columns - 2] = *largest;
    return columns;
}

static void print_table(FILE *out, const struct footprint *bytes, int stages, bool is_host)
{
    int column[COLUMNS], largest, columns = choose_columns(bytes, stages, is_host, column, &largest);

    fprintf(out, "%-22s", "memory a rank, in MiB");
    for (int i = 0; i < columns && stages > 1; i++) {
        char label[24];

        snprintf(label, sizeof label, "stage %d", column[i]);
        fprintf(out, " %11s", label);
    }
    for (int row = 0; row < (int)(sizeof rows / sizeof *rows) - is_host; row++) {
        fprintf(out, "\n  %-20s", rows[row]);
        for (int i = 0; i < columns; i++)
            fprintf(out, " %11.1f", (double)footprint_field(&bytes[column[i]], row) / (1 << 20));
    }
    if (stages > COLUMNS)
        fprintf(out, "\n  largest: stage %d of %d", largest, stages);
}

char *rank_config_table(const struct job *job, const struct mesh *mesh, const struct device_traits *device,
                        struct error *err)
{
    struct footprint *bytes = calloc((size_t)mesh->pp, sizeof *bytes);
    char *text = NULL;
    size_t size;
    FILE *out = bytes ? open_memstream(&text, &size) : NULL;
    int result = out ? 0 : error_set(err, CODE_IO, "out of memory");

    for (int stage = 0; stage < mesh->pp && result == 0; stage++)
        result = rank_config_footprint(job, mesh, mesh_rank(mesh, (struct mesh_coords){.pp = stage}), device,
                                       &bytes[stage], err);
    if (result == 0)
        print_table(out, bytes, mesh->pp, device->is_host);
    if (out)
        fclose(out);
    free(bytes);
    if (result == 0)
        return text;
    free(text);
    return NULL;
}
