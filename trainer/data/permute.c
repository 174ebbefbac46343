#include "trainer/data/permute.h"

#include "common/philox.h"

/* Four make a strong pseudo-random permutation of large halves (Luby and Rackoff); small halves need some more. */
#define ROUNDS 8

static uint32_t round_bits(uint32_t half, uint32_t round, uint64_t seed, uint32_t epoch)
{
    uint32_t counter[4] = {half, round, epoch, philox_site("data.order")};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];

    philox4x32_10(counter, key, out);
    return out[0];
}

/* A permutation of [0, 2^(2 * bits)), 1 <= bits <= 32. */
static uint64_t feistel(uint64_t value, unsigned bits, uint64_t seed, uint32_t epoch)
{
    uint32_t mask = (uint32_t)((1ull << bits) - 1);
    uint32_t left = (uint32_t)(value >> bits), right = (uint32_t)value & mask;

    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t mixed = left ^ (round_bits(right, round, seed, epoch) & mask);

        left = right;
        right = mixed;
    }
    return (uint64_t)left << bits | right;
}

uint64_t permute(uint64_t index, uint64_t count, uint64_t seed, uint32_t epoch)
{
    unsigned bits = 1;

    while (bits < 32 && 1ull << (2 * bits) < count)
        bits++;
    do
        index = feistel(index, bits, seed, epoch);
    while (index >= count);
    return index;
}
