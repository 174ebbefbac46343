#include "kernels/cuda/cuda_workspace.h"

static size_t larger_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Whether rows of so many columns begin where cuBLASLt can begin them (product.h). */
static bool align_up(const struct workspace *w, int cols)
{
    return (size_t)cols * dtype_size(w->dtype) % 16 == 0;
}

/* The product that goes to scratch because its epilogue is our own; product.h says which do. */
static size_t unfused_bytes(const struct workspace *w)
{
    bool fits = align_up(w, w->gelu_cols) && align_up(w, w->bias_cols) && align_up(w, w->norm_cols);
    int cols = fits ? 0 : w->bias_cols;

    if ((!fits || w->dtype == DTYPE_F32) && w->gelu_cols > cols)
        cols = w->gelu_cols;
    return (size_t)w->rows * (size_t)cols * sizeof(float);
}

static size_t matmul_scratch(const struct workspace *w)
{
    size_t beside = w->backward ? w->accumulated * sizeof(float) : 0;

    return workspace_matmul(larger_of(unfused_bytes(w), beside > MATMUL_MOST_BESIDE ? 0 : beside));
}

size_t cuda_workspace_bytes(const struct workspace *w)
{
    size_t rows = (size_t)w->rows, bytes = matmul_scratch(w);

    if (!w->backward || w->rows == 0)
        return bytes;
    bytes = larger_of(bytes, workspace_attention_backward(rows, (size_t)w->heads));
    if (w->norm_cols) {
        bytes = larger_of(bytes, workspace_layernorm_backward(w->rows, w->norm_cols));
        bytes = larger_of(bytes, workspace_column_sums(w->rows, w->norm_cols, 2)); /* positions_backward, with types */
        bytes = larger_of(bytes, workspace_embedding_backward(rows, (size_t)w->norm_cols));
    }
    if (w->bias_cols)
        bytes = larger_of(bytes, workspace_column_sums(w->rows, w->bias_cols, 1));
    return larger_of(bytes, workspace_sum_of_squares(w->squares));
}
