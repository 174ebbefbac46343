/*
 * cuda_matmul.h - matmul through cuBLASLt; internal to kernels/cuda.
 *
 * matmul_call.h defines the call of cuBLASLt for a matmul. cuda_matmul (cuda_matmul.c) looks up the call's shape, or
 * asks cuBLASLt's heuristic for its best algorithm, and runs that. The heuristic's answer depends on the shape alone,
 * so all ranks and resumed runs get the same bits. If cuBLASLt has no algorithm with the fused epilogue, or refuses to
 * run it, cuda_matmul computes the plain product, and a kernel of our own applies the epilogue.
 *
 * Algorithms that add partial sums in the output's type, or in place, are never taken; those that split k add in fp32,
 * in a fixed order. fp32 products are not rounded to TF32, unless device_allow_tf32 allows it.
 *
 * Column sums are computed by a kernel of our own: cuBLASLt's epilogue for them (BGRADA) was not faster on an H200.
 */
#ifndef MUSTER_KERNELS_CUDA_CUDA_MATMUL_H
#define MUSTER_KERNELS_CUDA_CUDA_MATMUL_H

#include <cublasLt.h>

#include "common/library.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/matmul_call.h"

/* cuBLASLt, opened with the device. MUSTER_CUBLASLT in the environment names another file. */
#define CUBLASLT_FUNCTIONS(f)                                                                                          \
    f(cublasLtCreate) f(cublasLtDestroy) f(cublasLtGetVersion) f(cublasLtGetStatusName) f(cublasLtMatmul)              \
        f(cublasLtMatmulAlgoGetHeuristic) f(cublasLtMatmulDescCreate) f(cublasLtMatmulDescDestroy)                     \
            f(cublasLtMatmulDescSetAttribute) f(cublasLtMatrixLayoutCreate) f(cublasLtMatrixLayoutDestroy)             \
                f(cublasLtMatmulPreferenceCreate) f(cublasLtMatmulPreferenceDestroy)                                   \
                    f(cublasLtMatmulPreferenceSetAttribute)

struct cublaslt {
    CUBLASLT_FUNCTIONS(LIBRARY_MEMBER)
};

/* All about matmuls of one shape. */
struct matmul_choice {
    struct matmul_call call;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t first, second, d;
    cublasLtMatmulAlgo_t algorithm;
    bool found; /* false: cuBLASLt has no algorithm for this shape, or does not run it */
};

struct matmul_state {
    struct cublaslt lt;
    cublasLtHandle_t handle;
    struct cache *choices; /* of struct matmul_choice by struct matmul_call */
};

/* The addresses of one matmul's operands: d = first * second + beta * d. */
struct matmul_operands {
    const void *first, *second;
    void *d, *workspace;
};

/* Whether a call of cuBLASLt succeeded; if not, the device fails. */
bool matmul_ok(struct device *dev, cublasStatus_t status, const char *doing);
#define LT_OK(dev, call) matmul_ok(dev, call, #call)

#endif
