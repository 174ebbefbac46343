/* block_impl.h - what block.c and block_backward.c share. */
#ifndef MUSTER_TRAINER_MODEL_BLOCK_IMPL_H
#define MUSTER_TRAINER_MODEL_BLOCK_IMPL_H

#include "trainer/model/block.h"

/* The forward pass's arguments: the backward pass takes the same. */
struct attention block_attention(const struct block *b, const struct block_activations *a,
                                 const struct micro_batch *mb);

#endif
