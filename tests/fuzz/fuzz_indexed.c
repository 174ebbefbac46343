/*
 * Any bytes as PREFIX.idx, with a PREFIX.bin of the length that its header asks for: refused with a line, or everything
 * that it says is there can be read.
 */
#include "trainer/data/indexed.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_TOKENS 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int open_file(const char *prefix, const char *suffix)
{
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%s%s", prefix, suffix);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        abort();
    return fd;
}

/* Bytes that the lengths add up to, as far as they are there. */
static uint64_t bin_bytes(const uint8_t *data, size_t size)
{
    uint64_t sequences, tokens = 0;

    if (size < INDEXED_HEADER_SIZE)
        return 0;
    memcpy(&sequences, data + 18, sizeof sequences);
    for (uint64_t i = 0; i < sequences && INDEXED_HEADER_SIZE + 4 * (i + 1) <= size; i++) {
        uint32_t length;

        memcpy(&length, data + INDEXED_HEADER_SIZE + 4 * i, sizeof length);
        tokens += length;
    }
    return tokens * (data[17] == INDEXED_I32 ? 4 : data[17] == INDEXED_U16 ? 2 : 1);
}

static void read_all(const struct indexed *indexed)
{
    struct indexed_facts facts = indexed_facts(indexed);
    int32_t *tokens = malloc((facts.tokens + 1) * sizeof *tokens);
    int32_t *lengths = malloc((facts.sequences + 1) * sizeof *lengths);
    uint64_t *boundaries = malloc((facts.documents + 1) * sizeof *boundaries), sum = 0;
    struct error err = {0};

    if (!tokens || !lengths || !boundaries)
        abort();
    if (indexed_lengths(indexed, 0, facts.sequences, lengths, &err) < 0 ||
        indexed_boundaries(indexed, 0, facts.documents, boundaries, &err) < 0)
        abort();
    for (uint64_t i = 0; i < facts.sequences; i++)
        sum += (uint64_t)lengths[i];
    for (uint64_t i = 0; i < facts.documents; i++)
        if (boundaries[i] > facts.sequences || (i > 0 && boundaries[i] < boundaries[i - 1]))
            abort();
    if (sum != facts.tokens)
        abort();
    if (indexed_read(indexed, 0, facts.tokens, 1 << 16, tokens, &err) < 0 && err.code != CODE_DATA)
        abort();
    free(tokens);
    free(lengths);
    free(boundaries);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char prefix[PATH_MAX];
    static int idx, bin;
    struct indexed *indexed;
    struct error err = {0};
    uint64_t bytes = bin_bytes(data, size);

    if (!prefix[0]) {
        const char *base = getenv("TMPDIR");

        snprintf(prefix, sizeof prefix, "%s/fuzz-indexed-%d", base ? base : "/tmp", (int)getpid());
        idx = open_file(prefix, ".idx");
        bin = open_file(prefix, ".bin");
    }
    if (ftruncate(idx, 0) < 0 || pwrite(idx, data, size, 0) != (ssize_t)size ||
        ftruncate(bin, (off_t)(bytes < 4 * MOST_TOKENS ? bytes : 0)) < 0)
        abort();
    indexed = indexed_open(prefix, &err);
    if (indexed)
        read_all(indexed);
    else if (err.text[0] == '\0' || strchr(err.text, '\n'))
        abort();
    indexed_close(indexed);
    return 0;
}
