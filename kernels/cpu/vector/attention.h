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
    int window;                    /* 0: none */
    const int32_t *document_start; /* [seq] of this sample; NULL: all 0 */
    enum dtype dtype;
    ptrdiff_t stride; /* of q, k and v, in elements */
    const void *q, *k, *v;
    float scale;                   /* 1 / sqrt(size) */
    const struct dropout *dropout; /* NULL: none */
    uint64_t element;              /* of dropout: the probability of query 0 and key 0 */
};

/* The first key that a query sees, but for causality. It does not decrease from one query to the next. */
static inline int first_key(const struct head_slice *head, int query)
{
    int first = head->document_start ? head->document_start[query] : 0;

    return head->window && first <= query - head->window ? query - head->window + 1 : first;
}

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

/* A tile of keys against a tile of queries, which are counted from the tile's first. */
struct key_tile {
    int first, count;
    int query;     /* the first of the queries */
    int lane;      /* queries before this one see none of these keys */
    int end;       /* nor do queries from this one on; rounded up to a whole vector */
    bool diagonal; /* queries [lane, lane + DIAGONAL_KEYS) see some of them */
    bool cut;      /* a document or a window begins within the tile */
};

/* The vectors of queries from the first to `end`. */
static inline int key_tile_vectors(const struct key_tile *tile)
{
    return (tile->end + LANES - 1) / LANES;
}

/*
 * The tile that begins at key `first`, for the tile of queries [query, query + queries). count is 0 when there is none.
 * The first tile begins at attention_first_tile.
 */
static inline int attention_first_tile(const struct head_slice *head, int query)
{
    return first_key(head, query) / KEYS * KEYS;
}

struct key_tile ISA(attention_key_tile)(const struct head_slice *head, int query, int queries, int first);

/* s[keys, queries] = scores, from the transposed, scaled queries; those of keys after the query are -FLT_MAX, those of
 * other documents and before the window minus infinity. k: the tile's keys. */
void ISA(attention_scores)(const struct head_slice *head, const float *q_transposed, struct key_tile tile,
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

/*
 * The small matrix products inside attention: c[m, columns] (+)= a[m,k] * b[k, columns].
 *
 * The columns are whole vectors. Elements of a are read one at a time and spread over a vector, so a may have any two
 * strides and is never packed or transposed; rows of b and c are contiguous.
 */
struct tile_product {
    int m, vectors, k;
    const float *a;
    ptrdiff_t a_row, a_column; /* distance from a[i,p] to a[i+1,p] and to a[i,p+1] */
    const float *b;
    ptrdiff_t b_row;
    float *c;
    ptrdiff_t c_row;
    bool accumulate;
};

void ISA(tile_product)(const struct tile_product *op);

#endif
