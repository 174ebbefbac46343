/*
 * schedule.h - pipeline schedules as data: one stage's work in one step, as an array that the trainer executes.
 *
 * The model is cut into stages * chunks contiguous parts (partition_layers). Chunk c of stage s is part c * stages + s,
 * so that with more than one chunk a micro-batch goes round all stages `chunks` times.
 *
 * One chunk a stage is 1F1B (arXiv 2104.04473, section 2.2): stage s of p does p - s - 1 forwards, then alternates one
 * forward and one backward, then does the remaining backwards. It holds the activations of at most min(p - s, m) of the
 * step's m micro-batches. The idle time of a step, the bubble, is (p - 1) / m of its computing time.
 *
 * More chunks, v, are the interleaved schedule (the same paper, section 2.2.2): micro-batches go in groups of p, each
 * group through one chunk after the other; after 2 (p - s - 1) + (v - 1) p forwards a stage alternates. The bubble is
 * (p - 1) / (m v). The paper requires m to be a multiple of p; here it may be any number. The schedule of m
 * micro-batches is that of the next multiple of p without the surplus entries: each stage keeps its order, so no stage
 * waits for a removed entry, and no entry begins later.
 *
 * Guaranteed for all numbers:
 *   - every (micro-batch, chunk) has one forward and, later, one backward;
 *   - for each chunk, forwards come in the order of the micro-batches, and so do backwards;
 *   - on the last stage the backward of the last chunk comes right after its forward;
 *   - stages that execute their arrays in order, with sends that do not wait for their receives, do not deadlock;
 *   - messages from one stage to another in one direction (activations forward, their gradients backward) are received
 *     in the order in which they were sent: they need no tags, but each direction needs its own channel.
 */
#ifndef MUSTER_PLAN_SCHEDULE_H
#define MUSTER_PLAN_SCHEDULE_H

#include <stddef.h>

#include "common/job.h"

enum schedule_kind { SCHEDULE_FORWARD, SCHEDULE_BACKWARD };

struct schedule_entry {
    enum schedule_kind kind;
    int micro_batch; /* 0-based in this step */
    int chunk;       /* of this stage; 0 unless interleaved */
};

/* Writes 2 * micro_batches * chunks entries, the work of stage `stage` of `stages`; returns their number. */
size_t schedule_build(struct schedule_entry *entries, int stage, int stages, int micro_batches, int chunks);

/*
 * slots[chunks] (model_chunk.slots): the most micro-batches that a chunk of the stage holds at once, from forward to
 * backward. A schedule repeats itself, so this looks at no more than SCHEDULE_GROUPS groups of micro-batches.
 */
enum { SCHEDULE_GROUPS = 4 };
void schedule_slots(int stage, int stages, int chunks, int micro_batches, int *slots);

/*
 * Assigns layers to the stages * chunks parts: contiguous runs, any number of layers over any number of parts, so that
 * the largest work of a part is as small as possible. Besides its layers the first part has the embedding, and the last
 * one the head: the product with the vocabulary, which is worth several layers of a small model. Work is the FLOPs of a
 * token's forward pass (the backward pass is twice that for all of them):
 *
 *   layer       2 P + 4 q s        P elements of its products, q columns of queries (GPT: 24 d^2 + 4 d s)
 *   embedding   8 d                lookups and sums: negligible, but it breaks ties against the first part
 *   head        2 V d              and 2 d^2 for BERT's dense layer
 *
 * Ties go to later parts, because with 1F1B earlier stages hold the activations of more micro-batches. So the first
 * part may have one layer less than the others, and the last, which has the head, several less. A part may have no
 * layers.
 *
 * Part i has the layers first[i] to first[i + 1] - 1. `first` has room for parts + 1.
 */
void partition_layers(const struct model_shape *shape, int parts, int *first);

#endif
