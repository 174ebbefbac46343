#include "trainer/infer/parameters.h"

#include <stdlib.h>

static const char *const kinds[] = {"param"};

size_t parameters_bytes(const struct units *units, enum dtype dtype)
{
    size_t bytes = 0;

    for (int i = 0; i < units->nunits; i++)
        bytes += units->units[i].count * dtype_size(dtype);
    return bytes;
}

static int allocate_units(struct parameters *p, const struct units *units, enum dtype dtype, struct error *err)
{
    p->nunits = units->nunits;
    p->unit = error_calloc((size_t)units->nunits, sizeof *p->unit, err);
    if (!p->unit)
        return -1;
    for (int i = 0; i < units->nunits; i++) {
        size_t bytes = units->units[i].count * dtype_size(dtype);

        p->unit[i] = device_alloc(p->dev, MEMORY_DEVICE, bytes, err);
        if (!p->unit[i])
            return error_prefix(err, "parameters of %s", units->units[i].name);
        device_kernels(p->dev)->zero(p->dev, p->unit[i], bytes); /* the padding between tensors is not read */
    }
    device_wait(p->dev);
    return 0;
}

/* Reads `count` units from `first` on, unit first + i to at[i], as fp32. */
static int read_units(const struct units *units, struct ckpt *ckpt, int first, int count, float *const *at,
                      struct error *err)
{
    struct ckpt_piece *pieces = error_calloc((size_t)count * UNIT_MAX_TENSORS, sizeof *pieces, err);
    void **targets = error_calloc((size_t)count * UNIT_MAX_TENSORS, sizeof *targets, err);
    size_t offsets[UNIT_MAX_TENSORS], n = 0;
    int result = -1;

    for (int i = 0; i < count && pieces && targets; i++) {
        size_t got = units_pieces(units, first + i, 0, units->units[first + i].count, false, pieces + n, offsets);

        for (size_t j = 0; j < got; j++)
            targets[n++] = at[i] + offsets[j];
    }
    if (pieces && targets)
        result = ckpt_read(ckpt, units->tensors, units->ntensors, kinds, 1, pieces, n, targets, err);
    free(pieces);
    free(targets);
    return result;
}

/* From the fp32 numbers in host memory. `wide` is device memory for them, the same as `host` if that is one. */
static void convert_unit(struct parameters *p, int unit, enum dtype dtype, const float *host, float *wide, size_t count)
{
    const struct kernels *k = device_kernels(p->dev);

    if (wide != host)
        k->copy(p->dev, wide, host, count * sizeof *wide);
    k->cast(p->dev, dtype, p->unit[unit], DTYPE_F32, wide, count);
    device_wait(p->dev);
}

static int read_converted(struct parameters *p, const struct units *units, enum dtype dtype, struct ckpt *ckpt,
                          struct error *err)
{
    bool is_host = device_is_host(p->dev);
    size_t most = 0;
    float *host, *wide;
    int result = -1;

    for (int i = 0; i < units->nunits; i++)
        most = units->units[i].count > most ? units->units[i].count : most;
    host = device_alloc(p->dev, MEMORY_HOST, most * sizeof *host, err);
    wide = !host ? NULL : is_host ? host : device_alloc(p->dev, MEMORY_DEVICE, most * sizeof *wide, err);
    if (wide)
        result = 0;
    for (int i = 0; i < units->nunits && result == 0; i++) {
        size_t count = units->units[i].count;

        for (size_t j = 0; j < count; j++)
            host[j] = 0;
        result = read_units(units, ckpt, i, 1, &host, err);
        if (result == 0)
            convert_unit(p, i, dtype, host, wide, count);
    }
    if (wide != host)
        device_free(p->dev, MEMORY_DEVICE, wide);
    device_free(p->dev, MEMORY_HOST, host);
    return result;
}

struct parameters *parameters_read(struct device *dev, const struct units *units, enum dtype dtype, struct ckpt *ckpt,
                                   struct error *err)
{
    struct parameters *p = error_calloc(1, sizeof *p, err);
    int result;

    if (!p)
        return NULL;
    p->dev = dev;
    result = allocate_units(p, units, dtype, err);
    if (result == 0 && dtype == DTYPE_F32 && device_is_host(dev))
        result = read_units(units, ckpt, 0, units->nunits, (float *const *)p->unit, err);
    else if (result == 0)
        result = read_converted(p, units, dtype, ckpt, err);
    if (result == 0 && device_status(dev, err) == 0)
        return p;
    parameters_destroy(p);
    return NULL;
}

void parameters_destroy(struct parameters *p)
{
    if (!p)
        return;
    for (int i = 0; p->unit && i < p->nunits; i++)
        device_free(p->dev, MEMORY_DEVICE, p->unit[i]);
    free(p->unit);
    free(p);
}
