/*
 * philox.h - counter-based random numbers: any element of any stream, in any order, from its coordinates alone.
 *
 * Philox 4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11. A stream is
 * keyed by (seed, site, step); its elements are numbered from 0. Since an element is a pure function of these, initial
 * weights and dropout masks do not depend on how many ranks share the work.
 */
#ifndef MUSTER_COMMON_PHILOX_H
#define MUSTER_COMMON_PHILOX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct philox_stream {
    uint64_t seed;
    uint32_t site; /* what the numbers are for: philox_site("h.3.attn.c_attn.weight") */
    uint32_t step; /* a second index; 0 in muster so far */
};

#ifdef __CUDACC__
#define PHILOX_INLINE static __host__ __device__ inline
#else
#define PHILOX_INLINE static inline
#endif

/* The block function: 128 bits of counter and 64 of key to 128 random bits. Inline, so that GPUs run the same code. */
PHILOX_INLINE void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* A block of a stream, four of its elements: that of the counter {low block, high block, site, step} by the seed. */
PHILOX_INLINE void philox_block(struct philox_stream stream, uint64_t block, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), stream.site, stream.step};
    const uint32_t key[2] = {(uint32_t)stream.seed, (uint32_t)(stream.seed >> 32)};

    philox4x32_10(counter, key, out);
}

/* A site's number: FNV-1a of its name. */
uint32_t philox_site(const char *name);

/* Element `index` of the stream, as 32 uniform bits, or as a double in [0, 1). */
uint32_t philox_u32(struct philox_stream stream, uint64_t index);
double philox_uniform(struct philox_stream stream, uint64_t index);

/* Elements [first, first + count) of the stream as normal deviates (Box and Muller, from pairs of uniforms). */
void philox_normal(float *out, size_t count, struct philox_stream stream, uint64_t first, double mean,
                   double deviation);

#ifdef __cplusplus
}
#endif

#endif
