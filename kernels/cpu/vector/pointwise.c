#include "kernels/cpu/vector/vector.h"

/* Operations on flat arrays. */
#define EACH_CHUNK(first, count)                                                                                       \
    _Pragma("omp parallel for num_threads(dev->threads) schedule(static)") for (size_t first = 0; first < (count);     \
                                                                                first += CHUNK)

/* Functions of one or two elements; constants where they are called, so that each call is compiled for its own. */
enum flat { GELU, GELU_SLOPE, TANH, TANH_SLOPE, SUM, SAME };

INLINE vec flat_value(enum flat f, vec x, vec y)
{
    switch (f) {
    case GELU:
        return vec_gelu(x);
    case GELU_SLOPE:
        return x * vec_gelu_derivative(y);
    case TANH:
        return vec_tanh(x);
    case TANH_SLOPE:
        return x * (1.0f - y * y);
    case SUM:
        return x + y;
    case SAME:
        break;
    }
    return x;
}

/* z = f(x, y); y is not read where f does not need it. Operands may be the same array. */
INLINE void flat_chunk(enum flat f, enum dtype Z, void *z, enum dtype X, const void *x, enum dtype Y, const void *y,
                       size_t first, size_t count)
{
    size_t end = count - first < CHUNK ? count : first + CHUNK;

    for (size_t i = first; i < end; i += LANES) {
        size_t part = vec_count(i, end);
        vec b = f == GELU || f == TANH || f == SAME ? (vec){0} : typed_load_part(Y, y, i, part);

        typed_store_part(Z, z, i, flat_value(f, typed_load_part(X, x, i, part), b), part);
    }
}

/* An operation of kernels.h on operands of one type: z = f(x, y). */
#define FLAT_OPERATION(name, parameters, f, z, x, y)                                                                   \
    void ISA(name) parameters                                                                                          \
    {                                                                                                                  \
        if (!device_ready(dev, dtype, #name))                                                                          \
            return;                                                                                                    \
        EACH_CHUNK(first, count)                                                                                       \
        WITH_DTYPE(dtype, T, flat_chunk(f, T, z, T, x, T, y, first, count));                                           \
    }

#define OF_ONE (struct device * dev, enum dtype dtype, void *y, const void *x, size_t count)
#define OF_TWO (struct device * dev, enum dtype dtype, void *z, const void *x, const void *y, size_t count)

FLAT_OPERATION(gelu_forward, OF_ONE, GELU, y, x, NULL)
FLAT_OPERATION(gelu_backward, OF_TWO, GELU_SLOPE, z, x, y)
FLAT_OPERATION(tanh_forward, OF_ONE, TANH, y, x, NULL)
FLAT_OPERATION(tanh_backward, OF_TWO, TANH_SLOPE, z, x, y)
FLAT_OPERATION(add, OF_ONE, SUM, y, y, x)

void ISA(accumulate)(struct device *dev, float *y, enum dtype dtype, const void *x, size_t count)
{
    if (!device_ready(dev, dtype, "accumulate"))
        return;
    EACH_CHUNK(first, count)
    WITH_DTYPE(dtype, T, flat_chunk(SUM, DTYPE_F32, y, DTYPE_F32, y, T, x, first, count));
}

void ISA(cast)(struct device *dev, enum dtype to, void *y, enum dtype from, const void *x, size_t count)
{
    if (!device_ready(dev, to, "cast"))
        return;
    EACH_CHUNK(first, count)
    WITH_DTYPE(to, TO, WITH_DTYPE(from, FROM, flat_chunk(SAME, TO, y, FROM, x, FROM, NULL, first, count)));
}
