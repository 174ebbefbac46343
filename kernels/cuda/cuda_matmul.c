/*
 * cuda_matmul.c - matmul through cuBLASLt.
 *
 * matmul_call.h defines the call of cuBLASLt for a matmul. cuda_matmul looks up the call's shape, or asks cuBLASLt's
 * heuristic for its best algorithm, and runs that. The heuristic's answer depends on the shape alone, so all ranks and
 * resumed runs get the same bits. If cuBLASLt has no algorithm with the fused epilogue, or refuses to run it,
 * cuda_matmul computes the plain product, and a kernel of our own applies the epilogue.
 *
 * Algorithms that add partial sums in the output's type, or in place, are never taken; those that split k add in fp32,
 * in a fixed order. fp32 products are not rounded to TF32, unless device_allow_tf32 allows it.
 *
 * Column sums are computed by a kernel of our own: cuBLASLt's epilogue for them (BGRADA) was not faster on an H200.
 */
#include <cublasLt.h>
#include <cuda_runtime_api.h>

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

/* All about matmuls of one shape. A run has some dozens of shapes: none is ever dropped, and looking through them takes
 * less time than a launch. */
struct matmul_choice {
    struct matmul_choice *older;
    struct matmul_call call;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layouts[3]; /* of first, second and d */
    cublasLtMatmulAlgo_t algorithm;
    bool found; /* false: cuBLASLt has no algorithm for this shape, or does not run it */
};

struct matmul_state {
    struct cublaslt lt;
    cublasLtHandle_t handle;
    struct matmul_choice *choices; /* the newest */
};

/* Whether a call of cuBLASLt succeeded; if not, the device fails. */
static bool matmul_ok(struct device *dev, cublasStatus_t status, const char *doing)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return cuda_ok(dev, 0, doing);
    device_fail(dev, CODE_INTERNAL, "cuda: %s: %s", doing, device_cuda(dev)->matmul->lt.cublasLtGetStatusName(status));
    return false;
}

#define LT_OK(dev, call) matmul_ok(dev, call, #call)

#define TEXT(x)  TEXT_(x)
#define TEXT_(x) #x

/* The ABI of the headers; other major versions have other numbers for their attributes. */
static const struct library library = {
    .name = "cuBLASLt",
    .variable = "MUSTER_CUBLASLT",
    .soname = "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR),
    .version = TEXT(CUBLAS_VER_MAJOR) ".0",
};

int cuda_matmul_open(struct device *dev, struct error *err)
{
    static const char *const names[] = {CUBLASLT_FUNCTIONS(LIBRARY_NAME)};
    struct matmul_state *state = calloc(1, sizeof *state);

    device_cuda(dev)->matmul = state;
    if (!state)
        return error_errno(err, CODE_IO, "cuda device");
    if (library_load(&library, names, sizeof names / sizeof *names, &state->lt, err) < 0)
        return -1;
    return matmul_ok(dev, state->lt.cublasLtCreate(&state->handle), "cublasLtCreate") ? 0 : device_status(dev, err);
}

static void destroy_choice(struct device *dev, struct matmul_choice *choice)
{
    const struct cublaslt *lt = &device_cuda(dev)->matmul->lt;

    if (choice->desc)
        LT_OK(dev, lt->cublasLtMatmulDescDestroy(choice->desc));
    for (int i = 0; i < 3; i++)
        if (choice->layouts[i])
            LT_OK(dev, lt->cublasLtMatrixLayoutDestroy(choice->layouts[i]));
    free(choice);
}

void cuda_matmul_close(struct device *dev)
{
    struct matmul_state *state = device_cuda(dev)->matmul;
    struct matmul_choice *choice;

    if (!state)
        return;
    while ((choice = state->choices)) {
        state->choices = choice->older;
        destroy_choice(dev, choice);
    }
    if (state->handle)
        LT_OK(dev, state->lt.cublasLtDestroy(state->handle));
    free(state);
}

static cudaDataType type_of(enum dtype dtype)
{
    static const cudaDataType types[] = {
        [DTYPE_F32] = CUDA_R_32F, [DTYPE_BF16] = CUDA_R_16BF, [DTYPE_F16] = CUDA_R_16F};

    return types[dtype];
}

static bool set_attribute(struct device *dev, struct matmul_choice *choice, cublasLtMatmulDescAttributes_t attribute,
                          const void *value, size_t bytes)
{
    return LT_OK(dev,
                 device_cuda(dev)->matmul->lt.cublasLtMatmulDescSetAttribute(choice->desc, attribute, value, bytes));
}

/* The epilogue's operands, which differ from matmul to matmul. */
static bool set_epilogue_pointers(struct device *dev, struct matmul_choice *choice, const struct matmul *op)
{
    const struct matmul_call *call = &choice->call;
    bool bias = call->epilogue == EPILOGUE_BIAS || call->epilogue == EPILOGUE_BIAS_GELU;

    return (!bias || set_attribute(dev, choice, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &op->bias, sizeof op->bias)) &&
           (!call->ld_aux ||
            set_attribute(dev, choice, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &op->aux, sizeof op->aux));
}

/* The heuristic takes the alignment of the epilogue's operands from their addresses. Its answer must hold for all
 * products of this shape. So it gets a dummy address with the minimum alignment, which is never dereferenced. */
static bool set_dummy_pointers(struct device *dev, struct matmul_choice *choice)
{
    void *somewhere = (void *)(uintptr_t)MATMUL_VECTOR;

    return set_epilogue_pointers(dev, choice, &(struct matmul){.bias = somewhere, .aux = somewhere});
}

static bool describe_call(struct device *dev, struct matmul_choice *choice)
{
    static const cublasLtEpilogue_t epilogues[] = {
        [EPILOGUE_NONE] = CUBLASLT_EPILOGUE_DEFAULT,
        [EPILOGUE_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [EPILOGUE_BIAS_GELU] = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        [EPILOGUE_DGELU] = CUBLASLT_EPILOGUE_DGELU,
    };
    const struct matmul_state *state = device_cuda(dev)->matmul;
    const struct matmul_call *call = &choice->call;
    bool tf32 = dev->tf32 && call->first.dtype == DTYPE_F32;
    cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t first = call->transpose_first ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = call->transpose_second ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = epilogues[call->epilogue];
    int64_t ld_aux = call->ld_aux;

    return LT_OK(dev, state->lt.cublasLtMatmulDescCreate(&choice->desc, compute, CUDA_R_32F)) &&
           set_attribute(dev, choice, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first) &&
           set_attribute(dev, choice, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second) &&
           set_attribute(dev, choice, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) &&
           (!ld_aux || set_attribute(dev, choice, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld_aux, sizeof ld_aux));
}

static bool describe_matrices(struct device *dev, struct matmul_choice *choice)
{
    const struct matmul_matrix *const matrices[] = {&choice->call.first, &choice->call.second, &choice->call.d};
    const struct cublaslt *lt = &device_cuda(dev)->matmul->lt;
    bool ok = true;

    for (int i = 0; i < 3 && ok; i++)
        ok = LT_OK(dev, lt->cublasLtMatrixLayoutCreate(&choice->layouts[i], type_of(matrices[i]->dtype),
                                                       (uint64_t)matrices[i]->rows, (uint64_t)matrices[i]->cols,
                                                       matrices[i]->ld));
    return ok;
}

static bool set_preference(struct device *dev, cublasLtMatmulPreference_t preference, const struct matmul_call *call)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        uint32_t value;
    } preferences[] = {
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)call->first.alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)call->second.alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)call->d.alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)call->d.alignment},
    };
    const struct cublaslt *lt = &device_cuda(dev)->matmul->lt;
    uint64_t workspace = MATMUL_WORKSPACE;
    bool ok = LT_OK(dev, lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                  &workspace, sizeof workspace));

    for (size_t i = 0; ok && i < sizeof preferences / sizeof *preferences; i++)
        ok = LT_OK(dev, lt->cublasLtMatmulPreferenceSetAttribute(preference, preferences[i].attribute,
                                                                 &preferences[i].value, sizeof preferences[i].value));
    return ok;
}

static bool ask_heuristic(struct device *dev, struct matmul_choice *choice)
{
    const struct matmul_state *state = device_cuda(dev)->matmul;
    cublasLtMatmulHeuristicResult_t result;
    cublasLtMatmulPreference_t preference = NULL;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    int count = 0;
    bool ok;

    if (!LT_OK(dev, state->lt.cublasLtMatmulPreferenceCreate(&preference)))
        return false;
    ok = set_preference(dev, preference, &choice->call);
    if (ok)
        status = state->lt.cublasLtMatmulAlgoGetHeuristic(state->handle, choice->desc, choice->layouts[0],
                                                          choice->layouts[1], choice->layouts[2], choice->layouts[2],
                                                          preference, 1, &result, &count);
    if (!LT_OK(dev, state->lt.cublasLtMatmulPreferenceDestroy(preference)) || !ok)
        return false;
    /* No algorithm. cuBLASLt's manual does not say which of these two statuses means an epilogue that is not supported
     * for these types and strides. */
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
        return true;
    if (!matmul_ok(dev, status, "cublasLtMatmulAlgoGetHeuristic"))
        return false;
    choice->found = count > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    if (choice->found)
        choice->algorithm = result.algo;
    return true;
}

/* NULL: the device has failed. */
static struct matmul_choice *choice_for(struct device *dev, const struct matmul *op, bool fuse)
{
    struct matmul_state *state = device_cuda(dev)->matmul;
    struct matmul_choice *choice = state->choices;
    struct matmul_call call;

    matmul_call_of(&call, op, fuse);
    while (choice && memcmp(&choice->call, &call, sizeof call) != 0)
        choice = choice->older;
    if (choice)
        return set_epilogue_pointers(dev, choice, op) ? choice : NULL;
    choice = calloc(1, sizeof *choice);
    if (!choice) {
        device_fail(dev, CODE_IO, "cuda: matmul: no memory");
        return NULL;
    }
    choice->older = state->choices;
    choice->call = call;
    state->choices = choice;
    return describe_call(dev, choice) && describe_matrices(dev, choice) && set_dummy_pointers(dev, choice) &&
                   ask_heuristic(dev, choice) && set_epilogue_pointers(dev, choice, op)
               ? choice
               : NULL;
}

/* For the shape; without one with the fused epilogue, that of the plain product. */
static struct matmul_choice *find_algorithm(struct device *dev, const struct matmul *op)
{
    struct matmul_choice *choice = choice_for(dev, op, true);

    if (choice && !choice->found && choice->call.epilogue != EPILOGUE_NONE)
        choice = choice_for(dev, op, false);
    if (choice && !choice->found)
        device_fail(dev, CODE_INTERNAL, "cuda: matmul: cuBLASLt has no algorithm for m = %d, n = %d, k = %d, dtype %d",
                    op->m, op->n, op->k, (int)op->dtype);
    return dev->failed ? NULL : choice;
}

/* Enqueues d = b a + beta d. cuBLASLt may refuse an algorithm that its heuristic proposed: nothing is enqueued then. */
static bool run_algorithm(struct device *dev, struct matmul_choice *choice, const struct matmul *op, void *d,
                          void *workspace)
{
    const struct matmul_state *state = device_cuda(dev)->matmul;
    const cublasLtMatrixLayout_t *layouts = choice->layouts;
    float alpha = 1, beta = choice->call.accumulate ? 1 : 0;
    cublasStatus_t status = state->lt.cublasLtMatmul(
        state->handle, choice->desc, &alpha, op->b, layouts[0], op->a, layouts[1], &beta, d, layouts[2], d, layouts[2],
        &choice->algorithm, workspace, MATMUL_WORKSPACE, device_cuda(dev)->stream);

    choice->found = status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE &&
                    status != CUBLAS_STATUS_ARCH_MISMATCH;
    if (!choice->found)
        cuda_forget_error();
    return choice->found && matmul_ok(dev, status, "cublasLtMatmul");
}

/* cuBLASLt would make gelu of the sum before it is rounded, and a recomputation has only aux. */
static void matmul_then_gelu(struct device *dev, const struct matmul *op)
{
    struct matmul sum = *op;

    sum.epilogue = EPILOGUE_BIAS;
    sum.c = op->aux;
    cuda_matmul(dev, &sum);
    cuda_gelu_forward(dev, op->dtype, op->c, op->aux, (size_t)op->m * (size_t)op->n);
}

void cuda_matmul(struct device *dev, const struct matmul *given)
{
    struct matmul op = matmul_with_strides(given);
    struct matmul_choice *choice;
    void *workspace, *d;
    const void *summed;
    int columns;

    if (!device_ready(dev, op.dtype, "matmul") || !matmul_valid(dev, &op) || op.m == 0 || op.n == 0)
        return;
    if (op.epilogue == EPILOGUE_BIAS_GELU && !op.c_fp32 && op.ldc == op.n) {
        matmul_then_gelu(dev, &op);
        return;
    }
    do { /* after a refusal find_algorithm takes the plain product; if that is refused, it fails the device */
        choice = find_algorithm(dev, &op);
        workspace = choice ? cuda_workspace(dev, workspace_matmul(matmul_call_scratch(&choice->call))) : NULL;
        if (!workspace)
            return;
        d = choice->call.unfused ? (char *)workspace + MATMUL_WORKSPACE : op.c;
    } while (!run_algorithm(dev, choice, &op, d, workspace) && !dev->failed);
    if (choice->call.unfused)
        cuda_epilogue(dev, &op, d);
    summed = matmul_summed(&op, &columns);
    if (op.sums)
        cuda_bias_backward(dev, op.dtype, op.sums, summed, op.k, columns, false);
}
