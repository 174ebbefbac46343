#include "kernels/cpu/vector/dropout.h"

/*
 * Philox 4x32-10 (common/philox.h) on LANES / 2 blocks at a time. A word lies in the lower half of a 64-bit lane, since
 * that is what the processor's widening multiplication reads; the upper half may hold anything.
 */
#define BLOCKS (LANES / 2)

typedef uint64_t words __attribute__((vector_size(LANES * 4)));
typedef uint64_t words_unaligned __attribute__((vector_size(LANES * 4), aligned(2), may_alias));

INLINE words widening_product(words x, uint32_t factor)
{
    const words all = (words){0} + factor;

#if defined(__AVX512F__)
    return (words)_mm512_mul_epu32((__m512i)x, (__m512i)all);
#elif defined(__AVX2__)
    return (words)_mm256_mul_epu32((__m256i)x, (__m256i)all);
#elif defined(__SSE2__)
    return (words)_mm_mul_epu32((__m128i)x, (__m128i)all);
#else
    return (x & 0xffffffff) * all;
#endif
}

/* Each block's four words next to each other. */
INLINE void store_blocks(uint16_t *bits, const words c[4])
{
    words low = (c[0] & 0xffffffff) | (c[1] << 32), high = (c[2] & 0xffffffff) | (c[3] << 32);
    words first, second;
#if LANES == 16
    first = __builtin_shuffle(low, high, (words){0, 8, 1, 9, 2, 10, 3, 11});
    second = __builtin_shuffle(low, high, (words){4, 12, 5, 13, 6, 14, 7, 15});
#elif LANES == 8
    first = __builtin_shuffle(low, high, (words){0, 4, 1, 5});
    second = __builtin_shuffle(low, high, (words){2, 6, 3, 7});
#else
    first = __builtin_shuffle(low, high, (words){0, 2});
    second = __builtin_shuffle(low, high, (words){1, 3});
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the order of the 16-bit halves below is that of a little-endian machine"
#endif
    *(words_unaligned *)bits = first;
    *(words_unaligned *)(bits + 2 * LANES) = second;
}

void ISA(dropout_bits)(uint16_t *bits, struct philox_stream stream, uint64_t first, size_t count)
{
    words index;

    for (int i = 0; i < BLOCKS; i++)
        index[i] = first / 8 + (uint64_t)i;
    for (size_t done = 0; done < count; done += 8 * BLOCKS, index += BLOCKS) {
        words c[4] = {index, index >> 32, (words){0} + stream.site, (words){0} + stream.step};
        uint32_t k0 = (uint32_t)stream.seed, k1 = (uint32_t)(stream.seed >> 32);

#pragma GCC unroll 10
        for (int round = 0; round < 10; round++) {
            words p0 = widening_product(c[0], 0xD2511F53u), p1 = widening_product(c[2], 0xCD9E8D57u);

            c[0] = (p1 >> 32) ^ c[1] ^ k0;
            c[1] = p1;
            c[2] = (p0 >> 32) ^ c[3] ^ k1;
            c[3] = p0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        store_blocks(bits + done, c);
    }
}

INLINE void backward_chunk(enum dtype T, void *dx, const void *dy, struct dropout_run *run, uint64_t element,
                           size_t first, size_t end)
{
    for (size_t i = first; i < end; i += LANES) {
        size_t count = vec_count(i, end);
        vec v = typed_load_part(T, dy, i, count);

        typed_store_part(T, dx, i, run ? dropout_apply(run, v, element + i) : v, count);
    }
}

void ISA(dropout_backward)(struct device *dev, enum dtype dtype, void *dx, const void *dy, size_t count,
                           const struct dropout *op)
{
    if (!device_ready(dev, dtype, "dropout_backward") || (op->p <= 0 && dx == dy))
        return;
#pragma omp parallel num_threads(dev->threads)
    {
        struct dropout_run bits, *run = dropout_begin(&bits, op) ? &bits : NULL;

#pragma omp for schedule(static)
        for (size_t first = 0; first < count; first += CHUNK)
            WITH_DTYPE(dtype, T,
                       backward_chunk(T, dx, dy, run, op->first, first, count - first < CHUNK ? count : first + CHUNK));
    }
}
