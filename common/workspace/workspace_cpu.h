/*
 * workspace_cpu.h - the workspace of a CPU's operations: kernels/cpu allocates by these formulas, and
 * kernels_workspace_bytes (workspace.h) adds them up. In bytes, unless a name says otherwise.
 */
#ifndef MUSTER_COMMON_WORKSPACE_WORKSPACE_CPU_H
#define MUSTER_COMMON_WORKSPACE_WORKSPACE_CPU_H

#include "config.h"

#include <stddef.h>

/* A sum over rows is made of at most ROW_BLOCKS partial sums, each over a fixed range of rows, added in order. So it
 * does not depend on the number of threads. */
#define ROW_BLOCKS 64

struct row_blocks {
    int count; /* of blocks; one, which is empty, for no rows */
    int rows;  /* in each but the last */
};

static inline struct row_blocks row_blocks(int rows)
{
    int each = (rows + ROW_BLOCKS - 1) / ROW_BLOCKS;

    if (each < 8)
        each = 8;
    return (struct row_blocks){rows > each ? (rows + each - 1) / each : 1, each};
}

/* One of several parts of the workspace, each with its own cache lines. */
static inline size_t workspace_part_floats(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

static inline size_t workspace_row_sums(int rows, size_t cols)
{
    return (size_t)row_blocks(rows).count * workspace_part_floats(cols) * sizeof(float);
}

#define QUERIES         64  /* of a tile of attention */
#define KEYS            64  /* at most */
#define ATTENTION_STATE 512 /* floats for the state of each query of a tile, and addresses */

/* The size of a head, rounded up to whole vectors: to the widest on every CPU, so that a plan holds on each. */
static inline size_t workspace_padded_head(int head_size)
{
    return (size_t)(head_size + 15) / 16 * 16;
}

/* Of one thread. */
static inline size_t workspace_attention_forward_floats(int head_size)
{
    return ATTENTION_STATE + (4 * workspace_padded_head(head_size) + KEYS) * QUERIES;
}

static inline size_t workspace_attention_backward_floats(int seq, int head_size)
{
    size_t padded = workspace_padded_head(head_size);

    return ATTENTION_STATE + (5 * padded + (size_t)(2 * KEYS)) * QUERIES + 4 * (size_t)seq * padded;
}

#define ATTENTION_TURN 16 /* floats: a cache line */

/* Of each head of keys and values of each sample, if several heads of queries share them: the gradients' sums. */
static inline size_t workspace_attention_group_floats(int seq, int head_size)
{
    return ATTENTION_TURN + workspace_part_floats(2 * (size_t)seq * workspace_padded_head(head_size));
}

#define SQUARES_BLOCKS 4096 /* blocks of sum_of_squares whose sums, fp64, are kept at once */

#define PANEL_ROWS 256 /* of c, multiplied and then run through gelu while still in the cache */

/* A matmul of types that the library lacks goes through fp32 blocks of at most these sides. */
#define WIDENED_M 512
#define WIDENED_N 1024
#define WIDENED_K 1024
#define WIDENED_B (WIDENED_K * (WIDENED_N + 16)) /* rows are workspace_copy_ld apart */

static inline size_t workspace_widened_floats(void)
{
    return (size_t)WIDENED_M * WIDENED_K + (size_t)WIDENED_B + (size_t)WIDENED_M * WIDENED_N;
}

/*
 * A buffer for a copy of some of b's columns with a row stride that has no cache conflicts (matmul_wants_copy). It is
 * only for fp32, and is allocated at the first matmul. Rows of the copy are an odd number of cache lines apart, so that
 * they spread over all sets of the caches. workspace_copy_columns returns 0 if fewer than 512 columns would fit: every
 * block of columns reads all of a again, which costs more than the copy saves.
 */
#ifdef HAVE_ONEDNN
#define COPY_BYTES ((size_t)8 << 20)
#else
#define COPY_BYTES ((size_t)0)
#endif

static inline int workspace_copy_ld(int columns)
{
    return ((columns + 15) / 16 | 1) * 16;
}

static inline int workspace_copy_columns(int k, int n)
{
    size_t most = COPY_BYTES / sizeof(float) / (size_t)k;
    int blocks, least = 512;

    if ((size_t)workspace_copy_ld(n) <= most)
        return n;
    most = most < 64 ? 0 : (most - 16) / 64 * 64;
    if (most < (size_t)least)
        return 0;
    blocks = (int)(((size_t)n + most - 1) / most);
    return ((n + blocks - 1) / blocks + 63) / 64 * 64;
}

/* For each thread, from the first matmul on. oneDNN 2.6 asked for at most 2.8 MB over thousands of shapes. If it asks
 * for more, it gets more. */
#ifdef HAVE_ONEDNN
#define MATMUL_SCRATCHPAD ((size_t)3 << 20)
#else
#define MATMUL_SCRATCHPAD ((size_t)0) /* CBLAS has memory of its own, which is not counted */
#endif

#endif
