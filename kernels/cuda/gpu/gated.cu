#include "kernels/cuda/gpu/pack.h"

/*
 * silu(z) = z s with s = 1 / (1 + e), e = exp(-z). Its derivative is s (1 + z (1 - s)), where 1 - s is e s without
 * cancellation for z > 0. At e = infinity, s and silu are 0.
 *
 * A thread has a pack of gates and the pack of `up` beside it.
 */
static inline __device__ float silu_of(float z, float up)
{
    return z / (1.0f + expf(-z)) * up;
}

/* {dy up silu'(z), dy silu(z)} */
static inline __device__ float2 silu_gradient(float z, float up, float dy)
{
    float e = expf(-z), s = 1.0f / (1.0f + e), rest = z > 0 ? __fmul_rn(e, s) : 1.0f - s;

    return make_float2(dy * up * (s * fmaf(z, rest, 1.0f)), dy * (z / (1.0f + e)));
}

/* The thread's place in x: of its gates, whose first column is *col. false: it has none. */
static inline __device__ bool gate_of(const struct gated &op, size_t *row, int *col)
{
    unsigned packs = (static_cast<unsigned>(op.cols) + PACK - 1) / PACK, i = blockIdx.x * FLAT_THREADS + threadIdx.x;

    *row = i / packs;
    *col = static_cast<int>(i % packs) * PACK;
    return *row < static_cast<size_t>(op.rows);
}

template <class T, bool WHOLE> static __global__ void __launch_bounds__(FLAT_THREADS) gated_forward(struct gated op)
{
    size_t row, cols = static_cast<size_t>(op.cols);
    struct raw_pack<T> raw_gate, raw_up;
    struct pack gate, up;
    int col;

    if (!gate_of(op, &row, &col))
        return;
    const T *x = static_cast<const T *>(op.x) + row * 2 * cols + col;
    int n = min(op.cols - col, PACK);

    raw_gate = raw_load<WHOLE>(x, n);
    raw_up = raw_load<WHOLE>(x + cols, n);
    gate = raw_widen(raw_gate);
    up = raw_widen(raw_up);
#pragma unroll
    for (int j = 0; j < PACK; j++)
        gate.v[j] = silu_of(gate.v[j], up.v[j]);
    raw_store<WHOLE>(static_cast<T *>(op.y) + row * cols + col, raw_narrow<T>(gate), n);
}

template <class T, bool WHOLE> static __global__ void __launch_bounds__(FLAT_THREADS) gated_backward(struct gated op)
{
    size_t row, cols = static_cast<size_t>(op.cols);
    struct raw_pack<T> raw_gate, raw_up, raw_dy;
    struct pack gate, up, dy;
    int col;

    if (!gate_of(op, &row, &col))
        return;
    const T *x = static_cast<const T *>(op.x) + row * 2 * cols + col;
    T *dx = static_cast<T *>(op.dx) + row * 2 * cols + col;
    int n = min(op.cols - col, PACK);

    raw_gate = raw_load<WHOLE>(x, n);
    raw_up = raw_load<WHOLE>(x + cols, n);
    raw_dy = raw_load<WHOLE>(dx + cols, n);
    gate = raw_widen(raw_gate);
    up = raw_widen(raw_up);
    dy = raw_widen(raw_dy);
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        float2 gradient = silu_gradient(gate.v[j], up.v[j], dy.v[j]);

        gate.v[j] = gradient.x;
        up.v[j] = gradient.y;
    }
    raw_store<WHOLE>(dx, raw_narrow<T>(gate), n);
    raw_store<WHOLE>(dx + cols, raw_narrow<T>(up), n);
}

static unsigned gated_blocks(const struct gated *op)
{
    return flat_blocks(static_cast<size_t>(op->rows) * static_cast<size_t>((op->cols + PACK - 1) / PACK * PACK));
}

void cuda_gated_forward(struct device *dev, const struct gated *op)
{
    if (device_ready(dev, op->dtype, "gated_forward") && op->rows > 0 && op->cols > 0)
        WITH_TYPE(op->dtype, T,
                  WITH_BOOL(rows_are_whole(op->cols, {op->x, op->y}), WHOLE,
                            LAUNCH(dev, (gated_forward<T, WHOLE>), gated_blocks(op), FLAT_THREADS, 0, *op)));
}

void cuda_gated_backward(struct device *dev, const struct gated *op)
{
    if (device_ready(dev, op->dtype, "gated_backward") && op->rows > 0 && op->cols > 0)
        WITH_TYPE(op->dtype, T,
                  WITH_BOOL(rows_are_whole(op->cols, {op->x, op->dx}), WHOLE,
                            LAUNCH(dev, (gated_backward<T, WHOLE>), gated_blocks(op), FLAT_THREADS, 0, *op)));
}
