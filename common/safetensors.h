/*
 * safetensors.h - the header of a .safetensors file: strict reading, and writing that any reader accepts.
 *
 *   u64 little-endian N | N bytes of JSON, padded with spaces | the data
 *
 * The JSON maps each tensor's name to {"dtype","shape","data_offsets":[begin,end]}, offsets counted from the start of
 * the data, and optionally "__metadata__" to an object of strings. https://github.com/huggingface/safetensors
 *
 * Reading refuses everything that the format does not allow: holes, overlaps, bytes after the last tensor, a size that
 * is not shape x dtype, duplicate or unknown keys, padding other than spaces, N above 100,000,000, a truncated file.
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
    const char *dtype; /* as in the file: "F32", "BF16", "U8", ... */
    int ndim;
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    uint64_t begin, end; /* bytes, from the start of the data */
};

struct safetensors {
    struct safetensors_entry *entries; /* in the order of their data */
    size_t count;
    uint64_t data_offset; /* where the data starts in the file: 8 + N */
    void *json;           /* owns the strings above */
};

/*
 * Parse the first `bytes` bytes of a file that is file_bytes long; `bytes` must reach the end of the header.
 * Fails with CODE_DATA; the caller prefixes the error with the file's name.
 */
int safetensors_parse(struct safetensors *st, const void *header, size_t bytes, uint64_t file_bytes, struct error *err);

/* The same from an open file, whose position is unchanged. CODE_IO when reading fails. */
int safetensors_read(struct safetensors *st, int fd, struct error *err);

/* The entry of that name, or NULL. */
const struct safetensors_entry *safetensors_find(const struct safetensors *st, const char *name);

/* Frees what parsing allocated. Does nothing for a struct that is all zeros or whose parsing failed. */
void safetensors_destroy(struct safetensors *st);

/* Bytes of one element of a dtype; 0 for an unknown one. */
size_t safetensors_dtype_size(const char *dtype);

/*
 * Lays out the entries' data one after the other, each at a multiple of `align` bytes (a power of two; 1 packs them),
 * fills in begin and end of each entry, and builds the header. Since the format allows no holes, U8 tensors "_pad.0",
 * "_pad.1", ... align the data, and spaces pad the header so that the data starts at a multiple of `start` (at least
 * 8). metadata: pairs of strings, key then value, ended by NULL; or NULL. *header is malloc'ed, *bytes long. Nothing
 * follows the last tensor: the file has *bytes + entries[count - 1].end bytes.
 */
int safetensors_layout(struct safetensors_entry *entries, size_t count, const char *const *metadata, size_t align,
                       size_t start, void **header, size_t *bytes, struct error *err);

#endif
