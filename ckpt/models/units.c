#include "ckpt/models/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/read/checkpoint.h"
#include "plan/schedule.h"

int units_head(const struct units *units)
{
    return units->nunits - 1;
}

const struct unit_tensor *unit_find(const struct unit *unit, enum model_part part, enum part_term term)
{
    for (int i = 0; i < unit->ntensors; i++)
        if (tensor_is(&unit->tensors[i].row, part, term))
            return &unit->tensors[i];
    return NULL;
}

struct builder {
    struct units *units;
    const struct model_shape *shape;
    const struct mesh *mesh;
    struct mesh_coords at;
    int parts, *first; /* of the pipeline: part i has the layers first[i] to first[i + 1] - 1 */
};

static bool has_layer(const struct builder *b, int layer)
{
    for (int part = b->at.pp; part < b->parts; part += b->mesh->pp)
        if (layer >= b->first[part] && layer < b->first[part + 1])
            return true;
    return false;
}

/* The box of this rank: all of it, or an even part of the split dimension. */
static void set_box(const struct builder *b, struct unit_tensor *t)
{
    const struct model_tensor *row = &t->row;

    t->count = 1;
    for (int i = 0; i < row->ndim; i++) {
        t->shape[i] = (uint64_t)row->shape[i];
        if (i == row->split) {
            long first, count = mesh_even_split(row->shape[i], b->mesh->tp, b->at.tp, &first);

            t->start[i] = (uint64_t)first;
            t->shape[i] = (uint64_t)count;
        }
        t->count *= t->shape[i];
    }
}

/* Appends a tensor to the model's table and, if this rank holds the unit, to the unit. */
static void add_tensor(const struct builder *b, struct unit *unit, struct unit_size *size, const char *prefix,
                       const struct model_tensor *row)
{
    struct units *units = b->units;
    struct ckpt_tensor *tensor = &units->tensors[units->ntensors];
    struct unit_tensor *t = &unit->tensors[unit->ntensors];

    snprintf(tensor->name, sizeof tensor->name, "%s%s", prefix, row->name);
    tensor->ndim = row->ndim;
    for (int i = 0; i < row->ndim; i++)
        tensor->shape[i] = (uint64_t)row->shape[i];
    units->ntensors++;
    if (!unit->here)
        return;
    *t = (struct unit_tensor){.row = *row, .index = (uint32_t)(units->ntensors - 1)};
    t->offset = unit_add(size, b->shape, row, b->mesh);
    set_box(b, t);
    unit->ntensors++;
}

static void add_unit(const struct builder *b, int index, enum unit_kind kind, bool here)
{
    struct unit *unit = &b->units->units[index];
    struct model_tensor rows[UNIT_MAX_TENSORS];
    int n = model_tensors(b->shape, kind, rows);
    struct unit_size size = {0};
    char prefix[32] = "";

    unit->here = here;
    unit->copy = here && kind == UNIT_KIND_WTE && b->at.pp > 0;
    if (kind == UNIT_KIND_BLOCK) {
        snprintf(unit->name, sizeof unit->name, "block %d", index - UNIT_BLOCK0);
        snprintf(prefix, sizeof prefix, "%s%d.", model_block_prefix(b->shape), index - UNIT_BLOCK0);
    } else {
        snprintf(unit->name, sizeof unit->name, "%s",
                 kind == UNIT_KIND_WTE        ? "token embedding"
                 : kind == UNIT_KIND_POSITION ? "positions"
                                              : "head");
    }
    for (int i = 0; i < n; i++)
        add_tensor(b, unit, &size, prefix, &rows[i]);
    unit_finish(&size, b->mesh);
    unit->count = size.count;
    unit->replicated = size.replicated;
}

struct units *units_create(const struct model_shape *shape, const struct mesh *mesh, int chunks, int rank,
                           struct error *err)
{
    struct units *units = error_calloc(1, sizeof *units, err);
    struct builder builder = {units, shape, mesh, mesh_coords(mesh, rank), mesh->pp * chunks, NULL};
    bool first_stage = builder.at.pp == 0, last_stage = builder.at.pp == mesh->pp - 1;
    long first;

    builder.first = units ? error_calloc((size_t)builder.parts + 1, sizeof *builder.first, err) : NULL;
    if (!builder.first)
        goto fail;
    units->nunits = shape->layers + 3;
    units->units = error_calloc((size_t)units->nunits, sizeof *units->units, err);
    units->tensors = error_calloc((size_t)units->nunits * UNIT_MAX_TENSORS, sizeof *units->tensors, err);
    if (!units->units || !units->tensors)
        goto fail;
    units->saves_replicated = builder.at.tp == 0;
    partition_layers(shape, builder.parts, builder.first);
    units->vocab = (int)mesh_even_split(shape->vocab, mesh->tp, builder.at.tp, &first);
    units->vocab_first = (int)first;
    units->vocab_padded = vocabulary_padded(shape, mesh->tp);
    add_unit(&builder, UNIT_WTE, UNIT_KIND_WTE, first_stage || (last_stage && !shape->untied));
    add_unit(&builder, UNIT_POSITION, UNIT_KIND_POSITION, first_stage);
    for (int layer = 0; layer < shape->layers; layer++)
        add_unit(&builder, UNIT_BLOCK0 + layer, UNIT_KIND_BLOCK, has_layer(&builder, layer));
    add_unit(&builder, units_head(units), UNIT_KIND_HEAD, last_stage);
    free(builder.first);
    return units;
fail:
    free(builder.first);
    units_destroy(units);
    return NULL;
}

struct units *units_create_whole(const struct model_shape *shape, struct error *err)
{
    return units_create(shape, &(struct mesh){1, 1, 1}, 1, 0, err);
}

void units_destroy(struct units *units)
{
    if (!units)
        return;
    free(units->units);
    free(units->tensors);
    free(units);
}

size_t unit_tensor_overlap(const struct unit_tensor *tensor, size_t first, size_t count, size_t *begin)
{
    size_t low = first > tensor->offset ? first : tensor->offset;
    size_t high = first + count < tensor->offset + tensor->count ? first + count : tensor->offset + tensor->count;

    *begin = low - tensor->offset;
    return high > low ? high - low : 0;
}

size_t units_pieces(const struct units *units, int unit, size_t first, size_t count, bool saving,
                    struct ckpt_piece *pieces, size_t *offsets)
{
    const struct unit *u = &units->units[unit];
    size_t npieces = 0;

    if (saving && u->copy)
        return 0;
    for (int i = 0; i < u->ntensors; i++) {
        const struct unit_tensor *t = &u->tensors[i];
        size_t begin, length = unit_tensor_overlap(t, first, count, &begin);
        struct ckpt_piece *piece = &pieces[npieces];

        if (!length || (saving && t->offset < u->replicated && !units->saves_replicated))
            continue;
        *piece = (struct ckpt_piece){.tensor = t->index, .first = begin, .count = length};
        memcpy(piece->start, t->start, sizeof piece->start);
        memcpy(piece->shape, t->shape, sizeof piece->shape);
        offsets[npieces++] = t->offset + begin;
    }
    return npieces;
}

/* ---- for tools --------------------------------------------------------------------------------------------------- */

/* Check that the checkpoint has exactly the tensors of this model. */
static int check_tensors(const struct ckpt *ckpt, const struct model_shape *shape, struct error *err)
{
    struct units *units = units_create_whole(shape, err);
    int result = units ? 0 : -1;
    size_t count;

    ckpt_tensors(ckpt, &count);
    for (size_t t = 0; result == 0 && t < units->ntensors; t++) {
        const struct ckpt_tensor *ours = &units->tensors[t], *theirs = checkpoint_find(ckpt, ours->name);

        if (!theirs || !tensor_same_shape(theirs, ours))
            result = error_set(err, CODE_DATA, "not its job file's model: tensor \"%s\" %s", ours->name,
                               theirs ? "has the wrong shape" : "is missing");
    }
    if (result == 0 && count != units->ntensors)
        result = error_set(err, CODE_DATA, "not its job file's model: %zu tensors, there should be %zu", count,
                           units->ntensors);
    units_destroy(units);
    return result;
}

int units_read_job(const struct ckpt *ckpt, struct job *job, struct error *err)
{
    if (job_parse(job, ckpt_job_text(ckpt), "its job file", NULL, 0, err) < 0) {
        err->code = CODE_DATA;
        return error_prefix(err, "%s: its model is not known", ckpt_path(ckpt));
    }
    if (check_tensors(ckpt, &job->model, err) == 0)
        return 0;
    job_destroy(job);
    return error_prefix(err, "%s", ckpt_path(ckpt));
}

int units_check_mesh(const struct model_shape *shape, const struct mesh *mesh, int chunks, struct error *err)
{
    if (mesh->dp < 1 || mesh->tp < 1 || mesh->pp < 1 || chunks < 1)
        return error_set(err, CODE_USAGE, "dp, tp, pp and chunks must be at least 1");
    if ((long long)mesh->dp * mesh->tp > 99999 || (long long)mesh->dp * mesh->tp * mesh->pp > 99999)
        return error_set(err, CODE_USAGE, "dp x tp x pp is more than 99999 ranks");
    if (chunks > 64 || (chunks > 1 && mesh->pp == 1))
        return error_set(err, CODE_USAGE, "chunks = %d: must be 1 to 64, and 1 when pp is 1", chunks);
    if (model_kv_heads(shape) % mesh->tp != 0)
        return error_set(err, CODE_USAGE,
                         "tp = %d does not divide the model's %d heads of keys; the largest that does is %d", mesh->tp,
                         model_kv_heads(shape), model_largest_tp(shape, mesh->tp));
    if (shape->seq_length % mesh->tp != 0)
        return error_set(err, CODE_USAGE, "tp = %d does not divide the model's seq_length of %d", mesh->tp,
                         shape->seq_length);
    if (shape->vocab < mesh->tp)
        return error_set(err, CODE_USAGE, "tp = %d is more than the model's vocab of %d", mesh->tp, shape->vocab);
    return 0;
}

int units_rank_pieces(const struct model_shape *shape, const struct mesh *mesh, int chunks, int rank,
                      struct ckpt_piece **pieces, size_t *npieces, struct error *err)
{
    struct units *units = units_create(shape, mesh, chunks, rank, err);
    size_t offsets[UNIT_MAX_TENSORS];

    *npieces = 0;
    *pieces = units ? error_calloc((size_t)units->nunits * UNIT_MAX_TENSORS, sizeof **pieces, err) : NULL;
    for (int u = 0; *pieces && u < units->nunits; u++) {
        size_t begin, count = unit_shard(units->units[u].count, mesh->dp, mesh_coords(mesh, rank).dp, &begin);

        *npieces += units_pieces(units, u, begin, count, true, *pieces + *npieces, offsets);
    }
    units_destroy(units);
    return *pieces ? 0 : -1;
}
