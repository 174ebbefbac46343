#include "plan/partition.h"

static uint64_t layer_work(const struct model_shape *m)
{
    uint64_t d = (uint64_t)m->hidden, s = (uint64_t)m->seq_length;

    return 24 * d * d + 4 * d * s;
}

/* The part's work besides layers: embedding and head. */
static uint64_t fixed_work(const struct model_shape *m, int parts, int part)
{
    uint64_t d = (uint64_t)m->hidden, work = 0;

    if (part == 0)
        work += 8 * d;
    if (part == parts - 1)
        work += 2 * (uint64_t)m->vocab * d + (m->kind == MODEL_BERT ? 2 * d * d : 0);
    return work;
}

/*
 * All layers cost the same, so giving each to the part with the least work so far is optimal: if a layer were better in
 * another part, that part would have had less work when the layer was assigned. Until all layers are assigned, first[i]
 * is the number of part i's layers.
 */
void partition_layers(const struct model_shape *m, int parts, int *first)
{
    uint64_t layer = layer_work(m);
    int begin = 0;

    for (int i = 0; i <= parts; i++)
        first[i] = 0;
    for (int l = 0; l < m->layers; l++) {
        uint64_t least = UINT64_MAX;
        int best = 0;

        for (int i = 0; i < parts; i++) {
            uint64_t work = fixed_work(m, parts, i) + (uint64_t)first[i] * layer;

            if (work <= least) {
                least = work;
                best = i;
            }
        }
        first[best]++;
    }
    for (int i = 0; i <= parts; i++) {
        int count = first[i];

        first[i] = begin;
        begin += count;
    }
}
