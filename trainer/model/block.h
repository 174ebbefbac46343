/*
 * block.h - one transformer block (pre-norm), forward and backward, written once in terms of kernels.h and the tp group.
 * Which block it is, the model's description says (common/model/model_shape.h): norms, biases, the activation, what
 * happens to queries and keys. Attention stays within documents if the micro-batch has document_start.
 *
 *     y1  = norm(x; ln_1)                    gather y1 (all rows)
 *     qkv = y1 Wqkv + b                      q and k: norm of heads, rotary positions
 *     att = attention(qkv)
 *     mid = x + dropout(reduce(att Wo) + b)
 *     y2  = norm(mid; ln_2)                  gather y2
 *     pre = y2 Wfc + b                       act = gelu(pre), or silu(gate) * up where pre = gate | up
 *     out = mid + dropout(reduce(act Wproj) + b)
 *
 * This rank has 1/tp of the heads and of the MLP's inner units. q, qkv, f and i below: its columns of queries, of all
 * projections, of pre and of act.
 */
#ifndef MUSTER_TRAINER_MODEL_BLOCK_H
#define MUSTER_TRAINER_MODEL_BLOCK_H

#include "trainer/model/context.h"

/* The activations of one block and micro-batch that the backward pass needs. Rl = local rows, a' = heads / tp. y1, y2
 * and act are NULL with light and selective recompute: then each lies in the scratch while it is used, y1 and y2 in
 * `narrow` and act in `wide`, and the backward pass makes it again. */
struct block_activations {
    void *x;                              /* [Rl, d], the block's input, borrowed */
    void *y1, *mid, *y2;                  /* [Rl, d] */
    float *mean1, *rstd1, *mean2, *rstd2; /* [Rl]; an RMSNorm has no mean: NULL */
    void *qkv;                            /* [R, qkv]: Q | K | V (struct attention) */
    void *heads;                          /* struct query_key's `before`, and its rstd; NULL without norms of heads */
    float *heads_rstd;
    void *att;       /* [R, q] */
    float *lse;      /* [samples, a', s] */
    void *pre, *act; /* [R, f], [R, i] */
};

/* Buffers that one block uses at a time; all blocks share them. */
struct block_scratch {
    void *wide;         /* [R, max(f, qkv)]: act; gradient of pre, then of qkv */
    void *narrow;       /* [R, q] or [Rl, d]: y1 or y2; gradient of att */
    void *part;         /* [R, d]: partial sums before reduce */
    void *local;        /* [Rl, d]: after reduce; and gradients before a dropout */
    void *full_a;       /* [R, d], tp > 1: forward: gathered y1 or y2; backward: gathered gradients */
    void *full_b;       /* [R, d], tp > 1: backward: gathered y1 or y2 */
    float *angles;      /* of rotary positions (model_angles), else NULL */
    float *angles_host; /* the same in host memory: of a discrete device */
};

/* A block's pass over one micro-batch. Everything is borrowed. */
struct block_pass {
    struct weights w;
    int layer;
    const struct block_activations *a;
    const struct block_scratch *s;
    const struct micro_batch *mb;
};

/*
 * Places the activations of one block in two buffers: `kept` for those that are kept from the forward to the backward
 * pass, and `shared` for those that are recomputed, which all blocks of a stage share.
 */
void block_activations_place(struct block_activations *a, const struct context *c, enum recompute recompute,
                             struct buffer_layout *kept, struct buffer_layout *shared);

/* host: layout of host memory, used only for a discrete device. Once the memory is there, block_scratch_fill writes what
 * lasts: the angles. */
void block_scratch_place(struct block_scratch *s, const struct context *c, struct buffer_layout *layout,
                         struct buffer_layout *host);
void block_scratch_fill(const struct block_scratch *s, const struct context *c);

/* out [Rl, d] is the next block's x. */
void block_forward(const struct block_pass *b, void *out);

/* Before block_backward: recomputes the activations that were not kept. */
void block_recompute(const struct block_pass *b, enum recompute recompute);

/* dx: gradient of out on entry, of x on return, in place. Overwrites the unit's gradients. */
void block_backward(const struct block_pass *b, void *dx);

#endif
