#include "trainer/data/draws.h"

#include "common/philox.h"

struct draws draws_start(uint64_t seed, uint32_t site, uint64_t number)
{
    return (struct draws){.seed = seed, .site = site, .number = number};
}

static uint32_t next_word(struct draws *draws)
{
    if (draws->next % 4 == 0) {
        uint32_t counter[4] = {(uint32_t)draws->number, (uint32_t)(draws->number >> 32), draws->site, draws->next / 4};
        uint32_t key[2] = {(uint32_t)draws->seed, (uint32_t)(draws->seed >> 32)};

        philox4x32_10(counter, key, draws->block);
    }
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
