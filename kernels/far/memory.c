/*
 * memory.c - the ranges of far.h. Addresses are never given out twice, so that one that was freed faults for good, also
 * when it is a transfer that still has it.
 */
#include <string.h>
#include <sys/mman.h>

#include "kernels/far/far.h"

#define RANGE    ((size_t)1 << 38) /* of addresses; memory is taken where it is touched */
#define BOUNDARY ((size_t)4096)    /* between allocations, so that pages can be given back */
#define POISON   0xff              /* NaN, in every type of a float */

/* Lies before what is behind the caller's address, and before host memory. */
struct header {
    size_t bytes;
} __attribute__((aligned(64)));

int far_memory_open(struct far *far, struct error *err)
{
    for (int i = 0; i < FAR_RANGES; i++) {
        int access = i == FAR_DEVICE ? PROT_NONE : PROT_READ | PROT_WRITE;
        void *at = mmap(NULL, RANGE, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (at == MAP_FAILED)
            return error_errno(err, CODE_IO, "cpu-far device: %zu GiB of addresses", RANGE >> 30);
        far->range[i] = at;
    }
    return 0;
}

void far_memory_close(struct far *far)
{
    for (int i = 0; i < FAR_RANGES; i++)
        if (far->range[i])
            munmap(far->range[i], RANGE);
}

void *far_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err)
{
    struct far *far = device_far(dev);
    enum far_range range = space == MEMORY_HOST ? FAR_HOST : FAR_DEVICE;
    size_t at = far->used[range], room = (sizeof(struct header) + bytes + BOUNDARY - 1) / BOUNDARY * BOUNDARY;
    struct header *header = (struct header *)(far->range[range == FAR_HOST ? FAR_HOST : FAR_BEHIND] + at);

    if (bytes > RANGE || room > RANGE - at) {
        error_set(err, CODE_IO,
                  "%.1f GiB of %s memory wanted of the cpu-far device, which has %.1f GiB of addresses left",
                  (double)bytes / 0x1p30, space == MEMORY_HOST ? "host" : "device", (double)(RANGE - at) / 0x1p30);
        return NULL;
    }
    far->used[range] += room;
    header->bytes = bytes;
    memset(header + 1, POISON, bytes);
    return far->range[range] + at + sizeof *header;
}

size_t far_free(struct device *dev, enum memory space, void *pointer)
{
    struct far *far = device_far(dev);
    char *first = far->range[space == MEMORY_HOST ? FAR_HOST : FAR_DEVICE];
    char *behind = far->range[space == MEMORY_HOST ? FAR_HOST : FAR_BEHIND];
    size_t at = (size_t)((char *)pointer - first) - sizeof(struct header);
    size_t bytes = ((struct header *)(behind + at))->bytes;

    far_wait(dev);
    if (mmap(behind + at, (sizeof(struct header) + bytes + BOUNDARY - 1) / BOUNDARY * BOUNDARY, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        device_fail(dev, CODE_INTERNAL, "cpu-far: memory cannot be taken back");
    return bytes;
}

static bool is_within(const struct far *far, enum far_range range, const void *at)
{
    return (const char *)at >= far->range[range] && (const char *)at < far->range[range] + far->used[range];
}

void *far_any_operand(struct device *dev, const char *name, const void *at)
{
    const struct far *far = device_far(dev);

    if (!at)
        return NULL;
    if (is_within(far, FAR_DEVICE, at))
        return far->range[FAR_BEHIND] + ((const char *)at - far->range[FAR_DEVICE]);
    if (is_within(far, FAR_HOST, at))
        return (void *)at;
    device_fail(dev, CODE_INTERNAL, "cpu-far: %s was given memory that is not the device's", name);
    return NULL;
}

void *far_operand(struct device *dev, const char *name, const void *at)
{
    if (at && is_within(device_far(dev), FAR_HOST, at)) {
        device_fail(dev, CODE_INTERNAL, "cpu-far: %s was given host memory", name);
        return NULL;
    }
    return far_any_operand(dev, name, at);
}
