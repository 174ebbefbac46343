/*
 * workspace_cuda.h - the workspace of a GPU's operations: kernels/cuda allocates by these formulas, and
 * kernels_workspace_bytes (workspace.h) adds them up. In bytes, unless a name says otherwise.
 */
#ifndef MUSTER_COMMON_WORKSPACE_WORKSPACE_CUDA_H
#define MUSTER_COMMON_WORKSPACE_WORKSPACE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/attention_choice.h"
#include "common/dtype.h"

#define MATMUL_WORKSPACE ((size_t)32 << 20) /* for cuBLASLt: the size that NVIDIA recommends for these GPUs */

/* Of a product; `scratch` is the bytes of a result that does not go to c, or 0. */
static inline size_t workspace_matmul(size_t scratch)
{
    return MATMUL_WORKSPACE + (scratch + 255) / 256 * 256;
}

static inline size_t workspace_attention_backward(size_t rows, size_t heads)
{
    return rows * heads * sizeof(float);
}

/*
 * Whether a shape goes to cuDNN. masked: with dropout (cuDNN's mask is not that of kernels.h), lengths, documents or a
 * window.
 *
 * seq must be a multiple of 128. With a partial last tile of keys, cuDNN's backward pass on sm_90 returns NaN for some
 * finite inputs: NVIDIA/cudnn-frontend issues 160 and 628, pytorch/pytorch issue 196678.
 *
 * ATTENTION_AUTO selects cuDNN where it was measured to be faster, on H200s (bench/RESULTS.md): heads of 64 to 256 and
 * sequences of 512 to 8192. Heads of 32 were slower.
 */
static inline bool attention_suits_cudnn(enum attention_choice choice, enum dtype dtype, bool masked, int seq,
                                         int head_size)
{
    bool can = dtype != DTYPE_F32 && !masked && seq > 0 && seq % 128 == 0 && head_size % 8 == 0;

    return can && (choice == ATTENTION_CUDNN || (choice == ATTENTION_AUTO && head_size >= 64 && seq >= 512));
}

/* The deterministic backward pass stores the gradients of all scores, in 16 bits. So that this does not grow with the
 * batch, it takes as many samples at a time as need 1 GiB, and at least one. These are enough blocks for a large GPU. */
static inline size_t cudnn_backward_samples(size_t batch, size_t heads, size_t seq)
{
    size_t most = ((size_t)1 << 30) / (heads * seq * seq * sizeof(uint16_t)), parts;

    if (most == 0)
        most = 1;
    parts = (batch + most - 1) / most;
    return parts ? (batch + parts - 1) / parts : 0;
}

/* The most workspace of a plan for that many samples. 16 MiB more are for a plan's small needs, which were below 10 MiB
 * on an H200. A plan that needs more is not used. */
static inline size_t workspace_cudnn_plan(size_t samples, size_t heads, size_t seq)
{
    return samples * heads * seq * seq * sizeof(uint16_t) + ((size_t)16 << 20);
}

/* What a backward pass has behind the plan's workspace: delta, and with grouped heads the 16-bit dk and dv of each head
 * of queries. grouped_width: elements of a row of these, or 0. */
static inline size_t workspace_cudnn_scratch(size_t samples, size_t heads, size_t seq, size_t grouped_width)
{
    return workspace_attention_backward(samples * seq, heads) + 2 * samples * seq * grouped_width * sizeof(uint16_t);
}

static inline size_t workspace_attention_cudnn(size_t batch, size_t heads, size_t seq, size_t grouped_width)
{
    size_t samples = cudnn_backward_samples(batch, heads, seq);

    return workspace_cudnn_plan(samples, heads, seq) + workspace_cudnn_scratch(samples, heads, seq, grouped_width);
}

/* Sums over columns: a grid of strips of columns, and of blocks of rows. */
#define COLUMN_STRIP  256
#define COLUMN_BLOCKS 528 /* in all, about as many as a large GPU runs at once */
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

/*
 * norm_backward: a block takes some rows, one after the other, and each of its warps a strip of 256 columns, or
 * several where there are more strips than NORM_WARPS. As many blocks as make 32 warps on each of 132 multiprocessors:
 * the same on every GPU, so that sums are too. Without rows one block makes sums of 0; so below.
 */
#define NORM_WARPS 16 /* of a block at most */
#define NORM_LEAST 4  /* rows of a block */

static inline int norm_warps(int cols)
{
    int strips = (cols + COLUMN_STRIP - 1) / COLUMN_STRIP;

    return strips < NORM_WARPS ? strips : NORM_WARPS;
}

static inline int norm_blocks(int rows, int cols)
{
    int most = 132 * (32 / norm_warps(cols)), blocks = rows > 0 ? (rows + NORM_LEAST - 1) / NORM_LEAST : 1;

    return blocks < most ? blocks : most;
}

static inline size_t workspace_norm_backward(int rows, int cols)
{
    return (size_t)norm_blocks(rows, cols) * 2 * (size_t)cols * sizeof(float);
}

/*
 * query_key_backward with a norm: a head is shared by query_key_lanes threads, each of which has QUERY_KEY_LANE of its
 * elements. Each block sums for some heads.
 */
#define QUERY_KEY_THREADS 256
#define QUERY_KEY_LANE    16
#define QUERY_KEY_BLOCKS  528
#define QUERY_KEY_LEAST   4 /* heads of a thread */

static inline int query_key_lanes(int head_size)
{
    int lanes = 1;

    while (lanes * QUERY_KEY_LANE < head_size)
        lanes *= 2;
    return lanes;
}

static inline int query_key_blocks(int rows, int heads, int head_size)
{
    size_t threads = (size_t)rows * (size_t)heads * (size_t)query_key_lanes(head_size);
    size_t blocks = (threads + QUERY_KEY_THREADS * QUERY_KEY_LEAST - 1) / (QUERY_KEY_THREADS * QUERY_KEY_LEAST);

    return blocks == 0 ? 1 : (int)(blocks < QUERY_KEY_BLOCKS ? blocks : QUERY_KEY_BLOCKS);
}

/* Less than MATMUL_WORKSPACE for every head size, so kernels_workspace_bytes need not know of it. */
static inline size_t workspace_query_key_backward(int rows, int heads, int head_size)
{
    return (size_t)query_key_blocks(rows, heads, head_size) * 2 * (size_t)head_size * sizeof(float);
}

#define EMBEDDING_CHUNK 32 /* rows */

static inline size_t workspace_embedding_backward(size_t rows, size_t cols)
{
    size_t chunks = (rows + EMBEDDING_CHUNK - 1) / EMBEDDING_CHUNK;

    return 2 * chunks * cols * sizeof(float) + 4 * rows * sizeof(int);
}

#define SQUARES_ARRAYS 128 /* of a launch of sum_of_squares */

static inline size_t workspace_sum_of_squares(size_t blocks)
{
    return (blocks + SQUARES_ARRAYS) * sizeof(double);
}

#endif
