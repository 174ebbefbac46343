/*
 * partition.h - which layers go to which part of a pipeline: contiguous, any number of layers over any number of parts,
 * so that the part with the most work has as little as can be. Pure.
 *
 * There are stages * chunks parts. Besides its layers the first part has the embedding, and the last one the head:
 * the product with the vocabulary, which is worth several layers of a small model. Work is the FLOPs of a token's
 * forward pass (the backward pass is twice that for all of them):
 *
 *   layer       24 d^2 + 4 d s     matrices, and attention over s tokens
 *   embedding   8 d                lookups and sums: next to nothing, but it makes the first part the last to get more
 *   head        2 V d              and 2 d^2 for BERT's dense layer
 *
 * Ties: layers that could go to several parts equally well go to later ones, because with 1F1B earlier stages hold more
 * micro-batches' activations. So the first part may have a layer less than the others, and the last, with the head,
 * several less. Parts may have no layers, the first and last among them.
 */
#ifndef MUSTER_PLAN_PARTITION_H
#define MUSTER_PLAN_PARTITION_H

#include <stdint.h>

#include "common/job.h"

/* Part i has the layers first[i] to first[i + 1] - 1. `first` has room for parts + 1. */
void partition_layers(const struct model_shape *shape, int parts, int *first);

#endif
