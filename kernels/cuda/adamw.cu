#include "kernels/cuda/operations.h"
#include "kernels/cuda/pack.h"

/*
 * kernels.h's AdamW, a pack a thread: four arrays are read once and three, or four, written once.
 *   g = grad * grad_scale;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   p -= lr * ( m/bias1 / (sqrt(v/bias2) + eps) + weight_decay * p )
 * Every operation is rounded by itself, none fused: so the bits are the CPU's (kernels/cpu/vector/adamw.c), and an
 * offloaded optimizer is the optimizer that is not.
 */
static inline __device__ float decayed(float beta, float x, float y)
{
    return __fadd_rn(__fmul_rn(beta, x), __fmul_rn(1.0f - beta, y));
}

template <class T> static __global__ void __launch_bounds__(FLAT_THREADS) adamw(struct adamw op)
{
    size_t first = flat_first();
    float inverse1 = __fdiv_rn(1.0f, op.bias1), inverse2 = __fdiv_rn(1.0f, op.bias2);
    int n;

    if (first >= op.count)
        return;
    n = pack_count(first, op.count);
    struct pack g = pack_load(op.grad + first, n), m = pack_load(op.exp_avg + first, n);
    struct pack v = pack_load(op.exp_avg_sq + first, n), p = pack_load(op.param + first, n);
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        float gradient = __fmul_rn(g.v[j], op.grad_scale), step;

        m.v[j] = decayed(op.beta1, m.v[j], gradient);
        v.v[j] = decayed(op.beta2, v.v[j], __fmul_rn(gradient, gradient));
        step = __fdiv_rn(__fmul_rn(m.v[j], inverse1), __fadd_rn(__fsqrt_rn(__fmul_rn(v.v[j], inverse2)), op.eps));
        step = __fadd_rn(step, __fmul_rn(op.weight_decay, p.v[j]));
        p.v[j] = __fsub_rn(p.v[j], __fmul_rn(op.lr, step));
    }
    pack_store(op.exp_avg + first, m, n);
    pack_store(op.exp_avg_sq + first, v, n);
    pack_store(op.param + first, p, n);
    if (op.copy)
        pack_store(static_cast<T *>(op.copy) + first, p, n);
}

void cuda_adamw(struct device *dev, const struct adamw *op)
{
    if (!device_ready(dev, op->copy ? op->copy_dtype : DTYPE_F32, "adamw") || op->count == 0)
        return;
    WITH_TYPE(op->copy ? op->copy_dtype : DTYPE_F32, T,
              LAUNCH(dev, adamw<T>, flat_blocks(op->count), FLAT_THREADS, 0, *op));
}
