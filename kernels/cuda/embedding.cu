#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"

/* x[r,:] = wte[tokens[r] - vocab_first, :], or 0 for another rank's tokens; a warp a row. The bits as they are. */
template <class T> static __global__ void __launch_bounds__(ROW_WARPS *WARP) embedding_forward(struct embedding op)
{
    size_t row = static_cast<size_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP, cols = static_cast<size_t>(op.cols);
    int64_t from;

    if (row >= static_cast<size_t>(op.rows))
        return;
    from = static_cast<int64_t>(op.tokens[row]) - op.vocab_first;
    for (size_t col = threadIdx.x % WARP * PACK; col < cols; col += WARP * PACK) {
        int n = pack_count(col, cols);
        struct pack x = {};

        if (from >= 0 && from < op.vocab)
            x = pack_load(static_cast<const T *>(op.wte) + static_cast<size_t>(from) * cols + col, n);
        pack_store(static_cast<T *>(op.x) + row * cols + col, x, n);
    }
}

void cuda_embedding_forward(struct device *dev, const struct embedding *op)
{
    if (device_ready(dev, op->dtype, "embedding_forward") && op->rows > 0)
        WITH_TYPE(op->dtype, T, LAUNCH(dev, embedding_forward<T>, row_blocks(op->rows, 1), row_threads(1), 0, *op));
}
