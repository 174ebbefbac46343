/* hf_model.c - names, shapes and config.json: the differences between Hugging Face's GPT-2 and muster's; its files. */

#include "config.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/models/hf.h"
#include "common/half.h"

void hf_model_text(char *text, size_t size, const struct model_shape *shape)
{
    snprintf(text, size, "model = { layers = %d; hidden = %d; heads = %d; seq_length = %d; vocab = %d; };\n",
             shape->layers, shape->hidden, shape->heads, shape->seq_length, shape->vocab);
}

json_t *hf_config(const struct model_shape *shape, const struct job *job, enum dtype dtype)
{
    static const char *const types[] = {[DTYPE_F32] = "float32", [DTYPE_BF16] = "bfloat16", [DTYPE_F16] = "float16"};
    double hidden = job ? job->dropout.hidden : 0, attention = job ? job->dropout.attention : 0;
    json_t *config =
        json_pack("{s:[s], s:s, s:s, s:f, s:b, s:f, s:f, s:f, s:f, s:i, s:i, s:i, s:n, s:i, s:b, s:s, s:i}",
                  "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "activation_function", "gelu_new",
                  "layer_norm_epsilon", HF_EPSILON, "tie_word_embeddings", 1, "embd_pdrop", hidden, "resid_pdrop",
                  hidden, "attn_pdrop", attention, "initializer_range", job ? job->init_std : 0.02, "n_embd",
                  shape->hidden, "n_head", shape->heads, "n_layer", shape->layers, "n_inner", "n_positions",
                  shape->seq_length, "scale_attn_weights", 1, "torch_dtype", types[dtype], "vocab_size", shape->vocab);
    bool end_of_text = shape->vocab > 50256; /* of GPT-2's tokenizer; theirs is the default, which must exist */

    if (config) {
        json_object_set_new(config, "bos_token_id", end_of_text ? json_integer(50256) : json_null());
        json_object_set_new(config, "eos_token_id", end_of_text ? json_integer(50256) : json_null());
    }
    return config;
}

/* transformers tests a flag by Python's rule: null and 0 are false, any other number is true. */
static bool has_truth(json_t *value, bool truth)
{
    if (json_is_boolean(value) || json_is_null(value))
        return json_is_true(value) == truth;
    return json_is_number(value) && (json_number_value(value) != 0) == truth;
}

/* A flag that is absent has the value that it must have. */
static int check_flags(json_t *config, struct error *err)
{
    static const struct {
        const char *key;
        bool value;
        const char *why;
    } flags[] = {
        {"tie_word_embeddings", true, "a head of its own cannot be imported"},
        {"scale_attn_weights", true, "another attention cannot be imported"},
        {"scale_attn_by_inverse_layer_idx", false, "another attention cannot be imported"},
        {"add_cross_attention", false, "another attention cannot be imported"},
    };

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        json_t *value = json_object_get(config, flags[i].key);

        if (value && !has_truth(value, flags[i].value))
            return error_set(err, CODE_DATA, "%s must be %s: %s", flags[i].key, flags[i].value ? "true" : "false",
                             flags[i].why);
    }
    return 0;
}

int hf_check_type(json_t *config, struct error *err)
{
    json_t *type = json_object_get(config, "model_type"), *epsilon = json_object_get(config, "layer_norm_epsilon");
    json_t *activation = json_object_get(config, "activation_function");
    const char *type_name = json_is_string(type) ? json_string_value(type) : "";
    const char *name = json_is_string(activation) ? json_string_value(activation) : "";

    if (type && strcmp(type_name, "gpt2") != 0)
        return error_set(err, CODE_DATA, "model_type is \"%.40s\", must be \"gpt2\"", type_name);
    if (activation && strcmp(name, "gelu_new") != 0 && strcmp(name, "gelu_pytorch_tanh") != 0)
        return error_set(err, CODE_DATA, "activation_function is \"%.40s\", must be \"gelu_new\"", name);
    if (epsilon && fabs(json_number_value(epsilon) - HF_EPSILON) > 1e-9)
        return error_set(err, CODE_DATA, "layer_norm_epsilon is %g, must be %g", json_number_value(epsilon),
                         HF_EPSILON);
    return check_flags(config, err);
}

int hf_heads(struct model_shape *shape, const char *path, const char *source, int found, int given, struct error *err)
{
    shape->heads = found > 0 ? found : given;
    if (found > 0 && given > 0 && found != given)
        return error_set(err, CODE_USAGE, "%s: its %s has %d heads, --heads has %d; leave --heads out", path, source,
                         found, given);
    if (shape->heads < 1)
        return error_set(err, CODE_USAGE, "%s: missing --heads N, N dividing %d: its number of heads is in no %s", path,
                         shape->hidden, source);
    if (shape->hidden % shape->heads != 0)
        return error_set(err, found > 0 ? CODE_DATA : CODE_USAGE, "%s: %d heads do not divide its width of %d", path,
                         shape->heads, shape->hidden);
    return 0;
}

int hf_check_sizes(json_t *config, const struct model_shape *shape, int *heads, struct error *err)
{
    const struct {
        const char *key;
        int value;
    } sizes[] = {{"n_embd", shape->hidden},
                 {"n_layer", shape->layers},
                 {"n_positions", shape->seq_length},
                 {"vocab_size", shape->vocab},
                 {"n_inner", 4 * shape->hidden}};
    json_t *n_head = json_object_get(config, "n_head");

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        json_t *value = json_object_get(config, sizes[i].key);

        if (json_is_integer(value) && json_integer_value(value) != sizes[i].value)
            return error_set(err, CODE_DATA, "%s is %lld, but the tensors make it %d", sizes[i].key,
                             (long long)json_integer_value(value), sizes[i].value);
    }
    if (n_head && (!json_is_integer(n_head) || json_integer_value(n_head) < 1 ||
                   json_integer_value(n_head) > shape->hidden || shape->hidden % json_integer_value(n_head) != 0))
        return error_set(err, CODE_DATA, "n_head must divide n_embd = %d", shape->hidden);
    if (n_head)
        *heads = (int)json_integer_value(n_head);
    return 0;
}

int hf_shape(const struct ckpt_tensor *tensor, uint64_t shape[2])
{
    /* c_attn, [d, 3, d] and [3, d], has Q, K and V on an axis of their own. */
    bool apart = strstr(tensor->name, ".attn.c_attn.") != NULL;
    int ndim = tensor->ndim - apart;

    shape[0] = tensor->shape[0];
    shape[1] = ndim > 1 ? tensor->shape[1] : 1;
    if (apart)
        shape[ndim - 1] *= tensor->shape[ndim];
    return ndim;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && strcmp(text + length - tail, end) == 0;
}

bool hf_tensor(const char *name, int ndim, const uint64_t *shape, struct ckpt_tensor *tensor)
{
    if (strncmp(name, HF_PREFIX, strlen(HF_PREFIX)) == 0)
        name += strlen(HF_PREFIX);
    if (ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias"))
        return false;
    memset(tensor, 0, sizeof *tensor);
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->ndim = ndim < CKPT_MAX_DIMS ? ndim : CKPT_MAX_DIMS; /* what has more is not the model's, and found so */
    for (int d = 0; d < tensor->ndim; d++)
        tensor->shape[d] = shape[d];
    if (strstr(name, ".attn.c_attn.") && ndim >= 1 && ndim <= 2 && shape[ndim - 1] % 3 == 0) {
        tensor->shape[ndim] = shape[ndim - 1] / 3;
        tensor->shape[ndim - 1] = 3;
        tensor->ndim++;
    }
    return true;
}

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

    *there = file_exists(&files->directory, name);
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

static void convert_halves(enum dtype dtype, const uint16_t *from, uint64_t count, float *to)
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
        convert_halves(place->dtype, halves, some, to);
        first += some;
        to += some;
        count -= some;
    }
    return 0;
}
