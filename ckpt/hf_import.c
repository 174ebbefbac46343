/* hf_import.c - a model of Hugging Face's as a checkpoint of step 0; see hf.h. */
#include "config.h"

#include "ckpt/hf_files.h"
#include "ckpt/interval.h"
#include "ckpt/mesh_pieces.h"
#include "ckpt/rewrite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"param", "exp_avg", "exp_avg_sq"};

struct importing {
    struct hf_files files;
    size_t *map; /* our table's tensor -> the files' */
};

/* What of a tensor the piece is, run by run. */
static int read_piece(const struct importing *importing, const struct ckpt_tensor *tensor,
                      const struct ckpt_piece *piece, float *to, struct error *err)
{
    struct ckpt_piece whole = piece_of_tensor(piece->tensor, tensor, 0, box_elements(tensor->shape, tensor->ndim));
    struct overlap walk;

    overlap_start(&walk, piece, &whole, tensor->ndim);
    while (overlap_next(&walk, UINT64_MAX))
        if (hf_files_read(&importing->files, importing->map[piece->tensor], walk.b, walk.count, to + walk.a, err) < 0)
            return -1;
    return 0;
}

/* A model that is only now going to be trained has moments of zero. */
static int read_pieces(void *arg, const struct ckpt_tensor *tensors, size_t ntensors, size_t kind,
                       const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err)
{
    const struct importing *importing = arg;

    (void)ntensors;
    for (size_t p = 0; p < npieces; to += pieces[p++].count) {
        if (kind > 0)
            memset(to, 0, pieces[p].count * sizeof *to);
        else if (read_piece(importing, &tensors[pieces[p].tensor], &pieces[p], to, err) < 0)
            return -1;
    }
    return 0;
}

/* Where each tensor of the model's table lies. mesh_model_of has seen that the two tables have the same names. */
static int map_tensors(struct importing *importing, const struct model_shape *shape, struct error *err)
{
    const struct units_place whole = {.dp = 1, .tp = 1, .first_stage = true, .last_stage = true};
    struct units *units = units_create(shape, 0.02, &whole, err);

    importing->map = units ? calloc(units->ntensors, sizeof *importing->map) : NULL;
    if (!importing->map) {
        units_destroy(units);
        return error_set(err, CODE_IO, "out of memory for a table of tensors");
    }
    for (size_t t = 0; t < units->ntensors; t++)
        for (size_t i = 0; i < importing->files.ntensors; i++)
            if (strcmp(units->tensors[t].name, importing->files.tensors[i].name) == 0)
                importing->map[t] = i;
    units_destroy(units);
    return 0;
}

static int describe(const struct hf_files *files, const struct hf_import *how, struct model_shape *shape,
                    struct error *err)
{
    json_t *config;
    bool there;
    int result = 0;

    if (mesh_model_of(files->tensors, files->ntensors, shape, err) < 0)
        return error_prefix(err, "%s", files->directory.path);
    config = hf_files_json(files, HF_CONFIG, &there, err);
    if (there && !config)
        return -1;
    if (config && hf_check_config(config, shape, &shape->heads, err) < 0)
        result = error_prefix(err, "%s/" HF_CONFIG, files->directory.path);
    json_decref(config);
    return result < 0 ? -1 : hf_heads(shape, files->directory.path, HF_CONFIG, shape->heads, how->heads, err);
}

int hf_import(const char *path, const char *dir, const struct hf_import *how, struct model_shape *shape,
              struct error *err)
{
    struct importing importing = {0};
    char job[512] = "# made by muster-ckpt import: no training has run\n";
    struct rewrite rewrite = {
        .dir = dir,
        .name = "import",
        .mesh = how->mesh,
        .chunks = how->chunks ? how->chunks : 1,
        .kinds = kinds,
        .nkinds = sizeof kinds / sizeof *kinds,
        .state = {.loss_scale = 1, .dp = how->mesh.dp, .tp = how->mesh.tp, .pp = how->mesh.pp, .zero = how->zero},
        .job_text = job,
        .read = read_pieces,
        .arg = &importing,
        .progress = how->progress,
        .progress_arg = how->arg,
    };
    int result = -1;

    if (hf_files_open(&importing.files, path, err) < 0)
        return -1;
    if (describe(&importing.files, how, shape, err) == 0 && map_tensors(&importing, shape, err) == 0) {
        hf_model_text(job + strlen(job), sizeof job - strlen(job), shape);
        strcat(job, "data = { train = \"-\"; };\n"); /* a job file must have one */
        rewrite.shape = *shape;
        result = rewrite_run(&rewrite, err);
    }
    free(importing.map);
    hf_files_close(&importing.files);
    return result;
}
