#include <string.h>

#include "common/dtype.h"
#include "trainer/comm/comm_impl.h"

enum { BLOCK = 1024 }; /* elements summed at a time: a block of every partial sum stays in the first-level cache */

static int left_half(int ranks)
{
    int half = 1;

    while (half * 2 < ranks)
        half *= 2;
    return half;
}

static void widen_part(float *out, enum dtype dtype, const void *part, size_t first, size_t count)
{
    const uint16_t *halves = (const uint16_t *)part + first;

    if (dtype == DTYPE_F32)
        memmove(out, (const float *)part + first, count * sizeof *out);
    else
        for (size_t i = 0; i < count; i++)
            out[i] = dtype == DTYPE_BF16 ? bf16_to_float(halves[i]) : f16_to_float(halves[i]);
}

static void block_sum(float *out, enum dtype dtype, const void *const *parts, int ranks, size_t first, size_t count)
{
    float right[BLOCK];
    int half;

    if (ranks == 1) {
        widen_part(out, dtype, parts[0], first, count);
        return;
    }
    half = left_half(ranks);
    /* The right half first: out may be one of the parts, so it must be written last. */
    block_sum(right, dtype, parts + half, ranks - half, first, count);
    if (half == 1 && dtype == DTYPE_F32) {
        const float *left = (const float *)parts[0] + first;

        for (size_t i = 0; i < count; i++)
            out[i] = left[i] + right[i];
    } else {
        float left[BLOCK];

        block_sum(left, dtype, parts, half, first, count);
        for (size_t i = 0; i < count; i++)
            out[i] = left[i] + right[i];
    }
}

void comm_tree_sum(enum dtype dtype, void *out, const void *const *parts, int ranks, size_t count)
{
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t length = count - first < BLOCK ? count - first : BLOCK;
        float sum[BLOCK];

        if (dtype == DTYPE_F32) {
            block_sum((float *)out + first, dtype, parts, ranks, first, length);
        } else {
            block_sum(sum, dtype, parts, ranks, first, length);
            for (size_t i = 0; i < length; i++)
                ((uint16_t *)out)[first + i] = dtype == DTYPE_BF16 ? bf16_of_float(sum[i]) : f16_of_float(sum[i]);
        }
    }
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
