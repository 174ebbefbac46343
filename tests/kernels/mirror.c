#include "tests/kernels/mirror.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/discrete/discrete.h"

#define RANGE    ((size_t)8 << 20)  /* bytes of each memory space: most tests hold less at a time */
#define MOST     ((size_t)96 << 20) /* for those that begin with something larger */
#define BOUNDARY ((size_t)256)      /* between allocations, as CUDA keeps it */

/* Lies before what is given out. */
struct header {
    size_t bytes;
} __attribute__((aligned(64)));

struct mirror {
    struct discrete discrete; /* its operations with other memory; first, because they cast dev->state */
    int held[2];              /* allocations, by enum memory */
    size_t size[2];           /* of the ranges */
};

static struct mirror *mirror_of(struct device *dev)
{
    return dev->state;
}

static enum discrete_range range_of(enum memory space)
{
    return space == MEMORY_HOST ? DISCRETE_HOST : DISCRETE_DEVICE;
}

static void bring(struct device *dev)
{
    struct discrete *d = device_discrete(dev);

    d->cpu->kernels.copy(d->cpu, d->range[DISCRETE_CONTENTS], d->range[DISCRETE_DEVICE], d->used[DISCRETE_DEVICE]);
}

static void fetch(struct device *dev)
{
    struct discrete *d = device_discrete(dev);

    d->cpu->kernels.copy(d->cpu, d->range[DISCRETE_DEVICE], d->range[DISCRETE_CONTENTS], d->used[DISCRETE_DEVICE]);
    device_wait(d->cpu);
}

static void free_ranges(struct mirror *mirror, enum memory space)
{
    struct discrete *d = &mirror->discrete;
    enum discrete_range range = range_of(space);

    device_free(d->cpu, MEMORY_HOST, d->range[range]);
    d->range[range] = NULL;
    if (space == MEMORY_DEVICE) {
        device_free(d->cpu, MEMORY_DEVICE, d->range[DISCRETE_CONTENTS]);
        d->range[DISCRETE_CONTENTS] = NULL;
    }
    mirror->size[space] = 0;
}

/* In place of what there is, which nothing lies in. */
static int make_ranges(struct mirror *mirror, enum memory space, size_t size, struct error *err)
{
    struct discrete *d = &mirror->discrete;
    enum discrete_range range = range_of(space);

    free_ranges(mirror, space);
    d->range[range] = device_alloc(d->cpu, MEMORY_HOST, size, err);
    if (!d->range[range])
        return -1;
    if (space == MEMORY_DEVICE)
        d->range[DISCRETE_CONTENTS] = device_alloc(d->cpu, MEMORY_DEVICE, size, err);
    if (space == MEMORY_DEVICE && !d->range[DISCRETE_CONTENTS])
        return -1;
    mirror->size[space] = size;
    return 0;
}

static void *mirror_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err)
{
    struct mirror *mirror = mirror_of(dev);
    struct discrete *d = &mirror->discrete;
    enum discrete_range range = range_of(space);
    size_t at = d->used[range], room;
    struct header *header;

    if (bytes > MOST) { /* what the device behind says of so much */
        void *large = device_alloc(d->cpu, space, bytes, err);

        if (large)
            error_set(err, CODE_INTERNAL, "a mirror has %zu bytes, and %zu are wanted", MOST, bytes);
        device_free(d->cpu, space, large);
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
    header = (struct header *)(d->range[range] + at);
    header->bytes = bytes;
    d->used[range] += room;
    mirror->held[space]++;
    return header + 1;
}

/* Memory is used again once all is free, which tests do between their cases. */
static size_t mirror_free(struct device *dev, enum memory space, void *pointer)
{
    struct mirror *mirror = mirror_of(dev);

    if (--mirror->held[space] == 0)
        mirror->discrete.used[range_of(space)] = 0;
    return ((struct header *)pointer - 1)->bytes;
}

static void mirror_trim(struct device *dev)
{
    struct discrete *d = device_discrete(dev);

    d->cpu->backend->trim(d->cpu);
    discrete_wait(dev); /* which counts anew */
}

static bool mirror_widens(const struct device *dev, enum dtype dtype)
{
    const struct device *behind = ((const struct discrete *)dev->state)->cpu;

    return device_traits(behind, dtype).widens;
}

static int mirror_load_cudnn(struct device *dev, struct error *err)
{
    return device_choose_attention(device_discrete(dev)->cpu, ATTENTION_CUDNN, err);
}

static int mirror_open(struct device *dev, int threads, struct error *err)
{
    struct mirror *mirror = calloc(1, sizeof *mirror);

    (void)threads;
    dev->state = mirror;
    if (!mirror)
        return error_errno(err, CODE_IO, "mirror");
    mirror->discrete.first_ticket = 1;
    mirror->discrete.before = bring;
    mirror->discrete.after = fetch;
    dev->kernels = discrete_kernels;
    return 0;
}

static void mirror_close(struct device *dev)
{
    struct mirror *mirror = mirror_of(dev);

    if (mirror && mirror->discrete.cpu) {
        free_ranges(mirror, MEMORY_DEVICE);
        free_ranges(mirror, MEMORY_HOST);
        device_destroy(mirror->discrete.cpu);
    }
    if (mirror)
        free(mirror->discrete.entries);
    free(mirror);
}

/* By whether the operations behind it are a GPU's. */
#define MIRROR(is_gpu)                                                                                                 \
    {                                                                                                                  \
        .kind = "mirror", .open = mirror_open, .close = mirror_close, .wait = discrete_wait, .alloc = mirror_alloc,    \
        .free = mirror_free, .trim = mirror_trim, .widens = mirror_widens, .gpu = is_gpu,                              \
        .load_cudnn = mirror_load_cudnn                                                                                \
    }
static const struct backend mirrors[] = {MIRROR(false), MIRROR(true)};

struct device *mirror_create(struct device *behind, struct error *err)
{
    struct device *dev = device_open(&mirrors[behind->backend->gpu], 0, 0, err);
    struct discrete *d;

    if (!dev) {
        device_destroy(behind);
        return NULL;
    }
    d = device_discrete(dev);
    d->cpu = behind;
    dev->threads = behind->threads;
    snprintf(dev->description, sizeof dev->description, "mirror of %.110s", device_describe(behind));
    if (make_ranges(mirror_of(dev), MEMORY_DEVICE, RANGE, err) == 0 &&
        make_ranges(mirror_of(dev), MEMORY_HOST, RANGE, err) == 0)
        return dev;
    device_destroy(dev);
    return NULL;
}
