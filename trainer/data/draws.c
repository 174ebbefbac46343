#include "trainer/data/draws.h"

#include <string.h>

#include "common/philox.h"

struct draws draws_start(uint64_t seed, uint32_t site, uint64_t number)
{
    return (struct draws){.seed = seed, .site = site, .number = number};
}

static uint32_t next_word(struct draws *draws)
{
    struct philox_stream stream = {draws->seed, draws->site, draws->next / 4};

    if (draws->next % 4 == 0)
        philox_block(stream, draws->number, draws->block);
    return draws->block[draws->next++ % 4];
}

uint32_t draws_below(struct draws *draws, uint32_t bound)
{
    return (uint32_t)((uint64_t)next_word(draws) * bound >> 32);
}

bool draws_chance(struct draws *draws, double probability)
{
    return next_word(draws) < (uint64_t)(probability * 0x1p32);
}

/* Four give a strong pseudo-random permutation with large halves (Luby and Rackoff); small halves need more. */
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
static uint64_t feistel_network(uint64_t value, unsigned bits, uint64_t seed, uint32_t epoch)
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
        index = feistel_network(index, bits, seed, epoch);
    while (index >= count);
    return index;
}

int mask_count(double probability, int tokens)
{
    int count = (int)(probability * tokens + 0.5);

    return count < 1 ? 1 : count;
}

/* The number of consecutive tokens from `first` that are not chosen, at most `most`. */
static int count_free(const bool *chosen, int first, int end, int most)
{
    int room = 0;

    while (room < most && first + room < end && !chosen[first + room])
        room++;
    return room;
}

int mask_choose(struct draws *draws, int a, int b, int count, int *order, bool *chosen, struct mask_span *spans)
{
    int tokens = a + b, nspans = 0;

    memset(chosen, 0, (size_t)tokens * sizeof *chosen);
    for (int i = 0; i < tokens; i++)
        order[i] = i;
    for (int i = 0; i < tokens && count > 0; i++) { /* a partial Fisher-Yates shuffle */
        int other = i + (int)draws_below(draws, (uint32_t)(tokens - i));
        int first = order[other], length, room;
        uint32_t ticket;

        order[other] = order[i];
        if (chosen[first])
            continue;
        ticket = draws_below(draws, 11);
        length = ticket < 6 ? 1 : ticket < 9 ? 2 : 3;
        room = count_free(chosen, first, first < a ? a : tokens, length < count ? length : count);
        memset(chosen + first, 1, (size_t)room * sizeof *chosen);
        spans[nspans++] = (struct mask_span){first, room};
        count -= room;
    }
    return nspans;
}
