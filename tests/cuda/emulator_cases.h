/* emulator_cases.h - small kernels, right and wrong, for test_emulator.c. Each writes what it finds to x. */
#ifndef MUSTER_TESTS_CUDA_EMULATOR_CASES_H
#define MUSTER_TESTS_CUDA_EMULATOR_CASES_H

#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x[i] = the number of i's left neighbour in a ring of 256 threads, through shared memory; with the barrier between
 * writing and reading, or without. Two turns, so that the second needs another barrier before it writes. */
void case_ring(struct device *dev, int *x, bool first_barrier, bool second_barrier);

/* x[0..5][32]: shuffles and votes of one warp whose lane i has 100 + i. */
void case_shuffles(struct device *dev, int *x);

/* x[b * 64 + i] = what block b finds in dynamic shared memory at its beginning. */
void case_shared(struct device *dev, int *x, int blocks);

/* x[0] = the blocks' numbers in the order of their coming, as the digits of a number to base 8. */
void case_order(struct device *dev, int *x, int blocks);

/* Mistakes: a barrier that half of the threads reach; two barriers for one; a shuffle that one lane is not part of; a
 * block that is not of whole warps. */
void case_half(struct device *dev, int *x);
void case_two_places(struct device *dev, int *x);
void case_absent_lane(struct device *dev, int *x);
void case_part_of_a_warp(struct device *dev, int *x);
void case_too_large(struct device *dev, int *x);
void case_no_block(struct device *dev, int *x);

#ifdef __cplusplus
}
#endif

#endif
