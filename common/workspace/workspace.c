#include "common/workspace/workspace.h"

#include "common/workspace/workspace_cpu.h"
#include "common/workspace/workspace_cuda.h"

static size_t larger_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- of a GPU ---------------------------------------------------------------------------------------------------- */

/* Whether rows of so many columns begin where cuBLASLt can begin them (matmul_call.h). */
static bool align_up(const struct workspace *w, int cols)
{
    return (size_t)cols * dtype_size(w->dtype) % 16 == 0;
}

/* The product that goes to scratch because its epilogue is our own; matmul_call.h says which do. */
static size_t unfused_bytes(const struct workspace *w)
{
    bool fits = align_up(w, w->gelu_cols) && align_up(w, w->bias_cols) && align_up(w, w->norm_cols);
    int cols = fits ? 0 : w->bias_cols;

    if (w->backward && (!fits || w->dtype == DTYPE_F32) && w->gelu_cols > cols)
        cols = w->gelu_cols;
    return (size_t)w->rows * (size_t)cols * sizeof(float);
}

static bool is_grouped(const struct workspace *w)
{
    return w->kv_heads > 0 && w->kv_heads < w->heads;
}

bool kernels_use_cudnn(const struct workspace *w)
{
    return w->gpu && w->head_size > 0 &&
           attention_suits_cudnn(w->attention, w->dtype, w->masked || w->window > 0, w->seq, w->head_size);
}

static size_t gpu_bytes(const struct workspace *w)
{
    size_t rows = (size_t)w->rows, bytes = workspace_matmul(unfused_bytes(w));

    if (!w->backward || w->rows == 0)
        return bytes;
    bytes = larger_of(bytes, workspace_attention_backward(rows, (size_t)w->heads));
    if (kernels_use_cudnn(w)) {
        size_t heads = (size_t)w->heads, seq = (size_t)w->seq, width = is_grouped(w) ? heads * (size_t)w->head_size : 0;

        bytes = larger_of(bytes, workspace_attention_cudnn(rows / seq, heads, seq, width));
    }
    if (w->norm_cols) {
        bytes = larger_of(bytes, workspace_norm_backward(w->rows, w->norm_cols));
        /* position_embedding_backward with types */
        bytes = larger_of(bytes, workspace_column_sums(w->rows, w->norm_cols, 2));
        bytes = larger_of(bytes, workspace_embedding_backward(rows, (size_t)w->norm_cols));
    }
    if (w->bias_cols)
        bytes = larger_of(bytes, workspace_column_sums(w->rows, w->bias_cols, 1));
    return larger_of(bytes, workspace_sum_of_squares(w->squares));
}

/* ---- of a CPU ---------------------------------------------------------------------------------------------------- */

static size_t attention_bytes(const struct workspace *w)
{
    size_t floats = w->backward ? workspace_attention_backward_floats(w->seq, w->head_size)
                                : workspace_attention_forward_floats(w->head_size);

    if (w->head_size == 0)
        return 0;
    floats = (size_t)w->threads * workspace_part_floats(floats);
    if (w->backward && is_grouped(w))
        floats += (size_t)(w->rows / w->seq * w->kv_heads) * workspace_attention_group_floats(w->seq, w->head_size);
    return floats * sizeof(float);
}

static size_t matmul_bytes(const struct workspace *w)
{
    int rows = w->rows < PANEL_ROWS ? w->rows : PANEL_ROWS;
    size_t panel = w->backward && w->dtype != DTYPE_F32 ? (size_t)rows * (size_t)w->gelu_cols : 0;

    return w->products ? (w->widens ? workspace_widened_floats() : panel) * sizeof(float) : 0;
}

/* Operations share one piece of memory, as large as the hungriest needs; the matmul library has its own.
 * query_key_backward always needs less than attention_backward. */
size_t kernels_workspace_bytes(const struct workspace *w)
{
    size_t bytes, library = (size_t)w->threads * MATMUL_SCRATCHPAD + (w->dtype == DTYPE_F32 ? COPY_BYTES : 0);

    if (w->gpu)
        return gpu_bytes(w);
    bytes = larger_of(attention_bytes(w), matmul_bytes(w));
    if (w->backward) {
        bytes = larger_of(bytes, workspace_row_sums(w->rows, 2 * (size_t)w->norm_cols));
        bytes = larger_of(bytes, workspace_row_sums(w->rows, (size_t)w->bias_cols));
        bytes = larger_of(bytes, w->squares > 0 ? SQUARES_BLOCKS * sizeof(double) : 0);
    }
    return (bytes + 63) / 64 * 64 + (w->products ? library : 0);
}
