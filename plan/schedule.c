#include "plan/schedule.h"

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

int schedule_in_flight(const struct schedule_entry *entries, size_t n, int chunk)
{
    int held = 0, most = 0;

    for (size_t i = 0; i < n; i++) {
        if (entries[i].chunk != chunk)
            continue;
        held += entries[i].kind == SCHEDULE_FORWARD ? 1 : -1;
        most = held > most ? held : most;
    }
    return most;
}
