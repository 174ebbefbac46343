/* cublaslt.cc - products in column-major order with plain loops, and the epilogues that muster asks for. */
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "common/dtype.h"
#include "tests/cuda/standin/standin.h"

struct layout {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
};

struct description {
    cublasOperation_t transpose_a, transpose_b;
    cublasLtEpilogue_t epilogue;
    const void *bias, *aux;
    int64_t ld_aux;
};

struct preference {
    uint64_t workspace;
    uint32_t alignment[4]; /* of A, B, C, D */
};

/* What an algorithm remembers between the heuristic and the product. The epilogue's operands are aligned as their
 * addresses were when the heuristic was asked. */
struct algorithm {
    uint32_t alignment[4], bias, aux;
    uint64_t workspace;
};

static size_t size_of(cudaDataType type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

static float get(cudaDataType type, const void *x, size_t i)
{
    uint16_t bits = type == CUDA_R_32F ? 0 : static_cast<const uint16_t *>(x)[i];

    return type == CUDA_R_32F    ? static_cast<const float *>(x)[i]
           : type == CUDA_R_16BF ? bf16_to_float(bits)
                                 : f16_to_float(bits);
}

static void put(cudaDataType type, void *x, size_t i, float value)
{
    if (type == CUDA_R_32F)
        static_cast<float *>(x)[i] = value;
    else
        static_cast<uint16_t *>(x)[i] = type == CUDA_R_16BF ? bf16_of_float(value) : f16_of_float(value);
}

/* Bytes from the first element to the end of the last. */
static size_t extent(const layout &m)
{
    return ((m.cols - 1) * static_cast<size_t>(m.ld) + m.rows) * size_of(m.type);
}

struct product {
    description call;
    layout a, b, c, d;
    algorithm how;
    const void *at_a, *at_b, *at_c;
    void *at_d;
    float alpha, beta;
    size_t m, n, k;

    bool reaches() const;
    std::vector<float> factor_a() const;
    void run() const;
    float finish(size_t i, size_t j, float sum) const;
};

bool product::reaches() const
{
    size_t aux = call.aux ? ((n - 1) * static_cast<size_t>(call.ld_aux) + m) * size_of(d.type) : 0;
    size_t bias = call.bias ? m * size_of(d.type) : 0;

    return standin_reachable(at_a, extent(a), "cublasLtMatmul's A") &&
           standin_reachable(at_b, extent(b), "cublasLtMatmul's B") &&
           (beta == 0 || standin_reachable(at_c, extent(c), "cublasLtMatmul's C")) &&
           standin_reachable(at_d, extent(d), "cublasLtMatmul's D") &&
           (!aux || standin_reachable(call.aux, aux, "cublasLtMatmul's auxiliary matrix")) &&
           (!bias || standin_reachable(call.bias, bias, "cublasLtMatmul's bias"));
}

static float gelu(float x)
{
    return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static float gelu_slope(float x)
{
    float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));

    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

float product::finish(size_t i, size_t j, float sum) const
{
    size_t at = j * static_cast<size_t>(call.ld_aux) + i;

    switch (call.epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
        return sum + get(d.type, call.bias, i);
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        sum += get(d.type, call.bias, i);
        put(d.type, const_cast<void *>(call.aux), at, sum);
        return gelu(sum);
    case CUBLASLT_EPILOGUE_DGELU:
        return sum * gelu_slope(get(d.type, call.aux, at));
    default:
        return sum;
    }
}

/* op(A) as [k][m]: what is added up for an element of D comes in the order of k. */
std::vector<float> product::factor_a() const
{
    std::vector<float> factor(m * k);

    for (size_t l = 0; l < k; l++)
        for (size_t i = 0; i < m; i++)
            factor[l * m + i] =
                get(a.type, at_a, call.transpose_a == CUBLAS_OP_N ? l * (size_t)a.ld + i : i * (size_t)a.ld + l);
    return factor;
}

void product::run() const
{
    std::vector<float> factor = factor_a(), column(m);

    for (size_t j = 0; j < n; j++) {
        std::fill(column.begin(), column.end(), 0.0f);
        for (size_t l = 0; l < k; l++) {
            float b_lj =
                get(b.type, at_b, call.transpose_b == CUBLAS_OP_N ? j * (size_t)b.ld + l : l * (size_t)b.ld + j);

            for (size_t i = 0; i < m; i++)
                column[i] += factor[l * m + i] * b_lj;
        }
        for (size_t i = 0; i < m; i++) {
            float sum = alpha * column[i];

            if (beta != 0)
                sum += beta * get(c.type, at_c, j * (size_t)c.ld + i);
            put(d.type, at_d, j * (size_t)d.ld + i, finish(i, j, sum));
        }
    }
}

static bool aligned(const void *at, uint32_t alignment)
{
    return reinterpret_cast<uintptr_t>(at) % alignment == 0;
}

static uint32_t alignment_of(const void *at)
{
    uintptr_t bits = reinterpret_cast<uintptr_t>(at) | 256;

    return static_cast<uint32_t>(bits & (~bits + 1));
}

static bool wants_aux(cublasLtEpilogue_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU;
}

static bool wants_bias(cublasLtEpilogue_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

/* The conditions of the documentation of cublasLtMatmul and of its attributes; NULL if they are met. */
static const char *refusal(const product &p)
{
    bool ta = p.call.transpose_a != CUBLAS_OP_N, tb = p.call.transpose_b != CUBLAS_OP_N;

    if ((ta ? p.a.cols : p.a.rows) != p.d.rows || (tb ? p.b.rows : p.b.cols) != p.d.cols ||
        (ta ? p.a.rows : p.a.cols) != (tb ? p.b.cols : p.b.rows) || p.c.rows != p.d.rows || p.c.cols != p.d.cols)
        return "the matrices do not fit each other";
    for (const layout *m : {&p.a, &p.b, &p.c, &p.d})
        if (m->ld < (int64_t)m->rows || m->rows == 0 || m->cols == 0)
            return "a leading dimension is less than the rows";
    if (p.a.type != p.b.type || p.c.type != p.d.type || (p.a.type == CUDA_R_32F && p.d.type != CUDA_R_32F))
        return "these types are not offered together";
    if (wants_bias(p.call.epilogue) && !p.call.bias)
        return "the epilogue wants a bias pointer";
    if (wants_aux(p.call.epilogue) && (!p.call.aux || p.call.ld_aux % 8 || p.call.ld_aux < (int64_t)p.d.rows))
        return "the epilogue wants an auxiliary matrix, with a leading dimension that is a multiple of 8";
    return NULL;
}

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = reinterpret_cast<cublasLtHandle_t>(malloc(1));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "another of cuBLAS's statuses";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *call, cublasComputeType_t compute, cudaDataType_t scale)
{
    description *made = new description();

    *call = reinterpret_cast<cublasLtMatmulDesc_t>(made);
    return scale == CUDA_R_32F && (compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_FAST_TF32)
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t call)
{
    delete reinterpret_cast<description *>(call);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t given, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    description *call = reinterpret_cast<description *>(given);
    void *to = NULL;
    size_t size = 0;

#define TAKE(member) (to = &call->member, size = sizeof call->member)
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        TAKE(transpose_a);
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        TAKE(transpose_b);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        TAKE(epilogue);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        TAKE(bias);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        TAKE(aux);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        TAKE(ld_aux);
        break;
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (bytes != size)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *matrix, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    *matrix = reinterpret_cast<cublasLtMatrixLayout_t>(new layout{type, rows, cols, ld});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix)
{
    delete reinterpret_cast<layout *>(matrix);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *wishes)
{
    *wishes = reinterpret_cast<cublasLtMatmulPreference_t>(new preference{0, {256, 256, 256, 256}});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t wishes)
{
    delete reinterpret_cast<preference *>(wishes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t given,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes)
{
    preference *wishes = reinterpret_cast<preference *>(given);
    bool wide = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;

    if (bytes != (wide ? sizeof(uint64_t) : sizeof(uint32_t)))
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        memcpy(&wishes->workspace, value, bytes);
        break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        memcpy(&wishes->alignment[0], value, bytes);
        break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        memcpy(&wishes->alignment[1], value, bytes);
        break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        memcpy(&wishes->alignment[2], value, bytes);
        break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        memcpy(&wishes->alignment[3], value, bytes);
        break;
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static product describe(cublasLtMatmulDesc_t call, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    product p = {};

    p.call = *reinterpret_cast<description *>(call);
    p.a = *reinterpret_cast<layout *>(a);
    p.b = *reinterpret_cast<layout *>(b);
    p.c = *reinterpret_cast<layout *>(c);
    p.d = *reinterpret_cast<layout *>(d);
    p.m = p.d.rows;
    p.n = p.d.cols;
    p.k = p.call.transpose_a == CUBLAS_OP_N ? p.a.cols : p.a.rows;
    return p;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t call,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t given, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int *count)
{
    const preference *wishes = reinterpret_cast<preference *>(given);
    product p = describe(call, a, b, c, d);

    (void)handle;
    *count = 0;
    if (refusal(p) || (p.call.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !standin_number("MUSTER_STANDIN_EPILOGUES", 1)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (most < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    algorithm how = {{}, alignment_of(p.call.bias), alignment_of(p.call.aux), wishes->workspace};

    memset(&results[0], 0, sizeof results[0]);
    memcpy(how.alignment, wishes->alignment, sizeof how.alignment);
    static_assert(sizeof how <= sizeof results[0].algo, "an algorithm has room for what it remembers");
    memcpy(&results[0].algo, &how, sizeof how);
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].workspaceSize = wishes->workspace;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t call, const void *alpha, const void *at_a,
                              cublasLtMatrixLayout_t a, const void *at_b, cublasLtMatrixLayout_t b, const void *beta,
                              const void *at_c, cublasLtMatrixLayout_t c, void *at_d, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    product p = describe(call, a, b, c, d);

    (void)handle;
    memcpy(&p.how, algo, sizeof p.how);
    p.at_a = at_a;
    p.at_b = at_b;
    p.at_c = at_c;
    p.at_d = at_d;
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    if (standin_number("MUSTER_STANDIN_REFUSES", 0) && p.call.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (refusal(p) || workspace_bytes < p.how.workspace || !aligned(workspace, 256) ||
        !aligned(at_a, p.how.alignment[0]) || !aligned(at_b, p.how.alignment[1]) ||
        (p.beta != 0 && !aligned(at_c, p.how.alignment[2])) || !aligned(at_d, p.how.alignment[3]) ||
        !aligned(p.call.bias, p.how.bias) || !aligned(p.call.aux, p.how.aux))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!standin_reachable(workspace, workspace_bytes, "cublasLtMatmul's workspace"))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    standin_enqueue(stream, [=] {
        if (p.reaches()) {
            memset(workspace, 0xff, 4096); /* an algorithm's scratch */
            p.run();
        }
        return true;
    });
    return CUBLAS_STATUS_SUCCESS;
}
}
