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

MISSING(bias_backward, enum dtype dtype, float *db, const void *dy, int rows, int n, bool accumulate)
MISSING(layernorm_forward, const struct layernorm *op)
MISSING(layernorm_backward, const struct layernorm_backward *op)
MISSING(residual, const struct residual *op)
MISSING(embedding_forward, const struct embedding *op)
MISSING(embedding_backward, const struct embedding *op)
MISSING(positions_forward, const struct positions *op)
MISSING(positions_backward, const struct positions *op)
MISSING(cross_entropy_stats, const struct cross_entropy *op)
MISSING(cross_entropy_combine, const struct cross_entropy_combine *op)
MISSING(cross_entropy_finish, const struct cross_entropy *op)
