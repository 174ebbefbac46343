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

enum { DEVICE_MARKS = 2048 };

struct backend {
    const char *kind; /* the name that device_create takes */
    int (*open)(struct device *dev, int threads, struct error *err);
    void (*close)(struct device *dev);
    void (*wait)(struct device *dev);
    void (*poll)(struct device *dev); /* fails the device if an operation has failed, without waiting; may be NULL */
    void *(*alloc)(struct device *dev, enum memory space, size_t bytes, struct error *err);
    size_t (*free)(struct device *dev, enum memory space, void *pointer); /* returns the bytes that were requested */
    size_t (*workspace)(const struct device *dev);
    void (*trim)(struct device *dev);                                    /* frees the workspace */
    int (*reserve)(struct device *dev, size_t bytes, struct error *err); /* allocates it; NULL: on demand */
    bool (*widens)(const struct device *dev, enum dtype dtype);
    size_t (*unused)(struct device *dev); /* device_bytes_unused; NULL: host memory */
    bool discrete;                        /* MEMORY_DEVICE is not host memory */
    bool gpu;                             /* its operations are those of kernels/cuda */
    /* device_transfer and its functions; NULL: copies go through the queue. */
    uint64_t (*transfer)(struct device *dev, void *y, const void *x, size_t bytes);
    void (*transfer_join)(struct device *dev, uint64_t ticket);
    void (*transfer_wait)(struct device *dev, uint64_t ticket);
    /* Of a GPU: device_stream and device_gpu_name; else NULL. */
    struct CUstream_st *(*stream)(const struct device *dev);
    int (*gpu_name)(const struct device *dev, unsigned char name[], struct error *err);
    /* For bench/profile.h, on a GPU; else NULL. mark: records the time at which the queue reaches mark number `which`,
     * below DEVICE_MARKS. between: the seconds between two marks, once both are recorded. */
    void (*mark)(struct device *dev, int which);
    double (*between)(struct device *dev, int first, int second);
};

extern const struct backend backend_cpu, backend_cuda;

struct device {
    const struct backend *backend;
    void *state; /* the backend's own: struct cpu for "cpu", struct cuda for "cuda" */
    struct kernels kernels;
    int index; /* the N of "kind:N", or 0 */
    int threads;
    bool tf32;        /* device_allow_tf32 */
    int product_rows; /* kernels.h; a backend may set it when it opens */
    char description[128];

    bool failed;
    struct error failure;

    size_t allocations;
    size_t reserved;                     /* by device_reserve_workspace */
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

/* The same product with all strides given: kernels.h's 0 means packed. */
struct matmul matmul_with_strides(const struct matmul *op);

/* Of a product with its strides given. False: the device has failed, and says what is wrong. */
bool matmul_valid(struct device *dev, const struct matmul *op);

#ifdef __cplusplus
}
#endif

#endif
