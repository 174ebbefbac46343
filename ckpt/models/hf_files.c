/* hf_files.c - reads Hugging Face's .safetensors files and JSON; see hf_internal.h. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/models/hf_internal.h"
#include "common/foreign/foreign_json.h"

const struct hf_dtype hf_dtypes[HF_DTYPES] = {
    [DTYPE_F32] = {"fp32", "F32", "float32"},
    [DTYPE_BF16] = {"bf16", "BF16", "bfloat16"},
    [DTYPE_F16] = {"fp16", "F16", "float16"},
};

#define MOST_JSON ((size_t)64 << 20)
#define CHUNK     32768 /* elements converted at a time */

json_t *hf_json(const struct directory *directory, const char *name, bool *there, struct error *err)
{
    char *text, path[sizeof directory->path + 256];
    json_t *json;
    size_t bytes;

    *there = file_exists(directory, name);
    if (!*there)
        return NULL;
    text = file_read(directory, name, MOST_JSON, &bytes, err);
    snprintf(path, sizeof path, "%s/%s", directory->path, name);
    json = text ? foreign_json_object(text, bytes, path, err) : NULL;
    free(text);
    return json;
}

static bool parse_dtype(const char *name, enum dtype *dtype)
{
    for (*dtype = 0; *dtype < HF_DTYPES; ++*dtype)
        if (strcmp(name, hf_dtypes[*dtype].stored) == 0)
            return true;
    return false;
}

/* Adds a tensor to the table, unless it is a buffer. */
static int add_tensor(struct hf_files *files, int file, const struct safetensors *st,
                      const struct safetensors_entry *entry, struct error *err)
{
    bool prefixed = strncmp(entry->name, HF_PREFIX, strlen(HF_PREFIX)) == 0;
    const char *name = entry->name + (prefixed ? strlen(HF_PREFIX) : 0);
    struct hf_place place = {
        .prefixed = prefixed, .file = file, .ndim = entry->ndim, .offset = st->data_offset + entry->begin};

    if (hf_is_buffer(name))
        return 0;
    if (strlen(name) >= sizeof place.name)
        return error_set(err, CODE_DATA, "tensor \"%.100s...\" is not one of any model here", entry->name);
    if (!parse_dtype(entry->dtype, &place.dtype))
        return error_set(err, CODE_DATA, "tensor \"%.100s\" is %s; must be F32, F16 or BF16", entry->name,
                         entry->dtype);
    snprintf(place.name, sizeof place.name, "%s", name);
    for (int d = 0; d < 2 && d < entry->ndim; d++)
        place.shape[d] = entry->shape[d];
    if (error_reserve(&files->places, &files->room, files->nplaces, 1, sizeof place, err) < 0)
        return -1;
    files->places[files->nplaces++] = place;
    return 0;
}

static int open_file(struct hf_files *files, int index, struct error *err)
{
    struct hf_file *file = &files->files[index];
    struct safetensors st = {0};
    uint64_t bytes;
    int result = 0;

    file->fd = file_open(&files->directory, file->name, &bytes, err);
    if (file->fd < 0)
        return -1;
    if (safetensors_read(&st, file->fd, err) < 0)
        result = -1;
    for (size_t i = 0; i < st.count && result == 0; i++)
        result = add_tensor(files, index, &st, &st.entries[i], err);
    safetensors_destroy(&st);
    return result < 0 ? error_prefix(err, "%s/%s", files->directory.path, file->name) : 0;
}

static int add_file(struct hf_files *files, const char *name, struct error *err)
{
    if (!name[0] || name[0] == '.' || strchr(name, '/') || strlen(name) >= sizeof files->files->name)
        return error_set(err, CODE_DATA, "%s: \"%.100s\" is not the plain name of a file beside it",
                         files->directory.path, name);
    for (int i = 0; i < files->count; i++)
        if (strcmp(files->files[i].name, name) == 0)
            return 0;
    if (error_reserve(&files->files, &files->file_room, (size_t)files->count, 1, sizeof *files->files, err) < 0)
        return -1;
    snprintf(files->files[files->count].name, sizeof files->files->name, "%s", name);
    return open_file(files, files->count++, err);
}

/* Many models are there as Python's pickles only, which run code when they are read. */
static int add_only_file(struct hf_files *files, struct error *err)
{
    static const char *const pickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};

    for (int i = 0; i < 2 && !file_exists(&files->directory, HF_MODEL); i++)
        if (file_exists(&files->directory, pickles[i]))
            return error_set(err, CODE_DATA,
                             "%s has no " HF_MODEL ", and pytorch_model.bin is not read: write it anew with Hugging "
                             "Face's save_pretrained(DIR, safe_serialization=True)",
                             files->directory.path);
    return add_file(files, HF_MODEL, err);
}

/* model.safetensors, which transformers prefers too; else the files that an index names. */
static int list_files(struct hf_files *files, struct error *err)
{
    bool there = false;
    json_t *index = NULL, *map, *file;
    const char *tensor;
    int result = 0;

    if (!file_exists(&files->directory, HF_MODEL))
        index = hf_json(&files->directory, HF_INDEX, &there, err);
    if (!there)
        return add_only_file(files, err);
    if (!index)
        return -1;
    map = json_object_get(index, "weight_map");
    if (json_object_size(map) == 0)
        result = error_set(err, CODE_DATA, "%s/" HF_INDEX ": weight_map must be an object with tensors",
                           files->directory.path);
    json_object_foreach(map, tensor, file)
    {
        if (result == 0)
            result = json_is_string(file) ? add_file(files, json_string_value(file), err)
                                          : error_set(err, CODE_DATA, "%s/" HF_INDEX ": \"%.100s\" must be a string",
                                                      files->directory.path, tensor);
    }
    json_decref(index);
    return result;
}

int hf_files_open(struct hf_files *files, const char *path, struct error *err)
{
    const char *slash = strrchr(path, '/');
    char dir[4096];
    struct stat info;

    *files = (struct hf_files){.directory = {.fd = -1}};
    if (stat(path, &info) < 0)
        return error_errno(err, CODE_DATA, "%s", path);
    if (S_ISDIR(info.st_mode))
        return directory_open(&files->directory, NULL, path, err);
    snprintf(files->only, sizeof files->only, "%s", slash ? slash + 1 : path);
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    return directory_open(&files->directory, NULL, slash == path ? "/" : dir, err);
}

static int compare_places(const void *left, const void *right)
{
    return strcmp(((const struct hf_place *)left)->name, ((const struct hf_place *)right)->name);
}

static int compare_name(const void *name, const void *place)
{
    return strcmp(name, ((const struct hf_place *)place)->name);
}

int hf_files_scan(struct hf_files *files, struct error *err)
{
    if ((files->only[0] ? add_file(files, files->only, err) : list_files(files, err)) < 0)
        return -1;
    if (files->nplaces > 0)
        qsort(files->places, files->nplaces, sizeof *files->places, compare_places);
    for (size_t i = 1; i < files->nplaces; i++)
        if (strcmp(files->places[i - 1].name, files->places[i].name) == 0)
            return error_set(err, CODE_DATA, "%s: tensor \"%s\" is in the model twice", files->directory.path,
                             files->places[i].name);
    return 0;
}

struct hf_place *hf_files_find(const struct hf_files *files, const char *name)
{
    return files->nplaces ? bsearch(name, files->places, files->nplaces, sizeof *files->places, compare_name) : NULL;
}

void hf_files_close(struct hf_files *files)
{
    for (int i = 0; i < files->count; i++)
        if (files->files[i].fd >= 0)
            close(files->files[i].fd);
    directory_close(&files->directory);
    free(files->files);
    free(files->places);
}

int hf_files_read(const struct hf_files *files, const struct hf_place *place, uint64_t first, uint64_t count, float *to,
                  struct error *err)
{
    const struct hf_file *file = &files->files[place->file];
    size_t size = dtype_size(place->dtype);
    uint16_t halves[CHUNK];

    if (place->dtype == DTYPE_F32)
        return file_read_at(file->fd, to, count * size, place->offset + first * size, files->directory.path, file->name,
                            err);
    while (count > 0) {
        uint64_t some = count < CHUNK ? count : CHUNK;

        if (file_read_at(file->fd, halves, some * size, place->offset + first * size, files->directory.path, file->name,
                         err) < 0)
            return -1;
        for (uint64_t i = 0; i < some; i++)
            to[i] = place->dtype == DTYPE_BF16 ? bf16_to_float(halves[i]) : f16_to_float(halves[i]);
        first += some;
        to += some;
        count -= some;
    }
    return 0;
}
