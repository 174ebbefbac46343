/*
 * vocabulary.h - the token embedding, and the projection to the vocabulary, tied to it, with its cross-entropy
 * (Megatron-LM, arXiv 1909.08053): each tp rank has the logits of its slice, and only three numbers a row are
 * exchanged. Logits are computed and used a chunk of rows at a time, so they take at most chunk * slice; the device
 * chooses the chunk (kernels.h, product_rows).
 *
 *     logits = y wte^T (+ bias)     loss[r] = logsumexp(logits[r]) - logits[r, target[r]], 0 where target < 0
 */
#ifndef MUSTER_TRAINER_MODEL_VOCABULARY_H
#define MUSTER_TRAINER_MODEL_VOCABULARY_H

#include "trainer/model/context.h"

struct vocabulary {
    const struct context *c;
    const struct units *units;
    void *logits;                     /* [min(R, chunk), padded slice] */
    void *full;                       /* [R, d], tp > 1: all rows of y, then of its gradient's partial sums */
    float *stats;                     /* [tp][3][chunk], tp > 1: what ranks exchange */
    float *max, *sum, *target, *loss; /* [R] */
    float *wide;                      /* [vocabulary], discrete: logits as fp32 */
    float *host;                      /* [greater of the two], discrete: what the host reads */
};

/* host: of host memory, used only for a discrete device. */
void vocabulary_place(struct vocabulary *v, const struct context *c, const struct units *units, int max_samples,
                      struct buffer_layout *layout, struct buffer_layout *host);

/* Sum over rows of the loss, in fp64: the same on all tp ranks. y: local rows. */
double vocabulary_loss(struct vocabulary *v, const void *wte, const void *bias, const void *y,
                       const struct micro_batch *mb);

/*
 * The same, and the backward pass of loss * scale: y is overwritten by its gradient (local rows); wte_grad (and
 * bias_grad, where not NULL) are overwritten.
 */
double vocabulary_loss_backward(struct vocabulary *v, const void *wte, const void *bias, float *wte_grad,
                                float *bias_grad, void *y, const struct micro_batch *mb, double scale);

/* Logits of one row of y as fp32: for sampling text, with one tp rank. */
void vocabulary_logits(struct vocabulary *v, const void *wte, const void *bias, const void *y, int row, float *out);

/*
 * The first two units: tokens, positions and (BERT) token types become the first block's input.
 *
 *     x = dropout(reduce(wte[tokens]) + wpe[position] + wtt[type])
 *
 * Each tp rank looks up the tokens of its slice of the vocabulary, for all rows; `reduce` sums over the ranks.
 */

/* x [local rows, d]. part: scratch of [rows, d]. */
void embedding_forward(const struct context *c, const struct units *units, const void *wte, const void *positions,
                       const struct micro_batch *mb, void *part, void *x);

/*
 * dx [local rows, d] is overwritten. The tokens' rows are added to wte_grad, which may already hold the head's share.
 * position_grad is overwritten. full: scratch of [rows, d], used with several tp ranks.
 */
void embedding_backward(const struct context *c, const struct units *units, const struct micro_batch *mb, void *dx,
                        void *full, float *wte_grad, float *position_grad);

#endif
