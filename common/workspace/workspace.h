/*
 * workspace.h - predicts the workspace of a device's operations. A pure function, for a planner without a device and for
 * the engine. The formulas are those by which the operations allocate (workspace_cpu.h, workspace_cuda.h).
 */
#ifndef MUSTER_COMMON_WORKSPACE_WORKSPACE_H
#define MUSTER_COMMON_WORKSPACE_WORKSPACE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/attention_choice.h"
#include "common/dtype.h"

/*
 * The logits are computed for LOGITS_ROWS_* rows at a time. A CPU takes few rows, so that the result stays in its
 * caches. A GPU takes many: it needs more parallel work, and each further run of rows reads and writes the accumulated
 * weight gradient once more. MUSTER_LOGITS_ROWS in the environment overrides this, for comparisons: results differ in
 * their last bits.
 */
enum { LOGITS_ROWS_CPU = 512, LOGITS_ROWS_GPU = 4096 };

/* What the prediction of memory needs to know of a device. */
struct device_traits {
    int threads;                     /* of a CPU's operations */
    bool widens;                     /* products of the forward pass's type are widened to fp32, which is slower */
    bool is_host;                    /* device_is_host */
    bool gpu;                        /* the operations are those of kernels/cuda */
    int logits_rows;                 /* as above; 0: a CPU's */
    enum attention_choice attention; /* device_choose_attention; not ATTENTION_AUTO where there is no cuDNN */
};

enum { SQUARES_BLOCK = 4096 }; /* elements of a sum_of_squares that are summed alone */

/*
 * Sizes of operations. The prediction does not know:
 *  - on a CPU, how much of its share the product's library will use. The share is allocated whole at the first product,
 *    and was enough for every shape that was tried.
 *  - on a GPU, whether cuBLASLt has an algorithm for an epilogue at these sizes (else the product needs rows * n floats
 *    of scratch).
 */
struct workspace {
    bool gpu; /* device_traits; then threads and widens are not used */
    int threads;
    enum dtype dtype;
    bool widens;        /* device_traits: products of dtype are computed in fp32 */
    bool backward;      /* gradients and their norm, not only forward passes */
    bool products;      /* any product at all; a GPU reserves their memory in any case */
    int rows;           /* of the largest micro-batch */
    int norm_cols;      /* of norm_backward; 0 if it is not called; the same holds below */
    int bias_cols;      /* most columns of a bias_backward */
    int gelu_cols;      /* n of the product with EPILOGUE_DGELU */
    int seq, head_size; /* of attention */
    int heads;          /* of attention */
    int kv_heads;       /* 0: heads */
    int window;         /* of attention; this and the rest only for a GPU */
    bool masked;        /* attention has dropout, lengths or documents */
    enum attention_choice attention;
    size_t squares; /* blocks of a sum_of_squares (SQUARES_BLOCK), counted in each array alone */
};

size_t kernels_workspace_bytes(const struct workspace *sizes);

/* Whether attention of these sizes goes to cuDNN: seq, head_size, dtype, masked, window, kv_heads and attention decide,
 * on a GPU. Only a release of cuDNN that has no deterministic plan for them leaves them to muster's own kernels. */
bool kernels_use_cudnn(const struct workspace *sizes);

#endif
