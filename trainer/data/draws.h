/*
 * draws.h - the random choices that are made for one thing, such as one sample: a row of numbers that is a function of
 * (seed, site, number of the thing).
 *
 * Word i of the row is word i % 4 of the Philox block with the counter {number, site, i / 4} and the key `seed`. All
 * choices are made with integers, so they are the same on every machine.
 */
#ifndef MUSTER_TRAINER_DATA_DRAWS_H
#define MUSTER_TRAINER_DATA_DRAWS_H

#include <stdbool.h>
#include <stdint.h>

struct draws {
    uint64_t seed, number;
    uint32_t site, next; /* next word */
    uint32_t block[4];   /* the one that word next - 1 came from */
};

/* `site` says what the choices are for: philox_site("data.bert.sample"). */
struct draws draws_start(uint64_t seed, uint32_t site, uint64_t number);

/* One of 0 to bound - 1; the probability of each is 1 / bound to within 2^-32. bound is at least 1. */
uint32_t draws_below(struct draws *draws, uint32_t bound);

/* True with this probability, from 0 (never) to 1 (always), to within 2^-32. */
bool draws_chance(struct draws *draws, double probability);

#endif
