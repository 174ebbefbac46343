/*
 * operands.h - what every device asks of a product's operands before it looks at them; internal to kernels/.
 */
#ifndef MUSTER_KERNELS_OPERANDS_H
#define MUSTER_KERNELS_OPERANDS_H

#include "kernels/kernels.h"

/* The same with all strides given: kernels.h's 0 means packed. */
struct matmul matmul_with_strides(const struct matmul *op);

/* Of an operation with its strides given; false: the device has failed, with what is wrong. */
bool matmul_valid(struct device *dev, const struct matmul *op);

#endif
