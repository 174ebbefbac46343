#include "plan/schedule.h"

#include <stdlib.h>

#include "common/model/model_tensors.h"

/* A schedule being built. Forwards and backwards are each numbered in their own fixed order, by `slot`. */
struct schedule_builder {
    struct schedule_entry *entries;
    size_t n;
    int stages, micro_batches, chunks;
};

/* Slots go through groups of `stages` micro-batches, each group through all chunks; backwards from the last chunk. */
static void add_entry(struct schedule_builder *b, enum schedule_kind kind, int slot)
{
    int group_slots = b->stages * b->chunks;
    int pass = slot % group_slots / b->stages;
    int micro_batch = slot / group_slots * b->stages + slot % b->stages;

    if (micro_batch >= b->micro_batches)
        return; /* the last group is not full */
    b->entries[b->n++] = (struct schedule_entry){
        .kind = kind,
        .micro_batch = micro_batch,
        .chunk = kind == SCHEDULE_FORWARD ? pass : b->chunks - 1 - pass,
    };
}

size_t schedule_build(struct schedule_entry *entries, int stage, int stages, int micro_batches, int chunks)
{
    struct schedule_builder b = {
        .entries = entries, .stages = stages, .micro_batches = micro_batches, .chunks = chunks};
    int groups = (micro_batches + stages - 1) / stages;
    int slots = groups * stages * chunks;
    int after = stages - stage - 1;
    int warmup = chunks == 1 ? after : 2 * after + (chunks - 1) * stages;

    if (warmup > slots)
        warmup = slots;
    for (int slot = 0; slot < warmup; slot++)
        add_entry(&b, SCHEDULE_FORWARD, slot);
    for (int slot = 0; slot < slots; slot++) {
        if (slot + warmup < slots)
            add_entry(&b, SCHEDULE_FORWARD, slot + warmup);
        add_entry(&b, SCHEDULE_BACKWARD, slot);
    }
    return b.n;
}

void schedule_slots(int stage, int stages, int chunks, int micro_batches, int *slots)
{
    int few = stages * SCHEDULE_GROUPS, count = micro_batches < few ? micro_batches : few;
    struct schedule_entry *entries = calloc((size_t)count * (size_t)chunks * 2 + 1, sizeof *entries);
    int *held = calloc((size_t)chunks, sizeof *held);
    size_t n = entries && held ? schedule_build(entries, stage, stages, count, chunks) : 0;

    for (int chunk = 0; chunk < chunks; chunk++)
        slots[chunk] = n > 0 ? 1 : count; /* the upper bound, if out of memory */
    for (size_t i = 0; i < n; i++) {
        int chunk = entries[i].chunk;

        held[chunk] += entries[i].kind == SCHEDULE_FORWARD ? 1 : -1;
        slots[chunk] = held[chunk] > slots[chunk] ? held[chunk] : slots[chunk];
    }
    free(entries);
    free(held);
}

/*
 * All layers cost the same, so giving each to the part with the least work so far is optimal: if a layer were better in
 * another part, that part would have had less work when the layer was assigned. Until all layers are assigned, first[i]
 * is the number of part i's layers.
 */
void partition_layers(const struct model_shape *m, int parts, int *first)
{
    uint64_t d = (uint64_t)m->hidden, attention = 4 * (uint64_t)model_query_width(m) * (uint64_t)m->seq_length;
    uint64_t layer = 2 * model_unit_products(m, UNIT_KIND_BLOCK) + attention, embedding = 8 * d;
    uint64_t head = 2 * ((uint64_t)m->vocab * d + model_unit_products(m, UNIT_KIND_HEAD));
    int begin = 0;

    for (int i = 0; i <= parts; i++)
        first[i] = 0;
    for (int l = 0; l < m->layers; l++) {
        uint64_t least = UINT64_MAX;
        int best = 0;

        for (int i = 0; i < parts; i++) {
            uint64_t work = (uint64_t)first[i] * layer + (i == 0 ? embedding : 0) + (i == parts - 1 ? head : 0);

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
