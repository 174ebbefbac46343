/* hf_export.c - a checkpoint's parameters as Hugging Face's model; see hf.h. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/format/block_writer.h"
#include "ckpt/file/workers.h"
#include "ckpt/models/hf_internal.h"
#include "ckpt/read/checkpoint.h"

#define WINDOW ((uint64_t)8 << 20) /* elements read at a time */

/* Elements [first, first + count) of one of their tensors. */
struct export_run {
    size_t tensor;
    uint64_t first, count;
};

struct exporting {
    struct ckpt *ckpt;
    const struct hf_export *how;
    const struct hf_class *class;
    struct directory directory;
    struct hf_layout *layout;
    struct hf_tokenizer tokenizer; /* if there is one */
    size_t *first;                 /* [files + 1] file f has tensors first[f] to first[f + 1] - 1 */
    int files;
    struct workers_progress progress; /* bytes */
    struct export_run *runs;          /* scratch of put_data: [tensors] */
    struct ckpt_piece *pieces;        /* the runs' */
    float *window, *turned;           /* [WINDOW]; the latter for a transposed run */
    json_t *weight_map;
};

static int allocate_buffers(struct exporting *e, const struct model_shape *shape, struct error *err)
{
    e->weight_map = json_object();
    if (!(e->layout = hf_layout_create(e->class, shape, err)) ||
        !(e->first = error_calloc(e->layout->count + 1, sizeof *e->first, err)) ||
        !(e->runs = error_calloc(e->layout->count, sizeof *e->runs, err)) ||
        !(e->pieces = error_calloc(e->layout->count, sizeof *e->pieces, err)) ||
        !(e->window = error_calloc(WINDOW, sizeof *e->window, err)) ||
        !(e->turned = error_calloc(WINDOW, sizeof *e->turned, err)))
        return -1;
    return 0;
}

/* Fill each file as far as it goes; no tensor is split. */
static void assign_files(struct exporting *e)
{
    uint64_t used = 0;

    for (size_t t = 0; t < e->layout->count; t++) {
        uint64_t bytes = hf_tensor_elements(&e->layout->tensors[t]) * dtype_size(e->how->dtype);

        if (used > 0 && used + bytes > e->how->shard_bytes) {
            e->first[++e->files] = t;
            used = 0;
        }
        used += bytes;
        e->progress.total += bytes;
    }
    e->first[++e->files] = e->layout->count;
}

/* The header of a file; also lists its tensors in the weight map. */
static int make_header(const struct exporting *e, int file, const char *name, void **header, size_t *bytes,
                       uint64_t *data_bytes, struct error *err)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    size_t count = e->first[file + 1] - e->first[file];
    struct safetensors_entry *entries = error_calloc(count, sizeof *entries, err);
    const char *prefix = e->class->prefixed ? HF_PREFIX : "";
    char(*names)[HF_NAME_SIZE + sizeof HF_PREFIX] = error_calloc(count, sizeof *names, err);
    int result = -1;

    if (!entries || !names)
        goto out;
    for (size_t i = 0; i < count; i++) {
        const struct hf_tensor *tensor = &e->layout->tensors[e->first[file] + i];

        snprintf(names[i], sizeof names[i], "%s%s", prefix, tensor->name);
        entries[i] = (struct safetensors_entry){
            .name = names[i], .dtype = hf_dtypes[e->how->dtype].stored, .ndim = tensor->ndim};
        memcpy(entries[i].shape, tensor->shape, sizeof tensor->shape);
        json_object_set_new(e->weight_map, names[i], json_string(name));
    }
    /* No tensor is a pad, but the data starts where block_writer wants it. */
    result = safetensors_layout(entries, count, metadata, 1, SHARD_ALIGN, header, bytes, err);
    if (result == 0 && *bytes > SHARD_BLOCK)
        result = error_set(err, CODE_USAGE, "a header of %zu bytes is too long: lower --shard-size", *bytes);
    *data_bytes = entries[count - 1].end;
out:
    free(entries);
    free(names);
    return result;
}

/* In place: number i is written at byte 2 i and read at byte 4 i, so no unread fp32 is overwritten. */
static void round_run(struct exporting *e, const struct export_run *run, float *numbers)
{
    const bool bf16 = e->how->dtype == DTYPE_BF16;
    struct hf_nonfinite *nonfinite = e->how->nonfinite;

    for (uint64_t i = 0; i < run->count; i++) {
        float value = numbers[i];

        if (e->how->dtype != DTYPE_F32) {
            uint16_t half = bf16 ? bf16_of_float(value) : f16_of_float(value);

            memcpy((char *)numbers + 2 * i, &half, 2);
            value = bf16 ? bf16_to_float(half) : f16_to_float(half);
        }
        if (!isfinite(value) && nonfinite && nonfinite->count++ == 0)
            hf_name_nonfinite(nonfinite, &e->layout->tensors[run->tensor], run->first + i, value);
    }
}

/*
 * The next runs of the tensors below `end`: as many as fit into the window. *at is where the first begins, and moves
 * behind the last. Transposed tensors are cut between rows: a row is far smaller than the window. Returns how many.
 */
static size_t next_runs(struct exporting *e, struct export_run *at, size_t end)
{
    uint64_t room = WINDOW;
    size_t count = 0;

    while (at->tensor < end && room > 0) {
        const struct hf_tensor *tensor = &e->layout->tensors[at->tensor];
        uint64_t left = hf_tensor_elements(tensor) - at->first, some = left < room ? left : room;

        if (tensor->transposed)
            some -= some % tensor->shape[1];
        if (some == 0)
            break;
        e->runs[count] = (struct export_run){at->tensor, at->first, some};
        e->pieces[count++] = hf_piece(e->layout, tensor, at->first, some);
        room -= some;
        at->first += some;
        if (some == left)
            *at = (struct export_run){.tensor = at->tensor + 1};
    }
    return count;
}

/* from [cols, rows], to [rows, cols]; in squares that stay in the cache. */
static void turn_rows(const float *from, uint64_t rows, uint64_t cols, float *to)
{
    for (uint64_t r0 = 0; r0 < rows; r0 += 16)
        for (uint64_t c0 = 0; c0 < cols; c0 += 16)
            for (uint64_t r = r0; r < rows && r < r0 + 16; r++)
                for (uint64_t c = c0; c < cols && c < c0 + 16; c++)
                    to[r * cols + c] = from[c * rows + r];
}

static int put_run(struct exporting *e, const struct export_run *run, float *data, struct block_writer *writer,
                   struct error *err)
{
    const struct hf_tensor *tensor = &e->layout->tensors[run->tensor];
    uint64_t bytes = run->count * dtype_size(e->how->dtype);

    if (tensor->transposed) {
        turn_rows(data, run->count / tensor->shape[1], tensor->shape[1], e->turned);
        data = e->turned;
    }
    round_run(e, run, data);
    if (block_writer_put(writer, data, bytes, err) < 0)
        return -1;
    workers_progress_add(&e->progress, bytes);
    return 0;
}

static int put_data(struct exporting *e, int file, struct block_writer *writer, struct error *err)
{
    const struct units *units = e->layout->units;
    struct export_run at = {.tensor = e->first[file]};
    size_t count;

    while ((count = next_runs(e, &at, e->first[file + 1])) > 0) {
        float *data = e->window;

        if (checkpoint_read_pieces(e->ckpt, units->tensors, units->ntensors, "param", e->pieces, count, data, err) < 0)
            return -1;
        for (size_t i = 0; i < count; data += e->runs[i++].count)
            if (put_run(e, &e->runs[i], data, writer, err) < 0)
                return -1;
    }
    return 0;
}

static int write_file(struct exporting *e, int file, struct error *err)
{
    struct block_writer *writer = NULL;
    char name[FILE_NAME_SIZE];
    void *header = NULL;
    size_t header_bytes;
    uint64_t data_bytes;
    int result = -1;

    if (e->files == 1)
        snprintf(name, sizeof name, HF_MODEL);
    else
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", file + 1, e->files);
    if (make_header(e, file, name, &header, &header_bytes, &data_bytes, err) == 0)
        writer = block_writer_create(&e->directory, name, header, header_bytes, data_bytes, err);
    if (writer && put_data(e, file, writer, err) == 0)
        result = block_writer_finish(writer, NULL, err) == 0 ? 0 : -1; /* their format has no checksums */
    block_writer_destroy(writer);
    free(header);
    return result;
}

/* With 15 digits, "1e-5", if each number is read back as it was, else with 17: muster compares them exactly. */
static int write_json(const struct directory *directory, const char *name, json_t *json, struct error *err)
{
    size_t flags = JSON_INDENT(2) | JSON_SORT_KEYS, digits = JSON_REAL_PRECISION(15);
    char *text = json_dumps(json, flags | digits);
    json_t *back = text ? json_loads(text, 0, NULL) : NULL;

    if (!json_equal(json, back))
        digits = JSON_REAL_PRECISION(17);
    json_decref(back);
    free(text);
    return json_write_file(directory, name, json, flags | digits, err);
}

static int open_empty(struct directory *directory, const char *dir, struct error *err)
{
    struct listing listing;
    bool empty;

    if (directory_make_path(dir, err) < 0 || directory_open(directory, NULL, dir, err) < 0)
        return -1;
    listing = listing_open(directory);
    empty = !listing_next(&listing);
    if (listing_close(&listing, err) < 0)
        return -1;
    return empty ? 0 : error_set(err, CODE_USAGE, "%s: is not empty; name another directory, or empty it", dir);
}

/* An id of the vocabulary, a list of such, or null. */
static bool has_ids(json_t *value, int vocab)
{
    size_t i;
    json_t *id;

    json_array_foreach(value, i, id)
    {
        if (!json_is_integer(id) || !has_ids(id, vocab))
            return false;
    }
    return json_is_integer(value) ? json_integer_value(value) >= 0 && json_integer_value(value) < vocab
                                  : !value || json_is_null(value) || json_is_array(value);
}

/* Takes over the ids of the generation_config.json that came with the tokenizer, of which several may end a text. 0 if
 * there is none, or if it is of another vocabulary. */
static int take_generation(struct exporting *e, json_t *config, int vocab, struct error *err)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    bool there, fits = true;
    json_t *generation = hf_json(&e->directory, HF_GENERATION, &there, err);

    for (int i = 0; generation && i < 3; i++)
        fits = fits && has_ids(json_object_get(generation, keys[i]), vocab);
    for (int i = 0; generation && fits && i < 3; i++)
        if (json_object_get(generation, keys[i]))
            json_object_set(config, keys[i], json_object_get(generation, keys[i]));
    json_decref(generation);
    return there && !generation ? -1 : there && fits;
}

/* The tokenizer, and the files that have the ids of its special tokens. */
static int write_descriptions(struct exporting *e, const struct job *job, struct error *err)
{
    bool causal = job->model.objective == OBJECTIVE_CAUSAL;
    int64_t end = job->model.vocab > e->class->end ? e->class->end : -1;
    struct hf_ids ids = {.begin = end, .end = end, .pad = causal ? -1 : job->data.pad};
    json_t *config;
    int taken;

    if (e->how->tokenizer) {
        ids = e->tokenizer.ids;
        if (hf_tokenizer_write(&e->tokenizer, &e->directory, err) < 0)
            return -1;
    }
    if (ids.begin < 0 && causal)
        ids.begin = ids.end; /* what begins after the end of a document is a document */
    config = hf_config_make(e->class, job, &ids, e->how->dtype);
    taken = take_generation(e, config, job->model.vocab, err);
    if (taken < 0 ||
        (!taken && causal && write_json(&e->directory, HF_GENERATION, hf_generation_make(&ids), err) < 0)) {
        json_decref(config);
        return -1;
    }
    return write_json(&e->directory, HF_CONFIG, config, err);
}

/* config.json is written last: without it, the folder is not a model. */
static int write_all(struct exporting *e, const struct job *job, struct error *err)
{
    if (allocate_buffers(e, &job->model, err) < 0)
        return -1;
    assign_files(e);
    for (int file = 0; file < e->files; file++)
        if (write_file(e, file, err) < 0)
            return -1;
    if (e->files > 1 && write_json(&e->directory, HF_INDEX,
                                   json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)e->progress.total,
                                             "weight_map", e->weight_map),
                                   err) < 0)
        return -1;
    return write_descriptions(e, job, err) < 0 ? -1 : directory_sync(&e->directory, err);
}

int hf_export(struct ckpt *ckpt, const char *dir, const struct hf_export *how, struct error *err)
{
    struct exporting e = {
        .ckpt = ckpt,
        .how = how,
        .directory = {.fd = -1},
        .progress = {.report = how->progress, .arg = how->arg, .lock = PTHREAD_MUTEX_INITIALIZER},
    };
    struct job job;
    int result = -1;

    if (units_read_job(ckpt, &job, err) < 0)
        return -1;
    e.class = hf_class_for(&job.model, err);
    if (e.class && (!how->tokenizer || hf_tokenizer_open(&e.tokenizer, how->tokenizer, &job.model, err) == 0) &&
        open_empty(&e.directory, dir, err) == 0)
        result = write_all(&e, &job, err);
    hf_tokenizer_close(&e.tokenizer);
    hf_layout_destroy(e.layout);
    directory_close(&e.directory);
    json_decref(e.weight_map);
    free(e.first);
    free(e.runs);
    free(e.pieces);
    free(e.window);
    free(e.turned);
    job_destroy(&job);
    return result;
}
