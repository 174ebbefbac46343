#include "tests/cuda/mma_cases.h"

#include <string.h>

#include "kernels/cuda/gpu/mma.h"

template <enum dtype T> static __global__ void product(struct mma_fragments *x)
{
    mma_16816<T>(x->c[threadIdx.x], x->a[threadIdx.x], x->b[threadIdx.x]);
}

void mma_case_product(struct device *dev, enum dtype dtype, struct mma_fragments *x)
{
    if (dtype == DTYPE_BF16)
        LAUNCH(dev, product<DTYPE_BF16>, dim3(1), dim3(32), 0, x);
    else
        LAUNCH(dev, product<DTYPE_F16>, dim3(1), dim3(32), 0, x);
}

static __global__ void load(bool transposed, const uint16_t *matrices, uint32_t *registers)
{
    DYNAMIC_SHARED(uint16_t, shared);
    unsigned lane = threadIdx.x;

    memcpy(shared + lane * 8, matrices + lane * 8, 16);
    __syncthreads();
    if (transposed)
        ldmatrix_x4_trans(registers + lane * 4, shared + lane * 8);
    else
        ldmatrix_x4(registers + lane * 4, shared + lane * 8);
}

void mma_case_ldmatrix(struct device *dev, bool transposed, const uint16_t *matrices, uint32_t *registers)
{
    LAUNCH(dev, load, dim3(1), dim3(32), 512, transposed, matrices, registers);
}

static __global__ void copy(struct mma_copies *x)
{
    DYNAMIC_SHARED(uint32_t, shared);
    int thread = (int)threadIdx.x;
    uint32_t *mine[2] = {shared + thread * 4, shared + 128 + thread * 4};

    for (int i = 0; i < 2; i++) {
        memset(mine[i], 0x55, 16);
        cp_async<16>(mine[i], x->from[i][thread], thread < x->limit);
        cp_async_commit();
    }
    for (int i = 0; i < 2; i++)
        memcpy(x->early[i][thread], mine[i], 16);
    cp_async_wait<1>();
    for (int i = 0; i < 2; i++)
        memcpy(x->half[i][thread], mine[i], 16);
    cp_async_wait<0>();
    for (int i = 0; i < 2; i++)
        memcpy(x->whole[i][thread], mine[i], 16);
}

void mma_case_copy(struct device *dev, struct mma_copies *x)
{
    LAUNCH(dev, copy, dim3(1), dim3(32), 1024, x);
}

template <enum dtype T> static __global__ void pack(const float *x, uint32_t *packed, float *back)
{
    *packed = mma_pack<T>(x[0], x[1]);
    back[0] = mma_low<T>(*packed);
    back[1] = mma_low<T>(*packed >> 16);
}

void mma_case_pack(struct device *dev, enum dtype dtype, const float x[2], uint32_t *packed, float back[2])
{
    if (dtype == DTYPE_BF16)
        LAUNCH(dev, pack<DTYPE_BF16>, dim3(1), dim3(32), 0, x, packed, back);
    else
        LAUNCH(dev, pack<DTYPE_F16>, dim3(1), dim3(32), 0, x, packed, back);
}
