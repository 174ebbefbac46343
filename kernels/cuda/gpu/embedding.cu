#include "kernels/cuda/gpu/dropout_mask.h"
#include "kernels/cuda/gpu/rows.h"

/* x[r,:] = wte[tokens[r] - vocab_first, :], or 0 for tokens of another tp rank. One warp per row. Copies bits
 * unchanged. */
template <class T> static __global__ void __launch_bounds__(ROW_WARPS *WARP) lookup_rows(struct embedding op)
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
        WITH_TYPE(op->dtype, T, LAUNCH(dev, lookup_rows<T>, grid_of_rows(op->rows, 1), row_threads(1), 0, *op));
}

/*
 * dwte[token - vocab_first, :] += x[r,:], without atomics and always in the same order. Tokens are few and rows of one
 * token may be many (padding, masks), so the rows are sorted by token, ties in their order, and the sorted sequence is
 * cut into chunks of CHUNK. A run is a maximal range of sorted rows with the same token.
 *
 *   sort_parts  sorts each part of PART rows: a row's place is the number of rows of its part that come before it.
 *   merge_parts finds the place of each row among all: its place in its part, and by binary search how many rows of
 *               each other part come before it.
 *   add_runs  each chunk adds its rows up. A run that lies within the chunk has no other writer: it goes to dwte. What
 *             continues a run from before goes to head[chunk], the beginning of a run that goes on after to
 *             tail[chunk].
 *   add_cut   the chunk with the beginning of a run that goes on adds its tail and the heads that follow.
 */
#define CHUNK   EMBEDDING_CHUNK
#define THREADS 128 /* a pack of columns each */
#define PART    512 /* rows */
#define TILE    4   /* parts in shared memory at once */
#define MERGERS 256

/* Tokens of other ranks have the number `vocab`, and so come last. */
struct sorted {
    int *number, *row;           /* [rows]: of the token, and where it came from */
    int *part_number, *part_row; /* the same, each part sorted alone */
    float *head, *tail;          /* [chunks][cols] */
};

static inline __device__ int token_number(const struct embedding &op, int row)
{
    int64_t number = static_cast<int64_t>(op.tokens[row]) - op.vocab_first;

    return number >= 0 && number < op.vocab ? static_cast<int>(number) : op.vocab;
}

static __global__ void __launch_bounds__(PART) sort_parts(struct embedding op, struct sorted sorted)
{
    __shared__ int4 numbers[PART / 4];
    int place = static_cast<int>(threadIdx.x), first = static_cast<int>(blockIdx.x) * PART, row = first + place;
    int mine = row < op.rows ? token_number(op, row) : op.vocab + 1, rank = 0; /* no row: after all that are */

    reinterpret_cast<int *>(numbers)[place] = mine;
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < PART; i += 4) {
        int4 other = numbers[i / 4];

        rank += other.x < mine + (i < place);
        rank += other.y < mine + (i + 1 < place);
        rank += other.z < mine + (i + 2 < place);
        rank += other.w < mine + (i + 3 < place);
    }
    if (row >= op.rows)
        return;
    sorted.part_number[first + rank] = mine;
    sorted.part_row[first + rank] = row;
}

/* How many of the sorted numbers [PART] are less than key. */
static inline __device__ int count_less(const int *numbers, int key)
{
    int count = 0;

#pragma unroll
    for (int step = PART / 2; step > 0; step /= 2)
        count += numbers[count + step - 1] < key ? step : 0;
    return count + (numbers[count] < key);
}

static __global__ void __launch_bounds__(MERGERS) merge_parts(struct embedding op, struct sorted sorted)
{
    __shared__ int numbers[TILE * PART];
    int at = static_cast<int>(blockIdx.x * MERGERS + threadIdx.x), part = at / PART, rank = at % PART;
    int mine = at < op.rows ? sorted.part_number[at] : 0;

    for (int first = 0; first < op.rows; first += TILE * PART) {
        __syncthreads();
#pragma unroll
        for (int i = static_cast<int>(threadIdx.x); i < TILE * PART; i += MERGERS)
            numbers[i] = first + i < op.rows ? sorted.part_number[first + i] : op.vocab + 1;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            int other = first / PART + i, less = count_less(numbers + i * PART, mine + (other < part));

            rank += other == part ? 0 : less;
        }
    }
    if (at >= op.rows)
        return;
    sorted.number[rank] = mine;
    sorted.row[rank] = sorted.part_row[at];
}

static inline __device__ void add_to(float *p, const struct pack &x, int n)
{
    struct pack sum = pack_load(p, n);

    pack_add(sum, x);
    pack_store(p, sum, n);
}

template <class T> static __global__ void __launch_bounds__(THREADS) add_runs(struct embedding op, struct sorted sorted)
{
    size_t cols = static_cast<size_t>(op.cols), col = (blockIdx.y * THREADS + threadIdx.x) * PACK;
    int chunk = static_cast<int>(blockIdx.x), first = chunk * CHUNK, end = min(first + CHUNK, op.rows), n;
    bool begun_here = first == 0 || sorted.number[first - 1] != sorted.number[first];
    struct pack sum = {};

    if (col >= cols)
        return;
    n = pack_count(col, cols);
#pragma unroll 4
    for (int i = first; i < end; i++) {
        int number = sorted.number[i];
        bool goes_on = i + 1 < op.rows && sorted.number[i + 1] == number;

        if (number == op.vocab)
            return;
        pack_add(sum, pack_load(static_cast<const T *>(op.x) + static_cast<size_t>(sorted.row[i]) * cols + col, n));
        if (goes_on && i + 1 < end)
            continue;
        if (!begun_here)
            pack_store(sorted.head + static_cast<size_t>(chunk) * cols + col, sum, n);
        else if (goes_on)
            pack_store(sorted.tail + static_cast<size_t>(chunk) * cols + col, sum, n);
        else
            add_to(op.dwte + static_cast<size_t>(number) * cols + col, sum, n);
        begun_here = true;
        sum = {};
    }
}

static __global__ void __launch_bounds__(THREADS) add_cut(struct embedding op, struct sorted sorted)
{
    size_t cols = static_cast<size_t>(op.cols), col = (blockIdx.y * THREADS + threadIdx.x) * PACK;
    int chunk = static_cast<int>(blockIdx.x), next = (chunk + 1) * CHUNK, last = chunk, number, n;
    struct pack sum;

    if (col >= cols || next >= op.rows)
        return;
    number = sorted.number[next - 1];
    if (number == op.vocab || sorted.number[next] != number)
        return;
    if (sorted.number[chunk * CHUNK] == number && chunk > 0 && sorted.number[chunk * CHUNK - 1] == number)
        return; /* begun in an earlier chunk, which has it */
    while ((last + 1) * CHUNK < op.rows && sorted.number[(last + 1) * CHUNK] == number)
        last++;
    n = pack_count(col, cols);
    sum = pack_load(sorted.tail + static_cast<size_t>(chunk) * cols + col, n);
#pragma unroll 4
    for (int i = chunk + 1; i <= last; i++)
        pack_add(sum, pack_load(sorted.head + static_cast<size_t>(i) * cols + col, n));
    add_to(op.dwte + static_cast<size_t>(number) * cols + col, sum, n);
}

void cuda_embedding_backward(struct device *dev, const struct embedding *op)
{
    size_t rows = static_cast<size_t>(op->rows), cols = static_cast<size_t>(op->cols);
    size_t chunks = (rows + CHUNK - 1) / CHUNK, sums = chunks * cols;
    struct sorted sorted;
    float *at;

    if (!device_ready(dev, op->dtype, "embedding_backward") || op->rows == 0 || op->cols == 0 || op->vocab == 0)
        return;
    at = static_cast<float *>(cuda_workspace(dev, workspace_embedding_backward(rows, cols)));
    if (!at)
        return;
    sorted.head = at;
    sorted.tail = at + sums;
    sorted.number = reinterpret_cast<int *>(at + 2 * sums);
    sorted.row = sorted.number + rows;
    sorted.part_number = sorted.row + rows;
    sorted.part_row = sorted.part_number + rows;
    dim3 grid(static_cast<unsigned>(chunks), static_cast<unsigned>((cols + THREADS * PACK - 1) / (THREADS * PACK)));
    LAUNCH(dev, sort_parts, static_cast<unsigned>((rows + PART - 1) / PART), PART, 0, *op, sorted);
    LAUNCH(dev, merge_parts, static_cast<unsigned>((rows + MERGERS - 1) / MERGERS), MERGERS, 0, *op, sorted);
    WITH_TYPE(op->dtype, T, LAUNCH(dev, add_runs<T>, grid, THREADS, 0, *op, sorted));
    LAUNCH(dev, add_cut, grid, THREADS, 0, *op, sorted);
}

static inline __device__ size_t position_of(const struct position_embedding &op, size_t row)
{
    size_t start = op.document_start ? static_cast<size_t>(op.document_start[row]) : 0;

    return (static_cast<size_t>(op.first_row) + row) % static_cast<size_t>(op.seq) - start;
}

/* x[r,:] = dropout(x[r,:] + wpe[position, :] + wtt[types[r], :]), in place; a warp a row. */
template <class T>
static __global__ void __launch_bounds__(ROW_WARPS *WARP)
    position_embedding_forward(struct position_embedding op, struct mask mask)
{
    size_t row = static_cast<size_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP, cols = static_cast<size_t>(op.cols);
    const T *wpe, *wtt = NULL;

    if (row >= static_cast<size_t>(op.rows))
        return;
    wpe = static_cast<const T *>(op.wpe) + position_of(op, row) * cols;
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

void cuda_position_embedding_forward(struct device *dev, const struct position_embedding *op)
{
    if (device_ready(dev, op->dtype, "position_embedding_forward") && op->rows > 0)
        WITH_TYPE(op->dtype, T,
                  LAUNCH(dev, position_embedding_forward<T>, grid_of_rows(op->rows, 1), row_threads(1), 0, *op,
                         mask_of(&op->dropout)));
}

#define STRIP (WARP * PACK) /* columns of a warp */

/* Masks a pack of the gradient, in place, and adds what is stored to sum. */
template <class T>
static inline __device__ void add_gradient(struct pack &sum, const struct position_embedding &op,
                                           const struct mask &mask, size_t at, int n)
{
    T *x_at = static_cast<T *>(op.x) + at;
    struct pack x = pack_load(x_at, n);

    mask_apply(mask, x, at);
    if (mask.threshold)
        pack_store(x_at, x, n);
#pragma unroll
    for (int j = 0; j < PACK; j++)
        sum.v[j] += round_to<T>(x.v[j]);
}

/*
 * A warp a position and a strip of columns: it masks the gradient's rows of that position, in place, and adds up what
 * is stored. Every row has one position, so each is read and written once. Positions alone, some hundreds, are too few
 * warps to keep a GPU's memory busy.
 */
template <class T>
static __global__ void __launch_bounds__(ROW_WARPS *WARP)
    position_embedding_backward(struct position_embedding op, struct mask mask)
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
    for (size_t row = first; row < static_cast<size_t>(op.rows); row += seq)
        add_gradient<T>(sum, op, mask, row * cols + col, n);
    if (op.dwpe)
        pack_store(op.dwpe + position * cols + col, sum, n);
}

/* The same where documents have positions of their own: each warp looks for the rows of its position among all rows, 32
 * at a time, and takes them in their order. */
template <class T>
static __global__ void __launch_bounds__(ROW_WARPS *WARP)
    document_positions_backward(struct position_embedding op, struct mask mask)
{
    size_t position = static_cast<size_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP;
    size_t rows = static_cast<size_t>(op.rows), cols = static_cast<size_t>(op.cols), lane = threadIdx.x % WARP;
    size_t col = static_cast<size_t>(blockIdx.y) * STRIP + lane * PACK;
    struct pack sum = {};
    int n = col < cols ? pack_count(col, cols) : 0;

    if (position >= static_cast<size_t>(op.seq))
        return;
    for (size_t first = 0; first < rows; first += WARP) {
        bool is_here = first + lane < rows && position_of(op, first + lane) == position;

        for (unsigned left = __ballot_sync(FULL_WARP, is_here); left; left &= left - 1) {
            size_t row = first + static_cast<size_t>(__ffs(static_cast<int>(left)) - 1);

            if (n > 0)
                add_gradient<T>(sum, op, mask, row * cols + col, n);
        }
    }
    if (op.dwpe && n > 0)
        pack_store(op.dwpe + position * cols + col, sum, n);
}

void cuda_position_embedding_backward(struct device *dev, const struct position_embedding *op)
{
    dim3 grid(grid_of_rows(op->seq, 1), static_cast<unsigned>((op->cols + STRIP - 1) / STRIP));

    if (!device_ready(dev, op->dtype, "position_embedding_backward"))
        return;
    if (op->document_start)
        WITH_TYPE(op->dtype, T,
                  LAUNCH(dev, document_positions_backward<T>, grid, row_threads(1), 0, *op, mask_of(&op->dropout)));
    else
        WITH_TYPE(op->dtype, T,
                  LAUNCH(dev, position_embedding_backward<T>, grid, row_threads(1), 0, *op, mask_of(&op->dropout)));
    if (op->dwtt)
        cuda_column_sums(dev, op->dtype, op->dwtt, op->x, op->types, op->rows, op->cols, false);
}
