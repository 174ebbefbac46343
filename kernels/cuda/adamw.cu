#include "kernels/cuda/operations.h"
#include "kernels/cuda/pack.h"

/*
 * kernels.h's AdamW, a pack a thread: four arrays are read once and three, or four, written once.
 *   g = grad * grad_scale;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   p -= lr * ( m/bias1 / (sqrt(v/bias2) + eps) + weight_decay * p )
 * Whole packs and odd elements go through the same instructions, so an element's result does not depend on its place.
 */
template <class T> static __global__ void __launch_bounds__(FLAT_THREADS) adamw(struct adamw op)
{
    size_t first = flat_first();
    float inverse1 = 1.0f / op.bias1, inverse2 = 1.0f / op.bias2;
    int n;

    if (first >= op.count)
        return;
    n = pack_count(first, op.count);
    struct pack g = pack_load(op.grad + first, n), m = pack_load(op.exp_avg + first, n);
    struct pack v = pack_load(op.exp_avg_sq + first, n), p = pack_load(op.param + first, n);
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        float gradient = g.v[j] * op.grad_scale;

        m.v[j] = op.beta1 * m.v[j] + (1.0f - op.beta1) * gradient;
        v.v[j] = op.beta2 * v.v[j] + (1.0f - op.beta2) * (gradient * gradient);
        p.v[j] -= op.lr * (m.v[j] * inverse1 / (sqrtf(v.v[j] * inverse2) + op.eps) + op.weight_decay * p.v[j]);
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
