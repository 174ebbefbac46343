#include "config.h"

#include "ckpt/hf_files.h"

#include "common/half.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_JSON ((size_t)64 << 20)
#define CHUNK     32768 /* elements converted at a time */

static bool is_plain(const char *name)
{
    return name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) < sizeof((struct hf_file *)NULL)->name;
}

json_t *hf_files_json(const struct hf_files *files, const char *name, bool *there, struct error *err)
{
    json_error_t where;
    json_t *json = NULL;
    size_t bytes;
    char *text;

    *there = faccessat(files->directory.fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    if (!*there)
        return NULL;
    text = file_read(&files->directory, name, MOST_JSON, &bytes, err);
    if (text) {
        json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
        if (!json)
            error_set(err, CODE_DATA, "%s/%s:%d: %s", files->directory.path, name, where.line, where.text);
        else if (!json_is_object(json))
            error_set(err, CODE_DATA, "%s/%s: must be an object", files->directory.path, name);
    }
    if (json && !json_is_object(json)) {
        json_decref(json);
        json = NULL;
    }
    free(text);
    return json;
}

static int add_file(struct hf_files *files, const char *name, struct error *err)
{
    struct hf_file *grown;

    if (!is_plain(name))
        return error_set(err, CODE_DATA, "%s: \"%.100s\" is no plain name of a file beside it", files->directory.path,
                         name);
    for (int i = 0; i < files->count; i++)
        if (strcmp(files->files[i].name, name) == 0)
            return 0;
    grown = realloc(files->files, ((size_t)files->count + 1) * sizeof *grown);
    if (!grown)
        return error_errno(err, CODE_IO, "%s: a list of files", files->directory.path);
    files->files = grown;
    grown[files->count].fd = -1;
    snprintf(grown[files->count++].name, sizeof grown->name, "%s", name);
    return 0;
}

/* Many models are there as Python's pickles only, which run code when they are read. */
static int add_only_file(struct hf_files *files, struct error *err)
{
    static const char *const pickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
    int directory = files->directory.fd;

    for (int i = 0; i < 2 && faccessat(directory, HF_MODEL, F_OK, AT_SYMLINK_NOFOLLOW) < 0; i++)
        if (faccessat(directory, pickles[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
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

    if (faccessat(files->directory.fd, HF_MODEL, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        index = hf_files_json(files, HF_INDEX, &there, err);
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

static int parse_dtype(const char *name, enum dtype *dtype)
{
    *dtype = strcmp(name, "F32") == 0 ? DTYPE_F32 : strcmp(name, "BF16") == 0 ? DTYPE_BF16 : DTYPE_F16;
    return *dtype == DTYPE_F16 && strcmp(name, "F16") != 0 ? -1 : 0;
}

static int add_tensor(struct hf_files *files, int file, const struct safetensors *st,
                      const struct safetensors_entry *entry, struct error *err)
{
    struct hf_place place = {.file = file, .offset = st->data_offset + entry->begin};
    struct ckpt_tensor tensor;

    if (!hf_tensor(entry->name, entry->ndim, entry->shape, &tensor))
        return 0;
    if (parse_dtype(entry->dtype, &place.dtype) < 0)
        return error_set(err, CODE_DATA, "tensor \"%.100s\" is %s; must be F32, F16 or BF16", entry->name,
                         entry->dtype);
    if (strcmp(tensor.name, HF_HEAD) == 0) {
        if (files->head.name[0])
            return error_set(err, CODE_DATA, "tensor \"" HF_HEAD "\" is in the model twice");
        files->head = tensor;
        files->head_place = place;
        return 0;
    }
    if (files->ntensors == files->room) {
        size_t room = files->room ? 2 * files->room : 256;
        struct ckpt_tensor *tensors = realloc(files->tensors, room * sizeof *tensors);
        struct hf_place *places = realloc(files->places, room * sizeof *places);

        files->tensors = tensors ? tensors : files->tensors;
        files->places = places ? places : files->places;
        if (!tensors || !places)
            return error_errno(err, CODE_IO, "a table of %zu tensors", room);
        files->room = room;
    }
    files->tensors[files->ntensors] = tensor;
    files->places[files->ntensors++] = place;
    return 0;
}

static int open_file(struct hf_files *files, int index, struct error *err)
{
    struct hf_file *file = &files->files[index];
    struct safetensors st = {0};
    struct stat info;
    uint64_t bytes;
    int result = 0;

    file->fd = file_open(&files->directory, file->name, false, &bytes, err);
    if (file->fd < 0 && fstatat(files->directory.fd, file->name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(info.st_mode))
        return error_set(err, CODE_DATA, "%s/%s is a symbolic link, which is not followed: copy the model with cp -rL",
                         files->directory.path, file->name);
    if (file->fd < 0)
        return -1;
    if (safetensors_read(&st, file->fd, err) < 0)
        result = -1;
    for (size_t i = 0; i < st.count && result == 0; i++)
        result = add_tensor(files, index, &st, &st.entries[i], err);
    safetensors_destroy(&st);
    return result < 0 ? error_prefix(err, "%s/%s", files->directory.path, file->name) : 0;
}

/* A file's directory, and its name in it. */
static int open_beside(struct hf_files *files, const char *path, struct error *err)
{
    char dir[4096];
    const char *slash = strrchr(path, '/');

    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (directory_open(&files->directory, NULL, slash == path ? "/" : dir, err) < 0)
        return -1;
    return add_file(files, slash ? slash + 1 : path, err);
}

int hf_files_open(struct hf_files *files, const char *path, struct error *err)
{
    struct stat info;
    int result;

    *files = (struct hf_files){.directory = {.fd = -1}};
    if (stat(path, &info) < 0)
        return error_errno(err, CODE_DATA, "%s", path);
    if (S_ISDIR(info.st_mode))
        result = directory_open(&files->directory, NULL, path, err);
    else
        result = open_beside(files, path, err);
    if (result < 0)
        hf_files_close(files);
    return result;
}

int hf_files_scan(struct hf_files *files, struct error *err)
{
    int result = files->count > 0 ? 0 : list_files(files, err);

    for (int i = 0; i < files->count && result == 0; i++)
        result = open_file(files, i, err);
    return result;
}

void hf_files_close(struct hf_files *files)
{
    for (int i = 0; i < files->count; i++)
        if (files->files[i].fd >= 0)
            close(files->files[i].fd);
    directory_close(&files->directory);
    free(files->files);
    free(files->tensors);
    free(files->places);
    *files = (struct hf_files){.directory = {.fd = -1}};
}

static void widen(enum dtype dtype, const uint16_t *from, uint64_t count, float *to)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = dtype == DTYPE_BF16 ? bf16_to_float(from[i]) : f16_to_float(from[i]);
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
        widen(place->dtype, halves, some, to);
        first += some;
        to += some;
        count -= some;
    }
    return 0;
}
