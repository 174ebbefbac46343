#include "kernels/cpu/vector/vector.h"

#define BLOCK 4096 /* elements; kernels.h promises it */

#define SUMS 8 /* partial sums in flight: element i goes to sum i % SUMS, on every instruction set */

typedef double sums __attribute__((vector_size(SUMS * 8)));
typedef float eight __attribute__((vector_size(SUMS * 4), aligned(4), may_alias));

static double block_sum(const float *x, size_t count)
{
    sums even = {0}, odd = {0};
    size_t i = 0;
    double sum = 0;

    for (; i + 2 * SUMS <= count; i += 2 * SUMS) {
        sums a = __builtin_convertvector(*(const eight *)(x + i), sums);
        sums b = __builtin_convertvector(*(const eight *)(x + i + SUMS), sums);

        even += a * a;
        odd += b * b;
    }
    even += odd;
    for (int lane = 0; lane < SUMS; lane++)
        sum += even[lane];
    for (; i < count; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

void ISA(sum_of_squares)(struct device *dev, double *result, const float *x, size_t count)
{
    size_t blocks = (count + BLOCK - 1) / BLOCK;
    double *sum_of, total = 0;

    *result = 0;
    if (!device_ready(dev, DTYPE_F32, "sum_of_squares"))
        return;
    sum_of = (double *)cpu_scratch(dev, SQUARES_BLOCKS * sizeof(double) / sizeof(float));
    if (!sum_of)
        return;
    for (size_t first = 0; first < blocks; first += SQUARES_BLOCKS) {
        size_t here = blocks - first < SQUARES_BLOCKS ? blocks - first : SQUARES_BLOCKS;

#pragma omp parallel for num_threads(dev->threads) schedule(static)
        for (size_t i = 0; i < here; i++) {
            size_t begin = (first + i) * BLOCK;

            sum_of[i] = block_sum(x + begin, count - begin < BLOCK ? count - begin : BLOCK);
        }
        for (size_t i = 0; i < here; i++)
            total += sum_of[i];
    }
    *result = total;
}
