/*
 * attention_case.h - attention as the tests ask for it: the operands of one case, both passes of it on a device, and
 * what a result may be wrong by.
 */
#ifndef MUSTER_TESTS_KERNELS_ATTENTION_CASE_H
#define MUSTER_TESTS_KERNELS_ATTENTION_CASE_H

#include "tests/kernels/attention_reference.h"
#include "tests/kernels/harness.h"

/* In the device's memory, freed with its buffers; the same numbers on each device. Outputs are poisoned. */
struct attention_buffers {
    struct tensor qkv, out, dout, dqkv;
    float *lse;
    int32_t *lengths, *document_start; /* NULL if the case has none */
};

/* qkv is normal, times `spread`. */
struct attention_buffers attention_make(struct device *dev, enum dtype dtype, const struct attention_case *x,
                                        double spread);

void attention_forward_on(struct device *dev, const struct attention_case *x, const struct attention_buffers *b);
void attention_backward_on(struct device *dev, const struct attention_case *x, const struct attention_buffers *b);

/*
 * Rows of `size` elements, as a GPU's kernels may make them: scores and sums are fp32 there, but probabilities and
 * their gradients are rounded to the type before the second product. So an element may be wrong by a few roundings of
 * what its row is made of, and the whole, in the Euclidean norm, by about one. Where a row's true values cancel to
 * nothing, what is left is judged by the whole. `rounded`: 1; or 2 if `want` is rounded too.
 */
void attention_expect_rows(const char *name, struct tensor got, const double *want, int size, int rounded);

/* size: of what a score is the sum of, which may cancel; 1 for operands of size 1. */
void attention_expect_lse(const float *got, const double *want, size_t count, double size);

#endif
