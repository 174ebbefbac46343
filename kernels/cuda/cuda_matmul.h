/*
 * cuda_matmul.h - products through cuBLASLt; internal to kernels/cuda.
 *
 * What cuBLASLt is asked is in product.h. Which of its algorithms makes a product is found out once a shape: of the
 * eight that its heuristic ranks first, the fastest, measured on the first operands of that shape, among those that
 * give the same bits as the very first of them that runs: some turn out not to. So the choice, which depends on what
 * else the machine did, does not show in a result: a resumed run, or another rank, may choose differently and computes
 * the same. Algorithms that add partial sums in the output's type, or in place, are never taken; those that split k add
 * in fp32, in a fixed order. Where none runs with an epilogue, one of our own follows the plain product.
 *
 * Two algorithms may round to the same 16 bits by chance: of such results four million numbers are compared, and for
 * smaller ones those of several products. Not measured, so the first: where sixteen products of a shape did not tell
 * algorithms apart, because they are small, mostly zero or not finite; accumulating products of more than 128 MiB, for
 * which there is no place to try; and all, with the environment's MUSTER_MATMUL=first. With MUSTER_MATMUL=any the
 * fastest is taken whatever its bits, to see what the promise above costs. fp32 is true fp32, unless
 * device_allow_tf32.
 *
 * Column sums are made by a kernel of our own; with MUSTER_MATMUL_SUMS=fused by cuBLASLt with the product (its epilogue
 * BGRADA), which reads b once less. That is off because no GPU has run it yet, and because these sums are not compared.
 */
#ifndef MUSTER_KERNELS_CUDA_CUDA_MATMUL_H
#define MUSTER_KERNELS_CUDA_CUDA_MATMUL_H

#include <cublasLt.h>

#include "common/library.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/cuda_workspace.h"

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

#define MATMUL_CANDIDATES 8

/* All about products of one shape. */
struct matmul_choice {
    cublasLtMatmulDesc_t call;
    cublasLtMatrixLayout_t first, second, d;
    cublasLtMatmulAlgo_t candidates[MATMUL_CANDIDATES];
    int count, chosen;
    int tries;                   /* products that were compared */
    unsigned long long told;     /* numbers in them that are finite and not zero */
    bool out[MATMUL_CANDIDATES]; /* does not run, or has other bits than the first */
    bool measured;
};

struct cuda_matmul {
    struct cublaslt lt;
    cublasLtHandle_t handle;
    struct cache *choices; /* of struct matmul_choice by struct product */
    struct CUevent_st *start, *stop;
    bool measures, any, fuses_sums;
};

/* Where one product's operands lie. d is where it goes, and what beta adds is at `add`. */
struct matmul_operands {
    const void *first, *second, *add;
    void *d, *workspace;
};

/* Enqueues the product by that candidate. Returns cuBLASLt's status. */
cublasStatus_t matmul_run(struct device *dev, const struct matmul_choice *choice, const struct product *product,
                          const struct matmul_operands *at, int candidate);

/* matmul_measure.c: sets choice->chosen, if these operands are fit for it. Writes d, which must be allowed, or else
 * elsewhere. The workspace may be another afterwards. */
void matmul_measure(struct device *dev, struct matmul_choice *choice, const struct product *product,
                    const struct matmul_operands *at);

/* Whether a call of cuBLASLt succeeded; if not, the device fails. */
bool matmul_ok(struct device *dev, cublasStatus_t status, const char *doing);
#define LT_OK(dev, call) matmul_ok(dev, call, #call)

#endif
