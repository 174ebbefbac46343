#include "kernels/cpu/vector/typed.h"
#include "kernels/cpu/vector/vector.h"

/* Operations on flat arrays. Threads take pieces of CHUNK elements, small enough to be spread evenly. */
#define CHUNK 4096

#define EACH_CHUNK(first, count)                                                                                       \
    _Pragma("omp parallel for num_threads(dev->threads) schedule(static)") for (size_t first = 0; first < (count);     \
                                                                                first += CHUNK)

static size_t chunk_end(size_t first, size_t count)
{
    return count - first < CHUNK ? count : first + CHUNK;
}

INLINE void gelu_backward_chunk(enum dtype T, void *dx, const void *dy, const void *x, size_t first, size_t end)
{
    for (size_t i = first; i < end; i += LANES) {
        size_t part = vec_count(i, end);
        vec slope = vec_gelu_derivative(typed_load_part(T, x, i, part));

        typed_store_part(T, dx, i, typed_load_part(T, dy, i, part) * slope, part);
    }
}

void ISA(gelu_backward)(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *x, size_t count)
{
    if (!device_ready(dev, dtype, "gelu_backward"))
        return;
    EACH_CHUNK(first, count)
    WITH_DTYPE(dtype, T, gelu_backward_chunk(T, dx, dy, x, first, chunk_end(first, count)));
}

INLINE void tanh_chunk(enum dtype T, void *y, const void *x, size_t first, size_t end)
{
    for (size_t i = first; i < end; i += LANES) {
        size_t part = vec_count(i, end);

        typed_store_part(T, y, i, vec_tanh(typed_load_part(T, x, i, part)), part);
    }
}

void ISA(tanh_forward)(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    if (!device_ready(dev, dtype, "tanh_forward"))
        return;
    EACH_CHUNK(first, count)
    WITH_DTYPE(dtype, T, tanh_chunk(T, y, x, first, chunk_end(first, count)));
}

INLINE void tanh_backward_chunk(enum dtype T, void *dx, const void *dy, const void *y, size_t first, size_t end)
{
    for (size_t i = first; i < end; i += LANES) {
        size_t part = vec_count(i, end);
        vec t = typed_load_part(T, y, i, part);

        typed_store_part(T, dx, i, typed_load_part(T, dy, i, part) * (1.0f - t * t), part);
    }
}

void ISA(tanh_backward)(struct device *dev, enum dtype dtype, void *dx, const void *dy, const void *y, size_t count)
{
    if (!device_ready(dev, dtype, "tanh_backward"))
        return;
    EACH_CHUNK(first, count)
    WITH_DTYPE(dtype, T, tanh_backward_chunk(T, dx, dy, y, first, chunk_end(first, count)));
}

INLINE void add_chunk(enum dtype T, void *y, enum dtype of_x, const void *x, size_t first, size_t end)
{
    for (size_t i = first; i < end; i += LANES) {
        size_t part = vec_count(i, end);

        typed_store_part(T, y, i, typed_load_part(T, y, i, part) + typed_load_part(of_x, x, i, part), part);
    }
}

void ISA(add)(struct device *dev, enum dtype dtype, void *y, const void *x, size_t count)
{
    if (!device_ready(dev, dtype, "add"))
        return;
    EACH_CHUNK(first, count)
    WITH_DTYPE(dtype, T, add_chunk(T, y, T, x, first, chunk_end(first, count)));
}

void ISA(accumulate)(struct device *dev, float *y, enum dtype dtype, const void *x, size_t count)
{
    if (!device_ready(dev, dtype, "accumulate"))
        return;
    EACH_CHUNK(first, count)
    WITH_DTYPE(dtype, T, add_chunk(DTYPE_F32, y, T, x, first, chunk_end(first, count)));
}

INLINE void cast_chunk(enum dtype to, void *y, enum dtype from, const void *x, size_t first, size_t end)
{
    for (size_t i = first; i < end; i += LANES) {
        size_t part = vec_count(i, end);

        typed_store_part(to, y, i, typed_load_part(from, x, i, part), part);
    }
}

void ISA(cast)(struct device *dev, enum dtype to, void *y, enum dtype from, const void *x, size_t count)
{
    if (!device_ready(dev, to, "cast"))
        return;
    EACH_CHUNK(first, count)
    WITH_DTYPE(to, TO, WITH_DTYPE(from, FROM, cast_chunk(TO, y, FROM, x, first, chunk_end(first, count))));
}
