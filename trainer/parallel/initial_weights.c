#include "trainer/parallel/initial_weights.h"

#include <math.h>
#include <string.h>

#include "common/philox.h"

enum { CHUNK = 65536 }; /* elements a thread takes at a time */

/*
 * The index in the whole tensor of element `at` of this rank's part; *run: the number of elements from there on that
 * are consecutive in the whole tensor too.
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

static void draw_normal(const struct ckpt_tensor *tensor, const struct unit_tensor *t, struct philox_stream stream,
                        double deviation, size_t begin, size_t count, float *out)
{
#pragma omp parallel for schedule(static)
    for (size_t chunk = 0; chunk < count; chunk += CHUNK) {
        size_t end = chunk + CHUNK < count ? chunk + CHUNK : count;

        for (size_t i = chunk; i < end;) {
            uint64_t run, element = logical_element(tensor, t, begin + i, &run);
            size_t length = run < end - i ? (size_t)run : end - i;

            philox_normal(out + i, length, stream, element, 0.0, deviation);
            i += length;
        }
    }
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* ln_1, ln_2, ln_f and BERT's mlm.ln */
static bool is_norm(const char *name)
{
    const char *ln = strstr(name, "ln");

    return ln && (ln == name || ln[-1] == '.') && (ln[2] == '_' || ln[2] == '.');
}

bool initial_weights_decay(const struct ckpt_tensor *tensor)
{
    return ends_with(tensor->name, ".weight") && !is_norm(tensor->name);
}

void initial_weights(const struct initial_weights *initial, const struct units *units, int unit, size_t first,
                     size_t count, float *out)
{
    const struct unit *u = &units->units[unit];
    int layers = units_head(units) - UNIT_BLOCK0;

    memset(out, 0, count * sizeof *out);
    for (int i = 0; i < u->ntensors; i++) {
        const struct unit_tensor *t = &u->tensors[i];
        const struct ckpt_tensor *tensor = &units->tensors[t->index];
        struct philox_stream stream = {.seed = initial->seed, .site = philox_site(tensor->name)};
        bool output = ends_with(tensor->name, ".c_proj.weight");
        size_t begin, length = unit_tensor_overlap(t, first, count, &begin);
        float *at = out + (t->offset + begin - first);

        if (initial_weights_decay(tensor))
            draw_normal(tensor, t, stream, output ? initial->init_std / sqrt(2.0 * layers) : initial->init_std, begin,
                        length, at);
        else if (is_norm(tensor->name) && ends_with(tensor->name, ".weight"))
            for (size_t j = 0; j < length; j++)
                at[j] = 1.0f;
    }
}
