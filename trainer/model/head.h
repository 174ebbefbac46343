/*
 * head.h - the last unit: the final norm, and the losses.
 *
 *   GPT   loss of each next token from y = layernorm(x; ln_f)
 *   BERT  h = layernorm(x; ln_f); masked tokens from y = layernorm(gelu(h Wmlm + b); mlm.ln), with a bias on the
 *         logits; and whether the two sentences were swapped, from the first token of each sample (head_order.h)
 */
#ifndef MUSTER_TRAINER_MODEL_HEAD_H
#define MUSTER_TRAINER_MODEL_HEAD_H

#include "trainer/model/context.h"
#include "trainer/model/head_order.h"
#include "trainer/model/vocabulary.h"

struct model_head {
    const struct context *c;
    const struct unit *unit;
    struct vocabulary vocabulary;
    struct head_order order;
    void *h;            /* [Rl, d], the final norm's output; GPT: y, then its gradient */
    float *mean, *rstd; /* [Rl] */
    /* BERT */
    void *pre, *act, *y, *dact; /* [Rl, d] */
    float *mlm_mean, *mlm_rstd; /* [Rl] */
};

/* Sums over this micro-batch of the tokens' losses, and of the sentence orders'. All tp ranks have the same `tokens`;
 * `order` is this rank's share. */
struct losses {
    double tokens, order;
};

/* Factors of the two sums in the differentiated loss: loss scale / number of predictions in the global batch. */
struct loss_scales {
    double tokens, order;
};

/* host: of host memory, used only for a discrete device. */
void head_place(struct model_head *h, const struct context *c, const struct units *units, int max_samples,
                struct buffer_layout *layout, struct buffer_layout *host);

/* x [Rl, d] is the last block's output; param and wte are the head's and the tied embedding's. */
struct losses head_loss(struct model_head *h, const void *param, const void *wte, const void *x,
                        const struct micro_batch *mb);

/* The same, and the backward pass: dx [Rl, d], the head's gradients and the tied wte's are overwritten. */
struct losses head_loss_backward(struct model_head *h, const void *param, const void *wte, float *grad, float *wte_grad,
                                 const void *x, const struct micro_batch *mb, const struct loss_scales *scales,
                                 void *dx);

/* GPT: logits of row `row` of x as fp32, to out [vocab]. */
void head_logits(struct model_head *h, const void *param, const void *wte, const void *x, const struct micro_batch *mb,
                 int row, float *out);

#endif
