/*
 * cublaslt.h - cuBLASLt, opened when a device is; internal to kernels/cuda. Its functions are called through the table.
 */
#ifndef MUSTER_KERNELS_CUDA_CUBLASLT_H
#define MUSTER_KERNELS_CUDA_CUBLASLT_H

#include <cublasLt.h>

#include "common/library.h"

#define CUBLASLT_FUNCTIONS(f)                                                                                          \
    f(cublasLtCreate) f(cublasLtDestroy) f(cublasLtGetVersion) f(cublasLtGetStatusName) f(cublasLtMatmul)              \
        f(cublasLtMatmulAlgoGetHeuristic) f(cublasLtMatmulDescCreate) f(cublasLtMatmulDescDestroy)                     \
            f(cublasLtMatmulDescSetAttribute) f(cublasLtMatrixLayoutCreate) f(cublasLtMatrixLayoutDestroy)             \
                f(cublasLtMatmulPreferenceCreate) f(cublasLtMatmulPreferenceDestroy)                                   \
                    f(cublasLtMatmulPreferenceSetAttribute)

struct cublaslt {
    CUBLASLT_FUNCTIONS(LIBRARY_MEMBER)
};

/* CODE_CONFIG where it cannot be opened; the environment's MUSTER_CUBLASLT names another file. */
int cublaslt_load(struct cublaslt *cublaslt, struct error *err);

#endif
