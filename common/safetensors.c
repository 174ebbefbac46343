#include "common/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/foreign/foreign_json.h"
#include "common/io.h"

size_t safetensors_dtype_size(const char *dtype)
{
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {
        {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"U8", 1},  {"I8", 1},      {"BOOL", 1},    {"I32", 4}, {"I64", 8},
        {"F64", 8}, {"I16", 2},  {"U16", 2}, {"U32", 4}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U64", 8},
    };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(dtype, sizes[i].name) == 0)
            return sizes[i].size;
    return 0;
}

/* A JSON integer that is not negative. (One that does not fit 63 bits is a real: foreign_json.h.) */
static int get_u64(json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return -1;
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

static int parse_shape(struct safetensors_entry *entry, json_t *shape, struct error *err)
{
    size_t dims = json_array_size(shape);

    if (!json_is_array(shape) || dims > SAFETENSORS_MAX_DIMS)
        return error_set(err, CODE_DATA, "tensor \"%s\": shape must be an array of at most %d sizes", entry->name,
                         SAFETENSORS_MAX_DIMS);
    entry->ndim = (int)dims;
    for (size_t d = 0; d < dims; d++)
        if (get_u64(json_array_get(shape, d), &entry->shape[d]) < 0)
            return error_set(err, CODE_DATA, "tensor \"%s\": shape must hold integers of 0 or more", entry->name);
    return 0;
}

/* The bytes that follow from shape and dtype. code: of a failure. */
static int entry_bytes(const struct safetensors_entry *entry, uint64_t *bytes, enum exit_code code, struct error *err)
{
    *bytes = safetensors_dtype_size(entry->dtype);
    if (*bytes == 0)
        return error_set(err, code, "tensor \"%s\": unknown dtype \"%s\"", entry->name, entry->dtype);
    for (int d = 0; d < entry->ndim; d++)
        if (__builtin_mul_overflow(*bytes, entry->shape[d], bytes))
            return error_set(err, code, "tensor \"%s\": its shape overflows 64 bits", entry->name);
    return 0;
}

static int check_size(const struct safetensors_entry *entry, struct error *err)
{
    uint64_t bytes;

    if (entry_bytes(entry, &bytes, CODE_DATA, err) < 0)
        return -1;
    if (entry->begin > entry->end || entry->end - entry->begin != bytes)
        return error_set(err, CODE_DATA,
                         "tensor \"%s\": data_offsets [%" PRIu64 ", %" PRIu64 "], but its shape needs %" PRIu64
                         " bytes",
                         entry->name, entry->begin, entry->end, bytes);
    return 0;
}

static int parse_entry(struct safetensors_entry *entry, const char *name, json_t *value, struct error *err)
{
    json_t *offsets = json_object_get(value, "data_offsets");
    json_t *dtype = json_object_get(value, "dtype");
    json_t *shape = json_object_get(value, "shape");

    entry->name = name;
    if (!dtype || !shape || !offsets || json_object_size(value) != 3)
        return error_set(err, CODE_DATA, "tensor \"%s\": must have dtype, shape and data_offsets, and nothing else",
                         name);
    if (!json_is_string(dtype))
        return error_set(err, CODE_DATA, "tensor \"%s\": dtype must be a string", name);
    entry->dtype = json_string_value(dtype);
    if (json_array_size(offsets) != 2 || get_u64(json_array_get(offsets, 0), &entry->begin) < 0 ||
        get_u64(json_array_get(offsets, 1), &entry->end) < 0)
        return error_set(err, CODE_DATA, "tensor \"%s\": data_offsets must be two integers of 0 or more", name);
    if (parse_shape(entry, shape, err) < 0)
        return -1;
    return check_size(entry, err);
}

static int check_metadata(json_t *metadata, struct error *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(metadata))
        return error_set(err, CODE_DATA, "__metadata__ must be an object of strings");
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return error_set(
        err, CODE_DATA, "__metadata__: \"%s\" must be a string", key);
    return 0;
}

static int by_offset(const void *left, const void *right)
{
    const struct safetensors_entry *a = left, *b = right;

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end); /* an empty tensor comes before one that starts at the same offset */
}

/* Sort by offset, and check that the tensors follow each other without gaps up to the end of the file. */
static int check_order(struct safetensors *st, uint64_t data_bytes, struct error *err)
{
    uint64_t at = 0;

    if (st->count)
        qsort(st->entries, st->count, sizeof *st->entries, by_offset);
    for (size_t i = 0; i < st->count; i++) {
        const struct safetensors_entry *entry = &st->entries[i];

        if (entry->begin != at)
            return error_set(err, CODE_DATA, "tensor \"%s\": %s at data offset %" PRIu64, entry->name,
                             entry->begin > at ? "a hole before it" : "overlaps the tensor before it",
                             entry->begin > at ? at : entry->begin);
        at = entry->end;
    }
    if (at > data_bytes)
        return error_set(err, CODE_DATA, "truncated: the tensors need %" PRIu64 " bytes of data, the file has %" PRIu64,
                         at, data_bytes);
    if (at < data_bytes)
        return error_set(err, CODE_DATA, "%" PRIu64 " bytes after the last tensor, which ends at offset %" PRIu64,
                         data_bytes - at, st->data_offset + at);
    return 0;
}

static int parse_entries(struct safetensors *st, json_t *root, struct error *err)
{
    const char *name;
    json_t *value;

    if (!(st->entries = error_calloc(json_object_size(root) + 1, sizeof *st->entries, err)))
        return -1;
    json_object_foreach(root, name, value)
    {
        if (strcmp(name, "__metadata__") == 0) {
            if (check_metadata(value, err) < 0)
                return -1;
        } else if (parse_entry(&st->entries[st->count++], name, value, err) < 0) {
            return -1;
        }
    }
    return 0;
}

/* N, checked against the format's limit and the file's length. */
static int header_length(const unsigned char *header, uint64_t file_bytes, uint64_t *length, struct error *err)
{
    uint64_t raw;

    if (file_bytes < 8)
        return error_set(err, CODE_DATA, "truncated: %" PRIu64 " bytes, a safetensors file has at least 8", file_bytes);
    memcpy(&raw, header, sizeof raw);
    *length = le64toh(raw);
    if (*length > SAFETENSORS_MAX_HEADER)
        return error_set(err, CODE_DATA, "offset 0: a header of %" PRIu64 " bytes, the limit is %d", *length,
                         SAFETENSORS_MAX_HEADER);
    if (*length > file_bytes - 8)
        return error_set(err, CODE_DATA, "truncated: a header of %" PRIu64 " bytes in a file of %" PRIu64, *length,
                         file_bytes);
    return 0;
}

/* jansson accepts any white space around the object; the format allows only spaces after it. */
static int check_padding(const char *text, size_t length, struct error *err)
{
    if (length == 0 || text[0] != '{')
        return error_set(err, CODE_DATA, "offset 8: the header must start with '{'");
    while (text[length - 1] == ' ')
        length--;
    if (text[length - 1] != '}')
        return error_set(err, CODE_DATA, "offset %zu: the header must end with '}' and spaces", 8 + length - 1);
    return 0;
}

int safetensors_parse(struct safetensors *st, const void *header, size_t bytes, uint64_t file_bytes, struct error *err)
{
    const char *text = (const char *)header + 8;
    json_error_t where;
    uint64_t length;

    memset(st, 0, sizeof *st);
    if (bytes < 8 && file_bytes >= 8)
        return error_set(err, CODE_INTERNAL, "safetensors_parse was given %zu bytes", bytes);
    if (header_length(header, file_bytes, &length, err) < 0)
        return -1;
    if (bytes - 8 < length)
        return error_set(err, CODE_INTERNAL, "safetensors_parse was given %zu bytes of a longer header", bytes);
    if (check_padding(text, length, err) < 0)
        return -1;
    st->data_offset = 8 + length;
    errno = 0;
    st->json = foreign_json_load(text, length, JSON_REJECT_DUPLICATES, &where);
    if (!st->json) { /* jansson calls it a wrong token when malloc fails */
        error_set(err, errno == ENOMEM ? CODE_IO : CODE_DATA, "offset %d: %s", 8 + where.position,
                  errno == ENOMEM ? "no memory" : where.text);
        goto fail;
    }
    if (parse_entries(st, st->json, err) < 0 || check_order(st, file_bytes - st->data_offset, err) < 0)
        goto fail;
    return 0;
fail:
    safetensors_destroy(st);
    return -1;
}

static int read_start(int fd, void *buffer, size_t bytes, struct error *err)
{
    ssize_t got = io_read_at(fd, buffer, bytes, 0);

    if (got < 0)
        return error_errno(err, CODE_IO, "cannot read %zu bytes", bytes);
    return (size_t)got < bytes ? error_set(err, CODE_DATA, "truncated at offset %zd", got) : 0;
}

int safetensors_read(struct safetensors *st, int fd, struct error *err)
{
    unsigned char first[8] = {0}, *header = NULL;
    uint64_t length;
    struct stat info;
    int result = -1;

    memset(st, 0, sizeof *st);
    if (fstat(fd, &info) < 0)
        return error_errno(err, CODE_IO, "cannot stat");
    if (read_start(fd, first, (size_t)(info.st_size < 8 ? info.st_size : 8), err) < 0)
        return -1;
    if (header_length(first, (uint64_t)info.st_size, &length, err) < 0)
        return -1;
    header = error_calloc(1, 8 + length, err);
    if (header && read_start(fd, header, 8 + length, err) == 0)
        result = safetensors_parse(st, header, 8 + length, (uint64_t)info.st_size, err);
    free(header);
    return result;
}

const struct safetensors_entry *safetensors_find(const struct safetensors *st, const char *name)
{
    for (size_t i = 0; i < st->count; i++)
        if (strcmp(st->entries[i].name, name) == 0)
            return &st->entries[i];
    return NULL;
}

void safetensors_destroy(struct safetensors *st)
{
    json_decref(st->json);
    free(st->entries);
    memset(st, 0, sizeof *st);
}

/* ---- building a header ------------------------------------------------------------------------------------------- */

static int add_entry(json_t *root, const struct safetensors_entry *entry, struct error *err)
{
    json_t *shape = json_array();

    for (int d = 0; d < entry->ndim; d++)
        json_array_append_new(shape, json_integer((json_int_t)entry->shape[d]));
    if (json_object_get(root, entry->name)) {
        json_decref(shape);
        return error_set(err, CODE_INTERNAL, "two tensors are named \"%s\"", entry->name);
    }
    if (json_object_set_new(root, entry->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", entry->dtype, "shape", shape, "data_offsets",
                                      (json_int_t)entry->begin, (json_int_t)entry->end)) < 0)
        return error_set(err, CODE_INTERNAL, "tensor \"%s\" cannot be a JSON object: is its name UTF-8?", entry->name);
    return 0;
}

/* Place every entry, with a pad before each that would not be aligned. */
static int place_entries(json_t *root, struct safetensors_entry *entries, size_t count, size_t align, struct error *err)
{
    uint64_t at = 0;
    int pads = 0;

    for (size_t i = 0; i < count; i++) {
        uint64_t gap = (align - at % align) % align, bytes;
        char name[32];
        const struct safetensors_entry pad = {name, "U8", 1, {gap}, at, at + gap};

        if (entries[i].ndim < 0 || entries[i].ndim > SAFETENSORS_MAX_DIMS)
            return error_set(err, CODE_INTERNAL, "tensor \"%s\": this number of dimensions is not supported",
                             entries[i].name);
        if (entry_bytes(&entries[i], &bytes, CODE_INTERNAL, err) < 0)
            return -1;
        snprintf(name, sizeof name, "_pad.%d", pads);
        if (gap > 0 && add_entry(root, &pad, err) < 0)
            return -1;
        pads += gap > 0;
        entries[i].begin = at + gap;
        if (__builtin_add_overflow(entries[i].begin, bytes, &entries[i].end) || entries[i].end > INT64_MAX - align)
            return error_set(err, CODE_INTERNAL, "tensor \"%s\": the file's size would exceed 63 bits",
                             entries[i].name);
        if (add_entry(root, &entries[i], err) < 0)
            return -1;
        at = entries[i].end;
    }
    return 0;
}

/* The header: N, the JSON, and spaces. */
static int frame_header(const char *text, size_t start, void **header, size_t *bytes, struct error *err)
{
    size_t length = strlen(text), step = start < 8 ? 8 : start;
    size_t total = (8 + length + step - 1) / step * step;
    uint64_t prefix = htole64(total - 8);
    char *out;

    if (total - 8 > SAFETENSORS_MAX_HEADER)
        return error_set(err, CODE_INTERNAL, "a header of %zu bytes, the limit is %d", total - 8,
                         SAFETENSORS_MAX_HEADER);
    if (!(out = error_calloc(1, total, err)))
        return -1;
    memset(out, ' ', total);
    memcpy(out, &prefix, sizeof prefix);
    memcpy(out + 8, text, length);
    *header = out;
    *bytes = total;
    return 0;
}

int safetensors_layout(struct safetensors_entry *entries, size_t count, const char *const *metadata, size_t align,
                       size_t start, void **header, size_t *bytes, struct error *err)
{
    json_t *root = json_object(), *strings = NULL;
    char *text = NULL;
    int result = -1;

    if (metadata) {
        strings = json_object();
        for (; metadata[0]; metadata += 2)
            json_object_set_new(strings, metadata[0], json_string(metadata[1]));
        json_object_set_new(root, "__metadata__", strings);
    }
    if (place_entries(root, entries, count, align, err) < 0)
        goto fail;
    text = json_dumps(root, JSON_COMPACT);
    if (!text) {
        error_set(err, CODE_INTERNAL, "cannot write the header's JSON");
        goto fail;
    }
    result = frame_header(text, start, header, bytes, err);
fail:
    free(text);
    json_decref(root);
    return result;
}
