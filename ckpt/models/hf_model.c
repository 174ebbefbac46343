/* hf_model.c - a model of Hugging Face's, open for reading, and a checkpoint of it; see hf.h. */

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/format/pieces.h"
#include "ckpt/models/hf_internal.h"

enum { SOME = 8192 }; /* elements of a twin compared, or of a column read, at a time */

static const char *const kinds[] = {"param", "exp_avg", "exp_avg_sq"};

struct hf_model {
    const struct hf_class *class;
    struct model_shape shape;
    struct hf_files files;
    struct hf_layout *layout;
    struct hf_place **places; /* [layout->count] of each tensor */

    pthread_mutex_t lock; /* for all below: NaN and infinite weights */
    struct hf_nonfinite nonfinite;
    size_t first_tensor; /* the first one's, in the layout */
    uint64_t first_element;
};

static void note_nonfinite(struct hf_model *model, size_t index, uint64_t element, float value)
{
    struct hf_nonfinite *nonfinite = &model->nonfinite;

    pthread_mutex_lock(&model->lock);
    if (nonfinite->count++ == 0 || index < model->first_tensor ||
        (index == model->first_tensor && element < model->first_element)) {
        model->first_tensor = index;
        model->first_element = element;
        hf_name_nonfinite(nonfinite, &model->layout->tensors[index], element, value);
    }
    pthread_mutex_unlock(&model->lock);
}

/* Elements [first, first + count) of one of their tensors. */
static int read_theirs(struct hf_model *model, size_t index, uint64_t first, uint64_t count, float *to,
                       struct error *err)
{
    if (hf_files_read(&model->files, model->places[index], first, count, to, err) < 0)
        return -1;
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(to[i]))
            note_nonfinite(model, index, first + i, to[i]);
    return 0;
}

/* The piece's elements run by run, where the file has them in our order. Of three parts each is as large. */
static int read_runs(struct hf_model *model, const struct ckpt_tensor *ours, const struct ckpt_piece *piece, float *to,
                     struct error *err)
{
    size_t start = model->layout->start[piece->tensor];
    uint64_t size = hf_tensor_elements(&model->layout->tensors[start]);
    struct ckpt_piece whole = piece_of_tensor(piece->tensor, ours, 0, box_elements(ours->shape, ours->ndim));
    struct overlap walk;

    overlap_start(&walk, piece, &whole, ours->ndim);
    while (overlap_next(&walk))
        for (uint64_t done = 0, some; done < walk.count; done += some) {
            uint64_t at = walk.at_b + done, left = size - at % size;

            some = walk.count - done < left ? walk.count - done : left;
            if (read_theirs(model, start + at / size, at % size, some, to + walk.at_a + done, err) < 0)
                return -1;
        }
    return 0;
}

/* Reads elements [from, end) of one row of theirs, which are every `step`th number from `to` on. */
static int read_column(struct hf_model *model, size_t index, uint64_t from, uint64_t end, float *to, uint64_t step,
                       struct error *err)
{
    float some[SOME];

    while (from < end) {
        uint64_t count = end - from < SOME ? end - from : SOME;

        if (read_theirs(model, index, from, count, some, err) < 0)
            return -1;
        for (uint64_t i = 0; i < count; i++)
            to[i * step] = some[i];
        to += count * step;
        from += count;
    }
    return 0;
}

/*
 * The same where theirs is transposed: ours is [in, out] or [in, 3, out]. The box of the piece has `width` columns,
 * each a part of a row of theirs. Element (i, c) of the box is number i * width + c.
 */
static int read_columns(struct hf_model *model, const struct ckpt_tensor *ours, const struct ckpt_piece *piece,
                        float *to, struct error *err)
{
    int last = ours->ndim - 1;
    uint64_t in = ours->shape[0], outs = piece->shape[last], width = box_elements(piece->shape + 1, last);
    uint64_t end = piece->first + piece->count;

    for (uint64_t c = 0; c < width; c++) {
        uint64_t part = last == 2 ? piece->start[1] + c / outs : 0, row = piece->start[last] + c % outs;
        uint64_t from = piece->first > c ? (piece->first - c + width - 1) / width : 0;
        uint64_t until = end > c ? (end - c + width - 1) / width : 0;
        uint64_t at = row * in + piece->start[0];

        if (from < until && read_column(model, model->layout->start[piece->tensor] + part, at + from, at + until,
                                        to + from * width + c - piece->first, width, err) < 0)
            return -1;
    }
    return 0;
}

int hf_model_read(struct hf_model *model, const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err)
{
    const struct hf_layout *layout = model->layout;

    for (size_t p = 0; p < npieces; to += pieces[p++].count) {
        uint32_t tensor = pieces[p].tensor;
        bool transposed = layout->tensors[layout->start[tensor]].transposed;

        if ((transposed ? read_columns : read_runs)(model, &layout->units->tensors[tensor], &pieces[p], to, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- the tensors ------------------------------------------------------------------------------------------------- */

/* A matrix of at most so many rows and columns; its size is in the place. */
static int find_matrix(const struct hf_files *files, const char *name, uint64_t rows, uint64_t cols,
                       const struct hf_place **place, struct error *err)
{
    *place = hf_files_find(files, name);
    if (!*place)
        return error_set(err, CODE_DATA, "tensor \"%s\" is missing", name);
    if ((*place)->ndim != 2 || (*place)->shape[0] < 1 || (*place)->shape[0] > rows || (*place)->shape[1] < 1 ||
        (*place)->shape[1] > cols)
        return error_set(err, CODE_DATA, "tensor \"%s\" is not a matrix of at most %" PRIu64 " x %" PRIu64, name, rows,
                         cols);
    return 0;
}

/* Without config.json a GPT-2 is assumed. The tensors have its sizes, but for the number of heads; job_keys.c has the
 * largest ones. The names of layers' first norms are counted. */
static int find_shape(const struct hf_files *files, int heads, struct model_shape *shape, struct error *err)
{
    const struct hf_place *wte, *wpe;

    if (find_matrix(files, "wte.weight", 1 << 24, 65536, &wte, err) < 0 ||
        find_matrix(files, "wpe.weight", 1 << 20, 65536, &wpe, err) < 0)
        return -1;
    *shape = (struct model_shape){.hidden = (int)wte->shape[1], .heads = heads, .vocab = (int)wte->shape[0]};
    shape->seq_length = (int)wpe->shape[0];
    for (size_t i = 0; i < files->nplaces; i++) {
        const char *name = files->places[i].name, *number = name + 2;

        if (strncmp(name, "h.", 2) == 0 && isdigit((unsigned char)*number) &&
            strcmp(number + strspn(number, "0123456789"), ".ln_1.weight") == 0)
            shape->layers++;
    }
    if (heads < 1)
        return error_set(err, CODE_USAGE, "missing --heads N, N dividing %d: its number of heads is in no " HF_CONFIG,
                         shape->hidden);
    if (shape->hidden % heads != 0)
        return error_set(err, CODE_USAGE, "%d heads do not divide its width of %d", heads, shape->hidden);
    return 0;
}

static void format_shape(char text[static 48], int ndim, const uint64_t *shape)
{
    if (ndim == 1)
        snprintf(text, 48, "[%" PRIu64 "]", shape[0]);
    else if (ndim == 2)
        snprintf(text, 48, "[%" PRIu64 ", %" PRIu64 "]", shape[0], shape[1]);
    else
        snprintf(text, 48, "of %d dimensions", ndim);
}

static int match_tensor(struct hf_model *model, size_t index, struct error *err)
{
    const struct hf_tensor *tensor = &model->layout->tensors[index];
    struct hf_place *place = hf_files_find(&model->files, tensor->name);
    char is[48], must[48];

    if (!place)
        return error_set(err, CODE_DATA, "tensor \"%s\" is missing", tensor->name);
    if (place->ndim != tensor->ndim || memcmp(place->shape, tensor->shape, (size_t)tensor->ndim * 8) != 0) {
        format_shape(is, place->ndim, place->shape);
        format_shape(must, tensor->ndim, tensor->shape);
        return error_set(err, CODE_DATA, "tensor \"%s\" is %s, must be %s", tensor->name, is, must);
    }
    place->used = true;
    model->places[index] = place;
    return 0;
}

/* transformers would tie the two or not, by its release. */
static int check_twin(const struct hf_files *files, const struct hf_twin *names, struct error *err)
{
    struct hf_place *twin = hf_files_find(files, names->name);
    const struct hf_place *of = hf_files_find(files, names->of);
    uint64_t elements, width;
    float a[SOME], b[SOME];

    if (!twin)
        return 0;
    twin->used = true;
    if (twin->ndim != of->ndim || memcmp(twin->shape, of->shape, (size_t)of->ndim * 8) != 0)
        return error_set(err, CODE_DATA, "%s has another shape than %s: must be the same tensor", names->name,
                         names->of);
    elements = box_elements(of->shape, of->ndim);
    width = of->ndim > 1 ? of->shape[1] : 1;
    for (uint64_t first = 0; first < elements; first += SOME) {
        uint64_t some = elements - first < SOME ? elements - first : SOME, same = 0;

        if (hf_files_read(files, twin, first, some, a, err) < 0 || hf_files_read(files, of, first, some, b, err) < 0)
            return -1;
        while (same < some && memcmp(&a[same], &b[same], sizeof *a) == 0)
            same++;
        if (same < some)
            return error_set(err, CODE_DATA,
                             "%s differs from %s at [%" PRIu64 ", %" PRIu64 "], and tie_word_embeddings is true",
                             names->name, names->of, (first + same) / width, (first + same) % width);
    }
    return 0;
}

/* The files must have the model's tensors, twins of some, and no others; all with HF_PREFIX, or all without. */
static int match_tensors(struct hf_model *model, struct error *err)
{
    const struct hf_files *files = &model->files;
    const struct hf_class *class = model->class;
    bool prefixed = false;

    if (!(model->layout = hf_layout_create(class, &model->shape, err)) ||
        !(model->places = error_calloc(model->layout->count, sizeof(struct hf_place *), err)))
        return -1;
    for (size_t t = 0; t < model->layout->count; t++) {
        if (match_tensor(model, t, err) < 0)
            return -1;
        if (t > 0 && model->places[t]->prefixed != prefixed)
            return error_set(err, CODE_DATA, "tensor \"%s\" is %s \"" HF_PREFIX "\", unlike others",
                             model->places[t]->name, prefixed ? "without" : "with");
        prefixed = model->places[t]->prefixed;
    }
    for (const struct hf_twin *twin = class->twins; twin->name && !model->shape.untied; twin++)
        if (check_twin(files, twin, err) < 0)
            return -1;
    for (size_t i = 0; i < files->nplaces; i++)
        if (!files->places[i].used || (files->places[i].prefixed && !class->prefixed))
            return error_set(err, CODE_DATA, "tensor \"%s%s\" is not one of a %s",
                             files->places[i].prefixed ? HF_PREFIX : "", files->places[i].name, class->name);
    return 0;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

#define JOB_REST "data = { train = \"-\"; };\n" /* a job file must have one */

/* The model must be one that a job file can have. */
static int check_text(struct hf_model *model, struct error *err)
{
    char text[JOB_MODEL_SIZE + sizeof JOB_REST];
    struct job job;

    job_model_text(text, &model->shape);
    strcat(text, JOB_REST);
    if (job_parse(&job, text, "as a job file", NULL, 0, err) < 0) {
        err->code = CODE_DATA;
        return -1;
    }
    model->shape = job.model;
    job_destroy(&job);
    return 0;
}

/* config.json first: its error names a wrong type of model, where the tensors would only have unknown names. */
static int read_config(struct hf_model *model, int heads, bool *there, struct error *err)
{
    json_t *config = hf_json(&model->files.directory, HF_CONFIG, there, err);
    int result = -1;

    if (*there && !config)
        return -1;
    model->class = hf_class_find(config, err);
    if (model->class && (!config || (hf_config_read(config, model->class, heads, &model->shape, err) == 0 &&
                                     check_text(model, err) == 0)))
        result = 0;
    json_decref(config);
    return result < 0 ? error_prefix(err, "%s/" HF_CONFIG, model->files.directory.path) : 0;
}

static int open_model(struct hf_model *model, int heads, struct error *err)
{
    bool there;

    if (read_config(model, heads, &there, err) < 0 || hf_files_scan(&model->files, err) < 0)
        return -1;
    if ((!there && (find_shape(&model->files, heads, &model->shape, err) < 0 || check_text(model, err) < 0)) ||
        match_tensors(model, err) < 0)
        return error_prefix(err, "%s", model->files.directory.path);
    return 0;
}

struct hf_model *hf_model_open(const char *path, int heads, struct error *err)
{
    struct hf_model *model = error_calloc(1, sizeof *model, err);

    if (!model || hf_files_open(&model->files, path, err) < 0) {
        free(model);
        return NULL;
    }
    pthread_mutex_init(&model->lock, NULL);
    if (open_model(model, heads, err) == 0)
        return model;
    hf_model_close(model);
    return NULL;
}

bool hf_is_model(const char *path)
{
    char config[4096 + sizeof HF_CONFIG];
    struct stat info;

    snprintf(config, sizeof config, "%s/" HF_CONFIG, path);
    return stat(path, &info) == 0 && (S_ISREG(info.st_mode) || access(config, F_OK) == 0);
}

const struct model_shape *hf_model_shape(const struct hf_model *model)
{
    return &model->shape;
}

const struct hf_nonfinite *hf_model_nonfinite(const struct hf_model *model)
{
    return &model->nonfinite;
}

void hf_model_close(struct hf_model *model)
{
    if (!model)
        return;
    free(model->places);
    hf_layout_destroy(model->layout);
    hf_files_close(&model->files);
    pthread_mutex_destroy(&model->lock);
    free(model);
}

/* ---- import ------------------------------------------------------------------------------------------------------ */

/* A model that is only now going to be trained has moments of zero. */
static int read_pieces(void *arg, const struct ckpt_tensor *tensors, size_t ntensors, size_t kind,
                       const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err)
{
    (void)tensors, (void)ntensors; /* the layout's too */
    if (kind == 0)
        return hf_model_read(arg, pieces, npieces, to, err);
    for (size_t p = 0; p < npieces; to += pieces[p++].count)
        memset(to, 0, pieces[p].count * sizeof *to);
    return 0;
}

int hf_import(struct hf_model *model, const char *dir, const struct rewrite_to *to, struct error *err)
{
    char text[JOB_MODEL_SIZE], job[sizeof text + 128];
    struct rewrite rewrite = {
        .dir = dir,
        .name = "import",
        .shape = model->shape,
        .to = *to,
        .kinds = kinds,
        .nkinds = sizeof kinds / sizeof *kinds,
        .state = {.loss_scale = 1},
        .job_text = job,
        .read = read_pieces,
        .arg = model,
    };

    job_model_text(text, &model->shape);
    snprintf(job, sizeof job, "# made by muster-ckpt import: no training has run\n%s" JOB_REST, text);
    return rewrite_run(&rewrite, err);
}
