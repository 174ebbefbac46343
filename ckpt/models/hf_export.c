/* hf_export.c - a checkpoint's parameters as Hugging Face's GPT-2; see hf.h. */

#include "config.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/file/block_writer.h"
#include "ckpt/format/pieces.h"
#include "ckpt/models/hf.h"
#include "ckpt/models/mesh_pieces.h"
#include "ckpt/read/checkpoint.h"
#include "common/half.h"
#include "common/safetensors.h"

#define WINDOW ((uint64_t)8 << 20) /* elements read at a time */

struct exporting {
    struct ckpt *ckpt;
    const struct hf_export *how;
    struct directory directory;
    size_t *first; /* [files + 1] file f has tensors first[f] to first[f + 1] - 1 */
    int files;
    uint64_t done, total; /* bytes */
    float *window;
    json_t *weight_map;
};

static uint64_t tensor_bytes(const struct exporting *e, size_t t)
{
    const struct ckpt_tensor *tensor = &e->ckpt->manifest->tensors[t];

    return box_elements(tensor->shape, tensor->ndim) * dtype_size(e->how->dtype);
}

/* Fill each file as far as it goes; no tensor is split. */
static int assign_files(struct exporting *e, struct error *err)
{
    size_t ntensors = e->ckpt->manifest->ntensors;
    uint64_t used = 0;

    e->first = calloc(ntensors + 1, sizeof *e->first);
    e->window = malloc(WINDOW * sizeof *e->window);
    e->weight_map = json_object();
    if (!e->first || !e->window || !e->weight_map)
        return error_errno(err, CODE_IO, "buffers to export");
    for (size_t t = 0; t < ntensors; t++) {
        uint64_t bytes = tensor_bytes(e, t);

        if (used > 0 && used + bytes > e->how->shard_bytes) {
            e->first[++e->files] = t;
            used = 0;
        }
        used += bytes;
        e->total += bytes;
    }
    e->first[++e->files] = ntensors;
    return 0;
}

static void make_file_name(char name[FILE_NAME_SIZE], const struct exporting *e, int file)
{
    if (e->files == 1)
        snprintf(name, FILE_NAME_SIZE, HF_MODEL);
    else
        snprintf(name, FILE_NAME_SIZE, "model-%05d-of-%05d.safetensors", file + 1, e->files);
}

/* The header with more spaces behind it, so that the data starts where block_writer wants it; no tensor is a pad. */
static int align_header(void **header, size_t *bytes, struct error *err)
{
    size_t aligned = (*bytes + SHARD_ALIGN - 1) / SHARD_ALIGN * SHARD_ALIGN;
    uint64_t length = htole64(aligned - 8);
    char *grown = realloc(*header, aligned);

    if (!grown)
        return error_errno(err, CODE_IO, "a header of %zu bytes", aligned);
    memset(grown + *bytes, ' ', aligned - *bytes);
    memcpy(grown, &length, sizeof length);
    *header = grown;
    *bytes = aligned;
    return aligned <= SHARD_BLOCK
               ? 0
               : error_set(err, CODE_USAGE, "a header of %zu bytes is too long: lower --shard-size", aligned);
}

static int make_header(const struct exporting *e, int file, void **header, size_t *bytes, uint64_t *data_bytes,
                       struct error *err)
{
    static const char *const types[] = {[DTYPE_F32] = "F32", [DTYPE_BF16] = "BF16", [DTYPE_F16] = "F16"};
    static const char *const metadata[] = {"format", "pt", NULL};
    size_t count = e->first[file + 1] - e->first[file];
    struct safetensors_entry *entries = calloc(count, sizeof *entries);
    char(*names)[CKPT_NAME_SIZE + sizeof HF_PREFIX] = calloc(count, sizeof *names);
    int result = -1;

    if (!entries || !names) {
        error_errno(err, CODE_IO, "a header of %zu tensors", count);
        goto out;
    }
    for (size_t i = 0; i < count; i++) {
        const struct ckpt_tensor *tensor = &e->ckpt->manifest->tensors[e->first[file] + i];

        snprintf(names[i], sizeof names[i], HF_PREFIX "%s", tensor->name);
        entries[i] = (struct safetensors_entry){.name = names[i], .dtype = types[e->how->dtype]};
        entries[i].ndim = hf_shape(tensor, entries[i].shape);
    }
    if (safetensors_layout(entries, count, metadata, 1, header, bytes, err) == 0)
        result = align_header(header, bytes, err);
    *data_bytes = entries[count - 1].end;
out:
    free(entries);
    free(names);
    return result;
}

/* In place: a 16-bit number never lies behind the fp32 that it comes from. */
static void round_to(enum dtype dtype, float *numbers, uint64_t count)
{
    for (uint64_t i = 0; i < count && dtype != DTYPE_F32; i++) {
        uint16_t half = dtype == DTYPE_BF16 ? bf16_of_float(numbers[i]) : f16_of_float(numbers[i]);

        memcpy((char *)numbers + 2 * i, &half, 2);
    }
}

static int put_data(struct exporting *e, int file, struct block_writer *writer, struct error *err)
{
    const struct manifest *manifest = e->ckpt->manifest;
    size_t begin = e->first[file], count = e->first[file + 1] - begin;
    struct ckpt_piece *pieces = calloc(2 * count, sizeof *pieces), *parts = pieces + count;
    uint64_t elements = 0;
    int result = 0;

    if (!pieces)
        return error_errno(err, CODE_IO, "a list of %zu tensors", count);
    for (size_t i = 0; i < count; i++) {
        const struct ckpt_tensor *tensor = &manifest->tensors[begin + i];

        pieces[i] = piece_of_tensor((uint32_t)(begin + i), tensor, 0, box_elements(tensor->shape, tensor->ndim));
        elements += pieces[i].count;
    }
    for (uint64_t first = 0; first < elements && result == 0; first += WINDOW) {
        uint64_t some = elements - first < WINDOW ? elements - first : WINDOW;
        size_t nparts = pieces_cut(pieces, count, first, some, parts);

        result = checkpoint_read_pieces(e->ckpt, manifest->tensors, manifest->ntensors, "param", parts, nparts,
                                        e->window, err);
        if (result < 0)
            break;
        round_to(e->how->dtype, e->window, some);
        result = block_writer_put(writer, e->window, some * dtype_size(e->how->dtype), err);
        e->done += some * dtype_size(e->how->dtype);
        if (e->how->progress)
            e->how->progress(e->done, e->total, e->how->arg);
    }
    free(pieces);
    return result;
}

static int write_file(struct exporting *e, int file, struct error *err)
{
    struct block_writer *writer = NULL;
    char name[FILE_NAME_SIZE], tensor[CKPT_NAME_SIZE + sizeof HF_PREFIX];
    void *header = NULL;
    size_t header_bytes;
    uint64_t data_bytes;
    uint32_t *crcs = NULL;
    int result = -1;

    make_file_name(name, e, file);
    if (make_header(e, file, &header, &header_bytes, &data_bytes, err) < 0)
        goto out;
    crcs = calloc(data_bytes / SHARD_BLOCK + 1, sizeof *crcs); /* their format has no room for these */
    if (!crcs) {
        error_errno(err, CODE_IO, "%s", name);
        goto out;
    }
    writer = block_writer_create(&e->directory, name, header, header_bytes, data_bytes, err);
    if (writer && put_data(e, file, writer, err) == 0)
        result = block_writer_finish(writer, crcs, err);
    for (size_t t = e->first[file]; t < e->first[file + 1]; t++) {
        snprintf(tensor, sizeof tensor, HF_PREFIX "%s", e->ckpt->manifest->tensors[t].name);
        json_object_set_new(e->weight_map, tensor, json_string(name));
    }
out:
    block_writer_destroy(writer);
    free(crcs);
    free(header);
    return result;
}

/* Takes the object. */
static int write_json(const struct exporting *e, const char *name, json_t *json, struct error *err)
{
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(15)) : NULL;
    int result = text ? file_write(&e->directory, name, text, strlen(text), err)
                      : error_set(err, CODE_IO, "%s/%s: out of memory", e->directory.path, name);

    json_decref(json);
    free(text);
    return result;
}

/* The model's sizes; heads are the job file's, or else the caller's. *job is to be destroyed when true is in *has_job.
 */
static int read_model(const struct ckpt *ckpt, const struct hf_export *how, struct model_shape *shape, struct job *job,
                      bool *has_job, struct error *err)
{
    if (mesh_model_of(ckpt->manifest->tensors, ckpt->manifest->ntensors, shape, err) < 0)
        return error_prefix(err, "%s", ckpt->directory.path);
    if (shape->kind != MODEL_GPT)
        return error_set(err, CODE_DATA, "%s is of a BERT; only a GPT has a counterpart to export to",
                         ckpt->directory.path);
    *has_job = job_parse(job, ckpt->manifest->job_text, ckpt->directory.path, NULL, 0, NULL) == 0;
    return hf_heads(shape, ckpt->directory.path, "job file", *has_job ? job->model.heads : 0, how->heads, err);
}

static int open_empty(struct directory *directory, const char *dir, struct error *err)
{
    struct listing listing;
    bool empty;

    if (directory_make_path(dir, err) < 0 || directory_open(directory, NULL, dir, err) < 0)
        return -1;
    listing_open(&listing, directory);
    empty = !listing_next(&listing);
    if (listing_close(&listing, err) < 0)
        return -1;
    return empty ? 0 : error_set(err, CODE_USAGE, "%s: is not empty; name another directory, or empty it", dir);
}

static int write_all(struct exporting *e, const struct model_shape *shape, const struct job *job, struct error *err)
{
    if (assign_files(e, err) < 0)
        return -1;
    for (int file = 0; file < e->files; file++)
        if (write_file(e, file, err) < 0)
            return -1;
    if (e->files > 1 && write_json(e, HF_INDEX,
                                   json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)e->total,
                                             "weight_map", e->weight_map),
                                   err) < 0)
        return -1;
    if (write_json(e, HF_CONFIG, hf_config(shape, job, e->how->dtype), err) < 0)
        return -1;
    return directory_sync(&e->directory, err);
}

int hf_export(struct ckpt *ckpt, const char *dir, const struct hf_export *how, struct error *err)
{
    struct exporting e = {.ckpt = ckpt, .how = how, .directory = {.fd = -1}};
    struct model_shape shape;
    struct job job;
    bool has_job = false;
    int result = -1;

    if (read_model(ckpt, how, &shape, &job, &has_job, err) == 0 && open_empty(&e.directory, dir, err) == 0)
        result = write_all(&e, &shape, has_job ? &job : NULL, err);
    directory_close(&e.directory);
    json_decref(e.weight_map);
    free(e.first);
    free(e.window);
    if (has_job)
        job_destroy(&job);
    return result;
}
