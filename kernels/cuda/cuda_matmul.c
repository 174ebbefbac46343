#include "kernels/cuda/cuda_matmul.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cache.h"
#include "kernels/cuda/operations.h"

bool matmul_ok(struct device *dev, cublasStatus_t status, const char *doing)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return cuda_ok(dev, 0, doing);
    device_fail(dev, CODE_INTERNAL, "cuda: %s: %s", doing, device_cuda(dev)->matmul->lt.cublasLtGetStatusName(status));
    return false;
}

#define TEXT(x)  TEXT_(x)
#define TEXT_(x) #x

/* The ABI of the headers; other major versions have other numbers for their attributes. */
static const struct library library = {
    .name = "cuBLASLt",
    .variable = "MUSTER_CUBLASLT",
    .sonames = {"libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)},
    .version = TEXT(CUBLAS_VER_MAJOR) ".0",
};

static int load_cublaslt(struct cublaslt *cublaslt, struct error *err)
{
    static const char *const names[] = {CUBLASLT_FUNCTIONS(LIBRARY_NAME)};

    return library_load(&library, names, sizeof names / sizeof *names, cublaslt, err);
}

static bool environment_is(const char *name, const char *value)
{
    const char *text = getenv(name);

    return text && strcmp(text, value) == 0;
}

int cuda_matmul_open(struct device *dev, struct error *err)
{
    struct cuda_matmul *matmul = calloc(1, sizeof *matmul);
    cublasStatus_t status;

    device_cuda(dev)->matmul = matmul;
    if (!matmul)
        return error_errno(err, CODE_IO, "cuda device");
    matmul->measures = !environment_is("MUSTER_MATMUL", "first");
    matmul->any = environment_is("MUSTER_MATMUL", "any");
    matmul->fuses_sums = environment_is("MUSTER_MATMUL_SUMS", "fused");
    matmul->choices = cache_create(sizeof(struct product), sizeof(struct matmul_choice), err);
    if (!matmul->choices || load_cublaslt(&matmul->lt, err) < 0)
        return -1;
    status = matmul->lt.cublasLtCreate(&matmul->handle);
    if (status != CUBLAS_STATUS_SUCCESS)
        return error_set(err, CODE_INTERNAL, "cuda: cublasLtCreate: %s", matmul->lt.cublasLtGetStatusName(status));
    if (!CUDA_OK(dev, cudaEventCreate(&matmul->start)) || !CUDA_OK(dev, cudaEventCreate(&matmul->stop)))
        return device_status(dev, err);
    return 0;
}

static void destroy_choice(struct device *dev, struct matmul_choice *choice)
{
    const struct cublaslt *lt = &device_cuda(dev)->matmul->lt;

    if (choice->call)
        LT_OK(dev, lt->cublasLtMatmulDescDestroy(choice->call));
    if (choice->first)
        LT_OK(dev, lt->cublasLtMatrixLayoutDestroy(choice->first));
    if (choice->second)
        LT_OK(dev, lt->cublasLtMatrixLayoutDestroy(choice->second));
    if (choice->d)
        LT_OK(dev, lt->cublasLtMatrixLayoutDestroy(choice->d));
}

void cuda_matmul_close(struct device *dev)
{
    struct cuda_matmul *matmul = device_cuda(dev)->matmul;

    if (!matmul)
        return;
    for (size_t i = 0; matmul->choices && i < cache_count(matmul->choices); i++)
        destroy_choice(dev, cache_value(matmul->choices, i));
    if (matmul->start)
        CUDA_OK(dev, cudaEventDestroy(matmul->start));
    if (matmul->stop)
        CUDA_OK(dev, cudaEventDestroy(matmul->stop));
    if (matmul->handle)
        LT_OK(dev, matmul->lt.cublasLtDestroy(matmul->handle));
    cache_destroy(matmul->choices);
    free(matmul);
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
                 device_cuda(dev)->matmul->lt.cublasLtMatmulDescSetAttribute(choice->call, attribute, value, bytes));
}

/* The epilogue's operands, which differ from product to product. */
static bool set_operands(struct device *dev, struct matmul_choice *choice, const struct product *product,
                         const struct matmul *op)
{
    bool bias = product->epilogue == EPILOGUE_BIAS || product->epilogue == EPILOGUE_BIAS_GELU;

    return (!bias || set_attribute(dev, choice, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &op->bias, sizeof op->bias)) &&
           (!product->sums ||
            set_attribute(dev, choice, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &op->sums, sizeof op->sums)) &&
           (!product->ld_aux ||
            set_attribute(dev, choice, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &op->aux, sizeof op->aux));
}

/* The heuristic takes the alignment of the epilogue's operands from their addresses. What it answers is to hold for all
 * products of the shape: so it sees an address that is aligned as the worst of theirs may be. Nobody reads there. */
static bool set_any_operands(struct device *dev, struct matmul_choice *choice, const struct product *product)
{
    void *somewhere = (void *)(uintptr_t)PRODUCT_VECTOR;

    return set_operands(dev, choice, product,
                        &(struct matmul){.bias = somewhere, .aux = somewhere, .sums = (float *)somewhere});
}

static bool describe_call(struct device *dev, struct matmul_choice *choice, const struct product *product)
{
    static const cublasLtEpilogue_t epilogues[] = {
        [EPILOGUE_NONE] = CUBLASLT_EPILOGUE_DEFAULT,
        [EPILOGUE_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [EPILOGUE_BIAS_GELU] = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        [EPILOGUE_DGELU] = CUBLASLT_EPILOGUE_DGELU,
    };
    const struct cuda_matmul *matmul = device_cuda(dev)->matmul;
    bool tf32 = dev->tf32 && product->first.dtype == DTYPE_F32;
    cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t first = product->transpose_first ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = product->transpose_second ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = product->sums ? CUBLASLT_EPILOGUE_BGRADA : epilogues[product->epilogue];
    cudaDataType sums = CUDA_R_32F;
    int64_t ld_aux = product->ld_aux;

    return LT_OK(dev, matmul->lt.cublasLtMatmulDescCreate(&choice->call, compute, CUDA_R_32F)) &&
           set_attribute(dev, choice, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first) &&
           set_attribute(dev, choice, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second) &&
           set_attribute(dev, choice, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) &&
           (!product->sums || set_attribute(dev, choice, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &sums, sizeof sums)) &&
           (!ld_aux || set_attribute(dev, choice, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld_aux, sizeof ld_aux));
}

static bool describe_matrix(struct device *dev, cublasLtMatrixLayout_t *layout, const struct product_matrix *matrix)
{
    return LT_OK(dev, device_cuda(dev)->matmul->lt.cublasLtMatrixLayoutCreate(
                          layout, type_of(matrix->dtype), (uint64_t)matrix->rows, (uint64_t)matrix->cols, matrix->ld));
}

static bool set_preference(struct device *dev, cublasLtMatmulPreference_t preference, const struct product *product)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        uint32_t value;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)product->first.alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)product->second.alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)product->d.alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)product->d.alignment},
    };
    const struct cublaslt *lt = &device_cuda(dev)->matmul->lt;
    uint64_t workspace = MATMUL_WORKSPACE;
    bool ok = LT_OK(dev, lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                  &workspace, sizeof workspace));

    for (size_t i = 0; ok && i < sizeof wishes / sizeof *wishes; i++)
        ok = LT_OK(dev, lt->cublasLtMatmulPreferenceSetAttribute(preference, wishes[i].attribute, &wishes[i].value,
                                                                 sizeof wishes[i].value));
    return ok;
}

static bool ask_heuristic(struct device *dev, struct matmul_choice *choice, const struct product *product)
{
    const struct cuda_matmul *matmul = device_cuda(dev)->matmul;
    cublasLtMatmulHeuristicResult_t results[MATMUL_CANDIDATES];
    cublasLtMatmulPreference_t preference = NULL;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    int count = 0;
    bool ok;

    if (!LT_OK(dev, matmul->lt.cublasLtMatmulPreferenceCreate(&preference)))
        return false;
    ok = set_preference(dev, preference, product);
    if (ok)
        status = matmul->lt.cublasLtMatmulAlgoGetHeuristic(matmul->handle, choice->call, choice->first, choice->second,
                                                           choice->d, choice->d, preference, MATMUL_CANDIDATES, results,
                                                           &count);
    if (!LT_OK(dev, matmul->lt.cublasLtMatmulPreferenceDestroy(preference)) || !ok)
        return false;
    /* No candidate. Which of the two it says of an epilogue that it does not know for these types and strides is not
     * written down. */
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
        return true;
    if (!matmul_ok(dev, status, "cublasLtMatmulAlgoGetHeuristic"))
        return false;
    for (int i = 0; i < count; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS)
            choice->candidates[choice->count++] = results[i].algo;
    return true;
}

/* NULL: the device has failed. */
static struct matmul_choice *choice_for(struct device *dev, const struct product *product, const struct matmul *op)
{
    struct cuda_matmul *matmul = device_cuda(dev)->matmul;
    struct matmul_choice *choice = cache_find(matmul->choices, product);
    struct error err = {0};

    if (choice)
        return set_operands(dev, choice, product, op) ? choice : NULL;
    choice = cache_add(matmul->choices, product, &err);
    if (!choice) {
        device_fail(dev, err.code, "cuda: matmul: %s", err.text);
        return NULL;
    }
    if (describe_call(dev, choice, product) && describe_matrix(dev, &choice->first, &product->first) &&
        describe_matrix(dev, &choice->second, &product->second) && describe_matrix(dev, &choice->d, &product->d) &&
        set_any_operands(dev, choice, product) && ask_heuristic(dev, choice, product) &&
        set_operands(dev, choice, product, op))
        return choice;
    return NULL;
}

/* Where cuBLASLt has no algorithm for the epilogue at these sizes, one of our own follows the plain product. */
static struct matmul_choice *choose_algorithm(struct device *dev, struct product *product, const struct matmul *op)
{
    struct matmul_choice *choice;

    product_of_matmul(product, op, 1);
    choice = choice_for(dev, product, op);
    if (choice && choice->count == 0 && (product->epilogue != EPILOGUE_NONE || product->sums)) {
        product_of_matmul(product, op, 0);
        choice = choice_for(dev, product, op);
    }
    if (choice && choice->count == 0)
        device_fail(dev, CODE_INTERNAL, "cuda: matmul: cuBLASLt has no algorithm for m = %d, n = %d, k = %d, dtype %d",
                    op->m, op->n, op->k, (int)op->dtype);
    return dev->failed ? NULL : choice;
}

cublasStatus_t matmul_run(struct device *dev, const struct matmul_choice *choice, const struct product *product,
                          const struct matmul_operands *at, int candidate)
{
    const struct cuda_matmul *matmul = device_cuda(dev)->matmul;
    float alpha = 1, beta = product->accumulate ? 1 : 0;

    return matmul->lt.cublasLtMatmul(matmul->handle, choice->call, &alpha, at->first, choice->first, at->second,
                                     choice->second, &beta, at->add, choice->d, at->d, choice->d,
                                     &choice->candidates[candidate], at->workspace, MATMUL_WORKSPACE,
                                     device_cuda(dev)->stream);
}

/* Though the heuristic has proposed it. Nothing was enqueued then. */
static bool is_refusal(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
           status == CUBLAS_STATUS_ARCH_MISMATCH;
}

/* The first that is left; false: there is none, as if the heuristic had proposed none. */
static bool choose_other(struct matmul_choice *choice)
{
    choice->out[choice->chosen] = true;
    for (choice->chosen = 0; choice->chosen < choice->count; choice->chosen++)
        if (!choice->out[choice->chosen])
            return true;
    choice->chosen = choice->count = 0;
    return false;
}

static bool product_made(struct device *dev, struct matmul_choice *choice, const struct product *product,
                         const struct matmul_operands *at)
{
    cublasStatus_t status;

    while (is_refusal(status = matmul_run(dev, choice, product, at, choice->chosen))) {
        cuda_forget_error();
        if (!choose_other(choice))
            return false;
    }
    return matmul_ok(dev, status, "cublasLtMatmul");
}

static bool place_operand(struct device *dev, struct matmul_operands *at, const struct product *product,
                          const struct matmul *op)
{
    at->workspace = cuda_workspace(dev, workspace_matmul(product_scratch(product)));
    at->first = op->b;
    at->second = op->a;
    at->d = product->unfused && at->workspace ? (char *)at->workspace + MATMUL_WORKSPACE : op->c;
    at->add = at->d;
    return at->workspace;
}

/* With or without what follows it, as cuBLASLt can; false: this way it cannot, or the device has failed. */
static bool multiply_with(struct device *dev, struct product *product, struct matmul_operands *at,
                          const struct matmul *op)
{
    struct matmul_choice *choice = choose_algorithm(dev, product, op);

    if (!choice || !place_operand(dev, at, product, op))
        return false;
    /* dgelu in place would be measured on its own results. */
    if (!choice->measured && device_cuda(dev)->matmul->measures && op->c != op->aux) {
        matmul_measure(dev, choice, product, at);
        if (dev->failed || !place_operand(dev, at, product, op))
            return false;
    }
    return product_made(dev, choice, product, at);
}

void cuda_matmul(struct device *dev, const struct matmul *given)
{
    struct matmul op = matmul_with_strides(given), asked = op;
    struct matmul_operands at;
    struct product product;

    if (!device_ready(dev, op.dtype, "matmul") || !matmul_valid(dev, &op) || op.m == 0 || op.n == 0)
        return;
    if (!device_cuda(dev)->matmul->fuses_sums)
        op.sums = NULL;
    while (!multiply_with(dev, &product, &at, &op))
        if (dev->failed)
            return;
    if (product.unfused)
        cuda_epilogue(dev, &op, at.d);
    if (asked.sums && !product.sums)
        cuda_bias_backward(dev, op.dtype, asked.sums, op.b, op.k, op.n, false);
}
