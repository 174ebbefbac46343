/*
 * rows.h - how threads share a matrix of rows, for the kernels that look at each row as a whole.
 *
 * Where nothing is summed over a row, a warp takes it, and goes through its columns a pack a lane (ROW_WARPS rows a
 * block). Where sums over the row are needed, it is held in registers meanwhile: `packs` packs (1 to MOST_PACKS) for
 * each thread of `warps` warps. With one warp to a row a block has ROW_WARPS rows and needs no barrier; else it has
 * one.
 */
#ifndef MUSTER_KERNELS_CUDA_GPU_ROWS_H
#define MUSTER_KERNELS_CUDA_GPU_ROWS_H

#include "kernels/cuda/gpu/pack.h"

#define ROW_WARPS   4
#define MOST_PACKS  4
#define MOST_WARPS  16
#define ROW_THREADS (MOST_WARPS * WARP)

struct row_shape {
    int packs, warps;
};

/* The fewest warps, and then the fewest packs. */
static inline struct row_shape row_shape(int cols)
{
    int warp_packs = (cols + WARP * PACK - 1) / (WARP * PACK);
    int warps = (warp_packs + MOST_PACKS - 1) / MOST_PACKS;

    return {(warp_packs + warps - 1) / warps, warps};
}

/* false: rows so long that they do not fit, and the device has failed. */
static inline bool row_fits(struct device *dev, int cols, const char *operation)
{
    if (cols >= 1 && row_shape(cols).warps <= MOST_WARPS)
        return true;
    device_fail(dev, CODE_CONFIG, "cuda: %s: rows of %d; from 1 to %d is possible", operation, cols,
                MOST_WARPS * MOST_PACKS * WARP * PACK);
    return false;
}

/* Calls with PACKS as the constant that packs is. */
#define WITH_PACKS(packs, PACKS, ...)                                                                                  \
    do {                                                                                                               \
        if ((packs) == 1) {                                                                                            \
            constexpr int PACKS = 1;                                                                                   \
            __VA_ARGS__;                                                                                               \
        } else if ((packs) == 2) {                                                                                     \
            constexpr int PACKS = 2;                                                                                   \
            __VA_ARGS__;                                                                                               \
        } else if ((packs) == 3) {                                                                                     \
            constexpr int PACKS = 3;                                                                                   \
            __VA_ARGS__;                                                                                               \
        } else {                                                                                                       \
            constexpr int PACKS = 4;                                                                                   \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    } while (0)

/* Rows of a block, and its threads. */
static inline __host__ __device__ int rows_of_block(int warps)
{
    return warps == 1 ? ROW_WARPS : 1;
}

static inline unsigned row_threads(int warps)
{
    return static_cast<unsigned>(warps * rows_of_block(warps) * WARP);
}

static inline unsigned row_blocks(int rows, int warps)
{
    return static_cast<unsigned>((rows + rows_of_block(warps) - 1) / rows_of_block(warps));
}

/* The block's row that this thread is of, and the column of its pack number p. */
static inline __device__ int row_in_block(int warps)
{
    return warps == 1 ? static_cast<int>(threadIdx.x) / WARP : 0;
}

static inline __device__ int row_column(int p, int warps)
{
    int width = warps * WARP;

    return (p * width + static_cast<int>(threadIdx.x) % width) * PACK;
}

#endif
