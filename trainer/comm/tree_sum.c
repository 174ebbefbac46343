#include <string.h>

#include "trainer/comm/comm_impl.h"

enum { BLOCK = 1024 }; /* elements summed at a time: a block of every partial sum stays in the first-level cache */

static int left_half(int ranks)
{
    int half = 1;

    while (half * 2 < ranks)
        half *= 2;
    return half;
}

static void block_sum(float *out, const float *const *parts, int ranks, size_t first, size_t count)
{
    float right[BLOCK];
    int half;

    if (ranks == 1) {
        memmove(out, parts[0] + first, count * sizeof *out);
        return;
    }
    half = left_half(ranks);
    /* The right half first: out may be one of the parts, so it must be written last. */
    block_sum(right, parts + half, ranks - half, first, count);
    if (half == 1) {
        const float *left = parts[0] + first;

        for (size_t i = 0; i < count; i++)
            out[i] = left[i] + right[i];
    } else {
        float left[BLOCK];

        block_sum(left, parts, half, first, count);
        for (size_t i = 0; i < count; i++)
            out[i] = left[i] + right[i];
    }
}

void comm_tree_sum_f32(float *out, const float *const *parts, int ranks, size_t count)
{
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < count; first += BLOCK)
        block_sum(out + first, parts, ranks, first, count - first < BLOCK ? count - first : BLOCK);
}

double comm_tree_sum_f64(const double *values, int ranks, size_t stride)
{
    int half;

    if (ranks == 1)
        return values[0];
    half = left_half(ranks);
    return comm_tree_sum_f64(values, half, stride) +
           comm_tree_sum_f64(values + (size_t)half * stride, ranks - half, stride);
}
