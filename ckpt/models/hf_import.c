/* hf_import.c - a model of Hugging Face's as a checkpoint of step 0; see hf.h. */

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/format/pieces.h"
#include "ckpt/models/hf_internal.h"
#include "ckpt/models/rewrite.h"

enum { SOME = 8192 }; /* elements of a twin compared, or of a column read, at a time */

static const char *const kinds[] = {"param", "exp_avg", "exp_avg_sq"};

struct importing {
    struct hf_files files;
    struct hf_layout *layout;
    struct hf_place **places; /* [layout->count] of each tensor */

    pthread_mutex_t lock; /* for all below: NaN and infinite weights */
    struct hf_nonfinite *nonfinite;
    size_t first_tensor; /* the first one's, in the layout */
    uint64_t first_element;
};

static void note_nonfinite(struct importing *importing, size_t index, uint64_t element, float value)
{
    struct hf_nonfinite *nonfinite = importing->nonfinite;

    pthread_mutex_lock(&importing->lock);
    if (nonfinite->count++ == 0 || index < importing->first_tensor ||
        (index == importing->first_tensor && element < importing->first_element)) {
        importing->first_tensor = index;
        importing->first_element = element;
        hf_name_nonfinite(nonfinite, &importing->layout->tensors[index], element, value);
    }
    pthread_mutex_unlock(&importing->lock);
}

/* Elements [first, first + count) of one of their tensors. */
static int read_theirs(struct importing *importing, size_t index, uint64_t first, uint64_t count, float *to,
                       struct error *err)
{
    if (hf_files_read(&importing->files, importing->places[index], first, count, to, err) < 0)
        return -1;
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(to[i]))
            note_nonfinite(importing, index, first + i, to[i]);
    return 0;
}

/* The piece's elements run by run, where the file has them in our order. Of three parts each is as large. */
static int read_runs(struct importing *importing, const struct ckpt_tensor *ours, const struct ckpt_piece *piece,
                     float *to, struct error *err)
{
    size_t start = importing->layout->start[piece->tensor];
    uint64_t size = hf_tensor_elements(&importing->layout->tensors[start]);
    struct ckpt_piece whole = piece_of_tensor(piece->tensor, ours, 0, box_elements(ours->shape, ours->ndim));
    struct overlap walk;

    overlap_start(&walk, piece, &whole, ours->ndim);
    while (overlap_next(&walk))
        for (uint64_t done = 0, some; done < walk.count; done += some) {
            uint64_t at = walk.at_b + done, left = size - at % size;

            some = walk.count - done < left ? walk.count - done : left;
            if (read_theirs(importing, start + at / size, at % size, some, to + walk.at_a + done, err) < 0)
                return -1;
        }
    return 0;
}

/* Reads elements [from, end) of one row of theirs, which are every `step`th number from `to` on. */
static int read_column(struct importing *importing, size_t index, uint64_t from, uint64_t end, float *to, uint64_t step,
                       struct error *err)
{
    float some[SOME];

    while (from < end) {
        uint64_t count = end - from < SOME ? end - from : SOME;

        if (read_theirs(importing, index, from, count, some, err) < 0)
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
static int read_columns(struct importing *importing, const struct ckpt_tensor *ours, const struct ckpt_piece *piece,
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

        if (from < until && read_column(importing, importing->layout->start[piece->tensor] + part, at + from,
                                        at + until, to + from * width + c - piece->first, width, err) < 0)
            return -1;
    }
    return 0;
}

/* A model that is only now going to be trained has moments of zero. */
static int read_pieces(void *arg, const struct ckpt_tensor *tensors, size_t ntensors, size_t kind,
                       const struct ckpt_piece *pieces, size_t npieces, float *to, struct error *err)
{
    struct importing *importing = arg;
    const struct hf_layout *layout = importing->layout;

    (void)ntensors;
    for (size_t p = 0; p < npieces; to += pieces[p++].count) {
        uint32_t tensor = pieces[p].tensor;
        bool transposed = layout->tensors[layout->start[tensor]].transposed;

        if (kind > 0)
            memset(to, 0, pieces[p].count * sizeof *to);
        else if ((transposed ? read_columns : read_runs)(importing, &tensors[tensor], &pieces[p], to, err) < 0)
            return -1;
    }
    return 0;
}

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

/* The sizes that the tensors have; job_keys.c has the largest ones. The names of layers' first norms are counted. */
static int find_shape(const struct hf_files *files, struct model_shape *shape, struct error *err)
{
    const struct hf_family *family = hf_family_of(shape);
    const struct hf_place *wte, *wpe;

    if (find_matrix(files, family->tokens, 1 << 24, 65536, &wte, err) < 0 ||
        find_matrix(files, family->positions, 1 << 20, 65536, &wpe, err) < 0)
        return -1;
    shape->hidden = (int)wte->shape[1];
    shape->seq_length = (int)wpe->shape[0];
    shape->vocab = (int)wte->shape[0];
    for (size_t i = 0; i < files->nplaces; i++) {
        const char *name = files->places[i].name, *number = name + strlen(family->block);

        if (strncmp(name, family->block, strlen(family->block)) == 0 && isdigit((unsigned char)*number) &&
            strcmp(number + strspn(number, "0123456789"), family->norm) == 0)
            shape->layers++;
    }
    if (shape->layers < 1 || shape->layers > 4096)
        return error_set(err, CODE_DATA, "has %d layers, must have 1 to 4096", shape->layers);
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

static int match_tensor(struct importing *importing, size_t index, struct error *err)
{
    const struct hf_tensor *tensor = &importing->layout->tensors[index];
    struct hf_place *place = hf_files_find(&importing->files, tensor->name);
    char is[48], must[48];

    if (!place)
        return error_set(err, CODE_DATA, "tensor \"%s\" is missing", tensor->name);
    if (place->ndim != tensor->ndim || memcmp(place->shape, tensor->shape, (size_t)tensor->ndim * 8) != 0) {
        format_shape(is, place->ndim, place->shape);
        format_shape(must, tensor->ndim, tensor->shape);
        return error_set(err, CODE_DATA, "tensor \"%s\" is %s, must be %s", tensor->name, is, must);
    }
    place->used = true;
    importing->places[index] = place;
    return 0;
}

/* Of the elements [first, first + count) of the two tensors: the first that differs, or first + count. -1: failed. */
static int compare_some(const struct hf_files *files, const struct hf_place *twin, const struct hf_place *of,
                        uint64_t first, uint64_t count, uint64_t *differs, struct error *err)
{
    float a[SOME], b[SOME];

    if (hf_files_read(files, twin, first, count, a, err) < 0 || hf_files_read(files, of, first, count, b, err) < 0)
        return -1;
    for (*differs = first; *differs < first + count; ++*differs)
        if (memcmp(&a[*differs - first], &b[*differs - first], sizeof *a) != 0)
            break;
    return 0;
}

/* transformers would tie the head or not, by config.json; our models have no head of their own. */
static int check_twin(const struct hf_files *files, const struct hf_twin *names, struct error *err)
{
    struct hf_place *twin = hf_files_find(files, names->name);
    const struct hf_place *of = hf_files_find(files, names->of);
    uint64_t elements, width, differs = 0;

    if (!twin)
        return 0;
    twin->used = true;
    if (twin->ndim != of->ndim || memcmp(twin->shape, of->shape, (size_t)of->ndim * 8) != 0)
        return error_set(err, CODE_DATA, "%s has another shape than %s: must be the same tensor", names->name,
                         names->of);
    elements = box_elements(of->shape, of->ndim);
    width = of->ndim > 1 ? of->shape[1] : 1;
    for (uint64_t first = 0; first < elements; first += SOME) {
        uint64_t some = elements - first < SOME ? elements - first : SOME;

        if (compare_some(files, twin, of, first, some, &differs, err) < 0)
            return -1;
        if (differs < first + some)
            return error_set(err, CODE_DATA,
                             "%s differs from %s at [%" PRIu64 ", %" PRIu64 "]: a head of its own cannot be imported",
                             names->name, names->of, differs / width, differs % width);
    }
    return 0;
}

/* The files must have the model's tensors, twins of some, and no others; all with HF_PREFIX, or all without. */
static int match_tensors(struct importing *importing, const struct model_shape *shape, struct error *err)
{
    const struct hf_files *files = &importing->files;
    const struct hf_family *family = hf_family_of(shape);
    bool prefixed = false;

    if (!(importing->layout = hf_layout_create(shape, err)) ||
        !(importing->places = error_calloc(importing->layout->count, sizeof(struct hf_place *), err)))
        return -1;
    for (size_t t = 0; t < importing->layout->count; t++) {
        if (match_tensor(importing, t, err) < 0)
            return -1;
        if (t > 0 && importing->places[t]->prefixed != prefixed)
            return error_set(err, CODE_DATA, "tensor \"%s\" is %s \"" HF_PREFIX "\", unlike others",
                             importing->places[t]->name, prefixed ? "without" : "with");
        prefixed = importing->places[t]->prefixed;
    }
    for (const struct hf_twin *twin = family->twins; twin->name; twin++)
        if (check_twin(files, twin, err) < 0)
            return -1;
    for (size_t i = 0; i < files->nplaces; i++)
        if (!files->places[i].used || (files->places[i].prefixed && !family->prefixed))
            return error_set(err, CODE_DATA, "tensor \"%s%s\" is not one of a %s",
                             files->places[i].prefixed ? HF_PREFIX : "", files->places[i].name, family->class);
    return 0;
}

/* Without config.json a GPT-2 is assumed. config.json first: its error names a wrong type of model, where the tensors
 * would only have unknown names. */
static int check_model(struct importing *importing, int heads, struct model_shape *shape, struct error *err)
{
    struct hf_files *files = &importing->files;
    bool there;
    json_t *config = hf_json(&files->directory, HF_CONFIG, &there, err);
    int result = 0;

    *shape = (struct model_shape){0};
    if (there && !config)
        return -1;
    if (config && hf_config_check_type(config, shape, err) < 0)
        result = error_prefix(err, "%s/" HF_CONFIG, files->directory.path);
    if (result == 0 && hf_files_scan(files, err) < 0)
        result = -1;
    else if (result == 0 && (find_shape(files, shape, err) < 0 || match_tensors(importing, shape, err) < 0))
        result = error_prefix(err, "%s", files->directory.path);
    if (result == 0 && config && hf_config_check_sizes(config, shape, heads, &shape->heads, err) < 0)
        result = error_prefix(err, "%s/" HF_CONFIG, files->directory.path);
    json_decref(config);
    return result < 0 ? -1 : hf_heads(shape, files->directory.path, shape->heads, heads, err);
}

void hf_model_text(char *text, size_t size, const struct model_shape *shape)
{
    snprintf(text, size, "model = { %slayers = %d; hidden = %d; heads = %d; seq_length = %d; vocab = %d; };\n",
             shape->objective == OBJECTIVE_MASKED ? "kind = \"bert\"; " : "", shape->layers, shape->hidden,
             shape->heads, shape->seq_length, shape->vocab);
}

int hf_import(const char *path, const char *dir, const struct rewrite_to *to, int heads, struct model_shape *shape,
              struct hf_nonfinite *nonfinite, struct error *err)
{
    struct importing importing = {.lock = PTHREAD_MUTEX_INITIALIZER, .nonfinite = nonfinite};
    char job[512] = "# made by muster-ckpt import: no training has run\n";
    struct rewrite rewrite = {
        .dir = dir,
        .name = "import",
        .to = *to,
        .kinds = kinds,
        .nkinds = sizeof kinds / sizeof *kinds,
        .state = {.loss_scale = 1},
        .job_text = job,
        .read = read_pieces,
        .arg = &importing,
    };
    int result = -1;

    *nonfinite = (struct hf_nonfinite){0};
    if (hf_files_open(&importing.files, path, err) < 0)
        return -1;
    if (check_model(&importing, heads, shape, err) == 0) {
        hf_model_text(job + strlen(job), sizeof job - strlen(job), shape);
        strcat(job, "data = { train = \"-\"; };\n"); /* a job file must have one */
        rewrite.shape = *shape;
        result = rewrite_run(&rewrite, err);
    }
    free(importing.places);
    hf_layout_destroy(importing.layout);
    hf_files_close(&importing.files);
    return result;
}
