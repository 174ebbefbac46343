/* safetensors_layout.c - building a header; see safetensors.h. */
#include "config.h"

#include "common/safetensors.h"

#include <endian.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int add_pad(json_t *root, int number, uint64_t begin, uint64_t end, struct error *err)
{
    char name[32];
    struct safetensors_entry pad = {name, "U8", 1, {end - begin}, begin, end};

    snprintf(name, sizeof name, "_pad.%d", number);
    return add_entry(root, &pad, err);
}

static int entry_bytes(const struct safetensors_entry *entry, uint64_t *bytes, struct error *err)
{
    *bytes = safetensors_dtype_size(entry->dtype);
    if (*bytes == 0 || entry->ndim < 0 || entry->ndim > SAFETENSORS_MAX_DIMS)
        return error_set(err, CODE_INTERNAL, "tensor \"%s\": no such dtype or number of dimensions", entry->name);
    for (int d = 0; d < entry->ndim; d++)
        if (__builtin_mul_overflow(*bytes, entry->shape[d], bytes))
            return error_set(err, CODE_INTERNAL, "tensor \"%s\": its shape overflows 64 bits", entry->name);
    return 0;
}

/* Place every entry, and a pad before each that would not be aligned. */
static int place(json_t *root, struct safetensors_entry *entries, size_t count, size_t align, struct error *err)
{
    uint64_t at = 0;
    int pads = 0;

    for (size_t i = 0; i < count; i++) {
        uint64_t gap = (align - at % align) % align, bytes;

        if (entry_bytes(&entries[i], &bytes, err) < 0)
            return -1;
        if (gap > 0 && add_pad(root, pads++, at, at + gap, err) < 0)
            return -1;
        entries[i].begin = at + gap;
        if (__builtin_add_overflow(entries[i].begin, bytes, &entries[i].end) || entries[i].end > INT64_MAX - align)
            return error_set(err, CODE_INTERNAL, "tensor \"%s\": the file would pass 63 bits", entries[i].name);
        if (add_entry(root, &entries[i], err) < 0)
            return -1;
        at = entries[i].end;
    }
    return 0;
}

/* The JSON with N before it and spaces after it. */
static int frame(const char *text, size_t align, void **header, size_t *bytes, struct error *err)
{
    size_t length = strlen(text), step = align < 8 ? 8 : align;
    size_t total = (8 + length + step - 1) / step * step;
    uint64_t prefix = htole64(total - 8);
    char *out;

    if (total - 8 > SAFETENSORS_MAX_HEADER)
        return error_set(err, CODE_INTERNAL, "a header of %zu bytes, the limit is %d", total - 8,
                         SAFETENSORS_MAX_HEADER);
    out = malloc(total);
    if (!out)
        return error_errno(err, CODE_IO, "a header of %zu bytes", total);
    memset(out, ' ', total);
    memcpy(out, &prefix, sizeof prefix);
    memcpy(out + 8, text, length);
    *header = out;
    *bytes = total;
    return 0;
}

int safetensors_layout(struct safetensors_entry *entries, size_t count, const char *const *metadata, size_t align,
                       void **header, size_t *bytes, struct error *err)
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
    if (place(root, entries, count, align, err) < 0)
        goto fail;
    text = json_dumps(root, JSON_COMPACT);
    if (!text) {
        error_set(err, CODE_INTERNAL, "cannot write the header's JSON");
        goto fail;
    }
    result = frame(text, align, header, bytes, err);
fail:
    free(text);
    json_decref(root);
    return result;
}
