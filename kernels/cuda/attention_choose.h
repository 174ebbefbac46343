/*
 * attention_choose.h - which of the tiled kernels an operation is for, among those that are compiled: one for each
 * type, head size and whether anything is dropped. The passes share this; each brings its launch as
 *
 *     struct forward {
 *         template <enum dtype T, int D, bool DROPS> static void launch(struct device *, const struct attention_call
 * *);
 *     };
 */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_CHOOSE_H
#define MUSTER_KERNELS_CUDA_ATTENTION_CHOOSE_H

#include "kernels/cuda/attention.h"

template <class Pass, enum dtype T, int D>
static void attention_choose_drops(struct device *dev, const struct attention_call *call)
{
    if (call->drops)
        Pass::template launch<T, D, true>(dev, call);
    else
        Pass::template launch<T, D, false>(dev, call);
}

template <class Pass, enum dtype T>
static void attention_choose_size(struct device *dev, const struct attention_call *call)
{
    switch (call->head_size) {
    case 64:
        return attention_choose_drops<Pass, T, 64>(dev, call);
    case 80:
        return attention_choose_drops<Pass, T, 80>(dev, call);
    case 96:
        return attention_choose_drops<Pass, T, 96>(dev, call);
    case 128:
        return attention_choose_drops<Pass, T, 128>(dev, call);
    }
}

/* Of a call that attention_fits_tiles. */
template <class Pass> static void attention_choose(struct device *dev, const struct attention_call *call)
{
    if (call->dtype == DTYPE_BF16)
        attention_choose_size<Pass, DTYPE_BF16>(dev, call);
    else
        attention_choose_size<Pass, DTYPE_F16>(dev, call);
}

#endif
