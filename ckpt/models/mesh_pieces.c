#include "config.h"

#include "ckpt/models/mesh_pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/partition.h"

static const struct ckpt_tensor *find_tensor(const struct ckpt_tensor *tensors, size_t ntensors, const char *name)
{
    for (size_t t = 0; t < ntensors; t++)
        if (strcmp(tensors[t].name, name) == 0)
            return &tensors[t];
    return NULL;
}

/* Layers are 0 to L-1, so that the number of first norms is L. */
static int count_layers(const struct ckpt_tensor *tensors, size_t ntensors)
{
    int layers = 0;

    for (size_t t = 0; t < ntensors; t++) {
        int layer, end = 0;

        if (sscanf(tensors[t].name, "h.%9d.ln_1.weight%n", &layer, &end) == 1 && end > 0 && !tensors[t].name[end])
            layers++;
    }
    return layers;
}

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct ckpt_tensor *)left)->name, ((const struct ckpt_tensor *)right)->name);
}

/* Check that the model has exactly these tensors. */
static int compare_tables(const struct model_shape *shape, const struct ckpt_tensor *tensors, size_t ntensors,
                          struct error *err)
{
    const struct units_place whole = {.dp = 1, .tp = 1, .first_stage = true, .last_stage = true};
    struct units *units = units_create(shape, &whole, err);
    struct ckpt_tensor *theirs = calloc(ntensors + 1, sizeof *theirs);
    int result = 0;

    if (!units || !theirs) {
        result = error_set(err, CODE_IO, "out of memory for a table of %zu tensors", ntensors);
        goto out;
    }
    memcpy(theirs, tensors, ntensors * sizeof *theirs);
    qsort(theirs, ntensors, sizeof *theirs, by_name);
    qsort(units->tensors, units->ntensors, sizeof *units->tensors, by_name);
    for (size_t t = 0; t < ntensors && t < units->ntensors && result == 0; t++) {
        const struct ckpt_tensor *a = &theirs[t], *b = &units->tensors[t];

        if (strcmp(a->name, b->name) > 0)
            result = error_set(err, CODE_DATA, "not a GPT or BERT: tensor \"%s\" is missing", b->name);
        else if (strcmp(a->name, b->name) < 0)
            result = error_set(err, CODE_DATA, "not a GPT or BERT, which has no tensor \"%s\"", a->name);
        else if (a->ndim != b->ndim || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) != 0)
            result = error_set(err, CODE_DATA, "not a GPT or BERT: tensor \"%s\" has the wrong shape", a->name);
    }
    if (result == 0 && ntensors != units->ntensors)
        result =
            error_set(err, CODE_DATA, "not a GPT or BERT: %zu tensors, there should be %zu", ntensors, units->ntensors);
out:
    free(theirs);
    units_destroy(units);
    return result;
}

int mesh_model_of(const struct ckpt_tensor *tensors, size_t ntensors, struct model_shape *shape, struct error *err)
{
    const struct ckpt_tensor *wte = find_tensor(tensors, ntensors, "wte.weight"),
                             *wpe = find_tensor(tensors, ntensors, "wpe.weight");

    if (!wte || !wpe || wte->ndim != 2 || wpe->ndim != 2)
        return error_set(err, CODE_DATA, "not a GPT or BERT: it needs matrices wte.weight and wpe.weight");
    if (wte->shape[0] > 1 << 24 || wte->shape[1] > 65536 || wpe->shape[0] > 1 << 20) /* as job_keys.c has it */
        return error_set(err, CODE_DATA, "a model of this size is more than a job file can have");
    *shape = (struct model_shape){
        .kind = find_tensor(tensors, ntensors, "mlm.bias") ? MODEL_BERT : MODEL_GPT,
        .layers = count_layers(tensors, ntensors),
        .hidden = (int)wte->shape[1],
        .seq_length = (int)wpe->shape[0],
        .vocab = (int)wte->shape[0],
    };
    if (shape->layers < 1 || shape->layers > 4096)
        return error_set(err, CODE_DATA, "not a GPT or BERT: %d layers (h.0.ln_1.weight and so on)", shape->layers);
    return compare_tables(shape, tensors, ntensors, err);
}

int mesh_check(const struct model_shape *shape, const struct mesh *mesh, int chunks, struct error *err)
{
    if (mesh->dp < 1 || mesh->tp < 1 || mesh->pp < 1 || chunks < 1)
        return error_set(err, CODE_USAGE, "dp, tp, pp and chunks must be at least 1");
    if ((long long)mesh->dp * mesh->tp > 99999 || (long long)mesh->dp * mesh->tp * mesh->pp > 99999)
        return error_set(err, CODE_USAGE, "dp x tp x pp is more than 99999 ranks");
    if (chunks > 64 || (chunks > 1 && mesh->pp == 1))
        return error_set(err, CODE_USAGE, "chunks = %d: must be 1 to 64, and 1 when pp is 1", chunks);
    if (shape->heads && shape->heads % mesh->tp != 0)
        return error_set(err, CODE_USAGE, "tp = %d does not divide the model's %d heads", mesh->tp, shape->heads);
    if (!shape->heads && shape->hidden % mesh->tp != 0)
        return error_set(err, CODE_USAGE, "tp = %d does not divide the model's width of %d", mesh->tp, shape->hidden);
    if (shape->seq_length % mesh->tp != 0 || shape->vocab < mesh->tp)
        return error_set(err, CODE_USAGE, "tp = %d does not divide the model's seq_length of %d", mesh->tp,
                         shape->seq_length);
    return 0;
}

/* The units of a rank; `here` has room for all layers. */
static struct units *rank_units(const struct model_shape *shape, const struct mesh *mesh, int chunks,
                                struct mesh_place at, bool *here, int *first, struct error *err)
{
    struct units_place place = {
        .dp = mesh->dp,
        .tp = mesh->tp,
        .tp_rank = at.tp,
        .first_stage = at.pp == 0,
        .last_stage = at.pp == mesh->pp - 1,
        .layers = here,
    };
    int parts = mesh->pp * chunks;

    partition_layers(shape, parts, first);
    for (int part = at.pp; part < parts; part += mesh->pp)
        for (int layer = first[part]; layer < first[part + 1]; layer++)
            here[layer] = true;
    return units_create(shape, &place, err);
}

int mesh_pieces(const struct model_shape *shape, const struct mesh *mesh, int chunks, int rank,
                struct ckpt_piece **pieces, size_t *npieces, struct error *err)
{
    struct mesh_place at = mesh_place(mesh, rank);
    bool *here = calloc((size_t)shape->layers, sizeof *here);
    int *first = calloc((size_t)mesh->pp * (size_t)chunks + 1, sizeof *first);
    struct units *units = here && first ? rank_units(shape, mesh, chunks, at, here, first, err) : NULL;
    size_t offsets[UNIT_MAX_TENSORS];
    int result = -1;

    *npieces = 0;
    *pieces = units ? calloc((size_t)units->nunits * UNIT_MAX_TENSORS, sizeof **pieces) : NULL;
    if (!*pieces) {
        error_set(err, CODE_IO, "out of memory for the tensors of %d layers", shape->layers);
        goto out;
    }
    for (int u = 0; u < units->nunits; u++) {
        size_t begin, count = unit_shard(&units->units[u], mesh->dp, at.dp, &begin);

        *npieces += units_pieces(units, u, begin, count, true, *pieces + *npieces, offsets);
    }
    result = 0;
out:
    units_destroy(units);
    free(here);
    free(first);
    return result;
}
