/*
 * mma_cases.h - kernels of one warp, or one block, that call each function of kernels/cuda/gpu/mma.h once.
 */
#ifndef MUSTER_TESTS_CUDA_MMA_CASES_H
#define MUSTER_TESTS_CUDA_MMA_CASES_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What lane l has in registers is at [l]. */
struct mma_fragments {
    uint32_t a[32][4], b[32][2];
    float c[32][4];
};

void mma_case_product(struct device *dev, enum dtype dtype, struct mma_fragments *x);

/* matrices[4][8][8] go through shared memory to registers[32][4]. */
void mma_case_ldmatrix(struct device *dev, bool transposed, const uint16_t *matrices, uint32_t *registers);

/*
 * 32 threads copy twice 16 bytes each, from[0] in one group and from[1] in the next; threads from `limit` on get zeros.
 * early: what a thread found before it waited; half: after it had waited for all but the younger group; whole: for all.
 */
struct mma_copies {
    uint32_t from[2][32][4], early[2][32][4], half[2][32][4], whole[2][32][4];
    int limit;
};

void mma_case_copy(struct device *dev, struct mma_copies *x);

/* packed = mma_pack(low, high); back = mma_low of both halves. */
void mma_case_pack(struct device *dev, enum dtype dtype, const float x[2], uint32_t *packed, float back[2]);

#ifdef __cplusplus
}
#endif

#endif
