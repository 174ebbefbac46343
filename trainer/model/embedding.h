/*
 * embedding.h - the first two units: tokens, positions and (BERT) token types become the first block's input.
 *
 *     x = dropout(reduce(wte[tokens]) + wpe[position] + wtt[type])
 *
 * Each tp rank looks up the tokens of its slice of the vocabulary, for all rows; the sum of the ranks' is the whole.
 */
#ifndef MUSTER_TRAINER_MODEL_EMBEDDING_H
#define MUSTER_TRAINER_MODEL_EMBEDDING_H

#include "trainer/model/context.h"

/* x [local rows, d]. part: scratch of [rows, d]. */
void embedding_forward(const struct context *c, const struct units *units, const void *wte, const void *positions,
                       const struct micro_batch *mb, void *part, void *x);

/*
 * dx [local rows, d] is used up. wte_grad gets the tokens' rows added: the head may have put its share there before.
 * position_grad is overwritten. full: scratch of [rows, d], used with several tp ranks.
 */
void embedding_backward(const struct context *c, const struct units *units, const struct micro_batch *mb, void *dx,
                        void *full, float *wte_grad, float *position_grad);

#endif
