/*
 * cpu.h - the CPU backend's insides; internal to kernels/cpu.
 *
 * matmul is cpu_matmul (cpu_matmul.c), which calls a library: oneDNN, or CBLAS if that is missing. copy and zero are in
 * cpu.c. Every other operation k->NAME is ISA(NAME) in vector/, which is compiled once for each instruction set
 * (ISA is in vec.h; kernels/module.am); the device takes the best one when it is created.
 */
#ifndef MUSTER_KERNELS_CPU_CPU_H
#define MUSTER_KERNELS_CPU_CPU_H

#include "config.h"

#include "common/workspace/workspace_cpu.h"
#include "kernels/device.h"

/* What vector/ offers, once for each instruction set. The members of `op` that are not vector code are NULL. */
struct vector_kernels {
    const char *isa;
    struct kernels op;

    /*
     * The second half of a matmul: applies op's epilogue to `product` ([m,n] fp32, row stride ld) and writes c, or adds
     * to it when op accumulates; product may be c. Rows of aux are ld_aux apart. product NULL: aux has the product and
     * the bias of EPILOGUE_BIAS_GELU already.
     */
    void (*epilogue)(struct device *dev, const struct matmul *op, int ld_aux, const float *product, int ld);

    /* y[rows, cols] = x, widened; rows of y are ld_y apart, those of x ld. */
    void (*widen)(struct device *dev, float *y, int ld_y, enum dtype dtype, const void *x, int ld, int rows, int cols);
};

extern const struct vector_kernels vector_kernels_baseline, vector_kernels_avx2, vector_kernels_avx512;

#define DTYPES 3 /* of enum dtype */

struct matmul_library; /* what matmul_onednn.c or matmul_cblas.c keeps between calls */

/* Memory of the device that grows to the largest request and is kept. */
struct growing {
    void *at;
    size_t bytes;
};

struct cpu {
    const struct vector_kernels *vector;
    struct matmul_library *library;
    struct growing scratch;    /* of one operation at a time */
    struct growing scratchpad; /* of the matmul library, which runs inside an operation */
    struct growing copy;       /* of columns of a matmul's b */
};

static inline struct cpu *device_cpu(struct device *dev)
{
    return dev->state;
}

/* Makes the memory at least `bytes` large and returns its address. Do not rely on earlier contents. NULL: the device
 * has failed. */
void *cpu_grow(struct device *dev, struct growing *memory, size_t bytes);

/* Workspace for one operation, 64-byte aligned; its contents are lost at the next operation. NULL: the device has
 * failed. */
float *cpu_scratch(struct device *dev, size_t floats);

/* The same in `parts` equal parts, each with its own cache lines; *stride is the distance from one to the next. */
float *cpu_scratch_parts(struct device *dev, size_t parts, size_t floats, size_t *stride);

/* cpu_matmul.c. cpu_matmul_widened does the same for types that the library lacks; op's strides must all be given. */
void cpu_matmul(struct device *dev, const struct matmul *op);
void cpu_matmul_widened(struct device *dev, const struct matmul *op);

/*
 * The library behind matmul. matmul_library_run computes c = op(a) op(b) (+ bias) (+ c when accumulate), for types for
 * which matmul_native is true. The strides must all be given. It reads bias and ignores epilogue.
 */
int matmul_library_open(struct device *dev, struct error *err);
void matmul_library_close(struct matmul_library *library);
void matmul_library_name(char *name, size_t size);
bool matmul_native(const struct matmul_library *library, enum dtype dtype);
void matmul_library_run(struct device *dev, const struct matmul *op);

/* Whether to copy b first, to a row stride that is not a multiple of 1 KiB (cache conflicts). Of fp32 only. */
bool matmul_wants_copy(const struct matmul_library *library, const struct matmul *op);

#endif
