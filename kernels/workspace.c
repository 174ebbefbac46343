#include "config.h"
#include "kernels/cpu/cpu_workspace.h"
#include "kernels/cuda/cuda_workspace.h"
#include "kernels/kernels.h"

static size_t larger_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t attention_bytes(const struct workspace *w)
{
    int padded = (w->head_size + 15) / 16 * 16; /* to the widest vectors */
    size_t floats =
        w->backward ? workspace_attention_backward_floats(w->seq, padded) : workspace_attention_forward_floats(padded);

    return w->head_size ? (size_t)w->threads * workspace_part_floats(floats) * sizeof(float) : 0;
}

static size_t matmul_bytes(const struct workspace *w)
{
    int rows = w->rows < PANEL_ROWS ? w->rows : PANEL_ROWS;
    size_t panel = w->backward && w->dtype != DTYPE_F32 ? (size_t)rows * (size_t)w->gelu_cols : 0;

    return w->products ? (w->widens ? workspace_widened_floats() : panel) * sizeof(float) : 0;
}

#ifdef HAVE_ONEDNN
#define SCRATCHPAD PRODUCT_SCRATCHPAD
#define COPY       COPY_BYTES
#else
#define SCRATCHPAD ((size_t)0) /* CBLAS has memory of its own, which is not counted */
#define COPY       ((size_t)0)
#endif

/* Operations share one piece of memory, as large as the hungriest needs; the product's library has its own. */
size_t kernels_workspace_bytes(const struct workspace *w)
{
    size_t bytes, library = (size_t)w->threads * SCRATCHPAD + (w->dtype == DTYPE_F32 ? COPY : 0);

    if (w->gpu)
        return cuda_workspace_bytes(w);
    bytes = larger_of(attention_bytes(w), matmul_bytes(w));
    if (w->backward) {
        bytes = larger_of(bytes, workspace_row_sums(w->rows, 2 * (size_t)w->norm_cols));
        bytes = larger_of(bytes, workspace_row_sums(w->rows, (size_t)w->bias_cols));
        bytes = larger_of(bytes, w->squares > 0 ? SQUARES_BLOCKS * sizeof(double) : 0);
    }
    return (bytes + 63) / 64 * 64 + (w->products ? library : 0);
}
