#include "tests/cuda/emulator_cases.h"

#include "kernels/cuda/gpu/language.h"

#define RING 256

static __global__ void ring(int *x, bool first_barrier, bool second_barrier)
{
    __shared__ int numbers[RING];
    int i = static_cast<int>(threadIdx.x), sum = 0;

    numbers[i] = -1000;
    __syncthreads();
    for (int turn = 0; turn < 2; turn++) {
        if (turn && second_barrier)
            __syncthreads();
        numbers[i] = 1000 * turn + i;
        if (first_barrier)
            __syncthreads();
        sum += numbers[(i + RING - 1) % RING];
    }
    x[i] = sum;
}

void case_ring(struct device *dev, int *x, bool first_barrier, bool second_barrier)
{
    LAUNCH(dev, ring, 1, RING, 0, x, first_barrier, second_barrier);
}

static __global__ void shuffles(int *x)
{
    int lane = static_cast<int>(threadIdx.x), mine = 100 + lane;

    x[lane] = __shfl_sync(FULL_WARP, mine, 31 - lane);
    x[32 + lane] = __shfl_xor_sync(FULL_WARP, mine, 5);
    x[64 + lane] = __shfl_down_sync(FULL_WARP, mine, 3, 8);
    x[96 + lane] = __shfl_up_sync(FULL_WARP, mine, 3);
    x[128 + lane] = static_cast<int>(__ballot_sync(FULL_WARP, lane % 3 == 0));
    x[160 + lane] = 2 * __any_sync(FULL_WARP, lane == 9) + __all_sync(FULL_WARP, lane != 9);
}

void case_shuffles(struct device *dev, int *x)
{
    LAUNCH(dev, shuffles, 1, WARP, 0, x);
}

static __global__ void look(int *x)
{
    DYNAMIC_SHARED(int, shared);

    x[blockIdx.x * blockDim.x + threadIdx.x] = shared[threadIdx.x];
    shared[threadIdx.x] = 7;
}

void case_shared(struct device *dev, int *x, int blocks)
{
    LAUNCH(dev, look, static_cast<unsigned>(blocks), 64, 64 * sizeof(int), x);
}

static __global__ void come(int *x)
{
    if (threadIdx.x == 0)
        *x = *x * 8 + static_cast<int>(blockIdx.x);
}

void case_order(struct device *dev, int *x, int blocks)
{
    LAUNCH(dev, come, static_cast<unsigned>(blocks), WARP, 0, x);
}

static __global__ void half(int *x)
{
    x[threadIdx.x] = 1;
    if (threadIdx.x < 32)
        __syncthreads();
}

void case_half(struct device *dev, int *x)
{
    LAUNCH(dev, half, 1, 64, 0, x);
}

static __global__ void two_places(int *x)
{
    x[threadIdx.x] = 1;
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}

void case_two_places(struct device *dev, int *x)
{
    LAUNCH(dev, two_places, 1, 64, 0, x);
}

static __global__ void absent_lane(int *x)
{
    if (threadIdx.x != 5)
        x[threadIdx.x] = __shfl_sync(FULL_WARP, 1, 0);
}

void case_absent_lane(struct device *dev, int *x)
{
    LAUNCH(dev, absent_lane, 1, WARP, 0, x);
}

void case_part_of_a_warp(struct device *dev, int *x)
{
    LAUNCH(dev, shuffles, 1, 20, 0, x);
}

void case_too_large(struct device *dev, int *x)
{
    LAUNCH(dev, half, 1, 1025, 0, x);
}

void case_no_block(struct device *dev, int *x)
{
    LAUNCH(dev, half, 0, 32, 0, x);
}
