#include "kernels/cuda/cublaslt.h"

#define TEXT(x)  TEXT_(x)
#define TEXT_(x) #x

/* The ABI that the headers describe; other major versions number their attributes anew. */
static const struct library library = {
    .name = "cuBLASLt",
    .variable = "MUSTER_CUBLASLT",
    .sonames = {"libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)},
    .version = TEXT(CUBLAS_VER_MAJOR) ".0",
};

int cublaslt_load(struct cublaslt *cublaslt, struct error *err)
{
    static const char *const names[] = {CUBLASLT_FUNCTIONS(LIBRARY_NAME)};

    return library_load(&library, names, sizeof names / sizeof *names, cublaslt, err);
}
