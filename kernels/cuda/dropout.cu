#include "kernels/cuda/dropout.h"
#include "kernels/cuda/operations.h"

/* dx = dy * mask */
template <class T>
static __global__ void __launch_bounds__(FLAT_THREADS)
    dropout_backward(T *dx, const T *dy, size_t count, struct mask mask)
{
    size_t first = flat_first();
    struct pack x;
    int n;

    if (first >= count)
        return;
    n = pack_count(first, count);
    x = pack_load(dy + first, n);
    mask_apply(mask, x, first);
    pack_store(dx + first, x, n);
}

void cuda_dropout_backward(struct device *dev, enum dtype dtype, void *dx, const void *dy, size_t count,
                           const struct dropout *dropout)
{
    struct mask mask = mask_of(dropout);

    if (!device_ready(dev, dtype, "dropout_backward") || count == 0 || (dropout->p <= 0 && dx == dy))
        return;
    WITH_TYPE(dtype, T,
              LAUNCH(dev, dropout_backward<T>, flat_blocks(count), FLAT_THREADS, 0, static_cast<T *>(dx),
                     static_cast<const T *>(dy), count, mask));
}
