/*
 * Any bytes as a .safetensors file: refused with a line, or what is taken is a seamless row of tensors that ends where
 * the file does.
 */
#include "common/safetensors.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds)
{
    if (!holds)
        abort();
}

/* What must hold of a header that was accepted. */
static void look_at(const struct safetensors *st, uint64_t file_bytes)
{
    uint64_t at = 0;

    expect(st->data_offset >= 8 && st->data_offset <= file_bytes);
    for (size_t i = 0; i < st->count; i++) {
        const struct safetensors_entry *entry = &st->entries[i];
        uint64_t bytes = safetensors_dtype_size(entry->dtype);

        expect(bytes > 0 && entry->ndim >= 0 && entry->ndim <= SAFETENSORS_MAX_DIMS);
        for (int d = 0; d < entry->ndim; d++)
            bytes *= entry->shape[d];
        expect(entry->begin == at && entry->end == at + bytes);
        expect(safetensors_find(st, entry->name) == entry);
        at = entry->end;
    }
    expect(st->data_offset + at == file_bytes);
}

/* From memory, the file as long as the first eight bytes and the last two of the input make it. */
static void parse(const uint8_t *data, size_t size)
{
    uint64_t header = 0, file_bytes = size;
    struct safetensors st;
    struct error err = {0};

    if (size >= 10) {
        memcpy(&header, data, 8);
        if (header <= size - 10)
            file_bytes = 8 + header + data[size - 1] * 256u + data[size - 2];
    }
    if (safetensors_parse(&st, data, size, file_bytes, &err) == 0)
        look_at(&st, file_bytes);
    else
        expect(err.text[0] != '\0' && !strchr(err.text, '\n'));
    safetensors_destroy(&st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    struct safetensors st;
    struct error err = {0};

    parse(data, size);
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    expect(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    if (safetensors_read(&st, fd, &err) == 0)
        look_at(&st, size);
    else
        expect(err.text[0] != '\0');
    safetensors_destroy(&st);
    return 0;
}
