/*
 * cpu.h - the CPU backend's insides; internal to kernels/cpu.
 *
 * Three kinds of code: matmul goes to a library (oneDNN, or CBLAS where that is missing); vector/ is compiled once an
 * instruction set and chosen when the device is created; the rest is plain.
 */
#ifndef MUSTER_KERNELS_CPU_CPU_H
#define MUSTER_KERNELS_CPU_CPU_H

#include "kernels/device.h"

/* What vector/ offers, once for each instruction set. The members of `op` that are not vector code are NULL. */
struct vector_kernels {
    const char *isa;
    struct kernels op;

    /* Second half of the matmul epilogues: c = gelu(aux) (+ c when accumulate); c *= gelu'(aux). aux [m,n] packed. */
    void (*epilogue_gelu)(struct device *dev, float *c, int ldc, const float *aux, int m, int n, bool accumulate);
    void (*epilogue_dgelu)(struct device *dev, float *c, int ldc, const float *aux, int m, int n);
};

extern const struct vector_kernels vector_kernels_baseline, vector_kernels_avx2, vector_kernels_avx512;

/* The best table that this processor runs, or the lesser one that the environment's MUSTER_ISA names. */
const struct vector_kernels *vector_kernels_choose(struct error *err);

struct product_library; /* what matmul_onednn.c or matmul_cblas.c keeps between calls */

struct cpu {
    const struct vector_kernels *vector;
    struct product_library *library;
    float *scratch; /* grows to what the largest operation so far needed, and stays */
    size_t scratch_floats;
};

static inline struct cpu *device_cpu(struct device *dev)
{
    return dev->state;
}

/* Working memory for one operation, 64-byte aligned; what it holds is lost at the next operation. NULL: the device has
 * failed. Not counted in device_bytes_used. */
float *cpu_scratch(struct device *dev, size_t floats);

/* The same in `parts` equal parts, each with its own cache lines; *stride is the distance from one to the next. */
float *cpu_scratch_parts(struct device *dev, size_t parts, size_t floats, size_t *stride);

/* cpu/memory.c */
void *cpu_alloc(struct device *dev, enum memory space, size_t bytes, struct error *err);
size_t cpu_free(struct device *dev, enum memory space, void *pointer);
void cpu_copy(struct device *dev, void *y, const void *x, size_t bytes);
void cpu_zero(struct device *dev, void *y, size_t bytes);

/* cpu/matmul.c */
void cpu_matmul(struct device *dev, const struct matmul *op);

/*
 * The library behind matmul: c = op(a) op(b) (+ bias) (+ c when accumulate), leading dimensions all given. It looks at
 * bias and not at epilogue.
 */
struct product_library *product_library_open(struct device *dev, struct error *err);
void product_library_close(struct product_library *library);
void product_library_name(char *name, size_t size);
void product(struct device *dev, const struct matmul *op);

#endif
