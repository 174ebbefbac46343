#include "kernels/cuda/gpu/dropout_mask.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/gpu/rows.h"

/* x[r,:] = dropout(x[r,:] + wpe[(first_row + r) % seq, :] + wtt[types[r], :]), in place; a warp a row. */
template <class T>
static __global__ void __launch_bounds__(ROW_WARPS *WARP) positions_forward(struct positions op, struct mask mask)
{
    size_t row = static_cast<size_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP, cols = static_cast<size_t>(op.cols);
    const T *wpe, *wtt = NULL;

    if (row >= static_cast<size_t>(op.rows))
        return;
    wpe =
        static_cast<const T *>(op.wpe) + (static_cast<size_t>(op.first_row) + row) % static_cast<size_t>(op.seq) * cols;
    if (op.wtt)
        wtt = static_cast<const T *>(op.wtt) + static_cast<size_t>(op.types[row]) * cols;
    for (size_t col = threadIdx.x % WARP * PACK; col < cols; col += WARP * PACK) {
        T *at = static_cast<T *>(op.x) + row * cols + col;
        int n = pack_count(col, cols);
        struct pack x = pack_load(at, n);

        pack_add(x, pack_load(wpe + col, n));
        if (wtt)
            pack_add(x, pack_load(wtt + col, n));
        mask_apply(mask, x, row * cols + col);
        pack_store(at, x, n);
    }
}

void cuda_positions_forward(struct device *dev, const struct positions *op)
{
    if (device_ready(dev, op->dtype, "positions_forward") && op->rows > 0)
        WITH_TYPE(
            op->dtype, T,
            LAUNCH(dev, positions_forward<T>, row_blocks(op->rows, 1), row_threads(1), 0, *op, mask_of(&op->dropout)));
}

#define STRIP (WARP * PACK) /* columns of a warp */

/*
 * A warp a position and a strip of columns: it masks the gradient's rows of that position, in place, and adds up what
 * is stored. Every row has one position, so each is read and written once. Positions alone, some hundreds, are too few
 * warps to keep a GPU's memory busy.
 */
template <class T>
static __global__ void __launch_bounds__(ROW_WARPS *WARP) positions_backward(struct positions op, struct mask mask)
{
    size_t position = static_cast<size_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP;
    size_t cols = static_cast<size_t>(op.cols), seq = static_cast<size_t>(op.seq);
    size_t first = (position + seq - static_cast<size_t>(op.first_row) % seq) % seq; /* the first of its rows */
    size_t col = static_cast<size_t>(blockIdx.y) * STRIP + threadIdx.x % WARP * PACK;
    struct pack sum = {};
    int n;

    if (position >= seq || col >= cols)
        return;
    n = pack_count(col, cols);
    for (size_t row = first; row < static_cast<size_t>(op.rows); row += seq) {
        T *at = static_cast<T *>(op.x) + row * cols + col;
        struct pack x = pack_load(at, n);

        mask_apply(mask, x, row * cols + col);
        if (mask.threshold)
            pack_store(at, x, n);
#pragma unroll
        for (int j = 0; j < PACK; j++)
            sum.v[j] += round_to<T>(x.v[j]);
    }
    if (op.dwpe)
        pack_store(op.dwpe + position * cols + col, sum, n);
}

void cuda_positions_backward(struct device *dev, const struct positions *op)
{
    dim3 grid(row_blocks(op->seq, 1), static_cast<unsigned>((op->cols + STRIP - 1) / STRIP));

    if (!device_ready(dev, op->dtype, "positions_backward"))
        return;
    WITH_TYPE(op->dtype, T, LAUNCH(dev, positions_backward<T>, grid, row_threads(1), 0, *op, mask_of(&op->dropout)));
    if (op->dwtt && op->rows == 0)
        cuda_zero(dev, op->dwtt, 2 * static_cast<size_t>(op->cols) * sizeof(float));
    else if (op->dwtt)
        cuda_column_sums(dev, op->dtype, op->dwtt, op->x, op->types, op->rows, op->cols, false);
}
