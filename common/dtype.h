/* dtype.h - the element types that tensors have in memory and in checkpoints. */
#ifndef MUSTER_COMMON_DTYPE_H
#define MUSTER_COMMON_DTYPE_H

#include <stddef.h>

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };

static inline size_t dtype_size(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 4 : 2;
}

#endif
