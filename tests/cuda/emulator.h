/*
 * emulator.h - runs a CUDA kernel on the CPU: one fiber a GPU thread, one block after the other. What
 * tests/cuda/include/kernels/cuda/gpu/language.h and mma.h are built on; kernels do not use it directly.
 *
 * A thread runs until it waits: at __syncthreads for its block, at a shuffle, vote or __syncwarp for the 31 others of
 * its warp, all of which must come to the same place of the source. Where they do not, or where a thread has returned
 * that others wait for, the launch fails with one line that names kernel, block, threads and places. Nothing else
 * orders threads, and in random order (emulator_seed) threads and blocks go in another order each time, and some warps
 * run as far ahead of the others as barriers let them: where one is missing, some seed makes the result wrong.
 *
 * Stricter than a GPU: every thread of a block must reach each __syncthreads, and warps are whole. Less strict: memory
 * is consistent at once, so a missing __threadfence does not show; a thread that waits in a loop for another hangs.
 * Shared memory declared in a kernel is one for all blocks; dynamic shared memory is NaN at the beginning of each.
 */
#ifndef MUSTER_TESTS_CUDA_EMULATOR_H
#define MUSTER_TESTS_CUDA_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#include "tests/cuda/emulator_seed.h"

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;

    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

#define EMULATOR_LANES  32
#define EMULATOR_SLOT   128 /* bytes that a lane can hand to the others at once */
#define EMULATOR_SHARED ((size_t)227 << 10)

/* Where the thread that runs now is. */
struct emulator_place {
    struct uint3 thread, block;
    struct dim3 threads, blocks; /* of a block; of the grid */
    unsigned lane;
};

extern const struct emulator_place *emulator_here;

/* Where in the source a thread waits. A default argument of this kind is the place of the call. */
struct emulator_site {
    const char *operation, *file;
    int line;
};

struct emulator_launch {
    const char *kernel;
    struct dim3 blocks, threads;
    size_t shared; /* bytes of dynamic shared memory */
    void (*body)(const void *arg);
    const void *arg;
};

/* Runs the kernel to its end. false: it cannot go on, and why[size] says so in one line. */
bool emulator_run(const struct emulator_launch *launch, char *why, size_t size);

/* ---- for the thread that runs ------------------------------------------------------------------------------------ */

void emulator_barrier(struct emulator_site site);

/* Waits for the whole warp; then lane i's bytes are at i * EMULATOR_SLOT of the result, until this thread's second
 * exchange from now. */
const unsigned char *emulator_exchange(const void *mine, size_t bytes, struct emulator_site site);

/* Dynamic shared memory, 128-byte aligned. */
void *emulator_shared(void);

#endif
