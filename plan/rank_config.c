#include "plan/rank_config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"
#include "plan/schedule.h"

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

int rank_config_check_batch(const struct job *job, const struct mesh *mesh, int size, struct error *err)
{
    const char *key = job->batch.global_batch == size ? "global_batch" : "rampup_start: the next step's batch";

    if (mesh->dp > size)
        return error_set(err, CODE_CONFIG,
                         "batch.%s = %d is less than the number of data-parallel ranks (%d): start at most %d ranks or "
                         "increase the batch",
                         key, size, mesh->dp, size * mesh->tp * mesh->pp);
    return 0;
}

static int check_batch(const struct job *job, const struct mesh *mesh, struct error *err)
{
    if ((long)job->batch.micro_batch * job->model.seq_length > MOST_ROWS)
        return error_set(err, CODE_CONFIG,
                         "a micro-batch of %d x %d tokens is more than %d: lower batch.micro_batch or model.seq_length",
                         job->batch.micro_batch, job->model.seq_length, MOST_ROWS);
    return rank_config_check_batch(job, mesh, job->batch.global_batch, err);
}

/* The layers are cut into pp * chunks parts of equal work; chunk c of this pipeline stage is part c * pp + pp_rank, as
 * in units_create. */
static int place_chunks(struct rank_config *config, const struct job *job, const struct mesh *mesh, struct error *err)
{
    int parts = mesh->pp * job->parallel.chunks, pp_rank = config->coords.pp;
    int *first = error_calloc((size_t)parts + 1, sizeof *first, err), slots[MODEL_MAX_CHUNKS];

    if (!first)
        return -1;
    partition_layers(&job->model, parts, first);
    schedule_slots(pp_rank, mesh->pp, job->parallel.chunks, config->most_micro_batches, slots);
    config->model.chunks = job->parallel.chunks;
    for (int c = 0; c < config->model.chunks; c++) {
        int part = c * mesh->pp + pp_rank;
        struct model_chunk *chunk = &config->model.chunk[c];

        chunk->first_layer = first[part];
        chunk->layers = first[part + 1] - first[part];
        chunk->has_embedding = part == 0;
        chunk->has_head = part == parts - 1;
        chunk->slots = slots[c];
    }
    free(first);
    return 0;
}

/* The units of the rank's stage. */
static void count_units(struct rank_config *config)
{
    const struct mesh *mesh = &config->mesh;
    bool first = config->coords.pp == 0, last = config->coords.pp == mesh->pp - 1;
    int layers = 0;

    for (int c = 0; c < config->model.chunks; c++)
        layers += config->model.chunk[c].layers;
    config->units = (struct rank_units){.number = {[UNIT_KIND_WTE] = first || (last && !config->job->model.untied),
                                                   [UNIT_KIND_POSITION] = first,
                                                   [UNIT_KIND_BLOCK] = layers,
                                                   [UNIT_KIND_HEAD] = last}};
    for (int kind = 0; kind < UNIT_KINDS; kind++)
        config->units.size[kind] = unit_size_of(&config->job->model, (enum unit_kind)kind, mesh);
}

/* The most gradients that are summed over tp: of a unit other than the token embedding. */
static size_t most_replicated(const struct rank_units *units)
{
    size_t most = 0;

    for (int kind = UNIT_KIND_POSITION; kind < UNIT_KINDS; kind++)
        if (units->number[kind] > 0 && units->size[kind].replicated > most)
            most = units->size[kind].replicated;
    return most;
}

static void configure_parts(struct rank_config *config)
{
    const struct job *job = config->job;
    const struct mesh *mesh = &config->mesh;
    bool first = config->coords.pp == 0, last = config->coords.pp == mesh->pp - 1;

    config->sizes = (struct pass_sizes){
        .shape = &job->model,
        .tp = mesh->tp,
        .samples = job->batch.micro_batch,
        .vocab_padded = vocabulary_padded(&job->model, mesh->tp),
        .dtype = job->precision.compute,
        .logits_rows = config->device.logits_rows ? config->device.logits_rows : LOGITS_ROWS_CPU,
        .dropout = job->dropout.hidden > 0,
        .discrete = !config->device.is_host,
    };
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
        .tied = !job->model.untied && mesh->pp > 1 && (first || last),
        .discrete = !config->device.is_host,
        .mirror = job->checkpoint.dir[0] || job->checkpoint.load[0] || job->checkpoint.init[0],
    };
    config->tp_scratch =
        tp_scratch_bytes(mesh->tp, job->precision.compute, job->batch.micro_batch * job->model.seq_length,
                         job->model.hidden, most_replicated(&config->units));
}

int rank_config_set(struct rank_config *config, const struct job *job, const struct mesh *mesh, int rank,
                    const struct device_traits *device, struct error *err)
{
    if (check_batch(job, mesh, err) < 0)
        return -1;
    *config = (struct rank_config){.job = job, .mesh = *mesh, .coords = mesh_coords(mesh, rank), .device = *device};
    config->most_micro_batches = rank_config_share(job, mesh, 0, job->batch.global_batch).micro_batches;
    if (place_chunks(config, job, mesh, err) < 0)
        return -1;
    count_units(config);
    configure_parts(config);
    return 0;
}

/* ---- the bytes ---- */

/* What attention's kernels depend on. */
static struct workspace attention_sizes(const struct job *job, const struct device_traits *device)
{
    return (struct workspace){
        .gpu = device->gpu,
        .dtype = job->precision.compute,
        .seq = job->model.seq_length,
        .head_size = model_head_size(&job->model),
        .masked = job->model.bidirectional || job->dropout.attention > 0 || job->data.reset == RESET_DOCUMENT,
        .heads = job->model.heads,
        .kv_heads = job->model.kv_heads,
        .window = job->model.window,
        .attention = device->attention,
    };
}

bool rank_config_uses_cudnn(const struct job *job, const struct device_traits *device)
{
    struct workspace sizes = attention_sizes(job, device);

    return kernels_use_cudnn(&sizes);
}

static bool is_norm(const struct model_tensor *tensors, int n, enum model_part part)
{
    for (int i = 0; i < n; i++)
        if (tensors[i].part == part && tensors[i].role == ROLE_SCALE)
            return true;
    return false;
}

/* The most columns of this rank that a product's bias is added to. */
static int widest_bias(const struct rank_config *config)
{
    struct model_tensor tensors[UNIT_MAX_TENSORS];
    int widest = 0;

    for (int kind = 0; kind < UNIT_KINDS; kind++) {
        int n = config->units.number[kind] ? model_tensors(&config->job->model, (enum unit_kind)kind, tensors) : 0;

        for (int i = 0; i < n; i++) {
            const struct model_tensor *t = &tensors[i];
            int columns = (int)model_elements(&config->job->model, t->part, BIAS);

            if (t->role != ROLE_BIAS || is_norm(tensors, n, t->part))
                continue;
            columns =
                t->vocabulary ? config->sizes.vocab_padded : columns / (t->split == UNIT_WHOLE ? 1 : config->mesh.tp);
            widest = columns > widest ? columns : widest;
        }
    }
    return widest;
}

size_t rank_config_workspace(const struct rank_config *config)
{
    const struct model_shape *m = &config->job->model;
    const struct rank_units *units = &config->units;
    int tp = config->mesh.tp;
    bool layers = units->number[UNIT_KIND_BLOCK] > 0, embedding = units->number[UNIT_KIND_POSITION] > 0;
    bool head = units->number[UNIT_KIND_HEAD] > 0, transform = head && model_elements(m, PART_MLM, WEIGHT) > 0;
    bool gpu = config->device.gpu;
    struct workspace sizes = attention_sizes(config->job, &config->device);

    sizes.threads = config->device.threads;
    sizes.widens = config->device.widens;
    sizes.backward = true;
    sizes.products = layers || head;
    sizes.rows = config->sizes.samples * m->seq_length;
    sizes.norm_cols = layers || head || (embedding && gpu) ? m->hidden : 0;
    sizes.bias_cols = widest_bias(config);
    sizes.gelu_cols = layers && m->activation == ACTIVATION_GELU ? model_inner(m) / tp
                      : transform && gpu                         ? m->hidden
                                                                 : 0;
    sizes.heads = layers ? m->heads / tp : 0;
    sizes.kv_heads = layers ? model_kv_heads(m) / tp : 0;
    if (!layers)
        sizes.head_size = 0;
    for (int kind = 0; kind < UNIT_KINDS; kind++)
        sizes.squares += (size_t)units->number[kind] * ((units->size[kind].count + SQUARES_BLOCK - 1) / SQUARES_BLOCK);
    return kernels_workspace_bytes(&sizes);
}

struct footprint rank_config_bytes(const struct rank_config *config)
{
    const struct job *job = config->job;
    struct model_bytes model = model_bytes(job, &config->sizes, &config->model);
    long most = rank_config_most_samples(job, &config->mesh);
    struct footprint bytes = {0};

    zero_footprint(&config->units, &config->zero, &bytes);
    bytes.bytes[FOOTPRINT_ACTIVATIONS] += model.kept;
    bytes.bytes[FOOTPRINT_WORKSPACE] += model.shared + model.workspace + rank_config_workspace(config);
    bytes.bytes[FOOTPRINT_COMMUNICATION] += config->tp_scratch;
    bytes.bytes[FOOTPRINT_HOST_STAGING] += model.host + losses_bytes(&job->model, most);
    if (!config->device.is_host) {
        size_t samples = batch_bytes(&job->model, job->data.reset == RESET_DOCUMENT, most);

        bytes.bytes[FOOTPRINT_WORKSPACE] += samples;
        bytes.bytes[FOOTPRINT_HOST_STAGING] += samples;
    }
    return bytes;
}

int rank_config_footprint(const struct job *job, const struct mesh *mesh, int rank, const struct device_traits *device,
                          struct footprint *bytes, struct error *err)
{
    struct rank_config config;

    if (rank_config_set(&config, job, mesh, rank, device, err) < 0)
        return -1;
    *bytes = rank_config_bytes(&config);
    return 0;
}

/* ---- the table ---- */

enum { COLUMNS = 6 }; /* stages shown: the first ones, the largest and the last */

static const char *const rows[] = {"parameters",        "gradients",          "optimizer",
                                   "activations",       "workspace",          "communication",
                                   "in all, on device", "optimizer, on host", "staging, on host"};
static const char *const keys[] = {"parameters",       "gradients",         "optimizer",
                                   "activations",      "workspace",         "communication",
                                   "in_all_on_device", "optimizer_on_host", "staging_on_host"};

/* The kinds in their order; between those of the device and of the host, the sum of the former. */
static size_t footprint_row(const struct footprint *b, int row)
{
    if (row == FOOTPRINT_HOST_OPTIMIZER)
        return footprint_device(b);
    return b->bytes[row < FOOTPRINT_HOST_OPTIMIZER ? row : row - 1];
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
            fprintf(out, " %11.1f", (double)footprint_row(&bytes[column[i]], row) / (1 << 20));
    }
    if (stages > COLUMNS)
        fprintf(out, "\n  largest: stage %d of %d", largest, stages);
}

static void print_json(FILE *out, const struct footprint *bytes, int stages, bool is_host)
{
    for (int stage = 0; stage < stages; stage++) {
        fprintf(out, "%c{\"stage\":%d", stage ? ',' : '[', stage);
        for (int row = 0; row < (int)(sizeof keys / sizeof *keys) - is_host; row++)
            json_number_member(out, keys[row], (long)footprint_row(&bytes[stage], row));
        fputc('}', out);
    }
    fputc(']', out);
}

char *rank_config_table(const struct job *job, const struct mesh *mesh, const struct device_traits *device, bool json,
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
        (json ? print_json : print_table)(out, bytes, mesh->pp, device->is_host);
    if (out)
        fclose(out);
    free(bytes);
    if (result == 0)
        return text;
    free(text);
    return NULL;
}
