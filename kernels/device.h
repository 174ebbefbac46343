/*
 * device.h - what all kinds of device share; internal to kernels/.
 *
 * device.c holds what does not depend on the hardware: the first failure, the count of bytes, checks of operands. A
 * backend (cpu, cuda) sets `kernels` and `state` when it is opened.
 */
#ifndef MUSTER_KERNELS_DEVICE_H
#define MUSTER_KERNELS_DEVICE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The operations of struct kernels that have code of their own for each kind of device and each instruction set; the
 * backends declare them and fill their tables from this list. matmul, copy and zero are not among them. */
#define KERNELS_OPERATIONS(f)                                                                                          \
    f(bias_backward) f(norm_forward) f(norm_backward) f(residual) f(dropout_backward) f(query_key_forward)             \
        f(query_key_backward) f(gated_forward) f(gated_backward) f(attention_forward) f(attention_backward)            \
            f(embedding_forward) f(embedding_backward) f(position_embedding_forward) f(position_embedding_backward)    \
                f(cross_entropy) f(cross_entropy_stats) f(cross_entropy_combine) f(cross_entropy_finish) f(adamw)      \
                    f(gelu_forward) f(gelu_backward) f(tanh_forward) f(tanh_backward) f(add) f(accumulate) f(cast)     \
                        f(sum_of_squares)

struct backend {
    const char *kind; /* the name that device_create takes */
    int (*open)(struct device *dev, int threads, struct error *err);
    void (*close)(struct device *dev);
    void (*wait)(struct device *dev); /* NULL: an operation is complete when it returns */
    void (*poll)(struct device *dev); /* fails the device if an operation has failed, without waiting; may be NULL */
    void *(*alloc)(struct device *dev, enum memory space, size_t bytes, struct error *err);
    size_t (*free)(struct device *dev, enum memory space, void *pointer); /* returns the bytes that were requested */
    void (*trim)(struct device *dev);                                     /* frees the workspace */
    int (*reserve)(struct device *dev, size_t bytes, struct error *err);  /* allocates it; NULL: on demand */
    bool (*widens)(const struct device *dev, enum dtype dtype);           /* as device_traits; NULL: never */
    size_t (*unused)(struct device *dev);                                 /* device_bytes_unused; NULL: host memory */
    bool discrete;                                                        /* MEMORY_DEVICE is not host memory */
    bool gpu;                                                             /* its operations are those of kernels/cuda */
    int (*load_cudnn)(struct device *dev, struct error *err);             /* NULL: a device that has none */
    /* device_transfer and its functions; NULL: copies go through the queue. */
    uint64_t (*transfer)(struct device *dev, void *y, const void *x, size_t bytes);
    void (*transfer_join)(struct device *dev, uint64_t ticket);
    void (*transfer_wait)(struct device *dev, uint64_t ticket);
    /* Of a GPU: device_stream and device_gpu_name; else NULL. */
    struct CUstream_st *(*stream)(const struct device *dev);
    int (*gpu_name)(const struct device *dev, unsigned char name[], struct error *err);
};

extern const struct backend backend_cpu, backend_cuda;

struct device {
    const struct backend *backend;
    void *state; /* the backend's own: struct cpu for "cpu", struct cuda for "cuda" */
    struct kernels kernels;
    int index; /* the N of "kind:N", or 0 */
    int threads;
    bool tf32;                       /* device_allow_tf32 */
    enum attention_choice attention; /* device_choose_attention */
    int logits_rows;                 /* kernels.h; a backend may set it when it opens */
    char description[128];

    bool failed;
    struct error failure;

    size_t allocations;
    size_t reserved;                     /* by device_reserve_workspace */
    size_t workspace;                    /* bytes of it now; the backend counts them */
    size_t bytes_used[2], bytes_peak[2]; /* by enum memory */
};

/* device_create for a backend that is not in its list: the tests have such backends. */
struct device *device_open(const struct backend *backend, int index, int threads, struct error *err);

/* Keeps the first failure only: later ones are most often its consequences. */
void device_fail(struct device *dev, enum exit_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Every operation calls this first. False when the device has failed before, or fails now because `dtype` is not one;
 * `name` is the operation. */
bool device_ready(struct device *dev, enum dtype dtype, const char *name);

/* False: the device has failed, and says which arguments cannot be combined. */
bool attention_valid(struct device *dev, const struct attention *op);
bool query_key_valid(struct device *dev, const struct query_key *op);

/* The same product with all strides given: kernels.h's 0 means packed. */
struct matmul matmul_with_strides(const struct matmul *op);

/* The operand [k, *columns] whose column sums op->sums are. */
static inline const void *matmul_summed(const struct matmul *op, int *columns)
{
    *columns = op->sums_of_a ? op->m : op->n;
    return op->sums_of_a ? op->a : op->b;
}

/* Of a product with its strides given. False: the device has failed, and says what is wrong. */
bool matmul_valid(struct device *dev, const struct matmul *op);

/* Of struct dropout: t, and the factor of what is kept. */
static inline uint32_t dropout_threshold(double p)
{
    return (uint32_t)(p * 65536.0 + 0.5);
}

static inline float dropout_scale(double p)
{
    return 65536.0f / (65536.0f - (float)dropout_threshold(p));
}

#ifdef __cplusplus
}
#endif

#endif
