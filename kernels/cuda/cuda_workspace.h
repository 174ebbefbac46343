/*
 * cuda_workspace.h - how much working memory the CUDA operations take: formulas that the operations allocate by, and that
 * kernels_workspace_bytes adds up. Pure; bytes, unless a name says otherwise. For C and for CUDA C++.
 */
#ifndef MUSTER_KERNELS_CUDA_CUDA_WORKSPACE_H
#define MUSTER_KERNELS_CUDA_CUDA_WORKSPACE_H

#include <stddef.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operations share one piece of memory, as large as the hungriest needs. */
size_t cuda_workspace_bytes(const struct workspace *sizes);

#define MATMUL_WORKSPACE   ((size_t)32 << 20)  /* what cuBLASLt may use: as much as it likes to have on these GPUs */
#define MATMUL_SUMS        ((size_t)256)       /* for the checksum of a product that is tried */
#define MATMUL_MOST_BESIDE ((size_t)128 << 20) /* of memory to try an accumulating product in; larger are not tried */

/* Of a product; `scratch` is where it goes instead of c, or 0. */
static inline size_t workspace_matmul(size_t scratch)
{
    return MATMUL_WORKSPACE + (scratch + 255) / 256 * 256 + MATMUL_SUMS;
}

static inline size_t workspace_attention_backward(size_t rows, size_t heads)
{
    return rows * heads * sizeof(float);
}

/* Sums over columns: a grid of strips of columns, and of blocks of rows. */
#define COLUMN_STRIP  256
#define COLUMN_BLOCKS 528 /* about as many in all as a large GPU runs at once */
#define COLUMN_LEAST  32  /* rows of a block */

struct column_blocks {
    int count, rows; /* of blocks; in each but the last */
};

static inline struct column_blocks column_blocks(int rows, int cols)
{
    int strips = (cols + COLUMN_STRIP - 1) / COLUMN_STRIP, most = (rows + COLUMN_LEAST - 1) / COLUMN_LEAST;
    struct column_blocks blocks;

    blocks.count = (COLUMN_BLOCKS + strips - 1) / strips;
    blocks.count = blocks.count < most ? blocks.count : most;
    blocks.rows = (rows + blocks.count - 1) / blocks.count;
    blocks.count = (rows + blocks.rows - 1) / blocks.rows;
    return blocks;
}

/* kinds: 1, or 2 where rows are of two types. Neither rows nor cols is 0. */
static inline size_t workspace_column_sums(int rows, int cols, int kinds)
{
    return (size_t)column_blocks(rows, cols).count * (size_t)kinds * (size_t)cols * sizeof(float);
}

#define NORM_BLOCKS     264  /* of layernorm_backward at most: the same on every GPU, so that sums are too */
#define NORM_LEAST      4    /* rows that a warp, or a block of several, should have */
#define NORM_ROW_WARPS  4    /* rows of a block where a warp has a row */
#define NORM_WARP_LIMIT 1024 /* columns of a row that a warp can have */

static inline int norm_blocks(int rows, int cols)
{
    int each = NORM_LEAST * (cols <= NORM_WARP_LIMIT ? NORM_ROW_WARPS : 1);
    int most = cols <= NORM_WARP_LIMIT ? NORM_BLOCKS : 2 * NORM_BLOCKS;

    return (rows + each - 1) / each < most ? (rows + each - 1) / each : most;
}

static inline size_t workspace_layernorm_backward(int rows, int cols)
{
    return (size_t)norm_blocks(rows, cols) * 2 * (size_t)cols * sizeof(float);
}

#define EMBEDDING_CHUNK 32 /* rows */

static inline size_t workspace_embedding_backward(size_t rows, size_t cols)
{
    size_t chunks = (rows + EMBEDDING_CHUNK - 1) / EMBEDDING_CHUNK;

    return 2 * chunks * cols * sizeof(float) + 2 * rows * sizeof(int);
}

#define SQUARES_BLOCK 4096 /* elements: as on a CPU */

static inline size_t workspace_sum_of_squares(size_t count)
{
    return ((count + SQUARES_BLOCK - 1) / SQUARES_BLOCK + 1) * sizeof(double);
}

#ifdef __cplusplus
}
#endif

#endif
