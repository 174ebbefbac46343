/*
 * vocabulary.h - both ends of the model: the embedding of tokens; and the output projection, which may share its weights
 * (tied), with the cross-entropy of its logits (Megatron-LM, arXiv 1909.08053).
 *
 * Each tp rank has the logits of its slice of the vocabulary. Three numbers a row are exchanged. Logits are computed and
 * used for at most logits_rows rows at a time (kernels.h), so their buffer has at most logits_rows * slice elements.
 *
 *     logits = y projection^T (+ bias)     loss[r] = logsumexp(logits[r]) - logits[r, target[r]], 0 where target < 0
 */
#ifndef MUSTER_TRAINER_MODEL_VOCABULARY_H
#define MUSTER_TRAINER_MODEL_VOCABULARY_H

#include "trainer/model/context.h"

struct vocabulary {
    const struct context *c;
    const struct units *units;
    struct cross_entropy ce; /* logits [min(R, logits_rows), padded slice] */
    void *full;              /* [R, d], tp > 1: all rows of y; then this rank's partial sums of its gradient */
    float *stats;            /* [tp][3][min(R, logits_rows)], tp > 1: what ranks exchange */
    float *wide;             /* [vocabulary], discrete: logits as fp32 */
    float *host;             /* [vocabulary], discrete: a copy of wide in host memory */
};

/* Places the arrays of results of *ce (max, sum, target and loss), of `bytes` each. */
void cross_entropy_place(struct cross_entropy *ce, size_t bytes, struct buffer_layout *layout);

/* bytes: head_pieces. host: layout of host memory, used only for a discrete device. */
void vocabulary_place(struct vocabulary *v, const struct context *c, const struct units *units, const size_t *bytes,
                      struct buffer_layout *layout, struct buffer_layout *host);

/* The outputs of the backward pass of loss * scale. Both are overwritten. */
struct vocabulary_gradients {
    double scale;
    float *projection, *bias; /* bias may be NULL */
};

/* The rows' losses, to mb->losses. y: local rows. With `gradients`, which may be NULL, the backward pass follows, and y
 * is overwritten by its gradient. */
void vocabulary_losses(struct vocabulary *v, const void *projection, const void *bias, void *y,
                       const struct micro_batch *mb, const struct vocabulary_gradients *gradients);

/* Logits of one row of y as fp32: for sampling text, with one tp rank. */
void vocabulary_logits(struct vocabulary *v, const void *projection, const void *bias, const void *y, int row,
                       float *out);

/*
 * The first two units: tokens, positions and (BERT) token types become the first block's input.
 *
 *     x = dropout(reduce(wte[tokens]) + wpe[position] + wtt[type])      wpe: of learned positions
 *
 * Each tp rank looks up the tokens of its slice of the vocabulary, for all rows; `reduce` sums over the ranks.
 */

/* positions: the second unit. x: [local rows, d]. scratch: [rows, d]. */
void embed_forward(const struct weights *positions, const struct units *units, const void *wte,
                   const struct micro_batch *mb, void *scratch, void *x);

/*
 * dx [local rows, d] is overwritten. The tokens' rows are added to wte_grad, which may already hold the head's share.
 * The positions' gradients are overwritten. scratch: [rows, d], used with several tp ranks.
 */
void embed_backward(const struct weights *positions, const struct units *units, const struct micro_batch *mb, void *dx,
                    void *scratch, float *wte_grad);

#endif
