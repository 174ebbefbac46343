#include "plan/tensors.h"

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

int vocabulary_padded(const struct model_shape *m, int tp)
{
    return (int)(round_up((size_t)m->vocab, (size_t)VOCAB_ALIGN * (size_t)tp) / (size_t)tp);
}

/* The padding rows directly follow a rank's rows of the vocabulary, so that wte is one matrix. A bias of the vocabulary
 * begins where the rest of the unit is a multiple of dp * UNIT_ALIGN. */
size_t unit_add(struct unit_size *size, const struct model_shape *m, const struct model_tensor *tensor,
                const struct mesh *mesh)
{
    size_t elements = 1, offset;

    if (tensor->vocabulary)
        unit_finish(size, mesh);
    else if (!tensor->joined)
        size->count = round_up(size->count, UNIT_ALIGN);
    for (int i = 0; i < tensor->ndim; i++) {
        size_t all = (size_t)tensor->shape[i], tp = (size_t)mesh->tp;

        elements *= i != tensor->split   ? all
                    : tensor->vocabulary ? (size_t)vocabulary_padded(m, mesh->tp)
                                         : (all + tp - 1) / tp;
    }
    offset = size->count;
    size->count += elements;
    if (tensor->split == UNIT_WHOLE)
        size->replicated = round_up(size->count, UNIT_ALIGN);
    return offset;
}

void unit_finish(struct unit_size *size, const struct mesh *mesh)
{
    size->count = round_up(size->count, (size_t)mesh->dp * UNIT_ALIGN);
}

struct unit_size unit_size_of(const struct model_shape *m, enum unit_kind kind, const struct mesh *mesh)
{
    struct model_tensor tensors[UNIT_MAX_TENSORS];
    struct unit_size size = {0};
    int n = model_tensors(m, kind, tensors);

    for (int i = 0; i < n; i++)
        unit_add(&size, m, &tensors[i], mesh);
    unit_finish(&size, mesh);
    return size;
}

size_t unit_shard(size_t count, int dp, int dp_rank, size_t *first)
{
    size_t each = count / (size_t)dp;

    *first = each * (size_t)dp_rank;
    return each;
}
