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

/* The activations of one block and micro-batch that the backward pass needs. Rl = local rows, a' = heads / tp. */
struct block_activations {
    void *x;                              /* [Rl, d], the block's input, borrowed */
    void *y1, *mid, *y2;                  /* [Rl, d] */
    float *mean1, *rstd1, *mean2, *rstd2; /* [Rl] */
    void *qkv;                            /* [R, 3d/tp] */
    void *att;                            /* [R, d/tp] */
    float *lse;                           /* [samples, a', s] */
    void *pre, *act;                      /* [R, 4d/tp] */
};

/* Buffers that one block uses at a time; all blocks share them. */
struct block_scratch {
    void *wide;   /* [R, 4d/tp]: gradient of pre, then of qkv */
    void *narrow; /* [R, d/tp]: gradient of att */
    void *part;   /* [R, d]: partial sums before reduce */
    void *local;  /* [Rl, d]: after reduce; and gradients before a dropout */
    void *full_a; /* [R, d], tp > 1: gathered gradients */
    void *full_b; /* [R, d], tp > 1: gathered y1 or y2 */
};

struct transformer_block {
    const struct context *c;
    const struct unit *unit; /* where each tensor lies in param and grad */
    int layer;
    uint32_t site_attention, site_projection, site_mlp; /* of dropout */
};

struct transformer_block block_of(const struct context *c, const struct units *units, int layer);

/*
 * Places the activations of one block in two buffers: `kept` for those that are kept from the forward to the backward
 * pass, and `shared` for those that are recomputed, which all blocks of a stage share. max_samples: of the largest
 * micro-batch.
 */
void block_activations_place(struct block_activations *a, const struct context *c, enum recompute recompute,
                             int max_samples, struct buffer_layout *kept, struct buffer_layout *shared);
void block_scratch_place(struct block_scratch *s, const struct context *c, int max_samples,
                         struct buffer_layout *layout);

/* out [Rl, d] is the next block's x. */
void block_forward(const struct transformer_block *b, const void *param, const struct block_activations *a,
                   const struct block_scratch *s, const struct micro_batch *mb, void *out);

/* Before block_backward: recomputes the activations that were not kept. */
void block_recompute(const struct transformer_block *b, enum recompute recompute, const void *param,
                     const struct block_activations *a, const struct block_scratch *s, const struct micro_batch *mb);

/* dx: gradient of out on entry, of x on return, in place. grad: the unit's flat buffer, overwritten. */
void block_backward(const struct transformer_block *b, const void *param, float *grad,
                    const struct block_activations *a, const struct block_scratch *s, const struct micro_batch *mb,
                    void *dx);

#endif
