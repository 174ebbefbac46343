#include "kernels/cuda/operations.h"

#include "kernels/device.h"

/*
 * Operations without a kernel yet: each fails the device by name. Whoever writes one takes its line from here, or the
 * program does not link.
 */
#define MISSING(name, ...)                                                                                             \
    void cuda_##name(struct device *dev, __VA_ARGS__)                                                                  \
    {                                                                                                                  \
        device_fail(dev, CODE_INTERNAL, "cuda: " #name " has no kernel in this build");                                \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"

MISSING(attention_forward, const struct attention *op)
MISSING(attention_backward, const struct attention_backward *op)
