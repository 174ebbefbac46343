/*
 * head.h - the last unit: the final norm, and the losses.
 *
 *   GPT   loss of each next token from y = norm(x; ln_f)
 *   BERT  h = norm(x; ln_f); masked tokens from y = norm(gelu(h Wmlm + b); mlm.ln), with a bias on the
 *         logits; and the loss of sentence order prediction (were A and B swapped?):
 *
 *             c = h[first token]    p = tanh(c Wpooler + b)    logits = p Worder + b [2]    cross-entropy with order
 *
 *         One tp rank holds the row of a sample's first token. That rank alone computes the sample's order loss. The
 *         gradients are then summed over the tp group, and the losses over the world (sum_losses in step.c).
 */
#ifndef MUSTER_TRAINER_MODEL_HEAD_H
#define MUSTER_TRAINER_MODEL_HEAD_H

#include "trainer/model/vocabulary.h"

struct head_order {
    void *first, *pooled, *gradient; /* [samples, d] */
    int32_t *targets;                /* [samples], those of this rank's samples */
    struct cross_entropy ce;         /* logits [samples, 2] */
};

struct model_head {
    struct weights w; /* of the call under way */
    struct vocabulary vocabulary;
    void *h;            /* [Rl, d], the final norm's output; GPT: y, then its gradient */
    float *mean, *rstd; /* [Rl] */
    /* BERT */
    struct head_order order;
    void *pre, *act, *y, *dact; /* [Rl, d] */
    float *mlm_mean, *mlm_rstd; /* [Rl] */
};

/* The factor of each sum in the differentiated loss. tokens: loss scale / predictions of the global batch. order: loss
 * scale / samples of the global batch. */
struct loss_factors {
    double tokens, order;
};

/* The inputs and outputs of a backward pass. dx [Rl, d], the head's gradients and those of a tied wte are
 * overwritten. */
struct head_gradients {
    const struct loss_factors *scales;
    float *head, *wte;
    void *dx;
};

/* host: layout of host memory, used only for a discrete device. */
void head_place(struct model_head *h, const struct context *c, const struct units *units, struct buffer_layout *layout,
                struct buffer_layout *host);

/*
 * x [Rl, d] is the last block's output; param and wte are the head's and a tied embedding's. With `gradients`, which
 * may be NULL, the backward pass follows. The losses go to mb->losses.
 */
void head_losses(struct model_head *h, const void *param, const void *wte, const void *x, const struct micro_batch *mb,
                 const struct head_gradients *gradients);

/* GPT: logits of row `row` of x as fp32, to out [vocab]. */
void head_logits(struct model_head *h, const void *param, const void *wte, const void *x, const struct micro_batch *mb,
                 int row, float *out);

#endif
