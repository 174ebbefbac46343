/* units_initialize.c - each element is keyed by its place in the logical tensor. */
#include "trainer/model/units_initialize.h"

#include <string.h>

#include "common/philox.h"

enum { CHUNK = 65536 }; /* elements a thread takes at a time */

/*
 * Element `at` of a box's row-major flattening: its logical number in the whole tensor, and in *run how many from there
 * on follow one another in the whole too.
 */
static uint64_t logical_element(const struct ckpt_tensor *tensor, const struct unit_tensor *t, uint64_t at,
                                uint64_t *run)
{
    uint64_t element = 0, stride = 1, left = at;

    *run = t->shape[tensor->ndim - 1] - at % t->shape[tensor->ndim - 1];
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        element += (t->start[i] + left % t->shape[i]) * stride;
        left /= t->shape[i];
        stride *= tensor->shape[i];
    }
    return element;
}

static void normal(const struct ckpt_tensor *tensor, const struct unit_tensor *t, struct philox_stream stream,
                   size_t begin, size_t count, float *out)
{
#pragma omp parallel for schedule(static)
    for (size_t chunk = 0; chunk < count; chunk += CHUNK) {
        size_t end = chunk + CHUNK < count ? chunk + CHUNK : count;

        for (size_t i = chunk; i < end;) {
            uint64_t run, element = logical_element(tensor, t, begin + i, &run);
            size_t length = run < end - i ? (size_t)run : end - i;

            philox_normal(out + i, length, stream, element, 0.0, t->deviation);
            i += length;
        }
    }
}

void units_initialize(const struct units *units, int unit, uint64_t seed, size_t first, size_t count, float *out)
{
    const struct unit *u = &units->units[unit];

    memset(out, 0, count * sizeof *out);
    for (int i = 0; i < u->ntensors; i++) {
        const struct unit_tensor *t = &u->tensors[i];
        const struct ckpt_tensor *tensor = &units->tensors[t->index];
        struct philox_stream stream = {.seed = seed, .site = philox_site(tensor->name)};
        size_t begin, length = unit_tensor_overlap(t, first, count, &begin);
        float *at = out + (t->offset + begin - first);

        if (t->init == INIT_NORMAL)
            normal(tensor, t, stream, begin, length, at);
        else if (t->init == INIT_ONE)
            for (size_t j = 0; j < length; j++)
                at[j] = 1.0f;
    }
}
