/*
 * attention.h - what forward and backward attention share: how the square of queries and keys is cut into tiles.
 *
 * Scores are computed transposed, keys x queries, so that the lanes of a vector are queries. Then the maximum and the
 * sum over keys that softmax wants run from vector to vector and never across lanes, and of the operands only the
 * queries' have to be transposed: once a tile of queries, not once a pair of tiles.
 *
 * Scores are kept in units of log2 (the queries are scaled by log2(e) / sqrt(head_size)): p = 2^(s - m).
 */
#ifndef MUSTER_KERNELS_CPU_VECTOR_ATTENTION_H
#define MUSTER_KERNELS_CPU_VECTOR_ATTENTION_H

#include "kernels/cpu/vector/dropout.h"
#include "kernels/cpu/vector/tile_product.h"
#include "kernels/cpu/cpu_workspace.h"

/* QUERIES is also the row stride of everything whose columns are queries. */
#define DIAGONAL_KEYS 16 /* of a tile that causality cuts: what lies left of the diagonal is then mostly skipped */

/* Rows of fp32: [count][size], `stride` floats apart. */
struct rows {
    const float *at;
    ptrdiff_t stride;
};

/* One head of one sample. */
struct head_slice {
    int size;   /* elements in a row */
    int padded; /* size, rounded up to whole vectors */
    int seq;
    int keys; /* that are not padding */
    bool causal;
    enum dtype dtype;
    ptrdiff_t stride; /* of q, k and v, in elements */
    const void *q, *k, *v;
    float scale;                   /* 1 / sqrt(size) */
    const struct dropout *dropout; /* NULL: none */
    uint64_t element;              /* of dropout: the probability of query 0 and key 0 */
};

/* Head `pair` % heads of sample `pair` / heads. */
struct head_slice ISA(attention_head)(const struct attention *op, int pair);

/* Rows copied close together and widened; columns from `size` to `padded` are 0. */
void ISA(attention_pack)(const struct head_slice *head, float *to, const void *from, ptrdiff_t stride, int rows);

/* Where rows are fp32 already they are used where they lie; else they are packed into `space`. */
struct rows ISA(attention_rows)(const struct head_slice *head, const void *from, ptrdiff_t stride, int first, int rows,
                                float *space);

/* Rows [rows][padded], times scale, rounded and put in their places. */
void ISA(attention_unpack)(const struct head_slice *head, void *to, ptrdiff_t stride, const float *from, int rows,
                           float scale);

/* A tile of keys against a tile of queries. */
struct key_tile {
    int first, count;
    int lane;      /* queries before this one see none of these keys */
    bool diagonal; /* queries [lane, lane + DIAGONAL_KEYS) see some of them */
};

/*
 * The tile that begins at key `first`, for the tile of queries [query, query + queries). count is 0 when there is none.
 */
struct key_tile ISA(attention_key_tile)(const struct head_slice *head, int query, int queries, int first);

/* s[keys, queries] = scores, from the transposed, scaled queries; masked ones are -FLT_MAX. k: the tile's keys. */
void ISA(attention_scores)(const struct head_slice *head, const float *q_transposed, int vectors, struct key_tile tile,
                           struct rows k, float *s);

/*
 * Dropout's mask for the probabilities of a tile: bit i of [j] says that those of query i for key tile.first + j stay.
 * NULL where there is no dropout. The mask is made KEYS keys at a time, into `mask`, which must be the same one for all
 * tiles of a tile of queries.
 */
const uint64_t *ISA(attention_mask)(const struct head_slice *head, uint64_t mask[KEYS], int query, int queries,
                                    struct key_tile tile);

/* to[size][QUERIES] = scale * rows of `from`, transposed; the queries from `rows` on are 0. */
void ISA(attention_transpose)(float *to, struct rows from, int rows, int size, float scale);

/* rows of `to` = from[size][QUERIES], transposed back. */
void ISA(attention_untranspose)(float *to, ptrdiff_t stride, const float *from, int rows, int size);

#endif
