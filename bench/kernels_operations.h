/* kernels_operations.h - every operation of kernels.h at the shapes of gpt-125m, as a list for kernels.c to time. */
#ifndef MUSTER_BENCH_KERNELS_OPERATIONS_H
#define MUSTER_BENCH_KERNELS_OPERATIONS_H

#include "kernels/kernels.h"

#define BATCH      4
#define SEQ        512
#define HEADS      12
#define D          768
#define ROWS       (BATCH * SEQ)
#define DOCUMENT   128 /* tokens of each document in a sample */
#define VOCAB      50257
#define STRIDE     50304
#define PARAMETERS ((size_t)7 << 20) /* about a layer's */

#define ATTENTION_FLOPS (4.0 * BATCH * SEQ * SEQ * D) /* the whole square, as PaLM counts it */

struct bench {
    struct device *dev;
    const struct kernels *k;
    double peak, bandwidth;   /* FLOP/s, bytes/s */
    float *x, *y, *z;         /* [ROWS, 4 D] each */
    float *wide, *d_wide;     /* [ROWS, 4 D] each */
    float *weight, *d_weight; /* [4 D, D] each */
    float *bias, *bias2, *row[4];
    float *logits; /* [ROWS, STRIDE]; also the optimizer's four arrays */
    float *table;  /* [VOCAB, D] */
    int32_t *tokens, *document_start;
};

struct bench_entry {
    const char *name;
    void (*run)(const struct bench *);
    double flops, bytes;
    int in_layer; /* how often in a layer's forward and backward */
    bool matmul;  /* in the layer's sum, counts as matmul */
    double gelu;  /* gelu's time is this of the fused products (1) less the plain ones (-1) */
};

extern const struct bench_entry bench_entries[];
extern const int bench_entry_count;

#endif
