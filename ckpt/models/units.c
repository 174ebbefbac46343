#include "ckpt/models/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mesh.h"

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

int units_head(const struct units *units)
{
    return units->nunits - 1;
}

/* How a tensor is laid out and split: split is the dimension that tp ranks share, or WHOLE. */
enum { WHOLE = -1 };

struct tensor_plan {
    const char *suffix;
    int ndim;
    int shape[3];
    int split;
};

struct builder {
    struct units *units;
    const struct model_shape *shape;
    const struct units_place *place;
};

/* The box of this rank: all of it, or an even part of the split dimension. */
static void set_box(const struct builder *b, const struct tensor_plan *plan, struct unit_tensor *t)
{
    t->count = 1;
    for (int i = 0; i < plan->ndim; i++) {
        t->shape[i] = (uint64_t)plan->shape[i];
        if (i == plan->split) {
            long first, count = even_split(plan->shape[i], b->place->tp, b->place->tp_rank, &first);

            t->start[i] = (uint64_t)first;
            t->shape[i] = (uint64_t)count;
        }
        t->count *= t->shape[i];
    }
}

/* Appends a tensor to the model's table, and where the unit is here to the unit; reserve: elements kept for it. */
static void add_tensor(const struct builder *b, struct unit *unit, const char *prefix, const struct tensor_plan *plan,
                       size_t reserve)
{
    struct units *units = b->units;
    struct ckpt_tensor *tensor = &units->tensors[units->ntensors];
    struct unit_tensor *t = &unit->tensors[unit->ntensors];

    snprintf(tensor->name, sizeof tensor->name, "%s%s", prefix, plan->suffix);
    tensor->ndim = plan->ndim;
    for (int i = 0; i < plan->ndim; i++)
        tensor->shape[i] = (uint64_t)plan->shape[i];
    units->ntensors++;
    if (!unit->here)
        return;
    *t = (struct unit_tensor){.index = (uint32_t)(units->ntensors - 1), .offset = unit->count};
    set_box(b, plan, t);
    unit->ntensors++;
    unit->count += round_up(reserve > t->count ? reserve : t->count, UNIT_ALIGN);
    if (plan->split == WHOLE)
        unit->replicated = unit->count;
}

static void add_tensors(const struct builder *b, struct unit *unit, const char *prefix, const struct tensor_plan *plans,
                        int n)
{
    for (int i = 0; i < n; i++)
        add_tensor(b, unit, prefix, &plans[i], 0);
    unit->count = round_up(unit->count, (size_t)b->place->dp * UNIT_ALIGN);
}

/* The padded rows lie right behind this rank's, so that wte is one matrix of vocab_padded rows. */
static void wte_unit(const struct builder *b)
{
    const struct model_shape *m = b->shape;
    struct unit *unit = &b->units->units[UNIT_WTE];
    const struct tensor_plan plan = {"wte.weight", 2, {m->vocab, m->hidden}, 0};

    snprintf(unit->name, sizeof unit->name, "token embedding");
    unit->here = b->place->first_stage || b->place->last_stage;
    unit->copy = unit->here && !b->place->first_stage;
    add_tensor(b, unit, "", &plan, (size_t)b->units->vocab_padded * (size_t)m->hidden);
    add_tensors(b, unit, "", NULL, 0);
}

static void position_unit(const struct builder *b)
{
    const struct model_shape *m = b->shape;
    struct unit *unit = &b->units->units[UNIT_POSITION];
    const struct tensor_plan plans[] = {
        [POSITION_WPE] = {"wpe.weight", 2, {m->seq_length, m->hidden}, WHOLE},
        [POSITION_WTT] = {"wtt.weight", 2, {2, m->hidden}, WHOLE},
    };

    snprintf(unit->name, sizeof unit->name, "positions");
    unit->here = b->place->first_stage;
    add_tensors(b, unit, "", plans, m->kind == MODEL_BERT ? 2 : 1);
}

static void block_unit(const struct builder *b, int layer)
{
    struct unit *unit = &b->units->units[UNIT_BLOCK0 + layer];
    int d = b->shape->hidden;
    char prefix[32];
    const struct tensor_plan plans[] = {
        [BLOCK_LN_1_WEIGHT] = {"ln_1.weight", 1, {d}, WHOLE},
        [BLOCK_LN_1_BIAS] = {"ln_1.bias", 1, {d}, WHOLE},
        [BLOCK_ATTN_PROJ_BIAS] = {"attn.c_proj.bias", 1, {d}, WHOLE},
        [BLOCK_LN_2_WEIGHT] = {"ln_2.weight", 1, {d}, WHOLE},
        [BLOCK_LN_2_BIAS] = {"ln_2.bias", 1, {d}, WHOLE},
        [BLOCK_PROJ_BIAS] = {"mlp.c_proj.bias", 1, {d}, WHOLE},
        [BLOCK_ATTN_WEIGHT] = {"attn.c_attn.weight", 3, {d, 3, d}, 2},
        [BLOCK_ATTN_BIAS] = {"attn.c_attn.bias", 2, {3, d}, 1},
        [BLOCK_ATTN_PROJ_WEIGHT] = {"attn.c_proj.weight", 2, {d, d}, 0},
        [BLOCK_FC_WEIGHT] = {"mlp.c_fc.weight", 2, {d, 4 * d}, 1},
        [BLOCK_FC_BIAS] = {"mlp.c_fc.bias", 1, {4 * d}, 0},
        [BLOCK_PROJ_WEIGHT] = {"mlp.c_proj.weight", 2, {4 * d, d}, 0},
    };

    snprintf(unit->name, sizeof unit->name, "block %d", layer);
    snprintf(prefix, sizeof prefix, "h.%d.", layer);
    unit->here = !b->place->layers || b->place->layers[layer];
    add_tensors(b, unit, prefix, plans, (int)(sizeof plans / sizeof *plans));
}

static void head_unit(const struct builder *b)
{
    const struct model_shape *m = b->shape;
    struct unit *unit = &b->units->units[units_head(b->units)];
    int d = m->hidden;
    const struct tensor_plan plans[] = {
        [HEAD_LN_F_WEIGHT] = {"ln_f.weight", 1, {d}, WHOLE},        [HEAD_LN_F_BIAS] = {"ln_f.bias", 1, {d}, WHOLE},
        [HEAD_MLM_WEIGHT] = {"mlm.dense.weight", 2, {d, d}, WHOLE}, [HEAD_MLM_BIAS] = {"mlm.dense.bias", 1, {d}, WHOLE},
        [HEAD_MLM_LN_WEIGHT] = {"mlm.ln.weight", 1, {d}, WHOLE},    [HEAD_MLM_LN_BIAS] = {"mlm.ln.bias", 1, {d}, WHOLE},
        [HEAD_POOLER_WEIGHT] = {"pooler.weight", 2, {d, d}, WHOLE}, [HEAD_POOLER_BIAS] = {"pooler.bias", 1, {d}, WHOLE},
        [HEAD_ORDER_WEIGHT] = {"order.weight", 2, {d, 2}, WHOLE},   [HEAD_ORDER_BIAS] = {"order.bias", 1, {2}, WHOLE},
    };
    const struct tensor_plan vocab_bias = {"mlm.bias", 1, {m->vocab}, 0};

    snprintf(unit->name, sizeof unit->name, "head");
    unit->here = b->place->last_stage;
    add_tensors(b, unit, "", plans, m->kind == MODEL_BERT ? HEAD_ORDER_BIAS + 1 : HEAD_LN_F_BIAS + 1);
    if (m->kind == MODEL_BERT) {
        add_tensor(b, unit, "", &vocab_bias, (size_t)b->units->vocab_padded);
        add_tensors(b, unit, "", NULL, 0);
    }
}

static void slice_vocabulary(const struct builder *b)
{
    struct units *units = b->units;
    int tp = b->place->tp;
    long first;

    units->vocab = (int)even_split(b->shape->vocab, tp, b->place->tp_rank, &first);
    units->vocab_first = (int)first;
    units->vocab_padded = (int)round_up((size_t)b->shape->vocab, (size_t)VOCAB_ALIGN * (size_t)tp) / tp;
}

struct units *units_create(const struct model_shape *shape, const struct units_place *place, struct error *err)
{
    struct units *units = calloc(1, sizeof *units);
    struct builder builder = {units, shape, place};

    if (!units)
        goto no_memory;
    units->nunits = shape->layers + 3;
    units->units = calloc((size_t)units->nunits, sizeof *units->units);
    units->tensors = calloc((size_t)units->nunits * UNIT_MAX_TENSORS, sizeof *units->tensors);
    if (!units->units || !units->tensors)
        goto no_memory;
    units->saves_replicated = place->tp_rank == 0;
    slice_vocabulary(&builder);
    wte_unit(&builder);
    position_unit(&builder);
    for (int layer = 0; layer < shape->layers; layer++)
        block_unit(&builder, layer);
    head_unit(&builder);
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

size_t units_largest_block(const struct units *units)
{
    size_t most = 0;

    for (int i = UNIT_BLOCK0; i < units_head(units); i++)
        if (units->units[i].count > most)
            most = units->units[i].count;
    return most;
}

size_t unit_tensor_overlap(const struct unit_tensor *tensor, size_t first, size_t count, size_t *begin)
{
    size_t low = first > tensor->offset ? first : tensor->offset;
    size_t high = first + count < tensor->offset + tensor->count ? first + count : tensor->offset + tensor->count;

    *begin = low - tensor->offset;
    return high > low ? high - low : 0;
}

size_t unit_shard(const struct unit *unit, int dp, int dp_rank, size_t *first)
{
    size_t count = unit->count / (size_t)dp;

    *first = count * (size_t)dp_rank;
    return count;
}

size_t units_pieces(const struct units *units, int unit, size_t first, size_t count, bool saving,
                    struct ckpt_piece *pieces, size_t *offsets)
{
    const struct unit *u = &units->units[unit];
    size_t npieces = 0;

    if (saving && u->copy)
        return 0;
    for (int i = 0; i < u->ntensors; i++) {
        const struct unit_tensor *t = &u->tensors[i];
        size_t begin, length = unit_tensor_overlap(t, first, count, &begin);
        struct ckpt_piece *piece = &pieces[npieces];

        if (!length || (saving && t->offset < u->replicated && !units->saves_replicated))
            continue;
        *piece = (struct ckpt_piece){.tensor = t->index, .first = begin, .count = length};
        memcpy(piece->start, t->start, sizeof piece->start);
        memcpy(piece->shape, t->shape, sizeof piece->shape);
        offsets[npieces++] = t->offset + begin;
    }
    return npieces;
}
