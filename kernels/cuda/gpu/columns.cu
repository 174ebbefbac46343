#include "kernels/cuda/gpu/pack.h"

#define WARPS 8             /* of a block, which take its rows in turn */
#define STRIP (WARP * PACK) /* columns of a block */
#define LOADS 4             /* of a thread, in flight at once */

static_assert(STRIP == COLUMN_STRIP && COLUMN_LEAST == WARPS * 4, "as it is predicted");

/* Adds the pack to the sums of its kind. Both are touched either way: registers cannot be chosen between. */
template <int KINDS> static inline __device__ void add_kind(struct pack sums[KINDS], const struct pack &x, int kind)
{
#pragma unroll
    for (int k = 0; k < KINDS; k++)
#pragma unroll
        for (int j = 0; j < PACK; j++)
            sums[k].v[j] += KINDS == 1 || kind == k ? x.v[j] : 0.0f;
}

/* The block's warps one after the other, so in their order: shared [STRIP] ends as the sum of all. */
static inline __device__ void add_warps(float *shared, const struct pack &x)
{
    for (unsigned warp = 0; warp < WARPS; warp++) {
        if (threadIdx.x / WARP == warp)
#pragma unroll
            for (int j = 0; j < PACK; j++) {
                /* lanes side by side, not packs: no two in one bank */
                float *at = shared + j * WARP + threadIdx.x % WARP;

                *at = warp == 0 ? x.v[j] : *at + x.v[j];
            }
        __syncthreads();
    }
}

/* partial[block of rows][KINDS][n] */
template <class T, int KINDS, bool WHOLE>
static __global__ void __launch_bounds__(WARPS *WARP)
    sum_rows(float *partial, const T *x, const int32_t *types, int rows, int n, int rows_each)
{
    __shared__ float shared[STRIP];
    int col = static_cast<int>(blockIdx.x) * STRIP + static_cast<int>(threadIdx.x) % WARP * PACK;
    int count = max(min(n - col, PACK), 0), first = static_cast<int>(blockIdx.y) * rows_each;
    int end = count > 0 ? min(first + rows_each, rows) : first;
    struct pack sums[KINDS] = {};

    for (int row = first + static_cast<int>(threadIdx.x) / WARP; row < end; row += LOADS * WARPS) {
        struct raw_pack<T> raw[LOADS];

#pragma unroll
        for (int i = 0; i < LOADS; i++)
            if (row + i * WARPS < end)
                raw[i] = raw_load<WHOLE>(x + static_cast<size_t>(row + i * WARPS) * n + col, count);
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            if (row + i * WARPS < end)
                add_kind<KINDS>(sums, raw_widen(raw[i]), KINDS == 1 ? 0 : types[row + i * WARPS]);
    }
#pragma unroll
    for (int k = 0; k < KINDS; k++) {
        struct pack total;

        add_warps(shared, sums[k]);
        if (threadIdx.x < WARP && count > 0) {
#pragma unroll
            for (int j = 0; j < PACK; j++)
                total.v[j] = shared[j * WARP + threadIdx.x];
            pack_store(partial + (static_cast<size_t>(blockIdx.y) * KINDS + k) * n + col, total, count);
        }
        __syncthreads();
    }
}

#define GROUPS 32 /* of blocks, whose sums are made at the same time */

static __global__ void __launch_bounds__(WARP *GROUPS)
    add_blocks(float *first, float *second, const float *partial, int blocks, int n, bool accumulate)
{
    __shared__ float shared[GROUPS][WARP];
    int lane = static_cast<int>(threadIdx.x) % WARP, group = static_cast<int>(threadIdx.x) / WARP;
    int col = static_cast<int>(blockIdx.x) * WARP + lane;
    size_t stride = static_cast<size_t>(gridDim.y) * n;
    float total = 0, *sum = blockIdx.y ? second : first;

    partial += static_cast<size_t>(blockIdx.y) * n;
#pragma unroll 8
    for (int block = group; block < blocks; block += GROUPS)
        total += col < n ? partial[static_cast<size_t>(block) * stride + col] : 0.0f;
    shared[group][lane] = total;
    __syncthreads();
    if (group > 0 || col >= n)
        return;
    total = 0;
#pragma unroll
    for (int i = 0; i < GROUPS; i++)
        total += shared[i][lane];
    sum[col] = accumulate ? sum[col] + total : total;
}

void cuda_add_partial_sums(struct device *dev, float *first, float *second, const float *partial, int blocks, int n,
                           bool accumulate)
{
    dim3 grid(static_cast<unsigned>((n + WARP - 1) / WARP), second ? 2 : 1);

    LAUNCH(dev, add_blocks, grid, WARP * GROUPS, 0, first, second, partial, blocks, n, accumulate);
}

void cuda_column_sums(struct device *dev, enum dtype dtype, float *sums, const void *x, const int32_t *types, int rows,
                      int n, bool accumulate)
{
    int strips = (n + STRIP - 1) / STRIP, kinds = types ? 2 : 1, width = kinds * n;
    struct column_blocks blocks;
    float *partial;

    if (rows == 0 && !accumulate)
        cuda_zero(dev, sums, static_cast<size_t>(width) * sizeof(float));
    if (rows == 0 || n == 0)
        return;
    blocks = column_blocks(rows, n);
    partial = static_cast<float *>(cuda_workspace(dev, workspace_column_sums(rows, n, kinds)));
    if (!partial)
        return;
    dim3 grid(static_cast<unsigned>(strips), static_cast<unsigned>(blocks.count));
    if (types)
        WITH_TYPE(dtype, T,
                  LAUNCH(dev, (sum_rows<T, 2, false>), grid, WARPS * WARP, 0, partial, static_cast<const T *>(x), types,
                         rows, n, blocks.rows));
    else
        WITH_TYPE(dtype, T,
                  WITH_BOOL(rows_are_whole(n, {x}), WHOLE,
                            LAUNCH(dev, (sum_rows<T, 1, WHOLE>), grid, WARPS * WARP, 0, partial,
                                   static_cast<const T *>(x), types, rows, n, blocks.rows)));
    cuda_add_partial_sums(dev, sums, NULL, partial, blocks.count, width, accumulate);
}

void cuda_bias_backward(struct device *dev, enum dtype dtype, float *db, const void *dy, int rows, int n,
                        bool accumulate)
{
    if (device_ready(dev, dtype, "bias_backward"))
        cuda_column_sums(dev, dtype, db, dy, NULL, rows, n, accumulate);
}
