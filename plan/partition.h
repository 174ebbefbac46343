/*
 * partition.h - assigns layers to the parts of a pipeline: contiguous runs, any number of layers over any number of
 * parts, so that the largest work of a part is as small as possible. Pure.
 *
 * There are stages * chunks parts. Besides its layers the first part has the embedding, and the last one the head:
 * the product with the vocabulary, which is worth several layers of a small model. Work is the FLOPs of a token's
 * forward pass (the backward pass is twice that for all of them):
 *
 *   layer       24 d^2 + 4 d s     matrices, and attention over s tokens
 *   embedding   8 d                lookups and sums: negligible, but it breaks ties against the first part
 *   head        2 V d              and 2 d^2 for BERT's dense layer
 *
 * Ties go to later parts, because with 1F1B earlier stages hold the activations of more micro-batches. So the first
 * part may have one layer less than the others, and the last, which has the head, several less. A part may have no
 * layers.
 */
#ifndef MUSTER_PLAN_PARTITION_H
#define MUSTER_PLAN_PARTITION_H

#include <stdint.h>

#include "common/job.h"

/* Part i has the layers first[i] to first[i + 1] - 1. `first` has room for parts + 1. */
void partition_layers(const struct model_shape *shape, int parts, int *first);

#endif
