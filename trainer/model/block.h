/*
 * block.h - one transformer block of GPT-2, forward and backward, written once in terms of kernels.h.
 *
 *     y1  = layernorm(x; ln_1)
 *     qkv = y1 Wqkv + b            att = attention(qkv)        proj = att Wo + b
 *     mid = x + proj               y2  = layernorm(mid; ln_2)
 *     pre = y2 Wfc + b             act = gelu(pre)
 *     out = mid + act Wproj + b
 *
 * Weights are [in, out], as in Hugging Face's GPT-2. R = rows = samples * seq_length.
 */
#ifndef MUSTER_TRAINER_MODEL_BLOCK_H
#define MUSTER_TRAINER_MODEL_BLOCK_H

#include "common/job.h"
#include "kernels/kernels.h"
#include "trainer/model/units.h"

/* What the backward pass needs of a block's forward pass in one micro-batch. Buffers for the largest micro-batch. */
struct block_activations {
    float *x;         /* [R, d], the block's input; owned by whoever made it: the block before, or the embedding */
    float *y1;        /* [R, d] */
    float *qkv;       /* [R, 3d] */
    float *att;       /* [R, d] */
    float *lse;       /* [samples, heads, s] */
    float *mid;       /* [R, d] */
    float *y2;        /* [R, d] */
    float *pre, *act; /* [R, 4d] */
    float *mean1, *rstd1, *mean2, *rstd2; /* [R] */
};

/* Buffers that one block needs at a time and any block may use after it. */
struct block_scratch {
    float *d_wide; /* [R, 4d]: gradient of pre, then of qkv */
    float *d_a;    /* [R, d] */
    float *d_b;    /* [R, d] */
};

struct block {
    struct device *dev;
    const struct kernels *k;
    const struct model_shape *shape;
    const struct unit *unit; /* where each tensor lies in param and grad */
};

/* Elements that `samples` samples need in block_activations (x not included) and in block_scratch. */
size_t block_activation_count(const struct model_shape *shape, int samples);
size_t block_scratch_count(const struct model_shape *shape, int samples);

/* Cut one buffer of that many elements into the fields above. */
void block_activations_place(struct block_activations *acts, const struct model_shape *shape, int samples,
                             float *buffer);
void block_scratch_place(struct block_scratch *scratch, const struct model_shape *shape, int samples, float *buffer);

/* out [R, d] is the next block's x. */
void block_forward(const struct block *block, const float *param, const struct block_activations *acts, int samples,
                   float *out);

/* dx: gradient of out on entry, of x on return, in place. grad: the unit's flat buffer, overwritten. */
void block_backward(const struct block *block, const float *param, float *grad, const struct block_activations *acts,
                    const struct block_scratch *scratch, int samples, float *dx);

#endif
