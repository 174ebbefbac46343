#include "kernels/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE      ((size_t)2 << 20)
#define PARALLEL_BYTES ((size_t)1 << 16) /* below this, waking the other threads costs more than they save */

/* Lies in the 64 bytes before what the caller gets, and keeps the alignment. */
struct header {
    size_t bytes;
} __attribute__((aligned(64)));

/* Linux grants what it does not have, and kills whoever touches it; so compare with what the machine has at all. */
static int check_size(enum memory space, size_t bytes, struct error *err)
{
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);

    if ((double)bytes <= machine)
        return 0;
    return error_set(err, CODE_IO, "%.1f GiB of %s memory wanted, but this machine has %.1f GiB",
                     (double)bytes / 0x1p30, space == MEMORY_HOST ? "host" : "device", machine / 0x1p30);
}

void *cpu_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err)
{
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : sizeof(struct header);
    size_t total = sizeof(struct header) + bytes;
    struct header *header;

    if (check_size(space, bytes, err) < 0)
        return NULL;
    header = aligned_alloc(align, (total + align - 1) / align * align);
    if (!header) {
        error_errno(err, CODE_IO, "%.1f MiB of %s memory", (double)bytes / 0x1p20,
                    space == MEMORY_HOST ? "host" : "device");
        return NULL;
    }
    if (align == HUGE_PAGE)
        madvise(header, total, MADV_HUGEPAGE); /* advice: its failure costs only speed */
    header->bytes = bytes;
    cpu_zero(dev, header + 1, bytes); /* the threads that will work on the pages touch them first */
    return header + 1;
}

size_t cpu_free(struct device *dev, enum memory space, void *pointer)
{
    struct header *header = (struct header *)pointer - 1;
    size_t bytes = header->bytes;

    (void)dev;
    (void)space;
    free(header);
    return bytes;
}

/* Part `index` of `bytes`, cut at cache lines. Returns its size. */
static size_t part_of(size_t bytes, int parts, int index, size_t *first)
{
    size_t lines = (bytes + 63) / 64;
    size_t end = lines * (size_t)(index + 1) / (size_t)parts * 64;

    *first = lines * (size_t)index / (size_t)parts * 64;
    return (end < bytes ? end : bytes) - *first;
}

void cpu_copy(struct device *dev, void *y, const void *x, size_t bytes)
{
    int parts = bytes < PARALLEL_BYTES ? 1 : dev->threads;

    if (dev->failed || bytes == 0) /* of nothing, the address may be NULL */
        return;
#pragma omp parallel for num_threads(parts) schedule(static)
    for (int i = 0; i < parts; i++) {
        size_t first, size = part_of(bytes, parts, i, &first);

        memcpy((char *)y + first, (const char *)x + first, size);
    }
}

void cpu_zero(struct device *dev, void *y, size_t bytes)
{
    int parts = bytes < PARALLEL_BYTES ? 1 : dev->threads;

    if (dev->failed || bytes == 0) /* of nothing, the address may be NULL */
        return;
#pragma omp parallel for num_threads(parts) schedule(static)
    for (int i = 0; i < parts; i++) {
        size_t first, size = part_of(bytes, parts, i, &first);

        memset((char *)y + first, 0, size);
    }
}
