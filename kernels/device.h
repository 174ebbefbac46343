/*
 * device.h - what every kind of device has in common; internal to kernels/.
 *
 * device.c holds the part that does not depend on the hardware: the sticky error and the count of bytes. A backend
 * (cpu, cuda) fills in `kernels` and `state` when it is opened.
 */
#ifndef MUSTER_KERNELS_DEVICE_H
#define MUSTER_KERNELS_DEVICE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct backend {
    const char *kind; /* what device_create is asked for */
    int (*open)(struct device *dev, int threads, struct error *err);
    void (*close)(struct device *dev);
    void (*wait)(struct device *dev);
    void (*poll)(struct device *dev); /* fails the device for what has failed meanwhile, without waiting; may be NULL */
    void *(*alloc)(struct device *dev, enum memory space, size_t bytes, struct error *err);
    size_t (*free)(struct device *dev, enum memory space, void *pointer); /* the bytes that alloc was asked for */
    size_t (*workspace)(const struct device *dev);
    void (*trim)(struct device *dev);                                    /* frees the workspace */
    int (*reserve)(struct device *dev, size_t bytes, struct error *err); /* takes it; NULL: it comes as it is wanted */
    bool (*widens)(const struct device *dev, enum dtype dtype);
    size_t (*unused)(struct device *dev); /* device_bytes_unused; NULL: MEMORY_DEVICE is of the host's */
    bool discrete;                        /* MEMORY_DEVICE is not host memory */
    bool gpu;                             /* the operations are kernels/cuda's */
    /* device_transfer and what goes with it; NULL: copies are made in the queue, which is waited for. */
    uint64_t (*transfer)(struct device *dev, void *y, const void *x, size_t bytes);
    void (*transfer_join)(struct device *dev, uint64_t ticket);
    void (*transfer_wait)(struct device *dev, uint64_t ticket);
    /* profile.h: mark number `which`, when the queue comes to it; seconds between two, waiting for them. NULL: the
     * host's clock does. */
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

    struct profile *profile; /* profile.h; NULL: nothing is measured */

    bool failed;
    struct error failure;

    size_t allocations;
    size_t reserved;                     /* by device_reserve_workspace */
    size_t bytes_used[2], bytes_peak[2]; /* by enum memory */
};

/* device_create for a backend that is not in its list: the tests have such backends. */
struct device *device_open(const struct backend *backend, int index, int threads, struct error *err);

/* The first failure sticks; what follows it is most often its consequence. */
void device_fail(struct device *dev, enum exit_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Every operation asks this first: false when the device has failed before, or (and then it fails now) when the type
 * that `name` is asked for is none. */
bool device_ready(struct device *dev, enum dtype dtype, const char *name);

#ifdef __cplusplus
}
#endif

#endif
