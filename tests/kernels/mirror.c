#include "tests/kernels/mirror.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/far/far.h"

#define RANGE    ((size_t)8 << 20)  /* bytes of each memory space: most tests hold less at a time */
#define MOST     ((size_t)96 << 20) /* for those that begin with something larger */
#define BOUNDARY ((size_t)256)      /* between allocations, as CUDA keeps it */

/* Lies before what is given out. */
struct header {
    size_t bytes;
} __attribute__((aligned(64)));

struct mirror {
    struct far far; /* its operations, with other memory; first, because they look for it there */
    int held[2];    /* allocations, by enum memory */
    size_t size[2]; /* of the ranges */
};

static struct mirror *mirror_of(struct device *dev)
{
    return dev->state;
}

static enum far_range range_of(enum memory space)
{
    return space == MEMORY_HOST ? FAR_HOST : FAR_DEVICE;
}

static void bring(struct device *dev)
{
    struct far *far = device_far(dev);

    far->near->kernels.copy(far->near, far->range[FAR_BEHIND], far->range[FAR_DEVICE], far->used[FAR_DEVICE]);
}

static void fetch(struct device *dev)
{
    struct far *far = device_far(dev);

    far->near->kernels.copy(far->near, far->range[FAR_DEVICE], far->range[FAR_BEHIND], far->used[FAR_DEVICE]);
    device_wait(far->near);
}

static void free_ranges(struct mirror *mirror, enum memory space)
{
    struct far *far = &mirror->far;
    enum far_range range = range_of(space);

    device_free(far->near, MEMORY_HOST, far->range[range]);
    far->range[range] = NULL;
    if (space == MEMORY_DEVICE) {
        device_free(far->near, MEMORY_DEVICE, far->range[FAR_BEHIND]);
        far->range[FAR_BEHIND] = NULL;
    }
    mirror->size[space] = 0;
}

/* In place of what there is, which nothing lies in. */
static int make_ranges(struct mirror *mirror, enum memory space, size_t size, struct error *err)
{
    struct far *far = &mirror->far;
    enum far_range range = range_of(space);

    free_ranges(mirror, space);
    far->range[range] = device_alloc(far->near, MEMORY_HOST, size, err);
    if (!far->range[range])
        return -1;
    if (space == MEMORY_DEVICE)
        far->range[FAR_BEHIND] = device_alloc(far->near, MEMORY_DEVICE, size, err);
    if (space == MEMORY_DEVICE && !far->range[FAR_BEHIND])
        return -1;
    mirror->size[space] = size;
    return 0;
}

static void *mirror_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err)
{
    struct mirror *mirror = mirror_of(dev);
    struct far *far = &mirror->far;
    enum far_range range = range_of(space);
    size_t at = far->used[range], room;
    struct header *header;

    if (bytes > MOST) { /* what the device behind says of so much */
        void *large = device_alloc(far->near, space, bytes, err);

        if (large)
            error_set(err, CODE_INTERNAL, "a mirror has %zu bytes, and %zu are wanted", MOST, bytes);
        device_free(far->near, space, large);
        return NULL;
    }
    room = (sizeof *header + bytes + BOUNDARY - 1) / BOUNDARY * BOUNDARY;
    if (mirror->held[space] == 0 && room > mirror->size[space] && make_ranges(mirror, space, MOST, err) < 0)
        return NULL;
    if (room > mirror->size[space] - at) {
        error_set(err, CODE_INTERNAL, "a mirror has %zu bytes, of which %zu are used, and %zu are wanted",
                  mirror->size[space], at, bytes);
        return NULL;
    }
    header = (struct header *)(far->range[range] + at);
    header->bytes = bytes;
    far->used[range] += room;
    mirror->held[space]++;
    return header + 1;
}

/* Memory is used again once all is free, which tests do between their cases. */
static size_t mirror_free(struct device *dev, enum memory space, void *pointer)
{
    struct mirror *mirror = mirror_of(dev);

    if (--mirror->held[space] == 0)
        mirror->far.used[range_of(space)] = 0;
    return ((struct header *)pointer - 1)->bytes;
}

static size_t mirror_workspace(const struct device *dev)
{
    return ((const struct far *)dev->state)->workspace;
}

static void mirror_trim(struct device *dev)
{
    struct far *far = device_far(dev);

    far->near->backend->trim(far->near);
    far_wait(dev); /* which counts anew */
}

static bool mirror_widens(const struct device *dev, enum dtype dtype)
{
    return device_widens(((const struct far *)dev->state)->near, dtype);
}

static int mirror_open(struct device *dev, int threads, struct error *err)
{
    struct mirror *mirror = calloc(1, sizeof *mirror);

    (void)threads;
    dev->state = mirror;
    if (!mirror)
        return error_errno(err, CODE_IO, "mirror");
    mirror->far.first_ticket = 1;
    mirror->far.before = bring;
    mirror->far.after = fetch;
    dev->kernels = far_kernels;
    return 0;
}

static void mirror_close(struct device *dev)
{
    struct mirror *mirror = mirror_of(dev);

    if (mirror && mirror->far.near) {
        free_ranges(mirror, MEMORY_DEVICE);
        free_ranges(mirror, MEMORY_HOST);
        device_destroy(mirror->far.near);
    }
    if (mirror)
        free(mirror->far.entries);
    free(mirror);
}

/* By whether the operations behind it are a GPU's. */
#define MIRROR(is_gpu)                                                                                                 \
    {                                                                                                                  \
        .kind = "mirror", .open = mirror_open, .close = mirror_close, .wait = far_wait, .alloc = mirror_alloc,         \
        .free = mirror_free, .workspace = mirror_workspace, .trim = mirror_trim, .widens = mirror_widens,              \
        .gpu = is_gpu                                                                                                  \
    }
static const struct backend mirrors[] = {MIRROR(false), MIRROR(true)};

struct device *mirror_create(struct device *behind, struct error *err)
{
    struct device *dev = device_open(&mirrors[behind->backend->gpu], 0, 0, err);
    struct far *far;

    if (!dev) {
        device_destroy(behind);
        return NULL;
    }
    far = device_far(dev);
    far->near = behind;
    dev->threads = behind->threads;
    snprintf(dev->description, sizeof dev->description, "mirror of %.110s", device_describe(behind));
    if (make_ranges(mirror_of(dev), MEMORY_DEVICE, RANGE, err) == 0 &&
        make_ranges(mirror_of(dev), MEMORY_HOST, RANGE, err) == 0)
        return dev;
    device_destroy(dev);
    return NULL;
}
