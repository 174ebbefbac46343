#include "trainer/model/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/philox.h"

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

int units_padded_vocab(const struct model_shape *shape)
{
    return (int)round_up((size_t)shape->vocab, VOCAB_ALIGN);
}

/* Appends a tensor of shape [rows, cols], or [rows] when cols is 0, to a unit and to the model's table. */
static void add_tensor(struct units *units, struct unit *unit, const char *name, int rows, int cols, enum init init,
                       double deviation)
{
    struct ckpt_tensor *tensor = &units->tensors[units->ntensors];
    struct unit_tensor *place = &unit->tensors[unit->ntensors++];

    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->ndim = cols ? 2 : 1;
    tensor->shape[0] = (uint64_t)rows;
    tensor->shape[1] = (uint64_t)cols;
    place->index = (uint32_t)units->ntensors++;
    place->offset = unit->count;
    place->count = (size_t)rows * (size_t)(cols ? cols : 1);
    place->decay = cols != 0; /* matrices only: no decay on biases and norms */
    place->init = init;
    place->deviation = deviation;
    unit->count += round_up(place->count, UNIT_ALIGN);
}

static void finish_unit(struct units *units, struct unit *unit, int dp)
{
    unit->count = round_up(unit->count, (size_t)dp * UNIT_ALIGN);
    if (unit->count > units->max_count)
        units->max_count = unit->count;
}

static void embedding_unit(struct units *units, const struct model_shape *shape, double init_std, int dp)
{
    struct unit *unit = &units->units[UNIT_EMBEDDING];
    size_t padding = (size_t)(units_padded_vocab(shape) - shape->vocab) * (size_t)shape->hidden;

    snprintf(unit->name, sizeof unit->name, "embedding");
    add_tensor(units, unit, "wte.weight", shape->vocab, shape->hidden, INIT_NORMAL, init_std);
    /* The padded rows lie right behind the logical ones, so that wte is one matrix of padded_vocab rows. */
    unit->count = round_up(unit->tensors[EMBEDDING_WTE].count + padding, UNIT_ALIGN);
    add_tensor(units, unit, "wpe.weight", shape->seq_length, shape->hidden, INIT_NORMAL, init_std);
    finish_unit(units, unit, dp);
}

static void block_unit(struct units *units, const struct model_shape *shape, int layer, double init_std, int dp)
{
    struct unit *unit = &units->units[UNIT_BLOCK0 + layer];
    int d = shape->hidden;
    double output_std = init_std / sqrt(2.0 * shape->layers);
    char name[CKPT_NAME_SIZE];
    const struct {
        const char *suffix;
        int rows, cols;
        enum init init;
        double deviation;
    } rows[] = {
        [BLOCK_LN_1_WEIGHT] = {"ln_1.weight", d, 0, INIT_ONE, 0},
        [BLOCK_LN_1_BIAS] = {"ln_1.bias", d, 0, INIT_ZERO, 0},
        [BLOCK_ATTN_WEIGHT] = {"attn.c_attn.weight", d, 3 * d, INIT_NORMAL, init_std},
        [BLOCK_ATTN_BIAS] = {"attn.c_attn.bias", 3 * d, 0, INIT_ZERO, 0},
        [BLOCK_ATTN_PROJ_WEIGHT] = {"attn.c_proj.weight", d, d, INIT_NORMAL, output_std},
        [BLOCK_ATTN_PROJ_BIAS] = {"attn.c_proj.bias", d, 0, INIT_ZERO, 0},
        [BLOCK_LN_2_WEIGHT] = {"ln_2.weight", d, 0, INIT_ONE, 0},
        [BLOCK_LN_2_BIAS] = {"ln_2.bias", d, 0, INIT_ZERO, 0},
        [BLOCK_FC_WEIGHT] = {"mlp.c_fc.weight", d, 4 * d, INIT_NORMAL, init_std},
        [BLOCK_FC_BIAS] = {"mlp.c_fc.bias", 4 * d, 0, INIT_ZERO, 0},
        [BLOCK_PROJ_WEIGHT] = {"mlp.c_proj.weight", 4 * d, d, INIT_NORMAL, output_std},
        [BLOCK_PROJ_BIAS] = {"mlp.c_proj.bias", d, 0, INIT_ZERO, 0},
    };

    snprintf(unit->name, sizeof unit->name, "block %d", layer);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(name, sizeof name, "h.%d.%s", layer, rows[i].suffix);
        add_tensor(units, unit, name, rows[i].rows, rows[i].cols, rows[i].init, rows[i].deviation);
    }
    finish_unit(units, unit, dp);
}

static void head_unit(struct units *units, const struct model_shape *shape, int dp)
{
    struct unit *unit = &units->units[UNIT_BLOCK0 + shape->layers];

    snprintf(unit->name, sizeof unit->name, "head");
    add_tensor(units, unit, "ln_f.weight", shape->hidden, 0, INIT_ONE, 0);
    add_tensor(units, unit, "ln_f.bias", shape->hidden, 0, INIT_ZERO, 0);
    finish_unit(units, unit, dp);
}

struct units *units_create(const struct model_shape *shape, double init_std, int dp, struct error *err)
{
    struct units *units = calloc(1, sizeof *units);

    if (!units)
        goto no_memory;
    units->nunits = shape->layers + 2;
    units->units = calloc((size_t)units->nunits, sizeof *units->units);
    units->tensors = calloc((size_t)shape->layers * UNIT_MAX_TENSORS + 4, sizeof *units->tensors);
    if (!units->units || !units->tensors)
        goto no_memory;
    embedding_unit(units, shape, init_std, dp);
    for (int layer = 0; layer < shape->layers; layer++)
        block_unit(units, shape, layer, init_std, dp);
    head_unit(units, shape, dp);
    return units;
no_memory:
    error_set(err, CODE_IO, "out of memory for the list of %d layers", shape->layers);
    units_destroy(units);
    return NULL;
}

void units_destroy(struct units *units)
{
    if (!units)
        return;
    free(units->units);
    free(units->tensors);
    free(units);
}

/* The part of [first, first + count) that falls on a tensor: *begin counts from the tensor's own first element. */
static size_t overlap(const struct unit_tensor *tensor, size_t first, size_t count, size_t *begin)
{
    size_t low = first > tensor->offset ? first : tensor->offset;
    size_t high = first + count < tensor->offset + tensor->count ? first + count : tensor->offset + tensor->count;

    *begin = low - tensor->offset;
    return high > low ? high - low : 0;
}

size_t units_pieces(const struct units *units, int unit, size_t first, size_t count, struct ckpt_piece *pieces,
                    size_t *offsets)
{
    const struct unit *u = &units->units[unit];
    size_t npieces = 0;

    for (int i = 0; i < u->ntensors; i++) {
        const struct unit_tensor *place = &u->tensors[i];
        const struct ckpt_tensor *tensor = &units->tensors[place->index];
        size_t begin, length = overlap(place, first, count, &begin);
        struct ckpt_piece *piece = &pieces[npieces];

        if (!length)
            continue;
        *piece = (struct ckpt_piece){.tensor = place->index, .first = begin, .count = length};
        memcpy(piece->shape, tensor->shape, sizeof piece->shape);
        offsets[npieces++] = place->offset + begin;
    }
    return npieces;
}

/* Any element can be computed alone, so threads share the work freely. */
static void normal_in_chunks(float *out, size_t count, struct philox_stream stream, uint64_t first, double deviation)
{
    const size_t chunk = 65536;

#pragma omp parallel for schedule(static)
    for (size_t begin = 0; begin < count; begin += chunk)
        philox_normal(out + begin, count - begin < chunk ? count - begin : chunk, stream, first + begin, 0.0,
                      deviation);
}

void units_initialize(const struct units *units, int unit, uint64_t seed, size_t first, size_t count, float *out)
{
    const struct unit *u = &units->units[unit];

    memset(out, 0, count * sizeof *out);
    for (int i = 0; i < u->ntensors; i++) {
        const struct unit_tensor *place = &u->tensors[i];
        struct philox_stream stream = {.seed = seed, .site = philox_site(units->tensors[place->index].name)};
        size_t begin, length = overlap(place, first, count, &begin);
        float *at = out + (place->offset + begin - first);

        if (!length)
            continue;
        if (place->init == INIT_NORMAL)
            normal_in_chunks(at, length, stream, begin, place->deviation);
        else
            for (size_t j = 0; j < length; j++)
                at[j] = place->init == INIT_ONE ? 1.0f : 0.0f;
    }
}
