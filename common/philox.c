#include "common/philox.h"

#include <math.h>

uint32_t philox_site(const char *name)
{
    uint32_t hash = 2166136261u;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

uint32_t philox_u32(struct philox_stream stream, uint64_t index)
{
    uint32_t out[4];

    philox_block(stream, index / 4, out);
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

    philox_block(stream, block, bits);
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
