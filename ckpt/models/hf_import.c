/* hf_import.c - a model of Hugging Face's as a checkpoint of step 0; see hf.h. */

#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/format/pieces.h"
#include "ckpt/models/hf.h"
#include "ckpt/models/mesh_pieces.h"
#include "ckpt/models/rewrite.h"

enum { HEAD_BLOCK = 16384 }; /* elements of the head compared at a time */

static const char *const kinds[] = {"param", "exp_avg", "exp_avg_sq"};

struct importing {
    struct hf_files files;
    size_t *map; /* our table's tensor -> the files' */

    pthread_mutex_t lock; /* for all below: NaN and infinite weights */
    uint64_t nonfinite;
    uint32_t first_tensor; /* the first one's, in our table */
    uint64_t first_element;
    float first_value;
};

static void note_nonfinite(struct importing *importing, uint32_t tensor, uint64_t element, float value)
{
    pthread_mutex_lock(&importing->lock);
    if (importing->nonfinite++ == 0 || tensor < importing->first_tensor ||
        (tensor == importing->first_tensor && element < importing->first_element)) {
        importing->first_tensor = tensor;
        importing->first_element = element;
        importing->first_value = value;
    }
    pthread_mutex_unlock(&importing->lock);
}

/* Reads the piece's elements of the tensor, run by run. */
static int read_piece(struct importing *importing, const struct ckpt_tensor *tensor, const struct ckpt_piece *piece,
                      float *to, struct error *err)
{
    const struct hf_place *place = &importing->files.places[importing->map[piece->tensor]];
    struct ckpt_piece whole = piece_of_tensor(piece->tensor, tensor, 0, box_elements(tensor->shape, tensor->ndim));
    struct overlap walk;

    overlap_start(&walk, piece, &whole, tensor->ndim);
    while (overlap_next(&walk, UINT64_MAX)) {
        if (hf_files_read(&importing->files, place, walk.b, walk.count, to + walk.a, err) < 0)
            return -1;
        for (uint64_t i = 0; i < walk.count; i++)
            if (!isfinite(to[walk.a + i]))
                note_nonfinite(importing, piece->tensor, walk.b + i, to[walk.a + i]);
    }
    return 0;
}

/* A model that is only now going to be trained has moments of zero. */
static int read_pieces(void *arg, const struct ckpt_tensor *tensors, size_t ntensors, size_t kind,
                       const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err)
{
    struct importing *importing = arg;

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
    struct units *units = units_create(shape, &whole, err);

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

/* The tensors' table must be a GPT's, and of the sizes that config.json has, where there is one. */
static int check_tensors(struct hf_files *files, json_t *config, struct model_shape *shape, struct error *err)
{
    if (hf_files_scan(files, err) < 0)
        return -1;
    if (mesh_model_of(files->tensors, files->ntensors, shape, err) < 0)
        return error_prefix(err, "%s", files->directory.path);
    if (config && hf_check_sizes(config, shape, &shape->heads, err) < 0)
        return error_prefix(err, "%s/" HF_CONFIG, files->directory.path);
    return 0;
}

/* config.json first: its error names a wrong type of model, where the tensors would only have unknown names. */
static int check_model(struct hf_files *files, const struct hf_import *how, struct model_shape *shape,
                       struct error *err)
{
    bool there;
    json_t *config = hf_files_json(files, HF_CONFIG, &there, err);
    int result;

    if (there && !config)
        return -1;
    if (config && hf_check_type(config, err) < 0)
        result = error_prefix(err, "%s/" HF_CONFIG, files->directory.path);
    else
        result = check_tensors(files, config, shape, err);
    json_decref(config);
    return result < 0 ? -1 : hf_heads(shape, files->directory.path, HF_CONFIG, shape->heads, how->heads, err);
}

/* Of the elements [first, first + count) of the two tensors: the first that differs, or first + count. -1: failed. */
static int compare_some(const struct hf_files *files, const struct hf_place *wte, uint64_t first, uint64_t count,
                        uint64_t *differs, struct error *err)
{
    float a[HEAD_BLOCK], b[HEAD_BLOCK];

    if (hf_files_read(files, wte, first, count, a, err) < 0 ||
        hf_files_read(files, &files->head_place, first, count, b, err) < 0)
        return -1;
    for (*differs = first; *differs < first + count; ++*differs)
        if (memcmp(&a[*differs - first], &b[*differs - first], sizeof *a) != 0)
            break;
    return 0;
}

/* transformers would tie the head or not, by config.json; our models have no head of their own. */
static int check_head(const struct hf_files *files, const struct model_shape *shape, struct error *err)
{
    const struct ckpt_tensor *head = &files->head;
    uint64_t width = (uint64_t)shape->hidden, elements = (uint64_t)shape->vocab * width, differs = 0;
    size_t wte = 0;

    if (!head->name[0])
        return 0;
    if (head->ndim != 2 || head->shape[0] != (uint64_t)shape->vocab || head->shape[1] != width)
        return error_set(err, CODE_DATA, "%s: " HF_HEAD " has another shape than wte.weight: must be the same tensor",
                         files->directory.path);
    while (strcmp(files->tensors[wte].name, "wte.weight") != 0)
        wte++;
    for (uint64_t first = 0; first < elements; first += HEAD_BLOCK) {
        uint64_t some = elements - first < HEAD_BLOCK ? elements - first : HEAD_BLOCK;

        if (compare_some(files, &files->places[wte], first, some, &differs, err) < 0)
            return -1;
        if (differs < first + some)
            return error_set(err, CODE_DATA,
                             "%s: " HF_HEAD " differs from wte.weight at [%" PRIu64 ", %" PRIu64
                             "]: a head of its own cannot be imported",
                             files->directory.path, differs / width, differs % width);
    }
    return 0;
}

/* The first NaN or infinite weight's place is given by row and column of the file's tensor. */
static void describe_nonfinite(const struct importing *importing, struct hf_nonfinite *nonfinite)
{
    const struct ckpt_tensor *tensor = &importing->files.tensors[importing->map[importing->first_tensor]];
    uint64_t shape[2], element = importing->first_element;

    nonfinite->count = importing->nonfinite;
    if (hf_shape(tensor, shape) == 1)
        snprintf(nonfinite->first, sizeof nonfinite->first, "%s[%" PRIu64 "] is %f", tensor->name, element,
                 (double)importing->first_value);
    else
        snprintf(nonfinite->first, sizeof nonfinite->first, "%s[%" PRIu64 ", %" PRIu64 "] is %f", tensor->name,
                 element / shape[1], element % shape[1], (double)importing->first_value);
}

int hf_import(const char *path, const char *dir, const struct hf_import *how, struct model_shape *shape,
              struct hf_nonfinite *nonfinite, struct error *err)
{
    struct importing importing = {.lock = PTHREAD_MUTEX_INITIALIZER};
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
    if (check_model(&importing.files, how, shape, err) == 0 && check_head(&importing.files, shape, err) == 0 &&
        map_tensors(&importing, shape, err) == 0) {
        hf_model_text(job + strlen(job), sizeof job - strlen(job), shape);
        strcat(job, "data = { train = \"-\"; };\n"); /* a job file must have one */
        rewrite.shape = *shape;
        result = rewrite_run(&rewrite, err);
        describe_nonfinite(&importing, nonfinite);
    }
    free(importing.map);
    hf_files_close(&importing.files);
    return result;
}
