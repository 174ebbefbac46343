/*
 * cuda_matmul.h - matmul through cuBLASLt; internal to kernels/cuda.
 *
 * matmul_call.h defines the call of cuBLASLt for a matmul. cuda_matmul (cuda_matmul.c) does this:
 *  1. find_candidates looks up the call's shape, or asks cuBLASLt's heuristic for its eight best algorithms.
 *  2. If the shape is not settled yet, matmul_measure (matmul_measure.c) runs them on the present operands. It
 *     excludes those that do not run or whose result differs in any bit from that of the first that runs, and chooses
 *     the fastest of the rest. Later matmuls of the shape use that one.
 *  3. run_chosen enqueues the chosen algorithm. If cuBLASLt refuses it, the next one that is not excluded is chosen.
 *  4. If no candidate with the fused epilogue is left, cuda_matmul repeats steps 1 to 3 for the plain product, and a
 *     kernel of our own applies the epilogue.
 *
 * A measured time depends on the machine's load, so a resumed run or another rank may choose differently. Because of
 * step 2 the result is the same. Algorithms that add partial sums in the output's type, or in place, are never
 * candidates; those that split k add in fp32, in a fixed order.
 *
 * Two different algorithms may round to the same 16 bits by chance. So at least four million 16-bit numbers are
 * compared; if one matmul has fewer, those of several matmuls of the shape are added up. The heuristic's first
 * algorithm is taken without a measurement: (1) if sixteen matmuls of a shape did not have enough numbers to compare,
 * because their results are small, mostly zero or not finite; (2) for accumulating matmuls of more than 128 MiB, for
 * which there is no memory to try in; (3) with MUSTER_MATMUL=first in the environment. With MUSTER_MATMUL=any the
 * fastest is taken even if its bits differ, to measure the cost of step 2's comparison. fp32 products are not rounded
 * to TF32, unless device_allow_tf32 allows it.
 *
 * Column sums are computed by a kernel of our own. With MUSTER_MATMUL_SUMS=fused cuBLASLt computes them in the
 * product's epilogue (BGRADA), which reads b once less. The default is off, because no GPU has run it yet and these
 * sums are not compared.
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

#define MATMUL_CANDIDATES 8

/* All about matmuls of one shape. */
struct matmul_choice {
    struct matmul_call call;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t first, second, d;
    cublasLtMatmulAlgo_t candidates[MATMUL_CANDIDATES];
    int count, chosen;
    int tries;                        /* matmuls that were compared */
    unsigned long long compared;      /* numbers in them that are finite and not near zero */
    bool excluded[MATMUL_CANDIDATES]; /* does not run, or has other bits than the first */
    bool settled;                     /* this shape need not be tried again */
};

struct matmul_state {
    struct cublaslt lt;
    cublasLtHandle_t handle;
    struct cache *choices; /* of struct matmul_choice by struct matmul_call */
    struct CUevent_st *start, *stop;
    bool measures, any, fuses_sums;
};

/* The addresses of one matmul's operands: d = first * second + beta * add. */
struct matmul_operands {
    const void *first, *second, *add;
    void *d, *workspace;
};

/* Enqueues the matmul with that candidate. Returns cuBLASLt's status. */
cublasStatus_t matmul_run(struct device *dev, const struct matmul_choice *choice, const struct matmul_operands *at,
                          int candidate);

/* matmul_measure.c: sets choice->chosen and excluded[], and `settled` when the measurement of the shape is finished.
 * Writes to d, or to the workspace if the product accumulates or is unfused. May reallocate the workspace: the caller
 * must set `at` again. */
void matmul_measure(struct device *dev, struct matmul_choice *choice, const struct matmul_operands *at);

/* Whether a call of cuBLASLt succeeded; if not, the device fails. */
bool matmul_ok(struct device *dev, cublasStatus_t status, const char *doing);
#define LT_OK(dev, call) matmul_ok(dev, call, #call)

#endif
