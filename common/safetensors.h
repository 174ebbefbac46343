/*
 * safetensors.h - the header of a .safetensors file: strict reading, and writing that any reader accepts.
 *
 *   u64 little-endian N | N bytes of JSON, padded with spaces | the data
 *
 * The JSON maps each tensor's name to {"dtype","shape","data_offsets":[begin,end]}, offsets counted from the start of
 * the data, and optionally "__metadata__" to an object of strings. https://github.com/huggingface/safetensors
 *
 * Reading refuses whatever the format leaves no room for: holes, overlaps, bytes after the last tensor, a size that is
 * not shape x dtype, duplicate or unknown keys, padding other than spaces, N above 100,000,000, a truncated file.
 */
#ifndef MUSTER_COMMON_SAFETENSORS_H
#define MUSTER_COMMON_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define SAFETENSORS_MAX_DIMS   8
#define SAFETENSORS_MAX_HEADER 100000000

struct safetensors_entry {
    const char *name;
    const char *dtype; /* as the file has it: "F32", "BF16", "U8", ... */
    int ndim;
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    uint64_t begin, end; /* bytes, from the start of the data */
};

struct safetensors {
    struct safetensors_entry *entries; /* in the order of their data */
    size_t count;
    uint64_t data_offset; /* where the data starts in the file: 8 + N */
    void *json;           /* what the strings above live in */
};

/*
 * Parse the first `bytes` bytes of a file that is file_bytes long; `bytes` must reach the end of the header.
 * Fails with CODE_DATA and what is wrong; the caller puts the file's name before it.
 */
int safetensors_parse(struct safetensors *st, const void *header, size_t bytes, uint64_t file_bytes, struct error *err);

/* The same from an open file, which is left where it stands. CODE_IO when reading fails. */
int safetensors_read(struct safetensors *st, int fd, struct error *err);

/* The entry of that name, or NULL. */
const struct safetensors_entry *safetensors_find(const struct safetensors *st, const char *name);

/* __metadata__'s value of a key, or NULL. */
const char *safetensors_metadata(const struct safetensors *st, const char *key);

/* Frees what parsing allocated; harmless on a struct that is all zeros or whose parsing failed. */
void safetensors_destroy(struct safetensors *st);

/* Bytes of one element of a dtype, 0 for one that the format does not have. */
size_t safetensors_dtype_size(const char *dtype);

/*
 * Lay the entries' data out one after the other, each at a multiple of `align` bytes (a power of two; 1 packs them),
 * and build the header. begin and end of the entries are filled in. Since the format allows no holes, alignment is made
 * of named U8 tensors "_pad.0", "_pad.1", ...; and the header is padded with spaces so that the data starts at a
 * multiple of `align` (of 8 at least). metadata: pairs of strings, key then value, ended by NULL; or NULL. *header is
 * malloc'ed, *bytes long. Nothing follows the last tensor: the file is *bytes + entries[count - 1].end long.
 */
int safetensors_layout(struct safetensors_entry *entries, size_t count, const char *const *metadata, size_t align,
                       void **header, size_t *bytes, struct error *err);

#endif
