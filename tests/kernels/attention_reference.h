/*
 * attention_reference.h - attention in its textbook form, in float64, whole seq x seq matrices a head: what every
 * device's kernels are held to.
 */
#ifndef MUSTER_TESTS_KERNELS_ATTENTION_REFERENCE_H
#define MUSTER_TESTS_KERNELS_ATTENTION_REFERENCE_H

#include "kernels/kernels.h"

struct attention_case {
    int batch, seq, heads, head_size;
    int kv_heads; /* 0: heads */
    int window;
    bool causal;
    const int32_t *lengths, *document_start;
    struct dropout dropout;
    uint64_t dropout_stride;
};

static inline int attention_kv_heads(const struct attention_case *x)
{
    return x->kv_heads ? x->kv_heads : x->heads;
}

/* Elements of qkv. */
static inline size_t attention_qkv_count(const struct attention_case *x)
{
    return (size_t)x->batch * (size_t)x->seq * attention_row(x->heads, attention_kv_heads(x), x->head_size);
}

/*
 * Arrays as in kernels.h's struct attention. out and lse are written from qkv; dqkv from qkv, dout and
 * `out_given`, the out that the backward pass is given (rounded, say).
 */
void attention_reference_forward(const struct attention_case *x, const double *qkv, double *out, double *lse);
void attention_reference_backward(const struct attention_case *x, const double *qkv, const double *out_given,
                                  const double *dout, double *dqkv);

#endif
