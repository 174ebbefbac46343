#include "kernels/cpu/cpu.h"

#include <cblas.h>
#include <stdio.h>
#include <string.h>

void matmul_library_name(char *name, size_t size)
{
#ifdef OPENBLAS_VERSION
    const char *version = OPENBLAS_VERSION; /* " OpenBLAS 0.3.21 " */

    snprintf(name, size, "OpenBLAS %.*s", (int)strcspn(version + strlen(" OpenBLAS "), " "),
             version + strlen(" OpenBLAS "));
#else
    snprintf(name, size, "CBLAS");
#endif
}

/* CBLAS keeps nothing for us. */
int matmul_library_open(struct device *dev, struct error *err)
{
    (void)dev, (void)err;
    return 0;
}

void matmul_library_close(struct matmul_library *lib)
{
    (void)lib;
}

bool matmul_native(const struct matmul_library *lib, enum dtype dtype)
{
    (void)lib;
    return dtype == DTYPE_F32;
}

/* It packs what it reads. */
bool matmul_wants_copy(const struct matmul_library *lib, const struct matmul *op)
{
    (void)lib, (void)op;
    return false;
}

/* What sgemm adds to: the bias in every row. */
static void prepare_operand(struct device *dev, const struct matmul *op)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int row = 0; row < op->m; row++)
        memcpy((float *)op->c + (size_t)row * (size_t)op->ldc, op->bias, (size_t)op->n * sizeof(float));
}

void matmul_library_run(struct device *dev, const struct matmul *op)
{
#ifdef OPENBLAS_VERSION
    openblas_set_num_threads(dev->threads);
#endif
    if (op->bias)
        prepare_operand(dev, op);
    cblas_sgemm(CblasRowMajor, op->transpose_a ? CblasTrans : CblasNoTrans, op->transpose_b ? CblasTrans : CblasNoTrans,
                op->m, op->n, op->k, 1.0f, op->a, op->lda, op->b, op->ldb, op->bias || op->accumulate ? 1.0f : 0.0f,
                op->c, op->ldc);
}
