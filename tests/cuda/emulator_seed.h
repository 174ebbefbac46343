/* emulator_seed.h - the one thing that a C program asks of emulator.h, which is C++. */
#ifndef MUSTER_TESTS_CUDA_EMULATOR_SEED_H
#define MUSTER_TESTS_CUDA_EMULATOR_SEED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 0 (as it is at first, unless the environment's MUSTER_EMULATOR_SEED says otherwise): ascending order of threads and
 * blocks. Any other number: random orders that follow from it, other ones each launch. */
void emulator_seed(uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
