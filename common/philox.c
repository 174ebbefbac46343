#include "common/philox.h"

#include <math.h>

void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
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

uint32_t philox_site(const char *name)
{
    uint32_t hash = 2166136261u;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

/* Four elements share a block: element i is word i % 4 of the block with counter {i / 4, site, step}. */
static void stream_block(struct philox_stream stream, uint64_t block, uint32_t out[4])
{
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), stream.site, stream.step};
    uint32_t key[2] = {(uint32_t)stream.seed, (uint32_t)(stream.seed >> 32)};

    philox4x32_10(counter, key, out);
}

uint32_t philox_u32(struct philox_stream stream, uint64_t index)
{
    uint32_t out[4];

    stream_block(stream, index / 4, out);
    return out[index % 4];
}

double philox_uniform(struct philox_stream stream, uint64_t index)
{
    return philox_u32(stream, index) * 0x1p-32;
}

/* Words 0 and 1 of a block make the normals 0 and 1, words 2 and 3 the normals 2 and 3. */
static void normal_block(struct philox_stream stream, uint64_t block, double out[4])
{
    uint32_t bits[4];

    stream_block(stream, block, bits);
    for (int pair = 0; pair < 4; pair += 2) {
        double radius = sqrt(-2.0 * log((bits[pair] + 0.5) * 0x1p-32));
        double angle = 2.0 * M_PI * (bits[pair + 1] + 0.5) * 0x1p-32;

        out[pair] = radius * cos(angle);
        out[pair + 1] = radius * sin(angle);
    }
}

void philox_normal(float *out, size_t count, struct philox_stream stream, uint64_t first, double mean, double deviation)
{
    double normal[4];
    uint64_t block = UINT64_MAX;

    for (size_t i = 0; i < count; i++) {
        uint64_t index = first + i;

        if (index / 4 != block) {
            block = index / 4;
            normal_block(stream, block, normal);
        }
        out[i] = (float)(mean + deviation * normal[index % 4]);
    }
}
