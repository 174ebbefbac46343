/*
 * block.h - one transformer block of GPT-2 (pre-norm), forward and backward, written once in terms of kernels.h and the
 * tp group. BERT's is the same without the causal mask and with padding.
 *
 *     y1  = layernorm(x; ln_1)               gather y1 (all rows)
 *     qkv = y1 Wqkv + b                      att = attention(qkv)
 *     mid = x + dropout(reduce(att Wo) + b)
 *     y2  = layernorm(mid; ln_2)             gather y2
 *     pre = y2 Wfc + b                       act = gelu(pre)
 *     out = mid + dropout(reduce(act Wproj) + b)
 *
 * Weights are [in, out], as in Hugging Face's GPT-2. n/tp of heads and of the 4d hidden units are this rank's.
 */
#ifndef MUSTER_TRAINER_MODEL_BLOCK_H
#define MUSTER_TRAINER_MODEL_BLOCK_H

#include "trainer/model/context.h"

/* What the backward pass needs of a block's forward pass in one micro-batch. Rl = local rows, a' = heads / tp. */
struct block_activations {
    void *x;                              /* [Rl, d], the block's input; owned by whoever made it */
    void *y1, *mid, *y2;                  /* [Rl, d] */
    float *mean1, *rstd1, *mean2, *rstd2; /* [Rl] */
    void *qkv;                            /* [R, 3d/tp] */
    void *att;                            /* [R, d/tp] */
    float *lse;                           /* [samples, a', s] */
    void *pre, *act;                      /* [R, 4d/tp] */
};

/* Buffers that one block needs at a time and any block may use after it. */
struct block_scratch {
    void *wide;   /* [R, 4d/tp]: gradient of pre, then of qkv */
    void *narrow; /* [R, d/tp]: gradient of att */
    void *part;   /* [R, d]: partial sums before reduce */
    void *local;  /* [Rl, d]: after it; and gradients behind a dropout */
    void *full_a; /* [R, d], tp > 1: gathered gradients */
    void *full_b; /* [R, d], tp > 1: gathered y1 or y2 */
};

struct block {
    const struct context *c;
    const struct unit *unit; /* where each tensor lies in param and grad */
    int layer;
    uint32_t site_attention, site_projection, site_mlp; /* of dropout */
};

struct block block_of(const struct context *c, const struct units *units, int layer);

/*
 * Cuts the activations of one block from two buffers: what must live from the forward to the backward pass, and what is
 * recomputed (context's recompute; `recomputed` is the block's own choice of it), which all blocks of a stage share.
 * max_samples: the largest micro-batch.
 */
void block_activations_carve(struct block_activations *a, const struct context *c, enum recompute recompute,
                             int max_samples, struct carver *kept, struct carver *shared);
void block_scratch_carve(struct block_scratch *s, const struct context *c, int max_samples, struct carver *carver);

/* out [Rl, d] is the next block's x. */
void block_forward(const struct block *b, const void *param, const struct block_activations *a,
                   const struct block_scratch *s, const struct micro_batch *mb, void *out);

/* Before block_backward: makes again what `recompute` did not keep. */
void block_recompute(const struct block *b, enum recompute recompute, const void *param,
                     const struct block_activations *a, const struct block_scratch *s, const struct micro_batch *mb);

/* dx: gradient of out on entry, of x on return, in place. grad: the unit's flat buffer, overwritten. */
void block_backward(const struct block *b, const void *param, float *grad, const struct block_activations *a,
                    const struct block_scratch *s, const struct micro_batch *mb, void *dx);

/* What block.c and block_backward.c share. */

/* The forward pass's arguments: the backward pass takes the same. */
struct attention block_attention(const struct block *b, const struct block_activations *a,
                                 const struct micro_batch *mb);

#endif
