/*
 * cpu.h - the CPU backend's insides; internal to kernels/cpu.
 *
 * Three kinds of code: matmul goes to a library (oneDNN, or CBLAS where that is missing); vector/ is compiled once an
 * instruction set and chosen when the device is created; the rest is plain.
 */
#ifndef MUSTER_KERNELS_CPU_CPU_H
#define MUSTER_KERNELS_CPU_CPU_H

#include "kernels/cpu/cpu_workspace.h"
#include "kernels/device.h"

/* What vector/ offers, once for each instruction set. The members of `op` that are not vector code are NULL. */
struct vector_kernels {
    const char *isa;
    struct kernels op;

    /*
     * The second half of a product. epilogue: c = op's epilogue of product [m,n] fp32 with rows ld apart, which may be
     * where c is. epilogue_gelu: c = gelu(aux), aux [m,n] being there already. Rows of aux are ld_aux apart. Both add
     * to c when accumulate.
     */
    void (*epilogue)(struct device *dev, const struct matmul *op, int ld_aux, const float *product, int ld);
    void (*epilogue_gelu)(struct device *dev, const struct matmul *op, int ld_aux);

    /* y[rows, cols] = x, widened; rows of y are ld_y apart, those of x ld. */
    void (*widen)(struct device *dev, float *y, int ld_y, enum dtype dtype, const void *x, int ld, int rows, int cols);
};

extern const struct vector_kernels vector_kernels_baseline, vector_kernels_avx2, vector_kernels_avx512;

/* The best table that this processor runs, or the lesser one that the environment's MUSTER_ISA names. */
const struct vector_kernels *vector_kernels_choose(struct error *err);

#define DTYPES 3 /* of enum dtype */

struct product_library; /* what matmul_onednn.c or matmul_cblas.c keeps between calls */

/* Memory of the device that grows to the most that was asked for, and stays. */
struct growing {
    void *at;
    size_t bytes;
};

struct cpu {
    const struct vector_kernels *vector;
    struct product_library *library;
    struct growing scratch;    /* of one operation at a time */
    struct growing scratchpad; /* of the product's library, which runs inside an operation */
    struct growing copy;       /* of columns of a product's b */
};

static inline struct cpu *device_cpu(struct device *dev)
{
    return dev->state;
}

/* At least `bytes` of it; what it held is lost. NULL: the device has failed. */
void *cpu_grow(struct device *dev, struct growing *memory, size_t bytes);

/* Working memory for one operation, 64-byte aligned; what it holds is lost at the next operation. NULL: the device has
 * failed. */
float *cpu_scratch(struct device *dev, size_t floats);

/* The same in `parts` equal parts, each with its own cache lines; *stride is the distance from one to the next. */
float *cpu_scratch_parts(struct device *dev, size_t parts, size_t floats, size_t *stride);

/* cpu/memory.c */
void *cpu_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err);
size_t cpu_free(struct device *dev, enum memory space, void *pointer);
void cpu_copy(struct device *dev, void *y, const void *x, size_t bytes);
void cpu_zero(struct device *dev, void *y, size_t bytes);

/* cpu/matmul.c, cpu/matmul_widened.c; the latter for types that the library lacks, leading dimensions all given */
void cpu_matmul(struct device *dev, const struct matmul *op);
void cpu_matmul_widened(struct device *dev, const struct matmul *op);

/*
 * The library behind matmul: c = op(a) op(b) (+ bias) (+ c when accumulate), leading dimensions all given, of types for
 * which product_native holds. It looks at bias and not at epilogue.
 */
struct product_library *product_library_open(struct device *dev, struct error *err);
void product_library_close(struct product_library *library);
void product_library_name(char *name, size_t size);
bool product_native(const struct product_library *library, enum dtype dtype);
void product(struct device *dev, const struct matmul *op);

/* Whether the product would be faster if b were copied to where its rows are not a multiple of 1 KiB apart; and of
 * which types any may be. */
bool product_wants_copy(const struct product_library *library, const struct matmul *op);
bool product_may_copy(enum dtype dtype);

#endif
