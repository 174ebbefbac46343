/*
 * permute.h - shuffled order without a list: where the i-th of n things goes, computed from i alone.
 *
 * A Feistel network over the smallest 2^(2k) >= count is a bijection whatever its round function; Philox 4x32-10, keyed
 * by the seed, is the round function. What falls outside [0, count) is sent through again until it falls inside ("cycle
 * walking", Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002), less than 4 times on average.
 */
#ifndef MUSTER_TRAINER_DATA_PERMUTE_H
#define MUSTER_TRAINER_DATA_PERMUTE_H

#include <stdint.h>

/* For each (count, seed, epoch) a bijection of [0, count); index < count. Pure. */
uint64_t permute(uint64_t index, uint64_t count, uint64_t seed, uint32_t epoch);

#endif
